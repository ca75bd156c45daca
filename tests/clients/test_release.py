"""`scripts/release`: everything that a release consists of, whole and with absolute addresses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
from clients import World, client
from places import ROOT

from ralph import __version__
from ralph.doors.mcp.context import read_options

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

ADDRESS = "https://github.com/example/ralph"
SCRIPT = ROOT / "scripts" / "release.py"


def build(root: Path, address: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script of a project in its folder."""
    command = [sys.executable, str(root / "scripts" / "release.py"), address, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this project whose changelog has an entry for its version."""
    pytest.importorskip("hatchling")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout")
    root = tmp_path_factory.mktemp("release") / "ralph"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    prefix = f"--prefix={root}/"
    subprocess.run(["git", "checkout-index", "--all", prefix], cwd=ROOT, check=True)
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    entry = f"## [Unreleased]\n\n## [{__version__}] - 2026-11-19"
    changelog.write_text(text.replace("## [Unreleased]", entry, 1), encoding="utf-8")
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def released(project: Path) -> Path:
    """The files of a release."""
    folder = project.with_name("dist")
    ran = build(project, ADDRESS, folder)
    assert ran.returncode == 0, ran.stderr
    assert {Path(line).name for line in ran.stdout.splitlines()} == {
        file.name for file in folder.iterdir()
    }
    return folder


def bundle(released: Path) -> Path:
    """The MCP bundle."""
    return released / f"ralph-{__version__}.mcpb"


@pytest.mark.slow
def test_the_readme_of_the_wheel_has_no_relative_link_and_names_the_server(released: Path) -> None:
    [wheel] = released.glob("*.whl")
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("METADATA")]
        metadata = archive.read(name).decode()

    targets = re.findall(r"\]\(([^)]+)\)", metadata)
    assert targets
    assert [target for target in targets if not re.match(r"https?://|#", target)] == []
    assert f"]({ADDRESS}/raw/v{__version__}/docs/images/" in metadata
    assert "mcp-name: io.github.example/ralph" in metadata
    assert f"Project-URL: Homepage, {ADDRESS}" in metadata


@pytest.mark.slow
def test_the_entry_for_the_registry_names_the_bundle_by_its_hash(released: Path) -> None:
    entry = json.loads((released / "server.json").read_bytes())

    assert (entry["name"], entry["version"]) == ("io.github.example/ralph", __version__)
    assert len(entry["description"]) <= 100
    package, packed = entry["packages"]
    words = [argument["value"] for argument in package["packageArguments"]]
    assert words[0] == "mcp"
    assert read_options(words[1:]).mode == "focus"
    assert packed["fileSha256"] == sha256(bundle(released).read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_plugins_say_where_they_come_from(released: Path) -> None:
    with ZipFile(released / f"ralph-plugin-{__version__}.zip") as archive:
        for manifest in ("plugin.json", ".claude-plugin/plugin.json"):
            assert json.loads(archive.read(manifest))["repository"] == ADDRESS
    extension = released / f"ralph-gemini-extension-{__version__}.tar.gz"
    with tarfile.open(extension) as packed:
        assert {"./gemini-extension.json", "./hooks/hooks.json"} <= set(packed.getnames())


@pytest.mark.slow
def test_the_bundle_is_valid_and_its_server_starts(released: Path, world: World) -> None:
    folder = world.folder / "bundle"
    with ZipFile(bundle(released)) as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())

    assert (folder / manifest["server"]["entry_point"]).is_file()
    assert (folder / "pyproject.toml").is_file()
    words = manifest["server"]["mcp_config"]["args"]
    serve = words[words.index("ralph") + 1 :]
    assert serve[0] == "mcp"
    assert read_options(serve[1:]).project == "${user_config.project}"
    world.run([client("mcpb"), "validate", folder / "manifest.json"])


def test_an_address_that_is_none_and_a_missing_entry_are_refused(
    project: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "dist"

    wrong = build(project, "example/ralph", folder)
    unreleased = build(ROOT, ADDRESS, folder)

    assert (wrong.returncode, unreleased.returncode) == (1, 1)
    assert "is not an address such as" in wrong.stderr
    assert f"CHANGELOG.md has no entry for {__version__}" in unreleased.stderr
    assert not folder.exists()
