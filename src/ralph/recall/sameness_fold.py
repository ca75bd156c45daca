"""What is taken out of a text of knowledge before it is read, and what is made one word.

Paths, ids, addresses, times and the lines of files are folded, as in an error's signature: they
differ whenever the same thing happens elsewhere. Versions, codes and amounts are kept.
"""

from __future__ import annotations

import re

# What stands between says no more about which problem it is.
_HEAD = 1000
_TAIL = 500
_TIME = (
    r"\b\d{4}[-/]\d{2}[-/]\d{2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?"
    r"|\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\b"
)
_PLACE = (
    r"\b(?:line|ln|column|col|char|position|process|pid|transaction|attempt|run|build|job|thread)"
    r"s?[ :#]{1,2}\d+(?:[:,-] ?\d+)*|#\d+\b"
)
_AUXILIARY = "can|does|do|is|are|will|would|should|must|has|have|be|may"
_PAST = "was|were|had|did|could"
# `The body never closed` tells how it was; `never close the body` is asked for.
_TOLD_NEVER = r"(?<=\w )never (?=\w{2,}[^\We]ed\b)"
_PAST_NOT = rf"\b(?:{_PAST}) (?:not|never)\b|\b(?:{_PAST})n't\b|{_TOLD_NEVER}"
_PRESENT_NOT = rf"\b(?:{_AUXILIARY}) not\b|\b(?:{_AUXILIARY}|ca|wo|need)n't\b|\bcannot\b"
# Each with what must stand in the text, in small letters, to be worth looking for.
_FOLDED = tuple(
    (needles.split("|"), re.compile(pattern, re.I), new)
    for needles, pattern, new in (
        ("'s", r"(?<=\w)'s\b", ""),
        ("-", r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", " "),
        (":|-|/", _TIME, " "),
        ("://", r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"`<>)\]]++", " "),
        (".|localhost", r"\b(?:\d{1,3}(?:\.\d{1,3}){3}|localhost)(?::\d+)?\b", " "),
        ("", r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b", " "),
        ("", _PLACE, " "),
        (".", r"(\.[a-z]{1,6})(?:(?::\d+)+(?![\w.])|\(\d+, ?\d+\))", r"\1 "),
        # Of a path the last name is kept: the folders are another machine's tomorrow.
        ("/|\\", r"(?<!@)(?:\b[a-z]:|~|\.{1,2})?(?:[\\/]?\b[\w.+$~-]++[\\/])++(?=[\w.@+$~-])", " "),
        ("i.e.|e.g.", r"\b(?:i\.e|e\.g)\.", " "),
        # What looks like a denial and is none.
        ("null", r"\b(?:is )?not[ -]?null\b", " nonnull "),
        ("forget", r"\b(?:not|never|don't) forget\b(?: to\b)?", " "),
        ("not ", r"(?<!do )\bnot (?:only|just|merely)\b", " "),
        # What is a denial in more than one word.
        (" of| than", r"\b(?:instead|in place|in lieu|ahead) of\b|\brather than\b", " insteadof "),
        ("no |any ", r"\b(?:no|any) (?:longer|more)\b|\bno need to\b", " nolonger "),
        ("stop", r"\bstop(?:s|ped)? (?=\w+ing\b)", " nolonger "),
        ("n't", r"\bn't\b", " avoid "),
        ("away |clear ", r"\b(?:stay|keep|steer) (?:away|clear) (?:from|of)\b", " avoid "),
        ("not|n't|never", _PAST_NOT, " wasnot "),
        ("not|n't", _PRESENT_NOT, " donot "),
    )
)
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4", "'"))


def worth_reading(text: str) -> str:
    """Without colours: the head, and the tail, where a traceback says what happened."""
    text = _COLOURS.sub("", text).translate(_APOSTROPHES)
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def folded(text: str) -> str:
    """The text as it would be told of the same thing elsewhere, each denial one word."""
    small = text.lower()
    for needles, pattern, new in _FOLDED:
        if any(needle in small for needle in needles):
            text = pattern.sub(new, text)
    return text
