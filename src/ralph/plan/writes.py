"""Ralph's own writes to the plan, noted so that nobody takes them for an agent's.

`writes.jsonl`, in this machine's state of the project, has one line a write: the file's hash before
and after. Both versions stand beside it under their hash, so that the guard can repeat the change
over a mended file. Derived and short-lived: deleting it costs one iteration's memory of who wrote
what.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from ralph import disk

ABSENT = "absent"
_KEPT = 1000
_PRUNE_EVERY = 200
_TAIL_BYTES = 4096


class Write(msgspec.Struct, frozen=True):
    """One write by Ralph: which file, from which content to which, when, and what it was for."""

    n: int
    at: str
    file: str
    before: str
    after: str
    what: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Write).decode


def digest(raw: bytes | None) -> str:
    """A hash of a file's bytes; a file that is not there has one too."""
    return ABSENT if raw is None else hashlib.sha256(raw).hexdigest()[:32]


class WriteLog:
    """The log in one folder; every call is made under the plan's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "writes.jsonl"
        self._versions = folder / "versions"

    def last(self) -> int:
        """The number of the newest write, 0 when there is none."""
        try:
            with disk.opened(self._file) as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - _TAIL_BYTES))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return 0
        for line in reversed(lines):
            with contextlib.suppress(msgspec.MsgspecError):
                return _decode(line).n
        return 0

    def note(self, at: str, file: str, before: bytes | None, after: bytes, what: str) -> Write:
        """Say what is about to be written. Said first: a write nobody knows of would be undone."""
        disk.make_folder(self._versions)
        for raw in (before, after):
            version = self._versions / digest(raw)
            if raw is not None and not disk.exists(version):
                disk.write(version, raw)
        write = Write(self.last() + 1, at, file, digest(before), digest(after), what)
        fd = disk.open_file(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "ab") as out:
            out.write(_encode(write) + b"\n")
        if write.n % _PRUNE_EVERY == 0:
            self._prune()
        return write

    def since(self, n: int, file: str) -> list[Write]:
        """The writes to a file behind number n, oldest first."""
        if self.last() < n:  # somebody deleted the log, and it began anew
            n = 0
        return [write for write in self._all() if write.n > n and write.file == file]

    def version(self, key: str) -> bytes | None:
        """The bytes of a noted version; None when the file was absent or it is no longer kept."""
        try:
            raw = disk.read(self._versions / key)
        except FileNotFoundError:
            return None
        return raw if digest(raw) == key else None  # else somebody has written to it

    def _all(self) -> list[Write]:
        try:
            lines = disk.read(self._file).splitlines()
        except FileNotFoundError:
            return []
        found: list[Write] = []
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):  # torn by a crash: never acknowledged
                found.append(_decode(line))
        return found

    def _prune(self) -> None:
        kept = self._all()[-_KEPT:]
        disk.replace(self._file, b"".join(_encode(write) + b"\n" for write in kept))
        wanted = {key for write in kept for key in (write.before, write.after)}
        for name in disk.names(self._versions):
            if name not in wanted:
                disk.remove(self._versions / name)
