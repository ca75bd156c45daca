"""Other packages add kinds of records, clients and vector stores by entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BOOKMARK = """
import msgspec
from ralph.recall.kinds import Kind


class Bookmark(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    url: str
    why: str


ROW = Kind(
    name="bookmark",
    label="bookmark",
    stream="notes",
    struct=lambda: Bookmark,
    title=lambda content: content.url,
    text=lambda content: content.why,
    daily=True,
)
"""


def install(folder: Path, module: str, source: str, group: str, name: str) -> None:
    """Put a package with one entry point into a folder, as an installer does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8"
    )
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:ROW\n", encoding="utf-8")


def run(
    root: Path, packages: Path, *args: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(packages), **(environment or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


SAVE = """
import ralph, toy_bookmark
with ralph.open_ralph() as memory:
    content = toy_bookmark.Bookmark(url="https://sqlite.org/fts5.html", why="How bm25 is counted")
    _, fresh = memory.notes.remember(content)
    assert fresh
    _, fresh = memory.notes.remember(content)
    assert not fresh
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    install(folder, "toy_bookmark", BOOKMARK, "ralph.kinds", "bookmark")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


def test_a_kind_from_another_package_is_saved_found_shown_and_forgotten(
    root: Path, packages: Path
) -> None:
    assert run(root, packages, "-m", "ralph", "init").returncode == 0
    saved = run(root, packages, "-c", SAVE)
    assert saved.returncode == 0, saved.stderr

    found = run(root, packages, "-m", "ralph", "search", "bm25", "--json")
    [hit] = json.loads(found.stdout)
    assert hit["kind"] == "bookmark"
    assert hit["record"] == {"url": "https://sqlite.org/fts5.html", "why": "How bm25 is counted"}

    shown = run(root, packages, "-m", "ralph", "show", hit["id"])
    assert "bookmark" in shown.stdout
    assert "How bm25 is counted" in shown.stdout
    recent = run(root, packages, "-m", "ralph", "recent")
    assert "https://sqlite.org/fts5.html" in recent.stdout
    exported = run(root, packages, "-m", "ralph", "export", "-")
    assert "How bm25 is counted" in exported.stdout

    forgotten = run(root, packages, "-m", "ralph", "forget", hit["id"], "--yes")
    assert forgotten.returncode == 0, forgotten.stderr
    gone = run(root, packages, "-m", "ralph", "search", "bm25", "--json")
    assert json.loads(gone.stdout) == []


def test_a_package_in_the_current_folder_adds_nothing(root: Path, tmp_path: Path) -> None:
    traces = tmp_path / "ran"
    source = f"open({str(traces)!r}, 'w').close()\n{BOOKMARK}"
    install(root, "toy_bookmark", source, "ralph.kinds", "bookmark")

    found = run(root, root, "-c", "from ralph.recall.kinds import KINDS; print(KINDS.of('x'))")

    assert found.stdout.strip() == "None", found.stderr
    assert not traces.exists()
