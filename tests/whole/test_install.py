"""The package as a stranger gets it: the wheel on clean Pythons, and the README's own commands.

uv, pipx and Python 3.14 come by `scripts/pythons`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from places import ROOT

if sys.platform == "win32":
    pytest.skip("the installers are driven as on POSIX", allow_module_level=True)

from clients import World, client, missing, worlds
from scripted_model import Request, Run, ScriptedModel, Step

TOOLS = ROOT / ".pythons"
PACKAGE = ROOT / "src" / "ralph"
SETTINGS = ("PIP_", "UV_", "SSL_", "REQUESTS_")


@pytest.fixture
def world(tmp_path: Path, pins: str) -> Iterator[World]:
    """A scratch world with the installers in it, and no Ralph."""
    uv, pipx = tool("uv"), tool("pipx")
    for world in worlds(tmp_path):
        world.environ |= {k: v for k, v in os.environ.items() if k.startswith(SETTINGS)}
        world.environ |= {"UV_CONSTRAINT": pins, "PIP_CONSTRAINT": pins}
        world.environ |= {"UV_CACHE_DIR": str(TOOLS / "cache")}
        # What a version of Python is called differs, and none is fetched.
        base = str(getattr(sys, "_base_executable", sys.executable))
        world.environ |= {"UV_PYTHON": base, "PIPX_DEFAULT_PYTHON": base}
        folders = [world.home / ".local" / "bin", Path(uv).parent, Path(pipx).parent]
        world.environ["PATH"] = ":".join([*map(str, folders), world.environ["PATH"]])
        del world.environ["RALPH_HOME"]
        yield world


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The pinned versions, without hashes and extras: what is built here has none."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line.removesuffix(" \\") for line in lines if re.match(r"[a-z0-9].*==", line)]
    file = tmp_path_factory.mktemp("pins") / "constraints.txt"
    file.write_text(re.sub(r"\[.*?\]", "", "\n".join(found)) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    [built] = folder.glob("*.whl")
    return built


def tool(name: str) -> str:
    """The path of an installer, or the test ends here."""
    found = shutil.which(name, path=str(TOOLS / "bin")) or shutil.which(name)
    if found is None:
        missing(f"{name} is not there", "Run: scripts/pythons")
    return str(found)


def python_of(version: str) -> str:
    """An interpreter of this version, or the test ends here."""
    own = TOOLS / version / "usr" / "bin" / f"python{version}"
    for name in (f"python{version}", str(own)):
        with contextlib.suppress(OSError):
            words = [name, "-c", "import sqlite3, ssl, sys; print(sys.executable)"]
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                return ran.stdout.strip()
    pytest.skip(f"there is no Python {version} here. Run: scripts/pythons")


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = (file for file in PACKAGE.rglob("*") if file.is_file())
    there = {f"ralph/{file.relative_to(PACKAGE).as_posix()}" for file in files}
    there = {name for name in there if "__pycache__" not in name}
    data = {
        "index/embedders/table.bin",
        "capture/rules.txt",
        "text/assignments.txt",
        "text/orders.txt",
        "text/rules.txt",
        "text/sameness.txt",
        "text/secrets.txt",
        "clients/opencode_plugin.js",
    }
    assert {f"ralph/{name}" for name in data} <= there <= set(ZipFile(wheel).namelist())


@pytest.mark.parametrize("version", ["3.11", "3.14"])
def test_the_wheel_works_on_a_clean_python(world: World, wheel: Path, version: str) -> None:
    venv = world.folder / "venv"
    world.run([tool("uv"), "venv", "--python", python_of(version), venv])
    world.run([tool("uv"), "pip", "install", "--python", venv / "bin" / "python", wheel])
    ralph = venv / "bin" / "ralph"
    root = world.folder / "project"
    root.mkdir()
    world.run([ralph, "init"], cwd=root)
    checks = json.loads(world.run([ralph, "doctor", "--json"], cwd=root).stdout)["checks"]
    states = {check["name"]: (check["state"], check["detail"]) for check in checks}
    assert states["python"][1].startswith(f"{version}.")
    assert states["embedder"][0] == states["index"][0] == "ok"
    # The embedder's table finds what has no word of the question.
    world.run([ralph, "remember", "The staging database resets every night"], cwd=root)
    hits = json.loads(world.run([ralph, "search", "--json", "staging db reset"], cwd=root).stdout)
    assert hits
    # The loop with its prompts, captured runs and learnings.
    shown = world.run([ralph, "demo"], cwd=root).stdout
    assert "success" in shown
    # What clients are given.
    world.run([ralph, "hooks", "install", "--agent", "opencode"], cwd=root)
    assert (root / ".opencode" / "plugins" / "ralph.js").is_file()
    plugin = Path(world.run([ralph, "hooks", "plugin-path"]).stdout.strip())
    assert (plugin / "hooks" / "hooks.json").is_file()


# -- The README's own commands.


def commands(heading: str) -> list[str]:
    """The commands in the blocks of a section of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"# {heading}\n")[2].partition("\n#")[0]
    found = re.findall(r"^    (\S.*)$", section.partition("```")[0], re.M)
    assert found, heading
    return [line.partition("  #")[0].strip() for line in found]


def test_the_python_of_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.S)[0]
    exec(code.replace("path/to/project", tmp_path.as_posix()), {})
    assert "Sessions expire after 15 minutes" in capsys.readouterr().out


def run(world: World, command: str, cwd: Path) -> str:
    """A line of the README as a shell runs it."""
    return world.run(["sh", "-c", command], cwd=cwd).stdout


def ask(world: World, root: Path, text: str) -> None:
    """A person's own session of one prompt."""
    world.run([client("claude"), "-p", "--", text], cwd=root)


def shown(request: Request) -> str:
    return request.system + request.shown


def test_three_commands_lead_to_the_first_recalled_memory(world: World) -> None:
    """On a machine where Claude Code was used before; what is done from now on is known too."""
    install, *others = commands("Start")
    assert len(others) <= 2
    root = world.folder / "shop"
    root.mkdir()
    fix = "The csv export failed because the delimiter was a semicolon; I set it to a comma."
    more = "The pdf export needed the font DejaVu, which I installed."
    runs = (
        Run(when="repair the csv export", steps=(Step(text=fix),)),
        Run(when="csv export is broken again", steps=(Step(text="I know why."),)),
        Run(when="repair the pdf export", steps=(Step(text=more),)),
        Run(when="pdf export is broken again", steps=(Step(text="I know why."),)),
    )
    world.environ["RALPH_HOOK_TIMEOUT_S"] = "60"  # a slow machine is no failure here
    with ScriptedModel(*runs) as model:
        world.talk_to(model.url)
        ask(world, root, "Please repair the csv export.")
        for file in (world.home / ".claude" / "projects").rglob("*.jsonl"):
            os.utime(file, (0, file.stat().st_mtime - 60))  # it was some time ago
        run(world, install, ROOT)
        for command in others:
            # There is no terminal to answer yes in.
            answered = command.replace("hooks install --user", "hooks install --user --import")
            run(world, answered, world.home)
        ask(world, root, "The csv export is broken again, what was it?")
        ask(world, root, "Please repair the pdf export.")
        ask(world, root, "The pdf export is broken again, what was it?")
    assert "the delimiter was a semicolon" in shown(model.asked(1)[0])
    assert "the font DejaVu" in shown(model.asked(3)[0])
    leave(world, root)


def leave(world: World, root: Path) -> None:
    """What the README says of backups and of removing everything."""
    for command in commands("Back it up"):
        run(world, command, world.home)
    run(world, "git init --quiet && ralph init && ralph hooks install", root)
    hooks, home, package, *project = commands("Remove it")
    for command in project:
        run(world, command, root)
    for command in (hooks, home, package):
        run(world, command, world.home)
    assert "ralph" not in (root / ".git" / "config").read_text(encoding="utf-8")
    assert [file.name for file in root.iterdir()] == [".git"]
    assert not shutil.which("ralph", path=world.environ["PATH"])
    left = [world.home / name for name in (".claude/settings.json", ".claude.json", ".ralph")]
    assert not any("ralph" in file.read_text(encoding="utf-8") for file in left if file.exists())


@pytest.mark.parametrize("installer", ["pipx install", "uvx --from"])
def test_the_other_ways_to_install_work(world: World, installer: str) -> None:
    [command] = [line for line in commands("Install") if line.startswith(installer)]
    run(world, command, ROOT)
    if installer == "pipx install":
        assert run(world, "ralph --version", world.home).startswith("ralph ")
