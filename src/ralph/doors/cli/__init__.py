"""The command line: one module a command, loaded when its word is said.

Every reading command has `--json`. It ends with 0, or 1 and one clear line on stderr, or 2 when
it was called wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Run one command and give its exit code; nothing is raised but what ends a process."""
    from ralph.doors.cli import main

    return main.run(argv)
