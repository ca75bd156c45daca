"""The bench itself: that it runs, compares and reports; never how fast anything is."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from postgres import missing

import bench
from bench import corpus, speed
from bench.measure import Compared, compared, fresh, in_turns, middle_half, python, ratio
from bench.postgres import why_not
from bench.report import COLUMNS, Row, Target, shown, to_markdown
from ralph.errors import BadInput, RalphError

WHATS = {
    "ralph --version",
    "ingest until findable",
    "disk a record, journal",
    "disk a record, index",
    "disk a record, together",
    "fresh process to first answer, open_ralph()",
    "fresh process to first answer, ralph search --json",
    "fresh process to first record kept",
    "ralph record, one iteration, fresh process",
    "SessionStart hook after a change, fresh process",
    "warm search",
    "one remember",
    "remember until another process finds it",
    "rebuild",
    "disk a record, index after rebuilds",
}
MEMORY = {
    "memory a record, after the first search",
    "memory of that process",
    "memory of that process at its peak",
}


def row(**changed: Any) -> Row:
    plain: dict[str, Any] = {
        "what": "one thing",
        "size": 10,
        "unit": "s",
        "ours": 0.004,
        "reference": 0.001,
        "reference_is": "another",
        "ratio": 4.0,
        "spread": (3.9, 4.2),
        "rounds": 5,
    }
    return Row(**plain | changed)


# -- the corpus


def test_the_same_number_always_gives_the_same_iteration() -> None:
    assert list(corpus.iterations(0, 20)) == list(corpus.iterations(0, 20))
    assert corpus.iteration(7) != corpus.iteration(8)
    assert corpus.iteration(7) != corpus.iteration(7, seed=corpus.SEED + 1)


def test_a_small_corpus_is_the_beginning_of_a_large_one() -> None:
    assert list(corpus.iterations(0, 30))[:10] == list(corpus.iterations(0, 10))


def test_summaries_are_as_long_as_those_of_agents() -> None:
    lengths = [len(one["summary"].split()) for one in corpus.iterations(0, 300)]

    assert min(lengths) >= corpus.LEAST_WORDS
    assert max(lengths) <= corpus.MOST_WORDS


def test_no_blank_of_a_template_stays_empty() -> None:
    text = json.dumps(list(corpus.iterations(0, 300)))

    assert re.findall(r"\{\w+\}", text) == []


def test_a_few_words_are_everywhere_and_most_are_rare() -> None:
    passages = [
        set(re.findall(r"[a-z_]{3,}", one["summary"].lower())) for one in corpus.iterations(0, 500)
    ]
    counts = sorted(
        (sum(word in passage for passage in passages) for word in set().union(*passages)),
        reverse=True,
    )

    assert counts[0] > 250
    assert counts[len(counts) // 2] <= 2


def test_questions_have_three_to_eight_words_and_are_the_same_every_time() -> None:
    asked = corpus.queries(200, size=100)

    assert asked == corpus.queries(200, size=100)
    assert {len(one.split()) for one in asked} == {3, 4, 5, 6, 7, 8}


# -- measuring


def test_the_ratio_is_that_of_the_medians() -> None:
    both = Compared(ours=(6.0, 4.0, 100.0), reference=(2.0, 1.0, 3.0))

    assert both.ours_median == 6.0
    assert both.reference_median == 2.0
    assert both.ratio == 3.0


def test_the_spread_is_the_middle_half_of_the_rounds() -> None:
    both = Compared(ours=(1.0, 2.0, 3.0, 4.0, 5.0), reference=(1.0,) * 5)

    assert both.spread == (2.0, 4.0)
    assert middle_half([7.0]) == (7.0, 7.0)


def test_nothing_to_compare_with_is_infinitely_more() -> None:
    assert ratio(1.0, 0.0) == math.inf
    assert row(ratio=math.inf).to_json()["ratio"] is None


def test_operations_take_turns_and_each_begins_a_round() -> None:
    calls: list[str] = []

    times = in_turns(
        {name: lambda name=name: calls.append(name) for name in "abc"},  # type: ignore[misc]
        rounds=3,
        warm_up=0,
    )

    assert "".join(calls) == "abc" + "bca" + "cab"
    assert {name: len(some) for name, some in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_warm_up_is_not_counted() -> None:
    calls: list[str] = []

    both = compared(lambda: calls.append("o"), lambda: calls.append("r"), rounds=2, warm_up=3)

    assert len(calls) == 10
    assert (len(both.ours), len(both.reference)) == (2, 2)


def test_a_process_that_fails_stops_the_bench_and_says_why(tmp_path: Path) -> None:
    broken = fresh(python("raise SystemExit('no luck')"), home=tmp_path)

    with pytest.raises(RalphError, match=r"exit code 1: no luck"):
        broken()


# -- reporting


@pytest.mark.parametrize(
    ("target", "ok"),
    [
        (Target(), None),
        (Target(ratio=4.0), True),
        (Target(ratio=3.9), False),
        (Target(value=0.004), True),
        (Target(value=0.003), False),
    ],
)
def test_a_target_is_reached_or_not(target: Target, ok: bool | None) -> None:
    assert row(target=target).ok is ok


def test_values_are_shown_in_units_that_suit_them() -> None:
    assert shown(0.000_25, "s") == "250 us"
    assert shown(0.0042, "s") == "4.20 ms"
    assert shown(83.5, "s") == "83.50 s"
    assert shown(0.0005, "s/record") == "500 us/record = 2,000/s"
    assert shown(1024, "bytes/record") == "1.02 kB/record"
    assert shown(-12, "bytes") == "-12 B"


def test_markdown_has_a_line_for_every_row() -> None:
    text = to_markdown(
        [row(target=Target(ratio=3.0, about="about 3 ms")), row(size=None)], name="speed"
    )

    *_, head, _, first, second = text.strip().splitlines()
    assert head == f"| {' | '.join(COLUMNS)} |"
    assert first == (
        "| one thing | 10 | 4.00 ms | 1.00 ms another | 4.00x (3.90-4.20) "
        "| <= 3x, about 3 ms | NO |"
    )
    assert second.startswith("| one thing |  | 4.00 ms |")


# -- the command


def test_without_a_name_the_benches_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(None, []) == 0
    assert capsys.readouterr().out.startswith("speed ")


def test_an_unknown_bench_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no benchmark 'spede'"):
        bench.main("spede", [])


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--sizes", "many"], "'many' is not a number from 1 upwards"),
        (["--sizes", "10,0"], "'0' is not a number from 1 upwards"),
        (["--repeat", "0"], "'0' is not a number from 1 upwards"),
        (["--warp"], "--warp"),
    ],
)
@pytest.mark.parametrize("name", ["speed", "start", "loop"])
def test_arguments_that_make_no_sense_are_refused(
    name: str, args: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(name, args) == 2
    assert complaint in capsys.readouterr().err


def test_a_measure_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no measure fun"):
        bench.main("speed", ["--only", "search,fun"])


@pytest.mark.slow
@pytest.mark.timeout(240)  # dozens of new processes
def test_everything_is_measured_end_to_end_and_nothing_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    markdown = tmp_path / "report.md"

    code = bench.main("speed", ["--sizes", "50", "--repeat", "1", "--json", "--out", str(markdown)])

    told = capsys.readouterr()
    report = json.loads(told.out)
    assert code == 0
    assert "50: rebuild" in told.err
    assert report["bench"] == "speed"
    assert report["sizes"] == [50]
    assert report["machine"]["cpus"] == os.cpu_count()
    whats = {one["what"] for one in report["rows"]}
    assert whats - MEMORY == WHATS
    assert whats & MEMORY == (MEMORY if sys.platform == "linux" else set())
    for one in report["rows"]:
        assert one["ours"] > 0 or one["what"] in MEMORY
        assert one["reference"] > 0
        assert one["rounds"] >= 1
        assert len(one["spread"]) == 2
        assert one["ok"] in (True, False, None)
        assert (one["ok"] is None) == (not set(one["target"]) & {"ratio", "value"})
    assert all(what in markdown.read_text(encoding="utf-8") for what in whats)
    assert list(tmp_path.iterdir()) == [markdown]


def test_a_kept_folder_is_used_again(tmp_path: Path) -> None:
    told: list[str] = []

    first = speed.run([20], repeat=1, only=["ingest", "disk"], folder=tmp_path)
    again = speed.run([20], repeat=1, only=["ingest", "disk"], folder=tmp_path, tell=told.append)

    assert first[0].what == "ingest until findable"
    assert [one.what for one in again] == [one.what for one in first[1:]]
    assert told == ["20: ingest", "20: disk"]
    assert (tmp_path / "speed-20" / "project" / ".ralph").is_dir()


def test_what_is_not_a_terminal_gets_plain_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main("speed", ["--sizes", "20", "--only", "disk", "--folder", str(tmp_path)]) == 0

    _, head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == list(COLUMNS)
    assert [line.split("  ")[0] for line in rows] == [
        "disk a record, journal",
        "disk a record, index",
        "disk a record, together",
    ]


def test_every_bench_of_the_list_is_there() -> None:
    from importlib import import_module

    for name in bench.BENCHES:
        assert callable(import_module(f"bench.{name}").main)


@pytest.mark.slow
@pytest.mark.timeout(240)  # nine servers and hooks, each a new process
def test_bench_start_measures_hooks_and_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main("start", ["--size", "40", "--repeat", "1", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["bench"] == "start"
    told = {row["what"]: row for row in report["rows"]}
    assert told["hook session-start"]["target"] == {"ratio": 4.0}
    assert told["mcp, start to handshake"]["reference_is"] == "the SDK's own empty server"
    assert all(row["ours"] > 0 and row["reference"] > 0 for row in report["rows"])


@pytest.mark.slow
def test_bench_loop_tells_what_an_iteration_costs_beside_its_agent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main("loop", ["--sizes", "20", "--repeat", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bench"] == "loop"
    assert [row["what"] for row in report["rows"]] == [
        "iteration, idle agent",
        "iteration, agent that reports",
    ]
    assert all(row["rounds"] == 2 and row["reference"] > 0 for row in report["rows"])


@pytest.mark.slow
def test_bench_everything_measures_one_search_over_three_kinds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main("everything", ["--sizes", "30", "--repeat", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["what"] for row in report["rows"]] == [
        "one search over three kinds, fresh process",
        "one search over three kinds, warm",
    ]
    assert all(row["ours"] > 0 and row["reference"] > 0 for row in report["rows"])


@pytest.mark.slow
def test_bench_page_measures_every_view(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main("page", ["--sizes", "40", "--repeat", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    told = {row["what"]: row for row in report["rows"]}
    assert told["/timeline"]["target"] == {"value": 0.3}
    assert told["/search"]["target"] == {"value": 0.1}
    assert {"start to first answer", "/", "/conversations", "/settings"} <= set(told)
    assert all(row["ours"] > 0 and row["reference"] > 0 for row in report["rows"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_server_is_measured_beside_an_echo_and_loses_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if why := why_not():
        missing(why)
    args = ["--sizes", "40", "--repeat", "1", "--seconds", "2", "--json"]
    assert bench.main("server", args) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["what"] for row in rows if row["unit"] == "s/record"] == [
        "search, 32 clients",
        "search, and restarts",
    ]
    assert all(row["ours"] > 0 < row["reference"] for row in rows)
