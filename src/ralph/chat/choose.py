"""From settings to the language model they name; nothing is reached before its first question."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from ralph.chat.model import Model
from ralph.chat.prices import Price
from ralph.chat.served import Access
from ralph.config import Settings
from ralph.errors import BadSetting

_EXAMPLES = (
    ("openai:gpt-4o-mini", "OpenAI, or any server that speaks its protocol (chat_base_url)"),
    ("anthropic:claude-haiku-4-5", "Anthropic"),
    ("ollama:llama3.2", "a model on this machine; no key"),
    ("claude", "Claude Code, as it is installed and logged in here; no key"),
)
_SERVED = ("openai", "anthropic", "ollama")
_OFF = ("", "none", "off")

_Role = Literal["chat", "summary"]


class _Chosen(msgspec.Struct, frozen=True):
    """The settings of one role."""

    role: _Role
    kind: str
    model: str
    url: str | None
    access: Access
    price: Price | None


def choose_model(settings: Settings) -> Model | None:
    """The model of the chat; None where none is set."""
    return _made(settings, "chat", settings.chat_model)


def choose_summariser(settings: Settings) -> Model | None:
    """The model that writes summaries; None where they are to be extracts."""
    return _made(settings, "summary", settings.summary_model)


def how_to_configure() -> str:
    """What to do when no model is set, for people."""
    width = max(len(name) for name, _ in _EXAMPLES)
    lines = [
        f"  ralph config --user chat_model {name:<{width}}  {told}" for name, told in _EXAMPLES
    ]
    return "\n".join(
        [
            "No language model is set. Choose one:",
            *lines,
            "A key goes into RALPH_CHAT_API_KEY, or: ralph config --user chat_api_key KEY",
            "Another server: ralph config --user chat_base_url http://127.0.0.1:8080/v1",
            "Or try memory without a model: ralph chat --echo",
        ]
    )


def _made(settings: Settings, role: _Role, name: str | None) -> Model | None:
    if name is None or name.strip().lower() in _OFF:
        return None
    kind, model = _read_name(role, name)
    if kind == "echo":
        from ralph.chat.echo import EchoModel

        return EchoModel()
    if kind == "claude":
        from ralph.chat.claude_model import ClaudeModel

        return ClaudeModel(
            model or None, role=role, also=settings.agent_env, grace_s=settings.agent_grace_s
        )
    return _served(settings, _chosen(settings, role, kind, model))


def _served(settings: Settings, chosen: _Chosen) -> Model:
    # Not in a table of functions: each loads its own module only.
    if chosen.kind == "anthropic":
        from ralph.chat.anthropic_model import anthropic_model as make
    elif chosen.kind == "ollama":
        from ralph.chat.openai_model import ollama_model as make
    else:
        from ralph.chat.openai_model import openai_model as make
    return make(
        chosen.model,
        url=chosen.url,
        access=chosen.access,
        price=chosen.price,
        max_tokens=settings.chat_max_tokens,
    )


def _read_name(role: _Role, name: str) -> tuple[str, str]:
    kind, colon, model = (part.strip() for part in name.partition(":"))
    kind = kind.lower()
    alone = kind == "claude" or (kind == "echo" and role == "chat")
    if (kind in _SERVED and model) or (alone and (model or not colon)):
        return kind, model
    examples = ", ".join(example for example, _ in _EXAMPLES)
    raise BadSetting(
        f"{name!r} names no model",
        where=f"{role}_model",
        todo=f"Write one like {examples}.",
    )


def _chosen(settings: Settings, role: _Role, kind: str, model: str) -> _Chosen:
    owner = _owner(settings, role, kind)
    url: str | None = getattr(settings, f"{owner}_base_url") or None
    key: str | None = (getattr(settings, f"{owner}_api_key") or "").strip() or None
    variable = f"RALPH_{owner.upper()}_API_KEY"
    if url is not None:
        _check_url(f"{owner}_base_url", url)
    elif kind == "ollama":
        url = settings.ollama_url
    if kind == "openai" and key is None and url is None and settings.openai_api_key:
        # The one for embeddings is for the same server.
        key, variable = settings.openai_api_key.strip(), "RALPH_OPENAI_API_KEY"
    if key is not None and not (key.isascii() and key.isprintable()):
        raise BadSetting(
            "the key holds characters that no key has", where=variable, todo="Set it anew."
        )
    prices = getattr(settings, f"{role}_price_in_usd"), getattr(settings, f"{role}_price_out_usd")
    price = None if prices == (None, None) else Price(prices[0] or 0.0, prices[1] or 0.0)
    return _Chosen(role, kind, model, url, Access(key, variable, role), price)


def _owner(settings: Settings, role: _Role, kind: str) -> _Role:
    """Whose URL and key count: the chat's serve for summaries only where they are for the same
    kind of server, because a key must never be sent to anybody else."""
    if role == "chat" or settings.summary_base_url or settings.summary_api_key:
        return role
    named = (settings.chat_model or kind).partition(":")[0].strip().lower()
    return "chat" if named == kind else "summary"


def _check_url(key: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise BadSetting(
            "this is no URL", where=key, todo="Write one like http://127.0.0.1:8080/v1"
        )
