"""The server for a team: REST and MCP over HTTP for all kinds of memory, with access by token.

`calls` has the table of routes, `app` checks access and limits, `main` runs the process.
"""
