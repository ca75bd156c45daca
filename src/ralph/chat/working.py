"""What the background workers share: their names, their states, and what each shows of itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ralph import disk
from ralph.memory.conversation_history import History
from ralph.memory.conversations import Conversations

Name = Literal["conversation", "exchange", "embedding"]
State = Literal["stopped", "running", "idle"]
NAMES: tuple[Name, ...] = ("conversation", "exchange", "embedding")

# A look at whether a lock is free takes it for a moment; nobody shall take that for a worker.
_CLAIM_S = 0.25
# A worker adds a line for each change, and the last one counts; now and then it begins anew.
_LARGEST_CLAIM_BYTES = 64 * 1024

Clock = Callable[[], float]


class WorkerStatus(msgspec.Struct, frozen=True):
    """How one worker stands.

    `completed` counts this session's work, `total` that and what is still to do. Items that are
    `retrying` failed and wait for their next turn; what was `given_up` waits for a person.
    """

    name: Name
    state: State
    total: int = 0
    completed: int = 0
    failed: int = 0
    current: str = ""
    spend_usd: float = 0.0
    retrying: int = 0
    next_retry_s: float | None = None
    given_up: int = 0
    note: str = ""


class Live(msgspec.Struct, frozen=True):
    """What a worker says of itself to other processes."""

    pid: int
    status: WorkerStatus


class Board:
    """One worker's state: its thread writes, anybody may look."""

    def __init__(self, name: Name) -> None:
        self._lock = threading.Lock()
        self._status = WorkerStatus(name, "stopped")
        self._publish: Callable[[WorkerStatus], None] = lambda status: None

    def look(self) -> WorkerStatus:
        """The state as it is now."""
        with self._lock:
            return self._status

    def set(self, **changes: Any) -> None:
        """Change some of it, for other processes too while the worker's claim is held."""
        with self._lock:
            self._status = msgspec.structs.replace(self._status, **changes)
            self._publish(self._status)

    def done(self, count: int, spent_usd: float = 0.0) -> None:
        """So many items more."""
        now = self.look()
        self.set(completed=now.completed + count, spend_usd=now.spend_usd + spent_usd)

    @contextmanager
    def published(self, fd: int) -> Iterator[None]:
        """Let everybody who finds the claim taken read in its file what is going on."""

        def publish(status: WorkerStatus) -> None:
            with suppress(OSError):  # a full disk: others see less of it, the work goes on
                if os.fstat(fd).st_size > _LARGEST_CLAIM_BYTES:
                    os.ftruncate(fd, 0)
                os.write(fd, msgspec.json.encode(Live(os.getpid(), status)) + b"\n")

        with self._lock:
            self._publish = publish
            publish(self._status)
        try:
            yield
        finally:
            with self._lock:
                self._publish = lambda status: None


class Spend:
    """What the summaries of this process have cost together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total_usd = 0.0

    @property
    def total_usd(self) -> float:
        """So far."""
        with self._lock:
            return self._total_usd

    def add(self, usd: float) -> None:
        """One answer more."""
        with self._lock:
            self._total_usd += usd


class Job(Protocol):
    """What one worker does; used by one thread at a time."""

    @property
    def poll_s(self) -> float:
        """How long to rest when nothing calls."""
        ...

    @property
    def next_at(self) -> float | None:
        """When something that failed may be tried again."""
        ...

    def hurry(self) -> None:
        """Rest no longer because of what failed."""
        ...

    def work(self, board: Board, stop: threading.Event) -> None:
        """Do everything that can be done now."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


class Backlog(Conversations):
    """Conversations as workers see them: everything as it stands, and where it is kept."""

    @property
    def history(self) -> History:
        """Everything as it stands now."""
        return self._mine().history

    @property
    def stream(self) -> str:
        """The name of the stream that is worked on."""
        return self._own

    def target(self) -> Any:
        """What the index knows these conversations by."""
        return self._mine().target()


@contextmanager
def claimed(lock: Path) -> Iterator[int | None]:
    """The right to work as one worker on one stream, as a descriptor; None: somebody else has it.

    It is the system's own lock, so a process that dies gives it back.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    claim = disk.locked(lock, timeout_s=_CLAIM_S)
    try:
        fd = claim.__enter__()
    except disk.Busy:
        yield None
        return
    try:
        yield fd
    finally:
        claim.__exit__(None, None, None)


def elsewhere(lock: Path, name: Name) -> Live | None:
    """Who works as this worker now; None when nobody does."""
    if not lock.exists():
        return None
    try:
        with disk.locked(lock, timeout_s=0.0):
            return None
    except disk.Busy:
        pass
    for line in reversed(lock.read_bytes().splitlines()):
        with suppress(msgspec.MsgspecError):  # it is being written at this moment
            return msgspec.json.decode(line, type=Live)
    return Live(0, WorkerStatus(name, "idle"))
