"""A language model that is down, slow, busy, broken off or talks nonsense: told in one line."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from chat_server import (
    FAULTS,
    KEY,
    MODEL,
    Answer,
    ChatServer,
    anthropic_model,
    ollama_model,
    openai_model,
)

from ralph.chat.model import ChatTurn, ModelAccess
from ralph.chat.providers import HttpModel
from ralph.errors import MemoryOff, ModelOff
from tests.chat.test_chat_model import HELLO, SERVED

LONG = 60.0
SHORT = 0.5
STORY = "Once upon a time there was a fox who lived in a wood. " * 20


@pytest.fixture
def waits() -> list[float]:
    """What the model would have slept."""
    return []


@pytest.fixture(params=SERVED)
def model(
    request: pytest.FixtureRequest, server: ChatServer, waits: list[float]
) -> Iterator[HttpModel]:
    access = ModelAccess(KEY, sleep=waits.append)
    yield SERVED[request.param](MODEL, url=server.url, access=access)
    assert all_over()


def all_over() -> bool:
    """Whether nothing of a request outlives it: each was finished or cut."""
    threads = [one for one in threading.enumerate() if one.name == "ralph-wire"]
    for thread in threads:
        thread.join(LONG)
    return not any(thread.is_alive() for thread in threads)


def refused(model: HttpModel, timeout_s: float = LONG) -> ModelOff:
    with pytest.raises(ModelOff) as caught:
        model.answer(HELLO, timeout_s=timeout_s)
    error = caught.value
    assert error.where
    assert error.todo
    assert "\n" not in str(error)
    return error


def test_a_model_is_optional_as_memory_is() -> None:
    assert issubclass(ModelOff, MemoryOff)


def test_nobody_there_is_told_with_the_url_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    error = refused(ollama_model(MODEL, url=url))
    assert str(error) == f"{url}/v1: Ollama is not reachable. Start it: ollama serve"
    error = refused(openai_model(MODEL, url=url, access=ModelAccess(role="summary")))
    told = f"{url}/v1: the model's server is not reachable. Check summary_base_url and the network."
    assert str(error) == told
    assert error.fault == "server"


@pytest.mark.parametrize(
    ("fault", "told", "kind"),
    [
        ("401", "rejected the key (401: Incorrect API key provided: [key])", "setting"),
        ("402", "has no credit left (402: Payment required)", "setting"),
        ("quota", "has no credit left (429: You exceeded your quota)", "setting"),
        ("413", "says the prompt is too long (413)", "prompt"),
        (
            "too_long",
            "says the prompt is too long (400: prompt is too long: 210000 tokens > 200000 maximum)",
            "prompt",
        ),
        ("400", "refused the request (400: the request is not what I expect)", "prompt"),
        ("429", "is rate limiting us (429: Rate limit reached)", "server"),
        ("500", "cannot answer now (500: the runner has terminated)", "server"),
        ("503", "cannot answer now (503)", "server"),
        ("529", "cannot answer now (529: Overloaded)", "server"),
        ("reset", "broke off the connection", "server"),
        ("garbled", "sent an answer that cannot be read (JSON is malformed", "server"),
        ("not_json", "sent an answer that cannot be read (JSON is malformed", "server"),
        ("other_json", "sent an answer that cannot be read (Expected `", "server"),
        ("nothing", "gave no answer", "server"),
        ("huge", "sent more than 32 MB", "server"),
        ("redirect", "redirected the request (307)", "server"),
    ],
)
def test_every_fault_is_told(
    model: HttpModel, server: ChatServer, fault: str, told: str, kind: str
) -> None:
    server.fail(fault)
    error = refused(model)
    assert told in error.what
    assert (error.fault, error.partial) == (kind, "")
    server.fail(None)
    assert model.answer(HELLO, timeout_s=LONG).text == "You said: Hello!"


def test_a_missing_model_is_told_with_how_to_get_it(server: ChatServer) -> None:
    error = refused(ollama_model("llama9", url=server.url))
    assert error.what == 'Ollama does not know llama9 (404: model "llama9" not found)'
    assert error.todo == "Run: ollama pull llama9"
    error = refused(anthropic_model("claude-9", url=server.url))
    assert error.todo == "Check chat_model and chat_base_url."
    assert error.fault == "setting"


def test_a_refused_key_is_told_with_the_variable_it_comes_from(server: ChatServer) -> None:
    server.key = "another"
    for variable in ("RALPH_CHAT_API_KEY", "RALPH_SUMMARY_API_KEY", "RALPH_OPENAI_API_KEY"):
        error = refused(openai_model(MODEL, url=server.url, access=ModelAccess(KEY, variable)))
        assert error.todo == f"Check {variable}."
        error = refused(openai_model(MODEL, url=server.url, access=ModelAccess(None, variable)))
        assert error.todo == f"Set {variable}."
    assert len(server.requests) == 6


def test_a_key_that_is_needed_and_not_there_is_told_without_asking() -> None:
    for model in (openai_model("gpt-4o-mini"), anthropic_model("claude-haiku-4-5")):
        error = refused(model)
        assert error.what in ("OpenAI needs a key", "Anthropic needs a key")
        assert (error.todo, error.fault) == ("Set RALPH_CHAT_API_KEY.", "setting")


def test_an_empty_answer_is_none(model: HttpModel, server: ChatServer) -> None:
    server.say(Answer(""), Answer(" \n"), Answer("", stop="length"))
    server.say(Answer("", stop="content_filter"))
    for _ in range(2):
        assert refused(model).what.endswith("gave an empty answer")
    assert "Raise chat_max_tokens" in str(refused(model))
    error = refused(model)
    assert error.what.endswith("refuses to answer this")
    assert error.fault == "prompt"


# -- time


def test_a_server_that_says_nothing_is_given_up(model: HttpModel, server: ChatServer) -> None:
    server.fail("hang")
    error = refused(model, SHORT)
    assert error.what.endswith("gave no answer within 0.5 s")
    assert error.todo == "If it is just slow, raise chat_timeout_s."
    assert error.partial == ""


def test_a_server_that_stalls_is_given_up_and_what_had_come_is_kept(
    model: HttpModel, server: ChatServer
) -> None:
    server.fail("stall")
    for seconds in (0.5, 2.0, 8.0, 32.0):  # a slow machine may need longer for the beginning
        server.say(STORY)
        error = refused(model, seconds)
        if error.partial:
            break
    assert error.what.endswith(f"did not finish its answer within {seconds:g} s")
    assert STORY.startswith(error.partial)
    assert 0 < len(error.partial) < len(STORY)


@pytest.mark.parametrize("fault", ["cut", "ended"])
def test_what_had_come_of_a_cut_answer_is_kept(
    model: HttpModel, server: ChatServer, fault: str
) -> None:
    server.fail(fault)
    server.say(STORY)
    error = refused(model)
    assert "broke off" in error.what
    assert STORY.startswith(error.partial)
    assert 100 < len(error.partial) < len(STORY)


def test_a_failure_in_mid_answer_is_told_and_what_had_come_is_kept(
    model: HttpModel, server: ChatServer
) -> None:
    server.fail("fails_midway")
    server.say(STORY)
    error = refused(model)
    assert error.what.endswith("failed in the middle of its answer (Overloaded for [key])")
    assert 100 < len(error.partial) < len(STORY)


def test_a_server_that_does_not_hang_up_is_not_waited_for(
    model: HttpModel, server: ChatServer
) -> None:
    server.fail("lingers")
    assert model.answer(HELLO, timeout_s=3600).text == "You said: Hello!"
    assert all_over()


# -- a server that is busy


@pytest.mark.parametrize("fault", ["429", "500", "503", "529"])
def test_a_busy_server_is_asked_again_later(
    model: HttpModel, server: ChatServer, waits: list[float], fault: str
) -> None:
    server.fail(fault, times=3)
    assert model.answer(HELLO, timeout_s=LONG).text == "You said: Hello!"
    assert waits == [0.5, 1.0, 2.0]


def test_it_waits_as_long_as_the_server_asks_but_not_beyond_its_time(
    model: HttpModel, server: ChatServer, waits: list[float]
) -> None:
    server.fail("429", times=1)
    server.retry_after = "7"
    assert model.answer(HELLO, timeout_s=LONG).text
    assert waits == [7.0]
    server.fail("429")
    server.retry_after = "120"
    error = refused(model)
    assert error.todo == "Wait 120 s."
    assert waits == [7.0]


def test_what_was_begun_is_not_asked_again(
    model: HttpModel, server: ChatServer, waits: list[float]
) -> None:
    for fault in ("cut", "reset", "fails_midway", "garbled"):
        server.requests.clear()
        server.fail(fault, times=1)
        refused(model)
        assert len(server.requests) == 1
    assert waits == []


# -- secrets


@pytest.mark.parametrize("fault", FAULTS)
def test_the_key_is_in_no_error_no_log_and_no_repr(
    model: HttpModel, server: ChatServer, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    caplog.set_level(logging.DEBUG)
    server.key = KEY
    server.fail(fault)
    if fault != "lingers":
        error = refused(model, SHORT if fault in ("hang", "stall") else LONG)
        assert KEY not in f"{error} {error!r} {vars(error)}"
        seen: BaseException | None = error
        while seen is not None:
            assert KEY not in f"{seen!r}"
            seen = seen.__cause__ or seen.__context__
    assert KEY not in caplog.text
    assert KEY not in f"{model!r} {ModelAccess(KEY)!r}"


def test_a_key_that_no_header_can_hold_is_told_without_it(server: ChatServer) -> None:
    for key in ("sk-one\nsk-two", "sk-ключ"):
        for make in SERVED.values():
            error = refused(make(MODEL, url=server.url, access=ModelAccess(key)))
            assert "such a key" in error.what
            assert key not in f"{error} {error.__context__!r}"
    assert server.requests == []


def test_a_prompt_is_sent_whole_however_large(model: HttpModel, server: ChatServer) -> None:
    text = "Zoë " * 500_000
    server.say("That is long.")
    assert model.answer([ChatTurn("user", text)], timeout_s=LONG).text == "That is long."
    [message] = server.requests[0].body["messages"]
    assert message["content"] in (text, [{"type": "text", "text": text}])
