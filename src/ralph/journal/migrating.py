"""Bringing a database to the schema this Ralph knows, by numbered files of SQL."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ralph.errors import JournalError
from ralph.journal.talk import DatabaseSession

_FOLDER = Path(__file__).parent / "migrations"
# Any number does, as long as every Ralph takes the same one.
_ADVISORY_LOCK = 7_239_116_240_518
_HAVE = "SELECT coalesce(max(number), 0) FROM ralph_migrations"
_TABLE = """
CREATE TABLE IF NOT EXISTS ralph_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema: its number, its name and its SQL."""

    number: int
    name: str
    sql: str


def migrations(folder: Path = _FOLDER) -> list[Migration]:
    """Every step this Ralph knows, in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [Migration(int(f.name[:4]), f.stem[5:], f.read_text(encoding="utf-8")) for f in files]


def bring_up(talk: DatabaseSession, shown: str, steps: list[Migration] | None = None) -> None:
    """Apply what the database lacks, once however many come at once; refuse a newer one."""
    from psycopg import errors

    known = migrations() if steps is None else steps
    newest = max(step.number for step in known)
    try:
        have = int(talk.rows(_HAVE)[0][0])
    except errors.UndefinedTable:
        have = 0
    if have < newest:
        have = _apply(talk, shown, known)
    if have > newest:
        raise JournalError(
            f"the journal's tables are of a newer Ralph (schema {have}, this one knows {newest})",
            where=shown,
            todo="Upgrade Ralph here: pip install --upgrade 'ralph-rag[postgres]'",
        )


def _apply(talk: DatabaseSession, shown: str, known: list[Migration]) -> int:
    encoding = str(talk.rows("SHOW server_encoding")[0][0])
    if encoding != "UTF8":
        raise JournalError(
            f"the database keeps its text as {encoding}, which cannot hold every record",
            where=shown,
            todo="Make one with: CREATE DATABASE ralph TEMPLATE template0 ENCODING 'UTF8'",
        )
    with talk.transaction():
        talk.rows("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY_LOCK], waits=True)
        talk.rows(_TABLE)
        have = int(talk.rows(_HAVE)[0][0])
        for step in known:
            if step.number > have:
                talk.script(step.sql)
                talk.rows(
                    "INSERT INTO ralph_migrations (number, name) VALUES (%s, %s)",
                    [step.number, step.name],
                )
                have = step.number
    return have
