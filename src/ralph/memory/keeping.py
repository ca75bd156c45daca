"""Choose records, and forget them with what was derived from them.

A record's words may also be in the plan, and in small files of hooks, imports and runs. Copies
there are removed, too; copies that cannot be removed are reported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ralph.clients import CLIENTS
from ralph.current_run import refuse_agent
from ralph.errors import BadInput, BadPlan, BadRecord, NotFound
from ralph.memory import store
from ralph.memory.conversation_stream import folded, texts_of
from ralph.memory.copies import Words, old_journals, plan_of, remove_copies, runs_with
from ralph.memory.inbox import forget_answers
from ralph.memory.knowledge_state import stream_of
from ralph.memory.lessons import taught_by
from ralph.memory.moments import remove_moments, write_moments
from ralph.memory.part import JournalKey
from ralph.memory.ralph import Ralph
from ralph.memory.store import CONVERSATIONS, FEATURES, KNOWLEDGE, MEMORIES, NOTES
from ralph.plan.model import KINDS
from ralph.recall import exchange_of_run
from ralph.records import Record, clean
from ralph.records.conversation import CONVERSATION, conversation_id
from ralph.records.iteration import Iteration
from ralph.records.knowledge import FailureSolution, knowledge_from
from ralph.records.learning import LEARNING, FeatureLearning, read_learning
from ralph.text.tokens import plural

_CLIENTS = {client.source: client.title for client in CLIENTS}
_TOLD_IDS = 10
_Chosen = dict[JournalKey, list[str]]


def _ids_of(memory: str, chosen: Mapping[JournalKey, Collection[str]]) -> list[str]:
    return [name for key, ids in chosen.items() if key.memory == memory for name in ids]


class Choice(msgspec.Struct, frozen=True):
    """What to forget: records by journal, and learnings of the plan.

    `titles` are conversations that only lose their title, which contains `match`. `derived` are the
    ids that were learned from the rest and already used: learnings and published lessons. `places`
    are lines of the plan that lose the words. `remains` lists what stays, and how to remove it.
    `published`: other projects have some of it.
    """

    ids: dict[JournalKey, list[str]]
    learnings: list[FeatureLearning] = []
    titles: list[str] = []
    match: str = ""
    places: list[str] = []
    derived: list[str] = []
    remains: list[str] = []
    published: bool = False

    def ids_of(self, memory: str) -> list[str]:
        """Return what was chosen in one of the memories."""
        return _ids_of(memory, self.ids)

    @property
    def count(self) -> int:
        """How many records and learnings were chosen."""
        return sum(map(len, self.ids.values())) + len(self.learnings)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was chosen, not even words of the plan."""
        return not (self.count or self.places)

    @property
    def committed(self) -> bool:
        """Whether some of it is in files that may be committed to git."""
        return bool(self.learnings) or any(key.memory == FEATURES for key in self.ids)


class Forgotten(msgspec.Struct, frozen=True):
    """The result of a forget: how many records and which copies were removed, and what remains.

    `copies` and `remains` are texts to show as they are.
    """

    count: int
    copies: list[str]
    remains: list[str]


# -- Choose.


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
    """Choose the records that meet every given condition; an unknown id is an error.

    `conversations` and `knowledge` each limit the choice to that memory. Knowledge is limited to
    what this project shared, except by id: an entry or pattern may come from any project.
    """
    wanted = list(ids)
    if not (wanted or feature or before or match or everything):
        raise BadInput("nothing to forget", todo="Give record ids, or use a filter.")
    limit = datetime.fromisoformat(store.moment_given(before, "before")) if before else None
    memories = _memories(feature, conversations=conversations, knowledge=knowledge)
    conditions = _Conditions(wanted, limit, match)
    chosen, titles = _chosen_records(ralph, memories, conditions, feature)
    learnings: list[FeatureLearning] = []
    if FEATURES in memories and (wanted or match):
        learnings = [
            learning
            for learning in learnings_of(ralph)
            if feature in (None, learning.feature)
            and conditions.fit([learning.id], learning.created or "", learning.text.encode())
        ]
    conditions.check_ids()
    places = plan_places(ralph, conditions.words) if len(memories) > 1 else []
    choice = Choice(_bound(ralph, chosen), learnings, titles, match or "", places)
    # A record named by id is forgotten in every memory; a date or text was looked for in all.
    # Someone who clears out old records wants to keep what was learned from them.
    everywhere = bool(wanted) and len(memories) > 1
    learned = bool(wanted or match or everything)
    return _with_derived(ralph, choice, everywhere=everywhere, learned=learned)


def _memories(feature: str | None, *, conversations: bool, knowledge: bool) -> Collection[str]:
    """Return the memories that are looked at."""
    if feature:
        return (FEATURES,)
    if conversations:
        return (CONVERSATIONS,)
    return (KNOWLEDGE,) if knowledge else MEMORIES


class _Conditions:
    """What a record must meet to be forgotten, and which of the given ids were found."""

    def __init__(self, ids: Sequence[str], limit: datetime | None, match: str | None) -> None:
        self.by_id = bool(ids)
        self.match = match
        self.words = Words((), match or "")
        self._limit = limit
        # For each given id, the ids that begin with it and meet the other conditions.
        self._meant: dict[str, set[str]] = {one: set() for one in ids}
        self._found: set[str] = set()
        self._beginnings = {one: one.lower() for one in ids if len(one) >= store.SHORTEST_ID}

    def fit(self, names: Sequence[str], at: str, body: bytes) -> bool:
        """Whether a record that is known by any of these names meets all conditions."""
        named = [
            (given, name)
            for given, begins in self._beginnings.items()
            for name in names
            if name.startswith(begins)
        ]
        if self.by_id and not named:
            return False
        self._found.update(given for given, _ in named)
        if self._limit is not None and not store.is_before(at, self._limit):
            return False
        if self.match and not self.words.match_in(body):
            return False
        for given, name in named:
            self._meant[given].add(name)
        return True

    def check_ids(self) -> None:
        """Raise if a given id is unknown, or begins several."""
        if missing := [given for given in self._meant if given not in self._found]:
            raise NotFound(
                f"there is no record {', '.join(missing)}", todo="Nothing was forgotten."
            )
        for given, names in self._meant.items():
            if len(names) > 1:
                what = f"{given} is the beginning of {len(names)} ids"
                raise BadInput(what, todo="Give more of it; nothing was forgotten.")


def _chosen_records(
    ralph: Ralph, memories: Collection[str], conditions: _Conditions, feature: str | None
) -> tuple[_Chosen, list[str]]:
    """Return the ids of the records that fit, and the conversations that only lose their title."""
    chosen: _Chosen = {}
    titles: list[str] = []
    patterns = _patterns(ralph) if conditions.by_id and KNOWLEDGE in memories else {}
    for key, records in _forgettable(ralph, memories, everywhere=conditions.by_id):
        if feature and key.name not in (feature, NOTES):
            continue
        if feature and key.name == NOTES:
            records = [one for one in records if ralph.notes.content(one).feature == feature]
        if key.memory == CONVERSATIONS:
            records = list(records)
        ids = [
            record.id
            for record in records
            if conditions.fit([record.id, *patterns.get(record.id, ())], record.at, record.body)
        ]
        if key.memory == CONVERSATIONS and not conditions.by_id:
            ids, titles = _without_conversations(ralph, records, ids, conditions.match)
        chosen[key] = list(dict.fromkeys(ids))
    return chosen, titles


def _forgettable(
    ralph: Ralph, memories: Collection[str], *, everywhere: bool
) -> Iterator[tuple[JournalKey, Iterable[Record]]]:
    """Yield the journals of these memories with the records that may be forgotten."""
    for memory in MEMORIES:
        if memory in memories:
            for name, records in ralph.part(memory).forgettable(everywhere=everywhere):
                yield JournalKey(memory, name), records


def _without_conversations(
    ralph: Ralph, records: Iterable[Record], said: list[str], match: str | None
) -> tuple[list[str], list[str]]:
    """Return the ids without conversations of which only a part was picked, and which of those
    have the text in their title. A conversation goes with its last exchange; it goes by its title
    alone only if none of its exchanges has the text."""
    fit = set(said)
    exchanges = ralph.conversations.stream.history.exchanges
    parted = {name for name, some in exchanges.items() if not match or not fit.isdisjoint(some)}
    named = {one.id for one in records if one.kind == CONVERSATION and one.id in parted}
    titles = [one for one in said if one in named] if match else []
    return [one for one in said if one not in named], titles


def _patterns(ralph: Ralph) -> dict[str, tuple[str]]:
    """Return the pattern id of each published entry, by the entry's id."""
    return {one: (slot.pattern,) for one, slot in ralph.knowledge.state.history().slots.items()}


def _bound(ralph: Ralph, chosen: Mapping[JournalKey, list[str]]) -> _Chosen:
    """Return what was chosen, followed by what cannot stay without it."""
    bound = {key: ids for key, ids in chosen.items() if ids}
    for key, ids in bound.items():
        if key.memory == CONVERSATIONS:
            bound[key] = [*ids, *sorted(ralph.conversations.stream.bound_to(ids) - set(ids))]
    return bound


# -- Other records of what is forgotten: the same event in another memory, and lessons from it.


def _with_derived(ralph: Ralph, choice: Choice, *, everywhere: bool, learned: bool) -> Choice:
    """Add other records of the same events (`everywhere`) and what was learned from them
    (`learned`) to the choice; otherwise `remains` names them with a command."""
    ids = dict(choice.ids)
    remains = list[str]()
    same = _same_events(ralph, choice)
    if everywhere:
        ids = _bound(ralph, {key: [*ids.get(key, ()), *same.get(key, ())] for key in ids | same})
    elif same and not choice.match:
        others = [name for names in same.values() for name in names]
        remains.append(_command("other records of the same event", others))
    choice = msgspec.structs.replace(choice, ids=ids)
    iterations = _iterations_of(ralph, choice)
    learnings = _learnings_from(ralph, iterations, choice.learnings)
    own = JournalKey(KNOWLEDGE, stream_of(ralph.project.id))
    lessons = [one for one in _lessons_from(ralph, iterations) if one not in ids.get(own, ())]
    entries = choice.ids_of(KNOWLEDGE)
    known = {*entries, *lessons}
    published = known & _patterns(ralph).keys() if known else known
    derived = [*(one.id for one in learnings), *(one for one in lessons if one in published)]
    if derived and not learned:
        remains.append(_command("learned from these records", derived))
        lessons = [one for one in lessons if one not in published]
        learnings = []
        derived = []
        published &= set(entries)
    if lessons:
        ids[own] = [*ids.get(own, ()), *lessons]
    clients = _clients_of(ralph, choice.ids_of(CONVERSATIONS))
    remains += [f"the session's own file, as {name} keeps it" for name in clients]
    return msgspec.structs.replace(
        choice,
        ids=ids,
        learnings=[*choice.learnings, *learnings],
        derived=derived,
        remains=remains,
        published=bool(published),
    )


def _same_events(ralph: Ralph, choice: Choice) -> _Chosen:
    """Return other records of the same events: iterations, exchanges and conversations."""
    if not any(key.memory != KNOWLEDGE for key in choice.ids):
        return {}
    wanted = set(choice.ids_of(CONVERSATIONS))
    whole = bool(wanted) and not wanted.isdisjoint(ralph.conversations.states())
    found: _Chosen = {}
    events: set[str] = set()
    for memory in ralph.features():
        key = JournalKey(FEATURES, memory.name)
        mine = set(choice.ids.get(key, ()))
        for record in memory.records():
            if record.id in mine:
                events.update(_events(record.source.run))
            elif wanted and not wanted.isdisjoint(_events(record.source.run, whole=whole)):
                found.setdefault(key, []).append(record.id)
    if events:
        stream = ralph.conversations.stream
        history = stream.history
        events &= (history.records.keys() | history.conversations.keys()) - wanted
        if events:
            found[JournalKey(CONVERSATIONS, stream.name)] = sorted(events)
    return found


def _events(run: str | None, *, whole: bool = True) -> list[str]:
    """Return the ids of a run's exchange, or of its `whole` conversation (slow for many runs)."""
    if exchange := exchange_of_run(run):
        return [exchange]
    return [conversation_id(client, run) for client in _CLIENTS] if run and whole else []


def _clients_of(ralph: Ralph, said: Collection[str]) -> list[str]:
    """Return the clients that have the sessions of these exchanges."""
    if not said:
        return []
    history = ralph.conversations.stream.history
    wanted = set(said)
    names = [i for i, ids in history.exchanges.items() if not wanted.isdisjoint([i, *ids])]
    sources = {history.conversations[name].conversation.source for name in names}
    return [name for source, name in _CLIENTS.items() if source in sources]


def _iterations_of(ralph: Ralph, choice: Choice) -> list[Iteration]:
    """Return the chosen iterations."""
    named = set(choice.ids_of(FEATURES))
    features = [key.feature for key in choice.ids if key.feature]
    return [one for name in features for _, one in ralph.feature(name).iterations(named)]


def _learnings_from(
    ralph: Ralph, iterations: list[Iteration], chosen: Sequence[FeatureLearning]
) -> list[FeatureLearning]:
    """Return the learnings from these iterations that nobody wrote and that are not chosen yet."""
    numbers = {(one.feature, one.iteration_number) for one in iterations}
    if not numbers:
        return []
    return [
        learning
        for learning in learnings_of(ralph)
        if learning.source != "human"
        and (learning.feature, learning.iteration) in numbers
        and learning not in chosen
    ]


def _lessons_from(ralph: Ralph, iterations: list[Iteration]) -> list[str]:
    """Return the lessons of this project, published or staged, from these iterations."""
    memory = ralph.knowledge
    root = ralph.project.root
    if not iterations or stream_of(ralph.project.id) not in memory.store.journals.names():
        return []
    found: list[str] = []
    for record in memory.of_project():
        with contextlib.suppress(BadRecord):
            entry = knowledge_from(record)
            lesson = isinstance(entry, FailureSolution)
            if lesson and any(taught_by(entry, one, root) for one in iterations):
                found.append(record.id)
    return found


def _command(what: str, ids: list[str]) -> str:
    """Return the command to forget these, too, with as many ids as fit on a line."""
    more = f" (and {len(ids) - _TOLD_IDS} more)" if len(ids) > _TOLD_IDS else ""
    return f"{what}: ralph forget {' '.join(ids[:_TOLD_IDS])}{more}"


# -- Forget.


def chosen_records(ralph: Ralph, choice: Choice) -> list[Record]:
    """Return the chosen records."""
    chosen = {key: set(ids) for key, ids in choice.ids.items()}
    memories = {key.memory for key in chosen}
    return [
        record
        for key, records in _forgettable(ralph, memories, everywhere=True)
        if key in chosen
        for record in records
        if record.id in chosen[key]
    ]


def forget(ralph: Ralph, choice: Choice, *, reason: str | None = None) -> Forgotten:
    """Forget what was chosen everywhere Ralph stores it; return what is gone and what is left."""
    refuse_agent("forget records")
    # Rows of the table of moments may quote it: it is written anew when everything is gone.
    remove_moments(ralph)
    records = chosen_records(ralph, choice)
    forget_answers(ralph, {record.id for record in records})
    words = Words((text for one in records for text in texts_of(one.body)), choice.match)
    gone: list[str] = []
    for key, ids in choice.ids.items():
        gone += ralph.part(key.memory).stream_at(key.name).forget(ids, reason=clean(reason))
    if choice.titles:
        gone += ralph.conversations.forget((), reason=reason, titles=choice.titles)
    changed = forget_in_plan(ralph, choice.learnings, words if choice.places else Words(()))
    copies = []
    if texts := changed - len(choice.learnings):
        copies.append(f"the words from {plural(texts, 'text')} of the plan")
    if gone or changed or choice.match:
        copies += remove_copies(ralph, words, versions=bool(changed))
    old = old_journals(ralph, {record.id for record in records})
    # Where the text remains: in names and comments of the plan, and in active runs.
    wait = "is used by an active run: finish it with `ralph run`, then forget again"
    left = [f"{place} is in your plan: edit it there" for place in plan_places(ralph, words)]
    left += [f"{folder} {wait}" for folder in runs_with(ralph.project.cache, words)]
    write_moments(ralph)
    return Forgotten(len(gone) + len(choice.learnings), copies, [*choice.remains, *left, *old])


def projects_with(ralph: Ralph, match: str) -> list[str]:
    """Return the names of other projects whose conversations or documents contain this text."""
    words = Words((), match)
    found: set[str] = set()
    for stream in ralph.conversations.within(True)[1:]:
        if any(words.match_in(record.body) for record in stream.records()):
            states = stream.history.conversations.values()
            found.update(state.conversation.project for state in states)
    return sorted(found)


# -- Learnings and texts of the plan.


# Replaces forgotten words in a plan's texts; fields with names are left alone.
GONE = "[forgotten]"
_NAMES = frozenset(
    "name id feature discipline blocked_by context_files knowledge_paths path mcp_servers".split()
)


def learnings_of(ralph: Ralph) -> list[FeatureLearning]:
    """Return every learning of the plan; none while it is unreadable, as `plan check` reports."""
    return [ralph.plan.content(one) for one in ralph.plan.records() if one.kind == LEARNING]


def plan_places(ralph: Ralph, words: Words) -> list[str]:
    """Return the lines of the plan that have the matched text, as file:line."""
    plan = plan_of(ralph)
    found = list[str]()
    for kind in KINDS if words.match else ():
        text = (plan.raw(kind) or b"").decode("utf-8", "replace")
        lines = enumerate(text.splitlines(), 1)
        at = [f"{plan.file_name(kind)}:{n}" for n, line in lines if words.match_on(line)]
        found += at or ([plan.file_name(kind)] if words.match in folded(text) else [])
    return found


def forget_in_plan(ralph: Ralph, learnings: Collection[FeatureLearning], words: Words) -> int:
    """Remove learnings from the plan, and the matched words from its other texts.

    Returns how many learnings and texts changed. Nothing is left that would stop a learning from
    being learned again, because that would reveal it.
    """
    edit = _PlanEdit({one.id for one in learnings}, words)
    if learnings or plan_places(ralph, words):
        with (
            contextlib.suppress(BadPlan),
            plan_of(ralph).editing("words forgotten", *KINDS) as data,
        ):
            for kind in KINDS:
                data[kind] = edit.without(data[kind])
    if learnings or words.match:  # the index may have what the plan had earlier
        ralph.store.erase_soon(ralph.plan.target(), afresh=True)
    return edit.changed


class _PlanEdit:
    """Removes some learnings and the matched words from the plain data of the plan."""

    def __init__(self, learnings: Collection[str], words: Words) -> None:
        self.changed = 0
        self._learnings = learnings
        self._words = words

    def without(self, value: Any, key: object = "") -> Any:
        if isinstance(value, dict):
            return {name: self.without(one, name) for name, one in value.items()}
        if isinstance(value, list):
            left = [one for one in value if not self._goes(key, one)]
            self.changed += len(value) - len(left)
            return [self.without(one, key) for one in left]
        if not isinstance(value, str) or not self._words.match or key in _NAMES:
            return value
        text = self._words.written.sub(GONE, value)
        self.changed += text != value
        return text

    def _goes(self, key: object, item: Any) -> bool:
        if key == "removed_learnings":
            return self._words.match_on(f"words: {item.get('words')}")
        with contextlib.suppress(BadInput):
            return key == "learnings" and read_learning(item).id in self._learnings
        return False
