"""The measure that tests of hostile input trust can fail."""

from __future__ import annotations

import re

import pytest
from timing import assert_linear

QUADRATIC = re.compile(r"[^\0]*\0")  # looks to the end from every character


def test_a_quadratic_pass_is_seen() -> None:
    with pytest.raises(AssertionError, match="ten times"):
        assert_linear(QUADRATIC.search, lambda size: "a" * size, 20_000)


def test_a_linear_pass_is_not_blamed() -> None:
    assert_linear(QUADRATIC.match, lambda size: "a" * size, 200_000)
