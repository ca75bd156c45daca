"""The index on a Qdrant server: the same promises as the embedded one, by URL.

A passage is a point; a collection's generations are Qdrant collections, and the one that answers
is the one its alias names. Qdrant's client is imported when it is first used.
"""
