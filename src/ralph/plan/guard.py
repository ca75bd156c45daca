"""The guard takes a snapshot of the plan before an iteration, and restores what was lost after it.

It does not ask who changed a file. A change is explained if it came through Ralph's own calls,
which the write log has. If it did not, the guard restores what the change destroyed. What it cannot
keep in the plan, it keeps beside it: the file as it was found, and earlier versions with other
content.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from ralph import disk
from ralph.errors import BadPlan, UnsafeFile
from ralph.plan import model
from ralph.plan.judge import (
    AllowAll,
    AllowNoLoss,
    AllowOthers,
    EntryField,
    Judge,
    merge_changes,
)
from ralph.plan.model import KINDS, SINGULAR, Data, Kind, as_list, by_key, deep_copy, identical
from ralph.plan.store import ABSENT, SETTINGS, Plan, digest
from ralph.plan.yaml import MAX_BYTES, PlanFile

_TRIES = 5
_COMMENT = re.compile(r"(?:^|\s)#\s*(.*\S)")
# Fields with the state of a task or feature, as opposed to text that somebody wrote.
_STATE = frozenset(
    "status priority blocked_by updated completed context_files last_verified removed_learnings"
    " current_state".split()
)
_CHECKED = "checked by the guard"
_NOT_YAML = "it was not valid YAML any more"
_SECOND = "there was a second one; the first stands"
_HINT = (
    "If you made this change, copy it back from the saved file, or redo it with a `ralph` command. "
    "Ralph never undoes its own commands."
)


class FileVersion(msgspec.Struct, frozen=True):
    """A file's bytes at one moment; None if it did not exist.

    `quiet`: the agent had no tool call running when it changed, so somebody else changed it.
    """

    at: str
    raw: bytes | None
    quiet: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """The plan before an iteration, and the versions of its files seen since."""

    at: str
    writes: int
    files: dict[str, FileVersion]
    seen: dict[str, list[FileVersion]]


class Restoration(msgspec.Struct, frozen=True):
    """One thing that was restored (or removed again), and why."""

    file: str
    what: str
    why: str
    verb: str = "restored"

    def __str__(self) -> str:
        return f"{self.file}: {self.what} {self.verb}: {self.why}"


class GuardReport(msgspec.Struct):
    """What was restored and why, other notes, and where the other versions are kept."""

    restored: list[Restoration] = []
    notes: list[str] = []
    copies: list[str] = []
    earlier: list[str] = []
    # For each file: its text before the run, its data without the agent's changes, its text now.
    versions: dict[Kind, tuple[bytes | None, Data, bytes | None]] = {}

    @property
    def clean(self) -> bool:
        """Whether there is nothing to report."""
        return not self.lines()

    def lines(self) -> list[str]:
        """Return the report as lines for a person."""
        lines = [*map(str, self.restored), *self.notes]
        lines += [f"the file as it was found is kept in {copy}" for copy in self.copies]
        lines += [f"an earlier version of the file is kept in {copy}" for copy in self.earlier]
        return [*lines, _HINT] if self.copies else lines


class Guard:
    """Watches over the plan of one project."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._last_look = ""

    def snapshot(self) -> Snapshot:
        """Return the plan as it is now."""
        with self._plan.locked():
            at = self._plan.now()
            names = (*KINDS, "metadata", SETTINGS)
            files = {name: FileVersion(at, self._plan.raw(name)) for name in names}
            return Snapshot(at, self._plan.log.last(), files, {name: [] for name in files})

    def observe(self, snapshot: Snapshot, *, idle: bool) -> None:
        """Look at the files now. `idle`: no tool call has been running since the last look.

        A client may report a call a moment late, so if this look is not idle, the last one was not.
        """
        at = self._plan.now()
        for name, first in snapshot.files.items():
            seen = snapshot.seen[name]
            if seen and seen[-1].at == self._last_look and not idle:
                seen[-1] = msgspec.structs.replace(seen[-1], quiet=False)
            with contextlib.suppress(OSError):  # if it is something else now, `check` handles it
                raw = self._plan.raw(name) if _is_usable(self._plan.path(name)) else b""
                if raw != (seen[-1] if seen else first).raw:
                    seen.append(FileVersion(at, raw, idle))
        self._last_look = at

    def check(
        self, snapshot: Snapshot, *, feature: str, others: Mapping[str, str] | None = None
    ) -> GuardReport:
        """Restore what was lost or changed without a call, and report what and why.

        `feature` is the run's own, "" for a planning run. `others` are the features that other
        loops work on, with the time they began.
        """
        report = GuardReport()
        with self._plan.locked():
            self._make_folder()
            for name in snapshot.files:
                self._clear(name, report)
            for kind in KINDS:
                for _ in range(_TRIES):  # a person may save between our reading and our writing
                    repair = _FileRepair(self._plan, kind, snapshot, feature, others or {})
                    if self._plan.raw(kind) != repair.last:
                        continue
                    self._write(kind, repair, report)
                    report.earlier += self._keep_lost(kind, repair)
                    report.restored += repair.restored
                    report.notes += repair.notes
                    if (without := repair.without_agent()) is not None:
                        report.versions[kind] = (repair.first, without, repair.result)
                    break
            self._restore_metadata(snapshot, report)
            self._restore_settings(snapshot, report)
        return report

    def _write(self, kind: Kind, repair: _FileRepair, report: GuardReport) -> None:
        """Write what is kept, and log the result of this run for the guards of other loops."""
        if repair.changed:
            if repair.last is not None:
                report.copies.append(self._keep_copy(kind, repair.last))
            if repair.result is None:
                disk.remove(self._plan.path(kind))
            else:
                self._plan.put(kind, repair.result, "losses put back by the guard")
        if repair.direct and repair.result is not None:
            self._plan.log.note(self._plan.now(), kind, repair.first, repair.result, _CHECKED)

    def _keep_lost(self, kind: Kind, repair: _FileRepair) -> list[str]:
        """Keep earlier versions of the file with words that neither the file nor a copy has now.

        They are reported if not everything came through calls, or if most of the file is gone. They
        are kept in any case, because an agent can forge the log of calls.
        """
        copies: list[str] = []
        have = _words(repair.result, kind) | _words(repair.last, kind)
        most = 2 * len(_words(repair.first, kind) & have) < len(_words(repair.first, kind))
        for raw in repair.versions:
            if raw is not None and not (words := _words(raw, kind)) <= have:
                copies.append(self._keep_copy(kind, raw))
                have |= words
        return copies if repair.direct or most else []

    def _restore_metadata(self, snapshot: Snapshot, report: GuardReport) -> None:
        """Restore the project's identity as a whole: an agent must not change it."""
        before = snapshot.files["metadata"].raw
        if before is None or not (_parsed(before) or {}).get("project_id"):
            return
        now = self._plan.raw("metadata")
        if now != before and not (_parsed(now) and _is_persons(snapshot, "metadata", now)):
            self._put_back("metadata", snapshot, report)

    def _restore_settings(self, snapshot: Snapshot, report: GuardReport) -> None:
        """Restore the project's settings: an agent could turn off memory, or its reviews, there."""
        if SETTINGS not in snapshot.files:  # an earlier version took the snapshot
            return
        now = self._plan.raw(SETTINGS)
        writes = self._plan.log.since(snapshot.writes, SETTINGS)
        by_call = bool(writes) and writes[-1].after == digest(now)
        unchanged = now == snapshot.files[SETTINGS].raw
        if not (unchanged or by_call or _is_persons(snapshot, SETTINGS, now)):
            self._put_back(SETTINGS, snapshot, report)

    def _put_back(self, name: str, snapshot: Snapshot, report: GuardReport) -> None:
        """Restore a whole file as it was before the run, and keep the one that was found."""
        path = self._plan.path(name)
        before = snapshot.files[name].raw
        now = self._plan.raw(name)
        if now is not None:
            report.copies.append(self._keep_copy(name, now))
        if before is None:
            disk.remove(path)
        else:
            disk.replace(path, before)
        why = "it was changed while the agent ran"
        verb = "removed" if before is None else "restored"
        report.restored.append(Restoration(path.name, "the file", why, verb))

    def _clear(self, name: str, report: GuardReport) -> None:
        """Move away anything that is not a readable file, such as a folder or a link."""
        path = self._plan.path(name)
        if _is_usable(path):
            return
        try:
            disk.stat(path)
        except UnsafeFile:  # a link or a pipe: there is nothing in it
            disk.remove(path)
        else:
            report.copies.append(str(disk.rename(path, f"{path.name}.{self._stamp()}")))

    def _keep_copy(self, name: str, raw: bytes) -> str:
        folder = self._plan.cache / "rejected"
        disk.make_folder(folder)
        for old in disk.names(folder)[:-100]:
            disk.remove(folder / old)
        copy = folder / f"{self._stamp()}-{digest(raw)[:6]}-{self._plan.path(name).name}"
        disk.create(copy, raw)
        return str(copy)

    def _make_folder(self) -> None:
        """Create the plan's folder again if an agent has put something else there."""
        folder = self._plan.folder
        with contextlib.suppress(UnsafeFile):
            if disk.is_folder(folder):
                return
        disk.remove(folder)
        disk.make_folder(folder)

    def _stamp(self) -> str:
        return self._plan.now().replace(":", "").replace("-", "")


@dataclass(eq=False)
class _FileStep:
    """One version of a file during the iteration, and what is known about the change.

    `base` is the version that a call through Ralph started with; None if no call wrote this one.
    """

    at: str
    key: str
    raw: bytes | None
    base: _FileStep | None = None
    quiet: bool = False
    agent_of: str = ""

    @property
    def data(self) -> Data | None:
        """The data in the file; None if it cannot be read, or its bytes are not known."""
        return None if self.raw is None and self.key != ABSENT else _parsed(self.raw)


class _FileRepair:
    """Follows one file from the snapshot to now, and decides what it should contain.

    `direct`: somebody wrote to it without a call. `versions` has the first version, then what such
    writes left. `changed`: `result` differs from the file.
    """

    def __init__(
        self, plan: Plan, kind: Kind, snapshot: Snapshot, feature: str, others: Mapping[str, str]
    ) -> None:
        self._plan = plan
        self._kind = kind
        self._feature = feature
        self._others = others
        self.restored: list[Restoration] = []
        self.notes: list[str] = []
        self.changed = False
        self.first = snapshot.files[kind].raw
        self.last = self.result = plan.raw(kind)
        self.steps = steps = self._steps(snapshot)
        self.direct = any(step.base is None for step in steps[1:])
        self.versions = [step.raw for step in steps if step.base is None]
        if self.direct:
            self._follow(steps)

    def _steps(self, snapshot: Snapshot) -> list[_FileStep]:
        log = self._plan.log
        steps = [_FileStep(snapshot.at, digest(self.first), self.first)]
        seen = list(snapshot.seen[self._kind])
        # Versions seen here need no copy beside the log, where an agent may have deleted it.
        ours = (self.first, self.last, *(version.raw for version in seen))
        contents = {digest(raw): raw for raw in ours}

        def raw_of(key: str) -> bytes | None:
            return contents[key] if key in contents else log.version(key)

        def take_seen(until: str | None) -> None:
            while seen and (until is None or seen[0].at <= until):
                version = seen.pop(0)
                key = digest(version.raw)
                if key != steps[-1].key and not any(key == write.after for write in writes):
                    if version.quiet and steps[-1].quiet:
                        steps.pop()  # an editor was saving, or somebody changed their mind
                    steps.append(_FileStep(version.at, key, version.raw, quiet=version.quiet))

        writes = log.since(snapshot.writes, self._kind)
        for write in writes:
            take_seen(write.at)
            # It was overwritten before we looked, so it counts as quiet if the next version does.
            quiet = bool(seen) and seen[0].quiet
            base = _FileStep(write.at, write.before, raw_of(write.before), quiet=quiet)
            # Another loop's guard logs the result of its whole run, not what it found.
            if write.before != steps[-1].key and write.what != _CHECKED:
                steps.append(base)
            after = raw_of(write.after)
            steps.append(_FileStep(write.at, write.after, after, base, agent_of=write.agent_of))
        take_seen(None)
        if (now := digest(self.last)) != steps[-1].key:
            steps.append(_FileStep(self._plan.now(), now, self.last))
        return steps

    def _follow(self, steps: list[_FileStep]) -> None:
        start = next((step for step in steps if step.data is not None), None)
        if start is None or start.data is None:
            self.notes.append(
                f"{self._plan.file_name(self._kind)} was never readable during this run"
            )
            return
        kept: Data = deep_copy(start.data)
        before = start.data
        reasons: dict[EntryField, str] = {}
        protected: set[EntryField] = set()
        doubt = False
        for step in steps[steps.index(start) + 1 :]:
            if step.data is None:
                doubt = True  # the next step has its changes, too
                continue
            rule: AllowAll
            if step.base is not None and step.base.data is not None and not doubt:
                rule = AllowAll(self._kind)
                before = step.base.data
            elif step.quiet and not doubt:
                rule = AllowNoLoss(self._kind)
            else:
                others = {name for name, since in self._others.items() if since <= step.at}
                base = by_key(start.data, self._kind)
                rule = Judge(self._kind, self._feature, others, base, protected)
            whole = type(rule) is AllowAll and identical(kept, before)
            merged = merge_changes(self._kind, before, step.data, kept, rule)
            kept = deep_copy(step.data) if whole else merged
            protected |= rule.touched
            reasons |= rule.notes
            self.notes += [
                f"{self._kind}.yaml: task {key} of feature {name} was added without a call"
                for key, name in rule.strange.items()
            ]
            before = step.data
            doubt = False
        self._finish(start, steps, kept, reasons)

    def without_agent(self) -> Data | None:
        """Return the data as it would be without the changes of this run's agent."""
        start = next((step for step in self.steps if step.data is not None), None)
        if start is None or start.data is None:
            return None
        kept: Data = deep_copy(start.data)
        before = start.data
        for step in self.steps[self.steps.index(start) + 1 :]:
            if step.data is None:
                continue
            rule: AllowAll | None = AllowAll(self._kind)
            if step.base is not None and step.base.data is not None:
                before = step.base.data
                if step.agent_of and step.agent_of == self._feature:
                    rule = None
            elif not step.quiet:
                others = {name for name, since in self._others.items() if since <= step.at}
                rule = AllowOthers(self._kind, others)
            if rule is not None:
                kept = merge_changes(self._kind, before, step.data, kept, rule)
            before = step.data
        return kept

    def _finish(
        self, start: _FileStep, steps: list[_FileStep], kept: Data, reasons: dict[EntryField, str]
    ) -> None:
        """Put what is kept into the text that has most of people's own edits: the last or first."""
        last = steps[-1]
        by_person = any(step.quiet for step in steps)
        newest = last.data is not None and (by_person or start.raw is None)
        source = last.raw if newest else start.raw
        document = PlanFile.read(source or b"", name=self._plan.file_name(self._kind))
        result = document.with_data(kept).text.encode() if kept or start.raw is not None else None
        lost_comments = _comments(result, kept) - _comments(last.raw, kept)
        if last.data is not None and identical(last.data, kept) and not lost_comments:
            return
        self.changed = True
        self.result = result
        if last.raw is None or last.data is None:
            self._restore("the file", "it was gone" if last.raw is None else _NOT_YAML)
        else:
            self._tell_differences(last.data, kept, reasons)
            for key in _duplicates(last.data, self._kind) - _duplicates(start.data, self._kind):
                self._restore(f"{SINGULAR[self._kind]} {key}", _SECOND)
            if lost_comments:
                self._restore("comments", "they were dropped")
        if not self.restored:
            self._restore("a part", "it was not usable as it was")

    def _restore(self, what: str, why: str, verb: str = "restored") -> None:
        self.restored.append(Restoration(f"{self._kind}.yaml", what, why, verb))

    def _tell_differences(self, last: Data, kept: Data, reasons: dict[EntryField, str]) -> None:
        """Report the reasons for what differs in the end; skip what came back by itself."""
        now = by_key(last, self._kind)
        then = by_key(kept, self._kind)
        for (key, field), why in reasons.items():
            name = f"{SINGULAR[self._kind]} {key}"
            was = now.get(key)
            new = then.get(key)
            if not field and (was is None) != (new is None):
                self._restore(name, why, "restored" if was is None else "taken out")
            if field and was and new and not identical(was.get(field), new.get(field)):
                self._restore(f"`{field}` of {name}", why)


def _duplicates(data: Data | None, kind: Kind) -> set[str]:
    """Return the keys that more than one entry has."""
    keys = [entity.key for entity in model.entities(data or {}, kind)]
    return {key for key in keys if key is not None and keys.count(key) > 1}


def _words(raw: bytes | None, kind: Kind) -> set[EntryField]:
    """Return the texts in the file, each with its entry's key; each entry also has the text ""."""
    found: set[EntryField] = set()
    for key, entry in by_key(_parsed(raw) or {}, kind).items():
        fields = [value for name, value in entry.items() if name not in _STATE]
        texts = [model.text_of(item) for value in fields for item in as_list(value)]
        found |= {(key, text) for text in ("", *texts)}
    return found


def _comments(raw: bytes | None, data: Data) -> set[str]:
    """Return the comments that people wrote in a file with this data."""
    found = set(_COMMENT.findall((raw or b"").decode("utf-8", "replace")))
    text = " ".join(str(data).replace("\\n", " ").split())
    return {comment for comment in found if " ".join(comment.split()) not in text}


def _is_persons(snapshot: Snapshot, name: str, now: bytes | None) -> bool:
    """Whether the file was only changed while the agent had no tool call running."""
    seen = snapshot.seen[name]
    return bool(seen) and seen[-1].raw == now and all(version.quiet for version in seen)


def _is_usable(path: Path) -> bool:
    """Return whether this is a plain file that can be read, or nothing at all."""
    try:
        found = disk.stat(path)
    except FileNotFoundError:
        return True
    except UnsafeFile:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= MAX_BYTES and os.access(path, os.R_OK)


@lru_cache(maxsize=128)
def _parsed(raw: bytes | None) -> Data | None:
    """Return the data in the bytes; an absent file is empty, an unreadable one is None."""
    with contextlib.suppress(BadPlan):
        return PlanFile.read(raw or b"", name="").data
    return None
