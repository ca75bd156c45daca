"""`ralph record`: an agent's run, or records as JSON, into memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli import context
from ralph.doors.cli.input_files import expected
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result, excerpt, note
from ralph.errors import BadRecord
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.capture import AgentRun
    from ralph.memory.feature import SavedIteration
    from ralph.memory.ralph import Ralph
    from ralph.records.iteration import Iteration

_SUMMARY_CHARS = 160
_OUTCOMES = ("success", "failure", "partial", "timeout", "rate_limited", "unknown")


@click.command(cls=Command)
@click.argument("file", metavar="FILE|-", default="-")
@context.feature_option
@context.option("--task", "The task of records that name none.", "ID", "task_id")
@context.option("--title", "The task's title for records that have none.", "T", "task_title")
@context.option("--discipline", "The discipline of records that name none.", "D")
@click.option(
    "--outcome", type=click.Choice(_OUTCOMES), help="The outcome of records that have none."
)
def record(file: str, task_id: str | None, **given: str | None) -> Result:
    """Save iterations to memory.

    FILE is what an agent printed (Claude Code's stream-json or a transcript, Codex's exec --json),
    or iterations as JSON: one object, one per line, or a list; - is stdin. Without --feature,
    `ralph focus` decides. Either all of it is written or nothing.

    \b
    Examples:
      claude -p --output-format stream-json --verbose "fix the login" | ralph record --feature auth
      ralph record run.jsonl --feature auth --task 42
    """
    from ralph.doors.cli.input_files import first_lines, objects
    from ralph.records import Source
    from ralph.records.iteration import read_iteration

    name = context.shown_name(file)
    flags: dict[str, Any] = {"task_id": context.number(task_id), **given}
    plain_records: list[tuple[int, dict[str, Any]]] = []
    with context.opened_input(file) as stream:
        lines, dialect = first_lines(stream, name=name)
        if dialect:
            saved = _record_run(chain(lines, stream), dialect, name, flags)
        else:
            plain_records = objects(b"".join([*lines, stream.read()]), name=name)
    if plain_records:
        iterations = []
        for line, plain in plain_records:
            where = f"{name}:{line}"
            iterations.append(read_iteration(_filled(plain, flags, where), where=where))
        sources = [Source(file=name, line=line) for line, _ in plain_records]
        with context.opened() as ralph:
            saved = ralph.remember_all(iterations, sources=sources)
    unknown = ", ".join(_unknown(plain_records))
    notes = [f"{name}: ignored unknown fields: {unknown}"] if unknown else []

    def show(page: Page) -> None:
        fresh = sum(each.fresh for each in saved)
        features = ", ".join(dict.fromkeys(each.record.feature for each in saved))
        old = len(saved) - fresh
        known = f" ({old} {'was' if old == 1 else 'were'} already known)" if old else ""
        page.line(f"Recorded {plural(fresh, 'iteration')} of {features}{known}.")
        if dialect:
            page.line(_run_text(saved[0].record), indent=2)

    value = [{"id": each.id, "kind": each.kind, **each.record.to_json()} for each in saved]
    return Result(value, show, notes=notes)


def _filled(plain: dict[str, Any], flags: dict[str, Any], where: str) -> dict[str, Any]:
    """The record, completed from the options and the focus."""
    from ralph.clients import session_client
    from ralph.records.iteration import FIELDS

    if client := session_client(plain):
        raise BadRecord(
            f"this is a session file of {client.title}, not the output of a run",
            where=where,
            todo=f"Import it with: ralph conversations import {client.source}",
        )
    if not plain.keys() & {*FIELDS} - {"session_id"}:
        raise BadRecord(
            "this is neither an agent's output nor a record", where=where, todo=expected()
        )
    own = plain.get("feature")
    if own and flags["feature"] and own != flags["feature"]:
        raise BadRecord(
            f"this record is of feature {own!r}, not {flags['feature']!r}",
            where=where,
            todo="Leave --feature out, or record it on its own; nothing was written.",
        )
    if not own and not flags["feature"]:
        flags = _focused(flags)
    if not own and not flags["feature"]:
        raise BadRecord(
            "this record does not name its feature",
            where=where,
            todo="Add --feature NAME, or write it into the record.",
        )
    # A field that is empty counts as missing.
    fills = {key: value for key, value in flags.items() if value and plain.get(key) in (None, "")}
    return plain | fills


def _unknown(given: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """The names of fields that were ignored, each once."""
    from ralph.records.iteration import FIELDS, Decision, ErrorSeen, FileTouched

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


def _focused(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags, completed from the focus."""
    from ralph.memory.project import read_focus

    focus = read_focus(context.the_project())
    if focus is None:
        return flags
    task_id = focus.task_id if flags["task_id"] is None else flags["task_id"]
    return flags | {"feature": focus.feature, "task_id": task_id}


def _record_run(
    lines: Iterable[bytes], dialect: str, name: str, flags: dict[str, Any]
) -> list[SavedIteration]:
    """One run of an agent as one iteration; a note for each line that could not be read."""
    import msgspec

    from ralph.clients import read
    from ralph.records import Source

    flags = flags if flags["feature"] else _focused(flags)
    if not flags["feature"]:
        raise BadRecord(
            "an agent's output does not name a feature",
            where=name,
            todo="Add --feature NAME, or set one: ralph focus NAME.",
        )
    with context.opened() as ralph:
        root = str(ralph.project.root)
        captured, complaints = read(lines, file=name, root=root, dialect=dialect)
        run = captured.session_id or _named_by_content(captured)
        iteration = captured.to_iteration(
            feature=flags["feature"],
            task_id=flags["task_id"],
            task_title=flags["task_title"] or "",
            discipline=flags["discipline"] or "",
            outcome=flags["outcome"],
        )
        # A run that was stopped at once is recorded too.
        how = captured.terminal_reason.replace("_", " ")
        iteration = msgspec.structs.replace(
            iteration,
            session_id=run,
            summary=captured.summary or f"The run ended without a word ({how}).",
            timestamp=captured.ended_at or _known_time(ralph, iteration, run),
        )
        for complaint in complaints:
            note(str(complaint))
        return ralph.remember_all([iteration], sources=[Source(run=run, file=name)])


def _named_by_content(captured: AgentRun) -> str:
    """A name for a run that has none, so that the same output is always the same record."""
    import hashlib

    import msgspec

    return f"run-{hashlib.sha256(msgspec.json.encode(captured)).hexdigest()[:32]}"


def _known_time(ralph: Ralph, iteration: Iteration, run: str) -> str | None:
    """The time of this run, if it was recorded before; some agents' output has none."""
    for _, known in ralph.feature(iteration.feature).iterations():
        if known.session_id == run and str(known.task_id) == str(iteration.task_id):
            return known.timestamp
    return None


def _run_text(iteration: Iteration) -> str:
    """What was read from a run, so that a misreading is seen at once."""
    facts = [f"iteration {iteration.iteration_number}", iteration.outcome]
    facts += [
        plural(len(found), word)
        for found, word in (
            (iteration.files_touched, "file"),
            (iteration.errors, "error"),
            (iteration.decisions, "decision"),
        )
        if found
    ]
    return f"{', '.join(facts)}: {excerpt(iteration.summary, _SUMMARY_CHARS)}"
