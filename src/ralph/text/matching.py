"""The sentences of a text that say most about a question."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from ralph.text.rarity import usual_rarity
from ralph.text.sentences import cut_at_end, pieces
from ralph.text.tokens import tokens

# Sentences that share less with the question than this, in nats, say nothing about it.
_LEAST_NATS = 5.0
_MOST_SENTENCES = 2
# A long sentence is cut if so much of it is left.
_LEAST_CUT_CHARS = 100
_BETWEEN_ITEMS = "; "


class Statement(NamedTuple):
    """A sentence, or an item of a list with the words that lead to the list."""

    text: str
    lead: str = ""
    is_item: bool = False


def sentences_about(asked: Set[str], text: str, max_chars: int, *, told: str = "") -> str:
    """Return the sentence or two that share most with a question, and what follows them as far as
    it fits; "" if they share little. A question says nothing.

    `asked` are the tokens of the question. Sentences of `told` are not repeated. Among equal ones
    the shortest come first, then the first in the text. The reason or the consequence usually
    follows. An item comes with the words that lead to its list, as far as they fit.
    """
    statements = [
        statement
        for statement in _statements(text, max_chars)
        if not statement.text.endswith("?") and not _is_in(statement.text, told)
    ]
    best = range(0)
    most = (_LEAST_NATS, 0)
    for first in range(len(statements)):
        for last in range(first + 1, min(first + _MOST_SENTENCES, len(statements)) + 1):
            chosen = _joined(statements[first:last])
            shared = sum(map(usual_rarity, asked & set(tokens(chosen))))
            if len(chosen) <= max_chars and (shared, -len(chosen)) > most:
                best = range(first, last)
                most = (shared, -len(chosen))
    if not best:
        return ""
    end = best.stop
    while end < len(statements) and len(_joined(statements[best.start : end + 1])) <= max_chars:
        end += 1
    return _with_lead(statements[best.start : end], max_chars)


def _statements(text: str, max_chars: int) -> list[Statement]:
    """Return the sentences and items of a text, in order; long ones are cut."""
    found: list[Statement] = []
    lead = ""
    for piece in pieces(text):
        if piece.kind not in ("prose", "item"):
            lead = ""
            continue
        is_item = piece.kind == "item"
        for place, sentence in enumerate(piece.sentences):
            if not is_item:
                lead = sentence if sentence.endswith(":") else ""
            if len(sentence) > max_chars >= _LEAST_CUT_CHARS:
                sentence = cut_at_end(sentence, max_chars)
            found.append(Statement(sentence, lead, is_item and place == 0))
    return found


def _joined(statements: Sequence[Statement]) -> str:
    """Return the statements one after another; a semicolon stands between items."""
    text = ""
    for statement in statements:
        if not text:
            text = statement.text
        elif statement.is_item and not text.endswith((".", "!", "?", ":", ";")):
            text = f"{text}{_BETWEEN_ITEMS}{statement.text}"
        else:
            text = f"{text} {statement.text}"
    return text


def _with_lead(statements: Sequence[Statement], max_chars: int) -> str:
    """Return the statements after the words that lead to the first one, if those fit."""
    said = _joined(statements)
    lead = statements[0].lead
    if not lead or lead == statements[0].text:
        return said
    longer = f"{lead} {said}"
    if len(longer) <= max_chars:
        return longer
    if len(lead) >= len(said):
        return said
    return f"{lead} {cut_at_end(said, max_chars - len(lead) - 1)}"


def _is_in(sentence: str, told: str) -> bool:
    """Whether a text has this sentence, or its beginning where the text was cut."""
    if sentence in told:
        return True
    last = told.rstrip("\u2026. ")
    return told.endswith("\u2026") and any(
        sentence.startswith(last[at:]) for at in _starts_of_sentences(last)
    )


def _starts_of_sentences(text: str) -> list[int]:
    return [
        0,
        *(at + 2 for at in range(len(text) - 2) if text[at] in ".!?" and text[at + 1] == " "),
    ]
