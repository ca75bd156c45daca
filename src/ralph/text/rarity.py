"""How rare words are in what developers write, whatever a memory holds."""

from __future__ import annotations

import functools

from ralph.text.tokens import STOP_WORDS, stem, table

HEADER = "# Stems by rarity, half a nat a line; see embedder/rarities.py.\n\n[stems]"
# How much rarer the words of a line are than those of the line before, in nats.
STEP = 0.5
_NUMBER = 2.5
# Words that people say to an agent whatever the subject is ("looks good, commit and push").
_ORDERS = frozenset(
    stem(word)
    for word in """
    add again agree ahead amend answer approve brief bug carry change code commit continue decide
    done error explain file fine first fix go good great help idea issue job keep know last leave
    lgtm lint look make mean merge need next nice no not nothing now ok okay one option origin
    perfect please problem proceed push question read rebase recommendation resume retry revert run
    say second see sense ship show sorry sound start stop summarize sure tell test thank thing think
    try update wait want work yes
    """.split()
)
_ORDER = 1.5


def is_chatter(token: str) -> bool:
    """Whether a token says nothing about a subject: a stop word, a small number, an order."""
    return token in STOP_WORDS or token in _ORDERS or _is_small(token)


def _is_small(token: str) -> bool:
    """Whether it is a single letter or a small number, which occur everywhere by chance."""
    return len(token) == 1 or (token.isdigit() and len(token) < 3)


@functools.lru_cache(maxsize=16384)
def usual_rarity(token: str) -> float:
    """Return how much a match of this token says, in nats: 0 for a stop word."""
    if token in STOP_WORDS:
        return 0.0
    if _is_small(token):
        return _NUMBER
    known, most = _table()
    rarity = known.get(token, most)
    return min(rarity, _ORDER) if token in _ORDERS else rarity


@functools.cache
def _table() -> tuple[dict[str, float], float]:
    """Return the rarity of each known stem, and the rarity of all others."""
    rows = table(__file__, "rarities.txt")["stems"]
    known: dict[str, float] = {}
    for step, row in enumerate(rows, start=1):
        known |= dict.fromkeys(row.split(), STEP * step)
    return known, STEP * (len(rows) + 1)
