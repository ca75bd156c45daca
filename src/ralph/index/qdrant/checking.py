"""Whether a collection on a server has the parameters it should have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph.index import Manifest
from ralph.index.qdrant.points import ASIDE_MEANING, INDEXES, MEANING, WORDS
from ralph.index.qdrant.writing import HNSW_EF_CONSTRUCT, HNSW_M

if TYPE_CHECKING:
    from qdrant_client import models


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
