"""Feature memory: the iterations on one feature, searchable as soon as they are saved."""

from __future__ import annotations

import contextlib
import hashlib
import math
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import msgspec

from ralph import disk
from ralph.errors import BadInput, BadRecord, NotFound
from ralph.journal import Draft, Selection
from ralph.journal.file import check_name, file_name
from ralph.memory.store import NOTES, Answer, ProjectStore, Stream, find_id, numbered, unasked
from ralph.recall import Hit
from ralph.recall.kinds import KINDS
from ralph.records import JournalRecord, Record, Source, clean_text, now, utc
from ralph.records import iteration as kind
from ralph.records.iteration import KIND, ErrorSeen, FileAction, FileTouched, Iteration, from_record

# -- Preparing an iteration for saving: remove secrets, apply limits, make paths relative.


# Numbers continue from the highest, so a huge one would leave none after it.
_LAST_NUMBER = 1_000_000_000


def prepared(iteration: Iteration, *, root: str) -> Iteration:
    """Return the iteration, ready to be saved: no secrets, nothing over its limit."""
    number = iteration.iteration_number
    if number is not None and not 1 <= number <= _LAST_NUMBER:
        what = f"iteration_number goes from 1 to {_LAST_NUMBER}, not {number}"
        raise BadRecord(what, todo="Leave it out to get the next one.")
    for field in ("tokens_used", "cost_usd", "duration_ms"):
        amount = getattr(iteration, field)
        if amount is not None and not 0 <= amount < math.inf:
            what = f"{field} must be a non-negative number, not {amount}"
            raise BadRecord(what, todo="Leave it out if it is not known.")

    def error(seen: ErrorSeen) -> ErrorSeen:
        path = kind.relative_path(clean_text(_from_root(seen.file_path or "", root)))
        texts = kind.fit_texts(msgspec.structs.replace(seen, file_path=None))
        return msgspec.structs.replace(texts, file_path=path)

    errors = list(dict.fromkeys(iteration.errors))[: kind.MOST_ERRORS]  # each is kept once
    # These two are checked in their own way, so they are not redacted with the texts.
    texts = kind.fit_texts(msgspec.structs.replace(iteration, timestamp=None, session_id=None))
    ready = msgspec.structs.replace(
        texts,
        feature=iteration.feature,
        timestamp=iteration.timestamp,
        errors=tuple(map(error, errors)),
        decisions=tuple(map(kind.fit_texts, iteration.decisions[: kind.MOST_DECISIONS])),
        files_touched=_files(iteration.files_touched, root)[: kind.MOST_FILES],
        session_id=_run(iteration.session_id),
    )
    told = ready.task_title.strip() or ready.summary.strip()
    if not (told or ready.errors or ready.decisions or ready.files_touched):
        what = "there is nothing in this iteration to remember"
        todo = "Give at least one of task_title, summary, errors, decisions, files_touched."
        raise BadRecord(what, todo=todo)
    return ready


def _files(files: tuple[FileTouched, ...], root: str) -> tuple[FileTouched, ...]:
    # The record's body is redacted again when it is written. Paths that are already known then cost
    # nothing.
    paths = [clean_text(_from_root(file.path, root)) for file in files]
    inside = [FileTouched(path, file.action) for path, file in zip(paths, files, strict=True)]
    return kind.strongest(tuple(inside))


def _from_root(path: str, root: str) -> str:
    """Make a path relative to the root. Redact only after this: folders may look like secrets."""
    base = root.replace("\\", "/").rstrip("/")
    plain = kind.whole_text(path).replace("\\", "/")
    return plain.removeprefix(f"{base}/") if base else plain


def _run(run: str | None) -> str | None:
    """Return the run's name, or its hash if that is too long or secret. Runs stay distinct."""
    if not run or (len(run) <= kind.SHORT_TEXT_CHARS and clean_text(kind.whole_text(run)) == run):
        return run or None
    return f"run-{hashlib.sha256(run.encode(errors='surrogatepass')).hexdigest()[:32]}"


class SavedIteration(msgspec.Struct, frozen=True):
    """An iteration as it is stored, and whether it was new."""

    id: str
    kind: str
    record: Iteration
    fresh: bool


class FileSeen(msgspec.Struct, frozen=True):
    """A file the feature's iterations touched."""

    path: str
    actions: tuple[FileAction, ...]
    count: int
    last_iteration: int


_C = TypeVar("_C", bound=msgspec.Struct)


class ProjectStream(Stream):
    """One journal of a project, and the index's collection that follows it."""

    store: ProjectStore

    def __init__(self, name: str, store: ProjectStore, journal: Any = None) -> None:
        check_name(name)
        super().__init__(name, store, journal or store.journals.journal(name))

    def contents(self) -> list[tuple[JournalRecord, Any]]:
        """Return every readable live record, in journal order, with its content."""
        return list(self._read(self._fold.records()))

    def _read(self, records: Iterable[JournalRecord]) -> Iterator[tuple[JournalRecord, Any]]:
        for located in records:
            with contextlib.suppress(BadRecord):
                if (content := self.content(located.record)) is not None:
                    yield located, content

    def find(self, record_id: str, *, newest: int | None = None) -> list[Hit]:
        """Return every record whose id begins with this; one id may have two contents.

        `newest`: only this many of the newest, oldest first.
        """
        begins = record_id.lower()
        found = [one for one in self._fold.records() if one.record.id.startswith(begins)]
        if newest is None:
            return self.hits(self._read(found))
        found.sort(key=lambda located: located.record.at)
        return self.hits(reversed(list(islice(self._read(reversed(found)), newest))))

    def places(self, record_id: str) -> list[JournalRecord]:
        """Return every line of the journal that has this record."""
        return [one for one in self._fold.records() if one.record.id == record_id]

    def hits(self, pairs: Iterable[tuple[JournalRecord, Any]]) -> list[Hit]:
        """Return the records as hits."""
        last = max((located.record.number for located in self._fold.records()), default=0)
        return [unasked(one.record, self.when(one.record, last), found) for one, found in pairs]

    def drop_index(self) -> bool:
        """Remove the collection from the index until something new is saved; the journal stays
        (F14). Return whether the index is here."""
        disk.create(self.store.dropped / file_name(self.name), b"")
        index = self.store.index
        index.with_repair(lambda: index.store.drop(self.target().name))
        return True

    def search_again(self) -> None:
        """Index what was just written, even for a feature that had been deleted."""
        disk.remove(self.store.dropped / file_name(self.name))
        self.store.sync_soon(self.target())


class NoteMemory(ProjectStream):
    """The notes of one project, in their own journal; a note may name a feature.

    Records of other kinds without their own journal are stored here, too.
    """

    cut_version = f"note-1-{kind.EMBEDDING_CHARS}"

    def __init__(self, store: ProjectStore) -> None:
        super().__init__(NOTES, store)

    def remember(self, content: _C) -> tuple[_C, bool]:
        """Save a note or a record of a kind from outside; return it as stored and if it is new."""
        record = KINDS.of_content(content).record(content)
        if known := self.find(record.id):
            return known[0].record, False
        if record.id in self.forgotten():  # written again after it was forgotten
            record = msgspec.structs.replace(record, id=uuid.uuid4().hex[:16])
        self.store.ensure()
        [appended] = self.journal.append([numbered(record)])
        self.store.sync_soon(self.target())
        return self.content(appended.record), appended.fresh


class FeatureMemory(ProjectStream):
    """The memory of one feature of one project."""

    cut_version = f"iteration-5-{kind.EMBEDDING_CHARS}"

    # -- writing

    def remember(
        self, iteration: Iteration | Mapping[str, Any], *, source: Source | None = None
    ) -> SavedIteration:
        """Save one iteration; when this returns it is on disk, and usually searchable."""
        return self.remember_all([iteration], sources=[source])[0]

    def remember_all(
        self,
        iterations: Sequence[Iteration | Mapping[str, Any]],
        *,
        sources: Sequence[Source | None] | None = None,
    ) -> list[SavedIteration]:
        """Save many with one flush: all of them, or none and an error."""
        given = sources or [None] * len(iterations)
        pairs = list(zip(iterations, given, strict=True))
        return self.keep([self.prepare(one, source) for one, source in pairs], given)

    def keep(
        self, ready: Sequence[Iteration], sources: Sequence[Source | None]
    ) -> list[SavedIteration]:
        """Save what `prepare` returned, with one flush."""
        self.store.ensure()
        drafts = [self._draft(one, source) for one, source in zip(ready, sources, strict=True)]
        appended = self.journal.append(drafts)
        self.search_again()
        return [SavedIteration(a.record.id, KIND, from_record(a.record), a.fresh) for a in appended]

    def prepare(
        self, iteration: Iteration | Mapping[str, Any], source: Source | None = None
    ) -> Iteration:
        """Return the iteration, ready to be saved; an error names its source. Writes nothing."""
        try:
            return self._prepared(iteration)
        except BadRecord as error:
            if source is None or source.file is None:
                raise
            where = source.file if source.line is None else f"{source.file}:{source.line}"
            raise BadRecord(error.what, where=where, todo=error.todo) from None

    def _prepared(self, iteration: Iteration | Mapping[str, Any]) -> Iteration:
        told = iteration if isinstance(iteration, Iteration) else kind.read_iteration(iteration)
        one = kind.check_fields(told)
        if one.feature and one.feature != self.name:
            what = f"this iteration is of feature {one.feature!r}, not {self.name!r}"
            raise BadRecord(what, todo="Remember it under its own feature.")
        at = utc(one.timestamp) if one.timestamp else now()
        named = msgspec.structs.replace(one, feature=self.name, timestamp=at)
        return prepared(named, root=str(self.store.project.root))

    def _draft(self, iteration: Iteration, source: Source | None) -> Record | Draft:
        if source:  # without secrets
            file = clean_text(kind.whole_text(source.file)) if source.file else None
            source = Source(run=_run(source.run), file=file, line=source.line)

        def numbered(number: int) -> Record:
            return kind.to_record(
                iteration, project_id=self.store.project.claimed_id, number=number, source=source
            )

        if iteration.iteration_number is None:
            return numbered
        return numbered(iteration.iteration_number)

    # -- asking

    def search(
        self, query: str, *, limit: int | None = None, min_score: float | None = None
    ) -> Answer:
        """Return the iterations that answer the question, best first; at most 20."""
        return self.store.ask([self], self.store.question(query, limit=limit, min_score=min_score))

    def recent(self, count: int | None = None) -> Answer:
        """Return the latest iterations, newest first."""
        wanted = kind.RECENT_COUNT if count is None else count
        if wanted < 1:
            raise BadInput(f"count must be at least 1, not {wanted}")
        return Answer(self.hits(self._newest_first()[:wanted]))

    def failed_attempts(self, task_id: int | str | None = None) -> Answer:
        """Return iterations that failed or timed out, newest first, of one task or of all."""
        failed = (pair for pair in self._newest_first() if pair[1].failed)
        of = [p for p in failed if task_id is None or str(p[1].task_id) == str(task_id)]
        return Answer(self.hits(of))

    def files(self) -> list[FileSeen]:
        """Return every file the iterations touched, the most touched first."""
        counts: Counter[str] = Counter()
        actions: dict[str, dict[FileAction, None]] = {}
        last: dict[str, int] = {}
        for located, iteration in self.iterations():
            for file in iteration.files_touched:
                counts[file.path] += 1
                actions.setdefault(file.path, {})[file.action] = None
                last[file.path] = max(last.get(file.path, 0), located.record.number)
        order = sorted(counts, key=lambda path: (-counts[path], -last[path], path))
        return [FileSeen(p, tuple(actions[p]), counts[p], last[p]) for p in order]

    def get(self, record_id: str) -> Hit:
        """Return one record by its id or the beginning of it."""
        ids = (located.record.id for located, _ in self.iterations())
        todo = f"`ralph recent --feature {self.name}` lists records with their ids."
        missing = NotFound(f"feature {self.name!r} has no record {record_id}", todo=todo)
        return self.find(find_id(record_id, ids, missing))[-1]

    def iterations(
        self, ids: Collection[str] | None = None
    ) -> list[tuple[JournalRecord, Iteration]]:
        """Return readable live iterations in journal order, all or those with these ids."""
        if ids is None:
            return self.contents()
        return list(self._read(one for one in self._fold.records() if one.record.id in ids))

    def newest(self, count: int) -> list[tuple[JournalRecord, Iteration]]:
        """Return the newest readable iterations, oldest first, without reading a long journal."""
        found = list(self._read(self.select(Selection(kinds=(KIND,), newest=count))))
        return sorted(found, key=_age)

    def of_run(self, run: str) -> list[tuple[JournalRecord, Iteration]]:
        """Return the iterations of one run of an agent, without reading a long journal."""
        return list(self._read(self.select(Selection(run=run))))

    def _newest_first(self) -> list[tuple[JournalRecord, Iteration]]:
        return sorted(self.iterations(), key=_age, reverse=True)

    def content(self, record: Record) -> Any:
        """Return the iteration in a record; the journal of a feature has nothing else."""
        return super().content(record) if record.kind == KIND else None

    def when(self, record: Record, last_number: int) -> str:
        """Return which iteration it was, and how many iterations ago."""
        ago = last_number - record.number
        counted = f"{ago} iteration{'s' if ago > 1 else ''} ago" if ago > 0 else "the latest"
        return f"iteration {record.number}, {counted}"


def _age(pair: tuple[JournalRecord, Iteration]) -> tuple[int, str]:
    located, _ = pair
    return located.record.number, located.record.at


def merged(
    memories: Sequence[FeatureMemory], find: Callable[[FeatureMemory], list[Hit]]
) -> list[Hit]:
    """Return what is found in each of the memories, newest first."""
    if len(memories) == 1:
        return list(find(memories[0]))
    hits = [hit for memory in memories for hit in find(memory)]
    return sorted(hits, key=lambda hit: datetime.fromisoformat(hit.record.timestamp), reverse=True)
