"""Vectors of length one; what has no direction stays zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralph.index import Vectors


def unit_rows(vectors: Vectors) -> Vectors:
    """Each row brought to length one."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    lengths[lengths == 0.0] = 1.0
    scaled: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return scaled


def mean_direction(vectors: Vectors) -> Vectors:
    """One vector that points where the rows point together."""
    import numpy as np

    whole: Vectors = np.add.reduce(vectors, axis=0)
    return whole if len(vectors) == 1 else unit_rows(whole[None, :]).reshape(-1)
