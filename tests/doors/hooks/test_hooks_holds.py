"""PreToolUse: a command that is a proven repeat is held once, and only with a person there."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
from hooking import Hooked, Session, exchanges, log
from momenting import (
    HEADLESS,
    UNKNOWN,
    about_to_run,
    table,
    two_sessions_with_rtk,
    wrong_then_right,
)

from ralph import disk
from ralph.memory import keeping
from ralph.memory.activity import read_activity
from ralph.memory.moments_table import table_file
from ralph.memory.ralph import open_ralph
from ralph.state_folders import hooks_folder


def reason(hooked: Hooked) -> str:
    """Why a call is held; "" if it is not."""
    if not hooked.out:
        return ""
    said = json.loads(hooked.out)["hookSpecificOutput"]
    assert said["hookEventName"] == "PreToolUse"
    assert said["permissionDecision"] == "deny"
    return str(said["permissionDecisionReason"])


def test_a_command_that_failed_in_two_sessions_is_held_once_with_its_fix(
    project: Path, tmp_path: Path
) -> None:
    two_sessions_with_rtk(project, tmp_path)
    session = Session(project, tmp_path)

    text = reason(about_to_run(session, "cd web && CI=1 rtk bun run test 2>&1 | tail -20"))

    assert "\n" not in text
    assert "It failed in 2 earlier sessions, the last on 2026-11-03" in text
    assert "unrecognized subcommand 'bun'" in text
    assert "What worked instead: `bun run test`" in text
    assert "run it again to go ahead" in text
    assert reason(about_to_run(session, "cd web && CI=1 rtk bun run test 2>&1 | tail -20")) == ""
    assert log(project) == []
    shown = read_activity(hooks_folder(project, disk.home()), session.name)
    assert [(one.event, len(one.shown)) for one in shown] == [("pre-tool-use", 1)]


def test_a_held_command_stays_held_once_after_a_compaction(project: Path, tmp_path: Path) -> None:
    two_sessions_with_rtk(project, tmp_path)
    session = Session(project, tmp_path)
    assert reason(about_to_run(session, "rtk bun run test"))

    session.hook("session-start", source="compact")

    assert reason(about_to_run(session, "rtk bun run test")) == ""


@pytest.mark.parametrize(
    "command",
    ["bun run test", "rtk git status", "rtk bun run test || bun run test", "echo rtk bun run test"],
)
def test_other_commands_run(project: Path, tmp_path: Path, command: str) -> None:
    two_sessions_with_rtk(project, tmp_path)
    assert about_to_run(Session(project, tmp_path), command).out == ""


def test_one_session_is_no_proof(project: Path, tmp_path: Path) -> None:
    wrong_then_right(
        project, tmp_path, "rtk bun run test", UNKNOWN, "bun run test", began="2026-11-02T10:00:00Z"
    )
    assert table(project) == []
    assert about_to_run(Session(project, tmp_path), "rtk bun run test").out == ""


def test_a_command_that_passed_since_is_not_held(project: Path, tmp_path: Path) -> None:
    two_sessions_with_rtk(project, tmp_path)
    assert table(project)
    later = Session(project, tmp_path, began="2026-11-04T10:00:00Z")
    later.prompts("Run the tests with the new rtk")
    later.runs("rtk bun run test", "12 pass\n0 fail")
    later.says("They pass.")
    later.hook("stop", last_assistant_message="They pass.")

    assert table(project) == []
    assert about_to_run(Session(project, tmp_path), "rtk bun run test").out == ""


def test_at_most_two_commands_are_held_in_a_session(project: Path, tmp_path: Path) -> None:
    calls = {"rtk bun run test": "bun run test"}
    for program in ("aaa", "bbb"):
        calls[f"{program} --check x"] = f"/opt/{program} --check x"
    for day in ("02", "03"):
        for wrong, right in calls.items():
            name = wrong.partition(" ")[0]
            output = UNKNOWN if name == "rtk" else f"Exit code 127\nbash: {name}: command not found"
            began = f"2026-11-{day}T10:00:00Z"
            wrong_then_right(project, tmp_path, wrong, output, right, began=began)
    assert len(table(project)) == 3
    session = Session(project, tmp_path)

    held = [bool(reason(about_to_run(session, command))) for command in calls]

    assert held == [True, True, False]


@pytest.mark.parametrize(
    "environ",
    [
        HEADLESS,
        {"CLAUDE_CODE_SESSION_ATTENDED": "", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli"},
        {"RALPH_FEATURE": "shop", "RALPH_TASK": "1"},  # in `ralph run`
        {"RALPH_HOOK_HOLDS": "false"},
        {"RALPH_HOOK_INJECT": "false"},
    ],
)
def test_nothing_is_held_without_a_person_or_where_it_is_turned_off(
    project: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    two_sessions_with_rtk(project, tmp_path)
    assert about_to_run(Session(project, tmp_path), "rtk bun run test", environ).out == ""


def test_a_setting_holds_without_a_person_too(project: Path, tmp_path: Path) -> None:
    two_sessions_with_rtk(project, tmp_path)
    environ = {**HEADLESS, "RALPH_HOOK_HOLDS_UNATTENDED": "true"}
    assert reason(about_to_run(Session(project, tmp_path), "rtk bun run test", environ))


def test_what_was_forgotten_is_not_in_the_table_any_more(project: Path, tmp_path: Path) -> None:
    two_sessions_with_rtk(project, tmp_path)
    [row] = table(project)

    with open_ralph(project) as ralph:
        keeping.forget(ralph, keeping.choose(ralph, ids=[row.id]))

    assert table(project) == []
    assert about_to_run(Session(project, tmp_path), "rtk bun run test").out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_table_is_private_and_has_no_secrets(project: Path, tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    for day in ("02", "03"):
        wrong_then_right(
            project,
            tmp_path,
            f"rtk bun run test --token {secret}",
            UNKNOWN,
            f"bun run test --token {secret}",
            began=f"2026-11-{day}T10:00:00Z",
        )
    file = Path(table_file(str(project), disk.home()))
    if file.exists():
        assert secret not in file.read_text(encoding="utf-8")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    two_sessions_with_rtk(project, tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_damaged_table_is_silent(project: Path, tmp_path: Path) -> None:
    two_sessions_with_rtk(project, tmp_path)
    file = Path(table_file(str(project), disk.home()))
    file.write_bytes(b"repeat\tcommand\trtk bun\n\xff\xfe rtk\nrepeat\tcommand\trtk bun\tx\ty\t{\n")
    assert about_to_run(Session(project, tmp_path), "rtk bun run test").out == ""


def test_a_held_call_is_no_error_of_the_session(project: Path, tmp_path: Path) -> None:
    two_sessions_with_rtk(project, tmp_path)
    session = Session(project, tmp_path, began="2026-11-04T10:00:00Z")
    session.prompts("Run the tests, please")
    text = reason(about_to_run(session, "rtk bun run test"))
    session.runs("rtk bun run test", f"PreToolUse:Bash hook error: {text}", failed=True)
    session.runs("bun run test", "12 pass\n0 fail")
    session.says("All 12 tests pass.")
    session.hook("stop", last_assistant_message="All 12 tests pass.")

    [exchange] = [one for one in exchanges(project) if one.started and "11-04" in one.started]
    assert exchange.errors == ()
    assert [row.count for row in table(project)] == [2]
