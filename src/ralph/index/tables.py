"""The tables of one collection generation in SQLite, and what goes into them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ralph.index import Manifest, Passage
from ralph.records import Record

META = """
CREATE TABLE IF NOT EXISTS collection (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL, stream TEXT NOT NULL, live INTEGER NOT NULL,
    embedder TEXT NOT NULL, dims INTEGER NOT NULL, tokeniser TEXT NOT NULL, cut TEXT NOT NULL,
    position TEXT, sweep INTEGER NOT NULL DEFAULT 0, sweeping INTEGER NOT NULL DEFAULT 0,
    removals INTEGER NOT NULL DEFAULT 0, UNIQUE (name, live));
"""
# Rows of passage and vector are never used twice: an open reader asks for those above the last
# one it knows.
TABLES = """
CREATE TABLE record_{n} (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, digest TEXT NOT NULL, kind TEXT NOT NULL,
    number INTEGER NOT NULL, at TEXT NOT NULL, source TEXT NOT NULL, body BLOB NOT NULL,
    sweep INTEGER NOT NULL, UNIQUE (id, digest));
CREATE INDEX record_number_{n} ON record_{n} (number);
CREATE TABLE passage_{n} (
    row INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL, hash BLOB NOT NULL,
    waiting TEXT);
CREATE INDEX passage_record_{n} ON passage_{n} (record);
CREATE INDEX passage_waiting_{n} ON passage_{n} (row) WHERE waiting IS NOT NULL;
CREATE TABLE vector_{n} (
    row INTEGER PRIMARY KEY AUTOINCREMENT, passage INTEGER NOT NULL UNIQUE, v BLOB NOT NULL);
CREATE VIRTUAL TABLE words_{n} USING fts5(
    title, text, places, facets, tokenize = "ascii tokenchars '._/+#-'");
CREATE VIRTUAL TABLE vocabulary_{n} USING fts5vocab(words_{n}, 'row');
CREATE TABLE forgotten_{n} (id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
DROP = "\n".join(
    f"DROP TABLE IF EXISTS {table}_{{n}};"
    for table in ("vocabulary", "words", "vector", "passage", "record", "forgotten")
)
COLUMNS = (
    "id, name, stream, live, embedder, dims, tokeniser, cut, position, sweep, sweeping, removals"
)


class Corrupt(Exception):
    """The index does not hold what it should; `Index.healed` sets it aside and builds it anew."""


class Collection(msgspec.Struct, frozen=True):
    """One generation of a collection as the store has it."""

    id: int
    name: str
    stream: str
    live: bool
    manifest: Manifest
    position: str | None
    sweep: int
    sweeping: bool
    removals: int
    # Where a store gives its generations names of their own, this one's; and what changes with
    # everything that is written to it.
    physical: str = ""
    state: str = ""


class Row(msgspec.Struct, frozen=True):
    """A record to be indexed: its passages, their hashes, and the vectors there are already.

    A passage's vectors are one blob: one vector, or one for each piece it was cut into.
    """

    record: Record
    passages: Sequence[Passage]
    hashes: Sequence[bytes]
    vectors: Sequence[bytes | None]


def collection_of(row: Sequence[object]) -> Collection:
    """A row of COLUMNS as a value."""
    number, name, stream, live, embedder, dims, tokeniser, cut, position, sweep, on, gone = row
    plain = {
        "id": number,
        "name": name,
        "stream": stream,
        "live": bool(live),
        "manifest": {"embedder": embedder, "dims": dims, "tokeniser": tokeniser, "cut": cut},
        "position": position,
        "sweep": sweep,
        "sweeping": bool(on),
        "removals": gone,
    }
    return msgspec.convert(plain, Collection)
