"""Memory and plan as an agent reaches them: an MCP server over stdio, one scope a process.

A tool is a typed function that answers in text; a scope is fixed when the server starts, and no
argument of a call leads out of it.
"""
