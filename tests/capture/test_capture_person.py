"""What the person said, and what was decided: refusals, answers, plans, corrections, commits."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import json
from typing import Any

import pytest
from capturing import ROOT, SESSION, came, used
from timing import assert_linear

from ralph.capture import AgentRun
from ralph.capture.decisions import (
    answers,
    asked,
    commit_message,
    committed,
    is_plain,
    plan_text,
    plan_title,
    planned,
    refusal,
)
from ralph.clients.claude_code_sessions import Exchanges, Transcript
from ralph.records.iteration import Decision

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file). "
)
PLAN = """# Fix: Row groups

## Context

Each file flushes, and the library allows 32767 groups.

## Approach

Flush once per host.
"""


def prompt(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, **more}


def said(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "model": "m", "content": content}}


def session(*events: dict[str, Any]) -> AgentRun:
    reading = Transcript(file="-", root=ROOT)
    for number, event in enumerate(events):
        base = {"sessionId": SESSION, "cwd": ROOT, "uuid": f"u{number}"}
        reading.feed(json.dumps({**base, **event}).encode())
    return reading.finish()


def human(run: AgentRun) -> list[tuple[str, str | None]]:
    return [(d.description, d.rationale) for d in run.decisions if d.source == "human"]


def test_the_words_of_a_refusal_are_kept_with_what_was_refused() -> None:
    words = f"{REFUSED}To tell you how to proceed, the user said:\nfix the test, the code is right"
    edit = used("1", "Edit", {"file_path": f"{ROOT}/a.py"})
    got = session(prompt("fix it"), edit, came("1", words, error=True))
    assert human(got) == [("fix the test, the code is right", "said when refusing Edit of a.py")]
    note = f"{words}\n\nNote: The user's next message may contain a correction."
    assert refusal(note) == "fix the test, the code is right"
    assert refusal(f"{REFUSED}STOP what you are doing") == ""
    assert refusal(f"{REFUSED}To tell you how to proceed, the user said:\nThe user wants to clarify"
                   " these questions.") == ""  # fmt: skip


def test_an_answer_is_kept_with_its_question() -> None:
    question = "Which store?"
    ask = used("1", "AskUserQuestion", {"questions": [{"question": question}]})
    told = f'User has answered your questions: "{question}"="SQLite (Recommended)". You can go on.'
    got = session(prompt("add a store"), ask, came("1", told))
    assert human(got) == [("Which store? -> SQLite", None)]
    given = {"answers": {"A?": "x", "B?": "(No answer provided)"}}
    assert answers(given, "") == [Decision("A? -> x", None, "human")]


def test_an_accepted_plan_is_a_decision_and_a_refused_one_is_what_was_said() -> None:
    call = used("1", "ExitPlanMode", {"plan": PLAN})
    got = session(prompt("why?"), call, came("1", "User has approved your plan."))
    [(title, why)] = human(got)
    assert title == "Accepted plan: Row groups"
    assert "Flush once per host." in (why or "")
    words = f"{REFUSED}To tell you how to proceed, the user said:\nonly for new files"
    got = session(prompt("why?"), call, came("1", words, error=True))
    assert human(got) == [("only for new files", 'said when refusing the plan "Row groups"')]


def test_a_plan_given_as_a_prompt_loses_what_the_client_wrote_around_it() -> None:
    end = (
        "\n\nIf you need specific details from before exiting plan mode (like code), read: /x.jsonl"
    )
    whole = f"Implement the following plan:\n\n{PLAN}{end}"
    assert plan_text(whole) == PLAN.strip()
    assert plan_title(whole) == "Row groups"
    got = session(prompt(whole), said("Done, it flushes once per host now, all tests pass."))
    assert got.title == "Row groups"
    reading = Exchanges()
    reading.feed(json.dumps({**prompt(whole), "sessionId": SESSION}).encode() + b"\n")
    [exchange] = reading.rest()
    assert exchange.user == PLAN.strip()
    assert planned("no title here") is None


# fmt: off
CORRECTIONS = [
    "no, use the old parser", "let's switch to camelCase", "fix the test, the code is right",
    "why would you repeat creating the table in the full schema?", "1. fail loud. 2. leave it alone.",
    "Don't push yet", "writeWALRecord is unused according to the LSP. Can it be removed?",
    "通知文言を修正してください", "bitte lieber ohne Cache",
]
REQUESTS = ["commit and push", "yes", "go ahead", "try again", "what is left of phase 7", "ok, commit", "How big is it?"]
# fmt: on


@pytest.mark.parametrize("text", CORRECTIONS)
def test_a_later_prompt_that_chooses_or_corrects_is_a_decision(text: str) -> None:
    decision = asked(text, first=False)
    assert decision is not None
    assert (decision.description, decision.source) == (text, "human")


@pytest.mark.parametrize("text", REQUESTS)
def test_a_prompt_that_only_goes_on_or_asks_is_none(text: str) -> None:
    assert asked(text, first=False) is None


def test_of_a_first_prompt_only_the_rules_are_decisions() -> None:
    assert asked("Let's add a form. Never push secrets.", first=True) == asked(
        "Never push secrets.", first=False
    )
    assert asked("Let's add a form.", first=True) is None
    assert is_plain("ok, commit and push please")


def test_what_was_typed_while_the_agent_worked_counts() -> None:
    def queue(**keys: str) -> dict[str, Any]:
        return {"type": "queue-operation", **keys}

    words = "also don't log the token"
    got = session(
        prompt("add a login"), queue(operation="enqueue", content=words), queue(operation="remove")
    )
    assert human(got) == [(words, None)]


COMMIT = """git add -A && git commit -m "$(cat <<'EOF'
fix(zsh): start the daemon quietly

Job control announces a coproc, so disable it.

Co-Authored-By: A <a@example.com>
EOF
)\""""


def test_the_message_of_a_commit_is_read_however_it_is_given() -> None:
    whole = "fix(zsh): start the daemon quietly\n\nJob control announces a coproc, so disable it."
    assert commit_message(COMMIT) == whole
    assert commit_message("git commit -m 'Add a form' -m 'It was asked for.'") == (
        "Add a form\n\nIt was asked for."
    )
    assert (
        commit_message("git commit -m @'\nAdd a form\n\nWhy not.\n'@") == "Add a form\n\nWhy not."
    )
    assert commit_message("git commit --amend --no-edit") == ""
    assert commit_message("git log -1") == ""


def test_a_commit_is_a_decision_unless_it_keeps_house() -> None:
    decision = committed(commit_message(COMMIT))
    assert decision is not None
    assert decision.rationale == "Job control announces a coproc, so disable it."
    for subject in (
        "Merge branch 'x' into main",
        "chore: release 1.2.3",
        "docs: update changelog",
        "wip",
    ):
        assert committed(subject) is None


@pytest.mark.parametrize("piece", ["# a\n", "\n", "git commit -m ", "<<EOF\n", '"a"="', "no, "])
def test_hostile_words_take_no_longer_than_their_length(piece: str) -> None:
    def read(text: str) -> object:
        return planned(text), commit_message(text), answers(None, text), asked(text, first=False)

    assert_linear(read, lambda size: piece * (size // len(piece)), 60_000)
