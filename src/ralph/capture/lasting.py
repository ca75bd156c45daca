"""Which of a person's words hold beyond their session: rules, choices, and what they put off.

The words of a decision are split into sentences, and each is judged alone. What is kept is quoted
as the person put it.
"""

from __future__ import annotations

import hashlib
import re

from ralph.capture.rules import pattern
from ralph.records.iteration import ACCEPTED_PLAN, TRUNCATED
from ralph.text.sentences import cut_at_end, sentences
from ralph.text.tokens import tokens

# How an answer to a question is written: the question, an arrow, the answer.
_ANSWERS = " -> "
_LEAST_WORDS = 3
_LEAST_CONTENT = 3
_LEAST_QUESTION = 12
_NAME_CHARS = 12
_MOST_CHARS = 200
REJECTED_PLAN = "Rejected plan: "
# Words that say nothing about the subject of a rule.
NO_SUBJECT = frozenset(tokens("always never now instead no longer anymore use go want please"))
_CLAUSE = re.compile(r"[;,] +(?:and |but )?| and (?=(?:never|always|don'?t|do not|use)\b)", re.I)


def rules_in(text: str) -> list[str]:
    """Return the sentences of a person's decision that set a rule."""
    return [_clause(one) for one in _sentences(text) if _is_rule(one)]


def rule_name(rule: str) -> str:
    """Return the name of a rule that only these words have; it is stored in place of them."""
    return hashlib.sha256(rule.encode("utf-8", "replace")).hexdigest()[:_NAME_CHARS]


def says_more(rule: str, other: str) -> bool:
    """Whether a part of a rule is a rule by itself, about something that the other one leaves out.

    "Never run the migrations, and use npm" says more than which program to use.
    """
    clauses = _CLAUSE.split(rule)
    subject = set(tokens(other)) - NO_SUBJECT
    parts = [clause for clause in clauses if rules_in(clause)] if len(clauses) > 1 else []
    return not all(subject & set(tokens(clause)) for clause in parts)


def stands(rule: str) -> bool:
    """Whether a rule holds for the whole project, so that any later session should know it."""
    words = {word for word in tokens(rule) if word.isalpha()}
    if len(words) < _LEAST_CONTENT and rule.isascii():
        return False
    return pattern("stands").search(rule) is not None and not pattern("wavers").search(rule)


def deferred_in(text: str) -> list[str]:
    """Return the sentences that put something off, or say that it has to be undone later."""
    return [one for one in _sentences(text) if pattern("deferred").search(one)]


def choice_in(text: str) -> tuple[str, str] | None:
    """Return a question and the person's answer, if the choice outlives the session."""
    question, arrow, answer = text.rpartition(_ANSWERS)
    if not arrow or text.startswith((ACCEPTED_PLAN, REJECTED_PLAN)):
        return None
    answer = answer.strip()
    if len(question) < _LEAST_QUESTION or pattern("picks").fullmatch(question.strip()):
        return None  # an option of an earlier message
    if answer.endswith("?"):
        return None
    if pattern("passing answer").match(answer) or pattern("passing question").search(question):
        return None
    return question.strip(), answer


def _sentences(text: str) -> list[str]:
    if text.startswith((ACCEPTED_PLAN, REJECTED_PLAN)):
        return []
    whole = text.rpartition(_ANSWERS)[2].removesuffix(TRUNCATED)
    parts = (one for line in whole.split("\n") for one in sentences(line, typed=True))
    return [" ".join(one.split()) for one in parts if one.strip()]


def _is_rule(sentence: str) -> bool:
    if len(sentence.split()) < _LEAST_WORDS and sentence.isascii():
        return False
    if sentence.rstrip(" .)\"'").endswith(("?", "\uff1f")) or not pattern("holds").search(sentence):
        return False
    if pattern("lasting").search(sentence):
        return True
    is_deed = pattern("wants now").match(sentence) is not None
    return not is_deed and pattern("only now").search(sentence) is None


def _clause(sentence: str) -> str:
    """Return a long sentence without the clauses before and after the one that sets the rule."""
    cue = pattern("holds").search(sentence)
    if len(sentence) <= _MOST_CHARS or cue is None:
        return sentence
    begins = max(0, *(sentence.rfind(mark, 0, cue.start() + 1) + 1 for mark in ",;:"))
    whole = sentence[begins:].strip()
    if len(whole) <= _MOST_CHARS:
        return whole
    ends = whole.rfind(",", cue.end() - begins, _MOST_CHARS)
    return whole[:ends] if ends > 0 else cut_at_end(whole, _MOST_CHARS)
