"""What each memory promises, and `open_ralph()` of `ralph.memory.ralph`, which wires everything.

Every door goes through these calls; nothing below this room knows which memory it serves.
"""
