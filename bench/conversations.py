"""`scripts/bench conversations`: how long it takes to find, list and save conversations.

With `--dataset`, how often search finds the sessions and rounds that answer a question.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import corpus, talks
from bench.measure import BenchProject, compared, in_chunks, python, temporary_project
from bench.ranking import DEPTH, FoundBy, first_of_each, means, measured, show_found
from bench.report import NO_TARGET, Row, Target, Tell, count, parser, row_of, show_rows, teller
from bench.speed import BareSearch, beside_numpy, warm_searches
from ralph.memory.conversation_stream import ConversationContent, ConversationStream
from ralph.memory.ralph import Ralph
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id

_LISTED = 10_000
_EXCHANGES_EACH = 10
_CHUNKS = 10
# A larger corpus repeats the first texts with other numbers.
_TEXTS = 20_000
_COLD = {10_000: Target(value=0.5), 100_000: Target(about="about 1 s")}
_WARM = {10_000: Target(about="about 30 ms"), 100_000: Target(about="about 150 ms")}
_RELATED = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for one in ralph.conversations.related(sys.argv[2], min_similarity=0.4).conversations:
        sys.stdout.write(one.conversation.id + "\\n")
"""


def main(args: Sequence[str]) -> int:
    """Measure, and show or write the results."""
    parse = parser("conversations", __doc__, sizes="10000,100000", repeat=3)
    parse.add_argument(
        "--listed", type=count, default=_LISTED, help=f"how many to list (default {_LISTED})"
    )
    parse.add_argument(
        "--dataset", type=Path, help="a LongMemEval file, or a folder of LoCoMo, REALTALK or BEAM"
    )
    parse.add_argument(
        "--single-turns", action="store_true", help="make each turn between people its own exchange"
    )
    parse.add_argument("--limit", type=count, help="only the first LIMIT talks of the dataset")
    options = parse.parse_args(args)
    if options.dataset is not None:
        asked = talks.read(options.dataset, single_turns=options.single_turns)
        found = evaluate(asked[: options.limit], tell=teller())
        return show_found("conversations", found, HEADLINES, as_json=options.json)
    rows = run(options.sizes, repeat=options.repeat, listed=options.listed, tell=teller())
    return show_rows("conversations", rows, options)


# -- how fast


def run(
    sizes: Sequence[int], *, repeat: int, listed: int = _LISTED, tell: Tell = lambda text: None
) -> list[Row]:
    """Return the rows for every size, and those of the list; leave nothing behind."""
    rows: list[Row] = []
    for size in sizes:
        with _kept(size, _EXCHANGES_EACH) as place:
            tell(f"{size:,}: kept")
            with place.opened() as ralph:
                ralph.conversations.sync()
            tell(f"{size:,}: indexed")
            rows += [*_keeping(place), *_cold(place, repeat), *_warm(place, repeat)]
    with _kept(listed, 1) as place:
        rows += _list(place, repeat)
    return rows


@contextmanager
def _kept(size: int, each: int) -> Iterator[BenchProject]:
    """Create a project with this many exchanges, `each` of them per conversation."""
    with temporary_project(size) as place:
        with place.opened() as ralph:
            ingest = in_chunks(
                size,
                max(each, size // _CHUNKS // each * each),
                lambda start, stop: list(_talks(start, stop, each)),
                lambda talks: _keep(ralph, talks),
                lambda talks: [one.to_json() for talk in talks for one in talk.exchanges],
                place.scratch / "plain.jsonl",
            )
        yield msgspec.structs.replace(place, ingest=ingest)


def _keep(ralph: Ralph, talks: Sequence[ConversationContent]) -> None:
    store = ralph.conversations.store
    ConversationStream(ralph.project.id, store).save(talks)


def add_conversations(ralph: Ralph, size: int) -> None:
    """Save this many exchanges."""
    _keep(ralph, list(_talks(0, size, _EXCHANGES_EACH)))


def _talks(start: int, stop: int, each: int) -> Iterator[ConversationContent]:
    for first in range(start, stop, each):
        name = conversation_id("bench", str(first))
        at = f"2026-{1 + first % 10:02}-{1 + first % 28:02}T10"
        made = [corpus.iteration(n % _TEXTS) for n in range(first, min(first + each, stop))]
        exchanges = [
            Exchange(
                id=exchange_id(name, str(number)),
                conversation=name,
                user=f"{one['task_title']}, number {first + number}",
                assistant=one["summary"],
                completed=f"{at}:{number % 60:02}:00Z",
            )
            for number, one in enumerate(made)
        ]
        title = str(made[0]["task_title"])
        begun = Conversation(id=name, title=title, source="bench", created=f"{at}:00:00Z")
        yield ConversationContent(begun, exchanges)


def _keeping(place: BenchProject) -> list[Row]:
    if place.ingest is None:
        return []
    what = "keep an exchange, many at once"
    beside = "the same texts written and flushed"
    return [row_of(what, place.size, place.ingest, beside, unit="s/record")]


def _cold(place: BenchProject, repeat: int) -> list[Row]:
    query = corpus.queries(1, size=min(place.size, _TEXTS))[0]
    command = python(_RELATED, str(place.project), query)
    target = _COLD.get(place.size, NO_TARGET)
    return beside_numpy(place, {"related(), fresh process": (command, target)}, rounds=2 * repeat)


def _warm(place: BenchProject, repeat: int) -> list[Row]:
    questions = corpus.queries(10 * repeat + 3, size=min(place.size, _TEXTS))
    with place.opened() as ralph:
        memory = ralph.conversations
        store = memory.store
        name = ConversationStream(ralph.project.id, store).target().name
        return warm_searches(
            {
                "related(), warm": lambda text: memory.related(text, min_similarity=0.4),
                "search(), warm": memory.search,
            },
            BareSearch(store.index, store.embedder, name),
            questions,
            place.size,
            _WARM.get(place.size, NO_TARGET),
        )


def _list(place: BenchProject, repeat: int) -> list[Row]:
    """List all conversations: the first time, which reads the journal, and again."""
    [journal] = (place.home / "journal" / "conversations").glob("*.jsonl")

    def first() -> None:
        with place.opened() as ralph:
            ralph.conversations.list()

    def read() -> None:
        for line in journal.read_bytes().splitlines():
            json.loads(line)

    cold = compared(first, read, rounds=3 * repeat)
    with place.opened() as ralph:
        memory = ralph.conversations
        warm = compared(lambda: memory.list(), read, rounds=3 * repeat)
    beside = "json.loads of its journal's lines"
    target = Target(value=0.2) if place.size == _LISTED else NO_TARGET
    return [
        row_of("list all, journal read first", place.size, cold, beside, target=target),
        row_of("list all, again", place.size, warm, beside, target=target),
    ]


# -- how well

_SOURCE = "dataset"
# What is looked for and how, and the measures that say most about it.
HEADLINES = {
    "round, by search": ("recall@10", "MRR"),
    "session, by search": ("recall@5", "any@5", "all@5"),
    "session, by related": ("recall@5", "any@5", "all@5"),
}


def evaluate(asked: Sequence[talks.Talk], *, tell: Tell = lambda text: None) -> list[FoundBy]:
    """Ask every question in a memory that has its sessions."""
    values: dict[str, list[dict[str, float]]] = {name: [] for name in HEADLINES}
    for number, talk in enumerate(asked, 1):
        with temporary_project() as place, place.opened() as ralph:
            _ask(ralph, talk, values)
        tell(f"{number} of {len(asked)} memories asked")
    return [FoundBy(name, len(found), means(found)) for name, found in values.items() if found]


def _ask(ralph: Ralph, talk: talks.Talk, values: dict[str, list[dict[str, float]]]) -> None:
    memory = ralph.conversations
    turns = add_talk(ralph, talk)
    sessions = {conversation_id(_SOURCE, one.id): one.id for one in talk.sessions}
    for one in talk.questions:
        hits = memory.search(one.text, limit=DEPTH, min_score=0.0)
        if one.turns:
            evidence = {name for name, told in turns.items() if one.turns.intersection(told)}
            values["round, by search"].append(measured([hit.id for hit in hits], evidence))
        if one.sessions:
            by_search = first_of_each(sessions[hit.record.conversation] for hit in hits)
            values["session, by search"].append(measured(by_search, one.sessions))
            related = memory.related(one.text, conversations=5, min_similarity=0.0)
            by_related = [sessions[found.conversation.id] for found in related.conversations]
            values["session, by related"].append(measured(by_related, one.sessions))


def add_talk(ralph: Ralph, talk: talks.Talk) -> dict[str, tuple[str, ...]]:
    """Save the sessions as conversations; return the turns of each exchange by its id."""
    turns: dict[str, tuple[str, ...]] = {}
    kept: list[ConversationContent] = []
    for session in talk.sessions:
        name = conversation_id(_SOURCE, session.id)
        at = session.at or None
        exchanges: list[Exchange] = []
        for number, spoken in enumerate(session.rounds):
            identity = exchange_id(name, str(number))
            turns[identity] = spoken.turns
            exchanges.append(
                Exchange(
                    id=identity,
                    conversation=name,
                    user=spoken.user,
                    assistant=spoken.assistant,
                    completed=at,
                )
            )
        begun = Conversation(id=name, source=_SOURCE, created=at)
        kept.append(ConversationContent(begun, exchanges))
    _keep(ralph, kept)
    return turns
