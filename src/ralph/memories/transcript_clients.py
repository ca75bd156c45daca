"""The clients whose sessions can be brought in: where their files are, and how each is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from ralph.capture.exchanges import Exchanges, ExchangeSeen
from ralph.capture.lines import text_of
from ralph.capture.rollout import Rollout
from ralph.capture.rollout_lines import SessionHead, rollout_head
from ralph.memories.runs import CLAUDE_CODE
from ralph.record import Complaint

CODEX = "codex"
# How far a file is searched for the folder its session was held in.
_HEAD_LINES = 200
_HEAD_BYTES = 4 * 1024 * 1024


class Reader(Protocol):
    """A session's file being read line by line."""

    complaints: list[Complaint]

    def feed(self, line: bytes) -> list[ExchangeSeen]:
        """Take one line with its end; the exchanges it finished. Never raises."""
        ...

    def rest(self) -> list[ExchangeSeen]:
        """The exchange under way, if any, as it stands."""
        ...

    @property
    def ends_at(self) -> int:
        """How far everything was read."""
        ...

    @property
    def title(self) -> str | None:
        """What the session is called."""
        ...


class From(msgspec.Struct, frozen=True):
    """Where reading begins: which file, at which byte and line, and what is known of it."""

    file: str
    root: str | None
    head: SessionHead
    offset: int = 0
    line: int = 0
    title: str | None = None


class Client(msgspec.Struct, frozen=True):
    """One client: its name, its folder, its files, their heads and how they are read."""

    name: str
    folder: Callable[[Mapping[str, str]], Path]
    files: Callable[[Path], Iterator[Path]]
    head: Callable[[Path, BinaryIO], SessionHead | None]
    reader: Callable[[From], Reader]


class _Line(msgspec.Struct):
    type: Any = None
    cwd: Any = None
    isSidechain: Any = None
    agentId: Any = None


_decode_line = msgspec.json.Decoder(_Line).decode


def _claude_folder(environ: Mapping[str, str]) -> Path:
    given = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else Path.home() / ".claude") / "projects"


def _claude_files(folder: Path) -> Iterator[Path]:
    """Every session's file; those of sub-agents belong to their session."""
    for file in _below(folder):
        if not file.name.startswith("agent-") and "subagents" not in file.parts:
            yield file


def _claude_head(path: Path, file: BinaryIO) -> SessionHead | None:
    """None where nothing in the file looks like a line of a session."""
    found = False
    for number, line in enumerate(file):
        if number >= _HEAD_LINES or file.tell() > _HEAD_BYTES:
            break
        try:
            told = _decode_line(line.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        found = found or bool(text_of(told.type))
        if text_of(told.type) in {"user", "assistant"} and text_of(told.cwd):
            return SessionHead(path.stem, text_of(told.cwd), is_subagent=told.isSidechain is True)
    return SessionHead(path.stem) if found else None


def _claude_reader(start: From) -> Reader:
    return Exchanges(
        file=start.file,
        root=start.root,
        offset=start.offset,
        line=start.line,
        title=start.title,
    )


def _codex_folder(environ: Mapping[str, str]) -> Path:
    given = environ.get("CODEX_HOME")
    return (Path(given) if given else Path.home() / ".codex") / "sessions"


def _codex_files(folder: Path) -> Iterator[Path]:
    for file in _below(folder):
        if file.name.startswith("rollout-"):
            yield file


def _codex_head(path: Path, file: BinaryIO) -> SessionHead | None:
    head = rollout_head(file.readline())
    if head is None or head.session:
        return head
    return msgspec.structs.replace(head, session=path.stem)


def _codex_reader(start: From) -> Reader:
    return Rollout(
        file=start.file,
        root=start.root,
        offset=start.offset,
        line=start.line,
        title=start.title,
        head=start.head,
    )


def _below(folder: Path) -> Iterator[Path]:
    """Every `.jsonl` file under a folder, in a steady order."""
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".jsonl"):
                yield Path(here) / name


CLIENTS = {
    CLAUDE_CODE: Client(CLAUDE_CODE, _claude_folder, _claude_files, _claude_head, _claude_reader),
    CODEX: Client(CODEX, _codex_folder, _codex_files, _codex_head, _codex_reader),
}
