"""A text of knowledge as the comparison sees it: words with their signs, numbers and names."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from ralph.recall.sameness_fold import folded, worth_reading
from ralph.recall.sameness_words import LIGHT, MEANING
from ralph.text.tokens import STOP_WORDS, stem, tokens

# How many content words a denial reaches.
_REACH = 4
_LONGEST_NAME = 64
# How many words are kept with what is known of them.
_WORDS = 32_768

_WORD = re.compile(
    r"\d+(?:[.,]\d+)*(?:\.x)?|[^\W\d_][\w]*(?:(?:::|->|[.@+#-])\w+)*|__?\w+|[.,;:!?()\n\u2013\u2014]"
)
_BREAKS = frozenset(".;:!?()\n,\u2013\u2014") | frozenset(
    "but because since otherwise so and or then which that as while when if where".split()
)
# How it was before: neither asked for nor denied.
_STORY = frozenset("was were had".split())
_PREPOSITIONS = frozenset(
    "for in on at from to with via into through by under over inside within during of until per"
    " after before".split()
)
_DENIALS = frozenset(
    "donot nolonger not no never without avoid avoids avoiding insteadof nor neither none dont"
    " doesnt didnt cant wont shouldnt isnt arent nothing nobody unless wasnot".split()
)
# In these a denial says under which condition something happens.
_CONDITIONS = frozenset("when if while where unless without".split())
_REMOVALS = frozenset(
    "remove removes removed removing drop drops dropped dropping delete deletes deleted deleting"
    " disable disables disabled disabling omit omits omitted exclude excluded excluding uninstall"
    " strip strips stripped stripping uninstalled unpin unpinned unset".split()
)
_UNITS = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("day", "days"), 86400.0),
    **dict.fromkeys(("week", "weeks"), 604800.0),
    **dict.fromkeys(("month", "months"), 2592000.0),
    **dict.fromkeys(("year", "years"), 31104000.0),
    **dict.fromkeys(("kb", "k", "ki", "kib"), 1e3),
    **dict.fromkeys(("mb", "m", "mi", "mib", "megabytes"), 1e6),
    **dict.fromkeys(("gb", "g", "gi", "gib", "gigabytes"), 1e9),
}
_SPELT = {
    word: float(n)
    for n, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(), start=1
    )
} | {"a": 1.0, "an": 1.0}
_COUNTED = {word: f"{n:g}" for word, n in _SPELT.items() if n > 1} | {
    "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100",
}  # fmt: skip
# `python3.11`, `kotlin-bom-1.8.10`, `uuidv7`: a name and its version.
_VERSIONED = re.compile(r"([a-z][\w.-]*?)(?:[-_@]?v|[-_@])?(\d+(?:\.\d+)+(?:\.x)?|(?<=v)\d+)", re.I)
# The files of a program differ wherever the same thing happens; those of its tools do not.
_SOURCE = re.compile(
    r"\w\.(?:pyi?|[cm]?[jt]sx?|vue|svelte|rs|go|c|h|cc|cpp|hpp|java|kt|scala|rb|php|cs|swift|exs?)$"
)
# What a number behind it tells apart.
_NUMBERED = frozenset("version release code status exit errno level v api jdk java node".split())
# `write-ahead`, `end-to-end`: words, where `base-64` and `foo_bar` are names.
_HYPHENATED = re.compile(r"[a-z]+(?:-[a-z]+)+|[0-9]\S*")
_CODE = re.compile(
    r"\b[A-Z]{1,8}[-_]?\d{3,5}\b(?![.\d])"
    r"|\b(?:HTTP(?:/[\d.]+)?|status(?: code)?|exit(?:ed)?(?: with)?(?: code| status)?|code|errno"
    r"|answers?|signal|SQLSTATE|error)[ :=\[/]{1,2}[1-9]\d{2}\b"
)
_FAULT = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Fault|Warning)\b|\b[a-z]+(?:_[a-z]+)+_exception\b"
)
_QUOTED = re.compile(r"(?<!\w)([`\"'])([\w.@/+-]{1,40})\1(?!\w)")


class Number(msgspec.Struct, frozen=True):
    """An amount or version, what else it may be written as, and the word it belongs to.

    It is named where it tells one thing from another, as in `Java 21`, not how often or how long.
    """

    exact: str
    written: frozenset[str]
    of: str
    named: bool

    @property
    def has_unit(self) -> bool:
        return self.exact not in self.written


class Reading(msgspec.Struct, frozen=True):
    """What a text says, reduced to what can be compared."""

    weights: dict[str, float]
    weight: float
    keys: frozenset[str]
    plain: frozenset[str]
    order: tuple[str, ...]
    story: tuple[str, ...]
    affirmed: frozenset[str]
    denied: frozenset[str]
    ruled_out: frozenset[str]
    removed: frozenset[str]
    numbers: tuple[Number, ...]
    names: dict[str, frozenset[str]]
    codes: frozenset[str]
    faults: tuple[str, ...]
    quoted: frozenset[str]


class Case(msgspec.Struct, frozen=True):
    """A problem and its solution, as the comparison sees them."""

    problem: Reading
    solution: Reading

    @property
    def words(self) -> frozenset[str]:
        return self.problem.keys | self.solution.keys

    @property
    def plain(self) -> frozenset[str]:
        return self.problem.plain | self.solution.plain


_root = lru_cache(maxsize=_WORDS)(stem)
_parts = lru_cache(maxsize=_WORDS)(tokens)


@lru_cache(maxsize=_WORDS)
def meaning(word: str) -> str:
    """The word's stem, or that of the synonym that stands for all of its kind."""
    root = _root(word)
    return MEANING.get(root, root)


@lru_cache(maxsize=16_384)
def read(text: str) -> Reading:
    """The text, read once."""
    text = worth_reading(text)
    codes = frozenset(re.findall(r"\d+", found)[-1] for found in _CODE.findall(text))
    faults = tuple(found.lower() for found in _FAULT.findall(text))
    quoted = frozenset(found.lower() for _, found in _QUOTED.findall(text))
    reader = _Reader()
    for word in _WORD.findall(folded(text)):
        versioned = _VERSIONED.fullmatch(word)
        for piece in versioned.groups() if versioned else (word,):
            reader.take(piece)
    reader.close()
    numbers = tuple(_numbers(reader.spoken))
    # Two minutes are 120 seconds.
    reader.weights |= {number.exact: 1.0 for number in numbers if number.has_unit}
    return Reading(
        weights=reader.weights,
        weight=sum(reader.weights.values()),
        keys=frozenset(reader.weights),
        plain=frozenset(reader.plain),
        order=tuple(reader.order),
        story=tuple(reader.story),
        affirmed=frozenset(reader.affirmed),
        denied=frozenset(reader.denied),
        ruled_out=frozenset(reader.ruled_out),
        removed=frozenset(reader.removed),
        numbers=numbers,
        names=reader.names,
        codes=codes,
        faults=faults,
        quoted=quoted,
    )


class _Reader:
    """Walks the words of a text, weighs each and keeps its sign."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self.names: dict[str, frozenset[str]] = {}
        self.plain: set[str] = set()
        self.order: list[str] = []
        self.story: list[str] = []
        self.spoken: list[tuple[str, bool]] = []
        self.affirmed: set[str] = set()
        self.denied: set[str] = set()
        self.ruled_out: set[str] = set()
        self.removed: set[str] = set()
        self._before = ""
        self._cue = ""
        self._reached = 0
        self._clause: list[str] = []
        self._affirming: list[str] = []
        self._denying: list[str] = []
        self._removing: list[str] = []
        self._leaving = False
        self._condition = False
        self._story = False
        self._pointed = False

    def take(self, word: str) -> None:
        lowered = word.lower()
        named = self._names_number(word)
        self.spoken.append((lowered, named))
        if lowered in _BREAKS:
            self.close()
            self._condition = lowered in _CONDITIONS
            return
        if lowered in _STORY and not self._condition:
            self._story = True
        if lowered in _DENIALS:
            condition = self._condition or lowered in _CONDITIONS
            self.close()
            told = lowered == "wasnot" and not condition
            self._cue, self._condition = "told" if told else "denied", condition
            self.story.append("not")
            if not told:
                self.order.append("not")
            return
        if lowered in _PREPOSITIONS and self._pointed:
            self._reached = _REACH
        if lowered in ("replace", "replaces", "replaced", "replacing", "from"):
            self._leave(lowered)
            return
        if self._leaving and lowered in ("with", "by", "to", "into"):
            self._cue, self._leaving = "", False
            return
        if lowered == "off":
            self._removing += self._clause[-_REACH:]
        if self._cue != "denied" or self._reached >= _REACH:
            self.plain |= {lowered, _root(lowered)}
        # `A` in `module A` is a name, at the head of a clause it is none.
        if lowered in STOP_WORDS and not (len(word) == 1 and word.isupper() and self._clause):
            return
        key = self._weigh(word, lowered)
        if not _SOURCE.search(lowered):
            self.order.append(key)
            if named or not key[0].isdigit():
                self.story.append(key)
        if lowered in _REMOVALS:
            # Not to remove a thing is to keep it.
            (self._denying if self._cue == "denied" else self._affirming).append(key)
            self._cue = "" if self._cue == "denied" else "removed"
            self._reached, self._pointed = 0, False
            return
        self._sign(key)

    def _names_number(self, word: str) -> bool:
        """Whether a number is a version or a code: it has dots, or stands behind a name."""
        before, self._before = self._before, word
        if not word[0].isdigit():
            return False
        behind_name = before[:1].isalpha() and not before.islower()
        return word.count(".") > 1 or behind_name or before in _NUMBERED

    def _leave(self, word: str) -> None:
        """What is replaced, or gone away from, is removed until it is said by what."""
        if word != "from" and self._clause:
            self._removing += self._clause[-_REACH:]
        elif word != "from":
            self._cue, self._reached, self._leaving = "removed", 0, True

    def _weigh(self, word: str, lowered: str) -> str:
        if lowered in _COUNTED:
            self._add(_COUNTED[lowered], 1.0)
            return _COUNTED[lowered]
        if word.isalpha() and (word.islower() or word.istitle()):
            key = meaning(lowered)
            self._add(key, 0.3 if key in LIGHT else 1.0)
            return key
        key = lowered[:_LONGEST_NAME]
        if key[0].isdigit():
            number = _bare(key)
            self._add(number, 1.0)
            if number.count(".") > 1:
                # `1.26.4` is a `1.26`.
                self._add(".".join(number.split(".")[:2]), 0.5)
            return number
        parts = _parts(word)
        name = parts[0] if parts else key
        self._add(name, 1.5)
        if not (
            _HYPHENATED.fullmatch(lowered)
            or _SOURCE.search(lowered)
            or (word.isalpha() and word.isupper())
        ):
            self.names[name] = frozenset(
                MEANING.get(part, part) for part in parts[1:] if len(part) > 2
            )
        for part in parts[1:]:
            plain = MEANING.get(part, part)
            self._add(plain, 0.3 if plain in LIGHT else 0.5)
            if lowered in self.plain:
                self.plain.add(part)
        return name

    def _add(self, key: str, weight: float) -> None:
        self.weights[key] = max(weight, self.weights.get(key, 0.0))

    def _sign(self, key: str) -> None:
        self._clause.append(key)
        if not self._cue or self._reached >= _REACH:
            self._affirming.append(key)
            return
        self._reached += 1
        self._pointed = self._pointed or key not in LIGHT
        if self._cue == "denied":
            self._denying.append(key)
            if self._condition:
                self.ruled_out.add(key)
        elif self._cue == "removed":
            self._removing.append(key)

    def close(self) -> None:
        """The clause ends, and the reach of its denial with it; `column dropped` drops it."""
        if self._cue == "removed" and not self._reached:
            self._removing += self._clause[-1:]
        self.removed.update(self._removing)
        self.denied.update(self._denying)
        if not self._story:
            self.affirmed.update(self._affirming)
        self._clause, self._affirming, self._denying, self._removing = [], [], [], []
        self._cue, self._reached, self._leaving = "", 0, False
        self._condition = self._story = self._pointed = False


def _bare(number: str) -> str:
    """`2.0`, `2.x` and `2` are one version, `1,000` and `1000` one amount."""
    whole = number.removesuffix(".x")
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+", whole):
        whole = whole.replace(",", "")
    whole = whole.replace(",", ".")
    while whole.endswith(".0"):
        whole = whole.removesuffix(".0")
    return whole


def _numbers(spoken: list[tuple[str, bool]]) -> list[Number]:
    """The amounts and versions of a text, each with the content word before it."""
    found: list[Number] = []
    of = ""
    for at, (word, named) in enumerate(spoken):
        following = spoken[at + 1][0] if at + 1 < len(spoken) else ""
        if word[0].isdigit():
            found.append(_number(_bare(word), following, of, named=named))
        elif (amount := _SPELT.get(word)) and following in _UNITS:
            found.append(_number(f"{amount:g}", following, of, named=False))
        elif word not in STOP_WORDS and word not in _BREAKS and word not in _UNITS:
            of = meaning(word)
    return found


def _number(number: str, unit: str, of: str, *, named: bool) -> Number:
    """With a unit it may be written in base units elsewhere, or in thousandths of them."""
    if unit not in _UNITS or number.count(".") > 1:
        return Number(number, frozenset({number}), of, named)
    amount = float(number) * _UNITS[unit]
    written = frozenset({number, f"{amount:g}", f"{amount * 1000:g}"})
    return Number(f"={amount:g}", written, of, named=False)
