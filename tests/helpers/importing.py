"""What the tests of importing share: sessions written to disk, and what memory has of them."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from places import FIXTURES

from ralph.config import load
from ralph.memory.conversation_stream import ConversationImport, ConversationStream
from ralph.memory.conversations import Conversations
from ralph.memory.sessions import Importer
from ralph.records.conversation import Conversation, Exchange

LONG_AGO_S = 3600.0
GEMINI_CHAT = (FIXTURES / "gemini" / "chat.lines").read_bytes()
OPENCODE_ROWS = (FIXTURES / "opencode" / "rows.lines").read_text(encoding="utf-8")


def asked(session: str, number: int, text: str, cwd: str, **more: Any) -> dict[str, Any]:
    """A person's words, as Claude Code writes them."""
    return _line("user", session, number, cwd, {"role": "user", "content": text}, **more)


def answered(session: str, number: int, text: str, cwd: str, **more: Any) -> dict[str, Any]:
    """The assistant's last word."""
    message = {
        "role": "assistant",
        "model": "m",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    return _line("assistant", session, number, cwd, message, **more)


def turn(session: str, number: int, cwd: str | Path, *, question: str = "") -> list[dict[str, Any]]:
    """One question and its answer."""
    text = question or f"Question {number} of {session}?"
    reply = f"Answer {number} of {session}."
    return [
        asked(session, 2 * number, text, str(cwd)),
        answered(session, 2 * number + 1, reply, str(cwd)),
    ]


def working(session: str, number: int, cwd: str | Path) -> list[dict[str, Any]]:
    """A question the assistant still works on."""
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": "make"}}
    message = {"role": "assistant", "model": "m", "stop_reason": "tool_use", "content": [call]}
    return [
        asked(session, 2 * number, f"Do {number}.", str(cwd)),
        _line("assistant", session, 2 * number + 1, str(cwd), message),
    ]


def _line(
    kind: str, session: str, number: int, cwd: str, message: dict[str, Any], **more: Any
) -> dict[str, Any]:
    when = f"2026-11-02T10:{number // 60:02}:{number % 60:02}.000Z"
    base = {"type": kind, "uuid": f"{session}-{number}", "sessionId": session, "timestamp": when}
    return {**base, "cwd": cwd, "isSidechain": False, "message": message, **more}


def just_now(lines: list[dict[str, Any]], *, age_s: float = 0.0) -> list[dict[str, Any]]:
    """These lines, as if they were said so long ago."""
    when = datetime.fromtimestamp(time.time() - age_s, UTC).isoformat()
    return [{**one, "timestamp": when} for one in lines]


def write(file: Path, lines: list[Any], *, age_s: float = LONG_AGO_S) -> Path:
    """A session's file, last written so long ago."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_bytes(lines))
    return aged(file, age_s)


def grow(file: Path, lines: list[Any], *, age_s: float = LONG_AGO_S) -> None:
    """The session goes on."""
    with file.open("ab") as opened:
        opened.write(_bytes(lines))
    aged(file, age_s)


def aged(file: Path, age_s: float) -> Path:
    """The file as if it was written so long ago."""
    at = time.time() - age_s
    os.utime(file, (at, at))
    return file


def _bytes(lines: list[Any]) -> bytes:
    return b"".join(
        one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in lines
    )


def gemini_folder(folder: Path, root: Path) -> Path:
    """A folder of Gemini CLI with the recorded session in it."""
    chats = folder / "tmp" / "shop" / "chats"
    chats.mkdir(parents=True)
    (chats / "session-2026-11-16T18-38-aa164a6e.jsonl").write_bytes(GEMINI_CHAT)
    (chats.parent / ".project_root").write_text(str(root), encoding="utf-8")
    return folder / "tmp"


def opencode_folder(folder: Path, root: Path) -> Path:
    """A folder of OpenCode with the recorded session in its database."""
    folder = folder / "opencode"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "opencode.db") as database:
        database.execute("CREATE TABLE session (id, parent_id, directory, title, time_created)")
        database.execute("CREATE TABLE message (id, session_id, time_updated, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, time_updated, data)")
        for line in OPENCODE_ROWS.replace("/home/dev/shop", str(root)).splitlines():
            row = json.loads(line)
            names = [name for name in row if name != "table"]
            marks = ", ".join("?" for _ in names)
            query = f"INSERT INTO {row['table']} ({', '.join(names)}) VALUES ({marks})"
            database.execute(query, [row[name] for name in names])
    database.close()
    return folder


def import_sessions(client: str, memory: Conversations, **options: Any) -> ConversationImport:
    """Bring in one client's sessions."""
    return Importer(client, memory.store, **options).once()


class Kept:
    """What a home of Ralph's holds of conversations."""

    def __init__(self, home: Path) -> None:
        self.home = home
        settings = load(home=home, project_file=None).settings
        self.memory = Conversations(home=home, settings=settings, embedder=None)
        self.store = self.memory.store

    def streams(self) -> list[str]:
        """The streams there are."""
        return self.store.journals.names()

    def exchanges(self, stream: str | None = None) -> list[Exchange]:
        """Every exchange, of one stream or of all; what stands in the file twice is seen twice."""
        names = self.streams() if stream is None else [stream]
        found = [ConversationStream(name, self.store).history for name in names]
        return [one for each in found for one in each.read_exchanges(each.conversations)]

    def conversations(self, stream: str | None = None) -> list[Conversation]:
        """Every conversation, of one stream or of all."""
        names = self.streams() if stream is None else [stream]
        found = [ConversationStream(name, self.store).history for name in names]
        return [state.conversation for each in found for state in each.conversations.values()]

    def lines(self) -> list[tuple[str, str]]:
        """Kind and id of every line in the journals, as they stand there."""
        folder = self.home / "journal" / "conversations"
        texts = [file.read_bytes() for file in folder.glob("*.jsonl")]
        found = [json.loads(line) for text in texts for line in text.splitlines()]
        return sorted((one["kind"], one["id"]) for one in found)

    def said(self, stream: str | None = None) -> list[tuple[str, str]]:
        """What was asked and answered, in order."""
        return sorted((one.user, one.assistant) for one in self.exchanges(stream))
