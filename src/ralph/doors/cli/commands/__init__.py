"""One module a command: it reads the line, calls a memory and shows the answer.

At the top a command imports click and its neighbors only; a memory is loaded when it is asked.
"""
