"""The API's application: tokens, limits, errors as problem details, metrics and the access log.

A call is checked in this order: its token (401), its rate (429), its project (404), its right and
feature (403, 404). Only then is its body read. Memory is used in threads, by one call at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ralph import __version__
from ralph.doors.rest.calls import CALLS, ApiCall, ApiRoute
from ralph.doors.rest.queue import TURN_S, CallQueue
from ralph.errors import (
    BadInput,
    JournalError,
    MemoryOff,
    NotFound,
    PlanBusy,
    RalphError,
    RecordForgotten,
)
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.tokens import Token, Tokens
from ralph.text.sanitize import visible

PREFIX = "/v1/projects/{project}"
_BEARER = "bearer "
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LISTS = ("kind", "feature", "path")
# Other methods are counted as one: anyone can send any method, without a token.
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
}


class ServerLimits(NamedTuple):
    """How much a server does at once, and how much for one token."""

    body_bytes: int = 2_000_000
    per_second: float = 50.0
    burst: int = 100
    request_s: float = 30.0
    # How long an open connection may be idle.
    idle_s: float = 10.0
    threads: int = 4
    waiting: int = 64


class Refusal(Exception):
    """A refused call: its status and the reason."""

    def __init__(
        self, status: HTTPStatus, what: str, *, todo: str | None = None, retry_s: float = 0
    ) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.todo = todo
        self.retry_s = retry_s


class TeamServer:
    """The state of one `ralph serve` process: projects, tokens, worker threads and metrics."""

    def __init__(
        self,
        projects: Sequence[Project],
        tokens: Tokens,
        *,
        home: Path,
        limits: ServerLimits | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.limits = limits or ServerLimits()
        self._home = home
        self.figures = Figures()
        self.ready = True
        self._projects = {name: one for one in projects for name in (one.id, one.root.name)}
        self._tokens = tokens
        tokens.watch()
        self.calls = CallQueue(self.limits.threads, self.limits.waiting)
        self._is_checked = False
        self._free: dict[str, list[Ralph]] = {}
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        self._log = log

    def close(self) -> None:
        """Finish running calls and close files."""
        self.ready = False
        self.calls.close()
        self._tokens.close()

    # -- access

    def allow(self, request: Request, call: ApiRoute | None) -> tuple[Token, Project]:
        """Return a request's token and project, or raise Refusal. Runs in a thread of `work`."""
        given = request.headers.get("authorization", "")
        if not given.lower().startswith(_BEARER):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "a token is needed", todo=_HOW)
        with self._lock:
            token = self._tokens.find(given[len(_BEARER) :].strip())
            if token is None:
                what = "the token is not valid: wrong, revoked or expired"
                raise Refusal(HTTPStatus.UNAUTHORIZED, what, todo=_HOW)
            request.scope["ralph.token"] = token.id
            self._slow_down(token)
        only = token.feature
        project = self._projects.get(request.path_params.get("project", ""))
        if project is None or project.id != token.project:
            what = "no such project, or the token is for another one"
            raise Refusal(HTTPStatus.NOT_FOUND, what, todo="`ralph serve` prints the names.")
        if call is not None and not token.allows(call.right):
            what = f"this needs a token with the scope {call.right}; this one has {token.right}"
            raise Refusal(HTTPStatus.FORBIDDEN, what)
        if call is not None and call.person and not token.person:
            todo = "Create one with `ralph token create NAME --scope write --person`."
            raise Refusal(HTTPStatus.FORBIDDEN, "this needs a person's token", todo=todo)
        if call is not None and call.whole and only is not None:
            raise Refusal(HTTPStatus.FORBIDDEN, "a token for one feature cannot do this")
        named = request.path_params.get("feature", only)
        if only is not None and named != only:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no feature {named!r}")
        return token, project

    def _slow_down(self, token: Token) -> None:
        """Count a call of this token; refuse it if there were too many."""
        now = time.monotonic()
        limits = self.limits
        left, then = self._buckets.get(token.id, (float(limits.burst), now))
        left = min(float(limits.burst), left + (now - then) * limits.per_second)
        if left < 1:
            wait_s = (1 - left) / limits.per_second
            self._buckets[token.id] = left, now
            what = f"too many calls: a token may make {limits.per_second:g} a second"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, what, retry_s=wait_s)
        self._buckets[token.id] = left - 1, now

    # -- work

    async def work(self, task: Callable[[], Any]) -> Any:
        """Run a task in a thread, with a time limit. Refused if too many calls are waiting."""
        self.begin()
        answer = self.calls.submit(task)
        if not self._is_checked:
            self._check()
        async with self.in_time(HTTPStatus.GATEWAY_TIMEOUT):
            return await answer

    def begin(self) -> None:
        """Count a call; refuse it if there are too many."""
        if not self.calls.begin():
            what = "the server is busy: too many calls are waiting"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, what, retry_s=1)

    def _check(self) -> None:
        """As long as calls wait, let none of them wait for one that hangs."""
        if is_checked := self.calls.pass_on():
            asyncio.get_running_loop().call_later(TURN_S, self._check)
        self._is_checked = is_checked

    @contextlib.asynccontextmanager
    async def in_time(self, status: HTTPStatus) -> AsyncIterator[None]:
        """Refuse the call with this status if the block takes too long."""
        try:
            async with asyncio.timeout(self.limits.request_s):
                yield
        except TimeoutError:
            what = f"the call took more than {self.limits.request_s:g} s"
            raise Refusal(status, what) from None

    @contextlib.contextmanager
    def memory(self, project: Project) -> Iterator[Ralph]:
        """Yield the memories of a project, for one call."""
        with self._lock:
            free = self._free.setdefault(project.id, [])
            # The one used last is the most up to date.
            ralph = free.pop() if free else None
        ralph = ralph or open_ralph(project=project, home=self._home, private_notes=False)
        try:
            yield ralph
        finally:
            free.append(ralph)

    def log(self, line: Mapping[str, Any]) -> None:
        """Write one line to the access log, without content or secrets."""
        if self._log is not None:
            self._log(json.dumps(line, separators=(",", ":")))


_HOW = "Create one with `ralph token create`, and send it as `Authorization: Bearer TOKEN`."


# -- the application


def make_api(server: TeamServer, *more: Route) -> ASGIApp:
    """Return the API as an ASGI application, with these routes added."""
    # Feature names may contain slashes, so longer paths are tried first.
    routes = [
        Route(
            PREFIX + call.path.replace("{feature}", "{feature:path}"),
            _endpoint(server, call),
            methods=[call.method],
        )
        for call in sorted(CALLS, key=lambda call: -call.path.count("/"))
    ]

    def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> Response:
        if not server.ready:
            return PlainTextResponse("stopping\n", HTTPStatus.SERVICE_UNAVAILABLE)
        await server.work(lambda: None)
        return PlainTextResponse("ready\n")

    async def metrics(request: Request) -> Response:
        await server.work(lambda: server.allow(request, None))
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(server.figures.text(), media_type=kind)

    def document(_: Request) -> Response:
        return _json(openapi())

    routes += [
        Route("/healthz", health),
        Route("/readyz", readiness),
        Route(f"{PREFIX}/metrics", metrics),
        Route("/v1/openapi.json", document),
        *more,
    ]
    handlers: Any = {
        Refusal: _refused,
        RalphError: _failed,
        OSError: _failed,
        RecursionError: _too_deep,
        404: _missing,
        405: _missing,
        Exception: _unforeseen,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A redirect would answer without a token, and name the host and scheme that the client sent.
    app.router.redirect_slashes = False
    return AccessLog(app, server)


def _endpoint(server: TeamServer, call: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        def allow() -> tuple[Token, Project]:
            return server.allow(request, call)

        def perform(token: Token, project: Project, *given: Any) -> bytes:
            with server.memory(project) as ralph:
                made = ApiCall(ralph, token, request.path_params)
                return msgspec.json.encode(call.perform(made, *given))

        if call.has_body:  # read only after the token was checked
            allowed = await server.work(allow)
            async with server.in_time(HTTPStatus.REQUEST_TIMEOUT):
                sent = await _argument(request, call, server.limits.body_bytes)
            body = await server.work(lambda: perform(*allowed, sent))
        else:
            body = await server.work(lambda: perform(*allow(), *_query(request, call)))
        created = call.method == "POST" and call.right == "write"
        return Response(body, HTTPStatus.CREATED if created else HTTPStatus.OK, media_type=_JSON)

    return answer


async def _argument(request: Request, call: ApiRoute, most_bytes: int) -> Any:
    """Return the argument of a call, from its body."""
    body = await read_body(request, most_bytes)
    try:
        return msgspec.json.decode(body, type=call.takes)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise _unusable(f"the body cannot be used: {error}", call) from None


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return a request's body; refuse one that is too large or does not arrive."""
    body = bytearray()
    too_large = Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most_bytes} bytes"
    )
    try:
        if int(request.headers.get("content-length", 0)) > most_bytes:
            raise too_large
        async for part in request.stream():
            body += part
            if len(body) > most_bytes:
                raise too_large
    except ClientDisconnect:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the body did not arrive") from None
    return bytes(body)


def _query(request: Request, call: ApiRoute) -> list[Any]:
    """Return the argument of a call, from its query."""
    found: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in _LISTS and call.path != "/tasks":
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    if call.takes is None:
        if found:
            raise _unusable(f"there is no parameter {next(iter(found))!r}", call)
        return []
    try:
        return [msgspec.convert(found, call.takes, strict=False)]
    except msgspec.ValidationError as error:
        raise _unusable(f"the parameters cannot be used: {error}", call) from None


def _unusable(what: str, call: ApiRoute) -> BadInput:
    """An error that says what the call takes."""
    fields = ", ".join(getattr(call.takes, "__struct_fields__", ()))
    return BadInput(what, todo=f"Fields: {fields}. {_SEE}" if fields else _SEE)


# -- errors as problem details


_JSON = "application/json"
_SEE = "See /v1/openapi.json."


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type=_JSON)


def problem(
    status: HTTPStatus, what: str, *, todo: str | None = None, retry_s: float = 0
) -> Response:
    """Return an error as a problem-details response."""
    told = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": what}
    told |= {"todo": todo} if todo else {}
    headers = {"retry-after": str(math.ceil(retry_s))} if retry_s else {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    body = msgspec.json.encode(told)
    return Response(body, status, headers, media_type="application/problem+json")


def _refused(_: Request, error: Refusal) -> Response:
    return problem(error.status, error.what, todo=error.todo, retry_s=error.retry_s)


def _failed(_: Request, error: RalphError | OSError) -> Response:
    """Return a memory error as a response, without the path on the server where it happened."""
    if isinstance(error, OSError):
        what = error.strerror or "a file on the server cannot be used"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, what, retry_s=5)
    found = (code for kind, code in _STATUS.items() if isinstance(error, kind))
    status = next(found, HTTPStatus.INTERNAL_SERVER_ERROR)
    retry_s = 5 if status == HTTPStatus.SERVICE_UNAVAILABLE else 0
    return problem(status, error.what, todo=error.todo, retry_s=retry_s)


_STATUS: dict[type[RalphError], HTTPStatus] = {
    NotFound: HTTPStatus.NOT_FOUND,
    RecordForgotten: HTTPStatus.GONE,
    BadInput: HTTPStatus.BAD_REQUEST,
    MemoryOff: HTTPStatus.SERVICE_UNAVAILABLE,
    JournalError: HTTPStatus.SERVICE_UNAVAILABLE,
    PlanBusy: HTTPStatus.SERVICE_UNAVAILABLE,
}


def _missing(request: Request, error: Exception) -> Response:
    status = HTTPStatus(getattr(error, "status_code", 404))
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return problem(status, f"{request.method} is not allowed at this address")
    return problem(status, "there is nothing at this address")


def _too_deep(_: Request, error: Exception) -> Response:
    return problem(HTTPStatus.BAD_REQUEST, "the body is nested too deeply", todo=_SEE)


def _unforeseen(request: Request, error: Exception) -> Response:
    request.scope["ralph.error"] = type(error).__name__
    if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    what = f"unexpected error in the server: {type(error).__name__}"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, what)


# -- metrics and the access log


class Figures:
    """Counts and durations of calls, in the format of Prometheus."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str, int]] = Counter()
        self._times: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(_BUCKETS_S) + 2))
        self.under_way = 0

    def count(self, method: str, path: str, status: int, took_s: float) -> None:
        """Count one answered call."""
        self._calls[method, path, status] += 1
        times = self._times[path]
        for place, bound in enumerate(_BUCKETS_S):
            times[place] += took_s <= bound
        times[-2] += 1
        times[-1] += took_s

    def text(self) -> str:
        """Return everything counted since the process started."""
        lines = ["# TYPE ralph_requests_total counter"]
        for (method, path, status), count in sorted(self._calls.items()):
            named = f'method="{method}",path="{path}",status="{status}"'
            lines.append(f"ralph_requests_total{{{named}}} {count}")
        lines.append("# TYPE ralph_request_seconds histogram")
        for path, times in sorted(self._times.items()):
            for bound, within in zip((*map(str, _BUCKETS_S), "+Inf"), times, strict=False):
                name = f'ralph_request_seconds_bucket{{path="{path}",le="{bound}"}}'
                lines.append(f"{name} {int(within)}")
            lines.append(f'ralph_request_seconds_count{{path="{path}"}} {int(times[-2])}')
            lines.append(f'ralph_request_seconds_sum{{path="{path}"}} {times[-1]:.6f}')
        lines.append("# TYPE ralph_requests_under_way gauge")
        lines.append(f"ralph_requests_under_way {self.under_way}")
        return "\n".join(lines) + "\n"


class AccessLog:
    """Counts and logs every request, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, server: TeamServer) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        told: dict[str, int] = {"status": 500, "bytes": 0}

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS.items()]
            told["bytes"] += len(message.get("body", b""))
            await send(message)

        figures = self._server.figures
        figures.under_way += 1
        try:
            # Unexpected errors were answered already; their type goes into the log.
            with contextlib.suppress(Exception):
                await self._app(scope, receive, send_counted)
        finally:
            figures.under_way -= 1
            took_s = time.monotonic() - began
            route = scope.get("route")
            path = getattr(route, "path_format", None) or "other"
            method = scope["method"] if scope["method"] in _METHODS else "other"
            figures.count(method, path, told["status"], took_s)
            line: dict[str, Any] = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "method": method,
                "path": path,
                **told,
                "ms": round(took_s * 1000, 1),
                "token": scope.get("ralph.token"),
            }
            line |= {"error": scope["ralph.error"]} if "ralph.error" in scope else {}
            self._server.log(line)


def log_to_stderr(line: str) -> None:
    """Write one line of the access log."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class LogLines(logging.Handler):
    """Writes what libraries log as lines of the access log: where from and which error.

    Their messages and tracebacks may repeat what a client sent. Ralph's own warnings do not.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.name == "ralph":
            line["message"] = visible(record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        self._log(json.dumps(line, separators=(",", ":")))


@contextlib.contextmanager
def logging_to(log: Callable[[str], None]) -> Iterator[None]:
    """Write everything that this process logs, and Python's warnings, to the access log."""
    handler = LogLines(log)
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)


# -- connections


def limited_connection(limits: ServerLimits) -> type[H11Protocol]:
    """Return a connection class that closes idle connections: each takes a file descriptor."""

    class LimitedConnection(H11Protocol):
        _seen: object = None
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(limits.idle_s, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._timer is not None:
                self._timer.cancel()

        def _look(self) -> None:
            cycle = self.cycle
            # Before the first request there is no cycle.
            if cycle is self._seen and getattr(cycle, "response_complete", True):
                self.transport.close()
            else:
                self._seen = cycle
                self._timer = self.loop.call_later(limits.idle_s, self._look)

    return LimitedConnection


# -- the OpenAPI document


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all calls."""
    takes = [call.takes for call in CALLS if call.takes is not None]
    refs, components = msgspec.json.schema_components(
        takes, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(takes, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(PREFIX + call.path, {})[call.method.lower()] = _operation(
            call, schemas, components
        )
    bearer = {"type": "http", "scheme": "bearer"}
    problem_schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("type", "title", "detail", "todo")}
        | {"status": {"type": "integer"}},
        "required": ["type", "title", "status", "detail"],
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ralph", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": problem_schema},
            "securitySchemes": {"token": bearer},
        },
        "security": [{"token": []}],
    }


def _operation(
    call: ApiRoute, schemas: Mapping[Any, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    names = [part[1:-1] for part in (PREFIX + call.path).split("/") if part.startswith("{")]
    place: dict[str, Any] = {"in": "path", "required": True, "schema": {"type": "string"}}
    parameters = [{"name": name, **place} for name in names]
    whose = "a person's token" if call.person else "a token"
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": (call.perform.__doc__ or "").strip().splitlines()[0],
        "description": f"Needs {whose} with the scope {call.right}.",
    }
    if call.has_body:
        content = {_JSON: {"schema": schemas[call.takes]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif call.takes is not None:
        schema = components[call.takes.__name__]
        needed = schema.get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in needed, "schema": about}
            for name, about in schema["properties"].items()
        ]
    problems = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    good = "201" if call.method == "POST" and call.right == "write" else "200"
    codes = ["400", "401", "403", "404", "408", "410", "413", "429", "503", "504"]
    answers: dict[str, Any] = {
        code: {"description": HTTPStatus(int(code)).phrase, "content": problems} for code in codes
    }
    answers[good] = {"description": "Done", "content": {_JSON: {"schema": {}}}}
    return {**operation, "parameters": parameters, "responses": answers}
