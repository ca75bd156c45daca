"""The command line with a project on a server: what works there, and what says that it does not."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import click
import pytest
from browsing import lived_in
from commanding import Line, process
from teaming import ServerProcess, serving

from ralph.config import home_folder
from ralph.doors.cli.main import ralph
from ralph.doors.rest.main import run as serve_page
from ralph.memory.outbox import Outbox, outbox_files

AWAY = "http://127.0.0.1:9/projects/shop"


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
    monkeypatch.setenv("RALPH_TOKEN", server.token("admin", person=True))
    return Line(capsys, monkeypatch)


@pytest.mark.parametrize(
    "words",
    ["search crane", "status", "feature list", "show abcdef12", "recent", "hooks install",
     "remember crane", "conversations list", "doctor"],
)  # fmt: skip
def test_every_command_gives_up_soon_on_a_server_that_says_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
) -> None:
    """The call itself may take longer: it is not made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RALPH_TOKEN", "ralph_abc")
    monkeypatch.setattr("ralph.memory.remote._SILENT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/projects/shop"
        ran = Line(capsys, monkeypatch)(*words.split(), "--server", address)
    assert "no answer within 0.2 s" in ran.out + ran.err


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
    listed = line.well("forget", note["id"], "--dry-run").out.splitlines()
    assert listed[0] == f"To be forgotten on the server: 1 record ({note['id'][:8]})"
    # A learning goes with what it was learned from, so it asks.
    assert "Add --yes" in line("forget", note["id"], saved["id"]).complaint
    gone = line.well("forget", note["id"], saved["id"], "--yes", "--json").json
    assert gone["forgotten"] == 2
    assert "forgotten" in line("show", note["id"]).complaint
    with server.memory() as ralph:
        assert not [hit for hit in ralph.search("crane") if hit.id in (note["id"], saved["id"])]
    assert not (tmp_path / ".ralph").exists()


def test_the_plan_there_is_read_and_changed(line: Line, server: ServerProcess) -> None:
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
    ref = learned["learning"]["id"]
    better = ["--text", "Grease melts in summer.", "--reason", "in winter it did not"]
    reviewed = line.well("learning", "review", ref, "--feature", "cranes", *better, "--json").json
    assert (reviewed["text"], reviewed["reviewed"]) == ("Grease melts in summer.", True)
    why = ["--reason", "we use oil"]
    line.well("learning", "remove", reviewed["id"], "--feature", "cranes", *why)
    assert "Grease melts" not in line.well("learning", "list").out
    assert "we use oil" in (server.root / ".ralph" / "db" / "features.yaml").read_text()
    for words in (["add", "crane"], ["delete", "crane"]):
        assert "where the server runs" in line("discipline", *words).complaint
    assert (
        "Omit --author" in line("task", "update", identity, "--comment", "x", "--author", "me").err
    )
    assert "still has tasks" in line("feature", "delete", "cranes").complaint
    assert "Grease it" in line.well("task", "delete", identity).out
    line.well("feature", "delete", "cranes")
    assert "cranes" not in line.well("feature", "list").out


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
    tagged = line.well("conversations", "tag", talk[:8], "Dusk", "--json").json
    assert tagged == {"id": talk, "tags": ["dusk", "night"]}
    assert "no tags" in line.well("conversations", "tag", talk, "dusk", "night", "--remove").out
    assert "Cranes by day" in line.well("conversations", "rename", talk, "Cranes", "by", "day").out
    assert "Rated up" in line.well("conversations", "rate", talk, "up").out
    with server.memory() as ralph:
        assert ralph.conversations.conversation(talk).title == "Cranes by day"
        [exchange] = ralph.conversations.exchanges(talk)
        [rating] = ralph.conversations.said("rating")
        assert json.loads(rating.body) == {"target": exchange.id, "value": 1}
    given = ["--failure-description", "The crane squeaks", "--solution", "Grease the joint."]
    line.well("knowledge", "capture", "--type", "failure_solution", *given)
    assert "1 entry" in line.well("knowledge", "checkpoint").out
    assert "Grease the joint." in line.well("knowledge", "query", "--failure", "crane squeaks").out
    [pattern] = line.well("knowledge", "patterns", "--json").json
    assert "worked 2 of 2" in line.well("knowledge", "outcome", pattern["id"], "worked").out
    assert "Grease the joint." in line.well("knowledge", "context", "The crane squeaks").out
    assert "Grease the joint." in line.well("search", "crane squeaks", "--knowledge").out


def test_the_status_is_the_server_s(line: Line, server: ServerProcess) -> None:
    with server.memory() as there:
        there.conversations.start("A talk")
    shown = line.well("status").out
    assert f"server {server.address}" in shown
    assert "auth" in shown
    assert "\nconversations: " in shown  # a server counts no private notes


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
    "command", ["init", "stats", "export", "backup", "index verify", "journal verify"]
)
def test_a_command_that_needs_the_files_says_so(
    line: Line, server: ServerProcess, tmp_path: Path, command: str
) -> None:
    words = {"export": ["out.jsonl"], "backup": ["out.zip"]}
    ran = line("--server", server.address, *command.split(), *words.get(command, []))
    assert ran.code == 1
    assert f"`ralph {command}`" in ran.complaint
    assert "--server" in ran.complaint
    assert list(tmp_path.iterdir()) == []


def every_command() -> Iterator[tuple[list[str], click.Command]]:
    """The words of every command that is not a group, and the command."""
    todo: list[tuple[list[str], click.Command]] = [([], ralph)]
    while todo:
        words, command = todo.pop()
        if not isinstance(command, click.Group):
            yield words, command
            continue
        context = click.Context(command)
        names = command.list_commands(context)
        found = [([*words, name], command.get_command(context, name)) for name in names]
        todo += [(each, one) for each, one in found if one is not None]


# Commands that have nothing to do with where the memory is.
OF_THIS_MACHINE = {
    *("completion", "config", "demo", "doctor", "init", "pause", "resume", "trust", "why"),
    *("hooks install", "hooks uninstall", "hooks status", "hooks plugin-path"),
    *("plan merge-driver", "plan braindump"),
}
# What a command needs beside its required parameters.
NEEDS = {
    "knowledge capture": ["--type", "failure_solution"],
    "knowledge query": ["crane"],
    "feature update": ["--description", "x"],
    "discipline update": ["--skill", "x"],
    "task update": ["--status", "done"],
    "forget": ["0123abcd"],
    "record": ["-"],
}


@pytest.mark.parametrize(
    ("words", "command"),
    [pytest.param(*one, id=" ".join(one[0])) for one in every_command()],
)
def test_no_command_ignores_a_server(
    line: Line, words: list[str], command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name := " ".join(words)) in OF_THIS_MACHINE:
        return
    monkeypatch.setenv("RALPH_SERVER", AWAY)
    Path("file").write_text("# Cranes\n\n- [ ] Grease one\n", encoding="utf-8")
    given = NEEDS.get(name, [])
    for one in command.params if not given[:1] or given[0].startswith("-") else ():
        if one.required:
            word = one.type.choices[0] if isinstance(one.type, click.Choice) else "file"
            given = [*given, *([] if isinstance(one, click.Argument) else one.opts[:1]), word]
    ran = line(*words, *given, stdin='{"feature": "auth", "summary": "x"}')
    said = f"{ran.out}{ran.err}"
    assert AWAY in said or "server" in said, said
    # `today` only says where the memory is.
    fine = name in ("remember", "record", "journal deliver", "today")
    assert ran.code == (0 if fine else 1), said
    assert "internal error" not in said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["search", "crane", "--everywhere"], "Leave out --everywhere"),
        (["search", "crane", "--tag", "x"], "Leave out --tag"),
        (["remember", "mine", "--private"], "private"),
        (["forget", "--feature", "auth"], "single records"),
        (["forget", "0123abcd", "--reason", "wrong"], "Leave other options and --reason out"),
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
    monkeypatch.setenv("RALPH_SERVER", AWAY)

    assert "saved on this machine until" in line.well("remember", "Deploy on Tuesdays.").out

    away = line("status")
    assert away.code == 1
    assert f"Memory is off: The memory server is not reachable at {AWAY}. " in away.out
    assert f"server {AWAY}; 1 record waiting here for it" in away.out
    assert "Memory is empty" not in away.out
    assert "not on the server yet: 1 record" in away.err
    away = line("status", "--json")
    assert away.code == 1
    told = away.json
    assert (told["available"], told["waiting"]) == (False, 1)
    assert told["index"] == told["embedder"]
    assert "not reachable" in told["index"]["detail"]
    for words in (["log"], ["conversations", "list"]):
        away = line(*words)
        assert away.err.count("not reachable") == 1
        assert away.err.count(AWAY) == 1
        assert "/v1/" not in away.err


def test_doctor_names_what_another_token_saved_and_what_was_refused(
    line: Line, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_SERVER", AWAY)
    monkeypatch.setenv("RALPH_TOKEN", "ralph_" + "a" * 40)
    line.well("remember", "Deploy on Tuesdays.")
    monkeypatch.setenv("RALPH_TOKEN", "ralph_" + "b" * 40)
    assert "not on the server yet" not in line("status").err
    found = finding(line, "outbox")[1]
    assert found["state"] == "warning"
    assert f"1 record for {AWAY}, saved with another token" in found["detail"]
    assert f"ralph --server {AWAY} journal deliver" in found["todo"]
    monkeypatch.setenv("RALPH_SERVER", server.address)
    assert f"1 record for {AWAY}, not sent" in finding(line, "outbox")[1]["detail"]


def test_a_record_that_a_server_refuses_is_set_aside_and_named_and_can_be_sent_again(
    line: Line, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A token for one feature cannot save in another.
    monkeypatch.setenv("RALPH_TOKEN", server.token("write", feature="auth"))
    box = Outbox(home_folder(), server.address, os.environ["RALPH_TOKEN"])
    for feature, summary in (("elsewhere", "Dug a hole."), ("auth", "Filled the hole.")):
        box.keep("/iterations", [{"feature": feature, "summary": summary}])
    ran = line.well("search", "hole")
    assert "the server refused a record (there is no feature 'elsewhere')" in ran.err
    assert "Filled the hole." in ran.out
    found = finding(line, "outbox")[1]
    assert f"1 record that {server.address} refused" in found["detail"]
    assert "there is no feature 'elsewhere'" in found["detail"]
    assert "To drop: delete" in found["todo"]

    again = line("journal", "deliver")
    assert again.code == 1
    assert "still here: 1 record; see: ralph doctor" in again.err
    monkeypatch.setenv("RALPH_TOKEN", server.token("write"))
    assert "Delivered 1 record to" in line.well("journal", "deliver").out
    assert "Dug a hole." in line.well("search", "hole").out
    assert not outbox_files(home_folder())


class BuggyServer(BaseHTTPRequestHandler):
    """Fails at one record, and takes all others."""

    texts: ClassVar[list[str]] = []
    status = 500
    answer = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        fails = b"bomb" in body
        self.send_response(self.status if fails else 201)
        self.end_headers()
        if not fails:
            self.texts.append(json.loads(body)["text"])
            self.wfile.write(self.answer or b'{"fresh": true, "record": %b}' % body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize("status", [408, 500, 502, 503])
def test_a_record_at_which_the_server_fails_does_not_hold_up_the_others(
    line: Line, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(BuggyServer, "texts", [])
    monkeypatch.setattr(BuggyServer, "status", status)
    monkeypatch.setenv("RALPH_SERVER", AWAY)
    with ThreadingHTTPServer(("127.0.0.1", 0), BuggyServer) as buggy:
        threading.Thread(target=buggy.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{buggy.server_port}/projects/shop"
        box = Outbox(home_folder(), address, os.environ["RALPH_TOKEN"])
        for text in ("bomb", "first", "second"):
            box.keep("/notes", {"text": text, "feature": "", "by": "human"})
        monkeypatch.setenv("RALPH_SERVER", address)
        ran = line.well("remember", "third")
        assert BuggyServer.texts == ["first", "second", "third"]
        assert f"the server refused a record (The memory server could not do it ({status}))" in (
            ran.err
        )
        buggy.shutdown()
    assert f"({status})" in finding(line, "outbox")[1]["detail"]
    assert not box.holds


@pytest.mark.parametrize(
    "address",
    [
        *("http://127.0.0.1:9", "127.0.0.1:9/projects/shop", "ftp://127.0.0.1/projects/shop"),
        *("http://127.0.0.1:port/projects/shop", "http://[::1/projects/shop", "http:///projects/a"),
        *(f"{AWAY}/mcp", f"{AWAY}?x=1", f"{AWAY}#a", "http://me:pw@127.0.0.1:9/projects/shop"),
    ],
)
def test_an_address_that_names_no_project_is_refused(line: Line, address: str) -> None:
    ran = line("--server", address, "search", "crane")
    assert ran.code == 1
    assert "does not name a project on a server. It looks like https://HOST" in ran.complaint
    assert "pw" not in ran.complaint


def test_an_empty_address_is_not_taken_for_this_machine(line: Line) -> None:
    ran = line("--server", "", "search", "crane")
    assert ran.code == 2
    assert "the address is empty" in ran.err


def test_a_project_that_the_server_does_not_have_is_named(
    line: Line, server: ServerProcess
) -> None:
    address = server.address.replace("shop", "shed")
    ran = line("--server", address, "search", "crane")
    assert ran.code == 1
    assert f"{address}: no such project, or the token is for another one. `ralph" in ran.complaint


def test_a_server_of_something_else_gets_nothing_and_is_named(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = b"<html>Welcome</html>"
    monkeypatch.setattr(BuggyServer, "answer", page)
    with ThreadingHTTPServer(("127.0.0.1", 0), BuggyServer) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        monkeypatch.setenv("RALPH_SERVER", f"http://127.0.0.1:{other.server_port}/projects/shop")
        ran = line("search", "crane")
        assert "does not answer as `ralph serve` does" in ran.complaint
        assert "until the server takes it" in line.well("remember", "Not for others.").out
        other.shutdown()


def test_the_page_does_not_show_this_machine_s_memory_instead(
    line: Line, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    code = serve_page([], page_of=lambda *_: pytest.fail("it was shown"))
    assert code == 1
    assert f"its memory is on {server.address}. Run it where" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "todo"),
    [
        (["ui"], "its memory is on AWAY. Leave out --server, or run it where the server runs."),
        (["serve"], "its memory is on AWAY. Leave out --server, or run it where the server runs."),
        (["mcp", "--focus"], "Set RALPH_SERVER, or let the client connect to AWAY/mcp over HTTP."),
    ],
    ids=lambda value: value[0],
)
def test_a_door_refuses_a_server_with_a_reason(words: list[str], todo: str, tmp_path: Path) -> None:
    for given in (["--server", AWAY, *words], [*words, f"--server={AWAY}"]):
        ran = process(given, cwd=tmp_path)
        [said] = ran.stderr.decode().splitlines()
        assert (ran.returncode, ran.stdout) == (1, b"")
        assert said.startswith("ralph: ")
        assert said.endswith(todo.replace("AWAY", AWAY))


@pytest.mark.parametrize("token", ["tökén", "ralph_a\nb"])
def test_what_cannot_be_a_token_is_refused_and_nothing_waits_for_it(
    line: Line, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("RALPH_TOKEN", token)
    ran = line("remember", "Deploy on Tuesdays.")
    assert ran.code == 1
    assert "this is not a token. Set RALPH_TOKEN" in ran.complaint
    assert token not in ran.err
    assert not outbox_files(home_folder())


def test_spaces_around_a_token_do_not_count(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_TOKEN", f" {os.environ['RALPH_TOKEN']}\r\n")
    line.well("status")


def test_where_nothing_is_installed_uninstall_says_so(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RALPH_SERVER")
    for words in ([], ["--all"]):
        ran = line.well("hooks", "uninstall", *words)
        assert ran.out == "Ralph was not set up there.\n"
        assert not ran.err


def test_a_feature_of_the_checkout_is_deleted_where_the_memory_is_on_a_server(line: Line) -> None:
    line.well("init")
    line.well("feature", "add", "cranes")
    assert line.well("feature", "delete", "cranes").out == "Deleted feature cranes.\n"


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
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("RALPH_SERVER", address)
    assert finding(line, "project")[1]["state"] == "ok"
    monkeypatch.delenv("RALPH_SERVER")
    monkeypatch.chdir(tmp_path / "part")

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


def test_a_backup_is_refused_while_the_journals_server_says_nothing(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.record("auth", {"summary": "Built the form."})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/db"
        monkeypatch.setenv("RALPH_JOURNAL_URL", url)
        for words in ("backup b.zip", "export e.jsonl", "conversations export c.json"):
            ran = ralph(*words.split())
            assert ran.code == 1, words
            assert "cannot reach the journal server" in ran.err
    assert not [file for name in ("b.zip", "e.jsonl", "c.json") for file in project.rglob(name)]


def test_doctor_asks_a_silent_qdrant_once(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_REMEMBER_BUDGET_S", "0.2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("RALPH_QDRANT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        said = ralph("doctor").out
    assert said.count("gave no answer") == 1
