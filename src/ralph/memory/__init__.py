"""The memories of a project, and `open_ralph()` in `ralph.memory.ralph`, which opens them all.

Every door uses this package. The packages below it do not know which memory they work for.
"""
