"""Every kind of record, a row each: its struct, where it is kept, how it is found, how it reads.

What is done with all kinds (save, search, get, list, show, carry to a server) is written once, over
the rows. A new kind is a struct and a row. Another package adds one with an entry point in the
group `ralph.kinds` that names its row; see CONTRIBUTING.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ralph.errors import BadInput, BadRecord
from ralph.recall import passages
from ralph.records import (
    Record,
    conversation,
    iteration,
    note,
    now,
    read_body,
    short_id,
    write_body,
)

if TYPE_CHECKING:
    from ralph.index import Passage

# The memories that keep records: each has its own journals and its own index.
Keeper = Literal["features", "conversations", "knowledge"]
# Ids must be the same on every machine forever, so this namespace never changes.
_NAMESPACE = uuid.UUID("d5b1f0de-0a3b-5a59-8c39-6f0f8a0f5e27")
Reader = Callable[[Any], str]
Facts = Callable[[Any, str, str], Sequence[str]]


def _nothing(content: Any) -> str:
    return ""


def _field(name: str) -> Reader:
    return lambda content: getattr(content, name) or ""


def _never(content: Any) -> bool:
    return False


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind: its name, what people call it, its struct, which stream has it, how it reads.

    `struct` loads the class of its content, because a hook starts without most of them. `read`,
    `write` and `unpack` return the content of a record, the record of a content, and the content of
    plain data from a server; by default they follow the struct. `facts` are told about a record
    after its title: it gets the content, what people call it, and when it was. `place` is where to
    look it up, `origin` how far to trust it, `ended` how it ended. `by_person` says whether a
    person wrote this record on purpose: it ranks above what was extracted automatically and matches
    as well. `daily` kinds are a day's work, which `recent` lists. `counted`: `when` is a count, not
    a time. `keep_days` is the setting for how long it is kept; without one it is kept for ever.
    """

    name: str
    # Empty for a kind that is shown as the record it was made from.
    label: str
    stream: Literal["features", "notes", "plan", "conversations", "knowledge"]
    struct: Callable[[], type[msgspec.Struct]]
    title: Reader = _nothing
    text: Reader = _nothing
    facts: Facts | None = None
    place: Reader = _nothing
    origin: Reader = _nothing
    ended: Reader = _nothing
    passages: Callable[[Record, Any], Sequence[Passage]] | None = None
    read: Callable[[Record], Any] | None = None
    write: Callable[[Any], Record] | None = None
    unpack: Callable[[Mapping[str, Any]], Any] | None = None
    by_person: Callable[[Any], bool] = _never
    daily: bool = False
    counted: bool = False
    keep_days: str = ""

    @property
    def keepers(self) -> frozenset[Keeper]:
        """The memories that keep it; conversations have the private notes."""
        if self.stream in ("conversations", "knowledge"):
            return frozenset({self.stream})
        return frozenset({"features", "conversations"} if self.stream == "notes" else {"features"})

    def content(self, record: Record) -> Any:
        """Return what is in a record; raise BadRecord if it cannot be read."""
        if self.read is not None:
            return self.read(record)
        return read_body(_decoder(self.struct()), record)

    def record(self, content: Any) -> Record:
        """Return content of this kind in its envelope; the same words are the same record."""
        if self.write is not None:
            return self.write(content)
        body = write_body(content)
        return Record(short_id(_NAMESPACE, self.name, body.decode()), self.name, 0, now(), body)

    def cut(self, record: Record) -> Sequence[Passage]:
        """Return the passages that a record is found by; none if it cannot be read."""
        try:
            content = self.content(record)
        except BadRecord:
            return ()  # `verify` reports it
        if self.passages is not None:
            return self.passages(record, content)
        return passages.whole(self.title(content), self.text(content))

    def from_plain(self, plain: Mapping[str, Any]) -> Any:
        """Return the content that a server sent."""
        if self.unpack is not None:
            return self.unpack(plain)
        return msgspec.convert(plain, self.struct(), strict=False)

    def headline(self, content: Any) -> str:
        """Return its title, or its text if it has no title."""
        return self.title(content) or self.text(content)

    def facts_of(self, content: Any, name: str, when: str) -> Sequence[str]:
        """Return what is told about a record after its title; `name` is what people call it."""
        facts = [name, when] if self.facts is None else self.facts(content, name, when)
        return [fact for fact in facts if fact]


@functools.cache
def _decoder(struct: type[msgspec.Struct]) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(struct).decode


# -- The rows.


def _iteration_facts(content: iteration.Iteration, name: str, when: str) -> Sequence[str]:
    task = "" if content.task_id is None else f"task {content.task_id}"
    return [when, content.outcome, task, content.feature]


def _exchange_facts(content: conversation.Exchange, name: str, when: str) -> Sequence[str]:
    return [when, _exchange_end(content), f"conversation {content.conversation[:SHORT_ID]}"]


def _exchange_end(content: conversation.Exchange) -> str:
    return "" if content.status == "complete" else content.status


def _note_facts(content: note.Note, name: str, when: str) -> Sequence[str]:
    authors = {"agent": " by an agent", "model": " by a model"}
    return [f"{name}{authors.get(content.by, '')}", when, content.feature]


def _place_of_section(content: conversation.Document) -> str:
    return f"{content.path}:{content.line}"


def _section_facts(content: conversation.Document, name: str, when: str) -> Sequence[str]:
    return [_place_of_section(content), f"added {when}"]


def _provenance(content: Any) -> str:
    provenance: str = content.provenance
    return provenance.strip("[]")


def _learning_facts(content: Any, name: str, when: str) -> Sequence[str]:
    return [name, _provenance(content), content.feature]


def _learning() -> type[msgspec.Struct]:
    from ralph.records.learning import FeatureLearning

    return FeatureLearning


def _feature() -> type[msgspec.Struct]:
    from ralph.records.learning import FeatureSnapshot

    return FeatureSnapshot


def _read_knowledge(record: Record) -> Any:
    from ralph.records.knowledge import knowledge_from

    return knowledge_from(record)


def _unpack_entry(plain: Mapping[str, Any]) -> Any:
    from ralph.records.knowledge import entry_from_plain

    return entry_from_plain(plain)


def _problem(entry: Any) -> str:
    from ralph.recall.patterns import described

    return described(entry)


def _solution(entry: Any) -> str:
    from ralph.recall.patterns import case_of

    return case_of(entry).solution


def _entry_facts(entry: Any, name: str, when: str) -> Sequence[str]:
    gate = f" ({entry.gate_type})" if getattr(entry, "gate_type", "") else ""
    return [when, f"{entry.entry_type}{gate}", entry.agent_type, entry.task_type, entry.technology]


def _lesson(name: str) -> Kind:
    def struct() -> type[msgspec.Struct]:
        from ralph.records.knowledge import ENTRIES

        return ENTRIES[name]

    return Kind(
        name=name,
        label="lesson",
        stream="knowledge",
        struct=struct,
        title=_problem,
        text=_solution,
        facts=_entry_facts,
        passages=passages.of_entry,
        read=_read_knowledge,
        unpack=_unpack_entry,
        keep_days="knowledge_keep_days",
    )


def _pattern_facts(content: Any, name: str, when: str) -> Sequence[str]:
    return [when, content.entry_type]


def _pattern() -> type[msgspec.Struct]:
    from ralph.recall.patterns import Pattern

    return Pattern


def _unpack_pattern(plain: Mapping[str, Any]) -> Any:
    from ralph.recall.patterns import Pattern

    fields = {name: plain[name] for name in Pattern.__struct_fields__}
    for name in ("entries", "conflicts"):
        fields[name] = tuple(fields[name])
    fields["record"] = _unpack_entry(plain["record"])
    return Pattern(**fields)


def _gate() -> type[msgspec.Struct]:
    from ralph.records.knowledge import Gate

    return Gate


SHORT_ID = 8
ROWS = (
    Kind(
        name=iteration.KIND,
        label="iteration",
        stream="features",
        struct=lambda: iteration.Iteration,
        title=_field("task_title"),
        text=_field("summary"),
        facts=_iteration_facts,
        ended=_field("outcome"),
        passages=passages.of_iteration,
        read=iteration.from_record,
        daily=True,
        counted=True,
    ),
    Kind(
        name=note.NOTE,
        label="note",
        stream="notes",
        struct=lambda: note.Note,
        text=_field("text"),
        facts=_note_facts,
        read=conversation.content_of,
        write=conversation.record_of,
        by_person=lambda content: content.by == "human",
        daily=True,
    ),
    Kind(
        name="learning",
        label="learning",
        stream="plan",
        struct=_learning,
        text=_field("text"),
        facts=_learning_facts,
        origin=_provenance,
        passages=passages.of_learning,
        by_person=lambda content: content.source == "human",
        daily=True,
    ),
    Kind(
        name="feature",
        label="feature",
        stream="plan",
        struct=_feature,
        title=_field("feature"),
        text=_field("text"),
        passages=passages.of_feature,
    ),
    Kind(
        name=conversation.EXCHANGE,
        label="conversation",
        stream="conversations",
        struct=lambda: conversation.Exchange,
        title=_field("user"),
        text=_field("assistant"),
        facts=_exchange_facts,
        ended=_exchange_end,
        passages=passages.of_exchange,
        read=conversation.content_of,
        daily=True,
        keep_days="conversations_keep_days",
    ),
    Kind(
        name=conversation.CONVERSATION,
        label="conversation",
        stream="conversations",
        struct=lambda: conversation.Conversation,
        title=_field("title"),
        passages=passages.none,
        read=conversation.content_of,
        keep_days="conversations_keep_days",
    ),
    Kind(
        name=conversation.SUMMARY,
        label="",
        stream="conversations",
        struct=lambda: conversation.Summary,
        text=_field("text"),
        passages=passages.of_summary,
        read=conversation.content_of,
        keep_days="conversations_keep_days",
    ),
    Kind(
        name=conversation.DOCUMENT,
        label="document",
        stream="conversations",
        struct=lambda: conversation.Document,
        title=_field("heading"),
        text=_field("text"),
        facts=_section_facts,
        place=_place_of_section,
        passages=passages.of_document,
        read=conversation.content_of,
    ),
    *map(_lesson, ("failure_solution", "gate_rejection", "gate_approval")),
    Kind(
        name="pattern",
        label="lesson",
        stream="knowledge",
        struct=_pattern,
        title=_field("problem"),
        text=_field("solution"),
        facts=_pattern_facts,
        passages=passages.none,
        unpack=_unpack_pattern,
        keep_days="knowledge_keep_days",
    ),
    Kind(
        name="gate",
        label="gate",
        stream="knowledge",
        struct=_gate,
        title=_field("subject"),
        text=_field("human_feedback"),
        passages=passages.none,
        read=_read_knowledge,
    ),
)


# -- The table.


# Records that only say something about others: no search shows them.
_ABOUT_OTHERS = frozenset({"label", "rating", "checkpoint", "outcome", "token"})


class KindTable(dict[str, Kind]):
    """The rows by name. A name that is not known is looked for once in installed packages."""

    _looked = False

    def of(self, name: str) -> Kind | None:
        """Return the row of a kind; None for records that no search shows."""
        if name not in self and name not in _ABOUT_OTHERS:
            self.load_installed()
        return self.get(name)

    def add(self, row: Kind) -> None:
        """Add a kind from outside; it must not have the name of another one."""
        if row.name in self or row.name in _ABOUT_OTHERS:
            raise BadInput(f"there are two kinds of record with the name {row.name!r}")
        self[row.name] = row

    def load_installed(self) -> None:
        """Add the kinds that other installed packages bring."""
        if self._looked:
            return
        self._looked = True
        from ralph.plugins import installed

        for point in installed("ralph.kinds"):
            self.add(point.load())

    def of_content(self, content: object) -> Kind:
        """Return the row of a value that is to be saved."""
        for row in self.values():
            if row.struct() is type(content):
                return row
        if not self._looked:
            self.load_installed()
            return self.of_content(content)
        raise BadRecord(f"there is no kind of record for a {type(content).__name__}")


KINDS = KindTable((row.name, row) for row in ROWS)
# The kinds that a person may have written on purpose.
WRITTEN = frozenset(row.name for row in ROWS if row.by_person is not _never)
# What `--kind` takes, in the order it is shown.
LABELS = tuple(dict.fromkeys(row.label for row in ROWS if row.label not in ("", "gate")))
# The same for an agent, which sees nothing of what all projects share.
AGENT_LABELS = tuple(
    dict.fromkeys(row.label for row in ROWS if row.label and row.stream != "knowledge")
)


def kinds_of(words: Collection[str]) -> frozenset[str]:
    """The kinds that these names or labels mean; all of them without any."""
    if any(word not in LABELS and word not in KINDS for word in words):
        KINDS.load_installed()
    rows = [row for row in KINDS.values() if row.label]
    for word in words:
        if not any(word in (row.name, row.label) for row in rows):
            raise BadInput(f"there is no kind {word!r}", todo=f"Kinds: {', '.join(LABELS)}.")
    return frozenset(
        row.name for row in rows if not words or row.name in words or row.label in words
    )
