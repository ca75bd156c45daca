"""Whether two entries of knowledge tell the same problem and the same solution. Pure.

Meaning (cosines by the static table) and words (those that both have, synonyms being one word)
say how near two entries are; guards say no where they differ in what matters: a denial, a number,
a version, a value, a rival, an opposite, a name. Who tells a problem in the very words of another
would tell the same solution in the same words too, so the nearer one half is, the nearer the other
must be.
"""

from __future__ import annotations

import msgspec

from ralph.recall import sameness_guards as guards
from ralph.recall.sameness_read import Case, Reading, read

# Under this the wholes have too little in common for any pair to be the same.
WORTH_COMPARING = 0.3

# Chosen on the `found` part of tests/data/same_pairs.jsonl and half of same_pairs_blind.jsonl.
_ENOUGH = 0.32
_BY_MEANING = 0.3
# Few words agree by chance: so much weight must be matched as if it were there, to call a half
# told alike, and to call it near.
_GRACE = 1.0
_PROOF = 3.0
# How much of the words is common where a half is told alike, and where it is one text.
_ALIKE = 0.5
_SAME_WORDS = 0.75
# How much nearer, for each bit that the other half is told alike, solutions and problems must be.
_STRICTER = 0.7
_LESS_STRICT = 0.2
# Below this the problems do not meet at all: one fix for two problems is two lessons.
_MEET = 0.07
# Below this the problems hardly meet, and the solutions must be so much nearer for each bit.
_APART = 0.25
_SURER = 0.4
# From how many words on a text is long, what each further word adds, and at most.
_LONG = 15.0
_CHANCE = 0.02
_MOST_BY_CHANCE = 0.3
# Solutions are only held against each other where this much of the problem is common.
_SAME_PROBLEM = 0.25


class Told(msgspec.Struct, frozen=True):
    """What an entry tells: a problem and what solved it."""

    problem: str
    solution: str


class Nearness(msgspec.Struct, frozen=True):
    """Cosines by the static table, of the problems, the solutions, and both together."""

    problem: float
    solution: float
    whole: float


def same(one: Told, other: Told, near: Nearness) -> bool:
    """Whether both tell the same problem and the same solution; the order does not matter."""
    if one == other:
        return True
    if near.whole < WORTH_COMPARING:
        return False
    solutions = read(one.solution), read(other.solution)
    told_solution = _overlap(*solutions)
    solution = _near(told_solution, near.solution)
    if solution < _ENOUGH:
        return False
    problems = read(one.problem), read(other.problem)
    told_problem = _overlap(*problems)
    problem = _near(told_problem, near.problem)
    chance = _by_chance(*solutions)
    enough = _ENOUGH + chance + _STRICTER * _alike(told_problem)
    enough += _SURER * max(0.0, _APART - problem)
    least = max(_MEET, chance, _LESS_STRICT * _alike(told_solution))
    if solution < enough or problem < least:
        return False
    return not (
        _problems_differ(*problems, told_problem)
        or _solutions_differ(*solutions, told_solution)
        or _wholes_differ(Case(problems[0], solutions[0]), Case(problems[1], solutions[1]))
    )


def conflicting(one: Told, other: Told, near: Nearness) -> bool:
    """Whether both tell the same problem and solutions that cannot both be right."""
    problems = read(one.problem), read(other.problem)
    solutions = read(one.solution), read(other.solution)
    told = _overlap(*problems)
    enough = _SAME_PROBLEM + _by_chance(*problems) + _by_chance(*solutions)
    if _near(told, near.problem) < enough or _problems_differ(*problems, told):
        return False
    return (
        guards.denial_differs(*solutions)
        or guards.removal_differs(*solutions)
        or guards.opposed(*solutions)
        or guards.rivals(solutions[0].plain, solutions[1].plain)
        or guards.exchanged(solutions[0].order, solutions[1].order)
    )


class _Overlap(msgspec.Struct, frozen=True):
    """How much of the words is common: of both texts', and as far as so many words prove it."""

    of_both: float
    proven: float


def _overlap(one: Reading, other: Reading) -> _Overlap:
    here, there = _known(one, other), _known(other, one)
    of_both = (here / (one.weight + _GRACE) + there / (other.weight + _GRACE)) / 2
    sides = [
        (one.weight, here / (one.weight + _PROOF)),
        (other.weight, there / (other.weight + _PROOF)),
    ]
    # Who tells it at length has words of their own: the shorter text counts for more.
    (_, of_shorter), (_, of_longer) = sorted(sides, key=lambda side: (side[0], -side[1]))
    return _Overlap(of_both, 0.75 * of_shorter + 0.25 * of_longer)


def _known(one: Reading, other: Reading) -> float:
    """The weight of those words of a text that the other has, a name also by all of its parts."""
    return sum(
        weight
        for word, weight in one.weights.items()
        if word in other.weights or _spelt_out(one.names.get(word), other)
    )


def _spelt_out(parts: frozenset[str] | None, other: Reading) -> bool:
    """Whether `busy_timeout` is told as a busy timeout; one part alone is no name."""
    return parts is not None and len(parts) > 1 and parts <= other.weights.keys()


def _alike(words: _Overlap) -> float:
    """How far this half is told in the same words: the other must be the nearer for it."""
    return max(0.0, words.of_both - _ALIKE)


def _by_chance(one: Reading, other: Reading) -> float:
    """How much more long texts must share: any two patches of a project have words in common."""
    return min(_MOST_BY_CHANCE, _CHANCE * max(0.0, min(one.weight, other.weight) - _LONG))


def _near(words: _Overlap, meaning: float) -> float:
    return (1 - _BY_MEANING) * words.proven + _BY_MEANING * meaning


def _problems_differ(one: Reading, other: Reading, told: _Overlap) -> bool:
    # In another's words an opposite is mostly another detail of the same story.
    return (
        guards.condition_differs(one, other)
        or guards.codes_differ(one, other)
        or guards.slots_differ(one, other)
        or (told.of_both >= _ALIKE and guards.opposed(one, other))
        or guards.rivals(one.plain, other.plain)
        or guards.exchanged(one.story, other.story)
        or guards.goes_on_otherwise(one, other)
    )


def _solutions_differ(one: Reading, other: Reading, told: _Overlap) -> bool:
    return (
        guards.denial_differs(one, other)
        or (told.of_both >= _SAME_WORDS and guards.only_one_denies(one, other))
        or guards.removal_differs(one, other)
        or guards.numbers_differ(one, other)
        or guards.values_differ(one, other)
        or guards.opposed(one, other)
        or guards.rivals(one.plain, other.plain)
        or guards.exchanged(one.order, other.order)
    )


def _wholes_differ(one: Case, other: Case) -> bool:
    return guards.rivals(one.plain, other.plain) or guards.names_differ(one, other)
