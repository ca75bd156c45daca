"""Long texts: cut into pieces that overlap, cover everything, and are counted once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from remembering import ToyEmbedder, by_row, index_file, made, open_toy

from ralph.index import CollectionSize, quantized
from ralph.index.embedders.served import about_tokens, cut, ends, plain_name, recipe_for
from ralph.index.matrix import Matrix, pack
from ralph.index.sync import live_of
from ralph.memory.status import verify_index
from ralph.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph.index import Vectors


class ShortSighted(ToyEmbedder):
    """A toy that reads ten words at a time."""

    def pieces(self, text: str) -> Sequence[str]:
        return cut(text, about_tokens(text), size=10, overlap=2)

    batch = 4


@given(st.text(max_size=400))
def test_the_estimate_finds_as_many_tokens_as_are_counted_elsewhere(text: str) -> None:
    assert len(about_tokens(text)) == estimate_tokens(text)


@given(st.text(max_size=300), st.integers(2, 20), st.data())
def test_pieces_are_short_overlap_and_cover_the_text(
    text: str, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(1, size - 1))
    pieces = cut(text, about_tokens(text), size=size, overlap=overlap)
    start = end = 0
    for piece in pieces:
        # Each begins after the one before began and before it ended: nothing is left out.
        found = [at for at in range(start, end + 1) if text.startswith(piece, at)]
        assert found
        start, end = found[0] + 1, max(at + len(piece) for at in found)
        assert len(about_tokens(piece)) <= size + 1  # a run of letters may be cut in two
    assert end == len(text)
    assert text.startswith(pieces[0])
    assert text.endswith(pieces[-1])


def test_a_piece_begins_at_a_word_where_the_overlap_has_one() -> None:
    text = "internationalisation " * 30
    pieces = cut(text, about_tokens(text), size=20, overlap=6)
    assert len(pieces) > 3
    assert all(piece.startswith("internationalisation") for piece in pieces)


def test_of_a_long_question_its_beginning_and_its_end_count() -> None:
    assert list(ends(["one"])) == ["one"]
    assert list(ends(["one", "two"])) == ["one", "two"]
    assert list(ends(["one", "two", "three"])) == ["one", "three"]


@pytest.mark.parametrize(
    ("model", "query", "window"),
    [
        ("nomic-embed-text", "search_query: ", 2048),
        ("nomic-embed-text:v1.5", "search_query: ", 2048),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", 2048),
        ("nomic-embed-text-v2-moe", "search_query: ", 512),
        ("mxbai-embed-large", "Represent this sentence for searching relevant passages: ", 512),
        ("bge-m3", "", 8192),
        ("bge-large", "Represent this sentence for searching relevant passages: ", 512),
        ("text-embedding-3-small", "", 8191),
        ("somebody/new-model", "", 512),
    ],
)
def test_known_models_get_their_texts_as_they_were_trained(
    model: str, query: str, window: int
) -> None:
    assert recipe_for(model).query == query
    assert recipe_for(model).window_tokens == window


def test_a_strange_name_of_a_model_becomes_a_plain_one() -> None:
    assert plain_name("nomic-embed-text:v1.5") == "nomic-embed-text:v1.5"
    assert plain_name("модель").isascii()
    assert len(plain_name("x" * 500)) == 12
    assert plain_name("модель") != plain_name("другая")


# -- in the index


def unit(*numbers: float) -> bytes:
    return np.array(numbers, dtype=np.float32).tobytes()


def test_a_passage_is_as_near_as_its_nearest_piece() -> None:
    matrix = Matrix(2)
    matrix.append(1, *pack([(10, unit(1, 0) + unit(0, 1))]))
    matrix.append(3, *pack([(20, unit(0.6, 0.8)), (30, unit(0, 1))]))
    query: Vectors = np.array([[1.0, 0.0]], dtype=np.float32)
    assert matrix.last_vector == 3
    assert by_row(matrix.nearest(query, 10, [])) == [pytest.approx({10: 1.0, 20: 0.6, 30: 0.0})]
    assert by_row(matrix.nearest(query, 2, [])) == [pytest.approx({10: 1.0, 20: 0.6})]
    assert by_row(matrix.nearest(query, 1, [30])) == [pytest.approx({10: 1.0, 30: 0.0})]
    assert by_row(matrix.nearest(query, 10, [], upto=1)) == [pytest.approx({10: 1.0})]
    matrix.append(4, *pack([(40, unit(0, 1) + unit(0.8, 0.6))]))
    assert by_row(matrix.nearest(query, 2, [])) == [pytest.approx({10: 1.0, 40: 0.8})]


def test_vectors_take_half_the_memory_and_their_cosines_keep_five_digits() -> None:
    rng = np.random.default_rng(7)
    vectors: Vectors = rng.normal(size=(300, 256)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[100:200] *= np.float32(0.85)
    matrix = Matrix(256)
    matrix.append(1, *pack([(n, one.tobytes()) for n, one in enumerate(vectors)]))
    for queries in (vectors[:1], vectors[:3]):
        exact = queries @ vectors.T
        for found, cosines in zip(by_row(matrix.nearest(queries, 300)), exact, strict=True):
            assert [found[n] for n in range(300)] == pytest.approx(cosines.tolist(), abs=1.5e-5)
    held = sum(one.nbytes for one in vars(matrix).values() if isinstance(one, np.ndarray))
    assert held < 0.6 * vectors.nbytes


def test_a_quantized_vector_stays_as_it_is_when_it_is_quantized_again() -> None:
    rng = np.random.default_rng(8)
    numbers, scales = quantized(rng.normal(size=(50, 256)).astype(np.float32))
    again, same = quantized(numbers * scales[:, None])
    assert (again == numbers).all()
    assert same == pytest.approx(scales)


@pytest.mark.parametrize("blob", [b"", b"1234", unit(1, 0) + b"1234"])
def test_a_blob_of_no_whole_vectors_is_refused(blob: bytes) -> None:
    matrix = Matrix(2)
    with pytest.raises(ValueError, match="no whole vectors"):
        matrix.append(1, *pack([(1, blob)]))
    with pytest.raises(ValueError, match="no whole vectors"):
        matrix.append(1, pack([(1, unit(1, 0))])[0], blob)


def test_a_long_record_is_found_by_what_stands_at_its_end(project: Path) -> None:
    toy = ShortSighted()
    filler = " ".join(f"filler{n}" for n in range(60))
    with open_toy(project, toy) as memory:
        auth = memory.feature("auth")
        auth.remember(made(f"{filler} zebra crossing stripes", session_id="long"))
        auth.remember(made(filler, session_id="other"))
        [hit, *_] = auth.search("zebra crossing stripes", min_score=0.0)
        assert hit.parts is not None
        assert hit.parts.meaning is not None
        assert hit.parts.meaning > 0.5
        assert len(toy.embedded) > 10
        assert verify_index(memory).ok


def test_the_words_of_a_long_record_are_counted_once(project: Path) -> None:
    filler = " ".join(f"filler{n}" for n in range(60))
    with open_toy(project, ShortSighted()) as memory:
        auth = memory.feature("auth")
        auth.remember_all([made(f"{filler} zebra", session_id=str(n)) for n in range(3)])
        with memory.store.index.store.state() as view:
            live = live_of(view, auth.target().name)
            assert live is not None
            zebras = view.words(live, ["zebra"], 0)
            assert (zebras.passages, zebras.frequencies) == (3, {"zebra": 3})
            assert view.size(live) == CollectionSize(3, 3, 0)


def test_f16_a_long_record_is_not_embedded_again_by_a_rebuild_of_the_words(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = ShortSighted()
    long = " ".join(f"filler{n}" for n in range(60))
    with open_toy(project, toy) as memory:
        memory.feature("auth").remember(made(long))
        before = len(toy.embedded)
    monkeypatch.setattr("ralph.records.iteration.EMBEDDING_CHARS", 3999)  # another way of cutting
    with open_toy(project, toy) as memory:
        answer = memory.feature("auth").search("filler7 filler8", min_score=0.0)
        assert len(answer) == 1
        assert answer[0].parts is not None
        assert answer[0].parts.meaning is not None
    assert len(toy.embedded) == before


def test_long_records_wait_for_an_embedder_that_is_off(project: Path) -> None:
    toy = ShortSighted()
    toy.off = True
    long = " ".join(f"filler{n}" for n in range(60)) + " zebra crossing stripes"
    with open_toy(project, toy) as memory:
        auth = memory.feature("auth")
        auth.remember(made(long))
        toy.off = False
        [hit] = auth.search("zebra crossing stripes", min_score=0.0)
        assert hit.parts is not None
        assert hit.parts.meaning is not None
        assert hit.parts.meaning > 0.5
    assert index_file(project).exists()


def test_no_more_pieces_go_to_the_embedder_at_once_than_it_likes(project: Path) -> None:
    sizes: list[int] = []

    class Counting(ShortSighted):
        def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
            sizes.append(len(texts))
            return super().embed_passages(texts, budget_s=budget_s)

    short = [made(f"short {n}", session_id=str(n)) for n in range(10)]
    with open_toy(project, Counting()) as memory:
        memory.feature("auth").remember_all(short)
        long = " ".join(f"filler{n}" for n in range(60))
        memory.feature("auth").remember(made(long))
    assert sizes[:3] == [4, 4, 2]
    assert sizes[3] > 4  # one text is never torn apart
