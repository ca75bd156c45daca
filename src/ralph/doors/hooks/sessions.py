"""Notes on running sessions, until their content is in the journal.

A note says where the client writes the session's transcript, how much of it is captured, whether a
prompt is being worked on, which errors have come up, and what the model was already shown. The
transcript is the durable source of an exchange; Stop and SessionEnd capture it. Before they load
anything, they note that the exchange is over. If they are killed or run out of time, that line
stays, and the next hook of any session captures what they left. A client that is killed calls no
hook. Its note stays too; a later hook sees that the client is gone, and captures the transcript and
the errors noted here.

A note is a file that hooks append lines to, because hooks of one session may run at the same time.
The hook that captures the session shortens it again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ralph import disk

# The beginning of the mark of a command that was held.
HELD = "held "
# The client of a note that names none.
_CLAUDE = "claude"
# The suffix of a file that is still being written. A hook that is killed leaves it behind.
_DRAFT = ".tmp"
_MOST_ERRORS = 50
_MOST_RECALLED = 200
_ANCESTORS = 12
# If we cannot check the process, the client counts as gone after this long without a new line.
_ABANDONED_AFTER_S = 6 * 3600.0
# Notes that could not be finished in this time are given up.
_GIVEN_UP_AFTER_S = 30 * 24 * 3600.0
# After this many failed tries, the next one waits: it may fail or be slow every time. There are
# fewer tries while a user waits, who would notice each of them.
_MOST_TRIES = 12
_MOST_TRIES_WAITED_FOR = 3
_NEXT_TRY_AFTER_S = 3600.0
# After this long without a new line, an exchange may count as over even if no hook said so.
_QUIET_S = 600.0
# If we cannot check the process, a hook counts as ended after this time.
_HOOK_ENDED_AFTER_S = 60.0


class Session:
    """The notes on one session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transcript = ""
        self.agent = _CLAUDE
        self.offset = 0
        self.under_way = False
        self.recalled_ids: list[str] = []
        self.errors: list[dict[str, str]] = []
        self.clients: list[list[int]] = []
        self.looks = 0
        self.tries = 0
        self.host = ""
        # The length of the transcript when its exchange ended (None once that is captured), the
        # event that ended it, and the process that was to capture it.
        self.over_at: int | None = None
        self.over_by = ""
        self.hook: list[int] = []
        # Whether a new prompt came before the previous one was captured.
        self.missed_prompt = False
        # How many bytes of the note were read.
        self.size = 0

    def take(self, line: dict[str, Any]) -> None:
        """Apply one line of the note; skip it if it does not fit."""
        kind = line.get("note")
        value = line.get("value")
        if kind == "transcript" and isinstance(value, str):
            self.transcript, self.agent = value, str(line.get("agent", _CLAUDE))
        elif kind == "begin":  # another process may run the session now
            self.clients = []
            self.looks = 0
            if value is not True:  # a new context: only what was held stays held once
                self.recalled_ids = [one for one in self.recalled_ids if one.startswith(HELD)]
        elif kind == "prompt":
            self.missed_prompt = self.missed_prompt or self.under_way
            self.under_way = True
        elif kind == "kept" and isinstance(value, int):
            self.offset = value
            self.under_way = False
            self.errors = []
            self.tries = 0
            self.over_at = None
            self.missed_prompt = False
        elif kind == "over" and isinstance(value, int):
            self.over_at, self.over_by = value, str(line.get("event", ""))
            hook = line.get("hook")
            self.hook = hook if isinstance(hook, list) and len(hook) == 2 else []
        elif kind == "told" and isinstance(value, list):
            self.recalled_ids += [one for one in value if isinstance(one, str)]
        elif kind == "error" and isinstance(value, dict):
            self.under_way = True
            plain = {str(k): str(v) for k, v in value.items()}
            self.errors = [*self.errors, plain][-_MOST_ERRORS:]
        elif kind == "try":
            self.tries += 1
        elif kind == "client" and isinstance(value, list):
            self.host = str(line.get("host", ""))
            seen = [one for one in value if isinstance(one, list) and len(one) == 2]
            # The ancestors of every hook of the session: the client, and what it runs under.
            self.clients = [one for one in self.clients if one in seen] if self.looks else seen
            self.looks += 1

    def lines(self) -> list[dict[str, Any]]:
        """Return the note in its shortest form."""
        lines: list[dict[str, Any]] = [
            _transcript(self.transcript, self.agent),
            {"note": "kept", "value": self.offset},
            {"note": "told", "value": list(dict.fromkeys(self.recalled_ids))[-_MOST_RECALLED:]},
        ]
        lines += [{"note": "client", "value": self.clients, "host": self.host}] * min(self.looks, 2)
        lines += [{"note": "prompt"}] if self.under_way else []
        if self.over_at is not None:
            lines.append(_over(self.over_at, self.over_by, self.hook))
        return lines + [{"note": "error", "value": one} for one in self.errors]

    def is_abandoned(self) -> bool:
        """Whether the session's client is surely gone."""
        ended = self._has_ended(self.clients[0] if self.looks > 1 and self.clients else [])
        return _silent_s(self.transcript) > _ABANDONED_AFTER_S if ended is None else ended

    def is_unfinished(self, age_s: float) -> bool:
        """Whether the hook that was to capture the exchange has ended without doing so."""
        if self.over_at is None:
            return False
        ended = self._has_ended(self.hook)
        return age_s > _HOOK_ENDED_AFTER_S if ended is None else ended

    def _has_ended(self, process: list[int]) -> bool | None:
        """Whether a process has ended; None if we cannot tell."""
        if not process or self.host != _host() or not os.path.isdir("/proc/self"):
            return None
        pid, started = process
        return _process_start(pid) != started

    def has_more(self) -> bool:
        """Whether the transcript is longer than the captured part."""
        return _size(self.transcript) > self.offset

    def is_quiet(self) -> bool:
        """Whether a prompt is noted, but the transcript has not grown for a while."""
        return self.under_way and _silent_s(self.transcript) > _QUIET_S

    def outrun(self) -> bool:
        """Whether an exchange must be over although no hook noted it."""
        return self.has_more() and (self.missed_prompt or self.is_quiet())


class Sessions:
    """The notes on one project's sessions.

    An error while writing a note only goes to `on_fault`, so that the model still gets its answer.
    """

    def __init__(
        self, own_folder: str, on_fault: Callable[[OSError, str], None], agent: str = _CLAUDE
    ) -> None:
        self._folder = os.path.join(own_folder, "sessions")
        self._on_fault = on_fault
        self._agent = agent

    def begin(self, name: str, transcript: str, *, remembers: bool) -> None:
        """Note that a session starts or resumes; `remembers`: the model has what it was shown."""
        self._append(
            name, [{"note": "begin", "value": remembers}, *_session_notes(transcript, self._agent)]
        )

    def note_prompt(self, name: str, transcript: str) -> None:
        """Note that a prompt is being worked on."""
        self._append(name, [*_session_notes(transcript, self._agent), {"note": "prompt"}])

    def over(self, name: str, transcript: str, event: str) -> int:
        """Note that the exchange in the transcript is over and that this process will capture it.

        Returns the length of the transcript: an exchange that begins after it is not over.
        """
        transcript = transcript or self.read(name).transcript
        size = _size(transcript)
        own = os.getpid()
        hook = [own, started] if (started := _process_start(own)) is not None else []
        self._append(name, [*_session_notes(transcript, self._agent), _over(size, event, hook)])
        return size

    def note_error(self, name: str, transcript: str, error: dict[str, str]) -> None:
        """Note an error, until its exchange is in the journal."""
        at = _transcript(transcript, self._agent)
        self._append(name, [at, {"note": "error", "value": error}])

    def note_recalled(self, name: str, ids: list[str]) -> None:
        """Note that the model was shown these records."""
        self._append(name, [{"note": "told", "value": ids}])

    def note_try(self, name: str) -> None:
        """Note an attempt to capture a session that was left behind."""
        self._append(name, [{"note": "try"}])

    def keep(self, session: Session, offset: int, *, under_way: bool, complete: bool) -> None:
        """Note that the session is captured up to here; `complete` if there was time for all of it.

        The caller holds the lock for capturing, and has read the session under it. What other hooks
        have noted since then stays.
        """
        over_at = session.over_at
        session.take({"note": "kept", "value": offset})
        session.under_way = under_way
        session.over_at = None if complete else over_at
        data = b"".join(_line({**line, "session": session.name}) for line in session.lines())
        disk.make_folder(self._folder)
        shorten(self._file(session.name), data, session.size)

    def end(self, name: str) -> None:
        """Delete the note, because the whole session is in the journal."""
        if os.path.exists(self._file(name)):
            os.unlink(self._file(name))

    def read(self, name: str) -> Session:
        """Read the notes on a session; return an empty one if there are none."""
        session = Session(name)
        try:
            data = disk.read(self._file(name))
        except FileNotFoundError:
            return session
        except OSError as error:
            self._on_fault(error, self._folder)
            return session
        session.size = len(data)
        for raw in data.splitlines():
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue  # half a line, of a process that was killed
            if isinstance(line, dict):
                session.take(line)
                named = line.get("session")
                session.name = named if isinstance(named, str) else session.name
        return session

    def due(self, own: str, *, waited_for: bool = False) -> list[Session]:
        """Return the sessions to capture: a hook ended too early, or their client is gone.

        Deletes notes that are finished or can never be. `own` is the session of the current event,
        whose client is running; `waited_for`: a user is waiting for this hook.
        """
        most = _MOST_TRIES_WAITED_FOR if waited_for else _MOST_TRIES
        found: list[Session] = []
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return found
        for entry in entries:
            try:
                age_s = time.time() - os.stat(entry.path).st_mtime
            except FileNotFoundError:
                continue  # another hook was faster
            if entry.name.endswith(_DRAFT) and age_s > _ABANDONED_AFTER_S:
                os.unlink(entry.path)
            if not entry.name.endswith(".jsonl"):
                continue
            session = self.read(entry.name.removesuffix(".jsonl"))
            lives = entry.path == self._file(own) or not session.is_abandoned()
            # While a user waits, leave to a session's own hooks what they may still do.
            late = session.is_unfinished(age_s) or (not waited_for and session.outrun())
            if not late and (lives or session.over_at is not None):
                continue
            wanted = session.under_way or session.over_at is not None or session.has_more()
            there = session.tries < _MOST_TRIES_WAITED_FOR or os.path.exists(session.transcript)
            if not (wanted and there) or age_s > _GIVEN_UP_AFTER_S:
                os.unlink(entry.path)
            elif session.tries < most or age_s > _NEXT_TRY_AFTER_S:
                found.append(session)
        return found

    def _append(self, name: str, lines: list[dict[str, Any]]) -> None:
        if not name:
            return
        data = b"".join(_line({**line, "session": name}) for line in lines)
        try:
            disk.make_folder(self._folder)
            append(self._file(name), data)
        except OSError as error:
            self._on_fault(error, self._folder)

    def _file(self, name: str) -> str:
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "" for c in name)
        if plain != name or len(plain) > 100:
            import zlib

            plain = f"{plain[:60]}-{zlib.crc32(name.encode('utf-8', 'replace')):08x}"
        return os.path.join(self._folder, f"{plain}.jsonl")


def _transcript(transcript: str, agent: str) -> dict[str, Any]:
    return {"note": "transcript", "value": transcript} | (
        {} if agent == _CLAUDE else {"agent": agent}
    )


def _session_notes(transcript: str, agent: str) -> list[dict[str, Any]]:
    return [
        _transcript(transcript, agent),
        {"note": "client", "value": _ancestors(), "host": _host()},
    ]


def _over(size: int, event: str, hook: list[int]) -> dict[str, Any]:
    return {"note": "over", "value": size, "event": event, "hook": hook}


def _size(transcript: str) -> int:
    """Return the length of a transcript, 0 if there is none."""
    try:
        return os.stat(transcript).st_size
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return 0


def _silent_s(transcript: str) -> float:
    """Return how long ago a transcript last changed; infinite if there is none."""
    try:
        return time.time() - os.stat(transcript).st_mtime
    except (OSError, ValueError):
        return float("inf")


def _line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _ancestors() -> list[list[int]]:
    """Return the ancestors of this process with their start times; none if we cannot see them."""
    found: list[list[int]] = []
    if not sys.platform.startswith("linux"):
        return found
    pid = os.getppid()
    while pid > 1 and len(found) < _ANCESTORS:
        stat = _stat(pid)
        if stat is None:
            break
        above, started, _ = stat
        found.append([pid, started])
        pid = above
    return found


def _process_start(pid: int) -> int | None:
    """Return the start time of a process, None if it has ended, even as a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[2] in "ZX" else stat[1]


def _stat(pid: int) -> tuple[int, int, str] | None:
    """Return a process's parent, start time and state."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in brackets, may contain anything.
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19]), fields[0].decode("ascii", "replace")
    except (OSError, ValueError, IndexError):
        return None


# -- small files. They are not written through `ralph.disk`, which flushes to the disk: they may be
# lost, and a hook must be quick.


def append(file: str, data: bytes) -> None:
    """Append lines to the file with one write, so that concurrent hooks do not mix theirs.

    If another hook replaces the file at the same time, the new one may lack these lines, so they
    are appended there too. Readers do not mind a repeated line.
    """
    while True:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # A full disk may have left half a line at the end: it must not spoil this one.
            os.write(fd, b"\n" + data)
            if os.path.samestat(os.fstat(fd), os.stat(file)):
                return
        except FileNotFoundError:
            continue
        finally:
            os.close(fd)


def replace(file: str, data: bytes) -> None:
    """Replace the file in one step."""
    draft = f"{file}.{os.getpid()}{_DRAFT}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            while data:  # on a nearly full disk, only a first part may fit
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        os.replace(draft, file)
    except OSError:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def shorten(file: str, data: bytes, size: int) -> None:
    """Replace the first `size` bytes of a file by `data`; keep what others append.

    They append to the old file until the new one is in place, so we check the old one once more.
    """
    try:
        fd = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        replace(file, data)
        return
    try:
        added = _behind(fd, size)
        if os.name == "nt":  # Windows cannot replace an open file
            os.close(fd)
            fd = -1
        replace(file, data + added)
        more = _behind(fd, size + len(added)) if fd >= 0 else b""
    finally:
        if fd >= 0:
            os.close(fd)
    if more:
        append(file, more)


def _behind(fd: int, start: int) -> bytes:
    os.lseek(fd, start, os.SEEK_SET)
    return os.read(fd, max(0, os.fstat(fd).st_size - start))
