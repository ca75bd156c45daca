"""A journal whose server may be down: writes wait in the spool, reads return what is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from ralph import disk
from ralph.errors import JournalBusy, JournalDown
from ralph.journal import Appended, Batch, Draft
from ralph.journal.database import Listener, PostgresJournals
from ralph.journal.folder import file_name
from ralph.journal.postgres import PostgresJournal, Tried, check_fits
from ralph.journal.spool import Spool, known_names, spool_folder, waiting_names
from ralph.records import Complaint, Located, Record, Tombstone

# How long a writer waits for another one that is handing over; then it goes behind it.
_DELIVERY_PATIENCE_S = 1.0


class _SpooledPosition(msgspec.Struct, frozen=True):
    """How far the server's journal was read, and how far what waits here."""

    server: str
    spool: str | None


_decode = msgspec.json.Decoder(_SpooledPosition).decode
_encode = msgspec.json.Encoder().encode


class SpooledJournal:
    """A stream on a server, with a spool here. An append is kept, whether it is reached or not."""

    def __init__(
        self, server: PostgresJournal, spool: Callable[[], Spool], *, lock_s: float
    ) -> None:
        self._server = server
        self._spool = spool
        self._lock_s = lock_s

    @property
    def name(self) -> str:
        """The server's name for it."""
        return self._server.name

    def append(self, drafts: Sequence[Record | Draft]) -> list[Appended]:
        """Keep all of them or none; when this returns the server has them, or this disk."""
        if not drafts:
            return []
        spool = self._spool()
        tried = Tried(spool.numbering)
        try:
            if spool.deliver(self._server, patience_s=_DELIVERY_PATIENCE_S) is None:
                return self._keep(spool, drafts)  # behind those before it
            appended = self._server.attempt(drafts, tried)
        except (JournalDown, JournalBusy):
            # What may have arrived keeps its number: so it is known again when it is delivered.
            return self._keep(spool, drafts, tried.appended)
        return appended

    def _keep(
        self, spool: Spool, drafts: Sequence[Record | Draft], sent: Sequence[Appended] = ()
    ) -> list[Appended]:
        if not sent:
            return spool.keep([_fitting(draft) for draft in drafts])
        spool.keep([one.record for one in sent if one.fresh])
        return list(sent)

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What stands behind the position; of a server that is away, what waits for it.

        Where nothing was read of it yet, JournalDown: a part must not be taken for the whole.
        """
        at = _split(position)
        spool = self._spool()
        try:
            spool.deliver(self._server, patience_s=0.0)
            batch = self._server.read(None if at is None else at.server, limit=limit)
        except JournalDown:
            if at is None:
                raise
            batch = spool.read(at.spool, limit=limit)
            # What waited may have been handed over by another process: nothing was taken away.
            return msgspec.structs.replace(
                batch, position=_joined(at.server, batch.position), restarted=False
            )
        spool.note(self._server.last_number)
        return batch

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have happened since the position, as far as anybody can tell here."""
        at = _split(position)
        if at is None:
            return False
        spool = self._spool()
        try:
            same = self._server.unchanged(at.server)
        except JournalDown:
            return spool.unchanged(at.spool)
        return same and at.spool is None and not spool.holds

    def forget(
        self,
        ids: Collection[str],
        *,
        reason: str | None = None,
        stones: Sequence[Tombstone] = (),
    ) -> list[str]:
        """Take the content out for good, on the server; JournalDown where it is not reached."""
        self.deliver()
        return self._server.forget(ids, reason=reason, stones=stones)

    def forgotten(self) -> frozenset[str]:
        """The ids of everything that was forgotten on the server."""
        return self._server.forgotten()

    def verify(self) -> tuple[int, list[Complaint]]:
        """How many records can be read on the server, and everything that looks wrong."""
        self.deliver()
        return self._server.verify()

    def waiting(self) -> tuple[Located, ...]:
        """What was kept here and has not reached the server yet."""
        return self._spool().waiting()

    def deliver(self) -> int:
        """Hand over what waits here; JournalDown where the server is not reached."""
        count = self._spool().deliver(self._server, patience_s=self._lock_s)
        if count is None:
            raise JournalBusy(
                f"another process has handed over for more than {self._lock_s:g} s",
                where=self.name,
                todo="Try again when it has finished.",
            )
        return count


class SpooledJournals:
    """The journals of one memory on a server, with a folder here for what must wait."""

    def __init__(self, server: PostgresJournals, spools: Path) -> None:
        self.server = server
        self._spools = spools
        self._open: dict[str, SpooledJournal] = {}
        self._spool: dict[tuple[Path, str], Spool] = {}

    @property
    def where(self) -> str:
        """Host, database and memory."""
        return self.server.where

    @property
    def spool_folder(self) -> Path:
        """Where what must wait is kept."""
        return spool_folder(self._spools, self.server.memory())

    def journal(self, name: str) -> SpooledJournal:
        """The journal of this name."""
        if name not in self._open:
            file_name(name)  # what cannot be kept here cannot be kept
            lock_s = self.server.link.patience.lock_s
            self._open[name] = SpooledJournal(
                self.server.journal(name), lambda: self._spool_of(name), lock_s=lock_s
            )
        return self._open[name]

    def names(self) -> list[str]:
        """The names of all journals that are there, as far as anybody can tell here."""
        folder = self.spool_folder
        try:
            return sorted({*self.server.names(), *waiting_names(folder)})
        except JournalDown:
            return known_names(folder)

    def prepare(self) -> None:
        """Make the folder for what must wait, before it must; OSError where that cannot be."""
        disk.make_folder(self.spool_folder)

    def newest_at(self, name: str) -> str:
        """When the newest record of a journal was made; "" where that is unclear."""
        waiting = max((one.record.at for one in self.journal(name).waiting()), default="")
        try:
            return max(waiting, self.server.newest_at(name))
        except JournalDown:
            return waiting

    def size_bytes(self, name: str) -> int:
        """About how much there is to read in a journal."""
        try:
            return self.server.size_bytes(name)
        except JournalDown:
            return 0

    def trouble(self) -> str | None:
        """Why answers may be old: the server was not reached the last time; None where it was."""
        why = self.server.trouble()
        if why is None:
            return None
        return f"the journal's server is not reached ({why}); answers are as of the last time"

    def waiting(self) -> int:
        """How many records wait here for the server."""
        folder = self.spool_folder
        return sum(len(self._spool_of(name).waiting()) for name in waiting_names(folder))

    def deliver(self) -> int:
        """Hand over what waits here for the server, and say how many records that were."""
        self.server.link.retry()
        return sum(self.journal(name).deliver() for name in waiting_names(self.spool_folder))

    def listener(self) -> Listener:
        """What wakes whoever follows these journals; it has a connection of its own."""
        return self.server.listener()

    def close(self) -> None:
        """Let go of the connection; it opens again by itself."""
        self.server.close()

    def _spool_of(self, name: str) -> Spool:
        key = self.spool_folder, name
        if key not in self._spool:
            self._spool[key] = Spool(key[0], name, lock_timeout_s=self.server.link.patience.lock_s)
        return self._spool[key]


def _fitting(draft: Record | Draft) -> Record | Draft:
    """The draft, refused here where the server would refuse it later."""
    if isinstance(draft, Record):
        check_fits(draft)
        return draft

    def checked(number: int) -> Record:
        record = draft(number)
        check_fits(record)
        return record

    return checked


def _split(position: str | None) -> _SpooledPosition | None:
    if position is None:
        return None
    try:
        return _decode(position)
    except (msgspec.DecodeError, UnicodeError):
        return _SpooledPosition(position, None)


def _joined(server: str, spool: str) -> str:
    return _encode(_SpooledPosition(server, spool)).decode()
