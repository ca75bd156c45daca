"""Commands of the chat, after a slash; those about workers and retrieval also as `ralph ...`.

Each answers in lines. A switch is saved to the user's settings, so it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal

from ralph.chat import embeddings
from ralph.chat.loop import Chat, LastRetrieval
from ralph.chat.workers import (
    EMBEDDING,
    SUMMARIZERS,
    WORKER_NAMES,
    OpenMemory,
    WorkerName,
    Workers,
    WorkerStatus,
    setting_of,
)
from ralph.config import KEYS, USER_FILE, Settings, store
from ralph.errors import BadInput, BadSetting, MemoryOff, NotFound
from ralph.memory import pausing
from ralph.memory.conversations import Conversations, details
from ralph.records import Record
from ralph.text.tokens import shorten

_SHORT_ID = 8
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
# What a rebuild is called, and the kinds of embeddings it deletes.
_PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("ALL", tuple(_KINDS)),
    "conversations": ("all conversation", ("conversations",)),
    "exchanges": ("all exchange", ("summaries", "exchanges")),
}


# -- commands of the chat


def run_command(chat: Chat, line: str) -> None:
    """Run a line that starts with a slash, and show its answer."""
    name, _, rest = line[1:].strip().partition(" ")
    if name.lower() not in COMMANDS:
        near = get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f"Did you mean /{near[0]}? " if near else ""
        todo = f"{hint}/help lists them; a space before the slash makes it a prompt."
        raise BadInput(f"there is no command /{name}", todo=todo)
    if lines := COMMANDS[name.lower()][2](chat, rest.strip()):
        chat.screen.lines(lines)


def _about_workers(name: str, chat: Chat, rest: str) -> Sequence[str]:
    if chat.workers is None:
        raise BadInput("no workers run behind this chat", todo="Quit, and run: ralph doctor")
    more: dict[str, Any] = {"rag": chat.last_retrieval, "embeddings": chat.screen.confirm}
    given = [more[name]] if name in more else []
    lines: list[str] = getattr(chat.workers, name)(rest.split(), *given)
    if rest:  # settings may have changed, or the index
        chat.reopen()
    if name == "rag" and rest in ("on", "off"):
        chat.rag = rest == "on"
    elif name == "rag" and not rest and not chat.rag:
        lines += ["", "In this chat nothing is recalled. To change that: /rag on"]
    return lines


def _search(chat: Chat, rest: str) -> Sequence[str]:
    answer = chat.memory.conversations.search(
        rest,
        limit=5,
        min_score=chat.settings.min_score,
        exclude=chat.session.id,
        everywhere=chat.everywhere,
        budget_s=chat.settings.remember_budget_s,
    )
    for note in answer.notes:
        chat.screen.note(note)
    if not answer:
        return [f"No results above {chat.settings.min_score:.2f}. Try different words."]
    lines: list[str] = []
    for hit in answer:
        score = f"{hit.score or 0.0:.2f} {hit.relevance or 'doubtful'}"
        home = f"conversation {hit.record.conversation[:_SHORT_ID]}"
        lines.append(f"{hit.id[:_SHORT_ID]}  {score}  {hit.when}  {home}")
        lines.append(f"  you: {_excerpt(hit.record.user)}")
        lines.append(f"  answer: {_excerpt(hit.record.assistant)}")
    return lines


def _conversations(chat: Chat, rest: str) -> Sequence[str]:
    listed = chat.memory.conversations.list(10, everywhere=chat.everywhere)
    return [
        f"{each.conversation.id[:_SHORT_ID]}  {_minute(each.last)}  "
        f"{each.exchanges:>3}  {_excerpt(each.conversation.title) or '(no title)'}"
        + (f"  [{', '.join(each.tags)}]" if each.tags else "")
        + ("  (this one)" if each.conversation.id == chat.session.id else "")
        for each in listed
    ] or ["No conversations here yet."]


def _show_details(chat: Chat, rest: str) -> Sequence[str]:
    memory = chat.memory.conversations
    try:
        found = details(memory, conversation=rest, everywhere=chat.everywhere)
    except NotFound:
        found = details(memory, exchange=rest, everywhere=chat.everywhere)
    talk = found.conversation
    lines = [talk.title or "(no title)", f"{talk.id}  {(talk.created or '')[:10]}  {talk.source}"]
    if found.tags:
        lines.append(f"tags: {', '.join(found.tags)}")
    if summary := found.summaries.get(talk.id):
        lines.append(f"summary: {summary.text}")
    for each in found.exchanges:
        lines += ["", f"{_minute(each.completed or '')}  {each.id[:_SHORT_ID]}"]
        for side, text in (("you:", each.user), ("answer:", each.assistant)):
            lines += [side, *(f"  {line}" for line in text.splitlines())]
        if each.status != "complete":
            lines.append(f"  ({each.status})")
    return lines


def _title(chat: Chat, rest: str) -> Sequence[str]:
    if not rest:
        return [chat.session.title or "(no title yet)"]
    if chat.session.begun:
        chat.memory.conversations.rename(chat.session.id, rest)
    chat.session.title = rest
    return [f"Title: {rest}"]


def _tag(chat: Chat, rest: str) -> Sequence[str]:
    words = rest.split()
    if not words:
        raise BadInput("a tag needs a word", todo="For example: /tag auth (and /tag -auth).")
    memory, conversation = chat.memory.conversations, _saved(chat, chat.session.id)
    add = [word for word in words if not word.startswith("-")]
    remove = [word[1:] for word in words if word.startswith("-")]
    memory.tag(conversation, add=add, remove=remove)
    return [f"Tags: {', '.join(details(memory, conversation=conversation).tags) or 'none'}"]


def _rate(value: Literal[-1, 1], chat: Chat, rest: str) -> Sequence[str]:
    exchange = rest or _saved(chat, chat.session.last_exchange or "")
    chat.memory.conversations.rate(exchange, value)
    return [f"{exchange[:_SHORT_ID]} is rated {'up' if value > 0 else 'down'}."]


def _saved(chat: Chat, identity: str) -> str:
    if not chat.session.begun:
        raise BadInput("nothing of this conversation is saved yet", todo="Ask something first.")
    return identity


def _private(chat: Chat, rest: str) -> Sequence[str]:
    if not rest:
        raise BadInput("there is nothing to ask", todo="Usage: /private TEXT")
    chat.ask(rest, private=True)
    chat.screen.note("not saved: neither the question nor the answer")
    return ()


def _pause(chat: Chat, rest: str) -> Sequence[str]:
    pausing.pause(chat.memory.store.home, conversation=chat.session.id)
    return ["Paused: nothing of this conversation is saved or recalled until /resume."]


def _resume(chat: Chat, rest: str) -> Sequence[str]:
    place = chat.memory.store
    ended = pausing.resume(place.home, conversation=chat.session.id)
    still = pausing.in_force(place.home, place.project, chat.session.id)
    lines = ["Memory is on again." if ended else "This conversation was not paused."]
    return lines if still is None else [*lines, f"But {still}. To end that: `ralph resume`"]


def _help(chat: Chat, rest: str) -> Sequence[str]:
    usages = {f"/{name} {words}": text for name, (words, text, _) in COMMANDS.items()}
    width = max(map(len, usages))
    return [f"{usage:<{width}}  {text}" for usage, text in usages.items()]


def _quit(chat: Chat, rest: str) -> Sequence[str]:
    chat.over = True
    return ()


def _excerpt(text: str) -> str:
    return shorten(" ".join(text.split()), 200)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


_SUMMARIZER = "[conversation|exchange] [on|off]"
_EMBEDDINGS = "[on|off|rebuild [conversations|exchanges]]"
_RAG = "[on|off|config|set KEY VALUE]"
# Each command: its arguments, what it does, and the function that answers in lines.
COMMANDS: dict[str, tuple[str, str, Callable[[Chat, str], Sequence[str]]]] = {
    "help": ("", "List these commands.", _help),
    "search": ("QUERY", "Search past conversations.", _search),
    "conversations": ("", "List the newest conversations.", _conversations),
    "show": ("ID", "Show a conversation or an exchange.", _show_details),
    "title": ("[TITLE]", "Name this conversation.", _title),
    "tag": ("WORD...", "Tag this conversation; -WORD removes a tag.", _tag),
    "up": ("[EXCHANGE]", "Rate the last answer, or this exchange, up.", partial(_rate, 1)),
    "down": ("[EXCHANGE]", "Rate it down.", partial(_rate, -1)),
    "private": ("TEXT", "Ask something that is not saved.", _private),
    "pause": ("", "Stop saving and recalling.", _pause),
    "resume": ("", "Save and recall again.", _resume),
    "rag": (_RAG, "Show or change what is recalled.", partial(_about_workers, "rag")),
    "summarizer": (
        _SUMMARIZER,
        "Show or switch the summarizers.",
        partial(_about_workers, "summarizer"),
    ),
    "embeddings": (
        _EMBEDDINGS,
        "Show, switch or rebuild the embeddings.",
        partial(_about_workers, "embeddings"),
    ),
    "quit": ("", "End the chat.", _quit),
}


# -- commands about workers and retrieval


class WorkerCommands:
    """Answers commands about one project's workers, in lines."""

    def __init__(
        self, workers: Workers, open_memory: OpenMemory, *, prefix: str = "/", in_chat: bool = True
    ) -> None:
        """`prefix` goes before a command's name; `in_chat`: the workers run in this process."""
        self._workers, self._open = workers, open_memory
        self._prefix, self._in_chat = prefix, in_chat

    def signal(self) -> None:
        """There is something new for the workers."""
        self._workers.signal()

    def summarizer(self, words: Sequence[str]) -> list[str]:
        """`summarizer [conversation|exchange] [on|off]`"""
        alone = [name for name in SUMMARIZERS if name in words[:1]]
        names = alone or SUMMARIZERS
        rest = list(words[len(alone) :])
        if rest in (["on"], ["off"]):
            # Summaries are found by their embeddings, so both together need the pipeline.
            on = rest == ["on"]
            return self._switch(WORKER_NAMES if on and not alone else names, on=on)
        if rest:
            raise self._usage(f"summarizer {_SUMMARIZER}")
        statuses = {status.name: status for status in self._workers.statuses()}
        shown = [statuses[name] for name in names]
        lines = [[*self._status_lines(status), *_failure_lines(status)] for status in shown]
        if not alone:
            pipeline = statuses[EMBEDDING].state.upper()
            more = f"Embedding Pipeline: {pipeline} (see {self._prefix}embeddings for details)"
            return [line for part in lines for line in (*part, "")] + [more]
        [status] = shown
        left = status.total - status.completed or status.retrying or status.given_up
        idle = ["", f"All {status.name}s are summarized. Worker is idle."]
        return lines[0] + (idle if status.state == "idle" and not left else [])

    def _status_lines(
        self, status: WorkerStatus, kinds: Sequence[str] = (), estimated: str = ""
    ) -> list[str]:
        """What a worker does; `kinds` are the lines of the pipeline about its embeddings."""
        running, stopped = status.state == "running", status.state == "stopped"
        embeds = status.name == EMBEDDING
        items = "embeddings" if embeds else f"{status.name}s"
        left = not embeds and not running and status.total - status.completed
        current = f"Current: {status.current}"
        if embeds:
            current = f"Current batch: {status.current.removeprefix('batch of ')} items"
        note = status.note
        if not note and stopped:
            name = "embeddings" if embeds else f"summarizer {status.name}"
            note = f"off. To switch it on: {self._prefix}{name} on"
            if getattr(self._settings(), setting_of(status.name)):
                note = "on, but not running. Start it with `ralph workers run` or `ralph chat`"
        lines = {
            f"{_TITLES[status.name]}: {status.state.upper()}": True,
            "  State: Processing batch": embeds and running,
            f"  Total processed this session: {status.completed:,}": not embeds
            and status.state == "idle",
            f"  Progress: {status.completed:,}/{status.total:,} {items}": running,
            f"  Completed: {status.completed:,}, Failed: {status.failed:,}": not stopped,
            f"  To do: {_count(left, status.name)}": left,
            f"  {current}": status.current and running,
            **dict.fromkeys(kinds, True),
            f"  Spend: ${status.spend_usd:.2f}{estimated}": not stopped,
            f"  Note: {note}": note,
        }
        return [line for line, applies in lines.items() if applies]

    def embeddings(self, words: Sequence[str], confirm: Callable[[str], str]) -> list[str]:
        """`embeddings [on|off|rebuild [conversations|exchanges]]`; `confirm` asks a person."""
        match list(words):
            case []:
                return self._embeddings()
            case ["on" | "off" as state]:
                return self._switch(["embedding"], on=state == "on")
            case ["rebuild"]:
                return self._rebuild("", confirm)
            case ["rebuild", ("conversations" | "exchanges") as part]:
                return self._rebuild(part, confirm)
        raise self._usage(f"embeddings {_EMBEDDINGS}")

    def _embeddings(self) -> list[str]:
        status = self._pipeline()
        with self._open() as ralph:
            counts = embeddings.count_embeddings(ralph.conversations)
            settings = ralph.config.settings
        kinds = [f"  Total embeddings: {counts.total:,}", *_by_kind(counts, "    - ")]
        estimated = "" if embeddings.price_per_char(settings) == 0.0 else " (estimated)"
        lines = self._status_lines(status, kinds, estimated)
        warnings = _failure_lines(status)
        if counts.waiting and status.state == "stopped":
            items = f"{_count(counts.waiting, 'item')} {'is' if counts.waiting == 1 else 'are'}"
            state = "not running" if settings.embedding_pipeline_enabled else "OFF"
            warnings.append(f"Warning: {items} awaiting embeddings (pipeline is {state})")
        return [*lines, "", *warnings] if warnings else lines

    def _rebuild(self, part: str, confirm: Callable[[str], str]) -> list[str]:
        with self._open() as ralph:
            memory = ralph.conversations
            if memory.store.embedder is None:
                what = "there are no embeddings: the setting embedder is none"
                raise MemoryOff(what, todo="Run: ralph config embedder static")
            memory.store.embedder.check()  # nothing is deleted that cannot be made again
            records, kinds = memory.stream.history.records.values(), _PARTS[part][1]
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
        recreated = f"Recreated: {status.completed:,}/{len(chosen):,} completed."
        return ["", "Embeddings cleared.", recreated, *_failure_lines(status)]

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
                return [
                    "RAG Configuration:",
                    *(f"  {key}: {_show(key, v)}" for key, v in self.rag_settings().items()),
                    "",
                    f"To update: {self._prefix}rag set <key> <value>",
                    f"Example: {self._prefix}rag set rag_conversation_limit 5",
                ]
            case ["set", key, value]:
                return self._rag_set(key, value)
        raise self._usage(f"rag {_RAG}")

    def _rag(self, last: LastRetrieval | None) -> list[str]:
        with self._open() as ralph:
            counts = embeddings.count_embeddings(ralph.conversations)
            settings = ralph.config.settings
        lines = [
            f"RAG Status: {'ENABLED' if settings.rag_enabled else 'DISABLED'}",
            "",
            "Embeddings:",
            *(f"{line} embedded" for line in _by_kind(counts, "  - ")),
            f"  - Total vectors: {counts.total:,}",
            "",
            "Configuration:",
            f"  - Conversation retrieval limit: {settings.rag_conversation_limit}",
            f"  - Exchange limit per conversation: {settings.rag_exchange_limit_per_conversation}",
            f"  - Minimum similarity threshold: {settings.rag_min_similarity:.2f}",
        ]
        if settings.rag_recency_half_life_days:
            lines.append(f"  - Recency half-life: {settings.rag_recency_half_life_days:g} days")
        if last is not None:
            ago = _duration(max(0.0, time.monotonic() - last.at))
            found = _count(last.conversations, "conversation"), _count(last.exchanges, "exchange")
            lines += ["", f"Last retrieval: {ago} ago ({', '.join(found)})"]
        elif self._in_chat:
            lines += ["", "Last retrieval: none yet in this session"]
        return lines

    def rag_settings(self) -> dict[str, Any]:
        """The settings of retrieval, by their names."""
        settings = self._settings()
        return {key: getattr(settings, key) for key in RAG_KEYS}

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


def _failure_lines(status: WorkerStatus) -> list[str]:
    retrying, given_up = _count(status.retrying, "item"), _count(status.given_up, "item")
    wait = _duration(status.next_retry_s or 0.0)
    again = "List them: `ralph workers status`. Try again: `ralph conversations retry`"
    lines = {
        f"Warning: retry queue: {retrying} (next retry in {wait})": status.retrying,
        f"Warning: given up: {given_up}. {again}": status.given_up,
    }
    return [line for line, applies in lines.items() if applies]


def _by_kind(counts: embeddings.EmbeddingCounts, indent: str) -> list[str]:
    """A line for each kind; exchanges and documents only if there are any."""
    found = {kind: getattr(counts, kind) for kind in _KINDS}
    always = ("conversations", "summaries")
    return [f"{indent}{_KINDS[k]}: {n:,}" for k, n in found.items() if n or k in always]


def _rebuild_question(part: str, memory: Conversations, chosen: Sequence[Record]) -> str:
    """What a rebuild deletes, makes and costs, and how to agree to it."""
    what, kinds = _PARTS[part]
    counts = embeddings.count_embeddings(memory)
    existing = sum(getattr(counts, kind) for kind in kinds)
    wanted = [embeddings.embedding_kind(record) for record in chosen]
    shown = [kind for kind in kinds if kind in wanted or kind != "documents"]
    made = [f"{wanted.count(kind):,} {_KINDS[kind].lower()}" for kind in shown]
    settings = memory.store.settings
    price = embeddings.price_per_char(settings)
    if price == 0.0:
        cost = f"nothing (the embedder {settings.embedder} is free)"
    elif price is None:
        cost = f"an unknown amount ({settings.openai_model} at {settings.openai_base_url})"
    else:
        cut = memory.stream.target().cut
        chars = sum(len(passage.embed) for record in chosen for passage in cut(record))
        cost = f"approximately ${chars * price:.2f} (OpenAI API)"
    effects = [f"Delete {existing:,} existing embeddings", *(f"Re-embed {m}" for m in made)]
    lines = [
        f"WARNING: This will delete and recreate {what} embeddings.",
        "This operation will:",
        *(f"  - {effect}" for effect in (*effects, f"Cost {cost}")),
    ]
    return "\n".join([*lines, "", "Type 'yes' to confirm: "])


def _effect(key: str, value: Any) -> str:
    """What a setting of retrieval does from now on."""
    aged = f"will now count what is {value:g} days old half as much"
    effects = {
        "rag_conversation_limit": f"will now retrieve up to {_count(value, 'related conversation')}"
        " per query",
        "rag_exchange_limit_per_conversation": f"will now show up to {_count(value, 'exchange')}"
        " of each conversation",
        "rag_min_similarity": f"will now retrieve what is at least {value:.2f} similar",
        "rag_recency_half_life_days": aged if value else "will no longer prefer what is new",
        "rag_enabled": f"is {'enabled' if value else 'disabled'} now",
    }
    return f"RAG {effects[key]}."


def _show(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.2f}" if key == "rag_min_similarity" else f"{value:g}"


def _count(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else word + 's'}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return _count(whole, "second") if whole < 120 else _count(whole // 60, "minute")
