"""The commands that test, lint, build or run a project, as they were typed, and how they went."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, get_args

from ralph.capture.rules import pattern
from ralph.capture.shell import CallOutcome, ShellCall, ToolAttempt, command_of, shell_call

Purpose = Literal["test", "lint", "build", "run"]
# In the order in which they are shown; a command that fits two of them is the first.
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
# A target that may be a program's verb, not a path.
_VERB = re.compile(r"[a-z][a-z\d]*(?:[:_-][a-z\d]+){0,2}")


def purpose_of(call: ShellCall) -> Purpose | None:
    """Return what a call is for, or None if it does not check or run the project."""
    verbs = sorted(filter(_VERB.fullmatch, call.targets))
    words = " ".join([*call.program, *verbs])
    if pattern("no purpose").search(words):
        return None
    if "--noEmit" in call.options or "--check" in call.options:
        return "lint"
    # A subcommand says what a call is for: `go vet -tags e2e` tests nothing.
    own = _purpose_in(" ".join(call.program)) if len(call.program) > 1 else None
    return own or _purpose_in(words)


def _purpose_in(words: str) -> Purpose | None:
    return next((one for one in PURPOSES if pattern(f"{one}s with").search(words)), None)


def checks_in(
    call: ToolAttempt, went: CallOutcome, *, folder: str, is_verdict: bool
) -> Iterator[tuple[str, bool]]:
    """Yield the checks of a line, as run from the project's folder, and whether they passed.

    `folder` is where the line ended, relative to the project. A failure counts only for a line with
    one check that gave its verdict: else it is not known what failed, or it was called wrongly.
    """
    found = [one for one in call.calls if purpose_of(one) is not None]
    if ":" in folder:  # a folder of another system
        return
    if went == "unclear" or (went == "badly" and not (is_verdict and len(found) == 1)):
        return
    for one in found:
        text = command_of(call.line, one.program)
        if text and not pattern("scratch").search(text):
            yield f"cd {folder} && {text}" if folder else text, went == "well"


def breadth(command: str) -> int:
    """Return 0 for a command that checks the whole project, 1 for a part of it, 2 for one file."""
    if pattern("changes files").search(command):
        return 2
    found = 0
    for call in shell_call(command).calls:
        targets = [target for target in call.targets if target]
        is_one = any(pattern("one of many").search(target) for target in targets)
        if is_one or any(pattern("narrowing").fullmatch(option) for option in call.options):
            return 2
        if any("/" in target for target in targets):
            found = 1
    return found


def purpose_of_command(command: str) -> Purpose | None:
    """Return what a command is for; of a line with several, what the last one is for."""
    found = [one for call in shell_call(command).calls if (one := purpose_of(call)) is not None]
    return found[-1] if found else None
