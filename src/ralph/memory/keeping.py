"""Choose and forget records, export and import them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ralph.clients import CLIENTS
from ralph.errors import BadInput, BadPlan, BadRecord, NotFound
from ralph.journal.line import Unreadable, read_line, write_record, write_tombstone
from ralph.memory.conversation_search import exchange_of_run
from ralph.memory.conversation_stream import is_before
from ralph.memory.forgetting import Words, left_to_the_person, old_journals, remove_copies
from ralph.memory.knowledge_state import stream_of
from ralph.memory.lessons import taught_by
from ralph.plan.store import Plan
from ralph.records import Complaint, Record, Source, Tombstone, utc
from ralph.records.conversation import CONVERSATION, conversation_id
from ralph.records.iteration import Iteration, from_record
from ralph.records.knowledge import (
    ENTRIES,
    GATE,
    OUTCOME,
    FailureSolution,
    is_knowledge_kind,
    knowledge_from,
)
from ralph.text.redact import redact_tree

if TYPE_CHECKING:
    from ralph.journal import Journal
    from ralph.memory.ralph import Ralph

_CLIENTS = {client.source: client.title for client in CLIENTS}
_SHORTEST_ID = 4
_TOLD_IDS = 10


# -- Other records that tell of what is forgotten: the same event told twice, and lessons from it.


def _told_elsewhere(
    ralph: Ralph, ids: Mapping[str, Collection[str]], said: Collection[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """What else is the same event: iterations, by feature, and what was said."""
    wanted = set(said)
    iterations: dict[str, list[str]] = {}
    told: set[str] = set()
    for memory in ralph.features() if ids or wanted else ():
        chosen = set(ids.get(memory.name, ()))
        for record in memory.records():
            events = _events(record.source.run)
            if record.id in chosen:
                told.update(events)
            elif not wanted.isdisjoint(events):
                iterations.setdefault(memory.name, []).append(record.id)
    if told:
        history = ralph.conversations.stream.history
        told &= (history.records.keys() | history.conversations.keys()) - wanted
    return iterations, sorted(told)


def _events(run: str | None) -> list[str]:
    """What a run is called among conversations: an exchange of a session, or a whole one."""
    if exchange := exchange_of_run(run):
        return [exchange]
    return [conversation_id(client, run) for client in _CLIENTS] if run else []


def _clients_of(ralph: Ralph, said: Collection[str]) -> list[str]:
    """The clients that keep the sessions in which these were said."""
    if not said:
        return []
    history = ralph.conversations.stream.history
    sources = {
        history.conversations[name].conversation.source
        for name, exchanges in history.exchanges.items()
        if not set(said).isdisjoint([name, *exchanges])
    }
    return [name for source, name in _CLIENTS.items() if source in sources]


def _lessons_from(ralph: Ralph, iterations: list[Iteration]) -> tuple[list[str], list[str]]:
    """What this project gave others that tells of these iterations: staged, and published."""
    memory, root = ralph.knowledge, ralph.project.root
    if not iterations or stream_of(ralph.project.id) not in memory.store.journals.names():
        return [], []
    staged = {record.id for record in memory.staged_records(ralph.project.id)}
    found: list[str] = []
    for record in memory.of_project():
        with contextlib.suppress(BadRecord):
            entry = knowledge_from(record)
            if isinstance(entry, FailureSolution) and any(
                taught_by(entry, one, root) for one in iterations
            ):
                found.append(record.id)
    return [one for one in found if one in staged], [one for one in found if one not in staged]


def _learnings_from(ralph: Ralph, iterations: list[Iteration]) -> list[str]:
    """The commands that remove what the plan learned by itself from these iterations."""
    numbers: dict[str, set[int | None]] = {}
    for one in iterations:
        numbers.setdefault(one.feature, set()).add(one.iteration_number)
    if not numbers:
        return []
    try:
        features = Plan(ralph.project.root).read("features").features
    except (BadPlan, OSError):
        return []  # whoever uses the plan is told
    return [
        f"ralph learning remove {learning.id} --feature {feature.name}"
        for feature in features
        for learning in feature.learnings
        if learning.source == "auto" and learning.iteration in numbers.get(feature.name, ())
    ]


# -- Choose and forget.


class Choice(msgspec.Struct, frozen=True):
    """Records picked out to be forgotten: by feature, of the conversations, of knowledge.

    `titles` are conversations that only lose their title, which holds `match`. `remains` are other
    records that tell of the same, each with how to forget it.
    """

    ids: dict[str, list[str]]
    conversations: list[str] = []
    knowledge: list[str] = []
    titles: list[str] = []
    match: str = ""
    remains: list[str] = []

    @property
    def count(self) -> int:
        """How many records were picked."""
        features = sum(len(ids) for ids in self.ids.values())
        return features + len(self.conversations) + len(self.knowledge)


class Forgotten(msgspec.Struct, frozen=True):
    """What a forget came to: how many records went, which copies did, and what still tells of it.

    `count` is for records, `copies` and `remains` are told as they stand.
    """

    count: int
    copies: list[str]
    remains: list[str]


def choose(
    ralph: Ralph,
    *,
    ids: Iterable[str] = (),
    feature: str | None = None,
    before: str | None = None,
    match: str | None = None,
    everything: bool = False,
    conversations: bool = False,
    knowledge: bool = False,
) -> Choice:
    """The records that fit every condition given; an id that is not there is an error.

    `conversations` and `knowledge` each leave all else alone. Of knowledge it is what this project
    gave, but what an id names, entry or pattern, may come from anywhere.
    """
    wanted = list(ids)
    if not (wanted or feature or before or match or everything):
        raise BadInput("nothing was said to forget", todo="Name ids, or say which records.")
    limit = datetime.fromisoformat(utc(before, field="before")) if before else None
    # What each id that was given is the beginning of.
    meant: dict[str, set[str]] = {one: set() for one in wanted}
    found_ids: set[str] = set()

    def fitting(
        records: Iterable[Record],
        names: Callable[[Record], Iterable[str]] = lambda record: (record.id,),
    ) -> list[str]:
        fit: dict[str, None] = {}
        for record in records:
            named = [(one, name) for name in names(record) if (one := _prefix(name, wanted))]
            found_ids.update(one for one, _ in named)
            if (
                (not wanted or named)
                and (limit is None or is_before(record.at, limit))
                and (not match or match.casefold() in _text(record))
            ):
                fit[record.id] = None
                for one, name in named:
                    meant[one].add(name)
        return list(fit)

    features = ralph.features() if feature is None else [ralph.feature(feature)]
    features = [] if conversations or knowledge else features
    # One that was forgotten and came back by a merge stands in the file too.
    chosen = {one.name: fitting(_standing(ralph, one.name)) for one in features}
    # What a person said in this project, or what it taught others, belongs to no feature.
    standing = [] if feature or knowledge else ralph.conversations.stream.standing()
    said = fitting(standing)
    titles: list[str] = []
    if not wanted:
        said, titles = _without_conversations(ralph, standing, said, match)
    known: list[str] = []
    if not (feature or conversations) and (not wanted or set(wanted) - found_ids):
        # By the id of a published entry that of its pattern.
        memory = ralph.knowledge
        slots = memory.state.history().slots if wanted and memory.store.names() else {}
        known = fitting(
            _known(ralph, everywhere=bool(wanted)),
            lambda one: [one.id, slots[one.id].pattern] if one.id in slots else [one.id],
        )
    missing = [one for one in wanted if one not in found_ids]
    if missing:
        raise NotFound(f"there is no record {', '.join(missing)}", todo="Nothing was forgotten.")
    for prefix, found in meant.items():
        if len(found) > 1:
            raise BadInput(
                f"{prefix} is the beginning of {len(found)} ids",
                todo="Give more of it; nothing was forgotten.",
            )
    chosen = {name: some for name, some in chosen.items() if some}
    choice = Choice(chosen, _bound(ralph, said), known, titles, match or "")
    # What is named goes wherever it is told; what is picked by date or text was looked for there.
    everywhere = bool(wanted) and not (feature or conversations or knowledge)
    return _with_tellings(ralph, choice, everywhere=everywhere)


def _bound(ralph: Ralph, said: list[str]) -> list[str]:
    """What was said, and after it what is forgotten with it."""
    bound = ralph.conversations.stream.bound_to(said) if said else set()
    return [*said, *sorted(bound - set(said))]


def _with_tellings(ralph: Ralph, choice: Choice, *, everywhere: bool) -> Choice:
    """The choice with what else tells of it: forgotten as well, or named with the command."""
    ids, said, remains = dict(choice.ids), list(choice.conversations), list[str]()
    told_in, told_by = _told_elsewhere(ralph, ids, said)
    others = [*(one for some in told_in.values() for one in some), *told_by]
    if everywhere:
        for name, some in told_in.items():
            ids[name] = [*ids.get(name, ()), *some]
        said = _bound(ralph, [*said, *told_by])
    elif others and not choice.match:
        remains.append(f"the same told elsewhere: ralph forget {_some(others)}")
    wanted = {one for some in ids.values() for one in some}
    iterations = [
        iteration
        for name in ids
        for located, iteration in ralph.feature(name).iterations()
        if located.record.id in wanted
    ]
    staged, published = _lessons_from(ralph, iterations)
    known = [*choice.knowledge, *(one for one in staged if one not in choice.knowledge)]
    if published := [one for one in published if one not in known]:
        remains.append(f"published for other projects: ralph forget {_some(published)}")
    remains += [f"in the plan: {command}" for command in _learnings_from(ralph, iterations)]
    remains += [f"the session's own file, as {name} keeps it" for name in _clients_of(ralph, said)]
    return msgspec.structs.replace(
        choice, ids=ids, conversations=said, knowledge=known, remains=remains
    )


def _some(ids: list[str]) -> str:
    """The ids as words of a command, as many as fit a line."""
    more = f" (and {len(ids) - _TOLD_IDS} more)" if len(ids) > _TOLD_IDS else ""
    return " ".join(ids[:_TOLD_IDS]) + more


def chosen_records(ralph: Ralph, choice: Choice) -> list[Record]:
    """The records that were picked."""
    wanted = {*choice.conversations, *choice.knowledge}
    wanted.update(record_id for ids in choice.ids.values() for record_id in ids)
    records = [record for name in choice.ids for record in _standing(ralph, name)]
    if choice.conversations:
        records += ralph.conversations.stream.standing()
    if choice.knowledge:
        records += _known(ralph, everywhere=True)
    return [record for record in records if record.id in wanted]


def forget(ralph: Ralph, choice: Choice, *, reason: str | None = None) -> Forgotten:
    """Forget what was chosen wherever Ralph keeps it, and say what went and what is left."""
    records = chosen_records(ralph, choice)
    words = Words(records, choice.match)
    gone: list[str] = []
    for name, ids in choice.ids.items():
        gone += ralph.feature(name).forget(ids, reason=reason)
    if choice.conversations or choice.titles:
        memory = ralph.conversations
        gone += memory.forget(choice.conversations, reason=reason, titles=choice.titles)
    if choice.knowledge:
        gone += ralph.knowledge.forget(choice.knowledge, reason=reason)
    copies = remove_copies(ralph, words) if gone or choice.match else []
    old = old_journals(ralph, {record.id for record in records})
    remains = [*choice.remains, *left_to_the_person(ralph, words), *old]
    return Forgotten(len(gone), copies, remains)


def _without_conversations(
    ralph: Ralph, standing: list[Record], said: list[str], match: str | None
) -> tuple[list[str], list[str]]:
    """What was picked without conversations of which only a part was, and those of them whose
    title has the text: a conversation goes with its last exchange, and by its title alone only if
    none of its exchanges has the text."""
    fit = set(said)
    parted = {
        name
        for name, exchanges in ralph.conversations.stream.history.exchanges.items()
        if not match or not fit.isdisjoint(exchanges)
    }
    named = {one.id for one in standing if one.kind == CONVERSATION and one.id in parted}
    titles = [one for one in said if one in named] if match else []
    return [one for one in said if one not in named], titles


def _known(ralph: Ralph, *, everywhere: bool) -> list[Record]:
    """What may be forgotten of knowledge: entries, waiting gates, outcomes."""
    memory = ralph.knowledge
    own = stream_of(ralph.project.id)
    kinds = (*ENTRIES, GATE, OUTCOME)
    return [
        located.record
        for account in (memory.state.accounts() if memory.store.names() else ())
        if everywhere or account.name == own
        for located in account.fold.records()
        if located.record.kind in kinds
    ]


def _standing(ralph: Ralph, name: str) -> list[Record]:
    return [located.record for located in ralph.store.journals.journal(name).read().records]


def _prefix(record_id: str, wanted: list[str]) -> str | None:
    for prefix in wanted:
        if len(prefix) >= _SHORTEST_ID and record_id.startswith(prefix.lower()):
            return prefix
    return None


def _text(record: Record) -> str:
    return record.body.decode("utf-8", "replace").casefold()


# -- Export and import.


class ImportResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an import came to.

    `staged` are the entries of knowledge that came and wait for a person's checkpoint, `left_out`
    counts what would have published, judged or forgotten knowledge by itself.
    """

    added: int
    known: int
    forgotten: int
    complaints: list[Complaint]
    staged: list[str] = []
    left_out: int = 0


class _Exported(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line of an export: of a feature's journal, or of a project's knowledge."""

    stream: str | None = None
    knowledge: str | None = None
    entry: msgspec.Raw


class _LineHome(NamedTuple):
    """The journal that a line belongs to: a feature's, or that of a project's knowledge."""

    name: str
    knowledge: bool = False


_read_exported = msgspec.json.Decoder(_Exported).decode
_encode = msgspec.json.Encoder().encode


def export_lines(ralph: Ralph, *, feature: str | None = None) -> Iterable[bytes]:
    """Every entry with its feature's name, tombstones too, one a line; the project's knowledge."""
    names = ralph.store.journals.names() if feature is None else [feature]
    for name in names:
        yield from _exported(ralph.store.journals.journal(name), stream=name)
    own = stream_of(ralph.project.id)
    if feature is None and own in ralph.knowledge.store.journals.names():
        yield from _exported(ralph.knowledge.store.journals.journal(own), knowledge=own)


def _exported(journal: Journal, **home: str) -> Iterable[bytes]:
    batch = journal.read()
    buried = {stone.id for stone in batch.tombstones}
    lines = [write_record(one.record) for one in batch.records if one.record.id not in buried]
    for line in [*lines, *(write_tombstone(stone) for stone in batch.tombstones)]:
        yield _encode(_Exported(entry=msgspec.Raw(line.strip()), **home)) + b"\n"


def import_lines(
    ralph: Ralph, lines: Iterable[bytes], *, name: str, own: bool = False
) -> ImportResult:
    """Bring in what is not here yet; what was forgotten here or there stays forgotten.

    Knowledge goes to the project that it names. It reaches every project, and anybody may have
    written the file, so it is staged until a person publishes it. `own`: the file is a person's
    own backup, and its knowledge is staged or published as it was.
    """
    homes: dict[_LineHome, tuple[list[Record], list[Tombstone]]] = {}
    complaints: list[Complaint] = []
    left_out = 0
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            home, entry = _read(raw)
            if isinstance(entry, Record):
                entry = _redacted(entry)
        except Unreadable as error:
            complaints.append(Complaint(name, number, str(error)))
            continue
        if home.knowledge and not own:
            if isinstance(entry, Tombstone) or entry.kind not in ENTRIES:
                left_out += 1
                continue
            entry = msgspec.structs.replace(entry, source=Source(file=name, line=number))
        records, stones = homes.setdefault(home, ([], []))
        if isinstance(entry, Tombstone):
            stones.append(entry)
        else:
            records.append(entry)
    ralph.store.ensure()
    staged_before = _staged(ralph)
    counts = [_adopted(ralph, home, *entries) for home, entries in homes.items()]
    added, known, forgotten = (sum(some) for some in zip((0, 0, 0), *counts, strict=True))
    staged = [one for one in _staged(ralph) if one not in staged_before]
    return ImportResult(added, known, forgotten, complaints, staged, left_out)


def _staged(ralph: Ralph) -> dict[str, None]:
    memory = ralph.knowledge
    return dict.fromkeys(one.id for one in memory.staged("*")) if memory.store.names() else {}


def _adopted(
    ralph: Ralph, home: _LineHome, records: list[Record], stones: list[Tombstone]
) -> tuple[int, int, int]:
    """Keep what was made elsewhere as it is: how many were new, known, forgotten here."""
    if not home.knowledge:
        memory = ralph.feature(home.name)
        if stones:
            memory.forget((), stones=stones)
        return memory.adopt(records) if records else (0, 0, 0)
    store = ralph.knowledge.store
    journal = store.journals.journal(home.name)
    if stones and journal.forget((), stones=stones):
        store.erase_soon(ralph.knowledge.target())
    buried = {stone.id for stone in journal.read().tombstones}
    wanted = [one for one in records if one.id not in buried]
    fresh = sum(one.fresh for one in journal.append(wanted))
    return fresh, len(wanted) - fresh, len(records) - len(wanted)


def _read(raw: bytes) -> tuple[_LineHome, Record | Tombstone]:
    """A line of an export, or of a journal copied from elsewhere."""
    text = raw.strip().removeprefix(b"\xef\xbb\xbf")
    try:
        exported = _read_exported(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        entry, _ = read_line(text)
        return _home_of(entry), entry
    entry, _ = read_line(bytes(exported.entry))
    if exported.stream is not None:
        return _LineHome(exported.stream), entry
    if exported.knowledge is not None:
        # What it says of itself counts: an entry is published with the project it names.
        named = isinstance(entry, Record) and is_knowledge_kind(entry.kind)
        return _home_of(entry) if named else _LineHome(exported.knowledge, knowledge=True), entry
    raise Unreadable("says neither which feature it belongs to nor whose knowledge it is")


def _redacted(record: Record) -> Record:
    """The record without secrets, wherever its line was written."""
    try:
        body = msgspec.json.decode(record.body)
        clean = redact_tree(body)
        return record if clean == body else msgspec.structs.replace(record, body=_encode(clean))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return record  # whoever reads it complains
    except RecursionError:
        raise Unreadable("is nested too deeply to be kept") from None


def _home_of(entry: Record | Tombstone) -> _LineHome:
    if isinstance(entry, Record):
        try:
            if is_knowledge_kind(entry.kind):
                return _LineHome(stream_of(knowledge_from(entry).project), knowledge=True)
            feature = from_record(entry).feature
        except BadRecord as error:
            raise Unreadable(error.what) from None
        if feature:
            return _LineHome(feature)
    raise Unreadable("does not say which feature it belongs to")
