"""`scripts/bench everything`: one search over iterations, conversations and knowledge together.

Each of the three has as many records as the size says. The cold search is compared with
`import numpy`, the warm one with the bare scans and FTS5 queries that it consists of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from bench import corpus
from bench.conversations import add_conversations
from bench.knowledge import publish_entries
from bench.measure import BenchProject, compared, each, fill, python, temporary_project
from bench.report import NO_TARGET, Row, Target, Tell, parser, row_of, show_rows, teller
from bench.speed import BareSearch, beside_numpy

if TYPE_CHECKING:
    from ralph.index import Vectors

_TARGET_SIZE = 10_000
_WARM_UP = 3
_SEARCH = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for hit in ralph.search(sys.argv[2]):
        sys.stdout.write(hit.id + "\\n")
"""


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    options = parser("everything", __doc__, sizes="10000", repeat=3).parse_args(args)
    rows = run(options.sizes, repeat=options.repeat, tell=teller())
    return show_rows("everything", rows, options)


def run(sizes: Sequence[int], *, repeat: int, tell: Tell = lambda text: None) -> list[Row]:
    """Return the rows for every size; leave nothing behind."""
    rows: list[Row] = []
    for size in sizes:
        with _filled(size, tell) as place:
            rows += [*_cold(place, repeat), *_warm(place, repeat)]
    return rows


@contextmanager
def _filled(size: int, tell: Tell) -> Iterator[BenchProject]:
    with temporary_project(size) as place:
        fill(place, tell)
        with place.opened() as ralph:
            add_conversations(ralph, size)
            ralph.conversations.sync()
            tell(f"{size:,}: conversations indexed")
            publish_entries(ralph, size)
            tell(f"{size:,}: knowledge indexed")
        yield place


def _cold(place: BenchProject, repeat: int) -> list[Row]:
    query = corpus.queries(1, size=place.size)[0]
    target = Target(ratio=4.0) if place.size == _TARGET_SIZE else NO_TARGET
    command = python(_SEARCH, str(place.project), query)
    what = "one search over three kinds, fresh process"
    return beside_numpy(place, {what: (command, target)}, rounds=2 * repeat)


def _warm(place: BenchProject, repeat: int) -> list[Row]:
    questions = corpus.queries(10 * repeat + _WARM_UP, size=place.size)
    target = Target(ratio=3.0) if place.size == _TARGET_SIZE else NO_TARGET
    with place.opened() as ralph, ExitStack() as stack:
        bare = [
            stack.enter_context(
                closing(BareSearch(one.store.index, one.store.embedder, one.target().name))
            )
            for one in ralph.streams()
            if one.records()
        ]
        prepared = [[(one, one.match(q), one.vector(q)) for one in bare] for q in questions]

        def scan(searches: list[tuple[BareSearch, str, Vectors]]) -> None:
            for one, match, vector in searches:
                one.search(match, vector)

        both = compared(
            each(ralph.search, questions),
            each(scan, prepared),
            rounds=len(questions) - _WARM_UP,
            warm_up=_WARM_UP,
        )
        what = "one search over three kinds, warm"
        return [row_of(what, place.size, both, "NumPy scans + FTS5 queries", target=target)]
