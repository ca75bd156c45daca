"""Move a memory's journals: copy what is missing, then verify every record by id and hash."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from ralph.errors import BadInput, JournalError
from ralph.journal import Journal, Journals
from ralph.journal.file import short_hash
from ralph.journal.line import write_record
from ralph.records import Complaint

_PORTION = 500
_TRIES = 3

# Called with the stream's name and how many of its records were looked at.
Progress = Callable[[str, int], None]


class MovedStream(msgspec.Struct, frozen=True):
    """How much of one stream is the same in both places now, and what is not there.

    `unreadable` are lines that cannot be read and stay where they are; `forgotten_there` are
    records that the target had forgotten before, and that stay forgotten.
    """

    name: str
    records: int
    tombstones: int
    fresh: int
    forgotten_there: int
    unreadable: tuple[Complaint, ...]


class Moved(msgspec.Struct, frozen=True):
    """A whole memory, copied and verified."""

    streams: tuple[MovedStream, ...]

    @property
    def records(self) -> int:
        """How many records are the same in both places."""
        return sum(stream.records for stream in self.streams)

    @property
    def fresh(self) -> int:
        """How many of them were not in the target before."""
        return sum(stream.fresh for stream in self.streams)


class _Contents(msgspec.Struct, frozen=True):
    """What is in a journal: living records by id and hash, and the ids of its tombstones."""

    living: frozenset[tuple[str, str]]
    buried: frozenset[str]
    complaints: tuple[Complaint, ...]


def move(
    source: Journals,
    target: Journals,
    progress: Progress | None = None,
    *,
    names: Collection[str] | None = None,
    dry_run: bool = False,
) -> Moved:
    """Copy every stream (or those of these names); return only when all of it is there.

    The source is not changed. After an interruption it can be repeated. Refused before anything
    is written: other content under an id that both have. `dry_run` writes nothing.
    """
    if not dry_run:
        source.deliver()
        target.deliver()
    chosen = [name for name in source.names() if names is None or name in names]
    planned = [_planned(source.journal(name), target, name) for name in chosen]
    if dry_run:
        return Moved(tuple(planned))
    return Moved(tuple(_copied(source.journal(name), target, name, progress) for name in chosen))


def _planned(source: Journal, place: Journals, name: str) -> MovedStream:
    """What a move would come to."""
    ours, theirs = _contents(source), _contents(place.journal(name))
    ids = {record_id for record_id, _ in ours.living}
    others = sorted({key[0] for key in theirs.living - ours.living if key[0] in ids})
    if others:
        raise BadInput(
            f"records of {name!r} exist there with other content ({len(others)}), the first is "
            f"{others[0]}; nothing was copied",
            where=place.where,
            todo="Move into an empty place, or forget those records on one side.",
        )
    return _report(name, ours, theirs)


def _copied(source: Journal, place: Journals, name: str, progress: Progress | None) -> MovedStream:
    """Copy a stream, and return only when every id and hash of it is in the target."""
    target = place.journal(name)
    fresh = 0
    for _ in range(_TRIES):
        added, position = _copy(source, target, name, progress)
        fresh += added
        ours, theirs = _contents(source), _contents(target)
        if source.unchanged(position):
            break
    else:
        raise JournalError(
            f"{name!r} is written to faster than it can be copied",
            where=place.where,
            todo="Stop what writes to it, then move again.",
        )
    missing = {key[0] for key in ours.living - theirs.living} | ours.buried
    if missing := missing - theirs.buried:
        raise JournalError(
            f"the copy of {name!r} lacks records ({len(missing)}), the first is {min(missing)}",
            where=place.where,
            todo="Keep using the old place; move into an empty one.",
        )
    return _report(name, ours, theirs, fresh)


def _copy(
    source: Journal, target: Journal, name: str, progress: Progress | None
) -> tuple[int, str]:
    """Append what the target lacks, in the source's order: how many, and up to which position."""
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
        if progress:
            progress(name, seen)
        position = batch.position
        if batch.done:
            return fresh, position


def _contents(journal: Journal) -> _Contents:
    batch = journal.read()
    buried = frozenset(stone.id for stone in batch.tombstones)
    records = [one.record for one in batch.records if one.record.id not in buried]
    keys = frozenset((record.id, short_hash(write_record(record))) for record in records)
    return _Contents(keys, buried, batch.complaints)


def _report(name: str, ours: _Contents, theirs: _Contents, fresh: int | None = None) -> MovedStream:
    lost = {key for key in ours.living if key[0] in theirs.buried}
    return MovedStream(
        name=name,
        records=len(ours.living) - len(lost),
        tombstones=len(ours.buried),
        fresh=len(ours.living - theirs.living - lost) if fresh is None else fresh,
        forgotten_there=len(lost),
        unreadable=ours.complaints,
    )
