"""SessionStart: rules, commands, open ends and sessions, in the order of what they are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hooking import Session

from ralph.clients.hook_settings import PLUGIN_FOLDER
from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.records.iteration import FileTouched
from ralph.text.tokens import estimate_tokens


def past(
    project: Path,
    folder: Path,
    day: int,
    prompt: str = "Look at the queue",
    *,
    writes: tuple[str, ...] = (),
    runs: tuple[tuple[str, str, bool], ...] = (),
    says: str = "The queue is looked at.",
) -> Session:
    """A session that ended on this day of November."""
    session = Session(project, folder, began=f"2026-11-{day:02}T10:00:00Z")
    session.prompts("Look at the queue")
    session.says("It is empty.")
    session.prompts(prompt)
    for path in writes:
        session.writes(path)
    for command, output, passed in runs:
        session.runs(command, output, failed=not passed)
    session.says(says)
    session.hook("stop", last_assistant_message="")
    return session


def text_of(project: Path, folder: Path) -> str:
    return Session(project, folder).hook("session-start", source="startup").context


def test_a_rule_of_a_person_is_told_in_their_words(project: Path, tmp_path: Path) -> None:
    past(project, tmp_path, 1, "Never push to main from a script.")
    past(project, tmp_path, 2, writes=("job.py",))

    text = text_of(project, tmp_path)

    assert '- 2026-11-01: "Never push to main from a script."' in text
    assert text.index("Never push") < text.index("The last sessions")


def test_a_remark_about_the_moment_is_no_rule_for_later_sessions(
    project: Path, tmp_path: Path
) -> None:
    past(project, tmp_path, 1, "no, i dont want you to add that", writes=("job.py",))
    past(project, tmp_path, 2, "we shouldn't need the icons at the bottom", writes=("job.py",))

    assert "icons" not in text_of(project, tmp_path).partition("The last sessions")[0]
    assert "add that" not in text_of(project, tmp_path).partition("The last sessions")[0]


def test_of_rules_that_say_the_opposite_the_newest_is_told(project: Path, tmp_path: Path) -> None:
    past(project, tmp_path, 1, "Always run the migrations in a transaction.")
    past(project, tmp_path, 2, "Never run the migrations in a transaction.")

    text = text_of(project, tmp_path)

    assert "Never run the migrations" in text
    assert "Always run the migrations" not in text


def test_a_rule_that_is_replaced_in_part_is_still_told(project: Path, tmp_path: Path) -> None:
    past(project, tmp_path, 1, "never run the migrations here, and use pnpm")
    past(project, tmp_path, 2, "from now on use yarn instead of pnpm")

    text = text_of(project, tmp_path)

    assert "never run the migrations here" in text
    assert text.index("use yarn instead of pnpm") < text.index("never run the migrations here")


def test_the_widest_command_that_passed_last_is_told_for_each_purpose(
    project: Path, tmp_path: Path
) -> None:
    passed = [("pytest -q", "12 passed", True), ("ruff check .", "All checks passed!", True)]
    past(project, tmp_path, 1, runs=(*passed,), writes=("job.py",))
    past(
        project,
        tmp_path,
        2,
        runs=(("pytest tests/test_job.py", "1 passed", True), ("pytest --version", "9.1", True)),
        writes=("job.py",),
    )

    text = text_of(project, tmp_path)

    assert "- test: `pytest -q`" in text
    assert "- lint: `ruff check .`" in text
    assert "test_job" not in text
    assert "--version" not in text


def test_a_check_that_fails_since_is_an_open_end_and_no_command_that_works(
    project: Path, tmp_path: Path
) -> None:
    past(project, tmp_path, 1, runs=(("make test", "3 passed", True),), writes=("job.py",))
    broken = "FAILED tests/test_job.py::test_it - assert 1 == 2\n1 failed"
    past(project, tmp_path, 2, runs=(("make test", broken, False),), writes=("job.py",))

    text = text_of(project, tmp_path)

    assert "- `make test` failed on 2026-11-02, and has not passed since" in text
    assert "- test: `make test`" not in text

    past(project, tmp_path, 3, runs=(("make test", "3 passed", True),), writes=("job.py",))

    text = text_of(project, tmp_path)

    assert "has not passed since" not in text
    assert "- test: `make test`" in text


def test_a_check_that_failed_three_sessions_ago_is_no_open_end(
    project: Path, tmp_path: Path
) -> None:
    broken = "FAILED tests/test_job.py::test_it - assert 1 == 2\n1 failed"
    past(project, tmp_path, 1, runs=(("make test", broken, False),), writes=("job.py",))
    past(project, tmp_path, 2, writes=("job.py", "bank.py"))
    assert "has not passed since" in text_of(project, tmp_path)

    past(project, tmp_path, 3, writes=("job.py", "bank.py"))

    assert "has not passed since" not in text_of(project, tmp_path)


def test_a_command_with_a_path_of_this_one_call_is_not_told(project: Path, tmp_path: Path) -> None:
    past(
        project,
        tmp_path,
        1,
        runs=(
            ("make test", "3 passed", True),
            ("APP_BIN=/nonexistent/app make e2e-test", "3 skipped", True),
            ("CI=1 npm run lint", "no problems", True),
        ),
        writes=("job.py",),
    )

    text = text_of(project, tmp_path)

    assert "- test: `make test`" in text
    assert "- lint: `CI=1 npm run lint`" in text
    assert "nonexistent" not in text


def test_what_has_to_be_reverted_before_the_release_is_told(project: Path, tmp_path: Path) -> None:
    words = "Set the retries to 0. It is meant to be reverted back to 3 before release."
    past(project, tmp_path, 1, words, writes=("job.py",))

    text = text_of(project, tmp_path)

    assert "Open ends:" in text
    assert "reverted back to 3 before release" in text


def test_sessions_that_changed_nothing_or_one_page_are_not_told(
    project: Path, tmp_path: Path
) -> None:
    past(project, tmp_path, 1, "Explain the queue")
    past(project, tmp_path, 2, "Change the last line of the readme", writes=("README.md",))

    assert text_of(project, tmp_path) == ""


def stopped(project: Path, day: int, asked: str, file: str) -> None:
    """A session that a person stopped in the middle of its work."""
    talk = conversation_id("claude-code", asked)
    at = f"2026-11-{day:02}T10:00:00Z"
    exchange = Exchange(
        id=exchange_id(talk, "1"),
        conversation=talk,
        user=asked,
        assistant="I am half way.",
        status="interrupted",
        started=at,
        completed=at,
        files_touched=(FileTouched(file, "modified"),),
    )
    with open_ralph(project, embedder="none") as ralph:
        ralph.conversations.add(Conversation(id=talk, title=asked, created=at), [exchange])


def test_besides_the_last_session_only_stopped_ones_with_the_same_files_are_told(
    project: Path, tmp_path: Path
) -> None:
    past(project, tmp_path, 1, "Cache the bank", writes=("bank.py",), says="The bank is cached.")
    stopped(project, 2, "Close the bank at six", "bank.py")
    stopped(project, 3, "Draw the logo", "logo.py")
    past(project, tmp_path, 4, "Speed the bank up", writes=("bank.py",), says="The bank is fast.")

    text = text_of(project, tmp_path)

    assert text.index("The bank is fast.") < text.index("Close the bank at six")
    assert "It was not finished." in text
    assert "logo" not in text
    assert "cached" not in text


def test_a_session_that_was_stopped_long_before_the_last_one_is_not_told(
    project: Path, tmp_path: Path
) -> None:
    stopped(project, 1, "Close the bank at six", "bank.py")
    for day in (2, 3, 4):
        past(project, tmp_path, day, "Paint the bank", writes=("paint.py", f"wall{day}.py"))
    past(project, tmp_path, 5, "Speed the bank up", writes=("bank.py",), says="The bank is fast.")

    text = text_of(project, tmp_path)

    assert "The bank is fast." in text
    assert "at six" not in text


@pytest.mark.parametrize("source", ["resume", "fork"])
def test_a_resumed_session_is_not_told_what_was_said_in_it(
    project: Path, tmp_path: Path, source: str
) -> None:
    past(project, tmp_path, 1, "Cache the bank", writes=("bank.py",), says="The bank is cached.")
    mine = past(project, tmp_path, 2, "Draw the logo", writes=("logo.py",), says="It is drawn.")

    resumed = mine.hook("session-start", source=source).context
    other = Session(project, tmp_path).hook("session-start", source=source).context

    assert "It is drawn." not in resumed
    assert "The bank is cached." in resumed
    assert "It is drawn." in other


def test_a_forked_session_is_a_start() -> None:
    hooks = json.loads((PLUGIN_FOLDER / "hooks" / "hooks.json").read_text(encoding="utf-8"))

    [group] = hooks["hooks"]["SessionStart"]
    assert "fork" in group["matcher"].split("|")


def test_the_budget_holds_for_many_rules_and_long_commands(project: Path, tmp_path: Path) -> None:
    for number in range(8):
        rule = f"Never touch module{number} of the {'long ' * 20}path{number} by hand."
        past(
            project,
            tmp_path,
            number + 1,
            rule,
            writes=("job.py",),
            runs=((f"make test-{number} {'x' * 60}", "1 passed", True),),
        )

    text = text_of(project, tmp_path)

    assert estimate_tokens(text) <= 500
    assert "module7" in text


def test_a_command_that_the_last_ten_sessions_did_not_run_is_not_told(
    project: Path, tmp_path: Path
) -> None:
    past(project, tmp_path, 1, runs=(("pytest -q", "12 passed", True),), writes=("job.py",))
    assert "`pytest -q`" in text_of(project, tmp_path)
    for day in range(2, 12):
        past(project, tmp_path, day, runs=(("npm run build", "built", True),), writes=("job.js",))

    text = text_of(project, tmp_path)

    assert "- build: `npm run build`" in text
    assert "pytest" not in text
