"""An embedder on a server: called in batches, checked, and not called for a while after a failure.

What the server reports about its model is saved on disk. So while the server is down, the embedder
keeps its identity, and the index still answers by words; never by another model's vectors.
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
# A model may have to be loaded first. A server that says nothing at all is given up before.
_CHECK_TIMEOUT_S = 30.0
_GREETING_TIMEOUT_S = 5.0


# -- Statuses that refuse the texts, and what to do about a slow server.


_UNWANTED = frozenset({400, 413, 422})
_T = TypeVar("_T")
SLOW = "Look after the server; if it is only slow, raise remember_budget_s."


class TextsRefused(Exception):
    """The server works but refuses these texts; the argument is the error."""


# -- The prefixes that known embedding models want, and how long a text they read.


_FOR_SEARCHING = "Represent this sentence for searching relevant passages: "


class Recipe(msgspec.Struct, frozen=True):
    """The prefixes for a question and for a passage, and the longest text in tokens."""

    query: str = ""
    passage: str = ""
    window_tokens: int = 512


_NOMIC = Recipe("search_query: ", "search_document: ", 2048)
# By the beginning of the model's name, without owner and tag; the longest one that fits counts.
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
    """Return the recipe for this model; an unknown model gets texts as they are."""
    name = model.rpartition("/")[2].partition(":")[0].lower()
    return _RECIPES[max((known for known in _RECIPES if name.startswith(known)), key=len)]


def plain_name(model: str) -> str:
    """Return a model's name for use in an identity: short, with plain characters only."""
    if re.fullmatch(r"[\w./:+-]{1,48}", model, re.ASCII):
        return model
    return hashlib.sha256(model.encode(errors="replace")).hexdigest()[:12]


# -- Cutting a long text into overlapping pieces that fit the window of a model.


# Counts tokens like text/tokens.py, one match per token.
_ABOUT_A_TOKEN = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|[^\sA-Za-z0-9]|\n+")


def about_tokens(text: str) -> list[tuple[int, int]]:
    """Return where tokens begin and end, estimated without the model's own tokeniser."""
    return [found.span() for found in _ABOUT_A_TOKEN.finditer(text)]


def cut(text: str, tokens: Sequence[tuple[int, int]], *, size: int, overlap: int) -> list[str]:
    """Return pieces of at most `size` tokens; each starts a little before the previous one ends.

    A piece starts at the beginning of a word, if one begins in the overlap.
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
    """Return the first and last piece: people who paste a long text put their question there."""
    return pieces if len(pieces) < 3 else (pieces[0], pieces[-1])


# -- Unit vectors; zero vectors stay zero.


def unit_rows(vectors: Vectors) -> Vectors:
    """Normalize each row to unit length."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    lengths[lengths == 0.0] = 1.0
    scaled: Vectors = (vectors / lengths[:, None]).astype(np.float32)
    return scaled


def mean_direction(vectors: Vectors) -> Vectors:
    """Return the sum of the rows, normalized if there is more than one."""
    import numpy as np

    whole: Vectors = np.add.reduce(vectors, axis=0)
    return whole if len(vectors) == 1 else unit_rows(whole[None, :]).reshape(-1)


# The share of a model's window to use, because tokens are only estimated; and the share of that
# which two pieces have in common.
_SAFE_SHARE = 0.8
_OVERLAP_SHARE = 0.125
# How long a server is not called after a failure, and how long a model's version is valid.
_REST_S = 30.0
_LOOK_AGAIN_S = 30.0
# How long a question's vector is reused, for the other memories in the same search.
_SAME_SEARCH_S = 2.0
_SHORTEST_S = 0.25
_REQUEST_CHARS = 200_000
# Every working server is faster than this. Timeouts grow with the length of the texts.
_SLOWEST_CHARS_A_S = 200.0
# A refused text is halved and tried again, down to this length.
_SHORTEST_CHARS = 200
_TRIAL = "ready?"


class ServedModel(msgspec.Struct, frozen=True):
    """What the server reported about its model: the length of its vectors, and its version."""

    dims: Annotated[int, msgspec.Meta(gt=0)]
    version: str


class Dialect(ABC):
    """The API of one kind of server. Calls raise EmbedderOff; `vectors` also TextsRefused.

    `name`, the kind of server and its model, begins the identity. `title` is shown to people.
    """

    def __init__(self, wire: Wire[EmbedderOff], model: str, *, name: str, title: str) -> None:
        self._wire = wire
        self._model = model
        self.name = name
        self.title = title
        self.recipe = recipe_for(model)

    @abstractmethod
    def version(self, deadline: Deadline) -> str:
        """Return the current version of the model; empty if the server does not tell."""

    def greet(self, deadline: Deadline) -> None:  # noqa: B027 - `version` asks most servers
        """Raise EmbedderOff if the server says nothing at all."""

    def idle(self, deadline: Deadline) -> bool:
        """Whether the model must be loaded first, which takes time."""
        return False

    @abstractmethod
    def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
        """Return the server's vectors for these texts, unchecked."""

    def off(self, what: str, todo: str | None = None) -> EmbedderOff:
        """Return an error about this server."""
        return self._wire.off(what, todo)

    def refusal(self, reply: Reply, error: EmbedderOff) -> Exception:
        """Return the error; as TextsRefused if the status blames the texts (too long, too many)."""
        return TextsRefused(error) if reply.status in _UNWANTED else error

    def decoded(self, reply: Reply, key: str, kind: type[_T]) -> _T:
        """Return the value of this key in the answer, as this type."""
        try:
            answer = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(answer.get(key, b""), type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.off(f"gave an answer that cannot be read ({error})") from None


class ServedEmbedder(msgspec.Struct, eq=False):
    """An embedder that calls a server through its dialect."""

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
    # The last question, its time and its vector, because one search asks several memories.
    asked: tuple[str, float, Vectors] | None = None

    def __post_init__(self) -> None:
        self.title = self.dialect.title

    @property
    def identity(self) -> str:
        if (known := self._remembered()) is None:
            return f"{self.dialect.name}:unknown"
        # Everything besides the model that affects the numbers.
        manner = msgspec.json.encode([self.dialect.recipe, _SAFE_SHARE, _OVERLAP_SHARE])
        short = hashlib.sha256(manner).hexdigest()[:6]
        return f"{self.dialect.name}:{known.version or 'any'}:{known.dims}:{short}"

    @property
    def dims(self) -> int:
        known = self._remembered()
        return known.dims if known else 0

    def pieces(self, text: str) -> Sequence[str]:
        """Return the text in parts that surely fit the model's window."""
        size = int(self.dialect.recipe.window_tokens * _SAFE_SHARE)
        if len(text) <= size:
            return (text,)
        return cut(text, about_tokens(text), size=size, overlap=int(size * _OVERLAP_SHARE))

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Return one row per text. A short request comes first, to find out if the server hangs."""
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
        """Return one vector, or raise EmbedderOff, within the short timeout."""
        if self.asked and self.asked[0] == text and self.clock() - self.asked[1] < _SAME_SEARCH_S:
            return self.asked[2]
        deadline = Deadline(self.query_timeout_s)
        with self._resting():
            dims = self._looked(deadline).dims
            parts = ends(self.pieces(text))
            vector = mean_direction(self._rows(dims, parts, self.dialect.recipe.query, deadline))
        self.asked = text, self.clock(), vector
        return vector

    def check(self) -> None:
        """Check the server and its model, make a vector, and save what the server reports."""
        self.rest = None
        with self._resting():
            version = self.dialect.version(Deadline(self.query_timeout_s))
            self.dialect.greet(Deadline(_GREETING_TIMEOUT_S))
            self._learnt(version, Deadline(_CHECK_TIMEOUT_S))

    # -- requests

    def _rows(self, dims: int, texts: Sequence[str], prefix: str, deadline: Deadline) -> Vectors:
        import numpy as np

        rows = np.zeros((len(texts), dims), dtype=np.float32)
        # An empty text has no direction, and servers refuse it.
        places = [place for place, text in enumerate(texts) if text.strip()]
        if places:
            given = self._given([prefix + texts[place] for place in places], deadline)
            rows[places] = self._checked(given, len(places), dims)
        return rows

    def _given(self, texts: list[str], deadline: Deadline) -> list[list[float]]:
        """Return the server's vectors. If texts are refused, split the batch and shorten them."""
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
        """Return the server's numbers as unit vectors, or raise an error if they are wrong."""
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

    # -- the server's model

    def _greeted(self, whole: Deadline | None) -> ServedModel:
        """Return the server's model, and check that it works before it gets long requests."""
        before = self._remembered()
        fresh = self.clock() - self.looked_at < _LOOK_AGAIN_S
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
        """Return the current model; try it if it is new."""
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
            with contextlib.suppress(OSError):  # cannot be saved: the next process asks again
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
        """After a failure, raise the same error for a while: waiting once is enough."""
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
    """Return an embedder; `facts` identify the server and the model in the memo's name."""
    digest = hashlib.sha256("\0".join(facts).encode(errors="replace")).hexdigest()
    memo = cache / f"embedder-{digest[:16]}.json" if cache else None
    return ServedEmbedder(dialect, memo=memo, query_timeout_s=settings.wait_s)
