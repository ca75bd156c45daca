"""How an error was solved: what changed between a call that failed and the same call that passed.

A solution is claimed only when the passing command is the same program on the same target. It
tells the edits as they were made, the command that passed instead, or the words that explain it. A
test that was removed or skipped is not solved, and what destroys work is never told as a cure.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from ralph.capture.calls import (
    ON_ALL,
    ToolAttempt,
    again,
    instead_of,
    is_check,
    short,
)
from ralph.capture.shell import origin
from ralph.capture.stumbles import USAGE
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

ELSEWHERE = "a file outside the project"
LONGEST = 480
_HUNKS = 300
_MOST_OPEN = 50
_MOST_STEPS = 200
_MOST_LINES = 120
_AROUND = 20
_MOST_TOLD = 3
_LONGEST_SENTENCE = 220
_LONGEST_TEXT = 4000
_LONGEST_WORD = 140
_NEAR = 8
_NEAR_COMMIT = 20
_SET = re.compile(r"[A-Z_][A-Z0-9_]+=")

Echoed = Callable[[str], bool]

_SENTENCE = re.compile(r"(?<=[.!])\s+(?=[A-Z*`\"(-])|\n+")
_MARKUP = re.compile(r"^(?:[-*+•]|\d+[.)]|#+)\s+|\*\*|__")
_FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)
_BECAUSE = re.compile(
    r"\b(?:because|due to|caused by|since|as (?:it|the|they)|so that|turns out"
    r"|the (?:root |actual |real )?(?:cause|problem|issue|reason|bug|culprit|mistake)\b)",
    re.I,
)
_EXPLAINS = re.compile(
    rf"{_BECAUSE.pattern}|\b(?:missing|forgot|never|instead of|needs?|needed|requires?|must|wrong"
    r"|incorrect|mismatch|too (?:early|late|small|large|long|short)|not|was|were|no|has|expects?"
    r"|replaced|switched|removed|renamed|use|uses|which|isn't|doesn't|n't)\b",
    re.I,
)
_ANNOUNCES = re.compile(
    r"(?:let me|let's|now\b|next\b|first\b|then\b|running|re-?run|checking|looking|trying|time to"
    r"|good\b|great\b|perfect\b|excellent\b|ok(?:ay)?\b|done\b|all (?:tests?|checks?|green)"
    r"|(?:the )?(?:tests?|build|checks?|lint)\b.{0,20}\b(?:pass|green|succeed)|i need to|i should"
    r"|i'll (?:run|check|look|start|begin|verify|read|see|first)|both\b|everything)",
    re.I,
)
_OPENING = re.compile(
    r"^(?:(?:got it|i see(?: the issue)?|good(?: catch)?|right|yes|okay?|ah|hmm|found it|confirmed)"
    r"\b[!.,:]?\s*(?:[\u2014-]\s*)?)+",
    re.I,
)
_SKIPS = re.compile(
    r"\bt\.Skip|mark\.skip|mark\.xfail|\b(?:it|test|describe)\.skip\b|\bxit\(|#\[ignore|@Ignore\b"
    r"|@Disabled\b|\.todo\("
)
_FIXES = re.compile(r"(?:^|[\s:])(?:-w|--fix|--write|fmt|format|fix|lint:fix|tidy)\b")
_SETS_UP = re.compile(
    r"(?<![\w./-])(?:install|add|get|update|upgrade|sync|generate|codegen|migrate|restart|start"
    r"|up|init|trust|login|enable|rebuild|reinstall|link|export|pull|sed -i|mv|cp|mkdir|chmod|ln"
    r"|touch|unlock)(?![\w./=-])|(?:setup|bootstrap|generate)[\w-]{0,20}\.(?:sh|ps1|py)\b"
)
_KEEPS = re.compile(
    r"\bgit (?:add|commit|push|stash|config --get|rebase|merge|fetch|switch|checkout)\b"
)
# Never told as a cure.
_DESTROYS = re.compile(
    r"git (?:checkout|restore) (?:\S{1,100} ){0,9}(?:--|\.)|git stash (?:drop|clear)|reset --hard"
    r"|\brm -\w*[rf]|git clean|--force\b|push -f\b|branch -D|--no-verify"
)
_FILLER = re.compile(
    r"\s*(?:import\b.*|from \S+ import .*|(?:\w+ )?\"[\w./@-]+\",?|use [\w:]+;|#include .*"
    r"|[{}()\[\],;]*|//.*)"
)
_COMMON = frozenset(
    "error errors failed fail test tests with from this that have code exit file line does must"
    " type call func function return string const expected found cannot could".split()
)
_LEAF = re.compile(r"[\w-]+$")


class FileEdit(NamedTuple):
    """A change of a file as it was made; without texts where only the file is known."""

    path: str
    old: str = ""
    new: str = ""


class _FailedCall(msgspec.Struct):
    error: ErrorSeen
    # None: somebody else saw the error and told of it.
    call: ToolAttempt | None
    first: int
    last: int
    nth: int
    turn: int
    # When the same call got past this error, though it failed over another.
    until: int = 0


class _AttemptStep(NamedTuple):
    at: int
    did: Literal["edited", "ran", "said", "person", "agent"]
    what: str
    edit: FileEdit | None = None


class Attempts:
    """The errors of calls that failed, until the same call goes well."""

    def __init__(self) -> None:
        self._time = 0
        self._calls = 0
        self._turn = 0
        self._failed: dict[str, _FailedCall] = {}
        self._steps: deque[_AttemptStep] = deque(maxlen=_MOST_STEPS)
        self._said: deque[_AttemptStep] = deque(maxlen=6)
        # Solved a moment ago: the next words may say why.
        self._fresh: dict[str, tuple[ErrorSeen, str]] = {}
        # Errors that others saw, with what is claimed of each so far.
        self._reported: dict[str, str] = {}
        # Tests that were taken out, and why.
        self.dropped: list[tuple[str, str]] = []

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
        self._calls += 1
        self._fresh.clear()
        return self._time

    def fail(self, name: str, call: ToolAttempt | None, error: ErrorSeen) -> None:
        """A call failed with this error; without a call, somebody told of it."""
        self._time += 1
        before = self._failed.pop(name, None)
        first = before.first if before else self._time
        self._failed[name] = _FailedCall(error, call, first, self._time, self._calls, self._turn)
        if len(self._failed) > _MOST_OPEN:
            del self._failed[next(iter(self._failed))]

    def edit(self, edit: FileEdit) -> None:
        """A file was changed; a change that takes the last one back is none."""
        if not self._failed:
            return
        self._time += 1
        for step in reversed(self._steps):
            if step.edit and edit.old and step.edit == FileEdit(edit.path, edit.new, edit.old):
                self._steps.remove(step)
                return
        self._steps.append(_AttemptStep(self._time, "edited", edit.path, edit))
        for name, failed in list(self._failed.items()):
            if failed.error.error_type == "test" and _drops(edit, failed.error.message):
                del self._failed[name]
                why = _sentence(self._told_since(failed), failed.error, lambda text: False)
                self.dropped.append((failed.error.message.partition(": ")[0], why))

    def ran(self, command: str) -> None:
        """A command came back well that may have helped."""
        if self._failed:
            self._time += 1
            self._steps.append(_AttemptStep(self._time, "ran", command[:_LONGEST_TEXT]))

    def delegate(self) -> None:
        """Another agent came back; what it changed is not seen here."""
        if self._failed:
            self._time += 1
            self._steps.append(_AttemptStep(self._time, "agent", ""))

    def asked(self, text: str) -> None:
        """A person said something while an error was open; what others saw long ago is let go."""
        self._turn += 1
        for name, failed in list(self._failed.items()):
            if failed.call is None and self._turn - failed.turn > 1:
                del self._failed[name]
        if self._failed:
            self._time += 1
            self._steps.append(_AttemptStep(self._time, "person", text[:_LONGEST_TEXT]))

    def hear(self, text: str, echoed: Echoed) -> list[tuple[str, str]]:
        """The agent said something; a better account of the errors it has just solved."""
        better: list[tuple[str, str]] = []
        for name, (error, solution) in self._fresh.items():
            if why := _sentence([text[:_LONGEST_TEXT]], error, echoed, _BECAUSE):
                better.append((name, _joined(solution, why)))
        self._fresh.clear()
        if self._failed:
            self._time += 1
            self._said.append(_AttemptStep(self._time, "said", text[:_LONGEST_TEXT]))
        return better

    def get_past(
        self, call: ToolAttempt, begun: int, names: list[str], echoed: Echoed
    ) -> list[tuple[str, str]]:
        """A call did not fail over these errors any more, but over `names`, or it is not known
        how it went: what was done so far helped."""
        solved: list[tuple[str, str]] = []
        over = [self._failed[name] for name in names if name in self._failed]
        if any(USAGE.search(failed.error.message) for failed in over):
            return []
        for name, failed in list(self._failed.items()):
            if name in names or begun <= failed.last or failed.call is None or failed.until:
                continue
            if instead := self._instead(call, failed):
                del self._failed[name]
                solved.append((name, self._solution(name, failed, [], call, instead, echoed)))
            elif over and failed.error.error_type == "runtime" and again(call, failed.call, None):
                self._time += 1
                failed.until = self._time
        return solved

    def succeed(
        self, call: ToolAttempt, begun: int, echoed: Echoed, *, reads: bool = False
    ) -> list[tuple[str, str]]:
        """A call went well: the errors that are gone with it, and how each was solved.

        One that only `reads` proves nothing, but may stand in place of a call that was wrong.
        """
        solved: list[tuple[str, str]] = []
        self._fresh.clear()
        for name, failed in list(self._failed.items()):
            # What was begun before the failure was known is no second try.
            if begun <= failed.last:
                continue
            instead = self._instead(call, failed)
            if reads and not (instead and failed.call and origin(failed.call.line) != "own"):
                continue
            if failed.call is None:
                if not self._settles(call, failed):
                    continue
            elif not instead and not self._again(call, failed.call, failed):
                continue
            del self._failed[name]
            if (
                failed.call
                and _DESTROYS.search(call.line)
                and not _DESTROYS.search(failed.call.line)
            ):
                continue  # forced through, not solved
            steps = [] if instead else self._since(failed)
            if solution := self._solution(name, failed, steps, call, instead, echoed):
                solved.append((name, solution))
                if failed.call is None:
                    self._reported[name] = solution
        if not self._failed:
            self._steps.clear()
            self._said.clear()
        return solved

    def _again(self, call: ToolAttempt, before: ToolAttempt, failed: _FailedCall) -> bool:
        """Whether the same call was made again, near enough to speak of the same matter."""
        if not again(call, before, failed.error.file_path):
            return False
        if any(one.program[:2] in ON_ALL for one in call.calls):
            return self._calls - failed.nth <= _NEAR_COMMIT
        blamed = _blamed(failed.error.message, before.line)
        return not USAGE.search(failed.error.message) or not blamed or blamed in _words(call.line)

    def _settles(self, call: ToolAttempt, failed: _FailedCall) -> bool:
        """Whether a call proves that an error others saw is gone: a check after an edit."""
        if not is_check(call.line):
            return False
        is_lint = failed.error.error_type == "lint"
        if is_lint and _FIXES.search(call.line):
            self.ran(call.line)
        return any(s.edit or (is_lint and _FIXES.search(s.what)) for s in self._since(failed))

    def commit(self, subject: str, echoed: Echoed) -> list[tuple[str, str]]:
        """The work was committed: that settles what others had seen, and says how."""
        solved: list[tuple[str, str]] = []
        for name, failed in list(self._failed.items()):
            steps = self._since(failed) if failed.call is None else []
            texts = [f"{step.edit.old} {step.edit.new}" for step in steps if step.edit]
            # A commit of something else settles nothing.
            if texts and _names(failed.error.message) & _names(f"{subject} {' '.join(texts)}"):
                del self._failed[name]
                self._reported[name] = self._solution(name, failed, steps, None, "", echoed)
        for name, solution in self._reported.items():
            whole = f'{solution} Committed as "{subject}".'
            if solution:
                solved.append((name, whole if len(whole) <= LONGEST else solution))
        self._reported.clear()
        return solved

    def _instead(self, call: ToolAttempt, failed: _FailedCall) -> str:
        """What was called in place of a call that was wrong in itself, a few calls later."""
        if failed.call is None or self._calls - failed.nth > _NEAR:
            return ""
        message = failed.error.message
        blamed = _blamed(message, failed.call.line)
        if not (blamed and USAGE.search(message)) and not _is_wrong(message, failed.call.line):
            return ""
        # Called the same way again, it is something else that changed.
        if blamed in _words(call.line) and any(s.edit for s in self._since(failed)):
            return ""
        return instead_of(call, failed.call, message)

    def _solution(
        self,
        name: str,
        failed: _FailedCall,
        steps: list[_AttemptStep],
        call: ToolAttempt | None,
        instead: str,
        echoed: Echoed,
    ) -> str:
        why = _sentence(self._told_since(failed), failed.error, echoed)
        done = [part for part in (instead, _edits(steps, failed.error), _ran(steps)) if part]
        if not done and failed.call and call and call.text != failed.call.text:
            done = [
                one for one in [instead_of(call, failed.call)] if one and not is_check(call.line)
            ]
        if failed.call and call and (given := _given(call.text, failed.call.text)):
            done.append(f"with `{given}`")
        if not done and (paths := dict.fromkeys(step.edit.path for step in steps if step.edit)):
            if not why:
                return ""  # much was changed, and nothing says what of it helped
            done.append(f"edited {_few(list(paths))}")
        person = [step.what for step in steps if step.did == "person"]
        if person and 12 <= len(person[-1]) <= _LONGEST_WORD:
            done.append(f'the person said "{_code(" ".join(person[-1].split()), _LONGEST_WORD)}"')
        elif not done and person and why:
            done = ["the person stepped in"]
        if not done:
            return ""
        whole = "; ".join(done)
        if instead:
            whole += " passed"
        elif call and f"ran `{short(call.line)}`" not in done:
            whole += f"; then {call.success}"
        whole = f"{whole[:1].upper()}{whole[1:]}."
        if not why:
            self._fresh[name] = failed.error, whole
        return _joined(whole, why)

    def _told_since(self, failed: _FailedCall) -> list[str]:
        """The agent's words since the failure, the newest first."""
        later = [step.what for step in self._said if step.at > failed.last]
        return (later or [step.what for step in self._said if step.at > failed.first])[::-1]

    def _since(self, failed: _FailedCall) -> list[_AttemptStep]:
        """What came after the failure; after the first one when nothing came after the last."""
        for moment in (failed.last, failed.first):
            later = [step for step in self._steps if step.at > moment]
            if failed.until:
                later = [step for step in later if step.at < failed.until]
            if found := [s for s in later if s.did != "ran" or _may_help(s.what)]:
                return found
        return []

    def may_be(self, line: str) -> bool:
        """Whether the line could be one that failed; only a closer look can tell."""
        for failed in self._failed.values():
            if failed.call is None or failed.call.hint in line:
                return True
            message = failed.error.message
            if self._calls - failed.nth <= _NEAR and (
                USAGE.search(message) or _is_wrong(message, failed.call.line)
            ):
                return True
        return False


# Wrong in the call itself, not in the project, if the line names it.
_WRONG = re.compile(
    r"No such file or directory|no such file or directory:|ignored by one of your|did not match any"
    r"|not a git repository|No version is set",
)
_BLAMED = re.compile(r"--?[\w-]+|[\w./*-]{2,}")


def _blamed(message: str, line: str) -> str:
    """The word of a line that an error is about; nothing when it is about what the line runs."""
    words = _words(line)
    return next((word for word in reversed(_BLAMED.findall(message)) if word in words), "")


def _words(line: str) -> list[str]:
    return re.split(r"[\s'\"=;|&()]+", line)


def _is_wrong(message: str, line: str) -> bool:
    if not _WRONG.search(message):
        return False
    return any(len(word) > 3 and word.strip("./") in line for word in _BLAMED.findall(message))


# Asked of the same few commands for each error that is open.
@lru_cache(maxsize=_MOST_STEPS)
def _may_help(line: str) -> bool:
    """Whether a command may be what helped: it installs, fixes, writes or sets something up."""
    if _DESTROYS.search(line) or _KEEPS.search(line):
        return False
    if _FIXES.search(line) or written_by(line):
        return True
    return _SETS_UP.search(line) is not None and not is_check(line)


def _drops(edit: FileEdit, test: str) -> bool:
    """Whether an edit takes a failing test out, or skips it."""
    name = _LEAF.search(test.partition(": ")[0].strip())
    if name is None or len(name[0]) < 5:
        return False
    gone = name[0] in edit.old and name[0] not in edit.new and len(edit.old) > len(edit.new)
    skipped = _SKIPS.search(edit.new) and not _SKIPS.search(edit.old)
    return gone or bool(skipped and name[0] in edit.old + edit.new)


def _given(text: str, before: str) -> str:
    """The variables that a line sets and the one before did not."""
    new = [word for word in text.split() if _SET.match(word) and word not in before]
    return _code(" ".join(new).rstrip(";"), _LONGEST_WORD)


def _edits(steps: list[_AttemptStep], error: ErrorSeen) -> str:
    """The changes that bear on the error, as hunks; the other files by name."""
    edits = [step.edit for step in steps if step.edit]
    if not edits:
        return ""
    words = _names(error.message)

    def weight(item: tuple[int, FileEdit]) -> tuple[float, int]:
        at, edit = item
        here = 2.0 if error.file_path and edit.path == error.file_path else 0.0
        return here + min(3, len(words & _names(edit.old + " " + edit.new))), at

    ranked = sorted(enumerate(edits), key=weight, reverse=True)
    # Of many edits, or beside another agent's, only those that bear on the error are told.
    least = 2 if any(step.did == "agent" for step in steps) else int(len(edits) > _MOST_TOLD)
    best = [item[1] for item in ranked[:_MOST_TOLD] if weight(item)[0] >= least]
    if not best:
        return ""
    hunks: dict[FileEdit, str] = {}
    for edit in best:
        hunk = _hunk(edit, len(best))
        if hunk and hunk not in hunks.values():
            hunks[edit] = hunk
    paths = list(dict.fromkeys(edit.path for edit in hunks))
    told = [f"{path}: {', '.join(hunks[e] for e in hunks if e.path == path)}" for path in paths]
    more = [path for path in dict.fromkeys(edit.path for edit in edits) if path not in paths]
    return f"edited {'; '.join([*told, _few(more)] if more else told)}"


def _few(names: list[str]) -> str:
    """The last few of many."""
    more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[-_MOST_TOLD:]) + more


def _hunk(edit: FileEdit, share: int) -> str:
    """What an edit took out and put in, without what stayed; its share of the room there is."""
    old, new = edit.old.splitlines()[:_MOST_LINES], edit.new.splitlines()[:_MOST_LINES]
    gone, put = list[str](), list[str]()
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            gone += old[a:b]
            put += new[c:d]
    sides = list(zip("-+", _apart(_telling(gone), _telling(put)), strict=True))
    most = _HUNKS // share // max(1, sum(bool(text) for _, text in sides)) - 4
    return " ".join(f"{sign}`{_code(text, most)}`" for sign, text in sides if text)


def _apart(one: str, other: str) -> tuple[str, str]:
    """Two texts from a little before where they begin to differ."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    if same < 2 * _AROUND:
        return one, other
    start = one.rfind(" ", 0, same - _AROUND) + 1
    return "\u2026" + one[start:], "\u2026" + other[start:]


def _telling(lines: list[str]) -> str:
    """The lines on one line, without imports and brackets where there is anything else."""
    own = [line for line in lines if not _FILLER.fullmatch(line)]
    return " ".join(" ".join(own or lines).split())


def _code(text: str, most: int) -> str:
    # Far more was redacted than stays, so no half of a secret does.
    text = redact(text[: 4 * most + 200]).replace("`", "'")
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _ran(steps: list[_AttemptStep]) -> str:
    """The last few commands that may have helped, each once, in order."""
    each = list(dict.fromkeys(step.what for step in steps if step.did == "ran"))
    if not each:
        return ""
    return f"ran {_few([f'`{short(what)}`{_script_files(what)}' for what in each])}"


_SCRIPT_WRITES = re.compile(r"writeFile|\.write\(|write_text|File\.write|['\"]w['\"]")
_SCRIPT_FILE = re.compile(r"['\"]([\w./-]{2,120}\.[a-z]{1,5})['\"]")


def written_by(line: str) -> list[str]:
    """The files that a script on the command line writes, as far as it names them."""
    if not re.search(r" -[ce] ", line[:200]) or not _SCRIPT_WRITES.search(line):
        return []
    return list(dict.fromkeys(_SCRIPT_FILE.findall(line)))[:2]


def _script_files(line: str) -> str:
    files = written_by(line)
    return f" (a script that writes {', '.join(files)})" if files else ""


def _names(text: str) -> frozenset[str]:
    """The words of a text that may name something, in lower case."""
    words = re.findall(r"[A-Za-z_]\w{3,}", text[:_LONGEST_TEXT].lower())
    return frozenset(words) - _COMMON


def _sentence(
    texts: list[str],
    error: ErrorSeen,
    echoed: Echoed,
    explains: re.Pattern[str] = _EXPLAINS,
) -> str:
    """The sentence that best says why, in the agent's own words; the newest text first."""
    words, best, most = _names(error.message), "", 1.4
    for age, text in enumerate(texts[:4]):
        for sentence in _SENTENCE.split(_FENCED.sub("\n", text)):
            plain = _OPENING.sub("", _MARKUP.sub("", " ".join(sentence.split())).strip())
            if not 12 <= len(plain) <= _LONGEST_SENTENCE or plain[-1] in "?:" or plain[0] in ">|":
                continue
            because = _BECAUSE.search(plain)
            if (not because and _ANNOUNCES.match(plain)) or not explains.search(plain):
                continue
            worth = 1.0 + min(2, len(words & _names(plain))) + (2 if because else 0)
            worth += (0.5 if "`" in plain else 0) - 0.4 * age
            # The first words after a failure are about it.
            worth += 0.5 + 0.4 * age if age == len(texts) - 1 else 0
            if worth > most and not echoed(plain):
                best, most = plain, worth
    word = best.partition(" ")[0]
    return best[:1].upper() + best[1:] if word.isalpha() else best


def _joined(solution: str, why: str) -> str:
    if len(solution) > LONGEST:
        solution = solution[: LONGEST - 1].rsplit(None, 1)[0] + "\u2026"
    whole = f'{solution} "{why}"' if why else solution
    return whole if len(whole) <= LONGEST else solution
