"""The timeline: iterations and exchanges in order, filtered, each event once."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN
from remembering import open_toy

from ralph.memory.ralph import Ralph
from ralph.memory.timeline import events, later_success, local_day, mistakes, touched_files
from ralph.recall import run_name


@pytest.fixture
def ralph(tmp_path: Path) -> Ralph:
    opened = open_toy(tmp_path / "project")
    opened.feature("auth").remember_all([LOGIN, COOKIE])
    talk = opened.conversations.start(title="Talk", session="s1", source="claude-code")
    at = {"completed": "2026-02-07T20:00:00Z"}
    opened.conversations.exchange(talk, user="Why?", assistant="Because.", key="one", **at)
    return opened


def titles(ralph: Ralph, **asked: object) -> list[str]:
    return [one.title for one in events(ralph, **asked)]  # type: ignore[arg-type]


def test_iterations_and_exchanges_come_newest_first(ralph: Ralph) -> None:
    assert titles(ralph) == ["Keep people signed in", "Why?", "Add the login form"]


def test_everything_narrows(ralph: Ralph) -> None:
    assert titles(ralph, kinds=["exchange"]) == ["Why?"]
    assert titles(ralph, outcomes=["failure"]) == ["Keep people signed in"]
    assert titles(ralph, features=["auth"]) == ["Keep people signed in", "Add the login form"]
    assert titles(ralph, features=["other"]) == []
    assert titles(ralph, text="REDIS") == ["Keep people signed in"]
    assert titles(ralph, text='Use "Redis"') == []
    assert titles(ralph, since="2026-02-08") == ["Keep people signed in"]


def test_text_with_quotes_and_line_breaks_is_found_as_it_was_written(ralph: Ralph) -> None:
    ralph.feature("auth").remember({"task_title": 'The "odd" one', "summary": "a\nb\\c é"})
    for text in ('"odd"', "a\nb", "b\\c", "é"):
        assert titles(ralph, text=text) == ['The "odd" one']


def test_an_exchange_that_was_an_iteration_is_listed_as_the_iteration(ralph: Ralph) -> None:
    run = run_name("s1", "one")
    ralph.feature("auth").remember({"task_title": "Asked why", "session_id": run})
    assert titles(ralph).count("Why?") == 0
    assert titles(ralph, kinds=["exchange"]) == []
    assert "Asked why" in titles(ralph)


def test_a_record_that_cannot_be_read_is_left_out(ralph: Ralph) -> None:
    file = ralph.project.journals / "auth.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([lines[0].replace('"success"', "17"), *lines[1:]]) + "\n")
    assert titles(ralph) == ["Keep people signed in", "Why?"]
    assert [one.title for one in events(ralph)[1:]] == ["Why?"]


def test_the_first_later_success_on_the_same_task_is_found(ralph: Ralph) -> None:
    done = {"task_id": 42, "outcome": "success", "task_title": "Signed in"}
    first, _ = ralph.feature("auth").remember_all([done, {**done, "session_id": "again"}])
    by_number = {one.iteration_number: one for _, one in ralph.feature("auth").iterations()}

    later = later_success(ralph, by_number[2])

    assert later is not None
    assert later.id == first.id
    assert later_success(ralph, by_number[1]) is None


def test_mistakes_are_errors_that_came_again_with_their_fix(ralph: Ralph) -> None:
    error = {"message": "ModuleNotFoundError: No module named 'yaml'", "resolution": "Use ruamel"}
    run = {"task_title": "Load", "errors": [error]}
    ralph.feature("auth").remember(run)
    assert mistakes(ralph) == []
    ralph.feature("other").remember(run)
    [found] = mistakes(ralph)
    assert (found.times, found.fix) == (2, "Use ruamel")


def test_files_are_counted_by_iteration(ralph: Ralph) -> None:
    assert touched_files(ralph, "auth", 5) == [("src/app.py", 2), ("src/login.py", 1)]
    assert touched_files(ralph, "auth", 1) == [("src/app.py", 2)]


def test_a_time_that_is_none_has_no_day() -> None:
    assert local_day("soon") == ""
