"""`scripts/bench speed`: every measure at every size, each compared with its reference."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
import statistics
import string
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import corpus
from bench.measure import (
    FEATURE,
    BenchProject,
    Compared,
    child_environment,
    compared,
    each,
    filled_project,
    fresh,
    in_turns,
    python,
    ralph_command,
    taken,
)
from bench.report import (
    NO_TARGET,
    Row,
    Target,
    Tell,
    Unit,
    parser,
    row_of,
    show_rows,
    teller,
)
from ralph import disk
from ralph.errors import BadInput, RalphError
from ralph.index import ranking_tokens
from ralph.index.sync import live_of
from ralph.text.tokens import query_tokens, tokens

if TYPE_CHECKING:
    from ralph.index import Embedder, Passage, Vectors
    from ralph.index.sync import Index
    from ralph.memory.feature import FeatureMemory

NUMPY = 'python -c "import numpy"'
_SIZES = "1000,10000,100000"
_WARM_UP = 3
_TARGET_SIZE = 10_000  # below it, a search has little more than its fixed cost
# So much longer may a record and the start of a session take in a long memory than in a short one.
_GROWTH = 1.5


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    options = parser("speed", __doc__, sizes=_SIZES, repeat=5)
    options.add_argument("--only", default="", help=f"some of {','.join(MEASURES)}")
    options.add_argument("--folder", type=Path, help="keep the built memories there, and use again")
    chosen = options.parse_args(args)
    only = [name.strip() for name in chosen.only.split(",") if name.strip()]
    if unknown := [name for name in only if name not in MEASURES]:
        raise BadInput(
            f"there is no measure {', '.join(unknown)}", todo=f"There are: {', '.join(MEASURES)}."
        )
    rows = run(
        chosen.sizes,
        repeat=chosen.repeat,
        only=only or list(MEASURES),
        folder=chosen.folder,
        tell=teller(),
    )
    return show_rows("speed", rows, chosen)


def run(
    sizes: Sequence[int],
    *,
    repeat: int,
    only: Sequence[str],
    folder: Path | None = None,
    tell: Tell = lambda text: None,
) -> list[Row]:
    """Return the rows of these measures; without a folder, leave nothing behind."""
    rows: list[Row] = []
    for number, size in enumerate(sizes):
        place_folder = folder and folder / f"speed-{size}"
        with filled_project(size, folder=place_folder, tell=tell) as place:
            for name in MEASURES:
                if name in only and (name != "start" or number == 0):
                    tell(f"{size:,}: {name}")
                    rows += MEASURES[name](place, repeat)
    return [*rows, *_growth(rows)]


def _growth(rows: Sequence[Row]) -> list[Row]:
    """Compare a record and the start of a session in the longest memory and in the shortest."""
    grown: list[Row] = []
    for what in (_ONE_RECORD, _SESSION_START):
        found = sorted((row for row in rows if row.what == what), key=lambda row: row.size or 0)
        if len(found) > 1:
            short = found[0]
            long = found[-1]
            # Both in units of `python -c pass`, which was measured with each of them.
            both = Compared((long.ratio * short.reference,), (short.ours,))
            named = f"the same with {short.size:,} records"
            target = Target(ratio=_GROWTH)
            grown.append(row_of(f"{what}, grown", long.size, both, named, target=target))
    return grown


# -- fresh processes

_ONE_RECORD = "ralph record, one iteration, fresh process"
_SESSION_START = "SessionStart hook after a change, fresh process"
_SEARCH = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for hit in ralph.feature(sys.argv[2]).search(sys.argv[3]):
        sys.stdout.write(hit.id + "\\n")
"""
_REMEMBER = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    ralph.feature(sys.argv[2]).remember({"task_title": sys.argv[3], "summary": sys.argv[3]})
"""
# A process's memory now and at its peak; zeros if the system does not tell.
_MEMORY_BYTES = """
import pathlib, sys
def memory_bytes():
    try:
        status = pathlib.Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, 0
    lines = (line.split() for line in status.splitlines())
    sizes = {line[0]: int(line[1]) * 1024 for line in lines if line[0] in ("VmRSS:", "VmHWM:")}
    return sizes.get("VmRSS:", 0), sizes.get("VmHWM:", 0)
"""
# `before` covers what is loaded before the first search: modules and embedder, no collection.
_MEMORY = f"""{_MEMORY_BYTES}
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    ralph.store.embedder.embed_query("ready?")
    before, _ = memory_bytes()
    ralph.feature(sys.argv[2]).search(sys.argv[3])
    sys.stdout.write(" ".join(map(str, (before, *memory_bytes()))))
"""
_NUMPY_MEMORY = f"""{_MEMORY_BYTES}
import numpy
sys.stdout.write(" ".join(map(str, memory_bytes())))
"""
_VECTOR = bytes(256 * 4)


def start(place: BenchProject, repeat: int) -> list[Row]:
    """Measure a command that only prints its version."""
    both = compared(
        fresh([*ralph_command(), "--version"], home=place.home),
        fresh(python("pass"), home=place.home),
        rounds=4 * repeat,
    )
    return [row_of("ralph --version", None, both, "python -c pass", target=Target(ratio=2.5))]


def cold(place: BenchProject, repeat: int) -> list[Row]:
    """Measure from nothing to the first answer, and to the first record saved."""
    query = corpus.queries(1, size=place.size)[0]
    where = (str(place.project), FEATURE, query)
    command = [*ralph_command(), "--project", where[0], "search", query, "--feature", FEATURE]
    target = Target(ratio=6.0) if place.size == _TARGET_SIZE else NO_TARGET
    measures = {
        "fresh process to first answer, open_ralph()": (python(_SEARCH, *where), target),
        "fresh process to first answer, ralph search --json": ([*command, "--json"], target),
        "fresh process to first record kept": (python(_REMEMBER, *where), NO_TARGET),
    }
    return beside_numpy(place, measures, rounds=2 * repeat)


def process(place: BenchProject, repeat: int) -> list[Row]:
    """Measure what a person waits for most often, each time in a new process."""
    environment = {"RALPH_SUMMARIZER_CONVERSATION_ENABLED": "false"}
    environment |= {"RALPH_SUMMARIZER_EXCHANGE_ENABLED": "false", "RALPH_HOOK_TIMEOUT_S": "60"}
    record = [*ralph_command(), "--project", str(place.project), "record", "-", "--json"]
    start = [*ralph_command(), "--project", str(place.project), "hook", "session-start"]
    rounds = 4 * repeat
    warm_up = 1
    new = iter(_new_iterations(place, rounds + warm_up))
    starts = itertools.count()

    def save() -> str:
        given = json.dumps({**next(new), "feature": FEATURE})
        return fresh(record, home=place.home, given=given)()

    def begin() -> None:
        # Something was saved since the last session, so the text is made again.
        given = {"session_id": f"bench-{next(starts)}", "cwd": str(place.project)}
        # Another environment counts as a change, too.
        around = {**environment, "RALPH_BENCH": given["session_id"]}
        told = fresh(start, home=place.home, given=json.dumps(given), environment=around)()
        if "additionalContext" not in told:
            raise RalphError("the start of a session was told nothing", where="scripts/bench")

    operations: dict[str, Callable[[], object]] = {_ONE_RECORD: save, _SESSION_START: begin}
    operations["python"] = fresh(python("pass"), home=place.home)
    times = in_turns(operations, rounds=rounds, warm_up=warm_up)
    return [
        row_of(what, place.size, Compared(times[what], times["python"]), "python -c pass")
        for what in (_ONE_RECORD, _SESSION_START)
    ]


def beside_numpy(
    place: BenchProject, measures: Mapping[str, tuple[list[str], Target]], *, rounds: int
) -> list[Row]:
    """Compare commands in fresh processes with one that only imports NumPy."""
    operations = {
        what: fresh(command, home=place.home) for what, (command, _) in measures.items()
    } | {NUMPY: fresh(python("import numpy"), home=place.home)}
    times = in_turns(operations, rounds=rounds)
    return [
        row_of(what, place.size, Compared(times[what], times[NUMPY]), NUMPY, target=target)
        for what, (_, target) in measures.items()
    ]


def memory(place: BenchProject, repeat: int) -> list[Row]:
    """Measure the memory of a process after a search; no rows if the system does not tell."""
    query = corpus.queries(1, size=place.size)[0]
    ours = fresh(python(_MEMORY, str(place.project), FEATURE, query), home=place.home)
    reference = fresh(python(_NUMPY_MEMORY), home=place.home)
    sizes = [[int(part) for part in ours().split()] for _ in range(repeat)]
    plain = statistics.median(int(reference().split()[0]) for _ in range(repeat))
    if not plain:
        return []
    grown = [(after - before) / place.size for before, after, _ in sizes]
    process = "memory of that process"
    a_record = "memory a record, after the first search"
    return [
        _row(a_record, place, "bytes/record", grown, len(_VECTOR), "float32 vector"),
        _row(process, place, "bytes", [float(one[1]) for one in sizes], plain, NUMPY),
        _row(
            f"{process} at its peak", place, "bytes", [float(one[2]) for one in sizes], plain, NUMPY
        ),
    ]


def _row(
    what: str, place: BenchProject, unit: Unit, values: list[float], reference: float, named: str
) -> Row:
    both = Compared(tuple(values), (reference,) * len(values))
    return row_of(what, place.size, both, named, unit=unit)


# -- a warm search, compared with the two things it consists of


def search(place: BenchProject, repeat: int) -> list[Row]:
    """Measure one warm search."""
    about = {10_000: "about 3 ms", 100_000: "about 45 ms"}.get(place.size, "")
    target = Target(ratio=3.0, about=about) if place.size >= _TARGET_SIZE else NO_TARGET
    questions = corpus.queries(20 * repeat + _WARM_UP, size=place.size)
    with place.opened() as ralph:
        memory = ralph.feature(FEATURE)
        bare = BareSearch(ralph.store.index, ralph.store.embedder, memory.target().name)
        return warm_searches({"warm search": memory.search}, bare, questions, place.size, target)


def warm_searches(
    asking: Mapping[str, Callable[[str], object]],
    bare: BareSearch,
    questions: Sequence[str],
    size: int,
    target: Target,
) -> list[Row]:
    """Measure searches; each round asks both sides a new question, and the first few warm up."""
    with closing(bare):
        prepared = [(bare.match(question), bare.vector(question)) for question in questions]
        return [
            row_of(
                what,
                size,
                compared(
                    each(ask, questions),
                    each(lambda question: bare.search(*question), prepared),
                    rounds=len(questions) - _WARM_UP,
                    warm_up=_WARM_UP,
                ),
                "NumPy scan + FTS5 query",
                target=target,
            )
            for what, ask in asking.items()
        ]


class BareSearch:
    """The vectors of a collection in a plain matrix, its words in a plain connection."""

    _CANDIDATES = 100

    def __init__(self, index: Index, embedder: Embedder | None, name: str) -> None:
        import numpy as np

        store = index.store
        self._store = store
        with store.state() as view:
            live = live_of(view, name)
        if live is None or embedder is None:
            raise RalphError("the memory has no index with vectors to compare with")
        self._live = live
        self._words = f"words_{live.id}"
        self._connection = sqlite3.connect(index.path)
        rows = self._connection.execute(f"SELECT v FROM vector_{live.id} ORDER BY row")
        joined = b"".join(row[0] for row in rows)
        self._matrix = np.frombuffer(joined, dtype=np.float32).reshape(-1, live.manifest.dims)
        self.vector: Callable[[str], Vectors] = embedder.embed_query

    def match(self, question: str) -> str:
        """Return the query that Ralph itself gives to FTS5, without words it does not rank by."""
        asked = query_tokens(question)
        with self._store.state() as view:
            words = ranking_tokens(view.words(self._live, asked, 0))
        return " OR ".join(f'"{token}"' for token in words)

    def search(self, match: str, vector: Vectors) -> None:
        """Compute all cosines and the nearest of them, and find the rows that match best."""
        import numpy as np

        # Not `@`: on a busy machine its threads wait for each other, which would flatter us.
        cosines = np.einsum("ij,j->i", self._matrix, vector)
        if len(cosines) > self._CANDIDATES:
            np.argpartition(cosines, -self._CANDIDATES)
        words = self._words
        self._connection.execute(
            # Not by `rank`, which takes 1.5 times as long.
            f"SELECT rowid, bm25({words}) AS score FROM {words} WHERE {words} MATCH ?"
            " ORDER BY score LIMIT ?",
            (match, self._CANDIDATES),
        ).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


# -- one record saved, and seen by another process


def remember(place: BenchProject, repeat: int) -> list[Row]:
    """Measure one `remember`, with everything loaded before."""
    with place.opened() as ralph, closing(_PlainStore(place)) as plain:
        rounds = 20 * repeat
        new = _new_iterations(place, rounds + _WARM_UP)
        both = compared(
            each(ralph.feature(FEATURE).remember, new), plain.keep, rounds=rounds, warm_up=_WARM_UP
        )
    return [row_of("one remember", place.size, both, "append + commit", target=Target(ratio=4.0))]


def lag(place: BenchProject, repeat: int) -> list[Row]:
    """Measure from the call of `remember` until a process that was already open finds it."""
    with (
        place.opened() as ralph,
        closing(_PlainStore(place)) as plain,
        _reader(place, plain.path) as ask,
    ):
        rounds = 6 * repeat
        memory = ralph.feature(FEATURE)

        def ours(iteration: dict[str, Any]) -> None:
            word = "zq" + "".join(random.choices(string.ascii_lowercase, k=12))  # occurs nowhere
            memory.remember(iteration | {"task_title": f"{iteration['task_title']} {word}"})
            ask("memory", word)

        both = compared(
            each(ours, _new_iterations(place, rounds + _WARM_UP)),
            lambda: ask("plain", plain.keep()),
            rounds=rounds,
            warm_up=_WARM_UP,
        )
    what = "remember until another process finds it"
    return [row_of(what, place.size, both, "append + commit until another process reads it")]


class _PlainStore:
    """The reference: its own file and database, as durable as each is by default."""

    def __init__(self, place: BenchProject) -> None:
        self.path = place.scratch / "plain.sqlite3"
        self._lines = cycle(_journal(place).read_bytes().splitlines(keepends=True)[-64:])
        self._file = (place.scratch / "plain.jsonl").open("ab", buffering=0)
        self._connection = sqlite3.connect(self.path)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS plain (id TEXT PRIMARY KEY, body BLOB, vector BLOB)"
        )
        self._connection.commit()

    def keep(self) -> str:
        """Append a line of the journal and flush it, then commit one row with text and vector."""
        line = next(self._lines)
        row_id = uuid.uuid4().hex
        disk.write_all(self._file.fileno(), line)
        self._connection.execute("INSERT INTO plain VALUES (?, ?, ?)", (row_id, line, _VECTOR))
        self._connection.commit()
        return row_id

    def close(self) -> None:
        """Close the file and the connection."""
        self._file.close()
        self._connection.close()


# It is told where to look and what for, and answers when it finds that. It ends with its input.
_READER = """
import json, sqlite3, sys, time
from ralph import open_ralph
project, feature, plain = sys.argv[1:]
with open_ralph(project) as ralph:
    connection = sqlite3.connect(plain)
    memory = ralph.feature(feature)
    memory.search("everything loaded before")
    def in_memory(word):
        return any(word in hit.record.task_title for hit in memory.search(word, min_score=0.0))
    def in_plain(row_id):
        return connection.execute("SELECT body FROM plain WHERE id = ?", (row_id,)).fetchone()
    print("ready", flush=True)
    for line in sys.stdin:
        where, wanted = json.loads(line)
        deadline = time.monotonic() + 30.0
        is_there = {"memory": in_memory, "plain": in_plain}[where]
        while not (found := is_there(wanted)) and time.monotonic() < deadline:
            pass
        print("found" if found else "never", flush=True)
"""
_END_TIMEOUT_S = 10.0


@contextmanager
def _reader(place: BenchProject, plain: Path) -> Iterator[Callable[[str, str], None]]:
    """Start another process with the memory open; asked for a word, it answers when it finds it."""
    process = subprocess.Popen(
        python(_READER, str(place.project), FEATURE, str(plain)),
        env=child_environment(place.home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    stdin = process.stdin
    stdout = process.stdout
    if stdin is None or stdout is None:
        raise AssertionError("both were asked for")

    def ask(where: str, wanted: str) -> None:
        stdin.write(json.dumps([where, wanted]) + "\n")
        stdin.flush()
        if stdout.readline().strip() != "found":
            raise RalphError(f"the reading process never saw {wanted!r}", where="scripts/bench")

    try:
        if stdout.readline().strip() != "ready":
            raise RalphError("the reading process did not start", where="scripts/bench")
        yield ask
    finally:
        with suppress(OSError):  # it may have ended already, which was reported above
            stdin.close()  # this makes it end
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        stdout.close()


def _new_iterations(place: BenchProject, count: int) -> list[dict[str, Any]]:
    """Return iterations that no memory has, without numbers and times: the journal sets those."""
    new = list(corpus.iterations(place.size, place.size + count))
    for plain in new:
        plain["session_id"] = uuid.uuid4().hex
        del plain["iteration_number"], plain["timestamp"]
    return new


# -- many records at once

_BATCH = 512
_LONG = 50_000


def ingest(place: BenchProject, repeat: int) -> list[Row]:
    """Return how building the memory went; no rows if it existed already."""
    if place.ingest is None:
        return []
    what = "ingest until findable"
    beside = "json.dumps, one flush"
    return [row_of(what, place.size, place.ingest, beside, unit="s/record")]


def rebuild(place: BenchProject, repeat: int) -> list[Row]:
    """Compare rebuilding the index from the journal with embedding and tokenizing alone.

    Half of the reference runs before it and half after, so that both meet the same noise.
    """
    ours: list[float] = []
    reference: list[float] = []
    with place.opened() as ralph:
        memory = ralph.feature(FEATURE)
        for _ in range(1 if place.size >= _LONG else min(repeat, 3)):
            passages = _passages(memory)
            before = _bare_s(memory, islice(passages, place.size // 2))
            ours.append(taken(lambda: memory.sync(afresh=True)))
            reference.append(before + _bare_s(memory, passages))
    both = Compared(tuple(ours), tuple(reference))
    target = Target(value=120.0) if place.size == 100_000 else NO_TARGET
    row = row_of("rebuild", place.size, both, "embed + tokenize alone", target=target)
    return [row, _disk(place, "disk a record, index after rebuilds", ("index",))]


def size_on_disk(place: BenchProject, repeat: int) -> list[Row]:
    """Measure what a record takes in the journal and in the index."""
    return [
        _disk(place, "disk a record, journal", ("journal",)),
        _disk(place, "disk a record, index", ("index",)),
        _disk(place, "disk a record, together", ("journal", "index")),
    ]


def _disk(place: BenchProject, what: str, parts: tuple[str, ...]) -> Row:
    journal = _journal(place)
    with place.opened() as ralph:
        index = ralph.store.index.path
        files = {"journal": [journal], "index": list(index.parent.glob(f"{index.name}*"))}
        size = sum(file.stat().st_size for part in parts for file in files[part])
        memory = ralph.feature(FEATURE)
        sample = list(islice(_passages(memory), 1000))
        dims = memory.target().manifest().dims
    with journal.open("rb") as lines:
        records = sum(1 for _ in lines)
    raw = sum(len(one.embed.encode()) for one in sample) / len(sample) + 4 * dims
    return _row(what, place, "bytes/record", [size / records], raw, "text + float32 vector")


def _bare_s(memory: FeatureMemory, passages: Iterator[Passage]) -> float:
    """Return the seconds for embedding and tokenizing these passages, without reading them."""
    embedder = memory.target().embedder
    if embedder is None:
        raise RalphError("the setting embedder is none, there is nothing to compare with")
    embedder.embed_query("loaded before")
    seconds = 0.0
    while batch := list(islice(passages, _BATCH)):
        begin = time.perf_counter()
        embedder.embed_passages([passage.embed for passage in batch])
        for passage in batch:
            tokens(passage.title)
            tokens(passage.text)
            tokens(passage.places)
        seconds += time.perf_counter() - begin
    return seconds


def _passages(memory: FeatureMemory) -> Iterator[Passage]:
    target = memory.target()
    position: str | None = None
    done = False
    while not done:
        batch = target.journal.read(position, limit=_BATCH)
        position = batch.position
        done = batch.done
        for located in batch.records:
            yield from target.cut(located.record)


def _journal(place: BenchProject) -> Path:
    return place.project / ".ralph" / "db" / "memory" / f"{FEATURE}.jsonl"


# In this order: measures of the memory as it was built come before those that add to it.
MEASURES: dict[str, Callable[[BenchProject, int], list[Row]]] = {
    "start": start,
    "ingest": ingest,
    "disk": size_on_disk,
    "memory": memory,
    "process": process,
    "cold": cold,
    "search": search,
    "remember": remember,
    "lag": lag,
    "rebuild": rebuild,
}
