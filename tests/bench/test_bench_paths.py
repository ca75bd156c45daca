"""How many files a newcomer must open to follow one thing through the package."""

from __future__ import annotations

import pytest
from benching import BenchLine

# The most files each path may cross. A ratchet: it only goes down.
MOST_FILES = {
    "record a stream-json": 64,
    "search": 45,
    "one iteration of the loop": 123,
    "hook UserPromptSubmit": 54,
    "MCP search_feature_memory": 51,
    "knowledge checkpoint": 62,
}


def test_no_data_path_crosses_more_files_than_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    report = BenchLine(capsys).well("paths", "--json").json

    found = {path["what"]: path for path in report["paths"]}
    assert found.keys() == MOST_FILES.keys()
    for what, path in found.items():
        files = {function.partition(":")[0] for function in path["functions"]}
        assert files == set(path["files"])
        assert len(files) <= MOST_FILES[what], f"{what} crosses {sorted(files)}"
    # What was counted is the path itself.
    assert "recall/search.py:search" in found["search"]["functions"]
    assert "recall/search.py:search" in found["MCP search_feature_memory"]["functions"]
    assert any(file.startswith("loop/") for file in found["one iteration of the loop"]["files"])
    assert any(file.startswith("capture/") for file in found["record a stream-json"]["files"])
    assert any(file.startswith("doors/hooks/") for file in found["hook UserPromptSubmit"]["files"])
