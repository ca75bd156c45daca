"""The guard: a snapshot before an iteration, and after it a plan that nothing was lost from.

Between the two the files may have been changed by Ralph's own calls (they are in the write log),
by a person or another program, and by the agent's direct edits (its tool calls tell). The guard
follows a file from version to version: Ralph's and people's changes are taken over whole, an
agent's are judged. What comes out is written only where it differs from what is there, and what
was there is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.errors import BadPlan
from ralph.plan.blame import AgentEdit, Blame, for_file, landed
from ralph.plan.document import Data, Document
from ralph.plan.entities import KINDS, ONE, Kind, entities
from ralph.plan.judge import Judge, Restored, Scope
from ralph.plan.merge import Everything, bring
from ralph.plan.splice import render, same
from ralph.plan.store import Plan, copied, read_bytes
from ralph.plan.values import TaskId
from ralph.plan.writes import ABSENT, Write, digest

_TRIES = 5
_COPIES = 20


class Version(msgspec.Struct, frozen=True):
    """A file's bytes at one moment; None when it was not there."""

    at: str
    raw: bytes | None


class Snapshot(msgspec.Struct, frozen=True):
    """The plan before an iteration, and what was seen of it since. `to_bytes` outlives a crash."""

    at: str
    writes: int
    files: dict[str, Version]
    seen: dict[str, list[Version]]

    def to_bytes(self) -> bytes:
        """The snapshot for a file."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Snapshot:
        """The snapshot that `to_bytes` wrote."""
        return msgspec.msgpack.decode(raw, type=cls)


class Report(msgspec.Struct, frozen=True):
    """What was put back and why, and where what was there before can be looked at."""

    restored: tuple[Restored, ...] = ()
    copies: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether there was nothing to do."""
        return not self.restored and not self.unreadable and not self.copies

    def lines(self) -> list[str]:
        """The report as a person reads it."""
        told = [str(note) for note in self.restored] + list(self.unreadable)
        return told + [f"what was there before is kept in {copy}" for copy in self.copies]


class Guard:
    """Watches over the plan of one project."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def snapshot(self) -> Snapshot:
        """The plan as it is now."""
        with self._plan.locked():
            at = self._plan.now()
            files = {name: Version(at, self._raw(name)) for name in (*KINDS, "metadata")}
            return Snapshot(at, self._plan.log.last(), files, {name: [] for name in files})

    def observe(self, snapshot: Snapshot) -> None:
        """Look at the files now. The more often, the better a person's edits are told apart."""
        for name, first in snapshot.files.items():
            seen = snapshot.seen[name]
            raw = self._raw(name)
            if raw != (seen[-1] if seen else first).raw:
                seen.append(Version(self._plan.now(), raw))

    def check(
        self,
        snapshot: Snapshot,
        *,
        feature: str | None,
        task_id: TaskId | None = None,
        agent_edits: Iterable[AgentEdit | str] | None,
    ) -> Report:
        """Put back what the agent's direct edits destroyed, and say what and why.

        `agent_edits` None: it is not known what the agent edited. `feature` None: a planning run.
        """
        edits = None if agent_edits is None else list(agent_edits)
        restored: list[Restored] = []
        copies: list[str] = []
        unreadable: list[str] = []
        scope = Scope(feature, task_id, edits is not None, self._plan.limits)
        with self._plan.locked():
            for kind in KINDS:
                own = None if edits is None else for_file(edits, kind)
                for _ in range(_TRIES):  # a person may save between our reading and our writing
                    mended = _Mending(self._plan, kind, snapshot, scope, own)
                    if self._write(kind, mended, copies):
                        break
                restored += mended.restored
                unreadable += mended.unreadable
            restored += self._metadata(snapshot, edits)
        return Report(tuple(restored), tuple(copies), tuple(unreadable))

    def _write(self, kind: Kind, mended: _Mending, copies: list[str]) -> bool:
        if mended.result is None:
            return True
        if self._plan.raw(kind) != mended.last:
            return False
        if mended.last is not None:
            copies.append(self.keep_copy(kind, mended.last))
        self._plan.put(kind, mended.result, "guard: agent's edits mended")
        return True

    def _metadata(self, snapshot: Snapshot, edits: list[AgentEdit | str] | None) -> list[Restored]:
        """The project's identity is no agent's business: put back whole."""
        before, path = snapshot.files["metadata"].raw, self._path("metadata")
        now = read_bytes(path)
        if before is None or now == before:
            return []
        readable = now is not None and _parsed(now) is not None
        if readable and not (edits and for_file(edits, "metadata")):
            return []
        disk.replace(path, before)
        return [Restored("metadata.yaml", "the file", "the agent changed or broke it")]

    def keep_copy(self, kind: str, raw: bytes) -> str:
        """Keep one version of a file of the plan, and give its path."""
        folder = self._plan.cache / "rejected"
        disk.make_folder(folder)
        stamp = self._plan.now().replace(":", "").replace("-", "")
        copy = folder / f"{stamp}-{digest(raw)[:6]}-{kind}.yaml"
        disk.create(copy, raw)
        for old in disk.names(folder)[:-_COPIES]:
            disk.remove(folder / old)
        return str(copy)

    def _path(self, name: str) -> Path:
        return self._plan.folder / f"{name}.yaml"

    def _raw(self, name: str) -> bytes | None:
        return read_bytes(self._path(name))


class _Step:
    """One version of a file on its way through the iteration; None: not known to have been read."""

    def __init__(self, key: str, raw: bytes | None, write: Write | None = None) -> None:
        self.key = key
        self.raw = raw
        self.write = write

    @cached_property
    def data(self) -> Data | None:
        if self.raw is None and self.key != ABSENT:
            return None  # a version that the log no longer holds
        parsed: Data | None = _parsed(self.raw)
        return parsed

    @property
    def text(self) -> str | None:
        return None if self.raw is None else self.raw.decode("utf-8", "replace")


class _Mending:
    """One file followed from the snapshot to now."""

    def __init__(
        self,
        plan: Plan,
        kind: Kind,
        snapshot: Snapshot,
        scope: Scope,
        edits: list[AgentEdit] | None,
    ) -> None:
        self._plan = plan
        self._kind = kind
        self._scope = scope
        self._edits = edits
        self.restored: list[Restored] = []
        self.unreadable: list[str] = []
        self.result: bytes | None = None
        self.last = plan.raw(kind)
        steps = self._steps(snapshot)
        if all(step.write is not None for step in steps[1:]):
            return  # nobody but Ralph
        self._follow(steps)

    def _steps(self, snapshot: Snapshot) -> list[_Step]:
        log = self._plan.log
        first = snapshot.files[self._kind]
        steps = [_Step(digest(first.raw), first.raw)]
        seen = list(snapshot.seen[self._kind])

        def take_seen(until: str | None) -> None:
            while seen and (until is None or seen[0].at <= until):
                version = seen.pop(0)
                known = digest(version.raw)
                if known != steps[-1].key and not any(known == w.after for w in writes):
                    steps.append(_Step(known, version.raw))

        writes = log.since(snapshot.writes, self._kind)
        for write in writes:
            take_seen(write.at)
            if write.before != steps[-1].key:
                steps.append(_Step(write.before, log.version(write.before)))
            steps.append(_Step(write.after, log.version(write.after), write))
        take_seen(None)
        now = digest(self.last)
        if now != steps[-1].key:
            steps.append(_Step(now, self.last))
        return steps

    def _follow(self, steps: list[_Step]) -> None:
        start = next((step for step in steps if step.data is not None), None)
        if start is None or start.data is None:
            self.unreadable.append(f"{self._plan.shown(self._kind)} could be read at no time")
            return
        base = start.data
        kept: Data = copied(base)
        before = start
        protected: set[tuple[str, str]] = set()
        others = False
        edits: list[AgentEdit] = []
        blamed = self._blamed(steps)
        for i in range(steps.index(start) + 1, len(steps)):
            step = steps[i]
            edits += blamed[i]
            if step.data is None or before.data is None:
                if step is steps[-1]:
                    self._broken(step)
                continue
            if step.write is not None or not edits:
                all_of_it = Everything()
                if same(kept, before.data):
                    kept = copied(step.data)
                    bring(self._kind, before.data, step.data, before.data, all_of_it)
                else:
                    kept = bring(self._kind, before.data, step.data, kept, all_of_it)
                protected |= all_of_it.touched
                others = others or step.write is None
            else:
                judge = self._judge(before, step, edits, base, protected)
                kept = bring(self._kind, before.data, step.data, kept, judge)
                self.restored += [note for note in judge.restored if note not in self.restored]
                protected |= judge.touched_by_others
                others = others or bool(judge.touched_by_others)
            before = step
            edits = []
        self._finish(start, steps[-1], kept, others=others)

    def _blamed(self, steps: list[_Step]) -> list[list[AgentEdit]]:
        """For each step the edits that may have led to it; a write of Ralph's has none."""
        if self._edits is None:
            return [[] if step.write else [AgentEdit("")] for step in steps]
        direct = [i for i in range(1, len(steps)) if steps[i].write is None]
        found = landed(self._edits, [(steps[i - 1].text, steps[i].text) for i in direct])
        by_step = dict(zip(direct, found, strict=True))
        return [by_step.get(i, []) for i in range(len(steps))]

    def _judge(
        self,
        before: _Step,
        step: _Step,
        edits: list[AgentEdit],
        base: Data,
        protected: set[tuple[str, str]],
    ) -> Judge:
        by_key = {str(e.key): e.value for e in entities(base, self._kind)}
        features = {str(e.key) for e in entities(self._plan_features(), "features")}
        blame = Blame(self._kind, edits, before.text, step.text)
        return Judge(
            self._kind, self._scope, blame, base=by_key, protected=protected, features=features
        )

    def _plan_features(self) -> Data:
        """The features that stand: their file is mended before that of the tasks."""
        return _parsed(self._plan.raw("features")) or {}

    def _broken(self, step: _Step) -> None:
        what = "the file is gone" if step.raw is None else "it is not valid YAML any more"
        self.restored.append(Restored(f"{self._kind}.yaml", "the file", what))

    def _finish(self, start: _Step, last: _Step, kept: Data, *, others: bool) -> None:
        """Write what is kept, over the text that has most of people's own hand in it."""
        if last.data is not None and same(last.data, kept):
            return
        source = last.raw if last.data is not None and (others or start.raw is None) else start.raw
        for key in _doubled(last.data, self._kind) - _doubled(start.data, self._kind):
            what, why = f"{ONE[self._kind]} {key}", "the edit added a second one; the first stands"
            self.restored.append(Restored(f"{self._kind}.yaml", what, why))
        document = Document.read(source or b"", name=self._plan.shown(self._kind))
        self.result = render(document, kept).encode()


def _doubled(data: Data | None, kind: Kind) -> set[str]:
    """The keys that more than one entry has."""
    keys = [entity.key for entity in entities(data or {}, kind)]
    return {key for key in keys if key is not None and keys.count(key) > 1}


@lru_cache(maxsize=16)
def _parsed(raw: bytes | None) -> Any:
    """The data in the bytes; an absent file holds nothing, an unreadable one is None."""
    try:
        return Document.read(raw or b"", name="").data
    except BadPlan:
        return None
