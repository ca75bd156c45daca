"""Notes on the sessions under way, until what happened in them is in the journal.

A note says where the client writes the session's transcript, how far that was captured, whether a
prompt is being worked on, which errors were met meanwhile and what the model was already told. The
transcript is the durable source of an exchange, and Stop or SessionEnd capture it. Before they load
anything they note that the exchange is over. If they are killed or run out of time, that line
stays, and the next hook of any session captures what they left. A client that is killed calls no
hook; its note stays too, and a later hook finds that the client is gone and captures what the
transcript (and the errors noted here) tell.

A note is a file of lines that hooks append, because those of one session may run side by side; what
captures the session makes it short again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ralph import disk

# The client of a note that names none.
_CLAUDE = "claude"
# How the name ends of what is not in its place yet; a hook that was killed leaves it behind.
_DRAFT = ".tmp"
_MOST_ERRORS = 50
_MOST_RECALLED = 200
_ANCESTORS = 12
# Without a process to look at, a transcript nobody wrote to for so long has no client any more.
_ABANDONED_AFTER_S = 6 * 3600.0
# Notes that could not be finished for so long are given up.
_GIVEN_UP_AFTER_S = 30 * 24 * 3600.0
# After so many tries that came to nothing the next one waits: it may fail or be slow every time.
# Before a person's prompt there are fewer: he would feel each of them.
_MOST_TRIES, _MOST_TRIES_WAITED_FOR = 12, 3
_NEXT_TRY_AFTER_S = 3600.0
# An exchange that ended is over for us after this time, though no hook has said so.
_QUIET_S = 600.0
# Without a process to look at, a hook has ended after this time.
_HOOK_ENDED_AFTER_S = 60.0


class Session:
    """What is noted of one session."""

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
        # How long the transcript was when its exchange was over, which event said so, and the
        # process that was to capture it; None once that is done.
        self.over_at: int | None = None
        self.over_by = ""
        self.hook: list[int] = []
        # Whether there was another prompt before the one before was captured.
        self.missed_prompt = False
        # How much of the note was read.
        self.size = 0

    def take(self, line: dict[str, Any]) -> None:
        """One line of the note; what does not fit is stepped over."""
        kind, value = line.get("note"), line.get("value")
        if kind == "transcript" and isinstance(value, str):
            self.transcript, self.agent = value, str(line.get("agent", _CLAUDE))
        elif kind == "begin":  # another process may hold the session now
            self.clients, self.looks = [], 0
            self.recalled_ids = self.recalled_ids if value is True else []
        elif kind == "prompt":
            self.missed_prompt, self.under_way = self.missed_prompt or self.under_way, True
        elif kind == "kept" and isinstance(value, int):
            self.offset, self.under_way, self.errors, self.tries = value, False, [], 0
            self.over_at, self.missed_prompt = None, False
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
            # Who is above every hook of a session: the client, and what the client runs under.
            self.clients = [one for one in self.clients if one in seen] if self.looks else seen
            self.looks += 1

    def lines(self) -> list[dict[str, Any]]:
        """The note as short as it can be."""
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
        """Whether the client that held it is surely gone."""
        ended = self._has_ended(self.clients[0] if self.looks > 1 and self.clients else [])
        return _silent_s(self.transcript) > _ABANDONED_AFTER_S if ended is None else ended

    def is_unfinished(self, age_s: float) -> bool:
        """Whether the hook that was to capture what is over has ended without doing so."""
        if self.over_at is None:
            return False
        ended = self._has_ended(self.hook)
        return age_s > _HOOK_ENDED_AFTER_S if ended is None else ended

    def _has_ended(self, process: list[int]) -> bool | None:
        """Whether a process is over; None where nobody can tell from here."""
        if not process or self.host != _host() or not os.path.isdir("/proc/self"):
            return None
        pid, started = process
        return _process_start(pid) != started

    def has_more(self) -> bool:
        """Whether the transcript goes on behind what was captured."""
        return _size(self.transcript) > self.offset

    def is_quiet(self) -> bool:
        """Whether a prompt was noted and nobody has written to the transcript for long."""
        return self.under_way and _silent_s(self.transcript) > _QUIET_S

    def outrun(self) -> bool:
        """Whether an exchange must be over though no hook came to note it."""
        return self.has_more() and (self.missed_prompt or self.is_quiet())


class Sessions:
    """The notes of one project's sessions.

    What cannot be noted is told to `on_fault` and nothing else: a model is answered all the same.
    """

    def __init__(
        self, own_folder: str, on_fault: Callable[[OSError, str], None], agent: str = _CLAUDE
    ) -> None:
        self._folder = os.path.join(own_folder, "sessions")
        self._on_fault = on_fault
        self._agent = agent

    def begin(self, name: str, transcript: str, *, remembers: bool) -> None:
        """A session begins or goes on; `remembers` says whether the model has what it was told."""
        self._append(
            name, [{"note": "begin", "value": remembers}, *_session_notes(transcript, self._agent)]
        )

    def note_prompt(self, name: str, transcript: str) -> None:
        """A prompt is being worked on."""
        self._append(name, [*_session_notes(transcript, self._agent), {"note": "prompt"}])

    def over(self, name: str, transcript: str, event: str) -> int:
        """What the transcript holds by now is over, and this process is about to capture it.

        Gives how long the transcript is: what begins behind that is not over.
        """
        transcript = transcript or self.read(name).transcript
        size = _size(transcript)
        own = os.getpid()
        hook = [own, started] if (started := _process_start(own)) is not None else []
        self._append(name, [*_session_notes(transcript, self._agent), _over(size, event, hook)])
        return size

    def note_error(self, name: str, transcript: str, error: dict[str, str]) -> None:
        """An error was met: kept here until its exchange is in the journal."""
        at = _transcript(transcript, self._agent)
        self._append(name, [at, {"note": "error", "value": error}])

    def note_recalled(self, name: str, ids: list[str]) -> None:
        """The model was told of these."""
        self._append(name, [{"note": "told", "value": ids}])

    def note_try(self, name: str) -> None:
        """Somebody tries to capture a session that was left behind."""
        self._append(name, [{"note": "try"}])

    def keep(self, session: Session, offset: int, *, under_way: bool, complete: bool) -> None:
        """The session is captured up to here; `complete` unless there was no time for all of it.

        The caller holds the lock under which sessions are captured, and read the session under it:
        what other hooks noted since then stays.
        """
        over_at = session.over_at
        session.take({"note": "kept", "value": offset})
        session.under_way = under_way
        session.over_at = None if complete else over_at
        data = b"".join(_line({**line, "session": session.name}) for line in session.lines())
        disk.make_folder(self._folder)
        shorten(self._file(session.name), data, session.size)

    def end(self, name: str) -> None:
        """Everything of the session is in the journal."""
        if os.path.exists(self._file(name)):
            os.unlink(self._file(name))

    def read(self, name: str) -> Session:
        """What is noted of a session; a new one where nothing is."""
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
        """Sessions to capture: a hook ended too early, or their client is gone.

        Notes with nothing left to do, and those that can never be finished, go. `own` is the
        session of the event being served, whose client lives; `waited_for`: a person waits for
        this hook.
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
            # What its own hooks may still do is left to them while somebody waits.
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
    """How long a transcript is, 0 where there is none."""
    try:
        return os.stat(transcript).st_size
    except (OSError, ValueError):  # the latter: a name that no file can have
        return 0


def _silent_s(transcript: str) -> float:
    """How long nobody has written to a transcript; for ever where there is none."""
    try:
        return time.time() - os.stat(transcript).st_mtime
    except (OSError, ValueError):
        return float("inf")


def _line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _ancestors() -> list[list[int]]:
    """The processes above this one, each with when it began; none where that cannot be seen."""
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
    """When a process began, None when it is over; a dead one may wait to be collected."""
    stat = _stat(pid)
    return None if stat is None or stat[2] in "ZX" else stat[1]


def _stat(pid: int) -> tuple[int, int, str] | None:
    """Whose child a process is, when it began, and its state."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Its name, in brackets, may hold anything.
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19]), fields[0].decode("ascii", "replace")
    except (OSError, ValueError, IndexError):
        return None


# -- small files, not through `ralph.disk`, which flushes to the disk itself: these may be lost, and
# a hook must be quick


def append(file: str, data: bytes) -> None:
    """Add lines to the file with one write, so that hooks side by side do not mix.

    Another hook may put a new file in its place meanwhile, without these lines. Then they are
    added to that one too; whoever reads them does not mind a line twice.
    """
    while True:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # On a full disk half a line may stand at the end: it must not spoil this one.
            os.write(fd, b"\n" + data)
            if os.path.samestat(os.fstat(fd), os.stat(file)):
                return
        except FileNotFoundError:
            continue
        finally:
            os.close(fd)


def replace(file: str, data: bytes) -> None:
    """Put new content in the file's place."""
    draft = f"{file}.{os.getpid()}{_DRAFT}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            while data:  # where there is no room, the first part may still fit
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        os.replace(draft, file)
    except OSError:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def shorten(file: str, data: bytes, size: int) -> None:
    """Put `data` in the place of a file's first `size` bytes; what others append stays.

    They append to the old file until the new one is there, so that is looked at once more.
    """
    try:
        fd = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        replace(file, data)
        return
    try:
        added = _behind(fd, size)
        if os.name == "nt":  # which replaces no file that is open
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
