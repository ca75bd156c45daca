"""The conversation loop, its commands, its workers, and the language models they ask.

A model is optional here as memory is elsewhere: it answers in time or says in one line why not,
what had come of its answer, and what to do. What it is shown and what it says costs what it tells.
"""
