"""What the tests of the server share: two projects, a client for each token."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from browsing import lived_in
from measuring import measured
from starlette.testclient import TestClient

from ralph.config import home_folder, load
from ralph.doors.rest.app import ServerLimits, TeamServer, make_api
from ralph.memory.project import need_project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.tokens import Right, Tokens

OWN, OTHER = "shop", "bank"
# Only the other project has it.
SECRET = "zyxwvault"


def submit(server: TeamServer, task: Callable[[], Any]) -> None:
    """A call of somebody who does not wait for the answer."""

    async def submitted() -> None:
        server.begin()
        server.calls.submit(task)

    asyncio.run(submitted())


class Team:
    """A server in this process, and its tokens."""

    def __init__(self, folder: Path, limits: ServerLimits | None = None) -> None:
        self.home = home = home_folder()
        roots = [lived_in(folder / name) for name in (OWN, OTHER)]
        self.own, self.other = (need_project(root, home=home) for root in roots)
        with open_ralph(self.other.root) as ralph:
            ralph.remember(f"The {SECRET} is in the cellar.")
        with open_ralph(self.own.root) as ralph:
            ralph.remember("The nightly export takes an hour.")
        settings = load(home=home, project_file=self.own.settings_file).settings
        self.tokens = Tokens(home, settings)
        self.lines: list[str] = []
        self.server = TeamServer(
            [self.own, self.other],
            Tokens(home, settings),
            home=home,
            limits=limits or ServerLimits(per_second=10_000, burst=10_000),
            log=self.lines.append,
        )
        self.client = TestClient(make_api(self.server), raise_server_exceptions=False)

    def token(self, right: Right = "admin", *, project: Any = None, **more: Any) -> str:
        """A new token's secret."""
        of = (project or self.own).id
        return self.tokens.create("test", of, right, **more)[1]

    def call(self, method: str, path: str, token: str = "", **more: Any) -> Any:
        """One request below the project's path."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        url = path if path.startswith("/v1") else f"/v1/projects/{OWN}{path}"
        return self.client.request(method, url, headers=headers, **more)


@contextlib.contextmanager
def team(folder: Path, limits: ServerLimits | None = None) -> Iterator[Team]:
    """The server of two projects."""
    made = Team(folder, limits)
    try:
        yield made
    finally:
        made.server.close()
        made.tokens.close()


class ServerProcess:
    """`ralph serve` of one project as a process, with a home of its own; it can be killed."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        self._environ = {**os.environ, **measured(), "RALPH_HOME": str(home)}
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """The project on the server."""
        return f"http://127.0.0.1:{self._port}/projects/{self.root.name}"

    def start(self) -> None:
        """Serve, at the same address as before."""
        words = [sys.executable, "-m", "ralph", "serve", "--port", str(self._port)]
        self._process = subprocess.Popen(
            words, cwd=self.root, env=self._environ, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        lines = iter(self._process.stdout.readline, "")
        told = next(line for line in lines if line.startswith("API: "))
        self._port = int(told.partition("/v1/")[0].rpartition(":")[2])

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def tokens(self) -> Tokens:
        """The tokens of this server."""
        return Tokens(self.home, load(home=self.home, environ={}).settings)

    def token(self, right: Right = "admin", **more: Any) -> str:
        """A new token's secret."""
        project = need_project(self.root, home=self.home)
        return self.tokens().create("client", project.id, right, **more)[1]

    def memory(self) -> Ralph:
        """What the server has, read from its own files."""
        return open_ralph(self.root, home=self.home)


@contextlib.contextmanager
def serving(root: Path, home: Path) -> Iterator[ServerProcess]:
    """A server that runs, and ends with the test."""
    server = ServerProcess(root, home)
    server.start()
    try:
        yield server
    finally:
        server.kill()
