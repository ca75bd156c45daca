"""Recorded runs of Gemini CLI and OpenCode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import FIXTURES

from ralph.capture import AgentRun
from ralph.clients import read

ROOT = "/home/dev/shop"
CLIENTS = ("gemini", "opencode")
each = pytest.mark.parametrize("client", CLIENTS)


def recorded(client: str) -> list[dict[str, Any]]:
    text = (FIXTURES / client / f"{client}_stream.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def captured(events: list[dict[str, Any]]) -> AgentRun:
    got, complaints = read([json.dumps(event).encode() for event in events], root=ROOT)
    assert complaints == []
    return got


@each
def test_a_recorded_run_is_captured(client: str) -> None:
    got = captured(recorded(client))

    assert (got.dialect, got.terminal_reason, got.is_error) == (client, "ok", False)
    assert got.summary == "All done, the file is there."
    assert [(file.path, file.action) for file in got.files_touched if file.action != "read"] == [
        ("a.py", "created"),
        ("hello.txt", "modified"),
    ]
    assert got.tokens_used == (600 if client == "gemini" else 720)
    assert sum(got.used_tools.values()) == 5
    assert got.session_id is not None
    assert "redacted" not in got.session_id
    assert (got.model or "") == ("gemini-2.5-pro" if client == "gemini" else "")


@pytest.mark.parametrize("code", [0, 2])
def test_opencode_says_how_a_command_ended(code: int) -> None:
    events = recorded("opencode")
    [state] = [e["part"]["state"] for e in events if e["part"].get("tool") == "bash"]
    state["input"]["command"] = "./deploy.sh"
    state["output"] = "deploy: the target host is not reachable\n"
    state["metadata"]["exit"] = code
    found = [error.message for error in captured(events).errors]

    assert any("host is not reachable" in message for message in found) == (code == 2)


@each
def test_a_run_without_an_end_was_killed(client: str) -> None:
    assert captured(recorded(client)[:-1]).terminal_reason == "killed"


@pytest.mark.parametrize(
    ("message", "reason"), [("quota: 429 too many requests", "rate_limited"), ("no", "api_error")]
)
@each
def test_a_run_that_the_provider_ended_failed(client: str, message: str, reason: str) -> None:
    first, *_, last = recorded(client)
    last = last | {"status": "error", "error": {"type": "Error", "message": message}}
    if client == "opencode":
        about = {"name": "APIError", "data": {"message": message}}
        last = {"type": "error", "timestamp": 1, "sessionID": last["sessionID"], "error": about}
    got = captured([first, last])

    assert (got.terminal_reason, got.is_error) == (reason, True)
    assert message in [error.message for error in got.errors]
