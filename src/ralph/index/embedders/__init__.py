"""Embedders: each is a module here, named like the setting `embedder` names it.

A module has `open_embedder(settings, cache)`. Nothing is loaded or asked before its first text.
"""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.errors import EmbedderOff
from ralph.index import Embedder

if TYPE_CHECKING:
    from ralph.index import Vectors


def choose_embedder(settings: Any, cache: Path | None) -> Embedder | None:
    """The embedder that the settings name; None where words alone are wanted.

    `cache` keeps which files were checked, and what servers said of their models.
    """
    if settings.embedder == "none":
        return None
    module = import_module(f"ralph.index.embedders.{settings.embedder}")
    embedder: Embedder = module.open_embedder(settings, cache)
    return embedder


# -- Files of a model that come inside a package: found, and checked to be the ones we know.


def check_file(file: Path, expected: tuple[str, ...], *, stamps: Path | None, todo: str) -> None:
    """Hash the file once for each installed copy; a stamp remembers that it was right."""
    stat = file.stat()
    seen = os.fsencode(f"{file}\n{stat.st_size}\n{stat.st_mtime_ns}\n{expected[0]}\n")
    stamp = stamps / f"{file.name}.checked" if stamps else None
    if stamp and _content(stamp) == seen:
        return
    if hashlib.sha256(file.read_bytes()).hexdigest() not in expected:
        raise EmbedderOff(
            "this is not the file Ralph's vectors are made with (its SHA-256 differs)",
            where=str(file),
            todo=todo,
        )
    if stamp:
        try:
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_bytes(seen)
        except OSError:
            return  # nowhere to write: it is checked again next time


def _content(stamp: Path) -> bytes | None:
    try:
        return stamp.read_bytes()
    except OSError:
        return None


# -- Vectors of length one; what has no direction stays zero.


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
