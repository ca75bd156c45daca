"""The ground of `scripts/bench quality`: corpora in a real index, and vectors kept between runs."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.datasets import Corpus, Document
from ralph import index, text
from ralph.errors import EmbedderOff, JournalError
from ralph.index import Cut, Embedder, Passage
from ralph.index.sqlite import SqliteStore
from ralph.index.sync import Target, is_current, sync
from ralph.journal import Batch
from ralph.record import Located, Record, Source

if TYPE_CHECKING:
    from ralph.index import Vectors

KIND = "document"
Tell = Callable[[str], None]
_LOCK_TIMEOUT_S = 600.0
_decode = msgspec.json.Decoder(Document).decode
_encode = msgspec.json.Encoder().encode


class Cutting(msgspec.Struct, frozen=True):
    """A way of cutting documents into passages, under a name that changes when it does."""

    version: str
    cut: Cut


def document_of(record: Record) -> Document:
    """What a record of the bench holds."""
    return _decode(record.body)


def _whole(record: Record) -> Sequence[Passage]:
    one = document_of(record)
    embed = "\n".join(part for part in (one.title, one.text) if part)
    return [Passage(title=one.title, text=one.text, embed=embed)] if embed.strip() else ()


WHOLE = Cutting("whole-1", _whole)


class Ground(msgspec.Struct, frozen=True):
    """An index of corpora, one collection each, and what the questions are embedded with."""

    store: SqliteStore
    embedder: Embedder | None
    cutting: Cutting
    cache: Path

    def built(self, corpus: Corpus) -> str:
        """The name of the corpus's collection, which holds all of it when this returns."""
        records = records_of(corpus)
        digest = hashlib.sha256(b"".join(one.body for one in records)).hexdigest()[:16]
        name = f"{corpus.name}-{digest}"
        target = Target(
            name=name,
            stream=corpus.name,
            journal=_Records(records),
            cut=self.cutting.cut,
            cut_version=self.cutting.version,
            embedder=self.embedder,
        )
        if not is_current(self.store, target):
            lock = self.cache / "index.lock"
            synced = sync(self.store, target, lock=lock, lock_timeout_s=_LOCK_TIMEOUT_S)
            if synced.embedder_off:
                raise EmbedderOff(synced.embedder_off)
        return name


@contextmanager
def ground(
    embedder: Embedder | None, *, cutting: Cutting = WHOLE, cache: Path | None = None
) -> Iterator[Ground]:
    """A place for indexes; with a cache they are found again by the next run of the same code."""
    with tempfile.TemporaryDirectory(prefix="ralph-quality-") as temporary:
        folder = cache or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        remembering = None if embedder is None else RememberingEmbedder(embedder, folder)
        identity = "none" if embedder is None else embedder.identity
        made_of = f"{_code()} {identity} {cutting.version}"
        store = SqliteStore(folder / f"quality-{_short(made_of)}.sqlite3")
        try:
            yield Ground(store, remembering, cutting, folder)
        finally:
            store.close()
            if remembering is not None:
                remembering.close()


def records_of(corpus: Corpus) -> list[Record]:
    """The documents as records, numbered in their order; the source's run is the group."""
    return [
        Record(one.id, KIND, number, one.at, _encode(one), Source(run=one.group or None))
        for number, one in enumerate(corpus.documents, 1)
    ]


class RememberingEmbedder:
    """An embedder that keeps every vector it made in a file, under its identity and the text."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self._file = sqlite3.connect(folder / "vectors.sqlite3", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE IF NOT EXISTS vector (key BLOB PRIMARY KEY, v BLOB)")

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

    def check(self) -> None:
        """As the embedder does."""
        self._embedder.check()

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """One row a text, made only where it is not known."""
        import numpy as np

        keys = [self._key("passage", text) for text in texts]
        found = [self._known(key) for key in keys]
        missing = [place for place, vector in enumerate(found) if vector is None]
        if missing:
            wanted = [texts[place] for place in missing]
            made = self._embedder.embed_passages(wanted, budget_s=budget_s)
            self._keep((keys[place], made[row]) for row, place in enumerate(missing))
            for row, place in enumerate(missing):
                found[place] = made[row]
        return np.array(found, dtype=np.float32).reshape(len(texts), self.dims)

    def embed_query(self, text: str) -> Vectors:
        """One vector."""
        key = self._key("query", text)
        known = self._known(key)
        if known is None:
            known = self._embedder.embed_query(text)
            self._keep([(key, known)])
        return known

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _key(self, kind: str, text: str) -> bytes:
        plain = f"{self._embedder.identity}\0{kind}\0{text}"
        return hashlib.sha256(plain.encode(errors="surrogatepass")).digest()

    def _known(self, key: bytes) -> Vectors | None:
        import numpy as np

        row = self._file.execute("SELECT v FROM vector WHERE key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)

    def _keep(self, pairs: Any) -> None:
        self._file.execute("BEGIN IMMEDIATE")
        rows = [(key, vector.tobytes()) for key, vector in pairs]
        self._file.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?)", rows)
        self._file.execute("COMMIT")


class _Records:
    """A journal that is there already: read from a position, never written."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        start = int(position or 0)
        end = len(self._records) if limit is None else min(start + limit, len(self._records))
        some = tuple(
            Located(record, KIND, line)
            for line, record in enumerate(self._records[start:end], start + 1)
        )
        return Batch(some, (), (), str(end), restarted=False, done=end == len(self._records))

    def unchanged(self, position: str | None) -> bool:
        return position == str(len(self._records))

    def append(self, drafts: object) -> Any:
        raise JournalError("a dataset is only read")

    def forget(self, ids: object, *, reason: object = None, stones: object = ()) -> Any:
        raise JournalError("a dataset is only read")

    def forgotten(self) -> frozenset[str]:
        return frozenset()

    def verify(self) -> tuple[int, list[Any]]:
        return len(self._records), []


def _short(plain: str) -> str:
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def _code() -> str:
    """What the index is made by: with other code a kept one is not used again."""
    rooms = [Path(room.__file__ or "").parent for room in (text, index)]
    files = sorted(file for room in rooms for file in room.glob("*.py"))
    whole = hashlib.sha256()
    for file in [*files, Path(__file__)]:
        whole.update(file.read_bytes())
    return whole.hexdigest()
