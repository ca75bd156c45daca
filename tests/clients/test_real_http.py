"""Real clients speak to a team's server over HTTP: Claude Code, Codex, the Inspector, the SDK."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from anyio.from_thread import start_blocking_portal
from clients import FEATURES, TASKS, World, client, ralph, worlds
from codex import Codex
from looping import eventually, planned
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from scripted_model import Call, Run, ScriptedModel, Step
from teaming import ServerProcess, serving

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

FACT = "The csv module writes None as an empty cell."
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "world").mkdir()
    yield from worlds(tmp_path / "world")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with one note, outside of the clients' world."""
    root = planned(tmp_path / "there" / "articles", FEATURES, TASKS)
    with serving(root, tmp_path / "server-home") as running:
        with running.memory() as memory:
            memory.remember(FACT)
        yield running


@pytest.fixture
def folder(world: World) -> Path:
    """A folder of somebody else, without a project."""
    found = world.folder / "here"
    found.mkdir()
    return found


def test_claude_code_searches_and_its_hooks_save_there(
    world: World, folder: Path, server: ServerProcess
) -> None:
    claude = client("claude")
    world.environ |= {"RALPH_TOKEN": server.token("write"), "RALPH_HOOK_TIMEOUT_S": "60"}
    world.run(ralph("hooks", "install", "--server", server.address), cwd=folder)
    # What a person answers when Claude Code asks whether it may use the project's servers.
    local = folder / ".claude" / "settings.local.json"
    local.write_text(json.dumps({"enableAllProjectMcpServers": True}), encoding="utf-8")
    tool = "mcp__ralph-memory__search_memory"
    script = Run(steps=(Step(calls=(Call(tool, {"query": "csv None cell"}),)), Step(text="Seen.")))
    asked = "What do we know of the csv module?"
    with ScriptedModel(script) as model:
        world.talk_to(model.url)
        world.run([claude, "-p", "--allowedTools", tool, "--", asked], cwd=folder)
    first, second = model.asked(0)
    assert tool in first.tools
    assert FACT in second.results[-1]
    with server.memory() as memory:
        [state] = memory.conversations.list()
        [exchange] = memory.conversations.exchanges(state.conversation.id)
        assert (exchange.user, exchange.assistant) == (asked, "Seen.")


def test_claude_code_is_refused_with_a_token_that_was_revoked(
    world: World, folder: Path, server: ServerProcess
) -> None:
    world.environ["RALPH_TOKEN"] = server.token("write")
    world.run(ralph("hooks", "install", "--no-mcp", "--server", server.address), cwd=folder)
    server.tokens().revoke("client")
    header = {"Authorization": "Bearer ${RALPH_TOKEN}"}
    entry = {"type": "http", "url": f"{server.address}/mcp", "headers": header}
    config = world.folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"ralph-memory": entry}}), encoding="utf-8")
    with ScriptedModel(Run(steps=(Step(text="There is no memory."),))) as model:
        world.talk_to(model.url)
        words = ["-p", "--mcp-config", str(config), "--strict-mcp-config", "--", "What is known?"]
        world.run([client("claude"), *words], cwd=folder)
    assert not any("ralph-memory" in name for name in model.asked(0)[0].tools)


def test_codex_searches_there(codex: Codex, server: ServerProcess) -> None:
    """Codex has a network of its own here, so the server is brought into it by a socket."""
    world = codex.world
    folder = world.folder / "here"
    folder.mkdir()
    world.environ["RALPH_TOKEN"] = server.token("write")
    world.run(ralph("hooks", "install", "--agent", "codex", "--server", server.address), cwd=folder)
    with (world.home / ".codex" / "config.toml").open("a", encoding="utf-8") as file:
        file.write(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    find = Call("mcp__ralph_memory.search_memory", {"query": "csv None cell"})
    script = Run(steps=(Step(calls=(find,)), Step(text="Seen.")))
    port = server.address.partition("://")[2].partition("/")[0].rpartition(":")[2]
    words = [client("codex"), "exec", "--json", "--skip-git-repo-check", "What of the csv?"]
    with bridged(world.folder / "bridge", int(port)) as bridge:
        world.run([*codex.playing(script), *bridge, *words], cwd=folder)
    assert FACT in codex.asked(0)[1].results[-1]


@contextlib.contextmanager
def bridged(path: Path, port: int) -> Iterator[list[str]]:
    """The beginning of a command line whose program finds this port of ours at its own loopback.

    A socket of the file system leads out of a network namespace.
    """
    outside, inside = (
        [sys.executable, str(Path(__file__).parents[1] / "helpers" / "bridging.py"), *words]
        for words in (["out", str(path), str(port)], ["in", str(path), str(port)])
    )
    with subprocess.Popen(outside) as process:
        try:
            assert eventually(path.exists)
            yield inside
        finally:
            process.kill()


@ERAS
def test_the_inspector_lists_and_calls_a_tool(
    world: World, folder: Path, server: ServerProcess, era: str
) -> None:
    def ask(token: str, *words: str) -> dict[str, Any]:
        said = world.run(
            [
                *(client("mcp-inspector"), "--cli", f"{server.address}/mcp"),
                *("--transport", "http", "--header", f"Authorization: Bearer {token}"),
                *("--method", *words),
                *("--format", "json", "--protocol-era", era, "--connect-timeout", "120000"),
            ],
            cwd=folder,
        ).stdout
        result: dict[str, Any] = json.loads(said)["result"]
        return result

    names = {
        right: {tool["name"] for tool in ask(server.token(right), "tools/list")["tools"]}
        for right in ("write", "read")
    }
    assert {"search_memory", "remember", "update_task"} <= names["write"]
    assert names["read"] == names["write"] - {
        *("remember", "update_task", "append_learning", "update_feature")
    }
    given = json.dumps({"query": "csv None cell"})
    words = ("tools/call", "--tool-name", "search_memory", "--tool-args-json", given)
    [content] = ask(server.token("read"), *words)["content"]
    assert FACT in content["text"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_s_own_client_speaks_both_eras(server: ServerProcess, mode: str) -> None:
    async def use() -> str:
        headers = {"Authorization": f"Bearer {server.token('write')}"}
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(f"{server.address}/mcp", http_client=http)
            async with Client(transport, mode=mode) as session:
                names = [tool.name for tool in (await session.list_tools()).tools]
                assert "search_memory" in names
                saved = await session.call_tool("remember", {"text": "Exports go out at six."})
                assert not saved.is_error
                found = await session.call_tool("search_memory", {"query": "csv None cell"})
                [content] = found.content
                assert isinstance(content, types.TextContent)
                return content.text

    with start_blocking_portal() as portal:
        assert FACT in portal.call(use)
    with server.memory() as memory:
        assert memory.search("when do exports go out?")


def test_the_sdk_s_own_client_is_refused_without_a_token(server: ServerProcess) -> None:
    async def use() -> None:
        async with Client(streamable_http_client(f"{server.address}/mcp")) as session:
            await session.list_tools()

    with start_blocking_portal() as portal, pytest.raises(BaseExceptionGroup) as caught:
        portal.call(use)
    assert "401" in "".join(traceback.format_exception(caught.value))
