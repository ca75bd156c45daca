"""How an error was solved: what changed between a call that failed and the same call that passed.

A solution is claimed only when the passing command is the same program on the same target. It
tells the edits as they were made, the command that passed instead, or the words that explain it. A
test that was removed or skipped is not solved, and what destroys work is never told as a cure.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from difflib import unified_diff
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ralph.capture import shell
from ralph.capture.lines import clip, sentences
from ralph.capture.outputs import USAGE
from ralph.capture.rules import names, pattern
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

Echoed = Callable[[str], bool]

_BECAUSE = pattern("because")
_EXPLAINS = re.compile(
    rf"{_BECAUSE.pattern}|\b(?:missing|forgot|never|instead of|needs?|needed|requires?|must|wrong"
    r"|incorrect|mismatch|too (?:early|late|small|large|long|short)|not|was|were|no|has|expects?"
    r"|replaced|switched|removed|renamed|use|uses|which|isn't|doesn't|n't)\b",
    re.I,
)
_OPENING = pattern("opening")
_FIXES = re.compile(r"(?:^|[\s:])(?:-w|--fix|--write|fmt|format|fix|lint:fix|tidy)\b")
# Never told as a cure.
_DESTROYS = pattern("destroys")
# Wrong in the call itself, not in the project, if the line names it.
_WRONG = re.compile(
    rf"{USAGE.pattern}|No such file or directory|no such file or directory:|ignored by one of your"
    r"|did not match any|not a git repository|No version is set",
    re.I,
)


class FileEdit(NamedTuple):
    """A change of a file as it was made; without texts where only the file is known."""

    path: str
    old: str = ""
    new: str = ""


class _FailedCall(msgspec.Struct):
    error: ErrorSeen
    # None: somebody else saw the error and told of it.
    call: shell.ToolAttempt | None
    first: int
    last: int
    nth: int
    turn: int
    # When the same call got past this error, though it failed over another.
    until: int = 0


class _AttemptStep(NamedTuple):
    at: int
    did: str
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
        # Tests that were taken out, and why.
        self.dropped: list[tuple[str, str]] = []

    @property
    def open(self) -> bool:
        """Whether any error waits to be solved."""
        return bool(self._failed)

    def begin(self) -> int:
        """A call begins; the moment is needed when it comes back."""
        self._time += 1
        self._calls += 1
        self._fresh.clear()
        return self._time

    def fail(self, name: str, call: shell.ToolAttempt | None, error: ErrorSeen) -> None:
        """A call failed with this error; without a call, somebody told of it."""
        self._time += 1
        before = self._failed.pop(name, None)
        first = before.first if before else self._time
        self._failed[name] = _FailedCall(error, call, first, self._time, self._calls, self._turn)
        if len(self._failed) > _MOST_OPEN:
            del self._failed[next(iter(self._failed))]

    def do(self, did: str, what: str = "", edit: FileEdit | None = None) -> None:
        """Something was done that may help: `edited`, `ran`, what a `person` said, or an `agent`
        came back whose work is not seen here."""
        if self._failed:
            self._time += 1
            self._steps.append(_AttemptStep(self._time, did, what[:_LONGEST_TEXT], edit))

    def edit(self, edit: FileEdit) -> None:
        """A file was changed; a change that takes the last one back is none."""
        back = FileEdit(edit.path, edit.new, edit.old)
        for step in reversed(self._steps):
            if edit.old and step.edit == back:
                self._steps.remove(step)
                return
        self.do("edited", edit.path, edit)
        for name, failed in list(self._failed.items()):
            if failed.error.error_type == "test" and _drops(edit, failed.error.message):
                del self._failed[name]
                why = _sentence(self._told_since(failed), failed.error, lambda text: False)
                self.dropped.append((failed.error.message.partition(": ")[0], why))

    def ask(self, text: str) -> None:
        """A person said something; what others saw long ago is let go."""
        self._turn += 1
        for name, failed in list(self._failed.items()):
            if failed.call is None and self._turn - failed.turn > 1:
                del self._failed[name]
        self.do("person", text)

    def hear(self, text: str, echoed: Echoed) -> list[tuple[str, str]]:
        """The agent said something; a better account of the errors it has just solved."""
        better = [
            (name, _joined(solution, why))
            for name, (error, solution) in self._fresh.items()
            if (why := _sentence([text[:_LONGEST_TEXT]], error, echoed, _BECAUSE))
        ]
        self._fresh.clear()
        if self._failed:
            self._time += 1
            self._said.append(_AttemptStep(self._time, "said", text[:_LONGEST_TEXT]))
        return better

    def get_past(
        self, call: shell.ToolAttempt, begun: int, names: list[str], echoed: Echoed
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
            elif (
                over
                and failed.error.error_type == "runtime"
                and shell.again(call, failed.call, None)
            ):
                self._time += 1
                failed.until = self._time
        return solved

    def succeed(
        self, call: shell.ToolAttempt, begun: int, echoed: Echoed, *, reads: bool = False
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
            if reads and not (instead and failed.call and shell.origin(failed.call.line) != "own"):
                continue
            if not instead and not self._is_proof(call, failed):
                continue
            del self._failed[name]
            before = failed.call.line if failed.call else ""
            if before and _DESTROYS.search(call.line) and not _DESTROYS.search(before):
                continue  # forced through, not solved
            steps = [] if instead else self._since(failed)
            if solution := self._solution(name, failed, steps, call, instead, echoed):
                solved.append((name, solution))
        if not self._failed:
            self._steps.clear()
            self._said.clear()
        return solved

    def _is_proof(self, call: shell.ToolAttempt, failed: _FailedCall) -> bool:
        """Whether a call that passed shows that the error is gone."""
        message, before = failed.error.message, failed.call
        if before is None:
            # Others saw it: a check after an edit, or after a linter's own fix, is the proof.
            is_lint = failed.error.error_type == "lint"
            if is_lint and _FIXES.search(call.line):
                self.do("ran", call.line)
            fixed = any(s.edit or (is_lint and _FIXES.search(s.what)) for s in self._since(failed))
            return fixed and shell.is_check(call.line)
        if not shell.again(call, before, failed.error.file_path):
            return False
        if any(one.program[:2] in shell.ON_ALL for one in call.calls):
            return self._calls - failed.nth <= _NEAR_COMMIT
        blamed = _blamed(message, before.line) if USAGE.search(message) else ""
        return not blamed or blamed in _words(call.line)

    def _instead(self, call: shell.ToolAttempt, failed: _FailedCall) -> str:
        """What was called in place of a call that was wrong in itself, a few calls later."""
        if failed.call is None or self._calls - failed.nth > _NEAR:
            return ""
        blamed = _blamed(failed.error.message, failed.call.line)
        # Called the same way again, it is something else that changed.
        same = blamed in _words(call.line) and any(s.edit for s in self._since(failed))
        return (
            "" if not blamed or same else shell.instead_of(call, failed.call, failed.error.message)
        )

    def _solution(
        self,
        name: str,
        failed: _FailedCall,
        steps: list[_AttemptStep],
        call: shell.ToolAttempt,
        instead: str,
        echoed: Echoed,
    ) -> str:
        why = _sentence(self._told_since(failed), failed.error, echoed)
        done = [part for part in (instead, _edits(steps, failed.error), _ran(steps)) if part]
        if failed.call and call.text != failed.call.text:
            if not done and not shell.is_check(call.line):
                done = list(filter(None, [shell.instead_of(call, failed.call)]))
            if given := _given(call.text, failed.call.text):
                done.append(f"with `{given}`")
        if not done and (paths := dict.fromkeys(step.edit.path for step in steps if step.edit)):
            if not why:
                return ""  # much was changed, and nothing says what of it helped
            done.append(f"edited {_few(list(paths))}")
        person = [step.what for step in steps if step.did == "person"]
        if person and 12 <= len(person[-1]) <= _LONGEST_WORD:
            done.append(f'the person said "{_code(" ".join(person[-1].split()), _LONGEST_WORD)}"')
        if not done:
            return ""
        whole = "; ".join(done)
        if instead:
            whole += " passed"
        elif f"ran `{shell.short(call.line)}`" not in done:
            whole += f"; then `{shell.short(call.line)}` passed"
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
            until = failed.until or self._time + 1
            later = [step for step in self._steps if moment < step.at < until]
            if found := [s for s in later if s.did != "ran" or _may_help(s.what)]:
                return found
        return []

    def may_be(self, line: str) -> bool:
        """Whether the line could be one that failed; only a closer look can tell."""
        return any(
            failed.call is None or failed.call.hint in line or self._calls - failed.nth <= _NEAR
            for failed in self._failed.values()
        )


def _blamed(message: str, line: str) -> str:
    """The word of a line that an error is about; nothing when it is about what the line runs."""
    if not _WRONG.search(message):
        return ""
    for blamed in reversed(pattern("blamed").findall(message)):
        folder = f"{blamed}/" if len(blamed) > 3 else "\0"
        if found := next((w for w in _words(line) if w == blamed or w.startswith(folder)), ""):
            return found
    return ""


def _words(line: str) -> list[str]:
    return re.split(r"[\s'\"=;|&()]+", line)


# Asked of the same few commands for each error that is open.
@lru_cache(maxsize=_MOST_STEPS)
def _may_help(line: str) -> bool:
    """Whether a command may be what helped: it installs, fixes, writes or sets something up."""
    if _DESTROYS.search(line) or pattern("keeps").search(line):
        return False
    if _FIXES.search(line) or shell.written_by(line):
        return True
    return pattern("sets up").search(line) is not None and not shell.is_check(line)


def _drops(edit: FileEdit, test: str) -> bool:
    """Whether an edit takes a failing test out, or skips it."""
    name = pattern("leaf").search(test.partition(": ")[0].strip())
    if name is None or len(name[0]) < 5:
        return False
    gone = name[0] in edit.old and name[0] not in edit.new and len(edit.old) > len(edit.new)
    skipped = pattern("skips").search(edit.new) and not pattern("skips").search(edit.old)
    return gone or bool(skipped and name[0] in edit.old + edit.new)


def _given(text: str, before: str) -> str:
    """The variables that a line sets and the one before did not."""
    new = [word for word in text.split() if pattern("set").match(word) and word not in before]
    return _code(" ".join(new).rstrip(";"), _LONGEST_WORD)


def _edits(steps: list[_AttemptStep], error: ErrorSeen) -> str:
    """The changes that bear on the error, as hunks; the other files by name."""
    edits = [step.edit for step in steps if step.edit]
    words = _names(error.message)

    def weight(edit: FileEdit) -> int:
        here = 2 if error.file_path and edit.path == error.file_path else 0
        return here + min(3, len(words & _names(f"{edit.old} {edit.new}")))

    # Of many edits, or beside another agent's, only those that bear on the error are told.
    least = 2 if any(step.did == "agent" for step in steps) else int(len(edits) > _MOST_TOLD)
    best = sorted((edit for edit in edits[::-1] if weight(edit) >= least), key=weight, reverse=True)
    best = best[:_MOST_TOLD]
    told: dict[str, list[str]] = {}
    for edit in best:
        hunk = _hunk(edit, len(best))
        if hunk and not any(hunk in hunks for hunks in told.values()):
            told.setdefault(edit.path, []).append(hunk)
    if not best:
        return ""
    parts = [f"{path}: {', '.join(hunks)}" for path, hunks in told.items()]
    more = [path for path in dict.fromkeys(edit.path for edit in edits) if path not in told]
    return f"edited {'; '.join([*parts, _few(more)] if more else parts)}"


def _few(names: list[str]) -> str:
    """The last few of many."""
    more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[-_MOST_TOLD:]) + more


def _hunk(edit: FileEdit, share: int) -> str:
    """What an edit took out and put in, without what stayed; its share of the room there is."""
    old, new = edit.old.splitlines()[:_MOST_LINES], edit.new.splitlines()[:_MOST_LINES]
    diff = list(unified_diff(old, new, n=0, lineterm=""))[2:]
    gone, put = (_telling([line[1:] for line in diff if line[0] == sign]) for sign in "-+")
    # From a little before where they begin to differ.
    same = next((at for at, (a, b) in enumerate(zip(gone, put, strict=False)) if a != b), 0)
    if same >= 2 * _AROUND:
        start = gone.rfind(" ", 0, same - _AROUND) + 1
        gone, put = f"\u2026{gone[start:]}", f"\u2026{put[start:]}"
    most = _HUNKS // share // max(1, bool(gone) + bool(put)) - 4
    sides = (("-", gone), ("+", put))
    return " ".join(f"{sign}`{_code(text, most)}`" for sign, text in sides if text)


def _telling(lines: list[str]) -> str:
    """The lines on one line, without imports and brackets where there is anything else."""
    own = [line for line in lines if not pattern("filler").fullmatch(line)]
    return " ".join(" ".join(own or lines).split())


def _code(text: str, most: int) -> str:
    # Far more was redacted than stays, so no half of a secret does.
    text = redact(text[: 4 * most + 200]).replace("`", "'")
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _ran(steps: list[_AttemptStep]) -> str:
    """The last few commands that may have helped, each once, in order."""
    each = list(dict.fromkeys(step.what for step in steps if step.did == "ran"))
    told = []
    for line in each:
        files = ", ".join(shell.written_by(line))
        writes = f" (a script that writes {files})" if files else ""
        told.append(f"`{shell.short(line)}`{writes}")
    return f"ran {_few(told)}" if told else ""


def _names(text: str) -> frozenset[str]:
    """The words of a text that may name something, in lower case."""
    return frozenset(re.findall(r"[A-Za-z_]\w{3,}", text[:_LONGEST_TEXT].lower())) - names("common")


def _sentence(
    texts: list[str], error: ErrorSeen, echoed: Echoed, explains: re.Pattern[str] = _EXPLAINS
) -> str:
    """The sentence that best says why, in the agent's own words; the newest text first."""
    words, best, most = _names(error.message), "", 1.4
    for age, text in enumerate(texts[:4]):
        for sentence in sentences(text):
            plain = _OPENING.sub("", pattern("markup").sub("", " ".join(sentence.split())).strip())
            if not 12 <= len(plain) <= _LONGEST_SENTENCE or plain[-1] in "?:" or plain[0] in ">|":
                continue
            because = _BECAUSE.search(plain)
            if (not because and pattern("announces").match(plain)) or not explains.search(plain):
                continue
            worth = 1.0 + min(2, len(words & _names(plain))) + (2 if because else 0)
            # The first words after a failure are about it.
            worth += 0.5 if age == len(texts) - 1 else -0.4 * age
            worth += 0.5 if "`" in plain else 0
            if worth > most and not echoed(plain):
                best, most = plain, worth
    return best[:1].upper() + best[1:] if best.partition(" ")[0].isalpha() else best


def _joined(solution: str, why: str) -> str:
    solution = clip(solution, LONGEST - 1)
    whole = f'{solution} "{why}"' if why else solution
    return whole if len(whole) <= LONGEST else solution
