"""Requests that the SDK cannot read: it drops them, and whoever sent one would wait for ever.

Half a surrogate pair (half an emoji that somebody cut) and deep nesting are JSON to some and not to
others. Such a request gets an error under its own id.
"""

from __future__ import annotations

import re
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')
_ID_TEXT = re.compile(r'"([\x20-\x7e]{0,200})"')
_ID_NUMBER = re.compile(r"-?[0-9]{1,18}")


class AnsweredRequests:
    """What the client sends, without what cannot be read; that is answered with an error."""

    def __init__(self, reads: Any, writes: Any) -> None:
        self._reads = reads
        self._writes = writes

    @property
    def last_context(self) -> Any:
        """Where the SDK keeps what belongs to the message it read last."""
        return getattr(self._reads, "last_context", None)

    async def receive(self) -> Any:
        """The next message."""
        while True:
            item = await self._reads.receive()
            if not isinstance(item, Exception):
                return item
            if (name := _request_id(item)) is not None:
                await self._writes.send(SessionMessage(_refusal(name)))

    async def aclose(self) -> None:
        """Read no more."""
        await self._reads.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.aclose()


def _refusal(name: int | str) -> types.JSONRPCError:
    what = (
        "this request cannot be read: it is no JSON-RPC, holds half a character (a \\ud83d without "
        "its other half) or is nested too deeply. Correct it and send it again."
    )
    error = types.ErrorData(code=types.INVALID_REQUEST, message=what)
    return types.JSONRPCError(jsonrpc="2.0", id=name, error=error)


def _request_id(error: Exception) -> int | str | None:
    """The id of the request that could not be read, None where it has none or nobody can tell."""
    tell = getattr(error, "errors", None)
    for one in tell() if callable(tell) else ():
        given = one.get("input")
        if isinstance(given, str) and one.get("type") == "json_invalid":
            return _id_in(given)
        name = given.get("id") if isinstance(given, dict) else None
        if isinstance(name, int | str) and not isinstance(name, bool):
            return name
    return None


def _id_in(text: str) -> int | str | None:
    """The `id` on the outside of a JSON object, read without reading the rest."""
    depth = 0
    before = ["", ""]
    for found in _TOKEN.finditer(text):
        token = found.group()
        if depth == 1 and before == ['"id"', ":"]:
            if number := _ID_NUMBER.fullmatch(token):
                return int(number.group())
            named = _ID_TEXT.fullmatch(token)
            return named.group(1) if named and "\\" not in token else None
        depth += (token in "[{") - (token in "]}")
        before = [before[1], token]
    return None
