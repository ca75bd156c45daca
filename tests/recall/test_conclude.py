"""From candidates to hits: what is weighed, and what is shown."""

from __future__ import annotations

from ralph.recall import Hit
from ralph.recall.search import Candidate, Found, Question, conclude
from ralph.records import Record
from ralph.text.tokens import PassageWords

WORDS = ["invoice", "rounding", "ledger"]
MANY = 200


def candidate(memory: str, number: int, words: float) -> Candidate:
    record = Record(f"{memory}-{number:03}", "iteration", number, "2026-03-01T10:00:00Z", b"{}")
    text = PassageWords("", " ".join([*WORDS, f"number{number}"]), "")
    return Candidate(record, memory, text, words, None, read=hit_of)


def hit_of(candidate: Candidate) -> Hit:
    record = candidate.record
    return Hit(record.id, record.kind, None, None, "", None, None, at=record.at)


def memory_of(name: str) -> Found:
    """Return a memory with one good candidate and many weak ones."""
    candidates = [candidate(name, 0, 10.0)]
    candidates += [candidate(name, number, 1.0) for number in range(1, MANY)]
    return Found(WORDS, candidates)


def weighed(memory: Found) -> int:
    return sum("evidence" in vars(one) for one in memory.candidates)


def test_candidates_that_cannot_reach_the_minimum_score_are_not_weighed() -> None:
    alone = [memory_of("a")]
    together = [memory_of("a"), memory_of("b")]
    question = Question("invoice rounding ledger", limit=5, min_score=0.4, every=True)

    assert [hit.id for hit in conclude(question, alone)] == ["a-000"]
    assert [hit.id for hit in conclude(question, together)] == ["a-000", "b-000"]
    # The first of each memory are weighed in any case: they tell how likely it answers.
    assert [weighed(memory) for memory in (*alone, *together)] == [20, 20, 20]


def test_without_a_minimum_score_every_candidate_may_be_shown() -> None:
    memories = [memory_of("a"), memory_of("b")]
    question = Question("invoice rounding ledger", limit=2 * MANY, min_score=0.0, every=True)

    assert len(conclude(question, memories)) == 2 * MANY
