"""Does the code that a record speaks of still stand?

The lines that a record left in its files are counted in the files as they are now. Content comes
before history: a squash keeps the content and loses the commit. Git is asked only about what is
not there any more: since which commit, where it went, on which branch it still is. Nothing is said
where it cannot be known: without an anchor, without git, in an incomplete clone.
"""

from __future__ import annotations

import bisect
import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ralph import disk
from ralph.capture.anchors import line_hash, line_hashes, may_have
from ralph.memory.anchors import STANDINGS, AnchorStore, SavedAnchor
from ralph.memory.project import Project
from ralph.memory.working_copy import NO_FILE, FileKey, WorkingCopy
from ralph.recall import CodeState, Hit, Standing
from ralph.text.tokens import plural

# From this share of surviving lines on, code holds; below the other one it is gone.
HOLDS_SHARE = 0.8
GONE_SHARE = 0.3
# The files with most lines say how a record stands.
_MOST_FILES = 6
# Fewer lines tell that code holds only if one of them is in its file once.
_FEW_LINES = 3
# Lines that share at least this much of their words are forms of each other.
_ALIKE_SHARE = 0.5
_LEAST_SHARED = 2
_MOST_AMENDED = 60
_MOST_NEW = 4000
_WORD = re.compile(r"\w+")
_MOST_COMMITS = 500
_MOST_ARRIVALS = 5
_MOST_NAMED = 3
# How much less a record counts in the order if its code is gone.
_GONE_WEIGHT = 0.6
_MOST_REMEMBERED = 2000
_CACHE_VERSION = 3
_IN_FILES_ALONE = ("holds", "changed", "gone")
_NOT_COMMITTED = "not committed yet"
SharedAnchors = Mapping[str, Sequence[SavedAnchor]]


class RememberedStanding(msgspec.Struct):
    """A standing that was found before, and the files and the commit that it depends on."""

    commit: str
    files: dict[str, FileKey]
    state: CodeState
    text: str

    def fits(self, commit: str, files: dict[str, FileKey]) -> bool:
        """Whether it is still true.

        Where code moved to and on which branch it is can change with any commit. All else changes
        only with the files, unless it waits for a commit.
        """
        if self.files != files:
            return False
        is_settled = self.state in _IN_FILES_ALONE and not self.text.endswith(_NOT_COMMITTED)
        return is_settled or self.commit == commit


class _Cache(msgspec.Struct):
    version: int = _CACHE_VERSION
    records: dict[str, RememberedStanding] = {}


class _Survival(NamedTuple):
    """An anchor, and how many of its lines its file has now."""

    saved: SavedAnchor
    size: int
    surviving: int

    @property
    def share(self) -> float:
        return self.surviving / self.size

    @property
    def lost(self) -> int:
        return self.size - self.surviving


def keep_anchors(project: Project, anchors: Sequence[SavedAnchor]) -> list[SavedAnchor]:
    """Save which lines new records left in files, with the branch and commit checked out now.

    Returns the anchors as they were saved.
    """
    if not anchors:
        return []
    copy = WorkingCopy(project.root)
    branch = copy.branch
    head = copy.commit
    placed = [
        saved._replace(branch=saved.branch or branch, head=saved.head or head) for saved in anchors
    ]
    AnchorStore(project.home).save(placed)
    return placed


class CodeStandings:
    """How the code of records stands in one working copy."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._store = AnchorStore(project.home)
        self._copy = WorkingCopy(project.root)
        self._files: dict[str, tuple[FileKey, Counter[str]]] = {}
        self._cache: dict[str, RememberedStanding] | None = None
        # Whether files were deleted, by path and commit.
        self._deleted: dict[tuple[str, str], bool] = {}

    def added_to(self, hits: Sequence[Hit], shared: SharedAnchors | None = None) -> list[Hit]:
        """Return the hits with how their code stands; those whose code is gone come later.

        `shared` are anchors that a team's server has of them.
        """
        standings = self.of_hits(hits, shared)
        if not standings:
            return list(hits)
        return _gone_later(
            [msgspec.structs.replace(hit, standing=standings.get(hit.id)) for hit in hits]
        )

    def of_hits(
        self, hits: Sequence[Hit], shared: SharedAnchors | None = None
    ) -> dict[str, Standing]:
        """Return how the code of each hit stands, if that is known.

        Without anchors, a record says so if all files that it is about are gone.
        """
        found = self.of([hit.id for hit in hits], shared)
        if not self._copy.has_history:
            return found
        for hit in hits:
            paths = () if hit.id in found else _paths_of(hit)
            if paths and self._are_gone(paths):
                found[hit.id] = Standing("gone", f"{', '.join(paths)} gone")
        return found

    def edited_by_people(self, paths: Sequence[str], since: str) -> list[str]:
        """Return the files with lines that they did not have at a time, and that no record left.

        Without git, or if no commit is that old, nothing is known.
        """
        commit = self._copy.commit_at(since) if since and self._copy.has_history else ""
        return [path for path in paths if commit and self._has_lines_of_people(path, commit)]

    def _has_lines_of_people(self, path: str, commit: str) -> bool:
        then = set(line_hashes(self._copy.text_at(commit, path)))
        added = self._lines(path).keys() - then
        lefts = [saved.anchor.hashes for saved in self._store.of_file(path)] if added else []
        return any(not any(may_have(left, line) for left in lefts) for line in added)

    def _are_gone(self, paths: Sequence[str]) -> bool:
        """Whether none of the files is there any more, though git had each of them."""
        if any(self._copy.key(path) != NO_FILE for path in paths):
            return False
        commit = self._copy.commit
        return all(self._is_deleted(path, commit) for path in paths)

    def _is_deleted(self, path: str, commit: str) -> bool:
        """Whether git had a file that is not there any more, up to the commit checked out."""
        if (path, commit) not in self._deleted:
            if len(self._deleted) >= _MOST_REMEMBERED:
                self._deleted.clear()
            is_deleted = self._copy.had(path) and not self._copy.renamed(path)
            self._deleted[path, commit] = is_deleted
        return self._deleted[path, commit]

    def of(
        self, records: Collection[str], shared: SharedAnchors | None = None
    ) -> dict[str, Standing]:
        """Return how the code of each record stands; those of which nothing is known are left
        out."""
        if not (self._copy.has_history and (shared or self._store.exists)):
            return {}
        found: dict[str, Standing] = {}
        commit = self._copy.state
        unknown: list[str] = []
        for record in dict.fromkeys([*records, *(shared or {})]):
            remembered = self._remembered().get(record)
            if remembered and remembered.fits(commit, self._keys(remembered.files)):
                found[record] = Standing(remembered.state, remembered.text)
            else:
                unknown.append(record)
        theirs = {record: (shared or {}).get(record, ()) for record in unknown}
        is_new = False
        for record, anchors in (theirs | self._store.of_records(unknown)).items():
            largest = sorted(anchors, key=lambda saved: -len(saved.anchor.lines))[:_MOST_FILES]
            standing = self._judge(largest) if largest else None
            if standing is None:
                continue
            found[record] = standing
            files = self._keys(saved.anchor.path for saved in largest)
            self._remembered()[record] = RememberedStanding(
                commit, files, standing.state, standing.text
            )
            is_new = True
        if is_new:
            self._write_cache()
        return found

    def _keys(self, paths: Iterable[str]) -> dict[str, FileKey]:
        return {path: self._copy.key(path) for path in paths}

    # What the files have now.

    def _lines(self, path: str) -> Counter[str]:
        """Return the lines of a file of the working copy, as hashes, and how often it has each."""
        key = self._copy.key(path)
        if key == NO_FILE:
            return Counter()
        if path not in self._files or self._files[path][0] != key:
            if len(self._files) >= _MOST_REMEMBERED:
                self._files.clear()
            self._files[path] = key, Counter(line_hashes(self._copy.text(path)))
        return self._files[path][1]

    def _survival(self, saved: SavedAnchor, lines: Collection[str]) -> _Survival:
        hashes = saved.anchor.hashes
        return _Survival(saved, len(hashes), len(hashes.intersection(lines)))

    # What that means.

    def _judge(self, anchors: Sequence[SavedAnchor]) -> Standing | None:
        """Return how code stands; None if its few lines could be any."""
        now = [self._survival(saved, self._lines(saved.anchor.path)) for saved in anchors]
        total = sum(survival.size for survival in now)
        share = sum(survival.surviving for survival in now) / total
        if share >= HOLDS_SHARE:
            return Standing("holds") if total >= _FEW_LINES or self._is_telling(now) else None
        # Of the files that changed, the one that lost most says what happened.
        changed = [survival for survival in now if survival.share < HOLDS_SHARE]
        worst = max(changed, key=lambda survival: survival.lost).saved
        if place := self._moved_to(worst):
            return Standing("moved", f"moved to {place}")
        if share >= GONE_SHARE or self._is_amended(worst):
            return Standing("changed", self._changed_since(worst))
        if branch := self._branch_with(worst):
            return Standing("elsewhere", f"only on branch {branch}")
        return Standing("gone", self._gone_since(worst))

    def _is_telling(self, found: Sequence[_Survival]) -> bool:
        """Whether a line of these is in its file once; one like `log.debug(` is often there."""
        for survival in found:
            counts = self._lines(survival.saved.anchor.path)
            if any(counts[line] == 1 for line in survival.saved.anchor.hashes):
                return True
        return False

    def _is_amended(self, saved: SavedAnchor) -> bool:
        """Whether the file has enough of the lines in another form, as with one more argument.

        What the file had before these lines is no form of them: a revert brings it back.
        """
        then, before = _LinesInHistory(self._copy, saved).arrival
        now = self._copy.text(saved.anchor.path)
        hashes = saved.anchor.hashes
        present = set(line_hashes(now))
        lost = [line for line in then.splitlines() if line_hash(line) in hashes - present]
        known = {*line_hashes(then), *line_hashes(before)}
        new = [line for line in now.splitlines() if line_hash(line) not in {"", *known}]
        if not lost or len(lost) > _MOST_AMENDED or len(new) > _MOST_NEW:
            return False
        forms = [_words(line) for line in new]
        amended = sum(any(_are_alike(_words(line), form) for form in forms) for line in lost)
        return len(hashes & present) + amended >= GONE_SHARE * len(hashes)

    def _changed_since(self, saved: SavedAnchor) -> str:
        path = saved.anchor.path
        history = _LinesInHistory(self._copy, saved)
        if history.is_whole_in_head:
            return f"{path} changed, {_NOT_COMMITTED}"
        later = history.after_last_whole()
        if not later:
            return f"{path} changed since then"
        return f"{path} changed since ({later[0]}, {plural(len(later), 'commit')})"

    def _gone_since(self, saved: SavedAnchor) -> str:
        path = saved.anchor.path
        history = _LinesInHistory(self._copy, saved)
        if history.is_whole_in_head:
            return f"gone from {path}, {_NOT_COMMITTED}"
        commit = history.first_below(GONE_SHARE)
        return f"gone from {path} since {commit}" if commit else f"gone from {path}"

    def _branch_with(self, saved: SavedAnchor) -> str:
        """Return the branch of a record if it is another one and has its lines, else ""."""
        branch = saved.branch
        if not branch or branch == self._copy.branch:
            return ""
        for reference in self._copy.references_of(branch):
            text = self._copy.text_at(reference, saved.anchor.path)
            if self._survival(saved, set(line_hashes(text))).share >= HOLDS_SHARE:
                return branch
        return ""

    def _moved_to(self, saved: SavedAnchor) -> str:
        """Return the file that has an anchor's lines now: what git says its file became, or
        another one of the same name; else ""."""
        path = saved.anchor.path
        places = self._copy.places_of(path.rpartition("/")[2])
        if self._copy.key(path) == NO_FILE and (renamed := self._copy.renamed(path)):
            places.insert(0, renamed)
        for place in places:
            is_other = place != path
            if is_other and self._survival(saved, self._lines(place)).share >= HOLDS_SHARE:
                return place
        return ""

    # What was found before.

    def _remembered(self) -> dict[str, RememberedStanding]:
        if self._cache is None:
            self._cache = {}
            with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
                data = disk.read(self._project.cache / STANDINGS)
                cache = msgspec.json.decode(data, type=_Cache)
                if cache.version == _CACHE_VERSION:
                    self._cache = cache.records
        return self._cache

    def _write_cache(self) -> None:
        remembered = self._remembered()
        while len(remembered) > _MOST_REMEMBERED:
            del remembered[next(iter(remembered))]
        data = msgspec.json.encode(_Cache(records=remembered))
        with contextlib.suppress(OSError):  # in a read-only home, it is found again each time
            disk.make_folder(self._project.cache)
            disk.replace(self._project.cache / STANDINGS, data)


def _paths_of(hit: Hit) -> list[str]:
    """Return the few files that a record is about: those it changed, else those that broke."""
    files = getattr(hit.record, "files_touched", ())
    errors = getattr(hit.record, "errors", ())
    changed = [file.path for file in files if file.action in ("modified", "created")]
    broken = [error.file_path for error in errors if error.file_path]
    paths = list(dict.fromkeys(changed or broken))
    return paths if len(paths) <= _MOST_NAMED else []


def _gone_later(hits: Sequence[Hit]) -> list[Hit]:
    """Move hits whose code is gone behind those that are not much less relevant."""
    ordered = [hit for hit in hits if not _is_gone(hit)]
    for place, hit in enumerate(hits):
        if _is_gone(hit):
            least = (hit.score or 0.0) * _GONE_WEIGHT
            better = [n for n, other in enumerate(ordered) if (other.score or 0.0) >= least]
            ordered.insert(max([place, *(n + 1 for n in better)]), hit)
    return ordered


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(line))


def _are_alike(line: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two lines share most of their words."""
    shared = len(line & other)
    return shared >= _LEAST_SHARED and shared >= _ALIKE_SHARE * len(line | other)


def _is_gone(hit: Hit) -> bool:
    return hit.standing is not None and hit.standing.is_gone


class _LinesInHistory:
    """The share of an anchor's lines that each commit to its file left.

    Lines that went do not come back as a rule, so commits are halved until the one is found where
    they went.
    """

    def __init__(self, copy: WorkingCopy, saved: SavedAnchor) -> None:
        self._copy = copy
        self._saved = saved
        self._shares: dict[str, float] = {}
        self._commits = copy.commits(saved.anchor.path, since=saved.at, most=_MOST_COMMITS)

    @property
    def is_whole_in_head(self) -> bool:
        """Whether the commit that is checked out has the lines."""
        return self._share("HEAD") >= HOLDS_SHARE

    def after_last_whole(self) -> list[str]:
        """Return the commits since the lines changed; none if no commit is known that had them."""
        return self._later(HOLDS_SHARE)

    def first_below(self, share: float) -> str:
        """Return the first commit that left less than this share of the lines, or ""."""
        return next(iter(self._later(share)), "")

    @property
    def arrival(self) -> tuple[str, str]:
        """The file with the lines when they arrived, and as it was before; "" if not known."""
        if not (arrived := self._arrived()):
            return "", ""
        commit = self._commits[arrived[0]]
        path = self._saved.anchor.path
        return self._copy.text_at(commit, path), self._copy.text_at(f"{commit}^", path)

    def _arrived(self) -> list[int]:
        # The first commits since then are those in which the lines arrived.
        first = self._commits[:_MOST_ARRIVALS]
        return [n for n, commit in enumerate(first) if self._share(commit) >= HOLDS_SHARE]

    def _later(self, share: float) -> list[str]:
        if not (arrived := self._arrived()):
            return []
        after = bisect.bisect_left(
            self._commits,
            True,
            lo=arrived[0],
            key=lambda commit: self._share(commit) < share,
        )
        return self._commits[after:]

    def _share(self, revision: str) -> float:
        if revision not in self._shares:
            text = self._copy.text_at(revision, self._saved.anchor.path)
            hashes = self._saved.anchor.hashes
            self._shares[revision] = len(hashes.intersection(line_hashes(text))) / len(hashes)
        return self._shares[revision]
