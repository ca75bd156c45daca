"""The signature of an error message: what stays the same when it happens again elsewhere.

Also which names it has, and whether it or its solution says anything of its own.

Numbers, paths, ids, addresses, times and durations are folded; error codes, exit codes and the
names in quotes are not, because they tell one error from another.
"""

from __future__ import annotations

import re

from ralph.text.tokens import compiled, rule, word_set

LONGEST = 300
_READ = 2000

_SOURCES = (
    "py|pyi|ipynb|js|jsx|ts|tsx|mjs|cjs|mts|cts|vue|svelte|rs|go|c|h|cc|cpp|cxx|hpp|hh|m|mm|java|kt"
    "|kts|scala|rb|erb|php|cs|fs|vb|swift|sh|bash|zsh|sql|html|css|scss|json|ya?ml|toml|xml|md|txt"
    "|lock|log|cfg|ini|ex|exs|erl|hs|lua|pl|pm|r|jl|dart|proto|gradle|tf"
)
# What may differ, and what stands for it; in this order.
_FOLDS = (
    (r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])", ""),
    (r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
    (
        r"\b\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d{1,2}:\d\d(?::\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}:?\d\d)?"
        r"|\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?\b",
        "<time>",
    ),
    (r"(?i)\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"`<>)\]]++", "<url>"),
    (r"\b(?:\d{1,3}(?:\.\d{1,3}){3}|localhost)(?::\d+)?\b", "<host>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<address>"),
    (
        r"(?i)(?:\b[a-z]:|~|\.{1,2})?(?:[\\/][\w.@+$~-]++)+[\\/]?"
        r"|\b[\w.@+$-]++(?:[\\/][\w.@+$~-]++)+[\\/]?",
        "<path>",
    ),
    (rf"(?i)\b[\w@+$-]++(?:\.[\w@+$-]++){{0,4}}?\.(?:{_SOURCES})\b(?!\()", "<path>"),
    (r"(?<=<path>)(?::\d+)+|(?<=<path>)\(\d+(?:,\s?\d+)*\)", ""),
    (
        r"(?i)(?:,? ?(?:\bat|\bon|\bin|<path>)? ?)\b(?:line|ln|column|col|char|position|offset)s?"
        r" ?:? ?\d+(?:[:,-] ?\d+)*",
        " ",
    ),
    # A hash has letters and digits mixed; a word has no digits, a number no letters.
    (r"(?i)\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b", "<id>"),
)
_NUMBERS = (
    (
        r"(?i)\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|hours?|h)\b",
        "<duration>",
    ),
    (r"\d+(?:[.,]\d+)*", "<n>"),
)


def signature(message: str) -> str:
    """The message with everything folded that may differ when the same error happens again."""
    codes: list[str] = []

    def keep(match: re.Match[str]) -> str:
        found = match[0]
        # Words with digits (`user123`) are names, not codes, unless all in capitals.
        if not found.isupper() and not compiled(r"[ :=\[]").search(found):
            return found
        codes.append(found.lower())
        return f"\0{chr(0xE000 + len(codes) - 1)}\0"

    text = message[:_READ]
    for pattern, new in _FOLDS:
        text = compiled(pattern).sub(new, text)
    text = rule("error code").sub(keep, text)
    for pattern, new in _NUMBERS:
        text = compiled(pattern).sub(new, text)
    for number, code in enumerate(codes):
        text = text.replace(f"\0{chr(0xE000 + number)}\0", code)
    return " ".join(text.split()).strip(" .:;,-!").lower()[:LONGEST]


# -- What a message or a solution says of its own.


_WORD = r"[^\W\d_]{3,}"
_FOLDED = r"<[a-z]+>"


def names_in(message: str) -> frozenset[str]:
    """What an error names: modules, tables, options, targets, commands, quoted or after a colon."""
    found = rule("names in errors").findall(message[:_READ])
    return frozenset(name.strip(".:").lower() for names in found for name in names if name)


def tells(message: str) -> bool:
    """Whether a message says anything by which one failure differs from another."""
    folded = signature(message)  # a path in quotes is no name: it differs elsewhere
    plain = compiled(_FOLDED).sub(" ", folded)
    return (
        bool(names_in(folded))
        or len(set(compiled(_WORD).findall(plain)) - word_set("common in errors")) >= 2
    )


def is_solution(text: str) -> bool:
    """Whether a text says what was done: "Done it." does not."""
    return not word_set("empty solution").issuperset(compiled(r"\w+").findall(text.lower()))
