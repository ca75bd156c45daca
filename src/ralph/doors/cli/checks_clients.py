"""What `doctor` tells of the clients: whether they use the memory, and what is odd about it."""

from __future__ import annotations

from pathlib import Path

from ralph.doors.cli.client_status import look
from ralph.doors.cli.commands.doctor import Check

# As `doors/hooks/sessions.py` writes it.
_OVER, _KEPT = b'{"note":"over"', b'{"note":"kept"'


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


def capture(home: Path) -> Check:
    """Every session that is over was captured."""
    waiting = sum(_waits(note) for note in home.glob("cache/hooks/*/sessions/*.jsonl"))
    if not waiting:
        return Check("capture", "ok", "no session waits")
    what = "1 session waits" if waiting == 1 else f"{waiting} sessions wait"
    return Check(
        "capture",
        "warning",
        f"{what} to be kept: a hook was killed, or had no time",
        "The next hook in their project keeps them. Now: ralph conversations import claude-code",
    )


def _waits(note: Path) -> bool:
    """Whether a hook noted that an exchange is over, and none that it was kept."""
    told = [line for line in note.read_bytes().splitlines() if _OVER in line or _KEPT in line]
    return bool(told) and _OVER in told[-1]
