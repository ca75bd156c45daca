"""`stats`, and what `feature show` counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from commanding import COOKIE, LOGIN, Line
from hooking import Session

from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Conversation, Exchange
from ralph.records.iteration import ErrorSeen, Iteration

CHEAP = {**LOGIN, "model": "haiku", "cost_usd": 0.5, "tokens_used": 12_000}
FAILED = {**COOKIE, "model": "opus", "cost_usd": 1.5, "tokens_used": 30_000}
STOPPED = {**COOKIE, "session_id": "run-8", "outcome": "interrupted", "model": "opus"}
ERROR = "psycopg.OperationalError: connection to port 5433 refused by db-3"


@pytest.fixture(autouse=True)
def utc_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days are local; these tests are somewhere."""
    monkeypatch.setenv("TZ", "UTC")


def rows(found: dict[str, Any], group: str) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in found[f"by_{group}"]}


def test_cost_tokens_and_success_are_counted_by_day_feature_and_model(
    ralph: Line, project: Path
) -> None:
    ralph.record("auth", CHEAP, FAILED, STOPPED)
    ralph.record("search", {**LOGIN, "task_id": 9})

    found = ralph.well("stats", "--json").json

    total = found["total"]
    assert (total["iterations"], total["judged"], total["success_rate"]) == (4, 3, 0.6667)
    assert (total["cost_usd"], total["tokens_used"], total["unpriced"]) == (2.0, 42_000, 2)
    assert [row["key"] for row in found["by_day"]] == ["2026-02-07", "2026-02-08"]
    assert rows(found, "feature")["auth"]["cost_usd"] == 2.0
    assert rows(found, "feature")["search"]["success_rate"] == 1.0
    assert rows(found, "model")["opus"]["outcomes"] == {"failure": 1, "interrupted": 1}
    assert rows(found, "model")[""]["iterations"] == 1  # its record names no model


def test_an_iteration_that_was_stopped_does_not_lower_the_rate(ralph: Line, project: Path) -> None:
    ralph.record("auth", CHEAP, STOPPED)
    assert ralph.well("stats", "--json").json["total"]["success_rate"] == 1.0


def test_a_review_that_did_nothing_is_no_success(ralph: Line, project: Path) -> None:
    review = {"task_title": "Review of auth", "outcome": "success", "model_tier": "opus"}
    work = {"task_id": 1, "outcome": "failure", "model_tier": "haiku"}
    ralph.record("auth", {**review, "session_id": "r"}, {**work, "task_title": "t"})
    total = ralph.well("stats", "--json").json["total"]
    assert total["outcomes"] == {"success": 1, "failure": 1}
    assert (total["judged"], total["succeeded"], total["success_rate"]) == (1, 0, 0.0)
    assert "0 of 1 succeeded (0%)" in ralph.well("stats").out


@pytest.mark.parametrize(
    ("words", "cost"),
    [
        (["--since", "2026-02-08"], 1.5),
        (["--until", "2026-02-07"], 0.5),
        (["--feature", "auth"], 2.0),
        (["--feature", "none"], 0.0),
    ],
)
def test_days_and_a_feature_narrow_it(
    ralph: Line, project: Path, words: list[str], cost: float
) -> None:
    ralph.record("auth", CHEAP, FAILED)
    assert ralph.well("stats", *words, "--json").json["total"]["cost_usd"] == cost


def test_the_chart_fits_sixty_columns_and_needs_no_color(ralph: Line, project: Path) -> None:
    ralph.record("a-feature-with-a-very-long-name-indeed", CHEAP, FAILED)
    ralph.record("auth", {**LOGIN, "cost_usd": 1234.5, "tokens_used": 987_654_321})

    out = ralph.well("stats").out

    assert max(map(len, out.splitlines()[1:])) <= 60
    assert "\x1b" not in out
    assert "3 iterations, 2 of 3 succeeded (67%), 988M tokens, 1236.50 USD" in out
    days = [line for line in out.splitlines() if line.startswith("2026-02-0")]
    assert [line.count("#") for line in days] == [12, 1]
    assert "a-feature-with" in out


def test_one_table_has_all_its_rows(ralph: Line, project: Path) -> None:
    days = [{**LOGIN, "task_id": n, "timestamp": f"2026-03-{n:02}T12:00:00Z"} for n in range(1, 13)]
    ralph.record("auth", *days)

    short, whole = ralph.well("stats").out, ralph.well("stats", "--by", "day").out

    assert "2026-03-01" not in short  # the newest ten
    assert "and 2 more" in short
    assert whole.count("2026-03-") == 12
    assert "feature" not in whole


def test_without_work_it_says_so(ralph: Line, project: Path) -> None:
    assert "No matching work in memory" in ralph.well("stats").out


def test_work_that_was_a_session_counts_once(ralph: Line, project: Path, tmp_path: Path) -> None:
    with open_ralph(project, embedder="none") as memory:
        talk = memory.conversations
        asked = Exchange(
            conversation="c1",
            id="e1",
            user="Why?",
            assistant="Because.",
            cost_usd=0.25,
            started="2026-02-07T10:00:00Z",
            completed="2026-02-07T10:01:00Z",
        )
        talk.add(Conversation(id="c1", title="Why"), [asked])
    session = Session(project, tmp_path)
    ralph.well("feature", "add", "auth")
    ralph.well("focus", "auth")
    session.prompts("Create the login module")
    session.writes("src/login.py")
    session.says("It is there.")
    session.hook("stop", last_assistant_message="")

    found = ralph.well("stats", "--json").json

    assert (found["total"]["iterations"], found["total"]["exchanges"]) == (1, 1)
    assert rows(found, "feature")[""]["cost_usd"] == 0.25


def test_features_show_what_they_took(ralph: Line, project: Path) -> None:
    ralph.well("feature", "add", "auth")
    ralph.record("auth", CHEAP, FAILED)

    shown = ralph.well("feature", "show", "auth", "--json").json

    assert (shown["iterations"], shown["success_rate"], shown["cost_usd"]) == (2, 0.5, 2.0)
    assert "success_rate: 0.5" in ralph.well("feature", "show", "auth").out


# -- what recalls were good for


def remember_solution(project: Path) -> None:
    seen = ErrorSeen(ERROR, "runtime", resolution="started the database with docker")
    with open_ralph(project, embedder="none") as memory:
        memory.feature("db").remember(
            Iteration(
                summary="The tests could not connect to the database.",
                errors=(seen,),
                outcome="unknown",
            )
        )


def live_session(project: Path, tmp_path: Path) -> Session:
    return Session(project, tmp_path, began=datetime.now(UTC).isoformat())


def fails(session: Session, command: str) -> str:
    output = f"Exit code 1\n{ERROR}"
    session.runs(command, output, failed=True)
    return session.hook(
        "post-tool-use-failure",
        tool_name="Bash",
        tool_input={"command": command},
        error=output,
    ).context


def test_the_next_command_after_a_memory_is_told_from_those_without(
    ralph: Line, project: Path, tmp_path: Path
) -> None:
    remember_solution(project)
    helped, alone = live_session(project, tmp_path), live_session(project, tmp_path)
    helped.prompts("Run the tests")
    assert "docker" in fails(helped, "pytest tests/test_db.py")
    helped.runs("docker start db", "db")
    helped.says("It runs.")
    helped.hook("stop", last_assistant_message="")
    alone.prompts("Run the linter")
    alone.runs("ruff check .", "Exit code 1\nE501 too long", failed=True)
    alone.runs("ruff check src", "Exit code 1\nE501 too long", failed=True)
    alone.says("It fails.")
    alone.hook("stop", last_assistant_message="")

    found = ralph.well("stats", "--since", "today", "--json").json["recall"]

    assert (found["recalls"], found["memories"]) == (1, 1)
    assert found["retry_with"] == {"commands": 1, "passed": 1}
    assert found["retry_without"] == {"commands": 1, "passed": 0}
    assert found["first_without"] == {"commands": 2, "passed": 0}
    out = ralph.well("stats", "--since", "today").out
    assert "Hooks gave 1 memory to the model, 1 time." in out
    assert "after a failed command        1/1 100%      0/1 0%" in out


def test_a_memory_given_with_a_prompt_counts_for_the_first_command(
    ralph: Line, project: Path, tmp_path: Path
) -> None:
    remember_solution(project)
    session = live_session(project, tmp_path)
    prompt = "Why can the tests not connect to the database?"
    session.prompts(prompt)
    assert session.hook("user-prompt-submit", prompt=prompt).context
    session.runs("docker ps", "db")
    session.says("The database was down.")
    session.hook("stop", last_assistant_message="")

    found = ralph.well("stats", "--json").json["recall"]

    assert found["first_with"] == {"commands": 1, "passed": 1}


def test_the_log_of_recalls_has_no_words_of_the_session(
    ralph: Line, project: Path, tmp_path: Path, home: Path
) -> None:
    remember_solution(project)
    session = live_session(project, tmp_path)
    fails(session, "pytest tests/test_db.py")

    [log] = home.glob("cache/hooks/*/activity.jsonl")

    text = log.read_text(encoding="utf-8")
    assert json.loads(text)["session"] == session.name
    assert "pytest" not in text
    assert log.stat().st_mode & 0o077 == 0
    log.write_text(f"no JSON\n{text}[1]\n", encoding="utf-8")
    assert ralph.well("stats", "--json").json["recall"]["recalls"] == 1
