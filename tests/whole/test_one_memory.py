"""To its users it is one memory: one search, one id, one forget, whatever kind a record is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN, Line
from hooking import Session
from serving import served

from ralph.memory.ralph import open_ralph

QUESTION = "How do we make the nightly export faster?"
ANSWER = "Batching the rows by 500 made the nightly export four times as fast."
NOTE = "The staging database is reset every night at three."
LEARNING = "Tests of the parser need the locale C.UTF-8."
DESCRIPTION = (
    "Everything about signing in: the login form, sessions in signed cookies, a second factor by"
    " mail, and locking an account after ten wrong passwords."
)


@pytest.fixture(autouse=True)
def by_words(words: None) -> None:
    """Meaning is not what is tested here."""


@pytest.fixture
def told(ralph: Line, project: Path, tmp_path: Path) -> dict[str, str]:
    """A project with a record of every kind, and their ids."""
    [login, cookie] = ralph.record("auth", LOGIN, COOKIE)
    ralph.well("feature", "add", "auth", "--description", DESCRIPTION)
    ralph.well("learning", "add", LEARNING, "--feature", "auth")
    note = ralph.well("remember", NOTE, "--json").json["id"]
    private = ralph.well("remember", "My own account is number 7741.", "--private", "--json").json
    session = Session(project, tmp_path)
    session.prompts(QUESTION)
    session.runs("make export", "exported 12,000 rows in 31 s")
    session.says(ANSWER)
    session.hook("stop")
    session.hook("session-end", reason="exit")
    (project / "guide.md").write_text("# Releases\n\nA release is tagged by hand on Mondays.\n")
    ralph.well("conversations", "add-document", project / "guide.md")
    return {"login": login, "cookie": cookie, "note": note, "private": private["id"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is no project."""
    made = tmp_path / "plain"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


def found(ralph: Line, *words: str) -> dict[str, str]:
    """The kinds that a search finds, each with the id of its first hit."""
    hits = ralph.well("search", *words, "--json").json
    return {hit["kind"]: hit["id"] for hit in reversed(hits)}


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("validation of empty passwords", "iteration"),
        ("nightly export batching rows", "exchange"),
        ("staging database reset", "note"),
        ("own account number", "note"),
        ("parser tests locale", "learning"),
        ("locking an account after wrong passwords", "feature"),
        ("release tagged on Mondays", "document"),
    ],
)
def test_one_search_finds_every_kind_and_one_id_opens_it(
    ralph: Line, told: dict[str, str], query: str, kind: str
) -> None:
    hit = ralph.well("search", query, "--json").json[0]

    assert hit["kind"] == kind
    shown = ralph.well("show", hit["id"][:8], "--json").json
    assert (shown["id"], shown["kind"]) == (hit["id"], kind)
    assert shown["record"] == hit["record"]
    assert ralph.well("search", query).out.startswith(hit["id"][:8])


def test_a_session_is_searched_shown_with_its_steps_and_forgotten(
    ralph: Line, told: dict[str, str], project: Path, home: Path
) -> None:
    exchange = found(ralph, "nightly export")["exchange"]

    shown = ralph.well("show", exchange[:8]).out
    assert QUESTION in shown
    assert ANSWER in shown
    assert "make export" in shown
    conversation = ralph.well("conversations", "list", "--json").json[0]["id"]
    assert ANSWER in ralph.well("show", conversation[:8]).out

    ralph.well("forget", exchange[:8])
    assert "exchange" not in found(ralph, "nightly export", "--min-score", "0")
    assert ralph("show", exchange).code == 1
    for folder in (project / ".ralph", home):
        for file in folder.rglob("*"):
            assert not file.is_file() or b"Batching the rows" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("query", "text"),
    [("parser tests locale C.UTF-8", LEARNING), ("staging database reset at night", NOTE)],
)
def test_a_learning_and_a_note_reach_the_model(
    ralph: Line, told: dict[str, str], project: Path, tmp_path: Path, query: str, text: str
) -> None:
    with served(project, "--focus") as server:
        answer = server.told("search_memory", query=query)
        assert text in answer
        identity = re.search(r"\[([0-9a-f]{8})\]", answer)
        assert identity is not None
        assert text in server.told("get_memory", id=identity[1])
    with served(project, "--feature", "auth") as server:
        assert text in server.told("search_feature_memory", query=query)

    prompted = Session(project, tmp_path).hook("user-prompt-submit", prompt=f"About {query}")
    assert text in prompted.context


def test_what_a_model_remembers_is_a_note_by_an_agent(
    ralph: Line, told: dict[str, str], project: Path
) -> None:
    fact = "The payment sandbox declines cards that end in 13."
    with served(project, "--focus") as server:
        assert "Saved as note" in server.told("remember", text=fact)
        assert "Already saved" in server.told("remember", text=fact)
        server.told("remember", text="The user prefers small commits.", private=True)

    hit = ralph.well("search", "payment sandbox declines", "--json").json[0]
    assert (hit["kind"], hit["record"]["by"]) == ("note", "agent")
    notes = (project / ".ralph" / "db" / "memory").glob("*.jsonl")
    texts = "".join(file.read_text(encoding="utf-8") for file in notes)
    assert fact in texts
    assert "small commits" not in texts
    assert found(ralph, "prefers small commits", "--kind", "note")["note"]
    assert found(ralph, "prefers small commits")["note"]


def test_what_a_person_wrote_stands_above_what_was_extracted(ralph: Line, project: Path) -> None:
    ralph.record("auth", {"summary": "Sessions expire after fifteen minutes."})
    ralph.well("remember", "Sessions expire after an hour.")

    first, second = ralph.well("search", "when do sessions expire", "--json").json

    assert (first["kind"], second["kind"]) == ("note", "iteration")


def test_a_persons_note_stands_above_the_same_words_and_an_agents_does_not(
    ralph: Line, project: Path
) -> None:
    ralph.record("auth", {"summary": "Tokens of the mobile client rotate every nine minutes."})
    with served(project, "--focus") as server:
        server.told("remember", text="Tokens of the web client rotate every ten minutes.")
    ralph.well("remember", "Tokens of the desktop client rotate every six minutes.")

    hits = ralph.well("search", "how often do client tokens rotate", "--json").json

    assert hits[0]["record"].get("by") == "human"
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_an_agent_of_a_feature_sees_its_feature_and_the_projects_notes(
    ralph: Line, told: dict[str, str], project: Path
) -> None:
    ralph.record("billing", {"summary": "Invoices are rounded to whole cents."})
    ralph.well("remember", "Invoices go out on the first of a month.", "--feature", "billing")
    exchange = found(ralph, "nightly export")["exchange"]
    section = found(ralph, "release tagged")["document"]
    of_others = {
        "nightly export batching": exchange,
        "release tagged on Mondays": section,
        "own account number 7741": told["private"],
        "invoices rounded cents": found(ralph, "invoices rounded cents")["iteration"],
        "invoices first of a month": found(ralph, "invoices first of a month")["note"],
    }
    with served(project, "--feature", "auth") as server:
        assert NOTE in server.told("search_feature_memory", query="staging database reset")
        assert NOTE in server.told("get_memory", id=told["note"])
        for query, identity in of_others.items():
            answer = server.told("search_feature_memory", query=query, min_score=0.0)
            assert identity[:8] not in answer, query
            assert "no record" in server.refused("get_memory", id=identity)
        assert "no argument" in server.refused("search_feature_memory", query="x", kinds=["note"])
        # What was meant to be private must not end in the project.
        assert "private" in server.refused(
            "remember", text="My key is under the mat.", private=True
        )
    assert "note" not in found(ralph, "key under the mat", "--min-score", "0.5")


def test_near_twins_are_folded_and_named(ralph: Line) -> None:
    ids = ralph.record(
        "auth",
        *({"summary": "The upload of large files times out.", "session_id": f"{n}"} for n in "abc"),
        {"summary": "The upload of large files times out.", "outcome": "success"},
    )

    hits = ralph.well("search", "upload of large files", "--json").json

    assert len(hits) == 2  # how it ended makes the difference
    assert {i for hit in hits for i in (hit["id"], *hit.get("like", ()))} == set(ids)
    assert "and 2 like it" in ralph.well("search", "upload of large files").out


def test_kinds_days_and_features_narrow_a_search(ralph: Line, told: dict[str, str]) -> None:
    wide = ("login", "--min-score", "0")

    assert set(found(ralph, *wide, "--kind", "note")) <= {"note"}
    assert set(found(ralph, *wide, "--kind", "iteration", "--kind", "feature")) <= {
        "iteration",
        "feature",
    }
    old = ralph.well("search", *wide, "--until", "2026-02-07", "--json").json
    assert [hit["id"] for hit in old] == [told["login"]]
    assert told["login"] not in {
        h["id"] for h in ralph.well("search", *wide, "--since", "1d", "--json").json
    }
    refused = ralph("search", "login", "--since", "soon")
    assert (refused.code, "2026-02-07, 7d" in refused.complaint) == (1, True)
    assert ralph("search", "login", "--kind", "dream").code == 2


def test_recent_and_log_list_a_days_work_across_kinds(ralph: Line, told: dict[str, str]) -> None:
    listed = ralph.well("recent", "--json").json
    assert {hit["kind"] for hit in listed} == {"iteration", "exchange", "note", "learning"}

    days = ralph.well("log", "--since", "2026-01-01")
    for line in ("2026-02-07", "note", "learning", "conversation", "iteration"):
        assert line in days.out
    today = ralph.well("log", "--json").json
    assert told["login"] not in {hit["id"] for hit in today}
    assert told["note"] in {hit["id"] for hit in today}


def test_every_id_that_a_list_prints_is_opened(ralph: Line, told: dict[str, str]) -> None:
    printed: set[str] = set()
    for words in (
        "recent --count 50",
        "log --since 2026-01-01",
        "conversations list",
        "search login --min-score 0",
    ):
        printed |= set(re.findall(r"\b[0-9a-f]{8}\b", ralph.well(*words.split()).out))
    assert len(printed) >= 8
    for identity in printed:
        assert ralph.well("show", identity).out, identity
        assert ralph.well("open", identity).out, identity


def test_notes_need_no_project_and_are_then_private(ralph: Line, folder: Path) -> None:
    saved = ralph.well("remember", "The printer is called Gutenberg.", "--json").json

    assert saved["private"] is True
    assert list(folder.iterdir()) == []
    assert found(ralph, "what is the printer called")["note"] == saved["id"]
    assert "Gutenberg" in ralph.well("show", saved["id"]).out


def test_a_private_note_is_told_from_one_of_the_project(
    ralph: Line, told: dict[str, str], project: Path
) -> None:
    asked = {"private": "own account number 7741", "note": "staging database reset"}
    for name, query in asked.items():
        alone, label = name == "private", f"{'private ' * (name == 'private')}note | "
        shown = {
            "search": ralph.well("search", query, "--json").json[0],
            "recent": next(
                hit
                for hit in ralph.well("recent", "--count", "50", "--json").json
                if hit["id"] == told[name]
            ),
            "show": ralph.well("show", told[name], "--json").json,
        }
        assert {way: hit["private"] for way, hit in shown.items()} == dict.fromkeys(shown, alone)
        assert {hit["kind"] for hit in shown.values()} == {"note"}
        assert f"\n  {label}" in ralph.well("search", query).out
        assert f"  {label}" in ralph.well("show", told[name]).out
        with served(project, "--focus") as server:
            kind = label.removesuffix(" | ")
            assert f"[{told[name][:8]}] {kind} |" in server.told("search_memory", query=query)
    assert "private" not in ralph.well("show", told["login"], "--json").json
    listed = ralph.well("recent", "--kind", "note").out
    assert (listed.count("\n  private note | "), listed.count("\n  note | ")) == (1, 1)
    assert "  private note  My own account" in ralph.well("log", "--kind", "note").out


def test_a_note_is_never_empty_nor_endless_and_keeps_no_secret(ralph: Line) -> None:
    assert "empty" in ralph("remember", " ").complaint
    assert "2000 are allowed" in ralph("remember", "x" * 2001).complaint
    token = "ghp_" + "a1B2" * 9
    note = ralph.well("remember", f"The deploy token is {token}", "--json").json
    assert token not in note["text"]


def test_status_and_verify_cover_every_kind(
    ralph: Line, told: dict[str, str], project: Path
) -> None:
    ralph.well("search", "login")
    state = ralph.well("status", "--json").json["memories"]
    assert state["notes"] == {"journalled": 1, "indexed": 1}
    assert state["plan"] == {"journalled": 2, "indexed": 2}
    assert state["conversation"]["indexed"] >= 3
    assert ralph.well("index", "verify", "--json").json["ok"] is True
    with open_ralph(project) as opened:
        opened.store.index.drop(opened.notes.target().name)
    assert "notes: none of its 1 records is indexed" in ralph("index", "verify").out
    rebuilt = ralph.well("index", "rebuild", "--json").json
    assert {"notes", "plan", "conversations"} <= rebuilt.keys()
    assert ralph.well("index", "verify").code == 0


def test_a_changed_plan_is_searched_as_it_is_now(ralph: Line, told: dict[str, str]) -> None:
    learning = found(ralph, "parser tests locale")["learning"]
    ralph.well("learning", "remove", learning, "--feature", "auth")
    assert "learning" not in found(ralph, "parser tests locale", "--min-score", "0")
    assert ralph("show", learning).code == 1

    ralph.well("learning", "add", "Parsers are generated by make.", "--feature", "auth")
    assert found(ralph, "who generates parsers")["learning"]


def test_a_plan_that_cannot_be_read_keeps_nobody_from_searching(
    ralph: Line, told: dict[str, str], project: Path
) -> None:
    ralph.well("search", "login")
    (project / ".ralph" / "db" / "features.yaml").write_text("<<<<<<< ours\n- x: [\n")

    assert found(ralph, "validation of empty passwords")["iteration"] == told["login"]
    assert found(ralph, "staging database reset")["note"] == told["note"]
    assert ralph.well("recent", "--json").json


def test_a_folder_that_is_no_project_has_its_memory_over_mcp_where_the_user_wants_it(
    ralph: Line, folder: Path
) -> None:
    with served(folder, "--focus") as server:
        assert server.tools() == {}

    ralph.well("config", "--user", "pause_folders", "[]")

    with served(folder, "--focus") as server:
        assert {"search_memory", "get_memory", "remember"} <= server.tools().keys()
        saved = server.told("remember", text="The printer is called Gutenberg.")
        assert "Gutenberg" in server.told("search_memory", query="what is the printer called")
        assert "Gutenberg" in server.told("get_memory", id=saved.rstrip(".").split()[-1])
        # It names the tools that are there, and no others.
        said, refused = server.client.instructions or "", server.refused("get_memory", id="nope")
        assert [name for name in server.tools() if name not in said] == []
        assert not re.search("search_feature_memory|get_recent|update_task", said + refused)
    assert list(folder.iterdir()) == []
