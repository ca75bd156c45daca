"""`ralph chat` as people and programs start it: lines piped in, a terminal, Ctrl-C, no model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import MODEL, ChatServer
from chatting import HEADING, QUESTION, SOLUTION, held_before
from commanding import process
from terminal import LONG_S, at_terminal

from ralph.chat.loop import SOURCE
from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Exchange

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")
BUSY = b"ralph: the index is not complete yet; ask again soon\n"


def kept_in(project: Path) -> list[Exchange]:
    """Every exchange that a chat left in the project, oldest first."""
    with open_ralph(project) as ralph:
        talk = ralph.conversations
        own = [one.conversation for one in talk.list() if one.conversation.source == SOURCE]
        return [exchange for one in reversed(own) for exchange in talk.exchanges(one.id)]


def test_one_process_recalls_what_was_said_in_another(project: Path) -> None:
    first = process(
        ["chat", "--model", "echo", "--title", "Timeouts"],
        cwd=project,
        stdin=f"{QUESTION}\n".encode(),
    )
    with open_ralph(project) as ralph:  # a chat does not wait long for this on a busy machine
        ralph.conversations.sync()
    asked = f"\n{QUESTION}\n\n".encode()
    again = process(["chat", "--model", "echo"], cwd=project, stdin=asked)

    assert (first.returncode, again.returncode) == (0, 0), (first.stderr, again.stderr)
    assert b"Memory found nothing." in first.stdout
    assert HEADING.encode() in again.stdout
    assert b'### Conversation: "Timeouts" (ID: ' in again.stdout
    assert b"\x1b" not in again.stdout
    # On a busy machine the chat's own workers may still be at the index, which is told.
    assert {first.stderr, again.stderr} <= {b"", BUSY}
    assert [one.user for one in kept_in(project)] == [QUESTION, QUESTION]
    # What was recalled is not kept a second time.
    assert "Exchange ID" not in kept_in(project)[1].assistant


def test_programs_get_one_json_object_for_each_prompt(project: Path) -> None:
    held_before(project)
    ran = process(
        ["chat", "--model", "echo", "--json"],
        cwd=project,
        stdin=f"{QUESTION}\n/title Gateway\n/private why?\n".encode(),
    )

    assert ran.returncode == 0, ran.stderr
    first, titled, private = (json.loads(line) for line in ran.stdout.splitlines())
    assert first["status"] == "complete"
    assert first["user"] == QUESTION
    assert SOLUTION in first["assistant"]
    assert len(first["related"]) == 1
    assert titled == {"lines": ["Title: Gateway"]}
    assert private["exchange"] is None
    assert b"not saved" in ran.stderr
    [kept] = kept_in(project)
    assert kept.id == first["exchange"]


def test_a_try_without_a_model_is_not_saved(project: Path) -> None:
    ran = process(["chat", "--echo"], cwd=project, stdin=f"{QUESTION}\n".encode())

    assert ran.returncode == 0, ran.stderr
    assert b"You said: " in ran.stdout
    assert kept_in(project) == []


def test_a_chat_in_a_paused_project_says_so(project: Path) -> None:
    assert process(["pause"], cwd=project).returncode == 0
    ran = process(["chat", "--echo"], cwd=project, stdin=b"Hello\n")

    assert ran.returncode == 0
    assert b"memory is paused" in ran.stderr
    assert kept_in(project) == []


def test_without_a_model_it_says_how_to_choose_one(project: Path) -> None:
    ran = process(["chat"], cwd=project, stdin=b"Hello\n")

    assert ran.returncode == 1
    assert ran.stdout == b""
    assert b"ralph config --user chat_model" in ran.stderr
    assert b"ralph chat --echo" in ran.stderr
    assert kept_in(project) == []


def test_what_makes_no_sense_is_refused(project: Path, tmp_path: Path) -> None:
    assert process(["chat", "--echo", "--model", "claude"], cwd=project).returncode == 2
    unknown = process(["chat", "--model", "gpt"], cwd=project)
    assert unknown.returncode == 1
    assert b"'gpt'" in unknown.stderr
    assert b"openai:" in unknown.stderr
    nowhere = process(["chat", "--echo", "--project", tmp_path / "no"], cwd=project)
    assert nowhere.returncode == 1
    missing = process(["chat", "--echo", "--conversation", "ffffffff"], cwd=project)
    assert missing.returncode == 1
    assert b"there is no conversation 'ffffffff'" in missing.stderr
    typo = process(["chat", "--echo"], cwd=project, stdin=b"/serch gateway\n /etc/hosts?\n")
    assert typo.returncode == 1
    assert b"Did you mean /search?" in typo.stderr
    assert b"You said: /etc/hosts?" in typo.stdout


def test_a_script_learns_that_the_model_failed(project: Path, server: ChatServer) -> None:
    server.fail("401")
    ran = process(
        ["chat", "--model", f"openai:{MODEL}"],
        cwd=project,
        stdin=b"Hello there\n",
        environ={"RALPH_CHAT_BASE_URL": server.url},
    )

    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert line.startswith(b"ralph: ")
    assert [one.status for one in kept_in(project)] == ["failed"]


@posix_only
def test_ctrl_c_keeps_the_part_of_the_answer_that_was_said(
    project: Path, server: ChatServer
) -> None:
    server.say("It is the connection pool of the gateway. " * 20)
    server.fail("stall")
    with subprocess.Popen(
        [sys.executable, "-m", "ralph", "chat", "--model", f"openai:{MODEL}"],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what is read ahead here would be lost below
        env={**os.environ, "RALPH_CHAT_BASE_URL": server.url},
    ) as chat:
        try:
            assert chat.stdin is not None
            assert chat.stdout is not None
            chat.stdin.write(f"{QUESTION}\n".encode())
            begun = chat.stdout.read(20)
            chat.send_signal(signal.SIGINT)
            out, err = chat.communicate(timeout=LONG_S)
        finally:
            chat.kill()

    assert b"It is the connection".startswith(begun[:20])
    assert chat.returncode == 130, err
    [kept] = kept_in(project)
    assert kept.status == "interrupted"
    # The last piece may have been heard and not shown any more.
    assert kept.assistant.startswith((begun + out).decode().strip())
    assert b"the partial answer is saved" in err


@pytest.mark.parametrize("ending", ["/quit\n", "\x04", "\x03"])
def test_at_a_terminal_it_greets_prompts_and_tells_how_to_go_on(project: Path, ending: str) -> None:
    if sys.platform == "win32":
        pytest.skip("signals and terminals of POSIX")
    held_before(project)
    prompt = "> \x1b[0m"
    with at_terminal(["chat", "--model", "echo"], cwd=project) as (chat, screen):
        assert "1 conversation remembered" in screen.until(prompt)
        screen.type(f"{QUESTION}\n")
        shown = screen.until("tokens")
        assert screen.until(prompt).endswith(prompt)
        parting = screen.press(ending, "ralph chat --conversation ") + screen.until("\r\n")
        assert chat.wait(timeout=LONG_S) == 0

    assert "memory: Debug timeouts (" in shown
    assert "\x1b[" in shown
    [kept] = kept_in(project)
    assert f"ralph chat --conversation {kept.conversation[:8]}" in parting
