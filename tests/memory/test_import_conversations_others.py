"""Recorded sessions of Gemini CLI and OpenCode, cut into exchanges and brought in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import places
import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import Kept, import_sessions

from ralph.capture.lines import SessionExchange, SessionHead, SessionStart
from ralph.clients import gemini, opencode
from ralph.errors import BadInput

CHAT = (places.FIXTURES / "gemini" / "chat.lines").read_bytes()
ROWS = (places.FIXTURES / "opencode" / "rows.lines").read_text(encoding="utf-8")
CLIENTS = {"gemini-cli": gemini, "opencode": opencode}
ASKED = "Please look around and write the file."


def gemini_folder(folder: Path, root: Path) -> Path:
    """A folder of Gemini CLI with the recorded session in it."""
    chats = folder / "tmp" / "shop" / "chats"
    chats.mkdir(parents=True)
    (chats / "session-2026-11-16T18-38-aa164a6e.jsonl").write_bytes(CHAT)
    (chats.parent / ".project_root").write_text(str(root), encoding="utf-8")
    return folder / "tmp"


def opencode_folder(folder: Path, root: Path) -> Path:
    """A folder of OpenCode with the recorded session in its database."""
    folder = folder / "opencode"
    folder.mkdir()
    with sqlite3.connect(folder / "opencode.db") as database:
        database.execute("CREATE TABLE session (id, parent_id, directory, title, time_created)")
        database.execute("CREATE TABLE message (id, session_id, time_updated, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, time_updated, data)")
        for line in ROWS.replace("/home/dev/shop", str(root)).splitlines():
            row = json.loads(line)
            names = [name for name in row if name != "table"]
            marks = ", ".join("?" for _ in names)
            query = f"INSERT INTO {row['table']} ({', '.join(names)}) VALUES ({marks})"
            database.execute(query, [row[name] for name in names])
    database.close()
    return folder


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
    assert talk.title == (ASKED if client == "gemini-cli" else "Write a.py")
    again = import_sessions(client, kept.memory, **later)
    assert (again.unchanged, again.exchanges) == (1, 0)
    assert kept.said() == [(ASKED, "All done, the file is there.")]


def test_a_file_that_is_no_database_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "opencode.db").write_bytes(b"not a database, not at all, and long enough")
    with pytest.raises(BadInput, match="no database of OpenCode"):
        list(opencode.session_files(tmp_path))
