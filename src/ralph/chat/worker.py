"""A background worker: its status, its claim on a stream, its failures and its thread.

There is no job queue: pending work is whatever the journal shows as missing. One process at a time
works as each worker on one stream; whoever comes next continues.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from ralph import disk
from ralph.config import USER_FILE
from ralph.errors import IndexOff, RalphError
from ralph.memory.conversation_stream import ConversationStream
from ralph.memory.conversations import Conversations
from ralph.memory.ralph import Ralph
from ralph.trust import FILE as TRUST_FILE

WorkerName = Literal["conversation", "exchange", "embedding"]
WorkerState = Literal["stopped", "running", "idle"]
WORKER_NAMES: tuple[WorkerName, ...] = ("conversation", "exchange", "embedding")
MAX_RETRIES = 6
# The note of a worker that another process runs starts with this.
ELSEWHERE = "running elsewhere"

# Checking a lock takes it for a moment; that must not look like a worker.
_CLAIM_S = 0.25
# How soon a waiting worker notices that the process before it has ended.
_CLAIM_POLL_S = 2.0
# A worker appends a line for each change of its status, and starts over at this size.
_MAX_CLAIM_BYTES = 64 * 1024
_MIN_WAIT_S = 0.02
_MAX_RETRY_WAIT_S = 32.0
_LOCK_TIMEOUT_S = 10.0
_ERROR_CHARS = 500
_LISTEN_S = 0.5

Clock = Callable[[], float]


class WorkerStatus(msgspec.Struct, frozen=True):
    """The status of one worker.

    `completed` counts this session's work, `total` adds what is still to do. Items in `retrying`
    failed and wait for their next turn; items in `given_up` wait for a person.
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


class _PublishedStatus(msgspec.Struct, frozen=True):
    """A status as other processes read it from the claim's file."""

    pid: int
    status: WorkerStatus


# -- what failed


class FailedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of a worker that failed, its last error, and when it may be tried again.

    `count` is how many passages an entry of the embedding pipeline stands for.
    """

    worker: str
    item: str
    attempts: int
    at: float
    error: str
    given_up: bool = False
    count: int = 1


class Retries:
    """The failures of one stream's workers: tried again after 1, 2, 4, 8, 16, 32 s, then given up.

    The file is shared by all processes. Without it, everything that is pending is tried again.
    """

    def __init__(self, file: Path, *, clock: Clock, max_retries: int = MAX_RETRIES) -> None:
        self.file = file
        self.clock = clock
        self.max_retries = max_retries

    def entries(self, worker: str | None = None) -> dict[str, FailedItem]:
        """What failed and is still pending, of one worker or of all."""
        try:
            items = msgspec.json.decode(self.file.read_bytes(), type=dict[str, FailedItem])
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}  # none, or of another version: everything is tried again
        return {key: item for key, item in items.items() if worker in (None, item.worker)}

    def rests(self, item: FailedItem | None) -> bool:
        """Whether it must not be tried now."""
        if item is None:
            return False
        # A clock that was set back must not make anything wait forever.
        return item.given_up or 0 < item.at - self.clock() <= _MAX_RETRY_WAIT_S

    def next_at(self, worker: str) -> float | None:
        """When the first of a worker's failures may be tried again."""
        # An item that is overdue waits for something other than its time.
        due = self.clock() - 1
        items = self.entries(worker).values()
        return min((i.at for i in items if not i.given_up and i.at > due), default=None)

    def failed(
        self, worker: str, key: str, item: str, error: str, *, count: int = 1, attempts: int = 0
    ) -> FailedItem:
        """Count a failure, or set how many there were; after `max_retries` retries give it up."""
        with self._changing() as items:
            attempts = attempts or 1 + (items[key].attempts if key in items else 0)
            wait_s = min(2.0 ** (attempts - 1), _MAX_RETRY_WAIT_S)
            entry = items[key] = FailedItem(
                worker,
                item,
                attempts,
                self.clock() + wait_s,
                " ".join(error.split())[:_ERROR_CHARS],
                given_up=attempts > self.max_retries,
                count=count,
            )
        return entry

    def drop(self, keys: Collection[str]) -> None:
        """These are done, or no longer pending."""
        if self.entries().keys() & set(keys):
            with self._changing() as items:
                for key in keys:
                    items.pop(key, None)

    def clear(self) -> list[FailedItem]:
        """Drop every failure, so that everything is tried again at once, and return them."""
        with self._changing() as items:
            dropped = list(items.values())
            items.clear()
        return dropped

    @contextmanager
    def _changing(self) -> Iterator[dict[str, FailedItem]]:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with disk.locked(self.file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
                items = self.entries()
                yield items
                disk.replace(self.file, msgspec.json.encode(items))
        except disk.Busy:
            raise IndexOff(
                "another process has locked the workers' notes",
                where=str(self.file),
                todo="Try again when it has finished.",
            ) from None


# -- memory


def stream_of(memory: Conversations) -> ConversationStream:
    """The journal of these conversations as a stream, with its history and its index."""
    return memory.stream


class SettingsWatch:
    """Notices when a file of settings has changed."""

    def __init__(self, ralph: Ralph) -> None:
        home = ralph.place.home
        self._files = [home / USER_FILE, home / TRUST_FILE, ralph.project.settings_file]
        self._state = self._look()

    def changed(self) -> bool:
        """Whether a file has changed since the last call."""
        before, self._state = self._state, self._look()
        return before != self._state

    def _look(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for file in self._files:
            try:
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_size))
            except OSError:
                found.append(None)
        return found


# -- the worker


class Worker(ABC):
    """One background job, run in a thread or once, while this process holds the claim to it."""

    # How long to rest when nothing wakes the worker.
    poll_s: float

    def __init__(
        self,
        name: WorkerName,
        open_memory: Callable[[], Ralph],
        retries: Retries,
        *,
        poll_s: float | None = None,
    ) -> None:
        self.name = name
        self.poll_s = self.poll_s if poll_s is None else poll_s
        self._open = open_memory
        self._retries = retries
        self._claim = retries.file.with_name(f"{retries.file.stem}-{name}.lock")
        self._fd: int | None = None  # of the claim, while we hold it
        self._opened: tuple[Ralph, SettingsWatch] | None = None
        self._thread: _WorkerThread | None = None
        self._lock = threading.Lock()
        self._status = WorkerStatus(name, "stopped")

    # -- what each kind of worker does

    @abstractmethod
    def pending(self, memory: Conversations) -> int:
        """How many items are to do."""

    @abstractmethod
    def work(self, stop: threading.Event) -> None:
        """Do everything that can be done now."""

    def on_open(self, memory: Conversations) -> None:  # noqa: B027 - few workers need it
        """Prepare a memory that was just opened."""

    @property
    def next_at(self) -> float | None:
        """When something that failed may be tried again."""
        return self._retries.next_at(self.name)

    def hurry(self) -> None:  # noqa: B027 - few workers need it
        """Stop resting because of a failure."""

    def memory(self) -> Conversations:
        """The conversations, for the working thread; opened again when a setting has changed."""
        if self._opened is not None and self._opened[1].changed():
            self._opened[0].close()
            self._opened = None
        if self._opened is None:
            ralph = self._open()
            self._opened = ralph, SettingsWatch(ralph)
            self.on_open(ralph.conversations)
        return self._opened[0].conversations

    # -- status

    def look(self) -> WorkerStatus:
        """The status in this process."""
        with self._lock:
            return self._status

    def set(self, **changes: Any) -> None:
        """Change the status, and publish it while the claim is held."""
        with self._lock:
            self._status = msgspec.structs.replace(self._status, **changes)
            if self._fd is None:
                return
            with suppress(OSError):  # a full disk: others see less, the work continues
                if os.fstat(self._fd).st_size > _MAX_CLAIM_BYTES:
                    os.ftruncate(self._fd, 0)
                line = msgspec.json.encode(_PublishedStatus(os.getpid(), self._status))
                os.write(self._fd, line + b"\n")

    def add(self, *, completed: int = 0, failed: int = 0, spend_usd: float = 0.0) -> None:
        """Add to the counts of the status."""
        now = self.look()
        self.set(
            completed=now.completed + completed,
            failed=now.failed + failed,
            spend_usd=now.spend_usd + spend_usd,
        )

    def status(self) -> WorkerStatus:
        """The status of this worker, in whichever process it runs."""
        own = self.look()
        waits = self._thread is not None and self._thread.is_alive() and self._fd is None
        if not waits and own.state != "stopped":
            return own
        return self._status_elsewhere() or own

    def _status_elsewhere(self) -> WorkerStatus | None:
        """The status that the holder of the claim has published; None when nobody holds it."""
        if not self._claim.exists():
            return None
        try:
            with disk.locked(self._claim, timeout_s=0.0):
                return None
        except disk.Busy:
            pass
        for line in reversed(self._claim.read_bytes().splitlines()):
            with suppress(msgspec.MsgspecError):  # it is being written at this moment
                live = msgspec.json.decode(line, type=_PublishedStatus)
                note = f"{ELSEWHERE} (process {live.pid})"
                note += f"; {live.status.note}" if live.status.note else ""
                return msgspec.structs.replace(live.status, note=note)
        return WorkerStatus(self.name, "idle", note=ELSEWHERE)

    # -- running

    def start(self) -> None:
        """Run in a thread, unless it already does."""
        if self._thread is None or not self._thread.is_alive():
            self.set(state="idle", note="")
            self._thread = _WorkerThread(self)
            self._thread.start()

    def signal(self) -> None:
        """Wake the thread: there is something to do."""
        if self._thread is not None:
            self._thread.wake.set()

    def stop(self) -> threading.Thread | None:
        """Tell the thread to end, and return it to be waited for."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop.set()
            thread.wake.set()
        return thread

    def run_once(self, stop: threading.Event) -> None:
        """Do one pass here and now, unless another process works."""
        with self._claimed() as claimed:
            if claimed:
                self.set(state="running")
                try:
                    self._work(stop)
                finally:
                    self.set(state="idle", current="")

    def run(self, stop: threading.Event, wake: threading.Event) -> None:
        """Work and rest in turn until stopped; wait while another process holds the claim."""
        try:
            while not stop.is_set():
                wake.clear()
                with self._claimed() as claimed:
                    while claimed and not stop.is_set():
                        wake.clear()
                        self._work(stop)
                        if not stop.is_set():
                            self.set(state="idle", current="")
                            wake.wait(self._wait_s())
                if not stop.is_set():
                    wake.wait(min(self.poll_s, _CLAIM_POLL_S))
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            self.set(state="stopped", note=f"ended by {type(error).__name__}: {error}")

    def _work(self, stop: threading.Event) -> None:
        try:
            self.work(stop)
        except (RalphError, OSError) as error:
            self.set(note=str(error))

    def _wait_s(self) -> float:
        with suppress(RalphError, OSError):  # the note of the last pass says why
            if (at := self.next_at) is not None:
                return max(_MIN_WAIT_S, min(self.poll_s, at - self._retries.clock()))
        return self.poll_s

    @contextmanager
    def _claimed(self) -> Iterator[bool]:
        """Hold the right to work on this stream; False when another process has it.

        It is a lock of the system, so a process that dies gives it back.
        """
        self._claim.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                self._fd = stack.enter_context(disk.locked(self._claim, timeout_s=_CLAIM_S))
            except disk.Busy:
                yield False
                return
            try:
                self.set()
                yield True
            finally:
                # Before the next thread may claim: a database belongs to the thread that opened it.
                if self._opened is not None:
                    self._opened[0].close()
                    self._opened = None
                with self._lock:
                    self._fd = None


class _WorkerThread(threading.Thread):
    def __init__(self, worker: Worker) -> None:
        # A daemon: a process that ends does not wait for a model that hangs.
        super().__init__(name=f"ralph-{worker.name}", daemon=True)
        self.stop = threading.Event()
        self.wake = threading.Event()
        self._worker = worker

    def run(self) -> None:
        self._worker.run(self.stop, self.wake)


class JournalListener(threading.Thread):
    """Calls `on_change` when another machine writes to a journal on a server."""

    def __init__(self, open_memory: Callable[[], Ralph], on_change: Callable[[], None]) -> None:
        super().__init__(name="ralph-listening", daemon=True)
        self._open = open_memory
        self._on_change = on_change
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Listen until the end; if the server fails, the workers still poll."""
        with suppress(RalphError, OSError), self._open() as ralph:
            listener = ralph.conversations.shelf.journals.listener()
            if listener is None:
                return
            try:
                while not self._ended.is_set():
                    if listener.wait(_LISTEN_S):
                        self._on_change()
            finally:
                listener.close()

    def end(self, timeout_s: float) -> None:
        """Stop listening."""
        self._ended.set()
        self.join(timeout_s)
