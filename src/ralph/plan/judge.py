"""What of a change to the plan's files stands, by what is known of who made it.

`Everything` (merge.py) is for a call through Ralph: it stands whole. `Losses` is for a change made
while the agent had no tool call under way: it is somebody else's and stands, but nothing is lost.
`Judge` is for every other change, which may be the agent's: it may add things, and reword the
feature of its run. What destroys and what belongs to others is put back (F1, F3, F6, F9, F10, F15).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.kinds.iteration import cut
from ralph.kinds.learning import read_learning, to_plain
from ralph.plan.document import Data
from ralph.plan.entities import Kind
from ralph.plan.fields import clean_path
from ralph.plan.learnings import FULL, was_removed
from ralph.plan.merge import as_list
from ralph.plan.splice import identity, same
from ralph.plan.values import PRIORITIES, STATUS_ALIASES, STATUSES, Limits
from ralph.text.redact import redact
from ralph.text.sameness import compare, gist
from ralph.text.sanitise import sanitise

_PROSE = ("description", "architecture", "boundaries")
_LISTS = ("learnings", "comments")
_NEEDED = (*_PROSE, "title", "feature", "system_prompt")
_TEXTS = {
    "features": (*_PROSE, "display_name", "acronym"),
    "tasks": ("title", "description", "discipline", "created", "updated", "completed"),
    "disciplines": (),
}
_TEXT_LISTS = ("dependencies", "knowledge_paths", "acceptance_criteria", "tags")
# What a task asks for; who does it may fill a gap, and no more.
_ASSIGNMENT = ("title", "description", "acceptance_criteria", "discipline", "priority")
_RALPHS = ("name", "id", "feature", "created", "last_verified", "removed_learnings")
_WORD = re.compile(r"\w+")
# Prose that keeps no more than this part of its words is a stub; longer words are no words. Who
# rewords a text keeps one of its terms, unless there were few.
_STUB = 1 / 4
_LONGEST_WORD = 40
_SHORT_WORD = 3
_FEW = 3


class Losses:
    """Lets a change stand, except that nothing disappears and no prose is emptied.

    `notes` has the reason for everything that was put back, by entry and field; `touched` the
    fields that were changed.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.notes: dict[tuple[str, str], str] = {}
        self.touched: set[tuple[str, str]] = set()

    def added(self, key: str, entry: Data) -> Data | None:
        """Something new stands."""
        return entry

    def gone(self, key: str, entry: Data) -> bool:
        """Nothing disappears without a call."""
        self.notes[key, ""] = "it was taken out of the file"
        return False

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        """A field stands unless something of it is lost."""
        if field in _LISTS:
            self.touched.add((key, field))
            given = [item for item in as_list(now) if said(item)]
            return [*given, *self._lost(key, field, given, kept)] or None
        if field in _NEEDED and kept and (why := _emptied(now)):
            self.notes[key, field] = why
            return kept
        self.touched.add((key, field))
        return now

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        """A key beside the list stands unless it is gone."""
        return kept if now is None else now

    def _lost(self, key: str, field: str, given: list[Any], kept: Any) -> list[Any]:
        there = {said(item) for item in given}
        before = as_list(kept)
        lost = [item for item in before if said(item) not in {"", *there}]
        if lost:
            self.notes[key, field] = f"{len(lost)} of {len(before)} {field} were lost"
        return lost


class Judge(Losses):
    """Lets a change stand that adds something, or that concerns the run's own feature.

    No feature (""): a planning run, which works on a copy, so that nothing here is its own.
    `others` are the features that other loops work on: their agents may have made the change.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        feature: str,
        others: frozenset[str],
        limits: Limits,
        base: Data,
        protected: set[tuple[str, str]],
    ) -> None:
        super().__init__(kind)
        self._feature = feature
        self._others = others
        self._limits = limits
        self._base = base
        self._protected = protected
        self.strange: dict[str, str] = {}

    # -- what `bring` asks

    def added(self, key: str, entry: Data) -> Data | None:
        """A new feature or task stands when it is complete; it takes nothing from anybody."""
        why = ""
        if not self._feature or self._kind == "disciplines":
            why = "it was added without a call through Ralph"
        elif (key, "") in self._protected:
            why = "it was deleted through Ralph"
        elif not self._is_complete(entry):
            why = "it is not complete"
        if why:
            self.notes[key, ""] = why
            return None
        clean = dict(entry)
        clean.pop("current_state", None)
        clean.pop("removed_learnings", None)
        for field in [name for name in clean if name not in _RALPHS]:
            value = self._own(key, field, clean[field], None, clean)
            if value is None:
                del clean[field]
            else:
                clean[field] = value
        owner = self._feature_of(entry)
        if self._kind == "tasks" and owner not in (self._feature, *self._others):
            self.strange[key] = owner
        return clean

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        """A field stands when it is the run's own, sound, and not a loss."""
        if same(now, kept):
            return kept
        owner = self._feature_of(entry)
        if owner in self._others:
            half = isinstance(kept, str) and _cut_short(str(now), kept)
            if field in _LISTS or (self._fits(key, field, now) and not half):
                return super().changed(key, field, was, now, kept, entry)
            self.notes[key, field] = _emptied(now) or "it was left unusable"
            return kept
        if not self._feature or owner != self._feature:
            if _reordered(now, kept):
                return now
            whose = "it is another feature's, and was" if self._feature and owner else "it was"
            self.notes[key, field] = f"{whose} changed without a call through Ralph"
            return kept
        return self._own(key, field, now, kept, entry)

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        """A key beside the list that is there stays, a new one may come."""
        return kept if kept is not None or not self._feature or name == "version" else now

    # -- the rules for the run's own feature and its tasks

    def _own(self, key: str, field: str, now: Any, kept: Any, entry: Data) -> Any:
        if field == "learnings" and self._kind == "features":
            return self._learnings(key, now, kept, entry)
        if field == "comments" and self._kind == "tasks":
            return self._comments(key, now, kept)
        if why := self._refused(key, field, now, kept):
            if kept is not None or field == "current_state":
                self.notes[key, field] = why
            return kept
        if field == "context_files":
            return self._context_files(key, now, kept)
        return redact(now) if field in _TEXTS[self._kind] else now

    def _refused(self, key: str, field: str, now: Any, kept: Any) -> str:
        """Why the field cannot be given this value; empty when it can."""
        if field in _RALPHS or field == "current_state":
            return "it is not an agent's to write"
        known = (key, field) in self._protected
        if known and field != "status":
            return "it was changed through Ralph meanwhile"
        if not self._fits(key, field, now):
            return _emptied(now) or "it was left unusable"
        if self._kind == "features" and field in _PROSE and kept and (why := _ruined(now, kept)):
            return why
        if known and same(now, (self._base.get(key) or {}).get(field)):
            return "an old copy of the file was written over it"
        if self._kind == "tasks" and field in _ASSIGNMENT and kept:
            return "what a task asks for is not its agent's to change"
        return ""

    def _fits(self, key: str, field: str, value: Any) -> bool:
        """Whether the value is filled and of the kind that the field holds."""
        if field in _TEXTS[self._kind]:
            return isinstance(value, str) and bool(value.strip())
        if field == "status":
            plain = str(value).strip().lower()
            return isinstance(value, str) and STATUS_ALIASES.get(plain, plain) in STATUSES
        if field == "priority":
            word = isinstance(value, str) and value.lower() in PRIORITIES
            return word or (isinstance(value, int) and not isinstance(value, bool))
        if field in ("knowledge_paths", "context_files"):
            return _filled_list(value) and all(self._safe(item) for item in value)
        if field == "blocked_by":
            known = isinstance(value, list) and all(
                isinstance(x, int | str) and not isinstance(x, bool) for x in value
            )
            return known and key not in map(str, value)
        if field in _TEXT_LISTS:
            return _filled_list(value) and all(isinstance(item, str | int) for item in value)
        return value is not None

    def _learnings(self, key: str, now: Any, kept: Any, entry: Data) -> Any:
        """Every learning that was there, as it was, and the new ones as an agent's."""
        given, before = as_list(now), as_list(kept)
        known = {said(item): item for item in before}
        lost = self._lost(key, "learnings", given, kept)
        if any(said(item) in known and not same(item, known[said(item)]) for item in given):
            self.notes.setdefault((key, "learnings"), "provenance is not an agent's to write")
        new: list[Any] = []
        items: list[Any] = []
        for item in given:
            if said(item) in known:
                items.append(known[said(item)])
            elif learned := self._learned(key, item, [*before, *new], entry):
                new += learned
                items += learned
        # Where nothing was lost the new order stands, else the old one does.
        return ([*before, *new] if lost else items) or None

    def _learned(self, key: str, item: Any, there: list[Any], entry: Data) -> list[Any]:
        try:
            given = read_learning(item, max_chars=self._limits.learning)
        except BadInput as error:
            self.notes[key, "learnings"] = f"dropped what is no learning ({error.what})"
            return []
        text = cut(sanitise(redact(given.text)), self._limits.learning)
        learning = msgspec.structs.replace(
            given, text=text, source="agent", hit_count=1, reviewed=False, last_seen=None
        )
        about = gist(text)
        if not text or was_removed(entry, learning, self._limits):
            self.notes[key, "learnings"] = "dropped a learning that had been removed before"
            return []
        for old in map(said, there):
            if _cut_short(text, old) or compare(gist(old), about) == "duplicate":
                return []  # said again in other words: not a second observation (F10)
        if len(there) >= self._limits.learnings:  # an agent's new one evicts nothing
            self.notes[key, "learnings"] = f"dropped a new learning ({FULL})"
            return []
        return [text if item == text else to_plain(learning)]

    def _comments(self, key: str, now: Any, kept: Any) -> Any:
        given, items = as_list(now), as_list(kept)
        self._lost(key, "comments", given, kept)
        texts = {said(item) for item in items}
        result = list(items)
        for item in given:
            plain = item.get("text") if isinstance(item, dict) else item
            if not isinstance(plain, str) or not plain.strip() or said(item) in texts:
                continue
            if not any(_cut_short(plain, text) for text in texts):
                clean = cut(sanitise(redact(plain)).strip(), self._limits.comment)
                result.append({**item, "text": clean} if isinstance(item, dict) else clean)
        return result or None

    def _context_files(self, key: str, now: list[Any], kept: Any) -> Any:
        there = {identity(item) for item in now}
        people = [
            item
            for item in as_list(kept)
            if identity(item) not in there
            and not (isinstance(item, dict) and item.get("source") == "auto")
        ]
        if people:
            self.notes[key, "context_files"] = "files that a person had added were lost"
        return [*people, *now][: self._limits.context_files]

    # -- small questions

    def _feature_of(self, entry: Data) -> str:
        name = {"features": "name", "tasks": "feature"}.get(self._kind)
        return str(entry.get(name, "")) if name else ""

    def _is_complete(self, entry: Data) -> bool:
        return self._kind != "tasks" or all(
            isinstance(entry.get(name), str) and entry[name].strip()
            for name in ("feature", "title")
        )

    def _safe(self, item: Any) -> bool:
        path = item.get("path") if isinstance(item, dict) else item
        if not isinstance(path, str):
            return False
        return clean_path(path, max_chars=self._limits.path)[0] is not None


def said(item: Any) -> str:
    """The words of a learning or a comment, whatever form it has; empty when it has none."""
    text = item.get("text") if isinstance(item, dict) else item
    return text.strip() if isinstance(text, str) else ""


def _emptied(now: Any) -> str:
    """Why this is no prose any more; empty when it may be."""
    if now is None or now in ("", [], {}) or (isinstance(now, str) and not now.strip()):
        return "it was emptied"
    return "" if isinstance(now, str) else "it was left unusable"


def _ruined(now: str, kept: str) -> str:
    """Why this text cannot stand in the place of the other; empty when it can."""
    if _cut_short(now, kept):
        return "it was cut short"
    marks = [char for char in now if not char.isspace()]
    # Only scripts that part their words with spaces can be judged by the length of words.
    endless = now.isascii() and len(now) > _LONGEST_WORD * len(now.split())
    if endless or 2 * sum(map(str.isalnum, marks)) < len(marks):
        return "it was garbled"
    new, old = set(_WORD.findall(now.lower())), set(_WORD.findall(kept.lower()))
    if sum(map(len, new)) <= _STUB * sum(map(len, old)):
        return "only a stub of it was left"
    terms = {word for word in old if len(word) > _SHORT_WORD}
    return "nothing of it was left" if len(terms) > _FEW and not terms & new else ""


def _cut_short(now: str, kept: str) -> bool:
    """Whether only the beginning is left, as in half a file."""
    short, whole = now.rstrip(), kept.rstrip()
    return len(short) < len(whole) and whole.startswith(short)


def _reordered(now: Any, kept: Any) -> bool:
    lists = isinstance(now, list) and isinstance(kept, list)
    return lists and sorted(map(repr, now)) == sorted(map(repr, kept))


def _filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)
