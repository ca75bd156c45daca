"""An embedder on a server: asked in batches, checked, and left alone for a while when it fails.

What the server said of its model is kept on disk. So the index keeps its name while the server is
down, and goes on answering by words; never by another model's vectors.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from ralph import disk
from ralph.errors import EmbedderOff
from ralph.index import Vectors
from ralph.index.sync import batches
from ralph.wire import Deadline, Reply, Wire

_TIMEOUT_S = 60.0
_CHECK_TIMEOUT_S = 30.0


# -- What a server of an embedding model may refuse, and what to do about a slow one.


_UNWANTED = frozenset({400, 413, 422})
_T = TypeVar("_T")
SLOW = "Look after the server; if it is only slow, raise remember_budget_s."


class TextsRefused(Exception):
    """The server is well but does not want these texts; the argument says why."""


# -- What known embedding models want around a text, and how much of one they read.


_FOR_SEARCHING = "Represent this sentence for searching relevant passages: "


class Recipe(msgspec.Struct, frozen=True):
    """What is put before a question and before a passage, and the longest text in tokens."""

    query: str = ""
    passage: str = ""
    window_tokens: int = 512


_NOMIC = Recipe("search_query: ", "search_document: ", 2048)
# By the model's name without its owner and tag; the longest beginning that fits counts.
_RECIPES = {
    "": Recipe(),
    "all-minilm": Recipe(window_tokens=256),
    "bge-": Recipe(_FOR_SEARCHING),
    "bge-m3": Recipe(window_tokens=8192),
    "embeddinggemma": Recipe("task: search result | query: ", "title: none | text: ", 2048),
    "mxbai-embed-large": Recipe(_FOR_SEARCHING),
    "nomic-embed-text": _NOMIC,
    "nomic-embed-text-v2": Recipe(_NOMIC.query, _NOMIC.passage),
    "snowflake-arctic-embed": Recipe(_FOR_SEARCHING),
    "snowflake-arctic-embed2": Recipe("query: ", window_tokens=8192),
    "text-embedding-3": Recipe(window_tokens=8191),
    "text-embedding-ada-002": Recipe(window_tokens=8191),
}


def recipe_for(model: str) -> Recipe:
    """How texts are given to this model; an unknown one gets them as they are."""
    name = model.rpartition("/")[2].partition(":")[0].lower()
    return _RECIPES[max((known for known in _RECIPES if name.startswith(known)), key=len)]


def plain_name(model: str) -> str:
    """A model's name as it may stand in an identity: short, and of plain characters."""
    if re.fullmatch(r"[\w./:+-]{1,48}", model, re.ASCII):
        return model
    return hashlib.sha256(model.encode(errors="replace")).hexdigest()[:12]


# -- Cutting a long text into overlapping pieces that a model with a short window reads whole.


# The same as text/tokens.py counts, one match a token.
_ABOUT_A_TOKEN = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|[^\sA-Za-z0-9]|\n+")


def about_tokens(text: str) -> list[tuple[int, int]]:
    """Where tokens begin and end, estimated for a model whose tokeniser is elsewhere."""
    return [found.span() for found in _ABOUT_A_TOKEN.finditer(text)]


def cut(text: str, tokens: Sequence[tuple[int, int]], *, size: int, overlap: int) -> list[str]:
    """Pieces of at most `size` tokens; each begins a little before the one ahead of it ends.

    Inside the overlap a piece begins at a word, where there is one.
    """
    found: list[str] = []
    first = begin = 0
    while (end := first + size) < len(tokens):
        found.append(text[begin : tokens[end - 1][1]])
        starts = (n for n in range(end - overlap, end) if text[tokens[n][0] - 1].isspace())
        first = next(starts, end - overlap)
        begin = tokens[first][0]
    return [*found, text[begin:]]


def ends(pieces: Sequence[str]) -> Sequence[str]:
    """The first piece and the last: where somebody who pastes a long text says what he wants."""
    return pieces if len(pieces) < 3 else (pieces[0], pieces[-1])


# -- Vectors of length one; what has no direction stays zero.


def unit_rows(vectors: Vectors) -> Vectors:
    """Each row brought to length one."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    lengths[lengths == 0.0] = 1.0
    scaled: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return scaled


def mean_direction(vectors: Vectors) -> Vectors:
    """One vector that points where the rows point together."""
    import numpy as np

    whole: Vectors = np.add.reduce(vectors, axis=0)
    return whole if len(vectors) == 1 else unit_rows(whole[None, :]).reshape(-1)


# Of a model's window, for tokens are only estimated here; and of that, what two pieces share.
_SAFE_SHARE = 0.8
_OVERLAP_SHARE = 0.125
# A server that failed is not asked again for so long, and a model's version not looked up again.
_REST_S = 30.0
_LOOK_AGAIN_S = 30.0
# How long a question's vector serves the other memories of the same search.
_SAME_SEARCH_S = 2.0
_SHORTEST_S = 0.25
_REQUEST_CHARS = 200_000
# So slow is no server that works: how long it may be depends on what it is given.
_SLOWEST_CHARS_A_S = 200.0
# A text that is refused is tried shorter and shorter, down to this.
_SHORTEST_CHARS = 200
_TRIAL = "ready?"


class ServedModel(msgspec.Struct, frozen=True):
    """What the server said of its model: how long its vectors are, and which version it is."""

    dims: Annotated[int, msgspec.Meta(gt=0)]
    version: str


class Dialect(ABC):
    """How one kind of server is asked. All raise EmbedderOff, `vectors` also TextsRefused.

    `name` begins the identity: the kind of server and its model. `title` is what people call it.
    """

    def __init__(self, wire: Wire[EmbedderOff], model: str, *, name: str, title: str) -> None:
        self._wire = wire
        self._model = model
        self.name = name
        self.title = title
        self.recipe = recipe_for(model)

    @abstractmethod
    def version(self, deadline: Deadline) -> str:
        """Which version of the model is there now; empty where nobody can know."""

    def idle(self, deadline: Deadline) -> bool:
        """Whether the model must be loaded first, which takes its time."""
        return False

    @abstractmethod
    def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
        """What the server makes of these texts, as it gave it."""

    def off(self, what: str, todo: str | None = None) -> EmbedderOff:
        """An error about this server."""
        return self._wire.off(what, todo)

    def refusal(self, reply: Reply, error: EmbedderOff) -> Exception:
        """The error; but some statuses speak of the texts: one is too long, or too many."""
        return TextsRefused(error) if reply.status in _UNWANTED else error

    def decoded(self, reply: Reply, key: str, kind: type[_T]) -> _T:
        """What the answer has under this key, as this type."""
        try:
            answer = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(answer.get(key, b""), type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.off(f"gave an answer that cannot be read ({error})") from None


class ServedEmbedder(msgspec.Struct, eq=False):
    """Texts to vectors through a server's dialect."""

    dialect: Dialect
    memo: Path | None = None
    batch: int = 64
    query_timeout_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    title: str = ""
    model: ServedModel | None = None
    looked_at: float = -math.inf
    worked_at: float = -math.inf
    rest: tuple[float, EmbedderOff] | None = None
    # The last question, when it was asked, and its vector: one search asks several memories.
    asked: tuple[str, float, Vectors] | None = None

    def __post_init__(self) -> None:
        self.title = self.dialect.title

    @property
    def identity(self) -> str:
        if (known := self._remembered()) is None:
            return f"{self.dialect.name}:unknown"
        # Everything beside the model that shapes the numbers.
        manner = msgspec.json.encode([self.dialect.recipe, _SAFE_SHARE, _OVERLAP_SHARE])
        short = hashlib.sha256(manner).hexdigest()[:6]
        return f"{self.dialect.name}:{known.version or 'any'}:{known.dims}:{short}"

    @property
    def dims(self) -> int:
        known = self._remembered()
        return known.dims if known else 0

    def pieces(self, text: str) -> Sequence[str]:
        """The text in parts that surely fit into the model's window."""
        size = int(self.dialect.recipe.window_tokens * _SAFE_SHARE)
        if len(text) <= size:
            return (text,)
        return cut(text, about_tokens(text), size=size, overlap=int(size * _OVERLAP_SHARE))

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """One row a text; a server that hangs shows it at a short text, within a short time."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dims), dtype=np.float32)
        whole = None if budget_s is None else Deadline(max(budget_s, _SHORTEST_S))
        with self._resting():
            known = self._greeted(whole)
            prefix = self.dialect.recipe.passage
            rows = [
                self._rows(known.dims, some, prefix, self._deadline(whole, some))
                for some in batches(texts, len, most=self.batch, largest=_REQUEST_CHARS)
            ]
        return np.concatenate(rows)

    def embed_query(self, text: str) -> Vectors:
        """One vector, or EmbedderOff, within the short timeout."""
        if self.asked and self.asked[0] == text and self.clock() - self.asked[1] < _SAME_SEARCH_S:
            return self.asked[2]
        deadline = Deadline(self.query_timeout_s)
        with self._resting():
            dims, parts = self._looked(deadline).dims, ends(self.pieces(text))
            vector = mean_direction(self._rows(dims, parts, self.dialect.recipe.query, deadline))
        self.asked = text, self.clock(), vector
        return vector

    def check(self) -> None:
        """Reachable, its model there, a vector made; what it says of itself counts from now on."""
        self.rest = None
        with self._resting():
            version = self.dialect.version(Deadline(self.query_timeout_s))
            self._learnt(version, Deadline(_CHECK_TIMEOUT_S))

    # -- asking

    def _rows(self, dims: int, texts: Sequence[str], prefix: str, deadline: Deadline) -> Vectors:
        import numpy as np

        rows = np.zeros((len(texts), dims), dtype=np.float32)
        # What holds no text has no direction, and servers refuse it.
        places = [place for place, text in enumerate(texts) if text.strip()]
        if places:
            given = self._given([prefix + texts[place] for place in places], deadline)
            rows[places] = self._checked(given, len(places), dims)
        return rows

    def _given(self, texts: list[str], deadline: Deadline) -> list[list[float]]:
        """What the server gives; one text it does not want shall not cost the others theirs."""
        try:
            return self.dialect.vectors(texts, deadline)
        except TextsRefused as refused:
            half = len(texts) // 2
            if half:
                return self._given(texts[:half], deadline) + self._given(texts[half:], deadline)
            shorter = texts[0][: len(texts[0]) // 2]
            if len(shorter) < _SHORTEST_CHARS:
                raise refused.args[0] from None
            return self._given([shorter], deadline)

    def _checked(self, rows: list[list[float]], count: int, dims: int | None) -> Vectors:
        """The server's numbers as vectors of length one, if they are what they should be."""
        import numpy as np

        if len(rows) != count:
            raise self.dialect.off(f"gave {len(rows)} vectors for {count} texts")
        lengths = {len(row) for row in rows}
        wanted = max(lengths) if dims is None else dims
        if lengths != {wanted} or not wanted:
            what = f"gave vectors of {' and '.join(map(str, sorted(lengths)))} numbers instead of"
            todo = "If its model was changed on purpose, run: ralph status"
            raise self.dialect.off(f"{what} {wanted}", todo)
        with np.errstate(over="ignore"):
            vectors = np.array(rows, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise self.dialect.off("gave vectors that hold what is no number")
        return unit_rows(vectors)

    def _deadline(self, whole: Deadline | None, texts: Sequence[str] = ()) -> Deadline:
        work_s = sum(map(len, texts)) / _SLOWEST_CHARS_A_S
        allowed_s = min(self.query_timeout_s + work_s, _TIMEOUT_S)
        return Deadline(allowed_s) if whole is None else whole.within(allowed_s)

    # -- knowing the server

    def _greeted(self, whole: Deadline | None) -> ServedModel:
        """Who is there, and that it works, before it gets much to do and time for it."""
        before, fresh = self._remembered(), self.clock() - self.looked_at < _LOOK_AGAIN_S
        if before is not None and fresh:
            return before
        short = self._deadline(whole)
        if whole is None and self.dialect.idle(short):
            short = Deadline(_TIMEOUT_S)
        known = self._looked(short)
        if known is before and self.clock() - self.worked_at >= _REST_S:
            self._rows(known.dims, [_TRIAL], self.dialect.recipe.query, short)
        return known

    def _looked(self, deadline: Deadline) -> ServedModel:
        """Which model is there now; a new one is tried."""
        known = self._remembered()
        if known is not None and self.clock() - self.looked_at < _LOOK_AGAIN_S:
            return known
        version = self.dialect.version(deadline)
        if known is None or known.version != version:
            return self._learnt(version, deadline)
        self.looked_at = self.clock()
        return known

    def _learnt(self, version: str, deadline: Deadline) -> ServedModel:
        trial = self.dialect.recipe.query + _TRIAL
        vectors = self._checked(self._given([trial], deadline), 1, None)
        self.model = known = ServedModel(vectors.shape[1], version)
        self.looked_at = self.clock()
        if self.memo is not None:
            with contextlib.suppress(OSError):  # nowhere to write: it is asked again next time
                disk.make_folder(self.memo.parent)
                disk.replace(self.memo, msgspec.json.encode(known))
        return known

    def _remembered(self) -> ServedModel | None:
        if self.model is None and self.memo is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                self.model = msgspec.json.decode(self.memo.read_bytes(), type=ServedModel)
        return self.model

    @contextlib.contextmanager
    def _resting(self) -> Iterator[None]:
        """A server that failed is left alone for a while: one wait is enough."""
        if self.rest is not None and self.clock() < self.rest[0]:
            raise self.rest[1].with_traceback(None)
        try:
            yield
        except EmbedderOff as error:
            self.rest = self.clock() + _REST_S, error
            self.looked_at = self.worked_at = -math.inf
            raise
        self.rest = None
        self.worked_at = self.clock()


def open_served(dialect: Dialect, settings: Any, cache: Path | None, *facts: str) -> ServedEmbedder:
    """An embedder as the settings want it; the facts tell servers and models apart."""
    digest = hashlib.sha256("\0".join(facts).encode(errors="replace")).hexdigest()
    memo = cache / f"embedder-{digest[:16]}.json" if cache else None
    return ServedEmbedder(dialect, memo=memo, query_timeout_s=settings.wait_s)
