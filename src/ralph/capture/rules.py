"""The tables of `rules.txt`: how tools word their errors, what clients say, what words mean."""

from __future__ import annotations

import re
from functools import cache

from ralph.text.tokens import table


def rows(section: str) -> list[str]:
    """Return the lines of a section."""
    return table(__file__, "rules.txt")[section]


@cache
def pattern(section: str) -> re.Pattern[str]:
    """Return one pattern for all lines of a section."""
    return re.compile("|".join(rows(section)))


@cache
def words(section: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Return one pattern for all lines of a section that matches whole words only."""
    return re.compile(rf"\b(?:{'|'.join(rows(section))})\b", flags)


@cache
def names(section: str) -> frozenset[str]:
    """Return the names in a section."""
    return frozenset(" ".join(rows(section)).split())
