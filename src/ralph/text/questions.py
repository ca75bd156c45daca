"""Whether a text is a question."""

from __future__ import annotations

# Words that open a question in English. A question in another language needs its question mark.
_OPENERS = frozenset(
    """
    am are can could did do does had has have how is may might must shall should was were what when
    where which who whom whose why will would
    """.split()
)
# Also the full-width mark and the Arabic one.
_MARKS = ("?", "\uff1f", "\u061f")


def is_question(text: str) -> bool:
    """Whether a text asks something: it ends with a question mark, or opens like a question."""
    plain = text.strip().rstrip("\"')]*_ ")
    if plain.endswith(_MARKS):
        return True
    first = plain.partition(" ")[0].partition("'")[0]
    return first.lower() in _OPENERS
