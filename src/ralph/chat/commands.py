"""Commands within a chat: the words of the `ralph` command line, after a slash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Literal

import msgspec

from ralph.chat.loop import Chat
from ralph.chat.worker_commands import WorkerCommands
from ralph.errors import BadInput, NotFound
from ralph.memory import pausing
from ralph.memory.conversations import details
from ralph.text.tokens import shorten

_SHORT_ID = 8
_EXCERPT_CHARS = 200
_LISTED = 10
_FOUND = 5


class SlashCommand(msgspec.Struct, frozen=True):
    """The arguments of a command, what it does, and the function that answers in lines."""

    arguments: str
    help: str
    run: Callable[[Chat, str], Sequence[str]]


def run_command(chat: Chat, line: str) -> None:
    """Run a line that starts with a slash, and show its answer."""
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = get_close_matches(name.lower(), COMMANDS, n=1)
        hint = f"Did you mean /{near[0]}? " if near else ""
        raise BadInput(
            f"there is no command /{name}",
            todo=f"{hint}/help lists them; a space before the slash makes it a prompt.",
        )
    lines = command.run(chat, rest.strip())
    if lines:
        chat.screen.lines(lines)


def _summarizer(chat: Chat, rest: str) -> Sequence[str]:
    return _changing(chat, rest, _workers(chat).summarizer(rest.split()))


def _embeddings(chat: Chat, rest: str) -> Sequence[str]:
    return _changing(chat, rest, _workers(chat).embeddings(rest.split(), chat.screen.confirm))


def _rag(chat: Chat, rest: str) -> Sequence[str]:
    lines = _changing(chat, rest, _workers(chat).rag(rest.split(), chat.last_retrieval))
    if rest in ("on", "off"):
        chat.rag = rest == "on"
    elif not rest and not chat.rag:
        lines = [*lines, "", "In this chat nothing is recalled. To change that: /rag on"]
    return lines


def _workers(chat: Chat) -> WorkerCommands:
    if chat.workers is None:
        raise BadInput("no workers run behind this chat", todo="Quit, and run: ralph doctor")
    return chat.workers


def _changing(chat: Chat, rest: str, lines: Sequence[str]) -> Sequence[str]:
    if rest:  # settings may have changed, or the index
        chat.reopen()
    return lines


def _search(chat: Chat, rest: str) -> Sequence[str]:
    answer = chat.memory.conversations.search(
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
    listed = chat.memory.conversations.list(_LISTED, everywhere=chat.everywhere)
    return [
        f"{each.conversation.id[:_SHORT_ID]}  {each.last[:16].replace('T', ' ')}  "
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
        lines.append(f"summary: {summary}")
    for each in found.exchanges:
        lines += ["", f"{(each.completed or '')[:16].replace('T', ' ')}  {each.id[:_SHORT_ID]}"]
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


def _rate(value: Literal[-1, 1], verdict: str) -> Callable[[Chat, str], Sequence[str]]:
    def rate(chat: Chat, rest: str) -> Sequence[str]:
        exchange = rest or _saved(chat, chat.session.last_exchange or "")
        chat.memory.conversations.rate(exchange, value)
        return [f"{exchange[:_SHORT_ID]} is {verdict}."]

    return rate


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
    pausing.pause(chat.memory.place.home, conversation=chat.session.id)
    return ["Paused: nothing of this conversation is saved or recalled until /resume."]


def _resume(chat: Chat, rest: str) -> Sequence[str]:
    place = chat.memory.place
    ended = pausing.resume(place.home, conversation=chat.session.id)
    still = pausing.in_force(place.home, place.project.id, chat.session.id)
    lines = ["Memory is on again." if ended else "This conversation was not paused."]
    return lines if still is None else [*lines, f"But {still}. To end that: `ralph resume`"]


def _help(chat: Chat, rest: str) -> Sequence[str]:
    usages = {f"/{name} {command.arguments}": command.help for name, command in COMMANDS.items()}
    width = max(map(len, usages))
    return [f"{usage:<{width}}  {text}" for usage, text in usages.items()]


def _quit(chat: Chat, rest: str) -> Sequence[str]:
    chat.over = True
    return ()


def _excerpt(text: str) -> str:
    return shorten(" ".join(text.split()), _EXCERPT_CHARS)


COMMANDS: dict[str, SlashCommand] = {
    "help": SlashCommand("", "List these commands.", _help),
    "search": SlashCommand("QUERY", "Search past conversations.", _search),
    "conversations": SlashCommand("", "List the newest conversations.", _conversations),
    "show": SlashCommand("ID", "Show a conversation or an exchange.", _show_details),
    "title": SlashCommand("[TITLE]", "Name this conversation.", _title),
    "tag": SlashCommand("WORD...", "Tag this conversation; -WORD removes a tag.", _tag),
    "up": SlashCommand(
        "[EXCHANGE]", "Rate the last answer, or this exchange, up.", _rate(1, "rated up")
    ),
    "down": SlashCommand("[EXCHANGE]", "Rate it down.", _rate(-1, "rated down")),
    "private": SlashCommand("TEXT", "Ask something that is not saved.", _private),
    "pause": SlashCommand("", "Stop saving and recalling.", _pause),
    "resume": SlashCommand("", "Save and recall again.", _resume),
    "rag": SlashCommand("[on|off|config|set KEY VALUE]", "Show or change what is recalled.", _rag),
    "summarizer": SlashCommand(
        "[conversation|exchange] [on|off]", "Show or switch the summarizers.", _summarizer
    ),
    "embeddings": SlashCommand(
        "[on|off|rebuild [conversations|exchanges]]",
        "Show, switch or rebuild the embeddings.",
        _embeddings,
    ),
    "quit": SlashCommand("", "End the chat.", _quit),
}
