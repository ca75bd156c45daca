"""HTTP to a server that hangs, drips, breaks off or talks nonsense: told in time, in one line."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from embedding_server import EmbeddingServer, running
from journaling import run_child

from ralph.errors import EmbedderOff
from ralph.wire import Deadline, Reply, Wire, _proxy, _retry_after_s

LONG = 60.0
SHORT = 0.3


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with running() as started:
        yield started


@pytest.fixture
def waits() -> list[float]:
    """What the wire would have slept."""
    return []


@pytest.fixture
def wire(server: EmbeddingServer, waits: list[float]) -> Wire[EmbedderOff]:
    return Wire(server.url, name="The box", todo="Start it.", error=EmbedderOff, sleep=waits.append)


def embed(wire: Wire[EmbedderOff], seconds: float = LONG) -> Reply:
    body = b'{"model": "nomic-embed-text", "input": ["one"]}'
    return wire.call("POST", "/api/embed", body, deadline=Deadline(seconds))


def refused(wire: Wire[EmbedderOff], seconds: float = LONG) -> str:
    with pytest.raises(EmbedderOff) as caught:
        embed(wire, seconds)
    assert caught.value.todo
    return caught.value.what


def test_an_answer_comes_with_its_status_and_body(wire: Wire[EmbedderOff]) -> None:
    reply = embed(wire)
    assert reply.status == 200
    assert reply.body.startswith(b'{"model"')
    assert wire.call("GET", "/nowhere", deadline=Deadline(LONG)).status == 404


def test_one_connection_serves_many_requests(
    wire: Wire[EmbedderOff], server: EmbeddingServer
) -> None:
    for _ in range(5):
        assert embed(wire).status == 200
    assert len(server.requests) == 5
    assert server.connections == 1


def test_threads_do_not_share_a_connection(
    wire: Wire[EmbedderOff], server: EmbeddingServer
) -> None:
    server.fail("slow")
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(embed(wire))) for _ in range(3)]
    for thread in threads:
        thread.start()
    server.go_on.set()
    for thread in threads:
        thread.join()
    assert [reply.status for reply in replies] == [200, 200, 200]


def test_a_connection_the_server_has_closed_is_made_anew(
    wire: Wire[EmbedderOff], server: EmbeddingServer
) -> None:
    embed(wire)
    server.fail("reset", times=1)
    assert embed(wire).status == 200
    assert server.connections == 2


@pytest.mark.parametrize("fault", ["hang", "drip", "drip_head"])
def test_a_server_that_does_not_finish_is_given_up(
    wire: Wire[EmbedderOff], server: EmbeddingServer, fault: str
) -> None:
    server.fail(fault, times=1)
    assert refused(wire, SHORT) == "The box gave no answer within 0.3 s"
    assert embed(wire).status == 200  # over another connection


def test_a_server_that_never_accepts_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        wire = Wire(url, name="The box", todo="Start it.", error=EmbedderOff)
        assert refused(wire, SHORT) == "The box gave no answer within 0.3 s"


def test_nobody_at_the_port_is_told_with_its_url_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(EmbedderOff) as caught:
        embed(Wire(url, name="The box", todo="Start it.", error=EmbedderOff))
    assert str(caught.value) == f"{url}: The box is not reachable. Start it."


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("reset", "The box broke off the connection"),
        ("no_http", "The box sent an invalid HTTP response (BadStatusLine)"),
        ("huge", "The box sent more than 32 MB"),
        ("redirect", "The box redirected the request (307)"),
    ],
)
def test_nonsense_is_told_in_one_line(
    wire: Wire[EmbedderOff], server: EmbeddingServer, fault: str, told: str
) -> None:
    server.fail(fault)
    assert refused(wire) == told
    assert not server.asked("/elsewhere")


@pytest.mark.parametrize(
    "url", ["", "nowhere", "ftp://127.0.0.1/", "http://", "http://127.0.0.1:99999", "http://[::1"]
)
def test_what_is_no_url_is_told(url: str) -> None:
    assert (
        refused(Wire(url, name="The box", todo="Start it.", error=EmbedderOff))
        == "The box has no usable URL"
    )


def test_a_server_without_tls_is_not_trusted_over_https(server: EmbeddingServer) -> None:
    wire = Wire(
        server.url.replace("http:", "https:"), name="The box", todo="Start it.", error=EmbedderOff
    )
    assert refused(wire).startswith("The box failed the TLS check (")
    assert server.requests == []


def test_a_password_in_the_url_is_sent_and_never_told(server: EmbeddingServer) -> None:
    url = server.url.replace("//", "//me:se%20cret@")
    wire = Wire(url, name="The box", todo="Start it.", error=EmbedderOff)
    embed(wire)
    given = server.requests[0].headers["authorization"]
    assert given == "Basic " + base64.b64encode(b"me:se cret").decode()
    assert wire.safe_url == server.url
    server.fail("reset")
    with pytest.raises(EmbedderOff) as caught:
        embed(wire)
    assert "se%20cret" not in str(caught.value)
    assert (
        "secret" not in Wire("http://me:secret@[::1", name="", todo="", error=EmbedderOff).safe_url
    )


# -- a server that is busy


@pytest.mark.parametrize("fault", ["429", "500", "503"])
def test_a_busy_server_is_asked_again_later_and_later(
    wire: Wire[EmbedderOff], server: EmbeddingServer, waits: list[float], fault: str
) -> None:
    server.fail(fault, times=3)
    assert embed(wire).status == 200
    assert waits == [0.5, 1.0, 2.0]
    assert len(server.requests) == 4


def test_a_server_that_stays_busy_is_left_alone_in_the_end(
    wire: Wire[EmbedderOff], server: EmbeddingServer, waits: list[float]
) -> None:
    server.fail("429")
    assert embed(wire).status == 429
    assert waits == [0.5, 1.0, 2.0, 4.0]
    assert len(server.requests) == 5


def test_it_waits_as_long_as_the_server_asks(
    wire: Wire[EmbedderOff], server: EmbeddingServer, waits: list[float]
) -> None:
    server.fail("429", times=1)
    server.retry_after = "7"
    assert embed(wire).status == 200
    assert waits == [7.0]


def test_a_wait_beyond_the_deadline_is_none(
    wire: Wire[EmbedderOff], server: EmbeddingServer, waits: list[float]
) -> None:
    server.fail("429")
    server.retry_after = "120"
    assert embed(wire, seconds=2.0).status == 429
    assert waits == []
    assert len(server.requests) == 1


def test_an_account_that_is_used_up_is_not_asked_again(
    wire: Wire[EmbedderOff], server: EmbeddingServer, waits: list[float]
) -> None:
    server.fail("quota")
    assert embed(wire).complaint() == "You exceeded your current quota"
    assert waits == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, None), ("", None), ("0", 0.0), ("1.5", 1.5), ("-1", None), ("inf", None), ("x", None)],
)
def test_what_the_server_asks_us_to_wait_is_read(text: str | None, seconds: float | None) -> None:
    assert _retry_after_s(text) == seconds


def test_a_date_to_wait_for_is_read() -> None:
    assert _retry_after_s(formatdate(0, usegmt=True)) == 0.0
    assert (_retry_after_s("Fri, 31 Dec 2100 23:59:59 GMT") or 0.0) > 1e6


# -- what a server says of itself


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": "no such model"}', "no such model"),
        (b'{"error": {"message": "bad\\nkey sk-1234 given"}}', "bad key [key] given"),
        (b'{"error": {"code": 3}}', ""),
        (b"<html>", ""),
        (b"[]", ""),
        (b'{"error": "' + b"x" * 500 + b'"}', "x" * 197 + "..."),
        (b'{"error": "\\u001b[31mred\\u202e"}', "[31mred"),
    ],
)
def test_a_complaint_is_one_short_plain_line_without_our_key(body: bytes, told: str) -> None:
    assert Reply(400, {}, body).complaint("sk-1234") == told


def test_what_runs_on_this_machine_is_never_asked_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://user:pass@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert _proxy("127.0.0.1") is _proxy("localhost") is _proxy("::1") is None
    assert _proxy("inside.example") is None
    proxy = _proxy("api.example")
    assert proxy is not None
    assert (proxy.hostname, proxy.port, proxy.username) == ("proxy.example", 3128, "user")


def test_a_plain_http_server_is_asked_directly_whatever_the_environment_says(
    wire: Wire[EmbedderOff], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert embed(wire).status == 200


def test_importing_it_loads_no_http_client() -> None:
    script = """
    import sys
    import ralph.wire
    from ralph.index.embedders import ollama, openai
    print(*[name for name in ("http.client", "ssl", "httpx", "numpy") if name in sys.modules])
    """
    assert run_child(script) == [""]
