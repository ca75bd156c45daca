"""Desk: what the calls of one server work with, opened when a call first needs it.

Everything here belongs to the one thread that works; SQLite would refuse another.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph.doors.mcp.options import Options
from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.memories.conversations import Conversations
    from ralph.memories.feature import FeatureMemory
    from ralph.memories.project import Project
    from ralph.memories.ralph import Ralph
    from ralph.plan.store import Plan

_HINT = (
    "\n\nYou have asked memory {calls} times. Work with what you have now; "
    "ask again only about something new."
)


class Scope(msgspec.Struct, frozen=True):
    """Which feature a call may reach, None for all of the project, and the task it is about."""

    feature: str | None = None
    task_id: int | str | None = None


class Desk:
    """The project as one server may reach it."""

    def __init__(self, options: Options, start: Path) -> None:
        self.options = options
        self.start = start
        self.closed = False
        self._calls = 0
        self._ralph: Ralph | None = None
        self._conversations: Conversations | None = None

    # -- what there is

    def find_project(self) -> Project | None:
        """The project as of now; a folder may become one while the server runs."""
        from ralph.config import home_folder
        from ralph.memories.project import find_project

        return find_project(self.start, home=home_folder())

    @cached_property
    def project(self) -> Project:
        """The project, or an error that says how to make one."""
        from ralph.config import home_folder
        from ralph.memories.project import need_project

        return need_project(self.start, home=home_folder())

    @property
    def ralph(self) -> Ralph:
        """The memories, opened by the first call that needs them."""
        if self._ralph is None:
            from ralph.memories.ralph import open_ralph

            self._ralph = open_ralph(self.start)
        return self._ralph

    @cached_property
    def plan(self) -> Plan:
        """The plan of the project."""
        from ralph.plan.store import Plan

        return Plan(self.project.root, state=self.project.cache)

    @property
    def conversations(self) -> Conversations:
        """Past conversations of this project, or of none where there is none."""
        if self.find_project() is not None:
            return self.ralph.conversations
        if self._conversations is None:
            from ralph.config import home_folder
            from ralph.memories.conversations import Conversations
            from ralph.memories.shelf import make_embedder

            home, settings = home_folder(), self.settings
            embedder = make_embedder(settings, home)
            self._conversations = Conversations(home=home, settings=settings, embedder=embedder)
        return self._conversations

    @cached_property
    def settings(self) -> Settings:
        """The settings in force here."""
        from ralph.config import home_folder, load

        found = self.find_project()
        return load(
            home=home_folder(), project_file=found.settings_file if found else None
        ).settings

    # -- what may be reached

    def scope(self) -> Scope:
        """What this call may reach; a person's focus may change between two calls."""
        if self.options.mode == "feature":
            return Scope(self.options.feature, self.options.task_id)
        if self.options.mode == "focus":
            from ralph.memories.focus import read_focus

            focus = read_focus(self.project)
            return Scope(focus.feature, focus.task_id) if focus else Scope()
        return Scope()

    def memories(self) -> list[FeatureMemory]:
        """The feature memories this call may ask."""
        feature = self.scope().feature
        return self.ralph.features() if feature is None else [self.ralph.feature(feature)]

    def need_feature(self) -> str:
        """The one feature this call is about."""
        feature = self.scope().feature
        if feature is None:
            raise BadInput(
                "no feature is in focus", todo="Ask the user to run: ralph focus FEATURE [TASK]"
            )
        return feature

    def last_iteration(self, feature: str) -> int:
        """The number of the feature's newest iteration, 0 before the first."""
        records = self.ralph.feature(feature).records()
        return max((record.number for record in records), default=0)

    # -- counting and ending

    def count_call(self) -> None:
        """One more question to memory."""
        self._calls += 1

    def hint(self) -> str:
        """After many questions, a soft word to stop asking."""
        most = self.settings.mcp_calls_hint
        return _HINT.format(calls=self._calls) if most and self._calls > most else ""

    def close(self) -> None:
        """Let go of files."""
        for opened in (self._ralph, self._conversations):
            if opened is not None:
                opened.close()
        self._ralph = self._conversations = None
        self.closed = True
