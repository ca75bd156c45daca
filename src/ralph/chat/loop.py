"""The chat: search memory for a question, let the model answer it, save the exchange.

The model has two tools: search past conversations, and read them. Memory is optional here: if it
fails, one line says so and the model still answers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ralph.chat.model import ChatModel, ChatTurn, ModelAnswer, ToolCall, ToolSpec
from ralph.config import Settings
from ralph.errors import BadInput, ModelOff, RalphError
from ralph.memory.conversation_search import Related
from ralph.memory.conversations import Conversations, details
from ralph.memory.pausing import in_force
from ralph.memory.ralph import Ralph
from ralph.prompt import recalled
from ralph.prompt.answers import AnswerEntry, Detail, fenced, fenced_lines
from ralph.prompt.tool import Tool, input_schema, read_arguments
from ralph.records import conversation as schema
from ralph.records import now
from ralph.records.conversation import DOCUMENT, Conversation, Exchange, Message, Status
from ralph.text.redact import redact
from ralph.text.sanitize import plain_id, sanitized_error, strip_marked
from ralph.text.summary import title_of
from ralph.text.tokens import estimate_tokens, plural

if TYPE_CHECKING:
    from ralph.chat.commands import WorkerCommands

SOURCE = "chat"
_LAST_LOOK = "That was the last look into memory for this question: answer now."
_TOOL_ROUNDS = 8
_CATCH_UP_S = 0.3
# A long prompt usually says what it wants at its beginning or its end.
_QUESTION_CHARS = 1200
_STEP_CHARS = 2000
_ERROR_CHARS = 2000


# -- the tools that the model is offered

_SEARCH = "search_conversations"
_FETCH = "fetch_conversation_details"


class ToolResult(msgspec.Struct, frozen=True):
    """A tool's answer, and the ids of the exchanges in it."""

    text: str
    ids: tuple[str, ...] = ()
    failed: bool = False


def run_tool(
    call: ToolCall, memory: Conversations, *, current: str, everywhere: bool = False
) -> ToolResult:
    """Run a tool. An error goes back to the model, which can correct its call.

    `current` is the conversation of this chat; it is never part of an answer.
    """
    try:
        if call.unread:
            raise BadInput(f"the arguments are not a JSON object: {call.unread[:200]!r}")
        tools = {tool.name: tool for tool in _TOOLS}
        if call.name not in tools:
            raise BadInput(f"there is no tool {call.name!r}", todo=f"Use {_SEARCH} or {_FETCH}.")
        options = read_arguments(tools[call.name], call.arguments)
        options |= {"exclude": current, "everywhere": everywhere}
        if call.name == _SEARCH:
            options["budget_s"] = memory.store.settings.remember_budget_s
        result: ToolResult = tools[call.name].call(memory, **options)
    except (RalphError, OSError) as error:
        what = recalled.harmless(sanitized_error(str(error)), _ERROR_CHARS)
        result = ToolResult(what, failed=True)
    return result


@Tool("Search past conversations")
def search_conversations(
    memory: Conversations, query: str, limit: int | None = None, **options: Any
) -> ToolResult:
    """Search earlier conversations with this user, by meaning and by words. Use it when the user
    refers to something discussed before and the question itself did not bring it up. Each hit is
    one exchange.

    Args:
        query: The topic, in a few words or as a question.
        limit: The most hits to return, 1 to 20.

    Example:
        {"query": "how did we fix the timeout?"}
    """
    # `options` are passed on to the search.
    answer = memory.search(query, limit=limit, min_score=memory.store.settings.min_score, **options)
    everywhere: bool = options.get("everywhere", False)
    asked = recalled.harmless(query, 120)
    where = "in any project" if everywhere else "in this project"
    if not answer:
        again = "Try other words; if that finds nothing either, go on without it."
        notes = [f"Note: {recalled.harmless(note)}" for note in answer.notes]
        nothing = f'No past conversation {where} matches "{asked}" well enough.'
        return ToolResult("\n".join([nothing, again, *notes]))
    states = memory.states(everywhere=everywhere)

    def text(hit: Any, detail: Detail) -> str:
        if hit.kind == DOCUMENT:
            return "\n".join(recalled.document_lines(hit, chars=max(detail.prose, 160)))
        state = states.get(hit.record.conversation)
        summary = memory.summary(hit.id)
        chars = max(detail.prose // 2, 80)
        summarized = summary.text if summary else ""
        about = recalled.about(state.conversation.title, state.tags) if state else ()
        counts = {"errors": detail.errors, "files": detail.files}
        lines = recalled.hit_lines(hit, side_chars=chars, about=about, summary=summarized, **counts)
        return "\n".join(lines)

    sections = sum(hit.kind == DOCUMENT for hit in answer)
    exchanges = len(answer) - sections
    counts = [plural(exchanges, "past exchange")] if exchanges else []
    counts += [plural(sections, "section") + " of documents"] if sections else []
    fence = fenced(
        f'{" and ".join(counts)} {where} for "{asked}", best first.',
        [AnswerEntry(hit.id, partial(text, hit)) for hit in answer],
        notes=answer.notes,
        whole=f"{_FETCH}(exchange_id)",
    )
    return ToolResult(fence, tuple(hit.id for hit in answer))


@Tool("Read a past conversation", name=_FETCH)
def conversation_details(
    memory: Conversations,
    conversation_id: str | None = None,
    exchange_id: str | None = None,
    include_full_transcript: bool = False,
    *,
    exclude: str | None = None,
    everywhere: bool = False,
) -> ToolResult:
    """Read a past conversation, or one exchange of it, by its id: in short, or with
    include_full_transcript everything that was said and done.

    Args:
        conversation_id: The id of a conversation.
        exchange_id: The id of one exchange.
        include_full_transcript: Include all messages, tool calls and steps.

    Example:
        {"exchange_id": "3f2a9c1e"}
    """
    ids = {"conversation": conversation_id, "exchange": exchange_id}
    found = details(memory, **ids, everywhere=everywhere)
    if found.conversation.id == exclude:
        raise BadInput("that is this conversation; you already have it")
    alone = exchange_id is not None
    # Limit each side, or a long question would leave no room for its answer.
    room: dict[str, Any] = {"alone": alone, "side_tokens": recalled.RECORD_TOKENS * 2 // 5}
    lines = recalled.details_lines(found, whole=include_full_transcript, **room)
    printed = f"`ralph conversations show {plain_id(found.conversation.id)}` prints all of it."
    rest = printed if alone else "Ask for single exchanges by exchange_id."
    fence = fenced_lines("What was said.", lines, budget_tokens=recalled.RECORD_TOKENS, rest=rest)
    return ToolResult(fence, tuple(x.id for x in found.exchanges))


_TOOLS = (search_conversations, conversation_details)
TOOLS = tuple(ToolSpec(tool.name, tool.description, input_schema(tool)) for tool in _TOOLS)


# -- the conversation of this chat


class ChatSession:
    """One conversation. It starts in the journal with its first exchange."""

    def __init__(self, memory: Conversations, wanted: str | None, title: str) -> None:
        """`wanted` is a conversation to continue, by its id or a prefix of it."""
        # The exchanges that the model sees with the next question, each with whether it is saved.
        self.rounds: list[tuple[Exchange, bool]] = []
        self.title, self.id = title, schema.conversation_id(SOURCE, uuid.uuid4().hex)
        self._conversation = None if wanted is None else memory.conversation(wanted)
        if self._conversation is not None:
            self.id = self._conversation.id
            self.title = title or self._conversation.title
            if self.title != self._conversation.title:
                memory.rename(self.id, title)
            self.rounds = [(exchange, True) for exchange in memory.exchanges(self.id)]
        self.last_exchange = self.rounds[-1][0].id if self.rounds else None

    @property
    def begun(self) -> bool:
        """Whether the conversation is in the journal."""
        return self._conversation is not None

    def save(self, memory: Conversations, exchange: Exchange) -> str:
        """Save an exchange (with the first also the conversation) and return its id."""
        if self._conversation is None:
            # Redact first: a title may cut a secret in two, and half a secret is not recognized.
            self.title = self.title or title_of(redact(exchange.user))
        conversation = self._conversation or Conversation(
            id=self.id, title=self.title, source=SOURCE, created=exchange.started
        )
        [saved] = memory.add(conversation, [exchange])
        self._conversation = conversation
        self.last_exchange = saved.id
        return saved.id

    def turns(self, *, budget_tokens: int, paused: bool) -> tuple[list[ChatTurn], int]:
        """Return the latest rounds that fit, as turns for the model, and how many do not fit.

        Unsaved rounds are shown only while memory is paused: later, a saved answer could repeat
        them.
        """
        shown: list[ChatTurn] = []
        rounds = [x for x, saved in self.rounds if (saved or paused) and x.assistant.strip()]
        for exchange in reversed(rounds):
            text = exchange.assistant
            if exchange.status != "complete":
                text = f"{text.rstrip()}\n\n[the answer was broken off here]"
            budget_tokens -= estimate_tokens(exchange.user) + estimate_tokens(text)
            if budget_tokens < 0:
                break
            shown += [ChatTurn("assistant", text), ChatTurn("user", exchange.user)]
        return shown[::-1], len(rounds) - len(shown) // 2


# -- the chat


class ChatAnswer(msgspec.Struct):
    """An answer so far: its texts, steps, tokens and cost."""

    texts: list[str] = []
    steps: list[Message] = []
    tokens_used: int | None = None
    cost_usd: float | None = None
    model: str | None = None

    def add(self, answer: ModelAnswer) -> None:
        """Add a complete answer of the model; skip the counts that it did not report."""
        self.texts[-1] = answer.text
        self.model = answer.model
        if answer.tokens_used is not None:
            self.tokens_used = (self.tokens_used or 0) + answer.tokens_used
        if answer.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + answer.cost_usd


class ExchangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one prompt; `exchange` is None when it was not saved."""

    conversation: str
    exchange: str | None
    user: str
    assistant: str
    status: Status
    model: str | None = None
    tokens_used: int | None = None
    cost_usd: float | None = None
    related: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    error: str = ""


class LastRetrieval(msgspec.Struct, frozen=True):
    """When memory was last searched before an answer, and how much it found."""

    at: float
    conversations: int
    exchanges: int


class ChatScreen(Protocol):
    """Shows a chat to a user or a program, and asks for confirmation."""

    def piece(self, text: str) -> None:
        """Show a piece of the answer as it arrives."""

    def recalled(self, found: Related) -> None:
        """Show what memory found for the question."""

    def tool(self, call: ToolCall, failed: bool) -> None:
        """Show a tool call of the model."""

    def done(self, done: ExchangeResult) -> None:
        """Show the end of an answer."""

    def lines(self, lines: Sequence[str]) -> None:
        """Show the output of a command."""

    def note(self, text: str) -> None:
        """Show a one-line note to the user."""

    def confirm(self, question: str) -> str:
        """Ask a question and return what the user types."""


class Chat:
    """One conversation with one model. Use it only in the thread that created it.

    `keeps`: whether to save exchanges; off for a trial without a model.
    """

    def __init__(
        self,
        open_memory: Callable[[], Ralph],
        model: ChatModel,
        screen: ChatScreen,
        *,
        conversation: str | None = None,
        title: str = "",
        everywhere: bool = False,
        rag: bool = True,
        keeps: bool = True,
        history_tokens: int = 16_000,
    ) -> None:
        self._open_memory, self.memory = open_memory, open_memory()
        self.model = model
        self.screen = screen
        self.everywhere = everywhere
        self.rag = rag
        self._keeps = keeps
        self.last_retrieval: LastRetrieval | None = None
        self.over = False
        self.workers: WorkerCommands | None = None
        self._history_tokens = history_tokens
        self._notes: set[str] = set()
        self.session = ChatSession(self.memory.conversations, conversation, title)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.store.settings

    @property
    def remembers(self) -> bool:
        """Whether memory is searched before an answer."""
        return self.rag and self.settings.rag_enabled and not self.paused

    @property
    def paused(self) -> bool:
        """Whether memory is paused: in this chat, in the project, or everywhere."""
        place = self.memory.store
        try:
            return in_force(place.home, place.project, self.session.id) is not None
        except BadInput as error:
            self._note_once(str(error))
            return True

    def reopen(self) -> None:
        """Open memory again, with the current settings."""
        fresh = self._open_memory()
        self.memory.close()
        self.memory = fresh

    def ask(self, prompt: str, *, private: bool = False) -> ExchangeResult:
        """Answer a prompt and save the exchange, even a failed one; a private one is not saved."""
        # A terminal may pass on bytes that are not text.
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")
        started = now()
        paused = self.paused
        answer = ChatAnswer()
        found = Related()
        status = "complete"
        error = ""
        try:
            found = self._recall(prompt)
            self._answer(prompt, found, answer, paused=paused)
        except KeyboardInterrupt:
            status = "interrupted"
        except ModelOff as off:
            status = "failed"
            error = str(off)
            if answer.texts and len(off.partial) > len(answer.texts[-1]):
                answer.texts[-1] = off.partial
        fields: dict[str, Any] = {
            "conversation": self.session.id,
            "user": prompt,
            "assistant": "\n\n".join(text.strip() for text in answer.texts if text.strip()),
            "status": status,
            "tokens_used": answer.tokens_used,
            "cost_usd": answer.cost_usd,
            "model": answer.model,
        }
        identity = schema.exchange_id(self.session.id, uuid.uuid4().hex)
        steps = answer.steps
        times: dict[str, Any] = {"started": started, "completed": now()}
        exchange = Exchange(id=identity, messages=tuple(steps), **times, **fields)
        saved = None
        if not private:
            # A pause may have begun while the model was answering.
            if self._keeps and not paused and not self.paused:
                saved = self._save(exchange)
            self.session.rounds.append((exchange, saved is not None))
        done = ExchangeResult(
            exchange=saved,
            related=tuple(related.conversation.id for related in found.conversations),
            tools=tuple(step.tool for step in answer.steps if step.role == "tool"),
            error=error,
            **fields,
        )
        self.screen.done(done)
        return done

    def _answer(self, prompt: str, found: Related, answer: ChatAnswer, *, paused: bool) -> None:
        """Let the model answer, and run the tools it calls, for a limited number of rounds."""
        tools: Sequence[ToolSpec] = TOOLS if self.remembers and self.model.takes_tools else ()
        turns = self._turns(prompt, found, tools=bool(tools), paused=paused)

        def on_text(piece: str) -> None:
            answer.texts[-1] += piece
            self.screen.piece(piece)

        for left in reversed(range(_TOOL_ROUNDS + 1)):
            answer.texts.append("")
            answer.model = answer.model or self.model.name
            timeout_s = self.settings.chat_timeout_s
            reply = self.model.answer(turns, tools=tools, on_text=on_text, timeout_s=timeout_s)
            answer.add(reply)
            if reply.stop == "length":
                self.screen.note("the answer was cut off at its limit; raise chat_max_tokens")
            if not reply.calls:
                return
            turns.append(ChatTurn("assistant", reply.text, reply.calls))
            if reply.text.strip():
                answer.steps.append(Message("assistant", reply.text))
            for call in reply.calls:
                result = self._run_tool(call, answer)
                text = result.text if left > 1 else f"{result.text}\n\n{_LAST_LOOK}"
                turns.append(ChatTurn("tool", text, call_id=call.id, failed=result.failed))
        what = f"the model called tools {_TOOL_ROUNDS} times without answering"
        raise ModelOff(what, where=self.model.name, todo="Ask a narrower question.", fault="prompt")

    def _run_tool(self, call: ToolCall, answer: ChatAnswer) -> ToolResult:
        memory = self.memory.conversations
        result = run_tool(call, memory, current=self.session.id, everywhere=self.everywhere)
        arguments = strip_marked(call.unread) or msgspec.json.encode(call.arguments).decode()
        # Save only the ids of the hits, so that what is forgotten later leaves no copy here.
        found = f"told of {', '.join(result.ids)}"
        outcome = result.text if result.failed or not result.ids else found
        step = f"{arguments}\n{outcome}"[:_STEP_CHARS]
        answer.steps.append(Message("tool", step, tool=call.name, failed=result.failed))
        self.screen.tool(call, result.failed)
        return result

    def _turns(self, prompt: str, found: Related, *, tools: bool, paused: bool) -> list[ChatTurn]:
        unsaved = paused or not self._keeps
        history, left_out = self.session.turns(budget_tokens=self._history_tokens, paused=unsaved)
        if left_out:
            self._note_once(
                "this conversation is long: the model no longer sees its oldest exchanges"
            )
        section = recalled.related_text(found, budget_tokens=2_000, tools=tools)
        today = date.today().isoformat()
        project = self.memory.project
        name = project.root.name if project.exists else ""
        system = recalled.chat_system(today=today, project=name, memory=self.remembers)
        question = f"{prompt}\n\n{section}" if section else prompt
        return [ChatTurn("system", system), *history, ChatTurn("user", question)]

    # -- memory, which is optional

    def _recall(self, prompt: str) -> Related:
        """Search memory for the prompt. This is the one place that turns its errors into notes."""
        question = prompt.strip()
        if not self.remembers or len(question) < 3:
            return Related()
        if len(question) > _QUESTION_CHARS:
            half = _QUESTION_CHARS // 2
            question = f"{question[:half]}\n{question[-half:]}"
        memory = self.memory.conversations
        try:
            # Index for a short time only; the workers or the next question do the rest.
            synced = memory.sync(budget_s=_CATCH_UP_S) if memory.exist else None
            if synced and synced.written and not (synced.complete or synced.embedder_off):
                raise BadInput("memory is still indexing; ask again soon")
            found = memory.related(question, exclude=self.session.id, everywhere=self.everywhere)
        except (RalphError, OSError) as error:
            self._note_once(f"answered without memory: {error}")
            return Related()
        for note in found.notes:
            self._note_once(note)
        count = len(found.conversations)
        self.last_retrieval = LastRetrieval(time.monotonic(), count, found.exchanges)
        if count:
            self.screen.recalled(found)
        return found

    def _save(self, exchange: Exchange) -> str | None:
        try:
            identity = self.session.save(self.memory.conversations, exchange)
        except (RalphError, OSError) as error:
            self.screen.note(f"this exchange is not saved: {error}")
            return None
        if self.workers is not None:
            self.workers.signal()
        return identity

    def _note_once(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            self.screen.note(text)
