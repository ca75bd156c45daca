"""The inbox: corrections of a person that can become checks, and what the person said to each.

Candidates come from memory each time. Only what the person decided is stored, in this machine's
state of the project: a cloned repository can bring words, but no check. A check belongs to the
exact words that the person saw; if they change, it no longer applies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ralph import disk
from ralph.capture.decisions import SAID_WHEN_REFUSING
from ralph.capture.forbidden import (
    Target,
    asks_for_program,
    target_from,
    targets_of,
    wants_to_be_asked,
)
from ralph.capture.lasting import rule_name, rules_in
from ralph.capture.rules import pattern
from ralph.errors import BadInput, NotFound
from ralph.memory.newest import newest_exchanges, notes_of
from ralph.memory.replaced import Replaced, all_replaced, contradictions, statements
from ralph.memory.stats import SHELLS
from ralph.records import now
from ralph.records.conversation import Exchange
from ralph.records.note import Note
from ralph.text.sentences import sentences
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph

Action = Literal["hold", "ask", "replace", "dismissed"]
_FILE = "inbox.json"
_LARGEST_BYTES = 1_000_000
_LOCK_TIMEOUT_S = 5.0
_LEAST_ID = 4
_MOST_CONTRADICTIONS = 20
_LINES_READ = 5000
# A longer prompt is a plan or a paste.
_PROMPT_CHARS = 500
_RULE_CHARS = 240


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in a person's words, what it is about, and what the person wants done.

    `record` is the exchange or note with the words. `action` is "" while it waits. With `older`,
    the rule contradicts that one, and the question is whether it replaces it.
    """

    id: str
    text: str
    record: str
    at: str = ""
    targets: tuple[Target, ...] = ()
    suggested: Literal["hold", "ask", "replace"] = "hold"
    action: Action | Literal[""] = ""
    older: str = ""
    older_record: str = ""


class _RuleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the person decided on a rule, without its words: they stay in their record."""

    action: Action
    record: str
    at: str = ""
    targets: tuple[Target, ...] = ()
    older: Replaced | None = None


class _InboxFile(msgspec.Struct):
    version: int = 1
    answers: dict[str, _RuleAnswer] = {}
    # What a note of the person replaces: `ralph remember --replaces ID`.
    replaced: list[Replaced] = []


def inbox(ralph: Ralph, *, every: bool = False) -> list[Check]:
    """Return the rules that wait and those that are in force, newest first.

    With `every`, also those that were dismissed.
    """
    answers = _read(ralph).answers
    exchanges = newest_exchanges(ralph)
    notes = notes_of(ralph)
    gone = _replaced_now(ralph, exchanges, notes)
    found = {
        check.id: check
        for check in (*_candidates(exchanges, notes), *_contradictions(exchanges, notes))
        if check.id in answers or not _is_replaced(check, gone)
    }
    for name, given in answers.items():
        if name in found or given.action in ("dismissed", "replace"):
            continue
        if check := _check_of(ralph, name, given):
            found[name] = check
    checks = [_answered(check, answers.get(check.id)) for check in found.values()]
    shown = [check for check in checks if every or check.action != "dismissed"]
    return sorted(shown, key=lambda check: (check.action == "", check.at), reverse=True)


def waiting_rules(ralph: Ralph) -> list[Check]:
    """Return the rules that wait for the person, for views of everything.

    Answers that cannot be read are only warned of: the rest of the view does not depend on them.
    """
    try:
        return [check for check in inbox(ralph) if not check.action]
    except BadInput as error:
        import logging  # slow to load, and hooks load this module

        logging.getLogger("ralph").warning("memory: %s", error)
        return []


def answer(
    ralph: Ralph,
    name: str,
    action: Action,
    *,
    command: str | None = None,
    path: str | None = None,
) -> Check:
    """Store what the person decided on a rule; `command` or `path` replace what it is about."""
    check = find(ralph, name)
    if action != "dismissed" and (action == "replace") != bool(check.older):
        what = "contradicts an older one" if check.older else "contradicts none"
        todo = f"Try: ralph inbox {'replace' if check.older else 'hold'} {check.id[:8]}"
        raise BadInput(f"{action} does not fit this rule, which {what}", todo=todo)
    targets = check.targets
    if command is not None or path is not None:
        targets = tuple(_given_targets(command, path))
    if action in ("hold", "ask") and not targets:
        raise BadInput(
            "this rule names no command and no file, so nothing can be checked",
            todo=f"Say which: ralph inbox {action} {check.id[:8]} --command 'make deploy'",
        )
    older = None
    if action == "replace":
        older = Replaced(
            record=check.older_record, words=rule_name(check.older), by=check.record, at=check.at
        )
    with _changing(ralph) as stored:
        stored.answers[check.id] = _RuleAnswer(
            action=action, record=check.record, at=now(), targets=targets, older=older
        )
    _write_table(ralph)
    return msgspec.structs.replace(check, action=action, targets=targets)


def take_back(ralph: Ralph, name: str) -> Check:
    """Remove what the person decided on a rule, so that it waits again."""
    check = find(ralph, name)
    with _changing(ralph) as stored:
        stored.answers.pop(check.id, None)
    _write_table(ralph)
    return msgspec.structs.replace(check, action="")


def find(ralph: Ralph, name: str) -> Check:
    """Return the rule with this id, or the beginning of one."""
    checks = inbox(ralph, every=True)
    found = [check for check in checks if check.id.startswith(name)]
    if len(name) < _LEAST_ID or not found:
        raise NotFound(f"there is no rule {name!r} in the inbox", todo="See: ralph inbox --all")
    if len(found) > 1:
        raise BadInput(f"{name!r} is the beginning of {plural(len(found), 'rule')}")
    return found[0]


def approved(ralph: Ralph) -> list[Check]:
    """Return the checks in force."""
    checks = (
        _check_of(ralph, name, given)
        for name, given in _read(ralph).answers.items()
        if given.action in ("hold", "ask")
    )
    return [check for check in checks if check is not None]


def forget_answers(ralph: Ralph, records: Collection[str]) -> None:
    """Remove what the person decided on rules in these records, which are being forgotten."""
    if not disk.exists(_file(ralph)):
        return
    with _changing(ralph) as stored:
        stored.answers = {
            name: given
            for name, given in stored.answers.items()
            if given.record not in records
            and (given.older is None or given.older.record not in records)
        }
        # What a forgotten note replaced holds again.
        stored.replaced = [
            one for one in stored.replaced if not {one.record, one.by} & set(records)
        ]


def add_replacement(ralph: Ralph, record: str, *, by: str) -> None:
    """Store that a note of the person replaces a record, and make the moments anew."""
    with _changing(ralph) as stored:
        stored.replaced = [one for one in stored.replaced if one.record != record]
        stored.replaced.append(Replaced(record=record, by=by, at=now()))
    _write_table(ralph)


def chosen_replacements(ralph: Ralph) -> list[Replaced]:
    """Return what the person said is replaced."""
    stored = _read(ralph)
    answered = [given.older for given in stored.answers.values() if given.action == "replace"]
    return [*stored.replaced, *filter(None, answered)]


def _write_table(ralph: Ralph) -> None:
    from ralph.memory.moments import write_moments  # it reads this module

    write_moments(ralph)


def _given_targets(command: str | None, path: str | None) -> Iterator[Target]:
    given = (("command", command), ("path", path))
    for subject, text in given:
        if text is None:
            continue
        target = target_from(text, "command" if subject == "command" else "path")
        if target is None:
            raise BadInput(f"{text!r} is no {subject} that Ralph understands")
        yield target


# -- Rules in memory.


def _candidates(exchanges: Sequence[Exchange], notes: Sequence[Note]) -> Iterator[Check]:
    lines = _lines_of(exchanges)
    paths = list(dict.fromkeys(file.path for one in exchanges for file in one.files_touched))
    seen: set[str] = set()
    for exchange in reversed(exchanges):
        for text, refused in _rules_of(exchange):
            yield from _candidate(
                text, exchange.id, exchange.completed, lines, paths, refused, seen
            )
    for note in sorted(notes, key=lambda note: note.at or "", reverse=True):
        for text in _rules_of_note(note):
            yield from _candidate(text, note.id, note.at, lines, paths, "", seen)


def _candidate(
    text: str,
    record: str,
    at: str | None,
    lines: Sequence[str],
    paths: Sequence[str],
    refused: str,
    seen: set[str],
) -> Iterator[Check]:
    name = rule_name(text)
    if name in seen or len(text) > _RULE_CHARS:
        return
    targets = targets_of(text, lines, paths, refused=refused)
    if not targets:
        return
    seen.add(name)
    yield Check(
        id=name,
        text=text,
        record=record,
        at=at or "",
        targets=tuple(targets),
        suggested="ask" if wants_to_be_asked(text) else "hold",
    )


def _contradictions(exchanges: Sequence[Exchange], notes: Sequence[Note]) -> Iterator[Check]:
    pairs = contradictions(statements(exchanges, notes))
    for newer, older in islice(pairs, _MOST_CONTRADICTIONS):
        yield Check(
            id=rule_name(f"{newer.text}\n{older.text}"),
            text=newer.text,
            record=newer.record,
            at=newer.at,
            suggested="replace",
            older=older.text,
            older_record=older.record,
        )


def _replaced_now(
    ralph: Ralph, exchanges: Sequence[Exchange], notes: Sequence[Note]
) -> set[tuple[str, str]]:
    found = all_replaced(exchanges, notes, chosen_replacements(ralph))
    return {(one.record, one.words) for one in found}


def _is_replaced(check: Check, gone: set[tuple[str, str]]) -> bool:
    """Whether a rule, or one of two that contradict each other, no longer holds."""
    sides = ((check.record, check.text), (check.older_record, check.older))
    return any((record, "") in gone or (record, rule_name(text)) in gone for record, text in sides)


def _rules_of(exchange: Exchange) -> Iterator[tuple[str, str]]:
    """Yield a person's rules in an exchange, each with the command it was said against, or ""."""
    for decision in exchange.decisions:
        if decision.source == "human":
            refused = (decision.rationale or "").partition(f"{SAID_WHEN_REFUSING} `")[2]
            for rule in rules_in(decision.description):
                yield rule, refused.rstrip("`")
    if len(exchange.user) <= _PROMPT_CHARS:
        for text in _short_rules(exchange.user):
            yield text, ""


def _rules_of_note(note: Note) -> Iterable[str]:
    return _short_rules(note.text) if note.by == "human" else ()


def _short_rules(text: str) -> list[str]:
    """Return the rules in a short text; "use pnpm" is one, too, if it is about a program."""
    if text.startswith("/"):
        return []
    found = list(rules_in(text))
    for line in text.split("\n"):
        for raw in sentences(line, typed=True):
            sentence = " ".join(raw.split())
            is_passing = sentence.endswith("?") or pattern("only now").search(sentence)
            if asks_for_program(sentence) and not is_passing:
                found.append(sentence)
    return list(dict.fromkeys(found))


def _check_of(ralph: Ralph, name: str, given: _RuleAnswer) -> Check | None:
    """Return an answered rule with its words; None if its record no longer has them."""
    try:
        record = ralph.get(given.record, everywhere=True).record
    except NotFound:
        return None
    texts: list[str] = []
    at = ""
    if isinstance(record, Exchange):
        texts = [text for text, _ in _rules_of(record)]
        at = record.completed or ""
    elif isinstance(record, Note):
        texts = list(_rules_of_note(record))
        at = record.at or ""
    for text in texts:
        if rule_name(text) == name:
            return Check(
                id=name,
                text=text,
                record=given.record,
                at=at,
                targets=given.targets,
                action=given.action,
            )
    return None


def _answered(check: Check, given: _RuleAnswer | None) -> Check:
    if given is None:
        return check
    return msgspec.structs.replace(
        check, action=given.action, targets=given.targets or check.targets
    )


def _lines_of(exchanges: Sequence[Exchange]) -> list[str]:
    """Return the commands that the newest sessions ran, each once."""
    found = (
        message.content.partition("\n")[0]
        for exchange in exchanges
        for message in exchange.messages
        if message.role == "tool" and message.tool.lower() in SHELLS
    )
    return list(dict.fromkeys(found))[-_LINES_READ:]


# -- What the person decided.


def _file(ralph: Ralph) -> Path:
    return ralph.project.cache / _FILE


def _read(ralph: Ralph) -> _InboxFile:
    file = _file(ralph)
    try:
        data = disk.read(file, largest=_LARGEST_BYTES)
    except FileNotFoundError:
        return _InboxFile()
    try:
        return msgspec.json.decode(data, type=_InboxFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(
            f"the inbox's answers cannot be read ({error})",
            where=str(file),
            todo="Delete the file and approve your rules again: ralph inbox",
        ) from error


@contextlib.contextmanager
def _changing(ralph: Ralph) -> Iterator[_InboxFile]:
    """Yield what the person decided, to be changed in place, and save it if it changed.

    Nobody else may change it meanwhile: the page and a command may be used at the same time.
    """
    file = _file(ralph)
    disk.make_folder(file.parent)
    busy = BadInput(
        f"another process has been changing the inbox for over {_LOCK_TIMEOUT_S:.0f} s",
        where=str(file),
        todo="Try again. If it stays busy, end the process that hangs.",
    )
    with disk.lock(file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S, busy=busy):
        stored = _read(ralph)
        before = msgspec.json.encode(stored)
        yield stored
        after = msgspec.json.encode(stored)
        if after != before:
            disk.replace(file, after + b"\n", mode=0o600)
