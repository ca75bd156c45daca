"""The `ralph` command: starts the door (command line, MCP, hooks, server) for the first word."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `ralph/__init__.py`

if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Run the door that the first word names. `--version` loads nothing else."""
    _leave_current_folder()
    argv = sys.argv[1:]
    if argv in (["--version"], ["-V"]):
        from ralph import __version__

        sys.stdout.write(f"ralph {__version__}\n")
        return
    word, rest = _word(argv)
    sys.exit(_open(word, rest, argv))


def _leave_current_folder() -> None:
    """Stop loading modules from the current folder: a clone may contain a `click` of its own.

    `python -m` puts that folder before the standard library, and so does an empty entry in
    PYTHONPATH.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 - hooks must not wait for pathlib
    except OSError:
        return
    library = os.path.dirname(os.__file__)  # noqa: PTH120
    end = sys.path.index(library) if library in sys.path else 0
    sys.path[:end] = [folder for folder in sys.path[:end] if folder != here]


def _word(argv: list[str]) -> tuple[str, list[str]]:
    """Return the first word that is not a global option, and the arguments without it."""
    at = 0
    while at < len(argv):
        if argv[at] in ("--project", "--server"):
            at += 2
        elif argv[at].startswith(("--project=", "--server=", "--no-pager")):
            at += 1
        else:
            return argv[at], argv[:at] + argv[at + 1 :]
    return "", argv


def _open(word: str, rest: list[str], argv: list[str]) -> int:
    """Run the door for this word. Doors other than the command line start from here, because no
    door may import another and a hook must not pay for loading the command line."""
    if word == "mcp":
        from ralph.doors.mcp.main import run as serve

        return serve(rest)
    if word == "statusline" or (word == "hook" and "statusline" in rest[:1]):
        from ralph.doors.hooks.messages import print_status_line

        return print_status_line(rest)
    if word == "hook" and rest[:1] == ["worker"] and len(rest) == 3:
        from ralph.doors.hooks.worker import run_worker

        return run_worker(rest[1:])
    if word == "hook" and rest[:1] == ["capture"] and len(rest) == 3:
        from ralph.doors.hooks.long_sessions import run_capture

        return run_capture(rest[1:])
    if word == "hook" and "pre-tool-use" in rest:
        from ralph.doors.hooks.tool_moments import serve_tool

        return serve_tool(rest)
    if word == "hook":
        from ralph.doors.hooks.call import serve as answer

        return answer(rest)
    if word in ("ui", "serve"):
        from ralph.doors.rest.main import run as serve_page

        return serve_page(rest, page_of=_page_of, mcp_of=_mcp_of if word == "serve" else None)
    from ralph.doors.cli.main import run

    return run(argv)


def _page_of(project: Any, port: int, tell: Any) -> Any:
    """Return the web page of a project, for the server."""
    from ralph.doors.web.app import page_of

    return page_of(project, port, tell)


def _mcp_of(project: Any, feature: str | None, reads_only: bool, shared: tuple[str, ...]) -> Any:
    """Return an MCP server over HTTP, for the REST server."""
    from ralph.doors.mcp.server import http_manager

    return http_manager(project.root, feature, reads_only=reads_only, shared=shared)


if __name__ == "__main__":
    main()
