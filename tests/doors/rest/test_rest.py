"""The server as programs use it: every kind saved, found and forgotten; limits, errors, figures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from commanding import Line
from teaming import OWN, Team, submit, team
from workers_ground import until

from ralph.doors.rest.app import ServerLimits, TeamServer
from ralph.memory.ralph import open_ralph


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Team]:
    with team(tmp_path) as made:
        yield made


def good(answer: Any) -> Any:
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def test_notes_and_iterations_are_saved_found_shown_and_forgotten(served: Team) -> None:
    token = served.token()
    note = good(served.call("POST", "/notes", token, json={"text": "Deploys happen on Tuesdays."}))
    assert note["fresh"]
    done = {"feature": "auth", "summary": "The captcha is gone.", "outcome": "success"}
    [saved] = good(served.call("POST", "/iterations", token, json=[done]))
    for question, identity in (("deploys+Tuesdays", note["id"]), ("captcha+gone", saved["id"])):
        hits = good(served.call("GET", f"/search?q={question}", token))["hits"]
        assert hits[0]["id"] == identity
        assert good(served.call("GET", f"/records/{identity}", token))["id"] == identity
    assert note["id"] in [hit["id"] for hit in good(served.call("GET", "/recent", token))["hits"]]
    looked = good(served.call("DELETE", f"/records/{note['id']}?dry_run=true", token))
    assert (looked["forgotten"], looked["ids"]) == (0, [note["id"]])
    assert good(served.call("DELETE", f"/records/{note['id']}", token))["forgotten"] == 1
    assert served.call("GET", f"/records/{note['id']}", token).status_code == 404
    with open_ralph(served.own.root) as ralph:
        assert ralph.get(saved["id"]).record.summary == "The captcha is gone."


def test_a_list_of_iterations_is_saved_whole_or_not_at_all(served: Team) -> None:
    token = served.token("write")
    before = good(served.call("GET", "/recent?count=50", token))
    bad = [{"feature": "auth", "summary": "Fine."}, {"feature": "auth", "outcome": "splendid"}]
    assert served.call("POST", "/iterations", token, json=bad).status_code == 400
    assert good(served.call("GET", "/recent?count=50", token)) == before


def test_the_plan_is_read_and_changed_by_its_own_rules(served: Team) -> None:
    token = served.token("write")
    made = good(served.call("POST", "/features", token, json={"name": "mail"}))
    assert made["name"] == "mail"
    task = {"feature": "mail", "title": "Send a receipt"}
    identity = good(served.call("POST", "/tasks", token, json=task))["id"]
    change = {"status": "done", "comment": "Sent."}
    changed = good(served.call("PATCH", f"/tasks/{identity}", token, json=change))
    assert changed["status"] == "done"
    assert changed["comments"][-1]["text"] == "Sent."
    wrong = served.call("PATCH", f"/tasks/{identity}", token, json={"status": "splendid"})
    assert wrong.status_code == 400
    assert "status" in wrong.json()["detail"]
    learned = {"text": "Receipts need an order number."}
    good(served.call("POST", "/features/mail/learnings", token, json=learned))
    told = good(served.call("GET", "/features/mail/learnings", token))
    assert [one["text"] for one in told] == [learned["text"]]
    one = f"/features/mail/learnings/{told[0]['id']}"
    person = served.token("write", person=True)
    better = good(served.call("PATCH", one, person, json={"text": "Receipts need a number."}))
    assert (better["text"], better["reviewed"]) == ("Receipts need a number.", True)
    tasks = good(served.call("GET", "/tasks?feature=mail", token))
    assert [one["title"] for one in tasks] == ["Send a receipt"]
    assert good(served.call("GET", "/tasks?feature=mail&status=completed", token)) == tasks
    wrong = served.call("GET", "/tasks?status=splendid", token)
    assert (wrong.status_code, "Use one of" in wrong.json()["todo"]) == (400, True)


def test_conversations_are_saved_once_and_read(served: Team) -> None:
    token = served.token("write")
    exchange = {"user": "How do parcels get a number?", "assistant": "By a sequence.", "key": "1"}
    body = {"session": "s-1", "exchanges": [exchange], "title": "Parcels"}
    first = good(served.call("POST", "/conversations", token, json=body))
    again = good(served.call("POST", "/conversations", token, json=body))
    assert [one["fresh"] for one in (*first["exchanges"], *again["exchanges"])] == [True, False]
    shown = good(served.call("GET", f"/conversations/{first['id']}", token))
    assert [one["assistant"] for one in shown["exchanges"]] == ["By a sequence."]
    hits = good(served.call("GET", "/search?q=number+of+parcels&kind=exchange", token))["hits"]
    assert hits[0]["id"] == first["exchanges"][0]["id"]


def test_secrets_are_redacted_on_their_way_in(served: Team) -> None:
    token = served.token("write")
    key = "sk-ant-" + "a1B2" * 10
    note = good(served.call("POST", "/notes", token, json={"text": f"The key is {key}."}))
    assert key not in json.dumps(note)


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/search", b""),
        ("GET", "/search?q=x", b""),
        ("GET", "/search?q=login&limit=none", b""),
        ("GET", "/search?q=login&colour=red", b""),
        ("GET", "/recent?count=0", b""),
        ("GET", "/status?verbose=1", b""),
        ("POST", "/notes", b"{"),
        ("POST", "/notes", b"[" * 100_000),
        ("POST", "/notes", b'{"text": 7}'),
        ("POST", "/notes", b'{"text": "\xff"}'),
        ("POST", "/notes", b'{"text": ""}'),
        ("POST", "/notes", b'{"text": "a note", "colour": "red"}'),
        ("POST", "/tasks", b'{"feature": "auth"}'),
        ("POST", "/iterations", b"[]"),
    ],
)
def test_bad_input_is_told_as_a_problem(
    served: Team, method: str, path: str, content: bytes
) -> None:
    answer = served.call(method, path, served.token(), content=content)
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert str(served.own.root) not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "content", "todo"),
    [
        ("POST", "/notes", b"{", "Fields: text, feature, by. See /v1/openapi.json."),
        ("POST", "/notes", b'{"text": "a note", "description": "x"}', "Fields: text, feature, by"),
        ("POST", "/notes", b"[" * 100_000, "See /v1/openapi.json."),
        ("POST", "/iterations", b"{}", "See /v1/openapi.json."),
        ("POST", "/tasks", b'{"feature": "auth"}', "Send it as a string."),
        ("GET", "/tasks?colour=red", b"", "Fields: feature, status, ready. See /v1/openapi.json."),
        ("GET", "/status?verbose=1", b"", "See /v1/openapi.json."),
    ],
)
def test_a_call_of_the_wrong_shape_is_told_what_to_send(
    served: Team, method: str, path: str, content: bytes, todo: str
) -> None:
    told = served.call(method, path, served.token(), content=content).json()
    assert told["status"] == 400
    assert todo in told["todo"]


def test_a_large_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with team(tmp_path, ServerLimits(body_bytes=1000)) as served:
        answer = served.call("POST", "/notes", served.token(), json={"text": "x" * 2000})
        assert answer.status_code == 413


def test_a_token_that_calls_too_often_waits_and_others_do_not(tmp_path: Path) -> None:
    with team(tmp_path, ServerLimits(per_second=0.001, burst=3)) as served:
        busy, calm = served.token("read"), served.token("read")
        codes = [served.call("GET", "/features", busy).status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        assert int(served.call("GET", "/features", busy).headers["retry-after"]) > 1
        assert served.call("GET", "/features", calm).status_code == 200


def test_a_call_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    with team(tmp_path, ServerLimits(request_s=5.0)) as served:
        token = served.token("read")
        good(served.call("GET", "/features", token))
        served.server.limits = served.server.limits._replace(request_s=0.05)
        monkeypatch.setattr(served.server, "memory", lambda *_: goes_on.wait(60))
        assert served.call("GET", "/features", token).status_code == 504
        goes_on.set()


def test_figures_and_the_log_tell_paths_and_no_content(served: Team) -> None:
    token = served.token("read")
    served.call("GET", "/search?q=login+form+validation", token)
    told = served.call("GET", "/metrics", token).text
    assert 'path="/v1/projects/{project}/search",status="200"} 1' in told
    assert served.client.get(f"/v1/projects/{OWN}/metrics").status_code == 401
    assert "validation" not in told + "".join(served.lines)
    assert json.loads(served.lines[0])["token"]
    assert served.client.get("/healthz").text == "ok\n"
    assert served.client.get("/readyz").text == "ready\n"


def test_what_is_nowhere_is_a_problem_too(served: Team) -> None:
    for method, path in (("GET", "/v1/nothing"), ("PUT", f"/v1/projects/{OWN}/status")):
        answer = served.client.request(method, path)
        assert answer.status_code in (404, 405)
        assert answer.headers["content-type"] == "application/problem+json"


# -- the process


def test_tokens_are_created_listed_and_revoked(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    ralph = Line(capsys, monkeypatch)
    assert "There are no tokens" in ralph.well("token", "list").out
    made = ralph.well("token", "create", "ci", "--scope", "read", "--expires", "90d", "--json").json
    assert made["token"].startswith("ralph_")
    [listed] = ralph.well("token", "list", "--json").json
    assert (listed["name"], listed["scope"], listed["expired"]) == ("ci", "read", False)
    assert made["token"] not in ralph.well("token", "list").out
    for words in (("create", "x", "--scope", "admin", "--feature", "auth"), ("revoke", "nobody"),
                  ("create", "x", "--scope", "read", "--expires", "soon")):  # fmt: skip
        assert ralph("token", *words).code == 1
    ralph.well("token", "revoke", "ci")
    assert ralph.well("token", "list", "--json").json == []


@pytest.fixture
def process(project: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`ralph serve` on any port, and its address."""
    words = [sys.executable, "-m", "ralph", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=project, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            lines = iter(running.stdout.readline, "")
            address = next(line for line in lines if line.startswith("API: "))
            yield running, address.removeprefix("API: ").partition("/v1/")[0]
        finally:
            running.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="it ends by a POSIX signal")
def test_the_process_serves_api_and_page_and_ends(
    project: Path, process: tuple[subprocess.Popen[str], str],
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    running, address = process
    monkeypatch.chdir(project)
    ralph = Line(capsys, monkeypatch)
    made = ralph.well("token", "create", "ci", "--scope", "write", "--json").json
    headers = {"authorization": f"Bearer {made['token']}"}
    base = f"{address}/v1/projects/{project.name}"
    with httpx.Client(timeout=60, headers=headers, trust_env=False) as client:
        assert client.get(f"{base}/status").json()["available"]
        assert client.get(address).status_code == 403  # the page, without its cookie
        assert client.get(f"{address}/v1").json()["status"] == 404
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        tools = client.post(f"{address}/projects/{project.name}/mcp", json=asked, headers=accept)
        assert "search_memory" in tools.text
        ralph.well("token", "revoke", "ci")
        assert client.get(f"{base}/status").status_code == 401
        refused = client.post(f"{address}/projects/{project.name}/mcp", json=asked, headers=accept)
        assert refused.status_code == 401
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def test_without_tokens_no_other_machine_is_served(project: Path) -> None:
    words = [sys.executable, "-m", "ralph", "serve", "--port", "0", "--host", "0.0.0.0"]
    ran = subprocess.run(
        words, cwd=project, capture_output=True, text=True, env=os.environ, check=False
    )
    assert ran.returncode == 1
    assert "without a token" in ran.stderr
    assert "ralph token create" in ran.stderr


@pytest.mark.parametrize("text", [None, "This is no certificate."])
def test_a_certificate_that_cannot_be_used_is_named_before_it_serves(
    project: Path, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "cert.pem"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "ralph", "serve", "--port", "0"]
    words += ["--certfile", str(file), "--keyfile", str(file)]
    ran = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"{file}: the certificate or its key cannot be used" in ran.stderr


def test_a_parameter_that_is_missing_or_unknown_is_named(served: Team) -> None:
    token = served.token("read")
    for query, name in (("", "q"), ("?q=cranes&colour=red", "colour"), ("?q=x&limit=few", "limit")):
        refused = served.call("GET", f"/search{query}", token)
        assert refused.status_code == 400
        detail = refused.json()["detail"]
        assert detail.startswith("the parameters cannot be used")
        assert name in detail


# -- what clients on other machines send and ask


def session_body(*answers: str) -> dict[str, Any]:
    ids = [f"{number:016x}" for number in range(1, len(answers) + 1)]
    pairs = zip(ids, answers, strict=True)
    exchanges = [
        {"conversation": "c" * 16, "id": one, "user": "Why?", "assistant": answer}
        for one, answer in pairs
    ]
    return {"conversation": {"id": "c" * 16, "title": "Cranes"}, "exchanges": exchanges}


def test_a_session_that_is_sent_twice_is_saved_once(served: Team) -> None:
    token = served.token("write")
    first = good(served.call("POST", "/sessions", token, json=[session_body("One crane.")]))
    assert first == [{"id": f"{1:016x}", "fresh": True}]
    both = [session_body("One crane.", "Two cranes.")]
    again = good(served.call("POST", "/sessions", token, json=both))
    assert [one["fresh"] for one in again] == [False, True]
    shown = good(served.call("GET", "/conversations/" + "c" * 16, token))
    assert [one["assistant"] for one in shown["exchanges"]] == ["One crane.", "Two cranes."]
    assert (shown["title"], shown["tags"], shown["summaries"]) == ("Cranes", [], {})
    odd = session_body("Three.")
    odd["exchanges"][0]["id"] = "../../etc"
    refused = served.call("POST", "/sessions", token, json=[odd])
    assert refused.status_code == 400
    assert "is not an id" in refused.json()["detail"]
    many = served.call("POST", "/sessions", token, json=[session_body(*["x"] * 501)])
    assert many.status_code == 400


def test_the_iteration_of_an_exchange_is_saved_once_whatever_is_said_of_it_later(
    served: Team,
) -> None:
    token = served.token("write")
    one = {"feature": "auth", "summary": "Fixed the form.", "session_id": "s-1#k-1"}
    later = {**one, "task_title": "Another title", "timestamp": "2026-11-17T10:00:00Z"}
    other = {**one, "session_id": "s-1#k-2"}
    [first] = good(served.call("POST", "/iterations", token, json=[one]))
    known, fresh = good(served.call("POST", "/iterations", token, json=[later, other]))
    assert (known["id"], known["fresh"], fresh["fresh"]) == (first["id"], False, True)


def test_a_field_of_a_newer_client_does_not_keep_its_iteration_from_being_saved(
    served: Team,
) -> None:
    token = served.token("write")
    newer = {"feature": "auth", "summary": "Fixed the form.", "mood_of_2030": "calm"}
    [saved] = good(served.call("POST", "/iterations", token, json=[newer]))
    assert saved["fresh"]


def test_iterations_are_read_in_their_order_and_only_if_they_are_new(served: Team) -> None:
    token = served.token("write")
    told = good(served.call("GET", "/features/auth/iterations", token))
    ids = [one["id"] for one in told["iterations"]]
    assert ids
    path = f"/features/auth/iterations?known={told['mark']}"
    assert good(served.call("GET", path, token)) == {"mark": told["mark"]}
    done = {"feature": "auth", "summary": "One more."}
    [saved] = good(served.call("POST", "/iterations", token, json=[done]))
    more = good(served.call("GET", path, token))["iterations"]
    assert [one["id"] for one in more] == [*ids, saved["id"]]


def test_an_error_that_was_solved_is_told_and_another_is_not(served: Team) -> None:
    token = served.token("write")
    error = "ConnectionResetError: the broker at queue.internal closed the stream"
    solved = {"message": error, "resolution": "Set the heartbeat to 30 s."}
    done = {"feature": "auth", "summary": "The broker.", "errors": [solved]}
    good(served.call("POST", "/iterations", token, json=[done]))
    told = good(served.call("POST", "/solved", token, json={"error": error}))
    assert told["solution"] == "Set the heartbeat to 30 s."
    unknown = {"error": "ZeroDivisionError: division by zero in totals.py"}
    assert good(served.call("POST", "/solved", token, json=unknown)) is None
    elsewhere = served.token("read", feature="elsewhere")
    assert good(served.call("POST", "/solved", elsewhere, json={"error": error})) is None


def test_a_brief_says_what_somebody_should_know_who_begins(served: Team) -> None:
    token = served.token("read")
    told = good(served.call("GET", "/brief?feature=auth", token))
    assert [one["feature"]["name"] for one in told["features"]] == ["auth"]
    assert "The nightly export takes an hour." in [one["text"] for one in told["notes"]]


def test_a_search_by_words_can_leave_out_a_conversation(served: Team) -> None:
    token = served.token("write")
    good(served.call("POST", "/sessions", token, json=[session_body("The crane is yellow.")]))
    path = "/search?q=yellow+crane&words_only=true&kind=exchange"
    assert good(served.call("GET", path, token))["hits"]
    assert not good(served.call("GET", f"{path}&exclude={'c' * 16}", token))["hits"]


@contextlib.contextmanager
def hanging(server: TeamServer) -> Iterator[None]:
    """A call that has the turn until the block ends."""
    begun, ends = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        ends.wait(50)

    submit(server, hang)
    while not begun.wait(0.01):
        server.calls.pass_on()
    try:
        yield
    finally:
        ends.set()


def turns_of(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in ("app", "queue"):
        monkeypatch.setattr(f"ralph.doors.rest.{module}.TURN_S", seconds)


def test_calls_take_turns_and_none_waits_for_one_that_hangs(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_of(monkeypatch, 0.01)
    server, token = served.server, served.token()
    with hanging(server), hanging(server):
        for _ in range(3):
            assert good(served.call("GET", "/search?q=nightly+export", token))["hits"]
        with server.memory(served.own) as one, server.memory(served.own) as other:
            assert one is not other
    assert served.call("GET", "/records/0000000000000000", token).status_code == 404
    with server.memory(served.own) as after:  # also after a call that failed
        assert after in (one, other)
    assert len(server._free[served.own.id]) == 2


def test_one_thread_runs_all_calls_as_long_as_none_hangs(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_of(monkeypatch, 100.0)
    threads = list[int]()
    with hanging(served.server):
        for _ in range(20):
            submit(served.server, lambda: threads.append(threading.get_ident()))
    until(lambda: len(threads) == 20, "all ran")
    assert len({*threads}) == 1


def test_what_waits_when_a_server_stops_is_cancelled(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_of(monkeypatch, 100.0)
    calls, ran = served.server.calls, list[int]()

    async def wait(pool: ThreadPoolExecutor) -> Any:
        assert calls.begin()
        waiting = calls.submit(lambda: ran.append(1))
        closing = pool.submit(calls.close)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return closing

    with ThreadPoolExecutor(1) as pool:
        with hanging(served.server):
            closing = asyncio.run(wait(pool))
            assert not closing.done()
        closing.result(50)
    assert not ran
    assert calls._places_left == ServerLimits().threads + ServerLimits().waiting


def test_a_call_that_is_given_up_before_it_runs_never_runs(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_of(monkeypatch, 100.0)
    calls, ran = served.server.calls, list[str]()
    places = calls._places_left

    async def give_up() -> None:
        assert calls.begin()
        waiting = calls.submit(lambda: ran.append("given up"))
        waiting.cancel()
        await asyncio.sleep(0)  # those who want to know are told
        assert calls._places_left == places - 1  # only the one that hangs

    with hanging(served.server):
        asyncio.run(give_up())
        submit(served.server, lambda: ran.append("waited for"))
    until(lambda: calls._places_left == places, "all ended")
    assert ran == ["waited for"]


def test_calls_that_wait_together_are_answered_together(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_of(monkeypatch, 100.0)
    calls, ran = served.server.calls, list[int]()
    done_when_answered: list[int] = []

    async def ask(number: int) -> None:
        assert calls.begin()
        await calls.submit(lambda: ran.append(number))
        done_when_answered.append(len(ran))

    async def ask_all(hung: contextlib.ExitStack) -> None:
        asked = [asyncio.create_task(ask(number)) for number in range(5)]
        await asyncio.sleep(0)  # all of them wait behind the one that hangs
        hung.close()
        await asyncio.gather(*asked)

    with contextlib.ExitStack() as hung:
        hung.enter_context(hanging(served.server))
        asyncio.run(ask_all(hung))
    assert ran == [0, 1, 2, 3, 4]
    assert done_when_answered == [5] * 5


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), SystemExit(3)])
def test_a_call_that_fails_spoils_no_other_one_of_its_round(
    served: Team, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    turns_of(monkeypatch, 100.0)
    calls = served.server.calls

    def fail() -> None:
        raise error

    async def ask(hung: contextlib.ExitStack) -> list[Any]:
        assert calls.begin()
        assert calls.begin()
        asked = [calls.submit(fail), calls.submit(lambda: "well")]
        hung.close()
        return await asyncio.gather(*asked, return_exceptions=True)

    with contextlib.ExitStack() as hung:
        hung.enter_context(hanging(served.server))
        failed, well = asyncio.run(ask(hung))
    assert isinstance(failed, RuntimeError if isinstance(error, StopIteration) else type(error))
    assert well == "well"


def test_an_answer_does_not_wait_for_a_later_call_that_hangs(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ends = served.server, threading.Event()

    async def ask_both(hung: contextlib.ExitStack) -> Any:
        quick = asyncio.create_task(server.work(lambda: "quick"))
        slow = asyncio.create_task(server.work(lambda: ends.wait(50)))
        await asyncio.sleep(0)
        assert len(server.calls._calls) == 2  # both wait, so they are one round
        hung.close()
        turns_of(monkeypatch, 0.05)
        found = await quick
        assert not slow.done()
        ends.set()
        assert await slow
        return found

    with contextlib.ExitStack() as hung:
        turns_of(monkeypatch, 0.05)
        monkeypatch.setattr("ralph.doors.rest.queue.TURN_S", 100.0)
        hung.enter_context(hanging(server))
        assert asyncio.run(ask_both(hung)) == "quick"


def test_many_calls_at_once_are_all_answered(served: Team) -> None:
    token, found = served.token(), list[list[str]]()

    def ask(number: int) -> None:
        path, body = "/notes", {"text": f"Depot {number} opens at {number} o'clock."}
        note = good(served.call("POST", path, token, json=body))
        hits = good(served.call("GET", f"/search?q=depot+{number}+opens", token))["hits"]
        found.append([note["id"], *(hit["id"] for hit in hits)])

    threads = [threading.Thread(target=ask, args=[number]) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 16
    assert all(note in hits for note, *hits in found)
