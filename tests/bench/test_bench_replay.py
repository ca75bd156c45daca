"""The replay of real sessions: what it reads, in which order, and what it reports."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import bench
from ralph.errors import BadInput

if sys.platform == "win32":
    pytest.skip("a replay forks its hooks", allow_module_level=True)

from bench.histories import in_time_order, read_history

CWD = "/home/dev/shop"


class Transcript:
    """The lines of a session of Claude Code, one second apart."""

    def __init__(self, session: str, hour: int) -> None:
        self.session = session
        self.lines: list[dict[str, Any]] = []
        self._hour = hour

    def _add(self, kind: str, content: Any, **more: Any) -> None:
        second = len(self.lines)
        line = {
            "type": kind,
            "uuid": f"{self.session}-{second}",
            "sessionId": self.session,
            "cwd": CWD,
            "timestamp": f"2026-03-01T{self._hour:02}:00:{second:02}.000Z",
            "message": {"role": kind, "content": content, "id": f"m{self.session}{second}"},
        }
        self.lines.append({**line, **more})

    def prompt(self, text: str) -> None:
        self._add("user", text)

    def says(self, text: str) -> None:
        self._add("assistant", [{"type": "text", "text": text}])

    def runs(self, command: str, output: str, *, failed: bool = False) -> None:
        name = f"t{len(self.lines)}"
        call = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": command}}
        self._add("assistant", [call])
        result = {"type": "tool_result", "tool_use_id": name, "content": output}
        self._add("user", [result | ({"is_error": True} if failed else {})])

    def compacts(self, summary: str) -> None:
        self.lines.append({"type": "system", "subtype": "compact_boundary", "cwd": CWD})
        self._add("user", summary, isCompactSummary=True)

    def write(self, file: Path) -> None:
        data = "".join(json.dumps(line) + "\n" for line in self.lines).encode()
        file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


ERROR = "error: unrecognized subcommand 'bun'"


def failing(session: str, hour: int) -> Transcript:
    """A session in which a command fails and another one works."""
    found = Transcript(session, hour)
    found.prompt("Please run the tests of the shop and tell me how many there are.")
    found.runs("rtk bun run test", f"Exit code 2\n{ERROR}", failed=True)
    found.runs("bun run test", " 12 pass\n 0 fail")
    found.says("All 12 tests pass, with `bun run test`.")
    return found


@pytest.fixture
def history(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    failing("11111111-1111-4111-8111-111111111111", 9).write(folder / "b.jsonl")
    failing("22222222-2222-4222-8222-222222222222", 8).write(folder / "a.jsonl.gz")
    return folder


def test_moments_come_in_time_order_with_what_the_client_would_send(history: Path) -> None:
    order = in_time_order(read_history(history))
    assert [session.name for session, _ in order] == ["a"] * 8 + ["b"] * 8
    kinds = [moment.kind for _, moment in order[:8]]
    assert kinds == [
        "session-start",
        "user-prompt-submit",
        "command",
        "post-tool-use-failure",
        "command",
        "post-tool-use",
        "stop",
        "session-end",
    ]


def test_a_compaction_gives_its_moments_and_the_summary(tmp_path: Path) -> None:
    session = failing("33333333-3333-4333-8333-333333333333", 9)
    session.compacts("We ran the tests.")
    session.prompt("Go on.")
    session.write(tmp_path / "c.jsonl")
    [found] = read_history(tmp_path)
    events = [one.event for one in found.moments]
    at = events.index("pre-compact")
    assert events[at : at + 3] == ["pre-compact", "post-compact", "session-start"]
    assert found.moments[at + 1].fields["compact_summary"] == "We ran the tests."
    assert found.moments[at + 2].fields["source"] == "compact"


def test_a_replay_tells_only_what_earlier_sessions_left(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(os.environ)
    out = tmp_path / "told.jsonl"
    assert bench.main("replay", [str(history), "--out", str(out), "--silent", "--json"]) == 0
    assert dict(os.environ) == before
    summary = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    told = [row for row in rows if row["row"] == "told"]
    assert told
    assert {row["session"] for row in told} == {"b"}
    [failed] = [row for row in told if row["moment"] == "post-tool-use-failure"]
    assert "bun run test" in failed["text"]
    assert failed["used"] is True
    assert failed["next"] == ["bun run test"]
    assert failed["stands"] == "the request after the tool failed"
    [repeated] = [row for row in rows if row["row"] == "repeated"]
    assert repeated["command"] == "rtk bun run test"
    assert summary["repeated_failures"] == 1
    assert summary["by_moment"]["post-tool-use-failure"]["told"] == 1


def test_a_folder_without_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no session in this folder"):
        bench.main("replay", [str(tmp_path)])
