"""Choose records, and forget them with what was derived from them.

A record's words may also be in the plan, and in small files of hooks, imports and runs. Copies
there are removed, too; copies that cannot be removed are reported.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk
from ralph.clients import CLIENTS
from ralph.current_run import refuse_agent
from ralph.errors import BadInput, BadPlan, BadRecord, NotFound
from ralph.memory import store
from ralph.memory.conversation_stream import folded, texts_of
from ralph.memory.inbox import forget_answers
from ralph.memory.knowledge_state import stream_of
from ralph.memory.lessons import taught_by
from ralph.memory.moments import remove_moments, write_moments
from ralph.memory.ralph import Ralph
from ralph.memory.sessions import read_marks, write_marks
from ralph.memory.store import CONVERSATIONS, FEATURES, KNOWLEDGE, NOTES
from ralph.memory.transfer import JournalKey, journal_keys, records_in, stream_at
from ralph.plan.model import KINDS
from ralph.recall import exchange_of_run
from ralph.records import Record
from ralph.records.conversation import CONVERSATION, content_of, conversation_id
from ralph.records.iteration import TRUNCATED, Iteration
from ralph.records.knowledge import ENTRIES, GATE, OUTCOME, FailureSolution, knowledge_from
from ralph.records.learning import LEARNING, FeatureLearning, read_learning
from ralph.text.tokens import plural, tokens

if TYPE_CHECKING:
    from ralph.plan.store import Plan

_CLIENTS = {client.source: client.title for client in CLIENTS}
_TOLD_IDS = 10
_Chosen = dict[JournalKey, list[str]]


def _ids_in(memory: str, chosen: Mapping[JournalKey, Collection[str]]) -> list[str]:
    return [one for key, ids in chosen.items() if key.memory == memory for one in ids]


# -- Other records of what is forgotten: the same event in another memory, and lessons from it.


def _told_elsewhere(ralph: Ralph, chosen: Mapping[JournalKey, Collection[str]]) -> _Chosen:
    """Return other records of the same events: iterations, exchanges and conversations."""
    wanted = set(_ids_in(CONVERSATIONS, chosen))
    whole = bool(wanted) and not wanted.isdisjoint(ralph.conversations.states())
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
            elif wanted and not wanted.isdisjoint(_events(record.source.run, whole=whole)):
                found.setdefault(key, []).append(record.id)
    if told:
        history = (stream := ralph.conversations.stream).history
        told &= (history.records.keys() | history.conversations.keys()) - wanted
        found |= {JournalKey(CONVERSATIONS, stream.name): sorted(told)} if told else {}
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


# -- Choose and forget.


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

    @property
    def count(self) -> int:
        """How many records and learnings were chosen."""
        return sum(map(len, self.ids.values())) + len(self.learnings)

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
    # For each given id, the ids that begin with it.
    meant: dict[str, set[str]] = {one: set() for one in wanted}
    found_ids: set[str] = set()
    words = Words((), match or "")
    beginnings = [one for one in meant if len(one) >= store.SHORTEST_ID]
    begins = tuple(map(str.lower, beginnings))

    def fits(names: Iterable[str], at: str, body: bytes) -> bool:
        if wanted and not any(name.startswith(begins) for name in names):
            return False
        named = [(one, i) for i in names for one in beginnings if i.startswith(one.lower())]
        found_ids.update(one for one, _ in named)
        fit = (limit is None or store.is_before(at, limit)) and (not match or words.match_in(body))
        for one, name in named if fit else ():
            meant[one].add(name)
        return fit

    memories = {FEATURES, CONVERSATIONS, KNOWLEDGE}
    if feature or conversations or knowledge:
        memories = {FEATURES} if feature else {CONVERSATIONS} if conversations else {KNOWLEDGE}
    keys = [key for key in journal_keys(ralph) if key.memory != CONVERSATIONS]
    keys.append(JournalKey(CONVERSATIONS, ralph.conversations.stream.name))  # for all their ids
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
    in_plan = learnings_of(ralph) if FEATURES in memories and (wanted or match) else ()
    of_feature = (one for one in in_plan if feature in (None, one.feature))
    learnings = [x for x in of_feature if fits([x.id], x.created or "", x.text.encode())]
    if missing := [one for one in wanted if one not in found_ids]:
        raise NotFound(f"there is no record {', '.join(missing)}", todo="Nothing was forgotten.")
    for prefix, found in meant.items():
        if len(found) > 1:
            what = f"{prefix} is the beginning of {len(found)} ids"
            raise BadInput(what, todo="Give more of it; nothing was forgotten.")
    places = plan_places(ralph, words) if len(memories) > 1 else []
    choice = Choice(_bound(ralph, chosen), learnings, titles, match or "", places)
    # A record named by id is forgotten in every memory; a date or text was looked for in all.
    # Someone who clears out old records wants to keep what was learned from them.
    everywhere = bool(wanted) and len(memories) > 1
    learned = bool(wanted or match or everything)
    return _with_derived(ralph, choice, everywhere=everywhere, learned=learned)


def _bound(ralph: Ralph, chosen: Mapping[JournalKey, list[str]]) -> _Chosen:
    """Return what was chosen, followed by what cannot stay without it."""
    bound = {key: ids for key, ids in chosen.items() if ids}
    for key, ids in bound.items():
        if key.memory == CONVERSATIONS:
            bound[key] = [*ids, *sorted(ralph.conversations.stream.bound_to(ids) - set(ids))]
    return bound


def _with_derived(ralph: Ralph, choice: Choice, *, everywhere: bool, learned: bool) -> Choice:
    """Add other records of the same events (`everywhere`) and what was learned from them
    (`learned`) to the choice; otherwise `remains` names them with a command."""
    ids = dict(choice.ids)
    remains = list[str]()
    same = _told_elsewhere(ralph, ids)
    if everywhere:
        ids = _bound(ralph, {key: [*ids.get(key, ()), *same.get(key, ())] for key in ids | same})
    elif same and not choice.match:
        others = [one for some in same.values() for one in some]
        remains.append(_command("other records of the same event", others))
    named = set(_ids_in(FEATURES, ids))
    features = [key.name for key in ids if key.memory == FEATURES and key.name != NOTES]
    iterations = [one for name in features for _, one in ralph.feature(name).iterations(named)]
    numbers = {(one.feature, one.iteration_number) for one in iterations}
    made = [x for x in learnings_of(ralph) if x.source != "human"] if numbers else []
    made = [one for one in made if (one.feature, one.iteration) in numbers]
    learnings = [one for one in made if one not in choice.learnings]
    own = JournalKey(KNOWLEDGE, stream_of(ralph.project.id))
    lessons = [one for one in _lessons_from(ralph, iterations) if one not in ids.get(own, ())]
    known = {*_ids_in(KNOWLEDGE, ids), *lessons}
    published = known & _patterns(ralph).keys() if known else known
    derived = [*(one.id for one in learnings), *(one for one in lessons if one in published)]
    if derived and not learned:
        remains.append(_command("learned from these records", derived))
        lessons = [i for i in lessons if i not in published]
        learnings = []
        derived = []
        published &= set(_ids_in(KNOWLEDGE, ids))
    if lessons:
        ids[own] = [*ids.get(own, ()), *lessons]
    clients = _clients_of(ralph, _ids_in(CONVERSATIONS, ids))
    remains += [f"the session's own file, as {name} keeps it" for name in clients]
    learnings = [*choice.learnings, *learnings]
    more = {"derived": derived, "remains": remains, "published": bool(published)}
    return msgspec.structs.replace(choice, ids=ids, learnings=learnings, **more)


def _command(what: str, ids: list[str]) -> str:
    """Return the command to forget these, too, with as many ids as fit on a line."""
    more = f" (and {len(ids) - _TOLD_IDS} more)" if len(ids) > _TOLD_IDS else ""
    return f"{what}: ralph forget {' '.join(ids[:_TOLD_IDS])}{more}"


def chosen_records(ralph: Ralph, choice: Choice) -> list[Record]:
    """Return the chosen records."""
    chosen = {key: set(ids) for key, ids in choice.ids.items()}
    return [one for key, ids in chosen.items() for one in _standing(ralph, key) if one.id in ids]


def forget(ralph: Ralph, choice: Choice, *, reason: str | None = None) -> Forgotten:
    """Forget what was chosen everywhere Ralph stores it; return what is gone and what is left."""
    refuse_agent("forget records")
    # Rows of the table of moments may quote it: it is written anew when everything is gone.
    remove_moments(ralph)
    records = chosen_records(ralph, choice)
    forget_answers(ralph, {record.id for record in records})
    words = Words((text for one in records for text in texts_of(one.body)), choice.match)
    gone: list[str] = []
    known = _ids_in(KNOWLEDGE, choice.ids)
    said = _ids_in(CONVERSATIONS, choice.ids)
    for key, ids in choice.ids.items():
        if key.memory == FEATURES:
            gone += stream_at(ralph, key).forget(ids, reason=reason)
    if said or choice.titles:
        gone += ralph.conversations.forget(said, reason=reason, titles=choice.titles)
    if known:
        gone += ralph.knowledge.forget(known, reason=reason)
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
    left += [f"{folder} {wait}" for folder in _runs(ralph, words)]
    write_moments(ralph)
    return Forgotten(len(gone) + len(choice.learnings), copies, [*choice.remains, *left, *old])


def _without_conversations(
    ralph: Ralph, standing: Iterable[Record], said: list[str], match: str | None
) -> tuple[list[str], list[str]]:
    """Return the ids without conversations of which only a part was picked, and which of those
    have the text in their title. A conversation goes with its last exchange; it goes by its title
    alone only if none of its exchanges has the text."""
    fit = set(said)
    exchanges = ralph.conversations.stream.history.exchanges
    parted = {name for name, some in exchanges.items() if not match or not fit.isdisjoint(some)}
    named = {one.id for one in standing if one.kind == CONVERSATION and one.id in parted}
    titles = [one for one in said if one in named] if match else []
    return [one for one in said if one not in named], titles


def _standing(ralph: Ralph, key: JournalKey) -> Iterable[Record]:
    """Return a journal's records that may be forgotten, even those that a merge brought back."""
    if key.memory == CONVERSATIONS:
        return ralph.conversations.stream.standing()
    kinds = (*ENTRIES, GATE, OUTCOME)
    return (one for one in records_in(ralph, key) if key.memory != KNOWLEDGE or one.kind in kinds)


def _patterns(ralph: Ralph) -> dict[str, tuple[str]]:
    """Return the pattern id of each published entry, by the entry's id."""
    return {one: (slot.pattern,) for one, slot in ralph.knowledge.state.history().slots.items()}


# -- Other places with the words: learnings and texts of the plan, copies in files.


# Shorter texts occur in too many places to prove anything.
_TELLING_CHARS = 12
# Shorter texts (titles, paths) are in a prompt whether or not something was recalled.
_QUOTED_CHARS = 60
# Replaces forgotten words in a plan's texts; fields with names are left alone.
GONE = "[forgotten]"
_NAMES = frozenset(
    "name id feature discipline blocked_by context_files knowledge_paths path mcp_servers".split()
)
# With more texts than this, everything in the small files goes: Ralph can make them again.
_MOST_TEXTS = 2000
_LOCK_TIMEOUT_S = 5.0
_LARGEST_COPY_BYTES = 64 * 1024 * 1024


def projects_with(ralph: Ralph, match: str) -> list[str]:
    """Return the names of other projects whose conversations or documents contain this text."""
    words = Words((), match)
    found: set[str] = set()
    for stream in ralph.conversations.within(True)[1:]:
        if any(words.match_in(record.body) for record in stream.records()):
            states = stream.history.conversations.values()
            found.update(state.conversation.project for state in states)
    return sorted(found)


class Words:
    """The words of forgotten records, to search for elsewhere."""

    def __init__(self, texts: Iterable[str], match: str = "") -> None:
        # Spaces around it count: they exclude longer words.
        self.match = _spaced(match)
        # Finds the match as written, in any case and with any line breaks.
        self.written = re.compile(r"\s+".join(map(re.escape, re.split(r"\s+", match))), re.I)
        self._texts = {text for text in set(map(folded, texts)) if len(text) >= _TELLING_CHARS}

    def stand_in(self, text: str) -> bool:
        """Return whether a text has the match, or repeats one of the texts or a part of it."""
        plain = folded(text.removesuffix(TRUNCATED))
        if len(self._texts) > _MOST_TEXTS or (self.match and self.match in plain):
            return True
        long = len(plain) >= _TELLING_CHARS
        return any(one in plain or (long and plain in one) for one in self._texts)

    def stand_in_any(self, body: bytes) -> bool:
        """Return whether that is so for any text in a JSON file."""
        return any(map(self.stand_in, texts_of(body)))

    def match_in(self, body: bytes) -> bool:
        """Return whether a record's body has the match, in one of its texts or in its JSON."""
        texts = (body.decode("utf-8", "replace"), *texts_of(body))
        return any(self.match in _spaced(text) for text in texts)

    def in_file(self, data: bytes) -> bool:
        """Return whether a file has the match or one of the longer texts; line breaks count as
        spaces."""
        text = data.decode("utf-8", "replace")
        plain = folded(text)
        wanted = [one for one in self._texts if len(one) >= _QUOTED_CHARS]
        wanted += [self.match] if self.match else []
        return any(one in plain for one in wanted) or any(map(self.match_on, text.splitlines()))

    def match_on(self, line: str) -> bool:
        """Return whether a line has the match; the plan keeps stems of removed learnings."""
        if not self.match or self.match in folded(line):
            return bool(self.match)
        stems = tokens(self.match)
        return bool(stems) and "words:" in line and set(stems) <= set(line.split())


# -- the plan


def learnings_of(ralph: Ralph) -> list[FeatureLearning]:
    """Return every learning of the plan; none while it is unreadable, as `plan check` reports."""
    return [ralph.plan.content(one) for one in ralph.plan.records() if one.kind == LEARNING]


def plan_places(ralph: Ralph, words: Words) -> list[str]:
    """Return the lines of the plan that have the matched text, as file:line."""
    plan = _plan(ralph)
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
        with contextlib.suppress(BadPlan), _plan(ralph).editing("words forgotten", *KINDS) as data:
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


def _plan(ralph: Ralph) -> Plan:
    from ralph.plan.store import Plan  # only here: most commands need no YAML

    return Plan(ralph.project.root, state=ralph.project.cache)


# -- copies in files


def remove_copies(ralph: Ralph, words: Words, *, versions: bool) -> list[str]:
    """Remove the words from all files that Ralph can make again; return what was removed.

    `versions`: the plan has changed, so its old versions have what was removed.
    """
    home = ralph.store.home
    cache = ralph.project.cache
    plan = _plan(ralph).cache
    plans = [*plan.glob("versions/*"), *plan.glob("rejected/*"), *cache.glob("undo/*/*.yaml")]
    left = "spool/**/*.left-*"
    found = {
        "entr{y} in the hooks' notes": _hook_notes(home / "cache" / "hooks", words),
        "log line{s}": _without_lines(home.glob("cache/**/hooks.log*"), words.stand_in),
        "line{s} that could not be delivered": _without_lines(home.glob(left), words.stand_in),
        "title{s} of imported sessions": _import_marks(home / "cache" / "imports", words),
        "entr{y} in the workers' notes": _whole(
            home.glob("cache/workers/*.json"), words.stand_in_any
        ),
        "cop{y} of the plan": _whole(plans, lambda data: versions or words.in_file(data)),
        "proposal{s} of a plan": _whole(cache.glob("braindump/*"), words.in_file),
        "unfinished run{s}": sum(map(_drop_run, _runs(ralph, words))) if words.match else 0,
    }
    endings = ({"s": "s", "y": "ies"}, {"s": "", "y": "y"})
    return [f"{n} {what.format(**endings[n == 1])}" for what, n in found.items() if n]


def _runs(ralph: Ralph, words: Words) -> list[Path]:
    """Return the folders of runs whose prompt, plan or output has the words."""
    folders = sorted(ralph.project.cache.glob("runs/*/"))
    return [one for one in folders if any(words.in_file(_read(file)) for file in one.glob("*"))]


def _drop_run(folder: Path) -> bool:
    """Delete what a killed run left; return False if the run is still active."""
    try:
        with disk.lock(folder / "lock", timeout_s=0.0):
            shutil.rmtree(folder)
    except (OSError, disk.Busy):
        return False
    return True


def old_journals(ralph: Ralph, ids: Collection[str]) -> list[str]:
    """Return files of journals that moved to a server, if they still have these records."""
    if not ralph.config.settings.journal_url:
        return []
    wanted = [one.encode() for one in ids]
    own = ralph.project.journals
    files = [*(own / name for name in disk.names(own)), *ralph.store.home.glob("journal/*/*.jsonl")]
    found = [file for file in files if any(one in _read(file) for one in wanted)]
    return [f"{file}, from before the journal moved to a server" for file in sorted(found)]


# -- the kinds of files


def _hook_notes(folder: Path, words: Words) -> int:
    """Remove errors noted in active sessions, and the texts that sessions begin with."""
    gone = 0
    for own in sorted(folder.glob("*")):
        # Rebuilt when a session begins. It may describe the forgotten records in other words.
        gone += _whole([own / "brief.json", *own.glob("sessions/*.tmp")], lambda data: True)
        if not (notes := sorted(own.glob("sessions/*.jsonl"))):
            continue
        try:
            with disk.lock(own / "lock", timeout_s=_LOCK_TIMEOUT_S):
                gone += _without_lines(notes, lambda line: _notes(line, words))
        except disk.Busy:
            gone += _whole(notes, words.stand_in_any)
    return gone


def _notes(line: str, words: Words) -> bool:
    """Return whether a line of hook notes repeats the words; only errors have any text."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return words.stand_in(line)
    value = told.get("value") if isinstance(told, dict) and told.get("note") == "error" else None
    texts = value.values() if isinstance(value, dict) else ()
    return any(isinstance(text, str) and words.stand_in(text) for text in texts)


def _import_marks(folder: Path, words: Words) -> int:
    """Remove titles that repeat the words from the marks of imported sessions."""
    gone = 0
    for file in sorted(folder.glob("*.json")):
        with disk.lock(file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
            marks = read_marks(file)
            telling = {i: m for i, m in marks.items() if m.title and words.stand_in(m.title)}
            untitled = {i: msgspec.structs.replace(m, title="") for i, m in telling.items()}
            if telling:
                write_marks(file, marks | untitled)
            gone += len(telling)
    return gone


def _whole(files: Iterable[Path], holds: Callable[[bytes], bool]) -> int:
    """Delete the files whose content `holds` the words; return how many."""
    gone = 0
    for file in files:
        if file.is_file() and not file.is_symlink() and holds(_read(file)):
            disk.remove(file)
            gone += 1
    return gone


def _without_lines(files: Iterable[Path], repeats: Callable[[str], bool]) -> int:
    """Remove lines that repeat the words from these files; return how many."""
    gone = 0
    for file in list(files):
        if file.is_file() and not file.is_symlink():
            lines = _read(file).splitlines(keepends=True)
            kept = [line for line in lines if not repeats(line.decode("utf-8", "replace"))]
            if len(kept) < len(lines):
                disk.replace(file, b"".join(kept))
            gone += len(lines) - len(kept)
    return gone


def _read(file: Path) -> bytes:
    try:
        return disk.read(file, largest=_LARGEST_COPY_BYTES)
    except OSError:
        return b""


def _spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()
