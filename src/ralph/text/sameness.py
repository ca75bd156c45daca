"""Decide whether two texts say the same, contradict each other, or say different things.

Each text is read once: its stemmed content words, which of them it denies, its numbers and names.
Simple comparisons of two texts (shared words, letters, numbers, denials) are the features of a
logistic model. Here it compares learnings by their words alone; recall/sameness.py adds embeddings
and compares knowledge entries. bench/fit_sameness.py fits the weights on the pairs in tests/data
and chooses thresholds for precision: a false merge loses something, a missed one does not.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Set
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from ralph.text.tokens import STOP_WORDS, compiled, rule, stem, table, tokens

Verdict = Literal["unique", "duplicate", "conflict"]

# Texts that share more words than this are one sentence, perhaps with something exchanged.
THRESHOLD = 0.7
# Texts that share more than this must agree on names and numbers.
TWINS = 0.5
_HEAD_CHARS = 1000
_TAIL_CHARS = 500
# How many content words a denial reaches.
_REACH = 3

# Kept in the order of words, because it matters what comes before and after them.
_DIRECTIONS = frozenset("by with to from before after over into".split())
_BREAKS = frozenset(".;!?()\n,\u2013\u2014") | {"but", "because", "since", "otherwise", "so", "-"}

_CJK = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4", "'"))
_AUXILIARY = "can|could|does|do|did|is|are|was|were|will|would|should|must|has|have|had|be|may|need"
_REWRITES = (
    # Looks like a denial, but is not one.
    (r"\b(?:not|never|don't|do\s+not)\s+forget\b(?:\s+to\b)?", " "),
    (r"\bnot\s+(?:only|just|merely)\b|\bno\s+(?:doubt|matter)\b", " "),
    (r"\b(?:fails?|breaks?|crash(?:es)?|cannot\s+\w+|does\s+not\s+\w+)\s+without\b", " needs "),
    # A former state is neither asked for nor denied.
    (r"\b(?:had|was|were)(?:n't|\s+not|\s+never)\b", " but "),
    # Denials of more than one word.
    (r"\b(?:instead|in\s+place|in\s+lieu)\s+of\b|\brather\s+than\b", " insteadof "),
    (r"\bno\s+longer\b|\bno\s+need\s+to\b", " donot "),
    (r"\b(?:stay|keep)\s+away\s+from\b|\bsteer\s+clear\s+of\b", " avoid "),
    (r"\b(?:turn|switch)(?:ed|s)?\s+((?:\w+\s+){0,4}?)on\b", r" enable \1"),
    (r"\b(?:turn|switch)(?:ed|s)?\s+((?:\w+\s+){0,4}?)off\b", r" disable \1"),
    (r"\b(?:on|off)(?=\s*(?:$|[.,;)]|for\b|in\b))", r"\g<0>state"),
    (rf"\b(?:{_AUXILIARY})\s+not\b|\b\w+n't\b", " donot "),
)
_UNITS = {"m": 1e6, "ms": 0.001, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600}
_UNITS |= {"hour": 3600, "day": 86400, "k": 1e3, "kb": 1e3, "ki": 1e3, "mb": 1e6, "mi": 1e6}
_UNITS |= {"g": 1e9, "gb": 1e9, "gi": 1e9}
_COUNTS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_COUNTED = rf"\b(?:{'|'.join(_COUNTS)})\b"
# A word that is spelled like an identifier: with digits, dots or humps, or in capitals.
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:::|[./:@#-])\w+)*")
_PLAIN = re.compile(r"[A-Za-z][a-z]*$")
_VALUE = re.compile(r"([a-z][\w.-]*)\s?[=:]\s?[\"'`]?([\w.+-]+)")

# Fitted by bench/fit_sameness.py, which writes this table. The threshold is part of the bias.
_WEIGHTS = """
feature            learning     again   problem  solution     whole
bias                  -4.01     -3.80         -         -     -8.47
shared                 0.80     -5.69     -3.11     -3.27     -1.57
contained              2.19      2.22      1.12      0.66     -0.33
couples               -0.50     -3.70     -1.58     -0.44     -4.74
letters                2.69      4.98      0.53      2.06      1.17
short                  0.75      1.02      0.92      0.93     -0.18
ratio                 -0.22     -1.16     -0.90      0.14     -0.72
names                  0.61      0.20     -0.02     -0.30      0.37
names_apart           -0.85     -0.24     -0.26      0.14     -0.48
names_exchanged       -1.09     -0.84      0.19     -0.91     -0.16
numbers_exchanged     -1.85     -1.70     -0.10     -1.70     -0.15
numbers_common         0.85      0.73      0.06      1.13     -0.28
number_alone          -1.04     -0.79     -0.14     -0.41      0.18
codes_common          -0.25      0.34      0.03      0.43      0.28
flipped               -3.86     -2.43     -0.12     -1.11      0.16
denial_alone          -1.20      0.25     -0.10      0.24      0.04
exchanged             -4.57     -2.90     -0.34      3.88     -0.33
reordered              2.59      1.86     -1.86      4.70      1.50
opposites                 -     -1.43     -1.43     -2.00         -
swapped                   -     -1.60     -3.51     -1.66         -
cosine                    -      4.43     -0.65      4.08      4.47
aligned                   -     -0.40     -1.45     -0.47      0.93
aligned_most              -      3.07      0.33      1.83     -0.37
covered                   -     -2.74     -0.13     -2.19      0.12
covered_most              -      1.61      0.50      0.93      0.21
weakest                   -     -7.25     -1.39     -4.29      8.18
matched                   -      0.88         -      0.35         -
matched_most              -      2.79         -      3.19         -
known                     -     -0.07         -     -0.93         -
known_most                -     -1.17         -     -2.06         -
odd                       -     -0.17         -      0.02         -
odd_most                  -     -0.20         -      0.20         -
word_exchanged            -         -     -0.50         -         -
subject_apart             -         -         -         -     -0.01
"""


class Gist(NamedTuple):
    """A text as the comparison sees it."""

    words: frozenset[str]
    affirmed: frozenset[str]
    denied: frozenset[str]
    denied_first: frozenset[str]
    asked_for: frozenset[str]
    # `spelled` is each content word once, as written; `parts` is stems, also of identifier parts.
    spelled: tuple[str, ...]
    parts: frozenset[str]
    couples: frozenset[tuple[str, ...]]
    order: tuple[str, ...]
    triples: frozenset[tuple[str, ...]]
    letters: dict[str, int]
    denials: int
    numbers: frozenset[str]
    figures: frozenset[str]
    names: frozenset[str]
    codes: frozenset[str]
    quoted: frozenset[str]
    # Settings with their values, as in `name=value`.
    values: frozenset[tuple[str, str]]

    def signature(self) -> str:
        """Return the sorted words, denied ones as `not:word`; texts that agree have the same."""
        denied = [f"not:{word}" for word in sorted(self.denied)]
        return " ".join([*sorted(self.words - self.denied), *denied])


@lru_cache(maxsize=8192)
def gist(text: str) -> Gist:
    """Read a text: its words, and which of them it affirms or denies."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    text = text.translate(_APOSTROPHES)
    plain = rule("places").sub(" ", text)
    text = rule("drifting").sub(" ", text)
    for pattern, new in _REWRITES:
        plain = compiled(pattern, re.I).sub(new, plain)
    affirmed = set[str]()
    denied = set[str]()
    asked_for = set[str]()
    first = set[str]()
    order: list[str] = []
    denials = 0
    cue = ""
    reached = 0
    asking = 0
    joined = False
    for word in rule("word").findall(plain.lower()):
        if word in _DIRECTIONS:
            order.append(word)
        if word in _BREAKS or word in _words("denials"):
            cue = "" if word in _BREAKS else word
            reached = 0
            asking = 0
            denials += word not in _BREAKS
        elif word in _words("prepositions") and reached:
            # A denial of a thing does not reach the words that say where or why.
            cue, asking = ("", 0) if cue in ("not", "no", "without", "insteadof") else (cue, 0)
            reached = _REACH
        elif word not in _words("stop"):
            for key in _keys(word):
                order.append(key)
                if cue and joined and key in light():
                    cue = ""  # "don't use X and use Y"
                if cue:
                    denied.add(key)
                    if reached < _REACH:
                        first.add(key)
                    reached += key not in light()
                    continue
                affirmed.add(key)
                if key in light():
                    asking = _REACH
                elif asking:
                    asking -= 1
                    asked_for.add(key)
        joined = word == "and"
    found = tokens(text)
    spelled = rule("spelled").findall(rule("hump").sub(" ", text).lower())
    return Gist(
        words=frozenset(affirmed | denied),
        affirmed=frozenset(affirmed - first),
        # A word that is also affirmed counts as denied only if the denial is about it.
        denied=frozenset((denied - affirmed) | first),
        denied_first=frozenset(first),
        asked_for=frozenset(asked_for - first),
        spelled=tuple(dict.fromkeys(word for word in spelled if word not in STOP_WORDS)),
        parts=frozenset(found),
        couples=frozenset(pairwise(found)),
        order=tuple(order),
        triples=frozenset(zip(order, order[1:], order[2:], strict=False)),
        letters=_letters(found),
        denials=denials,
        numbers=_figures(text, units=False),
        figures=_figures(text),
        names=frozenset(name.lower() for name in _NAME.findall(text) if not _PLAIN.match(name)),
        codes=frozenset(rule("code").findall(text)),
        quoted=frozenset(quoted.lower() for _, quoted in rule("quoted").findall(text)),
        values=frozenset(_VALUE.findall(text.lower())),
    )


def from_signature(signature: str) -> Gist:
    """Rebuild from a signature, as far as possible, the reading that it was made of."""
    words = signature.split()
    denied = frozenset(word[4:] for word in words if word.startswith("not:"))
    affirmed = frozenset(word for word in words if not word.startswith("not:"))
    everything = affirmed | denied
    numbers = _figures(" ".join(sorted(everything)), units=False)
    return gist("")._replace(
        words=everything,
        affirmed=affirmed,
        denied=denied,
        denied_first=denied,
        parts=everything,
        letters=_letters(everything),
        numbers=numbers,
        figures=numbers,
    )


def _letters(words: Iterable[str]) -> dict[str, int]:
    return Counter(f" {word} "[n : n + 3] for word in words for n in range(len(word)))


def _keys(word: str) -> list[str]:
    if not word.isascii() and compiled(_CJK).search(word):
        return [word[i : i + 2] for i in range(max(1, len(word) - 1))]
    word = word.removesuffix("'s")
    return [stem(word) if word.isascii() and word.isalpha() else word]


def _figures(text: str, *, units: bool = True) -> frozenset[str]:
    """Return the numbers in a text, converted by unit: 2 minutes are 120, `1,000` is 1000."""
    found: set[str] = set()
    text = compiled(_COUNTED, re.I).sub(lambda match: str(_COUNTS.index(match[0].lower())), text)
    for digits, unit in rule("number").findall(text):
        number = digits.replace(",", "") if rule("thousands").fullmatch(digits) else digits
        number = rule("zeros").sub("", number.replace(",", "."))
        size = _UNITS.get(unit.lower()) or _UNITS.get(unit.lower().removesuffix("s"))
        if not size or number.count(".") > 1:
            found.add(number)
        elif units:
            found.add(f"{float(number) * size:g}")
    return frozenset(found)


def _share(a: Set[str], b: Set[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def jaccard(one: Gist, other: Gist) -> float:
    """Return the share of all words that both texts have."""
    return _share(one.words, other.words)


def contradict(a: Gist, b: Gist) -> bool:
    """Whether one text affirms what the other denies, or reverses it."""
    if a == b:  # equal texts agree, even if "X after X" looks like an exchange
        return False
    only_a = a.words - b.words
    only_b = b.words - a.words
    opposed = opposites(only_a, only_b)
    if opposed and len(a.words & b.words) > THRESHOLD * len((a.words | b.words) - opposed):
        return True
    near = jaccard(a, b) > THRESHOLD
    if near and swapped(a, b):
        return True
    if not flipped(a, b) or a.denied & b.denied - light():
        return False
    return near or not (only_a - _offered(a) - light() and only_b - _offered(b) - light())


def swapped(a: Gist, b: Gist) -> bool:
    """Whether two things have swapped places, as in `replace X by Y`."""
    return any(
        left != right and (right, middle, left) in b.triples for left, middle, right in a.triples
    )


def flipped(a: Gist, b: Gist) -> frozenset[str]:
    """Return the words that one text affirms and the other denies."""
    return (_point(a) & b.affirmed) | (_point(b) & a.affirmed)


def opposites(only_a: Set[str], only_b: Set[str]) -> set[str]:
    """Return the words that only one text has and that are opposites across the two texts."""
    found: set[str] = set()
    for left, right in _groups("opposites"):
        for here, there in ((only_a, only_b), (only_b, only_a)):
            if here & left and there & right and not (here & right or there & left):
                found |= (here & left) | (there & right)
    return found


def rivals(a: Gist, b: Gist) -> bool:
    """Whether each text names a rival of something in the other: npm and yarn."""
    for field in _groups("rivals"):
        here, there = ({n for n, names in enumerate(field) if names & g.parts} for g in (a, b))
        if here - there and there - here:
            return True
    return False


def _point(text: Gist) -> frozenset[str]:
    """Return the words that a denial is about: what is used, not the verb "use"."""
    return (text.denied_first - light()) or text.denied_first


def _offered(text: Gist) -> frozenset[str]:
    """Return what a text asks for instead of what it denies."""
    return text.asked_for if text.denied_first else frozenset()


@cache
def light() -> frozenset[str]:
    """Return the stems of light verbs: they say that something is done, but not what."""
    return frozenset(map(stem, _words("light")))


@cache
def _words(section: str) -> frozenset[str]:
    return frozenset(" ".join(table(__file__, "sameness.txt")[section]).split())


@cache
def _groups(section: str) -> list[list[frozenset[str]]]:
    """Return the rows of a word table, each a list of sets of stems."""
    rows = table(__file__, "sameness.txt")[section]
    return [[frozenset(map(stem, words.split(","))) for words in row.split()] for row in rows]


def no_number_agrees(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether both have numbers and agree on none; `1.26` agrees with `1.26.4`."""
    return bool(a and b) and not any(
        f"{x}.".startswith(f"{y}.") or f"{y}.".startswith(f"{x}.") for x in a for y in b
    )


def features(a: Gist, b: Gist) -> dict[str, float]:
    """Return the features of two readings compared; their order does not matter."""
    common = len(a.parts & b.parts)
    short, long = sorted((len(a.parts), len(b.parts)))
    common_share = shared(a, b)
    neighbors = couples(a, b)
    names = a.names & b.names
    return {
        "shared": common_share,
        "contained": common / short if short else 1.0,
        "couples": neighbors,
        "letters": _cosine(a.letters, b.letters),
        "short": math.log1p(short),
        "ratio": short / long if long else 1.0,
        "names": len(names) / max(1, len(a.names | b.names)),
        "names_apart": float(bool(a.names and b.names) and not names),
        "names_exchanged": float(bool(a.names - b.names and b.names - a.names)),
        "numbers_exchanged": float(bool(a.figures - b.figures and b.figures - a.figures)),
        "numbers_common": float(bool(a.figures & b.figures)),
        "number_alone": float(bool(a.figures) != bool(b.figures)),
        "codes_common": float(bool(a.codes & b.codes)),
        "flipped": float(bool(flipped(a, b))),
        "denial_alone": float(bool(a.denied) != bool(b.denied)),
        "exchanged": common_share * bool(a.words - b.words and b.words - a.words),
        "reordered": common_share * max(0.0, common_share - neighbors),
    }


def shared(a: Gist, b: Gist) -> float:
    """Return the share of stems, including parts of identifiers, that both have."""
    return _share(a.parts, b.parts)


def couples(a: Gist, b: Gist) -> float:
    """Return the share of neighboring words that both have, or of stems if an order is unknown."""
    if not (a.couples and b.couples):
        return shared(a, b)
    return 2 * len(a.couples & b.couples) / (len(a.couples) + len(b.couples))


def _cosine(a: dict[str, int], b: dict[str, int]) -> float:
    product = sum(count * b.get(letters, 0) for letters, count in a.items())
    lengths = sum(n * n for n in a.values()) * sum(n * n for n in b.values())
    return product / math.sqrt(lengths) if lengths else 1.0


def compare(one: str | Gist, other: str | Gist) -> Verdict:
    """Whether a learning repeats another one, contradicts it, or says something else."""
    a = gist(one) if isinstance(one, str) else one
    b = gist(other) if isinstance(other, str) else other
    if contradict(a, b):
        return "conflict"
    decided = decide_learnings(a, b)
    if decided is None:
        found = {f"learning.{name}": value for name, value in features(a, b).items()}
        decided = score(found) >= 0
    return "duplicate" if decided else "unique"


def decide_learnings(a: Gist, b: Gist) -> bool | None:
    """Decide whether two learnings are the same; None if it takes the model to tell."""
    if apart(a, b):
        return False
    # What to do instead is new to a text that only denies.
    new = (_offered(a) - b.words) | (_offered(b) - a.words)
    if new - light() - opposites(new, a.denied | b.denied) and not _offered(a) & _offered(b):
        return False
    return True if repeats(a, b) else None


def score(found: dict[str, float]) -> float:
    """Return the log odds minus the threshold: 0 or more means yes."""
    weights = weigh()
    column = next(iter(found)).partition(".")[0]
    bias = weights["whole.bias" if column == "problem" else f"{column}.bias"]
    return bias + sum(weights[name] * value for name, value in found.items())


@cache
def weigh() -> dict[str, float]:
    """Return the weight of each feature, from the table."""
    head, *rows = (line.split() for line in _WEIGHTS.strip().splitlines())
    return {
        f"{column}.{row[0]}": float(value)
        for row in rows
        for column, value in zip(head[1:], row[1:], strict=True)
        if value != "-"
    }


def apart(a: Gist, b: Gist) -> bool:
    """Whether two texts differ in something decisive, however similar their words are."""
    if contradict(a, b) or no_number_agrees(a.figures, b.figures) or exchanged(a, b):
        return True
    # The same sentence about another name or number.
    return shared(a, b) > TWINS and bool(
        (a.names - b.names and b.names - a.names)
        or (a.figures - b.figures and b.figures - a.figures)
    )


def repeats(a: Gist, b: Gist) -> bool:
    """Whether one text has the words of the other and adds at most a few."""
    if a.parts == b.parts:
        return True
    return jaccard(a, b) > THRESHOLD and (a.words <= b.words or b.words <= a.words)


def adds(old: Gist, new: Gist) -> bool:
    """Whether the new text has what the old one says and more, such as an exception to it."""
    further, gone = (x.words - y.words - light() for x, y in ((new, old), (old, new)))
    if gone or len(further) != 1:
        return len(further) > len(gone) + 1
    # Another wording has a word more as well, but seldom every old word in its old order.
    rest = iter(new.order)
    return all(word in rest for word in old.order)


def exchanged(a: Gist, b: Gist) -> bool:
    """Whether one text has an opposite, a rival or another value in place of something."""
    return (
        bool(opposites(a.words - b.words, b.words - a.words))
        or rivals(a, b)
        or differ(a.quoted, b.quoted)
        or swapped(a, b)
    )


def differ(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether both are non-empty and have nothing in common."""
    return bool(a and b) and not a & b
