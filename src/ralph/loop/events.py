"""What the loop tells while it runs: one value a fact, for a screen, a log or a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

Name = Literal[
    "memory",
    "recovered",
    "started",
    "doing",
    "ended",
    "repaired",
    "learned",
    "waiting",
    "stopped",
]


class Event(msgspec.Struct, frozen=True):
    """One thing that happened, with its facts by name."""

    event: Name
    at: str
    facts: dict[str, Any]


Listener = Callable[[Event], None]
