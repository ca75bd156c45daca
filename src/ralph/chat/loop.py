"""The chat: a question, what memory holds on it, the model's answer, and the exchange kept.

Memory is optional here: where it fails, one line says so and the answer goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date
from typing import Protocol

import msgspec

from ralph.chat.model import Model, Said, ToolCall, ToolSpec, Turn
from ralph.chat.session import Answer, Session
from ralph.chat.tools import TOOLS, Used, use
from ralph.config import Settings
from ralph.errors import BadInput, ModelOff, RalphError
from ralph.memory.conversation_history import Related
from ralph.memory.pausing import in_force
from ralph.memory.ralph import Ralph
from ralph.prompt.recalled import chat_system, related_text
from ralph.records import now
from ralph.records.conversation import Message, Status
from ralph.text.marks import strip_marked

_LAST_LOOK = "That was the last look into memory for this question: answer now."
_SHORTEST_QUESTION = 3
# A long prompt says what it wants at its beginning or at its end.
_QUESTION_CHARS = 1200
_STEP_CHARS = 2000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a chat sends and does for one answer."""

    history_tokens: int = 16_000
    section_tokens: int = 2_000
    tool_rounds: int = 8
    catch_up_s: float = 0.3


class Done(msgspec.Struct, frozen=True, kw_only=True):
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


class Looked(msgspec.Struct, frozen=True):
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

    def done(self, done: Done) -> None:
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

    def rag(self, words: Sequence[str], looked: Looked | None) -> Sequence[str]:
        """What `/rag` answers."""
        ...


class Chat:
    """One conversation with one model. It belongs to the thread that made it."""

    def __init__(
        self,
        open_memory: Callable[[], Ralph],
        model: Model,
        screen: Screen,
        *,
        conversation: str | None = None,
        title: str = "",
        everywhere: bool = False,
        rag: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self._open_memory = open_memory
        self.memory = open_memory()
        self.model = model
        self.screen = screen
        self.everywhere = everywhere
        self.rag = rag
        self.limits = limits or Limits()
        self.looked: Looked | None = None
        self.over = False
        self.controls: Controls | None = None
        self._told: set[str] = set()
        self.session = Session(self.memory.conversations, wanted=conversation, title=title)

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

    def ask(self, prompt: str, *, private: bool = False) -> Done:
        """Answer a prompt and keep the exchange, however it ended; a private one leaves no
        trace."""
        # A terminal may hand over bytes that are no text.
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")
        started, paused = now(), self.paused
        answer = Answer()
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
        done = Done(
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

    def _speak(self, prompt: str, found: Related, answer: Answer, *, paused: bool) -> None:
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
                turns.append(Turn("tool", text, call_id=call.id, failed=used.failed))
        raise ModelOff(
            f"the model only asks for tools, {self.limits.tool_rounds} times already",
            where=self.model.name,
            todo="Ask more narrowly.",
            fault="prompt",
        )

    def _said(self, turns: list[Turn], tools: Sequence[ToolSpec], answer: Answer) -> Said:
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

    def _use(self, call: ToolCall, answer: Answer) -> Used:
        used = use(
            call,
            self.memory.conversations,
            current=self.session.id,
            everywhere=self.everywhere,
        )
        answer.tools.append(call.name)
        answer.steps.append(_step(call, used))
        self.screen.tool(call, used.failed)
        return used

    def _turns(self, prompt: str, found: Related, *, tools: bool, paused: bool) -> list[Turn]:
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
        return [Turn("system", system), *history, Turn("user", asked)]

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
        self.looked = Looked(time.monotonic(), len(found.conversations), found.exchanges)
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

    def _kept(self, prompt: str, answer: Answer, status: Status, started: str) -> str | None:
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


def _step(call: ToolCall, used: Used) -> Message:
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
