"""What the tests of index and memory share: iterations in one call, and a toy embedder."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ralph.errors import EmbedderOff
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.store import Answer
from ralph.records.iteration import Iteration
from ralph.state_folders import state_folder

if TYPE_CHECKING:
    from ralph.index import NearPassages, Vectors

SUBJECTS = """
login form validation rejects empty passwords|database migration adds an index to orders
websocket reconnects after the proxy closes|invoice totals are rounded per line
thumbnail cache evicts the oldest images|search suggestions ignore accents
payment webhook verifies its signature|background worker retries with jitter
dark theme contrast in the sidebar|upload resumes after a dropped connection
"""
TOPICS: tuple[str, ...] = tuple(t for line in SUBJECTS.split("\n") for t in line.split("|") if t)


class ToyEmbedder:
    """Words hashed into a few dimensions. Deterministic, instant, and it counts its work."""

    title = "toy"
    batch = 512

    def __init__(self, identity: str = "toy:1", dims: int = 64) -> None:
        self._identity = identity
        self._dims = dims
        self.embedded: list[str] = []
        self.batches = 0
        self.off = False
        self.break_after_batches: int | None = None

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def dims(self) -> int:
        return self._dims

    def pieces(self, text: str) -> Sequence[str]:
        return (text,)

    def check(self) -> None:
        self._check()

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        self._check()
        if self.break_after_batches is not None and self.batches >= self.break_after_batches:
            raise KeyboardInterrupt  # as a person would, in the middle
        self.batches += 1
        self.embedded += texts
        if not texts:
            return np.zeros((0, self._dims), dtype=np.float32)
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        self._check()
        return self._vector(text)

    def _check(self) -> None:
        if self.off:
            raise EmbedderOff("the toy is switched off", todo="Switch it on.")

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(self._dims, dtype=np.float32)
        for word in re.findall(r"\w+", text.lower()) or list(text.strip()):
            code = zlib.crc32(f"{self._identity}\0{word}".encode())
            vector[code % self._dims] += 1.0 if code & 0x10000 else -1.0
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length else vector


def open_toy(
    path: Path | str, embedder: ToyEmbedder | None = None, *, home: Path | None = None, **more: Any
) -> Ralph:
    """Open a project with a toy in the place of its embedder."""
    opened = open_ralph(path, home=home, **more)
    opened.store.embedder = embedder or ToyEmbedder()
    return opened


def made(summary: str = "", **fields: Any) -> Iteration:
    """An iteration; its time is fixed so that the same call makes the same record."""
    fields.setdefault("timestamp", "2026-02-07T14:30:00Z")
    return Iteration(summary=summary, **fields)


def marker(n: int) -> str:
    """A word that no other record has, and that no stemmer shortens."""
    letters = "bcdfghjkmnpqrtvwxz"
    word = ""
    for _ in range(4):
        n, place = divmod(n, len(letters))
        word = letters[place] + word
    return f"xq{word}o"


def topical(count: int, *, start: int = 0) -> list[Iteration]:
    """So many different iterations about a few subjects, each with a word only it has."""
    return [
        made(
            f"{TOPICS[n % len(TOPICS)]}, {marker(n)}",
            task_title=f"Task {n}",
            task_id=n % 7,
            session_id=f"run-{n}",
            outcome="failure" if n % 3 == 0 else "success",
        )
        for n in range(start, start + count)
    ]


def shown(answer: Answer) -> list[tuple[str, float | None, str]]:
    """What must be the same when the same is asked again: ids, scores, order, when."""
    return [(hit.id, hit.score, hit.when) for hit in answer]


def summaries(answer: Iterable[Any]) -> list[str]:
    """The summaries of an answer's iterations."""
    return [hit.record.summary for hit in answer]


def state_of(root: Path) -> Path:
    """What this machine keeps of the project, in Ralph's home."""
    return Path(state_folder(root))


def index_file(root: Path) -> Path:
    """The project's index."""
    (found,) = (state_of(root)).glob("index-v*.sqlite3")
    return found


def index_files(root: Path) -> list[Path]:
    """The index, what SQLite keeps beside it, and what was set aside."""
    return sorted((state_of(root)).glob("index-v*.sqlite3*"))


def files_holding(root: Path, *needles: str | bytes) -> list[str]:
    """Every file below the folder whose bytes hold one of these, in any case of letters."""
    wanted = [n.encode() if isinstance(n, str) else n for n in needles]
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            data = Path(folder, name).read_bytes().lower()
            found += [name for needle in wanted if needle.lower() in data]
    return found


def by_row(found: Iterable[NearPassages]) -> list[dict[int, float]]:
    """The cosines of passages by row, for each question; none for one without a vector."""
    return [
        {row: cosine for row, cosine in zip(*near, strict=True) if not np.isnan(cosine)}
        for near in found
    ]
