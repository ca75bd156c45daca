"""Calls that wait on this machine for one server; each is delivered in order, once.

It uses the journals' spool. Each call that saves something is a record there, and it is on disk
before it counts as saved. A call is removed only after the server has made it. A process killed in
between repeats the call, and the server recognizes what it already has by its id.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ralph.errors import (
    AccessRefused,
    BadInput,
    NotFound,
    RalphError,
    RecordForgotten,
    ServerFailed,
)
from ralph.journal import Appended, Drafts, Journal
from ralph.journal.file import JournalFolder
from ralph.journal.spool import Spool, waiting_names
from ralph.memory.store import numbered, short_hash
from ralph.records import Record, now

_T = TypeVar("_T")
_log = logging.getLogger("ralph")
_LOCK_TIMEOUT_S = 5.0
_MOST_TOGETHER = 50
# After this many failed calls, the server counts as failing at all of them.
_MOST_FAILED = 3
# A server refuses larger bodies.
_LARGEST_BYTES = 1_500_000


class SavingCall(msgspec.Struct, frozen=True):
    """One call that saves something; `why` is the error of one that was set aside."""

    path: str
    body: Any
    address: str = ""
    why: str = ""


_decode = msgspec.json.Decoder(SavingCall).decode
Send = Callable[[str, Any], Any]


class Outbox:
    """The calls that wait for one server, and that were saved with one token.

    Another token has files of its own: what it saved must not go out under this one's name.
    """

    def __init__(self, home: Path, address: str, token: str) -> None:
        self._address, self._folder = address, home / "outbox" / short_hash(address)
        self._waiting, self._refused = (
            self._spool(f"{name}{short_hash(token)}") for name in ("waiting", "refused")
        )
        self.file = self._waiting.file.path

    def _spool(self, name: str) -> Spool:
        return Spool(self._folder, name, lock_timeout_s=_LOCK_TIMEOUT_S)

    @property
    def holds(self) -> bool:
        """Whether any calls are waiting."""
        return self._waiting.holds

    def calls(self) -> list[SavingCall]:
        """Return the waiting calls, oldest first."""
        return _calls(self._waiting.file)

    def keep(self, path: str, body: Any) -> None:
        """Save a call. It is on disk when this returns."""
        data = msgspec.json.encode(SavingCall(path, body, self._address))
        record = Record(short_hash(data.decode()), "call", 0, now(), data)
        self._waiting.keep([numbered(record)])

    def take_over(self, token: str | None = None) -> None:
        """Let what waits for another token wait for this one. Only a person can decide this.

        Without `token`: what waits for any token, and what was set aside.
        """
        wanted = None if token is None else f"waiting{short_hash(token)}"
        for name in waiting_names(self._folder):
            if name != self._waiting.name and wanted in (None, name):
                self._spool(name).deliver(self._waiting.keep, patience_s=_LOCK_TIMEOUT_S)

    def deliver(self, send: Send) -> bool:
        """Make the calls in order. Returns False if another process is doing so.

        A call that the server refuses because of its content is set aside. So is one that fails
        while others pass. If the server is down, fails at everything, or refuses the token, this
        raises, and everything stays.
        """
        passed = False

        def attempt(records: Sequence[Record]) -> Iterator[tuple[Record, RalphError]]:
            """Send these as one call; if that fails, each by itself. Yields those that fail."""
            nonlocal passed
            path, joins = _path_of(records[0])
            bodies = [_decode(one.body).body for one in records]
            try:
                send(path, [one for body in bodies for one in body] if joins else bodies[0])
                passed = True
            except (AccessRefused, NotFound):
                raise  # the server does not know the token or the project: a person can fix that
            except (BadInput, ServerFailed) as error:
                if len(records) > 1:
                    for one in records:
                        yield from attempt([one])
                elif isinstance(error, ServerFailed):  # at this call, or at all?
                    yield records[0], error
                elif not isinstance(error, RecordForgotten):
                    self._set_aside(records[0], error)

        def append(drafts: Drafts) -> list[Appended]:
            records = [one for one in drafts if isinstance(one, Record)]
            failed: list[tuple[Record, RalphError]] = []
            # Neighbors go in one call where possible, because a server limits the rate of calls.
            for (_, joins), some in itertools.groupby(records, key=_path_of):
                for together in portions(list(some), _MOST_TOGETHER if joins else 1):
                    for one in attempt(together):
                        failed.append(one)
                        if not passed and len(failed) == _MOST_FAILED:
                            raise one[1]
            if failed and not passed:
                raise failed[0][1]
            for record, _ in failed:
                for _, error in attempt([record]):
                    self._set_aside(record, error)
            return [Appended(one, True) for one in records]

        return self._waiting.deliver(append, patience_s=0.0) is not None

    def _set_aside(self, record: Record, error: RalphError) -> None:
        call = msgspec.structs.replace(_decode(record.body), why=error.what)
        self._refused.keep([msgspec.structs.replace(record, body=msgspec.json.encode(call))])
        _log.warning("memory: the server refused a record (%s); see: ralph doctor", error.what)


def outbox_files(home: Path) -> dict[Path, list[SavingCall]]:
    """Every file with calls that wait or were set aside, for any server and token."""
    names = [
        (one, name) for one in sorted((home / "outbox").glob("*")) for name in waiting_names(one)
    ]
    files = [JournalFolder(folder).journal(name) for folder, name in names]
    return {file.path: calls for file in files if (calls := _calls(file))}


def _calls(file: Journal) -> list[SavingCall]:
    return [_decode(one.record.body) for one in file.read().records]


def _path_of(record: Record) -> tuple[str, bool]:
    """The path of a call, and whether its body is a list, so that several can be joined."""
    call = _decode(record.body)
    return call.path, isinstance(call.body, list)


def portions(items: Sequence[_T], most: int) -> Iterator[list[_T]]:
    """Split the items into lists small enough for a server; no items give one empty list."""
    some: list[_T] = []
    size = 0
    for one in items:
        length = len(msgspec.json.encode(one))
        if some and (len(some) == most or size + length > _LARGEST_BYTES):
            yield some
            some = []
            size = 0
        some.append(one)
        size += length
    yield some
