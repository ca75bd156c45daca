"""A session transcript cut into exchanges: a person asked, the assistant answered.

An exchange begins with a person's words and holds everything up to the next person's words. Where
the client itself makes the assistant go on after its last word (a hook objected, something in the
background is done), that is an exchange of its own: the one before may be kept by then. What an
exchange is depends on its own lines alone, so a file can be read on from where any ended.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ralph.capture import Captured, TerminalReason
from ralph.capture.gather import session_name
from ralph.capture.lines import Reading, content_text, mapping, text_of
from ralph.capture.messages import PLACEHOLDER
from ralph.capture.session_lines import Line, called, lines_of, queued, sort_of, typed
from ralph.capture.steps import LONGEST_FINAL, Steps, kept
from ralph.capture.transcript import Transcript
from ralph.records.conversation import Message, Status
from ralph.text.redact import redact

LONGEST_USER = LONGEST_FINAL
_LONGEST_TITLE = 200
_MOST_SEEN = 50_000
_MOST_SUMMARIES = 20
_MOST_QUEUED = 50
_STATUS: dict[TerminalReason, Status] = {
    "ok": "complete",
    "interrupted": "interrupted",
    "unknown": "interrupted",
}


class ExchangeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange as the transcript tells it, redacted.

    `key` names its prompt, however often and however far the file is read. `session_id` is the
    session it was held in: in a copy of a session, the first one. Of `captured`, the cost is not
    known. Not `finished`: nobody has asked anything after it yet, so it may go on; `ends_at` is
    then how far it was read.
    """

    key: str
    session_id: str | None
    user: str
    assistant: str
    messages: tuple[Message, ...]
    captured: Captured
    status: Status
    finished: bool
    cwd: str | None
    git_branch: str | None
    begins_at: int
    ends_at: int


class _Open:
    """An exchange being read."""

    def __init__(
        self, line: Line, user: str, new: Callable[[Steps], Transcript], *, at: int
    ) -> None:
        self.prompt = line
        self.user = user
        self.begins_at = at
        self.queued: list[str] = []
        self.steps = Steps()
        self.transcript = new(self.steps)
        self.transcript.take(line)

    @property
    def key(self) -> str:
        named = text_of(self.prompt.uuid) or text_of(self.prompt.promptId)
        # Where it stands is a name, too; how many came before is not known to who reads on.
        session = session_name(text_of(self.prompt.sessionId)) or ""
        return session_name(named) or f"{session}@{self.begins_at}"

    def add(self, text: str) -> None:
        """More words of the person's; they are told twice by some clients."""
        if text and text not in self.queued and len(self.queued) < _MOST_QUEUED:
            self.queued.append(text)
            self.steps.asked(text)

    def seen(self, *, ends_at: int, finished: bool) -> ExchangeSeen:
        line = self.prompt
        captured = self.transcript.finish()
        first = text_of(mapping(line.forkedFrom).get("sessionId"))
        user = "\n\n".join(filter(None, [self.user, *self.queued]))
        return ExchangeSeen(
            key=self.key,
            session_id=session_name(first or text_of(line.sessionId)),
            user=kept(user[: 2 * LONGEST_USER], LONGEST_USER),
            assistant=self.steps.final,
            messages=self.steps.messages,
            captured=captured,
            status=_STATUS.get(captured.terminal_reason, "failed"),
            finished=finished,
            cwd=redact(text_of(line.cwd)[:500]) or None,
            git_branch=redact(text_of(line.gitBranch)[:200]) or None,
            begins_at=self.begins_at,
            ends_at=ends_at,
        )


class Exchanges:
    """A session transcript being read, from its beginning or from where an exchange ended.

    `line` is how many lines stand before `offset`, for the places of complaints; `title` is what
    the session was called when it was read before.
    """

    def __init__(
        self,
        *,
        file: str = "-",
        root: str | None = None,
        offset: int = 0,
        line: int = 0,
        title: str | None = None,
        injected: str = "",
    ) -> None:
        self._reading = Reading(file, line)
        self.complaints = self._reading.complaints
        self._new = lambda steps: Transcript(file=file, root=root, injected=injected, steps=steps)
        self._at = self._next = offset
        self._reads_on = offset > 0
        self._titles: dict[str, str] = {"before": title or ""}
        self._summaries: list[tuple[str, str]] = []
        self._seen: dict[int, None] = {}
        self._open: _Open | None = None
        # What a person had run, or the client put in: an exchange only once the assistant answers.
        self._maybe: _Open | None = None
        self._finished: list[ExchangeSeen] = []

    def feed(self, line: bytes) -> list[ExchangeSeen]:
        """Take one line with its end; the exchanges it finished. Never raises."""
        self._at = self._next
        self._next += len(line)
        self._reading.read(line, lines_of, self._take)
        finished, self._finished = self._finished, []
        return finished

    def rest(self) -> list[ExchangeSeen]:
        """The exchange under way, if any, as it stands; reading may go on after it."""
        return [self._open.seen(ends_at=self.ends_at, finished=False)] if self._open else []

    @property
    def ends_at(self) -> int:
        """How far everything was read: what may become an exchange yet is not."""
        return self._maybe.begins_at if self._maybe else self._next

    @property
    def title(self) -> str | None:
        """What the session is called: by a person, else by the client, else by its summary."""
        told = [self._titles.get(kind, "") for kind in ("custom-title", "ai-title", "before")]
        # A file may begin with the summaries of other sessions.
        told += [text for leaf, text in reversed(self._summaries) if not leaf or self._knows(leaf)]
        return next((kept(text, _LONGEST_TITLE) for text in told if text), None) or None

    def _take(self, line: Line) -> None:
        kind = line.type
        if not isinstance(kind, str):
            self._reading.complain("has no type; stepped over")
        elif kind in {"user", "assistant", "attachment"}:
            if not self._again(text_of(line.uuid)):
                self._said(kind, line)
        elif kind in {"custom-title", "ai-title"}:
            title = text_of(line.customTitle) or text_of(line.aiTitle)
            self._titles[kind] = title[: 4 * _LONGEST_TITLE] or self._titles.get(kind, "")
        elif kind == "summary":
            told = (text_of(line.leafUuid)[:100], text_of(line.summary)[: 4 * _LONGEST_TITLE])
            self._summaries = [*self._summaries, told][-_MOST_SUMMARIES:]
        elif kind == "queue-operation" and self._open is not None:
            self._open.add(queued(line))
        elif kind == "system" and line.subtype == "local_command":
            self._maybe = None

    def _said(self, kind: str, line: Line) -> None:
        if kind == "attachment":
            for one in filter(None, (self._open, self._maybe)):
                one.transcript.take(line)
                one.add(queued(line))
        elif line.isSidechain is True:
            if self._open is not None:
                self._open.transcript.take(line)
        elif kind == "assistant":
            self._answered(line)
        else:
            self._asked(line)

    def _answered(self, line: Line) -> None:
        if content_text(mapping(line.message).get("content")) == PLACEHOLDER:
            return
        if self._maybe is not None:
            self._turn(self._maybe)
        if self._open is not None:
            self._open.transcript.take(line)

    def _asked(self, line: Line) -> None:
        sort = sort_of(line)
        if sort == "prompt":
            self._turn(self._begin(line, typed(mapping(line.message).get("content"))))
        elif sort in {"command", "shell"}:
            self._maybe = self._begin(line, called(line)) if called(line) else None
        elif sort == "aside":
            self._put_in(line)
        else:
            self._maybe = None
            if self._open is not None and sort != "local":
                self._open.transcript.take(line)

    def _put_in(self, line: Line) -> None:
        is_over = self._reads_on if self._open is None else self._open.transcript.is_over
        if self._maybe is None and is_over:
            self._maybe = self._begin(line, "")
        elif (one := self._maybe or self._open) is not None:
            one.transcript.take(line)

    def _begin(self, line: Line, user: str) -> _Open:
        return _Open(line, user, self._new, at=self._at)

    def _turn(self, begun: _Open) -> None:
        """Another exchange begins, so the one before is over."""
        if self._open is not None:
            self._finished.append(self._open.seen(ends_at=begun.begins_at, finished=True))
        self._open, self._maybe = begun, None

    def _again(self, uuid: str) -> bool:
        """Whether the line stood in the file before: some clients copy what they go on from."""
        if not uuid:
            return False
        if (name := hash(uuid)) in self._seen:
            return True
        if len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = None
        return False

    def _knows(self, uuid: str) -> bool:
        return hash(uuid) in self._seen
