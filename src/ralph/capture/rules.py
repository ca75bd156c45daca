"""The tables of `rules.txt`: how tools word their errors, what clients say, what words mean."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def _sections() -> dict[str, list[str]]:
    text = Path(__file__).with_name("rules.txt").read_text(encoding="utf-8")
    macros, _, text = text.partition("\n[macros]\n")[2].partition("\n\n")
    for macro in macros.split("\n"):
        name, meaning = macro.split(" ", 1)
        text = text.replace(f"<{name}>", meaning)
    found: dict[str, list[str]] = {}
    for section in f"\n{text}".split("\n[")[1:]:
        name, *lines = section.split("\n")
        found[name.removesuffix("]")] = [line for line in lines if line and line[0] != "#"]
    return found


def rows(section: str) -> list[str]:
    """The lines of a section."""
    return _sections()[section]


def pattern(section: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """A pattern of all that a section lists."""
    return re.compile("|".join(rows(section)), flags)


def words(section: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """The same for whole words."""
    return re.compile(rf"\b(?:{'|'.join(rows(section))})\b", flags)


def names(section: str) -> frozenset[str]:
    """The names that a section lists."""
    return frozenset(" ".join(rows(section)).split())
