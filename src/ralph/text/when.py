"""The time a question speaks of, where that is plain: "last week", "in March", "since 2025".

Conservative on purpose: a range that nobody meant hides answers, which is worse than no range.
Quoted words and code are never read as dates, nor are dates in a pasted log; what may as well be
a plan ("what should I do on Monday") or a habit ("every March") is left alone. Where an
expression is vague, its range is wide.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import cache
from typing import Literal, NamedTuple

from ralph.text.asking import (
    CLAUSE,
    SENTENCE,
    around,
    asks,
    has_modal,
    has_past,
    is_about_talk,
    is_habit,
    is_ours,
    looks_back,
)
from ralph.text.dates import KINDS, MONTHS, WEEKDAYS, Days, days_of, kind_of, names_a_year
from ralph.text.words import compiled

# A longer text is no question but a prompt with things pasted into it.
LONGEST_QUESTION = 500

Relation = Literal["before", "after", "since"]


class Range(NamedTuple):
    """From the first day to the last, both included; None where it is open.

    `spoken` where the question asks what was said then. Elsewhere it may ask what was done then,
    and talked about on another day: such a range can prefer answers, but not rule them out.
    """

    first: date | None
    last: date | None
    words: str
    rest: str
    spoken: bool = False


class _Find(NamedTuple):
    first: date | None
    last: date | None
    start: int
    end: int


_PREPOSITIONS: dict[str, str] = {
    "since": r"since|starting (?:in|on|from)|seit|ab",
    "after": r"after|nach",
    "from": r"from|von|vom",
    "before": r"before|prior to|vor(?: dem)?",
    "until": r"until|till|up to|bis(?: zum)?",
    "in": r"back in|in|during|throughout|within|over|im|während",
    "for": r"for|of",
    "on": r"on|(?<!\d )am(?! \w+day\b)",
    "no": r"by|as of|due|next|every|each|per|half|like|such as|the first|the second|nächsten|jeden",
}
_DAYS_OF_A_MONTH = {"month day", "day month"}
# What may stand without a preposition, and what after which one.
_BARE = {"iso", *_DAYS_OF_A_MONTH, "part", "ago", "vor", "weekend", "last", "last weekday"}
_BARE |= {"near", "this"}
_RELATIVE = {"ago", "vor", "rolling", "past", "weekend", "last", "this", "last weekday", "near"}
_MONTHLY = {"iso month", "month", "part", "year"}
_ALLOWED: dict[str, set[str]] = {
    "": _BARE,
    "in": _MONTHLY | {"rolling", "past", "last", "this", "weekend", "ago", "near"},
    "on": {"iso", "dotted", *_DAYS_OF_A_MONTH, "weekday", "last weekday"},
    "for": _BARE,
    "since": set(KINDS),
    "from": set(KINDS),
    **dict.fromkeys(("after", "before", "until"), set(KINDS) - {"weekday", "past"}),
}

_QUOTED = r"`[^`]*`|\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u201e[^\u201c]*\u201c|(?<!\w)'[^']+'(?!\w)"
# Words after which a number that looks like a date is a name.
_NAMED = (
    r"(?i)\b(?:version|api|tag|release|model|snapshot|nightly|edition|migration|image|build|file"
    r"|branch|table|id|rfc|pep|cve|issue|ticket|v)\W{0,2}\Z"
)
# What may follow a year or a month written small, so that it is neither "2000 ms" nor "may fail".
_ENDS = (
    r"(?i)'?\s*(?:\Z|[,.;:!?)]|(?:and|or|but|about|with|on|for|that|when|what|which|who|how|did|do"
    r"|does|was|were|we|i|you|they|he|she|it|the|my|our|have|had|is|are|to|at|by|as|regarding|und"
    r"|oder|aber|über|mit|wir|ich|haben|hat|war|wurde|das|die|der)\b)"
)
# What makes an expression part of a name, a path, or a line of a log.
_EDGE = r"(?![\w/\\@%\[(-]|[.:]\w| \d\d?:\d\d:\d\d)"
_TIMES = """
today yesterday week weeks month months year years quarter weekend days ago night morning afternoon
evening hours past gestern vorgestern heute woche wochen monat monate monaten monats jahr jahre
jahren jahres quartal wochenende tagen tage tag stunden minuten
"""
_HINTS = frozenset(MONTHS) | frozenset(WEEKDAYS) | frozenset(_TIMES.split())
# Of the length of what they stand for.
_PLAIN = {0x2018: "'", 0x2019: "'", 0x2013: "-", 0x2014: "-", 0xA0: " "}

_RELATIONS: dict[str, Relation] = {
    "before": "before",
    "prior to": "before",
    "vor": "before",
    "after": "after",
    "nach": "after",
    "since": "since",
    "ever since": "since",
    "seit": "since",
}
_EVENT = (
    r"(?i)\b(?P<said>before|prior to|after|ever since|since|vor|nach|seit) (?P<event>"
    r"(?:the|our|my|that|we|i|you|they) (?:[^,.;:?!()]|[.:](?=\w))*[^\W_](?=[,.;:?!)]|\Z)"
    # German puts the verb last: the event ends with its noun.
    r"|(?:dem|der|unserem|unserer|meinem|meiner)"
    r"(?-i:(?: [a-zäöüß]+e[nmr])? [A-ZÄÖÜ][\w-]*(?: [A-Z]\w*)*))"
)
_REASON = (
    r"(?i)\b(?:is|are|isn't|aren't|will|can|can't|could|should|have|has|\w+'re|i'm|ist|sind|kann"
    r"|you (?:said|mentioned|told))\b"
)
_EVENT_ENDS = (
    r"(?i) (?:about|regarding|concerning|with respect to|in terms of"
    r"|(?:what|who|which|how|why|where|when)(?: \w+)? (?:did|was|were|have|had|do|we|i)"
    r"|did|was there)\b"
)


@cache
def _one() -> re.Pattern[str]:
    """A preposition and an expression."""
    before = "|".join(f"(?P<{name}>{words})" for name, words in _PREPOSITIONS.items())
    return re.compile(
        rf"(?<![\w./:@#$%=+\\-])(?:(?:{before}) )?(?P<words>{_any()})(?:'s?(?!\w))?"
        rf"(?P<onward> onwards?| on(?=[,.;?!]|\Z))?{_EDGE}",
        re.I,
    )


@cache
def _two() -> re.Pattern[str]:
    """Two expressions, and what makes a range of them."""
    day = r"(?:the )?\d\d?(?:st|nd|rd|th|\.)?"
    return re.compile(
        rf"(?<![\w./:@-])(?:between|zwischen|from|von|vom|starting) (?P<a>{_any()}|{day})"
        r"(?: ?- ?| (?:and|to|until|till|through|und|bis)(?: zum| to)? )"
        rf"(?P<b>{_any()}|{day}){_EDGE}",
        re.I,
    )


def _any() -> str:
    return "|".join(
        re.sub(r"\(\?P<\w+>", "(?:", pattern.replace("(?P=dash)", "[-/]"))
        for pattern in KINDS.values()
    )


def time_range(question: str, today: date) -> Range | None:
    """The days a question asks about, and the question without them; None where none is plain."""
    today = date(today.year, today.month, today.day)  # a time of day would not compare
    text = " ".join(question.split())
    if len(text) > LONGEST_QUESTION or not _hinted(text):
        return None
    # Quoted words keep their length and lose their meaning.
    seen = text.translate(_PLAIN)
    seen = compiled(_QUOTED).sub(lambda quoted: "\x00" * len(quoted[0]), seen)
    finds = list[_Find]()
    ranged = compiled(r"(?i)\b(?:between|zwischen|from|vo[nm]|starting) ").search(seen)
    for pair in _two().finditer(seen) if ranged else ():
        if (days := _between(pair, seen, today)) is not None:
            finds.append(_Find(*days, pair.start(), pair.end()))
        # Understood or not: half of a range is none.
        seen = seen[: pair.start()] + "\x00" * len(pair[0]) + seen[pair.end() :]
    finds += [find for found in _one().finditer(seen) if (find := _single(found, seen, today))]
    finds.sort(key=lambda find: find.start)
    return _joined(finds, text, today)


def event_range(question: str) -> tuple[Relation, str] | None:
    """The event that a question about the past is tied to ("before the release"), undated."""
    text = " ".join(question.split()).translate(_PLAIN)
    found = compiled(_EVENT).search(text) if len(text) <= LONGEST_QUESTION else None
    if found is None:
        return None
    event = compiled(_EVENT_ENDS).split(found["event"])[0]
    sentence = around(text, *found.span(), SENTENCE)
    others = sentence.replace(event, "")
    if not asks(sentence, text) or not has_past(others) or has_modal(others):
        return None
    # "Since the cache is stale, ..." gives a reason, no time; a date is for `time_range`.
    if len(event.split()) > 9 or compiled(_REASON).search(event) or _hinted(event):
        return None
    return _RELATIONS[found["said"].lower()], event


def _hinted(text: str) -> bool:
    """Cheap: nearly no question speaks of time."""
    return "20" in text or not _HINTS.isdisjoint(re.split(r"[^\w]+", text.lower()))


def _between(pair: re.Match[str], text: str, today: date) -> Days | None:
    """The days from the one expression to the other, years filled in from each other."""
    a, b = pair["a"], pair["b"]
    kinds = [known[0] if (known := kind_of(words)) else "" for words in (a, b)]
    if not kinds[0] and kinds[1] == "day month":  # from the 3rd to the 10th of March
        a = re.sub(r"\d+(?:st|nd|rd|th|\.)?", re.sub(r"(?i)the ", "", a), b, count=1)
    elif not kinds[1] and kinds[0] == "month day":  # from March 3 to 10
        b = re.sub(r"\b\d\d?(?:st|nd|rd|th)?\b", re.sub(r"(?i)the |\.", "", b), a, count=1)
    elif "" in kinds or {"weekday", "rolling", "past"} & set(kinds):
        return None
    if "year" in kinds and not compiled(_ENDS).match(text, pair.end()):
        return None
    if not asks(around(text, *pair.span(), SENTENCE), text):
        return None
    if not (
        names_a_year(a) or names_a_year(b) or looks_back(around(text, *pair.span(), CLAUSE), text)
    ):
        return None
    if names_a_year(a) and not names_a_year(b) and (begin := days_of(a, today)):
        b = f"{b} {begin[0].year}"
        if (end := days_of(b, today)) and end[1] < begin[0]:
            b = f"{b[:-5]} {begin[0].year + 1}"
    end = days_of(b, today)
    begin = days_of(a, today, end[0] if end else None)
    if begin is None or end is None:
        return None
    return min(begin[0], end[0]), max(begin[1], end[1])


def _single(found: re.Match[str], text: str, today: date) -> _Find | None:
    """The days of one expression after its preposition, if it is plain that they are meant."""
    said = next((name for name in _PREPOSITIONS if found[name]), "")
    words = found["words"]
    known = kind_of(words)
    days = days_of(words, today)
    if known is None or days is None or said == "no":
        return None
    kind, parts = known
    allowed = _ALLOWED[said]
    if kind not in allowed and not (
        (kind == "month" and (parts["last"] or (parts["year"] and said in {"", "for"})))
        or (kind in {"rolling", "past"} and found.start() == 0)
        or (kind == "past" and not said)
    ):
        return None
    if not _meant(kind, parts, said, found, text):
        return None
    first, last = days
    start, end = found.start(), found.end()
    match said:
        case "since":
            return _Find(first, None, start, end)
        case "from" if found["onward"] or kind not in _RELATIVE | {"weekday"}:
            return _Find(first, None, start, end)
        case "after":
            return _Find(last + timedelta(days=1), None, start, end)
        case "before":
            return _Find(None, first - timedelta(days=1), start, end)
        case "until":
            return _Find(None, last, start, end)
    return _Find(None if first == date.min else first, last, start, end)


def _meant(kind: str, parts: re.Match[str], said: str, found: re.Match[str], text: str) -> bool:
    """Whether these words ask for a time that is over, and for nothing else."""
    start, end = found.span()
    sentence = around(text, start, end, SENTENCE)
    clause = around(text, start, end, CLAUSE)
    if not asks(sentence, text):
        return False
    if kind in _RELATIVE and text.startswith((" of ", " des ", " der "), end):
        return False  # the last week of March
    if not said and compiled(r" ?(?:-|to|through|until|bis) ?\d").match(text, end):
        return False  # half of a range
    if kind in {"iso", "iso month", "dotted", "year"} and compiled(_NAMED).search(text[:start]):
        return False
    if kind == "year":
        return compiled(_ENDS).match(text, end) is not None
    which = parts.groupdict().get("which") or ""
    if kind == "this" or which.lower() == "this" or parts[0].lower() in {"today", "heute"}:
        return said == "from" or len(text.split()) < 5 or is_ours(clause)
    yearless = not names_a_year(parts[0])
    if (yearless or kind == "weekday") and (is_habit(text) or not looks_back(clause, text)):
        return False
    return not yearless or _plain_month(kind, parts, said, text, found)


def _plain_month(
    kind: str, parts: re.Match[str], said: str, text: str, found: re.Match[str]
) -> bool:
    """A month without its year: "may" and "march" are verbs, "dec" and "mar" anything."""
    name = parts["month"]
    if name == "MAY":
        return False
    small = not name.istitle() and (len(name) < 5 or name.lower() == "march")
    if kind == "month":
        if said == "from" and name.lower() in {"april", "june", "may", "august"}:
            return bool(found["onward"])  # from April, who wrote it
        return not small or compiled(_ENDS).match(text, found.end()) is not None
    if kind == "day month" and not said and not parts["nth"] and found.start() > 0:
        return False  # "Windows 10 March update"
    return not small or said != ""


def _joined(finds: list[_Find], text: str, today: date) -> Range | None:
    """One range of all that was found: what is open on one side each meets, the rest is united."""
    finds = [find for find in finds if find.first is None or find.first <= today]
    if not finds:
        return None
    firsts = [find.first for find in finds if find.first]
    lasts = [find.last for find in finds if find.last]
    halves = all(find.first is None or find.last is None for find in finds)
    if halves and firsts and lasts:
        first, last = max(firsts), min(lasts)
        if first > last:
            return None
        bounds: tuple[date | None, date | None] = first, last
    else:
        bounds = (
            min(firsts) if len(firsts) == len(finds) else None,
            max(lasts) if len(lasts) == len(finds) else None,
        )
    if bounds == (None, None):
        return None
    rest, at = "", 0
    for find in finds:
        between = text[at : find.start]
        rest += " " if at and between in {" and ", " or ", " und ", " oder "} else f"{between} "
        at = find.end
    rest = compiled(r" +([,.;:?!])").sub(r"\1", " ".join(f"{rest}{text[at:]}".split()))
    words = ", ".join(text[find.start : find.end] for find in finds)
    rest = rest.lstrip(",.;: ").strip() if rest.strip(",.;:?! ") else ""
    return Range(*bounds, words, rest, is_about_talk(text))
