"""Plain baselines that anybody could write: FTS5 as it comes, and mixed evenly with the cosine."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from bench.datasets import Document
from ralph.text.tokens import STOP_WORDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Embedder, Vectors

_WORD = re.compile(r"\w+")
_FEW = 100


class Naive:
    """One corpus in an FTS5 table with FTS5's own stemmer, and its vectors in a matrix."""

    def __init__(self, documents: Sequence[Document], embedder: Embedder | None) -> None:
        self._ids = [one.id for one in documents]
        texts = ["\n".join(part for part in (one.title, one.text) if part) for one in documents]
        self._words = sqlite3.connect(":memory:")
        self._words.execute(
            "CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'porter unicode61')"
        )
        rows = enumerate(texts)
        self._words.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)
        self._vectors = None if embedder is None else _vectors(texts, embedder)

    def by_words(self, question: str, depth: int) -> list[str]:
        """Rank by BM25 alone."""
        return [self._ids[row] for row, _ in self._bm25(question, depth)]

    def by_mix(
        self, question: str, vector: Vectors, depth: int, *, quick: bool = False
    ) -> list[str]:
        """Rank by both, each scaled to 0-1 over the corpus, half and half.

        `quick` leaves out stop words and takes the best hundred by words, so that nobody can say
        that the baseline was made slow.
        """
        import numpy as np

        if self._vectors is None:
            raise ValueError("without vectors there is no mix")
        words = np.zeros(len(self._ids), dtype=np.float64)
        asked, count = (question, len(self._ids)) if not quick else (_telling(question), _FEW)
        for row, score in self._bm25(asked, count):
            words[row] = score
        cosines = np.einsum("ij,j->i", self._vectors, vector).astype(np.float64)
        mixed = 0.5 * _stretched(words) + 0.5 * _stretched(cosines)
        order = np.argsort(-mixed, kind="stable")[:depth]
        return [self._ids[row] for row in order.tolist()]

    def _bm25(self, question: str, count: int) -> list[tuple[int, float]]:
        words = dict.fromkeys(_WORD.findall(question.lower()))
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        with closing(
            self._words.execute(
                "SELECT rowid, -bm25(words) AS score FROM words WHERE words MATCH ?"
                " ORDER BY score DESC, rowid LIMIT ?",
                (match, count),
            )
        ) as rows:
            return rows.fetchall()

    def close(self) -> None:
        """Close the table."""
        self._words.close()


def _vectors(texts: Sequence[str], embedder: Embedder) -> Vectors:
    """Return one vector per text, of as much as the model reads at once."""
    import numpy as np

    first = [embedder.pieces(text)[0] for text in texts]
    size = embedder.batch
    parts = [embedder.embed_passages(first[at : at + size]) for at in range(0, len(first), size)]
    return np.concatenate(parts)


def _telling(question: str) -> str:
    words = _WORD.findall(question.lower())
    return " ".join([word for word in words if word not in STOP_WORDS] or words)


def _stretched(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low = float(values.min())
    high = float(values.max())
    return (values - low) / (high - low) if high > low else values * 0.0
