"""Ralph: all memories of a project, opened together."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ralph import disk
from ralph.config import Config, home_folder, load
from ralph.errors import NotAProject, NotFound
from ralph.index import Collection
from ralph.index.sync import Progress
from ralph.memory.conversations import Conversations
from ralph.memory.feature import FeatureMemory, SavedIteration
from ralph.memory.project import PlainFolder, Project, find_project, need_project
from ralph.memory.store import Answer, ProjectStore, find_id
from ralph.recall import Hit
from ralph.records import Source
from ralph.records.iteration import Iteration, read_iteration

if TYPE_CHECKING:
    from ralph.memory.knowledge import Knowledge


_SHORTEST_ID = 4


class Ralph:
    """The memories of one project. Close it, or use it in a `with` block."""

    def __init__(self, store: ProjectStore, config: Config) -> None:
        self.store = store
        self.config = config
        self._features: dict[str, FeatureMemory] = {}

    @property
    def project(self) -> Project:
        """The project this memory belongs to."""
        return self.store.project

    @functools.cached_property
    def conversations(self) -> Conversations:
        """The conversations that were held in this project; they are kept in Ralph's home."""
        others = self.project.ids[1:]
        return Conversations(project=self.project.root.name, other_ids=others, **self._shared())

    @functools.cached_property
    def knowledge(self) -> Knowledge:
        """What all projects learned; for whoever directs agents, not for the agents."""
        from ralph.memory.knowledge import Knowledge  # a hook starts without it

        return Knowledge(**self._shared())

    def _shared(self) -> dict[str, Any]:
        store = self.store
        return {
            "home": store.home,
            "settings": store.settings,
            "embedder": store.embedder,
            "project_id": store.project.id,
            "progress": store.progress,
        }

    def feature(self, name: str) -> FeatureMemory:
        """The memory of one feature, whether or not a plan names it."""
        if name not in self._features:
            self._features[name] = FeatureMemory(name, self.store)
        return self._features[name]

    def features(self) -> list[FeatureMemory]:
        """Every feature that has a journal."""
        return [self.feature(name) for name in self.store.journals.names()]

    def remember_all(
        self,
        iterations: Sequence[Iteration | Mapping[str, Any]],
        *,
        sources: Sequence[Source | None] | None = None,
    ) -> list[SavedIteration]:
        """Keep many, each under the feature it names; nothing is written unless all of them fit."""
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
        question = self.store.question(query, limit=limit, min_score=min_score)
        chosen = self.features() if features is None else [self.feature(f) for f in features]
        return self.store.ask(chosen, question, budget_s=budget_s)

    def get(self, record_id: str, *, features: Sequence[str] | None = None) -> Hit:
        """One record of some features, or of any, by its id or the beginning of it."""
        chosen = self.features() if features is None else [self.feature(f) for f in features]
        found = [hit for feature in chosen for hit in feature.find(record_id)]
        missing = NotFound(
            f"there is no record {record_id!r}", todo="`ralph recent` lists records with their ids."
        )
        if len(record_id) < _SHORTEST_ID:
            raise missing
        if not found and any(i.startswith(record_id) for one in chosen for i in one.forgotten()):
            raise NotFound(f"record {record_id!r} was forgotten, and stays so")
        find_id(record_id, [hit.id for hit in found], missing)
        return found[-1]

    def orphans(self) -> list[Collection]:
        """Collections whose journal is gone, or that belong to another project (F24)."""
        self.store.need_journals()  # one that is away is not gone
        expected = {feature.target().name for feature in self.features()}
        return [one for one in self.store.index.collections() if one.name not in expected]

    def prune(self) -> list[str]:
        """Delete orphan collections and index files that no longer serve, and name them."""
        gone = list(dict.fromkeys(one.name for one in self.orphans()))
        for name in gone:
            self.store.index.drop(name)
        return gone + self.store.index.prune()

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        _claim(self.project)
        self.store.index.close()
        self.store.journals.close()
        for name in {"conversations", "knowledge"} & self.__dict__.keys():
            getattr(self, name).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
    return _open(project, home_path, progress, settings)


def open_folder(
    start: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    general: bool = True,
    **settings: Any,
) -> Ralph:
    """Open the memories of the project around a folder; without one, the folder's conversations.

    Nothing is created in a folder without a project. `general`: there, what was said in no folder
    at all is found too.
    """
    home_path, folder = Path(home) if home is not None else home_folder(), Path(start)
    project = find_project(folder, home=home_path)
    project = project or PlainFolder(folder, home_path, general=general)
    return _open(project, home_path, None, settings)


def _open(
    project: Project, home: Path, progress: Progress | None, settings: Mapping[str, Any]
) -> Ralph:
    disk.protect(home)
    _claim(project)
    config = load(home=home, project_file=project.settings_file, given=settings)
    return Ralph(ProjectStore(project, config.settings, home=home, progress=progress), config)


def _claim(project: Project) -> None:
    """Note whose the id is, before and after anything private is kept under it."""
    if disk.is_folder(project.home):
        project.claim()
