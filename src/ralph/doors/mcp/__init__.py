"""Memory and plan for agents: an MCP server over stdio, with one scope per process.

A tool is a typed function that returns text. The scope is fixed when the server starts, and no
argument of a call can reach outside it.
"""
