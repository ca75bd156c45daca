"""What each memory promises, and `open_ralph()`, which wires everything.

Every door goes through these calls; nothing below this room knows which memory it serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralph.memories.ralph import Ralph as Ralph
    from ralph.memories.ralph import open_ralph as open_ralph

__all__ = ["Ralph", "open_ralph"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ralph.memories import ralph

        return getattr(ralph, name)
    raise AttributeError(f"module 'ralph.memories' has no attribute {name!r}")
