"""docs/commands.md is made from what the commands say of themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
from places import DOCS

from ralph.doors.cli.main import GROUPS
from ralph.doors.cli.main import ralph as tree

PAGE = DOCS / "commands.md"
WIDTH = 100
# Options that every command has; the page explains them once.
SHARED = {"--json", "--no-pager", "--project", "--server", "--help"}
HEAD = """\
# Commands

Every command of `ralph`, as `ralph help COMMAND` shows it. `ralph help --all` lists them in the
terminal.

Every command takes `--project DIR` (default: the nearest parent folder with a `.ralph/`),
`--server URL` (default: `RALPH_SERVER`; with `RALPH_TOKEN`), `--no-pager` and `--help`. Commands
that print something take `--json`, unless their section says otherwise.
"""


def section(command: click.Command, path: str) -> str:
    """One command: its text, its own options, and a note if it has no --json."""
    context = click.Context(command, info_name=path, max_content_width=WIDTH, terminal_width=WIDTH)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    rows = [
        row
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and not SHARED & {*parameter.opts}
        and (row := parameter.get_help_record(context)) is not None
    ]
    if rows:
        with formatter.section("Options"):
            formatter.write_dl(rows)
    own_json = any("--json" in parameter.opts for parameter in command.params)
    note = "" if own_json or isinstance(command, click.Group) else "\nIt has no `--json`.\n"
    return f"### {path}\n\n```text\n{formatter.getvalue().rstrip()}\n```\n{note}"


def sections(command: click.Command, path: str) -> Iterator[str]:
    yield section(command, path)
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from sections(inner, f"{path} {name}")


def reference() -> str:
    parts = [HEAD]
    context = click.Context(tree, info_name="ralph")
    for title, rows in GROUPS.items():
        parts.append(f"## {title}\n")
        for name, (where, text) in rows.items():
            if not where:  # a door that reads its own arguments
                parts.append(f"### ralph {name}\n\n{text} `ralph {name} --help` explains it.\n")
                continue
            command = tree.get_command(context, name)
            assert command is not None
            parts += sections(command, f"ralph {name}")
    return "\n".join(parts)


def test_the_page_of_commands_says_what_the_commands_say() -> None:
    made = reference()
    if os.environ.get("UPDATE_SNAPSHOTS"):
        PAGE.write_text(made, encoding="utf-8", newline="\n")
    stored = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""

    assert stored == made, "look, then run this test again with UPDATE_SNAPSHOTS=1"
