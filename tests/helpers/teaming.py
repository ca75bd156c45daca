"""What the tests of the server share: two projects, a client for each token."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from browsing import lived_in
from starlette.testclient import TestClient

from ralph.config import home_folder, load
from ralph.doors.rest.app import ServerLimits, TeamServer, make_api
from ralph.memory.project import need_project
from ralph.memory.ralph import open_ralph
from ralph.memory.tokens import Right, Tokens

OWN, OTHER = "shop", "bank"
# Only the other project has it.
SECRET = "zyxwvault"


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
