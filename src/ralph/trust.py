"""What a person allows the projects on this machine to ask for.

A project's folder may be a stranger's clone. What it asks for beyond harmless settings (a command,
a server, somebody else's folder) is a wish: it counts only after the person has seen it and said
yes. `trust.json` in Ralph's home keeps the answers, by the folder's real path and a hash of each
wish, so a wish that changes is asked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.errors import BadInput

FILE = "trust.json"
_LOCK_TIMEOUT_S = 5.0


class TrustRequest(msgspec.Struct, frozen=True):
    """One thing that a folder asks for: what kind, which one, and how a person reads it.

    `value` is everything that matters about it: a wish with another value is another wish.
    """

    kind: str
    name: str
    value: Any
    text: str

    @property
    def digest(self) -> str:
        """The same for the same wish, whatever order its parts are written in."""
        # In ASCII, so half of a surrogate pair does no harm.
        text = json.dumps([self.kind, self.name, _plain(self.value)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


class FolderTrust(msgspec.Struct, frozen=True):
    """The wishes of one folder that a person said yes to: each hash with its text."""

    at: str
    wishes: dict[str, str]


class _TrustFile(msgspec.Struct):
    folders: dict[str, FolderTrust] = {}
    version: int = 1


def trusted_hashes(home: Path, root: Path) -> frozenset[str]:
    """The hashes of what this folder may have. A file that cannot be read allows nothing."""
    try:
        found = _read(home).folders.get(_key(root))
    except BadInput:
        return frozenset()  # `ralph trust` says what is wrong with it
    return frozenset(found.wishes) if found else frozenset()


def trusted_folders(home: Path) -> dict[str, FolderTrust]:
    """Every folder that a person said yes to, by its path."""
    return _read(home).folders


def trust(home: Path, root: Path, wishes: Iterable[TrustRequest], *, more: bool = False) -> None:
    """Remember that these wishes are allowed, and no others; `more` keeps the earlier ones."""
    found = {one.digest: one.text for one in wishes}
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    with _editing(home) as folders:
        before = folders.get(_key(root))
        folders[_key(root)] = FolderTrust(at, (before.wishes if before and more else {}) | found)


def revoke(home: Path, root: Path) -> bool:
    """Allow this folder nothing any more; False when it was allowed nothing."""
    if not disk.exists(home / FILE):
        return False
    with _editing(home) as folders:
        return folders.pop(_key(root), None) is not None


def _plain(value: Any) -> Any:
    """The value with text for keys: YAML has others, and they could not be put in order."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _key(root: Path) -> str:
    return os.path.realpath(root)


def _read(home: Path) -> _TrustFile:
    file = home / FILE
    try:
        data = disk.read(file)
        return msgspec.json.decode(data, type=_TrustFile) if data else _TrustFile()
    except FileNotFoundError:
        return _TrustFile()
    except (OSError, ValueError, RecursionError) as error:
        what = f"the list of trusted folders cannot be read: {error}"
        todo = "Delete it, then run `ralph trust` in each folder again."
        raise BadInput(what, where=str(file), todo=todo) from None


@contextlib.contextmanager
def _editing(home: Path) -> Iterator[dict[str, FolderTrust]]:
    file = home / FILE
    disk.make_folder(home)
    busy = BadInput("another process is changing it", where=str(file), todo="Try again.")
    with disk.lock(file, timeout_s=_LOCK_TIMEOUT_S, busy=busy):
        kept = _read(home)
        yield kept.folders
        disk.replace(file, msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
