"""Connections to PostgreSQL: sessions with timeouts, migrations, and a pause after a failure."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from ralph import disk
from ralph.errors import BadSetting, JournalBusy, JournalDown, JournalError

if TYPE_CHECKING:
    import psycopg


# -- One connection to PostgreSQL that never waits longer than allowed.


Row = tuple[Any, ...]


class DatabaseSession:
    """One connection. If the server does not answer in time, the connection is closed.

    After a fork only the parent may use the connection: the child treats it as lost and never
    closes it.
    """

    def __init__(self, connection: psycopg.Connection[Row], patience: Patience) -> None:
        self.connection = connection
        self._patience = patience
        self._pid = os.getpid()
        self._timeout_s = math.inf
        wait = connection.wait
        # The driver resumes its generators several times a second, so `_in_time` can stop them.
        connection.wait = lambda gen, *args, **options: wait(  # type: ignore[method-assign]
            self._in_time(gen), *args, **options
        )

    @property
    def lost(self) -> bool:
        """Whether the connection can no longer be used."""
        return self.connection.closed or self._pid != os.getpid()

    def rows(self, sql: str, params: Sequence[object] = (), *, waits: bool = False) -> list[Row]:
        """Run a statement and return its rows; `waits` allows extra time for a lock."""
        self._timeout_s = self._patience.answer_s + (self._patience.lock_s if waits else 0.0)
        try:
            cursor = self.connection.execute(sql.encode(), params or None)
            return cursor.fetchall() if cursor.description else []
        finally:
            self._timeout_s = math.inf

    @contextlib.contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[None]:
        """Run all statements or none; with `snapshot` they all see the same moment."""
        level = "REPEATABLE READ READ ONLY" if snapshot else "READ COMMITTED"
        self.rows(f"BEGIN ISOLATION LEVEL {level}")
        try:
            yield
        except BaseException:
            if not self.lost:
                self.rows("ROLLBACK")
            raise
        self.rows("COMMIT")  # it waits for no lock, and a late outcome can be queried

    def close(self) -> None:
        """Close the connection. Never raises."""
        if self._pid == os.getpid():
            with contextlib.suppress(Exception):
                self.connection.close()

    def _in_time(self, gen: Any) -> Any:
        """Run the driver's generator, but raise an error when the time is up."""
        end = time.monotonic() + self._timeout_s
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() >= end:
                    self.connection.close()
                    raise _driver().OperationalError("it gave no answer in time")
                state = gen.send(ready)
        except StopIteration as done:
            return done.value


# -- Migrating a database to the schema this Ralph knows, with numbered SQL files.


_FOLDER = Path(__file__).parent / "migrations"
# Any number works, as long as every Ralph uses the same one.
_ADVISORY_LOCK = 7_239_116_240_518
_APPLIED = "INSERT INTO ralph_migrations (number, name) VALUES (%s, %s)"
_HAVE = "SELECT coalesce(max(number), 0) FROM ralph_migrations"
_TABLE = """
CREATE TABLE IF NOT EXISTS ralph_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


class Migration(msgspec.Struct, frozen=True):
    """One schema migration: its number, name and SQL."""

    number: int
    name: str
    sql: str


def migrations(folder: Path = _FOLDER) -> list[Migration]:
    """Return every migration this Ralph knows, in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [Migration(int(f.name[:4]), f.stem[5:], f.read_text(encoding="utf-8")) for f in files]


def bring_up(talk: DatabaseSession, shown: str, steps: list[Migration] | None = None) -> None:
    """Apply missing migrations, each once even if processes race; refuse a newer schema."""
    known = migrations() if steps is None else steps
    newest = max(step.number for step in known)
    try:
        have = int(talk.rows(_HAVE)[0][0])
    except _driver().errors.UndefinedTable:
        have = 0
    if have < newest:
        encoding = str(talk.rows("SHOW server_encoding")[0][0])
        if encoding != "UTF8":
            what = f"the database keeps its text as {encoding}, which cannot hold every record"
            todo = "Make one with: CREATE DATABASE ralph TEMPLATE template0 ENCODING 'UTF8'"
            raise JournalError(what, where=shown, todo=todo)
        with talk.transaction():
            talk.rows("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY_LOCK], waits=True)
            talk.rows(_TABLE)
            have = int(talk.rows(_HAVE)[0][0])
            for step in (step for step in known if step.number > have):
                talk.rows(step.sql, waits=True)
                talk.rows(_APPLIED, [step.number, step.name])
        have = max(have, newest)
    if have > newest:
        what = f"the journal's tables are of a newer Ralph (schema {have}, this one knows {newest})"
        todo = "Upgrade Ralph here: pip install --upgrade 'ralph-rag[postgres]'"
        raise JournalError(what, where=shown, todo=todo)


_log = logging.getLogger("ralph")
_T = TypeVar("_T")
_SCHEMES = ("postgresql://", "postgres://")
# SQLSTATE prefixes of a server that is up but cannot serve now: no connections or disk space,
# stopped by an operator, a failing disk, a read-only standby.
_UNABLE = ("53", "57", "58", "25006")
_DEFAULT_PORT = "5432"
# Connection options, unless the URL sets them.
_OPTIONS = {"application_name": "ralph", "client_encoding": "utf8", "tcp_user_timeout": "10000"}
_OPTIONS |= {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3"}
ANSWER_TIMEOUT_S = 5.0
RETRY_AFTER_S = 10.0


class Patience(msgspec.Struct, frozen=True):
    """How long to wait for the server, and how long to pause before trying it again."""

    connect_s: float = 2.0
    lock_s: float = 30.0
    answer_s: float = ANSWER_TIMEOUT_S
    retry_after_s: float = RETRY_AFTER_S


class Link:
    """One connection to one database, shared by everything that uses it in this process."""

    def __init__(self, url: str, *, patience: Patience, notes: Path | None = None) -> None:
        if not url.startswith(_SCHEMES):
            raise _bad_url()
        self._url = url
        self.patience = patience
        # A file that tells other processes the server is down, so they need not try it themselves.
        digest = hashlib.sha256(url.encode(errors="replace")).hexdigest()[:16]
        self._note = None if notes is None else notes / f"down-{digest}"
        self._pid, self._lock = os.getpid(), threading.RLock()
        # A list, so that the finalizer can close the session when nobody called `close`.
        self._held: list[DatabaseSession] = []
        weakref.finalize(self, _close_all, self._held)
        self._off_until = 0.0
        self._watch: Watch | None = None
        # Why the server was not reached last time; None if it was.
        self.trouble: str | None = None

    @functools.cached_property
    def shown(self) -> str:
        """Host and database, without user and password."""
        parts = _parsed(self._url)
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        port = parts.get("port") or _DEFAULT_PORT
        where = host if port == _DEFAULT_PORT else f"{host}:{port}"
        return f"{where}/{parts.get('dbname') or parts.get('user') or ''}"

    def run(self, work: Callable[[DatabaseSession], _T]) -> _T:
        """Run the work, once more on a new connection if the old one broke. Raises JournalError."""
        broke = _driver().Error
        with self._own_lock():
            for last in (False, True):
                try:
                    done = work(talk := self._ready())
                    break
                except broke as error:
                    if last or not talk.lost:
                        raise self._error(error, lost=talk.lost) from error
            self._well()
            return done

    def ask(
        self,
        memory: str,
        stream: str,
        what: str,
        work: Callable[[DatabaseSession], _T],
        known: Callable[[_T], dict[str, Any]] | None = None,
    ) -> _T:
        """Run read-only work. With a watch, a remembered answer may be returned instead.

        `known` returns what to remember, if that is not simply the answer to this query.
        """
        if self._watch is None:
            return self.run(work)
        return self._watch.answer(memory, stream, what, lambda: self.run(work), known)

    @property
    def remembers(self) -> bool:
        """Whether answers are remembered."""
        return self._watch is not None

    def watch(self) -> Watch:
        """Listen until the watch is closed, for a long-running process with many queries."""
        self._watch = Watch(self)
        return self._watch

    @property
    def backends(self) -> list[int]:
        """The server's process behind this connection, if it is open."""
        return [one.connection.info.backend_pid for one in [*self._held] if not one.lost]

    def changed(self, memory: str, stream: str) -> None:
        """Tell the watch that this process wrote to a stream, ahead of the notification."""
        if self._watch is not None:
            self._watch.forget(memory, stream)

    def open(self, *, probes: bool = False) -> DatabaseSession:
        """Open a migrated connection for the caller. Raises JournalDown if it cannot.

        `probes` tries even if the server just failed; do not use it while a user is waiting.
        """
        psycopg = _driver()
        if not probes and (why := self._noted()) is not None:
            raise self._down(why, keep_note=True)
        talk: DatabaseSession | None = None
        try:
            talk = DatabaseSession(self._connect(), self.patience)
            self._prepare(talk)
        except BaseException as error:
            lost = talk is None or talk.lost
            if talk is not None:
                talk.close()
            if isinstance(error, psycopg.Error):
                raise self._error(error, lost=lost) from None
            raise
        self._well()
        return talk

    def retry(self) -> None:
        """Try the server again at the next use, even if it just failed: a person asked for it."""
        self._off_until = 0.0
        if self._note is not None:
            with contextlib.suppress(OSError):  # then the next try is a little later
                self._note.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection. It reopens when needed."""
        with self._own_lock():
            _close_all(self._held)

    def _ready(self) -> DatabaseSession:
        if not self._held or self._held[0].lost:
            _close_all(self._held)
            self._held.append(self.open())
        return self._held[0]

    def _own_lock(self) -> threading.RLock:
        """Return this process's lock. After a fork, a thread that is gone may hold the old one."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
        return self._lock

    def _connect(self) -> psycopg.Connection[Row]:
        driver = _driver()
        options = {**_OPTIONS, "connect_timeout": str(max(1, math.ceil(self.patience.connect_s)))}
        given = _parsed(self._url).keys() - {"client_encoding"}  # journals are UTF-8
        asked = {name: value for name, value in options.items() if name not in given}
        address = driver.conninfo.make_conninfo(self._url, **asked)
        return cast("psycopg.Connection[Row]", driver.connect(address, autocommit=True))

    def _prepare(self, talk: DatabaseSession) -> None:
        lock_ms = max(1, int(self.patience.lock_s * 1000))
        answer_ms = max(1, int(self.patience.answer_s * 1000))
        talk.rows(
            "SELECT set_config('lock_timeout', %s, false),"
            " set_config('statement_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false),"
            # An acknowledged write is on the server's disk, whatever the server's default is.
            " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
            " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
            # A session that died in a transaction loses its locks before those waiting give up.
            [f"{lock_ms}ms", f"{lock_ms + answer_ms}ms", f"{2 * answer_ms}ms"],
        )
        bring_up(talk, self.shown)

    # -- when the server does not answer

    def _noted(self) -> str | None:
        """Return why the server just failed, here or in another process; None if it did not."""
        if time.monotonic() < self._off_until:
            return self.trouble
        if self._note is not None:
            with contextlib.suppress(OSError):
                if 0.0 <= time.time() - self._note.stat().st_mtime < self.patience.retry_after_s:
                    return self._note.read_text(encoding="utf-8", errors="replace")
        return None

    def _down(self, why: str, *, keep_note: bool = False) -> JournalDown:
        if self.trouble is None:  # once, until the server is back
            _log.warning("memory: cannot reach the journal server (%s: %s)", self.shown, why)
        self.trouble = why
        if not keep_note:
            self._off_until = time.monotonic() + self.patience.retry_after_s
            if self._note is not None:
                with contextlib.suppress(OSError):  # then each process finds out for itself
                    disk.make_folder(self._note.parent)
                    disk.write(self._note, why.encode(errors="replace"))
        todo = "Start it or fix journal_url. New records are saved here and delivered later."
        what = f"cannot reach the journal server ({why})"
        return JournalDown(what, where=self.shown, todo=todo)

    def _well(self) -> None:
        if self.trouble is not None:
            self.retry()
            self.trouble = None

    def _error(self, error: psycopg.Error, *, lost: bool) -> JournalError:
        """Return the error to raise for a driver's error; `lost`: the connection is gone."""
        errors = _driver().errors
        said = self._said(error)
        if lost or (error.sqlstate or "").startswith(_UNABLE):
            return self._down(said)
        if isinstance(error, errors.LockNotAvailable):
            what = f"another process has held the journal for over {self.patience.lock_s:g} s"
            return JournalBusy(what, where=self.shown, todo="Try again when it has finished.")
        if isinstance(error, errors.InsufficientPrivilege):
            # As with a wrong password: new records are kept here until somebody fixes it.
            self._down(said)
            what = f"the journal database refused ({said}); new records wait on this machine"
            todo = "Let the role own its database: CREATE DATABASE ralph OWNER the_role"
            return JournalDown(what, where=self.shown, todo=todo)
        what = f"the journal database refused ({said}); nothing was written"
        return JournalError(what, where=self.shown)

    def _said(self, error: psycopg.Error) -> str:
        """Return the server's or the network's error in one line, without user and password."""
        text = error.diag.message_primary or str(error)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # With several addresses, each has a line below the first; text after a failure is advice.
        line = next((line for line in lines if "failed: " in line), (lines or [""])[0])
        said = line.rpartition("failed: ")[2] or type(error).__name__
        parts = _parsed(self._url)
        if parts.get("user"):
            said = said.replace(f'"{parts["user"]}"', "in journal_url")
        if len(parts.get("password", "")) > 2:
            said = said.replace(parts["password"], "***")
        return said


def _close_all(held: list[DatabaseSession]) -> None:
    while held:
        held.pop().close()


def _driver() -> Any:
    """Return the PostgreSQL driver, or raise an error that says what to install."""
    try:
        import psycopg
    except ImportError as error:
        what = f"journal_url points to PostgreSQL, but the driver is not installed ({error})"
        raise JournalError(what, todo="Run: pip install 'ralph-rag[postgres]'") from None
    return psycopg


def _parsed(url: str) -> dict[str, str]:
    psycopg = _driver()
    # An unquoted @ or / in a password would turn part of it into the host or the database.
    authority, _, rest = url.partition("?")[0].partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in rest:
        raise _bad_url()
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeError):
        raise _bad_url() from None  # the reason may quote part of the password
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


# -- Waiting for new entries in a memory's journals.

CHANNEL = "ralph_journal"


class Listener:
    """Wakes up when something was written to a memory. Wait, read, then wait again."""

    def __init__(self, link: Link, memory: Callable[[], str]) -> None:
        self._link = link
        self._memory = memory
        self._talk: DatabaseSession | None = None
        self._closed = threading.Event()
        # Everything written before this time was heard, or was reported as possibly missed.
        self.heard_at = 0.0

    def wait(self, timeout_s: float) -> bool:
        """Return True if something may have been written, False if the time passed quietly.

        The first call starts listening and returns True. So does a call that reconnects, because
        writes in between were not heard.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            heard = self.hear(deadline - time.monotonic())
            if heard is None:
                return self._talk is not None
            if any(memory == self._memory() for memory, _, _ in heard):
                return True
            if time.monotonic() >= deadline:
                return False

    def hear(self, timeout_s: float) -> list[tuple[str, str, int]] | None:
        """Return the memory and stream of each write, and the server's process that wrote; or None
        if some may have been missed: after a new connection, and while there is none."""
        broke = _driver().Error
        deadline = time.monotonic() + timeout_s
        if self._talk is not None and not self._talk.lost:
            connection = self._talk.connection
            try:
                heard = [*connection.notifies(timeout=max(0.0, timeout_s), stop_after=1)]
                # A query reveals a connection that is dead but looks open.
                asked_at = time.monotonic()
                if not heard or asked_at - self.heard_at > _LISTENS_S:
                    self._talk.rows("SELECT 1")
                    heard += connection.notifies(timeout=0)
                    self.heard_at = asked_at
            except broke:
                self._drop()
            else:
                parts = ((*note.payload.partition("\n"), note.pid) for note in heard)
                return [(memory, stream, pid) for memory, _, stream, pid in parts]
        try:
            if not self._closed.is_set():
                asked_at = time.monotonic()
                self._talk = self._link.open(probes=True)
                self._talk.rows(f"LISTEN {CHANNEL}")
                self.heard_at = asked_at
                return None
        except (JournalError, broke):  # it is down, has a newer schema, or is a standby (no LISTEN)
            self._drop()
        self._closed.wait(max(0.0, deadline - time.monotonic()))
        return None

    def close(self) -> None:
        """Stop. A call that waits for a server that is down returns."""
        self._closed.set()
        self._drop()

    def _drop(self) -> None:
        if self._talk is not None:
            self._talk.close()
        self._talk = None


# -- Answers that are valid until a notification arrives.

# How long answers stay valid after the listener last checked its connection.
_RELIED_ON_S = 1.0
_LISTENS_S = 0.4


class Watch:
    """Remembers the database's answers until a notification says they may have changed.

    A thread listens. While it is sure to hear everything, no query is sent twice.
    """

    def __init__(self, link: Link) -> None:
        self._link, self._listener = link, Listener(link, str)
        self._lock = threading.Lock()
        # One thread asks, the others wait for its answer.
        self._asking = threading.RLock()
        # Answers by query, by memory and stream ("" for queries about all streams).
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}
        self._changes = 0
        # Streams heard of already. Streams are never removed, so only a new one changes the names.
        self._streams: set[tuple[str, str]] = set()
        # Remembered answers are valid until this time.
        self._until = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="ralph-watch", daemon=True)
        self._thread.start()

    def answer(
        self,
        memory: str,
        stream: str,
        what: str,
        ask: Callable[[], _T],
        known: Callable[[_T], dict[str, Any]] | None = None,
    ) -> _T:
        """Return the remembered answer, or ask now; `known` returns what to remember."""
        for told in self._remembered(memory, stream, what):
            return cast("_T", told)
        with self._asking:
            for told in self._remembered(memory, stream, what):  # another thread asked
                return cast("_T", told)
            changes = self._changes
            told = ask()
            with self._lock:
                if changes == self._changes:  # else the answer may be older than a notification
                    answers = {what: told} if known is None else known(told)
                    self._answers.setdefault((memory, stream), {}).update(answers)
        return told

    def _remembered(self, memory: str, stream: str, what: str) -> list[Any]:
        """Return the answer in a list, which is empty if there is no valid one."""
        with self._lock:
            known = self._answers.get((memory, stream), {})
            return [known[what]] if what in known and time.monotonic() < self._until else []

    def forget(self, memory: str, stream: str) -> None:
        """Drop the answers about a stream that was written to."""
        with self._lock:
            self._forget(memory, stream)

    def close(self) -> None:
        """Stop listening. From now on every query goes to the database."""
        self._closed = True
        self._thread.join()

    def _forget(self, memory: str, stream: str) -> None:
        self._changes += 1
        self._answers.pop((memory, stream), None)
        if (memory, stream) not in self._streams:
            self._streams.add((memory, stream))
            self._answers.pop((memory, ""), None)

    def _listen(self) -> None:
        while not self._closed:
            heard = self._listener.hear(_LISTENS_S)
            with self._lock:
                if heard is None:
                    self._changes += 1
                    self._answers.clear()
                    self._streams.clear()
                own = self._link.backends if heard else []
                for memory, stream, pid in heard or ():
                    if pid not in own:  # the link reported its own writes already
                        self._forget(memory, stream)
                self._until = self._listener.heard_at + _RELIED_ON_S
        self._until = 0.0
        self._listener.close()
