"""Set Ralph up in a client's settings: the part that all clients share.

A client calls Ralph by this very interpreter or, in files that git shares, by name. A person's own
settings apply in every folder, even in a stranger's clone. So they name a program by its full path,
and start it so that no module of the current folder is loaded. Files that git shares, and the
plugin, cannot know a path: their hooks refuse a `ralph` inside the project.

The files of other programs are read whole, changed all or none, and left alone on failure.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shlex
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ralph import __version__, disk
from ralph.clients import CLIENTS, TITLES, client_setup
from ralph.errors import BadInput, RalphError
from ralph.programs import ask_program, find_program, python

# The shell, and Claude Code in its own files, replace this with the variable's value or the name.
NAMED = "${RALPH_COMMAND:-ralph}"
NAME = "ralph"
SERVER = "ralph-memory"
SERVERS = "mcpServers"
_MODULE = ("-m", "ralph")
# A server's token is in the client's environment, never in a file that git may share.
TOKEN = "RALPH_TOKEN"
_BEARER = f"Bearer ${{{TOKEN}}}"
_HEADERS = {"Authorization": _BEARER}
TIMEOUT_S = 60.0
# A hook that calls Ralph by name. The shell looks up the program, and calls it only if that gives a
# full path (`?:` is a Windows drive) outside the project.
_GUARDED = (
    f'r=$(command -v "{NAMED}") && case "$r" in "${{CLAUDE_PROJECT_DIR:-$PWD}}"/*) ;; '
    '/*|?:*) "$r" hook EVENT 2>/dev/null;; esac || exit 0'
)
_EVENT = "[a-z-]+(?: --agent [a-z]+)?"
# A hook before every tool call would start Python every time. So its shell first looks for a table
# of moments, in the folders above the session's, and ends if there is none.
TOOL_EVENT = "pre-tool-use"
_TABLE = (
    'd=$(cd -P "${CLAUDE_PROJECT_DIR:-.}" && pwd -P); '
    'while [ -n "$d" ] && [ ! -s "${RALPH_HOME:-$HOME/.ralph}/cache/moments$d/table.tsv" ]; '
    'do d=${d%/*}; done; [ -n "$d" ] || exit 0; '
)
_TABLE_ARGUMENT = ' --project "$d"'
_GUARDED_HOOK = re.compile(
    re.escape(_GUARDED).replace("EVENT", rf"(?P<event>{_EVENT})(?:{re.escape(_TABLE_ARGUMENT)})?")
)
_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s;&|<>"'])+"""
# A hook of ours: a call of Ralph, an event, and a part that makes it fail silently. A command that
# does more than that is somebody else's, whatever it calls.
_HOOK = re.compile(
    rf"(?P<call>{_WORD}(?:(?: -[EIP])* -m ralph)?) hook (?P<event>{_EVENT})"
    rf"(?:{re.escape(_TABLE_ARGUMENT)})?(?: 2>/dev/null)?(?: \|\| exit 0)?"
)
_PROGRAM = re.compile(r"(?:.*[/\\])?ralph(?:\.exe)?", re.S | re.I)


class RalphCall(msgspec.Struct, frozen=True):
    """A call of Ralph: the program, and the words before the command.

    `url` is where the memory is served over HTTP, if the client should ask there.
    """

    program: str
    words: tuple[str, ...] = ()
    url: str = ""

    def hook(self, event: str) -> str:
        """Return the shell command of a hook."""
        if event.startswith(TOOL_EVENT):
            return _TABLE + self._hook(event + _TABLE_ARGUMENT)
        return self._hook(event)

    def _hook(self, event: str) -> str:
        if self.program == NAMED:
            return _GUARDED.replace("EVENT", event)
        return f"{shlex.join([self.program, *self.words])} hook {event} 2>/dev/null || exit 0"

    @property
    def is_safe(self) -> bool:
        """Whether the current folder cannot replace the program, or load a module of its own.

        This matters in a person's own settings; in a project's, its owner decides anyway.
        """
        isolated = not self.words or "-P" in self.words or "-I" in self.words
        return Path(self.program).is_absolute() and isolated

    @property
    def server_words(self) -> list[str]:
        """The arguments with which the program serves memory over MCP."""
        return [*self.words, "mcp", "--focus"]

    def server(self) -> dict[str, Any]:
        """Return the server in the format of Claude Code's files; its tools are always loaded."""
        if self.url:
            return {"type": "http", "url": self.url, "headers": _HEADERS, "alwaysLoad": True}
        call = {"type": "stdio", "command": self.program, "args": self.server_words}
        return call | {"alwaysLoad": True}

    @property
    def registered(self) -> RalphCall:
        """The call as a client's settings hold it for the server."""
        return RalphCall("", url=self.url) if self.url else self

    @property
    def shown(self) -> str:
        """The call as a person would type it here."""
        return shlex.join([self._here, *self.words]) if self.program else self.url

    def found(self) -> str | None:
        """Return where the program is, or None if it is missing."""
        return find_program(self._here) if self.program else self.url

    @property
    def _here(self) -> str:
        return os.environ.get("RALPH_COMMAND") or NAME if self.program == NAMED else self.program


def hook_call(command: object) -> tuple[RalphCall, str] | None:
    """Return the call and the event of a hook that Ralph wrote, or None for anybody else's."""
    if not isinstance(command, str):
        return None
    command = command.removeprefix(_TABLE)
    if guarded := _GUARDED_HOOK.fullmatch(command):
        return RalphCall(NAMED), guarded["event"]
    if found := _HOOK.fullmatch(command):
        with contextlib.suppress(ValueError):  # a backslash at the end: nothing that we write
            if call := _call(shlex.split(found["call"])):
                return call, found["event"]
    return None


def server_call(server: object) -> RalphCall | None:
    """Return the call of a server that Ralph wrote, or None for anybody else's."""
    match server:
        case {"command": str(program), "args": [*words, "mcp", "--focus"]}:
            return _call([program, *words])
        case {"url": str(url), "headers": {"Authorization": header}} if header == _BEARER:
            return RalphCall("", url=url)
        case {"url": str(url), "bearer_token_env_var": name} if name == TOKEN:
            return RalphCall("", url=url)
    return None


def _call(words: list[str]) -> RalphCall | None:
    call = RalphCall(words[0], tuple(words[1:]))
    if call.words[-2:] == _MODULE and all(w in ("-E", "-I", "-P") for w in call.words[:-2]):
        return call
    named = call.program == NAMED or _PROGRAM.fullmatch(call.program)
    return call if named and not call.words else None


def best_call(root: Path | None, *, variables: bool) -> RalphCall:
    """Return how a client should call us from a person's own settings, or from a project's.

    In a project that is by name, if the name leads to this Ralph. `variables` says whether the
    client fills in variables.
    """
    if root is not None:
        named = RalphCall(NAMED if variables else NAME)
        if found := named.found():
            # Other programs are called ralph too, and other versions may not know our hooks.
            asked = [found, "--version"]
            folder = Path(sys.executable).parent
            if ask_program(asked, timeout_s=TIMEOUT_S, cwd=folder)[1] == f"ralph {__version__}":
                return named
    elif given := os.environ.get("RALPH_COMMAND"):
        return RalphCall(find_program(given) or given)
    program, *isolated = python()
    return RalphCall(program, (*isolated, *_MODULE))


# -- Files of other programs: read whole, changed all or none, and left alone on failure.


_MOST_BYTES = 64_000_000  # the client's own file grows with every project
_MOVE = "Move it away, or choose --user or --project."
_FIX_JSON = (
    "JSON has no comments and no comma before a closing bracket. Fix that line and run this again."
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class SettingsEdit(msgspec.Struct, frozen=True):
    """One file before and after an edit; None means that there is no file.

    `root` is the project it belongs to, None for a person's own. `keeps_previous`: the edit changes
    the whole layout, so the old file is kept beside it, once, as `.bak`.
    """

    file: Path
    before: str | None
    after: str | None
    root: Path | None = None
    keeps_previous: bool = False


def refusal(what: str, where: object, todo: str = "Fix it.") -> BadInput:
    """Return an error that says why settings cannot be changed, and that they were not."""
    return BadInput(what, where=str(where), todo=f"{todo} Nothing was changed.")


def read_text(file: Path, *, root: Path | None = None) -> str | None:
    """Return the file's text, or None if there is no file; raise if it cannot be read.

    In a project at `root` no link is followed: it may lead to a person's own files.
    """
    _refuse_links(file, root)
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):
            raise refusal("this is not a regular file", file, _MOVE)
        if about.st_size > _MOST_BYTES:
            raise refusal(f"this is over {_MOST_BYTES} bytes", file, _MOVE)
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise refusal(f"not UTF-8 at byte {error.start}", file, "Save it as UTF-8.") from None
    except OSError as error:
        raise _in_the_way(file, "read", error) from None


def read_json(text: str, where: Path) -> dict[str, Any]:
    """Return the object in a settings file; the error names the line that is not JSON."""
    if not text.strip():
        raise refusal("this file is empty", where, "Delete it, or write {} into it.")
    try:
        # Some editors put a byte order mark first.
        plain = text.removeprefix("\ufeff")
        value = json.loads(plain, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        what = f"this is not valid JSON: {error.msg}"
        raise refusal(what, f"{where}:{error.lineno}", _FIX_JSON) from None
    except (ValueError, RecursionError) as error:
        raise refusal(f"this is not valid JSON: {error}", where) from None
    if not isinstance(value, dict):
        raise refusal("the settings must be one JSON object", where, "Fix it, or move it away.")
    return value


def write_json(value: dict[str, Any]) -> str:
    """Return the text of a settings file: indented by two spaces, the keys in their order."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate is valid in JSON, but only as an escape.
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _refuse_links(file: Path, root: Path | None) -> None:
    parts = () if root is None else (file, *file.parents)
    inside = [each for each in parts if each != root and each.is_relative_to(root or "")]
    for link in filter(Path.is_symlink, inside):
        raise refusal("this is a link; Ralph does not follow links in a project", link, _MOVE)


def apply(edits: Sequence[SettingsEdit]) -> list[SettingsEdit]:
    """Make every edit or none; return those that changed a file."""
    done: list[SettingsEdit] = []
    backups: list[Path] = []
    for edit in edits:
        if edit.before == edit.after:
            continue
        try:
            _refuse_links(edit.file, edit.root)
            backup = edit.file.with_name(f"{edit.file.name}.bak")
            rewrites = edit.keeps_previous and edit.before is not None and edit.after is not None
            if rewrites and disk.create(backup, (edit.before or "").encode()):
                backups.append(backup)
            _put(edit, edit.after)
        except (OSError, BadInput) as error:
            for earlier in reversed(done):
                _put(earlier, earlier.before)
            for backup in backups:
                backup.unlink()
            _tidy(edit)
            if isinstance(error, BadInput):
                raise
            raise _in_the_way(edit.file, "written", error) from None
        done.append(edit)
    return done


def _put(edit: SettingsEdit, text: str | None) -> None:
    file = edit.file
    if text is None and file.is_symlink():
        text = "{}\n" if file.suffix == ".json" else ""  # a person's own link stays
    if text is None:
        file.unlink()
        _tidy(edit)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # If the folder permits it, replacing would also work on a file that is read-only.
    if file.exists() and not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    disk.replace(file, text.encode())


def _tidy(edit: SettingsEdit) -> None:
    """Delete a client's own folder if nothing is left in it; a link to a folder stays."""
    with contextlib.suppress(OSError):  # not empty, or not ours to delete: then it stays
        for folder in edit.file.parents[:2]:
            own = folder.name.startswith(".") or folder.name == "plugins"
            if own and folder not in (edit.root, Path.home()):
                folder.rmdir()


def _in_the_way(file: Path, done: str, error: OSError) -> BadInput:
    todo = "Permit it, or choose --user or --project."
    return refusal(f"this cannot be {done}: {error.strerror or error}", file, todo)


# -- What is set up.

PutIn = Callable[[str | None, RalphCall, Path], str]
TakeOut = Callable[[str, Path], str | None]
State = Literal["installed", "partly", "disabled", "none", "unreadable"]


class SetupCall(msgspec.Struct, frozen=True):
    """A command that a client calls, and where it is; None if it is missing."""

    command: str
    found: str | None


class SetupPart(msgspec.Struct, frozen=True):
    """The hooks or the server in one file."""

    file: str
    state: State
    missing: list[str] = []
    calls: list[SetupCall] = []
    problem: str | None = None
    outdated: bool = False


class SetupPlace(msgspec.Struct, frozen=True):
    """One place where a client may call Ralph; `hooks` is None for a client without hooks."""

    agent: str
    where: Literal["user", "project", "plugin"]
    hooks: SetupPart | None
    mcp: SetupPart

    @property
    def parts(self) -> list[SetupPart]:
        """The hooks, if the client has any, and the server."""
        return [self.mcp] if self.hooks is None else [self.hooks, self.mcp]


class ClientStatus(msgspec.Struct, frozen=True):
    """Everything that is set up, and warnings about it."""

    project: str | None
    places: list[SetupPlace]
    warnings: list[str]


class ClientSetup(ABC):
    """Puts Ralph into one client's settings, finds it there, and removes it.

    This class handles MCP servers in a JSON file; subclasses override what differs.
    """

    agent = ""
    # Whether the client has hooks, and whether it fills in variables in commands.
    has_hooks = False
    fills_variables = False
    # Whether a person wants Ralph's status line, if the client has one.
    adds_status_line = False
    # Whether an edit changes the layout of the whole file.
    keeps_previous = True
    # The key of its MCP servers.
    servers_key = SERVERS

    @abstractmethod
    def servers_file(self, root: Path | None) -> Path:
        """Return the file of its servers: of the project at this root, else the person's own."""

    def edits(
        self, root: Path | None, call: RalphCall | None, *, mcp: bool = True
    ) -> list[SettingsEdit]:
        """Return the edits that set Ralph up in the project at this root, or for the person.

        Without a call, return the edits that remove it.
        """
        file = self.servers_file(root)
        return self._edits(file, root, call, self.with_server, self.without_server)

    def _edits(
        self,
        file: Path,
        root: Path | None,
        call: RalphCall | None,
        put_in: PutIn,
        take_out: TakeOut,
    ) -> list[SettingsEdit]:
        text = read_text(file, root=root)
        if text is None and call is None:
            return []
        after = take_out(text or "", file) if call is None else put_in(text, call, file)
        return [SettingsEdit(file, text, after, root, self.keeps_previous)]

    def with_server(self, text: str | None, call: RalphCall, where: Path) -> str:
        """Return the file with our MCP server in it."""
        settings = {} if text is None else self.read(text, where)
        servers = settings.get(self.servers_key, {})
        if not isinstance(servers, dict):
            raise refusal(f"{self.servers_key} must be an object", where)
        before = self.call_of(servers.get(SERVER))
        if SERVER in servers and before is None:
            raise foreign_server(where)
        if text is not None and before == call.registered:
            return text
        return self.put(text, settings, self.server_entry(call))

    def without_server(self, text: str, where: Path) -> str | None:
        """Return the file without our MCP server; None if nothing else was in it."""
        return text if self.server_in(text, where) is None else self.take(text, where)

    def server_in(self, text: str, where: Path) -> RalphCall | None:
        """Return how our MCP server is called, or None if it is not registered."""
        servers = self.read(text, where).get(self.servers_key)
        return self.call_of(servers.get(SERVER)) if isinstance(servers, dict) else None

    def read(self, text: str, where: Path) -> dict[str, Any]:
        """Return the settings in the file."""
        return read_json(text, where)

    def put(self, text: str | None, settings: dict[str, Any], entry: dict[str, Any]) -> str:
        """Return the file with these settings and this server."""
        settings.setdefault(self.servers_key, {})[SERVER] = entry
        return write_json(settings)

    def take(self, text: str, where: Path) -> str | None:
        """Return the file without our server; None if nothing else was in it."""
        settings = self.read(text, where)
        del settings[self.servers_key][SERVER]
        if not settings[self.servers_key]:
            del settings[self.servers_key]
        return write_json(settings) if settings else None

    def server_entry(self, call: RalphCall) -> dict[str, Any]:
        """Return our server in the format of this client's settings."""
        return call.server()

    def call_of(self, server: object) -> RalphCall | None:
        """Return the call of a server that Ralph wrote, or None for anybody else's."""
        return server_call(server)

    def places(self, root: Path | None) -> list[SetupPlace]:
        """Return what is set up for the person and for the project at this root."""
        found = [self._place("user", None)]
        return found if root is None else [*found, self._place("project", root)]

    def _place(self, where: Literal["user", "project"], root: Path | None) -> SetupPlace:
        def judge(text: str, file: Path) -> SetupPart:
            call = self.server_in(text, file)
            if call is None:
                return SetupPart(str(file), "none")
            outdated = is_outdated(call, root)
            return SetupPart(str(file), "installed", calls=[setup_call(call)], outdated=outdated)

        server = setup_part(self.servers_file(root), root, judge)
        return SetupPlace(self.agent, where, self.hooks(root), server)

    def hooks(self, root: Path | None) -> SetupPart | None:
        """Return the state of our hooks in its settings, or None if it has no hooks."""
        return None

    def warnings(self, places: list[SetupPlace], root: Path | None) -> list[str]:
        """Return warnings that are special to this client."""
        return []

    def plugin_place(
        self, file: Path, judge: Callable[[str, Path], SetupPart], *, has_server: bool
    ) -> SetupPlace:
        """Return the place of the client's plugin; this file says whether it is installed."""
        hooks = setup_part(file, None, judge)
        server = hooks if has_server else SetupPart(hooks.file, "none")
        return SetupPlace(self.agent, "plugin", hooks, server)

    # For clients that manage a person's own server themselves.

    def registered(self) -> RalphCall | None:
        """Return how that server is called."""
        return None

    def register(self, call: RalphCall) -> str | None:
        """Have the client register it; without a client, return the command to run."""
        return None

    def unregister(self) -> str | None:
        """Have the client remove it; without a client, return the command to run."""
        return None


def look(root: Path | None, agents: Iterable[str] = TITLES) -> ClientStatus:
    """Return what is set up for the person and for the project at this root."""
    all_places = list[SetupPlace]()
    warnings = list[str]()
    for agent in agents:
        setup = client_setup(agent)
        places = setup.places(root)
        all_places += places
        warnings += setup.warnings(places, root)
    return ClientStatus(str(root) if root else None, all_places, [*warnings, *_odd(all_places)])


def setup_part(file: Path, root: Path | None, judge: Callable[[str, Path], SetupPart]) -> SetupPart:
    """Return what is set up in the file; an unreadable file must not hide the others."""
    try:
        text = read_text(file, root=root)
        return SetupPart(str(file), "none") if text is None else judge(text, file)
    except RalphError as error:
        return SetupPart(str(file), "unreadable", problem=f"{error.where}: {error.what}")


def installed_plugin(file: Path) -> SetupPart:
    """Return the state of a plugin that came with this package, so its calls are up to date."""
    return SetupPart(str(file), "installed", calls=[setup_call(RalphCall(NAMED))])


def called_twice(places: Iterable[SetupPlace], removing: str) -> list[str]:
    """Return a warning if a plugin and settings both have hooks: each would run."""
    calling = [place for place in places if place.hooks and place.hooks.calls]
    if len(calling) < 2 or all(place.where != "plugin" for place in calling):
        return []
    names = ", ".join(place.where for place in calling)
    return [f"{calling[0].agent}: {names} each call Ralph at the same events. Run: {removing}"]


def is_outdated(call: RalphCall, root: Path | None) -> bool:
    """Whether an older Ralph wrote the call, so that a folder could replace the program."""
    shared = root is not None and call.program in (NAMED, NAME, "")
    return not shared and not call.is_safe


def setup_call(call: RalphCall) -> SetupCall:
    """Return the call and where its program is."""
    return SetupCall(call.shown, call.found())


def foreign_server(where: Path) -> BadInput:
    """Return the error for a server with our name that somebody else made."""
    return refusal(
        f"an MCP server named {SERVER} already exists, and Ralph did not create it",
        where,
        "Rename it, or use --no-mcp.",
    )


def _odd(places: list[SetupPlace]) -> list[str]:
    found: list[str] = []
    for place in places:
        again = f"Run: ralph hooks install --{place.where}"
        again += "" if place.agent == CLIENTS[0].agent else f" --agent {place.agent}"
        for part in place.parts:
            found += [part.problem] if part.problem else []
            if part.outdated:
                what = "a folder you work in could put its own program in the place of Ralph"
                found.append(f"{part.file}: {what}. {again}")
            if part.state == "partly":
                found.append(f"{part.file}: no hook for {', '.join(part.missing)}. {again}")
            todo = "Install it there, or set RALPH_COMMAND."
            gone = [call.command for call in part.calls if call.found is None]
            found += [f"{part.file}: {command} was not found. {todo}" for command in gone]
    return list(dict.fromkeys(found))
