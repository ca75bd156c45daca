"""Ralph: all memories of a project, opened together."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from ralph import disk
from ralph.config import Config, home_folder, load
from ralph.current_run import agents_run
from ralph.errors import BadInput, NotAProject, NotFound
from ralph.index.sync import Progress
from ralph.journal.file import JournalFolder
from ralph.memory.anchors import SavedAnchor
from ralph.memory.conversations import Conversations
from ralph.memory.feature import FeatureMemory, NoteMemory, SavedIteration
from ralph.memory.part import MemoryPart, Reach, SearchRequest
from ralph.memory.project import Project, find_project, need_project
from ralph.memory.project_memory import ProjectMemory
from ralph.memory.standing import CodeStandings, keep_anchors
from ralph.memory.store import (
    CONVERSATIONS,
    KNOWLEDGE,
    MEMORIES,
    SHORTEST_ID,
    Answer,
    ProjectStore,
    Stream,
    find_id,
)
from ralph.recall import PERSON, Hit, Scope, event_of
from ralph.recall.kinds import KINDS, kinds_of
from ralph.recall.search import conclude
from ralph.records import Source
from ralph.records.conversation import EXCHANGE
from ralph.records.iteration import KIND as ITERATION
from ralph.records.iteration import RECENT_COUNT, Iteration, read_iteration
from ralph.records.note import NOTE, Author, Note, make_note

if TYPE_CHECKING:
    from ralph import index
    from ralph.memory.brief import Brief
    from ralph.memory.conversations import ProjectCount
    from ralph.memory.file_work import FileWork
    from ralph.memory.invocations import HowTo
    from ralph.memory.knowledge import Knowledge
    from ralph.memory.lessons import Solved
    from ralph.memory.plan_stream import PlanStream
    from ralph.memory.project import Focus
    from ralph.memory.status import RagStatus
    from ralph.plan.model import PlanView


class Ralph:
    """The memories of one project. Close it, or use it in a `with` block."""

    # Whether the memories are on a server.
    remote = False
    store: ProjectStore
    config: Config
    own: ProjectMemory

    def __init__(self, store: ProjectStore, config: Config, *, private_notes: bool = True) -> None:
        self.store = store
        self.config = config
        self._private_notes = private_notes
        self.own = ProjectMemory(store)

    @property
    def project(self) -> Project:
        """The project this memory belongs to."""
        return self.store.project

    @property
    def reads_private_notes(self) -> bool:
        """Whether this is a person's own memory, not one that is served to others."""
        return self._private_notes

    @property
    def where(self) -> str:
        """The project's folder, or its address on a server."""
        return str(self.project.root)

    # -- what a memory on a server does in another way: see RemoteRalph

    @property
    def place(self) -> str:
        """Where it is, in words for people."""
        return f"project {self.where}"

    @property
    def has_project(self) -> bool:
        """Whether there is a project that others can share, not a plain folder."""
        return self.project.exists

    @property
    def saves_to(self) -> str:
        """Where a note for everybody is saved, in words for people."""
        return "for the project"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which another process finds this memory."""
        return {}

    @property
    def progress(self) -> Progress | None:
        """What is told how far a long indexing is."""
        return self.store.progress

    @property
    def waiting(self) -> int:
        """How many calls wait on this machine for a server."""
        return 0

    @property
    def is_reached(self) -> bool:
        """Whether the journals answer, so that an empty memory is known to be empty."""
        return self.store.journals.trouble() is None

    @property
    def journal_files(self) -> JournalFolder | None:
        """The journals of the project, if they are files here."""
        journals = self.store.journals
        return journals if isinstance(journals, JournalFolder) else None

    @property
    def silent_ids(self) -> frozenset[str]:
        """The ids of what is not told unasked any more."""
        from ralph.memory.uses import read_silent

        return read_silent(self.project)

    @property
    def common_words(self) -> frozenset[str]:
        """The words that say little in this project."""
        from ralph.memory.project_words import read_common_words

        return read_common_words(self.project)

    def other_projects(self) -> list[ProjectCount] | None:
        """Return what each other project has in Ralph's home; None if that is not known."""
        return self.conversations.other_projects()

    def status(self) -> RagStatus:
        """Return whether memory works, and how much is in it."""
        from ralph.memory.status import status

        return status(self)

    def brief(
        self, view: PlanView, focus: Focus | None, *, without: frozenset[str] = frozenset()
    ) -> Brief:
        """Return what someone who starts to work here should know."""
        from ralph.memory.brief import brief

        return brief(self, view, focus, without=without)

    def solved(
        self,
        message: str,
        *,
        feature: str | None = None,
        file: str | None = None,
        budget_s: float | None = None,
    ) -> Solved | None:
        """Return how this project solved an error before."""
        from ralph.memory.lessons import solved

        return solved(self, message, feature=feature, file=file, budget_s=budget_s)

    @functools.cached_property
    def conversations(self) -> Conversations:
        """The conversations of this project. They are stored in Ralph's home."""
        project = self.project
        more = {"private_notes": self._private_notes, **self._shared()}
        return Conversations(ids=project.ids, project=project.root.name, **more)

    @functools.cached_property
    def knowledge(self) -> Knowledge:
        """What all projects learned. For orchestrators, not for the agents themselves."""
        from ralph.memory.knowledge import Knowledge  # hooks start faster without it

        return Knowledge(project_id=self.project.id, **self._shared())

    def _shared(self) -> dict[str, Any]:
        names = ("home", "settings", "embedder", "progress")
        return {name: getattr(self.store, name) for name in names}

    def part(self, memory: str) -> MemoryPart:
        """Return one of the memories by its name."""
        if memory == CONVERSATIONS:
            return self.conversations
        return self.knowledge if memory == KNOWLEDGE else self.own

    def parts(self, keepers: Collection[str] = MEMORIES) -> list[MemoryPart]:
        """Return these memories, by default all of them."""
        return [self.part(name) for name in MEMORIES if name in keepers]

    def feature(self, name: str) -> FeatureMemory:
        """Return the memory of one feature, even if it is not in the plan."""
        return self.own.feature(name)

    def features(self) -> list[FeatureMemory]:
        """Return every feature that has a journal."""
        return self.own.features()

    @property
    def notes(self) -> NoteMemory:
        """The notes of this project."""
        return self.own.notes

    @property
    def plan(self) -> PlanStream:
        """The plan's learnings and features, as search sees them."""
        return self.own.plan

    def __repr__(self) -> str:
        """Return a short text with the project's folder."""
        return f"<Ralph {self.project.root}>"

    # -- writing

    def remember(
        self,
        text: str,
        *,
        feature: str = "",
        private: bool = False,
        by: Author = "human",
        replaces: str = "",
    ) -> tuple[Note, bool]:
        """Save a note about the project or one feature; return it and whether it is new.

        A private note is stored in Ralph's home, where others who have the project do not see it.
        `replaces` is the id of a note or an exchange whose words no longer hold.
        """
        from ralph.memory.moments import write_moments  # hooks start faster without it

        if agents_run() is not None:  # a script of an agent may call this, too
            by = "agent"
        older = self._replaceable(replaces) if replaces else ""
        note = make_note(text, feature=feature, by=by, replaces=older)
        saved = (self.conversations if private else self.notes).remember(note)
        if older and by == "human":
            from ralph.memory.inbox import add_replacement

            add_replacement(self, older, by=saved[0].id)
        write_moments(self)
        return saved

    def _replaceable(self, name: str) -> str:
        """Return the whole id of a note or an exchange, which a newer note may replace."""
        hit = self.get(name)
        if hit.kind not in (NOTE, EXCHANGE):
            raise BadInput(
                f"{name} is no note and no exchange but a {hit.label}, which a note cannot replace",
                todo="To change the plan: ralph learning, ralph feature. To delete: ralph forget.",
            )
        return hit.id

    def remember_all(
        self,
        iterations: Sequence[Iteration | Mapping[str, Any]],
        *,
        sources: Sequence[Source | None] | None = None,
    ) -> list[SavedIteration]:
        """Save many iterations, each under its feature; nothing unless all of them are valid."""
        given = sources or [None] * len(iterations)
        ready: dict[str, dict[int, Iteration]] = {}
        for n, (told, source) in enumerate(zip(iterations, given, strict=True)):
            one = told if isinstance(told, Iteration) else read_iteration(told)
            fit = self.feature(one.feature).prepare(one, source)
            ready.setdefault(fit.feature, {})[n] = fit
        saved: dict[int, SavedIteration] = {}
        for name, mine in ready.items():
            results = self.feature(name).keep(list(mine.values()), [given[n] for n in mine])
            saved.update(zip(mine, results, strict=True))
        return [saved[n] for n in range(len(iterations))]

    def anchor(self, anchors: Sequence[SavedAnchor]) -> None:
        """Save which lines new records left in the files of this working copy."""
        keep_anchors(self.project, anchors)

    @functools.cached_property
    def standings(self) -> CodeStandings:
        """How the code of records stands in this working copy."""
        return CodeStandings(self.project)

    def work_on(self, paths: Collection[str], scope: Scope = PERSON) -> list[FileWork]:
        """Return the records that worked on a file that has or had these paths."""
        from ralph.memory.file_work import work_on  # hooks start faster without it

        return work_on(self, paths, scope)

    def how_to(self, question: str, scope: Scope = PERSON) -> HowTo:
        """Return which commands did in earlier sessions what the question asks for."""
        from ralph.memory.invocations import how_to  # hooks start faster without it

        return how_to(self, question, scope)

    # -- searching: everything that the caller may see, as one memory

    def search(
        self,
        query: str,
        *,
        kinds: Collection[str] = (),
        features: Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
        tags: Collection[str] = (),
        everywhere: bool = False,
        limit: int | None = None,
        min_score: float | None = None,
        meaning: bool = True,
        exclude: str | None = None,
        budget_s: float | None = None,
        scope: Scope = PERSON,
    ) -> Answer:
        """Search everything that the caller may see; each hit has its kind.

        `kinds`, `features` and `tags` narrow the search; `since` and `until` are days, inclusive.
        `exclude` is a conversation to leave out. `budget_s` limits the time to index what is new in
        the journals.
        """
        bounds: dict[str, Any] = {"limit": limit, "min_score": min_score}
        question = self.store.question(query, since=since, until=until, **bounds)
        question = msgspec.structs.replace(question, spread=True)
        reach = self._reach(scope, kinds, features, tags, since, until)
        request = SearchRequest(
            question,
            reach,
            tags=tags,
            everywhere=everywhere,
            dated=bool(since or until),
            meaning=meaning,
            exclude=exclude,
            budget_s=budget_s,
        )
        found = [each for part in self.parts(reach.keepers) for each in part.answers(request)]
        hits = self._with_standing(conclude(question, found, reach.has))
        return Answer(hits, tuple(dict.fromkeys(note for each in found for note in each.notes)))

    def _with_standing(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits with how their code stands; those whose code is gone come later."""
        if not self._private_notes:
            return list(hits)  # a server has no working copy
        return self.standings.added_to(self._with_replaced(hits))

    def _with_replaced(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits with what a person said later in their place."""
        if not self._private_notes:
            return hits
        # Hooks start faster without it.
        from ralph.memory.replaced import read_replaced, with_replacements

        replaced = read_replaced(self.project)
        return [with_replacements(hit, replaced) for hit in hits] if replaced else hits

    def recent(
        self,
        count: int = RECENT_COUNT,
        *,
        kinds: Collection[str] = (),
        features: Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
        everywhere: bool = False,
        scope: Scope = PERSON,
    ) -> Answer:
        """Return the latest records of any kind, newest first."""
        if count < 1:
            raise BadInput(f"count must be at least 1, not {count}")
        count = min(count, sys.maxsize)
        reach = self._reach(scope, kinds, features, (), since, until, only_daily=not kinds)
        newest = None if since or until or everywhere else count
        hits = self._find("", reach, everywhere=everywhere, newest=newest)
        fit = list(filter(reach.has, reversed(hits)))
        if not kinds:
            fit = [hit for hit in fit if KINDS[hit.kind].daily]
        fit.sort(key=lambda hit: hit.at, reverse=True)
        # If an exchange in a person's session was also an iteration, list only the iteration.
        iterations = {event_of(hit) for hit in fit if hit.kind == ITERATION}
        fit = [h for h in fit if h.kind == ITERATION or h.id not in iterations][:count]
        return Answer(list(self._with_replaced(fit)))

    def get(
        self,
        record_id: str,
        *,
        everywhere: bool = False,
        scope: Scope = PERSON,
    ) -> Hit:
        """Return one record of any kind, by its id or a prefix of it.

        `everywhere`: if this project has none, look in the conversations of other projects, too.
        """
        reach = self._reach(scope, (), None)
        others = "" if everywhere else " `ralph show ID --everywhere` looks in other projects too."
        todo = f"`ralph recent` lists records with their ids.{others}"
        missing = NotFound(f"there is no record {record_id!r}", todo=todo)
        if len(record_id) < SHORTEST_ID:
            raise NotFound(f"{record_id!r} is too short: an id needs at least four characters")
        found = self._find(record_id, reach)
        if not found and everywhere:
            found = self._find(record_id, reach, everywhere=True)
        found = list(filter(reach.has, found))
        begins = record_id.lower()
        if not found and any(part.is_forgotten(begins) for part in self.parts(reach.keepers)):
            raise NotFound(f"record {record_id!r} was forgotten")
        find_id(record_id, [hit.id for hit in found], missing)
        return self._with_standing(found[-1:])[0]

    def _find(
        self, begins: str, reach: Reach, *, everywhere: bool = False, newest: int | None = None
    ) -> list[Hit]:
        """Return every record of these memories whose id begins like this."""
        hits: list[Hit] = []
        for part in self.parts(reach.keepers):
            hits += part.find(begins, reach=reach, everywhere=everywhere, newest=newest)
        return hits

    def _reach(
        self,
        scope: Scope,
        kinds: Collection[str],
        features: Sequence[str] | None,
        tags: Collection[str] = (),
        since: str | None = None,
        until: str | None = None,
        only_daily: bool = False,
    ) -> Reach:
        """Return what a call covers in this scope."""
        wanted = kinds_of(kinds) if kinds else None
        rows = [KINDS[kind] for kind in (KINDS if wanted is None else wanted)]
        keepers = scope.keepers & {
            keeper for row in rows if row.daily or not only_daily for keeper in row.keepers
        }
        if scope.feature is not None:
            features = [scope.feature]
        if features is not None:
            keepers -= {"knowledge"}
        if tags:
            keepers &= {"conversations"}
        if not self.config.settings.knowledge_receive:
            keepers -= {"knowledge"}
        if not (since or until):
            return Reach(wanted, keepers, features)
        from ralph.text.times import moments_between

        return Reach(wanted, keepers, features, *moments_between(since, until))

    def streams(self, feature: str | None = None) -> list[Stream]:
        """Return every stream of this project that is not empty, or only that of a feature."""
        if feature is not None:
            return [self.feature(feature)]
        names = self.store.names()
        found: list[Stream] = [one for one in self.own.streams() if one.name in names]
        found += self.conversations.stream.parts if self.conversations.exist else ()
        return found + ([self.knowledge] if self.knowledge.store.names() else [])

    def orphans(self) -> list[index.Collection]:
        """Return collections whose journal is gone, or that belong to another project (F24)."""
        return self.own.orphans()

    def prune(self) -> list[str]:
        """Delete orphan collections and unused index files; return their names."""
        return self.own.prune()

    def close(self) -> None:
        """Close files. Nothing is lost without it."""
        _claim(self.project)
        self.store.close()
        for name in {"conversations", "knowledge"} & self.__dict__.keys():
            getattr(self, name).store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_ralph(
    path: str | os.PathLike[str] | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    project: Project | None = None,
    token: str = "",
    private_notes: bool = True,
    **settings: Any,
) -> Ralph:
    """Open the memories of the project at `path`, or of the one around the current folder.

    A folder without a project gets one when the first record is saved. A URL like
    `https://HOST/projects/NAME` is a project on a server; without `token` it uses RALPH_TOKEN.
    Without `private_notes` private notes cannot be read: for a server, which others use.
    """
    if isinstance(path, str) and path.startswith(("https://", "http://")):
        from ralph.memory.remote import RemoteRalph

        # It has the same methods; those it does not support raise an error that says so.
        return cast("Ralph", RemoteRalph(path, token or os.environ.get("RALPH_TOKEN", "").strip()))
    home_path = Path(home) if home is not None else home_folder()
    if path is None:
        project = project or need_project(Path.cwd(), home=home_path)
    else:
        root = Path(path)
        if not root.parent.exists():  # the folder may be new, but its parent must exist
            todo = "Check the path, or create the folder."
            raise NotAProject("there is no such folder", where=str(root), todo=todo)
        project = find_project(root, home=home_path) or Project(root.resolve(), home_path)
        if project.folder.resolve() == home_path.resolve():
            raise NotAProject(
                "its .ralph folder is Ralph's home, for what belongs to no project",
                where=str(root),
                todo="Open the folder of a project, or set RALPH_HOME to another place.",
            )
    disk.protect(home_path)
    _claim(project)
    config = load(home=home_path, project_file=project.settings_file, given=settings)
    store = ProjectStore(project, config.settings, home=home_path, progress=progress)
    return Ralph(store, config, private_notes=private_notes)


def _claim(project: Project) -> None:
    """Note that the id belongs to this folder, before and after private records are saved."""
    if disk.is_folder(project.home):
        project.claim()
