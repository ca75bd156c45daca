"""Whether work grows with its input as it should, in CPU time, so that load does not count."""

from __future__ import annotations

import time
from collections.abc import Callable

# Ten times the input takes ten times as long in a linear pass, a hundred times in a quadratic one.
_MOST = 30
# Below this a clock and a cache say more than the work does. A quadratic pass over the texts in
# question takes seconds.
_LEAST_S = 0.002


def assert_linear(work: Callable[[str], object], text: Callable[[int], str], size: int) -> None:
    """`work` on `text(size)` takes no more than its share beside `text(size // 10)`."""
    short_s, long_s = _cpu_s(work, text, size // 10), _cpu_s(work, text, size)
    assert long_s < _MOST * max(short_s, _LEAST_S), f"{short_s:.4f} s, ten times: {long_s:.4f} s"


def _cpu_s(work: Callable[[str], object], text: Callable[[int], str], size: int) -> float:
    """The fastest of three, each on a text of its own, because an answer may be remembered."""
    taken: list[float] = []
    for more in range(3):
        given = text(size + more)
        start = time.process_time()
        work(given)
        taken.append(time.process_time() - start)
    return min(taken)
