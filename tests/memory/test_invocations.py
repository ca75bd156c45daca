"""Which commands did something in earlier sessions, and which failed."""

from __future__ import annotations

import pytest

from ralph.memory.invocations import HowTo, Invocation, answer_from, invocations
from ralph.records.conversation import Exchange, Message
from ralph.records.iteration import CheckRun, ErrorSeen


def exchange(
    day: int,
    *calls: tuple[str, str, bool],
    checks: tuple[tuple[str, bool], ...] = (),
    errors: tuple[ErrorSeen, ...] = (),
) -> Exchange:
    """An exchange that ran these commands: command, answer, and whether it failed."""
    return Exchange(
        conversation="c",
        completed=f"2026-11-{day:02}T10:00:00Z",
        id=f"{day:016}",
        checks=tuple(CheckRun(command, passed) for command, passed in checks),
        errors=errors,
        messages=tuple(
            Message("tool", f"{command}\n{answer}", "Bash", failed)
            for command, answer, failed in calls
        ),
    )


def asked(question: str, *exchanges: Exchange) -> HowTo:
    return answer_from(invocations(exchanges), question)


def commands(found: tuple[Invocation, ...]) -> list[str]:
    return [item.command for item in found]


TESTED = exchange(1, checks=(("make test", True), ("make lint", True)))


@pytest.mark.parametrize(
    ("question", "command"),
    [
        ("run the tests", "make test"),
        ("how do I run the test suite?", "make test"),
        ("lint", "make lint"),
        ("check the formatting", "make lint"),
        ("deploy", "./deploy.sh staging"),
        ("apply the migrations", "alembic upgrade head migrations"),
    ],
)
def test_a_question_finds_the_command_that_worked(question: str, command: str) -> None:
    other = exchange(
        2, ("./deploy.sh staging", "ok", False), ("alembic upgrade head migrations", "", False)
    )
    assert commands(asked(question, TESTED, other).worked) == [command]


def test_a_command_says_how_often_it_worked_and_when_last() -> None:
    found = asked("tests", TESTED, exchange(3, checks=(("make test", True),)), exchange(2))
    assert [(item.worked, item.last_worked[:10], item.id) for item in found.worked] == [
        (2, "2026-11-03", f"{3:016}")
    ]


def test_a_command_counts_once_an_exchange() -> None:
    calls = tuple(("./deploy.sh", "", False) for _ in range(3))
    assert asked("deploy", exchange(1, *calls)).worked[0].worked == 1


def test_what_failed_says_what_it_said() -> None:
    bad = exchange(2, ("rtk make test", "Exit code 2\nunrecognized subcommand 'make'", True))
    found = asked("run the tests", TESTED, bad)
    assert commands(found.worked) == ["make test"]
    assert [(item.command, item.failure) for item in found.failed] == [
        ("rtk make test", "unrecognized subcommand 'make'")
    ]


def test_a_check_that_failed_once_is_still_how_it_is_done() -> None:
    error = ErrorSeen("assert 1 == 2", "test")
    red = exchange(9, checks=(("make test", False),), errors=(error,))
    found = asked("tests", TESTED, exchange(2, checks=(("make test", True),)), red)
    assert commands(found.worked) == ["make test"]
    assert (found.worked[0].failed, found.worked[0].failure) == (1, "assert 1 == 2")


def test_a_hidden_exit_code_proves_nothing() -> None:
    assert not asked("deploy", exchange(1, ("./deploy.sh | tail -3", "", False))).worked
    assert not asked("deploy", exchange(1, ("./deploy.sh || true", "", False))).worked


def test_what_is_saved_in_git_is_not_how_it_is_done() -> None:
    commit = exchange(1, ("git commit -m 'Deploy the benchmark'", "", False))
    assert asked("deploy the benchmark", commit) == HowTo("deploy the benchmark")


def test_asking_a_program_for_help_is_no_way_to_do_it() -> None:
    assert not asked("deploy", exchange(1, ("./deploy.sh --help", "", False))).worked


def test_the_folder_that_a_command_needs_is_kept() -> None:
    found = asked("deploy", exchange(1, ("cd web && ./deploy.sh", "", False)))
    assert commands(found.worked) == ["cd web && ./deploy.sh"]
    assert commands(
        asked("deploy in web", exchange(1, ("cd web && ./deploy.sh", "", False))).worked
    )


def test_whole_checks_come_before_those_of_one_file() -> None:
    one = tuple((f"pytest tests/test_cart.py::test_{n}", True) for n in range(2))
    found = asked("tests", exchange(2, checks=one), exchange(1, checks=(("pytest", True),)))
    assert commands(found.worked)[0] == "pytest"


def test_a_check_without_a_command_is_no_answer() -> None:
    blank = exchange(1, checks=(("", True), (" ", True)))
    assert commands(asked("deploy the shop", blank).worked) == []
