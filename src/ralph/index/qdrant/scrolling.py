"""Everything of a collection that fits, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ralph.index.qdrant.points import ASIDE_MEANING, MEANING
from ralph.index.qdrant.server import Server

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

# How many points are asked for at once, and how many with their vectors.
PAGE = 256
_PAGE_OF_VECTORS = 32


def scrolled(
    server: Server,
    name: str,
    having: models.Filter,
    keys: list[str] | bool,
    *,
    vectors: bool = False,
    page: int = PAGE,
) -> Iterator[Any]:
    """Every point that fits."""
    after: Any = None
    page = _PAGE_OF_VECTORS if vectors else page
    dense = [MEANING, ASIDE_MEANING] if vectors else False
    while True:
        found, after = server.ask(_page(name, having, keys, dense, after, page))
        yield from found
        if after is None:
            return


def _page(
    name: str,
    having: models.Filter,
    keys: list[str] | bool,
    vectors: Any,
    after: Any,
    count: int,
) -> Callable[[QdrantClient], tuple[list[models.Record], Any]]:
    return lambda client: client.scroll(
        name,
        scroll_filter=having,
        limit=count,
        offset=after,
        with_payload=keys,
        with_vectors=vectors,
    )
