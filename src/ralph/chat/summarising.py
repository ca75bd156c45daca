"""The two summarisers: each conversation and each exchange gets its summary, newest first.

What was done stands in the journal, under an id that a summary of this, so far, always gets: so it
is made once, whoever is killed and whoever goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ralph.chat.choose import choose_summariser
from ralph.chat.model import Model, Turn
from ralph.chat.retrying import Retries
from ralph.chat.summary_text import extract, prompt_for, summary_of
from ralph.chat.working import Backlog, Board, Clock, Spend
from ralph.config import USER_FILE, Settings
from ralph.errors import BadRecord, ModelOff
from ralph.memory.conversation_history import History
from ralph.memory.ralph import Ralph
from ralph.records import Record
from ralph.records.conversation import (
    EXTRACTIVE,
    Exchange,
    Summarised,
    Summary,
    exchange_from,
    summary_id,
)
from ralph.trust import FILE as TRUST_FILE

# A conversation is summarised again when it has grown by so many exchanges, or by this share.
_GROWN = 3
_GROWN_SHARE = 0.25
# Extracts are cheap: so many are kept with one flush.
_AT_ONCE = 500
# While the model's server is away, the next try is so far off.
_LONGEST_REST_S = 32.0


class Due(msgspec.Struct, frozen=True):
    """A summary that is wanted."""

    of: Summarised
    target: str
    covers: int
    at: str

    @property
    def key(self) -> str:
        """The id that the summary will have."""
        return summary_id(self.target, self.covers)


class _Status(msgspec.Struct, frozen=True):
    """As much of an exchange as tells whether it is complete, whatever stands there."""

    status: object = "complete"


_status = msgspec.json.Decoder(_Status).decode


def open_backlog(ralph: Ralph) -> Backlog:
    """The conversations of an opened memory, for a worker."""
    place = ralph.place
    return Backlog(
        home=place.home,
        settings=place.settings,
        embedder=place.embedder,
        project_id=place.project.id,
        project=place.project.root.name,
        progress=place.progress,
    )


class SharedBacklog:
    """One opened memory for both summarisers, for one thread at a time.

    It is opened anew when a file of settings has changed.
    """

    def __init__(self, open_memory: Callable[[], Ralph]) -> None:
        self._open = open_memory
        self._lock = threading.RLock()
        self._held: tuple[Ralph, Backlog, object] | None = None

    @contextmanager
    def opened(self) -> Iterator[Backlog]:
        """The conversations, as long as the block lasts."""
        with self._lock:
            if self._held is not None and self._held[2] != settings_state(self._held[0]):
                self.close()
            if self._held is None:
                ralph = self._open()
                self._held = ralph, open_backlog(ralph), settings_state(ralph)
            yield self._held[1]

    def close(self) -> None:
        """Let go of files."""
        with self._lock:
            if self._held is not None:
                self._held[1].close()
                self._held[0].close()
                self._held = None


def settings_state(ralph: Ralph) -> object:
    """Differs whenever somebody has changed a setting in a file."""
    return files_state(settings_files(ralph))


def settings_files(ralph: Ralph) -> list[Path]:
    """The files that settings come from."""
    home = ralph.place.home
    return [home / USER_FILE, home / TRUST_FILE, ralph.project.settings_file]


def files_state(files: list[Path]) -> object:
    """Differs whenever one of them does."""
    return [_state(file) for file in files]


def _state(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


class Summariser:
    """Makes the summaries of conversations, or those of exchanges."""

    def __init__(
        self,
        of: Summarised,
        backlog: SharedBacklog,
        retries: Retries,
        spend: Spend,
        *,
        clock: Clock,
        current: Callable[[], str | None],
        model: Model | None = None,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._of = of
        self._backlog = backlog
        self._retries = retries
        self._spend = spend
        self._clock = clock
        self._current = current
        self._given = model
        self._written = written
        self._chosen: tuple[Settings, Model | None] | None = None
        self._skipped: set[str] = set()
        self._rest_until: float | None = None

    @property
    def poll_s(self) -> float:
        """How long to rest when nothing calls."""
        with self._backlog.opened() as memory:
            return memory.shelf.settings.summarizer_idle_timeout_s

    @property
    def next_at(self) -> float | None:
        """When something that failed may be tried again."""
        return self._rest_until if self._resting() else self._retries.next_at(self._of)

    def hurry(self) -> None:
        """Rest no longer because of what failed."""
        self._rest_until = None

    def _resting(self) -> bool:
        return self._rest_until is not None and self._rest_until > self._clock()

    def close(self) -> None:
        """Let go of files."""
        self._backlog.close()

    def due(self, memory: Backlog) -> list[Due]:
        """What has no summary yet, or has outgrown it, newest first."""
        history = memory.history
        current = self._current()
        if self._of == "conversation":
            found = due_conversations(history, current=current)
        else:
            found = due_exchanges(history, current=current, skipped=self._skipped)
        # One that was forgotten stays so, and what says nothing has no summary.
        met = memory.met([one.key for one in found]) | self._skipped
        return sorted(
            (one for one in found if one.key not in met), key=lambda one: one.at, reverse=True
        )

    def work(self, board: Board, stop: threading.Event) -> None:
        """Summarise all that is due and may be tried now."""
        first = True
        while not stop.is_set():
            with self._backlog.opened() as memory:
                settings = memory.shelf.settings
                due = self.due(memory)
                board.set(total=board.look().completed + len(due))
                model = self._model(settings)
                board.set(note=self._note(model))
                if first:
                    self._drop_stale(due)
                    first = False
                held = self._retries.entries(self._of)
                ready = [one for one in due if not self._retries.rests(held.get(one.key))]
                if not ready:
                    return
                if model is None:
                    self._extract(memory, ready[:_AT_ONCE], board)
                    continue
                one = ready[0]
                title, exchanges = _material(memory.history, one)
            if not exchanges:
                self._skipped.add(one.key)
                continue
            if self._rests(settings, model, board):
                return
            board.set(state="running", current=f"{self._of}_id={one.target}")
            prompt = prompt_for(one.of, title, exchanges)
            if not self._ask(model, prompt, one, settings, board):
                return

    def _extract(self, memory: Backlog, ready: list[Due], board: Board) -> None:
        board.set(state="running", current=f"{self._of}_id={ready[0].target}")
        made: list[tuple[Summary, str]] = []
        history = memory.history
        for one in ready:
            title, exchanges = _material(history, one)
            if exchanges and (text := extract(one.of, title, exchanges)):
                made.append((_summary(one, text, by=EXTRACTIVE), one.key))
            else:
                self._skipped.add(one.key)
        memory.say_all(made)
        self._retries.passed([key for _, key in made])
        board.done(len(made))
        if made:
            self._written()

    def _rests(self, settings: Settings, model: Model, board: Board) -> bool:
        """Whether the model must not be asked now; the note says why."""
        if self._resting():
            return True
        cap, spent = settings.summary_spend_cap_usd, self._spend.total_usd
        if spent >= cap and model.costs != "free":
            board.set(
                note=f"spend cap reached: ${spent:.2f} of ${cap:.2f} in this session. "
                "To go on: ralph config --user summary_spend_cap_usd USD"
            )
            return True
        return False

    def _ask(self, model: Model, prompt: str, one: Due, settings: Settings, board: Board) -> bool:
        """Let the model write one summary and keep it; whether it may be asked for another."""
        cost = 0.0
        try:
            said = model.answer([Turn("user", prompt)], timeout_s=settings.summary_timeout_s)
            cost = said.cost_usd or 0.0
            self._spend.add(cost)
            text = summary_of(said, one.of)
        except ModelOff as error:
            board.done(0, cost)
            return self._failed(one, error, settings, board)
        tokens = [count for count in (said.tokens_in, said.tokens_out) if count is not None]
        made = _summary(one, text, by=model.name)
        made = msgspec.structs.replace(
            made, tokens_used=sum(tokens) if tokens else None, cost_usd=said.cost_usd
        )
        with self._backlog.opened() as memory:
            if self._stands(memory, one):
                memory.say(made, id=one.key)
        self._rest_until = None
        self._retries.passed([one.key])
        board.done(1, cost)
        self._written()
        return True

    def _failed(self, one: Due, error: ModelOff, settings: Settings, board: Board) -> bool:
        if error.fault == "setting":
            # No item is to blame: they wait until somebody has seen to it.
            self._rest_until = self._clock() + settings.summarizer_idle_timeout_s
            board.set(note=str(error))
            return False
        failing = self._retries.failed(
            self._of, one.key, one.target, str(error), most=settings.embedding_max_retries
        )
        if failing.given_up:
            board.set(failed=board.look().failed + 1)
        if error.fault == "prompt":
            return True
        # The next item would fare no better now.
        self._rest_until = failing.at if not failing.given_up else self._clock() + _LONGEST_REST_S
        board.set(note=str(error))
        return False

    def _stands(self, memory: Backlog, one: Due) -> bool:
        """Whether it was not forgotten while the model wrote."""
        history = memory.history
        return one.target in history.conversations or one.target in history.records

    def _drop_stale(self, due: list[Due]) -> None:
        """Forget failures of what is no longer due."""
        wanted = {one.key for one in due}
        held = self._retries.entries(self._of)
        current = self._current()
        self._retries.passed(
            [key for key, one in held.items() if key not in wanted and one.item != current]
        )

    def _model(self, settings: Settings) -> Model | None:
        if self._given is not None:
            return self._given
        if self._chosen is None or self._chosen[0] is not settings:
            self._chosen = settings, choose_summariser(settings)
            self._rest_until = None  # what stood in the way may be mended
        return self._chosen[1]

    def _note(self, model: Model | None) -> str:
        if model is None:
            return "summaries are extractive: no LLM is set (summary_model)"
        unknown = f"; {model.costs}" if model.costs.startswith("price unknown") else ""
        return f"summaries by {model.name}{unknown}"


def _material(history: History, one: Due) -> tuple[str, list[Exchange]]:
    """What a summary is made from: the title, and what was said in its order."""
    if one.of == "exchange":
        return "", _readable([history.records[one.target]])
    title = history.conversations[one.target].conversation.title
    told = _readable(history.exchanges_of([one.target]))
    return title, sorted(told, key=lambda each: each.started or each.completed or "")


def _readable(records: list[Record]) -> list[Exchange]:
    told: list[Exchange] = []
    for record in records:
        with suppress(BadRecord):  # left to `verify`
            told.append(exchange_from(record))
    return told


def _summary(one: Due, text: str, *, by: str) -> Summary:
    return Summary(of=one.of, target=one.target, text=text, by=by, covers=one.covers)


def due_conversations(history: History, *, current: str | None) -> list[Due]:
    """Those with exchanges and no summary, or one that they have outgrown."""
    found: list[Due] = []
    for name, held in history.conversations.items():
        if not held.exchanges or name == current:
            continue
        summary = history.summaries.get(name)
        covered = summary.covers if summary else 0
        grown = held.exchanges - covered
        if not covered or (grown > 0 and grown >= min(_GROWN, covered * _GROWN_SHARE)):
            found.append(Due("conversation", name, held.exchanges, held.last))
    return found


def due_exchanges(
    history: History, *, current: str | None, skipped: set[str] | None = None
) -> list[Due]:
    """The complete ones without a summary; those that are not are noted in `skipped`."""
    found: list[Due] = []
    passed = set() if skipped is None else skipped
    for conversation, exchanges in history.of.items():
        if conversation == current:
            continue
        for name in exchanges:
            if name in history.summaries or name in passed:
                continue
            record = history.records[name]
            if _status(record.body).status == "complete":
                found.append(Due("exchange", name, 1, record.at))
            else:
                passed.add(name)
    return found
