"""What a server is started with: its mode, its scope, and where to look for the project."""

from __future__ import annotations

import argparse
from typing import Literal, NoReturn

import msgspec

from ralph.errors import BadInput

Mode = Literal["feature", "conversations", "planning", "focus"]

_DESCRIPTION = """\
Serve memory and plan to an agent, as MCP over stdio. Exactly one mode is given. What the server
can reach is fixed by it; no argument of a call leads out of it."""
_EPILOG = """\
The project is the one at --project, RALPH_PROJECT, CLAUDE_PROJECT_DIR or around this folder."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One server's mode and scope."""

    mode: Mode
    project: str | None = None
    feature: str = ""
    task_id: str | None = None
    review: bool = False
    memory: bool = True
    everywhere: bool = False


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as every door does."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, todo="See: ralph mcp --help")


def read_options(argv: list[str]) -> Options:
    """The options in these words, or an error in one line."""
    given = _parser().parse_args(argv)
    modes = [mode for mode in ("conversations", "planning", "focus") if getattr(given, mode)]
    if given.feature is not None:
        modes.insert(0, "feature")
    if len(modes) != 1:
        found = " and ".join(f"--{mode}" for mode in modes) or "none"
        raise BadInput(
            f"exactly one mode is needed, and there is {found}",
            todo="Give one of --feature NAME, --conversations, --planning, --focus.",
        )
    mode = modes[0]
    for word, belongs_to in _BELONGS_TO.items():
        if getattr(given, word) and mode != belongs_to:
            raise BadInput(f"--{word.replace('_', '-')} goes with --{belongs_to} only")
    if mode == "feature":
        _check_feature(given.feature)
    return msgspec.convert(
        {
            "mode": mode,
            "project": given.project,
            "feature": given.feature or "",
            "task_id": given.task or None,
            "review": given.review,
            "memory": not given.no_memory,
            "everywhere": given.everywhere,
        },
        Options,
    )


_BELONGS_TO = {
    "task": "feature",
    "review": "feature",
    "no_memory": "feature",
    "everywhere": "conversations",
}


def _check_feature(name: str) -> None:
    from ralph.journal.folder import check_name

    try:
        check_name(name)
    except BadInput as error:
        raise BadInput(f"--feature: {error.what}", todo=error.todo) from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ralph mcp", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("--project", metavar="DIR", help="where the project is")
    modes = parser.add_argument_group("modes")
    modes.add_argument("--feature", metavar="NAME", help="the memory and plan of one feature")
    modes.add_argument(
        "--conversations", action="store_true", help="past conversations in this project"
    )
    modes.add_argument("--planning", action="store_true", help="make a plan: features and tasks")
    modes.add_argument(
        "--focus",
        action="store_true",
        help="a person's own work: what `ralph focus` says at each call, and conversations",
    )
    more = parser.add_argument_group("with --feature")
    more.add_argument("--task", metavar="ID", help="the task that update_task means by itself")
    more.add_argument("--review", action="store_true", help="add the tools of a review")
    more.add_argument("--no-memory", action="store_true", help="the tools of the plan only")
    talk = parser.add_argument_group("with --conversations")
    talk.add_argument("--everywhere", action="store_true", help="those of all projects")
    return parser
