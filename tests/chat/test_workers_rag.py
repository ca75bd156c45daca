"""What `rag` answers within a chat, and that it changes settings for good."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from workers_ground import fill, opener

from ralph.chat.commands import WorkerCommands
from ralph.chat.loop import LastRetrieval
from ralph.chat.workers import Workers
from ralph.errors import BadInput, BadSetting


@pytest.fixture
def workers(project: Path) -> Workers:
    return Workers(opener(project))


@pytest.fixture
def chat(project: Path, workers: Workers) -> WorkerCommands:
    return WorkerCommands(workers, opener(project))


def stored(home: Path) -> dict[str, object]:
    file = home / "config.json"
    plain: dict[str, object] = json.loads(file.read_bytes()) if file.exists() else {}
    return plain


def test_rag_tells_how_it_stands(project: Path, workers: Workers, chat: WorkerCommands) -> None:
    fill(project, [2, 1])
    workers.run_once()
    looked = LastRetrieval(time.monotonic() - 2.2, 3, 1)
    assert chat.rag([], looked) == [
        "RAG Status: ENABLED",
        "",
        "Embeddings:",
        "  - Conversation summaries: 2",
        "  - Exchange summaries: 3",
        "  - Exchanges: 3",
        "  - Total vectors: 8",
        "",
        "RAG Configuration:",
        "  rag_enabled: true",
        "  rag_conversation_limit: 3",
        "  rag_exchange_limit_per_conversation: 2",
        "  rag_min_similarity: 0.70",
        "  rag_recency_half_life_days: 0",
        "",
        "Last retrieval: 2 seconds ago (3 conversations, 1 exchange)",
    ]
    assert chat.rag([])[-1] == "Last retrieval: none yet in this session"


def test_rag_is_switched_off_and_on(home: Path, chat: WorkerCommands) -> None:
    assert chat.rag(["off"]) == ["RAG Status: DISABLED: nothing is recalled before an answer"]
    assert stored(home) == {"rag_enabled": False}
    assert chat.rag([])[0] == "RAG Status: DISABLED"
    assert chat.rag(["on"]) == ["RAG Status: ENABLED"]
    assert stored(home) == {"rag_enabled": True}


def test_rag_config_shows_every_setting(chat: WorkerCommands) -> None:
    assert chat.rag(["config"]) == [
        "RAG Configuration:",
        "  rag_enabled: true",
        "  rag_conversation_limit: 3",
        "  rag_exchange_limit_per_conversation: 2",
        "  rag_min_similarity: 0.70",
        "  rag_recency_half_life_days: 0",
        "",
        "To update: /rag set <key> <value>",
        "Example: /rag set rag_conversation_limit 5",
    ]


@pytest.mark.parametrize(
    ("key", "value", "updated", "effect"),
    [
        ("rag_conversation_limit", "5", "5", "retrieve up to 5 related conversations per query"),
        ("conversation_limit", "1", "1", "retrieve up to 1 related conversation per query"),
        ("rag_exchange_limit_per_conversation", "4", "4", "show up to 4 exchanges"),
        ("rag_min_similarity", "0.5", "0.50", "at least 0.50 similar"),
        ("rag_recency_half_life_days", "30", "30", "30 days old half as much"),
        ("rag_recency_half_life_days", "0", "0", "no longer prefer what is new"),
        ("rag_enabled", "false", "false", "RAG is disabled now"),
    ],
)
def test_rag_set_changes_a_setting_for_good(
    home: Path, chat: WorkerCommands, key: str, value: str, updated: str, effect: str
) -> None:
    named = key if key.startswith("rag_") else f"rag_{key}"
    first, second = chat.rag(["set", key, value])
    assert first == f"Updated: {named} = {updated}"
    assert effect in second
    assert stored(home) == {named: json.loads(value)}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("rag_conversation_limit", "0", "it must be between 1 and 20"),
        ("rag_conversation_limit", "-3", "it must be between 1 and 20"),
        ("rag_conversation_limit", "many", "cannot be 'many'"),
        ("rag_min_similarity", "1.5", "it must be between 0 and 1"),
        ("rag_enabled", "perhaps", "cannot be 'perhaps'"),
        ("embedder", "none", "Use rag_enabled"),
        ("", "1", "Use rag_enabled"),
    ],
)
def test_rag_set_refuses_what_does_not_fit(
    home: Path, chat: WorkerCommands, key: str, value: str, why: str
) -> None:
    with pytest.raises(BadSetting, match=why):
        chat.rag(["set", key, value])
    assert stored(home) == {}


@pytest.mark.parametrize("words", [["set"], ["set", "rag_enabled"], ["maybe"], ["on", "now"]])
def test_other_words_after_rag_are_refused(chat: WorkerCommands, words: list[str]) -> None:
    with pytest.raises(BadInput, match="/rag "):
        chat.rag(words)


def test_a_stronger_setting_is_told_of(
    home: Path, chat: WorkerCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_RAG_ENABLED", "false")
    assert chat.rag(["on"])[-1] == (
        "Warning: RALPH_RAG_ENABLED overrides it: rag_enabled is false here"
    )
