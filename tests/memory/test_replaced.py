"""What a newer decision replaced is kept, shown as such, and never told as current."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hooking import Session

from ralph.doors.cli.main import run
from ralph.errors import BadInput, NotFound
from ralph.memory import keeping
from ralph.memory.inbox import answer, inbox, take_back
from ralph.memory.ralph import open_ralph
from ralph.memory.replaced import PersonsRule, contradictions, read_replaced, replaced_by_words


@pytest.fixture
def project(tmp_path: Path) -> Path:
    from ralph.memory.project import Project

    folder = tmp_path / "project"
    folder.mkdir()
    Project(folder).init()
    return folder


def statement(text: str, at: str, *, record: str = "") -> PersonsRule:
    return PersonsRule(text=text, record=record or at, at=at)


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ("always use npm", "From now on use pnpm instead of npm", True),
        ("always use npm, never yarn", "From now on use pnpm instead of npm or yarn", True),
        # A part of the older rule is about something else.
        ("never run the migrations here, and use npm", "Use pnpm instead of npm", False),
        ("We use floats for prices.", "Prices are integer cents, we no longer use floats.", True),
        ("Use Postgres 14 in dev", "We are on Postgres 16 in dev from now on", True),
        ("Tests run with make test", "from now on run the tests with just test", True),
        # No explicit words: nothing is replaced without the person.
        ("The API port is 8080", "The API port is 9090", False),
        ("Deploys go out on Fridays", "never deploy on Fridays", False),
        # Explicit words about something else.
        ("always add a changelog entry", "No longer use yarn", False),
        ("never commit secrets", "From now on write tests first", False),
    ],
)
def test_explicit_words_replace_an_older_rule_on_the_same_subject(
    older: str, newer: str, expected: bool
) -> None:
    said = [statement(older, "2026-01-01"), statement(newer, "2026-01-02")]
    found = replaced_by_words(said)
    assert [(one.record, one.by) for one in found] == [("2026-01-01", "2026-01-02")] * expected


def test_an_older_rule_never_replaces_a_newer_one() -> None:
    said = [statement("use pnpm instead of npm", "2026-01-01"), statement("use npm", "2026-01-02")]
    assert replaced_by_words(said) == []


def test_other_contradictions_are_pairs_for_the_inbox() -> None:
    said = [
        statement("Deploys go out on Fridays", "2026-01-01"),
        statement("The staging database resets every night.", "2026-01-02"),
        statement("never deploy on Fridays", "2026-01-03"),
    ]
    assert [(new.at, old.at) for new, old in contradictions(said)] == [("2026-01-03", "2026-01-01")]


def test_a_rule_that_is_replaced_in_part_waits_in_the_inbox() -> None:
    said = [
        statement("never run the migrations here, and use npm", "2026-01-01"),
        statement("Use pnpm instead of npm", "2026-01-02"),
    ]
    assert [(new.at, old.at) for new, old in contradictions(said)] == [("2026-01-02", "2026-01-01")]


def test_a_note_that_replaces_another_is_the_only_current_one(
    project: Path, tmp_path: Path
) -> None:
    with open_ralph(project) as ralph:
        old, _ = ralph.remember("Prices are floats with two decimals everywhere.")
        new, fresh = ralph.remember("Prices are integer cents everywhere.", replaces=old.id[:6])
        assert fresh
        assert new.replaces == old.id
        hits = {hit.id: hit for hit in ralph.search("how are prices stored", min_score=0.0)}
        assert hits[old.id].is_replaced
        assert not hits[new.id].is_replaced
        assert ralph.get(old.id).replaced[0].by == new.id

    session = Session(project, tmp_path)
    start = session.hook("session-start", source="startup").context
    assert "integer cents" in start
    assert "floats" not in start
    told = session.hook("user-prompt-submit", prompt="how are prices stored here?").context
    assert "integer cents" in told
    assert "floats" not in told


def test_a_rule_in_a_session_is_replaced_by_a_note(project: Path, tmp_path: Path) -> None:
    session = Session(project, tmp_path)
    session.prompts("Write the invoice export")
    session.says("I wrote export.py.")
    session.prompts("Never use floats for prices. Always add a test for each export.")
    session.says("Understood.")
    session.hook("stop", last_assistant_message="Understood.")
    later = Session(project, tmp_path, began="2026-11-03T10:00:00Z")
    assert "Never use floats" in later.hook("session-start", source="startup").context

    with open_ralph(project) as ralph:
        [exchange] = [
            one for one in ralph.recent(10) if "floats" in getattr(one.record, "user", "")
        ]
        ralph.remember("Prices may be floats, rounding happens at the end.", replaces=exchange.id)

    start = later.hook("session-start", source="startup").context
    assert "Never use floats" not in start
    assert "rounding happens at the end" in start


def test_explicit_words_in_a_later_session_replace_a_rule(project: Path, tmp_path: Path) -> None:
    for day, rule in (("02", "always use npm"), ("03", "From now on use pnpm instead of npm")):
        session = Session(project, tmp_path, began=f"2026-11-{day}T10:00:00Z")
        session.prompts("Add the invoice page, please")
        session.says("Done.")
        session.prompts(rule)
        session.says("Understood.")
        session.hook("stop", last_assistant_message="Understood.")
    start = Session(project, tmp_path).hook("session-start", source="startup").context
    assert "From now on use pnpm" in start
    assert "always use npm" not in start
    with open_ralph(project) as ralph:
        [marked] = read_replaced(ralph.project)
        hit = ralph.get(marked)
        assert hit.record.user == "always use npm"
        assert not hit.is_replaced  # only a rule in it
        assert [one.older for one in inbox(ralph) if one.older] == []


PLAN = "Implement the following plan:\n\n# Fix how subcommands of the export skill are found"


@pytest.mark.parametrize(
    ("words", "is_disproved"),
    [
        ("it is not showing the subcommands of the export, make each a skill of its own", True),
        ("read the files directly since the subcommand skills don't work", True),
        ("the subcommands of the export skill show up now, commit it", False),
        ("the login page still does not work", False),
        ("# Plan: Subcommands of the export skill\n\n## Context\n\nThey don't show.", False),
    ],
)
def test_a_plan_that_a_later_session_disproves_no_longer_holds(
    project: Path, tmp_path: Path, words: str, is_disproved: bool
) -> None:
    for day, prompt in (("02", PLAN), ("03", words)):
        session = Session(project, tmp_path, began=f"2026-11-{day}T10:00:00Z")
        session.prompts(prompt)
        session.says("Done, all subcommands of the export are found now.")
        session.hook("stop", last_assistant_message="Done.")
    with open_ralph(project) as ralph:
        hits = [ralph.get(record) for record in read_replaced(ralph.project)]
    assert [one.record.user.splitlines()[0] for one in hits] == [
        "# Fix how subcommands of the export skill are found"
    ] * is_disproved
    plan = "Accepted plan: Fix how subcommands of the export skill are found"
    assert [one.text for hit in hits for one in hit.replaced] == [plan] * is_disproved


def test_a_contradiction_waits_in_the_inbox_until_the_person_decides(project: Path) -> None:
    with open_ralph(project) as ralph:
        old, _ = ralph.remember("Deploys go out on Fridays")
        ralph.remember("never deploy on Fridays")
        [check] = [one for one in inbox(ralph) if one.older]
        assert (check.older, check.text) == ("Deploys go out on Fridays", "never deploy on Fridays")
        assert not ralph.get(old.id).is_replaced
        with pytest.raises(BadInput, match="hold does not fit this rule"):
            answer(ralph, check.id, "hold")

        answer(ralph, check.id, "replace")
        assert ralph.get(old.id).is_replaced

        take_back(ralph, check.id)
        assert not ralph.get(old.id).is_replaced
        answer(ralph, check.id, "dismissed")
        assert [one for one in inbox(ralph) if one.older] == []


def test_what_a_forgotten_note_replaced_holds_again(project: Path) -> None:
    with open_ralph(project) as ralph:
        old, _ = ralph.remember("Prices are floats.")
        new, _ = ralph.remember("Prices are integer cents.", replaces=old.id)
        keeping.forget(ralph, keeping.choose(ralph, ids=[new.id]))
        assert not ralph.get(old.id).is_replaced


def test_a_clones_note_does_not_replace_what_the_person_said(project: Path, tmp_path: Path) -> None:
    session = Session(project, tmp_path)
    session.prompts("Write the invoice export")
    session.says("I wrote export.py.")
    session.prompts("Never use floats for prices.")
    session.says("Understood.")
    session.hook("stop", last_assistant_message="Understood.")
    with open_ralph(project) as ralph:
        [exchange] = [one for one in ralph.recent(9) if "floats" in getattr(one.record, "user", "")]
        note, _ = ralph.remember("Prices are floats.", replaces=exchange.id)
        assert ralph.get(exchange.id).is_replaced
        # On a machine whose person did not say so, the same journal replaces nothing.
        (ralph.project.cache / "inbox.json").unlink()
        ralph.remember("The staging database resets every night.")
        assert not ralph.get(exchange.id).is_replaced
        assert ralph.get(note.id).record.replaces == exchange.id


def test_only_notes_and_exchanges_are_replaced(project: Path) -> None:
    with open_ralph(project) as ralph, pytest.raises(NotFound, match="no record 'feedface'"):
        ralph.remember("Prices are integer cents.", replaces="feedface")


@pytest.fixture
def ralph_in(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.chdir(project)

    def call(*words: str) -> str:
        assert run(words) == 0
        return capsys.readouterr().out

    return call


def test_the_commands_say_what_no_longer_holds(ralph_in: Callable[..., str]) -> None:
    old = json.loads(ralph_in("remember", "Prices are floats.", "--json"))["id"]
    new = json.loads(
        ralph_in("remember", "Prices are integer cents.", "--replaces", old, "--json")
    )["id"]
    shown = ralph_in("search", "prices", "--min-score", "0")
    assert f"no longer holds: replaced by {new[:8]}" in shown
    assert json.loads(ralph_in("show", old, "--json"))["replaced"][0]["by"] == new
    assert f"replaced by {new[:8]}" in ralph_in("recent")


def test_the_inbox_command_shows_and_settles_a_contradiction(ralph_in: Callable[..., str]) -> None:
    ralph_in("remember", "Deploys go out on Fridays")
    ralph_in("remember", "never deploy on Fridays")
    text = ralph_in("inbox")
    assert "two rules contradict each other" in text
    assert 'older: "Deploys go out on Fridays"' in text
    [check] = [one for one in json.loads(ralph_in("inbox", "--json")) if one["older"]]
    assert f"ralph inbox replace {check['id'][:8]}" in text
    assert "is no longer told as current" in ralph_in("inbox", "replace", check["id"][:8])
