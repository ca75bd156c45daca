"""The command line: one module a command, loaded when its word is said.

Every reading command has `--json`. It ends with 0, or 1 and one clear line on stderr, or 2 when
it was called wrongly.
"""
