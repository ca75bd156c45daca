"""A planning run: an agent turns requirements into features and tasks, in a copy of the plan.

The agent works in the project's folder and its tools write to the copy, so the plan does not change
until somebody accepts the proposal. The run belongs to no feature and is not saved in memory.
"""

from __future__ import annotations

import contextlib
import difflib
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ralph import disk
from ralph.capture import AgentRun
from ralph.clients import agent_environment, own_command, review_model, takes_servers
from ralph.errors import BadInput, BadPlan, LoopBusy, NotFound, RalphError
from ralph.loop.agent import PLAN, AgentDriver, Listener, ralph_server, run_variables
from ralph.loop.process import AgentEnd
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph
from ralph.plan import model
from ralph.plan.edit import check
from ralph.plan.guard import Guard
from ralph.plan.merge import merge
from ralph.plan.model import KINDS, Data, Kind, by_key, identical
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile
from ralph.prompt.build import Prompt, PromptLimits, braindump_prompt
from ralph.records import now
from ralph.text.tokens import estimate_tokens

# -- A plan that an agent proposes: shown as a diff, and merged into the current plan if accepted.


class Changes(msgspec.Struct, frozen=True):
    """The names and ids of one kind that a proposal adds, changes or removes."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Proposal(msgspec.Struct, frozen=True):
    """The plan's files before and after the agent's changes; None if a file does not exist."""

    source: str
    at: str
    before: dict[Kind, bytes | None]
    after: dict[Kind, bytes | None]

    def changes(self) -> dict[Kind, Changes]:
        """Return what the proposal would change, by kind."""
        found: dict[Kind, Changes] = {}
        for kind in KINDS:
            before, after = (by_key(data, kind) for data in self.data(kind))
            known = [key for key in after if key in before]
            found[kind] = Changes(
                added=tuple(key for key in after if key not in before),
                changed=tuple(key for key in known if not identical(before[key], after[key])),
                removed=tuple(key for key in before if key not in after),
            )
        return found

    def data(self, kind: Kind) -> tuple[Data, Data]:
        """Return the file's data before and after."""
        name = f".ralph/db/{kind}.yaml"
        before, after = (files.get(kind) or b"" for files in (self.before, self.after))
        return PlanFile.read(before, name=name).data, PlanFile.read(after, name=name).data

    def thin(self) -> list[str]:
        """Return the new features whose description is too short to work from."""
        entries = by_key(self.data("features")[1], "features")
        texts = {
            name: str(entries[name].get("description") or "")
            for name in self.changes()["features"].added
        }
        return [n for n, text in texts.items() if model.Feature(name=n, description=text).is_thin()]

    def diff(self) -> list[str]:
        """Return the changes line by line, as `diff -u` shows them."""
        lines: list[str] = []
        for kind in KINDS:
            name = f".ralph/db/{kind}.yaml"
            before, after = (
                (files.get(kind) or b"").decode("utf-8", "replace").splitlines()
                for files in (self.before, self.after)
            )
            lines += difflib.unified_diff(before, after, name, f"{name} (proposed)", lineterm="")
        return lines


class Accepted(msgspec.Struct, frozen=True):
    """The result of accepting a proposal: tasks with a new id, and new `plan check` problems."""

    renumbered: dict[str, model.TaskId]
    problems: list[model.Problem]


def accept(plan: Plan, proposal: Proposal) -> Accepted:
    """Merge the proposal into the current plan: all of it, or nothing."""
    known = {problem.what for problem in check(plan)}
    with plan.editing(f"braindump of {proposal.source}", *KINDS) as data:
        merged, renumbered = _merged(data, proposal)
        # The result must be a valid plan, so it is written elsewhere and checked first.
        with tempfile.TemporaryDirectory(prefix="ralph-plan-") as folder:
            trial = Plan(Path(folder), state=Path(folder))
            disk.make_folder(trial.folder)
            for kind in KINDS:
                text = plan.document(kind).with_data(merged[kind]).text
                disk.write(trial.path(kind), text.encode())
            _refuse_errors([one for one in check(trial) if one.what not in known])
        data.update(merged)
    return Accepted(renumbered, [one for one in check(plan) if one.what not in known])


def _merged(
    data: dict[Kind, Data], proposal: Proposal
) -> tuple[dict[Kind, Data], dict[str, model.TaskId]]:
    merged: dict[Kind, Data] = {}
    conflicts: list[str] = []
    renumbered: dict[str, model.TaskId] = {}
    for kind in KINDS:
        was, now = proposal.data(kind)
        found = merge(kind, was, now, data[kind])
        merged[kind] = found.data
        renumbered |= found.renumbered
        conflicts += found.conflicts
    if conflicts:
        what = f"the plan has changed since this was proposed: {', '.join(conflicts[:10])}"
        todo = "Nothing was changed. Run `ralph plan braindump FILE` again for the plan of now."
        raise BadInput(what, where=".ralph/db", todo=todo)
    return merged, renumbered


def _refuse_errors(problems: Sequence[model.Problem]) -> None:
    """Raise if a proposed plan has errors; warnings don't count."""
    if found := [problem.what for problem in problems if problem.severity == "error"]:
        todo = "Nothing was changed. Run the braindump again, or say more in the requirements."
        raise BadPlan(f"the proposed plan has errors: {'; '.join(found[:5])}", todo=todo)


_PROPOSAL = "proposal.bin"
_DIFF = "proposal.diff"
_RUNS = "run-"


class Planned(msgspec.Struct, frozen=True):
    """The result of a planning run: the proposal, the agent's summary, and the cost."""

    proposal: Proposal
    summary: str
    repaired: list[str]
    cost_usd: float | None
    tokens_used: int | None
    duration_ms: int


def braindump(
    ralph: Ralph,
    requirements: str,
    *,
    source: str,
    agent: str | None = None,
    timeout_s: float | None = None,
    listener: Listener,
    stop: threading.Event,
) -> Planned:
    """Let an agent propose a plan for these requirements; save it in place of the last proposal."""
    plan = Plan(ralph.project.root, state=ralph.project.cache)
    plan.load()
    driver = AgentDriver(ralph, agent, timeout_s, listener, stop)
    prompt = _prompt(ralph, plan, requirements, source, driver.agent)
    driver.check()
    with _run_folder(_home(ralph)) as folder:
        copy = _copied(ralph.project, plan, folder / "project")
        before = {kind: copy.raw(kind) for kind in KINDS}
        guard = Guard(plan)
        snapshot = guard.snapshot()
        output, ended = driver.run(
            folder,
            prompt.text,
            {PLAN: ralph_server(ralph, copy.project, "--planning")},
            model=ralph.config.settings.model_review or review_model(driver.agent),
            given=run_variables(copy, "", "", now()),
            observe=lambda idle: guard.observe(snapshot, idle=idle),
        )
        captured = output.finish(ended)
        # A planning run may only change the copy: direct changes to the plan's files are undone.
        # Changes made through Ralph, or by somebody else while the agent was idle, stay.
        writes = [write.what for kind in KINDS for write in plan.log.since(snapshot.writes, kind)]
        repaired = [f"meanwhile, through Ralph: {what}" for what in dict.fromkeys(writes)]
        repaired += guard.check(snapshot, feature="").lines()
        after = {kind: copy.raw(kind) for kind in KINDS}
        _refuse_nothing(captured, ended, repaired, changed=after != before)
        _refuse_errors(check(copy))
        proposal = Proposal(source, now(), before, after)
    disk.replace(_home(ralph) / _PROPOSAL, msgspec.msgpack.encode(proposal))
    disk.replace(_home(ralph) / _DIFF, ("\n".join(proposal.diff()) + "\n").encode())
    costs = captured.cost_usd, captured.tokens_used, captured.duration_ms or ended.duration_ms
    return Planned(proposal, captured.summary, repaired, *costs)


def kept_proposal(ralph: Ralph) -> Proposal:
    """Return the latest proposal, if nobody has accepted it yet; raise NotFound otherwise."""
    file = _home(ralph) / _PROPOSAL
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=Proposal)
    except FileNotFoundError:
        todo = "Run: ralph plan braindump FILE"
        raise NotFound("there is no proposal to accept", todo=todo) from None
    except msgspec.DecodeError:
        todo = "Run the braindump again."
        raise BadInput("the proposal cannot be read", where=str(file), todo=todo) from None


def drop_proposal(ralph: Ralph) -> None:
    """Delete the proposal once it has been accepted."""
    for name in (_PROPOSAL, _DIFF):
        disk.remove(_home(ralph) / name)


def _home(ralph: Ralph) -> Path:
    return ralph.project.cache / "braindump"


def _prompt(ralph: Ralph, plan: Plan, requirements: str, source: str, agent: str) -> Prompt:
    limits = PromptLimits(prompt=ralph.config.settings.prompt_tokens)
    if not requirements.strip():
        raise BadInput("the file contains no requirements", where=source, todo="Write some.")
    if (tokens := estimate_tokens(requirements)) > limits.requirements:
        what = f"the requirements are too long: {tokens} tokens, {limits.requirements} at most"
        raise BadInput(what, where=source, todo="Split them, and plan one part after the other.")
    return braindump_prompt(
        requirements,
        plan.read(),
        limits,
        server=PLAN if takes_servers(agent) else None,
        ralph=own_command(agent_environment(also=ralph.config.settings.agent_env), agent=agent),
    )


@contextlib.contextmanager
def _run_folder(home: Path) -> Iterator[Path]:
    """A private folder for one run, removed afterwards along with any left by a killed run."""
    disk.make_folder(home)
    what = "another braindump is under way in this project"
    lock = home / "lock"
    busy = LoopBusy(what, where=str(lock), todo="Wait for its end.")
    with disk.lock(lock, timeout_s=0.0, busy=busy):
        for ruin in home.glob(f"{_RUNS}*"):
            shutil.rmtree(ruin, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            prefix=_RUNS, dir=home, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)


def _copied(project: Project, plan: Plan, root: Path) -> Plan:
    """Copy the plan's files and the project's settings to a folder of their own."""
    copy = Project(root, project.home)
    disk.make_folder(copy.db)
    with plan.locked():
        for name in disk.names(project.db):
            if name.endswith(".yaml"):
                disk.write(copy.db / name, disk.read(project.db / name))
    if disk.exists(project.settings_file):
        disk.write(copy.settings_file, disk.read(project.settings_file))
    return Plan(root, state=copy.cache)


def _refuse_nothing(run: AgentRun, ended: AgentEnd, repaired: list[str], *, changed: bool) -> None:
    """Raise if the run produced no plan, and list what was repaired in the real plan."""
    if ended.interrupted:
        raise KeyboardInterrupt
    last = [run.summary] if run.summary else [e.message for e in run.errors[-1:]]
    words = " ".join(" ".join(last).split())
    said = f": {words[:300]}" if words else ""
    todo = "" if repaired else "Nothing was changed."
    if ended.timed_out:
        what = f"the agent ran out of time after {ended.duration_ms / 1000:.0f} s"
        todo = f"Give it more with --timeout. {todo}"
    elif run.is_error or ended.exit_code not in (0, None):
        what = f"the agent failed{said}"
    elif not changed:
        what = f"the agent planned nothing{said}"
        todo = f"Say more in the requirements, or try another agent. {todo}"
    else:
        return
    raise RalphError("; ".join([what, *repaired]), todo=todo.strip())
