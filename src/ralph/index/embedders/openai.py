"""Embeddings over `/v1/embeddings`: OpenAI, and every server that speaks its dialect."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph.errors import EmbedderOff
from ralph.index.embedders.served import (
    SLOW,
    UNWANTED,
    ServedEmbedder,
    TextsRefused,
    plain_name,
    recipe_for,
    served_embedder,
)
from ralph.wire import Deadline, Reply, Wire, versioned

DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "text-embedding-3-small"


class _OpenAIVector(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _OpenAIAnswer(msgspec.Struct):
    data: list[_OpenAIVector]


class OpenAI:
    """The dialect of OpenAI's embeddings; the key goes into a header and nowhere else."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        model: str = DEFAULT_MODEL,
        *,
        key: str | None = None,
        dimensions: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = versioned(url)
        self._model = model
        self._key = key
        self._dimensions = dimensions
        self._wire = Wire(
            self._url,
            name="OpenAI" if self._url == DEFAULT_URL else "the embedding server",
            todo="Check openai_base_url and the network.",
            error=EmbedderOff,
            slow=SLOW,
            key=key,
            sleep=sleep,
        )
        # The same name may be another model on another server.
        server = hashlib.sha256(self._wire.shown.encode(errors="replace")).hexdigest()[:8]
        self.name = f"openai:{plain_name(model)}:{server}"
        self.title = f"OpenAI {model}" if self._url == DEFAULT_URL else model
        self.recipe = recipe_for(model)

    def version(self, deadline: Deadline) -> str:
        """Nobody can know; but a key that is needed and not there is known at once."""
        if self._key is None and self._url == DEFAULT_URL:
            raise self.off("needs a key", "Set RALPH_OPENAI_API_KEY.")
        return "" if self._dimensions is None else f"cut{self._dimensions}"

    def idle(self, deadline: Deadline) -> bool:
        """It is always there."""
        return False

    def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
        """One list of numbers a text, in the order of the texts."""
        asked: dict[str, object] = {"model": self._model, "input": list(texts)}
        if self._dimensions is not None:
            asked["dimensions"] = self._dimensions
        body = msgspec.json.encode(asked)
        reply = self._wire.call("POST", "/embeddings", body, deadline=deadline)
        if reply.status != 200:
            error = self._refused(reply)
            raise TextsRefused(error) if reply.status in UNWANTED else error
        try:
            rows = msgspec.json.decode(reply.body, type=_OpenAIAnswer).data
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.off(f"gave an answer that cannot be read ({error})") from None
        if any(row.index is not None for row in rows):
            by_index = {row.index: row for row in rows}
            if set(by_index) != set(range(len(texts))) or len(rows) != len(texts):
                raise self.off(f"gave {len(by_index)} vectors for {len(texts)} texts")
            rows = [by_index[place] for place in range(len(texts))]
        return [row.embedding for row in rows]

    def off(self, what: str, todo: str | None = None) -> EmbedderOff:
        """An error about this server."""
        return self._wire.off(what, todo)

    def _refused(self, reply: Reply) -> EmbedderOff:
        said = reply.describe(*filter(None, [self._key]))
        if reply.status in (401, 403):
            return self.off(f"does not accept the key ({said})", "Check RALPH_OPENAI_API_KEY.")
        if reply.status == 404:
            return self.off(f"does not know {self._model} ({said})", "Check openai_model.")
        if reply.status == 429:
            return self.off(f"has enough of us for now ({said})", "Wait, or raise the limits.")
        return self.off(f"refused to embed ({said})")


def open_embedder(settings: Any, cache: Path | None) -> ServedEmbedder:
    """The embedder at the URL that the settings name."""
    url, model, dimensions = (
        settings.openai_base_url,
        settings.openai_model,
        settings.openai_dimensions,
    )
    dialect = OpenAI(url, model, key=settings.openai_api_key or None, dimensions=dimensions)
    return served_embedder(dialect, settings, cache, "openai", url, model, str(dimensions))
