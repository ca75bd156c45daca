"""A person's corrections come to the inbox; approved ones hold a call or ask about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hooking import Hooked, Session, log
from momenting import HEADLESS, UNKNOWN, about_to_open, about_to_run, table

from ralph import disk
from ralph.doors.cli.main import run
from ralph.errors import BadInput, NotFound
from ralph.memory import keeping
from ralph.memory.inbox import Check, answer, find, inbox, take_back
from ralph.memory.ralph import open_ralph
from ralph.state_folders import state_folder

MIGRATE = "never run the migrations here"


def corrected(project: Path, folder: Path, *rules: str) -> None:
    """A session that runs some commands, and is corrected."""
    session = Session(project, folder)
    session.prompts("Add a column for discounts to the orders, please")
    session.runs("npm install", "added 3 packages")
    session.runs("python manage.py migrate", "Running migrations: OK")
    session.writes("src/gen/api.py")
    session.says("I added the column and ran the migrations.")
    for rule in rules:
        session.prompts(rule)
        session.says("Understood.")
    session.hook("stop", last_assistant_message="Understood.")
    session.hook("session-end", reason="other")


def rules(project: Path) -> list[Check]:
    with open_ralph(project) as ralph:
        return inbox(ralph)


def decision(hooked: Hooked) -> tuple[str, str]:
    """What is done with a call, and why."""
    if not hooked.out:
        return "", ""
    said = json.loads(hooked.out)["hookSpecificOutput"]
    return said["permissionDecision"], said["permissionDecisionReason"]


def test_a_correction_waits_in_the_inbox_and_does_nothing(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, MIGRATE, "use pnpm please", "The names look good now.")

    checks = rules(project)

    assert [(one.text, [each.key for each in one.targets], one.action) for one in checks] == [
        ("use pnpm please", ["npm"], ""),
        (MIGRATE, ["python | manage.py migrate"], ""),
    ]
    assert table(project) == []
    session = Session(project, tmp_path)
    assert about_to_run(session, "python manage.py migrate").out == ""


def test_an_approved_rule_holds_once_a_session_and_says_it(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, MIGRATE)
    [check] = rules(project)
    with open_ralph(project) as ralph:
        answer(ralph, check.id[:6], "hold")
    session = Session(project, tmp_path)

    done, why = decision(about_to_run(session, "cd api && python manage.py migrate --plan"))

    assert done == "deny"
    assert f'The rule of 2026-11-02: "{MIGRATE}"' in why
    assert "Follow the rule." in why
    assert decision(about_to_run(session, "python manage.py migrate")) == ("", "")
    assert about_to_run(session, "python manage.py shell").out == ""
    assert log(project) == []


def test_an_approved_rule_holds_without_a_person_at_the_client_too(
    project: Path, tmp_path: Path
) -> None:
    corrected(project, tmp_path, MIGRATE)
    with open_ralph(project) as ralph:
        answer(ralph, inbox(ralph)[0].id, "hold")
    held = about_to_run(Session(project, tmp_path), "python manage.py migrate", HEADLESS)
    assert decision(held)[0] == "deny"


def test_a_rule_that_asks_asks_every_time(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, "From now on, let me commit.")
    [check] = rules(project)
    assert check.suggested == "ask"
    with open_ralph(project) as ralph:
        answer(ralph, check.id, "ask")
    session = Session(project, tmp_path)
    for _ in range(3):
        done, why = decision(about_to_run(session, 'git add -A && git commit -m "Add it"'))
        assert done == "ask"
        assert "because of a rule that you approved" in why


def test_a_rule_about_files_holds_edits_and_not_reads(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, "never edit the files in src/gen by hand")
    with open_ralph(project) as ralph:
        answer(ralph, inbox(ralph)[0].id, "hold")
    session = Session(project, tmp_path)
    assert about_to_open(session, "src/gen/api.py", "Read").out == ""
    assert decision(about_to_open(session, "src/gen/new.py", "Write"))[0] == "deny"
    assert about_to_open(session, "src/app.py", "Write").out == ""


def test_a_person_can_say_what_a_rule_is_about(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, MIGRATE)
    with open_ralph(project) as ralph:
        answer(ralph, inbox(ralph)[0].id, "hold", command="alembic upgrade")
    session = Session(project, tmp_path)
    assert about_to_run(session, "python manage.py migrate").out == ""
    assert decision(about_to_run(session, "alembic upgrade head"))[0] == "deny"
    with open_ralph(project) as ralph, pytest.raises(BadInput, match="is no command"):
        answer(ralph, inbox(ralph)[0].id, "hold", command="  ")


@pytest.mark.parametrize("switch", ["RALPH_HOOK_CHECKS", "RALPH_HOOK_INJECT"])
def test_a_setting_turns_checks_off(project: Path, tmp_path: Path, switch: str) -> None:
    corrected(project, tmp_path, MIGRATE)
    with open_ralph(project) as ralph:
        answer(ralph, inbox(ralph)[0].id, "hold")
    session = Session(project, tmp_path)
    environ = {switch: "false"}
    assert about_to_run(session, "python manage.py migrate", environ).out == ""


def test_what_was_dismissed_or_taken_back_holds_nothing(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, MIGRATE)
    with open_ralph(project) as ralph:
        [check] = inbox(ralph)
        answer(ralph, check.id, "hold")
        take_back(ralph, check.id)
        assert [one.action for one in inbox(ralph)] == [""]
        answer(ralph, check.id, "dismissed")
        assert inbox(ralph) == []
        assert [one.action for one in inbox(ralph, every=True)] == ["dismissed"]
        with pytest.raises(NotFound, match="no rule 'abcd'"):
            find(ralph, "abcd")
    assert about_to_run(Session(project, tmp_path), "python manage.py migrate").out == ""


def test_a_forgotten_correction_holds_nothing_and_leaves_nothing(
    project: Path, tmp_path: Path
) -> None:
    corrected(project, tmp_path, MIGRATE)
    with open_ralph(project) as ralph:
        [check] = inbox(ralph)
        answer(ralph, check.id, "hold")
        keeping.forget(ralph, keeping.choose(ralph, ids=[check.record]))
        assert inbox(ralph, every=True) == []
    assert table(project) == []
    file = Path(state_folder(project, disk.home())) / "inbox.json"
    assert "migrate" not in file.read_text(encoding="utf-8")


# -- A cloned repository.


def test_a_clones_note_is_only_a_candidate(project: Path, tmp_path: Path) -> None:
    with open_ralph(project) as ralph:
        ralph.remember("never run `make test` here")
        assert [one.action for one in inbox(ralph)] == [""]
    assert [row for row in table(project) if row.kind != "file"] == []
    assert about_to_run(Session(project, tmp_path), "make test").out == ""


def test_an_inbox_file_in_the_project_approves_nothing(project: Path, tmp_path: Path) -> None:
    with open_ralph(project) as ralph:
        ralph.remember("never run `make test` here")
        [check] = inbox(ralph)
        answer(ralph, check.id, "hold")
        home_file = ralph.project.cache / "inbox.json"
        planted = home_file.read_bytes()
        home_file.unlink()
        for folder in (project / ".ralph", project / ".ralph" / "cache", project / ".ralph" / "db"):
            folder.mkdir(exist_ok=True)
            (folder / "inbox.json").write_bytes(planted)
        take_back(ralph, check.id)
        assert [one.action for one in inbox(ralph)] == [""]
    assert about_to_run(Session(project, tmp_path), "make test").out == ""


def test_an_approval_belongs_to_the_words_that_the_person_saw(
    project: Path, tmp_path: Path
) -> None:
    """A pull can change a journal: a record with the same id and other words is not approved."""
    with open_ralph(project) as ralph:
        ralph.remember("never run `make publish` here")
        [check] = inbox(ralph)
        answer(ralph, check.id, "hold")
    [journal] = (project / ".ralph" / "db" / "memory").glob("*.jsonl")
    data = journal.read_bytes()
    assert b"make publish" in data
    journal.write_bytes(data.replace(b"make publish", b"make checkit"))
    with open_ralph(project) as ralph:
        actions = {one.text: one.action for one in inbox(ralph)}
        ralph.remember("The staging database resets every night.")
    assert actions.get("never run `make checkit` here", "") == ""
    session = Session(project, tmp_path)
    assert about_to_run(session, "make checkit").out == ""


def test_a_damaged_answers_file_is_reported_and_other_moments_go_on(
    project: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corrected(project, tmp_path, MIGRATE)
    file = Path(state_folder(project, disk.home())) / "inbox.json"
    disk.make_folder(file.parent)
    disk.write(file, b"{not json")
    monkeypatch.chdir(project)
    assert run(["inbox"]) == 1
    assert "the inbox's answers cannot be read" in capsys.readouterr().err
    assert about_to_run(Session(project, tmp_path), "python manage.py migrate").out == ""


# -- `ralph inbox`


@pytest.fixture
def ralph_in(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.chdir(project)

    def call(*words: str, code: int = 0) -> str:
        assert run(words) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return call


def test_the_command_lists_and_answers(
    project: Path, tmp_path: Path, ralph_in: Callable[..., str]
) -> None:
    assert "Nothing is in the inbox." in ralph_in("inbox")
    corrected(project, tmp_path, MIGRATE)

    text = ralph_in("inbox")
    [check] = json.loads(ralph_in("inbox", "--json"))

    assert f"{check['id'][:8]}  waits: `python manage.py migrate`" in text
    assert f'"{MIGRATE}"' in text
    assert f"To choose: ralph inbox hold {check['id'][:8]}" in text
    held = ralph_in("inbox", "hold", check["id"][:8])
    assert "`python manage.py migrate` is held once a session." in held
    assert "held: `python manage.py migrate`" in ralph_in("inbox")
    assert "waits again" in ralph_in("inbox", "undo", check["id"][:8])
    assert "is dismissed" in ralph_in("inbox", "dismiss", check["id"][:8])
    assert check["id"][:8] not in ralph_in("inbox")
    assert check["id"][:8] in ralph_in("inbox", "--all")
    assert "say which rule" in ralph_in("inbox", "hold", code=1)
    assert "say for which rule" in ralph_in("inbox", "--path", "x", code=1)


def test_an_agent_in_a_run_approves_nothing(
    project: Path, tmp_path: Path, ralph_in: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected(project, tmp_path, MIGRATE)
    [check] = rules(project)
    monkeypatch.setenv("RALPH_FEATURE", "shop")
    monkeypatch.setenv("RALPH_TASK", "1")
    assert "inbox" in ralph_in("inbox", "hold", check.id, code=1)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_answers_are_only_the_persons(project: Path, tmp_path: Path) -> None:
    corrected(project, tmp_path, MIGRATE)
    with open_ralph(project) as ralph:
        answer(ralph, inbox(ralph)[0].id, "hold")
        file = ralph.project.cache / "inbox.json"
    assert file.stat().st_mode & 0o077 == 0
    assert MIGRATE not in file.read_text(encoding="utf-8")


def test_what_was_imported_holds_at_once(
    project: Path, tmp_path: Path, ralph_in: Callable[..., str]
) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    for day in ("02", "03"):
        session = Session(project, sessions, began=f"2026-11-{day}T10:00:00Z")
        session.prompts("Run the tests, please")
        session.runs("rtk bun run test", UNKNOWN, failed=True)
        session.runs("bun run test", "12 pass\n0 fail")
        session.says("All 12 tests pass.")
        session.prompts("Thanks")
        session.says("You are welcome.")
    assert table(project) == []

    ralph_in("conversations", "import", "claude-code", str(sessions))

    assert [row.key for row in table(project)] == ["rtk bun"]


def test_an_answer_waits_for_another_one_that_is_being_saved(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected(project, tmp_path, MIGRATE, "use pnpm please")
    pnpm, migrate = rules(project)
    monkeypatch.setattr("ralph.memory.inbox._LOCK_TIMEOUT_S", 0.0)
    with open_ralph(project) as ralph:
        answer(ralph, pnpm.id, "hold")
        with (
            disk.lock(ralph.project.cache / "inbox.lock", timeout_s=0.0),
            pytest.raises(BadInput, match="another process has been changing the inbox"),
        ):
            answer(ralph, migrate.id, "hold")
        answer(ralph, migrate.id, "hold")
        assert [check.action for check in inbox(ralph)] == ["hold", "hold"]
