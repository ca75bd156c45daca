"""The commands that test, lint, build and run a project: those that passed last, and those that
have failed since."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from ralph.capture.checks import PURPOSES, Purpose, breadth, purpose_of_command
from ralph.capture.rules import pattern
from ralph.memory.past_work import PastWork

_MOST_EACH = 2
_MOST_CHARS = 110
# How many of the last sessions with checks may have left a failing one.
_SESSIONS = 2
_WHOLE = 0
_FILE = 2
# A variable that is set to a path: such a call tries something out, or fits one machine.
_SETS_PATH = re.compile(r"(?:^|&& )(?:\w+=\S* )*(?!PATH=)\w+=['\"]?/")


class KnownCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that checks or runs the project; `at` is when it passed or failed last."""

    purpose: Purpose
    command: str
    at: str
    id: str
    origin: str = ""
    passed: bool = True
    breadth: int = _WHOLE
    # In how many exchanges it passed.
    times: int = 0

    @property
    def folder(self) -> str:
        """The folder that the command changes to, or ""."""
        return self.command.partition(" && ")[0] if self.command.startswith("cd ") else ""


def known_commands(work: Sequence[PastWork]) -> list[KnownCommand]:
    """Return the commands with their last result, those that ran last first.

    `work` is in time order.
    """
    found: dict[str, KnownCommand] = {}
    times: dict[str, int] = {}
    for one in reversed(work):
        for check in reversed(one.checks):
            times[check.command] = times.get(check.command, 0) + check.passed
            if check.command not in found and (known := _known(one, check.command, check.passed)):
                found[check.command] = known
    return [msgspec.structs.replace(one, times=times[one.command]) for one in found.values()]


def _known(work: PastWork, command: str, passed: bool) -> KnownCommand | None:
    if len(command) > _MOST_CHARS or pattern("only asks").search(command):
        return None
    if _SETS_PATH.search(command):
        return None
    purpose = purpose_of_command(command)
    if purpose is None:
        return None
    return KnownCommand(
        purpose=purpose,
        command=command,
        at=work.at,
        id=work.id,
        origin=work.conversation,
        passed=passed,
        breadth=breadth(command),
    )


def working_commands(commands: Sequence[KnownCommand]) -> list[KnownCommand]:
    """Return for each purpose the widest commands that passed, at most one for each folder."""
    found: list[KnownCommand] = []
    for purpose in PURPOSES:
        mine = [one for one in commands if one.purpose == purpose and one.passed]
        mine = [one for one in mine if one.breadth < _FILE]
        # Those that run last come first; the sort keeps that order.
        mine.sort(key=lambda one: (one.breadth, one.times < _MOST_EACH))
        folders: set[str] = set()
        for one in mine:
            if one.folder in folders or one.breadth > mine[0].breadth:
                continue
            folders.add(one.folder)
            found.append(one)
            if len(folders) == _MOST_EACH:
                break
    return found


def failing_commands(
    commands: Sequence[KnownCommand], sessions: Collection[str] | None = None
) -> list[KnownCommand]:
    """Return the commands that failed last, in one of these sessions, and not passed since.

    Without `sessions`, in one of the last two that checked something.
    """
    if sessions is None:
        sessions = list(dict.fromkeys(one.origin for one in commands))[:_SESSIONS]
    found: list[KnownCommand] = []
    for place, one in enumerate(commands):
        if one.passed or one.origin not in sessions or one.breadth == _FILE:
            continue
        later = [other for other in commands[:place] if other.folder == one.folder]
        if any(
            other.passed and other.purpose == one.purpose and other.breadth <= one.breadth
            for other in later
        ):
            continue
        found.append(one)
    return found
