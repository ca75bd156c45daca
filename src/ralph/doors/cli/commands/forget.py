"""`ralph forget`: delete records from journal and index, for good."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import entry_line, short_id
from ralph.doors.cli.commands.recall import check_sources
from ralph.doors.cli.context import (
    feature_option,
    flag,
    json_option,
    opened,
    opened_anywhere,
    option,
)
from ralph.doors.cli.render import Page, Result, Span, confirm, excerpt, note
from ralph.doors.cli.tree import Command, keep_project, wants_json
from ralph.errors import BadRecord, NotFound
from ralph.text.words import plural

if TYPE_CHECKING:
    from ralph.memory.keeping import Choice
    from ralph.memory.ralph import Ralph
    from ralph.records.conversation import Document

_EVERYTHING = "\0everything"
_SHOWN = 10
_TITLE_CHARS = 60
_GIT = "Git history keeps what was committed before."
_OTHERS = "what is published of it is deleted for all other projects, too"


@click.command(cls=Command)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@flag("--all", "Everything of this project.", "everything")
@option(
    "--project",
    "Project directory (default: nearest parent with a .ralph/). Without DIR: as --all.",
    "DIR",
    multiple=True,
    is_flag=False,
    flag_value=_EVERYTHING,
)
@feature_option
@flag("--conversations", "Only conversations and documents; no iterations.")
@flag("--knowledge", "Only knowledge that this project captured.")
@option("--before", "Records older than this.", "DATE")
@option("--match", "Records that contain this text.")
@option("--reason", "Why; it is saved with the id.", "R")
@flag("--yes", "Do not ask.")
@json_option
def forget(
    ids: tuple[str, ...],
    everything: bool,
    project: tuple[str, ...],
    reason: str | None,
    yes: bool,
    **chosen: Any,
) -> Result:
    """Delete records from journal and index for good.

    These are iterations, exchanges of this project's conversations, and knowledge that it captured.
    An ID may also be another project's entry, or a pattern, which means all its entries. Records
    must match all options that are given. Without an ID it asks before it deletes.

    An exchange is deleted together with its iteration, the title made from it, its summaries,
    lessons that are not published yet, and copies in notes and logs. What remains is listed. A
    forgotten record does not come back by a rebuild, an import or a merge.

    \b
    Examples:
      ralph forget 3f9a1c20
      ralph forget --match "acme corp" --conversations
      ralph forget --all
    """
    from ralph.memory import keeping

    for folder in project:
        if folder != _EVERYTHING:
            keep_project(click.get_current_context(), folder)
    everything = everything or _EVERYTHING in project
    if not (ids or everything or chosen["feature"] or chosen["before"] or chosen["match"]):
        raise click.UsageError("Name records to forget, or choose them: --feature, --before, ...")
    check_sources(chosen)
    with opened_anywhere() if chosen["conversations"] else opened() as ralph:
        choice = keeping.choose(ralph, ids=ids, everything=everything, **chosen)
        if choice.count:
            if not wants_json():
                _show_choice(Page(), ralph, choice)
            if _is_published(ralph, choice):
                note(_OTHERS)
            if not ids and not yes:
                records = plural(choice.count, "record")
                if everything:
                    records += f" (everything of {ralph.project.root} that matches)"
                confirm(
                    f"forget {records} for good",
                    problem=f"{records} would be forgotten and there is nobody to ask",
                    todo="Add --yes to do it.",
                    refusal="Nothing was forgotten.",
                )
        done = keeping.forget(ralph, choice, reason=reason)

    def show(page: Page) -> None:
        if done.count:
            beside = f" {_GIT}" if choice.ids else ""  # the rest is never committed
            page.line(f"Forgot {plural(done.count, 'record')}, in journal and index.{beside}")
        else:
            page.line("No record matches; nothing was forgotten.")
        if done.copies:
            page.line(f"Also removed: {', '.join(done.copies)}.")
        for remaining in done.remains:
            page.line(f"Still there: {remaining}")

    homes = [*choice.ids.items(), (None, choice.conversations), (None, choice.knowledge)]
    records_json = [{"id": i, "feature": name} for name, some in homes for i in some]
    value = {
        "forgotten": done.count,
        "records": records_json,
        "copies": done.copies,
        "remains": done.remains,
    }
    notes = [_GIT] if wants_json() and done.count and choice.ids else []
    return Result(value, show, notes=notes)


def _show_choice(page: Page, ralph: Ralph, choice: Choice) -> None:
    homes = [*choice.ids, *(["the conversations"] if choice.conversations else [])]
    homes += ["knowledge"] if choice.knowledge else []
    page.line(f"To be forgotten: {plural(choice.count, 'record')} of {', '.join(homes)}")
    for place, line in enumerate(_choice_lines(ralph, choice)):
        if place == _SHOWN:
            page.line((f"and {choice.count - _SHOWN} more", "dim"), indent=2)
            break
        page.line(*line, indent=2)


def _choice_lines(ralph: Ralph, choice: Choice) -> Iterator[list[Span]]:
    for record_id in choice.conversations:
        yield [short_id(record_id), "  ", _conversation_text(ralph, record_id)]
    for record_id in choice.knowledge:
        yield _knowledge_line(ralph, record_id)
    for name, ids in choice.ids.items():
        iterations = {place.record.id: each for place, each in ralph.feature(name).iterations()}
        for record_id in ids:
            line: list[Span] = [short_id(record_id), "  "]
            if iteration := iterations.get(record_id):
                title = excerpt(iteration.task_title or iteration.summary, _TITLE_CHARS)
                line.append(f"iteration {iteration.iteration_number} of {name}  {title}")
            yield line


def _is_published(ralph: Ralph, choice: Choice) -> bool:
    """Whether other projects can find some of it now."""
    if not choice.knowledge:
        return False
    return not ralph.knowledge.living().slots.keys().isdisjoint(choice.knowledge)


def _knowledge_line(ralph: Ralph, record_id: str) -> list[Span]:
    from ralph.records.knowledge import knowledge_from

    try:
        return entry_line(record_id, knowledge_from(ralph.knowledge.get(record_id)))
    except (NotFound, BadRecord):
        # A rejection that waits, an outcome; or an entry that cannot be read.
        for account in ralph.knowledge.state.accounts():
            if record := account.gates.get(record_id):
                gate = knowledge_from(record)
                why = excerpt(gate.human_feedback, _TITLE_CHARS)
                return [short_id(record_id), f"  rejected at the {gate.gate_type} gate  {why}"]
        return [short_id(record_id), "  outcome of a pattern"]


def _conversation_text(ralph: Ralph, record_id: str) -> str:

    memory = ralph.conversations
    looks: dict[str, Callable[[], str]] = {
        "exchange": lambda: memory.get(record_id).record.user,
        "conversation": lambda: memory.conversation(record_id).title,
        "document": lambda: _place(memory.document(record_id).record),
    }
    for kind, look in looks.items():
        with contextlib.suppress(NotFound):
            return f"{kind}  {excerpt(look(), _TITLE_CHARS)}"
    # A summary, a tag, a rating; or one that cannot be read, or came back by a merge.
    return {record.id: record.kind for record in memory.standing()}.get(record_id, "record")


def _place(section: Document) -> str:
    return f"{section.path}:{section.line} {section.heading}"
