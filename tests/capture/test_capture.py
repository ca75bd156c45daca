"""The promises every dialect keeps, on runs written out here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from capturing import (
    INIT,
    ROOT,
    SECRET,
    SESSION,
    bash,
    came,
    ended,
    files,
    lines,
    messages,
    run,
    said,
    used,
)
from hypothesis import given
from hypothesis import strategies as st

from ralph.capture import AgentRun, Capture, Dialect
from ralph.clients import Detecting, open_capture, read
from ralph.clients.claude_code import StreamJson
from ralph.errors import BadInput
from ralph.records import Complaint
from ralph.text.sanitize import mark

# Files


def test_a_file_is_kept_once_with_the_strongest_action() -> None:
    got = run(
        INIT,
        used("1", "Read", {"file_path": f"{ROOT}/a.py"}),
        came("1", "1\tx"),
        used("2", "Edit", {"file_path": f"{ROOT}/a.py"}),
        came("2", "updated"),
        used("3", "Write", {"file_path": "src/new.py", "content": "x"}),
        came("3", "ok", detail={"type": "create"}),
        used("4", "NotebookEdit", {"notebook_path": f"{ROOT}/n.ipynb"}),
        came("4", "ok"),
        used("5", "MultiEdit", {"file_path": f"{ROOT}/m.py"}),
        came("5", "ok"),
        used("6", "Grep", {"pattern": "x", "path": f"{ROOT}/g.py"}),
        came("6", "3: x"),
        used("7", "Glob", {"pattern": "**/*.py", "path": f"{ROOT}/src"}),
        came("7", "src/a.py"),
        ended(),
    )
    assert files(got) == {
        "a.py": "modified",
        "src/new.py": "created",
        "n.ipynb": "modified",
        "m.py": "modified",
        "g.py": "read",
    }


def test_a_path_outside_the_project_is_not_kept() -> None:
    outside = ["/etc/passwd", f"{ROOT}-other/a.py", "../b.py", "~/c.py", f"{ROOT}/../d.py", "a\0b"]
    events: list[Any] = [INIT]
    for number, path in enumerate(outside):
        events += [used(str(number), "Read", {"file_path": path}), came(str(number), "x")]
    assert files(run(*events, ended())) == {}


def test_a_given_root_narrows_and_a_recording_from_elsewhere_keeps_its_own() -> None:
    events = [
        INIT,
        used("1", "Read", {"file_path": f"{ROOT}/pkg/a.py"}),
        came("1", "x"),
        used("2", "Read", {"file_path": f"{ROOT}/b.py"}),
        came("2", "x"),
        ended(),
    ]
    assert files(run(*events, root=f"{ROOT}/pkg")) == {"a.py": "read"}
    assert files(run(*events, root="/somewhere/else")) == {"pkg/a.py": "read", "b.py": "read"}


def test_working_copies_of_the_repository_are_the_project_too() -> None:
    got = run(
        INIT,
        *bash(f"git worktree add -b fix {ROOT}-fix main", "Preparing worktree"),
        used("2", "Edit", {"file_path": f"{ROOT}-fix/src/a.py"}),
        came("2", "x"),
        used("3", "Edit", {"file_path": f"{ROOT}/.worktrees/other/src/b.py"}),
        came("3", "x"),
        used("4", "Edit", {"file_path": f"{ROOT}-stranger/src/c.py"}),
        came("4", "x"),
        ended(),
    )
    assert files(got) == {"src/a.py": "modified", "src/b.py": "modified"}


def test_paths_of_windows_are_understood() -> None:
    got = run(
        {**INIT, "cwd": "C:\\work\\shop"},
        used("1", "Read", {"file_path": "c:\\work\\shop\\src\\a.py"}),
        came("1", "x"),
        used("2", "Read", {"file_path": "D:\\other\\b.py"}),
        came("2", "x"),
        used("3", "Edit", {"file_path": "lib\\c.py"}),
        came("3", "x"),
        ended(),
    )
    assert files(got) == {"src/a.py": "read", "lib/c.py": "modified"}


def test_a_write_without_details_is_judged_by_its_words_or_by_what_was_met_before() -> None:
    got = run(
        INIT,
        used("1", "Write", {"file_path": "a.py"}),
        came("1", "File created successfully at: a.py"),
        used("2", "Write", {"file_path": "b.py"}),
        came("2", "The file b.py has been updated successfully."),
        used("3", "Read", {"file_path": "c.py"}),
        came("3", "x"),
        used("4", "Write", {"file_path": "c.py"}),
        came("4", "ok"),
        used("5", "Write", {"file_path": "d.py"}),
        came("5", "ok"),
        ended(),
    )
    assert files(got) == {
        "a.py": "created",
        "b.py": "modified",
        "c.py": "modified",
        "d.py": "created",
    }


def test_a_tool_that_failed_or_never_came_back_touched_nothing() -> None:
    events = [
        INIT,
        used("1", "Edit", {"file_path": "a.py"}),
        came("1", "String to replace not found", error=True),
        used("2", "Write", {"file_path": "b.py"}),
    ]
    assert files(run(*events)) == {}
    assert files(run(*events, ended("Reached", subtype="error_max_turns", is_error=True))) == {}


def test_a_finished_run_without_results_is_taken_at_its_word() -> None:
    got = run(INIT, used("1", "Write", {"file_path": "a.py"}), ended())
    assert files(got) == {"a.py": "created"}


def test_what_the_shell_removed_or_moved_is_kept_when_it_worked() -> None:
    got = run(INIT, *bash("cd src && rm old.py && git mv a.py b.py", ""), ended())
    assert files(got) == {"src/old.py": "deleted", "src/a.py": "deleted", "src/b.py": "created"}
    assert files(run(INIT, *bash("rm old.py", "Exit code 1", error=True), ended())) == {}
    refused = bash("rm a.py; true", "rm: cannot remove 'a.py': No such file or directory")
    assert files(run(INIT, *refused, ended())) == {}


def test_a_file_removed_and_written_again_is_there() -> None:
    write = [used("w", "Write", {"file_path": "a.py"}), came("w", "ok", detail={"type": "create"})]
    assert files(run(INIT, *bash("rm a.py", ""), *write, ended())) == {"a.py": "modified"}


def test_the_shell_stays_in_the_folder_it_went_to() -> None:
    got = run(INIT, *bash("cd src", ""), *bash("rm a.py", ""), ended())
    assert files(got) == {"src/a.py": "deleted"}


# Errors, and whose they are


@pytest.mark.parametrize(
    "command",
    [
        "cat app.log",
        "head -50 app.log | grep Error",
        "sed -n '1,20p' app.py",
        "cd x && git log -3",
        "git show HEAD",
        "git diff",
        "grep -rn Error src",
        "ralph recent --feature auth",
    ],
)
def test_an_error_that_only_stands_in_a_file_that_was_read_is_no_error(command: str) -> None:
    output = "Traceback (most recent call last):\n  File 'x'\nValueError: old news"
    assert messages(run(INIT, *bash(command, output), ended())) == []


def test_what_read_grep_and_glob_show_is_no_error() -> None:
    for tool in ("Read", "Grep", "Glob", "WebFetch", "mcp__x__y"):
        shown = [used("1", tool, {"file_path": "a.log"}), came("1", "fatal: old news")]
        assert messages(run(INIT, *shown, ended())) == []


def test_an_error_in_a_commands_own_output_counts_though_it_exited_well() -> None:
    got = run(INIT, *bash("python app.py | tail -3", "ValueError: bad input"), ended())
    assert messages(got) == ["ValueError: bad input"]
    logged = run(INIT, *bash("npm test > out.txt 2>&1; tail out.txt", "fatal: bad"), ended())
    assert messages(logged) == ["bad"]


def test_the_same_error_elsewhere_is_kept_once() -> None:
    first = bash("make", "Exit code 2\nsrc/a.c:3:5: error: 'x' undeclared", error=True)
    again = bash("make", "Exit code 2\nsrc/b.c:99:1: error: 'x' undeclared", error=True)
    assert len(messages(run(INIT, *first, *again, ended()))) == 1


def test_a_command_that_answers_no_did_not_fail() -> None:
    assert messages(run(INIT, *bash("grep -q x a.py", "Exit code 1", error=True), ended())) == []
    failed = run(INIT, *bash("./build", "Exit code 1", error=True), ended())
    assert messages(failed) == ["`./build` failed with exit code 1"]


def test_an_interrupted_tool_is_no_error() -> None:
    stopped = "The user doesn't want to proceed with this tool use. STOP"
    assert messages(run(INIT, *bash("make", stopped, error=True))) == []


# Subagents


def test_a_subagents_files_count_its_words_do_not() -> None:
    long = "The subagent talks at length about what it found in the code, far over fifty."
    got = run(
        INIT,
        used("task", "Task", {"prompt": "look"}),
        used("1", "Edit", {"file_path": "a.py"}, parent_tool_use_id="task"),
        came("1", "ok", parent_tool_use_id="task"),
        said(long + " I decided to use SQLite because it is small.", parent_tool_use_id="task"),
    )
    assert files(got) == {"a.py": "modified"}
    assert (got.summary, got.decisions) == ("", ())
    assert got.used_tools == {"Task": 1, "Edit": 1}


@pytest.mark.parametrize("failed", [False, True])
def test_a_subagents_errors_count_only_when_its_task_failed(failed: bool) -> None:
    got = run(
        INIT,
        used("task", "Task", {"prompt": "look"}),
        used("1", "Bash", {"command": "make"}, parent_tool_use_id="task"),
        came("1", "Exit code 2\nfatal: inside", error=True, parent_tool_use_id="task"),
        came("task", "could not do it" if failed else "did it", error=failed),
        ended(),
    )
    assert messages(got) == (["inside"] if failed else [])


# What Ralph said itself


def test_injected_memory_is_not_captured_again() -> None:
    memory = mark("I decided to use SQLite because it is small.\nValueError: from iteration 3")
    got = run(
        INIT,
        said(f"The memory says:\n> {memory.replace(chr(10), chr(10) + '> ')}\nI go on."),
        *bash("./tool", f"{memory}\nfine"),
        ended(f"{memory}\nDone."),
    )
    assert (messages(got), got.decisions, got.summary) == ([], (), "Done.")


def test_an_echo_of_injected_memory_in_the_agents_words_is_no_news() -> None:
    echo = "I decided to use SQLite because it needs no server."
    error = "The build failed with ModuleNotFoundError: No module named 'foo'."
    events = [INIT, said(f"{echo} {error}"), ended()]
    assert len(run(*events).decisions) == len(run(*events).errors) == 1
    told = run(*events, injected=f"- {echo}\n- {error}")
    assert (told.decisions, told.errors) == ((), ())
    asked = [
        used("m", "mcp__ralph__search_feature_memory", {}),
        came("m", mark(f"{echo}\n{error}")),
    ]
    heard = run(INIT, *asked, *events[1:])
    assert (heard.decisions, heard.errors) == ((), ())


def test_secrets_are_redacted_in_everything_that_is_kept() -> None:
    got, complaints = read(
        lines(
            INIT,
            said(f"I decided to keep {SECRET} in the environment because it is a secret."),
            *bash(f"curl -H {SECRET} x", f"Exit code 1\nfatal: bad token {SECRET}", error=True),
            *bash(f"./go {SECRET}", "Exit code 1", error=True),
            used("r", "Read", {"file_path": f"{SECRET}.txt"}),
            came("r", "x"),
            ended(f"Done with {SECRET}."),
        )
    )
    assert "redacted" in got.summary
    assert SECRET not in repr((got, complaints))
    live = StreamJson()
    live.feed(lines(used("1", "Bash", {"command": f"curl -H {SECRET} x"}))[0])
    assert SECRET not in repr(live.live)


# How it ended


def test_a_failure_may_call_itself_a_success() -> None:
    got = run(INIT, ended("API Error: 500", is_error=True, terminal_reason="api_error"))
    assert (got.terminal_reason, got.is_error) == ("api_error", True)


def test_after_a_provider_failed_the_summary_is_what_the_agent_had_said() -> None:
    work = "I have written the form and its tests; what is left is the middleware."
    got = run(INIT, said(work), ended("API Error: 500", is_error=True, api_error_status=500))
    assert got.summary == work
    assert messages(got) == ["API Error: 500"]


def test_without_a_result_the_last_significant_words_are_the_summary() -> None:
    work = "I have written the form and its tests; what is left is the middleware."
    got = run(INIT, said("short"), said(work), said("Next."))
    assert (got.summary, got.terminal_reason, got.cost_usd) == (work, "killed", None)


def test_killed_while_it_waited_for_a_rate_limit_is_rate_limited() -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": 429, "error": "rate_limit"}
    assert run(INIT, {**retry, "session_id": SESSION}).terminal_reason == "rate_limited"
    assert run(INIT, {**retry, "session_id": SESSION}, said("on")).terminal_reason == "killed"


def test_the_cost_of_a_session_that_went_on_is_its_last_and_turns_add_up() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100}
    first = ended("one", total_cost_usd=0.5, usage=usage, duration_ms=100)
    got = run(INIT, first, ended("two", total_cost_usd=0.8, usage=usage, duration_ms=50))
    assert (got.cost_usd, got.tokens_used, got.num_turns, got.duration_ms) == (0.8, 230, 2, 150)
    assert got.summary == "two"


def test_the_usage_of_single_messages_is_not_believed() -> None:
    line = said("hi")
    line["message"]["usage"] = {"input_tokens": 999}
    assert run(INIT, line).tokens_used is None


def test_an_iteration_is_made_of_it_and_unknown_is_the_default() -> None:
    got = run(INIT, *bash("rm a.py", ""), ended("Done.", total_cost_usd=0.1))
    plain = got.to_iteration(feature="auth")
    assert (plain.outcome, plain.summary, plain.session_id) == ("unknown", "Done.", SESSION)
    made = got.to_iteration(
        feature="auth", task_id=7, task_title="T", discipline="d", outcome="partial"
    )
    assert (made.task_id, made.outcome, made.files_touched) == (7, "partial", got.files_touched)
    limited = run(INIT, ended("429", is_error=True, api_error_status=429))
    assert limited.to_iteration(feature="auth").outcome == "rate_limited"


# Damage


def test_garbage_between_the_lines_is_reported_with_its_place_and_stepped_over() -> None:
    got, complaints = read(
        lines(
            INIT,
            b"npm warn deprecated foo\n",
            b'{"type":"assistant","message":{"content":[{"ty\n',
            b"\xff\xfe\x00\n",
            b"[1, 2]\n",
            b'{"no":"type"}\n',
            b"\n",
            ended(),
        ),
        file="run.jsonl",
    )
    assert got.summary == "All done."
    assert [(c.file, c.line) for c in complaints] == [("run.jsonl", n) for n in (2, 3, 4, 5, 6)]
    assert "torn" in complaints[1].what


def test_complaints_are_bounded() -> None:
    _, complaints = read(lines(INIT, *[b"noise\n"] * 5000, ended()))
    assert len(complaints) == 101


def test_lines_run_together_are_read_one_after_another() -> None:
    joined = b"".join(line.rstrip() for line in lines(INIT, *bash("rm a.py", ""), ended()))
    got, complaints = read([joined])
    assert (files(got), complaints) == ({"a.py": "deleted"}, [])


def test_a_whole_array_is_read_too() -> None:
    assert run(json.dumps([INIT, ended("ok then")]).encode()).summary == "ok then"


def test_half_an_emoji_does_not_cost_the_line() -> None:
    torn = json.dumps(ended("cut XX")).replace("XX", "\\ud83d").encode()
    got, complaints = read([*lines(INIT), torn])
    assert (got.summary, complaints) == ("cut \ufffd", [])
    got.summary.encode()


def test_of_two_interleaved_streams_the_first_is_captured_and_the_other_reported() -> None:
    mine = lines(INIT, *bash("rm mine.py", ""), ended("mine"))
    other = [
        line.replace(SESSION.encode(), b"22222222-2222-3333-4444-555555555555")
        for line in lines(INIT, *bash("rm other.py", ""), ended("other"))
    ]
    both = [line for pair in zip(mine, other, strict=True) for line in pair]
    got, complaints = read(both)
    assert (got.summary, files(got)) == ("mine", {"mine.py": "deleted"})
    assert [c.line for c in complaints] == [2]
    assert "another session" in complaints[0].what


def test_a_byte_order_mark_and_crlf_are_no_harm() -> None:
    first, *rest = lines(INIT, ended())
    got, complaints = read([b"\xef\xbb\xbf" + first, *(r.replace(b"\n", b"\r\n") for r in rest)])
    assert (got.terminal_reason, complaints) == ("ok", [])


# Live


def test_a_live_stream_tells_what_happens() -> None:
    capture = StreamJson()
    for line in lines(INIT, used("1", "Bash", {"command": "make"})):
        capture.feed(line)
    assert (capture.live.last_tool, capture.live.last_target) == ("Bash", "make")
    retry = {"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"}
    capture.feed(json.dumps(retry).encode())
    assert capture.live.waiting == "overloaded (529)"
    assert capture.live.cost_usd is None
    capture.feed(json.dumps(ended(total_cost_usd=0.25)).encode())
    live = capture.live
    assert (live.cost_usd, live.waiting) == (0.25, None)


# Codex


def item(kind: str, *, event: str = "item.completed", **more: Any) -> dict[str, Any]:
    return {"type": event, "item": {"id": f"item_{kind}{more.get('n', '')}", "type": kind, **more}}


CODEX = (
    {"type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53"},
    {"type": "turn.started"},
    item("agent_message", text="I chose a dict over a list because lookups dominate."),
    item("command_execution", event="item.started", command="bash -lc 'rm old.py'"),
    item("command_execution", command="bash -lc 'rm old.py'", aggregated_output="", exit_code=0),
    item("command_execution", n=2, command="pytest", exit_code=1, status="failed",
         aggregated_output="FAILED tests/test_a.py::test_b - assert 1 == 2"),
    item("file_change", status="completed", changes=[
        {"path": f"{ROOT}/new.py", "kind": "add"}, {"path": "b.py", "kind": "update"},
        {"path": "c.py", "kind": "delete"}, {"path": "/etc/x", "kind": "update"}]),
    item("mcp_tool_call", server="ralph", tool="search", status="failed",
         error={"message": "index is locked"}),
    item("error", message="Heads up: long threads can be slow"),
    item("agent_message", n=2, text="Done."),
    {"type": "turn.completed",
     "usage": {"input_tokens": 100, "cached_input_tokens": 80, "output_tokens": 5}},
)  # fmt: skip


def test_a_codex_run_is_captured() -> None:
    got, complaints = read(lines(*CODEX), root=ROOT)
    assert complaints == []
    assert (got.dialect, got.terminal_reason, got.is_error) == ("codex", "ok", False)
    assert got.session_id == "0199a213-81c0-7800-8aa1-bbab2a035a53"
    assert (got.summary, got.tokens_used, got.num_turns) == ("Done.", 105, 1)
    assert files(got) == {
        "old.py": "deleted",
        "new.py": "created",
        "b.py": "modified",
        "c.py": "deleted",
    }
    assert messages(got) == ["test_b: assert 1 == 2", "mcp__ralph__search: index is locked"]
    assert [d.description for d in got.decisions] == ["I chose a dict over a list"]
    assert got.used_tools == {"command_execution": 2, "file_change": 1, "mcp__ralph__search": 1}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "turn.failed", "error": {"message": "stream error"}}, "api_error"),
        (
            {"type": "turn.failed", "error": {"message": "You've hit your usage limit."}},
            "rate_limited",
        ),
        ({"type": "error", "message": "unexpected status 500"}, "api_error"),
        (
            {"type": "turn.failed", "error": {"message": "context window exceeded"}},
            "prompt_too_long",
        ),
        ({"type": "error", "message": "Reconnecting... 1/5"}, "killed"),
    ],
)
def test_a_codex_run_that_did_not_complete(event: dict[str, Any], reason: str) -> None:
    got = run(*CODEX[:3], event)
    assert (got.terminal_reason, got.is_error) == (reason, True)


def test_a_declined_codex_command_is_a_denied_permission_and_no_error() -> None:
    got = run(
        *CODEX[:2], item("command_execution", command="rm -rf /", status="declined"), CODEX[-1]
    )
    assert (got.permission_denials, got.errors) == (("command_execution",), ())
    assert got.stumbles == {"denied": 1}


# Which dialect


def test_the_dialect_is_found_behind_noise() -> None:
    capture = Detecting()
    for line in lines(b"Welcome!\n", b'{"some": "json"}\n', INIT, ended()):
        capture.feed(line)
    assert (capture.dialect, capture.finish().summary) == ("stream-json", "All done.")
    assert [complaint.line for complaint in capture.complaints] == [1, 2]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ([], "empty"),
        ([b"\n"], "empty"),
        ([b"hello\n"] * 3, "not the output of an agent"),
        ([b"hello\n"] * 300, "not the output of an agent"),
        ([b'{"iteration_number": 3, "summary": "x"}'], "holds records"),
        (['{"type":"result"}\n'.encode("utf-16")], "UTF-16"),
    ],
)
def test_what_is_no_agents_output_is_refused_with_what_was_expected(
    data: list[bytes], what: str
) -> None:
    with pytest.raises(BadInput, match=what) as refused:
        read(data, file="x.jsonl")
    assert "stream-json" in str(refused.value)
    assert str(refused.value).startswith("x.jsonl: ")


# Anything at all

DIALECTS: tuple[Dialect, ...] = ("stream-json", "transcript", "codex", "gemini", "opencode")
KEYS = st.sampled_from(
    "type subtype session_id sessionId message content text tool_use tool_result id name input"
    " tool_use_id is_error tool_use_result toolUseResult file_path command cwd usage modelUsage"
    " parent_tool_use_id isSidechain agentId timestamp rate_limit_info resetsAt errors result"
    " num_turns duration_ms total_cost_usd totalCostUSD permission_denials mcp_servers status"
    " item changes path kind exit_code aggregated_output error thread_id part state callID tool"
    " sessionID tokens cost metadata exit exists output parameters tool_id tool_name role stats"
    " models severity".split()
)
WORDS = st.sampled_from(
    "system init assistant user result tool_use tool_result text Bash Write Read Task success"
    " rate_limit_event cost-state item.completed turn.failed command_execution file_change"
    " step_finish init message error completed run_shell_command bash"
    " rm\x20a.py fatal:\x20x rejected \x00 ../x".split(" ")
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
EVENTS = st.dictionaries(KEYS, VALUES, max_size=8)


def take(capture: Capture, data: Iterable[bytes]) -> tuple[AgentRun, list[Complaint]]:
    for line in data:
        capture.feed(line)
    return capture.finish(), capture.complaints


@given(st.lists(st.binary(max_size=60), max_size=6), st.sampled_from(DIALECTS))
def test_no_bytes_raise(data: list[bytes], dialect: Dialect) -> None:
    take(open_capture(dialect), data)


@given(st.lists(EVENTS, max_size=6), st.sampled_from(DIALECTS))
def test_no_json_of_any_shape_raises(events: list[dict[str, Any]], dialect: Dialect) -> None:
    got, _ = take(open_capture(dialect, root=ROOT), [json.dumps(e).encode() for e in events])
    json.dumps(got.to_iteration(feature="f").to_json(), allow_nan=False)


@given(st.data())
def test_a_real_run_with_any_value_in_any_place_never_raises(data: st.DataObject) -> None:
    events = [INIT, *bash("rm a.py", "x"), said("hello"), ended(usage={"input_tokens": 1})]
    event = json.loads(json.dumps(data.draw(st.sampled_from(events))))
    place = event
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        inner = place[key][0] if isinstance(place[key], list) and place[key] else place[key]
        if isinstance(inner, dict) and inner and data.draw(st.booleans()):
            place = inner
            continue
        place[key] = data.draw(VALUES)
        break
    take(StreamJson(), lines(*events[:2], event, *events[2:]))


def test_a_deeply_nested_line_is_a_complaint() -> None:
    for dialect in DIALECTS:
        _, complaints = take(open_capture(dialect), [b"[" * 100_000, b'{"a":' * 100_000])
        assert len(complaints) == 2
