"""The prompt of a planning run: how a plan is made, what it has, and the requirements."""

from __future__ import annotations

from ralph.plan.model import PlanView
from ralph.prompt.budget import Prompt, Section, fit
from ralph.prompt.build import name_of
from ralph.prompt.facts import Limits
from ralph.prompt.template import render
from ralph.text.marks import mark, mark_plan
from ralph.text.sanitise import sanitise

_TASKS_SHOWN = 200


def braindump_prompt(
    requirements: str, view: PlanView, limits: Limits, *, server: str | None, ralph: str = "ralph"
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
        requirements=mark_plan(sanitise(requirements)),
    )
    return fit([Section("braindump", text)], budget_tokens=limits.prompt + limits.requirements)


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
