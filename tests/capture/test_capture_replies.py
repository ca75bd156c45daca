"""A prompt is about the exchange before it: it may choose an option or take something back."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from capturing import ROOT, SESSION

from ralph.capture.lines import SessionExchange, SessionHead, SessionStart
from ralph.clients import BY_AGENT
from ralph.memory.sessions import conversations_of

OPTIONS = "Where should the session go?\n\nA) A cookie\nB) A table in Redis\n\nWhich one?"
CHOICE = "b -> A table in Redis"


def claude_lines(turns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, (user, answer) in enumerate(turns):
        base = {"sessionId": SESSION, "cwd": ROOT, "timestamp": f"2026-11-02T10:0{number}:00Z"}
        content = [{"type": "text", "text": answer}]
        message = {"role": "assistant", "content": content, "stop_reason": "end_turn"}
        found += [
            {**base, "type": "user", "uuid": f"u{number}", "message": {"content": user}},
            {**base, "type": "assistant", "uuid": f"a{number}", "message": message},
        ]
    return found


def codex_lines(turns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, (user, answer) in enumerate(turns):
        asked = {"type": "message", "role": "user"}
        asked["content"] = [{"type": "input_text", "text": user}]  # type: ignore[assignment]
        said = {"type": "message", "role": "assistant"}
        said["content"] = [{"type": "output_text", "text": answer}]  # type: ignore[assignment]
        turn = {"turn_id": f"t{number}"}
        found += [
            {"type": "event_msg", "payload": {"type": "task_started", **turn}},
            {"type": "response_item", "payload": asked},
            {"type": "response_item", "payload": said},
            {"type": "event_msg", "payload": {"type": "task_complete", **turn}},
        ]
    return found


def opencode_lines(turns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        for role, text in zip(("user", "assistant"), turn, strict=True):
            info = {"role": role, "id": f"msg_{role}{number}", "path": {"cwd": ROOT}}
            found.append({"info": info, "parts": [{"type": "text", "text": text}]})
    return found


def gemini_lines(turns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, (user, answer) in enumerate(turns):
        found += [
            {"type": "user", "id": f"u{number}", "content": user},
            {"type": "gemini", "id": f"g{number}", "content": answer},
        ]
    return found


CLIENTS = {
    "claude": claude_lines,
    "codex": codex_lines,
    "gemini": gemini_lines,
    "opencode": opencode_lines,
}


def read(agent: str, lines: Sequence[dict[str, Any]], skipped: int = 0) -> list[SessionExchange]:
    """Read a session, with `skipped` lines read by an earlier reader."""
    data = [json.dumps(line).encode() + b"\n" for line in lines]
    offset = sum(map(len, data[:skipped]))
    head = SessionHead(SESSION, ROOT)
    start = SessionStart("session.jsonl", ROOT, head, offset, skipped)
    reader = BY_AGENT[agent].program.sessions().session_reader(start)
    reader.look_back(io.BytesIO(b"".join(data)))
    found = [exchange for line in data[skipped:] for exchange in reader.feed(line)]
    return found + reader.rest()


def decisions(exchange: SessionExchange) -> list[str]:
    return [one.description for one in exchange.captured.decisions]


@pytest.mark.parametrize("agent", CLIENTS)
def test_an_answer_of_one_letter_is_saved_with_the_text_of_the_option(agent: str) -> None:
    lines = CLIENTS[agent]([("Add sessions to the shop.", OPTIONS), ("b", "Done.")])
    assert decisions(read(agent, lines)[-1]) == [CHOICE]


@pytest.mark.parametrize("agent", CLIENTS)
def test_the_option_is_found_by_a_reader_that_continues(agent: str) -> None:
    lines = CLIENTS[agent]([("Add sessions to the shop.", OPTIONS), ("b", "Done.")])
    assert decisions(read(agent, lines, skipped=len(lines) // 2)[-1]) == [CHOICE]


@pytest.mark.parametrize("agent", CLIENTS)
def test_the_next_prompt_takes_back_a_decision(agent: str) -> None:
    turns = [
        (
            "The totals of the invoice look odd.",
            "I kept the totals rounded because cents were off.",
        ),
        ("No, don't round anything.", "The totals are exact again."),
    ]
    seen = read(agent, CLIENTS[agent](turns))
    [talk] = conversations_of(seen, source="x", session=SESSION, title=None)
    first, second = talk.exchanges
    [decision] = first.decisions
    assert decision.description == "I kept the totals rounded"
    assert decision.rationale is not None
    assert decision.rationale.endswith('Later the person said: "No, don\'t round anything."')
    assert [one.source for one in second.decisions] == ["human"]


@pytest.mark.parametrize("agent", CLIENTS)
def test_another_request_takes_nothing_back(agent: str) -> None:
    turns = [
        (
            "The totals of the invoice look odd.",
            "I kept the totals rounded because cents were off.",
        ),
        ("No more invoices for today, add a search.", "The search is there."),
    ]
    seen = read(agent, CLIENTS[agent](turns))
    [talk] = conversations_of(seen, source="x", session=SESSION, title=None)
    assert [one.rationale for one in talk.exchanges[0].decisions] == ["cents were off"]


def call(identity: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "tool_use", "id": identity, "name": name, "input": given}]
    message = {"role": "assistant", "content": content, "stop_reason": "tool_use"}
    return {"type": "assistant", "uuid": f"c{identity}", "sessionId": SESSION, "message": message}


def result(identity: str, output: str, *, failed: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": identity, "content": output, "is_error": failed}
    line = {"type": "user", "uuid": f"r{identity}", "sessionId": SESSION}
    return {**line, "message": {"content": [block]}}


def test_a_solution_that_the_next_prompt_rejects_is_none() -> None:
    edit = {
        "file_path": f"{ROOT}/tax.py",
        "old_string": "return total",
        "new_string": "return round(total, 2)",
    }
    failure = "Exit code 1\nFAILED tests/test_tax.py::test_total - AssertionError: 1.1 != 1.10001"
    first, last = claude_lines([("Run the tests.", "All pass."), ("No, don't round.", "Undone.")])[
        ::2
    ]
    lines = [
        first,
        call("1", "Bash", {"command": "pytest -q"}),
        result("1", failure, failed=True),
        call("2", "Edit", edit),
        result("2", "updated"),
        call("3", "Bash", {"command": "pytest -q"}),
        result("3", "3 passed"),
    ]
    [kept] = read("claude", lines)
    assert kept.captured.errors[0].resolution is not None
    rejected, _ = read("claude", [*lines, last])
    assert [error.resolution for error in rejected.captured.errors] == [None]


def test_a_plan_is_taken_back_in_a_later_exchange_of_an_import() -> None:
    plan = "Implement the following plan:\n\n# Cache the prices\n\n## Context\n\nPages are slow."
    turns = [
        (plan, "The cache is there."),
        ("Add a test for an empty cart.", "The test is there."),
        ("Still not working. Revert the whole plan.", "Reverted."),
    ]
    seen = read("claude", claude_lines(turns))
    [talk] = conversations_of(seen, source="x", session=SESSION, title=None)
    [accepted] = talk.exchanges[0].decisions
    assert accepted.description == "Accepted plan: Cache the prices"
    assert accepted.rationale is not None
    assert 'Later the person said: "Still not working.' in accepted.rationale


def test_a_prompt_says_why_the_plan_before_it_was_rejected() -> None:
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    first, last = claude_lines([("Plan it.", ""), ("It must work offline, too.", "Fine.")])[::2]
    plan = {"plan": "# Plan: Ask the server\n\nText"}
    lines = [first, call("1", "ExitPlanMode", plan), result("1", refused, failed=True), last]
    [_, second] = read("claude", lines)
    assert decisions(second) == ["Rejected plan: Ask the server. It must work offline, too."]
