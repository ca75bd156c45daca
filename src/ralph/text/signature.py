"""The signature of an error message: the part that stays the same when the error happens again.

Also the names in a message, and whether a message or a solution says anything specific.

Numbers, paths, ids, addresses, times and durations become placeholders; error codes, exit codes
and quoted names stay, because they tell one error from another.
"""

from __future__ import annotations

import re
from functools import cache

from ralph.text.tokens import compiled, rule, table, word_set

LONGEST = 300
# Two signatures longer than this are the same error if one begins with the other.
_LONG_ENOUGH = 25
_READ = 2000

# Replacements that are not placeholders.
_NOTHING = {"nothing": "", "blank": " "}


@cache
def _folds(section: str) -> list[tuple[re.Pattern[str], str]]:
    """Return the patterns of what may differ and their placeholders, in order."""
    rows = (row.split(" | ", 1) for row in table(__file__, "rules.txt")[section])
    return [(compiled(row[1]), _NOTHING.get(row[0], f"<{row[0]}>")) for row in rows]


def signature(message: str) -> str:
    """Return the message with placeholders for what may differ when the error happens again."""
    codes: list[str] = []

    def keep(match: re.Match[str]) -> str:
        found = match[0]
        # Words with digits (`user123`) are names, not codes, unless all in capitals.
        if not found.isupper() and not compiled(r"[ :=\[]").search(found):
            return found
        codes.append(found.lower())
        return f"\0{chr(0xE000 + len(codes) - 1)}\0"

    text = message[:_READ]
    for pattern, new in _folds("folds"):
        text = pattern.sub(new, text)
    text = rule("error code").sub(keep, text)
    for pattern, new in _folds("number folds"):
        text = pattern.sub(new, text)
    for number, code in enumerate(codes):
        text = text.replace(f"\0{chr(0xE000 + number)}\0", code)
    return " ".join(text.split()).strip(" .:;,-!").lower()[:LONGEST]


def same_error(one: str, other: str) -> bool:
    """Return whether two signatures are of the same error, with more or less text after it."""
    if one == other:
        return True
    long_enough = min(len(one), len(other)) > _LONG_ENOUGH
    return long_enough and (one.startswith(other) or other.startswith(one))


# -- Whether a message or a solution says anything specific.


def names_in(message: str) -> frozenset[str]:
    """Return the names in an error: modules, tables, options, commands, quoted or after a colon."""
    found = rule("names in errors").findall(message[:_READ])
    return frozenset(name.strip(".:").lower() for names in found for name in names if name)


def tells(message: str) -> bool:
    """Whether a message says anything that tells one failure from another."""
    folded = signature(message)  # a quoted path is not a name: it differs elsewhere
    plain = rule("folded").sub(" ", folded)
    return (
        bool(names_in(folded))
        or len(set(rule("signature word").findall(plain)) - word_set("common in errors")) >= 2
    )


def is_solution(text: str) -> bool:
    """Whether a text says what was done; "Done it." does not."""
    return not word_set("empty solution").issuperset(compiled(r"\w+").findall(text.lower()))
