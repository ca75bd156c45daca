"""Decide how much of a change to the plan's files is kept, by what is known about who made it.

`AllowAll` is for a call through Ralph: all of it is kept. `AllowNoLoss` is for a change made while
the agent had no tool call running: somebody else made it, so it is kept, but nothing is lost.
`Judge` is for every other change, which may be the agent's: it may add things, and reword the
feature of its run. What it destroys or takes from others is restored (F1, F3, F6, F9, F10, F15).
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.plan import model
from ralph.plan.fields import RULES, check_id, clean_path
from ralph.plan.learnings import FULL, compare_new, was_removed
from ralph.plan.model import Data, Kind, Limits, as_list, deep_copy, identical, identity, text_of
from ralph.records.iteration import cut
from ralph.records.learning import read_learning, to_plain
from ralph.text.redact import redact
from ralph.text.sanitize import sanitize

EntryField = tuple[str, str]
PROSE = ("description", "architecture", "boundaries")
_TEXT_ITEMS = ("learnings", "comments")
_NEEDED = (*PROSE, "title", "feature", "system_prompt")
_TEXTS = {
    "features": (*PROSE, "display_name", "acronym"),
    "tasks": ("title", "description", "discipline", "created", "updated", "completed"),
    "disciplines": (),
}
# What a task asks for. The agent that works on it may only fill empty fields.
ASSIGNMENT = ("title", "description", "acceptance_criteria", "discipline", "priority")
_RALPHS_OWN = ("name", "id", "feature", "created", "last_verified", "removed_learnings")
_WORD = re.compile(r"\w+")
# Prose with no more than this share of its words left is a stub; longer words are garbage. A
# reworded text keeps at least one of its terms, unless it had few.
_STUB = 1 / 4
_LONGEST_WORD = 40
_SHORT_WORD = 3
_FEW = 3
_LISTS = frozenset({"learnings", "removed_learnings", "comments", "context_files"})


class AllowAll:
    """Allows every change and remembers the fields that it touched ("": the entry was deleted).

    `notes` has the reason for everything that a rule restored, by entry and field. `strange` has
    tasks that somebody added to other features.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.touched: set[EntryField] = set()
        self.notes: dict[EntryField, str] = {}
        self.strange: dict[str, str] = {}

    def added(self, key: str, entry: Data) -> Data | None:
        return entry

    def gone(self, key: str, entry: Data) -> bool:
        self.touched.add((key, ""))
        return True

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        self.touched.add((key, field))
        if field in _LISTS and isinstance(now, list | str | None):
            return list_change(as_list(was), as_list(now), as_list(kept)) or None
        return now

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        return now


def merge_changes(kind: Kind, was: Data, now: Data, kept: Data, decide: AllowAll) -> Data:
    """Return `kept` with what changed from `was` to `now`, as far as `decide` allows it."""
    result: Data = deep_copy(kept)
    for name in dict.fromkeys([*was, *now]):
        if name != kind and not identical(was.get(name), now.get(name)):
            value = decide.top(name, was.get(name), now.get(name), kept.get(name))
            _set(result, name, value)
    before, after, current = (model.by_key(data, kind) for data in (was, now, result))
    for key in dict.fromkeys([*before, *after]):
        old = before.get(key)
        new = after.get(key)
        have = current.get(key)
        if new is None and old is not None:
            if have is not None and decide.gone(key, old):
                model.remove_entity(result, kind, key)
        elif new is not None and old is None and have is None:
            if (entry := decide.added(key, deep_copy(new))) is not None:
                model.put_entity(result, kind, entry)
        elif new is not None and have is not None:
            old = old or {model.KEY_OF[kind]: key}
            entry = deep_copy(have)
            for field in dict.fromkeys([*old, *new]):
                left = old.get(field)
                right = deep_copy(new.get(field))
                if not identical(left, right):
                    value = decide.changed(key, field, left, right, have.get(field), have)
                    _set(entry, field, value)
            if not identical(entry, have):
                model.put_entity(result, kind, entry)
    return result


def list_change(was: list[Any], now: list[Any], kept: list[Any]) -> list[Any]:
    """Return `kept` without the items that were removed, and with those added or changed."""
    before = {identity(item): item for item in was}
    after = {identity(item): item for item in now}
    result = [item for item in kept if identity(item) not in before or identity(item) in after]
    places = {identity(item): i for i, item in enumerate(result)}
    for key, item in after.items():
        if key not in before:
            if key not in places:
                result.append(deep_copy(item))
        elif key in places and not identical(before[key], item):
            result[places[key]] = deep_copy(item)
    return result


def _set(entry: Data, name: str, value: Any) -> None:
    if value is None:
        entry.pop(name, None)
    else:
        entry[name] = value


class AllowOthers(AllowAll):
    """Allows changes of other loops' features only, because this run's agent made the rest."""

    def __init__(self, kind: Kind, others: Set[str]) -> None:
        super().__init__(kind)
        self._others = others

    def added(self, key: str, entry: Data) -> Data | None:
        return entry if feature_of(self._kind, entry) in self._others else None

    def gone(self, key: str, entry: Data) -> bool:
        return feature_of(self._kind, entry) in self._others

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        if feature_of(self._kind, entry) not in self._others:
            return kept
        return super().changed(key, field, was, now, kept, entry)

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        return kept


class AllowNoLoss(AllowAll):
    """Allows a change, except that nothing disappears and no prose is emptied."""

    def gone(self, key: str, entry: Data) -> bool:
        """Keep the entry: nothing disappears without a call."""
        self.notes[key, ""] = "it was taken out of the file"
        return False

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        """Keep the new value, unless something of the old one is lost."""
        if field in _TEXT_ITEMS:
            self.touched.add((key, field))
            items = [item for item in as_list(now) if text_of(item)]
            return [*items, *self._lost(key, field, items, kept)] or None
        if field in _NEEDED and kept and (why := _emptied(now)):
            self.notes[key, field] = why
            return kept
        self.touched.add((key, field))
        return now

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        """Keep the new value of a key beside the list, unless the key is gone."""
        return kept if now is None else now

    def _lost(self, key: str, field: str, items: list[Any], kept: Any) -> list[Any]:
        texts = {"", *map(text_of, items)}
        before = as_list(kept)
        if lost := [item for item in before if text_of(item) not in texts]:
            self.notes[key, field] = f"{len(lost)} of {len(before)} {field} were lost"
        return lost


class Judge(AllowNoLoss):
    """Allows a change that adds something, or that concerns the run's own feature.

    No feature ("") means a planning run, which works on a copy, so that nothing here is its own.
    `others` are the features that other loops work on: their agents may have made the change.
    """

    def __init__(
        self, kind: Kind, feature: str, others: Set[str], base: Data, protected: Set[EntryField]
    ) -> None:
        super().__init__(kind)
        self._feature = feature
        self._others = others
        self._base = base
        self._protected = protected

    # -- called by `merge_changes`

    def added(self, key: str, entry: Data) -> Data | None:
        """Keep a new feature or task if it is complete; it takes nothing from anybody."""
        why = ""
        if not self._feature or self._kind == "disciplines":
            why = "it was added without a call through Ralph"
        elif (key, "") in self._protected:
            why = "it was deleted through Ralph"
        elif self._kind == "tasks" and not all(text_of(entry.get(n)) for n in ("feature", "title")):
            why = "it is not complete"
        if why:
            self.notes[key, ""] = why
            return None
        clean = dict(entry)
        clean.pop("current_state", None)
        clean.pop("removed_learnings", None)
        for field in [name for name in clean if name not in _RALPHS_OWN]:
            _set(clean, field, self._own(key, field, clean[field], None, clean))
        owner = self._feature_of(entry)
        if self._kind == "tasks" and owner not in (self._feature, *self._others):
            self.strange[key] = owner
        return clean

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        """Keep the new value of a field if it is the run's own, valid, and not a loss."""
        if identical(now, kept):
            return kept
        owner = self._feature_of(entry)
        if owner in self._others:
            half = isinstance(kept, str) and _cut_short(str(now), kept)
            if field in _TEXT_ITEMS or (self._fits(key, field, now) and not half):
                return super().changed(key, field, was, now, kept, entry)
            self.notes[key, field] = _emptied(now) or "it was left unusable"
            return kept
        if not self._feature or owner != self._feature:
            lists = isinstance(now, list) and isinstance(kept, list)
            if lists and sorted(map(repr, now)) == sorted(map(repr, kept)):
                return now  # only the order changed
            which = "it is another feature's, and was" if self._feature and owner else "it was"
            self.notes[key, field] = f"{which} changed without a call through Ralph"
            return kept
        return self._own(key, field, now, kept, entry)

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        """Keep an existing key beside the list as it was; allow a new one."""
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
        """Return why the field cannot get this value; "" if it can."""
        if field in _RALPHS_OWN or field == "current_state":
            return "agents may not change this field"
        protected = (key, field) in self._protected
        if protected and field != "status":
            return "it was changed through Ralph meanwhile"
        if not self._fits(key, field, now):
            return _emptied(now) or "it was left unusable"
        if self._kind == "features" and field in PROSE and kept and (why := _ruined(now, kept)):
            return why
        if protected and identical(now, (self._base.get(key) or {}).get(field)):
            return "an old copy of the file was written over it"
        if self._kind == "tasks" and field in ASSIGNMENT and kept:
            return "an agent may not change what its task asks for"
        return ""

    def _fits(self, key: str, field: str, value: Any) -> bool:
        """Return whether the value is not empty and valid for the field."""
        if value is None or (value in ("", [], {}) and field != "blocked_by"):
            return False
        try:
            if field == "context_files":
                paths = [item.get("path") if isinstance(item, dict) else item for item in value]
                return bool([clean_path(path, Limits.path) for path in paths])
            if field == "blocked_by":
                return key not in [str(check_id(item)) for item in value]
            rule = RULES[self._kind].get(field)
            return rule is None or rule.check(field, value) is not None
        except (BadInput, TypeError):
            return False

    def _learnings(self, key: str, now: Any, kept: Any, entry: Data) -> Any:
        """Return every old learning as it was, and the new ones as an agent's."""
        before = as_list(kept)
        lost = self._lost(key, "learnings", as_list(now), kept)
        old = {text_of(item): item for item in before}
        new: list[Any] = []
        items: list[Any] = []
        seen: set[str] = set()
        for item in as_list(now):
            if text_of(item) in seen:
                continue  # the same learning twice is one (F11)
            seen.add(text_of(item))
            if (same := old.get(text_of(item))) is None:
                if (same := self._new_learning(key, item, [*before, *new], entry)) is None:
                    continue
                new.append(same)
            elif not identical(item, same):
                self.notes.setdefault(
                    (key, "learnings"), "agents may not change where a learning came from"
                )
            items.append(same)
        # If nothing was lost, the new order is kept, else the old one.
        return ([*before, *new] if lost else items) or None

    def _new_learning(self, key: str, item: Any, before: list[Any], entry: Data) -> Any:
        """Return the learning as an agent's; None if it is not accepted."""
        try:
            learning = read_learning(item)
        except BadInput as error:
            self.notes[key, "learnings"] = f"dropped what is not a learning ({error.what})"
            return None
        text = cut(sanitize(redact(learning.text)), Limits.learning)
        learning = msgspec.structs.replace(
            learning, text=text, source="agent", hit_count=1, reviewed=False, last_seen=None
        )
        if not text or was_removed(entry, learning):
            self.notes[key, "learnings"] = "dropped a learning that had been removed before"
        elif any(
            _cut_short(text, old) or compare_new(old, text) == "duplicate"
            for old in map(text_of, before)
        ):
            pass  # the same in other words is not a second observation (F10)
        elif len(before) >= Limits.learnings:  # an agent's new one evicts nothing
            self.notes[key, "learnings"] = f"dropped a new learning ({FULL})"
        else:
            return text if item == text else to_plain(learning)
        return None

    def _comments(self, key: str, now: Any, kept: Any) -> Any:
        self._lost(key, "comments", as_list(now), kept)
        result = list(as_list(kept))
        before = set(map(text_of, result))
        for item in as_list(now):
            text = text_of(item)
            if text and text not in before and not any(_cut_short(text, old) for old in before):
                clean = cut(sanitize(redact(text)).strip(), Limits.comment)
                result.append({**item, "text": clean} if isinstance(item, dict) else clean)
        return result or None

    def _context_files(self, key: str, now: list[Any], kept: Any) -> Any:
        present = set(map(identity, now))
        gone = [item for item in as_list(kept) if identity(item) not in present]
        if lost := [x for x in gone if not isinstance(x, dict) or x.get("source") != "auto"]:
            self.notes[key, "context_files"] = "files that a person had added were lost"
        return [*lost, *now][: Limits.context_files]

    # -- small checks

    def _feature_of(self, entry: Data) -> str:
        return feature_of(self._kind, entry)


def feature_of(kind: Kind, entry: Data) -> str:
    """Return the feature that an entry belongs to, "" for a discipline."""
    name = {"features": "name", "tasks": "feature"}.get(kind)
    return str(entry.get(name, "")) if name else ""


def loss_of_text(now: Any, kept: str) -> str:
    """Return why this value would lose the text; "" if it is a new text in its place."""
    return _emptied(now) or _ruined(now, kept)


def _emptied(now: Any) -> str:
    """Return why this is no longer prose; "" if it may be."""
    if now is None or now in ("", [], {}) or (isinstance(now, str) and not now.strip()):
        return "it was emptied"
    return "" if isinstance(now, str) else "it was left unusable"


def _ruined(now: str, kept: str) -> str:
    """Return why this text cannot replace the other; "" if it can."""
    if _cut_short(now, kept):
        return "it was cut short"
    marks = [char for char in now if not char.isspace()]
    # The length of words only means something in scripts that separate them with spaces.
    endless = now.isascii() and len(now) > _LONGEST_WORD * len(now.split())
    if endless or 2 * sum(map(str.isalnum, marks)) < len(marks):
        return "it was garbled"
    new = set(_WORD.findall(now.lower()))
    old = set(_WORD.findall(kept.lower()))
    if sum(map(len, new)) <= _STUB * sum(map(len, old)):
        return "only a stub of it was left"
    terms = {word for word in old if len(word) > _SHORT_WORD}
    return "nothing of it was left" if len(terms) > _FEW and not terms & new else ""


def _cut_short(now: str, kept: str) -> bool:
    """Return whether only the beginning is left, as in half a file."""
    short = now.rstrip()
    whole = kept.rstrip()
    return len(short) < len(whole) and whole.startswith(short)
