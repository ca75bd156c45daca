"""A project's `.ralph` may be a stranger's: no link, no pipe, nothing endless, at any level."""

from __future__ import annotations

import ast
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph import disk
from ralph.errors import BadInput, UnsafeFile

SOURCE = Path(disk.__file__).parent
needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / ".ralph" / "db" / "memory").mkdir(parents=True)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "bashrc"
    file.write_text("# mine\n", encoding="utf-8")
    return file


def locked(path: Path) -> None:
    with disk.lock(path, timeout_s=0):
        pass


def opened(path: Path) -> None:
    disk.open_reader(path).close()


# Everything that touches one file.
CALLS: dict[str, Callable[[Path], object]] = {
    "read": disk.read,
    "opened": opened,
    "stat": disk.stat,
    "exists": disk.exists,
    "locked": locked,
    "write": lambda path: disk.write(path, b"x"),
    "replace": lambda path: disk.replace(path, b"x"),
    "create": lambda path: disk.create(path, b"x"),
}


@needs_links
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_file_that_is_a_link_is_refused(
    root: Path, victim: Path, call: Callable[[Path], object]
) -> None:
    file = root / ".ralph" / "db" / "features.yaml"
    file.symlink_to(victim)
    with pytest.raises(UnsafeFile, match=r"features\.yaml: it is a link; Ralph does not follow"):
        call(file)
    assert victim.read_text(encoding="utf-8") == "# mine\n"


@needs_links
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_dangling_link_creates_nothing(
    root: Path, tmp_path: Path, call: Callable[[Path], object]
) -> None:
    file = root / ".ralph" / "rag_config.json"
    file.symlink_to(tmp_path / "not there")
    with pytest.raises(UnsafeFile, match="it is a link"):
        call(file)
    assert not (tmp_path / "not there").exists()


@needs_links
@pytest.mark.parametrize("level", [".ralph", ".ralph/db", ".ralph/db/memory"])
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_folder_on_the_way_that_is_a_link_is_refused(
    root: Path, tmp_path: Path, level: str, call: Callable[[Path], object]
) -> None:
    (root / level).rename(tmp_path / "theirs")
    (root / level).symlink_to(tmp_path / "theirs", target_is_directory=True)
    with pytest.raises(UnsafeFile, match=f"{level}: it is a link"):
        call(root / ".ralph" / "db" / "memory" / "auth.jsonl")
    with pytest.raises(UnsafeFile, match="it is a link"):
        disk.names(root / ".ralph" / "db" / "memory")
    with pytest.raises(UnsafeFile, match="it is a link"):
        disk.make_folder(root / ".ralph" / "db" / "memory" / "new")
    with pytest.raises(UnsafeFile, match="it is a link"):
        disk.remove(root / ".ralph" / "db" / "memory" / "auth.jsonl")
    assert not list((tmp_path / "theirs").rglob("*.jsonl"))


@needs_links
def test_removing_a_link_leaves_what_it_points_to(root: Path, victim: Path) -> None:
    file = root / ".ralph" / "db" / "tasks.yaml"
    file.symlink_to(victim)
    disk.remove(file)
    assert not file.is_symlink()
    assert victim.exists()


@needs_links
def test_a_draft_of_a_stranger_is_not_written_through(root: Path, victim: Path) -> None:
    file = root / ".ralph" / "db" / "tasks.yaml"
    for serial in range(2000):
        (file.parent / f".tasks.yaml.{os.getpid()}-{serial}.tmp").symlink_to(victim)
    disk.replace(file, b"version: 1\n")
    assert file.read_bytes() == b"version: 1\n"
    assert victim.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_pipe_is_refused_and_not_waited_for(root: Path, call: Callable[[Path], object]) -> None:
    file = root / ".ralph" / "db" / "metadata.yaml"
    if sys.platform != "win32":
        os.mkfifo(file)
    with pytest.raises(UnsafeFile, match="it is a pipe or device"):
        call(file)


@pytest.mark.skipif(sys.platform == "win32", reason="no sockets in the file system")
def test_a_socket_and_a_folder_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / ".ralph")
    if sys.platform != "win32":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("rag_config.json")
            with pytest.raises(UnsafeFile, match="it is a pipe or device"):
                disk.read(root / ".ralph" / "rag_config.json")
    (root / ".ralph" / "db" / "tasks.yaml").mkdir()
    with pytest.raises(UnsafeFile, match="it is a folder"):
        disk.read(root / ".ralph" / "db" / "tasks.yaml")


def test_a_file_that_is_too_large_is_refused_without_being_read(root: Path) -> None:
    file = root / ".ralph" / "rag_config.json"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    with pytest.raises(UnsafeFile, match="it is larger than 1000 bytes"):
        disk.read(file, largest=1000)


def test_the_refusal_is_an_error_of_ours_and_one_of_the_system(root: Path) -> None:
    error = UnsafeFile("it is a link", where="x", todo="Look at it.")
    assert isinstance(error, OSError)
    assert isinstance(error, BadInput)
    assert str(error) == "x: it is a link. Look at it."
    assert error.strerror == "it is a link"


@needs_links
def test_a_person_s_own_links_are_followed_in_the_home(
    home: Path, tmp_path: Path, root: Path
) -> None:
    (tmp_path / "large disk").mkdir()
    home.mkdir(exist_ok=True)
    (home / "journal").symlink_to(tmp_path / "large disk", target_is_directory=True)
    disk.replace(home / "journal" / "notes.jsonl", b"x")
    assert (tmp_path / "large disk" / "notes.jsonl").read_bytes() == b"x"


# -- whose it is


@pytest.mark.skipif(sys.platform == "win32", reason="one user's files")
def test_what_is_written_in_the_home_is_its_owner_s_alone(home: Path) -> None:
    folder = home / "journal" / "conversations"
    disk.make_folder(folder)
    disk.replace(folder / "a", b"x")
    disk.create(folder / "b", b"x")
    disk.write(folder / "c", b"x")
    locked(folder / "d")
    for path in (home, home / "journal", folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.skipif(sys.platform == "win32", reason="one user's files")
def test_a_home_that_others_could_read_is_closed_with_all_that_is_in_it(home: Path) -> None:
    (home / "journal").mkdir(parents=True, exist_ok=True)
    (home / "journal" / "general.jsonl").write_text("private", encoding="utf-8")
    for path in (home, home / "journal"):
        path.chmod(0o755)
    (home / "journal" / "general.jsonl").chmod(0o644)
    disk.protect(home)
    for path in (home, *home.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.skipif(sys.platform == "win32", reason="one user's files")
def test_what_is_written_in_a_project_is_the_team_s(root: Path) -> None:
    before = os.umask(0o022)
    try:
        disk.replace(root / ".ralph" / "db" / "tasks.yaml", b"x")
    finally:
        os.umask(before)
    assert (root / ".ralph" / "db" / "tasks.yaml").stat().st_mode & 0o777 == 0o644


# -- the only way

# Modules that open, list or delete files without `ralph.disk`, and whose files those are. None of
# them is given a path in a project's `.ralph`.
OTHER_FILES = {
    "capture.lines": "the names of the clients' transcripts",
    "chat.model": "a folder of its own for a program",
    "chat.workers": "Ralph's home",
    "clients.agents": "the agent's program; the package",
    "clients.codex": "the run's own folder in Ralph's home",
    "clients.codex_hooks": "the client's transcript",
    "clients.gemini": "the client's transcripts",
    "clients.hook_settings": "the package",
    "clients.opencode": "the package; the client's database",
    "clients.setup": "settings of the clients",
    "doors.cli.commands.run": "a scratch folder",
    "doors.cli.commands.doctor": "Ralph's home",
    "doors.cli.commands.storage": "Ralph's home",
    "doors.cli.commands.project": "the folder that a person names",
    "doors.cli.commands.transfer": "the file that a person names",
    "doors.cli.context": "the file that a person names",
    "doors.cli.main": "/dev/null",
    "doors.hooks.compaction": "the client's transcript",
    "doors.hooks.long_sessions": "the client's transcript",
    "doors.hooks.session_end": "the client's transcript",
    "doors.hooks.sessions": "Ralph's home",
    "doors.mcp.main": "the folder that a person names",
    "doors.mcp.server": "files of the project that the plan names",
    "memory.general_fixes": "Ralph's home",
    "doors.rest.main": "no file: the address in a browser",
    "index.embedders.served": "Ralph's home",
    "index.embedders.static": "the package's model; Ralph's home",
    "index.qdrant_start": "Ralph's home",
    "index.sqlite": "Ralph's home",
    "journal.file": "the copies of runs in Ralph's home",
    "journal.ledger": "Ralph's home",
    "journal.session": "Ralph's home; the package",
    "current_run": "/proc",
    "journal.spool": "Ralph's home",
    "loop.agent": "the run's own folder in Ralph's home; Ralph's home",
    "loop.braindump": "the run's own folder in Ralph's home; Ralph's home",
    "loop.git": "worktrees in Ralph's home",
    "loop.iteration": "files of the project that the plan names; Ralph's home",
    "loop.keeper": "/proc",
    "loop.process": "the run's own folder in Ralph's home",
    "loop.scripted": "a stand-in for an agent: it works in a project like one",
    "memory.activity": "Ralph's home",
    "memory.anchors": "Ralph's home",
    "memory.blame": "the file or folder that a person names",
    "memory.replaced": "Ralph's home",
    "memory.uses": "Ralph's home",
    "memory.backup": "Ralph's home, and the file that a person names",
    "memory.documents": "the files that a person names",
    "memory.copies": "Ralph's home",
    "memory.moments": "Ralph's home",
    "memory.moments_table": "Ralph's home",
    "memory.outbox": "Ralph's home",
    "memory.lessons": "the names of the project's own files",
    "memory.past_sessions": "folders of the clients' sessions",
    "memory.project": "looks for `.ralph` and `.git` on the way up; git's own folder",
    "memory.ralph": "the folder that a program names",
    "memory.sessions": "the clients' transcripts",
    "memory.store": "Ralph's home",
    "memory.working_copy": "files of the project, and git's own",
    "memory.transfer": "Ralph's home",
    "plan.undo": "Ralph's home",
    "plan.edit": "files of the project that the plan names",
    "programs": "programs on the PATH",
    "prompt.build": "the package",
    "state_folders": "Ralph's home",
    "text.tokens": "the package",
}
RAW = set(
    """
    read_text read_bytes write_text write_bytes unlink mkdir rmdir iterdir glob rglob rmtree
    copyfile copytree listdir scandir makedirs symlink_to hardlink_to chmod walk open is_file is_dir
    exists stat lstat
    """.split()
)
OURS = {"disk", "own_files"}


def raw_calls(module: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            call = node.func
            if isinstance(call, ast.Name) and call.id == "open":
                found.append(f"{node.lineno}: open")
            elif isinstance(call, ast.Attribute) and call.attr in RAW:
                of = call.value.id if isinstance(call.value, ast.Name) else ""
                if of not in OURS and not (of == "self" and call.attr == "open"):
                    found.append(f"{node.lineno}: {call.attr}")
    return found


def test_files_in_a_project_are_reached_through_disk_alone() -> None:
    for module in sorted(SOURCE.rglob("*.py")):
        name = ".".join(module.relative_to(SOURCE).with_suffix("").parts)
        if name == "disk":
            continue
        found = raw_calls(module)
        assert not found or name in OTHER_FILES, f"{name} opens files without disk: {found}"


def test_the_list_of_other_files_is_no_longer_than_it_must_be() -> None:
    for name in OTHER_FILES:
        module = SOURCE.joinpath(*name.split(".")).with_suffix(".py")
        assert raw_calls(module), f"{name} needs no exception any more"
