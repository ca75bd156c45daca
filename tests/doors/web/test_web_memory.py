"""The page: conversations, notes, knowledge, documents, workers, settings and health."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from browsing import Browser, served_page

from ralph.chat.workers import Retries
from ralph.config import KEYS, home_folder
from ralph.doors.web.setting_groups import GROUPS
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph

HOSTILE = "<script>alert(1)</script> \u202egnp\u202c \x1b[31mred"
VIEWS = [
    "/conversations",
    "/notes",
    "/inbox",
    "/knowledge",
    "/documents",
    "/workers",
    "/settings",
    "/health",
]


def conversation(browser: Browser) -> str:
    """The path of the one conversation."""
    [path] = re.findall(r'href="(/conversations/[0-9a-f]{8,})"', browser.get("/conversations"))
    return str(path)


def project_file(browser: Browser) -> Path:
    return browser.site.project.settings_file


# -- conversations


def test_a_conversation_is_listed_and_read(browser: Browser) -> None:
    assert "Debug timeouts 1 exchange" in browser.text("/conversations")
    text = browser.text(conversation(browser))
    assert "Why does the pool time out?" in text
    assert "The pool is too small." in text


def test_conversations_are_found_by_title_and_tag(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        other = ralph.conversations.start(title="Release notes")
        ralph.conversations.tag(other, add=["release"])
    assert "Debug" not in browser.text("/conversations?text=RELEASE")
    assert "Debug" not in browser.text("/conversations?tag=release")
    assert "No conversations match" in browser.text("/conversations?tag=other")


def test_tags_are_added_and_removed(browser: Browser) -> None:
    path = conversation(browser)
    assert "Tagged: pool, slow." in browser.post(f"{path}/tag", add="Pool, slow".lower())
    assert re.findall(r'class="tag">(\w+)<', browser.get(path)) == ["pool", "slow"]
    browser.post(f"{path}/tag", remove="pool")
    assert re.findall(r'class="tag">(\w+)<', browser.get(path)) == ["slow"]
    assert "a tag needs a word" in browser.post(f"{path}/tag", code=400, add=" ").lower()


def test_a_conversation_is_renamed_and_that_is_undone(browser: Browser) -> None:
    path = conversation(browser)
    text = browser.post(f"{path}/title", title="The pool is too small")
    assert "<h1>The pool is too small</h1>" in text
    [key] = re.findall(r'name="key" value="([^"]+)"', text)
    browser.post("/undo", key=key, back=path)
    assert "<h1>Debug timeouts</h1>" in browser.get(path)


def test_an_exchange_is_rated_and_the_rating_removed(browser: Browser) -> None:
    path = conversation(browser)
    [exchange] = re.findall(r'name="exchange" value="(\w+)"', browser.get(path))[:1]

    def rating() -> int | None:
        with open_ralph(browser.site.project.root) as ralph:
            return ralph.conversations.stream.history.ratings.get(exchange)

    browser.post(f"{path}/rate", exchange=exchange, value="up")
    assert rating() == 1
    assert 'value="none" aria-pressed="true"' in browser.get(path)
    browser.post(f"{path}/rate", exchange=exchange, value="down")
    assert rating() == -1
    browser.post(f"{path}/rate", exchange=exchange, value="none")
    assert rating() == 0
    browser.post(f"{path}/rate", code=400, exchange=exchange, value="sideways")


def test_conversations_are_exported_as_a_file_that_import_reads(browser: Browser) -> None:
    name = conversation(browser).rpartition("/")[2]
    for path in ("/conversations/export", f"/conversations/export?id={name}"):
        answer = browser.client.get(path)
        assert answer.headers["content-disposition"].startswith("attachment; filename=")
        assert answer.headers["content-type"] == "application/json"
        assert "The pool is too small." in json.dumps(answer.json())
    browser.get("/conversations/export?id=ffffffff", code=404)


def test_making_an_exchange_private_is_forgetting_it(browser: Browser) -> None:
    path = conversation(browser)
    [link] = re.findall(r'href="(/forget[^"]+reason=private[^"]+)"', browser.get(path))
    asked = browser.get(html.unescape(link))
    assert 'name="reason" maxlength="300" autocomplete="off" value="private"' in asked
    [exchange] = re.findall(r'name="id" value="(\w+)"', asked)
    browser.post("/forget", id=exchange, reason="private")
    browser.get(path, code=404)


# -- notes


def test_notes_are_written_for_the_project_a_feature_and_oneself(browser: Browser) -> None:
    browser.post("/notes", text="Deploys are on Mondays.", feature="auth")
    browser.post("/notes", text="My key is in the safe.", private="1")
    text = browser.text("/notes")
    assert "Deploys are on Mondays." in text
    assert "only for you" in text
    assert "Deploys" not in browser.text("/notes?text=safe")
    assert "safe" not in browser.text("/notes?feature=auth").partition("Clear")[2]
    again = {"text": "My key is in the safe.", "private": "1"}
    assert "A note says this already." in browser.post("/notes", again)
    journals = browser.site.project.journals
    assert not [one for one in journals.iterdir() if "My key is in" in one.read_text()]
    assert "the note is empty" in browser.post("/notes", code=400, text=" ").lower()


def only_note(browser: Browser) -> str:
    [name] = re.findall(r'"/notes/(\w+)/edit"', browser.get("/notes"))
    return str(name)


def test_a_note_is_edited_and_the_old_words_are_gone(browser: Browser) -> None:
    name = only_note(browser)
    assert "resets every night." in browser.get(f"/notes/{name}/edit")
    text = browser.post(f"/notes/{name}/edit", text="The staging database is permanent.")
    assert "The staging database is permanent." in text
    assert "resets every night" not in browser.text("/notes")
    browser.get(f"/record/{name}", code=404)
    browser.get(f"/notes/{name}/edit", code=404)
    [key] = re.findall(r'name="key" value="([^"]+)"', text)
    browser.post("/undo", key=key, back="/notes")
    assert "resets every night" in browser.text("/notes")
    assert "permanent" not in browser.text("/notes")


def test_a_note_is_removed_and_brought_back(browser: Browser) -> None:
    text = browser.post(f"/notes/{only_note(browser)}/remove")
    assert "No notes yet." in html.unescape(text)
    [key] = re.findall(r'name="key" value="([^"]+)"', text)
    assert "The note is back." in browser.post("/undo", key=key, back="/notes")
    only_note(browser)


# -- knowledge


@pytest.fixture
def shared(browser: Browser) -> Browser:
    """A browser of a project with one entry that waits."""
    with open_ralph(browser.site.project.root) as ralph:
        ralph.knowledge.capture_failure_solution(
            failure_description="npm ci hangs", solution_steps="Set a timeout."
        )
    return browser


def test_what_waits_is_published_after_approval_and_judged(shared: Browser) -> None:
    waiting = shared.text("/knowledge")
    assert "npm ci hangs Set a timeout." in waiting
    assert "No patterns are published yet." in waiting
    text = shared.post("/knowledge/publish", kind="phase_complete")
    assert "Published 1 entry: 1 new pattern" in text
    after = shared.text("/knowledge")
    assert "Nothing is waiting." in after
    assert "reported 1 time helped 0 times failed 0 times" in after
    assert "phase complete 1 entry" in after
    [pattern] = re.findall(r'name="pattern" value="(\w+)"', shared.get("/knowledge"))
    shared.post("/knowledge/outcome", pattern=pattern, verdict="worked")
    with open_ralph(shared.site.project.root) as ralph:
        [one] = ralph.knowledge.patterns()
        assert (one.worked, one.failed) == (1, 0)
    shared.post("/knowledge/outcome", code=400, pattern=pattern, verdict="maybe")


def test_an_entry_is_discarded_before_it_is_published(shared: Browser) -> None:
    [link] = re.findall(r'href="(/forget\?id=[^"]+)"', shared.get("/knowledge"))
    [name] = re.findall(r'name="id" value="(\w+)"', shared.get(html.unescape(link)))
    shared.post("/forget", id=name, back="/knowledge")
    assert "Nothing is waiting." in shared.text("/knowledge")


def test_a_project_that_gives_nothing_says_so(shared: Browser) -> None:
    shared.post("/settings", key="knowledge_give", value="false", where="project", action="set")
    assert "This project publishes nothing" in shared.text("/knowledge")
    assert "Nothing was published." in shared.post("/knowledge/publish")


# -- documents


def test_documents_are_added_searched_refreshed_and_removed(browser: Browser, root: Path) -> None:
    (root / "docs").mkdir()
    (root / "docs" / "guide.md").write_text("# Guide\n\nThe harbor crane needs oil.\n")
    assert "Read 1 document: 1 new section." in browser.post("/documents/add", {"path": "docs"})
    assert "docs/guide.md Guide 1" in browser.text("/documents")
    assert "harbor crane" in browser.text("/search?q=harbor+crane+oil&kind=document")
    (root / "docs" / "guide.md").write_text("# Guide\n\nThe harbor crane is sold.\n")
    assert "1 new section" in browser.post("/documents/refresh")
    text = browser.post("/documents/remove", {"path": "docs/guide.md"})
    assert "Removed from memory: docs/guide.md." in text
    [key] = re.findall(r'name="key" value="([^"]+)"', text)
    assert "Added 1 document again" in browser.post("/undo", key=key, back="/documents")
    browser.post("/documents/add", {"path": "nowhere"}, code=400)
    browser.post("/documents/add", {"path": ""}, code=400)
    browser.post("/documents/remove", {"path": "other.md"}, code=404)


# -- workers


def test_workers_show_their_failures_which_can_be_tried_again(browser: Browser) -> None:
    assert "Nothing failed." in browser.text("/workers")
    file = home_folder() / "cache" / "workers" / f"{browser.site.project.id}.json"
    retries = Retries(file, clock=lambda: 0.0)
    retries.failed("exchange", "abcd", "exchange abcd", f"no model {HOSTILE}", attempts=9)
    text = browser.text("/workers")
    assert "Summarize exchanges not running now Writes a summary of each exchange." in text
    assert "0 of 1 done" in text
    assert "given up exchange exchange abcd tried 9 times no model <script>" in text
    assert "try 1 item again" in browser.post("/workers/retry")
    assert "Nothing failed." in browser.text("/workers")
    assert browser.text("/conversations")  # the page's memory is still open


# -- settings


def test_every_setting_has_its_help_and_its_origin(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_SEARCH_LIMIT", "7")
    text = browser.text("/settings")
    assert "Results of a search 7 How many results a search shows." in text
    assert "Name search_limit Set by RALPH_SEARCH_LIMIT Default 10" in text
    assert "What finds text by meaning static What turns text into vectors" in text
    assert "Search how much is shown" in text
    assert "by meaning" not in browser.text("/settings?text=knowledge_give")


def test_every_setting_is_in_one_group_with_a_plain_name() -> None:
    named = [key for group in GROUPS for key in group.names]
    assert sorted(named) == sorted(KEYS)


def test_a_setting_is_changed_for_the_project_or_for_all_and_unset(browser: Browser) -> None:
    browser.post("/settings", key="search_limit", value="5", where="project", action="set")
    assert json.loads(project_file(browser).read_text())["search_limit"] == 5
    assert browser.site.memory.config.settings.search_limit == 5
    text = browser.post("/settings", key="search_limit", value="8", where="user", action="set")
    assert "takes precedence" in text
    browser.post("/settings", key="search_limit", where="project", action="unset")
    assert browser.site.memory.config.settings.search_limit == 8
    browser.post("/settings", code=400, key="search_limit", value="x", where="user", action="set")
    browser.post("/settings", code=400, key="no_such", value="1", where="user", action="set")
    given = {"key": "chat_api_key", "value": "x", "where": "project", "action": "set"}
    browser.post("/settings", given, code=400)


def test_a_secret_setting_is_never_shown(browser: Browser) -> None:
    secret = "a-very-secret-key-1234"
    browser.post("/settings", key="chat_api_key", value=secret, where="user", action="set")
    assert secret not in browser.get("/settings")
    assert "Key set Its key. Value" in browser.text("/settings?text=chat_api_key")


# -- health


def test_health_shows_what_doctor_found(browser: Browser) -> None:
    assert "Checking." in browser.text("/health")
    from ralph.doors.web import views_system

    thread = views_system._health[browser.site]._thread
    assert thread is not None
    thread.join(50)
    text = browser.text("/health")
    assert re.search(r"ok python 3\.\d+", text)
    assert re.search(r"\d+ fine\. Checked", text)
    assert "index" in browser.get("/health/part")
    assert "Checking." in browser.post("/health")
    thread = views_system._health[browser.site]._thread
    assert thread is not None
    thread.join(50)


# -- all of them


def test_an_empty_project_says_what_to_do_next(tmp_path: Path) -> None:
    root = tmp_path / "empty"
    root.mkdir()
    Project(root).init()
    with served_page(root) as opened:
        assert "ralph hooks install" in opened.text("/conversations")
        assert "ralph remember" in opened.text("/notes")
        assert "Nothing is waiting." in opened.text("/knowledge")
        assert "Add a folder" in opened.text("/documents")


def test_a_folder_that_is_no_project_has_these_views_too(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with served_page(tmp_path / "plain") as opened:
        for path in VIEWS[:-1]:
            opened.get(path)
        opened.post("/settings", key="search_limit", value="5", where="project", action="set")
    assert json.loads((home_folder() / "config.json").read_text()) == {"search_limit": 5}
    assert list((tmp_path / "plain").iterdir()) == []


def test_hostile_text_is_shown_as_text(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        talk = ralph.conversations.start(title=HOSTILE)
        ralph.conversations.exchange(talk, user=HOSTILE, assistant=HOSTILE * 10_000)
        ralph.conversations.tag(talk, add=[HOSTILE])
        ralph.remember(HOSTILE)
        ralph.knowledge.capture_failure_solution(
            failure_description=HOSTILE, solution_steps=HOSTILE
        )
        ralph.knowledge.checkpoint()
    for path in [*VIEWS[:-1], f"/conversations/{talk}", f"/conversations/{talk}?all=1"]:
        text = browser.get(path)
        assert "<script>alert" not in text
        assert not re.search("[\x00-\x08\x1b\u202a-\u202e]", text)
        assert re.findall(r"<[^>]*\s(?:style|on\w+)\s*=", text) == []
    assert len(browser.get(f"/conversations/{talk}")) < 60_000
