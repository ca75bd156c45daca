"""Which programs Ralph starts: never one that happens to lie in the folder somebody works in.

A clone may hold a `git`, a `claude` or a package `ralph`. So a program is looked up on the PATH by
one function, and Python is started so that the current folder is not among its modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# -P keeps the current folder out of Python's path. -E ignores PYTHONPATH, where an empty or
# relative entry would bring it back. The user's own site stays: `pip install --user` puts us there.
_ISOLATED = ("-E", "-P")
_PROJECT_MARKS = (".git", ".ralph")


def python() -> list[str]:
    """This interpreter, started so that it finds our modules and none of the current folder's."""
    return [sys.executable, *(_ISOLATED if _is_installed() else _ISOLATED[1:])]


def find_program(name: str, *, root: Path | None = None, path: str | None = None) -> str | None:
    """The full path of a program on the PATH that does not belong to a project, or None.

    Empty and relative entries do not count, nor does anything inside `root` or, where none is
    given, the project around the current folder. A name with a folder in it is meant literally.
    """
    if Path(name).name != name:
        return str(Path(name).absolute()) if _runs(Path(name)) else None
    for folder in _folders(os.environ.get("PATH", "") if path is None else path, root):
        for ending in _endings(name):
            program = folder / (name + ending)
            if _runs(program):
                return str(program)
    return None


def ask_program(command: list[str], *, timeout_s: float, **more: Any) -> tuple[int, str]:
    """Run a command that nobody watches: its exit code and output, or -1 and what went wrong."""
    import subprocess  # most who look programs up start none

    more |= {"stdin": subprocess.DEVNULL, "capture_output": True, "check": False}
    try:
        done = subprocess.run(command, timeout=timeout_s, **more)
    except (OSError, subprocess.SubprocessError) as error:
        return -1, str(error)
    output = done.stderr if done.returncode else done.stdout
    return done.returncode, (output or done.stdout).decode(errors="replace").strip()


def _folders(path: str, root: Path | None) -> Iterator[Path]:
    project = root or _project_here()
    projects = [] if project is None else [project.resolve()]
    # Where a project is the home folder, or holds it, its programs are the person's own.
    home = Path("~").expanduser().resolve()
    projects = [one for one in projects if not home.is_relative_to(one)]
    # Whoever started this Ralph has chosen its folder.
    ours = Path(sys.executable).parent.resolve()
    for entry in path.split(os.pathsep):
        folder = Path(entry)
        if folder.is_absolute():
            real = folder.resolve()
            if real == ours or not any(real.is_relative_to(one) for one in projects):
                yield folder


def _project_here() -> Path | None:
    """The nearest folder upwards that looks like a project."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    for folder in (here, *here.parents):
        if any(os.path.lexists(folder / mark) for mark in _PROJECT_MARKS):
            return folder
    return None


def _endings(name: str) -> list[str]:
    """What Windows adds to a name, the name itself first where it has such an end already."""
    if sys.platform != "win32":
        return [""]
    known = os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(os.pathsep)
    ends = any(name.lower().endswith(one.lower()) for one in known if one)
    return ["", *known] if ends else known


def _runs(program: Path) -> bool:
    try:
        return program.is_file() and os.access(program, os.X_OK)
    except (OSError, ValueError):
        return False


def _is_installed() -> bool:
    """Whether Python finds us without PYTHONPATH, which developers set."""
    here = Path(__file__).resolve().parents[1]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return here not in {Path(one).resolve() for one in given if one}
