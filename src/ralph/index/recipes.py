"""What known embedding models want around a text, and how much of one they read."""

from __future__ import annotations

import hashlib
import re

import msgspec

_FOR_SEARCHING = "Represent this sentence for searching relevant passages: "


class Recipe(msgspec.Struct, frozen=True):
    """What is put before a question and before a passage, and the longest text in tokens."""

    query: str = ""
    passage: str = ""
    window_tokens: int = 512


_NOMIC = Recipe("search_query: ", "search_document: ", 2048)
# By the model's name without its owner and tag; the longest beginning that fits counts.
_RECIPES = {
    "": Recipe(),
    "all-minilm": Recipe(window_tokens=256),
    "bge-": Recipe(_FOR_SEARCHING),
    "bge-m3": Recipe(window_tokens=8192),
    "embeddinggemma": Recipe("task: search result | query: ", "title: none | text: ", 2048),
    "mxbai-embed-large": Recipe(_FOR_SEARCHING),
    "nomic-embed-text": _NOMIC,
    "nomic-embed-text-v2": Recipe(_NOMIC.query, _NOMIC.passage),
    "snowflake-arctic-embed": Recipe(_FOR_SEARCHING),
    "snowflake-arctic-embed2": Recipe("query: ", window_tokens=8192),
    "text-embedding-3": Recipe(window_tokens=8191),
    "text-embedding-ada-002": Recipe(window_tokens=8191),
}


def recipe_for(model: str) -> Recipe:
    """How texts are given to this model; an unknown one gets them as they are."""
    name = model.rpartition("/")[2].partition(":")[0].lower()
    return _RECIPES[max((known for known in _RECIPES if name.startswith(known)), key=len)]


def plain_name(model: str) -> str:
    """A model's name as it may stand in an identity: short, and of plain characters."""
    if re.fullmatch(r"[\w./:+-]{1,48}", model, re.ASCII):
        return model
    return hashlib.sha256(model.encode(errors="replace")).hexdigest()[:12]
