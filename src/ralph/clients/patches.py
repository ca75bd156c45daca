"""Read the patches that Codex and OpenCode apply: `*** Begin Patch` and what follows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ralph.capture.rules import pattern
from ralph.records.iteration import FileAction

BEGIN_PATCH = "*** Begin Patch"
_READ = 64_000
_CHANGES: dict[str, FileAction] = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_MOST_HUNKS = 50
_MOST_FILES = 500


def changes_of(patch: str) -> list[tuple[str, FileAction]]:
    """Return the files that a patch changes, and how."""
    found: list[tuple[str, FileAction]] = []
    for kind, path, moved_to in pattern("patched").findall(patch):
        if moved_to and found:
            found[-1] = (found[-1][0], "deleted")
            found.append((moved_to.strip(), "created"))
        elif path:
            found.append((path.strip(), _CHANGES[kind]))
    return found[:_MOST_FILES]


def hunks_of(patch: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a patch removes from each file and adds, hunk by hunk."""
    parts = re.split(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", patch[:_READ], flags=re.M)
    for path, body in zip(parts[1::2], parts[2::2], strict=True):
        yield from diff_hunks(path.strip(), body)


def diff_hunks(path: str, diff: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a diff of one file removes and adds, hunk by hunk."""
    for hunk in re.split(r"^@@.*$", diff, flags=re.M)[:_MOST_HUNKS]:
        rows = hunk.splitlines()
        old = "\n".join(row[1:] for row in rows if row[:1] == "-")
        new = "\n".join(row[1:] for row in rows if row[:1] == "+")
        if old or new:
            yield path, old, new
