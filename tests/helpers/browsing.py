"""What the tests of the page share: a project with a history, and a browser that was let in."""

from __future__ import annotations

import contextlib
import html
import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from commanding import COOKIE, LOGIN
from looping import planned
from measuring import measured
from starlette.testclient import TestClient

from ralph.config import home_folder
from ralph.doors.web.app import make_app
from ralph.doors.web.page import Site
from ralph.memory.project import PlainFolder, find_project
from ralph.memory.ralph import open_ralph

PORT = 8757
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')
_TAG = re.compile(r"<[^>]*>")


class PageClient(TestClient):
    """A client that asks for views by their path in the page."""

    def __init__(self, site: Site) -> None:
        super().__init__(make_app(site), base_url=ORIGIN, follow_redirects=False)
        self._site = site

    def request(self, method: str, url: Any, *args: Any, **given: Any) -> Any:
        """Ask for a view below the page's own path."""
        outside = url.startswith((self._site.base, "/enter", "/static/"))
        return super().request(method, url if outside else self._site.base + url, *args, **given)


class Browser:
    """A browser that talks to the page in this process."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.client = PageClient(site)

    def enter(self) -> Browser:
        """Use the address, as `ralph ui` opens it."""
        address = urlsplit(self.site.address())
        assert self.client.get(f"{address.path}?{address.query}").status_code == 303
        return self

    def get(self, path: str, headers: dict[str, str] | None = None, *, code: int = 200) -> str:
        """The HTML of a view, with paths as they are in the page."""
        answer = self.client.get(path, headers=headers)
        assert answer.status_code == code, answer.text
        return answer.text.replace(self.site.base, "")

    def text(self, path: str) -> str:
        """What a reader of a view reads."""
        body = self.get(path).partition("<main")[2].partition("</main>")[0]
        return " ".join(html.unescape(_TAG.sub(" ", f"<{body}")).split())

    def token(self) -> str:
        """The token that forms of this browser carry."""
        [session] = self.site._sessions.values()
        return session.csrf

    def post(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        code: int = 303,
        origin: str = ORIGIN,
        **fields: str,
    ) -> str:
        """Send a form with its token; follow to the next view."""
        given = {"csrf": self.token(), **(form or {}), **fields}
        answer = self.client.post(path, data=given, headers={"origin": origin})
        assert answer.status_code == code, answer.text
        return self.get(answer.headers["location"]) if code == 303 else answer.text


@contextlib.contextmanager
def served_page(root: Path) -> Iterator[Browser]:
    """The page of a project or folder, and a browser that was let in."""
    home = home_folder()
    project = find_project(root, home=home) or PlainFolder(root, home, general=True)
    site = Site(project, PORT, tell=lambda text: None)
    try:
        yield Browser(site).enter()
    finally:
        site.close()


def lived_in(root: Path) -> Path:
    """A project with a plan, iterations, a conversation and a note."""
    planned(root)
    with open_ralph(root) as ralph:
        ralph.feature("auth").remember_all([LOGIN, COOKIE])
        talk = ralph.conversations.start(title="Debug timeouts")
        asked = "Why does the pool time out?"
        ralph.conversations.exchange(talk, user=asked, assistant="The pool is too small.")
        ralph.remember("The staging database resets every night.")
    return root


# -- the page as a process

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/enter\?token=[\w-]{40,})")


class ServedProcess(NamedTuple):
    """A page that is served, and how it is reached."""

    process: subprocess.Popen[str]
    port: int
    path: str

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """The answer to a request, its body read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer


@contextlib.contextmanager
def serving(root: Path, *words: str, **env: str) -> Iterator[ServedProcess]:
    """The page as a process of its own: `ralph serve`, or other words."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ralph", *(words or ("serve",)), "--port", "0"],
        cwd=root,
        env=os.environ | measured() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = ADDRESS.search(process.stdout.readline())
        assert found, process.communicate()
        yield ServedProcess(process, int(found[1]), found[2])
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)
