"""The default embedder: Ralph's own table of word vectors, a file of this package.

No server, no key, no download: NumPy is all it needs. `embedder/MODEL_CARD.md` in the repository
says what the table was trained on and how good it is; docs/formats.md describes the file.

A text is split into words (identifiers are split, accents dropped), and each word into the longest
pieces in the vocabulary. The vector is the weighted sum of the pieces' rows. A piece that fits the
whole text counts more, and the first pieces of a long text count twice.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import unicodedata
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ralph import disk
from ralph.errors import EmbedderOff

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Vectors


TABLE_SHA256 = "0195bfe7e2490d55046e3c65744f7530989f35e4705e128d7a3cc75e6959342b"
TABLE_NAME = "table.bin"
_MAGIC = b"RALPHEM1"
_DIMS = 256
_BATCH = 512
_REINSTALL = "Run: pip install --force-reinstall ralph-rag"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# The part of a word and of a text that is read.
_WORD_LETTERS = 32
_TEXT_PIECES = 2000
_CACHED_WORDS = 50_000
# How many pieces are searched in the vocabulary's text before a dictionary is built.
_LOOKED_UP = 200
# The weight of a piece that fits a text is at most e to the power of this.
_MOST_FIT = 4.0


class StaticEmbedder(msgspec.Struct, eq=False, kw_only=True):
    """The 256-dimensional table, memory-mapped when the first text comes."""

    identity = f"static:ralph-1:{TABLE_SHA256[:12]}"
    title = "static"
    dims = _DIMS
    batch = _BATCH

    stamp_folder: Path | None = None
    folder: Path = Path(__file__).parent
    opened: _WordTable | None = None

    def pieces(self, text: str) -> Sequence[str]:
        """Return the text itself: a sum of word vectors has no length limit."""
        return (text,)

    def check(self) -> None:
        """Open the table and make a vector."""
        self.embed_query("ready?")

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Return one row per text. Ignores the budget, because it is fast."""
        import numpy as np

        vectors = np.zeros((len(texts), _DIMS), dtype=np.float32)
        table = self._open()
        for row, text in enumerate(texts):
            if ids := table.ids(text):
                vectors[row] = table.vector(ids)
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Return one vector."""
        vector: Vectors = self.embed_passages([text])[0]
        return vector

    def _open(self) -> _WordTable:
        if self.opened is None:
            what = "the static table"
            file = Path(TABLE_NAME)
            hashes = [TABLE_SHA256]
            stamps = self.stamp_folder
            self.opened = _read(model_file(what, self.folder, file, hashes, stamps, _REINSTALL))
        return self.opened


class _Vocabulary:
    """The pieces, one per line; the row of a piece is its line number.

    Building a dictionary takes longer than everything else a question needs, so the first pieces
    are searched in the text.
    """

    def __init__(self, text: bytes) -> None:
        import numpy as np

        self._text = b"\n%b\n" % text
        self._ends = np.flatnonzero(np.frombuffer(self._text, dtype=np.uint8) == ord("\n"))
        self._looked_up = 0
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ends) - 1

    def row(self, piece: str) -> int | None:
        """Return the row of a piece, or None."""
        if self._looked_up < _LOOKED_UP:
            self._looked_up += 1
            at = self._text.find(f"\n{piece}\n".encode())
            return None if at < 0 else int(self._ends.searchsorted(at))
        if not self._rows:
            self._rows = {word: row for row, word in enumerate(self.words())}
        return self._rows.get(piece)

    def words(self) -> list[str]:
        """Return all pieces, in the order of their rows."""
        return self._text.decode().split("\n")[1:-1]


class _WordTable(NamedTuple):
    """The content of the file: a row for each piece, then rows for letter pairs of scripts that are
    not in the vocabulary. The vector of row i is `scale[i] * rows[i]`."""

    vocabulary: _Vocabulary
    hashed: int
    damping: float
    lead: int
    scale: Vectors
    gate: Vectors
    rows: NDArray[np.int8]
    cache: dict[str, tuple[int, ...]]

    def ids(self, text: str) -> list[int]:
        """Return the rows of a text, in order."""
        found: list[int] = []
        for word in _WORD.findall(text if text.isascii() else _NOT_ASCII.sub(_plain, text)):
            rows = self.cache.get(word)
            if rows is None:
                rows = self._split(word)
                if len(self.cache) < _CACHED_WORDS:
                    self.cache[word] = rows
            found += rows
            if len(found) >= _TEXT_PIECES:
                return found[:_TEXT_PIECES]
        return found

    def _split(self, written: str) -> tuple[int, ...]:
        word = written.lower()[:_WORD_LETTERS]
        row = self.vocabulary.row
        if not word.isascii() and row(word) is None:
            count = len(self.vocabulary)
            pairs = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
            return tuple(count + zlib.crc32(pair.encode()) % self.hashed for pair in pairs)
        found: list[int] = []
        at = 0
        mark = ""
        while at < len(word):
            end = len(word)
            while (known := row(mark + word[at:end])) is None and end > at + 1:
                end -= 1
            found.append(known or 0)
            at, mark = end, "##"
        return tuple(found)

    def vector(self, ids: list[int]) -> Vectors:
        """Return the unit vector of these rows."""
        whole = self._sum(ids)
        return _unit(whole + self._sum(ids[: self.lead])) if len(ids) > self.lead > 0 else whole

    def _sum(self, ids: list[int]) -> Vectors:
        import numpy as np

        distinct, times = np.unique(np.array(ids), return_counts=True)
        weight = self.scale[distinct] * times.astype(np.float32) ** self.damping
        rows = self.rows[distinct].astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        fits = rows @ (self.gate @ _unit(weight @ rows)) / lengths
        return _unit((weight * np.exp(fits.clip(-_MOST_FIT, _MOST_FIT))) @ rows)


def _plain(letters: re.Match[str]) -> str:
    """Return letters without accents, with ligatures and wide forms decomposed."""
    apart = unicodedata.normalize("NFKD", letters[0])
    return "".join(char for char in apart if not unicodedata.combining(char))


def _unit(vector: Vectors) -> Vectors:
    length = float(vector @ vector) ** 0.5
    return vector / length if length else vector


@functools.lru_cache(maxsize=2)
def _read(file: Path) -> _WordTable:
    """Map the table into memory. Its hash was checked, so it is complete.

    All memories of a process share it.
    """
    import numpy as np

    with file.open("rb") as opened:
        opened.seek(len(_MAGIC))
        head = msgspec.json.decode(opened.read(int.from_bytes(opened.read(4), "little")))
        vocabulary = _Vocabulary(zlib.decompress(opened.read(head["vocabulary"])))
        start = -(-opened.tell() // 64) * 64
    count = head["rows"]
    # Plain arrays are indexed faster than memmap objects.
    whole = np.asarray(np.memmap(file, np.uint8, "r", offset=start))
    gate_at = 4 * count
    rows_at = 4 * count + 2 * _DIMS**2
    gate = whole[gate_at:rows_at].view(np.float16).astype(np.float32).reshape(_DIMS, _DIMS)
    rows = whole[rows_at:].view(np.int8).reshape(count, _DIMS)
    scale = whole[:gate_at].view(np.float32)
    head_of = (head["hash"], head["damping"], head["lead"])
    return _WordTable(vocabulary, *head_of, scale, gate, rows, {})


def open_embedder(settings: object, cache: Path | None) -> StaticEmbedder:
    """Return the embedder. It has no settings."""
    return StaticEmbedder(stamp_folder=cache)


# -- Model files from installed packages, checked by hash.


def model_file(
    what: str, package: Path, name: Path, hashes: Sequence[str], stamps: Path | None, todo: str
) -> Path:
    """Return a model's file after checking its hash; a stamp file saves the next check."""
    file = package / name
    try:
        stat = file.stat()
        seen = os.fsencode(f"{file}\n{stat.st_size}\n{stat.st_mtime_ns}\n{hashes[0]}\n")
        stamp = stamps / f"{file.name}.checked" if stamps else None
        with contextlib.suppress(OSError):
            if stamp and stamp.read_bytes() == seen:
                return file
        is_right = hashlib.sha256(file.read_bytes()).hexdigest() in hashes
    except OSError as error:
        reason = f"{what} cannot be read ({error.strerror or error})"
        raise EmbedderOff(reason, where=str(file), todo=todo) from error
    if not is_right:
        reason = "this is not the file Ralph's vectors are made with (its SHA-256 differs)"
        raise EmbedderOff(reason, where=str(file), todo=todo)
    if stamp:
        with contextlib.suppress(OSError):  # cannot be saved: checked again next time
            disk.make_folder(stamp.parent)
            disk.write(stamp, seen)
    return file
