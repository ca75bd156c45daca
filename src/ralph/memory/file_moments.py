"""What to say when a file is opened: what people decided about it, and what broke in it.

A line must be about the file, not only from the session that changed it. So a text counts for the
files it names, or for the one or two files that its exchange changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import msgspec

from ralph.capture.lasting import choice_in, rule_name, rules_in
from ralph.records.conversation import Exchange
from ralph.records.iteration import TRUNCATED, Decision, ErrorSeen
from ralph.records.note import Note
from ralph.text.sanitize import plain_date, plain_id, sanitize_line
from ralph.text.signature import same_error, signature
from ralph.text.tokens import shorten

# How lines about one file are ordered: what people wrote down and said comes first.
_BROKEN = 0
_SAID = 1
_NOTED = 2
_MOST_LINES = 2
_MOST_CHANGED = 2
_LEAST_SESSIONS = 2
_TEXT_CHARS = 240
_PROSE = (".md", ".txt", ".rst", ".adoc")
_ID_CHARS = 12
_TEST = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|e2e)/|(?:^|/)test_|[._-](?:test|spec)\.[a-z]+$"
)
# Rules about how to work, not about what is in a file.
_PROCESS = re.compile(
    r"(?i)\b(?:commit\w*|push\w*|merg(?:e|es|ed|ing)|branch\w*|pull requests?|prs?|releas\w+"
    r"|deploy\w*|ask me|browser|screenshots?|plan|tasks?|re-?run)\b"
)
_LOOKS_LIKE_FILE = re.compile(r"\.[^/]+$|(?:^|/)[A-Z][a-z]+file$")
_FILE_NAME = re.compile(r"(?:[\w.@+-]+/)*(?:[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}|\b[A-Z][a-z]+file\b)")


class FileLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line about a file; `weight` orders lines, a person's words first."""

    path: str
    text: str
    id: str
    at: str
    origin: str = ""
    weight: int = _BROKEN
    times: int = 1


def file_lines(
    exchanges: Sequence[Exchange],
    notes: Iterable[Note],
    *,
    replaced: Collection[tuple[str, str]] = (),
) -> dict[str, list[FileLine]]:
    """Return at most two lines for each file; the files spoken of most lately come first.

    `exchanges` are in time order. `replaced` are the records that no longer hold, each with the
    name of a rule in it, or "".
    """
    found: list[FileLine] = []
    for exchange in exchanges:
        changed = _changed(exchange)
        for decision in exchange.decisions:
            if decision.source == "human":
                found += _words_of_person(exchange, decision, changed, replaced)
    known = {path for exchange in exchanges for path in _paths(exchange)}
    for note in notes:
        if note.by == "human" and not _no_longer_holds(note.id, note.text, replaced):
            found += _of_note(note, known)
    found += _broken_again(exchanges)
    return _chosen(found)


def _paths(exchange: Exchange) -> list[str]:
    return [file.path for file in exchange.files_touched]


def _changed(exchange: Exchange) -> list[str]:
    """Return the files that an exchange changed if they are few; tests do not count.

    A page of prose counts only if nothing else was changed: much of what is said ends up in one.
    """
    changed = [file.path for file in exchange.files_touched if file.action != "read"]
    own = [path for path in changed if not _TEST.search(path)] or changed
    if len(own) > _MOST_CHANGED:
        return []
    if len(own) > 1:
        own = [path for path in own if not path.endswith(_PROSE)]
    return list(filter(_LOOKS_LIKE_FILE.search, own))


def _named(text: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that a text names, whole or by their last part."""
    names = set(_FILE_NAME.findall(text))
    return [path for path in paths if path in names or path.rpartition("/")[2] in names]


# -- What people said.


def _words_of_person(
    exchange: Exchange,
    decision: Decision,
    changed: Sequence[str],
    replaced: Collection[tuple[str, str]],
) -> Iterable[FileLine]:
    day = plain_date(exchange.completed)
    choice = choice_in(decision.description)
    if (exchange.id, "") in replaced:
        return
    if choice is not None:
        question, answer = choice
        text = f'Asked "{_plain(question)}", the person chose on {day}: {_plain(answer)}'
        yield from _lines(exchange, text, f"{question} {answer}", changed)
        return
    for rule in rules_in(decision.description):
        if rule.rstrip().endswith("\u2026"):
            continue  # cut off, so what it forbids may be missing
        if _no_longer_holds(exchange.id, rule, replaced):
            continue
        text = f'The person said on {day}: "{_plain(rule)}"'
        yield from _lines(exchange, text, rule, changed)


def _no_longer_holds(record: str, text: str, replaced: Collection[tuple[str, str]]) -> bool:
    return (record, "") in replaced or (record, rule_name(text)) in replaced


def _lines(exchange: Exchange, text: str, words: str, changed: Sequence[str]) -> Iterable[FileLine]:
    paths = _named(words, _paths(exchange))
    if not paths and not _PROCESS.search(words):
        paths = list(changed)
    for path in paths:
        yield FileLine(
            path=path,
            text=text,
            id=exchange.id,
            at=exchange.completed or "",
            origin=exchange.conversation,
            weight=_SAID,
        )


def _of_note(note: Note, known: Iterable[str]) -> Iterable[FileLine]:
    text = f'Noted on {plain_date(note.at)}: "{_plain(note.text)}"'
    for path in _named(note.text, known) or _patterns(note.text):
        yield FileLine(path=path, text=text, id=note.id, at=note.at or "", weight=_NOTED)


def _patterns(text: str) -> Iterable[str]:
    """Yield patterns for the files that a text names, if no session has opened them yet."""
    for name in dict.fromkeys(_FILE_NAME.findall(text)):
        yield name
        if "/" not in name:
            yield f"*/{name}"


# -- What broke.


class _BrokenFile(msgspec.Struct):
    error: ErrorSeen
    exchange: Exchange
    sessions: set[str]


def _broken_again(exchanges: Sequence[Exchange]) -> Iterable[FileLine]:
    """Return errors that the same file had in several sessions, with their last solution."""
    met: dict[str, list[tuple[str, _BrokenFile]]] = {}
    for exchange in exchanges:
        for error in exchange.errors:
            if error.file_path:
                _add_error(met.setdefault(error.file_path, []), exchange, error)
    for path, errors in met.items():
        for _, broken in errors:
            if len(broken.sessions) >= _LEAST_SESSIONS and broken.error.resolution:
                text = (
                    f"Broke in {len(broken.sessions)} sessions: {_plain(broken.error.message)}. "
                    f"Fixed on {plain_date(broken.exchange.completed)}: "
                    f"{_plain(broken.error.resolution)}"
                )
                yield FileLine(
                    path=path,
                    text=text,
                    id=broken.exchange.id,
                    at=broken.exchange.completed or "",
                    origin=broken.exchange.conversation,
                    weight=_BROKEN,
                    times=len(broken.sessions),
                )


def _add_error(errors: list[tuple[str, _BrokenFile]], exchange: Exchange, error: ErrorSeen) -> None:
    name = signature(error.message)
    for other, broken in errors:
        if same_error(name, other):
            broken.sessions.add(exchange.conversation)
            if error.resolution:
                broken.error = error
                broken.exchange = exchange
            return
    errors.append((name, _BrokenFile(error, exchange, {exchange.conversation})))


def _plain(text: str) -> str:
    line = sanitize_line(text.removesuffix(TRUNCATED))
    return shorten(line, _TEXT_CHARS).strip().rstrip(".")


def _chosen(found: Iterable[FileLine]) -> dict[str, list[FileLine]]:
    by_path: dict[str, list[FileLine]] = {}
    for line in sorted(found, key=lambda line: (line.weight, line.at), reverse=True):
        lines = by_path.setdefault(line.path, [])
        if len(lines) < _MOST_LINES and line.text not in {x.text for x in lines}:
            lines.append(line)
    newest = {path: max(line.at for line in lines) for path, lines in by_path.items()}
    return {path: by_path[path] for path in sorted(by_path, key=newest.__getitem__, reverse=True)}


def shown_line(line: FileLine) -> str:
    """Return a line as the model reads it, with the beginning of its record's id."""
    return f"{line.text} [{plain_id(line.id, _ID_CHARS)}]"
