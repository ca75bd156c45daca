"""Past exchanges as lines for a model: found by a search, or told in short or whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ralph.kinds.conversation import Conversation, Document, Exchange
from ralph.kinds.iteration import ErrorSeen
from ralph.recall import Hit
from ralph.text.estimate import first_tokens
from ralph.text.sanitise import plain_date, plain_id, sanitised_line

SIDE_CHARS = 200
_WHOLE_CHARS = 100_000
_STEP_CHARS = 2000
_NOTE_CHARS = 300
_CUT = " [...]"


def harmless(text: str, max_chars: int = _NOTE_CHARS) -> str:
    """Recalled text on one line, with every attempt to instruct broken (F20)."""
    plain = sanitised_line(text)
    return plain if len(plain) <= max_chars else plain[: max_chars - len(_CUT)].rstrip() + _CUT


def hit_lines(
    hit: Hit, *, side_chars: int, errors: int, files: int, about: Sequence[str] = (), summary: str
) -> list[str]:
    """An exchange that a search found; `about` tells of its conversation."""
    one: Exchange = hit.record
    parts = [f"[{plain_id(hit.id)}] {harmless(hit.when)}"]
    parts += [f"conversation {plain_id(one.conversation)}", _sureness(hit)]
    if one.status != "complete":
        parts.append(one.status)
    parts += about
    lines = [" | ".join(part for part in parts if part)]
    if hit.why:
        lines.append(f"  why it matched: {harmless(hit.why, 160)}")
    if summary:
        lines.append(f"  summary: {harmless(summary, side_chars)}")
    lines.append(f"  asked: {harmless(one.user, side_chars)}")
    lines.append(f"  answered: {harmless(one.assistant, side_chars)}")
    lines += _errors(one.errors[:errors], side_chars)
    if one.files_touched and files:
        names = ", ".join(harmless(file.path) for file in one.files_touched[:files])
        lines.append(f"  files: {names}")
    return lines


def document_lines(hit: Hit, *, chars: int) -> list[str]:
    """A section of a document of the user's own that a search found, and where it stands."""
    one: Document = hit.record
    place = f"document {harmless(one.path)}:{one.line}"
    heading = f'"{harmless(one.heading, 120)}"' if one.heading else ""
    parts = [f"[{plain_id(hit.id)}] {place}", _sureness(hit), heading]
    why = [f"  why it matched: {harmless(hit.why, 160)}"] if hit.why else []
    return [" | ".join(filter(None, parts)), *why, f"  says: {harmless(one.text, chars)}"]


def about(title: str, tags: Sequence[str]) -> list[str]:
    """What a conversation is called and which words it has."""
    told = [f'"{harmless(title, 80)}"'] if title else []
    return [*told, f"tags: {_tags(tags)}"] if tags else told


def details_lines(
    conversation: Conversation,
    exchanges: Sequence[Exchange],
    *,
    whole: bool,
    alone: bool,
    side_tokens: int,
    summaries: Mapping[str, str],
    tags: Sequence[str],
) -> list[str]:
    """A conversation and its exchanges, or the one that stands `alone`: in short, or `whole` with
    what was done in between."""
    title = harmless(conversation.title) or "(no title)"
    held = f"{len(exchanges)} exchange{'' if len(exchanges) == 1 else 's'}"
    lines = [
        f"conversation {plain_id(conversation.id)} | {title} | "
        f"{plain_date(conversation.created)} | "
        f"{harmless(conversation.source)} | {held}"
    ]
    if tags:
        lines.append(f"  tags: {_tags(tags)}")
    if summary := summaries.get(conversation.id):
        lines.append(f"  summary: {harmless(summary, _STEP_CHARS)}")
    for one in exchanges:
        lines.append("")
        lines += _exchange_lines(
            one, whole=whole or alone, side_tokens=side_tokens, summary=summaries.get(one.id, "")
        )
        if whole:
            lines += _steps(one)
    return lines


def _exchange_lines(one: Exchange, *, whole: bool, side_tokens: int, summary: str) -> list[str]:
    chars = _WHOLE_CHARS if whole else SIDE_CHARS
    status = "" if one.status == "complete" else f" | {one.status}"
    lines = [f"exchange {plain_id(one.id)} | {plain_date(one.completed, 16)}{status}"]
    if summary:
        lines.append(f"  summary: {harmless(summary, _STEP_CHARS)}")
    for name, side in (("asked", one.user), ("answered", one.assistant)):
        lines.append(f"  {name}: {beginning(harmless(side, chars), side_tokens)}")
    lines += _errors(one.errors if whole else one.errors[:2], chars)
    if one.files_touched and whole:
        told = ", ".join(f"{harmless(file.path)} ({file.action})" for file in one.files_touched)
        lines.append(f"  files: {told}")
    return lines


def _steps(one: Exchange) -> list[str]:
    lines = []
    for step in one.messages:
        who = f"tool {harmless(step.tool)}" if step.role == "tool" else step.role
        failed = ", failed" if step.failed else ""
        lines.append(f"  - {who}{failed}: {harmless(step.content, _STEP_CHARS)}")
    return lines


def _errors(errors: Sequence[ErrorSeen], max_chars: int) -> list[str]:
    lines = []
    for error in errors:
        kind = "" if error.error_type == "unknown" else f" ({error.error_type})"
        place = harmless(error.file_path or "")
        if place and error.line is not None:
            place += f":{error.line}"
        at = f" at {place}" if place else ""
        lines.append(f"  error{kind}{at}: {harmless(error.message, max_chars)}")
        if error.resolution:
            lines.append(f"    solved by: {harmless(error.resolution, max_chars)}")
    return lines


def beginning(text: str, tokens: int) -> str:
    """So many tokens of a text, and a mark where it was cut."""
    first = first_tokens(text, tokens)
    return first if first == text else first.rstrip() + _CUT


def _sureness(hit: Hit) -> str:
    if hit.score is None:
        return ""
    words = {"relevant": "relevant", "possibly": "possibly relevant"}
    return f"{words.get(hit.relevance or '', 'doubtful')}, score {hit.score:.2f}"


def _tags(tags: Sequence[str]) -> str:
    return ", ".join(harmless(tag, 40) for tag in tags)
