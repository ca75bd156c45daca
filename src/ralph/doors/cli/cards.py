"""Hits, entries and patterns as every command shows them: JSON for programs, cards for people."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.context import options
from ralph.doors.cli.render import Page, Result, Span, Table, excerpt, picked, plain
from ralph.errors import BadInput
from ralph.recall import Hit, Parts
from ralph.recall.kinds import KINDS
from ralph.records import ago
from ralph.text.sanitize import plain_date
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.knowledge import Knowledge, SavedEntry
    from ralph.memory.store import Answer
    from ralph.recall.patterns import Pattern
    from ralph.records.iteration import ErrorSeen, FileTouched
    from ralph.records.knowledge import Entry

SHORT_ID = 8
_EXCERPT_CHARS = 240
_LINE_CHARS = 70
_ERRORS_SHOWN = 2
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
# `--agent-type`, `--task-type`, `--technology`: the options that narrow a query.
filters = options(
    click.option("--agent-type", metavar="T", help="For agents of this type."),
    click.option("--task-type", metavar="T", help="For tasks of this type."),
    click.option("--technology", metavar="T", help="For this technology; separate with commas."),
)


def short_id(identity: str) -> Span:
    """Return the start of an id, which is enough to find its record."""
    return identity[:SHORT_ID], "cyan"


_STANDING_STYLES = {"gone": "red", "elsewhere": "yellow", "changed": "yellow"}


def minute(timestamp: str | None) -> str:
    """Format a timestamp for people: minutes ago within the last hour, else date and time."""
    past = ago(timestamp)
    return past if past and not past.endswith(" h ago") else plain_date(timestamp, 16)


def moment(hit: Hit) -> str:
    """Say when it was: minutes or hours ago if it is recent, else the day."""
    return ago(hit.at) or hit.when


def styled(word: str) -> Span:
    """Return a word with its usual color."""
    return word, _STYLES.get(word, "")


def _show_head(page: Page, found: Hit | Pattern, title: str, facts: Sequence[Span]) -> None:
    spans: list[Span] = [short_id(found.id), "  "]
    if found.score is not None:
        style = _STYLES.get(found.relevance or "", "")
        spans += [(f"{found.score:.2f} {found.relevance or 'doubtful'}", style), "  "]
    page.line(*spans, (excerpt(title, 120) or "(no title)", "bold"))
    page.line(*facts, indent=2)


def _show_why(page: Page, found: Hit | Pattern) -> None:
    if found.why:
        page.line((f"why: {found.why}", "dim"), indent=2)


def _explained(hit: Hit, parts: Parts) -> Iterator[str]:
    """Explain how a result got its score, one line per factor."""
    ranked = "" if parts.words_rank is None else f" ({_ranked(parts.words_rank)} by words)"
    words = ", ".join(parts.matched) or "none"
    yield f"words: {len(parts.matched)} of the {parts.asked} asked for: {words}{ranked}"
    if parts.meaning is None:
        yield "meaning: not compared"
    else:
        ranked = "" if parts.meaning_rank is None else f" ({_ranked(parts.meaning_rank)})"
        yield f"meaning: {parts.meaning:.2f}, where 1 is the same text{ranked}"
    if parts.adds < 1.0:
        yield "new: says little beyond the question, so it counts less"
    if parts.in_time is not None:
        yield f"time: {'in' if parts.in_time else 'not in'} the days you asked about"
    if parts.rating:
        yield f"feedback: rated {'helpful, so it counts more' if parts.rating > 0 else 'unhelpful'}"
    if hit.like:
        yield f"folded: {plural(len(hit.like), 'result')} that {_SAY[len(hit.like) > 1]} the same"
    yield f"score: {parts.score:.2f} (from 0.40: possibly relevant, from 0.55: relevant)"
    yield f"answered: {parts.answered:.2f}, how likely the answer is among the results"


_SAY = ("says", "say")


def _ranked(rank: int) -> str:
    return "the best" if rank == 1 else f"number {rank}"


def pruned_result(found: Any, records: str, empty: str, *, dry_run: bool) -> Result:
    """Say which old records were forgotten, or would be."""
    verb = "Would forget" if dry_run else "Forgot"
    text = f"{verb} {records} from before {plain_date(found.before)}, and {empty}."
    return Result(plain(found) | {"dry_run": dry_run}, text)


# -- iterations, exchanges, documents


def hit_json(hit: Hit, *, explain: bool = False) -> dict[str, Any]:
    """Return a hit in its documented JSON form; `explain` adds what each stage contributed."""
    fields = picked(hit, "id", "kind", "score", "relevance", "when", "why", "record")
    fields |= {"like": list(hit.like)} if hit.like else {}
    fields |= {"private": hit.private} if KINDS[hit.kind].stream == "notes" else {}
    fields |= {"standing": hit.standing} if hit.standing else {}
    fields |= {"replaced": list(hit.replaced)} if hit.replaced else {}
    return fields | {"explain": hit.parts} if explain else fields


def located(answer: Answer, root: Path) -> Answer:
    """Return the answer with the current line numbers of document sections."""
    if not any(hit.kind == "document" for hit in answer):
        return answer
    import msgspec

    from ralph.memory.documents import line_of
    from ralph.memory.store import Answer

    hits = []
    for hit in answer:
        if hit.kind == "document":
            moved = msgspec.structs.replace(hit.record, line=line_of(hit.record, root))
            hit = msgspec.structs.replace(hit, record=moved)
        hits.append(hit)
    return Answer(hits, answer.notes)


def show_hit(page: Page, hit: Hit, *, explain: bool = False) -> None:
    """Show a hit in a few lines: what it is, when it was, what happened, and why it matched."""
    row = KINDS[hit.kind]
    title = row.title(hit.record)
    body = row.text(hit.record)
    _show_head(page, hit, title or body, whereabouts(hit))
    if title and body:
        name: list[Span] = [("solution ", "green")] if row.label == "lesson" else []
        page.line(*name, excerpt(body, _EXCERPT_CHARS), indent=2)
    errors: Sequence[ErrorSeen] = getattr(hit.record, "errors", ())
    for error in errors[:_ERRORS_SHOWN]:
        page.line(("error ", "red"), excerpt(error_text(error), _EXCERPT_CHARS), indent=2)
    page.more(len(errors) - _ERRORS_SHOWN)
    if hit.like:
        ids = ", ".join(identity[:SHORT_ID] for identity in hit.like[:5])
        page.line((f"and {len(hit.like)} like it: {ids}", "dim"), indent=2)
    _show_why(page, hit)
    for line in _explained(hit, hit.parts) if explain and hit.parts else ():
        page.line((line, "dim"), indent=4)


def whereabouts(hit: Hit) -> list[Span]:
    """Say what kind a hit is, when it was, how it ended, and what it belongs to."""
    row = KINDS[hit.kind]
    when = f"{hit.when}, {minute(hit.at)}" if row.counted else moment(hit)
    facts = list(row.facts_of(hit.record, hit.label, when))
    if row.label == "lesson" and (project := getattr(hit.record, "project", "")):
        facts.append(f"project {_project(project)}")
    spans: list[Span] = []
    for fact in facts:
        spans += [" | ", styled(fact)] if spans else [styled(fact)]
    return spans + current_state(hit)


def current_state(hit: Hit) -> list[Span]:
    """Say how a record's code stands and what replaced it, as far as that is known."""
    return _standing(hit) + _replaced(hit)


def _standing(hit: Hit) -> list[Span]:
    """Say how the code of a record stands, if that is known."""
    if hit.standing is None:
        return []
    style = _STANDING_STYLES.get(hit.standing.state, "")
    return [" | ", (f"code: {hit.standing.line}", style)]


def _replaced(hit: Hit) -> list[Span]:
    """Say which records replaced it, or a rule in it."""
    if not hit.replaced:
        return []
    ids = ", ".join(dict.fromkeys(one.by[:SHORT_ID] for one in hit.replaced))
    what = "no longer holds: replaced by" if hit.is_replaced else "a rule in it was replaced by"
    return [" | ", (f"{what} {ids}", "yellow")]


def one_line_of(hit: Hit) -> str:
    """Return a record on one line."""
    row = KINDS[hit.kind]
    place = row.place(hit.record)
    return excerpt(f"{place} {row.headline(hit.record)}".strip(), _LINE_CHARS)


def error_text(error: ErrorSeen) -> str:
    """Return an error with its kind and place, if they are known."""
    kind = "" if error.error_type == "unknown" else f"{error.error_type}: "
    place = error.file_path or ""
    if place and error.line is not None:
        place += f":{error.line}"
    solved = f" [solved: {error.resolution}]" if error.resolution else ""
    return f"{kind}{error.message}" + (f" ({place})" if place else "") + solved


def show_errors(page: Page, errors: Sequence[ErrorSeen]) -> None:
    """Show every error of a record."""
    for error in errors:
        page.line(("error ", "red"), error_text(error))


def show_files(page: Page, files: Sequence[FileTouched]) -> None:
    """Show every file of a record."""
    for file in files:
        page.line((f"{file.action} ", "magenta"), file.path)


# -- entries of knowledge


def staged_table(staged: Sequence[SavedEntry], empty: str = "") -> Table:
    """List the entries that wait for a checkpoint, one line each."""
    rows = [
        (
            *(short_id(each.id), each.record.entry_type, _project(each.record.project)),
            *(each.record.technology, each.imported or "", entry_text(each.record)),
        )
        for each in staged
    ]
    return Table(("id", "type", "project", "technology", "imported from", "text"), rows, empty)


def entry_result(memory: Knowledge, hit: Hit) -> Result:
    """Show an entry with all its fields."""
    entry: Entry = hit.record
    slot = memory.state.history().slots.get(hit.id)
    pattern = slot.pattern if slot else None

    def show(page: Page) -> None:
        fields = entry.to_json()
        page.line((fields.pop("subject") or entry.entry_type, "bold"))
        page.line((hit.id, "cyan"))
        state = f"in pattern {pattern[:SHORT_ID]}" if pattern else "staged"
        page.line(f"{moment(hit)} | {_entry_facts(entry)} | {state}")
        shown = {"entry_type", "project", "gate_type", *FILTERS}
        for name, value in fields.items():
            if name not in shown and isinstance(value, str) and value:
                page.line((name.replace("_", " "), "bold"))
                page.lines(value)

    return Result(hit_json(hit) | {"staged": slot is None, "pattern": pattern}, show)


def entry_text(entry: Entry) -> str:
    """Return an entry on one line; approvals say what was approved, or all would look the same."""
    from ralph.recall.patterns import described
    from ralph.records.knowledge import GateApproval

    text = described(entry)
    if isinstance(entry, GateApproval):
        about = f" of {entry.subject}" if entry.subject else ""
        text = f"The {entry.gate_type} gate{about} was passed with: {entry.approved_approach}"
    return excerpt(text, _LINE_CHARS)


def _entry_facts(entry: Entry) -> str:
    facts = KINDS[entry.entry_type].facts_of(entry, "", "")
    return " | ".join([*facts, f"project {_project(entry.project)}"])


def _project(identity: str) -> str:
    """Return a project's name: its folder here, or else the start of its id."""
    from ralph.config import home_folder
    from ralph.memory.project import owner_file, read_owner

    with contextlib.suppress(BadInput, OSError, IndexError, KeyError):
        return Path(read_owner(owner_file(home_folder(), identity))["paths"][-1]).name
    return identity[:SHORT_ID]


# -- patterns


def success_ratio(pattern: Pattern) -> str:
    """Say how often a pattern worked, of all reported times, like `4 of 5`."""
    successes = pattern.success_count + pattern.worked
    return f"{successes} of {successes + pattern.failed}"


def worked_text(pattern: Pattern) -> str:
    """Say how often a pattern worked, like `worked 4 of 5 times`."""
    ratio = success_ratio(pattern)
    return f"worked {ratio} time{'' if ratio.endswith(' of 1') else 's'}"


def show_pattern(page: Page, pattern: Pattern) -> None:
    """Show a pattern in a few lines."""
    _show_head(page, pattern, pattern.problem, _pattern_facts(pattern))
    page.line(("solution ", "green"), excerpt(pattern.solution, _EXCERPT_CHARS), indent=2)
    page.line(("when to try ", "dim"), excerpt(pattern.when_to_try, _EXCERPT_CHARS), indent=2)
    if pattern.conflicts:
        against = ", ".join(identity[:SHORT_ID] for identity in pattern.conflicts)
        page.line(("contradicts ", "yellow"), against, indent=2)
    _show_why(page, pattern)


def pattern_table(patterns: Sequence[Pattern], empty: str) -> Table:
    """List patterns, one line each."""
    rows = [
        (
            *(short_id(each.id), success_ratio(each), f"{each.success_rate:.2f}"),
            *(str(each.projects), each.entry_type, each.record.technology),
            entry_text(each.record),
        )
        for each in patterns
    ]
    return Table(("id", "worked", "rate", "projects", "type", "technology", "problem"), rows, empty)


def pattern_result(memory: Knowledge, pattern: Pattern) -> Result:
    """Show a whole pattern: its texts, how often it worked, and its entries."""
    from ralph.records.knowledge import knowledge_from

    entries = [(record, knowledge_from(record)) for record in memory.entries_of(pattern)]

    def show(page: Page) -> None:
        page.line((excerpt(pattern.problem, 120), "bold"))
        page.line((pattern.id, "cyan"))
        page.line(*_pattern_facts(pattern))
        counts = pattern.success_count, pattern.worked, pattern.failed
        times, worked, failed = (plural(count, "time") for count in counts)
        reported = f"{times} by {plural(pattern.projects, 'project')}"
        used = f"; used later, it worked {worked} and failed {failed}"
        page.line(("reported ", "dim"), reported + used)
        for name in ("problem", "solution", "when_to_try"):
            page.line((name.replace("_", " "), "bold"))
            page.lines(getattr(pattern, name))
        page.line(("entries", "bold"))
        for record, entry in entries:
            about = excerpt(entry.subject, _LINE_CHARS) or "(no subject)"
            facts = f"  {plain_date(record.at)}  project {_project(entry.project)}  {about}"
            page.line(short_id(record.id), facts, indent=2)

    records = [{"id": each.id, "at": each.at, **entry.to_json()} for each, entry in entries]
    return Result({**pattern.to_json(), "kind": "pattern", "records": records}, show)


def _pattern_facts(pattern: Pattern) -> list[Span]:
    style = "green" if pattern.failed == 0 else "yellow"
    rate = f" (estimated success rate {pattern.success_rate:.2f}) | {_entry_facts(pattern.record)}"
    return [(worked_text(pattern), style), rate]
