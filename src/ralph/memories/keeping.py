"""Keeping a project's memory: choose and forget, take out and bring in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ralph.errors import BadInput, BadRecord, NotFound
from ralph.journal.line import Unreadable, read_line, write_record, write_tombstone
from ralph.kinds.iteration import from_record
from ralph.record import Complaint, Record, Tombstone, utc
from ralph.text.redact import redact_tree

if TYPE_CHECKING:
    from ralph.memories.ralph import Ralph

_SHORTEST_ID = 4


class Choice(msgspec.Struct, frozen=True):
    """Records picked out to be forgotten: by feature, and of the project's conversations."""

    ids: dict[str, list[str]]
    conversations: list[str] = []

    @property
    def count(self) -> int:
        """How many records were picked."""
        return sum(len(ids) for ids in self.ids.values()) + len(self.conversations)


class Imported(msgspec.Struct, frozen=True):
    """What an import came to."""

    added: int
    known: int
    forgotten: int
    complaints: list[Complaint]


class _Exported(msgspec.Struct):
    stream: str
    entry: msgspec.Raw


_read_exported = msgspec.json.Decoder(_Exported).decode
_encode = msgspec.json.Encoder().encode


def choose(
    ralph: Ralph,
    *,
    ids: Iterable[str] = (),
    feature: str | None = None,
    before: str | None = None,
    match: str | None = None,
    everything: bool = False,
    conversations: bool = False,
) -> Choice:
    """The records that fit every condition given; an id that is not there is an error.

    `conversations` leaves iterations alone.
    """
    wanted = list(ids)
    if not (wanted or feature or before or match or everything):
        raise BadInput("nothing was said to forget", todo="Name ids, or say which records.")
    limit = datetime.fromisoformat(utc(before, field="before")) if before else None
    found_ids: set[str] = set()

    def fitting(records: Iterable[Record]) -> list[str]:
        fit: dict[str, None] = {}
        for record in records:
            prefix = _begins(record.id, wanted)
            if prefix is not None:
                found_ids.add(prefix)
            if (
                (not wanted or prefix is not None)
                and (limit is None or _is_before(record, limit))
                and (not match or match.casefold() in _text(record))
            ):
                fit[record.id] = None
        return list(fit)

    features = ralph.features() if feature is None else [ralph.feature(feature)]
    features = [] if conversations else features
    # One that was forgotten and came back by a merge stands in the file too.
    chosen = {one.name: fitting(_standing(ralph, one.name)) for one in features}
    # What a person said in this project belongs to no feature.
    said = fitting(ralph.conversations.standing()) if feature is None else []
    missing = [one for one in wanted if one not in found_ids]
    if missing:
        raise NotFound(f"there is no record {', '.join(missing)}", todo="Nothing was forgotten.")
    _refuse_ambiguous(wanted, [*said, *(i for ids in chosen.values() for i in ids)])
    said = ralph.conversations.bound_to(said) if said else []
    return Choice({name: some for name, some in chosen.items() if some}, said)


def forget(ralph: Ralph, choice: Choice, *, reason: str | None = None) -> int:
    """Forget what was chosen, and say how many records are gone."""
    gone = sum(
        len(ralph.feature(name).forget(ids, reason=reason)) for name, ids in choice.ids.items()
    )
    if choice.conversations:
        gone += len(ralph.conversations.forget(choice.conversations, reason=reason))
    return gone


def export_lines(ralph: Ralph, *, feature: str | None = None) -> Iterable[bytes]:
    """Every entry with its feature's name, tombstones too, one a line."""
    names = ralph.place.journals.names() if feature is None else [feature]
    for name in names:
        batch = ralph.place.journals.journal(name).read()
        buried = {stone.id for stone in batch.tombstones}
        for located in batch.records:
            if located.record.id not in buried:
                yield _line(name, write_record(located.record))
        for stone in batch.tombstones:
            yield _line(name, write_tombstone(stone))


def import_lines(ralph: Ralph, lines: Iterable[bytes], *, name: str) -> Imported:
    """Bring in what is not here yet; what was forgotten here or there stays forgotten."""
    records: dict[str, list[Record]] = {}
    stones: dict[str, list[Tombstone]] = {}
    complaints: list[Complaint] = []
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            stream, entry = _read(raw)
        except Unreadable as error:
            complaints.append(Complaint(name, number, str(error)))
            continue
        if isinstance(entry, Tombstone):
            stones.setdefault(stream, []).append(entry)
        else:
            records.setdefault(stream, []).append(_redacted(entry))
    ralph.place.ensure()
    for stream, some in stones.items():
        ralph.feature(stream).forget((), stones=some)
    added = known = forgotten = 0
    for stream, many in records.items():
        fresh, old, gone = ralph.feature(stream).adopt(many)
        added, known, forgotten = added + fresh, known + old, forgotten + gone
    return Imported(added, known, forgotten, complaints)


def _read(raw: bytes) -> tuple[str, Record | Tombstone]:
    """A line of an export, or of a journal copied from elsewhere."""
    text = raw.strip().removeprefix(b"\xef\xbb\xbf")
    try:
        exported = _read_exported(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        entry, _ = read_line(text)
        return _stream_of(entry), entry
    entry, _ = read_line(bytes(exported.entry))
    return exported.stream, entry


def _redacted(record: Record) -> Record:
    """The record without secrets, wherever its line was written."""
    try:
        body = msgspec.json.decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return record  # whoever reads it complains
    clean = redact_tree(body)
    if clean == body:
        return record
    return msgspec.structs.replace(record, body=_encode(clean))


def _stream_of(entry: Record | Tombstone) -> str:
    if isinstance(entry, Record):
        try:
            feature = from_record(entry).feature
        except BadRecord as error:
            raise Unreadable(error.what) from None
        if feature:
            return feature
    raise Unreadable("does not say which feature it belongs to")


def _line(name: str, line: bytes) -> bytes:
    return _encode(_Exported(name, msgspec.Raw(line.strip()))) + b"\n"


def _standing(ralph: Ralph, name: str) -> list[Record]:
    return [located.record for located in ralph.place.journals.journal(name).read().records]


def _is_before(record: Record, limit: datetime) -> bool:
    try:
        return datetime.fromisoformat(utc(record.at)) < limit
    except BadRecord:  # nobody knows when it was, and `journal verify` says so
        return False


def _begins(record_id: str, wanted: list[str]) -> str | None:
    for prefix in wanted:
        if len(prefix) >= _SHORTEST_ID and record_id.startswith(prefix.lower()):
            return prefix
    return None


def _refuse_ambiguous(wanted: list[str], chosen: list[str]) -> None:
    for prefix in wanted:
        found = {i for i in chosen if i.startswith(prefix.lower())}
        if len(found) > 1:
            raise BadInput(
                f"{prefix} is the beginning of {len(found)} ids",
                todo="Give more of it; nothing was forgotten.",
            )


def _text(record: Record) -> str:
    return record.body.decode("utf-8", "replace").casefold()
