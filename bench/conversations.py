"""`scripts/bench conversations`: what finding, listing and keeping conversations costs."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from bench import conversations_quality, corpus
from bench.arguments import sizes_of, teller
from bench.ground import Tell
from bench.measure import Compared, compared, each, fresh, in_turns, python
from bench.reads import Bare
from bench.report import NO_TARGET, Row, Target, of_times, to_json, to_markdown, write_table
from ralph import disk
from ralph.errors import BadInput
from ralph.kinds.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.memories import Ralph, open_ralph
from ralph.memories.many_conversations import Talk, keep_many
from ralph.memories.series import Series

_SIZES = "10000,100000"
_EXCHANGES_EACH = 10
_LISTED = 10_000
_CHUNKS = 10
_WARM_UP = 3
_SOURCE = "bench"
# The texts of a larger corpus are the first ones again, under other numbers.
_TEXTS = 20_000
_NUMPY = 'python -c "import numpy"'
_SCAN = "NumPy scan + FTS5 query"
_COLD = {10_000: Target(value=0.5), 100_000: Target(about="about 1 s")}
_WARM = {10_000: Target(about="about 30 ms"), 100_000: Target(about="about 150 ms")}
_RELATED = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for one in ralph.conversations.related(sys.argv[2], min_similarity=0.4).conversations:
        sys.stdout.write(one.conversation.id + "\\n")
"""


class Place(msgspec.Struct, frozen=True):
    """Where the conversations lie, how many exchanges they have, and how keeping them went."""

    exchanges: int
    project: Path
    home: Path
    kept: Compared

    @contextmanager
    def opened(self) -> Iterator[Ralph]:
        """The memory, open."""
        with open_ralph(self.project, home=self.home) as ralph:
            yield ralph

    @property
    def journal(self) -> Path:
        """The journal's file."""
        [file] = (self.home / "journal" / "conversations").glob("*.jsonl")
        return file


def main(args: Sequence[str]) -> int:
    """Measure, and show or write what came out; 2 for arguments that make no sense."""
    try:
        options = _parser().parse_args(args)
    except SystemExit as end:
        return int(end.code or 0)
    if options.repeat < 1 or options.listed < 1 or (options.limit or 1) < 1:
        raise BadInput("--repeat, --listed and --limit go from 1 upwards")
    tell = teller()
    if options.dataset is not None:
        found = conversations_quality.evaluate(options.dataset, limit=options.limit, tell=tell)
        if options.json:
            plain = {"bench": "conversations", "quality": conversations_quality.to_json(found)}
            sys.stdout.write(json.dumps(plain, indent=2) + "\n")
        else:
            conversations_quality.write_table(found, sys.stdout.write)
        return 0
    sizes = sizes_of(options.sizes, example=_SIZES)
    rows = run(sizes, repeat=options.repeat, listed=options.listed, tell=tell)
    if options.out:
        options.out.write_text(to_markdown(rows, name="conversations"), encoding="utf-8")
    if options.json:
        report = to_json(rows, sizes=sizes, name="conversations")
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        write_table(rows, sys.stdout.write, name="conversations")
    return 0


def run(
    sizes: Sequence[int], *, repeat: int, listed: int = _LISTED, tell: Tell = lambda text: None
) -> list[Row]:
    """The rows at every size, and those of the list; nothing is left behind."""
    rows: list[Row] = []
    for size in sizes:
        with _built(size, _EXCHANGES_EACH, tell) as place:
            tell(f"{size:,}: measuring")
            rows += [*_keeping(place), *_cold(place, repeat), *_warm(place, repeat)]
    with _built(listed, 1, tell, indexed=False) as place:
        rows += _list(place, repeat)
    return rows


# -- conversations made up


@contextmanager
def _built(size: int, each: int, tell: Tell, *, indexed: bool = True) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="ralph-bench-"))
    try:
        home, project = folder / "home", folder / "project"
        project.mkdir()
        with open_ralph(project, home=home) as ralph:
            ralph.project.init()
            kept = _kept(ralph, size, each, folder / "plain.jsonl")
            tell(f"{size:,}: kept")
            if indexed:
                ralph.conversations.sync()
                tell(f"{size:,}: indexed")
        yield Place(size, project, home, kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kept(ralph: Ralph, size: int, each: int, plain: Path) -> Compared:
    """Keep them chunk by chunk, each beside writing the same texts with one flush."""
    memory = ralph.conversations
    series = Series(ralph.project.id, memory.shelf)
    ours: list[float] = []
    reference: list[float] = []
    chunk = max(each, size // _CHUNKS // each * each)
    with plain.open("ab", buffering=0) as file:
        for start in range(0, size, chunk):
            stop = min(start + chunk, size)
            talks = list(_talks(start, stop, each))
            begin = time.perf_counter()
            keep_many(series, talks, memory.shelf.settings)
            middle = time.perf_counter()
            lines = [one.to_json() for talk in talks for one in talk.exchanges]
            disk.write_all(file.fileno(), "".join(f"{json.dumps(one)}\n" for one in lines).encode())
            end = time.perf_counter()
            ours.append((middle - begin) / (stop - start))
            reference.append((end - middle) / (stop - start))
    return Compared(tuple(ours), tuple(reference))


def _talks(start: int, stop: int, each: int) -> Iterator[Talk]:
    for first in range(start, stop, each):
        name = conversation_id(_SOURCE, str(first))
        at = f"2026-{1 + first % 10:02}-{1 + first % 28:02}T10"
        told = [corpus.iteration(n % _TEXTS) for n in range(first, min(first + each, stop))]
        exchanges = [
            Exchange(
                id=exchange_id(name, str(place)),
                conversation=name,
                user=f"{one['task_title']}, number {first + place}",
                assistant=one["summary"],
                completed=f"{at}:{place % 60:02}:00Z",
            )
            for place, one in enumerate(told)
        ]
        title = str(told[0]["task_title"])
        begun = Conversation(id=name, title=title, source=_SOURCE, created=f"{at}:00:00Z")
        yield Talk(begun, exchanges)


# -- measures


def _keeping(place: Place) -> list[Row]:
    what, beside = "keep an exchange, many at once", "the same texts written and flushed"
    return [of_times(what, place.exchanges, place.kept, beside, unit="s/record")]


def _cold(place: Place, repeat: int) -> list[Row]:
    query = corpus.queries(1, size=min(place.exchanges, _TEXTS))[0]
    times = in_turns(
        {
            "ours": fresh(python(_RELATED, str(place.project), query), home=place.home),
            "reference": fresh(python("import numpy"), home=place.home),
        },
        rounds=2 * repeat,
    )
    both = Compared(times["ours"], times["reference"])
    target = _COLD.get(place.exchanges, NO_TARGET)
    return [of_times("related(), fresh process", place.exchanges, both, _NUMPY, target=target)]


def _warm(place: Place, repeat: int) -> list[Row]:
    """Each round asks another question, both sides the same one."""
    rounds = 10 * repeat
    questions = corpus.queries(rounds + _WARM_UP, size=min(place.exchanges, _TEXTS))
    rows: list[Row] = []
    with place.opened() as ralph:
        memory = ralph.conversations
        shelf = memory.shelf
        name = Series(ralph.project.id, shelf).target().name
        with closing(Bare(shelf.index, shelf.embedder, name)) as bare:
            prepared = [(bare.match(one), bare.vector(one)) for one in questions]
            asking: dict[str, Callable[[str], object]] = {
                "related(), warm": lambda one: memory.related(one, min_similarity=0.4),
                "search(), warm": memory.search,
            }
            for what, ask in asking.items():
                both = compared(
                    each(ask, questions),
                    each(lambda one: bare.search(*one), prepared),
                    rounds=rounds,
                    warm_up=_WARM_UP,
                )
                target = _WARM.get(place.exchanges, NO_TARGET)
                rows.append(of_times(what, place.exchanges, both, _SCAN, target=target))
    return rows


def _list(place: Place, repeat: int) -> list[Row]:
    """All conversations: the first time, which reads the journal, and again."""

    def first() -> None:
        with place.opened() as ralph:
            ralph.conversations.list()

    def read() -> None:
        for line in place.journal.read_bytes().splitlines():
            json.loads(line)

    cold = compared(first, read, rounds=3 * repeat)
    with place.opened() as ralph:
        memory = ralph.conversations
        warm = compared(lambda: memory.list(), read, rounds=3 * repeat)
    beside = "json.loads of its journal's lines"
    goal = Target(value=0.2) if place.exchanges == _LISTED else NO_TARGET
    return [
        of_times("list all, journal read first", place.exchanges, cold, beside, target=goal),
        of_times("list all, again", place.exchanges, warm, beside, target=goal),
    ]


# -- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench conversations", description=__doc__)
    parser.add_argument("--sizes", default=_SIZES, help=f"how many exchanges (default {_SIZES})")
    parser.add_argument(
        "--listed", type=int, default=_LISTED, help=f"how many to list (default {_LISTED})"
    )
    parser.add_argument("--repeat", type=int, default=3, help="more of it, steadier figures")
    parser.add_argument(
        "--dataset", type=Path, help="a LongMemEval file (gzipped or not): how well, not how fast"
    )
    parser.add_argument("--limit", type=int, help="of the dataset only the first so many questions")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write a Markdown table to this file too")
    return parser
