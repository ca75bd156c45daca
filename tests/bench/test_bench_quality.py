"""`scripts/bench quality`: what it measures on questions whose ranks can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benching import BenchLine
from places import DATA
from remembering import ToyEmbedder

from bench.datasets import Ask, Corpus, Dataset, Document, Task
from bench.naive import Naive
from bench.quality import (
    Asked,
    Outcome,
    Report,
    TaskReport,
    cost,
    evaluate,
    largest,
    pooled,
    shown,
    to_json,
)
from bench.quality_index import WHOLE, Cutting, corpus_index, document_of
from bench.ranking import Mean
from ralph.errors import EmbedderOff
from ralph.index import Passage
from ralph.index.sync import live_of
from ralph.records import Record

OWN_PAIRS = DATA / "own_pairs.jsonl"
BIRDS = Corpus(
    "birds",
    (
        Document("d1", "penguins walk on ice", group="cold"),
        Document("d2", "gulls fly over the harbour", group="sea"),
        Document("d3", "penguins swim below the ice in winter", group="cold"),
        Document("d4", "ostriches run", group="warm"),
    ),
)
DATASET = Dataset(
    "birds",
    (BIRDS,),
    (
        Task(
            "document",
            (
                Ask("q1", "harbour gulls", "birds", frozenset({"d2"})),
                Ask("q2", "penguins walk", "birds", frozenset({"d3"})),
                Ask("q3", "sparrows", "birds", frozenset({"d4"})),
            ),
        ),
        Task(
            "group",
            (Ask("q2", "penguins walk", "birds", frozenset({"cold"})),),
            unit="group",
            headline=("recall@5",),
        ),
    ),
)


def ranks(report: Report, way: str, measure: str = "MRR") -> dict[str, float]:
    return {ask: values[measure] for ask, values in report.task("document").values[way].items()}


# -- evaluating


def test_each_way_of_searching_has_the_measures_that_its_order_gives() -> None:
    report = evaluate(DATASET, ToyEmbedder())

    # By words q2 finds d1 before d3, which lacks a word; q3 finds nothing.
    assert ranks(report, "words") == {"q1": 1.0, "q2": 0.5, "q3": 0.0}
    assert ranks(report, "bm25") == {"q1": 1.0, "q2": 0.5, "q3": 0.0}
    assert ranks(report, "mix")["q1"] == ranks(report, "naive")["q1"] == 1.0
    assert ranks(report, "mix", "recall@5")["q2"] == 1.0
    assert report.task("document").means["words"]["MRR"].mean == 0.5
    # Both documents of the group are hits, and the group counts once.
    assert report.task("group").means["words"]["recall@1"].mean == 1.0
    assert (report.documents, report.corpora, report.embedder) == (4, 1, "toy:1")


def test_meaning_alone_is_the_order_of_the_cosines() -> None:
    toy = ToyEmbedder()
    report = evaluate(DATASET, toy)
    checked = []
    for ask in DATASET.tasks[0].asks:
        texts = [one.text for one in BIRDS.documents]
        cosines = toy.embed_passages(texts) @ toy.embed_query(ask.text)
        order = sorted(range(len(texts)), key=lambda row: -cosines[row])
        [wanted] = ask.relevant
        place = [BIRDS.documents[row].id for row in order].index(wanted) + 1
        ties = [cosines[row] for row in order].count(cosines[order[place - 1]])
        if ties == 1:  # the order of equal ones is not promised
            assert ranks(report, "meaning")[ask.id] == 1 / place
            checked.append(ask.id)
    assert {"q1", "q2"} <= set(checked)


def test_without_an_embedder_there_are_words_alone() -> None:
    report = evaluate(DATASET, None)
    assert set(report.tasks[0].means) == {"bm25", "words"}
    assert report.embedder == "none"


def test_a_way_of_ranking_of_ones_own_gets_the_view_the_question_and_its_vector() -> None:
    seen: list[Asked] = []

    def backwards(view: Any, collections: Any, asked: Asked, vector: Any) -> Sequence[str]:
        seen.append(asked)
        assert vector is not None
        assert view.size(collections[0]).passages == len(BIRDS.documents)
        return ["d4", "d3", "d2", "d1"]

    report = evaluate(DATASET, ToyEmbedder(), {"backwards": backwards}, baselines=False)

    assert ranks(report, "backwards") == {"q1": 1 / 3, "q2": 1 / 2, "q3": 1.0}
    assert [one.text for one in seen] == ["harbour gulls", "penguins walk", "sparrows"]
    assert seen[1].depth > seen[0].depth  # a task on groups looks deeper


def test_another_way_of_cutting_changes_what_is_found() -> None:
    def shouting(record: Record) -> Sequence[Passage]:
        one = document_of(record)
        return [Passage(title="sparrows" if one.id == "d4" else "", text=one.text)]

    report = evaluate(DATASET, None, cutting=Cutting("shouting", shouting))

    assert ranks(report, "words")["q3"] == 1.0


def test_one_way_is_compared_with_another_question_by_question() -> None:
    task = evaluate(DATASET, None).task("document")
    assert task.better("words", "bm25")["MRR"] == Mean(0.0, 0.0, 0.0)


def test_an_embedder_that_is_down_is_an_error_not_a_bad_figure() -> None:
    toy = ToyEmbedder()
    toy.off = True
    with pytest.raises(EmbedderOff):
        evaluate(DATASET, toy)


def test_what_was_embedded_once_is_kept_in_the_cache(tmp_path: Path) -> None:
    first, second = ToyEmbedder(), ToyEmbedder()

    once = evaluate(DATASET, first, cache=tmp_path)
    again = evaluate(DATASET, second, cache=tmp_path)

    assert once == again
    assert sorted(first.embedded) == sorted(one.text for one in BIRDS.documents)
    assert second.embedded == []


def test_another_embedder_does_not_get_the_vectors_of_the_first(tmp_path: Path) -> None:
    evaluate(DATASET, ToyEmbedder("toy:1"), cache=tmp_path)
    other = ToyEmbedder("toy:2")
    evaluate(DATASET, other, cache=tmp_path)
    assert len(other.embedded) == len(BIRDS.documents)


def test_a_corpus_larger_than_a_batch_is_indexed_whole() -> None:
    many = tuple(Document(str(number), f"word{number}x") for number in range(1100))
    with corpus_index(None) as place:
        name = place.built(Corpus("many", many))
        with place.store.state() as view:
            collection = live_of(view, name)
            assert collection is not None
            assert view.size(collection).records == 1100
        assert place.built(Corpus("many", many)) == name


# -- the baselines


def test_the_naive_mix_is_half_words_and_half_cosine_each_stretched() -> None:
    toy = ToyEmbedder()
    naive = Naive(BIRDS.documents, toy)
    vector = toy.embed_query("harbour gulls")
    assert naive.by_words("harbour gulls", 10) == ["d2"]
    assert naive.by_mix("harbour gulls", vector, 4)[0] == "d2"
    assert set(naive.by_mix("harbour gulls", vector, 4)) == {"d1", "d2", "d3", "d4"}
    assert naive.by_mix("the harbour", vector, 1, quick=True) == ["d2"]
    assert naive.by_words('"?!', 10) == []
    naive.close()


# -- the cost


def test_the_cost_of_a_question_is_told_beside_the_naive_mix() -> None:
    row = cost(DATASET, ToyEmbedder(), records=50)
    assert (row.size, row.reference_is, row.target.ratio) == (50, "naive mix", None)
    assert row.ours > 0
    assert row.reference > 0


def test_documents_are_pooled_and_come_again_where_there_are_too_few() -> None:
    documents = pooled(DATASET, 10).documents
    assert len({one.id for one in documents}) == 10
    assert {one.text for one in documents} == {one.text for one in BIRDS.documents}
    assert largest(DATASET) == BIRDS


# -- the report


def made(mean: float = 0.5) -> Outcome:
    means = {"recall@10": Mean(mean, 0.25, 1.0)}
    task = TaskReport("turn", ("recall@10",), 2, {"mix": {}}, {"mix": means, "bm25": means})
    return Outcome(Report("birds", "toy:1", 4, 1, (task,)), "a", 7)


def test_a_figure_is_short_and_says_its_interval() -> None:
    assert shown(Mean(0.9184, 0.84, 0.977)) == ".918 [.84-.98]"
    assert shown(Mean(1.0, 1.0, 1.0)) == "1.000 [1.00-1.00]"
    assert shown(Mean(-0.021, -0.05, 0.01)) == "-.021 [-.05-.01]"


def test_json_says_which_half_and_which_seed() -> None:
    plain = to_json(made())
    assert (plain["half"], plain["seed"], plain["cost"]) == ("a", 7, None)
    assert list(plain["tasks"][0]["ways"]) == ["bm25", "mix"]
    assert plain["tasks"][0]["ways"]["mix"]["recall@10"] == {"mean": 0.5, "low": 0.25, "high": 1.0}
    assert "values" not in plain["tasks"][0]
    assert to_json(made(), details=True)["tasks"][0]["values"] == {"mix": {}}


# -- the command


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> BenchLine:
    return BenchLine(capsys)


def test_the_command_prints_a_table_with_all_ways_side_by_side(line: BenchLine) -> None:
    ran = line.well("quality", "--dataset", "own", "--file", str(OWN_PAIRS), "--limit", "5")

    lines = ran.out.splitlines()
    assert "question -> record, 5 questions" in lines
    heading = next(line for line in lines if "mix" in line)
    assert heading.split() == ["bm25", "words", "meaning", "naive", "mix"]
    assert any(line.startswith("recall@1 *") for line in lines)


def test_the_command_prints_json(line: BenchLine) -> None:
    options = ["--half", "b", "--seed", "3", "--limit", "4", "--json", "--embedder", "none"]
    asked = ["--dataset", "own", "--file", str(OWN_PAIRS), *options]
    ran = line.well("quality", *asked)

    plain = ran.json
    assert (plain["dataset"], plain["embedder"], plain["half"]) == ("own", "none", "b")
    assert plain["tasks"][0]["questions"] == 4


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--dataset", "own"], 2, "--file"),
        (["--dataset", "trec", "--file", "x"], 2, "invalid choice: 'trec'"),
        (["--dataset", "own", "--file", "gone.jsonl"], 1, "gone.jsonl: there is no such file"),
        (["--dataset", "own", "--file", str(OWN_PAIRS), "--limit", "0"], 2, "a number from 1"),
        (["--dataset", "own", "--file", str(OWN_PAIRS), "--half", "c"], 2, "invalid choice: 'c'"),
        (
            ["--dataset", "own", "--file", str(OWN_PAIRS), "--embedder", "bert"],
            1,
            "embedder cannot be 'bert'",
        ),
        (["--dataset", "longmemeval", "--file", str(OWN_PAIRS)], 1, "it is not a LongMemEval file"),
    ],
)
def test_a_command_that_makes_no_sense_says_what_is_wrong(
    words: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: BenchLine,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = line("quality", *words)
    assert ran.code == code
    assert complaint in ran.err


def test_whole_is_the_way_the_bench_cuts_unless_told_otherwise() -> None:
    document = Document("d", "the text", title="The title")
    with corpus_index(None) as place:
        assert place.cutting is WHOLE
    record = Record("d", "document", 1, "", json.dumps({"id": "d", "text": " "}).encode())
    assert WHOLE.cut(record) == ()
    plain = {"id": "d", "text": document.text, "title": document.title}
    [passage] = WHOLE.cut(Record("d", "document", 1, "", json.dumps(plain).encode()))
    assert (passage.title, passage.text, passage.embed) == (
        "The title",
        "the text",
        "The title\nthe text",
    )
