"""PreToolUse: the first look, which decides for nearly every tool call that nothing is to be said.

It runs before every command and every file that an agent opens. It compares the raw input with the
project's table, without parsing it. Only if a row may apply does a hook load more.
"""

from __future__ import annotations

import os
import sys

from ralph.memory.moments_table import read_table, table_file

_MOST_INPUT_BYTES = 16 * 1024 * 1024


def serve_tool(argv: list[str]) -> int:
    """Handle a tool call that is about to run and return 0."""
    if sys.stdin is None or sys.stdin.isatty() or {"-h", "--help"} & set(argv):
        from ralph.doors.hooks.call import serve

        return serve(argv)
    data = _read_stdin()
    root = _project(argv)
    if root:
        rows = read_table(table_file(root, _home()))
        if not any(row.may_apply(data) for row in rows):
            return 0
    from ralph.doors.hooks.call import serve

    return serve(argv, data)


def _read_stdin() -> bytes:
    """Return what is on stdin; nothing if it is more than a hook reads."""
    parts: list[bytes] = []
    size = 0
    while part := os.read(0, 1 << 16):
        size += len(part)
        # Always read to the end: a client must not fail because nobody reads.
        if size <= _MOST_INPUT_BYTES:
            parts.append(part)
    return b"" if size > _MOST_INPUT_BYTES else b"".join(parts)


def _project(argv: list[str]) -> str:
    """Return the folder that the shell line found a table for, or ""."""
    for number, word in enumerate(argv):
        if word == "--project":
            return "".join(argv[number + 1 : number + 2])
        if word.startswith("--project="):
            return word.removeprefix("--project=")
    return ""


def _home() -> str:
    """Return Ralph's home, as `ralph.disk` does, which takes longer to load."""
    given = os.environ.get("RALPH_HOME")
    return os.path.expanduser(given or os.path.join("~", ".ralph"))
