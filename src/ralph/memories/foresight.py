"""An embedder that has embedded ahead: what is published was embedded whole before that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ralph.index import ASIDE, Embedder

if TYPE_CHECKING:
    from ralph.index import Vectors


class Foresight:
    """The embedder, and the vectors it made beforehand."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vectors] = {}

    @property
    def identity(self) -> str:
        return self._embedder.identity

    @property
    def title(self) -> str:
        return self._embedder.title

    @property
    def dims(self) -> int:
        return self._embedder.dims

    @property
    def batch(self) -> int:
        return self._embedder.batch

    def pieces(self, text: str) -> Sequence[str]:
        """As the embedder cuts it."""
        return self._embedder.pieces(text)

    def embed_ahead(self, texts: Iterable[str]) -> None:
        """Embed every piece of these texts, all of them or EmbedderOff."""
        wanted = dict.fromkeys(
            piece
            for text in texts
            for part in text.split(ASIDE)
            if part
            for piece in self.pieces(part)
        )
        pieces = list(wanted)
        made: dict[str, Vectors] = {}
        for start in range(0, len(pieces), self.batch):
            some = pieces[start : start + self.batch]
            made.update(zip(some, self._embedder.embed_passages(some), strict=True))
        self._made = made

    def vector(self, text: str) -> Vectors:
        """The vector of the first piece of a text that was embedded ahead."""
        first = next(part for part in text.split(ASIDE) if part)
        return self._made[self.pieces(first)[0]]

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """What was made ahead, and the rest by the embedder."""
        import numpy as np

        if any(text not in self._made for text in texts):
            return self._embedder.embed_passages(texts, budget_s=budget_s)
        return np.stack([self._made[text] for text in texts])

    def embed_query(self, text: str) -> Vectors:
        """By the embedder."""
        return self._embedder.embed_query(text)

    def check(self) -> None:
        """Try the embedder now."""
        self._embedder.check()
