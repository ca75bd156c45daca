"""What matters now and the work of each day, in one project and in all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralph.memory.overview import overviews
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.session_days import SessionDay, session_days, short_request
from ralph.memory.timeline import contents, events
from ralph.records.conversation import Message
from ralph.records.iteration import Decision, ErrorSeen

RULE = "Prices are always integer cents, never floats."
BROKEN = ErrorSeen("make: *** No rule to make target 'dist'.", resolution="Edit Makefile")


def project(folder: Path) -> Path:
    folder.mkdir()
    Project(folder).init()
    return folder


def talk_in(root: Path, title: str, at: str, *turns: tuple[str, str], **more: object) -> None:
    with open_ralph(root) as ralph:
        talk = ralph.conversations.start(title=title)
        for n, (user, assistant) in enumerate(turns):
            times = {"started": f"{at}T10:0{n}:00Z", "completed": f"{at}T10:0{n}:30Z"}
            ralph.conversations.exchange(
                talk, user=user, assistant=assistant, key=f"{title}{n}", **times, **more
            )


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with a rule of the person, beside another one with an error that came back."""
    root = project(tmp_path / "shop")
    decided = (Decision(RULE, source="human"),)
    talk_in(root, "Prices", "2026-03-01", (RULE, "Noted."), decisions=decided)
    billing = project(tmp_path / "billing")
    for day in ("2026-03-02", "2026-03-03"):
        talk_in(billing, f"Build {day}", day, ("Build it.", "Built."), errors=(BROKEN,))
    return root


def test_an_overview_has_this_project_or_all(shop: Path) -> None:
    with open_ralph(shop) as ralph:
        [own] = overviews(ralph)
        assert (own.project, [rule.text for rule in own.rules]) == ("shop", [RULE])
        assert own.mistakes == ()
        first, other = overviews(ralph, everywhere=True)
        assert first == own
        assert other.project == "billing"
        assert [(error.times, error.fix) for error in other.mistakes] == [(2, "Edit Makefile")]


def test_a_replaced_rule_is_not_in_the_overview(shop: Path) -> None:
    with open_ralph(shop) as ralph:
        [rule] = overviews(ralph)[0].rules
        ralph.remember("Prices are decimals.", replaces=rule.id)
        assert overviews(ralph)[0].rules == ()


def test_events_and_their_records_are_found_in_one_other_project(shop: Path) -> None:
    with open_ralph(shop) as ralph:
        assert len(events(ralph)) == 1
        assert len(events(ralph, everywhere=True)) == 3
        found = events(ralph, everywhere=True, project="billing")[:10]
        assert len(found) == 2
        records = contents(ralph, found, everywhere=True)
        assert {getattr(one, "user", "") for one in records.values()} == {"Build it."}


def days_of(ralph: Ralph) -> list[tuple[str, list[SessionDay]]]:
    return session_days(ralph, events(ralph, everywhere=True)[:50], everywhere=True)


def test_the_turns_of_a_session_are_together_and_in_order(tmp_path: Path) -> None:
    root = project(tmp_path / "shop")
    turns = (("Fix the export.", "The export is fixed."), ("commit and push", "Done."))
    talk_in(root, "Export", "2026-03-01", *turns)
    with open_ralph(root) as ralph:
        [(day, [session])] = days_of(ralph)
    assert day == "2026-03-01"
    assert (session.title, session.project) == ("Export", "shop")
    assert [turn.title for turn in session.turns] == ["Fix the export.", "commit and push"]
    assert [turn.is_plain for turn in session.turns] == [False, True]
    assert not session.is_plain
    assert session.turns[0].result == "The export is fixed."


def test_the_subject_of_a_commit_is_not_a_decision(tmp_path: Path) -> None:
    root = project(tmp_path / "shop")
    subject = "Write CSV files as UTF-8"
    call = Message("tool", f"git commit -m '{subject}'\n[main 1a2b3c4] {subject}", tool="Bash")
    decided = (Decision(subject), Decision("Keep the BOM for Excel", "accounting opens it there"))
    turn = ("Fix the export.", "Fixed.")
    talk_in(root, "Export", "2026-03-01", turn, decisions=decided, messages=(call,))
    with open_ralph(root) as ralph:
        [(_, [session])] = days_of(ralph)
    assert session.turns[0].commits == (subject,)
    assert [one.description for one in session.turns[0].decisions] == ["Keep the BOM for Excel"]


def test_an_iteration_stands_for_itself(tmp_path: Path) -> None:
    root = project(tmp_path / "shop")
    work = {"task_title": "Rank", "summary": "Ranks by words.", "timestamp": "2026-03-01T10:00:00Z"}
    with open_ralph(root) as ralph:
        ralph.feature("search").remember(work)
        [(_, [session])] = days_of(ralph)
    assert (session.conversation, session.title, session.source) == ("", "Rank", "search")
    assert session.turns[0].result == "Ranks by words."


def test_a_request_is_shortened_to_one_line_without_markup() -> None:
    assert short_request("Fix the\nexport.") == "Fix the export."
    long = "Two runs are in flight. **The export is broken** " + "and it stays broken " * 20
    assert 0 < len(short_request(long)) < 200
    assert "**" not in short_request(long)
