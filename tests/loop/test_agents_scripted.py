"""The scripted agent speaks the real dialect and really does what its script says."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from looping import scripted

from ralph.capture import AgentRun
from ralph.clients import read
from ralph.records import Complaint
from ralph.records.iteration import FileTouched


def played(
    folder: Path, run: dict[str, Any], prompt: str = "Do it."
) -> tuple[AgentRun, list[Complaint]]:
    """One run of the agent in the folder, as capture reads it."""
    words = shlex.split(scripted(folder.parent, run))
    done = subprocess.run(
        words, cwd=folder, input=prompt.encode(), capture_output=True, check=True, timeout=120
    )
    return read(done.stdout.splitlines(), root=str(folder))


def test_its_stream_is_read_without_complaint_and_tells_files_errors_and_summary(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "old.py").write_text("x = 1\n")
    captured, complaints = played(
        folder,
        {
            "steps": [
                {"say": "I look at the module first, then I change it."},
                {"read": "old.py"},
                {"edit": "old.py", "old": "x = 1", "new": "x = 2"},
                {"write": "src/new.py", "content": "raise ValueError('no name')\n"},
                {"bash": "{{python}} src/new.py"},
                {"say": "I decided to keep x in old.py because other modules import it."},
            ],
            "result": "Changed x and wrote new.py, which still fails.",
            "cost_usd": 0.25,
        },
    )
    assert complaints == []
    assert captured.files_touched == (
        FileTouched("old.py", "modified"),
        FileTouched("src/new.py", "created"),
    )
    assert [error.message for error in captured.errors] == ["ValueError: no name"]
    assert captured.errors[0].file_path == "src/new.py"
    assert captured.summary == "Changed x and wrote new.py, which still fails."
    assert [one.description for one in captured.decisions] != []
    assert (captured.cost_usd, captured.is_error, captured.terminal_reason) == (0.25, False, "ok")
    assert captured.used_tools == {"Read": 1, "Edit": 1, "Write": 1, "Bash": 1}
    assert captured.model == "scripted"


def test_the_first_run_that_fits_the_prompt_is_played(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    runs = [{"when": "task: 7", "result": "seven"}, {"when": "task", "result": "another"}]
    script.write_text(json.dumps({"runs": runs}))
    for prompt, result in [("task: 7", "seven"), ("task: 8", "another"), ("?", "has no run")]:
        done = subprocess.run(
            [sys.executable, "-m", "ralph.loop.scripted", str(script)],
            input=prompt.encode(),
            capture_output=True,
            check=True,
            timeout=120,
        )
        captured, _ = read(done.stdout.splitlines())
        assert result in captured.summary


def test_a_command_that_does_not_say_what_is_expected_ends_the_run(tmp_path: Path) -> None:
    steps = [{"bash": "echo red", "expect": "green", "otherwise": "It is red."}, {"say": "never"}]
    captured, _ = played(tmp_path, {"steps": steps, "result": "It is green."})
    assert captured.summary == "It is red."


ECHO = """
import json, os, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    given = asked["params"].get("arguments", {})
    if given.get("text") == "die":
        sys.exit(1)
    text = f"{os.environ['VOICE']}: {given.get('text')}"
    result = {"content": [{"type": "text", "text": text}], "isError": given.get("text") == "bad"}
    noise = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
    for said in (noise, {"jsonrpc": "2.0", "id": asked["id"], "result": result}):
        print(json.dumps(said), flush=True)
"""


def test_it_calls_the_tools_of_the_servers_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mcp.json"
    echo = {"command": sys.executable, "args": ["-c", ECHO], "env": {"VOICE": "echo"}}
    broken = {"command": sys.executable, "args": ["-c", ""]}
    config.write_text(json.dumps({"mcpServers": {"echo": echo, "broken": broken}}))
    monkeypatch.setenv("RALPH_MCP_CONFIG", str(config))
    steps: list[dict[str, Any]] = [
        {"mcp": "say", "args": {"text": "hello"}, "expect": "echo: hello"},
        {"mcp": "say", "args": {"text": "bad"}},
        {"mcp": "say", "server": "broken"},
        {"mcp": "say", "args": {"text": "die"}, "expect": "closed", "otherwise": "It lives."},
    ]
    captured, complaints = played(tmp_path, {"steps": steps, "result": "All said."})
    assert complaints == []
    assert captured.summary == "All said."
    assert captured.used_tools == {"mcp__echo__say": 3, "mcp__broken__say": 1}
    assert captured.mcp_failed == ("broken",)
    assert [error.message for error in captured.errors] == [
        "mcp__echo__say: echo: bad",
        "mcp__echo__say: Connection closed",
    ]


def test_a_file_that_is_not_there_is_a_failed_tool_and_not_a_crash(tmp_path: Path) -> None:
    steps = [{"read": "none.py"}, {"edit": "none.py", "old": "a", "new": "b"}]
    captured, complaints = played(tmp_path, {"steps": steps, "result": "Neither worked out."})
    assert (captured.summary, complaints) == ("Neither worked out.", [])
    assert not (tmp_path / "none.py").exists()
