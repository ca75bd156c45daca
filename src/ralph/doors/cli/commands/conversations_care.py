"""`ralph conversations tag`, `rate`, `add-document`, ...: what is said of conversations later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ralph.doors.cli.cards import SHORT_ID
from ralph.doors.cli.context import as_json, opened, opened_anywhere, start_folder
from ralph.doors.cli.render import Page, count, note, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.documents import Added
    from ralph.memory.ralph import Ralph

_VALUES: dict[str, Literal[-1, 0, 1]] = {"up": 1, "down": -1, "none": 0}
_REFUSED_SHOWN = 20


@click.command(cls=Command)
@click.argument("conversation", metavar="ID")
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option("--remove", is_flag=True, help="Take the words off.")
@as_json
def tag(conversation: str, words: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Put words on a conversation, to find it by.

    `list --tag` and `ralph search --conversations --tag` look for them.
    """
    with opened_anywhere() as ralph:
        memory = ralph.conversations
        memory.tag(conversation, add=() if remove else words, remove=words if remove else ())
        one = memory.conversation(conversation)
        [tags] = [held.tags for held in memory.list() if held.conversation.id == one.id]
    if as_json:
        print_json({"id": one.id, "tags": list(tags)})
    else:
        Page().line((one.id[:SHORT_ID], "cyan"), "  ", ", ".join(tags) or "no tags")


@click.command(cls=Command)
@click.argument("conversation", metavar="ID")
@click.argument("title", nargs=-1, required=True)
@as_json
def rename(conversation: str, title: tuple[str, ...], as_json: bool) -> None:
    """Give a conversation another title."""
    with opened_anywhere() as ralph:
        ralph.conversations.rename(conversation, " ".join(title))
        one = ralph.conversations.conversation(conversation)
    if as_json:
        print_json({"id": one.id, "title": one.title})
    else:
        Page().line((one.id[:SHORT_ID], "cyan"), "  ", one.title)


@click.command(cls=Command)
@click.argument("exchange", metavar="EXCHANGE_ID")
@click.argument("value", type=click.Choice(list(_VALUES)))
@as_json
def rate(exchange: str, value: str, as_json: bool) -> None:
    """Say whether an exchange was worth finding.

    It moves gently up or down in later answers; `none` takes the rating back.
    """
    with opened_anywhere() as ralph:
        identity = ralph.conversations.get(exchange).id
        ralph.conversations.rate(identity, _VALUES[value])
    if as_json:
        print_json({"id": identity, "rating": _VALUES[value]})
    else:
        told = "The rating is taken back" if value == "none" else f"Rated {value}"
        Page().line((identity[:SHORT_ID], "cyan"), f"  {told}.")


@click.command(cls=Command)
@click.argument("exchanges", nargs=-1, required=True, metavar="EXCHANGE_ID...")
@as_json
def private(exchanges: tuple[str, ...], as_json: bool) -> None:
    """Take exchanges out of memory for good.

    The same as `ralph forget`: the iterations that they were go too, and no import brings them
    back. What the client itself keeps of the session is left alone.
    """
    from ralph.memory import keeping

    with opened_anywhere() as ralph:
        memory = ralph.conversations
        ids = list(dict.fromkeys(memory.get(one).id for one in exchanges))
        done = keeping.forget(ralph, keeping.choose(ralph, ids=ids), reason="private")
    if as_json:
        print_json({"private": ids})
    else:
        Page().line(f"Forgot {count(len(ids), 'exchange')}, in journal and index.")
    for one in done.remains:
        note(f"still there: {one}")


@click.command("add-document", cls=Command)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--remove", is_flag=True, help="Take these documents out of memory.")
@click.option("--list", "listing", is_flag=True, help="List the documents that are kept.")
@as_json
def add_document(paths: tuple[Path, ...], remove: bool, listing: bool, as_json: bool) -> int:
    """Let searches find documents of your own beside the conversations.

    Markdown and text, as files or folders, cut by headings; secrets are taken out. Adding again
    brings in what changed. Without PATH all documents that are known are looked at again.
    """
    if (remove and listing) or (listing and paths) or (remove and not paths):
        raise click.UsageError("Give PATHs, --remove with PATHs, or --list alone.")
    with opened() as ralph:  # their names are told from a project's root
        if listing:
            _list(ralph, as_json=as_json)
            return 0
        if remove:
            _remove(ralph, paths, as_json=as_json)
            return 0
        return _add(ralph, paths, as_json=as_json)


def _add(ralph: Ralph, paths: tuple[Path, ...], *, as_json: bool) -> int:
    import msgspec

    from ralph.memory.documents import add_documents

    found = add_documents(ralph.conversations, paths, root=ralph.project.root)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        Page().line(_told(found))
    for name in found.vanished:
        note(f"{name} is gone but still found; to take it out: add-document --remove {name}")
    for one in found.refused[:_REFUSED_SHOWN]:
        note(f"not added: {one}")
    if more := found.refused[_REFUSED_SHOWN:]:
        note(f"and {len(more)} more were not added")
    return 1 if found.refused and not found.files else 0


def _told(found: Added) -> str:
    parts = [f"{found.added} new", f"{found.unchanged} unchanged"]
    parts += [f"{found.taken_out} taken out"] if found.taken_out else []
    parts += [f"{found.forgotten} forgotten before, and left out"] if found.forgotten else []
    return f"{count(found.files, 'document')}; sections: {', '.join(parts)}."


def _remove(ralph: Ralph, paths: tuple[Path, ...], *, as_json: bool) -> None:
    from ralph.memory.documents import remove_documents

    gone = remove_documents(ralph.conversations, paths, root=ralph.project.root)
    if as_json:
        print_json({"removed": gone})
    else:
        Page().line(f"Took {count(len(gone), 'document')} out of memory: {', '.join(gone)}")


def _list(ralph: Ralph, *, as_json: bool) -> None:
    import msgspec

    from ralph.memory.documents import list_documents

    found = list_documents(ralph.conversations)
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif found:
        Page().table(
            ["path", "sections", "added", "title"],
            [[one.path, str(one.sections), one.added[:10], one.title] for one in found],
        )
    else:
        Page().line("No document is kept here. Add some: ralph conversations add-document PATH")


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@as_json
def prune(dry_run: bool, as_json: bool) -> None:
    """Forget what was said longer ago than `conversations_keep_days`, in all projects."""
    import msgspec

    from ralph.memory import conversation_stream

    with opened_anywhere() as ralph:
        found = conversation_stream.prune(ralph.conversations, dry_run=dry_run)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"dry_run": dry_run})
        return
    what = f"{count(found.exchanges, 'exchange')} from before {found.before[:10]}"
    empty = count(found.conversations, "conversation")
    Page().line(f"{'Would forget' if dry_run else 'Forgot'} {what}, and {empty} left empty.")


@click.command(cls=Command)
@as_json
def retry(as_json: bool) -> None:
    """Let the workers try again what they gave up."""
    from ralph.chat import open_memory
    from ralph.chat.workers import Workers

    with opened_anywhere():
        start = start_folder()
    workers = Workers(lambda: open_memory(start, waits=True))
    given_up = workers.given_up()
    again = workers.retry()
    if as_json:
        print_json({"retried": again})
        return
    page = Page()
    page.line(f"{count(again, 'item')} will be tried again by `ralph workers run` or the chat.")
    for one in given_up[:_REFUSED_SHOWN]:
        page.line(str(one), indent=2)
