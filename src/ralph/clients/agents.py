"""The interface of a client's module, and what is done with every agent through it."""

from __future__ import annotations

import fnmatch
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec

from ralph.capture import AgentRun, Capture, Dialect, Live
from ralph.clients import BY_AGENT, CLIENTS, Client, load_installed
from ralph.errors import BadInput
from ralph.programs import find_program, python
from ralph.records import Complaint
from ralph.text.tokens import table

if TYPE_CHECKING:
    from ralph.capture.lines import FileStamp, SessionHead, SessionReader, SessionStart
    from ralph.clients.setup import ClientSetup

# The variable that tells an agent outside the table where the file with its MCP servers is.
MCP_CONFIG = "RALPH_MCP_CONFIG"


FULL = "full"
_COMMANDS = Path(__file__).with_name("project_commands.txt")


class AgentPermissions(msgspec.Struct, frozen=True):
    """The shell commands an agent may run: any (`full`), or those that begin with `commands`."""

    full: bool = False
    commands: tuple[str, ...] = ()


def agent_permissions(setting: str, *scripts: str) -> AgentPermissions:
    """Return what the setting allows: `project` or `full`, and more commands after commas."""
    lines = _COMMANDS.read_text(encoding="utf-8").splitlines()
    project = [one.strip() for line in lines if line[:1] != "#" for one in line.split(",")]
    parts = [" ".join(part.split()) for part in setting.split(",")]
    named = (part for part in parts if part not in ("project", FULL))
    return AgentPermissions(FULL in parts, tuple(filter(None, [*project, *scripts, *named])))


class AgentCall(msgspec.Struct, frozen=True):
    """What an agent is started with, besides the prompt on its standard input.

    `mcp_servers` are the servers in the file `mcp_config`, by name.
    """

    model: str | None = None
    mcp_config: Path | None = None
    mcp_servers: dict[str, dict[str, Any]] = {}
    permissions: AgentPermissions = AgentPermissions()


class SessionFiles(Protocol):
    """The session files that a client leaves on this machine."""

    def session_folder(self, environ: Mapping[str, str]) -> Path:
        """Return the folder they are in."""

    def session_files(self, folder: Path) -> Iterator[Path]:
        """Return every session's file under a folder."""

    def session_stamp(self, path: Path) -> FileStamp:
        """Return a session's size and last change."""

    def open_session(self, path: Path) -> BinaryIO:
        """Open the lines of a session."""

    def session_head(self, path: Path, file: BinaryIO) -> SessionHead | None:
        """Return the session in a file, or None if there is none."""

    def session_reader(self, start: SessionStart) -> SessionReader:
        """Create a reader that cuts a file into exchanges."""


class AgentProgram(Protocol):
    """The interface of a client's module."""

    # Its output formats; the first is what its command prints.
    DIALECTS: tuple[str, ...]
    # What `record` accepts from it, for error messages.
    OUTPUTS: tuple[str, ...]
    # Types of events that only its session files have: those are imported, not recorded.
    SESSION_TYPES: frozenset[str]
    # Whether it runs commands in login shells, which may reset PATH.
    LOGIN_SHELLS: bool
    # The model for reviews if the settings name none; None for the program's own choice.
    REVIEW_MODEL: str | None
    # Whether a single run can be given MCP servers.
    TAKES_SERVERS: bool

    def command(self, call: AgentCall) -> list[str]:
        """Return the command line of one run."""

    def variables(self, call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that it needs for this call."""

    def dialect_of(self, event: Mapping[str, Any]) -> str | None:
        """Return the dialect of an event, or None if the event is another program's."""

    def open_capture(self, dialect: str, *, file: str, root: str | None, injected: str) -> Capture:
        """Create a capture for one of its dialects."""

    def sessions(self) -> SessionFiles:
        """Return its session files."""

    def setup(self) -> ClientSetup:
        """Return the setup that puts Ralph into its settings."""


def client_setup(agent: str) -> ClientSetup:
    """Return the setup that puts Ralph into the settings of a client or an editor."""
    if agent in BY_AGENT:
        return BY_AGENT[agent].program.setup()
    from ralph.clients.editors import EditorSetup

    return EditorSetup(agent)


def takes_servers(agent: str) -> bool:
    """Whether a run of this agent gets MCP servers, so that a prompt may name tools."""
    return agent in BY_AGENT and BY_AGENT[agent].program.TAKES_SERVERS


def uses_login_shells(agent: str) -> bool:
    """Whether this agent's commands may get a different PATH than the agent itself."""
    return agent in BY_AGENT and BY_AGENT[agent].program.LOGIN_SHELLS


def review_model(agent: str) -> str | None:
    """Return the stronger model that reviews by default; None for the agent's own choice."""
    return BY_AGENT[agent].program.REVIEW_MODEL if agent in BY_AGENT else None


def output_dialect(agent: str) -> str | None:
    """Return the dialect that this agent prints; None for a program that is not in the table."""
    return BY_AGENT[agent].program.DIALECTS[0] if agent in BY_AGENT else None


def agent_command(agent: str, call: AgentCall) -> list[str]:
    """Return the command line of an agent: a client's name, or any command as typed.

    The prompt goes to standard input: as an argument it would be limited to 128 KiB.
    """
    if agent in BY_AGENT:
        return BY_AGENT[agent].program.command(call)
    words = _words(agent)
    if not words:
        names = ", ".join(BY_AGENT)
        raise BadInput("the agent's command is empty", todo=f"Name {names} or a command.")
    return words


def agent_variables(agent: str, call: AgentCall, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that an agent needs for this call."""
    found = {} if call.mcp_config is None else {MCP_CONFIG: str(call.mcp_config)}
    if agent in BY_AGENT:
        found |= BY_AGENT[agent].program.variables(call, environ)
    return found


def _words(command: str) -> list[str]:
    try:
        if sys.platform == "win32":  # backslashes belong to paths there
            return [word.strip('"') for word in shlex.split(command, posix=False)]
        return shlex.split(command)
    except ValueError as error:
        todo = "Close the quotes; write it as you would type it."
        what = f"the agent's command {command!r} cannot be read: {error}"
        raise BadInput(what, todo=todo) from None


def found_command(
    command: Sequence[str], env: Mapping[str, str], *, root: Path | None = None
) -> list[str]:
    """Return the command with its program's full path; raise BadInput if there is none.

    A program inside the project at `root` counts only if its path is given.
    """
    program = find_program(command[0], root=root, path=env.get("PATH"))
    if program is None:
        what = "was not found"
        todo = "Install it, or name another with --agent. One inside the project needs its path."
        if Path(command[0]).name != command[0] and Path(command[0]).is_file():
            what = "is not executable"
            todo = f"Run: chmod +x {command[0]}"
        raise BadInput(f"the agent's command {command[0]!r} {what}", todo=todo)
    return [program, *command[1:]]


# -- The environment variables an agent gets, and how it calls Ralph.


# Ralph's own keys, and the URL that contains a password: an agent's memory server gets them if it
# needs them, the agent does not.
_WITHHELD = ("RALPH_*_API_KEY", "RALPH_JOURNAL_URL", "RALPH_TOKEN")


def agent_environment(
    *,
    also: Iterable[str] = (),
    given: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables an agent gets: the usual ones, those named in `also`, and `given`."""
    source = os.environ if environ is None else environ
    patterns = [*" ".join(table(__file__, "environment.txt")["passed"]).split(), *also]
    passed = {
        name: value
        for name, value in source.items()
        if any(fnmatch.fnmatchcase(_folded(name), _folded(pattern)) for pattern in patterns)
        and not any(fnmatch.fnmatchcase(_folded(name), pattern) for pattern in _WITHHELD)
    }
    passed["PATH"] = _with_ralph(passed.get("PATH", ""))
    return passed | dict(given or {})


def _with_ralph(path: str) -> str:
    """Return the PATH with our folder: an agent that calls `ralph` must find the one that runs it.

    Our folder comes last, because it may also contain a `python`, and the project's own must stay
    first. It comes first only if the PATH has another `ralph`.
    """
    ours = str(Path(sys.executable).parent)
    # Relative entries lead into the project, whose files must not pass for programs.
    folders = [folder for folder in path.split(os.pathsep) if Path(folder).is_absolute()]
    if ours not in folders:
        folders.append(ours)
    own = find_program("ralph", path=ours)
    if own is not None and shutil.which("ralph", path=os.pathsep.join(folders)) != own:
        folders.insert(0, ours)
    return os.pathsep.join(folders)


def own_command(environ: Mapping[str, str], *, agent: str = "") -> str:
    """Return how a program in this environment calls Ralph: by name if that finds it."""
    path = environ.get("PATH")
    if found := find_program("ralph", path=path):
        # A login shell may reset PATH.
        by_name = not uses_login_shells(agent) and shutil.which("ralph", path=path) == found
        return "ralph" if by_name else shlex.quote(found)
    return shlex.join([*python(), "-m", "ralph"])


def _folded(name: str) -> str:
    return name.upper() if sys.platform == "win32" else name


# -- Detecting the dialect of a stream from its first readable lines, and reading an unknown one.


# Noise in front of a stream (a shell's greeting, a warning) is rarely longer.
_PATIENCE_LINES = 200
_PATIENCE_BYTES = 4_000_000


def expected(*more: str) -> str:
    """Return a hint that lists the accepted inputs: every agent's output, and `more`."""
    outputs = [output for client in CLIENTS for output in client.program.OUTPUTS]
    *first, last = [*outputs, *more]
    return f"Give it {', '.join(first)}, or {last}."


def dialect_of(event: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect of a single event, or None if it is not an agent's."""
    for client in CLIENTS:
        if dialect := client.program.dialect_of(event):
            return dialect
    return dialect_of(event) if load_installed() else None


def session_client(event: Mapping[str, Any]) -> Client | None:
    """Return the client that writes such an event only to its session files, or None."""
    return next((c for c in CLIENTS if event.get("type") in c.program.SESSION_TYPES), None)


def open_capture(
    dialect: Dialect | None, *, file: str = "-", root: str | None = None, injected: str = ""
) -> Capture:
    """Create a capture for this dialect or, for None, one that detects the dialect."""
    source: dict[str, Any] = {"file": file, "root": root, "injected": injected}
    if dialect is None:
        return Detecting(**source)
    program = next(c.program for c in CLIENTS if dialect in c.program.DIALECTS)
    return program.open_capture(dialect, **source)


class Detecting:
    """A capture that detects the dialect itself; until then it holds the lines back."""

    dialect: Dialect | None = None
    _capture: Capture | None = None
    _clue = ""

    def __init__(self, **source: Any) -> None:
        self._source = source
        self._waiting: list[bytes] = []
        self.live = Live()
        self.complaints: list[Complaint] = []

    def feed(self, line: bytes) -> None:
        """Read one line; raise BadInput once it is clear that this is not an agent's output."""
        if self._capture is not None:
            self._capture.feed(line)
            return
        self._waiting.append(line)
        for event in events_on(line):
            if dialect := dialect_of(event):
                self.dialect, self._capture = dialect, open_capture(dialect, **self._source)
                self.live = self._capture.live
                self.complaints = self._capture.complaints
                for before in self._waiting:
                    self._capture.feed(before)
                self._waiting.clear()
                return
            self._clue = self._clue or _clue(event)
        if len(self._waiting) >= _PATIENCE_LINES or sum(map(len, self._waiting)) >= _PATIENCE_BYTES:
            raise self._unknown()

    def finish(self) -> AgentRun:
        """Return the result of the run; raise BadInput if no line was an agent's."""
        if self._capture is None:
            raise self._unknown()
        return self._capture.finish()

    def _unknown(self) -> BadInput:
        if not any(line.strip() for line in self._waiting):
            what = "is empty: the agent printed nothing"
        elif self._waiting[0].startswith((b"\xff\xfe", b"\xfe\xff")):
            what = "is UTF-16, not UTF-8; convert it first"
        else:
            what = self._clue or "is not the output of an agent that Ralph knows"
        return BadInput(what, where=self._source.get("file", "-"), todo=expected())


def read(
    lines: Iterable[bytes], *, dialect: Dialect | None = None, **source: Any
) -> tuple[AgentRun, list[Complaint]]:
    """Read a whole run; return its result and complaints. `source` is as for `open_capture`."""
    capture = open_capture(dialect, **source)
    for line in lines:
        capture.feed(line)
    return capture.finish(), capture.complaints


def events_on(line: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects on a line; none if it cannot be read."""
    from ralph.capture.lines import BOM, UnreadableLine, objects

    try:
        return objects(line.removeprefix(BOM))
    except UnreadableLine:
        return []


def _clue(event: Mapping[str, Any]) -> str:
    if "hook_event_name" in event:
        return "holds inputs of hooks, not the output of a run; the transcript they name has it"
    if "iteration_number" in event or "files_touched" in event:
        return "holds records, not the output of an agent"
    return ""
