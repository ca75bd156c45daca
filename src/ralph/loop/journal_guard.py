"""Guard the journal, the source of truth, against the agent of a run.

The journals lie in the checkout, where an agent may delete or rewrite them. What stood in them when
its run began is put back. What git took away (another branch, a stash, a reset) is left as it is.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from ralph import disk
from ralph.errors import BadInput, RalphError
from ralph.loop.git import git
from ralph.memory.journal_copies import JournalCopies
from ralph.memory.ralph import Ralph

_GIT = "git.json"
_MOST_STASHES = 50
FOLDER = "journal"


class GitState(msgspec.Struct, frozen=True):
    """What tells whether git changed the files of a checkout."""

    branch: str
    head: str
    stash: str


class JournalReport(NamedTuple):
    """What was restored, in lines for a person.

    `copies` is the folder with the copies, if git took lines that were not restored.
    """

    lines: list[str]
    copies: str | None = None


class JournalGuard:
    """Watches over the journals of one project; does nothing if they are on a server."""

    def __init__(self, ralph: Ralph) -> None:
        self._copies = JournalCopies(ralph)
        self._root = ralph.project.root
        self._copied: dict[Path, list[str]] = {}

    def begin(self, folder: Path) -> None:
        """Copy the journals to the folder of a run. Without a copy, the run is not guarded."""
        self._copied[folder] = self._copies.take(folder / FOLDER)
        if (state := git_state(self._root)) is not None:
            disk.make_folder(folder / FOLDER)
            disk.write(folder / FOLDER / _GIT, msgspec.json.encode(state))

    def check(self, folder: Path) -> JournalReport:
        """Restore what was lost since `begin`, unless git took it."""
        before = _saved_state(folder / FOLDER / _GIT)
        now = git_state(self._root)

        def taken(file: Path, lost: list[bytes]) -> set[bytes]:
            path = file.relative_to(self._root).as_posix()
            return _taken_by_git(self._root, path, before, now, lost)

        gone = self._gone_copies(folder)
        try:
            restored, left = self._copies.restore(folder / FOLDER, taken)
        except (RalphError, OSError) as error:
            return JournalReport([f"the journals could not be checked: {error}"])
        copies = str(folder / FOLDER) if left else None
        return JournalReport([*gone, *_report(restored, left, before, now)], copies)

    def _gone_copies(self, folder: Path) -> list[str]:
        """Return a line for each copy that somebody deleted: its journal cannot be checked."""
        copied = self._copied.pop(folder, [])
        present = set(disk.names(folder / FOLDER)) if copied else set()
        return [
            f"{name} could not be checked: its copy in Ralph's home was deleted during the run"
            for name in copied
            if name not in present
        ]


def git_state(root: Path) -> GitState | None:
    """Return where git's checkout stands; None without git or a commit."""
    if not disk.find_repository(str(root)):
        return None
    try:
        head = git(root, "rev-parse", "-q", "--verify", "HEAD").strip()
    except (BadInput, OSError):
        return None
    return GitState(_asked(root, "symbolic-ref", "-q", "HEAD"), head, _stash(root))


def _stash(root: Path) -> str:
    return _asked(root, "rev-parse", "-q", "--verify", "refs/stash")


def _asked(root: Path, *words: str) -> str:
    """Return what git says, "" if there is no such thing."""
    with contextlib.suppress(BadInput, OSError):
        return git(root, *words).strip()
    return ""


def _saved_state(file: Path) -> GitState | None:
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(disk.read(file), type=GitState)
    return None


def _taken_by_git(
    root: Path, path: str, before: GitState | None, now: GitState | None, lost: list[bytes]
) -> set[bytes]:
    """Return which of the lost lines git took; what HEAD has of the file, git did not take."""
    if before == now or not disk.find_repository(str(root)):
        return set()
    if now is None:  # a branch without a commit
        return set(lost)
    old = _blob(root, before.head, path) if before else ""
    new = _blob(root, now.head, path)
    missing = set(lost) - _lines_of(root, new)
    if old != new:
        return missing
    # A commit, reset or branch that left the file alone takes nothing from it; a stash may.
    stashed: set[bytes] = set()
    for stash in _new_stashes(root, before.stash if before else "", now.stash):
        for tree in (stash, f"{stash}^2", f"{stash}^3"):  # as it was, staged, not tracked
            stashed |= _lines_of(root, _blob(root, tree, path))
    return missing & stashed


def _new_stashes(root: Path, before: str, now: str) -> list[str]:
    if not now or before == now:
        return []
    stashes = _asked(root, "rev-list", "-g", f"--max-count={_MOST_STASHES}", "refs/stash").split()
    return stashes[: stashes.index(before)] if before in stashes else stashes


def _blob(root: Path, tree: str, path: str) -> str:
    return _asked(root, "rev-parse", "-q", "--verify", f"{tree}:./{path}")


def _lines_of(root: Path, blob: str) -> set[bytes]:
    text = _asked(root, "cat-file", "blob", blob) if blob else ""
    return {line.encode("utf-8", "surrogateescape") for line in text.split("\n")}


def _report(
    restored: list[str], left: list[str], before: GitState | None, now: GitState | None
) -> list[str]:
    lines = [f"restored {loss}" for loss in restored]
    lines += [f"not restored {loss}" for loss in left]
    if left:
        moved = f"git moved from {_where(before)} to {_where(now)} meanwhile"
        lines.append(f"{moved}, so nothing was changed there")
    return lines


def _where(state: GitState | None) -> str:
    if state is None:
        return "no commit"
    branch = state.branch.removeprefix("refs/heads/") or "no branch"
    stash = f" with stash {state.stash[:8]}" if state.stash else ""
    return f"{branch} at {state.head[:8]}{stash}"
