"""The text a session starts with, and the prompt of a planning run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ralph.plan.model import Feature, PlanView, Task
from ralph.prompt.build import (
    Prompt,
    PromptLimits,
    PromptSection,
    RepeatedError,
    fit,
    name_of,
    render,
)
from ralph.records.iteration import Iteration, cut
from ralph.text.marks import mark, mark_plan
from ralph.text.sanitize import plain_date, sanitize, sanitize_line
from ralph.text.tokens import estimate_tokens

_NAME_CHARS = 200
_PROSE_CHARS = 400
_STATE_CHARS = 600
_TOLD_CHARS = 300
_ERROR_CHARS = 200
_ERRORS = 2
# For what stands around the memory, and for what the client may add.
_SPARE_CHARS = 500


class BriefPart(msgspec.Struct, frozen=True):
    """A heading and the lines under it; without a line there is no heading either."""

    heading: str
    lines: tuple[str, ...]


def brief_text(
    *,
    feature: Feature,
    chosen: str,
    current_state: str,
    tasks: Sequence[Task],
    outcomes: Sequence[Iteration],
    learnings: Sequence[str],
    repeated: Sequence[RepeatedError],
    command: str,
    budget_tokens: int,
    max_chars: int,
) -> str:
    """The text for the model; `outcomes` newest first."""
    parts = [
        BriefPart("", (_feature(feature, chosen), *_state(current_state))),
        BriefPart("Tasks under way:", tuple(_task(task) for task in tasks)),
        BriefPart(
            "Errors met in more than one iteration:",
            tuple(f"- in {one.iterations}: {one_line(one.message)}" for one in repeated),
        ),
        BriefPart("The last iterations, newest first:", tuple(_outcome(one) for one in outcomes)),
        BriefPart("Learned from earlier iterations, to be verified:", tuple(learnings)),
    ]
    around = render("brief", memory=mark(""), command=command)
    body = fitted(
        parts,
        budget_tokens=budget_tokens - estimate_tokens(around),
        max_chars=max_chars - len(around) - _SPARE_CHARS,
    )
    return render("brief", memory=mark(body), command=command)


def fitted(parts: Sequence[BriefPart], *, budget_tokens: int, max_chars: int) -> str:
    """As many lines as fit, part by part; a part that is cut short makes room for the next."""
    kept: list[str] = []
    for part in parts:
        block: list[str] = []
        for line in part.lines:
            text = line if block else f"{part.heading}\n{line}" if part.heading else line
            tokens, chars = estimate_tokens(text) + 1, len(text) + 2
            if tokens > budget_tokens or chars > max_chars:
                break
            block.append(text)
            budget_tokens -= tokens
            max_chars -= chars
        if block:
            kept.append("\n".join(block))
    return "\n\n".join(kept)


def one_line(text: str, max_chars: int = _ERROR_CHARS) -> str:
    """Recalled text on one line, with every attempt to instruct broken (F20)."""
    return cut(sanitize_line(text), max_chars)


def day(timestamp: str | None) -> str:
    """The date of a moment: it stays true however late the text is read."""
    return plain_date(timestamp) or "an unknown day"


def outcome(one: Iteration) -> str:
    """How it came out, where anybody could tell."""
    return "" if one.outcome == "unknown" else f"{one.outcome}. "


def _feature(feature: Feature, chosen: str) -> str:
    name = one_line(feature.display_name or feature.name, _NAME_CHARS)
    told = one_line(feature.description or "", _PROSE_CHARS)
    return f"Feature {chosen}: {name}" + (f". {told}" if told else "")


def _state(current_state: str) -> list[str]:
    return [f"State: {one_line(current_state, _STATE_CHARS)}"] if current_state else []


def _task(task: Task) -> str:
    title = one_line(task.title, _NAME_CHARS)
    since = f", since {day(task.updated)}" if plain_date(task.updated) else ""
    text = f"- task {one_line(str(task.id))} ({task.status}{since}): {title}"
    if task.comments:
        text += f". Last comment: {one_line(task.comments[-1].text)}"
    return text


def _outcome(one: Iteration) -> str:
    when = f"iteration {one.iteration_number}, {day(one.timestamp)}"
    text = f"- {when}: {outcome(one)}{one_line(one.task_title, _NAME_CHARS)}"
    if one.summary and one.summary != one.task_title:
        text = f"{text.rstrip('. ')}. {one_line(one.summary, _TOLD_CHARS)}"
    # Those that nobody solved matter most.
    for error in sorted(one.errors, key=lambda one: one.resolution is not None)[:_ERRORS]:
        solved = f"; solved by: {one_line(error.resolution)}" if error.resolution else ""
        text += f" [error: {one_line(error.message)}{solved}]"
    return text


# -- The prompt of a planning run: how a plan is made, what it has, and the requirements.


_TASKS_SHOWN = 200


def braindump_prompt(
    requirements: str,
    view: PlanView,
    limits: PromptLimits,
    *,
    server: str | None,
    ralph: str = "ralph",
) -> Prompt:
    """The prompt that turns requirements into features and tasks, through tools or commands."""
    if server:
        how = render("braindump_tools", server=server)
    else:
        how = render("braindump_commands", ralph=ralph)
    text = render(
        "braindump",
        how=how.strip(),
        disciplines=_disciplines(view),
        plan=_so_far(view),
        requirements=mark_plan(sanitize(requirements)),
    )
    return fit(
        [PromptSection("braindump", text)], budget_tokens=limits.prompt + limits.requirements
    )


def _disciplines(view: PlanView) -> str:
    names = ", ".join(name_of(one.name) for one in view.disciplines)
    if not names:
        return "The plan has no disciplines: leave `discipline` out."
    return (
        f"A discipline says how work of one kind is done; give a task the one that fits: {names}."
    )


def _so_far(view: PlanView) -> str:
    """Features and tasks by name; what they say in full the agent asks for."""
    if not view.features and not view.tasks:
        return "(empty)"
    names = dict.fromkeys([*(f.name for f in view.features), *(t.feature for t in view.tasks)])
    lines: list[str] = []
    left = _TASKS_SHOWN
    for name in names:
        lines.append(f"- {name_of(name)}: {_first_line(view, name)}")
        tasks = [task for task in view.tasks if task.feature == name]
        lines += [
            f"  - task {name_of(str(task.id))} ({task.status}): {name_of(task.title)}"
            for task in tasks[:left]
        ]
        if len(tasks) > left:
            lines.append(f"  - and {len(tasks) - left} more tasks")
        left = max(0, left - len(tasks))
    return mark("\n".join(lines))


def _first_line(view: PlanView, name: str) -> str:
    for feature in view.features:
        if feature.name == name:
            said = name_of(feature.display_name or feature.description or "")
            return said[:120] or "(not described yet)"
    return "(not described yet)"
