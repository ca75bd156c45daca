"""What happened, in order of time: iterations and exchanges, filtered, counted and summed up.

Records are decoded one at a time, and only the few fields that are needed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from ralph.capture.decisions import is_plain
from ralph.memory.lessons import RepeatedError, repeated_errors
from ralph.memory.ralph import Ralph
from ralph.recall import exchange_of_run
from ralph.recall.kinds import KINDS
from ralph.records import Record
from ralph.records.conversation import EXCHANGE, Exchange, content_of
from ralph.records.iteration import KIND, ErrorSeen, Iteration
from ralph.text.outcome import content_words, outcome_of
from ralph.text.times import moments_between
from ralph.text.tokens import rule

_T = TypeVar("_T")
_TITLE_CHARS = 300
# How many of the last runs are searched for repeated errors; older ones count as overcome.
_RUNS = 300


class _Work(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the body of an iteration or an exchange says about the work."""

    feature: str = ""
    conversation: str = ""
    task_id: int | str | None = None
    model: str | None = None
    # Of an iteration of the loop: work (haiku) or a review (opus).
    model_tier: str | None = None
    tokens_used: int | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None


class Event(_Work, frozen=True, kw_only=True, gc=False):
    """One iteration or exchange in short. The `outcome` of an exchange is its status."""

    id: str
    kind: str
    at: str
    title: str
    outcome: str
    number: int = 0


class _Body(_Work, frozen=True, kw_only=True):
    task_title: str = ""
    summary: str = ""
    user: str = ""
    assistant: str = ""
    outcome: str = "unknown"
    status: str = "complete"


class _Errors(msgspec.Struct, frozen=True):
    errors: tuple[ErrorSeen, ...] = ()


class _File(msgspec.Struct, frozen=True, gc=False):
    path: str


class _Files(msgspec.Struct, frozen=True):
    files_touched: tuple[_File, ...] = ()


class Events:
    """Events that are decoded one at a time: a list of twenty thousand would take 10 MB."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Event]:
        return (_event(record, body) for record, body in _each(self._records, _body))

    def __getitem__(self, part: slice) -> list[Event]:
        return list(Events(self._records[part]))


_body = msgspec.json.Decoder(_Body).decode
_errors = msgspec.json.Decoder(_Errors).decode
_files = msgspec.json.Decoder(_Files).decode
_turn = msgspec.json.Decoder(Exchange).decode


def events(
    ralph: Ralph,
    *,
    kinds: Collection[str] = (),
    features: Sequence[str] | None = None,
    outcomes: Collection[str] = (),
    text: str = "",
    since: str | None = None,
    until: str | None = None,
    everywhere: bool = False,
    project: str = "",
) -> Events:
    """Return matching iterations and exchanges, newest first; `text` must occur in them literally.

    An exchange that was also an iteration is listed as the iteration. `everywhere`: also exchanges
    of other projects, or only of the `project` with this name.
    """
    first, end = moments_between(since, until)
    # As written in JSON; the case of ASCII letters does not matter.
    wanted = msgspec.json.encode(text.strip())[1:-1].lower()
    found = [
        record
        for record in _records(ralph, kinds, features, everywhere, project)
        if first <= record.at < end
        and (not wanted or wanted in record.body.lower())
        and (not outcomes or any(one.outcome in outcomes for one in Events([record])))
    ]
    found.sort(key=lambda one: (one.at, one.number), reverse=True)
    return Events(found)


def _records(
    ralph: Ralph,
    kinds: Collection[str],
    features: Sequence[str] | None,
    everywhere: bool = False,
    project: str = "",
) -> Iterator[Record]:
    """Yield the records of iterations and exchanges, each event once."""
    told: set[str | None] = set()
    names_own = project in ("", ralph.project.root.name)
    if names_own and (not kinds or KIND in kinds or EXCHANGE in kinds):
        for memory in ralph.features() if features is None else map(ralph.feature, features):
            for record in memory.records():
                if record.kind == KIND:
                    told.add(exchange_of_run(record.source.run))
                    if not kinds or KIND in kinds:
                        yield record
    if features is None and (not kinds or EXCHANGE in kinds):
        for record in _exchanges(ralph, everywhere, project):
            if record.id not in told:
                yield record


def _exchanges(ralph: Ralph, everywhere: bool, project: str) -> Iterator[Record]:
    if not (everywhere or ralph.conversations.exist):
        return
    for stream in ralph.conversations.within(everywhere):
        history = stream.history
        for record in history.records.values():
            if record.kind == EXCHANGE and (
                not project or history.project_of(record.id) == project
            ):
                yield record


def _event(record: Record, body: _Body) -> Event:
    row = KINDS[record.kind]
    title = row.headline(body)
    outcome = body.status if record.kind == EXCHANGE else body.outcome
    own = {name: getattr(record, name) for name in ("id", "kind", "at", "number")}
    work = {name: getattr(body, name) for name in _Work.__struct_fields__}
    return Event(title=title[:_TITLE_CHARS], outcome=outcome, **own, **work)


def contents(
    ralph: Ralph, some: Iterable[Event], *, everywhere: bool = False
) -> dict[str, Iteration | Exchange]:
    """Return the whole records of these events, by id.

    `everywhere`: some may be exchanges of other projects.
    """
    found: dict[str, Iteration | Exchange] = {}
    wanted: dict[str, set[str]] = {}
    for one in some:
        wanted.setdefault(one.feature if one.kind == KIND else "", set()).add(one.id)
    said = wanted.pop("", set())
    for feature, ids in wanted.items():
        pairs = ralph.feature(feature).iterations(ids)
        found |= {located.record.id: iteration for located, iteration in pairs}
    for stream in ralph.conversations.within(everywhere) if said else ():
        records = stream.history.records
        found |= {name: content_of(records[name]) for name in said if name in records}
    return found


def later_success(ralph: Ralph, record: Iteration) -> Event | None:
    """Return the first iteration on the same task that succeeded after this failed one."""
    if record.task_id is None or record.outcome == "success":
        return None
    number = record.iteration_number or 0
    task = str(record.task_id)
    found = events(ralph, kinds=[KIND], features=[record.feature], outcomes=["success"])
    later = [one for one in found if str(one.task_id) == task and one.number > number]
    return min(later, key=lambda one: one.number, default=None)


# How many turns after an exchange are searched for how it went on.
_TURNS_AFTER = 4
# A longer request has a subject of its own.
_SHORT_REQUEST_CHARS = 80


def later_turn(ralph: Ralph, exchange: Exchange) -> Exchange | None:
    """Return the turn of the same conversation that changes what an exchange says.

    If the exchange was stopped or its work was taken back, that is the person's next request. If
    something had failed, it is the next turn that worked on the same files or subject. If the
    exchange only planned or proposed something, it is the next turn, if that did it.
    """
    history = ralph.conversations.stream.history
    names = list(history.exchanges.get(exchange.conversation, ()))
    if exchange.id not in names:
        return None
    following = names[names.index(exchange.id) + 1 :][:_TURNS_AFTER]
    records = (history.records[name] for name in following)
    after = [turn for _, turn in _each(records, _turn) if turn.user.strip()]
    if not _changed_files(exchange) and after and _carries_out(after[0]):
        return after[0]
    turns = [turn for turn in after if not is_plain(turn.user)]
    if not turns:
        return None
    if exchange.status != "complete" or rule("reverts").search(turns[0].user[:_TITLE_CHARS]):
        return next((turn for turn in turns if turn.status == "complete"), turns[0])
    if rule("went badly").search(outcome_of(exchange.user, exchange.assistant)):
        return next((turn for turn in turns if _goes_on(exchange, turn)), None)
    return None


def _changed_files(exchange: Exchange) -> set[str]:
    return {file.path for file in exchange.files_touched if file.action != "read"}


def _carries_out(turn: Exchange) -> bool:
    """Whether a turn did what was proposed just before it: "yes, go ahead"."""
    short = is_plain(turn.user) or len(turn.user) <= _SHORT_REQUEST_CHARS
    return short and turn.status == "complete" and bool(_changed_files(turn))


def _goes_on(exchange: Exchange, turn: Exchange) -> bool:
    """Whether a later turn changed files for the same subject, and was finished."""
    changed = _changed_files(turn)
    before = {file.path for file in exchange.files_touched}
    subject = content_words(exchange.user[:_TITLE_CHARS])
    same = not changed.isdisjoint(before) or len(subject & content_words(turn.user)) > 1
    return turn.status == "complete" and bool(changed) and same


def mistakes(ralph: Ralph) -> list[RepeatedError]:
    """Return repeated errors of the last iterations and sessions, with what solved them."""
    newest = sorted(_records(ralph, (), None), key=lambda one: one.at)[-_RUNS:]
    return repeated_errors([one.errors for _, one in _each(newest, _errors)])


def _each(records: Iterable[Record], decode: Callable[[bytes], _T]) -> Iterator[tuple[Record, _T]]:
    for record in records:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # `verify` reports it
            yield record, decode(record.body)


def touched_files(ralph: Ralph, feature: str, most: int) -> list[tuple[str, int]]:
    """Return the files that most iterations of a feature touched, and how many did."""
    counts: Counter[str] = Counter()
    for _, one in _each(ralph.feature(feature).records(), _files):
        counts.update({file.path for file in one.files_touched})
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most]


def local_day(at: str) -> str:
    """Return the day of a moment in the local time zone; "" if it is unclear."""
    try:
        return datetime.fromisoformat(at).astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return ""
