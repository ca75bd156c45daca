"""`ralph workers`, `summarizer`, `embeddings` and `rag` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer, running
from commanding import Line
from workers_ground import GOOD, fill, opener, until, written

from ralph.chat.workers import Workers
from ralph.memory.ralph import open_ralph


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with running() as started:
        yield started


@pytest.fixture
def by_llm(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    monkeypatch.setenv("RALPH_SUMMARY_MODEL", "ollama:small-model")
    monkeypatch.setenv("RALPH_SUMMARY_BASE_URL", server.url)
    # A server that is busy is asked again as long as there is time.
    monkeypatch.setenv("RALPH_CHAT_TIMEOUT_S", "0.4")
    return server


def stored(home: Path) -> dict[str, object]:
    plain: dict[str, object] = json.loads((home / "config.json").read_bytes())
    return plain


def test_once_does_what_there_is_to_do(ralph: Line, project: Path) -> None:
    fill(project, [2, 1])
    ran = ralph.well("workers", "run", "--once")
    assert [line for line in ran.out.splitlines() if not line.startswith("  Note: ")] == [
        "Conversation Summarizer: IDLE",
        "  Completed: 2, Failed: 0",
        "  Spend: $0.00",
        "  All conversations are summarized. Worker is idle.",
        "Exchange Summarizer: IDLE",
        "  Completed: 3, Failed: 0",
        "  Spend: $0.00",
        "  All exchanges are summarized. Worker is idle.",
        "Embedding Pipeline: IDLE",
        "  Completed: 8, Failed: 0",
        "  Spend: $0.00",
    ]
    assert "extractive" in ran.out
    assert [
        one["completed"] for one in ralph.well("workers", "run", "--once", "--json").json["workers"]
    ] == [0, 0, 0]


def test_once_ends_with_1_when_something_is_left(
    ralph: Line, project: Path, by_llm: ChatServer
) -> None:
    fill(project, [1])
    by_llm.fail("500")
    ran = ralph("workers", "run", "--once")
    assert ran.code == 1
    assert "cannot answer now" in ran.out
    assert written(project) == []


def test_once_with_everything_off_says_so(ralph: Line, project: Path) -> None:
    fill(project, [1])
    ralph.well("summarizer", "off")
    ralph.well("embeddings", "off")
    ran = ralph.well("workers", "run", "--once")
    assert ran.out == "All workers are off. To switch them on: `ralph summarizer on`\n"


def test_what_was_given_up_is_listed_and_retried(
    ralph: Line, project: Path, by_llm: ChatServer
) -> None:
    fill(project, [1])
    by_llm.say("", GOOD)
    Workers(opener(project), max_retries=0).run_once()
    told = ralph.well("workers", "status")
    assert "Given up: 1 item." in told.out
    assert "conversation c000000000000000, tried 1 time" in told.out
    [given_up] = ralph.well("workers", "status", "--json").json["given_up"]
    assert (given_up["worker"], given_up["item"]) == ("conversation", f"c{0:015x}")

    assert ralph.well("conversations", "retry", "--json").json == {"retried": 1}
    by_llm.say(GOOD)
    ralph.well("workers", "run", "--once")
    assert ralph.well("workers", "status", "--json").json["given_up"] == []


def test_status_tells_what_runs_in_another_process(ralph: Line, project: Path) -> None:
    fill(project, [1])
    assert [one["state"] for one in ralph.well("workers", "status", "--json").json["workers"]] == [
        "stopped"
    ] * 3
    with Workers(opener(project)) as workers:
        until(lambda: all(one.state == "idle" for one in workers.statuses()), "rest")
        until(lambda: workers.statuses()[2].completed == 3, "the work")
        told = ralph.well("workers", "status", "--json").json["workers"]
        assert [one["completed"] for one in told] == [1, 1, 3]
        assert all(one["note"].startswith("running elsewhere (process ") for one in told)
        assert "Conversation Summarizer: IDLE" in ralph.well("summarizer").out
        # Here nothing is done twice.
        assert ralph.well("workers", "run", "--once").code == 0
        assert "running elsewhere" in ralph.well("embeddings").out


@pytest.mark.skipif(sys.platform == "win32", reason="the process is ended by a signal")
def test_running_workers_print_what_is_done_not_less_than_nothing(project: Path) -> None:
    fill(project, [2])
    lines = list[str]()

    command = [sys.executable, "-m", "ralph", "workers", "run"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "  Completed: 2, Failed: 0\n" not in lines:
            line = process.stdout.readline()
            assert line, lines
            lines.append(line)
        process.terminate()
        lines += process.stdout.readlines()

    assert [line for line in lines if "To do: -" in line] == []


def test_summarizer_shows_what_there_is_to_do(ralph: Line, project: Path) -> None:
    fill(project, [2])
    assert ralph.well("summarizer").out == (
        "Conversation Summarizer: STOPPED\n"
        "  To do: 1\n"
        "  Note: on, but not running. Started by the end of a session, or: `ralph workers run`\n"
        "Exchange Summarizer: STOPPED\n"
        "  To do: 2\n"
        "  Note: on, but not running. Started by the end of a session, or: `ralph workers run`\n"
        "Embedding Pipeline: STOPPED (see ralph embeddings for details)\n"
    )
    assert [one["total"] for one in ralph.well("summarizer", "--json").json["workers"]] == [1, 2, 2]
    pipeline = ralph.well("embeddings").out
    assert "Note: on, but not running." in pipeline
    assert "OFF" not in pipeline


def test_switches_are_kept_for_whoever_runs_the_workers(
    ralph: Line, project: Path, home: Path
) -> None:
    fill(project, [1])
    assert ralph.well("summarizer", "exchange", "off").out == "Exchange Summarizer: OFF\n"
    assert stored(home) == {"summarizer_exchange_enabled": False}
    ralph.well("workers", "run", "--once")
    assert {one.of for one in written(project)} == {"conversation"}
    assert ralph.well("summarizer", "exchange").out == (
        "Exchange Summarizer: STOPPED\n"
        "  To do: 1\n"
        "  Note: off. To switch it on: ralph summarizer exchange on\n"
    )
    assert ralph.well("summarizer", "on").out == (
        "Conversation Summarizer: ON\n"
        "Exchange Summarizer: ON\n"
        "Embedding Pipeline: ON\n"
        "It runs while `ralph chat` or `ralph workers run` is open.\n"
    )
    assert all(stored(home).values())


@pytest.mark.parametrize("typed", ["", "no\n", "y\n", "yes!\n"])
def test_rebuild_without_a_typed_yes_changes_nothing(
    ralph: Line, project: Path, typed: str
) -> None:
    fill(project, [2])
    ralph.well("workers", "run", "--once")
    before = ralph.well("embeddings").out
    ran = ralph.well("embeddings", "rebuild", stdin=typed)
    assert ran.out == "The answer was not yes: nothing was deleted.\n"
    assert "  - Delete 5 existing embeddings\n" in ran.err
    assert "Type 'yes' to confirm: " in ran.err
    assert ralph.well("embeddings").out == before


@pytest.mark.parametrize(("part", "count"), [("", 5), ("conversations", 1), ("exchanges", 4)])
def test_rebuild_after_a_typed_yes_makes_them_anew_at_once(
    ralph: Line, project: Path, part: str, count: int
) -> None:
    fill(project, [2])
    ralph.well("workers", "run", "--once")
    before = ralph.well("embeddings").out
    words = ["embeddings", "rebuild", *([part] if part else [])]
    ran = ralph.well(*words, stdin="yes\n")
    assert ran.out == f"\nEmbeddings cleared.\nRecreated: {count}/{count} completed.\n"
    assert ralph.well("embeddings").out == before


def test_a_rebuild_counts_only_what_it_deleted(ralph: Line, project: Path) -> None:
    fill(project, [2])
    ralph.well("workers", "run", "--once")
    fill(project, [3, 3])  # nothing of these is embedded yet

    ran = ralph.well("embeddings", "rebuild", "conversations", stdin="yes\n")

    counts = ran.out.partition("Recreated: ")[2].split()[0].split("/")
    assert counts[0] == counts[1]


def test_rag_is_steered(ralph: Line, home: Path) -> None:
    assert ralph.well("rag", "off").out.startswith("RAG Status: DISABLED")
    assert ralph.well("rag", "set", "rag_conversation_limit", "5").out == (
        "Updated: rag_conversation_limit = 5\n"
        "RAG will now retrieve up to 5 related conversations per query.\n"
    )
    assert stored(home) == {"rag_enabled": False, "rag_conversation_limit": 5}
    told = ralph.well("rag", "--json").json
    assert told["settings"]["rag_conversation_limit"] == 5
    assert told["lines"][0] == "RAG Status: DISABLED"
    assert "Last retrieval" not in ralph.well("rag").out
    assert "  rag_conversation_limit: 5\n" in ralph.well("rag", "config").out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["rag", "set", "rag_min_similarity", "2"], "it must be between 0 and 1"),
        (["rag", "set", "colour", "red"], "there is no retrieval setting 'colour'"),
        (["rag", "perhaps"], "Usage: ralph rag [on|off|config|set KEY VALUE]"),
        (["summarizer", "message"], "Usage: ralph summarizer [conversation|exchange] [on|off]"),
        (["embeddings", "rebuild", "all"], "Usage: ralph embeddings [on|off|rebuild"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    ralph: Line, words: list[str], complaint: str
) -> None:
    ran = ralph(*words)
    assert ran.code == 1
    assert complaint in ran.complaint


def test_they_serve_outside_of_projects_too(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert ralph.well("rag").out.startswith("RAG Status: ENABLED")
    ralph.well("workers", "run", "--once")
    assert list(elsewhere.iterdir()) == []
    assert "STOPPED" in ralph.well("workers", "status", "--project", elsewhere).out
    missing = ralph("workers", "status", "--project", elsewhere / "gone")
    assert (missing.code, "there is no folder" in missing.complaint) == (1, True)


def test_a_summary_is_found_when_it_is_asked_for(
    ralph: Line, project: Path, by_llm: ChatServer
) -> None:
    fill(project, [1])
    by_llm.say("The zebrafish genome was sequenced with long reads.", GOOD)
    ralph.well("workers", "run", "--once")
    with open_ralph(project) as opened:
        related = opened.conversations.related("zebrafish genome", min_similarity=0.3)
    assert [one.conversation.id for one in related.conversations] == [f"c{0:015x}"]
