"""The MCP server as a process: both eras of the protocol, its environment, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from commanding import COOKIE, LOGIN, process
from examples import some
from looping import planned
from mcp import Client, StdioServerParameters
from serving import LEGACY, MODERN, Wire, served, wired

from ralph import disk
from ralph.doors.mcp.main import start_folder
from ralph.memory.ralph import open_ralph
from ralph.plan.store import Plan

ERAS = [LEGACY, MODERN]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = planned(tmp_path / "project")
    with open_ralph(root) as ralph:
        ralph.feature("auth").remember_all([LOGIN, COOKIE])
    return root


@pytest.mark.parametrize("era", ERAS)
def test_every_tool_can_be_called_over_stdio_in_both_eras(root: Path, era: str) -> None:
    with open_ralph(root) as ralph:
        record = ralph.feature("auth").recent(1)[0].id
    learning = Plan(root).feature("auth").learnings[2].id
    calls: dict[str, dict[str, Any]] = {
        "search_feature_memory": {"query": "session cookie"},
        "get_recent_iterations": {},
        "get_feature_files": {},
        "get_failed_attempts": {},
        "get_memory": {"id": record},
        "remember": {"text": "The gateway restarts at noon."},
        "update_task": {"status": "in_progress"},
        "append_learning": {"text": "The token expires after one hour."},
        "update_feature": {"boundaries": "None."},
        "review_learning": {"id": learning},
        "remove_learning": {"id": learning},
        "verify_feature": {},
    }
    with wired(root, "--feature", "auth", "--task", "1", "--review", era=era) as server:
        greeting = server.greet()["result"]
        assert "search_feature_memory" in greeting["instructions"]
        if era == MODERN:
            assert greeting["supportedVersions"] == [MODERN]
        else:
            assert greeting["protocolVersion"] == LEGACY
            assert greeting["serverInfo"]["name"] == "ralph"
        listed = server.ask("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in listed] == list(calls)
        for tool in listed:
            assert tool["_meta"]["anthropic/alwaysLoad"] is True
        for name, arguments in calls.items():
            result = server.ask("tools/call", {"name": name, "arguments": arguments})["result"]
            assert not result.get("isError"), (name, result)
            assert "structuredContent" not in result
        assert server.hang_up() == 0


@pytest.mark.parametrize("mode", some(["auto", "legacy"]))
def test_the_sdks_own_client_agrees_on_an_era(root: Path, mode: str, home: Path) -> None:
    words = ["-m", "ralph", "mcp", "--feature", "auth", "--project", str(root)]
    server = StdioServerParameters(
        command=sys.executable, args=words, env={"RALPH_HOME": str(home)}
    )

    async def talk() -> tuple[str, str]:
        async with Client(server, mode=mode) as client:
            result = await client.call_tool("search_feature_memory", {"query": "session cookie"})
            return client.protocol_version, result.content[0].model_dump()["text"]

    version, text = anyio.run(talk)
    assert version == (LEGACY if mode == "legacy" else MODERN)
    assert "The browser drops the session cookie." in text


def test_the_handshake_opens_neither_memory_nor_plan(root: Path) -> None:
    """Asked from inside the process, at the moment the tools have been listed."""
    code = """
import sys, json, ralph.doors.mcp.server as server
listing = server.wire_tool
def told(tool):
    heavy = ("numpy", "tokenizers", "sqlite3", "ruamel", "ralph.memory.ralph", "ralph.index",
             "ralph.plan.store", "ralph.doors.cli", "rich")
    sys.stderr.write(json.dumps([name for name in heavy if name in sys.modules]) + "\\n")
    return listing(tool)
server.wire_tool = told
from ralph.doors.mcp.main import run
sys.exit(run(["--feature", "auth"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        server = Wire(child, LEGACY)
        server.greet()
        assert len(server.ask("tools/list")["result"]["tools"]) == 9
        assert server.hang_up() == 0
        assert child.stderr is not None
        assert set(child.stderr.read().splitlines()) == {b"[]"}


# -- the environment


def test_the_agents_keys_are_dropped_before_anything_else(root: Path) -> None:
    code = (
        "import json, os, sys; from ralph.doors.mcp.main import run; code = run(['--help']); "
        "sys.stderr.write(json.dumps(dict(os.environ))); sys.exit(code)"
    )
    kept = {"RALPH_HOME": "/tmp/x", "CLAUDE_PROJECT_DIR": "/tmp/y", "LC_ALL": "C.UTF-8"}
    keys = {
        "ANTHROPIC_API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "k",
        "GITHUB_TOKEN": "k",
        "PGPASSWORD": "k",
        "OTEL_EXPORTER_OTLP_HEADERS": "k",
        "http_proxy": "http://user:k@127.0.0.1:1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **kept, **keys},
        cwd=root,
        capture_output=True,
        check=True,
    )
    left = json.loads(ran.stderr)
    assert kept.items() <= left.items()
    assert left["PATH"] == os.environ["PATH"]
    assert left["HOME"] == os.environ["HOME"]
    assert not left.keys() & keys.keys()
    others = {name for name in left if not name.endswith("_NUM_THREADS")}
    allowed = ("RALPH_", "LC_", "XDG_")
    named = {
        "PATH",
        "HOME",
        "USERPROFILE",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "CLAUDE_PROJECT_DIR",
    }
    assert {name for name in others if not name.startswith(allowed)} <= named


# -- finding the project


def test_the_project_is_found_by_option_variable_client_and_folder(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert start_folder(None) == tmp_path
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path / "client"))
    assert start_folder(None) == tmp_path / "client"
    monkeypatch.setenv("RALPH_PROJECT", str(tmp_path / "variable"))
    assert start_folder(None) == tmp_path / "variable"
    assert start_folder(str(root / "src")) == root / "src"

    inside = root / "src"
    inside.mkdir()
    with wired(tmp_path, "--feature", "auth", environ={"RALPH_PROJECT": str(inside)}) as server:
        server.greet()
        assert "Add the login form" in server.call("get_recent_iterations")
        assert server.hang_up() == 0


@pytest.mark.parametrize("mode", [["--feature", "auth"], ["--planning"]])
def test_without_a_project_it_says_so_and_ends(tmp_path: Path, mode: list[str]) -> None:
    ran = process(["mcp", *mode], cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, b"")
    [line] = ran.stderr.decode().splitlines()
    assert "no .ralph folder here or above. Run: ralph init" in line


@pytest.mark.parametrize("mode", some([["--focus"], ["--conversations"]]))
def test_a_persons_own_server_starts_without_a_project(tmp_path: Path, mode: list[str]) -> None:
    with wired(tmp_path, *mode) as server:
        server.greet()
        tools = server.ask("tools/list")["result"]["tools"]
        assert len(tools) == (0 if mode == ["--focus"] else 3)
        assert server.hang_up() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "choose exactly one mode (given: none)"),
        (["--focus", "--planning"], "(given: --planning and --focus)"),
        (["--feature", "a", "--conversations"], "(given: --feature and --conversations)"),
        (["--feature"], "expected one argument"),
        (["--feature", " "], "--feature: the name is empty"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--focus", "--review"], "--review goes with --feature only"),
        (["--planning", "--task", "1"], "--task goes with --feature only"),
        (["--focus", "--no-memory"], "--no-memory goes with --feature only"),
        (["--feature", "a", "--everywhere"], "--everywhere goes with --conversations only"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(root: Path, words: list[str], said: str) -> None:
    ran = process(["mcp", *words], cwd=root)
    assert (ran.returncode, ran.stdout) == (2, b"")
    [line] = ran.stderr.decode().splitlines()
    assert line.startswith("ralph: mcp: ")
    assert said in line


@pytest.mark.skipif(sys.platform == "win32", reason="there a process always has them")
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_anything_to_speak_on_it_says_so_and_ends(root: Path, closed: str) -> None:
    command = f'exec "$0" -m ralph mcp --feature auth {closed}'
    ran = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (
        1,
        "ralph: mcp: stdin and stdout must be open\n",
    )


def test_help_tells_the_modes(root: Path) -> None:
    ran = process(["mcp", "--help"], cwd=root)
    assert ran.returncode == 0
    for word in (b"--feature NAME", b"--conversations", b"--planning", b"--focus", b"--review"):
        assert word in ran.stdout


# -- slow calls and ends


@pytest.mark.parametrize("era", some(ERAS))
def test_while_a_call_waits_the_server_goes_on_answering(root: Path, era: str) -> None:
    lock = Plan(root).cache / "lock"
    lock.parent.mkdir(parents=True)
    with wired(root, "--feature", "auth", "--task", "1", era=era) as server:
        server.greet()
        with disk.lock(lock, timeout_s=10):
            slow = server.send(
                "tools/call", {"name": "update_task", "arguments": {"status": "done"}}
            )
            quick = server.send("tools/list" if era == MODERN else "ping")
            assert server.receive()["id"] == quick
        answer = server.receive()
        assert answer["id"] == slow
        assert "is done" in answer["result"]["content"][0]["text"]
        assert server.hang_up() == 0


def test_a_closed_stdin_ends_it_though_a_call_still_waits(root: Path) -> None:
    lock = Plan(root).cache / "lock"
    lock.parent.mkdir(parents=True)
    before = Plan(root).raw("tasks")
    with (
        disk.lock(lock, timeout_s=10),
        wired(root, "--feature", "auth", "--task", "1") as server,
    ):
        server.greet()
        server.send("tools/call", {"name": "update_task", "arguments": {"status": "done"}})
        assert server.ask("ping")["result"] is not None
        assert server.hang_up() == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == b""
    assert Plan(root).raw("tasks") == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("name", some(["SIGTERM", "SIGKILL", "SIGINT"]))
def test_a_signal_in_mid_call_ends_it_and_spoils_nothing(root: Path, name: str) -> None:
    lock = Plan(root).cache / "lock"
    lock.parent.mkdir(parents=True)
    with wired(root, "--feature", "auth", "--task", "1") as server:
        server.greet()
        server.call("search_feature_memory", query="session cookie")
        with disk.lock(lock, timeout_s=10):
            server.send("tools/call", {"name": "update_task", "arguments": {"status": "done"}})
            assert server.ask("ping")["result"] is not None
            server.process.send_signal(signal.Signals[name])
            assert server.process.wait(timeout=60) == -signal.Signals[name]
    left = {file.name for file in (root / ".ralph").rglob("*.tmp")}
    assert left == set()
    with served(root, "--feature", "auth", "--task", "1") as again:
        assert "session cookie" in again.told("search_feature_memory", query="session cookie")
        assert "is done" in again.told("update_task", status="done")


def test_lines_that_are_no_messages_are_stepped_over(root: Path) -> None:
    with wired(root, "--feature", "auth") as server:
        server.greet()
        assert server.process.stdin is not None
        server.process.stdin.write(b'not json\n{"jsonrpc": "2.0"}\n\xff\xfe\n[]\n')
        server.process.stdin.flush()
        assert "Add the login form" in server.call("get_recent_iterations")
        assert server.hang_up() == 0


# -- a project that cannot be written


def test_a_read_only_project_is_searched_and_its_writes_are_refused(root: Path, home: Path) -> None:
    probe = subprocess.run(
        ["unshare", "-m", "true"] if sys.platform == "linux" else ["false"],
        capture_output=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip("only root on Linux can make a world of its own to mount in")
    script = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'
    )
    prefix = ("unshare", "-m", "sh", "-c", script, "sh", str(root))
    before = Plan(root).raw("tasks"), Plan(root).raw("features")
    kept = Plan(root).feature("auth").boundaries
    with wired(root, "--feature", "auth", "--task", "1", prefix=prefix) as server:
        server.greet()
        assert "drops the session" in server.call("search_feature_memory", query="session cookie")
        for name, arguments in {
            "update_task": {"status": "done"},
            "append_learning": {"text": "The token expires after one hour."},
            "update_feature": {"boundaries": f"{kept} No OAuth."},
        }.items():
            given = {"name": name, "arguments": arguments}
            result = server.ask("tools/call", given)["result"]
            assert result["isError"] is True
            assert "Read-only file system" in result["content"][0]["text"]
        assert "Add the login form" in server.call("get_recent_iterations")
        assert server.hang_up() == 0
    assert (Plan(root).raw("tasks"), Plan(root).raw("features")) == before
