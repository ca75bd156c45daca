"""`ralph record`: save an agent's run, or records as JSON, to memory."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click
import msgspec

from ralph import clients
from ralph.doors.cli import context
from ralph.doors.cli.cards import SHORT_ID
from ralph.doors.cli.main import Command, wants_json
from ralph.doors.cli.render import Page, Result, excerpt, fresh_and_known, note, render
from ralph.errors import BadRecord
from ralph.memory.anchors import anchors_in
from ralph.memory.feature import SavedIteration
from ralph.memory.project import read_focus
from ralph.records import Source
from ralph.records import iteration as schema
from ralph.text.tokens import plural

# What `record` accepts, for error messages.
_EXPECTED = clients.expected("iterations as JSON objects, one per line")
_OUTCOMES = get_args(schema.Outcome)
# Fields of records that no agent's event has.
_OURS = {"iteration_number", "task_title", "files_touched", "decisions", "outcome"}


@click.command(cls=Command)
@click.argument("files", metavar="[FILE|-]...", nargs=-1, type=context.FILE)
@context.feature_option
@context.option("--task", "The task of records that name none.", "ID", "task_id")
@context.option("--title", "The task's title for records that have none.", "T", "task_title")
@context.option("--discipline", "The discipline of records that name none.", "D")
@context.choice("--outcome", "The outcome of records that have none.", _OUTCOMES)
def record(files: tuple[str, ...], task_id: str | None, **given: str | None) -> Result:
    """Save iterations to memory.

    FILE is what an agent printed (Claude Code's stream-json or a transcript, Codex's exec --json),
    or iterations as JSON: one object, one per line, or a list; - is stdin, and so is no FILE.
    Without --feature, `ralph focus` decides. Of each file either everything is written or nothing.

    \b
    Examples:
      claude -p --output-format stream-json --verbose "fix the login" | ralph record --feature auth
      ralph record run.jsonl --feature auth --task 42
      ralph record runs/*.jsonl --feature auth
    """
    flags: dict[str, Any] = {"task_id": context.number(task_id), **given}
    if len(files) < 2:
        return _record_file(files[0] if files else "-", flags)
    value: list[Any] = []
    for name in files:
        saved = _record_file(name, flags)
        value += saved.value
        if not wants_json():
            Page().line((f"{context.shown_name(name)}:", "bold"))
            render(saved, as_json=False)
    return Result(value, "")


def _record_file(file: str, flags: dict[str, Any]) -> Result:
    name = context.shown_name(file)
    plain_records: list[tuple[int, dict[str, Any]]] = []
    with context.opened_input(file) as stream:
        lines, dialect = _first_lines(stream, name)
        if dialect:
            saved = _record_run(chain(lines, stream), dialect, name, flags)
        else:
            data = b"".join([*lines, stream.read()])
            plain_records = context.json_objects(data, name=name, todo=_EXPECTED)
    if plain_records:
        iterations = [
            schema.read_iteration(_filled(plain, flags, f"{name}:{line}"), where=f"{name}:{line}")
            for line, plain in plain_records
        ]
        if len(iterations) > 2000 and sys.stderr.isatty():
            note(f"recording {plural(len(iterations), 'iteration')}")
        sources = [Source(file=name, line=line) for line, _ in plain_records]
        with context.opened(anywhere=False) as ralph:
            saved = ralph.remember_all(iterations, sources=sources)
    unknown = ", ".join(_unknown(plain_records))
    notes = [f"{name}: ignored unknown fields: {unknown}"] if unknown else []
    notes += context.feature_notes(flags["feature"])

    features = ", ".join(dict.fromkeys(each.record.feature for each in saved))
    fresh, known = fresh_and_known(saved)
    ids = excerpt(", ".join(each.id[:SHORT_ID] for each in saved), 160)
    shown = [f"Recorded {plural(fresh, 'iteration')} of {features}{known}.", f"  {ids}"]
    shown += [f"  {_run_text(saved[0].record)}"] if dialect else []
    value = [{"id": each.id, "kind": each.kind, **each.record.to_json()} for each in saved]
    return Result(value, shown, notes=notes)


# -- records as JSON


def _filled(plain: dict[str, Any], flags: dict[str, Any], where: str) -> dict[str, Any]:
    """Fill in missing fields of a record from the options and the focus."""
    if client := clients.session_client(plain):
        what = f"this is a session file of {client.title}, not the output of a run"
        todo = f"Import it with: ralph conversations import {client.source}"
        if _is_subagents(client, plain):
            what = f"this is the session file of a sub-agent of {client.title}"
            todo = "Import the session that started it; that has the sub-agent's result."
        raise BadRecord(what, where=where, todo=todo)
    if not plain.keys() & {*schema.FIELDS} - {"session_id"}:
        what = "this is neither an agent's output nor a record"
        raise BadRecord(what, where=where, todo=_EXPECTED)
    own = plain.get("feature")
    if own and flags["feature"] and own != flags["feature"]:
        what = f"this record is of feature {own!r}, not {flags['feature']!r}"
        todo = "Leave --feature out, or record it on its own; nothing was written."
        raise BadRecord(what, where=where, todo=todo)
    if not own:
        todo = "Add --feature NAME, or write it into the record."
        flags = _focused(flags, "this record does not name its feature", where, todo)
    # An empty field counts as missing.
    fills = {key: value for key, value in flags.items() if value and plain.get(key) in (None, "")}
    return {key: value for key, value in plain.items() if schema.is_field(key)} | fills


def _is_subagents(client: clients.Client, first: dict[str, Any]) -> bool:
    """Whether the session with this first line is a sub-agent's."""
    line = io.BytesIO(json.dumps(first).encode() + b"\n")
    head = client.program.sessions().session_head(Path("session.jsonl"), line)
    return head is not None and head.is_subagent


def _unknown(given: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """Return the names of ignored fields, each once."""
    parts = {
        "errors": schema.ErrorSeen,
        "decisions": schema.Decision,
        "files_touched": schema.FileTouched,
    }
    names = [key for _, plain in given for key in plain if not schema.is_field(key)]
    for _, plain in given:
        for key, kind in parts.items():
            whole = [part for part in plain.get(key) or () if isinstance(part, dict)]
            inner = [name for part in whole for name in part]
            names += [f"{key}.{name}" for name in inner if name not in kind.__struct_fields__]
    return list(dict.fromkeys(names))


def _focused(flags: dict[str, Any], what: str, where: str, todo: str) -> dict[str, Any]:
    """Fill in the flags from the focus; raise if neither names a feature."""
    if flags["feature"]:
        return flags
    project = context.the_project() if context.on_server() is None else context.found_project()
    if project is None or (focus := read_focus(project)) is None:
        raise BadRecord(what, where=where, todo=todo)
    task_id = focus.task_id if flags["task_id"] is None else flags["task_id"]
    return flags | {"feature": focus.feature, "task_id": task_id}


# -- an agent's output


def _first_lines(file: BinaryIO, name: str) -> tuple[list[bytes], str | None]:
    """Read the first lines; return them, and the dialect if an agent printed them.

    Noise and unknown events may come before the one that decides. The rest stays in the file.
    """
    lines: list[bytes] = []
    for line in file:
        lines.append(line)
        if len(lines) == 1 and line.startswith(context.UTF16):
            text = line.decode("utf-16", "ignore").encode("utf-8", "replace")
            # We do not convert it, because it may not fit in memory.
            if any(map(_dialect, clients.events_on(text))):
                what = "is UTF-16, as Windows PowerShell redirects it, and an agent prints UTF-8"
                todo = "Convert it: Get-Content FILE | Set-Content -Encoding utf8 run.jsonl"
                raise BadRecord(what, where=name, todo=todo)
            break
        for event in clients.events_on(line):
            if dialect := _dialect(event):
                return lines, dialect
            if event.keys() & set(schema.FIELDS):
                return lines, None
        if len(lines) == 200:
            break
    return lines, None


def _dialect(event: dict[str, Any]) -> str | None:
    return None if event.keys() & _OURS else clients.dialect_of(event)


def _record_run(
    lines: Iterable[bytes], dialect: str, name: str, flags: dict[str, Any]
) -> list[SavedIteration]:
    """Save a run of an agent as one iteration; print a note for each line that cannot be read."""
    todo = "Add --feature NAME, or set one: ralph focus NAME."
    flags = _focused(flags, "an agent's output does not name a feature", name, todo)
    with context.opened(anywhere=False) as ralph:
        root = str(ralph.project.root)
        captured, complaints = clients.read(lines, file=name, root=root, dialect=dialect)
        # A run without an id gets one from its content, so the same output is the same record.
        digest = hashlib.sha256(msgspec.json.encode(captured)).hexdigest()
        run = captured.session_id or f"run-{digest[:32]}"
        # Some agents print no time. A run that was recorded before keeps its first time.
        memory = ralph.feature(flags["feature"])
        same = {
            located.record.id: old.timestamp
            for located, old in memory.of_run(run)
            if str(old.task_id) == str(flags["task_id"])
        }
        # Even a run that was stopped right away is recorded.
        how = captured.terminal_reason.replace("_", " ")
        summary = captured.summary or f"The run ended without a word ({how})."
        at = captured.ended_at or next(iter(same.values()), None)
        more = {"session_id": run, "summary": summary, "timestamp": at}
        iteration = captured.to_iteration(**flags | more)
        for complaint in complaints:
            note(str(complaint))
        saved = ralph.remember_all([iteration], sources=[Source(run=run, file=name)])
        ralph.anchor(anchors_in(captured, saved[0].id))
        # A transcript has the whole session, so the record of a shorter version is outdated.
        if dialect == "transcript" and saved[0].fresh and same:
            memory.forget(list(same), reason="the session went on")
        return saved


def _run_text(iteration: schema.Iteration) -> str:
    """Summarize what was read from a run, so that mistakes are easy to see."""
    facts = [f"iteration {iteration.iteration_number}", iteration.outcome]
    counts = iteration.files_touched, iteration.errors, iteration.decisions
    words = zip(("file", "error", "decision"), counts, strict=True)
    facts += [plural(len(found), word) for word, found in words if found]
    return f"{', '.join(facts)}: {excerpt(iteration.summary, 160)}"
