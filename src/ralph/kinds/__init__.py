"""What is inside a record: one module a kind, each a frozen, typed value.

A kind knows its fields and their rules; it knows nothing of files, indexes or prompts.
"""
