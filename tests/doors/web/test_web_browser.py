"""The page in a real Chromium: every view opened, every action clicked, nothing on the console.

RALPH_SCREENSHOTS names a folder that gets pictures of six views, for wide and narrow screens, light
and dark.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from browsing import serving
from chromium import DESKTOP, PHONE, Chromium, chromium
from demo_project import demo_project

from ralph.chat.workers import Retries
from ralph.memory.ralph import open_ralph
from ralph.records.iteration import Iteration

SCREENSHOTS = os.environ.get("RALPH_SCREENSHOTS")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTILE = (
    "<script>window.owned=1</script><img src=x onerror='window.owned=2'>"
    "<svg/onload=window.owned=3> \"' onmouseover=alert(3) {{7*7}} </pre></textarea></title>"
    " \u202egnp.exe\u202c \u2066isolate\u2069 \x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x07"
    " javascript:alert(4) \u200bzero \x00nul"
)
UNSEEN = re.compile("[\x00-\x08\x1b\u200b\u202a-\u202e\u2066-\u2069]")


class DemoPage(NamedTuple):
    """The demo's project, served, and a browser that was let in."""

    root: Path
    home: Path
    window: Chromium


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoPage]:
    """One project and one browser for all tests of this file."""
    with chromium(tmp_path_factory.mktemp("chromium")) as window:
        root, home = demo_project(tmp_path_factory.mktemp("demo"))
        with serving(root, RALPH_HOME=str(home)) as page:
            window.look()
            window.enter(page.port, page.path)
            yield DemoPage(root, home, window)


@pytest.fixture
def window(demo: DemoPage) -> Iterator[Chromium]:
    """The browser on the first view; nothing may be on its console when the test ends."""
    demo.window.look()
    demo.window.open("/")
    demo.window.console()
    yield demo.window
    assert demo.window.console() == []
    assert demo.window.elsewhere() == []


def record_of(demo: DemoPage, kind: str) -> str:
    """The address of the newest record of a kind."""
    with open_ralph(demo.root, home=demo.home) as ralph:
        [hit] = ralph.recent(1, kinds=[kind])
    return f"/record/{hit.id}"


def views(demo: DemoPage) -> dict[str, str]:
    """Every view by its name."""
    found = {
        "today": "/",
        "plan": "/plan",
        "feature": "/features/comments",
        "edit": "/features/comments/edit",
        "timeline": "/timeline",
        "search": "/search?q=why+does+the+feed+break",
        "nothing found": "/search?q=zebra+crossing",
        "problem": "/record/ffffffff",
        "conversations": "/conversations",
        "notes": "/notes",
        "inbox": "/inbox",
        "knowledge": "/knowledge",
        "documents": "/documents",
        "workers": "/workers",
        "settings": "/settings",
        "health": "/health",
    }
    found |= {kind: record_of(demo, kind) for kind in ("iteration", "note", "learning")}
    with open_ralph(demo.root, home=demo.home) as ralph:
        talk = ralph.conversations.list()[-1].conversation.id
        [pattern] = ralph.knowledge.patterns()[:1]
    found |= {"conversation": f"/conversations/{talk}", "pattern": f"/record/{pattern.id}"}
    found["edit note"] = record_of(demo, "note").replace("/record/", "/notes/") + "/edit"
    forget = record_of(demo, "iteration").replace("/record/", "/forget?id=")
    return found | {"forget": forget}


SHOWN = ("today", "feature", "timeline", "search", "conversation", "settings")


# -- every view


def test_every_view_opens_and_has_no_serious_violation_light_and_dark(
    demo: DemoPage, window: Chromium
) -> None:
    found = []
    for dark in (False, True):
        window.look(dark=dark)
        for name, path in views(demo).items():
            window.open(path)
            assert window.count("main h1") == 1, name
            # Only colors differ in the dark.
            found += window.violations(*(["color-contrast"] if dark else []))
            # The browser itself reports an answer of 404.
            told = [one for one in window.console() if name != "problem" or "404" not in one]
            assert told == [], name
    assert found == []


def test_no_view_is_wider_than_a_phone(demo: DemoPage, window: Chromium) -> None:
    window.look(PHONE)
    for name, path in views(demo).items():
        window.open(path)
        code = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        assert window.script(code) == 0, name
    assert "404" in "".join(window.console())


def test_screenshots(demo: DemoPage, window: Chromium) -> None:
    if not SCREENSHOTS:
        pytest.skip("RALPH_SCREENSHOTS names no folder for them")
    paths, folder = views(demo), Path(SCREENSHOTS)
    for screen, size in (("desktop", DESKTOP), ("phone", PHONE)):
        for dark in (False, True):
            window.look(size, dark=dark)
            for name in SHOWN:
                window.open(paths[name])
                file = folder / f"{name}-{screen}-{'dark' if dark else 'light'}.png"
                window.screenshot(file)
                assert file.stat().st_size > 5_000
    # Those of the README: what a first look shows, without names of folders of this machine.
    for name, dark in (("today", False), ("search", True)):
        window.look((1200, 640), dark=dark)
        window.open(paths[name])
        window.script(
            "document.querySelector('.foot').hidden = true; document.activeElement.blur();"
            "for (const one of document.querySelectorAll('.fix'))"
            f" one.textContent = one.textContent.replaceAll({json.dumps(sys.executable)}, 'python')"
        )
        window.screenshot(folder / f"page-{name}.png", whole=False)
        assert (folder / f"page-{name}.png").stat().st_size < 250_000


# -- what a person does


def test_the_badge_tells_its_details_on_hover_and_by_keyboard(window: Chromium) -> None:
    shown = "return getComputedStyle(document.querySelector('.tip')).display !== 'none'"
    assert not window.script(shown)
    window.hover(".badge > button")
    assert window.script(shown)
    assert "Embedder" in window.text(".tip")
    window.hover("h1")
    assert not window.script(shown)
    window.script("document.querySelector('.badge > button').focus()")
    assert window.script(shown)


def test_search_answers_while_typing_and_opens_the_record(window: Chromium) -> None:
    window.press("/")
    window.press("ampersand in a title\ue007")
    window.wait(
        "return location.pathname.endsWith('/search') && document.readyState === 'complete'"
    )
    window.type("[data-search] input[name=q]", "connection pool time out")
    window.wait("return document.querySelector('#results').innerText.includes('under load')")
    assert "connection+pool" in window.path
    window.click("[data-search] summary")
    window.click("[data-search] input[value=note]")
    window.wait("return !document.querySelector('#results').innerText.includes('under load')")
    window.click("[data-search] input[value=note]")
    window.wait("return document.querySelector('#results').innerText.includes('under load')")
    window.follow("#results [data-row]")
    assert window.path.startswith("/record/")
    assert "The pool has 5 connections" in window.text()


def test_the_keyboard_moves_goes_and_helps(window: Chromium) -> None:
    window.press("jj")
    rows = "return [...document.querySelectorAll('[data-row]')].indexOf(document.activeElement)"
    assert window.script(rows) == 1
    window.press("k")
    assert window.script(rows) == 0
    window.press("?")
    assert window.script("return document.getElementById('help').open")
    window.press("\ue00c")
    assert not window.script("return document.getElementById('help').open")
    window.script("window.old = true")
    window.press("gt")
    window.wait("return !window.old && location.pathname.endsWith('/timeline')")


def test_the_timeline_is_filtered_and_a_row_opens(window: Chromium) -> None:
    window.follow(".nav a[href$='/timeline']")
    before = window.count("[data-row]")
    window.script("document.querySelector('select[name=outcome]').value = 'timeout'")
    window.follow(".filters button")
    assert 0 < window.count("[data-row]") < before
    window.follow("[data-row]")
    assert "did not finish within 300 s" in window.text()


def test_times_are_shown_in_the_zone_of_the_viewer(window: Chromium) -> None:
    code = "return [...document.querySelectorAll('main time')].every((one) => one.title)"
    assert window.script(code)


def test_a_feature_is_edited(window: Chromium) -> None:
    window.open("/features/feed")
    window.follow("a[href$='/edit']")
    window.type("textarea[name=boundaries]", "No JSON feed.")
    window.follow(".form button")
    assert window.path == "/features/feed"
    assert "Saved: boundaries." in window.text()
    assert "No JSON feed." in window.text(".prose")


def test_learnings_are_added_reviewed_removed_and_brought_back(window: Chromium) -> None:
    window.open("/features/feed")
    window.type("form[action$='/learnings/add'] input[name=text]", "Feeds are cached for an hour.")
    window.follow("form[action$='/learnings/add'] button")
    assert "Feeds are cached for an hour." in window.text("#learnings")
    reviewed = window.count("#learnings .tag.success")
    window.follow("form[action$='/learnings/review'] button")
    assert window.count("#learnings .tag.success") == reviewed + 1
    count = window.count("#learnings .learnings > li")
    window.follow("form[action$='/learnings/remove'] button")
    assert window.count("#learnings .learnings > li") == count - 1
    window.follow(".flash form button")
    assert window.count("#learnings .learnings > li") == count


def test_contradictions_stand_side_by_side_and_one_is_removed(window: Chromium) -> None:
    window.open("/features/comments")
    assert window.count(".versus") == 1
    window.follow(".versus form button")
    assert window.count(".versus") == 0


def test_a_gate_is_rejected_and_approved(window: Chromium) -> None:
    window.open("/features/feed")
    window.click("#tasks summary")
    window.type("#tasks textarea[name=text]", "Tags need a limit.")
    window.follow("#tasks button[value=reject]")
    assert "Rejected." in window.text(".flash")
    assert "Tags need a limit." in window.text("#tasks")
    window.click("#tasks summary")
    window.type("#tasks textarea[name=text]", "At most ten tags.")
    window.follow("#tasks button[value=approve]")
    assert "Approved." in window.text(".flash")


def test_a_record_is_forgotten_after_a_confirmation(demo: DemoPage, window: Chromium) -> None:
    with open_ralph(demo.root, home=demo.home) as ralph:
        note, _ = ralph.remember("This note will be forgotten.")
    window.open(f"/record/{note.id}")
    window.follow("a.danger")
    assert "Forget 1 record for good?" in window.text()
    window.follow(".confirm button.danger")
    assert "Forgot 1 record" in window.text(".flash")
    window.open(f"/record/{note.id}")
    assert "was forgotten" in window.text()
    assert "404" in "".join(window.console())


def test_a_conversation_is_tagged_renamed_rated_and_exported(window: Chromium) -> None:
    window.follow(".nav a[href$='/timeline']")
    window.follow(".subnav a[href$='/conversations']")
    window.follow("[data-row]")
    path = window.path
    window.click(".manage summary")
    window.type("input[name=add]", "urgent")
    window.follow("form[action$='/tag'] button:not(.link)")
    assert "urgent" in window.text(".tags")
    window.follow(".tags li:last-child button")
    assert "urgent" not in window.text(".tags")
    window.click(".manage summary")
    window.type("input[name=title]", "The deploy hung")
    window.follow("form[action$='/title'] button")
    assert window.text("h1") == "The deploy hung"
    window.follow("button[value=up]")
    assert window.count("button[aria-pressed=true]") == 1
    window.follow("button[aria-pressed=true]")
    assert window.count("button[aria-pressed=true]") == 0
    window.follow("button[value=down]")
    assert window.count("button[aria-pressed=true]") == 1
    window.open(path)
    export = window.script("return document.querySelector('a[href*=export]').href")
    read = "return fetch(arguments[0]).then((answer) => answer.json())"
    assert "migration" in str(window.script(read, export))
    window.follow("a[href*='reason=private']")
    assert window.script("return document.querySelector('[name=reason]').value") == "private"
    window.follow(".confirm .button")


def test_a_note_is_written_edited_removed_and_brought_back(window: Chromium) -> None:
    window.follow(".subnav a[href$='/notes']")
    window.type("textarea[name=text]", "The printer is on the second floor.")
    window.click("input[name=private]")
    window.follow("form[action$='/notes'][method=post] button")
    assert "second floor" in window.text(".learnings li")
    assert "only for you" in window.text(".learnings li")
    window.follow(".learnings a[href$='/edit']")
    window.type("textarea[name=text]", "The printer is gone.")
    window.follow(".form button")
    assert "The printer is gone." in window.text(".learnings li")
    window.follow(".learnings form[action$='/remove'] button")
    assert "printer" not in window.text(".learnings")
    window.follow(".flash button")
    assert "The printer is gone." in window.text(".learnings")


def test_knowledge_is_published_and_judged(window: Chromium) -> None:
    window.follow(".nav a[href$='/plan']")
    window.follow(".subnav a[href$='/knowledge']")
    assert window.count("#staged .learnings li") >= 1
    window.follow("#staged a.danger")
    window.follow(".confirm .button")
    window.open("/knowledge")
    window.follow("#staged form[action$='/publish'] button")
    assert "Published" in window.text(".flash")
    assert window.count("#staged .learnings li") == 0
    window.follow("#patterns button[value=worked]")
    assert "it helped" in window.text(".flash")
    window.follow("#patterns button[value=failed]")
    assert "did not help" in window.text(".flash")


def test_a_document_is_added_checked_and_removed(demo: DemoPage, window: Chromium) -> None:
    (demo.root / "style.md").write_text("# Style\n\nUse tabs.\n", encoding="utf-8")
    window.follow(".nav a[href$='/search']")
    window.follow(".subnav a[href$='/documents']")
    window.type("input[name=path]", "style.md")
    window.follow("form[action$='/add'] button")
    assert "style.md" in window.text("table")
    window.follow("form[action$='/refresh'] button")
    assert "Read 2 documents" in window.text(".flash")
    window.follow("tbody tr:last-child form button")
    assert "style.md" not in window.text("table")
    window.follow(".flash button")
    assert "style.md" in window.text("table")


def test_failures_of_workers_are_tried_again(demo: DemoPage, window: Chromium) -> None:
    with open_ralph(demo.root, home=demo.home) as ralph:
        file = demo.home / "cache" / "workers" / f"{ralph.project.id}.json"
    Retries(file, clock=lambda: 0.0).failed("exchange", "a", "a", "no model", attempts=9)
    window.follow(".nav a[href$='/settings']")
    window.follow(".subnav a[href$='/workers']")
    assert "no model" in window.text("#failures")
    window.follow("#failures button")
    assert "Nothing failed." in window.text("#failures")


def test_a_setting_is_changed_and_set_back(window: Chromium) -> None:
    window.follow(".nav a[href$='/settings']")
    window.click("#search_limit summary")
    window.type("#search_limit input[name=value]", "7")
    window.follow("#search_limit button[value=set]")
    assert "7" in window.text("#search_limit .value")
    window.click("#search_limit summary")
    window.follow("#search_limit button[value=unset]")
    assert "10" in window.text("#search_limit .value")


def test_health_is_there_without_a_reload(window: Chromium) -> None:
    window.follow(".nav a[href$='/settings']")
    window.follow(".subnav a[href$='/health']")
    window.wait("return document.querySelectorAll('.checks tbody tr').length > 10")
    window.follow("form[action$='/health'] button")
    assert "Checking" in window.text(".flash")


# -- hostile text


def test_hostile_text_is_shown_harmlessly(demo: DemoPage, window: Chromium) -> None:
    with open_ralph(demo.root, home=demo.home) as ralph:
        work = {
            "task_title": HOSTILE,
            "summary": HOSTILE,
            "outcome": "failure",
            "errors": [{"message": HOSTILE, "file_path": "a<b>.py", "resolution": HOSTILE}],
            "decisions": [{"description": HOSTILE, "rationale": HOSTILE}],
            "files_touched": [{"path": "<svg onload=alert(1)>.py", "action": "created"}],
        }
        saved = ralph.feature("feed").remember(work)
        note, _ = ralph.remember(HOSTILE)
        ralph.knowledge.capture_failure_solution(
            failure_description=HOSTILE, solution_steps=HOSTILE, error_message=HOSTILE
        )
        talk = ralph.conversations.start(title=HOSTILE)
        said = ralph.conversations.exchange(
            talk, user=f"{HOSTILE} {'y' * 100_000}", assistant=f"{'z' * 100_000}{HOSTILE}"
        )
    assert isinstance(saved.record, Iteration)
    paths = [f"/record/{one}" for one in (saved.id, note.id, talk, said.id)]
    paths += [f"/record/{said.id}?all=1", f"/forget?id={saved.id}", "/timeline", "/", "/plan"]
    paths += ["/features/feed", "/search?q=onerror+onmouseover+gnp", "/notes", "/conversations"]
    paths += [f"/conversations/{talk}", f"/conversations/{talk}?all=1", "/knowledge"]
    for size in (DESKTOP, PHONE):
        window.look(size)
        for path in paths:
            window.open(path)
            assert window.script("return window.owned === undefined"), path
            # The page's own, and nothing that came out of memory.
            assert window.count("script") == 1, path
            assert window.count("img, iframe, object, embed, svg[onload], [onerror]") == 0, path
            assert not UNSEEN.search(window.text("body")), path
            code = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
            assert window.script(code) == 0, path
    window.open(paths[0])
    assert "<script>window.owned=1</script>" in window.text()
