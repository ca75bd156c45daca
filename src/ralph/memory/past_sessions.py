"""The sessions that all clients stored on this machine: how many are new, and importing them.

Someone who installs Ralph has months of them. Importing can be killed and repeated at any time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph.clients import BY_SOURCE
from ralph.errors import MemoryOff, RalphError
from ralph.memory.conversation_stream import ConversationImport
from ralph.memory.moments import write_moments
from ralph.memory.project import Project, project_or_folder
from ralph.memory.ralph import open_ralph
from ralph.memory.sessions import Importer, SessionHome

if TYPE_CHECKING:
    from ralph.memory.store import Store

# About 100,000 exchanges. The rest is indexed by the next search.
_INDEX_BUDGET_S = 60.0


class ClientHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one client that are not in memory yet; `projects` are the ids of theirs."""

    title: str
    sessions: int
    projects: frozenset[str]


class ImportedProject(msgspec.Struct, frozen=True, kw_only=True):
    """A project that got sessions; `root` is its folder, which may no longer exist."""

    name: str
    root: str | None


class PastSessions:
    """The sessions of these clients, or of all clients that have any on this machine.

    `within` leaves out the sessions of other projects. `progress` is called with how many of
    `total_bytes` were read.
    """

    def __init__(
        self,
        store: Store,
        *,
        clients: Collection[str] = BY_SOURCE,
        folder: Path | None = None,
        within: Project | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        self._store = store
        every = len(clients) > 1
        importers = [
            Importer(client, store, folder=folder, within=within, progress=progress)
            for client in clients
        ]
        # Of all clients, those that were never used here are no error.
        self.importers = [each for each in importers if not every or each.folder.exists()]

    @property
    def total_bytes(self) -> int:
        """How many bytes there are to read."""
        return sum(each.total_bytes for each in self.importers)

    @property
    def agents(self) -> list[str]:
        """The names, as `--agent` takes them, of the clients with sessions on this machine."""
        return [each.agent for each in self.importers]

    @property
    def folders(self) -> list[Path]:
        """The folders that hold the sessions."""
        return [each.folder for each in self.importers]

    def new(self) -> list[ClientHistory]:
        """Return how many sessions of each client are not in memory yet; only clients with some."""
        histories: list[ClientHistory] = []
        for each in self.importers:
            homes = each.new_sessions()
            if homes:
                projects = frozenset(home.ids[0] for home in homes)
                histories.append(
                    ClientHistory(title=each.title, sessions=len(homes), projects=projects)
                )
        return histories

    def once(self) -> ConversationImport:
        """Import what is new."""
        for each in self.importers:
            each.measure()
        return _sum_of([each.once() for each in self.importers])

    def index(self) -> None:
        """Index what was imported, so that the first question need not wait."""
        for stream in (stream for each in self.importers for stream in each.streams):
            with contextlib.suppress(MemoryOff):  # the next search catches up
                for part in stream.parts:
                    part.sync(budget_s=_INDEX_BUDGET_S)

    def projects(self) -> list[ImportedProject]:
        """Return the projects that got sessions, each once."""
        found: dict[str, ImportedProject] = {}
        for home in self._homes():
            found.setdefault(home.ids[0], ImportedProject(name=home.project, root=home.root))
        return list(found.values())

    def write_moments(self) -> None:
        """Let hooks say something of the imported sessions, in each folder that still exists."""
        roots = {project.root for project in self.projects() if project.root}
        for root in sorted(roots):
            folder = Path(root)
            if not folder.is_dir():
                continue
            with contextlib.suppress(RalphError, OSError):  # its own hooks report it
                project = project_or_folder(folder, home=self._store.home, general=True)
                with open_ralph(project=project) as ralph:
                    write_moments(ralph)

    def _homes(self) -> Sequence[SessionHome]:
        return [home for each in self.importers for home in each.homes]


def _sum_of(results: Sequence[ConversationImport]) -> ConversationImport:
    total = ConversationImport()
    for result in results:
        for name in ConversationImport.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(result, name))
    return total
