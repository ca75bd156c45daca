"""`ralph record`: an agent's run, or records as JSON, into memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.opening import (
    as_json,
    feature_option,
    opened,
    opened_input,
    shown_name,
    the_project,
)
from ralph.doors.cli.page import Page, count, note, print_json
from ralph.doors.cli.tree import Command
from ralph.errors import BadRecord

if TYPE_CHECKING:
    from ralph.memories.feature import Remembered

_OUTCOMES = ("success", "failure", "partial", "timeout", "rate_limited", "unknown")


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-", default="-")
@feature_option
@click.option("--task", metavar="ID", help="The task, where a record names none.")
@click.option("--title", metavar="T", help="The task's title, where a record has none.")
@click.option("--discipline", metavar="D", help="The discipline, where a record names none.")
@click.option("--outcome", type=click.Choice(_OUTCOMES), help="The outcome, where it is not said.")
@as_json
def record(
    file: str,
    feature: str | None,
    task: str | None,
    title: str | None,
    discipline: str | None,
    outcome: str | None,
    as_json: bool,
) -> None:
    """Put iterations into memory: an agent's own output, or records.

    FILE holds what an agent printed (Claude Code's stream-json or a transcript of it, Codex's
    exec --json), or records: one JSON object, one a line, or a list of them; - is stdin. Nothing
    is written unless all of it can be.
    """
    from ralph.doors.cli.reading import first_lines, objects
    from ralph.kinds.iteration import read_iteration
    from ralph.record import Source

    name = shown_name(file)
    flags = {
        "feature": feature,
        "task_id": int(task) if task and task.isdecimal() and task.isascii() else task,
        "task_title": title,
        "discipline": discipline,
        "outcome": outcome,
    }
    given: list[tuple[int, dict[str, Any]]] = []
    with opened_input(file) as stream:
        lines, is_run = first_lines(stream)
        if is_run:
            kept = _record_run(chain(lines, stream), name, flags)
        else:
            given = objects(b"".join([*lines, stream.read()]), name=name)
    if given:
        iterations = []
        for line, plain in given:
            where = f"{name}:{line}"
            iterations.append(read_iteration(_filled(plain, flags, where), where=where))
        sources = [Source(file=name, line=line) for line, _ in given]
        with opened() as ralph:
            kept = ralph.remember_all(iterations, sources=sources)
    if unknown := _unknown(given):
        note(f"{name}: ignored what an iteration does not have: {', '.join(unknown)}")
    if as_json:
        print_json([{"id": one.id, "kind": one.kind, **one.record.to_json()} for one in kept])
        return
    fresh = sum(one.fresh for one in kept)
    features = ", ".join(dict.fromkeys(one.record.feature for one in kept))
    known = f" ({len(kept) - fresh} were known already)" if fresh < len(kept) else ""
    Page().line(f"Remembered {count(fresh, 'iteration')} of {features}{known}.")


def _filled(plain: dict[str, Any], flags: dict[str, Any], where: str) -> dict[str, Any]:
    own = plain.get("feature")
    if own and flags["feature"] and own != flags["feature"]:
        raise BadRecord(
            f"this record is of feature {own!r}, not {flags['feature']!r}",
            where=where,
            todo="Leave --feature out, or record it on its own; nothing was written.",
        )
    if not own and not flags["feature"]:
        raise BadRecord(
            "this record does not say which feature it is of",
            where=where,
            todo="Give --feature NAME, or write it into the record.",
        )
    # What a record leaves out, or leaves empty, is not said.
    said = {key: value for key, value in plain.items() if value is not None}
    fills = {key: value for key, value in flags.items() if value and said.get(key) in (None, "")}
    return said | fills


def _unknown(given: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """The names of fields that were ignored, each once."""
    from ralph.kinds.iteration import FIELDS, Decision, ErrorSeen, FileTouched

    inner = {"errors": ErrorSeen, "decisions": Decision, "files_touched": FileTouched}
    names: dict[str, None] = {}
    for _, plain in given:
        names |= dict.fromkeys(key for key in plain if key not in FIELDS)
        for key, kind in inner.items():
            for part in plain.get(key) or ():
                names |= dict.fromkeys(
                    f"{key}.{name}" for name in part if name not in kind.__struct_fields__
                )
    return list(names)


def _focused() -> dict[str, Any]:
    """What the person works on now, where the line does not say."""
    from ralph.memories.focus import read_focus

    focus = read_focus(the_project())
    return {"feature": focus.feature, "task_id": focus.task_id} if focus else {}


def _record_run(lines: Iterable[bytes], name: str, flags: dict[str, Any]) -> list[Remembered]:
    """One run of an agent as one iteration; what could not be read is told, a line each."""
    import msgspec

    from ralph.capture.detect import read
    from ralph.record import Source

    flags = flags if flags["feature"] else flags | _focused()
    if not flags["feature"]:
        raise BadRecord(
            "an agent's output does not say which feature it is of",
            where=name,
            todo="Give --feature NAME, or set one: ralph focus NAME.",
        )
    with opened() as ralph:
        captured, complaints = read(lines, file=name, root=str(ralph.project.root))
        if not captured.summary:
            # A run that was ended at once still happened.
            how = captured.terminal_reason.replace("_", " ")
            captured = msgspec.structs.replace(
                captured, summary=f"The run ended without a word ({how})."
            )
        iteration = captured.to_iteration(
            feature=flags["feature"],
            task_id=flags["task_id"],
            task_title=flags["task_title"] or "",
            discipline=flags["discipline"] or "",
            outcome=flags["outcome"],
        )
        for complaint in complaints:
            note(str(complaint))
        source = Source(run=captured.session_id, file=name)
        return ralph.remember_all([iteration], sources=[source])
