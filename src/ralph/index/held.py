"""What an index has of a journal, for the time when the journal's own server is away."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ralph.errors import IndexOff
from ralph.index.open import Index
from ralph.index.port import AnyIndex, Collection, Corrupt
from ralph.records import Record, Source

if TYPE_CHECKING:
    from ralph.index.qdrant import QdrantIndex

_decode_source = msgspec.json.Decoder(Source).decode
_PAGE = 64
_HEAD = ["record", "digest", "type", "number", "at", "source", "body", "body_base64"]


def held_records(index: AnyIndex, name: str, *, budget_s: float) -> list[Record]:
    """Every record of a collection in the order of their numbers, or those that the time allows.

    Nothing where the index cannot be read either: nobody is helped by an error here.
    """
    found: list[Record] = []
    deadline = time.monotonic() + budget_s
    with contextlib.suppress(IndexOff, Corrupt, sqlite3.Error, msgspec.MsgspecError):
        with index.store.reading() as view:
            live = view.live(name)
        if live is not None:
            for record in _records(index, live):
                found.append(record)
                if time.monotonic() > deadline:
                    break
    return sorted(found, key=lambda record: record.number)


def _records(index: AnyIndex, live: Collection) -> Iterator[Record]:
    if isinstance(index, Index):
        return _in_file(index, live)
    from ralph.index.qdrant import QdrantIndex

    return _on_server(index, live) if isinstance(index, QdrantIndex) else iter(())


def _in_file(index: Index, live: Collection) -> Iterator[Record]:
    select = f"SELECT id, kind, number, at, body, source FROM record_{live.id} ORDER BY row DESC"
    with contextlib.closing(sqlite3.connect(index.path)) as connection:
        for record_id, kind, number, at, body, source in connection.execute(select):
            yield Record(record_id, kind, number, at, body, _decode_source(source))


def _on_server(index: QdrantIndex, live: Collection) -> Iterator[Record]:
    from ralph.index.qdrant_points import record_of
    from ralph.index.qdrant_server import holding

    with index.store.reading() as view:
        for point in view.scrolled(live.physical, holding(head=True), _HEAD, page=_PAGE):
            yield record_of(point.payload)
