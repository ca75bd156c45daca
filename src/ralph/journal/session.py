"""Connections to a PostgreSQL server: sessions with a deadline, migrations, and a pause after it
did not answer.
"""

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


# -- Speaking with PostgreSQL over one connection, never waiting longer than was allowed.


Row = tuple[Any, ...]


class DatabaseSession:
    """One connection. A server that gives no answer in time is cut off, and the connection is lost.

    After a fork the connection is the parent's alone: to the child it is lost, and never said
    good-bye on.
    """

    def __init__(self, connection: psycopg.Connection[Row], patience: Patience) -> None:
        self.connection = connection
        self._patience = patience
        self._pid = os.getpid()
        self._timeout_s = math.inf
        wait = connection.wait
        # The driver asks its generators several times a second whether to go on.
        connection.wait = lambda gen, *args, **options: wait(  # type: ignore[method-assign]
            self._in_time(gen), *args, **options
        )

    @property
    def lost(self) -> bool:
        """Whether the connection is of no use any more."""
        return self.connection.closed or self._pid != os.getpid()

    def rows(self, sql: str, params: Sequence[object] = (), *, waits: bool = False) -> list[Row]:
        """The statement's rows; `waits` says that it may wait for a lock before it answers."""
        self._timeout_s = self._patience.answer_s + (self._patience.lock_s if waits else 0.0)
        try:
            cursor = self.connection.execute(sql.encode(), params or None)
            return cursor.fetchall() if cursor.description else []
        finally:
            self._timeout_s = math.inf

    @contextlib.contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[None]:
        """All of it or nothing; with `snapshot` every statement sees the same moment."""
        level = "REPEATABLE READ READ ONLY" if snapshot else "READ COMMITTED"
        self.rows(f"BEGIN ISOLATION LEVEL {level}")
        try:
            yield
        except BaseException:
            if not self.lost:
                self.rows("ROLLBACK")
            raise
        self.rows("COMMIT")  # it waits for no lock, and whose answer is late can be asked about

    def close(self) -> None:
        """Say good-bye; never raises."""
        if self._pid == os.getpid():
            with contextlib.suppress(Exception):
                self.connection.close()

    def _in_time(self, gen: Any) -> Any:
        """The driver's generator, ended with an error when the time is over."""
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


# -- Bringing a database to the schema this Ralph knows, by numbered files of SQL.


_FOLDER = Path(__file__).parent / "migrations"
# Any number does, as long as every Ralph takes the same one.
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
    """One step of the schema: its number, its name and its SQL."""

    number: int
    name: str
    sql: str


def migrations(folder: Path = _FOLDER) -> list[Migration]:
    """Every step this Ralph knows, in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [Migration(int(f.name[:4]), f.stem[5:], f.read_text(encoding="utf-8")) for f in files]


def bring_up(talk: DatabaseSession, shown: str, steps: list[Migration] | None = None) -> None:
    """Apply what the database lacks, once however many come at once; refuse a newer one."""
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
# What a server says that is there but cannot serve now: no connections, no room, an operator's
# hand, a failing disk, a standby that only reads.
_UNABLE = ("53", "57", "58", "25006")
_DEFAULT_PORT = "5432"
# Of a connection, unless its address says otherwise.
_OPTIONS = {"application_name": "ralph", "client_encoding": "utf8", "tcp_user_timeout": "10000"}
_OPTIONS |= {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3"}
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
        self._pid, self._lock = os.getpid(), threading.RLock()
        # In a list, so that what is thrown away without a word is closed all the same.
        self._held: list[DatabaseSession] = []
        weakref.finalize(self, _close_all, self._held)
        self._off_until = 0.0
        self._watch: Watch | None = None
        # Why the server was not reached the last time; None where it was.
        self.trouble: str | None = None

    @functools.cached_property
    def shown(self) -> str:
        """Host and database, and nothing of how one gets in."""
        parts = _parsed(self._url)
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        port = parts.get("port") or _DEFAULT_PORT
        where = host if port == _DEFAULT_PORT else f"{host}:{port}"
        return f"{where}/{parts.get('dbname') or parts.get('user') or ''}"

    def run(self, work: Callable[[DatabaseSession], _T]) -> _T:
        """Do the work, once more on a new connection where the old one broke; else JournalDown."""
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

    def ask(self, memory: str, stream: str, what: str, work: Callable[[DatabaseSession], _T]) -> _T:
        """Do work that changes nothing; with a watch, what was answered once may be the answer."""
        if self._watch is None:
            return self.run(work)
        return self._watch.answer(memory, stream, what, lambda: self.run(work))

    def watch(self) -> Watch:
        """Listen until the watch is closed: for a process that stays and is asked often."""
        self._watch = Watch(self)
        return self._watch

    def changed(self, memory: str, stream: str) -> None:
        """Note what was written by this process: it need not wait for the notification."""
        if self._watch is not None:
            self._watch.forget(memory, stream)

    def open(self, *, probes: bool = False) -> DatabaseSession:
        """A connection of the caller's own, migrated; JournalDown where there is none to get.

        `probes`: try even if nobody answered just before; who waits for an answer should not.
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
        """Try again at the next use, whatever was found out just before: a person asks."""
        self._off_until = 0.0
        if self._note is not None:
            with contextlib.suppress(OSError):  # then it is tried again a little later
                self._note.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the connection; it opens again by itself."""
        with self._own_lock():
            _close_all(self._held)

    def _ready(self) -> DatabaseSession:
        if not self._held or self._held[0].lost:
            _close_all(self._held)
            self._held.append(self.open())
        return self._held[0]

    def _own_lock(self) -> threading.RLock:
        """This process's lock: after a fork, a thread that is not there may hold the old one."""
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
            return self.trouble
        if self._note is not None:
            with contextlib.suppress(OSError):
                if 0.0 <= time.time() - self._note.stat().st_mtime < self.patience.retry_after_s:
                    return self._note.read_text(encoding="utf-8", errors="replace")
        return None

    def _down(self, why: str, *, keep_note: bool = False) -> JournalDown:
        if self.trouble is None:  # once, until it was well again
            _log.warning("memory: the journal's server is not reached (%s: %s)", self.shown, why)
        self.trouble = why
        if not keep_note:
            self._off_until = time.monotonic() + self.patience.retry_after_s
            if self._note is not None:
                with contextlib.suppress(OSError):  # then each process finds out for itself
                    disk.make_folder(self._note.parent)
                    disk.write(self._note, why.encode(errors="replace"))
        todo = "Start it or correct journal_url; what is kept meanwhile is delivered then."
        what = f"the journal's server is not reached ({why})"
        return JournalDown(what, where=self.shown, todo=todo)

    def _well(self) -> None:
        if self.trouble is not None:
            self.retry()
            self.trouble = None

    def _error(self, error: psycopg.Error, *, lost: bool) -> JournalError:
        """What is told of an error; `lost`: the connection is."""
        errors = _driver().errors
        said = self._said(error)
        if lost or (error.sqlstate or "").startswith(_UNABLE):
            return self._down(said)
        if isinstance(error, errors.LockNotAvailable):
            what = f"another process has held the journal for over {self.patience.lock_s:g} s"
            return JournalBusy(what, where=self.shown, todo="Try again when it has finished.")
        if isinstance(error, errors.InsufficientPrivilege):
            # As with a wrong password: what comes is kept here until somebody corrects it.
            self._down(said)
            what = f"the journal's database refused ({said}); what is kept meanwhile waits here"
            todo = "Let the role own its database: CREATE DATABASE ralph OWNER the_role"
            return JournalDown(what, where=self.shown, todo=todo)
        what = f"the journal's database refused ({said}); nothing was written"
        return JournalError(what, where=self.shown)

    def _said(self, error: psycopg.Error) -> str:
        """What the server or the way to it said, in one line and without how one gets in."""
        text = error.diag.message_primary or str(error)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # Of several addresses each has a line below the first; what follows a failure is advice.
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
    """The package that speaks with PostgreSQL; where it is not there, what to install."""
    try:
        import psycopg
    except ImportError as error:
        what = f"journal_url names a PostgreSQL, but its package is not there ({error})"
        raise JournalError(what, todo="Run: pip install 'ralph-rag[postgres]'") from None
    return psycopg


def _parsed(url: str) -> dict[str, str]:
    psycopg = _driver()
    # An @ or / of a password that is not quoted would make a part of it the host or the database.
    authority, _, rest = url.partition("?")[0].partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in rest:
        raise _bad_url()
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeError):
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


# -- Waiting for news from a memory's journals.

CHANNEL = "ralph_journal"


class Listener:
    """Wakes up when something was written to a memory. Wait, look, then wait again."""

    def __init__(self, link: Link, memory: Callable[[], str]) -> None:
        self._link = link
        self._memory = memory
        self._talk: DatabaseSession | None = None
        self._closed = threading.Event()
        # What was written before this moment was heard, or is told as missed.
        self.heard_at = 0.0

    def wait(self, timeout_s: float) -> bool:
        """Whether something may have happened; False when the time went by without a sign.

        It begins to listen with the first call, which is a sign; so is a connection that broke:
        what happened meanwhile was not heard.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            heard = self.hear(deadline - time.monotonic())
            if heard is None:
                return self._talk is not None
            if any(memory == self._memory() for memory, _ in heard):
                return True
            if time.monotonic() >= deadline:
                return False

    def hear(self, timeout_s: float) -> list[tuple[str, str]] | None:
        """The memory and stream of everything written; None where something may have been missed:
        after a new connection, and while there is none."""
        broke = _driver().Error
        deadline = time.monotonic() + timeout_s
        if self._talk is not None and not self._talk.lost:
            connection = self._talk.connection
            try:
                heard = [*connection.notifies(timeout=max(0.0, timeout_s), stop_after=1)]
                # A connection that only seems to be there is found out by asking.
                asked_at = time.monotonic()
                self._talk.rows("SELECT 1")
                heard += connection.notifies(timeout=0)
            except broke:
                self._drop()
            else:
                self.heard_at = asked_at
                parts = (note.payload.partition("\n") for note in heard)
                return [(memory, stream) for memory, _, stream in parts]
        try:
            if not self._closed.is_set():
                asked_at = time.monotonic()
                self._talk = self._link.open(probes=True)
                self._talk.rows(f"LISTEN {CHANNEL}")
                self.heard_at = asked_at
                return None
        except (JournalError, broke):  # it is away, of a newer Ralph, or a standby (nobody listens)
            self._drop()
        self._closed.wait(max(0.0, deadline - time.monotonic()))
        return None

    def close(self) -> None:
        """End it; somebody who waits for a server that is down is let go."""
        self._closed.set()
        self._drop()

    def _drop(self) -> None:
        if self._talk is not None:
            self._talk.close()
        self._talk = None


# -- Answers that hold until something is heard.

# How old an answer can be that nobody said anything against.
_RELIED_ON_S = 1.0
_LISTENS_S = 0.4


class Watch:
    """Remembers what the database answered until a notification says that it may have changed.

    A thread listens. As long as it surely hears everything, what was asked once is not asked again.
    """

    def __init__(self, link: Link) -> None:
        self._listener = Listener(link, str)
        self._lock = threading.Lock()
        # One thread asks, the others wait for its answer.
        self._asking = threading.RLock()
        # By memory and stream ("" for what is asked of all streams), what was asked and answered.
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}
        self._changes = 0
        # The streams that were heard of: they are there, and stay.
        self._streams: set[tuple[str, str]] = set()
        # Until when answers may be given without asking.
        self._until = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="ralph-watch", daemon=True)
        self._thread.start()

    def answer(self, memory: str, stream: str, what: str, ask: Callable[[], _T]) -> _T:
        """What is remembered, or what is answered now."""
        for told in self._remembered(memory, stream, what):
            return cast("_T", told)
        with self._asking:
            for told in self._remembered(memory, stream, what):  # another thread has asked it
                return cast("_T", told)
            changes = self._changes
            told = ask()
            with self._lock:
                if changes == self._changes:  # else it may be older than what was heard meanwhile
                    self._answers.setdefault((memory, stream), {})[what] = told
        return told

    def _remembered(self, memory: str, stream: str, what: str) -> list[Any]:
        """The answer, if it still holds."""
        with self._lock:
            known = self._answers.get((memory, stream), {})
            return [known[what]] if what in known and time.monotonic() < self._until else []

    def forget(self, memory: str, stream: str) -> None:
        """Ask anew about a stream: it was written to."""
        with self._lock:
            self._forget(memory, stream)

    def close(self) -> None:
        """Listen no more; from now on everything is asked."""
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
                for memory, stream in heard or ():
                    self._forget(memory, stream)
                self._until = self._listener.heard_at + _RELIED_ON_S
        self._until = 0.0
        self._listener.close()
