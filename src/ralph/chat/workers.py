"""The three background workers of a project's conversations: start, stop, wake and watch them.

They run as threads of the chat, or of `ralph workers run`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import Self

import msgspec

from ralph.chat.embeddings import EMBEDDING, EmbeddingPipeline, clear_embeddings, waiting_ids
from ralph.chat.model import ChatModel
from ralph.chat.summaries import Summarizer
from ralph.chat.worker import (
    MAX_RETRIES,
    WORKER_NAMES,
    Clock,
    OpenMemory,
    Retries,
    Worker,
    WorkerName,
    WorkerStatus,
    settings_state,
)
from ralph.errors import RalphError

# How long to wait at the end for a worker that waits for a model.
_GRACE_S = 3.0
_LISTEN_S = 0.5


class GivenUp(msgspec.Struct, frozen=True):
    """An item that a worker has given up: a conversation or an exchange, and why."""

    worker: str
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
        open_memory: OpenMemory,
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
        self._listener: threading.Thread | None = None
        self._ended = threading.Event()
        with open_memory() as ralph:
            file = ralph.place.home / "cache" / "workers" / f"{ralph.project.id}.json"
            self._settings_now = partial(settings_state, ralph)
            self._settings = self._settings_now()
            self._on_server = bool(ralph.config.settings.journal_url)
        self._retries = Retries(file, clock=clock, max_retries=max_retries)
        pipeline = EmbeddingPipeline("embedding", open_memory, self._retries, poll_s)
        summarizers = [
            Summarizer(
                of,
                open_memory,
                self._retries,
                poll_s,
                current=current,
                model=summarizer,
                spent_usd=lambda: sum(each.own_status.spend_usd for each in summarizers),
                on_saved=pipeline.signal,
            )
            for of in WORKER_NAMES
            if of != "embedding"
        ]
        workers: list[Worker] = [*summarizers, pipeline]
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
            self._ended.clear()
            self._listener = threading.Thread(
                target=self._listen, name="ralph-listening", daemon=True
            )
            self._listener.start()
        for each in self._enabled() if name is None else [name]:
            self._workers[each].start()

    def stop(self, name: WorkerName | None = None) -> None:
        """Stop one worker, or all; one that waits for a model is not waited for long."""
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

    def signal(self) -> None:
        """Wake the workers now: there is a new exchange, or a conversation has ended."""
        for worker in self._workers.values():
            worker.signal()

    def _listen(self) -> None:
        """Wake them when another machine writes to a journal on a server; else they still poll."""
        with suppress(RalphError, OSError), self._open() as ralph:
            listener = ralph.conversations.shelf.journals.listener()
            if listener is None:
                return
            with closing(listener):
                while not self._ended.is_set():
                    if listener.wait(_LISTEN_S):
                        self.signal()

    def follow(self) -> None:
        """Start and stop workers when their settings have changed, also from another process."""
        before, self._settings = self._settings, self._settings_now()
        if before == self._settings:
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
                found += [GivenUp(failed.worker, x, failed.attempts, failed.error) for x in items]
        return found

    def retry_embeddings(self) -> None:
        """Drop the failures of the embedding pipeline: its work starts over."""
        self._retries.drop(self._retries.entries(EMBEDDING))
        self.signal()

    def retry(self) -> int:
        """Try everything that failed again at once; returns how many items that is."""
        failed = self._retries.entries()
        self._retries.drop(failed)
        # Texts that the embedder failed on have a zero vector: they are embedded again.
        ids = [key for key, item in failed.items() if item.worker == EMBEDDING and key != EMBEDDING]
        if ids:
            with self._open() as ralph:
                clear_embeddings(ralph.conversations, ids)
        for worker in self._workers.values():
            worker.hurry()
        self.signal()
        return sum(item.count for item in failed.values())
