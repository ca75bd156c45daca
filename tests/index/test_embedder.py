"""Every embedder keeps the same promises; the static table also says what is wrong with it.

RALPH_TEST_OLLAMA_URL and RALPH_TEST_OPENAI_URL (with RALPH_TEST_OPENAI_KEY, and ..._MODEL for
either) point the same suite at real servers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from embedding_server import OLLAMA_MODEL, OPENAI_MODEL, EmbeddingServer, running
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journaling import run_child
from remembering import ToyEmbedder

from ralph.errors import EmbedderOff
from ralph.index import Embedder
from ralph.index.embedders import static as static_module
from ralph.index.embedders.minilm import MiniLMEmbedder
from ralph.index.embedders.ollama import Ollama, ollama_wire
from ralph.index.embedders.openai import OpenAI
from ralph.index.embedders.served import ServedEmbedder
from ralph.index.embedders.static import StaticEmbedder

if TYPE_CHECKING:
    from ralph.index import Vectors

NAMES = ("static", "toy", "minilm", "ollama", "openai")
# Read before any test: every test gets an environment without them.
REAL = {name: os.environ.get(f"RALPH_TEST_{name.upper()}_URL") for name in NAMES}
REAL_MODEL = {name: os.environ.get(f"RALPH_TEST_{name.upper()}_MODEL") for name in NAMES}
REAL_KEY = os.environ.get("RALPH_TEST_OPENAI_KEY")
TEXTS = [
    "login form validation",
    "ImportError: cannot import name 'parse_url' from 'app.net' (src/app/net.py:12)",
    "",
    "   \n\t ",
    "x",
    "🙂🚀 fixed the emoji picker 👩‍👩‍👧‍👦",
    "修正登录表单的验证",
    "ログインフォームの検証を直した",
    "null \0 byte and \u202e marks",
    "word " * 2000,
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingServer]:
    with running() as started:
        yield started


def ollama(url: str) -> Embedder:
    model = REAL_MODEL["ollama"] or OLLAMA_MODEL
    return ServedEmbedder(Ollama(ollama_wire(url), model), query_timeout_s=60.0)


def openai(url: str) -> Embedder:
    model = REAL_MODEL["openai"] or OPENAI_MODEL
    return ServedEmbedder(OpenAI(url, model, key=REAL_KEY or ""), query_timeout_s=60.0)


@pytest.fixture(scope="module", params=NAMES)
def make(request: pytest.FixtureRequest, server: EmbeddingServer) -> Callable[[], Embedder]:
    """Makes one more embedder of the same kind."""
    name = str(request.param)
    if name == "minilm" and find_spec("onnxruntime") is None:
        pytest.skip("the extra minilm is not installed")
    url = REAL[name] or server.url
    makers: dict[str, Callable[[], Embedder]] = {
        "static": StaticEmbedder,
        "toy": ToyEmbedder,
        "minilm": MiniLMEmbedder,
        "ollama": functools.partial(ollama, url),
        "openai": functools.partial(openai, url),
    }
    return makers[name]


@pytest.fixture(scope="module")
def embedder(make: Callable[[], Embedder]) -> Embedder:
    made = make()
    made.check()
    return made


def same(embedder: Embedder, one: Vectors, other: Vectors) -> bool:
    """Exactly the same; a real server may round differently from batch to batch."""
    if REAL.get(embedder.identity.partition(":")[0]):
        return np.allclose(one, other, atol=2e-3)
    return np.array_equal(one, other)


def test_the_identity_is_the_same_for_a_second_instance(
    make: Callable[[], Embedder], embedder: Embedder
) -> None:
    again = make()
    again.check()
    assert again.identity == embedder.identity
    assert again.dims == embedder.dims > 0
    vector = embedder.embed_query("same numbers")
    assert same(embedder, again.embed_query("same numbers"), vector)
    assert same(embedder, embedder.embed_query("same numbers"), vector)


def test_the_identity_is_a_name_that_can_be_written_down(embedder: Embedder) -> None:
    assert embedder.identity.isascii()
    assert embedder.identity.isprintable()
    assert 3 < len(embedder.identity) < 100
    assert embedder.title.isprintable()
    assert embedder.title.partition(" ")[0].lower() in embedder.identity


def test_every_text_gets_one_row_of_the_promised_length(embedder: Embedder) -> None:
    vectors = embedder.embed_passages(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dims)
    assert vectors.dtype == np.float32
    assert embedder.embed_query("one").shape == (embedder.dims,)
    assert embedder.embed_query("one").dtype == np.float32


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed_passages([]).shape == (0, embedder.dims)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_vector_has_length_one_or_is_zero_for_a_text_without_content(
    embedder: Embedder, text: str
) -> None:
    for vector in (embedder.embed_query(text), embedder.embed_passages([text])[0]):
        length = float(np.linalg.norm(vector))
        assert length == pytest.approx(1.0, abs=1e-5) if text.strip() else length in (0.0, 1.0)
        assert np.isfinite(vector).all()


def test_the_empty_text_has_no_direction(embedder: Embedder) -> None:
    assert not embedder.embed_query("").any()
    assert not embedder.embed_passages([""]).any()


def test_a_batch_gives_exactly_what_one_by_one_gives(embedder: Embedder) -> None:
    together = embedder.embed_passages(TEXTS)
    one_by_one = np.concatenate([embedder.embed_passages([text]) for text in TEXTS])
    assert same(embedder, together, one_by_one)


def test_a_large_batch_keeps_the_order(embedder: Embedder) -> None:
    texts = [f"word{n} in text {n}" for n in range(2 * embedder.batch + 3)]
    vectors = embedder.embed_passages(texts)
    for place in (0, embedder.batch - 1, embedder.batch, 2 * embedder.batch, len(texts) - 1):
        assert same(embedder, vectors[place], embedder.embed_passages([texts[place]])[0])


@pytest.mark.parametrize("text", [t for t in TEXTS if t.strip()])
def test_a_question_is_nearest_to_the_passage_with_its_words(embedder: Embedder, text: str) -> None:
    near = float(embedder.embed_query(text) @ embedder.embed_passages([text])[0])
    # A real model may tell questions and passages apart.
    assert near > (0.5 if REAL.get(embedder.identity.partition(":")[0]) else 0.99)


def test_related_texts_are_nearer_than_unrelated_ones(embedder: Embedder) -> None:
    query = embedder.embed_query("validate the login form")
    near, far = embedder.embed_passages(
        ["the login form did not validate its fields", "invoice totals were rounded twice"]
    )
    assert query @ near > query @ far + 0.1


def test_a_long_text_is_read_to_its_end(embedder: Embedder) -> None:
    start = "alpha " * 1600
    one, other = (
        embedder.embed_passages(embedder.pieces(start + end))
        for end in ("zebra " * 60, "guitar " * 60)
    )
    assert len(start) > 9000
    assert one.shape == other.shape
    assert not np.allclose(one[-1], other[-1], atol=1e-3)


def test_a_short_text_is_one_piece(embedder: Embedder) -> None:
    for text in ("", "x", "login form validation"):
        assert list(embedder.pieces(text)) == [text]


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(max_size=80), max_size=5))
def test_any_text_can_be_embedded(embedder: Embedder, texts: list[str]) -> None:
    vectors = embedder.embed_passages(texts)
    assert vectors.shape == (len(texts), embedder.dims)
    lengths = np.linalg.norm(vectors, axis=1)
    assert ((np.abs(lengths - 1.0) < 1e-4) | (lengths == 0.0)).all()


# -- the static table


# Made by the encoder that the table was trained and measured with: the first numbers of each
# vector, and the sum of all. Hostile texts too: nothing but marks, other scripts, very long.
STORED = json.loads((Path(__file__).parents[1] / "data" / "static_vectors.json").read_text("utf-8"))


@pytest.mark.parametrize("row", STORED, ids=range(len(STORED)))
def test_the_vectors_are_those_the_table_was_measured_with(row: dict[str, Any]) -> None:
    vector = StaticEmbedder().embed_query(row["text"] * row["times"])
    assert np.allclose(vector[: len(row["first"])], row["first"], atol=2e-6)
    assert float(vector.sum()) == pytest.approx(row["sum"], abs=2e-5)


@pytest.mark.parametrize("text", ["", " \n", "\0\x01\x1b[", "!?#", "\U0001f642", "\ud800"])
def test_a_text_without_a_letter_or_digit_has_no_direction(text: str) -> None:
    assert not StaticEmbedder().embed_query(text).any()


def test_the_first_text_of_a_process_gets_the_vector_that_a_later_one_gets(package: Path) -> None:
    """Few pieces are looked up in another way than many."""
    later = StaticEmbedder()
    later.embed_passages([" ".join(f"q{n}zx{n}j" for n in range(300))])
    for row in STORED:
        static_module._read.cache_clear()
        first = StaticEmbedder(folder=package).embed_query(row["text"])
        assert np.array_equal(first, later.embed_query(row["text"]))


def test_identifiers_are_read_word_by_word() -> None:
    static = StaticEmbedder()
    written = [static.embed_query(text) for text in ("loadConfig", "load_config", "LOAD config")]
    assert np.array_equal(written[0], written[1])
    assert np.array_equal(written[0], written[2])


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the table's folder, to be damaged."""
    copy = tmp_path / "package"
    copy.mkdir()
    shutil.copyfile(table(Path(static_module.__file__).parent), table(copy))
    return copy


def table(package: Path) -> Path:
    return package / static_module.TABLE_NAME


def test_the_shipped_table_is_the_pinned_one(package: Path) -> None:
    assert hashlib.sha256(table(package).read_bytes()).hexdigest() == static_module.TABLE_SHA256
    assert static_module.TABLE_SHA256[:12] in StaticEmbedder.identity


def test_a_copy_of_the_table_gives_the_same_vectors(package: Path) -> None:
    copy = StaticEmbedder(folder=package).embed_query("login form")
    assert np.array_equal(copy, StaticEmbedder().embed_query("login form"))


@pytest.mark.parametrize("place", [0, 20, 300_000, -1])
def test_a_flipped_byte_is_noticed(package: Path, place: int) -> None:
    data = bytearray(table(package).read_bytes())
    data[place] ^= 1
    table(package).write_bytes(data)
    with pytest.raises(EmbedderOff, match="SHA-256 differs") as caught:
        StaticEmbedder(folder=package).embed_query("anything")
    assert caught.value.where == str(table(package))
    assert "pip install --force-reinstall ralph-rag" in str(caught.value)


@pytest.mark.parametrize("length", [0, 7, 1000, 5_000_000])
def test_a_table_cut_short_is_noticed(package: Path, length: int) -> None:
    table(package).write_bytes(table(package).read_bytes()[:length])
    with pytest.raises(EmbedderOff, match="SHA-256 differs"):
        StaticEmbedder(folder=package).embed_query("anything")


def test_a_missing_table_says_what_to_do(package: Path) -> None:
    table(package).unlink()
    with pytest.raises(EmbedderOff, match="cannot be read") as caught:
        StaticEmbedder(folder=package).embed_passages(["anything"])
    assert "pip install" in str(caught.value)


def test_a_table_that_cannot_be_read_says_what_to_do(package: Path) -> None:
    table(package).unlink()
    table(package).mkdir()
    with pytest.raises(EmbedderOff, match="cannot be read") as caught:
        StaticEmbedder(folder=package).embed_query("anything")
    assert "pip install" in str(caught.value)


def test_an_embedder_that_was_off_works_when_the_files_are_back(package: Path) -> None:
    away = table(package).rename(package / "away")
    embedder = StaticEmbedder(folder=package)
    with pytest.raises(EmbedderOff):
        embedder.embed_query("anything")
    away.rename(table(package))
    assert embedder.embed_query("anything").any()


def test_the_hash_is_checked_once_and_a_stamp_remembers_it(package: Path, tmp_path: Path) -> None:
    stamps = tmp_path / "home" / "cache"
    StaticEmbedder(folder=package, stamp_folder=stamps).embed_query("first")
    written = {file.name: file.stat().st_mtime_ns for file in stamps.iterdir()}
    assert len(written) == 1
    # The same size and time: with the stamp nobody looks into the file again.
    stat = table(package).stat()
    data = bytearray(table(package).read_bytes())
    data[-1] ^= 1
    table(package).write_bytes(data)
    os.utime(table(package), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    StaticEmbedder(folder=package, stamp_folder=stamps).embed_query("second")
    assert {file.name: file.stat().st_mtime_ns for file in stamps.iterdir()} == written
    # Without it the damage is seen.
    with pytest.raises(EmbedderOff):
        StaticEmbedder(folder=package).embed_query("third")


def test_a_changed_file_is_checked_again_in_spite_of_the_stamp(
    package: Path, tmp_path: Path
) -> None:
    stamps = tmp_path / "stamps"
    StaticEmbedder(folder=package, stamp_folder=stamps).embed_query("first")
    with table(package).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(EmbedderOff, match="SHA-256 differs"):
        StaticEmbedder(folder=package, stamp_folder=stamps).embed_query("second")


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\x00garbage", b"x" * 100_000])
def test_a_damaged_stamp_only_means_another_check(
    package: Path, tmp_path: Path, damage: bytes
) -> None:
    stamps = tmp_path / "stamps"
    StaticEmbedder(folder=package, stamp_folder=stamps).embed_query("first")
    right = {file: file.read_bytes() for file in stamps.iterdir()}
    for file in right:
        file.write_bytes(damage)
    assert StaticEmbedder(folder=package, stamp_folder=stamps).embed_query("second").any()
    assert {file: file.read_bytes() for file in stamps.iterdir()} == right


def test_a_stamp_that_cannot_be_kept_does_no_harm(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    embedder = StaticEmbedder(folder=package, stamp_folder=tmp_path / "file" / "cache")
    assert embedder.embed_query("anything").any()


def test_a_search_by_meaning_needs_numpy_and_nothing_else() -> None:
    script = """
    import sys
    import msgspec, numpy
    before = set(sys.modules)
    from ralph.index.embedders.static import StaticEmbedder
    assert StaticEmbedder().embed_query("login form").any()
    roots = {name.partition(".")[0] for name in set(sys.modules) - before}
    print(*sorted(roots - sys.stdlib_module_names))
    """
    assert run_child(script) == ["ralph"]


def test_nothing_heavy_is_loaded_before_the_first_text() -> None:
    script = """
    import sys
    from ralph.index.embedders.static import StaticEmbedder
    embedder = StaticEmbedder()
    embedder.identity, embedder.dims
    print(*[name for name in ("numpy", "tokenizers") if name in sys.modules])
    """
    assert run_child(script) == [""]
