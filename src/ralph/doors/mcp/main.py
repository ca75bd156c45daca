"""One run of the server as a process: environment, options, project, exit code."""

from __future__ import annotations

import fnmatch
import os
import signal
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralph.current_run import CurrentRun
    from ralph.doors.mcp.context import ServerOptions

FAILED = 1
USAGE = 2

# The variables needed to find files, homes and projects. The agent's environment contains keys for
# many services; this process drops them, so that its children don't get them either.
_PASSED_VARIABLES = """
PATH HOME USERPROFILE HOMEDRIVE HOMEPATH LANG LANGUAGE LC_* TZ TMPDIR TEMP TMP XDG_*
SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT APPDATA LOCALAPPDATA PROGRAMDATA
RALPH_* CLAUDE_PROJECT_DIR *_NUM_THREADS
""".split()


def run(argv: list[str]) -> int:
    """Serve until the client leaves. Return 1 if it cannot start, 2 for wrong arguments."""
    forget_environment(os.environ)
    from ralph.current_run import current_run, restore_run
    from ralph.doors.mcp.context import read_options
    from ralph.errors import BadInput, RalphError

    try:
        options = read_options(argv)
    except RalphError as error:
        return _fail(f"mcp: {error}", USAGE if isinstance(error, BadInput) else FAILED)
    except SystemExit:  # --help has been printed
        return 0
    if sys.stdin is None or sys.stdout is None:
        return _fail("mcp: stdin and stdout must be open", FAILED)
    restore_run(os.environ)
    if (run := current_run()) is not None and not _is_for(options, run):
        return _fail("mcp: this is an agent's run, and it already has its own MCP server", FAILED)
    start = start_folder(options.project)
    try:
        if options.mode in ("feature", "planning"):
            from ralph.config import home_folder
            from ralph.memory.project import need_project

            start = need_project(start, home=home_folder()).root
        elif options.mode == "conversations" and not start.is_dir():
            return _fail(f"there is no folder {start}", FAILED)
    except (RalphError, OSError) as error:
        return _fail(str(error), FAILED)
    from ralph.doors.mcp.context import ServerContext
    from ralph.doors.mcp.server import serve

    # Ending at any moment loses nothing, because every write is atomic. Python's own handler would
    # wait for the thread that reads stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    context = ServerContext(options, start)
    try:
        serve(context)
    except RalphError as error:
        return _fail(f"mcp: {error}", FAILED)
    except Exception as error:
        if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
            raise
        return _fail(f"mcp: internal error: {type(error).__name__}: {error}", FAILED)
    if not context.closed:  # a call is still running, and nobody is waiting for its answer
        os._exit(0)
    return 0


def _is_for(options: ServerOptions, run: CurrentRun) -> bool:
    """Whether this server reaches no more than the run's own server."""
    if run.feature == "":
        own = options.mode == "planning"
    else:
        own = options.mode == "feature" and run.feature in (None, options.feature)
        own = own and not (options.review and run.on_task)
    named = Path(options.project).resolve() if options.project else None
    return own and (named is None or named == Path(run.project).resolve())


def forget_environment(environ: MutableMapping[str, str]) -> None:
    """Drop every variable that is not needed, above all the agent's keys."""
    for name in list(environ):
        folded = name.upper() if sys.platform == "win32" else name
        if not any(fnmatch.fnmatchcase(folded, pattern) for pattern in _PASSED_VARIABLES):
            del environ[name]


def start_folder(project: str | None) -> Path:
    """Return where to look for the project: the option, the environment, or this folder."""
    environ = os.environ
    folder = project or environ.get("RALPH_PROJECT") or environ.get("CLAUDE_PROJECT_DIR")
    return Path(folder).expanduser() if folder else Path.cwd()


def _fail(message: str, code: int) -> int:
    from ralph.text.sanitize import visible

    sys.stderr.write(f"ralph: {' '.join(visible(message).split())}\n")
    return code
