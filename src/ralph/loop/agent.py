"""Run an agent: start it with its servers, follow its output line by line, end it in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

import msgspec

from ralph.capture import AgentRun, Capture, Live
from ralph.clients import (
    AgentCall,
    Detecting,
    agent_command,
    agent_variables,
    found_command,
    open_capture,
    output_dialect,
)
from ralph.config import Settings
from ralph.errors import BadInput
from ralph.loop.environment import Listener, LoopEvent, Servers, agent_environment, write_mcp_config
from ralph.loop.process import AgentEnd, AgentProcess
from ralph.records import now
from ralph.records.iteration import ErrorSeen
from ralph.text.redact import redact

# How long an agent may take to end after it was asked to.
GRACE_S = 10.0

# -- Following an agent's output file while it grows, and once more when nobody writes to it.


_CHUNK_BYTES = 1024 * 1024
# No agent's line is as long; what is longer is garbage that must not fill our memory.
LONGEST_LINE_BYTES = 64 * 1024 * 1024
_LAST_WORDS_BYTES = 2000


class AgentOutput:
    """What an agent has printed so far, captured line by line in bounded memory."""

    def __init__(self, file: Path, *, agent: str, root: str, injected: str) -> None:
        self._file = file
        self._offset = 0
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        dialect = output_dialect(agent)
        # Other programs may print a call only when it is over, or not at all.
        self._announces = dialect is not None
        self._acted = (0, 0)
        self.capture: Capture
        if dialect is None:
            self.capture = Detecting(file=file.name, root=root, injected=injected)
        else:
            self.capture = open_capture(dialect, file=file.name, root=root, injected=injected)
        self._foreign: BadInput | None = None
        self._last = b""

    def follow(self) -> bool:
        """Take in what is new; False when there was nothing."""
        with self._file.open("rb") as opened:
            opened.seek(self._offset)
            data = opened.read(_CHUNK_BYTES)
        if not data:
            return False
        self._offset += len(data)
        first, *others = data.split(b"\n")
        self._hold(first)
        for line in others:
            self._take(self._held())
            self._hold(line)
        return True

    def idle(self) -> bool:
        """Whether the agent has had no tool call under way since this was last asked."""
        caught_up = not self.follow() and not self._rest_bytes
        live, before = self.capture.live, self._acted
        self._acted = (live.running, live.tool_uses)
        quiet = self._announces and self._foreign is None and caught_up
        return quiet and not live.running and self._acted == before

    def finish(self, *, stderr: str, exit_code: int | None) -> AgentRun:
        """Everything that was printed, as one value. Output nobody understands says at least how
        the program ended."""
        while self.follow():
            pass
        if self._rest_bytes:
            self._take(self._held())
        if self._foreign is None:
            try:
                captured = self.capture.finish()
            except BadInput as error:
                self._foreign = error
            else:
                return _with_last_words(captured, stderr, exit_code)
        well = exit_code == 0
        # What it said last tells more than that nobody understands it.
        last = self._last[-_LAST_WORDS_BYTES:].decode("utf-8", "replace").strip()
        said = redact(_last_line(stderr) or last)
        return AgentRun(
            dialect="stream-json",
            summary="" if well else _ending(exit_code, said),
            errors=() if well else _errors(said),
            is_error=not well,
            terminal_reason="ok" if well else "error",
        )

    def _hold(self, part: bytes) -> None:
        self._rest_bytes += len(part)
        if self._rest_bytes <= LONGEST_LINE_BYTES:
            self._rest.append(part)

    def _held(self) -> bytes:
        line = b"".join(self._rest)
        self._rest, self._rest_bytes = [], 0
        return line

    def _take(self, line: bytes) -> None:
        self._last = line if line.strip() else self._last
        if self._foreign is None:
            try:
                self.capture.feed(line)
            except BadInput as error:
                self._foreign = error


def _with_last_words(captured: AgentRun, stderr: str, exit_code: int | None) -> AgentRun:
    """An agent that fails before it says anything says why on stderr, and only there."""
    if exit_code in (0, None) or captured.summary or captured.errors:
        return captured
    said = redact(_last_line(stderr))
    return msgspec.structs.replace(captured, summary=_ending(exit_code, said), errors=_errors(said))


def _ending(exit_code: int | None, said: str) -> str:
    return f"The agent {_how_it_ended(exit_code)}: {said or 'it said nothing'}"


def _errors(said: str) -> tuple[ErrorSeen, ...]:
    """Silence is no error that could come back and be warned of."""
    return (ErrorSeen(said, "runtime"),) if said else ()


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "was ended"
    if exit_code < 0:
        return f"was ended by signal {-exit_code}"
    return f"ended with exit code {exit_code}"


_OBSERVE_EVERY_S = 0.5
# How much is read before the clock and the stop are looked at again: an agent may never pause.
_CHUNKS_A_TICK = 16


class AgentDriver:
    """The means to run one agent in one project's folder: any number of times, one at a time."""

    def __init__(
        self,
        agent: str,
        settings: Settings,
        *,
        root: Path,
        timeout_s: float,
        listener: Listener,
        stopping: Callable[[], bool],
    ) -> None:
        self.agent = agent
        self._settings = settings
        self._root = root
        self._timeout_s = timeout_s
        self._listener = listener
        self._stopping = stopping

    def check(self) -> None:
        """Refuse an agent that is not there."""
        found_command(agent_command(self.agent, AgentCall()), self._environment(), root=self._root)

    def run(
        self,
        folder: Path,
        prompt: str,
        servers: Servers,
        *,
        model: str | None,
        given: dict[str, str],
        observe: Callable[[bool], None],
    ) -> tuple[AgentOutput, AgentEnd]:
        """One run to its end; the servers' file goes into the run's folder.

        `observe` is told often whether the agent was idle since.
        """
        config = write_mcp_config(folder, servers)
        call = AgentCall(model=model, mcp_config=config, mcp_servers=servers.entries)
        env = self._environment(given)
        env |= agent_variables(self.agent, call, env)
        command = found_command(agent_command(self.agent, call), env, root=self._root)
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
            if time.monotonic() - observed >= _OBSERVE_EVERY_S:
                observed = time.monotonic()
                observe(output.idle())
            if output.capture.live != shown:
                shown = copy(output.capture.live)
                self._listener(LoopEvent("doing", now(), msgspec.structs.asdict(shown)))
            return not self._stopping()

        with AgentProcess(
            command, prompt=prompt.encode(), folder=folder, cwd=self._root, env=env, grace_s=GRACE_S
        ) as process:
            ended = process.wait(timeout_s=self._timeout_s, on_tick=tick)
        catch_up()
        observe(output.idle())
        return output, ended

    def output(self, folder: Path, prompt: str, *, agent: str | None = None) -> AgentOutput:
        """What a run printed into its folder; the run may be one that another process began."""
        file = folder / "output.jsonl"
        file.touch()
        return AgentOutput(file, agent=agent or self.agent, root=str(self._root), injected=prompt)

    def _environment(self, given: dict[str, str] | None = None) -> dict[str, str]:
        return agent_environment(also=self._settings.agent_env, given=given)
