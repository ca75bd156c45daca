"""What a person decided or put off, as far as it still holds: the newest wording of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ralph.capture.lasting import deferred_in, rules_in, says_more, stands
from ralph.memory.past_work import PastWork
from ralph.text.sameness import compare, gist
from ralph.text.tokens import tokens

_LEAST_SHARED = 2


class PersonsWords(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a person, and the exchange in which it was said."""

    text: str
    at: str
    id: str
    origin: str = ""


def standing_rules(work: Sequence[PastWork]) -> list[PersonsWords]:
    """Return the rules that hold, the newest first.

    `work` is in time order. Of rules that say the same, or the opposite, only the newest is kept.
    """
    kept: list[PersonsWords] = []
    for words in _sentences(work, rules_in):
        if not stands(words.text):
            continue
        if not any(_is_newer_of(other.text, words.text) for other in kept):
            kept.append(words)
    return kept


def _is_newer_of(newer: str, older: str) -> bool:
    """Whether a newer rule says the same as an older one, or the opposite, and all of it."""
    return compare(gist(older), gist(newer)) != "unique" and not says_more(older, newer)


def put_off(work: Sequence[PastWork]) -> list[PersonsWords]:
    """Return what a person put off and what nobody has spoken of since, the newest first."""
    found: list[PersonsWords] = []
    for words in _sentences(work, deferred_in):
        wanted = set(tokens(words.text))
        later = (one for one in work if one.at > words.at)
        if not any(_speaks_of(one, wanted) for one in later):
            found.append(words)
    return found


def _sentences(
    work: Sequence[PastWork], sentences_in: Callable[[str], Iterable[str]]
) -> Iterable[PersonsWords]:
    """Yield the sentences of people that a function finds, each once, the newest first."""
    seen: set[str] = set()
    for one in reversed(work):
        for text in one.decided:
            for sentence in sentences_in(text):
                if sentence not in seen:
                    seen.add(sentence)
                    yield PersonsWords(text=sentence, at=one.at, id=one.id, origin=one.conversation)


def _speaks_of(work: PastWork, wanted: set[str]) -> bool:
    said = (decision.description for decision in work.decisions)
    return any(len(wanted & set(tokens(text))) > _LEAST_SHARED for text in said)
