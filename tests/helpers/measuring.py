"""Coverage of what runs as a process of its own, where the tests' own coverage is measured."""

from __future__ import annotations

import coverage
from places import ROOT


def measured() -> dict[str, str]:
    """The variables that make a child process measure itself too; none without measuring.

    Only for doors that are tested as processes: it slows the start of each.
    """
    if coverage.Coverage.current() is None:
        return {}
    return {
        "COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"),
        "COVERAGE_FILE": str(ROOT / ".coverage"),
    }
