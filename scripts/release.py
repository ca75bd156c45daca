"""Builds the files of a release; `scripts/release` describes them.

A clone does not know where the project is published. So the address is an argument, and everything
that needs it (absolute links, homepages, the name in the MCP registry) is filled in here, in a copy
of the tracked files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZipFile

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = Path("src/ralph/plugin")
EXTENSION = Path("src/ralph/extension")
PLUGIN_MANIFESTS = (
    PLUGIN / "plugin.json",
    PLUGIN / ".claude-plugin" / "plugin.json",
)
BUNDLED = ("pyproject.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src")
# A link or picture of Markdown whose target is a path in the repository.
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<path>(?![a-z]+:|#)[^)\s]+)\)")
# The registry takes at most 100 characters.
_DESCRIPTION = "Long-term memory for coding agents: what was decided, what failed, what solved it."
_SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


def main(arguments: Sequence[str]) -> int:
    """Build the release; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("repository", help="where the project is, https://HOST/OWNER/NAME")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    options = parser.parse_args(arguments)
    try:
        files = release(ROOT, options.repository, options.folder)
    except ValueError as error:
        sys.stderr.write(f"scripts/release: {error}\n")
        return 1
    for file in files:
        sys.stdout.write(f"{file}\n")
    return 0


def release(root: Path, repository: str, folder: Path) -> list[Path]:
    """Build all files of a release of the project at this root into the folder."""
    address = repository.rstrip("/").removesuffix(".git")
    name = server_name(address)
    version = version_of(root)
    if not re.search(rf"^## \[{re.escape(version)}\]", read(root / "CHANGELOG.md"), re.M):
        raise ValueError(
            f"CHANGELOG.md has no entry for {version}. Rename [Unreleased] to "
            f"[{version}] with the date, and start a new [Unreleased]."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "ralph"
        copy_tracked(root, tree)
        fill_in(tree, address, version, name)
        built = build_packages(tree, folder)
        plugin = folder / f"ralph-plugin-{version}.zip"
        zip_folder(tree / PLUGIN, plugin)
        extension = folder / f"ralph-gemini-extension-{version}.tar.gz"
        with tarfile.open(extension, "w:gz") as archive:
            archive.add(tree / EXTENSION, ".")
        bundle = folder / f"ralph-{version}.mcpb"
        write_bundle(tree, bundle, address, version)
        server = folder / "server.json"
        write_json(server, server_entry(address, version, name, bundle))
    return [*built, plugin, extension, bundle, server]


def server_name(address: str) -> str:
    """Return the name in the MCP registry: reverse DNS of the repository's owner."""
    parts = urlsplit(address)
    path = parts.path.strip("/").split("/")
    if parts.scheme != "https" or not parts.hostname or len(path) != 2:
        raise ValueError(f"{address} is not an address such as https://github.com/OWNER/ralph.")
    owner, project = path
    if parts.hostname == "github.com":
        return f"io.github.{owner}/{project}"
    reverse = ".".join(reversed(parts.hostname.split(".")))
    return f"{reverse}.{owner}/{project}"


def version_of(root: Path) -> str:
    """Return the package's version."""
    found = re.search(r'^__version__ = "([^"]+)"', read(root / "src/ralph/__init__.py"), re.M)
    if found is None:
        raise ValueError("src/ralph/__init__.py has no __version__.")
    return found[1]


def copy_tracked(root: Path, tree: Path) -> None:
    """Copy the files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target)


def fill_in(tree: Path, address: str, version: str, name: str) -> None:
    """Write the address into the README, the package's metadata and the plugins."""
    readme = tree / "README.md"
    text = absolute_links(read(readme), address, version)
    readme.write_text(f"{text}\n<!-- mcp-name: {name} -->\n", encoding="utf-8")
    project = tree / "pyproject.toml"
    urls = {
        "Homepage": address,
        "Documentation": f"{address}/tree/v{version}/docs",
        "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    lines = "".join(f'{label} = "{url}"\n' for label, url in urls.items())
    project.write_text(f"{read(project)}\n[project.urls]\n{lines}", encoding="utf-8")
    for manifest in PLUGIN_MANIFESTS:
        entry = {**read_json(tree / manifest), "homepage": address, "repository": address}
        write_json(tree / manifest, entry)


def absolute_links(text: str, address: str, version: str) -> str:
    """Return Markdown whose links lead to the repository, also where there are no other files."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({address}/{kind}/v{version}/{link['path']})"

    return _LINK.sub(absolute, text)


def build_packages(tree: Path, folder: Path) -> list[Path]:
    """Build the wheel and the source package."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder.resolve())]
    built = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if built.returncode:
        raise ValueError(f"hatchling failed:\n{built.stderr.strip()}")
    names = re.findall(r"[^\s/]+\.(?:whl|tar\.gz)", built.stdout + built.stderr)
    return [folder / name for name in dict.fromkeys(names)]


def write_bundle(tree: Path, bundle: Path, address: str, version: str) -> None:
    """Write the MCP bundle: the package itself, which the host starts with uv."""
    folder = tree.with_name("bundle")
    folder.mkdir()
    for name in BUNDLED:
        source = tree / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy2(source, folder / name)
    write_json(folder / "manifest.json", bundle_manifest(address, version))
    zip_folder(folder, bundle)


def bundle_manifest(address: str, version: str) -> dict[str, Any]:
    """Return the manifest of the MCP bundle."""
    serve = ["mcp", "--focus", "--project", "${user_config.project}"]
    return {
        "manifest_version": "0.4",
        "name": "ralph",
        "display_name": "Ralph",
        "version": version,
        "description": "Long-term memory for coding agents.",
        "author": {"name": "Ralph", "url": address},
        "repository": {"type": "git", "url": address},
        "homepage": address,
        "documentation": f"{address}/tree/v{version}/docs",
        "support": f"{address}/issues",
        "license": "MIT OR Apache-2.0",
        "keywords": ["memory", "coding agents", "mcp"],
        "server": {
            "type": "uv",
            "entry_point": "src/ralph/__main__.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "ralph", *serve],
            },
        },
        "tools_generated": True,
        "compatibility": {
            "platforms": ["darwin", "win32", "linux"],
            "runtimes": {"python": ">=3.11"},
        },
        "user_config": {
            "project": {
                "type": "directory",
                "title": "Project",
                "description": "The folder whose memory is searched",
                "required": True,
            }
        },
    }


def server_entry(address: str, version: str, name: str, bundle: Path) -> dict[str, Any]:
    """Return the entry for the MCP registry."""
    words = [{"type": "positional", "value": word} for word in ("mcp", "--focus")]
    return {
        "$schema": _SERVER_SCHEMA,
        "name": name,
        "title": "Ralph",
        "description": _DESCRIPTION,
        "version": version,
        "websiteUrl": address,
        "repository": {
            "url": address,
            "source": (urlsplit(address).hostname or "").split(".")[0],
        },
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "ralph-rag",
                "version": version,
                "runtimeHint": "uvx",
                "packageArguments": words,
                "transport": {"type": "stdio"},
            },
            {
                "registryType": "mcpb",
                "identifier": f"{address}/releases/download/v{version}/{bundle.name}",
                "version": version,
                "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
                "transport": {"type": "stdio"},
            },
        ],
    }


def zip_folder(folder: Path, file: Path) -> None:
    """Write all files of a folder into a zip file."""
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())


def read(file: Path) -> str:
    """Return the text of a file."""
    return file.read_text(encoding="utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    entry: dict[str, Any] = json.loads(read(file))
    return entry


def write_json(file: Path, entry: dict[str, Any]) -> None:
    """Write an object to a JSON file."""
    file.write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
