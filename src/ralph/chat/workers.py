"""The three background workers of conversational memory: started, stopped, woken, looked at.

They run as threads of the chat, or of `ralph workers run`. One process at a time works as each of
them on one stream; what is done stands in the journal, so whoever comes next goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ralph.chat.embedding import KEY, EmbeddingPipeline
from ralph.chat.indexed import behind, clear, waiting_ids
from ralph.chat.listening import Ear
from ralph.chat.model import Model
from ralph.chat.retrying import Retries
from ralph.chat.summarising import (
    SharedBacklog,
    Summariser,
    files_state,
    open_backlog,
    settings_files,
)
from ralph.chat.working import (
    NAMES,
    Backlog,
    Board,
    Clock,
    Job,
    Name,
    Spend,
    WorkerStatus,
    claimed,
    elsewhere,
)
from ralph.config import Settings
from ralph.errors import RalphError
from ralph.memory.ralph import Ralph
from ralph.records.conversation import Summarised

__all__ = ["ELSEWHERE", "NAMES", "GivenUp", "Name", "WorkerStatus", "Workers", "setting_of"]

# How the note of a worker begins that another process runs.
ELSEWHERE = "running elsewhere"
# How long somebody who ends waits for a worker that waits for a model.
_GRACE_S = 3.0
_SHORTEST_WAIT_S = 0.02
_POLL_AFTER_TROUBLE_S = 30.0
_LISTED = 1000


class GivenUp(msgspec.Struct, frozen=True):
    """An item that a worker has given up: a conversation or an exchange, and why."""

    worker: Name
    item: str
    attempts: int
    error: str

    def __str__(self) -> str:
        return f"{self.worker} {self.item}, tried {self.attempts} times: {self.error}"


def setting_of(name: Name) -> str:
    """The setting that says whether this worker runs."""
    return "embedding_pipeline_enabled" if name == KEY else f"summarizer_{name}_enabled"


class Workers:
    """The workers of one project's conversations, as this process sees them.

    A `with` block starts those that the settings enable and ends them all.
    """

    def __init__(
        self,
        open_memory: Callable[[], Ralph],
        *,
        current: Callable[[], str | None] = lambda: None,
        summariser: Model | None = None,
        clock: Clock = time.time,
        grace_s: float = _GRACE_S,
    ) -> None:
        """`current` names the conversation under way, which is left alone."""
        self._open = open_memory
        self._current = current
        self._summariser = summariser
        self._clock = clock
        self._grace_s = grace_s
        self._boards = {name: Board(name) for name in NAMES}
        self._spend = Spend()
        self._threads: dict[Name, _Thread] = {}
        self._ear: Ear | None = None
        with open_memory() as ralph:
            backlog = open_backlog(ralph)
            folder = ralph.place.home / "cache" / "workers"
            self._files = settings_files(ralph)
            self._on_server = bool(ralph.config.settings.journal_url)
        self._state = files_state(self._files)
        self._locks = {name: folder / f"{backlog.stream}-{name}.lock" for name in NAMES}
        self._retries = Retries(folder / f"{backlog.stream}.json", clock=clock)
        self._jobs = self._made()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- running

    def start(self, name: Name | None = None) -> None:
        """Let one worker run, or all that the settings enable."""
        if self._ear is None and self._on_server:
            self._ear = Ear(self._open, self.signal)
        for one in self._enabled() if name is None else [name]:
            if one not in self._threads or not self._threads[one].is_alive():
                self._boards[one].set(state="idle", note="")
                self._threads[one] = _Thread(
                    self._jobs[one], self._boards[one], self._locks[one], self._clock
                )

    def stop(self, name: Name | None = None) -> None:
        """End one worker, or all; one that waits for a model is not waited for long."""
        if name is None and self._ear is not None:
            self._ear.end(self._grace_s)
            self._ear = None
        ending = [one for one in ([name] if name else NAMES) if one in self._threads]
        threads = [self._threads.pop(one) for one in ending]
        for thread in threads:
            thread.stop.set()
            thread.wake.set()
        until = time.monotonic() + self._grace_s
        for one, thread in zip(ending, threads, strict=True):
            thread.join(max(0.0, until - time.monotonic()))
            self._boards[one].set(state="stopped", current="", note="")

    def signal(self) -> None:
        """Wake them at once: something was said, or a conversation has ended."""
        for thread in self._threads.values():
            thread.wake.set()

    def follow(self) -> None:
        """Start and stop what was enabled or disabled since, in another process perhaps."""
        state = files_state(self._files)
        if state == self._state:
            return
        self._state = state
        enabled = self._enabled()
        for name in NAMES:
            if name in enabled:
                self.start(name)
            else:
                self.stop(name)
        self.signal()

    def run_once(
        self, names: Iterable[Name] | None = None, *, stop: threading.Event | None = None
    ) -> list[WorkerStatus]:
        """One pass of each, here and now; of those that the settings enable if none is named."""
        ended = stop or threading.Event()
        ran = self._enabled() if names is None else list(names)
        for name in ran:
            board = self._boards[name]
            with claimed(self._locks[name]) as fd:
                if fd is None:
                    continue
                with board.published(fd):
                    board.set(state="running")
                    try:
                        self._jobs[name].work(board, ended)
                    except (RalphError, OSError) as error:
                        board.set(note=str(error))
                    finally:
                        board.set(state="idle", current="")
                        self._jobs[name].close()
        told = self.statuses(ran)
        for name in ran:
            self._boards[name].set(state="stopped")
        return told

    # -- looking

    def statuses(self, names: Iterable[Name] = NAMES) -> list[WorkerStatus]:
        """How each stands, whichever process it runs in."""
        seen: dict[Name, WorkerStatus] = {}
        for name in names:
            status = self._boards[name].look()
            thread = self._threads.get(name)
            waits = thread is not None and thread.is_alive() and not thread.holds
            if waits or status.state == "stopped":
                status = self._other(name) or status
            seen[name] = status
        idle = [name for name, one in seen.items() if one.state == "stopped"]
        if idle:
            seen |= self._stopped(idle, seen)
        return [self._with_retries(one) for one in seen.values()]

    def _other(self, name: Name) -> WorkerStatus | None:
        """The worker of another process, or one of ours that has not ended yet."""
        live = elsewhere(self._locks[name], name)
        if live is None:
            return None
        process = f" (process {live.pid})" if live.pid else ""
        notes = [f"{ELSEWHERE}{process}", live.status.note]
        return msgspec.structs.replace(live.status, note="; ".join(filter(None, notes)))

    def _stopped(
        self, names: Iterable[Name], seen: dict[Name, WorkerStatus]
    ) -> dict[Name, WorkerStatus]:
        """What there is to do for those that do not run."""
        told: dict[Name, WorkerStatus] = {}
        with self._open() as ralph:
            memory = open_backlog(ralph)
            try:
                for name in names:
                    status = seen[name]
                    total = status.completed + self._to_do(name, memory)
                    told[name] = msgspec.structs.replace(status, total=total)
            finally:
                memory.close()
        return told

    def _to_do(self, name: Name, memory: Backlog) -> int:
        if not memory.exist:
            return 0
        if name == KEY:
            return behind(memory).count
        job = self._jobs[name]
        return len(job.due(memory)) if isinstance(job, Summariser) else 0

    def _with_retries(self, status: WorkerStatus) -> WorkerStatus:
        entries = self._retries.entries(status.name).values()
        waiting = [one for one in entries if not one.given_up]
        next_at = min((one.at for one in waiting), default=None)
        return msgspec.structs.replace(
            status,
            retrying=sum(one.count for one in waiting),
            next_retry_s=None if next_at is None else max(0.0, next_at - self._clock()),
            given_up=sum(one.count for one in entries if one.given_up),
        )

    def given_up(self) -> list[GivenUp]:
        """What was tried so often that only a person can say to try it again."""
        found: list[GivenUp] = []
        for key, one in self._retries.entries().items():
            if not one.given_up:
                continue
            items = self._waiting() if key == KEY else [one.item]
            worker = next(name for name in NAMES if name == one.worker)
            found += [GivenUp(worker, item, one.attempts, one.error) for item in items]
        return found

    def retry_embeddings(self) -> None:
        """Forget what the embedding pipeline failed at: its work begins anew."""
        self._retries.passed(self._retries.entries(KEY).keys())
        self.signal()

    def retry(self) -> int:
        """Let everything that failed be tried again at once; how many items that is."""
        gone = self._retries.reset()
        # Those that the embedder could make nothing of have no direction: it is asked again.
        unmade = [one.item for one in gone if one.worker == KEY and one.item != KEY]
        if unmade:
            with self._open() as ralph:
                memory = open_backlog(ralph)
                try:
                    clear(memory, unmade)
                finally:
                    memory.close()
        for job in self._jobs.values():
            job.hurry()
        self.signal()
        return sum(one.count for one in gone)

    def _waiting(self) -> list[str]:
        with self._open() as ralph:
            memory = open_backlog(ralph)
            try:
                return memory.shelf.index.healed(lambda: waiting_ids(memory, _LISTED))
            finally:
                memory.close()

    # -- inside

    def _enabled(self) -> list[Name]:
        with self._open() as ralph:
            return _enabled(ralph.config.settings)

    def _made(self) -> dict[Name, Job]:
        backlog = SharedBacklog(self._open)

        def summariser(of: Summarised) -> Summariser:
            return Summariser(
                of,
                backlog,
                self._retries,
                self._spend,
                clock=self._clock,
                current=self._current,
                model=self._summariser,
                written=self._wake_pipeline,
            )

        return {
            "conversation": summariser("conversation"),
            "exchange": summariser("exchange"),
            "embedding": EmbeddingPipeline(self._open, self._retries),
        }

    def _wake_pipeline(self) -> None:
        if thread := self._threads.get("embedding"):
            thread.wake.set()


def _enabled(settings: Settings) -> list[Name]:
    return [name for name in NAMES if getattr(settings, setting_of(name))]


class _Thread(threading.Thread):
    """One worker at work until it is stopped; it waits for its turn where another has the claim."""

    def __init__(self, job: Job, board: Board, lock: Path, clock: Clock) -> None:
        # Whoever ends does not wait for a model that does not answer.
        super().__init__(name=f"ralph-{board.look().name}", daemon=True)
        self.stop = threading.Event()
        self.wake = threading.Event()
        self.holds = False
        self._job = job
        self._board = board
        self._lock = lock
        self._clock = clock
        self.start()

    def run(self) -> None:
        """Work, rest, and work again."""
        try:
            while not self.stop.is_set():
                self._take_turn()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            self._board.set(state="stopped", note=f"ended by {type(error).__name__}: {error}")
        finally:
            self._job.close()

    def _take_turn(self) -> None:
        self.wake.clear()
        with claimed(self._lock) as fd:
            if fd is not None:
                self.holds = True
                try:
                    with self._board.published(fd):
                        self._work()
                finally:
                    self.holds = False
                return
        self._rest()

    def _work(self) -> None:
        while not self.stop.is_set():
            self.wake.clear()
            try:
                self._job.work(self._board, self.stop)
            except (RalphError, OSError) as error:
                self._board.set(note=str(error))
            if self.stop.is_set():
                return
            self._board.set(state="idle", current="")
            self._rest()

    def _rest(self) -> None:
        wait_s = _POLL_AFTER_TROUBLE_S
        with suppress(RalphError, OSError):  # the note of the last pass tells
            wait_s = self._job.poll_s
            if (at := self._job.next_at) is not None:
                wait_s = min(wait_s, at - self._clock())
        self.wake.wait(max(wait_s, _SHORTEST_WAIT_S))
