"""Conversations: list, read, tag, rename, rate and export them; and the user's own documents."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple

from starlette.responses import Response

from ralph.capture.decisions import is_plain
from ralph.clients.drift import drift_told
from ralph.config import home_folder
from ralph.doors.web.page import SHORT_ID, TEXT_CHARS, PageCall, cut, paged
from ralph.errors import BadInput
from ralph.memory import conversations, documents
from ralph.memory.conversation_stream import ConversationState
from ralph.records.conversation import Exchange
from ralph.text.outcome import outcome_of
from ralph.text.tokens import plural

_TAGS = 30
_EXCHANGES = 20
# A longer answer is folded.
_LONG_ANSWER = 1200
_GIST_CHARS = 300
_REFUSED = 5
_RATINGS: dict[str, Literal[-1, 0, 1]] = {"up": 1, "down": -1, "none": 0}


class ShownExchange(NamedTuple):
    """An exchange as the page shows it; `gist` stands for a long answer until it is opened."""

    exchange: Exchange
    gist: str
    is_plain: bool
    is_cut: bool


# -- the list


def list_conversations(call: PageCall) -> Response:
    """List the conversations, newest first; filter by tag, title or summary."""
    wanted = call.query.get("tag", "")
    text = call.query.get("text", "").strip()
    listed = call.memory.conversations.list(everywhere=call.everywhere)
    counts = Counter(tag for state in listed for tag in state.tags)
    rows, paging = paged([one for one in listed if _fits(one, wanted, text)], call.number)
    return call.page(
        "conversations.html",
        rows=rows,
        paging=paging,
        tags=counts.most_common(_TAGS),
        tag=wanted,
        drift=drift_told(home_folder()),
    )


def _fits(state: ConversationState, tag: str, text: str) -> bool:
    words = text.casefold() in f"{state.conversation.title}\n{state.summary}".casefold()
    return words and (not tag or tag in state.tags)


# -- one conversation


def read(call: PageCall) -> Response:
    """Show a conversation with its exchanges, some on each page."""
    memory = call.memory.conversations
    found = conversations.details(memory, conversation=call.params["id"], everywhere=True)
    rows, paging = paged(list(found.exchanges), call.number, _EXCHANGES)
    whole = bool(call.query.get("all"))
    return call.page(
        "conversation.html",
        talk=found.conversation,
        own=found.conversation.id in memory.states(),
        tags=found.tags,
        summary=found.summaries.get(found.conversation.id, ""),
        summaries=found.summaries,
        ratings=memory.stream.history.ratings,
        exchanges=[_shown(one, whole) for one in rows],
        paging=paging,
        whole=whole,
    )


def _shown(exchange: Exchange, whole: bool) -> ShownExchange:
    user = exchange.user or ""
    assistant = exchange.assistant or ""
    is_long = len(assistant) > _LONG_ANSWER
    return ShownExchange(
        exchange,
        gist=outcome_of(user, assistant) or cut(assistant, _GIST_CHARS) if is_long else "",
        is_plain=is_plain(user),
        is_cut=not whole and max(len(user), len(assistant)) > TEXT_CHARS,
    )


def change(call: PageCall) -> Response:
    """Tag or rename a conversation, or rate one of its exchanges."""
    memory = call.memory.conversations
    form = call.form
    talk = memory.conversation(call.params["id"])
    path = f"/conversations/{talk.id}"
    action = call.params["action"]
    if action == "tag":
        words = form.get("add", "").replace(",", " ").split()
        removed = [word for word in [form.get("remove", "")] if word]
        memory.tag(talk.id, add=words, remove=removed)
        text = f"Removed the tag {removed[0]}." if removed else f"Tagged: {', '.join(words)}."
        return call.done(text, path)
    if action == "title":
        memory.rename(talk.id, form.get("title", ""))
        return call.done("Renamed.", path, undo=lambda: _renamed(call, talk.id, talk.title))
    if action == "rate" and form.get("value") in _RATINGS:
        exchange = memory.get(form.get("exchange", "")).id
        memory.rate(exchange, _RATINGS[form["value"]])
        said = {"up": "Searches rank it higher.", "down": "Searches rank it lower."}
        page = f"?page={form['page']}" if form.get("page", "").isdecimal() else ""
        text = said.get(form["value"], "The rating is removed.")
        return call.done(text, f"{path}{page}#{exchange[:SHORT_ID]}")
    raise BadInput("the page has no such action")


def _renamed(call: PageCall, conversation: str, title: str) -> str:
    call.memory.conversations.rename(conversation, title)
    return "The title is as it was."


def export(call: PageCall) -> Response:
    """Export one conversation, or all, as a file that `ralph conversations import` reads."""
    from ralph.memory.conversation_json import export_conversations, written

    wanted = [one for one in [call.query.get("id", "")] if one]
    talks = export_conversations([call.memory.conversations.stream], conversations=wanted)
    name = f"conversation-{wanted[0][:SHORT_ID]}" if wanted else "conversations"
    safe = "".join(c for c in name if c.isascii() and (c.isalnum() or c == "-"))
    headers = {"content-disposition": f'attachment; filename="{safe}.json"'}
    return Response(written(talks), media_type="application/json", headers=headers)


# -- documents


def list_documents(call: PageCall) -> Response:
    """List the user's own documents, which are searched along with the conversations."""
    rows, paging = paged(documents.list_documents(call.memory.conversations), call.number)
    return call.page("documents.html", rows=rows, paging=paging)


def change_documents(call: PageCall) -> Response:
    """Add files or folders, remove a document, or check all of them for changes."""
    memory = call.memory.conversations
    root = call.site.project.root
    given = call.form.get("path", "").strip()
    paths = [root / Path(given).expanduser()] if given else []
    if call.params["action"] == "remove" and paths:
        gone = documents.remove_documents(memory, paths, root=root)

        def restore() -> str:
            added = documents.add_documents(memory, [root / one for one in gone], root=root)
            return f"Added {plural(added.files, 'document')} again, as they are now."

        return call.done(f"Removed from memory: {', '.join(gone)}.", "/documents", undo=restore)
    if call.params["action"] == "add" and not paths:
        raise BadInput("the path is empty", todo="Name a file or a folder.")
    added = documents.add_documents(memory, paths, root=root)
    if not added.files and added.refused:
        first = added.refused[0]
        raise BadInput(f"{first.path} was not added: {first.why}")
    text = f"Read {plural(added.files, 'document')}: {plural(added.added, 'new section')}."
    for one in added.vanished[:_REFUSED]:
        text += f" {one} is gone, but still searchable until you remove it."
    for each in added.refused[:_REFUSED]:
        text += f" Not added: {each}."
    return call.done(text, "/documents")
