"""One turn of Codex being read: what was asked, said, called and answered, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ralph.capture import Captured, TerminalReason
from ralph.capture.exchanges import LONGEST_USER, ExchangeSeen
from ralph.capture.gather import Gathered, session_name, summary_of
from ralph.capture.lines import clip, text_of
from ralph.capture.retries import ELSEWHERE
from ralph.capture.rollout_lines import Back, Call, SessionHead, changes_of, failure, told_in
from ralph.capture.steps import Steps, kept
from ralph.records.conversation import Status
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

_MOST_OPEN = 1000
MOST_QUEUED = 50
_STATUS: dict[TerminalReason, Status] = {
    "ok": "complete",
    "interrupted": "interrupted",
    "unknown": "interrupted",
}


class Turn:
    """An exchange being read."""

    def __init__(self, key: str, turn: str, *, at: int, found: Gathered, is_marked: bool) -> None:
        self.key = key
        self.turn = turn
        self.begins_at = at
        self.found = found
        self.steps = Steps()
        self.model = ""
        self.cwd = ""
        self._is_marked = is_marked
        self._typed: list[str] = []
        self._open: dict[str, tuple[Call, int]] = {}
        self._shells: dict[str, tuple[Call, int]] = {}
        self._said_last = False
        self._reason: TerminalReason | None = None
        self._failure = ""
        self._spent = 0
        self._before: int | None = None
        self._started: str | None = None
        self._ended: str | None = None

    def ask(self, text: str) -> None:
        """A person's words; what comes while the assistant works is a step, too."""
        if self._typed and len(self._typed) < MOST_QUEUED:
            self.steps.asked(text)
        if len(self._typed) < MOST_QUEUED:
            self._typed.append(text)

    def see(self, when: str | None) -> None:
        """Something happened in this turn."""
        self._started = self._started or when
        self._ended = when or self._ended

    def context(self, told: Mapping[str, Any]) -> None:
        """Where the turn is held, and by which model."""
        self.model = text_of(told.get("model")) or self.model
        self.cwd = text_of(told.get("cwd")) or self.cwd
        self.found.at_home(self.cwd)

    def say(self, text: str) -> None:
        """The assistant's words."""
        self.found.live.turns += 1
        self.found.say(text)
        self.steps.said(text)
        self._said_last, self._failure = True, ""

    def call(self, call: Call) -> None:
        """The assistant called a tool."""
        self._said_last = False
        begun = self.found.attempts.begin()
        changes = ", ".join(self.found.place(path) or path for path, _ in changes_of(call))
        target = changes or call.command or call.asked
        self.found.use_tool(call.tool or "unnamed", target)
        if call.session in self._shells:
            self._open[call.identity] = self._shells[call.session]
            return
        if len(self._open) < _MOST_OPEN:
            self._open[call.identity] = call, begun
        self.steps.called(call.identity, call.tool, target)

    def answer(self, identity: str, back: Back) -> None:
        """A tool answered."""
        call, begun = self._open.pop(identity, (None, 0))
        if call is None:
            return
        if back.session:
            self._shells[back.session] = call, begun
            return
        self.steps.answered(call.identity, back.text, failed=back.failed)
        if back.stopped:
            return
        if call.patch:
            self._patched(call, back)
        elif call.command:
            output = f"Exit code {back.code}\n{back.text}" if back.code else back.text
            ran = self.found.ran(call.command, output, failed=back.failed, base=call.folder)
            self.found.tried_command(call.command, ran, failed=back.failed, begun=begun)
            for error in ran.errors:
                self.found.add_error(error)
        else:
            self.found.see_injected(back.text)
            if back.failed:
                self.found.add_error(ErrorSeen(f"{call.tool}: {clip(back.text.strip(), 1000)}"))

    def _patched(self, call: Call, back: Back) -> None:
        if back.failed:
            self.found.add_error(ErrorSeen(f"{call.tool}: {clip(back.text.strip(), 1000)}"))
            return
        for path, action in changes_of(call):
            self.found.touch(path, action, call.folder)
            self.found.attempts.do("edited", self.found.place(path, call.folder) or ELSEWHERE)

    def spend(self, total: int, last: int | None) -> None:
        """What the thread has used so far; `last` of it since it was told before."""
        if self._before is None:
            self._before = max(0, total - (last or 0))
        self._spent = max(self._spent, total - self._before)

    def fail(self, message: str) -> None:
        """The provider or the client gave up."""
        self._failure = told_in(message) or "the turn failed"

    def end(self, reason: TerminalReason) -> None:
        """The turn is over."""
        self._reason = reason

    def reason(self) -> TerminalReason:
        """How the turn ended, as far as it was read."""
        if self._reason == "interrupted":
            return "interrupted"
        if self._failure:
            return failure(self._failure)
        if self._reason is None and self._said_last and not self._is_marked:
            return "ok"  # an older client, which writes nothing at the end
        return self._reason or "unknown"

    def seen(self, head: SessionHead, *, ends_at: int, finished: bool) -> ExchangeSeen:
        """The exchange as it stands."""
        reason = self.reason()
        cwd = self.cwd or head.cwd
        return ExchangeSeen(
            key=self.key,
            session_id=session_name(head.session),
            user=kept("\n\n".join(self._typed)[: 2 * LONGEST_USER], LONGEST_USER),
            assistant=self.steps.final,
            messages=self.steps.messages,
            captured=self._captured(head, reason),
            status=_STATUS.get(reason, "failed"),
            finished=finished,
            cwd=redact(cwd[:500]) or None,
            git_branch=redact(head.git_branch[:200]) or None,
            begins_at=self.begins_at,
            ends_at=ends_at,
        )

    def _captured(self, head: SessionHead, reason: TerminalReason) -> Captured:
        found = self.found
        last = [ErrorSeen(clip(self._failure, 2000), "runtime")] if self._failure else []
        return Captured(
            dialect="codex",
            session_id=session_name(head.session),
            model=redact(self.model[:200]) or None,
            summary=summary_of(found.last_text or self._failure),
            errors=found.errors_with(*last),
            decisions=found.decisions,
            files_touched=found.files,
            tokens_used=self._spent or None,
            num_turns=found.live.turns or None,
            is_error=reason not in {"ok", "interrupted", "unknown"},
            terminal_reason=reason,
            used_tools={redact(name): n for name, n in found.used_tools.items()},
            started_at=self._started,
            ended_at=self._ended,
        )
