"""How many files a newcomer must open to follow one thing through the package."""

from __future__ import annotations

import pytest
from benching import BenchLine

from bench.paths import PATHS

# The most files each path may cross, and a file it must cross. The numbers only go down, unless a
# path does more: a prompt's hook and a search over MCP ask the plan and the notes, too, every
# client's record is read by what all clients share, an iteration notes what its prompt told, a
# search that finds something ends in what shows a hit, a command looks up whether its folder's
# memory is on a server, capture asks its table of rules for a pattern when it needs it, a record's
# feature is looked up in the plan, and facets stand with the other promises of the index. A text is
# cut at the end of a sentence, a hook also tells how the work of an exchange went on, a search
# weighs words by their rarities and asks whether an exchange is only a question, and a checkpoint
# compares errors by their signatures. Capture splits sentences as summaries do, and a session in
# which nobody asks is titled by its result.
FILES = {
    "record": (49, "clients/__init__.py"),
    "search": (30, "recall/search.py"),
    "everything": (41, "recall/__init__.py"),
    "iteration": (67, "loop/iteration.py"),
    "hook": (46, "doors/hooks/context.py"),
    "mcp": (38, "recall/search.py"),
    "checkpoint": (35, "memory/checkpoints.py"),
}


_QUICK = {"search", "iteration"}


@pytest.mark.parametrize(
    "what",
    [what if what in _QUICK else pytest.param(what, marks=pytest.mark.slow) for what in PATHS],
)
def test_a_data_path_crosses_no_more_files_than_it_may(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    most, middle = FILES[what]

    [path] = BenchLine(capsys).well("paths", "--only", what, "--json").json["paths"]

    files = {function.partition(":")[0] for function in path["functions"]}
    assert files == set(path["files"])
    assert middle in files
    assert len(files) <= most, f"{what} crosses {sorted(files)}"
