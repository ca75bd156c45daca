"""A project's id is no key: who copies it gets none of the memory that is kept under it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from remembering import made, open_toy

from ralph import disk
from ralph.errors import UnsafeFile
from ralph.memory.project import Project, find_project

SECRET = "zebra quokka plan"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def say(root: Path, text: str) -> None:
    with open_toy(root) as ralph:
        conversation = ralph.conversations.start("z")
        ralph.conversations.exchange(conversation, user=text, assistant="private words")


def heard(root: Path) -> list[str]:
    with open_toy(root) as ralph:
        return [hit.record.user for hit in ralph.conversations.search(SECRET, min_score=0.0)]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A project in which the person has talked about something private."""
    root = tmp_path / "own"
    root.mkdir()
    Project(root).init()
    say(root, SECRET)
    return root


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    (root / ".ralph" / "db").mkdir(parents=True)
    return root


def claim(own: Path, clone: Path) -> None:
    """Copy the id, as everybody can who has seen the project."""
    metadata = Path(".ralph", "db", "metadata.yaml")
    shutil.copyfile(own / metadata, clone / metadata)


def test_a_folder_that_copies_the_id_gets_nothing_and_keeps_its_own(own: Path, clone: Path) -> None:
    assert heard(own) == [SECRET]
    claim(own, clone)
    assert heard(clone) == []
    say(clone, f"{SECRET} of the clone")
    assert heard(clone) == [f"{SECRET} of the clone"]
    assert heard(own) == [SECRET]


def test_a_copy_with_another_history_gets_nothing(own: Path, clone: Path) -> None:
    claim(own, clone)
    for folder in (own, clone):
        git(folder, "init", "-q")
        (folder / "name").write_text(folder.name, encoding="utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", folder.name)
    assert heard(own) == [SECRET]
    assert heard(clone) == []


def test_a_second_clone_of_the_same_history_shares_the_memory(own: Path, tmp_path: Path) -> None:
    git(own, "init", "-q")
    git(own, "add", ".")
    git(own, "commit", "-qm", "first")
    Project(own).join()
    git(tmp_path, "clone", "-q", str(own), "second")
    shutil.rmtree(own)  # what was noted of it must do
    assert heard(tmp_path / "second") == [SECRET]


def test_a_history_that_began_after_the_first_use_counts_too(own: Path, tmp_path: Path) -> None:
    git(own, "init", "-q")
    git(own, "add", ".")
    git(own, "commit", "-qm", "first")
    git(own, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert heard(tmp_path / "tree") == [SECRET]
    git(own, "worktree", "remove", "--force", str(tmp_path / "tree"))
    git(tmp_path, "clone", "-q", str(own), "second")
    assert heard(tmp_path / "second") == [SECRET]


def test_a_moved_project_says_where_its_memory_is_and_joins_when_told(
    own: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    own.rename(moved)
    assert heard(moved) == []
    assert Project(moved).rivals == [str(own)]
    Project(moved).join()
    assert Project(moved).rivals == []
    assert heard(moved) == [SECRET]


def test_records_of_a_clone_keep_the_ids_of_the_project(own: Path, clone: Path) -> None:
    claim(own, clone)
    one = made("login form", session_id="1")
    with open_toy(own) as here, open_toy(clone) as there:
        assert here.project.id != there.project.id
        assert here.feature("auth").remember(one).id == there.feature("auth").remember(one).id


def test_nothing_that_git_is_configured_to_run_is_run(own: Path, clone: Path) -> None:
    git(own, "init", "-q")
    git(own, "add", ".")
    git(own, "commit", "-qm", "first")
    heard(own)
    claim(own, clone)
    git(clone, "init", "-q")
    trap = clone / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {clone}/sprung\n", encoding="utf-8")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.hooksPath"):
        git(clone, "config", key, str(trap))
    git(clone, "config", "remote.origin.url", "ssh://nowhere/x")
    git(clone, "config", "remote.origin.promisor", "true")
    git(clone, "config", "extensions.partialClone", "origin")
    assert heard(clone) == []
    assert not (clone / "sprung").exists()


needs_root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away"
)


@needs_root
def test_a_folder_of_another_user_above_is_refused(own: Path, tmp_path: Path, home: Path) -> None:
    below = own / "src" / "deep"
    below.mkdir(parents=True)
    assert find_project(below, home=home) is not None
    give_away(own / ".ralph", 12345)
    with pytest.raises(UnsafeFile, match="belongs to another user"):
        find_project(below, home=home)


@needs_root
def test_who_became_root_by_sudo_keeps_their_own(
    own: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_away(own / ".ralph", 12345)
    monkeypatch.setenv("SUDO_UID", "12345")
    assert disk.is_own(own / ".ralph")
    assert find_project(own, home=home) is not None


@needs_root
def test_a_folder_of_another_user_is_used_once_it_is_trusted(own: Path, home: Path) -> None:
    give_away(own / ".ralph", 12345)
    assert ralph("search", "--conversations", SECRET, cwd=own).returncode == 1
    assert ralph("hook", "session-start", cwd=own, given=event(own)).stderr == ""
    asked = ralph("trust", cwd=own)
    assert asked.returncode == 1
    assert "another user (uid 12345)" in asked.stdout
    assert ralph("trust", "--yes", cwd=own).returncode == 0
    assert "private words" in ralph("search", "--conversations", SECRET, cwd=own).stdout
    give_away(own / ".ralph", 54321)
    assert ralph("search", "--conversations", SECRET, cwd=own).returncode == 1


def test_trust_lets_a_moved_project_have_its_memory_and_revoke_takes_it_back(
    own: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    own.rename(moved)
    doctor = ralph("doctor", cwd=moved).stdout
    assert f"{own} has the same id" in doctor
    assert "ralph trust" in doctor
    shown = ralph("trust", "--yes", cwd=moved).stdout
    assert f"used in {own}" in shown
    assert heard(moved) == [SECRET]
    assert ralph("trust", "--revoke", cwd=moved).returncode == 0
    assert heard(moved) == []


def give_away(path: Path, uid: int) -> None:
    if sys.platform != "win32":
        os.chown(path, uid, uid)


def event(root: Path) -> str:
    return json.dumps({"session_id": "s", "cwd": str(root), "source": "startup"})


def ralph(*words: str, cwd: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "ralph", *words],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
