"""Embeddings over `/v1/embeddings`: OpenAI, and every server with the same API."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph.errors import EmbedderOff
from ralph.index.embedders.served import SLOW, Dialect, ServedEmbedder, open_served, plain_name
from ralph.wire import Deadline, Wire, with_version

_URL = "https://api.openai.com/v1"
_MODEL = "text-embedding-3-small"


class _OpenAIVector(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class OpenAI(Dialect):
    """The API of OpenAI's embeddings. The key is sent in a header and appears nowhere else."""

    def __init__(
        self, url: str = _URL, model: str = _MODEL, *, key: str = "", dimensions: int | None = None
    ) -> None:
        self._key = key
        self._dimensions = dimensions
        self._is_openai = with_version(url) == _URL
        name = "OpenAI" if self._is_openai else "the embedding server"
        todo = "Check openai_base_url and the network."
        url = with_version(url)
        wire = Wire(url, name=name, todo=todo, error=EmbedderOff, slow=SLOW, key=key)
        # The same name may mean another model on another server.
        server = hashlib.sha256(wire.safe_url.encode(errors="replace")).hexdigest()[:8]
        title = f"OpenAI {model}" if self._is_openai else model
        super().__init__(wire, model, name=f"openai:{plain_name(model)}:{server}", title=title)

    def version(self, deadline: Deadline) -> str:
        """Return the requested vector length, as the API has no versions. OpenAI needs a key."""
        if not self._key and self._is_openai:
            raise self.off("needs a key", "Set RALPH_OPENAI_API_KEY.")
        return "" if self._dimensions is None else f"cut{self._dimensions}"

    def greet(self, deadline: Deadline) -> None:
        """Raise EmbedderOff if the server says nothing; not every server lists its models."""
        self._wire.call("GET", "/models", deadline=deadline)

    def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
        """Return one list of numbers per text, in the order of the texts."""
        asked: dict[str, object] = {"model": self._model, "input": list(texts)}
        if self._dimensions is not None:
            asked["dimensions"] = self._dimensions
        body = msgspec.json.encode(asked)
        reply = self._wire.call("POST", "/embeddings", body, deadline=deadline)
        if reply.status != 200:
            what, todo = {
                401: ("does not accept the key", "Check RALPH_OPENAI_API_KEY."),
                403: ("does not accept the key", "Check RALPH_OPENAI_API_KEY."),
                404: (f"does not know {self._model}", "Check openai_model."),
                429: ("has enough of us for now", "Wait, or raise the limits."),
            }.get(reply.status, ("refused to embed", None))
            raise self.refusal(reply, self.off(f"{what} ({reply.describe(self._key)})", todo))
        rows = self.decoded(reply, "data", list[_OpenAIVector])
        if any(row.index is not None for row in rows):
            by_index = {row.index: row for row in rows}
            if set(by_index) != set(range(len(texts))) or len(rows) != len(texts):
                raise self.off(f"gave {len(by_index)} vectors for {len(texts)} texts")
            rows = [by_index[place] for place in range(len(texts))]
        return [row.embedding for row in rows]


def split_model(name: str) -> tuple[str, int | None]:
    """Split `MODEL@LENGTH` into the model's name and the vector length to request, if any."""
    model, _, length = name.rpartition("@")
    chosen = model and length.isascii() and length.isdecimal() and len(length) < 6
    return (model, int(length)) if chosen else (name, None)


def open_embedder(settings: Any, cache: Path | None) -> ServedEmbedder:
    """Return the embedder at the URL in the settings."""
    url, (model, dimensions) = settings.openai_base_url, split_model(settings.openai_model)
    dialect = OpenAI(url, model, key=settings.openai_api_key or "", dimensions=dimensions)
    return open_served(dialect, settings, cache, "openai", url, model, str(dimensions))
