"""Starting an agent: its command, its environment, its prompt, its output and its exit."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from looping import lines
from snapshotting import same_as_snapshot

from ralph.clients import (
    AgentCall,
    agent_command,
    agent_environment,
    agent_variables,
    found_command,
    own_command,
)
from ralph.errors import BadInput
from ralph.loop.process import AgentEnd, AgentProcess
from ralph.programs import find_program

OURS = str(Path(sys.executable).parent)
SERVERS: dict[str, dict[str, Any]] = {
    "own": {
        "command": "${BROWSER}",
        "args": ["--key", "s3cret", "${PROFILE:-none}"],
        "env": {"KEY": "s3cret"},
    },
    "far": {
        "type": "http",
        "url": "http://127.0.0.1:1/mcp",
        "headers": {"Authorization": "Bearer s3cret", "X-Token": "${TOKEN}"},
    },
}


def ran(command: list[str], folder: Path, *, prompt: bytes = b"", **given: str) -> AgentEnd:
    """The command run to its end."""
    with AgentProcess(
        command,
        prompt=prompt,
        folder=folder,
        cwd=folder,
        env=agent_environment(given=given),
        grace_s=0.5,
    ) as process:
        return process.wait(timeout_s=600, on_tick=lambda: True)


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


# -- the run


def test_a_prompt_of_a_megabyte_arrives_whole_on_standard_input(folder: Path) -> None:
    prompt = ("Prompt \u2014 caf\u00e9 \U0001f40d\n" * 60_000).encode()[: 1 << 20]
    code = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    ended = ran([sys.executable, "-S", "-c", code], folder, prompt=prompt)
    assert ended.exit_code == 0
    assert lines(folder / "output.jsonl") == [hashlib.sha256(prompt).hexdigest()]


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -signal.SIGTERM)],
)
def test_the_exit_code_or_the_signal_is_told(folder: Path, script: str, code: int) -> None:
    ended = ran(sh(script), folder)
    assert (ended.exit_code, ended.timed_out, ended.interrupted) == (code, False, False)


def test_the_agent_begins_with_no_signal_ignored(folder: Path) -> None:
    ended = ran(sh("kill -INT $$; kill -HUP $$; echo both are ignored"), folder)
    assert ended.exit_code == -signal.SIGINT
    assert lines(folder / "output.jsonl") == []


def test_what_it_says_on_stderr_is_told_apart_from_its_output(folder: Path) -> None:
    ended = ran(sh("echo out; echo 'Error: no credit' >&2; exit 1"), folder)
    assert ended.stderr == "Error: no credit"
    assert lines(folder / "output.jsonl") == ["out"]


def test_only_the_end_of_a_long_stderr_is_kept(folder: Path) -> None:
    ended = ran([sys.executable, "-S", "-c", "import sys; sys.stderr.write('x' * 90_000)"], folder)
    assert ended.stderr == "x" * 4000


def test_it_works_in_the_folder_it_is_given(folder: Path) -> None:
    ran(sh("pwd -P"), folder)
    assert lines(folder / "output.jsonl") == [str(folder.resolve())]


def test_a_program_that_cannot_be_executed_is_refused_with_the_reason(folder: Path) -> None:
    broken = folder / "agent"
    broken.write_text("no program at all")
    broken.chmod(0o755)
    with pytest.raises(BadInput, match=r"cannot be started: Exec format error.*--agent"):
        ran([str(broken)], folder)


# -- the command


def test_the_commands_of_the_agents_we_know() -> None:
    full = AgentCall(model="strong", mcp_config=Path("/run/mcp.json"), mcp_servers=SERVERS)
    shown = [
        _here(shlex.join(agent_command(agent, call)))
        for agent in ("claude", "codex", "gemini", "opencode", "my-agent --fast 'two words'")
        for call in (AgentCall(), full)
    ]
    assert same_as_snapshot("agent_commands", "\n".join(shown) + "\n")


def _here(command: str) -> str:
    """The command as it would be on any machine."""
    return command.replace(sys.executable, "PYTHON")


def test_nothing_secret_of_a_server_is_on_the_command_line_of_codex() -> None:
    call = AgentCall(mcp_config=Path("/run/mcp.json"), mcp_servers=SERVERS)
    words = " ".join(agent_command("codex", call))
    assert "s3cret" not in words
    assert agent_variables("codex", call, {"TOKEN": "from outside"}) == {
        "RALPH_MCP_CONFIG": "/run/mcp.json",
        "MCP_HEADER_1": "Bearer s3cret",
        "MCP_HEADER_2": "from outside",
    }


def test_opencode_gets_its_servers_as_settings_of_one_run() -> None:
    call = AgentCall(mcp_config=Path("/run/mcp.json"), mcp_servers=SERVERS)
    found = agent_variables("opencode", call, {})
    servers = json.loads(found["OPENCODE_CONFIG_CONTENT"])["mcp"]
    assert servers.keys() == SERVERS.keys()
    for name, server in servers.items():
        assert server["enabled"] is True
        assert "${" not in json.dumps(server)
        if "url" in SERVERS[name]:
            assert (server["type"], server["url"]) == ("remote", SERVERS[name]["url"])
        else:
            words = [SERVERS[name]["command"], *SERVERS[name].get("args", [])]
            assert (server["type"], len(server["command"])) == ("local", len(words))


def test_what_codex_is_told_is_toml() -> None:
    odd = {"url": 'http://host/"\\\t', "headers": {"X-Odd \u00e9": "1", "X-2": "2"}}
    call = AgentCall(mcp_config=Path("/run/it's.json"), mcp_servers={"odd": odd, **SERVERS})
    words = agent_command("codex", call)
    told = [word for before, word in itertools.pairwise(words) if before == "-c"]
    plain = tomllib.loads("\n".join(told))
    assert plain["mcp_servers"]["odd"] == {
        "url": odd["url"],
        "env_http_headers": {"X-Odd \u00e9": "MCP_HEADER_1", "X-2": "MCP_HEADER_2"},
        "enabled": True,
        "default_tools_approval_mode": "approve",
    }
    assert plain["mcp_servers"]["own"]["args"][-2:] == ["/run/it's.json", "own"]
    assert plain["mcp_servers"]["own"]["env_vars"] == ["BROWSER", "PROFILE"]


def test_a_header_whose_variable_is_not_there_is_refused_with_what_to_do() -> None:
    call = AgentCall(mcp_config=Path("/run/mcp.json"), mcp_servers=SERVERS)
    with pytest.raises(BadInput, match=r"X-Token of the MCP server far needs TOKEN.*agent_env"):
        agent_variables("codex", call, {})


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_command_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="command is empty"):
        agent_command(text, AgentCall())


def test_a_command_with_an_open_quote_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadInput, match="Close the quotes"):
        agent_command("agent 'half", AgentCall())


def test_a_command_that_is_not_there_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadInput, match=r"'no-such-agent' was not found.*--agent"):
        found_command(["no-such-agent"], {"PATH": os.defpath})


def test_a_command_that_is_not_executable_is_refused_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(BadInput, match=r"is not executable. Run: chmod \+x"):
        found_command([str(script)], {"PATH": os.defpath})


def test_a_relative_command_is_the_one_seen_from_where_ralph_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    found = found_command(["./agent.sh", "--x"], {"PATH": os.defpath})
    assert found == [str(tmp_path / "agent.sh"), "--x"]


@pytest.mark.parametrize("entry", ["{root}", "{root}/bin", ".", "", "bin", "{root}/../clone/bin"])
def test_a_program_of_the_project_is_never_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    root = tmp_path / "clone"
    for folder in (root, root / "bin", tmp_path / "outside"):
        folder.mkdir(exist_ok=True)
        for name in ("claude", "git"):
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
    monkeypatch.chdir(root)
    path = os.pathsep.join([entry.format(root=root), str(tmp_path / "outside")])

    found = found_command(["claude", "-p"], {"PATH": path}, root=root)

    assert found == [str(tmp_path / "outside" / "claude"), "-p"]
    with pytest.raises(BadInput, match="One inside the project needs its path"):
        found_command(["claude"], {"PATH": entry.format(root=root)}, root=root)
    # Where nobody says which project it is, the one around the current folder counts.
    (root / ".git").mkdir()
    assert find_program("git", path=path) == str(tmp_path / "outside" / "git")


def test_relative_folders_on_the_path_do_not_reach_an_agent(tmp_path: Path) -> None:
    passed = agent_environment(environ={"PATH": f".:bin::{tmp_path}:./x"})
    assert passed["PATH"].split(os.pathsep) == [str(tmp_path), OURS]


def test_a_home_that_is_a_project_keeps_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".git").mkdir()
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert find_program("claude", path=str(tmp_path)) == str(tmp_path / "claude")


# -- a server of the config file


def served(folder: Path, entry: dict[str, Any], **environ: str) -> subprocess.CompletedProcess[str]:
    """What comes of starting this server as Codex would."""
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"one": entry}}), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-E", "-P", "-m", "ralph.clients.codex", str(config), "one"],
        input="asked\n",
        capture_output=True,
        text=True,
        env={"PATH": os.defpath, **environ},
        timeout=60,
        check=False,
    )


def test_a_server_gets_its_words_its_environment_and_the_pipes(tmp_path: Path) -> None:
    entry = {
        "command": "sh",
        "args": ["-c", 'read line; echo "$line $0 $KEY $FROM"', "${WORD:-a word}"],
        "env": {"KEY": "s3cret", "FROM": "${OUTSIDE}"},
    }
    ran = served(tmp_path, entry, OUTSIDE="from outside")
    assert (ran.returncode, ran.stdout) == (0, "asked a word s3cret from outside\n")
    assert served(tmp_path, entry, OUTSIDE="", WORD="mine").stdout == "asked mine s3cret \n"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "no-such-server"}, "the command 'no-such-server' of the MCP server one"),
        ({"command": "sh", "args": ["${NOWHERE}"]}, "the MCP server one lacks NOWHERE"),
        ({"args": []}, "the MCP server one lacks command"),
    ],
)
def test_a_server_that_cannot_be_started_says_why(
    tmp_path: Path, entry: dict[str, Any], said: str
) -> None:
    ran = served(tmp_path, entry)
    assert ran.returncode == 1
    assert said in ran.stderr


# -- the environment


def test_a_secret_of_another_service_is_not_passed_on() -> None:
    environ = {"FAKE_SERVICE_SECRET": "s3cret", "HOME": "/home/me", "ANTHROPIC_API_KEY": "key"}
    passed = agent_environment(environ=environ)
    assert passed.keys() == {"HOME", "ANTHROPIC_API_KEY", "PATH"}


def test_names_and_patterns_in_the_setting_are_passed_on() -> None:
    environ = {"FAKE_SERVICE_SECRET": "s3cret", "AWS_REGION": "here", "AWS_PROFILE": "mine"}
    passed = agent_environment(also=("AWS_*",), environ=environ)
    assert {name for name in passed if name != "PATH"} == {"AWS_REGION", "AWS_PROFILE"}


def test_what_is_given_wins_over_what_is_inherited() -> None:
    passed = agent_environment(environ={"RALPH_TASK": "old"}, given={"RALPH_TASK": "7"})
    assert passed["RALPH_TASK"] == "7"


def test_the_agent_finds_our_ralph_and_still_its_own_python_first(tmp_path: Path) -> None:
    passed = agent_environment(environ={"PATH": f"{tmp_path}{os.pathsep}/usr/bin"})
    assert passed["PATH"].split(os.pathsep) == [str(tmp_path), "/usr/bin", OURS]


def test_another_ralph_on_the_path_does_not_come_before_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ralph").write_text("#!/bin/sh\n")
        (tmp_path / name / "ralph").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours" / "python"))
    passed = agent_environment(environ={"PATH": str(tmp_path / "other")})
    assert passed["PATH"].split(os.pathsep)[0] == str(tmp_path / "ours")
    assert own_command(passed) == own_command(passed, agent="claude") == "ralph"
    # A login shell, in which Codex runs commands, may not find it by its name.
    assert own_command(passed, agent="codex") == str(tmp_path / "ours" / "ralph")


def test_where_there_is_no_command_ralph_the_module_is_called_instead() -> None:
    python = shlex.quote(sys.executable)
    assert own_command({"PATH": "/nowhere"}) == f"{python} -E -P -m ralph"


def test_without_a_path_ours_is_the_path() -> None:
    assert agent_environment(environ={})["PATH"] == OURS


def test_the_process_sees_exactly_what_was_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SERVICE_SECRET", "s3cret")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    ran([sys.executable, "-S", "-c", code], folder, RALPH_TASK="7")
    [seen] = [json.loads(line) for line in lines(folder / "output.jsonl")]
    assert "FAKE_SERVICE_SECRET" not in seen
    assert seen["RALPH_TASK"] == "7"


def test_an_agent_never_gets_ralphs_own_keys() -> None:
    own = {"RALPH_OPENAI_API_KEY": "k", "RALPH_CHAT_API_KEY": "k", "RALPH_HOME": "/h"}
    passed = agent_environment(environ=own, also=["RALPH_*"])
    assert passed["RALPH_HOME"] == "/h"
    assert not any(name.endswith("_API_KEY") for name in passed)
