"""What every memory is built on: journals, the index that follows them, the embedder."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ralph import disk
from ralph.config import Settings
from ralph.errors import BadInput, EmbedderOff, IndexOff, JournalDown, JournalError, MemoryOff
from ralph.index import Embedder
from ralph.index.open import Index, choose_embedder, open_index
from ralph.index.sync import IndexSpec, Progress, is_current_in, live_of
from ralph.journal import Journals
from ralph.journal.file import JournalFolder
from ralph.memory.project import Project
from ralph.recall import Answer, Hit, ScoredRecord
from ralph.recall.search import Question, search, search_plainly
from ralph.records import Record

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.journal.spool import SpooledJournals

MOST_HITS = 20
# An answer of Qdrant may take this many times the budget.
_QDRANT_SHARE = 2.5


# -- Where the journals of each memory are: in files, or on the server that the settings name.


CONVERSATIONS, KNOWLEDGE = "conversations", "knowledge"
# Where in Ralph's home what must wait for a server is kept.
SPOOL = "spool"
_log = logging.getLogger("ralph")


def feature_journals(
    project: Project, settings: Settings, home: Path, *, warns: bool = True
) -> Journals:
    """The journals of a project's features; `warns` of what waits though no server is set."""

    def memory() -> str:
        return f"feature/{project.id}"

    return _open(settings, project.journals, ".ralph/db/memory", memory, home, warns)


def home_journals(memory: str, settings: Settings, home: Path, *, warns: bool = True) -> Journals:
    """The journals of what was said or learned, one a project."""
    folder = home / "journal" / memory
    return _open(settings, folder, f"journal/{memory}", lambda: memory, home, warns)


def _open(
    settings: Settings,
    folder: Path,
    shown_as: str,
    memory: Callable[[], str],
    home: Path,
    warns: bool,
) -> Journals:
    spools, lock_timeout_s = home / SPOOL, settings.journal_lock_timeout_s
    if not settings.journal_url:
        # What waits for a server is not brought into these files: whoever lacks the address (an
        # agent does) must not decide that.
        if warns and spools.is_dir():
            _warn_of_waiting(spools, memory())
        return JournalFolder(folder, shown_as=shown_as, lock_timeout_s=lock_timeout_s)
    from ralph.journal.spool import server_journals

    return server_journals(
        settings.journal_url,
        memory,
        spools,
        lock_timeout_s=lock_timeout_s,
        connect_timeout_s=settings.remember_budget_s,
    )


def on_server(journals: Journals) -> SpooledJournals | None:
    """The journals as those of a server; None where they are files."""
    if isinstance(journals, JournalFolder):
        return None
    from ralph.journal.spool import SpooledJournals

    return journals if isinstance(journals, SpooledJournals) else None


def _warn_of_waiting(spools: Path, memory: str) -> None:
    from ralph.journal.spool import spool_folder, waiting_names

    if waiting_names(spool_folder(spools, memory)):
        _log.warning(
            "memory: records wait in %s for a journal's server, but journal_url is not set here; "
            "set it, or bring them into the files with: ralph journal deliver",
            spools,
        )


_SHORTEST_QUERY = 3
_TRIES = 3


class Stream(Protocol):
    """One journal as its memory understands it."""

    @property
    def name(self) -> str:
        """The journal's name."""
        ...

    @property
    def foreign(self) -> bool:
        """Whether it belongs to another project, whose embedder may be another one."""
        ...

    def target(self) -> IndexSpec:
        """What the index needs to know to follow the journal."""
        ...

    def records(self) -> list[Record]:
        """Every living record."""
        ...

    def hits(self, found: Sequence[ScoredRecord], last_number: int) -> list[Hit]:
        """What recall found, as an answer."""
        ...


class Store:
    """Journals in a folder, the index that follows them, and the embedder they share."""

    def __init__(
        self,
        journals: Journals,
        index: Index,
        embedder: Embedder | None,
        settings: Settings,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.journals = journals
        self.index = index
        self.embedder = embedder
        self.settings = settings
        self.progress = progress
        self._told: set[str] = set()

    def names(self) -> set[str]:
        """The streams there is anything in."""
        return set(self.journals.names())

    def need_journals(self) -> None:
        """Refuse with JournalDown while their server is away: what is known here is not all."""
        server = on_server(self.journals)
        if server is not None:
            server.server.names()

    def sync_soon(self, target: IndexSpec) -> None:
        """Index within the budget. The journal has the record already, so trouble is only told."""
        try:
            budget_s = self.settings.remember_budget_s
            synced = self.index.sync(target, budget_s=budget_s, changed=True)
        except JournalDown:
            pass  # that was told when the server was not reached
        except MemoryOff as error:
            self._tell(f"not indexed yet: {error}")
        else:
            if synced.embedder_off:
                self._tell(f"indexed by words alone: {synced.embedder_off}")

    def erase_soon(self, target: IndexSpec) -> None:
        """Take what the journal no longer has out of the index's file, its bytes too."""
        try:
            self.index.erase(target, lock_timeout_s=self.settings.journal_lock_timeout_s)
        except MemoryOff as error:
            # The truth is clean already. An index that cannot be cleaned is thrown away.
            self._tell(f"the index could not be cleaned, so it is deleted: {error}")
            try:
                self.index.delete()
            except MemoryOff as worse:
                self._tell(f"forgotten text may still stand in an old index: {worse}")

    def question(self, text: str, *, limit: int | None, min_score: float | None) -> Question:
        """The question with the defaults filled in, or an error that helps."""
        # A terminal may hand over bytes that are no text.
        plain = text.encode(errors="replace").decode().strip()
        if len(plain) < _SHORTEST_QUERY and plain.isascii():
            raise BadInput(
                f"the query {plain!r} is too short to search for",
                todo='Ask in a few words, for example: "login form validation".',
            )
        wanted = self.settings.search_limit if limit is None else limit
        if wanted < 1:
            raise BadInput(f"limit must be at least 1, not {wanted}")
        floor = self.settings.min_score if min_score is None else min_score
        if not 0.0 <= floor <= 1.0:
            raise BadInput(f"min_score goes from 0 to 1, not {floor}")
        return Question(plain, min(wanted, MOST_HITS), floor)

    def ask(
        self,
        streams: Sequence[Stream],
        question: Question,
        *,
        meaning: bool = True,
        budget_s: float | None = None,
    ) -> Answer:
        """Search these streams as one, with what is there: meaning and words, or words alone.

        `budget_s` bounds the catching up with the journals; what it leaves is not found yet.
        """
        names = self.names()
        streams = [one for one in streams if one.name in names]
        notes: list[str] = []
        if not streams:
            return Answer()  # and no index is made where there is nothing to find
        try:
            found = self.index.with_repair(
                lambda: self._by_index(streams, question, notes, meaning=meaning, budget_s=budget_s)
            )
        except MemoryOff as error:
            notes[:] = [f"searched the journal by words alone: {error}"]
            found = self._by_journal(streams, question)
        if trouble := self.journals.trouble():
            notes.append(trouble)
        return Answer(found, tuple(dict.fromkeys(notes)))

    def _by_index(
        self,
        streams: Sequence[Stream],
        question: Question,
        notes: list[str],
        *,
        meaning: bool,
        budget_s: float | None,
    ) -> list[Hit]:
        by_stream = {stream.name: stream for stream in streams}
        targets = {stream.name: stream.target() for stream in streams}
        for tries_left in reversed(range(_TRIES)):
            notes.clear()
            foreign = {stream.name for stream in streams if stream.foreign}
            behind, ready = self._caught_up(targets, notes, budget_s, foreign)
            vector = self._vector(question.text, notes) if meaning else None
            with self.index.store.state() as view:
                if tries_left and not all(is_current_in(view, targets[name]) for name in ready):
                    continue  # it was deleted, replaced or written to in between
                names = sorted(target.name for target in targets.values())
                live = [one for name in names if (one := live_of(view, name)) is not None]
                identity = self.embedder.identity if self.embedder else "none"
                found = search(view, live, question, vector=vector, embedder=identity)
                last = {one.stream: one.last_number for one in live}
            break
        if len(live) < len(targets):
            raise IndexOff("the index is deleted again and again", where=str(self.index.path))
        # The index may not know yet what was forgotten; nor does anybody while the server is away.
        for name in behind if self.journals.trouble() is None else ():
            living = {record.id for record in by_stream[name].records()}
            found = [one for one in found if one.stream != name or one.record.id in living]
        return _shown(found, by_stream, last)

    def _caught_up(
        self,
        targets: dict[str, IndexSpec],
        notes: list[str],
        budget_s: float | None,
        foreign: set[str],
    ) -> tuple[set[str], set[str]]:
        """Sync them all; which are behind because somebody else is at it, and which are ready."""
        behind: set[str] = set()
        ready: set[str] = set()
        for name, target in targets.items():
            if name in foreign and self._built_otherwise(target):
                continue  # its own project keeps it up; here it is searched by words
            synced = self.index.sync(target, budget_s=budget_s, progress=self.progress)
            if synced.embedder_off:
                notes.append(f"searched by words alone: {synced.embedder_off}")
            elif synced.complete:
                ready.add(name)
            else:
                behind.add(name)
                notes.append("the index is not complete yet; ask again soon")
        return behind, ready

    def _built_otherwise(self, target: IndexSpec) -> bool:
        with self.index.answering(target.name) as (_, live):
            pass
        return live is not None and live.manifest.embedder != target.manifest().embedder

    def _by_journal(self, streams: Sequence[Stream], question: Question) -> list[Hit]:
        by_stream = {stream.name: stream for stream in streams}
        held = [(one.name, record) for one in streams for record in one.records()]
        last: dict[str, int] = {}
        for stream, record in held:
            last[stream] = max(last.get(stream, 0), record.number)
        found: list[ScoredRecord] = []
        if streams:
            found = search_plainly(held, streams[0].target().cut, question)
        return _shown(found, by_stream, last)

    def _vector(self, text: str, notes: list[str]) -> Vectors | None:
        if self.embedder is None:
            notes.append("searched by words alone: the setting embedder is none")
            return None
        try:
            return self.embedder.embed_query(text)
        except EmbedderOff as error:
            notes.append(f"searched by words alone: {error}")
            return None

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log.warning("memory: %s", text)


def _shown(
    found: Sequence[ScoredRecord], by_stream: dict[str, Stream], last: dict[str, int]
) -> list[Hit]:
    return [hit for one in found for hit in by_stream[one.stream].hits([one], last[one.stream])]


def index_for(
    settings: Settings, folders: Sequence[Path], *, home: Path, scope: Callable[[], str]
) -> Index:
    """The index that the settings name; nothing is opened or asked before its first use."""
    return open_index(
        folders,
        home=home,
        scope=scope,
        lock_timeout_s=settings.index_lock_timeout_s,
        journal_url=settings.journal_url,
        qdrant_url=settings.qdrant_url,
        qdrant_api_key=settings.qdrant_api_key,
        qdrant_timeout_s=_QDRANT_SHARE * settings.remember_budget_s,
        qdrant_binary=settings.qdrant_binary,
    )


def make_embedder(settings: Settings, home: Path) -> Embedder | None:
    """The embedder that the settings name; it loads its model at first use."""
    return choose_embedder(settings, home / "cache")


def short_hash(text: str) -> str:
    """Eight digits that tell one text from another."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


# -- The shelf of one project: the journals of its features, and the index beside them.


class ProjectStore(Store):
    """One project's memory on this machine."""

    def __init__(
        self, project: Project, settings: Settings, *, home: Path, progress: Progress | None = None
    ) -> None:
        journals = feature_journals(project, settings, home)
        index = index_for(
            settings,
            [project.cache],
            home=home,
            scope=lambda: f"{short_hash(project.id)}-",
        )
        super().__init__(
            journals, index, make_embedder(settings, home), settings, progress=progress
        )
        self.project = project
        self.home = home

    def ensure(self) -> None:
        """Make the project's files before the first record is kept."""
        if self.project.exists and self.project.has_id:
            return
        try:
            self.project.init()
        except OSError as error:
            raise JournalError(
                f"the project's files cannot be made ({error.strerror or error})",
                where=str(self.project.folder),
                todo="Free space or permit writing there, then try again.",
            ) from error

    def collection_name(self, stream: str) -> str:
        """The collection of a feature; two projects never share one (F18)."""
        return f"{short_hash(self.project.id)}-{short_hash(stream)}"


# -- What is done at most once a day, and the file that notes when it was.


_EVERY = timedelta(days=1)


def is_due(stamp: Path, moment: datetime) -> bool:
    """Whether it was not done within a day; a stamp of the future is a clock that was wrong."""
    try:
        last = datetime.fromisoformat(stamp.read_text(encoding="ascii").strip())
        return not timedelta() <= moment - last < _EVERY
    except (OSError, ValueError, TypeError):
        return True  # never yet, or nobody knows when


def note_done(stamp: Path, moment: datetime) -> None:
    """Note that it was done now."""
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        disk.replace(stamp, moment.isoformat(timespec="seconds").encode() + b"\n")
    except OSError as error:
        raise IndexOff(
            f"when it was pruned cannot be noted ({error.strerror or error})",
            where=str(stamp),
            todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
        ) from error
