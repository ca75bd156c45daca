"""How good a ranking is: measures over the ranks of relevant results, and confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from bench.report import aligned, print_json, print_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CUTS = (1, 5, 10, 20)
_GAIN_CUT = 10
_FEW = 5
MEASURES = (*(f"recall@{cut}" for cut in _CUTS), "nDCG@10", "MRR", "any@5", "all@5")
# As deep as the deepest measure looks; the reciprocal rank ignores results below it.
DEPTH = max(_CUTS)
DRAWS = 2000
_LOW = 2.5
_HIGH = 97.5


class Mean(msgspec.Struct, frozen=True):
    """A mean over questions and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def first_of_each(names: Iterable[str]) -> list[str]:
    """Return each name once, at its first place: a conversation ranks with its best passage."""
    return list(dict.fromkeys(names))


def measured(ranking: Sequence[str], relevant: Collection[str]) -> dict[str, float]:
    """Return every measure of one question; `ranking` has each name once, best first."""
    if not relevant:
        raise ValueError("nothing is relevant, so nothing can be measured")
    ranks = [rank for rank, name in enumerate(ranking[:DEPTH], 1) if name in relevant]
    found = {cut: sum(rank <= cut for rank in ranks) for cut in (*_CUTS, _FEW)}
    values = {f"recall@{cut}": found[cut] / len(relevant) for cut in _CUTS}
    gain = sum(_gain(rank) for rank in ranks if rank <= _GAIN_CUT)
    best = sum(_gain(rank) for rank in range(1, min(len(relevant), _GAIN_CUT) + 1))
    return values | {
        "nDCG@10": gain / best,
        "MRR": 1.0 / ranks[0] if ranks else 0.0,
        "any@5": float(found[_FEW] > 0),
        "all@5": float(found[_FEW] == len(relevant)),
    }


def means(values: Sequence[Mapping[str, float]], *, seed: int = 0) -> dict[str, Mean]:
    """Return the mean of each measure over the questions, with its interval."""
    if not values:
        return {}
    table = _table(values)
    drawn = _drawn(table, seed)
    return _intervals(table, drawn)


def differences(
    ours: Mapping[str, Mapping[str, float]],
    theirs: Mapping[str, Mapping[str, float]],
    *,
    seed: int = 0,
) -> dict[str, Mean]:
    """Return how much better ours is on the questions both answered, drawn together (paired)."""
    both = [name for name in ours if name in theirs]
    if not both:
        return {}
    table = _table([ours[name] for name in both]) - _table([theirs[name] for name in both])
    return _intervals(table, _drawn(table, seed))


def _gain(rank: int) -> float:
    return 1.0 / math.log2(rank + 1)


def _table(values: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    import numpy as np

    return np.array([[one[name] for name in MEASURES] for one in values], dtype=np.float64)


def _drawn(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return the means of `DRAWS` samples of the questions, with replacement."""
    import numpy as np

    count = len(table)
    chosen = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=DRAWS)
    drawn: NDArray[np.float64] = chosen.astype(np.float64) @ table / count
    return drawn


def _intervals(table: NDArray[np.float64], drawn: NDArray[np.float64]) -> dict[str, Mean]:
    import numpy as np

    low, high = np.percentile(drawn, [_LOW, _HIGH], axis=0)
    rows = zip(MEASURES, table.mean(axis=0), low, high, strict=True)
    return {name: Mean(float(mean), float(a), float(b)) for name, mean, a, b in rows}


class FoundBy(msgspec.Struct, frozen=True):
    """One way of finding: how many questions, how well, and how often above the minimum score."""

    what: str
    questions: int
    means: dict[str, Mean]
    above_floor: float | None = None


def show_found(
    name: str, found: Sequence[FoundBy], headlines: Mapping[str, Sequence[str]], *, as_json: bool
) -> int:
    """Print JSON, or a line for each way with its main measures; return the exit code."""
    if as_json:
        return print_json(name, quality=msgspec.to_builtins(found))
    lines = []
    for one in found:
        cells = [
            f"{measure} {mean.mean:.3f} [{mean.low:.3f}-{mean.high:.3f}]"
            for measure in headlines[one.what]
            if (mean := one.means.get(measure))
        ]
        if one.above_floor is not None:
            cells.append(f"above the floor {one.above_floor:.3f}")
        plural = "" if one.questions == 1 else "s"
        lines.append((one.what, f"{one.questions} question{plural}", *cells))
    width = max(map(len, lines), default=0)
    return print_lines(aligned([(*line, *[""] * (width - len(line))) for line in lines]))
