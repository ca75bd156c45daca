"""`scripts/bench server`: requests a second of two `ralph serve` processes on one PostgreSQL.

32 clients search and write (one request in ten). The reference is a bare Starlette application that
echoes requests, also in two uvicorn processes and with the same clients. In the last run, one
server is killed and PostgreSQL is restarted; no acknowledged write may be lost or saved twice.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench import corpus
from bench.load import TEXTS, Load, Loaded
from bench.measure import (
    BenchProject,
    Compared,
    child_environment,
    fill,
    ralph_command,
    temporary_project,
)
from bench.postgres import own_server
from bench.report import Row, Target, Tell, count, parser, row_of, show_rows, teller
from ralph.config import USER_FILE
from ralph.config import load as load_settings
from ralph.errors import RalphError
from ralph.memory.store import on_server
from ralph.memory.tokens import Tokens

CLIENTS = 32
_PROCESSES = 2
_LEAST_A_SECOND = 200
_ECHO = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    return Response(await request.body() or b"{}", media_type="application/json")

app = Starlette(routes=[Route("/{rest:path}", echo, methods=["GET", "POST"])])
# asyncio sets TCP_NODELAY only on sockets that name their protocol.
listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
listening.listen(256)
print("API: http://127.0.0.1:%d/v1/" % listening.getsockname()[1], flush=True)
config = uvicorn.Config(app, http="h11", loop="asyncio", lifespan="off", ws="none",
    log_config=None, access_log=False)
uvicorn.Server(config).run(sockets=[listening])
"""


def main(args: Sequence[str]) -> int:
    """Run the benchmark and show or write the results."""
    options = parser("server", __doc__, sizes="10000", repeat=3)
    options.add_argument(
        "--seconds", type=count, default=60, help="length of the last run (default 60)"
    )
    chosen = options.parse_args(args)
    rows: list[Row] = []
    for size in chosen.sizes:
        rows += run(size, repeat=chosen.repeat, seconds=chosen.seconds, tell=teller())
    return show_rows("server", rows, chosen)


def run(size: int, *, repeat: int, seconds: float, tell: Tell = lambda text: None) -> list[Row]:
    """Return the rows for one size. Stop all processes and remove all files afterwards."""
    with own_server() as postgres, temporary_project(size) as place, ExitStack() as stack:
        place.home.mkdir(exist_ok=True)
        (place.home / USER_FILE).write_text(json.dumps({"journal_url": postgres.url}))
        fill(place, tell)
        team = stack.enter_context(served(place))
        echo = stack.enter_context(_echoing(place))
        ours: list[Loaded] = []
        plain: list[Loaded] = []
        for number in range(repeat):
            each_s = max(1.0, seconds / 6)
            plain.append(driven(echo.load(place, each_s, seed=number)))
            ours.append(driven(team.load(place, each_s, seed=100 + number)))
            figures = f"{_rate(ours[-1]):.0f} searches/s, {_rate(plain[-1]):.0f} echoes/s"
            tell(f"round {number + 1}: {figures}")
        rows = _rows(size, ours, plain, "32 clients")
        disturbed = disturb(team, place, seconds, [postgres.stop, postgres.start])
        tell(f"disturbed: {_rate(disturbed):.0f} searches/s, {disturbed.retries} retries")
        check_kept(place, [*ours, disturbed])
        return rows + _rows(size, [disturbed], plain, "and restarts")


def _rate(one: Loaded) -> float:
    return len(one.searches_s) / one.seconds


def _rows(size: int, ours: list[Loaded], plain: list[Loaded], what: str) -> list[Row]:
    per = Compared(tuple(1 / _rate(one) for one in ours), tuple(1 / _rate(one) for one in plain))
    target = Target(value=max(1 / _LEAST_A_SECOND, 5 * per.reference_median))
    rows = [row_of(f"search, {what}", size, per, "echo", unit="s/record", target=target)]
    for name, part in (("50", 0.5), ("99", 0.99)):
        for kind in ("searches_s", "writes_s"):
            times = [
                tuple(_quantile(getattr(x, kind), part) for x in some) for some in (ours, plain)
            ]
            label = f"{kind.removesuffix('es_s')}{'e' if kind[0] == 'w' else ''}, {what}, p{name}"
            rows.append(row_of(label, size, Compared(*times), "echo"))
    return rows


def _quantile(times: Sequence[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))] if times else 0.0


# -- servers


class Served:
    """Processes that serve the same project, and tokens for it."""

    def __init__(self, start: Callable[[int], subprocess.Popen[str]], tokens: list[str]) -> None:
        self._start = start
        self._tokens = tokens
        self.processes: list[subprocess.Popen[str]] = []
        self.ports: list[int] = []

    def start(self, port: int = 0) -> int:
        """Start one more process, on this port or on any free one."""
        process = self._start(port)
        self.processes.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("API: "):
                return int(line.partition("/v1/")[0].rpartition(":")[2])
        raise RalphError("a server did not start")

    def load(self, place: BenchProject, seconds: float, *, seed: int) -> Load:
        """Return the load for these servers."""
        questions = corpus.queries(200, size=place.size)
        path = f"/v1/projects/{place.project.name}"
        return Load(self.ports, self._tokens, path, questions, seconds, seed=seed)

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def _running(served: Served) -> Iterator[Served]:
    try:
        served.ports += [served.start() for _ in range(_PROCESSES)]
        yield served
    finally:
        served.close()


@contextmanager
def served(place: BenchProject, clients: int = CLIENTS) -> Iterator[Served]:
    """Run two `ralph serve` processes of a project, with a token for each client."""
    with place.opened() as ralph:
        project = ralph.project.id
        settings = load_settings(home=place.home, project_file=ralph.project.settings_file).settings
    with contextlib.closing(Tokens(place.home, settings)) as tokens:
        secrets = [tokens.create(f"client {n}", project, "write")[1] for n in range(clients)]

    def start(port: int) -> subprocess.Popen[str]:
        command = [*ralph_command(), "serve", "--project", str(place.project), "--port", str(port)]
        environment = child_environment(place.home)
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    with _running(Served(start, secrets)) as running:
        yield running


@contextmanager
def _echoing(place: BenchProject) -> Iterator[Served]:
    def start(port: int) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True)

    with _running(Served(start, ["x"] * CLIENTS)) as running:
        yield running


# -- load


def driven(load: Load, meanwhile: Callable[[], None] = lambda: None) -> Loaded:
    """Run the clients in their own process and return their result."""
    command = [sys.executable, "-m", "bench.load"]
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(load))
        process.stdin.close()
        process.stdin = None
        meanwhile()
        told, _ = process.communicate()
    if process.returncode:
        raise RalphError("the clients failed; see the message above")
    return msgspec.json.decode(told, type=Loaded)


def disturb(
    team: Served, place: BenchProject, seconds: float, restart: Sequence[Callable[[], None]]
) -> Loaded:
    """Run the load while one server is killed and restarted, and then the database."""

    def meanwhile() -> None:
        time.sleep(seconds / 4)
        team.processes[0].kill()
        team.processes[0].wait()
        time.sleep(seconds / 10)
        team.start(team.ports[0])
        time.sleep(seconds / 10)
        for one in restart:
            one()

    return driven(team.load(place, seconds, seed=1000), meanwhile)


def check_kept(place: BenchProject, loads: Sequence[Loaded]) -> None:
    """Raise RalphError unless every acknowledged write was saved exactly once."""
    with place.opened() as ralph:
        for store in (ralph.store, ralph.conversations.store):
            server = on_server(store.journals)
            assert server is not None
            server.deliver()  # writes acknowledged while the database was down wait here
        records = [*ralph.notes.records(), *ralph.conversations.stream.history.records.values()]
        records += [one for feature in ralph.features() for one in feature.records()]
    kept: Counter[str] = Counter()
    for record in records:
        body = msgspec.json.decode(record.body)
        kept.update(body[name] for name in TEXTS if name in body)
    sent = [text for one in loads for text in one.acknowledged]
    lost = [text for text in sent if not kept[text]]
    doubled = [text for text in sent if kept[text] > 1]
    if lost or doubled or not sent:
        raise RalphError(
            f"of {len(sent)} writes, {len(lost)} are lost and {len(doubled)} saved twice"
        )
