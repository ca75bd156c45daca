"""What makes records findable: passages, their words and vectors, derived from the journal.

Everything here may be deleted at any time; `sync` brings it back from the journal by itself. The
index knows passages and vectors and nothing of what a record is about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
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

    # What people call it, and how many texts are worth handing over at once.
    title: str
    batch: int

    @property
    def identity(self) -> str:
        """Names the model and its version; another identity means other vectors."""
        ...

    @property
    def dims(self) -> int:
        """How long a vector is; 0 while nobody could ask."""
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


# -- Facets: what a passage is of, so that a question can leave out what is of something else.


# By name; a passage that has no value for a facet it names fits every value asked for.
Facets = Mapping[str, Sequence[str]]
# By name; a passage fits that has one of these values, or none. No values at all: every one fits.
Only = Mapping[str, Collection[str]]


def facet_tokens(facets: Facets) -> list[str]:
    """One token a value, and one for each facet that has no value."""
    return [
        _token(name, value) for name, values in sorted(facets.items()) for value in values or ("",)
    ]


def wanted_tokens(only: Only | None) -> tuple[tuple[str, ...], ...]:
    """For each facet the tokens of which a passage must have one."""
    return tuple(
        tuple(_token(name, value) for value in (*sorted(values), ""))
        for name, values in sorted((only or {}).items())
        if values
    )


def fits(facets: Facets, only: Only | None) -> bool:
    """Whether a passage with these facets is asked for."""
    held = set(facet_tokens(facets))
    return all(held.intersection(group) for group in wanted_tokens(only))


def _token(name: str, value: str) -> str:
    # A hash, because a value may hold any character; no word of a text looks like it.
    told = f"{name}={value}".encode(errors="surrogatepass")
    return f"f{hashlib.sha256(told).hexdigest()[:20]}"
