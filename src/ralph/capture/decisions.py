"""What the agent says it chose, and why: only plain statements, in its own words.

A question, a possibility, a quotation or a piece of code is not a decision; better to miss one.
"""

from __future__ import annotations

import re

from ralph.records.iteration import Decision

LONGEST = 300
_READ = 64_000

_FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.M)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`\"(-])|\n+|(?<=\w); (?=I )")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")

_PEOPLE = r"(?:I|[Ww]e)(?:'ve| have|'m| am|'re| are)?(?: therefore| then| also| now| ultimately)?"
_VERSUS = r"(?:instead of|rather than|in favou?r of|over)"
_WHY = (
    r"(?:because|since|so that|so|to avoid|to prevent|to keep|in order to|due to|given that"
    r"|as (?:it|this|they|we)|which (?:avoids|keeps|prevents|means))"
)
_DO = (
    r"(?:use|using|go with|going with|keep|keeping|stick with|stay with|switch to|replace|store|put"
    r"|implement|make|move|drop|skip|leave|write|build|model|represent|return|pass|handle|split)"
)

_CHOSE = r"(?:decided|chose|chosen|opted|elected|picked|settled on|went with)"
_WILL = r"(?:'ll| will|'m going to| am going to|'re going to)"
_MAYBE_WE = r"(?:I |We |I've |We've )?"
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\*\*|__)?(?:(?:Design|Key|Technical|Architectur\w+|Implementation) )?[Dd]ecision"
        r"(?: \#?\d+)?(?:\*\*|__)?\s*[:\u2014]\s*(?:\*\*|__)?\s*(?P<d>[^\s*].+)$",
        rf"(?:.*?\b)?(?P<d>{_PEOPLE} {_CHOSE}\b.+)$",
        rf"(?:.*?\b)?(?P<d>(?:I|[Ww]e){_WILL} {_DO}\b.+?\b(?:{_VERSUS}|because|since)\b.+)$",
        rf"(?P<d>(?:I'm |We're |I am )?(?:[Gg]oing|[Ww]ent|[Ss]ticking) with .+? {_VERSUS} .+)$",
        rf"(?P<d>{_MAYBE_WE}(?:[Ss]witched|[Cc]hanged|[Mm]oved|[Mm]igrated) (?:\w+ )?"
        rf"from .+? to .+? {_WHY} .+)$",
        rf"(?P<d>{_MAYBE_WE}(?:[Uu]sed|[Uu]sing|[Cc]hose|[Pp]icked|[Kk]ept) .+? {_VERSUS} .+)$",
    )
)
_UNSURE = re.compile(
    r"\b(?:could|might|may|maybe|perhaps|would|should|whether|if(?![/-])|unless|consider(?:ing)?"
    r"|wonder|not decided|undecided|to be decided|needs? to decide|can decide|let me"
    r"|alternatively|(?:one|another) option|do you|shall)\b|n't decided|\?",
    re.I,
)
_OTHERS = re.compile(
    r"\b(?:says?|said|states?|reads|wrote|documents?|quot\w+|according to|the (?:user|team|author"
    r"|spec|readme|comment|docs?|memory|prompt|(?:previous|earlier) iteration))\b[^.]{0,60}$",
    re.I,
)
# How the agent goes about its work says nothing about the project.
_ABOUT_TOOLS = re.compile(
    r"\b(?:Read|Grep|Glob|Bash|Edit|Write|Task|Search|TodoWrite) tool\b|\b(?:one-liner|heredoc|sed"
    r"|grep|perl|offset and limit|tool call|sub-?agent|a different (?:command|approach))\b",
    re.I,
)
_SPLIT = re.compile(rf",?\s+(?:\u2014 |- )?(?P<why>{_WHY}(?= ).*)$", re.S)
# "decided to keep X because": what was decided, though it looks like a reason.
_CHOSEN = re.compile(rf"\b{_CHOSE}(?: not)?(?: to \w+)?")
_PLAIN_WHY = re.compile(r"^(?:because|since|due to|given that|so that)\s+", re.I)
_CHOICE = re.compile(
    rf"[Dd]ecision|{_CHOSE}|{_WILL} |[Gg]oing with|[Ss]ticking with|[Uu]s(?:ed|ing) |[Kk]ept "
    r"|[Cc]hose|[Pp]icked|ed (?:\w+ )?from "
)
_CUE = re.compile(
    r"decid|decision|chose|opted|elected|picked|settled|with|from|instead|rather|because|since",
    re.I,
)


def decisions_in(text: str) -> list[Decision]:
    """The decisions stated in a text, in order."""
    text = text[:_READ]
    if not _CUE.search(text):
        return []
    found: list[Decision] = []
    plain = _QUOTED_LINE.sub("", _FENCED.sub("\n", text))
    for raw in _SENTENCE.split(plain):
        sentence = _BULLET.sub("", raw).strip()
        if not 15 <= len(sentence) <= 1000 or not _CHOICE.search(sentence):
            continue
        if decision := _decision(sentence):
            found.append(decision)
    return found


def _decision(sentence: str) -> Decision | None:
    if _ABOUT_TOOLS.search(sentence):
        return None
    for pattern in _PATTERNS:
        match = pattern.match(sentence)
        if match is None:
            continue
        before = sentence[: match.start("d")]
        if before.count('"') % 2 or before.count("`") % 2 or _OTHERS.search(before):
            return None
        description, rationale = _apart(match["d"])
        # A doubt in the reason is a reason; a doubt in the choice is no choice.
        if "?" in sentence or _UNSURE.search(before) or _UNSURE.search(description):
            return None
        if len(description) < 12:
            return None
        return Decision(description, rationale or None)
    return None


def _apart(said: str) -> tuple[str, str]:
    said = said.strip().rstrip(".*_ ")
    chosen = _CHOSEN.search(said)
    split = _SPLIT.search(said, max(12, chosen.end() if chosen else 0))
    if split is None:
        return _cut(said), ""
    why = _PLAIN_WHY.sub("", split["why"]).strip()
    return _cut(said[: split.start()].rstrip(" ,")), _cut(why)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "\u2026"
