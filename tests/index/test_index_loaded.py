"""What a process keeps of the index changes no answer: words, counts, passages and vectors."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from remembering import ToyEmbedder, by_row

from ralph.config import Settings
from ralph.index import DERIVED, IndexView, Only, Passage, largest, matrix, ranking_tokens
from ralph.index.sqlite import SqliteStore, SqliteView
from ralph.index.sync import Index, IndexSpec, live_of, open_index
from ralph.journal.file import JsonlJournal
from ralph.records import Record

WORDS = [f"{one}{two}" for one in ("crane", "harbour", "lock", "tide") for two in "abcdefgh"]
QUESTIONS = [["cranea"], ["cranea", "lockb", "tidec"], ["harbourd", "harboure"], ["nowhere"]]
ONLY: list[Only] = [None, {"technology": ["go"]}]
COUNTS = (3, 20, 1000)


def record(n: int) -> Record:
    rng = random.Random(n)
    text = " ".join(rng.choices(WORDS, k=rng.randint(3, 30)))
    body = json.dumps({"text": text}).encode()
    return Record(f"record-{n:04}", "note", n + 1, "2026-11-15T12:00:00Z", body)


def cut(one: Record) -> Sequence[Passage]:
    derived = one.number % 7 == 0
    title, _, text = json.loads(one.body)["text"].partition(" ")
    held = {"technology": (("go", "python")[one.number % 2],), **(DERIVED if derived else {})}
    return [Passage(title=title, text=text, embed=text, facets=held)]


class Kept:
    """A journal with its index; `asked` gives what the index answers to everything."""

    def __init__(self, folder: Path, toy: ToyEmbedder) -> None:
        self.journal = JsonlJournal(folder / "notes.jsonl")
        self.folder, self.toy = folder, toy
        self.index = self.opened()

    def opened(self) -> Index:
        return open_index(Settings(), [self.folder / "cache"], home=self.folder, scope=str)

    def sync(self) -> None:
        assert self.index.sync(
            IndexSpec("notes", "notes", self.journal, cut, "1", self.toy)
        ).complete

    def add(self, first: int, end: int) -> None:
        for n in range(first, end):
            self.journal.append([record(n)])
            self.sync()

    def asked(self, index: Index | None = None) -> list[object]:
        with (index or self.index).store.state() as view:
            return answers(view, self.toy)

    def asked_of_sqlite(self) -> list[object]:
        """What SQLite itself answers, with nothing kept."""
        self.index.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matrix, "_MANY_PASSAGES", 1_000_000)
            return self.asked()


def answers(view: IndexView, toy: ToyEmbedder) -> list[object]:
    live = live_of(view, "notes")
    assert live is not None
    found: list[object] = []
    for words in QUESTIONS:
        near = by_row(view.nearest(live, toy.embed_query(" ".join(words))[None, :], 10))
        for only in ONLY:
            for count in COUNTS:
                matches = view.words(live, words, count, only=only)
                rows = list(matches.scores)
                passages = view.fetch(live, rows, records=True)
                assert list(passages) == rows
                texts = [one.record.body for one in passages.values() if one.record]
                rounded = [f"{score:.3g}" for score in matches.scores.values()]
                found += [texts, rounded, matches.frequencies, matches.passages, near]
    return found


@pytest.fixture
def kept(tmp_path: Path, toy: ToyEmbedder, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(matrix, "_MANY_PASSAGES", 1)
    return Kept(tmp_path, toy)


def test_what_is_kept_answers_as_sqlite_does(kept: Kept) -> None:
    for first, end in ((0, 40), (40, 41), (41, 130)):  # small blocks are merged on the way
        kept.add(first, end)
        kept.asked()
        again = kept.asked()
        assert kept.asked() == again
        assert kept.asked_of_sqlite() == again


def test_new_passages_are_scored_as_sqlite_scores_them(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add(0, 40)
    kept.asked()
    kept.asked()
    kept.add(40, 90)

    def scores() -> dict[tuple[str, int], float]:
        with kept.index.store.state() as view:
            live = live_of(view, "notes")
            assert live is not None
            found = {" ".join(words): view.words(live, words, 1000).scores for words in QUESTIONS}
        return {(one, row): v for one, rows in found.items() for row, v in rows.items() if row > 40}

    ours = scores()
    kept.index.close()
    monkeypatch.setattr(matrix, "_MANY_PASSAGES", 1_000_000)
    assert len(ours) > 20
    assert ours == pytest.approx(scores(), rel=1e-5)


def test_a_process_that_asks_once_does_not_read_every_word(kept: Kept) -> None:
    kept.add(0, 30)
    kept.index.close()
    told: list[str] = []
    with kept.index.store.state() as view:
        assert isinstance(view, SqliteView)
        view.connection.set_trace_callback(told.append)
        live = live_of(view, "notes")
        assert live is not None
        assert view.words(live, ["cranea"], 5).scores
        assert not any("facets FROM" in one for one in told)


def test_threads_that_take_turns_share_a_connection(kept: Kept) -> None:
    kept.add(0, 20)
    store = kept.index.store
    assert isinstance(store, SqliteStore)
    store.close()
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(kept.asked).result()
    assert len(store._opened) == 1
    with store.state() as view, ThreadPoolExecutor(1) as pool:
        assert pool.submit(kept.asked).result() == answers(view, kept.toy)
    assert len(store._opened) == 2


def test_what_was_forgotten_is_kept_nowhere(kept: Kept) -> None:
    kept.add(0, 30)
    kept.asked()
    kept.asked()
    kept.journal.forget(["record-0003", "record-0017"])
    kept.sync()
    gone = {record(3).body, record(17).body}
    again = kept.asked()
    assert not any(body in gone for texts in again[::5] for body in texts)  # type: ignore[attr-defined]
    assert kept.asked() == again == kept.asked_of_sqlite()


def test_a_view_sees_its_own_state_though_another_has_read_more(kept: Kept) -> None:
    kept.add(0, 20)
    kept.asked()
    before = kept.asked()
    reader = kept.opened()  # another connection of the same process: it shares what is kept
    with reader.store.state() as view:
        assert answers(view, kept.toy) == before
        kept.add(20, 40)
        after = kept.asked()
        assert after != before
        assert answers(view, kept.toy) == before
        rows = rows_with("tideh", view)  # a word that nobody asked for yet
        assert rows
        with kept.index.store.state() as later:
            assert len(rows_with("tideh", later)) > len(rows)
        assert rows_with("tideh", view) == rows
    assert kept.asked(reader) == after
    reader.close()


def rows_with(word: str, view: IndexView) -> list[int]:
    live = live_of(view, "notes")
    assert live is not None
    return list(view.words(live, [word], 1000).scores)


def test_little_is_kept_when_much_is_asked(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "_MOST_ROWS", 5)
    monkeypatch.setattr(matrix, "_MOST_COUNTS", 3)
    monkeypatch.setattr(matrix, "_MOST_PASSAGES", 4)
    kept.add(0, 30)
    kept.asked()
    assert kept.asked() == kept.asked() == kept.asked_of_sqlite()


def test_what_a_write_adds_is_found_among_what_is_kept(kept: Kept) -> None:
    kept.add(0, 60)
    kept.asked()
    kept.asked()
    for first in (60, 61, 65):
        kept.add(first, first + 1 + first % 4)
        kept.asked()  # each word is asked for again only where a new passage holds it
    again, fresh = kept.asked(), kept.asked_of_sqlite()
    assert again[2::5] == fresh[2::5]  # how many passages hold each word
    assert again[3::5] == fresh[3::5]
    assert again[4::5] == fresh[4::5]
    for mine, theirs in zip(again[::5], fresh[::5], strict=True):
        assert isinstance(mine, list)
        assert isinstance(theirs, list)
        assert len(mine) == len(theirs)


def test_words_are_read_again_after_many_writes(kept: Kept) -> None:
    kept.add(0, 20)
    kept.asked()
    kept.asked()
    kept.add(20, 140)
    assert kept.asked() == kept.asked_of_sqlite()


def test_words_are_read_again_when_passages_have_another_length(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "_OTHER_AVERAGE", 0.2)
    kept.add(0, 60)
    kept.asked()
    kept.asked()
    read: list[str] = []

    def asked_now() -> None:
        with kept.index.store.state() as view:
            assert isinstance(view, SqliteView)
            view.connection.set_trace_callback(read.append)
            answers(view, kept.toy)
            view.connection.set_trace_callback(None)

    for first in range(60, 240, 20):
        kept.add(first, first + 20)
        asked_now()
    assert read
    assert not any("bm25(" in one for one in read)
    body = json.dumps({"text": " ".join(WORDS * 40)}).encode()
    long = [Record(f"long-{n}", "note", 241 + n, record(0).at, body) for n in range(5)]
    kept.journal.append(long)
    kept.sync()
    asked_now()
    assert any("bm25(" in one for one in read)
    assert kept.asked() == kept.asked_of_sqlite()


def times_of(kept: Kept, words: list[str]) -> tuple[list[str], list[list[float]]]:
    """The words that are ranked by, and how often each word occurs in the best passages."""
    with kept.index.store.state() as view:
        live = live_of(view, "notes")
        assert live is not None
        found = view.words(live, words, 1000)
        passages = view.fetch(live, list(found.scores)).values()
    expected = [one.words.times(words) for one in passages]
    assert found.times is None or found.times.tolist() == expected
    sizes = [[*one.words.size] for one in passages]
    assert (found.times is None) == (found.sizes is None)
    assert found.sizes is None or found.sizes.tolist() == sizes
    return ranking_tokens(found), [] if found.times is None else expected


def test_how_often_a_word_occurs_in_a_passage_is_counted_once_and_right(kept: Kept) -> None:
    for first, end in ((0, 40), (40, 90)):  # the second time, only new passages are counted
        kept.add(first, end)
        for _ in range(3):
            every = [times_of(kept, words)[1] for words in QUESTIONS]
        assert any(every)


def test_words_that_are_not_ranked_by_are_counted_too(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add(0, 40)
    words = QUESTIONS[1]
    with kept.index.store.state() as view:
        live = live_of(view, "notes")
        assert live is not None
        often = view.words(live, words, 0).frequencies
    common = max(often, key=lambda word: often[word])
    monkeypatch.setattr("ralph.index._LARGE", 1)
    monkeypatch.setattr("ralph.index._COMMON_SHARE", (often[common] - 0.5) / 40)
    for _ in range(3):
        ranked, times = times_of(kept, words)
    assert ranked
    assert common not in ranked
    assert any(row[words.index(common)] for row in times)


@given(
    st.lists(st.integers(-9, 9) | st.just(math.nan), min_size=1, max_size=400), st.integers(1, 60)
)
@example([0.0] * 400, 10)
@example([1.0, *[0.0] * 300, 2.0, *[0.0] * 99], 10)
def test_the_largest_are_chosen_and_of_equal_ones_the_first(
    values: list[float], count: int
) -> None:
    numbers = np.array(values, dtype=np.float32)
    chosen = largest(numbers, count)
    assert len(set(chosen.tolist())) == len(chosen) <= count
    if not any(map(math.isnan, values)):
        expected = sorted(range(len(values)), key=lambda place: (-values[place], place))[:count]
        assert sorted(chosen.tolist()) == sorted(expected)


def test_a_view_sees_what_was_written_without_looking_for_it_again(kept: Kept) -> None:
    kept.journal.append([record(0)])
    kept.sync()
    other = kept.opened()
    looked_for: list[str] = []
    store = kept.index.store
    with store.state() as view:
        assert isinstance(view, SqliteView)
        view.connection.set_trace_callback(looked_for.append)

    kept.journal.append([record(1)])
    kept.sync()
    looked_for.clear()
    with store.state() as view:
        [found] = view.collections("notes")
    assert found.last_number == 2
    assert not [sql for sql in looked_for if "FROM collection" in sql]

    # What another process writes is seen, too.
    kept.journal.append([record(2)])
    assert other.sync(IndexSpec("notes", "notes", kept.journal, cut, "1", kept.toy)).complete
    with store.state() as view:
        assert [one.last_number for one in view.collections("notes")] == [3]
    other.close()
    kept.index.close()
