"""The interfaces for people and programs: each parses a request, calls memory, renders the result.

A door has no logic of its own and imports no other door. It translates errors in one place.
"""
