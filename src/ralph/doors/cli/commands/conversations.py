"""`ralph conversations`: what was said in this project, listed and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.answers import SHORT_ID, error_text, styled
from ralph.doors.cli.opening import as_json, opened
from ralph.doors.cli.page import Page, excerpt, print_json
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.kinds.conversation import Conversation, Exchange


@click.group(cls=Group)
def conversations() -> None:
    """Look at past conversations.

    They are kept in Ralph's home, apart for each project. `ralph search --conversations` searches
    them, `ralph forget` takes them out.
    """


@conversations.command("list")
@click.option("--limit", type=click.IntRange(1), metavar="N", default=20, help="At most so many.")
@click.option("--everywhere", is_flag=True, help="Of all projects.")
@as_json
def list_(limit: int, everywhere: bool, as_json: bool) -> None:
    """List conversations, newest first."""
    with opened() as ralph:
        listed = ralph.conversations.list(limit, everywhere=everywhere)
    if as_json:
        print_json(
            [
                _conversation_json(one.conversation)
                | {"exchanges": one.exchanges, "last": one.last}
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
                    excerpt(one.conversation.title, 80),
                ]
                for one in listed
            ],
        )
    else:
        Page().line("No conversation is kept here yet. `ralph hooks install` keeps them.")


@conversations.command()
@click.argument("wanted", metavar="ID")
@click.option("--everywhere", is_flag=True, help="Of all projects.")
@as_json
def show(wanted: str, everywhere: bool, as_json: bool) -> None:
    """Show a conversation, or one exchange, whole.

    ID may be the beginning of it, from four characters on.
    """
    from ralph.errors import NotFound

    with opened() as ralph:
        memory = ralph.conversations
        try:
            conversation = memory.conversation(wanted, everywhere=everywhere)
            told = memory.exchanges(conversation.id, everywhere=everywhere)
        except NotFound:
            told = [memory.get(wanted, everywhere=everywhere).record]
            conversation = memory.conversation(told[0].conversation, everywhere=everywhere)
    if as_json:
        exchanges = [one.to_json() for one in told]
        print_json(_conversation_json(conversation) | {"exchanges": exchanges})
        return
    page = Page()
    page.line((conversation.title or "(no title)", "bold"))
    page.line((conversation.id, "cyan"), f"  {conversation.source}  {conversation.project}")
    for one in told:
        page.line()
        _show(page, one)


def _show(page: Page, one: Exchange) -> None:
    head = f"{(one.completed or '')[:16].replace('T', ' ')}  {one.id[:SHORT_ID]}"
    page.line((head, "dim"), "  ", styled(one.status))
    for name, text in (("user", one.user), ("assistant", one.assistant)):
        page.line((name, "bold"))
        for line in text.splitlines():
            page.line(line, indent=2)
    for error in one.errors:
        page.line(("error ", "red"), error_text(error))
    for file in one.files_touched:
        page.line((f"{file.action} ", "magenta"), file.path)


def _conversation_json(one: Conversation) -> dict[str, Any]:
    return {
        "id": one.id,
        "title": one.title,
        "source": one.source,
        "project": one.project,
        "created": one.created,
    }
