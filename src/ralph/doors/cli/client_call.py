"""How a client calls Ralph: this very interpreter, or by name in files that git shares.

A person's own settings work in every folder, also in a stranger's clone. So they name a program by
its full path, started so that no module of the current folder is loaded. Files that git shares,
and the plugin, cannot know a path: their hooks refuse a `ralph` that lies in the project.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from ralph import __version__
from ralph.programs import find_program, python

# The shell, and Claude Code in its own files, put the variable's value here, else the name.
NAMED = "${RALPH_COMMAND:-ralph}"
NAME = "ralph"
_MODULE = ("-m", "ralph")
_SERVER_WORDS = ("mcp", "--focus")
_TIMEOUT_S = 20.0
# A hook by name. The shell looks the program up, and calls it only if that gives a full path (`?:`
# is a drive of Windows) outside the project.
_GUARDED = (
    f'r=$(command -v "{NAMED}") && case "$r" in "${{CLAUDE_PROJECT_DIR:-$PWD}}"/*) ;; '
    '/*|?:*) "$r" hook EVENT 2>/dev/null;; esac || exit 0'
)
_GUARDED_HOOK = re.compile(re.escape(_GUARDED).replace("EVENT", "(?P<event>[a-z-]+)"))
_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s;&|<>"'])+"""
# A hook of ours: a call of Ralph, an event, and that it may fail silently. A command that does
# more than that is somebody's own, whatever else it calls.
_HOOK = re.compile(
    rf"(?P<call>{_WORD}(?:(?: -[EIP])* -m ralph)?) hook (?P<event>[a-z-]+)"
    r"(?: 2>/dev/null)?(?: \|\| exit 0)?"
)
_PROGRAM = re.compile(r"(?:.*[/\\])?ralph(?:\.exe)?", re.S | re.I)


class Call(msgspec.Struct, frozen=True):
    """The program, and the words that go before what it is to do."""

    program: str
    words: tuple[str, ...] = ()

    def hook(self, event: str) -> str:
        """The command of a hook, for a shell."""
        if self.program == NAMED:
            return _GUARDED.replace("EVENT", event)
        return f"{shlex.join([self.program, *self.words])} hook {event} 2>/dev/null || exit 0"

    @property
    def is_safe(self) -> bool:
        """Whether the current folder cannot put another program, or another module, in its place.

        In a person's own settings; in a project's the folder's owner decides anyway.
        """
        isolated = not self.words or "-P" in self.words or "-I" in self.words
        return Path(self.program).is_absolute() and isolated

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
        return find_program(self._here)

    @property
    def _here(self) -> str:
        return os.environ.get("RALPH_COMMAND") or NAME if self.program == NAMED else self.program


def hook_call(command: object) -> tuple[Call, str] | None:
    """The call and the event of a hook that Ralph wrote, or None for anybody else's."""
    if not isinstance(command, str):
        return None
    if guarded := _GUARDED_HOOK.fullmatch(command):
        return Call(NAMED), guarded["event"]
    found = _HOOK.fullmatch(command)
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
    if call.words[-2:] == _MODULE and all(one in ("-E", "-I", "-P") for one in call.words[:-2]):
        return call
    named = call.program == NAMED or _PROGRAM.fullmatch(call.program)
    return call if named and not call.words else None


def best_call(root: Path | None, *, variables: bool) -> Call:
    """How the client should call us from a person's own settings, or from those of a project.

    In a project by name, where the name leads to this Ralph; `variables`: the client puts those in.
    """
    if root is not None:
        named = Call(NAMED if variables else NAME)
        program = named.found()
        if program is not None and _is_this_one(program):
            return named
    elif given := os.environ.get("RALPH_COMMAND"):
        return Call(find_program(given) or given)
    program, *isolated = python()
    return Call(program, (*isolated, *_MODULE))


def _is_this_one(program: str) -> bool:
    """Other programs are called ralph too, and other versions may not know our hooks."""
    try:
        asked = subprocess.run(
            [program, "--version"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=Path(sys.executable).parent,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() == f"ralph {__version__}".encode()
