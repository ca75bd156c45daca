"""A working copy: its files as they are now, and what git knows about them.

Git is only asked questions, with the repository's own configuration kept from running or fetching
anything. A repository whose history is incomplete or somewhere else is not asked at all.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ralph import disk
from ralph.errors import UnsafeFile
from ralph.memory.project import ask_git, history_folder

# The time and the size of a file.
FileKey = tuple[int, int]
NO_FILE: FileKey = (0, 0)

_MOST_FILE_BYTES = 2 * 1024 * 1024
_MOST_REF_BYTES = 64 * 1024
_MOST_PLACES = 5
# A person waits for blame, and a long history takes git a while.
_BLAME_TIMEOUT_S = 10.0
# A longer file that changed is not compared with its commit: that takes too long.
_MOST_COMPARED = 40_000
_BLAMED = re.compile(r"([0-9a-f]{40,64}) (\d+) (\d+)(?: \d+)?")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_BRANCH = re.compile(r"(?![-/])[\w./+@#-]{1,200}")
_GLOB = re.compile(r"([*?\[\]\\])")


class Commit(NamedTuple):
    """A commit, as git's blame tells of it; `at` is when it was written, in UTC."""

    id: str
    author: str = ""
    mail: str = ""
    at: str = ""
    subject: str = ""


class BlamedLine(NamedTuple):
    """A line of a file in HEAD: its text, the commit it is from, and the file's path there."""

    number: int
    text: str
    commit: Commit
    path: str


class WorkingCopy:
    """The project's files, and the git repository around them if its history can be trusted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._top = disk.find_repository(str(root))
        self._history = history_folder(self._top) if self._top else ""

    @property
    def has_history(self) -> bool:
        """Whether git can be asked."""
        return bool(self._history)

    # Files.

    def key(self, path: str) -> FileKey:
        """Return what changes with a file of the project; zeros if there is no such file in it."""
        try:
            if not self._is_inside(path):
                return NO_FILE
            status = (self.root / path).stat(follow_symlinks=False)
        except (OSError, ValueError):
            return NO_FILE
        return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else NO_FILE

    def _is_inside(self, path: str) -> bool:
        """Whether a path stays in the project: others may have written the record that names it."""
        folder = Path(os.path.realpath((self.root / path).parent))
        return folder.is_relative_to(self._real_root)

    @cached_property
    def _real_root(self) -> Path:
        return Path(os.path.realpath(self.root))

    def text(self, path: str) -> str:
        """Return the content of a file, or "" if it cannot be read."""
        if self.key(path) == NO_FILE:
            return ""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_MOST_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    # What is checked out, without starting git.

    @property
    def branch(self) -> str:
        """The branch that is checked out, or ""."""
        return self._checked_out()[0]

    @property
    def commit(self) -> str:
        """The commit that is checked out, or ""."""
        return self._checked_out()[1]

    @property
    def state(self) -> str:
        """What changes with every commit, checkout and new branch."""
        parts = [self.commit]
        for path in self._changing:
            with contextlib.suppress(OSError):
                parts.append(str(path.stat().st_mtime_ns))
        return " ".join(parts)

    @cached_property
    def _changing(self) -> tuple[Path, ...]:
        history = Path(self._history)
        references = history / "refs"
        return (
            self._own_folder / "HEAD",
            references / "heads",
            references / "remotes" / "origin",
            history / "packed-refs",
        )

    @cached_property
    def _own_folder(self) -> Path:
        """The git folder of this working copy; a worktree has its own."""
        folder = Path(self._top, ".git")
        if folder.is_file():
            return Path(self._top, _first_line(folder).removeprefix("gitdir:").strip())
        return folder

    def _checked_out(self) -> tuple[str, str]:
        if not self._history:
            return "", ""
        head = _first_line(self._own_folder / "HEAD")
        name = head.removeprefix("ref: ")
        if name == head:
            return "", head if _COMMIT.fullmatch(head) else ""
        if not _BRANCH.fullmatch(name) or ".." in name:
            return "", ""
        commit = _first_line(Path(self._history, name)) or self._packed(name)
        return name.removeprefix("refs/heads/"), commit if _COMMIT.fullmatch(commit) else ""

    def _packed(self, name: str) -> str:
        """Return the commit of a reference that git packed with others."""
        try:
            data = disk.read(Path(self._history, "packed-refs"))
        except (OSError, UnsafeFile):
            return ""
        for line in data.decode("utf-8", "replace").splitlines():
            commit, _, reference = line.partition(" ")
            if reference == name:
                return commit
        return ""

    # What git says.

    def ask(self, *words: str) -> str:
        """Return git's answer to a question, or "" if it has none."""
        code, output = ask_git(self._top, "--literal-pathspecs", *words)
        return output if code == 0 else ""

    def in_repository(self, path: str) -> str:
        """Return a path of the project as git names it."""
        below = self.root.resolve().relative_to(Path(self._top).resolve())
        return (below / path).as_posix()

    def in_project(self, path: str) -> str:
        """Return a path of the repository as the project names it, or "" outside it."""
        below = self.in_repository("")
        if below == ".":
            return path
        return path.removeprefix(f"{below}/") if path.startswith(f"{below}/") else ""

    def commits(self, path: str, *, since: str, most: int) -> list[str]:
        """Return the newest commits that changed a file since a time, the oldest of them first."""
        words = ("log", f"--max-count={most}", f"--since={since}", "--format=%h")
        listed = self.ask(*words, "--no-show-signature", "--", self.in_repository(path))
        return [commit for commit in reversed(listed.split()) if _COMMIT.fullmatch(commit)]

    def commit_at(self, time: str) -> str:
        """Return the newest commit of this branch at a time, or ""."""
        found = self.ask("rev-list", "--max-count=1", f"--before={time}", "HEAD")
        return found if _COMMIT.fullmatch(found) else ""

    def text_at(self, revision: str, path: str) -> str:
        """Return a file as a commit or a branch has it, or ""."""
        return self.ask("cat-file", "blob", f"{revision}:{self.in_repository(path)}")

    def head_text(self, path: str) -> str | None:
        """Return a file as the commit that is checked out has it; None if it doesn't."""
        name = f"HEAD:{self.in_repository(path)}"
        code, text = ask_git(self._top, "cat-file", "blob", name, strip=False)
        return text if code == 0 else None

    def head_line(self, lines: Sequence[str], path: str, line: int) -> int | None:
        """Return the number in HEAD of a line of the working file; None if it is not there."""
        text = self.head_text(path) if self.has_history else None
        if text is None:
            return None
        committed = text.splitlines()
        first = _equal_from_the_start(committed, lines)
        if line <= first:
            return line
        old = committed[first:]
        new = lines[first:]
        last = _equal_from_the_start(old[::-1], new[::-1])
        if line > len(lines) - last:
            return line - len(lines) + len(committed)
        old = old[: len(old) - last]
        new = new[: len(new) - last]
        if len(old) + len(new) > _MOST_COMPARED:
            return None
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for block in matcher.get_matching_blocks():
            if block.b < line - first <= block.b + block.size:
                return line - block.b + block.a
        return None

    def blame(self, path: str, first: int, last: int) -> list[BlamedLine]:
        """Return which commits lines of a file in HEAD are from; none if git doesn't say.

        The working copy's own file is left alone: for it, git would run the filters that the
        repository's configuration names.
        """
        words = ("--literal-pathspecs", "-c", "blame.ignoreRevsFile=", "blame", "--porcelain")
        lines = (f"-L{first},{last}", "--no-textconv", "HEAD", "--", self.in_repository(path))
        code, output = ask_git(self._top, *words, *lines, timeout_s=_BLAME_TIMEOUT_S, strip=False)
        return list(_read_blame(output)) if code == 0 else []

    def message(self, commit: str) -> str:
        """Return the whole message of a commit."""
        return self.ask("show", "--no-patch", "--no-show-signature", "--format=%B", commit)

    def json_at(self, reference: str, path: str) -> str:
        """Return a file of another branch or reference, or ""."""
        return self.ask("cat-file", "blob", f"{reference}:{path}")

    def had(self, path: str) -> bool:
        """Whether a commit of this branch changed a file of this path."""
        words = ("log", "--max-count=1", "--format=%h", "--no-show-signature")
        return bool(self.ask(*words, "--", self.in_repository(path)))

    def references_of(self, branch: str) -> list[str]:
        """Return the references of a branch, here and as it was last fetched from `origin`."""
        if not _BRANCH.fullmatch(branch) or ".." in branch:
            return []
        names = (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
        listed = self.ask("for-each-ref", "--format=%(refname)", *names).splitlines()
        return [name for name in names if name in listed]

    def places_of(self, name: str) -> list[str]:
        """Return the files of the project that have this name, in any folder."""
        pattern = ":(glob)**/" + _GLOB.sub(r"\\\1", name)
        code, output = ask_git(self.root, "ls-files", "-z", "--", pattern)
        found = [place for place in output.split("\0") if place] if code == 0 else []
        return found[:_MOST_PLACES]

    def renamed(self, path: str) -> str:
        """Return what the commit that removed a file renamed it to, or ""."""
        in_git = self.in_repository(path)
        words = ("log", "--max-count=1", "--diff-filter=D", "--format=%h", "--no-renames")
        removed = self.ask(*words, "--no-show-signature", "--", in_git)
        if not _COMMIT.fullmatch(removed):
            return ""
        how = ("-M", "--name-status", "-z", "--format=", "--no-show-signature")
        fields = self.ask("show", *how, removed).split("\0")
        for status, old, new in zip(fields, fields[1:], fields[2:], strict=False):
            if status.startswith("R") and old == in_git:
                return self.in_project(new)
        return ""


def _first_line(path: Path) -> str:
    try:
        data = disk.read(path, largest=_MOST_REF_BYTES)
    except (OSError, UnsafeFile):
        return ""
    return data.decode("utf-8", "replace").partition("\n")[0].strip()


def _equal_from_the_start(lines: Sequence[str], others: Sequence[str]) -> int:
    """Return how many lines two texts have in common before the first that differs."""
    pairs = zip(lines, others, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read_blame(output: str) -> Iterator[BlamedLine]:
    """Read git's porcelain format: facts about a commit come with its first line only."""
    facts: dict[str, dict[str, str]] = {}
    commit = ""
    number = 0
    for line in output.split("\n"):
        if line.startswith("\t"):
            known = facts[commit]
            about = Commit(
                commit,
                known.get("author", ""),
                known.get("author-mail", "").strip("<>"),
                _utc(known.get("author-time", "")),
                known.get("summary", ""),
            )
            yield BlamedLine(number, line[1:], about, known.get("filename", ""))
        elif found := _BLAMED.fullmatch(line):
            commit = found[1]
            number = int(found[3])
            facts.setdefault(commit, {})
        elif commit:
            name, _, value = line.partition(" ")
            facts[commit][name] = value


def _utc(seconds: str) -> str:
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return ""
