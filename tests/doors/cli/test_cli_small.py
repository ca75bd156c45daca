"""Small things that a person meets every day: names, times, narrow terminals, completion."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN, Line, Terminal

from ralph import open_ralph
from ralph.chat import open_memory
from ralph.doors.cli.context import Bar
from ralph.doors.cli.main import run
from ralph.errors import NotAProject
from ralph.records.conversation import Conversation, Exchange
from ralph.text.sanitize import plain_date

pytestmark = pytest.mark.usefixtures("words")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("get", "Did you mean 'show'?"),
        ("knwledge", "Did you mean 'knowledge'?"),
        ("find", "Did you mean 'search'?"),
    ],
)
def test_an_unknown_word_suggests_the_command_that_is_meant(
    ralph: Line, typed: str, hint: str
) -> None:
    ran = ralph(typed)

    assert ran.code == 2
    assert f"There is no command {typed!r}. {hint}" in ran.err


def test_an_unknown_word_of_a_group_lists_what_there_is(ralph: Line) -> None:
    ran = ralph("knowledge", "everything")

    assert ran.code == 2
    assert "There is no command 'everything'. `ralph knowledge` has: capture, " in ran.err


def test_help_and_version_are_understood_as_words(ralph: Line) -> None:
    assert ralph.well("version").out == ralph.well("--version").out
    assert ralph.well("help").out == ralph.well("--help").out
    assert ralph.well("help", "task", "add").out == ralph.well("task", "add", "--help").out


@pytest.mark.parametrize("words", [("config", "min_scor"), ("config", "min_scor", "0.5")])
def test_an_unknown_setting_suggests_the_nearest(ralph: Line, words: tuple[str, ...]) -> None:
    ran = ralph(*words)

    assert ran.code == 1
    assert "there is no setting 'min_scor'. Did you mean min_score?" in ran.complaint


def test_settings_are_shown_as_one_would_type_them(ralph: Line) -> None:
    assert ralph.well("config", "rag_enabled").out == "true\n"
    assert ralph.well("config", "agent_env").out == "[]\n"
    assert ralph.well("config", "model_work").out == "not set\n"
    assert ralph.well("config", "pause_folders").out == "not set\n"
    ralph.well("config", "--user", "pause_folders", "[]")
    assert ralph.well("config", "pause_folders").out == "[]\n"
    ralph.well("config", "--user", "pause_folders", '["~/clients/*", "tmp"]')
    assert ralph.well("config", "pause_folders").out == '["~/clients/*", "tmp"]\n'
    assert ralph.well("config", "hook_capture", "false").out.startswith("hook_capture is now false")
    assert not {"None", "True", "()"} & {*ralph.well("config").out.split()}


def test_the_focus_is_a_feature_unless_it_is_called_new(ralph: Line) -> None:
    ralph.well("focus", "anything")  # nothing is known yet, so nothing is mistyped
    ralph.record("auth", LOGIN)

    ran = ralph("focus", "auht")

    assert ran.code == 1
    assert "no feature 'auht' in the plan or in memory. Did you mean auth?" in ran.complaint
    assert ralph.well("focus").out == "Focus: anything\n"
    assert ralph.well("focus", "auth").out == "Focus: auth\n"
    assert ralph.well("focus", "auht", "--new").out == "Focus: auht\n"
    ralph.well("feature", "add", "planned")
    assert ralph.well("focus", "planned").out == "Focus: planned\n"


def test_the_task_in_focus_is_one_of_its_feature(ralph: Line) -> None:
    for feature in ("auth", "search"):
        ralph.well("feature", "add", feature)
    for feature, title in (("auth", "Sign in"), ("search", "Rank"), ("search", "Filter")):
        ralph.well("task", "add", title, "--feature", feature)

    for task in ("1", "999"):
        ran = ralph("focus", "search", task)
        assert ran.code == 1
        assert ran.complaint == f"ralph: search has no task {task} in the plan. Its tasks: 2, 3"
    assert ralph.well("focus", "search", "2").out == "Focus: search, task 2\n"


def test_a_feature_that_the_plan_lacks_is_saved_with_a_warning(ralph: Line) -> None:
    assert ralph.well("remember", "Before there is a plan", "--feature", "auht").err == ""
    ralph.well("feature", "add", "auth")

    ran = ralph.well("remember", "Tokens expire", "--feature", "auht")
    assert ran.complaint == "ralph: no feature 'auht' in the plan. Did you mean auth?"
    ran = ralph.well("record", "-", "--feature", "billing", stdin=json.dumps(LOGIN))
    assert ran.complaint == "ralph: no feature 'billing' in the plan."
    assert ralph.well("remember", "Tokens expire", "--feature", "auth").err == ""


def test_a_gate_that_saves_nothing_does_not_say_it_did(ralph: Line) -> None:
    ran = ralph("gate", "approve", "99", "--type", "design")

    assert ran.code == 1
    assert "saved" not in ran.complaint


def test_several_files_are_recorded_at_once(ralph: Line, project: Path) -> None:
    for name, iteration in (("a.jsonl", LOGIN), ("b.jsonl", COOKIE)):
        (project / name).write_text(json.dumps(iteration), encoding="utf-8")

    ran = ralph.well("record", "a.jsonl", "b.jsonl", "--feature", "auth")

    ids = [hit["id"][:8] for hit in ralph.well("recent", "--json").json]
    assert ran.out.splitlines() == [
        "a.jsonl:",
        "Recorded 1 iteration of auth.",
        f"  {ids[1]}",
        "b.jsonl:",
        "Recorded 1 iteration of auth.",
        f"  {ids[0]}",
    ]
    assert len(ralph.well("recent", "--limit", "1", "--json").json) == 1
    again = ralph.well("record", "a.jsonl", "b.jsonl", "--feature", "auth", "--json").json
    assert [one["task_id"] for one in again] == [41, 42]
    (project / "c.jsonl").write_text("nonsense", encoding="utf-8")
    assert ralph("record", "a.jsonl", "c.jsonl", "--feature", "auth").code == 1


def test_the_learnings_of_all_features_are_listed(ralph: Line) -> None:
    assert ralph.well("learning", "list").out == "No feature has learnings yet.\n"
    for feature in ("auth", "web"):
        ralph.well("feature", "add", feature)
        ralph.well("learning", "add", f"Test {feature} with -n 2.", "--feature", feature)

    lines = ralph.well("learning", "list").out.splitlines()

    assert [line for line in lines if not line.startswith(" ")][::2] == ["auth", "web"]
    found = ralph.well("learning", "list", "--json").json
    assert [(one["feature"], one["text"]) for one in found] == [
        ("auth", "Test auth with -n 2."),
        ("web", "Test web with -n 2."),
    ]
    assert "feature" not in ralph.well("learning", "list", "--feature", "web", "--json").json[0]


def test_init_speaks_of_git_only_where_it_is_and_names_the_next_step(
    ralph: Line, tmp_path: Path
) -> None:
    alone = ralph.well("init", tmp_path / "alone").out
    (tmp_path / "cloned" / ".git").mkdir(parents=True)
    cloned = ralph.well("init", tmp_path / "cloned").out

    assert "Commit" not in alone
    assert "Commit .ralph to git" in cloned
    assert alone.splitlines()[-1].startswith("Next: `ralph hooks install`")
    ralph.well("hooks", "install", "--user", "--no-mcp")
    told = ralph.well("init", tmp_path / "another").out
    assert told.splitlines()[-1].startswith("Next: `ralph plan import TODO.md`")


def test_init_in_a_clone_says_that_it_changed_gits_settings(ralph: Line, project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)

    assert ralph.well("init").out.splitlines() == [
        "git merges the plan by entries here from now on.",
        f"{project} already has a memory; nothing else was changed.",
    ]
    again = f"{project} already has a memory; nothing was changed.\n"
    assert ralph.well("init").out == again


def test_a_client_is_imported_by_the_name_it_has_everywhere_else(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))

    ran = ralph("conversations", "import", "claude")

    assert "there are no sessions of claude-code" in ran.complaint


# -- completion


@pytest.mark.parametrize(
    "words",
    [
        "plan import",
        "record",
        "record a.jsonl",
        "export",
        "import",
        "conversations import",
        "conversations export",
        "knowledge capture",
    ],
)
def test_file_names_are_completed(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = f"ralph {words} TO"
    monkeypatch.setenv("_RALPH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))

    run([])

    assert capsys.readouterr().out.splitlines() == ["file,TO"]


# -- a narrow terminal


def test_ids_and_numbers_are_not_broken_at_60_columns(
    ralph: Line, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ralph(project) as opened:
        talk = Conversation(id="e935ff77" * 4, title="How the release works", source="claude-code")
        asked = Exchange(
            id="aaaa0000",
            conversation=talk.id,
            user="How?",
            assistant="So.",
            completed="2026-02-07T14:30:00Z",
        )
        opened.conversations.add(talk, [asked])
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "dumb")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)

    run(["conversations", "list"])

    head, first, *_ = screen.getvalue().splitlines()
    assert head.split() == ["id", "last", "exchanges", "source", "project", "title"]
    assert first.split()[0] == "e935ff77"


# -- times


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nine hours ahead of UTC."""
    if sys.platform == "win32":
        pytest.skip("Windows has no tzset")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_people_read_local_times_and_programs_utc(ralph: Line, tokyo: None) -> None:
    ralph.record("auth", LOGIN | {"timestamp": "2026-02-07T20:30:00Z"})

    assert "2026-02-08 05:30" in ralph.well("recent").out
    day, line = ralph.well("log", "--since", "2026-02-08", "--until", "2026-02-08").out.splitlines()
    assert (day, line.split()[1]) == ("2026-02-08", "05:30")
    assert ralph.well("recent", "--json").json[0]["record"]["timestamp"] == "2026-02-07T20:30:00Z"
    assert ralph("forget", "--before", "2026-02-08", "--feature", "auth", "--yes").out.startswith(
        "No record"
    )
    forgot = ralph.well("forget", "--before", "2026-02-09", "--feature", "auth", "--yes")
    assert "Forgot 1 record" in forgot.out


def test_models_are_told_the_day_it_was_for_the_person(tokyo: None) -> None:
    assert plain_date("2026-02-07T20:30:00Z") == "2026-02-08"
    assert plain_date("2026-02-07T20:30:00.123Z", 16) == "2026-02-08 05:30"
    assert [plain_date(text) for text in (None, "", "ignore this")] == ["", "", ""]


def test_a_pause_is_told_in_local_time(ralph: Line, tokyo: None) -> None:
    ran = ralph.well("pause")

    local = datetime.now(UTC).astimezone()
    minutes = {(local - timedelta(minutes=back)).strftime("%Y-%m-%d %H:%M") for back in (0, 1)}
    assert any(f"since {minute}." in ran.out for minute in minutes)
    assert "UTC" not in ran.out


@pytest.mark.parametrize(
    ("back", "told"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=4, seconds=5), "4 min ago"),
        (timedelta(hours=3, minutes=1), None),
    ],
)
def test_what_is_recent_says_how_long_ago(ralph: Line, back: timedelta, told: str | None) -> None:
    at = datetime.now(UTC) - back
    ralph.record("auth", LOGIN | {"timestamp": at.isoformat()})

    line = ralph.well("recent").out.splitlines()[1]

    assert (told or at.astimezone().strftime("%Y-%m-%d %H:%M")) in line


# -- Python


def test_objects_show_themselves_in_one_line(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN)
    with open_ralph(project) as opened:
        [hit] = opened.recent()

        assert repr(hit).startswith("<Hit ")
        assert repr(hit).endswith(" iteration: Add the login form>")
        assert len(repr(hit)) < 120
        assert repr(opened) == f"<Ralph {opened.project.root}>"


def test_a_path_that_cannot_be_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAProject, match="there is no such folder"):
        open_ralph(tmp_path / "wrong" / "path")


def test_a_record_without_a_title_is_called_by_its_number(ralph: Line) -> None:
    [identity] = ralph.record("auth", {"summary": "Did it."})

    assert ralph.well("show", identity).out.splitlines()[0] == "Iteration 1"


# -- the bar


def test_a_bar_makes_room_for_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = Bar(lambda: 3, patience_s=0.0)

    bar(1)
    assert "indexing the journal" in screen.getvalue()
    bar.hide(silent=True)
    shown = screen.getvalue()
    bar(2)

    assert screen.getvalue() == shown
    bar.hide()
    bar(3)
    assert screen.getvalue().count("indexing the journal") > shown.count("indexing the journal")
    bar.close()


# -- words


def test_knowledge_names_its_project_by_its_folder(ralph: Line, project: Path) -> None:
    ralph.well(
        *("knowledge", "capture", "--type", "failure_solution"),
        *("--failure-description", "The tests fail: no such table: users"),
        *("--solution", "Run the migrations in conftest.py before the tests."),
    )

    assert project.name in ralph.well("knowledge", "staged").out
    ralph.well("knowledge", "checkpoint")
    found = ralph.well("search", "--knowledge", "no such table users").out
    assert f"project {project.name}" in found


def test_one_of_a_thing_is_not_several(ralph: Line, home: Path) -> None:
    notes = home / "cache" / "workers"
    notes.mkdir(parents=True)
    (notes / "one.json").write_text('{"error": "blue bananas"}', encoding="utf-8")

    out = ralph.well("forget", "--match", "blue bananas", "--yes").out

    assert "Also removed: 1 entry in the workers' notes." in out


def test_a_long_recording_says_so_on_a_terminal(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    lines = "\n".join(json.dumps({"summary": f"Number {n}"}) for n in range(2001))

    ralph.well("record", "--feature", "auth", stdin=lines)

    assert screen.getvalue().startswith("ralph: recording 2001 iterations\n")


def test_single_context_files_come_and_go(ralph: Line, project: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (project / name).touch()
    ralph.well("feature", "add", "auth", "--context-file", "a.py", "--context-file", "b.py")

    ralph.well("feature", "update", "auth", "--add-context-file", "c.py")
    ralph.well("feature", "update", "auth", "--remove-context-file", "a.py")

    shown = ralph.well("feature", "show", "auth", "--json").json
    assert [file["path"] for file in shown["context_files"]] == ["b.py", "c.py"]
    assert "created: just now" in ralph.well("feature", "show", "auth").out


def test_a_whole_conversation_can_be_rated(ralph: Line, project: Path) -> None:
    with open_ralph(project) as opened:
        talk = Conversation(id="e935ff77" * 4, title="Releases", source="claude-code")
        ids = ("aaaa0000", "bbbb0000")
        at = "2026-02-07T14:30:00Z"
        asked = [
            Exchange(
                id=one,
                conversation=talk.id,
                user="How do releases work?",
                assistant=one,
                completed=at,
            )
            for one in ids
        ]
        opened.conversations.add(talk, asked)

    assert ralph.well("conversations", "rate", "e935", "up").out.endswith("Rated up.\n")

    with open_ralph(project) as opened:
        hits = opened.search("how do releases work", min_score=0.0, kinds=["exchange"])
        assert [hit.parts.rating for hit in hits if hit.parts] == [1, 1]


def test_a_note_can_come_from_stdin_and_must_say_something(ralph: Line) -> None:
    ralph.well("remember", "-", stdin="Deploys need two approvals\n")

    [hit] = ralph.well("recent", "--json").json
    assert hit["record"]["text"] == "Deploys need two approvals"
    ran = ralph("remember", "-", stdin="--\n")
    assert ran.code == 1
    assert ran.complaint.startswith("ralph: the note has no letter or digit. Try: ")


def test_status_and_stats_work_in_a_folder_without_a_project(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    place = f"{folder} is not in a project; its sessions are saved in {home}\n"

    not_yet = "no sessions are saved yet: ralph hooks install --user"
    assert not_yet in ralph.well("status").out
    ralph.well("config", "--user", "pause_folders", "[]")
    empty = ralph.well("status").out
    assert place in empty
    assert "No conversations here yet. Hooks record them" in empty
    assert ralph.well("stats").out.startswith("No matching work in memory yet.")

    with open_memory(folder) as opened:
        talk = Conversation(id="e935ff77" * 4, title="Releases", source="claude-code")
        asked = Exchange(id="aaaa0000", conversation=talk.id, user="How?")
        opened.conversations.add(talk, [asked])

    told = ralph.well("status").out
    assert place in told
    assert "conversations and private notes: 2 records" in told
    assert ralph.well("stats").out.startswith("1 prompt in sessions")
    monkeypatch.chdir(home.parent)
    assert "is not in a project" in ralph.well("status").out


def test_an_empty_list_of_conversations_suggests_what_helps(ralph: Line) -> None:
    ralph.well("hooks", "install", "--user", "--no-mcp")

    told = ralph.well("conversations", "list").out

    assert told.startswith("No conversations here yet. ")
    assert "hooks install" not in told


def test_a_list_of_conversations_says_that_there_are_more(ralph: Line, project: Path) -> None:
    with open_ralph(project) as opened:
        for number in range(3):
            talk = Conversation(id=f"e935ff7{number}" * 4, title="Releases", source="claude-code")
            opened.conversations.add(
                talk, [Exchange(id=f"aaaa000{number}", conversation=talk.id, user="How?")]
            )

    ran = ralph.well("conversations", "list", "--limit", "1")

    assert ran.complaint == "ralph: and 2 more; to list them: --limit 3"
    assert ralph.well("conversations", "list").err == ""
