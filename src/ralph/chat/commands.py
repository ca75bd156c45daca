"""The commands that steer workers and retrieval, the same in the chat and on the command line.

Each answers in lines. What is switched on or off stays so: it is written to the user's settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ralph.chat.indexed import clear, counted, kind_of, price_per_char
from ralph.chat.summarising import open_backlog
from ralph.chat.wording import (
    PARTS,
    by_kind,
    effect,
    rebuild_question,
    seconds,
    some,
    some_items,
    written,
)
from ralph.chat.workers import NAMES, Name, Workers, WorkerStatus, setting_of
from ralph.chat.working import Backlog
from ralph.config import USER_FILE, Settings, store
from ralph.errors import BadInput, BadSetting, MemoryOff
from ralph.memory.ralph import Ralph

if TYPE_CHECKING:
    from ralph.chat.loop import Looked

_TITLES: dict[Name, str] = {
    "conversation": "Conversation Summarizer",
    "exchange": "Exchange Summarizer",
    "embedding": "Embedding Pipeline",
}
_ITEMS: dict[Name, str] = {
    "conversation": "conversations",
    "exchange": "exchanges",
    "embedding": "embeddings",
}
RAG_KEYS = (
    "rag_enabled",
    "rag_conversation_limit",
    "rag_exchange_limit_per_conversation",
    "rag_min_similarity",
    "rag_recency_half_life_days",
)
_YES = "yes"


class Commands:
    """Answers commands about one project's workers, in lines."""

    def __init__(
        self,
        workers: Workers,
        open_memory: Callable[[], Ralph],
        *,
        said: str = "/",
        here: bool = True,
    ) -> None:
        """`said` stands before a command's name; `here`: the workers run in this process."""
        self._workers = workers
        self._open = open_memory
        self._said = said
        self._here = here

    def signal(self) -> None:
        """There is something new for the workers."""
        self._workers.signal()

    # -- summaries

    def summarizer(self, words: Sequence[str]) -> list[str]:
        """`summarizer [conversation|exchange] [on|off]`"""
        names: list[Name] = ["conversation", "exchange"]
        rest = list(words)
        alone = [name for name in names if rest[:1] == [name]]
        if alone:
            names, rest = alone, rest[1:]
        match rest:
            case []:
                return self._summarizers(names, alone=bool(alone))
            case ["on"]:
                # Summaries are found by their embeddings, so both together need the pipeline.
                return self._switch(names if alone else list(NAMES), on=True)
            case ["off"]:
                return self._switch(names, on=False)
        raise self._usage("summarizer [conversation|exchange] [on|off]")

    def _summarizers(self, names: Sequence[Name], *, alone: bool) -> list[str]:
        statuses = {one.name: one for one in self._workers.statuses()}
        lines: list[str] = []
        for name in names:
            lines += [*self._worker(statuses[name], alone=alone), ""]
        if alone:
            return lines[:-1]
        pipeline = statuses["embedding"].state.upper()
        return [*lines, f"Embedding Pipeline: {pipeline} (see {self._said}embeddings for details)"]

    def _worker(self, one: WorkerStatus, *, alone: bool = False) -> list[str]:
        items = _ITEMS[one.name]
        lines = [f"{_TITLES[one.name]}: {one.state.upper()}"]
        left = one.total - one.completed
        if one.state == "running":
            lines.append(f"  Progress: {one.completed:,}/{one.total:,} {items}")
        elif one.state == "idle":
            lines.append(f"  Total processed this session: {one.completed:,}")
        if one.state != "stopped":
            lines.append(f"  Completed: {one.completed:,}, Failed: {one.failed:,}")
        if left and one.state != "running":
            lines.append(f"  To do: {left:,} {items}")
        if one.current and one.state == "running":
            lines.append(f"  Current: {one.current}")
        if one.state != "stopped":
            lines.append(f"  Spend: ${one.spend_usd:.2f}")
        if note := one.note or self._why_stopped(one):
            lines.append(f"  Note: {note}")
        lines += self._failures(one)
        if alone and one.state == "idle" and not left and not one.retrying and not one.given_up:
            lines += ["", f"All {items} are summarized. Worker is idle."]
        return lines

    def _why_stopped(self, one: WorkerStatus) -> str:
        if one.state != "stopped":
            return ""
        if not getattr(self._settings(), setting_of(one.name)):
            return f"off. To switch it on: {self._said}{_switch_of(one.name)} on"
        return "on, and no process runs it: `ralph workers run` or `ralph chat` does"

    def _failures(self, one: WorkerStatus) -> list[str]:
        lines: list[str] = []
        if one.retrying:
            wait = seconds(one.next_retry_s or 0.0)
            lines.append(f"Warning: retry queue: {some_items(one.retrying)} (next retry in {wait})")
        if one.given_up:
            lines.append(
                f"Warning: given up: {some_items(one.given_up)}. "
                "`ralph workers status` lists them, `ralph conversations retry` tries them again"
            )
        return lines

    # -- embeddings

    def embeddings(self, words: Sequence[str], confirm: Callable[[str], str]) -> list[str]:
        """`embeddings [on|off|rebuild [conversations|exchanges]]`; `confirm` asks a person."""
        match list(words):
            case []:
                return self._embeddings()
            case ["on"]:
                return self._switch(["embedding"], on=True)
            case ["off"]:
                return self._switch(["embedding"], on=False)
            case ["rebuild"]:
                return self._rebuild("", confirm)
            case ["rebuild", ("conversations" | "exchanges") as part]:
                return self._rebuild(part, confirm)
        raise self._usage("embeddings [on|off|rebuild [conversations|exchanges]]")

    def _embeddings(self) -> list[str]:
        one = next(one for one in self._workers.statuses() if one.name == "embedding")
        with self._backlog() as memory:
            counts = counted(memory)
            free = price_per_char(memory.shelf.settings) == 0.0
        lines = [f"{_TITLES['embedding']}: {one.state.upper()}"]
        if one.state == "running":
            lines += ["  State: Processing batch"]
            lines += [f"  Progress: {one.completed:,}/{one.total:,} embeddings"]
        if one.state != "stopped":
            lines += [f"  Completed: {one.completed:,}, Failed: {one.failed:,}"]
        if one.state == "running" and one.current:
            lines += [f"  Current batch: {one.current.removeprefix('batch of ')} items"]
        lines += [f"  Total embeddings: {counts.total:,}", *by_kind(counts, "    - ")]
        if one.state != "stopped":
            lines += [f"  Spend: ${one.spend_usd:.2f}{'' if free else ' (estimated)'}"]
        if note := one.note or self._why_stopped(one):
            lines += [f"  Note: {note}"]
        warnings = self._failures(one)
        if counts.waiting and one.state == "stopped":
            told = f"{counts.waiting:,} {'item is' if counts.waiting == 1 else 'items are'}"
            off = "OFF" if not self._settings().embedding_pipeline_enabled else "not running"
            warnings += [f"Warning: {told} awaiting embeddings (pipeline is {off})"]
        return [*lines, "", *warnings] if warnings else lines

    def _rebuild(self, part: str, confirm: Callable[[str], str]) -> list[str]:
        kinds = PARTS[part]
        with self._backlog() as memory:
            if memory.shelf.embedder is None:
                raise MemoryOff(
                    "there are no embeddings: the setting embedder is none",
                    todo="Run: ralph config embedder static",
                )
            memory.shelf.embedder.check()  # what cannot be made anew is not deleted
            counts = counted(memory)
            chosen = [one for one in memory.history.records.values() if kind_of(one) in kinds]
            question = rebuild_question(part, counts, memory, chosen)
            if confirm(question).strip().lower() != _YES:
                return ["That was not yes: nothing was deleted."]
            clear(memory, None if not part else [one.id for one in chosen])
        self._workers.retry_embeddings()
        return ["", *self._recreated(len(chosen))]

    def _recreated(self, count: int) -> list[str]:
        one = next(one for one in self._workers.statuses() if one.name == "embedding")
        if one.state != "stopped":
            return [
                "Embeddings cleared. Pipeline will recreate them.",
                f"Processing: 0/{count:,} completed...",
            ]
        if self._here:
            return [
                "Embeddings cleared. The pipeline is off: they are recreated by "
                f"`{self._said}embeddings on`, or by the next search.",
            ]
        [done] = self._workers.run_once(["embedding"])
        lines = ["Embeddings cleared.", f"Recreated: {done.completed:,}/{count:,} completed."]
        return [*lines, *self._failures(done)]

    # -- retrieval

    def rag(self, words: Sequence[str], looked: Looked | None = None) -> list[str]:
        """`rag [on|off|config|set KEY VALUE]`; `looked` tells of the last retrieval."""
        match list(words):
            case []:
                return self._rag(looked)
            case ["on" | "off" as state]:
                on = state == "on"
                lines = self._store("rag_enabled", on)
                told = "ENABLED" if on else "DISABLED: nothing is recalled before an answer"
                return [f"RAG Status: {told}", *lines]
            case ["config"]:
                return self._rag_config()
            case ["set", key, value]:
                return self._rag_set(key, value)
            case ["set", *_]:
                raise self._usage("rag set KEY VALUE")
        raise self._usage("rag [on|off|config|set KEY VALUE]")

    def _rag(self, looked: Looked | None) -> list[str]:
        with self._backlog() as memory:
            counts, settings = counted(memory), memory.shelf.settings
        lines = [
            f"RAG Status: {'ENABLED' if settings.rag_enabled else 'DISABLED'}",
            "",
            "Embeddings:",
            *(f"{line} embedded" for line in by_kind(counts, "  - ")),
            f"  - Total vectors: {counts.total:,}",
            "",
            "Configuration:",
            f"  - Conversation retrieval limit: {settings.rag_conversation_limit}",
            f"  - Exchange limit per conversation: {settings.rag_exchange_limit_per_conversation}",
            f"  - Minimum similarity threshold: {settings.rag_min_similarity:.2f}",
        ]
        if settings.rag_recency_half_life_days:
            lines.append(f"  - Recency half-life: {settings.rag_recency_half_life_days:g} days")
        if looked is not None:
            ago = seconds(max(0.0, time.monotonic() - looked.at))
            found = (
                f"{some(looked.conversations, 'conversation')}, "
                f"{some(looked.exchanges, 'exchange')}"
            )
            lines += ["", f"Last retrieval: {ago} ago ({found})"]
        elif self._here:
            lines += ["", "Last retrieval: none yet in this session"]
        return lines

    def rag_settings(self) -> dict[str, Any]:
        """The settings of retrieval, by their names."""
        settings = self._settings()
        return {key: getattr(settings, key) for key in RAG_KEYS}

    def _rag_config(self) -> list[str]:
        return [
            "RAG Configuration:",
            *(f"  {key}: {written(key, value)}" for key, value in self.rag_settings().items()),
            "",
            f"To update: {self._said}rag set <key> <value>",
            f"Example: {self._said}rag set rag_conversation_limit 5",
        ]

    def _rag_set(self, key: str, value: str) -> list[str]:
        named = key if key.startswith("rag_") else f"rag_{key}"
        if named not in RAG_KEYS:
            raise BadSetting(
                f"there is no setting {key!r} of retrieval",
                todo=f"There are {', '.join(RAG_KEYS)}.",
            )
        warnings = self._store(named, value)
        now = getattr(self._settings(), named)
        return [f"Updated: {named} = {written(named, now)}", effect(named, now), *warnings]

    # -- inside

    def _switch(self, names: Sequence[Name], *, on: bool) -> list[str]:
        lines: list[str] = []
        for name in names:
            warnings = self._store(setting_of(name), on)
            if self._here and on:
                self._workers.start(name)
            elif self._here:
                self._workers.stop(name)
            lines += [f"{_TITLES[name]}: {'ON' if on else 'OFF'}", *warnings]
        running = any(one.state != "stopped" for one in self._workers.statuses())
        if on and not self._here and not running:
            lines.append("It works while `ralph chat` or `ralph workers run` is open.")
        return lines

    def _store(self, key: str, value: Any) -> list[str]:
        """Write a setting to the user's file; warns where another place is stronger."""
        with self._open() as ralph:
            file = ralph.place.home / USER_FILE
        text = str(value).lower() if isinstance(value, bool) else value
        store(file, key, text)
        with self._open() as ralph:
            origin = next(one for one in ralph.config.origins if one.key == key)
        if origin.origin == str(file):
            return []
        return [f"Warning: {origin.origin} is stronger: {key} is {written(key, origin.value)} here"]

    def _settings(self) -> Settings:
        with self._open() as ralph:
            return ralph.config.settings

    @contextmanager
    def _backlog(self) -> Iterator[Backlog]:
        with self._open() as ralph:
            memory = open_backlog(ralph)
            try:
                yield memory
            finally:
                memory.close()

    def _usage(self, form: str) -> BadInput:
        return BadInput("that is not how it is written", todo=f"Write: {self._said}{form}")


def _switch_of(name: Name) -> str:
    return "embeddings" if name == "embedding" else f"summarizer {name}"
