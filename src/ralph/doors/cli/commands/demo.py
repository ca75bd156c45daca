"""`ralph demo`: the real loop in a temporary project, with an agent that plays a script."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from shlex import quote

import click

from ralph import disk
from ralph.doors.cli.context import flag
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page

_FEATURE = "slugs"


@click.command(cls=Command, json=False)
@flag("--keep", "Keep the project afterwards.")
def demo(keep: bool) -> int:
    """Run the loop with a scripted agent in a temporary project.

    The agent plays a script instead of asking a model; everything else is the real loop. Nothing
    is written outside a temporary directory.

    \b
    Examples:
      ralph demo
      ralph demo --keep
    """
    page = Page()
    with _scratch(keep=keep) as folder:
        code = _DemoStory(page, folder / "project").tell()
    page.line()
    if keep:
        page.line(f"Kept in {folder / 'project'}")
    else:
        page.line("The temporary project is deleted.")
    return code


class _DemoStory:
    """The commands a person would type, in order."""

    def __init__(self, page: Page, project: Path) -> None:
        self._page = page
        self._project = project

    def tell(self) -> int:
        """A plan of two tasks; the first attempt fails, and the next ones know it."""
        script = _unpacked(self._project)
        os.chdir(self._project)
        agent = f"{quote(sys.executable)} -P -m ralph.loop.scripted {quote(str(script))}"
        asked = ("search", "why did accented titles fail?", "--feature", _FEATURE)
        try:
            self._say("A small project with two tasks; the second waits for the first.")
            self._type("init")
            self._type("plan", "import", "plan.md")
            self._type("task", "update", "2", "--blocked-by", "1")
            self._say(
                "The loop. The first attempt fails, and the journal records why. The next prompt"
                " includes it, the agent searches its memory and gets it right; the task after"
                " that begins with what was learned."
            )
            self._type("run", "--agent", agent, shown="run --agent SCRIPTED")
            self._say("What is in memory now: the timeline, the learnings, a search.")
            self._type("recent")
            self._type("learning", "list", "--feature", _FEATURE)
            self._type(*asked)
            self._say("The journal is the source of truth: without the index, the same answer.")
            shutil.rmtree(disk.state_folder(self._project))
            self._type(*asked, "--limit", "1")
        except _CommandFailed as failure:
            return failure.code
        return 0

    def _say(self, text: str) -> None:
        self._page.line()
        self._page.line((text, "bold"))

    def _type(self, *words: str, shown: str | None = None) -> None:
        from ralph.doors.cli.main import run

        self._page.line()
        line = shown or " ".join(f'"{word}"' if " " in word else word for word in words)
        self._page.line(("$ ", "dim"), (f"ralph {line}", "bold cyan"))
        sys.stdout.flush()
        if code := run(words):
            raise _CommandFailed(code)


class _CommandFailed(Exception):
    """A command failed; it has printed why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _unpacked(project: Path) -> Path:
    """The project's files and the agent's script, as they come with the package."""
    source = files("ralph.loop") / "scripts" / "demo.json"
    text = source.read_text(encoding="utf-8")
    project.mkdir(parents=True)
    for name, content in json.loads(text)["files"].items():
        (project / name).write_text(content, encoding="utf-8")
    script = project.parent / "script.json"
    script.write_text(text, encoding="utf-8")
    return script


@contextlib.contextmanager
def _scratch(*, keep: bool) -> Iterator[Path]:
    """A directory for everything, with a home of its own; no other settings or project apply."""
    folder = Path(tempfile.mkdtemp(prefix="ralph-demo-")).resolve()
    before = {name: value for name, value in os.environ.items() if name.startswith("RALPH_")}
    here = _here()
    for name in before.keys() - {"RALPH_DEBUG"}:
        del os.environ[name]
    os.environ["RALPH_HOME"] = str(folder / "home")
    try:
        yield folder
    finally:
        os.chdir(here or folder.parent)
        del os.environ["RALPH_HOME"]
        os.environ.update(before)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _here() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # the current directory was deleted
        return None
