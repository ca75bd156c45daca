"""Facets: what a passage is of, so that a question can leave out what is of something else."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

# By name; a passage that has no value for a facet it names fits every value asked for.
Facets = Mapping[str, Sequence[str]]
# By name; a passage fits that has one of these values, or none. No values at all: every one fits.
Only = Mapping[str, Collection[str]]


def facet_tokens(facets: Facets) -> list[str]:
    """One token a value, and one for each facet that has no value."""
    return [
        _token(name, value) for name, values in sorted(facets.items()) for value in values or ("",)
    ]


def wanted_tokens(only: Only | None) -> tuple[tuple[str, ...], ...]:
    """For each facet the tokens of which a passage must have one."""
    return tuple(
        tuple(_token(name, value) for value in (*sorted(values), ""))
        for name, values in sorted((only or {}).items())
        if values
    )


def fits(facets: Facets, only: Only | None) -> bool:
    """Whether a passage with these facets is asked for."""
    held = set(facet_tokens(facets))
    return all(held.intersection(group) for group in wanted_tokens(only))


def _token(name: str, value: str) -> str:
    # A hash, because a value may hold any character; no word of a text looks like it.
    told = f"{name}={value}".encode(errors="surrogatepass")
    return f"f{hashlib.sha256(told).hexdigest()[:20]}"
