"""What memory says about a prompt or an error, as facts with their origin and age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ralph.kinds.conversation import Exchange
from ralph.kinds.iteration import ErrorSeen, Iteration
from ralph.prompt.brief import Part, day, fitted, one_line, outcome
from ralph.prompt.template import render
from ralph.recall import Hit
from ralph.text.estimate import estimate_tokens
from ralph.text.marks import mark
from ralph.text.sanitise import plain_id

_TITLE_CHARS = 120
_TOLD_CHARS = 400
_ASKED_CHARS = 250
_ERRORS = 2
_ID_CHARS = 12
_SPARE_CHARS = 500


def recalled_text(
    hits: Sequence[Hit],
    *,
    ended: Mapping[str, str],
    command: str,
    budget_tokens: int,
    max_chars: int,
) -> str:
    """The hits as facts, best first, as many as fit; nothing when none does.

    `ended` says of an attempt that failed, by its id, how the same was done later.
    """
    parts = [Part("", ("\n".join(_told(hit, ended.get(hit.id, ""))),)) for hit in hits]
    return _framed("recalled", parts, command, budget_tokens, max_chars)


def before_text(
    *,
    message: str,
    times: int,
    last: str,
    where: str,
    solution: str | None,
    decisions: Sequence[str],
    tried: Sequence[str],
    id: str,
    command: str,
    budget_tokens: int,
    max_chars: int,
) -> str:
    """What is known of an error that came again; a solution only where there is one."""
    often = "once" if times == 1 else f"{times} times"
    place = f"{one_line(where)}, id {plain_id(id, _ID_CHARS)}"
    if solution:
        lines = [f"Seen {often} before, last on {day(last)}: {one_line(message)}"]
        lines.append(f"How it was solved ({place}): {one_line(solution, _TOLD_CHARS)}")
        lines += [f"Decided then: {one_line(one)}" for one in decisions]
    else:
        lines = [f"Seen {often} before, not solved yet, last on {day(last)}: {one_line(message)}"]
        lines += [f"What was done then: {one_line(one, _TOLD_CHARS)}" for one in tried]
        lines.append(f"Newest record of it: {place}")
    return _framed("before", [Part("", tuple(lines))], command, budget_tokens, max_chars)


def _framed(
    template: str, parts: Sequence[Part], command: str, budget_tokens: int, max_chars: int
) -> str:
    around = render(template, memory=mark(""), command=command)
    body = fitted(
        parts,
        budget_tokens=budget_tokens - estimate_tokens(around),
        max_chars=max_chars - len(around) - _SPARE_CHARS,
    )
    return render(template, memory=mark(body), command=command) if body else ""


def _told(hit: Hit, ended: str) -> list[str]:
    record = hit.record
    if isinstance(record, Iteration):
        return _iteration(record, hit, ended)
    return _exchange(record, hit)


def _iteration(one: Iteration, hit: Hit, ended: str) -> list[str]:
    title = one_line(one.task_title, _TITLE_CHARS)
    lines = [
        f"- Feature {one_line(one.feature)}, {one_line(hit.when)} ({day(one.timestamp)}): "
        f"{outcome(one)}{title}".rstrip()
    ]
    if one.summary and one.summary != one.task_title:
        lines.append(f"  {one_line(one.summary, _TOLD_CHARS)}")
    lines += _errors(one.errors)
    if ended:
        lines.append(f"  done later in {one_line(ended, _TOLD_CHARS)}")
    return [*lines, f"  id {plain_id(hit.id, _ID_CHARS)}"]


def _exchange(one: Exchange, hit: Hit) -> list[str]:
    asked, answered = one_line(one.user, _ASKED_CHARS), one_line(one.assistant, _TOLD_CHARS)
    when = one_line(hit.when)
    lines = [f"- Asked on {when}: {asked}" if asked else f"- Said on {when}: {answered}"]
    if one.status != "complete":
        lines.append(f"  This ended {one.status}.")
    if asked and answered:
        lines.append(f"  Answered: {answered}")
    return [*lines, *_errors(one.errors), f"  id {plain_id(hit.id, _ID_CHARS)}"]


def _errors(errors: Sequence[ErrorSeen]) -> list[str]:
    lines: list[str] = []
    # Those whose solution is known say most.
    for error in sorted(errors, key=lambda one: one.resolution is None)[:_ERRORS]:
        lines.append(f"  error: {one_line(error.message)}")
        if error.resolution:
            lines.append(f"  solved by: {one_line(error.resolution)}")
    return lines
