"""`scripts/bench calibrate`: what a score means, and the constants that make it a probability.

Every question goes through the real search, up to the list that gets scored. The two logistics of
recall/score.py are fitted on some of the lists and judged on the others: each half is scored by a
fit on everything else. `report` and `sealed`, two parts of the memories written for this, are never
used for fitting.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench import datasets, talks
from bench.conversations import add_talk
from bench.datasets import Document, MemoryRecord, MemorySet
from bench.quality import TELL_EVERY_S, embedder_named
from bench.quality_index import CorpusIndex, corpus_index
from bench.report import Tell, aligned, parser, print_json, print_lines, short, teller
from bench.talks import Talk, TalkQuestion
from ralph.index import Embedder
from ralph.index.sync import live_of
from ralph.memory.ralph import Ralph, open_ralph
from ralph.recall import Hit
from ralph.recall.score import FLOOR, Clues, Logistic, scores
from ralph.recall.search import Candidate, Question, Ranking, find, rank
from ralph.records import conversation as schema
from ralph.records.conversation import Conversation, Exchange, Summary, exchange_id
from ralph.records.iteration import FileTouched, Iteration
from ralph.records.note import Note
from ralph.text.times import time_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

DATA = Path("tests/data")
LIMIT = 10
# Parts that are never used for fitting.
UNSEEN = frozenset({"report", "sealed"})


def main(args: Sequence[str]) -> int:
    """Ask, fit, and show the results."""
    parse = parser("calibrate", __doc__)
    parse.add_argument(
        "--memories", type=Path, default=DATA / "memories.jsonl", help="a JSONL file"
    )
    parse.add_argument("--own", type=Path, default=DATA / "own_pairs.jsonl", help="a JSONL file")
    parse.add_argument("--pairs", type=Path, default=DATA / "recall_pairs.json", help="a JSON file")
    parse.add_argument("--longmemeval", type=Path, help="a LongMemEval file")
    parse.add_argument(
        "--talks",
        type=Path,
        action="append",
        default=[],
        help="a folder of LoCoMo, REALTALK or BEAM; give it again for more",
    )
    parse.add_argument("--issue-fix", type=Path, help="issues and their fixes (JSONL)")
    parse.add_argument("--embedder", help="as in `ralph config embedder` (default: the setting)")
    parse.add_argument(
        "--cases", type=Path, help="save the lists here, or use this file if it exists"
    )
    options = parse.parse_args(args)
    embedder = embedder_named(options.embedder)
    if options.cases and options.cases.exists():
        cases = msgspec.msgpack.decode(options.cases.read_bytes(), type=list[Case])
    else:
        cases = list(asked(options, embedder, teller(TELL_EVERY_S)))
        if options.cases:
            options.cases.write_bytes(msgspec.msgpack.encode(cases))
    halves = dict.fromkeys(one.half for one in cases if one.half not in UNSEEN)
    fits = {
        half: fitted([one for one in cases if one.half not in UNSEEN | {half}]) for half in halves
    }
    final = fitted([one for one in cases if one.half not in UNSEEN])
    rows = [*tables(cases, None), *tables(cases, lambda one: fits.get(one.half, final))]
    if options.json:
        plain = msgspec.to_builtins(rows)
        return print_json("calibrate", rows=plain, sure=final[0], there=final[1])
    heads = ("set", "n", "first right", "mean score", "error", "shown", "hits", *OVER)
    lines: list[str] = []
    for name in ("as shipped", "fitted anew"):
        lines += [name, "", *aligned([heads, *(one.cells() for one in rows if one.by == name)]), ""]
    lines += [_ABOUT, "", f"SURE = {_written(final[0])}", f"THERE = {_written(final[1])}"]
    return print_lines(lines)


# -- one result list of the search, and which results are right


class Case(msgspec.Struct):
    """The result list of a question: the values it is ordered by, the clues, and what is right.

    `also` are hits that may be shown without being wrong.
    """

    set: str
    half: str
    kind: str
    values: list[float]
    clues: Clues
    right: list[bool]
    also: list[bool]
    vectors: bool
    least: float

    def scores(self, by: tuple[Logistic, Logistic] | None = None) -> list[float]:
        """Return the scores of the list, by other logistics if given."""
        return scores(self.clues, self.values, self.vectors, self.least, by)


class Labels(msgspec.Struct):
    """Which set and half a question belongs to, and the ids that are right for it."""

    set: str
    half: str
    right: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    kind: str = ""


def case_of(ranking: Ranking | None, labels: Labels) -> Case:
    """Return the list with its labels."""
    ids = [one.hit.id for one in ranking.chosen] if ranking else []
    return Case(
        labels.set,
        labels.half,
        labels.kind,
        ranking.values if ranking else [],
        ranking.clues() if ranking else Clues([], [], [], (0.0,) * 5),
        [one in labels.right for one in ids],
        [one in labels.also for one in ids],
        ranking is None or ranking.embedder is not None,
        ranking.least if ranking else 0.0,
    )


def question_of(text: str, today: str = "") -> Question:
    """Return the question as the product asks it on this day."""
    named = time_range(text, date.fromisoformat(today[:10])) if today else None
    if named:
        rest = "" if named.alone else named.rest
        return Question(text, LIMIT, 0.0, days=named.moments(), rest=rest)
    return Question(text, LIMIT, 0.0)


def asked(options: Any, embedder: Embedder | None, tell: Tell) -> Iterator[Case]:
    """Ask every question of every given set."""
    with corpus_index(embedder) as place:
        for labels, corpus, text in [
            *own_questions(options.own),
            *pair_questions(options.pairs),
            *(issue_questions(options.issue_fix) if options.issue_fix else ()),
            *(turn_questions(options.longmemeval) if options.longmemeval else ()),
        ]:
            yield case_of(ranked_in(place, corpus, question_of(text)), labels)
            tell(f"{labels.set}: asked")
    yield from memory_cases(datasets.memories(options.memories), embedder, tell)
    if options.longmemeval:
        yield from talk_cases("rounds", talks.read(options.longmemeval), embedder, tell)
    for folder in options.talks:
        name = f"talk, {folder.name}"
        yield from talk_cases(name, talks.read(folder, single_turns=True), embedder, tell)


def ranked_in(place: CorpusIndex, corpus: datasets.Corpus, question: Question) -> Ranking | None:
    """Return the results from a corpus of documents, each one passage."""
    vectors = [place.embedder.embed_query(question.text)] if place.embedder else []
    identity = place.embedder.identity if place.embedder else "none"
    name = place.built(corpus)
    with place.store.state() as view:
        live = live_of(view, name)
        assert live is not None
        found = find(view, [live], question, vectors=vectors, embedder=identity)
    for one in found.candidates:
        one.read = _document
    return rank(question, [found])


def _document(one: Candidate) -> Hit:
    return Hit(one.record.id, "passage", None, None, "", None, None)


# -- the sets of documents

Asked = tuple[Labels, datasets.Corpus, str]


def _half(name: str) -> str:
    return "a" if zlib.crc32(name.encode()) % 2 == 0 else "b"


def own_questions(file: Path) -> Iterator[Asked]:
    """Yield the questions for each project alone, and for all projects in one collection."""
    own = datasets.read("own", file)
    corpora = {one.name: one for one in own.corpora}
    names = list(corpora)
    pool = datasets.Corpus("pool", tuple(d for one in own.corpora for d in one.documents))
    for ask in (ask for task in own.tasks for ask in task.asks if ask.relevant):
        half = "ab"[names.index(ask.corpus) % 2]
        yield Labels("own", half, ask.relevant), corpora[ask.corpus], ask.text
        yield Labels("own pool", half, ask.relevant), pool, ask.text


def pair_questions(file: Path) -> Iterator[Asked]:
    """Yield questions for the few records of each project, and questions that none answers."""
    plain = msgspec.json.decode(datasets.text_of(file))
    for number, (name, project) in enumerate(plain["projects"].items()):
        records = [
            Document(f"{name}-{n}", one["summary"], title=one["title"])
            for n, one in enumerate(project["records"])
        ]
        corpus, half = datasets.Corpus(f"pairs {name}", tuple(records)), "ab"[number % 2]
        for n, one in enumerate(project["records"]):
            for text in one["questions"]:
                yield Labels("pairs", half, frozenset({f"{name}-{n}"})), corpus, text
        for kind, texts in (("absent", project["absent"]), ("unrelated", plain["unrelated"])):
            for text in texts:
                yield Labels(f"pairs, {kind}", half), corpus, text


def issue_questions(file: Path) -> Iterator[Asked]:
    """Yield titles that ask for fixes, and discussions that ask for issues, among 600, 150 and 30.
    Titles also ask among the fixes of their own repository, and of another one."""
    draw = random.Random(5)
    data = datasets.read("issue-fix", file)
    documents = {c.name: {d.id: d for d in c.documents} for c in data.corpora}
    ids = list(documents["fixes"])
    draw.shuffle(ids)

    def corpus(name: str, part: Sequence[str], of: str) -> datasets.Corpus:
        return datasets.Corpus(name, tuple(documents[of][one] for one in part))

    parts: dict[tuple[str, int, int], datasets.Corpus] = {}
    for of, size in (("fixes", 150), ("fixes", 30), ("issues", 150)):
        for n in range(0, len(ids), size):
            parts[of, size, n // size] = corpus(f"{of} {size} {n}", ids[n : n + size], of)
    whole = {c.name: c for c in data.corpora}
    repositories: dict[str, list[str]] = {}
    for one in documents["fixes"]:
        repositories.setdefault(one.rsplit("-", 1)[0], []).append(one)
    large = {
        name: corpus(f"fixes of {name}", part, "fixes")
        for name, part in repositories.items()
        if len(part) >= 12
    }
    for task, name, of in zip(data.tasks, ("title", "discussion"), documents, strict=False):
        title = name == "title"
        for ask in task.asks:
            half, place = _half(ask.id), ids.index(ask.id)
            yield Labels(name, half, ask.relevant), whole[of], ask.text
            for size in (150, 30) if title else (150,):
                labels = Labels(f"{name}, {size}", half, ask.relevant)
                yield labels, parts[of, size, place // size], ask.text
            mine = ask.id.rsplit("-", 1)[0]
            if title and mine in large:
                yield Labels("title, own repository", half, ask.relevant), large[mine], ask.text
            if title:
                other = draw.choice([one for one in large if one != mine])
                yield Labels("title, other repository", half), large[other], ask.text


def turn_questions(file: Path) -> Iterator[Asked]:
    """Yield questions about the user turns of a person, and of others."""
    data = datasets.read("longmemeval", file)
    corpora = {one.name: one for one in data.corpora}
    draw = random.Random(7)
    for ask in data.tasks[0].asks:
        half = _half(ask.id)
        yield Labels("user turns", half, ask.relevant), corpora[ask.corpus], ask.text
        others = [name for name in corpora if name != ask.corpus]
        for other in draw.sample(others, min(4, len(others))):
            yield Labels("user turns, other person", half), corpora[other], ask.text


# -- the sets that are memories: all kinds of records, as the product stores them


class Memory(msgspec.Struct):
    """A project with records, and the names of the records by their ids in the product."""

    ralph: Ralph
    names: dict[str, str]

    def ask(self, text: str, labels: Labels, today: str = "") -> Case:
        """Return the results from the whole project; hits are named as in the set."""
        question = question_of(text, today)
        parts = [
            self.ralph.store.find(self.ralph._streams(), question),
            self.ralph.conversations.candidates(question, documents=True, notes=True),
        ]
        ranking = rank(question, parts)
        for one in ranking.chosen if ranking else ():
            one.hit = msgspec.structs.replace(one.hit, id=self.names.get(one.hit.id, one.hit.id))
        return case_of(ranking, labels)


def memory_of(records: Sequence[MemoryRecord], folder: Path, embedder: str) -> Memory:
    """Create a project with these records."""
    (folder / "project").mkdir(parents=True)
    ralph = open_ralph(folder / "project", home=folder / "home", embedder=embedder)
    names: dict[str, str] = {}
    iterations = [one for one in records if one.kind == "iteration"]
    saved = ralph.feature("work").remember_all(
        [
            Iteration(
                task_title=one.title,
                summary=one.text,
                timestamp=f"{one.at}T12:00:00Z",
                files_touched=tuple(FileTouched(path, "modified") for path in one.files),
                session_id=one.record,
            )
            for one in iterations
        ]
    )
    names |= {kept.id: one.record for kept, one in zip(saved, iterations, strict=True)}
    talks: dict[str, list[Exchange]] = {}
    for one in records:
        at = f"{one.at}T12:00:00Z"
        if one.kind == "exchange":
            identity = schema.conversation_id("bench", one.conversation)
            talks.setdefault(identity, []).append(
                Exchange(
                    id=exchange_id(identity, one.record),
                    conversation=identity,
                    user=one.user,
                    assistant=one.assistant,
                    completed=at,
                )
            )
            names[exchange_id(identity, one.record)] = one.record
    for identity, exchanges in talks.items():
        ralph.conversations.add(Conversation(id=identity, source="bench"), exchanges)
    said: list[tuple[Any, str]] = []
    for one in records:
        at = f"{one.at}T12:00:00Z"
        if one.kind in ("note", "learning"):
            by: Any = "human" if one.kind == "note" else "agent"
            said.append((Note(text=one.text, by=by, id=one.record, at=at), one.record))
        elif one.kind == "document":
            path = next(iter(one.files), "docs/notes.md")
            section = schema.Document(path=path, heading=one.title, text=one.text, id=one.record)
            said.append((section, one.record))
        elif one.kind == "summary":
            target = next(iter(talks), schema.conversation_id("bench", "none"))
            said.append((Summary(of="conversation", target=target, text=one.text), one.record))
    if said:
        ralph.conversations.say_all(said)
    return Memory(ralph, names)


# Questions of these kinds are also asked in large memories, small ones, and those of others.
_ELSEWHERE = frozenset({"direct", "reworded", "paraphrase", "neighbour", "trace"})


def memory_cases(
    sets: Sequence[MemorySet], embedder: Embedder | None, tell: Tell
) -> Iterator[Case]:
    """Ask each memory by itself, after a summarizer has run, as a small memory, together with all
    of its half, and about what is in others."""
    title = "none" if embedder is None else embedder.title
    halves = dict.fromkeys(one.half for one in sets)

    def opened(name: str, records: Sequence[MemoryRecord], folder: str) -> Memory:
        return memory_of(records, Path(folder) / name, title)

    with tempfile.TemporaryDirectory(prefix="ralph-calibrate-") as folder:
        for one in sets:
            base = [each for each in one.records if each.kind != "summary"]
            here = {"memories": opened(one.name, base, folder)}
            if len(base) < len(one.records):
                here["memories, summarized"] = opened(f"{one.name}+", one.records, folder)
            few = frozenset(each.record for each in base[:8])
            small = opened(f"{one.name}-", base[:8], folder)
            for ask in one.questions:
                right, also = frozenset(ask.answers), frozenset(ask.also)
                for name, memory in here.items():
                    of = name if right else f"{name}, absent"
                    labels = Labels(of, one.half, right, also, ask.kind)
                    yield memory.ask(ask.question, labels, ask.asked or one.today)
                if right and right <= few and ask.kind in _ELSEWHERE:
                    labels = Labels("memories, small", one.half, right, also, ask.kind)
                    yield small.ask(ask.question, labels, one.today)
            for other in sets:
                if other.half != one.half or other is one:
                    continue
                for ask in other.questions:
                    drawn = zlib.crc32((ask.question + one.name).encode()) % 5 < 2
                    if ask.answers and ask.kind in _ELSEWHERE and drawn:
                        labels = Labels("memories, other person", one.half, kind=ask.kind)
                        yield here["memories"].ask(ask.question, labels)
            for memory in (*here.values(), small):
                memory.ralph.close()
            tell(f"memories: {one.name} asked")
        for half in halves:
            mine = [one for one in sets if one.half == half]
            records = [r for one in mine for r in one.records if r.kind != "summary"]
            pool = opened(f"pool {half}", records, folder)
            for one in mine:
                for ask in one.questions:
                    if ask.answers and ask.kind in _ELSEWHERE:
                        right, also = frozenset(ask.answers), frozenset(ask.also)
                        labels = Labels("memories, pool", half, right, also, ask.kind)
                        yield pool.ask(ask.question, labels, one.today)
            pool.ralph.close()


# At least this many questions of other people are asked in each memory.
_OF_OTHERS = 4


def talk_cases(
    name: str, found: Sequence[Talk], embedder: Embedder | None, tell: Tell
) -> Iterator[Case]:
    """Ask questions about the conversations of a person, and about those of others."""
    draw = random.Random(7)
    title = "none" if embedder is None else embedder.title
    for number, talk in enumerate(found, 1):
        others = [one for other in found if other is not talk for one in other.questions]
        several = max(_OF_OTHERS, len(talk.questions) // _OF_OTHERS)
        with (
            tempfile.TemporaryDirectory(prefix="ralph-calibrate-") as folder,
            open_ralph(folder, home=Path(folder) / "home", embedder=title) as ralph,
        ):
            turns = add_talk(ralph, talk)

            def ask(asked: TalkQuestion, labels: Labels, today: str, ralph: Ralph = ralph) -> Case:
                question = question_of(asked.text, today)
                return case_of(rank(question, [ralph.conversations.candidates(question)]), labels)

            half = _half(talk.id)
            for one in talk.questions:
                right = {name for name, told in turns.items() if one.turns.intersection(told)}
                if right:
                    yield ask(one, Labels(name, half, frozenset(right)), one.at)
            for one in draw.sample(others, min(several, len(others))):
                yield ask(one, Labels(f"{name}, other person", half), "")
        tell(f"{name}: {number} of {len(found)} memories asked")


# -- fitting; pure: lists in, constants out

_RIDGE = 0.05
_STEPS = 60
# The weight of a set: all of its questions count as much as the root of their number. They count
# less if nothing answers them, and less again in small memories. Chats and memories count double,
# because there are few of them; talk between people counts less, because it is not what agents
# remember.
_NOTHING, _NOTHING_THERE, _NOTHING_IN_CHAT, _SMALL = 0.45, 0.75, 0.8, 0.65
_NOWHERE = ("absent", "unrelated", "other")
_FEW = ("pairs", "memories")
_CHAT, _TALK, _SUMMARIZED, _MEMORIES = 2.0, 0.7, 0.3, 2.0


def fitted(cases: Sequence[Case]) -> tuple[Logistic, Logistic]:
    """Return the logistics for the first hit, and for an answer among the first ten."""
    lists = [one for one in cases if one.values]
    first = np.array([one.right[0] for one in lists], dtype=float)
    among = np.array([any(one.right[:LIMIT]) for one in lists], dtype=float)
    harmless = np.array([one.also[0] for one in lists])
    harmless_there = np.array([any(one.also[:LIMIT]) for one in lists]) & (among == 0)
    sure = logistic_fit(
        _columns([one.clues.each[0] for one in lists]),
        first,
        np.where(harmless, 0.0, weights(lists, _NOTHING)),
    )
    there = logistic_fit(
        _columns([one.clues.there for one in lists]),
        among,
        np.where(harmless_there, 0.0, weights(lists, _NOTHING_THERE)),
    )
    return sure, there


def weights(cases: Sequence[Case], nothing: float) -> Numbers:
    """Return how much each list counts in a fit."""
    sizes = Counter(one.set for one in cases)

    def weight(name: str) -> float:
        value = 1.0 / np.sqrt(sizes[name])
        chat, talk = name.startswith(("rounds", "user turns")), name.startswith("talk")
        if any(word in name for word in _NOWHERE):
            value *= _NOTHING_IN_CHAT if chat or talk else nothing
            value *= _SMALL if name.startswith(_FEW) else 1.0
        if chat or talk:
            value *= _CHAT if chat else _TALK
        if "summarized" in name:
            value *= _SUMMARIZED
        return float(value * (_MEMORIES if name.startswith("memories") else 1.0))

    return np.array([weight(one.set) for one in cases])


def _columns(clues: Sequence[Sequence[float]]) -> Numbers:
    words, meaning, gap, rest, few = np.array(clues, dtype=float).T
    parts = [words, meaning, gap, rest * words, rest * meaning, few, rest * few]
    found: Numbers = np.column_stack(parts)
    return found


def logistic_fit(values: Numbers, right: Numbers, counts: Numbers) -> Logistic:
    """Fit by iteratively reweighted least squares with a small ridge. Words and meaning never count
    against a hit."""
    columns = np.column_stack([np.ones(len(values)), values])
    counts = counts / counts.sum() * len(counts)
    ridge = _RIDGE * np.eye(columns.shape[1]) * len(counts) / 1000
    ridge[0, 0] = 1e-6
    found = _solved(columns, right, counts, ridge)
    while against := [place for place in (1, 2, 4, 5) if found[place] < -1e-3]:
        ridge[against, against] = 1e9
        found = _solved(columns, right, counts, ridge)
    return Logistic(*(round(float(one), 2) + 0.0 for one in found))


def _solved(columns: Numbers, right: Numbers, counts: Numbers, ridge: Numbers) -> Numbers:
    found: Numbers = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-(columns @ found)))
        slope = columns.T @ (counts * (right - likely)) - ridge @ found
        curve = (columns * (counts * likely * (1.0 - likely))[:, None]).T @ columns + ridge
        step = np.linalg.solve(curve, slope)
        step *= min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-12))
        found = found + step
        if np.abs(step).max() < 1e-6:
            break
    return found


# -- the report

BINS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.01)
OVER = (">=.40", ">=.55", ">=.70")
_ABOUT = (
    "first right: the share of questions whose first hit is right. error: the calibration error of "
    "the first hit, over six bins. shown: the share with a right hit of at least 0.40 among ten. "
    "hits: how many of a list have 0.40. The last three: questions with a hit of at least that."
)


class Row(msgspec.Struct):
    """How well scores match what is right, on one set."""

    by: str
    set: str
    questions: int
    right: float
    mean: float
    error: float
    shown: float
    hits: float
    over: tuple[float, float, float]

    def cells(self) -> tuple[str, ...]:
        """Return the row as a line of the report."""
        numbers = (self.right, self.mean, self.error, self.shown)
        texts = [short(one, 3) for one in numbers]
        return (self.set, str(self.questions), *texts, f"{self.hits:.1f}", *_shares(self.over))


def _shares(values: Sequence[float]) -> list[str]:
    return [short(one, 2) for one in values]


def tables(
    cases: Sequence[Case], by: Callable[[Case], tuple[Logistic, Logistic]] | None
) -> list[Row]:
    """Return a row for each set; for memories a row per half, and more for some kinds."""
    groups: dict[str, list[Case]] = {}
    for one in cases:
        halved = one.set.startswith("memories")
        groups.setdefault(f"{one.set} ({one.half})" if halved else one.set, []).append(one)
        if one.set == "memories" and one.kind in ("paraphrase", "topic", "time", "short"):
            groups.setdefault(f"{one.kind} ({one.half})", []).append(one)
    name = "as shipped" if by is None else "fitted anew"
    return [_row(name, of, part, by) for of, part in groups.items()]


def _row(
    by: str,
    name: str,
    cases: Sequence[Case],
    fits: Callable[[Case], tuple[Logistic, Logistic]] | None,
) -> Row:
    lists = [one.scores(fits(one) if fits else None)[:LIMIT] for one in cases]
    first = np.array([(one or [0.0])[0] for one in lists])
    right = np.array([bool(one.right) and one.right[0] for one in cases], dtype=float)
    shown = [
        any(r and s >= FLOOR for r, s in zip(one.right, found, strict=False))
        for one, found in zip(cases, lists, strict=True)
    ]
    return Row(
        by,
        name,
        len(cases),
        float(right.mean()),
        float(first.mean()),
        calibration_error(first, right),
        float(np.mean(shown)),
        float(np.mean([sum(value >= FLOOR for value in one) for one in lists])),
        (float(np.mean(first >= 0.4)), float(np.mean(first >= 0.55)), float(np.mean(first >= 0.7))),
    )


def calibration_error(scores: Numbers, right: Numbers) -> float:
    """Return how far scores are from the share that was right, over bins of scores."""
    error = 0.0
    for low, high in itertools.pairwise(BINS):
        inside = (scores >= low) & (scores < high)
        if inside.any():
            error += inside.mean() * abs(float(scores[inside].mean() - right[inside].mean()))
    return float(error)


def _written(logistic: Logistic) -> str:
    plain: Mapping[str, float] = msgspec.structs.asdict(logistic)
    return f"Logistic({', '.join(f'{one:.2f}' for one in plain.values())})"
