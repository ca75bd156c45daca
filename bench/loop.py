"""`scripts/bench loop`: what an iteration costs besides its agent, from prompt to learnings.

It runs the real loop with an agent that does next to nothing. Between two iterations it runs the
same agent alone, through its keeper. The extra time of the iteration is Ralph's.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.measure import FEATURE, BenchProject, Compared, filled_project, taken
from bench.report import Row, Target, parser, row_of, show_rows
from ralph.clients import AgentCall, agent_command, agent_environment, found_command
from ralph.loop.agent import LoopEvent
from ralph.loop.process import AgentProcess
from ralph.loop.run import RunOptions, run
from ralph.memory.ralph import open_ralph
from ralph.plan.edit import create_feature, create_task
from ralph.plan.learnings import add
from ralph.plan.store import Plan

_TARGET = Target(value=0.150, about="of the order of")
_WARM_UP = 2
_LEARNINGS = 30
_TASKS = 20
_FOR_EVER = 1000
# It starts and drops its task in turns, and reports that as a real agent would.
_REPORTING = """
cd .ralph/db
if grep -q in_progress tasks.yaml; then a=in_progress b=pending; else a=pending b=in_progress; fi
sed "s/status: $a/status: $b/" tasks.yaml > new && mv new tasks.yaml
cat "$1"
"""
_EVENTS = [
    {"type": "system", "subtype": "init", "cwd": "."},
    {
        "type": "assistant",
        "message": {
            "content": [
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "Bash",
                    "input": {"command": "sed -i s/pending/in_progress/ .ralph/db/tasks.yaml"},
                }
            ]
        },
    },
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
    },
    {"type": "result", "is_error": False, "result": "Moved the task and looked at the code."},
]


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    options = parser("loop", __doc__, sizes="100,1000,5000", repeat=15).parse_args(args)
    rows: list[Row] = []
    for size in options.sizes:
        with filled_project(size) as place:
            _plan(place.project)
            stream = place.scratch / "stream.jsonl"
            stream.write_text("".join(json.dumps(event) + "\n" for event in _EVENTS))
            reporting = shlex.join(["/bin/sh", "-c", _REPORTING, "sh", str(stream)])
            rows += [
                _row("iteration, idle agent", place, "true", options.repeat),
                _row("iteration, agent that reports", place, reporting, options.repeat),
            ]
    return show_rows("loop", rows, options)


def _row(what: str, place: BenchProject, agent: str, rounds: int) -> Row:
    clock = _LoopClock(_alone(place, agent))
    settings: dict[str, Any] = {"review_every": 0, "stagnation_limit": _FOR_EVER}
    options = RunOptions(agent=agent, max_iterations=_WARM_UP + rounds + 1)
    with open_ralph(place.project, home=place.home, **settings) as ralph:
        run(ralph, options, listener=clock.listen, stop=threading.Event())
    alone = clock.alone[_WARM_UP:]
    beside = [whole - agent for whole, agent in zip(clock.whole[_WARM_UP:], alone, strict=True)]
    both = Compared(tuple(beside), tuple(alone))
    return row_of(what, place.size, both, "starting it alone", target=_TARGET)


class _LoopClock:
    """Times each iteration, from one start to the next, and then the agent alone."""

    def __init__(self, alone: Callable[[], object]) -> None:
        self._alone = alone
        self._last: float | None = None
        self.whole: list[float] = []
        self.alone: list[float] = []

    def listen(self, event: LoopEvent) -> None:
        if event.event != "started":
            return
        if self._last is not None:
            self.whole.append(time.perf_counter() - self._last)
            self.alone.append(taken(self._alone))
        self._last = time.perf_counter()


def _alone(place: BenchProject, agent: str) -> Callable[[], object]:
    """Return a function that runs only the agent, through its keeper, in a copy of the project."""
    copy = place.scratch / "alone"
    shutil.copytree(place.project / ".ralph" / "db", copy / ".ralph" / "db", dirs_exist_ok=True)
    env = agent_environment()
    command = found_command(agent_command(agent, AgentCall()), env)

    def start() -> None:
        with (
            tempfile.TemporaryDirectory(dir=place.scratch) as folder,
            AgentProcess(
                command, prompt=b"", folder=Path(folder), cwd=copy, env=env, grace_s=1.0
            ) as process,
        ):
            process.wait(timeout_s=60.0, on_tick=lambda: True)

    return start


def _plan(project: Path) -> None:
    plan = Plan(project)
    prose = {"description": "Finds things by their words. " * 40, "architecture": "An index. " * 60}
    create_feature(plan, FEATURE, prose)
    for number in range(_TASKS):
        create_task(plan, FEATURE, f"Task {number}", {"description": "Do the next part. " * 10})
    for number in range(_LEARNINGS):
        name = f"{chr(97 + number % 26) * 4}{number}"
        add(plan, FEATURE, f"The {name} module waits for its {name}_lock before it writes.")
