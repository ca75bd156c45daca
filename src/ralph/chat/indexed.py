"""What the index holds of conversations, how far it is behind, and taking things out of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ralph import disk
from ralph.chat.working import Backlog
from ralph.config import Settings
from ralph.errors import IndexOff
from ralph.records.conversation import DOCUMENT, EXCHANGE, SUMMARY, said_from

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


class Counts(msgspec.Struct, frozen=True):
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


class Behind(msgspec.Struct, frozen=True):
    """How many records the index lacks, or has without a vector; and whether it lacks nothing.

    `embedded` passages have a vector, in this `generation` of the collection.
    """

    count: int
    current: bool
    generation: int = 0
    embedded: int = 0

    def done_since(self, before: Behind) -> int:
        """How many embeddings were made since: all where the collection was built anew."""
        same = self.generation == before.generation
        return max(0, self.embedded - (before.embedded if same else 0))


def behind(memory: Backlog) -> Behind:
    """How far the index is behind the journal."""
    index, target = memory.shelf.index, memory.target()

    def look() -> Behind:
        with index.store.reading() as view:
            live = view.live(target.name)
            if live is None or live.manifest != target.manifest():
                return Behind(len(_findable(memory, None, frozenset())), current=False)
            _, passages, waiting = view.counts(live)
            embedded = passages - waiting if live.manifest.dims else 0
            if target.journal.unchanged(live.position) and not live.sweeping:
                return Behind(waiting, not waiting, live.id, embedded)
            known = frozenset(name for name, _ in view.known(live))
        count = waiting + len(_findable(memory, live.position, known))
        return Behind(count, current=False, generation=live.id, embedded=embedded)

    return index.healed(look)


def _findable(memory: Backlog, position: str | None, known: frozenset[str]) -> set[str]:
    """What stands in the journal behind the position and is not known yet."""
    batch = memory.target().journal.read(position)
    ids = {one.record.id for one in batch.records if one.record.kind in _FINDABLE}
    return ids - known - {stone.id for stone in batch.tombstones}


def counted(memory: Backlog) -> Counts:
    """What the index holds of these conversations, by kind."""
    if not memory.exist:
        return Counts()
    held = memory.shelf.index.healed(lambda: embedded_ids(memory))
    found = dict.fromkeys(("conversations", "summaries", "exchanges", "documents"), 0)
    waiting = 0
    for record in memory.history.records.values():
        kind = kind_of(record)
        if kind is not None and record.id in held:
            found[kind] += 1
        elif kind is not None:
            waiting += 1
    return Counts(**found, waiting=0 if memory.shelf.embedder is None else waiting)


def kind_of(record: Any) -> str | None:
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


def clear(memory: Backlog, ids: Collection[str] | None = None) -> None:
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
