"""Copy a project's memories: to a file and back, to a server and back.

A move to a server copies what is missing, then verifies every record by id and hash. Records that
wait for a server are delivered here, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec

from ralph import disk
from ralph.config import Settings
from ralph.errors import BadInput, BadRecord, JournalDown, JournalError
from ralph.journal import Batch, Journal, Journals, Stones
from ralph.journal.file import JournalFolder
from ralph.journal.line import Unreadable, read_line, short_hash, write_record, write_tombstone
from ralph.memory import store
from ralph.memory.knowledge_state import stream_of
from ralph.memory.part import JournalKey
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph
from ralph.memory.store import (
    CONVERSATIONS,
    FEATURES,
    KNOWLEDGE,
    MEMORIES,
    NOTES,
    SPOOL,
    TOKENS,
)
from ralph.records import Complaint, Record, Source, Tombstone, clean
from ralph.records.iteration import from_record
from ralph.records.knowledge import ENTRIES, is_knowledge_kind, knowledge_from
from ralph.records.note import NOTE
from ralph.text.redact import redact_tree


def journal_keys(ralph: Ralph, *, everywhere: bool = False) -> list[JournalKey]:
    """Return every journal of this project; `everywhere`: also other projects' in Ralph's home."""
    return [
        JournalKey(memory, name)
        for memory in MEMORIES
        for name in ralph.part(memory).journals(everywhere=everywhere)
    ]


def journal_of(ralph: Ralph, key: JournalKey) -> Journal:
    """Return the journal itself."""
    return ralph.part(key.memory).store.journals.journal(key.name)


def journal_lines(batch: Batch) -> tuple[list[bytes], int]:
    """Return the live records and tombstones of a journal as lines, and how many are records."""
    buried = {stone.id for stone in batch.tombstones}
    lines = [write_record(one.record) for one in batch.records if one.record.id not in buried]
    return [*lines, *map(write_tombstone, batch.tombstones)], len(lines)


def adopt(
    ralph: Ralph, key: JournalKey, records: Sequence[Record], stones: Stones, *, by_id: bool = False
) -> tuple[int, int, int]:
    """Save records from elsewhere unchanged; return how many were new, known, forgotten here.

    `by_id`: a record whose id is known here is not added, even with other content.
    """
    journal = journal_of(ralph, key)
    stream = ralph.part(key.memory).stream_at(key.name)
    if stones and journal.forget((), stones=clean(stones)):
        stream.store.erase_soon(stream.target())
    batch = journal.read()
    buried = {stone.id for stone in batch.tombstones}
    here = {one.record.id for one in batch.records} if by_id else set[str]()
    wanted = [one for one in records if one.id not in buried]
    fresh = sum(one.fresh for one in journal.append([one for one in wanted if one.id not in here]))
    if fresh:
        stream.search_again()
    return fresh, len(wanted) - fresh, len(records) - len(wanted)


# -- Export and import.


class ImportResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an import.

    `staged` are the imported entries of knowledge that wait for a person's checkpoint. `left_out`
    counts lines that would have published, judged or forgotten knowledge by themselves.
    """

    added: int
    known: int
    forgotten: int
    complaints: list[Complaint]
    staged: list[str] = []
    left_out: int = 0


class _Exported(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line of an export, from a feature's journal or from a project's knowledge."""

    stream: str | None = None
    knowledge: str | None = None
    entry: msgspec.Raw


_read_exported = msgspec.json.Decoder(_Exported).decode
_encode = msgspec.json.Encoder().encode


def export_lines(ralph: Ralph, *, feature: str | None = None) -> Iterable[bytes]:
    """Yield every entry of the features and the project's knowledge, and tombstones, as lines."""
    ralph.store.need_journals()  # otherwise the export would lack records without a word
    for key in journal_keys(ralph):
        if key.memory != CONVERSATIONS and feature in (None, key.name):
            home = {"stream" if key.memory == FEATURES else "knowledge": key.name}
            for line in journal_lines(journal_of(ralph, key).read())[0]:
                yield _encode(_Exported(entry=msgspec.Raw(line.strip()), **home)) + b"\n"


def import_lines(
    ralph: Ralph, lines: Iterable[bytes], *, name: str, own: bool = False
) -> ImportResult:
    """Import what is not here yet; what was forgotten here or there stays forgotten.

    Knowledge goes to the project that it names. It reaches every project, and anybody may have
    written the file, so it is staged until a person publishes it. `own`: the file is a person's
    own backup, so its knowledge is staged or published as it was.
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
    """Read a line of an export, or of a journal copied from elsewhere."""
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
        # The project that the entry itself names counts: it is published with that one.
        named = isinstance(entry, Record) and is_knowledge_kind(entry.kind)
        return _home_of(entry) if named else JournalKey(KNOWLEDGE, exported.knowledge), entry
    raise Unreadable("says neither which feature it belongs to nor whose knowledge it is")


def redacted(record: Record) -> Record:
    """Return the record without secrets, wherever its line was written."""
    try:
        body = msgspec.json.decode(record.body)
        clean = redact_tree(body)
        return record if clean == body else msgspec.structs.replace(record, body=_encode(clean))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return record  # its readers report it
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


# -- Moves to a server and back.


_FEATURE = "feature"
_PORTION = 500
_TRIES = 3

# Called with the stream's name and how many of its records were processed.
Progress = Callable[[str, int], None]


class MovedStream(msgspec.Struct, frozen=True):
    """How much of one stream is now the same in both places, and what was not copied.

    `unreadable` lists lines that cannot be read and stay where they are; `forgotten_there` counts
    records that the target had forgotten before, and that stay forgotten.
    """

    name: str
    records: int
    tombstones: int
    fresh: int
    forgotten_there: int
    unreadable: tuple[Complaint, ...]


class MovedMemory(msgspec.Struct, frozen=True):
    """One moved memory, and how many journals of other projects stayed where they are."""

    memory: str
    source: str
    target: str
    streams: tuple[MovedStream, ...]
    left: int = 0


class MovedProject(msgspec.Struct, frozen=True):
    """All memories of a project, copied and compared; with `dry_run`, only compared."""

    memories: tuple[MovedMemory, ...]
    dry_run: bool

    @property
    def records(self) -> int:
        """How many records are the same in both places, or would be."""
        return sum(one.records for each in self.memories for one in each.streams)

    @property
    def fresh(self) -> int:
        """How many of them the target did not have."""
        return sum(one.fresh for each in self.memories for one in each.streams)

    @property
    def left(self) -> int:
        """How many journals of other projects were not moved."""
        return sum(one.left for one in self.memories)


def move_project(
    project: Project,
    settings: Settings,
    home: Path,
    *,
    source: str | None,
    target: str | None,
    everything: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MovedProject:
    """Copy the journals of a project's memories; return only when every record is the same.

    `source` and `target` are a server's address, or None for files. The source is not changed.
    `everything` also copies the conversations and the knowledge of all projects. Tokens are in one
    journal for all of them, and always go along: a server would refuse its callers otherwise.
    """
    own = {
        FEATURES: None,
        CONVERSATIONS: project.ids,
        KNOWLEDGE: [stream_of(project.id)],
        TOKENS: None,
    }
    with contextlib.ExitStack() as stack:

        def opened(url: str | None) -> list[Journals]:
            chosen = msgspec.structs.replace(settings, journal_url=url)
            # One of the two is always files, so do not warn that the address is missing.
            journals = [
                store.open_journals(
                    memory, chosen, home, of=project if memory == FEATURES else None, warns=False
                )
                for memory in own
            ]
            for one in journals:
                stack.callback(one.close)
                if server := store.on_server(one):
                    if _hands_over(url, settings, dry_run):
                        server.deliver()
                    else:
                        server.link.retry()  # a person asked
            return journals

        # A server without its spool: a record that only waits for it does not count as moved.
        sources = opened(source)
        targets = opened(target)
        plain = ([getattr(one, "server", one) for one in side] for side in (sources, targets))
        pairs = list(zip(*plain, strict=True))
        for begin, end in pairs:
            if begin.where == end.where:
                raise BadInput("the journals are there already", where=end.where)
        moved = [
            move(
                begin,
                end,
                progress,
                memory=memory,
                only=None if everything else mine,
                dry_run=dry_run,
            )
            for (memory, mine), (begin, end) in zip(own.items(), pairs, strict=True)
        ]
        if target is not None and _hands_over(target, settings, dry_run):
            # Remember the highest numbers, so that they continue while the server is down.
            with contextlib.suppress(JournalDown):  # the next use of the server does so, too
                for journals, there in zip(targets, moved, strict=True):
                    for stream in there.streams:
                        journals.journal(stream.name).read(limit=1)
    return MovedProject(tuple(moved), dry_run)


def _hands_over(url: str | None, settings: Settings, dry_run: bool) -> bool:
    """Return whether records that wait here go to this server: they may wait for another."""
    return not dry_run and (settings.journal_url or url) == url


def move(
    source: Journals,
    target: Journals,
    progress: Progress | None = None,
    *,
    memory: str = "",
    only: Collection[str] | None = None,
    dry_run: bool = False,
) -> MovedMemory:
    """Copy every stream, or those with these names; return only when all of it is there.

    The source is not changed. After an interruption, this can be repeated. If both sides have an
    id with different content, it refuses before it writes anything. `dry_run` writes nothing.
    """
    names = source.names()
    chosen = [name for name in names if only is None or name in only]
    streams = [_plan(source.journal(name), target, name) for name in chosen]
    if not dry_run:

        def report(name: str, count: int) -> None:
            if progress:
                progress(f"{memory} {name}".strip(), count)

        streams = [_copy_checked(source.journal(name), target, name, report) for name in chosen]
    return MovedMemory(memory, source.where, target.where, tuple(streams), len(names) - len(chosen))


class _Contents:
    """What is in a journal: live records by id and hash, and the ids of its tombstones."""

    def __init__(self, journal: Journal) -> None:
        batch = journal.read()
        self.complaints = batch.complaints
        self.buried = {stone.id for stone in batch.tombstones}
        records = (one.record for one in batch.records if one.record.id not in self.buried)
        self.living = {(one.id, short_hash(write_record(one))) for one in records}


def _plan(source: Journal, place: Journals, name: str) -> MovedStream:
    """Return what a move would do; raise if both sides have different content."""
    ours = _Contents(source)
    theirs = _Contents(place.journal(name))
    ids = {record_id for record_id, _ in ours.living}
    if others := sorted({key[0] for key in theirs.living - ours.living if key[0] in ids}):
        raise BadInput(
            f"records of {name!r} exist there with other content ({len(others)}), the first is "
            f"{others[0]}; nothing was copied",
            where=place.where,
            todo="Move into an empty place, or forget those records on one side.",
        )
    return _report(name, ours, theirs)


def _copy_checked(source: Journal, place: Journals, name: str, report: Progress) -> MovedStream:
    """Copy a stream; return only when every id and hash of it is in the target."""
    target = place.journal(name)
    fresh = 0
    for _ in range(_TRIES):
        forgotten = {stone.id for one in (source, target) for stone in one.read().tombstones}
        position = None
        done = False
        seen = 0
        while not done:  # what the target lacks, in the source's order
            batch = source.read(position, limit=_PORTION)
            records = [one.record for one in batch.records if one.record.id not in forgotten]
            fresh += sum(one.fresh for one in target.append(records))
            if batch.tombstones:
                target.forget((), stones=batch.tombstones)
            seen += len(batch.records)
            report(name, seen)
            position = batch.position
            done = batch.done
        ours = _Contents(source)
        theirs = _Contents(target)
        if source.unchanged(position):
            break
    else:
        what = "is written to faster than it can be copied"
        todo = "Stop what writes to it, then"
        raise JournalError(f"{name!r} {what}", where=place.where, todo=f"{todo} move again.")
    missing = {key[0] for key in ours.living - theirs.living} | ours.buried
    if missing := missing - theirs.buried:
        raise JournalError(
            f"the copy of {name!r} lacks records ({len(missing)}), the first is {min(missing)}",
            where=place.where,
            todo="Keep using the old place; move into an empty one.",
        )
    return _report(name, ours, theirs, fresh)


def _report(name: str, ours: _Contents, theirs: _Contents, fresh: int | None = None) -> MovedStream:
    lost = {key for key in ours.living if key[0] in theirs.buried}
    fresh = len(ours.living - theirs.living - lost) if fresh is None else fresh
    records = len(ours.living) - len(lost)
    stones = len(ours.buried)
    return MovedStream(name, records, stones, fresh, len(lost), ours.complaints)


# -- records that wait for a server


def waiting_records(home: Path) -> dict[str, int]:
    """Return how many records wait on this machine for a server, by memory."""
    from ralph.journal.spool import spool_folder

    spools = home / SPOOL
    features = [f"{_FEATURE}/{unquote(one.name)}" for one in sorted(spools.glob(f"{_FEATURE}/*"))]
    memories = (CONVERSATIONS, KNOWLEDGE, TOKENS, *features)
    folders = {memory: JournalFolder(spool_folder(spools, memory)) for memory in memories}
    return {
        memory: count
        for memory, files in folders.items()
        if (count := sum(len(files.journal(name).read().records) for name in files.names()))
    }


def deliver_all(url: str, settings: Settings, home: Path) -> dict[str, int]:
    """Deliver everything that waits on this machine, of all projects; return counts by memory."""
    delivered: dict[str, int] = {}
    chosen = msgspec.structs.replace(settings, journal_url=url)
    for memory in waiting_records(home):
        with contextlib.closing(store.open_journals(memory, chosen, home)) as journals:
            if server := store.on_server(journals):
                delivered[memory] = server.deliver()
    return delivered


def bring_home(project: Project, settings: Settings, home: Path) -> dict[str, int]:
    """Move records that wait for a server into the files, except other projects' features."""
    from ralph.journal.spool import deliver_to_files

    folders = {memory: home / "journal" / memory for memory in (CONVERSATIONS, KNOWLEDGE, TOKENS)}
    folders[f"{_FEATURE}/{project.id}"] = project.journals
    waiting = waiting_records(home)
    for memory in waiting.keys() & folders.keys():
        disk.make_folder(folders[memory])
        files = JournalFolder(folders[memory], lock_timeout_s=settings.journal_lock_timeout_s)
        deliver_to_files(files, memory, home / SPOOL)
    return {memory: count for memory, count in waiting.items() if memory in folders}
