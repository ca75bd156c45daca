"""`ralph export` and `ralph import`: everything out, and in again elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import click

from ralph.doors.cli.cards import staged_table
from ralph.doors.cli.context import as_json, feature_option, opened, read_bytes, shown_name
from ralph.doors.cli.render import Page, count, note, print_json, write_out
from ralph.doors.cli.tree import Command

_COMPLAINTS_SHOWN = 20


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-")
@feature_option
@as_json
def export(file: str, feature: str | None, as_json: bool) -> None:
    """Write every record to a file.

    One JSON object a line, tombstones too; - is stdout. Without --feature the knowledge that this
    project gave goes with them.
    """
    from ralph.memory.keeping import export_lines

    with opened() as ralph:
        lines = list(export_lines(ralph, feature=feature))
    if file == "-":
        write_out(lines)
        return
    _write(Path(file), b"".join(lines))
    if as_json:
        print_json({"file": file, "entries": len(lines)})
    else:
        Page().line(f"Wrote {count(len(lines), 'entry', 'entries')} to {file}.")


@click.command("import", cls=Command)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--own", is_flag=True, help="It is your own backup: knowledge is published as it was."
)
@as_json
def import_(file: str, own: bool, as_json: bool) -> int:
    """Bring in the records of an export.

    What is here already is not doubled, and what was forgotten stays forgotten. Knowledge stays
    that of the project which gave it. It is staged and shown, and no project finds it before you
    publish it with `ralph knowledge checkpoint --imported`. Lines that cannot be read are named
    and stepped over.
    """
    import msgspec

    from ralph.memory.keeping import import_lines

    lines = io.BytesIO(read_bytes(file))
    with opened() as ralph:
        came = import_lines(ralph, lines, name=shown_name(file), own=own)
        staged = [one for one in ralph.knowledge.staged("*") if one.id in came.staged]
    if as_json:
        print_json(msgspec.to_builtins(came))
    else:
        known = f", {came.known} known already" if came.known else ""
        stayed = f", {came.forgotten} stay forgotten" if came.forgotten else ""
        page = Page()
        page.line(f"Brought in {count(came.added, 'record')}{known}{stayed}.")
        if staged and not own:
            number = count(len(staged), "entry of knowledge", "entries of knowledge")
            page.line(f"{number} from {shown_name(file)} wait for you:")
            staged_table(page, staged)
            page.line("Publish them for all projects: ralph knowledge checkpoint --imported")
    if came.left_out:
        note(
            f"{count(came.left_out, 'line')} that would publish, judge or forget knowledge were "
            "left out; for a backup of your own, use --own"
        )
    for complaint in came.complaints[:_COMPLAINTS_SHOWN]:
        note(str(complaint))
    if more := came.complaints[_COMPLAINTS_SHOWN:]:
        note(f"and {count(len(more), 'line')} more could not be read")
    return 1 if came.complaints else 0


def _write(path: Path, data: bytes) -> None:
    from ralph import disk

    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        path.write_bytes(data)
    else:
        disk.replace(path, data)
