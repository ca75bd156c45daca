"""One iteration: collect the prompt's facts, run the agent, judge the outcome, save and learn."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ralph.capture import AgentRun
from ralph.clients import agent_environment, own_command, review_model, takes_servers
from ralph.errors import BadInput, BadPlan, NotFound, RalphError
from ralph.loop import agent as agents
from ralph.loop.agent import PendingIteration
from ralph.loop.journal_guard import JournalGuard, JournalReport
from ralph.loop.process import AgentEnd
from ralph.memory.activity import RUN, SECOND_CHARS, note_activity
from ralph.memory.anchors import anchors_in
from ralph.memory.drafts import drafts_of
from ralph.memory.feature import SavedIteration
from ralph.memory.lessons import repeated_errors
from ralph.memory.ralph import Ralph
from ralph.memory.standing import CodeStandings
from ralph.plan.edit import (
    drop_vanished,
    enrich,
    project_file,
    update_task,
    without_vanished,
)
from ralph.plan.guard import Guard, GuardReport, Snapshot
from ralph.plan.learnings import learn, prompt_lines, provenance, top
from ralph.plan.model import Feature, Task
from ralph.plan.store import Plan
from ralph.plan.undo import AgentChanges, UndoFolder, changes_of
from ralph.prompt import build
from ralph.records import now
from ralph.records.iteration import Iteration, Outcome
from ralph.records.learning import Learning
from ralph.state_folders import hooks_folder
from ralph.text.redact import redact
from ralph.text.sanitize import sanitize_line
from ralph.text.signature import signature

if TYPE_CHECKING:
    from ralph.loop.run import Orchestrator


# -- Collecting the facts for a prompt from the plan, the files and the memory.


def gather(
    ralph: Ralph, plan: Plan, task: Task, *, memory_on: bool, agent: str | None = None
) -> build.PromptFacts:
    """Collect what is known about a task now, including vanished files (F4), without changes.

    The prompt names MCP tools only if the agent can use them. `agent` defaults to the setting.
    """
    view = plan.load()
    # A task may name a feature that nobody has described yet.
    named = (feature for feature in view.features if feature.name == task.feature)
    feature = next(named, Feature(name=task.feature))
    feature, vanished = without_vanished(plan, feature)
    told = history(ralph, task.feature)
    number = last_number(told) + 1
    attempts = [one for one in told if str(one.task_id) == str(task.id)][-3:]
    repeated = repeated_errors([one.errors for one in told], unsolved=True)
    settings = ralph.config.settings
    agent = agent or ralph.config.settings.agent
    return build.PromptFacts(
        feature=feature,
        task=task,
        current_state=view.current_state(task.feature),
        discipline=next((d for d in view.disciplines if d.name == task.discipline), None),
        learnings=tuple(prompt_lines(feature.learnings, current_iteration=number, task_id=task.id)),
        attempts=tuple(attempts),
        repeated=tuple(repeated),
        knowledge=tuple(_knowledge(plan.project, feature)),
        vanished=tuple(vanished),
        ids={
            "warnings": _ids(
                ralph, task.feature, [_last_with(one.message, told) for one in repeated]
            ),
            "attempts": _ids(ralph, task.feature, attempts),
            "learnings": [one.id for one in top(feature.learnings, task_id=task.id)],
        },
        memory_on=memory_on,
        server=agents.own_server(memory_on=memory_on) if takes_servers(agent) else None,
        ralph=own_command(agent_environment(also=settings.agent_env), agent=agent),
    )


def _last_with(message: str, told: Sequence[Iteration]) -> Iteration:
    """Return the latest iteration with this error."""
    return next(x for x in reversed(told) if any(e.message == message for e in x.errors))


def _ids(ralph: Ralph, feature: str, iterations: Sequence[Iteration]) -> list[str]:
    wanted = {(one.iteration_number, one.timestamp) for one in iterations}
    found = ralph.feature(feature).iterations() if wanted else []
    # A record that still waits to be sent to the server has no id yet.
    records = [located.record for located, _ in found if located.record.id]
    return [one.id for one in records if (one.number, one.at) in wanted]


def gather_review(
    facts: build.PromptFacts,
    told: Sequence[Iteration],
    *,
    everything: bool,
    standings: CodeStandings | None = None,
) -> build.ReviewFacts:
    """Return what a reviewer must check: unreviewed (or all) learnings, and stale-looking prose.

    With `standings`, what people changed in the context files counts as well.
    """
    wanted = _to_review(facts.feature, everything=everything)
    lines = (f"- {one.id}: {sanitize_line(one.text)} {provenance(one)}" for one in wanted)
    edited = {
        file.path: one.iteration_number or 0
        for one in told
        for file in one.files_touched
        if file.action != "read"
    }
    if standings is not None:
        edited |= _edited_by_people(facts.feature, told, standings)
    flags = stale_prose(facts.feature, last_number(told), edited)
    return build.ReviewFacts(learnings=tuple(lines), all_learnings=everything, flags=tuple(flags))


def _to_review(feature: Feature, *, everything: bool) -> list[Learning]:
    return [one for one in feature.learnings if everything or not one.reviewed]


def _edited_by_people(
    feature: Feature, told: Sequence[Iteration], standings: CodeStandings
) -> dict[str, int]:
    """Return the context files that people edited since the prose was verified, as edited now."""
    verified = feature.last_verified if isinstance(feature.last_verified, int) else 0
    times = {one.iteration_number: one.timestamp for one in told}
    since = times.get(verified) or feature.created or ""
    paths = [file.path for file in feature.context_files]
    return dict.fromkeys(standings.edited_by_people(paths, since), verified + 1)


def stale_prose(feature: Feature, iteration: int, edited: Mapping[str, int]) -> list[str]:
    """Say why the feature's prose may be outdated; `edited` maps a file to its last iteration."""
    verified = feature.last_verified if isinstance(feature.last_verified, int) else 0
    flags: list[str] = []
    if iteration - verified >= 10:
        when = f"since iteration {verified}" if verified else "yet"
        flags.append(f"The prose has not been verified {when}; this is iteration {iteration}.")
    changed = [f.path for f in feature.context_files if edited.get(f.path, 0) > verified]
    if len(changed) > 5:
        flags.append(f"{len(changed)} context files changed since: {', '.join(changed[:10])}.")
    return flags


def history(ralph: Ralph, feature: str) -> list[Iteration]:
    """Return the feature's iterations so far, oldest first."""
    found = [one for _, one in ralph.feature(feature).iterations()]
    return sorted(found, key=lambda one: (one.iteration_number or 0, one.timestamp or ""))


def last_number(told: Sequence[Iteration]) -> int:
    """Return the number of the latest iteration, 0 before the first."""
    return max((one.iteration_number or 0 for one in told), default=0)


def _knowledge(project: Path, feature: Feature) -> list[build.KnowledgeFile]:
    found: list[build.KnowledgeFile] = []
    for path in feature.knowledge_paths:
        if (file := project_file(project, path)) is not None:
            with file.open("rb") as opened:
                text = opened.read(1_000_000).decode("utf-8", "replace")
            # Redact it: the plan chose this file, not the user, and it goes to the provider.
            found.append(build.KnowledgeFile(path, redact(text)))
    return found


# -- The outcome of an iteration, found by comparing its task before and after.


# Why a task that is done counts as not done.
REOPENED = "the agent reported it done, but its last check failed"
_UNCHANGED = "the task's status and comments did not change"
_AUTHOR = "ralph"
# Progress without being done: the task was started, or set aside for now.
_MOVED = ("in_progress", "blocked", "skipped")


def judge(old: Task | None, new: Task | None, *, timed_out: bool, rate_limited: bool) -> Outcome:
    """Judge by the task: done is success, moved or commented on is partial, unchanged is failure.

    A task that got done is a success even if the time ran out right after.
    """
    if old and new and new.status == "done" and old.status != "done":
        return "success"
    if timed_out or rate_limited:
        return "timeout" if timed_out else "rate_limited"
    if old is None or new is None:
        return "unknown"
    moved = new.status in _MOVED and new.status != old.status
    commented = any(comment not in old.comments for comment in new.comments)
    return "partial" if moved or commented else "failure"


def _with_reason(captured: AgentRun, ended: AgentEnd, reason: str) -> AgentRun:
    """Return the run with the reason of its outcome in the summary, for whoever reads it later."""
    summary = captured.summary
    if ended.interrupted:
        if captured.terminal_reason == "ok":
            return captured  # it had time for its last words
        captured = msgspec.structs.replace(captured, terminal_reason="interrupted")
        if captured.is_error and not captured.used_tools:
            summary = ""  # it only says with which exit code the client ended
    elif reason == _UNCHANGED and (captured.errors or captured.is_error):
        return captured  # it says why itself
    sentence = f"{reason[:1].upper()}{reason[1:]}." if reason else ""
    return msgspec.structs.replace(captured, summary=f"{summary}\n{sentence}".strip())


def plan_hash(plan: Plan, feature: str) -> str:
    """Return a hash of what the plan says about one feature and its tasks.

    It covers the content, not the bytes: an edit that was undone is no change. Other features are
    left out, because the work of other loops is not progress of this one.
    """
    try:
        view = plan.read()
    except BadPlan:
        return "unreadable"
    features = [one for one in view.features if one.name == feature]
    tasks = [task for task in view.tasks if task.feature == feature]
    names = sorted(one.name for one in view.features)
    return hashlib.sha256(msgspec.json.encode([features, tasks, names])).hexdigest()


class IterationResult(msgspec.Struct, frozen=True):
    """The result of an iteration, for the loop to act on; `id` is that of a new record."""

    id: str
    iteration: Iteration
    captured: AgentRun
    plan_changed: bool


class IterationRunner:
    """Runs iterations on one project."""

    def __init__(self, driver: agents.AgentDriver, plan: Plan, knowledge: Orchestrator) -> None:
        self.ralph = knowledge.ralph
        self.plan = plan
        self.settings = self.ralph.config.settings
        self.runs = agents.RunFolder(self.ralph.project.cache / "runs")
        self._driver = driver
        self._knowledge = knowledge
        self.memory_on = True
        self._limits = build.PromptLimits(prompt=self.settings.prompt_tokens)
        self._tell = functools.partial(agents.tell, driver.listener)
        self._guard = Guard(plan)
        self._journal_guard = JournalGuard(self.ralph)
        self._noted: set[str] = set()

    def preview(self, task: Task, *, review: bool) -> tuple[build.Prompt, list[str]]:
        """Return an iteration's prompt and command line, without other projects' knowledge.

        Nothing is started or written.
        """
        facts = gather(self.ralph, self.plan, task, memory_on=True, agent=self._driver.agent)
        work = build.task_prompt(facts, self._limits)
        prompt = self._review_prompt(facts, everything=False) if review else work
        servers, _ = agents.loop_servers(self.ralph, self.plan, task, review=review, memory_on=True)
        config = self.runs.path / "RUN" / "mcp.json"
        scripts = agents.plan_scripts(self.plan, task)
        call = self._driver.call(config, servers, self._model(review), scripts)
        return prompt, self._driver.command(call)

    def _model(self, review: bool) -> str | None:
        stronger = self.settings.model_review or review_model(self._driver.agent)
        return stronger if review else self.settings.model_work

    def _review_prompt(self, facts: build.PromptFacts, *, everything: bool) -> build.Prompt:
        told = history(self.ralph, facts.task.feature)
        review = gather_review(facts, told, everything=everything, standings=self.ralph.standings)
        return build.review_prompt(facts, review, self._limits)

    def work_on(self, task: Task) -> IterationResult:
        """Run one iteration of work on a task."""
        facts = self._gather(task)
        if (context := self._knowledge.context(facts)) is not None:
            facts = msgspec.structs.replace(facts, context=context.block)
        prompt = build.task_prompt(facts, self._limits)
        carried = context.patterns if context and prompt.has(build.CONTEXT) else ()
        told = {name: ids for name, ids in facts.ids.items() if prompt.has(name)}
        return self._run(task, prompt, told, review=False, patterns=carried)

    def review(self, task: Task, *, everything: bool) -> IterationResult:
        """Run one review of the task's feature with the stronger model."""
        facts = self._gather(task)
        prompt = self._review_prompt(facts, everything=everything)
        learnings = [one.id for one in _to_review(facts.feature, everything=everything)]
        told = {"warnings": facts.ids["warnings"], "learnings": learnings}
        return self._run(task, prompt, told, review=True)

    def _gather(self, task: Task) -> build.PromptFacts:
        facts = gather(
            self.ralph, self.plan, task, memory_on=self.memory_on, agent=self._driver.agent
        )
        if facts.vanished:
            drop_vanished(self.plan, task.feature)
        return facts

    def recover(self, claim: Callable[[str], bool]) -> list[Iteration]:
        """Finish the work that a killed loop left behind; nothing is lost or recorded twice."""
        finished: list[Iteration] = []
        for work, folder in self.runs.unfinished():
            if not claim(work.feature):
                continue  # its loop is still running
            prompt = folder / "prompt.txt"
            if prompt.exists():  # otherwise no agent was started
                ended = self.runs.how_it_ended(work)
                text = prompt.read_text("utf-8", "replace")
                output = self._driver.output(folder, text, agent=work.agent, cwd=work.cwd)
                finished.append(self._finish(work, output, ended).iteration)
            self.runs.finish(work)
        return finished

    def _run(
        self,
        task: Task,
        prompt: build.Prompt,
        told: dict[str, list[str]],
        *,
        review: bool,
        patterns: tuple[str, ...] = (),
    ) -> IterationResult:
        snapshot = self._guard.snapshot()
        work = PendingIteration(
            feature=task.feature,
            task_id=None if review else task.id,
            title=f"Review of {task.feature}" if review else task.title,
            discipline=task.discipline or "",
            review=review,
            started_at=now(),
            agent=self._driver.agent,
            plan_before=plan_hash(self.plan, task.feature),
            task_before=None if review else task,
            patterns=patterns,
            told=told,
            cwd=str(self._driver.cwd),
        )
        folder = self.runs.begin(work, snapshot)
        with self._watched("the journal is not guarded in this iteration"):
            self._journal_guard.begin(folder)
        about = {name: getattr(work, name) for name in ("feature", "task_id", "title", "review")}
        self._tell("started", **about, prompt_tokens=prompt.tokens)
        servers, notes = agents.loop_servers(
            self.ralph, self.plan, task, review=review, memory_on=self.memory_on
        )
        if new := [note for note in notes if note not in self._noted]:
            self._noted.update(new)
            self._tell("repaired", lines=new)
        try:
            output, ended = self._driver.run(
                folder,
                prompt.text,
                servers,
                model=self._model(review),
                given=agents.run_variables(
                    self.plan, task.feature, "" if review else task.id, work.started_at
                )
                | self.ralph.variables,
                observe=lambda idle: self._guard.observe(snapshot, idle=idle),
                scripts=agents.plan_scripts(self.plan, task),
            )
        except BadInput:
            self.runs.finish(work)  # no agent was started, so there is nothing to record
            raise
        except OSError:
            self._check(work, snapshot)  # the agent deleted a file we read, perhaps the plan too
            raise
        self.runs.ended(work, ended)
        result = self._finish(work, output, ended, snapshot)
        self.runs.finish(work)
        return result

    def _finish(
        self,
        work: PendingIteration,
        output: agents.AgentOutput,
        ended: AgentEnd,
        snapshot: Snapshot | None = None,
    ) -> IterationResult:
        """Run the steps after the agent: guard, stagnation before learning (F28), record, learn."""
        captured = output.finish(ended)
        self._check(work, snapshot or self.runs.snapshot(work))
        plan_changed = plan_hash(self.plan, work.feature) != work.plan_before
        outcome, reason = self._outcome(work, captured, ended)
        if reason == REOPENED:
            # Done again and again with the same failing check changes nothing.
            plan_changed = plan_changed and outcome != "failure"
            reason = f"{reason}: {captured.failed_check}"
            self._reopen(work, captured.failed_check)
        captured = _with_reason(captured, ended, reason)
        # A killed loop may have written the record already.
        known = self._recorded(work) if snapshot is None else None
        saved = SavedIteration("", "", known, fresh=False) if known else None
        saved = saved or self._remember(work, captured, ended, outcome)
        iteration = saved.record
        self._note_told(work, iteration)
        costs = ("cost_usd", "tokens_used", "duration_ms")
        self._tell(
            "ended",
            feature=work.feature,
            task_id=work.task_id,
            iteration=iteration.iteration_number,
            outcome=outcome,
            reason=reason,
            summary=iteration.summary,
            errors=[error.message for error in iteration.errors],
            **{name: getattr(iteration, name) for name in costs},
            timed_out=ended.timed_out,
            left_behind=ended.left_behind,
            denied=list(captured.permission_denials),
            mcp_failed=list(captured.mcp_failed),
        )
        self._learn(work, iteration)
        if not work.review and outcome != "interrupted":
            self._knowledge.report(work.patterns, iteration)
            self._knowledge.give(iteration, history(self.ralph, work.feature))
        return IterationResult(saved.id, iteration, captured, plan_changed)

    def _note_told(self, work: PendingIteration, iteration: Iteration) -> None:
        """Log which memories the prompt contained, for people who look at the record."""
        project = self.ralph.project
        at = f"{work.started_at[:SECOND_CHARS]}Z"
        for name, ids in {**work.told, "patterns": work.patterns}.items():
            if ids and iteration.session_id:
                folder = hooks_folder(project.root, project.home)
                shown = [(one, None) for one in ids]
                note_activity(folder, f"{RUN}{name}", iteration.session_id, at=at, shown=shown)

    def _check(self, work: PendingIteration, snapshot: Snapshot) -> None:
        """Restore what the plan lost, and report it."""
        others = {other.feature: other.started_at for other, _ in self.runs.unfinished()}
        others.pop(work.feature, None)
        report = self._guard.check(snapshot, feature=work.feature, others=others)
        if not report.clean:
            self._tell("repaired", lines=report.lines())
        journals = self._journal_guard.check(self.runs.path / work.run)
        if journals.lines:
            self._tell("journal", lines=journals.lines)
        with self._watched("what the agent changed cannot be undone"):
            self._keep_changes(work, report, journals)

    def _keep_changes(
        self, work: PendingIteration, report: GuardReport, journals: JournalReport
    ) -> None:
        """Report what the agent changed in the plan, and keep what `ralph undo` needs."""
        changes = AgentChanges(
            id=work.run,
            feature=work.feature,
            title=work.title,
            at=work.started_at,
            files=changes_of(report.versions, work.task_id),
            journal=journals.copies,
        )
        if changes.files or changes.journal:
            name = UndoFolder(self.ralph.project.cache).keep(changes)
            self._tell("changed", lines=changes.lines(), undo=name)

    @contextlib.contextmanager
    def _watched(self, otherwise: str) -> Iterator[None]:
        """Report an error and go on: without this step, the iteration is only less safe."""
        try:
            yield
        except (RalphError, OSError) as error:
            self._tell("journal", lines=[f"{otherwise}: {error}"])

    def _outcome(
        self, work: PendingIteration, captured: AgentRun, ended: AgentEnd
    ) -> tuple[Outcome, str]:
        """Return the outcome, and why, unless the outcome itself says it."""
        task = None
        with contextlib.suppress(NotFound):
            task = None if work.task_id is None else self.plan.task(work.task_id)
        limited = captured.terminal_reason == "rate_limited"
        outcome = judge(work.task_before, task, timed_out=ended.timed_out, rate_limited=limited)
        if ended.interrupted and outcome != "success":
            return "interrupted", "it was stopped"  # being stopped is not a failure
        if outcome == "success" and captured.failed_check:
            return ("failure" if self._repeats(work, captured) else "partial"), REOPENED
        if outcome == "partial" and self._repeats(work, captured):
            return "failure", "an earlier attempt ended with the same error"
        if work.review and outcome == "unknown":
            return ("failure" if captured.is_error else "success"), ""
        return outcome, _UNCHANGED if outcome == "failure" else ""

    def _reopen(self, work: PendingIteration, check: str) -> None:
        """Set a task that is done back to in progress, because its last check failed."""
        comment = f"Not done: the last check failed: {check}"
        with contextlib.suppress(NotFound):  # the agent removed it
            assert work.task_id is not None
            update_task(
                self.plan,
                work.task_id,
                {"status": "in_progress"},
                comment=comment,
                author=_AUTHOR,
            )

    def _repeats(self, work: PendingIteration, captured: AgentRun) -> bool:
        """Whether an earlier attempt at the task ended with the same unresolved error."""
        still = {signature(error.message) for error in captured.errors if not error.resolution}
        return any(
            signature(error.message) in still
            for one in history(self.ralph, work.feature)
            if str(one.task_id) == str(work.task_id) and one.timestamp != work.started_at
            for error in one.errors
            if not error.resolution
        )

    def _remember(
        self, work: PendingIteration, captured: AgentRun, ended: AgentEnd, outcome: Outcome
    ) -> SavedIteration:
        iteration = captured.to_iteration(
            feature=work.feature,
            task_id=work.task_id,
            task_title=work.title,
            discipline=work.discipline,
            outcome=outcome,
            model_tier="opus" if work.review else "haiku",
            duration_ms=captured.duration_ms or ended.duration_ms or None,
            # The start, not the end, so that finishing the same work twice gives the same record.
            timestamp=work.started_at,
            session_id=captured.session_id or work.run,
        )
        saved = self.ralph.feature(work.feature).remember(iteration)
        self.ralph.anchor(anchors_in(captured, saved.id))
        return saved

    def _recorded(self, work: PendingIteration) -> Iteration | None:
        """Return the record of this work, if a loop was killed right after writing it."""
        # Only one loop at a time works on a feature, so the start time identifies the run.
        earlier = reversed(history(self.ralph, work.feature))
        same = (each for each in earlier if str(each.task_id) == str(work.task_id))
        return next((each for each in same if each.timestamp == work.started_at), None)

    def _learn(self, work: PendingIteration, iteration: Iteration) -> None:
        """Add what the iteration teaches to the plan, if the feature is still in it."""
        told = history(self.ralph, work.feature)
        # Only files touched in this iteration can have become worth listing.
        paths = {file.path for file in iteration.files_touched}
        try:
            drafts = drafts_of(iteration)
            number = iteration.iteration_number or 0
            added, refused = learn(self.plan, work.feature, drafts, current_iteration=number)
            joined = enrich(self.plan, work.feature, told, among=paths)
        except NotFound:
            return  # the feature was removed from the plan while the agent ran
        except BadInput as error:
            self._tell("repaired", lines=[f"nothing was learned from this iteration: {error}"])
            return
        if added or refused or joined:
            texts = [one.learning.text for one in added]
            self._tell("learned", learnings=texts, refused=refused, context_files=joined)
