"""Reading a Qdrant index: everything one query needs, in as few requests as it takes.

A server keeps no unchanging state for us. What a view has read it keeps, and what disappears under
it is told as Gone, so that whoever asked looks again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ralph.index.facets import Only
from ralph.index.qdrant.counted import Facts, rarities
from ralph.index.qdrant.filters import chunks, fitting, holding
from ralph.index.qdrant.names import Names
from ralph.index.qdrant.nearness import WHOSE, Whose, nearest_of
from ralph.index.qdrant.points import (
    META_ID,
    WORDS,
    Metadata,
    id_of,
    point_id,
    read_metadata,
    record_of,
    row_of,
    stone_id,
    token_place,
    vectors_blob,
)
from ralph.index.qdrant.scrolling import PAGE, scrolled
from ralph.index.qdrant.server import Damaged, Gone, Server
from ralph.index.tables import Collection, Corrupt
from ralph.records import Record

if TYPE_CHECKING:
    from qdrant_client import models

    from ralph.index import Vectors

Fields = tuple[str, str, str]

_FIELDS = ["title", "text", "places"]
_EVERYTHING = [*_FIELDS, "passage", "record", "digest", "head", "type", "number", "at", "source"]
_EVERYTHING += ["body", "body_base64"]
# How many points are asked for at once where each may be large.
_LARGE_PAGE = 32
# From so many words on, how often each stands is asked for side by side.
_FEW = 3
_THREADS = 8


class QdrantView:
    """A Qdrant index for the length of a query."""

    def __init__(self, server: Server, names: Names, facts: dict[str, Facts]) -> None:
        self._server = server
        self._names = names
        self._facts = facts
        self._fields: dict[tuple[str, int], Fields] = {}
        self._records: dict[tuple[str, int], tuple[int, Record]] = {}
        self._metadata: dict[str, Metadata | None] = {}
        # Heads that are there: the records of these are there whole.
        self._heads: set[tuple[str, str]] = set()

    # -- collections

    def live(self, name: str) -> Collection | None:
        """The collection that answers under this name."""
        found = self._seen(self._names.alias(name))
        return found.collection(live=True) if found else None

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        building = self._seen(self._names.building(name))
        return self.live(name), building.collection(live=False) if building else None

    def _seen(self, alias: str) -> Metadata | None:
        if alias not in self._metadata:
            self._metadata[alias] = self.metadata(alias)
        return self._metadata[alias]

    def metadata(self, name: str) -> Metadata | None:
        """What the generation under this name or alias says of itself."""
        try:
            found = self._server.ask(lambda client: client.retrieve(name, [META_ID]))
        except Gone:
            return None
        with _read_from(name):
            return read_metadata(found[0].payload) if found else None

    # -- searching

    def words(
        self,
        collection: Collection,
        query: Sequence[str],
        count: int,
        *,
        only: Only | None = None,
    ) -> dict[int, float]:
        """BM25 of the passages that hold any of these tokens, the best `count` of them."""
        if not query:
            return {}
        from qdrant_client import models

        frequencies = self.frequencies(collection, query)
        rarity = rarities(frequencies, self.passages(collection))
        places: dict[int, float] = {}
        for token, value in rarity.items():
            places[token_place(token)] = value
        asked = models.SparseVector(indices=list(places), values=list(places.values()))
        found = self._server.ask(
            lambda client: client.query_points(
                collection.physical,
                query=asked,
                using=WORDS,
                limit=count,
                query_filter=fitting(only),
                with_payload=[*_FIELDS, *WHOSE],
            )
        )
        scores: dict[int, float] = {}
        whose = {str(point.id): point.payload or {} for point in found.points}
        whole = self._whole(collection.physical, whose)
        for point in found.points:
            if str(point.id) not in whole:
                continue
            row = row_of(point.id)
            fields = _fields_of(point.payload, collection.physical)
            if rarity.keys() & set(" ".join(fields).split()):
                self._fields[collection.physical, row] = fields
                scores[row] = point.score
        return scores

    def nearest(
        self,
        collection: Collection,
        query: Vectors,
        count: int,
        also: list[int],
        *,
        only: Only | None = None,
    ) -> dict[int, float]:
        """Cosines of the `count` nearest passages and of those in `also`."""
        if not collection.manifest.dims:
            return {}
        [found], whose = nearest_of(
            self._server,
            collection.physical,
            query[None, :],
            count,
            [id_of(row) for row in also],
            fitting(only),
        )
        return self._rows(collection.physical, found, whose)

    def nearest_of_each(
        self, collection: Collection, queries: Vectors, count: int
    ) -> list[dict[int, float]]:
        """Cosines of the `count` nearest passages of each of these vectors."""
        if not collection.manifest.dims:
            return [{} for _ in queries]
        name = collection.physical
        found, whose = nearest_of(self._server, name, queries, count, [], None)
        return [self._rows(name, one, whose) for one in found]

    def _rows(self, name: str, found: Mapping[str, float], whose: Whose) -> dict[int, float]:
        """Without those whose records are not there whole; asked for by name, they are."""
        known = {point: whose[point] for point in found if point in whose}
        torn = known.keys() - self._whole(name, known)
        return {row_of(point): value for point, value in found.items() if point not in torn}

    def _whole(self, name: str, whose: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """The points whose record is there whole: another process may be writing it just now, or
        was killed while it did."""
        heads = {
            point: point if "head" in held else point_id(held["record"], held["digest"], 0)
            for point, held in whose.items()
            if "record" in held and "digest" in held
        }
        self._heads |= {(name, head) for point, head in heads.items() if point == head}
        asked = dict.fromkeys(head for head in heads.values() if (name, head) not in self._heads)
        self._heads |= {(name, head) for head in self._present(name, list(asked))}
        return {point for point, head in heads.items() if (name, head) in self._heads}

    # -- what is known of words

    def frequencies(self, collection: Collection, query: Iterable[str]) -> dict[str, int]:
        """In how many passages each token stands."""
        known = self._known(collection).frequencies
        asked = list(query)
        missing = [token for token in dict.fromkeys(asked) if token not in known]

        def count(token: str) -> int:
            return self._count(collection, tokens=token)

        if len(missing) > _FEW and self._server.parallel:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(_THREADS, len(missing))) as pool:
                known.update(zip(missing, pool.map(count, missing), strict=True))
        else:
            known.update((token, count(token)) for token in missing)
        return {token: known[token] for token in asked}

    def passages(self, collection: Collection) -> int:
        """How many passages there are."""
        facts = self._known(collection)
        if facts.passages is None:
            facts.passages = self._count(collection, passage=True)
        return facts.passages

    def last_number(self, collection: Collection) -> int:
        """The highest number any record of the collection has."""
        from qdrant_client import models

        facts = self._known(collection)
        if facts.last_number is None:
            newest = models.OrderBy(key="number", direction=models.Direction.DESC)
            found, _ = self._server.ask(
                lambda client: client.scroll(
                    collection.physical, order_by=newest, limit=1, with_payload=["number"]
                )
            )
            facts.last_number = int((found[0].payload or {})["number"]) if found else 0
        return facts.last_number

    def counts(self, collection: Collection) -> tuple[int, int, int]:
        """Records, passages, and passages that wait for a vector."""
        return (
            self._count(collection, head=True),
            self.passages(collection),
            self._count(collection, waits=True),
        )

    def _known(self, collection: Collection) -> Facts:
        facts = self._facts.get(collection.physical)
        if facts is None or facts.state != collection.state:
            facts = self._facts[collection.physical] = Facts(collection.state, {})
        return facts

    def _count(self, collection: Collection, **wanted: Any) -> int:
        return self.count(collection.physical, holding(**wanted))

    def count(self, name: str, having: models.Filter) -> int:
        """How many points fit."""
        return self._server.ask(
            lambda client: client.count(name, count_filter=having, exact=True)
        ).count

    def told_of(self, name: str) -> models.CollectionInfo:
        """What the server says of a collection."""
        return self._server.ask(lambda client: client.get_collection(name))

    # -- passages and records

    def fields(self, collection: Collection, rows: Iterable[int]) -> dict[int, Fields]:
        """The tokens of title, text and places of each of these passages, separated by blanks."""
        wanted = list(rows)
        self._fetch_fields(collection, wanted)
        return {row: self._fields[collection.physical, row] for row in wanted}

    def expect(self, collection: Collection, rows: Iterable[int]) -> None:
        """Fetch fields and records of these passages at once."""
        self._fetch_records(collection, list(rows))

    def records(self, collection: Collection, rows: Iterable[int]) -> dict[int, tuple[int, Record]]:
        """For each passage the number of its record in the index, and the record."""
        wanted = list(rows)
        self._fetch_records(collection, wanted)
        return {row: self._records[collection.physical, row] for row in wanted}

    def _fetch_fields(self, collection: Collection, rows: Sequence[int]) -> None:
        name = collection.physical
        missing = {id_of(row): row for row in rows if (name, row) not in self._fields}
        for point, payload in self._payloads(name, missing, _FIELDS).items():
            self._fields[name, missing[point]] = _fields_of(payload, name)

    def _fetch_records(self, collection: Collection, rows: Sequence[int]) -> None:
        name = collection.physical
        missing = {id_of(row): row for row in rows if (name, row) not in self._records}
        held = self._payloads(name, missing, _EVERYTHING)
        for point, payload in held.items():
            if "passage" in payload:
                self._fields[name, missing[point]] = _fields_of(payload, name)
        heads = {
            point: point if "head" in payload else point_id(payload["record"], payload["digest"], 0)
            for point, payload in held.items()
        }
        others = dict.fromkeys(head for head in heads.values() if head not in held)
        held |= self._payloads(name, others, _EVERYTHING)
        with _read_from(name):
            records = {head: record_of(held[head]) for head in dict.fromkeys(heads.values())}
        for point, head in heads.items():
            self._records[name, missing[point]] = row_of(head), records[head]

    def _payloads(
        self, name: str, points: Iterable[str], keys: list[str]
    ) -> dict[str, Mapping[str, Any]]:
        """The payloads of all of these points; Gone where one is missing."""
        wanted = list(points)
        found: dict[str, Mapping[str, Any]] = {}
        for some in chunks(wanted, _LARGE_PAGE if keys is _EVERYTHING else PAGE):
            held = self._retrieved(name, some, keys)
            found.update((str(point.id), point.payload or {}) for point in held)
        if len(found) < len(wanted):
            raise Gone(f"{len(wanted) - len(found)} points are not there any more")
        return found

    def _retrieved(
        self, name: str, points: list[str], keys: list[str] | bool
    ) -> list[models.Record]:
        return self._server.ask(lambda client: client.retrieve(name, points, with_payload=keys))

    # -- for whoever syncs and checks

    def known(self, collection: Collection) -> dict[tuple[str, str], None]:
        """Identity and content of everything indexed."""
        heads = scrolled(
            self._server, collection.physical, holding(head=True), ["record", "digest"]
        )
        return {(one.payload["record"], one.payload["digest"]): None for one in heads}

    def held(self, collection: Collection, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of these ids and contents that are indexed, whole."""
        heads = {point_id(record_id, digest, 0): (record_id, digest) for record_id, digest in keys}
        return {heads[point] for point in self._present(collection.physical, list(heads))}

    def forgotten(self, collection: Collection, ids: Iterable[str]) -> set[str]:
        """Those of these ids of which a tombstone has been met."""
        stones = {stone_id(one): one for one in ids}
        return {stones[point] for point in self._present(collection.physical, list(stones))}

    def _present(self, name: str, points: list[str]) -> Iterator[str]:
        for some in chunks(points, PAGE):
            yield from (str(point.id) for point in self._retrieved(name, some, False))

    def soiled(self) -> bool:
        """Never: no file of ours holds anything."""
        return False

    def waiting(self, collection: Collection, count: int) -> list[tuple[int, str]]:
        """Passages that have no vector yet, and the text to make one from."""
        facts = self._known(collection)
        if facts.waiting is False:
            return []
        wanted = holding(waits=True)
        found = scrolled(
            self._server, collection.physical, wanted, ["waiting"], page=min(count, PAGE)
        )
        some = [(row_of(one.id), one.payload["waiting"]) for one in itertools.islice(found, count)]
        facts.waiting = bool(some)
        return some

    def vectors_by_hash(self, collection: Collection) -> dict[bytes, bytes]:
        """The vectors under the hash of the text they were made from, to be used again (F16)."""
        found: dict[bytes, bytes] = {}
        every = scrolled(
            self._server, collection.physical, holding(passage=True), ["hash"], vectors=True
        )
        for point in every:
            if blob := vectors_blob(point.vector):
                found[bytes.fromhex(point.payload["hash"])] = blob
        return found

    def scrolled(
        self, name: str, having: models.Filter, keys: list[str] | bool, *, page: int = PAGE
    ) -> Iterator[Any]:
        """Every point that fits, page by page."""
        return scrolled(self._server, name, having, keys, page=page)


@contextlib.contextmanager
def _read_from(name: str) -> Iterator[None]:
    """Say which collection it is that cannot be read."""
    try:
        yield
    except Corrupt as damage:
        raise Damaged(str(damage), name) from None


def _fields_of(payload: Mapping[str, Any] | None, name: str) -> Fields:
    held = payload or {}
    if any(not isinstance(held.get(key), str) for key in _FIELDS):
        raise Damaged("a passage has no words", name)
    return held["title"], held["text"], held["places"]
