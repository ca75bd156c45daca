"""Choose records, and forget them with what was derived from them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from ralph.clients import CLIENTS
from ralph.errors import BadInput, BadRecord, NotFound
from ralph.journal import Journal
from ralph.memory import forgetting, store
from ralph.memory.forgetting import Words
from ralph.memory.knowledge_state import stream_of
from ralph.memory.lessons import taught_by
from ralph.memory.plan_stream import FeatureLearning
from ralph.memory.ralph import Ralph
from ralph.memory.store import CONVERSATIONS, FEATURES, KNOWLEDGE, NOTES
from ralph.memory.transfer import JournalKey, journal_keys, journal_of, stream_at
from ralph.recall import exchange_of_run
from ralph.records import Record
from ralph.records.conversation import CONVERSATION, content_of, conversation_id
from ralph.records.iteration import Iteration
from ralph.records.knowledge import ENTRIES, GATE, OUTCOME, FailureSolution, knowledge_from
from ralph.text.tokens import plural

_CLIENTS = {client.source: client.title for client in CLIENTS}
_TOLD_IDS = 10
_LINES_AT_ONCE = 2000


_Chosen = dict[JournalKey, list[str]]


def _ids_in(memory: str, chosen: Mapping[JournalKey, Collection[str]]) -> list[str]:
    return [one for key, ids in chosen.items() if key.memory == memory for one in ids]


# -- Other records that tell of what is forgotten: the same event told twice, and lessons from it.


def _told_elsewhere(ralph: Ralph, chosen: Mapping[JournalKey, Collection[str]]) -> _Chosen:
    """What else is the same event: iterations, and what was said."""
    wanted = set(_ids_in(CONVERSATIONS, chosen))
    if not any(key.memory in (FEATURES, CONVERSATIONS) for key in chosen):
        return {}
    found: _Chosen = {}
    told: set[str] = set()
    for memory in ralph.features():
        key = JournalKey(FEATURES, memory.name)
        mine = set(chosen.get(key, ()))
        for record in memory.records():
            if record.id in mine:
                told.update(_events(record.source.run))
            elif wanted and not wanted.isdisjoint(_events(record.source.run)):
                found.setdefault(key, []).append(record.id)
    if told:
        stream = ralph.conversations.stream
        history = stream.history
        told &= (history.records.keys() | history.conversations.keys()) - wanted
        found |= {JournalKey(CONVERSATIONS, stream.name): sorted(told)} if told else {}
    return found


def _events(run: str | None) -> list[str]:
    """What a run is called among conversations: an exchange of a session, or a whole one."""
    if exchange := exchange_of_run(run):
        return [exchange]
    return [conversation_id(client, run) for client in _CLIENTS] if run else []


def _clients_of(ralph: Ralph, said: Collection[str]) -> list[str]:
    """The clients that keep the sessions in which these were said."""
    if not said:
        return []
    history, wanted = ralph.conversations.stream.history, set(said)
    names = [i for i, ids in history.exchanges.items() if not wanted.isdisjoint([i, *ids])]
    sources = {history.conversations[name].conversation.source for name in names}
    return [name for source, name in _CLIENTS.items() if source in sources]


def _lessons_from(ralph: Ralph, iterations: list[Iteration]) -> list[str]:
    """What this project gave others, or is about to give, that tells of these iterations."""
    memory, root = ralph.knowledge, ralph.project.root
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


# -- Choose and forget.


class Choice(msgspec.Struct, frozen=True):
    """What is to be forgotten: records by journal, and learnings of the plan.

    `titles` are conversations that only lose their title, which holds `match`. `derived` are those
    of the ids that were learned from the rest and already used: learnings and published lessons.
    `places` are lines of the plan that lose the words, `remains` is what stays, each with how to
    remove it. `published`: other projects have some of it.
    """

    ids: dict[JournalKey, list[str]]
    learnings: list[FeatureLearning] = []
    titles: list[str] = []
    match: str = ""
    places: list[str] = []
    derived: list[str] = []
    remains: list[str] = []
    published: bool = False

    @property
    def count(self) -> int:
        """How many records and learnings were picked."""
        return sum(map(len, self.ids.values())) + len(self.learnings)

    @property
    def committed(self) -> bool:
        """Whether some of it is in files that git may have."""
        return bool(self.learnings) or any(key.memory == FEATURES for key in self.ids)


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
    limit = datetime.fromisoformat(store.moment_given(before, "before")) if before else None
    # What each id that was given is the beginning of.
    meant: dict[str, set[str]] = {one: set() for one in wanted}
    found_ids: set[str] = set()

    words = Words((), match or "")
    beginnings = [one for one in meant if len(one) >= store.SHORTEST_ID]

    def fits(names: Iterable[str], at: str, body: bytes) -> bool:
        named = [(one, i) for i in names for one in beginnings if i.startswith(one.lower())]
        found_ids.update(one for one, _ in named)
        fit = bool(named or not wanted) and (limit is None or store.is_before(at, limit))
        fit = fit and (not match or words.match_in(body))
        for one, name in named if fit else ():
            meant[one].add(name)
        return fit

    memories = {FEATURES, CONVERSATIONS, KNOWLEDGE}
    if feature or conversations or knowledge:
        memories = {FEATURES} if feature else {CONVERSATIONS} if conversations else {KNOWLEDGE}
    keys = [key for key in journal_keys(ralph) if key.memory != CONVERSATIONS]
    keys.append(JournalKey(CONVERSATIONS, ralph.conversations.stream.name))  # under all their ids
    if wanted:
        keys += [one for one in journal_keys(ralph, everywhere=True) if one.memory == KNOWLEDGE]
    chosen: _Chosen = {}
    titles: list[str] = []
    for key in dict.fromkeys(keys):
        if key.memory not in memories or (feature and key.name not in (feature, NOTES)):
            continue
        records = _standing(ralph, key)
        if feature and key.name == NOTES:
            records = [one for one in records if content_of(one).feature == feature]
        patterns = _patterns(ralph) if wanted and key.memory == KNOWLEDGE else {}
        fit = [x.id for x in records if fits((x.id, *patterns.get(x.id, ())), x.at, x.body)]
        if key.memory == CONVERSATIONS and not wanted:
            fit, titles = _without_conversations(ralph, records, fit, match)
        chosen[key] = [*dict.fromkeys(fit)]
    in_plan = forgetting.learnings_of(ralph) if FEATURES in memories and (wanted or match) else ()
    of_feature = (one for one in in_plan if feature in (None, one.feature))
    learnings = [x for x in of_feature if fits([x.id], x.created or "", x.text.encode())]
    missing = [one for one in wanted if one not in found_ids]
    if missing:
        raise NotFound(f"there is no record {', '.join(missing)}", todo="Nothing was forgotten.")
    for prefix, found in meant.items():
        if len(found) > 1:
            what = f"{prefix} is the beginning of {len(found)} ids"
            raise BadInput(what, todo="Give more of it; nothing was forgotten.")
    places = forgetting.plan_places(ralph, words) if len(memories) > 1 else []
    choice = Choice(_bound(ralph, chosen), learnings, titles, match or "", places)
    # What is named goes wherever it is told; what is picked by date or text was looked for there.
    # Who clears away what is old wants to keep what was learned from it.
    everywhere, learned = bool(wanted) and len(memories) > 1, bool(wanted or match or everything)
    return _with_derived(ralph, choice, everywhere=everywhere, learned=learned)


def _bound(ralph: Ralph, chosen: Mapping[JournalKey, list[str]]) -> _Chosen:
    """What was chosen, and after it what cannot stay without it."""
    bound = {key: ids for key, ids in chosen.items() if ids}
    for key, ids in bound.items():
        if key.memory == CONVERSATIONS:
            bound[key] = [*ids, *sorted(ralph.conversations.stream.bound_to(ids) - set(ids))]
    return bound


def _with_derived(ralph: Ralph, choice: Choice, *, everywhere: bool, learned: bool) -> Choice:
    """The choice with what tells of the same event (`everywhere`) and what was learned from it
    (`learned`): both are forgotten too, or named with the command."""
    ids, remains = dict(choice.ids), list[str]()
    same = _told_elsewhere(ralph, ids)
    if everywhere:
        ids = _bound(ralph, {key: [*ids.get(key, ()), *same.get(key, ())] for key in ids | same})
    elif same and not choice.match:
        others = [one for some in same.values() for one in some]
        remains.append(_command("the same told elsewhere", others))
    named = set(_ids_in(FEATURES, ids))
    features = [key.name for key in ids if key.memory == FEATURES and key.name != NOTES]
    told = (pair for name in features for pair in ralph.feature(name).iterations(named))
    iterations = [iteration for _, iteration in told]
    numbers = {(one.feature, one.iteration_number) for one in iterations}
    made = [x for x in forgetting.learnings_of(ralph) if x.source != "human"] if numbers else []
    made = [one for one in made if (one.feature, one.iteration) in numbers]
    learnings = [one for one in made if one not in choice.learnings]
    own = JournalKey(KNOWLEDGE, stream_of(ralph.project.id))
    lessons = [one for one in _lessons_from(ralph, iterations) if one not in ids.get(own, ())]
    known = {*_ids_in(KNOWLEDGE, ids), *lessons}
    published = known & _patterns(ralph).keys() if known else known
    derived = [*(one.id for one in learnings), *(one for one in lessons if one in published)]
    if derived and not learned:
        remains.append(_command("learned from it", derived))
        lessons, learnings, derived = [i for i in lessons if i not in published], [], []
        published &= set(_ids_in(KNOWLEDGE, ids))
    if lessons:
        ids[own] = [*ids.get(own, ()), *lessons]
    clients = _clients_of(ralph, _ids_in(CONVERSATIONS, ids))
    remains += [f"the session's own file, as {name} keeps it" for name in clients]
    learnings = [*choice.learnings, *learnings]
    more = {"derived": derived, "remains": remains, "published": bool(published)}
    return msgspec.structs.replace(choice, ids=ids, learnings=learnings, **more)


def _command(what: str, ids: list[str]) -> str:
    """How to forget these too, as many as fit a line."""
    more = f" (and {len(ids) - _TOLD_IDS} more)" if len(ids) > _TOLD_IDS else ""
    return f"{what}: ralph forget {' '.join(ids[:_TOLD_IDS])}{more}"


def chosen_records(ralph: Ralph, choice: Choice) -> list[Record]:
    """The records that were picked."""
    chosen = {key: set(ids) for key, ids in choice.ids.items()}
    return [one for key, ids in chosen.items() for one in _standing(ralph, key) if one.id in ids]


def forget(ralph: Ralph, choice: Choice, *, reason: str | None = None) -> Forgotten:
    """Forget what was chosen wherever Ralph keeps it, and say what went and what is left."""
    records = chosen_records(ralph, choice)
    words = Words((text for one in records for text in forgetting.texts_of(one.body)), choice.match)
    gone: list[str] = []
    known, said = _ids_in(KNOWLEDGE, choice.ids), _ids_in(CONVERSATIONS, choice.ids)
    for key, ids in choice.ids.items():
        if key.memory == FEATURES:
            gone += stream_at(ralph, key).forget(ids, reason=reason)
    if said or choice.titles:
        gone += ralph.conversations.forget(said, reason=reason, titles=choice.titles)
    if known:
        gone += ralph.knowledge.forget(known, reason=reason)
    in_plan = words if choice.places else Words(())
    changed = forgetting.forget_in_plan(ralph, choice.learnings, in_plan)
    copies = []
    if texts := changed - len(choice.learnings):
        copies.append(f"the words from {plural(texts, 'text')} of the plan")
    if gone or changed or choice.match:
        copies += forgetting.remove_copies(ralph, words, versions=bool(changed))
    old = forgetting.old_journals(ralph, {record.id for record in records})
    remains = [*choice.remains, *forgetting.left_to_the_person(ralph, words), *old]
    return Forgotten(len(gone) + len(choice.learnings), copies, remains)


def _without_conversations(
    ralph: Ralph, standing: Iterable[Record], said: list[str], match: str | None
) -> tuple[list[str], list[str]]:
    """What was picked without conversations of which only a part was, and those of them whose
    title has the text: a conversation goes with its last exchange, and by its title alone only if
    none of its exchanges has the text."""
    fit, exchanges = set(said), ralph.conversations.stream.history.exchanges
    parted = {name for name, some in exchanges.items() if not match or not fit.isdisjoint(some)}
    named = {one.id for one in standing if one.kind == CONVERSATION and one.id in parted}
    titles = [one for one in said if one in named] if match else []
    return [one for one in said if one not in named], titles


def _standing(ralph: Ralph, key: JournalKey) -> Iterable[Record]:
    """What may be forgotten of a journal; a merge may have brought some of it back."""
    if key.memory == CONVERSATIONS:
        return ralph.conversations.stream.standing()
    kinds = (*ENTRIES, GATE, OUTCOME)
    records = _in_journal(journal_of(ralph, key))
    return (one for one in records if key.memory != KNOWLEDGE or one.kind in kinds)


def _in_journal(journal: Journal) -> Iterator[Record]:
    """Every record that stands in a journal, read in parts: there may be many."""
    position: str | None = None
    while True:
        batch = journal.read(position, limit=_LINES_AT_ONCE)
        yield from (located.record for located in batch.records)
        if batch.done:
            return
        position = batch.position


def _patterns(ralph: Ralph) -> dict[str, tuple[str]]:
    """By the id of a published entry that of its pattern."""
    return {one: (slot.pattern,) for one, slot in ralph.knowledge.state.history().slots.items()}
