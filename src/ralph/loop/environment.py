"""The environment variables an agent gets, the events of a run, and how a process is watched."""

from __future__ import annotations

import fnmatch
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ralph.clients import uses_login_shells
from ralph.programs import find_program, python

# What programs need to run at all, what toolchains are found by, and what the agents themselves
# are configured with. Everything else (other services' keys above all) stays here.
_PASSED = """
PATH HOME USER LOGNAME SHELL LANG LC_* LANGUAGE TERM COLORTERM TMPDIR TMP TEMP TZ XDG_*
SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE
http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY
SSH_AUTH_SOCK GIT_AUTHOR_* GIT_COMMITTER_* GIT_SSH_COMMAND
VIRTUAL_ENV CONDA_PREFIX PYENV_* NVM_* VOLTA_HOME JAVA_HOME GOPATH GOROOT GOFLAGS CARGO_HOME
RUSTUP_HOME DOTNET_ROOT ANDROID_HOME
ANTHROPIC_* CLAUDE_* DISABLE_* MCP_* OPENAI_* CODEX_* RALPH_*
SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT APPDATA LOCALAPPDATA PROGRAMDATA PROGRAMFILES*
USERPROFILE USERNAME HOMEDRIVE HOMEPATH
""".split()


# Ralph's own keys, and the address that holds a password: an agent's memory server is told them
# where it needs them, the agent is not.
_KEPT_BACK = ("RALPH_*_API_KEY", "RALPH_JOURNAL_URL")


def agent_environment(
    *,
    also: Iterable[str] = (),
    given: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables an agent gets: the usual ones, those named in `also`, and what we give."""
    source = os.environ if environ is None else environ
    patterns = [*_PASSED, *also]
    passed = {
        name: value
        for name, value in source.items()
        if any(fnmatch.fnmatchcase(_folded(name), _folded(pattern)) for pattern in patterns)
        and not any(fnmatch.fnmatchcase(_folded(name), one) for one in _KEPT_BACK)
    }
    passed["PATH"] = _with_ralph(passed.get("PATH", ""))
    return passed | dict(given or {})


def _with_ralph(path: str) -> str:
    """The agent is told to call `ralph`; it must find the one that drives it.

    Our folder comes last, because it may hold a `python` too and the project's own must stay the
    first; only another `ralph` before it puts it in front.
    """
    ours = str(Path(sys.executable).parent)
    # Relative entries lead into the project: what lies there must not pass for a program.
    folders = [folder for folder in path.split(os.pathsep) if Path(folder).is_absolute()]
    if ours not in folders:
        folders.append(ours)
    own = find_program("ralph", path=ours)
    if own is not None and shutil.which("ralph", path=os.pathsep.join(folders)) != own:
        folders.insert(0, ours)
    return os.pathsep.join(folders)


def own_command(environ: Mapping[str, str], *, agent: str = "") -> str:
    """How a program in this environment calls Ralph: by its name where that is found."""
    path = environ.get("PATH")
    if found := find_program("ralph", path=path):
        # A login shell may set its path anew.
        by_name = not uses_login_shells(agent) and shutil.which("ralph", path=path) == found
        return "ralph" if by_name else shlex.quote(found)
    return shlex.join([*python(), "-m", "ralph"])


def _folded(name: str) -> str:
    return name.upper() if sys.platform == "win32" else name


# -- What watching an agent means on every system.


class Started(msgspec.Struct, frozen=True):
    """What is known of a started agent so far."""

    failed: str | None = None
    exit_code: int | None = None
    left_behind: int = 0


class Watched(Protocol):
    """An agent that runs, and everything it started."""

    started: Started

    def ended(self, wait_s: float) -> bool:
        """Whether the agent and everything it started have ended; waits a little."""
        ...

    def end(self) -> None:
        """End everyone, and return when it is done."""
        ...

    def close(self) -> None:
        """Let go; whoever still runs is ended."""
        ...


# -- What the loop tells while it runs: one value a fact, for a screen, a log or a program.


Name = Literal[
    "memory",
    "recovered",
    "started",
    "doing",
    "ended",
    "repaired",
    "learned",
    "waiting",
    "stopped",
]


class LoopEvent(msgspec.Struct, frozen=True):
    """One thing that happened, with its facts by name."""

    event: Name
    at: str
    facts: dict[str, Any]


Listener = Callable[[LoopEvent], None]
