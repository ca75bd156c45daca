"""Fixes that hold in other projects, too: a tool's identical error, and only a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from hooking import Session, log

from ralph.config import store
from ralph.memory import keeping
from ralph.memory.general_fixes import general_fix
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph

MESSAGE = "error: unknown flag: --no-pager for entire git status"
OPTION = "git: unknown option '--no-color-moved'. See 'git --help'."
ERROR = f"Exit code 129\nerror: {OPTION}"


@pytest.mark.parametrize(
    ("message", "resolution", "fix"),
    [
        (OPTION, "`git status` instead of `git status --no-color-moved` passed.", "git status"),
        (
            "uv: unrecognized subcommand 'instal' of uv",
            "`uv sync` instead of `uv instal` passed.",
            "uv sync",
        ),
        # An edit, a path, a name of the project, a placeholder, a program of the project.
        (OPTION, "Edited Makefile: -a +b; then `make` passed.", None),
        (OPTION, "`git -C /home/bob/acme status` instead of `git status` passed.", None),
        (OPTION, "`git push acme-secret` instead of `git status` passed.", None),
        (
            "git: file 17 of 20 in /srv/acme: broken",
            "`git status` instead of `git x` passed.",
            None,
        ),
        ("acme: unknown option '--fast'", "`acme run` instead of `acme --fast` passed.", None),
        ("it failed", "`git status` instead of `git x` passed.", None),
    ],
)
def test_what_holds_elsewhere(message: str, resolution: str, fix: str | None) -> None:
    found = general_fix(message, resolution)
    assert (found and found[1]) == fix


def project(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    Project(folder).init()
    return folder


def learned(root: Path, tmp_path: Path) -> None:
    """A session in which git gets past an error."""
    session = Session(root, tmp_path)
    session.prompts("what changed?")
    session.runs("git status --no-color-moved", ERROR, failed=True)
    session.runs("git status", "nothing to commit, working tree clean")
    session.says("Nothing changed.")
    session.hook("stop", last_assistant_message="Nothing changed.")


def told(root: Path, tmp_path: Path, error: str = ERROR) -> tuple[Session, str]:
    session = Session(root, tmp_path)
    return session, fails(session, error)


def fails(session: Session, error: str = ERROR) -> str:
    return session.hook(
        "post-tool-use-failure",
        hook_event_name="PostToolUseFailure",
        tool_name="Bash",
        tool_input={"command": "git status --no-color-moved"},
        error=error,
    ).context


def test_another_project_is_told_the_command_once_and_nothing_else(tmp_path: Path) -> None:
    first = project(tmp_path, "acme-billing")
    learned(first, tmp_path)
    second = project(tmp_path, "other")

    session, text = told(second, tmp_path)

    assert "from another project of this person" in text
    assert "What got past it on 2026-11-02: `git status`" in text
    assert "acme" not in text
    assert fails(session) == ""
    assert log(second) == []


def test_an_error_with_other_words_is_not_told(tmp_path: Path) -> None:
    learned(project(tmp_path, "first"), tmp_path)
    error = ERROR.replace("--no-color-moved", "--no-color-moved-ws")
    assert told(project(tmp_path, "second"), tmp_path, error)[1] == ""


@pytest.mark.parametrize(
    ("side", "key"), [("first", "knowledge_give"), ("second", "knowledge_receive")]
)
def test_each_side_can_opt_out(tmp_path: Path, side: str, key: str) -> None:
    roots = {name: project(tmp_path, name) for name in ("first", "second")}
    store(roots[side] / ".ralph" / "rag_config.json", key, "false")
    learned(roots["first"], tmp_path)
    assert told(roots["second"], tmp_path)[1] == ""


def test_what_was_forgotten_is_not_told_elsewhere(tmp_path: Path) -> None:
    first = project(tmp_path, "first")
    learned(first, tmp_path)
    with open_ralph(first) as ralph:
        [hit] = ralph.recent(5)
        keeping.forget(ralph, keeping.choose(ralph, ids=[hit.id]))
    assert told(project(tmp_path, "second"), tmp_path)[1] == ""


# -- Assertions that show only values.


UNITTEST = """Exit code 1
F
======================================================================
FAIL: test_total (tests.test_cart.CartTest.test_total)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "{root}/tests/test_cart.py", line 9, in test_total
    self.assertEqual(total([0.1, 0.2]), {value})
AssertionError: {value} != 0.3

FAILED (failures=1)"""
NODE = """Exit code 1
\u2716 due date of an invoice (1.2ms)
  AssertionError [ERR_ASSERTION]: '{value}' == '2026-01-15'
      at TestContext.<anonymous> (file://{root}/test/invoice.test.js:5:10)
"""


@pytest.mark.parametrize(
    ("command", "output", "values"),
    [
        ("python -m unittest", UNITTEST, ("0.30000000000000004", "0.4")),
        ("node --test", NODE, ("2026-01-31", "2026-02-01")),
    ],
)
def test_an_assertion_of_values_is_recognized_by_its_test(
    tmp_path: Path, command: str, output: str, values: tuple[str, str]
) -> None:
    root = project(tmp_path, "shop")
    session = Session(root, tmp_path)
    session.prompts("fix the test")
    session.runs(command, output.format(root=root, value=values[0]), failed=True)
    file = str(root / "shop.py")
    change = {"file_path": file, "old_string": "x = 30 * 24", "new_string": "x = 14 * 24"}
    session.uses("Edit", change, f"The file {file} has been updated.")
    session.runs(command, "1 passed")
    session.says("It passes now.")
    session.hook("stop", last_assistant_message="It passes now.")
    again = Session(root, tmp_path)

    def fails_with(text: str) -> str:
        return again.hook(
            "post-tool-use-failure",
            hook_event_name="PostToolUseFailure",
            tool_name="Bash",
            tool_input={"command": command},
            error=text,
        ).context

    other = output.replace("test_total", "test_sum").replace("due date", "tax")
    assert fails_with(other.format(root=root, value=values[1])) == ""
    assert "shop.py" in fails_with(output.format(root=root, value=values[1]))
