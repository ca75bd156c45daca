"""What the features of one project share: journals, index, embedder, settings."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.config import Settings
from ralph.errors import BadInput, EmbedderOff, IndexOff, JournalError, MemoryOff
from ralph.index import Embedder
from ralph.index.embedded import Index
from ralph.index.static import StaticEmbedder
from ralph.index.sync import Progress, Target, is_current_in
from ralph.journal.folder import JournalFolder
from ralph.memories.project import Project
from ralph.recall import Answer, Found, Hit
from ralph.recall.plain import search_plainly
from ralph.recall.search import Question, search

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.memories.feature import FeatureMemory

_log = logging.getLogger("ralph")
_SHORTEST_QUERY = 3
_TRIES = 3


class Place:
    """One project's memory on this machine."""

    def __init__(
        self, project: Project, settings: Settings, *, home: Path, progress: Progress | None = None
    ) -> None:
        self.project = project
        self.settings = settings
        self.home = home
        self.progress = progress
        self.journals = JournalFolder(
            project.journals,
            shown_as=".ralph/db/memory",
            lock_timeout_s=settings.journal_lock_timeout_s,
        )
        self.embedder = _embedder(settings, home)
        # Clones share an id but not their journals, so the path counts here.
        here = f"{project.id}-{_short_hash(str(project.root))}"
        elsewhere = home / "cache" / "projects" / here
        self.index = Index([project.cache, elsewhere], lock_timeout_s=settings.index_lock_timeout_s)
        self._told: set[str] = set()

    def ensure(self) -> None:
        """Make the project's files before the first record is kept."""
        if self.project.exists and self.project.has_id:
            return
        try:
            self.project.init()
        except OSError as error:
            raise JournalError(
                f"the project's files cannot be made ({error.strerror or error})",
                where=str(self.project.folder),
                todo="Free space or permit writing there, then try again.",
            ) from error

    def collection_name(self, stream: str) -> str:
        """The collection of a feature; two projects never share one (F18)."""
        return f"{_short_hash(self.project.id)}-{_short_hash(stream)}"

    def sync_soon(self, target: Target) -> None:
        """Index within the budget. The journal has the record already, so trouble is only told."""
        try:
            budget_s = self.settings.remember_budget_s
            synced = self.index.sync(target, budget_s=budget_s, changed=True)
        except MemoryOff as error:
            self._tell(f"not indexed yet: {error}")
        else:
            if synced.embedder_off:
                self._tell(f"indexed by words alone: {synced.embedder_off}")

    def erase_soon(self, target: Target) -> None:
        """Take what the journal no longer has out of the index's file, its bytes too."""
        try:
            self.index.erase(target, lock_timeout_s=self.settings.journal_lock_timeout_s)
        except MemoryOff as error:
            # The truth is clean already. An index that cannot be cleaned is thrown away.
            self._tell(f"the index could not be cleaned, so it is deleted: {error}")
            try:
                self.index.delete()
            except MemoryOff as worse:
                self._tell(f"forgotten text may still stand in an old index: {worse}")

    def question(self, text: str, *, limit: int | None, min_score: float | None) -> Question:
        """The question with the defaults filled in, or an error that helps."""
        # A terminal may hand over bytes that are no text.
        plain = text.encode(errors="replace").decode().strip()
        if len(plain) < _SHORTEST_QUERY and plain.isascii():
            raise BadInput(
                f"the query {plain!r} is too short to search for",
                todo='Ask in a few words, for example: "login form validation".',
            )
        wanted = self.settings.search_limit if limit is None else limit
        if wanted < 1:
            raise BadInput(f"limit must be at least 1, not {wanted}")
        floor = self.settings.min_score if min_score is None else min_score
        if not 0.0 <= floor <= 1.0:
            raise BadInput(f"min_score goes from 0 to 1, not {floor}")
        return Question(plain, min(wanted, self.settings.search_max_limit), floor)

    def ask(self, features: Sequence[FeatureMemory], question: Question) -> Answer:
        """Search these features as one, with what is there: meaning and words, or words alone."""
        names = set(self.journals.names())
        features = [one for one in features if one.name in names]
        notes: list[str] = []
        if not features:
            return Answer()  # and no index is made where there is nothing to find
        try:
            found = self.index.healed(lambda: self._by_index(features, question, notes))
        except MemoryOff as error:
            notes[:] = [f"searched the journal by words alone: {error}"]
            found = self._by_journal(features, question)
        return Answer(found, tuple(dict.fromkeys(notes)))

    def _by_index(
        self, features: Sequence[FeatureMemory], question: Question, notes: list[str]
    ) -> list[Hit]:
        by_stream = {feature.name: feature for feature in features}
        targets = {feature.name: feature.target() for feature in features}
        for tries_left in reversed(range(_TRIES)):
            notes.clear()
            behind, ready = self._caught_up(targets, notes)
            vector = self._vector(question.text, notes)
            with self.index.store.reading() as view:
                if tries_left and not all(is_current_in(view, targets[name]) for name in ready):
                    continue  # it was deleted, replaced or written to in between
                names = sorted(target.name for target in targets.values())
                live = [one for name in names if (one := view.live(name)) is not None]
                identity = self.embedder.identity if self.embedder else "none"
                found = search(view, live, question, vector=vector, embedder=identity)
                last = {one.stream: view.last_number(one) for one in live}
            break
        if len(live) < len(targets):
            raise IndexOff("the index is deleted again and again", where=str(self.index.path))
        for name in behind:  # the index may not know yet what was forgotten
            living = {record.id for record in by_stream[name].records()}
            found = [one for one in found if one.stream != name or one.record.id in living]
        return _shown(found, by_stream, last)

    def _caught_up(self, targets: dict[str, Target], notes: list[str]) -> tuple[set[str], set[str]]:
        """Sync them all; which are behind because somebody else is at it, and which are ready."""
        behind: set[str] = set()
        ready: set[str] = set()
        for name, target in targets.items():
            synced = self.index.sync(target, progress=self.progress)
            if synced.embedder_off:
                notes.append(f"searched by words alone: {synced.embedder_off}")
            elif synced.complete:
                ready.add(name)
            else:
                behind.add(name)
                notes.append(f"the index of {name!r} is still being built elsewhere")
        return behind, ready

    def _by_journal(self, features: Sequence[FeatureMemory], question: Question) -> list[Hit]:
        by_stream = {feature.name: feature for feature in features}
        held = [(one.name, record) for one in features for record in one.records()]
        last: dict[str, int] = {}
        for stream, record in held:
            last[stream] = max(last.get(stream, 0), record.number)
        found: list[Found] = []
        if features:
            found = search_plainly(held, features[0].target().cut, question)
        return _shown(found, by_stream, last)

    def _vector(self, text: str, notes: list[str]) -> Vectors | None:
        if self.embedder is None:
            notes.append("searched by words alone: the setting embedder is none")
            return None
        try:
            return self.embedder.embed_query(text)
        except EmbedderOff as error:
            notes.append(f"searched by words alone: {error}")
            return None

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log.warning("memory: %s", text)


def _shown(
    found: Sequence[Found], by_stream: dict[str, FeatureMemory], last: dict[str, int]
) -> list[Hit]:
    return [hit for one in found for hit in by_stream[one.stream].hits([one], last[one.stream])]


def _embedder(settings: Settings, home: Path) -> Embedder | None:
    makers: dict[str, Callable[[], Embedder | None]] = {
        "static": lambda: StaticEmbedder(stamp_folder=home / "cache"),
        "none": lambda: None,
    }
    return makers[settings.embedder]()


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
