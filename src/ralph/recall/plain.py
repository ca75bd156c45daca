"""Search without an index: by words, straight over records. Slower, and always there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ralph.index import Cut
from ralph.index.facets import fits
from ralph.recall import Found, Parts
from ralph.recall.calibration import score, weigh, why
from ralph.recall.search import Question, relevance
from ralph.record import Record
from ralph.text.tokens import query_tokens, tokens


def search_plainly(
    records: Iterable[tuple[str, Record]], cut: Cut, question: Question
) -> list[Found]:
    """The records (each with its stream) whose words answer best, none under the floor."""
    asked = query_tokens(question.text)
    wanted = frozenset(asked)
    held: list[tuple[str, Record, frozenset[str]]] = []
    frequencies: Counter[str] = Counter()
    for stream, record in records:
        for passage in cut(record):
            if not fits(passage.facets, question.only):
                continue
            words = frozenset(tokens(f"{passage.title}\n{passage.text}\n{passage.places}"))
            held.append((stream, record, words))
            frequencies.update(words & wanted)
    found: list[Found] = []
    for stream, record, words in held:
        if not words & wanted:
            continue
        evidence = weigh(asked, words, frequencies=frequencies, count=len(held))
        value = round(score(evidence), 4)
        if value >= question.min_score:
            parts = Parts(
                words=round(evidence.coverage, 4),
                words_rank=None,
                matched=evidence.matched,
                asked=evidence.asked,
                coverage=round(evidence.coverage, 4),
                meaning=None,
                meaning_rank=None,
                mixed=value,
                score=value,
            )
            found.append(
                Found(record, stream, value, relevance(value), why(evidence, question.text), parts)
            )
    found.sort(key=lambda hit: (-hit.score, hit.record.id))
    best = {(hit.record.id, hit.record.digest): hit for hit in reversed(found)}
    return sorted(best.values(), key=lambda hit: (-hit.score, hit.record.id))[: question.limit]
