"""How an error was solved: what was done between the call that failed and the same going well."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from ralph.capture.retries import Call, again, looks_only, short

LONGEST = 300
_MOST_OPEN = 50
_MOST_STEPS = 200
_MOST_TOLD = 3
_LONGEST_SENTENCE = 140
_READ = 4000

Echoed = Callable[[str], bool]
Did = Literal["edited", "read", "ran"]
_DID: tuple[Did, ...] = get_args(Did)

_SENTENCE = re.compile(r"(?<=[.!])\s+(?=[A-Z*`\"(-])|\n+")
_MARKUP = re.compile(r"^(?:[-*+•]|\d+[.)]|#+)\s+|\*\*|__")
_FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)
_BECAUSE = re.compile(
    r"\b(?:because|due to|caused by|since|as (?:it|the|they)|so that|turns out"
    r"|the (?:root |actual |real )?(?:cause|problem|issue|reason|bug|culprit|mistake)\b)",
    re.I,
)
_EXPLAINS = re.compile(
    rf"{_BECAUSE.pattern}|\b(?:missing|forgot|never|instead of|needs?|needed|requires?|must|wrong"
    r"|incorrect|mismatch|too (?:early|late|small|large|long|short)|not|was|were|n't)\b",
    re.I,
)
_ANNOUNCES = re.compile(
    r"(?:let me|let's|now\b|i'll|i will|i'm going|next\b|first\b|then\b|running|re-?run|checking"
    r"|looking|trying|time to|good\b|great\b|perfect\b|ok(?:ay)?\b|done\b|all (?:tests?|checks?)"
    r"|(?:the )?(?:tests?|build|checks?|lint)\b.{0,20}\b(?:pass|green|succeed)|i need to|i should)",
    re.I,
)


class _Failed(msgspec.Struct):
    call: Call
    place: str | None
    first: int
    last: int


class _Step(msgspec.Struct):
    at: int
    did: Did | Literal["said"]
    what: str
    only_for: str = ""


class _Solved(msgspec.Struct):
    name: str
    told: str


class Attempts:
    """The errors of calls that failed, until the same call goes well."""

    def __init__(self) -> None:
        self._time = 0
        self._failed: dict[str, _Failed] = {}
        self._steps: deque[_Step] = deque(maxlen=_MOST_STEPS)
        self._said: deque[_Step] = deque(maxlen=3)
        # Solved a moment ago: the next words may say why.
        self._fresh: list[_Solved] = []

    @property
    def open(self) -> bool:
        """Whether any error waits to be solved."""
        return bool(self._failed)

    @property
    def listening(self) -> bool:
        """Whether the agent's words may matter."""
        return bool(self._failed or self._fresh)

    def begin(self) -> int:
        """A call begins; the moment is needed when it comes back."""
        self._time += 1
        self._fresh.clear()
        return self._time

    def fail(self, name: str, call: Call, place: str | None) -> None:
        """A call failed with this error."""
        self._time += 1
        before = self._failed.pop(name, None)
        first = before.first if before else self._time
        self._failed[name] = _Failed(call, place, first, self._time)
        if len(self._failed) > _MOST_OPEN:
            del self._failed[next(iter(self._failed))]

    def awaits(self, text: str) -> bool:
        """Whether this very call failed and was not made again."""
        return any(failed.call.text == text for failed in self._failed.values())

    def may_be(self, line: str) -> bool:
        """Whether the line could be one that failed; only a closer look can tell."""
        return any(failed.call.hint in line for failed in self._failed.values())

    def do(self, did: Did, what: str, only_for: str = "") -> None:
        """Something was done that may have helped, perhaps only a certain call."""
        if self._failed:
            self._time += 1
            self._steps.append(_Step(self._time, did, what[:_READ], only_for))

    def hear(self, text: str, echoed: Echoed) -> list[tuple[str, str]]:
        """The agent said something; the errors it has just solved, better told."""
        better: list[tuple[str, str]] = []
        if self._fresh:
            why = _sentence([text[:_READ]], _BECAUSE, echoed)
            better = [(solved.name, _joined(solved.told, why)) for solved in self._fresh if why]
            self._fresh.clear()
        if self._failed:
            self._time += 1
            self._said.append(_Step(self._time, "said", text[:_READ]))
        return better

    def succeed(self, call: Call, begun: int, echoed: Echoed) -> list[tuple[str, str]]:
        """A call went well: the errors that are gone with it, and how each was solved."""
        solved: list[tuple[str, str]] = []
        self._fresh.clear()
        for name, failed in list(self._failed.items()):
            # What was begun before the failure was known is no second try.
            if begun <= failed.last or not again(call, failed.call, failed.place):
                continue
            del self._failed[name]
            steps = self._since(self._steps, failed)
            told = _told(steps, call, failed.call)
            said = [step.what for step in self._since(self._said, failed)]
            why = _sentence(said[::-1], _EXPLAINS, echoed)
            if not why:
                self._fresh.append(_Solved(name, told))
            solved.append((name, _joined(told, why)))
        if not self._failed:
            self._steps.clear()
            self._said.clear()
        return solved

    @staticmethod
    def _since(steps: deque[_Step], failed: _Failed) -> list[_Step]:
        """What came after the failure; after the first one when nothing came after the last."""
        wanted = ("", failed.call.text)
        for moment in (failed.last, failed.first):
            later = [step for step in steps if step.at > moment and step.only_for in wanted]
            if found := [s for s in later if s.did != "ran" or not looks_only(s.what)]:
                return found
        return []


def _told(steps: list[_Step], call: Call, failed: Call) -> str:
    if not steps:
        if call.text != failed.text:
            return f"{call.told} instead."
        how = "when tried again" if call.change else "when run again"
        return f"{call.told} {how}; nothing was changed in between."
    done = [told for did in _DID if (told := _few(did, steps))]
    whole = "; ".join([*done, f"then {call.told}."])
    return whole[:1].upper() + whole[1:]


def _few(did: Did, steps: list[_Step]) -> str:
    """The last few steps of a kind, each once, in order."""
    each = list(dict.fromkeys(step.what for step in steps if step.did == did))
    if not each:
        return ""
    few = [f"`{short(what)}`" if did == "ran" else what for what in each[-_MOST_TOLD:]]
    more = f" and {len(each) - _MOST_TOLD} more" if len(each) > _MOST_TOLD else ""
    return f"{did} {', '.join(few)}{more}"


def _sentence(texts: list[str], explains: re.Pattern[str], echoed: Echoed) -> str:
    """The sentence that says why, in the agent's own words; the newest text first."""
    for text in texts:
        for sentence in _SENTENCE.split(_FENCED.sub("\n", text)):
            plain = _MARKUP.sub("", " ".join(sentence.split())).strip()
            if not 12 <= len(plain) <= _LONGEST_SENTENCE or plain[-1] in "?:" or plain[0] in ">|":
                continue
            says_why = _BECAUSE.search(plain) or not _ANNOUNCES.match(plain)
            if says_why and explains.search(plain) and not echoed(plain):
                return plain
    return ""


def _joined(told: str, why: str) -> str:
    if len(told) > LONGEST:
        told = told[: LONGEST - 1].rsplit(None, 1)[0] + "\u2026"
    whole = f'{told} "{why}"' if why else told
    return whole if len(whole) <= LONGEST else told
