"""The page: who may ask, what a change needs, and that hostile text is shown as text."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsing import HOST, ORIGIN, PORT, Browser, served_page
from starlette.testclient import TestClient

from ralph.doors.web.app import HEADERS, LARGEST_FORM_BYTES, ROUTES
from ralph.doors.web.views_system import HealthCheck
from ralph.memory.ralph import open_ralph

VIEWS = ["/", "/plan", "/features/auth", "/features/auth/edit", "/timeline", "/search?q=cookie"]
VIEWS += ["/conversations", "/notes", "/knowledge", "/documents", "/workers"]
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover=alert(3) {{7*7}}"
    " \u202egnp.exe\u202c \x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07 \u200bzero"
    " javascript:alert(4) </textarea></pre></title><svg/onload=alert(5)>"
)


def anonymous(browser: Browser) -> Browser:
    """Another browser at the same page."""
    return Browser(browser.site)


# -- coming in


def test_nobody_comes_in_without_the_address(browser: Browser) -> None:
    stranger = anonymous(browser)

    for path in (*VIEWS, "/badge", "/live", "/record/abcd", "/forget?id=abcd", "/nothing"):
        said = stranger.get(path, code=403)
        assert "has no access" in said
        assert "auth" not in said


def test_nothing_is_changed_without_the_cookie(browser: Browser) -> None:
    token = browser.token()
    answer = anonymous(browser).client.post(
        "/features/auth/learnings/add",
        data={"csrf": token, "text": "x"},
        headers={"origin": ORIGIN},
    )
    assert answer.status_code == 403


def test_the_address_is_exchanged_for_a_strict_cookie_and_left_behind(browser: Browser) -> None:
    address = urlsplit(browser.site.address())
    answer = anonymous(browser).client.get(f"{address.path}?{address.query}")

    assert answer.status_code == 303
    assert answer.headers["location"] == f"{browser.site.base}/"
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"ralph_{PORT}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "domain" not in cookie
    assert f"path={browser.site.base.lower()};" in cookie
    assert address.query.partition("=")[2] not in cookie


def test_an_address_works_once(browser: Browser) -> None:
    address = urlsplit(browser.site.address())
    path = f"{address.path}?{address.query}"

    assert anonymous(browser).client.get(path).status_code == 303
    again = anonymous(browser).client.get(path)

    assert again.status_code == 403
    assert "already used" in again.text
    assert "set-cookie" not in again.headers
    assert browser.site.address() != address.geturl()


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "A" * 10_000])
def test_a_wrong_token_lets_nobody_in(browser: Browser, token: str) -> None:
    answer = anonymous(browser).client.get("/enter", params={"token": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


# -- other servers on this machine


def test_no_page_has_a_link_outside_the_path_of_the_cookie(browser: Browser) -> None:
    for path in VIEWS:
        text = browser.client.get(path).text
        links = re.findall(r'(?:href|action|data-live|src)="(/[^"]*)"', text)
        own = (f"{browser.site.base}/", "/static/")
        assert [link for link in links if not link.startswith(own)] == []


def test_the_path_of_the_cookie_stays_the_same_and_is_only_for_its_owner(root: Path) -> None:
    with served_page(root) as first, served_page(root) as second:
        assert first.site.base == second.site.base
        assert len(first.site.base) > 20
        saved = first.site.project.home / "cache" / "page"
        assert saved.stat().st_mode & 0o077 == 0


def test_the_path_of_the_cookie_is_told_to_nobody_without_access(browser: Browser) -> None:
    secret = browser.site.base.removeprefix("/page-")
    stranger = anonymous(browser).client
    origin = {"origin": ORIGIN}
    for path in ("/", "/enter", "/enter?token=x", "/static/page.js", "/static/none", "/page-x/"):
        for answer in (
            TestClient.request(stranger, "GET", path),
            TestClient.request(stranger, "POST", path, headers=origin),
        ):
            assert secret not in f"{answer.headers}{answer.text}"
    assert secret not in browser.site.address()


def test_a_cookie_that_another_server_sets_does_not_shut_the_browser_out(browser: Browser) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in browser.client.cookies.items())
    for both in (f"{cookie}; ralph_{PORT}=planted", f"ralph_{PORT}=planted; {cookie}"):
        browser.client.cookies.clear()
        browser.get("/", {"cookie": both})


# -- other pages, other names


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", "localhost"]
)
def test_another_name_for_this_machine_gets_nothing(browser: Browser, host: str) -> None:
    assert "not the address of the page" in browser.get("/", {"host": host}, code=403)


def test_localhost_is_a_name_of_the_page(browser: Browser) -> None:
    browser.get("/", {"host": f"localhost:{PORT}"})


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1:1"]
)
def test_another_page_may_neither_read_nor_change(browser: Browser, origin: str) -> None:
    assert "Another page" in browser.get("/", {"origin": origin}, code=403)
    browser.post("/features/auth/learnings/add", code=403, origin=origin, text="x")


def test_a_change_without_an_origin_is_refused(browser: Browser) -> None:
    given = {"csrf": browser.token(), "text": "x"}
    answer = browser.client.post("/features/auth/learnings/add", data=given)
    assert answer.status_code == 403


def test_a_piece_of_another_page_gets_nothing(browser: Browser) -> None:
    fetched = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    browser.get("/search?q=cookie", fetched, code=403)
    browser.get("/", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"})


# -- changes


def changes() -> list[str]:
    return [path for method, path, _ in ROUTES if method == "POST"]


@pytest.mark.parametrize("path", changes())
@pytest.mark.parametrize("token", ["", "wrong", "\u00e9"])
def test_every_change_needs_the_token_of_the_session(
    browser: Browser, path: str, token: str
) -> None:
    filled = re.sub(r"\{\w+\}", "auth", path)
    assert "earlier start" in browser.post(filled, code=403, csrf=token)


@pytest.mark.parametrize("path", changes())
def test_no_change_is_made_by_following_a_link(browser: Browser, path: str) -> None:
    answer = browser.client.get(re.sub(r"\{\w+\}", "auth", path))
    assert answer.status_code in (200, 404, 405)  # a form or a confirmation, or nothing at all
    assert "Nothing was learned" not in answer.text


def test_the_token_of_another_session_does_not_do(browser: Browser) -> None:
    other = anonymous(browser).enter()
    first, second = browser.site._sessions.values()
    assert first.csrf != second.csrf
    given = {"csrf": second.csrf, "text": "x"}
    answer = browser.client.post(
        "/features/auth/learnings/add", data=given, headers={"origin": ORIGIN}
    )
    assert answer.status_code == 403
    assert other.get("/")


def test_only_forms_of_limited_size_are_read(browser: Browser) -> None:
    headers = {"origin": ORIGIN, "content-type": "application/json"}
    assert browser.client.post("/undo", content=b"{}", headers=headers).status_code == 400
    long = "x" * (LARGEST_FORM_BYTES + 1)
    assert "larger than" in browser.post("/undo", code=400, key=long)


@pytest.mark.parametrize("back", ["//evil.example", "/\\evil.example", "https://evil.example", "x"])
def test_a_form_leads_back_to_this_page_alone(browser: Browser, back: str) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        [hit] = ralph.recent(1, kinds=["note"])
    answer = browser.client.post(
        "/forget",
        data={"csrf": browser.token(), "id": hit.id, "back": back},
        headers={"origin": ORIGIN},
    )
    assert answer.headers["location"] == f"{browser.site.base}/timeline"


# -- what an answer says of itself


@pytest.mark.parametrize("path", [*VIEWS, "/badge", "/static/page.js", "/static/style.css", "/no"])
def test_every_answer_has_the_headers(browser: Browser, path: str) -> None:
    answer = browser.client.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_the_policy_allows_no_inline_script_or_style() -> None:
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("path", VIEWS)
def test_no_view_has_inline_script_style_or_anything_from_elsewhere(
    browser: Browser, path: str
) -> None:
    text = browser.get(path)
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<[^>]*\s(?:style|on\w+)\s*=", text) == []
    assert re.findall(r"(?:src|href|action)=\"(?:https?:)?//", text) == []


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/x"])
def test_static_files_are_those_of_the_package(browser: Browser, path: str) -> None:
    assert browser.client.get(path).status_code in (403, 404)


def test_a_static_file_that_is_not_there_is_a_404_without_a_cookie_too(browser: Browser) -> None:
    browser.client.cookies.clear()
    assert browser.get("/static/style.css")
    assert browser.get("/static/nothing.css", code=404) == "There is no such file"


# -- hostile text


@pytest.fixture
def hostile(root: Path) -> str:
    """The id of an iteration whose every text is hostile, beside a note and a conversation."""
    with open_ralph(root) as ralph:
        saved = ralph.feature("auth").remember(
            {
                "task_title": HOSTILE,
                "summary": f"{HOSTILE}\n{'long ' * 380}",
                "outcome": "failure",
                "errors": [{"message": HOSTILE, "file_path": "a<b>.py"}] * 2,
                "decisions": [{"description": HOSTILE, "rationale": HOSTILE}],
                "files_touched": [{"path": "<svg onload=alert(1)>.py", "action": "created"}],
            }
        )
        ralph.remember(HOSTILE)
        talk = ralph.conversations.start(title=HOSTILE)
        user, assistant = f"{HOSTILE} {'y' * 100_000}", f"{'z' * 100_000}{HOSTILE}"
        ralph.conversations.exchange(talk, user=user, assistant=assistant)
    return saved.id


def test_hostile_text_is_shown_as_text(browser: Browser, hostile: str) -> None:
    paths = [*VIEWS, f"/record/{hostile}", f"/forget?id={hostile}", "/search?q=alert+onerror"]
    with open_ralph(browser.site.project.root) as ralph:
        paths += [f"/record/{hit.id}" for hit in ralph.recent(6)]
    for path in paths:
        text = browser.get(path)
        # What a browser would read as tags: none but the templates' own.
        assert not re.findall(r"<(?:img|iframe|object|embed)|<script>|<svg/|<svg onload", text)
        assert not re.search(
            "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]", text
        )
        assert "{{7*7}}" in text or "7*7" not in text
        assert len(text) < 60_000
    assert "&lt;script&gt;alert(1)" in browser.get(f"/record/{hostile}")


def test_hostile_words_in_an_address_are_shown_as_text(browser: Browser) -> None:
    answer = browser.client.get("/search", params={"q": HOSTILE, "kind": HOSTILE})
    assert "<script>alert" not in answer.text
    answer = browser.client.get("/timeline", params={"text": HOSTILE, "feature": "a/../b"})
    assert answer.status_code in (200, 400)
    assert "<script>alert" not in answer.text
    assert "<script>" not in browser.get("/features/%3Cscript%3Ealert(1)%3C%2Fscript%3E", code=404)


def test_a_folder_that_is_no_project_has_a_page_too(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with served_page(tmp_path / "plain") as opened:
        for path in ("/", "/plan", "/timeline", "/search?q=anything"):
            opened.get(path)
    assert list((tmp_path / "plain").iterdir()) == []


@pytest.mark.slow
def test_the_checks_run_no_module_of_the_projects_folder(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry in PYTHONPATH stands for the folder that Python starts in."""
    root = browser.site.project.root
    package = root / "ralph"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    check = HealthCheck(browser.site)
    check._run()
    assert not (root / "ran").exists()
    assert (check.error, check.checks != []) == ("", True)
