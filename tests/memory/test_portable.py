"""What other projects are told names no folder of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ralph.memory.lessons import portable, portable_text
from ralph.records.knowledge import FailureSolution


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open {root}/src/a.py:3", "open src/a.py:3"),
        ("cd {root} && make", "cd ./ && make"),
        ("It is in {root}.", "It is in ./."),
        ("'{root}/'", "'./'"),
        ("PYTHONPATH={root}/src:{root}/lib", "PYTHONPATH=src:lib"),
        ("gcc -I{root}/include", "gcc -Iinclude"),
        ("{root}.bak/a {root}s/a {root}-2/a", "{root}.bak/a {root}s/a {root}-2/a"),
        ("/mnt{root}/a .{root}/a", "/mnt{root}/a .{root}/a"),
        ("{home}/.cache/a, {home}", "~/.cache/a, ~"),
        ("https://host{root}/a", "https://host{root}/a"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_paths_are_told_as_seen_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    if sys.platform == "win32":
        pytest.skip("a path begins with a slash here")
    root, home = tmp_path / "shop", tmp_path / "alice"
    monkeypatch.setenv("HOME", str(home))
    names = {"root": str(root), "home": str(home)}
    told = portable_text(text.format(**names), root)
    assert told == expected.format(**names)
    assert portable_text(told, root) == told


def test_a_folder_is_known_by_the_name_it_was_reached_by_and_by_its_own(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    try:
        (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    except OSError:
        pytest.skip("no links here")
    for name in ("real", "link"):
        assert portable_text(f"in {tmp_path / name / 'a.py'}", tmp_path / "link") == "in a.py"


def test_a_project_at_the_root_of_a_drive_takes_nothing_out() -> None:
    root = Path(Path.cwd().anchor)
    assert portable_text("/usr/lib and C:/lib", root) == "/usr/lib and C:/lib"


def test_every_text_of_an_entry_is_seen_to_but_not_whose_it_is(tmp_path: Path) -> None:
    place = str(tmp_path / "a.py")
    told = portable(
        FailureSolution(
            project=place, failure_description=place, error_message=place, solution_steps=place
        ),
        tmp_path,
    )
    assert told.project == place
    assert {told.failure_description, told.error_message, told.solution_steps} == {"a.py"}
