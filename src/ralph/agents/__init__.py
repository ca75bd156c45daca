"""Starting an agent and ending it, with every process it started.

An agent is a command with a dialect. It gets the environment it needs on purpose, its output goes
to a file that survives us, and nothing of it survives the iteration.
"""
