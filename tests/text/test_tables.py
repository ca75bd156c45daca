"""The text files with rules: what one section says, no other section takes back."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import ralph

ROOT = Path(ralph.__file__).parent
TABLES = [
    path
    for path in sorted(ROOT.rglob("*.txt"))
    if re.search(r"^\[[^\]\n]+\]$", path.read_text(encoding="utf-8"), re.M)
]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_section_of_a_table_has_its_own_name_and_rows(path: Path) -> None:
    parts = re.split(r"^\[", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    names = [part.partition("\n")[0] for part in parts]
    # A row that begins with a bracket would be read as the name of a section.
    assert [name for name in names if not re.fullmatch(r"[\w' -]+\]", name)] == []
    assert [name for name, times in Counter(names).items() if times > 1] == []
    for part in parts:
        rows = [line for line in part.split("\n")[1:] if line and line[0] != "#"]
        assert rows, f"[{part.partition(chr(10))[0]} has no rows"
