"""Commands within a chat: the words of the `ralph` command line, after a slash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ralph.chat.embeddings import (
    EmbeddingCounts,
    clear_embeddings,
    count_embeddings,
    embedding_kind,
    price_per_char,
)
from ralph.chat.loop import Chat, Controls
from ralph.chat.summaries import open_backlog
from ralph.chat.worker import Backlog
from ralph.chat.workers import WORKER_NAMES, WorkerName, Workers, WorkerStatus, setting_of
from ralph.config import USER_FILE, Settings, store
from ralph.errors import BadInput, BadSetting, MemoryOff, NotFound
from ralph.kinds.conversation import Exchange
from ralph.memories import pausing
from ralph.memories.details import details
from ralph.memories.ralph import Ralph
from ralph.text.gist import shorten

if TYPE_CHECKING:
    from ralph.chat.loop import LastRetrieval


_SHORT_ID = 8
_EXCERPT_CHARS = 200
_LISTED = 10
_FOUND = 5


class SlashCommand(msgspec.Struct, frozen=True):
    """What is typed, what it does in a few words, and the function that answers in lines."""

    takes: str
    told: str
    does: Callable[[Chat, str], Sequence[str]]


def run_command(chat: Chat, line: str) -> None:
    """Do what a line that begins with a slash says, and show the answer; or an error that helps."""
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f"Did you mean /{near[0]}? " if near else ""
        raise BadInput(
            f"there is no command /{name}",
            todo=f"{hint}/help lists them; a blank before the slash makes it a prompt.",
        )
    lines = command.does(chat, rest.strip())
    if lines:
        chat.screen.lines(lines)


# -- the workers and retrieval


def _summarizer(chat: Chat, rest: str) -> Sequence[str]:
    return _steered(chat, rest, lambda controls, words: controls.summarizer(words))


def _embeddings(chat: Chat, rest: str) -> Sequence[str]:
    ask = chat.screen.confirm
    return _steered(chat, rest, lambda controls, words: controls.embeddings(words, ask))


def _rag(chat: Chat, rest: str) -> Sequence[str]:
    lines = _steered(chat, rest, lambda controls, words: controls.rag(words, chat.looked))
    if rest in ("on", "off"):
        chat.rag = rest == "on"
    elif not rest and not chat.rag:
        lines = [*lines, "", "In this chat nothing is recalled; /rag on changes that."]
    return lines


def _steered(
    chat: Chat, rest: str, does: Callable[[Controls, Sequence[str]], Sequence[str]]
) -> Sequence[str]:
    if chat.controls is None:
        raise BadInput("no workers run behind this chat", todo="End it, and look: ralph doctor")
    words = rest.split()
    lines = does(chat.controls, words)
    if words:  # settings may have changed, or the index
        chat.reopen()
    return lines


# -- past conversations


def _search(chat: Chat, rest: str) -> Sequence[str]:
    memory = chat.memory.conversations
    answer = memory.search(
        rest,
        limit=_FOUND,
        min_score=chat.settings.min_score,
        exclude=chat.session.id,
        everywhere=chat.everywhere,
        budget_s=chat.settings.remember_budget_s,
    )
    for note in answer.notes:
        chat.screen.note(note)
    if not answer:
        return ["Nothing found that is sure enough. Try other words."]
    lines: list[str] = []
    for hit in answer:
        one: Exchange = hit.record
        sure = f"{hit.score or 0.0:.2f} {hit.relevance or 'doubtful'}"
        lines.append(
            f"{hit.id[:_SHORT_ID]}  {sure}  {hit.when}  conversation {one.conversation[:_SHORT_ID]}"
        )
        lines += [f"  you: {_short(one.user)}", f"  answer: {_short(one.assistant)}"]
    return lines


def _conversations(chat: Chat, rest: str) -> Sequence[str]:
    listed = chat.memory.conversations.list(_LISTED, everywhere=chat.everywhere)
    if not listed:
        return ["No conversation is kept here yet."]
    return [
        f"{one.conversation.id[:_SHORT_ID]}  {one.last[:16].replace('T', ' ')}  "
        f"{one.exchanges:>3}  {_short(one.conversation.title) or '(no title)'}"
        + (f"  [{', '.join(one.tags)}]" if one.tags else "")
        + ("  (this one)" if one.conversation.id == chat.session.id else "")
        for one in listed
    ]


def _show(chat: Chat, rest: str) -> Sequence[str]:
    memory = chat.memory.conversations
    try:
        found = details(memory, conversation=rest, everywhere=chat.everywhere)
    except NotFound:
        found = details(memory, exchange=rest, everywhere=chat.everywhere)
    held = found.conversation
    lines = [held.title or "(no title)", f"{held.id}  {(held.created or '')[:10]}  {held.source}"]
    if found.tags:
        lines.append(f"tags: {', '.join(found.tags)}")
    if summary := found.summaries.get(held.id):
        lines.append(f"summary: {summary}")
    for one in found.exchanges:
        lines += ["", f"{(one.completed or '')[:16].replace('T', ' ')}  {one.id[:_SHORT_ID]}"]
        lines += ["you:", *_indented(one.user), "answer:", *_indented(one.assistant)]
        if one.status != "complete":
            lines.append(f"  ({one.status})")
    return lines


# -- this conversation


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
    _need_begun(chat)
    add = [word for word in words if not word.startswith("-")]
    remove = [word[1:] for word in words if word.startswith("-")]
    chat.memory.conversations.tag(chat.session.id, add=add, remove=remove)
    tags = details(chat.memory.conversations, conversation=chat.session.id).tags
    return [f"Tags: {', '.join(tags) or 'none'}"]


def _up(chat: Chat, rest: str) -> Sequence[str]:
    return _rated(chat, rest, 1, "worth finding again")


def _down(chat: Chat, rest: str) -> Sequence[str]:
    return _rated(chat, rest, -1, "not worth finding again")


def _rated(chat: Chat, rest: str, value: Literal[-1, 1], told: str) -> Sequence[str]:
    wanted = rest or chat.session.last_exchange
    if wanted is None:
        _need_begun(chat)
        wanted = ""
    chat.memory.conversations.rate(wanted, value)
    return [f"{wanted[:_SHORT_ID]} is {told}."]


def _private(chat: Chat, rest: str) -> Sequence[str]:
    if not rest:
        raise BadInput("there is nothing to ask", todo="Write: /private TEXT")
    chat.ask(rest, private=True)
    chat.screen.note("not kept: neither the question nor the answer")
    return ()


def _pause(chat: Chat, rest: str) -> Sequence[str]:
    pausing.pause(chat.memory.place.home, conversation=chat.session.id)
    return [
        "Paused: nothing of this conversation is kept, and memory tells nothing. /resume ends it."
    ]


def _resume(chat: Chat, rest: str) -> Sequence[str]:
    place = chat.memory.place
    ended = pausing.resume(place.home, conversation=chat.session.id)
    still = pausing.in_force(place.home, place.project.id, chat.session.id)
    lines = ["Memory goes on." if ended else "This conversation was not paused."]
    if still is not None:
        lines.append(f"But {still}; `ralph resume` ends that.")
    return lines


def _need_begun(chat: Chat) -> None:
    if not chat.session.begun:
        raise BadInput("nothing of this conversation is kept yet", todo="Ask something first.")


# -- the rest


def _help(chat: Chat, rest: str) -> Sequence[str]:
    wide = max(len(f"/{name} {one.takes}") for name, one in COMMANDS.items())
    return [f"{f'/{name} {one.takes}':<{wide}}  {one.told}" for name, one in COMMANDS.items()]


def _quit(chat: Chat, rest: str) -> Sequence[str]:
    chat.over = True
    return ()


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _EXCERPT_CHARS)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


COMMANDS: dict[str, SlashCommand] = {
    "help": SlashCommand("", "List these commands.", _help),
    "search": SlashCommand("QUERY", "Search past conversations.", _search),
    "conversations": SlashCommand("", "List the newest conversations.", _conversations),
    "show": SlashCommand("ID", "Show a conversation or an exchange.", _show),
    "title": SlashCommand("[TITLE]", "Name this conversation.", _title),
    "tag": SlashCommand("WORD...", "Put words on this conversation; -WORD takes one off.", _tag),
    "up": SlashCommand("[EXCHANGE]", "The last answer, or this exchange, is worth finding.", _up),
    "down": SlashCommand("[EXCHANGE]", "It is not.", _down),
    "private": SlashCommand("TEXT", "Ask without anything being kept.", _private),
    "pause": SlashCommand("", "Keep nothing and recall nothing from now on.", _pause),
    "resume": SlashCommand("", "Keep and recall again.", _resume),
    "rag": SlashCommand("[on|off|config|set KEY VALUE]", "Recall before every answer.", _rag),
    "summarizer": SlashCommand(
        "[conversation|exchange] [on|off]", "The workers that summarise.", _summarizer
    ),
    "embeddings": SlashCommand(
        "[on|off|rebuild [conversations|exchanges]]", "The worker that indexes.", _embeddings
    ),
    "quit": SlashCommand("", "End the chat.", _quit),
}


# -- How counts, costs and settings are worded in what the commands answer.


# Which kinds of embeddings a rebuild takes, by what it is asked for.
PARTS: dict[str, frozenset[str]] = {
    "": frozenset({"conversations", "summaries", "exchanges", "documents"}),
    "conversations": frozenset({"conversations"}),
    "exchanges": frozenset({"summaries", "exchanges"}),
}
_KINDS = {
    "conversations": "Conversation summaries",
    "summaries": "Exchange summaries",
    "exchanges": "Exchanges",
    "documents": "Sections of documents",
}


def by_kind(counts: EmbeddingCounts, indent: str) -> list[str]:
    """A line for each kind; those that there are none of and nobody asks for are left out."""
    always = ("conversations", "summaries")
    found = {kind: getattr(counts, kind) for kind in _KINDS}
    return [
        f"{indent}{_KINDS[kind]}: {count:,}"
        for kind, count in found.items()
        if count or kind in always
    ]


def rebuild_question(
    part: str, counts: EmbeddingCounts, memory: Backlog, chosen: Sequence[Any]
) -> str:
    """What a rebuild will delete, make and cost, and how to agree to it."""
    kinds = PARTS[part]
    existing = sum(getattr(counts, kind) for kind in kinds)
    wanted = [embedding_kind(one) for one in chosen]
    what = {"": "ALL", "conversations": "all conversation", "exchanges": "all exchange"}[part]
    lines = [
        f"WARNING: This will delete and recreate {what} embeddings.",
        "This operation will:",
        f"  - Delete {existing:,} existing embeddings",
        *(
            f"  - Re-embed {wanted.count(kind):,} {_KINDS[kind].lower()}"
            for kind in _KINDS
            if kind in kinds and (wanted.count(kind) or kind != "documents")
        ),
        f"  - Cost {_cost(memory, chosen)}",
        "",
        "Type 'yes' to confirm: ",
    ]
    return "\n".join(lines)


def _cost(memory: Backlog, chosen: Sequence[Any]) -> str:
    settings = memory.shelf.settings
    price = price_per_char(settings)
    if price == 0.0:
        return f"nothing (the embedder {settings.embedder} asks no money)"
    if price is None:
        return f"an unknown amount ({settings.openai_model} at {settings.openai_base_url})"
    cut = memory.target().cut
    chars = sum(len(passage.embed) for record in chosen for passage in cut(record))
    return f"approximately ${chars * price:.2f} (OpenAI API)"


def effect(key: str, value: Any) -> str:
    """What a setting of retrieval does from now on."""
    match key:
        case "rag_conversation_limit":
            return f"RAG will now retrieve up to {some(value, 'related conversation')} per query."
        case "rag_exchange_limit_per_conversation":
            return f"RAG will now show up to {some(value, 'exchange')} of each conversation."
        case "rag_min_similarity":
            return f"RAG will now retrieve what is at least {value:.2f} similar."
        case "rag_recency_half_life_days":
            if not value:
                return "RAG will no longer prefer what is new."
            return f"RAG will now count what is {value:g} days old half as much."
    return f"RAG is {'enabled' if value else 'disabled'} now."


def written(key: str, value: Any) -> str:
    """A setting's value as the commands write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.2f}" if key == "rag_min_similarity" else f"{value:g}"


def some_items(count: int) -> str:
    """`1 item`, `2 items`."""
    return some(count, "item")


def some(count: int, word: str) -> str:
    """`1 exchange`, `1,247 exchanges`."""
    return f"{count:,} {word if count == 1 else word + 's'}"


def seconds(number: float) -> str:
    """How long, in words."""
    whole = round(number)
    if whole < 120:
        return some(whole, "second")
    return some(whole // 60, "minute")


# -- The commands that steer workers and retrieval, the same in the chat and on the command line.
#
# Each answers in lines. What is switched on or off stays so: it is written to the user's settings.


_TITLES: dict[WorkerName, str] = {
    "conversation": "Conversation Summarizer",
    "exchange": "Exchange Summarizer",
    "embedding": "Embedding Pipeline",
}
_ITEMS: dict[WorkerName, str] = {
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


class WorkerCommands:
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
        names: list[WorkerName] = ["conversation", "exchange"]
        rest = list(words)
        alone = [name for name in names if rest[:1] == [name]]
        if alone:
            names, rest = alone, rest[1:]
        match rest:
            case []:
                return self._summarizers(names, alone=bool(alone))
            case ["on"]:
                # Summaries are found by their embeddings, so both together need the pipeline.
                return self._switch(names if alone else list(WORKER_NAMES), on=True)
            case ["off"]:
                return self._switch(names, on=False)
        raise self._usage("summarizer [conversation|exchange] [on|off]")

    def _summarizers(self, names: Sequence[WorkerName], *, alone: bool) -> list[str]:
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
            counts = count_embeddings(memory)
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
            counts = count_embeddings(memory)
            chosen = [
                one for one in memory.history.records.values() if embedding_kind(one) in kinds
            ]
            question = rebuild_question(part, counts, memory, chosen)
            if confirm(question).strip().lower() != _YES:
                return ["That was not yes: nothing was deleted."]
            clear_embeddings(memory, None if not part else [one.id for one in chosen])
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

    def rag(self, words: Sequence[str], looked: LastRetrieval | None = None) -> list[str]:
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

    def _rag(self, looked: LastRetrieval | None) -> list[str]:
        with self._backlog() as memory:
            counts, settings = count_embeddings(memory), memory.shelf.settings
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

    def _switch(self, names: Sequence[WorkerName], *, on: bool) -> list[str]:
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


def _switch_of(name: WorkerName) -> str:
    return "embeddings" if name == "embedding" else f"summarizer {name}"
