"""Records into the tables of a collection in SQLite, and out of them."""

from __future__ import annotations

import sqlite3

import msgspec

from ralph.index.facets import facet_tokens
from ralph.index.tables import Row
from ralph.text.tokens import tokens

_encode = msgspec.json.Encoder().encode


def insert_row(connection: sqlite3.Connection, n: int, row: Row, sweep: int) -> None:
    """A record with its passages, their words, and the vectors there are."""
    record = row.record
    number = connection.execute(
        f"INSERT INTO record_{n} (id, digest, kind, number, at, source, body, sweep)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            record.digest,
            record.kind,
            record.number,
            record.at,
            _encode(record.source).decode(),
            record.body,
            sweep,
        ),
    ).lastrowid
    for passage, passage_hash, vector in zip(row.passages, row.hashes, row.vectors, strict=True):
        place = connection.execute(
            f"INSERT INTO passage_{n} (record, hash, waiting) VALUES (?, ?, ?)",
            (number, passage_hash, (passage.embed or None) if vector is None else None),
        ).lastrowid
        connection.execute(
            f"INSERT INTO words_{n} (rowid, title, text, places, facets) VALUES (?, ?, ?, ?, ?)",
            (
                place,
                " ".join(tokens(passage.title)),
                " ".join(tokens(passage.text)),
                " ".join(tokens(passage.places)),
                " ".join(facet_tokens(passage.facets)),
            ),
        )
        if vector is not None:
            connection.execute(
                f"INSERT INTO vector_{n} (passage, v) VALUES (?, ?)", (place, vector)
            )


def remove_records(connection: sqlite3.Connection, n: int, where: str, value: str | int) -> int:
    """Take records out with everything that belongs to them; how many there were."""
    found = connection.execute(f"SELECT row FROM record_{n} WHERE {where}", (value,)).fetchall()
    for (number,) in found:
        passages = connection.execute(
            f"SELECT row FROM passage_{n} WHERE record = ?", (number,)
        ).fetchall()
        connection.executemany(f"DELETE FROM words_{n} WHERE rowid = ?", passages)
        connection.executemany(f"DELETE FROM vector_{n} WHERE passage = ?", passages)
        connection.execute(f"DELETE FROM passage_{n} WHERE record = ?", (number,))
        connection.execute(f"DELETE FROM record_{n} WHERE row = ?", (number,))
    if found:
        connection.execute("UPDATE collection SET removals = removals + 1 WHERE id = ?", (n,))
    return len(found)
