"""Is the index what the journal says it should be? Looks, and changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ralph.errors import MemoryOff
from ralph.index.sync import Target, is_current
from ralph.index.tables import Collection, Corrupt
from ralph.index.view import View

if TYPE_CHECKING:
    from ralph.memories.feature import FeatureMemory
    from ralph.memories.ralph import Ralph

_FLOAT_BYTES = 4
_REBUILD = "Run: ralph index rebuild"
_CATCHES_UP = "The next search catches up by itself."


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with the index; `mends` says that the next search puts it right."""

    feature: str | None
    what: str
    todo: str
    mends: bool = False


class Checked(msgspec.Struct, frozen=True):
    """How many records are indexed as they should be, and everything that is wrong."""

    ok: bool
    records: int
    faults: list[Fault]


def verify_index(ralph: Ralph) -> Checked:
    """The file as SQLite sees it, then every record, passage and vector against the journal."""
    faults: list[Fault] = []
    records = 0
    try:
        faults += [Fault(None, f"the file: {what}", _REBUILD) for what in _file_faults(ralph)]
        for memory in ralph.features():
            found, good = _feature_faults(ralph, memory)
            faults += found
            records += good
    except Corrupt as damage:
        faults.append(Fault(None, f"the index is damaged ({damage})", _REBUILD))
    except MemoryOff as error:
        faults.append(Fault(None, error.what, error.todo or _REBUILD))
    return Checked(not faults, records, faults)


def _file_faults(ralph: Ralph) -> list[str]:
    return ralph.place.index.store.check()


def _feature_faults(ralph: Ralph, memory: FeatureMemory) -> tuple[list[Fault], int]:
    target, store = memory.target(), ralph.place.index.store
    living = {(record.id, record.digest): record for record in memory.records()}
    if not living:
        return [], 0
    current = is_current(store, target)
    with store.reading() as view:
        live = view.live(target.name)
        if live is None:
            missing = f"none of its {len(living)} records is indexed"
            return [Fault(memory.name, missing, _CATCHES_UP, mends=True)], 0
        if live.manifest != target.manifest():
            other = "it was built with another embedder, tokeniser or way of cutting"
            return [Fault(memory.name, other, _CATCHES_UP, mends=True)], 0
        indexed = view.known(live)
        vectors = list(_vector_faults(view, live, target, memory)) if current else []
    good = len(living.keys() & indexed.keys())
    # A journal that has just grown or been merged explains what is missing or too much.
    todo = _REBUILD if current else _CATCHES_UP
    told = [f"record {key[0]} is not indexed" for key in living.keys() - indexed.keys()]
    told += [
        f"record {key[0]} is indexed, but not in the journal"
        for key in indexed.keys() - living.keys()
    ]
    faults = [Fault(memory.name, what, todo, mends=not current) for what in sorted(told)]
    return faults + [Fault(memory.name, what, _REBUILD) for what in vectors], good


def _vector_faults(
    view: View, live: Collection, target: Target, memory: FeatureMemory
) -> Iterator[str]:
    """Each text that must have a vector has one, of the right length and of real numbers."""
    passages = [(record, passage) for record in memory.records() for passage in target.cut(record)]
    _, held, waiting = view.counts(live)
    if held != len(passages):
        yield f"{held} passages are indexed, {len(passages)} should be"
    if target.embedder is None:
        return
    import numpy as np

    vectors = view.vectors_by_hash(live)
    length = live.manifest.dims * _FLOAT_BYTES
    wanted = {
        hashlib.sha256(passage.embed.encode()).digest()[:16]: record.id
        for record, passage in passages
        if passage.embed
    }
    if waiting:
        yield f"{waiting} passages wait for the embedder"
    for text_hash, record_id in wanted.items():
        vector = vectors.get(text_hash)
        if vector is None:
            if not waiting:
                yield f"record {record_id} has no vector"
        elif not vector or len(vector) % length:  # a long text has a vector for each of its pieces
            yield f"the vector of record {record_id} has {len(vector)} bytes instead of {length}"
        elif not np.isfinite(np.frombuffer(vector, dtype=np.float32)).all():
            yield f"the vector of record {record_id} holds what is no number"
