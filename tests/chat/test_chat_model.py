"""Every language model behind one port: asked, streamed, given tools, and priced.

RALPH_TEST_CHAT_URL, with RALPH_TEST_CHAT_MODEL and RALPH_TEST_CHAT_KEY, adds a real server that
speaks OpenAI's protocol.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from chat_server import (
    ANTHROPIC,
    MODEL,
    OPENAI,
    Answer,
    Call,
    ChatServer,
    anthropic_model,
    ollama_model,
    openai_model,
)

from ralph.chat.model import (
    ChatModel,
    ChatTurn,
    EchoModel,
    ModelAccess,
    ModelAnswer,
    Price,
    ToolCall,
    ToolSpec,
)
from ralph.chat.providers import HttpModel
from ralph.errors import BadInput

LONG = 60.0
REAL_URL = os.environ.get("RALPH_TEST_CHAT_URL", "")
REAL_MODEL = os.environ.get("RALPH_TEST_CHAT_MODEL", "")
REAL_KEY = os.environ.get("RALPH_TEST_CHAT_KEY")
SERVED: dict[str, Callable[..., HttpModel]] = {
    "openai": openai_model,
    "anthropic": anthropic_model,
    "ollama": ollama_model,
}
WEATHER = ToolSpec(
    "get_weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
HELLO = [ChatTurn("system", "Be brief."), ChatTurn("user", "Hello!")]


@pytest.fixture(params=SERVED)
def served(request: pytest.FixtureRequest, server: ChatServer) -> HttpModel:
    return SERVED[request.param](MODEL, url=server.url)


@pytest.fixture(params=[*SERVED, "echo", *(["real"] if REAL_URL else [])])
def model(request: pytest.FixtureRequest, server: ChatServer) -> ChatModel:
    if request.param == "echo":
        return EchoModel()
    if request.param == "real":
        return openai_model(REAL_MODEL, url=REAL_URL, access=ModelAccess(REAL_KEY))
    return SERVED[request.param](MODEL, url=server.url)


def ask(model: ChatModel, *turns: ChatTurn, **more: Any) -> ModelAnswer:
    return model.answer(turns or HELLO, timeout_s=LONG, **more)


# -- what holds for every model


def test_an_answer_comes_with_its_text_tokens_and_reason(model: ChatModel) -> None:
    said = ask(model)
    assert said.text.strip()
    assert said.stop == "end"
    assert said.calls == ()
    assert said.model
    assert said.tokens_in is not None
    assert said.tokens_in > 0
    assert said.tokens_out is not None
    assert said.tokens_out > 0


def test_the_text_that_streams_is_the_text_of_the_answer(model: ChatModel) -> None:
    pieces: list[str] = []
    said = ask(model, ChatTurn("user", "Say two\nlines, Zoë 🦊."), on_text=pieces.append)
    assert "".join(pieces) == said.text
    assert len(pieces) > 1


def test_a_conversation_goes_on(model: ChatModel) -> None:
    first = ask(model)
    answer = ChatTurn("assistant", first.text)
    said = ask(model, *HELLO, answer, ChatTurn("user", "And what did I say first?"))
    assert said.text.strip()


def test_a_tool_makes_the_round(model: ChatModel, server: ChatServer) -> None:
    server.say(Answer(calls=(Call("get_weather", '{"city": "Málaga"}'),)), "It is sunny.")
    order = ChatTurn("user", '!get_weather {"city": "Málaga"}')
    called = ask(model, order, tools=[WEATHER])
    assert called.stop == "tools"
    [call] = called.calls
    assert call.id
    assert (call.name, call.arguments, call.unread) == ("get_weather", {"city": "Málaga"}, "")
    told = ChatTurn("tool", "sunny, 31 degrees", call_id=call.id)
    answer = ChatTurn("assistant", called.text, called.calls)
    said = ask(model, order, answer, told, tools=[WEATHER])
    assert "sunny" in said.text
    assert said.stop == "end"


@pytest.mark.parametrize("turns", [[], HELLO[:1], [*HELLO, ChatTurn("assistant", "Hi.")]])
def test_what_leaves_nothing_to_answer_is_refused(model: ChatModel, turns: list[ChatTurn]) -> None:
    with pytest.raises(BadInput, match="nothing to answer"):
        model.answer(turns, timeout_s=LONG)


@pytest.mark.parametrize("kind", [BrokenPipeError, TimeoutError, KeyboardInterrupt])
def test_a_listener_that_fails_ends_the_answer_with_its_own_error(
    model: ChatModel, kind: type[BaseException]
) -> None:
    def broken(piece: str) -> None:
        raise kind("nobody reads")

    with pytest.raises(kind, match="nobody reads"):
        ask(model, on_text=broken)
    assert ask(model).text.strip()


def test_it_says_what_it_costs(model: ChatModel) -> None:
    assert model.costs
    assert model.takes_tools


# -- what goes over the wire


def test_openai_is_asked_in_its_own_format(server: ChatServer) -> None:
    access = ModelAccess("k-1")
    called = ToolCall("call_1", "get_weather", {"city": "Oslo"})
    turns = [
        *HELLO,
        ChatTurn("assistant", "", (called, ToolCall("call_2", "get_weather", unread="{broken"))),
        ChatTurn("tool", "rain", call_id="call_1"),
        ChatTurn("tool", "no such city", call_id="call_2", failed=True),
    ]
    openai_model(MODEL, url=server.url, access=access, max_tokens=50).answer(
        turns, tools=[WEATHER], timeout_s=LONG
    )
    [asked] = server.requests
    assert asked.path == OPENAI
    assert asked.headers["authorization"] == "Bearer k-1"
    function = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    broken = {"name": "get_weather", "arguments": "{broken"}
    assert asked.body == {
        "model": MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello!"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": function},
                    {"id": "call_2", "type": "function", "function": broken},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "tool", "tool_call_id": "call_2", "content": "no such city"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "The weather of a city.",
                    "parameters": WEATHER.parameters,
                },
            }
        ],
    }


def test_anthropic_is_asked_in_its_own_format(server: ChatServer) -> None:
    turns = [
        ChatTurn("system", "Be brief."),
        ChatTurn("assistant", "Welcome! \n"),
        ChatTurn("user", "Hello!"),
        ChatTurn("user", " "),
        ChatTurn("system", "Be kind."),
        ChatTurn("assistant", "", (ToolCall("call_1", "get_weather", {"city": "Oslo"}),)),
        ChatTurn("tool", "no such city", call_id="call_1", failed=True),
        ChatTurn("user", "Well?"),
    ]
    anthropic_model(
        MODEL, url=server.url + "/v1/", access=ModelAccess("k-1"), max_tokens=50
    ).answer(turns, tools=[WEATHER], timeout_s=LONG)
    [asked] = server.requests
    assert asked.path == ANTHROPIC
    assert asked.headers["x-api-key"] == "k-1"
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in asked.headers
    used = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}}
    answered = {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": "no such city",
        "is_error": True,
    }
    before = "[earlier messages are left out]"
    assert asked.body == {
        "model": MODEL,
        "stream": True,
        "max_tokens": 50,
        "system": "Be brief.\n\nBe kind.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": before}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Welcome!"}]},
            {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
            {"role": "assistant", "content": [used]},
            {"role": "user", "content": [answered, {"type": "text", "text": "Well?"}]},
        ],
        "tools": [
            {
                "name": "get_weather",
                "description": "The weather of a city.",
                "input_schema": WEATHER.parameters,
            }
        ],
    }


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_base_url_may_be_written_as_people_do(server: ChatServer, path: str) -> None:
    assert ask(openai_model(MODEL, url=server.url + path)).text == "You said: Hello!"


def test_without_a_key_none_is_sent(served: HttpModel, server: ChatServer) -> None:
    ask(served)
    assert not {"authorization", "x-api-key"} & server.requests[0].headers.keys()


# -- what servers differ in


def test_several_calls_are_told_apart(served: HttpModel, server: ChatServer) -> None:
    for places in ("counted", "same", "none"):
        server.call_places = places
        calls = (Call("get_weather", '{"city": "Oslo"}', "a"), Call("get_weather", "", "b"))
        server.say(Answer("I look it up.", calls))
        said = ask(served, tools=[WEATHER])
        assert said.text == "I look it up."
        assert [(c.id, c.arguments) for c in said.calls] == [("a", {"city": "Oslo"}), ("b", {})]


@pytest.mark.parametrize("arguments", ['{"city": "Os', "[1, 2]", "Oslo"])
def test_arguments_that_are_no_object_are_kept_as_they_came(
    served: HttpModel, server: ChatServer, arguments: str
) -> None:
    server.say(Answer(calls=(Call("get_weather", arguments),)))
    [call] = ask(served, tools=[WEATHER]).calls
    assert (call.arguments, call.unread) == ({}, arguments)


def test_a_call_that_comes_without_an_id_gets_one(server: ChatServer) -> None:
    server.say(Answer(calls=(Call("get_weather", "{}", ""),)))
    server.say(Answer(calls=(Call("get_weather", "{}", ""),)))
    model = ollama_model(MODEL, url=server.url)
    [first], [second] = ask(model, tools=[WEATHER]).calls, ask(model, tools=[WEATHER]).calls
    assert first.id
    assert first.id != second.id


def test_an_answer_in_one_piece_is_an_answer(server: ChatServer) -> None:
    server.streams = False
    server.say(Answer("Hi.", (Call("get_weather", '{"city": "Oslo"}'),)))
    pieces: list[str] = []
    said = ask(openai_model(MODEL, url=server.url), tools=[WEATHER], on_text=pieces.append)
    assert (said.text, said.tokens_in, pieces) == ("Hi.", 120, ["Hi."])
    assert said.calls == (ToolCall("call_1", "get_weather", {"city": "Oslo"}),)


def test_a_stream_without_a_farewell_is_whole(server: ChatServer) -> None:
    server.farewell = False
    assert ask(openai_model(MODEL, url=server.url)).text == "You said: Hello!"


def test_fields_that_a_server_does_not_know_are_left_out_from_then_on(server: ChatServer) -> None:
    server.unknown_fields = {"stream_options", "max_tokens", "max_completion_tokens", "tools"}
    model = openai_model(MODEL, url=server.url)
    assert model.takes_tools
    assert ask(model, tools=[WEATHER]).text == "You said: Hello!"
    assert not model.takes_tools
    assert len(server.requests) == 5
    assert ask(model, tools=[WEATHER]).text == "You said: Hello!"
    assert len(server.requests) == 6
    assert server.requests[-1].body.keys() == {"model", "messages", "stream"}


def test_an_answer_that_reached_its_limit_says_so(served: HttpModel, server: ChatServer) -> None:
    server.say(Answer("It is beca", stop="length"))
    said = ask(served)
    assert (said.text, said.stop) == ("It is beca", "length")


def test_a_refusal_with_words_is_an_answer(served: HttpModel, server: ChatServer) -> None:
    server.say(Answer("I would rather not.", stop="content_filter"))
    said = ask(served)
    assert (said.text, said.stop) == ("I would rather not.", "refused")


# -- what it costs


def test_a_set_price_makes_the_cost(server: ChatServer) -> None:
    for make in SERVED.values():
        said = ask(make(MODEL, url=server.url, price=Price(2.0, 10.0)))
        assert (said.tokens_in, said.tokens_out) == (120, 30)
        assert said.cost_usd == pytest.approx(120 * 2e-6 + 30 * 10e-6)


def test_a_price_nobody_knows_is_no_price_and_is_said(server: ChatServer) -> None:
    model = openai_model("llama-9", url=server.url, access=ModelAccess(role="summary"))
    assert model.costs == ("price unknown: not in Ralph's price list, so no cost is counted")
    assert ask(openai_model(MODEL, url=server.url)).cost_usd is None


@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "openai/gpt-4o-mini"])
def test_a_listed_model_has_its_price_at_any_address(server: ChatServer, name: str) -> None:
    assert openai_model(name, url=server.url).costs == "$0.15 in, $0.6 out per million tokens"


def test_tokens_that_are_not_told_make_no_cost(served: HttpModel, server: ChatServer) -> None:
    server.say(Answer("Hi.", told_tokens=False))
    said = ask(served)
    assert (said.tokens_in, said.tokens_out, said.cost_usd) == (None, None, None)


def test_a_model_on_this_machine_costs_nothing(server: ChatServer) -> None:
    model = ollama_model(MODEL, url=server.url)
    assert ask(model).cost_usd == 0.0
    assert model.costs == "free"


def test_the_makers_own_models_have_their_list_price() -> None:
    assert openai_model("gpt-4o-mini").costs == "$0.15 in, $0.6 out per million tokens"
    dated = anthropic_model("claude-haiku-4-5-20251001")
    assert dated.costs == "$1 in, $5 out per million tokens"


# -- echo


def test_echo_repeats_what_memory_found_and_what_was_said() -> None:
    section = "## Related Past Conversations\n\n### Timeouts (a1b2)\nWe raised it."
    asked = ChatTurn("user", f"How did we fix it?\n\n{section}")
    said = ask(EchoModel(), ChatTurn("system", "You are kind."), asked)
    assert said.text == (
        "Memory found:\n\n## Related Past Conversations\n\n### Timeouts (a1b2)\nWe raised it.\n\n"
        "You said: How did we fix it?"
    )
    assert ask(EchoModel()).text == "Memory found nothing.\n\nYou said: Hello!"


def test_what_echo_repeated_before_is_not_found_again() -> None:
    section = "## Related Past Conversations\n\n### Timeouts (a1b2)\nWe raised it."
    first = ChatTurn("user", f"How did we fix it?\n\n{section}")
    answered = ChatTurn("assistant", ask(EchoModel(), first).text)
    later = ask(
        EchoModel(), ChatTurn("user", "How did we fix it?"), answered, ChatTurn("user", "And now?")
    )
    assert later.text == "Memory found nothing.\n\nYou said: And now?"


def test_echo_calls_only_what_is_on_offer() -> None:
    said = ask(EchoModel(), ChatTurn("user", "!get_weather {}"))
    assert said.calls == ()
    assert said.text.endswith("You said: !get_weather {}")
    failed = [ChatTurn("user", "!get_weather {}"), ChatTurn("tool", "no", call_id="1", failed=True)]
    assert ask(EchoModel(), *failed).text == "The tool failed:\nno"
