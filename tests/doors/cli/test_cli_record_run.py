"""`ralph record` with an agent's own output: every dialect, one record a run, nothing secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commanding import Line
from places import FIXTURES
from remembering import files_holding

pytestmark = pytest.mark.usefixtures("words")

STREAM = FIXTURES / "claude_code" / "success.jsonl"
TRANSCRIPT = FIXTURES / "claude_code" / "transcript_success.jsonl"
EXPECTED = (
    "Give it the output of `claude -p --output-format stream-json --verbose`, a Claude Code "
    "transcript (~/.claude/projects/*/*.jsonl), the output of `codex exec --json`, the output of "
    "`gemini -p --output-format stream-json`, the output of `opencode run --format json`, or "
    "iterations as JSON objects, one per line."
)


def item(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": f"item_{kind}", "type": kind, **more}}


CODEX = [
    {"type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53"},
    {"type": "turn.started"},
    item("file_change", status="completed", changes=[{"path": "b.py", "kind": "update"}]),
    item("agent_message", text="I wrote the form and its tests, and all of them pass now."),
    {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 5}},
]


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def test_a_stream_becomes_one_iteration_with_its_source(ralph: Line) -> None:
    flags = "--feature auth --task 41 --title Form --discipline web --outcome success".split()
    [told] = ralph.well("record", STREAM, *flags, "--json").json

    names = ("feature", "task_id", "task_title", "discipline", "outcome", "iteration_number")
    assert [told[name] for name in names] == ["auth", 41, "Form", "web", "success", 1]
    assert told["summary"].startswith("Done: login implemented.")
    assert {"path": "login.py", "action": "created"} in told["files_touched"]
    assert told["timestamp"] == "2026-11-15T09:01:04.601Z"
    assert told["session_id"] == "1408c1ab-b833-4487-8c9f-704e38152773"
    shown = ralph.well("show", told["id"], "--json").json
    assert shown["source"] == {"run": told["session_id"], "file": str(STREAM)}


def test_without_a_word_on_the_outcome_it_is_unknown(ralph: Line) -> None:
    ran = ralph.well("record", STREAM, "--feature", "auth")

    [record] = ralph.well("recent", "--json").json
    first, second, third = ran.out.splitlines()
    assert first == "Recorded 1 iteration of auth."
    assert second == f"  {record['id'][:8]}"
    assert third.startswith("  iteration 1, unknown, 2 files: Done: login implemented.")
    assert ran.err == ""


@pytest.mark.parametrize(
    "data",
    [STREAM.read_bytes(), TRANSCRIPT.read_bytes(), lines(*CODEX), lines(*CODEX[2:])],
    ids=["stream-json", "transcript", "codex", "codex without its name"],
)
def test_every_dialect_comes_by_file_and_by_stdin_and_twice_is_one(
    ralph: Line, project: Path, data: bytes
) -> None:
    (project / "out.jsonl").write_bytes(data)

    [first] = ralph.well("record", "--feature", "auth", "out.jsonl", "--json").json
    [again] = ralph.well("record", "--feature", "auth", "-", "--json", stdin=data).json

    assert again == first
    ran = ralph.well("record", "--feature", "auth", "-", stdin=data)
    assert ran.out.startswith("Recorded 0 iterations of auth (1 was already known).")
    assert len(ralph.well("recent", "--json").json) == 1
    assert ralph.well("journal", "verify", "--json").json["ok"] is True


def test_a_session_that_grew_is_one_record_brought_up_to_date(ralph: Line, project: Path) -> None:
    whole = TRANSCRIPT.read_bytes().splitlines(keepends=True)
    file = project / "session.jsonl"
    for half in (whole[: len(whole) // 2], whole):
        file.write_bytes(b"".join(half))
        [told] = ralph.well("record", file, "--feature", "auth", "--json").json
    recent = ralph.well("recent", "--feature", "auth", "--json").json
    assert [one["id"] for one in recent] == [told["id"]]


def test_the_same_run_on_another_task_is_another_record(ralph: Line) -> None:
    for task in ("1", "2"):
        ralph.well("record", "--feature", "auth", "--task", task, "-", stdin=lines(*CODEX))

    assert len(ralph.well("recent", "--json").json) == 2


# The sessions that Codex keeps for itself are conversations, not the output of a run.
RUNS = sorted(f.name for f in FIXTURES.glob("*/*.jsonl") if f.parent.name != "codex")


@pytest.mark.parametrize("name", RUNS)
def test_every_real_output_can_be_recorded(ralph: Line, name: str) -> None:
    [file] = FIXTURES.glob(f"*/{name}")

    ran = ralph("record", "--feature", "auth", file, "--json")

    if name == "hook_inputs.jsonl":
        assert ran.code == 1
        assert ran.complaint == (
            f"ralph: {file}:1: this is neither an agent's output nor a record. {EXPECTED}"
        )
    else:
        assert ran.code == 0, ran
        assert len(ran.json) == 1
        assert ran.json[0]["summary"]


def test_a_run_with_nothing_in_it_still_happened(ralph: Line) -> None:
    start = STREAM.read_bytes().splitlines(keepends=True)[0]

    [told] = ralph.well("record", "--feature", "auth", "-", "--json", stdin=start).json

    assert told["summary"] == "The run ended without a word (killed)."
    assert told["outcome"] == "unknown"


def test_a_rate_limited_run_says_so_by_itself(ralph: Line) -> None:
    file = FIXTURES / "claude_code" / "rl_rej_oauth.jsonl"
    [told] = ralph.well("record", "--feature", "auth", file, "--json").json

    assert told["outcome"] == "rate_limited"


# -- which feature


def test_the_focus_says_where_a_run_belongs(ralph: Line) -> None:
    refused = ralph("record", STREAM)
    ralph.well("focus", "billing", "7")
    [told] = ralph.well("record", STREAM, "--json").json

    assert refused.code == 1
    assert refused.complaint == (
        f"ralph: {STREAM}: an agent's output does not name a feature. "
        "Add --feature NAME, or set one: ralph focus NAME."
    )
    assert (told["feature"], told["task_id"]) == ("billing", 7)


@pytest.mark.parametrize(
    ("flags", "belongs"),
    [
        (["--feature", "auth"], ("auth", None)),
        (["--task", "9"], ("billing", 9)),
        (["--feature", "auth", "--task", "T-1"], ("auth", "T-1")),
    ],
)
def test_what_the_line_says_goes_before_the_focus(
    ralph: Line, flags: list[str], belongs: tuple[str, int | str | None]
) -> None:
    ralph.well("focus", "billing", "7")

    [told] = ralph.well("record", STREAM, *flags, "--json").json

    assert (told["feature"], told["task_id"]) == belongs


def test_records_without_a_feature_belong_to_the_focus_too(ralph: Line) -> None:
    ralph.well("focus", "billing", "7")
    text = '{"summary": "x"}\n{"summary": "y", "feature": "auth"}\n{"summary": "z", "task_id": 1}'

    told = ralph.well("record", "-", "--json", stdin=text).json

    assert [(one["feature"], one["task_id"]) for one in told] == [
        ("billing", 7),
        ("auth", None),
        ("billing", 1),
    ]


# -- what is not quite right


def test_what_could_not_be_read_is_told_on_stderr(ralph: Line) -> None:
    first, *rest = STREAM.read_bytes().splitlines(keepends=True)
    torn = first + b'{"type": "assistant", "mess\n' + b"".join(rest)

    ran = ralph.well("record", "--feature", "auth", "-", stdin=torn)

    assert ran.complaint == "ralph: <stdin>:2: is torn or garbled JSON; skipped"
    assert ran.out.startswith("Recorded 1 iteration of auth.\n")


@pytest.mark.parametrize(
    "noise",
    [
        b"npm warn deprecated\nhello\n",
        b"\xef\xbb\xbf",
        b'{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}\n',
        b"\n\n",
    ],
)
def test_noise_in_front_of_a_stream_is_stepped_over(ralph: Line, noise: bytes) -> None:
    data = noise + STREAM.read_bytes()

    [told] = ralph.well("record", "--feature", "auth", "-", "--json", stdin=data).json

    assert told["summary"].startswith("Done: login implemented.")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"hello\n", "<stdin>:1: is not JSON: Expecting value (column 1)"),
        (b"hello\n" * 1000, "<stdin>:1: is not JSON: Expecting value (column 1)"),
        (b'{"foo": 1}\n', "<stdin>:1: this is neither an agent's output nor a record"),
        (b'{"type": "ping"}\n' * 500, "<stdin>:1: this is neither an agent's output nor a record"),
        (b"", "<stdin>: there is nothing in it to record"),
    ],
)
def test_what_is_neither_says_what_was_expected(
    ralph: Line, project: Path, data: bytes, told: str
) -> None:
    ran = ralph("record", "--feature", "auth", "-", stdin=data)

    assert ran.code == 1
    assert ran.complaint == f"ralph: {told}. {EXPECTED}"
    assert list((project / ".ralph/db/memory").glob("*.jsonl")) == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_stream_that_powershell_redirected_is_refused_with_what_to_do(
    ralph: Line, project: Path, encoding: str
) -> None:
    text = "\ufeff" + STREAM.read_text(encoding="utf-8").replace("\n", "\r\n")
    (project / "out.jsonl").write_bytes(text.encode(encoding))

    ran = ralph("record", "--feature", "auth", "out.jsonl")

    assert ran.code == 1
    assert ran.complaint == (
        "ralph: out.jsonl: is UTF-16, as Windows PowerShell redirects it, and an agent prints "
        "UTF-8. Convert it: Get-Content FILE | Set-Content -Encoding utf8 run.jsonl"
    )


def test_no_secret_of_a_run_is_written(ralph: Line, project: Path, home: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    text = STREAM.read_text(encoding="utf-8")
    data = text.replace("Done: login implemented.", f"Done with the token {secret} as planned.")
    assert data != text

    ran = ralph.well("record", "--feature", "auth", "-", "--json", stdin=data)

    assert "[redacted:" in ran.json[0]["summary"]
    assert secret not in ran.out
    assert files_holding(project, secret) == files_holding(home, secret) == []


# -- size


def huge(megabytes: int) -> Iterator[bytes]:
    """A run whose agent reads a large file over and over."""
    start, *_, result = STREAM.read_bytes().splitlines(keepends=True)
    block = {"type": "tool_result", "tool_use_id": "t", "content": "x = 1\n" * 30_000}
    event = {"type": "user", "message": {"role": "user", "content": [block]}}
    line = lines(event)
    yield start
    for _ in range(megabytes * 1_000_000 // len(line)):
        yield line
    yield result


@pytest.mark.skipif(sys.platform != "linux", reason="counts kilobytes as Linux does")
def test_a_huge_run_is_streamed(project: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows does not count so")
    peaks = []
    for megabytes in (1, 60):
        with subprocess.Popen(
            [sys.executable, "-m", "ralph", "record", "--feature", "auth", "-"],
            cwd=project,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "RALPH_EMBEDDER": "none"},
        ) as recorder:
            assert recorder.stdin is not None
            for line in huge(megabytes):
                recorder.stdin.write(line)
            recorder.stdin.close()
            _, status, used = os.wait4(recorder.pid, 0)
            recorder.returncode = os.waitstatus_to_exitcode(status)
        assert recorder.returncode == 0
        peaks.append(used.ru_maxrss)

    assert peaks[1] - peaks[0] < 20_000


def test_a_session_of_codex_is_refused_with_the_way_to_bring_it_in(ralph: Line) -> None:
    rollout = FIXTURES / "codex" / "rollout_session.jsonl"
    ran = ralph("record", "--feature", "auth", rollout)
    assert ran.code == 1
    assert "ralph conversations import codex" in ran.complaint


def test_a_session_of_a_sub_agent_of_codex_is_refused_as_what_it_is(
    ralph: Line, tmp_path: Path
) -> None:
    text = (FIXTURES / "codex" / "rollout_session.jsonl").read_text(encoding="utf-8")
    below = tmp_path / "rollout.jsonl"
    below.write_text(text.replace('"thread_source":"user"', '"thread_source":"subagent"', 1))

    ran = ralph("record", "--feature", "auth", below)
    assert ran.code == 1
    assert "the session file of a sub-agent of Codex" in ran.complaint

    ran = ralph("conversations", "import", "codex", below)
    assert "1 session of a sub-agent left out" in ran.out
