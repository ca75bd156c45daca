"""Ollama: a model on this machine or in its network, over Ollama's own HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ralph.errors import EmbedderOff
from ralph.index.embedders.served import SLOW, Dialect, ServedEmbedder, open_served, plain_name
from ralph.wire import Deadline, Reply, Wire

_DEFAULT_MODEL = "nomic-embed-text"
_TAG = ":latest"
_VERSION_CHARS = 12


class _OllamaModel(msgspec.Struct):
    name: str = ""
    digest: str = ""


class Ollama(Dialect):
    """The API of Ollama: `/api/tags` lists its models, `/api/embed` returns vectors."""

    def __init__(self, wire: Wire[EmbedderOff], model: str = _DEFAULT_MODEL) -> None:
        super().__init__(wire, model, name=f"ollama:{plain_name(model)}", title=f"Ollama {model}")

    def version(self, deadline: Deadline) -> str:
        """Return the model's digest; another digest is treated as another model."""
        reply = self._wire.call("GET", "/api/tags", deadline=deadline)
        if reply.status != 200:
            raise self.off(f"does not list its models ({reply.describe()})")
        found = self._models(reply).get(_tagged(self._model))
        if found is None:
            raise self._missing()
        return found.digest.removeprefix("sha256:")[:_VERSION_CHARS]

    def idle(self, deadline: Deadline) -> bool:
        """Whether the model is not loaded; False for an older Ollama, which does not say."""
        reply = self._wire.call("GET", "/api/ps", deadline=deadline)
        return reply.status == 200 and _tagged(self._model) not in self._models(reply)

    def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
        """Return one list of numbers per text."""
        body = msgspec.json.encode({"model": self._model, "input": list(texts)})
        reply = self._wire.call("POST", "/api/embed", body, deadline=deadline)
        if reply.status == 404:
            if reply.complaint():
                raise self._missing()
            raise self.off("cannot embed batches", "Update Ollama to 0.3 or newer.")
        if reply.status != 200:
            todo = f"If {self._model} is no embedding model: ralph config ollama_model NAME"
            raise self.refusal(reply, self.off(f"refused to embed ({reply.describe()})", todo))
        return self.decoded(reply, "embeddings", list[list[float]])

    def _missing(self) -> EmbedderOff:
        """Return the error for a model that Ollama does not have."""
        return EmbedderOff(f"{self._model} not found", todo=f"Run: ollama pull {self._model}")

    def _models(self, reply: Reply) -> dict[str, _OllamaModel]:
        models = self.decoded(reply, "models", list[_OllamaModel])
        return {_tagged(model.name): model for model in models}


def open_embedder(settings: Any, cache: Path | None) -> ServedEmbedder:
    """Return the embedder at the URL in the settings."""
    url = settings.ollama_url
    model = settings.ollama_model
    return open_served(Ollama(ollama_wire(url), model), settings, cache, "ollama", url, model)


def ollama_wire(url: str) -> Wire[EmbedderOff]:
    """Return a connection to Ollama."""
    return Wire(url, name="Ollama", todo="Start it: ollama serve", error=EmbedderOff, slow=SLOW)


def _tagged(model: str) -> str:
    return model if ":" in model.rpartition("/")[2] else model + _TAG
