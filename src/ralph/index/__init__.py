"""What makes records findable: passages, their words and vectors, derived from the journal.

Everything here may be deleted at any time; `sync` brings it back from the journal by itself. The
index knows passages and vectors and nothing of what a record is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ralph.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


# In a text to embed: what follows is an aside. It is embedded apart and its nearness counts less.
ASIDE = "\x1e"
ASIDE_WEIGHT = 0.85


class Passage(msgspec.Struct, frozen=True):
    """One findable piece of a record: its words by field, the text whose meaning counts, and what
    it is of."""

    title: str
    text: str
    places: str = ""
    embed: str = ""
    facets: dict[str, tuple[str, ...]] = {}


# How a memory cuts its records into passages; a record it cannot read gives none.
Cut = Callable[[Record], Sequence[Passage]]


class Embedder(Protocol):
    """Texts to vectors of length one. The identity names everything that shapes the numbers."""

    @property
    def identity(self) -> str:
        """Names the model and its version; another identity means other vectors."""
        ...

    @property
    def title(self) -> str:
        """What people call it."""
        ...

    @property
    def dims(self) -> int:
        """How long a vector is; 0 while nobody could ask."""
        ...

    @property
    def batch(self) -> int:
        """How many texts are worth handing over at once."""
        ...

    def pieces(self, text: str) -> Sequence[str]:
        """The text cut into overlapping parts that the model reads to their end; at least one."""
        ...

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """One row a text, within the budget where somebody else does the work. EmbedderOff."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """One vector, soon. Raises EmbedderOff."""
        ...

    def check(self) -> None:
        """Try it now, whatever was found before; EmbedderOff says what to do."""
        ...


class Manifest(msgspec.Struct, frozen=True):
    """What a collection was built with; anything else than wanted means a rebuild."""

    embedder: str
    dims: int
    tokeniser: str
    cut: str
