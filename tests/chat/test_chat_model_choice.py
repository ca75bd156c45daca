"""Which model the settings name, with which key, and at what price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import KEY, MODEL, ChatServer

from ralph.chat.model import (
    ChatModel,
    ChatTurn,
    choose_model,
    how_to_configure,
    list_price,
)
from ralph.config import Settings, load, store
from ralph.errors import BadSetting, ModelOff

LONG = 60.0


def ask(model: ChatModel | None) -> str:
    assert model is not None
    return model.answer([ChatTurn("user", "Hello!")], timeout_s=LONG).text


def test_without_a_setting_there_is_no_model() -> None:
    for value in (None, "", "none", " off "):
        settings = Settings(chat_model=value, summary_model=value)
        assert choose_model(settings) is None
        assert choose_model(settings, "summary") is None


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama", "OpenAI"])
def test_the_model_that_is_named_answers(server: ChatServer, kind: str) -> None:
    server.key = KEY
    settings = Settings(
        chat_model=f"{kind}: {MODEL}", chat_base_url=server.url, chat_api_key=f" {KEY}\n"
    )
    model = choose_model(settings)
    assert ask(model) == "You said: Hello!"
    assert model is not None
    assert model.name == f"{kind.lower()}:{MODEL}"
    assert server.requests[0].body["max_tokens"] == settings.chat_max_tokens
    assert KEY not in repr(model)


def test_names_of_programs_stand_alone_or_with_a_model() -> None:
    names = ["echo", "claude", "claude:haiku"]
    for name in names:
        model = choose_model(Settings(chat_model=name))
        assert model is not None
        assert model.name == name


def test_a_tag_belongs_to_the_model() -> None:
    model = choose_model(Settings(chat_model="ollama:llama3:8b"))
    assert repr(model) == "<ollama:llama3:8b at http://127.0.0.1:11434/v1>"


@pytest.mark.parametrize(
    "name", ["gpt-4o-mini", "openai", "openai:", "gemini:pro", ":x", "claude:", "http://x"]
)
def test_a_name_that_makes_no_sense_is_told_with_examples(name: str) -> None:
    with pytest.raises(BadSetting) as caught:
        choose_model(Settings(chat_model=name))
    told = str(caught.value)
    assert told.startswith(f"chat_model: {name!r} is not a known model. ")
    assert "openai:gpt-4o-mini, anthropic:" in told
    with pytest.raises(BadSetting, match=r"summary_model: .* is not a known model"):
        choose_model(Settings(summary_model=name), "summary")


def test_an_echo_is_no_summary() -> None:
    with pytest.raises(BadSetting, match="summary_model: 'echo' is not a known model"):
        choose_model(Settings(summary_model="echo"), "summary")


@pytest.mark.parametrize("url", ["nowhere", "ftp://127.0.0.1", "http://", "http://[::1"])
def test_what_is_no_url_is_told(url: str) -> None:
    with pytest.raises(BadSetting, match="chat_base_url: not a URL"):
        choose_model(Settings(chat_model="openai:x", chat_base_url=url))


def test_a_key_with_invalid_characters_is_told_without_it() -> None:
    with pytest.raises(BadSetting, match="invalid characters") as caught:
        choose_model(Settings(chat_model="openai:x", chat_api_key="sk-one\nsk-two"))
    assert caught.value.where == "RALPH_CHAT_API_KEY"
    assert "sk-" not in str(caught.value)


# -- whose key goes where


def keys(server: ChatServer, **settings: Any) -> list[str]:
    """The keys that the server is sent for a summary."""
    server.requests.clear()
    ask(choose_model(Settings(**settings), "summary"))
    headers = server.requests[0].headers
    return [headers[name] for name in ("authorization", "x-api-key") if name in headers]


def test_a_summary_uses_the_chat_s_server_and_key_where_they_are_of_its_kind(
    server: ChatServer,
) -> None:
    chat = {"chat_base_url": server.url, "chat_api_key": "k-chat"}
    same = {"summary_model": f"openai:{MODEL}", **chat}
    assert keys(server, chat_model="openai:other", **same) == ["Bearer k-chat"]
    assert keys(server, **same) == ["Bearer k-chat"]


def test_a_key_is_never_sent_to_another_kind_of_server(server: ChatServer) -> None:
    chat: dict[str, Any] = {"chat_model": "anthropic:x"}
    chat |= {"chat_base_url": server.url, "chat_api_key": "k-chat"}
    own = {"summary_model": f"openai:{MODEL}", "summary_base_url": server.url}
    assert keys(server, **chat, **own) == []
    assert keys(server, **chat, **own, summary_api_key="k-own") == ["Bearer k-own"]
    server.requests.clear()
    with pytest.raises(ModelOff, match="Set RALPH_SUMMARY_API_KEY"):
        ask(choose_model(Settings(**chat, summary_model=f"openai:{MODEL}"), "summary"))
    assert server.requests == []


def test_the_key_for_embeddings_serves_at_openai_only(server: ChatServer) -> None:
    settings = Settings(
        chat_model=f"openai:{MODEL}", chat_base_url=server.url, openai_api_key="k-embed"
    )
    ask(choose_model(settings))
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chat_model", "openai:gpt-5"),
        ("chat_base_url", "http://evil.example"),
        ("chat_api_key", "k-1"),
        ("summary_model", "openai:gpt-5"),
        ("summary_base_url", "http://evil.example"),
        ("summary_api_key", "k-1"),
        ("summary_spend_cap_usd", "1000"),
    ],
)
def test_a_project_s_file_may_not_choose_who_reads_along(
    home: Path, project: Path, key: str, value: str
) -> None:
    file = project / ".ralph" / "rag_config.json"
    with pytest.raises(BadSetting, match="every clone gets that file") as caught:
        store(file, key, value)
    assert f"ralph config --user {key}" in str(caught.value)
    file.write_text(json.dumps({key: value}))
    with pytest.raises(BadSetting, match="every clone gets that file"):
        load(home=home, project_file=file, environ={})


def test_keys_come_from_the_environment_and_are_never_shown(home: Path) -> None:
    environ = {"RALPH_CHAT_API_KEY": "12345", "RALPH_SUMMARY_API_KEY": KEY}
    config = load(home=home, environ=environ)
    assert config.settings.chat_api_key == "12345"
    assert config.settings.summary_api_key == KEY
    told = f"{config!r}"
    assert "12345" not in told
    assert KEY not in told
    assert "chat_api_key='set'" in told


# -- prices and help


@pytest.mark.parametrize(
    ("maker", "model", "known"),
    [
        ("openai", "gpt-4o-mini", True),
        ("openai", "gpt-4o-mini-2024-07-18", True),
        ("anthropic", "claude-3-5-haiku-latest", True),
        ("anthropic", "claude-haiku-4-5-20251001", True),
        ("openai", "gpt-4o-mini-audio-preview", False),
        ("anthropic", "claude-opus-9", False),
        ("ollama", "gpt-4o-mini", False),
    ],
)
def test_a_price_is_known_or_it_is_none(maker: str, model: str, known: bool) -> None:
    assert (list_price(maker, model) is not None) is known


def test_how_to_configure_names_settings_that_work(home: Path) -> None:
    told = how_to_configure()
    names = [line.split()[4] for line in told.splitlines() if line.startswith("  ralph config")]
    assert len(names) == 4
    for name in names:
        store(home / "config.json", "chat_model", name)
        model = choose_model(load(home=home, environ={}).settings)
        assert model is not None
        assert model.name == name
