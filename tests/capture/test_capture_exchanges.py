"""A session transcript cut into exchanges, on sessions written out here and a recorded one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from capturing import ROOT, SECRET, SESSION
from places import FIXTURES

from ralph.capture.lines import SessionExchange, SessionStart
from ralph.clients.claude_code_sessions import Exchanges
from ralph.records.conversation import Message
from ralph.text.sanitize import mark

RECORDED = FIXTURES / "claude_code" / "transcript_session.jsonl"
SUBAGENT = FIXTURES / "transcripts" / "subagent_lint_fix.jsonl"
_numbers = iter(range(1, 10**9))


def line(kind: str, **more: Any) -> dict[str, Any]:
    number = next(_numbers)
    when = f"2026-11-02T10:{number // 60 % 60:02}:{number % 60:02}.000Z"
    base = {"type": kind, "uuid": f"u{number}", "sessionId": SESSION, "timestamp": when}
    return {**base, "cwd": ROOT, "gitBranch": "main", "isSidechain": False, **more}


def asked(content: Any, **more: Any) -> dict[str, Any]:
    return line("user", message={"role": "user", "content": content}, **more)


def answered(*blocks: Any, stop: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"role": "assistant", "model": "m", "content": content, "stop_reason": stop}
    return line("assistant", message={**message, "usage": usage}, **more)


def call(identity: str, name: str, **given: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": identity, "name": name, "input": given}
    return answered(use, stop="tool_use")


def result(identity: str, content: Any, *, error: bool = False, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": identity, "content": content}
    return asked([{**block, "is_error": error}], **more)


def data(*events: Any) -> bytes:
    return b"".join(e if isinstance(e, bytes) else json.dumps(e).encode() + b"\n" for e in events)


def read(content: bytes, offset: int = 0, **more: Any) -> tuple[list[SessionExchange], Exchanges]:
    reading = Exchanges(SessionStart(offset=offset, **more))
    found: list[SessionExchange] = []
    for one in content[offset:].splitlines(keepends=True):
        found += reading.feed(one)
    return found + reading.rest(), reading


def cut(*events: Any, **more: Any) -> list[SessionExchange]:
    return read(data(*events), **more)[0]


def pairs(exchanges: list[SessionExchange]) -> list[tuple[str, str]]:
    return [(exchange.user, exchange.assistant) for exchange in exchanges]


def test_an_exchange_is_a_persons_words_and_everything_up_to_the_next_ones() -> None:
    first = asked("Fix the login.", promptId="p1")
    events = [
        line("file-history-snapshot"),
        first,
        answered("Looking.", stop="tool_use"),
        call("1", "Bash", command="pytest -q"),
        result("1", "Exit code 1\nValueError: closed", error=True),
        call("2", "Edit", file_path=f"{ROOT}/a.py"),
        result("2", "updated"),
        call("3", "Bash", command="pytest -q"),
        result("3", "3 passed"),
        answered("It was the session."),
        answered("All tests pass."),
        {"type": "cost-state", "totalCostUSD": 9},
        asked("Thanks."),
        answered("You are welcome."),
    ]
    one, two = cut(*events)
    assert (one.key, one.session_id) == (first["uuid"], SESSION)
    assert one.user == "Fix the login."
    assert one.assistant == "It was the session.\n\nAll tests pass."
    assert one.messages == (
        Message("assistant", "Looking."),
        Message("tool", "pytest -q\nExit code 1\nValueError: closed", "Bash", True),
        Message("tool", "a.py\nupdated", "Edit"),
        Message("tool", "pytest -q\n3 passed", "Bash"),
    )
    assert (one.status, one.finished, one.cwd, one.git_branch) == ("complete", True, ROOT, "main")
    [error] = one.captured.errors
    assert error.resolution == "Edited a.py; then `pytest -q` passed."
    assert [file.path for file in one.captured.files_touched] == ["a.py"]
    assert (one.captured.tokens_used, one.captured.cost_usd, one.captured.model) == (90, None, "m")
    assert one.captured.started_at == first["timestamp"]
    assert (two.user, two.status, two.finished) == ("Thanks.", "complete", False)
    content = data(*events)
    assert content[one.begins_at :].startswith(data(first))
    assert (one.ends_at, two.ends_at) == (two.begins_at, len(content))


def test_the_last_exchange_can_be_asked_for_as_often_as_one_likes() -> None:
    reading = Exchanges()
    error = answered("API Error: 500", isApiErrorMessage=True)
    for one in data(asked("Go."), error).splitlines(keepends=True):
        assert reading.feed(one) == []
    [before] = reading.rest()
    assert reading.rest() == [before]
    assert (before.status, before.finished) == ("failed", False)
    reading.feed(data(answered("Here it is.")))
    [after] = reading.rest()
    assert (after.status, after.assistant, after.captured.errors) == ("complete", "Here it is.", ())
    assert after.key == before.key


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([answered("Done.")], "complete"),
        ([answered("Done.", stop=None)], "complete"),
        ([], "interrupted"),
        ([answered("Let me look.", stop="tool_use")], "interrupted"),
        ([call("1", "Bash", command="ls")], "interrupted"),
        ([call("1", "Bash", command="ls"), result("1", "a")], "interrupted"),
        ([answered("I am"), asked("[Request interrupted by user]")], "interrupted"),
        ([answered("API Error: 529", isApiErrorMessage=True)], "failed"),
        ([answered("No.", stop="refusal")], "failed"),
        ([answered("Done."), asked("hook says", isMeta=True)], "complete"),
        ([answered("Done."), asked("<local-command-stdout>x</local-command-stdout>")], "complete"),
        ([answered("Done."), line("system", subtype="turn_duration")], "complete"),
    ],
)
def test_how_an_exchange_ended(events: list[Any], status: str) -> None:
    assert [exchange.status for exchange in cut(asked("Go."), *events)] == [status]
    both = cut(asked("Go."), *events, asked("Next."), answered("Yes."))
    assert [exchange.status for exchange in both] == [status, "complete"]


NOT_PROMPTS = [
    asked("Caveat", isMeta=True),
    asked("This session is being continued from a previous conversation that ran out of"),
    asked("A summary", isCompactSummary=True),
    asked("A summary", isVisibleInTranscriptOnly=True),
    asked("Look at a.py", isSidechain=True, agentId="a1"),
    asked("<task-notification>done</task-notification>", turnOrigin="task_notification"),
    asked("From another agent", origin={"kind": "peer"}),
    asked("<system-reminder>only this</system-reminder>"),
    asked("<local-command-stdout>Set model</local-command-stdout>"),
    asked("<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>"),
    asked([]),
    asked("  "),
    asked(None),
    line("system", subtype="compact_boundary", content="Conversation compacted"),
    line("summary", summary="x"),
]


@pytest.mark.parametrize("event", NOT_PROMPTS)
def test_what_the_client_or_an_agent_says_is_no_prompt(event: dict[str, Any]) -> None:
    at_work = [call("1", "Bash", command="ls"), result("1", "a.py")]
    assert pairs(cut(asked("Go."), *at_work, event, answered("Done."))) == [("Go.", "Done.")]
    assert cut(event, answered("Done.")) == []


@pytest.mark.parametrize(
    "event",
    [
        asked("Stop hook feedback:\nRun the tests.", isMeta=True),
        asked("<task-notification>done</task-notification>", turnOrigin="task_notification"),
        asked("Look again", turnOrigin="scheduled"),
    ],
)
def test_what_the_client_made_the_assistant_do_after_its_last_word_is_an_exchange(
    event: dict[str, Any],
) -> None:
    said = data(asked("Go."), answered("On it."))
    more = [call("1", "Bash", command="ls"), result("1", "a.py"), answered("Done.")]
    whole = said + data(event, *more)
    found = read(whole)[0]
    assert pairs(found) == [("Go.", "On it."), ("", "Done.")]
    # A hook that read before it knows nothing of what came later, and one after it reads on.
    [before] = read(said)[0]
    [after] = read(whole, before.ends_at)[0]
    assert (before.key, after.key) == (found[0].key, found[1].key)
    assert (after.assistant, after.messages) == ("Done.", found[1].messages)
    # The last word may be written when it is known from elsewhere already.
    late = read(whole, len(data(asked("Go."))))[0]
    assert [(one.key, one.assistant) for one in late] == [(after.key, "Done.")]
    # Nobody answered: nothing was said, and whoever reads on later begins there.
    unanswered = said + data(event)
    [one], reading = read(unanswered)
    assert (one.key, reading.ends_at) == (before.key, before.ends_at)


def test_subagents_belong_to_the_exchange_and_their_own_files_hold_none() -> None:
    below: dict[str, Any] = {"isSidechain": True, "agentId": "a1"}
    [one] = cut(
        asked("Go."),
        call("t", "Task", prompt="look"),
        asked("Look.", **below),
        answered("Found it, says the subagent.", **below),
        result("t", "found", agentId="a1"),
        answered("Done."),
    )
    assert (one.assistant, one.captured.tokens_used) == ("Done.", 45)
    assert one.messages == (Message("tool", "look\nfound", "Task"),)
    assert read(SUBAGENT.read_bytes())[0] == []


def test_what_ralph_and_the_client_put_in_is_not_what_the_person_typed() -> None:
    [one] = cut(
        asked(
            [
                {"type": "text", "text": f"<ide_opened_file>x</ide_opened_file>{mark('old news')}"},
                {"type": "text", "text": "Fix it.\n<system-reminder>be good</system-reminder>"},
                {"type": "image", "source": {"data": "aaaa"}},
            ]
        ),
        line("attachment", attachment={"type": "hook_additional_context", "content": [mark("n")]}),
        answered(f"{mark('old news')}\nFixed."),
    )
    assert pairs([one]) == [("Fix it. [image]", "Fixed.")]
    # A tag that nothing closes is somebody's word.
    for said in ("What is <system-reminder>?", "<b>What</b> is <system-reminder>?"):
        assert cut(asked(said))[0].user == said


def test_an_echo_of_what_a_hook_put_in_is_no_news() -> None:
    told = "The build failed with ValueError: closed."
    hook = {"type": "hook_additional_context", "content": [mark(told)]}
    with_hook = cut(asked("Go."), line("attachment", attachment=hook), answered(told))
    assert with_hook[0].captured.errors == ()
    assert len(cut(asked("Go."), answered(told))[0].captured.errors) == 1


def command(name: str, arguments: str = "") -> dict[str, Any]:
    return asked(
        f"<command-message>{name[1:]}</command-message>\n<command-name>{name}</command-name>"
        f"\n<command-args>{arguments}</command-args>"
    )


def test_a_command_is_an_exchange_only_when_the_assistant_answered_it() -> None:
    expansion = asked("Review the changes with care.", isMeta=True)
    local = asked("<local-command-stdout>Set model to m</local-command-stdout>")
    before, after = [asked("Go."), answered("Done.")], [asked("Next."), answered("Yes.")]
    around = [("Go.", "Done."), ("Next.", "Yes.")]
    review = [command("/review", "the last commit"), expansion, answered("Looks fine.")]
    whole = pairs(cut(*before, *review, *after))
    assert whole == [around[0], ("the last commit", "Looks fine."), around[1]]
    assert pairs(cut(*before, command("/init"), answered("Written.")))[1][0] == "/init"
    assert pairs(cut(*before, command("/model"), local, *after)) == around
    system = line("system", subtype="local_command", content="<local-command-stdout>")
    assert pairs(cut(*before, command("/usage"), system, *after)) == around
    assert pairs(cut(*before, command("/model"), *after)) == around
    shell = [asked("<bash-input>ls</bash-input>"), asked("<bash-stdout>a.py</bash-stdout>")]
    assert pairs(cut(*before, *shell, *after)) == around
    assert ("! ls", "One file.") in pairs(cut(*before, *shell, answered("One file."), *after))


def test_an_exchange_before_an_unanswered_command_ends_where_the_command_begins() -> None:
    review = command("/review", "the last commit")
    begun = data(asked("Go."), answered("Done."), review)
    [one] = read(begun)[0]
    assert begun[one.ends_at :] == data(review)
    whole = begun + data(answered("Looks fine."))
    assert pairs(read(whole, one.ends_at)[0]) == [("the last commit", "Looks fine.")]


def test_what_a_person_typed_while_the_assistant_worked_belongs_to_the_exchange() -> None:
    queue = {"type": "queue-operation", "content": "And in blue."}
    attached = {"type": "queued_command", "prompt": "And in blue.", "commandMode": "prompt"}
    other = {**attached, "prompt": "task done", "origin": {"kind": "task-notification"}}
    picture = {**attached, "prompt": [{"type": "text", "text": "Like so"}, {"type": "image"}]}
    [one] = cut(
        asked("Paint it."),
        {**queue, "operation": "enqueue"},
        call("1", "Bash", command="paint"),
        result("1", "painted"),
        line("attachment", attachment=attached),
        {**queue, "operation": "remove", "reason": "absorbed_mid_turn"},
        line("attachment", attachment=other),
        line("attachment", attachment=picture),
        answered("Blue."),
    )
    assert one.user == "Paint it.\n\nAnd in blue.\n\nLike so [image]"
    assert [m.content for m in one.messages if m.role == "user"] == [
        "And in blue.",
        "Like so [image]",
    ]


def test_lines_that_stand_in_the_file_twice_count_once() -> None:
    events = [asked("Go."), call("1", "Bash", command="ls"), result("1", "a"), answered("Done.")]
    once = cut(*events)
    assert pairs(cut(*events, *events)) == pairs(once)
    assert cut(*events, *events)[0].captured == once[0].captured


def test_a_copy_of_a_session_names_the_session_it_was_copied_from() -> None:
    first = {"sessionId": "99999999-2222-3333-4444-555555555555", "messageUuid": "x"}
    copied, own = cut(asked("Go.", forkedFrom=first), asked("Next."))
    assert (copied.session_id, own.session_id) == (first["sessionId"], SESSION)


def test_a_prompt_without_an_id_of_its_own_is_named_by_what_else_it_has() -> None:
    [one] = cut(asked("Go.", uuid=None, promptId="p7"))
    assert one.key == "p7"
    content = data(line("mode"), asked("Go.", uuid=None))
    [two] = read(content)[0]
    assert two.key == f"{SESSION}@{two.begins_at}"
    assert read(content, two.begins_at)[0][0].key == two.key


def test_secrets_are_redacted_in_everything_that_is_kept() -> None:
    found, reading = read(
        data(
            asked(f"The token is {SECRET}.", cwd=f"/x/{SECRET}", gitBranch=SECRET),
            call("1", "Bash", command=f"login {SECRET}"),
            result("1", f"hello {SECRET}"),
            answered(f"I used {SECRET}."),
            {"type": "ai-title", "aiTitle": f"About {SECRET}"},
            b'{"torn ' + SECRET.encode() + b"\n",
        )
    )
    assert SECRET not in repr((found, reading.title, reading.complaints))
    assert "redacted" in found[0].user


def test_long_texts_and_long_exchanges_are_cut() -> None:
    steps: list[Any] = []
    for number in range(300):
        steps += [
            call(f"t{number}", "Bash", command=f"run {number}"),
            result(f"t{number}", "x " * 900),
        ]
    [one] = cut(asked("word " * 9000), *steps, answered("word " * 9000))
    assert len(one.user) <= 20_001
    assert len(one.assistant) <= 20_001
    assert 150 < len(one.messages) <= 200
    assert one.messages[0].content.startswith("run 0\n")
    assert one.messages[-1].content.startswith("run 299\n")
    assert max(len(message.content) for message in one.messages) < 600


def test_the_title_is_the_persons_else_the_clients_else_the_summary_of_this_session() -> None:
    prompt = asked("Go.")
    mine = {"type": "summary", "summary": "Mine", "leafUuid": prompt["uuid"]}
    foreign = {"type": "summary", "summary": "Another session's", "leafUuid": "elsewhere"}
    ai = [{"type": "ai-title", "aiTitle": title} for title in ("Old", "New")]
    custom = {"type": "custom-title", "customTitle": "By hand"}

    def title(*events: Any, **more: Any) -> str | None:
        return read(data(*events), **more)[1].title

    assert title(prompt) is None
    assert title(foreign, prompt) is None
    assert title(foreign, mine, prompt) == "Mine"
    assert title(mine, prompt, *ai) == "New"
    assert title(custom, prompt, *ai) == "By hand"
    assert title(prompt, title="Before") == "Before"


def test_a_line_that_cannot_be_read_is_reported_with_its_place_and_stepped_over() -> None:
    content = data(asked("Go."), b'{"type": "assist\n', b"[]\n", {"no": "type"}, answered("Done."))
    found, reading = read(content, file="s.jsonl")
    assert pairs(found) == [("Go.", "Done.")]
    assert [(c.file, c.line) for c in reading.complaints] == [("s.jsonl", n) for n in (2, 3, 4)]
    assert read(content, line=10)[1].complaints[0].line == 12


def test_a_session_of_the_real_client() -> None:
    found, reading = read(RECORDED.read_bytes())
    assert reading.complaints == []
    assert [(one.user, one.assistant, one.status) for one in found] == [
        (
            "Make the check of the shop pass.",
            "The check passes: total() now adds all prices up.",
            "complete",
        ),
        ("/greet Ada", "Good day, Ada. It is an honour.", "complete"),
        (
            "Which colour should the form have?",
            "I am thinking about the colours of the form and",
            "interrupted",
        ),
        ("Answer, please.", "", "failed"),
        (
            "Take blue.\n\nAnd the border green.",
            "Painted blue, and the border green as you said while I worked.",
            "complete",
        ),
        ("Thank you.", "You are welcome.", "complete"),
    ]
    assert [one.finished for one in found] == [True] * 5 + [False]
    assert {one.session_id for one in found} == {"1f0e9d8c-7b6a-4958-8776-655443322110"}
    assert [len(one.captured.errors) for one in found] == [1, 0, 0, 1, 0, 0]
    assert "old news" not in repr(found)
