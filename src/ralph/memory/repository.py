"""The git repository around a folder, and the commit that its history begins with.

The repository is found without git, because hooks look for it before every prompt. The commit is
asked of git once, and kept in Ralph's home. It opens a project's memory, and a `.git` may come with
an archive. So a `.git` counts only if its history is its own: no link leads out of it, and the file
of a worktree only if the repository knows that worktree.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from ralph import disk

if TYPE_CHECKING:
    from pathlib import Path

_GIT = ".git"
# In a shallow clone the first commit is missing, with the others the history is elsewhere.
_INCOMPLETE = ("shallow", "commondir", os.path.join("objects", "info", "alternates"))
_LARGEST_BYTES = 4096
# How long git may take to walk a history, and when it is asked again after that was too short.
_TIMEOUT_S = 1.0
_ASK_AGAIN_S = 86_400.0


def history_folder(top: str) -> str:
    """The git folder with the history, which all worktrees share; "" if it cannot be relied on."""
    git = folder = os.path.join(top, _GIT)
    try:
        if os.path.isfile(git):
            own = os.path.join(top, _text(git).removeprefix("gitdir:").strip())
            known = os.path.join(own, _text(os.path.join(own, "gitdir")))
            if os.path.realpath(known) != os.path.join(os.path.realpath(top), _GIT):
                return ""
            folder = os.path.realpath(os.path.join(own, _text(os.path.join(own, "commondir"))))
        return folder if top and _is_complete(folder) else ""
    except OSError:
        return ""


def first_commit(top: str, home: Path) -> str:
    """The commit that the history begins with; "" where that is unknown."""
    folder = history_folder(top)
    if not folder:
        return ""
    import uuid

    file = home / "cache" / "git" / str(uuid.uuid5(uuid.NAMESPACE_URL, folder))
    with contextlib.suppress(OSError):
        commit = disk.read(file).decode("ascii", "replace").strip()
        if commit or time.time() - os.stat(file).st_mtime < _ASK_AGAIN_S:
            return commit
    code, text = ask_git(top, "rev-list", "--first-parent", "--max-parents=0", "HEAD")
    commit = text if code == 0 else ""
    if (commit or code < 0) and os.path.isdir(home):  # not where only the first commit is missing
        with contextlib.suppress(OSError):
            disk.make_folder(file.parent)
            disk.replace(file, commit.encode() + b"\n")
    return commit


def ask_git(root: str | os.PathLike[str], *words: str) -> tuple[int, str]:
    """Git's exit code and what it says; -1 where it does not answer."""
    from pathlib import Path  # most projects are known without git

    from ralph.programs import ask_program, find_program

    program = find_program("git", root=Path(root))
    if program is None:
        return -1, "git is not installed"
    # Nothing that the repository configures may run or be fetched, or change what its history is.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    environ["GIT_NO_REPLACE_OBJECTS"] = "1"
    command = [program, "-C", os.fspath(root), "-c", "core.fsmonitor=false", *words]
    return ask_program(command, timeout_s=_TIMEOUT_S, env=environ)


def _is_complete(git: str) -> bool:
    """Whether a git folder is a real one with all of its history in it."""
    if os.path.islink(git) or any(os.path.lexists(os.path.join(git, one)) for one in _INCOMPLETE):
        return False
    with os.scandir(git) as own, os.scandir(os.path.join(git, "objects")) as objects:
        return not any(one.is_symlink() for one in (*own, *objects))


def _text(file: str) -> str:
    return disk.read(file, largest=_LARGEST_BYTES).decode("utf-8", "surrogateescape").strip()
