"""Codex's rollouts cut into exchanges: what it writes for itself under `~/.codex/sessions`.

The first line names the session and its folder. A turn begins with `task_started` and a person's
words and ends with `task_complete` or `turn_aborted`; older rollouts have neither, and there the
next person's words end it. What the model said and called stands in `response_item` lines in every
version; the events beside them say the same again and are stepped over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ralph.capture.exchanges import ExchangeSeen
from ralph.capture.gather import Gathered, session_name
from ralph.capture.lines import Reading, content_text, mapping, moment, objects, text_of
from ralph.capture.rollout_lines import (
    SessionHead,
    answer_of,
    call_of,
    rollout_head,
    said_in,
    total_tokens,
    turn_of,
    words_of,
)
from ralph.capture.rollout_turn import MOST_QUEUED, Turn
from ralph.capture.steps import kept

_LONGEST_TITLE = 200
_CALLS = {"function_call", "custom_tool_call", "local_shell_call"}
_ANSWERS = {"function_call_output", "custom_tool_call_output"}


class Rollout:
    """A rollout being read, from its beginning or from where an exchange ended.

    Who reads on gives the `head`; `line` and `title` are as for a session transcript.
    """

    def __init__(
        self,
        *,
        file: str = "-",
        root: str | None = None,
        offset: int = 0,
        line: int = 0,
        title: str | None = None,
        head: SessionHead | None = None,
    ) -> None:
        self._reading = Reading(file, line)
        self.complaints = self._reading.complaints
        self.head = head or SessionHead()
        self.title: str | None = title
        self._file, self._root = file, root
        self._at = self._next = offset
        self._open: Turn | None = None
        # Of the turn that began before its words came: where, its name, and what was told of it.
        self._turn_at: int | None = None
        self._turn = ""
        self._is_marked = False
        self._context: Mapping[str, Any] = {}
        self._put_in: list[str] = []
        self._finished: list[ExchangeSeen] = []

    def feed(self, line: bytes) -> list[ExchangeSeen]:
        """Take one line with its end; the exchanges it finished. Never raises."""
        self._at = self._next
        self._next += len(line)
        self._reading.read(line, objects, self._take)
        finished, self._finished = self._finished, []
        return finished

    def rest(self) -> list[ExchangeSeen]:
        """The exchange under way, if any, as it stands; reading may go on after it."""
        return [self._seen(self._open, self.ends_at, False)] if self._open else []

    @property
    def ends_at(self) -> int:
        """How far everything was read: a turn that has no words yet is not."""
        return self._next if self._turn_at is None else self._turn_at

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, told = text_of(event.get("type")), mapping(event.get("payload"))
        if not kind:
            self._reading.complain("has no type; stepped over")
            return
        if kind == "session_meta" and not self.head.session:
            self.head = rollout_head(msgspec.json.encode(dict(event))) or self.head
        elif kind == "turn_context":
            self._begin(turn_of(told))
            self._context = told
            if self._open is not None:
                self._open.context(told)
        elif kind == "event_msg":
            self._event(text_of(told.get("type")), told)
        elif kind == "response_item":
            self._item(text_of(told.get("type")), told, moment(event.get("timestamp")))
        elif kind == "token_usage_record" and self._open is not None:
            thread = total_tokens(told.get("thread_token_usage"))
            self._open.spend(thread, total_tokens(told.get("usage")))

    def _begin(self, turn: str) -> None:
        """A turn begins, or goes on under the same name."""
        if self._open is not None and turn in ("", self._open.turn):
            return
        self._close(self._at)
        if self._turn_at is None or turn != self._turn:
            self._turn_at, self._turn = self._at, turn
            self._is_marked, self._context, self._put_in = False, {}, []

    def _event(self, kind: str, told: Mapping[str, Any]) -> None:
        if kind in {"task_started", "turn_started"}:
            self._close(self._at)
            self._begin(turn_of(told))
            self._is_marked = True
        elif kind == "thread_name_updated":
            name = text_of(told.get("thread_name"))
            self.title = kept(name[: 4 * _LONGEST_TITLE], _LONGEST_TITLE) or self.title
        elif self._open is None:
            return
        elif kind == "token_count":
            info = mapping(told.get("info"))
            if info:
                last = total_tokens(info.get("last_token_usage"))
                self._open.spend(total_tokens(info.get("total_token_usage")), last)
        elif kind in {"error", "stream_error"}:
            self._open.fail(text_of(told.get("message")))
        elif kind in {"task_complete", "turn_complete"}:
            if error := mapping(told.get("error")):
                self._open.fail(text_of(error.get("message")))
            self._open.end("ok")
            self._close(self._next)
        elif kind == "turn_aborted":
            self._open.end("interrupted")
            self._close(self._next)

    def _item(self, kind: str, item: Mapping[str, Any], when: str | None) -> None:
        role = text_of(item.get("role"))
        if kind == "message" and role == "user":
            self._asked(item)
        elif kind == "message" and role != "assistant":
            self._inject(content_text(item.get("content")))
        one = self._open
        if one is None:
            return
        one.see(when)
        if kind == "message" and role == "assistant":
            for text in said_in(item):
                one.say(text)
        elif kind in _CALLS:
            one.call(call_of(item))
        elif kind in _ANSWERS:
            one.answer(text_of(item.get("call_id")), answer_of(item.get("output")))

    def _asked(self, item: Mapping[str, Any]) -> None:
        typed, put_in = words_of(item)
        self._inject(put_in)
        if not typed:
            return
        turn = turn_of(item) or self._turn
        if self._open is not None and turn and turn == self._open.turn:
            self._open.ask(typed)
            return
        at = self._at if self._turn_at is None else self._turn_at
        self._close(at)
        # A turn has one name, however often its line is copied; where it stands is a name, too.
        name = turn or text_of(item.get("id")) or f"{self.head.session}@{self._at}"
        found = Gathered(file=self._file, root=self._root, injected="")
        found.at_home(text_of(self._context.get("cwd")) or self.head.cwd)
        for text in self._put_in:
            found.see_injected(text)
        key = session_name(name) or name
        self._open = Turn(key, turn, at=at, found=found, is_marked=self._is_marked)
        self._open.context(self._context)
        self._open.ask(typed)
        self._turn_at, self._turn, self._put_in = None, turn, []

    def _inject(self, text: str) -> None:
        if self._open is not None:
            self._open.found.see_injected(text)
        elif text:
            self._put_in = [*self._put_in, text][-MOST_QUEUED:]

    def _close(self, at: int) -> None:
        """The exchange under way is over, and its lines end here."""
        if self._open is not None:
            self._finished.append(self._seen(self._open, at, True))
            self._open, self._turn = None, ""

    def _seen(self, one: Turn, at: int, finished: bool) -> ExchangeSeen:
        return one.seen(self.head, ends_at=at, finished=finished)
