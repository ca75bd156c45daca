"""Recorded sessions of Gemini CLI and OpenCode, cut into exchanges and brought in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import GEMINI_CHAT, Kept, gemini_folder, import_sessions, opencode_folder

from ralph.capture.lines import SessionExchange, SessionHead, SessionStart
from ralph.clients import gemini, opencode
from ralph.errors import BadInput
from ralph.records.conversation import conversation_id

CHAT = GEMINI_CHAT
CLIENTS = {"gemini-cli": gemini, "opencode": opencode}
ASKED = "Please look around and write the file."


FOLDERS: dict[str, Callable[[Path, Path], Path]]
FOLDERS = {"gemini-cli": gemini_folder, "opencode": opencode_folder}
each = pytest.mark.parametrize("client", CLIENTS)


def read(files: ModuleType, content: bytes, offset: int = 0) -> list[SessionExchange]:
    head = SessionHead("s", "/home/dev/shop")
    reading = files.session_reader(SessionStart(root="/home/dev/shop", head=head, offset=offset))
    found: list[SessionExchange] = []
    for one in content[offset:].splitlines(keepends=True):
        found += reading.feed(one)
    return found + list(reading.rest())


def lines_of(client: str, tmp_path: Path) -> bytes:
    if client == "gemini-cli":
        return CHAT
    folder = opencode_folder(tmp_path, Path("/home/dev/shop"))
    [path] = opencode.session_files(folder)
    return opencode.open_session(path).read()


@each
def test_a_recorded_session_is_one_exchange(client: str, tmp_path: Path) -> None:
    [one] = read(CLIENTS[client], lines_of(client, tmp_path))

    assert (one.user, one.status, one.finished) == (ASKED, "complete", False)
    assert one.assistant == "All done, the file is there."
    assert [message.role for message in one.messages].count("tool") == 5
    failed = [message.content for message in one.messages if message.failed]
    assert failed[0] == "ls nothere\nls: cannot access 'nothere': No such file or directory"
    assert failed[1].startswith("hello.txt\nCould not find")
    assert "told" not in "".join(message.content for message in one.messages)
    assert [(file.path, file.action) for file in one.captured.files_touched if file.path] == [
        ("a.py", "created"),
        ("hello.txt", "modified"),
    ]
    assert one.captured.tokens_used == (600 if client == "gemini-cli" else 720)
    assert (one.captured.started_at or "") < (one.captured.ended_at or "")


@each
@given(data=st.data())
def test_it_may_be_cut_anywhere_and_read_on(
    client: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = CLIENTS[client]
    content = lines_of(client, tmp_path_factory.mktemp("cut"))
    lines = content.splitlines(keepends=True)
    cut = data.draw(st.integers(0, len(lines)))
    torn = b"".join(lines[:cut]) + data.draw(st.binary(max_size=20)).replace(b"\n", b" ") + b"\n"
    for one in read(files, torn):
        assert one.user == ASKED
        assert one.begins_at <= one.ends_at
    [whole] = read(files, content)
    assert read(files, content, whole.begins_at)[0].key == whole.key


@each
def test_it_is_brought_in_once(client: str, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    root.mkdir()
    folder = FOLDERS[client](tmp_path, root)
    kept = Kept(tmp_path / "home")
    later = {"folder": folder, "clock": lambda: 4e9}

    first = import_sessions(client, kept.memory, **later)
    assert (first.files, first.exchanges, first.complaints) == (1, 1, [])
    [talk] = kept.conversations()
    assert (talk.source, talk.project) == (client, "shop")
    assert talk.title == (
        "Look around and write the file" if client == "gemini-cli" else "Write a.py"
    )
    again = import_sessions(client, kept.memory, **later)
    assert (again.unchanged, again.exchanges) == (1, 0)
    assert kept.said() == [(ASKED, "All done, the file is there.")]


def test_a_file_that_is_no_database_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "opencode.db").write_bytes(b"not a database, not at all, and long enough")
    with pytest.raises(BadInput, match="no database of OpenCode"):
        list(opencode.session_files(tmp_path))


PATCH = """\
*** Begin Patch
*** Add File: docs/new.md
+hello
*** Update File: /home/dev/shop/app.py
@@
-x = 1
+x = 2
*** Delete File: old.py
*** End Patch"""


def answered(*parts: Mapping[str, object]) -> list[dict[str, object]]:
    path = {"cwd": "/home/dev/shop"}
    asked: dict[str, object] = {
        "info": {"role": "user", "id": "msg_1"},
        "parts": [text("Change it.")],
    }
    info = {"role": "assistant", "id": "msg_2", "path": path, "time": {"completed": 1794854499305}}
    return [asked, {"info": info, "parts": [*parts, text("Changed.")]}]


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def patched(patch: str, status: str = "completed") -> Mapping[str, object]:
    state = {"status": status, "input": {"patchText": patch}, "output": "Success."}
    return {"type": "tool", "tool": "apply_patch", "callID": "c1", "state": state}


def rows(*messages: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


def test_a_patch_of_opencode_tells_the_files_it_changes() -> None:
    [one] = read(opencode, rows(*answered(patched(PATCH))))
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("docs/new.md", "created"),
        ("app.py", "modified"),
        ("old.py", "deleted"),
    ]
    assert one.messages[0].content == "docs/new.md, /home/dev/shop/app.py, old.py\nSuccess."


def test_a_patch_of_opencode_that_failed_changes_nothing() -> None:
    [one] = read(opencode, rows(*answered(patched(PATCH, "error"))))
    assert one.captured.files_touched == ()
    assert one.captured.stumbles == {"edit": 1}


def test_what_opencode_saw_changed_counts_where_no_tool_says_so() -> None:
    seen = {"type": "patch", "files": [f"/home/dev/shop/{name}" for name in ("old.py", "made.py")]}
    [one] = read(opencode, rows(*answered(patched(PATCH), seen)))
    assert [(file.path, file.action) for file in one.captured.files_touched] == [
        ("docs/new.md", "created"),
        ("app.py", "modified"),
        ("old.py", "deleted"),
        ("made.py", "modified"),
    ]


@pytest.mark.parametrize(
    ("tool", "command", "changed"),
    [
        ("bash", "pnpm add left-pad", ["pnpm-lock.yaml"]),
        ("task", "", ["pnpm-lock.yaml"]),
        ("bash", "git log -3 && cat package.json", []),
        ("grep", "", []),
    ],
)
def test_a_file_that_changed_while_opencode_only_read_was_changed_by_others(
    tool: str, command: str, changed: list[str]
) -> None:
    state = {"status": "completed", "input": {"command": command}, "output": "Done."}
    call = {"type": "tool", "tool": tool, "callID": "c1", "state": state}
    seen = {"type": "patch", "files": ["/home/dev/shop/pnpm-lock.yaml"]}
    [one] = read(opencode, rows(*answered(call, seen)))
    assert [file.path for file in one.captured.files_touched if file.action != "read"] == changed


def test_a_command_of_opencode_that_an_agent_carries_out_is_asked_by_its_name() -> None:
    task = {"type": "subtask", "prompt": "You are a reviewer.", "command": "review"}
    asked = {"info": {"role": "user", "id": "msg_0"}, "parts": [task]}
    one, two = read(opencode, rows(asked, *answered()))
    assert (one.user, two.user) == ("/review", "Change it.")


def test_what_a_person_answered_in_opencode_is_a_decision() -> None:
    told = (
        'User has answered your questions: "Which store?"="SQLite", "How large?"="Unanswered".'
        " You can now continue with the user's answers in mind."
    )
    asks = {"questions": [{"question": "Which store?"}, {"question": "How large?"}]}
    state = {"status": "completed", "input": asks, "output": told}
    call = {"type": "tool", "tool": "question", "callID": "q", "state": state}
    [one] = read(opencode, rows(*answered(call, text("Done."))))
    assert [one.description for one in one.captured.decisions] == ["Which store? -> SQLite"]


def test_what_a_person_answered_in_gemini_is_a_decision() -> None:
    told = json.dumps({"answers": {"0": "SQLite", "1": ""}})
    call = {
        "id": "q",
        "name": "ask_user",
        "args": {"questions": [{"question": "Which store?"}, {"question": "How large?"}]},
        "status": "success",
        "result": [{"functionResponse": {"response": {"output": told}}}],
    }
    lines: list[dict[str, object]] = [
        {"sessionId": "s", "projectHash": "h"},
        {"type": "user", "id": "u", "content": "Plan the store."},
        {"type": "gemini", "id": "m", "content": "SQLite it is.", "toolCalls": [call]},
    ]
    [one] = read(gemini, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert [one.description for one in one.captured.decisions] == ["Which store? -> SQLite"]


def export_of(tmp_path: Path, *, before: str = "", **info: object) -> Path:
    session = {"id": "ses_1", "directory": "/home/dev/shop", "title": "A change", **info}
    value = {"info": session, "messages": answered(patched(PATCH))}
    file = tmp_path / "session.json"
    file.write_text(before + json.dumps(value, indent=2), encoding="utf-8")
    return file


def test_an_exported_session_comes_in_as_from_the_database(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "home")
    file = export_of(tmp_path, before="Exporting session: ses_1\n")
    came = import_sessions("opencode", kept.memory, folder=file)
    assert (came.conversations, came.exchanges, came.complaints, came.unread) == (1, 1, [], [])
    [talk] = kept.conversations()
    assert (talk.title, talk.project) == ("A change", "shop")
    assert talk.id == conversation_id("opencode", opencode.plain_id("ses_1"))
    assert import_sessions("opencode", kept.memory, folder=file).exchanges == 0


def test_a_folder_of_exported_sessions_comes_in(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "home")
    folder = export_of(tmp_path).parent
    (folder / "auth.json").write_text('{"token": {}}', encoding="utf-8")
    came = import_sessions("opencode", kept.memory, folder=folder)
    assert (came.conversations, came.exchanges, came.complaints) == (1, 1, [])


def test_an_exported_session_of_a_sub_agent_is_left_out(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "home")
    file = export_of(tmp_path, parentID="ses_0")
    came = import_sessions("opencode", kept.memory, folder=file)
    assert (came.exchanges, came.subagents) == (0, 1)
