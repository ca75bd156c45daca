"""How well conversations are found through the memory itself: sessions, and rounds in them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.datasets import text_of
from bench.datasets_chats import Haystack, longmemeval_rounds
from bench.ground import Tell
from bench.ranking import DEPTH, Mean, first_of_each, means, measured
from ralph.kinds.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.memories import Ralph, open_ralph
from ralph.memories.many_conversations import Talk, keep_many
from ralph.memories.series import Series

_SOURCE = "dataset"
# How sessions and rounds are found: what is looked for, and the measures that tell most.
HEADLINES = {
    "round, by search": ("recall@10", "MRR"),
    "session, by search": ("recall@5", "any@5", "all@5"),
    "session, by related": ("recall@5", "any@5", "all@5"),
}
_RELATED = 5
_TELL_EVERY = 10


class Found(msgspec.Struct, frozen=True):
    """One way of finding: over how many questions, and how well."""

    what: str
    questions: int
    means: dict[str, Mean]


def evaluate(
    file: Path, *, limit: int | None = None, tell: Tell = lambda text: None
) -> list[Found]:
    """Ask every question of a LongMemEval file of a memory that holds its sessions."""
    text_of(file)  # says what is wrong with it, if anything is
    asked = longmemeval_rounds(file)[:limit]
    values: dict[str, list[dict[str, float]]] = {name: [] for name in HEADLINES}
    for number, one in enumerate(asked, 1):
        with tempfile.TemporaryDirectory(prefix="ralph-bench-") as folder:
            place = Path(folder)
            with open_ralph(place / "project", home=place / "home") as ralph:
                _ask(ralph, one, values)
        if number % _TELL_EVERY == 0:
            tell(f"{number} of {len(asked)} questions asked")
    return [Found(name, len(some), means(some)) for name, some in values.items() if some]


def _ask(ralph: Ralph, one: Haystack, values: dict[str, list[dict[str, float]]]) -> None:
    memory = ralph.conversations
    talks, evidence = _talks(one)
    keep_many(Series(ralph.project.id, memory.shelf), talks, memory.shelf.settings)
    hits = memory.search(one.question, limit=DEPTH, min_score=0.0)
    sessions = {conversation_id(_SOURCE, name): name for name in (s.id for s in one.sessions)}
    if evidence:
        values["round, by search"].append(measured([hit.id for hit in hits], evidence))
    if one.answers:
        by_search = first_of_each(sessions[hit.record.conversation] for hit in hits)
        values["session, by search"].append(measured(by_search, one.answers))
        related = memory.related(one.question, conversations=_RELATED, min_similarity=0.0)
        by_related = [sessions[told.conversation.id] for told in related.conversations]
        values["session, by related"].append(measured(by_related, one.answers))


def _talks(one: Haystack) -> tuple[list[Talk], frozenset[str]]:
    talks: list[Talk] = []
    evidence: set[str] = set()
    for session in one.sessions:
        name = conversation_id(_SOURCE, session.id)
        at = session.at or None
        exchanges: list[Exchange] = []
        for number, told in enumerate(session.rounds):
            identity = exchange_id(name, str(number))
            exchanges.append(
                Exchange(
                    id=identity,
                    conversation=name,
                    user=told.user,
                    assistant=told.assistant,
                    completed=at,
                )
            )
            if told.holds_answer:
                evidence.add(identity)
        talks.append(Talk(Conversation(id=name, source=_SOURCE, created=at), exchanges))
    return talks, frozenset(evidence)


def to_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Everything as JSON-like data."""
    plain: list[dict[str, Any]] = msgspec.to_builtins(found)
    return plain


def write_table(found: Sequence[Found], write: Callable[[str], object]) -> None:
    """One line a way of finding; the mean and its 95 % interval of what tells most."""
    for one in found:
        told = [
            f"{name} {mean.mean:.3f} [{mean.low:.3f}-{mean.high:.3f}]"
            for name in HEADLINES[one.what]
            if (mean := one.means.get(name))
        ]
        write(f"{one.what:<22} {one.questions:>4} questions  {'  '.join(told)}\n")
