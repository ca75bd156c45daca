"""Whether two knowledge entries are the same problem with the same solution. Pure functions.

Words are compared as in text/sameness.py, and meaning by embeddings: of the problems, of the
solutions, and of both together. The weights are in the table in that module.
"""

from __future__ import annotations

from typing import NamedTuple

from ralph.text import sameness as texts

# Problems that share more words than this are the same; then only the solutions decide.
_ONE_PROBLEM = 0.7
# Below these cosines, two problems have nothing in common, or are too different to conflict.
_MEET = 0.12
_SAME_PROBLEM = 0.5
# Solutions of the same problem are the same if both numbers are at least these.
_NEAR_WORDS, _NEAR_SOLUTIONS = 0.4, 0.6


class Case(NamedTuple):
    """The problem and the solution of a knowledge entry."""

    problem: str
    solution: str

    @property
    def whole(self) -> str:
        return f"{self.problem}\n{self.solution}"


class Meaning(NamedTuple):
    """How near two texts are by their embeddings, and by the embeddings of their words.

    For each word, take the similarity of its nearest word in the other text. aligned: the mean of
    these, for the text where it is lower; aligned_most: for the other text. covered and
    covered_most: the same for the share of words with a near one. weakest: the mean of the three
    lowest.
    """

    cosine: float
    aligned: float
    aligned_most: float
    covered: float
    covered_most: float
    weakest: float


class Nearness(NamedTuple):
    """How near two cases are: their problems, their solutions, and both together."""

    problem: Meaning
    solution: Meaning
    whole: Meaning


def case_features(one: Case, other: Case, near: Nearness) -> dict[str, float]:
    """Return the features of two cases: of their problems, their solutions, and both together.

    If the problems have the same words, there are only features of the solutions.
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

    `cosine` compares the problems.
    """
    a, b = texts.gist(one.solution), texts.gist(other.solution)
    if a == b or cosine < _SAME_PROBLEM:
        return False
    if _problems_differ(texts.gist(one.problem), texts.gist(other.problem)):
        return False
    return texts.contradict(a, b) or texts.exchanged(a, b) or bool(texts.flipped(a, b))


def decide_cases(one: Case, other: Case, near: Nearness) -> bool | None:
    """Whether two cases are the same; None if only the weighted features can tell."""
    solutions = texts.gist(one.solution), texts.gist(other.solution)
    problems = texts.gist(one.problem), texts.gist(other.problem)
    if near.problem.cosine < _MEET:
        return False  # one fix for two problems is two lessons
    if texts.apart(*solutions) or texts.flipped(*solutions) or _problems_differ(*problems):
        return False
    # The same words in another order may say something else: who does what to whom.
    if solutions[0].parts == solutions[1].parts and solutions[0].couples != solutions[1].couples:
        return False
    if _word_exchanged(*problems):
        return False
    if texts.jaccard(*solutions) > texts.THRESHOLD and solutions[0].denials != solutions[1].denials:
        return False
    # Words in both the problem and the solution say what a case is about.
    about, other_about = (p.parts & s.parts for p, s in zip(problems, solutions, strict=True))
    every, other_every = (p.parts | s.parts for p, s in zip(problems, solutions, strict=True))
    if about - other_every and other_about - every:
        return False
    if texts.shared(*problems) <= _ONE_PROBLEM:
        return None
    if texts.repeats(*solutions) and texts.couples(*solutions) > texts.THRESHOLD:
        return True
    # Each word of one solution has a word in the other with nearly the same meaning.
    near_words = near.solution.weakest >= _NEAR_WORDS and near.solution.cosine >= _NEAR_SOLUTIONS
    return True if near_words else None


def _word_exchanged(a: texts.Gist, b: texts.Gist) -> bool:
    """Whether two texts are the same sentence about different things."""
    only_a, only_b = a.words - b.words - texts.light(), b.words - a.words - texts.light()
    exchanged_words = any(map(str.isalpha, only_a)) and any(map(str.isalpha, only_b))
    return exchanged_words and texts.shared(a, b) > texts.TWINS


def _problems_differ(a: texts.Gist, b: texts.Gist) -> bool:
    if texts.exchanged(a, b) or texts.differ(a.codes, b.codes):
        return True
    return texts.jaccard(a, b) > texts.TWINS and (
        # One number may differ between days (how long, how much), so all must differ.
        texts.no_number_agrees(a.numbers, b.numbers) or texts.contradict(a, b)
    )
