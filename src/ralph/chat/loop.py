"""Session: one conversation under way: what was said, what is kept of it, what a model is shown."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ralph.chat.model import ChatModel, ChatTurn, ModelAnswer, ToolCall, ToolSpec
from ralph.chat.tools import TOOLS, ToolResult, run_tool
from ralph.config import Settings, home_folder, load
from ralph.errors import BadInput, ModelOff, RalphError
from ralph.kinds.conversation import Conversation, Exchange, Message, Status
from ralph.kinds.conversation import conversation_id as identity_of
from ralph.kinds.conversation import exchange_id as exchange_identity
from ralph.memories.conversations import GENERAL, Conversations
from ralph.memories.pausing import in_force
from ralph.memories.place import Place
from ralph.memories.project import Project, find_project
from ralph.memories.ralph import Ralph, open_ralph
from ralph.memories.related import Related
from ralph.prompt.related import chat_system, related_text
from ralph.record import now
from ralph.text.estimate import estimate_tokens
from ralph.text.gist import title_of
from ralph.text.marks import strip_marked
from ralph.text.redact import redact

SOURCE = "chat"
_BROKEN_OFF = "[the answer was broken off here]"


class ChatAnswer(msgspec.Struct):
    """An answer as far as it has come: its texts, its steps, and what they cost."""

    texts: list[str] = msgspec.field(default_factory=list)
    steps: list[Message] = msgspec.field(default_factory=list)
    tools: list[str] = msgspec.field(default_factory=list)
    tokens_used: int | None = None
    cost_usd: float | None = None
    model: str | None = None

    @property
    def text(self) -> str:
        """Everything that was said, in the order it was."""
        return "\n\n".join(text.strip() for text in self.texts if text.strip())

    def hear(self, piece: str) -> None:
        """A piece of the text under way."""
        self.texts[-1] += piece

    def count(self, *tokens: int | None, cost_usd: float | None) -> None:
        """Add what a call took; what nobody told adds nothing."""
        told = [some for some in tokens if some is not None]
        if told:
            self.tokens_used = (self.tokens_used or 0) + sum(told)
        if cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd


class _Round(msgspec.Struct, frozen=True):
    user: str
    assistant: str
    status: Status
    kept: bool


class ChatSession:
    """One conversation; it begins in the journal with its first exchange."""

    def __init__(
        self, memory: Conversations, *, wanted: str | None = None, title: str = ""
    ) -> None:
        """`wanted` is a conversation to go on with, by its id or the beginning of it."""
        self._rounds: list[_Round] = []
        self.title = title
        self.last_exchange: str | None = None
        self._begun: Conversation | None = None
        if wanted is None:
            self.id = identity_of(SOURCE, uuid.uuid4().hex)
            return
        self._begun = memory.conversation(wanted)
        self.id = self._begun.id
        self.title = title or self._begun.title
        if title and title != self._begun.title:
            memory.rename(self.id, title)
        for one in memory.exchanges(self.id):
            self._rounds.append(_Round(one.user, one.assistant, one.status, kept=True))
            self.last_exchange = one.id

    @property
    def begun(self) -> bool:
        """Whether anything of it is in the journal."""
        return self._begun is not None

    @property
    def exchanges(self) -> int:
        """How many exchanges of it are kept."""
        return sum(one.kept for one in self._rounds)

    def keep(
        self, memory: Conversations, *, user: str, answer: ChatAnswer, status: Status, started: str
    ) -> str:
        """Write the exchange down, the conversation with its first, and give its id."""
        if self._begun is None:
            # Of a secret that a title cuts in two, nobody would know the half.
            self.title = self.title or title_of(redact(user))
            begun = Conversation(id=self.id, title=self.title, source=SOURCE, created=started)
        else:
            begun = self._begun
        one = Exchange(
            id=exchange_identity(self.id, uuid.uuid4().hex),
            conversation=self.id,
            user=user,
            assistant=answer.text,
            status=status,
            started=started,
            completed=now(),
            tokens_used=answer.tokens_used,
            cost_usd=answer.cost_usd,
            model=answer.model,
            messages=tuple(answer.steps),
        )
        [kept] = memory.add(begun, [one])
        self._begun = begun
        self.last_exchange = kept.id
        return kept.id

    def went(self, *, user: str, assistant: str, status: Status, kept: bool) -> None:
        """Take in what was said; what is not kept is shown to the model while nothing is kept."""
        self._rounds.append(_Round(user, assistant, status, kept))

    def turns(self, *, budget_tokens: int, paused: bool) -> tuple[list[ChatTurn], int]:
        """The newest exchanges that fit, as the model is shown them, and how many do not fit.

        Once exchanges are kept again, those that were not are left out: a kept answer could
        repeat them.
        """
        shown: list[tuple[ChatTurn, ChatTurn]] = []
        rounds = [one for one in self._rounds if (one.kept or paused) and one.assistant.strip()]
        for one in reversed(rounds):
            told = one.assistant
            if one.status != "complete":
                told = f"{told.rstrip()}\n\n{_BROKEN_OFF}"
            budget_tokens -= estimate_tokens(one.user) + estimate_tokens(told)
            if budget_tokens < 0:
                break
            shown.append((ChatTurn("user", one.user), ChatTurn("assistant", told)))
        left_out = len(rounds) - len(shown)
        return [turn for pair in reversed(shown) for turn in pair], left_out


# -- The chat: a question, what memory holds on it, the model's answer, and the exchange kept.
#
# Memory is optional here: where it fails, one line says so and the answer goes on.


_LAST_LOOK = "That was the last look into memory for this question: answer now."
_SHORTEST_QUESTION = 3
# A long prompt says what it wants at its beginning or at its end.
_QUESTION_CHARS = 1200
_STEP_CHARS = 2000


class ChatLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a chat sends and does for one answer."""

    history_tokens: int = 16_000
    section_tokens: int = 2_000
    tool_rounds: int = 8
    catch_up_s: float = 0.3


class ExchangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one prompt; `exchange` is None where it was not kept."""

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
    """When memory was last asked before an answer, and what it found."""

    at: float
    conversations: int
    exchanges: int


class Screen(Protocol):
    """What a chat shows to a person or a program, and what it asks them."""

    def piece(self, text: str) -> None:
        """A piece of the answer as it comes."""
        ...

    def recalled(self, found: Related) -> None:
        """What memory found on the question."""
        ...

    def tool(self, call: ToolCall, failed: bool) -> None:
        """A tool that the model used."""
        ...

    def done(self, done: ExchangeResult) -> None:
        """The end of an answer."""
        ...

    def lines(self, lines: Sequence[str]) -> None:
        """What a command answers."""
        ...

    def note(self, text: str) -> None:
        """One line that the person should know."""
        ...

    def confirm(self, question: str) -> str:
        """What the person types to a question."""
        ...


class Controls(Protocol):
    """The workers behind a chat, and the commands that steer them."""

    def signal(self) -> None:
        """There is something new for the workers."""
        ...

    def summarizer(self, words: Sequence[str]) -> Sequence[str]:
        """What `/summarizer` answers."""
        ...

    def embeddings(self, words: Sequence[str], confirm: Callable[[str], str]) -> Sequence[str]:
        """What `/embeddings` answers."""
        ...

    def rag(self, words: Sequence[str], looked: LastRetrieval | None) -> Sequence[str]:
        """What `/rag` answers."""
        ...


class Chat:
    """One conversation with one model. It belongs to the thread that made it."""

    def __init__(
        self,
        open_memory: Callable[[], Ralph],
        model: ChatModel,
        screen: Screen,
        *,
        conversation: str | None = None,
        title: str = "",
        everywhere: bool = False,
        rag: bool = True,
        limits: ChatLimits | None = None,
    ) -> None:
        self._open_memory = open_memory
        self.memory = open_memory()
        self.model = model
        self.screen = screen
        self.everywhere = everywhere
        self.rag = rag
        self.limits = limits or ChatLimits()
        self.looked: LastRetrieval | None = None
        self.over = False
        self.controls: Controls | None = None
        self._told: set[str] = set()
        self.session = ChatSession(self.memory.conversations, wanted=conversation, title=title)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.place.settings

    @property
    def remembers(self) -> bool:
        """Whether memory is asked before an answer."""
        return self.rag and self.settings.rag_enabled and not self.paused

    @property
    def paused(self) -> bool:
        """Whether nothing may be kept or told now, here or because a person said so elsewhere."""
        place = self.memory.place
        try:
            return in_force(place.home, place.project.id, self.session.id) is not None
        except BadInput as error:
            self._once(str(error))
            return True

    def current(self) -> str | None:
        """The conversation under way, which workers leave alone."""
        return self.session.id

    def reopen(self) -> None:
        """Open memory anew, with the settings as they are now."""
        fresh = self._open_memory()
        self.memory.close()
        self.memory = fresh

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        self.memory.close()

    # -- one exchange

    def ask(self, prompt: str, *, private: bool = False) -> ExchangeResult:
        """Answer a prompt and keep the exchange, however it ended; a private one leaves no
        trace."""
        # A terminal may hand over bytes that are no text.
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")
        started, paused = now(), self.paused
        answer = ChatAnswer()
        found = Related()
        status: Status = "complete"
        error = ""
        try:
            found = self._recalled(prompt)
            self._speak(prompt, found, answer, paused=paused)
        except KeyboardInterrupt:
            status = "interrupted"
        except ModelOff as off:
            status, error = "failed", str(off)
            if answer.texts and len(off.partial) > len(answer.texts[-1]):
                answer.texts[-1] = off.partial
        kept = None
        if not private:
            # A pause may have begun while the model spoke.
            if not paused and not self.paused:
                kept = self._kept(prompt, answer, status, started)
            self.session.went(
                user=prompt, assistant=answer.text, status=status, kept=kept is not None
            )
        done = ExchangeResult(
            conversation=self.session.id,
            exchange=kept,
            user=prompt,
            assistant=answer.text,
            status=status,
            model=answer.model,
            tokens_used=answer.tokens_used,
            cost_usd=answer.cost_usd,
            related=tuple(one.conversation.id for one in found.conversations),
            tools=tuple(answer.tools),
            error=error,
        )
        self.screen.done(done)
        return done

    def _speak(self, prompt: str, found: Related, answer: ChatAnswer, *, paused: bool) -> None:
        """Let the model answer, and use the tools that it asks for, a bounded number of times."""
        tools: Sequence[ToolSpec] = TOOLS if self.remembers and self.model.takes_tools else ()
        turns = self._turns(prompt, found, tools=bool(tools), paused=paused)
        for left in reversed(range(self.limits.tool_rounds + 1)):
            said = self._said(turns, tools, answer)
            if not said.calls:
                return
            turns.append(said.turn())
            if said.text.strip():
                answer.steps.append(Message("assistant", said.text))
            for call in said.calls:
                used = self._use(call, answer)
                text = used.text if left > 1 else f"{used.text}\n\n{_LAST_LOOK}"
                turns.append(ChatTurn("tool", text, call_id=call.id, failed=used.failed))
        raise ModelOff(
            f"the model only asks for tools, {self.limits.tool_rounds} times already",
            where=self.model.name,
            todo="Ask more narrowly.",
            fault="prompt",
        )

    def _said(
        self, turns: list[ChatTurn], tools: Sequence[ToolSpec], answer: ChatAnswer
    ) -> ModelAnswer:
        answer.texts.append("")

        def hear(piece: str) -> None:
            answer.hear(piece)
            self.screen.piece(piece)

        answer.model = answer.model or self.model.name
        said = self.model.answer(
            turns, tools=tools, on_text=hear, timeout_s=self.settings.chat_timeout_s
        )
        answer.texts[-1] = said.text
        answer.model = said.model
        answer.count(said.tokens_in, said.tokens_out, cost_usd=said.cost_usd)
        if said.stop == "length":
            self.screen.note("the answer reached its limit; chat_max_tokens raises it")
        return said

    def _use(self, call: ToolCall, answer: ChatAnswer) -> ToolResult:
        used = run_tool(
            call,
            self.memory.conversations,
            current=self.session.id,
            everywhere=self.everywhere,
        )
        answer.tools.append(call.name)
        answer.steps.append(_step(call, used))
        self.screen.tool(call, used.failed)
        return used

    def _turns(self, prompt: str, found: Related, *, tools: bool, paused: bool) -> list[ChatTurn]:
        history, left_out = self.session.turns(
            budget_tokens=self.limits.history_tokens, paused=paused
        )
        if left_out:
            self._once(
                "this conversation is long: the model is no longer shown its oldest exchanges"
            )
        section = related_text(found, budget_tokens=self.limits.section_tokens, tools=tools)
        system = chat_system(
            today=date.today().isoformat(),
            project=self.memory.project.root.name if self.memory.project.exists else "",
            memory=self.remembers,
        )
        asked = f"{prompt}\n\n{section}" if section else prompt
        return [ChatTurn("system", system), *history, ChatTurn("user", asked)]

    # -- memory, which is optional

    def _recalled(self, prompt: str) -> Related:
        """What memory holds on the prompt. This is the one place where its failures are only
        told, and the answer goes on."""
        question = prompt.strip()
        if not self.remembers or len(question) < _SHORTEST_QUESTION:
            return Related()
        try:
            found = self._related(_shortened(question))
        except (RalphError, OSError) as error:
            self._once(f"answered without memory: {error}")
            return Related()
        for note in found.notes:
            self._once(note)
        self.looked = LastRetrieval(time.monotonic(), len(found.conversations), found.exchanges)
        if found.conversations:
            self.screen.recalled(found)
        return found

    def _related(self, question: str) -> Related:
        memory = self.memory.conversations
        # Catching up is bounded: what is left over is for the workers, or for the next question.
        synced = memory.sync(budget_s=self.limits.catch_up_s) if memory.exist else None
        if synced is not None and synced.written and not (synced.complete or synced.embedder_off):
            raise BadInput("memory has much to catch up with; ask again soon")
        return memory.related(question, exclude=self.session.id, everywhere=self.everywhere)

    def _kept(self, prompt: str, answer: ChatAnswer, status: Status, started: str) -> str | None:
        try:
            identity = self.session.keep(
                self.memory.conversations,
                user=prompt,
                answer=answer,
                status=status,
                started=started,
            )
        except (RalphError, OSError) as error:
            self.screen.note(f"this exchange is not kept: {error}")
            return None
        if self.controls is not None:
            self.controls.signal()
        return identity

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.screen.note(text)


def _step(call: ToolCall, used: ToolResult) -> Message:
    """A use of a tool as it is kept: what was asked, and what was told of by its ids alone, so
    that what is forgotten later is forgotten here too."""
    asked = strip_marked(call.unread) or msgspec.json.encode(call.arguments).decode()
    told = used.text if used.failed or not used.ids else f"told of {', '.join(used.ids)}"
    return Message("tool", f"{asked}\n{told}"[:_STEP_CHARS], tool=call.name, failed=used.failed)


def _shortened(question: str) -> str:
    if len(question) <= _QUESTION_CHARS:
        return question
    half = _QUESTION_CHARS // 2
    return f"{question[:half]}\n{question[-half:]}"


# -- The memory that a chat is held with: the project's, or the one for what belongs to no project.


# Whoever waits for an answer does not wait for whoever is indexing.
_LOCK_S = 0.1


class _NoProject(Project):
    """What stands for a project where there is none: its conversations are everybody's."""

    id = GENERAL


class _Nowhere(Ralph):
    """Memories outside of all projects: only conversations are kept there."""

    _held: Conversations | None = None

    @property
    def conversations(self) -> Conversations:
        """The conversations that belong to no project."""
        if self._held is None:
            place = self.place
            self._held = Conversations(
                home=place.home,
                settings=place.settings,
                embedder=place.embedder,
            )
        return self._held

    def close(self) -> None:
        """Let go of files; nothing is lost without it."""
        super().close()
        if self._held is not None:
            self._held.close()


def open_memory(start: Path, *, waits: bool = False, **settings: Any) -> Ralph:
    """The memories of the project around this folder, or else those of none.

    `waits`: a lock on the index is waited for as long as the settings say.
    """
    home = home_folder()
    given = settings if waits else {"index_lock_timeout_s": _LOCK_S, **settings}
    project = find_project(start, home=home)
    if project is not None:
        return open_ralph(project.root, home=home, **given)
    config = load(home=home, given=given)
    return _Nowhere(Place(_NoProject(start, home), config.settings, home=home), config)


def settings_at(start: Path, **given: Any) -> Settings:
    """The settings in force there, without opening anything."""
    home = home_folder()
    project = find_project(start, home=home)
    file = project.settings_file if project is not None else None
    return load(home=home, project_file=file, given=given).settings
