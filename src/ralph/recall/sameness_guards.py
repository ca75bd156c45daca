"""What tells two near-twins apart: each guard says that two texts cannot mean the same."""

from __future__ import annotations

from collections import defaultdict
from difflib import SequenceMatcher

from ralph.recall.sameness_read import Case, Number, Reading
from ralph.recall.sameness_words import LIGHT, OPPOSITES, RIVALS
from ralph.text.tokens import stem

# Texts of which this much is common, in words, are one text with something exchanged.
TWINS = 0.7
_COMPARED = 400
_OPENING = 2

_VERDICTS = frozenset(
    "wrong mistake useless unnecessary harmful pointless futile worse vain unhelpful".split()
)
_SIDES = tuple((frozenset(map(stem, one)), frozenset(map(stem, other))) for one, other in OPPOSITES)


def denial_differs(one: Reading, other: Reading) -> bool:
    """Whether one affirms what the other denies."""
    return bool(_flipped(one, other) or _flipped(other, one))


def only_one_denies(one: Reading, other: Reading) -> bool:
    """Whether one says no somewhere, or calls it wrong, and the other nowhere."""
    return ("not" in one.order) != ("not" in other.order) or bool(
        (one.plain ^ other.plain) & _VERDICTS
    )


def condition_differs(one: Reading, other: Reading) -> bool:
    """Whether one happens when something is, the other when it is not."""
    return bool(_ruled_out(one, other) or _ruled_out(other, one))


def removal_differs(one: Reading, other: Reading) -> bool:
    """Whether one takes away what the other keeps or brings."""
    return bool(_taken(one, other) or _taken(other, one))


def _flipped(one: Reading, other: Reading) -> frozenset[str]:
    denied = one.denied - one.affirmed
    return (denied & (other.affirmed - other.denied - other.removed)) - LIGHT


def _ruled_out(one: Reading, other: Reading) -> frozenset[str]:
    return (one.ruled_out - one.affirmed) & (other.affirmed - other.denied) - LIGHT


def _taken(one: Reading, other: Reading) -> frozenset[str]:
    removed = one.removed - one.affirmed
    return (removed & (other.affirmed - other.denied - other.removed)) - LIGHT


def opposed(one: Reading, other: Reading) -> bool:
    """Whether one has the opposite of a word of the other, and neither has both."""
    for left, right in _SIDES:
        a, b = (bool(one.plain & left), bool(one.plain & right))
        c, d = (bool(other.plain & left), bool(other.plain & right))
        if (a and not b and d and not c) or (b and not a and c and not d):
            return True
    return False


def rivals(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether each speaks of something that the other has a rival for."""
    first, second = _things(one), _things(other)
    return any(
        first[field] - second[field] and second[field] - first[field]
        for field in first.keys() & second.keys()
    )


def _things(words: frozenset[str]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for word in words & RIVALS.keys():
        for field, thing in RIVALS[word]:
            found[field].add(thing)
    return found


def numbers_differ(one: Reading, other: Reading) -> bool:
    """Whether both name amounts or versions and agree in none."""
    if not one.numbers or not other.numbers:
        return False
    return not any(_agree(a, b) for a in one.numbers for b in other.numbers)


def slots_differ(one: Reading, other: Reading) -> bool:
    """Whether one thing has one number here and another there."""
    here_named = [number for number in one.numbers if number.named]
    there_named = [number for number in other.numbers if number.named]
    for of in {n.of for n in here_named} & {n.of for n in there_named}:
        here = [n for n in here_named if n.of == of]
        there = [n for n in there_named if n.of == of]
        if not any(_agree(a, b) for a in here for b in there):
            return True
    return False


def _agree(one: Number, other: Number) -> bool:
    """Whether two numbers may be the same one, or one the beginning of the other's version."""
    if one.has_unit and other.has_unit:
        return one.exact == other.exact
    if one.written & other.written:
        return True
    return one.exact.startswith(f"{other.exact}.") or other.exact.startswith(f"{one.exact}.")


def codes_differ(one: Reading, other: Reading) -> bool:
    """Whether both name error codes and agree in none, or end in errors the other never had."""
    return bool(one.codes and other.codes and not one.codes & other.codes) or bool(
        one.faults
        and other.faults
        and one.faults[-1] not in other.faults
        and other.faults[-1] not in one.faults
    )


def names_differ(one: Case, other: Case) -> bool:
    """Whether each solution names something of which the other never speaks."""
    return _unknown(one, other) and _unknown(other, one)


def _unknown(one: Case, other: Case) -> bool:
    known = other.words | LIGHT
    return any(
        name not in known and not (parts and parts <= known)
        for name, parts in one.solution.names.items()
    )


def values_differ(one: Reading, other: Reading) -> bool:
    """Whether each sets something in quotes that the other does not have."""
    return bool(one.quoted - other.quoted - other.plain) and bool(
        other.quoted - one.quoted - one.plain
    )


def exchanged(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether the texts are one text in which words were exchanged, swapped, or denied."""
    # In one order whoever comes first: the matcher is not symmetric.
    a, b = sorted((one[:_COMPARED], other[:_COMPARED]))
    if a == b or not a or not b:
        return False
    if _swapped(a, b):
        return True
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.quick_ratio() < TWINS or matcher.ratio() < TWINS:
        return False
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind == "equal":
            continue
        here, there = set(a[a0:a1]), set(b[b0:b1])
        if ("not" in here) != ("not" in there) or (here - there - LIGHT and there - here - LIGHT):
            return True
    return False


def _swapped(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether words have changed places and the rest stands: who does what to whom differs."""
    if len(one) != len(other) or sorted(one) != sorted(other):
        return False
    moved = sum(a != b for a, b in zip(one, other, strict=True))
    return moved <= max(2, len(one) // 2)


def goes_on_otherwise(one: Reading, other: Reading) -> bool:
    """Whether both begin in the same words and then each says what the other does not."""
    same = 0
    for here, there in zip(one.story, other.story, strict=False):
        if here != there:
            break
        same += 1
    if sum(word not in LIGHT for word in one.story[:same]) < _OPENING:
        return False
    here_only = set(one.story[same:]) - set(other.story) - LIGHT
    there_only = set(other.story[same:]) - set(one.story) - LIGHT
    return bool(here_only and there_only)
