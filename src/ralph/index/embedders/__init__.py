"""From settings to the embedder they name; nothing is loaded or asked before its first text."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ralph.errors import EmbedderOff
from ralph.index import Embedder

if TYPE_CHECKING:
    from ralph.index import Vectors


class EmbedderSettings(Protocol):
    """The settings that choose an embedder and say how to reach it."""

    @property
    def embedder(self) -> str: ...
    @property
    def embed_timeout_s(self) -> float: ...
    @property
    def embed_query_timeout_s(self) -> float: ...
    @property
    def embed_batch(self) -> int: ...
    @property
    def ollama_url(self) -> str: ...
    @property
    def ollama_model(self) -> str: ...
    @property
    def openai_base_url(self) -> str: ...
    @property
    def openai_model(self) -> str: ...
    @property
    def openai_dimensions(self) -> int | None: ...
    @property
    def openai_api_key(self) -> str | None: ...


def choose_embedder(choice: EmbedderSettings, cache: Path | None) -> Embedder | None:
    """The embedder; None where words alone are wanted. `cache` keeps what was checked and told."""
    match choice.embedder:
        case "none":
            return None
        case "static":
            from ralph.index.embedders.static import StaticEmbedder

            return StaticEmbedder(stamp_folder=cache)
        case "minilm":
            from ralph.index.embedders.minilm import MiniLMEmbedder

            return MiniLMEmbedder(stamp_folder=cache)
        case "ollama":
            return _ollama(choice, cache)
        case "openai":
            return _openai(choice, cache)
    raise AssertionError(choice.embedder)


def _ollama(choice: EmbedderSettings, cache: Path | None) -> Embedder:
    from ralph.index.embedders.ollama import Ollama, ollama_wire
    from ralph.index.embedders.served import ServedEmbedder, memo_file

    url, model = choice.ollama_url, choice.ollama_model
    return ServedEmbedder(
        Ollama(ollama_wire(url), model),
        memo=memo_file(cache, "ollama", url, model),
        batch=choice.embed_batch,
        timeout_s=choice.embed_timeout_s,
        query_timeout_s=choice.embed_query_timeout_s,
    )


def _openai(choice: EmbedderSettings, cache: Path | None) -> Embedder:
    from ralph.index.embedders.openai import OpenAI
    from ralph.index.embedders.served import ServedEmbedder, memo_file

    url, model, dimensions = choice.openai_base_url, choice.openai_model, choice.openai_dimensions
    return ServedEmbedder(
        OpenAI(url, model, key=choice.openai_api_key or None, dimensions=dimensions),
        memo=memo_file(cache, "openai", url, model, str(dimensions)),
        batch=choice.embed_batch,
        timeout_s=choice.embed_timeout_s,
        query_timeout_s=choice.embed_query_timeout_s,
    )


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
