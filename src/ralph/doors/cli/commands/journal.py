"""`ralph journal`: is everything in it as it was written?"""

from __future__ import annotations

import click

from ralph.doors.cli.opening import as_json, feature_option, opened
from ralph.doors.cli.page import Page, count, note, print_json
from ralph.doors.cli.tree import Group


@click.group(cls=Group)
def journal() -> None:
    """Look after the journal, which is the truth."""


@journal.command()
@feature_option
@as_json
def verify(feature: str | None, as_json: bool) -> int:
    """Read every line and tell what looks wrong; nothing is changed."""
    with opened() as ralph:
        memories = ralph.features() if feature is None else [ralph.feature(feature)]
        judged = [memory.verify() for memory in memories]
        if feature is None and ralph.conversations.exist:
            judged.append(ralph.conversations.verify())
        journals = len(judged)
        if feature is None and (others := ralph.knowledge.shelf.journals.names()):
            judged.append(ralph.knowledge.verify())  # of all projects: they learn from each other
            journals += len(others)
    records = sum(number for number, _ in judged)
    complaints = [complaint for _, some in judged for complaint in some]
    if as_json:
        plain = [{"file": one.file, "line": one.line, "what": one.what} for one in complaints]
        print_json({"ok": not complaints, "records": records, "complaints": plain})
    else:
        page = Page()
        for one in complaints:
            page.line((f"{one.file}:{one.line} ", "yellow"), one.what)
        page.line(f"{count(records, 'record')} can be read in {count(journals, 'journal')}.")
    if complaints:
        note(f"{count(len(complaints), 'complaint')}; what is told of was stepped over or kept")
    return 1 if complaints else 0
