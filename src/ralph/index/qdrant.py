"""The index on a Qdrant server: the same promises as the embedded one, by URL.

A passage is a point, a collection a Qdrant collection, and the one that answers is the one its
alias names. Points are written first and waited for, then the metadata that moves the position.
Ids come from content and every request may be repeated, so a sync that was killed, or two at once
on different machines, only do work twice. Qdrant's client is imported when it is first used.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ralph.index.port import Collection, Corrupt, IndexBatch, IndexedRecord
from ralph.index.qdrant_points import (
    ASIDE_MEANING,
    FACET,
    INDEXES,
    MEANING,
    META_ID,
    STONE,
    WORDS,
    CollectionMetadata,
    CollectionNames,
    QdrantPoint,
    id_of,
    in_batches,
    named_vectors,
    passage_length,
    point_id,
    points_of,
    stone_id,
)
from ralph.index.qdrant_server import (
    PAGE,
    CollectionDamaged,
    CollectionGone,
    NameTaken,
    QdrantConnection,
    chunks,
    holding,
    scrolled,
)
from ralph.index.qdrant_view import CollectionFacts, QdrantView

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

# The parameters that the source documents ask for.
HNSW_M, HNSW_EF_CONSTRUCT = 64, 512
_WAITING = ("waits", "waiting")
_POINTS_AT_ONCE = 256
_BYTES_AT_ONCE = 8 * 1024 * 1024
# How long passages are, until a first batch is large enough to tell.
_USUAL_TOKENS = 100.0
_TELLING_PASSAGES = 50
_log = logging.getLogger("ralph")


class QdrantStore:
    """The collections of one place on a Qdrant server."""

    title = "Qdrant"
    keeps_deleted = True

    def __init__(self, server: QdrantConnection, names: CollectionNames) -> None:
        self.where = server.where
        self.server = server
        self._names = names
        self._facts: dict[str, CollectionFacts] = {}
        # The sweeps that were begun here and are not done.
        self._sweeps: dict[str, int] = {}

    @contextlib.contextmanager
    def state(self) -> Iterator[QdrantView]:
        """A view for one query; writers go on beside it."""
        yield self._view()

    def write(self, collection: Collection, batch: IndexBatch) -> Collection:
        """Index one batch, then move the position; the first write makes the collection."""
        rows, seen = self._divided(collection, batch)
        if not collection.physical:
            collection = self._create(collection)
        name = collection.physical
        metadata = self._metadata(name)
        if batch.restart:
            # Told first: a sweep that is begun again must not take its forerunner's marks for its
            # own.
            metadata = msgspec.structs.replace(metadata, sweep=metadata.sweep + 1, sweeping=True)
            self._tell(metadata)
            self._delete(name, holding(buried=True))
            self._sweeps[name] = metadata.sweep
        elif self._sweeps.get(name) not in (None, metadata.sweep if metadata.sweeping else -1):
            del self._sweeps[name]
            raise CollectionGone("another machine brings the same collection up to its journal")
        metadata = self._prepared(metadata, rows)
        self._upsert_rows(metadata, rows)
        if metadata.sweeping:
            for some in chunks(seen, PAGE):
                self._set_payload(name, {"sweep": metadata.sweep}, some)
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
        waiting = collection.waiting or any(
            passage.embed and vector is None
            for row in rows
            for passage, vector in zip(row.passages, row.vectors, strict=True)
        )
        live = collection.live or batch.done
        return msgspec.structs.replace(metadata.collection(live=live), waiting=waiting)

    def drop(self, name: str | None = None, *, unfinished: bool = False) -> None:
        """Delete the collections of this name, or of this place; or only what is being built."""
        view = self._view()
        answering = view.aliases().get(self._names.alias(name)) if name and unfinished else None
        for physical in view.physical():
            if physical != answering and (name is None or self._names.owns(physical, name)):
                self._delete_collection(physical)

    def prune(self) -> list[str]:
        """Delete collections that no alias names: of a sync that was killed."""
        view = self._view()
        named = set(view.aliases().values())
        unused = [physical for physical in view.physical() if physical not in named]
        for physical in unused:
            self._delete_collection(physical)
        return unused

    def repair(self, damage: Corrupt) -> None:
        """Drop a collection that cannot be read, by its own name or by its alias."""
        if isinstance(damage, CollectionDamaged):
            _log.warning(
                "the index was damaged (%s); %s is dropped and rebuilt from the journal",
                damage,
                damage.name,
            )
            self._delete_collection(self._view().aliases().get(damage.name, damage.name))

    def check(self, *, deep: bool = False) -> list[str]:
        """Ask the server now; `deep` tells what of the collections is not as it should be."""
        self.server.check()
        found: list[str] = []
        for one in self._view().collections() if deep else ():
            found += [f"{one.physical}: {fault}" for fault in self._faults(one)]
        return found

    def close(self) -> None:
        """Nothing to do: connections are kept for whoever asks next."""

    # -- collections

    def _create(self, collection: Collection) -> Collection:
        """A new, empty collection; others of its name that do not answer are dropped.

        Its alias comes last: what was killed before is nobody's, and dropped by the next.
        """
        view, name = self._view(), collection.name
        alias = self._names.alias(name)
        answering = view.aliases().get(alias)
        others = [one for one in view.physical() if self._names.owns(one, name)]
        physical = self._names.new_physical(name)
        self._make_collection(physical, collection.manifest.dims)
        for field, kind in INDEXES.items():
            self._index_payload(physical, field, kind)
        metadata = self._tell(
            CollectionMetadata(
                name=name,
                stream=collection.stream,
                physical=physical,
                manifest=collection.manifest,
                average=0.0,
                indexed=tuple(sorted(INDEXES)),
            )
        )
        self._point_alias(physical, self._names.building(name) if answering else alias)
        for other in others:
            if other != answering:
                self._delete_collection(other)
        return metadata.collection(live=answering is None)

    def _switch(self, collection: Collection) -> None:
        """Let a complete collection answer from now on, and drop the one before."""
        alias = self._names.alias(collection.name)
        before = self._view().aliases().get(alias)
        building = self._names.building(collection.name)
        self._point_alias(collection.physical, alias, instead=building)
        if before is not None and before != collection.physical:
            self._delete_collection(before)

    def _faults(self, collection: Collection) -> list[str]:
        """What is not as it should be; somebody may have changed or restored the collection."""
        manifest = collection.manifest
        info = self.server.ask(lambda client: client.get_collection(collection.physical))
        found: list[str] = []
        vectors = info.config.params.vectors
        named = vectors if isinstance(vectors, dict) else {}
        for name in (MEANING, ASIDE_MEANING) if manifest.dims else ():
            params = named.get(name)
            if params is None:
                found.append(f"it has no vectors named {name}")
                continue
            if params.size != manifest.dims:
                found.append(
                    f"its vectors have {params.size} dimensions instead of {manifest.dims}"
                )
            if params.distance.value != "Cosine":
                found.append(f"its distance is {params.distance.value} instead of Cosine")
            hnsw = params.hnsw_config
            if hnsw is None or (hnsw.m, hnsw.ef_construct) != (HNSW_M, HNSW_EF_CONSTRUCT):
                found.append(f"its HNSW is not m {HNSW_M}, ef_construct {HNSW_EF_CONSTRUCT}")
            if not params.on_disk:
                found.append("its vectors are not on disk")
        if WORDS not in (info.config.params.sparse_vectors or {}):
            found.append(f"it has no sparse vectors named {WORDS}")
        # Qdrant's local mode has no payload indexes at all.
        if info.payload_schema and (missing := sorted(INDEXES.keys() - info.payload_schema.keys())):
            found.append(f"it has no payload index on {', '.join(missing)}")
        return list(dict.fromkeys(found))

    # -- records

    def _divided(
        self, collection: Collection, batch: IndexBatch
    ) -> tuple[list[IndexedRecord], list[str]]:
        """What must be written, and the heads of what is indexed already, whole."""
        name, view = collection.physical, self._view()
        if not name:
            return batch.unindexed((), ()), []
        heads = {point_id(*key, 0): key for key in batch.records}
        seen = list(view.present(name, list(heads)))
        indexed = {heads[point] for point in seen}
        stones: dict[str, str] = {}
        if not batch.restart:
            stones = {stone_id(one): one for one, _ in batch.records.keys() - indexed}
        forgotten = {stones[point] for point in view.present(name, list(stones))}
        return batch.unindexed(indexed, forgotten), seen

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
                self._index_payload(metadata.physical, field, "keyword")
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
        self._upsert(metadata.physical, others)
        self._upsert(metadata.physical, heads)

    def _fill(self, collection: Collection, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Give vectors to passages that waited for the embedder."""
        name, dims = collection.physical, collection.manifest.dims
        points = (
            QdrantPoint(id_of(row), {}, named_vectors(blob, dims), None) for row, blob in vectors
        )
        for some in in_batches(points, most=_POINTS_AT_ONCE, most_bytes=_BYTES_AT_ONCE):
            self._update_vectors(name, some)

    def _update_vectors(self, name: str, points: Sequence[QdrantPoint]) -> None:
        from qdrant_client import models

        made = [models.PointVectors(id=one.id, vector=_vectors(one)) for one in points]
        self._change(lambda client: client.update_vectors(name, made, wait=True))
        filled = _listed([point.id for point in points])
        self._change(lambda client: client.delete_payload(name, _WAITING, filled, wait=True))

    def _set_payload(self, name: str, payload: dict[str, Any], points: Sequence[str]) -> None:
        chosen = _listed(points)
        self._change(lambda client: client.set_payload(name, payload, chosen, wait=True))

    def _forget(self, name: str, ids: list[str]) -> None:
        from qdrant_client import models

        stones = [
            QdrantPoint(stone_id(one), {"type": STONE, "buried": True, "id": one}, {}, None)
            for one in ids
        ]
        self._upsert(name, stones)
        for part in chunks(ids, PAGE):
            # Heads last here too: what is half gone must be seen again.
            self._delete(
                name, models.Filter(must=[holding(record=part)], must_not=[holding(head=True)])
            )
            self._delete(name, holding(record=part, head=True))

    def _drop_unmet(self, metadata: CollectionMetadata) -> None:
        """Take out what the sweep has not met."""
        from qdrant_client import models

        older = models.FieldCondition(key="sweep", range=models.Range(lt=metadata.sweep))
        stale = models.Filter(must=[holding(head=True), older])
        keys = ["record", "digest", "count"]
        found = [one.payload for one in scrolled(self.server, metadata.physical, stale, keys)]
        rest = [
            point_id(one["record"], one["digest"], place)
            for one in found
            for place in range(1, one["count"])
        ]
        heads = [point_id(one["record"], one["digest"], 0) for one in found]
        for some in itertools.chain(chunks(rest, PAGE), chunks(heads, PAGE)):
            self._delete(metadata.physical, _listed(some))

    # -- requests: each change is waited for until it is done, and safe to repeat

    def _view(self) -> QdrantView:
        return QdrantView(self.server, self._names, self._facts)

    def _metadata(self, name: str) -> CollectionMetadata:
        found = self._view().metadata(name)
        if found is None:
            raise CollectionGone("another process deleted the collection while it was written")
        return found

    def _tell(self, metadata: CollectionMetadata) -> CollectionMetadata:
        """Write how far it has come; everybody sees by its state that something was written."""
        written = msgspec.structs.replace(metadata, state=uuid.uuid4().hex)
        payload: dict[str, Any] = msgspec.to_builtins(written)
        self._upsert(metadata.physical, [QdrantPoint(META_ID, payload, {}, None)])
        return written

    def _make_collection(self, physical: str, dims: int) -> None:
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
        self.server.ask(
            lambda client: client.create_collection(
                physical,
                vectors_config=dense,
                sparse_vectors_config={WORDS: words},
                hnsw_config=hnsw,
                on_disk_payload=True,
            ),
            slow=True,
        )

    def _delete_collection(self, physical: str) -> None:
        """Delete it with its aliases, if it is there."""
        self._facts.pop(physical, None)
        self._sweeps.pop(physical, None)
        with contextlib.suppress(CollectionGone):
            self.server.ask(lambda client: client.delete_collection(physical), slow=True)

    def _point_alias(self, physical: str, alias: str, *, instead: str | None = None) -> None:
        """Let a name lead to a collection, in one request; `instead` of another name."""
        from qdrant_client import models

        changes: list[models.AliasOperations] = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
            for name in (alias, instead)
            if name is not None
        ]
        made = models.CreateAlias(collection_name=physical, alias_name=alias)
        changes.append(models.CreateAliasOperation(create_alias=made))
        try:
            self.server.ask(lambda client: client.update_collection_aliases(changes), slow=True)
        except NameTaken:
            what = f"has a collection of somebody else's that is called {alias}"
            raise self.server.off(what, "Rename or delete it; Ralph needs the name.") from None

    def _index_payload(self, physical: str, field: str, kind: str) -> None:
        """Let points be filtered by this field."""
        from qdrant_client import models

        schema = models.PayloadSchemaType(kind)
        self._change(
            lambda client: client.create_payload_index(physical, field, field_schema=schema)
        )

    def _upsert(self, name: str, points: Iterable[QdrantPoint]) -> None:
        """Write these points, whole, batch by batch."""
        for some in in_batches(points, most=_POINTS_AT_ONCE, most_bytes=_BYTES_AT_ONCE):
            self._put(name, some)

    def _put(self, name: str, points: Iterable[QdrantPoint]) -> None:
        from qdrant_client import models

        made = [
            models.PointStruct(id=one.id, payload=one.payload, vector=_vectors(one))
            for one in points
        ]
        self._change(lambda client: client.upsert(name, made, wait=True))

    def _delete(self, name: str, chosen: models.Filter | models.PointIdsList) -> None:
        self._change(lambda client: client.delete(name, chosen, wait=True))

    def _change(self, work: Callable[[QdrantClient], models.UpdateResult]) -> None:
        """See that it is done, and not only taken note of."""
        status = self.server.ask(work, slow=True).status.value
        if status != "completed":
            raise self.server.off(f"did not finish writing ({status})")


def _vectors(point: QdrantPoint) -> Any:
    from qdrant_client import models

    vectors: dict[str, Any] = dict(point.vectors)
    if point.words:
        vectors[WORDS] = models.SparseVector(indices=point.words[0], values=point.words[1])
    return vectors


def _listed(points: Sequence[str]) -> models.PointIdsList:
    from qdrant_client import models

    return models.PointIdsList(points=list(points))
