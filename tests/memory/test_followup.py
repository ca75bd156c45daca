"""Which commands and files a text names, and whether the next actions use them."""

from __future__ import annotations

import pytest

from ralph.memory.followup import named_actions, was_used


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Fix: `bun run test` instead of `rtk bun run test` passed.", "bun run test"),
        ("`go test ./pkg/store` failed.", "cd repo && go test ./pkg/store -run TestPut"),
        ("Edited src/app/main.py; then it passed.", "/home/dev/repo/src/app/main.py"),
        ("The fix is in `main.go`.", "cat cmd/main.go"),
        ("Run `uv run pytest -q`.", "uv run pytest -q tests/test_a.py"),
    ],
)
def test_a_text_is_used_by_the_action_it_names(text: str, action: str) -> None:
    assert was_used(named_actions(text), ["ls", action])


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("`go test ./pkg/store` failed.", "go build ./pkg/store"),
        ("`go test ./pkg/store` failed.", "go test ./pkg/web"),
        ("Edited main.py.", "/repo/domain.py"),
        ("Edited main.py.", "/repo/main.pyc"),
        ("Run `make check`.", "make"),
    ],
)
def test_a_text_is_not_used_by_another_action(text: str, action: str) -> None:
    named = named_actions(text)
    assert named
    assert not was_used(named, [action])


@pytest.mark.parametrize(
    "text",
    [
        "Let me commit.",
        "Version 1.24.0 is out, e.g. on example.com.",
        "Keep accessibility at best effort (i.e. no audit).",
    ],
)
def test_a_text_without_a_command_or_a_file_names_nothing(text: str) -> None:
    assert not named_actions(text)
