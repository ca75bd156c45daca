"""Where people and programs come in: parse, call a memory, render.

A door holds no knowledge of its own and imports no other door; it translates errors once.
"""
