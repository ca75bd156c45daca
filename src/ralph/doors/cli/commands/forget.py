"""`ralph forget`: records out of journal and index, for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.cards import SHORT_ID, entry_line
from ralph.doors.cli.context import as_json, feature_option, opened, opened_anywhere
from ralph.doors.cli.render import Page, Span, count, excerpt, note, print_json
from ralph.doors.cli.tree import Command, keep_project

if TYPE_CHECKING:
    from ralph.memory.keeping import Choice
    from ralph.memory.ralph import Ralph

_EVERYTHING = "\0everything"
_SHOWN = 10
_GIT = "Git history keeps what was committed before."
_OTHERS = "what is published of it goes for all other projects, too"


@click.command(cls=Command)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--project",
    multiple=True,
    is_flag=False,
    flag_value=_EVERYTHING,
    metavar="[DIR]",
    help="Without DIR: everything of this project. With DIR: the project, as everywhere.",
)
@feature_option
@click.option(
    "--conversations", is_flag=True, help="Only what was said, and documents; no iterations."
)
@click.option("--knowledge", is_flag=True, help="Only knowledge that this project gave.")
@click.option("--before", metavar="DATE", help="What is older than this.")
@click.option("--match", metavar="TEXT", help="What holds this text.")
@click.option("--reason", metavar="R", help="Why; it is kept beside the id.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def forget(
    ids: tuple[str, ...],
    project: tuple[str, ...],
    feature: str | None,
    conversations: bool,
    knowledge: bool,
    before: str | None,
    match: str | None,
    reason: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Take records out of journal and index for good.

    Iterations, exchanges of conversations held in this project, and knowledge that it gave:
    entries, rejections that wait, outcomes. An ID may also be that of another project's entry, or
    of a pattern, which is all its entries. What is named in several ways must fit all of them.

    With an exchange go the iteration it was, a title made from it, its summaries, lessons that are
    not published yet, and copies in notes and logs. What stays is listed. A forgotten record does
    not come back by a rebuild, an import or a merge.
    """
    from ralph.memory import keeping

    for folder in project:
        if folder != _EVERYTHING:
            keep_project(click.get_current_context(), folder)
    everything = _EVERYTHING in project
    if not (ids or feature or before or match or everything):
        raise click.UsageError("Name records to forget, or say which: --feature, --before, ...")
    if conversations and feature is not None:
        raise click.UsageError("Conversations belong to no feature; leave one of the two out.")
    if knowledge and (conversations or feature is not None):
        raise click.UsageError("--knowledge goes with neither --feature nor --conversations.")
    with opened_anywhere() if conversations else opened() as ralph:
        choice = keeping.choose(
            ralph,
            ids=ids,
            feature=feature,
            before=before,
            match=match,
            everything=everything,
            conversations=conversations,
            knowledge=knowledge,
        )
        others = _taught(ralph, choice)
        if choice.count:
            if not as_json:
                _show(Page(), ralph, choice)
            if others:
                note(_OTHERS)
            if not ids and not yes:
                _confirm(choice.count)
        done = keeping.forget(ralph, choice, reason=reason)
    if as_json:
        homes = [*choice.ids.items(), (None, choice.conversations), (None, choice.knowledge)]
        records = [{"id": i, "feature": name} for name, some in homes for i in some]
        told = {"forgotten": done.count, "records": records}
        print_json({**told, "copies": done.copies, "remains": done.remains})
        if done.count and choice.ids:
            note(_GIT)
        return
    page = Page()
    if done.count:
        beside = f" {_GIT}" if choice.ids else ""  # the rest is never committed
        page.line(f"Forgot {count(done.count, 'record')}, in journal and index.{beside}")
    else:
        page.line("No record fits; nothing was forgotten.")
    if done.copies:
        page.line(f"Also removed: {', '.join(done.copies)}.")
    for one in done.remains:
        page.line(f"Still there: {one}")


def _show(page: Page, ralph: Ralph, choice: Choice) -> None:
    homes = [*choice.ids, *(["the conversations"] if choice.conversations else [])]
    homes += ["knowledge"] if choice.knowledge else []
    page.line(f"To be forgotten: {count(choice.count, 'record')} of {', '.join(homes)}")
    left = _SHOWN
    for record_id in choice.conversations[:left]:
        page.line((record_id[:SHORT_ID], "cyan"), "  ", _said(ralph, record_id), indent=2)
    left -= len(choice.conversations)
    for record_id in choice.knowledge[: max(0, left)]:
        page.line(*_learned(ralph, record_id), indent=2)
    left -= len(choice.knowledge)
    for name, ids in choice.ids.items():
        told = {located.record.id: one for located, one in ralph.feature(name).iterations()}
        for record_id in ids[: max(0, left)]:
            one = told.get(record_id)
            title = "" if one is None else excerpt(one.task_title or one.summary, 60)
            when = "" if one is None else f"iteration {one.iteration_number} of {name}  "
            page.line((record_id[:SHORT_ID], "cyan"), "  ", when, title, indent=2)
        left -= len(ids)
    if left < 0:
        page.line((f"and {-left} more", "dim"), indent=2)


def _taught(ralph: Ralph, choice: Choice) -> bool:
    """Whether other projects can find some of it now."""
    if not choice.knowledge:
        return False
    return not ralph.knowledge.living().slots.keys().isdisjoint(choice.knowledge)


def _learned(ralph: Ralph, record_id: str) -> list[Span]:
    from ralph.errors import BadRecord, NotFound
    from ralph.records.knowledge import knowledge_from

    try:
        return entry_line(record_id, knowledge_from(ralph.knowledge.get(record_id)))
    except (NotFound, BadRecord):
        # A rejection that waits, an outcome; or an entry that cannot be read.
        for account in ralph.knowledge.ledger.accounts():
            if record_id in account.gates:
                gate = account.gates[record_id]
                told = f"rejected at the {gate.gate_type} gate  {excerpt(gate.human_feedback, 60)}"
                return [(record_id[:SHORT_ID], "cyan"), "  ", told]
        return [(record_id[:SHORT_ID], "cyan"), "  outcome of a pattern"]


def _said(ralph: Ralph, record_id: str) -> str:
    from ralph.errors import NotFound

    try:
        return f"exchange  {excerpt(ralph.conversations.get(record_id).record.user, 60)}"
    except NotFound:
        pass
    try:
        return f"conversation  {excerpt(ralph.conversations.conversation(record_id).title, 60)}"
    except NotFound:
        pass
    try:
        section = ralph.conversations.document(record_id).record
    except NotFound:
        # A summary, a tag, a rating; or one that cannot be read, or came back by a merge.
        kinds = {one.id: one.kind for one in ralph.conversations.standing()}
        return kinds.get(record_id, "record")
    return f"document  {excerpt(f'{section.path}:{section.line} {section.heading}', 60)}"


def _confirm(number: int) -> None:
    from ralph.errors import BadInput

    refusal = "Nothing was forgotten."
    if not sys.stdin.isatty():
        raise BadInput(
            f"{count(number, 'record')} would be forgotten and there is nobody to ask",
            todo=f"Add --yes to do it. {refusal}",
        )
    sys.stdout.flush()
    sys.stderr.write(f"Type yes to forget {count(number, 'record')} for good: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise BadInput("that was not yes", todo=refusal)
