"""The page for one project or for all, and conversations as a reader reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Browser, lived_in, served_page
from importing import turn, write

from ralph.doors.web import views_import
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph
from ralph.records.iteration import Decision

RULE = "Prices are always integer cents, never floats."
ANSWER = "## Done\n\nThe **exporter** writes UTF-8 with a BOM.\n\n" + "More words follow. " * 90


def other_project(folder: Path) -> Path:
    """Another project with one conversation: a decision, a long answer, a short request."""
    Project(folder).init()
    with open_ralph(folder) as ralph:
        talk = ralph.conversations.start(title="Export for accounting")
        asked = "Why does Excel show wrong letters in the exported file?"
        ralph.conversations.exchange(talk, user=asked, assistant=ANSWER, key="1")
        ralph.conversations.exchange(talk, user="go ahead", assistant="Committed.", key="2")
    return folder


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Browser]:
    """A browser on one project, beside which there is another."""
    root = lived_in(tmp_path / "project")
    (tmp_path / "billing").mkdir()
    other_project(tmp_path / "billing")
    with served_page(root) as opened:
        yield opened


def test_one_project_is_shown_until_all_are_chosen(two: Browser) -> None:
    for path in ("/", "/timeline", "/conversations", "/search?q=excel+letters+exported"):
        assert "Export for accounting" not in two.text(path), path

    two.post("/projects", projects="all", back="/timeline")

    for path in ("/", "/timeline", "/conversations"):
        text = two.text(path)
        assert "Export for accounting" in text, path
        assert "Debug timeouts" in text, path
    found = two.text("/search?q=excel+letters+exported")
    assert "Why does Excel show wrong letters" in found
    assert "billing" in found

    two.post("/projects", projects="this", back="/")
    assert "Export for accounting" not in two.text("/")


def test_the_switch_says_which_one_is_shown(two: Browser) -> None:
    pressed = r'value="(\w+)" aria-pressed="true"'
    assert re.findall(pressed, two.get("/")) == ["this"]
    assert re.findall(pressed, two.post("/projects", projects="all", back="/plan")) == ["all"]
    assert "choose this project or all" in two.post("/projects", code=400, projects="x").lower()


def test_the_timeline_of_all_projects_is_narrowed_to_one(two: Browser) -> None:
    two.post("/projects", projects="all")
    text = two.text("/timeline?project=billing")
    assert "Export for accounting" in text
    assert "Debug timeouts" not in text
    assert "Add the login form" not in text
    assert 'href="/timeline?project=billing"' in two.get("/")


def test_a_project_without_records_shows_the_others(tmp_path: Path) -> None:
    (tmp_path / "billing").mkdir()
    other_project(tmp_path / "billing")
    (tmp_path / "fresh").mkdir()
    Project(tmp_path / "fresh").init()
    with served_page(tmp_path / "fresh") as opened:
        assert "Export for accounting" in opened.text("/")
        opened.post("/projects", projects="this")
        text = opened.text("/")
        assert "Nothing is in memory here yet" in text
        assert "Show all projects" in text
        assert "Look in all projects" in opened.text("/timeline")


def test_without_other_projects_there_is_no_switch(browser: Browser) -> None:
    assert 'action="/projects"' not in browser.get("/")


# -- sessions that are on the machine already


def test_an_empty_page_imports_the_sessions_on_this_machine(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    shop = tmp_path / "shop"
    shop.mkdir()
    sessions = home.parent / ".claude" / "projects" / "shop"
    write(sessions / "one.jsonl", turn("one", 1, shop, question="How are refunds booked?"))
    write(sessions / "two.jsonl", turn("two", 1, shop, question="Who may see prices?"))
    with served_page(shop) as opened:
        assert "On this machine are 2 sessions of Claude Code." in opened.text("/")
        opened.post("/import")
        started = views_import._imports[opened.site]
        started.wait(50)
        assert "Imported 2 conversations of 1 project." in opened.get("/import/part")
        text = opened.text("/")
        assert "How are refunds booked?" in text
        assert "Import them" not in text


# -- reading


def test_a_long_answer_is_folded_below_its_result(two: Browser) -> None:
    two.post("/projects", projects="all")
    [path] = re.findall(r'href="(/conversations/[^"]+)"[^>]*>Export', two.get("/timeline"))
    text = two.get(path)
    asked = text.index("Why does Excel show wrong letters")
    folded = text.index('<details class="said">')
    assert asked < folded < text.index("<h3>Done</h3>")
    assert "<strong>exporter</strong>" in text
    assert '<div class="said prose"><p>Committed.</p>' in text


def test_a_request_to_go_on_is_quieter_than_work(two: Browser) -> None:
    two.post("/projects", projects="all")
    text = two.get("/timeline?project=billing")
    assert text.count('<span class="asked-line">') == 1
    quiet = text.partition('class="plain-turns"')[2].partition("</p>")[0]
    assert "go ahead" in quiet


def test_a_search_shows_the_sentence_that_matches(two: Browser) -> None:
    two.post("/projects", projects="all")
    text = two.get("/search?q=UTF-8+BOM+exporter")
    excerpt = text.partition('class="excerpt">')[2].partition("</span>")[0]
    assert "<mark>exporter</mark> writes <mark>UTF-8</mark> with a <mark>BOM</mark>" in excerpt


# -- today


def test_what_the_person_decided_is_on_the_first_view(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        talk = ralph.conversations.start(title="Rules")
        decided = (Decision(RULE, source="human"),)
        ralph.conversations.exchange(talk, user=RULE, assistant="Noted.", decisions=decided)
    text = browser.text("/")
    assert RULE in text.partition("You decided")[2].partition("Open ends")[0]


def test_a_rule_that_waits_is_answered_on_the_first_view(browser: Browser) -> None:
    browser.post("/notes", text="never run `make publish` here")
    text = browser.get("/")
    [path] = re.findall(r'action="(/inbox/\w+/dismiss)"', text)
    assert "Dismissed." in browser.post(path, back="/")
    assert "Waiting for you" not in browser.text("/")


def test_a_decision_is_written_down_on_the_first_view(browser: Browser) -> None:
    text = browser.post("/notes", text="Prices are integer cents.", back="/")
    assert "Saved." in text
    assert "Prices are integer cents." in text.partition("You decided")[2]


def test_a_folder_that_is_no_project_keeps_notes_for_the_person(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with served_page(tmp_path / "plain") as opened:
        assert "this folder is not a project" in opened.text("/notes")
        text = opened.post("/notes", text="The key is in the safe.")
        assert "only for you" in text
    assert list((tmp_path / "plain").iterdir()) == []
