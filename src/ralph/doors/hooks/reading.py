"""A session's transcript, read from where it was last captured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.capture.exchanges import Exchanges, ExchangeSeen
from ralph.record import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph.doors.hooks.call import Call

# How many lines are read between two looks at the clock.
_LOOK_EVERY = 100


class Reading:
    """A transcript being read; `complete` once every whole line was."""

    def __init__(self, file: Path, *, root: str, offset: int) -> None:
        self._file = file
        self.complete = False
        self._last_end = self._start(offset)
        self._exchanges = Exchanges(file=file.name, root=root, offset=self._last_end)

    def _start(self, offset: int) -> int:
        """Where to read on; from the beginning when the file is not the one that was read."""
        with self._file.open("rb") as file:
            if not 0 < offset <= file.seek(0, 2):
                return 0
            file.seek(offset - 1)
            return offset if file.read(1) == b"\n" else 0

    def finished(self, time_left: Callable[[], bool]) -> list[ExchangeSeen]:
        """The exchanges that were followed by another one, as far as time allows."""
        found: list[ExchangeSeen] = []
        with self._file.open("rb") as file:
            file.seek(self._last_end)
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # being written just now
                if number % _LOOK_EVERY == 0 and not time_left():
                    return found
                found += self._exchanges.feed(line)
                self._last_end = found[-1].ends_at if found else self._last_end
        self.complete = True
        return found

    @property
    def begins_at(self) -> int:
        """Where the exchange under way begins, or what was not kept yet."""
        rest = self.rest()
        return rest.begins_at if rest is not None else self._last_end

    @property
    def ends_at(self) -> int:
        """How far it was read; what may become an exchange yet is read again."""
        return self._exchanges.ends_at

    def rest(self) -> ExchangeSeen | None:
        """The exchange under way."""
        return next(iter(self._exchanges.rest()), None)

    def ended(self, call: Call) -> ExchangeSeen:
        """The exchange under way as over, with the last message though it may not be written."""
        rest = self._exchanges.rest()[0]
        text = call.text("last_assistant_message")
        failed = call.event == "stop-failure"
        lacks_end = rest.captured.terminal_reason == "unknown"
        if failed:
            text = text or call.text("error_details") or call.text("error") or "the request failed"
            lacks_end = rest.status != "failed"
        if lacks_end and text:
            self._exchanges.feed(_line(call, text, failed=failed))
            rest = self._exchanges.rest()[0]
        return rest if failed else self.settled(rest)

    def settled(self, rest: ExchangeSeen) -> ExchangeSeen:
        """The exchange as complete: Stop said that it is over, whatever the transcript lacks."""
        if rest.captured.terminal_reason != "unknown":
            return rest
        return msgspec.structs.replace(rest, status="complete")

    @property
    def title(self) -> str | None:
        """What the session is called."""
        return self._exchanges.title


def _line(call: Call, text: str, *, failed: bool) -> bytes:
    """The line that the client is about to write."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
    }
    line: dict[str, Any] = {
        "type": "assistant",
        "sessionId": call.session,
        "timestamp": now(),
        "message": message,
    }
    if failed:
        line |= {"isApiErrorMessage": True, "error": call.text("error")}
    return json.dumps(line).encode() + b"\n"
