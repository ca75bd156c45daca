"""The embedding pipeline: it brings the index up to the journal, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk
from ralph.chat.summaries import open_backlog, settings_state
from ralph.chat.worker import Backlog, Retries, StatusBoard
from ralph.config import Settings
from ralph.errors import EmbedderOff, IndexOff, MemoryOff
from ralph.kinds.conversation import DOCUMENT, EXCHANGE, SUMMARY, said_from
from ralph.memories.ralph import Ralph

# -- What the index holds of conversations, how far it is behind, and taking things out of it.


_FINDABLE = frozenset({EXCHANGE, SUMMARY, DOCUMENT})
# The index's own lock lies beside its file.
_INDEX_LOCK = "index.lock"
# USD per million tokens at OpenAI itself; other embedders run on machines of one's own.
_PRICES = {
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.10,
}
_OPENAI = "https://api.openai.com/"
_CHARS_A_TOKEN = 4
_MILLION = 1_000_000


class EmbeddingCounts(msgspec.Struct, frozen=True):
    """How many of each kind have an embedding, and how many wait for one."""

    conversations: int = 0
    summaries: int = 0
    exchanges: int = 0
    documents: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        """All that have one."""
        return self.conversations + self.summaries + self.exchanges + self.documents


class IndexLag(msgspec.Struct, frozen=True):
    """How many records the index lacks, or has without a vector; and whether it lacks nothing.

    `embedded` passages have a vector, in this `generation` of the collection.
    """

    count: int
    current: bool
    generation: int = 0
    embedded: int = 0

    def done_since(self, before: IndexLag) -> int:
        """How many embeddings were made since: all where the collection was built anew."""
        same = self.generation == before.generation
        return max(0, self.embedded - (before.embedded if same else 0))


def index_lag(memory: Backlog) -> IndexLag:
    """How far the index is behind the journal."""
    index, target = memory.shelf.index, memory.target()

    def look() -> IndexLag:
        with index.store.reading() as view:
            live = view.live(target.name)
            if live is None or live.manifest != target.manifest():
                return IndexLag(len(_findable(memory, None, frozenset())), current=False)
            _, passages, waiting = view.counts(live)
            embedded = passages - waiting if live.manifest.dims else 0
            if target.journal.unchanged(live.position) and not live.sweeping:
                return IndexLag(waiting, not waiting, live.id, embedded)
            known = frozenset(name for name, _ in view.known(live))
        count = waiting + len(_findable(memory, live.position, known))
        return IndexLag(count, current=False, generation=live.id, embedded=embedded)

    return index.healed(look)


def _findable(memory: Backlog, position: str | None, known: frozenset[str]) -> set[str]:
    """What stands in the journal behind the position and is not known yet."""
    batch = memory.target().journal.read(position)
    ids = {one.record.id for one in batch.records if one.record.kind in _FINDABLE}
    return ids - known - {stone.id for stone in batch.tombstones}


def count_embeddings(memory: Backlog) -> EmbeddingCounts:
    """What the index holds of these conversations, by kind."""
    if not memory.exist:
        return EmbeddingCounts()
    held = memory.shelf.index.healed(lambda: embedded_ids(memory))
    found = dict.fromkeys(("conversations", "summaries", "exchanges", "documents"), 0)
    waiting = 0
    for record in memory.history.records.values():
        kind = embedding_kind(record)
        if kind is not None and record.id in held:
            found[kind] += 1
        elif kind is not None:
            waiting += 1
    return EmbeddingCounts(**found, waiting=0 if memory.shelf.embedder is None else waiting)


def embedding_kind(record: Any) -> str | None:
    """What an embedding of this record counts as; None where it has none."""
    if record.kind == EXCHANGE:
        return "exchanges"
    if record.kind == DOCUMENT:
        return "documents"
    if record.kind == SUMMARY:
        return "conversations" if said_from(record).of == "conversation" else "summaries"
    return None


def embedded_ids(memory: Backlog) -> set[str]:
    """The ids of the records that the index has a vector for."""
    with memory.shelf.index.store.reading() as view:
        live = view.live(memory.target().name)
        if live is None or not live.manifest.dims:
            return set()
        known = {name for name, _ in view.known(live)}
        rows = [row for row, _ in view.waiting(live, view.counts(live)[1])]
        return known - {record.id for _, record in view.records(live, rows).values()}


def waiting_ids(memory: Backlog, most: int) -> list[str]:
    """The first of those that wait for a vector."""
    with memory.shelf.index.store.reading() as view:
        live = view.live(memory.target().name)
        if live is None:
            return []
        rows = [row for row, _ in view.waiting(live, most)]
        return [record.id for _, record in view.records(live, rows).values()]


def clear_embeddings(memory: Backlog, ids: Collection[str] | None = None) -> None:
    """Take these records, or all, out of the index; the pipeline brings them back."""
    index, target = memory.shelf.index, memory.target()
    if ids is None:
        index.drop(target.name)
        return
    try:
        timeout_s = memory.shelf.settings.index_lock_timeout_s
        with disk.locked(index.path.with_name(_INDEX_LOCK), timeout_s=timeout_s):
            live, _ = index.store.generations(target.name)
            if live is not None and ids:
                # From no known position the journal is read again; what is still there is kept.
                index.store.write(
                    live, [], forget=set(ids), seen=[], position="", restart=False, done=False
                )
    except disk.Busy:
        raise IndexOff(
            "another process is building the index",
            where=str(index.path),
            todo="Try again when it has finished.",
        ) from None


def price_per_char(settings: Settings) -> float | None:
    """What a character costs in USD, about; None where nobody knows, 0 on one's own machine."""
    if settings.embedder != "openai":
        return 0.0
    price = _PRICES.get(settings.openai_model)
    if price is None or not settings.openai_base_url.startswith(_OPENAI):
        return None
    return price / _MILLION / _CHARS_A_TOKEN


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

# Under this key stands that the embedder failed; what it failed at are the passages that wait.
EMBEDDING = "embedding"
# Between the text of a question and what was answered, in a text to embed.
_ASIDE = "\x1e"
_BUSY = "another process is building the index"


class BatchEmbedder:
    """The embedder as the pipeline uses it: no more at once than a batch, and watched.

    Where `careful`, a text that fails alone while others do not gets no direction, is found by
    words alone, and is told of in `refused`: it shall not stand in the way of all that follow.
    """

    def __init__(
        self, inner: Any, size: int, *, stop: Callable[[], bool], begun: Callable[[int], None]
    ) -> None:
        self._inner = inner
        self._size = size
        self._stop = stop
        self._begun = begun
        self.careful = False
        self.chars = 0
        self.refused: dict[str, str] = {}
        self._whole: dict[str, str] = {}

    @property
    def identity(self) -> str:
        return str(self._inner.identity)

    @property
    def title(self) -> str:
        return str(self._inner.title)

    @property
    def dims(self) -> int:
        return int(self._inner.dims)

    @property
    def batch(self) -> int:
        """As the settings have it."""
        return self._size

    def check(self) -> None:
        """Try it now."""
        self._inner.check()

    def pieces(self, text: str) -> Sequence[str]:
        """The text in parts; where careful, it is remembered whose they are."""
        parts: Sequence[str] = self._inner.pieces(text)
        if self.careful:
            self._whole.update(dict.fromkeys(parts, text))
        return parts

    def embed_query(self, text: str) -> Any:
        """One vector, soon."""
        return self._inner.embed_query(text)

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Any:
        """A whole batch or EmbedderOff."""
        if self._stop():
            raise EmbedderOff("the pipeline is stopping")
        self._begun(len(texts))
        made = self._carefully(texts) if self.careful else self._inner.embed_passages(texts)
        self.chars += sum(map(len, texts))
        return made

    def _carefully(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        try:
            made: Vectors = self._inner.embed_passages(texts)
        except EmbedderOff as error:
            self._inner.check()  # or it is the embedder after all, and no text of ours
            if len(texts) > 1:
                half = len(texts) // 2
                parts = self._carefully(texts[:half]), self._carefully(texts[half:])
                return np.concatenate(parts)
            self.refused[self._whole.get(texts[0], texts[0])] = str(error)
            return np.zeros((1, self.dims), dtype=np.float32)
        return made


class EmbeddingPipeline:
    """Brings one stream's index up to its journal; what fails is tried again later."""

    def __init__(self, open_memory: Callable[[], Ralph], retries: Retries) -> None:
        self._open = open_memory
        self._retries = retries
        self._held: tuple[Ralph, Backlog, object] | None = None
        self._stop = threading.Event()
        self._board: StatusBoard | None = None

    @property
    def poll_s(self) -> float:
        """How long to rest when nothing calls."""
        return self._memory().shelf.settings.embedding_pipeline_poll_interval_s

    @property
    def next_at(self) -> float | None:
        """When what failed may be tried again."""
        return self._retries.next_at(EMBEDDING)

    def hurry(self) -> None:
        """Rest no longer because of what failed: nothing is kept of it here."""

    def close(self) -> None:
        """Let go of files."""
        if self._held is not None:
            self._held[1].close()
            self._held[0].close()
            self._held = None

    def work(self, board: StatusBoard, stop: threading.Event) -> None:
        """Embed what the journal has and the index lacks."""
        self._board, self._stop = board, stop
        memory = self._memory()
        batches = memory.shelf.embedder
        if not memory.exist:
            board.set(total=board.look().completed, note="")
            return
        before = index_lag(memory)
        board.set(total=board.look().completed + before.count, note=_note(memory))
        self._drop_stale(memory)
        failing = self._retries.entries(EMBEDDING).get(EMBEDDING)
        if failing and failing.given_up and before.count > failing.count:
            self._retries.passed([EMBEDDING])  # there is more to do now than what was given up
            failing = None
        if before.current:
            self._retries.passed([EMBEDDING])
        if before.current or self._retries.rests(failing):
            return
        most = memory.shelf.settings.embedding_max_retries
        board.set(state="running")
        if isinstance(batches, BatchEmbedder):
            batches.careful = failing is not None and failing.attempts >= most
            batches.chars = 0
        trouble = self._sync(memory, batches, again=failing is not None)
        after = index_lag(memory)
        left = after.count
        cost = (price_per_char(memory.shelf.settings) or 0.0) * getattr(batches, "chars", 0)
        board.done(after.done_since(before), cost)
        board.set(total=board.look().completed + left)
        if isinstance(batches, BatchEmbedder) and batches.refused:
            self._give_up(memory, batches, board, attempts=most + 1)
        if stop.is_set():
            return
        if trouble is None:
            self._retries.passed([EMBEDDING])
            return
        board.set(note=trouble)
        if trouble == _BUSY:
            return  # it is being done
        failing = self._retries.failed(
            EMBEDDING, EMBEDDING, EMBEDDING, trouble, most=most, count=left
        )
        if failing.given_up:
            board.set(failed=board.look().failed + left)

    def _sync(self, memory: Backlog, batches: Any, *, again: bool) -> str | None:
        """What stood in the way."""
        try:
            if again and batches is not None:
                batches.check()  # a server that failed is else left alone for a while
            synced = memory.sync()
        except MemoryOff as error:
            return str(error)
        if synced.embedder_off:
            return synced.embedder_off
        return None if synced.complete else _BUSY

    def _drop_stale(self, memory: Backlog) -> None:
        """Forget failures of what was forgotten."""
        items = self._retries.entries(EMBEDDING).keys() - {EMBEDDING}
        if items:
            self._retries.passed(items - memory.history.records.keys())

    def _give_up(
        self, memory: Backlog, batches: BatchEmbedder, board: StatusBoard, *, attempts: int
    ) -> None:
        """Note which records hold what the embedder cannot make anything of."""
        cut = memory.target().cut
        for record in memory.history.records.values():
            parts = {part for one in cut(record) for part in one.embed.split(_ASIDE)}
            for text in parts & batches.refused.keys():
                self._retries.give_up(
                    EMBEDDING, [record.id], batches.refused[text], attempts=attempts
                )
                board.set(failed=board.look().failed + 1)
        batches.refused.clear()

    def _memory(self) -> Backlog:
        if self._held is not None and self._held[2] != settings_state(self._held[0]):
            self.close()
        if self._held is None:
            ralph = self._open()
            memory = open_backlog(ralph)
            if memory.shelf.embedder is not None:
                memory.shelf.embedder = BatchEmbedder(
                    memory.shelf.embedder,
                    memory.shelf.settings.embedding_batch_size,
                    stop=lambda: self._stop.is_set(),
                    begun=self._batch_begun,
                )
            self._held = ralph, memory, settings_state(ralph)
        return self._held[1]

    def _batch_begun(self, count: int) -> None:
        if self._board is not None:
            self._board.set(current=f"batch of {count}")


def _note(memory: Backlog) -> str:
    if memory.shelf.embedder is None:
        return "the setting embedder is none: everything is found by words alone"
    return ""
