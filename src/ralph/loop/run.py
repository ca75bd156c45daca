"""A run: choose a ready task, iterate, decide whether to go on.

A run also reads other projects' knowledge for the agent's prompt, and publishes its own. The agent
itself has no access to it. If knowledge fails, the run reports it in one line and goes on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ralph import disk
from ralph.capture import AgentRun
from ralph.config import Settings
from ralph.errors import BadInput, NotFound, RalphError
from ralph.loop import git
from ralph.loop.agent import AgentDriver, Listener, permission_lines, tell
from ralph.loop.iteration import IterationResult, IterationRunner, history, last_number
from ralph.memory.checkpoints import CheckpointResult
from ralph.memory.knowledge import Context
from ralph.memory.lessons import lessons, portable, technology_of, used
from ralph.memory.ralph import Ralph
from ralph.plan.edit import cycles, ready
from ralph.plan.model import Task
from ralph.plan.store import Plan
from ralph.prompt.build import PromptFacts
from ralph.records import utc
from ralph.records.iteration import FAILED, Iteration
from ralph.records.knowledge import CheckpointKind
from ralph.text.tokens import plural

# -- Knowledge: what the loop reads from other projects for an agent, and what it publishes.


_OVER = ("done", "skipped")


def context_for(ralph: Ralph, facts: PromptFacts) -> Context | None:
    """Return other projects' knowledge for a task; None if there is none or it is turned off.

    The last attempt's errors are searched first: a solution for them matters more than what
    helped with similar tasks.
    """
    settings = ralph.config.settings
    if not facts.memory_on or not settings.knowledge_receive:
        return None
    technology = technology_of(ralph.project.root, settings)
    task = facts.task
    about = [task.title, task.description or "", *task.acceptance_criteria]
    questions = ["\n".join(part for part in about if part)]
    last = facts.attempts[-1] if facts.attempts else None
    if last is not None and last.outcome != "success" and last.errors:
        questions.insert(0, "\n".join(error.message for error in last.errors[:3]))
    for text in questions:
        try:
            found = ralph.knowledge.context_for_task(
                text, task.discipline, None, technology, budget_s=settings.remember_budget_s
            )
        except BadInput:
            continue  # the text may be too short to search for
        if found.block:
            return found
    return None


def completed(tasks: Sequence[Task], feature: str | None) -> CheckpointKind | None:
    """Return what is complete now: the whole plan, this feature, or neither (None)."""
    open_features = {task.feature for task in tasks if task.status not in _OVER}
    if tasks and not open_features:
        return "project_complete"
    ours = any(task.feature == feature for task in tasks)
    return "phase_complete" if ours and feature not in open_features else None


class Orchestrator(msgspec.Struct, eq=False):
    """Reads and publishes knowledge for one run."""

    ralph: Ralph
    plan: Plan
    listener: Listener
    complained: set[str] = set()

    @property
    def _settings(self) -> Settings:
        return self.ralph.config.settings

    def _say(self, line: str, well: bool) -> None:
        tell(self.listener, "memory", line=f"knowledge: {line}", available=well)

    def begin(self) -> None:
        """Remove expired knowledge, at most once a day."""
        with self._careful("not pruned"):
            self.ralph.knowledge.prune_if_due()

    def context(self, facts: PromptFacts) -> Context | None:
        """Return other projects' knowledge for the agent's prompt."""
        with self._careful("nothing asked"):
            return context_for(self.ralph, facts)
        return None

    def report(self, patterns: Sequence[str], iteration: Iteration) -> None:
        """Report whether the patterns that the agent used helped, judged by the outcome."""
        if iteration.outcome != "success" and iteration.outcome not in FAILED:
            return
        helped = iteration.outcome == "success"
        task = iteration.task_id
        run = iteration.session_id
        for pattern in patterns:
            # A missing pattern has expired or was forgotten in the meantime.
            with self._careful("no outcome reported"), contextlib.suppress(NotFound):
                if used(self.ralph.knowledge.pattern(pattern).solution, iteration):
                    self.ralph.knowledge.report_outcome(pattern, helped, task=task, run=run)

    def give(self, iteration: Iteration, told: Sequence[Iteration]) -> None:
        """Stage the lessons of a task that is done, and publish them at the end of a phase."""
        if not self._settings.knowledge_give or iteration.task_id is None:
            return
        project = self.ralph.project
        knowledge = self.ralph.knowledge
        technology = technology_of(project.root, self._settings)
        captured = 0
        for one in lessons(told, iteration, project=project.id, technology=technology):
            with self._careful("not captured"):
                saved = knowledge.capture_all([portable(one, project.root)])
                captured += any(lesson.fresh for lesson in saved)
        if captured:
            self._say(f"{captured} captured", True)
        self.complete(iteration.feature)

    def complete(self, feature: str | None) -> None:
        """Publish staged knowledge if the plan or this feature is complete."""
        if self._settings.knowledge_give:
            with self._careful("not published"):
                if kind := completed(self.plan.read().tasks, feature):
                    self._tell(self.ralph.knowledge.checkpoint(kind=kind))

    def cancel(self) -> None:
        """Publish staged knowledge, but quickly: somebody is waiting for the run to end."""
        ended: list[CheckpointResult | RalphError | OSError] = []

        def publish() -> None:
            try:
                ended.append(self.ralph.knowledge.checkpoint(kind="cancelled"))
            except (RalphError, OSError) as error:
                ended.append(error)

        with self._careful("not published"):
            knowledge = self.ralph.knowledge
            gives = self._settings.knowledge_give
            if not gives or not knowledge.has_staged():
                return
            # A checkpoint may be killed at any moment and repeated later, so a daemon will do.
            thread = threading.Thread(target=publish, name="ralph-checkpoint", daemon=True)
            thread.start()
            thread.join(self._settings.remember_budget_s)
            if not ended:
                self._say("not published in time; what is left stays staged", False)
            elif isinstance(ended[0], Exception):
                raise ended[0]
            else:
                self._tell(ended[0])

    def _tell(self, done: CheckpointResult) -> None:
        if done.published:
            self._say(f"{len(done.published)} published ({done.kind.replace('_', ' ')})", True)

    @contextlib.contextmanager
    def _careful(self, otherwise: str) -> Iterator[None]:
        """Report an error once and let the run go on."""
        try:
            yield
        except (RalphError, OSError) as error:
            if (line := f"{otherwise} ({error})") not in self.complained:
                self.complained.add(line)
                self._say(line, False)


# -- A run: choose a ready task, iterate, decide whether to go on.


# One out of this many reviews looks at all learnings.
_VERIFY_ALL_EVERY = 5

# -- Which loop works on which feature: one lock per feature, which the system frees if we die.


class Claims:
    """The one feature this loop works on; two loops never hold the same one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = contextlib.ExitStack()
        self.feature: str | None = None

    def take(self, feature: str) -> bool:
        """Lock this feature and release the previous one; return False if another loop has it."""
        if self.feature != feature:
            disk.make_folder(self._folder)
            stack = contextlib.ExitStack()
            name = hashlib.sha256(feature.encode()).hexdigest()[:16]
            with contextlib.suppress(disk.Busy):
                stack.enter_context(disk.lock(self._folder / f"feature-{name}.lock", timeout_s=0.0))
                self.release()
                self._held = stack
                self.feature = feature
        return self.feature == feature

    def release(self) -> None:
        """Release the feature."""
        self._held.close()
        self.feature = None


StopReason = Literal[
    "no_ready_task", "max_iterations", "stagnation", "budget", "interrupted", "taken"
]
_ALLOW = "To allow a command: ralph config --user agent_permissions 'project, COMMAND'"
_RATE_LIMIT_MARGIN_S = 5.0
# How long to wait if the provider does not say when its limit resets.
_RATE_LIMIT_WAIT_S = 300.0


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run; defaults come from the settings."""

    feature: str | None = None
    task_id: int | str | None = None
    agent: str | None = None
    max_iterations: int | None = None
    timeout_s: float | None = None
    budget_usd: float | None = None
    worktree: bool = False
    commit: bool = False


class Totals(msgspec.Struct):
    """The totals of a run."""

    iterations: int = 0
    outcomes: dict[str, int] = {}
    cost_usd: float = 0.0
    tokens_used: int = 0


class RunResult(msgspec.Struct, frozen=True):
    """Why a run ended, and its totals."""

    reason: StopReason
    detail: str
    totals: Totals


def run(ralph: Ralph, order: RunOptions, *, listener: Listener, stop: threading.Event) -> RunResult:
    """Drive an agent over the plan until there is a reason to stop."""
    return _LoopRun(ralph, order, listener, stop).go()


def preview(ralph: Ralph, order: RunOptions) -> dict[str, Any]:
    """Return what a run would do first, or why it would do nothing. Starts and writes nothing."""
    return _LoopRun(ralph, order, lambda event: None, threading.Event()).preview()


class _LoopRun:
    def __init__(
        self, ralph: Ralph, options: RunOptions, listener: Listener, stop: threading.Event
    ) -> None:
        self._ralph = ralph
        self._options = options
        self._stop = stop
        self._settings = ralph.config.settings
        self._plan = Plan(ralph.project.root, state=ralph.project.cache)
        self._claims = Claims(ralph.project.cache / "locks")
        self._driver = AgentDriver(ralph, options.agent, options.timeout_s, listener, stop)
        self._tell = functools.partial(tell, listener)
        self._knowledge = Orchestrator(ralph, self._plan, listener)
        self._iterating = IterationRunner(self._driver, self._plan, self._knowledge)
        self._totals = Totals()
        self._stagnant = self._refused = 0
        self._denied: list[str] = []
        self._worktrees: dict[str, git.Worktree] = {}
        # For each checkout, the files that had changes before this run.
        self._dirty: dict[Path, set[str]] = {}

    def preview(self) -> dict[str, Any]:
        self._refuse_bad_plan()
        self._driver.check()
        options = self._options
        settings = self._settings
        agent = self._driver.agent
        if options.commit:
            git.repository(self._ralph.project.root, "--commit")
        if not (tasks := self._ready()):
            return {"detail": self._why_none_is_ready(), "task_id": None}
        task = tasks[0]
        review = self._review_number(tasks[0]) > 0
        tree = None
        if options.worktree:
            tree = git.worktree_of(self._ralph.project, task.feature, create=False)
        prompt, command = self._iterating.preview(task, review=review)
        return {
            "detail": f"{task.feature}, task {task.id}: {task.title}",
            "task_id": task.id,
            "review": review,
            "prompt_tokens": prompt.tokens,
            "budget_usd": options.budget_usd,
            "max_iterations": options.max_iterations,
            "timeout_s": options.timeout_s or settings.iteration_timeout_s,
            "directory": tree.cwd if tree else str(self._ralph.project.root),
            "branch": tree.branch if tree else None,
            "commit": options.commit,
            "permissions": permission_lines(agent, settings.agent_permissions),
            "command": command,
        }

    def go(self) -> RunResult:
        try:
            rag = self._ralph.status()
            self._iterating.memory_on = rag.available
            self._tell("memory", line=rag.line, available=rag.available)
            self._show_permissions()
            self._knowledge.begin()
            if recovered := self._iterating.recover(self._claims.take):
                self._tell("recovered", iterations=len(recovered))
            self._refuse_bad_plan()
            self._driver.check()
            if self._options.commit and not self._options.worktree:
                top = git.repository(self._ralph.project.root, "--commit")
                self._dirty[top] = git.changed_files(top)
            while True:
                task = self._reason_to_stop() or self._choose()
                if not isinstance(task, Task):
                    return self._stopped(*task)
                self._count(self._iterate(task))
        finally:
            self._claims.release()

    def _show_permissions(self) -> None:
        """Report what the agent may do, once per project and again whenever that changes."""
        lines = permission_lines(self._driver.agent, self._settings.agent_permissions)
        file = self._ralph.project.cache / "permissions.txt"
        text = "\n".join(lines).encode()
        with contextlib.suppress(OSError):
            if not lines or disk.read(file) == text:
                return
        self._tell("permissions", lines=lines)
        disk.make_folder(file.parent)
        disk.replace(file, text)

    def _refuse_bad_plan(self) -> None:
        """Raise, before anything runs, if the plan is unusable or lacks what the options name."""
        view = self._plan.load()
        if found := cycles(view.tasks):
            what = f"tasks block each other in a cycle: {' -> '.join(map(str, found[0]))}"
            todo = "Remove one of them from another's blocked_by."
            raise BadInput(what, where=self._plan.file_name("tasks"), todo=todo)
        name = self._options.feature
        if name is not None and not any(task.feature == name for task in view.tasks):
            self._plan.feature(name)
        if self._options.task_id is not None:
            self._plan.task(self._options.task_id)

    def _reason_to_stop(self) -> tuple[StopReason, str] | None:
        options = self._options
        totals = self._totals
        if self._stop.is_set():
            return "interrupted", "on request"
        if options.max_iterations is not None and totals.iterations >= options.max_iterations:
            return "max_iterations", f"{plural(totals.iterations, 'iteration')} (--max-iterations)"
        if self._stagnant >= self._settings.stagnation_limit:
            return "stagnation", f"{self._stagnant} iterations changed nothing in the plan"
        if options.budget_usd is not None and totals.cost_usd >= options.budget_usd:
            return "budget", f"{totals.cost_usd:.2f} USD spent of {options.budget_usd:.2f}"
        return None

    def _choose(self) -> Task | tuple[StopReason, str]:
        """Return the first ready task whose feature no other loop works on, or why to stop."""
        if not (tasks := self._ready()):
            return "no_ready_task", self._why_none_is_ready()
        for task in tasks:
            if self._claims.take(task.feature):
                return task
        names = ", ".join(sorted({task.feature for task in tasks}))
        return "taken", f"other loops work on every feature with a ready task: {names}"

    def _ready(self) -> list[Task]:
        tasks = ready(self._plan.load().tasks, feature=self._options.feature)
        wanted = self._options.task_id
        return [task for task in tasks if wanted is None or str(task.id) == str(wanted)]

    def _why_none_is_ready(self) -> str:
        wanted = self._options.task_id
        name = self._options.feature
        tasks = self._plan.read().tasks
        if wanted is None:
            own = [task for task in tasks if name in (None, task.feature)]
            if not own:
                add = f"Add one: ralph task add TITLE --feature {name or 'NAME'}"
                return f"{name or 'the plan'} has no tasks yet. {add}"
            over = name and all(task.status in _OVER for task in own)
            return f"every task of {name} is done" if over else "no task is ready"
        task = self._plan.task(wanted)
        if name not in (None, task.feature):
            return f"task {wanted} belongs to {task.feature}, not to {name}"
        if task.status in ("pending", "in_progress"):
            done = {str(other.id) for other in tasks if other.status == "done"}
            waits = [str(blocker) for blocker in task.blocked_by if str(blocker) not in done]
            return f"task {wanted} is not ready: it waits for {', '.join(waits)}"
        return f"task {wanted} is {task.status}"

    def _iterate(self, task: Task) -> IterationResult:
        if self._options.worktree:
            self._driver.cwd = Path(self._worktree(task.feature).cwd)
        if number := self._review_number(task):
            done = self._iterating.review(task, everything=number % _VERIFY_ALL_EVERY == 0)
        else:
            done = self._iterating.work_on(task)
        if self._options.commit and done.iteration.outcome == "success":
            self._commit(task, done)
        return done

    def _worktree(self, feature: str) -> git.Worktree:
        if feature not in self._worktrees:
            found = self._worktrees[feature] = git.worktree_of(self._ralph.project, feature)
            self._dirty[Path(found.path)] = git.changed_files(Path(found.path))
            self._tell("worktree", **msgspec.structs.asdict(found))
        return self._worktrees[feature]

    def _commit(self, task: Task, done: IterationResult) -> None:
        """Commit the changes of this iteration and earlier ones; report a failure and go on."""
        tree = self._worktrees.get(task.feature)
        top = Path(tree.path) if tree else next(iter(self._dirty))
        title = f"{task.feature}: {done.iteration.task_title}"
        made = git.commit_changes(top, self._dirty[top], title=title, iteration=done.id)
        self._tell("committed", **made)

    def _review_number(self, task: Task) -> int:
        """Return the number of the feature's review that is due now, 0 if none is."""
        told = history(self._ralph, task.feature)
        every = self._settings.review_every
        # A review that the provider just refused is still due.
        refused = (one.model_tier == "opus" and one.outcome == "rate_limited" for one in told[::-1])
        number = last_number(told) + 1 - sum(1 for _ in itertools.takewhile(bool, refused))
        # A review of a feature without text writes it. The plan must have the feature for that.
        is_planned = any(x.name == task.feature for x in self._plan.read("features").features)
        return number // every if every and number % every == 0 and is_planned else 0

    def _count(self, told: IterationResult) -> None:
        totals = self._totals
        iteration = told.iteration
        self._denied += told.captured.permission_denials
        totals.cost_usd += iteration.cost_usd or 0.0
        totals.tokens_used += iteration.tokens_used or 0
        totals.outcomes[iteration.outcome] = totals.outcomes.get(iteration.outcome, 0) + 1
        if iteration.outcome == "rate_limited":
            self._refused += 1
            self._wait_for_rate(told.captured)
            return  # nothing was tried, so it does not count
        self._refused = 0
        totals.iterations += 1
        if iteration.model_tier != "opus":
            self._stagnant = 0 if told.plan_changed else self._stagnant + 1

    def _wait_for_rate(self, captured: AgentRun) -> None:
        seconds = _RATE_LIMIT_WAIT_S
        if until := captured.rate_limit_resets_at:
            reset = datetime.fromisoformat(utc(until))
            seconds = (reset - datetime.now(UTC)).total_seconds() + _RATE_LIMIT_MARGIN_S
            # If we are refused again after the stated time, some clock is wrong: wait longer.
            least = _RATE_LIMIT_MARGIN_S * (2 ** (self._refused - 1) - 1)
            seconds = max(seconds, min(least, _RATE_LIMIT_WAIT_S))
        seconds = max(0.0, seconds)
        self._tell("waiting", seconds=round(seconds, 1), until=until)
        # Wait by the wall clock, in slices: the machine may sleep in the meantime, and a signal
        # handler may not set the event while this thread waits on it.
        end = time.time() + seconds
        while not self._stop.is_set() and (left := end - time.time()) > 0:
            time.sleep(min(left, 0.2))

    def _stopped(self, reason: StopReason, detail: str) -> RunResult:
        totals = self._totals
        if reason == "interrupted":
            self._knowledge.cancel()
        elif reason == "no_ready_task":
            self._knowledge.complete(self._options.feature)
        numbers = msgspec.structs.asdict(totals) | {"cost_usd": round(totals.cost_usd, 6)}
        trees = self._worktrees.values()
        hints = [git.merge_hint(self._ralph.project.root, tree) for tree in trees]
        if self._denied:
            named = ", ".join(dict.fromkeys(self._denied))
            hints.append(f"{plural(len(self._denied), 'call')} denied: {named}. {_ALLOW}")
        self._tell("stopped", reason=reason, detail=detail, **numbers, hints=hints)
        return RunResult(reason, detail, totals)
