"""The commands: each parses its arguments, calls memory and returns the answer.

At the top, a module imports only click and its neighbors; memory is imported when it is used.
"""
