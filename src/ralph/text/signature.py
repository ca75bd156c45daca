"""The signature of an error message: what stays the same when it happens again elsewhere.

Numbers, paths, ids, addresses, times and durations are folded; error codes, exit codes and the
names in quotes are not, because they tell one error from another.
"""

from __future__ import annotations

import re

LONGEST = 300
_READ = 2000

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I)
_TIME = re.compile(
    r"\b\d{4}[-/]\d{2}[-/]\d{2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?"
    r"|\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?\b"
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"`<>)\]]++", re.I)
_HOST = re.compile(r"\b(?:\d{1,3}(?:\.\d{1,3}){3}|localhost)(?::\d+)?\b")
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b", re.I)
# A hash has letters and digits mixed; a word has no digits, a number no letters.
_HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b", re.I)
_PATH = re.compile(
    r"(?:\b[a-z]:|~|\.{1,2})?(?:[\\/][\w.@+$~-]++)+[\\/]?"
    r"|\b[\w.@+$-]++(?:[\\/][\w.@+$~-]++)+[\\/]?",
    re.I,
)
_SOURCES = (
    "py|pyi|ipynb|js|jsx|ts|tsx|mjs|cjs|mts|cts|vue|svelte|rs|go|c|h|cc|cpp|cxx|hpp|hh|m|mm|java|kt"
    "|kts|scala|rb|erb|php|cs|fs|vb|swift|sh|bash|zsh|sql|html|css|scss|json|ya?ml|toml|xml|md|txt"
    "|lock|log|cfg|ini|ex|exs|erl|hs|lua|pl|pm|r|jl|dart|proto|gradle|tf"
)
_FILE = re.compile(rf"\b[\w@+$-]++(?:\.[\w@+$-]++){{0,4}}?\.(?:{_SOURCES})\b(?!\()", re.I)
_PLACE = re.compile(r"(?<=<path>)(?::\d+)+|(?<=<path>)\(\d+(?:,\s?\d+)*\)")
_WORDED_PLACE = re.compile(
    r"(?:,? ?(?:\bat|\bon|\bin|<path>)? ?)\b(?:line|ln|column|col|char|position|offset)s? ?:? ?\d+"
    r"(?:[:,-] ?\d+)*",
    re.I,
)
_DURATION = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|hours?|h)\b", re.I
)
# Kept as they are: TS2345, E0308, ERR_404, HTTP 500, exit code 137, SQLSTATE 23505, errno 13.
_CODE = re.compile(
    r"\b[A-Z]{1,8}[-_]?\d{3,5}\b(?![.\d])"
    r"|\b(?:HTTP(?:/[\d.]+)?|status(?: code)?|exit(?:ed)?(?: with)?(?: code| status)?|code|errno"
    r"|signal|SQLSTATE)[ :=\[]{1,2}\d{1,5}\b",
    re.I,
)
_APART = re.compile(r"[ :=\[]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SPACE = re.compile(r"\s+")


def signature(message: str) -> str:
    """The message with everything folded that may differ when the same error happens again."""
    text = _ANSI.sub("", message[:_READ])
    codes: list[str] = []

    def keep(match: re.Match[str]) -> str:
        found = match[0]
        # Words with digits (`user123`) are names, not codes, unless all in capitals.
        if not found.isupper() and not _APART.search(found):
            return found
        codes.append(found.lower())
        return f"\0{chr(0xE000 + len(codes) - 1)}\0"

    text = _UUID.sub("<id>", text)
    text = _TIME.sub("<time>", text)
    text = _URL.sub("<url>", text)
    text = _HOST.sub("<host>", text)
    text = _ADDRESS.sub("<address>", text)
    text = _PATH.sub("<path>", text)
    text = _FILE.sub("<path>", text)
    text = _PLACE.sub("", text)
    text = _WORDED_PLACE.sub(" ", text)
    text = _HASH.sub("<id>", text)
    text = _CODE.sub(keep, text)
    text = _DURATION.sub("<duration>", text)
    text = _NUMBER.sub("<n>", text)
    for number, code in enumerate(codes):
        text = text.replace(f"\0{chr(0xE000 + number)}\0", code)
    text = _SPACE.sub(" ", text).strip(" .:;,-!").lower()
    return text[:LONGEST]
