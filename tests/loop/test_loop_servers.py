"""The MCP servers of an iteration: which ones, in what file, and what the prompt says of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from looping import TASKS, Loop, block_index, calls, planned, replay, scripted, stand_in
from remembering import state_of

from ralph.config import home_folder, unknown_variables
from ralph.doors.cli.main import run
from ralph.doors.mcp.context import read_options
from ralph.loop.agent import loop_servers
from ralph.memory.project import Project, wishes_of
from ralph.plan.model import Task
from ralph.trust import trust

WEB = TASKS.replace("feature: auth\n", "feature: auth\n  discipline: web\n", 1)
BROWSER = {"browser": {"command": "browse", "args": ["-x"], "env": {"KEY": "s3cret"}}}


@pytest.fixture
def without_index(loop: Loop, home: Path) -> Loop:
    """A loop whose memory is off."""
    block_index(loop, home)
    return loop


def disciplined(root: Path, servers: dict[str, Any], *, allowed: bool = True) -> Loop:
    """A project whose first task has a discipline with these servers, which its person allows."""
    planned(root, tasks=WEB)
    entry = {"disciplines": [{"name": "web", "mcp_servers": servers}]}
    (root / ".ralph" / "db" / "disciplines.yaml").write_text(json.dumps(entry), encoding="utf-8")
    if allowed:
        trust(home_folder(), root, wishes_of(Project(root), home=home_folder()))
    return Loop(root)


def on_path(folder: Path, name: str) -> str:
    """A program of this name where stand-ins are."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def claude_was_called(loop: Loop, patch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """How the loop calls Claude Code for one iteration."""
    stand_in("claude", loop.root.parent, patch)
    loop("claude", max_iterations=1, **options)
    [call] = calls(loop.root.parent)
    return call


def test_one_server_has_memory_and_plan_and_knows_where_it_is(
    loop: Loop, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_SEARCH_LIMIT", "7")
    monkeypatch.setenv("RALPH_OPENAI_API_KEY", "k-1")
    call = claude_was_called(loop, monkeypatch)
    assert call["config"] == {
        "mcpServers": {
            "feature-memory": {
                "type": "stdio",
                "command": sys.executable,
                "args": ["-E", "-P", "-m", "ralph", "mcp", "--feature=auth", "--task=1"],
                "env": {
                    "RALPH_HOME": str(home),
                    "RALPH_PROJECT": str(loop.root),
                    "RALPH_SEARCH_LIMIT": "7",
                    "RALPH_OPENAI_API_KEY": "k-1",
                    "RALPH_REVIEW_EVERY": "0",
                },
                "alwaysLoad": True,
            }
        }
    }
    assert unknown_variables(call["environ"]) == []
    words = call["argv"]
    at = words.index("--mcp-config")
    assert words[at : at + 3] == ["--mcp-config", call["path"], "--strict-mcp-config"]
    assert words[words.index("--allowedTools") + 1] == "mcp__feature-memory"


def test_the_file_is_ours_alone_and_goes_with_the_run(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = claude_was_called(loop, monkeypatch)
    assert call["mode"] == "0o600"
    assert Path(call["path"]).is_relative_to(state_of(loop.root) / "runs")
    assert not Path(call["path"]).exists()


def test_the_servers_of_the_discipline_stand_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = disciplined(tmp_path / "project", BROWSER)
    browse = on_path(tmp_path, "browse")
    call = claude_was_called(loop, monkeypatch)
    assert list(call["config"]["mcpServers"]) == ["feature-memory", "browser"]
    # By its full path: whoever starts it stands in the project's folder.
    assert call["config"]["mcpServers"]["browser"] == {**BROWSER["browser"], "command": browse}
    words = call["argv"]
    at = words.index("--allowedTools")
    assert words[at + 1 : at + 3] == ["mcp__feature-memory", "mcp__browser"]


def test_a_server_of_the_discipline_does_not_take_the_place_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"feature-memory": {"command": "x"}, "plan": {"command": "x"}, "my web": {"url": "u"}}
    loop = disciplined(tmp_path / "project", {**given, "half": {}, "text": "npx it"})
    stand_in("claude", tmp_path, monkeypatch)
    loop("claude", max_iterations=2)
    first, _ = calls(tmp_path)
    assert first["config"]["mcpServers"].keys() == {"feature-memory", "my_web"}
    assert first["config"]["mcpServers"]["feature-memory"]["command"] == sys.executable
    assert len(loop.repairs.splitlines()) == 4  # said once a run
    for name, why in [
        ("feature-memory", "that name is reserved"),
        ("plan", "that name is reserved"),
        ("half", "it has no"),
    ]:
        assert f"the MCP server {name!r} of web is left out: {why}" in loop.repairs


def test_a_server_that_nobody_allowed_is_left_out_until_somebody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = disciplined(tmp_path / "project", BROWSER, allowed=False)
    on_path(tmp_path, "browse")
    call = claude_was_called(loop, monkeypatch)
    assert list(call["config"]["mcpServers"]) == ["feature-memory"]
    assert "mcp__browser" not in call["argv"]
    assert loop.repairs == (
        "disciplines.yaml: the MCP server 'browser' of web is left out: you have not allowed it. "
        "See it and allow it: ralph trust"
    )


def test_a_server_that_changed_since_it_was_allowed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    disciplined(root, BROWSER)
    on_path(tmp_path, "browse")
    changed = {"browser": {**BROWSER["browser"], "args": ["-x", "--and-more"]}}
    loop = disciplined(root, changed, allowed=False)
    call = claude_was_called(loop, monkeypatch)
    assert list(call["config"]["mcpServers"]) == ["feature-memory"]


def test_a_server_of_the_project_is_found_by_its_path_and_never_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    by_path = {"command": "./bin/serve"}
    loop = disciplined(root, {"named": {"command": "serve"}, "path": by_path})
    on_path(root, "serve")
    stand_in("claude", tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"bin:{root / 'bin'}:{os.environ['PATH']}")
    loop("claude", max_iterations=1)
    [call] = calls(tmp_path)
    assert call["config"]["mcpServers"]["path"] == by_path
    assert "named" not in call["config"]["mcpServers"]
    assert "'serve' is not on the PATH outside the project" in loop.repairs


def test_with_memory_off_the_agent_still_has_the_plan(
    without_index: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = claude_was_called(without_index, monkeypatch)
    [(name, server)] = call["config"]["mcpServers"].items()
    assert name == "plan"
    assert server["args"][-3:] == ["--feature=auth", "--task=1", "--no-memory"]
    assert "mcp__plan" in call["argv"]
    assert "update_task of the MCP server plan" in call["prompt"]
    for word in ("search_feature_memory", "get_failed_attempts", "# Memory", "ralph search"):
        assert word not in call["prompt"]


def test_a_review_gets_the_tools_of_a_review(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(planned(tmp_path / "project"), review_every=1)
    call = claude_was_called(loop, monkeypatch)
    [server] = call["config"]["mcpServers"].values()
    assert server["args"][-2:] == ["--feature=auth", "--review"]
    for tool in ("update_feature(", "review_learning(", "remove_learning(", "verify_feature("):
        assert tool in call["prompt"]
    assert "ralph learning" not in call["prompt"]


def test_the_prompt_names_tools_to_an_agent_that_has_them_and_commands_to_others(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_tools = claude_was_called(loop, monkeypatch)["prompt"]
    assert "search_feature_memory for" in by_tools
    assert 'update_task(status="done"' in by_tools
    assert "ralph search" not in by_tools
    stand_in("another", tmp_path, monkeypatch)
    loop("another --fast", max_iterations=1)
    _, call = calls(tmp_path)
    assert "ralph search" in call["prompt"]
    assert "search_feature_memory" not in call["prompt"]
    assert call["argv"] == ["--fast"]
    assert list(call["config"]["mcpServers"]) == ["feature-memory"]


def test_codex_is_told_of_the_servers_by_a_file_that_only_we_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = disciplined(tmp_path / "project", BROWSER)
    on_path(tmp_path, "browse")
    stand_in("codex", tmp_path, monkeypatch)
    loop("codex", max_iterations=1)
    [call] = calls(tmp_path)
    words = " ".join(call["argv"])
    for name in ("feature-memory", "browser"):
        assert f'mcp_servers.{name}.default_tools_approval_mode="approve"' in words
        assert f'"{call["path"]}", "{name}"]' in words
    assert "s3cret" not in words
    assert "s3cret" not in call["environ"].values()
    assert call["config"]["mcpServers"]["browser"]["env"] == {"KEY": "s3cret"}
    assert "search_feature_memory for" in call["prompt"]


def test_names_that_look_like_options_are_still_names(loop: Loop) -> None:
    task = Task(id="--no-memory", feature="--review", title="Odd")
    with loop.opened() as ralph:
        servers, _ = loop_servers(ralph, loop.plan, task, review=False, memory_on=True)
    *_, door, feature, task_id = servers["feature-memory"]["args"]
    options = read_options([feature, task_id])
    assert (door, options.feature, options.task_id) == ("mcp", "--review", "--no-memory")
    assert (options.review, options.memory) == (False, True)


# -- the real server


def test_what_one_iteration_failed_at_the_next_one_finds_over_mcp(tmp_path: Path) -> None:
    # By words alone: the server must get the settings that this loop was opened with.
    loop = Loop(planned(tmp_path / "project"), embedder="none")
    failing = {
        "when": "(?s)^(?!.*Earlier attempts)",
        "steps": [{"bash": "echo 'ValueError: the cookie is too long' >&2; exit 1"}],
        "result": "The cookie of the login form is refused, and I do not know why.",
    }
    asking = {
        "steps": [
            {
                "mcp": "search_feature_memory",
                "args": {"query": "why is the cookie refused?"},
                "expect": "ValueError: the cookie is too long",
                "otherwise": "Memory has nothing about it.",
            },
            {"mcp": "append_learning", "args": {"text": "Cookies hold at most 4096 bytes."}},
            {"mcp": "update_task", "args": {"status": "done", "comment": "The cookie is short."}},
        ],
        "result": "Made the cookie short enough.",
    }
    loop(scripted(tmp_path, failing, asking), task_id=1)
    assert loop.outcomes == ["failure", "success"]
    assert loop.told()[1].summary == "Made the cookie short enough."
    assert loop.told()[1].errors == ()
    assert loop.repairs == ""
    task = loop.plan.task(1)
    assert (task.status, [one.author for one in task.comments]) == ("done", ["agent"])
    [learned] = [x for x in loop.plan.feature("auth").learnings if "4096" in x.text]
    assert learned.source == "agent"
    assert loop.facts("ended")[1]["mcp_failed"] == []


def test_an_agent_cannot_reach_a_task_of_another_feature_over_mcp(
    loop: Loop, tmp_path: Path
) -> None:
    steps = [{"mcp": "update_task", "args": {"status": "done", "task_id": 3}}]
    loop(scripted(tmp_path, {"steps": steps, "result": "Tried."}), max_iterations=1)
    assert loop.outcomes == ["failure"]
    assert "does not belong to the feature" in loop.told()[0].errors[0].message
    assert loop.plan.task(3).status == "pending"


def test_with_memory_off_progress_is_still_reported_over_mcp(
    without_index: Loop, tmp_path: Path
) -> None:
    steps = [
        {"mcp": "search_feature_memory", "args": {"query": "cookies"}, "expect": "."},
        {"mcp": "update_task", "args": {"status": "done"}},
    ]
    without_index(scripted(tmp_path, {"steps": steps, "result": "Done."}), max_iterations=1)
    assert without_index.outcomes == ["success"]


def test_a_server_that_ends_in_the_middle_of_a_call_leaves_a_right_record(
    tmp_path: Path,
) -> None:
    dying = {"command": sys.executable, "args": ["-c", DYING]}
    loop = disciplined(tmp_path / "project", {"browser": dying})
    steps = [
        {"mcp": "open", "server": "browser", "args": {"url": "u"}},
        {"mcp": "update_task", "args": {"status": "in_progress", "comment": "No browser."}},
    ]
    loop(scripted(tmp_path, {"steps": steps, "result": "The browser died."}), max_iterations=1)
    assert loop.outcomes == ["partial"]
    [record] = loop.told()
    assert (record.summary, [e.message for e in record.errors]) == (
        "The browser died.",
        ["mcp__browser__open: Connection closed"],
    )


DYING = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        sys.exit(1)
    print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": {}}), flush=True)
"""


@pytest.mark.parametrize("fixture", ["mcp_crash.jsonl", "mcp_garbage.jsonl"])
def test_a_server_that_never_came_up_is_told_and_the_run_recorded(loop: Loop, fixture: str) -> None:
    loop(replay(fixture), max_iterations=1)
    [ended] = loop.facts("ended")
    assert ended["mcp_failed"] == ["feature-memory"]
    [record] = loop.told()
    assert record.summary.startswith("Done: login implemented.")
    # The tool that is missing is told once, as the server that failed, and is no error of the work.
    assert [e.message for e in record.errors if "search_feature_memory" in e.message] == []
    assert record.cost_usd == 0.072


def test_a_server_of_ours_that_failed_is_shown_with_how_to_see_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    run(["run", "--max-iterations", "1", "--agent", replay("mcp_missing.jsonl")])
    told = "MCP failed: feature-memory (to see why, run: ralph mcp --feature=auth)\n"
    assert told in capsys.readouterr().out
