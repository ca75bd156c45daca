"""Pure functions on text: words in, words out.

Code that writes anything, or reads more than its own tables, does not belong here.
"""
