"""The files that a newcomer must open to follow one thing through the package."""

from __future__ import annotations

import pytest
from benching import BenchLine

from bench.paths import PATHS

# A file that each path must cross. How many it crosses is reported and not limited: a limit would
# reward gluing two ideas into one module.
FILES = {
    "record": "clients/__init__.py",
    "search": "recall/search.py",
    "everything": "recall/__init__.py",
    "iteration": "loop/iteration.py",
    "hook": "doors/hooks/context.py",
    "mcp": "recall/search.py",
    "checkpoint": "memory/checkpoints.py",
}
_QUICK = {"search", "iteration"}


@pytest.mark.parametrize(
    "what",
    [what if what in _QUICK else pytest.param(what, marks=pytest.mark.slow) for what in PATHS],
)
def test_paths_lists_every_file_that_a_path_crosses(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [path] = BenchLine(capsys).well("paths", "--only", what, "--json").json["paths"]

    files = {function.partition(":")[0] for function in path["functions"]}
    assert files == set(path["files"])
    assert FILES[what] in files
