"""One contract for every store: SQLite, and Qdrant in its local mode, over HTTP and for real."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from qdrant import REAL_URL, local_server, qdrant_store, quiet, real_server
from qdrant_server import running

from ralph.index import ASIDE_WEIGHT, Manifest, Passage
from ralph.index.port import Collection, IndexedRecord, Store, View
from ralph.index.qdrant_server import QdrantConnection
from ralph.index.sqlite import SqliteStore
from ralph.records import Record, Source

pytestmark = quiet

DIMS = 4
MANIFEST = Manifest("toy:1", DIMS, "1", "cut-1")
X, Y, Z, W = (tuple(1.0 if place == axis else 0.0 for place in range(DIMS)) for axis in range(DIMS))
Numbers = Sequence[float]


STORES = ["sqlite", "qdrant", "qdrant over HTTP"]
if REAL_URL is not None:
    STORES.append("qdrant server")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    match request.param:
        case "sqlite":
            opened = SqliteStore(tmp_path / "index.sqlite3")
            yield opened
            opened.close()
        case "qdrant":
            with qdrant_store(local_server()) as local:
                yield local
        case "qdrant over HTTP":
            with running() as server, qdrant_store(QdrantConnection(server.url)) as served:
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


def create(store: Store, *, live: bool = True, manifest: Manifest = MANIFEST) -> Collection:
    return store.create("name", "stream", manifest, live=live)


def write(
    store: Store,
    collection: Collection,
    rows: Sequence[IndexedRecord] = (),
    *,
    forget: Sequence[str] = (),
    seen: Sequence[tuple[str, str]] = (),
    position: str = "here",
    restart: bool = False,
    done: bool = True,
) -> int:
    return store.write(
        collection,
        rows,
        forget=forget,
        seen=seen,
        position=position,
        restart=restart,
        done=done,
    )


def live(held: Store | View) -> Collection:
    found, _ = held.generations("name")
    assert found is not None
    return found


def ids(view: View, collection: Collection, rows: dict[int, float]) -> list[str]:
    """The records of these passages, the best first."""
    order = sorted(rows, key=lambda one: -rows[one])
    held = view.records(collection, order)
    return [held[one][1].id for one in order]


def near(view: View, query: Numbers, count: int = 10) -> dict[str, float]:
    collection = live(view)
    vector = np.array(query, dtype=np.float32)
    found = view.nearest(collection, vector, count, [])
    held = view.records(collection, found)
    return {held[one][1].id: value for one, value in found.items()}


# -- generations


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.generations("name") == (None, None)
    assert store.collections() == []
    with store.reading() as view:
        assert view.live("name") is None


def test_a_new_collection_is_empty_and_says_what_it_was_built_with(store: Store) -> None:
    made = create(store)
    assert live(store) == made
    assert (made.name, made.stream, made.live, made.manifest) == ("name", "stream", True, MANIFEST)
    assert (made.position, made.sweeping) == (None, False)
    with store.reading() as view:
        assert view.counts(made) == (0, 0, 0)
        assert view.last_number(made) == 0
        assert view.words(made, ["word"], 10) == {}
        assert view.nearest(made, np.array(X, dtype=np.float32), 10, []) == {}


def test_a_generation_that_is_built_is_not_seen_before_it_takes_over(store: Store) -> None:
    write(store, create(store), [plain(1, "old words", X)], position="old")
    other = Manifest("toy:2", DIMS, "1", "cut-1")
    building = create(store, live=False, manifest=other)
    write(store, building, [plain(2, "new words", Y)], position="new")
    answering, beside = store.generations("name")
    assert answering is not None
    assert beside is not None
    assert (answering.position, answering.live, beside.position) == ("old", True, "new")
    with store.reading() as view:
        assert ids(view, answering, view.words(answering, ["word"], 10)) == ["id-1"]
    store.replace_live(beside)
    assert live(store).manifest == other
    assert store.generations("name")[1] is None
    assert len(store.collections()) == 1
    with store.reading() as view:
        assert ids(view, live(view), view.words(live(view), ["word"], 10)) == ["id-2"]


def test_building_anew_drops_what_was_being_built(store: Store) -> None:
    create(store)
    write(store, create(store, live=False), [plain(1, "given up")])
    again = create(store, live=False)
    assert len(store.collections()) == 2
    with store.reading() as view:
        assert view.counts(again) == (0, 0, 0)


def test_what_is_being_built_can_be_given_up(store: Store) -> None:
    made = create(store)
    create(store, live=False)
    store.drop_building("name")
    assert store.collections() == [made]


def test_dropping_a_collection_drops_every_generation_of_it_and_no_other(store: Store) -> None:
    create(store)
    create(store, live=False)
    other = store.create("another", "stream", MANIFEST, live=True)
    store.drop("name")
    assert store.collections() == [other]
    assert store.generations("name") == (None, None)


# -- records


def test_a_record_comes_back_whole(store: Store) -> None:
    made = create(store)
    first = Record(
        "a", "exchange", 7, "2026-01-01T00:00:00Z", b'{"x": "\xc3\xa4\\n"}', Source(run="r")
    )
    odd = Record(
        "b", "exchange", 9, "2026-01-01T00:00:00Z", b"\xff\xfe not text", Source("r", "f", 3)
    )
    passage = Passage(title="one title", text="text", places="src/app.py")
    write(store, made, [row(first, (passage, blob(X))), row(odd, (passage, blob(Y)))])
    with store.reading() as view:
        found = view.words(made, ["text"], 10)
        held = {one for _, one in view.records(made, found).values()}
        assert held == {first, odd}
        assert view.last_number(made) == 9
        assert set(view.known(made)) == {("a", first.digest), ("b", odd.digest)}


def test_the_passages_of_a_record_are_found_and_counted_one_by_one(store: Store) -> None:
    made = create(store)
    first, second = (Passage(title="", text=text, embed=text) for text in ("apple", "banana"))
    write(store, made, [row(record(1), (first, blob(X)), (second, blob(Y)))])
    with store.reading() as view:
        assert view.counts(made) == (1, 2, 0)
        assert view.passages(made) == 2
        [one] = view.words(made, ["banana"], 10)
        [other] = view.words(made, ["appl"], 10)
        assert one != other
        held = view.records(made, [one, other])
        assert held[one] == held[other]
        assert held[one][1] == record(1)
        assert view.fields(made, [one]) == {one: ("", "banana", "")}


def test_a_record_that_has_nothing_to_find_is_indexed_too(store: Store) -> None:
    made = create(store)
    bare = record(3)
    write(store, made, [row(bare)])
    with store.reading() as view:
        assert view.counts(made) == (1, 0, 0)
        assert view.held(made, [(bare.id, bare.digest)]) == {(bare.id, bare.digest)}
        assert view.last_number(made) == 3


def test_it_is_known_what_is_held_and_what_is_not(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "here", X)])
    here, changed = record(1), record(1, "changed")
    keys = [(here.id, here.digest), (changed.id, changed.digest), ("none", "none")]
    with store.reading() as view:
        assert view.held(made, keys) == {keys[0]}


def test_the_same_id_with_other_content_is_another_record(store: Store) -> None:
    made = create(store)
    passage = Passage(title="", text="word")
    rows = [row(one, (passage, blob(X))) for one in (record(1), record(1, "changed"))]
    write(store, made, rows)
    with store.reading() as view:
        assert view.counts(made) == (2, 2, 0)
        assert len(view.words(made, ["word"], 10)) == 2


def test_writing_a_batch_again_changes_nothing(store: Store) -> None:
    made = create(store)
    rows = [plain(number, f"word {number}", X) for number in range(1, 4)]
    write(store, made, rows, position="1")
    with store.reading() as view:
        before = view.counts(made)
        held = view.held(made, [(one.record.id, one.record.digest) for one in rows])
    # As sync does it: what is held is met again, and not written.
    write(store, made, [], seen=sorted(held), position="1")
    with store.reading() as view:
        assert view.counts(made) == before == (3, 3, 0)


def test_the_position_is_kept(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "one", X)], position="far", done=False)
    assert live(store).position == "far"


def test_many_records_go_in_and_come_out(store: Store) -> None:
    made = create(store)
    rows = [plain(number, f"common word{number}", X) for number in range(1, 601)]
    write(store, made, rows)
    with store.reading() as view:
        assert view.counts(made) == (600, 600, 0)
        assert len(view.known(made)) == 600
        assert len(view.vectors_by_hash(made)) == 600
        keys = [(one.record.id, one.record.digest) for one in rows]
        assert view.held(made, keys) == set(keys)


# -- words


def test_words_are_found_in_every_field_and_weigh_by_it(store: Store) -> None:
    made = create(store)
    fields = {1: ("parser", "", ""), 2: ("", "parser", ""), 3: ("", "", "parser")}
    filler = "alpha beta gamma delta"
    rows = [
        row(record(n), (Passage(title=f"{a} {filler}", text=b, places=c), None))
        for n, (a, b, c) in fields.items()
    ]
    rows += [plain(number, "something else entirely", X) for number in range(4, 9)]
    write(store, made, rows)
    with store.reading() as view:
        found = view.words(made, ["parser"], 10)
        assert ids(view, made, found) == ["id-1", "id-2", "id-3"]
        assert all(value > 0.0 for value in found.values())
        assert set(view.words(made, ["parser"], 2)) < set(found)
        assert view.words(made, ["nowhere"], 10) == {}
        assert view.words(made, [], 10) == {}


def test_rare_words_weigh_more(store: Store) -> None:
    made = create(store)
    rows = [plain(number, "common thing", X) for number in range(1, 9)]
    write(store, made, [*rows, plain(9, "rare thing", X)])
    with store.reading() as view:
        found = view.words(made, ["rare", "common"], 10)
        assert ids(view, made, found)[0] == "id-9"
        assert view.frequencies(made, ["rare", "common", "thing", "none"]) == {
            "rare": 1,
            "common": 8,
            "thing": 9,
            "none": 0,
        }


def test_a_word_that_stands_often_is_counted_once_a_passage(store: Store) -> None:
    made = create(store)
    passage = Passage(title="parser", text="parser parser", places="parser")
    write(store, made, [row(record(1), (passage, None)), plain(2, "parser", X)])
    with store.reading() as view:
        assert view.frequencies(made, ["parser"]) == {"parser": 2}


def test_facets_leave_out_what_is_of_something_else(store: Store) -> None:
    made = create(store)
    rows = [
        plain(1, "word", X, outcome=("failure",), task_id=("1",)),
        plain(2, "word", Y, outcome=("success",), task_id=("1",)),
        plain(3, "word", Z, outcome=("failure", "timeout"), task_id=()),
        plain(4, "word", W),
    ]
    write(store, made, rows)
    everything = np.array([0.5, 0.5, 0.5, 0.5], dtype=np.float32)
    wanted: list[tuple[str, dict[str, tuple[str, ...]]]] = [
        ("id-1 id-3", {"outcome": ("failure",)}),
        ("id-3", {"outcome": ("timeout",)}),
        ("id-1 id-2 id-3", {"task_id": ("1",)}),  # what has no task fits every task
        ("id-3", {"task_id": ("2",)}),
        ("id-1 id-3", {"task_id": ("1",), "outcome": ("failure", "other")}),
        ("id-1 id-2 id-3 id-4", {"task_id": ()}),
        ("", {"task_id": ("1",), "outcome": ("other",)}),
    ]
    with store.reading() as view:
        for expected, only in wanted:
            by_words = view.words(made, ["word"], 10, only=only)
            by_meaning = view.nearest(made, everything, 10, [], only=only)
            assert sorted(ids(view, made, by_words)) == expected.split()
            assert sorted(ids(view, made, by_meaning)) == expected.split()


# -- meaning


def test_the_nearest_come_with_their_cosines(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "a", X), plain(2, "b", (0.6, 0.8, 0, 0)), plain(3, "c", Y)])
    with store.reading() as view:
        assert near(view, X) == pytest.approx({"id-1": 1.0, "id-2": 0.6, "id-3": 0.0})
        assert near(view, X, 2) == pytest.approx({"id-1": 1.0, "id-2": 0.6})
        [last] = view.words(made, ["c"], 10)
        also = view.nearest(made, np.array(X, dtype=np.float32), 1, [last])
        assert sorted(also.values()) == pytest.approx([0.0, 1.0])


def test_a_passage_is_as_near_as_its_nearest_piece(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "a", X, Y, (0, 0.6, 0.8, 0)), plain(2, "b", (0, 0.8, 0.6, 0))])
    with store.reading() as view:
        assert near(view, Y) == pytest.approx({"id-1": 1.0, "id-2": 0.8})
        assert near(view, Y, 1) == pytest.approx({"id-1": 1.0})


def test_an_aside_counts_less(store: Store) -> None:
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
    with store.reading() as view:
        assert near(view, Y) == pytest.approx(expected, abs=1e-6)
        assert near(view, Y, 1) == pytest.approx({"id-2": 0.9}, abs=1e-6)


def test_asides_are_seen_even_where_many_pieces_are_nearer_than_their_own(store: Store) -> None:
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
    with store.reading() as view:
        found = near(view, X, 7)
    assert sorted(found) == sorted(best)
    assert found == pytest.approx({one: expected[one] for one in best}, abs=1e-5)


def test_many_questions_at_once_are_answered_as_one_by_one(store: Store) -> None:
    made = create(store)
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(40, DIMS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    write(store, made, [plain(n, f"t{n}", one.tolist()) for n, one in enumerate(vectors, 1)])
    with store.reading() as view:
        together = view.nearest_of_each(made, vectors, 5)
        for query, found in zip(vectors, together, strict=True):
            assert found == pytest.approx(view.nearest(made, query, 5, []), abs=1e-5)
            assert max(found.values()) == pytest.approx(1.0, abs=1e-5)


def test_what_has_no_direction_is_near_to_nothing(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "a", X), plain(2, "b", (0.0, 0.0, 0.0, 0.0))])
    with store.reading() as view:
        assert near(view, X) == pytest.approx({"id-1": 1.0, "id-2": 0.0})


def test_vectors_can_be_used_again(store: Store) -> None:
    made = create(store)
    weighed = tuple(ASIDE_WEIGHT * value for value in Z)
    rows = [plain(1, "a", X), plain(2, "b", X, (0.6, 0.8, 0, 0), weighed)]
    write(store, made, rows)
    with store.reading() as view:
        held = view.vectors_by_hash(made)
    for one in rows:
        again = np.frombuffer(held[one.hashes[0]], dtype=np.float32)
        given = np.frombuffer(one.vectors[0] or b"", dtype=np.float32)
        assert again.tolist() == pytest.approx(given.tolist(), abs=1e-6)


def test_a_collection_without_vectors_is_found_by_words_alone(store: Store) -> None:
    made = store.create("name", "stream", Manifest("none", 0, "1", "cut-1"), live=True)
    passage = Passage(title="", text="word")
    write(store, made, [row(record(1), (passage, None))])
    with store.reading() as view:
        assert len(view.words(made, ["word"], 10)) == 1
        assert view.waiting(made, 10) == []
        assert view.counts(made) == (1, 1, 0)


# -- waiting for the embedder


def test_passages_wait_for_their_vectors_and_get_them(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "waits"), plain(2, "is ready", X)])
    with store.reading() as view:
        assert view.counts(made) == (2, 2, 1)
        [(place, text)] = view.waiting(live(view), 10)
        assert text == "1 waits"
        assert near(view, Y) == pytest.approx({"id-2": 0.0})
    store.fill(live(store), [(place, blob(Y))])
    with store.reading() as view:
        assert view.waiting(live(view), 10) == []
        assert view.counts(made) == (2, 2, 0)
        assert near(view, Y) == pytest.approx({"id-1": 1.0, "id-2": 0.0})


# -- forgetting and sweeping


def test_what_is_forgotten_goes_with_all_its_passages(store: Store) -> None:
    made = create(store)
    passages = [Passage(title="", text=f"word {n}", embed=f"{n}") for n in range(3)]
    gone = row(record(1), *((one, blob(X)) for one in passages))
    write(store, made, [gone, plain(2, "word stays", Y)])
    assert write(store, live(store), forget=["id-1", "id-77"], position="on") == 1
    with store.reading() as view:
        assert view.counts(made) == (1, 1, 0)
        assert ids(view, live(view), view.words(live(view), ["word"], 10)) == ["id-2"]
        assert view.frequencies(live(view), ["word"]) == {"word": 1}
        assert near(view, X) == pytest.approx({"id-2": 0.0})
        assert view.forgotten(made, ["id-1", "id-2", "id-77"]) == {"id-1", "id-77"}


def test_reading_from_the_start_drops_what_the_journal_no_longer_has(store: Store) -> None:
    made = create(store)
    rows = [plain(number, f"word {number}", X) for number in range(1, 5)]
    write(store, made, rows, forget=["buried"])
    keys = [(one.record.id, one.record.digest) for one in rows]
    write(store, live(store), restart=True, done=False, seen=keys[:1], position="begun")
    assert live(store).sweeping
    with store.reading() as view:
        assert view.counts(made)[0] == 4  # nothing goes before the end is reached
        assert view.forgotten(made, ["buried"]) == set()
    write(store, live(store), [plain(9, "word new", Y)], seen=keys[1:2], position="end")
    assert not live(store).sweeping
    with store.reading() as view:
        held = {record_id for record_id, _ in view.known(made)}
    assert held == {"id-1", "id-2", "id-9"}


def test_a_sweep_that_is_begun_again_does_not_trust_the_marks_of_the_first(store: Store) -> None:
    made = create(store)
    rows = [plain(number, f"word {number}", X) for number in range(1, 4)]
    keys = [(one.record.id, one.record.digest) for one in rows]
    write(store, made, rows)
    write(store, live(store), restart=True, done=False, seen=keys, position="begun")
    write(store, live(store), restart=True, done=True, seen=keys[:1], position="end")
    with store.reading() as view:
        assert {record_id for record_id, _ in view.known(made)} == {"id-1"}


@pytest.mark.parametrize("kind", ["tombstone", "metadata", "passage", ""])
def test_a_record_may_be_of_any_kind(store: Store, kind: str) -> None:
    made = create(store)
    odd = Record("odd", kind, 1, "2026-01-01T00:00:00Z", b"{}")
    passage = Passage(title="", text="word")
    write(store, made, [row(odd, (passage, None))], restart=True)
    write(store, live(store), seen=[(odd.id, odd.digest)], restart=True, position="on")
    with store.reading() as view:
        found = view.words(made, ["word"], 10)
        assert [one for _, one in view.records(made, found).values()] == [odd]
        assert view.forgotten(made, ["odd"]) == set()


def test_without_a_sweep_nothing_is_dropped(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(1, "one", X)])
    write(store, live(store), [plain(2, "two", X)], position="on")
    with store.reading() as view:
        assert view.counts(made)[0] == 2


# -- the store itself


def test_a_store_that_is_whole_has_no_faults(store: Store) -> None:
    write(store, create(store), [plain(1, "one", X)])
    create(store, live=False)
    assert store.check() == []
    assert store.title in ("SQLite", "Qdrant")


def test_a_store_can_be_used_after_it_was_closed(store: Store) -> None:
    write(store, create(store), [plain(1, "one", X)])
    store.close()
    with store.reading() as view:
        assert view.counts(live(view)) == (1, 1, 0)


def test_scrubbing_and_compacting_lose_nothing(store: Store) -> None:
    write(store, create(store), [plain(1, "one", X), plain(2, "two", Y)])
    write(store, live(store), forget=["id-1"])
    store.scrub()
    store.compact()
    assert not store.soiled()
    with store.reading() as view:
        assert [key[0] for key in view.known(live(view))] == ["id-2"]


def test_what_is_announced_is_there_when_it_is_asked_for(store: Store) -> None:
    made = create(store)
    write(store, made, [plain(number, f"word {number}", X) for number in range(1, 50)])
    with store.reading() as view:
        found = list(view.words(made, ["word"], 40))
        view.expect(made, found)
        assert len(view.records(made, found)) == len(view.fields(made, found)) == 40
