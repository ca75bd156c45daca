"""How an error was solved: what changed between a call that failed and the same call that passed.

A solution is claimed only when the passing command is the same program on the same target. It
gives the edits that were made, the command that passed instead, or the words that explain it. A
test that was removed or skipped is not solved, and a command that destroys work is never given as
a solution.
"""

from __future__ import annotations

import re
from collections import deque
from difflib import unified_diff
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ralph.capture import shell
from ralph.capture.lines import clip
from ralph.capture.outputs import USAGE
from ralph.capture.reasons import (
    LONGEST_REASON,
    LONGEST_TEXT,
    Echoed,
    Subject,
    error_words,
    rare_words,
    reason,
    reason_after,
)
from ralph.capture.rules import pattern
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

ELSEWHERE = "a file outside the project"
LONGEST = 480
# How many characters of the edits are shown: fewer if there is no room for the reason.
_HUNKS = (300, 180, 100)
_MOST_OPEN = 50
_MOST_STEPS = 200
_MOST_LINES = 120
_AROUND = 20
_MOST_TOLD = 3
_LONGEST_WORD = 140
_NEAR = 8
_NEAR_COMMIT = 20
# A program that is missing stays missing, so it may be found much later.
_NEAR_PROGRAM = 60
_MOST_SOLVED = 20
_GOT_PAST = " got past it"

_FIXES = re.compile(r"(?:^|[\s:])(?:-w|--fix|--write|fmt|format|fix|lint:fix|tidy)\b")
# Never given as a solution.
_DESTROYS = pattern("destroys")
# The call itself was wrong, not the project, if the line contains what the error names.
WRONG_CALL = re.compile(
    rf"{USAGE.pattern}|{pattern('misplaced').pattern}|ignored by one of your|No version is set",
    re.I,
)


class FileEdit(NamedTuple):
    """An edit of a file; without texts if only the file is known."""

    path: str
    old: str = ""
    new: str = ""


class _FailedCall(msgspec.Struct):
    error: ErrorSeen
    # None: somebody else met the error and reported it.
    call: shell.ToolAttempt | None
    first: int
    last: int
    nth: int
    turn: int
    # The time when the same call got past this error but failed with another one.
    until: int = 0


class _AttemptStep(NamedTuple):
    at: int
    did: str
    what: str
    edit: FileEdit | None = None
    # How many calls were made before it.
    calls: int = 0


class Attempts:
    """The errors of calls that failed, until the same call succeeds."""

    def __init__(self) -> None:
        self._time = 0
        self._calls = 0
        self._turn = 0
        self._failed: dict[str, _FailedCall] = {}
        self._steps: deque[_AttemptStep] = deque(maxlen=_MOST_STEPS)
        self._said: deque[_AttemptStep] = deque(maxlen=6)
        # Errors solved just now: the agent's next words may say why.
        self._fresh: dict[str, tuple[Subject, list[str]]] = {}
        # What was solved since the person last spoke.
        self._solved: dict[str, str] = {}
        # Tests that were removed, and why.
        self.dropped: list[tuple[str, str]] = []

    @property
    def open(self) -> bool:
        """Whether any error is still unsolved."""
        return bool(self._failed)

    def begin(self) -> int:
        """Note that a call begins; return the time, which is needed when the call ends."""
        self._time += 1
        self._calls += 1
        self._fresh.clear()
        return self._time

    def fail(self, name: str, call: shell.ToolAttempt | None, error: ErrorSeen) -> None:
        """Note that a call failed with this error; without a call, somebody reported the error."""
        self._time += 1
        before = self._failed.pop(name, None)
        first = before.first if before else self._time
        self._failed[name] = _FailedCall(error, call, first, self._time, self._calls, self._turn)
        if len(self._failed) > _MOST_OPEN:
            del self._failed[next(iter(self._failed))]

    def do(self, did: str, what: str = "", edit: FileEdit | None = None) -> None:
        """Note something that may help: `edited`, `ran`, what a `person` said, or an `agent` came
        back whose work is not visible here."""
        if self._failed:
            self._time += 1
            self._steps.append(_AttemptStep(self._time, did, what[:LONGEST_TEXT], edit))

    def edit(self, edit: FileEdit) -> None:
        """Note a change of a file; a change that undoes an earlier one removes that one instead."""
        back = FileEdit(edit.path, edit.new, edit.old)
        for step in reversed(self._steps):
            if edit.old and step.edit == back:
                self._steps.remove(step)
                return
        self.do("edited", edit.path, edit)
        for name, failed in list(self._failed.items()):
            if failed.error.error_type == "test" and _drops(edit, failed.error.message):
                del self._failed[name]
                said = self._told_since(failed)
                subject = Subject(failed.error.message, edit.old)
                why = reason(said, subject, lambda text: False)
                self.dropped.append((failed.error.message.partition(": ")[0], why))

    def ask(self, text: str) -> None:
        """Note what a person said; drop errors that others reported more than a turn ago."""
        self._turn += 1
        for name, failed in list(self._failed.items()):
            if failed.call is None and self._turn - failed.turn > 1:
                del self._failed[name]
        self._solved.clear()
        if pattern("rejects").match(text):
            # What was edited before is not what helps.
            kept = [step for step in self._steps if step.edit is None]
            self._steps = deque(kept, maxlen=_MOST_STEPS)
        self.do("person", text)

    def rejected(self, text: str) -> list[str]:
        """Return the errors whose solutions of this turn a person's words are against."""
        return [name for name, claim in self._solved.items() if is_against(text, claim)]

    def hear(self, text: str, echoed: Echoed) -> list[tuple[str, str]]:
        """Note what the agent said; return better solutions of the errors it has just solved."""
        better: list[tuple[str, str]] = []
        for name, (subject, claims) in self._fresh.items():
            if why := reason_after(text[:LONGEST_TEXT], subject, echoed):
                better.append((name, _with_reason(claims, why)))
        self._fresh.clear()
        if self._failed:
            self._time += 1
            said = _AttemptStep(self._time, "said", text[:LONGEST_TEXT], calls=self._calls)
            self._said.append(said)
        return better

    def get_past(
        self, call: shell.ToolAttempt, begun: int, names: list[str], echoed: Echoed
    ) -> list[tuple[str, str]]:
        """Note a call that failed with the errors `names`, or whose result is unclear. Return the
        solutions of earlier errors that it got past."""
        solved: list[tuple[str, str]] = []
        over = [self._failed[name] for name in names if name in self._failed]
        if any(WRONG_CALL.search(failed.error.message) for failed in over):
            return []
        for name, failed in list(self._failed.items()):
            if name in names or begun <= failed.last or failed.call is None or failed.until:
                continue
            if instead := self._instead(call, failed):
                del self._failed[name]
                if over:
                    instead += _GOT_PAST
                solution = self._solution(name, failed, [], call, instead, echoed)
                solved.append((name, solution))
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
        """Note a call that succeeded; return the errors that it solved, and how.

        A call that only `reads` proves nothing, but may replace a call that was wrong.
        """
        solved: list[tuple[str, str]] = []
        self._fresh.clear()
        for name, failed in list(self._failed.items()):
            # A call that began before the failure was known is not a second try.
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
        message = failed.error.message
        before = failed.call
        error_type = failed.error.error_type
        if before is None:
            # Others met it: the proof is a check after an edit, or after a linter's own fix.
            is_lint = error_type == "lint"
            if is_lint and _FIXES.search(call.line):
                self.do("ran", call.line)
            fixed = any(
                (step.edit and _bears_on(step.edit, failed.error))
                or (is_lint and _FIXES.search(step.what))
                for step in self._since(failed)
            )
            return fixed and shell.proves(call.line, error_type)
        if not shell.again(call, before, failed.error.file_path, error_type):
            return self._is_part(call, failed)
        if any(one.program[:2] in shell.ON_ALL for one in call.calls):
            return self._calls - failed.nth <= _NEAR_COMMIT
        blamed = _blamed(failed.error, before.line) if USAGE.search(message) else ""
        return not blamed or blamed in _words(call.line)

    def _is_part(self, call: shell.ToolAttempt, failed: _FailedCall) -> bool:
        """Whether a step like `go mod tidy` came between, and most of the call then passed."""
        if failed.call is None or self._calls - failed.nth > _NEAR:
            return False
        steps = self._since(failed)
        if pattern("lacked").search(failed.error.message) and any(s.did == "ran" for s in steps):
            wanted = {one.program[:1] for one in failed.call.calls}
            return any(one.program[:1] in wanted for one in call.calls)
        if failed.error.error_type == "test" or not any(step.did == "ran" for step in steps):
            return False
        pairs = ((one, less) for one in call.calls for less in failed.call.calls[-1:])
        return call.folder == failed.call.folder and any(
            one.program == less.program
            and one.options == less.options
            and len(less.targets) < 2 * len(one.targets & less.targets)
            for one, less in pairs
        )

    def _instead(self, call: shell.ToolAttempt, failed: _FailedCall) -> str:
        """Return what was called, a few calls later, instead of a call that was itself wrong."""
        before = failed.call
        error = failed.error
        distance = self._calls - failed.nth
        if before is None or error.error_type == "test":
            return ""
        if distance <= _NEAR_PROGRAM and (found := _with_program(call, before, error.message)):
            return found
        if distance > _NEAR:
            return ""
        if pattern("misplaced").search(error.message):
            if moved := shell.moved(call, before, error.message):
                return moved
        elif error.error_type in {"compile", "lint"}:
            return ""
        blamed = _blamed(error, before.line)
        if not blamed:
            unclear = pattern("passing").search(error.message) or USAGE.search(error.message)
            return "" if unclear or self._since(failed) else shell.varied(call, before)
        # If it is called the same way again, something else has changed.
        same = blamed in _words(call.line) and any(s.edit for s in self._since(failed))
        return "" if same else shell.instead_of(call, before, error.message)

    def _solution(
        self,
        name: str,
        failed: _FailedCall,
        steps: list[_AttemptStep],
        call: shell.ToolAttempt,
        instead: str,
        echoed: Echoed,
    ) -> str:
        """Return how an error was solved, and the agent's sentence that says why."""
        if not instead and not _may_fix(steps, failed.error):
            return ""
        change = _change(failed, steps, call, instead, _HUNKS[0])
        differs = _difference(call, failed) if instead else "; ".join(change)
        subject = Subject(failed.error.message, differs, self._comment(failed))
        why = reason(self._told_since(failed), subject, echoed)
        edited = list(dict.fromkeys(step.edit.path for step in steps if step.edit))
        if not change and edited and not why:
            return ""  # many changes, and nothing says which one helped
        parts = change or ([f"edited {_few(edited)}"] if edited else [])
        claims = [_claim(failed, steps, call, instead, parts)]
        if not claims[0]:
            return ""
        if len(claims[0]) > LONGEST - LONGEST_REASON:
            # Shorter ones leave room for a reason.
            for hunk_chars in _HUNKS[1:]:
                parts = _change(failed, steps, call, instead, hunk_chars) or parts
                claims.append(_claim(failed, steps, call, instead, parts))
        if not why:
            self._fresh[name] = subject, claims
        if len(self._solved) < _MOST_SOLVED:
            self._solved[name] = claims[0]
        return _with_reason(claims, why)

    def _told_since(self, failed: _FailedCall) -> list[str]:
        """Return the agent's words since the failure, newest first."""
        later = [step.what for step in self._said if step.at > failed.last]
        return (later or [step.what for step in self._said if step.at > failed.first])[::-1]

    def _comment(self, failed: _FailedCall) -> str:
        """Return what the agent said right after the failure, before another call."""
        right_after = (step for step in self._said if step.at > failed.last)
        first = next(right_after, None)
        return first.what if first and first.calls == failed.nth else ""

    def _since(self, failed: _FailedCall) -> list[_AttemptStep]:
        """Return the steps after the last failure or, if there are none, after the first."""
        for moment in (failed.last, failed.first):
            until = failed.until or self._time + 1
            later = [step for step in self._steps if moment < step.at < until]
            if found := [s for s in later if s.did != "ran" or _may_help(s.what)]:
                return found
        return []

    def may_be(self, line: str) -> bool:
        """Whether the line could be a call that failed before: a cheap test before a real one."""
        return any(
            failed.call is None or failed.call.hint in line or self._calls - failed.nth <= _NEAR
            for failed in self._failed.values()
        )


def is_against(text: str, claim: str) -> bool:
    """Whether a person's words reject what was just claimed or decided: "No, don't round"."""
    if not pattern("rejects").match(text):
        return False
    return bool(rare_words(text[:LONGEST_TEXT]) & rare_words(claim))


def _blamed(error: ErrorSeen, line: str) -> str:
    """Return the word of a line that an error is about; "" if the call itself was not wrong."""
    if not WRONG_CALL.search(error.message):
        return ""
    for blamed in reversed(pattern("blamed").findall(error.message)):
        folder = f"{blamed}/" if len(blamed) > 3 else "\0"
        if found := next((w for w in _words(line) if w == blamed or w.startswith(folder)), ""):
            return found
    return ""


def _with_program(call: shell.ToolAttempt, failed: shell.ToolAttempt, message: str) -> str:
    """Return the call of a program that was missing when the line before called it."""
    found = pattern("lacked").search(message)
    if found is None:
        return ""
    name = next(filter(None, found.groups()))
    program = "python" if pattern("python").fullmatch(name) else name
    mine = next((one for one in call.calls if one.program[0] == program), None)
    theirs = next((one for one in failed.calls if one.program[0] == program), None)
    if mine is None or theirs is None:
        return ""
    ours = shell.invoked(call.line, program)
    other = shell.invoked(failed.line, program)
    if not ours or not other or ours == other:
        return ""
    if mine == theirs:
        whole = shell.command_of(call.line, mine.program)
        before = shell.command_of(failed.line, theirs.program)
        if whole and before:
            return f"`{whole}` instead of `{before}`"
    return shell.exchanged(ours, other)


def _proof(call: shell.ToolAttempt, failed: _FailedCall) -> str:
    """Return the command that shows that an error is gone, as it is shown."""
    if failed.call is None:
        return shell.shown(call.line)
    wanted = shell.blamed_calls(failed.call, failed.error.error_type)
    return shell.shown(call.line, wanted[-1].program if wanted else ())


def _words(line: str) -> list[str]:
    return re.split(r"[\s'\"=;|&()]+", line)


# Called with the same few commands for each unsolved error.
@lru_cache(maxsize=_MOST_STEPS)
def _may_help(line: str) -> bool:
    """Whether a command may have helped: it installs, fixes, writes or sets something up."""
    if _DESTROYS.search(line) or pattern("keeps").search(line):
        return False
    if _FIXES.search(line) or shell.written_by(line):
        return True
    return pattern("sets up").search(line) is not None and not shell.is_check(line)


def _drops(edit: FileEdit, test: str) -> bool:
    """Whether an edit removes a failing test, or skips it."""
    name = pattern("leaf").search(test.partition(": ")[0].strip())
    if name is None or len(name[0]) < 5:
        return False
    gone = name[0] in edit.old and name[0] not in edit.new and len(edit.old) > len(edit.new)
    skipped = pattern("skips").search(edit.new) and not pattern("skips").search(edit.old)
    return gone or bool(skipped and name[0] in edit.old + edit.new)


def _given(text: str, before: str) -> str:
    """Return the variables that a line sets and the earlier one did not."""
    new = [word for word in text.split() if pattern("set").match(word) and word not in before]
    return _code(" ".join(new).rstrip(";"), _LONGEST_WORD)


def _edits(steps: list[_AttemptStep], error: ErrorSeen, hunk_chars: int) -> str:
    """Return the edits that bear on the error as hunks, and the other files by name."""
    edits = [step.edit for step in steps if step.edit]
    words = error_words(error.message)

    def weight(edit: FileEdit) -> int:
        here = 2 if error.file_path and edit.path == error.file_path else 0
        return here + min(3, len(words & error_words(f"{edit.old} {edit.new}")))

    # If there are many edits, or another agent's, show only those that bear on the error.
    least = 2 if any(step.did == "agent" for step in steps) else int(len(edits) > _MOST_TOLD)
    best = sorted((edit for edit in edits[::-1] if weight(edit) >= least), key=weight, reverse=True)
    best = best[:_MOST_TOLD]
    told: dict[str, list[str]] = {}
    for edit in best:
        hunk = _hunk(edit, hunk_chars // len(best))
        if hunk and not any(hunk in hunks for hunks in told.values()):
            told.setdefault(edit.path, []).append(hunk)
    if not best:
        return ""
    parts = [f"{path}: {', '.join(hunks)}" for path, hunks in told.items()]
    more = [path for path in dict.fromkeys(edit.path for edit in edits) if path not in told]
    return f"edited {'; '.join([*parts, _few(more)] if more else parts)}"


def _may_fix(steps: list[_AttemptStep], error: ErrorSeen) -> bool:
    """Whether the steps may be what helped: a linter's finding goes with an edit of its file, of
    the linter's settings, or with a command."""
    edits = [step.edit for step in steps if step.edit]
    if error.error_type != "lint" or not error.file_path or not edits:
        return True
    if any(step.did != "edited" for step in steps):
        return True
    name = error.file_path.rpartition("/")[2]
    return any(
        edit.path.rpartition("/")[2] == name or pattern("settings").search(edit.path)
        for edit in edits
    )


def _bears_on(edit: FileEdit, error: ErrorSeen) -> bool:
    """Whether an edit is in the error's file, or shares a name with its message."""
    if error.file_path and edit.path == error.file_path:
        return True
    return bool(error_words(error.message) & error_words(f"{edit.path} {edit.old} {edit.new}"))


def _few(names: list[str]) -> str:
    """Return the last few names, and how many more there are."""
    more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[-_MOST_TOLD:]) + more


def _hunk(edit: FileEdit, room: int) -> str:
    """Return what an edit removed and added, without unchanged lines, cut to the room."""
    old = edit.old.splitlines()[:_MOST_LINES]
    new = edit.new.splitlines()[:_MOST_LINES]
    diff = list(unified_diff(old, new, n=0, lineterm=""))[2:]
    gone, put = (_telling([line[1:] for line in diff if line[0] == sign]) for sign in "-+")
    # Start a little before the first difference.
    same = next((at for at, (a, b) in enumerate(zip(gone, put, strict=False)) if a != b), 0)
    if same >= 2 * _AROUND:
        start = gone.rfind(" ", 0, same - _AROUND) + 1
        gone = f"\u2026{gone[start:]}"
        put = f"\u2026{put[start:]}"
    most = room // max(1, bool(gone) + bool(put)) - 4
    sides = (("-", gone), ("+", put))
    return " ".join(f"{sign}`{_code(text, most)}`" for sign, text in sides if text)


def _telling(lines: list[str]) -> str:
    """Join the lines into one, without imports and brackets if there is anything else."""
    own = [line for line in lines if not pattern("filler").fullmatch(line)]
    return " ".join(" ".join(own or lines).split())


def _code(text: str, most: int) -> str:
    # Redact far more than will be kept, so that no half of a secret is.
    text = redact(text[: 4 * most + 200]).replace("`", "'")
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _ran(steps: list[_AttemptStep]) -> str:
    """Return the last few commands that may have helped, each once, in order."""
    each = list(dict.fromkeys(step.what for step in steps if step.did == "ran"))
    told = []
    for line in each:
        if shell.short(line).strip("\u2026") == "":
            continue
        files = ", ".join(shell.written_by(line))
        writes = f" (a script that writes {files})" if files else ""
        told.append(f"`{shell.short(line)}`{writes}")
    return f"ran {_few(told)}" if told else ""


def _change(
    failed: _FailedCall,
    steps: list[_AttemptStep],
    call: shell.ToolAttempt,
    instead: str,
    hunk_chars: int,
) -> list[str]:
    """Return what was changed between the call that failed and the one that passed, in parts."""
    if instead:
        return [instead]
    parts = [part for part in (_edits(steps, failed.error, hunk_chars), _ran(steps)) if part]
    if failed.call is None or call.text == failed.call.text:
        return parts
    if variables := _given(call.text, failed.call.text):
        # They are often the whole solution, so they come first.
        return [f"with `{variables}`", *parts]
    if parts or pattern("passing").search(failed.error.message) or shell.is_check(call.line):
        return parts
    other = shell.instead_of(call, failed.call)
    return [other] if other else []


def _difference(call: shell.ToolAttempt, failed: _FailedCall) -> str:
    """Return the words in which the call that passed differs from the one that failed."""
    before = failed.call.line.split() if failed.call else []
    now = call.line.split()
    return " ".join([word for word in now if word not in before])


def _claim(
    failed: _FailedCall,
    steps: list[_AttemptStep],
    call: shell.ToolAttempt,
    instead: str,
    change: list[str],
) -> str:
    """Return what was changed and what then passed, as a sentence; "" without any change."""
    parts = list(change)
    person = [step.what for step in steps if step.did == "person"]
    if person and 12 <= len(person[-1]) <= _LONGEST_WORD:
        parts.append(f'the person said "{_code(" ".join(person[-1].split()), _LONGEST_WORD)}"')
    if not parts:
        return ""
    whole = "; ".join(parts)
    if instead:
        whole += "" if instead.endswith(_GOT_PAST) else " passed"
    elif f"ran `{shell.short(call.line)}`" not in parts:
        whole += f"; then `{_proof(call, failed)}` passed"
    return f"{whole[:1].upper()}{whole[1:]}."


def _with_reason(claims: list[str], why: str) -> str:
    """Return the longest of the claims that leaves room for the reason."""
    if why:
        for claim in claims:
            whole = f'{claim} "{why}"'
            if len(whole) <= LONGEST:
                return whole
    return clip(claims[0], LONGEST - 1)
