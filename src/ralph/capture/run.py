"""What is gathered while a run is read: the part that every dialect shares.

It is bounded: a run of any length leaves at most so many errors, decisions, files and complaints.
Everything that leaves it has gone through redaction.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from ralph.capture import AgentRun, Live, TerminalReason
from ralph.capture.errors import decisions_in, errors_in, errors_said
from ralph.capture.lines import LineReader, clip, moment
from ralph.capture.shell import file_effects, merely_asked, origin
from ralph.capture.solved import (
    ELSEWHERE,
    GOING,
    Attempts,
    CallOutcome,
    ToolAttempt,
    how_it_went,
    shell_call,
)
from ralph.capture.solved import LONGEST as LONGEST_RESOLUTION
from ralph.records.iteration import Decision, ErrorSeen, FileAction, FileTouched
from ralph.text.redact import redact
from ralph.text.sanitize import marked, strip_marked
from ralph.text.signature import signature

MOST_ERRORS = 50
MOST_DECISIONS = 30
MOST_FILES = 5000
MOST_ECHOES = 5000
MOST_TOOLS = 500
MOST_MET = 1000

LONGEST_SUMMARY = 20_000
LONGEST_MESSAGE = 500
SIGNIFICANT_TEXT = 50

_READ = 64_000
_EXIT = re.compile(r"\A\s*(?:Error: )?Exit code:? (?P<code>-?\d{1,9})\s*(?:\n|\Z)")
_FAILED_TO_REMOVE = re.compile(r"^(?:rm|mv|unlink|fatal): ", re.M)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/[\w-]{1,40})?", re.I)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_STRENGTH: dict[FileAction, int] = {"read": 0, "modified": 1, "created": 2, "deleted": 3}


class CommandResult(msgspec.Struct, frozen=True):
    """What a shell command left behind: its errors, the folder it ended in, and its own words
    (None when what it printed was a file's)."""

    errors: list[ErrorSeen]
    here: str
    text: str | None = None


class RunFindings(LineReader):
    """The findings of one run so far."""

    def __init__(self, *, file: str, root: str | None, injected: str) -> None:
        super().__init__(file)
        self.live = Live()
        self.used_tools: Counter[str] = Counter()
        self.last_text = ""
        self.attempts = Attempts()
        self._roots = [plain_path(root)] if root else []
        self._given_root = bool(root)
        self.cwd = ""
        self.started: str | None = None
        self.ended: str | None = None
        self._files: dict[str, FileAction] = {}
        self._errors: dict[str, ErrorSeen] = {}
        self._met: dict[ErrorSeen, str] = {}
        self._read: set[int] = set()
        self._decisions: dict[str, Decision] = {}
        self._echoes: set[str] = set()
        self.remember_injected(injected)

    # Places

    def at_home(self, cwd: str) -> None:
        """The folder the agent works in; paths in it are the project's, unless a root says less."""
        cwd = plain_path(cwd)
        if not cwd or cwd == self.cwd:
            return
        first = not self.cwd
        self.cwd = cwd
        # A recording from another machine, or another name of the same folder: its own folder is
        # the project. A folder above the given root is not.
        if first and not any(_inside(cwd, r) or _inside(r, cwd) for r in self._roots):
            self._roots.append(cwd)

    def place(self, path: str, base: str | None = None) -> str | None:
        """The path as seen from the project's root, or None outside it."""
        path = plain_path(path)
        if not path or path[0] == "~" or "\0" in path or "\n" in path or len(path) > 500:
            return None
        base = base or self.cwd
        if _DRIVE.match(base):
            path = path.replace("\\", "/")
        whole = posixpath.normpath(path if _DRIVE.match(path) else posixpath.join(base, path))
        if not posixpath.isabs(whole) and not _DRIVE.match(whole):
            return None if whole in {".", ".."} or whole.startswith("../") else whole
        for root in self._roots:
            if _inside(whole, root):
                return posixpath.relpath(whole, root) if whole != root else None
        return None

    def touch(self, path: str, action: FileAction, base: str | None = None) -> None:
        """Something was done to a file; the strongest action stays."""
        placed = self.place(path, base)
        if placed is None or (placed not in self._files and len(self._files) >= MOST_FILES):
            return
        before = self._files.get(placed)
        if before == "deleted" and action in {"created", "modified"}:
            # Removed and written again: it was there before and is there now.
            self._files[placed] = "modified"
        elif before is None or _STRENGTH[action] > _STRENGTH[before]:
            self._files[placed] = action

    def knows(self, path: str) -> bool:
        """Whether the file was met before, and was not deleted since."""
        return self._files.get(self.place(path) or "", "deleted") != "deleted"

    def changed(self, path: str, action: FileAction, base: str | None = None) -> None:
        """A tool changed a file: that may be what solves an error."""
        self.touch(path, action, base)
        self.attempts.do("edited", self.place(path, base) or ELSEWHERE)

    def see_time(self, value: Any) -> None:
        """Something happened at this time."""
        if (when := moment(value)) is not None:
            self.started = self.started or when
            self.ended = when

    # What was said

    def remember_injected(self, text: str) -> None:
        """Ralph's own words, which may come back as an echo in the agent's."""
        for line in text.splitlines():
            if len(line) > 20 and len(self._echoes) < MOST_ECHOES:
                self._echoes.add(_bare(line))

    def see_injected(self, text: str) -> None:
        """The same for whatever stands between Ralph's markers in a text the agent was given."""
        if "alph" in text or "ORCHESTRATOR" in text:
            self.remember_injected(marked(text[:_READ]))

    def say(self, text: str) -> None:
        """The main agent's words: perhaps the summary, an error it met, a decision it made."""
        text = strip_marked(text[:_READ])
        if len(text.strip()) > SIGNIFICANT_TEXT:
            self.last_text = text
        if self.attempts.listening:
            for name, solution in self.attempts.hear(text, self._echoed):
                self._solve(name, solution)
        if self._again(text):
            return
        for error in errors_said(text, self.place):
            if not self._echoed(error.message):
                self.add_error(error)
        for decision in decisions_in(text):
            key = _bare(decision.description)
            if len(self._decisions) < MOST_DECISIONS and not self._echoed(decision.description):
                self._decisions.setdefault(key, decision)

    def _echoed(self, text: str) -> bool:
        bare = _bare(text)
        return any(bare in echo for echo in self._echoes)

    # Tools

    def use_tool(self, name: str, target: str) -> None:
        """A tool was called."""
        name = name[:100]
        if name in self.used_tools or len(self.used_tools) < MOST_TOOLS:
            self.used_tools[name] += 1
        self.live.tool_uses += 1
        self.live.last_tool, self.live.last_target = name, redact(clip(target, 200)) or None
        self.live.waiting = None

    def ran(
        self, command: str, output: str, *, failed: bool, base: str | None = None
    ) -> CommandResult:
        """A shell command came back: the files it removed or moved are noted, the rest returned."""
        base = base or self.cwd
        effects, here = file_effects(command, base)
        if effects and not failed and not _FAILED_TO_REMOVE.search(output[:_READ]):
            for path, action in effects:
                self.touch(path, action, base)
        exit_line = _EXIT.match(output)
        code = int(exit_line["code"]) if exit_line else None
        text = strip_marked(output[exit_line.end() :] if exit_line else output)
        source = origin(command)
        if (source == "file" or (source == "mixed" and not failed)) and not (failed and text):
            return CommandResult([], here)
        if failed and source == "file":
            # What a reader prints when it fails is one line; the rest may be a file.
            text = text.strip().rpartition("\n")[2]
        if not failed and self._again(text):
            return CommandResult([], here, text)
        errors = errors_in(text, partial(self.place, base=here), failed=failed)
        if failed and not errors and not (merely_asked(command, code) and not text.strip()):
            errors = [ErrorSeen(_failure(command, code, text))]
        return CommandResult(errors, here, text)

    def _again(self, text: str) -> bool:
        """Whether the very same text was read before; then it tells nothing new."""
        seen = hash(text)
        if seen in self._read:
            return True
        if len(self._read) < MOST_MET:
            self._read.add(seen)
        return False

    # Errors

    def add_error(self, error: ErrorSeen) -> str:
        """Keep an error unless the same, by signature, is there already; its name here, or
        nothing when it is not kept."""
        if (known := self._met.get(error)) is not None:
            return known
        name = self._keep(error)
        if len(self._met) < MOST_MET:
            self._met[error] = name
        return name

    def _keep(self, error: ErrorSeen) -> str:
        message = clip(redact(clip(error.message.strip(), 2000)), LONGEST_MESSAGE)
        key = signature(message)
        if not key:
            return ""
        path = redact(error.file_path) if error.file_path else None
        for known, before in self._errors.items():
            # Told again with a little more or less around it.
            if known == key or (min(len(known), len(key)) > 25 and _starts(known, key)):
                if before.file_path is None and path:
                    self._errors[known] = msgspec.structs.replace(
                        before, file_path=path, line=error.line
                    )
                return known
        if len(self._errors) >= MOST_ERRORS:
            return ""
        self._errors[key] = ErrorSeen(message, error.error_type, path, error.line)
        return key

    def tried_command(self, command: str, ran: CommandResult, *, failed: bool, begun: int) -> None:
        """The main agent's command came back: see whether it shows that something was solved."""
        if not ran.errors and not self.attempts.open:
            return
        if ran.text is not None and (ran.errors or self.attempts.may_be(command)):
            call = shell_call(command, ran.here)
            went = how_it_went(call, ran.text, failed=failed, errors=bool(ran.errors))
            self.tried(call, ran.errors, went, begun=begun)
        if not failed:
            self.attempts.do("ran", command)

    def tried(
        self, call: ToolAttempt, errors: list[ErrorSeen], went: CallOutcome, *, begun: int
    ) -> None:
        """A call came back: its errors are kept, and those that it shows to be gone are solved."""
        names = [name for error in errors if (name := self.add_error(error))]
        if went == "badly":
            for name in names:
                self._solve(name, None)
                self.attempts.fail(name, call, self._errors[name].file_path)
        elif went == "well" and self.attempts.open:
            for name, solution in self.attempts.succeed(call, begun, self._echoed):
                if name not in names:
                    self._solve(name, solution)

    def _solve(self, name: str, solution: str | None) -> None:
        error = self._errors[name]
        resolution = clip(redact(solution), LONGEST_RESOLUTION) if solution else None
        if error.resolution != resolution:
            self._errors[name] = msgspec.structs.replace(error, resolution=resolution)

    # Results

    @property
    def errors(self) -> tuple[ErrorSeen, ...]:
        return tuple(self._errors.values())

    def result(
        self,
        dialect: str,
        reason: TerminalReason,
        *,
        session: str | None,
        summary: str,
        model: str | None = None,
        failure: str = "",
        denied: Iterable[str] = (),
        **facts: Any,
    ) -> AgentRun:
        """The run so far; `failure` is the error it ended with, which may not be its end yet."""
        before = dict(self._errors)
        if failure:
            self._keep(ErrorSeen(clip(failure, 2000), "runtime"))
        errors, self._errors = self.errors, before
        return AgentRun(
            dialect=dialect,
            session_id=session_name(session),
            model=redact((model or "")[:200]) or None,
            summary=summary_of(summary),
            errors=errors,
            decisions=tuple(
                Decision(redact(d.description), redact(d.rationale) if d.rationale else None)
                for d in self._decisions.values()
            ),
            files_touched=tuple(
                FileTouched(redact(path), action) for path, action in self._files.items()
            ),
            terminal_reason=reason,
            permission_denials=tuple(redact(name) for name in denied if name),
            used_tools={redact(name): n for name, n in self.used_tools.items()},
            started_at=self.started,
            ended_at=self.ended,
            **facts,
        )


def summary_of(text: str) -> str:
    """A text as the summary of a run: without what Ralph injected, redacted, not endless."""
    return clip(redact(strip_marked(text[:_READ]).strip()), LONGEST_SUMMARY)


def session_name(session: str | None) -> str | None:
    """A session's id as it may be kept: a UUID is no secret, anything else might be."""
    if not session:
        return None
    return session if _UUID.fullmatch(session) else clip(redact(session[:200]), 100)


def plain_path(path: str) -> str:
    """The path with forward slashes and no end slash; Windows paths become comparable."""
    if _DRIVE.match(path) or path.startswith("\\\\"):
        path = path.replace("\\", "/")
        path = path[:1].lower() + path[1:]
    if path.startswith("/private/"):
        path = path[len("/private") :]
    return path.rstrip("/") if len(path) > 1 else path


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _starts(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _bare(text: str) -> str:
    return re.sub(r"[\s>*_`\"'.-]+", " ", text).strip().lower()


def _failure(command: str, code: int | None, text: str) -> str:
    """The message of a command that failed without a known error; two such commands differ."""
    words = GOING.sub("", " ".join(command.split()))
    words = words if len(words) <= 100 else words[:99] + "\u2026"
    last = text.strip().rpartition("\n")[2].strip()
    ended = "failed" if code is None else f"failed with exit code {code}"
    return f"`{words}` {ended}" + (f": {last}" if last else "")
