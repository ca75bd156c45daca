"""Long output in a real terminal goes through the pager, and nowhere else."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from commanding import Line, process
from terminal import LONG_S, at_terminal

pytestmark = [
    pytest.mark.usefixtures("words"),
    pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX"),
]
# A pager that says that it was used.
MARKING = "sed s/^/paged:/"


@pytest.fixture
def long_memory(ralph: Line, project: Path) -> Path:
    """A project with more than a screen of records."""
    ralph.record("auth", *({"task_title": f"Task {n}", "summary": "Did it."} for n in range(12)))
    return project


def seen(project: Path, *words: str, pager: str = MARKING, rows: int = 12) -> str:
    environ = {"PAGER": pager, "RALPH_EMBEDDER": "none"}
    with at_terminal(words, cwd=project, rows=rows, environ=environ) as (command, screen):
        shown = screen.until("\0")
        assert command.wait(timeout=LONG_S) == 0
    return shown


def test_what_is_longer_than_the_screen_is_paged(long_memory: Path) -> None:
    shown = seen(long_memory, "recent")

    assert shown.count("paged:") > 12
    assert "Task 11" in shown
    assert "\x1b[" not in shown  # only less is known to show colors


def test_what_fits_on_the_screen_is_not(long_memory: Path) -> None:
    shown = seen(long_memory, "recent", rows=100)

    assert "paged:" not in shown
    assert "\x1b[36m" in shown


@pytest.mark.parametrize("words", ["recent --no-pager", "--no-pager recent", "recent --json"])
def test_it_is_switched_off_by_an_option(long_memory: Path, words: str) -> None:
    shown = seen(long_memory, *words.split())

    assert "paged:" not in shown
    assert "Task 11" in shown


@pytest.mark.parametrize("pager", ["", "cat", "no-such-program-anywhere"])
def test_it_is_switched_off_by_the_environment(long_memory: Path, pager: str) -> None:
    shown = seen(long_memory, "recent", pager=pager)

    assert "Task 11" in shown
    assert "\x1b[36m" in shown


def test_a_pipe_gets_it_all_without_a_pager(long_memory: Path) -> None:
    ran = process(["recent"], cwd=long_memory, environ={"PAGER": MARKING, "RALPH_EMBEDDER": "none"})

    assert b"paged:" not in ran.stdout
    assert b"Task 11" in ran.stdout


@pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
def test_less_shows_colors_and_quits_with_q(long_memory: Path) -> None:
    environ = {"RALPH_EMBEDDER": "none"}
    with at_terminal(["recent"], cwd=long_memory, rows=12, environ=environ) as (command, screen):
        shown = screen.until(":")
        screen.press("q", "\0")
        assert command.wait(timeout=LONG_S) == 0

    assert "\x1b[36m" in shown


@pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
def test_a_pager_that_lies_in_the_project_is_not_started(long_memory: Path) -> None:
    fake = long_memory / "less"
    fake.write_text("#!/bin/sh\necho HIJACKED\n", encoding="utf-8")
    fake.chmod(0o755)
    path = os.pathsep.join(["", ".", str(long_memory), os.environ["PATH"]])

    environ = {"RALPH_EMBEDDER": "none", "PATH": path}
    with at_terminal(["recent"], cwd=long_memory, rows=12, environ=environ) as (command, screen):
        shown = screen.until(":")
        shown += screen.press("q", "\0")
        assert command.wait(timeout=LONG_S) == 0

    assert "HIJACKED" not in shown
    assert "Task 11" in shown


def test_a_pager_that_cannot_be_read_is_none(long_memory: Path) -> None:
    assert "Task 11" in seen(long_memory, "recent", pager="'")
