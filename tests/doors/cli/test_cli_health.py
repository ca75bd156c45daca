"""`init`, `status`, `doctor`, `config`, `index`, `completion`, `bench`."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commanding import COOKIE, LOGIN, Line, Terminal
from remembering import index_file

from ralph import disk
from ralph.config import KEYS
from ralph.memory.ralph import open_ralph

# -- init


def test_init_says_what_it_made_and_changes_nothing_the_second_time(
    ralph: Line, tmp_path: Path
) -> None:
    root = tmp_path / "deep" / "new"

    first = ralph.well("init", root, "--json").json
    second = ralph.well("init", root, "--json").json

    assert sorted(first["made"]) == [
        ".ralph/.gitignore",
        ".ralph/db/.gitattributes",
        ".ralph/db/memory/.gitattributes",
        ".ralph/db/metadata.yaml",
    ]
    assert second == {**first, "made": []}
    assert ralph.well("init", root).out == f"{root} already has a memory; nothing was changed.\n"


def test_init_never_overwrites(ralph: Line, project: Path) -> None:
    ignore = project / ".ralph" / ".gitignore"
    ignore.write_text("mine\n", encoding="utf-8")
    (project / ".ralph" / "db" / "memory" / ".gitattributes").unlink()

    assert ralph.well("init", "--json").json["made"] == [".ralph/db/memory/.gitattributes"]
    assert ignore.read_text(encoding="utf-8") == "mine\n"


def test_init_tells_of_a_project_above(ralph: Line, project: Path) -> None:
    ran = ralph.well("init", project / "part")

    assert ran.complaint.startswith(f"ralph: {project} above is a project too")


def test_init_refuses_the_home_of_what_belongs_to_no_project(ralph: Line, home: Path) -> None:
    ran = ralph("init", home.parent)

    assert ran.code == 1
    assert "belongs to no project" in ran.complaint


def test_init_refuses_a_file(ralph: Line, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert ralph("init", tmp_path / "file").code == 2
    assert ralph("init", tmp_path / "file" / "inside").code == 1


# -- status


def test_status_prints_what_a_program_would_ask(ralph: Line) -> None:
    ralph.record("auth", LOGIN, COOKIE)

    told = ralph.well("status", "--json").json

    assert list(told) == [
        "available",
        "index",
        "embedder",
        "model",
        "dimensions",
        "memories",
        "features",
        "line",
        "paused",
        "waiting",
    ]
    assert told["available"] is True
    assert told["index"]["ok"] is told["embedder"]["ok"] is True
    assert told["dimensions"] == 256
    assert told["memories"]["feature"] == {"journalled": 2, "indexed": 2}
    said = ralph.well("status").out.splitlines()
    assert told["line"] == "RAG: active (SQLite ok, static 256d)"
    assert said[0] == "Memory works, by words and meaning."
    assert said[-1].split() == ["auth", "2", "2", "current"]


def test_status_counts_every_memory(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN)
    with open_ralph(project) as memory:
        talk = memory.conversations.start("Cookies")
        memory.conversations.exchange(talk, user="Why do they vanish?", assistant="The proxy.")
        memory.conversations.sync()
        for problem in ("The backup is empty", "The label overflows"):
            memory.knowledge.capture_failure_solution(
                failure_description=problem, solution_steps=f"Mend what it is: {problem}"
            )
            if problem.startswith("The backup"):
                memory.knowledge.checkpoint()

    told = ralph.well("status", "--json").json["memories"]
    said = ralph.well("status").out.splitlines()

    assert told["conversation"] == {"journalled": 2, "indexed": 2}
    assert told["knowledge"] == {"journalled": 2, "indexed": 1, "staged": 1}
    assert said[-2:] == [
        "conversations and private notes: 2 records, 2 indexed",
        "knowledge of all projects: 2 records, 1 indexed, 1 waiting for a checkpoint",
    ]


def test_status_without_an_embedder_says_what_to_do(ralph: Line, words: None) -> None:
    ran = ralph.well("status")

    assert ran.out.splitlines()[0] == (
        "Memory works, by words alone: the setting embedder is none. "
        "Run: ralph config embedder static"
    )


def test_status_fails_where_the_index_cannot_be_used(ralph: Line, project: Path) -> None:
    ralph.well("remember", "Deploy on Tuesdays.")
    with open_ralph(project) as memory:
        index = Path(memory.store.index.where)
    index.write_text("This is no database. " * 100, encoding="utf-8")

    ran = ralph("status")

    assert ran.code == 1
    assert ran.out.startswith("Memory is off: the index is damaged (")
    assert "notes: 1 record, 0 indexed" in ran.out
    assert "Memory is empty" not in ran.out
    told = ralph("status", "--json")
    assert (told.code, told.json["available"]) == (1, False)


def test_a_memory_whose_journal_is_out_of_reach_is_not_called_empty(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Memory is empty" in ralph.well("status").out
    monkeypatch.setenv("RALPH_JOURNAL_URL", "postgresql://a:b@127.0.0.1:9/x")
    away = ralph.well("status")
    assert "cannot reach the journal server" in away.err
    assert "Memory is empty" not in away.out


# -- config


def test_config_shows_every_setting_and_where_it_comes_from(
    ralph: Line, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_STAGNATION_LIMIT", "7")
    ralph.well("config", "search_limit", "5")
    ralph.well("config", "--user", "min_score", "0.3")

    told = {one["key"]: one for one in ralph.well("config", "--json").json}

    assert tuple(told) == KEYS
    assert told["stagnation_limit"]["origin"] == "RALPH_STAGNATION_LIMIT"
    file = str(project / ".ralph" / "rag_config.json")
    assert told["search_limit"] == {"key": "search_limit", "value": 5, "origin": file}
    assert told["min_score"]["origin"] == str(home / "config.json")
    assert told["embedder"]["origin"] == "default"
    assert ralph.well("config", "search_limit").out == "5\n"
    assert ralph.well("config", "search_limit", "--json").json == told["search_limit"]
    assert ralph.well("config").out.startswith("setting ")


def test_config_takes_a_setting_back(ralph: Line, project: Path) -> None:
    ralph.well("config", "search_limit", "5")

    assert "is no longer in" in ralph.well("config", "--unset", "search_limit").out
    assert "was not in" in ralph.well("config", "--unset", "search_limit").out
    assert ralph.well("config", "search_limit").out == "10\n"


def test_config_says_when_something_is_stronger(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_SEARCH_LIMIT", "7")

    ran = ralph.well("config", "search_limit", "5")

    assert ran.complaint == "ralph: RALPH_SEARCH_LIMIT takes precedence: search_limit is 7 here"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("config serch_limit", "there is no setting 'serch_limit'"),
        ("config serch_limit 5", "there is no setting 'serch_limit'"),
        ("config --unset serch_limit", "there is no setting 'serch_limit'"),
        ("config search_limit many", "search_limit cannot be 'many'"),
        ("config min_score 7", "min_score cannot be 7: it must be between 0 and 1"),
        ("config embedder magic", "embedder cannot be 'magic'"),
    ],
)
def test_config_refuses_what_does_not_fit(ralph: Line, project: Path, line: str, told: str) -> None:
    ran = ralph(*line.split())

    assert ran.code == 1
    assert told in ran.complaint
    assert not (project / ".ralph" / "rag_config.json").exists()


def test_config_outside_a_project_is_the_users(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert ralph.well("config", "search_limit").out == "10\n"
    refused = ralph("config", "search_limit", "5")
    assert refused.code == 1
    assert refused.complaint.endswith("Run: ralph init, or add --user for all projects.")
    ralph.well("config", "search_limit", "5", "--user")
    assert ralph.well("config", "search_limit").out == "5\n"


def test_a_setting_that_is_none_can_be_taken_out(ralph: Line, project: Path) -> None:
    file = project / ".ralph" / "rag_config.json"
    file.write_text('{"colour": "red"}', encoding="utf-8")
    assert ralph("recent").code == 1

    ralph.well("config", "--unset", "colour")

    assert json.loads(file.read_text(encoding="utf-8")) == {}


# -- index


def test_index_status_tells_what_it_holds(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN, COOKIE)

    told = ralph.well("index", "status", "--json").json

    assert list(told) == ["file", "bytes", "collections", "orphans"]
    assert told["file"] == str(index_file(project))
    assert told["bytes"] > 10_000
    [one] = told["collections"]
    assert (one["feature"], one["records"], one["passages"], one["waiting"]) == ("auth", 2, 2, 0)
    assert (one["live"], one["orphan"], one["current"]) == (True, False, True)
    assert one["manifest"]["dims"] == 256
    assert "current" in ralph.well("index", "status").out


def test_f22_a_lost_index_is_rebuilt_with_the_same_answers(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN, COOKIE)
    before = ralph.well("search", "session cookie", "--json").json
    index_file(project).unlink()

    ran = ralph.well("index", "rebuild", "--json")

    [built] = ran.json["features"]
    assert (built["feature"], built["records"]) == ("auth", 2)
    assert ralph.well("search", "session cookie", "--json").json == before
    assert ralph.well("index", "rebuild", "--feature", "auth").out.startswith("Rebuilt 2 records")


def test_a_rebuild_shows_its_progress_on_a_terminal_only(
    ralph: Line, words: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.record("auth", LOGIN, COOKIE)
    assert ralph.well("index", "rebuild").err == ""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        ran = ralph.well("index", "rebuild", "--json")

    assert "indexing the journal" in screen.getvalue()
    assert ran.json["features"][0]["records"] == 2


def test_a_rebuild_does_not_pretend_while_another_process_is_at_it(
    ralph: Line, project: Path, words: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.record("auth", LOGIN)
    monkeypatch.setenv("RALPH_INDEX_LOCK_TIMEOUT_S", "0.05")

    with disk.lock(index_file(project).with_name("index.lock"), timeout_s=5):
        ran = ralph("index", "rebuild")

    assert ran.code == 1
    assert ran.complaint.startswith("ralph: auth: another process is working on the index")


def test_index_verify_finds_nothing_wrong_with_a_good_one(ralph: Line) -> None:
    ralph.record("auth", LOGIN, COOKIE)

    ran = ralph.well("index", "verify", "--json")

    assert ran.json == {"ok": True, "records": 2, "faults": []}
    assert ralph.well("index", "verify").out == "2 records of the journal are indexed.\n"


DAMAGE = [
    ("DELETE FROM record_1 WHERE number = 1", "is not indexed"),
    ("UPDATE record_1 SET id = 'other' WHERE number = 1", "is indexed, but not in the journal"),
    ("DELETE FROM vector_1 WHERE row = 1", "has no vector"),
    ("UPDATE vector_1 SET v = x'00000000' WHERE row = 1", "has 4 bytes instead of 1024"),
    (f"UPDATE vector_1 SET v = x'{'0000c07f' * 512}'", "contains invalid numbers"),
    ("DELETE FROM passage_1 WHERE row = 1", "passages indexed: 1, should be 2"),
]


@pytest.mark.parametrize(("statement", "told"), DAMAGE)
def test_index_verify_tells_what_is_wrong(
    ralph: Line, project: Path, statement: str, told: str
) -> None:
    ralph.record("auth", LOGIN, COOKIE)
    connection = sqlite3.connect(index_file(project))
    connection.execute(statement)
    connection.commit()
    connection.close()

    ran = ralph("index", "verify", "--json")

    assert ran.code == 1
    assert ran.complaint.endswith("Run: ralph index rebuild")
    assert any(told in fault["what"] for fault in ran.json["faults"])
    assert all(fault["feature"] == "auth" for fault in ran.json["faults"])
    ralph.well("index", "rebuild")
    ralph.well("index", "verify")


def test_index_verify_knows_an_index_that_is_only_behind(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN)
    copy = index_file(project).read_bytes()
    ralph.record("auth", COOKIE)
    index_file(project).write_bytes(copy)

    ran = ralph("index", "verify", "--json")

    assert ran.code == 1
    [fault] = ran.json["faults"]
    assert fault["mends"] is True
    assert fault["todo"] == "The next search catches up by itself."


def test_index_verify_knows_a_file_that_is_no_database(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN)
    index_file(project).write_bytes(b"not a database, by any means" * 100)

    ran = ralph("index", "verify", "--json")

    assert ran.code == 1
    assert "damaged" in ran.json["faults"][0]["what"]


def test_f24_orphans_are_listed_and_pruned(ralph: Line, project: Path, words: None) -> None:
    ralph.record("auth", LOGIN)
    ralph.record("gone", COOKIE)
    (project / ".ralph" / "db" / "memory" / "gone.jsonl").unlink()

    [orphan] = ralph.well("index", "status", "--json").json["orphans"]

    assert "1 collection without a journal" in ralph.well("index", "status").out
    assert ralph.well("index", "prune", "--json").json == {"removed": [orphan]}
    assert ralph.well("index", "prune").out == "There was nothing to remove.\n"
    assert ralph.well("index", "status", "--json").json["orphans"] == []


# -- doctor


def checks(told: Any) -> dict[str, str]:
    return {check["name"]: check["state"] for check in told["checks"]}


def test_doctor_finds_a_fresh_project_in_order(ralph: Line) -> None:
    ralph.record("auth", LOGIN)

    ran = ralph.well("doctor", "--json")

    assert ran.json["ok"] is True
    assert checks(ran.json) == dict.fromkeys(
        [
            "python",
            "sqlite",
            "home",
            "settings",
            "pause",
            "embedder",
            "project",
            "trust",
            "git",
            "leftovers",
            "journal",
            "cache",
            "index",
            "hooks",
            "clients",
            "capture",
            "timeouts",
        ],
        "ok",
    )
    assert list(ran.json["checks"][0]) == ["name", "state", "detail", "todo"]
    assert ralph.well("doctor").out.startswith("ok       python     3.")


def test_doctor_outside_a_project_only_warns(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = ralph.well("doctor", "--json")

    todo = {one["name"]: one["todo"] for one in ran.json["checks"] if one["state"] == "warning"}
    assert todo["hooks"] == "Run: ralph hooks install --user"
    assert checks(ran.json)["project"] == "ok"  # sessions need none


def test_doctor_names_what_is_wrong_and_what_to_do(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.record("auth", LOGIN)
    memory = project / ".ralph" / "db" / "memory"
    (memory / ".gitattributes").unlink()
    with (memory / "auth.jsonl").open("ab") as file:
        file.write(b"torn")
    draft = memory / ".auth.jsonl.1-0.tmp"
    draft.touch()
    os.utime(draft, (0, 0))
    index_file(project).write_bytes(b"not a database, by any means" * 100)
    monkeypatch.setenv("RALPH_SERCH_LIMIT", "5")

    ran = ralph("doctor", "--json")

    assert ran.code == 1
    assert ran.complaint == "ralph: problems found: project, journal, index"
    found = {check["name"]: check for check in ran.json["checks"]}
    assert found["project"]["todo"] == "Run: ralph init"
    assert "auth.jsonl:2" in found["journal"]["detail"]
    assert found["index"]["todo"] == "Run: ralph index rebuild"
    assert "RALPH_SERCH_LIMIT" in found["settings"]["detail"]
    assert draft.name in found["leftovers"]["detail"]


def test_doctor_tells_of_settings_that_cannot_be_read(ralph: Line, project: Path) -> None:
    (project / ".ralph" / "rag_config.json").write_text("{", encoding="utf-8")

    ran = ralph("doctor", "--json")

    assert ran.code == 1
    assert checks(ran.json)["settings"] == "problem"


def test_the_memory_of_a_newer_ralph_is_refused_by_every_command_and_left_alone(
    ralph: Line, project: Path
) -> None:
    ralph.record("auth", LOGIN)
    metadata = project / ".ralph" / "db" / "metadata.yaml"
    metadata.write_text(metadata.read_text(encoding="utf-8") + "format: 2\n", encoding="utf-8")
    files = [file for file in (project / ".ralph").rglob("*") if file.is_file()]
    before = [file.read_bytes() for file in files]
    for words in ("search login", "recent", "remember this", "status", "init", "log", "forget x"):
        ran = ralph(*words.split())
        assert ran.code == 1
        assert "a newer Ralph wrote this memory (format 2; this one reads 1)" in ran.complaint
        assert "Upgrade Ralph. Nothing was changed." in ran.complaint
    told = ralph("doctor", "--json")
    assert (told.code, checks(told.json)["project"]) == (1, "problem")
    assert [file.read_bytes() for file in files] == before
    assert [file for file in (project / ".ralph").rglob("*") if file.is_file()] == files


def test_a_home_of_a_newer_ralph_is_refused(ralph: Line, project: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "format").write_text("format: 2\n", encoding="utf-8")
    ran = ralph("conversations", "list")
    assert ran.code == 1
    assert "a newer Ralph wrote this memory" in ran.complaint


def test_doctor_tells_of_the_index_of_a_newer_ralph(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN)
    index_file(project).with_name("index-v4.sqlite3").write_bytes(b"")
    told = ralph.well("doctor", "--json").json
    [index] = [check for check in told["checks"] if check["name"] == "index"]
    assert index["state"] == "warning"
    assert "a newer Ralph works here too (index-v4.sqlite3)" in index["detail"]


def test_doctor_without_an_embedder_warns(ralph: Line, words: None) -> None:
    assert checks(ralph.well("doctor", "--json").json)["embedder"] == "warning"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_doctor_asks_git_whether_journals_merge(ralph: Line, project: Path, words: None) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    [found] = [c for c in ralph.well("doctor", "--json").json["checks"] if c["name"] == "git"]
    assert found["detail"] == "git cannot merge the plan in this clone yet"
    ralph.well("init")
    assert checks(ralph.well("doctor", "--json").json)["git"] == "ok"
    (project / ".gitignore").write_text(".ralph/\n", encoding="utf-8")
    assert checks(ralph.well("doctor", "--json").json)["git"] == "warning"
    attributes = project / ".ralph" / "db" / "memory" / ".gitattributes"
    attributes.write_text("*.jsonl -merge\n", encoding="utf-8")

    ran = ralph("doctor", "--json")

    assert ran.code == 1
    assert checks(ran.json)["git"] == "problem"


# -- completion, bench


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(ralph: Line, shell: str) -> None:
    assert "_RALPH_COMPLETE" in ralph.well("completion", shell).out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ralph sea", ["search"]),
        ("ralph search --feature a", ["accounts", "auth"]),
        ("ralph recent --feature w", ["web ünï"]),
        ("ralph config min", ["min_score"]),
        ("ralph index re", ["rebuild"]),
        ("ralph search --exp", ["--explain"]),
    ],
)
def test_words_are_completed(
    ralph: Line, words: None, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    for feature in ("auth", "accounts", "web ünï"):
        ralph.record(feature, LOGIN)
    monkeypatch.setenv("_RALPH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))

    told = ralph.well().out.splitlines()

    assert [item.partition(",")[2] for item in told] == offered


def test_features_are_completed_from_the_project_that_was_named(
    ralph: Line, words: None, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.record("auth", LOGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_RALPH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "5")
    monkeypatch.setenv("COMP_WORDS", f"ralph --project {project} search --feature a")

    assert ralph.well().out == "plain,auth\n"


@pytest.mark.parametrize("words", [(), ("speed", "--sizes", "10"), ("--help",)])
def test_bench_says_where_it_went(ralph: Line, words: tuple[str, ...]) -> None:
    ran = ralph("bench", *words)

    assert ran.code == 1
    assert ran.complaint == (
        "ralph: `ralph bench` is no longer part of the package. "
        "Run `scripts/bench NAME` from a clone of the repository."
    )
    assert "bench" not in ralph.well("--help").out


@pytest.mark.skipif(sys.platform == "win32", reason="a link needs a right there")
def test_a_session_note_that_vanishes_meanwhile_is_no_problem(ralph: Line, home: Path) -> None:
    notes = home / "cache" / "hooks" / "one" / "sessions"
    notes.mkdir(parents=True)
    (notes / "gone.jsonl").symlink_to(notes / "deleted")  # listed, but not there

    assert checks(ralph.well("doctor", "--json").json)["capture"] == "ok"
