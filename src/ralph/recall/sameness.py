"""Whether two entries of knowledge are the same problem with the same solution. Pure.

Words are compared as in text/sameness.py, and meaning by embeddings: of the problems, the
solutions, and both together. The weights stand in the table there.
"""

from __future__ import annotations

from typing import NamedTuple

from ralph.text import sameness as texts

# Problems with more words in common than this are one: the solutions alone decide.
_ONE_PROBLEM = 0.7
# Below these cosines two problems have nothing in common, and are too different to conflict.
_MEET = 0.12
_SAME_PROBLEM = 0.5
# Above both, solutions of one problem are the same.
_NEAR_WORDS, _NEAR_SOLUTIONS = 0.4, 0.6


class Case(NamedTuple):
    """What an entry of knowledge says: a problem and its solution."""

    problem: str
    solution: str

    @property
    def whole(self) -> str:
        return f"{self.problem}\n{self.solution}"


class Meaning(NamedTuple):
    """How near two texts are by their embeddings, and by those of their words.

    aligned: the mean of each word's nearest in the other text, of the text that has less of it;
    aligned_most: of the other. covered: the share of words with a near one. weakest: the mean of
    the three words that have the least.
    """

    cosine: float
    aligned: float
    aligned_most: float
    covered: float
    weakest: float


class Nearness(NamedTuple):
    """The meaning of two cases compared."""

    problem: Meaning
    solution: Meaning
    whole: Meaning


def case_features(one: Case, other: Case, near: Nearness) -> dict[str, float]:
    """The features of two cases: of their problems, their solutions, and both together.

    Where the problems are told in the same words, the solutions alone decide.
    """
    found: dict[str, float] = {}
    for half in ("problem", "solution", "whole"):
        compared = texts.features(texts.gist(getattr(one, half)), texts.gist(getattr(other, half)))
        compared |= getattr(near, half)._asdict()
        if half == "solution" and found["problem.shared"] > _ONE_PROBLEM:
            return {f"again.{name}": value for name, value in compared.items()}
        found |= {f"{half}.{name}": value for name, value in compared.items()}
    return found


def same(one: Case, other: Case, near: Nearness) -> bool:
    """Whether two cases are the same problem with the same solution."""
    if one == other:
        return True
    decided = decide_cases(one, other, near)
    return texts.score(case_features(one, other, near)) >= 0 if decided is None else decided


def conflicting(one: Case, other: Case, cosine: float) -> bool:
    """Whether two cases are the same problem with solutions that contradict each other.

    The cosine is that of the problems.
    """
    a, b = texts.gist(one.solution), texts.gist(other.solution)
    if a == b or cosine < _SAME_PROBLEM:
        return False
    if _problems_differ(texts.gist(one.problem), texts.gist(other.problem)):
        return False
    return texts.contradict(a, b) or texts.exchanged(a, b) or bool(texts.flipped(a, b))


def decide_cases(one: Case, other: Case, near: Nearness) -> bool | None:
    """Whether two cases are the same, where that is plain without weighing."""
    solutions = texts.gist(one.solution), texts.gist(other.solution)
    problems = texts.gist(one.problem), texts.gist(other.problem)
    if near.problem.cosine < _MEET:
        return False  # one fix for two problems is two lessons
    if texts.apart(*solutions) or texts.flipped(*solutions) or _problems_differ(*problems):
        return False
    # The same words in another order: who does what to whom.
    if solutions[0].parts == solutions[1].parts and solutions[0].couples != solutions[1].couples:
        return False
    if _word_exchanged(*problems):
        return False
    if texts.jaccard(*solutions) > texts.THRESHOLD and solutions[0].denials != solutions[1].denials:
        return False
    # What a case is about stands in its problem and in its solution.
    about, other_about = (p.parts & s.parts for p, s in zip(problems, solutions, strict=True))
    every, other_every = (p.parts | s.parts for p, s in zip(problems, solutions, strict=True))
    if about - other_every and other_about - every:
        return False
    if texts.shared(*problems) <= _ONE_PROBLEM:
        return None
    if texts.repeats(*solutions) and texts.couples(*solutions) > texts.THRESHOLD:
        return True
    # Each word of one solution has one of the other that means much the same.
    near_words = near.solution.weakest >= _NEAR_WORDS and near.solution.cosine >= _NEAR_SOLUTIONS
    return True if near_words else None


def _word_exchanged(a: texts.Gist, b: texts.Gist) -> bool:
    """Whether two texts are one sentence about two things."""
    only_a, only_b = a.words - b.words - texts.light(), b.words - a.words - texts.light()
    exchanged_words = any(map(str.isalpha, only_a)) and any(map(str.isalpha, only_b))
    return exchanged_words and texts.shared(a, b) > texts.TWINS


def _problems_differ(a: texts.Gist, b: texts.Gist) -> bool:
    if texts.exchanged(a, b) or texts.differ(a.codes, b.codes):
        return True
    return texts.jaccard(a, b) > texts.TWINS and (
        # How long or how much differs from day to day.
        texts.no_number_agrees(a.numbers, b.numbers) or texts.contradict(a, b)
    )
