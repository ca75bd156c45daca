"""A warm search beside the two things it consists of: a scan of the matrix and an FTS5 query."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from bench import corpus
from bench.ground import Ground
from bench.measure import compared
from bench.report import NO_TARGET, Row, Target, of_times
from ralph.errors import RalphError
from ralph.recall.search import telling
from ralph.text.tokens import query_tokens

if TYPE_CHECKING:
    from ralph.index import Embedder, Vectors
    from ralph.index.view import AnyIndex

_CANDIDATES = 100
_WARM_UP = 5
# Below it the fixed cost of a search is all there is.
_TARGET_SIZE = 10_000
_ABOUT = {10_000: "about 3 ms", 100_000: "about 45 ms"}


def search(ground: Ground, repeat: int) -> list[Row]:
    """One warm search; each round asks another question, both sides the same one."""
    rounds = 20 * repeat
    questions = corpus.queries(rounds + _WARM_UP, size=ground.size)
    with (
        ground.opened() as (ralph, memory),
        closing(Bare(ralph.place.index, ralph.place.embedder, memory.target().name)) as bare,
    ):
        prepared = [(bare.match(one), bare.vector(one)) for one in questions]
        mine, theirs = iter(questions), iter(prepared)
        both = compared(
            lambda: memory.search(next(mine)),
            lambda: bare.search(*next(theirs)),
            rounds=rounds,
            warm_up=_WARM_UP,
        )
    big = ground.size >= _TARGET_SIZE
    target = Target(ratio=3.0, about=_ABOUT.get(ground.size, "")) if big else NO_TARGET
    return [of_times("warm search", ground.size, both, "NumPy scan + FTS5 query", target=target)]


class Bare:
    """The vectors of a collection in a plain matrix, its words in a plain connection."""

    def __init__(self, index: AnyIndex, embedder: Embedder | None, name: str) -> None:
        import numpy as np

        store = index.store
        self._store = store
        with store.reading() as view:
            live = view.live(name)
        if live is None or embedder is None:
            raise RalphError("the bench's memory has no index with vectors to compare with")
        self._embedder = embedder
        self._live = live
        self._words = f"words_{live.id}"
        self._connection = sqlite3.connect(index.path)
        rows = self._connection.execute(f"SELECT v FROM vector_{live.id} ORDER BY row")
        joined = b"".join(row[0] for row in rows)
        self._matrix = np.frombuffer(joined, dtype=np.float32).reshape(-1, live.manifest.dims)

    def match(self, question: str) -> str:
        """The query that Ralph itself gives to FTS5: words it does not rank by are not in it."""
        asked = query_tokens(question)
        with self._store.reading() as view:
            frequencies = view.frequencies(self._live, asked)
            words = telling(asked, frequencies, view.passages(self._live))
        return " OR ".join(f'"{token}"' for token in words)

    def vector(self, question: str) -> Vectors:
        """The question as the embedder sees it."""
        return self._embedder.embed_query(question)

    def search(self, match: str, vector: Vectors) -> None:
        """The cosines of all, the nearest of them, and the rows that match best."""
        import numpy as np

        # Not `@`, whose threads wait for each other on a busy machine and flatter us.
        cosines = np.einsum("ij,j->i", self._matrix, vector)
        if len(cosines) > _CANDIDATES:
            np.argpartition(cosines, -_CANDIDATES)
        words = self._words
        self._connection.execute(
            # Not by `rank`, which takes half as long again.
            f"SELECT rowid, bm25({words}) AS score FROM {words} WHERE {words} MATCH ?"
            " ORDER BY score LIMIT ?",
            (match, _CANDIDATES),
        ).fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
