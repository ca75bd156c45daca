"""The command line with a project on a server: what works there, and what says that it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import lived_in
from commanding import Line
from teaming import ServerProcess, serving

from ralph.config import home_folder
from ralph.doors.cli.main import COMMANDS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("server-home")
        patch.setenv("RALPH_HOME", str(home))
        root = lived_in(tmp_path_factory.mktemp("there") / "shop")
        with serving(root, home) as running:
            yield running


@pytest.fixture
def line(
    server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Line:
    """The command line on a machine without the project, with a token for everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RALPH_SERVER", server.address)
    monkeypatch.setenv("RALPH_TOKEN", server.token("admin"))
    return Line(capsys, monkeypatch)


def test_what_is_saved_is_found_shown_listed_and_forgotten(
    line: Line, server: ServerProcess, tmp_path: Path
) -> None:
    note = line.well("remember", "The crane is serviced in May.", "--json").json
    assert (note["fresh"], note["private"], note["by"]) == (True, False, "human")
    record = {"feature": "auth", "task_title": "Grease the crane", "outcome": "failure"}
    [saved] = line.well("record", "-", "--json", stdin=json.dumps(record)).json
    for words in (["search", "service of the crane"], ["recent"], ["log"]):
        ids = [hit["id"] for hit in line.well(*words, "--json").json]
        assert {note["id"], saved["id"]} <= set(ids), words
    assert "Grease the crane" in line.well("show", saved["id"]).out
    assert "Grease the crane" in line.well("failures").out
    assert "Grease the crane" in line.well("failures", "--feature", "auth").out
    assert line.well("files", "--feature", "auth").out == line.well("files").out
    narrowed = line.well("search", "crane", "--kind", "note", "--limit", "1", "--json").json
    assert [hit["id"] for hit in narrowed] == [note["id"]]
    assert "no feature 'nowhere'" in line.well("search", "crane", "--feature", "nowhere").err
    # A learning goes with what it was learned from, so it asks.
    assert "Add --yes" in line("forget", note["id"], saved["id"]).complaint
    gone = line.well("forget", note["id"], saved["id"], "--yes", "--json").json
    assert gone["forgotten"] == 2
    assert "forgotten" in line("show", note["id"]).complaint
    with server.memory() as ralph:
        assert not [hit for hit in ralph.search("crane") if hit.id in (note["id"], saved["id"])]
    assert not (tmp_path / ".ralph").exists()


def test_the_plan_there_is_read_and_changed(line: Line) -> None:
    line.well("feature", "add", "cranes", "--description", "They lift.")
    added = line.well("task", "add", "Grease it", "--feature", "cranes", "--json").json
    identity = str(added["id"])
    line.well("task", "update", identity, "--status", "done", "--comment", "Greased.")
    shown = line.well("task", "show", identity, "--json").json
    assert (shown["status"], shown["comments"][-1]["text"]) == ("done", "Greased.")
    line.well("feature", "update", "cranes", "--boundaries", "No ropes.")
    assert "No ropes." in line.well("feature", "show", "cranes").out
    assert "cranes" in line.well("feature", "list").out
    assert "Grease it" in line.well("task", "list", "--feature", "cranes").out
    line.well("task", "ready")
    learned = line.well("learning", "add", "Grease melts.", "--feature", "cranes", "--json").json
    assert "Grease melts." in line.well("learning", "list").out
    line.well("learning", "remove", learned["learning"]["id"], "--feature", "cranes")
    assert "Grease melts." not in line.well("learning", "list").out
    for words in (["feature", "delete", "cranes"], ["discipline", "add", "crane"]):
        assert "where the server runs" in line(*words).complaint
    assert (
        "Omit --author" in line("task", "update", identity, "--comment", "x", "--author", "me").err
    )


def test_conversations_and_knowledge_there_are_read(line: Line, server: ServerProcess) -> None:
    with server.memory() as ralph:
        talk = ralph.conversations.start("Cranes at night")
        ralph.conversations.exchange(talk, user="Do cranes sleep?", assistant="They stand still.")
        ralph.conversations.tag(talk, add=["night"])
    assert "Cranes at night" in line.well("conversations", "list", "--tag", "night").out
    assert not line.well("conversations", "list", "--tag", "day", "--json").json
    shown = line.well("conversations", "show", talk, "--json").json
    assert shown["tags"] == ["night"]
    assert shown["exchanges"][0]["assistant"] == "They stand still."
    assert "They stand still." in line.well("show", shown["exchanges"][0]["id"]).out
    assert "where the server runs" in line("conversations", "rename", talk, "Day").complaint
    given = ["--failure-description", "The crane squeaks", "--solution", "Grease the joint."]
    line.well("knowledge", "capture", "--type", "failure_solution", *given)
    assert "1 entry" in line.well("knowledge", "checkpoint").out
    assert "Grease the joint." in line.well("knowledge", "query", "--failure", "crane squeaks").out
    [pattern] = line.well("knowledge", "patterns", "--json").json
    assert "worked 2 of 2" in line.well("knowledge", "outcome", pattern["id"], "worked").out
    assert "Grease the joint." in line.well("knowledge", "context", "The crane squeaks").out
    assert "Grease the joint." in line.well("search", "crane squeaks", "--knowledge").out


def test_the_status_is_the_server_s(line: Line, server: ServerProcess) -> None:
    shown = line.well("status").out
    assert f"server {server.address}" in shown
    assert "auth" in shown


def test_a_token_of_one_feature_sees_that_feature(
    line: Line, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_TOKEN", server.token("write", feature="auth"))
    assert "one feature" in line("hooks", "install", "--server", server.address).complaint
    monkeypatch.setenv("RALPH_TOKEN", server.token("read", feature="auth"))
    assert "scope write" in line("hooks", "install", "--server", server.address).complaint
    assert {hit["record"]["feature"] for hit in line.well("failures", "--json").json} <= {"auth"}
    assert "Memory is empty" not in line.well("status").out
    assert "scope" in line("remember", "Not by me.").complaint
    assert "one feature" in line("conversations", "list").complaint


@pytest.mark.parametrize(
    "command", ["init", "stats", "export", "backup", "index", "journal", "why"]
)
def test_a_command_that_needs_the_files_says_so(
    line: Line, server: ServerProcess, tmp_path: Path, command: str
) -> None:
    assert command in COMMANDS
    words = {"export": ["out.jsonl"], "backup": ["out.zip"], "index": ["verify"]}
    words |= {"journal": ["verify"]}
    ran = line("--server", server.address, command, *words.get(command, []))
    assert ran.code == 1
    assert f"`ralph {command}`" in ran.complaint
    assert "--server" in ran.complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["stats"], ["export", "out.jsonl"], ["why"], ["index", "verify"]]
)
def test_a_command_that_needs_the_files_fails_with_the_variable_too(
    line: Line, words: list[str]
) -> None:
    ran = line(*words)
    assert ran.code == 1
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["search", "crane", "--everywhere"], "Leave out --everywhere"),
        (["search", "crane", "--tag", "x"], "Leave out --tag"),
        (["remember", "mine", "--private"], "private"),
        (["forget", "--feature", "auth"], "single records"),
        (["record", "-"], "feature"),
        (["discipline", "list"], "where the server runs"),
        (["token", "list"], "where the server runs"),
        (["pause"], "--here"),
    ],
)
def test_what_an_option_cannot_do_there_is_said(line: Line, words: list[str], what: str) -> None:
    ran = line(*words, stdin='{"summary": "x"}')
    assert ran.code == 1
    assert what in ran.complaint


def test_no_output_has_the_token(
    line: Line, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = server.token("read")
    monkeypatch.setenv("RALPH_TOKEN", secret)
    monkeypatch.setenv("RALPH_DEBUG", "1")
    for words in (["status"], ["remember", "x y z"], ["search", "x"], ["config"], ["doctor"]):
        ran = line(*words)
        assert secret not in ran.out + ran.err


def test_while_the_server_is_away_a_note_waits_here_and_the_status_says_so(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_SERVER", "http://127.0.0.1:9/projects/shop")

    assert "saved on this machine until" in line.well("remember", "Deploy on Tuesdays.").out

    away = line("status")
    assert "not reachable" in away.out
    assert "Memory is empty" not in away.out
    assert "not on the server yet: 1 record" in away.err


def finding(line: Line, name: str) -> tuple[int, dict[str, str]]:
    """The exit code of `ralph doctor`, and one of its findings."""
    ran = line("doctor", "--json")
    [found] = [one for one in ran.json["checks"] if one["name"] == name]
    return ran.code, found


def test_doctor_says_how_the_server_of_a_folder_does_and_what_waits_for_it(
    line: Line, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.address
    line.well("hooks", "install", "--server", address)
    monkeypatch.delenv("RALPH_SERVER")
    (tmp_path / "part").mkdir()
    monkeypatch.chdir(tmp_path / "part")

    code, found = finding(line, "server")
    assert (code, found["state"]) == (0, "ok")
    assert f"{address}, answers in" in found["detail"]
    assert "claude (project)" in finding(line, "hooks")[1]["detail"]
    assert finding(line, "project")[1]["state"] == "ok"

    home_file = home_folder() / "servers.json"
    login = home_file.read_text(encoding="utf-8")
    down = address.replace(address.split("/")[2], "127.0.0.1:9")
    home_file.write_text(login.replace(address, down), encoding="utf-8")
    line.well("remember", "Deploy on Tuesdays.")
    code, found = finding(line, "server")
    assert (code, found["state"]) == (1, "problem")
    assert "not reachable; 1 record waiting here for it" in found["detail"]

    home_file.write_text("{", encoding="utf-8")
    code, found = finding(line, "server")
    assert (code, found["state"]) == (1, "problem")
    assert "servers.json" in found["detail"]

    home_file.write_text(login.replace(address, down), encoding="utf-8")
    ended = line.well("hooks", "uninstall")
    assert "1 record not sent yet" in ended.err
    assert json.loads(home_file.read_text(encoding="utf-8"))["folders"] == {}
    assert not (tmp_path / ".mcp.json").exists()
