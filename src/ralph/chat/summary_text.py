"""From an exchange or a conversation to the prompt for its summary, and from the answer to it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ralph.chat.model import Said
from ralph.errors import ModelOff
from ralph.prompt.build import render
from ralph.records.conversation import Exchange, Summarised
from ralph.text.marks import mark
from ralph.text.redact import redact
from ralph.text.sanitize import sanitize
from ralph.text.summary import conversation_gist, exchange_gist, sentences, shorten

# How long a summary may be, in sentences and in characters.
_SENTENCES: dict[Summarised, int] = {"conversation": 3, "exchange": 2}
_CHARS: dict[Summarised, int] = {"conversation": 900, "exchange": 600}
# An answer so many times too long is no summary.
_TOO_LONG = 4

# How much of it the model is shown.
_PROMPT_CHARS = 16_000
_EXCHANGE_CHARS = 1_500
_TITLE_CHARS = 200
_FIRST, _LAST = 8, 24

_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^\s*```[\w-]*\s*$", re.MULTILINE)
_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\d{1,2}[.)]|#{1,6})\s+", re.MULTILINE)
_BOLD = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_PREAMBLE = re.compile(
    r"\A(?:(?:sure|certainly|of course|okay|ok|absolutely)\b[,.!]?\s*)?"
    r"(?:(?:here(?:'s|\u2019s| is| are)|below is|this is|the following is)\b[^.:\n]{0,80}:\s*"
    r"|(?:in summary|summary|tl;dr)(?: of (?:the|this) \w+)?\s*:\s*)?",
    re.IGNORECASE,
)
_FAREWELL = re.compile(
    r"(?i)(?:please )?(?:let me know|feel free|would you like|do you want me|i hope this|is there)"
)
_REFUSAL = re.compile(
    r"(?i)\A(?:i'?m sorry|i am sorry|sorry,|i can(?:no|')t |i am unable|i'm unable|as an ai\b"
    r"|there is no (?:exchange|conversation)|(?:please )?provide )"
)
_MARKUP = re.compile(r"(?i)\A\s*(?:[{\[]|<(?:!doctype|html|\?xml|\|))")
_FEWEST_LETTERS = 12


def prompt_for(of: Summarised, title: str, exchanges: Sequence[Exchange]) -> str:
    """What the model is asked."""
    return _exchange(exchanges[0]) if of == "exchange" else _conversation(title, exchanges)


def _exchange(one: Exchange) -> str:
    half = _PROMPT_CHARS // 2
    said = f"User: {_shown(one.user, half)}\n\nAssistant: {_shown(one.assistant, half)}"
    return render("summary_exchange", exchange=mark(said))


def _conversation(title: str, exchanges: Sequence[Exchange]) -> str:
    """Its beginning and its end, as much as fits."""
    chosen = list(enumerate(exchanges, start=1))
    left_out = len(chosen) - _FIRST - _LAST
    if left_out > 0:
        chosen = chosen[:_FIRST] + chosen[-_LAST:]
    each = min(_EXCHANGE_CHARS, _PROMPT_CHARS // max(1, len(chosen)))
    told: list[str] = []
    for number, one in chosen:
        if left_out > 0 and number == len(exchanges) - _LAST + 1:
            told.append(f"[{left_out} exchanges left out]")
        user, answer = _shown(one.user, each // 3), _shown(one.assistant, each - each // 3)
        told.append(f"{number}. User: {user}\n   Assistant: {answer}")
    head = f"Title: {_shown(title, _TITLE_CHARS)}\nExchanges: {len(exchanges)}"
    return render("summary_conversation", conversation=mark("\n\n".join([head, *told])))


def extract(of: Summarised, title: str, exchanges: Sequence[Exchange]) -> str:
    """A summary out of their own sentences; empty when they have none."""
    if of == "exchange":
        one = exchanges[0]
        text = exchange_gist(one.user, one.assistant) or one.user or one.assistant
    else:
        text = conversation_gist([(one.user, one.assistant) for one in exchanges], title) or title
    return shorten(" ".join(text.split()), _CHARS[of])


def summary_of(said: Said, of: Summarised) -> str:
    """The answer as one short paragraph; ModelOff when it is no summary."""
    if said.calls or said.stop == "tools":
        raise _no("it wants a tool instead", said)
    if said.stop == "refused":
        raise _no("it refuses", said)
    if said.stop == "length":
        raise _no("it is longer than the model may answer", said)
    text = _paragraph(said.text)
    if len(text) > _TOO_LONG * _CHARS[of]:
        raise _no(f"it has {len(text):,} characters", said)
    kept = [one for one in sentences(text) if not _FAREWELL.match(one)][: _SENTENCES[of]]
    summary = shorten(" ".join(kept), _CHARS[of])
    if fault := _garbage(said.text, summary):
        raise _no(fault, said)
    return sanitize(redact(summary))


def _paragraph(text: str) -> str:
    plain = _FENCE.sub("", _THOUGHT.sub("", text))
    plain = _BOLD.sub(r"\2", _BULLET.sub("", plain)).strip()
    plain = " ".join(_PREAMBLE.sub("", plain, count=1).split())
    if len(plain) > 1 and plain[0] in "\"'\u201c" and plain[-1] in "\"'\u201d":
        plain = plain[1:-1].strip()
    return plain


def _garbage(raw: str, summary: str) -> str:
    """Why this is no summary; empty when it may be one."""
    if not summary:
        return "it is empty"
    if _MARKUP.match(raw):
        return "it is markup or JSON"
    if _REFUSAL.match(summary):
        return f"it says {shorten(summary, 60)!r}"
    letters = sum(char.isalpha() for char in summary)
    if letters < _FEWEST_LETTERS or letters < len(summary) / 2 or "\ufffd" in summary:
        return f"it says {shorten(summary, 60)!r}"
    words = summary.lower().split()
    if len(words) > 20 and len(set(words)) < len(words) / 4:
        return "it says the same again and again"
    return ""


def _no(why: str, said: Said) -> ModelOff:
    return ModelOff(f"its answer is no summary: {why}", where=said.model, fault="prompt")


def _shown(text: str, max_chars: int) -> str:
    """The text as data: its beginning and its end, nothing that speaks to the model."""
    if len(text) > max_chars:
        head = max_chars * 2 // 3
        text = f"{text[:head]} [...] {text[-(max_chars - head) :]}"
    return sanitize(text)
