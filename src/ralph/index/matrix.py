"""A collection's vectors in memory, one NumPy matrix, kept up to date row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Vectors


class Matrix:
    """Rows of unit vectors; grows by appending, and is thrown away when rows were removed."""

    def __init__(self, dims: int) -> None:
        import numpy as np

        self._dims = dims
        self._count = 0
        self._rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._data: Vectors = np.empty((0, dims), dtype=np.float32)
        self.last_vector = 0
        self.removals = -1

    def append(self, passages: list[int], blobs: list[bytes]) -> None:
        """Add these passages' vectors."""
        import numpy as np

        if not passages:
            return
        new = np.frombuffer(b"".join(blobs), dtype=np.float32).reshape(len(passages), self._dims)
        end = self._count + len(passages)
        if end > len(self._rows):
            # Doubling keeps the cost of growing flat; the first load fits exactly.
            capacity = end if self._count == 0 else max(end, 2 * self._count)
            self._rows = np.resize(self._rows, capacity)
            grown = np.empty((capacity, self._dims), dtype=np.float32)
            grown[: self._count] = self._data[: self._count]
            self._data = grown
        self._rows[self._count : end] = passages
        self._data[self._count : end] = new
        self._count = end

    def nearest(self, query: Vectors, count: int, also: list[int]) -> dict[int, float]:
        """Cosines of the `count` nearest passages, and of those in `also` that have a vector."""
        import numpy as np

        if not self._count:
            return {}
        rows = self._rows[: self._count]
        cosines = self._data[: self._count] @ query
        if count < self._count:
            near = np.argpartition(cosines, self._count - count)[self._count - count :]
        else:
            near = np.arange(self._count)
        if also:
            wanted = np.flatnonzero(np.isin(rows, np.asarray(also, dtype=np.int64)))
            near = np.union1d(near, wanted)
        return dict(zip(rows[near].tolist(), cosines[near].tolist(), strict=True))
