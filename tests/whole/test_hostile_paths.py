"""Whatever a clone ships at any path of `.ralph`: nothing outside changes, nothing private is told.

Each case is a clone with one thing that is not what it should be, in which hooks, commands and
servers are run. By default a sample of them for each case, with RALPH_HOSTILE_ROUNDS=20 more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from examples import spread
from hostile import ROUNDS, Ground
from hostile_cases import (
    KINDS,
    LINKS,
    OLD_FILES,
    OLD_FOLDERS,
    PLACES,
    chance_of,
    run_everything,
    run_hooks,
    run_sample,
    run_share,
    ship,
)

_WORST = ("link-to-file", "link-to-folder", "link-to-own", "dangling-link", "pipe", "file")
# Every kind, the worst of them always.
_ALL = [kind if kind in _WORST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
pytestmark = pytest.mark.timeout(60 * ROUNDS)
# What each place is read by, so that it must be refused there.
READERS = {
    "db/metadata.yaml": ("status",),
    "rag_config.json": ("status",),
    "db/features.yaml": ("feature", "list"),
    "db/tasks.yaml": ("task", "list"),
    "db/disciplines.yaml": ("discipline", "list"),
    "db/memory/auth.jsonl": ("recent", "--feature", "auth"),
    "db/memory": ("recent", "--feature", "auth"),
    "db": ("status",),
    "": ("status",),
}


@pytest.mark.parametrize(("place", "kind"), spread(PLACES, KINDS, every=4))
def test_a_thing_that_is_not_what_it_should_be(ground: Ground, place: str, kind: str) -> None:
    _try_samples(ground, place, kind, cache=False)


@pytest.mark.parametrize("kind", _ALL)
def test_everything_at_once_in_the_old_cache_of_a_clone(ground: Ground, kind: str) -> None:
    for place in OLD_FILES:
        ship(ground, place, kind)
    before = ground.before()
    # Links are the worst, so there all of it is run.
    share = 1.0 if kind == "link-to-file" or ROUNDS > 1 else 0.3
    run_share(ground, share, chance_of(kind))
    ground.check(before)


@pytest.mark.parametrize(("place", "kind"), spread(OLD_FOLDERS, KINDS if ROUNDS > 1 else _WORST))
def test_a_folder_of_the_old_cache_of_a_clone(ground: Ground, place: str, kind: str) -> None:
    _try_samples(ground, place, kind)


@pytest.mark.skipif(ROUNDS == 1, reason="tried together; RALPH_HOSTILE_ROUNDS=2 tries each alone")
@pytest.mark.parametrize("kind", KINDS if ROUNDS > 1 else [_WORST[0]])
@pytest.mark.parametrize("place", OLD_FILES if ROUNDS > 1 else OLD_FILES[:1])
def test_a_file_of_the_old_cache_of_a_clone(ground: Ground, place: str, kind: str) -> None:
    _try_samples(ground, place, kind)


def _try_samples(ground: Ground, place: str, kind: str, *, cache: bool = True) -> None:
    for number in range(ROUNDS):
        if number:
            ground.reset()
        ship(ground, place, kind)
        before = ground.before()
        run_sample(ground, place, chance_of(number, place, kind))
        ground.check(before, cache=cache)


def test_an_honest_clone_is_used_without_harm_and_gets_no_cache(ground: Ground) -> None:
    before = ground.before()
    run_everything(ground)
    ground.check(before)
    assert not (ground.shipped / "cache").exists()


def test_the_list_of_places_has_every_path_that_ralph_makes(ground: Ground) -> None:
    run_everything(ground)
    made = {
        str(Path(folder, name).relative_to(ground.shipped))
        for folder, folders, files in os.walk(ground.shipped)
        for name in [*folders, *files]
    }
    others = {"db/memory/more.jsonl", "db/memory/third.jsonl"}
    assert made - set(PLACES) - others == set()


@pytest.mark.parametrize(("place", "kind"), spread(READERS, LINKS))
def test_a_link_is_refused_in_one_line(ground: Ground, place: str, kind: str) -> None:
    ship(ground, place, kind)
    ran = ground.run(*READERS[place])
    assert (ran.code, ran.out) == (1, "")
    [line] = ran.err.splitlines()
    assert line.startswith("ralph: ")
    assert (Path(place).name if place.startswith("db/") else ".ralph") in line


@pytest.mark.parametrize(
    ("place", "kind"), spread(["", "db", "db/metadata.yaml", "db/memory"], LINKS)
)
def test_init_makes_nothing_where_a_link_leads(ground: Ground, place: str, kind: str) -> None:
    ship(ground, place, kind)
    before = ground.before()
    ground.run("init")
    ground.check(before, cache=False)


@pytest.mark.parametrize(
    ("place", "kind"),
    spread(
        ["rag_config.json", "db/features.yaml", "db/tasks.yaml", "db/metadata.yaml"],
        ["pipe", "socket", "folder", "sparse", "link-to-device"],
    ),
)
def test_what_is_no_plain_file_is_refused_in_one_line(
    ground: Ground, place: str, kind: str
) -> None:
    ship(ground, place, kind)
    ran = ground.run(*READERS[place])
    assert (ran.code, ran.out, ran.hung) == (1, "", False)
    [line] = ran.err.splitlines()
    assert line.startswith("ralph: ")


@pytest.mark.parametrize("kind", ["pipe", "link-to-device", "deep"])
@pytest.mark.parametrize(
    "place",
    [
        "rag_config.json",
        "db/metadata.yaml",
        "db/features.yaml",
        "db/tasks.yaml",
        "db/memory/auth.jsonl",
    ],
)
def test_hooks_are_silent_about_it(ground: Ground, place: str, kind: str) -> None:
    ship(ground, place, kind)
    run_hooks(ground, ("session-start", "stop"))
    assert [fault for ran in ground.runs for fault in ran.faults()] == []


@pytest.mark.parametrize("place", ["db/features.yaml", "db/tasks.yaml", "db/disciplines.yaml"])
@pytest.mark.parametrize("kind", ["nested", "wide", "anchors"])
def test_a_plan_that_takes_minutes_to_read_is_not_read(
    ground: Ground, place: str, kind: str
) -> None:
    name = Path(place).stem
    nested = "[" * 150 + "]" * 150
    text = {
        "nested": f"{name}: [{', '.join([nested] * 3000)}]\n",
        "wide": f"{name}:\n" + "- {name: a, id: 1, feature: a, title: t}\n" * 300_000,
        "anchors": f"{name}:\n" + "".join(f"- &a{n} {{name: *a{n - 1}}}\n" for n in range(25_000)),
    }[kind]
    ground.ship(place, f"version: 1\n{text}")
    ground.run(*READERS[place])
    run_hooks(ground, ("session-start",))
    assert [fault for ran in ground.runs for fault in ran.faults()] == []
