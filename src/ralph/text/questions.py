"""Whether a text is a question, and whether an answer says that there is none."""

from __future__ import annotations

import re

# Words that open a question in English. A question in another language needs its question mark.
_AUXILIARIES = frozenset(
    """
    am are can could did do does had has have is may might must shall should was were will would
    """.split()
)
_OPENERS = _AUXILIARIES | frozenset("how what when where which who whom whose why".split())
# Also the full-width mark and the Arabic one.
_MARKS = ("?", "\uff1f", "\u061f")
_YES_OR_NO = re.compile(
    r"(?:yes|no|yep|nope|never|always)\b(?=[.,;:!]|\s*$|\s+[-\u2013\u2014])", re.I
)
_FIRST_SENTENCE = re.compile(r"\s*[^\n]*?(?:[.!?](?=\s)|$|(?=\n))")
_WRITER = r"\bI(?:['\u2019](?:m|ve|d|ll))?\b"
_NEGATION = r"(?:n['\u2019]t|\b(?:not|no|nothing|never|cannot|unable))\b"
_DENIAL = re.compile(rf"{_WRITER}[^.!?]{{0,40}}?{_NEGATION}", re.I)


def is_question(text: str) -> bool:
    """Whether a text asks something: it ends with a question mark, or opens like a question."""
    plain = text.strip().rstrip("\"')]*_ ")
    return plain.endswith(_MARKS) or _first_word(plain) in _OPENERS


def is_yes_or_no(question: str, answer: str) -> bool:
    """Whether an answer says yes or no to a question that wants to know that."""
    if _YES_OR_NO.match(answer.strip()) is None:
        return False
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s", question.strip())]
    return any(_first_word(sentence) in _AUXILIARIES for sentence in sentences)


def denies(answer: str) -> bool:
    """Whether an answer begins with what its writer does not know, have or find, or only asks."""
    first = _FIRST_SENTENCE.match(answer)
    if _first_word(answer.strip()) in _OPENERS and not question_and_rest(answer)[1]:
        return True
    return first is not None and _DENIAL.search(first[0]) is not None


def question_and_rest(text: str) -> tuple[str, str]:
    """Return the questions with which a text begins, and what comes after them."""
    end = 0
    while (found := _FIRST_SENTENCE.match(text, end)) and found[0].rstrip().endswith(_MARKS):
        end = found.end()
    return text[:end], text[end:].strip()


def _first_word(text: str) -> str:
    return text.partition(" ")[0].partition("'")[0].lower()
