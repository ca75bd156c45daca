"""The state of one server: its options, its project, and its instructions for the model.

Memory and plan are opened when a call first needs them. Use everything here only in the one worker
thread; SQLite would refuse another.
"""

from __future__ import annotations

import argparse
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

import msgspec

from ralph.config import home_folder
from ralph.errors import BadInput, RalphError
from ralph.prompt.build import render
from ralph.text.sanitize import sanitize_line
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.feature import FeatureMemory
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph
    from ralph.plan.store import Plan

# After this many questions, answers tell the model to stop asking and work.
MANY_CALLS = 10


# -- The command line: mode, scope, and where to look for the project.


Mode = Literal["feature", "conversations", "planning", "focus"]

_DESCRIPTION = """\
Serve memory and plan to an agent, as MCP over stdio. Choose exactly one mode. It fixes what the
server can reach; no tool argument can get around it."""
_EPILOG = """\
The project is the one at --project, RALPH_PROJECT, CLAUDE_PROJECT_DIR or around this folder."""


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One server's mode and scope."""

    mode: Mode
    project: str | None = None
    feature: str = ""
    task_id: str | None = None
    review: bool = False
    memory: bool = True
    everywhere: bool = False
    # Leave out the tools that change anything.
    reads_only: bool = False
    # Serve knowledge files in these paths only; None is no limit.
    shared: tuple[str, ...] | None = None


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, as every door does."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, todo="See: ralph mcp --help")


_MODE_OF = dict.fromkeys(("task", "review", "no_memory"), "feature")


def read_options(argv: list[str]) -> ServerOptions:
    """Parse the command line; raise an error in one line if it is wrong."""
    from ralph.journal.file import check_name

    given = _parser().parse_args(argv)
    if given.server is not None:
        todo = f"Set RALPH_SERVER, or let the client connect to {given.server}/mcp over HTTP."
        raise RalphError("--server does not work here", todo=todo)
    modes = [mode for mode in get_args(Mode) if getattr(given, mode) not in (None, False)]
    if len(modes) != 1:
        found = " and ".join(f"--{mode}" for mode in modes) or "none"
        todo = "Give one of --feature NAME, --conversations, --planning, --focus."
        raise BadInput(f"choose exactly one mode (given: {found})", todo=todo)
    [mode] = modes
    for word, own_mode in {**_MODE_OF, "everywhere": "conversations"}.items():
        if getattr(given, word) and mode != own_mode:
            raise BadInput(f"--{word.replace('_', '-')} goes with --{own_mode} only")
    if mode == "feature":
        try:
            check_name(given.feature)
        except BadInput as error:
            raise BadInput(f"--feature: {error.what}", todo=error.todo) from None
    return ServerOptions(
        mode=mode,
        project=given.project,
        feature=given.feature or "",
        task_id=given.task or None,
        review=given.review,
        memory=not given.no_memory,
        everywhere=given.everywhere,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ralph mcp", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("--project", metavar="DIR", help="where the project is")
    parser.add_argument("--server", help=argparse.SUPPRESS)  # refused with a reason
    modes = parser.add_argument_group("modes")
    modes.add_argument("--feature", metavar="NAME", help="the memory and plan of one feature")
    more = parser.add_argument_group("with --feature")
    more.add_argument("--task", metavar="ID", help="the default task of update_task")
    talk = parser.add_argument_group("with --conversations")
    focus = "a person's own work: what `ralph focus` says at each call, and conversations"
    for group, word, help in (
        (modes, "--conversations", "past conversations in this project"),
        (modes, "--planning", "make a plan: features and tasks"),
        (modes, "--focus", focus),
        (more, "--review", "add the tools of a review"),
        (more, "--no-memory", "the tools of the plan only"),
        (talk, "--everywhere", "those of all projects"),
    ):
        group.add_argument(word, action="store_true", help=help)
    return parser


_HINT = "Work with what you have now; ask again only about something new."


class ToolScope(msgspec.Struct, frozen=True):
    """The feature that a call may reach (None for the whole project), and its default task."""

    feature: str | None = None
    task_id: int | str | None = None


class ServerContext:
    """The project as this server may reach it; a team's server never asks another server."""

    def __init__(self, options: ServerOptions, start: Path, *, is_server: bool = False) -> None:
        self.options, self.start, self.home = options, start, home_folder()
        self._is_server = is_server
        self.closed = False
        self.calls = 0

    # -- project, memory and plan

    def find_project(self) -> Project | None:
        """Return the current project, if any; a folder may become one while the server runs."""
        from ralph.memory.project import find_project

        return find_project(self.start, home=self.home)

    def works_everywhere(self) -> bool:
        """Whether the user wants memory in folders that are not a project, too."""
        from ralph.memory.pausing import paused_folders

        return paused_folders(str(self.home)) is not None

    @cached_property
    def project(self) -> Project:
        """The project; raises an error that says how to create one."""
        from ralph.memory.project import need_project

        return need_project(self.start, home=self.home)

    @cached_property
    def ralph(self) -> Ralph:
        """The project's memory, opened by the first call that needs it."""
        from ralph.memory.ralph import open_ralph
        from ralph.memory.servers import find_login

        if not self._is_server and find_login(self.home, self.project.root):
            from ralph.memory.remote import open_server  # loads all kinds of memory

            if there := open_server(self.project):
                return there
        return open_ralph(self.start, private_notes=not self._is_server)

    @cached_property
    def plan(self) -> Plan:
        """The project's plan."""
        from ralph.plan.store import Plan

        # Only in a run does a client get a server for one feature over stdio.
        in_run = self.options.mode == "feature" and not self._is_server
        agent_of = self.options.feature if in_run else ""
        return Plan(self.project.root, state=self.project.cache, agent_of=agent_of)

    @property
    def memory(self) -> Ralph:
        """The memory of this project, or of this folder if it is not in a project."""
        return self._folder if self.find_project() is None else self.ralph

    @cached_property
    def _folder(self) -> Ralph:
        from ralph.memory.project import PlainFolder
        from ralph.memory.ralph import open_ralph

        return open_ralph(
            project=PlainFolder(self.start, self.home, general=True),
            private_notes=not self._is_server,
        )

    def elsewhere(self) -> str:
        """Say how much the user's other projects have, if nobody worked in this one yet."""
        if self._is_server or self.memory.remote or self.memory.conversations.exist:
            return ""
        projects = self.memory.conversations.other_projects()
        if not projects:
            return ""
        total = plural(sum(count.conversations for count in projects), "conversation")
        others = plural(len(projects), "other project")
        return (
            f"No session was held in this folder yet. The user has {total} in {others}; only the "
            'user can search there: ralph search "..." --everywhere'
        )

    # -- scope

    def scope(self) -> ToolScope:
        """Return what this call may reach; the user's focus may change between two calls."""
        if self.options.mode == "feature":
            return ToolScope(self.options.feature, self.options.task_id)
        if self.options.mode == "focus" and self.find_project():
            from ralph.memory.project import read_focus

            if focus := read_focus(self.project):
                return ToolScope(focus.feature, focus.task_id)
        return ToolScope()

    def memories(self) -> list[FeatureMemory]:
        """Return the feature memories that this call may search."""
        feature = self.scope().feature
        return self.ralph.features() if feature is None else [self.ralph.feature(feature)]

    def need_feature(self) -> str:
        """Return the feature in scope; raise if there is none."""
        if (feature := self.scope().feature) is None:
            todo = "Ask the user to run: ralph focus FEATURE [TASK]"
            raise BadInput("no feature is in focus", todo=todo)
        return feature

    def last_iteration(self, feature: str) -> int:
        """Return the number of the feature's latest iteration, 0 before the first."""
        found = self.ralph.feature(feature).iterations()
        return max((located.record.number for located, _ in found), default=0)

    # -- counting and ending

    def hint(self) -> str:
        """Return a hint to stop asking, after many questions; else ""."""
        calls = f"\n\nYou have asked memory {self.calls} times. {_HINT}"
        return calls if self.calls > MANY_CALLS else ""

    def close(self) -> None:
        """Close the memories."""
        for name in ("ralph", "_folder"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()
        self.closed = True


# -- The server's instructions, which the model gets once, at the start.


def instructions(context: ServerContext) -> str | None:
    """Return the instructions for this server's mode; None if it offers nothing."""
    options = context.options
    where = ", in all projects" if options.everywhere else " in this project"
    parts: list[str] = []
    if options.mode == "planning":
        parts = [render("mcp_planning")]
    elif options.mode == "conversations":
        parts = [render("mcp_conversations", where=where)]
    elif options.mode == "feature":
        task = f"; your task is {sanitize_line(str(options.task_id))}" if options.task_id else ""
        what = f"the feature {sanitize_line(options.feature)!r}"
        parts = [render("mcp_memory", what=what)] if options.memory else []
        parts += [render("mcp_plan", task=task)]
        parts += [render("mcp_review")] if options.review else []
    elif context.find_project() is not None:
        what = "the feature in focus (`ralph focus`), or on all features when there is none"
        parts = [render("mcp_search", where=where), render("mcp_memory", what=what)]
        parts += [render("mcp_plan", task=""), render("mcp_conversations", where=where)]
    elif context.works_everywhere():
        names = ("mcp_search", "mcp_conversations")
        parts = [render(name, where=" in this folder") for name in names]
    return "\n".join(parts).strip() or None
