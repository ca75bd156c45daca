"""The slash commands of the chat. Each returns lines of text, as the command line shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ralph.chat.commands import EMBEDDINGS, RAG, SUMMARIZER
from ralph.chat.loop import Chat
from ralph.doors.cli.cards import SHORT_ID, show_hit
from ralph.doors.cli.commands.recall import conversation_table, opened
from ralph.doors.cli.render import Cards, TextView, page_text
from ralph.errors import BadInput, suggestion
from ralph.memory import pausing
from ralph.memory.conversations import details
from ralph.recall import CONVERSATIONS_ALONE


def run_command(chat: Chat, line: str) -> None:
    """Run a line that starts with a slash, and show its answer."""
    name, _, rest = line[1:].strip().partition(" ")
    if name.lower() not in COMMANDS:
        hint = suggestion(name.lower(), COMMANDS, "/{}")
        todo = f"{hint}/help lists them; a space before the slash makes it a prompt."
        raise BadInput(f"there is no command /{name}", todo=todo)
    if lines := COMMANDS[name.lower()][2](chat, rest.strip()):
        chat.screen.lines(lines)


def _workers(name: str, chat: Chat, rest: str) -> Sequence[str]:
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
    memory = chat.memory.conversations
    floor = chat.settings.min_score
    options: dict[str, Any] = {"exclude": chat.session.id, "everywhere": chat.everywhere}
    options["budget_s"] = chat.settings.remember_budget_s
    answer = memory.search(rest, limit=5, min_score=floor, **options)
    for note in answer.notes:
        chat.screen.note(note)
    return _lines(Cards(answer, show_hit, f"No results above {floor:.2f}. Try different words."))


def _conversations(chat: Chat, rest: str) -> Sequence[str]:
    listed = chat.memory.conversations.list(10, everywhere=chat.everywhere)
    return _lines(conversation_table(listed, current=chat.session.id))


def _show(chat: Chat, rest: str) -> Sequence[str]:
    hit = chat.memory.get(rest, everywhere=chat.everywhere, scope=CONVERSATIONS_ALONE)
    return _lines(opened(chat.memory, hit).view)


def _lines(view: TextView) -> Sequence[str]:
    return page_text(view).splitlines()


def _title(chat: Chat, rest: str) -> Sequence[str]:
    if not rest:
        return [chat.session.title or "(no title yet)"]
    if chat.session.begun:
        chat.memory.conversations.rename(chat.session.id, rest)
    chat.session.title = rest
    return [f"Title: {rest}"]


def _tag(chat: Chat, rest: str) -> Sequence[str]:
    if not (words := rest.split()):
        raise BadInput("a tag needs a word", todo="For example: /tag auth (and /tag -auth).")
    memory = chat.memory.conversations
    conversation = _saved(chat, chat.session.id)
    add = [word for word in words if not word.startswith("-")]
    memory.tag(conversation, add=add, remove=[word[1:] for word in words if word.startswith("-")])
    return [f"Tags: {', '.join(details(memory, conversation=conversation).tags) or 'none'}"]


def _rate(value: Literal[-1, 1], chat: Chat, rest: str) -> Sequence[str]:
    exchange = rest or _saved(chat, chat.session.last_exchange or "")
    chat.memory.conversations.rate(exchange, value)
    return [f"{exchange[:SHORT_ID]} is rated {'up' if value > 0 else 'down'}."]


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


# Each command: its arguments, what it does, and the function that returns its lines.
COMMANDS: dict[str, tuple[str, str, Callable[[Chat, str], Sequence[str]]]] = {
    "help": ("", "List these commands.", _help),
    "search": ("QUERY", "Search past conversations.", _search),
    "conversations": ("", "List the newest conversations.", _conversations),
    "show": ("ID", "Show a conversation or an exchange.", _show),
    "title": ("[TITLE]", "Name this conversation.", _title),
    "tag": ("WORD...", "Tag this conversation; -WORD removes a tag.", _tag),
    "up": ("[EXCHANGE]", "Rate the last answer, or this exchange, up.", partial(_rate, 1)),
    "down": ("[EXCHANGE]", "Rate it down.", partial(_rate, -1)),
    "private": ("TEXT", "Ask something that is not saved.", _private),
    "pause": ("", "Stop saving and recalling.", _pause),
    "resume": ("", "Save and recall again.", _resume),
    "rag": (RAG, "Show or change what is recalled.", partial(_workers, "rag")),
    "summarizer": (SUMMARIZER, "Show or switch the summarizers.", partial(_workers, "summarizer")),
    "embeddings": (EMBEDDINGS, "Show or rebuild the embeddings.", partial(_workers, "embeddings")),
    "quit": ("", "End the chat.", _quit),
}
