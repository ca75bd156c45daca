"""What `doctor` asks of servers: PostgreSQL with the journals, Qdrant with the indexes."""

from __future__ import annotations

import functools
import ipaddress
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ralph.doors.cli.checks import Check
from ralph.doors.cli.render import count

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.index import Embedder
    from ralph.journal.session import DatabaseSession
    from ralph.memory.ralph import Ralph

POSTGRES, QDRANT, PARAMETERS = "postgres", "qdrant", "parameters"
_OLDEST_POSTGRES = 13
_ROUNDS = 5
_ABOUT = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000,
    (SELECT max(number) FROM ralph_migrations), pg_is_in_recovery(),
    current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
    has_table_privilege('ralph_entries', 'SELECT')
        AND has_table_privilege('ralph_entries', 'INSERT')
        AND has_table_privilege('ralph_entries', 'DELETE')
        AND has_table_privilege('ralph_streams', 'SELECT')
        AND has_table_privilege('ralph_streams', 'INSERT')
        AND has_table_privilege('ralph_streams', 'UPDATE')
"""


def postgres(settings: Settings, home: Path) -> Check:
    """The server of the journals is reached, fit, and owed nothing."""
    from ralph.errors import JournalDown
    from ralph.memory.store import conversation_journals, on_server
    from ralph.memory.transfer import waiting_records

    waiting = sum(waiting_records(home).values())
    wait = f"; waiting here for it: {count(waiting, 'record')}" if waiting else ""
    journals = on_server(conversation_journals(settings, home))
    assert journals is not None
    link = journals.server.link
    link.retry()  # a person asks: what was found out just before does not count
    try:
        told, openly = link.run(_asked)
        took_ms = _median_ms(lambda: link.run(_ping))
        return _judged(told, f"{link.shown}: ", took_ms, wait, openly=openly)
    except JournalDown as error:
        return Check(POSTGRES, "problem", f"{error.where}: {error.what}{wait}", error.todo)
    finally:
        journals.close()


def _asked(talk: DatabaseSession) -> tuple[Sequence[object], bool]:
    """What the server says of itself, and whether others can read along on the way to it.

    The way is seen from this end: what a container or a pooler calls its own address is not it.
    """
    way = talk.connection
    openly = not way.pgconn.ssl_in_use and not _is_near(way.info.hostaddr)
    return talk.rows(_ABOUT)[0], openly


def _ping(talk: DatabaseSession) -> None:
    talk.rows("SELECT 1")


def _is_near(host: str) -> bool:
    """Whether an address does not leave this machine; "" is a socket in its file system."""
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _judged(
    told: Sequence[object], where: str, took_ms: float, wait: str, *, openly: bool
) -> Check:
    version, major, schema, standby, fsync, pages, permitted = told
    detail = (
        f"{where}PostgreSQL {str(version).partition(' ')[0]}, schema {schema}, "
        f"answers in {took_ms:.1f} ms{wait}"
    )
    if standby:
        todo = "Set journal_url to the primary."
        return Check(POSTGRES, "problem", f"{detail}; it is a standby that only reads", todo)
    if not permitted:
        todo = "Let the role own the tables, or GRANT it what docs/guide-scale.md lists."
        return Check(POSTGRES, "problem", f"{detail}; the role may not write", todo)
    if isinstance(major, int) and major < _OLDEST_POSTGRES:
        todo = f"Update it to {_OLDEST_POSTGRES} or newer."
        return Check(POSTGRES, "problem", f"{detail}; it is too old", todo)
    if not fsync or not pages:
        off = "fsync" if not fsync else "full_page_writes"
        todo = f"Set {off} = on in postgresql.conf."
        return Check(
            POSTGRES, "warning", f"{detail}; {off} is off: a power cut loses records", todo
        )
    if openly:
        todo = "Add ?sslmode=require to journal_url (verify-full where there is a certificate)."
        return Check(POSTGRES, "warning", f"{detail}; the connection is not encrypted", todo)
    if wait:
        return Check(POSTGRES, "warning", detail, "Run: ralph journal deliver")
    return Check(POSTGRES, "ok", detail)


def spool(home: Path) -> Check | None:
    """Nothing waits for a server that is no longer set."""
    from ralph.memory.transfer import waiting_records

    waiting = waiting_records(home)
    if not waiting:
        return None
    records = count(sum(waiting.values()), "record")
    detail = f"{records} kept here for a server, but journal_url is not set"
    todo = "Set it, or bring them into the files: ralph journal deliver"
    return Check(POSTGRES, "problem", detail, todo)


def qdrant(settings: Settings, home: Path) -> Check:
    """The server of the indexes is reached, and new enough."""
    from ralph.index.qdrant import QdrantStore
    from ralph.memory.store import index_for

    folders = [home / "cache" / "doctor"]
    store = index_for(settings, folders, home=home, scope=lambda: "doctor").store
    assert isinstance(store, QdrantStore)
    server = store.server
    server.check()
    took_ms = _median_ms(server.check) / 2  # each asks twice: who it is, and a thing of ours
    detail = f"{server.where}: Qdrant {server.version}, answers in {took_ms:.1f} ms"
    if _exposed(settings, server.where):
        todo = "Put TLS before the server, and set qdrant_url to https://"
        return Check(QDRANT, "warning", f"{detail}; the key travels unencrypted", todo)
    return Check(QDRANT, "ok", detail)


def _exposed(settings: Settings, where: str) -> bool:
    parts = urlsplit(where)
    near = _is_near(parts.hostname or "")
    return bool(settings.qdrant_api_key) and parts.scheme == "http" and not near


def collections(ralph: Ralph) -> Check:
    """Every collection of this project has the parameters and the dimension it should have."""
    shelves = [ralph.place, ralph.conversations.shelf, ralph.knowledge.shelf]
    faults: list[str] = []
    behind: list[str] = []
    number = 0
    for shelf in shelves:
        store = shelf.index.store
        faults += shelf.index.with_repair(functools.partial(store.check, deep=True))
        for one in shelf.index.collections():
            number += 1
            dims = _dims(ralph.place.embedder)
            if one.live and dims is not None and one.manifest.dims != dims:
                what = f"{one.physical or one.name} has {one.manifest.dims} dimensions"
                behind.append(f"{what}, the embedder {dims}")
    if faults:
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        return Check(PARAMETERS, "problem", faults[0] + more, "Run: ralph index rebuild")
    if behind:
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        todo = "The next search of it builds it anew; ralph index rebuild does so now."
        return Check(PARAMETERS, "warning", behind[0] + more, todo)
    return Check(PARAMETERS, "ok", f"{number} collections as they should be")


def _dims(embedder: Embedder | None) -> int | None:
    from ralph.errors import EmbedderOff

    try:
        return 0 if embedder is None else embedder.dims
    except EmbedderOff:
        return None  # `embedder` tells of it


def _median_ms(ask: Callable[[], None]) -> float:
    took: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000
