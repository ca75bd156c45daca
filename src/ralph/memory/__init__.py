"""What each memory promises, and `open_ralph()`, which wires everything.

Every door goes through these calls; nothing below this room knows which memory it serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph as Ralph
    from ralph.memory.ralph import open_ralph as open_ralph


def __getattr__(name: str) -> Any:
    if name in ("Ralph", "open_ralph"):
        from ralph.memory import ralph

        return getattr(ralph, name)
    raise AttributeError(f"module 'ralph.memory' has no attribute {name!r}")
