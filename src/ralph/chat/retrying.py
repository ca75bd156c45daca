"""What failed, and when it may be tried again: 1, 2, 4, 8, 16, 32 seconds later, then given up.

Kept beside the index, shared by all processes, and derived like it: without the file everything
that is undone is simply tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ralph import disk
from ralph.chat.working import Clock
from ralph.errors import IndexOff

_LOCK_TIMEOUT_S = 10.0
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 32.0
_ERROR_CHARS = 500


class Failing(msgspec.Struct, frozen=True, omit_defaults=True):
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


_decode = msgspec.json.Decoder(dict[str, Failing]).decode


class Retries:
    """The failures of one stream's workers, by a key that each of them chooses."""

    def __init__(self, file: Path, *, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def entries(self, worker: str | None = None) -> dict[str, Failing]:
        """What failed and is not done yet, of one worker or of all."""
        try:
            held = _decode(self._file.read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}  # none, or of another version: it is tried again
        return {key: one for key, one in held.items() if worker in (None, one.worker)}

    def rests(self, one: Failing | None) -> bool:
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
    ) -> Failing:
        """Count a failure; after `most` retries the item is given up."""
        with self._changing() as held:
            before = held.get(key)
            attempts = 1 + (before.attempts if before else 0)
            wait_s = min(_FIRST_WAIT_S * 2 ** (attempts - 1), _LONGEST_WAIT_S)
            told = " ".join(error.split())[:_ERROR_CHARS]
            one = held[key] = Failing(
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
                held[item] = Failing(worker, item, attempts, self._clock(), told, given_up=True)

    def passed(self, keys: Collection[str]) -> None:
        """These are done, or no longer to be done."""
        if self.entries().keys() & set(keys):
            with self._changing() as held:
                for key in keys:
                    held.pop(key, None)

    def reset(self) -> list[Failing]:
        """Forget every failure, so that all is tried again at once, and tell what it was."""
        with self._changing() as held:
            gone = list(held.values())
            held.clear()
        return gone

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Failing]]:
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
