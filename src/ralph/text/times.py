"""The time a question asks about, where that is plain: "last week", "in March", "since 2025".

Conservative on purpose: a range that nobody meant hides answers, which is worse than no range.
Quoted words and code are never read as dates, nor are dates in a pasted log; what may as well be a
plan ("what should I do on Monday") or a habit ("every March") is left alone. Where an expression
is vague, its range is wide.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Literal, cast

from ralph.errors import BadInput
from ralph.text.tokens import compiled

# -- Whether a sentence asks or tells, and whether it is about the past, by cue words.


# A fragment ("auth bug last week") asks, though nothing says so.
_FRAGMENT_WORDS = 10

_AUXILIARY = (
    r"\b(?:did|didn't|was|were|wasn't|weren't|had|hadn't|have|haven't|has|hasn't|been|\w+'ve)\b"
)
_PAST_VERB = (
    r"\b(?:said|told|made|wrote|found|went|got|gave|took|saw|came|spoke|chose|broke|ran|built|bought"
    r"|met|kept|left|sent|(?!need\b|feed\b|speed\b|seed\b|indeed\b|proceed\b|exceed\b|embed\b|un)"
    r"[a-z]{2,}ed)\b"
)
_NOT_PAST = (
    r"\b(?:is|are|\w+'s the|can|could|do|does|best|will|won't|going to|gonna|shall|should|plan"
    r"|planning|upcoming|next|tomorrow|schedule|remind|want to|need to|would like|due|deadline|i'm"
    r"|we're|i am|we are|\w+'ll)\b"
)
_HABIT = r"\b(?:every|each|always|usually|annually|yearly)\b"
_WONDERING = r"\b(?:i|we)(?: was| were| am|'m|'re|'ve been)(?: just| also)? (?:wondering|hoping)\b"
_ASKS = (
    r"\A\W*(?:(?:and|so|but|ok|okay|hey|please|also|then),? )*(?:what|which|who|whom"
    r"|whose|when|where|why|how|did|do|does|was|were|is|are|have|has|had|can|could|would|show|find"
    r"|list|search|tell|give|remind|recall|remember|summari[sz]e|look|get|fetch|open|continue|compare"
    r"|i want to know|i'd like to know|i wonder|i was wondering|i'm wondering|i don't remember"
    r"|i forgot)\b"
)
_TELLS = r"\A\W*(?:by the way|btw|i|i'm|i've|i'd|i'll|my|we're)\b"
_ADVICE = (
    r"\b(?:do you have|do you think|any (?:good )?(?:tips|suggestions|recommendations|advice|ideas)"
    r"|(?:can|could|would|will) you (?:please )?(?:suggest|recommend|help))\b"
)
_MODAL = r"\b(?:can|could|should|would|will|shall|might)\b"
# Something that we, you or I did, or that happened to us.
_OURS = (
    r"\b(?:(?:did|have|had|were|was)(?:n't)? (?:i|we|you)|(?:i|we|you)(?:'ve| have| had| was| were"
    r"| did| \w+ed)|what(?: has| have| was| were| \w+ed| broke| went))\b"
)
_SAY = "discuss|talk|chat|speak|mention|say|tell|ask|answer|suggest|recommend|explain|decide|agree"
_SAID = (
    "discussed|talked|chatted|spoken?|mentioned|said|told|asked|answered|suggested|recommended"
    "|explained|decided|agreed"
)
_TALK = (
    rf"\bdid(?:n't)? (?:we|you|i) (?:\w+ )?(?:{_SAY})\b"
    rf"|\b(?:we|you|was|were|been)(?:'ve)?(?: \w+)? (?:{_SAID})\b"
    r"|\bi(?:'ve)?(?: \w+)? (?:mentioned|said|(?:told|asked) you)\b"
    r"|\b(?:our|previous|last|earlier|that) (?:conversation|discussion|chat|session)s?\b"
)
_SENTENCE = (". ", "? ", "! ")
_CLAUSE = (*_SENTENCE, ", ", "; ")


def _has(cue: str, words: str) -> bool:
    return compiled(cue, re.I).search(words) is not None


def _around(text: str, span: tuple[int, int], marks: tuple[str, ...]) -> str:
    """The sentence or clause of the text that holds a place."""
    begin = max(text.rfind(mark, 0, span[0]) for mark in marks) + 1
    ends = [at for mark in marks if (at := text.find(mark, span[1])) >= 0]
    return text[begin : min(ends, default=len(text)) + 1]


def _asks(sentence: str, text: str) -> bool:
    """Whether a sentence of the text wants to know what was, rather than tell it or get advice."""
    for cue, asks in ((_TALK, True), (_ADVICE, False), (_ASKS, True), (_TELLS, False)):
        if _has(cue, sentence):
            return asks
    return sentence.rstrip().endswith("?") or len(text.split()) <= _FRAGMENT_WORDS


def _looks_back(*pieces: str) -> bool:
    """Whether the first piece with a cue, of smaller and larger ones, speaks of the past."""
    for words in pieces:
        if _has_past(words):
            return True
        if _has(_NOT_PAST, words):
            return False
    return True


def _has_past(words: str) -> bool:
    words = compiled(_WONDERING, re.I).sub("", words)
    return _has(_AUXILIARY, words) or _has(_PAST_VERB, words)


# -- Dates as people write them: one expression in, its days out.


Days = tuple[date, date]

_MONTH_NAMES = (
    "january february march april may june july august september october november december".split()
)
_MONTHS = {form: n for n, name in enumerate(_MONTH_NAMES, 1) for form in (name, name[:3])}
_MONTHS["sept"] = 9
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS = {name: number for number, name in enumerate(_COUNTS, 1)} | {"a": 1, "an": 1}
# From how many units to how many a vague count reaches.
_VAGUE = {"couple": (1, 4), "few": (2, 8), "several": (2, 12)}
# Half a unit: "two weeks ago" is a day fourteen days back, or any day of that week.
_SLACK_DAYS = {"week": 4, "month": 16, "year": 183}
# The days of a month, and the months of a year, that are early, mid or late in it.
_THIRD_DAYS = {"e": (1, 12), "m": (9, 22), "l": (19, 31)}
_THIRD_MONTHS = {"e": (1, 5), "m": (4, 9), "l": (8, 12)}
_ONE_DAY = timedelta(days=1)

_NAMES = "|".join(sorted(_MONTHS, key=len, reverse=True))
_WEEKDAY = "|".join(_WEEKDAYS)
_COUNT = r"\d{1,3}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True))
_SOME = r"(?:a )?(?:couple|few|several)(?: of)?"
_UNIT = "minute|hour|day|week|month|year"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])"
_SHORT = "|".join(name[:3] for name in _MONTH_NAMES if name != "may")
_MONTH = rf"(?P<month>{_NAMES})\b(?:(?<=\b(?:{_SHORT}))\.)?"
_LAST = "last|past|previous"

# The kinds of expression, the longer before the shorter that it begins with.
_KINDS = {
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


def _kind_of(words: str) -> tuple[str, re.Match[str]] | None:
    """Which kind of expression the words are, all of them, and its parts."""
    for name, pattern in _KINDS.items():
        if found := compiled(pattern, re.I).fullmatch(words):
            return name, found
    return None


def _days_of(words: str, today: date, latest: date | None = None) -> Days | None:
    """The days an expression means; one without a year is the last that began by `latest`."""
    if (known := _kind_of(words)) is None:
        return None
    parts = {name: value.lower() for name, value in known[1].groupdict().items() if value}
    try:
        return _days(known[0], parts, today, latest or today)
    except (ValueError, OverflowError):  # the 30th of February, 999 years ago
        return None


def _names_a_year(words: str) -> bool:
    """Whether the expression says its year, or counts from today and needs none."""
    known = _kind_of(words)
    if known is None or known[0] not in {"part", "month day", "day month", "month"}:
        return True
    return bool(known[1]["year"] or known[1].groupdict().get("only"))


def _days(kind: str, parts: dict[str, str], today: date, latest: date) -> Days:
    match kind:
        case "iso" | "iso month" | "year":
            day = date(*(int(parts.get(part, 1)) for part in ("year", "number", "day")))
            return (day, day) if kind == "iso" else _period(day, kind.removeprefix("iso "))
        case "part" | "month" | "month day" | "day month":
            return _named_days(parts, latest)
        case "ago":
            return _ago(parts, today)
        case "rolling" | "past":
            return _back(today, _counts(parts.get("count", "one"))[1], parts["unit"]), today
        case "last" | "this":
            back = 0 if kind == "this" else 1 if "unit" in parts else 2
            return _period(today, parts.get("unit") or parts["beforelast"], back)
        case "weekend":  # this one while it lasts; else, and for the last, the one that is over
            saturday = today - timedelta(days=(today.weekday() - 5) % 7)
            if parts.get("which", "this") != "this" and today.weekday() >= 5:
                saturday -= timedelta(days=7)
            return saturday, saturday + _ONE_DAY
        case "last weekday" | "weekday":
            weekday = _WEEKDAYS.index(parts["weekday"])
            day = today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)
            # "Last Monday", said on a Thursday, may be either.
            either = kind != "weekday" and day.isocalendar()[:2] == today.isocalendar()[:2]
            return (day - timedelta(days=7) if either else day), day
    words = parts["days"]  # near today
    first = 2 if "before" in words else 1 if words.startswith(("yesterday", "last")) else 0
    return today - first * _ONE_DAY, today - (0 if "night" in words else first) * _ONE_DAY


def _period(day: date, unit: str, back: int = 0) -> Days:
    """The week, month, quarter or year with this day in it, or one of those before."""
    if unit == "week":
        monday = day - timedelta(days=day.weekday() + 7 * back)
        return monday, monday + timedelta(days=6)
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    start = (day.year * 12 + day.month - 1) // months * months - back * months
    years, after = divmod(start + months, 12)
    return date(start // 12, start % 12 + 1, 1), date(years, after + 1, 1) - _ONE_DAY


def _named_days(parts: dict[str, str], latest: date) -> Days:
    """A month, a day of it or a part of it; or a part of a year."""
    third = parts.get("part", "").removeprefix("very ").split(" ")[0]
    third = {"beginning": "e", "start": "e", "end": "l"}.get(third, third[:1])
    if only := parts.get("only"):
        begin, end = (date(int(only), month, 1) for month in _THIRD_MONTHS[third])
        return begin, _period(end, "month")[1]
    month, day = _MONTHS[parts["month"]], int(parts.get("day", 1))
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
    first, last = _period(date(year, month, 1), "month")
    begin_day, end_day = _THIRD_DAYS[third] if third else (1, 31)
    return first.replace(day=begin_day), first.replace(day=min(end_day, last.day))


def _counts(words: str) -> tuple[int, int]:
    """How many units at least and at most."""
    for vague, counts in _VAGUE.items():
        if vague in words:
            return counts
    count = int(words) if words.isdecimal() else _NUMBERS[words]
    return count, count


def _back(today: date, count: int, unit: str) -> date:
    """The day so many units before today."""
    if unit in {"month", "year"}:
        first, last = _period(today, "month", count * (12 if unit == "year" else 1))
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
    slack += ("bound" in parts and unit == "day") * _ONE_DAY
    slack *= not vague
    return _back(today, many, unit) - slack, min(today, _back(today, few, unit) + slack)


# -- The time a question speaks of.


# A longer text is no question but a prompt with things pasted into it.
LONGEST_QUESTION = 500

Bounds = tuple[date | None, date | None]
Relation = Literal["before", "after", "since"]

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
    "since": set(_KINDS),
    "from": set(_KINDS),
    **dict.fromkeys(("after", "before", "until"), set(_KINDS) - {"weekday", "past"}),
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
_HINTS = frozenset(_MONTHS) | frozenset(_WEEKDAYS) | frozenset(_TIMES.split())
# Of the length of what they stand for.
_PLAIN = {0x2018: "'", 0x2019: "'", 0x2013: "-", 0x2014: "-", 0xA0: " "}

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
        for pattern in _KINDS.values()
    )


def time_range(question: str, today: date) -> Bounds | None:
    """The first and the last day a question asks about, None for no end; None if none is plain."""
    today = date(today.year, today.month, today.day)  # a time of day would not compare
    text = " ".join(question.split())
    if len(text) > LONGEST_QUESTION or not _hinted(text):
        return None
    # Quoted words keep their length and lose their meaning.
    seen = text.translate(_PLAIN)
    seen = compiled(_QUOTED).sub(lambda quoted: "\x00" * len(quoted[0]), seen)
    found = list[Bounds]()
    ranged = compiled(r"(?i)\b(?:between|from|starting) ").search(seen)
    for pair in _pair_pattern().finditer(seen) if ranged else ():
        if (days := _between(pair, seen, today)) is not None:
            found.append(days)
        # Understood or not: half of a range is none.
        seen = seen[: pair.start()] + "\x00" * len(pair[0]) + seen[pair.end() :]
    found += filter(None, (_single(one, seen, today) for one in _single_pattern().finditer(seen)))
    return _joined([bounds for bounds in found if bounds[0] is None or bounds[0] <= today])


def event_range(question: str) -> tuple[Relation, str] | None:
    """The event that a question about the past is tied to ("before the release"), undated."""
    text = " ".join(question.split()).translate(_PLAIN)
    found = compiled(_EVENT).search(text) if len(text) <= LONGEST_QUESTION else None
    if found is None:
        return None
    event = compiled(_EVENT_ENDS).split(found["event"])[0]
    sentence = _around(text, found.span(), _SENTENCE)
    others = sentence.replace(event, "")
    if not _asks(sentence, text) or not _has_past(others) or _has(_MODAL, others):
        return None
    # "Since the cache is stale, ..." gives a reason, no time; a date is for `time_range`.
    if len(event.split()) > 9 or compiled(_REASON).search(event) or _hinted(event):
        return None
    relation = found["said"].lower().removeprefix("ever ").replace("prior to", "before")
    return cast(Relation, relation), event


def _hinted(text: str) -> bool:
    """Cheap: nearly no question speaks of time."""
    return "20" in text or not _HINTS.isdisjoint(re.split(r"[^\w]+", text.lower()))


def _between(pair: re.Match[str], text: str, today: date) -> Days | None:
    """The days from the one expression to the other, years filled in from each other."""
    a, b = pair["a"], pair["b"]
    kinds = [known[0] if (known := _kind_of(words)) else "" for words in (a, b)]
    if not kinds[0] and kinds[1] == "day month":  # from the 3rd to the 10th of March
        a = re.sub(r"\d+(?:st|nd|rd|th)?", re.sub(r"(?i)the ", "", a), b, count=1)
    elif not kinds[1] and kinds[0] == "month day":  # from March 3 to 10
        b = re.sub(r"\b\d\d?(?:st|nd|rd|th)?\b", re.sub(r"(?i)the ", "", b), a, count=1)
    elif "" in kinds or {"weekday", "rolling", "past"} & set(kinds):
        return None
    if "year" in kinds and not compiled(_ENDS).match(text, pair.end()):
        return None
    dated = _names_a_year(a), _names_a_year(b)
    plain = any(dated) or _looks_back(_around(text, pair.span(), _CLAUSE), text)
    if not plain or not _asks(_around(text, pair.span(), _SENTENCE), text):
        return None
    if dated == (True, False) and (begin := _days_of(a, today)):
        b = f"{b} {begin[0].year}"
        if (end := _days_of(b, today)) and end[1] < begin[0]:
            b = f"{b[:-5]} {begin[0].year + 1}"
    end = _days_of(b, today)
    begin = _days_of(a, today, end[0] if end else None)
    return (min(begin[0], end[0]), max(begin[1], end[1])) if begin and end else None


def _single(found: re.Match[str], text: str, today: date) -> Bounds | None:
    """The days of one expression after its preposition, if it is plain that they are meant."""
    said = next((name for name in _PREPOSITIONS if found[name]), "")
    known, days = _kind_of(found["words"]), _days_of(found["words"], today)
    if known is None or days is None or said == "no":
        return None
    kind, parts = known
    allowed = kind in _ALLOWED[said] or (
        (kind == "month" and (parts["last"] or (parts["year"] and said in {"", "for"})))
        or (kind in {"rolling", "past"} and (found.start() == 0 or (kind == "past" and not said)))
    )
    if not allowed or not _meant(kind, parts, said, found, text):
        return None
    first, last = days
    onward = found["onward"] or kind not in _RELATIVE | {"weekday"}
    if said == "since" or (said == "from" and onward):
        return first, None
    if said == "after":
        return last + _ONE_DAY, None
    if said == "before":
        return None, first - _ONE_DAY if first > date.min else first
    return (None if said == "until" or first == date.min else first), last


def _meant(kind: str, parts: re.Match[str], said: str, found: re.Match[str], text: str) -> bool:
    """Whether these words ask for a time that is over, and for nothing else."""
    start, end = found.span()
    clause = _around(text, (start, end), _CLAUSE)
    if not _asks(_around(text, (start, end), _SENTENCE), text):
        return False
    of_more = kind in _RELATIVE and text.startswith(" of ", end)  # the last week of March
    half = not said and compiled(r" ?(?:-|to|through|until) ?\d").match(text, end)  # of a range
    named = kind in {"iso", "iso month", "year"} and compiled(_NAMED).search(text[:start])
    if of_more or half or named:
        return False
    if kind == "year":
        return compiled(_ENDS).match(text, end) is not None
    which = parts.groupdict().get("which") or ""
    if kind == "this" or which.lower() == "this" or parts[0].lower() == "today":
        ours = _has(_OURS, compiled(_WONDERING, re.I).sub("", clause))
        return said == "from" or len(text.split()) < 5 or ours
    yearless = not _names_a_year(parts[0])
    if (yearless or kind == "weekday") and (_has(_HABIT, text) or not _looks_back(clause, text)):
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


def _joined(found: list[Bounds]) -> Bounds | None:
    """One range of all that was found: what is open on one side each meets, the rest is united."""
    firsts = [first for first, _ in found if first]
    lasts = [last for _, last in found if last]
    if firsts and lasts and len(firsts) + len(lasts) == len(found):  # each is open on one side
        return (max(firsts), min(lasts)) if max(firsts) <= min(lasts) else None
    first = min(firsts) if len(firsts) == len(found) > 0 else None
    last = max(lasts) if len(lasts) == len(found) > 0 else None
    return (first, last) if first or last else None


# -- A day that was given, not asked about.

_AGO = re.compile(r"(\d{1,5})\s*([dw])")
_DAYS = {"today": 0, "yesterday": 1}


def day_of(text: str, field: str, *, today: date | None = None) -> str:
    """The day that `7d`, `2w`, `today`, `yesterday`, a date or a time means, as 2026-02-07."""
    words, now = text.strip().lower(), today or datetime.now(UTC).date()
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
    return (now - timedelta(days=days)).isoformat()
