"""Nested too deeply, half a character, no room: one clear line from every door, nothing lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from commanding import LOGIN, Line, Ran, process
from examples import some
from looping import planned
from serving import Wire, wired

from ralph.errors import BadPlan
from ralph.memory.ralph import open_ralph
from ralph.plan.yaml import PlanFile

DEEP = {
    "deep for us": "[" * 900 + "]" * 900,
    "deep for msgspec": "[" * 3000 + "]" * 3000,
    "deep objects": '{"a":' * 3000 + "1" + "}" * 3000,
    "never closed": "[" * 100_000,
}
HALF = '"half \\ud83d an emoji"'
ODD = {**DEEP, "half a character": HALF, "a long number": "9" * 5000, "no number": "NaN"}


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setenv("RALPH_EMBEDDER", "none")
    return Line(capsys, monkeypatch)


@pytest.fixture
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project, and we are in it."""
    monkeypatch.chdir(project)
    return project


def told(ran: Ran) -> None:
    """It went well, or one clear line says why not."""
    assert "internal error" not in ran.err
    assert "Traceback" not in ran.err
    if ran.code:
        assert ran.code == 1
        assert ran.complaint.startswith("ralph: ")


def entry(identity: str, body: str, *, kind: str = "iteration") -> str:
    return (
        f'{{"v":1,"kind":"{kind}","id":"{identity}","number":1,"at":"2026-01-01T00:00:00Z",'
        f'"body":{body}}}'
    )


# Lines that are stepped over


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize(
    "shape",
    [
        '{{"stream":"auth","entry":{in_body}}}',
        '{{"stream":"auth","entry":{value}}}',
        '{{"knowledge":"p","entry":{in_body}}}',
        "{in_body}",
        "{value}",
    ],
)
def test_an_import_steps_over_a_line_that_is_nested_too_deeply(
    line: Line, inside: Path, name: str, shape: str
) -> None:
    value = DEEP[name]
    in_body = entry("bad", f'{{"feature":"auth","summary":"x","more":{value}}}')
    good = f'{{"stream":"auth","entry":{entry("good", json.dumps(dict(LOGIN, feature="auth")))}}}'

    ran = line("import", "-", stdin=f"{shape.format(value=value, in_body=in_body)}\n{good}\n")

    assert "internal error" not in ran.err
    assert "1 record" in ran.out
    assert "<stdin>:1: " in ran.err
    with open_ralph(inside) as ralph:
        assert [one.id for one in ralph.feature("auth").records()] == ["good"]


@pytest.mark.parametrize("words", ["recent", "search form", "files", "export -", "journal verify"])
def test_a_journal_with_such_lines_is_read_all_the_same(
    line: Line, inside: Path, words: str
) -> None:
    line.record("auth", LOGIN)
    journal = inside / ".ralph" / "db" / "memory" / "auth.jsonl"
    with journal.open("a", encoding="utf-8") as file:
        for name, value in ODD.items():
            file.write(entry(name, f'{{"summary":{value},"feature":{value}}}') + "\n")
            file.write(entry(name, f'{{"summary":"x","more":{value}}}') + "\n")
            file.write(f"{value}\n")

    first, *more = words.split()
    ran = line(first, *more, *(["--feature", "auth"] if first != "journal" else []))

    assert "internal error" not in ran.err
    if first != "journal":
        assert ran.code == 0
        assert "login" in ran.out


def test_a_conversation_s_journal_with_such_lines_is_read_all_the_same(
    line: Line, inside: Path, home: Path
) -> None:
    exchange = '{"user":"Where is the zebra?","assistant":"Behind the old barn, near the river."}'
    talk = f'{{"title":"t","exchanges":[{exchange}]}}'
    line.well("conversations", "import", "-", stdin=f'{{"version":1,"conversations":[{talk}]}}')
    [journal] = (home / "journal" / "conversations").glob("*.jsonl")
    with journal.open("a", encoding="utf-8") as file:
        for name, value in ODD.items():
            body = f'{{"conversation":"c","user":"u","more":{value}}}'
            for kind in ("exchange", "conversation", "summary", "label"):
                file.write(entry(f"{kind} {name}", body, kind=kind) + "\n")

    assert "zebra" in line.well("search", "--conversations", "zebra").out
    assert "t" in line.well("conversations", "list").out


# Documents and words that are refused


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    ("words", "document"),
    [
        ("record --feature auth -", '{{"summary":{value}}}'),
        ("record --feature auth -", '{{"summary":"s","unknown":{value}}}'),
        (
            "record --feature auth -",
            '{{"type":"system","subtype":"init","session_id":"s"}}\n'
            '{{"type":"assistant","message":{{"role":"assistant","content":[{{"type":"tool_use",'
            '"id":"t","name":"Bash","input":{{"command":{value}}}}}]}}}}\n'
            '{{"type":"result","subtype":"success","result":"It was done as it should be."}}\n',
        ),
        (
            "conversations import -",
            '{{"version":1,"conversations":[{{"title":{value},"exchanges":[]}}]}}',
        ),
        ("conversations import -", '{{"version":1,"more":{value},"conversations":[]}}'),
        ("conversations import -", '[{{"role":"user","content":{value}}}]'),
        (
            "conversations import -",
            '{{"title":"x","current_node":"a","mapping":{{"a":{{"message":{{"author":'
            '{{"role":"user"}},"content":{{"parts":[{value}]}}}}}}}}}}',
        ),
        (
            "knowledge capture -",
            '{{"entry_type":"failure_solution","failure_description":{value},'
            '"solution_steps":"x"}}',
        ),
        ("plan import -", "features:\n  - name: a\n    description: {value}\n"),
        ("discipline add qa --mcp-servers", ""),
    ],
)
def test_a_document_that_cannot_be_read_is_one_line(
    line: Line, inside: Path, words: str, document: str, name: str
) -> None:
    more = [] if document else [ODD[name]]
    told(line(*words.split(), *more, stdin=document.format(value=ODD[name])))


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are text there")
@pytest.mark.parametrize(
    "words",
    [
        "search @",
        "search --feature @ form",
        "forget --match @ --yes",
        "forget @ --yes",
        "feature add @",
        "feature add more --description @",
        "task add @ --feature auth",
        "discipline add @",
        "config embedder @",
        "config --user openai_model @",
        "focus auth @",
        "conversations rename aaaa @",
        "record --feature @ -",
        "import @",
        "plan import @",
        "knowledge query @",
        "show @",
        "--project @ status",
    ],
)
def test_arguments_that_are_no_text_are_one_line(line: Line, inside: Path, words: str) -> None:
    line.well("feature", "add", "auth")
    told(line(*("bytes \udcff\udcfe" if word == "@" else word for word in words.split())))


# Plans


def bomb(levels: int, shape: str) -> str:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} " + shape.replace("@", f"*a{i - 1}") for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb(12, "[@, @, @, @, @, @, @, @, @, @]"),
        bomb(40, "{<<: [@, @, @, @], y: 1}"),
        "a: &a {<<: *a}",
        "a: &a {b: *a}",
        "a: " + "[" * 50_000,
        "a: " + "{a: " * 50_000,
        "- " * 50_000,
        "? " * 50_000,
        "".join(f"{' ' * i}a:\n" for i in range(1000)),
        "a: &a " + "x" * 1_000_000 + "\nb: [" + ", ".join(["*a"] * 1000) + "]",
    ],
    ids=range(10),
)
def test_a_plan_that_grows_without_end_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(BadPlan, match=r"x:\d+:\d+: this nests or repeats too much to be a plan"):
        PlanFile(text, name="x")


def test_an_anchor_may_be_used_twice_and_nobody_is_warned() -> None:
    assert PlanFile("a: &x 1\nb: &x 2\nc: *x\n", name="x").data == {"a": 1, "b": 2, "c": 2}


def test_an_emoji_in_two_escapes_is_read_and_half_of_one_is_marked() -> None:
    data = PlanFile('a: "\\ud83d\\ude00"\nb: "x\\ud83d"\n', name="x").data

    assert data == {"a": "\U0001f600", "b": "x\ufffd"}


# No room


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no RLIMIT_FSIZE")
@pytest.mark.parametrize("limit", some([700, 20_000]))
@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("record --feature auth -", json.dumps({"summary": "x" * 1900})),
        ("conversations import -", '{"messages":[{"role":"user","content":"%s"}]}' % ("x " * 900)),
        ("knowledge capture -", '{"entry_type":"failure_solution","failure_description":"a",'
         '"solution_steps":"b"}'),
        ("task add %s --feature auth" % ("t" * 900), ""),
        ("config search_limit 5", ""),
        ("index rebuild", ""),
        ("search form", ""),
        ("forget --match form --yes", ""),
        ("export out.jsonl", ""),
    ],
    ids=lambda value: value[:16],
)  # fmt: skip
def test_a_full_disk_is_one_line_and_what_was_kept_stays(
    line: Line, inside: Path, limit: int, words: str, given: str
) -> None:
    line.well("feature", "add", "auth")
    line.record("auth", LOGIN)
    bounded = (
        f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )

    ran = process(
        words.split(),
        cwd=inside,
        stdin=given.encode(),
        prefix=[sys.executable, "-c", bounded],
        environ={"RALPH_EMBEDDER": "none"},
    )

    told(Ran(ran.returncode, "", "\n".join(one_failure(ran.stderr.decode()))))
    assert line("journal", "verify").code == 0
    if not words.startswith("forget"):
        with open_ralph(inside) as ralph:
            assert ralph.feature("auth").iterations()[0][1].task_title == LOGIN["task_title"]


def one_failure(err: str) -> list[str]:
    """What was refused, without what is only said beside it."""
    return [one for one in err.splitlines() if one.startswith("ralph: ")]


# MCP


@pytest.mark.parametrize(
    "request_line",
    some(
        [
            '{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":'
            '"search_feature_memory","arguments":{{"query":{value},"id":1}}}}}}',
            '{{"method":"tools/call","params":{{"name":"get_memory","arguments":{{"id":{value}}}}},'
            '"jsonrpc":"2.0","id":77}}',
            '{{"jsonrpc":"2.0","id":77,"method":{value}}}',
        ]
    ),
)
def test_requests_that_cannot_be_read_are_answered(tmp_path: Path, request_line: str) -> None:
    root = planned(tmp_path / "project")
    names = [*DEEP, "half a character", "a long number"]
    if request_line.startswith('{{"method"'):
        names.remove("never closed")  # the id is inside what is never closed
    with wired(root, "--feature", "auth", environ={"RALPH_EMBEDDER": "none"}) as server:
        server.greet()
        for name in names:
            answer = sent(server, request_line.format(value=ODD[name]))

            assert answer["id"] == 77, name
            assert "error" in answer or answer["result"]["isError"], name
            assert "no iteration" in server.call("get_recent_iterations"), name
        assert server.hang_up() == 0


def sent(server: Wire, text: str) -> dict[str, Any]:
    assert server.process.stdin is not None
    server.process.stdin.write(text.encode() + b"\n")
    server.process.stdin.flush()
    return server.receive()


def test_a_name_that_no_file_can_have_breaks_nothing_that_looks_for_it(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = planned(tmp_path / "project")
    monkeypatch.chdir(root)
    long = "é" * 200
    files = [{"path": long, "action": "modified"}, {"path": f"{long}/b.py", "action": "read"}]
    for number in range(4):
        line.record("auth", {"summary": f"Attempt {number}.", "files_touched": files})
    line("feature", "update", "auth", "--knowledge-path", long)

    with wired(root, "--feature", "auth", environ={"RALPH_EMBEDDER": "none"}) as server:
        server.greet()
        assert "[no longer there]" in server.call("get_feature_files")
    for words in ("files --feature auth", "prompt 1", "plan check", "doctor"):
        assert "too long" not in line(*words.split()).err
