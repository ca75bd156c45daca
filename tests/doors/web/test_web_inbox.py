"""The page's inbox: rules from corrections, and what the person chooses for each."""

from __future__ import annotations

import re

from browsing import Browser

from ralph.memory.inbox import inbox
from ralph.memory.ralph import open_ralph


def actions(browser: Browser) -> dict[str, str]:
    with open_ralph(browser.site.project.root) as ralph:
        return {check.text: check.action for check in inbox(ralph, every=True)}


def test_a_rule_is_held_asked_about_dismissed_and_taken_back(browser: Browser) -> None:
    rule = "never run `make <b>publish` here"
    browser.post("/notes", text=rule)

    text = browser.get("/inbox")

    assert "never run `make &lt;b&gt;publish` here" in text
    found = re.search(r'action="[^"]*/inbox/([0-9a-f]{12})/hold"', text)
    assert found
    for action, stored, word in (
        ("hold", "hold", "held"),
        ("ask", "ask", "asked about"),
        ("dismiss", "dismissed", "dismissed"),
        ("wait", "", "waits"),
    ):
        browser.post(f"/inbox/{found[1]}/{action}")
        assert actions(browser)[rule] == stored
        assert word in browser.get("/inbox?all=1")


def test_an_unknown_rule_or_action_is_refused(browser: Browser) -> None:
    assert "no rule" in browser.post("/inbox/0123456789ab/hold", code=404)
    assert "whether to hold, ask, replace or dismiss" in browser.post(
        "/inbox/0123456789ab/run", code=400
    )


def test_an_empty_inbox_says_what_comes_here(browser: Browser) -> None:
    assert "Nothing is in the inbox." in browser.get("/inbox")


def test_a_note_is_replaced_on_the_page(browser: Browser) -> None:
    browser.post("/notes", text="Prices are floats.")
    with open_ralph(browser.site.project.root) as ralph:
        [old] = [
            hit
            for hit in ralph.recent(20)
            if getattr(hit.record, "text", "") == "Prices are floats."
        ]
    form = browser.get(f"/notes?replaces={old.id}")
    assert "which is kept but no longer told as current" in browser.text(
        f"/notes?replaces={old.id}"
    )
    assert f'name="replaces" value="{old.id}"' in form

    text = browser.post("/notes", text="Prices are integer cents.", replaces=old.id)

    assert "no longer holds" in text
    assert "This no longer holds: it was replaced by" in browser.text(f"/record/{old.id}")


def test_two_rules_that_contradict_are_settled_on_the_page(browser: Browser) -> None:
    browser.post("/notes", text="Deploys go out on Fridays")
    browser.post("/notes", text="never deploy on Fridays")
    text = browser.get("/inbox")
    assert "Older: Deploys go out on Fridays" in browser.text("/inbox")
    found = re.search(r'action="[^"]*/inbox/([0-9a-f]{12})/replace"', text)
    assert found
    browser.post(f"/inbox/{found[1]}/replace")
    assert "no longer holds" in browser.get("/notes")
