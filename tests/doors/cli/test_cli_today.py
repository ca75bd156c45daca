"""`ralph` alone: today's sessions, what was told, a mistake, open ends, and the next command."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from commanding import COOKIE, Line

from ralph.memory.activity import note_activity
from ralph.state_folders import hooks_folder, state_folder

MESSAGE = "unrecognized subcommand 'bun'"
FIX = "`bun run test` instead of `rtk bun run test` passed."


def at(*, days: int = 0, minutes: int = 0) -> str:
    """A time so long before now, and never on another day than wanted."""
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    return (noon - timedelta(days=days) + timedelta(minutes=minutes)).isoformat()


def session(number: int, when: str, **more: Any) -> dict[str, Any]:
    exchange = {
        "user": f"Build the {number}. part of the export.",
        "assistant": "It is built.",
        "started": when,
        "completed": when,
    }
    return {"title": f"Export, part {number}", "exchanges": [exchange | more]}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Two folders without `.ralph`, and an empty one, which is the current folder."""
    found = {name: tmp_path / name for name in ("shop", "billing", "empty")}
    for folder in found.values():
        folder.mkdir()
    monkeypatch.chdir(found["empty"])
    return found


def import_into(ralph: Line, folder: Path, *sessions: dict[str, Any]) -> None:
    ralph.well("--project", folder, "conversations", "import", "-", stdin=json.dumps(sessions))


def test_without_any_memory_the_next_command_sets_it_up(
    ralph: Line, folders: dict[str, Path]
) -> None:
    said = ralph.well().out

    assert said.startswith("No sessions are in memory yet.\n")
    assert "Next: ralph hooks install --user" in said
    assert "ralph --help" in said


def test_the_sessions_of_today_are_those_of_all_projects(
    ralph: Line, folders: dict[str, Path]
) -> None:
    import_into(ralph, folders["shop"], session(1, at(days=1)), session(2, at()))
    import_into(ralph, folders["billing"], session(3, at(minutes=1)))

    found = ralph.well("today", "--json").json

    assert found["is_today"] is True
    assert [(one["project"], one["title"]) for one in found["sessions"]] == [
        ("billing", "Export, part 3"),
        ("shop", "Export, part 2"),
    ]
    said = ralph.well().out
    assert said.startswith("Today: 2 sessions, 2 exchanges\n")
    assert "billing: Export, part 3" in said


def test_before_the_first_session_of_a_day_the_last_day_is_shown(
    ralph: Line, folders: dict[str, Path]
) -> None:
    import_into(ralph, folders["shop"], session(1, at(days=3)), session(2, at(days=9)))

    found = ralph.well("today", "--json").json

    assert found["is_today"] is False
    assert [one["title"] for one in found["sessions"]] == ["Export, part 1"]
    assert ralph.well().out.startswith(f"Nothing yet today. Last active on {found['day']}: ")


def test_a_mistake_of_three_sessions_is_shown_with_its_fix(
    ralph: Line, folders: dict[str, Path]
) -> None:
    error = {"message": MESSAGE, "error_type": "runtime", "resolution": FIX}
    sessions = [session(day, at(days=day), errors=[error]) for day in (3, 2)]
    import_into(ralph, folders["shop"], *sessions)
    assert ralph.well("today", "--json").json["highlight"] is None

    import_into(ralph, folders["shop"], session(1, at(days=1), errors=[error]))

    found = ralph.well("today", "--json").json["highlight"]
    assert (found["kind"], found["times"], found["project"]) == ("mistake", 3, "shop")
    said = ralph.well().out
    assert f"A mistake made in 3 sessions of shop: {MESSAGE}\n  Fix: {FIX}\n" in said
    assert f"ralph show {found['id'][:8]}" in said
    assert MESSAGE in ralph.well("show", found["id"][:8]).out


def test_without_a_mistake_the_newest_decision_is_shown(
    ralph: Line, folders: dict[str, Path]
) -> None:
    rules = ("We never use floats for money.", "Always run the migrations by hand.")
    for day, rule in zip((5, 4), rules, strict=True):
        decision = {"description": rule, "source": "human"}
        import_into(ralph, folders["shop"], session(day, at(days=day), decisions=[decision]))

    found = ralph.well("today", "--json").json["highlight"]

    assert (found["kind"], found["text"]) == ("decision", rules[1])
    assert f"You decided in shop on {at(days=4)[:10]}: {rules[1]}" in ralph.well().out


def test_a_decision_that_was_replaced_is_not_shown(
    ralph: Line, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders["shop"])
    decision = {"description": "We never use floats for money.", "source": "human"}
    import_into(ralph, folders["shop"], session(4, at(days=4), decisions=[decision]))
    shown = ralph.well("today", "--json").json["highlight"]
    assert shown["text"] == decision["description"]

    ralph.well("remember", "Prices are decimals now.", "--replaces", shown["id"])

    assert ralph.well("today", "--json").json["highlight"] is None


def test_a_stopped_session_is_open_and_comes_next(
    ralph: Line, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.well("hooks", "install", "--user", "--no-mcp")
    stopped = session(1, at(), status="interrupted")
    import_into(ralph, folders["shop"], stopped, session(2, at(days=30), status="interrupted"))

    found = ralph.well("today", "--json").json

    [work] = found["open_work"]
    assert (work["kind"], work["project"], work["text"]) == ("stopped", "shop", "Export, part 1")
    assert found["next"] == f"ralph show {work['id'][:8]} (where you stopped)"
    assert ralph.well("show", work["id"][:8]).out


def test_what_sessions_were_told_today_is_counted(
    ralph: Line, folders: dict[str, Path], home: Path
) -> None:
    log = Path(hooks_folder(folders["shop"], home))
    log.mkdir(parents=True)
    for shown in (["a", 0.9], ["b", 0.8]), (["a", 0.9],):
        note_activity(str(log), "user-prompt-submit", "s1", shown=list(shown))
    note_activity(str(log), "user-prompt-submit", "s2", shown=[["a", 0.9]])

    found = ralph.well("today", "--json").json

    assert (found["told"], found["told_sessions"]) == (3, 2)
    assert "Told today: 3 memories in 2 sessions." in ralph.well().out


def test_a_project_with_a_ready_task_is_offered_the_loop(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    ralph.well("feature", "add", "export")
    ralph.well("task", "add", "--feature", "export", "Write the CSV file")
    ralph.record("export", COOKIE | {"timestamp": datetime.now(UTC).isoformat()})

    found = ralph.well("today", "--json").json

    assert found["iterations"] == {"failure": 1}
    assert found["next"] == "ralph run (1 task ready, first: Write the CSV file)"


def test_an_agent_in_its_run_gets_the_help_instead(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_into(ralph, project, session(1, at()))
    monkeypatch.setenv("RALPH_FEATURE", "export")
    monkeypatch.setenv("RALPH_TASK", "1")

    ran = ralph()

    assert "Export, part 1" not in ran.out
    assert "Usage:" in ran.out


def test_a_damaged_inbox_is_warned_of_and_hides_nothing_else(
    ralph: Line, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import_into(ralph, folders["shop"], session(1, at()))
    monkeypatch.chdir(folders["shop"])
    state = Path(state_folder(folders["shop"]))
    state.mkdir(parents=True, exist_ok=True)
    (state / "inbox.json").write_text("{")
    ran = ralph.well()
    assert "Export, part 1" in ran.out
    assert "inbox's answers cannot be read" in ran.complaint
