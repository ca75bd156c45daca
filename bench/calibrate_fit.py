"""Score to probability: the constants that fit what was judged, and how well scores keep it.

Pure: judged hits in, figures out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.calibrate_evidence import NOTHING_ANSWERS, OWN, POOLED, Judged
from ralph.errors import BadInput
from ralph.recall.calibration import Constants, features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

BINS = ((0.0, 0.2), (0.2, 0.4), (0.4, 0.55), (0.55, 0.7), (0.7, 0.85), (0.85, 1.0))
OVER = (0.40, 0.55, 0.70)

# Records of agents, each right and wrong hit judged by hand: nearest to what Ralph is asked.
_OWN_COUNTS = 2.0
_RIDGE = 1e-2
_STEPS = 100
_ENOUGH = 1e-9
_STEP_OF_COSINES = 0.05
_NEVER = 1e-9
_SIGMAS = 1.96

Score = Callable[[Judged], float]


class Bin(msgspec.Struct, frozen=True):
    """The hits whose score lies here: how many, what they promised, and the share that was right.

    `low` and `high` are the 95 % interval of the share.
    """

    begin: float
    end: float
    count: int
    score: float
    right: float
    low: float
    high: float


class Table(msgspec.Struct, frozen=True):
    """How well scores keep their word on some hits.

    `right_over` and `wrong_over`: the share of the right and of the wrong hits with at least 0.40,
    0.55 and 0.70; None where there are no such hits.
    """

    source: str
    right: int
    wrong: int
    bins: tuple[Bin, ...]
    right_over: tuple[float, ...] | None
    wrong_over: tuple[float, ...] | None
    log_loss: float
    error: float


def weights(hits: Sequence[Judged]) -> Numbers:
    """Each source counts the same, our own double, and all right hits as much as all wrong ones."""
    sizes: dict[tuple[str, bool], int] = {}
    for one in hits:
        sizes[one.source, one.right] = sizes.get((one.source, one.right), 0) + 1
    found: Numbers = np.array(
        [
            (_OWN_COUNTS if one.source in (OWN, POOLED) else 1.0) / sizes[one.source, one.right]
            for one in hits
        ]
    )
    right = np.array([one.right for one in hits], dtype=bool)
    for side in (right, ~right):
        if side.any():
            found[side] /= found[side].sum()
    found /= found.sum()
    return found


def fitted(hits: Sequence[Judged]) -> Constants:
    """The constants under which the hits are likeliest; by words alone when none has a cosine."""
    _need_both(hits)
    counts = weights(hits)
    right = np.array([one.right for one in hits], dtype=float)
    unrelated, related = cosines(hits, counts)
    told = np.array(
        [features(one.evidence, Constants(0.0, 0.0, 0.0, unrelated, related)) for one in hits]
    )
    if not told[:, 1].any():
        intercept, per_words = logistic_fit(told[:, :1], right, counts)
        return _rounded(intercept, per_words)
    intercept, per_words, per_meaning = logistic_fit(told, right, counts)
    if not 0.0 <= per_meaning <= per_words:
        # Meaning for more than words would let more words lower a score.
        intercept, both = logistic_fit(told.sum(axis=1, keepdims=True), right, counts)
        per_words = per_meaning = both
    return _rounded(intercept, per_words, per_meaning, unrelated, related)


def cosines(hits: Sequence[Judged], counts: Numbers) -> tuple[float, float]:
    """What unrelated and clearly related texts have: the lower quartile of what was found where
    nothing answers, and the upper quartile of what was right; 0 and 1 without cosines."""
    known = [
        (one, float(count))
        for one, count in zip(hits, counts, strict=True)
        if one.evidence.cosine is not None
    ]
    wrong = [pair for pair in known if pair[0].source in NOTHING_ANSWERS]
    wrong = wrong or [pair for pair in known if not pair[0].right]
    right = [pair for pair in known if pair[0].right]
    if not right or not wrong:
        return 0.0, 1.0
    unrelated = _stepped(_quantile(wrong, 0.25))
    related = _stepped(_quantile(right, 0.75))
    return unrelated, max(related, round(unrelated + _STEP_OF_COSINES, 2))


def logistic_fit(told: Numbers, right: Numbers, counts: Numbers) -> list[float]:
    """Intercept and coefficients by iteratively reweighted least squares, with a small ridge."""
    columns = np.column_stack([np.ones(len(told)), told])
    counts = counts / counts.sum() * len(counts)
    ridge = _RIDGE * np.eye(columns.shape[1])

    def penalty(found: Numbers) -> float:
        x = columns @ found
        loss = np.logaddexp(0.0, x) - right * x
        return float(counts @ loss + found @ ridge @ found / 2)

    found = np.zeros(columns.shape[1])
    paid = penalty(found)
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-(columns @ found)))
        curve = columns.T @ (columns * (counts * likely * (1.0 - likely))[:, None]) + ridge
        step = np.linalg.solve(curve, columns.T @ (counts * (right - likely)) - ridge @ found)
        # A whole step may overshoot where the two sides hardly overlap.
        while penalty(found + step) > paid and np.abs(step).max() > _ENOUGH:
            step = step / 2
        found = found + step
        paid = penalty(found)
        if np.abs(step).max() <= _ENOUGH:
            break
    return [float(one) for one in found]


def table(
    source: str, hits: Sequence[Judged], score: Score, counts: Numbers | None = None
) -> Table:
    """How well this score keeps its word on these hits, each as heavy as the others or as told."""
    counts = np.ones(len(hits)) if counts is None else counts
    counts = counts / counts.sum()
    scores = np.array([score(one) for one in hits])
    right = np.array([one.right for one in hits], dtype=bool)
    bins = tuple(_bin(begin, end, scores, right, counts) for begin, end in BINS)
    likely = np.clip(np.where(right, scores, 1.0 - scores), _NEVER, 1.0)
    shares = [float(counts[_inside(one.begin, one.end, scores)].sum()) for one in bins]
    return Table(
        source=source,
        right=int(right.sum()),
        wrong=int((~right).sum()),
        bins=bins,
        right_over=_over(scores[right], counts[right]),
        wrong_over=_over(scores[~right], counts[~right]),
        log_loss=float(-counts @ np.log(likely)),
        error=sum(
            share * abs(one.score - one.right)
            for share, one in zip(shares, bins, strict=True)
            if one.count
        ),
    )


def _inside(begin: float, end: float, scores: Numbers) -> NDArray[np.bool_]:
    below: NDArray[np.bool_] = scores <= end if end == BINS[-1][1] else scores < end
    return (scores >= begin) & below


def _bin(
    begin: float, end: float, scores: Numbers, right: NDArray[np.bool_], counts: Numbers
) -> Bin:
    inside = _inside(begin, end, scores)
    if not inside.any():
        return Bin(begin, end, 0, 0.0, 0.0, 0.0, 1.0)
    some = counts[inside]
    share = float(np.average(right[inside], weights=some))
    # Where hits weigh differently, they tell as much as fewer equal ones.
    equal = float(some.sum() ** 2 / (some**2).sum())
    low, high = _wilson(share, equal)
    score = float(np.average(scores[inside], weights=some))
    return Bin(begin, end, int(inside.sum()), score, share, low, high)


def _wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share of so many."""
    squared = _SIGMAS**2
    middle = (share + squared / (2 * count)) / (1 + squared / count)
    spread = share * (1 - share) / count + squared / (4 * count**2)
    half = _SIGMAS * math.sqrt(max(0.0, spread)) / (1 + squared / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def _over(scores: Numbers, counts: Numbers) -> tuple[float, ...] | None:
    if not len(scores):
        return None
    return tuple(float(np.average(scores >= least, weights=counts)) for least in OVER)


def _quantile(pairs: Sequence[tuple[Judged, float]], share: float) -> float:
    ordered = sorted((one.evidence.cosine or 0.0, count) for one, count in pairs)
    wanted = share * sum(count for _, count in ordered)
    passed = 0.0
    for cosine, count in ordered:
        passed += count
        if passed >= wanted:
            return cosine
    return ordered[-1][0]


def _stepped(cosine: float) -> float:
    return round(round(cosine / _STEP_OF_COSINES) * _STEP_OF_COSINES, 2)


def _rounded(*found: float) -> Constants:
    return Constants(*(round(one, 2) for one in found))


def _need_both(hits: Sequence[Judged]) -> None:
    rights = {one.right for one in hits}
    if rights != {True, False}:
        missing = "right" if True not in rights else "wrong"
        raise BadInput(
            f"none of the {len(hits)} judged hits is {missing}",
            todo="A fit wants questions that something answers and some that nothing does.",
        )
