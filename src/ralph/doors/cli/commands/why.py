"""`ralph why`: what a session was shown from memory, by which hook or prompt, and what it saved."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from ralph import disk
from ralph.doors.cli import cards, context
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result
from ralph.errors import NotFound, RecordForgotten
from ralph.memory.activity import Activity, counts, read_activity
from ralph.memory.uses import uses
from ralph.recall.kinds import KINDS
from ralph.state_folders import hooks_folder
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph

# Claude Code sets this for the commands that it runs.
_SESSION = "CLAUDE_CODE_SESSION_ID"


@click.command(cls=Command)
@click.argument("session", required=False)
def why(session: str | None) -> Result:
    """Show what a session was told from memory, and from where.

    Without SESSION (an id or its beginning), the session that runs this, or else the last one in
    this project. It knows recent sessions with hooks and recent iterations of `ralph run`. "used"
    means that the record's command, file or fix was in one of the next ten actions.

    \b
    Examples:
      ralph why
      ralph why 3f9a2c --json
    """
    project = context.found_project()
    start = str(context.start_folder())
    root = str(project.root) if project else disk.find_repository(start) or start
    events = read_activity(hooks_folder(root, disk.home()), whole=True)
    named = [one for one in events if one.session]
    wanted = session or os.environ.get(_SESSION) or ""
    names = [one.session for one in named if one.session.startswith(wanted)]
    if not session:
        names = names or [one.session for one in named]
    if not names:
        what = f"no session {session!r} is known here" if session else "no session is known here"
        raise NotFound(what, todo="Hooks and `ralph run` note what they show: ralph hooks status")
    own = [one for one in events if one.session == names[-1]]
    own = [one for one in own if one.shown or one.saved or one.late_s]
    with context.opened() as ralph:
        ids = dict.fromkeys(identity for one in own for identity, _ in one.shown)
        records = {identity: _record(ralph, identity) for identity in ids}
        used = {(use.at, use.id): use.used for use in uses(ralph, own)}
        silent = ralph.silent_ids
    value = [_event(one, records, used, silent) for one in own]
    so_far = counts(own)

    def show(page: Page) -> None:
        total = f"{plural(so_far.shown, 'memory', 'memories')} shown, {so_far.saved} saved"
        page.line((f"Session {names[-1]}", "bold"), f": {total}")
        for one, plain in zip(own, value, strict=True):
            end = f", {plural(one.saved, 'exchange')} saved" if one.saved else ""
            end += f", ran out of time after {one.late_s:g} s" if one.late_s else ""
            page.line(f"{plain['event']}, {cards.minute(one.at)}{end}")
            for each in plain["shown"]:
                score = "    " if each["score"] is None else f"{each['score']:.2f}"
                facts = " | ".join(filter(None, (each["kind"], each["when"], _use(each))))
                page.line(score, " ", (each["id"][: cards.SHORT_ID], "cyan"), f" {facts}", indent=2)
                page.line(each["title"], indent=7)
        if ids:
            page.line("To see one whole: ralph show ID. To delete it: ralph forget ID")

    return Result({"session": names[-1], "events": value, **so_far._asdict()}, show)


def _record(ralph: Ralph, identity: str) -> dict[str, Any]:
    """Return what identifies a record for people; it may have been forgotten."""
    try:
        hit = ralph.get(identity, everywhere=True)
    except (NotFound, RecordForgotten):
        return {"kind": "", "when": "", "title": "(no longer in memory)"}
    return {"kind": KINDS[hit.kind].label, "when": hit.when, "title": cards.one_line_of(hit)}


def _use(shown: dict[str, Any]) -> str:
    """Say whether the session used what it was told."""
    if shown["silent"]:
        return "told three times and never used, so no longer told unasked"
    return {True: "used", False: "not used", None: ""}[shown["used"]]


def _event(
    one: Activity,
    records: dict[str, dict[str, Any]],
    used: Mapping[tuple[str, str], bool | None],
    silent: Collection[str],
) -> dict[str, Any]:
    shown = [
        {
            "id": name,
            "score": score,
            **records[name],
            "used": used.get((one.at, name)),
            "silent": name in silent,
        }
        for name, score in one.shown
    ]
    return {
        "at": one.at,
        "event": "".join(word.title() for word in one.event.split("-")),
        "shown": shown,
        "saved": one.saved,
        "late_s": one.late_s,
    }
