"""Qdrant's real engine in this process, behind the calls of Qdrant's client that the server uses.

`qdrant-edge-py` is the server's own Rust code without HTTP, collections and aliases. A collection
is one shard in a folder here; names and aliases are kept in this module.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from qdrant_client import models

# Its stubs want lists of exactly their union of ids.
edge: Any = importlib.import_module("qdrant_edge")

_SCHEMAS = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "bool": edge.PayloadSchemaType.Bool,
    "integer": edge.PayloadSchemaType.Integer,
    "datetime": edge.PayloadSchemaType.Datetime,
}


class QdrantEngine:
    """The part of `QdrantClient` that the test server calls."""

    def __init__(self) -> None:
        # In memory where the system has such a folder: the engine flushes files all the time.
        memory = Path("/dev/shm")
        place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="qdrant-engine-", dir=place))
        self._shards: dict[str, Any] = {}
        self._parameters: dict[str, dict[str, Any]] = {}
        self._aliases: dict[str, str] = {}
        self._made = 0

    def close(self) -> None:
        """Close all shards and delete their files."""
        for name in [*self._shards]:
            self.delete_collection(name)
        shutil.rmtree(self._folder)

    # -- collections

    def get_collections(self) -> models.CollectionsResponse:
        """Return the names of all collections."""
        names = [models.CollectionDescription(name=name) for name in self._shards]
        return models.CollectionsResponse(collections=names)

    def get_aliases(self) -> models.CollectionsAliasesResponse:
        """Return all aliases."""
        pairs = [
            models.AliasDescription(alias_name=alias, collection_name=name)
            for alias, name in self._aliases.items()
        ]
        return models.CollectionsAliasesResponse(aliases=pairs)

    def update_collection_aliases(self, actions: list[Any]) -> bool:
        """Carry out these changes of aliases."""
        for action in actions:
            if isinstance(action, models.CreateAliasOperation):
                created = action.create_alias
                if created.alias_name in self._shards:
                    raise ValueError(f"collection {created.alias_name} already exists")
                self._shard(created.collection_name)
                self._aliases[created.alias_name] = created.collection_name
            elif isinstance(action, models.DeleteAliasOperation):
                self._aliases.pop(action.delete_alias.alias_name, None)
        return True

    def create_collection(
        self,
        name: str,
        *,
        vectors_config: Any,
        sparse_vectors_config: Any,
        hnsw_config: Any,
        on_disk_payload: bool | None,
    ) -> bool:
        """Create a collection."""
        if name in self._shards or name in self._aliases:
            raise ValueError(f"collection {name} already exists")
        config = edge.EdgeConfig(
            vectors={key: _dense(one) for key, one in (vectors_config or {}).items()},
            sparse_vectors={key: edge.EdgeSparseVectorParams() for key in sparse_vectors_config},
            on_disk_payload=on_disk_payload,
            hnsw_config=_hnsw(hnsw_config),
            max_search_threads=1,
            wal_enabled=False,  # nobody loads a shard again
        )
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        self._shards[name] = edge.EdgeShard.create(str(folder), config)
        self._parameters[name] = {
            "vectors": {key: _plain(one) for key, one in (vectors_config or {}).items()},
            "sparse_vectors": {key: _plain(one) for key, one in sparse_vectors_config.items()},
        }
        return True

    def get_collection(self, name: str) -> dict[str, Any]:
        """Return what a server says of a collection."""
        info = self._shard(name).info()
        config = {"params": self._parameters[self._aliases.get(name, name)]}
        schema = {field: {"points": 0} for field in info.payload_schema}
        return {"status": "green", "config": config, "payload_schema": schema}

    def collection_exists(self, name: str) -> bool:
        """Whether there is such a collection."""
        return self._aliases.get(name, name) in self._shards

    def delete_collection(self, name: str) -> bool:
        """Delete a collection and its aliases."""
        shard = self._shards.pop(name, None)
        if shard is None:
            return False
        shard.close()
        self._parameters.pop(name)
        self._aliases = {alias: of for alias, of in self._aliases.items() if of != name}
        return True

    # -- points

    def create_payload_index(self, name: str, field: str, schema: str) -> dict[str, Any]:
        """Index a payload field."""
        return self._update(name, edge.UpdateOperation.create_field_index(field, _SCHEMAS[schema]))

    def upsert(self, name: str, points: list[models.PointStruct]) -> dict[str, Any]:
        """Write points."""
        made = [
            edge.Point(str(point.id), _vectors(point.vector), point.payload or {})
            for point in points
        ]
        return self._update(name, edge.UpdateOperation.upsert_points(made))

    def update_vectors(self, name: str, points: list[models.PointVectors]) -> dict[str, Any]:
        """Write vectors of points."""
        made = [edge.PointVectors(str(point.id), _vectors(point.vector)) for point in points]
        return self._update(name, edge.UpdateOperation.update_vectors(made))

    def set_payload(self, name: str, payload: Any, points: list[str]) -> dict[str, Any]:
        """Add to the payload of points."""
        return self._update(name, edge.UpdateOperation.set_payload(points, payload))

    def delete_payload(self, name: str, keys: list[str], points: list[str]) -> dict[str, Any]:
        """Remove payload fields."""
        return self._update(name, edge.UpdateOperation.delete_payload(points, keys))

    def delete(self, name: str, chosen: list[str] | models.Filter) -> dict[str, Any]:
        """Delete points by id or filter."""
        if isinstance(chosen, list):
            return self._update(name, edge.UpdateOperation.delete_points(chosen))
        operation = edge.UpdateOperation.delete_points_by_filter(_filter(chosen))
        return self._update(name, operation)

    def retrieve(
        self, name: str, ids: list[str], with_payload: Any, with_vectors: Any = False
    ) -> list[dict[str, Any]]:
        """Return these points."""
        found = self._shard(name).retrieve(ids, with_payload, with_vectors)
        return [_point(one) for one in found]

    def count(self, name: str, having: models.Filter | None, *, exact: bool) -> dict[str, int]:
        """Count points."""
        return {"count": self._shard(name).count(edge.CountRequest(exact, _filter(having)))}

    def scroll(
        self,
        name: str,
        having: models.Filter | None = None,
        *,
        limit: int = 10,
        order_by: Any = None,
        offset: Any = None,
        with_payload: Any = True,
        with_vectors: Any = False,
    ) -> tuple[list[dict[str, Any]], Any]:
        """Return a page of points."""
        order = None
        if order_by is not None:
            descending = str(order_by.direction).endswith("desc") or order_by.direction == "desc"
            direction = edge.Direction.Desc if descending else edge.Direction.Asc
            order = edge.OrderBy(order_by.key, direction)
        request = edge.ScrollRequest(
            offset, limit, _filter(having), with_payload, with_vectors, order
        )
        points, following = self._shard(name).scroll(request)
        return [_point(one) for one in points], following and str(following)

    def query_points(
        self,
        name: str,
        *,
        query: Any,
        using: str,
        limit: int,
        query_filter: models.Filter | None,
        with_payload: Any,
        search_params: Any = None,
    ) -> dict[str, Any]:
        """Return the nearest points."""
        nearest = query.nearest if isinstance(query, models.NearestQuery) else query
        request = edge.QueryRequest(
            limit,
            query=edge.Query.Nearest(_vector(nearest), using),
            filter=_filter(query_filter),
            with_payload=with_payload,
        )
        return {"points": [_point(one) for one in self._shard(name).query(request)]}

    # -- inside

    def _shard(self, name: str) -> Any:
        shard = self._shards.get(self._aliases.get(name, name))
        if shard is None:
            raise ValueError(f"Collection {name} not found")
        return shard

    def _update(self, name: str, operation: Any) -> dict[str, Any]:
        self._shard(name).update(operation)
        return {"operation_id": 1, "status": "completed"}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True)


def _hnsw(config: Any) -> Any:
    if config is None:
        return None
    return edge.HnswIndexConfig(config.m, config.ef_construct, 10_000, on_disk=config.on_disk)


def _dense(wanted: models.VectorParams) -> Any:
    multivector = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
    return edge.EdgeVectorParams(
        wanted.size,
        edge.Distance.Cosine,
        on_disk=wanted.on_disk,
        multivector_config=multivector if wanted.multivector_config else None,
        hnsw_config=_hnsw(wanted.hnsw_config),
    )


def _vector(value: Any) -> Any:
    if isinstance(value, models.SparseVector):
        return edge.SparseVector(value.indices, value.values)
    return value


def _vectors(named: Any) -> Any:
    return {name: _vector(value) for name, value in (named or {}).items()}


def _filter(wanted: models.Filter | None) -> Any:
    if wanted is None:
        return None
    return edge.Filter(
        must=_conditions(wanted.must),
        should=_conditions(wanted.should),
        must_not=_conditions(wanted.must_not),
    )


def _conditions(wanted: Any) -> Any:
    if wanted is None:
        return None
    return [_condition(one) for one in (wanted if isinstance(wanted, list) else [wanted])]


def _condition(wanted: Any) -> Any:
    if isinstance(wanted, models.HasIdCondition):
        return edge.HasIdCondition({str(one) for one in wanted.has_id})
    if isinstance(wanted, models.Filter):
        return _filter(wanted)
    if isinstance(wanted.match, models.MatchAny):
        return edge.FieldCondition(wanted.key, match=edge.MatchAny(wanted.match.any))
    if isinstance(wanted.match, models.MatchValue) and wanted.match.value is True:
        # The binding takes True for the number 1. Ralph's marks are true or absent.
        return edge.Filter(must_not=[edge.IsEmptyCondition(wanted.key)])
    if isinstance(wanted.match, models.MatchValue):
        return edge.FieldCondition(wanted.key, match=edge.MatchValue(wanted.match.value))
    bounds = wanted.range
    if isinstance(bounds, models.DatetimeRange):
        times = {key: getattr(bounds, key) for key in ("gte", "gt", "lte", "lt")}
        texts = {key: time and time.isoformat() for key, time in times.items()}
        return edge.FieldCondition(wanted.key, range=edge.RangeDateTime(**texts))
    numbers = {key: getattr(bounds, key) for key in ("gte", "gt", "lte", "lt")}
    return edge.FieldCondition(wanted.key, range=edge.RangeFloat(**numbers))


def _point(found: Any) -> dict[str, Any]:
    point = {"id": str(found.id), "payload": found.payload, "vector": found.vector}
    if isinstance(found, edge.ScoredPoint):
        point["score"] = found.score
    return point
