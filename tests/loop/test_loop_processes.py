"""Several loops, interrupted loops and killed loops, as processes of their own."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from looping import (
    DONE,
    MARK,
    Late,
    Loop,
    eventually,
    lines,
    marked,
    none_is_left,
    planned,
    python,
    ralph_process,
    scripted,
    shell,
)
from remembering import state_of

from ralph.loop.agent import RunFolder
from ralph.loop.run import Claims

if sys.platform == "win32":
    pytest.skip("signals are another thing there", allow_module_level=True)

ROUNDS = int(os.environ.get("RALPH_KILL_ROUNDS", "12"))


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark that every process we start inherits; whatever a failed test left is ended."""
    name = uuid.uuid4().hex
    monkeypatch.setenv(MARK, name)
    monkeypatch.setenv("RALPH_EMBEDDER", "none")
    monkeypatch.setenv("RALPH_REVIEW_EVERY", "0")
    yield name
    for pid in marked(name):
        os.kill(pid, signal.SIGKILL)


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What a `ralph run --json` tells, as it tells it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def until(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    """The next event of this name."""
    return next(event for event in events(process) if event["event"] == name)


# -- several loops


def test_two_loops_at_once_take_different_features_and_a_third_finds_all_taken(
    loop: Loop, tmp_path: Path
) -> None:
    agent = shell(
        tmp_path, "touch ../began-$RALPH_FEATURE; while [ ! -e ../go ]; do sleep 0.02; done"
    )
    words = ["run", "--json", "--max-iterations", "1", "--agent", agent]
    with ralph_process(words, cwd=loop.root) as one, ralph_process(words, cwd=loop.root) as two:
        first, second = until(one, "started"), until(two, "started")
        assert {first["feature"], second["feature"]} == {"auth", "search"}
        assert eventually(
            lambda: all((tmp_path / f"began-{f}").exists() for f in ("auth", "search"))
        )
        stopped = loop("/bin/true")
        assert stopped.reason == "taken"
        assert "auth, search" in stopped.detail
        assert len(loop.unfinished) == 2  # what lives was not taken for dead
        (tmp_path / "go").touch()
        assert [until(one, "ended")["outcome"], until(two, "ended")["outcome"]] == ["failure"] * 2
        assert (one.wait(60), two.wait(60)) == (0, 0)
    assert (len(loop.told("auth")), len(loop.told("search"))) == (1, 1)


def test_a_feature_is_free_again_when_its_loop_was_killed(tmp_path: Path) -> None:
    claims, others = Claims(tmp_path), Claims(tmp_path)
    assert claims.take("auth")
    assert claims.take("auth")
    assert not others.take("auth")
    assert others.take("search")
    assert not claims.take("search")
    assert claims.feature == "auth"  # what it had is not lost in the attempt
    claims.release()
    assert others.take("auth")
    assert claims.take("search")  # given back when the other one moved on


# -- interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_records_its_iteration_and_leaves_no_process(
    loop: Loop, tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    steps = [
        {"write": "a.py", "content": "x\n"},
        {"bash": "{{python}} -c 'import os, time; os.setsid(); time.sleep(600)' & echo"},
        {"sleep": 600},
    ]
    agent = scripted(tmp_path, {"steps": steps})
    with ralph_process(["run", "--json", "--agent", agent], cwd=loop.root) as process:
        for event in events(process):
            if event["event"] == "doing" and event["tool_uses"] >= 1:
                process.send_signal(number)
                break
        rest = list(events(process))
        assert process.wait(60) == 130
    assert [event["event"] for event in rest if event["event"] != "doing"] == ["ended", "stopped"]
    assert rest[-1]["reason"] == "interrupted"
    assert none_is_left(mark)
    [told] = loop.told()
    assert [file.path for file in told.files_touched] == ["a.py"]
    assert loop.unfinished == []


# -- killed


def killed_at(loop: Loop, agent: str, name: str) -> None:
    """A loop killed at its first event of this name."""
    words = ["run", "--json", "--max-iterations", "1", "--agent", agent]
    with ralph_process(words, cwd=loop.root) as process:
        until(process, name)
        process.kill()


def test_a_killed_run_is_recorded_by_the_next_one_with_what_the_agent_had_done(
    loop: Loop, tmp_path: Path, mark: str
) -> None:
    steps = [DONE, {"write": "a.py", "content": "x\n"}, {"sleep": 600}]
    killed_at(loop, scripted(tmp_path, {"steps": steps}), "doing")
    assert none_is_left(mark)
    loop("/bin/true", max_iterations=1)
    assert loop.facts("recovered") == [{"iterations": 1}]
    first, second = loop.told()
    assert (first.task_id, first.outcome) == (1, "success")
    assert (second.task_id, second.outcome) == (2, "failure")
    assert loop.unfinished == []


def test_the_next_run_waits_until_the_agent_of_the_killed_one_has_said_its_last_words(
    loop: Loop, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = python(
        tmp_path,
        """
import json, signal, sys, time

def say(**event):
    print(json.dumps({"session_id": "s-1", **event}), flush=True)

def last_words(*_):
    time.sleep(0.7)
    say(type="result", is_error=False, result="Asked to stop, so I stopped.")
    sys.exit(0)

signal.signal(signal.SIGTERM, last_words)
say(type="system", subtype="init", cwd="/x")
use = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "/x/a"}}
say(type="assistant", message={"content": [use]})
while True:
    time.sleep(0.01)
""",
    )
    killed_at(loop, agent, "doing")
    loop("/bin/true", max_iterations=1)  # at once
    assert loop.told()[0].summary == "Asked to stop, so I stopped."
    assert marked(mark) == []


def test_an_iteration_that_was_recorded_before_the_kill_is_not_recorded_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its record cannot be made the same again: this one had run out of time."""
    monkeypatch.setattr("ralph.loop.process.time", Late(loop.root / "a.py"))
    agent = scripted(tmp_path, {"steps": [{"write": "a.py", "content": "x\n"}, {"sleep": 600}]})
    saved = tmp_path / "saved"

    def save(event: Any) -> None:
        if event.event == "ended":  # the record is written, the folder not yet gone
            [folder] = loop.unfinished
            subprocess.run(["cp", "-R", str(folder), str(saved)], check=True)
            saved.rename(folder.with_name("again"))

    loop.on_event = save
    loop(agent, max_iterations=1, timeout_s=1800)
    [before] = loop.told()
    [again] = loop.unfinished
    (again / "ended.json").unlink()  # as if it had been lost with the machine
    work = json.loads((again / "run.json").read_text())
    again.rename(again.with_name(work["run"]))
    loop.on_event = lambda event: None
    loop("/bin/true", max_iterations=1)
    assert loop.facts("recovered") == [{"iterations": 1}]
    assert loop.told()[0] == before
    assert [one.outcome for one in loop.told()] == ["timeout", "failure"]
    assert loop.unfinished == []


def test_half_a_folder_is_no_iteration_that_said_nothing(loop: Loop, tmp_path: Path) -> None:
    """Killed while the folder of a recorded run was deleted."""
    runs = state_of(loop.root) / "runs"
    kept: list[bytes] = []

    def look(event: Any) -> None:
        if event.event == "ended":
            kept.extend(file.read_bytes() for file in runs.glob("*/run.json"))

    loop.on_event = look
    loop("/bin/true", max_iterations=1)
    loop.on_event = lambda event: None
    half = runs / "half"
    half.mkdir()
    (half / "prompt.txt").write_text("prompt")
    (half / "output.jsonl").touch()
    assert kept
    loop("/bin/true", max_iterations=1)
    assert loop.facts("recovered") == []
    assert loop.unfinished == []


def test_work_of_another_version_is_left_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "newer"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"run": 7, "shape": "unknown"}')
    assert RunFolder(tmp_path / "runs").unfinished() == []
    assert folder.exists()


ANNOUNCING = """
import json, os, re, sys, uuid

session = str(uuid.uuid4())

def say(**event):
    print(json.dumps({"session_id": session, **event}), flush=True)

def note(name):
    with open(f"../{name}", "a") as file:
        file.write(session + "\\n")

task = re.search(r"Your task: (\\d+),", sys.stdin.read())[1]
say(type="system", subtype="init", cwd=os.getcwd())
note("announced")
path = os.path.abspath(".ralph/db/tasks.yaml")
old = f"title: Task number {task}\\n  status: pending\\n"
new = f"title: Task number {task}\\n  status: done\\n"
given = {"file_path": path, "old_string": old, "new_string": new}
use = {"type": "tool_use", "id": "t", "name": "Edit", "input": given}
say(type="assistant", message={"content": [use]})
text = open(path).read()
open(path, "w").write(text.replace(old, new))
done = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
say(type="user", message={"content": [done]})
say(type="result", is_error=False, result=f"Did task number {task} in full.")
note("finished")
"""


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * ROUNDS)
def test_killed_at_any_point_no_record_is_lost_or_doubled(tmp_path: Path, mark: str) -> None:
    chance = random.Random(20260207)
    count = min(4 * ROUNDS, 150) + 10
    tasks = "version: 1\ntasks:\n" + "".join(
        f"- id: {n}\n  feature: auth\n  title: Task number {n}\n  status: pending\n"
        for n in range(1, count + 1)
    )
    loop = Loop(planned(tmp_path / "project", tasks=tasks))
    agent = python(tmp_path, ANNOUNCING)
    words = ["run", "--json", "--feature", "auth", "--agent", agent]
    for _ in range(ROUNDS):
        with ralph_process(words, cwd=loop.root) as process:
            wanted = chance.randint(1, 9)
            for heard, _event in enumerate(events(process), 1):
                if heard >= wanted:
                    break
            # Anywhere, not only where something was told: the figure decides where, not whether.
            time.sleep(chance.choice([0, 0, 0.01, 0.03, 0.08]) * chance.random())
            process.kill()
        if chance.random() < 0.5:
            assert none_is_left(mark)
    with ralph_process([*words, "--max-iterations", "1"], cwd=loop.root) as process:
        *_, last = events(process)
        assert last["event"] == "stopped"
        assert process.wait(60) == 0
    assert none_is_left(mark)
    told = loop.told()
    recorded = Counter(one.session_id for one in told)
    announced = lines(tmp_path / "announced")
    finished = lines(tmp_path / "finished")
    assert max(recorded.values()) == 1
    assert [session for session in announced if session not in recorded] == []
    unannounced = [session for session in recorded if session not in announced]
    assert all(re.fullmatch(r"[0-9a-f]{12}|[0-9a-f-]{36}", str(one)) for one in unannounced)
    assert [one.iteration_number for one in told] == list(range(1, len(told) + 1))
    view = loop.plan.load()
    assert len(view.tasks) == count
    by_session = {one.session_id: one for one in told}
    for session in finished:
        one = by_session[session]
        assert one.summary == f"Did task number {one.task_id} in full."
        assert loop.plan.task(one.task_id or 0).status == "done"
    assert len(finished) >= ROUNDS // 3
    assert loop.unfinished == []
