"""The time a question asks about, where that is plain: "last week", "in March", "since 2025"."""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import cache
from typing import Literal, NamedTuple

from ralph.text.questions import (
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
from ralph.text.tokens import compiled

# -- Dates as people write them: one expression in, its days out.


Days = tuple[date, date]

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug"
            "|september sept sep|october oct|november nov|december dec"
        ).split("|"),
        1,
    )
    for name in names.split()
}
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAYS = {name: number for number, name in enumerate(_WEEKDAYS.split())}
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {name: number for number, name in enumerate(_NUMBERS.split(), 1)} | {"a": 1, "an": 1}
UNITS = ("minute", "hour", "day", "week", "month", "year")
# From how many units to how many a vague count reaches.
_VAGUE = {"couple": (1, 4), "few": (2, 8), "several": (2, 12)}
# Half a unit: "two weeks ago" is a day fourteen days back, or any day of that week.
_SLACK_DAYS = {"week": 4, "month": 16, "year": 183}
_ONE_DAY = timedelta(days=1)

_NAMES = "|".join(sorted(MONTHS, key=len, reverse=True))
_WEEKDAY = "|".join(WEEKDAYS)
_COUNT = r"\d{1,3}|" + "|".join(sorted(NUMBERS, key=len, reverse=True))
_SOME = r"(?:a )?(?:couple|few|several)(?: of)?"
_UNIT = "|".join(UNITS)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])"
_SHORT = "jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec"
_MONTH = rf"(?P<month>{_NAMES})\b(?:(?<=\b(?:{_SHORT}))\.)?"
_LAST = "last|past|previous"

# The kinds of expression, the longer before the shorter that it begins with.
KINDS = {
    "iso": rf"{_YEAR}(?P<dash>[-/])(?P<number>0[1-9]|1[0-2])(?P=dash){_DAY}",
    "iso month": rf"{_YEAR}-(?P<number>0[1-9]|1[0-2])",
    "part": (
        r"(?:the )?(?P<part>(?:very )?early|mid|late|beginning of|start of|middle of|end of)"
        rf"[- ](?:{_MONTH}(?:,? {_YEAR})?|(?P<only>20\d\d))"
    ),
    "month day": rf"{_MONTH} {_DAY}(?:st|nd|rd|th)?\b(?:,? {_YEAR})?",
    "day month": rf"(?:the )?{_DAY}(?P<nth>st|nd|rd|th)? (?:of )?{_MONTH}(?:,? {_YEAR})?",
    "month": rf"(?:(?P<last>{_LAST}) )?{_MONTH}(?:,? (?:of )?{_YEAR})?",
    "ago": (
        r"(?:(?P<bound>about|around|roughly|almost|nearly|more than|over|at least|less than|under)"
        rf" )?(?:(?P<low>{_COUNT}) ?(?:-|to|or|and) ?)?(?P<count>{_COUNT}|{_SOME}) "
        rf"(?P<unit>{_UNIT})s?(?P<more> or (?:two|three|so))? ago"
    ),
    "rolling": (rf"(?:the )?(?:{_LAST}) (?P<count>{_COUNT}|{_SOME}) (?P<unit>{_UNIT})s?"),
    "past": r"the past (?P<unit>day|week|month|year)",
    "weekend": (rf"(?:the )?(?P<which>{_LAST}|this) weekend|(?:over|at|during) the weekend"),
    "last": (
        rf"(?:the )?(?:{_LAST}) (?P<unit>week|month|year|quarter)"
        r"|the (?P<beforelast>week|month|year) before last(?! week)"
    ),
    "this": r"(?:in )?this (?P<unit>week|month|year|quarter)",
    "last weekday": rf"(?:{_LAST}) (?P<weekday>{_WEEKDAY})",
    "near": (
        r"(?:the )?(?P<days>day before yesterday|earlier today|today|yesterday(?: morning"
        r"| afternoon| evening| night)?|last night|this (?:morning|afternoon|evening))"
    ),
    "weekday": rf"(?P<weekday>{_WEEKDAY})",
    "year": r"(?:the year )?(?P<year>20[1-9]\d)",
}


def kind_of(words: str) -> tuple[str, re.Match[str]] | None:
    """Which kind of expression the words are, all of them, and its parts."""
    for name in KINDS:
        if found := compiled(KINDS[name], re.I).fullmatch(words):
            return name, found
    return None


def days_of(words: str, today: date, latest: date | None = None) -> Days | None:
    """The days an expression means; one without a year is the last that began by `latest`."""
    if (known := kind_of(words)) is None:
        return None
    try:
        return _days(*known, today, latest or today)
    except (ValueError, OverflowError):  # the 30th of February, 999 years ago
        return None


def names_a_year(words: str) -> bool:
    """Whether the expression says its year, or counts from today and needs none."""
    known = kind_of(words)
    if known is None or known[0] not in {"part", "month day", "day month", "month"}:
        return True
    return bool(known[1]["year"] or known[1].groupdict().get("only"))


def _days(kind: str, found: re.Match[str], today: date, latest: date) -> Days:
    parts = {name: value.lower() for name, value in found.groupdict().items() if value}
    match kind:
        case "iso":
            day = date(int(parts["year"]), int(parts["number"]), int(parts["day"]))
            return day, day
        case "iso month":
            return _month(int(parts["year"]), int(parts["number"]))
        case "part" | "month" | "month day" | "day month":
            return _named_days(parts, latest)
        case "ago":
            return _ago(parts, today)
        case "rolling" | "past":
            return _back(today, _counts(parts.get("count", "one"))[1], parts["unit"]), today
        case "weekend":
            return _weekend(parts.get("which", ""), today)
        case "last" | "this":
            return _calendar(kind, parts, today)
        case "last weekday" | "weekday":
            return _weekday(kind, WEEKDAYS[parts["weekday"]], today)
        case "year":
            return date(int(parts["year"]), 1, 1), date(int(parts["year"]), 12, 31)
    return _near(parts["days"], today)


def _month(year: int, month: int) -> Days:
    first = date(year, month, 1)
    return first, (first + 31 * _ONE_DAY).replace(day=1) - _ONE_DAY


def _named_days(parts: dict[str, str], latest: date) -> Days:
    """A month, a day of it or a part of it; or a part of a year."""
    if only := parts.get("only"):
        months = {"m": (4, 9), "l": (8, 12), "e": (1, 5)}[_third(parts["part"])]
        return date(int(only), months[0], 1), _month(int(only), months[1])[1]
    month, day = MONTHS[parts["month"]], int(parts.get("day", 1))
    if "year" in parts:
        year = int(parts["year"])
    elif parts.get("last"):
        # Last March is over: in March itself it is the one a year before.
        year = latest.year - (month >= latest.month)
    else:
        year = latest.year - ((month, day) > (latest.month, latest.day))
        if (month, day) == (2, 29):
            year -= year % 4
    if "day" in parts:
        return date(year, month, day), date(year, month, day)
    first, last = _month(year, month)
    match _third(parts["part"]) if "part" in parts else "":
        case "e":
            return first, first.replace(day=12)
        case "m":
            return first.replace(day=9), first.replace(day=22)
        case "l":
            return first.replace(day=19), last
    return first, last


def _third(words: str) -> str:
    """e(arly), m(id) or l(ate)."""
    word = words.removeprefix("very ").split()[0]
    return {"beginning": "e", "start": "e", "end": "l"}.get(word, word[0])


def _counts(words: str) -> tuple[int, int]:
    """How many units at least and at most."""
    for vague, counts in _VAGUE.items():
        if vague in words:
            return counts
    count = int(words) if words.isdecimal() else NUMBERS[words]
    return count, count


def _back(today: date, count: int, unit: str) -> date:
    """The day so many units before today."""
    if unit in {"month", "year"}:
        months = today.year * 12 + today.month - 1 - count * (12 if unit == "year" else 1)
        year, month = divmod(months, 12)
        first, last = _month(year, month + 1)
        return first.replace(day=min(today.day, last.day))
    days = {"minute": 1, "hour": -(-count // 24), "day": count, "week": 7 * count}[unit]
    return today - timedelta(days=days)


def _ago(parts: dict[str, str], today: date) -> Days:
    unit = parts["unit"]
    few, many = _counts(parts["count"])
    vague = few != many
    if "low" in parts:
        few = min(few, _counts(parts["low"])[0])
    if "more" in parts:
        many += 2
    if parts.get("bound") in {"more than", "over", "at least"}:
        return date.min, _back(today, few, unit)
    if parts.get("bound") in {"less than", "under"} or unit in {"minute", "hour"}:
        return _back(today, many, unit), today
    # The further back, the less exactly anybody counts days.
    slack = timedelta(_SLACK_DAYS.get(unit, 0 if many < 3 else 1 if many < 7 else 2))
    if vague:
        slack = 0 * _ONE_DAY
    elif "bound" in parts and unit == "day":
        slack += _ONE_DAY
    return _back(today, many, unit) - slack, min(today, _back(today, few, unit) + slack)


def _calendar(kind: str, parts: dict[str, str], today: date) -> Days:
    """This week, month, quarter or year, or the one before, or the one before that."""
    unit = parts.get("unit") or parts["beforelast"]
    back = 0 if kind == "this" else 1 if "unit" in parts else 2
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return monday, monday + timedelta(days=6)
    if unit == "year":
        return date(today.year - back, 1, 1), date(today.year - back, 12, 31)
    if unit == "quarter":
        year, quarter = divmod(today.year * 4 + (today.month - 1) // 3 - back, 4)
        return date(year, quarter * 3 + 1, 1), _month(year, quarter * 3 + 3)[1]
    year, month = divmod(today.year * 12 + today.month - 1 - back, 12)
    return _month(year, month + 1)


def _weekend(which: str, today: date) -> Days:
    """This one while it lasts; else, and for the last, the one that is over."""
    saturday = today - timedelta(days=(today.weekday() - 5) % 7)
    if which and today.weekday() >= 5 and which != "this":
        saturday -= timedelta(days=7)
    return saturday, saturday + _ONE_DAY


def _weekday(kind: str, weekday: int, today: date) -> Days:
    day = today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)
    # "Last Monday", said on a Thursday, may be either.
    if kind == "last weekday" and day.isocalendar()[:2] == today.isocalendar()[:2]:
        return day - timedelta(days=7), day
    return day, day


def _near(words: str, today: date) -> Days:
    if words == "day before yesterday":
        return today - 2 * _ONE_DAY, today - 2 * _ONE_DAY
    if words in {"last night", "yesterday night"}:
        return today - _ONE_DAY, today
    if words.startswith("yesterday"):
        return today - _ONE_DAY, today - _ONE_DAY
    return today, today


# -- The time a question speaks of, where that is plain: "last week", "in March", "since 2025".
#
# Conservative on purpose: a range that nobody meant hides answers, which is worse than no range.
# Quoted words and code are never read as dates, nor are dates in a pasted log; what may as well be
# a plan ("what should I do on Monday") or a habit ("every March") is left alone. Where an
# expression is vague, its range is wide.


# A longer text is no question but a prompt with things pasted into it.
LONGEST_QUESTION = 500

Relation = Literal["before", "after", "since"]


class TimeRange(NamedTuple):
    """From the first day to the last, both included; None where it is open.

    `spoken` where the question asks what was said then. Elsewhere it may ask what was done then,
    and talked about on another day: such a range can prefer answers, but not rule them out.
    """

    first: date | None
    last: date | None
    words: str
    rest: str
    spoken: bool = False


class _TimeFound(NamedTuple):
    first: date | None
    last: date | None
    start: int
    end: int


_PREPOSITIONS: dict[str, str] = {
    "since": r"since|starting (?:in|on|from)",
    "after": r"after",
    "from": r"from",
    "before": r"before|prior to",
    "until": r"until|till|up to",
    "in": r"back in|in|during|throughout|within|over",
    "for": r"for|of",
    "on": r"on",
    "no": r"by|as of|due|next|every|each|per|half|like|such as|the first|the second",
}
_DAYS_OF_A_MONTH = {"month day", "day month"}
# What may stand without a preposition, and what after which one.
_BARE = {"iso", *_DAYS_OF_A_MONTH, "part", "ago", "weekend", "last", "last weekday"}
_BARE |= {"near", "this"}
_RELATIVE = {"ago", "rolling", "past", "weekend", "last", "this", "last weekday", "near"}
_MONTHLY = {"iso month", "month", "part", "year"}
_ALLOWED: dict[str, set[str]] = {
    "": _BARE,
    "in": _MONTHLY | {"rolling", "past", "last", "this", "weekend", "ago", "near"},
    "on": {"iso", *_DAYS_OF_A_MONTH, "weekday", "last weekday"},
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
    r"|does|was|were|we|i|you|they|he|she|it|the|my|our|have|had|is|are|to|at|by|as|regarding)\b)"
)
# What makes an expression part of a name, a path, or a line of a log.
_EDGE = r"(?![\w/\\@%\[(-]|[.:]\w| \d\d?:\d\d:\d\d)"
_TIMES = """
today yesterday week weeks month months year years quarter weekend days ago night morning afternoon
evening hours past
"""
_HINTS = frozenset(MONTHS) | frozenset(WEEKDAYS) | frozenset(_TIMES.split())
# Of the length of what they stand for.
_PLAIN = {0x2018: "'", 0x2019: "'", 0x2013: "-", 0x2014: "-", 0xA0: " "}

_RELATIONS: dict[str, Relation] = {
    "before": "before",
    "prior to": "before",
    "after": "after",
    "since": "since",
    "ever since": "since",
}
_EVENT = (
    r"(?i)\b(?P<said>before|prior to|after|ever since|since) (?P<event>"
    r"(?:the|our|my|that|we|i|you|they) (?:[^,.;:?!()]|[.:](?=\w))*[^\W_](?=[,.;:?!)]|\Z)"
    r")"
)
_REASON = (
    r"(?i)\b(?:is|are|isn't|aren't|will|can|can't|could|should|have|has|\w+'re|i'm"
    r"|you (?:said|mentioned|told))\b"
)
_EVENT_ENDS = (
    r"(?i) (?:about|regarding|concerning|with respect to|in terms of"
    r"|(?:what|who|which|how|why|where|when)(?: \w+)? (?:did|was|were|have|had|do|we|i)"
    r"|did|was there)\b"
)


@cache
def _single_pattern() -> re.Pattern[str]:
    """A preposition and an expression."""
    before = "|".join(f"(?P<{name}>{words})" for name, words in _PREPOSITIONS.items())
    return re.compile(
        rf"(?<![\w./:@#$%=+\\-])(?:(?:{before}) )?(?P<words>{_any()})(?:'s?(?!\w))?"
        rf"(?P<onward> onwards?| on(?=[,.;?!]|\Z))?{_EDGE}",
        re.I,
    )


@cache
def _pair_pattern() -> re.Pattern[str]:
    """Two expressions, and what makes a range of them."""
    day = r"(?:the )?\d\d?(?:st|nd|rd|th)?"
    return re.compile(
        rf"(?<![\w./:@-])(?:between|from|starting) (?P<a>{_any()}|{day})"
        r"(?: ?- ?| (?:and|to|until|till|through)(?: to)? )"
        rf"(?P<b>{_any()}|{day}){_EDGE}",
        re.I,
    )


def _any() -> str:
    return "|".join(
        re.sub(r"\(\?P<\w+>", "(?:", pattern.replace("(?P=dash)", "[-/]"))
        for pattern in KINDS.values()
    )


def time_range(question: str, today: date) -> TimeRange | None:
    """The days a question asks about, and the question without them; None where none is plain."""
    today = date(today.year, today.month, today.day)  # a time of day would not compare
    text = " ".join(question.split())
    if len(text) > LONGEST_QUESTION or not _hinted(text):
        return None
    # Quoted words keep their length and lose their meaning.
    seen = text.translate(_PLAIN)
    seen = compiled(_QUOTED).sub(lambda quoted: "\x00" * len(quoted[0]), seen)
    finds = list[_TimeFound]()
    ranged = compiled(r"(?i)\b(?:between|from|starting) ").search(seen)
    for pair in _pair_pattern().finditer(seen) if ranged else ():
        if (days := _between(pair, seen, today)) is not None:
            finds.append(_TimeFound(*days, pair.start(), pair.end()))
        # Understood or not: half of a range is none.
        seen = seen[: pair.start()] + "\x00" * len(pair[0]) + seen[pair.end() :]
    finds += [
        find for found in _single_pattern().finditer(seen) if (find := _single(found, seen, today))
    ]
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
        a = re.sub(r"\d+(?:st|nd|rd|th)?", re.sub(r"(?i)the ", "", a), b, count=1)
    elif not kinds[1] and kinds[0] == "month day":  # from March 3 to 10
        b = re.sub(r"\b\d\d?(?:st|nd|rd|th)?\b", re.sub(r"(?i)the ", "", b), a, count=1)
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


def _single(found: re.Match[str], text: str, today: date) -> _TimeFound | None:
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
            return _TimeFound(first, None, start, end)
        case "from" if found["onward"] or kind not in _RELATIVE | {"weekday"}:
            return _TimeFound(first, None, start, end)
        case "after":
            return _TimeFound(last + timedelta(days=1), None, start, end)
        case "before":
            return _TimeFound(None, first - timedelta(days=1), start, end)
        case "until":
            return _TimeFound(None, last, start, end)
    return _TimeFound(None if first == date.min else first, last, start, end)


def _meant(kind: str, parts: re.Match[str], said: str, found: re.Match[str], text: str) -> bool:
    """Whether these words ask for a time that is over, and for nothing else."""
    start, end = found.span()
    sentence = around(text, start, end, SENTENCE)
    clause = around(text, start, end, CLAUSE)
    if not asks(sentence, text):
        return False
    if kind in _RELATIVE and text.startswith(" of ", end):
        return False  # the last week of March
    if not said and compiled(r" ?(?:-|to|through|until) ?\d").match(text, end):
        return False  # half of a range
    if kind in {"iso", "iso month", "year"} and compiled(_NAMED).search(text[:start]):
        return False
    if kind == "year":
        return compiled(_ENDS).match(text, end) is not None
    which = parts.groupdict().get("which") or ""
    if kind == "this" or which.lower() == "this" or parts[0].lower() == "today":
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


def _joined(finds: list[_TimeFound], text: str, today: date) -> TimeRange | None:
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
        rest += " " if at and between in {" and ", " or "} else f"{between} "
        at = find.end
    rest = compiled(r" +([,.;:?!])").sub(r"\1", " ".join(f"{rest}{text[at:]}".split()))
    words = ", ".join(text[find.start : find.end] for find in finds)
    rest = rest.lstrip(",.;: ").strip() if rest.strip(",.;:?! ") else ""
    return TimeRange(*bounds, words, rest, is_about_talk(text))
