"""What the person said, and what was decided: refusals, answers, plans, corrections, commits."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import io
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
from ralph.capture.lines import SessionStart
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


@pytest.mark.parametrize(
    ("words", "is_kept"),
    [
        ("i'll take it from here", True),
        ("never reset the branch", True),
        ("what are you doing...??", False),
        ("huh, that's what i expect. Try again.", False),
        ("I've done it - keep going", False),
    ],
)
def test_of_a_refused_command_only_what_holds_beyond_it_is_kept(words: str, is_kept: bool) -> None:
    run = used("1", "Bash", {"command": "git reset --hard"})
    refusing = f"{REFUSED}To tell you how to proceed, the user said:\n{words}"
    got = session(prompt("fix it"), run, came("1", refusing, error=True))
    why = "said when refusing `git reset --hard`"
    assert human(got) == ([(words, why)] if is_kept else [])


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
    assert human(got) == [("Rejected plan: Row groups. only for new files", None)]


def test_the_prompt_after_a_plan_that_was_rejected_without_words_says_why() -> None:
    call = used("1", "ExitPlanMode", {"plan": PLAN})
    stop = prompt("[Request interrupted by user for tool use]")
    got = session(
        prompt("why?"), call, came("1", REFUSED, error=True), stop, prompt("make it one skill each")
    )
    assert human(got) == [("Rejected plan: Row groups. make it one skill each", None)]
    other = prompt("Compare the writer with the old one. What are the differences?")
    got = session(prompt("why?"), call, came("1", REFUSED, error=True), stop, other)
    assert human(got) == [("Rejected plan: Row groups.", None)]


@pytest.mark.parametrize(
    "later", ["revert this please, the files broke", "it still does not work for old files"]
)
def test_an_accepted_plan_that_failed_says_so(later: str) -> None:
    call = used("1", "ExitPlanMode", {"plan": PLAN})
    done = came("1", "User has approved your plan.")
    got = session(prompt("why?"), call, done, said("Done."), prompt(later))
    why = human(got)[0][1] or ""
    assert why.endswith(f'Later the person said: "{later}"')
    got = session(prompt("why?"), call, done, said("Done."), prompt("now the other page"))
    assert "Later" not in (human(got)[0][1] or "")


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
    "Next time you made changes to the code, let me commit.", "i want gold for the border",
    "from now on ask before you touch the schema", "this is meant to be reverted before release",
    "that page should go to maps.example.org not api.example.org", "can you always show the unit?",
    "the drones should be called subagents", "not the unit tests the e2e tests", "never push the examples",
    "Only stop if you want to change the plan.", "the button should have a capital letter",
    "i dont like the form..i think it should just say something normal",
    "Not true. The old server also works with it.",
    "Let's make them separate, and I like the list whether it was confirmed or not.",
    "ignore the list, we dont need a second store", "writeWALRecord is unused according to the LSP. Can it be removed?",
    "通知文言を修正してください", "bitte lieber ohne Cache",
]
REQUESTS = ["commit and push", "yes", "go ahead", "try again", "what is left of phase 7", "ok, commit", "How big is it?",
    "Don't push yet", "implement but don't commit", "dont make any changes, lets just analyze",
    "so it is always going to be slow on first run?", "should we change the tagline of the page",
    "you should have been told", "the log says it failed..", "git log main..topic shows two",
    "wrong branch, can you check again", "let's commit and push what we do have", "You should not",
    "the first request works but the second shows the old list", "maybe search would fit better, let's explore",
    "I tested it in the other folder and neither has a transcript", "did you also push these changes",
]
# fmt: on


@pytest.mark.parametrize("text", CORRECTIONS)
def test_a_later_prompt_that_chooses_or_corrects_is_a_decision(text: str) -> None:
    decision = asked(text, first=False)
    assert decision is not None
    assert (decision.description, decision.source) == (text, "human")


@pytest.mark.parametrize("text", REQUESTS)
def test_a_prompt_that_only_goes_on_or_asks_is_none(text: str) -> None:
    assert asked(text, first=False) is None


PASTED = """it says this:

The list shows cached readings. You should never trust them, and I should have checked both.
"""
OPTIONS = """Two ways:

**Option 1: Keep the store**
1. Never migrate it

**Option 2: Move to SQLite**
1. Write the tables

Which one?"""


@pytest.mark.parametrize(
    "text",
    [
        PASTED,
        "\u25cf Never use the old store, always the new one",
        "> always ask first, never push",
    ],
)
def test_what_was_pasted_is_no_decision_of_the_person(text: str) -> None:
    assert asked(text, first=False) is None


# fmt: off
ANSWERS = [
    ("b", "a) keep 30 seconds\nb) use 60 seconds", "b -> use 60 seconds"),
    ("option 2", OPTIONS, "option 2 -> Move to SQLite"),
    ("Option 2 seems best for me.", OPTIONS, "Option 2 seems best for me. -> Move to SQLite"),
    ("2", "1. **Dismiss** - it is met\n2. **Fix** - add a test", "2 -> Fix - add a test"),
    ("c", "[A] Ask more [C] Continue", None),
    ("c", "- **[A]** Ask more\n- **[C]** Continue to the next step", None),
    ("b", "I fixed it.", None),
    ("3", OPTIONS, None),
]
# fmt: on


@pytest.mark.parametrize(("answer", "before", "kept"), ANSWERS)
def test_an_answer_with_a_letter_or_number_is_kept_with_the_options_text(
    answer: str, before: str, kept: str | None
) -> None:
    decision = asked(answer, first=False, said=before)
    assert (decision.description if decision else None) == kept
    got = session(prompt("fix it"), said(before), prompt(answer))
    assert [text for text, _ in human(got)] == ([kept] if kept else [])


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_option_is_known_although_reading_began_after_the_agent_offered_it(
    is_resumed: bool,
) -> None:
    events = [prompt("fix it"), said(OPTIONS), prompt("option 2"), said("Moved.")]
    base = {"sessionId": SESSION, "cwd": ROOT}
    data = [
        json.dumps({**base, "uuid": f"u{at}", **event}).encode() + b"\n"
        for at, event in enumerate(events)
    ]
    offset = len(data[0] + data[1]) if is_resumed else 0
    reading = Exchanges(SessionStart(offset=offset))
    reading.look_back(io.BytesIO(b"".join(data)))
    for line in data[2 if is_resumed else 0 :]:
        reading.feed(line)
    [last] = reading.rest()
    assert [one.description for one in last.captured.decisions] == ["option 2 -> Move to SQLite"]


def test_a_question_that_says_what_is_not_wanted_is_kept() -> None:
    wish = "can we push it to the private repo, don't want my notes to be public"
    for text in (wish, wish.replace("'", "\u2019")):
        got = session(prompt("fix the hook"), said("Fixed."), prompt(text))
        assert [one for one, _ in human(got)] == [wish]


@pytest.mark.parametrize(
    "text",
    [
        "we don't need it as settings.local.json is ignored by git right",
        "so it should be in the local file right",
    ],
)
def test_a_statement_that_asks_to_agree_is_no_decision(text: str) -> None:
    assert asked(text, first=False) is None


def test_a_rule_that_ends_in_a_direction_is_one() -> None:
    for text in ("always put the total on the right", "from now on do it right"):
        assert asked(text, first=False)


def test_an_address_and_a_file_name_stay_whole_in_a_rule() -> None:
    rule = "links should always go to maps.example.org, see @.docs/rules.md and `a. b` v1.2.3"
    text = f"please fix the export. {rule}. thanks"
    decision = asked(text, first=True)
    assert decision is not None
    assert decision.description == f"{rule}."


def test_words_of_another_agent_are_no_persons() -> None:
    told = '<agent-message from="reviewer">Never merge this. Always use the lock.</agent-message>'
    note = f"Another Claude session sent a message:\n{told}\n\nA peer cannot grant escalation."
    queue = {"type": "queue-operation", "operation": "enqueue", "content": told}
    got = session(
        prompt("review the export"), prompt(told), prompt(note), prompt(note, isMeta=True), queue,
        {"type": "queue-operation", "operation": "remove"},
    )  # fmt: skip
    assert human(got) == []
    assert got.title == "Review the export"


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


def test_what_the_agent_decided_while_it_thought_is_a_decision() -> None:
    thought = {"type": "thinking", "thinking": "I decided to keep one lock because writers wait."}
    message = {"role": "assistant", "model": "m", "content": [thought]}
    got = session(prompt("fix it"), {"type": "assistant", "message": message})
    [decision] = got.decisions
    assert (decision.rationale, decision.source) == ("writers wait", "agent")


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


def test_the_heredoc_of_another_command_is_no_message() -> None:
    line = "git commit -qm 'Add a form'; python3 - <<'EOF'\nopen('a')\nEOF"
    assert commit_message(line) == "Add a form"


def test_a_commit_is_a_decision_unless_it_keeps_house() -> None:
    decision = committed(commit_message(COMMIT))
    assert decision is not None
    assert decision.rationale == "Job control announces a coproc, so disable it."
    assert committed("Use one lock instead of two") is not None
    assert committed("fix: keep the lock\n\nTwo writers waited for each other.") is not None
    for subject in (
        "fix: add a button to the page",
        "docs: describe the export\n\nAdds a page about the export of orders.",
        "Merge branch 'x' into main",
        "chore: release 1.2.3",
        "docs: update changelog",
        "fixup! Use one lock instead of two",
        "wip",
    ):
        assert committed(subject) is None


@pytest.mark.parametrize(
    "piece",
    [
        "# a\n",
        "\n",
        "git commit -m ",
        "<<EOF\n",
        '"a"="',
        "no, ",
        "never .. ",
        "not a ",
        "so ",
        "a) b\n",
        "use a ",
        "[y/n",
        "right ",
        "ab..i ",
        "i to say ",
        "not true. ",
        ", don't ",
        "implement ",
        "a previous agent produced the plan below to accomplish the user's task.",
    ],
)
def test_hostile_words_take_no_longer_than_their_length(piece: str) -> None:
    def read(text: str) -> object:
        heard = (
            asked(text, first=False),
            asked(text, first=True),
            asked("b", first=False, said=text),
        )
        return planned(text), commit_message(text), answers(None, text), heard

    assert_linear(read, lambda size: piece * (size // len(piece)), 60_000)


@pytest.mark.parametrize(
    "prompt",
    [
        "That is correct for `--force`, but wrong for `--lazy`: the same answer reflects the policy.",
        "The fix in `cart.ts` calls `addTax()` instead of `taxOf()`, so an order is empty.",
        "If a user edits a file that add_tax never touched, those lines are not only counted once.",
        "shop/v5 <- why are we not using v6",
        "not sure I like the tax rule though",
        "go with the fix",
        "please continue the work, and ensure the branch is up to date",
        "the question is if it should have a start or an end",
        "are we 100% safe to never send the address of an order?",
        "No matching orders found on the server.",
        "Suggested fix: do not parse the name of an order again after it was inserted.",
    ],
)
def test_findings_questions_and_moves_of_the_moment_are_no_decisions(prompt: str) -> None:
    assert asked(prompt, first=False) is None


@pytest.mark.parametrize(
    "prompt",
    [
        "`add_tax()` should be deprecated",
        "the view in `cart.ts` must show the tax, not the price",
        "commit, and from now on ensure the tests pass first",
        "never pass an order by its name",
        "use `taxOf()` instead of `addTax()`",
        "`Cart` and `cart_view.ts` do the same thing. Drop the second one",
    ],
)
def test_a_choice_that_names_code_is_kept_whole(prompt: str) -> None:
    assert asked(prompt, first=False) == Decision(prompt, None, "human")


def test_of_a_short_prompt_only_the_choice_is_kept_beside_two_findings() -> None:
    findings = (
        "The check in `cart.ts` calls `addTax()` twice for an order. "
        "It returns an_empty_list for the second one. "
    )
    decided = asked(f"{findings}Drop the second call please", first=False)
    assert decided == Decision("Drop the second call please", None, "human")
