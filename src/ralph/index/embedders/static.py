"""The default embedder: a table of word vectors that comes inside a package.

No server, no key, no download: the table and its tokeniser are read as files from the installed
`wordllama` distribution, which is never imported. A text is the mean of its tokens' rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk
from ralph.errors import EmbedderOff

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ralph.index import Vectors


TABLE_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
# The same tokeniser, written with other white space by different releases of the package.
TOKENISER_SHA256 = (
    "bf467c9e0f536bda271283c6ef85eb1a943e3196b621c8a912d64953b205df83",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)
_TABLE = Path("weights") / "l2_supercat_256.safetensors"
_TOKENISER = Path("tokenizers") / "l2_supercat_tokenizer_config.json"
_DIMS = 256
# The first tokens of a long text say what it is about; they count twice.
_LEAD_TOKENS = 32
_BATCH = 512
_MANY = 64
_INSTALL = "Run: pip install wordllama"
_REINSTALL = "Run: pip install --force-reinstall wordllama"


class StaticEmbedder(msgspec.Struct, eq=False, kw_only=True):
    """WordLlama's 256-dimensional table, memory-mapped, loaded at the first text."""

    identity = f"static:l2_supercat_256:{TABLE_SHA256[:12]}:lead{_LEAD_TOKENS}"
    title = "static"
    dims = _DIMS
    batch = _BATCH

    stamp_folder: Path | None = None
    package: Path | None = None
    loaded: tuple[Any, NDArray[np.float16]] | None = None
    widened: Vectors | None = None
    embedded: int = 0

    def pieces(self, text: str) -> Sequence[str]:
        """The text itself: a mean has no longest text."""
        return (text,)

    def check(self) -> None:
        """Load the table and make a vector."""
        self.embed_query("ready?")

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """One row a text, so fast that no budget matters."""
        import numpy as np

        vectors = np.zeros((len(texts), _DIMS), dtype=np.float32)
        tokeniser, table = self._load()
        self.embedded += len(texts)
        if self.widened is None and self.embedded >= _MANY:
            # Turning half into single precision is most of the work: once for a process that
            # embeds many texts, never for one that only asks.
            self.widened = table.astype(np.float32)
        rows = table if self.widened is None else self.widened
        for start in range(0, len(texts), _BATCH):
            part = list(texts[start : start + _BATCH])
            encoded = tokeniser.encode_batch_fast(part, add_special_tokens=False)
            for row, encoding in enumerate(encoded, start):
                vectors[row] = _pool(rows, encoding.ids)
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """One vector."""
        tokeniser, table = self._load()
        return _pool(table, tokeniser.encode(text, add_special_tokens=False).ids)

    def _load(self) -> tuple[Any, NDArray[np.float16]]:
        if self.loaded is None:
            package = self.package or find_package("wordllama", "the table", _INSTALL)
            table, tokeniser = (
                model_file("the static table", package, name, hashes, self.stamp_folder, _REINSTALL)
                for name, hashes in ((_TABLE, (TABLE_SHA256,)), (_TOKENISER, TOKENISER_SHA256))
            )
            self.loaded = _open_tokeniser(tokeniser), _open_table(table)
        return self.loaded


def _open_tokeniser(file: Path) -> Any:
    from tokenizers import Tokenizer  # which only a search by meaning needs

    return Tokenizer.from_file(str(file))


def open_embedder(settings: object, cache: Path | None) -> StaticEmbedder:
    """The embedder; it has no settings."""
    return StaticEmbedder(stamp_folder=cache)


def _open_table(file: Path) -> NDArray[np.float16]:
    """The one tensor of the safetensors file, straight from the disk's pages."""
    import numpy as np

    with file.open("rb") as opened:
        header_bytes = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(header_bytes))
    tensor = header["embedding.weight"]

    start, shape = 8 + header_bytes + tensor["data_offsets"][0], tuple(tensor["shape"])
    mapped = np.memmap(file, dtype=np.float16, mode="r", offset=start, shape=shape)
    return np.asarray(mapped)  # the plain array is indexed faster than the mapped one


def _pool(table: NDArray[np.float16] | Vectors, ids: list[int]) -> Vectors:
    import numpy as np

    if not ids:
        return np.zeros(_DIMS, dtype=np.float32)
    rows = table.take(ids, axis=0).astype(np.float32, copy=False)
    pooled = _unit(np.add.reduce(rows, axis=0))
    if len(ids) > _LEAD_TOKENS:
        pooled = _unit(pooled + _unit(np.add.reduce(rows[:_LEAD_TOKENS], axis=0)))
    return pooled


def _unit(vector: Vectors) -> Vectors:
    import numpy as np

    length = math.sqrt(float(vector @ vector))
    return vector / np.float32(length) if length else vector


# -- Files of a model that come inside a package: found, and checked to be the ones we know.


def find_package(name: str, what: str, todo: str) -> Path:
    """The folder of the installed package that holds a model; it is never imported."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderOff(f"{what} is not installed (no package {name})", todo=todo)
    return Path(next(iter(spec.submodule_search_locations)))


def model_file(
    what: str, package: Path, name: Path, hashes: Sequence[str], stamps: Path | None, todo: str
) -> Path:
    """A file of a model, checked once for each installed copy; a stamp remembers it was right."""
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
        with contextlib.suppress(OSError):  # nowhere to write: it is checked again next time
            disk.make_folder(stamp.parent)
            disk.write(stamp, seen)
    return file
