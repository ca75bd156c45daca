"""Run an agent: fill its folder, follow its output line by line, and end it in time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal

import msgspec

from ralph import clients, disk
from ralph.capture import AgentRun, Live
from ralph.config import variable_text
from ralph.current_run import FEATURE, PROJECT, STARTED, TASK
from ralph.errors import BadInput, LoopBusy
from ralph.loop.process import LOCK, AgentEnd, AgentProcess
from ralph.memory.project import server_wishes
from ralph.memory.ralph import Ralph
from ralph.plan.edit import project_file
from ralph.plan.guard import Snapshot
from ralph.plan.model import Discipline, Task
from ralph.plan.store import Plan
from ralph.programs import find_program, python
from ralph.records import now
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact
from ralph.trust import trusted_hashes

# -- Events that the loop sends while it runs, for a screen, a log or a program.


_Begin = Literal["permissions", "memory", "recovered", "worktree", "started", "doing"]
_Guard = Literal["repaired", "journal", "changed"]
Name = Literal[_Begin, "ended", "committed", _Guard, "learned", "waiting", "stopped"]


class LoopEvent(msgspec.Struct, frozen=True):
    """One event of a run, with its details by name."""

    event: Name
    at: str
    facts: dict[str, Any]


Listener = Callable[[LoopEvent], None]


def tell(listener: Listener, event: Name, **facts: object) -> None:
    """Send an event to the listener."""
    listener(LoopEvent(event, now(), facts))


# -- MCP servers: Ralph's own, and those of the task's discipline.


MEMORY = "feature-memory"
PLAN = "plan"
# Characters that clients reject in a server's name, which becomes part of its tools' names.
_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")

Entry = dict[str, Any]


def loop_servers(
    ralph: Ralph, plan: Plan, task: Task, *, review: bool, memory_on: bool
) -> tuple[dict[str, Entry], list[str]]:
    """Return the MCP servers of one iteration, and a note for each one left out, with the reason.

    Ralph's own server has the memory and the plan, or only the plan when memory is off. The others
    are the discipline's.
    """
    words = [f"--feature={task.feature}"]
    words += ["--review"] if review else [f"--task={task.id}"]
    words += [] if memory_on else ["--no-memory"]
    entries = {own_server(memory_on=memory_on): ralph_server(ralph, plan.project, *words)}
    notes: list[str] = []
    allowed = trusted_hashes(ralph.project.home, plan.project)
    discipline = _discipline(plan, task)
    wishes = server_wishes(discipline)
    for key, entry in discipline.mcp_servers.items():
        if (name := _UNUSABLE.sub("_", str(key))) in (MEMORY, PLAN):
            why = "that name is reserved for Ralph's own server; choose another"
        elif name in entries:
            why = f"another is called {name} too"
        elif not isinstance(entry, dict) or not (entry.get("command") or entry.get("url")):
            why = "it has no `command` and no `url`"
        elif wishes[key].digest not in allowed:
            why = "you have not allowed it. See it and allow it: ralph trust"
        elif (found := _found(entry, plan.project)) is None:
            why = f"{entry['command']!r} is not on the PATH outside the project"
        else:
            entries[name] = found
            continue
        whose = f"disciplines.yaml: the MCP server {key!r} of {discipline.name}"
        notes.append(f"{whose} is left out: {why}")
    return entries, notes


def _discipline(plan: Plan, task: Task) -> Discipline:
    named = (one for one in plan.read("disciplines").disciplines if one.name == task.discipline)
    return next(named, Discipline(name=""))


def own_server(*, memory_on: bool) -> str:
    """The name of Ralph's own server in an iteration."""
    return MEMORY if memory_on else PLAN


def run_variables(plan: Plan, feature: str, task: object, started: str) -> dict[str, str]:
    """Return the variables that tell Ralph which run a call by the agent belongs to."""
    run = {PROJECT: plan.project, FEATURE: feature, TASK: task, STARTED: started}
    return {name: str(value) for name, value in run.items()}


def ralph_server(ralph: Ralph, project: Path, *words: str) -> Entry:
    """Return Ralph's own server as an entry of Claude Code's config file.

    The entry passes on the paths, and the settings that come from no config file.
    """
    program, *isolated = python()
    env = {"RALPH_HOME": str(ralph.project.home), "RALPH_PROJECT": str(project)}
    # The token stays in Ralph's home, never in the agent's files or environment.
    env |= ralph.variables
    # Not the displayed value: for a secret it only says whether there is one.
    env |= {
        f"RALPH_{one.key.upper()}": variable_text(one.key, getattr(ralph.config.settings, one.key))
        for one in ralph.config.origins
        if one.origin == "given" or one.origin.startswith("RALPH_")
    }
    if debug := os.environ.get("RALPH_DEBUG"):
        env["RALPH_DEBUG"] = debug
    return {
        "type": "stdio",
        "command": program,
        "args": [*isolated, "-m", "ralph", "mcp", *words],
        "env": env,
        # Without this, only the tools' names reach the model.
        "alwaysLoad": True,
    }


def _found(entry: Entry, root: Path) -> Entry | None:
    """Return the server with its program's full path, or None if the program is not found.

    The client starts it in the project's folder, where a bare name could match another program.
    """
    command = entry.get("command")
    given = entry.get("env")
    if not isinstance(command, str) or "${" in command or Path(command).name != command:
        return entry
    path = given.get("PATH") if isinstance(given, dict) else None
    program = find_program(command, root=root, path=path if isinstance(path, str) else None)
    return None if program is None else {**entry, "command": program}


# -- What an agent may do.


# A path in backticks: how a plan names one of the project's scripts.
_SCRIPT = re.compile(r"`([\w.-]+(?:/[\w.-]+)+)[ `]")


def plan_scripts(plan: Plan, task: Task) -> list[str]:
    """Return the project's own programs that the plan names in backticks, like `scripts/check`.

    The plan cannot allow other commands, because a stranger may have written it.
    """
    rules = _discipline(plan, task)
    texts = [task.description, *task.acceptance_criteria, rules.system_prompt, *rules.conventions]
    named = dict.fromkeys(_SCRIPT.findall("\n".join(filter(None, texts))))
    files = {one: project_file(plan.project, one) for one in named if ".." not in one}
    return [one for one, file in files.items() if file and os.access(file, os.X_OK)]


def permission_lines(agent: str, setting: str) -> list[str]:
    """Say what an agent may do and how to change it. Empty for a custom agent command."""
    if agent not in clients.BY_AGENT:
        return []
    change = "ralph config --user agent_permissions"
    if clients.agent_permissions(setting).full:
        return [f"Permissions: {agent} may run any command as you. To limit it: {change} project"]
    what = "build, test and lint tools, and git without push; other commands are refused"
    more = "full, or 'project, COMMAND' (`ralph run --dry-run` lists what is allowed now)"
    if agent == "codex":
        what = "commands in its sandbox, which writes only in this folder and has no network"
        more = "full"
    first = f"Permissions: {agent} may edit files here and run {what}."
    return [first, f"To allow more: {change} {more}"]


# How long an agent may take to exit once asked to.
GRACE_S = 10.0
# How long its keeper may take after that to end all remaining processes.
_ENDING_S = 30.0

# -- Following an agent's output file while it grows, and reading the rest once the agent has ended.


_CHUNK_BYTES = 1024 * 1024
# No agent prints a line this long. A longer one is garbage and must not fill our memory.
LONGEST_LINE_BYTES = 64 * 1024 * 1024


class AgentOutput:
    """An agent's output so far, captured line by line in bounded memory."""

    def __init__(self, file: Path, *, agent: str, root: str, injected: str) -> None:
        self._file = file
        self._offset = 0
        self._rest = bytearray()
        self._last = b""
        dialect = clients.output_dialect(agent)
        # Agents without a dialect may print a call only when it is over, or not at all.
        self._announces = dialect is not None
        self._acted = (0, 0)
        self.capture = clients.open_capture(dialect, file=file.name, root=root, injected=injected)
        self._foreign = False

    def follow(self) -> bool:
        """Read the next chunk of new output; return False if there was none."""
        with self._file.open("rb") as opened:
            opened.seek(self._offset)
            data = opened.read(_CHUNK_BYTES)
        if not data:
            return False
        self._offset += len(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._hold(line)
            self._take()
        self._hold(rest)
        return True

    def idle(self) -> bool:
        """Whether no tool call has been running since the last call of this method."""
        caught_up = not self.follow() and not self._rest
        live = self.capture.live
        before = self._acted
        self._acted = (live.running, live.tool_uses)
        quiet = self._announces and not self._foreign and caught_up
        return quiet and not live.running and self._acted == before

    def finish(self, ended: AgentEnd) -> AgentRun:
        """Return the whole output as one value; if it cannot be parsed, how the program ended."""
        while self.follow():
            pass
        if self._rest:
            self._take()
        exit_code = ended.exit_code
        said = ended.stderr.strip().rpartition("\n")[2].strip()
        captured: AgentRun | None = None
        if not self._foreign:
            with contextlib.suppress(BadInput):
                captured = self.capture.finish()
        if captured and (exit_code in (0, None) or captured.summary or captured.errors):
            return captured
        # An agent that fails right at the start gives the reason only on stderr.
        if captured is None:
            if exit_code == 0:
                return AgentRun(dialect="stream-json", terminal_reason="ok")
            # Its last line of output is more useful than "cannot be parsed".
            said = said or self._last[-2000:].decode("utf-8", "replace").strip()
            captured = AgentRun(dialect="stream-json", is_error=True, terminal_reason="error")
        said = redact(said)
        how = f"The agent ended with exit code {exit_code}"
        if ended.timed_out:
            how = f"Stopped after {ended.duration_ms / 1000:.0f} s (--timeout)"
        elif exit_code is None or exit_code < 0:
            how = "The agent was ended" + (f" by signal {-exit_code}" if exit_code else "")
        # Without a message there is no error to recognize if it happens again.
        errors = (ErrorSeen(said, "runtime"),) if said else ()
        summary = f"{how}: {said}" if said else f"{how}; no output."
        return msgspec.structs.replace(captured, summary=summary, errors=errors)

    def _hold(self, part: bytes) -> None:
        if len(self._rest) + len(part) <= LONGEST_LINE_BYTES:
            self._rest += part

    def _take(self) -> None:
        line = bytes(self._rest)
        self._rest.clear()
        self._last = line if line.strip() else self._last
        if not self._foreign:
            try:
                self.capture.feed(line)
            except BadInput:
                self._foreign = True


# Chunks to read before checking the clock and the stop event: an agent may never pause.
_CHUNKS_A_TICK = 16


class AgentDriver:
    """Runs one agent in one project's folder: any number of times, one at a time.

    Agent and timeout default to the settings.
    """

    def __init__(
        self,
        ralph: Ralph,
        agent: str | None,
        timeout_s: float | None,
        listener: Listener,
        stop: threading.Event,
    ) -> None:
        self._settings = ralph.config.settings
        self._root = ralph.project.root
        self.cwd = self._root  # or a worktree of it
        self._timeout_s = timeout_s or self._settings.iteration_timeout_s
        self.agent = agent or self._settings.agent
        self.listener = listener
        self._stop = stop

    def check(self) -> None:
        """Raise if the agent's program is not found."""
        self.command(clients.AgentCall())

    def call(
        self, config: Path, servers: dict[str, Entry], model: str | None, scripts: Sequence[str]
    ) -> clients.AgentCall:
        """Return what the agent is started with. It is always allowed to call Ralph."""
        own = clients.own_command(self._environment(), agent=self.agent)
        allowed = clients.agent_permissions(self._settings.agent_permissions, own, *scripts)
        return clients.AgentCall(model, config, servers, allowed)

    def run(
        self,
        folder: Path,
        prompt: str,
        servers: dict[str, Entry],
        *,
        model: str | None,
        given: dict[str, str],
        observe: Callable[[bool], None],
        scripts: Sequence[str] = (),
    ) -> tuple[AgentOutput, AgentEnd]:
        """Run the agent until it ends. The servers' config file goes into the run's folder.

        `observe` is called often, with whether the agent was idle since the last call.
        """
        config = folder / "mcp.json"  # may contain API keys
        text = json.dumps({"mcpServers": servers}, indent=2, ensure_ascii=False)
        disk.write(config, text.encode())
        call = self.call(config, servers, model, scripts)
        env = self._environment(given)
        env |= clients.agent_variables(self.agent, call, env)
        command = self.command(call, env)
        output = self.output(folder, prompt)
        shown = Live()
        observed = time.monotonic()

        def catch_up() -> None:
            for _ in range(_CHUNKS_A_TICK):
                if not output.follow():
                    break

        def tick() -> bool:
            nonlocal shown, observed
            catch_up()
            if time.monotonic() - observed >= 0.5:
                observed = time.monotonic()
                observe(output.idle())
            if output.capture.live != shown:
                shown = copy(output.capture.live)
                tell(self.listener, "doing", **msgspec.structs.asdict(shown))
            return not self._stop.is_set()

        with AgentProcess(
            command, prompt=prompt.encode(), folder=folder, cwd=self.cwd, env=env, grace_s=GRACE_S
        ) as process:
            ended = process.wait(timeout_s=self._timeout_s, on_tick=tick)
        catch_up()
        observe(output.idle())
        return output, ended

    def output(self, folder: Path, prompt: str, *, agent: str = "", cwd: str = "") -> AgentOutput:
        """Return the output of the run in this folder, which another process may have started."""
        file = folder / "output.jsonl"
        disk.appending(file).close()
        root = cwd or str(self.cwd)
        return AgentOutput(file, agent=agent or self.agent, root=root, injected=prompt)

    def command(self, call: clients.AgentCall, env: dict[str, str] | None = None) -> list[str]:
        """Return the command line of one run, with the program's full path."""
        env = self._environment() if env is None else env
        return clients.found_command(clients.agent_command(self.agent, call), env, root=self._root)

    def _environment(self, given: dict[str, str] | None = None) -> dict[str, str]:
        return clients.agent_environment(also=self._settings.agent_env, given=given)


# -- A running iteration, saved on disk until its record is in the journal.


_FILE = "run.json"
_SNAPSHOT = "snapshot.bin"
_ENDED = "ended.json"
_FOLDER_TIMEOUT_S = 30.0


class PendingIteration(msgspec.Struct, frozen=True, kw_only=True):
    """What this process, or a later one, needs to finish an iteration."""

    run: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex[:12])
    feature: str
    task_id: int | str | None
    title: str
    discipline: str
    review: bool
    started_at: str
    agent: str
    plan_before: str
    task_before: Task | None
    # The patterns from other projects in its prompt.
    patterns: tuple[str, ...] = ()
    # The ids of the other memories in its prompt, by section.
    told: dict[str, list[str]] = {}
    # Where the agent works: the project's folder or a worktree.
    cwd: str = ""


class RunFolder(msgspec.Struct, frozen=True):
    """The folder of unfinished iterations; a finished one is removed."""

    path: Path

    def begin(self, work: PendingIteration, snapshot: Snapshot) -> Path:
        """Save the work; return the folder for its files. It is private: they may hold secrets."""
        folder = self.path / work.run
        with self._alone():  # or another loop takes the half-filled folder for a leftover
            disk.make_folder(folder)
            disk.replace(folder / _SNAPSHOT, msgspec.msgpack.encode(snapshot))
            disk.replace(folder / _FILE, msgspec.json.encode(work))
        return folder

    def ended(self, work: PendingIteration, ended: AgentEnd) -> None:
        """Save how the agent ended, for the process that finishes the work."""
        disk.write(self.path / work.run / _ENDED, msgspec.json.encode(ended))

    def finish(self, work: PendingIteration) -> None:
        """Remove the run's folder, now that its record is in the journal.

        The work file goes first, or half a folder could look like an iteration without output.
        """
        disk.remove(self.path / work.run / _FILE)
        shutil.rmtree(self.path / work.run, ignore_errors=True)

    def snapshot(self, work: PendingIteration) -> Snapshot:
        """Return the plan as it was before the work."""
        # It contains all of the plan's files, some in several versions.
        raw = disk.read(self.path / work.run / _SNAPSHOT, largest=16 * disk.LARGEST_BYTES)
        return msgspec.msgpack.decode(raw, type=Snapshot)

    def how_it_ended(self, work: PendingIteration) -> AgentEnd:
        """Wait until all processes of a killed loop's agent have ended; return how it ended."""
        folder = self.path / work.run
        what = f"the agent of an earlier run on {work.feature!r} is still shutting down"
        busy = LoopBusy(what, where=str(folder), todo="Try again in a minute.")
        with disk.lock(folder / LOCK, timeout_s=GRACE_S + _ENDING_S, busy=busy):
            pass
        try:
            return msgspec.json.decode(disk.read(folder / _ENDED), type=AgentEnd)
        except (FileNotFoundError, msgspec.DecodeError):  # killed before or while it was saved
            return AgentEnd(interrupted=True)  # somebody ended it, but its output is here

    def unfinished(self) -> list[tuple[PendingIteration, Path]]:
        """Return the unfinished work of all loops, running or killed, oldest first."""
        if not self.path.is_dir():
            return []
        found: list[tuple[PendingIteration, Path]] = []
        with self._alone():
            for folder in filter(Path.is_dir, self.path.iterdir()):
                # A file that cannot be decoded is from another version, which may still finish it.
                with contextlib.suppress(msgspec.DecodeError):
                    try:
                        work = msgspec.json.decode(disk.read(folder / _FILE), type=PendingIteration)
                        found += [(work, folder)] if work.run == folder.name else []
                    except FileNotFoundError:
                        # Killed before the work was saved, or after it was finished.
                        shutil.rmtree(folder, ignore_errors=True)
        return sorted(found, key=lambda pair: pair[0].started_at)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        disk.make_folder(self.path)
        lock = self.path / ".lock"
        what = f"another loop has been beginning its work for over {_FOLDER_TIMEOUT_S:.0f} s"
        todo = "Try again; if it stays so, end the process that hangs."
        busy = LoopBusy(what, where=str(lock), todo=todo)
        with disk.lock(lock, timeout_s=_FOLDER_TIMEOUT_S, busy=busy):
            yield
