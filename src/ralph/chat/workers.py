"""The three background workers of a project's conversations: start, stop, wake and watch them.

They run as threads of the chat, or of `ralph workers run`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

import msgspec

from ralph.chat.embeddings import EMBEDDING, EmbeddingPipeline, clear_embeddings, waiting_ids
from ralph.chat.model import ChatModel
from ralph.chat.summaries import Summarizer
from ralph.chat.worker import (
    MAX_RETRIES,
    WORKER_NAMES,
    Clock,
    JournalListener,
    Retries,
    SettingsWatch,
    Worker,
    WorkerName,
    WorkerStatus,
)
from ralph.memory.ralph import Ralph
from ralph.records.conversation import Summarised

# How long to wait at the end for a worker that waits for a model.
_GRACE_S = 3.0


class GivenUp(msgspec.Struct, frozen=True):
    """An item that a worker has given up: a conversation or an exchange, and why."""

    worker: WorkerName
    item: str
    attempts: int
    error: str

    def __str__(self) -> str:
        tries = f"{self.attempts} time{'' if self.attempts == 1 else 's'}"
        return f"{self.worker} {self.item}, tried {tries}: {self.error}"


def setting_of(name: WorkerName) -> str:
    """The setting that switches this worker on and off."""
    return "embedding_pipeline_enabled" if name == EMBEDDING else f"summarizer_{name}_enabled"


class Workers:
    """The workers of one project's conversations, as seen from this process.

    A `with` block starts those that the settings enable, and stops them all.
    """

    def __init__(
        self,
        open_memory: Callable[[], Ralph],
        *,
        current: Callable[[], str | None] = lambda: None,
        summarizer: ChatModel | None = None,
        clock: Clock = time.time,
        grace_s: float = _GRACE_S,
        poll_s: float | None = None,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """`current` names the conversation of this chat, which is left alone."""
        self._open = open_memory
        self._grace_s = grace_s
        self._listener: JournalListener | None = None
        with open_memory() as ralph:
            file = ralph.place.home / "cache" / "workers" / f"{ralph.project.id}.json"
            self._settings = SettingsWatch(ralph)
            self._on_server = bool(ralph.config.settings.journal_url)
        self._retries = Retries(file, clock=clock, max_retries=max_retries)

        def summaries(of: Summarised) -> Worker:
            return Summarizer(
                of,
                open_memory,
                self._retries,
                poll_s=poll_s,
                current=current,
                model=summarizer,
                spent_usd=lambda: sum(w.look().spend_usd for w in workers[:2]),
                on_saved=lambda: self._workers["embedding"].signal(),
            )

        workers = [summaries("conversation"), summaries("exchange")]
        workers.append(EmbeddingPipeline("embedding", open_memory, self._retries, poll_s=poll_s))
        self._workers = {worker.name: worker for worker in workers}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- running

    def start(self, name: WorkerName | None = None) -> None:
        """Start one worker, or all that the settings enable."""
        if self._listener is None and self._on_server:
            self._listener = JournalListener(self._open, self.signal)
        for each in self._enabled() if name is None else [name]:
            self._workers[each].start()

    def stop(self, name: WorkerName | None = None) -> None:
        """Stop one worker, or all; one that waits for a model is not waited for long."""
        if name is None and self._listener is not None:
            self._listener.end(self._grace_s)
            self._listener = None
        workers = [self._workers[name]] if name else list(self._workers.values())
        threads = [(worker, worker.stop()) for worker in workers]
        until = time.monotonic() + self._grace_s
        for worker, thread in threads:
            if thread is not None:
                thread.join(max(0.0, until - time.monotonic()))
                worker.set(state="stopped", current="", note="")

    def signal(self) -> None:
        """Wake the workers now: there is a new exchange, or a conversation has ended."""
        for worker in self._workers.values():
            worker.signal()

    def follow(self) -> None:
        """Start and stop workers when their settings have changed, also from another process."""
        if not self._settings.changed():
            return
        enabled = self._enabled()
        for name in WORKER_NAMES:
            if name in enabled:
                self.start(name)
            else:
                self.stop(name)
        self.signal()

    def run_once(
        self, names: Iterable[WorkerName] | None = None, *, stop: threading.Event | None = None
    ) -> list[WorkerStatus]:
        """Run one pass of each here and now; without names, of those that the settings enable."""
        chosen = self._enabled() if names is None else list(names)
        for name in chosen:
            self._workers[name].run_once(stop or threading.Event())
        statuses = self.statuses(chosen)
        for name in chosen:
            self._workers[name].set(state="stopped")
        return statuses

    def _enabled(self) -> list[WorkerName]:
        with self._open() as ralph:
            settings = ralph.config.settings
            return [name for name in WORKER_NAMES if getattr(settings, setting_of(name))]

    # -- status

    def statuses(self, names: Iterable[WorkerName] = WORKER_NAMES) -> list[WorkerStatus]:
        """The status of each worker, in whichever process it runs."""
        found = {name: self._workers[name].status() for name in names}
        stopped = [status for status in found.values() if status.state == "stopped"]
        if stopped:
            with self._open() as ralph:
                memory = ralph.conversations
                for status in stopped if memory.exist else ():
                    total = status.completed + self._workers[status.name].pending(memory)
                    found[status.name] = msgspec.structs.replace(status, total=total)
        return [self._with_retries(status) for status in found.values()]

    def _with_retries(self, status: WorkerStatus) -> WorkerStatus:
        items = self._retries.entries(status.name).values()
        waiting = [item for item in items if not item.given_up]
        next_at = min((item.at for item in waiting), default=None)
        return msgspec.structs.replace(
            status,
            retrying=sum(item.count for item in waiting),
            next_retry_s=None if next_at is None else max(0.0, next_at - self._retries.clock()),
            given_up=sum(item.count for item in items if item.given_up),
        )

    # -- what failed

    def given_up(self) -> list[GivenUp]:
        """The items that are tried again only when a person says so."""
        found: list[GivenUp] = []
        for key, failed in self._retries.entries().items():
            if failed.given_up:
                items = [failed.item]
                if key == EMBEDDING:  # the embedder failed, for every passage that waits
                    with self._open() as ralph:
                        items = waiting_ids(ralph.conversations)
                worker = next(name for name in WORKER_NAMES if name == failed.worker)
                found += [GivenUp(worker, item, failed.attempts, failed.error) for item in items]
        return found

    def retry_embeddings(self) -> None:
        """Drop the failures of the embedding pipeline: its work starts over."""
        self._retries.drop(self._retries.entries(EMBEDDING).keys())
        self.signal()

    def retry(self) -> int:
        """Try everything that failed again at once; returns how many items that is."""
        failed = self._retries.clear()
        # Texts that the embedder failed on have a zero vector: they are embedded again.
        ids = [item.item for item in failed if item.worker == EMBEDDING and item.item != EMBEDDING]
        if ids:
            with self._open() as ralph:
                clear_embeddings(ralph.conversations, ids)
        for worker in self._workers.values():
            worker.hurry()
        self.signal()
        return sum(item.count for item in failed)
