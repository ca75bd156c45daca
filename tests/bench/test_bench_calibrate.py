"""`scripts/bench calibrate`: known constants come back, and so do figures worked out by hand."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benching import BenchLine
from places import DATA
from remembering import ToyEmbedder

from bench.calibrate import (
    ABSENT,
    BINS,
    CHAT_TO_ISSUES,
    DISCUSSION,
    ISSUE_TO_CHATS,
    OWN,
    POOLED,
    RECALL,
    TITLE,
    TURN,
    UNRELATED,
    Files,
    Judged,
    cosines,
    everything,
    fitted,
    halves,
    judged,
    logistic_fit,
    table,
    weights,
)
from bench.datasets import Ask, Corpus, Dataset, Document, Task
from ralph.errors import BadInput
from ralph.recall.search import Constants, Evidence, score_by

OWN_PAIRS = DATA / "own_pairs.jsonl"
RECALL_PAIRS = DATA / "recall_pairs.json"
KNOWN = Constants(-3.0, 6.0, 4.0, 0.0, 0.5)


def hit(
    right: bool, *, source: str = OWN, question: str = "q", value: float = 0.5, cosine: float = 0.2
) -> Judged:
    return Judged(source, question, right, Evidence((), 2, value, value * 8, 4.0, cosine))


def drawn(count: int, *, source: str = OWN, seed: int = 1) -> list[Judged]:
    """Hits of all sorts, right as often as the known constants say."""
    chance = random.Random(seed)
    hits = []
    for number in range(count):
        coverage = chance.random()
        weight, cosine = 12 * coverage * chance.random(), chance.choice([0.0, 0.25, 0.5])
        evidence = Evidence((), 3, coverage, weight, 4.0, cosine)
        right = chance.random() < score_by(evidence, KNOWN)
        hits.append(Judged(source, f"q{number}", right, evidence))
    return hits


# -- fitting


def test_a_fit_finds_the_constants_that_made_the_data() -> None:
    chance = np.random.default_rng(3)
    told = chance.random((20_000, 2))
    likely = 1 / (1 + np.exp(-(-3.0 + 5.0 * told[:, 0] + 2.0 * told[:, 1])))
    right = (chance.random(len(told)) < likely).astype(float)

    assert logistic_fit(told, right, np.ones(len(told))) == pytest.approx([-3, 5, 2], abs=0.15)


def test_judged_hits_give_back_the_constants_they_were_drawn_with() -> None:
    hits = drawn(20_000)

    found = fitted(hits)

    right = sum(one.right for one in hits)
    # Right and wrong hits weigh the same, which moves the intercept and nothing else.
    balanced = KNOWN.intercept + math.log((len(hits) - right) / right)
    assert found.intercept == pytest.approx(balanced, abs=0.2)
    assert found.per_words == pytest.approx(KNOWN.per_words, rel=0.06)
    assert found.per_meaning == pytest.approx(KNOWN.per_meaning, rel=0.06)
    assert (found.unrelated, found.related) == (KNOWN.unrelated, KNOWN.related)


def test_words_alone_are_fitted_without_a_cosine() -> None:
    bare = [
        Judged(
            one.source, one.question, one.right, Evidence((), 3, e.coverage, e.weight, 4.0, None)
        )
        for one in drawn(500)
        for e in [one.evidence]
    ]
    found = fitted(bare)
    assert found.per_words > 1.0
    assert (found.per_meaning, found.unrelated, found.related) == (0.0, 0.0, 1.0)


def test_hits_that_are_told_apart_without_a_doubt_have_finite_constants() -> None:
    hits = [hit(True, value=0.9)] * 20 + [hit(False, value=0.1)] * 20
    found = fitted(hits)
    assert all(math.isfinite(one) for one in (found.intercept, found.per_words))
    assert score_by(hits[0].evidence, found) > 0.95
    assert score_by(hits[-1].evidence, found) < 0.05


def test_meaning_never_counts_for_more_than_words_or_more_words_could_lower_a_score() -> None:
    chance = random.Random(5)
    hits = []
    for _ in range(400):  # only the cosine tells, and the words say the contrary
        right = chance.random() < 0.5
        words = chance.random() * (0.4 if right else 0.8)
        hits.append(hit(right, value=words, cosine=0.4 if right else 0.1 * chance.random()))
    found = fitted(hits)
    assert found.per_meaning <= found.per_words


def test_without_both_right_and_wrong_hits_there_is_nothing_to_fit() -> None:
    with pytest.raises(BadInput, match="none of the 3 judged hits is wrong"):
        fitted([hit(True)] * 3)
    with pytest.raises(BadInput, match="none of the 2 judged hits is right"):
        fitted([hit(False)] * 2)


def test_each_source_counts_the_same_and_our_own_double() -> None:
    hits = [hit(True)] * 2 + [hit(True, source=TURN)] * 8 + [hit(False, source=ABSENT)] * 3

    found = weights(hits)

    assert found[:2].sum() == pytest.approx(2 * found[2:10].sum())
    assert found[:10].sum() == pytest.approx(found[10:].sum())
    assert found.sum() == pytest.approx(1.0)


def test_the_cosines_are_quartiles_of_what_is_unrelated_and_of_what_is_right() -> None:
    wrong = [hit(False, source=UNRELATED, cosine=one / 100) for one in range(0, 40)]
    hard = [hit(False, cosine=0.9)] * 40  # a hard negative is related, and no answer
    right = [hit(True, cosine=0.4 + one / 100) for one in range(0, 40)]
    hits = [*wrong, *hard, *right]
    assert cosines(hits, weights(hits)) == (0.1, 0.7)
    assert cosines(right, weights(right)) == (0.0, 1.0)


# -- how well a score keeps its word


def test_a_table_counts_each_bin_and_what_lies_over_the_thresholds() -> None:
    scores = {0.1: [False] * 4, 0.5: [True, False], 0.6: [True] * 3 + [False], 1.0: [True] * 5}
    hits = [hit(right, value=value) for value, some in scores.items() for right in some]

    found = table(OWN, hits, lambda one: one.evidence.coverage)

    assert [one.count for one in found.bins] == [4, 0, 2, 4, 0, 5]
    assert [one.right for one in found.bins] == [0.0, 0.0, 0.5, 0.75, 0.0, 1.0]
    assert (found.right, found.wrong) == (9, 6)
    assert found.right_over == pytest.approx((1.0, 8 / 9, 5 / 9))
    assert found.wrong_over == pytest.approx((2 / 6, 1 / 6, 0.0))
    # Promised 0.1, 0.5, 0.6 and 1.0; kept 0, 0.5, 0.75 and 1.
    assert found.error == pytest.approx((4 * 0.1 + 4 * 0.15) / 15)
    losses = 4 * math.log(0.9) + 2 * math.log(0.5) + 3 * math.log(0.6) + math.log(0.4)
    assert found.log_loss == pytest.approx(-losses / 15)
    kept = found.bins[3]
    assert kept.low < 0.75 < kept.high


def test_a_score_that_makes_its_data_is_on_the_diagonal() -> None:
    hits = drawn(20_000)
    found = table(OWN, hits, lambda one: score_by(one.evidence, KNOWN))
    assert found.error < 0.02
    assert all(one.low <= one.score <= one.high for one in found.bins if one.count > 100)


def test_a_source_where_nothing_answers_has_no_right_hits_to_count() -> None:
    found = table(ABSENT, [hit(False, source=ABSENT)] * 3, lambda one: 0.3)
    assert found.right_over is None
    assert found.wrong_over == (0.0, 0.0, 0.0)


# -- gathering


def test_only_judged_hits_are_evidence() -> None:
    documents = tuple(Document(f"d{n}", f"penguins walk on ice number{n}") for n in range(5))
    asks = Ask("q", "penguins walk", "birds", frozenset({"d1"}), distractors=frozenset({"d2"}))
    nothing = Ask("n", "penguins ice", "birds", frozenset())
    tasks = (Task(OWN, (asks,)), Task(ABSENT, (nothing,)))

    found = list(
        judged(Dataset("birds", (Corpus("birds", documents),), tasks), ToyEmbedder("toy:1"))
    )

    # Of five hits the two that are marked; of the question that nothing answers the first three.
    assert sorted((one.source, one.right) for one in found) == [
        (OWN, False),
        (OWN, True),
        *[(ABSENT, False)] * 3,
    ]


def test_a_question_is_in_one_half_whatever_source_asks_it() -> None:
    hits = [hit(True, question=f"q{n % 40}", source=OWN if n < 40 else POOLED) for n in range(80)]
    first, second = halves(hits, 0)
    asked = [{one.question for one in half} for half in (first, second)]
    assert asked[0].isdisjoint(asked[1])
    assert len(first) == len(second) == 40
    assert halves(hits, 0) == (first, second) != halves(hits, 1)


def written(file: Path, lines: Sequence[Any]) -> Path:
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


@pytest.fixture
def public(tmp_path: Path) -> tuple[Path, Path]:
    """A LongMemEval file and a file of issues, as small as can be."""
    turn = {"role": "user", "content": "I painted my bicycle green.", "has_answer": True}
    chat = {
        "question_id": "q1",
        "question": "What colour is my bicycle?",
        "haystack_sessions": [[turn, {"role": "user", "content": "Which tea is best?"}]],
        "haystack_session_ids": ["s1"],
        "answer_session_ids": ["s1"],
    }
    issues = [
        {
            "instance_id": f"x-{n}",
            "problem_statement": f"Crash in module{n}\nIt crashes.",
            "gold_patch": f"diff --git a/module{n}.py\n@@ -1 +1 @@\n-old\n+new{n}\n",
            "hints": f"It happens since the parser of module{n} reads the header twice " * 2,
        }
        for n in range(3)
    ]
    return (
        written(tmp_path / "chats.json", [[chat]]),
        written(tmp_path / "issues.jsonl", issues),
    )


def test_questions_are_asked_of_the_corpus_they_do_not_belong_to(public: tuple[Path, Path]) -> None:
    chats, issues = public

    tasks = {one.name: one for one in everything(Files(OWN_PAIRS, None, chats, issues)).tasks}

    assert {OWN, POOLED, TURN, TITLE, DISCUSSION, CHAT_TO_ISSUES, ISSUE_TO_CHATS} <= set(tasks)
    assert [(one.text, one.corpus) for one in tasks[CHAT_TO_ISSUES].asks] == [
        ("What colour is my bicycle?", "fixes"),
        ("What colour is my bicycle?", "issues"),
    ]
    assert {one.corpus for one in tasks[ISSUE_TO_CHATS].asks} == {"q1"}
    assert not any(one.relevant for one in tasks[ISSUE_TO_CHATS].asks)
    alone = {one.name for one in everything(Files(OWN_PAIRS, None, chats)).tasks}
    assert alone == {OWN, POOLED, TURN, "session"}


def test_our_own_pairs_are_asked_in_their_project_and_in_all_at_once() -> None:
    dataset = everything(Files(OWN_PAIRS, RECALL_PAIRS))
    sizes = {one.name: len(one.documents) for one in dataset.corpora}
    pooled = sizes.pop(POOLED)
    assert pooled == sum(n for name, n in sizes.items() if not name.startswith(RECALL)) > 50
    asked = {one.name: len(one.asks) for one in dataset.tasks}
    assert asked[OWN] == asked[POOLED] > 150
    assert asked[UNRELATED] == 400
    assert asked[RECALL] > 150
    assert asked[ABSENT] > 50


# -- the command


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> BenchLine:
    return BenchLine(capsys)


@pytest.mark.slow
def test_the_command_tells_of_the_half_it_did_not_fit_on(tmp_path: Path, line: BenchLine) -> None:
    files = ["--own", str(OWN_PAIRS), "--pairs", str(RECALL_PAIRS), "--cache", str(tmp_path / "c")]
    ran = line.well("calibrate", *files, "--embedder", "static", "--json")

    with_meaning, alone = ran.json["ways"]
    assert with_meaning["embedder"].startswith("static:")
    assert alone["embedder"] is None
    for way in (with_meaning, alone):
        everywhere, *sources = way["after"]
        assert everywhere["log_loss"] < 0.5  # a coin has 0.69
        assert everywhere["right"] == sum(one["right"] for one in sources) > 150
        assert [len(one["bins"]) for one in sources] == [len(BINS)] * len(sources)
        assert way["found"] != way["final"]
        assert way["final"]["per_words"] >= way["final"]["per_meaning"]

    other = line.well("calibrate", *files, "--embedder", "none", "--json", "--half", "b")
    [turned] = other.json["ways"]
    assert turned["final"] == alone["final"]  # on all questions, whichever half is told of
    assert turned["found"] != alone["found"]
    assert turned["fitted_on"] == alone["after"][0]["right"] + alone["after"][0]["wrong"]


def test_the_command_prints_a_table_and_the_constants(line: BenchLine) -> None:
    ran = line.well("calibrate", "--own", str(OWN_PAIRS), "--embedder", "none")
    assert "words alone: fitted on" in ran.out
    assert "as scored now" in ran.out
    assert any(line.startswith("own, in one") for line in ran.out.splitlines())
    assert "fitted on all, for calibration.py: Constants(-" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "--own"),
        (["--own", "gone.jsonl"], 1, "gone.jsonl: there is no such file"),
        (["--own", str(OWN_PAIRS), "--pairs", "gone.json"], 1, "gone.json: there is no such file"),
        (["--own", str(OWN_PAIRS), "--pairs", str(OWN_PAIRS)], 1, "it is not a file of records"),
        (["--own", str(OWN_PAIRS), "--longmemeval", "gone"], 1, "gone: there is no such file"),
        (["--own", str(OWN_PAIRS), "--issue-fix", str(OWN_PAIRS)], 1, "an issue with its fix"),
        (["--own", str(OWN_PAIRS), "--half", "c"], 2, "invalid choice: 'c'"),
        (["--own", str(OWN_PAIRS), "--embedder", "bert"], 1, "embedder cannot be 'bert'"),
        (["--own", "one.jsonl", "--embedder", "none"], 1, "too few judged hits for two halves"),
        (["--own", "right.jsonl", "--embedder", "none"], 1, "judged hits is wrong"),
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
    record = {"project": "p", "record": "r", "title": "Gulls", "summary": "Gulls over harbours"}
    pairs = [
        {"project": "p", "record": "r", "question": question, "label": 1, "kind": "plain"}
        for question in ("gulls", "harbours")
    ]
    written(tmp_path / "one.jsonl", [record, pairs[0]])
    written(tmp_path / "right.jsonl", [record, *pairs])
    ran = line("calibrate", *words)
    assert ran.code == code
    assert complaint in ran.err
