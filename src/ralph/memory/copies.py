"""The files that keep copies of what records say, so that `forget` leaves none.

A row of `PLACES` for each: what people call it, and how the words are removed from it. A room that
begins to keep words in a file adds its row here; the test of forgetting looks for every one of them
on the disk.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.memory.conversation_stream import folded, texts_of
from ralph.memory.sessions import read_marks, write_marks
from ralph.records.iteration import TRUNCATED
from ralph.text.tokens import tokens

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.plan.store import Plan

# Shorter texts occur in too many places to prove anything.
_TELLING_CHARS = 12
# Shorter texts (titles, paths) are in a prompt whether or not something was recalled.
_QUOTED_CHARS = 60
# With more texts than this, everything in the small files goes: Ralph can make them again.
_MOST_TEXTS = 2000
_LOCK_TIMEOUT_S = 5.0
_LARGEST_COPY_BYTES = 64 * 1024 * 1024


class Words:
    """The words of forgotten records, to search for elsewhere."""

    def __init__(self, texts: Iterable[str], match: str = "") -> None:
        # Spaces around it count: they exclude longer words.
        self.match = _spaced(match)
        # Finds the match as written, in any case and with any line breaks.
        self.written = re.compile(r"\s+".join(map(re.escape, re.split(r"\s+", match))), re.I)
        self._texts = {text for text in set(map(folded, texts)) if len(text) >= _TELLING_CHARS}

    def stand_in(self, text: str) -> bool:
        """Return whether a text has the match, or repeats one of the texts or a part of it."""
        plain = folded(text.removesuffix(TRUNCATED))
        if len(self._texts) > _MOST_TEXTS or (self.match and self.match in plain):
            return True
        long = len(plain) >= _TELLING_CHARS
        return any(one in plain or (long and plain in one) for one in self._texts)

    def stand_in_any(self, body: bytes) -> bool:
        """Return whether that is so for any text in a JSON file."""
        return any(map(self.stand_in, texts_of(body)))

    def match_in(self, body: bytes) -> bool:
        """Return whether a record's body has the match, in one of its texts or in its JSON."""
        texts = (body.decode("utf-8", "replace"), *texts_of(body))
        return any(self.match in _spaced(text) for text in texts)

    def in_file(self, data: bytes) -> bool:
        """Return whether a file has the match or one of the longer texts; line breaks count as
        spaces."""
        text = data.decode("utf-8", "replace")
        plain = folded(text)
        wanted = [one for one in self._texts if len(one) >= _QUOTED_CHARS]
        wanted += [self.match] if self.match else []
        return any(one in plain for one in wanted) or any(map(self.match_on, text.splitlines()))

    def match_on(self, line: str) -> bool:
        """Return whether a line has the match; the plan keeps stems of removed learnings."""
        if not self.match or self.match in folded(line):
            return bool(self.match)
        stems = tokens(self.match)
        return bool(stems) and "words:" in line and set(stems) <= set(line.split())


class CopyHolder(msgspec.Struct, frozen=True):
    """Where copies are looked for: Ralph's home and the project's own state on this machine.

    `versions`: the plan has changed, so its old versions have what was removed.
    """

    home: Path
    cache: Path
    plan: Path
    versions: bool = False


class CopyPlace(msgspec.Struct, frozen=True):
    """A kind of file with copies: what one and many of its parts are called, and how to clean it.

    `clean` removes the words and returns how many parts of the files had them.
    """

    one: str
    many: str
    clean: Callable[[CopyHolder, Words], int]

    def told(self, count: int) -> str:
        """Say how many were removed."""
        return f"{count} {self.one if count == 1 else self.many}"


def remove_copies(ralph: Ralph, words: Words, *, versions: bool) -> list[str]:
    """Remove the words from all files that Ralph can make again; return what was removed.

    `versions`: the plan has changed, so its old versions have what was removed.
    """
    holder = CopyHolder(
        ralph.store.home, ralph.project.cache, plan_of(ralph).cache, versions=versions
    )
    removed: list[str] = []
    for place in PLACES:
        if count := place.clean(holder, words):
            removed.append(place.told(count))
    return removed


def plan_of(ralph: Ralph) -> Plan:
    """Return the plan of the project."""
    from ralph.plan.store import Plan  # only here: most commands need no YAML

    return Plan(ralph.project.root, state=ralph.project.cache)


def runs_with(cache: Path, words: Words) -> list[Path]:
    """Return the folders of runs whose prompt, plan or output has the words."""
    folders = sorted(cache.glob("runs/*/"))
    return [one for one in folders if any(words.in_file(_read(file)) for file in one.glob("*"))]


def old_journals(ralph: Ralph, ids: Collection[str]) -> list[str]:
    """Return files of journals that moved to a server, if they still have these records."""
    if not ralph.config.settings.journal_url:
        return []
    wanted = [one.encode() for one in ids]
    own = ralph.project.journals
    files = [*(own / name for name in disk.names(own)), *ralph.store.home.glob("journal/*/*.jsonl")]
    found = [file for file in files if any(one in _read(file) for one in wanted)]
    return [f"{file}, from before the journal moved to a server" for file in sorted(found)]


# -- How each kind of file is cleaned.


def _hook_logs(holder: CopyHolder, words: Words) -> int:
    return _without_lines(holder.home.glob("cache/**/hooks.log*"), words.stand_in)


def _undelivered(holder: CopyHolder, words: Words) -> int:
    return _without_lines(holder.home.glob("spool/**/*.left-*"), words.stand_in)


def _workers_notes(holder: CopyHolder, words: Words) -> int:
    return _whole(holder.home.glob("cache/workers/*.json"), words.stand_in_any)


def _plan_versions(holder: CopyHolder, words: Words) -> int:
    files = [
        *holder.plan.glob("versions/*"),
        *holder.plan.glob("rejected/*"),
        *holder.cache.glob("undo/*/*.yaml"),
    ]
    return _whole(files, lambda data: holder.versions or words.in_file(data))


def _proposals(holder: CopyHolder, words: Words) -> int:
    return _whole(holder.cache.glob("braindump/*"), words.in_file)


def _unfinished_runs(holder: CopyHolder, words: Words) -> int:
    return sum(map(_drop_run, runs_with(holder.cache, words))) if words.match else 0


def _drop_run(folder: Path) -> bool:
    """Delete what a killed run left; return False if the run is still active."""
    try:
        with disk.lock(folder / "lock", timeout_s=0.0):
            shutil.rmtree(folder)
    except (OSError, disk.Busy):
        return False
    return True


def _hook_notes(holder: CopyHolder, words: Words) -> int:
    """Remove errors noted in active sessions, and the texts that sessions begin with."""
    gone = 0
    for own in sorted(holder.home.glob("cache/hooks/*")):
        # Rebuilt when a session begins. It may describe the forgotten records in other words.
        gone += _whole([own / "brief.json", *own.glob("sessions/*.tmp")], lambda data: True)
        if not (notes := sorted(own.glob("sessions/*.jsonl"))):
            continue
        try:
            with disk.lock(own / "lock", timeout_s=_LOCK_TIMEOUT_S):
                gone += _without_lines(notes, lambda line: _notes(line, words))
        except disk.Busy:
            gone += _whole(notes, words.stand_in_any)
    return gone


def _notes(line: str, words: Words) -> bool:
    """Return whether a line of hook notes repeats the words; only errors have any text."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return words.stand_in(line)
    value = told.get("value") if isinstance(told, dict) and told.get("note") == "error" else None
    texts = value.values() if isinstance(value, dict) else ()
    return any(isinstance(text, str) and words.stand_in(text) for text in texts)


def _import_marks(holder: CopyHolder, words: Words) -> int:
    """Remove titles that repeat the words from the marks of imported sessions."""
    gone = 0
    for file in sorted(holder.home.glob("cache/imports/*.json")):
        with disk.lock(file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
            marks = read_marks(file)
            telling = {i: m for i, m in marks.items() if m.title and words.stand_in(m.title)}
            untitled = {i: msgspec.structs.replace(m, title="") for i, m in telling.items()}
            if telling:
                write_marks(file, marks | untitled)
            gone += len(telling)
    return gone


def _whole(files: Iterable[Path], holds: Callable[[bytes], bool]) -> int:
    """Delete the files whose content `holds` the words; return how many."""
    gone = 0
    for file in files:
        if file.is_file() and not file.is_symlink() and holds(_read(file)):
            disk.remove(file)
            gone += 1
    return gone


def _without_lines(files: Iterable[Path], repeats: Callable[[str], bool]) -> int:
    """Remove lines that repeat the words from these files; return how many."""
    gone = 0
    for file in list(files):
        if file.is_file() and not file.is_symlink():
            lines = _read(file).splitlines(keepends=True)
            kept = [line for line in lines if not repeats(line.decode("utf-8", "replace"))]
            if len(kept) < len(lines):
                disk.replace(file, b"".join(kept))
            gone += len(lines) - len(kept)
    return gone


def _read(file: Path) -> bytes:
    try:
        return disk.read(file, largest=_LARGEST_COPY_BYTES)
    except OSError:
        return b""


def _spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()


PLACES = (
    CopyPlace("entry in the hooks' notes", "entries in the hooks' notes", _hook_notes),
    CopyPlace("log line", "log lines", _hook_logs),
    CopyPlace(
        "line that could not be delivered", "lines that could not be delivered", _undelivered
    ),
    CopyPlace("title of imported sessions", "titles of imported sessions", _import_marks),
    CopyPlace("entry in the workers' notes", "entries in the workers' notes", _workers_notes),
    CopyPlace("copy of the plan", "copies of the plan", _plan_versions),
    CopyPlace("proposal of a plan", "proposals of a plan", _proposals),
    CopyPlace("unfinished run", "unfinished runs", _unfinished_runs),
)
