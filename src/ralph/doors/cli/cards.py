"""Hits, entries and patterns as every command shows them: JSON for programs, cards for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import options
from ralph.doors.cli.render import Page, Span, Table, excerpt
from ralph.text.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from ralph.memory.knowledge import Knowledge, SavedEntry
    from ralph.recall import Answer, Hit, Parts
    from ralph.recall.patterns import Pattern
    from ralph.records import Record
    from ralph.records.conversation import Document, Exchange
    from ralph.records.iteration import ErrorSeen, Iteration
    from ralph.records.knowledge import Entry

SHORT_ID = 8
_EXCERPT_CHARS = 240
_LINE_CHARS = 70
_ERRORS_SHOWN = 2
_TITLES = {"exchange": "user", "document": "heading"}
_BODIES = {"exchange": "assistant", "document": "text"}
_STYLES = {
    "relevant": "bold green",
    "possibly": "yellow",
    "success": "green",
    "partial": "yellow",
    "failure": "red",
    "timeout": "red",
    "rate_limited": "magenta",
    "interrupted": "yellow",
    "failed": "red",
}
FILTERS = ("agent_type", "task_type", "technology")
# `--agent-type`, `--task-type`, `--technology`: what narrows a question.
filters = options(
    click.option("--agent-type", metavar="T", help="For agents of this type."),
    click.option("--task-type", metavar="T", help="For tasks of this type."),
    click.option("--technology", metavar="T", help="For this technology; separate with commas."),
)


def short_id(identity: str) -> Span:
    """The beginning of an id, enough to find its record by."""
    return identity[:SHORT_ID], "cyan"


def minute(timestamp: str | None) -> str:
    """A timestamp to the minute."""
    return (timestamp or "")[:16].replace("T", " ")


def styled(word: str) -> Span:
    """A word in the color it has everywhere."""
    return word, _STYLES.get(word, "")


def show_cards(page: Page, items: Iterable[Any], show: Callable[[Page, Any], None]) -> None:
    """One card each, with a blank line between them."""
    for place, item in enumerate(items):
        if place:
            page.line()
        show(page, item)


def _headline(identity: str, score: float | None, relevance: str | None, title: str) -> list[Span]:
    spans: list[Span] = [short_id(identity), "  "]
    if score is not None:
        style = _STYLES.get(relevance or "", "")
        spans += [(f"{score:.2f} {relevance or 'doubtful'}", style), "  "]
    return [*spans, (excerpt(title, 120) or "(no title)", "bold")]


# -- iterations, exchanges, documents


def hit_json(hit: Hit, *, explain: bool = False) -> dict[str, Any]:
    """The published shape of a hit; `explain` adds what each stage gave it."""
    plain: dict[str, Any] = {
        "id": hit.id,
        "kind": hit.kind,
        "score": hit.score,
        "relevance": hit.relevance,
        "when": hit.when,
        "why": hit.why,
        "record": hit.record.to_json(),
    }
    return plain | {"explain": hit.parts} if explain else plain


def located(answer: Answer, root: Path) -> Answer:
    """The same answer with the lines where sections of documents begin now."""
    if not any(hit.kind == "document" for hit in answer):
        return answer
    import msgspec

    from ralph.memory.documents import line_of
    from ralph.recall import Answer

    def now(hit: Hit) -> Hit:
        if hit.kind != "document":
            return hit
        moved = msgspec.structs.replace(hit.record, line=line_of(hit.record, root))
        return msgspec.structs.replace(hit, record=moved)

    return Answer([now(hit) for hit in answer], answer.notes)


def show_hit(page: Page, hit: Hit, *, explain: bool = False) -> None:
    """A hit in a few lines: what it is, when, what happened, and why it is here."""
    record = hit.record  # an Iteration, an Exchange or a Document
    title = getattr(record, _TITLES.get(hit.kind, "task_title"))
    page.line(*_headline(hit.id, hit.score, hit.relevance, title))
    page.line(*whereabouts(hit), indent=2)
    if body := getattr(record, _BODIES.get(hit.kind, "summary")):
        page.line(excerpt(body, _EXCERPT_CHARS), indent=2)
    errors: Sequence[ErrorSeen] = getattr(record, "errors", ())
    for error in errors[:_ERRORS_SHOWN]:
        page.line(("error ", "red"), excerpt(error_text(error), _EXCERPT_CHARS), indent=2)
    if more := errors[_ERRORS_SHOWN:]:
        page.line((f"and {len(more)} more", "dim"), indent=2)
    _show_why(page, hit, explain=explain)


def whereabouts(hit: Hit) -> list[Span]:
    """When it was, how it ended, and what it belongs to."""
    if hit.kind == "exchange":
        exchange: Exchange = hit.record
        end = [] if exchange.status == "complete" else [" | ", styled(exchange.status)]
        return [hit.when, *end, " | ", f"conversation {exchange.conversation[:SHORT_ID]}"]
    if hit.kind == "document":
        document: Document = hit.record
        return [f"{document.path}:{document.line}", " | ", f"added {hit.when}"]
    iteration: Iteration = hit.record
    spans: list[Span] = [hit.when, ", ", minute(iteration.timestamp)]
    spans += [" | ", styled(iteration.outcome)]
    if iteration.task_id is not None:
        spans += [" | ", f"task {iteration.task_id}"]
    return [*spans, " | ", iteration.feature]


def error_text(error: ErrorSeen) -> str:
    """An error with its kind and place, as far as they are known."""
    kind = "" if error.error_type == "unknown" else f"{error.error_type}: "
    place = error.file_path or ""
    if place and error.line is not None:
        place += f":{error.line}"
    solved = f" [solved: {error.resolution}]" if error.resolution else ""
    return f"{kind}{error.message}" + (f" ({place})" if place else "") + solved


def _show_why(page: Page, hit: Hit, *, explain: bool) -> None:
    if hit.why:
        page.line((f"why: {hit.why}", "dim"), indent=2)
    if explain and hit.parts is not None:
        page.line((f"explain: {_explained(hit.parts)}", "dim"), indent=2)


def _explained(parts: Parts) -> str:
    stages = [
        f"words {parts.words:.2f}{_rank(parts.words_rank)}",
        f"{len(parts.matched)} of {parts.asked} words, coverage {parts.coverage:.2f}",
        "no meaning"
        if parts.meaning is None
        else f"meaning {parts.meaning:.2f}{_rank(parts.meaning_rank)}",
        f"mixed {parts.mixed:.2f}",
        f"score {parts.score:.2f}",
    ]
    return "; ".join(stages)


def _rank(rank: int | None) -> str:
    return "" if rank is None else f" (rank {rank})"


# -- entries of knowledge


def entry_line(identity: str, entry: Entry) -> list[Span]:
    """An entry on one line."""
    return [short_id(identity), f"  {entry.entry_type}  ", _entry_text(entry)]


def staged_table(staged: Sequence[SavedEntry], empty: str = "") -> Table:
    """The entries that wait for a checkpoint, a line each."""
    return Table(
        ("id", "type", "project", "technology", "imported from", "text"),
        [
            (
                short_id(captured.id),
                captured.record.entry_type,
                captured.record.project[:SHORT_ID],
                captured.record.technology,
                captured.imported or "",
                _entry_text(captured.record),
            )
            for captured in staged
        ],
        empty,
    )


def entry_hit(record: Record) -> Hit:
    """An entry as a hit without a score."""
    from ralph.memory.conversation_stream import when
    from ralph.recall import Hit
    from ralph.records.knowledge import knowledge_from

    return Hit(
        id=record.id,
        kind=record.kind,
        score=None,
        relevance=None,
        when=when(record.at),
        why=None,
        record=knowledge_from(record),
    )


def show_entry(page: Page, hit: Hit, *, explain: bool = False) -> None:
    """An entry in a few lines."""
    from ralph.recall.patterns import case_of, described

    entry: Entry = hit.record
    page.line(*_headline(hit.id, hit.score, hit.relevance, described(entry)))
    page.line(hit.when, " | ", " | ".join(_entry_facts(entry)), indent=2)
    solution = excerpt(case_of(entry).solution, _EXCERPT_CHARS)
    page.line(("solution ", "green"), solution, indent=2)
    _show_why(page, hit, explain=explain)


def show_entry_whole(page: Page, hit: Hit, state: str) -> None:
    """An entry with every field that it has."""
    entry: Entry = hit.record
    fields = entry.to_json()
    page.line((fields.pop("subject") or entry.entry_type, "bold"))
    page.line((hit.id, "cyan"))
    page.line(hit.when, " | ", " | ".join(_entry_facts(entry)), " | ", state)
    shown = {"entry_type", "project", "gate_type", *FILTERS}
    for name, value in fields.items():
        if name not in shown and isinstance(value, str) and value:
            page.line((name.replace("_", " "), "bold"))
            page.lines(value)


def entry_state(memory: Knowledge, identity: str) -> tuple[bool, str | None]:
    """Whether an entry waits for a checkpoint, and if not, the pattern it is in."""
    slot = memory.state.history().slots.get(identity)
    return slot is None, slot.pattern if slot else None


def _entry_text(entry: Entry) -> str:
    """An entry in a line; an approval says what was approved, else all would read the same."""
    from ralph.recall.patterns import described
    from ralph.records.knowledge import GateApproval

    text = described(entry)
    if isinstance(entry, GateApproval):
        about = f" of {entry.subject}" if entry.subject else ""
        text = f"The {entry.gate_type} gate{about} was passed with: {entry.approved_approach}"
    return excerpt(text, _LINE_CHARS)


def _entry_facts(entry: Entry) -> list[str]:
    gate = getattr(entry, "gate_type", "")
    kind = f"{entry.entry_type} ({gate})" if gate else entry.entry_type
    facts = (entry.agent_type, entry.task_type, entry.technology)
    return [kind, *(text for text in facts if text), f"project {entry.project[:SHORT_ID]}"]


# -- patterns


def success_ratio(pattern: Pattern) -> str:
    """How often a pattern worked, of all times that were reported: `4 of 5`."""
    successes = pattern.success_count + pattern.worked
    return f"{successes} of {successes + pattern.failed}"


def show_pattern(page: Page, pattern: Pattern) -> None:
    """A pattern in a few lines."""
    page.line(*_headline(pattern.id, pattern.score, pattern.relevance, pattern.problem))
    page.line(*_pattern_facts(pattern), indent=2)
    page.line(("solution ", "green"), excerpt(pattern.solution, _EXCERPT_CHARS), indent=2)
    page.line(("when to try ", "dim"), excerpt(pattern.when_to_try, _EXCERPT_CHARS), indent=2)
    if pattern.conflicts:
        against = ", ".join(identity[:SHORT_ID] for identity in pattern.conflicts)
        page.line(("contradicts ", "yellow"), against, indent=2)
    if pattern.why:
        page.line((f"why: {pattern.why}", "dim"), indent=2)


def pattern_table(patterns: Sequence[Pattern], empty: str) -> Table:
    """Many patterns, a line each."""
    return Table(
        ("id", "worked", "rate", "projects", "type", "technology", "problem"),
        [
            (
                short_id(pattern.id),
                success_ratio(pattern),
                f"{pattern.success_rate:.2f}",
                str(pattern.projects),
                pattern.entry_type,
                pattern.record.technology,
                _entry_text(pattern.record),
            )
            for pattern in patterns
        ],
        empty,
    )


def pattern_json(pattern: Pattern, records: Sequence[Record]) -> dict[str, Any]:
    """A pattern whole, with its entries."""
    from ralph.records.knowledge import knowledge_from

    entries = [{"id": r.id, "at": r.at, **knowledge_from(r).to_json()} for r in records]
    return {**pattern.to_json(), "kind": "pattern", "records": entries}


def show_pattern_whole(page: Page, pattern: Pattern, records: Sequence[Record]) -> None:
    """A pattern whole: what it says, how often it worked, and its entries."""
    from ralph.records.knowledge import knowledge_from

    page.line((excerpt(pattern.problem, 120), "bold"))
    page.line((pattern.id, "cyan"))
    page.line(*_pattern_facts(pattern))
    page.line(
        ("reported ", "dim"),
        f"{plural(pattern.success_count, 'time')} by {plural(pattern.projects, 'project')}; used"
        f" later, it worked {plural(pattern.worked, 'time')} and failed"
        f" {plural(pattern.failed, 'time')}",
    )
    for name in ("problem", "solution", "when_to_try"):
        page.line((name.replace("_", " "), "bold"))
        page.lines(getattr(pattern, name))
    page.line(("entries", "bold"))
    for record in records:
        entry: Entry = knowledge_from(record)
        about = excerpt(entry.subject, _LINE_CHARS) or "(no subject)"
        project = entry.project[:SHORT_ID]
        page.line(short_id(record.id), f"  {record.at[:10]}  project {project}  {about}", indent=2)


def _pattern_facts(pattern: Pattern) -> list[Span]:
    style = "green" if pattern.failed == 0 else "yellow"
    worked = (f"worked {success_ratio(pattern)} times", style)
    facts = " | ".join(_entry_facts(pattern.record))
    return [worked, f", rate {pattern.success_rate:.2f}", " | ", facts]
