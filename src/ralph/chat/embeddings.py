"""The embedding pipeline: it updates the index from the journal, batch by batch.

Also here: what the index contains, how far it is behind, and how to clear it.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.chat.workers import EMBEDDING, FailedItem, Worker
from ralph.config import Settings
from ralph.errors import EmbedderOff, MemoryOff
from ralph.memory.conversations import Conversations
from ralph.records import Record
from ralph.records.conversation import DOCUMENT, EXCHANGE, SUMMARY, content_of
from ralph.text.tokens import table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

# Separates a question from its answer in a text to embed.
_ASIDE = "\x1e"
_BUSY = "another process is building the index"


# -- what is in the index


class IndexLag(msgspec.Struct, frozen=True):
    """How many records are not in the index, or have no vector there.

    `embedded` counts the passages with a vector in this `generation` of the collection.
    """

    count: int
    current: bool = False
    generation: int = 0
    embedded: int = 0


def index_lag(memory: Conversations) -> IndexLag:
    """Return how far the index is behind the journal."""
    index, target = memory.store.index, memory.stream.target()
    kinds = (EXCHANGE, SUMMARY, DOCUMENT)
    searchable = {record.id for record in _own(memory) if record.kind in kinds}

    def look() -> IndexLag:
        with index.answering(target.name) as (view, live):
            if live is None or live.manifest != target.manifest():
                return IndexLag(len(searchable))
            size = view.size(live)
            waiting = size.waiting
            embedded = size.passages - waiting if live.manifest.dims else 0
            if target.journal.unchanged(live.position) and not live.sweeping:
                return IndexLag(waiting, not waiting, live.id, embedded)
            missing = searchable - {name for name, _ in view.content(live, vectors=False).keys}
        return IndexLag(waiting + len(missing), generation=live.id, embedded=embedded)

    return index.with_repair(look)


def _own(memory: Conversations) -> list[Record]:
    """Return the readable records of the journal we write to; searches index the others."""
    own = {record.id for record in memory.stream.records()}
    return [one for name, one in memory.stream.history.records.items() if name in own]


def count_embeddings(memory: Conversations) -> Counter[str]:
    """Count the records of each kind that have an embedding."""
    if not memory.exist:
        return Counter()
    waiting = set(waiting_ids(memory))
    kinds = [embedding_kind(record) for record in _own(memory) if record.id not in waiting]
    return Counter(kind for kind in kinds if kind)


def waiting_ids(memory: Conversations) -> list[str]:
    """Return the ids of records that have no vector yet."""

    def look() -> set[str]:
        with memory.store.index.answering(memory.stream.target().name) as (view, live):
            if live is None or not live.manifest.dims:
                return set()
            indexed = {name for name, _ in view.content(live, vectors=False).keys}
            rows = [row for row, _ in view.size(live, texts=sys.maxsize).texts]
            waiting = view.fetch(live, rows, records=True).values()
            return indexed - {passage.record.id for passage in waiting if passage.record}

    embedded = memory.store.index.with_repair(look)
    return [r.id for r in _own(memory) if embedding_kind(r) and r.id not in embedded]


def embedding_kind(record: Record) -> str | None:
    """Return the kind that this record's embedding counts as; None if it gets no embedding."""
    if record.kind == SUMMARY:
        return "conversations" if content_of(record).of == "conversation" else "summaries"
    return {EXCHANGE: "exchanges", DOCUMENT: "documents"}.get(record.kind)


def clear_embeddings(memory: Conversations, ids: Collection[str] | None = None) -> None:
    """Remove these records, or all, from the index; the pipeline adds them again."""
    index = memory.store.index
    name = memory.stream.target().name
    if ids is None:
        index.drop(name)
    elif ids:
        index.clear(name, ids)


def price_per_char(settings: Settings) -> float | None:
    """Estimate the price of a character in USD: None if unknown, 0 for a local embedder."""
    if settings.embedder != "openai":
        return 0.0
    prices = dict(map(str.split, table(__file__, "prices.txt")["embeddings"]))
    price = prices.get(settings.openai_model.partition("@")[0].rpartition("/")[2])
    if price is None:
        return None
    return float(price) / 1_000_000 / 4  # characters per token


# -- the pipeline


class BatchEmbedder:
    """Wraps the embedder for the pipeline: it works in batches, counts and can be stopped.

    With `careful`, a text that fails while others work gets a zero vector and goes into `refused`,
    so that it does not hold up the rest. Such a text is found by its words only.
    """

    def __init__(self, inner: Any, on_batch: Callable[[int], None], *, batch: int = 100) -> None:
        self._inner = inner
        self._on_batch = on_batch
        self.batch = batch
        self.stop = threading.Event()
        self.careful = False
        self.chars = 0
        self.refused: dict[str, str] = {}
        self._whole: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pieces(self, text: str) -> Sequence[str]:
        """Split the text; with `careful`, remember which text each part came from."""
        parts: Sequence[str] = self._inner.pieces(text)
        if self.careful:
            self._whole.update(dict.fromkeys(parts, text))
        return parts

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Embed a whole batch, or raise EmbedderOff."""
        if self.stop.is_set():
            raise EmbedderOff("the pipeline is stopping")
        self._on_batch(len(texts))
        vectors: Vectors
        vectors = self._bisect(texts) if self.careful else self._inner.embed_passages(texts)
        self.chars += sum(map(len, texts))
        return vectors

    def _bisect(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        try:
            vectors: Vectors = self._inner.embed_passages(texts)
        except EmbedderOff as error:
            self._inner.check()  # raises if the embedder itself fails, and not only on a text
            if len(texts) > 1:
                half = len(texts) // 2
                return np.concatenate((self._bisect(texts[:half]), self._bisect(texts[half:])))
            self.refused[self._whole.get(texts[0], texts[0])] = str(error)
            return np.zeros((1, self._inner.dims), dtype=np.float32)
        return vectors


class EmbeddingPipeline(Worker):
    """Updates one stream's index from its journal; failures are retried later."""

    def pending(self, memory: Conversations) -> int:
        """Return how many records are not in the index, or have no vector there."""
        return index_lag(memory).count

    def work(self, memory: Conversations, stop: threading.Event) -> None:
        """Index and embed the records that are not in the index yet."""
        if not memory.exist:
            self.set(left=0, note="")
            return
        batches = self._batches(memory, stop)
        before = index_lag(memory)
        off = "the setting embedder is none: everything is found by words alone"
        self.set(left=before.count, note="" if batches else off)
        failing = self._drop_stale(memory, before)
        if before.current or self._retries.rests(failing):
            return
        self.set(state="running")
        problem = self._sync(memory, batches, failing.attempts if failing else 0)
        after = index_lag(memory)
        # If the collection was rebuilt, all its embeddings are new.
        embedded = before.embedded if after.generation == before.generation else 0
        self.add(completed=max(0, after.embedded - embedded))
        if batches is not None:
            self.add(spend_usd=(price_per_char(memory.store.settings) or 0.0) * batches.chars)
            self._give_up_refused(memory, batches.refused)
        self.set(left=after.count)
        if stop.is_set():
            return
        if problem is None:
            self._retries.drop([EMBEDDING])
            return
        self.set(note=problem)
        if problem != _BUSY:  # otherwise another process does the work
            names = (EMBEDDING, EMBEDDING, EMBEDDING)
            failed = self._retries.failed(*names, problem, count=after.count)
            self.add(failed=after.count if failed.given_up else 0)

    def _batches(self, memory: Conversations, stop: threading.Event) -> BatchEmbedder | None:
        """Put a BatchEmbedder between the index and its embedder, and return it."""
        embedder: Any = memory.store.embedder
        if embedder is None:
            return None
        if not isinstance(embedder, BatchEmbedder):
            embedder = BatchEmbedder(
                embedder,
                lambda n: self.set(current=f"batch of {n}"),
                batch=memory.store.settings.embedding_batch_size,
            )
            memory.store.embedder = embedder
        batches: BatchEmbedder = embedder
        batches.stop = stop
        batches.chars = 0
        return batches

    def _drop_stale(self, memory: Conversations, lag: IndexLag) -> FailedItem | None:
        """Drop failures that no longer matter; returns the embedder's own failure, if any."""
        entries = self._retries.entries(EMBEDDING)
        failing = entries.pop(EMBEDDING, None)
        if entries:  # their records may have been forgotten by now
            self._retries.drop(entries.keys() - memory.stream.history.records.keys())
        # After giving up, new records are a reason to try again.
        if lag.current or (failing and failing.given_up and lag.count > failing.count):
            self._retries.drop([EMBEDDING])
            return None
        return failing

    def _sync(self, memory: Conversations, batches: BatchEmbedder | None, tries: int) -> str | None:
        """Bring the index up to date; returns the problem, if any."""
        try:
            if batches is not None:
                batches.careful = 0 < tries >= self._retries.max_retries
                if tries:
                    batches.check()  # or a server that has failed would not be tried for a while
            synced = memory.sync()
        except MemoryOff as error:
            return str(error)
        return synced.embedder_off or (None if synced.complete else _BUSY)

    def _give_up_refused(self, memory: Conversations, refused: dict[str, str]) -> None:
        """Give up on the records with a text that the embedder fails on."""
        cut = memory.stream.target().cut
        for record in memory.stream.history.records.values() if refused else ():
            texts = {text for passage in cut(record) for text in passage.embed.split(_ASIDE)}
            for text in texts & refused.keys():
                item = (record.id, record.id)
                attempts = self._retries.max_retries + 1
                self._retries.failed(EMBEDDING, *item, refused[text], attempts=attempts)
                self.add(failed=1)
        refused.clear()
