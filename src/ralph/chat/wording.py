"""How counts, costs and settings are worded in what the commands answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ralph.chat.indexed import Counts, kind_of, price_per_char
from ralph.chat.working import Backlog

# Which kinds of embeddings a rebuild takes, by what it is asked for.
PARTS: dict[str, frozenset[str]] = {
    "": frozenset({"conversations", "summaries", "exchanges", "documents"}),
    "conversations": frozenset({"conversations"}),
    "exchanges": frozenset({"summaries", "exchanges"}),
}
_KINDS = {
    "conversations": "Conversation summaries",
    "summaries": "Exchange summaries",
    "exchanges": "Exchanges",
    "documents": "Sections of documents",
}


def by_kind(counts: Counts, indent: str) -> list[str]:
    """A line for each kind; those that there are none of and nobody asks for are left out."""
    always = ("conversations", "summaries")
    found = {kind: getattr(counts, kind) for kind in _KINDS}
    return [
        f"{indent}{_KINDS[kind]}: {count:,}"
        for kind, count in found.items()
        if count or kind in always
    ]


def rebuild_question(part: str, counts: Counts, memory: Backlog, chosen: Sequence[Any]) -> str:
    """What a rebuild will delete, make and cost, and how to agree to it."""
    kinds = PARTS[part]
    existing = sum(getattr(counts, kind) for kind in kinds)
    wanted = [kind_of(one) for one in chosen]
    what = {"": "ALL", "conversations": "all conversation", "exchanges": "all exchange"}[part]
    lines = [
        f"WARNING: This will delete and recreate {what} embeddings.",
        "This operation will:",
        f"  - Delete {existing:,} existing embeddings",
        *(
            f"  - Re-embed {wanted.count(kind):,} {_KINDS[kind].lower()}"
            for kind in _KINDS
            if kind in kinds and (wanted.count(kind) or kind != "documents")
        ),
        f"  - Cost {_cost(memory, chosen)}",
        "",
        "Type 'yes' to confirm: ",
    ]
    return "\n".join(lines)


def _cost(memory: Backlog, chosen: Sequence[Any]) -> str:
    settings = memory.shelf.settings
    price = price_per_char(settings)
    if price == 0.0:
        return f"nothing (the embedder {settings.embedder} asks no money)"
    if price is None:
        return f"an unknown amount ({settings.openai_model} at {settings.openai_base_url})"
    cut = memory.target().cut
    chars = sum(len(passage.embed) for record in chosen for passage in cut(record))
    return f"approximately ${chars * price:.2f} (OpenAI API)"


def effect(key: str, value: Any) -> str:
    """What a setting of retrieval does from now on."""
    match key:
        case "rag_conversation_limit":
            return f"RAG will now retrieve up to {some(value, 'related conversation')} per query."
        case "rag_exchange_limit_per_conversation":
            return f"RAG will now show up to {some(value, 'exchange')} of each conversation."
        case "rag_min_similarity":
            return f"RAG will now retrieve what is at least {value:.2f} similar."
        case "rag_recency_half_life_days":
            if not value:
                return "RAG will no longer prefer what is new."
            return f"RAG will now count what is {value:g} days old half as much."
    return f"RAG is {'enabled' if value else 'disabled'} now."


def written(key: str, value: Any) -> str:
    """A setting's value as the commands write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.2f}" if key == "rag_min_similarity" else f"{value:g}"


def some_items(count: int) -> str:
    """`1 item`, `2 items`."""
    return some(count, "item")


def some(count: int, word: str) -> str:
    """`1 exchange`, `1,247 exchanges`."""
    return f"{count:,} {word if count == 1 else word + 's'}"


def seconds(number: float) -> str:
    """How long, in words."""
    whole = round(number)
    if whole < 120:
        return some(whole, "second")
    return some(whole // 60, "minute")
