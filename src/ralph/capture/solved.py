"""How an error was solved: what was done between a failed call and the same call that worked."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from ralph.capture.errors import FENCED
from ralph.capture.lines import clip
from ralph.capture.shell import ASKING, ShellCommand, commands, kind_of
from ralph.text.redact import redact

# -- Whether a call is one that was made before, how it went, and whether it changed anything.
#
# Careful on purpose: what is not plainly the same call, or not plainly a success, is not one.


CallOutcome = Literal["well", "badly", "unclear"]
ELSEWHERE = "a file outside the project"

_SHORT = 60
_READ = 2000
GOING = re.compile(r"\A(?:cd \S+ (?:&&|;) )+")
_PYTHON = re.compile(r"python[\d.]*")
_ENV = re.compile(r"[A-Za-z_]\w*=")

# Run what follows them.
_WRAPPERS = frozenset({"time", "nice", "nohup", "exec", "command", "npx", "bunx", "env", "stdbuf"})
_RUN = frozenset({"uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi"})
# What they do is said by their next word.
_MANY = frozenset(
    "npm yarn pnpm bun go cargo git docker podman kubectl pip uv poetry dotnet mix swift ruff deno"
    " bundle composer rails alembic terraform gradle gradlew mvn flutter dart nx turbo".split()
)
# Check everything when they are not told what: so a run of more proves a run of less.
_CHECKERS = frozenset(
    "pytest jest vitest mocha tsc eslint ruff mypy pyright flake8 pylint rspec phpunit ctest tox"
    " nox rubocop golangci-lint playwright unittest biome standard stylelint".split()
)
_CHECKING = frozenset(
    (tool, verb)
    for tool in ("npm", "yarn", "pnpm", "bun", "go", "cargo", "dotnet", "mix", "swift", "deno")
    for verb in ("test", "build", "vet", "check", "clippy", "lint", "t", "nextest")
)
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
_FAILED = re.compile(
    r"(?i:\b[1-9]\d* (?:fail|failed|failures?|failing|errors?|problems?)\b|\bnot ok\b"
    r"|\berror(?:\[|:| TS))|\bFAIL(?:ED|URE)?\b|\bTraceback\b|✗|✖|\u00d7"
)

# Change nothing, though what they print is their own.
_LOOKERS = frozenset(
    "ps df du curl wget ping nc netstat ss lsof top free id groups locale tsc eslint mypy pyright"
    " pylint flake8 jest vitest mocha pytest rspec phpunit ctest nproc".split()
)
_LOOKING = frozenset(
    "status log show diff blame grep reflog shortlog branch remote describe rev-parse ls-files"
    " ls-remote ls list outdated view audit freeze check tree metadata env version info ps logs"
    " images inspect get test vet clippy lint help doctor why t nextest".split()
)
# Silent, and yet something is different afterwards.
_CHANGING = frozenset("export set unset source . mkdir touch chmod rm mv cp".split())
_PROBES = frozenset({"-c", "-e", "--version", "-V", "--help", "-h", "-version"})


class ToolAttempt(msgspec.Struct, frozen=True):
    """A tool call, as far as it matters for telling whether it is made again."""

    text: str
    # How it is told: the shell's line, or what was tried instead of one.
    line: str = ""
    change: str = ""
    program: tuple[str, ...] = ()
    targets: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    folder: str = ""
    # Its exit code is another command's.
    masked: bool = False

    @property
    def hint(self) -> str:
        """What the lines hold that are this call again."""
        last = self.program[-1] if self.program else ""
        return last if last and last in self.text else self.text.partition(" ")[0]

    @property
    def success(self) -> str:
        """The call and that it went well, in words."""
        return f"{self.change} went through" if self.change else f"`{short(self.line)}` passed"


def shell_call(line: str, folder: str = "") -> ToolAttempt:
    """The call that a shell's command line is, in the folder it goes to."""
    text = GOING.sub("", " ".join(line.split()))
    found = commands(line)
    work = [one for one in found if one.joined not in {"|", "|&"} and kind_of(one.words) == "own"]
    masked = bool(found) and "pipefail" not in line
    masked = masked and (not work or found[-1] is not work[-1])
    call = ToolAttempt(text, line, folder=folder, masked=masked)
    if len(work) != 1:
        return call
    program, rest = _program(work[0])
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
    return msgspec.structs.replace(
        call, program=program, targets=frozenset(targets), options=frozenset(options)
    )


def file_call(tool: str, path: str, place: str | None) -> ToolAttempt:
    """The call that changes a file: with whatever tool, it is the same change tried again."""
    return ToolAttempt(file_text(path), change=f"{tool} of {place or ELSEWHERE}")


def file_text(path: str) -> str:
    """What tells the change of this file from every other call."""
    return f"\0file {path}"


def again(call: ToolAttempt, failed: ToolAttempt, place: str | None) -> bool:
    """Whether the call, had it gone well, shows that an error of the failed one is gone."""
    if call.folder != failed.folder:
        return False
    if call.text == failed.text:
        return True
    if not call.program or call.program != failed.program:
        return False
    more, less = call.options - failed.options, failed.options - call.options
    if not all(_HARMLESS.fullmatch(option) for option in more):
        return False
    if not all(_HARMLESS.fullmatch(o) or _NARROWING.fullmatch(o) for o in less):
        return False
    if call.targets == failed.targets:
        return True
    if call.program[0] not in _CHECKERS and call.program[:2] not in _CHECKING:
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
    end = output[-4000:]
    return "well" if _PASSED.search(end) and not _FAILED.search(end) else "unclear"


def looks_only(line: str) -> bool:
    """Whether the line leaves everything as it was, as far as is known of its programs."""
    found = commands(line)
    return bool(found) and all(_looks(command) for command in found)


def _looks(command: ShellCommand) -> bool:
    if command.silenced and command.silenced != "/dev/null":
        return False
    program, rest = _program(command)
    name = program[0] if program else ""
    if name in _CHANGING or (program == ("git", "stash") and rest[:1] not in (["list"], ["show"])):
        return False
    if kind_of(command.words) != "own" or name in ASKING or name in _LOOKERS:
        return True
    if any(word in {"--fix", "--write", "-w", "-i"} for word in rest):
        return False
    if len(program) > 1 and (program[1] in _LOOKING or program[:2] in _CHECKING):
        return True
    return not program or any(word in _PROBES for word in rest[:1])


def short(line: str) -> str:
    """A command line as it is told: its first line, without going to a folder, not endless."""
    text = " ".join(line.strip().partition("\n")[0][:_READ].split())
    # Redacted before it is cut: half a secret would not be known for one.
    return clip(redact(GOING.sub("", text)), _SHORT).replace("`", "'")


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


# -- How an error was solved: what was done between the call that failed and the same going well.


LONGEST = 300
_MOST_OPEN = 50
_MOST_STEPS = 200
_MOST_TOLD = 3
_LONGEST_SENTENCE = 140
_LONGEST_TEXT = 4000

Echoed = Callable[[str], bool]
Action = Literal["edited", "read", "ran"]
_ACTIONS: tuple[Action, ...] = get_args(Action)

_SENTENCE = re.compile(r"(?<=[.!])\s+(?=[A-Z*`\"(-])|\n+")
_MARKUP = re.compile(r"^(?:[-*+•]|\d+[.)]|#+)\s+|\*\*|__")
_BECAUSE = re.compile(
    r"\b(?:because|due to|caused by|since|as (?:it|the|they)|so that|turns out"
    r"|the (?:root |actual |real )?(?:cause|problem|issue|reason|bug|culprit|mistake)\b)",
    re.I,
)
_EXPLAINS = re.compile(
    rf"{_BECAUSE.pattern}|\b(?:missing|forgot|never|instead of|needs?|needed|requires?|must|wrong"
    r"|incorrect|mismatch|too (?:early|late|small|large|long|short)|not|was|were|n't)\b",
    re.I,
)
_ANNOUNCES = re.compile(
    r"(?:let me|let's|now\b|i'll|i will|i'm going|next\b|first\b|then\b|running|re-?run|checking"
    r"|looking|trying|time to|good\b|great\b|perfect\b|ok(?:ay)?\b|done\b|all (?:tests?|checks?)"
    r"|(?:the )?(?:tests?|build|checks?|lint)\b.{0,20}\b(?:pass|green|succeed)|i need to|i should)",
    re.I,
)


class _FailedCall(msgspec.Struct):
    call: ToolAttempt
    place: str | None
    first: int
    last: int


class _AttemptStep(msgspec.Struct):
    at: int
    did: Action | Literal["said"]
    what: str
    only_for: str = ""


class Attempts:
    """The errors of calls that failed, until the same call goes well."""

    def __init__(self) -> None:
        self._time = 0
        self._failed: dict[str, _FailedCall] = {}
        self._steps: deque[_AttemptStep] = deque(maxlen=_MOST_STEPS)
        self._said: deque[_AttemptStep] = deque(maxlen=3)
        # Solved a moment ago: the next words may say why.
        self._fresh: list[tuple[str, str]] = []

    @property
    def open(self) -> bool:
        """Whether any error waits to be solved."""
        return bool(self._failed)

    @property
    def listening(self) -> bool:
        """Whether the agent's words may matter."""
        return bool(self._failed or self._fresh)

    def begin(self) -> int:
        """A call begins; the moment is needed when it comes back."""
        self._time += 1
        self._fresh.clear()
        return self._time

    def fail(self, name: str, call: ToolAttempt, place: str | None) -> None:
        """A call failed with this error."""
        self._time += 1
        before = self._failed.pop(name, None)
        first = before.first if before else self._time
        self._failed[name] = _FailedCall(call, place, first, self._time)
        if len(self._failed) > _MOST_OPEN:
            del self._failed[next(iter(self._failed))]

    def awaits(self, text: str) -> bool:
        """Whether this very call failed and was not made again."""
        return any(failed.call.text == text for failed in self._failed.values())

    def may_be(self, line: str) -> bool:
        """Whether the line could be one that failed; only a closer look can tell."""
        return any(failed.call.hint in line for failed in self._failed.values())

    def do(self, did: Action, what: str, only_for: str = "") -> None:
        """Something was done that may have helped, perhaps only a certain call."""
        if self._failed:
            self._time += 1
            self._steps.append(_AttemptStep(self._time, did, what[:_LONGEST_TEXT], only_for))

    def hear(self, text: str, echoed: Echoed) -> list[tuple[str, str]]:
        """The agent said something; a better account of the errors it has just solved."""
        better: list[tuple[str, str]] = []
        if self._fresh:
            why = _sentence([text[:_LONGEST_TEXT]], _BECAUSE, echoed)
            better = [(name, _joined(solution, why)) for name, solution in self._fresh if why]
            self._fresh.clear()
        if self._failed:
            self._time += 1
            self._said.append(_AttemptStep(self._time, "said", text[:_LONGEST_TEXT]))
        return better

    def succeed(self, call: ToolAttempt, begun: int, echoed: Echoed) -> list[tuple[str, str]]:
        """A call went well: the errors that are gone with it, and how each was solved."""
        solved: list[tuple[str, str]] = []
        self._fresh.clear()
        for name, failed in list(self._failed.items()):
            # What was begun before the failure was known is no second try.
            if begun <= failed.last or not again(call, failed.call, failed.place):
                continue
            del self._failed[name]
            steps = self._since(self._steps, failed)
            solution = _describe(steps, call, failed.call)
            texts = [step.what for step in self._since(self._said, failed)]
            why = _sentence(texts[::-1], _EXPLAINS, echoed)
            if not why:
                self._fresh.append((name, solution))
            solved.append((name, _joined(solution, why)))
        if not self._failed:
            self._steps.clear()
            self._said.clear()
        return solved

    @staticmethod
    def _since(steps: deque[_AttemptStep], failed: _FailedCall) -> list[_AttemptStep]:
        """What came after the failure; after the first one when nothing came after the last."""
        wanted = ("", failed.call.text)
        for moment in (failed.last, failed.first):
            later = [step for step in steps if step.at > moment and step.only_for in wanted]
            if found := [s for s in later if s.did != "ran" or not looks_only(s.what)]:
                return found
        return []


def _describe(steps: list[_AttemptStep], call: ToolAttempt, failed: ToolAttempt) -> str:
    if not steps:
        if call.text != failed.text:
            return f"{call.success} instead."
        how = "when tried again" if call.change else "when run again"
        return f"{call.success} {how}; nothing was changed in between."
    done = [step for did in _ACTIONS if (step := _few(did, steps))]
    whole = "; ".join([*done, f"then {call.success}."])
    return whole[:1].upper() + whole[1:]


def _few(did: Action, steps: list[_AttemptStep]) -> str:
    """The last few steps of a kind, each once, in order."""
    each = list(dict.fromkeys(step.what for step in steps if step.did == did))
    if not each:
        return ""
    few = [f"`{short(what)}`" if did == "ran" else what for what in each[-_MOST_TOLD:]]
    more = f" and {len(each) - _MOST_TOLD} more" if len(each) > _MOST_TOLD else ""
    return f"{did} {', '.join(few)}{more}"


def _sentence(texts: list[str], explains: re.Pattern[str], echoed: Echoed) -> str:
    """The sentence that says why, in the agent's own words; the newest text first."""
    for text in texts:
        for sentence in _SENTENCE.split(FENCED.sub("\n", text)):
            plain = _MARKUP.sub("", " ".join(sentence.split())).strip()
            if not 12 <= len(plain) <= _LONGEST_SENTENCE or plain[-1] in "?:" or plain[0] in ">|":
                continue
            says_why = _BECAUSE.search(plain) or not _ANNOUNCES.match(plain)
            if says_why and explains.search(plain) and not echoed(plain):
                return plain
    return ""


def _joined(solution: str, why: str) -> str:
    solution = clip(solution, LONGEST - 1)
    whole = f'{solution} "{why}"' if why else solution
    return whole if len(whole) <= LONGEST else solution
