"""Commands about workers and retrieval, in the chat and as `ralph ...`.

Each returns lines of text. Switching something on or off saves it to the user's settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ralph.chat import embeddings
from ralph.chat.workers import EMBEDDING, SUMMARIZERS, WORKER_NAMES, WorkerName, setting_of
from ralph.config import KEYS, USER_FILE, Settings, store
from ralph.errors import BadInput, BadSetting, MemoryOff
from ralph.memory.conversations import Conversations
from ralph.records import Record

if TYPE_CHECKING:
    from collections import Counter

    from ralph.chat.loop import LastRetrieval
    from ralph.chat.workers import OpenMemory, Workers, WorkerStatus

RAG_KEYS = tuple(key for key in KEYS if key.startswith("rag_"))
_TITLES: dict[WorkerName, str] = {
    "conversation": "Conversation Summarizer",
    "exchange": "Exchange Summarizer",
    "embedding": "Embedding Pipeline",
}
_KINDS = {
    "conversations": "Conversation summaries",
    "summaries": "Exchange summaries",
    "exchanges": "Exchanges",
    "documents": "Sections of documents",
}
# For each argument of `rebuild`: how we name it, and the kinds of embeddings it deletes.
_PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("ALL", tuple(_KINDS)),
    "conversations": ("all conversation", ("conversations",)),
    "exchanges": ("all exchange", ("summaries", "exchanges")),
}


SUMMARIZER = "[conversation|exchange] [on|off]"
EMBEDDINGS = "[on|off|rebuild [conversations|exchanges]]"
RAG = "[on|off|config|set KEY VALUE]"


class WorkerCommands:
    """Runs commands about one project's workers. Each returns lines of text."""

    def __init__(
        self, workers: Workers, open_memory: OpenMemory, *, prefix: str = "/", in_chat: bool = True
    ) -> None:
        """`prefix` goes before a command's name; `in_chat`: the workers run in this process."""
        self._workers = workers
        self._open = open_memory
        self._prefix = prefix
        self._in_chat = in_chat

    def signal(self) -> None:
        """Wake the workers: there is something new for them."""
        self._workers.signal()

    def summarizer(self, words: Sequence[str]) -> list[str]:
        """`summarizer [conversation|exchange] [on|off]`"""
        alone = [name for name in SUMMARIZERS if name in words[:1]]
        names = alone or SUMMARIZERS
        rest = list(words[len(alone) :])
        if rest in (["on"], ["off"]):
            # Summaries are found by their embeddings, so turning on both turns on the pipeline.
            on = rest == ["on"]
            return self._switch(WORKER_NAMES if on and not alone else names, on=on)
        if rest:
            raise self._usage(f"summarizer {SUMMARIZER}")
        statuses = self._workers.statuses(names)
        lines = [line for status in statuses for line in self.status_lines(status)]
        more = f"see {self._prefix}embeddings for details"
        pipeline = f"Embedding Pipeline: {self._pipeline().state.upper()} ({more})"
        return lines if alone else [*lines, pipeline]

    def status_lines(self, status: WorkerStatus) -> list[str]:
        """Return a worker's status, in the lines that every command shows."""
        note = status.note
        embeds = status.name == EMBEDDING
        running = status.state == "running"
        works = status.state != "stopped"
        on = works or getattr(self._settings(), setting_of(status.name))
        if not note and not works:
            command = "embeddings" if embeds else f"summarizer {status.name}"
            waits = "on, but not running. Started by the end of a session, or: `ralph workers run`"
            note = waits if on else f"off. To switch it on: {self._prefix}{command} on"
        left = status.total - status.completed
        items = "embeddings" if embeds else f"{status.name}s"
        waiting = f"{_count(left, 'item')} {'is' if left == 1 else 'are'} awaiting embeddings"
        estimated = " (estimated)" if embeds and status.spend_usd else ""
        done = status.state == "idle" and not (left or status.retrying or status.given_up or embeds)
        lines = {
            f"  Progress: {status.completed:,}/{status.total:,} {items}": running,
            f"  Completed: {status.completed:,}, Failed: {status.failed:,}": works,
            f"  To do: {left:,}": left and not running,
            f"  Current: {status.current}": running and status.current,
            f"  Spend: ${status.spend_usd:.2f}{estimated}": works,
            **dict.fromkeys(_troubles(status), True),
            f"  Note: {note}": note,
            f"  Warning: {waiting} (pipeline is OFF)": embeds and left and not on,
            f"  All {items} are summarized. Worker is idle.": done,
        }
        head = f"{_TITLES[status.name]}: {status.state.upper()}"
        return [head, *(line for line, applies in lines.items() if applies)]

    def embeddings(self, words: Sequence[str], confirm: Callable[[str], str]) -> list[str]:
        """`embeddings [on|off|rebuild [conversations|exchanges]]`; `confirm` asks the user."""
        match list(words):
            case []:
                with self._open() as ralph:
                    counts = embeddings.count_embeddings(ralph.conversations)
                total = f"  Total embeddings: {counts.total():,}"
                return [*self.status_lines(self._pipeline()), total, *_by_kind(counts, "    - ")]
            case ["on" | "off" as state]:
                return self._switch([EMBEDDING], on=state == "on")
            case ["rebuild", *rest] if rest in ([], ["conversations"], ["exchanges"]):
                return self._rebuild("".join(rest), confirm)
        raise self._usage(f"embeddings {EMBEDDINGS}")

    def _rebuild(self, part: str, confirm: Callable[[str], str]) -> list[str]:
        with self._open() as ralph:
            memory = ralph.conversations
            if memory.store.embedder is None:
                what = "there are no embeddings: the setting embedder is none"
                raise MemoryOff(what, todo="Run: ralph config embedder static")
            memory.store.embedder.check()  # delete nothing that cannot be recreated
            records = memory.stream.history.records.values()
            kinds = _PARTS[part][1]
            chosen = [each for each in records if embeddings.embedding_kind(each) in kinds]
            if confirm(_rebuild_question(part, memory, chosen)).strip().lower() != "yes":
                return ["The answer was not yes: nothing was deleted."]
            embeddings.clear_embeddings(memory, [record.id for record in chosen] if part else None)
        self._workers.retry_embeddings()
        if self._pipeline().state != "stopped":
            processing = f"Processing: 0/{len(chosen):,} completed..."
            return ["", "Embeddings cleared. Pipeline will recreate them.", processing]
        if self._in_chat:
            on = f"`{self._prefix}embeddings on` or the next search recreates them."
            return ["", f"Embeddings cleared. The pipeline is off: {on}"]
        [status] = self._workers.run_once([EMBEDDING])
        # The worker counts all embeddings, of which only a part may have been deleted.
        done = max(0, len(chosen) - (status.total - status.completed))
        recreated = f"Recreated: {done:,}/{len(chosen):,} completed."
        return ["", "Embeddings cleared.", recreated, *_troubles(status)]

    def _pipeline(self) -> WorkerStatus:
        return next(s for s in self._workers.statuses() if s.name == "embedding")

    def rag(self, words: Sequence[str], last: LastRetrieval | None = None) -> list[str]:
        """`rag [on|off|config|set KEY VALUE]`; `last` is the last retrieval of this chat."""
        match list(words):
            case []:
                return self._rag(last)
            case ["on" | "off" as state]:
                warnings = self._store("rag_enabled", state == "on")
                off = "DISABLED: nothing is recalled before an answer"
                return [f"RAG Status: {'ENABLED' if state == 'on' else off}", *warnings]
            case ["config"]:
                form = f"{self._prefix}rag set"
                todo = f"To update: {form} <key> <value>"
                return [*self._rag_config(), "", todo, f"Example: {form} rag_conversation_limit 5"]
            case ["set", key, value]:
                return self._rag_set(key, value)
        raise self._usage(f"rag {RAG}")

    def _rag(self, last: LastRetrieval | None) -> list[str]:
        with self._open() as ralph:
            counts = embeddings.count_embeddings(ralph.conversations)
            enabled = ralph.config.settings.rag_enabled
        lines = [f"RAG Status: {'ENABLED' if enabled else 'DISABLED'}", "", "Embeddings:"]
        lines += [*_by_kind(counts, "  - "), f"  - Total vectors: {counts.total():,}", ""]
        lines += self._rag_config()
        if last is not None:
            ago = _duration(max(0.0, time.monotonic() - last.at))
            found = _count(last.conversations, "conversation"), _count(last.exchanges, "exchange")
            lines += ["", f"Last retrieval: {ago} ago ({', '.join(found)})"]
        elif self._in_chat:
            lines += ["", "Last retrieval: none yet in this session"]
        return lines

    def rag_settings(self) -> dict[str, Any]:
        """Return the retrieval settings by name."""
        settings = self._settings()
        return {key: getattr(settings, key) for key in RAG_KEYS}

    def _rag_config(self) -> list[str]:
        settings = self.rag_settings().items()
        return ["RAG Configuration:", *(f"  {key}: {_show(key, value)}" for key, value in settings)]

    def _rag_set(self, key: str, value: str) -> list[str]:
        name = key if key.startswith("rag_") else f"rag_{key}"
        if name not in RAG_KEYS:
            todo = f"Use {', '.join(RAG_KEYS)}."
            raise BadSetting(f"there is no retrieval setting {key!r}", todo=todo)
        warnings = self._store(name, value)
        now = getattr(self._settings(), name)
        return [f"Updated: {name} = {_show(name, now)}", _effect(name, now), *warnings]

    def _switch(self, names: Sequence[WorkerName], *, on: bool) -> list[str]:
        lines: list[str] = []
        for name in names:
            warnings = self._store(setting_of(name), on)
            if self._in_chat:
                (self._workers.start if on else self._workers.stop)(name)
            lines += [f"{_TITLES[name]}: {'ON' if on else 'OFF'}", *warnings]
        running = any(status.state != "stopped" for status in self._workers.statuses())
        if on and not self._in_chat and not running:
            lines.append("It runs while `ralph chat` or `ralph workers run` is open.")
        return lines

    def _store(self, key: str, value: Any) -> list[str]:
        """Save a setting to the user's file; warns when another place overrides it."""
        with self._open() as ralph:
            file = ralph.store.home / USER_FILE
        store(file, key, str(value).lower() if isinstance(value, bool) else value)
        with self._open() as ralph:
            origin = next(each for each in ralph.config.origins if each.key == key)
        if origin.origin == str(file):
            return []
        return [f"Warning: {origin.origin} overrides it: {key} is {_show(key, origin.value)} here"]

    def _settings(self) -> Settings:
        with self._open() as ralph:
            return ralph.config.settings

    def _usage(self, form: str) -> BadInput:
        return BadInput("unknown arguments", todo=f"Usage: {self._prefix}{form}")


def _by_kind(counts: Counter[str], lead: str) -> list[str]:
    """A line for each kind; exchanges and documents only if there are any."""
    main = ("conversations", "summaries")
    return [f"{lead}{text}: {counts[k]:,}" for k, text in _KINDS.items() if counts[k] or k in main]


def _rebuild_question(part: str, memory: Conversations, chosen: Sequence[Record]) -> str:
    """Return the question to confirm: what a rebuild deletes, recreates and costs."""
    what, kinds = _PARTS[part]
    counts = embeddings.count_embeddings(memory)
    existing = sum(counts[kind] for kind in kinds)
    wanted = [embeddings.embedding_kind(record) for record in chosen]
    shown = [kind for kind in kinds if kind in wanted or kind != "documents"]
    made = [f"{wanted.count(kind):,} {_KINDS[kind].lower()}" for kind in shown]
    settings = memory.store.settings
    if (price := embeddings.price_per_char(settings)) == 0.0:
        cost = f"nothing (the embedder {settings.embedder} is free)"
    elif price is None:
        cost = f"an unknown amount ({settings.openai_model} at {settings.openai_base_url})"
    else:
        cut = memory.stream.target().cut
        chars = sum(len(passage.embed) for record in chosen for passage in cut(record))
        cost = f"approximately ${chars * price:.2f} (OpenAI API)"
    effects = [f"Delete {existing:,} existing embeddings", *(f"Re-embed {m}" for m in made)]
    lines = [f"WARNING: This will delete and recreate {what} embeddings.", "This operation will:"]
    lines += [f"  - {effect}" for effect in (*effects, f"Cost {cost}")]
    return "\n".join([*lines, "", "Type 'yes' to confirm: "])


def _effect(key: str, value: Any) -> str:
    """Say what a retrieval setting does from now on."""
    aged = f"will now count what is {value:g} days old half as much"
    related = _count(value, "related conversation")
    exchanges = _count(value, "exchange")
    shown = f"will now show up to {exchanges} of each conversation"
    effects = {
        "rag_conversation_limit": f"will now retrieve up to {related} per query",
        "rag_exchange_limit_per_conversation": shown,
        "rag_min_similarity": f"will now retrieve what is at least {value:.2f} similar",
        "rag_recency_half_life_days": aged if value else "will no longer prefer what is new",
        "rag_enabled": f"is {'enabled' if value else 'disabled'} now",
    }
    return f"RAG {effects[key]}."


def _show(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.2f}" if key == "rag_min_similarity" else f"{value:g}"


def _troubles(status: WorkerStatus) -> list[str]:
    """List how many failed items will be retried, and how many were given up."""
    lines: list[str] = []
    if status.retrying:
        wait = _duration(status.next_retry_s or 0.0)
        lines.append(f"  Retrying: {_count(status.retrying, 'item')}, next in {wait}")
    if status.given_up:
        again = "List them: `ralph workers status`. Try again: `ralph conversations retry`"
        lines.append(f"  Given up: {_count(status.given_up, 'item')}. {again}")
    return lines


def _count(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else word + 's'}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return _count(whole, "second") if whole < 120 else _count(whole // 60, "minute")
