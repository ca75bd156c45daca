"""Gathering what a prompt is made from: the plan, the files, the memory."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from ralph.agents.environment import agent_environment, own_command
from ralph.agents.known import takes_servers
from ralph.config import Settings
from ralph.errors import BadRecord
from ralph.kinds.iteration import KIND, Iteration, from_record
from ralph.loop.config_files import own_server
from ralph.memories.ralph import Ralph
from ralph.plan.context_files import project_file, without_vanished
from ralph.plan.learnings import prompt_lines, provenance
from ralph.plan.model import Feature, PlanView, Task
from ralph.plan.store import Plan
from ralph.prompt.facts import Facts, KnowledgeFile, Limits, RepeatedError, ReviewFacts
from ralph.record import Record
from ralph.text.redact import redact
from ralph.text.sanitise import sanitised_line
from ralph.text.signature import signature

_LARGEST_FILE_BYTES = 1_000_000
_REPEATED_FROM = 2
# What nobody met for so many iterations does not keep coming back.
_LOOK_BACK = 300
_signature = functools.lru_cache(maxsize=10_000)(signature)


def prompt_limits(settings: Settings) -> Limits:
    """The budgets of a prompt, from the settings."""
    return Limits(
        prompt=settings.prompt_tokens,
        knowledge_file=settings.knowledge_file_tokens,
        knowledge_excerpt=settings.knowledge_excerpt_tokens,
        knowledge_all=settings.knowledge_all_tokens,
    )


def gather(
    ralph: Ralph,
    plan: Plan,
    task: Task,
    *,
    memory_on: bool,
    agent: str | None = None,
    history: History | None = None,
) -> Facts:
    """Everything known about a task now; files that vanished are noted (F4). Nothing changes.

    The prompt names MCP tools to the agents that take them, by default the one in the settings.
    """
    view = plan.load()
    # A task may name a feature that nobody described yet.
    feature = feature_view(view, task.feature) or Feature(name=task.feature)
    feature, vanished = without_vanished(plan, feature)
    told = (history or History(ralph)).of(task.feature)
    settings = ralph.config.settings
    agent = agent or settings.agent
    return Facts(
        feature=feature,
        task=task,
        current_state=view.current_state(task.feature),
        discipline=next((d for d in view.disciplines if d.name == task.discipline), None),
        learnings=tuple(
            prompt_lines(
                feature.learnings,
                current_iteration=last_number(told) + 1,
                task_id=task.id,
                limits=plan.limits,
            )
        ),
        attempts=tuple(_attempts(told, task, settings.attempts_in_prompt)),
        repeated=tuple(repeated_errors(told, settings.warnings_in_prompt)),
        knowledge=tuple(_knowledge(plan.project, feature)),
        vanished=tuple(vanished),
        memory_on=memory_on,
        server=own_server(memory_on=memory_on) if takes_servers(agent) else None,
        ralph=own_command(agent_environment(also=settings.agent_env), agent=agent),
    )


def gather_review(
    facts: Facts, told: Sequence[Iteration], settings: Settings, *, everything: bool
) -> ReviewFacts:
    """What a reviewer must look at: learnings not reviewed yet or all, and what looks stale."""
    wanted = [x for x in facts.feature.learnings if everything or not x.reviewed]
    return ReviewFacts(
        learnings=tuple(
            f"- {one.id}: {sanitised_line(one.text)} {provenance(one)}" for one in wanted
        ),
        all_learnings=everything,
        flags=tuple(stale_prose(facts.feature, last_number(told), settings)),
    )


def stale_prose(feature: Feature, iteration: int, settings: Settings) -> list[str]:
    """Why the feature's prose may no longer be true."""
    verified = feature.last_verified if isinstance(feature.last_verified, int) else 0
    flags: list[str] = []
    if iteration - verified >= settings.prose_stale_iterations:
        when = f"since iteration {verified}" if verified else "yet"
        flags.append(f"The prose has not been verified {when}; this is iteration {iteration}.")
    changed = [f.path for f in feature.context_files if (f.last_touched or 0) > verified]
    if len(changed) > settings.prose_stale_files:
        flags.append(f"{len(changed)} context files changed since: {', '.join(changed[:10])}.")
    return flags


class History:
    """The iterations of one feature after another, each record read once."""

    def __init__(self, ralph: Ralph) -> None:
        self._ralph = ralph
        self._feature: str | None = None
        self._known: list[Record] = []
        self._told: list[Iteration] = []

    def of(self, feature: str) -> Sequence[Iteration]:
        """The feature's iterations as of now, oldest first."""
        records = self._ralph.feature(feature).records()
        if feature != self._feature or records[: len(self._known)] != self._known:
            self._feature, self._known, self._told = feature, [], []
        if len(records) > len(self._known):
            new = [told for one in records[len(self._known) :] if (told := _readable(one))]
            self._known = records
            self._told = sorted([*self._told, *new], key=_order)
        return self._told

    def touching(self, feature: str, paths: Collection[str]) -> list[Iteration]:
        """The iterations that touched one of these files, with no other files in them."""
        wanted = set(paths)
        return [
            msgspec.structs.replace(one, files_touched=files)
            for one in (self.of(feature) if wanted else ())
            if (files := tuple(file for file in one.files_touched if file.path in wanted))
        ]


def _order(iteration: Iteration) -> tuple[int, str]:
    return iteration.iteration_number or 0, iteration.timestamp or ""


def _readable(record: Record) -> Iteration | None:
    """The iteration in a record; what cannot be read is left to `journal verify`."""
    try:
        return from_record(record) if record.kind == KIND else None
    except BadRecord:
        return None


def last_number(told: Sequence[Iteration]) -> int:
    """The number of the newest iteration, 0 before the first."""
    return max((one.iteration_number or 0 for one in told), default=0)


def repeated_errors(told: Sequence[Iteration], count: int) -> list[RepeatedError]:
    """Errors met in two or more iterations, whatever their numbers and paths were."""
    seen: dict[str, set[int]] = {}
    newest: dict[str, str] = {}
    for iteration in told[-_LOOK_BACK:]:
        for error in iteration.errors:
            name = _signature(error.message)
            seen.setdefault(name, set()).add(iteration.iteration_number or 0)
            newest[name] = error.message
    often = [name for name, numbers in seen.items() if len(numbers) >= _REPEATED_FROM]
    often.sort(key=lambda name: (-len(seen[name]), -max(seen[name])))
    return [RepeatedError(newest[name], len(seen[name])) for name in often[:count]]


def _attempts(told: Sequence[Iteration], task: Task, count: int) -> list[Iteration]:
    return [one for one in told if str(one.task_id) == str(task.id)][-count:]


def _knowledge(project: Path, feature: Feature) -> list[KnowledgeFile]:
    found: list[KnowledgeFile] = []
    for path in feature.knowledge_paths:
        file = project_file(project, path)
        if file is not None:
            with file.open("rb") as opened:
                text = opened.read(_LARGEST_FILE_BYTES).decode("utf-8", "replace")
            # The plan names it, not a person: what it holds goes to the agent's provider.
            found.append(KnowledgeFile(path, redact(text)))
    return found


def feature_view(view: PlanView, name: str) -> Feature | None:
    """The feature of this name, if the plan has it."""
    return next((feature for feature in view.features if feature.name == name), None)
