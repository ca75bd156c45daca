"""From settings to the index they name: embedded, or on a Qdrant server."""

from __future__ import annotations

import functools
import hashlib
import platform
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from ralph import disk
from ralph.index.embedded import Index
from ralph.index.view import AnyIndex

if TYPE_CHECKING:
    from ralph.index.qdrant.server import Server

_ID_NAME = "machine"


class Where(Protocol):
    """The settings that choose an index and say how to reach it."""

    @property
    def index_lock_timeout_s(self) -> float: ...
    @property
    def journal_url(self) -> str | None: ...
    @property
    def qdrant_url(self) -> str | None: ...
    @property
    def qdrant_api_key(self) -> str | None: ...
    @property
    def qdrant_timeout_s(self) -> float: ...
    @property
    def qdrant_binary(self) -> str | None: ...


def index_for(
    where: Where, folders: Sequence[Path], *, home: Path, scope: Callable[[], str]
) -> AnyIndex:
    """The index of one memory; nothing is opened or asked before its first use.

    `folders` are where an embedded index, or the lock of another, may lie; `scope` tells what
    the names of this memory's collections begin with. On a server the collections of journals
    that lie in files belong to the first folder on this machine alone: clones share an id, and
    machines may share a path, but not their journals. Those of a journal that is itself on a
    server belong to all who use that database.
    """
    lock_timeout_s = where.index_lock_timeout_s
    if not where.qdrant_url:
        return Index(folders, lock_timeout_s=lock_timeout_s)
    from ralph.index.qdrant.index import QdrantIndex
    from ralph.index.qdrant.names import Names

    server = _server(
        where.qdrant_url,
        where.qdrant_api_key or None,
        where.qdrant_timeout_s,
        where.qdrant_binary or None,
        home,
    )
    place = _database(where.journal_url) if where.journal_url else _folder(home, folders[0])
    return QdrantIndex(server, Names(scope, place), folders, lock_timeout_s=lock_timeout_s)


def _database(url: str) -> str:
    """One database, whoever asks it and with which password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _short("")  # the journal tells what is wrong with it
    told = {"host", "hostaddr", "port", "dbname", "service"}
    more = sorted(one for one in parse_qsl(parts.query) if one[0] in told)
    host = parts.netloc.rpartition("@")[2].lower().removesuffix(":5432")
    return _short(f"{host}/{parts.path.strip('/')} {more}")


def _folder(home: Path, folder: Path) -> Callable[[], str]:
    """A folder of this machine; looked up at its first use."""

    @functools.cache
    def place() -> str:
        return _short(f"{_own_id(home / _ID_NAME)} {folder}")

    return place


def _own_id(file: Path) -> str:
    """What tells this home from that of another machine at the same path; made once."""
    try:
        disk.create(file, uuid.uuid4().hex.encode())
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.node()  # better than nothing where nothing can be kept


@functools.cache
def _server(url: str, key: str | None, timeout_s: float, binary: str | None, home: Path) -> Server:
    """One for all indexes of a process: what fails for one need not be tried by the others."""
    from ralph.index.qdrant.server import Server
    from ralph.index.qdrant.start import local_server

    starter = local_server(url, key=key, binary=binary, home=home)
    return Server(url, key=key, timeout_s=timeout_s, starter=starter)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
