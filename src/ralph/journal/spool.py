"""Records that wait on this machine while a journal's server is down, delivered later in order."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ralph import disk
from ralph.errors import JournalError, RecordForgotten
from ralph.journal import Appended, Batch, Draft, Journal
from ralph.journal.file import Numbers
from ralph.journal.folder import JournalFolder, file_name
from ralph.records import Located, Record, now

_log = logging.getLogger("ralph")
_SEEN = ".seen"
_NUMBERING_TIMEOUT_S = 1.0
_PORTION = 200
_DIGITS = 20
_WRITING = os.O_WRONLY | getattr(os, "O_BINARY", 0)


class _LastNumber(msgspec.Struct):
    name: str
    number: int = 0


_decode = msgspec.json.Decoder(_LastNumber).decode
_encode = msgspec.json.Encoder().encode


class Spool:
    """The records of one stream that wait for the server, in a file of their own."""

    def __init__(self, folder: Path, name: str, *, lock_timeout_s: float) -> None:
        # Two names that a file system takes for one are refused: their records would mix.
        kept = JournalFolder(folder, shown_as="spool", lock_timeout_s=lock_timeout_s)
        self._file = kept.journal(name)
        self.name = name
        self._lock_timeout_s = lock_timeout_s
        file = self._file.path
        self._seen_file = file.with_name(file.name + _SEEN)
        self._lock = file.with_name(file.name + ".lock")
        self._seen = 0
        self._told = False

    @property
    def holds(self) -> bool:
        """Whether anything waits."""
        try:
            return self._file.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    def keep(self, drafts: Sequence[Record | Draft]) -> list[Appended]:
        """Keep them here, numbered behind everything this machine has heard of; on disk then."""
        with self.numbering() as numbers:
            appended = self._file.append(drafts, above=numbers.highest)
            numbers.highest = max([numbers.highest, *(one.record.number for one in appended)])
        return appended

    def read(self, position: str | None, *, limit: int | None = None) -> Batch:
        """What waits behind the position."""
        return self._file.read(position, limit=limit)

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing more waits than at the position; None is before the first."""
        return not self.holds if position is None else self._file.unchanged(position)

    def waiting(self) -> tuple[Located, ...]:
        """Everything that waits."""
        return self._file.read().records

    # -- what was seen of the server

    def note(self, number: int) -> None:
        """Remember the highest number on the server, for the time when it is not reached."""
        if number == self._seen and self._seen_file.exists():
            return
        with self.numbering() as numbers:
            numbers.highest = max(number, numbers.highest)

    @contextlib.contextmanager
    def numbering(self) -> Iterator[Numbers]:
        """The highest number known here; meanwhile no other process of this machine gives out any.

        What it is set to is remembered.
        """
        with contextlib.ExitStack() as stack:
            try:
                lock = self._seen_file.with_name(self._seen_file.name + ".lock")
                lock.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(disk.locked(lock, timeout_s=_NUMBERING_TIMEOUT_S))
            except disk.Busy:
                pass  # somebody hangs: better two with one number than a record that is not kept
            except OSError as error:
                self._tell(error)
            numbers = Numbers(self.last_seen())
            yield numbers
            self._remember(numbers.highest)

    def _remember(self, number: int) -> None:
        seen = _read_seen(self._seen_file)
        self._seen = max(number, self._seen, seen.number if seen else 0)
        if seen is not None and seen.number == self._seen:
            return
        try:
            _write_seen(self._seen_file, self.name, self._seen)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        # The server has the record. Without the note two may get one number while it is down.
        if not self._told:
            _log.warning("memory: %s cannot be written (%s)", self._seen_file, error.strerror)
        self._told = True

    def last_seen(self) -> int:
        """The highest number that was on the server the last time; 0 where nobody knows."""
        seen = _read_seen(self._seen_file)
        return max(self._seen, seen.number if seen else 0)

    # -- handing over

    def deliver(self, target: Journal, *, patience_s: float) -> int | None:
        """Hand everything over in its order; how many that were, or None: another is at it.

        A record goes away here only after the target has it. Whoever is killed in between hands
        it over again, and the target knows it by its id and content.
        """
        if not self.holds:
            return 0
        try:
            with disk.locked(self._lock, timeout_s=patience_s):
                return self._deliver(target)
        except disk.Busy:
            return None
        except OSError as error:
            raise JournalError(
                f"what waits for the journal's server cannot be handed over "
                f"({error.strerror or error})",
                where=str(self._file.path),
                todo="Free space or permit writing there, then try again.",
            ) from error

    def _deliver(self, target: Journal) -> int:
        count = 0
        position: str | None = None
        while True:
            batch = self._file.read(position, limit=_PORTION)
            records = [located.record for located in batch.records]
            count += _hand_over(records, target)
            if records:  # before they go: their numbers are given out
                self.note(max(record.number for record in records))
            position = batch.position
            if batch.done and self._emptied(position):
                return count

    def _emptied(self, position: str) -> bool:
        """Empty the file, unless somebody kept more meanwhile."""
        with disk.locked(self._file.path, timeout_s=self._lock_timeout_s) as fd:
            if not self._file.unchanged(position):
                return False
            if self._file.read().complaints:
                stamp = "".join(char for char in now() if char.isdigit())
                left = self._file.path.with_name(f"{self._file.path.name}.left-{stamp}")
                disk.create(left, self._file.path.read_bytes())
                _log.warning("memory: lines that cannot be read were set aside as %s", left)
            os.ftruncate(fd, 0)
            disk.flush(fd)
        return True


def _hand_over(records: Sequence[Record], target: Journal) -> int:
    """All of them, but those that were forgotten on the server meanwhile."""
    if not records:
        return 0
    try:
        return sum(one.fresh for one in target.append(records))
    except RecordForgotten:
        if len(records) == 1:
            return 0
    return sum(_hand_over([record], target) for record in records)


def _write_seen(file: Path, name: str, number: int) -> None:
    """Write it over the old one, which is as long: cutting a file short first costs ten times."""
    text = b'{"name":%b,"number":%*d}' % (_encode(name), _DIGITS, number)
    # Made whole: an empty one would say that nothing was seen.
    if disk.create(file, text):
        return
    fd = disk.open_file(file, _WRITING)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def _read_seen(file: Path) -> _LastNumber | None:
    try:
        return _decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None  # nobody was there yet, or it was cut short by a crash


def known_names(folder: Path) -> list[str]:
    """The streams of a memory that this machine has heard of."""
    if not folder.is_dir():
        return []
    seen = (_read_seen(file) for file in folder.glob(f"*{_SEEN}"))
    return sorted({one.name for one in seen if one} | set(waiting_names(folder)))


def waiting_names(folder: Path) -> list[str]:
    """The streams of which something waits here."""
    kept = JournalFolder(folder)
    return [name for name in kept.names() if kept.size_bytes(name)]


def spool_folder(spools: Path, memory: str) -> Path:
    """The folder of one memory's spools; its name's parts are folders."""
    return spools.joinpath(*(Path(file_name(part)).stem for part in memory.split("/")))
