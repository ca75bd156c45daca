"""The bench of conversations: that it measures and reports; never how fast anything is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import bench
from bench import conversations, talks
from bench.conversations import evaluate
from ralph.errors import BadInput


def turn(role: str, content: str, *, answers: bool = False) -> dict[str, Any]:
    return {"role": role, "content": content, "has_answer": answers}


QUESTION = {
    "question_id": "q1",
    "question": "What is the name of my cat?",
    "answer_session_ids": ["pets"],
    "haystack_session_ids": ["work", "pets"],
    "haystack_dates": ["2026/03/01 (Sun) 10:00", "2026/03/02 (Mon) 10:00"],
    "haystack_sessions": [
        [turn("user", "The printer jams every day."), turn("assistant", "Clean its rollers.")],
        [
            turn("assistant", "Welcome back."),
            turn("user", "My cat is called Minka.", answers=True),
            turn("assistant", "What a lovely name for a cat."),
            turn("user", "The garden needs water."),
        ],
    ],
}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    file = tmp_path / "set.json.gz"
    nothing = QUESTION | {"question_id": "q2_abs"}
    file.write_bytes(gzip.compress(json.dumps([QUESTION, nothing]).encode()))
    return file


@pytest.mark.slow
def test_every_measure_stands_beside_its_reference() -> None:
    rows = conversations.run([40], repeat=1, listed=20)

    assert [(row.what, row.size) for row in rows] == [
        ("keep an exchange, many at once", 40),
        ("related(), fresh process", 40),
        ("related(), warm", 40),
        ("search(), warm", 40),
        ("list all, journal read first", 20),
        ("list all, again", 20),
    ]
    assert all(row.ours > 0 and row.reference > 0 for row in rows)


def test_a_session_is_cut_into_rounds(dataset: Path) -> None:
    [one] = talks.read(dataset)

    [asked] = one.questions
    _, pets = one.sessions
    assert [(told.user, told.assistant) for told in pets.rounds] == [
        ("", "Welcome back."),
        ("My cat is called Minka.", "What a lovely name for a cat."),
        ("The garden needs water.", ""),
    ]
    assert [bool(asked.turns.intersection(told.turns)) for told in pets.rounds] == [0, 1, 0]


def test_what_answers_is_looked_for_through_the_memory(dataset: Path) -> None:
    found = {one.what: one for one in evaluate(talks.read(dataset))}

    assert found.keys() == {"round, by search", "session, by search", "session, by related"}
    assert all(one.questions == 1 for one in found.values())
    assert found["round, by search"].means["recall@10"].mean == 1.0
    assert found["session, by related"].means["any@5"].mean == 1.0


def test_quality_is_printed_for_people_and_programs(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main("conversations", ["--dataset", str(dataset)]) == 0
    assert "session, by search   1 question  recall@5 1.000" in capsys.readouterr().out

    assert bench.main("conversations", ["--dataset", str(dataset), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["questions"] for one in told["quality"]] == [1, 1, 1]


@pytest.mark.parametrize("args", [["--sizes", "many"], ["--sizes", "0"], ["--repeat", "0"]])
def test_arguments_that_make_no_sense_are_refused(args: list[str]) -> None:
    assert bench.main("conversations", args) == 2


def test_a_file_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    with pytest.raises(BadInput, match="cannot be read"):
        talks.read(file)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="not a LongMemEval file"):
        talks.read(file)


def test_two_peoples_sessions_are_read_by_turns_or_by_pairs(tmp_path: Path) -> None:
    said = [("D1:1", "Ann", "My cat is Minka."), ("D1:2", "Bob", "Nice!"), ("D1:3", "Ann", "Yes.")]
    turns = [{"dia_id": name, "speaker": who, "text": text} for name, who, text in said]
    talk = {
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns},
        "qa": [
            {"question": "What is the cat called?", "evidence": ["D1:1; D9:9"], "category": 4},
            {"question": "What is Bob's cat called?", "evidence": ["D1:1"], "category": 5},
            {"question": "Who is Eve?", "evidence": []},
        ],
    }
    (tmp_path / "26.json").write_text(json.dumps(talk), encoding="utf-8")

    [alone], [pairs] = talks.read(tmp_path, single_turns=True), talks.read(tmp_path)

    [session] = pairs.sessions
    assert session.at == "2023-05-08T13:56:00Z"
    assert session.rounds == (
        talks.Round("Ann: My cat is Minka.", "Bob: Nice!", ("D1:1", "D1:2")),
        talks.Round("Ann: Yes.", "", ("D1:3",)),
    )
    assert [one.turns for one in alone.sessions[0].rounds] == [("D1:1",), ("D1:2",), ("D1:3",)]
    asked = talks.TalkQuestion(
        "What is the cat called?", frozenset({"D1:1"}), frozenset({"session_1"})
    )
    assert pairs.questions == alone.questions == (asked,)


def test_chats_with_an_assistant_are_read_from_a_folder_for_each(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "Hi ->-> 1,1"},
        {"role": "assistant", "id": 1, "content": "Hello."},
        {"role": "user", "id": 2, "content": "Deploy on Friday."},
    ]
    (tmp_path / "1" / "probing_questions").mkdir(parents=True)
    chat = [{"batch_number": 1, "turns": [turns]}]
    (tmp_path / "1" / "chat.json").write_text(json.dumps(chat), encoding="utf-8")
    asked = {
        "temporal": [{"question": "When?", "source_chat_ids": {"first": [2], "last": [2, 99]}}],
        "abstention": [{"question": "Who?"}],
    }
    questions = tmp_path / "1" / "probing_questions" / "probing_questions.json"
    questions.write_text(json.dumps(asked), encoding="utf-8")

    [talk] = talks.read(tmp_path)

    [session] = talk.sessions
    assert session == talks.ChatSession(
        "batch_1",
        "2024-03-15T00:00:00Z",
        (talks.Round("Hi", "Hello.", ("0", "1")), talks.Round("Deploy on Friday.", "", ("2",))),
    )
    assert talk.questions == (talks.TalkQuestion("When?", frozenset("2"), frozenset({"batch_1"})),)


def test_a_folder_without_talks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no JSON file"):
        talks.read(tmp_path)
