"""What of an agent's direct edits stands: its own task and feature, and nothing that destroys.

Prose that was filled is never emptied, learnings and comments are never lost, provenance is not
the agent's to write, another feature is not the agent's to change (F1, F3, F6, F9, F10, F15).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.kinds.iteration import cut
from ralph.kinds.learning import read_learning, to_plain
from ralph.plan.blame import Blame
from ralph.plan.document import Data
from ralph.plan.entities import ONE, Kind
from ralph.plan.fields import clean_path
from ralph.plan.learnings import FULL, was_removed
from ralph.plan.merge import Everything
from ralph.plan.splice import identity, same
from ralph.plan.values import PRIORITIES, STATUS_ALIASES, STATUSES, Limits, TaskId
from ralph.text.redact import redact
from ralph.text.sanitise import sanitise
from ralph.text.similar import compare, gist

_TEXTS = {
    "features": ("description", "architecture", "boundaries", "display_name", "acronym"),
    "tasks": ("title", "description", "discipline", "created", "updated", "completed"),
    "disciplines": (),
}
_TEXT_LISTS = ("dependencies", "knowledge_paths", "acceptance_criteria", "tags")
# What a task asks for; who does it may fill a gap, and no more.
_ASSIGNMENT = ("title", "description", "acceptance_criteria", "discipline", "priority")
_RALPHS = ("name", "id", "feature", "created", "last_verified", "removed_learnings")


class Restored(msgspec.Struct, frozen=True):
    """One thing that was put back, and why."""

    file: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what} restored: {self.why}"


class Scope(msgspec.Struct, frozen=True):
    """What the iteration was about. No feature: a planning run, for which everything is its own.

    `certain` False: nobody knows whether the agent edited; only what destroys is put back.
    """

    feature: str | None
    task_id: TaskId | None
    certain: bool
    limits: Limits


class Judge:
    """The decision on one stretch of direct edits to one file."""

    def __init__(
        self,
        kind: Kind,
        scope: Scope,
        blame: Blame,
        *,
        base: Data,
        protected: set[tuple[str, str]],
        features: set[str],
    ) -> None:
        self._kind = kind
        self._scope = scope
        self._blame = blame
        self._base = base
        self._protected = protected
        self._features = features
        self._everything = Everything()
        self.restored: list[Restored] = []

    @property
    def touched_by_others(self) -> set[tuple[str, str]]:
        """The fields that somebody else than the agent changed in this stretch."""
        return self._everything.touched

    # -- what `bring` asks

    def added(self, key: str, entry: Data) -> Data | None:
        """A new entry stands when it is sound and not another feature's."""
        if not self._blame.made(key, None, entry):
            self._everything.touched.add((key, ""))
            return entry
        if not self._scope.certain:
            return entry if self._sound(entry) else None
        what = f"{ONE[self._kind]} {key}"
        if self._kind == "disciplines" and self._scope.feature is not None:
            return self._refuse(what, "the agent added it by editing the file")
        if not self._sound(entry):
            return self._refuse(what, "it is not complete")
        if self._kind == "tasks" and not self._is_own(entry, new=True):
            return self._refuse(what, "it belongs to another feature")
        clean = dict(entry)
        clean.pop("current_state", None)
        clean.pop("removed_learnings", None)
        for field in [name for name in clean if name not in _RALPHS]:
            value = self._own(key, field, None, clean[field], None, clean)
            if value is None:
                del clean[field]
            else:
                clean[field] = value
        return clean

    def gone(self, key: str, entry: Data) -> bool:
        """Nothing disappears by an agent's edit."""
        if not self._blame.made(key, None, None):
            self._everything.touched.add((key, ""))
            return True
        self._note(f"{ONE[self._kind]} {key}", "the edit took it out")
        return False

    def changed(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        """A field stands when it is the agent's own, sound, and not emptied."""
        if not self._blame.made(key, field, now):
            return self._everything.changed(key, field, was, now, kept, entry)
        if same(now, kept):
            return kept
        if self._scope.certain and not self._is_own(entry):
            self._note(self._name(key, field), "the agent edited another feature's")
            return kept
        return self._own(key, field, was, now, kept, entry)

    def top(self, name: str, was: Any, now: Any, kept: Any) -> Any:
        """Ralph's version and people's own keys stay."""
        if kept is not None and (now is None or name == "version"):
            return kept
        return kept if name == "version" and not isinstance(now, int) else now

    # -- the rules

    def _own(self, key: str, field: str, was: Any, now: Any, kept: Any, entry: Data) -> Any:
        name = self._name(key, field)
        if field == "learnings" and self._kind == "features":
            return self._learnings(name, now, kept, entry)
        if field == "comments" and self._kind == "tasks":
            return self._comments(name, now, kept)
        if field in _RALPHS or field == "current_state":
            if now and type(now) is type(kept) and not self._scope.certain:
                return now  # perhaps a person's
            if kept is not None or field == "current_state":
                self._note(name, "it is not an agent's to write")
            return kept
        if (key, field) in self._protected and field != "status":
            self._note(name, "it was changed through Ralph meanwhile")
            return kept
        if not self._fits(key, field, now):
            if kept is None:
                return None
            empty = now is None or now in ("", [], {}) or (isinstance(now, str) and not now.strip())
            self._note(name, "the edit emptied it" if empty else "the edit left it unusable")
            return kept
        if isinstance(now, str) and isinstance(kept, str) and _cut_short(now, kept):
            self._note(name, "the edit cut it short")
            return kept
        if field == "status" and (key, field) in self._protected and same(now, self._before(key)):
            self._note(name, "an old copy of the file was written over it")
            return kept
        if self._kind == "tasks" and field in _ASSIGNMENT and kept and self._scope.certain:
            self._note(name, "what a task asks for is not its agent's to change")
            return kept
        if field == "context_files":
            return self._context_files(name, now, kept)
        if field in _TEXTS[self._kind] and self._scope.certain:
            return redact(now)
        return now

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

    def _learnings(self, name: str, now: Any, kept: Any, entry: Data) -> Any:
        """Every learning that was there, as it was, and the new ones as an agent's."""
        items: list[Any] = list(kept) if isinstance(kept, list) else [kept] if kept else []
        there = {_said(item): item for item in items}
        given = now if isinstance(now, list) else [now] if isinstance(now, str) else []
        found = {_said(item) for item in given}
        lost = [text for text in there if text not in found]
        if lost:
            self._note(name, f"the edit lost {len(lost)} of {len(there)} learnings")
        forged = [i for i in given if _said(i) in there and not same(i, there[_said(i)])]
        if forged and not lost:
            self._note(name, "their provenance is not an agent's to write")
        for item in given:
            if _said(item) not in there:
                self._learn(name, item, items, entry)
                there[_said(item)] = item
        return items or None

    def _learn(self, name: str, item: Any, items: list[Any], entry: Data) -> None:
        limits = self._scope.limits
        try:
            given = read_learning(item, max_chars=limits.learning)
        except BadInput as error:
            self._note(name, f"dropped what is no learning ({error.what})")
            return
        text = cut(sanitise(redact(given.text)), limits.learning)
        learning = msgspec.structs.replace(
            given, text=text, source="agent", hit_count=1, reviewed=False, last_seen=None
        )
        known = [read_learning(old) for old in items]
        about = gist(text)
        if not text or was_removed(entry, learning, limits):
            self._note(name, "dropped a learning that had been removed before")
            return
        if any(
            _cut_short(text, old.text) or compare(gist(old.text), about) == "duplicate"
            for old in known
        ):
            return  # said again in other words: not a second observation (F10)
        if len(items) >= limits.learnings:  # an agent's new one evicts nothing that was there
            self._note(name, f"dropped a new learning ({FULL})")
            return
        items.append(text if item == text else to_plain(learning))

    def _comments(self, name: str, now: Any, kept: Any) -> Any:
        items = list(kept) if isinstance(kept, list) else [kept] if kept else []
        given = now if isinstance(now, list) else [now] if isinstance(now, str) else []
        texts = {identity(item) for item in items}
        if texts - {identity(item) for item in given}:
            self._note(name, "the edit lost comments")
        for item in given:
            plain = item.get("text") if isinstance(item, dict) else item
            if not isinstance(plain, str) or not plain.strip() or identity(item) in texts:
                continue
            if not any(_cut_short(plain, text) for text in texts):
                clean = cut(sanitise(redact(plain)).strip(), self._scope.limits.comment)
                items.append({**item, "text": clean} if isinstance(item, dict) else clean)
        return items or None

    def _context_files(self, name: str, now: list[Any], kept: Any) -> Any:
        old = kept if isinstance(kept, list) else []
        there = {identity(item) for item in now}
        people = [
            item
            for item in old
            if identity(item) not in there
            and not (isinstance(item, dict) and item.get("source") == "auto")
        ]
        if people:
            self._note(name, "the edit lost files that a person had added")
        return [*people, *now][: self._scope.limits.context_files]

    # -- small questions

    def _is_own(self, entry: Data, *, new: bool = False) -> bool:
        if self._scope.feature is None:
            return True
        if self._kind == "features":
            return str(entry.get("name", "")) == self._scope.feature
        if self._kind == "tasks":
            feature = str(entry.get("feature"))
            # A task of a feature that came into being in this very iteration is nobody else's.
            return feature == self._scope.feature or (new and feature not in self._features)
        return False

    def _sound(self, entry: Data) -> bool:
        if self._kind != "tasks":
            return True
        return all(
            isinstance(entry.get(name), str) and entry[name].strip()
            for name in ("feature", "title")
        )

    def _safe(self, item: Any) -> bool:
        path = item.get("path") if isinstance(item, dict) else item
        if not isinstance(path, str):
            return False
        return clean_path(path, max_chars=self._scope.limits.path)[0] is not None

    def _before(self, key: str) -> Any:
        entry = self._base.get(key)
        return entry.get("status") if isinstance(entry, dict) else None

    def _name(self, key: str, field: str) -> str:
        return f"`{field}` of {ONE[self._kind]} {key}"

    def _note(self, what: str, why: str) -> None:
        note = Restored(f"{self._kind}.yaml", what, why)
        if note not in self.restored:
            self.restored.append(note)

    def _refuse(self, what: str, why: str) -> Data | None:
        self._note(f"the file without {what}", why)
        return None


def _said(item: Any) -> str:
    """A learning's text, whatever form it has."""
    return str(item.get("text") if isinstance(item, dict) else item).strip()


def _cut_short(now: str, kept: str) -> bool:
    """Whether only the beginning is left, as in half a file."""
    short, whole = now.rstrip(), kept.rstrip()
    return len(short) < len(whole) and whole.startswith(short)


def _filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)
