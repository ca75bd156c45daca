"""Shell calls compared: whether one was made before, how it went, whether it changed anything.

Careful on purpose: what is not plainly the same call, or not plainly a success, is not one.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from ralph.capture.lines import clip
from ralph.capture.shell import ShellCommand, commands, is_masked, kind_of
from ralph.text.redact import redact

CallOutcome = Literal["well", "badly", "unclear"]

_SHORT = 60
_READ = 2000
_GOING = re.compile(r"\A(?:cd (?:\"[^\"]*\"|[^\s;&]+)\s*(?:&&|;|\n)\s*)+")
_PYTHON = re.compile(r"python[\d.]*")
_ENV = re.compile(r"[A-Za-z_]\w*=")

# Run what follows them.
_WRAPPERS = frozenset({"time", "nice", "nohup", "exec", "command", "npx", "bunx", "env", "stdbuf"})
_RUN = frozenset({"uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi"})
# What they do is said by their next word.
_MANY = frozenset(
    "npm yarn pnpm bun go cargo git docker podman kubectl pip uv poetry dotnet mix swift ruff deno"
    " bundle composer rails alembic terraform gradle gradlew mvn flutter dart nx turbo mise just"
    " gh make".split()
)
# Check everything when they are not told what: so a run of more proves a run of less.
_CHECKERS = frozenset(
    "pytest jest vitest mocha tsc eslint ruff mypy pyright flake8 pylint rspec phpunit ctest tox"
    " nox rubocop golangci-lint playwright unittest biome standard stylelint gofmt".split()
)
_CHECKING = frozenset(
    (tool, verb)
    for tool in ("npm", "yarn", "pnpm", "bun", "go", "cargo", "dotnet", "mix", "swift", "deno")
    for verb in ("test", "build", "vet", "check", "clippy", "lint", "t", "nextest")
)
# What is committed or pushed is always the project.
ON_ALL = frozenset({("git", "commit"), ("git", "push"), ("git", "pull"), ("git", "rebase")})
# Say more or less about the same thing.
_HARMLESS = re.compile(
    r"-[qvsx]+|-r\w|--(?:verbose|quiet|silent|exitfirst|no-header|color|no-color|no-cov|tb|count"
    r"|durations|reporter|maxfail|output-format|pretty)(?:=.*)?|-count=\d+|-n(?:auto|\d+)?|--"
)
# Leave out a part; the second kind takes its word from what follows.
_NARROWING = re.compile(
    r"--(?:lf|last-failed|ff|failed-first|sw|stepwise|onlyFailures|bail)|-(?:x|f)"
    r"|(?P<valued>-[kmtg]|-run|--(?:testNamePattern|grep|filter|test|lib|package)|-p)(?:=.*)?"
)
_PASSED = re.compile(
    r"(?i:\b[1-9]\d* (?:pass|passed|passing|succeeded)\b|\btests? passed\b|\bno issues found\b"
    r"|\b0 errors\b|\b0 failed\b)|^ok\b|\bPASS\b|\bSuccess|All checks passed|BUILD SUCCESS|✓|✔",
    re.M,
)
# The last word of a runner counts, whatever was logged before it.
_VERDICT = re.compile(
    r"\b0 (?:fail(?:ed|ures?|ing)?|errors?|issues?)\b|test result: ok|All checks passed"
    r"|no issues found|Tests: .{0,60}passed|BUILD SUCCESS|Built application|No fixes applied"
)
_FAILURES = re.compile(r"\b[1-9]\d* (?:fail|failed|failures?|failing|errors?|issues?)\b|\bFAIL")
_FAILED = re.compile(
    r"(?i:\b[1-9]\d* (?:fail|failed|failures?|failing|errors?|problems?)\b|\bnot ok\b"
    r"|\berror(?:\[|:| TS))|\bFAIL(?:ED|URE)?\b|\bTraceback\b|✗|✖|\u00d7"
)

_FILTERED = re.compile(r"\| *(?:head|tail|tee)\b(?!.*\| *(?!head|tail|tee)\w)")
# Runners of tests always say something.
_TALKS = re.compile(r"test|spec|jest|nox|tox")


class ShellCall(NamedTuple):
    """One program that a line runs for its own sake, with what it works on."""

    program: tuple[str, ...]
    targets: frozenset[str]
    options: frozenset[str]


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

    @property
    def success(self) -> str:
        """The call and that it went well, in words."""
        return f"`{short(self.line)}` passed"


@lru_cache(maxsize=64)
def shell_call(line: str, folder: str = "") -> ToolAttempt:
    """The call that a shell's command line is, in the folder it goes to."""
    text = _GOING.sub("", " ".join(line.split()))
    work = [
        one
        for one in commands(line)
        if one.joined not in {"|", "|&"} and kind_of(one.words) == "own"
    ]
    calls = [call for command in work[:20] if (call := _shell_call(command)).program]
    return ToolAttempt(text, line, tuple(calls), folder, is_masked(line))


def _shell_call(command: ShellCommand) -> ShellCall:
    program, rest = _program(command)
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
    if program[:2] in ON_ALL:
        return ShellCall(program[:2], frozenset(), frozenset())
    return ShellCall(program, frozenset(targets), frozenset(options))


def again(call: ToolAttempt, failed: ToolAttempt, place: str | None) -> bool:
    """Whether the call, had it gone well, shows that an error of the failed one is gone."""
    if call.folder != failed.folder:
        return False
    if call.text == failed.text:
        return True
    if not failed.calls:
        return False
    # Of several programs in a line the last one is the one that failed, or none after it ran.
    wanted = failed.calls[-1]
    if len(failed.calls) > 1 and not (failed.masked or _checks(wanted)):
        return all(any(_covers(one, less, place) for one in call.calls) for less in failed.calls)
    return any(_covers(one, wanted, place) for one in call.calls)


def _checks(call: ShellCall) -> bool:
    return bool(call.program) and (
        call.program[0] in _CHECKERS or call.program[:2] in _CHECKING or call.program[:2] in ON_ALL
    )


def _covers(call: ShellCall, failed: ShellCall, place: str | None) -> bool:
    if not call.program or call.program != failed.program:
        return False
    more, less = call.options - failed.options, failed.options - call.options
    if not all(_HARMLESS.fullmatch(option) for option in more):
        return False
    if not all(_HARMLESS.fullmatch(o) or _NARROWING.fullmatch(o) for o in less):
        return False
    if call.targets == failed.targets:
        return True
    if not _checks(call):
        return False
    if not call.targets or "" in call.targets:
        return True
    wanted = failed.targets or ({_plain(place)} if place else set())
    return bool(wanted) and all(_within(one, call.targets) for one in wanted)


def how_it_went(call: ToolAttempt, output: str, *, failed: bool, errors: bool) -> CallOutcome:
    """How a command went; where its exit code is another's, its words must say so."""
    if failed:
        return "badly"
    if not call.masked:
        return "well"
    if errors:
        return "badly"
    return "well" if passed(output) or _silent(call, output) else "unclear"


def _silent(call: ToolAttempt, output: str) -> bool:
    """Whether a check printed nothing, as it does when there is nothing to complain about."""
    bare = output.replace("(Bash completed with no output)", "").strip()
    if len(bare) > 20 or not _FILTERED.search(call.line[-500:]) or not is_check(call.line):
        return False
    if _TALKS.search(call.line):
        return False
    # "OK" is what the line itself prints at its end.
    return not bare or f"echo {bare}" in call.line.replace('"', "").replace("'", "")


def passed(output: str) -> bool:
    """Whether a check says in words that it passed."""
    end = output[-4000:]
    if _VERDICT.search(end[-800:]) and not _FAILURES.search(end[-800:]):
        return True
    return _PASSED.search(end) is not None and not _FAILED.search(end)


def is_check(line: str) -> bool:
    """Whether a line runs tests, a build or a linter, by itself or through a task."""
    if not _MAY_CHECK.search(line):
        return False
    return any(
        _checks(call) or (call.program and _TASK.search(" ".join(call.program)) is not None)
        for call in shell_call(line).calls
        if call.program[:1] != ("git",)
    )


_MAY_CHECK = re.compile(
    r"test|lint|check|build|vet|ci\b|verify|fmt|clippy|e2e|nox|tox|ruff|mypy|pyright|tsc|flake8|mocha"
    r"|rspec|phpunit|rubocop|playwright|biome|standard|\bt\b"
)
_TASK = re.compile(r"\b(?:test|lint|check|build|vet|typecheck|verify|fmt|clippy|e2e)\b")


def short(line: str) -> str:
    """A command line as it is told: its first line, without going to a folder, not endless."""
    text = _GOING.sub("", line.strip()[:_READ].replace("\\\n", " "))
    text = " ".join(text.partition("\n")[0].split())
    # Redacted before it is cut: half a secret would not be known for one.
    return clip(redact(text), _SHORT).replace("`", "'")


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
    name = posixpath.basename(words[0])
    name = "python" if _PYTHON.fullmatch(name) else name
    rest = words[1:]
    program = [name]
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


def _within(target: str, others: frozenset[str]) -> bool:
    """Whether one of the others is the target, or holds it: a folder, a file, a class."""
    return any(
        target == other or target.startswith((other + "/", other + "::")) for other in others
    )


# -- Another command that does the same: what was changed in it.


_WORD = re.compile(r"[\w./\\=:@*'\"-]+")
_ALIKE = 0.5
_MISSING = re.compile(r"not found|not recogni[sz]ed|No version is set")
_SHOWN = re.compile(
    r"\s*(?:2>&1|\| *(?:head|tail|tee|wc|less|cat|Select-Object|Out-String)\b[^|;&]*"
    r"|[;&]+ *echo\b[^|;&]*(?:\$\?|LASTEXITCODE)[^|;&]*)"
)


def instead_of(call: ToolAttempt, failed: ToolAttempt, wrong: str = "") -> str:
    """What passed in place of a line that was called wrongly; nothing when it is another matter.

    Another program counts only where the error, `wrong`, is that the first one is not there.
    """
    core, failed_core = _core(call.text[:_READ]), _core(failed.text[:_READ])
    if core == failed_core:
        return (
            f"`{short(core)}` in the folder where the shell was already"
            if _was_there(call, failed)
            else ""
        )
    new, old = _words(core), _words(failed_core)
    shared = set(new) & set(old)
    if not new or not old or not shared:
        return ""
    alike = len(shared) / len(set(new) | set(old))
    same_file = any("." in word and "/" in word and len(word) > 5 for word in shared)
    part = set(new) <= set(old) or set(old) <= set(new)
    if not (part or same_file or alike >= _ALIKE):
        return ""
    programs = {one.calls[-1].program[0] for one in (call, failed) if one.calls}
    if not part and len(programs) > 1 and not _MISSING.search(wrong):
        return ""
    ours, theirs = short(core), short(failed_core)
    if ours != theirs and not (ours.endswith("\u2026") and theirs.endswith("\u2026")):
        return f"`{ours}` instead of `{theirs}`"
    added = [word for word in core.split() if word not in failed_core.split()]
    gone = [word for word in failed_core.split() if word not in core.split()]
    told = [f"with `{_cut_words(added)}`"] if added else []
    told += [f"without `{_cut_words(gone)}`"] if gone else []
    return f"`{clip(ours, 30)}` {' and '.join(told)}" if told else ""


def _was_there(call: ToolAttempt, failed: ToolAttempt) -> bool:
    """Whether the line that failed went into a folder from within that folder."""
    going = re.match(r"cd (\S+?)/?\s*(?:&&|;)", failed.line.strip())
    return going is not None and call.folder.endswith(f"/{going[1]}")


def _core(text: str) -> str:
    """A line without what only shows more or less of its output."""
    return _SHOWN.sub("", text).strip()


def _words(text: str) -> list[str]:
    return [word.replace("\\", "/").strip("'\"").removeprefix("./") for word in _WORD.findall(text)]


def _cut_words(words: list[str]) -> str:
    return clip(redact(" ".join(words[:4])), 80).replace("`", "'")
