"""The index on a Qdrant server: the same promises as the embedded one, by URL.

A passage is a point; a collection's generations are Qdrant collections, and the one that answers
is the one its alias names. Qdrant's client is imported when it is first used.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import math
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Some
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ralph import disk
from ralph.errors import IndexOff
from ralph.index import ASIDE_WEIGHT, Manifest, Only
from ralph.index.matrix import NEARNESS_DIGITS
from ralph.index.port import Collection, Corrupt, IndexedRecord
from ralph.index.qdrant_points import (
    ASIDE_MEANING,
    FACET,
    INDEXES,
    MEANING,
    META_ID,
    STONE,
    WORDS,
    CollectionMetadata,
    QdrantPoint,
    id_of,
    in_batches,
    named_vectors,
    passage_length,
    point_id,
    points_of,
    read_metadata,
    record_of,
    row_of,
    stone_id,
    token_place,
    vectors_blob,
)
from ralph.index.qdrant_server import (
    PAGE,
    CollectionDamaged,
    CollectionGone,
    NameTaken,
    QdrantConnection,
    chunks,
    fitting,
    holding,
    scrolled,
)
from ralph.index.sync import IndexSpec, Progress, Synced, is_current, sync
from ralph.records import Record

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

    from ralph.index import Vectors


# -- What is written to a server: each request waited for until it is done, and safe to repeat.


# The parameters that the source documents ask for.
HNSW_M, HNSW_EF_CONSTRUCT = 64, 512


class QdrantWriter:
    """Everything that changes something on a server."""

    def __init__(self, server: QdrantConnection) -> None:
        self._server = server

    def make_collection(self, physical: str, dims: int) -> None:
        """An empty collection; Taken where there is one of this name."""
        from qdrant_client import models

        hnsw = models.HnswConfigDiff(m=HNSW_M, ef_construct=HNSW_EF_CONSTRUCT, on_disk=True)
        pieces = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        dense = {
            name: models.VectorParams(
                size=dims,
                distance=models.Distance.COSINE,
                on_disk=True,
                hnsw_config=hnsw,
                multivector_config=pieces,
            )
            for name in (MEANING, ASIDE_MEANING)
            if dims
        }
        words = models.SparseVectorParams(index=models.SparseIndexParams(on_disk=True))
        self._server.ask(
            lambda client: client.create_collection(
                physical,
                vectors_config=dense,
                sparse_vectors_config={WORDS: words},
                hnsw_config=hnsw,
                on_disk_payload=True,
            ),
            slow=True,
        )

    def delete_collection(self, physical: str) -> None:
        """Delete it with its aliases, if it is there."""
        with contextlib.suppress(CollectionGone):
            self._server.ask(lambda client: client.delete_collection(physical), slow=True)

    def point_alias(self, physical: str, alias: str, *, instead: str | None = None) -> None:
        """Let a name lead to a collection, in one request; `instead` of another name."""
        from qdrant_client import models

        changes: list[models.AliasOperations] = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=one))
            for one in (alias, instead)
            if one is not None
        ]
        made = models.CreateAlias(collection_name=physical, alias_name=alias)
        changes.append(models.CreateAliasOperation(create_alias=made))
        try:
            self._server.ask(lambda client: client.update_collection_aliases(changes), slow=True)
        except NameTaken:
            what = f"has a collection of somebody else's that is called {alias}"
            raise self._server.off(what, "Rename or delete it; Ralph needs the name.") from None

    def index_payload(self, physical: str, field: str, kind: str) -> None:
        """Let points be filtered by this field."""
        from qdrant_client import models

        schema = models.PayloadSchemaType(kind)
        self._settled(
            lambda client: client.create_payload_index(physical, field, field_schema=schema)
        )

    def upsert(self, name: str, points: Iterable[QdrantPoint]) -> None:
        """Write these points, whole."""
        from qdrant_client import models

        made = [
            models.PointStruct(id=one.id, payload=one.payload, vector=_vectors(one))
            for one in points
        ]
        self._settled(lambda client: client.upsert(name, made, wait=True))

    def update_vectors(self, name: str, points: Iterable[QdrantPoint]) -> None:
        """Give vectors to points that are there."""
        from qdrant_client import models

        made = [models.PointVectors(id=one.id, vector=_vectors(one)) for one in points]
        self._settled(lambda client: client.update_vectors(name, made, wait=True))

    def clear_payload(self, name: str, keys: Sequence[str], points: Sequence[str]) -> None:
        """Take fields from points."""
        chosen = _listed(points)
        self._settled(lambda client: client.delete_payload(name, keys, chosen, wait=True))

    def set_payload(self, name: str, payload: dict[str, Any], points: Sequence[str]) -> None:
        """Set fields of points."""
        chosen = _listed(points)
        self._settled(lambda client: client.set_payload(name, payload, chosen, wait=True))

    def delete(self, name: str, having: models.Filter) -> None:
        """Delete what fits."""
        self._settled(lambda client: client.delete(name, having, wait=True))

    def delete_points(self, name: str, points: Sequence[str]) -> None:
        """Delete these."""
        chosen = _listed(points)
        self._settled(lambda client: client.delete(name, chosen, wait=True))

    def _settled(self, work: Callable[[QdrantClient], models.UpdateResult]) -> None:
        """See that it is done, and not only taken note of."""
        status = self._server.ask(work, slow=True).status.value
        if status != "completed":
            raise self._server.off(f"did not finish writing ({status})")


def _vectors(point: QdrantPoint) -> Any:
    from qdrant_client import models

    vectors: dict[str, Any] = dict(point.vectors)
    if point.words:
        vectors[WORDS] = models.SparseVector(indices=point.words[0], values=point.words[1])
    return vectors


def _listed(points: Sequence[str]) -> models.PointIdsList:
    from qdrant_client import models

    return models.PointIdsList(points=list(points))


# -- What a collection is called on a server: its aliases, and its generations.


PREFIX = "ralph-"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_GENERATION = re.compile(r"(.+)-g([0-9]+)")


class CollectionNames(msgspec.Struct, frozen=True):
    """The names of one memory's collections in one place (F18).

    `scope` tells what its collections' names begin with; a project's id may be made later.
    `place` tells apart what shares a scope and not its journals: clones, homes, databases.
    """

    scope: Callable[[], str]
    place: str | Callable[[], str] = ""

    def alias(self, name: str) -> str:
        """Under which the collection answers."""
        plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._before + plain

    def building(self, name: str) -> str:
        """Under which the generation is found that is to replace the one that answers."""
        return f"{self.alias(name)}-next"

    def physical(self, name: str, generation: int) -> str:
        """The collection of one generation."""
        return f"{self.alias(name)}-g{generation}"

    def generation(self, physical: str) -> int | None:
        """Which generation of one of ours this is; None for somebody else's."""
        found = _GENERATION.fullmatch(physical)
        mine = found is not None and found[1].startswith(self._before + self.scope())
        return int(found[2]) if found is not None and mine else None

    def is_of(self, physical: str, name: str) -> bool:
        """Whether this is a generation of that collection."""
        found = _GENERATION.fullmatch(physical)
        return found is not None and found[1] == self.alias(name)

    @property
    def _before(self) -> str:
        place = self.place if isinstance(self.place, str) else self.place()
        return f"{PREFIX}{place}-" if place else PREFIX


# -- What was counted in a collection, and how rare its words are.


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


# -- The nearest passages on a Qdrant server, as near as the embedded index says they are.
#
# A passage is as near as its nearest piece; its asides stand under another name, because Qdrant
# brings vectors to length one, and count a little less.


# The search parameter that the source documents ask for.
HNSW_EF = 128
# How many searches go in one request.
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
    whose: PointOwners = {}
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = [one.tolist() for one in queries[start : start + _QUERIES_AT_ONCE]]
        found += _some(server, name, some, count, also, having, whose)
    return found, whose


def _some(
    server: QdrantConnection,
    name: str,
    queries: list[list[float]],
    count: int,
    also: Sequence[str],
    having: models.Filter | None,
    whose: PointOwners,
) -> list[Near]:
    requests: list[models.QueryRequest] = []
    for query in queries:
        for using in (MEANING, ASIDE_MEANING):
            requests.append(_request(query, using, count, having))
            if also:
                requests.append(_among(query, using, also))
    answers = iter(_answers(server, name, requests, whose))
    gathered: list[_QueryMatches] = []
    for _ in queries:
        sides = [
            _SideMatches(next(answers), count, among=next(answers) if also else {})
            for _ in range(2)
        ]
        gathered.append(_QueryMatches(*sides))
    _look_closer(server, name, queries, gathered)
    return [one.nearest(count, also) for one in gathered]


class _SideMatches:
    """What a question found among the pieces, or among the asides."""

    def __init__(self, top: Near, count: int, *, among: Near) -> None:
        self.full = len(top) >= count
        self.least = min(top.values(), default=0.0)
        self.values = top | among


class _QueryMatches:
    """What a question found on both sides."""

    def __init__(self, main: _SideMatches, asides: _SideMatches) -> None:
        self.main = main
        self.asides = asides

    def unsure(self) -> list[str]:
        """Those whose aside may be nearer than the piece that was found."""
        if not self.asides.full:
            return []
        bound = ASIDE_WEIGHT * self.asides.least
        known = self.asides.values
        return [
            point
            for point, value in self.main.values.items()
            if value < bound and point not in known
        ]

    def nearest(self, count: int, also: Sequence[str]) -> Near:
        near = dict(self.main.values)
        for point, value in self.asides.values.items():
            weighed = ASIDE_WEIGHT * value
            if point in near:
                near[point] = max(near[point], weighed)
            elif not self.main.full or weighed >= self.main.least:
                # Its piece was not found, so it is farther than all that were.
                near[point] = weighed
        order = sorted(near, key=lambda point: (-near[point], point))
        kept = dict.fromkeys(order[:count])
        kept |= dict.fromkeys(point for point in also if point in near)
        return {point: round(near[point], NEARNESS_DIGITS) for point in kept}


def _look_closer(
    server: QdrantConnection,
    name: str,
    queries: Sequence[list[float]],
    gathered: Sequence[_QueryMatches],
) -> None:
    """Ask for the asides that decide."""
    unsure = [(place, points) for place, one in enumerate(gathered) if (points := one.unsure())]
    if not unsure:
        return
    requests = [_among(queries[place], ASIDE_MEANING, points) for place, points in unsure]
    for (place, _), values in zip(unsure, _answers(server, name, requests, {}), strict=True):
        gathered[place].asides.values.update(values)


def _answers(
    server: QdrantConnection, name: str, requests: Sequence[models.QueryRequest], whose: PointOwners
) -> list[Near]:
    answers = server.ask(lambda client: client.query_batch_points(name, requests))
    points = [point for one in answers for point in one.points]
    whose.update((str(point.id), point.payload) for point in points if point.payload)
    return [{str(point.id): point.score for point in one.points} for one in answers]


def _request(
    query: list[float], using: str, count: int, having: models.Filter | None
) -> models.QueryRequest:
    from qdrant_client import models

    params = models.SearchParams(hnsw_ef=HNSW_EF)
    return models.QueryRequest(
        query=[query],
        using=using,
        limit=count,
        filter=having,
        params=params,
        with_payload=OWNER_KEYS,
    )


def _among(query: list[float], using: str, points: Sequence[str]) -> models.QueryRequest:
    from qdrant_client import models

    return models.QueryRequest(
        query=[query],
        using=using,
        limit=len(points),
        filter=models.Filter(must=[models.HasIdCondition(has_id=list(points))]),
        params=models.SearchParams(exact=True),
    )


# -- Reading a Qdrant index: everything one query needs, in as few requests as it takes.
#
# A server keeps no unchanging state for us. What a view has read it keeps, and what disappears
# under it is told as Gone, so that whoever asked looks again.


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

    def __init__(
        self, server: QdrantConnection, names: CollectionNames, facts: dict[str, CollectionFacts]
    ) -> None:
        self._server = server
        self._names = names
        self._facts = facts
        self._fields: dict[tuple[str, int], Fields] = {}
        self._records: dict[tuple[str, int], tuple[int, Record]] = {}
        self._metadata: dict[str, CollectionMetadata | None] = {}
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

    def _seen(self, alias: str) -> CollectionMetadata | None:
        if alias not in self._metadata:
            self._metadata[alias] = self.metadata(alias)
        return self._metadata[alias]

    def metadata(self, name: str) -> CollectionMetadata | None:
        """What the generation under this name or alias says of itself."""
        try:
            found = self._server.ask(lambda client: client.retrieve(name, [META_ID]))
        except CollectionGone:
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
                with_payload=[*_FIELDS, *OWNER_KEYS],
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

    def _rows(self, name: str, found: Mapping[str, float], whose: PointOwners) -> dict[int, float]:
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
            raise CollectionGone(f"{len(wanted) - len(found)} points are not there any more")
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
        raise CollectionDamaged(str(damage), name) from None


def _fields_of(payload: Mapping[str, Any] | None, name: str) -> Fields:
    held = payload or {}
    if any(not isinstance(held.get(key), str) for key in _FIELDS):
        raise CollectionDamaged("a passage has no words", name)
    return held["title"], held["text"], held["places"]


# -- Whether a collection on a server has the parameters it should have.


def faults(told: models.CollectionInfo, manifest: Manifest) -> list[str]:
    """What is not as it should be; somebody may have changed or restored the collection."""
    found: list[str] = []
    vectors = told.config.params.vectors
    named = vectors if isinstance(vectors, dict) else {}
    for name in (MEANING, ASIDE_MEANING) if manifest.dims else ():
        params = named.get(name)
        if params is None:
            found.append(f"it has no vectors named {name}")
            continue
        if params.size != manifest.dims:
            found.append(f"its vectors have {params.size} dimensions instead of {manifest.dims}")
        if params.distance.value != "Cosine":
            found.append(f"its distance is {params.distance.value} instead of Cosine")
        hnsw = params.hnsw_config
        if hnsw is None or (hnsw.m, hnsw.ef_construct) != (HNSW_M, HNSW_EF_CONSTRUCT):
            found.append(f"its HNSW is not m {HNSW_M}, ef_construct {HNSW_EF_CONSTRUCT}")
        if not params.on_disk:
            found.append("its vectors are not on disk")
    if WORDS not in (told.config.params.sparse_vectors or {}):
        found.append(f"it has no sparse vectors named {WORDS}")
    # Qdrant's local mode has no payload indexes at all.
    if told.payload_schema and (missing := sorted(INDEXES.keys() - told.payload_schema.keys())):
        found.append(f"it has no payload index on {', '.join(missing)}")
    return list(dict.fromkeys(found))


# -- Writing a Qdrant index: points first and waited for, then the metadata that moves the
# position.
#
# Ids come from content and every request may be repeated, so a sync that was killed, or two at
# once on different machines, only do work twice. A rebuild grows in a collection of its own and
# takes the alias over in one request.


_WAITING = ("waits", "waiting")
_POINTS_AT_ONCE = 256
_BYTES_AT_ONCE = 8 * 1024 * 1024
# How long passages are, until a first batch is large enough to tell.
_USUAL_TOKENS = 100.0
_TELLING_PASSAGES = 50
_NAME_TRIES = 20


class QdrantStore:
    """The collections of one place on a Qdrant server."""

    def __init__(self, server: QdrantConnection, names: CollectionNames) -> None:
        self._server = server
        self._names = names
        self._writer = QdrantWriter(server)
        self._facts: dict[str, CollectionFacts] = {}
        # The sweeps that were begun here and are not done.
        self._sweeps: dict[str, int] = {}

    @property
    def title(self) -> str:
        """What people call it."""
        return "Qdrant"

    @property
    def where(self) -> str:
        """The server, without its key."""
        return self._server.where

    # -- reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[QdrantView]:
        """A view for one query; writers go on beside it."""
        yield self._view()

    def collections(self) -> list[Collection]:
        """Every generation of every collection of this place."""
        aliases = self._aliases()
        view = self._view()
        found: list[Collection] = []
        for physical in self._physical():
            metadata = view.metadata(physical)
            if metadata is not None:
                live = aliases.get(self._names.alias(metadata.name)) == physical
                found.append(metadata.collection(live=live))
        return found

    def generations(self, name: str) -> tuple[Collection | None, Collection | None]:
        """The collection that answers, and the one that is being built to replace it."""
        return self._view().generations(name)

    # -- writing

    def create(self, name: str, stream: str, manifest: Manifest, *, live: bool) -> Collection:
        """A new, empty generation; others that do not answer are dropped.

        Its alias comes last: what was killed before is nobody's, and dropped by the next.
        """
        answering = self._aliases().get(self._names.alias(name))
        others = [one for one in self._physical() if self._names.is_of(one, name)]
        newest = max((self._names.generation(one) or 0 for one in others), default=0)
        physical, generation = self._made(name, newest + 1, manifest.dims)
        metadata = CollectionMetadata(
            name=name,
            stream=stream,
            physical=physical,
            generation=generation,
            manifest=manifest,
            average=0.0,
            indexed=tuple(sorted(INDEXES)),
        )
        for field, kind in INDEXES.items():
            self._writer.index_payload(physical, field, kind)
        metadata = self._say(metadata)
        alias = self._names.alias(name) if live else self._names.building(name)
        self._writer.point_alias(physical, alias)
        for other in others:
            if other != answering or live:
                self._delete_collection(other)
        return metadata.collection(live=live)

    def write(
        self,
        collection: Collection,
        rows: Sequence[IndexedRecord],
        *,
        forget: Some[str],
        seen: Sequence[tuple[str, str]],
        position: str,
        restart: bool,
        done: bool,
    ) -> int:
        """Index one batch, then move the position; how many were forgotten."""
        name = collection.physical
        metadata = self._metadata(name)
        if restart:
            # Told first: a sweep that is begun again must not take its forerunner's marks for its
            # own.
            metadata = msgspec.structs.replace(metadata, sweep=metadata.sweep + 1, sweeping=True)
            self._say(metadata)
            self._writer.delete(name, holding(buried=True))
            self._sweeps[name] = metadata.sweep
        elif self._sweeps.get(name) not in (None, metadata.sweep if metadata.sweeping else -1):
            del self._sweeps[name]
            raise CollectionGone("another machine brings the same collection up to its journal")
        metadata = self._prepared(metadata, rows)
        self._upsert_rows(metadata, rows)
        if metadata.sweeping:
            heads = [point_id(record_id, digest, 0) for record_id, digest in seen]
            for some in chunks(heads, PAGE):
                self._writer.set_payload(name, {"sweep": metadata.sweep}, some)
        removed = self._forget(name, list(forget)) if forget else 0
        swept = 0
        if done and metadata.sweeping:
            swept = self._swept(metadata)
            metadata = msgspec.structs.replace(metadata, sweeping=False)
            self._sweeps.pop(name, None)
        gone = metadata.removals + int(bool(removed or swept))
        self._say(msgspec.structs.replace(metadata, position=position, removals=gone))
        return removed

    def fill(self, collection: Collection, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Give vectors to passages that waited for the embedder."""
        if not vectors:
            return
        name, dims = collection.physical, collection.manifest.dims
        made = [
            QdrantPoint(id_of(row), {}, named_vectors(blob, dims), None) for row, blob in vectors
        ]
        for some in in_batches(made, most=_POINTS_AT_ONCE, most_bytes=_BYTES_AT_ONCE):
            self._writer.update_vectors(name, some)
            self._writer.clear_payload(name, _WAITING, [point.id for point in some])
        self._say(self._metadata(name))

    def replace_live(self, collection: Collection) -> None:
        """Let a built generation answer from now on, and drop the one before."""
        alias = self._names.alias(collection.name)
        building = self._names.building(collection.name)
        before = self._aliases().get(alias)
        self._writer.point_alias(collection.physical, alias, instead=building)
        if before is not None and before != collection.physical:
            self._delete_collection(before)

    def drop_building(self, name: str) -> None:
        """Give up generations that were being built; the live one stays."""
        answering = self._aliases().get(self._names.alias(name))
        for physical in self._physical():
            if self._names.is_of(physical, name) and physical != answering:
                self._delete_collection(physical)

    def drop(self, name: str) -> None:
        """Delete a collection, every generation of it."""
        for physical in self._physical():
            if self._names.is_of(physical, name):
                self._delete_collection(physical)

    def drop_all(self) -> None:
        """Delete everything of this place."""
        for physical in self._physical():
            self._delete_collection(physical)

    def unused(self) -> list[str]:
        """Generations that no alias names: of a sync that was killed. Others may be at work."""
        named = set(self._aliases().values())
        return [physical for physical in self._physical() if physical not in named]

    def drop_generation(self, name: str) -> None:
        """Delete one generation, by its own name or by its alias."""
        self._delete_collection(self._aliases().get(name, name))

    def soiled(self) -> bool:
        """Never: no file of ours holds anything."""
        return False

    def scrub(self) -> None:
        """Nothing to do: no file of ours holds anything."""

    def compact(self) -> None:
        """Nothing to do: the server gives back space by itself."""

    def check(self) -> list[str]:
        """What of the collections is not as it should be."""
        found: list[str] = []
        for one in self.collections():
            told = self._view().told_of(one.physical)
            found += [f"{one.physical}: {fault}" for fault in faults(told, one.manifest)]
        return found

    def close(self) -> None:
        """Nothing to do: connections are kept for whoever asks next."""

    # -- records

    def _prepared(
        self, metadata: CollectionMetadata, rows: Sequence[IndexedRecord]
    ) -> CollectionMetadata:
        """With what must be known and indexed before these rows come."""
        passages = [passage for row in rows for passage in row.passages]
        if passages and not metadata.average:
            average = _USUAL_TOKENS
            if len(passages) >= _TELLING_PASSAGES:
                average = sum(map(passage_length, passages)) / len(passages)
            metadata = msgspec.structs.replace(metadata, average=max(average, 1.0))
        facets = {FACET + name for passage in passages for name in passage.facets}
        if new := sorted(facets.difference(metadata.indexed)):
            for field in new:
                self._writer.index_payload(metadata.physical, field, "keyword")
            metadata = msgspec.structs.replace(metadata, indexed=(*metadata.indexed, *new))
        return metadata

    def _upsert_rows(self, metadata: CollectionMetadata, rows: Sequence[IndexedRecord]) -> None:
        """Heads last: where one stands, the record is there whole."""
        others: list[QdrantPoint] = []
        heads: list[QdrantPoint] = []
        for row in rows:
            *more, head = points_of(
                row,
                sweep=metadata.sweep,
                dims=metadata.manifest.dims,
                average=metadata.average or _USUAL_TOKENS,
            )
            others += more
            heads.append(head)
        for points in (others, heads):
            for some in in_batches(points, most=_POINTS_AT_ONCE, most_bytes=_BYTES_AT_ONCE):
                self._writer.upsert(metadata.physical, some)

    def _forget(self, name: str, ids: list[str]) -> int:
        from qdrant_client import models

        removed = 0
        stones = [
            QdrantPoint(stone_id(one), {"type": STONE, "buried": True, "id": one}, {}, None)
            for one in ids
        ]
        for some in in_batches(stones, most=_POINTS_AT_ONCE, most_bytes=_BYTES_AT_ONCE):
            self._writer.upsert(name, some)
        for part in chunks(ids, PAGE):
            heads = holding(record=part, head=True)
            removed += self._view().count(name, heads)
            # Heads last here too: what is half gone must be seen again.
            rest = models.Filter(must=[holding(record=part)], must_not=[holding(head=True)])
            self._writer.delete(name, rest)
            self._writer.delete(name, heads)
        return removed

    def _swept(self, metadata: CollectionMetadata) -> int:
        """Take out what the sweep has not met; how many records."""
        from qdrant_client import models

        older = models.FieldCondition(key="sweep", range=models.Range(lt=metadata.sweep))
        stale = models.Filter(must=[holding(head=True), older])
        found = scrolled(self._server, metadata.physical, stale, ["record", "digest", "count"])
        heads = [
            (one.payload["record"], one.payload["digest"], one.payload["count"]) for one in found
        ]
        rest = [
            point_id(record_id, digest, place)
            for record_id, digest, count in heads
            for place in range(1, count)
        ]
        first = [point_id(record_id, digest, 0) for record_id, digest, _ in heads]
        for points in (rest, first):
            for some in chunks(points, PAGE):
                self._writer.delete_points(metadata.physical, some)
        return len(heads)

    # -- requests

    def _view(self) -> QdrantView:
        return QdrantView(self._server, self._names, self._facts)

    def _metadata(self, name: str) -> CollectionMetadata:
        found = self._view().metadata(name)
        if found is None:
            raise CollectionGone("somebody deleted the collection while it was written")
        return found

    def _say(self, metadata: CollectionMetadata) -> CollectionMetadata:
        """Tell how far it has come; everybody sees by its state that something was written."""
        told = msgspec.structs.replace(metadata, state=uuid.uuid4().hex)
        payload: dict[str, Any] = msgspec.to_builtins(told)
        self._writer.upsert(metadata.physical, [QdrantPoint(META_ID, payload, {}, None)])
        return told

    def _aliases(self) -> dict[str, str]:
        found = self._server.ask(lambda client: client.get_aliases()).aliases
        return {one.alias_name: one.collection_name for one in found}

    def _physical(self) -> list[str]:
        """All generations of this place, the oldest first."""
        found = self._server.ask(lambda client: client.get_collections()).collections
        numbers = ((self._names.generation(one.name), one.name) for one in found)
        return [name for _, name in sorted((n, name) for n, name in numbers if n is not None)]

    def _made(self, name: str, generation: int, dims: int) -> tuple[str, int]:
        for number in range(generation, generation + _NAME_TRIES):
            physical = self._names.physical(name, number)
            with contextlib.suppress(NameTaken):  # another machine was faster
                self._writer.make_collection(physical, dims)
                return physical, number
        raise CollectionGone("others make the same collection again and again")

    def _delete_collection(self, physical: str) -> None:
        self._facts.pop(physical, None)
        self._sweeps.pop(physical, None)
        self._writer.delete_collection(physical)


# -- The index of one place on a Qdrant server: who syncs at a time, and how it heals.
#
# A lock beside the local cache keeps the processes of one machine from doing the same work.
# Between machines nothing is locked: what two of them write is the same, and a position that goes
# back only means that a part of the journal is read again.


_log = logging.getLogger("ralph")
_LOCK_NAME = "index.lock"
_TRIES = 3
# Up to so many, a collection from which something was forgotten is written anew.
_RENEWED_PASSAGES = 5000
_T = TypeVar("_T")


class QdrantIndex:
    """A store on a server, with the promises of the embedded index."""

    def __init__(
        self,
        server: QdrantConnection,
        names: CollectionNames,
        folders: Sequence[Path],
        *,
        lock_timeout_s: float,
    ) -> None:
        self._server = server
        self._store = QdrantStore(server, names)
        self._folders = folders
        self._lock_timeout_s = lock_timeout_s
        self._path: Path | None = None

    @property
    def store(self) -> QdrantStore:
        """The store."""
        return self._store

    @property
    def path(self) -> Path:
        """Where the lock lies; there is no file of the index."""
        if self._path is None:
            self._path = _writable(self._folders) / "qdrant"
        return self._path

    @property
    def where(self) -> str:
        """The server, without its key."""
        return self._server.where

    @property
    def version(self) -> str:
        """The server's version."""
        return self._server.version

    def check(self) -> None:
        """Ask the server now, whatever was found before; IndexOff says what to do."""
        self._server.check()

    def sync(
        self,
        target: IndexSpec,
        *,
        budget_s: float | None = None,
        afresh: bool = False,
        progress: Progress | None = None,
        lock_timeout_s: float | None = None,
        changed: bool = False,
    ) -> Synced:
        """Bring one collection up to its journal; `changed`: there surely is something to do."""
        patience_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s

        def work() -> Synced:
            if not (afresh or changed) and is_current(self._store, target):
                return Synced(complete=True)
            try:
                return sync(
                    self._store,
                    target,
                    lock=self._lock,
                    lock_timeout_s=patience_s,
                    budget_s=budget_s,
                    afresh=afresh,
                    progress=progress,
                )
            except OSError as error:
                raise IndexOff(
                    f"the index cannot be locked ({error.strerror or error})",
                    where=str(self._lock),
                    todo="Free space or permit writing there; the journal has everything.",
                ) from error

        return self.healed(work)

    def healed(self, work: Callable[[], _T]) -> _T:
        """Do the work; what was replaced or deleted meanwhile is looked at again, and a collection
        that cannot be read is dropped and built anew."""
        last = Corrupt()
        for _ in range(_TRIES):
            try:
                return work()
            except Corrupt as error:
                last = error
                if isinstance(error, CollectionDamaged):
                    self._drop_damaged(error)
        raise IndexOff(
            f"the index is not what it should be, again and again ({last})",
            where=self.where,
            todo="Run: ralph index rebuild. The journal has everything.",
        )

    def erase(self, target: IndexSpec, *, lock_timeout_s: float) -> None:
        """Take what was forgotten out of the server's collection."""
        synced = self.sync(target, lock_timeout_s=lock_timeout_s)
        if not synced.complete and synced.embedder_off is None:
            raise IndexOff("another process is busy with it", where=self.where)
        self.healed(lambda: self._renew(target, lock_timeout_s))

    def _renew(self, target: IndexSpec, lock_timeout_s: float) -> None:
        """A server may keep a deleted point's bytes for long; it deletes a collection's at once."""
        with self._store.reading() as view:
            live = view.live(target.name)
            if live is None or view.passages(live) > _RENEWED_PASSAGES:
                return
        timeout_s = lock_timeout_s
        sync(self._store, target, lock=self._lock, lock_timeout_s=timeout_s, renew=True)

    def drop(self, name: str) -> None:
        """Delete a collection."""
        try:
            with disk.locked(self._lock, timeout_s=self._lock_timeout_s):
                self._store.drop(name)
        except disk.Busy:
            raise IndexOff(
                "another process is building the index",
                where=self.where,
                todo="Try again when it has finished.",
            ) from None

    def remove_others(self) -> list[Path]:
        """Delete generations that no alias names, and name them; IndexOff as everywhere."""
        try:
            with disk.locked(self._lock, timeout_s=self._lock_timeout_s):
                unused = self._store.unused()
                for physical in unused:
                    self._store.drop_generation(physical)
        except disk.Busy:
            return []  # whoever is at work sees to it
        return [Path(physical) for physical in unused]

    def delete(self) -> None:
        """Throw this place's collections away."""
        self._store.drop_all()

    def close(self) -> None:
        """Let go; it opens again by itself."""
        self._store.close()

    @property
    def _lock(self) -> Path:
        return self.path.with_name(_LOCK_NAME)

    def _drop_damaged(self, damage: CollectionDamaged) -> None:
        _log.warning(
            "the index was damaged (%s); %s is dropped and rebuilt from the journal",
            damage,
            damage.name,
        )
        self._store.drop_generation(damage.name)


def _writable(folders: Sequence[Path]) -> Path:
    """The first folder that a lock can lie in; one of the system's where there is none."""
    for folder in [*folders, Path(tempfile.gettempdir())]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    raise IndexOff(
        "no folder for the lock of the index can be written to",
        where=str(folders[0]),
        todo="Permit writing there, or set RALPH_HOME to a folder of yours.",
    )
