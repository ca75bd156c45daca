"""Codex's rollouts cut into exchanges and brought in: recorded ones, and older ones written out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import places
import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import Kept, aged, import_sessions, write

from ralph.capture.lines import SessionExchange, SessionHead, SessionStart
from ralph.clients.codex_sessions import Rollout, rollout_head
from ralph.memory.sessions import ABANDONED_S
from ralph.records.conversation import Message, conversation_id

FIXTURES = places.FIXTURES / "codex"
SESSION = (FIXTURES / "rollout_session.jsonl").read_bytes()
SCRIPTS = (FIXTURES / "rollout_script.jsonl").read_bytes()
NAME = "01a1dfd1-eb94-7503-ade3-c0ec6f4903fe"


def read(content: bytes, offset: int = 0) -> list[SessionExchange]:
    head = rollout_head(content.splitlines()[0]) if content else None
    reading = Rollout(SessionStart(offset=offset, head=head or SessionHead()))
    found: list[SessionExchange] = []
    for one in content[offset:].splitlines(keepends=True):
        found += reading.feed(one)
    return found + reading.rest()


def test_a_recorded_session_and_its_resumption_are_two_exchanges() -> None:
    one, two = read(SESSION)

    assert (one.user, one.status, one.finished) == ("Make the export work.", "complete", True)
    assert one.assistant.startswith("The export works: there was no rule")
    assert one.messages == (
        Message("assistant", "I try."),
        Message(
            "tool",
            "make export\nmake: *** No rule to make target 'export'.  Stop.",
            "exec_command",
            True,
        ),
        Message("assistant", "There is no rule yet. I write it."),
        Message(
            "tool", "Makefile\nSuccess. Updated the following files:\nA Makefile", "apply_patch"
        ),
        Message("tool", "make export\nmkdir -p build", "exec_command"),
    )
    [error] = one.captured.errors
    assert error.message == "No rule to make target 'export'.  Stop."
    assert error.resolution == (
        "Edited Makefile: +`export: mkdir -p build`; then `make export` passed."
        ' "There is no rule yet."'
    )
    assert (one.session_id, one.cwd, one.captured.model) == (NAME, "/home/dev/shop", "gpt-5.5")
    assert (one.captured.tokens_used, two.captured.tokens_used) == (480, 240)
    assert one.captured.started_at == "2026-11-15T15:27:19.000Z"
    assert (two.user, two.assistant) == ("Let it clean before.", "Done: it cleans first.")
    touched = [(file.path, file.action) for file in two.captured.files_touched]
    assert touched == [("Makefile", "modified"), ("old.txt", "deleted")]


def test_reading_on_from_where_an_exchange_ended_tells_the_same() -> None:
    whole = read(SESSION)
    assert read(SESSION, whole[0].ends_at) == whole[1:]
    assert read(SESSION, whole[1].begins_at) == whole[1:]


def test_what_the_provider_refused_failed_and_what_a_person_stopped_is_interrupted() -> None:
    [failed] = read((FIXTURES / "rollout_failed.jsonl").read_bytes())
    assert (failed.status, failed.captured.terminal_reason) == ("failed", "prompt_too_long")
    assert [error.message for error in failed.captured.errors] == ["context length exceeded"]
    [stopped] = read((FIXTURES / "rollout_interrupted.jsonl").read_bytes())
    assert (stopped.status, stopped.assistant) == ("interrupted", "Waiting.")
    assert stopped.captured.errors == ()


def test_a_turn_without_its_end_is_not_over() -> None:
    cut = SESSION[: SESSION.rindex(b'{"timestamp"', 0, SESSION.index(b'"task_complete"'))]
    [one] = read(cut)
    assert (one.finished, one.captured.terminal_reason) == (False, "unknown")
    assert one.ends_at == len(cut)


def test_a_turn_that_has_no_words_yet_is_read_again() -> None:
    begun = SESSION.rindex(b'{"timestamp"', 0, SESSION.rindex(b'"task_started"'))
    cut = SESSION[: SESSION.index(b"\n", begun) + 1]
    reading = Rollout()
    found = [one for line in cut.splitlines(keepends=True) for one in reading.feed(line)]
    assert (len(found), reading.rest()) == (1, [])
    assert reading.ends_at == begun < len(cut)
    assert read(SESSION, reading.ends_at) == read(SESSION)[1:]


@given(st.data())
def test_it_reads_whatever_it_is_given(data: st.DataObject) -> None:
    lines = (SESSION + SCRIPTS).splitlines(keepends=True)
    some = data.draw(st.lists(st.sampled_from(lines) | st.binary(max_size=80), max_size=30))
    reading = Rollout()
    ends = [one.ends_at for line in some for one in reading.feed(line)]
    assert ends == sorted(ends)
    assert 0 <= reading.ends_at <= sum(map(len, some))
    for one in reading.rest():
        assert one.begins_at <= one.ends_at


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2025-10-01T10:00:00.000Z", "type": kind, "payload": payload}


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return line("response_item", type="message", role=role, content=content)


def older(*lines: dict[str, Any]) -> bytes:
    """A rollout as clients of a year before wrote them: no turns, no ends."""
    meta = line("session_meta", id="old-1", cwd="/home/dev/shop", git={"branch": "main"})
    put_in = said("user", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>")
    rules = said("user", "# AGENTS.md instructions for /x\n\nBe kind.")
    every = [meta, rules, put_in, *lines]
    return b"".join(json.dumps(one).encode() + b"\n" for one in every)


def test_older_rollouts_are_cut_at_a_person_s_words() -> None:
    shell = {"command": ["bash", "-lc", "pytest -q"], "workdir": "/home/dev/shop"}
    output = {"output": "ValueError: closed", "metadata": {"exit_code": 1}}
    spent = {"total_token_usage": {"total_tokens": 70}, "last_token_usage": {"total_tokens": 20}}
    content = older(
        said("user", "Run the tests."),
        line("event_msg", type="user_message", message="Run the tests."),
        line("turn_context", cwd="/home/dev/shop", model="gpt-5"),
        line(
            "response_item",
            type="function_call",
            name="shell",
            arguments=json.dumps(shell),
            call_id="c1",
        ),
        line(
            "response_item",
            type="function_call_output",
            call_id="c1",
            output=json.dumps(output),
        ),
        line("event_msg", type="token_count", info=spent),
        said("assistant", "They fail."),
        said("user", "Why?"),
        said("assistant", "The file is closed."),
    )

    one, two = read(content)

    assert (one.user, one.assistant, one.status) == ("Run the tests.", "They fail.", "complete")
    assert one.messages == (Message("tool", "pytest -q\nValueError: closed", "shell", True),)
    assert [error.message for error in one.captured.errors] == ["ValueError: closed"]
    assert (one.captured.model, one.git_branch) == ("gpt-5", "main")
    assert one.captured.tokens_used == 20
    assert (two.user, two.status, two.finished) == ("Why?", "complete", False)
    assert read(content, one.ends_at)[0].key == two.key


def test_words_that_come_while_it_works_belong_to_the_same_exchange() -> None:
    turn = {"turn_id": "t1"}
    content = older(
        line("event_msg", type="task_started", **turn),
        said("user", "Build it."),
        said("assistant", "I begin."),
        said("user", "Without the docs."),
        said("assistant", "Built."),
        line("event_msg", type="task_complete", **turn),
    )
    [one] = read(content)
    assert (one.key, one.user) == ("t1", "Build it.\n\nWithout the docs.")
    assert one.assistant == "I begin.\n\nBuilt."
    assert one.messages == (Message("user", "Without the docs."),)


def test_a_command_that_was_waited_for_ends_where_it_ended() -> None:
    content = older(
        said("user", "Build it."),
        line(
            "response_item",
            type="function_call",
            name="exec_command",
            arguments='{"cmd": "make all"}',
            call_id="c1",
        ),
        line(
            "response_item",
            type="function_call_output",
            call_id="c1",
            output="Chunk ID: 1\nProcess running with session ID 77\nOutput:\n",
        ),
        line(
            "response_item",
            type="function_call",
            name="write_stdin",
            arguments='{"session_id": 77, "chars": ""}',
            call_id="c2",
        ),
        line(
            "response_item",
            type="function_call_output",
            call_id="c2",
            output="Chunk ID: 2\nProcess exited with code 2\nOutput:\nmake: *** no rule\n",
        ),
        said("assistant", "It fails."),
    )
    [one] = read(content)
    assert one.messages == (Message("tool", "make all\nmake: *** no rule", "exec_command", True),)


def test_patches_tell_the_files_they_change() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: a.py\n+x\n*** Update File: b.py\n*** Move to: c.py\n"
        "*** Delete File: d.py\n*** End Patch\n"
    )
    content = older(
        said("user", "Change it."),
        line(
            "response_item", type="custom_tool_call", name="apply_patch", input=patch, call_id="c1"
        ),
        line(
            "response_item",
            type="custom_tool_call_output",
            call_id="c1",
            output='{"output": "Success.", "metadata": {"exit_code": 0}}',
        ),
        said("assistant", "Changed."),
    )
    [one] = read(content)
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("a.py", "created"),
        ("b.py", "deleted"),
        ("c.py", "created"),
        ("d.py", "deleted"),
    ]


def test_a_recorded_session_in_scripts_tells_each_call() -> None:
    [one] = read(SCRIPTS)

    assert (one.user, one.assistant, one.status) == ("Make the export work.", "Done.", "complete")
    assert one.messages == (
        Message("assistant", "I try."),
        Message(
            "tool",
            "make export\nmake: *** No rule to make target 'export'.  Stop.",
            "exec_command",
            True,
        ),
        Message(
            "tool", "Makefile\nSuccess. Updated the following files:\nA Makefile", "apply_patch"
        ),
        Message("tool", "make export\nmkdir -p build", "exec_command"),
        Message(
            "tool",
            "ls nothere\nls: cannot access 'nothere': No such file or directory",
            "exec_command",
            True,
        ),
        Message(
            "tool",
            "nothere.txt\napply_patch verification failed: Failed to read file to update "
            "/home/dev/shop/nothere.txt: No such file or directory (os error 2)",
            "apply_patch",
            True,
        ),
        Message("tool", "sleep 3; echo late; exit 4", "exec_command"),
    )
    [error] = one.captured.errors
    assert error.message == "No rule to make target 'export'.  Stop."
    assert (
        error.resolution == "Edited Makefile: +`export: mkdir -p build`; then `make export` passed."
    )
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("Makefile", "created")
    ]


def newer(*lines: dict[str, Any], version: str = "0.147.0") -> bytes:
    """A rollout in which an event beside a message says that a person wrote it."""
    meta = line("session_meta", id="new-1", cwd="/home/dev/shop", cli_version=version)
    plugins = "<recommended_plugins>\nHere is a list of plugins.\n</recommended_plugins>"
    every = [meta, said("user", plugins), *lines]
    return b"".join(json.dumps(one).encode() + b"\n" for one in every)


def asked(text: str) -> list[dict[str, Any]]:
    return [said("user", text), line("event_msg", type="user_message", message=text)]


def script(name: str, text: str, *printed: str, head: str = "Script completed") -> list[Any]:
    parts = [{"type": "input_text", "text": f"{head}\nWall time 0.3 seconds\nOutput:\n"}]
    parts += [{"type": "input_text", "text": one} for one in printed]
    call = {"type": "custom_tool_call", "name": "exec", "call_id": name, "input": text}
    back = {"type": "custom_tool_call_output", "call_id": name, "output": parts}
    return [line("response_item", **call), line("response_item", **back)]


def test_a_message_is_a_prompt_if_the_client_says_so() -> None:
    content = newer(
        *asked("<task>Fix the parser.</task>"),
        said("assistant", "I begin."),
        said("user", "Note from the client: the sandbox changed."),
        said("assistant", "Fixed."),
        said("user", "# A new kind of note\n\nThat no version had before."),
        *asked("Thanks."),
        said("assistant", "You're welcome."),
    )
    one, two = read(content)
    assert (one.user, one.assistant) == ("<task>Fix the parser.</task>", "I begin.\n\nFixed.")
    assert (two.user, two.assistant) == ("Thanks.", "You're welcome.")
    assert read(content, one.ends_at) == [two]


def test_a_message_that_nobody_called_a_prompt_yet_is_read_again() -> None:
    content = newer(*asked("Fix it."), said("assistant", "Fixed."), said("user", "Thanks."))
    reading = Rollout(SessionStart(head=SessionHead(version="0.147.0")))
    for one in content.splitlines(keepends=True):
        reading.feed(one)
    assert b"Thanks." in content[reading.ends_at :]
    assert b"Fixed." not in content[reading.ends_at :]


def test_scripts_tell_commands_files_and_what_failed() -> None:
    patch = (
        "*** Begin Patch\\n*** Update File: app/parser.py\\n@@\\n"
        "-def parse_frame(raw):\\n+def parse(raw):\\n*** End Patch"
    )
    run = 'const r = await tools.exec_command({cmd:"pytest tests/test_parser.py"}); text(r)'
    wrong = {"exit_code": 1, "output": "ImportError: cannot import name 'parse'\n1 failed\n"}
    content = newer(
        *asked("Fix the failing parser test"),
        *script("c1", run, json.dumps(wrong)),
        *script("c2", f'text(await tools.apply_patch("{patch}"))', "{}"),
        *script("c3", run, json.dumps({"exit_code": 0, "output": "1 passed\n"})),
        said("assistant", "The test passes."),
    )
    [one] = read(content)
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("app/parser.py", "modified")
    ]
    [error] = one.captured.errors
    assert error.message == "ImportError: cannot import name 'parse'"
    assert error.resolution is not None
    assert "then `pytest tests/test_parser.py` passed" in error.resolution
    assert one.captured.used_tools == {"exec_command": 2, "apply_patch": 1}


QUESTIONS = {
    "questions": [
        {"id": "store", "question": "Which store?", "options": [{"label": "SQLite (Recommended)"}]},
        {"id": "size", "question": "How large?"},
    ]
}
ANSWERS = {"answers": {"store": {"answers": ["SQLite (Recommended)"]}, "size": {"answers": []}}}


def test_what_a_person_answered_is_a_decision() -> None:
    given = json.dumps(QUESTIONS)
    asks = {"type": "function_call", "name": "request_user_input", "call_id": "q"}
    back = {"type": "function_call_output", "call_id": "q", "output": json.dumps(ANSWERS)}
    content = newer(
        *asked("Plan the store."),
        line("response_item", **asks, arguments=given),
        line("response_item", **back),
        said("assistant", "SQLite it is."),
    )
    [one] = read(content)
    [decision] = one.captured.decisions
    assert (decision.description, decision.source) == ("Which store? -> SQLite", "human")


def test_a_proposed_plan_that_is_carried_out_is_an_accepted_one() -> None:
    plan = "# Row groups\n\n## Context\n\nEach file flushes.\n"
    content = newer(
        *asked("Plan it."),
        said("assistant", f"<proposed_plan>\n{plan}</proposed_plan>"),
        *asked("Implement the plan."),
        said("assistant", "Done."),
    )
    _, two = read(content)
    [decision] = two.captured.decisions
    assert decision.description == "Accepted plan: Row groups"
    again = (
        "A previous agent produced the plan below to accomplish the user's task. Implement the"
        f" plan in a fresh context. Re-read files as needed.\n\n{plan}"
    )
    [only] = read(newer(*asked(again), said("assistant", "Done.")))
    assert only.captured.title == "Row groups"
    assert [one.description for one in only.captured.decisions] == ["Accepted plan: Row groups"]


def test_a_script_that_is_waited_for_and_a_shell_that_runs_on_end_where_they_ended() -> None:
    begin = 'text(await tools.exec_command({cmd: "make all"}))'
    waits = line(
        "response_item",
        type="function_call",
        name="wait",
        call_id="c2",
        arguments='{"cell_id": "8"}',
    )
    shell = json.dumps({"session_id": 77, "output": ""})
    goes_on = line(
        "response_item",
        type="function_call_output",
        call_id="c2",
        output=[
            {"type": "input_text", "text": "Script completed\nWall time 9 seconds\nOutput:\n"},
            {"type": "input_text", "text": shell},
        ],
    )
    call, running = script("c1", begin)
    running["payload"]["output"] = (
        "Script running with cell ID 8\nWall time 10.0 seconds\nOutput:\n"
    )
    ended = json.dumps({"exit_code": 2, "output": "make: *** no rule\n"})
    poll = 'text(await tools.write_stdin({session_id: 77, chars: ""}))'
    content = newer(*asked("Build it."), call, running, waits, goes_on, *script("c3", poll, ended))
    [one] = read(content)
    assert one.messages == (Message("tool", "make all\nmake: *** no rule", "exec_command", True),)
    assert [error.message for error in one.captured.errors] == ["no rule"]


def test_a_patch_that_a_script_made_up_is_told_by_the_client() -> None:
    changes = {
        "/home/dev/shop/a.py": {"type": "update", "unified_diff": "@@ -1 +1 @@\n-x\n+y\n"},
        "/home/dev/shop/b.py": {"type": "update", "move_path": "/home/dev/shop/c.py"},
    }
    told = line(
        "event_msg",
        type="patch_apply_end",
        call_id="exec-1",
        success=True,
        stdout="Success.",
        changes=changes,
    )
    call, back = script("c1", "await tools.apply_patch(made(1))")
    [one] = read(newer(*asked("Change it."), call, told, back))
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("a.py", "modified"),
        ("b.py", "deleted"),
        ("c.py", "created"),
    ]


def test_a_script_that_prints_nothing_says_nothing_of_its_commands() -> None:
    runs = "await tools.exec_command({cmd: 'make'}); await tools.exec_command({cmd: 'make test'});"
    [one] = read(newer(*asked("Build it."), *script("c1", runs)))
    assert one.captured.used_tools == {"exec_command": 2}
    assert one.captured.errors == ()


def test_what_a_broken_script_had_not_called_is_not_done() -> None:
    patches = "\n".join(
        f'await tools.apply_patch("*** Begin Patch\\n*** Add File: {name}\\n+x\\n*** End Patch");'
        for name in ("a.py", "b.py")
    )
    failed = "Script error:\nexec_command failed for `x`: Rejected"
    first = "await tools.apply_patch('*** Begin Patch\\n*** Delete File: old.py\\n*** End Patch');"
    calls = f"{first}\nawait tools.exec_command({{cmd: 'x'}});\n{patches}"
    content = newer(*asked("Go."), *script("c1", calls, failed, head="Script failed"))
    [one] = read(content)
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("old.py", "deleted")
    ]


def test_the_sessions_of_a_machine_come_in_once_and_go_on(kept: Kept, tmp_path: Path) -> None:
    day = tmp_path / "sessions" / "2026" / "11" / "15"
    first = read(SESSION)[0]
    file = write(day / f"rollout-2026-11-15T15-27-18-{NAME}.jsonl", [SESSION[: first.ends_at]])
    write(day / "notes.jsonl", [b'{"type": "session_meta"}\n'])

    came = import_sessions("codex", kept.memory, folder=tmp_path / "sessions")
    assert (came.conversations, came.exchanges, came.unread) == (1, 1, [])
    [conversation] = kept.conversations()
    assert conversation.id == conversation_id("codex", NAME)
    assert (conversation.source, conversation.project) == ("codex", "shop")
    assert conversation.title == "Make the export work"

    file.write_bytes(SESSION)
    aged(file, ABANDONED_S * 2)
    came = import_sessions("codex", kept.memory, folder=tmp_path / "sessions")
    assert (came.conversations, came.exchanges, came.known) == (1, 1, 0)
    assert {one.model for one in kept.exchanges()} == {"gpt-5.5"}
    assert len(kept.lines()) == 3


def test_interrupted_within_a_file_the_rest_of_it_comes_later(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.memory.sessions._BATCH_BYTES", 1000)
    write(tmp_path / "rollout-1.jsonl", [SESSION])

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_sessions("codex", kept.memory, folder=tmp_path, progress=stop)
    assert len(kept.exchanges()) == 1

    came = import_sessions("codex", kept.memory, folder=tmp_path)
    assert (came.exchanges, came.known) == (1, 0)
    assert len(kept.lines()) == 3


def test_sub_agents_of_codex_give_no_conversation(kept: Kept, tmp_path: Path) -> None:
    below = SESSION.replace(b'"thread_source":"user"', b'"thread_source":"subagent"', 1)
    assert below != SESSION
    write(tmp_path / "rollout-1.jsonl", [below])
    came = import_sessions("codex", kept.memory, folder=tmp_path)
    assert (came.exchanges, came.subagents, came.unread) == (0, 1, [])


def test_its_folder_is_looked_for_where_it_looks(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path.home() / ".codex" / "sessions" / "2026" / "rollout-1.jsonl", [SESSION])
    assert import_sessions("codex", kept.memory).exchanges == 2
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    stopped = (FIXTURES / "rollout_interrupted.jsonl").read_bytes()
    write(tmp_path / "sessions" / "rollout-2.jsonl", [stopped])
    assert import_sessions("codex", kept.memory).exchanges == 1
