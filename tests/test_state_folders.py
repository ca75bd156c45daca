"""The folders with this machine's state of a project, and those of earlier versions."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from ralph import disk
from ralph.memory.project import Focus, Project, read_focus, set_focus
from ralph.memory.ralph import open_ralph
from ralph.plan.store import Plan
from ralph.records.iteration import Iteration
from ralph.state_folders import hooks_folder, old_state_name, state_folder, state_name

_BITS = 40


def forged(above: Path, target: Path) -> Path:
    """Return a path `above/NAME/<target's name>` with the target's CRC-32.

    CRC-32 is linear: each letter of NAME, a or b, flips known bits of the sum. So the letters
    follow from linear equations.
    """
    before, after = f"{above}/".encode(), f"/{target.name}".encode()

    def crc(letters: list[int]) -> int:
        name = bytes(b"ab"[letter] for letter in letters)
        return zlib.crc32(before + name + after)

    zero = crc([0] * _BITS)
    wanted = zero ^ zlib.crc32(str(target).encode())
    rows: dict[int, tuple[int, int]] = {}  # by highest bit: what it flips, by which letters
    for at in range(_BITS):
        flips = zero ^ crc([int(at == i) for i in range(_BITS)])
        letters = 1 << at
        while flips and flips.bit_length() in rows:
            other, more = rows[flips.bit_length()]
            flips, letters = flips ^ other, letters ^ more
        if flips:
            rows[flips.bit_length()] = flips, letters
    chosen = 0
    while wanted:
        flips, letters = rows[wanted.bit_length()]
        wanted, chosen = wanted ^ flips, chosen ^ letters
    name = "".join("ab"[chosen >> at & 1] for at in range(_BITS))
    return above / name / target.name


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home" / ".ralph"
    monkeypatch.setenv("RALPH_HOME", str(folder))
    return folder


@pytest.fixture
def shop(tmp_path: Path, home: Path) -> Project:
    return made(tmp_path / "shop", home)


def made(root: Path, home: Path) -> Project:
    project = Project(root, home)
    root.mkdir(parents=True, exist_ok=True)
    project.init()
    return project


def use(project: Project, home: Path, *, transcript: Path | None = None) -> None:
    """Leave state behind: a focus, an index, the plan's log, and perhaps a session under way."""
    set_focus(project, Focus("auth"))
    with open_ralph(project.root, home=home) as ralph:
        ralph.feature("auth").remember(Iteration(summary="Moved sessions to Redis"))
        ralph.search("redis")
    with Plan(project.root, state=project.cache).edit("features", "made") as data:
        data["features"] = [{"name": "auth"}]
    if transcript:
        note = Path(hooks_folder(project.root, home)) / "sessions" / "s1.jsonl"
        note.parent.mkdir(parents=True)
        line = {"note": "transcript", "value": str(transcript), "session": "s1"}
        note.write_text(f"{json.dumps(line)}\n", encoding="utf-8")
        first = {"type": "user", "cwd": str(project.root)}
        transcript.write_text(f"{json.dumps(first)}\n", encoding="utf-8")


def as_before(project: Project, home: Path) -> None:
    """Rename the project's folders to what an earlier version called them."""
    for kind in ("projects", "hooks"):
        folder = home / "cache" / kind / state_name(project.root)
        if folder.is_dir():
            (folder / "path").unlink(missing_ok=True)
            folder.rename(folder.with_name(old_state_name(project.root)))


def test_a_forged_path_has_another_folder(tmp_path: Path, shop: Project, home: Path) -> None:
    evil = forged(tmp_path / "clone", shop.root)

    assert old_state_name(evil) == old_state_name(shop.root)
    assert state_name(evil) != state_name(shop.root)
    assert state_folder(evil, home) != state_folder(shop.root, home)
    assert hooks_folder(evil, home) != hooks_folder(shop.root, home)


def test_the_folder_of_an_earlier_version_moves_with_everything_in_it(
    tmp_path: Path, shop: Project, home: Path
) -> None:
    use(shop, home, transcript=tmp_path / "t.jsonl")
    as_before(shop, home)

    again = Project(shop.root, home)

    assert read_focus(again) == Focus("auth")
    assert Plan(shop.root, state=again.cache).log.last() == 1
    assert list(again.cache.glob("index-*.sqlite3"))
    assert (Path(hooks_folder(shop.root, home)) / "sessions" / "s1.jsonl").exists()
    assert (again.cache / "path").read_text("utf-8") == str(shop.root)
    assert not (home / "cache" / "projects" / old_state_name(shop.root)).exists()


@pytest.mark.parametrize("known", [True, False])
def test_a_forged_path_does_not_get_the_folder_of_an_earlier_version(
    tmp_path: Path, shop: Project, home: Path, known: bool
) -> None:
    """Whether or not Ralph has a note of the project that the folder belongs to."""
    use(shop, home, transcript=tmp_path / "t.jsonl")
    as_before(shop, home)
    if not known:
        for note in (home / "projects").iterdir():
            note.unlink()
    evil = made(forged(tmp_path / "clone", shop.root), home)

    assert read_focus(evil) is None
    assert not (Path(hooks_folder(evil.root, home)) / "sessions").exists()
    assert read_focus(Project(shop.root, home)) == Focus("auth")


def test_a_copied_project_id_does_not_get_the_folder_of_an_earlier_version(
    tmp_path: Path, shop: Project, home: Path
) -> None:
    use(shop, home)
    as_before(shop, home)
    evil = Project(forged(tmp_path / "clone", shop.root), home)
    evil.db.mkdir(parents=True)
    metadata = (shop.db / "metadata.yaml").read_bytes()
    (evil.db / "metadata.yaml").write_bytes(metadata)

    assert read_focus(Project(evil.root, home)) is None
    assert read_focus(Project(shop.root, home)) == Focus("auth")


def test_a_folder_that_says_nothing_moves_if_only_one_known_path_fits(
    shop: Project, home: Path
) -> None:
    set_focus(shop, Focus("auth"))
    as_before(shop, home)

    assert read_focus(Project(shop.root, home)) == Focus("auth")


def test_a_folder_that_two_paths_used_stays(tmp_path: Path, shop: Project, home: Path) -> None:
    use(shop, home, transcript=tmp_path / "t.jsonl")
    as_before(shop, home)
    evil = forged(tmp_path / "clone", shop.root)
    old = home / "cache" / "hooks" / old_state_name(shop.root)
    (old / "brief.json").write_text(json.dumps({"state": {"root": str(evil)}}), encoding="utf-8")

    assert read_focus(made(evil, home)) is None
    assert read_focus(Project(shop.root, home)) is None
    assert old.is_dir()


def test_a_folder_is_not_moved_while_an_agent_runs_in_it(shop: Project, home: Path) -> None:
    set_focus(shop, Focus("auth"))
    as_before(shop, home)
    old = home / "cache" / "projects" / old_state_name(shop.root)
    run = old / "runs" / "r1"
    run.mkdir(parents=True)

    with disk.lock(run / "lock", timeout_s=1.0):
        assert Project(shop.root, home).cache == old
    assert Project(shop.root, home).cache != old
    assert read_focus(Project(shop.root, home)) == Focus("auth")


def test_a_folder_with_the_path_of_another_project_is_not_used(shop: Project, home: Path) -> None:
    set_focus(shop, Focus("auth"))
    (shop.cache / "path").write_text("/somewhere/else", encoding="utf-8")

    assert Project(shop.root, home).cache != shop.cache
    assert read_focus(Project(shop.root, home)) is None
