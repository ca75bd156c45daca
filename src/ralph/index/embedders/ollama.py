"""Ollama: a model on this machine or in its network, over Ollama's own HTTP interface."""

from __future__ import annotations

from collections.abc import Sequence
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
from ralph.wire import Deadline, Reply, Wire

DEFAULT_URL = "http://127.0.0.1:11434"
DEFAULT_MODEL = "nomic-embed-text"
_TAG = ":latest"
_VERSION_CHARS = 12


class _OllamaModel(msgspec.Struct):
    name: str = ""
    digest: str = ""


class _OllamaModels(msgspec.Struct):
    models: list[_OllamaModel] = []


class _OllamaAnswer(msgspec.Struct):
    embeddings: list[list[float]]


class Ollama:
    """The dialect of Ollama: `/api/tags` tells its models, `/api/embed` makes vectors."""

    def __init__(self, wire: Wire[EmbedderOff], model: str = DEFAULT_MODEL) -> None:
        self._wire = wire
        self._model = model
        self.name = f"ollama:{plain_name(model)}"
        self.title = f"Ollama {model}"
        self.recipe = recipe_for(model)

    def version(self, deadline: Deadline) -> str:
        """The model's digest: pulling another version is another model."""
        models = self._listed("/api/tags", deadline)
        found = models.get(_tagged(self._model))
        if found is None:
            raise missing(self._model)
        return found.digest.removeprefix("sha256:")[:_VERSION_CHARS]

    def idle(self, deadline: Deadline) -> bool:
        """Whether the model is not among those in memory; an older Ollama does not tell."""
        reply = self._wire.call("GET", "/api/ps", deadline=deadline)
        if reply.status != 200:
            return False
        return _tagged(self._model) not in self._models(reply)

    def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
        """One list of numbers a text."""
        body = msgspec.json.encode({"model": self._model, "input": list(texts)})
        reply = self._wire.call("POST", "/api/embed", body, deadline=deadline)
        if reply.status == 404:
            if reply.complaint():
                raise missing(self._model)
            raise self.off("cannot embed batches", "Update Ollama to 0.3 or newer.")
        if reply.status != 200:
            error = self.off(
                f"refused to embed ({reply.describe()})",
                f"If {self._model} is no embedding model: ralph config ollama_model NAME",
            )
            raise TextsRefused(error) if reply.status in UNWANTED else error
        try:
            return msgspec.json.decode(reply.body, type=_OllamaAnswer).embeddings
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.off(f"gave an answer that cannot be read ({error})") from None

    def off(self, what: str, todo: str | None = None) -> EmbedderOff:
        """An error about this server."""
        return self._wire.off(what, todo)

    def _listed(self, path: str, deadline: Deadline) -> dict[str, _OllamaModel]:
        reply = self._wire.call("GET", path, deadline=deadline)
        if reply.status != 200:
            raise self.off(f"does not list its models ({reply.describe()})")
        return self._models(reply)

    def _models(self, reply: Reply) -> dict[str, _OllamaModel]:
        try:
            listed = msgspec.json.decode(reply.body, type=_OllamaModels).models
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.off(f"gave an answer that cannot be read ({error})") from None
        return {_tagged(model.name): model for model in listed}


def open_embedder(settings: Any, cache: Path | None) -> ServedEmbedder:
    """The embedder at the URL that the settings name."""
    url, model = settings.ollama_url, settings.ollama_model
    return served_embedder(Ollama(ollama_wire(url), model), settings, cache, "ollama", url, model)


def ollama_wire(url: str) -> Wire[EmbedderOff]:
    """The way to an Ollama."""
    return Wire(url, name="Ollama", todo="Start it: ollama serve", error=EmbedderOff, slow=SLOW)


def missing(model: str) -> EmbedderOff:
    """Ollama is there, its model is not."""
    return EmbedderOff(f"{model} not found", todo=f"Run: ollama pull {model}")


def _tagged(model: str) -> str:
    return model if ":" in model.rpartition("/")[2] else model + _TAG
