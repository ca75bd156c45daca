"""Whether memory works, what is in it, and whether the index agrees with the journal."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ralph.config import Settings
from ralph.errors import EmbedderOff, MemoryOff
from ralph.index import CollectionSize, Corrupt, Embedder
from ralph.index.sync import IndexSpec, is_current
from ralph.memory.ralph import Ralph
from ralph.memory.store import Stream
from ralph.records import plain


class Health(msgspec.Struct, frozen=True):
    """One part of memory: ok, or why not and what to do."""

    ok: bool
    detail: str
    todo: str | None = None


_NONE = Health(False, "the setting embedder is none", "Run: ralph config embedder static")
_REBUILD = "Run: ralph index rebuild"
_NOTHING = {"journalled": 0, "indexed": 0}
_SINGULAR = {"features": "feature", "conversations": "conversation"}
# The streams other than features.
_MEMORIES = ("conversations", "knowledge", "notes", "plan")


class FeatureCount(msgspec.Struct, frozen=True):
    """How much of a feature's journal the index has."""

    feature: str
    journalled: int
    indexed: int
    waiting: int
    current: bool


class RagStatus(msgspec.Struct, frozen=True):
    """Whether memory is available, and everything a person would ask next."""

    available: bool
    index: Health
    embedder: Health
    model: str | None
    dimensions: int | None
    memories: dict[str, dict[str, int]]
    features: list[FeatureCount]
    line: str


def status_there(health: Health, answer: Mapping[str, Any]) -> RagStatus:
    """Return what a server says; a token for one feature gets little."""
    usual = RagStatus(health.ok, health, health, None, None, {}, [], _line(health, health))
    return msgspec.convert({**plain(usual), **answer}, RagStatus)


def status(ralph: Ralph) -> RagStatus:
    """Return the status. Changes nothing, but may create an empty index file."""
    embedder = ralph.store.embedder
    health = _embedder(embedder)
    index, features = _index(ralph)
    known = embedder if health.ok else None
    memories = {name: dict(_NOTHING) for name in ("features", *_MEMORIES)}
    memories["features"] = {key: sum(getattr(one, key) for one in features) for key in _NOTHING}
    for one in ralph.streams():
        if one.label in _MEMORIES:
            before = memories[one.label]
            before |= {key: before[key] + count for key, count in _count(one).items()}
    memories["knowledge"] |= _knowledge(ralph)
    of_one = {_SINGULAR.get(name, name): counts for name, counts in memories.items()}
    model, dims = (known.identity, known.dims) if known else (None, None)
    return RagStatus(index.ok, index, health, model, dims, of_one, features, _line(index, health))


def _count(stream: Stream) -> dict[str, int]:
    """Return how many records a stream has, and how many of them the index has."""
    counts = dict(_NOTHING)
    with contextlib.suppress(MemoryOff, Corrupt):  # the status says why
        counts["journalled"] = count = len(stream.records())
        # The index also has private notes that a server does not show.
        counts["indexed"] = min(_size(stream).records, count) if count else 0
    return counts


def _knowledge(ralph: Ralph) -> dict[str, int]:
    """Count all projects' entries, published or not; only a pattern's first ones are indexed."""
    try:
        accounts = ralph.knowledge.state.accounts()
    except MemoryOff:
        accounts = []
    journalled = sum(len(one.entries) for one in accounts)
    return {"journalled": journalled, "staged": sum(len(one.staged) for one in accounts)}


def _size(stream: Stream) -> CollectionSize:
    with stream.store.index.answering(stream.target().name) as (view, live):
        return view.size(live) if live else CollectionSize(0, 0, 0)


def _line(index: Health, embedder: Health) -> str:
    if not index.ok:
        return f"RAG: off ({index.detail}{'; ' + index.todo if index.todo else ''})"
    if not embedder.ok:
        return f"RAG: active by words alone ({embedder.detail}{_then(embedder)})"
    return f"RAG: active ({index.detail}, {embedder.detail})"


def status_sentence(found: RagStatus) -> str:
    """Say whether memory works, in the words of someone who does not know how it is built."""
    if not found.available:
        return _sentence("Memory is off", found.index)
    if not found.embedder.ok:
        return _sentence("Memory works, by words alone", found.embedder)
    embedder = found.embedder.detail if found.model and not _is_default(found.model) else ""
    return f"Memory works, by words and meaning{f' ({embedder})' if embedder else ''}."


def _is_default(model: str) -> bool:
    return model.partition(":")[0] == Settings().embedder


def _sentence(begin: str, health: Health) -> str:
    return f"{begin}: {health.detail.rstrip('.')}.{f' {health.todo}' if health.todo else ''}"


def _then(health: Health) -> str:
    if not health.todo:
        return ""
    todo = health.todo.rstrip(".")
    if health is not _NONE and todo.startswith("Run:"):
        return f". {todo}"  # as Ollama users know it: nomic-embed-text not found. Run: ...
    return f"; {todo}" if todo.startswith("Run:") else f"; {todo[0].lower()}{todo[1:]}"


def _embedder(embedder: Embedder | None) -> Health:
    if embedder is None:
        return _NONE
    try:
        embedder.check()
    except EmbedderOff as error:
        return off(error)
    return Health(True, f"{embedder.title} {embedder.dims}d")


def off(error: MemoryOff | Corrupt) -> Health:
    """Return what is wrong; for a server also which one, so that a person knows where to look."""
    if isinstance(error, Corrupt):
        return Health(False, f"the index is damaged ({error})", _REBUILD)
    at_server = error.where is not None and "://" in error.where
    return Health(False, f"{error.what} at {error.where}" if at_server else error.what, error.todo)


def _index(ralph: Ralph) -> tuple[Health, list[FeatureCount]]:
    store = ralph.store.index.store
    trouble: Health | None = None
    try:
        store.check()
    except (MemoryOff, Corrupt) as error:
        trouble = off(error)
    features: list[FeatureCount] = []
    for memory in ralph.features():
        journalled = len(memory.records())
        size = CollectionSize(0, 0, 0)
        current = False
        if trouble is None:
            try:
                size = _size(memory)
                current = is_current(store, memory.target())
            except (MemoryOff, Corrupt) as error:
                trouble = off(error)
        features.append(FeatureCount(memory.name, journalled, size.records, size.waiting, current))
    return trouble or Health(True, f"{store.title} ok"), features


# -- Checking the index against the journal. Changes nothing.


_FLOAT_BYTES = 4
_CATCHES_UP = "The next search catches up by itself."


class Fault(msgspec.Struct, frozen=True):
    """One problem with the index; `mends`: the next search fixes it."""

    feature: str | None
    what: str
    todo: str
    mends: bool = False


class Checked(msgspec.Struct, frozen=True):
    """How many records are indexed correctly, and every problem found."""

    ok: bool
    records: int
    faults: list[Fault]


def verify_index(ralph: Ralph) -> Checked:
    """Check each index file, then every record, passage and vector of the journals."""
    faults: list[Fault] = []
    records = 0
    looked_at: set[str] = set()
    streams = ralph.streams()
    for store in [ralph.store, *(one.store for one in streams)]:
        if store.index.where in looked_at:
            continue
        looked_at.add(store.index.where)
        try:
            found = store.index.store.check(deep=True)
            faults += [Fault(None, f"the file: {what}", _REBUILD) for what in found]
            for one in streams:
                if one.store is store:
                    wrong, good = _stream_faults(one)
                    faults += wrong
                    records += good
        except Corrupt as damage:
            faults.append(Fault(None, f"the index is damaged ({damage})", _REBUILD))
        except MemoryOff as error:
            faults.append(Fault(None, error.what, error.todo or _REBUILD))
    return Checked(not faults, records, faults)


def _stream_faults(memory: Stream) -> tuple[list[Fault], int]:
    name = memory.label
    index = memory.store.index
    target = memory.target()
    living = {(record.id, record.digest): record for record in memory.records()}
    if not living:
        return [], 0
    current = is_current(index.store, target)
    with index.answering(target.name) as (view, live):
        if live is None:
            missing = f"none of its {len(living)} records is indexed"
            return [Fault(name, missing, _CATCHES_UP, mends=True)], 0
        if live.manifest != target.manifest():
            other = "it was built with another embedder, tokeniser or way of cutting"
            return [Fault(name, other, _CATCHES_UP, mends=True)], 0
        content = view.content(live)
        indexed = content.keys
        size = view.size(live)
    vectors = list(_vector_faults(content.vectors, size, target, memory)) if current else []
    good = len(living.keys() & indexed)
    # If the journal has just grown or been merged, missing or extra records are normal.
    todo = _REBUILD if current else _CATCHES_UP
    too_many = "is indexed, but not in the journal"
    told = [f"record {key[0]} is not indexed" for key in living.keys() - indexed]
    told += [f"record {key[0]} {too_many}" for key in indexed - living.keys()]
    faults = [Fault(name, what, todo, mends=not current) for what in sorted(told)]
    return faults + [Fault(name, what, _REBUILD) for what in vectors], good


def _vector_faults(
    vectors: dict[bytes, bytes], size: CollectionSize, target: IndexSpec, memory: Stream
) -> Iterator[str]:
    """Yield what is wrong with passages and vectors: one is missing, too many, or damaged."""
    passages = [(record, passage) for record in memory.records() for passage in target.cut(record)]
    if size.passages != len(passages):
        yield f"passages indexed: {size.passages}, should be {len(passages)}"
    if target.embedder is None:
        return
    import numpy as np

    length = target.manifest().dims * _FLOAT_BYTES
    embedded = [(passage.embed.encode(), record.id) for record, passage in passages]
    wanted = {hashlib.sha256(text).digest()[:16]: name for text, name in embedded if text}
    if size.waiting:
        yield f"{size.waiting} passages wait for the embedder"
    for text_hash, record_id in wanted.items():
        vector = vectors.get(text_hash)
        if vector is None:
            if not size.waiting:
                yield f"record {record_id} has no vector"
        elif not vector or len(vector) % length:  # a long text has a vector for each of its pieces
            yield f"the vector of record {record_id} has {len(vector)} bytes instead of {length}"
        elif not np.isfinite(np.frombuffer(vector, dtype=np.float32)).all():
            yield f"the vector of record {record_id} contains invalid numbers"
