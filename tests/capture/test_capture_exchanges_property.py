"""What holds for the exchanges of any transcript, however it is read."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from capturing import ROOT, SESSION
from hypothesis import given, settings
from hypothesis import strategies as st
from places import FIXTURES

from ralph.capture.lines import SessionExchange, SessionStart
from ralph.clients.claude_code_sessions import SESSION_KEYS, Exchanges

RECORDED = FIXTURES / "claude_code" / "transcript_session.jsonl"


def _user(content: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}}


def _assistant(block: dict[str, Any], stop: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "model": "m", "content": [block], "stop_reason": stop}
    return {"type": "assistant", "message": {**message, "usage": {"input_tokens": 3}}}


def _call(identity: str, command: str) -> dict[str, Any]:
    use = {"type": "tool_use", "id": identity, "name": "Bash", "input": {"command": command}}
    return _assistant(use, "tool_use")


def _result(identity: str, said: str) -> dict[str, Any]:
    failed = said.startswith("Exit code")
    block = {"type": "tool_result", "tool_use_id": identity, "content": said, "is_error": failed}
    return _user([block])


def _edit(path: str) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "e", "name": "Edit", "input": {"file_path": path}}
    return _assistant(use, "tool_use")


words = st.sampled_from(
    ["fix it", "because x", "I decided to use SQLite because it is small.", "é"]
)
ids = st.sampled_from(["a", "b"])
outputs = st.sampled_from(
    ["3 passed", "Exit code 1\nValueError: x", "Exit code 1\nKeyError: y", ""]
)
hook = {"type": "hook_additional_context", "content": ["<ralph-memory>\nx\n</ralph-memory>"]}
queued = {"type": "queued_command", "prompt": "and blue", "commandMode": "prompt"}
events = st.one_of(
    words.map(_user),
    words.map(lambda text: _assistant({"type": "text", "text": text}, "end_turn")),
    words.map(lambda text: _assistant({"type": "text", "text": text}, None)),
    st.builds(_call, ids, st.sampled_from(["pytest -q", "pytest", "pip install x", "cat x"])),
    st.builds(_result, ids | st.just("e"), outputs),
    st.sampled_from(["a.py", f"{ROOT}/b.py", "/etc/c"]).map(_edit),
    st.sampled_from(
        [
            _user("<command-name>/review</command-name><command-args>all</command-args>"),
            _user("<local-command-stdout>x</local-command-stdout>"),
            _user("[Request interrupted by user]"),
            _user("<bash-input>ls</bash-input>"),
            {**_user("skill"), "isMeta": True},
            {**_user("below"), "isSidechain": True, "agentId": "s"},
            {**_user("summary"), "isCompactSummary": True},
            {**_assistant({"type": "text", "text": "below"}, None), "isSidechain": True},
            {**_assistant({"type": "text", "text": "API Error"}, None), "isApiErrorMessage": True},
            {"type": "attachment", "attachment": hook},
            {"type": "attachment", "attachment": queued},
            {"type": "queue-operation", "operation": "enqueue", "content": "and blue"},
            {"type": "system", "subtype": "local_command"},
            {"type": "system", "subtype": "turn_duration"},
            {"type": "ai-title", "aiTitle": "T"},
            {"type": "cost-state", "totalCostUSD": 1.5},
        ]
    ),
)


@st.composite
def transcripts(draw: st.DrawFn) -> list[bytes]:
    """A transcript's lines, with a broken one or one without an id here and there."""
    lines: list[bytes] = []
    for number, event in enumerate(draw(st.lists(events, max_size=30))):
        base = {"sessionId": SESSION, "cwd": ROOT, "timestamp": f"2026-11-02T10:00:{number:02}Z"}
        named = {} if draw(st.integers(0, 9)) == 0 else {"uuid": f"u{number}"}
        lines.append(json.dumps({**base, **named, **event}).encode() + b"\n")
        if draw(st.integers(0, 9)) == 0:
            lines.append(draw(st.sampled_from([b"\n", b"{torn\n", b"\xff\n", b"[1]\n"])))
    return lines


def read(
    lines: list[bytes], offset: int = 0
) -> tuple[list[SessionExchange], list[SessionExchange]]:
    """The exchanges that are finished, and the one that is not."""
    reading = Exchanges(SessionStart(offset=offset))
    finished = [one for line in lines for one in reading.feed(line)]
    return finished, reading.rest()


def after(lines: list[bytes], offset: int) -> list[bytes]:
    return b"".join(lines)[offset:].splitlines(keepends=True)


KEYS = [*SESSION_KEYS.split(), "toolUseResult", "attachment"]


@given(transcripts())
@settings(deadline=None)
def test_reading_on_from_where_any_exchange_ended_gives_the_same(lines: list[bytes]) -> None:
    finished, rest = read(lines)
    for number, exchange in enumerate(finished):
        again, again_rest = read(after(lines, exchange.ends_at), exchange.ends_at)
        assert (again, again_rest) == (finished[number + 1 :], rest)
    for exchange in (*finished, *rest):
        again, again_rest = read(after(lines, exchange.begins_at), exchange.begins_at)
        assert [*again, *again_rest][0] == exchange


@given(transcripts(), st.data())
@settings(deadline=None)
def test_a_key_does_not_depend_on_how_far_the_file_was_read(
    lines: list[bytes], data: st.DataObject
) -> None:
    finished, rest = read(lines)
    whole = [*finished, *rest]
    far = data.draw(st.integers(0, len(lines)))
    part, part_rest = read(lines[:far])
    assert part == finished[: len(part)]
    known = [one.key for one in whole]
    assert [one.key for one in (*part, *part_rest)] == known[: len(part) + len(part_rest)]


@given(transcripts())
@settings(deadline=None)
def test_exchanges_follow_each_other_and_only_the_last_is_open(lines: list[bytes]) -> None:
    finished, rest = read(lines)
    assert all(one.finished for one in finished)
    assert [one.finished for one in rest] in ([], [False])
    for one, two in pairwise([*finished, *rest]):
        assert one.begins_at < one.ends_at == two.begins_at
    for one in rest:
        assert one.begins_at < one.ends_at <= sum(map(len, lines))
    assert len({one.key for one in (*finished, *rest)}) == len(finished) + len(rest)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "id", "input", "kind", "name", "prompt"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
kinds = st.sampled_from(
    ["user", "assistant", "attachment", "queue-operation", "summary", "system", "ai-title"]
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*SESSION_KEYS.split(), "toolUseResult", "attachment"]), values
        ),
        max_size=6,
    ),
    kinds,
)
@settings(deadline=None)
def test_no_line_raises_whatever_stands_in_it(plain: list[dict[str, Any]], kind: str) -> None:
    lines = [json.dumps({**one, "type": kind}).encode() + b"\n" for one in plain]
    prompt = json.dumps({**_user("go"), "uuid": "u"}).encode() + b"\n"
    for finished, rest in (read(lines), read([prompt, *lines])):
        repr((finished, rest))


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_raise(lines: list[bytes]) -> None:
    reading = Exchanges()
    for line in lines:
        assert reading.feed(line) == []
    assert reading.rest() == []
    assert reading.title is None


def test_the_recorded_session_cut_at_any_byte_tells_a_part_of_the_whole() -> None:
    content = RECORDED.read_bytes()
    finished, rest = read(content.splitlines(keepends=True))
    keys = [one.key for one in (*finished, *rest)]
    for cut in range(0, len(content), 997):
        part, part_rest = read(content[:cut].splitlines(keepends=True))
        assert part == finished[: len(part)]
        assert [one.key for one in (*part, *part_rest)] == keys[: len(part) + len(part_rest)]
