"""A planning run: an agent turns requirements into features and tasks, in a copy of the plan.

The agent works in the project's folder and its tools write to the copy, so nothing of the plan
changes until somebody accepts what came out. It belongs to no feature and is not remembered.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ralph import disk
from ralph.agents.environment import agent_environment, own_command
from ralph.agents.known import takes_servers
from ralph.agents.process import Ended
from ralph.capture import Captured
from ralph.errors import BadInput, LoopBusy, NotFound, RalphError
from ralph.loop.config_files import PLAN, planning_servers
from ralph.loop.driver import Driver
from ralph.loop.events import Listener
from ralph.loop.gather import prompt_limits
from ralph.loop.proposal import Proposal, errors, refuse_errors
from ralph.loop.work import Work
from ralph.memories.project import Project
from ralph.memories.ralph import Ralph
from ralph.plan.guard import Guard, Snapshot
from ralph.plan.model import KINDS
from ralph.plan.store import Plan
from ralph.prompt.budget import Prompt
from ralph.prompt.planning import braindump_prompt
from ralph.record import now
from ralph.text.estimate import estimate_tokens

_FOLDER = "braindump"
_LOCK = "lock"
_PROPOSAL = "proposal.bin"
_DIFF = "proposal.diff"
_RUNS = "run-"
_LAST_WORDS_CHARS = 300


class Planned(msgspec.Struct, frozen=True):
    """What a planning run came to: the proposal, what the agent said, and what it took."""

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
    """Let an agent propose a plan for these requirements, and keep the proposal until the next."""
    plan = Plan(ralph.project.root, state=ralph.project.cache)
    plan.load()
    settings = ralph.config.settings
    prompt = _prompt(ralph, plan, requirements, source, agent or settings.agent)
    driver = Driver(
        agent or settings.agent,
        settings,
        root=plan.project,
        timeout_s=timeout_s or settings.iteration_timeout_s,
        listener=listener,
        stopping=stop.is_set,
    )
    driver.check()
    with _run_folder(_home(ralph)) as folder:
        copy = _copied(ralph.project, plan, folder / "project")
        before = {kind: copy.raw(kind) for kind in KINDS}
        guard = Guard(plan)
        snapshot = guard.snapshot()
        start = driver.prepare(
            folder,
            planning_servers(ralph, copy.project),
            model=settings.model_review,
            given={"RALPH_PROJECT": str(copy.project), "RALPH_FEATURE": "", "RALPH_TASK": ""},
        )
        output, ended = driver.run(
            start, folder, prompt.text, observe=lambda idle: guard.observe(snapshot, idle=idle)
        )
        captured = output.finish(stderr=ended.stderr, exit_code=ended.exit_code)
        repaired = _put_back(plan, guard, snapshot)
        _refuse_failed(captured, ended, repaired)
        after = {kind: copy.raw(kind) for kind in KINDS}
        if after == before:
            what = f"the agent planned nothing{_said(captured)}"
            todo = "Say more in the requirements, or try another agent."
            raise _nothing(what, repaired, todo=todo)
        refuse_errors(errors(copy))
        proposal = Proposal(source, now(), before, after)
    _keep(_home(ralph), proposal)
    return Planned(
        proposal=proposal,
        summary=captured.summary,
        repaired=repaired,
        cost_usd=captured.cost_usd,
        tokens_used=captured.tokens_used,
        duration_ms=captured.duration_ms or ended.duration_ms,
    )


def kept_proposal(ralph: Ralph) -> Proposal:
    """The newest proposal that nobody has accepted yet."""
    file = _home(ralph) / _PROPOSAL
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=Proposal)
    except FileNotFoundError:
        raise NotFound(
            "there is no proposal to accept", todo="Run: ralph plan braindump FILE"
        ) from None
    except msgspec.DecodeError:
        raise BadInput(
            "the proposal cannot be read", where=str(file), todo="Run the braindump again."
        ) from None


def drop_proposal(ralph: Ralph) -> None:
    """Forget the proposal: it is in the plan now."""
    for name in (_PROPOSAL, _DIFF):
        disk.remove(_home(ralph) / name)


def _home(ralph: Ralph) -> Path:
    return ralph.project.cache / _FOLDER


def _prompt(ralph: Ralph, plan: Plan, requirements: str, source: str, agent: str) -> Prompt:
    limits = prompt_limits(ralph.config.settings)
    if not requirements.strip():
        raise BadInput("there are no requirements in it", where=source, todo="Write some.")
    tokens = estimate_tokens(requirements)
    if tokens > limits.requirements:
        raise BadInput(
            f"the requirements are too long: {tokens} tokens, {limits.requirements} at most",
            where=source,
            todo="Split them, and plan one part after the other.",
        )
    return braindump_prompt(
        requirements,
        plan.read(),
        limits,
        server=PLAN if takes_servers(agent) else None,
        ralph=own_command(agent_environment(also=ralph.config.settings.agent_env), agent=agent),
    )


@contextlib.contextmanager
def _run_folder(home: Path) -> Iterator[Path]:
    """A folder for one run, ours alone and gone afterwards; what a killed run left goes too."""
    disk.make_folder(home)
    try:
        with disk.locked(home / _LOCK, timeout_s=0.0):
            for ruin in home.glob(f"{_RUNS}*"):
                shutil.rmtree(ruin, ignore_errors=True)
            folder = home / f"{_RUNS}{Work.new_run()}"
            folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except disk.Busy:
        raise LoopBusy(
            "another braindump is under way in this project",
            where=str(home / _LOCK),
            todo="Wait for its end.",
        ) from None


def _copied(project: Project, plan: Plan, root: Path) -> Plan:
    """The plan's files and the project's settings in a folder of their own."""
    copy = Project(root, project.home)
    disk.make_folder(copy.db)
    with plan.locked():
        for name in disk.names(project.db):
            if name.endswith(".yaml"):
                disk.write(copy.db / name, disk.read(project.db / name))
    if disk.exists(project.settings_file):
        disk.write(copy.settings_file, disk.read(project.settings_file))
    return Plan(root, state=copy.cache, limits=plan.limits)


def _put_back(plan: Plan, guard: Guard, snapshot: Snapshot) -> list[str]:
    """Undo what was done to the plan itself without a call: a planning run changes the copy only.

    What somebody else did while the agent was idle, or through Ralph, stays.
    """
    writes = [one for kind in KINDS for one in plan.log.since(snapshot.writes, kind)]
    told = [f"meanwhile, through Ralph: {what}" for what in dict.fromkeys(w.what for w in writes)]
    return told + guard.check(snapshot, feature="").lines()


def _refuse_failed(captured: Captured, ended: Ended, repaired: list[str]) -> None:
    if ended.interrupted:
        raise KeyboardInterrupt
    if ended.timed_out:
        what = f"the agent ran out of its time after {ended.duration_ms / 1000:.0f} s"
        raise _nothing(what, repaired, todo="Give it more with --timeout.")
    if captured.is_error or ended.exit_code not in (0, None):
        raise _nothing(f"the agent failed{_said(captured)}", repaired)


def _nothing(what: str, repaired: list[str], *, todo: str = "") -> RalphError:
    """A run that came to nothing, and what had to be done to the plan because of it."""
    end = "" if repaired else "Nothing was changed."
    return RalphError("; ".join([what, *repaired]), todo=f"{todo} {end}".strip())


def _said(captured: Captured) -> str:
    last = [captured.summary] if captured.summary else [e.message for e in captured.errors[-1:]]
    words = " ".join(" ".join(last).split())
    return f": {words[:_LAST_WORDS_CHARS]}" if words else ""


def _keep(home: Path, proposal: Proposal) -> None:
    disk.replace(home / _PROPOSAL, msgspec.msgpack.encode(proposal))
    disk.replace(home / _DIFF, ("\n".join(proposal.diff()) + "\n").encode())
