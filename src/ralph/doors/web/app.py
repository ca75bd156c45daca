"""The routes, and the access check: only a browser on this machine that got the address may ask.

A request must name this server as its host, because another site's name may point here (DNS
rebinding). It must not come from another page (Origin, Sec-Fetch-Site). It must have the cookie
that the browser got for the one-time address and, to change anything, the session's token. The
cookie is only for the page's secret path, so other servers on this machine do not get it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ralph.doors.web import (
    views_conversations,
    views_import,
    views_memory,
    views_plan,
    views_record,
    views_search,
    views_system,
    views_timeline,
    views_today,
)
from ralph.doors.web.page import BrowserSession, PageCall, Site, View
from ralph.errors import BadInput, NotFound, RalphError, os_error_text
from ralph.memory.project import Project

_CLOSE_S = 2.0
LARGEST_FORM_BYTES = 256 * 1024
_MOST_FIELDS = 200
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # `no-referrer` would make a browser hide the origin of our own forms, too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
# If two routes match, the first one answers.
ROUTES: list[tuple[str, str, View]] = [
    ("GET", "/", views_today.overview),
    ("POST", "/projects", views_today.choose_projects),
    ("POST", "/import", views_import.start_import),
    ("GET", "/import/part", views_import.import_part),
    ("GET", "/live", views_today.live),
    ("GET", "/badge", views_today.badge),
    ("GET", "/timeline", views_timeline.timeline),
    ("GET", "/search", views_search.search),
    ("GET", "/plan", views_plan.features),
    ("GET", "/features", views_plan.old_address),
    ("GET", "/features/{name}", views_plan.feature),
    ("GET", "/features/{name}/edit", views_plan.edit_feature),
    ("POST", "/features/{name}/edit", views_plan.save_feature),
    ("POST", "/features/{name}/learnings/{action}", views_plan.change_learning),
    ("POST", "/features/{name}/gate", views_plan.decide_gate),
    ("GET", "/record/{id}", views_record.record),
    ("GET", "/file", views_record.file),
    ("GET", "/forget", views_record.confirm_forget),
    ("POST", "/forget", views_record.forget),
    ("POST", "/undo", views_record.undo),
    ("GET", "/conversations", views_conversations.list_conversations),
    ("GET", "/conversations/export", views_conversations.export),
    ("GET", "/conversations/{id}", views_conversations.read),
    ("POST", "/conversations/{id}/{action}", views_conversations.change),
    ("GET", "/documents", views_conversations.list_documents),
    ("POST", "/documents/{action}", views_conversations.change_documents),
    ("GET", "/notes", views_memory.notes),
    ("POST", "/notes", views_memory.write_note),
    ("GET", "/notes/{id}/edit", views_memory.edit_note),
    ("POST", "/notes/{id}/edit", views_memory.save_note),
    ("POST", "/notes/{id}/remove", views_memory.remove_note),
    ("GET", "/inbox", views_memory.rules),
    ("POST", "/inbox/{id}/{action}", views_memory.answer_rule),
    ("GET", "/knowledge", views_memory.knowledge),
    ("POST", "/knowledge/publish", views_memory.publish),
    ("POST", "/knowledge/outcome", views_memory.report),
    ("GET", "/workers", views_system.workers),
    ("POST", "/workers/retry", views_system.retry),
    ("GET", "/settings", views_system.settings),
    ("POST", "/settings", views_system.change_setting),
    ("GET", "/health", views_system.health),
    ("GET", "/health/part", views_system.health_part),
    ("POST", "/health", views_system.check_health),
]
_STATIC = Path(__file__).parent / "static"
ENTER = "/enter"


def page_of(
    project: Project, port: int, tell: Callable[[str], None]
) -> tuple[ASGIApp, str, Callable[[], None]]:
    """Return the page as an application, its one-time address, and a function to close it."""
    site = Site(project, port, tell=tell)
    app = make_app(site)
    site.start()

    def close() -> None:
        if not site.close(_CLOSE_S):
            os._exit(0)  # nobody is waiting for that call, and every write is atomic

    return app, site.address(), close


def make_app(site: Site) -> ASGIApp:
    """Create the application for the whole page."""
    routes: list[Route | Mount] = [
        Route(path, _endpoint(site, view), methods=[method]) for method, path, view in ROUTES
    ]
    routes.append(Route(ENTER, _enter(site), methods=["GET"]))
    routes.append(Mount("/static", StaticFiles(directory=_STATIC)))
    app = Starlette(routes=routes, exception_handlers={404: _missing(site)})
    app.router.redirect_slashes = False  # it would redirect to a path outside the page's own
    return RequestFilter(app, site)


# -- access


class RequestFilter:
    """Lets only this machine's own browsers through, and adds security headers to every answer."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if headers.get("location", "").startswith("/"):
                    headers["location"] = f"{self._site.base}{headers['location']}"
            await send(message)

        request = Request(scope)
        if refused := self._refused(request):
            await PlainTextResponse(refused, 403)(scope, receive, send_safely)
            return
        session = None
        path = str(scope["path"])
        if path.startswith(f"{self._site.base}/"):
            path = path.removeprefix(self._site.base)
            session = self._session(request)
            if session is None:
                path = "/"  # whatever is there, nobody without access learns it
            scope = {**scope, "path": path}
        if session is None and path != ENTER and not path.startswith("/static/"):
            await HTMLResponse(self._site.render("closed.html"), 403)(scope, receive, send_safely)
            return
        scope["state"] = {"session": session}
        await self._app(scope, receive, send_safely)

    def _session(self, request: Request) -> BrowserSession | None:
        """Return the session of the request's cookies.

        There may be several with the page's name: any server on this machine can set one.
        """
        for header in request.headers.getlist("cookie"):
            for part in header.split(";"):
                name, _, value = part.strip().partition("=")
                session = self._site.session_of(value) if name == self._site.cookie else None
                if session is not None:
                    return session
        return None

    def _refused(self, request: Request) -> str:
        headers: Headers = request.headers
        if headers.getlist("host") not in [[host] for host in self._site.hosts]:
            return "This is not the address of the page."
        origin = headers.get("origin")
        own = {f"http://{host}" for host in self._site.hosts}
        if origin is not None and origin not in own:
            return "Another page may not use this one."
        if request.method not in ("GET", "HEAD"):
            return "" if origin else "A change must come from the page itself."
        # Navigation may come from elsewhere: the user may click the address in a mail.
        foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return "Another page may not use this one."
        return ""


def _enter(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def enter(request: Request) -> Response:
        """Exchange the token in the address for a cookie, and redirect to a page without it."""
        answer = RedirectResponse("/", 303)
        if request.state.session is None:
            session = site.enter(request.query_params.get("token", ""))
            if session is None:
                return HTMLResponse(site.render("closed.html", used=True), 403)
            path = site.base
            answer.set_cookie(site.cookie, session, httponly=True, samesite="strict", path=path)
        return answer

    return enter


# -- one request


def _endpoint(site: Site, view: View) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        form: dict[str, str] = {}
        if request.method == "POST":
            try:
                form = await _read_form(request)
            except ValueError as error:
                return PlainTextResponse(str(error), 400)
            given = form.pop("csrf", "")
            if not secrets.compare_digest(given.encode(), request.state.session.csrf.encode()):
                text = "This form is from an earlier start of the page. Reload it and try again."
                return PlainTextResponse(text, 403)
        call = PageCall(site, request.state.session, request, form)
        # Everything that uses memory runs in one thread, one call at a time.
        return await asyncio.get_running_loop().run_in_executor(site.worker, _perform, view, call)

    return answer


def _perform(view: View, call: PageCall) -> Response:
    try:
        return view(call)
    except RalphError as error:
        code = 404 if isinstance(error, NotFound) else 400 if isinstance(error, BadInput) else 503
        return call.error(error.what, error.where, error.todo, code=code)
    except OSError as error:
        return call.error(os_error_text(error), code=500)
    except Exception as error:  # noqa: BLE001 - otherwise the user would get a traceback
        if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
            traceback.print_exc()
        what = f"internal error ({type(error).__name__}: {error})"
        return call.error(what, todo="Run with RALPH_DEBUG=1 for a traceback.", code=500)


def _missing(site: Site) -> Callable[[Request, Exception], Response]:
    def missing(request: Request, error: Exception) -> Response:
        if request.state.session is None:  # static files need no cookie
            return PlainTextResponse("There is no such file", 404)
        call = PageCall(site, request.state.session, request, {})
        return call.error("There is no such page", todo="Use the links above.", code=404)

    return missing


async def _read_form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ValueError("Only the page's own forms are accepted.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_FORM_BYTES:
            raise ValueError(f"The form is larger than {LARGEST_FORM_BYTES} bytes.")
    pairs = parse_qsl(
        body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
    )
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
