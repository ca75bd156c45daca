"""The corpora of a dataset in a real index, with vectors kept between runs."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench.datasets import Corpus, Document
from ralph import index, text
from ralph.errors import EmbedderOff, JournalError
from ralph.index import Cut, Embedder, Passage
from ralph.index.sqlite import SqliteStore
from ralph.index.sync import Index, IndexSpec
from ralph.journal import Batch
from ralph.memory.checkpoints import CachedEmbedder
from ralph.records import JournalRecord, Record, Source

if TYPE_CHECKING:
    from ralph.index import Vectors

KIND = "document"
_LOCK_TIMEOUT_S = 600.0
_decode = msgspec.json.Decoder(Document).decode
_encode = msgspec.json.Encoder().encode


class Cutting(msgspec.Struct, frozen=True):
    """A way of cutting documents into passages; `version` changes when the way does."""

    version: str
    cut: Cut


def document_of(record: Record) -> Document:
    """Return the document in a record."""
    return _decode(record.body)


def _whole(record: Record) -> Sequence[Passage]:
    one = document_of(record)
    embed = "\n".join(part for part in (one.title, one.text) if part)
    return [Passage(title=one.title, text=one.text, embed=embed)] if embed.strip() else ()


WHOLE = Cutting("whole-1", _whole)


class CorpusIndex(msgspec.Struct, frozen=True):
    """An index of corpora, one collection each, and the embedder for the questions."""

    store: SqliteStore
    embedder: Embedder | None
    cutting: Cutting
    cache: Path

    def built(self, corpus: Corpus) -> str:
        """Index all of a corpus; return the name of its collection."""
        records = records_of(corpus)
        digest = hashlib.sha256(b"".join(one.body for one in records)).hexdigest()[:16]
        name = f"{corpus.name}-{digest}"
        target = IndexSpec(
            name=name,
            stream=corpus.name,
            journal=_DatasetJournal(records),
            cut=self.cutting.cut,
            cut_version=self.cutting.version,
            embedder=self.embedder,
        )
        place = self.cache / "index"
        synced = Index(lambda: self.store, lambda: place, lock_timeout_s=_LOCK_TIMEOUT_S).sync(
            target
        )
        if synced.embedder_off:
            raise EmbedderOff(synced.embedder_off)
        return name


@contextmanager
def corpus_index(
    embedder: Embedder | None, *, cutting: Cutting = WHOLE, cache: Path | None = None
) -> Iterator[CorpusIndex]:
    """Open a place for indexes; with a cache, the next run of the same code uses them again."""
    with tempfile.TemporaryDirectory(prefix="ralph-quality-") as temporary:
        folder = cache or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        remembering = None if embedder is None else RememberingEmbedder(embedder, folder)
        identity = "none" if embedder is None else embedder.identity
        made_of = f"{_code()} {identity} {cutting.version}"
        store = SqliteStore(folder / f"quality-{_short(made_of)}.sqlite3")
        try:
            yield CorpusIndex(store, remembering, cutting, folder)
        finally:
            store.close()
            if remembering is not None:
                remembering.close()


def records_of(corpus: Corpus) -> list[Record]:
    """Return the documents as records, numbered in order; the source's run is the group."""
    return [
        Record(one.id, KIND, number, one.at, _encode(one), Source(run=one.group or None))
        for number, one in enumerate(corpus.documents, 1)
    ]


class RememberingEmbedder(CachedEmbedder):
    """An embedder that saves every vector in a file, by its identity and the text."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        super().__init__(embedder)
        self._file = sqlite3.connect(folder / "vectors.sqlite3", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE IF NOT EXISTS vector (key BLOB PRIMARY KEY, v BLOB)")

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Return one row for each text; only new texts are embedded."""
        return self._all("passage", texts, partial(super().embed_passages, budget_s=budget_s))

    def embed_query(self, text: str) -> Vectors:
        """Return one vector."""
        vector: Vectors = self._all("query", [text], lambda _: [self._embedder.embed_query(text)])[
            0
        ]
        return vector

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _all(self, kind: str, texts: Sequence[str], embed: Callable[[list[str]], Any]) -> Vectors:
        keys = {text: self._key(kind, text) for text in texts}
        found = {text: self._read(key) for text, key in keys.items()}
        missing = [text for text, vector in found.items() if vector is None]
        if missing:
            made = dict(zip(missing, embed(missing), strict=True))
            rows = [(keys[text], vector.tobytes()) for text, vector in made.items()]
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?)", rows)
            self._file.execute("COMMIT")
            found |= made
        return np.array([found[text] for text in texts], dtype=np.float32).reshape(-1, self.dims)

    def _key(self, kind: str, text: str) -> bytes:
        plain = f"{self.identity}\0{kind}\0{text}"
        return hashlib.sha256(plain.encode(errors="surrogatepass")).digest()

    def _read(self, key: bytes) -> Vectors | None:
        row = self._file.execute("SELECT v FROM vector WHERE key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)


class _DatasetJournal:
    """A journal that can only be read."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        start = int(position or 0)
        end = len(self._records) if limit is None else min(start + limit, len(self._records))
        located = tuple(
            JournalRecord(record, KIND, line)
            for line, record in enumerate(self._records[start:end], start + 1)
        )
        return Batch(located, (), (), str(end), restarted=False, done=end == len(self._records))

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
    """Return a hash of the code that makes the index, so that other code does not reuse it."""
    rooms = [Path(room.__file__ or "").parent for room in (text, index)]
    files = sorted(file for room in rooms for file in room.glob("*.py"))
    whole = hashlib.sha256()
    for file in [*files, Path(__file__)]:
        whole.update(file.read_bytes())
    return whole.hexdigest()
