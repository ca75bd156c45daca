"""The findings gathered while a run is read: the part that every dialect shares.

They are bounded: a run of any length gives a limited number of errors, decisions, files and
complaints. Everything in the result is redacted.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import lru_cache, partial
from typing import Any

import msgspec

from ralph.capture import AgentRun, Live, TerminalReason, checks, decisions, outputs, shell
from ralph.capture.anchors import EditedLines
from ralph.capture.errors import JUDGED
from ralph.capture.lines import LineReader, clip, moment, sentences, session_name
from ralph.capture.rules import pattern
from ralph.capture.solved import ELSEWHERE, Attempts, FileEdit, is_against
from ralph.capture.solved import LONGEST as LONGEST_RESOLUTION
from ralph.records.iteration import (
    MOST_CHECKS,
    CheckRun,
    Decision,
    ErrorSeen,
    FileAction,
    FileTouched,
    Outcome,
)
from ralph.text.redact import redact
from ralph.text.sanitize import marked, strip_marked
from ralph.text.signature import signature

MOST_ERRORS = 50
MOST_DECISIONS = 30
MOST_FILES = 5000
MOST_ECHOES = 5000
MOST_TOOLS = 500
MOST_READ = 1000
MOST_SHAPES = 20

LONGEST_SUMMARY = 20_000
LONGEST_MESSAGE = 500
SIGNIFICANT_TEXT = 50

_READ = 64_000
# How much of an edit is looked at for solutions.
_LONGEST_EDIT = 4000
_ENDING = 2000
# How much of what the agent says before or after a check is about that check.
_ANNOUNCEMENT = 300
_FAILED_TO_REMOVE = re.compile(r"^(?:rm|mv|unlink|fatal): ", re.M)
# Where agents put working copies inside a project.
_WORKTREE = re.compile(r"^\.(?:claude/)?worktrees/[^/]+/")
_CHANGES_FOLDER = re.compile(r"\s*cd ([\w.@+-][\w./@+-]*)")
_WORKTREE_ADD = pattern("worktree add")
_MOST_ROOTS = 20
_STRENGTH: dict[FileAction, int] = {"read": 0, "modified": 1, "created": 2, "deleted": 3}
_NO_ERROR: frozenset[TerminalReason] = frozenset({"ok", "interrupted", "unknown"})


class RunFindings(LineReader):
    """The findings of one run so far."""

    session: str | None = None
    model: str | None = None
    # The error that the run ended with, unless it goes on.
    failure = ""

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file)
        self.denied: list[str] = []
        self.live = Live()
        self.used_tools: Counter[str] = Counter()
        self.stumbles: Counter[str] = Counter()
        # Those that one can learn from, by what they have in common.
        self.shapes: Counter[str] = Counter()
        self.last_text = ""
        self.attempts = Attempts()
        self._roots = [plain_path(root)] if root else []
        self.cwd = ""
        self.started: str | None = None
        self._last_time: Any = None
        self._files: dict[str, FileAction] = {}
        self._edited_lines = EditedLines()
        self._errors: dict[str, ErrorSeen] = {}
        # Errors kept only if they were solved: met while the exit code was another command's, or
        # made by the call itself.
        self._unsure: set[str] = set()
        # Errors of checks that were meant to fail; errors that were there before the session.
        self._meant: set[str] = set()
        self._old: set[str] = set()
        # The errors of the last check if it failed, and whether that still counts as a failure.
        self._red: tuple[str, ...] = ()
        self._failing = False
        self._just_checked = False
        # The last command that checks the work, if it failed.
        self._failed_check = ""
        self._announced = ""
        self._checks: dict[str, bool] = {}
        self._read: set[int] = set()
        self._decisions: dict[str, Decision] = {}
        # The agent's decisions since a person last spoke.
        self._just_decided: list[Decision] = []
        self._echoes: set[str] = set()
        self._prompts: set[str] = set()
        self.account = decisions.SessionAccount()
        self.remember_injected(injected)

    # Places

    def at_home(self, cwd: str) -> None:
        """Note the agent's folder; its paths are the project's unless a root is narrower."""
        cwd = plain_path(cwd)
        if not cwd or cwd == self.cwd:
            return
        first = not self.cwd
        self.cwd = cwd
        # In a recording from another machine, or with another name of the same folder, its own
        # folder is the project. A folder above the given root is not.
        if first and not any(_inside(cwd, r) or _inside(r, cwd) for r in self._roots):
            self._roots.append(cwd)

    def place(self, path: str, base: str | None = None) -> str | None:
        """Return the path relative to the project's root, or None outside it."""
        path = plain_path(pattern("job folder").sub("", path) if "runner/work" in path else path)
        if not path or path[0] == "~" or "\0" in path or "\n" in path or len(path) > 500:
            return None
        base = base or self.cwd
        if _on_drive(base):
            path = path.replace("\\", "/")
        whole = posixpath.normpath(shell.joined(base, path))
        if not posixpath.isabs(whole) and not _on_drive(whole):
            return None if whole in {".", ".."} or whole.startswith("../") else whole
        for root in self._roots:
            if _inside(whole, root):
                inside = _WORKTREE.sub("", whole[len(root.rstrip("/")) + 1 :] + "/").rstrip("/")
                return inside or None
        return None

    def touch(self, path: str, action: FileAction, base: str | None = None) -> None:
        """Note what was done to a file; the strongest action stays."""
        placed = self.place(path, base)
        if placed is None or (placed not in self._files and len(self._files) >= MOST_FILES):
            return
        before = self._files.get(placed)
        if before == "deleted" and action in {"created", "modified"}:
            # Removed and written again: it existed before and exists now.
            self._files[placed] = "modified"
        elif before is None or _STRENGTH[action] > _STRENGTH[before]:
            self._files[placed] = action
        if action == "deleted":
            self._edited_lines.drop(placed)

    def knows(self, path: str) -> bool:
        """Whether the file was seen before and not deleted since."""
        return self._files.get(self.place(path) or "", "deleted") != "deleted"

    def edited(self, path: str, old: str = "", new: str = "", base: str | None = None) -> None:
        """Note an edit, with what it removed and added if that is known."""
        place = self.place(path, base)
        edit = FileEdit(place or ELSEWHERE, old[:_LONGEST_EDIT], new[:_LONGEST_EDIT])
        self.attempts.edit(edit)
        if place:
            self._edited_lines.note(place, old, new)
            self._prove("edited")
        for test, why in self.attempts.dropped:
            self.decide(Decision(f"Removed the test {test} instead of fixing it", why or None))
        self.attempts.dropped.clear()

    def wrote(self, path: str, content: str, base: str | None = None) -> None:
        """Note the content that a file was given as a whole."""
        if place := self.place(path, base):
            self._edited_lines.drop(place)
            self._edited_lines.note(place, "", content)

    def see_time(self, value: Any) -> None:
        """Note the time of an event."""
        if self.started is None:
            self.started = moment(value)
        # Only the last one is ever needed, so it is parsed later; most look like this.
        if (isinstance(value, str) and value[:2] == "20") or moment(value) is not None:
            self._last_time = value

    @property
    def ended(self) -> str | None:
        """The time of the last event."""
        return moment(self._last_time) or self.started

    # What was said

    def remember_injected(self, text: str) -> None:
        """Remember Ralph's own words, which the agent may echo."""
        for line in text.splitlines():
            if len(line) > 20 and len(self._echoes) < MOST_ECHOES:
                self._echoes.add(_bare(line))

    def see_injected(self, text: str) -> None:
        """Remember everything between Ralph's markers in a text that the agent was given."""
        if "alph" in text or "ORCHESTRATOR" in text:
            self.remember_injected(marked(text[:_READ]))

    def hear(self, text: str, *, first: bool | None = False) -> None:
        """Read a person's words: a request, a choice, a correction, a pasted error."""
        text = _read(text).strip() if text else ""
        if not text or text in self._prompts:
            return
        self._prompts.add(text)
        self._announced = ""
        self._reject(text)
        self._just_decided.clear()
        self.attempts.ask(text)
        found = self.account.hear(text, first=first)
        for error in outputs.errors_pasted(text, self.place):
            if not self._echoed(error.message) and (name := self.add_error(error)):
                self.attempts.fail(name, None, self._errors[name])
        for decision in found:
            self.decide(decision)

    def hear_reply(self, text: str) -> bool:
        """Take back what the person's next words are against; return whether anything changed."""
        text = _read(text).strip()
        rejected = self._reject(text)
        return self.account.hear_reply(text) or rejected

    def refuse(self, output: str, what: str, plan: str = "") -> None:
        """Note that a person rejected a call, perhaps with words."""
        self._prove("refused")
        title = decisions.plan_title(plan) if plan else ""
        words = decisions.refusal(_read(output))
        if words:
            self._reject(words)
            refused = decisions.refused(words, what)
            if title:
                refused = decisions.refused_plan(title, words)
            if refused:
                self.decide(refused)
            self.attempts.ask(words)
        elif title:
            self.account.refuse_plan(title)

    def take_answers(self, result: Any, output: str) -> None:
        """Note a person's answers to questions."""
        for decision in decisions.answers(result, output):
            self.decide(decision)
            self.attempts.ask(decision.description)

    def accept(self, plan: str) -> None:
        """Note that a person accepted a plan."""
        if decision := decisions.planned(plan):
            self.account.accept_plan(decision)
            self.decide(decision)

    def decide(self, decision: Decision) -> None:
        """Keep a decision once; if there are too many, a person's replaces an agent's."""
        key = _bare(decision.description)
        if self._echoed(decision.description) or key in self._decisions:
            return
        if len(self._decisions) >= MOST_DECISIONS:
            oldest = next((k for k, one in self._decisions.items() if one.source == "agent"), None)
            if oldest is None or decision.source == "agent":
                return
            del self._decisions[oldest]
        self._decisions[key] = decision
        if decision.source == "agent":
            self._just_decided.append(decision)

    def summarize(self, text: str) -> None:
        """Keep the explicit decisions in the client's summary or in the model's thinking."""
        for decision in decisions.decisions_in(strip_marked(text[:_READ]), strict=True):
            self.decide(decision)

    def say(self, text: str) -> None:
        """Read the main agent's words: perhaps the summary, an error it met, a decision it made."""
        text = _read(text)
        if len(text.strip()) > SIGNIFICANT_TEXT:
            self.last_text = text
        self.account.say(text)
        self._excuse(text)
        self._solve(self.attempts.hear(text, self._echoed))
        if self._again(text):
            return
        for error in outputs.errors_said(text, self.place):
            if not self._echoed(error.message):
                self.add_error(error, met=0)
        for decision in decisions.decisions_in(text):
            self.decide(decision)

    def _echoed(self, text: str) -> bool:
        bare = _bare(text)
        return any(bare in echo for echo in self._echoes)

    # Tools

    def use_tool(self, name: str, target: str) -> None:
        """Note a tool call."""
        name = name[:100]
        if name in self.used_tools or len(self.used_tools) < MOST_TOOLS:
            self.used_tools[name] += 1
        self.live.tool_uses += 1
        self.live.last_tool, self.live.last_target = name, _shown(target[:1000]) or None
        self.live.waiting = None

    def ran(
        self, command: str, output: str, *, failed: bool, base: str | None = None
    ) -> outputs.CommandOutput:
        """Read a finished shell command: note the files it changed, return what it printed."""
        base = plain_path(base) if base else self.cwd
        effects, here = shell.file_effects(command, base)
        if not failed and "worktree add" in command and len(self._roots) < _MOST_ROOTS:
            # Another working copy of the same repository: its files are the project's.
            found = (posixpath.join(base, path) for path in _WORKTREE_ADD.findall(command))
            self._roots += filter(posixpath.isabs, map(posixpath.normpath, found))
        effects += [(file, "created") for file in shell.written_by(command)]
        if effects and not failed and not _FAILED_TO_REMOVE.search(output[:_READ]):
            for path, action in effects:
                known = action == "created" and self.knows(path)
                self.touch(path, "modified" if known else action, base)
        place = partial(self.place, base=here)
        plain = strip_marked(output)
        seen = outputs.read_output(command, plain, place, failed=failed, is_known=self._again)
        if seen.probe:
            self.stumbles[seen.probe] += 1
        if "no matches found" in plain[-_ENDING:]:
            self._shape(plain[-_ENDING:])
        return msgspec.structs.replace(seen, here=here)

    def stumble(self, output: str) -> outputs.StumbleKind | None:
        """Return why the client itself rejected a call, and count it."""
        if kind := outputs.stumble(output):
            self.stumbles[kind] += 1
            self._shape(output)
        return kind

    def _shape(self, output: str) -> None:
        shape = outputs.stumble_shape(output)
        if shape and (shape in self.shapes or len(self.shapes) < MOST_SHAPES):
            self.shapes[shape] += 1

    def _again(self, text: str) -> bool:
        """Whether the same text was read before; then it says nothing new."""
        seen = hash(text)
        if seen in self._read:
            return True
        if len(self._read) < MOST_READ:
            self._read.add(seen)
        return False

    # Errors

    def add_error(self, error: ErrorSeen, *, met: int = 1) -> str:
        """Keep an error, or count it if one with the same signature is kept. Return its name here,
        or "" if it is not kept. `met` is 0 for an error that was only mentioned."""
        message, key = _named_error(error.message)
        if not key or pattern("client's own").match(message):
            return ""
        path = redact(error.file_path) if error.file_path else None
        # The same error with a little more or less text around it.
        known = next((name for name in self._errors if name == key or _starts(name, key)), None)
        if known is None and error.error_type == "test":
            known = next((name for name in self._errors if _is_same_test(name, key)), None)
        if known is None:
            if len(self._errors) >= MOST_ERRORS:
                return ""
            self._errors[key] = ErrorSeen(
                message, error.error_type, path, error.line, count=max(1, error.count * met)
            )
            return key
        before = self._errors[known]
        placed = before if before.file_path or not path else error
        longer = message if known != key and len(message) > len(before.message) else before.message
        # Several modules may be missing for one reason; each of them should be found.
        new = [name for name in pattern("module").findall(message) if name not in longer]
        longer += f", {new[0]}" if new and len(longer) < LONGEST_MESSAGE - 80 else ""
        self._errors[known] = msgspec.structs.replace(
            before,
            message=longer,
            file_path=before.file_path or path,
            line=placed.line,
            count=before.count + error.count * met,
        )
        return known

    def tried_command(
        self, command: str, ran: outputs.CommandOutput, *, failed: bool, begun: int
    ) -> None:
        """Read a finished command of the main agent: keep its errors, and see what it solved."""
        self._judge(command, ran, failed=failed)
        self._note_verdict(command, ran, failed=failed)
        self._note_checks(command, ran, failed=failed)
        if not ran.errors and not self.attempts.open:
            return
        if ran.errors or self.attempts.may_be(command):
            call = shell.shell_call(command, ran.here)
            if ran.text is not None:
                went = shell.how_it_went(call, ran.text, failed=failed or bool(ran.errors))
                self._tried(call, ran, went, begun)
            elif not failed:
                self._solve(self.attempts.succeed(call, begun, self._echoed, reads=True))
        if not failed:
            self.attempts.do("ran", command)

    def _prove(self, proof: decisions.Proof) -> None:
        """Note an event that shows how the session is going.

        A failed check waits until then: the agent may say that it was meant to fail.
        """
        if self._failing:
            self.account.prove("failed")
        self._failing = proof == "failed"
        if proof != "failed":
            self.account.prove(proof)

    def _judge(self, command: str, ran: outputs.CommandOutput, *, failed: bool) -> None:
        """Note what a command proves about the session: a check, a commit, a pull request."""
        message = decisions.commit_message(command)
        if message or pattern("opens").search(command):
            if failed or ran.errors:
                self._prove("failed")
                return
            self._prove("saved")
            self.account.commit(message.partition("\n")[0])
            if message and (decision := decisions.committed(message)):
                self.decide(decision)
        elif shell.is_check(command) and ran.text is not None:
            if ran.errors and not failed and all(e.error_type not in JUDGED for e in ran.errors):
                return  # another command of the line complained
            call = shell.shell_call(command, ran.here)
            went = shell.how_it_went(call, ran.text, failed=failed or bool(ran.errors))
            if went != "unclear":
                self._prove("passed" if went == "well" else "failed")

    def _note_verdict(self, command: str, ran: outputs.CommandOutput, *, failed: bool) -> None:
        """Note whether the last check failed, also after an edit: nothing has proved that one."""
        if ran.text is None or not shell.gives_verdict(command):
            return
        call = shell.shell_call(command, ran.here)
        went = shell.how_it_went(call, ran.text, failed=failed or bool(ran.errors))
        if went != "unclear":
            self._failed_check = shell.short(command) if went == "badly" else ""

    def _note_checks(self, command: str, ran: outputs.CommandOutput, *, failed: bool) -> None:
        """Note how the tests, builds, linters and starts of the project in a line went."""
        folder = _once(self.place(ran.here) or "", command)
        if ran.text is None or not (folder or ran.here in {"", *self._roots}):
            return  # it shows something else, or was run outside the project
        call = shell.shell_call(command, ran.here)
        went = shell.how_it_went(call, ran.text, failed=failed or bool(ran.errors))
        is_verdict = any(error.error_type in JUDGED for error in ran.errors)
        for text, passed in checks.checks_in(call, went, folder=folder, is_verdict=is_verdict):
            self._checks.pop(text, None)
            self._checks[text] = passed
        while len(self._checks) > MOST_CHECKS:
            del self._checks[next(iter(self._checks))]

    def _tried(
        self,
        call: shell.ToolAttempt,
        ran: outputs.CommandOutput,
        went: shell.CallOutcome,
        begun: int,
    ) -> None:
        """Keep the errors of a finished call, and mark those solved that it shows to be gone."""
        before = set(self._errors)
        names = [name for error in ran.errors if (name := self.add_error(error))]
        for name in names:
            error = self._errors[name]
            if name in before or error.error_type in JUDGED:
                continue
            if not ran.sure or outputs.is_slip(error.message):
                self._unsure.add(name)
        if shell.is_check(call.line) and went != "unclear":
            self._see_check(names)
        if went == "badly":
            elsewhere = outputs.is_job_log(call.line)
            self._solve((name, None) for name in names)
            for name in names:
                self.attempts.fail(name, None if elsewhere else call, self._errors[name])
        if went == "unclear" or (went == "badly" and names):
            self._solve(self.attempts.get_past(call, begun, names, self._echoed))
        elif went == "well" and self.attempts.open:
            self._solve(self.attempts.succeed(call, begun, self._echoed))

    def _see_check(self, names: list[str]) -> None:
        """Note the errors of a check that is done; none if it was announced to fail."""
        self._red = tuple(names)
        self._just_checked = True
        self._meant -= set(names)
        self._old -= set(names)
        if names and pattern("meant").search(self._announced):
            self._forgive(self._meant)
        # A check that could not even start is not the one that was announced.
        if not names or any(self._errors[name].error_type in JUDGED for name in names):
            self._announced = ""

    def _excuse(self, text: str) -> None:
        """Read what the agent says about a check: that it is meant to fail, or failed before."""
        self._announced = text[-_ANNOUNCEMENT:]
        just_now = self._just_checked
        self._just_checked = False
        if not self._red:
            return
        if just_now and pattern("meant").search(text[:_ANNOUNCEMENT]):
            self._forgive(self._meant)
        elif any(
            pattern("pre-existing").search(sentence) and not pattern("unsure").search(sentence)
            for sentence in sentences(text[:_READ])
        ):
            self._forgive(self._old)

    def _forgive(self, kind: set[str]) -> None:
        """Put the errors of the last check among those of a kind that do not count."""
        kind |= {name for name in self._red if self._errors[name].error_type in JUDGED}
        self._failing = False
        self._failed_check = ""

    def _reject(self, text: str) -> bool:
        """Take back the solutions and decisions of this turn that a person's words are against.

        Return whether there were any.
        """
        rejected = [name for name in self.attempts.rejected(text) if name in self._errors]
        self._solve((name, None) for name in rejected)
        against = [one for one in self._just_decided if is_against(text, one.description)]
        for decision in against:
            self.account.take_back(decision, text)
        return bool(rejected or against)

    def _solve(self, solved: Iterable[tuple[str, str | None]]) -> None:
        for name, solution in solved:
            resolution = clip(redact(solution), LONGEST_RESOLUTION) if solution else None
            if resolution:
                self._unsure.discard(name)
            if self._errors[name].resolution != resolution:
                new = msgspec.structs.replace(self._errors[name], resolution=resolution)
                self._errors[name] = new

    # Results

    def told(self) -> str:
        """Return a summary of every turn; if the last words break off, add the changed files."""
        summary = self.account.summary(self.last_text)
        changed = [path for path, action in self._files.items() if action != "read"]
        if not changed or not summary.rstrip().endswith((":", "\u2026")):
            return summary
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        return f"{summary.rstrip()}\nChanged: {', '.join(changed[:5])}{more}."

    @property
    def errors(self) -> tuple[ErrorSeen, ...]:
        """The errors worth remembering, each placed in a file of the project if possible."""
        old = {name for name in self._old if not self._errors[name].resolution}
        hidden = self._unsure | self._meant | old
        kept = (one for name, one in self._errors.items() if name not in hidden)
        return tuple(self._in_its_file(error) for error in kept)

    def _in_its_file(self, error: ErrorSeen) -> ErrorSeen:
        """Return the error placed in the only file of that name: some tools print no folder."""
        path = error.file_path
        if not path or path in self._files:
            return error
        name = "/" + path.removeprefix("./")
        known = [file for file in self._files if file.endswith(name)]
        return msgspec.structs.replace(error, file_path=known[0]) if len(known) == 1 else error

    def result(
        self, dialect: str, reason: TerminalReason, *, summary: str, **facts: Any
    ) -> AgentRun:
        """Return the run so far."""
        before = dict(self._errors)
        if self.failure:
            self.add_error(ErrorSeen(clip(self.failure, 2000), "runtime"))
        errors = self.errors
        self._errors = before
        usual: dict[str, Any] = {
            "session_id": session_name(self.session),
            "num_turns": self.live.turns or None,
            "is_error": reason not in _NO_ERROR,
        }
        return AgentRun(
            dialect=dialect,
            model=redact((self.model or "")[:200]) or None,
            summary=clip(redact(strip_marked(summary[:_READ]).strip()), LONGEST_SUMMARY),
            errors=errors,
            decisions=tuple(
                Decision(redact(d.description), redact(d.rationale or "") or None, d.source)
                for d in map(self.account.settled, self._decisions.values())
            ),
            files_touched=tuple(
                FileTouched(redact(path), action) for path, action in self._files.items()
            ),
            checks=tuple(CheckRun(redact(text), went) for text, went in self._checks.items()),
            anchors=self._edited_lines.anchors(),
            terminal_reason=reason,
            title=redact(self.account.title),
            outcome=self._outcome(reason),
            failed_check=self._failed_check,
            stumbles=dict(self.stumbles),
            shapes={redact(shape): times for shape, times in self.shapes.items()},
            permission_denials=tuple(redact(name) for name in self.denied if name),
            used_tools={redact(name): n for name, n in self.used_tools.items()},
            started_at=self.started,
            ended_at=self.ended,
            **(usual | facts),
        )

    def _outcome(self, reason: TerminalReason) -> Outcome:
        account = copy(self.account)
        if self._failing:
            account.prove("failed")
        return account.outcome(stopped=reason in {"interrupted", "refused"})


# The same few files and errors come again and again.
@lru_cache(maxsize=512)
def _shown(target: str) -> str:
    return redact(clip(target, 200))


@lru_cache(maxsize=256)
def _named_error(text: str) -> tuple[str, str]:
    """Return an error's message as it may be saved, and its name."""
    message = clip(redact(clip(text.strip(), 2000)), LONGEST_MESSAGE)
    return message, signature(message)


def plain_path(path: str) -> str:
    """Return the path with forward slashes and no slash at the end, comparable on Windows too."""
    if _on_drive(path) or path.startswith("\\\\"):
        path = path.replace("\\", "/")
        path = path[:1].lower() + path[1:]
    if path.startswith("/private/"):
        path = path[len("/private") :]
    return path.rstrip("/") if len(path) > 1 else path


def _on_drive(path: str) -> bool:
    return path[1:2] == ":" and path[2:3] in ("\\", "/") and path[0].isalpha()


def _once(folder: str, command: str) -> str:
    """Return the folder that a line ended in, if it began where its own `cd` leads to.

    Claude Code may name the folder where a command ended as the one where it began.
    """
    found = _CHANGES_FOLDER.match(command)
    changed = found[1].strip("/") if found else ""
    if changed and f"/{folder}".endswith(f"/{changed}/{changed}"):
        return folder[: -len(changed) - 1]
    return folder


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _starts(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    # Only at the end of a word: `test_get` is not `test_get_all`.
    if len(shorter) <= 25 or not longer.startswith(shorter):
        return False
    return not (longer[len(shorter)].isalnum() or longer[len(shorter)] == "_")


def _is_same_test(one: str, other: str) -> bool:
    """Whether one is a test's name, and the other the name with a reason."""
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith(f"{shorter}: ")


def _read(text: str) -> str:
    """Return the beginning of a text, without what Ralph put in, and with plain apostrophes."""
    return strip_marked(text[:_READ]).replace("\u2019", "'")


def _bare(text: str) -> str:
    return re.sub(r"[\s>*_`\"'.-]+", " ", text).strip().lower()
