"""One contract for every store: SQLite, and Qdrant over HTTP and for real."""

from __future__ import annotations

import hashlib
from collections.abc import Collection as Sized
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from qdrant import REAL_URL, engine_server, local_server, qdrant_store, real_server
from remembering import by_row

from ralph.index import (
    ASIDE_WEIGHT,
    Collection,
    IndexBatch,
    IndexedRecord,
    IndexStore,
    IndexView,
    Manifest,
    Passage,
    RecordKey,
)
from ralph.index.sqlite import FILE_NAME, SqliteStore
from ralph.index.sync import live_of
from ralph.records import Record, Source

DIMS = 4
MANIFEST = Manifest("toy:1", DIMS, "1", "cut-1")
X, Y, Z, W = (tuple(1.0 if place == axis else 0.0 for place in range(DIMS)) for axis in range(DIMS))
Numbers = Sequence[float]


STORES = ["sqlite", "qdrant", "qdrant engine"]
if REAL_URL is not None:
    STORES.append("qdrant server")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexStore]:
    match request.param:
        case "sqlite":
            opened = SqliteStore(tmp_path / FILE_NAME)
            yield opened
            opened.close()
        case "qdrant":
            with local_server() as server, qdrant_store(server) as served:
                yield served
        case "qdrant engine":
            with engine_server() as server, qdrant_store(server) as served:
                yield served
        case _:
            with qdrant_store(real_server()) as real:
                yield real


def record(number: int, text: str = "") -> Record:
    body = f'{{"text": "{text or number}", "umlaut": "grün"}}'.encode()
    return Record(f"id-{number}", "iteration", number, f"2026-01-0{number % 9 + 1}T00:00:00Z", body)


def blob(*vectors: Numbers) -> bytes:
    return np.array(vectors, dtype=np.float32).tobytes()


def row(one: Record, *passages: tuple[Passage, bytes | None]) -> IndexedRecord:
    hashes = [hashlib.sha256(passage.embed.encode()).digest()[:16] for passage, _ in passages]
    return IndexedRecord(one, [p for p, _ in passages], hashes, [vector for _, vector in passages])


def plain(number: int, text: str, *vectors: Numbers, **facets: tuple[str, ...]) -> IndexedRecord:
    passage = Passage(title="", text=text, embed=f"{number} {text}", facets=facets)
    return row(record(number), (passage, blob(*vectors) if vectors else None))


def create(store: IndexStore, name: str = "name", manifest: Manifest = MANIFEST) -> Collection:
    """An empty collection; it answers at once where none of its name does."""
    return store.write(Collection(name, "stream", manifest), IndexBatch())


def write(
    store: IndexStore,
    collection: Collection,
    rows: Sequence[IndexedRecord] = (),
    *,
    forget: Sequence[str] = (),
    seen: Sequence[RecordKey] = (),
    position: str = "here",
    restart: bool = False,
    done: bool = True,
) -> list[str]:
    """Give a store what a journal had, `seen` among it; the ids of what it wanted to be cut."""
    by_key = {(one.record.id, one.record.digest): one for one in rows}
    fresh: list[str] = []
    given = {key: record(0) for key in seen} | {key: one.record for key, one in by_key.items()}

    def prepare(indexed: Sized[RecordKey], forgotten: Sized[str]) -> list[IndexedRecord]:
        new = [key for key in given if key not in indexed and key[0] not in {*forgotten, *forget}]
        fresh.extend(one for one, _ in new)
        return [by_key[key] for key in new]

    batch = IndexBatch(given, prepare, forget=forget, position=position, restart=restart, done=done)
    store.write(collection, batch)
    return fresh


def collections(store: IndexStore) -> list[Collection]:
    with store.state() as view:
        return view.collections()


def live(view: IndexView) -> Collection:
    found = live_of(view, "name")
    assert found is not None
    return found


def answering(store: IndexStore) -> Collection:
    with store.state() as view:
        return live(view)


def size(view: IndexView, collection: Collection) -> tuple[int, int, int]:
    found = view.size(collection)
    return found.records, found.passages, found.waiting


def words(
    view: IndexView, collection: Collection, tokens: list[str], count: int = 10
) -> dict[int, float]:
    return view.words(collection, tokens, count).scores


def records(view: IndexView, collection: Collection, rows: Iterable[int]) -> dict[int, Record]:
    fetched = view.fetch(collection, rows, records=True)
    return {row: passage.record for row, passage in fetched.items() if passage.record}


def ids(view: IndexView, collection: Collection, rows: dict[int, float]) -> list[str]:
    """The records of these passages, the best first."""
    order = sorted(rows, key=lambda one: -rows[one])
    held = records(view, collection, order)
    return [held[one].id for one in order]


def nearest(
    view: IndexView, query: Numbers, count: int = 10, also: Sequence[int] = ()
) -> dict[int, float]:
    vectors = np.array([query], dtype=np.float32)
    [found] = by_row(view.nearest(live(view), vectors, count, also=also))
    return found


def near(view: IndexView, query: Numbers, count: int = 10) -> dict[str, float]:
    found = nearest(view, query, count)
    held = records(view, live(view), found)
    return {held[one].id: value for one, value in found.items()}


# -- collections


def test_what_is_not_there_is_none(store: IndexStore) -> None:
    assert collections(store) == []
    with store.state() as view:
        assert live_of(view, "name") is None


def test_a_new_collection_is_empty_and_says_what_it_was_built_with(store: IndexStore) -> None:
    made = create(store)
    assert answering(store) == made
    assert (made.name, made.stream, made.live, made.manifest) == ("name", "stream", True, MANIFEST)
    assert (made.position, made.sweeping, made.waiting, made.last_number) == (None, False, False, 0)
    with store.state() as view:
        assert size(view, made) == (0, 0, 0)
        assert words(view, made, ["word"]) == {}
        assert nearest(view, X) == {}


def test_a_rebuild_is_not_seen_before_it_is_done(store: IndexStore) -> None:
    write(store, create(store), [plain(1, "old words", X)], position="old")
    other = Manifest("toy:2", DIMS, "1", "cut-1")
    building = create(store, manifest=other)
    write(store, building, [plain(2, "new words", Y)], position="new", done=False)
    [beside] = [one for one in collections(store) if not one.live]
    assert (answering(store).position, beside.position) == ("old", "new")
    with store.state() as view:
        assert ids(view, live(view), words(view, live(view), ["word"])) == ["id-1"]
    write(store, beside, position="end")
    assert answering(store).manifest == other
    assert len(collections(store)) == 1
    with store.state() as view:
        assert ids(view, live(view), words(view, live(view), ["word"])) == ["id-2"]


def test_building_anew_drops_what_was_being_built(store: IndexStore) -> None:
    create(store)
    write(store, create(store), [plain(1, "given up")], done=False)
    again = create(store)
    assert len(collections(store)) == 2
    with store.state() as view:
        assert size(view, again) == (0, 0, 0)


def test_what_is_being_built_can_be_given_up(store: IndexStore) -> None:
    made = create(store)
    create(store)
    store.drop("name", unfinished=True)
    assert collections(store) == [made]


def test_dropping_a_collection_drops_every_one_of_its_name_and_no_other(store: IndexStore) -> None:
    create(store)
    create(store)
    other = create(store, "another")
    store.drop("name")
    assert collections(store) == [other]


def test_everything_can_be_dropped(store: IndexStore) -> None:
    write(store, create(store), [plain(1, "one", X)])
    create(store, "another")
    store.drop()
    assert collections(store) == []


# -- records


def test_a_record_comes_back_whole(store: IndexStore) -> None:
    made = create(store)
    first = Record(
        "a", "exchange", 7, "2026-01-01T00:00:00Z", b'{"x": "\xc3\xa4\\n"}', Source(run="r")
    )
    odd = Record(
        "b", "exchange", 9, "2026-01-01T00:00:00Z", b"\xff\xfe not text", Source("r", "f", 3)
    )
    passage = Passage(title="one title", text="text", places="src/app.py")
    write(store, made, [row(first, (passage, blob(X))), row(odd, (passage, blob(Y)))])
    with store.state() as view:
        found = words(view, made, ["text"], 10)
        held = set(records(view, made, found).values())
        assert held == {first, odd}
        assert live(view).last_number == 9
        assert set(view.content(made).keys) == {("a", first.digest), ("b", odd.digest)}


def test_the_passages_of_a_record_are_found_and_counted_one_by_one(store: IndexStore) -> None:
    made = create(store)
    first, second = (Passage(title="", text=text, embed=text) for text in ("apple", "banana"))
    write(store, made, [row(record(1), (first, blob(X)), (second, blob(Y)))])
    with store.state() as view:
        assert size(view, made) == (1, 2, 0)
        assert view.words(made, [], 0).passages == 2
        [one] = words(view, made, ["banana"], 10)
        [other] = words(view, made, ["appl"], 10)
        assert one != other
        held = records(view, made, [one, other])
        assert held[one] == held[other]
        assert held[one] == record(1)
        assert view.fetch(made, [one])[one].words.padded.split() == ["banana"]


def test_a_record_that_has_nothing_to_find_is_indexed_too(store: IndexStore) -> None:
    made = create(store)
    bare = record(3)
    write(store, made, [row(bare)])
    with store.state() as view:
        assert size(view, made) == (1, 0, 0)
        assert view.content(made).keys == {(bare.id, bare.digest)}
        assert live(view).last_number == 3


def test_only_what_is_not_indexed_is_cut_and_written(store: IndexStore) -> None:
    made = create(store)
    here, changed, new = plain(1, "here", X), row(record(1, "changed")), plain(2, "new", X)
    assert write(store, made, [here]) == ["id-1"]
    assert write(store, answering(store), [here, changed, new]) == ["id-1", "id-2"]
    assert write(store, answering(store), [here, changed, new]) == []


def test_the_same_id_with_other_content_is_another_record(store: IndexStore) -> None:
    made = create(store)
    passage = Passage(title="", text="word")
    rows = [row(one, (passage, blob(X))) for one in (record(1), record(1, "changed"))]
    write(store, made, rows)
    with store.state() as view:
        assert size(view, made) == (2, 2, 0)
        assert len(words(view, made, ["word"], 10)) == 2


def test_writing_a_batch_again_changes_nothing(store: IndexStore) -> None:
    made = create(store)
    rows = [plain(number, f"word {number}", X) for number in range(1, 4)]
    for _ in range(2):
        write(store, made, rows, position="1")
        made = answering(store)
        with store.state() as view:
            assert size(view, made) == (3, 3, 0)


def test_the_position_is_kept(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "one", X)], position="far", done=False)
    assert answering(store).position == "far"


def test_many_records_go_in_and_come_out(store: IndexStore) -> None:
    made = create(store)
    rows = [plain(number, f"common word{number}", X) for number in range(1, 601)]
    write(store, made, rows)
    with store.state() as view:
        assert size(view, made) == (600, 600, 0)
        assert len(view.content(made).keys) == 600
        assert len(view.content(made).vectors) == 600


def test_the_newest_records_of_some_days_are_found_once_each(store: IndexStore) -> None:
    made = create(store)
    two = [(Passage(title="", text=text), blob(X)) for text in ("one", "two")]
    rows = [row(record(number), *two) for number in range(1, 8)]  # of the 2nd to the 8th
    write(store, made, [*rows, row(record(8))])
    with store.state() as view:

        def dated(first: str, end: str, count: int = 10) -> list[str]:
            found = view.dated(made, first, end, count)
            assert found.among == 7
            held = records(view, made, found.rows)
            return [held[one].id for one in found.rows]

        assert dated("2026-01-03T00:00:00", "2026-01-05T00:00:00") == ["id-3", "id-2"]
        assert dated("", "2026-01-03T00:00:00") == ["id-1"]
        assert dated("2026-01-08T00:00:00", "9") == ["id-7"]
        assert dated("2026-02-01T00:00:00", "9") == []
        assert dated("", "9", count=1) == ["id-7"]
        assert view.dated(made, "", "9", 1).records == 7


# -- words


def test_words_are_found_in_every_field_and_weigh_by_it(store: IndexStore) -> None:
    made = create(store)
    fields = {1: ("parser", "", ""), 2: ("", "parser", ""), 3: ("", "", "parser")}
    filler = "alpha beta gamma delta"
    rows = [
        row(record(n), (Passage(title=f"{a} {filler}", text=b, places=c), None))
        for n, (a, b, c) in fields.items()
    ]
    rows += [plain(number, "something else entirely", X) for number in range(4, 9)]
    write(store, made, rows)
    with store.state() as view:
        found = words(view, made, ["parser"], 10)
        assert ids(view, made, found) == ["id-1", "id-2", "id-3"]
        assert all(value > 0.0 for value in found.values())
        assert set(words(view, made, ["parser"], 2)) < set(found)
        assert words(view, made, ["nowhere"], 10) == {}
        assert words(view, made, [], 10) == {}


def test_rare_words_weigh_more(store: IndexStore) -> None:
    made = create(store)
    rows = [plain(number, "common thing", X) for number in range(1, 9)]
    write(store, made, [*rows, plain(9, "rare thing", X)])
    with store.state() as view:
        found = words(view, made, ["rare", "common"], 10)
        assert ids(view, made, found)[0] == "id-9"
        assert view.words(made, ["rare", "common", "thing", "none"], 0).frequencies == {
            "rare": 1,
            "common": 8,
            "thing": 9,
            "none": 0,
        }


def test_a_word_that_stands_often_is_counted_once_a_passage(store: IndexStore) -> None:
    made = create(store)
    passage = Passage(title="parser", text="parser parser", places="parser")
    write(store, made, [row(record(1), (passage, None)), plain(2, "parser", X)])
    with store.state() as view:
        assert view.words(made, ["parser"], 0).frequencies == {"parser": 2}


def test_facets_leave_out_what_is_of_something_else(store: IndexStore) -> None:
    made = create(store)
    rows = [
        plain(1, "word", X, outcome=("failure",), task_id=("1",)),
        plain(2, "word", Y, outcome=("success",), task_id=("1",)),
        plain(3, "word", Z, outcome=("failure", "timeout"), task_id=()),
        plain(4, "word", W),
    ]
    write(store, made, rows)
    everything = np.array([[0.5, 0.5, 0.5, 0.5]], dtype=np.float32)
    wanted: list[tuple[str, dict[str, tuple[str, ...]]]] = [
        ("id-1 id-3", {"outcome": ("failure",)}),
        ("id-3", {"outcome": ("timeout",)}),
        ("id-1 id-2 id-3", {"task_id": ("1",)}),  # what has no task fits every task
        ("id-3", {"task_id": ("2",)}),
        ("id-1 id-3", {"task_id": ("1",), "outcome": ("failure", "other")}),
        ("id-1 id-2 id-3 id-4", {"task_id": ()}),
        ("", {"task_id": ("1",), "outcome": ("other",)}),
    ]
    with store.state() as view:
        for expected, only in wanted:
            by_words = view.words(made, ["word"], 10, only=only).scores
            [by_meaning] = by_row(view.nearest(made, everything, 10, only=only))
            assert sorted(ids(view, made, by_words)) == expected.split()
            assert sorted(ids(view, made, by_meaning)) == expected.split()


# -- meaning


def test_the_nearest_come_with_their_cosines(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "a", X), plain(2, "b", (0.6, 0.8, 0, 0)), plain(3, "c", Y)])
    with store.state() as view:
        assert near(view, X) == pytest.approx({"id-1": 1.0, "id-2": 0.6, "id-3": 0.0})
        assert near(view, X, 2) == pytest.approx({"id-1": 1.0, "id-2": 0.6})
        [last] = words(view, made, ["c"], 10)
        also = nearest(view, X, 1, [last])
        assert sorted(also.values()) == pytest.approx([0.0, 1.0])


def test_those_asked_for_come_first_in_their_order_and_once(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "b", X), plain(2, "c", Y), plain(3, "d"), plain(4, "e", X)])
    with store.state() as view:
        b, c, d, e = (one for word in "bcde" for one in words(view, made, [word]))
        [found] = view.nearest(made, np.array([X], dtype=np.float32), 3, also=[d, c, b])
        assert found.rows == [d, c, b, e]
        assert [*found.cosines] == pytest.approx([np.nan, 0.0, 1.0, 1.0], nan_ok=True)


def test_a_passage_is_as_near_as_its_nearest_piece(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "a", X, Y, (0, 0.6, 0.8, 0)), plain(2, "b", (0, 0.8, 0.6, 0))])
    with store.state() as view:
        assert near(view, Y) == pytest.approx({"id-1": 1.0, "id-2": 0.8})
        assert near(view, Y, 1) == pytest.approx({"id-1": 1.0})


def test_an_aside_counts_less(store: IndexStore) -> None:
    made = create(store)
    weighed = tuple(ASIDE_WEIGHT * value for value in Y)
    rows = [
        plain(1, "a", X, weighed),  # an aside that is exactly it
        plain(2, "b", (0, 0.9, np.sqrt(0.19), 0)),  # a piece that is nearly it
        plain(3, "c", weighed),  # nothing but an aside
        plain(4, "d", (0, 0.5, np.sqrt(0.75), 0), weighed),
    ]
    write(store, made, rows)
    expected = {"id-1": ASIDE_WEIGHT, "id-2": 0.9, "id-3": ASIDE_WEIGHT, "id-4": ASIDE_WEIGHT}
    with store.state() as view:
        assert near(view, Y) == pytest.approx(expected, abs=1e-6)
        assert near(view, Y, 1) == pytest.approx({"id-2": 0.9}, abs=1e-6)


def test_asides_are_seen_even_where_many_pieces_are_nearer_than_their_own(
    store: IndexStore,
) -> None:
    made = create(store)
    rng = np.random.default_rng(7)
    rows: list[IndexedRecord] = []
    expected: dict[str, float] = {}
    query = np.array(X, dtype=np.float32)
    for number in range(1, 61):
        vectors = rng.normal(size=(2, DIMS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[1] *= ASIDE_WEIGHT
        rows.append(plain(number, f"t{number}", *vectors.tolist()))
        expected[f"id-{number}"] = float(max(vectors @ query))
    write(store, made, rows)
    best = sorted(expected, key=lambda one: -expected[one])[:7]
    with store.state() as view:
        found = near(view, X, 7)
    assert sorted(found) == sorted(best)
    assert found == pytest.approx({one: expected[one] for one in best}, abs=1e-5)


def test_many_questions_at_once_are_answered_as_one_by_one(store: IndexStore) -> None:
    made = create(store)
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(40, DIMS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    write(store, made, [plain(n, f"t{n}", one.tolist()) for n, one in enumerate(vectors, 1)])
    with store.state() as view:
        together = by_row(view.nearest(made, vectors, 5))
        for query, found in zip(vectors, together, strict=True):
            # Sums in another order may round to the next digit.
            assert found == pytest.approx(nearest(view, query.tolist(), 5), abs=1.1e-5)
            assert max(found.values()) == pytest.approx(1.0, abs=1e-5)


def test_what_has_no_direction_is_near_to_nothing(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "a", X), plain(2, "b", (0.0, 0.0, 0.0, 0.0))])
    with store.state() as view:
        assert near(view, X) == pytest.approx({"id-1": 1.0, "id-2": 0.0})


def test_vectors_can_be_used_again(store: IndexStore) -> None:
    made = create(store)
    weighed = tuple(ASIDE_WEIGHT * value for value in Z)
    rows = [plain(1, "a", X), plain(2, "b", X, (0.6, 0.8, 0, 0), weighed)]
    write(store, made, rows)
    with store.state() as view:
        held = view.content(made).vectors
    for one in rows:
        again = np.frombuffer(held[one.hashes[0]], dtype=np.float32)
        given = np.frombuffer(one.vectors[0] or b"", dtype=np.float32)
        assert again.tolist() == pytest.approx(given.tolist(), abs=1e-6)


def test_a_collection_without_vectors_is_found_by_words_alone(store: IndexStore) -> None:
    made = create(store, manifest=Manifest("none", 0, "1", "cut-1"))
    passage = Passage(title="", text="word")
    write(store, made, [row(record(1), (passage, None))])
    with store.state() as view:
        assert len(words(view, made, ["word"], 10)) == 1
        assert view.size(made, texts=10).texts == []
        assert size(view, made) == (1, 1, 0)


# -- waiting for the embedder


def test_passages_wait_for_their_vectors_and_get_them(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "waits"), plain(2, "is ready", X)])
    with store.state() as view:
        assert size(view, made) == (2, 2, 1)
        [(place, text)] = view.size(live(view), texts=10).texts
        assert text == "1 waits"
        assert near(view, Y) == pytest.approx({"id-2": 0.0})
    assert answering(store).waiting
    store.write(answering(store), IndexBatch(vectors=[(place, blob(Y))]))
    assert not answering(store).waiting
    with store.state() as view:
        assert view.size(live(view), texts=10).texts == []
        assert size(view, made) == (2, 2, 0)
        assert near(view, Y) == pytest.approx({"id-1": 1.0, "id-2": 0.0})


def test_vectors_stay_with_their_passages_however_they_are_written(store: IndexStore) -> None:
    """One at a time, many at once, in pieces, with some forgotten between; a reader looks on."""
    made, rng = create(store), np.random.default_rng(3)
    query = rng.normal(size=DIMS).astype(np.float32)
    query /= np.linalg.norm(query)
    expected: dict[str, float] = {}

    def add(numbers: range) -> None:
        rows = []
        for number in numbers:
            vectors = rng.normal(size=(1 + number % 2, DIMS)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            rows.append(plain(number, f"t{number}", *vectors.tolist()))
            expected[f"id-{number}"] = float(max(vectors @ query))
        write(store, answering(store) if numbers.start > 1 else made, rows)

    def check() -> None:
        with store.state() as view:
            assert near(view, query.tolist(), 1000) == pytest.approx(expected, abs=2e-5)
            assert len(view.content(live(view)).vectors) == len(expected)

    for number in range(1, 75):
        add(range(number, number + 1))
        if number % 9 == 0:
            check()
    add(range(75, 215))
    check()
    gone = [f"id-{number}" for number in (1, 2, 3, 40, *range(100, 180, 3))]
    write(store, answering(store), forget=gone)
    for one in gone:
        del expected[one]
    check()
    add(range(215, 216))
    check()
    store.close()
    check()


# -- forgetting and sweeping


def test_what_is_forgotten_goes_with_all_its_passages(store: IndexStore) -> None:
    made = create(store)
    passages = [Passage(title="", text=f"word {n}", embed=f"{n}") for n in range(3)]
    gone = row(record(1), *((one, blob(X)) for one in passages))
    write(store, made, [gone, plain(2, "word stays", Y)])
    write(store, answering(store), forget=["id-1", "id-77"], position="on")
    with store.state() as view:
        assert size(view, made) == (1, 1, 0)
        assert ids(view, live(view), words(view, live(view), ["word"], 10)) == ["id-2"]
        assert view.words(live(view), ["word"], 0).frequencies == {"word": 1}
        assert near(view, X) == pytest.approx({"id-2": 0.0})
    late = [plain(1, "word", X), plain(77, "word", X), plain(78, "word", X)]
    assert write(store, answering(store), late) == ["id-78"]


def test_reading_from_the_start_drops_what_the_journal_no_longer_has(store: IndexStore) -> None:
    made = create(store)
    rows = [plain(number, f"word {number}", X) for number in range(1, 5)]
    write(store, made, rows, forget=["buried"])
    keys = [(one.record.id, one.record.digest) for one in rows]
    write(store, answering(store), restart=True, done=False, seen=keys[:1], position="begun")
    assert answering(store).sweeping
    with store.state() as view:
        assert size(view, made)[0] == 4  # nothing goes before the end is reached
    write(store, answering(store), [plain(9, "word new", Y)], seen=keys[1:2], position="end")
    assert not answering(store).sweeping
    with store.state() as view:
        held = {record_id for record_id, _ in view.content(made).keys}
    assert held == {"id-1", "id-2", "id-9"}


def test_a_sweep_that_is_begun_again_does_not_trust_the_marks_of_the_first(
    store: IndexStore,
) -> None:
    made = create(store)
    rows = [plain(number, f"word {number}", X) for number in range(1, 4)]
    keys = [(one.record.id, one.record.digest) for one in rows]
    write(store, made, rows)
    write(store, answering(store), restart=True, done=False, seen=keys, position="begun")
    write(store, answering(store), restart=True, done=True, seen=keys[:1], position="end")
    with store.state() as view:
        assert {record_id for record_id, _ in view.content(made).keys} == {"id-1"}


@pytest.mark.parametrize("kind", ["tombstone", "metadata", "passage", ""])
def test_a_record_may_be_of_any_kind(store: IndexStore, kind: str) -> None:
    made = create(store)
    odd = Record("odd", kind, 1, "2026-01-01T00:00:00Z", b"{}")
    passage = Passage(title="", text="word")
    write(store, made, [row(odd, (passage, None))], restart=True)
    write(store, answering(store), seen=[(odd.id, odd.digest)], restart=True, position="on")
    with store.state() as view:
        found = words(view, made, ["word"], 10)
        assert list(records(view, made, found).values()) == [odd]


def test_without_a_sweep_nothing_is_dropped(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(1, "one", X)])
    write(store, answering(store), [plain(2, "two", X)], position="on")
    with store.state() as view:
        assert size(view, made)[0] == 2


# -- the store itself


def test_a_store_that_is_whole_has_no_faults(store: IndexStore) -> None:
    write(store, create(store), [plain(1, "one", X)])
    create(store)
    assert store.check(deep=True) == []
    assert store.title in ("SQLite", "Qdrant")


def test_a_store_can_be_used_after_it_was_closed(store: IndexStore) -> None:
    write(store, create(store), [plain(1, "one", X)])
    store.close()
    with store.state() as view:
        assert size(view, live(view)) == (1, 1, 0)


def test_forgetting_leaves_nothing_to_clean_up(store: IndexStore) -> None:
    write(store, create(store), [plain(1, "one", X), plain(2, "two", Y)])
    write(store, answering(store), forget=["id-1"])
    assert not answering(store).needs_vacuum
    with store.state() as view:
        assert [key[0] for key in view.content(live(view)).keys] == ["id-2"]


def test_passages_are_fetched_with_their_records_or_without(store: IndexStore) -> None:
    made = create(store)
    write(store, made, [plain(number, f"word {number}", X) for number in range(1, 50)])
    with store.state() as view:
        found = list(words(view, made, ["word"], 40))
        bare, whole = view.fetch(made, found), view.fetch(made, found, records=True)
        assert len(bare) == len(records(view, made, found)) == 40
        assert [p.words.padded for p in bare.values()] == [p.words.padded for p in whole.values()]
        assert all(one.record is None for one in bare.values())
