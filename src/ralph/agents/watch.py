"""What watching an agent means on every system."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Started(msgspec.Struct, frozen=True):
    """What is known of a started agent so far."""

    failed: str | None = None
    exit_code: int | None = None
    left_behind: int = 0


class Watched(Protocol):
    """An agent that runs, and everything it started."""

    started: Started

    def ended(self, wait_s: float) -> bool:
        """Whether the agent and everything it started have ended; waits a little."""
        ...

    def end(self) -> None:
        """End everyone, and return when it is done."""
        ...

    def close(self) -> None:
        """Let go; whoever still runs is ended."""
        ...
