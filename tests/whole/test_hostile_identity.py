"""The id in a project's files is not a key: whoever claims another's gets none of its memory."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from examples import some
from hostile import ASKED, JOURNAL, LESSON, PLAN, TALK, Ground, git, write_transcript
from hostile_cases import COMMANDS, run_hooks, run_server, run_step


def _copied_id(ground: Ground) -> None:
    shutil.copy(ground.own / ".ralph/db/metadata.yaml", ground.shipped / "db/metadata.yaml")


def _copied_id_in_capitals(ground: Ground) -> None:
    name = _own_id(ground).upper()
    ground.ship("db/metadata.yaml", f'other: 1\nproject_id: "{name}"  # ours\n')


def _two_ids(ground: Ground) -> None:
    theirs = (ground.shipped / "db/metadata.yaml").read_text()
    ground.ship("db/metadata.yaml", f"project_id: {_own_id(ground)}\n{theirs}")


def _linked(*places: str) -> Callable[[Ground], None]:
    def claim(ground: Ground) -> None:
        for place in places:
            ground.link(place, ground.own / ".ralph" / place)

    return claim


def _linked_homes_journals(ground: Ground) -> None:
    """Links into Ralph's home, whose names a stranger who knows the id can guess."""
    for kind in ("conversations", "knowledge"):
        home = ground.memory / "journal" / kind
        for file in home.iterdir():
            ground.link(f"db/memory/{kind}-{file.stem}.jsonl", file)
    ground.link("db/memory/auth.jsonl", next((ground.memory / "journal/conversations").iterdir()))


def _without_git(ground: Ground) -> None:
    _copied_id(ground)
    shutil.rmtree(ground.evil / ".git")


# Commands that tell what was remembered, or add to it.
_TELLING = """
search recent failures prompt export conversations knowledge gate record import pause resume
""".split()
CLAIMS: dict[str, Callable[[Ground], None]] = {
    "copied id": _copied_id,
    "copied id in capitals": _copied_id_in_capitals,
    "two ids": _two_ids,
    "copied id without git": _without_git,
    "linked id": _linked("db/metadata.yaml"),
    "linked journal": _linked("db/memory/auth.jsonl"),
    "linked journals": _linked("db/memory"),
    "linked plan": _linked("db/features.yaml", "db/tasks.yaml"),
    "linked db": _linked("db"),
    "linked .ralph": _linked(""),
    "linked home": _linked_homes_journals,
}


def _own_id(ground: Ground) -> str:
    text = (ground.own / ".ralph/db/metadata.yaml").read_text()
    return text.partition("project_id:")[2].split()[0]


def _owns(ground: Ground) -> dict[str, str]:
    """Everything the person's own project says of itself."""
    asked = {
        "talk": ("conversations", "export", "-"),
        "journal": ("export", "-"),
        "knowledge": ("knowledge", "staged", "--json"),
        "documents": ("conversations", "add-document", "--list"),
        "plan": ("feature", "show", "auth", "--json"),
    }
    return {name: ground.well(*words, cwd=ground.own).out for name, words in asked.items()}


@pytest.mark.parametrize("claim", some(CLAIMS))
def test_h1_h2_nothing_of_another_project_is_told(ground: Ground, claim: str) -> None:
    CLAIMS[claim](ground)
    before = ground.before()
    run_hooks(ground)
    for mode in (("--focus",), ("--conversations",)):
        run_server(ground, mode)
    for step in COMMANDS:
        if step.words[0] in _TELLING:
            run_step(ground, step)
    ground.check(before, cache=False)


@pytest.mark.parametrize("claim", some(CLAIMS, start=1))
def test_h1_nothing_of_another_project_is_changed_or_forgotten(ground: Ground, claim: str) -> None:
    owns = _owns(ground)
    assert [TALK in owns["talk"], JOURNAL in owns["journal"]] == [True, True]
    assert [LESSON in owns["knowledge"], PLAN in owns["plan"]] == [True, True]
    CLAIMS[claim](ground)
    before = ground.before()
    run_hooks(ground)
    for words in (
        ("forget", "--match", "zebra", "--yes"),
        ("forget", "--conversations", "--before", "2099-01-01", "--yes"),
        ("forget", "--knowledge", "--match", "zebra", "--yes"),
        ("conversations", "prune", "--yes"),
        ("conversations", "add-document", "--remove", str(ground.own / "docs/notes.md")),
        ("forget", "--project", "--yes"),
    ):
        ground.run(*words)
    ground.check(before, cache=False)
    assert _owns(ground) == owns


def test_h1_what_is_said_in_a_clone_is_not_written_into_another_project(ground: Ground) -> None:
    _copied_id(ground)
    write_transcript(ground.transcript, ground.evil, "giraffe giraffe giraffe")
    run_hooks(ground)
    assert "giraffe" in ground.well("conversations", "export", "-").out
    assert "giraffe" not in ground.well("conversations", "export", "-", cwd=ground.own).out


def test_h1_a_folder_cannot_claim_records_of_another_project_by_their_ids(ground: Ground) -> None:
    export = json.loads(ground.well("conversations", "export", "-", cwd=ground.own).out)
    [talk] = export["conversations"]
    _copied_id(ground)
    before = ground.before()
    # `ralph show ID` is not among them: a person opens records of any of their projects with it.
    for name in (talk["id"], talk["exchanges"][0]["id"]):
        ground.run("conversations", "show", name)
        ground.run("forget", name, "--yes")
        ground.run("conversations", "private", name)
        ground.run("conversations", "tag", name, "mine")
        ground.run("conversations", "rename", name, "mine")
    ground.check(before, cache=False)
    again = json.loads(ground.well("conversations", "export", "-", cwd=ground.own).out)
    assert again == export


def test_a_clone_does_not_end_another_projects_pause(ground: Ground) -> None:
    ground.well("pause", cwd=ground.own)
    _copied_id(ground)
    ground.run("resume")
    assert ground.well("status", "--json", cwd=ground.own).json["paused"]


def _search(ground: Ground, root: Path) -> str:
    return ground.run("search", "--conversations", ASKED, cwd=root).out


def test_a_worktree_of_the_same_project_has_its_memory(ground: Ground) -> None:
    tree = ground.own.with_name("own-tree")
    git(ground.own, "worktree", "add", "-q", str(tree))
    assert TALK in _search(ground, tree)
    assert TALK in ground.told(ground.hook("user-prompt-submit", cwd=tree))


def test_a_second_clone_of_the_same_project_has_its_memory(ground: Ground) -> None:
    clone = ground.own.with_name("own-clone")
    git(ground.own, "clone", "-q", str(ground.own), str(clone))
    assert TALK in _search(ground, clone)
    assert TALK in ground.told(ground.hook("user-prompt-submit", cwd=clone))


def test_the_project_has_its_memory_where_it_always_was(ground: Ground) -> None:
    assert TALK in _search(ground, ground.own)
    assert TALK in _search(ground, ground.own / "docs")
    assert TALK in ground.told(ground.hook("user-prompt-submit", cwd=ground.own))


def test_the_project_has_its_memory_by_a_way_that_is_a_link(ground: Ground) -> None:
    way = ground.home / "work"
    way.symlink_to(ground.own.parent)
    assert TALK in _search(ground, way / "own")
    assert TALK in ground.told(ground.hook("user-prompt-submit", cwd=way / "own"))


def test_a_home_of_ralph_that_is_a_link_is_the_persons_own_choice(ground: Ground) -> None:
    elsewhere = ground.home / "dotfiles"
    ground.memory.rename(elsewhere)
    ground.memory.symlink_to(elsewhere)
    try:
        assert TALK in _search(ground, ground.own)
        ground.hook("stop", cwd=ground.own)
        assert len(ground.well("conversations", "list", "--json", cwd=ground.own).json) == 2
    finally:
        ground.memory.unlink()
        elsewhere.rename(ground.memory)
