"""What clients write that this version of Ralph does not know: counted, saved, told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import places
import pytest
from commanding import Line
from importing import Kept, import_sessions, write

from ralph.capture.lines import SessionHead, SessionStart
from ralph.clients import BY_SOURCE
from ralph.clients.claude_code_sessions import Exchanges
from ralph.clients.codex_sessions import Rollout, rollout_head
from ralph.clients.drift import drift_text, drift_told, save_counts, short_version

CODEX = (places.FIXTURES / "codex" / "rollout_session.jsonl").read_bytes()
KNOWN = {"message": 60, "function_call": 40, "reasoning": 500}


def line(kind: str, **payload: Any) -> bytes:
    event = {"timestamp": "2026-12-01T10:00:00.000Z", "type": kind, "payload": payload}
    return json.dumps(event).encode() + b"\n"


def changed(version: str = "0.250.1") -> bytes:
    """A rollout of a version that writes its tool calls in a way of its own."""
    head = {"id": "new-1", "cwd": "/home/dev/shop", "cli_version": version}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "Fix it."}]}
    lines = [
        line("session_meta", **head),
        line("response_item", type="message", **asked),
        line("event_msg", type="user_message", message="Fix it."),
        *[line("response_item", type="tool_batch", calls=["ls"]) for _ in range(20)],
    ]
    return b"".join(lines)


@pytest.mark.parametrize("name", ["rollout_session.jsonl", "rollout_script.jsonl"])
def test_nothing_of_a_recorded_session_of_codex_is_unknown(name: str) -> None:
    content = (places.FIXTURES / "codex" / name).read_bytes()
    head = rollout_head(content.splitlines()[0])
    assert head is not None
    reading = Rollout(SessionStart(head=head))
    for one in content.splitlines(keepends=True):
        reading.feed(one)
    assert (
        drift_text("codex", "", {name: 1000 * count for name, count in reading.met.items()}) == ""
    )


def test_nothing_of_a_recorded_session_of_the_newest_claude_code_is_unknown() -> None:
    content = (places.FIXTURES / "claude_code" / "transcript_newest.jsonl").read_bytes()
    reading = Exchanges(SessionStart(head=SessionHead(version="2.1.328")))
    exchanges = [one for line in content.splitlines(keepends=True) for one in reading.feed(line)]
    [exchange] = [*exchanges, *reading.rest()]
    assert exchange.user == "Let people download their articles."
    [error] = exchange.captured.errors
    assert (error.message, bool(error.resolution)) == (
        "No rule to make target 'export'.  Stop.",
        True,
    )
    met = {name: 1000 * count for name, count in reading.met.items()}
    assert drift_text("claude-code", "", met) == ""


def test_a_notable_share_is_told_with_the_names_that_are_new() -> None:
    met = {**KNOWN, "tool_batch": 50, "item_Shell": 10}
    assert drift_text("codex", "0.150", met) == (
        "Codex 0.150: 38 % of events unknown to this version of Ralph (tool batch, item Shell)"
    )


def test_a_few_new_names_are_no_news() -> None:
    assert drift_text("codex", "0.150", {**KNOWN, "tool_batch": 9}) == ""
    assert drift_text("codex", "0.150", {"message": 9}) == ""
    assert drift_text("opencode", "", {}) == ""


def test_counts_are_saved_once_a_name_is_unknown(tmp_path: Path) -> None:
    save_counts(tmp_path, "codex", "0.150.1", KNOWN)
    assert not (tmp_path / "cache").exists()

    save_counts(tmp_path, "codex", "0.150.1", {**KNOWN, "tool_batch": 8})
    assert drift_told(tmp_path) == []
    save_counts(tmp_path, "codex", "0.150.3", {"tool_batch": 60, "a secret: hunter2 ": 5})
    [told] = drift_told(tmp_path)
    assert told.startswith("Codex 0.150: 40 % of events unknown")
    assert b"hunter2" not in (tmp_path / "cache" / "drift.json").read_bytes()


def test_only_the_last_versions_and_so_many_names_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        many = {f"tool_{name}": 1 for name in range(500)}
        save_counts(tmp_path, "codex", f"0.{150 + number}.0", many)
    saved = json.loads((tmp_path / "cache" / "drift.json").read_bytes())
    assert list(saved["clients"]["codex"]) == ["0.153", "0.154", "0.155"]
    assert len(saved["clients"]["codex"]["0.155"]) == 100


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 2}', b'{"clients": 1}', b"[" * 9000])
def test_a_damaged_file_of_counts_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "drift.json").write_bytes(damage)
    assert drift_told(tmp_path) == []
    save_counts(tmp_path, "opencode", "", {"part_plan": 30})
    [told] = drift_told(tmp_path)
    assert told.startswith("OpenCode: 100 % of events unknown")


def test_a_version_is_its_first_two_numbers() -> None:
    assert short_version("0.145.0-alpha.18") == "0.145"
    assert short_version("2.1.237 (Claude Code)") == "2.1"
    assert short_version("next") == ""


@pytest.mark.parametrize("source", BY_SOURCE)
def test_every_client_has_a_list_of_what_is_known(source: str) -> None:
    assert "unknown" in drift_text(source, "1", {"never_seen": 100})


def test_an_import_says_what_it_did_not_know(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "home")
    write(tmp_path / "rollout-1.jsonl", [changed()])
    came = import_sessions("codex", kept.memory, folder=tmp_path, clock=lambda: 4e9)
    assert came.exchanges == 1
    [told] = came.drift
    assert told.startswith("Codex 0.250: 87 % of events unknown to this version of Ralph")


def test_import_doctor_and_status_tell_people_to_update(ralph: Line, tmp_path: Path) -> None:
    write(tmp_path / "rollout-1.jsonl", [changed()])
    ran = ralph("conversations", "import", "codex", tmp_path, "--all")
    assert "% of events unknown to this version of Ralph (tool batch); update Ralph" in ran.err

    checks = {one["name"]: one for one in ralph("doctor", "--json").json["checks"]}
    assert checks["clients"]["state"] == "warning"
    assert checks["clients"]["detail"].startswith("Codex 0.250: 87 % of events unknown")
    assert "Codex 0.250: 87 % of events unknown" in ralph("hooks", "status").err


def test_doctor_is_content_with_what_it_knows(ralph: Line, tmp_path: Path) -> None:
    write(tmp_path / "rollout-1.jsonl", [CODEX])
    ralph("conversations", "import", "codex", tmp_path, "--all")
    checks = {one["name"]: one for one in ralph("doctor", "--json").json["checks"]}
    assert checks["clients"]["state"] == "ok"
