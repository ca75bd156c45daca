"""A language model on a server: asked once, followed as it speaks, and told of when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ralph.chat.model import OnText, Said, ToolSpec, Turn, check
from ralph.chat.prices import FREE, Price
from ralph.chat.streaming import Events, Failed, Gathered
from ralph.errors import ModelOff
from ralph.wire import Deadline, Reply, Wire

MAX_TOKENS = 4096
_TOO_LONG = (
    *("context_length_exceeded", "maximum context length", "prompt is too long"),
    *("context size", "context window", "too many tokens", "request_too_large"),
)
_NO_CREDIT = ("insufficient_quota", "credit balance", "insufficient balance")
_Fault = Literal["server", "setting", "prompt"]


class Access(msgspec.Struct, frozen=True):
    """How a model is reached: a key, the variable it comes from, and whose settings these are."""

    key: str | None = None
    variable: str = "RALPH_CHAT_API_KEY"
    role: Literal["chat", "summary"] = "chat"
    sleep: Callable[[float], None] = time.sleep

    def __repr__(self) -> str:
        return f"Access({self.variable} {'set' if self.key else 'not set'})"

    def wire(
        self,
        url: str,
        *,
        name: str,
        todo: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Wire[ModelOff]:
        """The way there; the key goes as a bearer's unless headers are given."""
        return Wire(
            url,
            name=name,
            todo=todo or f"Check {self.role}_base_url and the network.",
            error=ModelOff,
            slow=f"If it is only slow, raise {self.role}_timeout_s.",
            key=self.key if headers is None else None,
            headers=headers,
            sleep=self.sleep,
        )


class Dialect(Protocol):
    """How one kind of server is asked, and how its answers are read."""

    @property
    def path(self) -> str:
        """Where questions go, below the server's URL."""
        ...

    @property
    def model(self) -> str:
        """The model's name there."""
        ...

    @property
    def takes_tools(self) -> bool:
        """Whether it has tools in its requests, as far as is known."""
        ...

    def body(self, messages: Sequence[Turn], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The request for an answer to these turns."""
        ...

    def learn(self, complaint: str) -> bool:
        """Whether a refusal tells how to ask this server so that it understands."""
        ...

    def read(self, data: bytes, into: Gathered) -> None:
        """One event of an answer, or a whole one; MsgspecError or Failed when it is none."""
        ...


class ServedModel:
    """A model behind a URL. Its key goes into a header and nowhere else."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        wire: Wire[ModelOff],
        *,
        access: Access,
        price: Price | None,
        missing: str,
        needs_key: bool = False,
    ) -> None:
        """`missing` says what to do when the server does not know the model."""
        self.name = name
        self._dialect = dialect
        self._wire = wire
        self._access = access
        self._price = price
        self._missing = missing
        self._needs_key = needs_key

    def __repr__(self) -> str:
        return f"<{self.name} at {self._wire.shown}>"

    @property
    def takes_tools(self) -> bool:
        """Whether tools that are offered reach it; it may turn out only with an answer."""
        return self._dialect.takes_tools

    @property
    def costs(self) -> str:
        """What it costs, or why nobody knows, in a few words."""
        if self._price is None:
            role = self._access.role
            return (
                f"price unknown: set {role}_price_in_usd and {role}_price_out_usd "
                "(per million tokens)"
            )
        return "free" if self._price == FREE else str(self._price)

    def answer(
        self,
        messages: Sequence[Turn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> Said:
        """The answer to the last turn, its text given to `on_text` as it comes; or ModelOff."""
        check(messages)
        gathered = Gathered(on_text)
        try:
            self._follow(messages, tools, gathered, Deadline(timeout_s))
        except ModelOff as error:
            error.partial = gathered.text
            if not gathered.stop:  # else all had come, and only the good-bye was missing
                raise
        calls = gathered.calls
        if not calls and not gathered.text.strip():
            raise self._silent(gathered.stop)
        tokens = gathered.tokens_in, gathered.tokens_out
        return Said(
            text=gathered.text,
            calls=calls,
            tokens_in=tokens[0],
            tokens_out=tokens[1],
            cost_usd=None if self._price is None else self._price.cost_usd(*tokens),
            model=gathered.model or self._dialect.model,
            stop=gathered.stop,
        )

    def _follow(
        self,
        messages: Sequence[Turn],
        tools: Sequence[ToolSpec],
        gathered: Gathered,
        deadline: Deadline,
    ) -> None:
        if self._needs_key and not self._access.key:
            raise self._off("needs a key", f"Set {self._access.variable}.", "setting")
        events = Events()
        stopped: list[Exception] = []

        def take(piece: bytes) -> bool:
            try:
                for data in events.feed(piece):
                    self._read(data, gathered)
            except Exception as error:  # noqa: BLE001 - raised below: it is no fault of the wire
                stopped.append(error)
            return gathered.over or bool(stopped)

        while True:
            body = msgspec.json.encode(self._dialect.body(messages, tools))
            reply = self._wire.call("POST", self._dialect.path, body, deadline=deadline, take=take)
            # Each refusal teaches something new or is the last.
            told = reply.body.decode("utf-8", "replace")
            if reply.status not in (400, 422) or not self._dialect.learn(told):
                break
        for error in stopped:
            raise error
        if reply.status != 200:
            raise self._refused(reply)
        if not events.seen and events.plain:
            self._read(events.plain, gathered)
        if not gathered.stop:
            what = "broke off in the middle of its answer" if events.seen else "gave no answer"
            raise self._off(what, "Ask again; if it stays so, look into the server's log.")

    def _read(self, data: bytes, into: Gathered) -> None:
        try:
            self._dialect.read(data, into)
        except Failed as failed:
            said = Reply(200, {}, failed.data).complaint(*self._secrets)
            what = f"failed in the middle of its answer ({said or 'it does not say why'})"
            raise self._off(what, "Ask again later.") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            told = str(error).partition(" - ")[0]
            todo = f"Check {self._access.role}_base_url: it must be the URL of a model's server."
            raise self._off(f"gave an answer that cannot be read ({told})", todo) from None

    def _silent(self, stop: str) -> ModelOff:
        role = self._access.role
        if stop == "length":
            todo = "Raise chat_max_tokens, or shorten what is asked."
            return self._off("reached its limit before it said a word", todo, "prompt")
        if stop == "refused":
            return self._off("refuses to answer this", "Ask otherwise.", "prompt")
        return self._off("gave an empty answer", f"Ask again, or change {role}_model.", "prompt")

    def _refused(self, reply: Reply) -> ModelOff:
        said = reply.describe(*self._secrets)
        body = reply.body.decode("utf-8", "replace").lower()
        role, variable = self._access.role, self._access.variable
        if any(word in body for word in _NO_CREDIT) or reply.status == 402:
            todo = "Look after the account of the key."
            return self._off(f"has no credit left for us ({said})", todo, "setting")
        if reply.status in (401, 403):
            if self._access.key:
                what, todo = "does not accept the key", f"Check {variable}."
            else:
                what, todo = "needs a key", f"Set {variable}."
            return self._off(f"{what} ({said})", todo, "setting")
        if reply.status == 404:
            what = f"does not know {self._dialect.model} ({said})"
            return self._off(what, self._missing, "setting")
        if reply.status == 413 or any(word in body for word in _TOO_LONG):
            todo = f"Send less, or set {role}_model to one with a larger window."
            return self._off(f"finds the prompt too long ({said})", todo, "prompt")
        if reply.status == 429:
            asks = reply.headers.get("retry-after", "")
            todo = f"Wait {asks} s." if asks.isdigit() else "Wait a while."
            return self._off(f"has enough of us for now ({said})", todo)
        if reply.status >= 500:
            return self._off(f"cannot answer now ({said})", "Try again later.")
        return self._off(f"refused the request ({said})", None, "prompt")

    def _off(self, what: str, todo: str | None, fault: _Fault = "server") -> ModelOff:
        error = self._wire.off(what, todo)
        error.fault = fault
        return error

    @property
    def _secrets(self) -> tuple[str, ...]:
        return (self._access.key,) if self._access.key else ()
