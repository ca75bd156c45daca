"""Read public sets of conversations with questions about them into one shape.

A talk has the sessions of one or two people and the questions about them. `read` supports
LongMemEval (one JSON file), LoCoMo and REALTALK (a folder with a JSON file for each pair of people)
and BEAM (a folder with a folder for each chat).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.datasets import check_haystack, is_abstention, json_of, longmemeval_instances, moment
from ralph.errors import BadInput

_DATES = ("%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S", "%B-%d-%Y")
_TURN = re.compile(r"D\d+:\d+")
_BEAM_MARK = re.compile(r"\s*->->.*\Z", re.S)
_ADVERSARIAL = 5


class Round(msgspec.Struct, frozen=True):
    """A message and its answer; `turns` are the names of both in the set."""

    user: str
    assistant: str = ""
    turns: tuple[str, ...] = ()


class ChatSession(msgspec.Struct, frozen=True):
    """A session with its rounds in order."""

    id: str
    at: str
    rounds: tuple[Round, ...]


class TalkQuestion(msgspec.Struct, frozen=True):
    """A question, the turns and sessions that answer it, and when it is asked."""

    text: str
    turns: frozenset[str]
    sessions: frozenset[str]
    at: str = ""


class Talk(msgspec.Struct, frozen=True):
    """Sessions and the questions about them."""

    id: str
    sessions: tuple[ChatSession, ...]
    questions: tuple[TalkQuestion, ...]


def read(path: Path, *, single_turns: bool = False) -> list[Talk]:
    """The talks of a set; with `single_turns`, each turn between people is its own round."""
    if not path.is_dir():
        return longmemeval(path)
    if chats := sorted(path.glob("*/chat.json"), key=lambda one: (len(one.parent.name), one)):
        return [_beam(file) for file in chats]
    files = sorted(path.glob("*.json"))
    if not files:
        raise BadInput(
            "there is no JSON file in this folder", where=str(path), todo="Check the path."
        )
    return [_locomo(file, 1 if single_turns else 2) for file in files]


def longmemeval(file: Path) -> list[Talk]:
    """One talk for each question, with one round for each message of the person."""
    found: list[Talk] = []
    for number, one in enumerate(longmemeval_instances(file), 1):
        check_haystack(one, f"{file}: question {number} ({one.question_id})")
        if is_abstention(one):
            continue
        dates = one.haystack_dates or [""] * len(one.haystack_sessions)
        chats: list[ChatSession] = []
        evidence: set[str] = set()
        for name, at, session in zip(
            one.haystack_session_ids, dates, one.haystack_sessions, strict=True
        ):
            turns = [
                (f"{name}/{place}", turn.role == "user", turn.content)
                for place, turn in enumerate(session)
            ]
            evidence |= {turns[place][0] for place, turn in enumerate(session) if turn.has_answer}
            chats.append(ChatSession(name, moment(at), _rounds(turns)))
        asked = TalkQuestion(
            one.question,
            frozenset(evidence),
            frozenset(one.answer_session_ids),
            moment(one.question_date),
        )
        found.append(Talk(one.question_id, tuple(chats), (asked,)))
    return found


def _rounds(turns: Iterable[tuple[str, bool, str]]) -> tuple[Round, ...]:
    """Pair each message with its answer. A turn: its name, whether the person said it, its text."""
    rounds: list[Round] = []
    for name, is_user, text in turns:
        last = rounds[-1] if rounds else None
        if is_user or last is None or last.assistant:
            rounds.append(Round(text, "", (name,)) if is_user else Round("", text, (name,)))
        else:
            rounds[-1] = Round(last.user, text, (*last.turns, name))
    return tuple(one for one in rounds if one.user or one.assistant)


def _locomo(file: Path, turns_each: int) -> Talk:
    """The sessions of two people, without the questions that are meant to mislead."""
    plain: dict[str, Any] = json_of(file, dict[str, Any], "a file of LoCoMo or REALTALK")
    talk = plain.get("conversation", plain)
    chats: list[ChatSession] = []
    number = 1
    while session := talk.get(f"session_{number}"):
        at = talk.get(f"session_{number}_date_time") or session[0].get("date_time", "")
        turns = [(one["dia_id"], _said(one)) for one in session]
        rounds = []
        for place in range(0, len(turns), turns_each):
            names, texts = zip(*turns[place : place + turns_each], strict=True)
            rounds.append(Round(texts[0], "".join(texts[1:]), names))
        chats.append(ChatSession(f"session_{number}", _moment(at), tuple(rounds)))
        number += 1
    asked = (
        (one["question"], {turn for text in one["evidence"] for turn in _TURN.findall(text)})
        for one in plain["qa"]
        if one.get("category") != _ADVERSARIAL
    )
    return _talk(file.stem, chats, asked)


def _said(turn: Mapping[str, Any]) -> str:
    text = f"{turn['speaker']}: {turn.get('text') or turn.get('clean_text', '')}"
    shared = turn.get("blip_caption")
    return f"{text} [shares {shared}]" if shared else text


def _beam(file: Path) -> Talk:
    """A person's chat with an assistant, without the questions that have no answer in it."""
    chats: list[ChatSession] = []
    for batch in json_of(file, list[dict[str, Any]], "a chat of BEAM"):
        turns = [turn for group in batch["turns"] for turn in group]
        at = next((turn["time_anchor"] for turn in turns if turn.get("time_anchor")), "")
        told = [
            (str(one["id"]), one["role"] == "user", _BEAM_MARK.sub("", one["content"]))
            for one in turns
        ]
        chats.append(ChatSession(f"batch_{batch['batch_number']}", _moment(at), _rounds(told)))
    questions = file.parent / "probing_questions" / "probing_questions.json"
    asked = (
        (one["question"], {str(number) for number in _numbers(one.get("source_chat_ids"))})
        for some in json_of(questions, dict[str, list[Any]], "questions of BEAM").values()
        for one in some
    )
    return _talk(file.parent.name, chats, asked)


def _numbers(nested: Any) -> list[int]:
    if isinstance(nested, int):
        return [nested]
    parts = nested.values() if isinstance(nested, dict) else nested or ()
    return [number for part in parts for number in _numbers(part)]


def _talk(name: str, chats: Sequence[ChatSession], asked: Iterable[tuple[str, set[str]]]) -> Talk:
    home = {turn: chat.id for chat in chats for one in chat.rounds for turn in one.turns}
    questions: list[TalkQuestion] = []
    for text, named in asked:
        turns = frozenset(named & home.keys())
        if turns:
            sessions = frozenset(home[turn] for turn in turns)
            questions.append(TalkQuestion(text, turns, sessions))
    return Talk(name, tuple(chats), tuple(questions))


def _moment(written: str) -> str:
    """A date in one of the formats of the sets; any other format gives an empty string."""
    for form in _DATES:
        try:
            return datetime.strptime(written.strip(), form).strftime("%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            continue
    return ""
