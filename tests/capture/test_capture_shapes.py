"""The shape of a command that failed: what must be in a line for it to fail again."""

from __future__ import annotations

import pytest

from ralph.capture.shapes import Shape, failed_shape, shape_of


@pytest.mark.parametrize(
    ("message", "resolution", "key", "fix"),
    [
        (
            "unrecognized subcommand 'bun'",
            "`bun run test` instead of `rtk bun run test` passed.",
            "rtk bun",
            "bun run test",
        ),
        (
            "command not found: python",
            "`python3 -m pytest -q` instead of `python -m pytest -q` passed.",
            "python",
            "python3 -m pytest -q",
        ),
        (
            "go: command not found",
            "`export PATH=/usr/local/go/bin:$PATH && go run web.go` instead of `go run web.go`"
            " passed.",
            "go",
            "export PATH=/usr/local/go/bin:$PATH && go run web.go",
        ),
        (
            "pattern ./e2e/...: directory prefix e2e does not contain main module",
            "`cd e2e && go vet ./...` instead of `go vet ./e2e/...` got past it.",
            "go | ./e2e/...",
            "cd e2e && go vet ./...",
        ),
        (
            "Error: unknown flag: --disable-all",
            "`golangci-lint run --default=none ./x` instead of `golangci-lint run --disable-all"
            " ./x` passed.",
            "golangci-lint | --disable-all",
            "golangci-lint run --default=none ./x",
        ),
    ],
)
def test_the_shape_is_what_the_call_that_passed_does_not_have(
    message: str, resolution: str, key: str, fix: str
) -> None:
    found = failed_shape(message, resolution)
    assert found is not None
    shape, command = found
    assert (shape.key, command) == (key, fix)
    assert shape_of(key) == shape
    assert not shape.fits(fix)


@pytest.mark.parametrize(
    "resolution",
    [
        "Edited src/app.py: +`import os`; then `pytest` passed.",
        "`git add a.py` in the folder `..` passed.",  # the same command elsewhere
        "`go test \u2026 ./internal/...` instead of `go test \u2026 ./x/...` passed.",  # cut short
        "`cat b` instead of `cat a` passed.",  # a file, not a way to call a program
        "`a one && b two` instead of `a three && b four` passed.",  # either may be to blame
        "",
    ],
)
def test_other_solutions_give_no_shape(resolution: str) -> None:
    assert failed_shape("cat: illegal option: a", resolution) is None


def test_an_error_of_the_project_says_nothing_about_the_call() -> None:
    resolution = "`git stash` instead of `git pull` passed."
    assert failed_shape("cannot pull with rebase: You have unstaged changes.", resolution) is None


def test_wrappers_variables_and_folders_do_not_change_the_shape() -> None:
    shape = Shape(("rtk", "bun"))
    assert shape.fits("cd web && CI=1 timeout 60 rtk bun run test --watch=false 2>&1 | tail -20")
    assert not shape.fits("rtk git status")
    assert not shape.fits("bun run test")
    assert not shape.fits("echo 'rtk bun run test'")


def test_a_line_with_a_way_out_is_none_of_the_shape() -> None:
    assert not Shape(("python",)).fits("python -m pytest || python3 -m pytest")


def test_a_missing_program_may_be_found_on_another_path() -> None:
    shape = Shape(("go",))
    assert shape.fits("go build ./...")
    assert not shape.fits("export PATH=$PATH:/usr/local/go/bin && go build ./...")
    assert not shape.fits("PATH=/usr/local/go/bin:$PATH go build ./...")
    assert not shape.fits("/usr/local/go/bin/go build ./...")
