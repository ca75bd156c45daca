"""Find the agent's sentence that says why an error happened, or why a change helped.

A sentence is quoted only if it belongs: it shares a name like `--all` or `os/exec`, or a rare word,
with the error or with what was changed. It is better to quote none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from ralph.capture.lines import sentences
from ralph.capture.rules import names as listed
from ralph.capture.rules import pattern
from ralph.text.rarity import usual_rarity
from ralph.text.tokens import tokens

LONGEST_TEXT = 4000
_SHORTEST = 12
# The longest sentence that is quoted, and what it takes with its quotes.
_LONGEST = 240
LONGEST_REASON = _LONGEST + 4
_LEAST_CLAUSE = 25
_MOST_TEXTS = 4
_MOST_CACHED = 200
# How rare the shared words must be, in nats: one of them, or all together.
_RARE_NATS = 3.0
_SHARED_NATS = 6.0
_COMMON_NATS = 2.0
# The least worth of a sentence that is quoted.
_LEAST_WORTH = 1.4

Echoed = Callable[[str], bool]


class Subject(msgspec.Struct, frozen=True):
    """What a reason is looked for: an error's message, and what was changed to solve it.

    `comment` is what the agent said right after the failure, before it did anything else.
    """

    message: str
    change: str
    comment: str = ""


def reason(texts: Sequence[str], subject: Subject, echoed: Echoed) -> str:
    """Return the sentence that best says why; `texts` are what the agent said, newest first."""
    best = ""
    most = _LEAST_WORTH
    for age, text in enumerate(texts[:_MOST_TEXTS]):
        # The first words after a failure are about it.
        is_first = age == len(texts) - 1
        is_comment = bool(text) and text == subject.comment
        for sentence in sentences(text):
            plain = _without_remedy(_plain(sentence))
            diagnoses = is_comment and pattern("diagnoses").search(plain) is not None
            if not _explains(plain, subject, diagnoses=diagnoses):
                continue
            worth = _worth(plain, subject) + (0.5 if is_first else -0.4 * age) + diagnoses
            if worth <= most or echoed(plain):
                continue
            if diagnoses or _belongs(plain, subject, is_first=is_first):
                best = plain
                most = worth
    return _capitalized(best)


def reason_after(text: str, subject: Subject, echoed: Echoed) -> str:
    """Return the sentence of what the agent said after a success that gives the cause."""
    causes = [one for one in sentences(text) if pattern("because").search(one)]
    return reason(["\n".join(causes)], subject, echoed) if causes else ""


def rare_words(text: str) -> frozenset[str]:
    """Return the stems of a text that are rare enough to be its subject."""
    return frozenset(word for word in _stems(text) if usual_rarity(word) > _RARE_NATS)


def error_words(text: str) -> frozenset[str]:
    """Return the words of a text that may name something, in lower case."""
    found = re.findall(r"[A-Za-z_]\w{3,}", text[:LONGEST_TEXT].lower())
    return frozenset(found) - listed("common")


def _plain(sentence: str) -> str:
    """Return a sentence on one line without marks and the word that it opens with."""
    return pattern("opening").sub("", pattern("markup").sub("", " ".join(sentence.split())).strip())


def _explains(sentence: str, subject: Subject, *, diagnoses: bool) -> bool:
    """Whether a sentence may give a reason: it states what is wrong, and announces nothing."""
    if not _SHORTEST <= len(sentence) <= _LONGEST:
        return False
    if sentence[-1] == "?" or sentence[0] in ">|":
        return False
    if pattern("announces").match(sentence) or pattern("says how it goes").search(sentence):
        return False
    says_why = pattern("because").search(sentence) is not None
    if sentence[-1] == ":" and not says_why and not pattern("failing").search(sentence):
        return False
    # The words for a cause are English; elsewhere the names that are shared must do.
    explains = says_why or diagnoses or pattern("explains").search(sentence) is not None
    if sentence.isascii() and not explains:
        return False
    if pattern("pre-existing").search(sentence) and not says_why:
        return False
    return not _is_about_another_test(sentence, subject)


def _worth(sentence: str, subject: Subject) -> float:
    """Return how likely a sentence says why, before it is known whether it belongs."""
    worth = 1.0 + min(2, len(error_words(subject.message) & error_words(sentence)))
    worth += 2.0 * (pattern("because").search(sentence) is not None)
    worth += 1.0 * bool(_shared_names(sentence, subject.message))
    worth += 0.5 * ("`" in sentence)
    return worth


def _belongs(sentence: str, subject: Subject, *, is_first: bool) -> bool:
    """Whether a sentence shares a name, a rare word or several with the error or the change.

    One that says plainly that something is broken needs less, right after the failure.
    """
    is_plain = pattern("failing").search(sentence) is not None
    if _shared_names(sentence, subject.message):
        return True
    if is_plain and _shared_names(sentence, subject.change):
        return True
    stems = _stems(sentence)
    with_error = [usual_rarity(word) for word in stems & _stems(subject.message)]
    rarest = max(with_error, default=0.0)
    explicit = is_first and is_plain
    if rarest > _RARE_NATS or (explicit and rarest >= _COMMON_NATS):
        return True
    if rarest >= _RARE_NATS and sum(with_error) >= _SHARED_NATS:
        return True
    with_change = [usual_rarity(word) for word in stems & _stems(_without_paths(subject.change))]
    of_change = max(with_change, default=0.0)
    return of_change > _RARE_NATS and (explicit or of_change + rarest >= _SHARED_NATS)


def _shared_names(sentence: str, text: str) -> frozenset[str]:
    return _names(sentence) & _names(text)


@lru_cache(maxsize=_MOST_CACHED)
def _names(text: str) -> frozenset[str]:
    """Return the names in a text that are no plain words: options, identifiers, code."""
    found = (word.rstrip(".:/-") for word in pattern("word").findall(text[:LONGEST_TEXT]))
    return frozenset(word.lower().lstrip("-") for word in found if _is_name(word))


def _is_name(word: str) -> bool:
    """Whether a word is an option, an identifier or the like, but not the name of a file."""
    if len(word) <= 3 or pattern("file name").search(word):
        return False
    if word[0] == "-" or any(mark in word for mark in "_./:"):
        return True
    has_inner_capital = word[1:] != word[1:].lower()
    has_digit = any(letter.isdigit() for letter in word)
    return has_inner_capital or (has_digit and not word.isdigit())


@lru_cache(maxsize=_MOST_CACHED)
def _stems(text: str) -> frozenset[str]:
    """Return the stems of a text, without folders and what looks like a search pattern."""
    words = (word for word in text[:LONGEST_TEXT].split() if len(word) <= 80 and "|" not in word)
    bare = (pattern("home").sub("", word) for word in words)
    return frozenset(tokens(" ".join(bare)))


def _without_paths(change: str) -> str:
    return " ".join(word for word in change.split() if "/" not in word)


def _is_about_another_test(sentence: str, subject: Subject) -> bool:
    """Whether a sentence names a test, but not the one that failed."""
    tests = pattern("test name").findall(sentence)
    return bool(tests) and not any(test in subject.message for test in tests)


def _without_remedy(sentence: str) -> str:
    """Return a sentence without the clause in which the agent says what it does next."""
    found = pattern("remedy").search(sentence)
    if found is None or found.start() < _LEAST_CLAUSE:
        return sentence
    return f"{sentence[: found.start()].rstrip(' ,;')}."


def _capitalized(sentence: str) -> str:
    if sentence.endswith(":"):
        sentence = f"{sentence[:-1]}."
    first = sentence.partition(" ")[0]
    return sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence
