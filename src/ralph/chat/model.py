"""The port to a language model, the prices, and the choice of a model by the settings.

`ChatModel` has three kinds of implementations: servers (in `providers`), `ClaudeModel`, which runs
the `claude` command, and `EchoModel`, which needs no model at all. Nothing is loaded and no server
is contacted before the first question.
"""

from __future__ import annotations

import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, BadSetting, ModelOff
from ralph.loop.process import AgentEnd, AgentProcess
from ralph.text.redact import redact
from ralph.text.tokens import table
from ralph.wire import usable_url

ModelRole = Literal["chat", "summary"]
# server: it may work later. setting: the user must change one. prompt: another prompt may work.
ModelFault = Literal["server", "setting", "prompt"]
OnText = Callable[[str], None]

_EXAMPLES = (
    ("openai:gpt-4o-mini", "OpenAI, or any server that speaks its protocol (chat_base_url)"),
    ("anthropic:claude-haiku-4-5", "Anthropic"),
    ("ollama:llama3.2", "a model on this machine; no key"),
    ("claude", "Claude Code, as installed and logged in here; no key"),
)
# A dated or `latest` version of a model has the price of the model.
_VERSION = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
# The heading under which memory adds what it found to a prompt.
_FOUND = re.compile(r"^#* *Related Past Conversations\b", re.MULTILINE)
_ORDER = re.compile(r"!(\w+)\s*(.*)", re.DOTALL)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool on offer; its parameters are a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call by the model. Arguments that are not a JSON object are in `unread`."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unread: str = ""


class ChatTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a conversation. A tool's turn answers the call that `call_id` names."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    failed: bool = False


Turns = Sequence[ChatTurn]
Tools = Sequence[ToolSpec]


def ignore_text(piece: str) -> None:
    """Ignore the text as it arrives."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Tokens and cost are None when the model does not report them.

    `stop` is why it ended: end, tools, length, refused, or the server's own word.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    model: str
    stop: str = "end"

    @property
    def tokens_used(self) -> int | None:
        """Return the sum of the reported tokens; None if none were reported."""
        tokens = [n for n in (self.tokens_in, self.tokens_out) if n is not None]
        return sum(tokens) if tokens else None


class ChatModel(Protocol):
    """A language model: the turns of a conversation in, one answer out."""

    @property
    def name(self) -> str:
        """The name in the settings."""

    @property
    def takes_tools(self) -> bool:
        """Whether it can use tools; a server may only show that with its first answer."""

    @property
    def costs(self) -> str:
        """Its price in a few words, or why the price is unknown."""

    def answer(
        self, messages: Turns, *, tools: Tools = (), on_text: OnText = ignore_text, timeout_s: float
    ) -> ModelAnswer:
        """Answer the last turn, or raise ModelOff. Text goes to `on_text` as it arrives."""


class ModelAccess(msgspec.Struct, frozen=True):
    """How to reach a model: a key, the variable it comes from, and the role it is used for."""

    key: str | None = None
    variable: str = "RALPH_CHAT_API_KEY"
    role: ModelRole = "chat"
    sleep: Callable[[float], None] = time.sleep

    def __repr__(self) -> str:
        return f"ModelAccess({self.variable} {'set' if self.key else 'not set'})"


def check_turns(messages: Turns) -> None:
    """Raise if the conversation has nothing to answer."""
    if not messages or messages[-1].role not in ("user", "tool"):
        raise BadInput("there is nothing to answer: the last turn must be a user's or a tool's")


def tool_call(id: str, name: str, arguments: str) -> ToolCall:
    """Make a call from the arguments that a model sent as text."""
    identity = id or f"call_{uuid.uuid4().hex[:16]}"
    try:
        # Models send an empty text if there are no arguments.
        decoded = msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return ToolCall(identity, name, unread=arguments)
    return ToolCall(identity, name, decoded)


# -- prices


class Price(msgspec.Struct, frozen=True):
    """USD per million tokens."""

    in_usd: float
    out_usd: float

    def cost_usd(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """Return the cost of these tokens; None if a count is unknown."""
        if tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self.in_usd + tokens_out * self.out_usd) / 1_000_000

    def __str__(self) -> str:
        return f"${self.in_usd:g} in, ${self.out_usd:g} out per million tokens"


FREE = Price(0.0, 0.0)


def list_price(maker: str, model: str) -> Price | None:
    """The maker's list price of a model; None when it is not in our table.

    It counts at every address: a gateway may call the model `openai/gpt-4o-mini`.
    """
    name = _VERSION.sub("", model.rpartition("/")[2])
    rows = map(str.split, table(__file__, "prices.txt").get(maker, ()))
    return next((Price(float(row[1]), float(row[2])) for row in rows if row[0] == name), None)


# -- without a model


class EchoModel:
    """Repeats what memory found, to try memory without a model and in tests.

    The prompt `!TOOL {"argument": "value"}` makes it call that tool, if offered, and repeat its
    answer.
    """

    name = "echo"
    takes_tools = True
    costs = "free"

    def answer(
        self, messages: Turns, *, tools: Tools = (), on_text: OnText = ignore_text, timeout_s: float
    ) -> ModelAnswer:
        """Make the tool call in the prompt or repeat its answer; else repeat what memory found."""
        check_turns(messages)
        last = messages[-1]
        order = _ORDER.fullmatch(_split(last)[0]) if last.role == "user" else None
        ordered = order is not None and order[1] in {tool.name for tool in tools}
        calls = (tool_call("", order[1], order[2]),) if order and ordered else ()
        text = "" if calls else _echo(messages)
        for line in text.splitlines(keepends=True):
            on_text(line)
        return ModelAnswer(
            text=text,
            calls=calls,
            tokens_in=sum(len(turn.text.split()) for turn in messages),
            tokens_out=len(text.split()),
            cost_usd=0.0,
            model=self.name,
            stop="tools" if calls else "end",
        )


def _echo(messages: Turns) -> str:
    last = messages[-1]
    if last.role == "tool":
        return f"The tool {'failed' if last.failed else 'answered'}:\n{last.text}"
    # Leave out earlier turns: they repeat what memory found then.
    question, found = _split(last)
    memory = f"Memory found:\n\n{found}" if found else "Memory found nothing."
    return f"{memory}\n\nYou said: {question}"


def _split(turn: ChatTurn) -> tuple[str, str]:
    """The user's own words, and what memory added after them."""
    heading = _FOUND.search(turn.text)
    end = heading.start() if heading else len(turn.text)
    return turn.text[:end].strip(), turn.text[end:].strip()


# -- the `claude` command

_SYSTEM = "You are the assistant in the conversation that you are given. Answer its last message."
_COMMAND = (
    *("claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
    *("--tools", "", "--strict-mcp-config", "--disable-slash-commands"),
    *("--no-session-persistence", "--settings", '{"disableAllHooks": true}'),
    *("--system-prompt", _SYSTEM),
)
# If our hooks run anyway, these make them save nothing and add nothing.
_QUIET = {"RALPH_HOOK_CAPTURE": "false", "RALPH_HOOK_INJECT": "false"}
_SHOWN_CHARS = 200


class AnthropicUsage(msgspec.Struct):
    """The tokens of an answer; cached ones count as input."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def tokens_in(self) -> int | None:
        """All input tokens; None when they are not reported."""
        if self.input_tokens is None:
            return None
        cached = (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)
        return self.input_tokens + cached


class _ClaudeLine(msgspec.Struct):
    type: str = ""
    event: dict[str, Any] = {}
    model: str = ""
    is_error: bool = False
    result: str = ""
    errors: list[str] = []
    total_cost_usd: float | None = None
    usage: AnthropicUsage | None = None
    api_error_status: int | None = None
    terminal_reason: str | None = None


class ClaudeModel:
    """Chat through `claude -p`, so that users of Claude Code need no API key.

    It runs without tools, hooks, MCP servers or memory, in an empty folder, and saves no session:
    we must not import our own question as a conversation. Each question starts one process, which
    is ended along with everything it started.
    """

    takes_tools = False
    costs = "reported by Claude Code with each answer"

    def __init__(
        self,
        model: str | None = None,
        *,
        role: str = "chat",
        also: Iterable[str] = (),
        grace_s: float = 10.0,
    ) -> None:
        """`also` names more variables to pass on; `grace_s` is how long it may take to exit."""
        self.name = f"claude:{model}" if model else "claude"
        self._command = [*_COMMAND, *(["--model", model] if model else [])]
        self._role, self._also, self._grace_s = role, tuple(also), grace_s

    def answer(
        self, messages: Turns, *, tools: Tools = (), on_text: OnText = ignore_text, timeout_s: float
    ) -> ModelAnswer:
        """Answer the last turn, or raise ModelOff. Text goes to `on_text` as it arrives."""
        from ralph.clients import agent_environment, found_command

        check_turns(messages)
        env = agent_environment(also=self._also, given=_QUIET)
        for name in [name for name in env if name.startswith("RALPH_")]:
            if name.endswith("_API_KEY"):  # our own keys are for other servers
                del env[name]
        try:
            command = found_command(self._command, env)
        except BadInput as error:
            todo = f"Install Claude Code, or set {self._role}_model to another."
            raise _claude_off(f"cannot be started: {error.what}", todo, "setting") from None
        with tempfile.TemporaryDirectory(prefix="ralph-chat-") as name:
            folder = Path(name)
            prompt = _prompt(messages).encode()
            empty = folder / "empty"
            empty.mkdir()
            with AgentProcess(
                command, prompt=prompt, folder=folder, cwd=empty, env=env, grace_s=self._grace_s
            ) as process:
                output = _ClaudeOutput(process.output, on_text)
                ended = process.wait(timeout_s=timeout_s, on_tick=output.read)
            output.read()
        line = output.result
        if line is None or line.is_error or not line.result.strip():
            failure = self._failure(line, ended, timeout_s)
            failure.partial = "".join(output.texts)
            raise failure
        if not output.texts:  # the answer did not arrive in pieces
            on_text(line.result)
        usage = line.usage or AnthropicUsage()
        return ModelAnswer(
            text=line.result,
            tokens_in=usage.tokens_in,
            tokens_out=usage.output_tokens,
            cost_usd=line.total_cost_usd,
            model=output.model or self.name,
        )

    def _failure(self, line: _ClaudeLine | None, ended: AgentEnd, timeout_s: float) -> ModelOff:
        if line is None and ended.timed_out:
            todo = "If it is just slow, raise chat_timeout_s."
            return _claude_off(f"did not finish its answer within {timeout_s:g} s", todo)
        if line is None:
            why = _last_line(ended.stderr) or f"it ended with {ended.exit_code}"
            return _claude_off(f"gave no answer ({why})", "Try it yourself: claude -p hello")
        if not line.is_error:
            return _claude_off("gave an empty answer", "Ask again.", "prompt")
        why = _last_line(line.result or "; ".join(line.errors) or "no reason given")
        if line.api_error_status in (401, 403) or "/login" in why:
            return _claude_off(f"is not logged in ({why})", "Run claude and log in.", "setting")
        if line.api_error_status == 404:
            todo = f"Set {self._role}_model to claude, or to a model that it knows."
            return _claude_off(f"has no such model ({why})", todo, "setting")
        if line.terminal_reason == "prompt_too_long":
            return _claude_off(f"says the prompt is too long ({why})", "Send less.", "prompt")
        return _claude_off(f"failed ({why})", "Try again later.")


class _ClaudeOutput:
    """Follows the file that the process writes its answer to."""

    model = ""
    result: _ClaudeLine | None = None

    def __init__(self, file: Path, on_text: OnText) -> None:
        self._file = file
        self._on_text = on_text
        self._at = 0
        self.texts: list[str] = []

    def read(self) -> bool:
        """Read the lines that are complete by now; always return True, to go on."""
        with self._file.open("rb") as file:
            file.seek(self._at)
            lines, newline, _ = file.read().rpartition(b"\n")
        self._at += len(lines) + len(newline)
        for data in lines.splitlines():
            try:
                line = msgspec.json.decode(data, type=_ClaudeLine, strict=False)
            except (msgspec.MsgspecError, RecursionError):
                continue  # a line of another kind
            self.model = line.model or self.model
            self.result = line if line.type == "result" else self.result
            match line.event:
                case {"delta": {"text": str(text)}} if text:
                    self.texts.append(text)
                    self._on_text(text)
        return True


def _prompt(messages: Turns) -> str:
    """Return the conversation as one text: system texts first, then each turn with its role."""
    system = [turn.text for turn in messages if turn.role == "system" and turn.text.strip()]
    turns = [turn for turn in messages if turn.role != "system"]
    if len(turns) == 1:
        return "\n\n".join([*system, turns[0].text])
    talk = [f"{turn.role.title()}: {turn.text}" for turn in turns if turn.text.strip()]
    return "\n\n".join([*system, "The conversation:", *talk])


def _last_line(text: str) -> str:
    """Return the last line, shortened and redacted: programs print what matters at the end."""
    line = " ".join(text.strip().rpartition("\n")[2].split())
    shown = redact("".join(c if c.isprintable() else " " for c in line))
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 3] + "..."


def _claude_off(what: str, todo: str, fault: ModelFault = "server") -> ModelOff:
    return ModelOff(f"Claude Code {what}", todo=todo, fault=fault)


# -- from settings to a model


def how_to_configure() -> str:
    """Tell the user what to do when no model is set."""
    width = max(len(name) for name, _ in _EXAMPLES)
    set_model = "  ralph config --user chat_model"
    examples = "\n".join(f"{set_model} {name:<{width}}  {what}" for name, what in _EXAMPLES)
    return f"""No language model is set. Choose one:
{examples}
A key goes into RALPH_CHAT_API_KEY, or: ralph config --user chat_api_key KEY
Another server: ralph config --user chat_base_url http://127.0.0.1:8080/v1
Or try memory without a model: ralph chat --echo"""


def choose_model(settings: Settings, role: ModelRole = "chat") -> ChatModel | None:
    """Return the model for the chat or for summaries; None if none is set."""
    name: str | None = getattr(settings, f"{role}_model")
    if name is None or name.strip().lower() in ("", "none", "off"):
        return None
    kind, colon, model = (part.strip() for part in name.partition(":"))
    kind = kind.lower()
    if kind in ("openai", "anthropic", "ollama") and model:
        from ralph.chat.providers import HttpModel

        url, access = _access(settings, role, kind)
        return HttpModel(kind, model, url=url, access=access, max_tokens=settings.chat_max_tokens)
    if kind == "claude" and (model or not colon):
        return ClaudeModel(model or None, role=role, also=settings.agent_env)
    if kind == "echo" and role == "chat":
        return EchoModel()
    todo = f"Write one like {', '.join(example for example, _ in _EXAMPLES)}."
    raise BadSetting(f"{name!r} is not a known model", where=f"{role}_model", todo=todo)


def _access(settings: Settings, role: ModelRole, kind: str) -> tuple[str | None, ModelAccess]:
    """Return the URL of a model's server, and its key.

    Summaries use the chat's URL and key only if both models are on the same kind of server,
    because a key must never be sent to another one.
    """
    owner = role
    if role == "summary" and not (settings.summary_base_url or settings.summary_api_key):
        chat_kind = (settings.chat_model or kind).partition(":")[0].strip().lower()
        owner = "chat" if chat_kind == kind else role
    url: str | None = getattr(settings, f"{owner}_base_url") or None
    key: str | None = (getattr(settings, f"{owner}_api_key") or "").strip() or None
    variable = f"RALPH_{owner.upper()}_API_KEY"
    if url is not None and usable_url(url) is None:
        todo = "Write one like http://127.0.0.1:8080/v1"
        raise BadSetting("not a URL", where=f"{owner}_base_url", todo=todo)
    if kind == "openai" and key is None and url is None and settings.openai_api_key:
        # The key for embeddings is for the same server.
        key = settings.openai_api_key.strip()
        variable = "RALPH_OPENAI_API_KEY"
    if key is not None and not (key.isascii() and key.isprintable()):
        raise BadSetting(
            "the key contains invalid characters", where=variable, todo="Set it again."
        )
    if url is None and kind == "ollama":
        url = settings.ollama_url
    return url, ModelAccess(key, variable, role)
