"""Dates as people write them, in English and German: one expression in, its days out.

Whether the words of a question are meant as a date at all is for `when` to decide.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from ralph.text.words import compiled

Days = tuple[date, date]

_MONTHS = (
    ("january", "januar", "jänner", "jan"),
    ("february", "februar", "feber", "feb"),
    ("march", "märz", "maerz", "mar"),
    ("april", "apr"),
    ("may", "mai"),
    ("june", "juni", "jun"),
    ("july", "juli", "jul"),
    ("august", "aug"),
    ("september", "sept", "sep"),
    ("october", "oktober", "oct", "okt"),
    ("november", "nov"),
    ("december", "dezember", "dec", "dez"),
)
_WEEKDAYS = (
    ("monday", "montag"),
    ("tuesday", "dienstag"),
    ("wednesday", "mittwoch"),
    ("thursday", "donnerstag"),
    ("friday", "freitag"),
    ("saturday", "samstag", "sonnabend"),
    ("sunday", "sonntag"),
)
MONTHS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
WEEKDAYS = {name: number for number, names in enumerate(_WEEKDAYS) for name in names}
_NUMBERS = (
    ("one", "a", "an", "ein", "eine", "einem", "einer", "einen"),
    ("two", "zwei"),
    ("three", "drei"),
    ("four", "vier"),
    ("five", "fünf"),
    ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"),
    ("nine", "neun"),
    ("ten", "zehn"),
    ("eleven", "elf"),
    ("twelve", "zwölf"),
)
NUMBERS = {name: number for number, names in enumerate(_NUMBERS, 1) for name in names}
UNITS = {
    "minute": "minute",
    "hour": "hour",
    "stunde": "hour",
    "day": "day",
    "tag": "day",
    "week": "week",
    "woche": "week",
    "month": "month",
    "monat": "month",
    "year": "year",
    "jahr": "year",
}
# From how many units to how many a vague count reaches.
_VAGUE = {"couple": (1, 4), "few": (2, 8), "paar": (2, 8), "several": (2, 12)}
_VAGUE |= dict.fromkeys(("wenigen", "einigen"), (2, 12))
# Half a unit: "two weeks ago" is a day fourteen days back, or any day of that week.
_SLACK_DAYS = {"week": 4, "month": 16, "year": 183}
_ONE_DAY = timedelta(days=1)

_NAMES = "|".join(sorted(MONTHS, key=len, reverse=True))
_WEEKDAY = "|".join(WEEKDAYS)
_COUNT = r"\d{1,3}|" + "|".join(sorted(NUMBERS, key=len, reverse=True))
_SOME = r"(?:a |ein )?(?:couple|few|paar|several|wenigen|einigen)(?: of)?"
_UNIT = "|".join(UNITS)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])"
_SHORT = "jan|feb|mar|apr|jun|jul|aug|sep|oct|okt|nov|dec|dez"
_MONTH = rf"(?P<month>{_NAMES})\b(?:(?<=\b(?:{_SHORT}))\.)?"
_LAST = r"last|past|previous|letzte[nrms]?|vorige[nrms]?|vergangene[nrms]?"
_THIS = r"this|diese[nrms]?"

# The kinds of expression, the longer before the shorter that it begins with.
KINDS = {
    "iso": rf"{_YEAR}(?P<dash>[-/])(?P<number>0[1-9]|1[0-2])(?P=dash){_DAY}",
    "iso month": rf"{_YEAR}-(?P<number>0[1-9]|1[0-2])",
    "dotted": rf"{_DAY}\.(?P<number>1[0-2]|0?[1-9])\.{_YEAR}",
    "part": (
        r"(?:the )?(?P<part>(?:very )?early|mid|late|beginning of|start of|middle of|end of"
        rf"|anfang|mitte|ende)[- ](?:{_MONTH}(?:,? {_YEAR})?|(?P<only>20\d\d))"
    ),
    "month day": rf"{_MONTH} {_DAY}(?:st|nd|rd|th)?\b(?:,? {_YEAR})?",
    "day month": rf"(?:the )?{_DAY}(?P<nth>st|nd|rd|th|\.)? (?:of )?{_MONTH}(?:,? {_YEAR})?",
    "month": rf"(?:(?P<last>{_LAST}) )?{_MONTH}(?:,? (?:of )?{_YEAR})?",
    "ago": (
        r"(?:(?P<bound>about|around|roughly|almost|nearly|more than|over|at least|less than|under)"
        rf" )?(?:(?P<low>{_COUNT}) ?(?:-|to|or|and) ?)?(?P<count>{_COUNT}|{_SOME}) "
        rf"(?P<unit>{_UNIT})s?(?P<more> or (?:two|three|so))? ago"
    ),
    "vor": rf"vor (?:etwa |ca\.? |rund )?(?P<count>{_COUNT}|{_SOME}) (?P<unit>{_UNIT})(?:e?n|e)?",
    "rolling": (
        rf"(?:the |den |die |der )?(?:{_LAST}) (?P<count>{_COUNT}|{_SOME}) "
        rf"(?P<unit>{_UNIT})(?:s|e?n|e)?"
    ),
    "past": r"the past (?P<unit>day|week|month|year)",
    "weekend": (
        rf"(?:the )?(?P<which>{_LAST}|{_THIS}) (?:weekend|wochenende)"
        r"|(?:over|at|during) the weekend|am wochenende"
    ),
    "last": (
        rf"(?:the |der |im )?(?:{_LAST}) (?P<unit>week|month|year|quarter|woche|monats?|jahr(?:es)?"
        r"|quartal)|the (?P<beforelast>week|month|year) before last(?! week)"
        r"|vorletzte[nrms]? (?P<vunit>woche|monat|jahr)"
    ),
    "this": (
        rf"(?:in )?(?:{_THIS}) (?P<unit>week|month|year|quarter|woche|monats?|jahr(?:es)?|quartal)"
    ),
    "last weekday": rf"(?:{_LAST}) (?P<weekday>{_WEEKDAY})",
    "near": (
        r"(?:the )?(?P<days>day before yesterday|earlier today|today|yesterday(?: morning"
        r"| afternoon| evening| night)?|last night|this (?:morning|afternoon|evening)|vorgestern"
        r"|gestern|heute (?:früh|morgen|vormittag)|heute)"
    ),
    "weekday": rf"(?P<weekday>{_WEEKDAY})",
    "year": r"(?:the year |jahr )?(?P<year>20[1-9]\d)",
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
        case "iso" | "dotted":
            day = date(int(parts["year"]), int(parts["number"]), int(parts["day"]))
            return day, day
        case "iso month":
            return _month(int(parts["year"]), int(parts["number"]))
        case "part" | "month" | "month day" | "day month":
            return _named(parts, latest)
        case "ago" | "vor":
            return _ago(parts, today)
        case "rolling" | "past":
            units = UNITS[parts["unit"]]
            return _back(today, _counts(parts.get("count", "one"))[1], units), today
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


def _named(parts: dict[str, str], latest: date) -> Days:
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
    return {"beginning": "e", "start": "e", "anfang": "e", "end": "l", "ende": "l"}.get(
        word, word[0]
    )


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
    unit = UNITS[parts["unit"]]
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
    unit = parts.get("unit") or parts.get("beforelast") or parts["vunit"]
    back = 0 if kind == "this" else 1 if "unit" in parts else 2
    if unit in {"week", "woche"}:
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return monday, monday + timedelta(days=6)
    if unit.startswith(("year", "jahr")):
        return date(today.year - back, 1, 1), date(today.year - back, 12, 31)
    if unit.startswith("quart"):
        year, quarter = divmod(today.year * 4 + (today.month - 1) // 3 - back, 4)
        return date(year, quarter * 3 + 1, 1), _month(year, quarter * 3 + 3)[1]
    year, month = divmod(today.year * 12 + today.month - 1 - back, 12)
    return _month(year, month + 1)


def _weekend(which: str, today: date) -> Days:
    """This one while it lasts; else, and for the last, the one that is over."""
    saturday = today - timedelta(days=(today.weekday() - 5) % 7)
    if which and today.weekday() >= 5 and not which.startswith(("this", "diese")):
        saturday -= timedelta(days=7)
    return saturday, saturday + _ONE_DAY


def _weekday(kind: str, weekday: int, today: date) -> Days:
    day = today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)
    # "Last Monday", said on a Thursday, may be either.
    if kind == "last weekday" and day.isocalendar()[:2] == today.isocalendar()[:2]:
        return day - timedelta(days=7), day
    return day, day


def _near(words: str, today: date) -> Days:
    if words in {"day before yesterday", "vorgestern"}:
        return today - 2 * _ONE_DAY, today - 2 * _ONE_DAY
    if words in {"last night", "yesterday night"}:
        return today - _ONE_DAY, today
    if words.startswith(("yesterday", "gestern")):
        return today - _ONE_DAY, today - _ONE_DAY
    return today, today
