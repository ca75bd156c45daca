"""Where anchors are kept: a small SQLite file in Ralph's home, by the ids of records.

Journals and the ids of records know nothing of it. It is filled when sessions are saved or read
again, and what is forgotten leaves it, too. Without it nothing is said about the code of a record.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph import disk
from ralph.capture.anchors import HASH_BYTES, Anchor
from ralph.errors import JournalBusy
from ralph.records import clean_text

if TYPE_CHECKING:
    import sqlite3

    from ralph.capture import AgentRun

# Where each project remembers how the code of records stands.
STANDINGS = "standing.json"
# Part of the file's name, so that another version makes its own.
_SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS anchor (
    record TEXT NOT NULL, path TEXT NOT NULL, at TEXT NOT NULL, branch TEXT NOT NULL,
    head TEXT NOT NULL, scope TEXT NOT NULL, lines BLOB NOT NULL, PRIMARY KEY (record, path));
CREATE INDEX IF NOT EXISTS anchor_path ON anchor (path, at);
"""
_COLUMNS = "record, path, at, branch, head, scope, lines"
_BUSY_TIMEOUT_S = 2.0
# Below the limit on query parameters of every SQLite build.
_IDS_AT_ONCE = 500


class SavedAnchor(NamedTuple):
    """The lines that a record left in a file, when, and on which branch and commit (or "")."""

    record: str
    anchor: Anchor
    at: str
    branch: str = ""
    head: str = ""


def anchor_json(saved: SavedAnchor) -> dict[str, str]:
    """Return an anchor as the API writes it."""
    anchor = saved.anchor
    about = {"record": saved.record, "path": anchor.path, "lines": anchor.lines, "at": saved.at}
    more = {"scope": anchor.scope, "branch": saved.branch, "head": saved.head}
    return about | {name: value for name, value in more.items() if value}


def read_anchor(plain: Mapping[str, str]) -> SavedAnchor:
    """Return an anchor from what the API wrote."""
    anchor = Anchor(plain["path"], plain["lines"], plain.get("scope", ""))
    branch = plain.get("branch", "")
    head = plain.get("head", "")
    return SavedAnchor(plain["record"], anchor, plain["at"], branch, head)


def clean_anchors(anchors: Iterable[SavedAnchor]) -> Iterator[SavedAnchor]:
    """Yield anchors that come from elsewhere, with texts that may be saved and shown."""
    for saved in anchors:
        path = clean_text(saved.anchor.path)
        scope = clean_text(saved.anchor.scope)
        anchor = Anchor(path, saved.anchor.lines, scope)
        yield saved._replace(anchor=anchor, branch=clean_text(saved.branch))


def anchors_in(run: AgentRun, record: str, branch: str = "", head: str = "") -> list[SavedAnchor]:
    """Return the anchors of a run under the id of its record."""
    at = run.ended_at or run.started_at or ""
    return [SavedAnchor(record, anchor, at, branch, head) for anchor in run.anchors]


class AnchorStore:
    """The anchors of all records on this machine."""

    def __init__(self, home: Path) -> None:
        self.path = home / f"anchors-v{_SCHEMA}.sqlite"

    @property
    def exists(self) -> bool:
        """Whether any anchor was saved."""
        return self.path.exists()

    def save(self, anchors: Iterable[SavedAnchor]) -> None:
        """Save the anchors; those of a record that has some in the same file are replaced."""
        rows = [
            (
                saved.record,
                saved.anchor.path,
                saved.at,
                saved.branch,
                saved.head,
                saved.anchor.scope,
                bytes.fromhex(saved.anchor.lines),
            )
            for saved in anchors
        ]
        if not rows:
            return
        insert = "INSERT OR REPLACE INTO anchor VALUES (?, ?, ?, ?, ?, ?, ?)"
        is_again = bool(self.of_records({row[0] for row in rows}))
        # Journals have the records. Without anchors, nothing is said about their code.
        with contextlib.suppress(JournalBusy, OSError):
            self._write(lambda connection: connection.executemany(insert, rows))
            if is_again:
                self._drop_standings()

    def of_records(self, records: Collection[str]) -> dict[str, list[SavedAnchor]]:
        """Return the anchors of each of the records that has some."""
        found: dict[str, list[SavedAnchor]] = {}
        for part in _parts(sorted(set(records))):
            marks = ", ".join("?" * len(part))
            for saved in self._read(f"record IN ({marks}) ORDER BY record, path", part):
                found.setdefault(saved.record, []).append(saved)
        return found

    def of_file(self, path: str) -> list[SavedAnchor]:
        """Return the anchors in a file, the oldest first."""
        return list(self._read("path = ? ORDER BY at, record", (path,)))

    def forget(self, records: Collection[str]) -> None:
        """Remove the anchors of these records, also from the file's free pages."""
        if not records or not self.exists:
            return

        def delete(connection: sqlite3.Connection) -> None:
            for part in _parts(sorted(set(records))):
                marks = ", ".join("?" * len(part))
                connection.execute(f"DELETE FROM anchor WHERE record IN ({marks})", part)

        self._write(delete)
        # What was found with them names their files.
        self._drop_standings()

    def _drop_standings(self) -> None:
        for file in self.path.parent.glob(f"cache/projects/*/{STANDINGS}"):
            file.unlink(missing_ok=True)

    def _read(self, condition: str, values: Sequence[str]) -> Iterator[SavedAnchor]:
        import sqlite3  # hooks that save nothing start faster without it

        if not self.exists:
            return
        select = (
            f"SELECT record, path, at, branch, head, scope, lines FROM anchor WHERE {condition}"
        )
        try:
            with contextlib.closing(self._open()) as connection:
                rows = connection.execute(select, tuple(values)).fetchall()
        except sqlite3.DatabaseError:
            return  # damaged or busy: nothing is known about the code
        for record, path, at, branch, head, scope, lines in rows:
            if len(lines) % HASH_BYTES == 0:
                anchor = Anchor(path, lines.hex(), scope)
                yield SavedAnchor(record, anchor, at, branch, head)

    def _write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        import sqlite3

        if not self.exists:  # SQLite would make it readable for everyone
            disk.make_folder(self.path.parent)
            os.close(disk.open_file(self.path, os.O_RDWR | os.O_CREAT))
        try:
            with contextlib.closing(self._open()) as connection, connection:
                connection.executescript(_TABLES)
                work(connection)
        except sqlite3.OperationalError as error:
            todo = "Try again when the other command is done, or free some space."
            what = f"the anchors of records cannot be changed ({error})"
            raise JournalBusy(what, where=str(self.path), todo=todo) from error
        except sqlite3.DatabaseError:
            self.path.unlink(missing_ok=True)  # damaged: importing again fills a new one
            if not self.exists:
                self._write(work)

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S)
        # What is deleted is overwritten.
        connection.execute("PRAGMA secure_delete = ON")
        return connection


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _IDS_AT_ONCE):
        yield ids[start : start + _IDS_AT_ONCE]
