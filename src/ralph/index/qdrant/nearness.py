"""The nearest passages on a Qdrant server, as near as the embedded index says they are.

A passage is as near as its nearest piece; its asides stand under another name, because Qdrant
brings vectors to length one, and count a little less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ralph.index import ASIDE_WEIGHT
from ralph.index.matrix import NEARNESS_DIGITS
from ralph.index.qdrant.points import ASIDE_MEANING, MEANING
from ralph.index.qdrant.server import Server

if TYPE_CHECKING:
    from qdrant_client import models

    from ralph.index import Vectors

# The search parameter that the source documents ask for.
HNSW_EF = 128
# How many searches go in one request.
_AT_ONCE = 32

Near = dict[str, float]
# What of a payload tells which record a point is of.
WHOSE = ["record", "digest", "head"]
Whose = dict[str, Mapping[str, Any]]


def nearest_of(
    server: Server,
    name: str,
    queries: Vectors,
    count: int,
    also: Sequence[str],
    having: models.Filter | None,
) -> tuple[list[Near], Whose]:
    """For each vector the `count` nearest points with their cosines, and those in `also`; and of
    which records they are."""
    found: list[Near] = []
    whose: Whose = {}
    for start in range(0, len(queries), _AT_ONCE):
        some = [one.tolist() for one in queries[start : start + _AT_ONCE]]
        found += _some(server, name, some, count, also, having, whose)
    return found, whose


def _some(
    server: Server,
    name: str,
    queries: list[list[float]],
    count: int,
    also: Sequence[str],
    having: models.Filter | None,
    whose: Whose,
) -> list[Near]:
    requests: list[models.QueryRequest] = []
    for query in queries:
        for using in (MEANING, ASIDE_MEANING):
            requests.append(_request(query, using, count, having))
            if also:
                requests.append(_among(query, using, also))
    answers = iter(_answers(server, name, requests, whose))
    gathered: list[_Found] = []
    for _ in queries:
        sides = [_Side(next(answers), count, among=next(answers) if also else {}) for _ in range(2)]
        gathered.append(_Found(*sides))
    _look_closer(server, name, queries, gathered)
    return [one.nearest(count, also) for one in gathered]


class _Side:
    """What a question found among the pieces, or among the asides."""

    def __init__(self, top: Near, count: int, *, among: Near) -> None:
        self.full = len(top) >= count
        self.least = min(top.values(), default=0.0)
        self.values = top | among


class _Found:
    """What a question found on both sides."""

    def __init__(self, main: _Side, asides: _Side) -> None:
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
    server: Server, name: str, queries: Sequence[list[float]], gathered: Sequence[_Found]
) -> None:
    """Ask for the asides that decide."""
    unsure = [(place, points) for place, one in enumerate(gathered) if (points := one.unsure())]
    if not unsure:
        return
    requests = [_among(queries[place], ASIDE_MEANING, points) for place, points in unsure]
    for (place, _), values in zip(unsure, _answers(server, name, requests, {}), strict=True):
        gathered[place].asides.values.update(values)


def _answers(
    server: Server, name: str, requests: Sequence[models.QueryRequest], whose: Whose
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
        with_payload=WHOSE,
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
