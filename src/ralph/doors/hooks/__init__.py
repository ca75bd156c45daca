"""The door for Claude Code's hooks: one event a call, its JSON on stdin, its answer on stdout.

A hook never breaks or delays the client: whatever happens it ends with 0 and within its time, says
nothing but its answer, and leaves one line in a log. Until something heavy is really needed, only
the standard library's lightest parts are loaded.
"""
