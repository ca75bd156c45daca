"""Public datasets in their own formats, small and made by hand, and what is said of bad ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from places import DATA

from bench.datasets import READERS, Dataset, chosen, read
from ralph.errors import BadInput

OWN_PAIRS = DATA / "own_pairs.jsonl"


def instance(**changed: Any) -> dict[str, Any]:
    """A question of LongMemEval with two sessions; the second answers it."""
    plain: dict[str, Any] = {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "What colour is my bicycle?",
        "answer": "green",
        "question_date": "2023/05/30 (Tue) 16:40",
        "haystack_dates": ["2023/05/20 (Sat) 00:29", "2023/05/21 (Sun) 10:00"],
        "haystack_session_ids": ["s1", "s2"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "Which tea is best?"},
                {"role": "assistant", "content": "Green tea."},
            ],
            [
                {"role": "user", "content": "I painted my bicycle green.", "has_answer": True},
                {"role": "assistant", "content": "Lovely!", "has_answer": False},
                {"role": "user", "content": "Thanks."},
            ],
        ],
        "answer_session_ids": ["s2"],
    }
    return plain | changed


def issue(number: int, **changed: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "instance_id": f"x__x-{number}",
        "repo": "x/x",
        "problem_statement": f"\nThing {number} is broken\nIt says so.",
        "hints": "short",
        "gold_patch": "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n"
        "@@ -1,2 +1,2 @@\n same\n-old\n+new\n",
    }
    return plain | changed


def written(file: Path, *, whole: Any = None, lines: list[Any] | None = None) -> Path:
    text = json.dumps(whole) if lines is None else "".join(f"{json.dumps(x)}\n" for x in lines)
    file.write_text(text, encoding="utf-8")
    return file


def beir(folder: Path, *, qrels: str) -> Path:
    folder.mkdir(exist_ok=True)
    corpus = [
        {"_id": "d1", "title": "Boats", "text": "They float.", "metadata": {}},
        {"_id": "d2", "text": "No title here."},
    ]
    queries = [{"_id": "q1", "text": "what floats"}, {"_id": "q2", "text": "nobody judged"}]
    written(folder / "corpus.jsonl", lines=corpus)
    written(folder / "queries.jsonl", lines=queries)
    (folder / "qrels.tsv").write_text(qrels, encoding="utf-8")
    return folder


# -- LongMemEval


def test_longmemeval_has_user_turns_as_documents_and_sessions_as_groups(tmp_path: Path) -> None:
    file = written(tmp_path / "lme.json", whole=[instance()])

    found = read("longmemeval", file)

    [corpus] = found.corpora
    assert [(one.text, one.group, one.at) for one in corpus.documents] == [
        ("Which tea is best?", "s1", "2023-05-20T00:29:00Z"),
        ("I painted my bicycle green.", "s2", "2023-05-21T10:00:00Z"),
        ("Thanks.", "s2", "2023-05-21T10:00:00Z"),
    ]
    turn, session = found.tasks
    assert (turn.name, turn.unit, session.name, session.unit) == (
        "turn",
        "document",
        "session",
        "group",
    )
    assert turn.asks[0].relevant == {corpus.documents[1].id}
    assert turn.asks[0].at == "2023-05-30T16:40:00Z"
    assert session.asks[0].relevant == {"s2"}


def test_questions_that_nothing_answers_are_left_out_and_told_of(tmp_path: Path) -> None:
    silent = [[{"role": "assistant", "content": "It is green.", "has_answer": True}], []]
    file = written(
        tmp_path / "lme.json",
        whole=[
            instance(),
            instance(question_id="q2_abs"),
            instance(question_id="q3", haystack_sessions=silent),
        ],
    )

    found = read("longmemeval", file)

    turn, session = found.tasks
    assert [ask.id for ask in turn.asks] == ["q1"]
    assert [ask.id for ask in session.asks] == ["q1", "q3"]
    assert len(found.notes) == 2
    assert found.notes[0].startswith("1 question")


def test_a_haystack_with_a_session_too_few_is_refused_with_its_question(tmp_path: Path) -> None:
    file = written(tmp_path / "lme.json", whole=[instance(haystack_session_ids=["s1"])])
    with pytest.raises(BadInput, match=r"question 1 \(q1\): 2 haystack_sessions, but 1"):
        read("longmemeval", file)


# -- issues and their fixes


def test_an_issues_first_line_asks_for_its_patch_without_what_did_not_change(
    tmp_path: Path,
) -> None:
    long = issue(2, problem_statement="T" * 5000, hints="h" * 500, gold_patch="+p\n" * 5000)
    file = tmp_path / "issues.jsonl.gz"
    lines = "".join(f"{json.dumps(one)}\n" for one in (issue(1), long))
    file.write_bytes(gzip.compress(lines.encode()))

    found = read("issue-fix", file)

    fixes, issues = found.corpora
    assert fixes.documents[0].text == "diff --git a/a.py b/a.py\n@@ -1,2 +1,2 @@\n-old\n+new"
    assert [len(corpus.documents[1].text) for corpus in (fixes, issues)] == [3000, 3000]
    titles, discussions, _ = found.tasks
    assert [ask.text for ask in titles.asks] == ["Thing 1 is broken", "T" * 200]
    assert [(ask.text, set(ask.relevant)) for ask in discussions.asks] == [("h" * 400, {"x__x-2"})]


def test_a_word_that_no_other_issue_has_asks_for_its_issue(tmp_path: Path) -> None:
    texts = ("The Parser drops tokens", "parser and lexer", "tokens of the LEXER, drops")
    issues = [issue(n, problem_statement=text) for n, text in enumerate(texts)]
    issues.append(issue(3, problem_statement="a decorator"))
    names = read("issue-fix", written(tmp_path / "issues.jsonl", lines=issues)).tasks[2]
    assert [(ask.text, set(ask.relevant)) for ask in names.asks] == [("decorator", {"x__x-3"})]


# -- BEIR's layout


@pytest.mark.parametrize(
    "qrels",
    [
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq1\tgone\t2\n",
        "q1\t0\td1\t1\r\nq1\t0\td2\t0\r\nq1\t0\tgone\t1\r\n",
    ],
)
def test_beirs_layout_is_read_from_a_folder_with_or_without_a_heading(
    tmp_path: Path, qrels: str
) -> None:
    found = read("beir-like", beir(tmp_path / "boats", qrels=qrels))

    [task] = found.tasks
    [ask] = task.asks
    assert (ask.text, set(ask.relevant)) == ("what floats", {"d1"})
    assert found.corpora[0].documents[0].title == "Boats"
    assert found.notes == ("1 judgements name a document that is not there",)
    assert read("beir-like", tmp_path / "boats" / "corpus.jsonl") == found


def test_a_folder_that_lacks_a_file_and_a_judgement_that_is_none_are_told_of(
    tmp_path: Path,
) -> None:
    folder = beir(tmp_path / "boats", qrels="q1\td1\t1\nq1 d2 1\n")
    with pytest.raises(BadInput, match=r"qrels\.tsv:2: the line is not query-id"):
        read("beir-like", folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(BadInput, match=r"there is no queries\.jsonl\. BEIR's layout is"):
        read("beir-like", folder)


# -- our own


def test_our_own_pairs_are_three_hundred_and_more_and_half_of_them_hard_negatives() -> None:
    found = read("own", OWN_PAIRS)

    asks = [ask for task in found.tasks for ask in task.asks]
    positive = sum(len(ask.relevant) for ask in asks)
    negative = sum(len(ask.distractors) for ask in asks)
    assert positive + negative >= 300
    assert negative >= 150
    assert 0.45 <= negative / (positive + negative) <= 0.55
    assert len(found.corpora) >= 5
    texts = [one.text for corpus in found.corpora for one in corpus.documents]
    assert len(set(texts)) == len(texts)
    assert not any(ask.relevant & ask.distractors for ask in asks)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"project": "p", "record": "r2"}, "2: the line lacks record, title and summary"),
        (
            {"project": "p", "question": "why?", "record": "r9", "label": 1},
            "2: the project 'p' has no record 'r9' above",
        ),
        (
            {"project": "p", "question": "why?", "record": "r1", "label": 2},
            "2: the line lacks question and label",
        ),
        ({"project": "p", "questoin": "why?"}, "2: the line is not a record .*`questoin`"),
    ],
)
def test_a_pair_that_makes_no_sense_is_refused_with_its_line(
    tmp_path: Path, line: dict[str, Any], complaint: str
) -> None:
    first = {"project": "p", "record": "r1", "title": "T", "summary": "S"}
    file = written(tmp_path / "own.jsonl", lines=[first, line])
    with pytest.raises(BadInput, match=complaint):
        read("own", file)


# -- any of them


def test_a_dataset_nobody_knows_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no dataset 'trec'\. There is: longmemeval"):
        read("trec", tmp_path)
    with pytest.raises(BadInput, match=r"gone\.json: there is no such file"):
        read("own", tmp_path / "gone.json")


@pytest.mark.parametrize("name", [name for name in READERS if name != "beir-like"])
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'[{"a": 1}]', b"\xff\xfe\x00", b"\x1f\x8b\x08broken", b"null"]
)
def test_a_file_that_is_something_else_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    file = tmp_path / "some.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"some\.json") as refused:
        read(name, file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["longmemeval", "issue-fix"])
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read(name, tmp_path)


# -- halves


def asked(dataset: Dataset) -> list[set[str]]:
    return [{ask.id for ask in task.asks} for task in dataset.tasks]


@pytest.mark.parametrize("seed", range(5))
def test_the_halves_share_nothing_and_leave_nothing_out(tmp_path: Path, seed: int) -> None:
    lines = [issue(number, hints="h" * (100 if number % 3 else 10)) for number in range(31)]
    whole = read("issue-fix", written(tmp_path / "i.jsonl", lines=lines))

    a, b = (asked(chosen(whole, half=half, seed=seed)) for half in ("a", "b"))

    for one, other, both in zip(a, b, asked(whole), strict=True):
        assert one & other == set()
        assert one | other == both
    assert (len(a[0]), len(b[0])) == (16, 15)
    assert a[1] <= a[0]  # the same issue is in the same half of both tasks
    assert asked(chosen(whole, half="a", seed=seed)) == a


def test_another_seed_draws_other_halves(tmp_path: Path) -> None:
    whole = read(
        "issue-fix", written(tmp_path / "i.jsonl", lines=[issue(number) for number in range(30)])
    )
    assert asked(chosen(whole, half="a", seed=1)) != asked(chosen(whole, half="a", seed=2))


def test_a_limit_takes_the_first_questions_and_only_their_corpora(tmp_path: Path) -> None:
    instances = [instance(question_id=f"q{number}") for number in range(4)]
    whole = read("longmemeval", written(tmp_path / "lme.json", whole=instances))

    some = chosen(whole, limit=2)

    assert asked(some) == [{"q0", "q1"}, {"q0", "q1"}]
    assert [corpus.name for corpus in some.corpora] == ["q0", "q1"]
