"""The process of `ralph serve` and `ralph ui`: options, projects, address, exit code."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ralph.current_run import current_run, restore_run
from ralph.errors import BadInput, RalphError
from ralph.wire import is_loopback

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ralph.doors.rest.app import TeamServer
    from ralph.memory.project import Project

# Tried first, so that the address stays the same; otherwise any free port.
PORT = 8757
# How many objects a process creates before Python looks for cycles among them.
_COLLECTED_AFTER = 50_000
_SERVE = """\
Serve the page on this machine, and the API and MCP over HTTP to everyone with a token (`ralph token
create`). Other machines can connect only with --host, and only once there is a token."""
_UI = "Open the page in your browser: see, search and correct what memory has."
_API = re.compile(r"/(?:v1(?:/|$)|projects/|healthz$|readyz$)")
# Passed in, because doors do not import each other: the page of a project as an application, with
# its address and a function that closes it; an MCP server for a project, a feature (or none),
# whether it only reads, and the paths whose files it may serve.
PageOf = Callable[
    ["Project", int, Callable[[str], None]], tuple["ASGIApp", str, Callable[[], None]]
]
McpOf = Callable[["Project", str | None, bool, tuple[str, ...]], Any]


def run(argv: list[str], *, page_of: PageOf, mcp_of: McpOf | None = None) -> int:
    """Serve until Ctrl-C. Returns 1 if it cannot start, 2 for wrong arguments.

    Without `mcp_of` it is `ralph ui`: the page alone, opened in the browser.
    """
    name, about = ("ui", _UI) if mcp_of is None else ("serve", _SERVE)
    parser = argparse.ArgumentParser(prog=f"ralph {name}", description=about)
    more = "" if mcp_of is None else "; repeat it for more"
    parser.add_argument(
        "--project",
        metavar="DIR",
        action="append",
        help=f"project directory (default: the one around this folder){more}",
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help=f"port (default: {PORT}, or any free one)"
    )
    parser.add_argument("--server", help=argparse.SUPPRESS)  # refused with a reason
    parser.set_defaults(
        name=name, host="127.0.0.1", certfile=None, keyfile=None, log=False, share=None
    )
    if mcp_of is not None:
        parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
        parser.add_argument(
            "--certfile", metavar="FILE", help="certificate, for TLS without a proxy"
        )
        parser.add_argument("--keyfile", metavar="FILE", help="its key")
        parser.add_argument("--log", action="store_true", help="write an access log to stderr")
        parser.add_argument(
            "--share",
            metavar="PATH",
            action="append",
            help="file or folder of the project whose knowledge files MCP may serve; "
            "repeat it for more (default: none)",
        )
    try:
        options = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        restore_run(os.environ)
        if current_run() is not None:
            raise BadInput(f"an agent in `ralph run` cannot start `ralph {name}`")
        return _serve(options, page_of, mcp_of)
    except KeyboardInterrupt:
        return 0
    except (RalphError, OSError) as error:
        from ralph.text.sanitize import visible

        sys.stderr.write(f"ralph: {' '.join(visible(str(error)).split())}\n")
        return 1


def _serve(options: argparse.Namespace, page_of: PageOf, mcp_of: McpOf | None) -> int:
    from ralph.config import home_folder
    from ralph.memory.servers import find_login

    home = home_folder()
    projects = _projects(options.project, home)
    login = find_login(home, projects[0].root, given=options.server)
    if login is not None and (mcp_of is None or options.server):
        what = f"`ralph {options.name}` needs the project's own files, and its memory is on"
        todo = "Leave out --server, or run" if options.server else "Run"
        raise BadInput(f"{what} {login.address}", todo=f"{todo} it where the server runs.")
    if bool(options.certfile) != bool(options.keyfile):
        raise BadInput("TLS needs both --certfile and --keyfile")
    if options.certfile:
        import ssl

        try:
            ssl.create_default_context().load_cert_chain(options.certfile, options.keyfile)
        except OSError as error:
            raise BadInput(
                f"the certificate or its key cannot be used ({error})", where=options.certfile
            ) from None
    import uvicorn

    with contextlib.ExitStack() as ends:
        listening = ends.enter_context(bound(options.host, options.port))
        port = listening.getsockname()[1]
        page = None
        address = ""
        if is_loopback(options.host) and ":" not in options.host and not options.certfile:
            # The address is for one browser. It must not end up in a log.
            if not options.log or sys.stdout.isatty():
                page, address, close = page_of(projects[0], port, _tell)
                ends.callback(close)
            else:
                _tell("With --log the page is only served from a terminal. Open it: ralph ui")
        api = None if mcp_of is None else _open_api(options, projects, mcp_of, home, page)
        if page is not None:
            _tell(f"The page of {projects[0].root}: {address}")
        if api is None:
            threading.Thread(target=_open, args=[address], daemon=True).start()
        else:
            ends.callback(api.close)
            if options.log:
                from ralph.doors.rest.app import log_to_stderr, logging_to

                ends.enter_context(logging_to(log_to_stderr))
            names = ", ".join(one.root.name for one in projects)
            host = f"[{options.host}]" if ":" in options.host else options.host
            host = "HOST" if host in ("0.0.0.0", "[::]") else host  # every address of this machine
            at = f"{'https' if options.certfile else 'http'}://{host}:{port}"
            _tell(f"API: {at}/v1/projects/NAME (serving {names})")
            _tell(f"For `ralph --server`: {at}/projects/NAME")
        _tell("Press Ctrl-C to stop.")
        config = uvicorn.Config(
            cast("Any", api or page),
            http="h11" if api is None else api.connection,
            loop="asyncio",
            lifespan="off" if api is None else "on",
            ws="none",
            log_config=None,
            log_level="critical",  # requests that are not HTTP would fill the log
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2 if api is None else 10,
            ssl_certfile=options.certfile,
            ssl_keyfile=options.keyfile,
        )
        # What a search creates is gone when it ends; looking for cycles among it takes time.
        gc.set_threshold(_COLLECTED_AFTER)
        uvicorn.Server(config).run(sockets=[listening])
    return 0


def _open_api(
    options: argparse.Namespace,
    projects: list[Project],
    mcp_of: McpOf,
    home: Path,
    page: ASGIApp | None,
) -> Paths:
    """Create the API of these projects. Without a token it serves this machine only."""
    from ralph.config import load
    from ralph.memory.tokens import Tokens

    tokens = Tokens(home, load(home=home, project_file=projects[0].settings_file).settings)
    if not is_loopback(options.host) and not tokens.list():
        raise BadInput(
            f"without a token the server cannot listen on {options.host}, only on 127.0.0.1",
            todo="Create one first: ralph token create NAME --scope read",
        )
    from ralph.doors.rest.app import TeamServer, limited_connection, log_to_stderr, make_api

    server = TeamServer(projects, tokens, home=home, log=log_to_stderr if options.log else None)
    sessions = McpSessions(server, mcp_of, shared=_shared(options.share or [], projects))
    connection = limited_connection(server.limits)
    return Paths(make_api(server, sessions.route), page, sessions, connection)


class Paths:
    """Routes each request to the API or the page, and runs the MCP servers."""

    def __init__(
        self, api: ASGIApp, page: ASGIApp | None, sessions: McpSessions, connection: Any
    ) -> None:
        self._api = api
        self._page = page
        self._sessions = sessions
        self.connection = connection
        self.close = sessions.server.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run from start to shutdown."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        for_api = self._page is None or _API.match(scope.get("path", ""))
        await (self._api if for_api or self._page is None else self._page)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._sessions.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


class McpSessions:
    """MCP over HTTP: one server per project, feature and access right in use.

    No session is kept between requests, so any process can answer the next one.
    """

    def __init__(self, server: TeamServer, mcp_of: McpOf, *, shared: tuple[str, ...] = ()) -> None:
        from starlette.routing import Route

        self.server = server
        self._mcp_of = mcp_of
        self._shared = shared
        self._managers: dict[tuple[str, str | None, bool], Any] = {}
        # The server sends no messages on its own, so there is nothing to GET.
        self.route = Route("/projects/{project}/mcp", self, methods=["POST"])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the MCP servers running from start to shutdown."""
        import anyio

        async with anyio.create_task_group() as tasks:
            self._tasks, self._starting = tasks, anyio.Lock()
            yield
            tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within what its token allows."""
        from starlette.requests import Request

        from ralph.doors.rest.app import read_body

        server, request = self.server, Request(scope, receive)
        token, project = await server.work(lambda: server.allow(request, None))
        async with server.in_time(HTTPStatus.REQUEST_TIMEOUT):
            body = await read_body(request, server.limits.body_bytes)
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            return messages.pop() if messages else await receive()

        key = (project.id, token.feature, not token.allows("write"))
        async with self._starting:  # a request must wait until the first one started its server
            if key not in self._managers:
                manager = self._mcp_of(project, token.feature, key[2], self._shared)
                await self._tasks.start(self._run, manager)
                self._managers[key] = manager
        server.begin()
        try:
            async with server.in_time(HTTPStatus.GATEWAY_TIMEOUT):
                await self._managers[key].handle_request(scope, receive_body, send)
        finally:
            server.calls.end()

    async def _run(self, manager: Any, *, task_status: TaskStatus[None]) -> None:
        """Run one MCP server until shutdown; the task that opened it must close it."""
        import anyio

        async with manager.run():
            task_status.started()
            await anyio.sleep_forever()


def _projects(folders: list[str] | None, home: Path) -> list[Project]:
    """The projects to serve; their names must differ."""
    from ralph.memory.project import PlainFolder, find_project, need_project

    named = folders or [one for one in [os.environ.get("RALPH_PROJECT")] if one]
    projects: list[Project] = [need_project(Path(one).expanduser(), home=home) for one in named]
    # Without a project: the conversations of this folder, and those that belong to no folder.
    here = Path.cwd()
    projects = projects or [find_project(here, home=home) or PlainFolder(here, home, general=True)]
    names = [one.root.name for one in projects]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two projects are called {name!r}", todo="Rename one of the folders.")
    return projects


def _shared(paths: list[str], projects: list[Project]) -> tuple[str, ...]:
    """The paths whose files MCP may serve; each must be in a project."""
    for path in paths:
        if not any((one.root / path).exists() for one in projects) or Path(path).is_absolute():
            todo = "Give a file or folder, relative to the project."
            raise BadInput(f"--share {path}: no served project has it", todo=todo)
    return tuple(paths)


@contextlib.contextmanager
def bound(host: str, port: int | None) -> Iterator[socket.socket]:
    """A listening socket on this port; without one, on the usual port or any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried: OSError | None = None
    for wanted in (PORT, 0) if port is None else (port,):
        with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
            if sys.platform != "win32":  # on Windows it would let two programs share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((host, wanted))
                listening.listen(256)
            except (OSError, OverflowError) as error:
                tried = error if isinstance(error, OSError) else OSError(str(error))
                continue
            yield listening
            return
    what = f"{host} port {port or PORT} cannot be used ({tried})"
    raise RalphError(what, todo="Choose another with --port N.")


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        _tell("No browser found. Open the address above yourself.")


def _tell(text: str) -> None:
    from ralph.text.sanitize import visible

    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()
