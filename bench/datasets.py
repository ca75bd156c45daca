"""Questions with known answers: public datasets in their own formats, read into one shape.

A dataset has corpora of documents, and tasks. A task has questions, each with the documents (or the
conversations they belong to) that answer it.
"""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ralph.errors import BadInput

Half = Literal["a", "b"]


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to find: its text, who said it and when, and the conversation it belongs to."""

    id: str
    text: str
    title: str = ""
    speaker: str = ""
    at: str = ""
    group: str = ""


class Corpus(msgspec.Struct, frozen=True):
    """Documents that are searched together."""

    name: str
    documents: tuple[Document, ...]


class Ask(msgspec.Struct, frozen=True):
    """A question, the corpus it is asked of, and what answers it.

    `relevant` has ids of documents, or of groups if the task asks for groups; `distractors` are
    those that somebody judged to be no answer.
    """

    id: str
    text: str
    corpus: str
    relevant: frozenset[str]
    distractors: frozenset[str] = frozenset()
    at: str = ""
    kind: str = ""


class Task(msgspec.Struct, frozen=True):
    """Questions of one kind, what to find, and the measures that say most about it."""

    name: str
    asks: tuple[Ask, ...]
    unit: Literal["document", "group"] = "document"
    headline: tuple[str, ...] = ("recall@10",)


class Dataset(msgspec.Struct, frozen=True):
    """Corpora, tasks, and what was left out and why."""

    name: str
    corpora: tuple[Corpus, ...]
    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()


def read(name: str, file: Path) -> Dataset:
    """Read the dataset in this file or folder; an error says what is wrong and where."""
    if name not in READERS:
        raise BadInput(f"there is no dataset {name!r}", todo=f"There is: {', '.join(READERS)}.")
    if not file.exists():
        raise BadInput(
            "there is no such file",
            where=str(file),
            todo=f"Give the file of the dataset {name} with --file.",
        )
    dataset = READERS[name](file)
    for task in dataset.tasks:
        if task.asks:
            return dataset
    raise BadInput(
        "it holds no question whose answer is marked",
        where=str(file),
        todo=f"Check that it is a file of the dataset {name}.",
    )


def chosen(
    dataset: Dataset, *, half: Half | None = None, seed: int = 0, limit: int | None = None
) -> Dataset:
    """Return only one half of the questions, or the first `limit` of each task, and their corpora.

    The seed draws the halves. Together they are everything, and a question that several tasks
    share is in the same half of each.
    """
    ids = list(dict.fromkeys(ask.id for task in dataset.tasks for ask in task.asks))
    if half is not None:
        shuffled = sorted(ids)
        random.Random(f"halves {seed}").shuffle(shuffled)
        middle = (len(shuffled) + 1) // 2
        ids = shuffled[:middle] if half == "a" else shuffled[middle:]
    wanted = frozenset(ids)
    tasks = []
    for task in dataset.tasks:
        asks = tuple(ask for ask in task.asks if ask.id in wanted)
        tasks.append(msgspec.structs.replace(task, asks=asks[:limit]))
    asked = {ask.corpus for task in tasks for ask in task.asks}
    corpora = tuple(corpus for corpus in dataset.corpora if corpus.name in asked)
    return msgspec.structs.replace(dataset, corpora=corpora, tasks=tuple(tasks))


# -- what every reader uses


def text_of(file: Path) -> str:
    """Return the file's text, unpacked if it is gzipped."""
    try:
        data = file.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise BadInput(
            f"it cannot be read ({getattr(error, 'strerror', None) or error})", where=str(file)
        ) from None
    except UnicodeDecodeError as error:
        raise BadInput(
            f"it is not UTF-8 text ({error.reason} at byte {error.start})", where=str(file)
        ) from None


def json_of(file: Path, kind: type[Any], what: str) -> Any:
    """Read the whole file as JSON of this shape."""
    try:
        return msgspec.json.decode(text_of(file), type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"it is not {what}: {error}", where=str(file), todo="Check format and file."
        ) from None


def json_lines(file: Path, kind: type[Any], what: str) -> Iterator[tuple[int, Any]]:
    """Yield each line as JSON of this shape, with its number; skip empty lines."""
    decode = msgspec.json.Decoder(kind).decode
    for number, line in enumerate(text_of(file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, decode(line)
        except msgspec.DecodeError as error:
            raise BadInput(
                f"the line is not {what}: {error}",
                where=f"{file}:{number}",
                todo="Check format and file.",
            ) from None


# -- LongMemEval: conversations with questions about them

_DATE = "%Y/%m/%d (%a) %H:%M"
_ABSTENTION = "_abs"
_SESSION_HEADLINE = ("recall@5", "any@5", "all@5")


class _Turn(msgspec.Struct):
    role: str
    content: str
    has_answer: bool | None = None


class Instance(msgspec.Struct):
    """A question of LongMemEval with the sessions it is asked of."""

    question_id: str
    question: str
    haystack_sessions: list[list[_Turn]]
    haystack_session_ids: list[str]
    answer_session_ids: list[str]
    haystack_dates: list[str] = []
    question_date: str = ""
    question_type: str = ""


def longmemeval_instances(file: Path) -> list[Instance]:
    """Return every question of a file."""
    found: list[Instance] = json_of(file, list[Instance], "a LongMemEval file")
    return found


def is_abstention(one: Instance) -> bool:
    """Return whether nothing answers the question."""
    return _ABSTENTION in one.question_id


def longmemeval(file: Path) -> Dataset:
    """Read user turns as documents and sessions as groups, with one haystack per question.

    Questions that nothing answers (`_abs`) are left out, as in the official evaluation. The task
    `turn` also leaves out questions without evidence in a user turn.
    """
    instances = longmemeval_instances(file)
    corpora: list[Corpus] = []
    turns: list[Ask] = []
    sessions: list[Ask] = []
    abstentions = 0
    for number, one in enumerate(instances, 1):
        check_haystack(one, f"{file}: question {number} ({one.question_id})")
        if is_abstention(one):
            abstentions += 1
            continue
        corpus, evidence = _haystack(one)
        corpora.append(corpus)
        ask = Ask(
            id=one.question_id,
            text=one.question,
            corpus=corpus.name,
            relevant=evidence,
            at=moment(one.question_date),
            kind=one.question_type,
        )
        if evidence:
            turns.append(ask)
        if one.answer_session_ids:
            wanted = frozenset(one.answer_session_ids)
            sessions.append(msgspec.structs.replace(ask, relevant=wanted))
    notes = [
        f"{abstentions} questions that nothing answers are left out" if abstentions else "",
        f"turn: {len(corpora) - len(turns)} questions without evidence in a user turn left out",
    ]
    return Dataset(
        name="longmemeval",
        corpora=tuple(corpora),
        tasks=(
            Task("turn", tuple(turns)),
            Task("session", tuple(sessions), unit="group", headline=_SESSION_HEADLINE),
        ),
        notes=tuple(filter(None, notes)),
    )


def check_haystack(one: Instance, where: str) -> None:
    """Check that each session has an id, and a date if any has one."""
    ids = len(one.haystack_session_ids)
    dates = len(one.haystack_dates)
    count = len(one.haystack_sessions)
    if ids != count or dates not in (0, count):
        raise BadInput(
            f"{count} haystack_sessions, but {ids} haystack_session_ids and {dates} haystack_dates",
            where=where,
            todo="Check that the file is whole.",
        )


def _haystack(one: Instance) -> tuple[Corpus, frozenset[str]]:
    documents: list[Document] = []
    evidence: set[str] = set()
    dates = one.haystack_dates or [""] * len(one.haystack_sessions)
    for place, (session, group, at) in enumerate(
        zip(one.haystack_sessions, one.haystack_session_ids, dates, strict=True)
    ):
        for number, turn in enumerate(session):
            if turn.role != "user":
                continue
            name = f"{place}:{number}"
            documents.append(
                Document(name, turn.content, speaker=turn.role, at=moment(at), group=group)
            )
            if turn.has_answer:
                evidence.add(name)
    return Corpus(one.question_id, tuple(documents)), frozenset(evidence)


def moment(written: str) -> str:
    """Return a date of the dataset as a timestamp; "" if it has another form."""
    try:
        found = datetime.strptime(written.strip(), _DATE).replace(tzinfo=UTC)
    except ValueError:
        return ""
    return found.isoformat().replace("+00:00", "Z")


# -- issues and their fixes

_TITLE_CHARS = 200
_DISCUSSION_CHARS = 400
_DISCUSSION_LEAST = 80
_DOCUMENT_CHARS = 3000
_FIX_HEADLINE = ("recall@1", "recall@10")
_KEPT_OF_A_PATCH = ("diff --git", "@@", "+", "-")
_FILE_HEADERS = ("+++", "---")
_NAME = r"\b[A-Za-z][A-Za-z_]{4,}\b"
_SEE = (
    "A record has project, record, title, summary; a pair project, question, record, label 0 or 1."
)


class Issue(msgspec.Struct):
    """An issue, what was said about it before it was fixed, and the patch that fixed it."""

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
        """The beginning of the discussion; "" if there was next to none."""
        hints = self.hints or ""
        return hints[:_DISCUSSION_CHARS] if len(hints) > _DISCUSSION_LEAST else ""


def read_issues(file: Path) -> list[Issue]:
    """Return every issue of a file."""
    return [one for _, one in json_lines(file, Issue, "an issue with its fix")]


def issue_fix(file: Path) -> Dataset:
    """Read issues: the first line asks for the patch, the discussion before it for the issue, and
    so does a word that no other issue has."""
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
            Task("name -> issue", tuple(_names(problems)), headline=_FIX_HEADLINE),
        ),
    )


def _names(corpus: Corpus) -> Iterator[Ask]:
    """Yield, for each document, one word that only this document has."""
    draw = random.Random(3)
    texts = [{*re.findall(_NAME, one.text)} for one in corpus.documents]
    seen = Counter(word for words in texts for word in {one.lower() for one in words})
    for document, words in zip(corpus.documents, texts, strict=True):
        if own := sorted(one for one in words if seen[one.lower()] == 1):
            yield Ask(document.id, draw.choice(own), corpus.name, frozenset({document.id}))


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
    """Read `corpus.jsonl`, `queries.jsonl` and `qrels.tsv` (or `qrels/test.tsv`) of a folder."""
    folder = file if file.is_dir() else file.parent
    corpus_file = _first(folder, "corpus.jsonl", "corpus.jsonl.gz")
    queries_file = _first(folder, "queries.jsonl", "queries.jsonl.gz")
    qrels_file = _first(folder, "qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv")
    documents = [
        Document(one.id, one.text, title=one.title)
        for _, one in json_lines(corpus_file, _BeirDocument, "a document with _id and text")
    ]
    ids = {one.id for one in documents}
    relevant: dict[str, set[str]] = {}
    absent = 0
    for query, document, grade in _qrels(qrels_file):
        absent += grade > 0 and document not in ids
        if grade > 0 and document in ids:
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
    """Yield query, document and grade; a first line whose grade is no number is the heading."""
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
    """One of: what the file is; a record; a question and whether a record answers it."""

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
    """Read records of agents' iterations in several projects, with questions labelled by hand."""
    records: dict[str, dict[str, Document]] = {}
    asked: dict[tuple[str, str], _Marked] = {}
    for number, line in json_lines(file, _OwnLine, "a record or a labelled question"):
        where = f"{file}:{number}"
        if line.about is not None:
            continue
        documents = records.setdefault(line.project, {})
        if line.label is None:
            _need(line.record and line.title and line.summary, "record, title and summary", where)
            documents[line.record] = Document(
                line.record, line.summary, title=line.title, group=line.project
            )
            continue
        _need(line.question and line.record and line.label in (0, 1), "question and label", where)
        if line.record not in documents:
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
        corpora=tuple(
            Corpus(name, tuple(documents.values())) for name, documents in records.items()
        ),
        tasks=(
            Task(
                "question -> record",
                tuple(ask for ask in asks if ask.relevant),
                headline=("recall@1", "recall@5"),
            ),
            # Not measured here, but needed for calibration.
            Task("nothing answers", tuple(ask for ask in asks if not ask.relevant)),
        ),
    )


def _need(there: object, what: str, where: str) -> None:
    if not there:
        raise BadInput(f"the line lacks {what}", where=where, todo=_SEE)


# -- memories of agents, and what people ask them


class MemoryRecord(msgspec.Struct, omit_defaults=True):
    """A record of a memory; an exchange has two sides, all others have a text."""

    record: str
    kind: str
    at: str
    title: str = ""
    text: str = ""
    user: str = ""
    assistant: str = ""
    conversation: str = ""
    files: tuple[str, ...] = ()


class MemoryQuestion(msgspec.Struct, omit_defaults=True):
    """A question, the records that answer it, and those that may be shown beside them."""

    question: str
    kind: str
    answers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    asked: str = ""


class MemorySet(msgspec.Struct):
    """A memory, the half it belongs to, and the day it is asked on."""

    name: str
    half: str
    today: str
    records: list[MemoryRecord] = []
    questions: list[MemoryQuestion] = []


def memories(file: Path) -> list[MemorySet]:
    """Read the memories of a file, which has a line for each memory, record and question."""
    found: dict[str, MemorySet] = {}
    for _, line in json_lines(file, dict[str, Any], "a memory, a record or a question"):
        name = line.get("memory", "")
        if "half" in line:
            found[name] = MemorySet(name, line["half"], line["today"])
        elif "question" in line:
            found[name].questions.append(msgspec.convert(line, MemoryQuestion))
        elif name:
            found[name].records.append(msgspec.convert(line, MemoryRecord))
    return list(found.values())


READERS: dict[str, Callable[[Path], Dataset]] = {
    "longmemeval": longmemeval,
    "issue-fix": issue_fix,
    "beir-like": beir_like,
    "own": own,
}
