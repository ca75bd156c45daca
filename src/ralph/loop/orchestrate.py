"""The loop as an orchestrator: what it takes from other projects' knowledge for an agent, and what
it gives to them. The agent has no way there; trouble here is one line, and the run goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ralph.errors import BadInput, NotFound, RalphError
from ralph.memory.checkpoints import prune_if_due
from ralph.memory.lessons import lessons, portable, technology_of
from ralph.memory.ralph import Ralph
from ralph.plan.model import Task
from ralph.plan.store import Plan
from ralph.prompt.build import PromptFacts
from ralph.records.iteration import FAILED, Iteration
from ralph.records.knowledge import CheckpointKind

if TYPE_CHECKING:
    from ralph.memory.checkpoints import CheckpointResult
    from ralph.memory.knowledge import Context

T = TypeVar("T")
_ERRORS_ASKED = 3
_OVER = ("done", "skipped")

# How a line is told: its text, and whether it is good news.
Say = Callable[[str, bool], None]


def context_for(ralph: Ralph, facts: PromptFacts) -> Context | None:
    """What other projects' knowledge has for a task; None if there is nothing, or none is wanted.

    What went wrong last is asked first: a failure that somebody has solved matters more now than
    what helped with tasks like this one.
    """
    settings = ralph.config.settings
    if not facts.memory_on or not settings.knowledge_receive:
        return None
    technology = technology_of(ralph.project.root, settings)
    for text in _questions(facts):
        try:
            found = ralph.knowledge.context_for_task(
                text, facts.task.discipline, None, technology, budget_s=settings.remember_budget_s
            )
        except BadInput:
            continue  # a title may be too short to ask with
        if found.block:
            return found
    return None


def _questions(facts: PromptFacts) -> list[str]:
    task = facts.task
    about = [task.title, task.description or "", *task.acceptance_criteria]
    asked = ["\n".join(part for part in about if part)]
    last = facts.attempts[-1] if facts.attempts else None
    if last is not None and last.outcome != "success" and last.errors:
        messages = (error.message for error in last.errors[:_ERRORS_ASKED])
        asked.insert(0, "\n".join([task.title, *messages]))
    return asked


def completed(tasks: Sequence[Task], feature: str | None) -> CheckpointKind | None:
    """What is complete now: the whole plan, this feature, or nothing."""
    open_features = {task.feature for task in tasks if task.status not in _OVER}
    if tasks and not open_features:
        return "project_complete"
    ours = any(task.feature == feature for task in tasks)
    return "phase_complete" if ours and feature not in open_features else None


class Orchestrator:
    """The dealings of one run with knowledge."""

    def __init__(self, ralph: Ralph, plan: Plan, say: Say) -> None:
        self._ralph = ralph
        self._plan = plan
        self._settings = ralph.config.settings
        self._say = say
        self._complained: set[str] = set()

    def begin(self) -> None:
        """Let go of what has had its time, at most once a day."""
        self._carefully("not pruned", lambda: prune_if_due(self._ralph.knowledge))

    def context(self, facts: PromptFacts) -> Context | None:
        """What the agent is told of other projects."""
        return self._carefully("nothing asked", lambda: context_for(self._ralph, facts))

    def report(self, patterns: Sequence[str], iteration: Iteration) -> None:
        """Whether the patterns that an agent was given helped, by what its iteration came to."""
        if iteration.outcome != "success" and iteration.outcome not in FAILED:
            return
        helped, task, run = iteration.outcome == "success", iteration.task_id, iteration.session_id

        def report(pattern: str) -> None:
            with contextlib.suppress(NotFound):  # it has expired, or was forgotten meanwhile
                self._ralph.knowledge.report_outcome(pattern, helped, task=task, run=run)

        for pattern in patterns:
            self._carefully("no outcome reported", partial(report, pattern))

    def give(self, iteration: Iteration, told: Sequence[Iteration]) -> None:
        """Stage what a task that has become done teaches, and publish at the end of a phase."""
        if not self._settings.knowledge_give or iteration.task_id is None:
            return
        project, knowledge = self._ralph.project, self._ralph.knowledge
        technology = technology_of(project.root, self._settings)
        captured = 0
        for one in lessons(told, iteration, project=project.id, technology=technology):
            capture = partial(knowledge.capture_all, [portable(one, project.root)])
            captured += any(saved.fresh for saved in self._carefully("not captured", capture) or ())
        if captured:
            self._say(f"knowledge: {captured} captured", True)
        self.complete(iteration.feature)

    def complete(self, feature: str | None) -> None:
        """Publish what is staged if the plan or this feature is complete."""

        def publish() -> None:
            kind = completed(self._plan.read().tasks, feature)
            if kind is not None:
                self._tell(self._ralph.knowledge.checkpoint(kind=kind))

        if self._settings.knowledge_give:
            self._carefully("not published", publish)

    def cancel(self) -> None:
        """Publish what is staged, within a short time: somebody waits for the run to end."""
        if self._settings.knowledge_give:
            self._carefully("not published", self._publish_in_time)

    def _publish_in_time(self) -> None:
        if not self._ralph.knowledge.staged():
            return
        ended: list[CheckpointResult | RalphError | OSError] = []

        def publish() -> None:
            try:
                ended.append(self._ralph.knowledge.checkpoint(kind="cancelled"))
            except (RalphError, OSError) as error:
                ended.append(error)

        # A checkpoint may be killed at any moment and repeated later, so nobody has to wait.
        thread = threading.Thread(target=publish, name="ralph-checkpoint", daemon=True)
        thread.start()
        thread.join(self._settings.remember_budget_s)
        if not ended:
            self._say("knowledge: not published in time; what is left stays staged", False)
        elif isinstance(ended[0], Exception):
            raise ended[0]
        else:
            self._tell(ended[0])

    def _tell(self, done: CheckpointResult) -> None:
        if done.published:
            kind = done.kind.replace("_", " ")
            self._say(f"knowledge: {len(done.published)} published ({kind})", True)

    def _carefully(self, otherwise: str, do: Callable[[], T]) -> T | None:
        """Do it; what goes wrong is told once, and the run goes on."""
        try:
            return do()
        except (RalphError, OSError) as error:
            line = f"knowledge: {otherwise} ({error})"
        if line not in self._complained:
            self._complained.add(line)
            self._say(line, False)
        return None
