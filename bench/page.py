"""`scripts/bench page`: how long each view of the web page takes, its start and its memory.

Half of the records are iterations, half are exchanges. The page runs in its own process, as
`ralph serve` starts it. Each view is measured in turns with its style sheet, a file that the same
server reads.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote_plus

from bench import corpus
from bench.conversations import add_conversations
from bench.measure import (
    FEATURE,
    BenchProject,
    Compared,
    child_environment,
    compared,
    fill,
    fresh,
    python,
    ralph_command,
    taken,
    temporary_project,
)
from bench.report import Row, Target, Tell, parser, row_of, show_rows, teller

_VIEW = Target(value=0.3)
_SEARCH = Target(value=0.1)
_START = Target(value=0.7)
_MEMORY = Target(value=150e6)
_NUMPY_MEMORY = """
import numpy
with open("/proc/self/status") as file:
    print(next(1024 * int(line.split()[1]) for line in file if line.startswith("VmRSS")))
"""
_SHEET = "/static/style.css"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/enter\S+)")
_RECORD = re.compile(r'href="[^"]*/record/([^"]+)"')


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    options = parser("page", __doc__, sizes="20000", repeat=5).parse_args(args)
    rows = run(options.sizes, repeat=options.repeat, tell=teller())
    return show_rows("page", rows, options)


def run(sizes: Sequence[int], *, repeat: int, tell: Tell = lambda text: None) -> list[Row]:
    """Return the rows for every size; leave nothing behind."""
    rows: list[Row] = []
    for size in sizes:
        with temporary_project(size // 2) as place:
            fill(place, tell)
            with place.opened() as ralph:
                add_conversations(ralph, place.size)
                ralph.conversations.sync()
            tell(f"{size:,}: conversations indexed")
            rows += _rows(place, size, repeat)
    return rows


class _Page:
    """A page that runs in its own process, with a browser's cookie."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        found = _ADDRESS.search(process.stdout.readline())
        assert found is not None
        self.process = process
        self._port = int(found[1])
        entered, _ = self._ask(found[2], cookie="")
        self._cookie = (entered.getheader("set-cookie") or "").partition(";")[0]
        # The page has a path of its own, which the cookie is bound to.
        self._root = (entered.getheader("location") or "").rstrip("/")

    def get(self, path: str) -> str:
        """Return the text of a view."""
        return self._ask(self._root + path, cookie=self._cookie)[1]

    def sheet(self) -> str:
        """Return the style sheet, which needs no cookie."""
        return self._ask(_SHEET, cookie="")[1]

    def _ask(self, path: str, *, cookie: str) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        connection.request("GET", path, headers={"cookie": cookie})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status < 400, f"{path}: {answer.status}"
        return answer, text

    def memory_bytes(self) -> int:
        """Return the memory of the process; 0 if the system does not tell."""
        file = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmRSS:\s+(\d+)", file.read_text()) if file.exists() else None
        return int(found[1]) * 1024 if found else 0


@contextmanager
def _served(place: BenchProject) -> Iterator[_Page]:
    command = [*ralph_command(), "serve", "--project", str(place.project), "--port", "0"]
    with subprocess.Popen(
        command, env=child_environment(place.home), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Page(process)
        finally:
            process.terminate()


def _rows(place: BenchProject, size: int, repeat: int) -> list[Row]:
    def start() -> float:
        begin = time.perf_counter()
        with _served(place):  # a browser has been let in by now
            return time.perf_counter() - begin

    numpy = fresh(python("import numpy"), home=place.home)
    starts = Compared(
        tuple(start() for _ in range(repeat)), tuple(taken(numpy) for _ in range(repeat))
    )
    rows = [row_of("start to first answer", size, starts, "import numpy", target=_START)]
    question = quote_plus(corpus.queries(1, size=place.size)[0])
    with _served(place) as page:
        record = _RECORD.findall(page.get("/timeline"))[0]
        views = {
            path: _VIEW
            for path in (
                *("/", "/plan", f"/features/{FEATURE}", "/timeline", "/timeline?text=timeout"),
                *("/conversations", "/notes", "/knowledge", "/documents", "/workers", "/settings"),
                *(f"/record/{record}", f"/forget?id={record}"),
            )
        } | {f"/search?q={question}&part=1": _SEARCH}
        for path, target in views.items():
            both = compared(partial(page.get, path), page.sheet, rounds=repeat)
            what = path.partition("?q")[0].replace(record, "ID")
            rows.append(row_of(what, size, both, "its style sheet", target=target))
        if held := page.memory_bytes():
            plain = float(fresh(python(_NUMPY_MEMORY), home=place.home)())
            memory = Compared((float(held),), (plain,))
            what = "memory after every view"
            numpy_alone = "Python with NumPy"
            rows.append(row_of(what, size, memory, numpy_alone, unit="bytes", target=_MEMORY))
    return rows
