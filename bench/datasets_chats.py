"""Conversations with questions about them: LongMemEval and LoCoMo, as they are published."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.datasets import Ask, Corpus, Dataset, Document, Task, json_of
from ralph.errors import BadInput

_DATES = ("%Y/%m/%d (%a) %H:%M", "%I:%M %p on %d %B, %Y")
_ABSTENTION = "_abs"
_LME_TURN, _LME_SESSION = "turn", "session"
_SESSION_HEADLINE = ("recall@5", "any@5", "all@5")

# Evidence is written by hand there: "D1:3", "D8:6; D9:17", "D30:05", "D:11:26".
_DIALOG_ID = re.compile(r"D:?\s*(\d+)\s*:\s*(\d+)")
_SESSION_KEY = re.compile(r"session_(\d+)")
_ADVERSARIAL = 5
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


class _Turn(msgspec.Struct):
    role: str
    content: str
    has_answer: bool | None = None


class _Instance(msgspec.Struct):
    question_id: str
    question: str
    haystack_sessions: list[list[_Turn]]
    haystack_session_ids: list[str]
    answer_session_ids: list[str]
    haystack_dates: list[str] = []
    question_date: str = ""
    question_type: str = ""


def longmemeval(file: Path) -> Dataset:
    """User turns as documents, sessions as groups; a haystack a question.

    Questions that nothing answers (`_abs`) are left out, as the official evaluation does, and of
    the turns those whose evidence no user turn holds.
    """
    instances: list[_Instance] = json_of(file, list[_Instance], "a LongMemEval file")
    corpora: list[Corpus] = []
    turns: list[Ask] = []
    sessions: list[Ask] = []
    abstentions = 0
    for number, one in enumerate(instances, 1):
        _check_haystack(one, f"{file}: question {number} ({one.question_id})")
        if _ABSTENTION in one.question_id:
            abstentions += 1
            continue
        corpus, evidence = _haystack(one)
        corpora.append(corpus)
        ask = Ask(
            id=one.question_id,
            text=one.question,
            corpus=corpus.name,
            relevant=evidence,
            at=_moment(one.question_date),
            kind=one.question_type,
        )
        if evidence:
            turns.append(ask)
        if one.answer_session_ids:
            wanted = frozenset(one.answer_session_ids)
            sessions.append(msgspec.structs.replace(ask, relevant=wanted))
    notes = [
        f"{abstentions} questions that nothing answers are left out" if abstentions else "",
        f"turn: {len(corpora) - len(turns)} questions without evidence in a user turn left out",
    ]
    return Dataset(
        name="longmemeval",
        corpora=tuple(corpora),
        tasks=(
            Task(_LME_TURN, tuple(turns)),
            Task(_LME_SESSION, tuple(sessions), unit="group", headline=_SESSION_HEADLINE),
        ),
        notes=tuple(filter(None, notes)),
    )


class Round(msgspec.Struct, frozen=True):
    """What a person said and what came back; `holds_answer` to the question."""

    user: str
    assistant: str
    holds_answer: bool


class HeldSession(msgspec.Struct, frozen=True):
    """A session with its rounds in order."""

    id: str
    at: str
    rounds: tuple[Round, ...]


class Haystack(msgspec.Struct, frozen=True):
    """A question, the sessions it is asked of, and those that answer it."""

    id: str
    question: str
    sessions: tuple[HeldSession, ...]
    answers: frozenset[str]


def longmemeval_rounds(file: Path) -> list[Haystack]:
    """The same questions over whole sessions: both sides, a round for each thing a person said."""
    instances: list[_Instance] = json_of(file, list[_Instance], "a LongMemEval file")
    found: list[Haystack] = []
    for number, one in enumerate(instances, 1):
        _check_haystack(one, f"{file}: question {number} ({one.question_id})")
        if _ABSTENTION in one.question_id:
            continue
        dates = one.haystack_dates or [""] * len(one.haystack_sessions)
        sessions = zip(one.haystack_session_ids, dates, one.haystack_sessions, strict=True)
        held = tuple(HeldSession(name, _moment(at), _rounds(some)) for name, at, some in sessions)
        answers = frozenset(one.answer_session_ids)
        found.append(Haystack(one.question_id, one.question, held, answers))
    return found


def _rounds(session: list[_Turn]) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for turn in session:
        holds = bool(turn.has_answer)
        last = rounds[-1] if rounds else None
        if turn.role == "user" or last is None or last.assistant:
            mine = turn.content if turn.role == "user" else ""
            rounds.append(Round(mine, "" if mine else turn.content, holds))
        else:
            rounds[-1] = Round(last.user, turn.content, last.holds_answer or holds)
    return tuple(one for one in rounds if one.user or one.assistant)


def _check_haystack(one: _Instance, where: str) -> None:
    ids, dates = len(one.haystack_session_ids), len(one.haystack_dates)
    count = len(one.haystack_sessions)
    if ids != count or dates not in (0, count):
        raise BadInput(
            f"{count} haystack_sessions, but {ids} haystack_session_ids and {dates} haystack_dates",
            where=where,
            todo="Check that the file is whole.",
        )


def _haystack(one: _Instance) -> tuple[Corpus, frozenset[str]]:
    documents: list[Document] = []
    evidence: set[str] = set()
    dates = one.haystack_dates or [""] * len(one.haystack_sessions)
    for place, (session, group, at) in enumerate(
        zip(one.haystack_sessions, one.haystack_session_ids, dates, strict=True)
    ):
        for number, turn in enumerate(session):
            if turn.role != "user":
                continue
            name = f"{place}:{number}"
            documents.append(
                Document(name, turn.content, speaker=turn.role, at=_moment(at), group=group)
            )
            if turn.has_answer:
                evidence.add(name)
    return Corpus(one.question_id, tuple(documents)), frozenset(evidence)


def _moment(written: str) -> str:
    """A date of either set as timestamps are written everywhere; one in another form is dropped."""
    for form in _DATES:
        try:
            found = datetime.strptime(written.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return found.isoformat().replace("+00:00", "Z")
    return ""


# -- LoCoMo


class _Question(msgspec.Struct):
    question: str
    category: int
    evidence: list[str] = []


class _Sample(msgspec.Struct):
    conversation: dict[str, Any]
    qa: list[_Question]
    sample_id: str | int = ""


class _Said(msgspec.Struct):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str | None = None


def locomo(file: Path) -> Dataset:
    """Turns as documents, with what a shared picture shows; adversarial questions stand apart."""
    samples: list[_Sample] = json_of(file, list[_Sample], "a LoCoMo file")
    corpora: list[Corpus] = []
    turns: list[Ask] = []
    adversarial: list[Ask] = []
    without = 0
    for number, sample in enumerate(samples, 1):
        name = str(sample.sample_id or number)
        corpus = Corpus(name, tuple(_said(sample.conversation, f"{file}: sample {name}")))
        corpora.append(corpus)
        known = {_canonical(one.id): one.id for one in corpus.documents}
        for place, asked in enumerate(sample.qa):
            ids = {_canonical(found) for text in asked.evidence for found in _dialog_ids(text)}
            relevant = frozenset(known[one] for one in ids if one in known)
            without += not relevant
            if relevant:
                kind = _CATEGORIES.get(asked.category, str(asked.category))
                ask = Ask(f"{name}:{place}", asked.question, name, relevant, kind=kind)
                (adversarial if asked.category == _ADVERSARIAL else turns).append(ask)
    tasks = [Task("turn", tuple(turns))]
    if adversarial:
        tasks.append(Task("turn, adversarial", tuple(adversarial)))
    notes = (f"{without} questions without evidence in a turn left out",) if without else ()
    return Dataset("locomo", tuple(corpora), tuple(tasks), notes)


def _said(conversation: dict[str, Any], where: str) -> Iterator[Document]:
    found = ((key, _SESSION_KEY.fullmatch(key)) for key in conversation)
    numbers = sorted(int(match[1]) for _, match in found if match)
    if not numbers:
        raise BadInput(
            "the conversation has no session_1, session_2, ...",
            where=where,
            todo="Check that it is locomo10.json or a file like it.",
        )
    for number in numbers:
        key = f"session_{number}"
        try:
            session = msgspec.convert(conversation[key], list[_Said])
        except msgspec.ValidationError as error:
            raise BadInput(f"{key} is not a list of turns: {error}", where=where) from None
        at = _moment(str(conversation.get(f"{key}_date_time", "")))
        for said in session:
            shown = f"\n[shares {said.blip_caption}]" if said.blip_caption else ""
            yield Document(said.dia_id, said.text + shown, speaker=said.speaker, at=at, group=key)


def _dialog_ids(text: str) -> list[str]:
    return [f"D{session}:{turn}" for session, turn in _DIALOG_ID.findall(text)]


def _canonical(dialog_id: str) -> str:
    """`D30:05` is `D30:5`."""
    match = _DIALOG_ID.fullmatch(dialog_id.strip())
    return f"D{int(match[1])}:{int(match[2])}" if match else dialog_id
