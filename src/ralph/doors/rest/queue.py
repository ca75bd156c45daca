"""The calls that wait in a server, and the threads that run them.

Threads that compute at the same time slow each other down, and so does handing over from one thread
to another for each call. So one thread has the turn and runs one call after another. If a call
takes long, it waits for something (a database, an embedder): then another thread gets the turn, and
the first one stops after its call.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

# A call that takes longer than this waits for something.
TURN_S = 0.1


class CallQueue:
    """Calls in the order of their arrival, and the thread that has the turn."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest")
        self._lock = threading.Lock()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._threads_left = threads
        self._places_left = threads + waiting
        # A value for each turn, None if no thread has it; and when the thread began its call.
        self._turn: object = None
        self._began = 0.0

    def begin(self) -> bool:
        """Count a call that runs or waits; return False if there are too many."""
        with self._lock:
            self._places_left -= (is_free := self._places_left > 0)
            return is_free

    def end(self) -> None:
        """Count a call that ended."""
        with self._lock:
            self._places_left += 1

    def submit(self, task: Callable[[], Any]) -> Future[Any]:
        """Run the task after all earlier ones; its call was counted by `begin`."""
        running: Future[Any] = Future()
        running.add_done_callback(lambda _: self.end())
        with self._lock:
            self._calls.append((task, running))
        self.pass_on()
        return running

    def pass_on(self) -> bool:
        """Give a thread the turn if none has it, or if the one that has it takes long.

        Call this again after TURN_S if it returns True: then there are calls waiting.
        """
        with self._lock:
            is_free = self._turn is None or time.monotonic() - self._began > TURN_S
            if self._calls and self._threads_left and is_free:
                turn = object()
                self._pool.submit(self._run, turn)
                self._turn, self._began = turn, time.monotonic()
                self._threads_left -= 1
            return bool(self._calls)

    def close(self) -> None:
        """Finish the running calls; cancel those that wait."""
        with self._lock:
            waiting = [*self._calls]
            self._calls.clear()
        for _, running in waiting:
            running.cancel()
        self._pool.shutdown(wait=True)

    def _run(self, turn: object) -> None:
        while True:
            with self._lock:
                if self._turn is not turn or not self._calls:
                    self._turn = None if self._turn is turn else self._turn
                    self._threads_left += 1
                    return
                task, running = self._calls.popleft()
                self._began = time.monotonic()
            if running.set_running_or_notify_cancel():
                try:
                    running.set_result(task())
                except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                    running.set_exception(error)
