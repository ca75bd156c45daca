"""A journal in a real git repository: branches merge without conflict and lose nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from journaling import living, note, summary, unnumbered

from ralph.errors import RecordForgotten
from ralph.journal import Fold
from ralph.journal.file import JsonlJournal

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Repository:
    """A project with one journal, under git."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = JsonlJournal(root / ".ralph" / "db" / "memory" / "auth.jsonl")
        self.git("init", "--initial-branch=main")
        (root / ".gitattributes").write_text(
            ".ralph/db/memory/*.jsonl merge=union text eol=lf\n", "utf-8"
        )

    def git(self, *args: str) -> str:
        own = {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **{f"GIT_{who}_NAME": "Ada" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "ada@example.org" for who in ("AUTHOR", "COMMITTER")},
        }
        foreign = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}
        env = {name: value for name, value in os.environ.items() if name not in foreign}
        done = subprocess.run(
            ["git", *args],
            cwd=self.root,
            env={**env, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--message", message)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_two_branches_iterations_merge_without_conflict_and_are_all_there(
    repository: Repository,
) -> None:
    journal = repository.journal
    journal.append([unnumbered(f"base-{i}") for i in range(1, 8)])
    repository.commit("base")

    repository.git("checkout", "-b", "branch")
    journal.append([unnumbered("branch-8"), unnumbered("branch-9")])
    repository.commit("branch")

    repository.git("checkout", "main")
    journal.append([unnumbered("main-8")])
    repository.commit("main")

    repository.git("merge", "branch")
    assert repository.git("status", "--porcelain") == ""
    base = [f"base-{i}" for i in range(1, 8)]
    assert sorted(living(journal)) == sorted([*base, "branch-8", "branch-9", "main-8"])
    numbers = sorted(located.record.number for located in journal.read().records)
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8, 8, 9]
    assert journal.verify() == (10, [])
    assert journal.append([unnumbered("next")])[0].record.number == 10
    assert journal.append([unnumbered("branch-8")])[0].fresh is False


def test_an_iteration_that_both_branches_have_is_read_once(repository: Repository) -> None:
    journal = repository.journal
    journal.append([note("base", 1)])
    repository.commit("base")

    repository.git("checkout", "-b", "branch")
    journal.append([note("branch", 2), note("both", 3)])
    repository.commit("branch")

    repository.git("checkout", "main")
    journal.append([note("both", 3), note("main", 2)])
    repository.commit("main")

    repository.git("merge", "branch")
    assert journal.path.read_bytes().count(b'"summary":"both"') == 2
    assert sorted(living(journal)) == ["base", "both", "branch", "main"]
    assert journal.verify() == (4, [])


@pytest.mark.parametrize("forgetting", ["main", "branch"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_record_forgotten_on_one_branch_stays_forgotten_after_the_merge(
    repository: Repository, forgetting: str, place: str
) -> None:
    journal = repository.journal
    base = [note(f"base-{i}", i) for i in range(1, 8)]
    journal.append(base)
    repository.commit("base")
    secret = base[0] if place == "first" else base[-1]

    repository.git("checkout", "-b", "branch")
    for name in ("branch", "main"):
        repository.git("checkout", name)
        journal.append([note(name, 8)])
        if name == forgetting:
            journal.forget([secret.id])
        repository.commit(name)

    repository.git("merge", "branch")
    kept = [summary(record) for record in base if record is not secret]
    assert sorted(living(journal)) == sorted([*kept, "branch", "main"])
    assert journal.verify()[0] == 8
    with pytest.raises(RecordForgotten):
        journal.append([secret])
    journal.forget([secret.id])  # git may have brought the line back beside its tombstone
    assert journal.verify() == (8, [])
    assert [stone.id for stone in journal.read().tombstones] == [secret.id]


def test_a_reader_follows_through_checkouts_merges_and_resets(repository: Repository) -> None:
    journal = repository.journal
    fold = Fold(JsonlJournal(journal.path))

    def texts() -> set[str]:
        return {summary(located.record) for located in fold.records()}

    journal.append([note("base", 1)])
    repository.commit("base")
    assert texts() == {"base"}

    repository.git("checkout", "-b", "branch")
    journal.append([note("branch", 2)])
    repository.commit("branch")
    assert texts() == {"base", "branch"}

    repository.git("checkout", "main")
    assert texts() == {"base"}
    journal.append([note("a-main", 2)])
    assert texts() == {"base", "a-main"}
    repository.commit("main")

    repository.git("merge", "branch")
    assert texts() == {"base", "branch", "a-main"}

    repository.git("reset", "--hard", "HEAD~1")
    assert texts() == {"base", "a-main"}

    repository.git("checkout", "--orphan", "empty")
    repository.git("rm", "-r", "--force", ".ralph")
    assert texts() == set()

    repository.git("checkout", "--force", "main")
    assert texts() == {"base", "a-main"}


def test_a_rebase_and_a_stash_lose_nothing(repository: Repository) -> None:
    journal = repository.journal
    journal.append([note("base", 1)])
    repository.commit("base")
    repository.git("checkout", "-b", "branch")
    journal.append([note("branch", 2)])
    repository.commit("branch")
    repository.git("checkout", "main")
    journal.append([note("main", 2)])
    repository.commit("main")

    repository.git("checkout", "branch")
    journal.append([note("uncommitted", 3)])
    repository.git("stash")
    repository.git("rebase", "main")
    repository.git("stash", "pop")
    assert sorted(living(journal)) == ["base", "branch", "main", "uncommitted"]
    assert journal.verify() == (4, [])


def test_a_torn_last_line_does_not_swallow_what_a_merge_brings(repository: Repository) -> None:
    journal = repository.journal
    journal.append([note("base", 1)])
    repository.commit("base")
    repository.git("checkout", "-b", "branch")
    journal.append([note("branch", 2)])
    repository.commit("branch")
    repository.git("checkout", "main")
    with journal.path.open("ab") as file:
        file.write(b'{"v":1,"kind":"itera')
    repository.commit("torn")

    repository.git("merge", "branch")
    assert living(journal) == ["base", "branch"]
    assert len(journal.verify()[1]) == 1
