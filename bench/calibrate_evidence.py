"""What `scripts/bench calibrate` fits on: hits of Ralph's search that somebody judged.

A hit of a public set that nobody marked is not wrong, it is unjudged, and left out. What is wrong
for certain: what a person marked so, and anything found for a question that nothing there answers,
because it was written that way or belongs to another corpus altogether.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.datasets import Ask, Corpus, Dataset, Document, Task, json_of, read
from bench.quality_ground import Tell
from bench.quality_pairs import TOP, labelled
from ralph.errors import BadInput
from ralph.index import Embedder
from ralph.recall.calibration import Evidence

# Of a question that nothing answers the first hits count: people look no further.
_FIRST = 3
# So many issues are asked of each conversation: there are many times more issues than those.
_ISSUES_A_CHAT = 5

OWN, POOLED = "own", "own, in one"
RECALL, ABSENT, UNRELATED = "recall", "recall, absent", "recall, unrelated"
TURN, TITLE, DISCUSSION = "turn", "title -> fix", "discussion -> issue"
CHAT_TO_ISSUES, ISSUE_TO_CHATS = "chat -> issues", "issue -> chats"
NOTHING_ANSWERS = frozenset({ABSENT, UNRELATED, CHAT_TO_ISSUES, ISSUE_TO_CHATS})


class Judged(msgspec.Struct, frozen=True):
    """A hit, what speaks for it, and whether it is what was asked for."""

    source: str
    question: str
    right: bool
    evidence: Evidence


class Files(msgspec.Struct, frozen=True):
    """Where the questions are."""

    own: Path
    pairs: Path | None = None
    longmemeval: Path | None = None
    issue_fix: Path | None = None


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    summary: str
    questions: list[str]


class _Project(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_Asked]
    absent: list[str]


class _RecallPairs(msgspec.Struct, forbid_unknown_fields=True):
    projects: dict[str, _Project]
    unrelated: list[str]
    about: str = ""


def everything(files: Files) -> Dataset:
    """All questions as one dataset with a task for each source, ready for the search."""
    parts = [_own(read("own", files.own))]
    if files.pairs:
        parts.append(_recall(files.pairs))
    chats = read("longmemeval", files.longmemeval) if files.longmemeval else None
    issues = read("issue-fix", files.issue_fix) if files.issue_fix else None
    parts += [one for one in (chats, issues) if one is not None]
    if chats is not None and issues is not None:
        parts.append(_crossed(chats, issues))
    corpora = tuple(corpus for part in parts for corpus in part.corpora)
    tasks = tuple(task for part in parts for task in part.tasks)
    return Dataset("calibrate", corpora, tasks)


def judged(
    dataset: Dataset,
    embedder: Embedder | None,
    *,
    cache: Path | None = None,
    tell: Tell = lambda text: None,
) -> Iterator[Judged]:
    """The judged ones among the first hits of every question."""
    for pair in labelled(dataset, embedder, cache=cache, tell=tell):
        wrong = pair.task in NOTHING_ANSWERS and (pair.rank or TOP) <= _FIRST
        if wrong or (pair.judged and pair.rank is not None):
            yield Judged(pair.task, pair.question, pair.label, pair.evidence)


def halves(hits: Sequence[Judged], seed: int) -> tuple[list[Judged], list[Judged]]:
    """Two halves by question: all hits of a question, from whatever source, are in one."""
    questions = sorted({one.question for one in hits})
    random.Random(f"halves {seed}").shuffle(questions)
    first = frozenset(questions[: (len(questions) + 1) // 2])
    return (
        [one for one in hits if one.question in first],
        [one for one in hits if one.question not in first],
    )


def _own(own: Dataset) -> Dataset:
    """The projects each for itself, and again all in one collection."""
    pool = Corpus(POOLED, tuple(one for corpus in own.corpora for one in corpus.documents))
    asks = tuple(ask for task in own.tasks for ask in task.asks)
    pooled = tuple(msgspec.structs.replace(ask, corpus=POOLED) for ask in asks)
    tasks = (Task(OWN, asks), Task(POOLED, pooled))
    return msgspec.structs.replace(own, corpora=(*own.corpora, pool), tasks=tasks)


def _recall(file: Path) -> Dataset:
    """Few records a project, questions for each, and questions that none of them answers."""
    if not file.exists():
        raise BadInput(
            "there is no such file", where=str(file), todo="Give the file of pairs with --pairs."
        )
    plain: _RecallPairs = json_of(file, _RecallPairs, "a file of records and their questions")
    corpora: list[Corpus] = []
    asks: dict[str, list[Ask]] = {RECALL: [], ABSENT: [], UNRELATED: []}
    for name, project in plain.projects.items():
        corpus = f"recall {name}"
        documents: list[Document] = []
        for number, record in enumerate(project.records, 1):
            document = Document(f"{name}-{number}", record.summary, title=record.title)
            documents.append(document)
            answer = frozenset({document.id})
            asks[RECALL] += [Ask(f"{name}: {q}", q, corpus, answer) for q in record.questions]
        for kind, questions in ((ABSENT, project.absent), (UNRELATED, plain.unrelated)):
            asks[kind] += [Ask(f"{name}: {q}", q, corpus, frozenset()) for q in questions]
        corpora.append(Corpus(corpus, tuple(documents)))
    tasks = tuple(Task(kind, tuple(some)) for kind, some in asks.items())
    return Dataset(RECALL, tuple(corpora), tasks)


def _crossed(chats: Dataset, issues: Dataset) -> Dataset:
    """Questions about conversations asked of the issues and their fixes, and the other way."""
    of_chats = [ask for task in chats.tasks if task.name == TURN for ask in task.asks]
    titles = [ask for task in issues.tasks if task.name == TITLE for ask in task.asks]
    nothing: frozenset[str] = frozenset()
    to_issues = tuple(
        Ask(f"{corpus.name}: {ask.id}", ask.text, corpus.name, nothing)
        for corpus in issues.corpora
        for ask in of_chats
    )
    to_chats = tuple(
        Ask(f"{corpus.name}: {ask.id}", ask.text, corpus.name, nothing)
        for place, corpus in enumerate(chats.corpora)
        for ask in titles[place * _ISSUES_A_CHAT : (place + 1) * _ISSUES_A_CHAT]
    )
    tasks = (Task(CHAT_TO_ISSUES, to_issues), Task(ISSUE_TO_CHATS, to_chats))
    return Dataset("crossed", (), tasks)
