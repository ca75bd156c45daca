"""What the background workers share: their names, their states, and what each shows of itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ralph import disk
from ralph.errors import IndexOff, RalphError
from ralph.memories import Ralph
from ralph.memories.conversations import Conversations
from ralph.memories.history import History

WorkerName = Literal["conversation", "exchange", "embedding"]
WorkerState = Literal["stopped", "running", "idle"]
WORKER_NAMES: tuple[WorkerName, ...] = ("conversation", "exchange", "embedding")

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

    name: WorkerName
    state: WorkerState
    total: int = 0
    completed: int = 0
    failed: int = 0
    current: str = ""
    spend_usd: float = 0.0
    retrying: int = 0
    next_retry_s: float | None = None
    given_up: int = 0
    note: str = ""


class PublishedStatus(msgspec.Struct, frozen=True):
    """What a worker says of itself to other processes."""

    pid: int
    status: WorkerStatus


class StatusBoard:
    """One worker's state: its thread writes, anybody may look."""

    def __init__(self, name: WorkerName) -> None:
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
                os.write(fd, msgspec.json.encode(PublishedStatus(os.getpid(), status)) + b"\n")

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


class WorkerJob(Protocol):
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

    def work(self, board: StatusBoard, stop: threading.Event) -> None:
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
def claim(lock: Path) -> Iterator[int | None]:
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


def running_elsewhere(lock: Path, name: WorkerName) -> PublishedStatus | None:
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
            return msgspec.json.decode(line, type=PublishedStatus)
    return PublishedStatus(0, WorkerStatus(name, "idle"))


# -- What failed, and when it may be tried again: 1, 2, 4, 8, 16, 32 seconds later, then given up.
#
# Kept beside the index, shared by all processes, and derived like it: without the file everything
# that is undone is simply tried again.


_LOCK_TIMEOUT_S = 10.0
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 32.0
_ERROR_CHARS = 500


class FailedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of a worker that failed so often, last with this error.

    `at` is when it may be tried again; `count` is how many passages an entry of the embedding
    pipeline stands for.
    """

    worker: str
    item: str
    attempts: int
    at: float
    error: str
    given_up: bool = False
    count: int = 1


_decode = msgspec.json.Decoder(dict[str, FailedItem]).decode


class Retries:
    """The failures of one stream's workers, by a key that each of them chooses."""

    def __init__(self, file: Path, *, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def entries(self, worker: str | None = None) -> dict[str, FailedItem]:
        """What failed and is not done yet, of one worker or of all."""
        try:
            held = _decode(self._file.read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}  # none, or of another version: it is tried again
        return {key: one for key, one in held.items() if worker in (None, one.worker)}

    def rests(self, one: FailedItem | None) -> bool:
        """Whether it must not be tried now."""
        if one is None:
            return False
        # A clock that was set back must not make anything wait for ever.
        return one.given_up or 0 < one.at - self._clock() <= _LONGEST_WAIT_S

    def next_at(self, worker: str) -> float | None:
        """When the first of a worker's failures may be tried again, unless it was long ago."""
        # What was tried just now and is still here waits for something else than its time.
        now = self._clock()
        held = self.entries(worker).values()
        return min((one.at for one in held if not one.given_up and one.at > now - 1), default=None)

    def failed(
        self, worker: str, key: str, item: str, error: str, *, most: int, count: int = 1
    ) -> FailedItem:
        """Count a failure; after `most` retries the item is given up."""
        with self._changing() as held:
            before = held.get(key)
            attempts = 1 + (before.attempts if before else 0)
            wait_s = min(_FIRST_WAIT_S * 2 ** (attempts - 1), _LONGEST_WAIT_S)
            told = " ".join(error.split())[:_ERROR_CHARS]
            one = held[key] = FailedItem(
                worker,
                item,
                attempts,
                self._clock() + wait_s,
                told,
                given_up=attempts > most,
                count=count,
            )
        return one

    def give_up(self, worker: str, items: Collection[str], error: str, *, attempts: int) -> None:
        """Put these aside at once."""
        with self._changing() as held:
            for item in items:
                told = " ".join(error.split())[:_ERROR_CHARS]
                held[item] = FailedItem(worker, item, attempts, self._clock(), told, given_up=True)

    def passed(self, keys: Collection[str]) -> None:
        """These are done, or no longer to be done."""
        if self.entries().keys() & set(keys):
            with self._changing() as held:
                for key in keys:
                    held.pop(key, None)

    def reset(self) -> list[FailedItem]:
        """Forget every failure, so that all is tried again at once, and tell what it was."""
        with self._changing() as held:
            gone = list(held.values())
            held.clear()
        return gone

    @contextmanager
    def _changing(self) -> Iterator[dict[str, FailedItem]]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with disk.locked(self._file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
                held = self.entries()
                yield held
                disk.replace(self._file, msgspec.json.encode(held))
        except disk.Busy:
            raise IndexOff(
                "another process keeps the workers' notes locked",
                where=str(self._file),
                todo="Try again when it has finished.",
            ) from None


# -- Waking the workers when another machine has written to the journal they follow.


# How soon it notices that it is to end.
_SLICE_S = 0.5


class JournalListener(threading.Thread):
    """Listens where the journal is on a server, and calls `heard`; with files it ends at once."""

    def __init__(self, open_memory: Callable[[], Ralph], heard: Callable[[], None]) -> None:
        super().__init__(name="ralph-listening", daemon=True)
        self._open = open_memory
        self._heard = heard
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Listen until it is stopped; without a sign the workers look by themselves."""
        with suppress(RalphError, OSError), self._open() as ralph:
            listener = ralph.conversations.shelf.journals.listener()
            if listener is None:
                return
            try:
                while not self._ended.is_set():
                    if listener.wait(_SLICE_S):
                        self._heard()
            finally:
                listener.close()

    def end(self, timeout_s: float) -> None:
        """Listen no longer."""
        self._ended.set()
        self.join(timeout_s)
