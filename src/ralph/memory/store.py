"""The base of every memory: its journals, the index that follows them, and the embedder."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from ralph import disk, errors
from ralph.config import Settings
from ralph.current_run import refuse_agent
from ralph.errors import BadInput, JournalDown, MemoryOff, NotFound
from ralph.index import Embedder, Passage, sync
from ralph.index.sync import IndexSpec, Progress, Synced
from ralph.journal import Draft, Fold, Journal, Journals, Selection
from ralph.journal.file import FREE_SPACE, JournalFolder, disk_error, file_name
from ralph.memory.anchors import AnchorStore
from ralph.memory.project import Project, refuse_newer
from ralph.recall import Hit
from ralph.recall.kinds import KINDS
from ralph.recall.search import (
    PASSAGES_COMPARED,
    Candidate,
    Found,
    Question,
    conclude,
    find,
    find_plainly,
)
from ralph.records import Complaint, JournalRecord, Record, clean, utc
from ralph.text.tokens import names_time

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.journal.spool import SpooledJournals


class Answer(list[Hit]):
    """Hits, best first, with notes on how they were found."""

    def __init__(self, hits: list[Hit] | None = None, notes: tuple[str, ...] = ()) -> None:
        super().__init__(hits or [])
        self.notes = notes


def unasked(record: Record, when: str, content: Any) -> Hit:
    """Return a record as a hit without a score."""
    return Hit(record.id, record.kind, None, None, when, None, content, at=record.at)


def when(at: str, *, today: datetime | None = None) -> str:
    """Return the day of a timestamp, and how long ago that is."""
    try:
        moment = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):
        return "at an unknown time"
    days = ((today or datetime.now(UTC)).astimezone().date() - moment.date()).days
    if days < -1:  # the clock of the writer was ahead
        return moment.date().isoformat()
    ago = "today" if days <= 0 else "yesterday" if days == 1 else f"{days} days ago"
    return f"{moment.date().isoformat()}, {ago}"


def moment_given(text: str, field: str) -> str:
    """Return the timestamp a person gives as a time or a day; a day means its beginning."""
    if ":" in text:
        return utc(text, field=field)
    from ralph.text.times import day_of, moment_of

    return f"{moment_of(date.fromisoformat(day_of(text, field)))}Z"


# -- Where the journals of each memory are: in files, or on the server in the settings.


MOST_HITS = 20
# A note on an answer that may lack what was saved last.
INCOMPLETE = "the index is not complete yet; ask again soon"
FEATURES = "features"
CONVERSATIONS = "conversations"
KNOWLEDGE = "knowledge"
MEMORIES = (FEATURES, CONVERSATIONS, KNOWLEDGE)
TOKENS = "tokens"
# Streams of a project besides its features. No feature can have these names.
NOTES = "~notes"
PLAN = "~plan"
# The folder in a cache for the ledgers of long journals.
LEDGERS = "ledgers"
# The folder in Ralph's home for records that wait for a server.
SPOOL = "spool"
_T = TypeVar("_T")


def open_journals(
    memory: str, settings: Settings, home: Path, *, of: Project | None = None, warns: bool = True
) -> Journals:
    """Open the journals of a memory, one per project; or those of the features `of` a project.

    `warns`: log a warning if records wait for a server, but none is set.
    """

    def name() -> str:
        return memory if of is None else f"feature/{of.id}"

    if of is None:
        with contextlib.suppress(OSError):  # there is no home yet, or it cannot be read
            refuse_newer(disk.read(home / "format", largest=64).decode(errors="replace"), home)
    spools = home / SPOOL
    lock_timeout_s = settings.journal_lock_timeout_s
    if settings.journal_url:
        from ralph.journal.spool import server_journals

        patience = {"lock_s": lock_timeout_s, "connect_s": settings.wait_s}
        return server_journals(settings.journal_url, name, spools, **patience)
    # Do not move records that wait for a server into these files: a process that does not know the
    # URL (an agent's, for example) must not decide that.
    if warns and spools.is_dir():
        from ralph.journal.spool import spool_folder, waiting_names

        if waiting_names(spool_folder(spools, name())):
            _warn(
                f"records wait in {spools} for a journal's server, but journal_url is not set "
                "here; set it, or bring them into the files with: ralph journal deliver"
            )
    folder = home / "journal" / memory if of is None else of.journals
    shown = f"journal/{memory}" if of is None else ".ralph/db/memory"
    ledgers = (home / "cache" / memory if of is None else of.cache) / LEDGERS
    return JournalFolder(
        folder,
        shown=shown,
        lock_timeout_s=lock_timeout_s,
        ledgers=ledgers,
        project_state=None if of is None else of.cache,
    )


def on_server(journals: Journals) -> SpooledJournals | None:
    """Return the journals if they are on a server; None if they are files."""
    if isinstance(journals, JournalFolder):
        return None
    from ralph.journal.spool import SpooledJournals

    return journals if isinstance(journals, SpooledJournals) else None


def _warn(text: str) -> None:
    import logging  # slow to load, and most processes have no warnings

    logging.getLogger("ralph").warning("memory: %s", text)


_SHORTEST_QUERY = 3
_LINES_AT_ONCE = 500
# The shortest prefix of an id that is accepted.
SHORTEST_ID = 4
_TRIES = 3


def find_id(wanted: str, ids: Iterable[str], missing: NotFound, *, shortest: int = 1) -> str:
    """Return the only id that starts with `wanted`, or raise an error."""
    long = len(wanted) >= shortest
    found = {one for one in ids if long and one.startswith(wanted.lower())}
    if not found:
        raise missing
    if len(found) > 1:
        raise BadInput(f"{wanted} is the beginning of {len(found)} ids; give more of it")
    return found.pop()


def numbered(record: Record) -> Draft:
    """Return a draft of the record, which takes the number from the journal."""
    return lambda number: msgspec.structs.replace(record, number=number)


class Stream:
    """One journal as its memory reads it, and the index collection that follows it."""

    cut_version: str
    # Whether it belongs to another project, which may use another embedder.
    foreign = False
    name: str
    label: str
    store: Store
    journal: Journal

    def __init__(self, name: str, store: Store, journal: Any) -> None:
        self.name = name
        # The name shown to people.
        self.label = {NOTES: "notes", PLAN: "plan"}.get(name, name)
        self.store = store
        # The plan and the knowledge of all projects can only be followed, not written here.
        self.journal: Journal = journal
        self._fold = Fold(journal)

    def content(self, record: Record) -> Any:
        """Return the content of a record; None for a kind that does not belong here."""
        row = KINDS.of(record.kind)
        return None if row is None else row.content(record)

    def passages(self, record: Record) -> Sequence[Passage]:
        """Return the passages of a record, for the index."""
        row = KINDS.of(record.kind)
        return () if row is None else row.cut(record)

    def when(self, record: Record, last_number: int) -> str:
        """Return when the record was made, in words."""
        return when(record.at)

    def target(self) -> IndexSpec:
        """Return what the index needs to follow the journal."""
        name = self.store.collection_name(self.name)
        how = (self.passages, self.cut_version)
        return IndexSpec(name, self.name, self.journal, *how, self.store.embedder)

    def sync(self, *, afresh: bool = False, budget_s: float | None = None) -> Synced:
        """Update the index from the journal, or rebuild it."""
        index = self.store.index
        progress = self.store.progress
        return index.sync(self.target(), afresh=afresh, budget_s=budget_s, progress=progress)

    def records(self) -> list[Record]:
        """Return all records of any kind that are not forgotten."""
        return [located.record for located in self._fold.records()]

    def select(self, selection: Selection) -> list[JournalRecord]:
        """Return some of the live records in journal order, without reading a long journal."""
        return self._fold.select(selection)

    def known(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that were ever saved here, forgotten or not."""
        return self._fold.known(ids)

    def forgotten(self) -> frozenset[str]:
        """Return the ids of forgotten records."""
        return self._fold.forgotten()

    def forget(self, ids: Collection[str], *, reason: str | None = None) -> list[str]:
        """Delete these records from journal and index for good; return the ids that existed."""
        refuse_agent("forget records")
        if gone := self.journal.forget(ids, reason=clean(reason)):
            self.store.erase_soon(self.target())
            AnchorStore(self.store.home).forget(gone)
        return gone

    def search_again(self) -> None:
        """Index what was just written, if that is not left to the next search."""

    def hit(self, record: Record, last_number: int) -> Hit:
        """Return a record that a search found, as a hit without a score."""
        return unasked(record, self.when(record, last_number), self.content(record))

    def verify(self) -> tuple[int, list[Complaint]]:
        """Return how many records can be read, and every problem found in the journal."""
        return verify_records(self.journal, self._fold, self.content)


def verify_records(
    journal: Journal, fold: Fold, read: Callable[[Record], object]
) -> tuple[int, list[Complaint]]:
    """Return how many records can be read, and every problem found in the journal."""
    count, complaints = journal.verify()
    for located in fold.records():
        try:
            read(located.record)
        except errors.BadRecord as error:
            complaints.append(Complaint(located.file, located.line, error.what))
            count -= 1
    return count, sorted(complaints, key=lambda complaint: complaint.line)


class Store:
    """The journals of a memory, the index that follows them, and the embedder they share."""

    def __init__(
        self,
        journals: Journals,
        cache: Path,
        scope: Callable[[], str],
        *,
        home: Path,
        settings: Settings,
        embedder: Embedder | None,
        progress: Progress | None = None,
    ) -> None:
        self.journals = journals
        self.index = sync.open_index(settings, [cache], home=home, scope=scope)
        self.home = home
        self.embedder = embedder
        self.settings = settings
        self.progress = progress
        self._scope = scope
        self._told: set[str] = set()

    @classmethod
    def in_home(
        cls, memory: str, scope: str, *, home: Path, settings: Settings, **more: Any
    ) -> Self:
        """Open a store in Ralph's home, which all projects share."""
        journals = open_journals(memory, settings, home)
        cache = home / "cache" / memory
        return cls(journals, cache, lambda: scope, home=home, settings=settings, **more)

    def collection_name(self, stream: str) -> str:
        """Return the name of a stream's collection; two projects never share one (F18)."""
        return f"{self._scope()}{short_hash(stream)}"

    def close(self) -> None:
        """Close files. Nothing is lost without it."""
        self.index.close()
        self.journals.close()

    def names(self) -> set[str]:
        """Return the names of the streams that are not empty."""
        return set(self.journals.names())

    def records_in(self, name: str) -> Iterator[Record]:
        """Yield every record in a journal, read in parts because there may be many."""
        journal = self.journals.journal(name)
        position = None
        while True:
            batch = journal.read(position, limit=_LINES_AT_ONCE)
            yield from (located.record for located in batch.records)
            if batch.done:
                return
            position = batch.position

    def need_journals(self) -> None:
        """Raise JournalDown if the journals' server is down: then not all records are here."""
        server = on_server(self.journals)
        if server is not None:
            server.server.names()

    def sync_soon(self, target: IndexSpec) -> None:
        """Index within the budget. The journal has the record, so failures are only logged."""
        try:
            budget_s = self.settings.remember_budget_s
            synced = self.index.sync(target, budget_s=budget_s, changed=True)
        except JournalDown:
            pass  # logged already, when the server was not reached
        except MemoryOff as error:
            self._tell(f"not indexed yet: {error}")
        else:
            if synced.embedder_off:
                self._tell(f"indexed by words alone: {synced.embedder_off}")

    def erase_soon(self, target: IndexSpec, *, afresh: bool = False) -> None:
        """Remove what the journal no longer has from the index, including the file's bytes.

        `afresh`: rebuild the collection, because its journal has no tombstones.
        """
        try:
            if afresh:
                self.index.drop(target.name)
            self.index.erase(target, lock_timeout_s=self.settings.journal_lock_timeout_s)
        except MemoryOff as error:
            # The journal is clean already. If the index cannot be cleaned, delete it.
            self._tell(f"the index could not be cleaned, so it is deleted: {error}")
            try:
                self.index.delete()
            except MemoryOff as worse:
                self._tell(f"forgotten text may still stand in an old index: {worse}")

    def question(
        self,
        text: str,
        *,
        limit: int | None,
        min_score: float | None,
        since: str | None = None,
        until: str | None = None,
    ) -> Question:
        """Return the question with defaults filled in, or raise an error that says what to do."""
        # A terminal may pass bytes that are not valid text.
        plain = text.encode(errors="replace").decode().strip()
        if len(plain) < _SHORTEST_QUERY and plain.isascii():
            todo = 'Ask in a few words, for example: "login form validation".'
            raise BadInput(f"the query {plain!r} is too short to search for", todo=todo)
        wanted = self.settings.search_limit if limit is None else limit
        if wanted < 1:
            raise BadInput(f"limit must be at least 1, not {wanted}")
        floor = self.settings.min_score if min_score is None else min_score
        if not 0.0 <= floor <= 1.0:
            raise BadInput(f"min_score goes from 0 to 1, not {floor}")
        asked = Question(plain, min(wanted, MOST_HITS), floor)
        if since or until or names_time(plain):
            from ralph.text import times  # most questions name no time

            if since or until:
                within = times.moments_between(since, until)
                asked = msgspec.structs.replace(asked, within=within)
            if named := times.time_range(plain, times.local_today()):
                rest = "" if named.alone else named.rest
                asked = msgspec.structs.replace(asked, days=named.moments(), rest=rest)
        return asked

    def ask(self, streams: Sequence[Stream], question: Question, **how: Any) -> Answer:
        """Search these streams as one; `how` has the options of `find`."""
        found = self.find(streams, question, **how)
        return Answer(conclude(question, [found]), found.notes)

    def find(
        self,
        streams: Sequence[Stream],
        question: Question,
        *,
        meaning: bool = True,
        budget_s: float | None = None,
        names: Set[str] | None = None,
        depth: int = PASSAGES_COMPARED,
        talk: bool = False,
    ) -> Found:
        """Return what these streams have: by meaning and words if possible, otherwise by words.

        `budget_s` limits the time to index what is new in the journals; the rest is not found yet.
        `names`: the streams that are not empty, if known. `depth` and `talk` are as in
        `recall.search.find`.
        """
        names = self.names() if names is None else names
        by_name = {one.name: one for one in streams if one.name in names}
        if not by_name:
            return Found()  # create no index if there is nothing to find
        notes: list[str] = []
        try:
            found, last = self.index.with_repair(
                lambda: self._by_index(
                    by_name,
                    question,
                    notes,
                    meaning=meaning,
                    budget_s=budget_s,
                    depth=depth,
                    talk=talk,
                )
            )
        except MemoryOff as error:
            notes[:] = [f"searched the journal by words alone: {error}"]
            records = [(name, record) for name, one in by_name.items() for record in one.records()]
            cuts = {name: one.target().cut for name, one in by_name.items()}
            found = find_plainly(records, cuts, question, talk=talk)
            last = dict.fromkeys(by_name, 0)
            for name, record in records:
                last[name] = max(last[name], record.number)
        if trouble := self.journals.trouble():
            notes.append(trouble)

        def read(one: Candidate) -> Hit:
            return by_name[one.stream].hit(one.record, last[one.stream])

        for one in found.candidates:
            one.read = read
        found.notes = tuple(dict.fromkeys(notes))
        return found

    def _by_index(
        self,
        streams: Mapping[str, Stream],
        question: Question,
        notes: list[str],
        *,
        meaning: bool,
        budget_s: float | None,
        depth: int,
        talk: bool,
    ) -> tuple[Found, dict[str, int]]:
        """Return what was found, and the last record number of each stream."""
        targets = {name: stream.target() for name, stream in streams.items()}
        behind: set[str] = set()
        ready = set(targets)
        for tries_left in reversed(range(_TRIES + 1)):
            if tries_left < _TRIES:  # the first try assumes that all are up to date, as most are
                behind, ready = self._caught_up(streams, targets, notes, budget_s)
            with self.index.store.state() as view:
                if tries_left and not all(
                    sync.is_current_in(view, targets[name]) for name in ready
                ):
                    continue  # behind, or deleted, replaced or written to meanwhile
                before = self.embedder and self.embedder.identity
                vector = self._vector(question, notes) if meaning else None
                identity = self.embedder and self.embedder.identity
                if tries_left and identity != before:
                    continue  # its server has another model now
                names = sorted(target.name for target in targets.values())
                live = [one for name in names if (one := sync.live_of(view, name)) is not None]
                used = identity or "none"
                found = find(
                    view,
                    live,
                    question,
                    vector=vector,
                    embedder=used,
                    depth=depth,
                    talk=talk,
                )
            break
        if len(live) < len(targets):
            what = "the index is deleted again and again"
            raise errors.IndexOff(what, where=str(self.index.path))
        # The index may not know yet what was forgotten. While the server is down, nobody knows.
        for name in behind if self.journals.trouble() is None else ():
            known = found.candidates
            ids = {candidate.record.id for candidate in known if candidate.stream == name}
            living = {located.record.id for located in streams[name].select(Selection(ids=ids))}
            found.candidates = [x for x in known if x.stream != name or x.record.id in living]
        return found, {one.stream: one.last_number for one in live}

    def _caught_up(
        self,
        streams: Mapping[str, Stream],
        targets: Mapping[str, IndexSpec],
        notes: list[str],
        budget_s: float | None,
    ) -> tuple[set[str], set[str]]:
        """Update the index; return the streams that it is still behind, and those up to date."""
        notes.clear()
        behind: set[str] = set()
        ready: set[str] = set()
        for name, target in targets.items():
            if streams[name].foreign and self._built_otherwise(target):
                continue  # its own project updates it; search it by words
            synced = self.index.sync(target, budget_s=budget_s, progress=self.progress)
            if synced.embedder_off:
                notes.append(f"searched by words alone: {synced.embedder_off}")
            elif synced.complete:
                ready.add(name)
            else:  # another process is working on it
                behind.add(name)
                notes.append(INCOMPLETE)
        return behind, ready

    def _built_otherwise(self, target: IndexSpec) -> bool:
        with self.index.answering(target.name) as (_, live):
            pass
        return live is not None and live.manifest.embedder != target.manifest().embedder

    def _vector(self, question: Question, notes: list[str]) -> Vectors | None:
        """Return the vector of the question; none without an embedder."""
        if self.embedder is None:
            notes.append("searched by words alone: the setting embedder is none")
            return None
        known = question.vectors  # shared with the other memories
        try:
            identity = self.embedder.identity
            if identity not in known:
                known[identity] = self.embedder.embed_query(question.text)
        except errors.EmbedderOff as error:
            notes.append(f"searched by words alone: {error}")
            return None
        return known[identity]

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _warn(text)


@functools.lru_cache(maxsize=1024)  # every search asks for the names of its collections
def short_hash(text: str) -> str:
    """Return a hash of eight hex digits."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


# -- The store of one project: the journals of its features, and the index beside them.


class ProjectStore(Store):
    """One project's memory on this machine."""

    def __init__(
        self, project: Project, settings: Settings, *, home: Path, progress: Progress | None = None
    ) -> None:
        more: dict[str, Any] = {"home": home, "settings": settings, "progress": progress}
        more["embedder"] = sync.choose_embedder(settings, home / "cache")
        journals = open_journals(FEATURES, settings, home, of=project)
        super().__init__(journals, project.cache, lambda: f"{short_hash(project.id)}-", **more)
        self.project = project

    def names(self) -> set[str]:
        """Return the streams that are not empty: features, notes, and the plan if there is one."""
        file = self.project.db / "features.yaml"
        # Most projects lack one of them, and looking for it in a way that is safe takes six calls.
        plan = {PLAN} if os.path.lexists(file) and disk.exists(file) else set()
        dropped = set(disk.names(self.dropped)) if os.path.lexists(self.dropped) else set()
        found = super().names() | plan
        return {one for one in found if file_name(one) not in dropped} if dropped else found

    @property
    def dropped(self) -> Path:
        """The folder with a file for each deleted feature, unless work on it began again."""
        return self.project.cache / "dropped"

    def ensure(self) -> None:
        """Create the project's files before the first record is saved."""
        if self.project.has_id:
            return
        try:
            self.project.init()
        except OSError as error:
            what = "the project's files cannot be made ({})"
            raise disk_error(what, self.project.folder, error, FREE_SPACE) from error


# -- Retention: how old a record is, and work that is done at most once a day.


_EVERY = timedelta(days=1)


def days_before(days: int, at: datetime | None = None) -> datetime:
    """Return the time this many days ago."""
    return (at or datetime.now(UTC)) - timedelta(days=days)


def is_before(at: str, limit: datetime) -> bool:
    """Whether a time is before the limit; False for a bad one, which `journal verify` reports."""
    try:
        return datetime.fromisoformat(utc(at)) < limit
    except errors.BadRecord:
        return False


def once_a_day(stamp: Path, at: datetime | None, work: Callable[[datetime], _T]) -> _T | None:
    """Do the work and return its result, or return None if it was done within a day.

    A stamp in the future is ignored: the clock was wrong.
    """
    moment = at or datetime.now(UTC)
    with contextlib.suppress(OSError, ValueError, TypeError):  # never done, or unreadable
        last = datetime.fromisoformat(stamp.read_text(encoding="ascii").strip())
        if timedelta() <= moment - last < _EVERY:
            return None
    done = work(moment)
    try:
        disk.make_folder(stamp.parent)
        disk.replace(stamp, moment.isoformat(timespec="seconds").encode() + b"\n")
    except OSError as error:
        what = f"when it was pruned cannot be noted ({error.strerror or error})"
        todo = "Permit writing there, or set RALPH_HOME to a folder of yours."
        raise errors.IndexOff(what, where=str(stamp), todo=todo) from error
    return done
