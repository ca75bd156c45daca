"""`ralph doctor` of servers: reached or not, which version, with which parameters, what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commanding import LOGIN, Line
from postgres import PASSWORD, Server
from qdrant_client import models
from qdrant_server import KEY, QdrantServer, running
from remembering import topical

from ralph.config import Settings
from ralph.doors.cli.commands.doctor import _asked, _exposed, _judged
from ralph.journal.session import migrations
from ralph.memory.ralph import open_ralph
from ralph.memory.store import CONVERSATIONS, on_server, open_journals
from ralph.wire import is_loopback


@pytest.fixture
def server(own_postgres: Server) -> Server:
    return own_postgres


@pytest.fixture
def qdrant(monkeypatch: pytest.MonkeyPatch) -> Iterator[QdrantServer]:
    with running() as started:
        monkeypatch.setenv("RALPH_QDRANT_URL", started.url)
        yield started


def checks(ralph: Line) -> dict[str, dict[str, Any]]:
    """What doctor found, by name; its end fits."""
    ran = ralph("doctor", "--json")
    found = {one["name"]: one for one in ran.json["checks"]}
    problems = [one for one in found.values() if one["state"] == "problem"]
    assert ran.code == (1 if problems else 0)
    assert PASSWORD not in ran.out + ran.err
    return found


def sound(**more: Any) -> list[Any]:
    """What a server in order says of itself."""
    told = {
        "version": "17.2 (Debian 17.2-1)",
        "major": 17,
        "schema": 1,
        "standby": False,
        "fsync": True,
        "pages": True,
        "permitted": True,
    }
    return list((told | more).values())


# -- PostgreSQL


def test_a_server_that_is_reached_tells_version_schema_and_time(
    ralph: Line, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
    ralph.record("auth", LOGIN)
    found = checks(ralph)
    told = found["postgres"]["detail"]
    assert told.startswith(f"127.0.0.1:{server.port}/postgres: PostgreSQL ")
    assert f"schema {migrations()[-1].number}, answers in " in told
    # The tests' own server does not flush, for speed; a real one should.
    assert found["postgres"]["state"] == "warning"
    assert found["postgres"]["todo"] == "Set fsync = on in postgresql.conf."
    assert "git" not in found  # no journal travels with it
    assert found["journal"]["detail"] == "1 record in 1 journal"


def test_a_server_that_is_away_is_a_problem_and_what_waits_is_told(
    ralph: Line, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
    server.stop()
    ralph.record("auth", LOGIN)
    found = checks(ralph)["postgres"]
    assert found["state"] == "problem"
    assert found["detail"].endswith("(Connection refused); 1 record waiting here for it")
    assert found["todo"].startswith("Start it or fix journal_url")
    server.start()  # and whoever asks is not put off with what was found a moment ago
    found = checks(ralph)["postgres"]
    assert found["state"] == "warning"
    assert "waiting here" not in checks(ralph)["postgres"]["detail"]


def test_a_wrong_password_is_told_without_it(
    ralph: Line, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url_of("postgres", password="tr0ub4dor"))
    ran = ralph("doctor")
    assert ran.code == 1
    assert "password authentication failed" in ran.out
    assert "tr0ub4dor" not in ran.out + ran.err


def test_a_role_that_may_not_write_is_a_problem(
    ralph: Line, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
    ralph.record("auth", LOGIN)
    with psycopg.connect(server.url, autocommit=True) as owner:
        owner.execute("CREATE ROLE reader LOGIN PASSWORD 'r3ader'")
        owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reader = server.url.replace(f"ralph:{PASSWORD}", "reader:r3ader")
    monkeypatch.setenv("RALPH_JOURNAL_URL", reader)
    found = checks(ralph)["postgres"]
    assert found["state"] == "problem"
    assert found["detail"].endswith("the role may not write")
    assert "GRANT" in found["todo"]


@pytest.mark.parametrize(
    ("told", "state", "what"),
    [
        ({}, "ok", "PostgreSQL 17.2, schema 1, answers in 0.3 ms"),
        ({"standby": True}, "problem", "a read-only standby"),
        ({"major": 12}, "problem", "it is too old"),
        ({"fsync": False}, "warning", "fsync is off"),
        ({"pages": False}, "warning", "full_page_writes is off"),
    ],
)
def test_what_a_server_says_of_itself_is_judged(
    told: dict[str, Any], state: str, what: str
) -> None:
    found = _judged(sound(**told), "db.example/ralph: ", 0.3, "", openly=False)
    assert (found.state, what in found.detail) == (state, True)
    assert (found.todo is None) == (state == "ok")


def test_a_password_that_travels_unencrypted_is_told() -> None:
    found = _judged(sound(), "db.example/ralph: ", 0.3, "", openly=True)
    assert found.state == "warning"
    assert found.detail.endswith("the connection is not encrypted")
    assert "sslmode=require" in (found.todo or "")


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("", False),
        ("0.0.0.0", False),
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("10.0.0.7", False),
        ("172.18.0.2", False),
        ("::1234", False),
        ("localhost.example", False),
        ("127.example", False),
    ],
)
def test_only_an_address_of_this_machine_is_local(host: str, near: bool) -> None:
    assert is_loopback(host) == near


def test_the_way_to_a_server_is_judged_from_this_end(server: Server, home: Path) -> None:
    with psycopg.connect(server.url, autocommit=True) as owner:
        # As in a container: what the server calls its own address is not where it is reached.
        owner.execute("CREATE SCHEMA odd")
        owner.execute(
            "CREATE FUNCTION odd.inet_server_addr() RETURNS inet "
            "LANGUAGE sql AS $$ SELECT '172.18.0.2'::inet $$"
        )
        owner.execute("ALTER DATABASE postgres SET search_path = odd, public, pg_catalog")
    journals = on_server(open_journals(CONVERSATIONS, Settings(journal_url=server.url), home))
    assert journals is not None
    told, openly = journals.server.link.run(_asked)
    journals.close()
    assert not openly
    assert "172.18.0.2" not in told


def test_a_package_that_is_missing_is_told_with_what_to_install(
    ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", "postgresql://ralph@127.0.0.1:1/ralph")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    found = checks(ralph)["postgres"]
    assert found["state"] == "problem"
    assert found["todo"] == "Run: pip install 'ralph-rag[postgres]'"


# -- Qdrant


def test_a_qdrant_that_is_reached_and_its_collections_are_in_order(
    ralph: Line, project: Path, qdrant: QdrantServer
) -> None:
    with open_ralph(project) as memory:
        memory.feature("auth").remember_all(topical(3))
        memory.conversations.start(title="x")
        memory.conversations.sync()
    found = checks(ralph)
    assert found["qdrant"]["state"] == found["parameters"]["state"] == "ok"
    assert found["qdrant"]["detail"].startswith(f"{qdrant.url}: Qdrant 1.15.4, answers in ")
    assert found["parameters"]["detail"] == "2 collections as expected"


def test_a_qdrant_that_is_away_or_old_or_locked_is_a_problem(
    ralph: Line, qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    qdrant.version = "1.7.4"
    assert checks(ralph)["qdrant"]["todo"] == "Update it to 1.10 or newer."
    qdrant.version, qdrant.key = "1.15.4", KEY
    assert checks(ralph)["qdrant"]["todo"] == "Set RALPH_QDRANT_API_KEY to a key that may write."
    monkeypatch.setenv("RALPH_QDRANT_API_KEY", KEY)
    assert checks(ralph)["qdrant"]["state"] == "ok"
    qdrant.fail("503")
    found = checks(ralph)
    assert found["qdrant"]["state"] == "problem"
    assert "503" in found["qdrant"]["detail"]
    assert KEY not in str(found)


def test_a_collection_with_other_parameters_is_a_problem(
    ralph: Line, project: Path, qdrant: QdrantServer
) -> None:
    with open_ralph(project) as memory:
        memory.feature("auth").remember_all(topical(3))
    [name] = [one.name for one in qdrant.client.get_collections().collections]
    points, _ = qdrant.client.scroll(name, limit=100, with_payload=True)
    aliases = qdrant.client.get_collection_aliases(name).aliases
    qdrant.client.delete_collection(name)
    flat = models.VectorParams(size=256, distance=models.Distance.DOT)
    words = {"words": models.SparseVectorParams()}
    named = {"meaning": flat, "aside": flat}
    qdrant.client.create_collection(name, vectors_config=named, sparse_vectors_config=words)
    held = [models.PointStruct(id=one.id, payload=one.payload, vector={}) for one in points]
    qdrant.client.upsert(name, held)
    for alias in aliases:
        made = models.CreateAlias(collection_name=name, alias_name=alias.alias_name)
        qdrant.client.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])
    found = checks(ralph)["parameters"]
    assert found["state"] == "problem"
    assert found["detail"].startswith(f"{name}: its distance is Dot instead of Cosine")
    assert found["todo"] == "Run: ralph index rebuild"
    ralph.well("index", "rebuild")
    assert checks(ralph)["parameters"]["state"] == "ok"


def test_another_dimension_than_the_embedders_is_told(
    ralph: Line, project: Path, qdrant: QdrantServer
) -> None:
    with open_ralph(project, embedder="none") as memory:
        memory.feature("auth").remember_all(topical(3))
    found = checks(ralph)["parameters"]
    assert found["state"] == "warning"
    assert found["detail"].endswith("has 0 dimensions, the embedder 256")
    ralph.well("search", "login form", "--feature", "auth")
    assert checks(ralph)["parameters"]["state"] == "ok"


def test_a_key_that_travels_unencrypted_is_told() -> None:
    def judged(url: str, key: str | None) -> bool:
        return _exposed(Settings(qdrant_api_key=key), url)

    assert judged("http://10.0.0.7:6333", KEY)
    assert not judged("http://10.0.0.7:6333", None)
    assert not judged("https://10.0.0.7:6333", KEY)
    assert not judged("http://127.0.0.1:6333", KEY)
    assert not judged("http://[::1]:6333", KEY)
    assert judged("http://localhost.example:6333", KEY)


def test_without_servers_nothing_is_said_of_them(ralph: Line) -> None:
    assert {"postgres", "qdrant", "parameters"} & checks(ralph).keys() == set()


def test_the_index_status_names_the_server(
    ralph: Line, project: Path, qdrant: QdrantServer
) -> None:
    with open_ralph(project) as memory:
        memory.feature("auth").remember_all(topical(3))
    assert ralph.well("index", "status").out.splitlines()[0] == qdrant.url
    assert ralph.well("index", "status", "--json").json["file"] == qdrant.url
