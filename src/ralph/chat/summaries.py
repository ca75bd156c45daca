"""Summaries of conversations and exchanges: which are pending, and the worker that writes them.

The id of a summary is derived from what it covers, so it is written only once, even if one process
is killed and another continues. Without a model, a summary is an extract of the text's sentences.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ralph.chat.model import ChatModel, ChatTurn, ModelAnswer, choose_model
from ralph.chat.workers import EMBEDDING, Worker, Workers
from ralph.config import Settings
from ralph.errors import BadRecord, ModelOff
from ralph.memory.conversation_stream import ConversationStates
from ralph.memory.conversations import Conversations
from ralph.prompt.build import render
from ralph.records.conversation import Exchange, Summary, SummaryTarget, content_of, summary_id
from ralph.records.note import make_note
from ralph.text.redact import redact
from ralph.text.sanitize import mark, sanitize
from ralph.text.sentences import sentences
from ralph.text.summary import conversation_gist, exchange_gist
from ralph.text.tokens import estimate_tokens, shorten

# A conversation gets a new summary when it has grown by this many exchanges, or by this share.
_GROWN = 3
_GROWN_SHARE = 0.25
# Extracts are cheap, so we save this many with one flush.
_EXTRACTS_AT_ONCE = 500
# How long to wait for a model whose server is down.
_MAX_REST_S = 32.0

# How long a summary may be, in sentences and in characters.
_SENTENCES: dict[SummaryTarget, int] = {"conversation": 3, "exchange": 2}
_CHARS: dict[SummaryTarget, int] = {"conversation": 900, "exchange": 600}
# An answer that exceeds the limit by this factor is not a summary.
_TOO_LONG = 4

# How much of the text to show the model.
_PROMPT_CHARS = 16_000
_EXCHANGE_CHARS = 1_500
_TITLE_CHARS = 200
_FIRST = 8
_LAST = 24

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


# Findings of a session: how much of it to show the model, and limits for its answer.
_OUTLINE_TOKENS = 6_000
_SIDE_CHARS = 600
_MOST_FINDINGS = 3
_FINDING_CHARS = 300
_MIN_QUOTE_CHARS = 15


# -- the text of a summary


def summary_prompt(of: SummaryTarget, title: str, exchanges: Sequence[Exchange]) -> str:
    """Return the prompt to summarize an exchange, or the start and end of a conversation."""
    if of == "exchange":
        half = _PROMPT_CHARS // 2
        user = _quote(exchanges[0].user, half)
        assistant = _quote(exchanges[0].assistant, half)
        return render("summary_exchange", exchange=mark(f"User: {user}\n\nAssistant: {assistant}"))
    chosen = list(enumerate(exchanges, start=1))
    if (left_out := len(chosen) - _FIRST - _LAST) > 0:
        chosen = chosen[:_FIRST] + chosen[-_LAST:]
    each = min(_EXCHANGE_CHARS, _PROMPT_CHARS // max(1, len(chosen)))
    parts = [f"Title: {_quote(title, _TITLE_CHARS)}\nExchanges: {len(exchanges)}"]
    for number, exchange in chosen:
        if left_out > 0 and number == len(exchanges) - _LAST + 1:
            parts.append(f"[{left_out} exchanges left out]")
        user = _quote(exchange.user, each // 3)
        assistant = _quote(exchange.assistant, each - each // 3)
        parts.append(f"{number}. User: {user}\n   Assistant: {assistant}")
    return render("summary_conversation", conversation=mark("\n\n".join(parts)))


def _quote(text: str, max_chars: int) -> str:
    """Return the start and end of the text, without anything that could instruct the model."""
    if len(text) > max_chars:
        head = max_chars * 2 // 3
        text = f"{text[:head]} [...] {text[-(max_chars - head) :]}"
    return sanitize(text)


def extract_summary(of: SummaryTarget, title: str, exchanges: Sequence[Exchange]) -> str:
    """Return a summary made of the exchanges' own sentences; empty if there are none."""
    if of == "exchange":
        user = exchanges[0].user
        assistant = exchanges[0].assistant
        text = exchange_gist(user, assistant) or user or assistant
    else:
        text = conversation_gist([(x.user, x.assistant) for x in exchanges], title) or title
    return shorten(" ".join(text.split()), _CHARS[of])


def read_summary(answer: ModelAnswer, of: SummaryTarget) -> str:
    """Return the answer as one short paragraph; raise ModelOff if it is not a summary."""
    text = _paragraph(answer.text)
    chosen = [each for each in sentences(text) if not _FAREWELL.match(each)][: _SENTENCES[of]]
    summary = shorten(" ".join(chosen), _CHARS[of])
    words = summary.lower().split()
    letters = sum(char.isalpha() for char in summary)
    few = letters < 12 or letters < len(summary) / 2
    problems = {
        "the model wants a tool instead": answer.calls or answer.stop == "tools",
        "the model refuses": answer.stop == "refused",
        "it is longer than the model may answer": answer.stop == "length",
        "it is empty": not summary,
        "it is markup or JSON": _MARKUP.match(answer.text),
        f"it says {shorten(summary, 60)!r}": _REFUSAL.match(summary) or few or "\ufffd" in summary,
        "it repeats itself": len(words) > 20 and len(set(words)) < len(words) / 4,
        f"it has {len(text):,} characters": len(text) > _TOO_LONG * _CHARS[of],
    }
    if problem := next((what for what, applies in problems.items() if applies), ""):
        raise ModelOff(f"not a summary: {problem}", where=answer.model, fault="prompt")
    return sanitize(redact(summary))


def _paragraph(text: str) -> str:
    plain = _FENCE.sub("", _THOUGHT.sub("", text))
    plain = _BOLD.sub(r"\2", _BULLET.sub("", plain)).strip()
    plain = " ".join(_PREAMBLE.sub("", plain, count=1).split())
    if len(plain) > 1 and plain[0] in "\"'\u201c" and plain[-1] in "\"'\u201d":
        plain = plain[1:-1].strip()
    return plain


# -- findings of a session that rules cannot extract


def outline(title: str, exchanges: Sequence[Exchange]) -> str:
    """Return the questions, decisions, errors and answers of a session, in at most 6,000 tokens.

    The last exchanges take precedence, because they show how it ended.
    """
    parts: list[str] = []
    left = _OUTLINE_TOKENS - estimate_tokens(title)
    for one in reversed(exchanges):
        lines = [f"User: {_quote(one.user, _SIDE_CHARS)}"]
        lines += [f"Decided: {d.description} {d.rationale or ''}".rstrip() for d in one.decisions]
        lines += [f"Error: {e.message} Fix: {e.resolution or 'none'}" for e in one.errors]
        lines.append(f"Assistant: {_quote(one.assistant, 2 * _SIDE_CHARS)}")
        part = sanitize("\n".join(lines))
        left -= estimate_tokens(part) + 2
        if left < 0:
            break
        parts.insert(0, part)
    return "\n\n".join([f"Title: {_quote(title, _TITLE_CHARS)}", *parts])


def read_findings(answer: str, told: str) -> list[str]:
    """Return the findings in an answer of JSON lines, if their quote really occurs in `told`."""
    source = " ".join(told.split()).lower()
    found = list[str]()
    for line in _THOUGHT.sub("", answer).splitlines():
        with suppress(msgspec.MsgspecError):
            one = msgspec.json.decode(line.strip().rstrip(","), type=_Lesson)
            quote = " ".join(one.quote.split())
            text = sanitize(redact(" ".join(one.text.split())))
            if min(len(quote), len(text)) >= _MIN_QUOTE_CHARS and quote.lower() in source:
                found.append(f"{shorten(text, _FINDING_CHARS)} (\u201c{shorten(quote, 200)}\u201d)")
    return found[:_MOST_FINDINGS]


class _Lesson(msgspec.Struct, frozen=True):
    """A learning or a decision, and a quote from the session that proves it."""

    text: str
    quote: str


# -- the worker


class PendingSummary(msgspec.Struct, frozen=True):
    """A summary still to be written: its target, and how many exchanges it will cover."""

    of: SummaryTarget
    target: str
    covers: int
    at: str

    @property
    def key(self) -> str:
        """The id that the summary will have."""
        return summary_id(self.target, self.covers)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that the summary takes over from this."""
        return {"of": self.of, "target": self.target, "covers": self.covers}

    def material(self, history: ConversationStates) -> tuple[str, list[Exchange]]:
        """Return the title and the exchanges in order, without those that cannot be read."""
        if self.of == "exchange":
            with suppress(BadRecord):  # `verify` reports it
                return "", [content_of(history.records[self.target])]
            return "", []
        exchanges = history.read_exchanges([self.target])
        title = history.conversations[self.target].conversation.title
        return title, sorted(exchanges, key=lambda x: x.started or x.completed or "")


class Summarizer(Worker):
    """Writes the summaries of conversations or of exchanges, newest first."""

    def __init__(self, of: SummaryTarget, crew: Workers) -> None:
        super().__init__(of, crew)
        self._of = of
        self._chosen: tuple[Settings, ChatModel | None] | None = None
        self._skipped: set[str] = set()
        self._rest_until = 0.0

    @property
    def next_at(self) -> float | None:
        """When the next failed item may be retried."""
        return self._rest_until if self._is_resting else super().next_at

    def hurry(self) -> None:
        """Stop waiting after a failure."""
        self._rest_until = 0.0

    @property
    def _is_resting(self) -> bool:
        return self._rest_until > self._retries.clock()

    def pending(self, memory: Conversations) -> int:
        """Return how many summaries are pending."""
        return len(self._pending(memory))

    def _pending(self, memory: Conversations) -> list[PendingSummary]:
        """Return the summaries that are missing or outdated, newest first."""
        history = memory.stream.history
        current = self._crew.current()
        found: list[PendingSummary] = []
        for name, state in history.conversations.items():
            if name == current:
                continue
            if self._of == "conversation":
                covered = history.summaries[name].covers if name in history.summaries else 0
                grown = state.exchanges - covered
                if grown > 0 and grown >= min(_GROWN, covered * _GROWN_SHARE):
                    found.append(PendingSummary("conversation", name, state.exchanges, state.last))
                continue
            for exchange in history.exchanges.get(name, ()):
                if exchange not in history.summaries and exchange not in self._skipped:
                    record = history.records[exchange]
                    if msgspec.json.decode(record.body, type=_ExchangeStatus).status == "complete":
                        found.append(PendingSummary("exchange", exchange, 1, record.at))
                    else:
                        self._skipped.add(exchange)
        # A forgotten summary is not written again, and an empty text gets none.
        done = memory.stream.known([each.key for each in found]) | self._skipped
        found = [each for each in found if each.key not in done]
        return sorted(found, key=lambda each: each.at, reverse=True)

    def work(self, memory: Conversations, stop: threading.Event) -> None:
        """Write every summary that is pending and may be tried now."""
        while not stop.is_set():
            memory = self.memory()
            settings = memory.store.settings
            pending = self._pending(memory)
            self.set(left=len(pending))
            model = self._model(settings)
            self.set(note=_note(model))
            failed = self._retries.entries(self._of)
            if failed:  # some may no longer be pending
                wanted = {each.key for each in pending}
                current = self._crew.current()
                old = [k for k, e in failed.items() if k not in wanted and e.item != current]
                self._retries.drop(old)
            ready = [each for each in pending if not self._retries.rests(failed.get(each.key))]
            if not ready or (model is not None and self._must_rest(settings, model)):
                return
            self.set(state="running", current=f"{self._of}_id={ready[0].target}")
            if model is None:
                self._extract(memory, ready[:_EXTRACTS_AT_ONCE])
            elif not self._ask(model, memory, ready[0]):
                return

    def _extract(self, memory: Conversations, ready: Sequence[PendingSummary]) -> None:
        history = memory.stream.history
        made: list[tuple[Summary, str]] = []
        for each in ready:
            title, exchanges = each.material(history)
            if exchanges and (text := extract_summary(each.of, title, exchanges)):
                made.append((Summary(**each.fields, text=text), each.key))
            else:
                self._skipped.add(each.key)
        self._save(memory, made)

    def _must_rest(self, settings: Settings, model: ChatModel) -> bool:
        """Whether to leave the model alone for now; the worker's note says why."""
        cap_usd = settings.summary_spend_cap_usd
        spent_usd = self._crew.spent_usd
        if spent_usd >= cap_usd and model.costs != "free":
            spent = f"spend cap reached: ${spent_usd:.2f} of ${cap_usd:.2f} in this session"
            todo = "To continue: ralph config --user summary_spend_cap_usd USD"
            self.set(note=f"{spent}. {todo}")
            return True
        return self._is_resting

    def _ask(self, model: ChatModel, memory: Conversations, item: PendingSummary) -> bool:
        """Let the model write one summary and save it; returns whether to ask for another."""
        title, exchanges = item.material(memory.stream.history)
        if not exchanges:
            self._skipped.add(item.key)
            return True
        turn = ChatTurn("user", summary_prompt(item.of, title, exchanges))
        try:
            answer = model.answer([turn], timeout_s=memory.store.settings.chat_timeout_s)
            self.add(spend_usd=answer.cost_usd or 0.0)
            text = read_summary(answer, item.of)
        except ModelOff as error:
            return self._failed(item, error)
        summary = Summary(
            **item.fields,
            text=text,
            by=model.name,
            tokens_used=answer.tokens_used,
            cost_usd=answer.cost_usd,
        )
        self._rest_until = 0.0
        # The target may have been forgotten while the model was writing.
        history = memory.stream.history
        exists = item.target in history.conversations or item.target in history.records
        first = item.target not in history.summaries
        self._save(memory, [(summary, item.key)] if exists else [])
        if exists and first and item.of == "conversation":
            self._find(model, memory, title, exchanges)
        return True

    def _find(
        self, model: ChatModel, memory: Conversations, title: str, exchanges: Sequence[Exchange]
    ) -> None:
        """Ask the model once for a session's findings; do not retry if it fails."""
        settings = memory.store.settings
        if self._must_rest(settings, model):
            return
        told = outline(title, exchanges)
        turn = ChatTurn("user", render("findings", session=mark(told)))
        with suppress(ModelOff):
            answer = model.answer([turn], timeout_s=settings.chat_timeout_s)
            self.add(spend_usd=answer.cost_usd or 0.0)
            for text in read_findings(answer.text, told):
                memory.remember(make_note(text, by="model"))

    def _save(self, memory: Conversations, made: Sequence[tuple[Summary, str]]) -> None:
        memory.say_all(made)
        self._retries.drop([key for _, key in made])
        self.add(completed=len(made))
        if made:
            self._crew.signal([EMBEDDING])

    def _failed(self, item: PendingSummary, error: ModelOff) -> bool:
        """Count a failure; returns whether another item may work now."""
        if error.fault == "setting":
            # Not the item's fault: all items wait until the user has fixed the setting.
            self._rest_until = self._retries.clock() + self.poll_s
        else:
            failed = self._retries.failed(self._of, item.key, item.target, str(error))
            self.add(failed=int(failed.given_up))
            if error.fault == "prompt":
                return True
            # The next item would fail too.
            later = self._retries.clock() + _MAX_REST_S
            self._rest_until = later if failed.given_up else failed.at
        self.set(note=str(error))
        return False

    def _model(self, settings: Settings) -> ChatModel | None:
        if self._crew.summarizer is not None:
            return self._crew.summarizer
        if self._chosen is None or self._chosen[0] is not settings:
            self._chosen = settings, choose_model(settings, "summary")
            self._rest_until = 0.0  # the problem may be fixed
        return self._chosen[1]


class _ExchangeStatus(msgspec.Struct, frozen=True):
    """The status of an exchange, decoded alone; its type does not matter."""

    status: object = "complete"


def _note(model: ChatModel | None) -> str:
    if model is None:
        return "summaries are extractive: no LLM is set (summary_model)"
    unknown = f"; {model.costs}" if model.costs.startswith("price unknown") else ""
    return f"summaries by {model.name}{unknown}"
