"""The tree of errors: one place, and drawn there."""

from __future__ import annotations

import ast
from pathlib import Path

from ralph import errors

RALPH = Path(errors.__file__).parent


def test_every_error_is_drawn_in_the_docstring() -> None:
    named = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RalphError)
    }
    assert {name for name in named if name not in (errors.__doc__ or "")} == set()


def test_no_room_has_errors_of_its_own_that_leave_it() -> None:
    families = {name for name, value in vars(errors).items() if isinstance(value, type)}
    found = [
        f"{module.relative_to(RALPH)}:{node.lineno}: {node.name}"
        for module in RALPH.rglob("*.py")
        if module.name != "errors.py"
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in families for base in node.bases)
    ]
    assert found == []


def test_a_message_says_where_what_and_what_to_do() -> None:
    error = errors.BadInput("the limit is 0", where="config.json:3", todo="Give 1 or more.")
    assert str(error) == "config.json:3: the limit is 0. Give 1 or more."
    assert str(errors.BadInput("no")) == "no"
