"""Texts that are compared with what was looked at once; UPDATE_SNAPSHOTS=1 writes them anew."""

from __future__ import annotations

import os

from places import TESTS

FOLDER = TESTS / "snapshots"


def same_as_snapshot(name: str, text: str) -> bool:
    """Whether the text is the stored one; the first time, and when asked to, it is stored."""
    file = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
    stored = file.read_text(encoding="utf-8")
    assert text == stored, f"{file.name} differs; look, then run again with UPDATE_SNAPSHOTS=1"
    return True
