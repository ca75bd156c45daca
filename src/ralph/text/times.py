"""The time a question asks about, if it is clear: "last week", "in March", "since 2025".

A range only raises the rank of records in it. A time that is vague or may be a plan ("what should I
do on Monday") gives no range. Quoted words, code, and dates in a pasted log are never read as
dates. Days begin and end at midnight in the person's time zone.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Literal, NamedTuple, cast

from ralph.errors import BadInput
from ralph.text.tokens import compiled, names_time, rule, tokens, word_set

# A longer text is not a question but a prompt with pasted text.
LONGEST_QUESTION = 500

Days = tuple[date, date]
Bounds = tuple[date | None, date | None]
Relation = Literal["before", "after", "since"]


class TimeRange(NamedTuple):
    """The first and last day (None for an open end), and the rest of the question without them."""

    first: date | None
    last: date | None
    rest: str = ""

    @property
    def alone(self) -> bool:
        """Whether the question asks only about the time: "what happened then?"."""
        return word_set("activity").issuperset(tokens(self.rest))

    def moments(self) -> tuple[str, str]:
        """Return the start and the exclusive end in UTC, to compare timestamps with."""
        return moment_of(self.first), moment_of(self.last, end=True)


def local_today() -> date:
    """Return today in the person's time zone."""
    return datetime.now(UTC).astimezone().date()


def moment_of(day: date | None, *, end: bool = False) -> str:
    """Return when a day begins or ends, in UTC; for None, a text before or after all times."""
    try:
        midnight = datetime.combine(day + timedelta(days=end), time.min) if day else None
        # No Z: then a timestamp of that second, with or without a fraction, never sorts before it.
        return midnight.astimezone(UTC).isoformat()[:19] if midnight else "9" * end
    except (OverflowError, ValueError, OSError):  # outside the calendar
        return "9" * end


# -- Whether a sentence asks, and whether it is about the past, by cue words.

# A text with at most this many words ("auth bug last week") counts as a question.
_FRAGMENT_WORDS = 10

_SENTENCE = (". ", "? ", "! ")
_CLAUSE = (*_SENTENCE, ", ", "; ")


def _has(cue: str, words: str) -> bool:
    return rule(cue).search(words) is not None


def _around(text: str, span: tuple[int, int], marks: tuple[str, ...]) -> str:
    """The sentence or clause of the text that contains a span."""
    begin = max(text.rfind(mark, 0, span[0]) for mark in marks) + 1
    ends = [at for mark in marks if (at := text.find(mark, span[1])) >= 0]
    return text[begin : min(ends, default=len(text)) + 1]


def _asks(sentence: str, text: str) -> bool:
    """Whether a sentence asks about the past, rather than telling about it or asking for advice."""
    for cue, asks in (
        ("advice", False),
        ("earlier talk", True),
        ("tells of oneself", False),
        ("asks", True),
    ):
        if _has(cue, sentence):
            return asks
    return sentence.rstrip().endswith("?") or len(text.split()) <= _FRAGMENT_WORDS


def _looks_back(*pieces: str) -> bool:
    """Whether the first piece with a cue is about the past; True if no piece has one."""
    for words in pieces:
        for cue, past in (("past auxiliary", True), ("not past", False), ("past verb", True)):
            if _has(cue, words):
                return past
    return True


def _has_past(words: str) -> bool:
    return _has("past auxiliary", words) or _has("past verb", words)


# -- Dates as people write them: one expression in, its days out.

_MONTH_NAMES = (
    "january february march april may june july august september october november december".split()
)
_MONTHS = {form: n for n, name in enumerate(_MONTH_NAMES, 1) for form in (name, name[:3])}
_MONTHS["sept"] = 9
# Months that are also other words when they are not capitalized.
_AMBIGUOUS = {name for name in _MONTHS if len(name) < 5} - {"june", "july"} | {"march"}
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS = {name: number for number, name in enumerate(_COUNTS, 1)} | {"a": 1, "an": 1}
# Half a unit: "two weeks ago" is a day fourteen days back, or any day of that week.
_SLACK_DAYS = {"week": 4, "weekend": 4, "month": 16, "year": 183}
_ONE_DAY = timedelta(days=1)

_COUNT = r"(?P<count>\d{1,3}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + ")"
_UNIT = "(?P<unit>day|weekend|week|month|quarter|year)"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])"
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_WEEKDAY = rf"(?P<weekday>{'|'.join(_WEEKDAYS)})"
_LAST = "(?:last|past|previous)"
# The days that each part of a month stands for.
_PARTS = {"first": (1, 7), "second": (8, 14), "third": (15, 21), "fourth": (22, 28)}
_PARTS |= {"last": (22, 31), "early": (1, 11), "mid": (10, 21), "late": (20, 31)}
_PARTS |= {"beginning": (1, 11), "start": (1, 11), "middle": (10, 21), "end": (20, 31)}
_PART = (
    "(?P<week>first|second|third|fourth|last) week (?:of|in)"
    "|(?P<piece>beginning|start|middle|end) of|(?P<early>early|mid|late)(?: in|-)?"
)

_NEAR = {"earlier today": 0, "today": 0, "this morning": 0, "this afternoon": 0}
_NEAR |= {"yesterday": 1, "last night": 1, "the day before yesterday": 2}

# The kinds of expression. A longer one comes before a shorter one that it begins with.
_KINDS = {
    "iso": rf"{_YEAR}[-/](?P<number>0[1-9]|1[0-2])[-/]{_DAY}",
    "iso month": rf"{_YEAR}-(?P<number>0[1-9]|1[0-2])",
    "part": rf"(?:the )?(?:{_PART}) {_MONTH}(?:,? {_YEAR})?",
    "month day": rf"{_MONTH} {_DAY}(?:st|nd|rd|th)?\b(?:,? {_YEAR})?",
    "day month": rf"(?:the )?{_DAY}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? {_YEAR})?",
    "month": rf"(?P<last>{_LAST} )?{_MONTH}(?:,? {_YEAR})?",
    "ago": rf"(?:(?:about|around) )?{_COUNT} {_UNIT}s? ago",
    "rolling": rf"(?:the )?(?:{_LAST} {_COUNT}|past) {_UNIT}s?",
    "last": rf"(?:the )?(?:last|previous) {_UNIT}",
    "this": rf"this {_UNIT}",
    "weekday": rf"(?P<last>{_LAST} )?{_WEEKDAY}",
    "near": rf"(?P<near>{'|'.join(_NEAR)})",
    "year": r"(?P<year>20[1-9]\d)",
}
_RELATIVE = {"ago", "rolling", "last", "this", "near"}
# Kinds that count only after a preposition, unless the expression is complete in itself.
_NEEDS_PREPOSITION = {"part", "iso month", "day month", "month", "rolling", "weekday", "year"}

Expression = tuple[str, dict[str, str]]


def _parse(words: str) -> Expression | None:
    """Return the kind of expression that all the words form, with its parts as written, or None."""
    for kind, pattern in _KINDS.items():
        if found := compiled(pattern, re.I).fullmatch(words):
            return kind, {name: value for name, value in found.groupdict().items() if value}
    return None


def _days_of(expression: Expression, today: date) -> Days | None:
    """Return the days an expression means; without a year, the latest that has begun."""
    kind, written = expression
    parts = {name: value.lower() for name, value in written.items()}
    try:
        if "unit" in parts:
            return _counted_days(kind, parts, today)
        if "weekday" in parts:
            back = (today.weekday() - _WEEKDAYS.index(parts["weekday"]) - 1) % 7 + 1
            # "Last Monday", said on a Thursday, may be this week's or the one before.
            either = 7 if "last" in parts and back <= today.weekday() else 0
            return today - timedelta(days=back + either), today - timedelta(days=back)
        if "near" in parts:
            day = today - timedelta(days=_NEAR[parts["near"]])
            return day, today if parts["near"] == "last night" else day
        return _named_days(parts, today)
    except (ValueError, OverflowError):  # the 30th of February, 999 years ago
        return None


def _named_days(parts: dict[str, str], today: date) -> Days:
    """Return the days of a day, month or year given by name or number."""
    if not parts.keys() & {"month", "number"}:
        return _period(date(int(parts["year"]), 1, 1), "year")
    month = int(parts["number"]) if "number" in parts else _MONTHS[parts["month"]]
    day = int(parts.get("day", 1))
    year = int(parts.get("year", today.year - ((month, day) > (today.month, today.day))))
    if "year" not in parts and (month, day) == (2, 29):
        year -= year % 4
    first = date(year, month, day)
    if "day" in parts:
        return first, first
    first, last = _period(first, "month")
    if part := parts.get("week") or parts.get("piece") or parts.get("early"):
        begin, end = _PARTS[part]
        return first.replace(day=begin), last.replace(day=min(end, last.day))
    return first, last


def _counted_days(kind: str, parts: dict[str, str], today: date) -> Days:
    """Return the days of this or the last week, month or year, or of a number of them back."""
    unit = parts["unit"]
    number = parts.get("count", "one")
    if unit == "weekend" and "count" not in parts:
        # "The past weekend", said on a weekend, is not the one that has just begun.
        back = (today.weekday() - 5) % 7
        saturday = today - timedelta(days=back + (7 if back < 2 and kind != "this" else 0))
        return saturday, saturday + _ONE_DAY
    if kind in {"last", "this"}:
        return _period(today, unit, back=int(kind == "last"))
    count = int(number) if number.isdecimal() else _NUMBERS[number]
    months = {"month": count, "quarter": 3 * count, "year": 12 * count}.get(unit)
    if months is None:
        day = today - timedelta(days=count * (1 if unit == "day" else 7))
    else:
        first, last = _period(today, "month", months)
        day = first.replace(day=min(today.day, last.day))
    if kind == "rolling":
        return day, today
    # The further back, the less exactly people count days.
    slack = timedelta(_SLACK_DAYS.get(unit, 0 if count < 3 else 1 if count < 7 else 2))
    return day - slack, min(today, day + slack)


def _period(day: date, unit: str, back: int = 0) -> Days:
    """Return the day, week, month, quarter or year with this day in it, or the one `back` units
    before."""
    if unit in {"day", "week"}:
        length = 7 if unit == "week" else 1
        first = day - timedelta(days=day.weekday() % length + length * back)
        return first, first + timedelta(days=length - 1)
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    start = (day.year * 12 + day.month - 1) // months * months - back * months
    years, after = divmod(start + months, 12)
    return date(start // 12, start % 12 + 1, 1), date(years, after + 1, 1) - _ONE_DAY


# -- The time a question mentions.

_PREPOSITIONS = {
    "since": r"since|starting (?:in|on|from)",
    "after": r"after",
    "before": r"before|prior to",
    "until": r"until|till|up to",
    "in": r"(?:back )?in|during|throughout|within|over|on|for|of|from|between|and|to",
    "no": r"by|as of|due|next|every|each|per|half|like|such as|(?:more|less) than|at least",
}
_QUOTED = r"`[^`]*`|\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u201e[^\u201c]*\u201c|(?<!\w)'[^']+'(?!\w)"
# Must not be followed by text that makes it part of a name, a path, or a log line.
_EDGE = r"(?![\w/\\@%\[(-]|[.:]\w| \d\d?:\d\d:\d\d)"
# Each is replaced by one character, so positions stay the same.
_TYPEWRITER = {0x2018: "'", 0x2019: "'", 0x2013: "-", 0x2014: "-", 0xA0: " "}


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of an expression with its preposition."""
    words = "|".join(re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in _KINDS.values())
    before = "|".join(f"(?P<{name}>{forms})" for name, forms in _PREPOSITIONS.items())
    return re.compile(
        rf"(?<![\w./:@#$%=+\\-])(?:(?:{before}) )?(?P<words>{words})(?:'s?(?!\w))?"
        rf"(?P<onward> onwards?| on(?=[,.;?!]|\Z))?{_EDGE}",
        re.I,
    )


def time_range(question: str, today: date) -> TimeRange | None:
    """Return the days that a question asks about, or None if it does not clearly name any."""
    today = date(today.year, today.month, today.day)  # a datetime would not compare with a date
    plain = " ".join(question.split())
    if len(plain) > LONGEST_QUESTION or not names_time(plain):
        return None
    # Blank out quoted words, but keep their length.
    text = plain.translate(_TYPEWRITER)
    text = compiled(_QUOTED).sub(lambda quoted: "\x00" * len(quoted[0]), text)
    matches = ((match, _single(match, text, today)) for match in _pattern().finditer(text))
    found = [(match, days) for match, days in matches if days]
    found = [(match, days) for match, days in found if days[0] is None or days[0] <= today]
    bounds = _joined([days for _, days in found])
    if bounds is None:
        return None
    for match, _ in reversed(found):
        plain = f"{plain[: match.start()]} {plain[match.end() :]}"
    return TimeRange(*bounds, " ".join(plain.split()))


def event_range(question: str) -> tuple[Relation, str] | None:
    """Return the relation and the event in a question about the past: "before the release"."""
    text = " ".join(question.split()).translate(_TYPEWRITER)
    found = rule("event").search(text) if len(text) <= LONGEST_QUESTION else None
    if found is None:
        return None
    event = rule("after an event").split(found["event"])[0]
    sentence = _around(text, found.span(), _SENTENCE)
    if not _asks(sentence, text) or not _has_past(sentence.replace(event, "")):
        return None
    # "Since the cache is stale, ..." gives a reason, not a time; a date is for `time_range`.
    if len(event.split()) > 9 or _has("reason", event) or names_time(event):
        return None
    return cast(Relation, found["relation"].lower().replace("prior to", "before")), event


def _single(found: re.Match[str], text: str, today: date) -> Bounds | None:
    """Return the days of one expression with its preposition, if they are clearly meant."""
    preposition = next((name for name in _PREPOSITIONS if found[name]), "")
    expression = _parse(found["words"])
    days = _days_of(expression, today) if expression else None
    if not (expression and days) or not _is_meant(expression, preposition, found, text):
        return None
    first, last = days
    if preposition == "since" or found["onward"]:
        return first, None
    if preposition == "after":
        return last + _ONE_DAY, None
    if preposition == "before":
        return None, first - _ONE_DAY
    return (None if preposition == "until" else first), last


def _is_meant(expression: Expression, preposition: str, found: re.Match[str], text: str) -> bool:
    """Whether these words clearly mean a time in the past."""
    kind, parts = expression
    start, end = found.span()
    if preposition == "no" or not _asks(_around(text, (start, end), _SENTENCE), text):
        return False
    dated = kind in _RELATIVE or "year" in parts
    complete = "last" in parts or ("month" in parts and dated) or found["words"].startswith("the p")
    if kind in _NEEDS_PREPOSITION and not (preposition or complete):
        return False
    of_more = kind in _RELATIVE and text.startswith(" of ", end)  # the last week of March
    # Half of a range, which we do not read: "March 3 to 10".
    half = compiled(r" ?(?:-|to|and|through|until) ?\d\d?\b").match(text, end)
    named = kind in {"iso", "iso month", "year"} and rule("named like a date").search(text[:start])
    if of_more or half or named:
        return False
    ends = rule("after a date").match(text, end) is not None
    if kind == "year":
        return ends
    clause = _around(text, (start, end), _CLAUSE)
    if kind == "this" or not _NEAR.get(parts.get("near", "yesterday").lower()):
        return _looks_back(clause) and (_has_past(clause) or len(text.split()) < 5)
    name = parts.get("month", "")
    # "may" and "march" are verbs, "MAY" is the keyword of a specification.
    verb = name.lower() in _AMBIGUOUS and not name.istitle() and not (preposition and ends)
    return dated or (_looks_back(clause, text) and not verb and not name.isupper())


def _joined(found: list[Bounds]) -> Bounds | None:
    """Return one range: intersect ranges such as "after X" and "before Y", else unite all."""
    firsts = [first for first, _ in found if first]
    lasts = [last for _, last in found if last]
    if firsts and lasts and len(firsts) + len(lasts) == len(found):  # each is open on one side
        return (max(firsts), min(lasts)) if max(firsts) <= min(lasts) else None
    first = min(firsts) if len(firsts) == len(found) > 0 else None
    last = max(lasts) if len(lasts) == len(found) > 0 else None
    return (first, last) if first or last else None


# -- Days given as options, not found in a question.

_AGO = re.compile(r"(\d{1,5})\s*([dw])")
_DAYS = {"today": 0, "yesterday": 1}


def moments_between(since: str | None, until: str | None) -> tuple[str, str]:
    """Return when the first given day begins and the last one ends, both included."""
    first = date.fromisoformat(day_of(since, "since")) if since else None
    last = date.fromisoformat(day_of(until, "until")) if until else None
    return moment_of(first), moment_of(last, end=True)


def day_of(text: str, field: str) -> str:
    """Return the day of `7d`, `2w`, `today`, `yesterday`, a date or a time, as 2026-02-07."""
    words = text.strip().lower()
    if ago := _AGO.fullmatch(words):
        days = int(ago[1]) * (7 if ago[2] == "w" else 1)
    elif words in _DAYS:
        days = _DAYS[words]
    else:
        try:
            return datetime.fromisoformat(words.upper()).date().isoformat()
        except ValueError:
            todo = "Give a day as 2026-02-07, 7d, 2w, today or yesterday."
            raise BadInput(f"{field} {text!r} is not a day", todo=todo) from None
    return (local_today() - timedelta(days=days)).isoformat()
