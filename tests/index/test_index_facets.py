"""Facets: what a question leaves out is what `fits` says, by words, by meaning, without index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from remembering import ToyEmbedder, by_row

from ralph.config import Settings
from ralph.index import (
    Collection,
    Facets,
    IndexView,
    Only,
    Passage,
    facet_tokens,
    fits,
    wanted_tokens,
)
from ralph.index.matrix import Matrix, pack
from ralph.index.sync import IndexSpec, live_of, open_index
from ralph.journal.file import JsonlJournal
from ralph.recall.search import Question, find, find_plainly
from ralph.records import Record

# Values that a careless query would break on.
VALUES = ("python", "go", "c++", 'say "hi"', "a OR b", "facets : x", "", "ünï", "x" * 300)
NAMES = ("technology", "agent_type")

facets = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES[:4]), max_size=3).map(tuple)
)
questions = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES[:4]), max_size=2).map(tuple)
)


# -- the rule


@given(facets, questions)
def test_a_passage_fits_that_has_one_of_the_values_or_none(held: Facets, only: Only) -> None:
    expected = all(
        not values or (name in held and (not held[name] or set(held[name]) & set(values)))
        for name, values in (only or {}).items()
    )
    assert fits(held, only) is expected
    assert fits(held, None)
    assert fits(held, {})


def test_a_facet_that_a_passage_does_not_name_at_all_fits_no_value() -> None:
    """A memory names every facet it can be asked for; naming none means it has none of them."""
    assert fits({"technology": ()}, {"technology": ["go"]})
    assert not fits({}, {"technology": ["go"]})


@pytest.mark.parametrize("value", VALUES)
def test_tokens_are_plain_words_whatever_the_value(value: str) -> None:
    [token] = facet_tokens({"technology": (value,)})
    assert token.isascii()
    assert token.isalnum()
    assert facet_tokens({"agent_type": (value,)}) != [token]
    assert token in wanted_tokens({"technology": [value]})[0]


def test_the_same_facets_give_the_same_tokens_in_any_order() -> None:
    one = facet_tokens({"a": ("x", "y"), "b": ()})
    assert facet_tokens({"b": (), "a": ("x", "y")}) == one
    assert len(one) == 3
    assert wanted_tokens({"b": {"y", "x"}, "a": []}) == wanted_tokens({"b": ["x", "y"]})
    assert wanted_tokens(None) == ()


# -- the index

OF: tuple[dict[str, tuple[str, ...]], ...] = (
    {"technology": ("python",), "agent_type": ()},
    {"technology": (), "agent_type": ("backend",)},
    {"technology": ("go", "python"), "agent_type": ("backend", "docs")},
    {"technology": ('say "hi"', "a OR b"), "agent_type": ("docs",)},
    {"technology": (), "agent_type": ()},
    {"technology": ("c++",), "agent_type": ("backend",)},
)
ASKED: tuple[dict[str, list[str]], ...] = (
    {},
    {"technology": []},
    {"technology": ["python"]},
    {"technology": ["go", "c++"]},
    {"technology": ["a OR b"]},
    {"technology": ['say "hi"'], "agent_type": ["backend", "docs"]},
    {"technology": ["python"], "agent_type": ["docs"]},
    {"technology": ["cobol"], "agent_type": ["nobody"]},
)
TEXT = "the harbour crane stops in the wind"


def record(n: int) -> Record:
    body = json.dumps({"of": OF[n % len(OF)], "text": f"{TEXT} {n}"}).encode()
    return Record(f"record-{n:04}", "note", n + 1, "2026-11-15T12:00:00Z", body)


def cut(one: Record) -> Sequence[Passage]:
    body = json.loads(one.body)
    held = {name: tuple(values) for name, values in body["of"].items()}
    return [Passage(title=body["text"], text="", embed=body["text"], facets=held)]


def target(journal: JsonlJournal, toy: ToyEmbedder | None) -> IndexSpec:
    return IndexSpec(
        name="notes", stream="notes", journal=journal, cut=cut, cut_version="1", embedder=toy
    )


def expected(count: int, only: Only) -> list[str]:
    return [f"record-{n:04}" for n in range(count) if fits(OF[n % len(OF)], only)]


@pytest.fixture
def journal(tmp_path: Path) -> JsonlJournal:
    return JsonlJournal(tmp_path / "notes.jsonl")


def ids(view: IndexView, live: Collection, rows: Iterable[int]) -> list[str]:
    passages = view.fetch(live, rows, records=True).values()
    return sorted(one.record.id for one in passages if one.record)


@pytest.mark.parametrize("with_vectors", [True, False])
def test_the_index_and_the_journal_leave_out_the_same(
    tmp_path: Path, journal: JsonlJournal, toy: ToyEmbedder, with_vectors: bool
) -> None:
    journal.append([record(n) for n in range(12)])
    index = open_index(Settings(), [tmp_path / "cache"], home=tmp_path, scope=str)
    embedder = toy if with_vectors else None
    assert index.sync(target(journal, embedder)).complete
    vector = toy.embed_query(TEXT) if with_vectors else None
    for only in ASKED:
        question = Question(TEXT, 50, 0.0, only)
        with index.store.state() as view:
            live = live_of(view, "notes")
            assert live is not None
            found = find(
                view,
                [live],
                question,
                vector=vector,
                embedder=toy.identity if with_vectors else "none",
            )
        assert sorted(one.record.id for one in found.candidates) == expected(12, only), only
        plain = find_plainly([("notes", record(n)) for n in range(12)], {"notes": cut}, question)
        assert sorted(one.record.id for one in plain.candidates) == expected(12, only), only
    index.close()


def test_the_nearest_are_the_nearest_of_those_that_fit_also_while_the_index_grows(
    tmp_path: Path, journal: JsonlJournal, toy: ToyEmbedder
) -> None:
    index = open_index(Settings(), [tmp_path / "cache"], home=tmp_path, scope=str)
    for count in (12, 30):
        journal.append([record(n) for n in range(count)])
        assert index.sync(target(journal, toy)).complete
        for only in ASKED:
            with index.store.state() as view:
                live = live_of(view, "notes")
                assert live is not None
                asked = toy.embed_query(f"{TEXT} 5")[None, :]
                [near] = by_row(view.nearest(live, asked, 5, only=only))
                [every] = by_row(view.nearest(live, asked, 99, only=only))
                names = ids(view, live, every)
            assert names == expected(count, only), only
            assert len(near) == min(5, len(every))
            best = sorted(every.values(), reverse=True)[: len(near)]
            assert sorted(near.values(), reverse=True) == best
    journal.forget(["record-0000"])
    assert index.sync(target(journal, toy)).complete
    with index.store.state() as view:
        live = live_of(view, "notes")
        assert live is not None
        asked = toy.embed_query(TEXT)[None, :]
        [rows] = by_row(view.nearest(live, asked, 99, only={"technology": ["python"]}))
        left = ids(view, live, rows)
    assert left == expected(30, {"technology": ["python"]})[1:]
    index.close()


def test_a_facets_value_is_not_found_as_a_word(
    tmp_path: Path, journal: JsonlJournal, toy: ToyEmbedder
) -> None:
    journal.append([record(n) for n in range(6)])
    index = open_index(Settings(), [tmp_path / "cache"], home=tmp_path, scope=str)
    index.sync(target(journal, toy))
    with index.store.state() as view:
        live = live_of(view, "notes")
        assert live is not None
        assert view.words(live, ["python", "backend"], 10).scores == {}
        tokens = facet_tokens({"technology": ("python",)})
        scores = view.words(live, ["crane"], 10, only={"technology": ["python"]}).scores
        assert len(scores) == 4
        # It adds nothing to how well the words fit.
        plain = view.words(live, ["crane"], 10).scores
        assert {row: plain[row] for row in scores} == pytest.approx(scores)
        assert tokens
    index.close()


# -- many at once


def test_the_nearest_of_each_are_those_of_one_at_a_time(
    tmp_path: Path, journal: JsonlJournal, toy: ToyEmbedder
) -> None:
    journal.append([record(n) for n in range(40)])
    index = open_index(Settings(), [tmp_path / "cache"], home=tmp_path, scope=str)
    index.sync(target(journal, toy))
    queries = np.stack([toy.embed_query(f"{TEXT} {n}") for n in range(70)])
    with index.store.state() as view:
        live = live_of(view, "notes")
        assert live is not None
        each = by_row(view.nearest(live, queries, 7))
        assert len(each) == 70
        for query, near in zip(queries, each, strict=True):
            [alone] = by_row(view.nearest(live, query[None, :], 7))
            assert sorted(near.values()) == pytest.approx(sorted(alone.values()), abs=1e-6)
        assert all(len(near) == 40 for near in by_row(view.nearest(live, queries, 99)))
    index.close()


def test_a_passage_in_pieces_is_as_near_as_its_nearest_piece() -> None:
    matrix = Matrix(2)
    pieces = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    matrix.append(1, *pack([(7, pieces[:2].tobytes())]))
    matrix.append(2, *pack([(9, pieces[2:].tobytes())]))
    query = np.array([[0, 1], [1, 0]], dtype=np.float32)
    assert by_row(matrix.nearest(query, 9)) == [
        pytest.approx({7: 1.0, 9: 0.8}),
        pytest.approx({7: 1.0, 9: 0.6}),
    ]
    among = np.array([9, 1000], dtype=np.int64)
    assert by_row(matrix.nearest(query[:1], 9, [7, 9], among=among)) == [pytest.approx({9: 0.8})]
    nothing = np.array([], dtype=np.int64)
    assert by_row(matrix.nearest(query[:1], 9, among=nothing)) == [{}]
    assert by_row(Matrix(2).nearest(query, 3)) == [{}, {}]
    assert by_row(matrix.nearest(query, 9, upto=1)) == [
        pytest.approx({7: 1.0}),
        pytest.approx({7: 1.0}),
    ]
