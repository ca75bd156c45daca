"""`ralph blame` and `ralph how`, over the command line, MCP, the page and a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import served_page
from code_history import DAY, CodeHistory, body
from commanding import Line
from serving import served
from teaming import serving

from ralph.memory.anchors import AnchorStore, SavedAnchor
from ralph.memory.ralph import open_ralph
from ralph.memory.remote import open_server
from ralph.records.conversation import conversation_id

SESSION = "0a1b2c3d-1111-2222-3333-444455556666"
TRAILER = f"Codex-Thread-ID: {SESSION}"
QUESTION = "Keep the prices of the cart in cents."


@pytest.fixture
def code(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> CodeHistory:
    """A repository with one session, which ran its tests and whose work is committed."""
    made = CodeHistory(tmp_path / "shop", home)
    tests = {"name": "Bash", "input": {"command": "make test"}}
    made.session(SESSION, made.create("src/cart.py", body("cart")), tests, question=QUESTION)
    made.commit(f"Add the cart\n\n{TRAILER}")
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(capsys, monkeypatch)


def test_blame_of_a_line(code: CodeHistory, line: Line) -> None:
    out = line.well("blame", "src/cart.py:3").out
    session = conversation_id("claude-code", SESSION)
    assert "src/cart.py:3  cart_step_1 = compute_cart(1)" in out
    assert "Add the cart" in out
    assert f"session {session[:8]}  named by the commit" in out
    assert QUESTION in out
    found = line.well("blame", "src/cart.py:3", "--json").json
    assert (found["session"], found["found_by"], found["line"]) == (session, "trailer", 3)
    assert "code: holds" in line.well("show", found["record"]).out
    assert "code: holds" in line.well("search", QUESTION).out
    assert found["commit"]["subject"] == "Add the cart"


def test_blame_works_without_init_and_from_any_folder(
    code: CodeHistory, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not (code.root / ".ralph").exists()
    monkeypatch.chdir(code.root / "src")
    assert line.well("blame", "cart.py", "--json").json["path"] == "src/cart.py"
    assert not (code.root / ".ralph").exists()


@pytest.mark.parametrize("target", ["nothing.py", "src/cart.py:99", "src", "/etc/passwd"])
def test_blame_of_what_is_no_file_or_line_is_an_error(
    code: CodeHistory, line: Line, target: str
) -> None:
    ran = line("blame", target)
    assert ran.code == 1
    assert target.partition(":")[0] in ran.complaint


def test_how_says_what_worked(code: CodeHistory, line: Line) -> None:
    assert "make test" in line.well("how", "run", "the", "tests").out
    [found] = line.well("how", "run the tests", "--json").json["worked"]
    assert (found["command"], found["worked"]) == ("make test", 1)
    assert "No session in memory ran a command for" in line.well("how", "fly").out
    assert "too short" in line("how", "x").complaint


def test_agents_ask_with_the_search_tool(code: CodeHistory) -> None:
    with open_ralph(code.root) as ralph:
        ralph.remember("The project needs a folder for MCP.")
    with served(code.root, "--focus") as server:
        text = server.told("search_memory", file="src/cart.py:3")
        assert "named by the commit" in text
        assert QUESTION in text
        assert "make test (worked 1x" in server.told("search_memory", query="run tests", how=True)
        assert "not a file" in server.refused("search_memory", file="nothing.py")
        assert "needs a query" in server.refused("search_memory")


def test_the_page_shows_the_history_of_a_file(code: CodeHistory) -> None:
    with open_ralph(code.root) as ralph:
        [hit] = ralph.recent(1, kinds=("conversation",))
    with served_page(code.root) as browser:
        assert "/file?path=src/cart.py" in browser.get(f"/record/{hit.id}")
        assert "Its code: holds" in browser.text(f"/record/{hit.id}")
        text = browser.text("/file?path=src/cart.py")
        assert QUESTION in text
        assert "10 of 10 lines still here" in text
        assert "not a file" in browser.get("/file?path=nothing.py", code=400)


def test_a_team_shares_anchors_through_the_server(
    code: CodeHistory, line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One person's session on the server says to another how its code stands on their machine."""
    there = tmp_path / "there"
    shared = CodeHistory(there / "shop", tmp_path / "server-home")
    (shared.root / ".ralph" / "db").mkdir(parents=True)
    with serving(shared.root, shared.home) as server:
        monkeypatch.setenv("RALPH_SERVER", server.address)
        monkeypatch.setenv("RALPH_TOKEN", server.token("admin", person=True))
        with open_ralph(code.root, home=code.home) as own:
            [hit] = own.recent(1, kinds=("conversation",))
            anchors = AnchorStore(code.home).of_records([hit.id])[hit.id]
            talk = own.conversations.conversation(hit.record.conversation)
        remote = open_server(own.project)
        assert remote is not None
        with remote:
            remote.conversations.add(talk, [hit.record])
            remote.anchor(anchors)
            remote.anchor([SavedAnchor("0" * 16, anchors[0].anchor, anchors[0].at)])
        store = AnchorStore(shared.home)
        assert store.of_records([hit.id])[hit.id][0].anchor.path == "src/cart.py"
        assert store.of_records(["0" * 16]) == {}
        # Another person's machine has the files and not the anchors.
        AnchorStore(code.home).path.unlink()
        assert "code: holds" in line.well("show", hit.id).out
        assert "code: holds" in line.well("search", QUESTION).out
        found = line.well("blame", "src/cart.py:3", "--json").json
        assert (found["record"], found["found_by"]) == (hit.id, "trailer")
        code.write("src/cart.py", body("other"))
        code.commit("Write it anew", day=DAY + 1)
        assert "gone from src/cart.py" in line.well("search", QUESTION).out
        assert "make test" in line.well("how", "run the tests").out
        line.well("forget", hit.id, "--yes")
        assert AnchorStore(shared.home).of_records([hit.id]) == {}
