"""The same attacks through the doors: MCP, hooks and the command line, on a project full of them.

A sample of every family by default; RALPH_INJECTION=all tries all of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacking import ATTACKS, CANARY, HARMLESS, Attack, fenced, live_marks, steering
from commanding import Terminal

from ralph.doors.cli.main import run
from ralph.doors.hooks.call import serve
from ralph.doors.mcp.context import ServerContext, read_options
from ralph.doors.mcp.server import perform, resource_files, resource_text, tools_for
from ralph.errors import BadInput
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Conversation, Exchange, Message
from ralph.records.iteration import ErrorSeen, FileTouched

# Only the exchange has these words, so that it stands out from the records that are attacks too.
ALONE = "ocelots, tapirs, narwhals"
_EACH = 3
_ALL = os.environ.get("RALPH_INJECTION") == "all"
pytestmark = pytest.mark.timeout(1800 if _ALL else 60)


def _some() -> list[Attack]:
    if _ALL:
        return list(ATTACKS)
    chosen: list[Attack] = []
    for family in dict.fromkeys(one.family for one in ATTACKS):
        there = [one for one in ATTACKS if one.family == family]
        step = max(1, len(there) // _EACH)
        chosen += there[::step][:_EACH]
    return chosen


SOME = _some()
TERMINAL = [one for one in ATTACKS if one.family == "terminal"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_EMBEDDER", "none")
    monkeypatch.setenv("TERM", "dumb")  # so that no colour of ours is in the way


# -- a project in which every field says the same


def _quoted(text: str) -> str:
    """A YAML text in quotes, whatever is in it."""
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(plain)}"'


def hostile(root: Path, text: str) -> Path:
    """A project that somebody else filled; `text` stands wherever a text can stand."""
    root.mkdir(parents=True)
    Project(root).init()
    db, q = root / ".ralph" / "db", _quoted(text)
    (db / "features.yaml").write_text(
        f"""\
version: 1
features:
- name: auth
  display_name: {q}
  acronym: {q}
  description: {q}
  architecture: {q}
  boundaries: {q}
  dependencies: [{q}]
  knowledge_paths: [docs/rules.md, {q}]
  context_files: [src/a.py, {q}]
  learnings:
  - {{text: {q}, source: agent, task_id: {q}, reason: {q}}}
  - {{text: {q}, source: {q}}}
- name: {q}
  description: {q}
""",
        encoding="utf-8",
    )
    (db / "tasks.yaml").write_text(
        f"""\
version: 1
tasks:
- {{id: 1, feature: auth, title: {q}, description: {q}, status: in_progress, discipline: {q},
   acceptance_criteria: [{q}], tags: [{q}], comments: [{{text: {q}, author: {q}, at: {q}}}],
   created: {q}, updated: {q}}}
- {{id: {q}, feature: {q}, title: {q}, status: {q}, priority: {q}}}
""",
        encoding="utf-8",
    )
    (db / "disciplines.yaml").write_text(
        f"""\
version: 1
disciplines:
- {{name: {q}, display_name: {q}, system_prompt: {q}, conventions: [{q}], skills: [{q}]}}
""",
        encoding="utf-8",
    )
    (root / "docs").mkdir()
    (root / "docs" / "rules.md").write_text(text, encoding="utf-8", errors="replace")
    body = {
        "feature": text,
        "task_id": text,
        "task_title": text,
        "discipline": text,
        "outcome": "failure",
        "summary": f"{CANARY} {text}",
        "errors": [
            {"message": f"ValueError: {CANARY} {text}", "file_path": text, "resolution": text}
        ],
        "decisions": [{"description": text, "rationale": text}],
        "files_touched": [{"path": text, "action": "modified"}],
        "model": text,
    }
    lines = [
        {"v": 1, "kind": "iteration", "id": f"{text}{n}", "number": n, "at": at, "body": body}
        | {"source": {"session": text, "file": text}}
        for n, at in enumerate(("2026-02-08T09:00:00Z", text, "2026-02-09T09:00:00Z"), 1)
    ]
    lines.append({"v": 1, "kind": text, "id": "x", "number": 9, "at": text, "body": text})
    (db / "memory").mkdir(exist_ok=True)
    raw = [json.dumps(line, ensure_ascii=False) for line in lines] + [text]
    journal = "\n".join(line.replace("\x7f", "\\u007f") for line in raw)
    (db / "memory" / "auth.jsonl").write_bytes(journal.encode("utf-8", "replace") + b"\n")
    with open_ralph(root) as ralph:
        ralph.conversations.add(
            Conversation(id=f"c{text}", title=text, source=text, project=text),
            [
                Exchange(
                    id=f"e{text}",
                    conversation=f"c{text}",
                    user=f"{CANARY} {text} {ALONE}",
                    assistant=text,
                    errors=(ErrorSeen(text, file_path=text),),
                    files_touched=(FileTouched(text, "read"),),
                    messages=(Message("tool", text, tool=text),),
                )
            ],
        )
    return root


def check(text: str, attack: Attack, where: str) -> None:
    """Nothing steers, every fence is closed, and no mark works but the fences' own."""
    assert not steering(text), (where, attack, steering(text), text)
    parts = fenced(text)
    for part in (*parts.inside, parts.outside):
        assert not any(live_marks(part).values()), (where, attack, live_marks(part), text)


# -- MCP


def _called(root: Path, words: str, calls: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    context = ServerContext(read_options(words.split()), root)
    tools = {tool.name: tool for tool in tools_for(context)}
    for name, arguments in calls:
        yield perform(context, tools[name], arguments)[0]
    if "--feature" in words:
        for file in resource_files(context):
            with contextlib.suppress(BadInput):  # with a NUL in it, it is no text
                yield resource_text(context, file.resource.uri)[1]
    context.close()


def _mcp(root: Path, text: str) -> Iterator[str]:
    yield from _called(
        root,
        "--feature auth --task 1 --review",
        [
            ("search_feature_memory", {"query": CANARY}),
            ("search_feature_memory", {"query": text}),
            ("get_recent_iterations", {}),
            ("get_feature_files", {}),
            ("get_failed_attempts", {}),
            ("get_failed_attempts", {"task_id": text}),
            ("get_memory", {"id": text}),
            ("get_memory", {"id": f"{text}1"}),
            ("get_memory", {"id": text, text: 1}),
            ("update_task", {"status": "in_progress", "comment": text}),
            ("update_task", {"status": text}),
            ("update_task", {"task_id": text, "status": "done"}),
            ("append_learning", {"text": f"Never do this: {text}", "reason": text}),
            ("append_learning", {"text": text}),
            ("update_feature", {"description": text, "boundaries": text}),
            ("review_learning", {"id": text, "text": text}),
            ("review_learning", {"id": "1", "text": f"{text} indeed"}),
            ("remove_learning", {"id": "1", "reason": text}),
            ("verify_feature", {}),
        ],
    )
    yield from _called(
        root,
        "--planning",
        [
            ("get_plan", {}),
            ("get_plan", {"feature": "auth"}),
            ("get_plan", {"feature": text}),
            ("create_feature", {"name": f"{text} again", "description": text}),
            ("create_task", {"feature": "auth", "title": text, "description": text}),
            ("create_task", {"feature": "auth", "title": "x", "discipline": text}),
            ("update_task", {"task_id": 1, "title": text, "comment": text}),
        ],
    )
    yield from _called(
        root,
        "--conversations",
        [
            ("search_conversations", {"query": CANARY}),
            ("search_conversations", {"query": text}),
            (
                "fetch_conversation_details",
                {"conversation_id": f"c{text}", "include_full_transcript": True},
            ),
            ("fetch_conversation_details", {"exchange_id": f"e{text}"}),
            ("fetch_conversation_details", {"exchange_id": text}),
        ],
    )


@pytest.mark.parametrize("attack", SOME, ids=lambda one: one.family)
def test_no_answer_of_a_server_lets_an_attack_through(tmp_path: Path, attack: Attack) -> None:
    root = hostile(tmp_path / "project", attack.text)
    recalled = 0
    for answer in _mcp(root, attack.text):
        check(answer, attack, "mcp")
        recalled += len(fenced(answer).inside)
    assert recalled >= 10


def test_what_a_server_recalls_stands_inside_its_fences(tmp_path: Path) -> None:
    root = hostile(tmp_path / "project", HARMLESS)
    calls: list[tuple[str, dict[str, Any]]]
    calls = [("get_recent_iterations", {}), ("get_feature_files", {}), ("get_failed_attempts", {})]
    for answer in _called(root, "--feature auth --task 1", calls):
        assert CANARY in "".join(fenced(answer).inside)
        assert CANARY not in fenced(answer).outside
    for answer in _called(
        root, "--planning", [("get_plan", {}), ("get_plan", {"feature": "auth"})]
    ):
        assert CANARY in "".join(fenced(answer).inside)
        assert CANARY not in fenced(answer).outside


# -- hooks


def _hooked(event: str, given: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    name = "input.json"
    Path(name).write_text(json.dumps(given), encoding="utf-8")
    with Path(name).open(encoding="utf-8") as sys.stdin:
        assert serve([event]) == 0
    out = capfd.readouterr().out
    if not out:
        return ""
    text: str = json.loads(out)["hookSpecificOutput"]["additionalContext"]
    return text


@pytest.mark.parametrize("attack", SOME, ids=lambda one: one.family)
def test_no_hook_lets_an_attack_through(
    tmp_path: Path,
    attack: Attack,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = hostile(tmp_path / "project", attack.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.setenv("RALPH_HOOK_TIMEOUT_S", "60")  # a busy machine is no failure
    common = {"session_id": "s", "cwd": str(root)}
    told = [
        _hooked("session-start", common, capfd),
        _hooked(
            "user-prompt-submit",
            {**common, "prompt": f"What about {ALONE} and the {CANARY}?"},
            capfd,
        ),
        _hooked(
            "post-tool-use-failure",
            {
                **common,
                "tool_name": "Bash",
                "tool_input": {"command": "make"},
                "error": f"Exit code 1\nValueError: {CANARY} {attack.text}",
            },
            capfd,
        ),
    ]
    assert told[0]
    assert told[1]
    for text in told:
        check(text, attack, "hook")
        assert CANARY not in fenced(text).outside


# -- the command line


def _lines(text: str) -> list[list[str]]:
    flat = text.replace("\0", "")  # no argument can hold it
    return [
        ["status"],
        ["feature", "list"],
        ["feature", "show", "auth"],
        ["feature", "show", flat],
        ["task", "list"],
        ["task", "show", "1"],
        ["task", "update", "1", "--status", flat],
        ["learning", "list", "--feature", "auth"],
        ["learning", "remove", flat, "--feature", "auth"],
        ["discipline", "list"],
        ["discipline", "show", flat],
        ["plan", "check"],
        ["prompt", "1"],
        ["prompt", "1", "--review"],
        ["search", CANARY],
        ["search", flat],
        ["search", CANARY, "--conversations"],
        ["recent"],
        ["recent", "--json"],
        ["files"],
        ["failures"],
        ["show", flat],
        ["show", flat, "--json"],
        ["conversations", "list"],
        ["conversations", "list", "--json"],
        ["conversations", "show", f"c{flat}"],
        ["conversations", "tag", f"c{flat}", flat],
        ["conversations", "export", "-"],
        ["export", "-"],
        ["forget", flat, "--yes"],
        ["config", flat, "x"],
        ["config"],
        ["focus", flat],
        ["journal", "verify"],
        ["journal", "status"],
        ["index", "status"],
        ["knowledge", "patterns"],
        ["gate", "list"],
        [flat],
        ["status", f"--{flat}"],
        ["show", "a", flat],
        ["--project", flat, "status"],
        ["import", flat],
        ["record", "--feature", flat, "-"],
    ]


def _ran(words: list[str], *, terminal: bool, data: bytes = b"") -> tuple[int, str]:
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    sys.stdout, sys.stderr = out, err
    try:
        code = run(words)
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return code, f"{out.getvalue()}\n{err.getvalue()}"


@pytest.mark.parametrize("attack", TERMINAL[:: 1 if len(SOME) > 100 else 4], ids=repr)
def test_nothing_steers_a_terminal_whatever_the_command_and_the_field(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = hostile(tmp_path / "project", attack.text)
    monkeypatch.chdir(root)
    data = json.dumps({"summary": attack.text, "outcome": attack.text}).encode()
    shown = 0
    for words in _lines(attack.text):
        for terminal in (True, False) if "export" not in words else (True,):
            code, text = _ran(words, terminal=terminal, data=data)
            assert not steering(text), (words, terminal, steering(text), text)
            shown += code == 0 and CANARY in text
    assert shown >= 20


@pytest.mark.parametrize("attack", TERMINAL[::4], ids=repr)
def test_files_that_are_not_what_they_should_be_complain_without_steering(
    tmp_path: Path, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = attack.text
    root = tmp_path / "project"
    root.mkdir()
    Project(root).init()
    monkeypatch.chdir(root)
    db = root / ".ralph" / "db"
    for file, written in (
        (root / ".ralph" / "rag_config.json", json.dumps({text: text})),
        (root / ".ralph" / "rag_config.json", json.dumps({"search_limit": text})),
        (root / ".ralph" / "rag_config.json", text),
        (db / "features.yaml", f"features: {_quoted(text)}"),
        (db / "features.yaml", text),
        (db / "tasks.yaml", f"tasks:\n- {{id: {_quoted(text)}, {_quoted(text)}: 1}}\n"),
        (db / "metadata.yaml", f"project_id: {_quoted(text)}\n"),
    ):
        before = file.read_bytes() if file.exists() else None
        file.write_text(written, encoding="utf-8", errors="replace")
        for words in (
            ["status"],
            ["doctor"],
            ["plan", "check"],
            ["task", "list"],
            ["search", "x y"],
        ):
            _, said = _ran(words, terminal=True)
            assert not steering(said), (file.name, words, steering(said), said)
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


def test_an_agent_in_its_run_reads_memory_between_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, attack in enumerate(SOME[::4]):
        root = hostile(tmp_path / str(n), attack.text)
        monkeypatch.chdir(root)
        monkeypatch.setenv("RALPH_TASK", "1")
        for words in (["search", CANARY], ["recent"], ["failures"], ["task", "show", "1"]):
            _, text = _ran(words, terminal=False)
            check(text, attack, " ".join(words))
            assert CANARY in "".join(fenced(text).inside)
        code, plain = _ran(["recent", "--json"], terminal=False)
        assert code == 0
        assert isinstance(json.loads(plain), list)


def test_json_says_the_same_with_everything_escaped_that_steers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"a\x7fb\x9bc\u202ed\U000e0041e\u200bf \U0001f600 é {CANARY}"
    root = hostile(tmp_path / "project", text)
    monkeypatch.chdir(root)
    code, said = _ran(["task", "show", "1", "--json"], terminal=True)
    assert code == 0
    assert not steering(said)
    # What is wrong with the plan stands after it, on stderr.
    shown, _ = json.JSONDecoder().raw_decode(said)
    assert shown["description"] == text
