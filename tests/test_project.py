"""The project's own files: what is pinned, what is promised, and what must not leak into them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

from ralph import __version__

# Written in pieces, so that this file does not hold what it forbids.
MACHINE_PATH = re.compile(
    r"(?:(?<![\w./~-])|(?<=://))/(?:" + "|".join(["work", "root", "farm"]) + ")/"
)
REGISTRY = re.compile(
    "|".join(
        rf"\b{name}\.{end}\b"
        for name, end in [
            (r"pypi", "org"),
            (r"pythonhosted", "org"),
            (r"npmjs", "(?:org|com)"),
            (r"yarnpkg", "com"),
            (r"crates", "io"),
            (r"deb\.debian", "org"),
        ]
    ),
    re.IGNORECASE,
)
LOCK_FILE = re.compile(
    r"(?:.*[.-])?lock(?:b|\.json|\.yaml|\.toml)?|npm-shrinkwrap\.json|pylock\..*"
)
ADDRESS = re.compile(r"\b(?:https?|ftp|git|ssh|file)(?:\+\w+)?://")


def places(pattern: re.Pattern[str], text: str) -> list[str]:
    """The line number and the match of each place where the pattern is found."""
    return [
        f"{number}: {match.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
    ]


PINNED = re.compile(r"^[a-z0-9][\w.-]*(?:\[[\w,-]+\])?==[\w.!+]+", re.MULTILINE)


def pins(constraints: str) -> dict[str, tuple[str, int]]:
    """Of each package in a constraints file: its exact version and how many hashes it has."""
    found: dict[str, tuple[str, int]] = {}
    entries = re.split(r"\n(?=[^\s#])", re.sub(r"^#.*\n", "", constraints, flags=re.MULTILINE))
    for entry in entries:
        pin = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.!+]+)(?: ;[^\\]*)?(?: \\)?(?:\n|$)", entry)
        assert pin, f"not an exact pin: {entry.splitlines()[0]}"
        hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)
        found[canonicalize_name(pin[1])] = (pin[2], len(hashes))
    return found


def named_dependencies() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [
        project["build-system"]["requires"],
        project["project"]["dependencies"],
        *project["project"].get("optional-dependencies", {}).values(),
        *project["dependency-groups"].values(),
    ]
    requirements = [Requirement(text) for group in groups for text in group]
    return [r for r in requirements if r.name != project["project"]["name"]]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every text file that is, or is about to be, under version control."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    files = {}
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and b"\0" not in (content := path.read_bytes()):
            files[name] = content.decode("utf-8", errors="replace")
    assert "pyproject.toml" in files
    return files


def test_no_file_names_a_place_on_somebodys_machine(texts: dict[str, str]) -> None:
    found = {name: places(MACHINE_PATH, text) for name, text in texts.items()}
    assert {name: where for name, where in found.items() if where} == {}


def test_no_file_names_a_registry(texts: dict[str, str]) -> None:
    found = {name: places(REGISTRY, text) for name, text in texts.items()}
    assert {name: where for name, where in found.items() if where} == {}


def test_no_lock_file_holds_download_addresses(texts: dict[str, str]) -> None:
    found = {
        name: places(ADDRESS, text)
        for name, text in texts.items()
        if LOCK_FILE.fullmatch(Path(name).name) or name == "constraints.txt"
    }
    assert "constraints.txt" in found
    assert {name: where for name, where in found.items() if where} == {}


def test_the_constraints_pin_every_named_dependency_with_hashes() -> None:
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    wrong = []
    for requirement in named_dependencies():
        version, hashes = pinned.get(canonicalize_name(requirement.name), ("none", 0))
        if not hashes or not requirement.specifier.contains(version):
            wrong.append(
                f"{requirement}: pinned is {version} with {hashes} hashes; run scripts/lock"
            )
    assert wrong == []


def test_extras_that_packages_ask_for_are_pinned_too() -> None:
    # pip takes `coverage[toml]` for a package of its own. Unpinned, its newest version is refused.
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {Requirement(one).name: Requirement(one).extras for one in PINNED.findall(text)}
    needed = [Requirement(one) for dist in distributions() for one in dist.requires or ()]
    asked = {
        (canonicalize_name(one.name), extra)
        for one in needed
        if one.marker is None or one.marker.evaluate({"extra": ""})
        for extra in one.extras
    }
    assert ("coverage", "toml") in asked
    assert {(name, x) for name, x in asked if name in pinned and x not in pinned[name]} == set()


def test_every_pin_has_hashes() -> None:
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert [name for name, (_, hashes) in pinned.items() if not hashes] == []


def test_the_changelog_tells_of_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[(?:Unreleased|{re.escape(__version__)})\]"
    assert re.search(heading, changelog, flags=re.MULTILINE)


@pytest.mark.parametrize("command", ["scripts/demo", "scripts/test"])
def test_the_readme_names_the_command(command: str) -> None:
    assert (ROOT / command).is_file()
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")


# The checks above are only worth something if they can fail.


@pytest.mark.parametrize("start", ["", "see ", "path='", "(", "file://", "A="])
def test_a_machine_path_is_seen(start: str) -> None:
    assert places(MACHINE_PATH, f"fine\n{start}/{'work'}/main/x")[0].startswith("2: ")


@pytest.mark.parametrize("path", ["src/work/x", "/tmp/work/x", "~/root/x", "../farm/x", "/works/x"])
def test_another_path_is_no_machine_path(path: str) -> None:
    assert places(MACHINE_PATH, path) == []


@pytest.mark.parametrize(
    "host", ["py" + "pi.org", "files.python" + "hosted.org", "registry.npm" + "js.org"]
)
def test_a_registry_is_seen(host: str) -> None:
    assert len(places(REGISTRY, f"fine\n--index-url https://{host}/simple")) == 1


@pytest.mark.parametrize(
    "name",
    ["uv.lock", "poetry.lock", "package-lock.json", "pnpm-lock.yaml", "pylock.toml", "bun.lockb"],
)
def test_a_lock_file_is_known_by_its_name(name: str) -> None:
    assert LOCK_FILE.fullmatch(name)


def test_a_pin_without_a_hash_counts_none() -> None:
    text = (
        "# made\na==1.0\nb==2.0 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "0" * 64 + "\n"
    )
    assert pins(text) == {"a": ("1.0", 0), "b": ("2.0", 1)}


def test_a_loose_pin_is_refused() -> None:
    with pytest.raises(AssertionError, match="not an exact pin: a>=1"):
        pins("a>=1\n")
