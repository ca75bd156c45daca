"""Commands within a chat: the words of the `ralph` command line, after a slash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Literal

import msgspec

from ralph.chat.loop import Chat, Controls
from ralph.errors import BadInput, NotFound
from ralph.memory import pausing
from ralph.memory.conversations import details
from ralph.records.conversation import Exchange
from ralph.text.summary import shorten

_SHORT_ID = 8
_EXCERPT_CHARS = 200
_LISTED = 10
_FOUND = 5


class Command(msgspec.Struct, frozen=True):
    """What is typed, what it does in a few words, and the function that answers in lines."""

    takes: str
    told: str
    does: Callable[[Chat, str], Sequence[str]]


def obey(chat: Chat, line: str) -> None:
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


COMMANDS: dict[str, Command] = {
    "help": Command("", "List these commands.", _help),
    "search": Command("QUERY", "Search past conversations.", _search),
    "conversations": Command("", "List the newest conversations.", _conversations),
    "show": Command("ID", "Show a conversation or an exchange.", _show),
    "title": Command("[TITLE]", "Name this conversation.", _title),
    "tag": Command("WORD...", "Put words on this conversation; -WORD takes one off.", _tag),
    "up": Command("[EXCHANGE]", "The last answer, or this exchange, is worth finding.", _up),
    "down": Command("[EXCHANGE]", "It is not.", _down),
    "private": Command("TEXT", "Ask without anything being kept.", _private),
    "pause": Command("", "Keep nothing and recall nothing from now on.", _pause),
    "resume": Command("", "Keep and recall again.", _resume),
    "rag": Command("[on|off|config|set KEY VALUE]", "Recall before every answer.", _rag),
    "summarizer": Command(
        "[conversation|exchange] [on|off]", "The workers that summarise.", _summarizer
    ),
    "embeddings": Command(
        "[on|off|rebuild [conversations|exchanges]]", "The worker that indexes.", _embeddings
    ),
    "quit": Command("", "End the chat.", _quit),
}
