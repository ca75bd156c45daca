"""Retention: what was said longer ago than somebody wants to keep is gone from everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commanding import Line

from ralph.errors import BadInput, BadSetting, IndexOff
from ralph.memory.conversations import prune, prune_if_due
from ralph.memory.documents import add_documents
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.store import once_a_day
from ralph.records.conversation import Summary

TOLD = '{"messages": [{"role": "user", "content": "Is the crane free?"}]}'
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def said(ralph: Ralph, talk: str, text: str, *, days_ago: float) -> str:
    at = (NOW - timedelta(days=days_ago)).isoformat()
    kept = ralph.conversations.exchange(talk, user=text, assistant="Yes.", completed=at)
    return kept.id


def titles(ralph: Ralph) -> list[str]:
    return [one.conversation.title for one in ralph.conversations.list(everywhere=True)]


def test_without_the_setting_nothing_ever_goes(project: Path) -> None:
    with open_ralph(project) as ralph:
        said(ralph, ralph.conversations.start("Old"), "The harbour crane is stuck", days_ago=9000)

        assert prune_if_due(ralph.conversations, at=NOW) is None
        with pytest.raises(BadInput, match="kept for ever"):
            prune(ralph.conversations, at=NOW)

        assert titles(ralph) == ["Old"]


def test_old_exchanges_go_and_conversations_that_become_empty(project: Path, home: Path) -> None:
    with open_ralph(project, conversations_keep_days=30) as ralph:
        memory = ralph.conversations
        old, both = memory.start("Old"), memory.start("Both")
        said(ralph, old, "The harbour crane is stuck", days_ago=31)
        said(ralph, both, "The lighthouse lamp flickers", days_ago=30.5)
        kept = said(ralph, both, "The ferry timetable is wrong", days_ago=29.5)
        assert memory.search("harbour crane")

        done = prune(ralph.conversations, at=NOW)

        assert (done.exchanges, done.conversations) == (2, 1)
        assert done.before == "2026-10-16T12:00:00Z"
        assert titles(ralph) == ["Both"]
        assert [one.id for one in memory.exchanges(both)] == [kept]
        assert memory.search("harbour crane") == memory.search("lighthouse lamp") == []
        assert memory.search("ferry timetable")
    for file in home.rglob("*"):
        assert not file.is_file() or b"harbour crane" not in file.read_bytes()


def test_a_summary_goes_with_what_it_tells_of(project: Path) -> None:
    with open_ralph(project, conversations_keep_days=30) as ralph:
        memory = ralph.conversations
        talk = memory.start("Both")
        kept = said(ralph, talk, "The ferry timetable is wrong", days_ago=1)
        before = Summary(of="conversation", target=talk, text="The ferry timetable.", covers=1)
        memory.say(before)
        said(ralph, talk, "The harbour crane is stuck", days_ago=40)
        memory.say(Summary(of="conversation", target=talk, text="Ferry and crane.", covers=2))

        prune(ralph.conversations, at=NOW)

        assert [one.id for one in memory.exchanges(talk)] == [kept]
        assert memory.summary(talk) == before


def test_every_project_is_pruned(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    Project(elsewhere).init()
    for root in (project, elsewhere):
        with open_ralph(root) as ralph:
            talk = ralph.conversations.start(root.name)
            said(ralph, talk, "The harbour crane is stuck", days_ago=100)

    with open_ralph(project, conversations_keep_days=30) as ralph:
        assert prune(ralph.conversations, at=NOW).exchanges == 2
        assert titles(ralph) == []


def test_a_dry_run_only_tells(project: Path) -> None:
    with open_ralph(project, conversations_keep_days=30) as ralph:
        said(ralph, ralph.conversations.start("Old"), "The crane is stuck", days_ago=31)

        assert prune(ralph.conversations, dry_run=True, at=NOW).exchanges == 1
        assert titles(ralph) == ["Old"]


def test_documents_stay_however_old(project: Path) -> None:
    (project / "notes.md").write_text("Notes about the harbour crane.\n", encoding="utf-8")
    with open_ralph(project, conversations_keep_days=1) as ralph:
        add_documents(ralph.conversations, [project / "notes.md"], root=project)

        prune(ralph.conversations, at=datetime.now(UTC) + timedelta(days=100))

        assert ralph.conversations.search("harbour crane", documents=True)


def test_it_is_due_once_a_day(project: Path) -> None:
    with open_ralph(project, conversations_keep_days=30) as ralph:
        first = prune_if_due(ralph.conversations, at=NOW)
        said(ralph, ralph.conversations.start("Old"), "The crane is stuck", days_ago=31)

        assert first is not None
        assert prune_if_due(ralph.conversations, at=NOW + timedelta(hours=23)) is None
        again = prune_if_due(ralph.conversations, at=NOW + timedelta(hours=24))

    assert again is not None
    assert again.exchanges == 1


def test_a_clock_that_was_wrong_does_not_stop_it_for_ever(project: Path) -> None:
    with open_ralph(project, conversations_keep_days=30) as ralph:
        prune_if_due(ralph.conversations, at=NOW + timedelta(days=400))

        assert prune_if_due(ralph.conversations, at=NOW) is not None


def test_a_clone_does_not_decide_what_goes(project: Path) -> None:
    file = Project(project).settings_file
    file.write_text('{"conversations_keep_days": 1}', encoding="utf-8")

    with pytest.raises(BadSetting, match="cannot be set in a project's file"):
        open_ralph(project)


def test_pruning_at_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.chdir(project)
    line = Line(capsys, monkeypatch)
    assert "conversations_keep_days" in line("conversations", "prune").complaint
    with open_ralph(project) as ralph:
        said(ralph, ralph.conversations.start("Old"), "The crane is stuck", days_ago=3000)
    line.well("config", "--user", "conversations_keep_days", "365")

    would = line.well("conversations", "prune", "--dry-run").out
    done = line.well("conversations", "prune", "--json").json

    assert would.startswith("Would forget 1 exchange from before ")
    assert (done["exchanges"], done["conversations"], done["dry_run"]) == (1, 1, False)
    assert "Forgot 0 exchanges" in line.well("conversations", "prune").out


def test_an_import_and_the_workers_prune_when_it_is_due(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path, home: Path
) -> None:
    monkeypatch.chdir(project)
    line = Line(capsys, monkeypatch)
    line.well("config", "--user", "conversations_keep_days", "365")
    for words in (("conversations", "import", "-"), ("workers", "run", "--once")):
        with open_ralph(project) as ralph:
            said(ralph, ralph.conversations.start("Old"), "The crane is stuck", days_ago=3000)
        (home / "cache" / "pruned").unlink(missing_ok=True)

        line.well(*words, stdin=TOLD)

        with open_ralph(project) as ralph:
            assert "Old" not in titles(ralph)


def test_a_stamp_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()  # a file where the folder should be
    stamp = tmp_path / "cache" / "pruned"
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    done: list[int] = []
    with pytest.raises(IndexOff, match="cannot be noted"):
        once_a_day(stamp, moment, lambda _: done.append(1))
    assert done == [1]
