"""The index on a Qdrant server. It keeps the same promises as the embedded one.

A passage is a point, and a collection is a Qdrant collection; its alias points to the live one. A
write first saves the points and waits for them, then saves the metadata with the new position. Ids
are made from content and every request may be repeated. So if a sync is killed, or two machines
sync at once, some work is only done twice.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ralph.errors import IndexOff
from ralph.index import (
    Collection,
    Corrupt,
    IndexBatch,
    IndexedRecord,
    Passage,
    facet_tokens,
)
from ralph.index import qdrant_view as layout
from ralph.index.qdrant_start import CollectionNames
from ralph.index.qdrant_view import CollectionGone, CollectionMetadata, chunks, holding, point_id
from ralph.index.sync import batches
from ralph.text.tokens import tokens
from ralph.wire import Deadline, Wire, usable_url

_T = TypeVar("_T")
Start = Callable[[], bool]
QDRANT_PORT = 6333
# The first version with multivectors and the query API.
_OLDEST = (1, 10)
# After a failure, the server is not asked again for this long.
REST_S = 30.0
# A query gets this share of a write's timeout, because somebody is waiting for the answer.
_QUERY_SHARE = 0.4
_START = "Start it, or go back to the embedded index: ralph config qdrant_url --unset"
_SLOW = "Look after the server, or give it more time: ralph config remember_budget_s SECONDS"
_KEY = "Set RALPH_QDRANT_API_KEY to a key that may write."
_LOOK = "Look into the server's log; the journal has everything."


class NameTaken(Exception):
    """A collection with this name exists already."""


class QdrantConnection:
    """The connection to one server, shared by all indexes of a process.

    Timeouts are short, and after a failure the server is not asked for a while. `start` starts the
    server and waits until it is ready; it returns False if something listens there already.
    """

    def __init__(
        self, url: str, *, key: str = "", timeout_s: float = 5.0, start: Start = lambda: False
    ) -> None:
        self._key = key
        self._timeout_s = timeout_s
        self._start = start
        self.clock = time.monotonic
        self._rest: tuple[float, IndexOff] | None = None
        # The version the server reported; empty before the first request.
        self.version = ""
        self.where = "qdrant_url"
        self._parts = usable_url(url)
        if self._parts is not None:
            host = self._parts.netloc.rpartition("@")[2]
            host += "" if self._parts.port else f":{QDRANT_PORT}"
            self.where = f"{self._parts.scheme}://{host}{self._parts.path.rstrip('/')}"
        headers = {"api-key": key} if key else {}
        self._wire = Wire(
            self.where, name="Qdrant", todo=_START, slow=_SLOW, error=IndexOff, headers=headers
        )

    def check(self) -> None:
        """Try the server now, ignoring earlier failures."""
        self._rest = None
        self.version = ""
        # A server tells anybody its version; this request needs the key.
        self.ask("GET", "/collections/ralph/exists", returns=dict[str, bool])

    def ask(
        self, method: str, path: str, body: object = None, *, returns: type[_T], slow: bool = False
    ) -> _T:
        """Return the server's answer. After a failure, raise the same error for a while."""
        if self._rest is not None and self.clock() < self._rest[0]:
            raise self._rest[1].with_traceback(None)
        timeout_s = self._timeout_s * (1.0 if slow else _QUERY_SHARE)

        def work() -> _T:
            if not self.version:
                self.version = self._greet(timeout_s)
            answer = self._send(timeout_s, method, path, body, returns=dict[str, msgspec.Raw])
            return self._decoded(answer.get("result", b""), returns)

        try:
            try:
                result = work()
            except IndexOff:
                if not self._start():
                    raise
                # Every request can be repeated: ids are made from content.
                result = work()
        except IndexOff as error:
            self._rest = self.clock() + REST_S, error
            raise
        self._rest = None
        return result

    def off(self, what: str, todo: str = _LOOK) -> IndexOff:
        """Return an error about this server."""
        return IndexOff(f"Qdrant {what}", where=self.where, todo=todo)

    def _greet(self, timeout_s: float) -> str:
        if self._parts is None:
            raise self.off("has no usable URL", "Set one like http://127.0.0.1:6333")
        if self._parts.username or self._parts.password:
            raise self.off("has credentials in its URL", "Set RALPH_QDRANT_API_KEY instead.")
        greeting = self._send(timeout_s, "GET", "/", returns=dict[str, Any])
        title, name = (str(greeting.get(key)) for key in ("title", "version"))
        version = re.match(r"(\d+)\.(\d+)", name)
        if "qdrant" not in title.lower() or version is None:
            raise self.off("is not what answers there", "Set the URL of a Qdrant server.")
        if (int(version[1]), int(version[2])) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise self.off(f"is too old ({name})", f"Update it to {oldest} or newer.")
        return name

    def _send(
        self, timeout_s: float, method: str, path: str, body: object = None, *, returns: type[_T]
    ) -> _T:
        data = b"" if body is None else msgspec.json.encode(body)
        reply = self._wire.call(method, path, data, deadline=Deadline(timeout_s))
        if reply.status < 300:
            return self._decoded(reply.body, returns)
        described = reply.describe(self._key)
        if reply.status == 404:
            raise CollectionGone(f"Qdrant does not have it ({described})")
        if reply.status == 409 or (reply.status == 400 and b"already exists" in reply.body):
            raise NameTaken
        if reply.status in (401, 403):
            what = "refuses the key" if self._key else "asks for a key"
            raise self.off(f"{what} ({reply.status})", _KEY)
        raise self.off(f"answers with {described}")

    def _decoded(self, data: bytes | msgspec.Raw, returns: type[_T]) -> _T:
        try:
            return msgspec.json.decode(data, type=returns)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise self.off("gave an answer that cannot be read") from None


# -- points: a passage as Qdrant stores it


Point = dict[str, Any]
_STONE = "tombstone"
# Payload fields to filter by, besides the facets seen later.
_INDEXES = {
    "keyword": "type record tokens facets facet_task_id facet_outcome facet_type".split(),
    "bool": ["head", "buried", "passage", "waits"],
    "integer": ["number", "sweep"],
    # Qdrant Cloud's strict mode refuses a filter by a field without an index.
    "datetime": ["at"],
}
_FACET = "facet_"
# The assumed length of a passage, unless the first batch is large enough to measure it.
_USUAL_TOKENS = 100.0
_TELLING_PASSAGES = 50


def _points_of(row: IndexedRecord, metadata: CollectionMetadata) -> list[Point]:
    """Return a record as points; the one with the record itself is last."""
    record = row.record
    dims = metadata.manifest.dims
    keys = {"type": record.kind, "record": record.id, "digest": record.digest}
    points: list[Point] = []
    for passage, passage_hash, blob in zip(row.passages, row.hashes, row.vectors, strict=True):
        payload, vector = _passage(passage, metadata.average or _USUAL_TOKENS)
        payload["hash"] = passage_hash.hex()
        if blob is not None:
            vector |= layout.named_vectors(blob, dims)
        elif passage.embed:
            payload |= {"waits": True, "waiting": passage.embed}
        points.append({"payload": payload, "vector": vector})
    points = points or [{"payload": {}, "vector": {}}]
    for place, point in enumerate(points):
        point["id"] = point_id(record.id, record.digest, place)
        point["payload"] |= {"place": place, **keys}
    head = points.pop(0)
    try:
        head["payload"]["body"] = record.body.decode()
    except UnicodeDecodeError:
        head["payload"]["body_base64"] = base64.b64encode(record.body).decode()
    source = msgspec.json.encode(record.source).decode()
    head["payload"] |= {"number": record.number, "at": record.at, "source": source, "head": True}
    head["payload"] |= {"sweep": metadata.sweep, "count": len(row.passages)}
    return [*points, head]


def _tokens_of(passage: Passage) -> list[list[str]]:
    return [list(tokens(text)) for text in (passage.title, passage.text, passage.places)]


def _length_of(fields: Sequence[Sequence[str]], passage: Passage) -> int:
    """Return the number of tokens in a passage including its facets, as BM25 counts them."""
    return sum(map(len, fields)) + len(facet_tokens(passage.facets))


def _passage(passage: Passage, average: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the payload of a passage, and its words as a vector."""
    fields = _tokens_of(passage)
    payload: dict[str, Any] = {"passage": True, "facets": facet_tokens(passage.facets)}
    payload |= zip(("title", "text", "places"), map(" ".join, fields), strict=True)
    payload["tokens"] = sorted({token for field in fields for token in field})
    for name, values in passage.facets.items():
        # Replace characters that servers reject. People read this; searches use the tokens.
        payload[_FACET + name] = [one.encode(errors="replace").decode() for one in values]
    weights = layout.word_weights(fields, _length_of(fields, passage) / average)
    words = {"indices": [*weights], "values": [*weights.values()]}
    return payload, {layout.WORDS: words} if weights else {}


# -- the store


# The parameters that the source documents require.
_HNSW = {"m": 64, "ef_construct": 512, "on_disk": True}
_POINTS_AT_ONCE = 256
_BYTES_AT_ONCE = 8 * 1024 * 1024
_log = logging.getLogger("ralph")


def _parameters(dims: int) -> dict[str, Any]:
    """Return the parameters that a collection is created with and must still have."""
    dense: Point = {"size": dims, "distance": "Cosine", "on_disk": True, "hnsw_config": _HNSW}
    dense["multivector_config"] = {"comparator": "max_sim"}
    return {
        "vectors": dict.fromkeys((layout.MEANING, layout.ASIDE_MEANING), dense) if dims else {},
        "sparse_vectors": {layout.WORDS: {"index": {"on_disk": True}}},
    }


def _differences(wanted: Any, found: Any, name: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from _differences(value, found.get(key), key)
    elif wanted != found and (wanted or found):
        yield f"its {name} is {found} instead of {wanted}"


class QdrantStore:
    """The collections of one memory on a Qdrant server."""

    title = "Qdrant"
    keeps_deleted = True

    def __init__(self, server: QdrantConnection, names: CollectionNames) -> None:
        self.where = server.where
        self.server = server
        self._names = names
        self._facts: dict[str, tuple[str, dict[object, int]]] = {}
        # Unfinished sweeps that this process began.
        self._sweeps: dict[str, int] = {}

    @contextlib.contextmanager
    def state(self) -> Iterator[layout.QdrantView]:
        """Yield a view for one query. It does not block writers."""
        yield self._view()

    def write(self, collection: Collection, batch: IndexBatch) -> Collection:
        """Index one batch, then move the position. The first write creates the collection."""
        rows, seen = self._divided(collection, batch)
        if not collection.physical:
            collection = self._create(collection)
        name = collection.physical
        metadata = self._view().metadata(name)
        if metadata is None:
            raise CollectionGone("another process deleted the collection while it was written")
        if batch.restart:
            # Save this first: a sweep that starts over must not take the marks of the earlier one
            # for its own.
            metadata = msgspec.structs.replace(metadata, sweep=metadata.sweep + 1, sweeping=True)
            self._tell(metadata)
            self._delete(name, filter=holding(buried=True))
            self._sweeps[name] = metadata.sweep
        elif self._sweeps.get(name) not in (None, metadata.sweep if metadata.sweeping else -1):
            del self._sweeps[name]
            raise CollectionGone("another machine brings the same collection up to its journal")
        metadata = self._prepared(metadata, rows)
        points = [_points_of(row, metadata) for row in rows]
        # Heads last: if the head exists, the record is complete.
        self._upsert(name, (point for some in points for point in some[:-1]))
        self._upsert(name, (some[-1] for some in points))
        for some in chunks(seen, layout.PAGE) if metadata.sweeping else ():
            change = {"payload": {"sweep": metadata.sweep}, "points": some}
            self._change(name, "POST", "points/payload", change)
        if batch.forget:
            self._forget(name, list(batch.forget))
        if batch.done and metadata.sweeping:
            self._drop_unmet(metadata)
            metadata = msgspec.structs.replace(metadata, sweeping=False)
            self._sweeps.pop(name, None)
        self._fill(collection, batch.vectors)
        if batch.position is not None:
            metadata = msgspec.structs.replace(metadata, position=batch.position)
        metadata = self._tell(metadata)
        if batch.done and not collection.live:
            self._switch(collection)
        waits = any("waits" in point["payload"] for some in points for point in some)
        written = metadata.collection(live=collection.live or batch.done)
        return msgspec.structs.replace(written, waiting=collection.waiting or waits)

    def drop(self, name: str | None = None, *, unfinished: bool = False) -> None:
        """Delete the collections with this name, or all; or only those being built."""
        view = self._view()
        answering = view.aliases().get(self._names.alias(name)) if name and unfinished else None
        for physical in view.physical():
            if physical != answering and (name is None or self._names.owns(physical, name)):
                self._delete_collection(physical)

    def prune(self) -> list[str]:
        """Delete collections without an alias, left behind by a sync that was killed."""
        view = self._view()
        unused = sorted({*view.physical()}.difference(view.aliases().values()))
        for physical in unused:
            self._delete_collection(physical)
        return unused

    def repair(self, damage: Corrupt) -> None:
        """Drop a collection that cannot be read, by its own name or by its alias."""
        if isinstance(damage, layout.CollectionDamaged):
            warning = "the index was damaged (%s); %s is dropped and rebuilt from the journal"
            _log.warning(warning, damage, damage.name)
            self._delete_collection(self._view().aliases().get(damage.name, damage.name))

    def check(self, *, deep: bool = False) -> list[str]:
        """Try the server now; with `deep`, return what is wrong with the collections."""
        self.server.check()
        collections = self._view().collections() if deep else ()
        return [f"{one.physical}: {fault}" for one in collections for fault in self._faults(one)]

    def close(self) -> None:
        """Do nothing: connections are kept for the next request."""

    # -- collections

    def _create(self, collection: Collection) -> Collection:
        """Create an empty collection; drop others with its name that are not live.

        The alias is created last. If the process is killed before that, the collection has no
        alias, and the next rebuild drops it.
        """
        view = self._view()
        name = collection.name
        alias = self._names.alias(name)
        answering = view.aliases().get(alias)
        others = [one for one in view.physical() if self._names.owns(one, name)]
        physical = self._names.new_physical(name)
        dims = collection.manifest.dims
        made = {**_parameters(dims), "hnsw_config": _HNSW, "on_disk_payload": True}
        self.server.ask("PUT", f"/collections/{physical}", made, returns=bool, slow=True)
        for kind, fields in _INDEXES.items():
            self._index_payload(physical, kind, fields)
        shared = {key: getattr(collection, key) for key in ("name", "stream", "manifest")}
        indexed = tuple(sorted(itertools.chain(*_INDEXES.values())))
        metadata = self._tell(CollectionMetadata(**shared, physical=physical, indexed=indexed))
        self._point_alias(physical, self._names.building(name) if answering else alias)
        for other in others:
            if other != answering:
                self._delete_collection(other)
        return metadata.collection(live=answering is None)

    def _switch(self, collection: Collection) -> None:
        """Make a complete collection live, and drop the one before."""
        alias = self._names.alias(collection.name)
        before = self._view().aliases().get(alias)
        self._point_alias(collection.physical, alias, instead=self._names.building(collection.name))
        if before is not None and before != collection.physical:
            self._delete_collection(before)

    def _delete_collection(self, physical: str) -> None:
        """Delete a collection and its aliases, if it exists."""
        self._facts.pop(physical, None)
        self._sweeps.pop(physical, None)
        with contextlib.suppress(CollectionGone):
            self.server.ask("DELETE", f"/collections/{physical}", returns=bool, slow=True)

    def _point_alias(self, physical: str, alias: str, *, instead: str | None = None) -> None:
        """Point an alias to a collection, and remove the alias `instead`, in one request."""
        actions = [{"delete_alias": {"alias_name": name}} for name in (alias, instead) if name]
        actions.append({"create_alias": {"collection_name": physical, "alias_name": alias}})
        try:
            path = "/collections/aliases"
            self.server.ask("POST", path, {"actions": actions}, returns=bool, slow=True)
        except NameTaken:
            what = f"has a collection of somebody else's that is called {alias}"
            raise self.server.off(what, "Rename or delete it; Ralph needs the name.") from None

    def _index_payload(self, physical: str, kind: str, fields: Iterable[str]) -> None:
        """Create payload indexes, so that points can be filtered by these fields."""
        for field in fields:
            self._change(physical, "PUT", "index", {"field_name": field, "field_schema": kind})

    def _faults(self, collection: Collection) -> list[str]:
        """Return what is wrong with a collection; somebody may have changed or restored it."""
        path = f"/collections/{collection.physical}"
        dims = collection.manifest.dims
        info = self.server.ask("GET", path, returns=dict[str, Any])
        found = list(_differences(_parameters(dims), info["config"]["params"], "configuration"))
        schema = info.get("payload_schema")
        # Qdrant's local mode has no payload indexes at all.
        if schema and (missing := set(itertools.chain(*_INDEXES.values())) - schema.keys()):
            found.append(f"it has no payload index on {', '.join(sorted(missing))}")
        return list(dict.fromkeys(found))

    # -- records

    def _divided(
        self, collection: Collection, batch: IndexBatch
    ) -> tuple[list[IndexedRecord], list[str]]:
        """Return the records to write, and the heads of those that are completely indexed."""
        name = collection.physical
        view = self._view()
        if not name:
            return batch.prepare((), ()), []
        heads = {point_id(*key, 0): key for key in batch.records}
        seen = list(view.present(name, list(heads)))
        indexed = {heads[point] for point in seen}
        stones: dict[str, str] = {}
        if not batch.restart:
            stones = {point_id(_STONE, one): one for one, _ in batch.records.keys() - indexed}
        forgotten = {stones[point] for point in view.present(name, list(stones))}
        return batch.prepare(indexed, forgotten), seen

    def _prepared(
        self, metadata: CollectionMetadata, rows: Sequence[IndexedRecord]
    ) -> CollectionMetadata:
        """Return the metadata, updated for these rows; create payload indexes for new facets."""
        passages = [passage for row in rows for passage in row.passages]
        if passages and not metadata.average:
            average = _USUAL_TOKENS
            if len(passages) >= _TELLING_PASSAGES:
                lengths = [_length_of(_tokens_of(passage), passage) for passage in passages]
                average = sum(lengths) / len(passages)
            metadata = msgspec.structs.replace(metadata, average=max(average, 1.0))
        facets = {_FACET + name for passage in passages for name in passage.facets}
        # An older version made a collection with fewer indexes.
        for kind, fields in {**_INDEXES, "facets": sorted(facets)}.items():
            if new := [field for field in fields if field not in metadata.indexed]:
                self._index_payload(metadata.physical, "keyword" if kind == "facets" else kind, new)
                metadata = msgspec.structs.replace(metadata, indexed=(*metadata.indexed, *new))
        return metadata

    def _fill(self, collection: Collection, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Save the vectors of passages that waited for the embedder."""
        name = collection.physical
        dims = collection.manifest.dims
        points = [
            {"id": layout.id_of(row), "vector": layout.named_vectors(blob, dims)}
            for row, blob in vectors
        ]
        self._upsert(name, points, "points/vectors")
        for some in chunks([layout.id_of(row) for row, _ in vectors], layout.PAGE):
            change = {"keys": ["waits", "waiting"], "points": some}
            self._change(name, "POST", "points/payload/delete", change)

    def _forget(self, name: str, ids: list[str]) -> None:
        payloads = [{"type": _STONE, "buried": True, "id": one} for one in ids]
        stones = [{"id": point_id(_STONE, p["id"]), "payload": p, "vector": {}} for p in payloads]
        self._upsert(name, stones)
        for part in chunks(ids, layout.PAGE):
            # Heads last here, too: a record that is half deleted must still be found.
            of_these = holding(record=list(part))
            self._delete(name, filter={**of_these, "must_not": holding(head=True)["must"]})
            self._delete(name, filter=of_these)

    def _drop_unmet(self, metadata: CollectionMetadata) -> None:
        """Delete records that the sweep has not seen; heads last."""
        older = {"key": "sweep", "range": {"lt": metadata.sweep}}
        stale = {"must": [*holding(head=True)["must"], older]}
        scrolled = self._view().scroll(metadata.physical, stale, ["record", "digest", "count"])
        found = [one.payload for one in scrolled]
        places = [(one, place) for one in found for place in range(1, one["count"])]
        for some in (places, [(one, 0) for one in found]):
            points = [point_id(one["record"], one["digest"], place) for one, place in some]
            for part in chunks(points, layout.PAGE):
                self._delete(metadata.physical, points=part)

    # -- requests: each waits until the change is done, and is safe to repeat

    def _view(self) -> layout.QdrantView:
        return layout.QdrantView(self.server, self._names, self._facts)

    def _tell(self, metadata: CollectionMetadata) -> CollectionMetadata:
        """Save the metadata with a new `state`, which tells readers that something was written."""
        written = msgspec.structs.replace(metadata, state=uuid.uuid4().hex)
        self._upsert(metadata.physical, [{"id": layout.META_ID, "payload": written, "vector": {}}])
        return written

    def _upsert(self, name: str, points: Iterable[Point], path: str = "points") -> None:
        """Write these points, as many at once as fit into a request."""
        encoded = map(msgspec.json.encode, points)
        for some in batches(encoded, len, most=_POINTS_AT_ONCE, largest=_BYTES_AT_ONCE):
            self._change(name, "PUT", path, {"points": list(map(msgspec.Raw, some))})

    def _delete(self, name: str, **chosen: layout.Filter | Sequence[str]) -> None:
        self._change(name, "POST", "points/delete", chosen)

    def _change(self, name: str, method: str, path: str, body: object) -> None:
        """Send a change and wait until it is done; Qdrant would only acknowledge it otherwise."""
        path = f"/collections/{name}/{path}?wait=true"
        answer = self.server.ask(method, path, body, returns=dict[str, Any], slow=True)
        status = answer.get("status")
        if status != "completed":
            raise self.server.off(f"did not finish writing ({status})")
