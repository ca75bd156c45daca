"""Search: the records that answer a question, each with the sentence that matches."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from ralph.doors.web.page import PageCall
from ralph.doors.web.rows import Row, hit_row
from ralph.errors import BadInput
from ralph.memory.session_days import short_request
from ralph.recall import Hit
from ralph.recall.kinds import KINDS, LABELS
from ralph.records.conversation import EXCHANGE, Conversation
from ralph.text.matching import sentences_about
from ralph.text.outcome import outcome_of
from ralph.text.tokens import query_tokens

_SHORTEST_QUESTION = 3
# How long a search may delay the page to index new records.
_CATCH_UP_S = 2.0
_EXCERPT_CHARS = 300
_READ_CHARS = 40_000
_EXAMPLES = 3


class SearchResult(NamedTuple):
    """A hit as the page shows it: `excerpt` is what in it answers the question."""

    hit: Hit
    row: Row
    excerpt: str
    talk: Conversation | None


def search(call: PageCall) -> Response:
    """Show the search results, best first; with `part`, only the results and not the page."""
    question = call.query.get("q", "").strip()
    kinds = [one for one in call.query.getlist("kind") if one in LABELS]
    asked = frozenset(query_tokens(question))
    results: list[SearchResult] = []
    notes: list[str] = []
    if len(question) >= _SHORTEST_QUESTION or not question.isascii():
        with contextlib.suppress(BadInput):  # an unusable query just finds nothing
            floor = 0.0 if call.query.get("weak") else None
            answer = call.memory.search(
                question,
                kinds=kinds,
                limit=20,
                min_score=floor,
                budget_s=_CATCH_UP_S,
                everywhere=call.everywhere,
            )
            states = call.memory.conversations.states(everywhere=call.everywhere)
            talks = {name: state.conversation for name, state in states.items()}
            results = [_result(hit, asked, talks) for hit in answer]
            notes = list(answer.notes)
    values: dict[str, Any] = {
        "question": question,
        "asked": asked,
        "kinds": kinds,
        "results": results,
        "notes": notes,
        "labels": LABELS,
        "weak": bool(call.query.get("weak")),
        "floor": f"{call.memory.config.settings.min_score:.2f}",
        "examples": [] if question else _examples(call),
    }
    if call.query.get("part"):
        return call.part("results.html", **values)
    return call.page("search.html", **values)


def _result(hit: Hit, asked: frozenset[str], talks: Mapping[str, Conversation]) -> SearchResult:
    row = hit_row(hit)
    text = KINDS[hit.kind].text(hit.record)[:_READ_CHARS]
    if hit.kind == EXCHANGE:
        row = row._replace(title=short_request(hit.record.user) or row.title)
    excerpt = sentences_about(asked, text, _EXCERPT_CHARS, told=row.title)
    if not excerpt and text != row.title:
        excerpt = outcome_of(row.title, text, _EXCERPT_CHARS) or text
    talk = talks.get(hit.record.conversation) if hit.kind == EXCHANGE else None
    return SearchResult(hit, row, excerpt, talk)


def _examples(call: PageCall) -> list[str]:
    """Return titles of the latest conversations: questions that have an answer."""
    states = call.memory.conversations.list(_EXAMPLES, everywhere=call.everywhere)
    return [state.conversation.title for state in states if state.conversation.title]
