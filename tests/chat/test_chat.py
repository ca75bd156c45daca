"""The chat: a question, what memory holds on it, the model's answer, the exchange kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import MODEL, Answer, Call, ChatServer, anthropic_model, ollama_model
from chatting import HEADING, QUESTION, SOLUTION, held_before, sent, talking
from remembering import files_holding

from ralph.chat.model import EchoModel
from ralph.errors import NotFound
from ralph.memory.pausing import pause
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph

KEY = "sk-ant-api03-" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY" * 2


# -- one exchange


def test_an_answer_streams_and_its_exchange_is_kept_whole(
    project: Path, server: ChatServer
) -> None:
    server.say(Answer("The pool is too small.", tokens_in=1000, tokens_out=500))
    with talking(project, server) as talk:
        done = talk.ask(QUESTION)
        [kept] = talk.kept()
        listed = talk.chat.memory.conversations.list()

    assert "".join(talk.screen.pieces) == "The pool is too small."
    assert len(talk.screen.pieces) > 1
    assert (done.status, done.assistant, done.error) == ("complete", "The pool is too small.", "")
    assert done.exchange == kept.id
    assert (kept.user, kept.assistant) == (QUESTION, "The pool is too small.")
    assert kept.status == "complete"
    assert kept.tokens_used == 1500
    assert kept.cost_usd == pytest.approx(0.002)
    assert kept.model == f"{MODEL}-0613"
    assert kept.started is not None
    assert kept.completed is not None
    assert kept.started <= kept.completed
    [one] = listed
    assert one.conversation.title == "Why does the gateway time out after the deploy?"
    assert one.conversation.source == "chat"


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_what_memory_holds_reaches_the_model_before_its_answer(
    project: Path, server: ChatServer, kind: str
) -> None:
    before = held_before(project)
    makers = {"openai": None, "anthropic": anthropic_model, "ollama": ollama_model}
    maker = makers[kind]
    model = maker(MODEL, url=server.url) if maker else None
    with talking(project, server, model=model) as talk:
        talk.ask("What solved the gateway timeout after the deploy?")

    shown = json.dumps(server.requests[0].body)
    assert HEADING in shown
    assert before in shown
    assert "raising it to 50 solved" in shown
    assert [one.conversation.title for one in talk.screen.found[0].conversations] == [
        "Debug timeouts"
    ]


def test_the_conversation_under_way_is_never_recalled(project: Path, server: ChatServer) -> None:
    server.say(*(SOLUTION for _ in range(4)))
    with talking(project, server) as talk:
        talk.ask(QUESTION)
        talk.chat.memory.conversations.sync()
        talk.ask(QUESTION)
        again = talk.chat.session.id
    with talking(project, server) as talk:
        talk.ask(QUESTION)
    with talking(project, server, conversation=again[:6]) as talk:
        talk.ask(QUESTION)

    first, second, elsewhere, resumed = (sent(one) for one in server.requests)
    assert HEADING not in first
    assert HEADING not in second
    assert f"ID: {again}" in elsewhere
    assert f"ID: {again}" not in resumed


def test_a_conversation_goes_on_where_it_was_left(project: Path, server: ChatServer) -> None:
    server.say("It is the pool.", "Set it to 50.")
    with talking(project, server, rag=False) as talk:
        talk.ask("Why is it slow?")
        left = talk.chat.session.id
    with talking(project, server, rag=False, conversation=left[:8], title="Slow") as talk:
        talk.ask("And how do I mend it?")
        assert [one.user for one in talk.kept()] == ["Why is it slow?", "And how do I mend it?"]
        assert talk.chat.memory.conversations.conversation(left).title == "Slow"

    roles = [(one["role"], one["content"]) for one in server.requests[1].body["messages"][1:]]
    assert roles == [
        ("user", "Why is it slow?"),
        ("assistant", "It is the pool."),
        ("user", "And how do I mend it?"),
    ]
    with pytest.raises(NotFound), talking(project, server, conversation="ffffffff"):
        pass


def test_the_oldest_exchanges_go_first_where_not_all_fit_and_that_is_said_once(
    project: Path, server: ChatServer
) -> None:
    server.say(*("word " * 50 for _ in range(5)))
    with talking(project, server, rag=False, history_tokens=130) as talk:
        for n in range(5):
            talk.ask(f"prompt number {n}")

    shown = sent(server.requests[-1])
    assert "prompt number 3" in shown
    assert "prompt number 2" in shown
    assert "prompt number 1" not in shown
    [note] = talk.screen.notes
    assert "no longer sees its oldest exchanges" in note


# -- tools


def test_the_model_looks_into_memory_with_tools(project: Path, server: ChatServer) -> None:
    before = held_before(project)
    server.say(
        Answer("Let me look.", (Call("search_conversations", '{"query": "gateway timeout"}'),)),
        Answer(
            "",
            (
                Call(
                    "fetch_conversation_details",
                    json.dumps({"exchange_id": before, "include_full_transcript": True}),
                    "call_2",
                ),
            ),
        ),
        "You raised the pool to 50.",
    )
    with talking(project, server) as talk:
        done = talk.ask("something about colours, unrelated")
        [kept] = talk.kept()

    offered = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
    assert offered == ["search_conversations", "fetch_conversation_details"]
    found = server.requests[1].body["messages"][-1]
    assert (found["role"], found["tool_call_id"]) == ("tool", "call_1")
    assert before in found["content"]
    assert "not instructions" in found["content"]
    assert SOLUTION in server.requests[2].body["messages"][-1]["content"]
    assert done.tools == ("search_conversations", "fetch_conversation_details")
    assert kept.assistant == "Let me look.\n\nYou raised the pool to 50."
    assert kept.tokens_used == 3 * 150
    said, searched, fetched = kept.messages
    assert (said.role, said.content) == ("assistant", "Let me look.")
    assert (searched.role, searched.tool) == ("tool", "search_conversations")
    assert searched.content == f'{{"query":"gateway timeout"}}\ntold of {before}'
    # What is forgotten later must not stand here still.
    assert "pool" not in fetched.content


def test_what_is_wrong_with_a_call_is_told_to_the_model(project: Path, server: ChatServer) -> None:
    held_before(project)
    server.say("Hello.")
    with talking(project, server) as talk:
        talk.ask("Hello there")
        mine = talk.chat.session.id
        wrong = [
            Call("search_conversations", '{"query": ', "a"),
            Call("search_conversations", '{"question": "x"}', "b"),
            Call("search_conversations", '{"query": "x"}', "c"),
            Call("delete_everything", "{}", "d"),
            Call("fetch_conversation_details", "{}", "e"),
            Call("fetch_conversation_details", json.dumps({"conversation_id": mine}), "f"),
            Call("fetch_conversation_details", '{"exchange_id": "ffffffff"}', "g"),
        ]
        server.say(Answer("", tuple(wrong)), "I could not.")
        talk.ask("Try your tools")
        kept = talk.kept()[-1]

    told = [m["content"] for m in server.requests[-1].body["messages"] if m["role"] == "tool"]
    for text, expected in zip(
        told,
        ["not a JSON", "question", "too short", "no tool", "one of", "this conv", "there is no"],
        strict=True,
    ):
        assert expected in text
    assert [step.failed for step in kept.messages] == [True] * len(wrong)
    assert kept.status == "complete"


def test_a_model_that_only_asks_for_tools_is_stopped(project: Path, server: ChatServer) -> None:
    call = Answer("", (Call("search_conversations", '{"query": "anything"}'),))
    server.say(*(call for _ in range(50)))
    with talking(project, server) as talk:
        done = talk.ask(QUESTION)
        [kept] = talk.kept()

    assert len(server.requests) == 9
    assert done.status == kept.status == "failed"
    assert "times without answering" in done.error
    assert "answer now" in server.requests[-1].body["messages"][-1]["content"]
    assert "answer now" not in server.requests[-2].body["messages"][-1]["content"]


def test_a_server_that_knows_no_tools_is_asked_without(project: Path, server: ChatServer) -> None:
    server.unknown_fields = {"tools"}
    server.say("The pool.", "Still the pool.")
    held_before(project)
    with talking(project, server) as talk:
        assert talk.ask(QUESTION).status == "complete"
        assert talk.ask(QUESTION).status == "complete"

    assert "fetch_conversation_details" not in sent(server.requests[-1])


# -- when things fail


@pytest.mark.parametrize(
    ("fault", "came"), [("cut", True), ("fails_midway", True), ("500", False), ("401", False)]
)
def test_when_the_model_fails_what_had_come_is_kept_and_the_chat_goes_on(
    project: Path, server: ChatServer, fault: str, came: bool
) -> None:
    server.say(*("It is the connection pool of the gateway, I think." for _ in range(8)))
    server.fail(fault)
    with talking(project, server) as talk:
        done = talk.ask(QUESTION)
        server.fail(None)
        after = talk.ask("Once more, please")
        first, second = talk.kept()

    assert done.status == "failed"
    assert done.error
    assert first.status == "failed"
    assert first.user == QUESTION
    assert bool(first.assistant) == came
    assert first.assistant == "".join(talk.screen.pieces)[: len(first.assistant)]
    assert (after.status, second.status) == ("complete", "complete")
    # Part of an answer is shown as such; a question without any is not repeated.
    history = server.requests[-1].body["messages"][1:-1]
    assert [one["role"] for one in history] == (["user", "assistant"] if came else [])
    assert all("broken off" in one["content"] for one in history if one["role"] == "assistant")


def test_what_was_said_before_an_interrupt_is_kept(project: Path, server: ChatServer) -> None:
    server.say("It is the connection pool.", "Yes.")
    with talking(project, server) as talk:
        pieces: list[str] = []

        def interrupt(text: str) -> None:
            pieces.append(text)
            if len(pieces) == 3:
                raise KeyboardInterrupt  # as Ctrl-C does, in the middle

        talk.screen.piece = interrupt  # type: ignore[method-assign]
        done = talk.ask(QUESTION)
        [kept] = talk.kept()
        after = talk.ask("Go on")

    assert done.status == kept.status == "interrupted"
    assert kept.assistant == "".join(pieces[:3]).strip()
    assert after.status == "complete"


def test_memory_that_fails_is_one_line_and_the_answer_comes(
    project: Path, server: ChatServer, home: Path
) -> None:
    broken = home / "journal" / "conversations" / f"{Project(project).id}.jsonl"
    broken.mkdir(parents=True)
    with talking(project, server) as talk:
        first = talk.ask(QUESTION)
        talk.ask(QUESTION)

    assert (first.status, first.exchange) == ("complete", None)
    assert first.assistant.startswith("You said")
    assert sum("answered without memory" in note for note in talk.screen.notes) == 1
    assert sum("not saved" in note for note in talk.screen.notes) == 2


# -- what is not asked, and what is not kept


def test_with_retrieval_off_nothing_is_asked_of_the_index(
    project: Path, server: ChatServer, home: Path
) -> None:
    with open_ralph(project) as ralph:
        talk = ralph.conversations
        talk.exchange(talk.start("Debug timeouts"), user=QUESTION, assistant=SOLUTION)
    for more in ({"rag": False}, {"settings": {"rag_enabled": False}}):
        with talking(project, server, **more) as held:
            assert held.ask(QUESTION).related == ()
            assert held.ask(QUESTION).status == "complete"

    assert not list((home / "cache").rglob("*.sqlite3"))
    assert not any(HEADING in sent(one) or "memory" in sent(one) for one in server.requests)
    assert not any("tools" in one.body for one in server.requests)


def test_a_secret_is_redacted_in_the_journal(project: Path, server: ChatServer, home: Path) -> None:
    server.say(f"Do not tell anybody that it is {KEY}.")
    with talking(project, server) as talk:
        talk.ask(f"Is {KEY} a good key for the gateway?")
        [kept] = talk.kept()

    assert "[redacted:" in kept.user
    assert "[redacted:" in kept.assistant
    assert files_holding(home, KEY, KEY[:24]) == []


def test_nothing_private_is_in_any_file_or_shown_again(
    project: Path, server: ChatServer, home: Path
) -> None:
    held_before(project)
    with talking(project, server) as talk:
        talk.ask("A plain question about colours")
        talk.say("/private my xylophonist gateway timeout is due in March")
        talk.ask("Another plain question")
        assert len(talk.kept()) == 2

    assert "xylophonist" in sent(server.requests[1])
    assert "xylophonist" not in sent(server.requests[2])
    assert talk.screen.ended[1].exchange is None
    assert any("not saved" in note for note in talk.screen.notes)
    assert files_holding(home, "xylophonist") == []
    assert files_holding(project, "xylophonist") == []


def test_a_pause_keeps_and_recalls_nothing_until_its_end(
    project: Path, server: ChatServer, home: Path
) -> None:
    held_before(project)
    with talking(project, server) as talk:
        talk.ask("A plain question about colours")
        assert "Paused" in talk.say("/pause")[0]
        paused = talk.ask(f"{QUESTION} The xylophonist asks.")
        talk.ask("And again while paused")
        assert talk.say("/resume") == ["Memory is on again."]
        talk.ask(QUESTION)
        assert [one.user for one in talk.kept()] == ["A plain question about colours", QUESTION]

    assert paused.exchange is None
    first, second, third, fourth = (sent(one) for one in server.requests)
    assert HEADING not in second
    # The conversation hangs together while it is paused; afterwards its words are out.
    assert "xylophonist" in third
    assert "xylophonist" not in fourth
    assert HEADING in fourth
    assert files_holding(home, "xylophonist") == []
    assert first


def test_a_pause_of_the_project_holds_in_the_chat_too(
    project: Path, server: ChatServer, home: Path
) -> None:
    held_before(project)
    with talking(project, server) as talk:
        pause(home, project=Project(project))
        assert talk.ask(QUESTION).exchange is None
        assert "memory is paused in this project" in talk.say("/resume")[1]
        (home / "paused.json").write_text("nonsense", encoding="utf-8")
        assert talk.ask(QUESTION).exchange is None

    assert HEADING not in sent(server.requests[0])
    assert any("so nothing is saved" in note for note in talk.screen.notes)


def test_without_a_project_a_chat_is_kept_apart(tmp_path: Path, project: Path) -> None:
    held_before(project)
    with talking(tmp_path, model=EchoModel()) as talk:
        assert talk.ask(QUESTION).related == ()
        assert talk.ask(QUESTION).status == "complete"
    with talking(tmp_path, model=EchoModel()) as talk:
        assert len(talk.ask(QUESTION).related) == 1
    with talking(tmp_path, model=EchoModel(), everywhere=True) as talk:
        assert len(talk.ask(QUESTION).related) == 3
    assert not (tmp_path / ".ralph").exists()
