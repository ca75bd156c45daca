"""Cut Claude Code's session transcripts into exchanges: a person asks, the assistant answers.

An exchange begins with a person's words and holds everything up to a person's next words. If the
client itself makes the assistant go on after its last word (a hook objected, a background task is
done), that is an exchange of its own: the one before may already be saved. An exchange depends on
its own lines and on the words it answers, so reading can resume where any exchange ended.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from ralph.capture import AgentRun, TerminalReason, lines
from ralph.capture.decisions import plan_text
from ralph.capture.lines import content_text, count, items, mapping, text_of, unraw
from ralph.capture.rules import pattern, rows
from ralph.clients import drift
from ralph.clients.claude_code import INTERRUPTED, PLACEHOLDER, Messages

# -- The lines of Claude Code's session transcripts: their keys, and whose words they hold.


_READ = 64_000
_MOST_QUEUED = 50
_MOST_MESSAGES = 20
_FEW_WORDS = 1

# `prompt`: a person's words. `command`, `shell`: something a person ran, which the assistant may
# answer. `local`: something that the client ran alone. `results`: tool results. `interrupt`: a
# person stopped the assistant. `aside`: text that the client added. `agent`: another agent's words.
Sort = Literal["prompt", "command", "shell", "local", "results", "interrupt", "aside", "agent"]


SESSION_KEYS = """
type subtype uuid sessionId timestamp isSidechain isMeta isCompactSummary isVisibleInTranscriptOnly
version agentId promptId origin turnOrigin forkedFrom message isApiErrorMessage error cwd gitBranch
totalCostUSD totalDuration modelUsage operation reason content customTitle aiTitle summary leafUuid
"""
_decode, lines_of = lines.line_reader(SESSION_KEYS, put_off="toolUseResult attachment")

_NOT_A_PERSON = frozenset(
    "peer task_notification task-notification scheduled system auto_continuation"
    " auto-continuation coordinator plugin".split()
)
_BEGINNINGS: dict[Sort, tuple[str, ...]] = {
    "interrupt": (INTERRUPTED,),
    "command": ("<command-name>", "<command-message>"),
    "local": ("<local-command-stdout>", "<local-command-stderr>"),
    "shell": ("<bash-input>",),
    "aside": tuple(rows("claude code's own lines")),
    "agent": tuple(rows("other agents")),
}
# Reasons of a removal from the queue that mean the words joined the current turn.
_TAKEN_IN = ("", "absorbed_mid_turn")
_PICTURES = {"image": "[image]", "document": "[document]"}


class PromptQueue:
    """Prompts typed while the agent was at work, until they join its turn or start their own.

    Older clients say only that the first prompt was removed, which means that it joined the turn.
    """

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def take(self, operation: str, reason: str, text: str) -> str:
        """Return the words that this operation adds to the turn, or ""."""
        if operation == "enqueue":
            self._waiting = [*self._waiting, text][-_MOST_QUEUED:]
            return ""
        first = self._waiting.pop(0) if self._waiting else ""
        return (text or first) if operation == "remove" and reason in _TAKEN_IN else ""


def sort_of(line: Any) -> Sort:
    """Return whose words a line of type `user` holds."""
    content = mapping(line.message).get("content")
    if any(block.get("type") == "tool_result" for block in items(content)):
        return "results"
    text = content_text(content)[:_READ].lstrip()
    if True in (line.isMeta, line.isCompactSummary, line.isVisibleInTranscriptOnly):
        return "agent" if text.startswith(_BEGINNINGS["agent"]) else "aside"
    for sort, beginnings in _BEGINNINGS.items():
        if text.startswith(beginnings):
            return sort
    origins = {text_of(line.turnOrigin), text_of(mapping(line.origin).get("kind"))}
    return "aside" if origins & _NOT_A_PERSON or not typed(content) else "prompt"


def typed(content: Any) -> str:
    """Return what a person typed, without the client's text, with a word for every picture."""
    text = _without(content_text(content)[:_READ]).strip()
    kinds = [text_of(block.get("type")) for block in items(content)]
    pictures = [_PICTURES[kind] for kind in kinds if kind in _PICTURES]
    return text if "[Image" in text else " ".join([text, *pictures]).strip()


def agents_words(line: Any) -> str:
    """Return what other agents said, each with its name; the client's notes are left out."""
    text = content_text(mapping(line.message).get("content"))[:_READ]
    found = list[str]()
    for message in islice(pattern("agents words").finditer(text), _MOST_MESSAGES):
        words = message["says"].strip()
        name = pattern("agents name").search(message["who"])
        if words and not words.startswith("{"):
            found.append(f"{name['name'] if name else 'agent'}: {words}")
    return "\n\n".join(found)


def called(line: Any) -> str:
    """Return what a person ran: the shell line, else a command's arguments, else its name.

    A few arguments say little without the name: "/effort mid".
    """
    text = content_text(mapping(line.message).get("content"))[:_READ]
    inside = {found[1]: found[2].strip() for found in pattern("inside").finditer(text)}
    if shell := inside.get("bash-input"):
        return f"! {shell}"
    name = inside.get("command-name", "")
    words = inside.get("command-args", "")
    return words if len(words.split()) > _FEW_WORDS else f"{name} {words}".strip()


def queued(line: Any, queue: PromptQueue) -> str:
    """Return what a person typed while the assistant was at work, if it joined the same turn."""
    if line.type == "queue-operation":
        return queue.take(text_of(line.operation), text_of(line.reason), _plain(line.content))
    if b"queued_command" not in bytes(line.attachment):
        return ""
    attached = mapping(unraw(line.attachment))
    origin = text_of(mapping(attached.get("origin")).get("kind"))
    mode = text_of(attached.get("commandMode")) or "prompt"
    if attached.get("type") != "queued_command" or mode != "prompt" or origin in _NOT_A_PERSON:
        return ""
    return _plain(attached.get("prompt"))


def injected(line: Any) -> str:
    """Return what a hook put into the model's context."""
    if b"hook_additional_context" not in bytes(line.attachment):
        return ""
    content = mapping(unraw(line.attachment)).get("content")
    texts = content if isinstance(content, list) else [content]
    return "\n".join(text for text in texts if isinstance(text, str))


def _plain(content: Any) -> str:
    text = content_text(content).lstrip()
    return "" if any(map(text.startswith, _BEGINNINGS.values())) else typed(content)


def _without(text: str) -> str:
    """Return the text without what the client added; an unclosed tag is the person's own."""
    if "</" not in text:
        return text
    left = list[str]()
    at = 0
    unclosed: set[str] = set()
    for tag in pattern("claude code puts in").finditer(text):
        if tag.start() < at or tag[1] in unclosed:
            continue
        close = f"</{tag[1]}>"
        end = text.find(close, tag.end())
        if end < 0:
            unclosed.add(tag[1])
            continue
        left.append(text[at : tag.start()])
        at = end + len(close)
    return "".join([*left, text[at:]])


# -- Claude Code's session transcripts: what it writes for itself while it works.
#
# They have no first line and no result line; the cost is on a line of its own; most kinds of lines
# say nothing about the work and are skipped.


_FAILED: frozenset[TerminalReason] = frozenset({"api_error", "rate_limited", "refused"})
_MODEL_TOKENS = "inputTokens outputTokens cacheReadInputTokens cacheCreationInputTokens".split()


class Transcript(Messages):
    """Reads a transcript."""

    _speaker: tuple[bool, str] | None = None
    _duration_ms: int | None = None
    _stop: Any = None
    _limited = False
    _waits_for_agent = True
    # Whether the next prompt is the first; None if that is not known.
    is_first: bool | None = True
    _tokens = 0
    _total_tokens: int | None = None
    _counted: Any = None
    _last_spent = 0
    _has_subagents = False

    def __init__(self, *, file: str = "-", root: str | None = None, injected: str = "") -> None:
        super().__init__(file=file, root=root, injected=injected)
        self._queue = PromptQueue()

    def feed(self, line: bytes) -> None:
        """Read one line; never raises, whatever is on it."""
        self.read(line, lines_of, self.take)

    def take(self, line: Any) -> None:
        """Take a line that is already decoded."""
        kind = line.type
        if not isinstance(kind, str):
            self.complain("has no type; skipped")
            return
        self.session = self.session or text_of(line.sessionId) or None
        if kind == "cost-state":
            self._cost(line)
        if kind in {"attachment", "queue-operation"}:
            self.see_injected(injected(line))
            self.hear(queued(line, self._queue))
        if kind in {"custom-title", "ai-title"}:
            title = text_of(line.customTitle) or text_of(line.aiTitle)
            self.account.own_title = lines.session_title(title)
        if kind not in {"user", "assistant"}:
            return
        cwd = text_of(line.cwd)
        self.at_home(cwd)
        message = mapping(line.message)
        parent = self._parent(line)
        sort = sort_of(line) if kind == "user" and parent is None else None
        if sort == "agent" and (words := agents_words(line)):
            self.account.ask(words)
        if sort in {"aside", "local", "agent"}:
            # The client's own words neither begin nor end anything.
            self.see_injected(content_text(message.get("content")))
            if line.isCompactSummary is True:
                self.summarize(content_text(message.get("content")))
            return
        self.see_time(line.timestamp)
        if kind == "user":
            if sort in {"prompt", "command"}:
                words = typed(message.get("content")) if sort == "prompt" else called(line)
                if line.isSidechain is True:
                    self.account.ask(words)  # by another agent, not by a person
                elif pattern("command").fullmatch(words):
                    if not pattern("setup commands").fullmatch(words):
                        self.account.ask(words)
                else:
                    self.hear(words, first=self.is_first)
                    self.is_first = self.is_first and False
            self.user(message, partial(unraw, line.toolUseResult), parent=parent, cwd=cwd or None)
            self._count_subagent(line)
            if sort in {"prompt", "results", "interrupt"}:
                self._waits_for_agent = True
            return
        failed = line.isApiErrorMessage is True
        self.assistant(message, parent=parent, failed=failed)
        self._has_subagents |= parent is not None
        if parent is None:
            self._stop = message.get("stop_reason")
            self._limited = failed and text_of(line.error) == "rate_limit"
            self._waits_for_agent = self._goes_on(message)
        self._count(message)

    @property
    def is_over(self) -> bool:
        """Whether the agent has said its last word."""
        return self._reason() != "unknown"

    def _parent(self, line: Any) -> str | None:
        """Return the subagent that speaks, or None for the main agent, which speaks first.

        A subagent's own transcript holds nobody else, so there the subagent is the main one.
        """
        below = line.isSidechain is True
        # The main agent's lines also name an agent when they have its result.
        speaker = (below, text_of(line.agentId) if below else "")
        if self._speaker is None:
            self._speaker = speaker
        return None if speaker == self._speaker else f"sidechain {speaker[1]}"

    def _goes_on(self, message: Mapping[str, Any]) -> bool:
        """Whether more messages follow in this turn."""
        content = message.get("content")
        blocks = {text_of(block.get("type")) for block in items(content)}
        if "tool_use" in blocks or text_of(self._stop) in {"tool_use", "pause_turn"}:
            return True
        return self._stop is None and not isinstance(content, str) and "text" not in blocks

    def _count(self, message: Mapping[str, Any]) -> None:
        # Each block of a message repeats the usage of the whole; the last one is right.
        identity = message.get("id")
        spent = lines.tokens(mapping(message.get("usage")))
        if identity is not None and identity == self._counted:
            self._tokens += max(0, spent - self._last_spent)
            self._last_spent = max(spent, self._last_spent)
        else:
            self._tokens += spent
            self._counted = identity
            self._last_spent = spent

    def _count_subagent(self, line: Any) -> None:
        """Add the tokens that a subagent's result states, unless its own lines were counted."""
        if not self._has_subagents and b'"totalTokens"' in bytes(line.toolUseResult):
            self._tokens += count(mapping(unraw(line.toolUseResult)).get("totalTokens")) or 0

    def _cost(self, line: Any) -> None:
        cost = lines.money(line.totalCostUSD)
        self.live.cost_usd = self.live.cost_usd if cost is None else cost
        self._duration_ms = count(line.totalDuration) or self._duration_ms
        if usage := mapping(line.modelUsage):
            spent = [mapping(model).get(key) for model in usage.values() for key in _MODEL_TOKENS]
            self._total_tokens = sum(count(number) or 0 for number in spent)

    def finish(self) -> AgentRun:
        """Return the result of the session so far."""
        reason = self._reason()
        spent = self._tokens if self._total_tokens is None else self._total_tokens
        self.failure = self.api_error if reason in _FAILED else ""
        # A subagent's transcript has the id of the session that started it.
        below = self._speaker[1] if self._speaker and self._speaker[0] else ""
        session = f"{self.session}/{below}" if self.session and below else self.session
        return self.result(
            "transcript",
            reason,
            session_id=lines.session_name(session),
            summary=self.told() or self.api_error,
            tokens_used=spent or None,
            cost_usd=self.live.cost_usd,
            duration_ms=self._duration_ms or _between(self.started, self.ended),
        )

    def _reason(self) -> TerminalReason:
        if self.interrupted:
            return "interrupted"
        if self.api_error:
            return "rate_limited" if self._limited else "api_error"
        if self._stop == "refusal":
            return "refused"
        return "unknown" if self._waits_for_agent else "ok"


def _between(started: str | None, ended: str | None) -> int | None:
    if started is None or ended is None:
        return None
    span = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return max(0, round(span.total_seconds() * 1000))


_MOST_SEEN = 50_000
_MOST_SUMMARIES = 20
_AGENT = re.compile(r"[\w-]{1,80}")
_ENDED_TASK = re.compile(r"<task-id>([\w-]{1,80})</task-id>")
_MOST_AGENTS = 200


class ClaudeTurn(Transcript, lines.OpenExchange):
    """An exchange being read."""

    is_first = None

    def __init__(
        self, line: Any, words: str, reader: Exchanges, start: lines.SessionStart, *, at: int
    ) -> None:
        super().__init__(file=start.file, root=start.root)
        reader.tell(self)
        self.typed, self.begins_at, self.folder = [plan_text(words)], at, text_of(line.cwd)
        session = text_of(line.sessionId)
        first = text_of(mapping(line.forkedFrom).get("sessionId")) or session
        self.head = lines.SessionHead(first, git_branch=text_of(line.gitBranch))
        name = lines.session_name(text_of(line.uuid) or text_of(line.promptId))
        # Without an id, use the position: a reader that resumes does not know how many came before.
        self.key = name or f"{lines.session_name(session) or ''}@{at}"
        self._file = start.file
        # The sub-agents whose edits are read at the end, because they run beside the main agent.
        self._beside: dict[str, None] = {}
        self.take(line)

    def take(self, line: Any) -> None:
        """Take a line that is already decoded."""
        super().take(line)
        if line.type == "user" and len(self._beside) < _MOST_AGENTS:
            self._take_agents(line)

    def _take_agents(self, line: Any) -> None:
        """Note the edits of a sub-agent that has ended, or that it was started."""
        if b'"agentId"' in bytes(line.toolUseResult):
            result = mapping(unraw(line.toolUseResult))
            agent = text_of(result.get("agentId"))
            if result.get("isAsync") is True or result.get("status") == "async_launched":
                self._beside[agent] = None
            else:
                self._read_edits(agent)
        elif sort_of(line) in {"agent", "aside"}:
            said = content_text(mapping(line.message).get("content"))[:_READ]
            self._beside |= dict.fromkeys(_ENDED_TASK.findall(said))

    def _read_edits(self, agent: str) -> None:
        """Note the edits of a sub-agent, whose messages are in a file of their own."""
        if not _AGENT.fullmatch(agent):
            return
        session = Path(self._file)
        for folder in (session.with_suffix("") / "subagents", session.parent):
            file = folder / f"agent-{agent}.jsonl"
            # Without the file, the edits are not known.
            with contextlib.suppress(OSError), lines.open_file(file) as messages:
                below = Transcript(file=str(file), root=next(iter(self._roots), None))
                below._edited_lines = self._edited_lines
                for message in messages:
                    below.feed(message)
                return

    def finish(self) -> AgentRun:
        """Return the result of the exchange so far."""
        for agent in self._beside:
            self._read_edits(agent)
        self._beside.clear()
        return super().finish()

    def add(self, text: str) -> None:
        """Add more words of the person; some clients report them twice."""
        if text and text not in self.typed[1:] and len(self.typed) <= _MOST_QUEUED:
            self.typed.append(text)
            self.steps.asked(text)
            self.hear(text)


class Exchanges(lines.SessionReader):
    """Reads a session transcript as exchanges."""

    _parts = staticmethod(lines_of)
    _names = staticmethod(drift.claude_names)
    _open: ClaudeTurn | None = None

    def __init__(self, start: lines.SessionStart | None = None) -> None:
        super().__init__(start)
        self._titles: dict[str, str] = {"before": self._start.title or ""}
        self._summaries: list[tuple[str, str]] = []
        self._seen: dict[int, None] = {}
        self._queue = PromptQueue()
        # What a person ran, or the client added: an exchange only once the assistant answers.
        self._maybe: ClaudeTurn | None = None

    @property
    def ends_at(self) -> int:
        """The offset up to which everything was read, except what may still become an exchange."""
        return self._maybe.begins_at if self._maybe else self._next

    @property
    def title(self) -> str | None:
        """The session's title: a person's, else the client's, else a summary."""
        titles = [self._titles.get(kind, "") for kind in ("custom-title", "ai-title", "before")]
        # A file may begin with the summaries of other sessions.
        summaries = reversed(self._summaries)
        titles += [text for leaf, text in summaries if not leaf or hash(leaf) in self._seen]
        return next((lines.session_title(text) for text in titles if text), "") or None

    def _take(self, line: Any) -> None:
        kind = line.type
        if not isinstance(kind, str):
            self._reading.complain("has no type; skipped")
        elif kind in {"user", "assistant", "attachment"}:
            if not self._again(text_of(line.uuid)):
                self._said(kind, line)
        elif kind in {"custom-title", "ai-title"}:
            title = text_of(line.customTitle) or text_of(line.aiTitle)
            self._titles[kind] = title[:1000] or self._titles.get(kind, "")
        elif kind == "summary":
            summary = text_of(line.leafUuid)[:100], text_of(line.summary)[:1000]
            self._summaries = [*self._summaries, summary][-_MOST_SUMMARIES:]
        elif kind == "queue-operation":
            words = queued(line, self._queue)
            if self._open is not None:
                self._open.add(words)
        elif kind == "system" and line.subtype == "local_command":
            self._maybe = None

    def _said(self, kind: str, line: Any) -> None:
        if kind == "attachment":
            for exchange in filter(None, (self._open, self._maybe)):
                exchange.take(line)
                exchange.add(queued(line, self._queue))
        elif line.isSidechain is True:
            if self._open is not None:
                self._open.take(line)
        elif kind == "assistant":
            self._answered(line)
        else:
            self._asked(line)

    def _answered(self, line: Any) -> None:
        if content_text(mapping(line.message).get("content")) == PLACEHOLDER:
            return
        if self._maybe is not None:
            self._turn(self._maybe)
        if self._open is not None:
            self._open.take(line)

    def _asked(self, line: Any) -> None:
        sort = sort_of(line)
        if sort == "prompt":
            self._turn(self._begin(line, typed(mapping(line.message).get("content"))))
        elif sort in {"command", "shell"}:
            self._maybe = self._begin(line, called(line)) if called(line) else None
        elif sort in {"aside", "agent"}:
            self._put_in(line, asks=sort == "agent")
        else:
            self._maybe = None
            if self._open is not None and sort != "local":
                self._open.take(line)

    def _put_in(self, line: Any, *, asks: bool) -> None:
        """Take words that no person said; another agent's also begin a session."""
        is_over = asks or self._start.offset > 0
        if self._open is not None:
            is_over = self._open.is_over
        if self._maybe is None and is_over:
            self._maybe = self._begin(line, agents_words(line))
        elif (exchange := self._maybe or self._open) is not None:
            exchange.take(line)

    def _begin(self, line: Any, user: str) -> ClaudeTurn:
        return ClaudeTurn(line, user, self, self._start, at=self._at)

    def _agents_words(self, part: Any) -> str:
        if part.type != "assistant" or part.isSidechain is True:
            return ""
        return content_text(mapping(part.message).get("content"))

    def _turn(self, begun: ClaudeTurn) -> None:
        """Begin another exchange, and finish the one before."""
        self._hear_reply(begun.typed[0])
        self._close(begun.begins_at)
        self._open = begun
        self._maybe = None
        self._queue = PromptQueue()

    def _again(self, uuid: str) -> bool:
        """Whether the line was in the file before: some clients copy the session they continue."""
        if not uuid:
            return False
        if (name := hash(uuid)) in self._seen:
            return True
        if len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = None
        return False


# How far to search a file for the folder of its session.
_HEAD_LINES = 200
_HEAD_BYTES = 4 * 1024 * 1024


def session_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder where Claude Code keeps its sessions."""
    given = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else Path.home() / ".claude") / "projects"


def session_files(folder: Path) -> Iterator[Path]:
    """Return every session's file; those of subagents belong to their session."""
    return (
        file
        for file in lines.jsonl_files(folder)
        if not file.name.startswith("agent-") and "subagents" not in file.parts
    )


def session_head(path: Path, file: BinaryIO) -> lines.SessionHead | None:
    """Return the session in a file, or None if nothing in it looks like one."""
    found = False
    for number, data in enumerate(file):
        if number >= _HEAD_LINES or file.tell() > _HEAD_BYTES:
            break
        try:
            line = _decode(data.removeprefix(lines.BOM))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        kind = text_of(line.type)
        cwd = text_of(line.cwd)
        found = found or bool(kind)
        if kind in {"user", "assistant"} and cwd:
            return lines.SessionHead(
                path.stem,
                cwd,
                is_subagent=line.isSidechain is True,
                version=text_of(line.version),
            )
    return lines.SessionHead(path.stem) if found else None


session_reader = Exchanges
session_stamp = lines.file_stamp
open_session = lines.open_file
