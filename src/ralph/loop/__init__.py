"""The loop: choose a task, run an agent on it, learn from the result, repeat.

The loop saves its state to disk before it needs it, so it can be killed at any point.
"""
