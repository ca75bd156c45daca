"""`ralph plan`: bring a plan in, and check the one that is there."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.commands.braindump import braindump
from ralph.doors.cli.context import (
    answer,
    as_json,
    plain,
    plan_feature,
    read_bytes,
    shown_name,
    the_plan,
)
from ralph.doors.cli.input_files import text_of
from ralph.doors.cli.render import Page, count, print_json
from ralph.doors.cli.tree import Group

if TYPE_CHECKING:
    from ralph.plan.importing import PlanImport


@click.group(cls=Group)
def plan() -> None:
    """Bring in a plan, and check it."""


plan.add_command(braindump)


@plan.command("import")
@click.argument("file", metavar="FILE|-")
@plan_feature(help="For tasks that have no heading above them.")
@as_json
def import_(file: str, feature: str | None, as_json: bool) -> None:
    """Turn a Markdown checklist or a YAML document into features and tasks.

    `# Heading` is a feature, `- [ ] text` a task, `- [x] text` one that is done. Importing the
    same file again adds nothing. - is stdin.
    """
    from ralph.plan.importing import import_plan

    name = shown_name(file)
    text = text_of(read_bytes(file), name)
    done = import_plan(the_plan(), text, name=PurePath(name).name, feature=feature)
    answer(plain(done), as_json=as_json, line=_told(done))


@plan.command()
@as_json
def check(as_json: bool) -> int:
    """Name every problem of the plan, with its place and what to do.

    It ends with 1 when something is wrong; warnings alone are fine.
    """
    from ralph.plan.check import check as check_plan

    problems = check_plan(the_plan())
    bad = [one for one in problems if one.severity == "error"]
    if as_json:
        print_json({"ok": not bad, "problems": plain(problems)})
        return 1 if bad else 0
    page = Page()
    for one in problems:
        page.line((f"{one.severity} ", "red" if one.severity == "error" else "yellow"), str(one))
    if problems:
        warnings = len(problems) - len(bad)
        page.line(f"{count(len(bad), 'error')}, {count(warnings, 'warning')}.")
    else:
        page.line("The plan is fine.")
    return 1 if bad else 0


def _told(done: PlanImport) -> str:
    added = [
        count(len(names), word)
        for names, word in (
            (done.features, "feature"),
            (done.tasks, "task"),
            (done.disciplines, "discipline"),
        )
        if names
    ]
    parts = [f"Added {', '.join(added)}." if added else "Nothing is new."]
    if done.filled:
        parts.append(f"Filled in what {', '.join(done.filled)} lacked.")
    if done.known_tasks:
        parts.append(f"{count(done.known_tasks, 'task')} known already.")
    return " ".join(parts)
