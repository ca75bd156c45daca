"""What `doctor` asks git: whether two branches' journals would merge, and travel at all."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from ralph.doors.cli.checks import Check
from ralph.programs import find_program

if TYPE_CHECKING:
    from ralph.memory.project import Project

_TIMEOUT_S = 10.0
_ANY_JOURNAL = "any.jsonl"


def git(project: Project) -> Check:
    """Git merges journals line by line, and does not ignore them."""
    program = find_program("git", root=project.root)
    if program is None:
        todo = "Install git, if the project is kept in it."
        return Check("git", "warning", "there is no git to ask", todo)
    path = project.journals / _ANY_JOURNAL
    code, told = _ask(program, project, "rev-parse", "--is-inside-work-tree")
    if code != 0 and "not a git repository" in told:
        return Check("git", "ok", "the project is not kept in git")
    if code != 0:
        return Check("git", "warning", told.splitlines()[0] if told else "git does not answer")
    _, merge = _ask(program, project, "check-attr", "merge", "--", str(path))
    if not merge.endswith("merge: union"):
        detail = "two branches' journals would conflict: merge=union is not in effect"
        file = project.journals.relative_to(project.root).as_posix() + "/.gitattributes"
        return Check("git", "problem", detail, f"Put into {file}: *.jsonl merge=union")
    ignored, _ = _ask(program, project, "check-ignore", "--quiet", "--", str(path))
    if ignored == 0:
        todo = "Take .ralph/db out of .gitignore."
        return Check("git", "warning", "the journal is ignored and does not travel", todo)
    return Check("git", "ok", "journals merge by union")


def _ask(program: str, project: Project, *words: str) -> tuple[int, str]:
    try:
        asked = subprocess.run(
            # What a copied .git/config may name as a program of git's is not started.
            [program, "-C", str(project.root), "-c", "core.fsmonitor=false", *words],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    told = asked.stdout if asked.returncode == 0 else asked.stderr
    return asked.returncode, told.decode(errors="replace").strip()
