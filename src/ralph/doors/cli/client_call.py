"""How a client calls Ralph: by its name where that works, else this very interpreter."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

import msgspec

from ralph import __version__

# The shell, and Claude Code in its own files, put the variable's value here, else the name.
NAMED = "${RALPH_COMMAND:-ralph}"
NAME = "ralph"
_MODULE = ("-m", "ralph")
_SERVER_WORDS = ("mcp", "--focus")
_TIMEOUT_S = 20.0
_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s;&|<>"'])+"""
# A hook of ours: a call of Ralph, an event, and that it may fail silently. A command that does
# more than that is somebody's own, whatever else it calls.
_HOOK = re.compile(
    rf"(?P<call>{_WORD}(?: -m ralph)?) hook (?P<event>[a-z-]+)(?: 2>/dev/null)?(?: \|\| exit 0)?"
)
_PROGRAM = re.compile(r"(?:.*[/\\])?ralph(?:\.exe)?", re.S | re.I)


class Call(msgspec.Struct, frozen=True):
    """The program, and the words that go before what it is to do."""

    program: str
    words: tuple[str, ...] = ()

    @property
    def shell(self) -> str:
        """The call as a shell reads it."""
        first = f'"{NAMED}"' if self.program == NAMED else shlex.quote(self.program)
        return " ".join([first, *map(shlex.quote, self.words)])

    @property
    def server_words(self) -> list[str]:
        """What the program is given to serve memory over MCP."""
        return [*self.words, *_SERVER_WORDS]

    def server(self) -> dict[str, Any]:
        """The server as Claude Code's files describe one; its tools are shown at once."""
        return {
            "type": "stdio",
            "command": self.program,
            "args": self.server_words,
            "alwaysLoad": True,
        }

    @property
    def shown(self) -> str:
        """The call as a person would type it here."""
        return shlex.join([self._here, *self.words])

    def found(self) -> str | None:
        """Where the program is, or None when it is not there."""
        return shutil.which(self._here)

    @property
    def _here(self) -> str:
        return os.environ.get("RALPH_COMMAND") or NAME if self.program == NAMED else self.program


def hook_call(command: object) -> tuple[Call, str] | None:
    """The call and the event of a hook that Ralph wrote, or None for anybody else's."""
    found = _HOOK.fullmatch(command) if isinstance(command, str) else None
    if found is None:
        return None
    try:
        call = _call(shlex.split(found["call"]))
    except ValueError:  # a backslash at the end: nothing that we write
        return None
    return (call, found["event"]) if call else None


def server_call(server: object) -> Call | None:
    """The call of a server that Ralph wrote, or None for anybody else's."""
    match server:
        case {"command": str(program), "args": [*words]}:
            given = tuple(words)
        case _:
            return None
    at = len(given) - len(_SERVER_WORDS)
    return _call([program, *given[:at]]) if given[at:] == _SERVER_WORDS else None


def _call(words: list[str]) -> Call | None:
    call = Call(words[0], tuple(words[1:]))
    if call.words == _MODULE:
        return call
    named = call.program == NAMED or _PROGRAM.fullmatch(call.program)
    return call if named and not call.words else None


def best_call(*, variables: bool) -> Call:
    """By name where the name leads to this Ralph; `variables`: the client puts those in."""
    named = Call(NAMED if variables else NAME)
    program = named.found()
    if program is not None and _is_this_one(program):
        return named
    return Call(sys.executable, _MODULE)


def _is_this_one(program: str) -> bool:
    """Other programs are called ralph too, and other versions may not know our hooks."""
    try:
        asked = subprocess.run(
            [program, "--version"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() == f"ralph {__version__}".encode()
