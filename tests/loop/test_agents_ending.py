"""No process survives an agent: not its children, wherever they moved, and whoever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from journaling import child
from looping import MARK, eventually, lines, marked, none_is_left

from ralph.clients import agent_environment
from ralph.loop.process import AgentEnd, AgentProcess

if sys.platform == "win32":
    pytest.skip("a job object ends the family there", allow_module_level=True)

from ralph.loop import keeper

# An agent with a family. Each member that is ready has written its name; then so has the agent.
FAMILY = """
    import os, signal, subprocess, sys, time

    kinds, ending = sys.argv[1].split(","), sys.argv[2]
    nap = [sys.executable, "-S", "-c", "import time; print('here', flush=True); time.sleep(600)"]
    deaf = [sys.executable, "-S", "-c", "import signal, time; "
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); "
            "time.sleep(600)"]

    def started(command, **more):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, **more)
        process.stdout.readline()
        return process

    def daemon():
        # Twice forked, with a session of its own and nobody's child any more.
        told, tell = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                null = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1, 2):
                    os.dup2(null, fd)
                os.write(tell, b"x")
                time.sleep(600)
            os._exit(0)
        os.wait()
        os.read(told, 1)

    family = []
    if "session" in kinds:
        family.append(started(nap, start_new_session=True))
    if "daemon" in kinds:
        daemon()
    if "deaf" in kinds:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        family.append(started(deaf, start_new_session=True))
    if "tree" in kinds:
        inner = "import subprocess, sys; p = subprocess.Popen(%r, start_new_session=True); p.wait()"
        family.append(started([sys.executable, "-S", "-c", inner % nap]))
    print("ready", os.getppid(), flush=True)
    if ending == "stay":
        time.sleep(600)
    os._exit(3)
"""
KINDS = ["session", "daemon", "deaf", "tree", "session,daemon,deaf,tree"]


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark that every process we start inherits; whatever a failed test left is ended."""
    name = uuid.uuid4().hex
    monkeypatch.setenv(MARK, name)
    yield name
    for pid in marked(name):
        os.kill(pid, signal.SIGKILL)


def family(kinds: str, ending: str) -> list[str]:
    return [sys.executable, "-S", "-c", textwrap.dedent(FAMILY), kinds, ending]


def begun(kinds: str, folder: Path, ending: str = "stay", *, grace_s: float = 0.3) -> AgentProcess:
    """The family, started and complete."""
    process = AgentProcess(
        family(kinds, ending),
        prompt=b"",
        folder=folder,
        cwd=folder,
        env=agent_environment(),
        grace_s=grace_s,
    )
    assert eventually(lambda: bool(lines(folder / "output.jsonl")))
    return process


def ended_by(how: str, kinds: str, folder: Path) -> AgentEnd:
    if how == "itself":
        with begun(kinds, folder, "leave") as process:
            return process.wait(timeout_s=600, on_tick=lambda: True)
    with begun(kinds, folder) as process:
        if how == "time-out":
            return process.wait(timeout_s=0, on_tick=lambda: True)
        return process.wait(timeout_s=600, on_tick=lambda: False)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("how", ["time-out", "stop", "itself"])
def test_nobody_is_left_after_the_agent(mark: str, folder: Path, how: str, kinds: str) -> None:
    ended = ended_by(how, kinds, folder)
    assert marked(mark) == []  # at once: ending it means that it is done
    assert (ended.timed_out, ended.interrupted) == (how == "time-out", how == "stop")
    if how == "itself":
        assert ended.exit_code == 3
        assert ended.left_behind >= 1


@pytest.mark.parametrize("kinds", KINDS)
def test_nobody_is_left_when_ralph_itself_is_killed(mark: str, folder: Path, kinds: str) -> None:
    script = """
        import sys
        from pathlib import Path
        from ralph.clients import agent_environment
        from ralph.loop.process import AgentProcess

        folder, env = Path(sys.argv[1]), agent_environment()
        with AgentProcess(
            sys.argv[2:], prompt=b"", folder=folder, cwd=folder, env=env, grace_s=0.3
        ) as process:
            process.wait(timeout_s=600, on_tick=lambda: True)
    """
    with child(script, folder, *family(kinds, "stay")) as ralph:
        assert eventually(lambda: bool(lines(folder / "output.jsonl")))
        assert len(marked(mark)) >= 3  # Ralph, keeper, agent and its family
        ralph.kill()
    assert none_is_left(mark)


def test_the_agents_own_group_is_ended_when_somebody_kills_the_keeper(
    mark: str, folder: Path
) -> None:
    with begun("tree", folder) as process:
        [[_, keeper_pid]] = [line.split() for line in lines(folder / "output.jsonl")]
        os.kill(int(keeper_pid), signal.SIGKILL)
        ended = process.wait(timeout_s=600, on_tick=lambda: True)
    assert ended.exit_code is None
    # The one in a session of its own has no keeper any more: the fixture ends it.
    assert eventually(lambda: len(marked(mark)) <= 1)


def test_a_keeper_that_is_asked_to_end_ends_everyone_first(mark: str, folder: Path) -> None:
    with begun("session,daemon", folder) as process:
        [[_, keeper_pid]] = [line.split() for line in lines(folder / "output.jsonl")]
        os.kill(int(keeper_pid), signal.SIGTERM)
        ended = process.wait(timeout_s=600, on_tick=lambda: True)
    assert marked(mark) == []
    assert ended.exit_code == -signal.SIGTERM


def test_what_was_printed_before_the_time_was_over_is_kept(mark: str, folder: Path) -> None:
    with begun("session", folder) as process:
        process.wait(timeout_s=0, on_tick=lambda: True)
    assert [line.split()[0] for line in lines(folder / "output.jsonl")] == ["ready"]


def test_an_agent_that_is_asked_may_say_its_last_words(mark: str, folder: Path) -> None:
    script = 'trap "echo last words; exit 5" TERM; echo ready; while :; do sleep 0.01; done'
    with AgentProcess(
        ["/bin/sh", "-c", script],
        prompt=b"",
        folder=folder,
        cwd=folder,
        env=agent_environment(),
        grace_s=60,
    ) as process:
        assert eventually(lambda: bool(lines(folder / "output.jsonl")))
        ended = process.wait(timeout_s=600, on_tick=lambda: False)
    assert ended.exit_code == 5
    assert lines(folder / "output.jsonl") == ["ready", "last words"]


def test_leaving_the_block_by_an_error_ends_everyone(mark: str, folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), begun("session,deaf", folder) as process:
        process.wait(timeout_s=600, on_tick=lambda: bool(1 / 0))
    assert marked(mark) == []


# -- where orphans are nobody's children: the process table instead


@pytest.fixture
def other_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that does not give us orphans, with a process table to be asked for."""
    monkeypatch.setattr(keeper, "_table", keeper._table_of_ps)


def test_the_process_table_tells_parents_groups_and_births() -> None:
    table = keeper._table_of_ps()
    parent, group, born = table[os.getpid()]
    assert (parent, group) == (os.getppid(), os.getpgrp())
    assert born


@pytest.mark.usefixtures("other_system")
def test_who_was_seen_is_ended_after_the_agent_is_gone(mark: str) -> None:
    with subprocess.Popen(
        family("session,deaf,tree", "stay"), stdout=subprocess.PIPE, start_new_session=True
    ) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        seen = keeper._Family(agent.pid)
        seen._adopts = False
        seen.look()
        agent.kill()
        agent.wait()
        assert len(seen.end()) >= 4
    assert none_is_left(mark)


@pytest.mark.usefixtures("other_system")
def test_a_number_that_was_given_to_somebody_else_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        seen = keeper._Family(agent=2**22 + 1)
        seen._adopts = False
        seen._seen = {stranger.pid: "Thu Jan  1 00:00:00 1970"}
        assert seen.end() == []
        assert stranger.poll() is None
        stranger.kill()
