"""Reading a Qdrant index: everything one query needs, in as few requests as it takes.

A server keeps no unchanging state for us. What a view has read it keeps, and what disappears under
it raises CollectionGone, so that whoever asked looks again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.index import ASIDE_WEIGHT, Only
from ralph.index.matrix import NEARNESS_DIGITS
from ralph.index.port import (
    Collection,
    CollectionSize,
    Corrupt,
    StoredContent,
    StoredPassage,
    WordMatches,
)
from ralph.index.qdrant_points import (
    ASIDE_MEANING,
    MEANING,
    META_ID,
    WORDS,
    CollectionMetadata,
    CollectionNames,
    id_of,
    point_id,
    read_metadata,
    record_of,
    row_of,
    token_place,
    vectors_blob,
)
from ralph.index.qdrant_server import (
    PAGE,
    CollectionDamaged,
    CollectionGone,
    QdrantConnection,
    chunks,
    fitting,
    holding,
    scrolled,
)
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


# Of a token so frequent that it would count negative; as FTS5 does.
_LEAST_RARITY = 1e-6


class CollectionFacts(msgspec.Struct):
    """What was counted in one state of a collection, kept until it is written to again."""

    state: str
    frequencies: dict[str, int] = {}
    passages: int | None = None
    last_number: int | None = None
    waiting: bool | None = None


def rarities(frequencies: Mapping[str, int], count: int) -> dict[str, float]:
    """How much each token counts that stands in so many of `count` passages: the IDF of FTS5."""
    found: dict[str, float] = {}
    for token, times in frequencies.items():
        share = (count - times + 0.5) / (times + 0.5)
        found[token] = max(math.log(share), _LEAST_RARITY) if share > 0.0 else _LEAST_RARITY
    return found


# -- The nearest passages, as near as the embedded index says they are. A passage is as near as its
# nearest piece; its asides stand under another name, because Qdrant brings vectors to length one,
# and count a little less.


# The search parameter that the source documents ask for.
HNSW_EF = 128
# How many questions go in one request.
_QUERIES_AT_ONCE = 32

Near = dict[str, float]
# What of a payload tells which record a point is of.
OWNER_KEYS = ["record", "digest", "head"]
PointOwners = dict[str, Mapping[str, Any]]


def nearest_of(
    server: QdrantConnection,
    name: str,
    queries: Vectors,
    count: int,
    also: Sequence[str],
    having: models.Filter | None,
) -> tuple[list[Near], PointOwners]:
    """For each vector the `count` nearest points with their cosines, and those in `also`; and of
    which records they are."""
    found: list[Near] = []
    owners: PointOwners = {}
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = [query.tolist() for query in queries[start : start + _QUERIES_AT_ONCE]]
        # The nearest by their pieces, and by their asides: the nearest of all are among them.
        requests = [
            _request(query, using, count, having)
            for query in some
            for using in (MEANING, ASIDE_MEANING)
        ]
        sides = _answers(server, name, requests, owners)
        pairs = list(zip(sides[::2], sides[1::2], strict=True))
        _complete(server, name, some, pairs, also, owners)
        for main, asides in pairs:
            near = {point: ASIDE_WEIGHT * value for point, value in asides.items()}
            near |= {point: max(value, near.get(point, value)) for point, value in main.items()}
            order = sorted(near, key=lambda point: (-near[point], point))[:count]
            kept = dict.fromkeys([*order, *(point for point in also if point in near)])
            found.append({point: round(near[point], NEARNESS_DIGITS) for point in kept})
    return found, owners


def _complete(
    server: QdrantConnection,
    name: str,
    queries: Sequence[list[float]],
    pairs: Sequence[tuple[Near, Near]],
    also: Sequence[str],
    owners: PointOwners,
) -> None:
    """Ask for the pieces and asides of points that only the other side has found, and of `also`."""
    requests: list[models.QueryRequest] = []
    sides: list[Near] = []
    for query, (main, asides) in zip(queries, pairs, strict=True):
        for side, using in ((main, MEANING), (asides, ASIDE_MEANING)):
            missing = list(dict.fromkeys(p for p in (*main, *asides, *also) if p not in side))
            if missing and (side or asides or using == MEANING):
                requests.append(_request(query, using, len(missing), None, missing))
                sides.append(side)
    if requests:
        for side, more in zip(sides, _answers(server, name, requests, owners), strict=True):
            side.update(more)


def _answers(
    server: QdrantConnection,
    name: str,
    requests: Sequence[models.QueryRequest],
    owners: PointOwners,
) -> list[Near]:
    answers = server.ask(lambda client: client.query_batch_points(name, requests))
    for answer in answers:
        owners.update((str(point.id), point.payload) for point in answer.points if point.payload)
    return [{str(point.id): point.score for point in answer.points} for answer in answers]


def _request(
    query: list[float],
    using: str,
    limit: int,
    having: models.Filter | None,
    points: Sequence[str] | None = None,
) -> models.QueryRequest:
    """The nearest that fit a filter; or how near these points are, exactly."""
    from qdrant_client import models

    params = models.SearchParams(hnsw_ef=HNSW_EF)
    if points is not None:
        params = models.SearchParams(exact=True)
        having = models.Filter(must=[models.HasIdCondition(has_id=list(points))])
    return models.QueryRequest(
        query=[query],
        using=using,
        limit=limit,
        filter=having,
        params=params,
        with_payload=OWNER_KEYS,
    )


class QdrantView:
    """A Qdrant index for the length of a query."""

    def __init__(
        self, server: QdrantConnection, names: CollectionNames, facts: dict[str, CollectionFacts]
    ) -> None:
        self._server = server
        self._names = names
        self._facts = facts
        self._fields: dict[tuple[str, int], Fields] = {}
        self._records: dict[tuple[str, int], Record] = {}
        self._metadata: dict[str, CollectionMetadata | None] = {}
        # Heads that are there: the records of these are there whole.
        self._heads: set[tuple[str, str]] = set()

    # -- collections

    def collections(self, name: str | None = None) -> list[Collection]:
        """The collections of this name, or all: those that answer and those being built."""
        if name is not None:
            listed = [self._names.alias(name), self._names.building(name)]
        else:
            aliases, listed = self.aliases(), self.physical()
        found: list[Collection] = []
        for place in listed:
            if place not in self._metadata:
                self._metadata[place] = self.metadata(place)
            if (metadata := self._metadata[place]) is not None:
                alias = self._names.alias(metadata.name)
                live = place == alias if name is not None else aliases.get(alias) == place
                found.append(self._collection(metadata, live=live))
        return found

    def _collection(self, metadata: CollectionMetadata, *, live: bool) -> Collection:
        from qdrant_client import models

        collection = metadata.collection(live=live)
        facts = self._known(collection)
        if facts.last_number is None:
            newest = models.OrderBy(key="number", direction=models.Direction.DESC)
            top, _ = self._server.ask(
                lambda client: client.scroll(
                    collection.physical, order_by=newest, limit=1, with_payload=["number"]
                )
            )
            facts.last_number = int((top[0].payload or {})["number"]) if top else 0
        if facts.waiting is None:
            facts.waiting = self._count(collection, waits=True) > 0
        return msgspec.structs.replace(
            collection, last_number=facts.last_number, waiting=facts.waiting
        )

    def aliases(self) -> dict[str, str]:
        """The collection each alias leads to; of everybody."""
        found = self._server.ask(lambda client: client.get_aliases()).aliases
        return {one.alias_name: one.collection_name for one in found}

    def physical(self) -> list[str]:
        """All collections of this place, under the server's names."""
        found = self._server.ask(lambda client: client.get_collections()).collections
        return sorted(one.name for one in found if self._names.owns(one.name))

    def metadata(self, name: str) -> CollectionMetadata | None:
        """What the collection under this name or alias says of itself."""
        try:
            found = self._server.ask(lambda client: client.retrieve(name, [META_ID]))
        except CollectionGone:
            return None
        with _read_from(name):
            return read_metadata(found[0].payload) if found else None

    def size(self, collection: Collection) -> CollectionSize:
        """How much it holds."""
        return CollectionSize(
            self._count(collection, head=True),
            self._passages(collection),
            self._count(collection, waits=True),
        )

    # -- searching

    def words(
        self, collection: Collection, query: Sequence[str], count: int, *, only: Only | None = None
    ) -> WordMatches:
        """The best `count` of the passages that hold any of these tokens; 0: only the facts."""
        frequencies, passages = self._frequencies(collection, query), self._passages(collection)
        if not query or not count:
            return WordMatches({}, frequencies, passages)
        from qdrant_client import models

        rarity = rarities(frequencies, passages)
        places = {token_place(token): value for token, value in rarity.items()}
        asked = models.SparseVector(indices=list(places), values=list(places.values()))
        found = self._server.ask(
            lambda client: client.query_points(
                collection.physical,
                query=asked,
                using=WORDS,
                limit=count,
                query_filter=fitting(only),
                with_payload=[*_FIELDS, *OWNER_KEYS],
            )
        )
        scores: dict[int, float] = {}
        owners = {str(point.id): point.payload or {} for point in found.points}
        whole = self._whole(collection.physical, owners)
        for point in found.points:
            if str(point.id) not in whole:
                continue
            row = row_of(point.id)
            fields = _fields_of(point.payload, collection.physical)
            if rarity.keys() & set(" ".join(fields).split()):
                self._fields[collection.physical, row] = fields
                scores[row] = point.score
        return WordMatches(scores, frequencies, passages)

    def nearest(
        self,
        collection: Collection,
        queries: Vectors,
        count: int,
        *,
        also: Sequence[int] = (),
        only: Only | None = None,
    ) -> list[dict[int, float]]:
        """For each vector the cosines of the nearest passages and of those in `also`."""
        if not collection.manifest.dims:
            return [{} for _ in queries]
        name, points = collection.physical, [id_of(row) for row in also]
        found, owners = nearest_of(self._server, name, queries, count, points, fitting(only))
        return [self._rows(name, near, owners) for near in found]

    def _rows(self, name: str, found: Mapping[str, float], owners: PointOwners) -> dict[int, float]:
        """Without those whose records are not there whole; asked for by name, they are."""
        owned = {point: owners[point] for point in found if point in owners}
        torn = owned.keys() - self._whole(name, owned)
        return {row_of(point): value for point, value in found.items() if point not in torn}

    def _whole(self, name: str, owners: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """The points whose record is there whole: another process may be writing it just now, or
        was killed while it did."""
        heads = {
            point: _head_of(point, owner)
            for point, owner in owners.items()
            if "record" in owner and "digest" in owner
        }
        self._heads |= {(name, head) for point, head in heads.items() if point == head}
        asked = dict.fromkeys(head for head in heads.values() if (name, head) not in self._heads)
        self._heads |= {(name, head) for head in self.present(name, list(asked))}
        return {point for point, head in heads.items() if (name, head) in self._heads}

    def _frequencies(self, collection: Collection, query: Iterable[str]) -> dict[str, int]:
        """In how many passages each token stands."""
        counted = self._known(collection).frequencies
        asked = list(query)
        missing = [token for token in dict.fromkeys(asked) if token not in counted]

        def count(token: str) -> int:
            return self._count(collection, tokens=token)

        if len(missing) > _FEW and self._server.parallel:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(_THREADS, len(missing))) as pool:
                counted.update(zip(missing, pool.map(count, missing), strict=True))
        else:
            counted.update((token, count(token)) for token in missing)
        return {token: counted[token] for token in asked}

    def _passages(self, collection: Collection) -> int:
        facts = self._known(collection)
        if facts.passages is None:
            facts.passages = self._count(collection, passage=True)
        return facts.passages

    def _known(self, collection: Collection) -> CollectionFacts:
        facts = self._facts.get(collection.physical)
        if facts is None or facts.state != collection.state:
            facts = self._facts[collection.physical] = CollectionFacts(collection.state, {})
        return facts

    def _count(self, collection: Collection, **wanted: Any) -> int:
        return self.count(collection.physical, holding(**wanted))

    def count(self, name: str, having: models.Filter) -> int:
        """How many points fit."""
        return self._server.ask(
            lambda client: client.count(name, count_filter=having, exact=True)
        ).count

    # -- passages and records

    def fetch(
        self, collection: Collection, rows: Iterable[int], *, records: bool = False
    ) -> dict[int, StoredPassage]:
        """These passages, with their records if wanted."""
        name, wanted = collection.physical, list(rows)
        if records:
            self._fetch_records(name, wanted)
        missing = {id_of(row): row for row in wanted if (name, row) not in self._fields}
        for point, payload in self._payloads(name, missing, _FIELDS).items():
            self._fields[name, missing[point]] = _fields_of(payload, name)
        return {
            row: StoredPassage(
                self._fields[name, row], self._records[name, row] if records else None
            )
            for row in wanted
        }

    def _fetch_records(self, name: str, rows: Sequence[int]) -> None:
        missing = {id_of(row): row for row in rows if (name, row) not in self._records}
        payloads = self._payloads(name, missing, _EVERYTHING)
        for point, payload in payloads.items():
            self._fields[name, missing[point]] = _fields_of(payload, name)
        heads = {point: _head_of(point, payload) for point, payload in payloads.items()}
        others = dict.fromkeys(head for head in heads.values() if head not in payloads)
        payloads |= self._payloads(name, others, _EVERYTHING)
        with _read_from(name):
            records = {head: record_of(payloads[head]) for head in dict.fromkeys(heads.values())}
        for point, head in heads.items():
            self._records[name, missing[point]] = records[head]

    def _payloads(
        self, name: str, points: Iterable[str], keys: list[str]
    ) -> dict[str, Mapping[str, Any]]:
        """The payloads of all of these points; CollectionGone where one is missing."""
        wanted = list(points)
        found: dict[str, Mapping[str, Any]] = {}
        for some in chunks(wanted, _LARGE_PAGE if keys is _EVERYTHING else PAGE):
            points_found = self._retrieved(name, some, keys)
            found.update((str(point.id), point.payload or {}) for point in points_found)
        if len(found) < len(wanted):
            raise CollectionGone(f"{len(wanted) - len(found)} points are not there any more")
        return found

    def _retrieved(
        self, name: str, points: list[str], keys: list[str] | bool
    ) -> list[models.Record]:
        return self._server.ask(lambda client: client.retrieve(name, points, with_payload=keys))

    def present(self, name: str, points: list[str]) -> Iterator[str]:
        """Those of these points that are there."""
        for some in chunks(points, PAGE):
            yield from (str(point.id) for point in self._retrieved(name, some, False))

    # -- for whoever syncs and checks

    def waiting(self, collection: Collection, count: int) -> list[tuple[int, str]]:
        """Passages that have no vector yet, and the text to make one from."""
        found = self._scrolled(collection, ["waiting"], page=min(count, PAGE), waits=True)
        return [(row_of(one.id), one.payload["waiting"]) for one in itertools.islice(found, count)]

    def content(self, collection: Collection, *, vectors: bool = True) -> StoredContent:
        """Everything: to check it, or to use its vectors again (F16)."""
        heads = self._scrolled(collection, ["record", "digest"], head=True)
        keys = frozenset((one.payload["record"], one.payload["digest"]) for one in heads)
        found: dict[bytes, bytes] = {}
        if vectors:
            for point in self._scrolled(collection, ["hash"], vectors=True, passage=True):
                if blob := vectors_blob(point.vector):
                    found[bytes.fromhex(point.payload["hash"])] = blob
        return StoredContent(keys, found)

    def _scrolled(
        self,
        collection: Collection,
        keys: list[str],
        *,
        vectors: bool = False,
        page: int = PAGE,
        **wanted: Any,
    ) -> Iterator[Any]:
        name = collection.physical
        return scrolled(self._server, name, holding(**wanted), keys, vectors=vectors, page=page)


@contextlib.contextmanager
def _read_from(name: str) -> Iterator[None]:
    """Say which collection it is that cannot be read."""
    try:
        yield
    except Corrupt as damage:
        raise CollectionDamaged(str(damage), name) from None


def _fields_of(payload: Mapping[str, Any] | None, name: str) -> Fields:
    fields = payload or {}
    if any(not isinstance(fields.get(key), str) for key in _FIELDS):
        raise CollectionDamaged("a passage has no words", name)
    return fields["title"], fields["text"], fields["places"]


def _head_of(point: str, payload: Mapping[str, Any]) -> str:
    """The point that holds the record which this one is a passage of."""
    return point if "head" in payload else point_id(payload["record"], payload["digest"], 0)
