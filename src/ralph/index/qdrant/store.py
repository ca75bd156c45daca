"""Writing a Qdrant index: points first and waited for, then the metadata that moves the position.

Ids come from content and every request may be repeated, so a sync that was killed, or two at once
on different machines, only do work twice. A rebuild grows in a collection of its own and takes the
alias over in one request.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ralph.index import Manifest
from ralph.index.qdrant.checking import faults
from ralph.index.qdrant.counted import Facts
from ralph.index.qdrant.filters import chunks, holding
from ralph.index.qdrant.names import Names
from ralph.index.qdrant.points import (
    FACET,
    INDEXES,
    META_ID,
    STONE,
    Metadata,
    Point,
    id_of,
    in_batches,
    named_vectors,
    passage_length,
    point_id,
    points_of,
    stone_id,
)
from ralph.index.qdrant.scrolling import PAGE, scrolled
from ralph.index.qdrant.server import Gone, Server, Taken
from ralph.index.qdrant.view import QdrantView
from ralph.index.qdrant.writing import Writer
from ralph.index.tables import Collection, Row

_WAITING = ("waits", "waiting")
_POINTS_AT_ONCE = 256
_BYTES_AT_ONCE = 8 * 1024 * 1024
# How long passages are, until a first batch is large enough to tell.
_USUAL_TOKENS = 100.0
_TELLING_PASSAGES = 50
_TRIES = 20


class QdrantStore:
    """The collections of one place on a Qdrant server."""

    def __init__(self, server: Server, names: Names) -> None:
        self._server = server
        self._names = names
        self._writer = Writer(server)
        self._facts: dict[str, Facts] = {}
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
        metadata = Metadata(
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
        rows: Sequence[Row],
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
            raise Gone("another machine brings the same collection up to its journal")
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
        made = [Point(id_of(row), {}, named_vectors(blob, dims), None) for row, blob in vectors]
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

    def _prepared(self, metadata: Metadata, rows: Sequence[Row]) -> Metadata:
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

    def _upsert_rows(self, metadata: Metadata, rows: Sequence[Row]) -> None:
        """Heads last: where one stands, the record is there whole."""
        others: list[Point] = []
        heads: list[Point] = []
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
            Point(stone_id(one), {"type": STONE, "buried": True, "id": one}, {}, None)
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

    def _swept(self, metadata: Metadata) -> int:
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

    def _metadata(self, name: str) -> Metadata:
        found = self._view().metadata(name)
        if found is None:
            raise Gone("somebody deleted the collection while it was written")
        return found

    def _say(self, metadata: Metadata) -> Metadata:
        """Tell how far it has come; everybody sees by its state that something was written."""
        told = msgspec.structs.replace(metadata, state=uuid.uuid4().hex)
        payload: dict[str, Any] = msgspec.to_builtins(told)
        self._writer.upsert(metadata.physical, [Point(META_ID, payload, {}, None)])
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
        for number in range(generation, generation + _TRIES):
            physical = self._names.physical(name, number)
            with contextlib.suppress(Taken):  # another machine was faster
                self._writer.make_collection(physical, dims)
                return physical, number
        raise Gone("others make the same collection again and again")

    def _delete_collection(self, physical: str) -> None:
        self._facts.pop(physical, None)
        self._sweeps.pop(physical, None)
        self._writer.delete_collection(physical)
