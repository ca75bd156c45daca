"""Find the programs that Ralph starts, but never one that lies in the current project.

A clone may contain a `git`, a `claude` or a package `ralph`. So one function looks up programs on
the PATH, and Python is started so that it loads no modules from the current folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# -P keeps the current folder out of Python's path. -E ignores PYTHONPATH, where an empty or
# relative entry would bring it back. The user site stays: `pip install --user` puts us there.
_ISOLATED = ("-E", "-P")
_PROJECT_MARKS = (".git", ".ralph")


def python() -> list[str]:
    """Return the command that starts this interpreter without the current folder's modules."""
    return [sys.executable, *(_ISOLATED if _is_installed() else _ISOLATED[1:])]


def start_detached(words: list[str], folder: str) -> None:
    """Start a Ralph process that outlives this one, and do not wait for it.

    It inherits no streams, because whoever started us may wait for them to close, and it gets its
    own process session, so that it is not ended along with us.
    """
    import subprocess  # most callers of this module look programs up and start none

    more: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    if sys.platform == "win32":
        more["creationflags"] = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        more["start_new_session"] = True
    process = subprocess.Popen([*python(), "-m", "ralph", *words], cwd=folder, **more)
    process.returncode = 0  # so that Python does not complain that nobody waits for it


def find_program(name: str, *, root: Path | None = None, path: str | None = None) -> str | None:
    """Return the full path of a program on the PATH that does not belong to a project, or None.

    Empty and relative PATH entries are skipped. So is anything inside `root` or, without one,
    inside the project around the current folder. A name that contains a folder is taken literally.
    """
    if Path(name).name != name:
        return str(Path(name).absolute()) if _runs(Path(name)) else None
    for folder in _folders(os.environ.get("PATH", "") if path is None else path, root):
        for ending in _endings(name):
            program = folder / (name + ending)
            if _runs(program):
                return str(program)
    return None


def ask_program(
    command: list[str], *, timeout_s: float, strip: bool = True, **more: Any
) -> tuple[int, str]:
    """Run a command unattended; return its exit code and output, or -1 and what went wrong."""
    import subprocess  # most callers of this module look programs up and start none

    more |= {"stdin": subprocess.DEVNULL, "capture_output": True, "check": False}
    try:
        done = subprocess.run(command, timeout=timeout_s, **more)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return -1, str(error)
    output = done.stderr if done.returncode else done.stdout
    text = (output or done.stdout).decode(errors="replace")
    return done.returncode, text.strip() if strip else text


def _folders(path: str, root: Path | None) -> Iterator[Path]:
    project = root or _project_here()
    projects = [] if project is None else [project.resolve()]
    # If the project is the home folder or contains it, its programs are the person's own.
    home = Path("~").expanduser().resolve()
    projects = [one for one in projects if not home.is_relative_to(one)]
    # The folder of this Ralph is fine: whoever started it chose it.
    ours = Path(sys.executable).parent.resolve()
    for entry in path.split(os.pathsep):
        folder = Path(entry)
        if folder.is_absolute():
            real = folder.resolve()
            if real == ours or not any(real.is_relative_to(one) for one in projects):
                yield folder


def _project_here() -> Path | None:
    """Return the nearest folder, here or above, that looks like a project."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    for folder in (here, *here.parents):
        if any(os.path.lexists(folder / mark) for mark in _PROJECT_MARKS):
            return folder
    return None


def _endings(name: str) -> list[str]:
    """Return the endings that Windows tries for a name, "" first if it already has one of them."""
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
