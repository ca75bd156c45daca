"""`ralph journal move` and `deliver`: what they copy, compare, say and leave alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from commanding import LOGIN, Line, Terminal
from postgres import PASSWORD, own_server
from scaling import everything, filled, opened

from ralph.memory.ralph import open_ralph
from ralph.memory.transfer import waiting_records


@pytest.fixture
def full(project: Path) -> Path:
    """A project that has something in every memory, beside another that learned something."""
    with opened(project) as memory:
        filled(memory, each=20)
        memory.knowledge.capture(
            {
                "entry_type": "gate_approval",
                "gate_type": "design",
                "approved_approach": "tokens",
                "project": "another",
            }
        )
    return project


def files_of(*roots: Path) -> dict[Path, bytes]:
    """Every journal in files and what is in it."""
    return {file: file.read_bytes() for root in roots for file in root.rglob("*.jsonl")}


def test_every_memory_is_copied_and_the_files_stay_as_they_are(
    ralph: Line, full: Path, home: Path, database: str
) -> None:
    before = files_of(full, home)
    with opened(full) as memory:
        records = everything(memory)

    told = ralph.well("journal", "move", "--to", database, "--json").json

    assert {one["memory"]: len(one["streams"]) for one in told["memories"]} == {
        "features": 2,
        "conversations": 1,
        "knowledge": 1,
        "tokens": 0,
    }
    assert told["fresh"] == told["records"] == sum(map(len, records.values())) - 1
    assert (told["left"], told["switched"], told["dry_run"]) == (1, False, False)
    assert files_of(full, home) == before
    assert ralph.well("config", "journal_url").out == "not set\n"
    with opened(full, journal_url=database) as there:
        assert everything(there) == {
            name: some for name, some in records.items() if "another" not in name
        }


def test_all_takes_along_what_other_projects_said_and_learned(
    ralph: Line, full: Path, database: str
) -> None:
    said = ralph.well("journal", "move", "--to", database).out
    assert "Left where it was: 1 journal of other projects; --all includes them." in said
    # No command is told that would put the password into the shell's history.
    assert "To store memory there from now on: move again with --switch" in said
    told = ralph.well("journal", "move", "--to", database, "--all", "--json").json
    assert (told["fresh"], told["left"]) == (1, 0)


def test_a_dry_run_copies_nothing_and_says_what_would_be(
    ralph: Line, full: Path, database: str
) -> None:
    told = ralph.well("journal", "move", "--to", database, "--dry-run", "--json").json
    assert told["fresh"] == told["records"] > 60
    with opened(full, journal_url=database) as there:
        assert everything(there) == {}
    said = ralph.well("journal", "move", "--to", database, "--dry-run").out
    assert said.splitlines()[-2:][0] == "Nothing was copied."
    assert ralph("journal", "move", "--to", database, "--dry-run", "--switch").code == 2


def test_switching_writes_the_users_file_and_back_takes_it_out(
    ralph: Line, full: Path, home: Path, database: str
) -> None:
    there = ralph.well("journal", "move", "--to", database, "--switch")
    assert "From now on memory is stored there." in there.out
    assert ralph.well("config", "journal_url").out == "set\n"
    assert ralph.well("config", "--json").out.count(database) == 0
    if sys.platform != "win32":
        assert (home / "config.json").stat().st_mode & 0o077 == 0
    ralph.record("auth", LOGIN)

    back = ralph.well("journal", "move", "--to", "files", "--switch", "--json").json
    assert back["fresh"] == 1
    assert ralph.well("config", "journal_url").out == "not set\n"
    assert (
        ralph.well("recent", "--feature", "auth", "--count", "1", "--json").json[0]["record"][
            "task_title"
        ]
        == (LOGIN["task_title"])
    )


def test_tokens_go_along_and_a_revoked_one_stays_revoked(
    ralph: Line, full: Path, database: str
) -> None:
    ralph.well("token", "create", "ci", "--scope", "read")
    ralph.well("token", "create", "old", "--scope", "read")
    ralph.well("journal", "move", "--to", database, "--switch")
    assert [one["name"] for one in ralph.well("token", "list", "--json").json] == ["ci", "old"]

    ralph.well("token", "revoke", "old")
    ralph.well("journal", "move", "--from", "files", "--to", "server")
    assert [one["name"] for one in ralph.well("token", "list", "--json").json] == ["ci"]
    ralph.well("journal", "move", "--to", "files", "--switch")
    assert [one["name"] for one in ralph.well("token", "list", "--json").json] == ["ci"]


def test_who_has_switched_before_is_not_told_to(ralph: Line, full: Path, database: str) -> None:
    ralph.well("journal", "move", "--to", database, "--switch")
    said = ralph.well("journal", "move", "--to", "server").out
    assert said.splitlines()[-1] == "Memory is already stored there."
    assert "--switch" not in said


def test_the_other_projects_are_brought_back_one_by_one(
    ralph: Line, full: Path, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.well("journal", "move", "--to", database, "--switch")
    with open_ralph(tmp_path / "another", embedder="none") as other:
        other.feature("web").remember({"summary": "elsewhere"})
    back = ralph.well("journal", "move", "--to", "files", "--switch").out.splitlines()
    assert back[-2:] == [
        "Features of other projects stay on the server until, in each of them:",
        "  ralph journal move --from - --to files",
    ]
    monkeypatch.chdir(tmp_path / "another")
    assert ralph.well("recent", "--feature", "web", "--json").json == []
    words = ["journal", "move", "--from", "-", "--to", "files"]
    brought = ralph.well(*words, stdin=f"{database}\n")
    assert PASSWORD not in brought.out + brought.err
    assert len(ralph.well("recent", "--feature", "web", "--json").json) == 1


def test_a_stronger_place_of_the_setting_is_told(
    ralph: Line, full: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", database)
    ralph.well("journal", "move", "--to", database)  # it was set before anything was moved
    back = ralph.well("journal", "move", "--to", "files", "--switch")
    assert back.complaint.startswith("ralph: RALPH_JOURNAL_URL takes precedence over")


def test_the_address_can_come_by_a_pipe_and_is_never_told(
    ralph: Line, full: Path, database: str
) -> None:
    ran = ralph.well("journal", "move", "--to", "-", "--switch", stdin=f"{database}\n")
    place = urlsplit(database)
    assert PASSWORD not in ran.out + ran.err
    told = ralph.well("journal", "move", "--to", "files", "--json").out
    assert f"{place.hostname}:{place.port}{place.path}/conversations" in told
    assert PASSWORD not in told


@pytest.mark.parametrize(
    "address",
    [
        "mysql://ralph:s3cr3t@127.0.0.1/ralph",
        "127.0.0.1/ralph",
        "postgresql://ralph:s3cr3t@127.0.0.1:port/ralph",
        "postgresql://ralph:s3cr3t@@%zz/ralph",
        "",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(
    ralph: Line, full: Path, address: str
) -> None:
    ran = ralph("journal", "move", "--to", address)
    assert ran.code == 1
    assert "PostgreSQL database" in ran.complaint
    assert "s3cr3t" not in ran.complaint


def test_moving_to_where_they_are_is_refused(ralph: Line, full: Path) -> None:
    ran = ralph("journal", "move", "--to", "files")
    assert ran.code == 1
    assert ran.complaint.endswith("the journals are there already")


def test_a_server_that_is_down_gets_nothing_and_nothing_waits_for_it(
    ralph: Line, full: Path, home: Path
) -> None:
    with own_server() as server:
        url = server.url
    ran = ralph("journal", "move", "--to", url)
    assert ran.code == 1
    assert "cannot reach the journal server" in ran.err
    assert PASSWORD not in ran.err
    assert [file for file in (home / "spool").rglob("*.jsonl") if file.stat().st_size] == []


def test_what_was_forgotten_there_stays_so_and_is_told(
    ralph: Line, full: Path, database: str
) -> None:
    ralph.well("journal", "move", "--to", database)
    with opened(full, journal_url=database) as there:
        there.feature("auth").forget([there.feature("auth").records()[0].id])
    for words in (["--dry-run"], []):
        told = ralph.well("journal", "move", "--to", database, "--json", *words).json
        assert [one["forgotten_there"] for one in told["memories"][0]["streams"]] == [1, 0]
        assert told["fresh"] == 0


def test_a_forget_on_the_server_names_the_old_files_that_still_hold_it(
    ralph: Line, full: Path, database: str
) -> None:
    ralph.well("journal", "move", "--to", database, "--switch")
    with opened(full, journal_url=database) as there:
        [first, *_] = there.feature("auth").records()

    left = ralph.well("forget", first.id, "--json").json["remains"]

    journal = full / ".ralph" / "db" / "memory" / "auth.jsonl"
    assert f"{journal}, from before the journal moved to a server" in left


def test_a_title_made_from_what_is_forgotten_goes_on_the_server_too(
    ralph: Line, project: Path, database: str
) -> None:
    with opened(project, journal_url=database) as there:
        memory = there.conversations
        talk = memory.start("Remember the zebra", session="s", source="chat")
        gone = memory.exchange(talk, user="Remember the zebra", assistant="I will.", key="1")
        memory.exchange(talk, user="What is a cookie?", assistant="A small text.", key="2")

        memory.forget([gone.id])

        [listed] = memory.list()
        assert (listed.conversation.title, listed.conversation.source) == (
            "What is a cookie?",
            "chat",
        )
        assert not any(b"zebra" in one.body for one in memory.stream.standing())


@pytest.mark.parametrize("words", [["--dry-run"], []])
def test_other_content_under_the_same_id_is_refused(
    ralph: Line, full: Path, database: str, words: list[str]
) -> None:
    with opened(full) as here, opened(full, journal_url=database) as there:
        first = here.feature("auth").records()[0]
        other = msgspec.structs.replace(first, body=first.body.replace(b"login", b"logout"))
        assert there.store.journals.journal("auth").append([other])[0].fresh
    ran = ralph("journal", "move", "--to", database, *words)
    assert ran.code == 1
    assert f"exist there with other content (1), the first is {first.id}" in ran.complaint
    with opened(full, journal_url=database) as there:
        assert list(everything(there)) == ["0 auth"]


def test_a_line_that_cannot_be_read_is_told_and_stays(
    ralph: Line, full: Path, database: str
) -> None:
    file = full / ".ralph" / "db" / "memory" / "auth.jsonl"
    file.write_bytes(file.read_bytes() + b"<<<<<<< HEAD\n")
    ran = ralph("journal", "move", "--to", database)
    assert ran.code == 1
    assert "auth.jsonl:21: " in ran.complaint
    assert "it stays where it is" in ran.complaint
    assert "records of 4 journals: the same in both places" in ran.out


def test_a_move_that_is_killed_is_repeated_without_harm(
    ralph: Line, full: Path, home: Path, database: str
) -> None:
    with opened(full) as memory:
        records = everything(memory)
    dying = """
import os, sys
from ralph.doors.cli.main import run
from ralph.memory import transfer
move = transfer.move_project
def end(name, number):
    "conversations" in name and os._exit(9)
transfer.move_project = lambda *args, **more: move(*args, **more | {"progress": end})
sys.exit(run(sys.argv[1:]))
"""
    words = [sys.executable, "-c", dying, "journal", "move", "--to", database, "--all"]
    assert subprocess.run(words, cwd=full, capture_output=True, timeout=60).returncode == 9
    with opened(full, journal_url=database) as there:
        assert 0 < len(everything(there)) < len(records)

    ralph.well("journal", "move", "--to", database, "--all")
    assert ralph.well("journal", "move", "--to", database, "--all", "--json").json["fresh"] == 0
    with opened(full, journal_url=database) as there:
        assert everything(there) == records


def test_a_person_sees_how_far_it_is(
    ralph: Line, full: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    ralph.well("journal", "move", "--to", database)
    assert "copying the journals" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[1A\x1b[2K")


# -- what waits


def test_what_waits_of_every_project_is_delivered(
    ralph: Line, full: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server:
        monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
        server.stop()
        ralph.record("auth", LOGIN)
        with open_ralph(tmp_path / "another", embedder="none") as other:
            other.feature("web").remember({"summary": "elsewhere"})
            other.conversations.start(title="meanwhile")
        down = ralph("journal", "deliver")
        assert down.code == 1
        assert "cannot reach the journal server" in down.err
        server.start()
        told = ralph.well("journal", "deliver", "--json").json
        assert sorted(told["delivered"].values()) == [1, 1, 1]
        assert told["waiting"] == {}
        assert ralph.well("journal", "deliver").out == "Nothing is waiting here.\n"
        with open_ralph(tmp_path / "another", embedder="none") as other:
            assert other.feature("web").verify() == (1, [])


def test_a_token_that_waits_is_told_and_delivered(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server:
        monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
        server.stop()
        ralph.well("token", "create", "ci", "--scope", "read")
        assert "1 record waiting here for it" in ralph("doctor").out
        server.start()
        delivered = ralph.well("journal", "deliver", "--json").json
        assert delivered == {"delivered": {"tokens": 1}, "waiting": {}}
        assert [one["name"] for one in ralph.well("token", "list", "--json").json] == ["ci"]


def test_a_token_that_waits_for_a_server_given_up_comes_into_the_files(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch, away: Callable[[], str]
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", away())
    ralph.well("token", "create", "ci", "--scope", "read")
    monkeypatch.delenv("RALPH_JOURNAL_URL")
    assert "1 record waiting here for a server, but journal_url is not set" in ralph("doctor").out

    assert ralph.well("journal", "deliver", "--json").json["delivered"] == {"tokens": 1}

    assert [one["name"] for one in ralph.well("token", "list", "--json").json] == ["ci"]


def test_whoever_lacks_the_address_does_not_take_what_waits_for_the_server(
    ralph: Line,
    project: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: Callable[[], str],
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", away())
    ralph.record("auth", LOGIN)
    monkeypatch.delenv("RALPH_JOURNAL_URL")

    ran = ralph("recent", "--feature", "auth", "--json")
    assert ran.json == []
    assert "for a journal's server, but journal_url is not set here" in ran.err
    assert files_of(project) == {}
    assert "1 record waiting here for a server" in ralph("doctor").out

    told = ralph.well("journal", "deliver", "--json")
    assert list(told.json["delivered"].values()) == [1]
    assert len(ralph.well("recent", "--feature", "auth", "--json").json) == 1
    assert ralph.well("doctor").err == ""


def test_a_dry_run_hands_over_nothing_and_says_what_waits(
    ralph: Line, full: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server:
        monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
        server.stop()
        ralph.record("auth", LOGIN)
        server.start()
        for words in (["--from", "files", "--to", "server"], ["--to", "files"]):
            ran = ralph.well("journal", "move", *words, "--dry-run")
            assert ran.complaint == ("ralph: 1 record waiting here would go to the server first")
        assert sum(waiting_records(home).values()) == 1
        with opened(full, home=home.parent / "other", journal_url=server.url) as there:
            assert everything(there) == {}


def test_what_waits_for_one_server_is_not_handed_to_another(
    ralph: Line, full: Path, home: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server:
        monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
        server.stop()
        ralph.record("auth", LOGIN)
        ralph.well("journal", "move", "--from", "files", "--to", database)
        assert sum(waiting_records(home).values()) == 1
        server.start()
        assert list(ralph.well("journal", "deliver", "--json").json["delivered"].values()) == [1]
        monkeypatch.setenv("RALPH_JOURNAL_URL", database)
        titles = [one["record"]["task_title"] for one in _recent(ralph)]
        assert LOGIN["task_title"] not in titles


def test_numbers_go_on_after_a_move_though_the_server_is_away(
    ralph: Line, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server:
        ralph.well("journal", "move", "--to", server.url, "--switch")
        server.stop()
        ralph.record("auth", LOGIN)
        server.start()
        ralph.well("journal", "deliver")
        assert _recent(ralph)[0]["record"]["iteration_number"] == 21


def test_delivering_needs_no_project(
    ralph: Line, project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server:
        monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
        server.stop()
        ralph.record("auth", LOGIN)
        server.start()
        empty = tmp_path / "nowhere" / "near"
        empty.mkdir(parents=True)
        monkeypatch.chdir(empty)
        assert ralph.well("journal", "deliver").out == "Delivered 1 record to the server.\n"
        monkeypatch.delenv("RALPH_JOURNAL_URL")
        assert ralph("journal", "deliver").complaint.endswith("Run: ralph init")


def _recent(ralph: Line) -> list[Any]:
    found: list[Any] = ralph.well("recent", "--feature", "auth", "--json").json
    return found


@pytest.fixture
def away() -> Callable[[], str]:
    """The address of a server that was there a moment ago."""

    def address() -> str:
        with own_server() as server:
            return server.url

    return address
