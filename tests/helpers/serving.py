"""What the tests of the MCP server share: servers in this process and as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mcp_types as types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from measuring import measured

from ralph.doors.mcp.context import ServerContext, read_options
from ralph.doors.mcp.server import make_server

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
_PREFIX = "io.modelcontextprotocol"


class Reply(NamedTuple):
    """What a tool answered."""

    text: str
    failed: bool
    structured: Any


class Served:
    """A server in this process, and the SDK's own client that talks to it."""

    def __init__(self, portal: BlockingPortal, client: Client, context: ServerContext) -> None:
        self._portal = portal
        self.client = client
        self.context = context

    def call(self, name: str, /, arguments: dict[str, Any] | None = None, **more: Any) -> Reply:
        """Call a tool."""
        given = {**(arguments or {}), **more}
        result = self._portal.call(lambda: self.client.call_tool(name, given))
        [content] = result.content
        assert isinstance(content, types.TextContent)
        return Reply(content.text, result.is_error, result.structured_content)

    def told(self, name: str, /, **arguments: Any) -> str:
        """What the tool answers; an error is a failure."""
        reply = self.call(name, arguments)
        assert not reply.failed, reply.text
        return reply.text

    def refused(self, name: str, /, **arguments: Any) -> str:
        """The one line with which the tool refuses."""
        reply = self.call(name, arguments)
        assert reply.failed, reply.text
        assert "\n" not in reply.text
        return reply.text

    def tools(self) -> dict[str, types.Tool]:
        """The tools as the client sees them."""
        return {tool.name: tool for tool in self._portal.call(self.client.list_tools).tools}

    def resources(self) -> dict[str, types.Resource]:
        """The resources as the client sees them."""
        return {one.uri: one for one in self._portal.call(self.client.list_resources).resources}

    def read(self, uri: str) -> str:
        """The text of a resource."""
        [content] = self._portal.call(lambda: self.client.read_resource(uri)).contents
        assert isinstance(content, types.TextResourceContents)
        return content.text


@contextlib.contextmanager
def served(root: Path, *words: str, era: str = "auto") -> Iterator[Served]:
    """A server started with these words on this folder."""
    context = ServerContext(read_options(list(words)), root)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(make_server(context), mode=era)) as client,
    ):
        yield Served(portal, client, context)
    assert context.closed


class Wire:
    """A server as a process, spoken to line by line in one of the protocol's two eras."""

    def __init__(self, process: subprocess.Popen[bytes], era: str) -> None:
        self.process = process
        self.era = era
        self._next = 0

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Ask something and give the number under which the answer will come."""
        self._next += 1
        given = dict(params or {})
        if self.era == MODERN:
            given["_meta"] = {
                f"{_PREFIX}/protocolVersion": MODERN,
                f"{_PREFIX}/clientInfo": {"name": "test", "version": "1"},
                f"{_PREFIX}/clientCapabilities": {},
            }
        self._write({"jsonrpc": "2.0", "id": self._next, "method": method, "params": given})
        return self._next

    def receive(self) -> dict[str, Any]:
        """The next line from the server; every line is a message."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server closed its stdout"
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask and wait for that answer."""
        number = self.send(method, params)
        message = self.receive()
        assert message["id"] == number
        return message

    def call(self, name: str, /, **arguments: Any) -> str:
        """What a tool answers."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        [content] = result["content"]
        text: str = content["text"]
        return text

    def greet(self) -> dict[str, Any]:
        """The handshake of this era."""
        if self.era == MODERN:
            return self.ask("server/discover")
        answer = self.ask(
            "initialize",
            {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def hang_up(self) -> int:
        """Close its stdin, and give the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=60)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def wired(
    cwd: Path,
    *words: str,
    era: str = LEGACY,
    prefix: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
) -> Iterator[Wire]:
    """A server as a process that is gone when the block is left."""
    with subprocess.Popen(
        [*prefix, sys.executable, "-m", "ralph", "mcp", *words],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **measured(), **(environ or {})},
    ) as process:
        try:
            yield Wire(process, era)
        finally:
            process.kill()
