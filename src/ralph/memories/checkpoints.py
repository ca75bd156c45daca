"""Checkpoints: everything a project has staged is embedded, put into patterns and published.

For each batch in this order: embed all of it, write the line that publishes it, index it. What is
killed or fails before the line stays staged; after it the index catches up by itself. So a
checkpoint can always be repeated, and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ralph import disk
from ralph.errors import BadInput, EmbedderOff, IndexOff, JournalBusy, JournalDown, MemoryOff
from ralph.kinds.knowledge import (
    CHECKPOINT_KINDS,
    Checkpoint,
    CheckpointKind,
    checkpoint_id,
    knowledge_from,
)
from ralph.memories.foresight import Foresight
from ralph.memories.grouping import Member
from ralph.memories.knowledge_journal import NOT_GIVING, said_draft
from ralph.memories.knowledge_stream import passages
from ralph.record import Record
from ralph.text.tokens import query_tokens

if TYPE_CHECKING:
    from ralph.index.view import View
    from ralph.memories.knowledge import Knowledge
    from ralph.memories.ledger import History

_LOCK_NAME = "checkpoint.lock"
# How many published entries near a new one are compared with it.
_CANDIDATES = 10
# Without vectors its rarest words find them.
_RAREST_WORDS = 8


class Checkpointed(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint came to."""

    project: str
    kind: CheckpointKind
    published: tuple[str, ...]
    new_patterns: int
    joined: int
    notes: tuple[str, ...] = ()


def checkpoint(
    memory: Knowledge, project: str, kind: str, *, imported: bool = False
) -> Checkpointed:
    """Publish everything staged for a project; again when there is nothing, nothing happens."""
    if kind not in CHECKPOINT_KINDS:
        raise BadInput(
            f"{kind!r} is no kind of checkpoint",
            todo=f"It is one of {', '.join(CHECKPOINT_KINDS)}.",
        )
    why = msgspec.convert(kind, CheckpointKind)
    giving = not memory.keeps_to_itself(project)
    if not giving or not memory.staged_records(project, imported=imported):
        notes = _caught_up(memory) if giving else (NOT_GIVING,)
        return Checkpointed(
            project=project, kind=why, published=(), new_patterns=0, joined=0, notes=notes
        )
    if trouble := memory.shelf.journals.trouble():
        # What others published meanwhile is not known here, and may be the same lesson.
        raise JournalDown(
            f"nothing is published while the journal's server is away: {trouble}",
            todo="What is staged stays so; repeat the checkpoint when it is back.",
        )
    settings = memory.shelf.settings
    lock = memory.shelf.index.path.with_name(_LOCK_NAME)
    try:
        # One at a time on this machine: what two projects publish at once may be one pattern.
        with disk.locked(lock, timeout_s=settings.journal_lock_timeout_s):
            return _publish(memory, project, why, imported=imported)
    except disk.Busy:
        raise JournalBusy(
            "another checkpoint is under way", where=str(lock), todo="Try again when it has ended."
        ) from None


def _caught_up(memory: Knowledge) -> tuple[str, ...]:
    """Index what was published by a checkpoint that did not come to it; what is in the way."""
    if not memory.ledger.history().slots:
        return ()
    try:
        return tuple(memory.catch_up())
    except MemoryOff as error:
        return (f"not indexed yet: {error}",)


def _publish(
    memory: Knowledge, project: str, why: CheckpointKind, *, imported: bool
) -> Checkpointed:
    def waiting() -> list[Record]:
        return memory.staged_records(project, imported=imported)

    published: list[str] = []
    staged = {record.id for record in waiting()}
    before = set(memory.ledger.history().patterns)
    fresh_patterns: set[str] = set()
    notes: list[str] = []
    while batch := waiting()[: memory.shelf.settings.knowledge_batch]:
        try:
            line = _Batch(memory, batch).publish(project, why)
            notes = memory.catch_up()
        except MemoryOff as error:
            left = {record.id for record in waiting()}
            raise type(error)(
                f"{len(staged - left)} published, {len(left)} stay staged: {error.what}",
                where=error.where,
                todo=error.todo or "Repeat the checkpoint.",
            ) from error
        published += [one.entry for one in line.covers]
        fresh_patterns |= {one.pattern for one in line.covers} - before
    joined = len(published) - len(fresh_patterns)
    return Checkpointed(
        project=project,
        kind=why,
        published=tuple(published),
        new_patterns=len(fresh_patterns),
        joined=joined,
        notes=tuple(notes),
    )


class _Batch:
    """Some staged entries on their way to being published."""

    def __init__(self, memory: Knowledge, records: Sequence[Record]) -> None:
        self._memory = memory
        self._records = records
        max_chars = memory.shelf.settings.embedding_max_chars
        self._cut = [passages(record, max_chars) for record in records]
        embedder = memory.shelf.embedder
        self._ahead = None if embedder is None else Foresight(embedder)

    def publish(self, project: str, why: CheckpointKind) -> Checkpoint:
        memory = self._memory
        if self._ahead is not None:
            self._ahead.embed_ahead(p.embed for cut in self._cut for p in cut)
        synced = memory.shelf.index.sync(memory.stream.target())
        if not synced.complete:
            off = synced.embedder_off
            raise (
                EmbedderOff(off)
                if off
                else IndexOff(
                    "another process is busy with the index", where=str(memory.shelf.index.path)
                )
            )
        near = memory.shelf.index.healed(self._candidates)
        members = [Member(record.id, knowledge_from(record)) for record in self._records]
        covers = memory.grouping.assign(members, lambda place: near[place])
        line = Checkpoint(project=project, why=why, covers=tuple(covers))
        memory.write(project, said_draft(line, checkpoint_id(project, covers[0].entry)))
        if self._ahead is not None:
            # What was embedded is not embedded again.
            memory.shelf.index.sync(memory.stream.target(self._ahead), changed=True)
        return line

    def _candidates(self) -> list[list[Member]]:
        """For each entry the patterns that may tell the same, each by its first entry."""
        memory = self._memory
        history = memory.ledger.history()
        with memory.shelf.index.store.reading() as view:
            rows = self._near(view)
            live = view.live(memory.stream.target().name)
            if live is None:
                return [[] for _ in self._records]
            found: list[list[Member]] = []
            for some in rows:
                near = (record.id for _, record in view.records(live, some).values())
                patterns = dict.fromkeys(
                    history.slots[one].pattern for one in near if one in history.slots
                )
                found.append([self._first_of(history, name) for name in patterns])
        return found

    def _first_of(self, history: History, pattern: str) -> Member:
        first = history.patterns[pattern][0]
        record = self._memory.ledger.entry(history.projects[first], first)
        return Member(first, knowledge_from(record), pattern)

    def _near(self, view: View) -> list[list[int]]:
        live = view.live(self._memory.stream.target().name)
        if live is None:
            return [[] for _ in self._records]
        if self._ahead is not None:
            import numpy as np

            vectors = np.stack([self._ahead.vector(cut[0].embed) for cut in self._cut])
            near = view.nearest_of_each(live, vectors, _CANDIDATES)
            return [list(some) for some in near]
        found: list[list[int]] = []
        for cut in self._cut:
            asked = query_tokens(f"{cut[0].title}\n{cut[0].text}\n{cut[0].places}")
            often = view.frequencies(live, asked)
            known = [token for token in asked if often[token]]
            rarest = sorted(known, key=lambda token: (often[token], token))[:_RAREST_WORDS]
            found.append(list(view.words(live, rarest, _CANDIDATES)))
        return found
