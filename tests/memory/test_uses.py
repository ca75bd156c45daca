"""What was told is followed up: was its command, file or fix used in the next ten actions?"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hooking import Session

from ralph import disk
from ralph.doors.cli.main import run
from ralph.memory.activity import read_activity
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph
from ralph.memory.uses import Use, read_silent, uses
from ralph.state_folders import hooks_folder

ERROR = "Exit code 2\nmake: *** No rule to make target 'dist', needed by 'export'.  Stop."
QUESTION = "how do we export the invoices for accounting?"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    Project(folder).init()
    return folder


def now() -> str:
    return datetime.now(UTC).isoformat()


def learned(project: Path, folder: Path) -> None:
    """A session that exports the invoices with a script."""
    session = Session(project, folder, began="2026-11-02T10:00:00Z")
    session.prompts("Export the invoices for accounting as CSV, please")
    session.writes("tools/export_invoices.py")
    session.runs("python tools/export_invoices.py --month 10", "wrote 31 invoices")
    session.says("The invoices are exported for accounting by tools/export_invoices.py.")
    session.hook("stop", last_assistant_message="The invoices are exported for accounting.")


def asked_again(project: Path, folder: Path, *commands: str) -> Session:
    """A session that is told about the export, and then runs these commands."""
    session = Session(project, folder, began=now())
    session.prompts(QUESTION)
    assert "export_invoices.py" in session.hook("user-prompt-submit", prompt=QUESTION).context
    for command in commands:
        session.runs(command, "ok")
    session.says("Done.")
    session.hook("stop", last_assistant_message="Done.")
    return session


def followed(project: Path, session: Session) -> list[Use]:
    events = read_activity(hooks_folder(project, disk.home()), session.name)
    with open_ralph(project) as ralph:
        return uses(ralph, [one for one in events if one.event != "session-start"])


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["ls", "python tools/export_invoices.py --month 11"], True),
        (["ls", "cat README.md"], False),
        (["true"] * 10 + ["python tools/export_invoices.py"], False),
        ([], None),
    ],
)
def test_an_item_counts_as_used_if_one_of_the_next_ten_actions_uses_it(
    project: Path, tmp_path: Path, commands: list[str], expected: bool | None
) -> None:
    learned(project, tmp_path)
    session = asked_again(project, tmp_path, *commands)
    assert [use.used for use in followed(project, session)] == [expected]


def test_a_fix_that_was_told_after_a_failure_is_followed_up(project: Path, tmp_path: Path) -> None:
    first = Session(project, tmp_path)
    first.prompts("run the export")
    first.runs("make export", ERROR, failed=True)
    first.runs("make dist && make export", "exported")
    first.says("The export works after make dist.")
    first.hook("stop", last_assistant_message="The export works after make dist.")

    session = Session(project, tmp_path, began=now())
    session.prompts("please export again")
    session.runs("ls", "Makefile")
    session.runs("make export", ERROR, failed=True)
    told = session.hook(
        "post-tool-use-failure",
        hook_event_name="PostToolUseFailure",
        tool_name="Bash",
        tool_input={"command": "make export"},
        error=ERROR,
    ).context
    assert "make dist" in told
    session.runs("make dist && make export", "exported")
    session.says("Exported.")
    session.hook("stop", last_assistant_message="Exported.")

    [use] = followed(project, session)
    assert (use.event, use.used) == ("post-tool-use-failure", True)


def test_what_was_told_three_times_in_vain_is_silent_until_asked(
    project: Path, tmp_path: Path
) -> None:
    learned(project, tmp_path)
    for _ in range(3):
        asked_again(project, tmp_path, "ls")

    with open_ralph(project) as ralph:
        [silent] = read_silent(ralph.project)
        found = [hit.id for hit in ralph.search(QUESTION, min_score=0.0)]
        assert silent in found
    session = Session(project, tmp_path, began=now())
    assert "31 invoices" not in session.hook("user-prompt-submit", prompt=QUESTION).context
    shown = read_activity(hooks_folder(project, disk.home()), session.name)
    assert silent not in [identity for event in shown for identity, _ in event.shown]


def test_one_use_keeps_an_item_from_being_silent(project: Path, tmp_path: Path) -> None:
    learned(project, tmp_path)
    asked_again(project, tmp_path, "python tools/export_invoices.py")
    for _ in range(3):
        asked_again(project, tmp_path, "ls")
    with open_ralph(project) as ralph:
        assert read_silent(ralph.project) == frozenset()


@pytest.fixture
def ralph_in(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.chdir(project)
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID", raising=False)

    def call(*words: str) -> str:
        assert run(words) == 0
        return capsys.readouterr().out

    return call


def test_why_and_stats_show_it(project: Path, tmp_path: Path, ralph_in: Callable[..., str]) -> None:
    learned(project, tmp_path)
    used = asked_again(project, tmp_path, "python tools/export_invoices.py")
    vain = asked_again(project, tmp_path, "ls")

    assert "| used\n" in ralph_in("why", used.name)
    assert "| not used\n" in ralph_in("why", vain.name)
    events = json.loads(ralph_in("why", vain.name, "--json"))["events"]
    [shown] = [one for event in events for one in event["shown"]]
    assert (shown["used"], shown["silent"]) == (False, False)
    assert "Of 2 that named a command or file, 1 (50%) were used" in ralph_in("stats")
    recall = json.loads(ralph_in("stats", "--json"))["recall"]
    assert (recall["followed"], recall["used"], recall["silent"]) == (2, 1, 0)
