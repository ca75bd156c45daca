"""What the loop does with git: a worktree for each feature, and a commit for each success.

Git runs as if the user had called it: with their identity and the repository's hooks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import zlib
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.errors import BadInput
from ralph.memory.project import Project
from ralph.programs import find_program
from ralph.state_folders import old_state_name, state_name
from ralph.text.redact import redact
from ralph.text.sanitize import visible
from ralph.text.tokens import plural, shorten

# The repository's hooks may run its whole test suite.
_TIMEOUT_S = 600.0
_SUBJECT_CHARS = 72
# What package managers, compilers and test runners leave behind.
_LEFT_FOLDERS = frozenset(
    "__pycache__ node_modules .venv venv site-packages .pytest_cache .mypy_cache .ruff_cache .tox"
    " .nox .eggs htmlcov .gradle .next .nuxt .svelte-kit .turbo .parcel-cache .nyc_output".split()
)
_LEFT_FILES = re.compile(r"\.(?:py[co]|class|o|obj|tsbuildinfo)$|^\.coverage(?:\.|$)|^\.DS_Store$")
# A folder with this file says itself that it can be made again: https://bford.info/cachedir
_CACHE_TAG = "CACHEDIR.TAG"
_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]+")
_KEPT = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSH", "GIT_CONFIG")


class Worktree(msgspec.Struct, frozen=True):
    """A feature's own checkout: its path, the agent's working directory in it, and its branch."""

    feature: str
    path: str
    cwd: str
    branch: str


def git(folder: Path, *words: str, given: bytes = b"") -> str:
    """Run git and return its output; raise BadInput with its last line if it fails."""
    program = find_program("git", root=folder)
    if program is None:
        raise BadInput("git is not installed", todo="Install it, or run without this option.")
    # Variables set by a hook or another git command may point to another repository.
    env = {k: v for k, v in os.environ.items() if k[:4] != "GIT_" or k.startswith(_KEPT)}
    env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
    command = [program, "--literal-pathspecs", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=_TIMEOUT_S, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"git {words[0]} took longer than {_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")
        raise BadInput(f"git {words[0]} failed: {redact(said.rpartition(chr(10))[2])}")
    return done.stdout.decode("utf-8", "surrogateescape")


def repository(root: Path, option: str) -> Path:
    """Return the top of the project's repository; raise BadInput if there is none or no commit."""
    top = disk.find_repository(str(root))
    if not top:
        todo = "Run: git init && git add . && git commit"
        raise BadInput(f"{option} needs a git repository", where=str(root), todo=todo)
    try:
        git(Path(top), "rev-parse", "-q", "--verify", "HEAD^{commit}")
    except BadInput:
        what = f"{option} needs a repository with a commit"
        raise BadInput(what, where=top, todo="Run: git add . && git commit") from None
    return Path(top)


def changed_files(top: Path) -> set[str]:
    """Return the files with uncommitted changes, except ignored ones and those in `.ralph`.

    What tools leave behind is left out as well, unless git follows it: a project without a
    `.gitignore` does not want it in its history either.
    """
    listed = git(top, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    found: set[str] = set()
    for entry in filter(None, listed.split("\0")):
        path = entry[3:]
        is_new = entry.startswith("??")
        if disk.FOLDER not in path.split("/") and not (is_new and _is_left_behind(top, path)):
            found.add(path)
    return found


def _is_left_behind(top: Path, path: str) -> bool:
    """Whether a tool made this file: a cache, installed packages, compiled files."""
    *folders, name = path.split("/")
    if _LEFT_FILES.search(name) or not _LEFT_FOLDERS.isdisjoint(folders):
        return True
    above = itertools.accumulate(folders, lambda folder, part: f"{folder}/{part}")
    return any((top / folder / _CACHE_TAG).is_file() for folder in above)


# -- Worktrees.


def worktree_of(project: Project, feature: str, *, create: bool = True) -> Worktree:
    """Return the worktree of a feature, created from the current commit if there is none yet."""
    root = project.root
    top = repository(project.root, "--worktree")
    name = _UNUSABLE.sub("-", feature).strip("-")
    if name != feature:  # another feature may get the same name
        name = f"{name or 'feature'}-{zlib.crc32(feature.encode()):08x}"
    listed = git(top, "worktree", "list", "--porcelain")
    worktrees = project.home / "worktrees"
    branch = f"ralph/{name}"
    path = worktrees / state_name(root) / name
    # git knows a worktree by its path, so one of an earlier version stays where it is.
    earlier = worktrees / old_state_name(root) / name
    if earlier.is_dir() and _is_listed(earlier, listed):
        path = earlier
    inside = root.resolve().relative_to(top.resolve())
    found = Worktree(feature, str(path), str(path / inside), branch)
    if create:
        git(top, "worktree", "prune")
        if not path.is_dir() or not _is_listed(path, listed):
            _add_worktree(top, path, branch)
    return found


def _is_listed(path: Path, listed: str) -> bool:
    return f"worktree {path.resolve().as_posix()}\n" in listed


def _add_worktree(top: Path, path: Path, branch: str) -> None:
    words = [str(path), branch]
    if not git(top, "branch", "--list", branch):
        if dirty := sorted(changed_files(top)):
            what = f"a new worktree would lack your uncommitted changes: {', '.join(dirty[:5])}"
            raise BadInput(what, where=str(top), todo="Commit them first.")
        words = ["-b", branch, str(path)]
    disk.make_folder(path.parent)
    git(top, "worktree", "add", "-q", *words)


def merge_hint(root: Path, worktree: Worktree) -> str:
    """Say how to merge a worktree's work into the current branch."""
    count = 0
    with contextlib.suppress(BadInput):  # somebody removed it
        count = len(changed_files(Path(worktree.path)))
    first = f"commit {plural(count, 'changed file')} in {worktree.path}, then " if count else ""
    return f"To merge {worktree.feature}: {first}run in {root}: git merge {worktree.branch}"


# -- Commits.


def commit_changes(top: Path, before: set[str], *, title: str, iteration: str) -> dict[str, Any]:
    """Commit the files that changed since the run began, and none that had changes before it.

    Returns the commit or the error; `left_out` lists the files that had changes before the run.
    """
    made: dict[str, Any] = {"commit": "", "files": 0, "left_out": (), "error": ""}
    try:
        now = changed_files(top)
        made["left_out"] = tuple(sorted(now & before))
        if paths := sorted(now - before):
            subject = shorten(" ".join(visible(redact(title)).split()), _SUBJECT_CHARS)
            _commit(top, paths, "-m", subject, "-m", f"Ralph-Iteration: {iteration}")
            commit = git(top, "rev-parse", "--short", "HEAD").strip()
            made |= {"commit": commit, "files": len(paths)}
    except (BadInput, OSError) as error:
        made["error"] = str(error)
    return made


def _commit(top: Path, paths: list[str], *message: str) -> None:
    names = "\0".join(paths).encode("utf-8", "surrogateescape")
    from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
    git(top, "add", "--intent-to-add", *from_stdin, given=names)
    try:
        git(top, "commit", "-q", "--only", *message, *from_stdin, given=names)
    except BadInput:
        git(top, "reset", "-q", *from_stdin, given=names)
        raise
