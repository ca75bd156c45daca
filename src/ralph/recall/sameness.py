"""Whether two knowledge entries are the same problem with the same solution. Pure functions.

Words are compared as in text/sameness.py, and meaning by embeddings: of the problems, of the
solutions, and of both together. The weights are in the table in that module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ralph.text import sameness as texts
from ralph.text.signature import names_in, same_error, signature, tells

# Problems that share more words than this are the same; then only the solutions decide.
_ONE_PROBLEM = 0.7
# So are problems whose error messages share at least this much of the words of the shorter one.
_ONE_ERROR = 0.8
# Texts that share more than this must agree on what is denied, opposed or swapped. If they share
# less, that is as likely another way to say it, and only one feature among others.
_ALIKE = 0.3
# Cases with more different words than this are long, such as a report with a patch.
_LONG = 60
# Below these cosines, two problems have nothing in common, or are too different to conflict.
_MEET = 0.12
_SAME_PROBLEM = 0.5
# Solutions of the same problem are the same if both numbers are at least these.
_NEAR_WORDS = 0.4
_NEAR_SOLUTIONS = 0.6
# A pair of cases cannot count more than this for or against a pattern.
_CERTAIN = 3.0
# An entry that is the same as one entry of a pattern may be this unlike the others on average.
_UNLIKE = -0.75


class Case(NamedTuple):
    """The problem and the solution of a knowledge entry; the problem includes the error message."""

    problem: str
    solution: str
    error: str = ""

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


class Explained(NamedTuple):
    """How much of two solutions the other case explains; rare words count more.

    matched: the mean similarity of each word to the nearest word of the other solution, for the
    solution where it is lower; matched_most: for the other solution. known and known_most: the
    same, but the nearest word may also be in one of the problems. odd: how much the least explained
    word says, for the solution where that is less; odd_most: for the other solution.
    """

    matched: float
    matched_most: float
    known: float
    known_most: float
    odd: float
    odd_most: float


class Nearness(NamedTuple):
    """How near two cases are: their problems, their solutions, and both together."""

    problem: Meaning
    solution: Meaning
    whole: Meaning
    explained: Explained


def case_features(one: Case, other: Case, near: Nearness) -> dict[str, float]:
    """Return the features of two cases: of their problems, their solutions, and both together.

    If the problem is the same, there are only features of the solutions.
    """
    solutions = _compare(one.solution, other.solution) | near.solution._asdict()
    solutions |= near.explained._asdict()
    if one_problem(one, other):
        return {f"again.{name}": value for name, value in solutions.items()}
    a = texts.gist(one.problem)
    b = texts.gist(other.problem)
    problems = _compare(one.problem, other.problem) | near.problem._asdict()
    problems["word_exchanged"] = float(_word_exchanged(a, b))
    wholes = texts.features(texts.gist(one.whole), texts.gist(other.whole)) | near.whole._asdict()
    wholes["subject_apart"] = float(_subjects_differ(one, other))
    found = {f"problem.{name}": value for name, value in problems.items()}
    found |= {f"solution.{name}": value for name, value in solutions.items()}
    return found | {f"whole.{name}": value for name, value in wholes.items()}


def _compare(one: str, other: str) -> dict[str, float]:
    a = texts.gist(one)
    b = texts.gist(other)
    found = texts.features(a, b)
    found["opposites"] = float(bool(texts.opposites(a.words - b.words, b.words - a.words)))
    found["swapped"] = float(texts.swapped(a, b))
    return found


def one_problem(one: Case, other: Case) -> bool:
    """Whether two cases have the same problem: nearly the same words, or the same error."""
    if texts.shared(texts.gist(one.problem), texts.gist(other.problem)) > _ONE_PROBLEM:
        return True
    return _one_error(one.error, other.error)


def _one_error(one: str, other: str) -> bool:
    """Whether two error messages are of the same error; some texts have more of it than others."""
    if not (tells(one) and tells(other)):
        return False
    if same_error(signature(one), signature(other)):
        return True
    a = texts.gist(one)
    b = texts.gist(other)
    if texts.differ(names_in(one), names_in(other)) or _word_exchanged(a, b):
        return False
    return len(a.parts & b.parts) >= _ONE_ERROR * min(len(a.parts), len(b.parts))


def likeness(one: Case, other: Case, near: Nearness) -> float:
    """Return how surely two cases are the same problem with the same solution: 0 or more is yes."""
    decided = True if one == other else decide_cases(one, other, near)
    if decided is not None:
        return _CERTAIN if decided else -_CERTAIN
    return max(-_CERTAIN, min(_CERTAIN, texts.score(case_features(one, other, near))))


def same(one: Case, other: Case, near: Nearness) -> bool:
    """Whether two cases are the same problem with the same solution."""
    return likeness(one, other, near) >= 0


def joins(likenesses: Sequence[float]) -> bool:
    """Whether an entry belongs to a pattern, by its likeness to each entry of the pattern.

    It must be the same as one of them and, on average, not too unlike all of them. Sameness is not
    transitive: without the average, a chain of similar entries could lead anywhere.
    """
    return max(likenesses) >= 0 and sum(likenesses) / len(likenesses) >= _UNLIKE


def conflicting(one: Case, other: Case, cosine: float) -> bool:
    """Whether two cases look like the same problem with solutions that contradict each other.

    `cosine` compares the problems. Another way to say the same sometimes looks like this, too.
    """
    a = texts.gist(one.solution)
    b = texts.gist(other.solution)
    if a == b or cosine < _SAME_PROBLEM:
        return False
    problems = texts.gist(one.problem), texts.gist(other.problem)
    if _problems_differ(*problems) or texts.exchanged(*problems):
        return False
    return texts.contradict(a, b) or texts.exchanged(a, b) or bool(texts.flipped(a, b))


def decide_cases(one: Case, other: Case, near: Nearness) -> bool | None:
    """Whether two cases are the same; None if only the weighted features can tell."""
    solutions = texts.gist(one.solution), texts.gist(other.solution)
    problems = texts.gist(one.problem), texts.gist(other.problem)
    if _solutions_differ(*solutions):
        return False
    if _one_error(one.error, other.error):
        same_problem = True  # however it is described
    elif near.problem.cosine < _MEET:
        return False  # one fix for two problems is two lessons
    elif _problems_differ(*problems) or _word_exchanged(*problems):
        return False
    else:
        same_problem = texts.shared(*problems) > _ONE_PROBLEM
    if _is_long(one) or _is_long(other):
        # Among many words, each has a near one by chance, so what differs decides.
        opposed = texts.apart(*solutions) or bool(texts.flipped(*solutions))
        if opposed or texts.exchanged(*problems) or _subjects_differ(one, other):
            return False
    if not same_problem:
        return None
    if texts.repeats(*solutions) and texts.couples(*solutions) > texts.THRESHOLD:
        return True
    # Each word of one solution has a word in the other with nearly the same meaning. Names are near
    # to other names, so they must be the same.
    a, b = solutions
    near_words = near.solution.weakest >= _NEAR_WORDS and near.solution.cosine >= _NEAR_SOLUTIONS
    return True if near_words and not (a.names - b.names and b.names - a.names) else None


def _is_long(case: Case) -> bool:
    return len(texts.gist(case.whole).parts) > _LONG


def _subjects_differ(one: Case, other: Case) -> bool:
    """Whether each case is about something that the other does not mention.

    Words in both the problem and the solution say what a case is about.
    """
    subjects: list[frozenset[str]] = []
    words: list[frozenset[str]] = []
    for case in (one, other):
        problem = texts.gist(case.problem).parts
        solution = texts.gist(case.solution).parts
        subjects.append(problem & solution)
        words.append(problem | solution)
    return bool(subjects[0] - words[1] and subjects[1] - words[0])


def _solutions_differ(a: texts.Gist, b: texts.Gist) -> bool:
    if texts.contradict(a, b) or texts.no_number_agrees(a.figures, b.figures):
        return True
    if texts.rivals(a, b) or texts.differ(a.quoted, b.quoted) or _values_differ(a, b):
        return True
    # The same words in another order may say something else: who does what to whom.
    reordered = a.couples != b.couples and len(a.couples) == len(b.couples)
    if a.parts == b.parts and reordered:
        return True
    if texts.jaccard(a, b) > texts.THRESHOLD and a.denials != b.denials:
        return True
    return texts.shared(a, b) > _ALIKE and (texts.apart(a, b) or bool(texts.flipped(a, b)))


def _values_differ(a: texts.Gist, b: texts.Gist) -> bool:
    """Whether two texts give the same setting different values: SameSite=Lax, SameSite=None."""
    settings = {name for name, _ in a.values} & {name for name, _ in b.values}
    return any(
        texts.differ(
            frozenset(value for name, value in a.values if name == setting),
            frozenset(value for name, value in b.values if name == setting),
        )
        for setting in settings
    )


def _word_exchanged(a: texts.Gist, b: texts.Gist) -> bool:
    """Whether two texts are the same sentence about different things."""
    only_a = a.words - b.words - texts.light()
    only_b = b.words - a.words - texts.light()
    exchanged_words = any(map(str.isalpha, only_a)) and any(map(str.isalpha, only_b))
    return exchanged_words and texts.shared(a, b) > texts.TWINS


def _problems_differ(a: texts.Gist, b: texts.Gist) -> bool:
    if texts.rivals(a, b) or texts.differ(a.quoted, b.quoted) or texts.differ(a.codes, b.codes):
        return True
    if texts.shared(a, b) > _ALIKE and texts.exchanged(a, b):
        return True
    return texts.jaccard(a, b) > texts.TWINS and (
        # One number may differ between days (how long, how much), so all must differ.
        texts.no_number_agrees(a.numbers, b.numbers) or texts.contradict(a, b)
    )
