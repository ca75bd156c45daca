"""From settings to the embedder they name; nothing is loaded or asked before its first text."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ralph.index import Embedder


class Choice(Protocol):
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


def choose(choice: Choice, cache: Path | None) -> Embedder | None:
    """The embedder; None where words alone are wanted. `cache` keeps what was checked and told."""
    match choice.embedder:
        case "none":
            return None
        case "static":
            from ralph.index.static import StaticEmbedder

            return StaticEmbedder(stamp_folder=cache)
        case "minilm":
            from ralph.index.minilm import MiniLMEmbedder

            return MiniLMEmbedder(stamp_folder=cache)
        case "ollama":
            return _ollama(choice, cache)
        case "openai":
            return _openai(choice, cache)
    raise AssertionError(choice.embedder)


def _ollama(choice: Choice, cache: Path | None) -> Embedder:
    from ralph.index.ollama import Ollama, ollama_wire
    from ralph.index.served import ServedEmbedder, memo_file

    url, model = choice.ollama_url, choice.ollama_model
    return ServedEmbedder(
        Ollama(ollama_wire(url), model),
        memo=memo_file(cache, "ollama", url, model),
        batch=choice.embed_batch,
        timeout_s=choice.embed_timeout_s,
        query_timeout_s=choice.embed_query_timeout_s,
    )


def _openai(choice: Choice, cache: Path | None) -> Embedder:
    from ralph.index.openai import OpenAI
    from ralph.index.served import ServedEmbedder, memo_file

    url, model, dimensions = choice.openai_base_url, choice.openai_model, choice.openai_dimensions
    return ServedEmbedder(
        OpenAI(url, model, key=choice.openai_api_key or None, dimensions=dimensions),
        memo=memo_file(cache, "openai", url, model, str(dimensions)),
        batch=choice.embed_batch,
        timeout_s=choice.embed_timeout_s,
        query_timeout_s=choice.embed_query_timeout_s,
    )
