"""The tables of `rules.txt`: how tools word their errors, what clients say, what words mean."""

from __future__ import annotations

import re
from functools import cache

from ralph.text.tokens import table


def rows(section: str) -> list[str]:
    """The lines of a section."""
    return table(__file__, "rules.txt")[section]


@cache
def pattern(section: str) -> re.Pattern[str]:
    """A pattern of all that a section lists."""
    return re.compile("|".join(rows(section)))


@cache
def words(section: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """The same for whole words."""
    return re.compile(rf"\b(?:{'|'.join(rows(section))})\b", flags)


@cache
def names(section: str) -> frozenset[str]:
    """The names that a section lists."""
    return frozenset(" ".join(rows(section)).split())
