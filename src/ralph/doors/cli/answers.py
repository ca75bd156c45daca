"""Hits as every command shows them: the published JSON, and cards for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ralph.doors.cli.page import Page, Span, excerpt

if TYPE_CHECKING:
    from pathlib import Path

    from ralph.recall import Answer, Hit, Parts
    from ralph.records.conversation import Document, Exchange
    from ralph.records.iteration import ErrorSeen, Iteration

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
