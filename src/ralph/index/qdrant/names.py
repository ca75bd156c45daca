"""What a collection is called on a server: its aliases, and its generations."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import msgspec

PREFIX = "ralph-"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_GENERATION = re.compile(r"(.+)-g([0-9]+)")


class Names(msgspec.Struct, frozen=True):
    """The names of one memory's collections in one place (F18).

    `scope` tells what its collections' names begin with; a project's id may be made later.
    `place` tells apart what shares a scope and not its journals: clones, homes, databases.
    """

    scope: Callable[[], str]
    place: str | Callable[[], str] = ""

    def alias(self, name: str) -> str:
        """Under which the collection answers."""
        plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._before + plain

    def building(self, name: str) -> str:
        """Under which the generation is found that is to replace the one that answers."""
        return f"{self.alias(name)}-next"

    def physical(self, name: str, generation: int) -> str:
        """The collection of one generation."""
        return f"{self.alias(name)}-g{generation}"

    def generation(self, physical: str) -> int | None:
        """Which generation of one of ours this is; None for somebody else's."""
        found = _GENERATION.fullmatch(physical)
        mine = found is not None and found[1].startswith(self._before + self.scope())
        return int(found[2]) if found is not None and mine else None

    def is_of(self, physical: str, name: str) -> bool:
        """Whether this is a generation of that collection."""
        found = _GENERATION.fullmatch(physical)
        return found is not None and found[1] == self.alias(name)

    @property
    def _before(self) -> str:
        place = self.place if isinstance(self.place, str) else self.place()
        return f"{PREFIX}{place}-" if place else PREFIX
