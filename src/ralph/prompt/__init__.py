"""One prompt for one task: templates and what is known, within a budget of tokens. Pure.

Nothing here reads a file or asks a memory; what a prompt needs is given to it.
"""
