"""The bench of knowledge: that it measures and reports; never how fast anything is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import bench
from bench import knowledge
from bench.knowledge import evaluate

ISSUES = [
    {
        "instance_id": "harbour-1",
        "problem_statement": "The crane stops when its wind sensor is wet\nIt reads 300 knots.",
        "gold_patch": "+    if reading > LARGEST: return None",
        "hints": "A wet sensor of the crane short-circuits, and every reading above the largest "
        "there is must be thrown away instead of stopping.",
    },
    {
        "instance_id": "garden-1",
        "problem_statement": "Invoices sort accented names last\nÄrger comes behind Zorn.",
        "gold_patch": "+ORDER BY name COLLATE unicode",
        "hints": "",
    },
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    file = tmp_path / "issues.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, ISSUES)).encode()))
    return file


@pytest.mark.slow
def test_every_measure_stands_beside_its_reference() -> None:
    rows = knowledge.run([40], repeat=1, staged=12)

    assert [(row.what, row.size) for row in rows] == [
        ("one capture", 40),
        ("query for a task, warm", 40),
        ("the same, one technology", 40),
        ("query for a failure, warm", 40),
        ("context for a task, warm", 40),
        ("query, fresh process", 40),
        ("checkpoint of 12 staged", 40),
    ]
    assert all(row.ours > 0 and row.reference > 0 for row in rows)


def test_each_issue_is_asked_for_through_the_memory_and_of_the_index_alone(dataset: Path) -> None:
    found = {one.what: one for one in evaluate(dataset)}

    assert {name: one.questions for name, one in found.items()} == {
        "by title": 2,
        "by title, index alone": 2,
        "by discussion": 1,
        "by discussion, index alone": 1,
    }
    assert all(one.means["recall@1"].mean == 1.0 for one in found.values())
    assert found["by title"].above_floor == 1.0


def test_the_dataset_is_reported_as_a_table_and_as_json(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main("knowledge", ["--dataset", str(dataset)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert bench.main("knowledge", ["--dataset", str(dataset), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)

    assert [line.split("  ")[0] for line in table] == [one["what"] for one in plain["quality"]]
    assert "recall@1 1.000 [1.000-1.000]" in table[0]


@pytest.mark.parametrize("args", [["--sizes", "many"], ["--repeat", "0"], ["--staged", "0"]])
def test_arguments_that_make_no_sense_are_refused(args: list[str]) -> None:
    assert bench.main("knowledge", args) == 2


def test_help_names_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main("knowledge", ["--help"]) == 0
    assert "--staged" in capsys.readouterr().out
