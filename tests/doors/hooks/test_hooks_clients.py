"""Hooks of clients other than Claude Code: what each says becomes the same memory."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hooking import exchanges, hook, iterations, log
from places import FIXTURES
from remembering import made

from ralph.clients.opencode import plain_id
from ralph.memory.project import Focus, set_focus
from ralph.memory.ralph import open_ralph
from ralph.recall import exchange_of_run, held_in, session_in
from ralph.records.iteration import ErrorSeen

ASKED = "Please look around and write the file."
LAST = "All done, the file is there."
MET = "psycopg.OperationalError: connection to port 5433 refused by db-3"
FAILED = "psycopg.OperationalError: connection to port 5432 refused by db-17"


class GeminiCli:
    """Gemini CLI in a project, with a session that it has recorded."""

    agent, source = "gemini", "gemini-cli"

    def __init__(self, project: Path, folder: Path) -> None:
        self.project, self.folder = project, folder
        self.name = "aa164a6e-c138-452b-9a6d-bf61ac34947b"
        self.file = folder / "session.jsonl"

    def call(self, ours: str, event: str, **fields: Any) -> dict[str, Any]:
        """One of its hooks; what it is told to say."""
        given = {"session_id": self.name, "transcript_path": str(self.file), **fields}
        given |= {"cwd": str(self.project), "hook_event_name": event}
        out = hook(f"{ours} --agent {self.agent}", given, cwd=self.folder).out
        return json.loads(out)["hookSpecificOutput"] if out else {}

    def prompt(self, text: str) -> str:
        """A person's words, with what it puts before them."""
        prompt = f"<hook_context>x</hook_context>\n\n{text}"
        return self._told(self.call("user-prompt-submit", "BeforeAgent", prompt=prompt))

    def fails(self, output: str) -> str:
        """A command that ended badly."""
        content = f"<untrusted_context>\nOutput: {output}\nExit Code: 2\n</untrusted_context>"
        fields = {"tool_name": "run_shell_command", "tool_input": {"command": "pytest"}}
        response = {"llmContent": content, "returnDisplay": output}
        return self._told(
            self.call("post-tool-use-failure", "AfterTool", tool_response=response, **fields)
        )

    def ends(self) -> None:
        """The answer is whole."""
        chat = (FIXTURES / "gemini" / "chat.lines").read_text(encoding="utf-8")
        chat = chat.replace("/home/dev/shop", str(self.project))
        self.file.write_text(chat, encoding="utf-8")
        assert self.call("stop", "AfterAgent", prompt=ASKED, prompt_response=LAST) == {}

    def _told(self, said: dict[str, Any]) -> str:
        return str(said.get("additionalContext", ""))


class OpenCode(GeminiCli):
    """OpenCode in a project: its plugin calls the hooks and hands on what was said."""

    agent, source = "opencode", "opencode"

    def __init__(self, project: Path, folder: Path) -> None:
        super().__init__(project, folder)
        self.name = "ses_e1a55ee4cffeqyhm3rN8f3ixWg"

    def call(self, ours: str, event: str, **fields: Any) -> dict[str, Any]:
        """As its plugin calls."""
        given = {"session_id": self.name, "cwd": str(self.project), **fields}
        out = hook(f"{ours} --agent {self.agent}", given, cwd=self.folder).out
        return json.loads(out)["hookSpecificOutput"] if out else {}

    def prompt(self, text: str) -> str:
        """A person's words."""
        return self._told(self.call("user-prompt-submit", "", prompt=text))

    def fails(self, output: str) -> str:
        """A command that ended badly."""
        given = {"tool_name": "Bash", "tool_input": {"command": "pytest"}}
        error = f"Exit code 2\n{output}"
        return self._told(self.call("post-tool-use-failure", "", error=error, **given))

    def ends(self) -> None:
        """The answer is whole."""
        rows = (FIXTURES / "opencode" / "rows.lines").read_text(encoding="utf-8")
        found: dict[str, dict[str, Any]] = {}
        for line in rows.replace("/home/dev/shop", str(self.project)).splitlines():
            row = json.loads(line)
            if row["table"] == "message":
                info = {**json.loads(row["data"]), "id": row["id"]}
                found[row["id"]] = {"info": info, "parts": []}
            elif row["table"] == "part":
                found[row["message_id"]]["parts"].append(json.loads(row["data"]))
        assert self.call("stop", "", messages=list(found.values())) == {}


@pytest.fixture(params=[GeminiCli, OpenCode], ids=["gemini", "opencode"])
def client(request: pytest.FixtureRequest, project: Path, tmp_path: Path) -> GeminiCli:
    """A client in the project."""
    found: GeminiCli = request.param(project, tmp_path)
    return found


def test_what_was_said_is_saved_once_as_a_conversation_of_the_client(
    client: GeminiCli, project: Path, home: Path
) -> None:
    client.prompt(ASKED)
    client.ends()
    client.call("session-end", "SessionEnd", reason="exit")

    [one] = exchanges(project)
    assert (one.user, one.assistant, one.status) == (ASKED, LAST, "complete")
    with open_ralph(project) as ralph:
        [listed] = ralph.conversations.list()
    assert listed.conversation.source == client.source
    assert log(project) == []
    # Nothing of it waits any more.
    assert not list(home.rglob("spool/*"))


def test_it_is_an_iteration_of_the_feature_in_focus_and_the_same_event(
    client: GeminiCli, project: Path
) -> None:
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("shop").remember(made(summary="Begun."))
        set_focus(ralph.project, Focus("shop"))
    client.ends()

    [one] = exchanges(project)
    [done] = [each for each in iterations(project, "shop") if each.session_id]
    assert exchange_of_run(done.session_id) == one.id
    name = client.name if client.agent == "gemini" else plain_id(client.name)
    assert held_in(done, session_in(client.source, name))
    assert not held_in(done, name)


def test_a_prompt_and_a_failure_are_told_what_memory_has(client: GeminiCli, project: Path) -> None:
    fixed = ErrorSeen(MET, "runtime", None, None, "started the database with docker")
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("db").remember(made(summary="The tests could not connect.", errors=(fixed,)))

    assert "started the database with docker" in client.fails(FAILED)
    assert MET in client.prompt("Why could the tests not connect to psycopg?")
    assert client.prompt("yes please") == ""


def test_codex_tells_in_its_transcript_how_a_command_ended(project: Path, tmp_path: Path) -> None:
    fixed = ErrorSeen(MET, "runtime", None, None, "started the database with docker")
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("db").remember(made(summary="The tests could not connect.", errors=(fixed,)))
    rollout = tmp_path / "rollout-1.jsonl"

    def fails(exit_code: int) -> str:
        item = {"type": "CommandExecution", "id": "call_7", "exit_code": exit_code}
        line = {"type": "event_msg", "payload": {"type": "item_completed", "item": item}}
        rollout.write_text(json.dumps(line) + "\n", encoding="utf-8")
        given = {"tool_name": "Bash", "tool_input": {"command": "pytest"}, "tool_response": FAILED}
        given |= {"hook_event_name": "PostToolUse", "tool_use_id": "call_7"}
        given |= {"session_id": "s", "transcript_path": str(rollout), "cwd": str(project)}
        return hook("post-tool-use-failure --agent codex", given, cwd=tmp_path).out

    assert fails(0) == ""
    said = json.loads(fails(2))["hookSpecificOutput"]
    assert said["hookEventName"] == "PostToolUse"
    assert "started the database with docker" in said["additionalContext"]


def test_nothing_is_left_where_nothing_is_to_be_saved(
    project: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_HOOK_CAPTURE", "false")
    OpenCode(project, tmp_path).ends()

    assert exchanges(project) == []
    assert not list(home.rglob("spool/*"))


def test_a_tool_that_ended_well_asks_nothing(project: Path, tmp_path: Path) -> None:
    cli = GeminiCli(project, tmp_path)
    response = {"llmContent": f"Output: {FAILED}\nProcess Group PGID: 7", "returnDisplay": FAILED}
    given = {"tool_name": "run_shell_command", "tool_input": {"command": "cat log"}}
    said = cli.call("post-tool-use-failure", "AfterTool", tool_response=response, **given)

    assert said == {}


def test_a_client_that_ralph_does_not_know_is_not_answered(project: Path, tmp_path: Path) -> None:
    given = {"session_id": str(uuid.uuid4()), "cwd": str(project), "prompt": "Why does it fail?"}

    assert hook("user-prompt-submit --agent nobody", given, cwd=tmp_path).out == ""
    assert exchanges(project) == []
