"""What a request says is not taken on trust: whose word it is, which files it may read."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import lived_in
from starlette.testclient import TestClient
from teaming import OWN, Team, team

from ralph.__main__ import _mcp_of
from ralph.doors.rest.app import LogLines, logging_to, make_api
from ralph.doors.rest.main import McpSessions, Paths
from ralph.plan.edit import update_feature
from ralph.plan.store import Plan

ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("team")) as made:
        root = made.own.root
        (root / ".env").write_text("INTERNAL_HOST=db7.corp.example\n")
        for name in ("docs/rules.md", "docs-private/plan.md", "notes.md"):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(f"This is {name} in db7.corp.example.\n")
        (root / "docs" / "link.md").symlink_to(root / ".env")
        yield made


@contextlib.contextmanager
def mcp_client(served: Team, *shared: str) -> Iterator[TestClient]:
    sessions = McpSessions(served.server, _mcp_of, shared=shared)
    paths = Paths(make_api(served.server, sessions.route), None, sessions, None)
    with TestClient(paths, raise_server_exceptions=False) as client:
        yield client


def ask(client: TestClient, token: str, method: str, **params: Any) -> str:
    headers = {"authorization": f"Bearer {token}", **ACCEPT}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post(f"/projects/{OWN}/mcp", headers=headers, json=message).text


# -- files


NAMED = [
    ".env",
    "docs/rules.md",
    "docs/link.md",
    "docs-private/plan.md",
    "notes.md",
    "DOCS/../.env",
]


@pytest.mark.parametrize("right", ["write", "admin"])
@pytest.mark.parametrize("feature", ["auth", None])
def test_a_token_that_names_a_file_cannot_read_it(
    served: Team, right: Any, feature: str | None
) -> None:
    if right == "admin" and feature:
        return  # there is no such token
    token = served.token(right, feature=feature)
    for path in NAMED:
        served.call("PATCH", "/features/auth", token, json={"knowledge_paths": [path]})
        with mcp_client(served) as client:
            for method, params in (
                ("resources/list", {}),
                ("resources/templates/list", {}),
                ("resources/read", {"uri": f"feature://auth/files/{path}"}),
                ("resources/read", {"uri": f"file://{served.own.root}/{path}"}),
            ):
                answer = ask(client, token, method, **params)
                assert "db7.corp" not in answer
                assert "error" in json.loads(answer), answer
    for call in ("/features/auth", "/features/auth/files", "/brief", "/search?q=corp+example"):
        assert "db7.corp" not in served.call("GET", call, token).text


def test_over_mcp_a_token_that_names_a_file_cannot_read_it(served: Team) -> None:
    token = served.token("write", feature="auth")
    arguments = {"knowledge_paths": [".env"]}
    with mcp_client(served) as client:
        ask(client, token, "tools/call", name="update_feature", arguments=arguments)
        answer = ask(client, token, "resources/read", uri="feature://auth/files/.env")
    assert "db7.corp" not in answer


def test_only_files_in_a_shared_folder_are_served(served: Team) -> None:
    token = served.token("write", feature="auth")
    plan = Plan(served.own.root, state=served.own.cache)
    update_feature(plan, "auth", {"knowledge_paths": [p for p in NAMED if ".." not in p]})
    with mcp_client(served, "docs", "notes.md") as client:
        listed = json.loads(ask(client, token, "resources/list"))["result"]["resources"]
        assert [one["name"] for one in listed] == ["docs/rules.md", "notes.md"]
        for path in NAMED:
            answer = ask(client, token, "resources/read", uri=f"feature://auth/files/{path}")
            assert ("db7.corp" in answer) == (path in ("docs/rules.md", "notes.md")), path


# -- whose word it is


def learned(served: Team, token: str, text: str) -> dict[str, Any]:
    body = {"text": text, "source": "human"}
    answer = served.call("POST", "/features/auth/learnings", token, json=body)
    found: dict[str, Any] = answer.json()["learning"]
    return found


def test_only_a_persons_token_speaks_for_a_person(served: Team) -> None:
    for n, (right, feature) in enumerate([("write", "auth"), ("write", None), ("admin", None)]):
        for person, said in ((False, "agent"), (True, "human")):
            token = served.token(right, feature=feature, person=person)  # type: ignore[arg-type]
            words = ["crane", "kettle", "ladder"][n], ["Monday", "June"][person]
            text = f"The {words[0]} is tested every {words[1]} by team {n}{said}."
            assert learned(served, token, text).get("source", "agent") == said
            note = {"text": text, "by": "human", "feature": feature or ""}
            saved = served.call("POST", "/notes", token, json=note).json()["record"]
            assert saved["by"] == said
            decision = {"description": text, "source": "human"}
            iteration = {"feature": "auth", "summary": text, "decisions": [decision]}
            [made] = served.call("POST", "/iterations", token, json=[iteration]).json()
            assert made["record"]["decisions"][0].get("source", "agent") == said


def test_a_persons_token_may_speak_for_an_agent(served: Team) -> None:
    token = served.token("write", person=True)
    saved = served.call(
        "POST", "/notes", token, json={"text": "An agent found this.", "by": "agent"}
    )
    assert saved.json()["record"]["by"] == "agent"


def test_only_a_persons_token_adds_context_files_as_a_person(served: Team) -> None:
    files = [{"path": path, "source": "human"} for path in ("notes.md", "docs/rules.md")]
    for person, sources in ((False, ["auto", "auto"]), (True, ["human", "human"]), (False, None)):
        token = served.token("write", person=person)
        answer = served.call("PATCH", "/features/auth", token, json={"context_files": files})
        found = [one.get("source", "human") for one in answer.json()["context_files"]]
        # What a person added stays theirs when an agent sends the list again.
        assert found == (sources or ["human", "human"])


@pytest.mark.parametrize(
    "files", ["notes.md", {"path": "notes.md", "source": "human"}, ["notes.md"]]
)
def test_no_spelling_of_context_files_makes_them_a_persons(served: Team, files: Any) -> None:
    served.call("PATCH", "/features/auth", served.token(), json={"context_files": None})
    body = {"context_files": files}
    for method, url in (("PATCH", "/features/auth"), ("POST", "/features")):
        more = {"name": f"f{len(str(files))}"} if method == "POST" else {}
        answer = served.call(method, url, served.token(), json={**body, **more})
        assert [one["source"] for one in answer.json()["context_files"]] == ["auto"]


def test_only_a_person_reviews_learnings(served: Team) -> None:
    agent, person = served.token("write"), served.token("write", person=True)
    identity = learned(served, agent, "The gate of the harbor opens at dawn.")["text"]
    [ref] = [
        one["id"]
        for one in served.call("GET", "/features/auth/learnings", agent).json()
        if one["text"] == identity
    ]
    path = f"/features/auth/learnings/{ref}"
    refused = served.call("PATCH", path, agent, json={"reason": "I am sure."})
    assert (refused.status_code, refused.json()["detail"]) == (403, "this needs a person's token")
    assert served.call("PATCH", path, person, json={}).json()["reviewed"] is True


def test_f1_only_a_person_empties_the_text_of_a_feature(served: Team) -> None:
    text = "Sign-in for customers, with a code by e-mail that expires after ten minutes."
    path = "/features/auth"
    agent, person = served.token("write"), served.token("write", person=True)
    assert served.call("PATCH", path, person, json={"description": text}).status_code == 200
    for loss in (None, "", "x", "TODO"):
        refused = served.call("PATCH", path, agent, json={"description": loss})
        assert refused.status_code == 400
        assert "cannot be changed like this" in refused.json()["detail"]
    longer = f"{text} It is sent once."
    assert served.call("PATCH", path, agent, json={"description": longer}).status_code == 200
    assert served.call("PATCH", path, person, json={"description": None}).status_code == 200


# -- what grows without a token


def labels(served: Team) -> set[str]:
    lines = served.call("GET", "/metrics", served.token()).text.splitlines()
    return {line.rpartition(" ")[0] for line in lines}


def test_requests_without_a_token_add_no_labels(served: Team) -> None:
    def storm(first: int) -> None:
        for n in range(first, first + 30):
            for path in (f"/v1/{n}", "/status", f"/features/{n}/files", "/healthz", "/metrics"):
                for method in (f"X{n}", f"get{n}", "TRACE", "Get"):
                    served.client.request(method, path)
                    served.call(method, path)
                served.client.get(path, headers={"host": f"h{n}", "authorization": f"Bearer {n}"})

    storm(0)
    labels(served)
    before = labels(served)
    storm(30)
    assert labels(served) == before
    assert any('method="other"' in label for label in before)
    assert not any('method="X1"' in label for label in before)


@pytest.mark.parametrize("path", ["/v1/openapi.json/", "/notes/", "/status/", "/healthz/"])
def test_no_address_redirects(served: Team, path: str) -> None:
    headers = {"host": "evil.example", "authorization": f"Bearer {served.token()}"}
    for url in (path, f"/v1/projects/{OWN}{path}"):
        for method in ("GET", "POST"):
            answer = served.client.request(method, url, headers=headers, follow_redirects=False)
            assert answer.status_code in (404, 405), (method, url, answer.headers)
            assert "location" not in answer.headers


@pytest.mark.parametrize("declared", [True, False])
def test_mcp_refuses_a_body_over_the_limit(served: Team, declared: bool) -> None:
    token = served.token("write")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "padding": "a" * 2_000_000}
    body = json.dumps(message).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json", **ACCEPT}
    parts = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    with mcp_client(served) as client:
        content: Any = body if declared else iter(parts)
        answer = client.post(f"/projects/{OWN}/mcp", headers=headers, content=content)
        assert answer.status_code == 413
        small = ask(client, token, "tools/list")
        assert "search_memory" in small


# -- the log


def test_what_libraries_log_becomes_a_line_without_content() -> None:
    lines: list[str] = []
    logger = logging.Logger("mcp.server")
    logger.addHandler(LogLines(lines.append))
    try:
        int("what the client sent")
    except ValueError:
        logger.exception("Error in %s", "what the client sent")
    [line] = map(json.loads, lines)
    assert {k: v for k, v in line.items() if k != "at"} == {
        "level": "error",
        "logger": "mcp.server",
        "error": "ValueError",
    }


def test_a_log_joined_with_the_output_has_no_traceback_and_no_address(tmp_path: Path) -> None:
    root = lived_in(tmp_path / "shop")
    made = subprocess.run(
        [sys.executable, "-m", "ralph", "token", "create", "t", "--scope", "write", "--json"],
        cwd=root, capture_output=True, check=True,
    )  # fmt: skip
    token = json.loads(made.stdout)["token"]
    words = [sys.executable, "-m", "ralph", "serve", "--port", "0", "--log"]
    with subprocess.Popen(
        words, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        lines = []
        while not (line := running.stdout.readline()).startswith("API: "):
            lines.append(line)
        port = int(line.partition("/v1/")[0].rpartition(":")[2])
        address = ("127.0.0.1", port)
        path = "/projects/shop/mcp"
        for part in (b"", b'{"jsonrpc": "2.0",', b"\xff" * 99):
            with socket.create_connection(address) as leaving:
                head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
                accept = "accept: application/json, text/event-stream\r\n"
                kind = "content-type: application/json\r\ncontent-length: 100\r\n\r\n"
                leaving.sendall((head + accept + kind).encode() + part)
        with socket.create_connection(address) as last:
            last.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert b"200" in last.recv(100)
        running.terminate()
        lines += running.stdout.readlines()
    assert not any("token=" in line for line in lines)
    requests = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(requests) >= 4
    words = [line for line in lines if not line.startswith("{")]
    assert not any("Traceback" in line or line.startswith(" ") for line in words), words


def test_python_warnings_are_lines_too() -> None:
    lines: list[str] = []
    with warnings.catch_warnings(), logging_to(lines.append):
        warnings.simplefilter("always")
        warnings.warn("what the client sent", stacklevel=1)
    [line] = map(json.loads, lines)
    assert (line["logger"], "client" in json.dumps(line)) == ("py.warnings", False)
