"""PostToolUseFailure: an error that was solved before is told with its solution; else nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hooking import FIXTURES, Session, exchanges, hook, log
from remembering import made

from ralph.memory.lessons import solved
from ralph.memory.ralph import Ralph, open_ralph
from ralph.records.iteration import ErrorSeen

COMMAND = "python -m pytest tests/test_db.py"
FAILED = (
    "Exit code 1\nTraceback (most recent call last):\n"
    '  File "/srv/app/db.py", line 41, in connect\n'
    "psycopg.OperationalError: connection to port 5432 refused by db-17"
)
MET = ErrorSeen("psycopg.OperationalError: connection to port 5433 refused by db-3", "runtime")
SOLVED = msgspec.structs.replace(MET, resolution="started the database with docker")


def failed(session: Session, error: str = FAILED, **more: Any) -> str:
    given: dict[str, Any] = {
        "tool_name": "Bash",
        "tool_input": {"command": COMMAND},
        "error": error,
        **more,
    }
    asked = session.hook("post-tool-use-failure", **given)
    if asked.out:
        assert asked.said["hookEventName"] == "PostToolUseFailure"
    return asked.context


def remember(project: Path, **fields: Any) -> None:
    with open_ralph(project, embedder="none") as ralph:
        ralph.feature("db").remember(made(**fields))


def test_an_error_that_was_never_met_is_noted_and_nothing_is_said(
    project: Path, tmp_path: Path, home: Path
) -> None:
    session = Session(project, tmp_path)

    assert failed(session) == ""

    assert log(project) == []
    [note] = home.glob(f"cache/hooks/*/sessions/{session.name}.jsonl")
    assert "OperationalError: connection to port 5432 refused" in note.read_text(encoding="utf-8")


def test_how_an_error_was_solved_is_said_when_the_record_has_it(
    project: Path, tmp_path: Path
) -> None:
    remember(project, summary="The tests could not connect.", errors=(SOLVED,), outcome="unknown")

    text = failed(Session(project, tmp_path))

    assert "Seen once before, last on 2026-02-07: psycopg.OperationalError" in text
    assert "How it was solved (feature db, iteration 1, id " in text
    assert "started the database with docker" in text


@pytest.mark.parametrize(
    ("outcome", "task_id"), [("success", 7), ("success", 8), ("failure", 7), ("unknown", 7)]
)
def test_nothing_is_said_without_a_solution_that_is_proven(
    project: Path, tmp_path: Path, outcome: str, task_id: int
) -> None:
    """A task that got done later, whatever its summary says, proves nothing about this error."""
    remember(project, summary="Tried another port.", errors=(MET,), outcome="failure", task_id=7)
    remember(project, summary="Something else.", outcome=outcome, task_id=task_id)

    assert failed(Session(project, tmp_path)) == ""


def test_it_is_counted_how_often_an_error_came(project: Path, tmp_path: Path) -> None:
    for number in range(3):
        remember(
            project,
            summary=f"Try {number}.",
            errors=(MET if number else SOLVED,),
            outcome="failure",
        )

    text = failed(Session(project, tmp_path))

    assert "Seen 3 times before, last on 2026-02-07" in text
    assert "How it was solved (feature db, iteration 1" in text


def test_a_solution_from_another_conversation_is_told(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Run the tests")
    earlier.runs(COMMAND, FAILED, failed=True)
    earlier.runs("docker start db", "db")
    earlier.runs(COMMAND, "3 passed")
    earlier.says("The database was down; after starting it the tests pass.")
    earlier.hook("stop", last_assistant_message="")
    [exchange] = exchanges(project)
    assert exchange.errors[0].resolution

    text = failed(Session(project, tmp_path))

    assert "How it was solved (a conversation" in text
    assert "docker start db" in text


def test_the_same_is_not_said_twice_in_a_session(project: Path, tmp_path: Path) -> None:
    remember(project, summary="No luck.", errors=(SOLVED,), outcome="failure", task_id=7)
    session = Session(project, tmp_path)

    assert "Seen once before" in failed(session)
    assert failed(session) == ""
    assert "Seen once before" in failed(Session(project, tmp_path))


def test_the_answer_to_an_error_does_not_count_as_said_with_the_prompt(
    project: Path, tmp_path: Path
) -> None:
    remember(
        project, summary="The pytest of the database failed.", errors=(SOLVED,), outcome="failure"
    )
    session = Session(project, tmp_path)
    asked = session.hook("user-prompt-submit", prompt="psycopg OperationalError connection refused")
    assert "psycopg.OperationalError" in asked.context

    assert "Seen once before" in failed(session)


def test_what_the_client_really_gives_is_understood(project: Path, tmp_path: Path) -> None:
    recorded = (FIXTURES.parent / "hooks" / "post_tool_use_failure.json").read_text("utf-8")
    message = "ModuleNotFoundError: No module named 'nosuchthing_xyz'"
    met = ErrorSeen(message, "runtime", resolution="installed it")
    remember(project, summary="Tried it.", errors=(met,), outcome="failure")

    asked = hook(
        "PostToolUseFailure",
        recorded.replace("/home/dev/shop", str(project)).encode(),
        cwd=tmp_path,
    )

    assert "No module named 'nosuchthing_xyz'" in asked.context


@pytest.mark.parametrize(
    ("error", "more"),
    [
        ("", {}),
        ("Exit code 1", {"tool_input": {"command": "grep -q nothing file"}}),
        (FAILED, {"is_interrupt": True}),
        ("The user doesn't want to proceed with this tool use.", {}),
    ],
)
def test_what_is_no_error_is_not_looked_up(
    project: Path, tmp_path: Path, error: str, more: dict[str, object]
) -> None:
    remember(project, summary="No luck.", errors=(SOLVED,), outcome="failure")
    remember(project, summary="None.", errors=(ErrorSeen("Exit code 1"),), outcome="failure")

    assert failed(Session(project, tmp_path), error, **more) == ""


def test_other_tools_fail_too(project: Path, tmp_path: Path) -> None:
    message = "mcp__speech__say: Unknown voice 'rachel'. Available: adam, alice"
    fixed = ErrorSeen(message, "unknown", None, None, "say it with voice alice")
    remember(project, summary="A tool failed.", errors=(fixed,), outcome="unknown")

    text = failed(
        Session(project, tmp_path),
        "Unknown voice 'rachel'. Available: adam, alice",
        tool_name="mcp__speech__say",
        tool_input={"text": "hello"},
    )

    assert "say it with voice alice" in text


def test_a_stumble_of_the_clients_own_tools_is_answered_with_nothing(
    project: Path, tmp_path: Path
) -> None:
    text = failed(
        Session(project, tmp_path),
        "String to replace not found in file: return True",
        tool_name="Edit",
        tool_input={"file_path": str(project / "a.py"), "old_string": "x", "new_string": "y"},
    )

    assert text == ""


def test_secrets_are_noted_nowhere(project: Path, tmp_path: Path, home: Path) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20

    failed(Session(project, tmp_path), f"Exit code 1\nError: invalid key {key} for the service")

    found = [
        file for file in home.rglob("*") if file.is_file() and key in file.read_text("latin-1")
    ]
    assert found == []


def test_it_answers_inside_the_loop_and_keeps_nothing_there(
    project: Path, tmp_path: Path, home: Path
) -> None:
    remember(project, summary="No luck.", errors=(SOLVED,), outcome="failure")
    session = Session(project, tmp_path)

    asked = session.hook(
        "post-tool-use-failure",
        environ={"RALPH_FEATURE": "db"},
        tool_name="Bash",
        tool_input={"command": COMMAND},
        error=FAILED,
    )

    assert "Seen once before" in asked.context
    assert not list(home.glob("cache/hooks/*/sessions/*"))


def test_no_embedder_is_loaded(memory: Ralph) -> None:
    memory.feature("db").remember(made("No luck.", errors=(SOLVED,), outcome="failure"))
    memory.store.embedder.off = True  # type: ignore[union-attr]

    found = solved(memory, MET.message)

    assert found is not None
    assert (found.times, found.solution) == (1, SOLVED.resolution)
    assert solved(memory, "ValueError: nobody has ever seen this one") is None


def test_that_some_file_is_not_there_says_nothing_about_another(
    project: Path, tmp_path: Path
) -> None:
    made_it = ("cat: a/one.txt: No such file or directory", "wrote a/one.txt")
    met = ErrorSeen(made_it[0], "runtime", None, None, made_it[1])
    remember(project, summary="One was missing.", errors=(met,), outcome="unknown")

    other = "Exit code 1\ncat: b/two.txt: No such file or directory"
    assert failed(Session(project, tmp_path), other, tool_input={"command": "cat b/two.txt"}) == ""
