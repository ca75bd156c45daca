"""The commands that test, lint, build or run a project, and how they went."""

from __future__ import annotations

from typing import Any

import pytest
from capturing import INIT, bash, ended, run

from ralph.capture.checks import breadth, purpose_of_command

PURPOSES = {
    "go test ./...": "test",
    "npm run test:unit": "test",
    "uv run pytest -q": "test",
    "./scripts/run-tests": "test",
    "python manage.py test": "test",
    "npx tsc --noEmit": "lint",
    "cargo clippy": "lint",
    "go vet -tags e2e ./...": "lint",
    "make -C web test": "test",
    "uv run ruff check src": "lint",
    "prettier --check .": "lint",
    "npm run build": "build",
    "make": "build",
    "docker build .": "build",
    "npm run dev": "run",
    "go run ./cmd/server": "run",
    "docker compose up -d": "run",
    "git push": None,
    "gh pr checks 18": None,
    "npm install": None,
    "ls tests": None,
    "workmux capture av-raf-5-review-e2e": None,
    "cat build/out.txt": None,
}
BREADTHS = {
    "go test ./...": 0,
    "pytest tests": 0,
    "npm run lint": 0,
    "go test ./pkg/store/...": 1,
    "go test ./pkg/store -run TestX": 2,
    "pytest tests/test_a.py": 2,
    "cargo test test_rebase_revset": 2,
    "npm run lint:fix": 2,
    "npx jest --testPathPattern=email": 2,
}


@pytest.mark.parametrize("command", PURPOSES)
def test_purpose_of_a_command(command: str) -> None:
    assert purpose_of_command(command) == PURPOSES[command]


@pytest.mark.parametrize("command", BREADTHS)
def test_a_check_of_the_project_is_broader_than_one_of_a_file(command: str) -> None:
    assert breadth(command) == BREADTHS[command]


def checks(*lines: dict[str, Any]) -> list[tuple[str, bool]]:
    captured = run(INIT, *lines, ended())
    return [(one.command, one.passed) for one in captured.checks]


def test_the_last_result_of_each_check_is_kept() -> None:
    found = checks(
        *bash("pytest -q", "1 failed", error=True),
        *bash("ruff check .", "All checks passed!"),
        *bash("pytest -q 2>&1 | tail -3", "3 passed in 0.1s"),
    )
    assert found == [("ruff check .", True), ("pytest -q", True)]


def test_a_check_in_a_folder_is_kept_with_the_folder() -> None:
    found = checks(*bash("cd web && npm run build", "built"))
    assert found == [("cd web && npm run build", True)]


def test_both_checks_of_a_line_that_passed_are_kept() -> None:
    found = checks(*bash("npm run lint && npm test", "3 passing"))
    assert found == [("npm run lint", True), ("npm test", True)]


def test_a_failing_check_is_kept_as_failing() -> None:
    output = "FAILED tests/test_a.py::test_x - AssertionError: 1 != 2\n1 failed"
    assert checks(*bash("pytest -q", output, error=True)) == [("pytest -q", False)]


def test_a_line_whose_failing_part_is_unknown_is_not_kept() -> None:
    output = "FAILED tests/test_a.py::test_x - AssertionError: 1 != 2\n1 failed"
    assert checks(*bash("ruff check . && pytest -q", output, error=True)) == []


def test_a_check_that_was_called_wrongly_is_not_kept() -> None:
    assert checks(*bash("pytest -q", "zsh: command not found: pytest", error=True)) == []


def test_a_secret_in_a_check_is_redacted() -> None:
    key = "ghp_" + "a1B2c3D4e5" * 4
    [(command, _)] = checks(*bash(f"TOKEN={key} npm test", "3 passing"))
    assert key not in command
    assert "npm test" in command
