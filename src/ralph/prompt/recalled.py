"""Recalled records as text for a model: hits on a prompt, solved errors, related conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ralph.memory.moments_table import ASK, HOLD, REPEAT
from ralph.prompt.build import TextBounds, TextRoom, day, framed, one_line, outcome, render
from ralph.recall import Hit, Replacement
from ralph.recall.kinds import KINDS
from ralph.records.conversation import Conversation, Document, Exchange
from ralph.records.iteration import ACCEPTED_PLAN, Decision, ErrorSeen, Iteration
from ralph.text.matching import sentences_about
from ralph.text.outcome import outcome_of, stop
from ralph.text.sanitize import mark, plain_date, plain_id, sanitize_line, strip_marked
from ralph.text.tokens import estimate_tokens, first_tokens, tokens, word_set

if TYPE_CHECKING:
    from ralph.memory.conversations import ConversationDetails
    from ralph.memory.lessons import Solved

# The longest answer to a model: for several records, and for one whole record.
ANSWER_TOKENS = 2000
RECORD_TOKENS = 8000

_TITLE_CHARS = 100
_SAID_CHARS = 200
_RESULT_CHARS = 240
_ABOUT_CHARS = 320
_FIX_CHARS = 200
# A longer message of a person is a plan or a report.
_PLAN_CHARS = 400
_BEFORE_CHARS = 400
_ABOUT_FILE_CHARS = 400
_DECISIONS = 2
_ERRORS = 1
_FILES = 4
# The head of a record and the facts that come first.
_FIRST_LINES = 3
_ID_CHARS = 12


def recalled_text(
    hits: Sequence[Hit], asked: str, bounds: TextBounds, *, later: Mapping[str, str]
) -> str:
    """Return the hits for a question as facts, best first, as many as fit; "" if none does.

    `later` says, by the id of a record, how its work went on.
    """
    words = set(tokens(asked))
    records = [_told(hit, later.get(hit.id, ""), words) for hit in hits]
    room = TextRoom("recalled", bounds)
    kept: list[list[str]] = [[] for _ in records]
    # Each record gets its first facts before one gets more.
    for first, end in ((0, _FIRST_LINES), (_FIRST_LINES, None)):
        for lines, chosen in zip(records, kept, strict=True):
            for line in lines[first:end]:
                if (chosen or line is lines[0]) and room.take(line):
                    chosen.append(line)
    # The head of a record says nothing without its facts.
    blocks = [
        "\n".join(chosen)
        for lines, chosen in zip(records, kept, strict=True)
        if len(chosen) > 1 or (chosen and len(lines) == 1)
    ]
    return room.render("\n\n".join(blocks)) if blocks else ""


def later_text(turn: Exchange) -> str:
    """Return what a later turn of a conversation asked for, and what came of it."""
    asked = stop(one_line(turn.user, _FIX_CHARS))
    return f"Later in that session: {asked} {_result(turn, _FIX_CHARS)}".rstrip()


def before_text(found: Solved, bounds: TextBounds) -> str:
    """Return how a repeated error was solved before."""
    often = "once" if found.times == 1 else f"{found.times} times"
    lines = [
        f"Seen {often} before, last on {day(found.last)}: {one_line(found.message)}",
        f"How it was solved ({one_line(found.where)}, id {plain_id(found.id, _ID_CHARS)}): "
        f"{one_line(found.solution, _BEFORE_CHARS)}",
    ]
    return framed("before", [("", lines)], bounds)


def elsewhere_text(message: str, fix: str, at: str, bounds: TextBounds) -> str:
    """Return how another project of this person got past the same error."""
    code = one_line(fix).replace("`", "'")
    lines = [
        f"The same error: {one_line(message)}",
        f"What got past it on {day(at)}: `{code}`",
    ]
    return framed("elsewhere", [("", lines)], bounds)


def file_text(lines: Sequence[str], bounds: TextBounds) -> str:
    """Return what is known about a file that is opened, as many lines as fit."""
    return framed(
        "file", [("", [f"- {one_line(line, _ABOUT_FILE_CHARS)}" for line in lines])], bounds
    )


# The template of the reason for each kind of row in the table of moments.
_REASONS = {REPEAT: "hold", HOLD: "hold_rule", ASK: "ask_rule"}


def hold_text(kind: str, line: str, bounds: TextBounds) -> str:
    """Return on one line why a tool call is held; a person sees it, too."""
    text = framed(_REASONS[kind], [("", [one_line(line, _ABOUT_FILE_CHARS)])], bounds)
    return " ".join(text.split())


def _told(hit: Hit, later: str, asked: Set[str]) -> list[str]:
    """Return what a record says: its result, decisions, fixes, and the changed files."""
    record = hit.record
    mark_of_id = f"[{plain_id(hit.id, _ID_CHARS)}]"
    result = ""
    if isinstance(record, Iteration):
        title = one_line(record.task_title, _TITLE_CHARS)
        place = f"- Feature {one_line(record.feature)}, {one_line(hit.when)}"
        lines = [f"{place} ({day(record.timestamp)}) {mark_of_id}: {outcome(record)}{title}"]
    elif isinstance(record, Exchange):
        verb = "Asked" if record.user.strip() else "Said"
        title = _request(record)
        lines = [f"- {verb} on {day(hit.at)} {mark_of_id}: {title}"]
        if record.status != "complete":
            lines[0] += f" (ended {record.status})"
        result = _result(record, _RESULT_CHARS) if record.user.strip() else ""
    else:
        return [_written(hit, mark_of_id)]
    if hit.standing is not None:
        lines[0] += f" (its code: {one_line(hit.standing.line)})"
    is_stopped = isinstance(record, Exchange) and record.status != "complete"
    # A plan that was accepted and then stopped or taken back is no decision any more.
    is_current = not later and not is_stopped
    decisions = [one for one in record.decisions if is_current or not one.accepts_plan]
    decisions, former = _current(decisions, hit.replaced)
    request = " ".join(getattr(record, "user", "").split())
    decisions = [one for one in decisions if _adds(one, title, request)]
    facts = _decision_lines(decisions, asked)
    subject = set(tokens(f"{title} {result}"))
    facts += _fix_lines(record.errors, asked, subject)
    if isinstance(record, Iteration) and not facts and record.summary != record.task_title:
        result = record.summary
    if result:
        # What was said before a person stopped the work is not its result.
        label = "Last said" if is_stopped else "Result"
        facts.insert(0, f"  {label}: {one_line(result, _RESULT_CHARS)}")
    if isinstance(record, Exchange) and is_current and (said := _about(record, asked, result)):
        facts.insert(1 if result else 0, f"  Also said: {one_line(said, _ABOUT_CHARS)}")
    facts += [f'  No longer holds: "{one_line(rule, _FIX_CHARS)}"' for rule in former]
    if later:
        facts.append(f"  {one_line(later, 2 * _FIX_CHARS)}")
    changed = [file.path for file in record.files_touched if file.action != "read"]
    changed.sort(key=lambda path: -len(asked & set(tokens(path))))
    if changed:
        more = f" and {len(changed) - _FILES} more" if len(changed) > _FILES else ""
        facts.append(f"  Files: {', '.join(map(one_line, changed[:_FILES]))}{more}")
    return [*lines, *facts]


def _current(
    decisions: Sequence[Decision], replaced: Sequence[Replacement]
) -> tuple[list[Decision], list[str]]:
    """Return the decisions that hold, and the rules that a newer decision replaced."""
    former = [one.text for one in replaced if one.text]
    if any(not one.words for one in replaced):
        return [one for one in decisions if one.source != "human"], former
    kept = [one for one in decisions if not any(rule in one.description for rule in former)]
    return kept, former


def _result(exchange: Exchange, max_chars: int) -> str:
    return outcome_of(exchange.user, strip_marked(exchange.assistant), max_chars)


def _about(exchange: Exchange, asked: Set[str], result: str) -> str:
    """Return what an exchange says about the question beyond its result; "" if nothing.

    A plan is part of what the person said.
    """
    said = strip_marked(exchange.assistant)
    if len(exchange.user) > _PLAN_CHARS:
        said = f"{said}\n\n{exchange.user}"
    return sentences_about(asked, said, _ABOUT_CHARS, told=result)


def _adds(decision: Decision, title: str, request: str) -> bool:
    """Whether a decision says something that the title does not say, and is not the request."""
    if request and request.startswith(decision.description[:_TITLE_CHARS]):
        return False
    words = set(tokens(decision.description.removeprefix(ACCEPTED_PLAN)))
    return len(words - set(tokens(title))) * 3 > len(words)


def _request(exchange: Exchange) -> str:
    """Return what was asked; for a plan, its title."""
    text = exchange.user.strip() or exchange.assistant.strip()
    first = text.partition("\n")[0]
    title = first.lstrip("# ").removeprefix("Plan: ")
    return one_line(title if first.startswith("#") else text, _TITLE_CHARS)


def _decision_lines(decisions: Sequence[Decision], asked: Set[str]) -> list[str]:
    """Return the decisions that are most related to the question, a person's first."""

    def shared(one: Decision) -> int:
        return len(asked & set(tokens(f"{one.description} {one.rationale or ''}")))

    ranked = sorted(decisions, key=lambda one: (one.source == "human", shared(one)), reverse=True)
    fitting = [one for one in ranked if shared(one) or one.source == "human"] or ranked[:1]
    return [_decision_line(one) for one in fitting[:_DECISIONS]]


def _decision_line(decision: Decision) -> str:
    if decision.accepts_plan:
        # The reason of a plan is the problem that it solves.
        plan = decision.description.removeprefix(ACCEPTED_PLAN)
        return f"  The user accepted the plan: {one_line(plan, _SAID_CHARS)}"
    who = "The user decided" if decision.source == "human" else "Decided"
    why = f": {decision.rationale}" if decision.rationale else ""
    return f"  {who}: {one_line(f'{decision.description}{why}', _SAID_CHARS)}"


def _fix_lines(errors: Sequence[ErrorSeen], asked: Set[str], subject: Set[str]) -> list[str]:
    """Return the solved error that has most to do with the question or the record's subject."""
    common = set(tokens(" ".join(word_set("common in errors") | word_set("kinds of errors"))))

    def shared(error: ErrorSeen) -> tuple[int, int]:
        words = set(tokens(error.message))
        # Words that many errors have count only for a question that repeats the message.
        if 2 * len(words & asked) < len(words):
            words -= common
        return len(words & asked), len(words & subject - common)

    related = [one for one in errors if one.resolution and any(shared(one))]
    related.sort(key=shared, reverse=True)
    return [
        f"  Error: {one_line(one.message, _TITLE_CHARS)} "
        f"Fix: {one_line(one.resolution or '', _FIX_CHARS)}"
        for one in related[:_ERRORS]
    ]


def _written(hit: Hit, mark_of_id: str) -> str:
    """Return the line for a note, a learning, a feature of the plan, or a document's section."""
    row = KINDS[hit.kind]
    record = hit.record
    about = [hit.label.capitalize()]
    if feature := getattr(record, "feature", ""):
        about.append(f"on the feature {one_line(feature)}")
    if row.by_person(record):
        about.append("by the user")
    elif getattr(record, "by", "") == "model":
        about.append("by a model that read the session")
    if path := getattr(record, "path", ""):
        about.append(f"{one_line(path)}:{record.line}")
    said = one_line(row.text(record), _BEFORE_CHARS)
    return f"- {' '.join(about)} ({day(hit.at)}) {mark_of_id}: {said}"


# -- The section "Related Past Conversations": what memory has about a question, for a model.


SIDE_CHARS = 200
_RELATED_TITLE_CHARS = 200
_SUMMARY_CHARS = 800
_EXCHANGES = "#### Relevant Exchanges:"


def related_text(found: Any, *, budget_tokens: int, tools: bool = True) -> str:
    """Return the section, fenced and within the budget; "" if nothing was found or fits.

    `found` has the conversations, best first, and perhaps a line that says that the topic comes up
    again and again. `tools`: the model can ask for more with `fetch_conversation_details`.
    """

    def whole(body: str) -> str:
        line = f"{sanitize_line(found.line)}\n\n" if found.line else ""
        tool = render("related_tool") if tools else ""
        return render("related", tool=tool, memory=mark(line + body))

    # Conversations before exchanges, the most similar of each first, as many as fit.
    exchanges = [each for one in found.conversations for each in one.exchanges]
    exchanges.sort(key=lambda each: -each.similarity)
    texts = [*map(_conversation, found.conversations), *map(_related_exchange, exchanges)]
    if exchanges:
        first = len(found.conversations)
        texts[first] = f"{_EXCHANGES}\n\n{texts[first]}"
    body = ""
    for text in texts:
        longer = f"{body}\n\n{text}" if body else text
        if estimate_tokens(whole(longer)) > budget_tokens:
            break
        body = longer
    return whole(body) if body else ""


def chat_system(*, today: str, project: str, memory: bool) -> str:
    """Return the system prompt of a chat; it mentions memory only if there is one."""
    place = f" The conversation is held in the project {sanitize_line(project)}."
    return render(
        "chat_system",
        today=today,
        project=place if project else "",
        memory=render("related_use") if memory else "",
    )


def _conversation(one: Any) -> str:
    held: Conversation = one.conversation
    title = _cut(held.title, _RELATED_TITLE_CHARS).replace('"', "'") or "(no title)"
    day = plain_date(held.created) or "unknown"
    return (
        f'### Conversation: "{title}" '
        f"(ID: {plain_id(held.id)}, Date: {day}, Similarity: {one.similarity:.2f})\n"
        f"Summary: {_cut(one.summary, _SUMMARY_CHARS) or '(none yet)'}\n"
        f"Exchanges: {one.exchange_count}"
    )


def _related_exchange(one: Any) -> str:
    said: Exchange = one.exchange
    return (
        f"**Exchange ID: {plain_id(said.id)}** "
        f"(Conversation: {plain_id(said.conversation)}, Similarity: {one.similarity:.2f})\n"
        f"- User: {_cut(said.user, SIDE_CHARS)}\n"
        f"- Assistant: {_cut(said.assistant, SIDE_CHARS)}"
    )


def _cut(text: str, max_chars: int) -> str:
    """Return the text on one line, sanitized, and cut with "..." as in the section's format."""
    plain = sanitize_line(text)
    return plain if len(plain) <= max_chars else f"{plain[:max_chars]}..."


# -- Past exchanges as lines for a model: found by a search, or shown in short or whole.


_WHOLE_CHARS = 100_000
_STEP_CHARS = 2000
_NOTE_CHARS = 300
_CUT = " [...]"


def harmless(text: str, max_chars: int = _NOTE_CHARS) -> str:
    """Return recalled text on one line, sanitized so that it cannot instruct a model (F20)."""
    plain = sanitize_line(text)
    return plain if len(plain) <= max_chars else plain[: max_chars - len(_CUT)].rstrip() + _CUT


def head_lines(hit: Hit, *parts: str) -> list[str]:
    """Return the facts about a hit on one line, and why it matched."""
    why = [f"  why it matched: {harmless(hit.why, 160)}"] if hit.why else []
    code = f"code: {harmless(hit.standing.line)}" if hit.standing else ""
    former = f"no longer holds: {_replacements(hit)}" if hit.replaced else ""
    return [" | ".join(filter(None, [*parts, code, former])), *why]


def _replacements(hit: Hit) -> str:
    """Say which records replaced a hit, or a rule in it."""
    what = "" if hit.is_replaced else "a rule in it, "
    ids = dict.fromkeys(plain_id(one.by, _ID_CHARS) for one in hit.replaced)
    return f"{what}replaced by {', '.join(ids)}"


def hit_lines(
    hit: Hit, *, side_chars: int, errors: int, files: int, about: Sequence[str] = (), summary: str
) -> list[str]:
    """Return the lines for an exchange that a search found; `about` describes its conversation."""
    one: Exchange = hit.record
    when = harmless(hit.when)
    talk = f"conversation {plain_id(one.conversation)}"
    status = "" if one.status == "complete" else one.status
    lines = head_lines(hit, f"[{plain_id(hit.id)}] {when}", talk, sureness(hit), status, *about)
    if summary:
        lines.append(f"  summary: {harmless(summary, side_chars)}")
    lines.append(f"  asked: {harmless(one.user, side_chars)}")
    lines.append(f"  answered: {harmless(one.assistant, side_chars)}")
    lines += error_lines(one.errors[:errors], side_chars)
    if one.files_touched and files:
        names = ", ".join(harmless(file.path) for file in one.files_touched[:files])
        lines.append(f"  files: {names}")
    return lines


def document_lines(hit: Hit, *, chars: int) -> list[str]:
    """Return the lines for a found section of a user's document, and where it is."""
    one: Document = hit.record
    place = f"document {harmless(one.path)}:{one.line}"
    heading = f'"{harmless(one.heading, 120)}"' if one.heading else ""
    lines = head_lines(hit, f"[{plain_id(hit.id)}] {place}", sureness(hit), heading)
    return [*lines, f"  says: {harmless(one.text, chars)}"]


def about(title: str, tags: Sequence[str]) -> list[str]:
    """Return the title and tags of a conversation."""
    told = [f'"{harmless(title, 80)}"'] if title else []
    return [*told, f"tags: {_tags(tags)}"] if tags else told


def details_lines(
    found: ConversationDetails, *, whole: bool, alone: bool, side_tokens: int
) -> list[str]:
    """Return the lines for a conversation and its exchanges, or for one exchange `alone`: in short,
    or `whole` with the steps in between."""
    conversation = found.conversation
    exchanges = found.exchanges
    summaries = found.summaries
    title = harmless(conversation.title) or "(no title)"
    held = f"{len(exchanges)} exchange{'' if len(exchanges) == 1 else 's'}"
    created = plain_date(conversation.created)
    source = harmless(conversation.source)
    lines = [f"conversation {plain_id(conversation.id)} | {title} | {created} | {source} | {held}"]
    if found.tags:
        lines.append(f"  tags: {_tags(found.tags)}")
    if summary := summaries.get(conversation.id):
        lines.append(f"  summary: {harmless(summary, _STEP_CHARS)}")
    for one in exchanges:
        lines.append("")
        lines += _exchange_lines(
            one, whole=whole or alone, side_tokens=side_tokens, summary=summaries.get(one.id, "")
        )
        for step in one.messages if whole else ():
            who = f"tool {harmless(step.tool)}" if step.role == "tool" else step.role
            failed = ", failed" if step.failed else ""
            lines.append(f"  - {who}{failed}: {harmless(step.content, _STEP_CHARS)}")
    return lines


def _exchange_lines(one: Exchange, *, whole: bool, side_tokens: int, summary: str) -> list[str]:
    chars = _WHOLE_CHARS if whole else SIDE_CHARS
    status = "" if one.status == "complete" else f" | {one.status}"
    lines = [f"exchange {plain_id(one.id)} | {plain_date(one.completed, 16)}{status}"]
    if summary:
        lines.append(f"  summary: {harmless(summary, _STEP_CHARS)}")
    lines += [
        f"  {name}: {beginning(harmless(side, chars), side_tokens)}"
        for name, side in (("asked", one.user), ("answered", one.assistant))
    ]
    lines += error_lines(one.errors if whole else one.errors[:2], chars)
    if one.files_touched and whole:
        told = ", ".join(f"{harmless(file.path)} ({file.action})" for file in one.files_touched)
        lines.append(f"  files: {told}")
    return lines


def error_lines(errors: Sequence[ErrorSeen], max_chars: int) -> list[str]:
    """Return errors with their kind and place, if known, and how they were solved."""
    lines = []
    for error in errors:
        kind = "" if error.error_type == "unknown" else f" ({error.error_type})"
        line = "" if error.line is None else f":{error.line}"
        at = f" at {harmless(error.file_path)}{line}" if error.file_path else ""
        lines.append(f"  error{kind}{at}: {harmless(error.message, max_chars)}")
        if error.resolution:
            lines.append(f"    solved by: {harmless(error.resolution, max_chars)}")
    return lines


def beginning(text: str, tokens: int) -> str:
    """Return the first tokens of a text, with a mark if it was cut."""
    first = first_tokens(text, tokens)
    return first if first == text else first.rstrip() + _CUT


def sureness(hit: Hit) -> str:
    """Return how sure a match is, in words and as its score; "" if it has no score."""
    if hit.score is None:
        return ""
    words = {"relevant": "relevant", "possibly": "possibly relevant"}
    return f"{words.get(hit.relevance or '', 'doubtful')}, score {hit.score:.2f}"


def _tags(tags: Sequence[str]) -> str:
    return ", ".join(harmless(tag, 40) for tag in tags)
