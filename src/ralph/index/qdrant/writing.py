"""What is written to a server: each request waited for until it is done, and safe to repeat."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ralph.index.qdrant.points import ASIDE_MEANING, MEANING, WORDS, Point
from ralph.index.qdrant.server import Gone, Server, Taken

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

# The parameters that the source documents ask for.
HNSW_M, HNSW_EF_CONSTRUCT = 64, 512


class Writer:
    """Everything that changes something on a server."""

    def __init__(self, server: Server) -> None:
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
        with contextlib.suppress(Gone):
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
        except Taken:
            what = f"has a collection of somebody else's that is called {alias}"
            raise self._server.off(what, "Rename or delete it; Ralph needs the name.") from None

    def index_payload(self, physical: str, field: str, kind: str) -> None:
        """Let points be filtered by this field."""
        from qdrant_client import models

        schema = models.PayloadSchemaType(kind)
        self._settled(
            lambda client: client.create_payload_index(physical, field, field_schema=schema)
        )

    def upsert(self, name: str, points: Iterable[Point]) -> None:
        """Write these points, whole."""
        from qdrant_client import models

        made = [
            models.PointStruct(id=one.id, payload=one.payload, vector=_vectors(one))
            for one in points
        ]
        self._settled(lambda client: client.upsert(name, made, wait=True))

    def update_vectors(self, name: str, points: Iterable[Point]) -> None:
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


def _vectors(point: Point) -> Any:
    from qdrant_client import models

    vectors: dict[str, Any] = dict(point.vectors)
    if point.words:
        vectors[WORDS] = models.SparseVector(indices=point.words[0], values=point.words[1])
    return vectors


def _listed(points: Sequence[str]) -> models.PointIdsList:
    from qdrant_client import models

    return models.PointIdsList(points=list(points))
