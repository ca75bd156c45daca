"""What a streamed answer is made of: events out of bytes, and an answer out of events."""

from __future__ import annotations

from collections.abc import Iterator

from ralph.chat.model import OnText, ToolCall, tool_call


class Events:
    """Server-sent events, from bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._raw: list[bytes] = []
        self.seen = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of every event that this piece completes."""
        if not self.seen:
            self._raw.append(piece)
        head, *rest = piece.split(b"\n")
        self._line.append(head)
        for part in rest:
            line = b"".join(self._line).removesuffix(b"\r")
            self._line = [part]
            if not line and self._data:
                yield b"\n".join(self._data)
                self._data = []
            elif line.startswith(b"data:"):
                self.seen = True
                self._raw.clear()
                self._data.append(line[5:].removeprefix(b" "))

    @property
    def plain(self) -> bytes:
        """What came instead of events."""
        return b"".join(self._raw).strip()


class Failed(Exception):
    """The server says in the middle of its answer that it cannot go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


class Gathered:
    """An answer as far as it has come."""

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._texts: list[str] = []
        self._calls: list[_Call] = []
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.model = ""
        # Why it ended; empty until it has.
        self.stop = ""
        # Nothing more will come.
        self.over = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(tool_call(c.id, c.name, "".join(c.arguments)) for c in self._calls)

    def say(self, piece: str) -> None:
        """A piece of text."""
        if piece:
            self._texts.append(piece)
            if self._on_text is not None:
                self._on_text(piece)

    def call(self, place: int | None, id: str, name: str, arguments: str) -> None:
        """A piece of a tool call.

        Servers tell which call it belongs to by its place, by its id, or by sending one after
        another; some give all of them the same place.
        """
        last = next((c for c in reversed(self._calls) if place is None or c.place == place), None)
        if last is None or (id and last.id and id != last.id) or (place is None and name):
            last = _Call(place)
            self._calls.append(last)
        last.id = last.id or id
        last.name = last.name or name
        last.arguments.append(arguments)


class _Call:
    def __init__(self, place: int | None) -> None:
        self.place = place
        self.id = self.name = ""
        self.arguments: list[str] = []
