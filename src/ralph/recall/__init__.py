"""What a search finds: hits, the kinds of records there are, and who may see them.

What kinds there are, a row each, is in `ralph.recall.kinds`.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

from ralph.recall.kinds import KINDS, Keeper
from ralph.records.conversation import Exchange, conversation_id, exchange_id

Relevance = Literal["relevant", "possibly"]
CodeState = Literal["holds", "changed", "moved", "gone", "elsewhere"]


class Standing(msgspec.Struct, frozen=True):
    """How the code of a record stands in the working copy, and in words what happened to it."""

    state: CodeState
    text: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether the code is not here any more."""
        return self.state in ("gone", "elsewhere")

    @property
    def line(self) -> str:
        """What people and models read about it."""
        return self.text or "holds"


class Replacement(msgspec.Struct, frozen=True):
    """The newer record that replaced another one, or only one rule in it.

    `words` is the name of that rule, and `text` are its words; "" stands for the whole record.
    """

    by: str
    at: str = ""
    words: str = ""
    text: str = ""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What each stage gave a hit."""

    words: float
    words_rank: int | None = None
    matched: tuple[str, ...]
    asked: int
    coverage: float
    meaning: float | None = None
    meaning_rank: int | None = None
    mixed: float
    # What it says beyond the question: 1 if enough, less if it only repeats the question.
    adds: float = 1.0
    score: float
    # How likely the answer is among the hits of the list, and how likely this one has it by itself.
    answered: float = 0.0
    alone: float = 0.0
    # Whether it lies in the days that the question names; None where it names none.
    in_time: bool | None = None
    rating: int = 0


class Hit(msgspec.Struct, frozen=True):
    """An answer as every door shows it; score and why are None where nothing was asked.

    Relevance is None there too, and under 0.40, where only a lower `min_score` lets a hit through.
    """

    id: str
    kind: str
    score: float | None
    relevance: Relevance | None
    when: str
    why: str | None
    record: Any
    parts: Parts | None = None
    # When it was, and the ids of others that say the same.
    at: str = ""
    like: tuple[str, ...] = ()
    # Whether it is a note that only the person it belongs to sees.
    private: bool = False
    # None if nothing is known about its code.
    standing: Standing | None = None
    # What a person said later in its place.
    replaced: tuple[Replacement, ...] = ()

    @property
    def is_replaced(self) -> bool:
        """Whether nothing of it holds any more, because a newer record replaced it."""
        return any(not one.words or self.kind == "note" for one in self.replaced)

    @property
    def label(self) -> str:
        """What people call its kind."""
        return "private note" if self.private else KINDS[self.kind].label

    def __repr__(self) -> str:
        """One line: what it is, how sure, and how it begins; the fields have the rest."""
        row = KINDS.of(self.kind)
        title = row.headline(self.record) if row else ""
        score = "" if self.score is None else f" {self.score:.2f} {self.relevance or 'doubtful'}"
        return f"<Hit {self.id[:8]} {self.kind}{score}: {' '.join(title.split())[:60]}>"


# -- Who asks.


class Scope(msgspec.Struct, frozen=True):
    """Who asks, and so what may be found: no argument of a call makes it wider.

    An agent of a run sees its own feature and the project's notes. A person's own agent sees the
    whole project and its conversations. A person also sees what all projects published.
    """

    feature: str | None = None
    keepers: frozenset[Keeper] = frozenset({"features", "conversations", "knowledge"})


PERSON = Scope()
SESSION = Scope(keepers=frozenset({"features", "conversations"}))
CONVERSATIONS_ALONE = Scope(keepers=frozenset({"conversations"}))


def run_scope(feature: str | None) -> Scope:
    """What an agent that works on this feature, or on all of them, may see."""
    return Scope(feature, frozenset({"features"}))


# -- The names of one event: as an exchange of a person's session, and as an iteration.


CLAUDE_CODE = "claude-code"


def session_in(source: str, session: str) -> str:
    """A person's session, with its client unless that is Claude Code."""
    return session if source == CLAUDE_CODE else f"{source}:{session}"


def run_name(session: str, key: str, source: str = CLAUDE_CODE) -> str:
    """The run that one exchange of a session was."""
    return f"{session_in(source, session)}#{key}"


def held_in(record: object, session: str) -> bool:
    """Whether this person's session is where it happened; the session may name its client."""
    if isinstance(record, Exchange):
        return record.conversation == _conversation(session)
    run = getattr(record, "session_id", None) or ""
    return run.rpartition("#")[0] == session != ""


def exchange_of_run(run: str | None) -> str | None:
    """The id of the exchange that a run was; None for a run that was none."""
    session, apart, key = (run or "").rpartition("#")
    return exchange_id(_conversation(session), key) if apart else None


def _conversation(session: str) -> str:
    source, _, name = session.rpartition(":")
    return conversation_id(source or CLAUDE_CODE, name)


def event_of(hit: Hit) -> str:
    """The id of what happened: the exchange's, also for the iteration that it was."""
    return exchange_of_run(getattr(hit.record, "session_id", None)) or hit.id


# From this share of common words on, two hits say the same.
_SAME_SHARE = 0.9
_WORD = re.compile(r"\w+")
_COMPARED_CHARS = 4000


class Twins:
    """Hits without those that are the same event as an earlier one, or say the same."""

    def __init__(self) -> None:
        self._chosen: list[tuple[Hit, _HitWords, str, list[str]]] = []
        self._near: list[bool] = []

    def fold(self, hit: Hit) -> bool:
        """Whether an earlier hit says the same: that one names this one from now on."""
        event = event_of(hit)
        wording = _HitWords(hit)
        is_near = False
        for place, (chosen, other, other_event, like) in enumerate(self._chosen):
            near = wording.near(other)
            is_near = near if not place else is_near
            # One id with two contents is two records that differ.
            if (near and wording.same(other)) or (event == other_event and hit.id != chosen.id):
                like.append(hit.id)
                return True
        self._chosen.append((hit, wording, event, []))
        self._near.append(is_near)
        return False

    def like(self, place: int) -> tuple[str, ...]:
        """The ids that were folded into the hit at this place."""
        return tuple(self._chosen[place][3])

    def near(self, place: int) -> bool:
        """Whether the hit at this place says the same as the first but for a number or its end."""
        return self._near[place]


# For ASCII: lowercase letters, and a blank for every character that is in no word.
_PLAIN = bytes(
    ord(char.lower()) if char.isalnum() or char == "_" else 32 for char in map(chr, range(128))
).ljust(256)


def _words(text: str) -> frozenset[str]:
    if text.isascii():  # several times as fast
        return frozenset(text.encode().translate(_PLAIN).decode().split())
    return frozenset(_WORD.findall(text.casefold()))


class _HitWords:
    """The words of a hit, and how it ended."""

    def __init__(self, hit: Hit) -> None:
        row = KINDS.of(hit.kind)
        text = ""
        if row is not None and row.label:  # a summary repeats what it sums up
            text = f"{row.title(hit.record)}\n{row.text(hit.record)}"
        self._found = _words(text[:_COMPARED_CHARS])
        self.words = frozenset(filter(str.isalpha, self._found))
        self._count = len(self.words)
        self.ended = getattr(hit.record, "outcome", "")

    @functools.cached_property
    def numbers(self) -> frozenset[str]:
        """The words with other characters than letters."""
        return self._found - self.words

    def same(self, other: _HitWords) -> bool:
        """Whether both, being near, say the same: a number or the end makes the difference."""
        return self.ended == other.ended and self.numbers == other.numbers

    def near(self, other: _HitWords) -> bool:
        """Whether both say the same but for numbers and how they ended."""
        mine = self._count
        its = other._count
        if not mine or its < _SAME_SHARE * mine or mine < _SAME_SHARE * its:
            return False
        shared = len(self.words & other.words)
        return shared >= _SAME_SHARE * (mine + its - shared)
