"""`ralph prompt` and `ralph focus`: looking at a prompt, and saying what one works on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commanding import LOGIN, Line, Terminal
from remembering import state_of

FEATURES = """\
features:
  - name: auth
    description: Sign-in for customers of the shop.
    context_files: [gone.py]
    learnings: [Sessions expire after an hour.]
"""
TASKS = "tasks: [{id: 1, feature: auth, title: Build the login form}]\n"


@pytest.fixture
def ralph(words: None, ralph: Line, project: Path) -> Line:
    (project / ".ralph/db/features.yaml").write_text(FEATURES, encoding="utf-8")
    (project / ".ralph/db/tasks.yaml").write_text(TASKS, encoding="utf-8")
    return ralph


# -- prompt


def test_the_text_is_on_stdout_and_its_tokens_in_a_table_on_stderr(ralph: Line) -> None:
    ran = ralph.well("prompt", "1")

    assert "# Your task: 1, Build the login form" in ran.out
    head, *rows, total = ran.err.splitlines()
    assert head == "section    tokens"
    assert [row.split()[0] for row in rows] == [
        *("feature", "task", "report", "memory", "learnings", "files")
    ]
    assert all(re.fullmatch(r"[a-z]+ +\d+", row) and len(row) == len(head) for row in rows)
    assert re.fullmatch(r"all +\d+  of 12000", total)


def test_a_prompt_as_programs_read_it(ralph: Line) -> None:
    plain = ralph.well("prompt", "1").out

    ran = ralph.well("prompt", "1", "--json")

    told = ran.json
    assert set(told) == {"text", "tokens", "budget_tokens", "sections"}
    assert told["text"] == plain
    assert told["budget_tokens"] == 12000
    assert told["sections"][0] == {
        "name": "feature",
        "tokens": told["sections"][0]["tokens"],
        "left_out": None,
    }
    assert ran.err == ""


def test_what_finds_no_room_is_told_with_its_reason(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_PROMPT_TOKENS", "500")
    ralph.record("auth", *({**LOGIN, "task_id": 1, "summary": "word " * 400} for _ in range(1)))

    ran = ralph.well("prompt", "1")

    [row] = [row for row in ran.err.splitlines() if row.startswith("attempts")]
    assert row.endswith("  left out: over the budget of 500 tokens")
    assert "Earlier attempts" not in ran.out


def test_f4_looking_at_a_prompt_leaves_the_plan_as_it_is(ralph: Line, project: Path) -> None:
    first = ralph.well("prompt", "1").out

    assert "[STALE: gone.py" in first
    assert (project / ".ralph/db/features.yaml").read_text(encoding="utf-8") == FEATURES
    assert ralph.well("prompt", "1").out == first
    assert not (state_of(project) / "plan/lock").exists()


def test_the_prompt_of_a_review_can_be_looked_at(ralph: Line) -> None:
    ran = ralph.well("prompt", "1", "--review")

    assert "# Review of the feature auth" in ran.out
    assert "Sessions expire after an hour." in ran.out
    assert "# Your task" not in ran.out
    assert any(row.startswith("review ") for row in ran.err.splitlines())
    sections = ralph.well("prompt", "1", "--review", "--json").json["sections"]
    assert [one["name"] for one in sections] == ["feature", "review", "memory", "files"]


def test_earlier_attempts_are_in_the_prompt(ralph: Line) -> None:
    ralph.record("auth", {**LOGIN, "task_id": 1, "outcome": "failure"})

    assert "validation of empty passwords" in ralph.well("prompt", "1").out


def test_a_terminal_is_not_commanded_by_what_was_remembered(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "notes.md").write_text("clear\x1b[2Jscreen\n", encoding="utf-8")
    ralph.well("feature", "update", "auth", "--knowledge-path", "notes.md")
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)

    ralph.well("prompt", "1")

    assert "clear" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


# -- focus


def test_a_focus_is_set_shown_and_cleared(ralph: Line) -> None:
    assert ralph.well("focus").out == "No focus. Set one: ralph focus FEATURE [TASK]\n"
    assert ralph.well("focus", "--json").json is None
    assert ralph.well("focus", "auth", "1").out == "Focus: auth, task 1\n"
    assert ralph.well("focus", "--json").json == {"feature": "auth", "task_id": 1}
    assert ralph.well("focus", "not planned", "T-7", "--new", "--json").json == {
        "feature": "not planned",
        "task_id": "T-7",
    }
    assert ralph.well("focus", "auth").out == "Focus: auth\n"
    assert ralph.well("focus", "--clear").out == "No focus now.\n"
    assert ralph.well("focus", "--clear", "--json").json is None


def test_a_feature_that_cannot_be_is_no_focus(ralph: Line) -> None:
    ran = ralph("focus", " ")

    assert ran.code == 1
    assert ran.complaint == "ralph: the name is empty. Give the feature a name."


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'{"feature": 7}', b'{"task_id": 1}', b'{"feature": ""}', b"[]"]
)
def test_a_damaged_focus_is_one_clear_line_and_can_be_cleared(
    ralph: Line, project: Path, data: bytes
) -> None:
    ralph.well("focus", "auth")
    file = state_of(project) / "focus.json"
    file.write_bytes(data)

    ran = ralph("focus")

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {file}: the focus cannot be read (")
    assert ran.complaint.endswith("Run: ralph focus --clear")
    assert ralph("record", stdin='{"summary": "x"}').complaint == ran.complaint
    assert ralph.well("focus", "--clear").code == 0
    file.write_bytes(data)
    assert ralph.well("focus", "auth").out == "Focus: auth\n"
