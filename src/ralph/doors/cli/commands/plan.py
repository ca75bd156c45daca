"""`ralph plan`: bring a plan in, and check the one that is there."""

from __future__ import annotations

from pathlib import PurePath

import click

from ralph.doors.cli.opening import as_json, read_bytes, shown_name
from ralph.doors.cli.page import Page, count, print_json
from ralph.doors.cli.planning import plain, the_plan
from ralph.doors.cli.tree import Group


@click.group(cls=Group)
def plan() -> None:
    """Bring in a plan, and check it."""


@plan.command("import")
@click.argument("file")
@click.option("--feature", metavar="NAME", help="For tasks that stand under no heading.")
@as_json
def import_(file: str, feature: str | None, as_json: bool) -> None:
    """Turn a Markdown checklist or a YAML document into features and tasks.

    `# Heading` is a feature, `- [ ] text` a task, `- [x] text` one that is done. Importing the
    same file again adds nothing.
    """
    from ralph.plan.intake import import_plan

    text = read_bytes(file).decode("utf-8-sig", "replace")
    name = "import" if file == "-" else PurePath(shown_name(file)).name
    done = import_plan(the_plan(), text, name=name, feature=feature)
    if as_json:
        print_json(plain(done))
        return
    page = Page()
    page.line(
        f"Added {count(len(done.features), 'feature')}, {count(len(done.tasks), 'task')} and "
        f"{count(len(done.disciplines), 'discipline')}; "
        f"{count(done.known_tasks, 'task')} known already."
    )


@plan.command()
@as_json
def check(as_json: bool) -> int:
    """Name every problem of the plan, with its place and what to do."""
    from ralph.plan.check import check as check_plan

    problems = check_plan(the_plan())
    bad = [one for one in problems if one.severity == "error"]
    if as_json:
        print_json({"ok": not bad, "problems": plain(problems)})
    else:
        page = Page()
        for one in problems:
            page.line((one.severity, "red" if one.severity == "error" else "yellow"), f" {one}")
        if not problems:
            page.line("The plan is fine.")
    return 1 if bad else 0
