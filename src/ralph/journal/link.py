"""The way to a PostgreSQL server: opened when it is used, opened again when it broke, and left
alone for a while when nobody answers."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ralph import disk
from ralph.errors import BadSetting, JournalBusy, JournalDown, JournalError
from ralph.journal.migrating import bring_up
from ralph.journal.talk import DatabaseSession

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger("ralph")
_T = TypeVar("_T")
_SCHEMES = ("postgresql://", "postgres://")
# What a server says that is there but cannot serve now: no connections, no room, an operator's
# hand, a failing disk, a standby that only reads.
_UNABLE = ("53", "57", "58", "25006")
_DEFAULT_PORT = "5432"
ANSWER_TIMEOUT_S = 5.0
RETRY_AFTER_S = 10.0


class Patience(msgspec.Struct, frozen=True):
    """How long each thing may take before something else is done."""

    connect_s: float = 2.0
    lock_s: float = 30.0
    answer_s: float = ANSWER_TIMEOUT_S
    retry_after_s: float = RETRY_AFTER_S


class Link:
    """One connection to one database, shared by all who speak with it in this process."""

    def __init__(self, url: str, *, patience: Patience, notes: Path | None = None) -> None:
        if not url.startswith(_SCHEMES):
            raise _bad_url()
        self._url = url
        self.patience = patience
        # Processes that start while the server is down need not find it out each for itself.
        digest = hashlib.sha256(url.encode(errors="replace")).hexdigest()[:16]
        self._note = None if notes is None else notes / f"down-{digest}"
        self._lock = threading.RLock()
        # In a list, so that what is thrown away without a word is closed all the same.
        self._held: list[DatabaseSession] = []
        weakref.finalize(self, _close_all, self._held)
        _links.add(self)
        self._off_until = 0.0
        self._why: str | None = None
        self._told = False

    @functools.cached_property
    def shown(self) -> str:
        """Host and database, and nothing of how one gets in."""
        parts = _parsed(self._url)
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        port = parts.get("port") or _DEFAULT_PORT
        where = host if port == _DEFAULT_PORT else f"{host}:{port}"
        return f"{where}/{parts.get('dbname') or parts.get('user') or ''}"

    @property
    def trouble(self) -> str | None:
        """Why the server was not reached the last time; None where it was."""
        return self._why

    def run(self, work: Callable[[DatabaseSession], _T]) -> _T:
        """Do the work, once more on a new connection where the old one broke; else JournalDown."""
        need_driver()
        from psycopg import Error

        with self._lock:
            for left in (1, 0):
                talk = self._ready()
                try:
                    done = work(talk)
                except Error as error:
                    if not talk.lost:
                        raise self._translated(error) from error
                    self._drop()
                    if not left:
                        raise self._down(self._said(error)) from error
                else:
                    if self._why is not None:
                        self._well()
                    return done
        raise AssertionError("the loop above returns or raises")

    def open(self) -> DatabaseSession:
        """A connection of the caller's own, migrated; JournalDown where there is none to get."""
        need_driver()
        import psycopg

        why = self._noted()
        if why is not None:
            raise self._down(why, keep_note=True)
        try:
            connection = self._connect()
        except psycopg.Error as error:
            raise self._down(self._said(error)) from None
        talk = DatabaseSession(
            connection,
            answer_timeout_s=self.patience.answer_s,
            lock_timeout_s=self.patience.lock_s,
        )
        try:
            self._prepare(talk)
        except psycopg.Error as error:
            lost = talk.lost
            talk.close()
            raise (self._down(self._said(error)) if lost else self._translated(error)) from error
        except BaseException:
            talk.close()
            raise
        self._well()
        return talk

    def retry(self) -> None:
        """Try again at the next use, whatever was found out just before: a person asks."""
        self._off_until = 0.0
        if self._note is not None:
            with contextlib.suppress(OSError):  # then it is tried again a little later
                self._note.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the connection; it opens again by itself."""
        with self._lock:
            self._drop()

    def _ready(self) -> DatabaseSession:
        if not self._held or self._held[0].lost:
            self._drop()
            self._held.append(self.open())
        return self._held[0]

    def _drop(self) -> None:
        _close_all(self._held)

    def begin_anew(self) -> None:
        """After a fork: a thread that is not there any more may have held the lock."""
        self._lock = threading.RLock()
        _parents.extend(self._held)
        self._held.clear()

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        from psycopg import connect, conninfo

        options = {
            "connect_timeout": max(1, math.ceil(self.patience.connect_s)),
            "application_name": "ralph",
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            "client_encoding": "utf8",
        }
        given = _parsed(self._url).keys() - {"client_encoding"}  # journals are UTF-8
        asked = {name: str(value) for name, value in options.items() if name not in given}
        return connect(conninfo.make_conninfo(self._url, **asked), autocommit=True)

    def _prepare(self, talk: DatabaseSession) -> None:
        patience = self.patience
        lock_ms = max(1, int(patience.lock_s * 1000))
        answer_ms = max(1, int(patience.answer_s * 1000))
        talk.rows(
            "SELECT set_config('lock_timeout', %s, false),"
            " set_config('statement_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false),"
            # What is acknowledged is on the server's disk, whatever its default.
            " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
            " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
            # Whoever vanished in the middle lets go before those who wait for him give up.
            [f"{lock_ms}ms", f"{lock_ms + answer_ms}ms", f"{2 * answer_ms}ms"],
        )
        bring_up(talk, self.shown)

    # -- when nobody answers

    def _noted(self) -> str | None:
        """Why it is not worth trying now, as found out here or by another process just before."""
        if time.monotonic() < self._off_until:
            return self._why
        if self._note is None:
            return None
        try:
            age_s = time.time() - self._note.stat().st_mtime
            if 0.0 <= age_s < self.patience.retry_after_s:
                return self._note.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return None

    def _down(self, why: str, *, keep_note: bool = False) -> JournalDown:
        self._why = why
        if not keep_note:
            self._off_until = time.monotonic() + self.patience.retry_after_s
            if self._note is not None:
                with contextlib.suppress(OSError):  # then each process finds out for itself
                    disk.make_folder(self._note.parent)
                    disk.write(self._note, why.encode(errors="replace"))
        if not self._told:
            self._told = True
            _log.warning("memory: the journal's server is not reached (%s: %s)", self.shown, why)
        return JournalDown(
            f"the journal's server is not reached ({why})",
            where=self.shown,
            todo="Start it or correct journal_url; what is kept meanwhile is delivered then.",
        )

    def _well(self) -> None:
        if self._why is not None:
            self.retry()
        self._why, self._told = None, False

    def _translated(self, error: psycopg.Error) -> JournalError:
        from psycopg import errors

        if isinstance(error, errors.LockNotAvailable):
            return JournalBusy(
                f"another process has held the journal for over {self.patience.lock_s:g} s",
                where=self.shown,
                todo="Try again when it has finished.",
            )
        if (error.sqlstate or "").startswith(_UNABLE):
            return self._down(self._said(error))
        if isinstance(error, errors.InsufficientPrivilege):
            # As with a wrong password: what comes is kept here until somebody corrects it.
            self._down(said := self._said(error))
            return JournalDown(
                f"the journal's database refused ({said}); what is kept meanwhile waits here",
                where=self.shown,
                todo="Let the role own its database: CREATE DATABASE ralph OWNER the_role",
            )
        return JournalError(
            f"the journal's database refused ({self._said(error)}); nothing was written",
            where=self.shown,
        )

    def _said(self, error: psycopg.Error) -> str:
        """What the server or the way to it said, in one line and without how one gets in."""
        text = error.diag.message_primary or str(error)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # Of several addresses each has a line below the first; what follows a failure is advice.
        told = next((line for line in lines if "failed: " in line), (lines or [""])[0])
        said = told.rpartition("failed: ")[2] or type(error).__name__
        parts = _parsed(self._url)
        if parts.get("user"):
            said = said.replace(f'"{parts["user"]}"', "in journal_url")
        if len(parts.get("password", "")) > 2:
            said = said.replace(parts["password"], "***")
        return said


def _close_all(held: list[DatabaseSession]) -> None:
    while held:
        held.pop().close()


# Those of this process; and the connections of the one it was forked from, which stay as they are.
_links: weakref.WeakSet[Link] = weakref.WeakSet()
_parents: list[DatabaseSession] = []


def _after_fork() -> None:
    for link in _links:
        link.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def need_driver() -> None:
    """Refuse with what to install where the package that speaks with PostgreSQL is not there."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise JournalError(
            f"journal_url names a PostgreSQL, but its package is not there ({error})",
            todo="Run: pip install 'ralph-rag[postgres]'",
        ) from None


def _parsed(url: str) -> dict[str, str]:
    need_driver()
    from psycopg import ProgrammingError, conninfo

    # An @ or / of a password that is not quoted would make a part of it the host or the database.
    authority, _, rest = url.partition("?")[0].partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in rest:
        raise _bad_url()
    try:
        parts = conninfo.conninfo_to_dict(url)
    except (ProgrammingError, UnicodeError):
        raise _bad_url() from None  # the reason may quote a part of the password
    given = {name: str(value) for name, value in parts.items() if value is not None}
    if not all(port.isdigit() for port in given.get("port", _DEFAULT_PORT).split(",") if port):
        raise _bad_url()
    return given


def _bad_url() -> BadSetting:
    return BadSetting(
        "journal_url is not the address of a PostgreSQL database",
        todo="Write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE, with %40 for an @ "
        "and %2F for a / in the password.",
    )
