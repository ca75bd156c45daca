"""The process between Ralph and an agent: it makes sure that no descendant outlives the run.

Runs as a script and uses only the standard library. It stays in the background of one agent run
and talks to Ralph over an inherited socket. It ends the agent and all its descendants when the
agent exits, when Ralph asks for it, or when Ralph dies and the socket closes. It also inherits a
lock and holds it until all of them are gone, so nobody treats the run as over too early.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

assert sys.platform != "win32"  # Windows has jobs for this: see process.py

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_LOOK_S = 1.0
_ROUNDS = 100

# Maps each process id to its parent, its group and its start time. A process id is reused, but not
# together with its start time.
_Table = dict[int, tuple[int, int, str]]


def main(arguments: list[str]) -> int:
    """`keeper.py SOCKET_FD GRACE_S COMMAND...`"""
    control = socket.socket(fileno=int(arguments[0]))
    grace_s = float(arguments[1])
    command = arguments[2:]
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # Ralph decides and tells us over the socket
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        agent = subprocess.Popen(command, start_new_session=True, preexec_fn=_in_child)
    except OSError as error:
        _say(control, {"failed": error.strerror or str(error)})
        return 1
    _say(control, {"pid": agent.pid})
    _let_go_of_output()
    family = _Family(agent.pid)
    while agent.poll() is None:
        family.look()
        # A message from Ralph and the end of Ralph mean the same: end the agent.
        if asked or select.select([control], [], [], _POLL_S)[0]:
            _end_agent(agent, grace_s, family)
    left = family.end()
    _say(control, {"exit": agent.wait(), "left": left})
    return 0


def _end_agent(agent: subprocess.Popen[bytes], grace_s: float, family: _Family) -> None:
    """End the agent. Ask first, so that it can end its own children and write its last lines."""
    family.look(anyway=True)
    agent.terminate()
    try:
        agent.wait(grace_s)
    except subprocess.TimeoutExpired:
        family.look(anyway=True)
        agent.kill()
        agent.wait()


class _Family:
    """The agent's descendants, even if they moved to another session, group or parent.

    On Linux an orphan becomes our child, so walking down from this process finds all of them.
    Elsewhere we poll the process table while the agent runs, and remember every process we saw
    and all the others in its group.
    """

    def __init__(self, agent: int) -> None:
        self._agent = agent
        self._adopts = sys.platform == "linux"
        self._seen: dict[int, str] = {}
        self._next_look = 0.0

    def look(self, *, anyway: bool = False) -> None:
        """Remember the descendants of this moment, on systems that would lose orphans."""
        if not self._adopts and (anyway or time.monotonic() >= self._next_look):
            self._next_look = time.monotonic() + _LOOK_S
            table = _table()
            self._seen = {pid: table[pid][2] for pid in self._known(table)}

    def end(self) -> list[int]:
        """End all descendants: ask once, then kill until none is left. Return their ids."""
        named: set[int] = set()
        for round_number in range(_ROUNDS):
            if not (alive := self._alive()):
                break
            named |= alive
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if round_number else signal.SIGTERM)
            deadline = time.monotonic() + (_POLL_S if round_number else 1.0)
            while time.monotonic() < deadline and self._alive():
                time.sleep(0.01)
        return sorted(named)

    def _alive(self) -> set[int]:
        table = _table()
        if not self._adopts:
            return self._known(table) - {self._agent}
        if self._reap(table):
            table = _table()
        return _descendants(os.getpid(), table)

    def _known(self, table: _Table) -> set[int]:
        """Return the processes seen before that still run, with their descendants and groups."""
        found = {pid for pid, born in self._seen.items() if pid in table and table[pid][2] == born}
        for pid in {self._agent, *found}:
            found |= _descendants(pid, table)
        groups = {self._agent, *(table[pid][1] for pid in found)} - {os.getpgrp()}
        return found | {pid for pid, (_, group, _) in table.items() if group in groups}

    def _reap(self, table: _Table) -> bool:
        """Reap orphans that became our children; the agent itself is reaped by its Popen."""
        taken = False
        for pid, (parent, _, _) in table.items():
            if parent == os.getpid() and pid != self._agent:
                with contextlib.suppress(ChildProcessError):
                    taken |= os.waitpid(pid, os.WNOHANG)[0] == pid
        return taken


def _descendants(root: int, table: _Table) -> set[int]:
    found: set[int] = set()
    new = {root}
    while new:
        new = {pid for pid, (parent, _, _) in table.items() if parent in new} - found
        found |= new
    return found


def _table() -> _Table:
    """Return all running processes, on Linux also our own dead children, which we must reap."""
    return _table_of_proc() if sys.platform == "linux" else _table_of_ps()


def _table_of_ps() -> _Table:
    listing = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,pgid=,stat=,lstart="],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    ).stdout
    return {
        int(row[0]): (int(row[1]), int(row[2]), row[4])
        for row in [line.split(None, 4) for line in listing.splitlines()]
        if len(row) == 5 and not row[3].startswith("Z")
    }


def _table_of_proc() -> _Table:
    table: _Table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field is the name in brackets, and may contain spaces and brackets.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended in the meantime
        if fields[0] != b"Z" or int(fields[1]) == os.getpid():
            table[int(name)] = (int(fields[1]), int(fields[2]), fields[19].decode())
    return table


def _in_child() -> None:
    """Reset ignored signals for the agent, and send it SIGTERM if this process is killed."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _let_go_of_output() -> None:
    """Close our copies of the agent's input and output."""
    with open(os.devnull, "r+b") as nothing:
        for fd in (0, 1, 2):
            os.dup2(nothing.fileno(), fd)


def _say(control: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # nobody is listening any more
        control.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # there is nothing to clean up, and Ralph is waiting for us
