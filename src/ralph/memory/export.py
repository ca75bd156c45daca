"""The journals of all memories, and exports of their records to a file and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ralph.errors import BadRecord
from ralph.journal import Batch, Journal, Stones
from ralph.journal.line import Unreadable, read_line, write_record, write_tombstone
from ralph.memory.conversation_stream import ConversationStream
from ralph.memory.feature import ProjectStream
from ralph.memory.knowledge import Knowledge
from ralph.memory.knowledge_state import stream_of
from ralph.memory.ralph import Ralph
from ralph.memory.store import CONVERSATIONS, FEATURES, KNOWLEDGE, NOTES, Store
from ralph.records import Complaint, Record, Source, Tombstone, clean
from ralph.records.iteration import from_record
from ralph.records.knowledge import ENTRIES, is_knowledge_kind, knowledge_from
from ralph.records.note import NOTE
from ralph.text.redact import redact_tree


class JournalKey(NamedTuple):
    """A journal: the memory that keeps it, and its name there."""

    memory: str
    name: str


def journal_keys(ralph: Ralph, *, everywhere: bool = False) -> list[JournalKey]:
    """Every journal of this project; `everywhere`: in Ralph's home, those of all projects."""
    said = [part.name for part in ralph.conversations.stream.parts]
    own = {CONVERSATIONS: said, KNOWLEDGE: [stream_of(ralph.project.id)]}
    memories = (FEATURES, CONVERSATIONS, KNOWLEDGE)
    keys = (JournalKey(one, n) for one in memories for n in _store(ralph, one).journals.names())
    return [key for key in keys if everywhere or key.name in own.get(key.memory, [key.name])]


def journal_of(ralph: Ralph, key: JournalKey) -> Journal:
    """The journal itself."""
    return _store(ralph, key.memory).journals.journal(key.name)


def _store(ralph: Ralph, memory: str) -> Store:
    if memory == FEATURES:
        return ralph.store
    return ralph.conversations.store if memory == CONVERSATIONS else ralph.knowledge.store


def stream_at(ralph: Ralph, key: JournalKey) -> ProjectStream | ConversationStream | Knowledge:
    """The journal as its memory understands it."""
    if key.memory == FEATURES:
        return ralph.notes if key.name == NOTES else ralph.feature(key.name)
    if key.memory == KNOWLEDGE:
        return ralph.knowledge
    return ConversationStream(key.name, ralph.conversations.store)


def journal_lines(batch: Batch) -> tuple[list[bytes], int]:
    """Everything that stands in a journal as its lines, and how many of them are records."""
    buried = {stone.id for stone in batch.tombstones}
    lines = [write_record(one.record) for one in batch.records if one.record.id not in buried]
    return [*lines, *map(write_tombstone, batch.tombstones)], len(lines)


def adopt(
    ralph: Ralph, key: JournalKey, records: Sequence[Record], stones: Stones, *, by_id: bool = False
) -> tuple[int, int, int]:
    """Keep what was made elsewhere as it is: how many were new, known, forgotten here.

    `by_id`: where the id is known, the record that is here stays the only one.
    """
    journal, stream = journal_of(ralph, key), stream_at(ralph, key)
    if stones and journal.forget((), stones=clean(stones)):
        stream.store.erase_soon(stream.target())
    batch = journal.read()
    buried = {stone.id for stone in batch.tombstones}
    here = {one.record.id for one in batch.records} if by_id else set[str]()
    wanted = [one for one in records if one.id not in buried]
    fresh = sum(one.fresh for one in journal.append([one for one in wanted if one.id not in here]))
    if fresh and isinstance(stream, ProjectStream):
        stream.search_again()
    return fresh, len(wanted) - fresh, len(records) - len(wanted)


# -- Export and import.


class ImportResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an import came to.

    `staged` are the entries of knowledge that came and wait for a person's checkpoint, `left_out`
    counts what would have published, judged or forgotten knowledge by itself.
    """

    added: int
    known: int
    forgotten: int
    complaints: list[Complaint]
    staged: list[str] = []
    left_out: int = 0


class _Exported(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line of an export: of a feature's journal, or of a project's knowledge."""

    stream: str | None = None
    knowledge: str | None = None
    entry: msgspec.Raw


_read_exported = msgspec.json.Decoder(_Exported).decode
_encode = msgspec.json.Encoder().encode


def export_lines(ralph: Ralph, *, feature: str | None = None) -> Iterable[bytes]:
    """Every entry with its feature's name, tombstones too, one a line; the project's knowledge."""
    for key in journal_keys(ralph):
        if key.memory != CONVERSATIONS and feature in (None, key.name):
            home = {"stream" if key.memory == FEATURES else "knowledge": key.name}
            for line in journal_lines(journal_of(ralph, key).read())[0]:
                yield _encode(_Exported(entry=msgspec.Raw(line.strip()), **home)) + b"\n"


def import_lines(
    ralph: Ralph, lines: Iterable[bytes], *, name: str, own: bool = False
) -> ImportResult:
    """Bring in what is not here yet; what was forgotten here or there stays forgotten.

    Knowledge goes to the project that it names. It reaches every project, and anybody may have
    written the file, so it is staged until a person publishes it. `own`: the file is a person's
    own backup, and its knowledge is staged or published as it was.
    """
    homes: dict[JournalKey, tuple[list[Record], list[Tombstone]]] = {}
    complaints: list[Complaint] = []
    left_out = 0
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            home, entry = _read(raw)
            if isinstance(entry, Record):
                entry = redacted(entry)
        except Unreadable as error:
            complaints.append(Complaint(name, number, str(error)))
            continue
        if home.memory == KNOWLEDGE and not own:
            if isinstance(entry, Tombstone) or entry.kind not in ENTRIES:
                left_out += 1
                continue
            entry = msgspec.structs.replace(entry, source=Source(file=name, line=number))
        records, stones = homes.setdefault(home, ([], []))
        if isinstance(entry, Tombstone):
            stones.append(entry)
        else:
            records.append(entry)
    ralph.store.ensure()
    staged_before = _staged(ralph)
    counts = [adopt(ralph, home, *entries) for home, entries in homes.items()]
    added, known, forgotten = (sum(some) for some in zip((0, 0, 0), *counts, strict=True))
    staged = [one for one in _staged(ralph) if one not in staged_before]
    return ImportResult(added, known, forgotten, complaints, staged, left_out)


def _staged(ralph: Ralph) -> dict[str, None]:
    memory = ralph.knowledge
    return dict.fromkeys(one.id for one in memory.staged("*")) if memory.store.names() else {}


def _read(raw: bytes) -> tuple[JournalKey, Record | Tombstone]:
    """A line of an export, or of a journal copied from elsewhere."""
    text = raw.strip().removeprefix(b"\xef\xbb\xbf")
    try:
        exported = _read_exported(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        entry, _ = read_line(text)
        return _home_of(entry), entry
    entry, _ = read_line(bytes(exported.entry))
    if exported.stream is not None:
        return JournalKey(FEATURES, exported.stream), entry
    if exported.knowledge is not None:
        # What it says of itself counts: an entry is published with the project it names.
        named = isinstance(entry, Record) and is_knowledge_kind(entry.kind)
        return _home_of(entry) if named else JournalKey(KNOWLEDGE, exported.knowledge), entry
    raise Unreadable("says neither which feature it belongs to nor whose knowledge it is")


def redacted(record: Record) -> Record:
    """The record without secrets, wherever its line was written."""
    try:
        body = msgspec.json.decode(record.body)
        clean = redact_tree(body)
        return record if clean == body else msgspec.structs.replace(record, body=_encode(clean))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return record  # whoever reads it complains
    except RecursionError:
        raise Unreadable("is nested too deeply to be kept") from None


def _home_of(entry: Record | Tombstone) -> JournalKey:
    if isinstance(entry, Record):
        try:
            if entry.kind == NOTE:
                return JournalKey(FEATURES, NOTES)
            if is_knowledge_kind(entry.kind):
                return JournalKey(KNOWLEDGE, stream_of(knowledge_from(entry).project))
            feature = from_record(entry).feature
        except BadRecord as error:
            raise Unreadable(error.what) from None
        if feature:
            return JournalKey(FEATURES, feature)
    raise Unreadable("does not say which feature it belongs to")
