"""Journals whose server may be down: writes wait here, in order, and are delivered later."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from ralph import disk
from ralph.errors import JournalBusy, JournalDown, RecordForgotten
from ralph.journal import Appended, Batch, Drafts, Ids, Stones, read_position, write_position
from ralph.journal.file import FREE_SPACE, LOCK_TIMEOUT_S, JournalFolder, disk_error, file_name
from ralph.journal.postgres import Numbers, PostgresJournal, PostgresJournals, Tried, check_fits
from ralph.journal.session import Link, Patience
from ralph.records import Complaint, JournalRecord, Record, now

_log = logging.getLogger("ralph")
_SEEN = ".seen"
_NUMBERING_TIMEOUT_S = 1.0
# How long a writer waits for another process's delivery before it adds to the spool.
_DELIVERY_PATIENCE_S = 1.0
_PORTION = 200
_DIGITS = 20
_WRITING = os.O_WRONLY | getattr(os, "O_BINARY", 0)

_Append = Callable[[Drafts], list[Appended]]


class _LastNumber(msgspec.Struct):
    name: str = ""
    number: int = 0


class Spool:
    """The records of one stream that wait for the server, in their own file."""

    def __init__(self, folder: Path, name: str, *, lock_timeout_s: float) -> None:
        self.name = name
        # Refuses two names that are one file to the file system: their records would mix.
        files = JournalFolder(folder, shown="spool", lock_timeout_s=lock_timeout_s)
        self.file = files.journal(name)
        self._lock_timeout_s = lock_timeout_s
        path = self.file.path
        self._seen_file = path.with_name(path.name + _SEEN)
        self._lock = path.with_name(path.name + ".lock")
        self._seen = 0
        self._warned = False

    @property
    def holds(self) -> bool:
        """Whether any records are waiting."""
        try:
            return self.file.path.stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False

    def keep(self, drafts: Drafts) -> list[Appended]:
        """Save the drafts to disk here, numbered above every number this machine knows of."""
        with self.numbering() as numbers:
            appended = self.file.append(drafts, above=numbers.highest, check=check_fits)
            numbers.highest = max([numbers.highest, *(one.record.number for one in appended)])
        return appended

    # -- the highest number seen on the server

    def note(self, number: int) -> None:
        """Remember the highest number on the server, for when it cannot be reached."""
        if number > self._seen or not self._seen_file.exists():
            with self.numbering() as numbers:
                numbers.highest = max(number, numbers.highest)

    @contextlib.contextmanager
    def numbering(self) -> Iterator[Numbers]:
        """Yield the highest known number; no other process here gives out numbers meanwhile.

        The number it is set to is saved.
        """
        with contextlib.ExitStack() as stack:
            try:
                lock = self._seen_file.with_name(self._seen_file.name + ".lock")
                disk.make_folder(lock.parent)
                stack.enter_context(disk.lock(lock, timeout_s=_NUMBERING_TIMEOUT_S))
            except disk.Busy:
                pass  # a process hangs: two records with one number are better than a lost record
            except OSError as error:
                self._warn(error)
            numbers = Numbers(self.last_seen())
            yield numbers
            seen = _read_seen(self._seen_file)
            self._seen = max(numbers.highest, self._seen, seen.number)
            if not seen.name or seen.number != self._seen:
                try:
                    _write_seen(self._seen_file, self.name, self._seen)
                except OSError as error:
                    self._warn(error)

    def _warn(self, error: OSError) -> None:
        # Not fatal: without this file two records may get one number while the server is down.
        if not self._warned:
            _log.warning("memory: %s cannot be written (%s)", self._seen_file, error.strerror)
        self._warned = True

    def last_seen(self) -> int:
        """Return the highest number last seen on the server; 0 if unknown."""
        return max(self._seen, _read_seen(self._seen_file).number)

    # -- delivering

    def deliver(self, append: _Append, *, patience_s: float) -> int | None:
        """Deliver everything in order; return how many were new, None if another process does it.

        A record is removed here only after the target has it. If the process is killed in between,
        it is delivered again, and the target recognizes it by its id and content.
        """
        if not self.holds:
            return 0
        try:
            with disk.lock(self._lock, timeout_s=patience_s):
                return self._deliver(append)
        except disk.Busy:
            return None
        except OSError as error:
            what = "cannot deliver the records waiting for the journal server ({})"
            raise disk_error(what, self.file.path, error, FREE_SPACE) from error

    def _deliver(self, append: _Append) -> int:
        count = 0
        position: str | None = None
        while True:
            batch = self.file.read(position, limit=_PORTION)
            records = [located.record for located in batch.records]
            count += _hand_over(records, append)
            if records:  # before they are removed: their numbers are taken
                self.note(max(record.number for record in records))
            position = batch.position
            if batch.done and self._emptied(position):
                return count

    def _emptied(self, position: str) -> bool:
        """Empty the file unless records were added meanwhile; return whether it was emptied."""
        path = self.file.path
        with disk.lock(path, timeout_s=self._lock_timeout_s) as fd:
            if not self.file.unchanged(position):
                return False
            if self.file.read().complaints:
                stamp = "".join(char for char in now() if char.isdigit())
                left = path.with_name(f"{path.name}.left-{stamp}")
                disk.create(left, path.read_bytes())
                _log.warning("memory: lines that cannot be read were set aside as %s", left)
            os.ftruncate(fd, 0)
            disk.flush(fd)
        return True


def _hand_over(records: Sequence[Record], append: _Append) -> int:
    """Deliver the records, except those forgotten on the server; return how many were new."""
    if not records:
        return 0
    try:
        return sum(one.fresh for one in append(records))
    except RecordForgotten:
        if len(records) == 1:
            return 0
    return sum(_hand_over([record], append) for record in records)


def _write_seen(file: Path, name: str, number: int) -> None:
    """Write over the old text, which is as long: truncating first takes ten times longer."""
    text = b'{"name":%b,"number":%*d}' % (msgspec.json.encode(name), _DIGITS, number)
    # Created with its content: an empty file would mean that nothing was seen.
    if disk.create(file, text):
        return
    fd = disk.open_file(file, _WRITING)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def _read_seen(file: Path) -> _LastNumber:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_LastNumber)
    except (OSError, msgspec.DecodeError):
        return _LastNumber()  # not written yet, or cut short by a crash


def waiting_names(folder: Path) -> list[str]:
    """Return the streams that have records waiting here."""
    files = JournalFolder(folder)
    return [name for name in files.names() if files.size_bytes(name)]


@functools.lru_cache
def spool_folder(spools: Path, memory: str) -> Path:
    """Return the folder of one memory's spools; each part of its name is a folder."""
    return spools.joinpath(*(Path(file_name(part)).stem for part in memory.split("/")))


class _SpooledPosition(msgspec.Struct, frozen=True):
    """How far the server's journal was read, and how far the spool."""

    server: str
    spool: str | None = None


class SpooledJournal(PostgresJournal):
    """A stream on a server, with a spool here. Appends work even if the server is down."""

    def __init__(
        self, link: Link, memory: Callable[[], str], stream: str, spool: Callable[[], Spool]
    ) -> None:
        super().__init__(link, memory, stream)
        self._spool = spool

    def append(self, drafts: Drafts) -> list[Appended]:
        """Append all drafts or none; when this returns they are on the server or on this disk."""
        if not drafts:
            return []
        spool = self._spool()
        tried = Tried(spool.numbering)
        with contextlib.suppress(JournalDown, JournalBusy):
            # If another process is delivering, these must come after the records before them.
            if spool.deliver(super().append, patience_s=_DELIVERY_PATIENCE_S) is not None:
                return self.attempt(drafts, tried)
        if not tried.appended:
            return spool.keep(drafts)
        # Records that may have arrived keep their numbers, so the server recognizes them later.
        spool.keep([one.record for one in tried.appended if one.fresh])
        return list(tried.appended)

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """Return the entries after the position; if the server is down, those waiting for it.

        Raises JournalDown if the server was never read: a part must not be taken for the whole.
        """
        at = _split(position)
        spool = self._spool()
        try:
            spool.deliver(super().append, patience_s=0.0)
            batch = super().read(None if at is None else at.server, limit=limit)
        except JournalDown:
            if at is None:
                raise
            batch = spool.file.read(at.spool, limit=limit)
            joined = write_position(_SpooledPosition(at.server, batch.position))
            # Another process may have delivered the spool, which takes no records away.
            return msgspec.structs.replace(batch, position=joined, restarted=False)
        spool.note(self.last_number)
        return batch

    def unchanged(self, position: str | None) -> bool:
        """Return True only if, as far as this machine knows, nothing was written since."""
        at = _split(position)
        if at is None:
            return False
        spool = self._spool()
        try:
            same = super().unchanged(at.server)
        except JournalDown:
            return not spool.holds if at.spool is None else spool.file.unchanged(at.spool)
        return same and at.spool is None and not spool.holds

    def forget(self, ids: Ids, *, reason: str | None = None, stones: Stones = ()) -> list[str]:
        """Delete records for good on the server. Raises JournalDown if it is not reached."""
        self.deliver()
        return super().forget(ids, reason=reason, stones=stones)

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many records can be read on the server, and every problem found."""
        self.deliver()
        return super().verify()

    def waiting(self) -> tuple[JournalRecord, ...]:
        """Return the records saved here that have not reached the server yet."""
        return self._spool().file.read().records

    def deliver(self) -> int:
        """Deliver the waiting records. Raises JournalDown if the server is not reached."""
        lock_s = self._link.patience.lock_s
        count = self._spool().deliver(super().append, patience_s=lock_s)
        if count is None:
            what = f"another process has been delivering for more than {lock_s:g} s"
            raise JournalBusy(what, where=self.name, todo="Try again when it has finished.")
        return count


class SpooledJournals(PostgresJournals):
    """The journals of one memory on a server, with a folder here for waiting records."""

    def __init__(self, link: Link, memory: Callable[[], str], spools: Path) -> None:
        super().__init__(link, memory)
        # The same without a spool: not reaching the server is an error.
        self.server = PostgresJournals(link, memory)
        self._spools = spools
        self._spool = functools.cache(functools.partial(Spool, lock_timeout_s=link.patience.lock_s))

    @property
    def spool_folder(self) -> Path:
        """The folder for waiting records."""
        return spool_folder(self._spools, self.memory())

    def journal(self, name: str) -> SpooledJournal:
        """Return the journal with this name."""
        file_name(name)  # refuse a name that could not be spooled here
        spool = self._spool
        return SpooledJournal(self.link, self.memory, name, lambda: spool(self.spool_folder, name))

    def names(self) -> list[str]:
        """Return the names of all existing journals, as far as this machine knows."""
        folder = self.spool_folder
        waiting = set(waiting_names(folder))
        try:
            return sorted(waiting.union(super().names()))
        except JournalDown:
            seen = (_read_seen(file) for file in folder.glob(f"*{_SEEN}"))
            return sorted(waiting | {one.name for one in seen if one.name})

    def newest_at(self, name: str) -> str:
        """Return the time of a journal's newest record; "" if unknown."""
        newest = max((one.record.at for one in self.journal(name).waiting()), default="")
        with contextlib.suppress(JournalDown):
            return max(newest, super().newest_at(name))
        return newest

    def size_bytes(self, name: str) -> int:
        """Return roughly how many bytes there are to read; 0 if the server is down."""
        with contextlib.suppress(JournalDown):
            return super().size_bytes(name)
        return 0

    def trouble(self) -> str | None:
        """Return why answers may be stale (the server was not reached last time), or None."""
        why = super().trouble()
        if why is None:
            return None
        return f"cannot reach the journal server ({why}); results may be out of date"

    def waiting(self) -> int:
        """Return how many records are waiting here for the server."""
        return sum(len(self.journal(name).waiting()) for name in waiting_names(self.spool_folder))

    def deliver(self) -> int:
        """Deliver all waiting records now; return how many were new to the server."""
        self.link.retry()
        return sum(self.journal(name).deliver() for name in waiting_names(self.spool_folder))


# The memories of a process share a connection, which is closed when the last of them is gone.
_links: WeakValueDictionary[tuple[str, Patience, Path], Link] = WeakValueDictionary()


def server_journals(
    url: str, memory: Callable[[], str], spools: Path, **patience: float
) -> SpooledJournals:
    """Return a memory's journals as streams of a database. Opens no connection yet.

    A memory is named `conversations`, `knowledge`, `tokens` or `feature/<project id>`.
    """
    key = (url, Patience(**patience), spools)
    if (link := _links.get(key)) is None:
        link = _links[key] = Link(url, patience=key[1], notes=spools)
    return SpooledJournals(link, memory, spools)


def deliver_to_files(files: JournalFolder, memory: str, spools: Path) -> None:
    """Move the records waiting for a server that is no longer used into the files."""
    folder = spool_folder(spools, memory)
    for name in waiting_names(folder):
        spool = Spool(folder, name, lock_timeout_s=LOCK_TIMEOUT_S)
        spool.deliver(files.journal(name).append, patience_s=LOCK_TIMEOUT_S)


def _split(position: str | None) -> _SpooledPosition | None:
    """Split a position; a server's own position is one from before anything was spooled."""
    if position is None:
        return None
    return read_position(position, _SpooledPosition) or _SpooledPosition(position)
