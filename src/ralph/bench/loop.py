"""`ralph bench loop`: what an iteration costs beside its agent, from the prompt to the learnings.

The real loop, with an agent that does next to nothing. Between two iterations the same agent is
started through its keeper alone; what the iteration took longer is Ralph's.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ralph.agents.environment import agent_environment
from ralph.agents.known import Call, agent_command, found_command
from ralph.agents.process import AgentProcess
from ralph.bench.arguments import sizes_of
from ralph.bench.ground import FEATURE, Ground, build
from ralph.bench.measure import Compared, taken
from ralph.bench.report import Row, Target, of_times, to_json, to_markdown, write_table
from ralph.loop.events import Event
from ralph.loop.run import Options, run
from ralph.memories import open_ralph
from ralph.plan.edit import create_feature, create_task
from ralph.plan.learnings import add
from ralph.plan.store import Plan

_SIZES = "100,1000,5000"
_TARGET = Target(value=0.150, about="of the order of")
_WARM_UP = 2
_LEARNINGS, _TASKS = 30, 20
_FOR_EVER = 1000
# It begins and drops its task in turns, and says so as a real agent would.
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
    """Measure, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    sizes = sizes_of(options.sizes, example=_SIZES)
    rows = [row for size in sizes for row in measured(size, rounds=max(1, options.repeat))]
    if options.out:
        options.out.write_text(to_markdown(rows, name="loop"), encoding="utf-8")
    if options.json:
        report = to_json(rows, sizes=sizes, name="loop")
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        write_table(rows, sys.stdout.write, name="loop")
    return 0


def measured(size: int, *, rounds: int) -> list[Row]:
    """The rows of one size; nothing is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    try:
        ground = build(folder, size, lambda text: None)
        _plan(ground.project)
        stream = folder / "stream.jsonl"
        stream.write_text("".join(json.dumps(event) + "\n" for event in _EVENTS))
        reporting = shlex.join(["/bin/sh", "-c", _REPORTING, "sh", str(stream)])
        return [
            _row("iteration, idle agent", ground, "true", rounds),
            _row("iteration, agent that reports", ground, reporting, rounds),
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row(what: str, ground: Ground, agent: str, rounds: int) -> Row:
    clock = _Clock(_alone(ground, agent))
    settings: dict[str, Any] = {"review_every": 0, "stagnation_limit": _FOR_EVER}
    options = Options(agent=agent, max_iterations=_WARM_UP + rounds + 1)
    with open_ralph(ground.project, home=ground.home, **settings) as ralph:
        run(ralph, options, listener=clock.hear, stop=threading.Event())
    alone = clock.alone[_WARM_UP:]
    beside = [whole - one for whole, one in zip(clock.whole[_WARM_UP:], alone, strict=True)]
    both = Compared(tuple(beside), tuple(alone))
    return of_times(what, ground.size, both, "starting it alone", target=_TARGET)


class _Clock:
    """Hears the loop: from one start to the next is an iteration, and then the reference's turn."""

    def __init__(self, alone: Callable[[], object]) -> None:
        self._alone = alone
        self._last: float | None = None
        self.whole: list[float] = []
        self.alone: list[float] = []

    def hear(self, event: Event) -> None:
        if event.event != "started":
            return
        if self._last is not None:
            self.whole.append(time.perf_counter() - self._last)
            self.alone.append(taken(self._alone))
        self._last = time.perf_counter()


def _alone(ground: Ground, agent: str) -> Callable[[], object]:
    """The same agent through its keeper, in a copy of the project, and nothing else."""
    copy = ground.scratch / "alone"
    shutil.copytree(ground.project / ".ralph" / "db", copy / ".ralph" / "db", dirs_exist_ok=True)
    env = agent_environment()
    command = found_command(agent_command(agent, Call()), env)

    def start() -> None:
        with tempfile.TemporaryDirectory(dir=ground.scratch) as folder:
            place = Path(folder)
            with AgentProcess(
                command, prompt=b"", folder=place, cwd=copy, env=env, grace_s=1.0
            ) as process:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ralph bench loop", description=__doc__)
    parser.add_argument("--sizes", default=_SIZES, help=f"how many records (default {_SIZES})")
    parser.add_argument("--repeat", type=int, default=15, help="iterations of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write a Markdown table to this file too")
    return parser
