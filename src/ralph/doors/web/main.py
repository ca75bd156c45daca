"""`ralph ui` as a process: options, project, address, exit code. `ralph serve` has the page too."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.current_run import current_run
from ralph.errors import RalphError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from ralph.memory.project import Project

FAILED = 1
HOST = "127.0.0.1"
# Tried first, so that the address is the same every day; any free one does.
PORT = 8757
_CLOSE_S = 2.0
_HELP = "Open the page in your browser: see, search and correct what memory has."


def run(argv: list[str]) -> int:
    """Serve the page until Ctrl-C; 1 when it cannot be, 2 when the words are wrong."""
    parser = argparse.ArgumentParser(prog="ralph ui", description=_HELP)
    parser.add_argument("--project", metavar="DIR", help="project directory (default: around here)")
    parser.add_argument("--port", type=int, metavar="N", help=f"port (default: {PORT}, or a free)")
    try:
        options = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if current_run() is not None:
        return _fail("the page is for people; this is an agent's run")
    try:
        return _serve(options.project, options.port)
    except KeyboardInterrupt:
        return 0
    except (RalphError, OSError) as error:
        return _fail(str(error))


def _serve(folder: str | None, port: int | None) -> int:
    from ralph.config import home_folder
    from ralph.memory.project import PlainFolder, find_project, need_project

    home, named = home_folder(), folder or os.environ.get("RALPH_PROJECT")
    start = Path(named).expanduser() if named else Path.cwd()
    project = need_project(start, home=home) if named else find_project(start, home=home)
    # Where there is no project, the conversations of this folder and of none.
    project = project or PlainFolder(start, home, general=True)

    import uvicorn

    from ralph.doors.web.app import make_app
    from ralph.doors.web.page import Site

    with bound(port) as listening:
        site = Site(project, listening.getsockname()[1], tell=_tell)
        config = uvicorn.Config(
            make_app(site),
            http="h11",
            loop="asyncio",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        site.start()
        address = site.address()
        _tell(f"The page of {project.root}: {address}")
        _tell("Ctrl-C ends it.")
        threading.Thread(target=_open, args=[address], daemon=True).start()
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            if not site.close(_CLOSE_S):
                os._exit(0)  # nobody waits for that call any more, and every write is atomic
    return 0


def page_of(
    project: Project, port: int, tell: Callable[[str], None]
) -> tuple[ASGIApp, str, Callable[[], object]]:
    """The page as an application of another server, the address that lets a browser in, and what
    ends it."""
    from ralph.doors.web.app import make_app
    from ralph.doors.web.page import Site

    site = Site(project, port, tell=tell)
    app = make_app(site)
    site.start()
    return app, site.address(), partial(site.close, _CLOSE_S)


def bound(port: int | None) -> socket.socket:
    """A socket on the loopback interface: on this port, else on the usual one or any."""
    for wanted in (PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if sys.platform != "win32":  # there it would let two programs share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, wanted))
            listening.listen(64)
        except (OSError, OverflowError) as error:
            listening.close()
            if port is not None:
                what = f"port {port} cannot be used ({error})"
                raise RalphError(what, todo="Choose another with --port N.") from None
            continue
        return listening
    raise RalphError("no port of this machine is free")


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        _tell("No browser was found here. Open the address above yourself.")


def _tell(text: str) -> None:
    from ralph.text.sanitize import visible

    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def _fail(message: str) -> int:
    from ralph.text.sanitize import visible

    sys.stderr.write(f"ralph: {' '.join(visible(message).split())}\n")
    return FAILED
