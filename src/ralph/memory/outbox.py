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

from ralph.errors import AccessRefused, BadInput, NotFound, RecordForgotten
from ralph.journal import Appended, Drafts
from ralph.journal.spool import Spool
from ralph.memory.store import numbered, short_hash
from ralph.records import Record, now

_T = TypeVar("_T")
_log = logging.getLogger("ralph")
_LOCK_TIMEOUT_S = 5.0
_MOST_TOGETHER = 50
# A server refuses larger bodies.
_LARGEST_BYTES = 1_500_000


class SavingCall(msgspec.Struct, frozen=True):
    """One call that saves something."""

    path: str
    body: Any


_decode = msgspec.json.Decoder(SavingCall).decode
Send = Callable[[str, Any], Any]


class Outbox:
    """The calls that wait for one server."""

    def __init__(self, home: Path, address: str) -> None:
        folder = home / "outbox" / short_hash(address)
        self._waiting, self._refused = (
            Spool(folder, name, lock_timeout_s=_LOCK_TIMEOUT_S) for name in ("waiting", "refused")
        )

    @property
    def holds(self) -> bool:
        """Whether anything waits."""
        return self._waiting.holds

    def calls(self) -> list[SavingCall]:
        """What waits, oldest first."""
        return [_decode(one.record.body) for one in self._waiting.file.read().records]

    def refused(self) -> Path | None:
        """The file of the calls that the server refused for their content, if there are any."""
        return self._refused.file.path if self._refused.holds else None

    def keep(self, path: str, body: Any) -> None:
        """Keep a call. It is on disk when this returns."""
        data = msgspec.json.encode(SavingCall(path, body))
        record = Record(short_hash(data.decode()), "call", 0, now(), data)
        self._waiting.keep([numbered(record)])

    def deliver(self, send: Send) -> bool:
        """Make the calls in order. Returns False if another process is doing so.

        A call that the server refuses because of its content is moved to the refused ones. If the
        server is down or refuses the token, this raises, and everything stays.
        """

        def append(drafts: Drafts) -> list[Appended]:
            records = [one for one in drafts if isinstance(one, Record)]
            # Neighbors go in one call where possible, because a server limits the rate of calls.
            for (_, joins), some in itertools.groupby(records, key=_path_of):
                for together in portions(list(some), _MOST_TOGETHER if joins else 1):
                    self._send(send, together)
            return [Appended(one, True) for one in records]

        return self._waiting.deliver(append, patience_s=0.0) is not None

    def _send(self, send: Send, records: Sequence[Record]) -> None:
        """Send these records as one call; if the server refuses it, send each by itself."""
        try:
            path, joins = _path_of(records[0])
            bodies = [_decode(one.body).body for one in records]
            send(path, [one for body in bodies for one in body] if joins else bodies[0])
        except (AccessRefused, NotFound):
            raise  # the server does not know the token or the project: the person can fix that
        except BadInput as error:
            if len(records) > 1:
                for one in records:
                    self._send(send, [one])
            elif not isinstance(error, RecordForgotten):
                self._refused.keep(list(records))
                file = self._refused.file.path
                _log.warning("memory: the server refused a record (%s); it is in %s", error, file)


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
            some, size = [], 0
        some.append(one)
        size += length
    yield some
