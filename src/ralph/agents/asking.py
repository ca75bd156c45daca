"""A plain MCP client over stdio: what the scripted agent calls tools with."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import IO, Any, cast

_PROTOCOL = "2025-11-25"
_END_S = 10.0


class Gone(Exception):
    """The server does not answer any more, or never did."""


class Asked:
    """One server of a config file, as a process of ours."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self._number = 0
        try:
            self._process = subprocess.Popen(
                [entry["command"], *entry.get("args", ())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **entry.get("env", {})},
            )
        except OSError as error:
            raise Gone(str(error)) from None
        client = {"name": "scripted", "version": "1"}
        hello = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
        try:
            self._ask("initialize", hello)
            self._send({"method": "notifications/initialized"})
        except Gone:
            self.close()
            raise

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """The text a tool answers with, and whether it is an error."""
        try:
            answer = self._ask("tools/call", {"name": tool, "arguments": arguments})
        except Gone as gone:
            return str(gone), True
        if "error" in answer:
            return str(answer["error"].get("message", answer["error"])), True
        result = answer["result"]
        texts = [part["text"] for part in result.get("content", ()) if part["type"] == "text"]
        return "\n".join(texts), bool(result.get("isError"))

    def close(self) -> None:
        """End the server as clients do: by leaving."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    @property
    def _stdin(self) -> IO[bytes]:
        return cast(IO[bytes], self._process.stdin)

    @property
    def _stdout(self) -> IO[bytes]:
        return cast(IO[bytes], self._process.stdout)

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        for line in self._stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._number and "method" not in answer:
                return answer
        raise Gone("Connection closed")

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        try:
            self._stdin.write(line)
            self._stdin.flush()
        except OSError:
            raise Gone("Connection closed") from None


def entries(config: str | None) -> dict[str, dict[str, Any]]:
    """The servers of a config file by name; none without a file."""
    if not config:
        return {}
    plain = json.loads(Path(config).read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = plain["mcpServers"]
    return found
