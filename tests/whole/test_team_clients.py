"""A team's server as the people use it: hooks, commands and the loop on machines of their own."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commanding import Line
from hooking import Session, hook, log
from looping import DONE, planned, scripted
from teaming import ServerProcess, serving

from ralph.loop.agent import ralph_server
from ralph.memory.outbox import Outbox
from ralph.memory.project import Project
from ralph.memory.remote import open_server
from ralph.memory.servers import FILE, find_login, server_folders
from ralph.records.iteration import FileTouched, Iteration

if sys.platform == "win32":
    pytest.skip("processes are killed as they are on POSIX", allow_module_level=True)

ASKED = "Why does the checkout drop the parcels' numbers?"
ANSWER = "The sequence is read before the transaction commits."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(planned(tmp_path / "there" / "shop"), tmp_path / "server-home") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on another machine, without a project."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(capsys, monkeypatch)


def install(
    server: ServerProcess, line: Line, patch: pytest.MonkeyPatch, token: str | None = None
) -> str:
    """Set the hooks up in this folder; afterwards no environment has the token."""
    secret = token or server.token("write")
    with patch.context() as within:
        within.setenv("RALPH_TOKEN", secret)
        line.well("hooks", "install", "--server", server.address)
    return secret


def hold(session: Session, asked: str = ASKED, answer: str = ANSWER) -> str:
    """One exchange of a session, with the hooks that a client calls; gives what the prompt got."""
    told = session.hook("user-prompt-submit", prompt=asked).context
    session.prompts(asked)
    session.says(answer)
    session.hook("stop")
    return told


def said(server: ServerProcess) -> list[str]:
    """Every answer that the server has."""
    with server.memory() as ralph:
        talks = ralph.conversations
        return [
            one.assistant
            for state in talks.list()
            for one in talks.exchanges(state.conversation.id)
        ]


def done(server: ServerProcess, feature: str) -> list[Iteration]:
    """Every iteration that the server has."""
    with server.memory() as ralph:
        return [one for _, one in ralph.feature(feature).iterations()]


def outbox(server: ServerProcess, home: Path) -> Outbox:
    return waiting_at(home, server.address)


def waiting_at(home: Path, address: str) -> Outbox:
    """What waits for a server under the token that is used now."""
    login = find_login(home, home, given=address)
    assert login is not None
    return Outbox(home, *login)


# -- as a person does it


def test_a_session_in_another_folder_is_found_over_the_server(
    server: ServerProcess,
    folder: Path,
    home: Path,
    tmp_path: Path,
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = install(server, line, monkeypatch)
    session = Session(folder, tmp_path)
    session.hook("session-start", source="startup")
    hold(session)
    session.hook("session-end")
    assert said(server) == [ANSWER]
    # In the folder and below it, and with the address from anywhere.
    (folder / "src").mkdir()
    monkeypatch.chdir(folder / "src")
    [hit] = line.well("search", "parcels numbers checkout", "--json").json
    assert hit["record"]["assistant"] == ANSWER
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RALPH_TOKEN", secret)
    again = line.well("--server", server.address, "search", "parcels numbers checkout", "--json")
    assert [one["id"] for one in again.json] == [hit["id"]]
    monkeypatch.setenv("RALPH_SERVER", server.address)
    assert ANSWER in line.well("show", hit["id"]).out
    # Nothing of it is in this machine's own memory, and the token only in its owner's file.
    assert not (home / "journal").exists()
    assert not (folder / ".ralph").exists()
    holders = [file for file in (*home.rglob("*"), *folder.rglob("*")) if file.is_file()]
    holders = [file for file in holders if secret.encode() in file.read_bytes()]
    assert holders == [home / FILE]
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600


def test_what_one_person_said_another_ones_session_is_told(
    server: ServerProcess, folder: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(server, line, monkeypatch)
    with server.memory() as ralph:
        talk = ralph.conversations.start("Parcels")
        changed = (FileTouched("shop/checkout.py", "modified"),)
        ralph.conversations.exchange(talk, user=ASKED, assistant=ANSWER, files_touched=changed)
        error = "psycopg.errors.LockNotAvailable: canceling statement due to lock timeout"
        solved = {"message": error, "resolution": "Added SKIP LOCKED to the query."}
        ralph.feature("auth").remember({"summary": "Locks.", "errors": [solved]})
    session = Session(folder, tmp_path)
    begun = session.hook("session-start", source="startup").context
    assert "Parcels" in begun
    assert ANSWER in session.hook("user-prompt-submit", prompt=ASKED).context
    told = session.hook(
        "post-tool-use-failure",
        tool_name="Bash",
        tool_input={"command": "pytest"},
        error=f"Exit code 1\n{error}",
    )
    assert "SKIP LOCKED" in told.context


# -- the server is away


def test_what_hooks_capture_while_the_server_is_away_arrives_later_once(
    server: ServerProcess,
    folder: Path,
    home: Path,
    tmp_path: Path,
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(server, line, monkeypatch)
    first, second = Session(folder, tmp_path), Session(folder, tmp_path)
    hold(first, "How are parcels numbered?", "By a sequence.")
    server.kill()
    hold(first, "And who resets the sequence?", "Nobody does.")
    hold(second, "Why do letters have no number?", "They are not tracked.")
    assert len(outbox(server, home).calls()) == 2
    assert any("not reachable" in one and "saved on this machine" in one for one in log(folder))
    # A capture that is killed before it is noted is made again: the same exchange twice.
    call = outbox(server, home).calls()[0]
    outbox(server, home).keep(call.path, call.body)
    server.start()
    hold(second, "Where are letters counted?", "In the post room.")
    assert not outbox(server, home).holds
    assert sorted(said(server)) == [
        "By a sequence.",
        "In the post room.",
        "Nobody does.",
        "They are not tracked.",
    ]


def test_a_command_delivers_what_waits_and_says_what_it_cannot(
    server: ServerProcess,
    folder: Path,
    home: Path,
    tmp_path: Path,
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(server, line, monkeypatch)
    server.kill()
    hold(Session(folder, tmp_path))
    ran = line("search", "parcels numbers checkout")
    assert ran.code == 1
    waits, error = ran.err.splitlines()
    assert "not on the server yet: 1 record" in waits
    assert "not reachable" in error
    kept = line.well("remember", "Parcels", "go", "out", "at", "six.")
    assert "saved on this machine" in kept.err
    record = {"feature": "auth", "summary": "Parcels have a form now."}
    [saved] = line.well("record", "-", "--json", stdin=json.dumps(record)).json
    assert saved["iteration_number"] == 1
    # As after an answer that was lost: everything twice.
    for call in outbox(server, home).calls():
        outbox(server, home).keep(call.path, call.body)
    server.start()
    hits = line.well("search", "parcels", "--json").json
    assert sorted(hit["kind"] for hit in hits) == ["exchange", "iteration", "note"]
    assert not outbox(server, home).holds
    assert (len(said(server)), len(done(server, "auth"))) == (1, 1)


def test_a_revoked_token_loses_nothing_and_is_named(
    server: ServerProcess,
    folder: Path,
    home: Path,
    tmp_path: Path,
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(server, line, monkeypatch)
    session = Session(folder, tmp_path)
    hold(session, "How are parcels numbered?", "By a sequence.")
    server.tokens().revoke("client")
    hold(session, "And who resets the sequence?", "Nobody does.")
    assert any("token is not valid" in one for one in log(folder))
    ran = line("recent")
    assert ran.code == 1
    assert "token is not valid" in ran.err
    assert "RALPH_TOKEN" in ran.err
    assert line("remember", "By nobody.").code == 1
    install(server, line, monkeypatch, server.token("write"))
    assert len(line.well("recent", "--kind", "conversation", "--json").json) == 2
    assert sorted(said(server)) == ["By a sequence.", "Nobody does."]
    assert not outbox(server, home).holds


def test_a_hook_waits_for_a_server_no_longer_than_it_may(
    folder: Path, home: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes connections and says nothing."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/projects/shop"
        monkeypatch.setattr("ralph.memory.remote.TIMEOUT_S", 0.2)
        monkeypatch.setenv("RALPH_TOKEN", "ralph_x")
        assert "set up without checking" in line.well("hooks", "install", "--server", address).err
        session = Session(folder, tmp_path)
        session.prompts(ASKED)
        session.says(ANSWER)
        limits = {"RALPH_HOOK_TIMEOUT_S": "4"}
        assert session.hook("user-prompt-submit", environ=limits, prompt=ASKED).out == ""
        session.hook("stop", environ=limits)
        # It ended by itself: nothing was left undone, and what it captured is on disk.
        assert not any("undone" in one for one in log(folder))
        [call] = waiting_at(home, address).calls()
        assert call.body[0]["exchanges"][0]["assistant"] == ANSWER


# -- the loop


def test_the_loop_saves_to_the_server_and_takes_from_it(
    server: ServerProcess, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = planned(tmp_path / "checkout")
    monkeypatch.chdir(root)
    monkeypatch.setenv("RALPH_TOKEN", server.token("orchestrator"))
    with server.memory() as ralph:
        failed = {"task_id": 1, "summary": "The form lost its token.", "outcome": "failure"}
        ralph.feature("auth").remember(failed)
    seen = tmp_path / "seen.txt"
    asks = f'ralph search "form lost its token" > {seen} 2>&1; env > {seen}.env'
    agent = scripted(tmp_path, {"steps": [{"bash": asks}, DONE, {"say": "Done."}]})
    words = ("run", "--json", "--agent", agent, "--max-iterations", "1")
    ran = line.well("--server", server.address, *words)
    events = [json.loads(one) for one in ran.out.splitlines()]
    assert [one["outcome"] for one in events if one["event"] == "ended"] == ["success"]
    assert [one.outcome for one in done(server, "auth")] == ["failure", "success"]
    assert [one["iteration"] for one in events if one["event"] == "ended"] == [2]
    assert not list((root / ".ralph" / "db" / "memory").glob("*.jsonl"))
    # The agent's own call asked the server; the plan is the checkout's; it has no token.
    assert "The form lost its token." in seen.read_text()
    assert os.environ["RALPH_TOKEN"] not in Path(f"{seen}.env").read_text()
    # Its tools are told where to ask; the token they find in Ralph's home.
    there = open_server(Project(root), given=server.address)
    assert there is not None
    entry = ralph_server(there, root)
    assert entry["env"]["RALPH_SERVER"] == server.address
    assert os.environ["RALPH_TOKEN"] not in json.dumps(entry)


def run_once(line: Line, folder: Path, steps: list[dict[str, Any]]) -> None:
    """One iteration of an agent that takes these steps; it succeeds."""
    agent = scripted(folder, {"steps": steps})
    ran = line.well("run", "--json", "--agent", agent, "--max-iterations", "1")
    [ended] = [one for one in map(json.loads, ran.out.splitlines()) if one["event"] == "ended"]
    assert ended["outcome"] == "success", ended["summary"]


def test_a_loop_in_a_bound_folder_gives_its_agent_the_server_s_memory(
    server: ServerProcess, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = planned(tmp_path / "checkout")
    monkeypatch.chdir(root)
    install(server, line, monkeypatch)
    with server.memory() as ralph:
        ralph.feature("auth").remember({"summary": "The form lost its token."})
        ralph.feature("search").remember({"summary": "The form of the search lost its token."})
    ask = {"query": "form lost its token"}
    steps: list[dict[str, Any]] = [
        {"mcp": "search_feature_memory", "args": ask, "expect": "1 record"},
        {"mcp": "remember", "args": {"text": "Tokens are kept in the form."}, "expect": "Saved"},
        {"bash": "{{ralph}} search 'form lost its token'", "expect": "The form lost its token"},
        DONE,
        {"say": "Done."},
    ]
    run_once(line, tmp_path, steps)
    assert len(done(server, "auth")) == 2
    with server.memory() as ralph:
        [hit] = ralph.search("where are tokens kept?", kinds=["note"])
        assert hit.record.feature == "auth"


def test_a_run_with_another_token_uses_it_for_its_tools_and_leaves_the_bound_folder_its_own(
    server: ServerProcess, home: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = planned(tmp_path / "checkout")
    monkeypatch.chdir(root)
    bound = install(server, line, monkeypatch)
    with server.memory() as ralph:
        ralph.feature("auth").remember({"summary": "The form lost its token."})
    # Only the run's token is good: neither the loop nor a tool can have used the other.
    server.tokens().revoke("client")
    monkeypatch.setenv("RALPH_SERVER", server.address)
    monkeypatch.setenv("RALPH_TOKEN", server.token("write"))
    ask = {"query": "form lost its token"}
    steps: list[dict[str, Any]] = [
        {"mcp": "search_feature_memory", "args": ask, "expect": "1 record"},
        {"bash": "{{ralph}} search 'form lost its token'", "expect": "The form lost its token"},
        DONE,
        {"say": "Done."},
    ]
    run_once(line, tmp_path, steps)
    assert len(done(server, "auth")) == 2
    for name in ("RALPH_SERVER", "RALPH_TOKEN"):
        monkeypatch.delenv(name)
    assert find_login(home, root) == (server.address, bound)
    assert find_login(home, root, given=server.address) == (server.address, bound)
    line.well("hooks", "uninstall", "--all")
    assert "ralph_" not in (home / FILE).read_text(encoding="utf-8")


def test_a_loop_whose_token_may_only_read_keeps_its_iterations_with_their_numbers(
    server: ServerProcess, home: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planned(tmp_path / "checkout"))
    monkeypatch.setenv("RALPH_SERVER", server.address)
    monkeypatch.setenv("RALPH_TOKEN", server.token("read"))
    with server.memory() as ralph:
        ralph.feature("auth").remember({"summary": "The form lost its token."})
    for number in (2, 3):
        agent = scripted(tmp_path, {"steps": [{"say": f"Attempt {number} failed."}]})
        ran = line.well("run", "--json", "--agent", agent, "--max-iterations", "1")
        [ended] = [one for one in map(json.loads, ran.out.splitlines()) if one["event"] == "ended"]
        assert ended["iteration"] == number
        assert "scope write" in ran.err
    assert len(outbox(server, home).calls()) == 2


def test_a_loop_goes_on_while_its_server_is_killed_and_nothing_is_lost_or_doubled(
    server: ServerProcess, home: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = planned(tmp_path / "checkout")
    monkeypatch.chdir(root)
    monkeypatch.setenv("RALPH_SERVER", server.address)
    monkeypatch.setenv("RALPH_TOKEN", server.token("write"))

    def run(*steps: dict[str, Any]) -> list[dict[str, Any]]:
        agent = scripted(tmp_path, {"steps": [*steps, {"say": "It is not done yet."}]})
        ran = line.well("run", "--json", "--agent", agent, "--max-iterations", "1")
        return [json.loads(one) for one in ran.out.splitlines()]

    run()
    pid = server._process.pid if server._process else 0
    # In mid-run: the agent itself kills the server.
    told = run({"bash": f"kill -9 {pid}"})
    server.kill()
    assert [one["outcome"] for one in told if one["event"] == "ended"]
    assert len(outbox(server, home).calls()) == 1
    told = run()
    [memory, *_] = [one for one in told if one["event"] == "memory"]
    assert not memory["available"]
    assert len(outbox(server, home).calls()) == 2
    # As after an answer that was lost: the same iteration twice.
    call = outbox(server, home).calls()[0]
    outbox(server, home).keep(call.path, call.body)
    server.start()
    run()
    assert not outbox(server, home).holds
    found = done(server, "auth")
    assert [one.iteration_number for one in found] == [1, 2, 3, 4]
    assert len({one.timestamp for one in found}) == 4


# -- a stranger's clone


def test_a_clone_names_no_server_and_gets_no_token(
    server: ServerProcess, folder: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(server, line, monkeypatch)
    clone = planned(tmp_path / "clone")
    evil = "http://127.0.0.1:9/projects/evil"
    settings = {"server": evil, "token": "x", "journal_url": evil}
    (clone / ".ralph" / "rag_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (clone / ".ralph" / FILE).write_text(json.dumps({"folders": {str(clone): evil}, "tokens": {}}))
    monkeypatch.chdir(clone)
    assert line("recent").code == 1  # the settings are refused
    session = Session(clone, tmp_path)
    hold(session)
    assert said(server) == []
    # A saved token goes to its own server alone.
    refused = line("--server", evil, "recent")
    assert "needs a token" in refused.err
    assert str(clone) not in server_folders(os.environ["RALPH_HOME"])


def test_a_list_of_servers_that_cannot_be_read_shows_no_token(
    home: Path, folder: Path, line: Line
) -> None:
    home.mkdir()
    (home / FILE).write_text('{"tokens": {"x": "ralph_secret"', encoding="utf-8")
    ran = line("recent")
    assert ran.code == 1
    assert "list of servers" in ran.complaint
    assert "ralph_secret" not in ran.err
    hook("session-start", {"cwd": str(folder), "session_id": "s"}, cwd=folder)
