"""Ralph's part in other programs' settings: put in once, found again, taken out alone."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ralph.clients.codex import CodexSetup
from ralph.clients.gemini import GeminiSetup
from ralph.clients.hook_settings import ClaudeCodeSetup, HooksSetup, hooks_in, wanted_hooks
from ralph.clients.setup import (
    NAMED,
    TOOL_EVENT,
    RalphCall,
    SettingsEdit,
    apply,
    hook_call,
    server_call,
)
from ralph.errors import BadInput
from ralph.memory.moments_table import table_file

WHERE = Path("settings.json")
CLAUDE, CODEX = ClaudeCodeSetup(), CodexSetup()
BY_NAME = RalphCall(NAMED)
BY_PATH = RalphCall('/opt/it\'s "my" venv/bin/python', ("-m", "ralph"))
EVENTS = list(wanted_hooks(BY_NAME))
SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh") if shutil.which(shell)]


# -- settings of anybody, laid out in any way

keys = st.text(max_size=6) | st.sampled_from(["permissions", "env", "model"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # The sign that a group is ours must not come up by itself.
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
foreign_hooks = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["./lint.sh", "my-ralph hook stop"])},
    optional={"timeout": st.integers(1, 60)},
)
groups = st.lists(
    st.fixed_dictionaries(
        {"hooks": st.lists(foreign_hooks, max_size=2)}, optional={"matcher": st.text(max_size=4)}
    ),
    max_size=2,
)
hooks_of_others = st.dictionaries(st.sampled_from([*EVENTS, "PreToolUse"]), groups, max_size=4)
settings = st.builds(
    lambda all_else, hooks, last: {**all_else, **hooks} if last else {**hooks, **all_else},
    st.dictionaries(keys, values, max_size=4),
    st.just({}) | st.builds(lambda hooks: {"hooks": hooks}, hooks_of_others),
    st.booleans(),
)


@st.composite
def texts(draw: st.DrawFn, of: st.SearchStrategy[dict[str, Any]] = settings) -> str:
    """Settings as somebody's editor may have written them."""
    indent = draw(st.sampled_from([2, 4, 0, "\t", None]))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    text = json.dumps(
        draw(of), indent=indent, separators=separators, ensure_ascii=draw(st.booleans())
    )
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    before = draw(st.sampled_from(["", "\ufeff", " "]))
    return before + text.replace("\n", newline) + draw(st.sampled_from(["", newline, newline * 2]))


def meaning(text: str | None) -> Any:
    assert text is not None
    return json.loads(text.removeprefix("\ufeff"))


def kept(value: dict[str, Any]) -> dict[str, Any]:
    """Without the empty lists and objects, which say nothing to the client."""
    hooks = {k: v for k, v in value.get("hooks", {}).items() if v or k not in EVENTS}
    return {**value, "hooks": hooks} if hooks else {k: value[k] for k in value if k != "hooks"}


@given(texts(), st.sampled_from([BY_NAME, BY_PATH]))
@example("{}", BY_NAME)
@example('{"hooks": {}}', BY_NAME)
@example('{"hooks": {"Stop": [ ]}, "model": "x"}\n', BY_NAME)
@example('{"a": "\\ud800"}', BY_NAME)
def test_hooks_that_were_put_in_and_taken_out_leave_everything_else(
    text: str, call: RalphCall
) -> None:
    left = CLAUDE.without_hooks(CLAUDE.with_hooks(text, call, WHERE), WHERE)

    assert kept({} if left is None else meaning(left)) == kept(meaning(text))
    assert list({} if left is None else meaning(left)) == list(kept(meaning(text)))


@given(texts())
def test_settings_without_anything_of_ours_are_not_written_anew(text: str) -> None:
    assert CLAUDE.without_hooks(text, WHERE) == text
    assert CLAUDE.without_server(text, WHERE) == text


@given(texts(), st.sampled_from([BY_NAME, BY_PATH]))
def test_hooks_come_once_and_nothing_else_moves(text: str, call: RalphCall) -> None:
    installed = CLAUDE.with_hooks(text, call, WHERE)

    before, after = meaning(text), meaning(installed)
    assert list(after) == [*before, *({"hooks"} - before.keys())]
    assert {k: v for k, v in after.items() if k != "hooks"} == {
        k: v for k, v in before.items() if k != "hooks"
    }
    others = before.get("hooks", {})
    wanted = wanted_hooks(call)
    assert after["hooks"] == {
        **{event: others[event] + wanted.get(event, []) for event in others},
        **{event: wanted[event] for event in wanted if event not in others},
    }
    assert CLAUDE.with_hooks(installed, call, WHERE) == installed


@given(texts(), st.sampled_from([2, 4]))
def test_what_the_client_laid_out_anew_is_still_found(text: str, indent: int) -> None:
    rewritten = json.dumps(meaning(CLAUDE.with_hooks(text, BY_PATH, WHERE)), indent=indent)

    left = CLAUDE.without_hooks(rewritten, WHERE)

    assert kept({} if left is None else meaning(left)) == kept(meaning(text))


@given(texts())
def test_hooks_of_an_older_ralph_are_brought_up_to_date(text: str) -> None:
    old = meaning(CLAUDE.with_hooks(text, RalphCall("/old/bin/ralph"), WHERE))
    del old["hooks"]["PreCompact"]
    outdated = json.dumps(old, indent=2)

    now = hooks_in(meaning(CLAUDE.with_hooks(outdated, BY_NAME, WHERE)))

    assert {event: [call for call, _ in calls] for event, calls in now.items()} == {
        event: [BY_NAME] for event in EVENTS
    }


servers = st.dictionaries(
    st.sampled_from(["github", "Ralph", "memory"]),
    st.fixed_dictionaries({"command": st.text(max_size=5), "args": st.lists(st.text(max_size=3))}),
    max_size=2,
)
server_files = st.builds(
    lambda other, own: {**other, **own},
    st.dictionaries(keys, values, max_size=2),
    st.just({}) | st.builds(lambda found: {"mcpServers": found}, servers),
)


@given(texts(server_files), st.sampled_from([BY_NAME, BY_PATH]))
@example('{"mcpServers": {}}', BY_NAME)
def test_a_server_that_was_put_in_and_taken_out_leaves_everything_else(
    text: str, call: RalphCall
) -> None:
    installed = CLAUDE.with_server(text, call, WHERE)
    before = meaning(text)

    assert meaning(installed) == {
        **before,
        "mcpServers": {**before.get("mcpServers", {}), "ralph-memory": call.server()},
    }
    assert CLAUDE.with_server(installed, call, WHERE) == installed
    assert meaning(CLAUDE.with_server(installed, RalphCall("ralph"), WHERE))["mcpServers"][
        "ralph-memory"
    ] == (RalphCall("ralph").server())
    left = CLAUDE.without_server(installed, WHERE)
    others = {k: v for k, v in before.items() if k != "mcpServers" or v}
    assert ({} if left is None else meaning(left)) == others


toml_lines = st.lists(
    st.sampled_from(['model = "x"', "", "# a note", 'text = """', 'more"""', "n = 1"]), max_size=5
)
toml_tables = st.lists(
    st.sampled_from(["[tui]", "theme = 'dark'", "[mcp_servers.other]", 'command = "o"', ""]),
    unique=True,
    max_size=5,
)


@given(
    st.builds(lambda *parts: [*parts[0], *parts[1]], toml_lines, toml_tables),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([RalphCall("ralph"), BY_PATH]),
)
@example([], "\n", False, RalphCall("ralph"))
@example([""], "\n", True, RalphCall("ralph"))
def test_a_block_that_was_put_in_and_taken_out_leaves_every_byte(
    lines: list[str], newline: str, ends: bool, call: RalphCall
) -> None:
    text = newline.join(lines) + (newline if ends else "")
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(BadInput, match="not valid TOML"):
            CODEX.with_server(text, call, WHERE)
        return
    installed = CODEX.with_server(text, call, WHERE)

    assert CODEX.server_in(installed, WHERE) == call
    assert {k: v for k, v in tomllib.loads(installed).items() if k != "mcp_servers"} == {
        k: v for k, v in before.items() if k != "mcp_servers"
    }
    assert CODEX.with_server(installed, call, WHERE) == installed
    assert CODEX.without_server(installed, WHERE) == text
    moved = CODEX.with_server(installed, RalphCall("/new/ralph"), WHERE)
    assert CODEX.server_in(moved, WHERE) == RalphCall("/new/ralph")
    assert CODEX.without_server(moved, WHERE) == text


# -- what is ours


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (f'"{NAMED}" hook stop 2>/dev/null || exit 0', BY_NAME),
        ("ralph hook stop", RalphCall("ralph")),
        ("/usr/bin/ralph hook session-start", RalphCall("/usr/bin/ralph")),
        (r"'C:\Tools\ralph.exe' hook stop", RalphCall(r"C:\Tools\ralph.exe")),
        ("/v/bin/python -m ralph hook stop || exit 0", RalphCall("/v/bin/python", ("-m", "ralph"))),
        ("/v/python -E -P -m ralph hook stop", RalphCall("/v/python", ("-E", "-P", "-m", "ralph"))),
        (BY_NAME.hook("stop"), BY_NAME),
        (BY_PATH.hook("stop"), BY_PATH),
        (BY_NAME.hook("stop").replace("exit 0", "rm x"), None),
        ("/v/python -c -m ralph hook stop", None),
        ("my-ralph hook stop", None),
        ("ralph hook stop && notify-send done", None),
        ("echo ralph hook stop", None),
        ("ralph hooks status", None),
        ("ralph search stop", None),
        ("'ralph hook stop", None),
        ("'' hook stop", None),
        ("ralph\\ hook stop", None),
        (7, None),
    ],
)
def test_a_hook_is_known_by_what_it_calls(command: object, call: RalphCall | None) -> None:
    found = hook_call(command)

    assert (found[0] if found else None) == call


@pytest.mark.parametrize(
    "server",
    [
        {"command": "ralph", "args": ["mcp"]},
        {"command": "ralph", "args": ["x", "mcp", "--focus"]},
        {"command": "other", "args": ["mcp", "--focus"]},
        {"command": "ralph"},
        {"url": "http://127.0.0.1"},
        [],
    ],
)
def test_a_server_of_somebody_else_is_not_ours(server: object) -> None:
    assert server_call(server) is None


def test_a_hook_that_a_person_moved_or_tuned_is_taken_out_alone() -> None:
    mine = {"type": "command", "command": "./mine.sh"}
    hook = {**wanted_hooks(BY_NAME)["Stop"][0]["hooks"][0], "timeout": 60}
    text = json.dumps({"hooks": {"Stop": [{"matcher": "x", "hooks": [hook, mine]}]}}, indent=2)

    installed = meaning(CLAUDE.with_hooks(text, BY_NAME, WHERE))

    assert installed["hooks"]["Stop"] == [{"matcher": "x", "hooks": [hook, mine]}]
    left = CLAUDE.without_hooks(json.dumps(installed, indent=2), WHERE)
    assert meaning(left) == {"hooks": {"Stop": [{"matcher": "x", "hooks": [mine]}]}}


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_hook_is_silent_and_ends_well_whatever_becomes_of_ralph(
    tmp_path: Path, shell: str
) -> None:
    odd = tmp_path / "it's a ralph"
    odd.write_text('#!/bin/sh\necho "$@"\necho noise >&2\nexit 2\n', encoding="utf-8")
    odd.chmod(0o755)

    home = tmp_path / "home"
    project = (tmp_path / "project" / "below").resolve()
    project.mkdir(parents=True)
    table = Path(table_file(str(project.parent), str(home)))
    table.parent.mkdir(parents=True)
    table.write_text("a row\n", encoding="utf-8")

    def run(command: str, environ: dict[str, str]) -> tuple[int, bytes, bytes]:
        environ = {"PATH": "/usr/bin:/bin", "RALPH_HOME": str(home), **environ}
        ran = subprocess.run(
            [shell, "-c", command],
            cwd=project,
            env=environ,
            capture_output=True,
            check=False,
            timeout=30,
        )
        return ran.returncode, ran.stdout, ran.stderr

    for [group] in wanted_hooks(BY_NAME).values():
        command = group["hooks"][0]["command"]
        known = hook_call(command)
        assert known is not None
        assert run(command, {}) == (0, b"", b"")
        assert run(command, {"RALPH_COMMAND": "/nowhere/ralph"}) == (0, b"", b"")
        of_table = f" --project {project.parent}" if known[1] == TOOL_EVENT else ""
        said = f"hook {known[1]}{of_table}\n".encode()
        assert run(command, {"RALPH_COMMAND": str(odd)}) == (0, said, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_tool_hook_starts_nothing_in_a_project_without_a_table(
    tmp_path: Path, shell: str
) -> None:
    project = tmp_path / "it's $HOME"
    project.mkdir()
    home = tmp_path / "home"
    calls = tmp_path / "calls"
    program = tmp_path / "ralph"
    program.write_text(f"#!/bin/sh\necho called >>{shlex.quote(str(calls))}\n", encoding="utf-8")
    program.chmod(0o755)
    table = Path(table_file(str(project), str(home)))
    table.parent.mkdir(parents=True)

    def run() -> None:
        ran = subprocess.run(
            [shell, "-c", BY_NAME.hook(TOOL_EVENT)],
            env={
                "PATH": "/usr/bin:/bin",
                "RALPH_HOME": str(home),
                "RALPH_COMMAND": str(program),
                "CLAUDE_PROJECT_DIR": str(project),
            },
            capture_output=True,
            check=False,
            timeout=30,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")

    run()
    assert not calls.exists()
    table.touch()  # an empty table has nothing to say either
    run()
    assert not calls.exists()
    table.write_text("a row\n", encoding="utf-8")
    run()
    assert calls.read_text(encoding="utf-8") == "called\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_hook_by_name_never_calls_a_program_of_the_project(tmp_path: Path, shell: str) -> None:
    clone = tmp_path / "clone"
    (clone / "bin").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (clone, clone / "bin", outside):
        (folder / "ralph").write_text(f"#!/bin/sh\necho {folder.name}\n", encoding="utf-8")
        (folder / "ralph").chmod(0o755)

    def run(path: str, **environ: str) -> bytes:
        environ = {"PATH": path, **environ}
        command = [shutil.which(shell) or shell, "-c", BY_NAME.hook("stop")]
        ran = subprocess.run(command, cwd=clone, env=environ, capture_output=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, b"")
        return ran.stdout

    usual = "/usr/bin:/bin"
    for path in (".", "", "bin", "./bin", str(clone), str(clone / "bin")):
        assert run(f"{path}:{usual}") == b""
        assert run(f"{path}:{usual}", CLAUDE_PROJECT_DIR=str(clone)) == b""
    assert run(usual, RALPH_COMMAND="./ralph") == b""
    assert run(f"{outside}:{clone}:{usual}") == b"outside\n"


# -- hooks of other clients, in the same shape

GEMINI = GeminiSetup()
SHAPED = pytest.mark.parametrize("client", [GEMINI, CODEX], ids=["gemini", "codex"])


@SHAPED
def test_hooks_of_other_clients_name_the_client_and_are_found_again(client: HooksSetup) -> None:
    for call in (BY_NAME, BY_PATH):
        text = client.with_hooks(None, call, WHERE)
        found = hooks_in(meaning(text))
        assert list(found) == list(client.wanted_hooks(call))
        for [(called, command)] in found.values():
            assert called == call
            assert f" --agent {client.agent}" in command
        assert client.with_hooks(text, call, WHERE) == text
        assert client.without_hooks(text, WHERE) is None


def test_gemini_has_hooks_and_server_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path))
    file = tmp_path / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"theme": "dark"}', encoding="utf-8")

    apply(GEMINI.edits(None, BY_PATH))
    written = json.loads(file.read_bytes())
    assert written["theme"] == "dark"
    assert written["mcpServers"]["ralph-memory"] == {
        "command": BY_PATH.program,
        "args": ["-m", "ralph", "mcp", "--focus"],
    }
    # As docs/hooks/reference.md has it: milliseconds, and a regular expression of tools.
    [group] = written["hooks"]["AfterTool"]
    assert group["matcher"] == "run_shell_command|write_file|replace"
    [hook] = group["hooks"]
    assert hook.keys() == {"name", "type", "command", "timeout"}
    assert hook["timeout"] >= 1000
    place = GEMINI.places(None)[0]
    assert place.hooks is not None
    assert (place.hooks.state, place.mcp.state) == ("installed", "installed")
    apply(GEMINI.edits(None, None))
    assert json.loads(file.read_bytes()) == {"theme": "dark"}


def test_a_link_in_a_project_undoes_the_edits_before_it(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.mcp.json").symlink_to(tmp_path / "mine.json")
    (tmp_path / "known.json").write_text("before")
    edits = [
        SettingsEdit(tmp_path / "known.json", "before", "after", keeps_previous=True),
        SettingsEdit(tmp_path / ".new/new.json", None, "{}"),
        SettingsEdit(tmp_path / "project/.mcp.json", None, "{}", tmp_path / "project"),
    ]

    with pytest.raises(BadInput, match="this is a link"):
        apply(edits)

    assert (tmp_path / "known.json").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "known.json",
        "mine.json",
        "project",
    ]
