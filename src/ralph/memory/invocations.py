"""How something is done here: commands that worked in earlier sessions, and those that failed.

What a check said is taken from capture, which knows a masked exit code. Other commands count as
worked if nothing hides how they ended.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ralph.capture.checks import Purpose, breadth, purpose_of, purpose_of_command
from ralph.capture.rules import pattern
from ralph.capture.shell import command_of, shell_call
from ralph.errors import BadInput
from ralph.recall import PERSON, Scope
from ralph.records.conversation import Exchange

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph

MOST_WORKED = 5
MOST_FAILED = 3
_MOST_CHARS = 200
_MOST_MESSAGE = 160
_LEAST_QUESTION = 3
_SHELL = re.compile(r"(?i)bash|shell|exec|terminal|command|cmd")
# What asks a program about itself, or reads a script that is not kept.
_TELLS_NOTHING = re.compile(r"(?:^|\s)(?:--?help|-h|--version|-V|-)(?:\s|$)")
_EXIT = re.compile(r"(?i)^(?:exit code:? -?\d+|error: exit code.*|<[\w_]+>)\s*")
_PURPOSES: dict[str, Purpose] = {
    **dict.fromkeys(("test", "tests", "testing", "spec", "specs", "suite"), "test"),
    **dict.fromkeys(("lint", "linter", "linting", "format", "formatter", "formatting"), "lint"),
    **dict.fromkeys(("typecheck", "types", "style"), "lint"),
    **dict.fromkeys(("build", "builds", "building", "compile", "bundle"), "build"),
    **dict.fromkeys(("start", "serve", "launch", "server", "app"), "run"),
}
_ERRORS = {"test": "test", "lint": "lint", "build": "compile", "run": "runtime"}
_SAYS_LITTLE = frozenset(
    "a all an and are can command do does for get here how i in is it me my of on our project run"
    " running should the this to up use using want we what with you".split()
)


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A command, in how many exchanges it worked and failed, and when last; `id` is the record.

    `failure` is what it said when it failed last.
    """

    command: str
    worked: int = 0
    last_worked: str = ""
    failed: int = 0
    last_failed: str = ""
    failure: str = ""
    id: str = ""

    @property
    def works(self) -> bool:
        """Whether this is how it is done: a check that works also fails while the code is wrong."""
        return self.worked > self.failed


class HowTo(msgspec.Struct, frozen=True):
    """The commands that worked for something, the best first, and those that failed last."""

    question: str
    worked: tuple[Invocation, ...] = ()
    failed: tuple[Invocation, ...] = ()


class _Run(msgspec.Struct, frozen=True):
    command: str
    passed: bool
    message: str = ""


def how_to(ralph: Ralph, question: str, scope: Scope = PERSON) -> HowTo:
    """Return which commands did in earlier sessions what the question asks for."""
    if len(question.strip()) < _LEAST_QUESTION:
        what = f"{question!r} is too short to look for"
        raise BadInput(what, todo='Say what you want to do, as in "run the tests".')
    hits = ralph.recent(sys.maxsize, kinds=("conversation",), scope=scope)
    exchanges = [hit.record for hit in hits if isinstance(hit.record, Exchange)]
    return answer_from(invocations(exchanges), question)


def answer_from(found: Iterable[Invocation], question: str) -> HowTo:
    """Return the invocations that fit a question, best first."""
    words = [word for word in _words(question) if word not in _SAYS_LITTLE]
    purposes = {_PURPOSES[word] for word in words if word in _PURPOSES}
    if not words and "run" in _words(question):
        purposes = {"run"}
    rest = [word for word in words if word not in _PURPOSES]
    fit = []
    for one in found:
        named = sum(_names(one.command, word) for word in rest)
        if purposes and purpose_of_command(one.command) not in purposes:
            continue
        # A command that has one word of three is about something else.
        if not purposes and (not named or 2 * named < len(rest)):
            continue
        fit.append((named, one))
    # With a word that only some commands have, the others are about something else.
    most = max((named for named, _ in fit), default=0)
    best = [one for named, one in fit if named == most]
    best.sort(key=lambda one: max(one.last_worked, one.last_failed), reverse=True)
    best.sort(key=lambda one: (breadth(one.command), -one.worked))
    worked = [one for one in best if one.works]
    failed = [one for one in best if one.failed and not one.works]
    failed.sort(key=lambda one: one.last_failed, reverse=True)
    return HowTo(question, tuple(worked[:MOST_WORKED]), tuple(failed[:MOST_FAILED]))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9][\w.-]*[a-z0-9]|[a-z0-9]", text.lower())


def _names(command: str, word: str) -> bool:
    """Whether a command has a word; what git is told to save or to add does not count."""
    parts = command.split()
    if parts[:1] == ["git"]:
        parts = parts[:2]
    text = " ".join(part for part in parts if not part.startswith("/")).lower()
    names = {*_words(text), *re.split(r"[^a-z0-9]+", text)}
    return _stem(word) in {_stem(name) for name in names}


def _stem(word: str) -> str:
    for ending in ("ations", "ation", "ing", "ies", "es", "e", "s", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


# -- What ran.


def invocations(exchanges: Iterable[Exchange]) -> list[Invocation]:
    """Return every command with how often it worked and failed, each once an exchange."""
    found: dict[str, Invocation] = {}
    for exchange in exchanges:
        at = exchange.completed or ""
        last: dict[str, _Run] = {}
        for run in _runs(exchange):
            last[run.command] = run
        for run in last.values():
            known = found.get(run.command, Invocation(command=run.command))
            found[run.command] = _added(known, run, at, exchange.id)
    return list(found.values())


def _added(known: Invocation, run: _Run, at: str, record: str) -> Invocation:
    newest = max(known.last_worked, known.last_failed)
    identity = record if at >= newest else known.id
    if run.passed:
        return msgspec.structs.replace(
            known, worked=known.worked + 1, last_worked=max(at, known.last_worked), id=identity
        )
    message = run.message if at >= known.last_failed else known.failure
    return msgspec.structs.replace(
        known,
        failed=known.failed + 1,
        last_failed=max(at, known.last_failed),
        failure=message,
        id=identity,
    )


def _runs(exchange: Exchange) -> Iterator[_Run]:
    for message in exchange.messages:
        if message.role == "tool" and _SHELL.search(message.tool):
            line, _, answer = message.content.partition("\n")
            yield from _runs_in(line, answer, failed=message.failed)
    for check in exchange.checks:
        if not _TELLS_NOTHING.search(check.command):
            error = "" if check.passed else _error_of(exchange, check.command)
            yield _Run(check.command, check.passed, error)


def _error_of(exchange: Exchange, command: str) -> str:
    """Return the first error of an exchange that a check like this one reports, or ""."""
    kind = _ERRORS.get(purpose_of_command(command) or "run")
    errors = [error.message for error in exchange.errors if error.error_type == kind]
    return errors[0][:_MOST_MESSAGE] if errors else ""


def _runs_in(line: str, answer: str, *, failed: bool) -> Iterator[_Run]:
    """Yield the commands of a line of which it is known how they ended."""
    attempt = shell_call(line)
    calls = attempt.calls
    if attempt.masked or not calls or (failed and len(calls) > 1):
        return
    folder = _folder(line)
    for call in calls:
        # Capture knows better whether a check passed.
        if not failed and purpose_of(call) is not None:
            continue
        text = command_of(line, call.program)
        if not text or len(text) > _MOST_CHARS or pattern("scratch").search(text):
            continue
        if _TELLS_NOTHING.search(text):
            continue
        yield _Run(folder + text, not failed, _message(answer) if failed else "")


def _folder(line: str) -> str:
    found = re.match(r"cd ([\w./-]+) *&& *", line)
    return f"cd {found[1]} && " if found and not found[1].startswith("/") else ""


def _message(answer: str) -> str:
    for line in answer.splitlines():
        if text := _EXIT.sub("", line.strip()):
            return text[:_MOST_MESSAGE]
    return ""
