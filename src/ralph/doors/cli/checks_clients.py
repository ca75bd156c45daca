"""What `doctor` tells of the clients: whether they use the memory, and what is odd about it."""

from __future__ import annotations

from pathlib import Path

from ralph.doors.cli.checks import Check
from ralph.doors.cli.client_status import look


def hooks(root: Path | None) -> Check:
    """Claude Code and Codex reach the memory, or need not."""
    found = look(root)
    if found.warnings:
        first = found.warnings[0].partition(". ")
        more = f" and {len(found.warnings) - 1} more" if len(found.warnings) > 1 else ""
        return Check("hooks", "warning", first[0] + more, first[2] or "See: ralph hooks status")
    there = [
        f"{one.agent} ({one.where})" for one in found.places if any(p.calls for p in one.parts)
    ]
    return Check("hooks", "ok", ", ".join(there) or "not installed; see: ralph hooks --help")
