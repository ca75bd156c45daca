"""Copying a memory's journals from one place to another, and comparing them record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ralph.errors import BadInput, JournalError
from ralph.journal import Journal, Journals
from ralph.journal.line import write_record
from ralph.journal.position import short_hash
from ralph.records import Complaint, Record, Tombstone

_PORTION = 500
_TRIES = 3

# Told the stream's name and how many of its records were looked at.
Progress = Callable[[str, int], None]


class MovedStream(msgspec.Struct, frozen=True):
    """What one stream came to: how much is the same in both places now, and what is not there.

    `unreadable` are lines that cannot be read and so stay where they are; `forgotten_there` are
    records that the target had forgotten before, and that stay so.
    """

    name: str
    records: int
    tombstones: int
    fresh: int
    forgotten_there: int
    unreadable: tuple[Complaint, ...]


class Moved(msgspec.Struct, frozen=True):
    """A whole memory, copied and compared."""

    streams: tuple[MovedStream, ...]

    @property
    def records(self) -> int:
        """How many records are the same in both places."""
        return sum(stream.records for stream in self.streams)

    @property
    def fresh(self) -> int:
        """How many of them were not in the target before."""
        return sum(stream.fresh for stream in self.streams)


class _Held(msgspec.Struct):
    """A journal as it is compared: each living content once, by its hash, in journal order."""

    order: dict[tuple[str, str], str]
    stones: dict[str, Tombstone]
    complaints: tuple[Complaint, ...]

    def contents(self) -> dict[str, set[str]]:
        """The digests under every id."""
        found: dict[str, set[str]] = {}
        for record_id, digest in self.order:
            found.setdefault(record_id, set()).add(digest)
        return found


def move(source: Journals, target: Journals, progress: Progress | None = None) -> Moved:
    """Copy every stream, and say so only when the target holds the same, record by record.

    The source is not changed. After an interruption it is repeated without harm. Refused before
    anything of a stream is written: other content under an id that both have.
    """
    tell = progress or (lambda name, count: None)
    source.deliver()
    target.deliver()
    names = source.names()
    for name in names:
        _refuse_others(source.journal(name), target.journal(name), name, target.where)
    return Moved(
        tuple(
            _stream(source.journal(name), target.journal(name), name, target, tell)
            for name in names
        )
    )


def _stream(
    source: Journal, target: Journal, name: str, place: Journals, tell: Progress
) -> MovedStream:
    fresh = 0
    for _ in range(_TRIES):
        brought, position = _copy(source, target, name, tell)
        fresh += brought
        ours, theirs = _held(source), _held(target)
        if source.unchanged(position):
            _compare(ours, theirs, name, place.where)
            lost = {key for key in ours.order if key[0] in theirs.stones}
            return MovedStream(
                name=name,
                records=len(ours.order) - len(lost),
                tombstones=len(ours.stones),
                fresh=fresh,
                forgotten_there=len(lost),
                unreadable=ours.complaints,
            )
    raise JournalError(
        f"{name!r} is written to faster than it can be copied",
        where=place.where,
        todo="End what writes to it, then move again.",
    )


def _copy(source: Journal, target: Journal, name: str, tell: Progress) -> tuple[int, str]:
    """Bring over what the target lacks, in the source's order: how many, and up to where."""
    forgotten = source.forgotten() | target.forgotten()
    position: str | None = None
    fresh = seen = 0
    while True:
        batch = source.read(position, limit=_PORTION)
        records = [one.record for one in batch.records if one.record.id not in forgotten]
        fresh += sum(one.fresh for one in target.append(records))
        if batch.tombstones:
            target.forget((), stones=batch.tombstones)
        seen += len(batch.records)
        tell(name, seen)
        position = batch.position
        if batch.done:
            return fresh, position


def _held(journal: Journal) -> _Held:
    order: dict[tuple[str, str], str] = {}
    stones: dict[str, Tombstone] = {}
    complaints: list[Complaint] = []
    position: str | None = None
    while True:
        batch = journal.read(position, limit=_PORTION)
        if batch.restarted:
            order, stones, complaints = {}, {}, []
        for located in batch.records:
            record = located.record
            order.setdefault((record.id, record.digest), _hash(record))
        for stone in batch.tombstones:
            stones.setdefault(stone.id, stone)
        complaints += batch.complaints
        position = batch.position
        if batch.done:
            break
    living = {key: text for key, text in order.items() if key[0] not in stones}
    return _Held(living, stones, tuple(complaints))


def _hash(record: Record) -> str:
    return short_hash(write_record(record))


def _refuse_others(source: Journal, target: Journal, name: str, where: str) -> None:
    ours, theirs = _held(source), _held(target)
    mine = ours.contents()
    other = [i for i, digests in theirs.contents().items() if i in mine and digests - mine[i]]
    changed = [key[0] for key, text in theirs.order.items() if ours.order.get(key, text) != text]
    found: Sequence[str] = sorted({*other, *changed})
    if found:
        raise BadInput(
            f"{len(found)} record(s) of {name!r} stand there with other content, the first is "
            f"{found[0]}; nothing was copied",
            where=where,
            todo="Move into an empty place, or forget those records on one side.",
        )


def _compare(ours: _Held, theirs: _Held, name: str, where: str) -> None:
    """Raise unless every living record and tombstone of ours stands there, in our order."""
    wanted = [(k, text) for k, text in ours.order.items() if k[0] not in theirs.stones]
    there = [(k, text) for k, text in theirs.order.items() if k in ours.order]
    lacking = ours.stones.keys() - theirs.stones.keys()
    if wanted == there and not lacking:
        return
    pairs = zip(wanted, there, strict=False)
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), len(there))
    first = wanted[at][0][0] if at < len(wanted) else next(iter(lacking), "")
    raise JournalError(
        f"the copy of {name!r} is not the same: {len(wanted)} records here, {len(there)} of them "
        f"there, {len(lacking)} tombstones lacking; the first that differs is {first}",
        where=where,
        todo="Keep using the old place; move into an empty one.",
    )
