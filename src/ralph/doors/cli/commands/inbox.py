"""`ralph inbox`: rules from your corrections, to hold or ask about what they forbid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralph.capture.forbidden import shown_target
from ralph.doors.cli import cards, context
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result, plain
from ralph.errors import BadInput
from ralph.text.sanitize import plain_date

if TYPE_CHECKING:
    from ralph.memory.inbox import Action, Check

_ACTIONS: dict[str, Action] = {
    "hold": "hold",
    "ask": "ask",
    "replace": "replace",
    "dismiss": "dismissed",
}
_UNDO = "undo"
_STATES = {
    "": "waits",
    "hold": "held",
    "ask": "asked about",
    "replace": "replaced",
    "dismissed": "dismissed",
}
_EMPTY = (
    'Nothing is in the inbox. Corrections such as "never run the migrations here" or "use pnpm" '
    "come here after their session."
)
_OFF = "Checks are off here. To turn them on: ralph config hook_checks true"


@click.command(cls=Command)
@click.argument("action", type=click.Choice([*_ACTIONS, _UNDO]), required=False)
@click.argument("rule", metavar="[ID]", required=False)
@context.option("--command", "The command it is about, as you would type it.", "LINE")
@context.option("--path", "The file, folder or pattern of paths it is about.", "PATH")
@context.flag("--all", "Also rules that you dismissed.", "every")
def inbox(
    action: str | None, rule: str | None, command: str | None, path: str | None, every: bool
) -> Result:
    """List rules from your corrections, and choose what happens to what they forbid.

    A rule that waits does nothing. `hold` stops a command, or a change of a file, once a session,
    and gives the agent your rule as the reason. `ask` makes the client ask you each time. Of two
    rules that contradict each other, `replace` keeps only the newer one in force. Only you can
    approve a rule: what you choose is stored on this machine, not in the project.

    \b
    Examples:
      ralph inbox
      ralph inbox hold 3f9a
      ralph inbox ask 3f9a --command "git push"
      ralph inbox dismiss 3f9a
      ralph inbox undo 3f9a
    """
    if action is None:
        if command is not None or path is not None:
            raise BadInput("say for which rule", todo="ralph inbox hold ID --command LINE")
        return _listed(every)
    if rule is None:
        raise BadInput("say which rule", todo=f"Try: ralph inbox {action} ID. See: ralph inbox")
    if action == _UNDO:
        return _undone(rule)
    return _answered(rule, _ACTIONS[action], command, path)


def _listed(every: bool) -> Result:
    from ralph.memory.inbox import inbox as rules

    with context.opened() as ralph:
        checks = rules(ralph, every=every)

    def show(page: Page) -> None:
        if not checks:
            page.line(_EMPTY)
        for check in checks:
            _show(page, check)
        waiting = next((check for check in checks if not check.action), None)
        if waiting is not None:
            name = waiting.id[: cards.SHORT_ID]
            page.line(f"To choose: ralph inbox {waiting.suggested} {name}, or dismiss {name}")

    return Result([_json(check) for check in checks], show)


def _show(page: Page, check: Check) -> None:
    if check.older:
        state = "an older rule was replaced" if check.action else "two rules contradict each other"
        page.line(cards.short_id(check.id), f"  {state}")
        page.line(
            f'older: "{check.older}", record {check.older_record[: cards.SHORT_ID]}', indent=2
        )
        page.line(f'newer: "{check.text}"', indent=2)
    else:
        page.line(cards.short_id(check.id), f"  {_STATES[check.action]}: {_about(check)}")
        page.line(f'"{check.text}"', indent=2)
    day = plain_date(check.at)
    said = f"said on {day}, " if day else ""
    page.line(f"{said}record {check.record[: cards.SHORT_ID]}", indent=2)


def _about(check: Check) -> str:
    return ", ".join(f"`{shown_target(target)}`" for target in check.targets)


def _json(check: Check) -> dict[str, Any]:
    return {**plain(check), "targets": [plain(target) for target in check.targets]}


def _undone(rule: str) -> Result:
    from ralph.memory.inbox import take_back

    with context.opened() as ralph:
        check = take_back(ralph, rule)
    return Result(_json(check), f"{check.id[: cards.SHORT_ID]} waits again.")


def _answered(rule: str, action: Action, command: str | None, path: str | None) -> Result:
    from ralph.memory.inbox import answer

    with context.opened() as ralph:
        check = answer(ralph, rule, action, command=command, path=path)
        settings = ralph.config.settings
    name = check.id[: cards.SHORT_ID]
    if action == "replace":
        return Result(_json(check), f'{name}: "{check.older}" is no longer told as current.')
    if action == "dismissed":
        return Result(_json(check), f"{name} is dismissed.")
    is_on = settings.hook_checks and settings.hook_inject
    done = "is held once a session" if action == "hold" else "is asked about each time"
    text = f"{name}: {_about(check)} {done}."
    return Result(_json(check), text, notes=[] if is_on else [_OFF])
