"""The command line. The module of a command is loaded when it is called.

Every command that shows something has `--json`. The exit code is 0, or 1 with one clear line on
stderr, or 2 for wrong arguments.
"""
