"""Hits, entries and patterns as every command shows them: JSON for programs, cards for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.render import Page, Span, count, excerpt

if TYPE_CHECKING:
    from pathlib import Path

    from ralph.memory.knowledge import Knowledge
    from ralph.memory.knowledge_journal import SavedEntry
    from ralph.recall import Answer, Hit, Parts
    from ralph.recall.patterns import Pattern
    from ralph.records import Record
    from ralph.records.conversation import Document, Exchange
    from ralph.records.iteration import ErrorSeen, Iteration
    from ralph.records.knowledge import Entry


# -- Hits as every command shows them: the published JSON, and cards for people.


SHORT_ID = 8
_EXCERPT_CHARS = 240
_ERRORS_SHOWN = 2
_TITLES = {"exchange": "user", "document": "heading"}
_TOLD = {"exchange": "assistant", "document": "text"}
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
    if explain:
        import msgspec

        plain["explain"] = msgspec.to_builtins(hit.parts)
    return plain


def located(answer: Answer, root: Path) -> Answer:
    """The same with the lines where sections of documents begin now."""
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


def show_hits(page: Page, hits: Sequence[Hit], *, explain: bool = False) -> None:
    """One card a hit, best or newest first."""
    for place, hit in enumerate(hits):
        if place:
            page.line()
        show_card(page, hit, explain=explain)


def show_card(page: Page, hit: Hit, *, explain: bool = False) -> None:
    """A hit in a few lines: what it is, when, what happened, and why it is here."""
    record = hit.record  # an Iteration, an Exchange or a Document
    page.line(*_headline(hit))
    page.line(*whereabouts(hit), indent=2)
    if told := getattr(record, _TOLD.get(hit.kind, "summary")):
        page.line(excerpt(told, _EXCERPT_CHARS), indent=2)
    errors: Sequence[ErrorSeen] = getattr(record, "errors", ())
    for error in errors[:_ERRORS_SHOWN]:
        page.line(("error ", "red"), excerpt(error_text(error), _EXCERPT_CHARS), indent=2)
    if more := errors[_ERRORS_SHOWN:]:
        page.line((f"and {len(more)} more", "dim"), indent=2)
    if hit.why:
        page.line((f"why: {hit.why}", "dim"), indent=2)
    if explain and hit.parts is not None:
        page.line((f"explain: {_explained(hit.parts)}", "dim"), indent=2)


def whereabouts(hit: Hit) -> list[Span]:
    """When it was, how it ended, and what it belonged to."""
    if hit.kind == "exchange":
        exchange: Exchange = hit.record
        ended = [] if exchange.status == "complete" else [" | ", styled(exchange.status)]
        return [hit.when, *ended, " | ", f"conversation {exchange.conversation[:SHORT_ID]}"]
    if hit.kind == "document":
        document: Document = hit.record
        return [f"{document.path}:{document.line}", " | ", f"added {hit.when}"]
    iteration: Iteration = hit.record
    spans: list[Span] = [hit.when, ", ", (iteration.timestamp or "")[:16].replace("T", " ")]
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


def styled(word: str) -> Span:
    """A word in the colour it has everywhere."""
    return word, _STYLES.get(word, "")


def _headline(hit: Hit) -> list[Span]:
    title = getattr(hit.record, _TITLES.get(hit.kind, "task_title"))
    spans: list[Span] = [(hit.id[:SHORT_ID], "cyan"), "  "]
    if hit.score is not None:
        style = _STYLES.get(hit.relevance or "", "")
        spans += [(f"{hit.score:.2f} {hit.relevance or 'doubtful'}", style), "  "]
    return [*spans, (excerpt(title, 120) or "(no title)", "bold")]


def _explained(parts: Parts) -> str:
    told = [
        f"words {parts.words:.2f}{_rank(parts.words_rank)}",
        f"{len(parts.matched)} of {parts.asked} words, coverage {parts.coverage:.2f}",
        "no meaning"
        if parts.meaning is None
        else f"meaning {parts.meaning:.2f}{_rank(parts.meaning_rank)}",
        f"mixed {parts.mixed:.2f}",
        f"score {parts.score:.2f}",
    ]
    return "; ".join(told)


def _rank(rank: int | None) -> str:
    return "" if rank is None else f" (rank {rank})"


# -- Knowledge as commands show it: entries, patterns, and how often a pattern held.


FILTERS = ("agent_type", "task_type", "technology")
_LINE_CHARS = 70


def filters(command: Any) -> Any:
    """`--agent-type`, `--task-type`, `--technology`: what narrows a question."""
    for option in reversed(
        (
            click.option("--agent-type", metavar="T", help="For agents of this type."),
            click.option("--task-type", metavar="T", help="For tasks of this type."),
            click.option("--technology", metavar="T", help="For this technology; commas between."),
        )
    ):
        command = option(command)
    return command


def held(one: Pattern) -> str:
    """How often a pattern held of all times that anybody told: `4 of 5`."""
    successes = one.success_count + one.worked
    return f"{successes} of {successes + one.failed}"


def show_patterns(page: Page, patterns: Sequence[Pattern]) -> None:
    """One card a pattern, best first."""
    for place, one in enumerate(patterns):
        if place:
            page.line()
        page.line(*_entry_headline(one.id, one.score, one.relevance, one.problem))
        page.line(*_facts(one), indent=2)
        page.line(("solution ", "green"), excerpt(one.solution, _EXCERPT_CHARS), indent=2)
        page.line(("when to try ", "dim"), excerpt(one.when_to_try, _EXCERPT_CHARS), indent=2)
        if one.conflicts:
            against = ", ".join(other[:SHORT_ID] for other in one.conflicts)
            page.line(("says otherwise than ", "yellow"), against, indent=2)
        if one.why:
            page.line((f"why: {one.why}", "dim"), indent=2)


def pattern_table(page: Page, patterns: Sequence[Pattern]) -> None:
    """Many patterns, a line each."""
    page.table(
        ("id", "held", "rate", "projects", "type", "technology", "problem"),
        [
            (
                (one.id[:SHORT_ID], "cyan"),
                held(one),
                f"{one.success_rate:.2f}",
                str(one.projects),
                one.entry_type,
                one.record.technology,
                _on_a_line(one.record),
            )
            for one in patterns
        ],
    )


def pattern_json(one: Pattern, told: Sequence[Record]) -> dict[str, Any]:
    """A pattern whole, with the entries that tell it."""
    from ralph.records.knowledge import knowledge_from

    records = [
        {"id": record.id, "at": record.at, **knowledge_from(record).to_json()} for record in told
    ]
    return {**one.to_json(), "kind": "pattern", "records": records}


def show_pattern(page: Page, one: Pattern, told: Sequence[Record]) -> None:
    """A pattern whole: what it says, how often it held, and who told it."""
    from ralph.records.knowledge import knowledge_from

    page.line((excerpt(one.problem, 120), "bold"))
    page.line((one.id, "cyan"))
    page.line(*_facts(one))
    page.line(
        ("told ", "dim"),
        f"{count(one.success_count, 'time')} by {count(one.projects, 'project')}; where it was "
        f"used it worked {count(one.worked, 'time')} and failed {count(one.failed, 'time')}",
    )
    for name, text in (
        ("problem", one.problem),
        ("solution", one.solution),
        ("when to try", one.when_to_try),
    ):
        _paragraph(page, name, text)
    page.line(("entries", "bold"))
    for record in told:
        entry: Entry = knowledge_from(record)
        about = excerpt(entry.subject, _LINE_CHARS) or "(no subject)"
        page.line(
            (record.id[:SHORT_ID], "cyan"),
            f"  {record.at[:10]}  project {entry.project[:SHORT_ID]}  {about}",
            indent=2,
        )


def entry_line(identity: str, one: Entry) -> list[Span]:
    """An entry on one line: what it is, and what it tells."""
    return [(identity[:SHORT_ID], "cyan"), f"  {one.entry_type}  ", _on_a_line(one)]


def staged_table(page: Page, staged: Sequence[SavedEntry]) -> None:
    """What waits for a checkpoint, a line each."""
    page.table(
        ("id", "type", "project", "technology", "imported from", "tells"),
        [
            (
                (one.id[:SHORT_ID], "cyan"),
                one.record.entry_type,
                one.record.project[:SHORT_ID],
                one.record.technology,
                one.imported or "",
                _on_a_line(one.record),
            )
            for one in staged
        ],
    )


def entry_hit(record: Record) -> Hit:
    """An entry as an answer, where nothing was asked."""
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


def show_entries(page: Page, hits: Sequence[Hit], *, explain: bool = False) -> None:
    """One card an entry, best first."""
    from ralph.recall.patterns import described, knowledge_text

    for place, hit in enumerate(hits):
        if place:
            page.line()
        entry: Entry = hit.record
        page.line(*_entry_headline(hit.id, hit.score, hit.relevance, described(entry)))
        page.line(hit.when, " | ", " | ".join(_belongs(entry)), indent=2)
        solution = excerpt(knowledge_text(entry).solution, _EXCERPT_CHARS)
        page.line(("solution ", "green"), solution, indent=2)
        if hit.why:
            page.line((f"why: {hit.why}", "dim"), indent=2)
        if explain and hit.parts is not None:
            parts = hit.parts
            numbers = {"words": parts.words, "coverage": parts.coverage, "meaning": parts.meaning}
            numbers |= {"mixed": parts.mixed, "score": parts.score}
            stages = [f"{name} {n:.2f}" for name, n in numbers.items() if n is not None]
            page.line((f"explain: {'; '.join(stages)}", "dim"), indent=2)


def show_entry_whole(page: Page, hit: Hit, state: str) -> None:
    """An entry with every field that it has."""
    entry: Entry = hit.record
    fields = entry.to_json()
    page.line((fields.pop("subject") or entry.entry_type, "bold"))
    page.line((hit.id, "cyan"))
    page.line(hit.when, " | ", " | ".join(_belongs(entry)), " | ", state)
    shown = {"entry_type", "project", "agent_type", "task_type", "technology", "gate_type"}
    for name, value in fields.items():
        if name not in shown and isinstance(value, str) and value:
            _paragraph(page, name.replace("_", " "), value)


def state_of(memory: Knowledge, identity: str) -> tuple[bool, str | None]:
    """Whether an entry waits for a checkpoint, and the pattern it is in if it does not."""
    slot = memory.ledger.history().slots.get(identity)
    return slot is None, slot.pattern if slot else None


def _on_a_line(entry: Entry) -> str:
    """What an entry tells; of an approval what was approved, else one reads like the other."""
    from ralph.recall.patterns import described
    from ralph.records.knowledge import GateApproval

    if isinstance(entry, GateApproval):
        about = f" of {entry.subject}" if entry.subject else ""
        told = f"The {entry.gate_type} gate{about} was passed with: {entry.approved_approach}"
    else:
        told = described(entry)
    return excerpt(told, _LINE_CHARS)


def _paragraph(page: Page, name: str, text: str) -> None:
    page.line((name, "bold"))
    for line in text.splitlines():
        page.line(line, indent=2)


def _entry_headline(
    identity: str, score: float | None, relevance: str | None, title: str
) -> list[Span]:
    spans: list[Span] = [(identity[:SHORT_ID], "cyan"), "  "]
    if score is not None:
        spans += [f"{score:.2f} ", styled(relevance or "doubtful"), "  "]
    return [*spans, (excerpt(title, 120), "bold")]


def _facts(one: Pattern) -> list[Span]:
    style = "green" if one.failed == 0 else "yellow"
    facts: list[Span] = [(f"held {held(one)} times", style), f", rate {one.success_rate:.2f}"]
    return [*facts, " | ", " | ".join(_belongs(one.record))]


def _belongs(entry: Entry) -> list[str]:
    gate = getattr(entry, "gate_type", "")
    kind = f"{entry.entry_type} ({gate})" if gate else entry.entry_type
    of = (entry.agent_type, entry.task_type, entry.technology)
    return [kind, *(text for text in of if text), f"project {entry.project[:SHORT_ID]}"]
