"""The loop: choose a task, run an agent on it, learn from what it left behind, go on.

Everything the loop knows is on disk before it matters, so that it can be killed at any point.
"""
