"""The calls that wait in a server, and the threads that run them.

Threads that compute at the same time slow each other down, and so does handing over from one thread
to another for each call. So one thread has the turn and runs the calls in rounds: all that wait
when the round begins, one after another, and then it answers all of them. If a call takes long, it
waits for something (a database, an embedder): then another thread gets the turn, and the first one
stops after its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# A call that takes longer than this waits for something. A round that takes longer hands over the
# answers it has.
TURN_S = 0.1

# A call, and where its answer goes.
_Call = tuple[Callable[[], Any], asyncio.Future[Any]]
# Where the answer goes, the result or the error, and whether it is an error.
_Answer = tuple[asyncio.Future[Any], Any, bool]


class CallQueue:
    """Calls in the order of their arrival, and the thread that has the turn."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest")
        self._lock = threading.Lock()
        self._calls: deque[_Call] = deque()
        self._threads_left = threads
        self._places_left = threads + waiting
        # A value for each turn, None if no thread has it; and when the thread began its call.
        self._turn: object = None
        self._began = 0.0
        # The answers of this round, when it began, and how many calls it still has.
        self._answers: list[_Answer] = []
        self._round_began = 0.0
        self._round_left = 0

    def begin(self) -> bool:
        """Count a call that runs or waits; return False if there are too many."""
        with self._lock:
            self._places_left -= (is_free := self._places_left > 0)
            return is_free

    def end(self) -> None:
        """Count a call that ended."""
        with self._lock:
            self._places_left += 1

    def submit(self, task: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run the task after all earlier ones; its call was counted by `begin`."""
        answer = asyncio.get_running_loop().create_future()
        call = (task, answer)
        answer.add_done_callback(lambda _: self._withdraw(call))
        with self._lock:
            self._calls.append(call)
        self.pass_on()
        return answer

    def _withdraw(self, call: _Call) -> None:
        """Count the end of a call that was canceled before it ran."""
        if call[1].cancelled():
            with self._lock, contextlib.suppress(ValueError):  # it is running, or has run
                self._calls.remove(call)
                self._places_left += 1

    def pass_on(self) -> bool:
        """Give a thread the turn if none has it, or if the one that has it takes long.

        Call this again after TURN_S if it returns True: then there are calls waiting, or answers.
        """
        answers: list[_Answer] = []
        with self._lock:
            takes_long = time.monotonic() - self._began > TURN_S
            if takes_long:  # no answer waits for a later call
                answers = self._end_round()
            if self._calls and self._threads_left and (self._turn is None or takes_long):
                turn = object()
                self._pool.submit(self._run, turn)
                self._turn, self._began = turn, time.monotonic()
                self._threads_left -= 1
            is_busy = bool(self._calls or self._answers)
        _hand_over(answers)
        return is_busy

    def close(self) -> None:
        """Finish the running calls; cancel those that wait."""
        with self._lock:
            waiting = [*self._calls]
            self._calls.clear()
            self._places_left += len(waiting)
        for _, answer in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                answer.get_loop().call_soon_threadsafe(answer.cancel)
        self._pool.shutdown(wait=True)

    def _run(self, turn: object) -> None:
        while (call := self._next(turn)) is not None:
            task, answer = call
            try:
                told: _Answer = (answer, task(), False)
            except StopIteration as error:  # a future cannot carry it
                told = (answer, RuntimeError(repr(error)), True)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                told = (answer, error, True)
            with self._lock:
                self._answers.append(told)
                self._places_left += 1

    def _next(self, turn: object) -> _Call | None:
        """Return the next call; None if there is none, or if another thread has the turn."""
        answers: list[_Answer] = []
        with self._lock:
            now = time.monotonic()
            is_mine = self._turn is turn
            goes_on = is_mine and self._calls
            if not (goes_on and self._round_left) or now - self._round_began > TURN_S:
                answers = self._end_round()
            if goes_on:
                if not self._round_left:
                    self._round_began, self._round_left = now, len(self._calls)
                self._round_left -= 1
                self._began = now
                call: _Call | None = self._calls.popleft()
            else:
                self._turn = None if is_mine else self._turn
                self._threads_left += 1
                call = None
        _hand_over(answers)
        return call

    def _end_round(self) -> list[_Answer]:
        """Return the answers of this round so far."""
        answers = self._answers
        self._answers = []
        self._round_left = 0
        return answers


def _hand_over(answers: Sequence[_Answer]) -> None:
    """Answer those who wait; one message for each event loop."""
    for loop, some in itertools.groupby(answers, lambda one: one[0].get_loop()):
        with contextlib.suppress(RuntimeError):  # it is closed, so nobody waits
            loop.call_soon_threadsafe(_set_results, [*some])


def _set_results(answers: Sequence[_Answer]) -> None:
    for waiting, told, is_error in answers:
        if waiting.done():
            continue  # whoever waited has gone
        if is_error:
            waiting.set_exception(told)
        else:
            waiting.set_result(told)
