"""What a newer decision of a person has replaced: kept, shown as such, never told as current.

A person says so with `ralph remember --replaces ID` or in the inbox, or by explicit words: "from
now on use pnpm instead of npm". What else seems to contradict goes to the inbox. The result is
stored without words in this machine's state of the project, so that a search need not read all of
the history.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.capture.decisions import is_plan
from ralph.capture.lasting import NO_SUBJECT, rule_name, rules_in, says_more
from ralph.capture.rules import pattern
from ralph.recall import Hit, Replacement
from ralph.records.iteration import ACCEPTED_PLAN
from ralph.text.sameness import compare, contradict, gist
from ralph.text.tokens import tokens

if TYPE_CHECKING:
    from ralph.memory.project import Project
    from ralph.records.conversation import Exchange
    from ralph.records.note import Note

_FILE = "replaced.json"
_LARGEST_BYTES = 1_000_000
_LEAST_SHARED = 2
_MOST_STATEMENTS = 400
_LONGEST_COMPLAINT = 600
# A person speaks of what was done lately.
_MOST_PLANS = 3
_EXPLICIT = re.compile(
    r"(?i)\binstead\b|\bno longer\b|\bfrom now on\b|\bany ?more\b"
    r"|\b(?:switch(?:ed|ing)?|mov(?:e|ed|ing)|migrat(?:e|ed|ing)) (?:from \S+ )?to\b"
)


class PersonsRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule or note in a person's words; `words` is their hash."""

    text: str
    record: str
    at: str
    origin: str = ""
    is_note: bool = False

    @property
    def words(self) -> str:
        """A name that only these words have."""
        return rule_name(self.text)


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that no longer holds, and the record with the newer one.

    Without `words`, nothing that the person decided in the record holds any more.
    """

    record: str
    by: str
    at: str = ""
    words: str = ""


class _ReplacedFile(msgspec.Struct):
    version: int = 1
    replaced: list[Replaced] = []


def statements(exchanges: Iterable[Exchange], notes: Iterable[Note]) -> list[PersonsRule]:
    """Return what people said that holds beyond its session, in time order."""
    found: list[PersonsRule] = []
    for exchange in exchanges:
        for decision in exchange.decisions:
            if decision.source == "human":
                found += [
                    PersonsRule(
                        text=rule,
                        record=exchange.id,
                        at=exchange.completed or "",
                        origin=exchange.conversation,
                    )
                    for rule in rules_in(decision.description)
                ]
    found += [
        PersonsRule(text=note.text, record=note.id, at=note.at or "", is_note=True)
        for note in notes
        if note.by == "human"
    ]
    return sorted(found, key=lambda statement: statement.at)[-_MOST_STATEMENTS:]


def replaced_by_words(said: Sequence[PersonsRule]) -> list[Replaced]:
    """Return the statements that a newer one on the same subject replaces in explicit words."""
    found: list[Replaced] = []
    for place, newer in enumerate(said):
        for older in said[:place]:
            if older.record != newer.record and _replaces(newer.text, older.text):
                found.append(
                    Replaced(record=older.record, words=older.words, by=newer.record, at=newer.at)
                )
    return found


def disproved_plans(exchanges: Iterable[Exchange]) -> list[Replaced]:
    """Return the accepted plans of which a person says in a later session that they failed.

    Only the last few plans count, and only words that share the plan's subject.
    """
    found: list[Replaced] = []
    plans: list[tuple[Exchange, str]] = []
    for exchange in sorted(exchanges, key=lambda one: one.completed or one.started or ""):
        complaint = "" if is_plan(exchange.user) else exchange.user[:_LONGEST_COMPLAINT]
        if pattern("disproves").search(complaint):
            words = set(tokens(complaint))
            for older, plan in plans:
                subject = set(tokens(plan.removeprefix(ACCEPTED_PLAN))) - NO_SUBJECT
                is_later = older.conversation != exchange.conversation
                if is_later and len(subject & words) >= _LEAST_SHARED:
                    name = rule_name(plan)
                    at = exchange.completed or ""
                    found.append(Replaced(record=older.id, words=name, by=exchange.id, at=at))
        accepted = (one.description for one in exchange.decisions if one.source == "human")
        plans += [(exchange, text) for text in accepted if text.startswith(ACCEPTED_PLAN)]
        plans = plans[-_MOST_PLANS:]
    return found


def contradictions(said: Sequence[PersonsRule]) -> Iterator[tuple[PersonsRule, PersonsRule]]:
    """Yield pairs of a newer and an older statement that deny each other, newest first.

    Pairs that were said in one session are left out: the later words correct the earlier ones.
    """
    for place in range(len(said) - 1, -1, -1):
        newer = said[place]
        for older in said[:place]:
            is_same = newer.record == older.record or (
                newer.origin and newer.origin == older.origin
            )
            if is_same or _replaces(newer.text, older.text):
                continue
            if contradict(gist(newer.text), gist(older.text)):
                yield newer, older


def _replaces(newer: str, older: str) -> bool:
    """Whether a statement says in explicit words that it replaces all of an older one."""
    if not _EXPLICIT.search(newer) or not _same_subject(newer, older):
        return False
    return not says_more(older, newer)


def _same_subject(newer: str, older: str) -> bool:
    if compare(gist(newer), gist(older)) != "unique":
        return True
    new = set(tokens(newer)) - NO_SUBJECT
    old = set(tokens(older)) - NO_SUBJECT
    shared = new & old
    return len(shared) >= _LEAST_SHARED and 2 * len(shared) >= min(len(new), len(old))


def all_replaced(
    exchanges: Sequence[Exchange], notes: Sequence[Note], chosen: Iterable[Replaced]
) -> list[Replaced]:
    """Return everything that was replaced: by words, by notes, and as the person chose."""
    found = list(chosen)
    public = {note.id for note in notes}
    for note in notes:
        # A note of the project may be somebody else's: it replaces only other notes.
        if note.replaces and note.replaces in public and note.by == "human":
            found.append(Replaced(record=note.replaces, by=note.id, at=note.at or ""))
    found += replaced_by_words(statements(exchanges, notes))
    found += disproved_plans(exchanges)
    return list({(one.record, one.words): one for one in found}.values())


def write_replaced(project: Project, found: Sequence[Replaced]) -> None:
    """Store what was replaced in a project."""
    file = project.cache / _FILE
    with contextlib.suppress(OSError):  # a read-only or full home has only its journals
        if not found:
            file.unlink(missing_ok=True)
            return
        disk.make_folder(file.parent)
        data = msgspec.json.encode(_ReplacedFile(replaced=list(found))) + b"\n"
        disk.replace(file, data, mode=0o600)


def read_replaced(project: Project) -> Mapping[str, list[Replacement]]:
    """Return what was replaced, by record."""
    try:
        data = disk.read(project.cache / _FILE, largest=_LARGEST_BYTES)
        stored = msgspec.json.decode(data, type=_ReplacedFile).replaced
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):  # it is written again
        return {}
    found: dict[str, list[Replacement]] = {}
    for one in stored:
        replacement = Replacement(by=one.by, at=one.at, words=one.words)
        found.setdefault(one.record, []).append(replacement)
    return found


def with_replacements(hit: Hit, replaced: Mapping[str, Sequence[Replacement]]) -> Hit:
    """Return a hit with what replaced it; a replaced rule is quoted as it stands in the record."""
    mine = replaced.get(hit.id, ())
    if not mine:
        return hit
    texts: dict[str, str] = {}
    for decision in getattr(hit.record, "decisions", ()):
        if decision.source == "human":
            texts |= {rule_name(rule): rule for rule in rules_in(decision.description)}
            texts[rule_name(decision.description)] = decision.description
    quoted = [msgspec.structs.replace(one, text=texts.get(one.words, "")) for one in mine]
    return msgspec.structs.replace(hit, replaced=tuple(quoted))


def no_longer_holds(replacements: Iterable[Replacement], text: str) -> bool:
    """Whether one of a record's replacements is about this statement of it."""
    return any(one.words in ("", rule_name(text)) for one in replacements)
