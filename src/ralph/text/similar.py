"""Whether two learnings say the same, the opposite, or different things. Pure, and only words.

A text is reduced to its content words, lower-cased and stemmed. More than 70 % of the words in
common is the same thing said again (F11), unless one affirms what the other denies: then they
conflict (F21). `use X` against `use Y instead of X` conflicts too, however few words they share,
as long as both do not speak of different circumstances. Word order and synonyms are not seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ralph.text.tokens import stem

THRESHOLD = 0.7
_REACH = 3

Verdict = Literal["unique", "duplicate", "conflict"]

# fmt: off
_STOP = frozenset("""
a about all also always am an and any are as at be been being both by can could did do does doing
each for from further get gets got had has have having here how i if in into is it its itself just
let lets may me might more most must my of on once only onto or other our out over own please same
shall should simply so some still such than that the their them then there these they this those
through thus to too under up upon us very via was we were what when where whether which while who
why will with within would yet you your make makes made ensure sure remember really actually now
""".split())
_PREPOSITIONS = frozenset("""
for in on at from to when while during inside within with via into through if under over by as
unless until after before whenever where
""".split())
# Verbs that say that something is done, not what.
_LIGHT = frozenset(map(stem, """
use using used call calling run running prefer import choose pick adopt add set keep install switch
rely want expect return accept require take pass put need do go have get allow write try
""".split()))
_DIRECTIVES = _LIGHT - frozenset(map(stem, "need do go have get".split()))
_DENY_WHAT_IS_DONE = frozenset("""
never avoid avoids avoiding avoided cannot stop stops stopped nor neither don't doesn't didn't can't
won't shouldn't mustn't isn't aren't wasn't weren't wouldn't couldn't hasn't haven't hadn't needn't
dont doesnt didnt cant wont shouldnt mustnt isnt arent donot refrain forbid forbidden prohibited
""".split())
_DENY_A_THING = frozenset({"not", "no", "without", "insteadof", "none"})
_BREAKS = frozenset(".;!?()\n,\u2013\u2014") | {"but", "because", "since", "otherwise", "so"}
_OPPOSITES = (
    "before/after enable/disable enabled/disabled allow/deny allowed/denied include/exclude"
    " required/optional mandatory/optional increase/decrease true/false sync/async"
    " synchronous/asynchronous mutable/immutable lowercase/uppercase safe/unsafe works/fails"
    " supported/unsupported passes/fails succeeds/fails possible/impossible valid/invalid"
    " ascending/descending add/remove cheap/expensive serially/parallel"
)
# fmt: on

_WORD = re.compile(
    r"[^\W_]\w*(?:'[a-z]{1,2}\b)?(?:(?:::|->|[./:@-])\w+)*|[.,;!?()\n\u2013\u2014]|(?<=\s)-(?=\s)"
)
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_APOSTROPHES = re.compile("[\u2018\u2019\u02bc\u00b4]")
# Places that drift from run to run say nothing about the lesson.
_DRIFTING = re.compile(r"\b(?:line|column|col|iteration|attempt)s?\s+#?\d+(?::\d+)?", re.I)
_AUXILIARY = "can|could|does|do|did|is|are|was|were|will|would|should|must|has|have|had|be|may"
_PHRASES = (
    # What looks like a denial and is none.
    (r"\b(?:not|never|don't|do\s+not)\s+forget\b(?:\s+to\b)?", " "),
    (r"\bnot\s+(?:only|just|merely)\b|\bno\s+(?:doubt|matter)\b", " "),
    (r"\b(?:fails?|breaks?|crash(?:es)?|cannot\s+\w+|does\s+not\s+\w+)\s+without\b", " needs "),
    # What is a denial in more than one word.
    (r"\b(?:instead|in\s+place|in\s+lieu)\s+of\b|\brather\s+than\b", " insteadof "),
    (r"\bno\s+longer\b|\bno\s+need\s+to\b", " donot "),
    (r"\b(?:stay|keep)\s+away\s+from\b|\bsteer\s+clear\s+of\b", " avoid "),
    (rf"\b(?:{_AUXILIARY})\s+not\b", " donot "),
)
_REWRITES = tuple((re.compile(pattern, re.I), plain) for pattern, plain in _PHRASES)


@dataclass(frozen=True, slots=True)
class Gist:
    """What a text is about: its words, those it affirms, denies, denies foremost, asks for."""

    words: frozenset[str]
    affirmed: frozenset[str]
    denied: frozenset[str]
    denied_first: frozenset[str]
    asked_for: frozenset[str]

    def signature(self) -> str:
        """The words in order, what is denied behind `not:`; two texts that agree have one."""
        signed = [f"not:{word}" for word in self.denied]
        return " ".join(sorted(self.words - self.denied) + sorted(signed))


@lru_cache(maxsize=4096)
def gist(text: str) -> Gist:
    """The text reduced to what it is about and which way it points."""
    plain = _DRIFTING.sub(" ", _APOSTROPHES.sub("'", text))
    for pattern, new in _REWRITES:
        plain = pattern.sub(new, plain)
    reader = _Reader()
    for word in _WORD.findall(plain):
        reader.take(word.lower())
    reader.close()
    # A word that is affirmed elsewhere in the text is denied only when that was the point of it.
    denied = (reader.denied - reader.affirmed) | reader.denied_first
    return Gist(
        frozenset(reader.affirmed | reader.denied),
        frozenset(reader.affirmed - reader.denied_first),
        frozenset(denied),
        frozenset(reader.denied_first),
        frozenset(reader.asked_for - reader.denied_first),
    )


def from_signature(signature: str) -> Gist:
    """The gist a signature was made of, as far as duplicates are concerned."""
    parts = signature.split()
    denied = frozenset(part[4:] for part in parts if part.startswith("not:"))
    affirmed = frozenset(part for part in parts if not part.startswith("not:"))
    return Gist(affirmed | denied, affirmed, denied, denied, frozenset())


def jaccard(one: Gist, other: Gist) -> float:
    """The share of the words of both that both have."""
    union = one.words | other.words
    return len(one.words & other.words) / len(union) if union else 1.0


def compare(one: str | Gist, other: str | Gist, *, threshold: float = THRESHOLD) -> Verdict:
    """Whether the second says the same as the first, contradicts it, or says something else."""
    a = gist(one) if isinstance(one, str) else one
    b = gist(other) if isinstance(other, str) else other
    only_a, only_b = a.words - b.words, b.words - a.words
    flipped = (_point(a) & b.affirmed) | (_point(b) & a.affirmed)
    contradict = bool(flipped) and not (a.denied & b.denied - _LIGHT)
    opposed = {
        word
        for pair in _PAIRS
        for word in pair
        if (pair[0] in only_a and pair[1] in only_b) or (pair[1] in only_a and pair[0] in only_b)
    }
    if opposed:
        shared = (a.words | b.words) - opposed
        if len(a.words & b.words) > threshold * len(shared):
            return "conflict"
    if jaccard(a, b) > threshold:
        if contradict:
            return "conflict"
        # What to do instead is news to a text that only denies, or that offers something else.
        new = (_alternative(a) - b.words) | (_alternative(b) - a.words)
        if new and not _alternative(a) & _alternative(b):
            return "unique"
        # The same sentence about another number is another fact.
        return "unique" if _has_number(only_a) and _has_number(only_b) else "duplicate"
    circumstances = (only_a - _offered(a) - _LIGHT, only_b - _offered(b) - _LIGHT)
    return "conflict" if contradict and not all(circumstances) else "unique"


def _point(g: Gist) -> frozenset[str]:
    """What a text denies in earnest: not that something is used, but what."""
    return (g.denied_first - _LIGHT) or g.denied_first


def _offered(g: Gist) -> frozenset[str]:
    """What a text asks for in place of what it denies."""
    return g.asked_for if g.denied_first else frozenset()


def _alternative(g: Gist) -> frozenset[str]:
    """What is offered and does not follow from the denial, as `serially` from `not in parallel`."""
    follows = {pair[not i] for pair in _PAIRS for i in (0, 1) if pair[i] in g.denied}
    return _offered(g) - follows - _LIGHT


class _Reader:
    """Walks the words of a text and keeps the sign of each."""

    def __init__(self) -> None:
        self.affirmed: set[str] = set()
        self.denied: set[str] = set()
        self.denied_first: set[str] = set()
        self.asked_for: set[str] = set()
        self._cue: str | None = None
        self._reached: list[str] = []
        self._asking = 0
        self._before: list[str] = []
        self._joined = False

    def take(self, word: str) -> None:
        if word in _BREAKS or word == "-":
            self.close()
            self._before.clear()
        elif word in _DENY_WHAT_IS_DONE or word in _DENY_A_THING:
            self.close()
            self._cue = word
        else:
            if word in _PREPOSITIONS:
                self._asking = 0
                # What a denied thing is for, or where, is not denied with it.
                if self._cue in _DENY_A_THING and self._reached:
                    self.close()
                elif any(w not in _LIGHT for w in self._reached):
                    self._reached += [""] * _REACH
            if word not in _STOP:
                for key in _keys(word):
                    self._keep(key)
            self._joined = word == "and"

    def _keep(self, key: str) -> None:
        if self._cue and self._joined and key in _DIRECTIVES:
            self.close()  # "don't use X and use Y"
        if not self._cue:
            self.affirmed.add(key)
            self._before.append(key)
            if key in _DIRECTIVES:
                self._asking = _REACH
            elif self._asking:
                self._asking -= 1
                self.asked_for.add(key)
            return
        self.denied.add(key)
        if len(self._reached) < _REACH + (self._reached[:1] != [] and self._reached[0] in _LIGHT):
            self.denied_first.add(key)
        self._reached.append(key)

    def close(self) -> None:
        """The reach of a denial ends; one that reached nothing denies the word before it."""
        if self._cue and not any(self._reached) and self._before:
            last = self._before[-1]
            self.affirmed.discard(last)
            self.denied.add(last)
            self.denied_first.add(last)
        self._cue = None
        self._reached = []
        self._asking = 0


def _keys(word: str) -> list[str]:
    if _CJK.search(word):
        return [word[i : i + 2] for i in range(max(1, len(word) - 1))]
    word = word.removesuffix("'s")
    return [stem(word) if word.isascii() and word.isalpha() else word]


def _has_number(words: frozenset[str]) -> bool:
    return any(word[0].isdigit() or word.lstrip("v")[:1].isdigit() for word in words)


_PAIRS: tuple[tuple[str, str], ...] = tuple(
    (stem(one), stem(other)) for one, other in (pair.split("/") for pair in _OPPOSITES.split())
)
