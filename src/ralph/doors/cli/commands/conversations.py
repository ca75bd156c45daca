"""`ralph conversations`: what was said in this project, listed, shown and looked after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import SHORT_ID, error_text, styled
from ralph.doors.cli.commands.conversations_care import (
    add_document,
    private,
    prune,
    rate,
    rename,
    retry,
    tag,
)
from ralph.doors.cli.commands.conversations_import import export, import_
from ralph.doors.cli.context import as_json, opened_anywhere
from ralph.doors.cli.render import Page, excerpt, print_json
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.memory.conversations import Conversations
    from ralph.records.conversation import Conversation, Document, Exchange


@click.group(cls=Group)
def conversations() -> None:
    """Look at past conversations, and look after them.

    They are kept in Ralph's home, apart for each project. `ralph search --conversations` searches
    them, `ralph forget` takes them out, `ralph pause` keeps what follows out.
    """


for _command in (import_, export, tag, rename, rate, private, add_document, prune, retry):
    conversations.add_command(_command)


@conversations.command("list")
@click.option("--limit", type=click.IntRange(1), metavar="N", default=20, help="At most so many.")
@click.option("--tag", "tags", multiple=True, metavar="T", help="Only with this tag; repeatable.")
@click.option("--everywhere", is_flag=True, help="Of all projects.")
@as_json
def list_(limit: int, tags: tuple[str, ...], everywhere: bool, as_json: bool) -> None:
    """List conversations, newest first."""
    with opened_anywhere() as ralph:
        listed = ralph.conversations.list(limit, everywhere=everywhere, tags=tags)
    if as_json:
        print_json(
            [
                _conversation_json(one.conversation)
                | {
                    "exchanges": one.exchanges,
                    "last": one.last,
                    "tags": list(one.tags),
                    "summary": one.summary,
                }
                for one in listed
            ]
        )
    elif listed:
        Page().table(
            ["id", "last", "exchanges", "source", "project", "title"],
            [
                [
                    (one.conversation.id[:SHORT_ID], "cyan"),
                    one.last[:16].replace("T", " "),
                    str(one.exchanges),
                    one.conversation.source,
                    one.conversation.project,
                    " ".join([excerpt(one.conversation.title, 80), *(f"#{t}" for t in one.tags)]),
                ]
                for one in listed
            ],
        )
    elif tags:
        Page().line(f"No conversation here has the tag {' and '.join(tags)}.")
    else:
        Page().line(
            "No conversation is kept here yet. `ralph hooks install` keeps them, "
            "`ralph conversations import` brings in earlier ones."
        )


@conversations.command()
@click.argument("wanted", metavar="ID")
@click.option("--everywhere", is_flag=True, help="Of all projects.")
@as_json
def show(wanted: str, everywhere: bool, as_json: bool) -> None:
    """Show a conversation, one exchange, or a section of a document, whole.

    ID may be the beginning of it, from four characters on.
    """
    from ralph.errors import NotFound

    with opened_anywhere() as ralph:
        memory = ralph.conversations
        try:
            conversation = memory.conversation(wanted, everywhere=everywhere)
            told = memory.exchanges(conversation.id, everywhere=everywhere)
        except NotFound:
            section = _section(memory, wanted, everywhere=everywhere)
            if section is not None:
                _show_section(section, as_json=as_json)
                return
            told = [memory.get(wanted, everywhere=everywhere).record]
            conversation = memory.conversation(told[0].conversation, everywhere=everywhere)
        [tags] = [
            one.tags
            for one in memory.list(everywhere=everywhere)
            if one.conversation.id == conversation.id
        ]
        said = {
            name: summary
            for name in (conversation.id, *(one.id for one in told))
            if (summary := memory.summary(name, everywhere=everywhere))
        }
    if as_json:
        plain = {name: one.text for name, one in said.items()}
        exchanges = [one.to_json() | {"summary": plain.get(one.id, "")} for one in told]
        about = {"tags": list(tags), "summary": plain.get(conversation.id, "")}
        print_json(_conversation_json(conversation) | about | {"exchanges": exchanges})
        return
    page = Page()
    page.line((conversation.title or "(no title)", "bold"))
    page.line((conversation.id, "cyan"), f"  {conversation.source}  {conversation.project}")
    if tags:
        page.line(("tags ", "dim"), ", ".join(tags))
    if whole := said.get(conversation.id):
        page.line((f"summary ({whole.by}) ", "dim"), whole.text)
    for one in told:
        page.line()
        _show(page, one, said[one.id].text if one.id in said else "")


def _show(page: Page, one: Exchange, summary: str) -> None:
    head = f"{(one.completed or '')[:16].replace('T', ' ')}  {one.id[:SHORT_ID]}"
    page.line((head, "dim"), "  ", styled(one.status))
    if summary:
        page.line(("summary ", "dim"), summary)
    for name, text in (("user", one.user), ("assistant", one.assistant)):
        if text:
            page.line((name, "bold"))
        for line in text.splitlines():
            page.line(line, indent=2)
    for error in one.errors:
        page.line(("error ", "red"), error_text(error))
    for file in one.files_touched:
        page.line((f"{file.action} ", "magenta"), file.path)


def _section(memory: Conversations, wanted: str, *, everywhere: bool) -> Document | None:
    from ralph.errors import NotFound

    try:
        section: Document = memory.document(wanted, everywhere=everywhere).record
    except NotFound:
        return None
    return section


def _show_section(one: Document, *, as_json: bool) -> None:
    if as_json:
        print_json(one.to_json())
        return
    page = Page()
    page.line((one.heading or one.title or "(no heading)", "bold"))
    page.line((one.id, "cyan"), f"  {one.path}:{one.line}")
    page.line()
    for line in one.text.splitlines():
        page.line(line, indent=2)


def _conversation_json(one: Conversation) -> dict[str, Any]:
    return {
        "id": one.id,
        "title": one.title,
        "source": one.source,
        "project": one.project,
        "created": one.created,
    }
