"""Files that a plan names are read only where they belong to the project."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from hostile import SSH, THESIS, Ground
from hostile_cases import SERVERS, run_server


def _plan(ground: Ground, *paths: str) -> None:
    feature = {
        "name": "auth",
        "description": "d",
        "knowledge_paths": list(paths),
        "context_files": [*paths, *({"path": path, "source": "auto"} for path in paths)],
    }
    ground.ship("db/features.yaml", json.dumps({"version": 1, "features": [feature]}))


def _use(ground: Ground) -> None:
    ground.run("prompt", "1")
    ground.run("prompt", "1", "--review")
    ground.run("feature", "show", "auth")
    ground.run("plan", "check")
    ground.run("run", "--agent", "/bin/true", "--max-iterations", "1")
    for event in ("session-start", "user-prompt-submit"):
        ground.hook(event)
    for mode in SERVERS:
        run_server(ground, mode)


def test_a_file_of_the_clone_is_read(ground: Ground) -> None:
    (ground.evil / "guide.md").write_text("Giraffes need long scarves.\n")
    _plan(ground, "guide.md")
    assert "long scarves" in ground.well("prompt", "1").out
    assert "long scarves" in run_server(ground, ("--feature", "auth", "--task", "1"))


def test_a_link_out_of_the_clone_is_not_read(ground: Ground) -> None:
    ssh, thesis = ground.home / ".ssh", ground.home / "Documents" / "thesis"
    links = {
        "relative.md": os.path.relpath(ssh / "id", ground.evil),
        "absolute.md": str(ssh / "id"),
        "folder": os.path.relpath(thesis, ground.evil),
        "chain1": "chain2",
        "chain2": str(ssh / "id"),
        "loop": "loop",
        "zero": "/dev/zero",
        "environ": "/proc/self/environ",
        "own.md": str(ground.own / "docs" / "notes.md"),
        "talk": str(ground.memory),
    }
    for name, target in links.items():
        (ground.evil / name).symlink_to(target)
    os.mkfifo(ground.evil / "pipe.md")
    with (ground.evil / "sparse.md").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    (ground.evil / "docs").mkdir()
    (ground.evil / "docs" / "deep.md").symlink_to(ssh / "id")
    _plan(
        ground,
        *links,
        "folder/thesis.tex",
        "docs/deep.md",
        "docs",
        "pipe.md",
        "sparse.md",
        "talk/config.json",
        "talk/journal",
    )
    before = ground.before()
    _use(ground)
    ground.check(before, cache=False)


def test_a_path_out_of_the_clone_is_not_read(ground: Ground) -> None:
    home = str(ground.home)
    paths = [f"{home}/.ssh/id", "../../.ssh/id", "~/.ssh/id", "$HOME/.ssh/id"]
    paths += [f"file://{home}/.ssh/id", "docs/../../../.ssh/id", "./../../.ssh/id"]
    paths += ["..\\..\\.ssh\\id", ".ralph/../../../.ssh/id", "/proc/self/environ"]
    paths += ["../own/docs/notes.md", f"{home}/Documents/thesis/thesis.tex", "../../.ssh"]
    _plan(ground, *paths)
    before = ground.before()
    _use(ground)
    ground.check(before, cache=False)


def test_a_document_that_is_a_link_out_of_its_folder_is_not_taken_in(ground: Ground) -> None:
    docs = ground.evil / "docs"
    docs.mkdir()
    (docs / "honest.md").write_text("# Honest\n\nGiraffes.\n")
    (docs / "id.md").symlink_to(ground.home / ".ssh" / "id")
    (docs / "more").symlink_to(ground.home / "Documents")
    before = ground.before()
    ground.run("conversations", "add-document", "docs")
    ground.run("search", "--conversations", SSH)
    ground.check(before, cache=False, told=(THESIS,))
    assert SSH not in ground.run("conversations", "export", "-").out


def test_a_transcript_in_a_clone_is_of_no_other_session(ground: Ground) -> None:
    """A client names the transcript; nothing of the clone is taken for one by itself."""
    for name in ("session-1.jsonl", ".claude/projects/x/session-1.jsonl"):
        file = ground.evil / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(ground.home / ".ssh" / "id")
    before = ground.before()
    for event in ("stop", "session-end"):
        ground.hook(event, transcript_path=str(Path("session-1.jsonl")))
    ground.run("conversations", "import", "claude-code")
    ground.check(before, cache=False)
