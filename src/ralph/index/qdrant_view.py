"""Reading a Qdrant index, and the layout of a collection there.

Each passage is one point. The first passage of a record, its head, also contains the record and is
written last: if the head exists, the record is complete. A record without passages has a head, too.

A server has no snapshots. A view keeps what it has read. If points disappear while it reads, it
raises CollectionGone, and the caller tries again.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ralph import index
from ralph.index import ASIDE_WEIGHT, Collection, Corrupt, Only, Rows, bm25
from ralph.index.matrix import NEARNESS_DIGITS
from ralph.records import Record, Source
from ralph.text.tokens import PassageWords

if TYPE_CHECKING:
    from ralph.index import Vectors
    from ralph.index.qdrant import QdrantConnection
    from ralph.index.qdrant_start import CollectionNames

# The vectors of a point: the pieces of its text, its asides, and its words.
MEANING = "meaning"
ASIDE_MEANING = "aside"
WORDS = "words"
METADATA = "metadata"
_SPACE = uuid.UUID("6f1d1f0e-52f4-5b0e-9d0a-6f3c6f1b8a55")
META_ID = str(uuid.uuid5(_SPACE, METADATA))
# How many points to request at once, and how many if each may be large.
PAGE = 256
_LARGE_PAGE = 32
# The search parameter that the source documents require, and how many queries fit in one request.
_HNSW_EF = 128
_QUERIES_AT_ONCE = 32
# How many words are counted in parallel.
_THREADS = 8
_FIELDS = ["title", "text", "places"]
# The payload fields that tell which record a point belongs to.
_OWNER_KEYS = ["record", "digest", "head"]
_EVERYTHING = [*_FIELDS, *_OWNER_KEYS, "type", "number", "at", "source", "body", "body_base64"]
_decode_source = msgspec.json.Decoder(Source).decode

Filter = dict[str, Any]
_T = TypeVar("_T")


class CollectionGone(Corrupt):
    """A collection or point no longer exists: it was replaced or deleted, so try again."""

    replaced = True


class CollectionDamaged(Corrupt):
    """A collection has content that cannot be read; `name` is its name or alias."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what)
        self.name = name


class StoredPoint(msgspec.Struct):
    """A point as the server returns it; fields that were not requested are empty."""

    id: str
    payload: Any = None
    vector: Any = None
    score: float = 0.0

    def __post_init__(self) -> None:
        self.payload = self.payload or {}


class _Points(msgspec.Struct):
    points: list[StoredPoint]
    next_page_offset: Any = None


class CollectionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a collection's metadata point: what it is, and its position."""

    name: str
    stream: str
    physical: str
    manifest: index.Manifest
    average: float = 0.0
    position: str | None = None
    sweep: int = 0
    sweeping: bool = False
    state: str = ""
    indexed: tuple[str, ...] = ()
    type: str = METADATA

    def collection(self, *, live: bool) -> Collection:
        """Return the collection as other modules know it."""
        digest = hashlib.sha256(self.physical.encode()).digest()
        shared = {*self.__struct_fields__} & {*Collection.__struct_fields__}
        facts: dict[str, Any] = {name: getattr(self, name) for name in shared}
        return Collection(id=int.from_bytes(digest[:7]), live=live, **facts)


# -- ids


def point_id(*parts: object) -> str:
    """Return the point id of a passage (record, digest, place) or of a tombstone.

    The same content has the same id on every machine.
    """
    return str(uuid.uuid5(_SPACE, "\0".join(map(str, parts))))


def id_of(row: int) -> str:
    """Return the point id of a row."""
    return str(uuid.UUID(int=row))


def _row_of(point: str) -> int:
    return uuid.UUID(point).int


def _token_place(token: str) -> int:
    """Return a token's index in sparse vectors. Two may share one; `words` checks for that."""
    return int.from_bytes(hashlib.blake2b(token.encode(), digest_size=4).digest())


# -- filters


def chunks(values: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield the values, `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def holding(**wanted: Any) -> Filter:
    """Return a filter for points with these values; a list means any of its values."""
    matches = {key: "any" if isinstance(value, list) else "value" for key, value in wanted.items()}
    return {"must": [{"key": key, "match": {matches[key]: wanted[key]}} for key in wanted]}


# For `_count`: leave out passages that were made from other records.
_BASE = {"without": index.derived_token()}


def _fitting(only: Only) -> Filter | None:
    """Return a filter for points whose wanted facets have one of the values, or no value."""
    must = [{"key": "facets", "match": {"any": group}} for group in index.wanted_tokens(only)]
    return {"must": must} if must else None


def _head_of(point: str, payload: Mapping[str, Any]) -> str:
    """Return the head of the record that this point belongs to."""
    return point if "head" in payload else point_id(payload["record"], payload["digest"], 0)


# -- reading points


def _record_of(payload: Mapping[str, Any], name: str) -> Record:
    """Return the record in the payload of a head."""
    try:
        record_id, kind, number, at = (payload[key] for key in ("record", "type", "number", "at"))
        body = payload.get("body")
        source = _decode_source(payload["source"])
        raw = base64.b64decode(payload["body_base64"]) if body is None else body.encode()
        record = Record(str(record_id), kind, int(number), at, raw, source)
        fits = record.digest == payload["digest"]
    except (LookupError, AttributeError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise CollectionDamaged(f"a point's record cannot be read ({error})", name) from None
    if not fits:
        raise CollectionDamaged(f"record {record.id} does not match its digest", name)
    return record


def _words_of(payload: Mapping[str, Any], name: str) -> PassageWords:
    if any(not isinstance(payload.get(key), str) for key in _FIELDS):
        raise CollectionDamaged("a passage has no words", name)
    return PassageWords(payload["title"], payload["text"], payload["places"])


def named_vectors(blob: bytes, dims: int) -> dict[str, list[list[float]]]:
    """Return a passage's vectors by name. Qdrant normalizes them, so asides need their own name."""
    import numpy as np

    if not dims or not blob or len(blob) % (4 * dims):
        raise Corrupt("a vector of another length than it should have")
    rows = np.frombuffer(blob, dtype=np.float32).reshape(-1, dims)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    aside = (lengths > 0.0) & (lengths < (1.0 + ASIDE_WEIGHT) / 2.0)
    scaled = (rows[aside] / lengths[aside, None]).astype(np.float32)
    named = {MEANING: rows[~aside].tolist(), ASIDE_MEANING: scaled.tolist()}
    return {name: vectors for name, vectors in named.items() if vectors}


def _vectors_blob(vectors: Any) -> bytes:
    """Return a passage's vectors as one blob, with the weight of asides; empty if it has none."""
    import numpy as np

    return b"".join(
        (np.array(vectors[name], dtype=np.float32) * np.float32(weight)).tobytes()
        for name, weight in ((MEANING, 1.0), (ASIDE_MEANING, ASIDE_WEIGHT))
        if isinstance(vectors, dict) and vectors.get(name)
    )


def word_weights(fields: Sequence[Sequence[str]], relative_length: float) -> dict[int, float]:
    """Return the BM25 weight of each token in a passage, without its rarity, by vector index."""
    found: dict[int, float] = {}
    for token, count in bm25.weighted_counts(fields).items():
        place = _token_place(token)
        found[place] = found.get(place, 0.0) + bm25.share(count, relative_length)
    return found


def _rarities(frequencies: Mapping[str, int], count: int) -> dict[str, float]:
    """Return the rarity of each token, from its frequency in `count` passages."""
    return {token: bm25.rarity(times, count) for token, times in frequencies.items()}


# An answer with one list of objects, under a name.
_Listed = dict[str, list[dict[str, str]]]


class QdrantView(msgspec.Struct, eq=False):
    """A Qdrant index during one query."""

    server: QdrantConnection
    names: CollectionNames
    # Counts per collection, with the `state` they are valid for: until the next write.
    facts: dict[str, tuple[str, dict[object, int]]]
    passages: dict[tuple[str, str], PassageWords] = {}
    known: dict[str, CollectionMetadata | None] = {}
    # Heads known to exist, which means their records are complete.
    heads: set[tuple[str, str]] = set()

    # -- collections

    def collections(self, name: str | None = None) -> list[Collection]:
        """Return the collections with this name, or all: live ones and those being built."""
        if name is not None:
            listed = [self.names.alias(name), self.names.building(name)]
        else:
            aliases = self.aliases()
            listed = self.physical()
        found: list[Collection] = []
        for place in listed:
            if place not in self.known:
                self.known[place] = self.metadata(place)
            if (metadata := self.known[place]) is not None:
                alias = self.names.alias(metadata.name)
                live = place == alias if name is not None else aliases.get(alias) == place
                found.append(self._collection(metadata, live=live))
        return found

    def _collection(self, metadata: CollectionMetadata, *, live: bool) -> Collection:
        collection = metadata.collection(live=live)

        def last_number() -> int:
            newest = {"order_by": {"key": "number", "direction": "desc"}, "limit": 1}
            top = self._page(collection.physical, ["number"], newest).points
            return int(top[0].payload["number"]) if top else 0

        number = self._fact(collection, "last number", last_number)
        waiting = self._count(collection, waits=True) > 0
        return msgspec.structs.replace(collection, last_number=number, waiting=waiting)

    def aliases(self) -> dict[str, str]:
        """Return the collection of each alias on the server, including those of others."""
        found = self.server.ask("GET", "/aliases", returns=_Listed)["aliases"]
        return {one["alias_name"]: one["collection_name"] for one in found}

    def physical(self) -> list[str]:
        """Return the server's names of all collections of this memory."""
        found = self.server.ask("GET", "/collections", returns=_Listed)["collections"]
        return sorted(filter(self.names.owns, (one["name"] for one in found)))

    def metadata(self, name: str) -> CollectionMetadata | None:
        """Return the metadata of the collection with this name or alias, if it exists."""
        try:
            found = self._retrieve(name, [META_ID], True)
            return msgspec.convert(found[0].payload, CollectionMetadata) if found else None
        except CollectionGone:
            return None
        except msgspec.ValidationError as error:
            raise CollectionDamaged(f"its metadata cannot be read: {error}", name) from None

    def size(self, collection: Collection, *, texts: int = 0) -> index.CollectionSize:
        """Return its size, and the first `texts` texts that wait for a vector."""
        records, passages, late = (
            self._count(collection, **{key: True}) for key in ("head", "passage", "waits")
        )
        name = collection.physical
        having = holding(waits=True)
        page = min(texts, PAGE)
        found = self.scroll(name, having, ["waiting"], page=page) if texts else iter(())
        waiting = [(_row_of(p.id), p.payload["waiting"]) for p in itertools.islice(found, texts)]
        return index.CollectionSize(records, passages, late, waiting)

    # -- searching

    def words(
        self, collection: Collection, query: Sequence[str], count: int, *, only: Only = None
    ) -> index.WordMatches:
        """Return the best `count` passages with any of these tokens; for 0, only the counts."""
        # Count this first, so that the threads below share the facts of one state.
        passages = self._count(collection, **_BASE, passage=True)
        asked = dict.fromkeys(query)
        with ThreadPoolExecutor(_THREADS) as pool:
            counts = pool.map(lambda t: self._count(collection, **_BASE, tokens=t), asked)
            frequencies = dict(zip(asked, counts, strict=True))
        facts = index.WordMatches({}, frequencies, passages)
        if not query or not count:
            return facts
        ranked = {token: frequencies[token] for token in index.ranking_tokens(facts)}
        name = collection.physical
        rarity = _rarities(ranked, passages)
        places = {_token_place(token): value for token, value in rarity.items()}
        near = {"nearest": {"indices": [*places], "values": [*places.values()]}}
        search = {"query": near, "using": WORDS, "limit": count, "filter": _fitting(only)}
        search["with_payload"] = [*_FIELDS, *_OWNER_KEYS]
        found = self._of_points(name, "/query", search, returns=_Points).points
        whole = self._whole(name, found)
        scores: dict[int, float] = {}
        for point in found:
            words = _words_of(point.payload, name) if point.id in whole else None
            # Two tokens may share an index in the vector.
            if words and rarity.keys() & set(words.padded.split()):
                self.passages[name, point.id] = words
                scores[_row_of(point.id)] = point.score
        return index.WordMatches(scores, frequencies, passages)

    def nearest(
        self,
        collection: Collection,
        to: Vectors,
        count: int,
        *,
        also: Rows = (),
        only: Only = None,
    ) -> list[index.NearPassages]:
        """Return, for each vector, the passages in `also` and the `count` nearest ones.

        A passage is as near as its nearest piece. Asides count a little less; they have their own
        name, because Qdrant normalizes vectors.
        """
        import numpy as np

        if not collection.manifest.dims:
            return [index.NearPassages([*also], np.full(len(also), np.nan)) for _ in to]
        name = collection.physical
        points = [id_of(row) for row in also]
        having = _fitting(only)
        found: list[index.NearPassages] = []
        for start in range(0, len(to), _QUERIES_AT_ONCE):
            some = to[start : start + _QUERIES_AT_ONCE].tolist()
            # Search by pieces and by asides: the nearest overall are among the results.
            both = itertools.product(some, (MEANING, ASIDE_MEANING))
            params = {"hnsw_ef": _HNSW_EF}
            sides = self._near(name, [_search(*one, count, having, params) for one in both])
            self._complete(name, some, sides, points)
            for main, asides in zip(sides[::2], sides[1::2], strict=True):
                near = {point: ASIDE_WEIGHT * value for point, value in asides.items()}
                near |= {point: max(value, near.get(point, value)) for point, value in main.items()}
                order = sorted(near, key=lambda point: (-near[point], point))[:count]
                chosen = dict.fromkeys([*points, *order])
                cosines = np.array([near.get(point, np.nan) for point in chosen], dtype=np.float64)
                rows = [_row_of(point) for point in chosen]
                found.append(index.NearPassages(rows, cosines.round(NEARNESS_DIGITS)))
        return found

    def _complete(
        self, name: str, queries: list[list[float]], sides: list[dict[str, float]], also: list[str]
    ) -> None:
        """Add the missing cosines: of points found only by pieces or only by asides, and `also`."""
        searches: dict[int, dict[str, Any]] = {}
        for n, side in enumerate(sides):
            missing = [p for p in dict.fromkeys((*sides[n ^ 1], *also)) if p not in side]
            if missing and (side or n % 2 == 0):  # even sides are the pieces
                having = {"must": [{"has_id": missing}]}
                using = (MEANING, ASIDE_MEANING)[n % 2]
                searches[n] = _search(queries[n // 2], using, len(missing), having, {"exact": True})
        found = self._near(name, list(searches.values())) if searches else []
        for n, more in zip(searches, found, strict=True):
            sides[n].update(more)

    def _near(self, name: str, searches: list[dict[str, Any]]) -> list[dict[str, float]]:
        """Return the cosines of the points each search finds, if their records are complete."""
        body = {"searches": searches}
        answers = self._of_points(name, "/query/batch", body, returns=list[_Points])
        whole = self._whole(name, [point for answer in answers for point in answer.points])
        return [{p.id: p.score for p in answer.points if p.id in whole} for answer in answers]

    def _whole(self, name: str, points: Iterable[StoredPoint]) -> set[str]:
        """Return the points whose record is complete. Another process may be writing a record right
        now, or was killed while writing it."""
        owned = (one for one in points if "record" in one.payload and "digest" in one.payload)
        heads = {one.id: _head_of(one.id, one.payload) for one in owned}
        self.heads |= {(name, head) for point, head in heads.items() if point == head}
        asked = dict.fromkeys(head for head in heads.values() if (name, head) not in self.heads)
        self.heads |= {(name, head) for head in self.present(name, list(asked))}
        return {point for point, head in heads.items() if (name, head) in self.heads}

    def _count(self, collection: Collection, **wanted: Any) -> int:
        having = holding(**{key: value for key, value in wanted.items() if key != "without"})
        if "without" in wanted:
            having["must_not"] = holding(facets=wanted["without"])["must"]
        asked = collection.physical, "/count", {"filter": having, "exact": True}
        key = tuple(wanted.items())
        return self._fact(
            collection, key, lambda: self._of_points(*asked, returns=dict[str, int])["count"]
        )

    def _fact(self, collection: Collection, key: object, count: Callable[[], int]) -> int:
        state, facts = self.facts.get(collection.physical, ("", {}))
        if state != collection.state:
            facts = {}
            self.facts[collection.physical] = collection.state, facts
        if key not in facts:
            facts[key] = count()
        return facts[key]

    def dated(
        self, collection: Collection, first: str, end: str, count: int
    ) -> index.DatedPassages:
        """Return the newest `count` records from `first` on and before `end`."""
        name = collection.physical
        having = holding(head=True, passage=True)
        if first:
            having["must"].append({"key": "at", "range": {"gte": f"{first}Z"}})
        if end < "9":
            having["must"].append({"key": "at", "range": {"lt": f"{end}Z"}})
        counted = {"filter": having, "exact": True}
        records = self._of_points(name, "/count", counted, returns=dict[str, int])["count"]
        newest = {"order_by": {"key": "number", "direction": "desc"}, "limit": count}
        found = self._page(name, [], {"filter": having, **newest}).points
        rows = [_row_of(one.id) for one in found]
        return index.DatedPassages(rows, records, self._count(collection, head=True, passage=True))

    # -- passages and records

    def fetch(
        self, collection: Collection, rows: Iterable[int], *, records: bool = False
    ) -> dict[int, index.StoredPassage]:
        """Return these passages by row, with their records if requested."""
        name = collection.physical
        wanted = {id_of(row): row for row in rows}
        if not records:
            missing = [point for point in wanted if (name, point) not in self.passages]
            for point, payload in self._payloads(name, missing, _FIELDS).items():
                self.passages[name, point] = _words_of(payload, name)
            return {row: index.StoredPassage(self.passages[name, p]) for p, row in wanted.items()}
        payloads = self._payloads(name, list(wanted), _EVERYTHING)
        heads = {point: _head_of(point, payload) for point, payload in payloads.items()}
        others = dict.fromkeys(head for head in heads.values() if head not in payloads)
        payloads |= self._payloads(name, list(others), _EVERYTHING)
        found = {head: _record_of(payloads[head], name) for head in dict.fromkeys(heads.values())}
        return {
            row: index.StoredPassage(_words_of(payloads[point], name), found[heads[point]])
            for point, row in wanted.items()
        }

    def _payloads(self, name: str, points: Sequence[str], keys: list[str]) -> dict[str, Any]:
        """Return the payloads of all these points. Raises CollectionGone if one is missing."""
        found: dict[str, Any] = {}
        for some in chunks(points, _LARGE_PAGE if keys is _EVERYTHING else PAGE):
            found |= {point.id: point.payload for point in self._retrieve(name, some, keys)}
        if len(found) < len(points):
            raise CollectionGone(f"{len(points) - len(found)} points are not there any more")
        return found

    def present(self, name: str, points: Sequence[str]) -> Iterator[str]:
        """Yield the ids of the points that exist."""
        for some in chunks(points, PAGE):
            yield from (point.id for point in self._retrieve(name, some, False))

    def _retrieve(self, name: str, ids: Sequence[str], keys: list[str] | bool) -> list[StoredPoint]:
        body = {"ids": ids, "with_payload": keys}
        return self._of_points(name, "", body, returns=list[StoredPoint])

    # -- for sync and verify

    def content(self, collection: Collection, *, vectors: bool = True) -> index.StoredContent:
        """Return everything, to check it or to reuse its vectors (F16)."""
        name = collection.physical
        found = dict[bytes, bytes]()
        heads = self.scroll(name, holding(head=True), ["record", "digest"])
        keys = frozenset((one.payload["record"], one.payload["digest"]) for one in heads)
        for point in self.scroll(name, holding(passage=True), ["hash"], True) if vectors else ():
            if blob := _vectors_blob(point.vector):
                found[bytes.fromhex(point.payload["hash"])] = blob
        return index.StoredContent(keys, found)

    def scroll(
        self, name: str, having: Filter, keys: list[str], vectors: bool = False, page: int = PAGE
    ) -> Iterator[StoredPoint]:
        """Yield every point that fits, page by page."""
        body: dict[str, Any] = {"filter": having, "limit": _LARGE_PAGE if vectors else page}
        body |= {"offset": None, "with_vector": [MEANING, ASIDE_MEANING] if vectors else False}
        while True:
            found = self._page(name, keys, body)
            yield from found.points
            if found.next_page_offset is None:
                return
            body["offset"] = found.next_page_offset

    def _page(self, name: str, keys: list[str], body: Mapping[str, Any]) -> _Points:
        return self._of_points(name, "/scroll", {**body, "with_payload": keys}, returns=_Points)

    def _of_points(self, name: str, path: str, body: object, *, returns: type[_T]) -> _T:
        return self.server.ask("POST", f"/collections/{name}/points{path}", body, returns=returns)


def _search(
    query: list[float], using: str, limit: int, having: Filter | None, params: dict[str, Any]
) -> dict[str, Any]:
    search = {"query": [query], "using": using, "limit": limit, "filter": having}
    return {**search, "params": params, "with_payload": _OWNER_KEYS}
