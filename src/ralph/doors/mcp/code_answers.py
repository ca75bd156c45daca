"""What search_memory says about a line or a file, and about how something is done."""

from __future__ import annotations

from collections.abc import Iterator

from ralph.doors.mcp.context import ServerContext
from ralph.memory.blame import Blame, FileChange, blame, unknown_writer
from ralph.memory.file_work import BrokenHere, StatedDecision
from ralph.memory.invocations import HowTo, Invocation
from ralph.prompt import answers
from ralph.prompt.recalled import harmless
from ralph.recall import Scope
from ralph.text.sanitize import plain_date, plain_id
from ralph.text.tokens import plural

_TEXT_CHARS = 300
_ID_CHARS = 12
_SHORT_COMMIT = 7
_MOST_CHANGES = 10


def blamed(context: ServerContext, target: str, scope: Scope) -> str:
    """Say why a line or a file is as it is."""
    found = blame(context.memory, target, scope=scope)
    lines = list(_blame_lines(found))
    place = harmless(found.path if found.line is None else f"{found.path}:{found.line}")
    return answers.fenced_lines(
        f"What memory knows about {place}.", lines, rest="get_memory(id) gives a record whole."
    )


def _blame_lines(found: Blame) -> Iterator[str]:
    if found.commit is not None:
        commit = found.commit
        by = "by a bot" if commit.bot else f"by {harmless(commit.author, 80)}"
        subject = harmless(commit.subject, 120)
        name = plain_id(commit.id, _SHORT_COMMIT)
        yield f"commit {name}, {plain_date(commit.at)}, {by}: {subject}"
    if found.note:
        yield found.note
    if found.line is not None:
        yield _session_line(found)
    for change in found.changes[:_MOST_CHANGES]:
        yield _change_line(change)
    for item in found.decisions:
        yield _stated_line("decided", item)
    for item in found.rejected:
        yield _stated_line("rejected by the user", item)
    for broken in found.broke:
        yield _broken_line(broken)


def _session_line(found: Blame) -> str:
    if found.session:
        how = "named by the commit" if found.found_by == "trailer" else "found by its lines"
        return f"conversation {plain_id(found.session, _ID_CHARS)}, {how}"
    if found.record:
        return f"iteration {plain_id(found.record, _ID_CHARS)}, named by the commit"
    if found.named:
        return harmless(unknown_writer(found.named))
    return "No session in memory is known to have written this line."


def _change_line(change: FileChange) -> str:
    left = ""
    if change.lines:
        left = f", {change.surviving} of {plural(change.lines, 'line')} still there"
    title = harmless(change.title, _TEXT_CHARS)
    return f"[{plain_id(change.id, _ID_CHARS)}] {plain_date(change.at)}{left}: {title}"


def _stated_line(name: str, item: StatedDecision) -> str:
    who = " by the user" if item.by == "human" and name == "decided" else ""
    why = f" (because {harmless(item.why, _TEXT_CHARS)})" if item.why and item.by != "human" else ""
    text = harmless(item.text, _TEXT_CHARS)
    return f"{name}{who}: {text}{why} [{plain_id(item.id, _ID_CHARS)}]"


def _broken_line(broken: BrokenHere) -> str:
    solved = f" | fixed: {harmless(broken.resolution, _TEXT_CHARS)}" if broken.resolution else ""
    message = harmless(broken.message, _TEXT_CHARS)
    return f"broke here on {plain_date(broken.at)}: {message}{solved}"


def commands(context: ServerContext, question: str, scope: Scope) -> str:
    """Say which commands did what the question asks for, and which failed."""
    found: HowTo = context.memory.how_to(question, scope)
    asked = harmless(question, 120)
    if not (found.worked or found.failed):
        return f'No session in memory ran a command for "{asked}".'
    lines = [*map(_worked_line, found.worked), *map(_failed_line, found.failed)]
    return answers.fenced_lines(
        f'Commands that sessions ran for "{asked}", those that worked first.',
        lines,
        rest="Ask with more words for others.",
    )


def _worked_line(item: Invocation) -> str:
    failed = f", failed {item.failed}x" if item.failed else ""
    facts = f"worked {item.worked}x{failed}, last {plain_date(item.last_worked)}"
    return f"{harmless(item.command)} ({facts})"


def _failed_line(item: Invocation) -> str:
    said = f": {harmless(item.failure, _TEXT_CHARS)}" if item.failure else ""
    facts = f"failed {item.failed}x, last {plain_date(item.last_failed)}"
    return f"failed: {harmless(item.command)} ({facts}){said}"
