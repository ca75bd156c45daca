"""Who may call what: every call of the table with every kind of wrong token."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import msgspec
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from teaming import OTHER, OWN, SECRET, Team, team

from ralph.__main__ import _mcp_of
from ralph.doors.rest.app import PREFIX, AccessLog, make_api
from ralph.doors.rest.calls import CALLS, ApiRoute
from ralph.doors.rest.main import McpSessions, Paths
from ralph.memory.ralph import open_ralph
from ralph.memory.tokens import RIGHTS, Right

NAMES = {"feature": "auth", "task": "1", "id": "0" * 16, "learning": "1"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("team")) as made:
        yield made


def path_of(call: ApiRoute, project: str = OWN, **names: str) -> str:
    path = (PREFIX + call.path).replace("{project}", project)
    for name, value in {**NAMES, **names}.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path
    return path


def each(served: Team, call: ApiRoute, token: str, project: str = OWN) -> tuple[int, str]:
    """The status of a call with this token, and what it answered."""
    given = {"content": b"{}"} if call.has_body else {}
    answer = served.call(call.method, path_of(call, project), token, **given)
    return answer.status_code, answer.text


def is_problem(text: str) -> bool:
    told = json.loads(text)
    return set(told) <= {"type", "title", "status", "detail", "todo"}


named = pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")


@named
def test_without_a_valid_token_nothing_is_answered(served: Team, call: ApiRoute) -> None:
    revoked = served.token()
    served.tokens.revoke(served.tokens.find(revoked).id)  # type: ignore[union-attr]
    expired = served.token(days=1e-9)
    basic = {"authorization": "Basic YTpi"}
    for token in ("", "ralph_wrong", "ralph_" + "x" * 5000, revoked, expired):
        status, text = each(served, call, token)
        assert status == 401, (token, text)
        assert is_problem(text)
    assert served.client.request(call.method, path_of(call), headers=basic).status_code == 401


@named
def test_a_token_of_another_project_finds_no_project(served: Team, call: ApiRoute) -> None:
    foreign = served.token("admin", project=served.other)
    status, text = each(served, call, foreign)
    unknown = each(served, call, foreign, "nowhere")
    assert (status, text) == unknown
    assert status == 404
    own = each(served, call, served.token(), OTHER)
    assert own[0] == 404
    assert SECRET not in own[1]


@named
def test_a_token_with_too_small_a_scope_is_refused(served: Team, call: ApiRoute) -> None:
    for right in RIGHTS[: RIGHTS.index(call.right)]:
        status, text = each(served, call, served.token(right))
        assert status == 403
        assert is_problem(text)
    status, text = each(served, call, served.token(call.right, person=call.person))
    assert status not in (401, 403, 500), text


def _own_record(served: Team) -> str:
    """An iteration of a feature."""
    [hit] = served.call(
        "GET", "/recent?feature=auth&kind=iteration&count=1", served.token()
    ).json()["hits"]
    return str(hit["id"])


@named
def test_a_token_of_one_feature_does_not_reach_another(served: Team, call: ApiRoute) -> None:
    right: Right = "write" if call.right == "write" else "read"
    if RIGHTS.index(call.right) > RIGHTS.index("write"):
        return  # such a token cannot be for one feature
    token = served.token(right, feature="elsewhere", person=call.person)
    if call.whole:
        assert each(served, call, token)[0] == 403
        return
    if "{feature}" in call.path or "{task}" in call.path:
        assert each(served, call, token)[0] == 404
        return
    bodies = {
        "/notes": {"text": "A note.", "feature": "auth"},
        "/iterations": [{"feature": "auth", "summary": "Done."}],
        "/tasks": {"feature": "auth", "title": "More"},
        "/solved": {"error": "AssertionError: refused", "feature": "auth"},
        "/anchors": [{"record": _own_record(served), "path": "a.py", "lines": "0a1b2c3d"}],
    }
    if call.has_body:
        answer = served.call(call.method, path_of(call), token, json=bodies[call.path])
        assert answer.status_code == 404
        return
    for query in (
        "?q=login+form+validation",
        "?q=session+cookie&feature=auth",
        "?feature=auth",
        "",
    ):
        answer = served.call(call.method, path_of(call) + query, token)
        assert answer.status_code in (200, 400, 404)
        for word in ("Safari", "password", "Add the login form"):
            assert word not in answer.text


# A private note of whoever runs the server, and a question that it answers best.
MINE, ASKED_OF_IT = "My spare key is under the blue flowerpot.", "Where is my spare key?"


@pytest.fixture
def mine(served: Team, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a private note in the served project, in the home of its server."""
    monkeypatch.setenv("RALPH_HOME", str(served.home))
    with open_ralph(served.own.root) as ralph:
        return ralph.remember(MINE, private=True)[0].id


@named
def test_no_token_reaches_a_private_note(served: Team, mine: str, call: ApiRoute) -> None:
    # What other tests need is only read.
    names = {} if call.method == "GET" else {"feature": "none", "task": "none"}
    path = path_of(call, id=mine, **names)
    fields = getattr(call.takes, "__struct_fields__", ())
    texts = [name for name in ("error", "task", "failure", "text", "title") if name in fields]
    given = {"json": dict.fromkeys(texts, ASKED_OF_IT)} if call.has_body else {}
    for right in RIGHTS[RIGHTS.index(call.right) :]:
        token = served.token(right)
        for query in ({}, {"q": ASKED_OF_IT}, {"q": ASKED_OF_IT, "min_score": 0}, {"count": 50}):
            answer = served.call(call.method, path, token, params=query, **given)
            assert "flowerpot" not in answer.text
            assert "{id}" not in call.path or answer.status_code in (400, 404)
    with open_ralph(served.own.root) as ralph:
        assert ralph.get(mine).record.text == MINE


@pytest.mark.usefixtures("mine")
def test_a_hidden_note_is_not_told_by_the_ranks_of_others(served: Team) -> None:
    query = {"q": "blue flowerpot hour", "min_score": 0, "explain": "true"}
    hits = served.call("GET", "/search", served.token(), params=query).json()["hits"]
    told = json.dumps(hits)
    assert "takes an hour" in told
    assert "flowerpot" not in told
    for rank in ("words_rank", "meaning_rank"):
        assert 1 in [hit["explain"][rank] for hit in hits]


@pytest.mark.usefixtures("mine")
def test_a_private_note_is_not_counted_for_a_token(served: Team) -> None:
    with open_ralph(served.own.root) as ralph:
        ralph.conversations.start("A talk")
        before = served.call("GET", "/status", served.token()).json()["memories"]
        ralph.remember("My other spare key is lost.", private=True)
        ralph.search("spare key")  # which brings the index up to date
    assert served.call("GET", "/status", served.token()).json()["memories"] == before


@pytest.mark.usefixtures("mine")
def test_forgetting_a_note_keeps_the_private_one_that_says_the_same(served: Team) -> None:
    words = "The ladder is in the shed."
    with open_ralph(served.own.root) as ralph:
        ids = {ralph.remember(words, private=alone)[0].id for alone in (True, False)}
        [note] = ids
        admin = served.token()
        assert served.call("DELETE", f"/records/{note}", admin).json()["forgotten"] == 1
        assert served.call("GET", f"/records/{note}", admin).status_code == 404
        assert ralph.get(note).record.text == words


def test_the_same_right_reaches_its_own_feature(served: Team) -> None:
    token = served.token("write", feature="auth")
    found = served.call("GET", "/search?q=login+form+validation", token).json()["hits"]
    assert found
    assert {hit["record"].get("feature", "") for hit in found} <= {"auth", ""}
    shown = served.call("GET", f"/records/{found[0]['id']}", token)
    assert shown.status_code == 200
    assert served.call("GET", "/features/auth", token).status_code == 200


def test_an_id_of_another_project_looks_like_an_unknown_one(served: Team) -> None:
    admin = served.token("admin", project=served.other)
    url = f"/v1/projects/{OTHER}/search?q={SECRET}"
    [hit] = served.call("GET", url, admin).json()["hits"]
    own = served.token()
    there = served.call("GET", f"/records/{hit['id']}", own)
    unknown = served.call("GET", "/records/" + "f" * 16, own)
    assert there.status_code == unknown.status_code == 404
    assert there.text.replace(hit["id"], "") == unknown.text.replace("f" * 16, "")
    assert SECRET not in served.call("GET", f"/search?q={SECRET}&min_score=0", own).text
    gone = served.call("DELETE", f"/records/{hit['id']}", own)
    assert gone.status_code == 404
    assert served.call("GET", url, admin).json()["hits"]


def test_only_an_orchestrator_finds_knowledge(served: Team) -> None:
    entry = {
        "entry_type": "failure_solution",
        "failure_description": "The vault does not open",
        "error_message": "VaultError: locked",
        "solution_steps": "Run `vault unseal` before the tests.",
    }
    director = served.token("orchestrator")
    assert served.call("POST", "/knowledge/entries", director, json=entry).status_code == 200
    assert served.call("POST", "/knowledge/checkpoints", director, json={}).status_code == 200
    question = "/search?q=VaultError+locked+vault"
    assert "unseal" in served.call("GET", question, director).text
    assert "unseal" not in served.call("GET", question, served.token("write")).text
    asked = {"failure": "The vault does not open", "error": "VaultError: locked"}
    found = served.call("POST", "/knowledge/failure", director, json=asked).json()["patterns"]
    assert "unseal" in found[0]["solution"]
    outcome = {"pattern": found[0]["id"], "worked": True, "task": "1"}
    assert served.call("POST", "/knowledge/outcomes", director, json=outcome).json()["id"]


def test_a_secret_is_stored_nowhere(served: Team) -> None:
    secret = served.token().encode()
    files = [file for file in served.home.rglob("*") if file.is_file()]
    assert any(b'"digest"' in file.read_bytes() for file in files)
    assert not any(secret in file.read_bytes() for file in files)
    assert not any(secret.decode() in line for line in served.lines)


# What answers without a token, because it has nothing of anybody's.
OPEN = {"/healthz", "/readyz", "/v1/openapi.json"}
ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


def every_route(served: Team) -> list[Route]:
    """The routes as they are served, MCP's with them."""
    app = make_api(served.server, McpSessions(served.server, _mcp_of).route)
    assert isinstance(app, AccessLog)
    routes = app._app.routes  # type: ignore[attr-defined]
    assert all(isinstance(one, Route) for one in routes)
    return list(routes)


def test_no_route_answers_without_the_right_token(served: Team) -> None:
    revoked = served.token()
    served.tokens.revoke(served.tokens.find(revoked).id)  # type: ignore[union-attr]
    foreign = served.token("admin", project=served.other)
    wrong = {"": 401, "ralph_wrong": 401, revoked: 401, served.token(days=1e-9): 401, foreign: 404}
    walked = set()
    with mcp_client(served) as client:
        for route in every_route(served):
            if route.path in OPEN:
                continue
            path = route.path.replace("{project}", OWN)
            for name, value in NAMES.items():
                path = path.replace("{" + name + "}", value)
            for method in (route.methods or set()) - {"HEAD"}:
                walked.add((method, route.path))
                for token, code in wrong.items():
                    headers = {"authorization": f"Bearer {token}", **ACCEPT}
                    answer = client.request(method, path, headers=headers, json=ASKED)
                    assert answer.status_code == code, (method, path, token)
                    assert is_problem(answer.text)
    assert len(walked) == len(CALLS) + 2  # and the figures, and MCP


@contextlib.contextmanager
def mcp_client(served: Team) -> Iterator[TestClient]:
    """The server with MCP."""
    sessions = McpSessions(served.server, _mcp_of)
    paths = Paths(make_api(served.server, sessions.route), None, sessions, None)
    with TestClient(paths, raise_server_exceptions=False) as client:
        yield client


def ask(client: TestClient, token: str, method: str, **params: Any) -> Any:
    """What MCP answers to one message."""
    headers = {"authorization": f"Bearer {token}", **ACCEPT}
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = client.post(f"/projects/{OWN}/mcp", headers=headers, json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


class SlowStart:
    """An MCP server that starts when it is told to, and what happened to it."""

    def __init__(self) -> None:
        self.may_start, self.happened = anyio.Event(), list[str]()

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        await self.may_start.wait()
        self.happened.append("started")
        yield

    async def handle_request(self, *_: Any) -> None:
        self.happened.append("answered")


def test_a_second_request_waits_until_the_first_has_started_their_server(
    served: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = [(b"authorization", f"Bearer {served.token()}".encode())]
    scope: Any = {"type": "http", "headers": headers, "path_params": {"project": OWN}}
    allow, allowed = served.server.work, list[Any]()
    unused: Any = None

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def ask_twice() -> list[str]:
        manager = SlowStart()
        sessions = McpSessions(served.server, lambda *_: manager)

        async def work(task: Any) -> Any:
            allowed.append(await allow(task))
            if len(allowed) == 2:
                # Run after this request, the second, has gone on as far as it can.
                asyncio.get_running_loop().call_soon(manager.may_start.set)
            return allowed[-1]

        monkeypatch.setattr(served.server, "work", work)
        async with sessions.running(), anyio.create_task_group() as requests:
            for _ in range(2):
                requests.start_soon(sessions, scope, receive, unused)
        return manager.happened

    assert anyio.run(ask_twice) == ["started", "answered", "answered"]


def test_over_mcp_no_tool_reaches_or_saves_a_private_note(served: Team, mine: str) -> None:
    token = served.token("write")
    with mcp_client(served) as client:
        for tool in ask(client, token, "tools/list")["result"]["tools"]:
            takes = tool["inputSchema"]["properties"]
            given = {"query": ASKED_OF_IT, "id": mine, "min_score": 0, "count": 50}
            given = {name: value for name, value in given.items() if name in takes}
            told = json.dumps(ask(client, token, "tools/call", name=tool["name"], arguments=given))
            assert "flowerpot" not in told, tool["name"]
        arguments = {"text": "My bicycle is blue.", "private": True}
        refused = ask(client, token, "tools/call", name="remember", arguments=arguments)["result"]
    assert refused["isError"]
    assert "a private note cannot be saved on a server" in refused["content"][0]["text"]
    with open_ralph(served.own.root) as ralph:
        assert not any("bicycle" in hit.record.text for hit in ralph.recent(50, kinds=["note"]))
        assert ralph.get(mine).record.text == MINE


def test_over_mcp_a_token_reaches_what_it_may_and_no_more(served: Team) -> None:
    with mcp_client(served) as client:
        write, read = served.token("write"), served.token("read")
        feature = served.token("write", feature="elsewhere")
        tools = {
            token: {one["name"]: one for one in ask(client, token, "tools/list")["result"]["tools"]}
            for token in (write, read, feature)
        }
        names = {token: set(found) for token, found in tools.items()}
        assert "remember" in names[write] - names[read]
        note = {"name": "remember", "arguments": {"text": "A note by a reader."}}
        assert "there is no tool" in ask(client, read, "tools/call", **note)["error"]["message"]
        assert "A note by a reader." not in served.call("GET", "/recent?count=50", write).text
        for tool in sorted(names[feature]):
            takes = tools[feature][tool]["inputSchema"]["properties"]
            given = {"query": "login form validation", "id": "1", "task_id": "1", "limit": 5}
            given = {name: value for name, value in given.items() if name in takes}
            told = json.dumps(ask(client, feature, "tools/call", name=tool, arguments=given))
            for word in ("Safari", "Add the login form", SECRET):
                assert word not in told, tool


def test_the_document_has_every_call_and_no_other(served: Team) -> None:
    told = served.client.get("/v1/openapi.json").json()
    found = {(m.upper(), path) for path, row in told["paths"].items() for m in row}
    assert found == {(call.method, PREFIX + call.path) for call in CALLS}
    names = [row["operationId"] for paths in told["paths"].values() for row in paths.values()]
    assert len(names) == len(set(names))
    msgspec.json.encode(told)
