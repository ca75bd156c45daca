"""The sentences of a text that say most about a question."""

from __future__ import annotations

from collections.abc import Set

from ralph.text.rarity import usual_rarity
from ralph.text.sentences import pieces
from ralph.text.tokens import tokens

# Sentences that share less with the question than this, in nats, say nothing about it.
_LEAST_NATS = 5.0
_MOST_SENTENCES = 2


def sentences_about(asked: Set[str], text: str, max_chars: int) -> str:
    """Return the sentence or two that share most with a question, and what follows them as far as
    it fits; "" if they share little.

    `asked` are the tokens of the question. Among equal ones the shortest come first, then the first
    in the text. The reason or the consequence usually follows.
    """
    found = [
        sentence
        for piece in pieces(text)
        if piece.kind in ("prose", "item")
        for sentence in piece.sentences
        if len(sentence) <= max_chars
    ]
    best = range(0)
    most = (_LEAST_NATS, 0)
    for first in range(len(found)):
        for last in range(first + 1, min(first + _MOST_SENTENCES, len(found)) + 1):
            chosen = " ".join(found[first:last])
            shared = sum(map(usual_rarity, asked & set(tokens(chosen))))
            if len(chosen) <= max_chars and (shared, -len(chosen)) > most:
                best = range(first, last)
                most = (shared, -len(chosen))
    said = " ".join(found[place] for place in best)
    for sentence in found[best.stop :] if best else ():
        longer = f"{said} {sentence}"
        if len(longer) > max_chars:
            break
        said = longer
    return said
