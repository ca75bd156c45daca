"""`ralph hooks`: set up in one call, shown as it is, and gone without a trace."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commanding import Line

from ralph import __version__
from ralph.clients import TITLES
from ralph.clients.codex import CodexSetup
from ralph.clients.hook_settings import PLUGIN_FOLDER, hooks_in, wanted_hooks
from ralph.clients.setup import NAMED, RalphCall
from ralph.memory.project import Project

WHERE = Path("config.toml")
EVENTS = list(wanted_hooks(RalphCall(NAMED)))
OLD_BLOCK = CodexSetup().with_server(None, RalphCall("old/ralph"), Path("config.toml"))


@pytest.fixture
def ralph(ralph: Line, monkeypatch: pytest.MonkeyPatch) -> Line:
    """The command line in the project, with nothing on the PATH but the system's programs."""
    if sys.platform != "win32":
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return ralph


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the front of the PATH, for programs that a test makes."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def program(file: Path, script: str) -> Path:
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def this_ralph(folder: Path) -> Path:
    return program(folder / "ralph", f'exec {shlex.quote(sys.executable)} -m ralph "$@"')


posix = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")


# -- the command line


def files(root: Path) -> dict[str, bytes]:
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and ".ralph" not in file.relative_to(root).parts
    }


def test_a_project_is_set_up_once_and_cleaned_without_a_trace(ralph: Line, project: Path) -> None:
    before = files(project)

    ralph.well("hooks", "install")
    installed = files(project)
    again = ralph.well("hooks", "install", "--project")

    assert sorted(installed) == [".claude/settings.json", ".mcp.json"]
    assert list(json.loads(installed[".claude/settings.json"])["hooks"]) == EVENTS
    assert json.loads(installed[".mcp.json"])["mcpServers"]["ralph-memory"] == {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-E", "-P", "-m", "ralph", "mcp", "--focus"],
        "alwaysLoad": True,
    }
    assert files(project) == installed
    assert again.out.count("Already up to date") == 2
    assert ralph.well("hooks", "uninstall").out.count("Removed") == 2
    assert files(project) == before
    assert not (project / ".claude").exists()
    assert ralph.well("hooks", "uninstall").out == "Ralph was not set up there.\n"


def test_settings_that_were_there_keep_their_order_and_mode_and_the_previous_file(
    ralph: Line, project: Path
) -> None:
    (project / ".claude").mkdir()
    file = project / ".claude" / "settings.json"
    before = '{"permissions": {"allow": ["Bash(git *)", "é"]},\n    "model": "opus"}'
    file.write_text(before, encoding="utf-8")
    file.chmod(0o600)

    ralph.well("hooks", "install", "--no-mcp")

    written = file.read_text(encoding="utf-8")
    assert list(json.loads(written)) == ["permissions", "model", "hooks"]
    assert written == json.dumps(json.loads(written), indent=2, ensure_ascii=False) + "\n"
    previous = file.with_name("settings.json.bak")
    assert files(project).keys() == {".claude/settings.json", ".claude/settings.json.bak"}
    assert previous.read_text(encoding="utf-8") == before
    assert {stat.S_IMODE(one.stat().st_mode) for one in (file, previous)} == {0o600}

    ralph.well("hooks", "uninstall")

    assert json.loads(file.read_bytes()) == json.loads(before)
    ralph.well("hooks", "install", "--no-mcp")
    assert previous.read_text(encoding="utf-8") == before, "kept once"


@posix
def test_a_link_in_the_place_of_the_previous_file_is_not_written_through(
    ralph: Line, project: Path, tmp_path: Path
) -> None:
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text('{"model": "x"}', encoding="utf-8")
    mine = tmp_path / "mine"
    (project / ".claude" / "settings.json.bak").symlink_to(mine)

    ralph.well("hooks", "install", "--no-mcp")

    assert not mine.exists()


@posix
def test_a_persons_linked_folder_stays_and_everything_else_goes(
    ralph: Line, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "dotfiles"
    folder.mkdir()
    (home.parent / ".claude").symlink_to(folder)

    ralph.well("hooks", "install", "--user", "--no-mcp")
    assert (folder / "settings.json").exists()
    ralph.well("hooks", "uninstall", "--user")

    assert (home.parent / ".claude").is_symlink()
    assert list(folder.iterdir()) == []


@posix
def test_a_persons_own_link_is_written_through_and_stays(
    ralph: Line, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text('{"model": "opus"}\n', encoding="utf-8")
    (home.parent / ".claude").mkdir()
    link = home.parent / ".claude" / "settings.json"
    link.symlink_to(target)

    ralph.well("hooks", "install", "--user", "--no-mcp")

    assert link.is_symlink()
    assert "SessionStart" in json.loads(target.read_bytes())["hooks"]
    ralph.well("hooks", "uninstall", "--user")
    assert json.loads(target.read_bytes()) == {"model": "opus"}
    target.unlink()
    ralph.well("hooks", "install", "--user", "--no-mcp")
    ralph.well("hooks", "uninstall", "--user")
    assert link.is_symlink()
    assert target.read_bytes() == b"{}\n"


@posix
@pytest.mark.parametrize(
    ("link", "target"),
    [
        (".claude/settings.json", "person.json"),
        (".claude", "."),
        (".mcp.json", "person.json"),
        (".mcp.json", "not there yet"),
        (".codex", "."),
        (".codex/config.toml", "person.toml"),
    ],
)
def test_a_link_in_a_project_is_refused_and_nothing_is_written(
    ralph: Line, project: Path, tmp_path: Path, link: str, target: str
) -> None:
    person = tmp_path / "person"
    person.mkdir()
    (person / "person.json").write_text("{}", encoding="utf-8")
    (person / "person.toml").write_text("", encoding="utf-8")
    before = files(person)
    (project / link).parent.mkdir(exist_ok=True)
    (project / link).symlink_to(person / target)
    agent = "codex" if "codex" in link else "claude"

    installed = ralph("hooks", "install", "--agent", agent)
    removed = ralph("hooks", "uninstall", "--agent", agent)

    for ran in (installed, removed):
        assert ran.code == 1
        assert f"{project / link}: this is a link" in ran.complaint
    assert files(person) == before
    assert "this is a link" in ralph.well("hooks", "status").err


@posix
def test_what_is_no_plain_file_is_refused_at_once(ralph: Line, project: Path) -> None:
    (project / ".claude").mkdir()
    if sys.platform != "win32":
        os.mkfifo(project / ".claude" / "settings.json")

    ran = ralph("hooks", "install")

    assert ran.code == 1
    assert "this is not a regular file" in ran.complaint


@posix
def test_what_an_older_ralph_installed_is_told_of_and_replaced(
    ralph: Line, on_path: Path, home: Path, project: Path
) -> None:
    this_ralph(on_path)
    own, shared = home.parent / ".claude" / "settings.json", project / ".claude" / "settings.json"
    for file, call in ((own, f"{sys.executable} -m ralph"), (shared, f'"{NAMED}"')):
        file.parent.mkdir()
        hooks = {
            event: [{"hooks": [{"type": "command", "command": f"{call} hook {name} || exit 0"}]}]
            for event, name in (("Stop", "stop"), ("SessionStart", "session-start"))
        }
        file.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")

    told = ralph.well("hooks", "status").err

    for file, scope in ((own, "--user"), (shared, "--project")):
        assert f"{file}: a folder you work in could put its own program in the place" in told
        assert f"Run: ralph hooks install {scope}" in told
        ralph.well("hooks", "install", scope, "--no-mcp")
        assert f"{call} hook" not in file.read_text(encoding="utf-8")
    assert "could put its own program" not in ralph.well("hooks", "status").err


@posix
def test_a_persons_hooks_run_nothing_of_the_folder_they_are_called_in(
    ralph: Line, home: Path, tmp_path: Path
) -> None:
    ralph.well("hooks", "install", "--user", "--no-mcp")
    settings = json.loads((home.parent / ".claude" / "settings.json").read_bytes())
    clone = tmp_path / "clone"
    Project(clone).init()
    ran = clone / "ran"
    code = f"open({str(ran)!r}, 'w')"
    for module in ("ralph/__init__.py", "ralph/__main__.py", "msgspec.py", "json.py", "bin/ralph"):
        (clone / module).parent.mkdir(exist_ok=True)
        (clone / module).write_text(f"#!{sys.executable}\n{code}\n", encoding="utf-8")
        (clone / module).chmod(0o755)
    input = json.dumps({"session_id": "s", "cwd": str(clone), "source": "startup"})
    for path, modules in (("/usr/bin:/bin", ""), (f".:bin:{clone}/bin:/usr/bin:/bin", ":.")):
        for [group] in settings["hooks"].values():
            subprocess.run(
                ["/bin/sh", "-c", group["hooks"][0]["command"]],
                input=input.encode(),
                cwd=clone,
                env={**os.environ, "PATH": path, "PYTHONPATH": modules},
                check=True,
                timeout=60,
            )
            assert not ran.exists()
    brief = home / "cache" / "hooks"
    assert brief.exists(), "the hooks did run"


def test_a_persons_own_settings_may_be_anywhere(
    ralph: Line, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no project is needed
    told = ralph.well("hooks", "install", "--user")

    assert (
        "SessionStart"
        in json.loads((home.parent / ".claude" / "settings.json").read_bytes())["hooks"]
    )
    command = shlex.split(told.complaint.partition("Run: ")[2])
    assert command[:6] == ["claude", "mcp", "add-json", "-s", "user", "ralph-memory"]
    server = json.loads(command[6])
    assert [server["command"], *server["args"]] == [
        *(sys.executable, "-E", "-P", "-m", "ralph"),
        *("mcp", "--focus"),
    ]
    ralph.well("hooks", "uninstall", "--user")
    assert not (home.parent / ".claude").exists()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    ralph.well("hooks", "install", "--user", "--no-mcp")
    assert (tmp_path / "claude" / "settings.json").exists()


@posix
def test_the_client_itself_registers_a_persons_own_server(
    ralph: Line, on_path: Path, home: Path
) -> None:
    log = on_path / "log"
    client = program(on_path / "claude", f'printf "%s\\n" "$*" >> {shlex.quote(str(log))}')

    assert ralph.well("hooks", "install", "--user").err == ""

    [line] = log.read_text(encoding="utf-8").splitlines()
    assert line.startswith("mcp add-json -s user ralph-memory {")
    servers = home.parent / ".claude.json"
    old = {"mcpServers": {"ralph-memory": RalphCall("/old/ralph").server()}}
    servers.write_text(json.dumps(old), encoding="utf-8")
    ralph.well("hooks", "install", "--user")
    assert log.read_text(encoding="utf-8").splitlines()[1] == "mcp remove -s user ralph-memory"
    ralph.well("hooks", "uninstall", "--user")
    assert log.read_text(encoding="utf-8").splitlines()[3:] == ["mcp remove -s user ralph-memory"]
    program(client, "echo it is locked >&2; exit 3")
    ran = ralph("hooks", "install", "--user")
    assert ran.code == 1
    assert "it is locked. The hooks are installed; run this yourself: claude mcp" in ran.complaint


@posix
def test_ralph_is_called_by_its_name_where_the_name_leads_to_this_one(
    ralph: Line, project: Path, on_path: Path
) -> None:
    this_ralph(on_path)

    ran = ralph.well("hooks", "install")

    hook = json.loads((project / ".claude" / "settings.json").read_bytes())["hooks"]["Stop"][0]
    assert hook["hooks"][0]["command"] == RalphCall(NAMED).hook("stop")
    assert "You can commit these files" in ran.out
    assert ran.err == ""
    ralph.well("hooks", "install", "--agent", "codex")
    codex = tomllib.loads((project / ".codex" / "config.toml").read_text(encoding="utf-8"))
    assert codex["mcp_servers"]["ralph-memory"] == {
        "command": "ralph",
        "args": ["mcp", "--focus"],
        "default_tools_approval_mode": "approve",
    }


@posix
@pytest.mark.parametrize("script", [b"#!/bin/sh\necho ralph 99.0\n", b"\x7fELF of no machine"])
def test_another_program_of_that_name_is_not_called(
    ralph: Line, project: Path, on_path: Path, script: bytes
) -> None:
    (on_path / "ralph").write_bytes(script)
    (on_path / "ralph").chmod(0o755)

    ran = ralph.well("hooks", "install", "--no-mcp")

    calls = hooks_in(json.loads((project / ".claude" / "settings.json").read_bytes()))
    assert {call for some in calls.values() for call, _ in some} == {
        RalphCall(sys.executable, ("-E", "-P", "-m", "ralph"))
    }
    assert "name a program of this machine" in ran.complaint


def test_codex_gets_a_block_and_loses_it(ralph: Line, project: Path, home: Path) -> None:
    own = home.parent / ".codex" / "config.toml"
    own.parent.mkdir()
    own.write_bytes(b'model = "x" # mine\r\n')

    ralph.well("hooks", "install", "--agent", "codex", "--user")
    ralph.well("hooks", "install", "--agent", "codex")

    assert own.read_bytes().startswith(b'model = "x" # mine\r\n\r\n# >>> ralph')
    again = ralph.well("hooks", "install", "--agent", "codex", "--user")
    assert f"Already up to date: {own}" in again.out
    ralph.well("hooks", "uninstall", "--agent", "codex", "--user")
    ralph.well("hooks", "uninstall", "--agent", "codex")
    assert own.read_bytes() == b'model = "x" # mine\r\n'
    assert files(project) == {}
    # What `codex mcp remove` leaves of the block.
    own.write_text('model = "x"\n# <<< ralph <<<\n[tui]\n', encoding="utf-8")
    ralph.well("hooks", "uninstall", "--agent", "codex", "--user")
    assert own.read_text(encoding="utf-8") == 'model = "x"\n[tui]\n'
    own.unlink()
    said = ralph.well("hooks", "uninstall", "--agent", "codex", "--user").out
    assert said == "Ralph was not set up there.\n"


def test_all_clients_are_left_at_once(
    ralph: Line, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = tmp_path / "person"
    person.mkdir()
    for name in ("HOME", "USERPROFILE", "APPDATA", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(person))
    for scope, folder in (("--user", person), ("--project", project)):
        before = files(folder)
        for agent in TITLES:
            if (scope, agent) != ("--project", "windsurf"):  # it has no settings of projects
                said = ralph.well("hooks", "install", "--agent", agent, scope).err
                assert ("codex" in said) == (agent == "codex")  # where they are not trusted yet
        assert files(folder) != before
        said = ralph.well("hooks", "uninstall", "--all", scope).out
        assert all(name in said for name in ("settings.json", "ralph.js", "hooks.json", "mcp.json"))
        assert files(folder) == before
        again = ralph.well("hooks", "uninstall", "--all", scope).out
        assert again == "Ralph was not set up there.\n"


def test_without_the_client_a_registered_server_is_named_with_the_way_to_remove_it(
    ralph: Line, home: Path
) -> None:
    servers = {"mcpServers": {"ralph-memory": RalphCall("ralph").server()}}
    (home.parent / ".claude.json").write_text(json.dumps(servers), encoding="utf-8")

    ran = ralph.well("hooks", "uninstall", "--user")

    assert ran.complaint.endswith("Run: claude mcp remove -s user ralph-memory")


# -- what is refused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  // mine\n  "model": "x"\n}', "settings.json:2: this is not valid JSON"),
        ('{\n  "model": "x",\n}', "settings.json:3: this is not valid JSON"),
        (" \n", "settings.json: this file is empty. Delete it"),
        ('{"a": NaN}', "NaN is no JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "one JSON object"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        ('{\n"hooks": []}', "settings.json: hooks must be an object"),
        ('{"hooks": {\n\n"Stop": {}}}', "settings.json: hooks.Stop must be a list"),
        (b"\xff\xfe", "settings.json: not UTF-8"),
    ],
)
def test_settings_that_cannot_be_edited_are_refused_and_left_alone(
    ralph: Line, project: Path, text: str | bytes, told: str
) -> None:
    (project / ".claude").mkdir()
    file = project / ".claude" / "settings.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    before = files(project)

    for words in (["install"], ["uninstall"]):
        ran = ralph("hooks", *words)
        assert ran.code == 1
        assert told in ran.complaint
    assert files(project) == before
    assert "unreadable" in ralph.well("hooks", "status").out or "must be" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"mcpServers": []}', ".mcp.json: mcpServers must be an object"),
        ('{"mcpServers": {\n"ralph-memory": {}}}', ".mcp.json: an MCP server named"),
        ("{", ".mcp.json:1: this is not valid JSON"),
    ],
)
def test_nothing_is_written_where_the_server_has_no_place(
    ralph: Line, project: Path, text: str, told: str
) -> None:
    (project / ".mcp.json").write_text(text, encoding="utf-8")

    ran = ralph("hooks", "install")

    assert ran.code == 1
    assert told in ran.complaint
    assert files(project) == {".mcp.json": text.encode()}


def test_somebody_elses_server_in_a_persons_own_file_is_refused(ralph: Line, home: Path) -> None:
    servers = {"mcpServers": {"ralph-memory": {"command": "x", "args": []}}}
    (home.parent / ".claude.json").write_text(json.dumps(servers), encoding="utf-8")

    ran = ralph("hooks", "install", "--user")

    assert ran.code == 1
    assert "Ralph did not create it" in ran.complaint
    assert not (home.parent / ".claude").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model = ", "config.toml:1: this is not valid TOML"),
        ("[mcp_servers.ralph-memory]\ncommand = 'x'\n", "Ralph did not create it"),
        ("mcp_servers = {}\n", "Write it as tables"),
        ("[[mcp_servers]]\n", "Write it as tables"),
        (
            CodexSetup().with_server(None, RalphCall("old/ralph"), WHERE).replace("# <<<", "# <"),
            "is missing",
        ),
    ],
)
def test_codex_settings_that_cannot_be_edited_are_refused(
    ralph: Line, project: Path, text: str, told: str
) -> None:
    (project / ".codex").mkdir()
    (project / ".codex" / "config.toml").write_text(text, encoding="utf-8")

    ran = ralph("hooks", "install", "--agent", "codex")

    assert ran.code == 1
    assert told in ran.complaint
    assert files(project) == {".codex/config.toml": text.encode()}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("install --user --project", "Choose one"),
        ("uninstall --project . --user", "Choose one"),
        ("install --agent zed --no-mcp", "leave out --no-mcp"),
        ("install --agent vim", "vim"),
        ("", "plugin-path"),
    ],
)
def test_a_wrong_call_is_refused(ralph: Line, line: str, told: str) -> None:
    ran = ralph("hooks", *line.split())

    assert ran.code == 2
    assert told in ran.err


def test_without_a_project_there_is_nothing_to_set_up(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    for words in (["install"], ["install", "--project"]):
        ran = ralph("hooks", *words)
        assert ran.code == 1
        assert ran.complaint.endswith("no .ralph folder here or above. Run: ralph init")
    assert ralph.well("hooks", "install", "--project", project).code == 0
    assert (project / ".claude").exists()
    assert ralph.well("--project", project, "hooks", "uninstall").out.count("Removed") == 2


def test_a_folder_that_was_a_project_can_still_be_cleaned(ralph: Line, project: Path) -> None:
    ralph.well("hooks", "install")
    (project / ".ralph").rename(project.parent / "gone")

    assert ralph.well("hooks", "uninstall").out.count("Removed") == 2
    assert files(project) == {}


# Root may write anything. A process that gave up two powers of root may not: CAP_DAC_OVERRIDE and
# CAP_DAC_READ_SEARCH leave the set of what it can ever have.
WEAKER = """
import ctypes, os, sys
for power in (1, 2):
    if ctypes.CDLL(None).prctl(24, power, 0, 0, 0):
        sys.exit("root stays root here")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def weaker(*words: str | Path) -> list[str]:
    """A Python for which permissions count."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return [sys.executable, *map(str, words)]
    command = [sys.executable, "-c", WEAKER]
    if sys.platform != "linux" or subprocess.run([*command, "-c", ""], check=False).returncode:
        pytest.skip("root cannot give up its powers here")
    return [*command, *map(str, words)]


@posix
@pytest.mark.parametrize(
    ("locked", "blocked"),
    [
        (".claude/settings.json", ".claude/settings.json"),
        (".claude", ".claude/settings.json"),
        (".", ".mcp.json"),
    ],
)
def test_what_may_not_be_written_is_left_and_told(project: Path, locked: str, blocked: str) -> None:
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text("{}", encoding="utf-8")
    before = files(project)
    command = weaker("-m", "ralph", "hooks", "install")
    where = project / locked
    mode = where.stat().st_mode
    where.chmod(0o444 if where.is_file() else 0o555)
    try:
        ran = subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        where.chmod(mode)

    assert ran.returncode == 1
    [told] = ran.stderr.splitlines()
    file = project / blocked
    assert told.startswith(f"ralph: {file}: this cannot be written: Permission denied. ")
    assert files(project) == before
    assert sorted(entry.name for entry in project.iterdir()) == [".claude", ".ralph"]


@posix
def test_what_may_not_be_read_is_left_and_told(project: Path) -> None:
    (project / ".mcp.json").write_text("{}", encoding="utf-8")
    (project / ".mcp.json").chmod(0)

    ran = subprocess.run(
        weaker("-m", "ralph", "hooks", "install"),
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.returncode == 1
    assert f"{project / '.mcp.json'}: this cannot be read: Permission denied." in ran.stderr
    assert not (project / ".claude").exists()


# -- status, doctor, help


def status(ralph: Line) -> Any:
    return ralph.well("hooks", "status", "--json").json


def test_status_tells_each_place_apart(ralph: Line, project: Path, home: Path) -> None:
    found = status(ralph)
    assert found["project"] == str(project)
    assert [(one["agent"], one["where"]) for one in found["places"]] == [
        ("claude", "user"),
        ("claude", "project"),
        ("claude", "plugin"),
        ("codex", "user"),
        ("codex", "project"),
        ("gemini", "user"),
        ("gemini", "project"),
        ("gemini", "plugin"),
        ("opencode", "user"),
        ("opencode", "project"),
        ("cursor", "user"),
        ("cursor", "project"),
        ("vscode", "user"),
        ("vscode", "project"),
        ("zed", "user"),
        ("zed", "project"),
        ("windsurf", "user"),
    ]
    assert {one["mcp"]["state"] for one in found["places"]} == {"none"}

    ralph.well("hooks", "install")
    ralph.well("hooks", "install", "--agent", "codex", "--user")
    _, mine, plugin, codex, *_ = status(ralph)["places"]

    assert mine["hooks"] == {
        "file": str(project / ".claude" / "settings.json"),
        "state": "installed",
        "missing": [],
        "calls": [{"command": f"{sys.executable} -E -P -m ralph", "found": sys.executable}],
        "problem": None,
        "outdated": False,
    }
    assert mine["mcp"]["state"] == codex["mcp"]["state"] == "installed"
    assert plugin["hooks"]["state"] == "none"
    assert codex["mcp"]["file"] == str(home.parent / ".codex" / "config.toml")
    hooks = home.parent / ".codex" / "hooks.json"
    todo = "Start codex and accept them with /hooks"
    assert status(ralph)["warnings"] == [f"{hooks}: Codex does not run these hooks yet. {todo}"]
    # Codex itself notes what a person accepted, under the file's name.
    with (hooks.parent / "config.toml").open("a", encoding="utf-8") as file:
        file.write(f'[hooks.state."{hooks}:stop:0:0"]\ntrusted_hash = "sha256:0"\n')
    assert status(ralph)["warnings"] == []


def test_status_outside_a_project_says_that_hooks_stay_silent(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert status(ralph)["project"] is None
    assert (
        "is in no Ralph project: hooks stay silent. Run `ralph hooks install --user`"
        in ralph.well("hooks", "status").out
    )


def test_status_names_what_is_missing_and_what_is_not_there(ralph: Line, project: Path) -> None:
    hooks = wanted_hooks(RalphCall("/nowhere/ralph"))
    del hooks["Stop"], hooks["SessionEnd"]
    (project / ".claude").mkdir()
    file = project / ".claude" / "settings.json"
    file.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")

    found = status(ralph)

    assert found["places"][1]["hooks"]["state"] == "partly"
    assert found["places"][1]["hooks"]["missing"] == ["Stop", "SessionEnd"]
    missing, gone = found["warnings"]
    assert missing == f"{file}: no hook for Stop, SessionEnd. Run: ralph hooks install --project"
    assert gone.startswith(f"{file}: /nowhere/ralph was not found.")
    told = {one["name"]: one for one in ralph.well("doctor", "--json").json["checks"]}["hooks"]
    assert told["state"] == "warning"
    assert told["todo"] == "Run: ralph hooks install --project"


def install_plugin(home: Path, *, switched: bool = True) -> None:
    """What Claude Code notes when it installs the plugin."""
    folder = home.parent / ".claude"
    (folder / "plugins").mkdir(parents=True)
    noted = {"version": 2, "plugins": {"ralph@ralph": [{"scope": "user"}]}}
    (folder / "plugins" / "installed_plugins.json").write_text(json.dumps(noted), encoding="utf-8")
    settings = {"enabledPlugins": {"ralph@ralph": switched}}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")


@posix
def test_plugin_and_hooks_together_are_told_of(ralph: Line, on_path: Path, home: Path) -> None:
    this_ralph(on_path)
    install_plugin(home)
    assert status(ralph)["warnings"] == []
    assert status(ralph)["places"][2]["hooks"]["state"] == "installed"

    ran = ralph.well("hooks", "install")

    doubled = status(ralph)["warnings"]
    assert [line.partition(":")[0] for line in doubled] == [
        "each event calls Ralph more than once",
        "the memory's tools are offered twice",
    ]
    assert "claude plugin uninstall ralph@ralph" in doubled[0]
    assert [line.removeprefix("ralph: ") for line in ran.err.splitlines()] == doubled


@posix
def test_the_same_hooks_of_person_and_project_are_no_double(ralph: Line, on_path: Path) -> None:
    ralph.well("hooks", "install")
    ralph.well("hooks", "install", "--user", "--no-mcp")
    assert status(ralph)["warnings"] == []

    this_ralph(on_path)
    ralph.well("hooks", "install")  # by name now

    [doubled] = status(ralph)["warnings"]
    assert doubled.startswith("each event calls Ralph more than once: user, project. Run: ")


def test_a_plugin_that_is_switched_off_counts_for_nothing(
    ralph: Line, project: Path, home: Path
) -> None:
    install_plugin(home)
    (project / ".claude").mkdir()
    local = project / ".claude" / "settings.local.json"
    local.write_text('{"enabledPlugins": {"ralph@ralph": false}}', encoding="utf-8")

    ralph.well("hooks", "install")

    found = status(ralph)
    assert found["places"][2]["hooks"]["state"] == "disabled"
    assert found["warnings"] == []


def test_hooks_that_the_client_does_not_call_are_told_of(
    ralph: Line, project: Path, home: Path
) -> None:
    own = home.parent / ".claude" / "settings.json"
    own.parent.mkdir()
    own.write_text('{"disableAllHooks": true}', encoding="utf-8")
    assert status(ralph)["warnings"] == []

    ralph.well("hooks", "install", "--no-mcp")

    [silenced] = status(ralph)["warnings"]
    assert silenced.startswith(f"{own}: disableAllHooks is on, so no hook is called")
    # The project's own word counts more.
    local = project / ".claude" / "settings.local.json"
    local.write_text('{"disableAllHooks": false}', encoding="utf-8")
    assert status(ralph)["warnings"] == []


def test_doctor_tells_which_clients_use_the_memory(ralph: Line) -> None:
    def told() -> Any:
        return {one["name"]: one for one in ralph.well("doctor", "--json").json["checks"]}["hooks"]

    assert told()["state"] == "ok"
    assert told()["detail"].startswith("not installed")
    ralph.well("hooks", "install")
    ralph.well("hooks", "install", "--agent", "gemini", "--user")
    assert told()["detail"] == "claude (project), gemini (user)"


def test_help_and_completion_name_the_doors_beside_the_command_line(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = ralph.well("help", "--all").out
    assert {"mcp", "hooks"} <= {line.split()[0] for line in listing.splitlines() if line}
    assert ralph("mcp").code == 2

    monkeypatch.setenv("_RALPH_COMPLETE", "bash_complete")
    for line, words in (("ralph hoo", {"plain,hooks"}), ("ralph mcp x", set())):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert set(ralph.well().out.split()) == words


def test_the_plugin_has_a_folder(ralph: Line) -> None:
    folder = Path(ralph.well("hooks", "plugin-path").out.rstrip("\n"))

    assert folder == PLUGIN_FOLDER
    manifest = json.loads((folder / ".claude-plugin" / "plugin.json").read_bytes())
    assert manifest["version"] == __version__


# -- the status line


def own_settings(home: Path) -> Path:
    return home.parent / ".claude" / "settings.json"


def test_the_status_line_is_offered_added_kept_and_taken_out(ralph: Line, home: Path) -> None:
    file = own_settings(home)
    offered = ralph.well("hooks", "install", "--user", "--no-mcp")
    assert "ralph hooks install --user --statusline" in offered.out
    before = file.read_bytes()

    added = ralph.well("hooks", "install", "--user", "--no-mcp", "--statusline")

    line = json.loads(file.read_bytes())["statusLine"]
    assert line["type"] == "command"
    assert "--statusline" not in added.out
    once = file.read_bytes()
    ralph.well("hooks", "install", "--user", "--no-mcp")
    assert file.read_bytes() == once
    ralph.well("hooks", "uninstall", "--user")
    assert not file.exists()
    assert before != once


@posix
def test_the_status_line_that_was_added_works(ralph: Line, project: Path, home: Path) -> None:
    ralph.well("hooks", "install", "--user", "--no-mcp", "--statusline")
    command = json.loads(own_settings(home).read_bytes())["statusLine"]["command"]

    given = json.dumps({"session_id": "s", "cwd": str(project)})
    shown = subprocess.run(
        ["/bin/sh", "-c", command], input=given, capture_output=True, text=True, check=True
    )

    assert shown.stdout == "Ralph on | 0 shown, 0 saved\n"


def test_a_persons_own_status_line_stays(ralph: Line, home: Path) -> None:
    file = own_settings(home)
    own = {"type": "command", "command": "~/bin/line.sh"}
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"statusLine": own}), encoding="utf-8")

    ran = ralph.well("hooks", "install", "--user", "--no-mcp", "--statusline")

    assert "your own status line stays" in ran.err
    assert json.loads(file.read_bytes())["statusLine"] == own
    assert "--statusline" not in ralph.well("hooks", "install", "--user", "--no-mcp").out
    ralph.well("hooks", "uninstall", "--user")
    assert json.loads(file.read_bytes()) == {"statusLine": own}


@pytest.mark.parametrize("words", [(), ("--user", "--agent", "gemini")])
def test_a_status_line_is_a_persons_own_and_claude_codes(
    ralph: Line, words: tuple[str, ...]
) -> None:
    ran = ralph("hooks", "install", "--statusline", *words)
    assert ran.code == 2
    assert "add --user" in ran.err


# -- a folder whose memory is on a server

THERE = "http://127.0.0.1:9/projects/shop"  # where nobody listens


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    secret = "ralph_" + "x" * 43
    monkeypatch.setenv("RALPH_TOKEN", secret)
    return secret


def test_claude_code_asks_the_server_and_no_shared_file_has_the_token(
    ralph: Line, project: Path, home: Path, token: str
) -> None:
    first = ralph.well("hooks", "install", "--server", f"{THERE}/")
    assert "not reachable" in first.err
    assert json.loads((project / ".mcp.json").read_bytes())["mcpServers"]["ralph-memory"] == {
        "type": "http",
        "url": f"{THERE}/mcp",
        "headers": {"Authorization": "Bearer ${RALPH_TOKEN}"},
        "alwaysLoad": True,
    }
    installed = files(project)
    again = ralph.well("hooks", "install", "--server", THERE)
    assert again.out.count("Already up to date") == 2
    assert files(project) == installed
    assert not any(token.encode() in data for data in installed.values())
    assert token not in first.out + first.err + again.out + again.err
    shown = ralph.well("hooks", "status")
    assert f"is on {THERE}" in shown.out
    assert "hooks install" not in shown.err  # nothing is outdated
    # Back to the memory of this machine, in the same files.
    ralph.well("hooks", "uninstall")
    assert files(project) == {}
    assert token.encode() not in (home / "servers.json").read_bytes()
    assert "Ralph was not set up" in ralph.well("hooks", "uninstall").out


def test_codex_asks_the_server_with_a_token_of_its_environment(
    ralph: Line, project: Path, token: str
) -> None:
    ralph.well("hooks", "install", "--agent", "codex", "--server", THERE)
    file = project / ".codex" / "config.toml"
    entry = tomllib.loads(file.read_text(encoding="utf-8"))["mcp_servers"]["ralph-memory"]
    assert (entry["url"], entry["bearer_token_env_var"]) == (f"{THERE}/mcp", "RALPH_TOKEN")
    assert "command" not in entry
    again = ralph.well("hooks", "install", "--agent", "codex", "--server", THERE)
    assert again.out.count("Already up to date") == 2
    ralph.well("hooks", "install", "--agent", "codex")
    entry = tomllib.loads(file.read_text(encoding="utf-8"))["mcp_servers"]["ralph-memory"]
    assert "url" not in entry
    ralph.well("hooks", "uninstall", "--agent", "codex")
    assert files(project) == {}


def test_a_server_needs_a_token_a_folder_and_a_client_that_speaks_http(
    ralph: Line, project: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["--user"], ["--agent", "gemini"], ["--agent", "zed"]):
        assert ralph("hooks", "install", "--server", THERE, *words).code == 2
    for address in ("http://127.0.0.1:9/shop", "http://me:x@127.0.0.1:9/projects/shop", "shop"):
        ran = ralph("hooks", "install", "--server", address)
        assert (ran.code, "does not name a project" in ran.complaint) == (1, True)
    monkeypatch.delenv("RALPH_TOKEN")
    assert "needs a token" in ralph("hooks", "install", "--server", THERE).complaint
    assert files(project) == {}
