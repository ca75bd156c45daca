"""`scripts/bench calibrate`: what a score means, and the constants that make it a probability."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.datasets import Ask, Corpus, Dataset, Document, Task, json_of, read
from bench.quality import TELL_EVERY_S, embedder_named
from bench.quality_pairs import TOP, labelled
from bench.report import Tell, aligned, parser, print_json, print_lines, short, teller
from ralph.errors import BadInput
from ralph.index import Embedder
from ralph.recall.search import Constants, Evidence, features, score, score_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


def main(args: Sequence[str]) -> int:
    """Ask, fit, and show what came out."""
    parse = parser("calibrate", __doc__)
    parse.add_argument("--own", required=True, type=Path, help="pairs labeled by hand (JSONL)")
    parse.add_argument(
        "--pairs", type=Path, help="records, questions for each, and questions nothing answers"
    )
    parse.add_argument("--longmemeval", type=Path, help="a LongMemEval file")
    parse.add_argument("--issue-fix", type=Path, help="issues and their fixes (JSONL)")
    parse.add_argument("--embedder", help="as in `ralph config embedder` (default: the setting)")
    parse.add_argument(
        "--half", choices=("a", "b"), default="a", help="fit on this half, report the other"
    )
    parse.add_argument("--seed", type=int, default=0, help="draws the halves (default 0)")
    parse.add_argument("--cache", type=Path, help="keep vectors and indexes there for other runs")
    options = parse.parse_args(args)
    files = Files(options.own, options.pairs, options.longmemeval, options.issue_fix)
    dataset = everything(files)
    embedder = embedder_named(options.embedder)
    ways = [run(dataset, one, options) for one in ([embedder, None] if embedder else [None])]
    half, seed = options.half, options.seed
    if options.json:
        plain = msgspec.to_builtins(ways)
        return print_json("calibrate", fitted_on_half=half, seed=seed, ways=plain)
    return print_lines(lines_of(ways, half=half, seed=seed))


def run(dataset: Dataset, embedder: Embedder | None, options: argparse.Namespace) -> Way:
    """Find the constants on one half of the questions and try them on the other."""
    tell = teller(TELL_EVERY_S)
    hits = list(judged(dataset, embedder, cache=options.cache, tell=tell))
    first, second = halves(hits, options.seed)
    mine, others = (first, second) if options.half == "a" else (second, first)
    if not mine or not others:
        raise BadInput(
            "there are too few judged hits for two halves",
            where=str(options.own),
            todo="Give more questions, or other files too.",
        )
    identity = None if embedder is None else embedder.identity
    return measured(identity, others, found=fitted(mine), final=fitted(hits), fitted_on=len(mine))


# -- evidence: hits of the search that somebody judged
#
# A hit of a public set that nobody marked is not wrong, it is unjudged, and left out. What is wrong
# for certain: what a person marked so, and anything found for a question that nothing there
# answers, because it was written that way or belongs to another corpus altogether.

# Of a question that nothing answers the first hits count: people look no further.
_FIRST = 3
# So many issues are asked of each conversation: there are many times more issues than those.
_ISSUES_A_CHAT = 5

OWN, POOLED = "own", "own, in one"
RECALL, ABSENT, UNRELATED = "recall", "recall, absent", "recall, unrelated"
TURN, TITLE, DISCUSSION = "turn", "title -> fix", "discussion -> issue"
CHAT_TO_ISSUES, ISSUE_TO_CHATS = "chat -> issues", "issue -> chats"
NOTHING_ANSWERS = frozenset({ABSENT, UNRELATED, CHAT_TO_ISSUES, ISSUE_TO_CHATS})


class Judged(msgspec.Struct, frozen=True):
    """A hit, what speaks for it, and whether it is what was asked for."""

    source: str
    question: str
    right: bool
    evidence: Evidence


class Files(msgspec.Struct, frozen=True):
    """Where the questions are."""

    own: Path
    pairs: Path | None = None
    longmemeval: Path | None = None
    issue_fix: Path | None = None


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    summary: str
    questions: list[str]


class _Project(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_Asked]
    absent: list[str]


class _RecallPairs(msgspec.Struct, forbid_unknown_fields=True):
    projects: dict[str, _Project]
    unrelated: list[str]
    about: str = ""


def everything(files: Files) -> Dataset:
    """All questions as one dataset with a task for each source, ready for the search."""
    parts = [_own(read("own", files.own))]
    if files.pairs:
        parts.append(_recall(files.pairs))
    chats = read("longmemeval", files.longmemeval) if files.longmemeval else None
    issues = read("issue-fix", files.issue_fix) if files.issue_fix else None
    parts += [one for one in (chats, issues) if one is not None]
    if chats is not None and issues is not None:
        parts.append(_crossed(chats, issues))
    corpora = tuple(corpus for part in parts for corpus in part.corpora)
    tasks = tuple(task for part in parts for task in part.tasks)
    return Dataset("calibrate", corpora, tasks)


def judged(
    dataset: Dataset,
    embedder: Embedder | None,
    *,
    cache: Path | None = None,
    tell: Tell = lambda text: None,
) -> Iterator[Judged]:
    """The judged ones among the first hits of every question."""
    for pair in labelled(dataset, embedder, cache=cache, tell=tell):
        wrong = pair.task in NOTHING_ANSWERS and (pair.rank or TOP) <= _FIRST
        if wrong or (pair.judged and pair.rank is not None):
            yield Judged(pair.task, pair.question, pair.label, pair.evidence)


def halves(hits: Sequence[Judged], seed: int) -> tuple[list[Judged], list[Judged]]:
    """Two halves by question: all hits of a question, from whatever source, are in one."""
    questions = sorted({one.question for one in hits})
    random.Random(f"halves {seed}").shuffle(questions)
    first = frozenset(questions[: (len(questions) + 1) // 2])
    return (
        [one for one in hits if one.question in first],
        [one for one in hits if one.question not in first],
    )


def _own(own: Dataset) -> Dataset:
    """The projects each for itself, and again all in one collection."""
    pool = Corpus(POOLED, tuple(one for corpus in own.corpora for one in corpus.documents))
    asks = tuple(ask for task in own.tasks for ask in task.asks)
    pooled = tuple(msgspec.structs.replace(ask, corpus=POOLED) for ask in asks)
    tasks = (Task(OWN, asks), Task(POOLED, pooled))
    return msgspec.structs.replace(own, corpora=(*own.corpora, pool), tasks=tasks)


def _recall(file: Path) -> Dataset:
    """Few records a project, questions for each, and questions that none of them answers."""
    if not file.exists():
        raise BadInput(
            "there is no such file", where=str(file), todo="Give the file of pairs with --pairs."
        )
    plain: _RecallPairs = json_of(file, _RecallPairs, "a file of records and their questions")
    corpora: list[Corpus] = []
    asks: dict[str, list[Ask]] = {RECALL: [], ABSENT: [], UNRELATED: []}
    for name, project in plain.projects.items():
        corpus = f"recall {name}"
        documents: list[Document] = []
        for number, record in enumerate(project.records, 1):
            document = Document(f"{name}-{number}", record.summary, title=record.title)
            documents.append(document)
            answer = frozenset({document.id})
            asks[RECALL] += [Ask(f"{name}: {q}", q, corpus, answer) for q in record.questions]
        for kind, questions in ((ABSENT, project.absent), (UNRELATED, plain.unrelated)):
            asks[kind] += [Ask(f"{name}: {q}", q, corpus, frozenset()) for q in questions]
        corpora.append(Corpus(corpus, tuple(documents)))
    tasks = tuple(Task(kind, tuple(questions)) for kind, questions in asks.items())
    return Dataset(RECALL, tuple(corpora), tasks)


def _crossed(chats: Dataset, issues: Dataset) -> Dataset:
    """Questions about conversations asked of the issues and their fixes, and the other way."""
    of_chats = [ask for task in chats.tasks if task.name == TURN for ask in task.asks]
    titles = [ask for task in issues.tasks if task.name == TITLE for ask in task.asks]
    nothing: frozenset[str] = frozenset()
    to_issues = tuple(
        Ask(f"{corpus.name}: {ask.id}", ask.text, corpus.name, nothing)
        for corpus in issues.corpora
        for ask in of_chats
    )
    to_chats = tuple(
        Ask(f"{corpus.name}: {ask.id}", ask.text, corpus.name, nothing)
        for place, corpus in enumerate(chats.corpora)
        for ask in titles[place * _ISSUES_A_CHAT : (place + 1) * _ISSUES_A_CHAT]
    )
    tasks = (Task(CHAT_TO_ISSUES, to_issues), Task(ISSUE_TO_CHATS, to_chats))
    return Dataset("crossed", (), tasks)


# -- fitting; pure: judged hits in, figures out

BINS = ((0.0, 0.2), (0.2, 0.4), (0.4, 0.55), (0.55, 0.7), (0.7, 0.85), (0.85, 1.0))
OVER = (0.40, 0.55, 0.70)

# Records of agents, each right and wrong hit judged by hand: nearest to what Ralph is asked.
_OWN_COUNTS = 2.0
_RIDGE = 1e-2
_STEPS = 100
_ENOUGH = 1e-9
_STEP_OF_COSINES = 0.05
_NEVER = 1e-9
_SIGMAS = 1.96

Score = Callable[[Judged], float]


class Bin(msgspec.Struct, frozen=True):
    """The hits whose score lies here: how many, what they promised, and the share that was right.

    `low` and `high` are the 95 % interval of the share.
    """

    begin: float
    end: float
    count: int
    score: float
    right: float
    low: float
    high: float


class Table(msgspec.Struct, frozen=True):
    """How well scores keep their word on some hits.

    `right_over` and `wrong_over`: the share of the right and of the wrong hits with at least 0.40,
    0.55 and 0.70; None where there are no such hits.
    """

    source: str
    right: int
    wrong: int
    bins: tuple[Bin, ...]
    right_over: tuple[float, ...] | None
    wrong_over: tuple[float, ...] | None
    log_loss: float
    error: float


def weights(hits: Sequence[Judged]) -> Numbers:
    """Each source counts the same, our own double, and all right hits as much as all wrong ones."""
    sizes: dict[tuple[str, bool], int] = {}
    for one in hits:
        sizes[one.source, one.right] = sizes.get((one.source, one.right), 0) + 1
    found: Numbers = np.array(
        [
            (_OWN_COUNTS if one.source in (OWN, POOLED) else 1.0) / sizes[one.source, one.right]
            for one in hits
        ]
    )
    right = np.array([one.right for one in hits], dtype=bool)
    for side in (right, ~right):
        if side.any():
            found[side] /= found[side].sum()
    found /= found.sum()
    return found


def fitted(hits: Sequence[Judged]) -> Constants:
    """The constants under which the hits are likeliest; by words alone when none has a cosine."""
    _need_both(hits)
    counts = weights(hits)
    right = np.array([one.right for one in hits], dtype=float)
    unrelated, related = cosines(hits, counts)
    values = np.array(
        [features(one.evidence, Constants(0.0, 0.0, 0.0, unrelated, related)) for one in hits]
    )
    if not values[:, 1].any():
        intercept, per_words = logistic_fit(values[:, :1], right, counts)
        return _rounded(intercept, per_words)
    intercept, per_words, per_meaning = logistic_fit(values, right, counts)
    if not 0.0 <= per_meaning <= per_words:
        # Meaning for more than words would let more words lower a score.
        intercept, both = logistic_fit(values.sum(axis=1, keepdims=True), right, counts)
        per_words = per_meaning = both
    return _rounded(intercept, per_words, per_meaning, unrelated, related)


def cosines(hits: Sequence[Judged], counts: Numbers) -> tuple[float, float]:
    """What unrelated and clearly related texts have: the lower quartile of what was found where
    nothing answers, and the upper quartile of what was right; 0 and 1 without cosines."""
    with_cosine = [
        (one, float(count))
        for one, count in zip(hits, counts, strict=True)
        if one.evidence.cosine is not None
    ]
    wrong = [pair for pair in with_cosine if pair[0].source in NOTHING_ANSWERS]
    wrong = wrong or [pair for pair in with_cosine if not pair[0].right]
    right = [pair for pair in with_cosine if pair[0].right]
    if not right or not wrong:
        return 0.0, 1.0
    unrelated = _stepped(_quantile(wrong, 0.25))
    related = _stepped(_quantile(right, 0.75))
    return unrelated, max(related, round(unrelated + _STEP_OF_COSINES, 2))


def logistic_fit(values: Numbers, right: Numbers, counts: Numbers) -> list[float]:
    """Intercept and coefficients by iteratively reweighted least squares, with a small ridge."""
    columns = np.column_stack([np.ones(len(values)), values])
    counts = counts / counts.sum() * len(counts)
    ridge = _RIDGE * np.eye(columns.shape[1])

    def penalty(found: Numbers) -> float:
        x = columns @ found
        loss = np.logaddexp(0.0, x) - right * x
        return float(counts @ loss + found @ ridge @ found / 2)

    found = np.zeros(columns.shape[1])
    paid = penalty(found)
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-(columns @ found)))
        curve = columns.T @ (columns * (counts * likely * (1.0 - likely))[:, None]) + ridge
        step = np.linalg.solve(curve, columns.T @ (counts * (right - likely)) - ridge @ found)
        # A whole step may overshoot where the two sides hardly overlap.
        while penalty(found + step) > paid and np.abs(step).max() > _ENOUGH:
            step = step / 2
        found = found + step
        paid = penalty(found)
        if np.abs(step).max() <= _ENOUGH:
            break
    return [float(one) for one in found]


def table(
    source: str, hits: Sequence[Judged], score: Score, counts: Numbers | None = None
) -> Table:
    """How well this score keeps its word on these hits, each as heavy as the others or as told."""
    counts = np.ones(len(hits)) if counts is None else counts
    counts = counts / counts.sum()
    scores = np.array([score(one) for one in hits])
    right = np.array([one.right for one in hits], dtype=bool)
    bins = tuple(_bin(begin, end, scores, right, counts) for begin, end in BINS)
    likely = np.clip(np.where(right, scores, 1.0 - scores), _NEVER, 1.0)
    shares = [float(counts[_inside(one.begin, one.end, scores)].sum()) for one in bins]
    return Table(
        source=source,
        right=int(right.sum()),
        wrong=int((~right).sum()),
        bins=bins,
        right_over=_over(scores[right], counts[right]),
        wrong_over=_over(scores[~right], counts[~right]),
        log_loss=float(-counts @ np.log(likely)),
        error=sum(
            share * abs(one.score - one.right)
            for share, one in zip(shares, bins, strict=True)
            if one.count
        ),
    )


def _inside(begin: float, end: float, scores: Numbers) -> NDArray[np.bool_]:
    below: NDArray[np.bool_] = scores <= end if end == BINS[-1][1] else scores < end
    return (scores >= begin) & below


def _bin(
    begin: float, end: float, scores: Numbers, right: NDArray[np.bool_], counts: Numbers
) -> Bin:
    inside = _inside(begin, end, scores)
    if not inside.any():
        return Bin(begin, end, 0, 0.0, 0.0, 0.0, 1.0)
    inside_counts = counts[inside]
    share = float(np.average(right[inside], weights=inside_counts))
    # Where hits weigh differently, they tell as much as fewer equal ones.
    equal = float(inside_counts.sum() ** 2 / (inside_counts**2).sum())
    low, high = _wilson(share, equal)
    score = float(np.average(scores[inside], weights=inside_counts))
    return Bin(begin, end, int(inside.sum()), score, share, low, high)


def _wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share of so many."""
    squared = _SIGMAS**2
    middle = (share + squared / (2 * count)) / (1 + squared / count)
    spread = share * (1 - share) / count + squared / (4 * count**2)
    half = _SIGMAS * math.sqrt(max(0.0, spread)) / (1 + squared / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def _over(scores: Numbers, counts: Numbers) -> tuple[float, ...] | None:
    if not len(scores):
        return None
    return tuple(float(np.average(scores >= least, weights=counts)) for least in OVER)


def _quantile(pairs: Sequence[tuple[Judged, float]], share: float) -> float:
    ordered = sorted((one.evidence.cosine or 0.0, count) for one, count in pairs)
    wanted = share * sum(count for _, count in ordered)
    passed = 0.0
    for cosine, count in ordered:
        passed += count
        if passed >= wanted:
            return cosine
    return ordered[-1][0]


def _stepped(cosine: float) -> float:
    return round(round(cosine / _STEP_OF_COSINES) * _STEP_OF_COSINES, 2)


def _rounded(*found: float) -> Constants:
    return Constants(*(round(one, 2) for one in found))


def _need_both(hits: Sequence[Judged]) -> None:
    rights = {one.right for one in hits}
    if rights != {True, False}:
        missing = "right" if True not in rights else "wrong"
        raise BadInput(
            f"none of the {len(hits)} judged hits is {missing}",
            todo="A fit wants questions that something answers and some that nothing does.",
        )


# -- the report

ALL = "all sources"
_ABOUT = (
    "A cell: how many hits have such a score, and the share of them that was right. "
    f"{ALL}: each counts the same, our own double, the right hits as much as the wrong ones. "
    "Hits that nobody judged are left out."
)


class Way(msgspec.Struct, frozen=True):
    """Scores with one embedder, or by words alone, on hits they were not fitted on.

    `now` and `after` are tables of the same hits: scored as the product does, and with the
    constants `found` on the other half; `final` are the constants fitted on everything.
    """

    embedder: str | None
    fitted_on: int
    questions: int
    found: Constants
    final: Constants
    now: tuple[Table, ...]
    after: tuple[Table, ...]


def measured(
    embedder: str | None,
    hits: Sequence[Judged],
    *,
    found: Constants,
    final: Constants,
    fitted_on: int,
) -> Way:
    """Every source and all of them together, as scored now and with the constants found."""

    def tables(value: Callable[[Judged], float]) -> tuple[Table, ...]:
        sources = dict.fromkeys(one.source for one in hits)
        each = [table(s, [one for one in hits if one.source == s], value) for s in sources]
        return (table(ALL, hits, value, weights(hits)), *each)

    return Way(
        embedder=embedder,
        fitted_on=fitted_on,
        questions=len({one.question for one in hits}),
        found=found,
        final=final,
        now=tables(lambda one: score(one.evidence, embedder)),
        after=tables(lambda one: score_by(one.evidence, found)),
    )


def lines_of(ways: Sequence[Way], *, half: str, seed: int) -> list[str]:
    """The report for people."""
    lines: list[str] = []
    for way in ways:
        hits = way.after[0].right + way.after[0].wrong
        named = f"with {way.embedder}" if way.embedder else "words alone"
        lines += [
            f"{named}: fitted on {way.fitted_on:,} judged hits (half {half} by seed {seed}), "
            f"measured on the other {hits:,} of {way.questions:,} questions",
            "",
            *aligned([("", "log loss", "error", f"log loss {OWN}"), *_losses(way)]),
            "",
            *aligned([_head(), *map(_cells, way.after)]),
            "",
            f"fitted on half {half}: {_written(way.found)}",
            f"fitted on all, for calibration.py: {_written(way.final)}",
            "",
        ]
    return [*lines, _ABOUT]


def _losses(way: Way) -> list[tuple[str, ...]]:
    return [
        (name, short(one[0].log_loss, 3), short(one[0].error, 3), short(_own_loss(one), 3))
        for name, one in (("as scored now", way.now), ("as fitted", way.after))
    ]


def _own_loss(tables: Sequence[Table]) -> float | None:
    return next((one.log_loss for one in tables if one.source == OWN), None)


def _head() -> tuple[str, ...]:
    bins = (f"{_plain(begin)}-{_plain(end)}" for begin, end in BINS)
    over = " ".join(short(least, 2) for least in OVER)
    return ("source", *bins, f"right over {over}", f"wrong over {over}")


def _cells(one: Table) -> tuple[str, ...]:
    bins = (f"{b.count} {short(b.right, 2)}" if b.count else "-" for b in one.bins)
    return (one.source, *bins, _shares(one.right_over), _shares(one.wrong_over))


def _shares(shares: Sequence[float] | None) -> str:
    return "-" if shares is None else " ".join(short(one, 3) for one in shares)


def _written(constants: Constants) -> str:
    return f"Constants({', '.join(f'{one:.2f}' for one in msgspec.structs.astuple(constants))})"


def _plain(value: float) -> str:
    return f"{value:g}".replace("0.", ".", 1)
