"""OpenCode's sessions: rows of its database, and the lines that its plugin hands to hooks.

Both are read as lines of the same kind: `{"info": ..., "parts": [...]}` is a message. A session in
the database is named by a path below the database's own.
"""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ralph.capture import lines
from ralph.capture.lines import count, items, mapping, objects, text_of
from ralph.clients.turns import ToolTurn, failure_text, tool_call
from ralph.errors import BadInput

if TYPE_CHECKING:
    import sqlite3

_DATABASE = "opencode.db"
_ABORTED = "MessageAbortedError"
# What a session is called until the model has named it.
_UNNAMED = "New session - "


def plain_id(name: str) -> str:
    """A session's or a message's id as it may be kept: its own looks like a secret."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"opencode:{name}"))


def tokens_in(usage: Mapping[str, Any]) -> int:
    """Everything that was processed."""
    if total := count(usage.get("total")):
        return total
    cache = mapping(usage.get("cache"))
    found = [usage.get("input"), usage.get("output"), usage.get("reasoning"), *cache.values()]
    return sum(count(one) or 0 for one in found)


class OpenCodeSession(lines.SessionReader):
    """A session being read."""

    _parts = staticmethod(objects)
    _open: ToolTurn | None = None

    def _take(self, line: Mapping[str, Any]) -> None:
        title = text_of(line.get("title"))
        if title and not title.startswith(_UNNAMED):
            self._title = lines.session_title(title) or self._title
        info, parts = mapping(line.get("info")), items(line.get("parts"))
        if info.get("role") == "user":
            self._ask(info, parts)
        elif info.get("role") == "assistant" and self._open is not None:
            self._answer(self._open, info, parts)

    def _ask(self, info: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> None:
        texts = [part for part in parts if part.get("type") == "text"]
        typed = [text_of(part.get("text")) for part in texts if not part.get("synthetic")]
        if not any(text.strip() for text in typed):
            return
        self._close(self._at)
        key = plain_id(text_of(info.get("id")))
        self._open = opened = ToolTurn("opencode", self._start, key, self._at)
        opened.see_time(mapping(info.get("time")).get("created"))
        for part in texts:
            opened.see_injected(text_of(part.get("text")))
        opened.ask("\n".join(typed))

    def _answer(
        self, turn: ToolTurn, info: Mapping[str, Any], parts: list[Mapping[str, Any]]
    ) -> None:
        when = mapping(info.get("time"))
        turn.see_time(when.get("created"))
        turn.model = text_of(info.get("modelID")) or turn.model
        turn.folder = text_of(mapping(info.get("path")).get("cwd")) or turn.folder
        turn.at_home(turn.folder)
        turn.tokens[text_of(info.get("id"))] = tokens_in(mapping(info.get("tokens")))
        for part in parts:
            if part.get("type") == "text":
                turn.speak(text_of(part.get("text")))
            elif part.get("type") == "tool":
                take_tool(turn, part)
        turn.see_time(when.get("completed"))
        error = mapping(info.get("error"))
        turn.reason = "interrupted" if error.get("name") == _ABORTED else None
        turn.failure = "" if turn.reason else failure_text(error)


def take_tool(turn: Any, part: Mapping[str, Any]) -> None:
    """A tool's call with its answer; one that was not answered is left out."""
    state, identity = mapping(part.get("state")), text_of(part.get("callID"))
    status = state.get("status")
    if status not in ("completed", "error"):
        return
    about = mapping(state.get("metadata"))
    existed = about.get("exists")
    turn.call(tool_call(identity, text_of(part.get("tool")), mapping(state.get("input"))))
    turn.answer(
        identity,
        text_of(state.get("output")) or text_of(state.get("error")),
        failed=status == "error",
        code=count(about.get("exit")),
        existed=existed if isinstance(existed, bool) else None,
    )


# -- Its database.


def session_folder(environ: Mapping[str, str]) -> Path:
    """Where OpenCode keeps its database."""
    given = environ.get("XDG_DATA_HOME")
    return (Path(given) if given else Path.home() / ".local" / "share") / "opencode"


def session_files(folder: Path) -> Iterator[Path]:
    """Every session that no other one started."""
    file = folder if folder.suffix == ".db" else folder / _DATABASE
    if file.is_file():
        with _connected(file) as database:
            query = "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_created, id"
            yield from [file / str(name) for (name,) in database.execute(query)]


def session_head(path: Path, file: BinaryIO) -> lines.SessionHead | None:
    """The session that a path names; a file's name is one already."""
    name = plain_id(path.name) if path.parent.suffix == ".db" else path.stem
    for line in file:
        with contextlib.suppress(lines.UnreadableLine):
            for one in objects(line.strip()):
                folder = text_of(mapping(mapping(one.get("info")).get("path")).get("cwd"))
                if folder:
                    return lines.SessionHead(name, folder)
    return lines.SessionHead(name)


def session_stamp(path: Path) -> lines.FileStamp:
    """How large a session is, and when it last changed."""
    if path.parent.suffix != ".db":
        return lines.file_stamp(path)
    query = "SELECT sum(length(data)), max(time_updated) FROM part WHERE session_id = ?"
    with _connected(path.parent) as database:
        size, at_ms = database.execute(query, (path.name,)).fetchone()
    return lines.FileStamp(size or 0, (at_ms or 0) * 1_000_000)


def open_session(path: Path) -> BinaryIO:
    """A session's lines."""
    if path.parent.suffix != ".db":
        return path.open("rb")
    found = io.BytesIO()
    with _connected(path.parent) as database:
        for (title,) in database.execute("SELECT title FROM session WHERE id = ?", (path.name,)):
            found.write(_line({"title": title}))
        parts: dict[str, list[Any]] = {}
        where = "FROM {} WHERE session_id = ? ORDER BY id"
        query = f"SELECT message_id, data {where.format('part')}"
        for message, data in database.execute(query, (path.name,)):
            parts.setdefault(message, []).append(_loaded(data))
        for message, data in database.execute(
            f"SELECT id, data {where.format('message')}", (path.name,)
        ):
            info = {**_loaded(data), "id": message}
            found.write(_line({"info": info, "parts": parts.get(message, [])}))
    found.seek(0)
    return found


@contextlib.contextmanager
def _connected(file: Path) -> Iterator[sqlite3.Connection]:
    import sqlite3

    try:
        address = f"{file.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=5.0)) as database:
            yield database
    except sqlite3.Error as error:
        what = f"this is no database of OpenCode that can be read: {error}"
        raise BadInput(what, where=str(file), todo="Name the folder that holds it.") from None


def _loaded(data: object) -> dict[str, Any]:
    try:
        value = json.loads(str(data))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


session_reader = OpenCodeSession
