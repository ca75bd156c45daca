"""Driving an agent: started with its servers, followed line by line, ended in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

import msgspec

from ralph.agents.environment import agent_environment
from ralph.agents.known import Call, agent_command, agent_variables, found_command
from ralph.agents.process import AgentProcess, Ended
from ralph.capture import Live
from ralph.config import Settings
from ralph.loop.config_files import Servers, write_mcp_config
from ralph.loop.events import Event, Listener
from ralph.loop.output import Output
from ralph.record import now

_OBSERVE_EVERY_S = 0.5
# How much is read before the clock and the stop are looked at again: an agent may never pause.
_CHUNKS_A_TICK = 16


class Start(msgspec.Struct, frozen=True):
    """The command line and the environment of one run."""

    command: list[str]
    env: dict[str, str]


class Driver:
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
        found_command(agent_command(self.agent, Call()), self._environment(), root=self._root)

    def prepare(
        self, folder: Path, servers: Servers, *, model: str | None, given: dict[str, str]
    ) -> Start:
        """What to start; the servers' file goes into the run's folder."""
        call = Call(
            model=model,
            mcp_config=write_mcp_config(folder, servers),
            mcp_servers=servers.entries,
        )
        env = self._environment(given)
        env |= agent_variables(self.agent, call, env)
        return Start(found_command(agent_command(self.agent, call), env, root=self._root), env)

    def run(
        self, start: Start, folder: Path, prompt: str, *, observe: Callable[[bool], None]
    ) -> tuple[Output, Ended]:
        """One run to its end; `observe` is told often whether the agent was idle since."""
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
                self._listener(Event("doing", now(), msgspec.structs.asdict(shown)))
            return not self._stopping()

        with AgentProcess(
            start.command,
            prompt=prompt.encode(),
            folder=folder,
            cwd=self._root,
            env=start.env,
            grace_s=self._settings.agent_grace_s,
        ) as process:
            ended = process.wait(timeout_s=self._timeout_s, on_tick=tick)
        catch_up()
        observe(output.idle())
        return output, ended

    def output(self, folder: Path, prompt: str, *, agent: str | None = None) -> Output:
        """What a run printed into its folder; the run may be one that another process began."""
        file = folder / "output.jsonl"
        file.touch()
        return Output(file, agent=agent or self.agent, root=str(self._root), injected=prompt)

    def _environment(self, given: dict[str, str] | None = None) -> dict[str, str]:
        return agent_environment(also=self._settings.agent_env, given=given)
