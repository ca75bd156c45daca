"""How a view is rendered: the site with its memory, one call, the templates and their filters."""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ralph import __version__, disk
from ralph.doors.web.markdown import code_spans, mark_words, render_markdown
from ralph.doors.web.places import PLACES
from ralph.errors import NotFound, RalphError
from ralph.memory.project import PlainFolder, Project
from ralph.text.sanitize import visible
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.memory.status import RagStatus
    from ralph.memory.timeline import Events
    from ralph.plan.store import Plan

_TEMPLATES = Path(__file__).parent / "templates"
# How old the badge's status may be.
_STATUS_S = 10.0
_WARM_UP_AFTER_S = 2.0
_MOST_SESSIONS = 20
_MOST_UNDO = 20
_LINK = re.compile(r' (?:href|action|data-live)="(?=/(?!/|static/))')
_SECRET = re.compile(r"[\w-]{22}")
PAGE_ROWS = 50
SHORT_ID = 8
# How much of a text a page shows at first, and how much on request.
TEXT_CHARS = 6_000
LONG_TEXT_CHARS = 400_000


class Flash(msgspec.Struct, frozen=True):
    """The result of an action, shown once on the next page; `undo` is the key to undo it."""

    text: str
    undo: str = ""


class BrowserSession(msgspec.Struct):
    """One browser with access: its token for forms, its messages and its undo actions.

    `everywhere` is whether it shows all projects; None as long as nobody chose.
    """

    csrf: str
    everywhere: bool | None = None
    flashes: list[Flash] = []
    undo: dict[str, Callable[[], str]] = {}


View = Callable[["PageCall"], Response]


class Site:
    """The running page of one project: its memory and plan, its browsers and the badge."""

    def __init__(self, project: Project, port: int, *, tell: Callable[[str], None]) -> None:
        self.project = project
        self.hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
        # Cookies do not distinguish ports: a browser sends them to every server on this machine. So
        # the cookie is only for a path that no other server knows, and every page is below it.
        self.cookie = f"ralph_{port}"
        self.base = f"/page-{_secret_path(project.home)}"
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._tell = tell
        self._token = secrets.token_urlsafe(32)
        self._sessions: dict[str, BrowserSession] = {}
        self._memory: Ralph | None = None
        self._status: tuple[float, RagStatus | None] = (0.0, None)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Read the journals in advance, so that the first view is not slow."""
        self.worker.submit(self.look)
        # The first search loads the embedder and the vectors. Do that after the first view.
        timer = threading.Timer(_WARM_UP_AFTER_S, self._warm_up)
        timer.daemon = True
        timer.start()

    def _warm_up(self) -> None:
        def search() -> None:
            with contextlib.suppress(RalphError):
                self.memory.search("what was done", limit=1, budget_s=_STATUS_S)

        with contextlib.suppress(RuntimeError):  # the site was closed in the meantime
            self.worker.submit(search)

    def close(self, timeout_s: float | None = None) -> bool:
        """Close the files; return False if a call is still running after this time."""
        closed = self.worker.submit(self.reopen)
        self.worker.shutdown(wait=False)
        return bool(wait([closed], timeout_s).done)

    # -- places

    @property
    def name(self) -> str:
        """What people call the project."""
        return self.project.root.name or str(self.project.root)

    @functools.cached_property
    def is_project(self) -> bool:
        """Whether this is a project and not only a folder."""
        return not isinstance(self.project, PlainFolder)

    # -- browsers

    def address(self) -> str:
        """Return the address that gives one browser access, once."""
        return f"http://{self.hosts[0]}/enter?token={self._token}"

    def enter(self, token: str) -> str | None:
        """Return a new session's name for the right token, and replace the token.

        A token works only once, because other users of the machine may see the address on a
        browser's command line.
        """
        with self._lock:
            if not secrets.compare_digest(token.encode(), self._token.encode()):
                return None
            self._token = secrets.token_urlsafe(32)
            name = secrets.token_urlsafe(32)
            self._sessions[name] = BrowserSession(secrets.token_urlsafe(32))
            while len(self._sessions) > _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        self._tell(f"For another browser: {self.address()}")
        return name

    def session_of(self, cookie: str) -> BrowserSession | None:
        """Return the session of this cookie, if there is one."""
        return self._sessions.get(cookie)

    # -- memory and plan, only for the worker thread

    @property
    def memory(self) -> Ralph:
        """The memory, opened by the first call that needs it."""
        if self._memory is None:
            self._memory = self.open_memory()
        return self._memory

    def open_memory(self) -> Ralph:
        """Open the memory once more, for another thread."""
        from ralph.memory.ralph import open_ralph

        root = self.project.root if self.is_project else None
        return open_ralph(root, project=None if self.is_project else self.project)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan of the project; a folder without one has an empty plan."""
        from ralph.plan.store import Plan

        return Plan(self.project.root, state=self.project.cache)

    def reopen(self) -> None:
        """Close the memory; the next call opens it with the current settings."""
        if self._memory is not None:
            self._memory.close()
        self._memory = None
        self._status = (0.0, None)

    def look(self) -> RagStatus:
        """Return whether memory works; check again if the last check is too old."""
        at, found = self._status
        if found is None or time.monotonic() - at > _STATUS_S:
            from ralph.memory.status import status

            found = status(self.memory)
            self._status = time.monotonic(), found
        return found

    @property
    def last_status(self) -> RagStatus | None:
        """The status from the last check, if any."""
        return self._status[1]

    # -- templates

    def render(self, template: str, **values: Any) -> str:
        """Render a template to text, with every link below the page's own path."""
        text = templates().get_template(template).render(site=self, version=__version__, **values)
        # Only the templates' own attributes match: quotes in values are escaped.
        return _LINK.sub(rf"\g<0>{self.base}", text)


class PageCall:
    """One request of a browser, and the ways to answer it."""

    def __init__(
        self, site: Site, session: BrowserSession, request: Request, form: Mapping[str, str]
    ) -> None:
        self.site = site
        self.session = session
        self.request = request
        self.form = form
        self.params: dict[str, str] = request.path_params
        self.query = request.query_params

    @property
    def memory(self) -> Ralph:
        """The project's memory."""
        return self.site.memory

    @property
    def plan(self) -> Plan:
        """The project's plan."""
        return self.site.plan

    @property
    def has_others(self) -> bool:
        """Whether there are other projects to show."""
        return self.memory.conversations.exist_elsewhere

    @property
    def everywhere(self) -> bool:
        """Whether to show all projects: as chosen, else if this one has nothing yet."""
        if self.session.everywhere is None:
            self.session.everywhere = self.has_others and not self.memory.recent(1)
        return self.session.everywhere

    @property
    def path(self) -> str:
        """The path of the page."""
        return self.request.url.path

    @property
    def number(self) -> int:
        """The page number in a long list, starting at 1."""
        text = self.query.get("page", "1")
        return max(1, min(int(text), 1_000_000)) if text.isdecimal() and len(text) < 8 else 1

    def url(self, **changes: object) -> str:
        """Return the address of this page with a changed query; None removes a parameter."""
        kept = [(k, v) for k, v in self.query.multi_items() if k not in changes and v]
        added = [(name, str(value)) for name, value in changes.items() if value is not None]
        asked = urlencode([*kept, *added])
        return f"{quote(self.path)}?{asked}" if asked else quote(self.path)

    def page(self, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
        """Render a full page, with the results of the last actions."""
        flashes = self.session.flashes
        self.session.flashes = []
        return HTMLResponse(self.site.render(template, call=self, flashes=flashes, **values), code)

    def part(self, template: str, **values: Any) -> HTMLResponse:
        """Render a part of a page, for the script that inserts it."""
        return HTMLResponse(self.site.render(template, call=self, **values))

    def error(
        self, what: str, where: str | None = None, todo: str | None = None, *, code: int
    ) -> HTMLResponse:
        """Render a page that says what is wrong and what to do."""
        return self.page("error.html", code=code, what=what, where=where, todo=todo)

    def done(
        self, text: str, path: str, *, undo: Callable[[], str] | None = None
    ) -> RedirectResponse:
        """Redirect to a view that shows this message; `undo` undoes the action and says so."""
        key = ""
        if undo is not None:
            key = secrets.token_urlsafe(8)
            self.session.undo[key] = undo
            while len(self.session.undo) > _MOST_UNDO:
                del self.session.undo[next(iter(self.session.undo))]
        self.session.flashes.append(Flash(text, key))
        return self.redirect(path)

    def redirect(self, path: str) -> RedirectResponse:
        """Redirect to a view."""
        return RedirectResponse(path, 303)

    def back(self, otherwise: str) -> str:
        """Return the path of the view that the form was on; ignore one that leads elsewhere."""
        path = self.form.get("back", "") or self.query.get("back", "")
        safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
        return path if safe else otherwise

    def undo(self) -> RedirectResponse:
        """Undo the action that the form names."""
        action = self.session.undo.pop(self.form.get("key", ""), None)
        if action is None:
            raise NotFound("this can no longer be undone")
        return self.done(action(), self.back("/"))


# -- templates and filters


@functools.cache
def templates() -> Environment:
    """Return the templates. They remove invisible characters and escape everything."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=harmless,
        auto_reload=False,
    )
    made.filters |= {
        "markdown": render_markdown,
        "spans": code_spans,
        "marked": mark_words,
        "moment": moment,
        "clock": clock,
        "day": day_text,
        "cut": cut,
        "long": long_text,
        "money": money,
        "tokens": tokens_text,
        "duration": duration,
        "share": share,
        "segment": lambda text: quote(str(text), safe=""),
        "short": lambda identity: str(identity)[:SHORT_ID],
    }
    made.globals |= {"plural": plural, "places": PLACES}
    return made


def _secret_path(home: Path) -> str:
    """Return the secret part of the page's path; it stays the same, so that bookmarks work."""
    file = home / "cache" / "page"
    new = secrets.token_urlsafe(16)
    with contextlib.suppress(OSError):  # a read-only home stores nothing
        disk.create(file, new.encode())
        saved = disk.read(file).decode("ascii", "replace")
        if _SECRET.fullmatch(saved):
            return saved
        disk.replace(file, new.encode())
    return new


def harmless(value: Any) -> Any:
    """Return a value without control, bidi or ANSI characters; None becomes ""."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def moment(at: str | None) -> Markup:
    """Format a time in the server's time zone; the page's script converts it to the viewer's."""
    if not at:
        return Markup("")
    try:
        then = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):
        return escape(visible(at)[:40])
    shown = then.strftime("%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(then.isoformat(timespec="seconds"), shown)


def clock(at: str | None) -> Markup:
    """Format a time like `moment`, without the day: for a list below its day."""
    return Markup(str(moment(at)).replace("<time ", "<time data-clock ", 1))


def day_text(day: str) -> str:
    """Format a day in words; "" means that there is none."""
    if not day:
        return "Without a time"
    then = date.fromisoformat(day)
    return f"{then:%A, %B} {then.day}, {then.year}"


def cut(text: object, chars: int = 200) -> str:
    """Return the text on one line, cut to a length."""
    # Clean only the part that can be shown at all.
    line = " ".join(visible(str(text or "")[: chars * 8]).split())
    return line if len(line) <= chars else f"{line[: chars - 1].rstrip()}…"


def long_text(text: str | None, whole: bool = False) -> str:
    """Return as much of a text as a page shows."""
    most = LONG_TEXT_CHARS if whole else TEXT_CHARS
    text = text or ""
    return text if len(text) <= most else f"{text[:most]}…"


def money(amount: float | None) -> str:
    """Format an amount of US dollars."""
    if amount is None:
        return ""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def tokens_text(count: int | None) -> str:
    """Format a number of tokens in short form."""
    if count is None:
        return ""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def duration(ms: int | None) -> str:
    """Format a duration in short form."""
    if ms is None:
        return ""
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def share(part: float | None) -> str:
    """Format a share as a percentage."""
    return "" if part is None else f"{part:.0%}"


class Paging(msgspec.Struct, frozen=True):
    """Which part of a long list a page shows."""

    number: int
    total: int
    rows: int = PAGE_ROWS

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // self.rows))

    @property
    def first_row(self) -> int:
        """The number of rows before this page."""
        return (self.number - 1) * self.rows


def paged(rows: list[Any] | Events, number: int, size: int = PAGE_ROWS) -> tuple[list[Any], Paging]:
    """Return the rows of one page, and which part of the list that is."""
    last = max(1, -(-len(rows) // size))
    paging = Paging(min(number, last), len(rows), size)
    return rows[paging.first_row : paging.first_row + size], paging
