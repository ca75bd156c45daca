"""The background workers of a project's conversations: start, stop, wake and watch them.

There is no job queue: the journal shows which work is pending. For each stream, each worker runs in
one process at a time; when that process ends, another continues. Workers are threads of the chat or
of `ralph workers run`.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from ralph import disk
from ralph.config import USER_FILE
from ralph.errors import IndexOff, RalphError
from ralph.memory.conversations import Conversations
from ralph.memory.ralph import Ralph
from ralph.records.conversation import SummaryTarget
from ralph.trust import FILE as TRUST_FILE

if TYPE_CHECKING:
    from ralph.chat.model import ChatModel

WorkerName = Literal["conversation", "exchange", "embedding"]
SUMMARIZERS: tuple[SummaryTarget, ...] = ("conversation", "exchange")
# The name of the worker, and the key of its failure when the embedder itself fails.
EMBEDDING: WorkerName = "embedding"
WORKER_NAMES: tuple[WorkerName, ...] = (*SUMMARIZERS, EMBEDDING)
# The note of a worker that another process runs starts with this.
ELSEWHERE = "running elsewhere"

# Checking a lock takes it for a moment. Wait longer than that before we call a claim taken.
_CLAIM_S = 0.25
# How soon a waiting worker notices that the process before it has ended.
_CLAIM_POLL_S = 2.0
# A worker appends a line for each change of its status, and starts over at this size.
_MAX_CLAIM_BYTES = 64 * 1024
_MAX_RETRY_WAIT_S = 32.0
_LOCK_TIMEOUT_S = 10.0
_ERROR_CHARS = 500
# How long to wait, when stopping, for a worker that is waiting for a model.
_GRACE_S = 3.0

Clock = Callable[[], float]
OpenMemory = Callable[[], Ralph]


class WorkerStatus(msgspec.Struct, frozen=True):
    """The status of one worker.

    `completed` counts this session's work; `total` adds the pending work. Items in `retrying` have
    failed and will be retried; items in `given_up` wait for the user.
    """

    name: WorkerName
    state: Literal["stopped", "running", "idle"]
    total: int = 0
    completed: int = 0
    failed: int = 0
    current: str = ""
    spend_usd: float = 0.0
    retrying: int = 0
    next_retry_s: float | None = None
    given_up: int = 0
    note: str = ""


# -- what failed


class FailedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's failed item, its last error, and when it may be retried.

    `count` is how many passages an entry of the embedding pipeline stands for.
    """

    worker: str
    item: str
    attempts: int
    at: float
    error: str
    given_up: bool = False
    count: int = 1

    def __str__(self) -> str:
        tries = f"{self.attempts} time{'' if self.attempts == 1 else 's'}"
        return f"{self.worker} {self.item}, tried {tries}: {self.error}"


class Retries:
    """The failures of one stream's workers: retried after 1, 2, 4, 8, 16, 32 s, then given up.

    All processes share the file. If it is lost, everything that is pending is tried again.
    """

    def __init__(self, file: Path, *, clock: Clock, max_retries: int = 6) -> None:
        self.file = file
        self.clock = clock
        self.max_retries = max_retries

    def entries(self, worker: str | None = None) -> dict[str, FailedItem]:
        """Return the failed items that are still pending, of one worker or of all."""
        try:
            items = msgspec.json.decode(self.file.read_bytes(), type=dict[str, FailedItem])
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}  # no file, or one of another version: everything is tried again
        return {key: item for key, item in items.items() if worker in (None, item.worker)}

    def rests(self, item: FailedItem | None) -> bool:
        """Whether the item must not be tried now."""
        # A clock that was set back must not make anything wait forever.
        wait_s = item.at - self.clock() if item else 0.0
        return item is not None and (item.given_up or 0 < wait_s <= _MAX_RETRY_WAIT_S)

    def next_at(self, worker: str) -> float | None:
        """Return when the first of a worker's failures may be retried."""
        # An overdue item is waiting for something other than its time.
        due = self.clock() - 1
        items = self.entries(worker).values()
        return min((i.at for i in items if not i.given_up and i.at > due), default=None)

    def failed(
        self, worker: str, key: str, item: str, error: str, *, count: int = 1, attempts: int = 0
    ) -> FailedItem:
        """Count a failure, or set the number of attempts; give up after `max_retries` retries."""
        with self._changing() as items:
            attempts = attempts or 1 + (items[key].attempts if key in items else 0)
            at = self.clock() + min(2.0 ** (attempts - 1), _MAX_RETRY_WAIT_S)
            message = " ".join(error.split())[:_ERROR_CHARS]
            given_up = attempts > self.max_retries
            items[key] = FailedItem(worker, item, attempts, at, message, given_up, count)
        return items[key]

    def drop(self, keys: Collection[str]) -> None:
        """Drop these items: they are done or no longer pending."""
        if self.entries().keys() & set(keys):
            with self._changing() as items:
                for key in keys:
                    items.pop(key, None)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, FailedItem]]:
        disk.make_folder(self.file.parent)
        try:
            with disk.lock(self.file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
                items = self.entries()
                yield items
                disk.replace(self.file, msgspec.json.encode(items))
        except disk.Busy:
            what = "another process has locked the workers' notes"
            todo = "Try again later."
            raise IndexOff(what, where=str(self.file), todo=todo) from None


# -- the worker


def settings_state(ralph: Ralph) -> list[object]:
    """Return a value that changes when a settings file changes."""
    home = ralph.store.home
    found: list[object] = []
    for file in (home / USER_FILE, home / TRUST_FILE, ralph.project.settings_file):
        with suppress(OSError):
            stat = file.stat()
            found.append((file, stat.st_mtime_ns, stat.st_size))
    return found


class Worker(ABC):
    """One background job. It runs in a thread, or once, while this process holds its claim."""

    def __init__(self, name: WorkerName, crew: Workers) -> None:
        self.name = name
        # How long to rest when nothing wakes the worker.
        self.poll_s = crew.poll_s[name]
        self._crew = crew
        self._retries = crew.retries
        self._claim = crew.retries.file.with_name(f"{crew.retries.file.stem}-{name}.lock")
        self._fd: int | None = None  # of the claim, while we hold it
        self._opened: tuple[Ralph, list[object]] | None = None
        self._thread: threading.Thread | None = None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self.own_status = WorkerStatus(name, "stopped")

    # -- what each kind of worker does

    @abstractmethod
    def pending(self, memory: Conversations) -> int:
        """Return how many items are pending."""

    @abstractmethod
    def work(self, memory: Conversations, stop: threading.Event) -> None:
        """Do everything that can be done now."""

    @property
    def next_at(self) -> float | None:
        """When the next failed item may be retried."""
        return self._retries.next_at(self.name)

    def hurry(self) -> None:  # noqa: B027 - few workers need it
        """Stop waiting after a failure."""

    def memory(self) -> Conversations:
        """Return the conversations for the worker's thread; reopen them if a setting changed."""
        if self._opened is not None and self._opened[1] != settings_state(self._opened[0]):
            self._close()
        if self._opened is None:
            ralph = self._crew.open_memory()
            self._opened = ralph, settings_state(ralph)
        return self._opened[0].conversations

    def _close(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    # -- status

    def set(self, *, left: int | None = None, **changes: Any) -> None:
        """Change the status, and publish it while we hold the claim; `left` is the pending work."""
        with self._lock:
            if left is not None:
                changes["total"] = self.own_status.completed + left
            # Until the pending work is counted again, what was done must not exceed all work.
            done = changes.get("completed", 0)
            if done > changes.get("total", self.own_status.total):
                changes["total"] = done
            self.own_status = msgspec.structs.replace(self.own_status, **changes)
            if self._fd is None:
                return
            with suppress(OSError):  # on a full disk others see less, but the work continues
                if os.fstat(self._fd).st_size > _MAX_CLAIM_BYTES:
                    os.ftruncate(self._fd, 0)
                os.write(self._fd, msgspec.json.encode((os.getpid(), self.own_status)) + b"\n")

    def add(self, **counts: float) -> None:
        """Add to the counts of the status."""
        self.set(**{name: getattr(self.own_status, name) + n for name, n in counts.items()})

    def status(self) -> WorkerStatus:
        """Return this worker's status, from whichever process it runs in."""
        waits = self._thread is not None and self._thread.is_alive() and self._fd is None
        if not waits and self.own_status.state != "stopped":
            return self.own_status
        return self._status_elsewhere() or self.own_status

    def _status_elsewhere(self) -> WorkerStatus | None:
        """Return the status that the claim's holder has published; None if nobody holds it."""
        if not self._claim.exists():
            return None
        with suppress(disk.Busy), disk.lock(self._claim, timeout_s=0.0):
            return None
        for line in reversed(self._claim.read_bytes().splitlines()):
            with suppress(msgspec.MsgspecError):  # it is being written at this moment
                pid, status = msgspec.json.decode(line, type=tuple[int, WorkerStatus])
                note = f"{ELSEWHERE} (process {pid})" + (f"; {status.note}" if status.note else "")
                return msgspec.structs.replace(status, note=note)
        return WorkerStatus(self.name, "idle", note=ELSEWHERE)

    # -- running

    def start(self) -> None:
        """Start the thread, unless it is running."""
        if self._thread is None or not self._thread.is_alive():
            self.set(state="idle", note="")
            # An old thread that was stopped but still waits for a model keeps its own events.
            self._stop, self._wake = threading.Event(), threading.Event()
            # A daemon, so that the process does not wait at its end for a model that hangs.
            events = self._stop, self._wake
            self._thread = threading.Thread(target=self._run, args=events, daemon=True)
            self._thread.name = f"ralph-{self.name}"
            self._thread.start()

    def signal(self) -> None:
        """Wake the thread: there is something to do."""
        self._wake.set()

    def stop(self) -> threading.Thread | None:
        """Tell the thread to end; return it, so that the caller can wait for it."""
        thread = self._thread
        self._thread = None
        self._stop.set()
        self._wake.set()
        return thread

    def run_once(self, stop: threading.Event) -> None:
        """Do one pass in this thread, unless another process holds the claim."""
        with self._claimed() as claimed:
            if claimed:
                self.set(state="running")
                try:
                    self._work(stop)
                finally:
                    self.set(state="idle", current="")

    def _run(self, stop: threading.Event, wake: threading.Event) -> None:
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
            self.work(self.memory(), stop)
        except (RalphError, OSError) as error:
            self.set(note=str(error))

    def _wait_s(self) -> float:
        with suppress(RalphError, OSError):  # the note of the last pass says why
            if (at := self.next_at) is not None:
                return max(0.02, min(self.poll_s, at - self._retries.clock()))
        return self.poll_s

    @contextmanager
    def _claimed(self) -> Iterator[bool]:
        """Hold the claim to this stream; yield False if another process has it.

        It is a lock of the operating system, which releases it if the process dies.
        """
        disk.make_folder(self._claim.parent)
        with ExitStack() as stack:
            try:
                self._fd = stack.enter_context(disk.lock(self._claim, timeout_s=_CLAIM_S))
            except disk.Busy:
                yield False
                return
            try:
                self.set()
                yield True
            finally:
                # Close before the next claim: a database belongs to the thread that opened it.
                self._close()
                with self._lock:
                    self._fd = None


# -- all of them


def setting_of(name: WorkerName) -> str:
    """Return the setting that turns this worker on and off."""
    return "embedding_pipeline_enabled" if name == EMBEDDING else f"summarizer_{name}_enabled"


class Workers:
    """The workers of one project's conversations, as seen from this process.

    A `with` block starts those that the settings enable, and stops them all at the end.
    """

    def __init__(
        self,
        open_memory: OpenMemory,
        *,
        current: Callable[[], str | None] = lambda: None,
        summarizer: ChatModel | None = None,
        clock: Clock = time.time,
        grace_s: float = _GRACE_S,
        poll_s: float | None = None,
        max_retries: int | None = None,
    ) -> None:
        """`current` returns the id of this chat's conversation, which workers must skip."""
        from ralph.chat.embeddings import EmbeddingPipeline
        from ralph.chat.summaries import Summarizer

        self.open_memory = open_memory
        self.current = current
        self.summarizer = summarizer
        self._grace_s = grace_s
        self._listener: threading.Thread | None = None
        self._ended = threading.Event()
        with open_memory() as ralph:
            file = ralph.store.home / "cache" / "workers" / f"{ralph.project.id}.json"
            self._settings_now = partial(settings_state, ralph)
            self._settings = self._settings_now()
            settings = ralph.config.settings
            self._on_server = bool(settings.journal_url)
        if max_retries is None:
            max_retries = settings.embedding_max_retries
        self.poll_s: dict[WorkerName, float] = {
            of: settings.summarizer_idle_timeout_s if poll_s is None else poll_s
            for of in SUMMARIZERS
        }
        embedding_poll_s = settings.embedding_pipeline_poll_interval_s
        self.poll_s[EMBEDDING] = embedding_poll_s if poll_s is None else poll_s
        self.retries = Retries(file, clock=clock, max_retries=max_retries)
        self._workers: dict[WorkerName, Worker] = {of: Summarizer(of, self) for of in SUMMARIZERS}
        self._workers[EMBEDDING] = EmbeddingPipeline(EMBEDDING, self)

    @property
    def spent_usd(self) -> float:
        """The cost of this process's summaries so far."""
        return sum(self._workers[of].own_status.spend_usd for of in SUMMARIZERS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- running

    def start(self, name: WorkerName | None = None) -> None:
        """Start one worker, or all that the settings enable."""
        if self._listener is None and self._on_server:
            self._ended.clear()
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.name = "ralph-listening"
            self._listener.start()
        for each in self._enabled() if name is None else [name]:
            self._workers[each].start()

    def stop(self, name: WorkerName | None = None) -> None:
        """Stop one worker, or all; do not wait long for one that is waiting for a model."""
        if name is None and self._listener is not None:
            self._ended.set()
            self._listener.join(self._grace_s)
            self._listener = None
        workers = [self._workers[name]] if name else list(self._workers.values())
        threads = [(worker, worker.stop()) for worker in workers]
        until = time.monotonic() + self._grace_s
        for worker, thread in threads:
            if thread is not None:
                thread.join(max(0.0, until - time.monotonic()))
                worker.set(state="stopped", current="", note="")

    def signal(self, names: Iterable[WorkerName] = WORKER_NAMES) -> None:
        """Wake workers: there is a new exchange, or a conversation has ended."""
        for name in names:
            self._workers[name].signal()

    def _listen(self) -> None:
        """Wake workers when another machine writes to a journal on a server; else they poll."""
        with suppress(RalphError, OSError), self.open_memory() as ralph:
            if (listener := ralph.conversations.store.journals.listener()) is None:
                return
            with closing(listener):
                while not self._ended.is_set():
                    if listener.wait(0.5):
                        self.signal()

    def follow(self) -> None:
        """Start and stop workers if their settings have changed, even from another process."""
        before = self._settings
        self._settings = self._settings_now()
        if before == self._settings:
            return
        enabled = self._enabled()
        for name in WORKER_NAMES:
            (self.start if name in enabled else self.stop)(name)
        self.signal()

    def run_once(
        self, names: Iterable[WorkerName] | None = None, *, stop: threading.Event | None = None
    ) -> list[WorkerStatus]:
        """Run one pass of these workers in this thread; by default those the settings enable."""
        chosen = self._enabled() if names is None else list(names)
        for name in chosen:
            self._workers[name].run_once(stop or threading.Event())
        statuses = self.statuses(chosen)
        for name in chosen:
            self._workers[name].set(state="stopped")
        return statuses

    def _enabled(self) -> list[WorkerName]:
        with self.open_memory() as ralph:
            settings = ralph.config.settings
            return [name for name in WORKER_NAMES if getattr(settings, setting_of(name))]

    # -- status

    def statuses(self, names: Iterable[WorkerName] = WORKER_NAMES) -> list[WorkerStatus]:
        """Return the status of each worker, from whichever process it runs in."""
        found = {name: self._workers[name].status() for name in names}
        if stopped := [status for status in found.values() if status.state == "stopped"]:
            with self.open_memory() as ralph:
                memory = ralph.conversations
                for status in stopped if memory.exist else ():
                    total = status.completed + self._workers[status.name].pending(memory)
                    found[status.name] = msgspec.structs.replace(status, total=total)
        return [self._with_retries(status) for status in found.values()]

    def _with_retries(self, status: WorkerStatus) -> WorkerStatus:
        items = self.retries.entries(status.name).values()
        waiting = [item for item in items if not item.given_up]
        next_at = min((item.at for item in waiting), default=None)
        return msgspec.structs.replace(
            status,
            retrying=sum(item.count for item in waiting),
            next_retry_s=None if next_at is None else max(0.0, next_at - self.retries.clock()),
            given_up=sum(item.count for item in items if item.given_up),
        )

    # -- what failed

    def given_up(self) -> list[FailedItem]:
        """Return the items that are retried only if the user asks for it."""
        found: list[FailedItem] = []
        for key, failed in self.retries.entries().items():
            if failed.given_up:
                items = [failed.item]
                if key == EMBEDDING:  # the embedder itself failed, so all waiting records did
                    from ralph.chat.embeddings import waiting_ids

                    with self.open_memory() as ralph:
                        items = waiting_ids(ralph.conversations)
                found += [msgspec.structs.replace(failed, item=item) for item in items]
        return found

    def retry_embeddings(self) -> None:
        """Drop the failures of the embedding pipeline, so that it starts over."""
        self.retries.drop(self.retries.entries(EMBEDDING))
        self.signal()

    def retry(self) -> int:
        """Retry everything that failed, right now; return how many items that is."""
        failed = self.retries.entries()
        self.retries.drop(failed)
        # Texts that the embedder failed on have a zero vector: remove them to embed them again.
        ids = [key for key, item in failed.items() if item.worker == EMBEDDING and key != EMBEDDING]
        if ids:
            from ralph.chat.embeddings import clear_embeddings

            with self.open_memory() as ralph:
                clear_embeddings(ralph.conversations, ids)
        for worker in self._workers.values():
            worker.hurry()
        self.signal()
        return sum(item.count for item in failed.values())
