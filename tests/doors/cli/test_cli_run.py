"""`ralph run`: what it shows, why it stops, and how signals end it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from commanding import Line, Terminal
from places import DOCS
from remembering import state_of

from ralph.doors.cli.commands.run import json_listener, shown
from ralph.loop.agent import LoopEvent, Name
from ralph.loop.run import RunOptions

STOPPING = [signal.SIGINT, signal.SIGTERM]
if sys.platform != "win32":
    STOPPING.append(signal.SIGHUP)
FEATURES = "features: [{name: auth, description: Sign-in for customers.}]\n"
TASKS = """\
tasks:
  - id: 1
    feature: auth
    title: Build the “login” form
    status: pending
  - id: 2
    feature: auth
    title: Keep people in
    status: pending
    blocked_by: [1]
"""
FIRST_DONE = {"edit": ".ralph/db/tasks.yaml", "old": "pending\n  - id: 2", "new": "done\n  - id: 2"}
SECOND_DONE = {"edit": ".ralph/db/tasks.yaml", "old": "status: pending", "new": "status: done"}
DILIGENT = [
    {"when": "task: 1,", "steps": [FIRST_DONE], "result": "Built the form.", "cost_usd": 0.5},
    {"steps": [SECOND_DONE], "result": "They stay in.", "cost_usd": 0.75},
]
IDLE = [{"result": "I looked around.", "cost_usd": 0.5}]


@pytest.fixture
def planned(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RALPH_EMBEDDER", "none")
    monkeypatch.chdir(project)
    (project / ".ralph/db/features.yaml").write_text(FEATURES, encoding="utf-8")
    (project / ".ralph/db/tasks.yaml").write_text(TASKS, encoding="utf-8")
    return project


@pytest.fixture
def ralph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, planned: Path
) -> Line:
    return Line(capsys, monkeypatch)


def agent(project: Path, runs: list[dict[str, Any]]) -> str:
    """The command of an agent that plays these runs."""
    script = project.parent / "a script.json"
    script.write_text(json.dumps({"runs": runs}), encoding="utf-8")
    return shlex.join([sys.executable, "-m", "ralph.loop.scripted", str(script)])


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# -- what it tells


def test_a_run_in_plain_lines(ralph: Line, planned: Path) -> None:
    ran = ralph.well("run", "--agent", agent(planned, DILIGENT))

    told = re.sub(r"\d+ tokens|\d\.\d s", "#", ran.out)
    assert told.splitlines()[0].startswith("RAG: active by words alone (")
    assert told.splitlines()[1:] == [
        "> auth, task 1: Build the “login” form  (#)",
        "  success  iteration 1, #, 0.5000 USD",
        "  Built the form.",
        "> auth, task 2: Keep people in  (#)",
        "  success  iteration 2, #, 0.7500 USD",
        "  They stay in.",
        "Stopped: no task is ready (2 success, #, 1.25 USD)",
    ]
    assert ran.err == ""


def test_a_run_as_programs_read_it(ralph: Line, planned: Path) -> None:
    ran = ralph.well("run", "--agent", agent(planned, DILIGENT), "--json")

    told = [one for one in events(ran.out) if one["event"] != "doing"]
    names = ["memory", "started", "ended", "started", "ended", "stopped"]
    assert [one["event"] for one in told] == names
    assert all(one["at"].endswith("Z") for one in told)
    memory, started, ended, _, _, stopped = told
    assert memory["available"] is True
    assert (started["task_id"], started["review"]) == (1, False)
    assert started["title"] == "Build the “login” form"
    assert (ended["outcome"], ended["summary"]) == ("success", "Built the form.")
    assert (stopped["reason"], stopped["iterations"]) == ("no_ready_task", 2)
    assert stopped["outcomes"] == {"success": 2}
    assert stopped["cost_usd"] == 1.25
    assert ran.err == ""


@pytest.mark.parametrize(
    ("flags", "environ", "runs", "reason"),
    [
        (["--max-iterations", "1"], {}, DILIGENT, "max_iterations"),
        (["--budget-usd", "0.4"], {}, DILIGENT, "budget"),
        (["--task", "1"], {}, DILIGENT, "no_ready_task"),
        (["--feature", "auth", "--task", "2"], {}, IDLE, "no_ready_task"),
        ([], {"RALPH_STAGNATION_LIMIT": "1"}, IDLE, "stagnation"),
    ],
)
def test_why_a_run_stops(
    ralph: Line,
    planned: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    environ: dict[str, str],
    runs: list[dict[str, Any]],
    reason: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    ran = ralph.well("run", "--agent", agent(planned, runs), *flags, "--json")

    assert events(ran.out)[-1]["reason"] == reason


def test_an_agent_over_its_time_is_ended_and_recorded(ralph: Line, planned: Path) -> None:
    slow = agent(planned, [{"steps": [{"sleep": 60}]}])

    ran = ralph.well("run", "--agent", slow, "--timeout", "0.3", "--max-iterations", "1")

    assert "\n  timeout  iteration 1, " in ran.out
    [hit] = ralph.well("failures", "--json").json
    assert hit["record"]["outcome"] == "timeout"


# -- what stops it before anything is run


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "no-such-agent-here",
            "the agent's command 'no-such-agent-here' was not found. Install it",
        ),
        ("'half a quote", "the agent's command \"'half a quote\" cannot be read"),
        (" ", "the agent's command is empty"),
    ],
)
def test_an_agent_that_is_not_there_runs_nothing(
    ralph: Line, planned: Path, command: str, told: str
) -> None:
    ran = ralph("run", "--agent", command)

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {told}")
    assert list((planned / ".ralph/db/memory").glob("*.jsonl")) == []
    assert not list((state_of(planned)).glob("runs/*/*"))


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        (TASKS + "\tbroken", ".ralph/db/tasks.yaml:11:1: "),
        (TASKS.replace("pending", "soon", 1), ".ralph/db/tasks.yaml:5:"),
        (
            TASKS.replace("title: Build", "blocked_by: [2]\n    title: Build"),
            ".ralph/db/tasks.yaml",
        ),
    ],
)
def test_a_bad_plan_runs_nothing_and_says_where(
    ralph: Line, planned: Path, tasks: str, told: str
) -> None:
    (planned / ".ralph/db/tasks.yaml").write_text(tasks, encoding="utf-8")
    runs = [{"steps": [{"write": "ran.txt", "content": "x"}]}]

    ran = ralph("run", "--agent", agent(planned, runs))

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {told}")
    assert not (planned / "ran.txt").exists()
    assert list((planned / ".ralph/db/memory").glob("*.jsonl")) == []


# -- signals

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of its own")


@contextlib.contextmanager
def begun(project: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run as a process, whose agent has begun; and the id of a process of the agent's."""
    steps = [{"bash": "echo $$ > pid.new && mv pid.new pid.txt && exec sleep 60"}]
    command = agent(project, [{"steps": steps}])
    with subprocess.Popen(
        [sys.executable, "-m", "ralph", "run", "--agent", command, *flags],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    ) as process:
        try:
            pid = project / "pid.txt"
            while not pid.exists():
                assert process.poll() is None
                time.sleep(0.01)
            yield process, int(pid.read_text(encoding="utf-8"))
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@posix
@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_ends_the_agent_and_records_the_iteration(
    ralph: Line, planned: Path, number: signal.Signals
) -> None:
    with begun(planned, "--json") as (process, agents):
        process.send_signal(number)
        out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert err == b""
    told = events(out.decode("ascii"))
    assert [one["event"] for one in told][-2:] == ["ended", "stopped"]
    assert told[-1]["reason"] == "interrupted"
    assert not is_alive(agents)
    [hit] = ralph.well("recent", "--json").json
    assert hit["record"]["task_title"] == "Build the “login” form"
    assert not list((state_of(planned) / "runs").glob("*/run.json"))


def test_asked_twice_a_run_stops_at_once(ralph: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunOptions] = []

    def stubborn(_: object, options: RunOptions, **given: Any) -> None:
        seen.append(options)
        signal.raise_signal(signal.SIGINT)
        assert given["stop"].is_set()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("ralph.loop.run.run", stubborn)
    before = signal.getsignal(signal.SIGINT)

    ran = ralph("run", "--task", "7")

    assert ran.code == 130
    assert ran.err == ""
    assert [one.task_id for one in seen] == [7]
    assert signal.getsignal(signal.SIGINT) == before


# -- on a terminal


def screen(data: bytes) -> list[str]:
    """What a terminal shows in the end of what was written to it."""
    rows, row = [""], 0
    for token in re.findall(r"\x1b\[[?0-9;]*[a-zA-Z]|\r|\n|[^\r\n\x1b]+", data.decode()):
        if token == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif token == "\x1b[1A":
            row -= 1
        elif token == "\x1b[2K":
            rows[row] = ""
        elif not token.startswith(("\r", "\x1b")):
            # Every line that moves is cleared before it is written again.
            rows[row] += token
    return [one.rstrip() for one in rows]


def on_terminal(project: Path, columns: int, **environ: str) -> tuple[int, bytes]:
    """The run with a terminal on all three sides: its exit code, and all that was written."""
    if sys.platform == "win32":
        pytest.skip("Windows has no pseudo-terminals")
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    runs = [{**DILIGENT[0], "steps": [{"bash": "sleep 0.4"}, FIRST_DONE]}, DILIGENT[1]]
    env = {**os.environ, "TERM": "xterm-256color", **environ}
    for name in {"COLUMNS", "LINES", "NO_COLOR"} - environ.keys():
        env.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-m", "ralph", "run", "--agent", agent(project, runs)],
        cwd=project,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        data = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            if not part:
                break
            data += part
    os.close(ours)
    return process.returncode, data


@posix
@pytest.mark.parametrize(
    ("columns", "environ"), [(120, {}), (40, {"NO_COLOR": "1"}), (80, {"TERM": "dumb"})]
)
def test_a_terminal_shows_a_moving_line_and_keeps_no_junk(
    planned: Path, columns: int, environ: dict[str, str]
) -> None:
    code, data = on_terminal(planned, columns, **environ)

    assert code == 0
    rows = screen(data)
    text = " ".join(" ".join(rows).split())
    assert re.fullmatch(
        r"RAG: active by words alone \(.*\) > auth, task 1: Build the “login” form \(\d+ tokens\) "
        r"success iteration 1, \d\.\d s, 0\.5000 USD Built the form\. "
        r"> auth, task 2: Keep people in \(\d+ tokens\) "
        r"success iteration 2, \d\.\d s, 0\.7500 USD They stay in\. "
        r"Stopped: no task is ready \(2 success, \d+ tokens, 1\.25 USD\)",
        text,
    ), rows
    if environ.get("TERM") != "dumb":
        assert all(len(row) <= columns for row in rows)
        assert b"the agent" in data  # the line that moved, and is gone
        assert data.count(b"\x1b[?25l") == data.count(b"\x1b[?25h")
    colours = re.search(rb"\x1b\[[0-9;]*3[1-6]m", data)
    assert (colours is None) == ("NO_COLOR" in environ or environ.get("TERM") == "dumb")


# -- every event

FACTS: dict[str, dict[str, Any]] = {
    "permissions": {"lines": ["Permissions: claude may run any command as you."]},
    "memory": {"line": "RAG: off (why)", "available": False},
    "recovered": {"iterations": 1},
    "worktree": {"feature": "auth", "path": "/w/auth", "cwd": "/w/auth/a", "branch": "ralph/auth"},
    "started": {
        **{"feature": "auth", "task_id": None, "title": "Review of auth", "review": True},
        "prompt_tokens": 9,
    },
    "doing": {
        **{"last_tool": "Bash", "last_target": "cat /r/a\x1b[2J", "tool_uses": 2, "running": 1},
        **{"turns": 3, "cost_usd": 0.25, "waiting": "retrying"},
    },
    "ended": {
        **{"feature": "auth", "task_id": 1, "iteration": 4, "outcome": "failure", "summary": ""},
        **{"errors": ["a", "b", "c", "d"], "cost_usd": None, "tokens_used": None, "reason": "why"},
        **{"duration_ms": 3_725_000, "timed_out": False, "left_behind": 2},
        **{"denied": ["Bash", "Bash"], "mcp_failed": ["memory"]},
    },
    "committed": {"commit": "1a2b3c4", "files": 2, "left_out": ("own.py",), "error": ""},
    "repaired": {"lines": ["put back the description"]},
    "journal": {"lines": ["restored auth.jsonl: 2 lines lost"]},
    "changed": {"lines": ["task 4: status pending -> done"], "undo": "3fa9c2d1"},
    "learned": {"learnings": ["Use NFKD."], "refused": 1, "context_files": ["a.py"]},
    "waiting": {"seconds": 75.0, "until": "2026-02-07T14:30:00Z"},
    "stopped": {
        **{"reason": "taken", "detail": "other loops work", "iterations": 0, "outcomes": {}},
        **{"cost_usd": 0.0, "tokens_used": 0, "hints": ["To merge auth: ..."]},
    },
}
SHOWN = """\
Permissions: claude may run any command as you.
RAG: off (why)
Recorded 1 unfinished iteration of an earlier run.
Worktree of auth: /w/auth (ralph/auth)
> auth, review: Review of auth  (9 tokens)
  failure  iteration 4, 1 h 2 min (why)
  error: a
  error: b
  error: c
  and 1 more error
  denied: Bash
  MCP failed: memory
  stopped 2 processes that the agent left running
  committed: 1a2b3c4, 2 files
  not committed: own.py had changes before this run
  plan: put back the description
  journal: restored auth.jsonl: 2 lines lost
  changed: task 4: status pending -> done
  To undo this: ralph undo 3fa9c2d1
  learned: Use NFKD.
  context file: a.py
  Learnings full - review needed
  rate limit: waiting 1 min 15 s, until 2026-02-07 14:30
Stopped: other loops work
To merge auth: ...
"""


def test_the_guide_tells_the_facts_of_every_event(ralph: Line, planned: Path) -> None:
    guide = DOCS / "guide-loop.md"
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)`", guide.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {
        name: {fact.strip() for fact in re.sub(r":[^,]*", "", facts).split(",")}
        for name, facts in rows
        if name in get_args(Name)
    }

    told = events(ralph.well("run", "--agent", agent(planned, DILIGENT), "--json").out)

    assert {name: set(facts) for name, facts in FACTS.items()} == documented
    for one in told:
        assert one.keys() - {"event", "at"} == documented[one["event"]], one["event"]


def test_every_event_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(FACTS) == list(get_args(Name))

    with shown() as listener:
        for name in get_args(Name):
            listener(LoopEvent(name, "2026-02-07T14:30:00Z", FACTS[name]))

    said = capsys.readouterr()
    assert said.out == SHOWN
    assert said.err == ""


def test_the_moving_line_tells_what_the_agent_does_and_that_it_stops(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    stopping = False
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)

    with shown(lambda: stopping, root="/r") as listener:
        listener(LoopEvent("started", "", FACTS["started"]))
        listener(LoopEvent("doing", "", FACTS["doing"]))
        listener(LoopEvent("repaired", "", FACTS["repaired"]))
        stopping = True
        listener(LoopEvent("waiting", "", FACTS["waiting"]))

    assert "plan: put back the description" in capsys.readouterr().out
    written = terminal.getvalue()
    assert "  retrying, 0.2500 USD, 2 tool uses, Bash cat a" in written
    assert "stopping the agent, then recording" in written
    assert "\x1b[2J" not in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 2


@pytest.mark.parametrize("text", ["größer\u2028", "\ud800", "\x9b2J"])
def test_an_event_is_one_line_of_json_whatever_is_in_it(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    json_listener(LoopEvent("repaired", "", {"lines": [text]}))

    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert json.loads(out)["lines"] == [text]
    assert out.strip().isprintable()
