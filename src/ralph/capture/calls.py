"""Shell calls compared: whether one was made before, how it went, what was changed in it.

Careful on purpose: what is not plainly the same call, or not plainly a success, is not one.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from ralph.capture.lines import clip
from ralph.capture.rules import names, pattern, words
from ralph.capture.shell import ShellCommand, commands, is_masked, kind_of
from ralph.text.redact import redact

CallOutcome = Literal["well", "badly", "unclear"]

_SHORT = 60
_READ = 2000
GOING = re.compile(r"\A(?:cd (?:\"[^\"]*\"|[^\s;&]+)\s*(?:&&|;|\n)\s*)+")
_PYTHON = re.compile(r"python[\d.]*")
_ENV = re.compile(r"[A-Za-z_]\w*=")

# Run what follows them.
_WRAPPERS = frozenset({"time", "nice", "nohup", "exec", "command", "npx", "bunx", "env", "stdbuf"})
_RUN = frozenset({"uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi"})
# What they do is said by their next word.
_MANY = names("many")
# Check everything when they are not told what: so a run of more proves a run of less.
_CHECKS = words("checks")
# What is committed or pushed is always the project.
ON_ALL = frozenset({("git", "commit"), ("git", "push"), ("git", "pull"), ("git", "rebase")})
# Say more or less about the same thing.
_HARMLESS = pattern("harmless")
# Leave out a part; the second kind takes its word from what follows.
_NARROWING = pattern("narrowing")
_PASSED = pattern("passed", re.M)
# The last word of a runner counts, whatever was logged before it.
_VERDICT = pattern("verdict")
_FAILURES = re.compile(r"\b[1-9]\d* (?:fail|failed|failures?|failing|errors?|issues?)\b|\bFAIL")
_FAILED = re.compile(
    rf"(?i:{_FAILURES.pattern}|\b[1-9]\d* problems?\b|\bnot ok\b|\berror(?:\[|:| TS))"
    r"|\bTraceback\b|✗|✖|\u00d7"
)
_FILTERED = re.compile(r"\| *(?:head|tail|tee)\b(?!.*\| *(?!head|tail|tee)\w)")
# Runners of tests always say something.
_TALKS = re.compile(r"test|spec|jest|nox|tox")
_WORD = re.compile(r"[\w./\\=:@*'\"-]+")
_MISSING = re.compile(r"not found|not recogni[sz]ed|No version is set")
_SHOWN = re.compile(
    r"\s*(?:2>&1|\| *(?:head|tail|tee|wc|less|cat|Select-Object|Out-String)\b[^|;&]*"
    r"|[;&]+ *echo\b[^|;&]*(?:\$\?|LASTEXITCODE)[^|;&]*)"
)


class ShellCall(NamedTuple):
    """One program that a line runs for its own sake, with what it works on."""

    program: tuple[str, ...]
    targets: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()

    @property
    def checks(self) -> bool:
        """Whether it runs tests, a build or a linter."""
        return self.program[0] != "git" and _CHECKS.search(" ".join(self.program)) is not None


class ToolAttempt(msgspec.Struct, frozen=True):
    """A shell line, as far as it matters for telling whether it is run again."""

    text: str
    line: str = ""
    calls: tuple[ShellCall, ...] = ()
    folder: str = ""
    # Its exit code is another command's.
    masked: bool = False

    @property
    def hint(self) -> str:
        """What the lines hold that are this call again."""
        last = self.calls[-1].program[-1] if self.calls else ""
        return last if last and last in self.text else self.text.partition(" ")[0]


@lru_cache(maxsize=64)
def shell_call(line: str, folder: str = "") -> ToolAttempt:
    """The call that a shell's command line is, in the folder it goes to."""
    work = [
        one
        for one in commands(line)
        if one.joined not in {"|", "|&"} and kind_of(one.words) == "own"
    ]
    calls = tuple(call for command in work[:20] if (call := _shell_call(command)).program)
    return ToolAttempt(GOING.sub("", " ".join(line.split())), line, calls, folder, is_masked(line))


def _shell_call(command: ShellCommand) -> ShellCall:
    program, rest = _program(command)
    if program[:2] in ON_ALL:
        return ShellCall(program[:2])
    targets, options, skip = set[str](), set[str](), False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith("-"):
            options.add(word)
            narrowing = _NARROWING.fullmatch(word)
            skip = bool(narrowing and narrowing["valued"] and "=" not in word)
        else:
            targets.add(_plain(word))
    return ShellCall(program, frozenset(targets), frozenset(options))


def _program(command: ShellCommand) -> tuple[tuple[str, ...], list[str]]:
    """The program, with its verb where it has many, and the words after it."""
    words = list(command.words)
    while words:
        name, verb = posixpath.basename(words[0]), words[1:2]
        if _ENV.match(words[0]) or name in _WRAPPERS:
            words = words[1:]
        elif (
            name == "timeout"
            or (name in _RUN and verb == ["run"])
            or (_PYTHON.fullmatch(name) and verb == ["-m"])
        ):
            words = words[2:]
        else:
            break
    if not words:
        return (), []
    name, rest = posixpath.basename(words[0]), words[1:]
    program = ["python" if _PYTHON.fullmatch(name) else name]
    if name in _MANY and rest and not rest[0].startswith("-"):
        program.append(rest.pop(0))
        if program[1] in {"run", "compose", "exec"} and rest and not rest[0].startswith("-"):
            program.append(rest.pop(0))
    return tuple(program), rest


def _plain(target: str) -> str:
    target = target.removesuffix("...").rstrip("/")
    while target.startswith("./"):
        target = target[2:]
    return "" if target == "." else target


def again(call: ToolAttempt, failed: ToolAttempt, place: str | None) -> bool:
    """Whether the call, had it gone well, shows that an error of the failed one is gone."""
    if call.folder != failed.folder or call.text == failed.text or not failed.calls:
        return call.folder == failed.folder and call.text == failed.text
    # Of several programs in a line the last one is the one that failed, or none after it ran.
    last = failed.calls[-1]
    only_last = failed.masked or last.checks or last.program[:2] in ON_ALL
    wanted = [last] if only_last else failed.calls
    return all(any(_covers(one, less, place) for one in call.calls) for less in wanted)


def _covers(call: ShellCall, failed: ShellCall, place: str | None) -> bool:
    if call.program != failed.program:
        return False
    more, less = call.options - failed.options, failed.options - call.options
    if not all(_HARMLESS.fullmatch(option) for option in more):
        return False
    if not all(_HARMLESS.fullmatch(o) or _NARROWING.fullmatch(o) for o in less):
        return False
    if call.targets == failed.targets:
        return True
    if not call.checks or not call.targets or "" in call.targets:
        return call.checks
    wanted = failed.targets or ({_plain(place)} if place else set())
    return bool(wanted) and all(_within(one, call.targets) for one in wanted)


def _within(target: str, others: frozenset[str]) -> bool:
    """Whether one of the others is the target, or holds it: a folder, a file, a class."""
    return any(
        target == other or target.startswith((other + "/", other + "::")) for other in others
    )


def how_it_went(call: ToolAttempt, output: str, *, failed: bool, errors: bool) -> CallOutcome:
    """How a command went; where its exit code is another's, its words must say so."""
    if failed or (call.masked and errors):
        return "badly"
    return "well" if not call.masked or passed(output) or _silent(call, output) else "unclear"


def _silent(call: ToolAttempt, output: str) -> bool:
    """Whether a check printed nothing, as it does when there is nothing to complain about."""
    bare = output.replace("(Bash completed with no output)", "").strip()
    if len(bare) > 20 or _TALKS.search(call.line) or not _FILTERED.search(call.line[-500:]):
        return False
    # "OK" is what the line itself prints at its end.
    own = not bare or f"echo {bare}" in call.line.replace('"', "").replace("'", "")
    return own and is_check(call.line)


def passed(output: str) -> bool:
    """Whether a check says in words that it passed."""
    return _says_passed(output[-2000:])


@lru_cache(maxsize=16)
def _says_passed(end: str) -> bool:
    last = end[-800:]
    if _VERDICT.search(last) and not _FAILURES.search(last):
        return True
    return _PASSED.search(end) is not None and not _FAILED.search(end)


def is_check(line: str) -> bool:
    """Whether a line runs tests, a build or a linter, by itself or through a task."""
    return _CHECKS.search(line[:_READ]) is not None and any(
        call.checks for call in shell_call(line).calls
    )


def short(line: str) -> str:
    """A command line as it is told: its first line, without going to a folder, not endless."""
    text = GOING.sub("", line.strip()[:_READ].replace("\\\n", " "))
    text = " ".join(text.partition("\n")[0].split())
    # Redacted before it is cut: half a secret would not be known for one.
    return clip(redact(text), _SHORT).replace("`", "'")


def instead_of(call: ToolAttempt, failed: ToolAttempt, wrong: str = "") -> str:
    """What passed in place of a line that was called wrongly; nothing when it is another matter.

    Another program counts only where the error, `wrong`, is that the first one is not there.
    """
    # Without what only shows more or less of the output.
    core, failed_core = (_SHOWN.sub("", one.text[:_READ]).strip() for one in (call, failed))
    if core == failed_core:  # perhaps it went to a folder that is not there
        core, failed_core = (" ".join(one.line[:_READ].split()) for one in (call, failed))
    new, old = _words(core), _words(failed_core)
    part = new <= old or old <= new
    same_file = any("." in word and "/" in word for word in new & old)
    alike = part or same_file or len(new & old) > len(new | old) / 2
    if core == failed_core or not alike:
        return ""
    programs = {one.calls[-1].program[0] for one in (call, failed) if one.calls}
    if not part and len(programs) > 1 and not _MISSING.search(wrong):
        return ""
    ours, theirs = short(core), short(failed_core)
    if ours != theirs and not (ours.endswith("\u2026") and theirs.endswith("\u2026")):
        return f"`{ours}` instead of `{theirs}`"
    told = [f"with `{more}`"] if (more := _lacking(core, failed_core)) else []
    told += [f"without `{less}`"] if (less := _lacking(failed_core, core)) else []
    return f"`{clip(ours, 30)}` {' and '.join(told)}" if told else ""


def _words(text: str) -> set[str]:
    return {word.replace("\\", "/").strip("'\"").removeprefix("./") for word in _WORD.findall(text)}


def _lacking(text: str, other: str) -> str:
    """The first words of a line that the other lacks."""
    words = [word for word in text.split() if word not in other.split()]
    return clip(redact(" ".join(words[:4])), 80).replace("`", "'")
