"""The server for a team: REST and MCP over HTTP for all kinds of memory, by tokens.

`calls` has the routes in one table, `app` decides who may ask and how much, `main` is the process.
"""
