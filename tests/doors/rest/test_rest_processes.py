"""Several processes of `ralph serve` on one PostgreSQL: each knows what the others do."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres import ENDURANCE_S, Server

from bench.measure import BenchProject
from bench.server import check_kept, disturb, served
from ralph.config import USER_FILE, home_folder, load
from ralph.memory.project import need_project
from ralph.memory.tokens import Tokens

_LONG_S = 50.0
_LISTENERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE query IN ('LISTEN ralph_journal', 'SELECT 1') AND application_name = 'ralph'
"""


class Process:
    """One `ralph serve` and a token for it."""

    def __init__(self, project: Path, token: str) -> None:
        words = [sys.executable, "-m", "ralph", "serve", "--port", "0", "--project", str(project)]
        self.running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.running.stdout is not None
        lines = iter(self.running.stdout.readline, "")
        address = next(line for line in lines if line.startswith("API: "))
        self.port = int(address.partition("/v1/")[0].rpartition(":")[2])
        self.path, self.token = f"/v1/projects/{project.name}", token

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_LONG_S)
        headers = {"authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body)
        with contextlib.closing(connection):
            connection.request(method, self.path + path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def remember(self, text: str) -> str:
        status, saved = self.call("POST", "/notes", {"text": text})
        assert status == 201
        return str(saved["id"])

    def finds(self, question: str, identity: str) -> bool:
        status, found = self.call("GET", f"/search?q={question.replace(' ', '+')}")
        return status == 200 and identity in [hit["id"] for hit in found["hits"]]

    def close(self) -> None:
        self.running.kill()
        self.running.wait()
        assert self.running.stdout is not None
        self.running.stdout.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONG_S
    while not holds():
        assert time.monotonic() < deadline


def use_database(url: str) -> None:
    home = home_folder()
    home.mkdir(exist_ok=True)
    (home / USER_FILE).write_text(json.dumps({"journal_url": url, "embedder": "none"}))


def tokens_of(project: Path) -> tuple[Tokens, str]:
    """The tokens of the project's server, and the project's id."""
    home = home_folder()
    found = need_project(project, home=home)
    return Tokens(home, load(home=home, project_file=found.settings_file).settings), found.id


@contextlib.contextmanager
def two_processes(project: Path) -> Iterator[tuple[Process, Process]]:
    tokens, identity = tokens_of(project)
    secret = tokens.create("both", identity, "write")[1]
    tokens.close()
    with contextlib.ExitStack() as stack:
        made = [Process(project, secret) for _ in range(2)]
        for one in made:
            stack.callback(one.close)
        yield made[0], made[1]


def revoke(project: Path) -> None:
    tokens, _ = tokens_of(project)
    tokens.revoke("both")
    tokens.close()


def test_what_one_process_saves_another_finds_and_a_revoked_token_is_refused_by_all(
    project: Path, database: str
) -> None:
    use_database(database)
    with two_processes(project) as (one, two):
        for first, second, day in ((one, two, "Tuesday"), (two, one, "Friday")):
            saved = first.remember(f"Deploys happen on a {day}.")
            assert first.finds(f"deploys on {day}", saved)  # at once, by whom it was told
            until(lambda: second.finds(f"deploys on {day}", saved))  # noqa: B023
        revoke(project)
        for process in (one, two):
            until(lambda: process.call("GET", "/status")[0] == 401)  # noqa: B023


def test_a_process_that_cannot_hear_the_others_asks(project: Path, database: str) -> None:
    use_database(database)
    with two_processes(project) as (one, two), psycopg.connect(database, autocommit=True) as admin:
        first = one.remember("Deploys happen on a Tuesday.")
        until(lambda: two.finds("deploys on Tuesday", first))
        for n in range(3):  # again and again: they listen anew
            until(lambda: len(admin.execute(_LISTENERS).fetchall()) > 0)
            saved = one.remember(f"The zebra number {n} sleeps.")
            until(lambda: two.finds(f"zebra number {n} sleeps", saved))  # noqa: B023
        admin.execute(_LISTENERS)
        revoke(project)
        until(lambda: two.call("GET", "/status")[0] == 401)


def test_processes_survive_a_database_that_is_restarted(
    project: Path, own_postgres: Server
) -> None:
    use_database(own_postgres.url)
    with two_processes(project) as (one, two):
        before = one.remember("Deploys happen on a Tuesday.")
        until(lambda: two.finds("deploys on Tuesday", before))
        own_postgres.stop()
        meanwhile = one.remember("The zebra sleeps meanwhile.")  # it waits on this disk
        assert two.finds("deploys on Tuesday", before)
        own_postgres.start()
        until(lambda: two.finds("zebra sleeps meanwhile", meanwhile))
        after = two.remember("The giraffe comes afterwards.")
        until(lambda: one.finds("giraffe comes afterwards", after))
        revoke(project)
        for process in (one, two):
            until(lambda: process.call("GET", "/status")[0] == 401)  # noqa: B023


@pytest.mark.skipif(sys.platform == "win32", reason="it ends by a POSIX signal")
def test_a_server_that_is_told_to_end_finishes_what_is_under_way(
    project: Path, database: str
) -> None:
    use_database(database)
    with (
        two_processes(project) as (one, _),
        psycopg.connect(database) as blocker,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port)) as connection,
    ):
        one.remember("The first note makes the stream.")
        # A write waits for this lock: so the request is surely under way.
        blocker.execute("SELECT * FROM ralph_streams WHERE name = '~notes' FOR UPDATE")
        headers = {"authorization": f"Bearer {one.token}"}
        body = json.dumps({"text": "The zebra is on its way."})
        connection.request("POST", f"{one.path}/notes", body, headers)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with psycopg.connect(database, autocommit=True) as admin:
            until(lambda: admin.execute(waiting).fetchone() is not None)
        one.running.send_signal(signal.SIGTERM)
        until(lambda: refuses(one.port))
        blocker.rollback()
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    assert one.running.wait(_LONG_S) is not None


def refuses(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.timeout(300 + 4 * ENDURANCE_S)
def test_under_load_nothing_is_lost_or_doubled_whatever_is_killed(
    tmp_path: Path, own_postgres: Server
) -> None:
    place = BenchProject(tmp_path, 100)
    place.home.mkdir()
    place.project.mkdir()
    settings = {"journal_url": own_postgres.url, "embedder": "none"}
    (place.home / USER_FILE).write_text(json.dumps(settings))
    with place.opened() as ralph:
        ralph.project.init()
    restart = [own_postgres.stop, own_postgres.start]
    with served(place, clients=8) as team:
        loaded = disturb(team, place, ENDURANCE_S, restart)
    assert loaded.searches_s
    check_kept(place, [loaded])
