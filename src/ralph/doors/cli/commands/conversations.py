"""`ralph conversations`: list, show and manage this project's conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from ralph.chat import open_memory
from ralph.chat.workers import Workers
from ralph.doors.cli import context
from ralph.doors.cli.cards import pruned_result, short_id
from ralph.doors.cli.commands import recall, transfer
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Result, Table, picked
from ralph.memory import documents, keeping
from ralph.memory.conversations import details
from ralph.memory.conversations import prune as prune_conversations
from ralph.recall import CONVERSATIONS_ALONE
from ralph.text.sanitize import plain_date
from ralph.text.tokens import plural

_VALUES: dict[str, Literal[-1, 0, 1]] = {"up": 1, "down": -1, "none": 0}
_LISTED = 20
_EMPTY = "empty conversation"
_conversation = click.argument("conversation", metavar="ID")


@click.group(cls=Group)
def conversations() -> None:
    """List, show and manage conversations.

    They are stored in Ralph's home, separately for each project. `ralph search --conversations`
    searches them, `ralph forget` deletes them, `ralph pause` stops recording them.
    """


conversations.add_command(transfer.import_conversations)
conversations.add_command(transfer.export_conversations)


# -- list and show


@conversations.command("list")
@context.option(
    "--limit", "List at most N.", "N", type=click.IntRange(1), default=20, show_default=True
)
@context.option("--tag", "With this tag. Repeatable.", "T", "tags", multiple=True)
@context.everywhere_option
def list_conversations(limit: int, tags: tuple[str, ...], everywhere: bool) -> Result:
    """List conversations, newest first.

    \b
    Examples:
      ralph conversations list --limit 5 --tag release
    """
    with context.opened() as ralph:
        found = ralph.conversations.list(everywhere=everywhere, tags=tags)
        empty = f"No conversation here has the tag {' and '.join(tags)}." if tags else ""
        elsewhere = "" if found or everywhere else context.elsewhere(ralph)
        if elsewhere:
            empty = f"{empty or 'No conversations in this folder.'} {elsewhere}"
    listed = found[:limit]
    more = len(found) - limit
    fields = recall.CONVERSATION_FIELDS
    counts = ("exchanges", "last", "tags", "summary")
    value = [picked(each.conversation, *fields) | picked(each, *counts) for each in listed]
    notes = [f"and {more} more; to list them: --limit {len(found)}"] if more > 0 else []
    return Result(value, recall.conversation_table(listed, empty=empty), notes=notes)


@conversations.command()
@click.argument("wanted", metavar="ID")
@context.everywhere_option
def show(wanted: str, everywhere: bool) -> Result:
    """Show a conversation, an exchange, or a section of a document.

    The first four characters of an ID are enough if they are unique.

    \b
    Examples:
      ralph conversations show 3f9a1c20
    """
    with context.opened() as ralph:
        hit = ralph.get(wanted, everywhere=everywhere, scope=CONVERSATIONS_ALONE)
        if hit.kind == "document":
            return Result(hit.record, recall.opened(ralph, hit).view)
        return recall.conversation_result(ralph, hit)


# -- tag, rename, rate, private


@conversations.command()
@_conversation
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@context.flag("--remove", "Remove the tags.")
def tag(conversation: str, words: tuple[str, ...], remove: bool) -> Result:
    """Tag a conversation.

    `list --tag` and `ralph search --conversations --tag` find it by its tags.

    \b
    Examples:
      ralph conversations tag 3f9a1c20 release urgent
      ralph conversations tag 3f9a1c20 urgent --remove
    """
    with context.opened() as ralph:
        memory = ralph.conversations
        memory.tag(conversation, add=() if remove else words, remove=words if remove else ())
        found = details(memory, conversation=conversation)
    tags = list(found.tags)
    return _line({"id": found.conversation.id, "tags": tags}, ", ".join(tags) or "no tags")


@conversations.command()
@_conversation
@click.argument("title", nargs=-1, required=True)
def rename(conversation: str, title: tuple[str, ...]) -> Result:
    """Change the title of a conversation.

    \b
    Examples:
      ralph conversations rename 3f9a1c20 The flaky gateway test
    """
    with context.opened() as ralph:
        ralph.conversations.rename(conversation, " ".join(title))
        renamed = details(ralph.conversations, conversation=conversation).conversation
    return _line({"id": renamed.id, "title": renamed.title}, renamed.title)


@conversations.command()
@click.argument("wanted", metavar="ID")
@click.argument("value", type=click.Choice(list(_VALUES)))
def rate(wanted: str, value: str) -> Result:
    """Rate an exchange, or all of a conversation, as worth finding or not.

    Searches rank it slightly higher or lower; `none` removes the rating.

    \b
    Examples:
      ralph conversations rate 3f9a1c20 up
    """
    with context.opened() as ralph:
        memory = ralph.conversations
        hit = ralph.get(wanted, scope=CONVERSATIONS_ALONE)
        for one in memory.exchanges(hit.id) if hit.kind == "conversation" else [hit]:
            memory.rate(one.id, _VALUES[value])
    text = "Rating removed." if value == "none" else f"Rated {value}."
    return _line({"id": hit.id, "rating": _VALUES[value]}, text)


def _line(value: dict[str, Any], text: str) -> Result:
    """Print one line about a record, starting with its id."""
    return Result(value, lambda page: page.line(short_id(value["id"]), "  ", text))


@conversations.command()
@click.argument("exchanges", nargs=-1, required=True, metavar="EXCHANGE_ID...")
def private(exchanges: tuple[str, ...]) -> Result:
    """Delete exchanges from memory for good.

    The same as `ralph forget`: their iterations are deleted too, and no import brings them back.
    The client's own session files are left alone.

    \b
    Examples:
      ralph conversations private 3f9a1c20 7be4d00f
    """
    with context.opened() as ralph:
        ids = list(dict.fromkeys(ralph.conversations.get(wanted).id for wanted in exchanges))
        done = keeping.forget(ralph, keeping.choose(ralph, ids=ids), reason="private")
    text = f"Forgot {plural(len(ids), 'exchange')}, in journal and index."
    return Result({"private": ids}, text, notes=[f"still there: {each}" for each in done.remains])


# -- documents


@conversations.command("add-document")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@context.flag("--remove", "Remove these documents from memory.")
@context.flag("--list", "List the documents in memory.", "listing")
def add_document(paths: tuple[Path, ...], remove: bool, listing: bool) -> Result:
    """Make your own documents searchable beside the conversations.

    They are Markdown or text, files or directories, split by headings; secrets are removed. Run it
    again to add what changed. Without PATH, all documents in memory are checked for changes.

    \b
    Examples:
      ralph conversations add-document docs README.md
      ralph conversations add-document --list
    """
    if (remove and listing) or (listing and paths) or (remove and not paths):
        raise click.UsageError("Give PATHs, --remove with PATHs, or --list alone.")
    with context.opened() as ralph:  # paths are relative to the project
        memory = ralph.conversations
        root = ralph.project.root
        if listing:
            found = documents.list_documents(memory)
            rows = [[d.path, str(d.sections), plain_date(d.added), d.title] for d in found]
            empty = "No documents here. Add some: ralph conversations add-document PATH"
            return Result(found, Table(("path", "sections", "added", "title"), rows, empty))
        if remove:
            gone = documents.remove_documents(memory, paths, root=root)
            text = f"Removed {plural(len(gone), 'document')} from memory: {', '.join(gone)}"
            return Result({"removed": gone}, text)
        return _added(documents.add_documents(memory, paths, root=root))


def _added(added: documents.Added) -> Result:
    parts = [f"{added.added} new", f"{added.unchanged} unchanged"]
    parts += [f"{added.taken_out} removed"] if added.taken_out else []
    parts += [f"{added.forgotten} forgotten before and left out"] if added.forgotten else []
    notes = [
        f"{name} is gone but still searchable; to remove it: add-document --remove {name}"
        for name in added.vanished
    ]
    notes += [f"not added: {refused}" for refused in added.refused[:_LISTED]]
    if more := added.refused[_LISTED:]:
        notes.append(f"and {len(more)} more were not added")
    text = f"{plural(added.files, 'document')}; sections: {', '.join(parts)}."
    return Result(added, text, code=1 if added.refused and not added.files else 0, notes=notes)


# -- prune and retry


@conversations.command()
@context.dry_run_option
def prune(dry_run: bool) -> Result:
    """Forget exchanges older than `conversations_keep_days`, in all projects.

    \b
    Examples:
      ralph conversations prune --dry-run
    """
    with context.opened() as ralph:
        found = prune_conversations(ralph.conversations, dry_run=dry_run)
    exchanges = plural(found.exchanges, "exchange")
    empty = plural(found.conversations, _EMPTY)
    return pruned_result(found, exchanges, empty, dry_run=dry_run)


@conversations.command()
def retry() -> Result:
    """Let the workers try again what they gave up."""
    with context.opened():
        start = context.start_folder()
    workers = Workers(lambda: open_memory(start, waits=True))
    given_up = workers.given_up()
    retried = workers.retry()
    lines = [f"`ralph workers run` or the chat will try {plural(retried, 'item')} again."]
    return Result({"retried": retried}, [*lines, *(f"  {item}" for item in given_up[:_LISTED])])
