"""`search`, `recent`, `failures`, `files`, `show`: the shapes, and what people see."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN, Line, Terminal

from ralph.doors.cli.main import run
from ralph.text.times import local_today

HIT = ["id", "kind", "score", "relevance", "when", "why", "record"]


def test_search_prints_the_published_shape(ralph: Line) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)

    ran = ralph.well("search", "session", "cookie", "--json")

    [hit] = [hit for hit in ran.json if hit["id"] == ids[1]]
    assert list(hit) == HIT
    assert hit["kind"] == "iteration"
    assert 0.55 <= hit["score"] <= 1.0
    assert hit["relevance"] == "relevant"
    assert hit["when"] == "iteration 2, the latest"
    assert hit["why"].startswith("words: session, cookie (2 of 2); meaning 0.")
    assert hit["record"]["summary"] == COOKIE["summary"]
    assert ran.err == ""


def test_search_explains_itself_when_asked(ralph: Line) -> None:
    ralph.record("auth", COOKIE)

    [hit] = ralph.well("search", "cookie", "--explain", "--json").json

    assert list(hit) == [*HIT, "explain"]
    assert hit["explain"]["score"] == hit["score"]
    assert hit["explain"]["matched"] == ["cookie"]
    told = ralph.well("search", "cookie", "--explain").out
    assert "words: 1 of the 1 asked for: cookie (the best by words)" in told
    assert "answered: " in told
    assert f"score: {hit['score']:.2f} (from 0.40" in told


def test_search_explains_what_it_folded_and_what_it_left_out(ralph: Line) -> None:
    ralph.record("auth", COOKIE, {**COOKIE, "session_id": "again"})
    ralph.record("billing", {"summary": "Invoices are rounded to whole cents."})

    told = ralph.well("search", "session cookie", "--explain").out
    assert "folded: 1 result that says the same" in told

    ran = ralph.well("search", "kubernetes ingress annotations", "--explain")
    assert ran.out.startswith("No results above 0.40.")
    assert "Left out, because each scores below 0.40:" in ran.out
    assert ran.out.count("score: 0.") == 2
    assert ralph.well("search", "kubernetes ingress annotations", "--explain", "--json").json == []


def test_search_keeps_to_limit_floor_and_feature(ralph: Line, words: None) -> None:
    ralph.record("auth", LOGIN, COOKIE)
    ralph.record("web", {**COOKIE, "summary": "The cookie banner is shown once."})

    assert len(ralph.well("search", "cookie", "--json").json) == 2
    assert len(ralph.well("search", "cookie", "--json", "--limit", "1").json) == 1
    assert ralph.well("search", "cookie", "--json", "--min-score", "1").json == []
    [hit] = ralph.well("search", "cookie", "--json", "--feature", "web").json
    assert hit["record"]["feature"] == "web"


def test_search_says_on_stderr_how_it_searched(ralph: Line, words: None) -> None:
    ralph.record("auth", COOKIE)

    ran = ralph.well("search", "cookie", "--json")

    assert ran.complaint == "ralph: searched by words alone: the setting embedder is none"
    assert len(ran.json) == 1


def test_search_names_the_features_there_are(ralph: Line, words: None) -> None:
    ralph.record("auth", COOKIE)

    ran = ralph.well("search", "cookie", "--feature", "oauth", "--json")

    assert ran.json == []
    assert ran.complaint == "ralph: no feature 'oauth' in memory (features: auth)"


def test_a_query_that_is_too_short_is_refused_with_an_example(ralph: Line) -> None:
    ran = ralph("search", "ab")

    assert ran.code == 1
    assert 'for example: "login form validation"' in ran.complaint


def test_search_reads_well(ralph: Line) -> None:
    [record_id] = ralph.record("auth", COOKIE)

    first, *rest = ralph.well("search", "session cookie").out.splitlines()

    assert first.startswith(f"{record_id[:8]}  ")
    assert first.endswith(" relevant  Keep people signed in")
    assert rest[:3] == [
        "  iteration 1, the latest, 2026-02-08 09:00 | failure | task 42 | auth",
        "  The browser drops the session cookie.",
        "  error test: AssertionError: Set-Cookie refused (tests/test_session.py:88)",
    ]
    assert rest[3].startswith("  why: words: session, cookie (2 of 2)")


def test_nothing_found_says_what_to_try(ralph: Line, words: None) -> None:
    ralph.record("auth", COOKIE)

    said = ralph.well("search", "zeppelin").out

    assert said == ("No results above 0.40. Try different words or a lower --min-score.\n")


def test_nothing_found_says_why_if_that_is_known(ralph: Line, words: None) -> None:
    [record_id] = ralph.record("auth", COOKIE)

    said = ralph.well("search", record_id[:9]).out
    assert said == f"{record_id[:9]} is a record: ralph show {record_id[:8]}\n"
    assert ralph.well("search", "0123abcdef").out.startswith("No results above 0.40.")
    yesterday = local_today() - timedelta(days=1)
    assert ralph.well("search", "what happened yesterday?").out == f"No results from {yesterday}.\n"
    for command in (["search", "cookie"], ["recent"], ["log"]):
        ran = ralph(*command, "--since", "today", "--until", "yesterday")
        assert ran.code == 2
        assert "--since is after --until" in ran.err


def test_a_feature_of_the_plan_is_known_to_search(ralph: Line, words: None) -> None:
    ralph.well("feature", "add", "billing")

    assert ralph.well("search", "invoices", "--feature", "billing").err.count("\n") == 1
    told = ralph.well("search", "invoices", "--feature", "bill").err
    assert "no feature 'bill' in memory (features: billing)" in told


def test_recent_and_failures_have_the_shape_of_a_hit(ralph: Line, words: None) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)

    recent = ralph.well("recent", "--json").json
    failures = ralph.well("failures", "--json").json

    assert [hit["id"] for hit in recent] == ids[::-1]
    assert [hit["id"] for hit in failures] == ids[1:]
    for hit in recent + failures:
        assert list(hit) == HIT
        assert (hit["score"], hit["relevance"], hit["why"]) == (None, None, None)


def test_several_features_are_merged_by_time(ralph: Line, words: None) -> None:
    times = {"a": ("2026-01-01", "2026-01-04"), "b": ("2026-01-02", "2026-01-03T00:00:00.500Z")}
    for feature, days in times.items():
        ralph.record(feature, *({"summary": d, "timestamp": d, "outcome": "timeout"} for d in days))

    for command in ("recent", "failures"):
        told = [hit["record"]["summary"][:10] for hit in ralph.well(command, "--json").json]
        assert told == ["2026-01-04", "2026-01-03", "2026-01-02", "2026-01-01"]
    [hit] = ralph.well("recent", "--count", "1", "--json").json
    assert hit["record"]["feature"] == "a"
    assert " | timeout | a\n" in ralph.well("recent").out
    assert len(ralph.well("recent", "--feature", "b", "--json").json) == 2


def test_failures_of_one_task(ralph: Line, words: None) -> None:
    ralph.record("auth", COOKIE, {**COOKIE, "task_id": "T-1", "session_id": "run-8"})

    for task in (42, "T-1"):
        [hit] = ralph.well("failures", "--task", str(task), "--json").json
        assert hit["record"]["task_id"] == task
    assert ralph.well("failures", "--task", "43", "--json").json == []
    assert ralph.well("failures", "--task", "43").out == "No failed attempts in memory here.\n"


def test_files_prints_the_published_shape(ralph: Line, words: None) -> None:
    ralph.record("auth", LOGIN, COOKIE)

    assert ralph.well("files", "--json").json == [
        {"path": "src/app.py", "actions": ["modified", "read"], "count": 2, "last_iteration": 2},
        {"path": "src/login.py", "actions": ["created"], "count": 1, "last_iteration": 1},
    ]
    assert ralph.well("files").out.splitlines()[:2] == [
        "path          actions         times  last",
        "src/app.py    modified, read      2  iteration 2",
    ]


def test_files_of_several_features_name_their_feature(ralph: Line, words: None) -> None:
    ralph.record("auth", LOGIN)
    ralph.record("web", COOKIE)

    found = ralph.well("files", "--json").json

    assert {(file["path"], file["feature"]) for file in found} == {
        ("src/login.py", "auth"),
        ("src/app.py", "auth"),
        ("src/app.py", "web"),
    }
    assert ralph.well("files").out.splitlines()[1].split()[-1] in {"auth", "web"}
    [alone] = ralph.well("files", "--feature", "web", "--json").json
    assert "feature" not in alone


def test_an_empty_memory_answers_with_nothing(ralph: Line, words: None) -> None:
    for command in ("recent", "failures", "files"):
        assert ralph.well(command, "--json").json == []
        assert ralph.well(command, "--json", "--feature", "unheard").json == []
    assert ralph.well("recent").out == "Nothing is in memory here yet.\n"
    assert ralph.well("search", "cookie", "--json").json == []


def test_show_gives_the_record_whole_with_its_source(ralph: Line, words: None) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)

    told = ralph.well("show", ids[1][:8].upper(), "--json").json

    assert list(told) == [*HIT, "source", "journal"]
    assert told["id"] == ids[1]
    assert told["record"]["decisions"] == COOKIE["decisions"]
    assert told["source"] == {"run": "run-7", "file": "<stdin>", "line": 2}
    assert told["journal"] == {"file": ".ralph/db/memory/auth.jsonl", "line": 2}
    said = ralph.well("show", ids[1]).out
    for part in ("Keep people", ids[1], "run run-7", "Use Redis (because: it is there)", "src/app"):
        assert part in said


@pytest.mark.parametrize("record_id", ["00000000", "zzzz"])
def test_show_refuses_what_is_not_there(ralph: Line, words: None, record_id: str) -> None:
    ralph.record("auth", LOGIN)

    ran = ralph("show", record_id)

    assert ran.code == 1
    assert "there is no record" in ran.complaint
    assert ran.complaint.endswith("`ralph recent` lists records with their ids.")


def test_an_id_needs_four_characters(ralph: Line, words: None) -> None:
    ran = ralph("show", "abc")

    assert ran.code == 1
    assert ran.complaint == "ralph: 'abc' is too short: an id needs at least four characters"


def on_terminal(monkeypatch: pytest.MonkeyPatch, *words: str, width: int = 60) -> str:
    """What a person sees who runs this in a terminal of that width."""
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        assert run(list(words)) == 0
    return screen.getvalue()


def test_colour_is_for_terminals_only(
    ralph: Line, words: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ralph.record("auth", COOKIE)

    assert "\x1b[31mfailure" in on_terminal(monkeypatch, "recent")
    assert "\x1b" not in ralph.well("recent").out
    assert "\x1b" not in on_terminal(monkeypatch, "recent", "--json")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in on_terminal(monkeypatch, "recent")


@pytest.mark.parametrize("command", ["recent", "files", "status", "config"])
def test_a_narrow_terminal_is_wide_enough(
    ralph: Line, words: None, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    ralph.record("auth", COOKIE)
    monkeypatch.setenv("NO_COLOR", "1")

    seen = on_terminal(monkeypatch, command, width=24)

    plain = seen.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.splitlines())) <= 24
    if command == "recent":
        assert "test_session.py" in plain.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("words_", [("recent",), ("show", "{}"), ("search", "cookie")])
def test_what_was_remembered_cannot_steer_a_terminal(
    ralph: Line, words: None, monkeypatch: pytest.MonkeyPatch, words_: tuple[str, ...]
) -> None:
    evil = "cookie \x1b]0;owned\x07 \x9b2J [bold]:smile: \u202e\r\nnext"
    [record_id] = ralph.record("auth", {"summary": evil, "task_title": evil})
    line = [word.format(record_id) for word in words_]
    monkeypatch.setenv("NO_COLOR", "1")

    for seen in (ralph.well(*line).out, on_terminal(monkeypatch, *line, width=200)):
        assert "[bold]:smile:" in seen
        assert not {"\x9b", "\x07", "\r", "\u202e"} & set(seen)
        assert "\x1b]" not in seen
    assert "\x9b" not in ralph.well("show", record_id, "--json").out
    assert ralph.well("show", record_id, "--json").json["record"]["summary"] == evil


def test_a_line_of_no_time_is_stepped_over_and_reported(
    ralph: Line, words: None, project: Path
) -> None:
    [good] = ralph.record("auth", LOGIN)
    ralph.record("web", COOKIE)
    file = project / ".ralph/db/memory/auth.jsonl"
    line = file.read_text(encoding="utf-8").replace(good, good[::-1])
    file.write_text(
        file.read_text(encoding="utf-8") + line.replace('"at":"', '"at":"about '), encoding="utf-8"
    )

    assert len(ralph.well("recent", "--json").json) == 2
    ralph.well("forget", "--before", "2020-01-01", "--yes")
    ran = ralph("journal", "verify")
    assert ran.code == 1
    assert "auth.jsonl:2 " in ran.out
    assert "is not a time" in ran.out
