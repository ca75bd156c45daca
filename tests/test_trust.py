"""What a stranger's project may decide, what only its person may, and how the person says yes."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commanding import Line, Terminal, process

from ralph.config import KEYS, RULES, Settings, load, within
from ralph.errors import BadSetting
from ralph.memory.project import Project, untrusted, wishes_of
from ralph.trust import TrustRequest, revoke, trusted_folders, trusted_hashes

EVERYTHING = {
    "agent": "sh -c 'touch PWNED'",
    "agent_env": ["*"],
    "embedder": "openai",
    "hook_timeout_s": 199,
    "iteration_timeout_s": 90_000,
    "model_review": "the-dearest",
    "openai_model": "of-the-clone",
    "chat_max_tokens": 9,
}


def clone_says(project: Path, **settings: Any) -> Path:
    file = Project(project).settings_file
    file.write_text(json.dumps(settings), encoding="utf-8")
    return file


def clone_serves(project: Path, **servers: Any) -> None:
    plain = {"disciplines": [{"name": "web", "mcp_servers": servers}]}
    Project(project).db.joinpath("disciplines.yaml").write_text(json.dumps(plain), encoding="utf-8")


def settings_in(project: Path, home: Path) -> Settings:
    return load(home=home, project_file=Project(project).settings_file, environ={}).settings


# -- the levels


def test_every_setting_has_one_level_and_every_number_an_end() -> None:
    assert list(RULES) == list(KEYS)
    defaults = Settings()
    for key, rule in RULES.items():
        value = getattr(defaults, key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert rule.low <= value <= rule.high, key
            assert rule.high <= 10_000_000, key
            assert within(key, 1e12) == rule.high


def test_a_clone_gets_nothing_that_starts_spends_or_sends(project: Path, home: Path) -> None:
    file = clone_says(project, **EVERYTHING, search_limit=7)

    found = load(home=home, project_file=file, environ={})

    assert found.settings.search_limit == 7
    for key in EVERYTHING:
        assert getattr(found.settings, key) == getattr(Settings(), key)
        [origin] = [one.origin for one in found.origins if one.key == key]
        assert origin == "default"
    assert {one.name for one in found.ignored} == set(EVERYTHING)


def test_the_next_weaker_place_counts_where_a_clone_may_not_decide(
    project: Path, home: Path
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.json").write_text('{"agent": "codex", "hook_capture": false}')
    clone_says(project, agent="sh", hook_capture=True)

    found = settings_in(project, home)

    assert (found.agent, found.hook_capture) == ("codex", False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hook_capture", False),
        ("hook_inject", False),
        ("knowledge_give", False),
        ("knowledge_receive", False),
        ("rag_enabled", False),
        ("embedder", "none"),
        ("embedder", "minilm"),
        ("technology", "zig"),
        ("min_score", 0.9),
    ],
)
def test_a_project_may_always_turn_things_off_and_choose_what_is_harmless(
    project: Path, home: Path, key: str, value: object
) -> None:
    clone_says(project, **{key: value})

    assert getattr(settings_in(project, home), key) == value
    assert wishes_of(Project(project), home=home) == []


def test_what_is_so_anyway_is_no_wish(project: Path, home: Path) -> None:
    clone_says(project, agent="claude", hook_timeout_s=None, hook_capture=True, agent_env=[])
    assert wishes_of(Project(project), home=home) == []


@pytest.mark.parametrize(
    "key", [key for key in KEYS if isinstance(getattr(Settings(), key), int | float)]
)
def test_no_file_may_ask_for_a_billion_of_anything(project: Path, home: Path, key: str) -> None:
    clone_says(project, **{key: 10**9})
    with pytest.raises(BadSetting, match=key):
        settings_in(project, home)


@pytest.mark.parametrize(
    "text",
    [
        '{"search_limit": "\\ud83d"}',
        '{"\\ud83d": 1}',
        '{"agent": "\\udc00"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "5",
        '{"search_limit": ' + "9" * 5000 + "}",
        '{"search_limit": NaN}',
    ],
)
def test_a_bad_file_ends_in_one_clear_line(ralph: Line, project: Path, text: str) -> None:
    Project(project).settings_file.write_text(text, encoding="utf-8")
    for words in (["status"], ["config"], ["trust"]):
        ran = ralph(*words)
        assert ran.code == 1
        assert "rag_config.json: " in ran.complaint
        assert "internal error" not in ran.complaint


def test_a_bad_variable_of_the_environment_is_one_clear_line(project: Path) -> None:
    for value in ("[" * 100_000, "\udcff"):
        ran = process(["status"], cwd=project, environ={"RALPH_SEARCH_LIMIT": value})
        assert ran.returncode == 1
        assert ran.stderr.startswith(b"ralph: RALPH_SEARCH_LIMIT: search_limit cannot be")


def test_a_long_limit_for_a_hook_keeps_capture_on(ralph: Line, project: Path, home: Path) -> None:
    assert "between 0.05 and 600" in ralph("config", "hook_timeout_s", "9999").complaint
    ralph.well("config", "hook_timeout_s", "300")
    transcript = project.parent / "s.jsonl"
    said: dict[str, Any] = {"type": "user", "sessionId": "s", "uuid": "1", "promptId": "p1"}
    said |= {"timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "hello"}}
    transcript.write_text(json.dumps(said) + "\n", encoding="utf-8")
    given = {"session_id": "s", "cwd": str(project), "transcript_path": str(transcript)}

    process(
        ["hook", "stop"],
        cwd=project,
        stdin=json.dumps({**given, "last_assistant_message": "hi"}).encode(),
    )

    [kept] = ralph.well("conversations", "list", "--json").json
    assert kept["exchanges"] == 1


# -- saying yes


def test_trust_shows_every_wish_whole_and_asks(
    ralph: Line, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone_says(project, agent="sh -c 'touch PWNED'", agent_env=["*"])
    server = {"command": "npx", "args": ["-y", "it"], "env": {"KEY": "s3cret", "LOG": "debug"}}
    far = {"url": "http://far/${ANTHROPIC_API_KEY}", "headers": {"X-Key": "s3cret"}}
    clone_serves(project, near=server, far=far, odd={"command": "a", "url": "b", "helper": "sh"})

    ran = ralph("trust")

    assert ran.code == 1
    for text in (
        "agent = \"sh -c 'touch PWNED'\"",
        'agent_env = ["*"]',
        "MCP server near of web: runs npx -y it, env KEY=[redacted], LOG=debug",
        "MCP server far of web: connects to http://far/${ANTHROPIC_API_KEY}, "
        "headers X-Key: [redacted], "
        "takes ANTHROPIC_API_KEY from your environment",
        "MCP server odd of web: runs a, connects to b, helper sh",
    ):
        assert text in ran.out
    assert "s3cret" not in ran.out + ran.err
    assert "need your approval, and this is not a terminal" in ran.complaint
    assert not (home / "trust.json").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NODE_OPTIONS", "--require ./evil.js"),
        ("LD_PRELOAD", "./evil.so"),
        ("DYLD_INSERT_LIBRARIES", "./evil.dylib"),
        ("PYTHONPATH", "evil"),
        ("PYTHONSTARTUP", "./evil.py"),
        ("BASH_ENV", "./evil.sh"),
        ("PATH", "./bin:/usr/bin"),
        ("GIT_SSH_COMMAND", "sh evil.sh"),
        ("npm_config_node_options", "--require ./evil.js"),
        ("RUBYOPT", "-r./evil"),
        ("JAVA_TOOL_OPTIONS", "-javaagent:evil.jar"),
    ],
)
def test_trust_shows_a_variable_that_runs_code_and_warns(
    ralph: Line, project: Path, name: str, value: str
) -> None:
    clone_serves(project, near={"command": "npx", "args": ["it"], "env": {name: value}})

    ran = ralph("trust")

    assert f"{name}={shlex.quote(value)}" in ran.out
    assert f"WARNING: {name} can make it run other code" in ran.out


def test_trust_does_not_warn_of_harmless_variables(ralph: Line, project: Path) -> None:
    env = {"LOG_LEVEL": "debug", "GOOGLE_REGION": "eu", "PORT": "1", "NODE_ENV": "test"}
    clone_serves(project, near={"command": "npx", "args": ["it"], "env": env})
    assert "WARNING" not in ralph("trust").out


def test_a_typed_yes_is_remembered_and_nothing_else_is(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ralph.doors.cli.main import run

    monkeypatch.chdir(project)
    clone_says(project, agent="my-agent")
    for answer, code in (("no\n", 1), ("\n", 1), ("yes\n", 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert run(["trust"]) == code
        told = settings_in(project, home).agent
        assert told == ("my-agent" if code == 0 else "claude")
    assert stat.S_IMODE((home / "trust.json").stat().st_mode) == 0o600
    assert list(trusted_folders(home)) == [str(project)]
    capsys.readouterr()


def test_a_wish_that_changes_is_asked_again_and_the_others_stay(
    ralph: Line, project: Path, home: Path
) -> None:
    clone_says(project, agent="one", hook_timeout_s=20)
    clone_serves(project, near={"command": "npx"})
    ralph.well("trust", "--yes")
    assert settings_in(project, home).agent == "one"
    assert untrusted(Project(project), home=home) == []

    clone_says(project, agent="one && two", hook_timeout_s=20)
    clone_serves(project, near={"command": "npx", "args": ["more"]})

    found = settings_in(project, home)
    assert (found.agent, found.hook_timeout_s) == ("claude", 20)
    assert [one.name for one in untrusted(Project(project), home=home)] == ["agent", "web/near"]


def test_trust_holds_for_the_folder_and_no_other(ralph: Line, project: Path, home: Path) -> None:
    clone_says(project, agent="one")
    ralph.well("trust", "--yes")
    copy = project.parent / "copy"
    Project(copy).init()
    clone_says(copy, agent="one")
    link = project.parent / "link"
    link.symlink_to(project)

    assert settings_in(copy, home).agent == "claude"
    assert settings_in(link, home).agent == "one"


def test_trust_is_listed_and_taken_back(ralph: Line, project: Path, home: Path) -> None:
    assert "asks for nothing" in ralph.well("trust").out
    assert ralph.well("trust", "--list", "--json").json == []
    assert "was not trusted" in ralph.well("trust", "--revoke").out
    clone_says(project, agent="one")

    told = ralph.well("trust", "--yes", "--json").json

    wish = {"kind": "setting", "name": "agent", "asks": 'agent = "one"'}
    assert told == {"folder": str(project), "wishes": [wish]}
    assert "You allowed all of it" in ralph.well("trust").out
    [listed] = ralph.well("trust", "--list", "--json").json
    assert (listed["folder"], listed["wishes"]) == (str(project), ['agent = "one"'])
    assert f"{project}  since just now" in ralph.well("trust", "--list").out
    assert ralph.well("trust", "--revoke", "--json").json["revoked"] is True
    assert settings_in(project, home).agent == "claude"
    assert ralph("trust", "--revoke", "--yes").code == 2


def test_what_a_person_sets_by_command_is_trusted_and_what_lay_there_is_not(
    ralph: Line, project: Path, home: Path
) -> None:
    clone_says(project, agent="of the clone")
    clone_serves(project, theirs={"command": "evil"})

    ralph.well("config", "hook_timeout_s", "20")
    ralph.well("discipline", "add", "mine", "--mcp-servers", '{"near": {"command": "npx"}}')
    ralph.well("discipline", "update", "web", "--system-prompt", "Be kind.")

    found = settings_in(project, home)
    assert (found.hook_timeout_s, found.agent) == (20, "claude")
    waiting = untrusted(Project(project), home=home)
    assert [one.name for one in waiting] == ["agent", "web/theirs"]
    ralph.well("config", "agent", "of mine")
    assert settings_in(project, home).agent == "of mine"


def test_a_person_may_set_a_project_back_to_the_default_that_their_own_file_changed(
    ralph: Line, project: Path, home: Path
) -> None:
    ralph.well("config", "--user", "agent", "codex")
    ralph.well("config", "--user", "hook_capture", "false")

    ralph.well("config", "agent", "claude")
    ralph.well("config", "hook_capture", "true")

    found = settings_in(project, home)
    assert (found.agent, found.hook_capture) == ("claude", True)
    assert untrusted(Project(project), home=home) == []


def test_what_is_left_out_is_told_where_people_look(ralph: Line, project: Path) -> None:
    assert "trust" not in ralph.well("doctor").err
    clone_says(project, agent="sh", agent_env=["*"])
    clone_serves(project, near={"command": "npx"})

    [check] = [one for one in ralph("doctor", "--json").json["checks"] if one["name"] == "trust"]
    assert (check["state"], check["todo"]) == ("warning", "See it whole and allow it: ralph trust")
    assert 'agent = "sh"; agent_env = ["*"]; MCP server near of web' in check["detail"]
    told = ralph.well("config").err
    assert 'the project\'s file asks for agent = "sh"; ignored' in told
    assert ralph.well("config", "agent").out == "claude\n"
    assert ralph.well("config", "search_limit").err == ""
    ran = ralph("run", "--agent", "true")
    assert ran.err.count("ralph trust") == 1
    assert 'not allowed it: agent = "sh"; agent_env = ["*"]; MCP server near' in ran.err
    ralph.well("trust", "--yes")
    assert ralph.well("config").err == ""
    assert ralph("run", "--agent", "true").err == ""


def test_the_agent_of_a_clone_never_runs_and_gets_no_key(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = project.parent / "PWNED"
    clone_says(project, agent=f"{sys.executable} -c 'open({str(mark)!r}, \"w\")'", agent_env=["*"])
    for words in (
        ["feature", "add", "a", "--description", "d"],
        ["task", "add", "T", "--feature", "a"],
        ["run", "--max-iterations", "1"],
    ):
        environ = {"PATH": "/usr/bin:/bin", "GREAT_SECRET": "x"}
        ran = process(words, cwd=project, environ=environ)
    assert b"ralph trust" in ran.stderr
    assert b"'claude' was not found" in ran.stderr
    assert not mark.exists()


def test_controls_in_a_wish_do_not_reach_the_terminal(ralph: Line, project: Path) -> None:
    clone_says(project, agent="sh\x1b[2J\u202e evil\nType yes to allow this: yes")
    ran = ralph("trust")
    assert "\x1b" not in ran.out + ran.err
    assert "\u202e" not in ran.out + ran.err
    assert len(ran.out.splitlines()) == 2


# -- the list in the home


def test_a_list_that_cannot_be_read_allows_nothing_and_says_so(
    ralph: Line, project: Path, home: Path
) -> None:
    clone_says(project, agent="one")
    ralph.well("trust", "--yes")
    for damage in (b"{", b"[]", b"\xff", b"[" * 100_000):
        (home / "trust.json").write_bytes(damage)
        assert trusted_hashes(home, project) == frozenset()
        assert settings_in(project, home).agent == "claude"
        ran = ralph("trust", "--yes")
        assert ran.code == 1
        assert "the list of trusted folders cannot be read" in ran.complaint
    (home / "trust.json").unlink()
    ralph.well("trust", "--yes")
    assert settings_in(project, home).agent == "one"


def test_a_wish_is_known_by_all_its_parts_in_any_order() -> None:
    def digest(value: Any, name: str = "x", kind: str = "setting") -> str:
        return TrustRequest(kind, name, value, "").digest

    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({1: "x", "b": 2}) == digest({"b": 2, 1: "x"})
    others = [digest(1), digest("1"), digest([1]), digest(1, "y"), digest(1, kind="owner")]
    assert len(set(others)) == len(others)


def test_many_who_trust_at_once_lose_no_answer(home: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ralph.trust import TrustRequest, trust\n"
        "home, root = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "for n in range(5): trust(home, root / str(n), [TrustRequest('a', 'b', n, 't')])\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(home), str(tmp_path / str(n))])
        for n in range(4)
    ]
    assert [one.wait(60) for one in started] == [0] * 4
    assert len(trusted_folders(home)) == 20


def test_revoking_where_nothing_was_trusted_writes_nothing(home: Path, tmp_path: Path) -> None:
    assert not revoke(home, tmp_path)
    assert not home.exists()


def test_the_documents_a_plan_names_are_read_inside_the_project_only(
    ralph: Line, project: Path, home: Path
) -> None:
    key = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"
    outside = project.parent / "outside.md"
    outside.write_text("OUTSIDE", encoding="utf-8")
    docs = project / "docs"
    docs.mkdir()
    (docs / "link.md").symlink_to(outside)
    (docs / "circle.md").symlink_to(docs / "circle.md")
    (docs / "folder").symlink_to(project.parent)
    if sys.platform != "win32":
        os.mkfifo(docs / "pipe.md")
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("GITCONFIG", encoding="utf-8")
    (docs / "good.md").write_text(f"GOOD {key}", encoding="utf-8")
    ralph.well("feature", "add", "auth", "--description", "d")
    ralph.well("task", "add", "T", "--feature", "auth")
    names = ["link.md", "circle.md", "folder/outside.md", "pipe.md", "good.md"]
    paths = [*(f"docs/{name}" for name in names), ".git/config", ".ralph/db/metadata.yaml"]
    ralph.well("feature", "update", "auth", *(w for p in paths for w in ("--knowledge-path", p)))

    told = ralph.well("prompt", "1").out

    assert "GOOD [redacted:" in told
    for word in ("OUTSIDE", "GITCONFIG", "project_id", key):
        assert word not in told
