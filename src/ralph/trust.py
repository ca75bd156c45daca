"""The requests of projects on this machine that a person has allowed.

A project's folder may be a stranger's clone. Anything it asks for beyond harmless settings (a
command, a server, somebody else's folder) is a request: it takes effect only after the person has
seen it and said yes. `trust.json` in Ralph's home saves the answers, by the folder's real path and
a hash of each request, so the person is asked again when a request changes.
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
    """One thing that a folder asks for: its kind, its name, and the text shown to a person.

    `value` is everything that matters about it: a different value makes it a different request.
    """

    kind: str
    name: str
    value: Any
    text: str

    @property
    def digest(self) -> str:
        """A hash of the request; the order in which its parts are written does not matter."""
        # ASCII, so a lone surrogate does no harm.
        text = json.dumps([self.kind, self.name, _plain(self.value)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


class FolderTrust(msgspec.Struct, frozen=True):
    """The requests of one folder that a person allowed: each hash with its text."""

    at: str
    wishes: dict[str, str]


class _TrustFile(msgspec.Struct):
    folders: dict[str, FolderTrust] = {}
    version: int = 1


def trusted_hashes(home: Path, root: Path) -> frozenset[str]:
    """Return the hashes of this folder's allowed requests. An unreadable file allows nothing."""
    try:
        found = _read(home).folders.get(_key(root))
    except BadInput:
        return frozenset()  # `ralph trust` reports what is wrong with the file
    return frozenset(found.wishes) if found else frozenset()


def trusted_folders(home: Path) -> dict[str, FolderTrust]:
    """Return every folder that a person trusted, by its path."""
    return _read(home).folders


def trust(home: Path, root: Path, wishes: Iterable[TrustRequest], *, more: bool = False) -> None:
    """Save that these requests are allowed, and no others; `more` keeps the earlier ones."""
    found = {one.digest: one.text for one in wishes}
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    with _editing(home) as folders:
        before = folders.get(_key(root))
        folders[_key(root)] = FolderTrust(at, (before.wishes if before and more else {}) | found)


def revoke(home: Path, root: Path) -> bool:
    """Withdraw everything this folder was allowed; return False if it was allowed nothing."""
    if not disk.exists(home / FILE):
        return False
    with _editing(home) as folders:
        return folders.pop(_key(root), None) is not None


def _plain(value: Any) -> Any:
    """Return the value with all keys as strings: YAML has other keys, which cannot be sorted."""
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
