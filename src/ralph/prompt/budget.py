"""Fitting sections into a budget: what must be there stays, the rest goes by what it is worth."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ralph.text.estimate import estimate_tokens


class Section(msgspec.Struct, frozen=True):
    """A part of the prompt. `worth` 0 must be there; of the others the smallest number stays."""

    name: str
    text: str
    worth: int = 0


class Placed(msgspec.Struct, frozen=True):
    """What became of a section: its tokens, and why it is not there if it is not."""

    name: str
    tokens: int
    left_out: str | None = None


class Prompt(msgspec.Struct, frozen=True):
    """The text to send, and how its budget was spent."""

    text: str
    tokens: int
    budget_tokens: int
    sections: tuple[Placed, ...]

    def has(self, name: str) -> bool:
        """Whether the section found room."""
        return any(one.name == name and one.left_out is None for one in self.sections)


def fit(sections: Sequence[Section], *, budget_tokens: int) -> Prompt:
    """The sections in their order; those that do not fit are left out, the least worth first."""
    filled = [section for section in sections if section.text.strip()]
    tokens = {section.name: estimate_tokens(section.text) for section in filled}
    spent = sum(tokens[section.name] for section in filled if section.worth == 0)
    kept = {section.name for section in filled if section.worth == 0}
    for section in sorted(filled, key=lambda one: one.worth):
        if section.worth and spent + tokens[section.name] <= budget_tokens:
            spent += tokens[section.name]
            kept.add(section.name)
    text = "\n".join(section.text.strip() + "\n" for section in filled if section.name in kept)
    placed = tuple(
        Placed(
            section.name,
            tokens[section.name],
            None if section.name in kept else f"over the budget of {budget_tokens} tokens",
        )
        for section in filled
    )
    return Prompt(text, estimate_tokens(text), budget_tokens, placed)
