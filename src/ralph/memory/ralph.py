"""Ralph: all memories of a project, opened together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ralph import disk
from ralph.config import Config, home_folder, load
from ralph.errors import BadInput, NotAProject, NotFound
from ralph.index import Collection
from ralph.index.sync import Progress
from ralph.memory.conversations import Conversations
from ralph.memory.feature import FeatureMemory, SavedIteration
from ralph.memory.project import Project, find_project, need_project
from ralph.memory.store import ProjectStore
from ralph.recall import Answer, Hit
from ralph.records import Source
from ralph.records.iteration import Iteration, read_iteration

if TYPE_CHECKING:
    from ralph.memory.knowledge import Knowledge


_SHORTEST_ID = 4


class Ralph:
    """The memories of one project. Close it, or use it in a `with` block."""

    def __init__(self, place: ProjectStore, config: Config) -> None:
        self.place = place
        self.config = config
        self._features: dict[str, FeatureMemory] = {}
        self._conversations: Conversations | None = None
        self._knowledge: Knowledge | None = None

    @property
    def project(self) -> Project:
        """The project this memory belongs to."""
        return self.place.project

    @property
    def conversations(self) -> Conversations:
        """The conversations that were held in this project; they are kept in Ralph's home."""
        if self._conversations is None:
            place = self.place
            self._conversations = Conversations(
                home=place.home,
                settings=place.settings,
                embedder=place.embedder,
                project_id=place.project.id,
                project=place.project.root.name,
                progress=place.progress,
            )
        return self._conversations

    @property
    def knowledge(self) -> Knowledge:
        """What all projects learned; for whoever directs agents, not for the agents."""
        if self._knowledge is None:
            from ralph.memory.knowledge import Knowledge  # a hook starts without it

            place = self.place
            self._knowledge = Knowledge(
                home=place.home,
                settings=place.settings,
                embedder=place.embedder,
                project_id=place.project.id,
                progress=place.progress,
            )
        return self._knowledge

    def feature(self, name: str) -> FeatureMemory:
        """The memory of one feature, whether or not a plan names it."""
        if name not in self._features:
            self._features[name] = FeatureMemory(name, self.place)
        return self._features[name]

    def features(self) -> list[FeatureMemory]:
        """Every feature that has a journal."""
        return [self.feature(name) for name in self.place.journals.names()]

    def remember_all(
        self,
        iterations: Sequence[Iteration | Mapping[str, Any]],
        *,
        sources: Sequence[Source | None] | None = None,
    ) -> list[SavedIteration]:
        """Keep many, each under the feature it names; nothing is written unless all of them fit."""
        given = sources or [None] * len(iterations)
        ready: dict[str, list[tuple[int, Iteration]]] = {}
        for place, (told, source) in enumerate(zip(iterations, given, strict=True)):
            one = told if isinstance(told, Iteration) else read_iteration(told)
            fit = self.feature(one.feature).prepare(one, source)
            ready.setdefault(fit.feature, []).append((place, fit))
        kept: dict[int, SavedIteration] = {}
        for name, some in ready.items():
            places = [place for place, _ in some]
            remembered = self.feature(name).keep(
                [one for _, one in some], [given[place] for place in places]
            )
            kept.update(zip(places, remembered, strict=True))
        return [kept[place] for place in range(len(iterations))]

    def search(
        self,
        query: str,
        *,
        features: Sequence[str] | None = None,
        limit: int | None = None,
        min_score: float | None = None,
        budget_s: float | None = None,
    ) -> Answer:
        """Search some features, or all of the project, as one.

        `budget_s` bounds the catching up with the journals before it.
        """
        question = self.place.question(query, limit=limit, min_score=min_score)
        chosen = self.features() if features is None else [self.feature(f) for f in features]
        return self.place.ask(chosen, question, budget_s=budget_s)

    def get(self, record_id: str, *, features: Sequence[str] | None = None) -> Hit:
        """One record of some features, or of any, by its id or the beginning of it."""
        chosen = self.features() if features is None else [self.feature(f) for f in features]
        found = [hit for feature in chosen for hit in feature.find(record_id)]
        if not found or len(record_id) < _SHORTEST_ID:
            buried = {i for one in chosen for i in one.forgotten()}
            if len(record_id) >= _SHORTEST_ID and any(i.startswith(record_id) for i in buried):
                raise NotFound(f"record {record_id!r} was forgotten, and stays so")
            raise NotFound(
                f"there is no record {record_id!r}",
                todo="`ralph recent` lists records with their ids.",
            )
        ids = {hit.id for hit in found}
        if len(ids) > 1:
            raise BadInput(f"{record_id} is the beginning of {len(ids)} ids; give more of it")
        return found[-1]

    def orphans(self) -> list[Collection]:
        """Collections whose journal is gone, or that belong to another project (F24)."""
        self.place.need_journals()  # one that is away is not gone
        expected = {feature.target().name for feature in self.features()}
        return [one for one in self.place.index.collections() if one.name not in expected]

    def prune(self) -> list[str]:
        """Delete orphan collections and index files that no longer serve, and name them."""
        gone = list(dict.fromkeys(one.name for one in self.orphans()))
        for name in gone:
            self.place.index.drop(name)
        return gone + self.place.index.prune()

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        _claim(self.project)
        self.place.index.close()
        self.place.journals.close()
        if self._conversations is not None:
            self._conversations.close()
        if self._knowledge is not None:
            self._knowledge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_ralph(
    path: str | os.PathLike[str] | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Ralph:
    """Open the memories of the project at `path`, or of the one around the current folder.

    A path that holds no project yet gets one when the first record is kept.
    """
    home_path = Path(home) if home is not None else home_folder()
    if path is None:
        project = need_project(Path.cwd(), home=home_path)
    else:
        root = Path(path)
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
    return Ralph(ProjectStore(project, config.settings, home=home_path, progress=progress), config)


def _claim(project: Project) -> None:
    """Note whose the id is, before and after anything private is kept under it."""
    if disk.is_folder(project.home) and project.exists:
        project.claim()
