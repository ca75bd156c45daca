"""Questions whose answers are known: public sets in their own formats, read into one shape.

A dataset is corpora of documents and tasks; a task is questions, each with the documents (or the
conversations they belong to) that answer it.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
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

    `relevant` holds ids of documents, or of groups where the task asks for groups; `distractors`
    are those that somebody looked at and found no answer.
    """

    id: str
    text: str
    corpus: str
    relevant: frozenset[str]
    distractors: frozenset[str] = frozenset()
    at: str = ""
    kind: str = ""


class Task(msgspec.Struct, frozen=True):
    """Questions of one sort, what is to be found, and the measures that tell most about it."""

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


def names() -> tuple[str, ...]:
    """The formats that can be read."""
    return tuple(_readers())


def read(name: str, file: Path) -> Dataset:
    """The dataset in this file or folder, or an error that says what is wrong and where."""
    readers = _readers()
    if name not in readers:
        raise BadInput(f"there is no dataset {name!r}", todo=f"There is: {', '.join(readers)}.")
    if not file.exists():
        raise BadInput(
            "there is no such file",
            where=str(file),
            todo=f"Give the file of the dataset {name} with --file.",
        )
    dataset = readers[name](file)
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
    """Only one half of the questions, or the first so many of each task, and their corpora.

    The seed draws the halves: together they are everything, and a question that several tasks
    share is in the same half of all.
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
    """The file's text, unpacked where it is gzipped."""
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
    """The whole file as JSON of this shape."""
    try:
        return msgspec.json.decode(text_of(file), type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"it is not {what}: {error}", where=str(file), todo="Check format and file."
        ) from None


def json_lines(file: Path, kind: type[Any], what: str) -> Iterator[tuple[int, Any]]:
    """Each line as JSON of this shape, with its number; empty lines are stepped over."""
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


def _readers() -> dict[str, Callable[[Path], Dataset]]:
    from bench import datasets_chats, datasets_texts

    return {
        "longmemeval": datasets_chats.longmemeval,
        "locomo": datasets_chats.locomo,
        "issue-fix": datasets_texts.issue_fix,
        "beir-like": datasets_texts.beir_like,
        "own": datasets_texts.own,
    }
