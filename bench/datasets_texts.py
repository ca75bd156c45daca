"""Texts with questions about them: issues and their fixes, BEIR's layout, and our own pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.datasets import Ask, Corpus, Dataset, Document, Task, json_lines, text_of
from ralph.errors import BadInput

_TITLE_CHARS = 200
_DISCUSSION_CHARS, _DISCUSSION_LEAST = 400, 80
_DOCUMENT_CHARS = 3000
_FIX_HEADLINE = ("recall@1", "recall@10")
_KEPT_OF_A_PATCH = ("diff --git", "@@", "+", "-")
_FILE_HEADERS = ("+++", "---")
_SEE = (
    "A record has project, record, title, summary; a pair project, question, record, label 0 or 1."
)


class Issue(msgspec.Struct):
    """An issue, what was said of it before it was fixed, and the patch that fixed it."""

    instance_id: str
    problem_statement: str
    gold_patch: str
    hints: str | None = None

    @property
    def title(self) -> str:
        """Its first line."""
        return next(iter(self.problem_statement.strip().splitlines()), "")[:_TITLE_CHARS]

    @property
    def discussion(self) -> str:
        """How the discussion begins; nothing where there was next to none."""
        hints = self.hints or ""
        return hints[:_DISCUSSION_CHARS] if len(hints) > _DISCUSSION_LEAST else ""


def read_issues(file: Path) -> list[Issue]:
    """Every issue of a file."""
    return [one for _, one in json_lines(file, Issue, "an issue with its fix")]


def issue_fix(file: Path) -> Dataset:
    """An issue's first line asks for its patch, the discussion before the fix for its issue."""
    issues = read_issues(file)
    fixes = Corpus("fixes", tuple(Document(one.instance_id, _patch(one)) for one in issues))
    problems = Corpus(
        "issues",
        tuple(Document(i.instance_id, i.problem_statement[:_DOCUMENT_CHARS]) for i in issues),
    )
    titles: list[Ask] = []
    discussions: list[Ask] = []
    for one in issues:
        answer = frozenset({one.instance_id})
        if one.title:
            titles.append(Ask(one.instance_id, one.title, fixes.name, answer))
        if one.discussion:
            discussions.append(Ask(one.instance_id, one.discussion, problems.name, answer))
    return Dataset(
        name="issue-fix",
        corpora=(fixes, problems),
        tasks=(
            Task("title -> fix", tuple(titles), headline=_FIX_HEADLINE),
            Task("discussion -> issue", tuple(discussions), headline=_FIX_HEADLINE),
        ),
    )


def _patch(issue: Issue) -> str:
    lines = (
        line
        for line in issue.gold_patch.splitlines()
        if line.startswith(_KEPT_OF_A_PATCH) and not line.startswith(_FILE_HEADERS)
    )
    return "\n".join(lines)[:_DOCUMENT_CHARS]


# -- BEIR's layout


class _BeirDocument(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    text: str
    title: str = ""


class _BeirQuery(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    text: str


def beir_like(file: Path) -> Dataset:
    """`corpus.jsonl`, `queries.jsonl` and `qrels.tsv` (or `qrels/test.tsv`) in one folder."""
    folder = file if file.is_dir() else file.parent
    corpus_file = _first(folder, "corpus.jsonl", "corpus.jsonl.gz")
    queries_file = _first(folder, "queries.jsonl", "queries.jsonl.gz")
    qrels_file = _first(folder, "qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv")
    documents = [
        Document(one.id, one.text, title=one.title)
        for _, one in json_lines(corpus_file, _BeirDocument, "a document with _id and text")
    ]
    known = {one.id for one in documents}
    relevant: dict[str, set[str]] = {}
    absent = 0
    for query, document, grade in _qrels(qrels_file):
        absent += grade > 0 and document not in known
        if grade > 0 and document in known:
            relevant.setdefault(query, set()).add(document)
    asks = tuple(
        Ask(one.id, one.text, folder.name, frozenset(relevant[one.id]))
        for _, one in json_lines(queries_file, _BeirQuery, "a query with _id and text")
        if one.id in relevant
    )
    notes = (f"{absent} judgements name a document that is not there",) if absent else ()
    task = Task("query -> document", asks, headline=("recall@10", "nDCG@10"))
    return Dataset("beir-like", (Corpus(folder.name, tuple(documents)),), (task,), notes)


def _first(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise BadInput(
        f"there is no {names[0]}",
        where=str(folder),
        todo="BEIR's layout is corpus.jsonl, queries.jsonl and qrels.tsv in one folder.",
    )


def _qrels(file: Path) -> Iterator[tuple[str, str, float]]:
    """Query, document and grade; a first line whose grade is no number is the heading."""
    for number, line in enumerate(text_of(file).split("\n"), 1):
        cells = line.rstrip("\r").split("\t")
        if not line.strip():
            continue
        try:
            query, *_, document, grade = cells  # TREC's form has a column between
            yield query, document, float(grade)
        except ValueError:
            if number > 1:
                raise BadInput(
                    "the line is not query-id, corpus-id and score between tabs",
                    where=f"{file}:{number}",
                ) from None


# -- our own


class _OwnLine(msgspec.Struct, forbid_unknown_fields=True):
    """One of: what the file is; a record of a project; a question and whether a record answers."""

    about: str | None = None
    project: str = ""
    record: str = ""
    title: str = ""
    summary: str = ""
    question: str = ""
    label: int | None = None
    kind: str = ""


class _Marked(msgspec.Struct):
    kind: str
    answers: set[str] = msgspec.field(default_factory=set)
    distractors: set[str] = msgspec.field(default_factory=set)


def own(file: Path) -> Dataset:
    """Records of agents' iterations in several projects, each question labelled by hand."""
    records: dict[str, dict[str, Document]] = {}
    asked: dict[tuple[str, str], _Marked] = {}
    for number, line in json_lines(file, _OwnLine, "a record or a labelled question"):
        where = f"{file}:{number}"
        if line.about is not None:
            continue
        known = records.setdefault(line.project, {})
        if line.label is None:
            _need(line.record and line.title and line.summary, "record, title and summary", where)
            known[line.record] = Document(
                line.record, line.summary, title=line.title, group=line.project
            )
            continue
        _need(line.question and line.record and line.label in (0, 1), "question and label", where)
        if line.record not in known:
            raise BadInput(
                f"the project {line.project!r} has no record {line.record!r} above",
                where=where,
                todo=_SEE,
            )
        marked = asked.setdefault((line.project, line.question), _Marked(line.kind))
        (marked.answers if line.label else marked.distractors).add(line.record)
    asks = [
        Ask(
            id=f"{project}: {question}",
            text=question,
            corpus=project,
            relevant=frozenset(marked.answers),
            distractors=frozenset(marked.distractors),
            kind=marked.kind,
        )
        for (project, question), marked in asked.items()
    ]
    return Dataset(
        name="own",
        corpora=tuple(Corpus(name, tuple(some.values())) for name, some in records.items()),
        tasks=(
            Task(
                "question -> record",
                tuple(ask for ask in asks if ask.relevant),
                headline=("recall@1", "recall@5"),
            ),
            # Measured by nothing here; calibration wants them.
            Task("nothing answers", tuple(ask for ask in asks if not ask.relevant)),
        ),
    )


def _need(there: object, what: str, where: str) -> None:
    if not there:
        raise BadInput(f"the line lacks {what}", where=where, todo=_SEE)
