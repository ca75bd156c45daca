"""What an answer costs, by a table of well-known models at their makers' own list prices.

Discounts (cached prompts, batches) are not counted, so a cost is at most too high. A model that
is not in the table has no price, rather than the price of one with a similar name.
"""

from __future__ import annotations

import re

import msgspec

_MILLION = 1_000_000
# A dated or floating version of a model costs what the model costs.
_VERSION = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")

# USD per million tokens, in and out, as listed at the end of 2025.
_LISTED = """
openai gpt-5.1 1.25 10
openai gpt-5 1.25 10
openai gpt-5-mini 0.25 2
openai gpt-5-nano 0.05 0.4
openai gpt-4.1 2 8
openai gpt-4.1-mini 0.4 1.6
openai gpt-4.1-nano 0.1 0.4
openai gpt-4o 2.5 10
openai gpt-4o-mini 0.15 0.6
openai o3 2 8
openai o3-mini 1.1 4.4
openai o4-mini 1.1 4.4
anthropic claude-opus-4-5 5 25
anthropic claude-opus-4-1 15 75
anthropic claude-opus-4-0 15 75
anthropic claude-opus-4 15 75
anthropic claude-sonnet-4-5 3 15
anthropic claude-sonnet-4-0 3 15
anthropic claude-sonnet-4 3 15
anthropic claude-haiku-4-5 1 5
anthropic claude-3-7-sonnet 3 15
anthropic claude-3-5-sonnet 3 15
anthropic claude-3-5-haiku 0.8 4
anthropic claude-3-haiku 0.25 1.25
"""


class Price(msgspec.Struct, frozen=True):
    """USD per million tokens."""

    in_usd: float
    out_usd: float

    def cost_usd(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """What so many tokens cost; None when it was not told how many there were."""
        if tokens_in is None or tokens_out is None:
            return None
        return (tokens_in * self.in_usd + tokens_out * self.out_usd) / _MILLION

    def __str__(self) -> str:
        return f"${self.in_usd:g} in, ${self.out_usd:g} out per million tokens"


FREE = Price(0.0, 0.0)


def list_price(maker: str, model: str) -> Price | None:
    """The maker's own price of a model; None when we do not know it."""
    return _table().get((maker, _VERSION.sub("", model)))


def _table() -> dict[tuple[str, str], Price]:
    rows = (line.split() for line in _LISTED.strip().splitlines())
    return {(maker, model): Price(float(i), float(o)) for maker, model, i, o in rows}
