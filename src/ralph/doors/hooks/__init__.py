"""The door for hooks of Claude Code and others: one event per call, JSON on stdin and stdout.

A hook never breaks or delays its client. Whatever happens, it exits with 0 and in time, prints
nothing but its answer, and writes problems to a log. It loads only the lightest parts of the
standard library until it really needs more.
"""
