"""What stands in a Qdrant collection: points, their ids, payloads and vectors. Pure.

One point a passage. The first passage of a record also holds the record and is written last: where
it stands, everything of the record stands. A record without passages has such a point too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ralph.index import ASIDE_WEIGHT, Manifest, Passage, facet_tokens
from ralph.index.port import Collection, Corrupt, IndexedRecord
from ralph.records import Record, Source
from ralph.text.tokens import tokens

# The vectors of a point: its pieces, its asides, and its words.
MEANING, ASIDE_MEANING, WORDS = "meaning", "aside", "words"
METADATA, STONE = "metadata", "tombstone"
# What a payload is filtered by, beside its facets.
INDEXES = {
    "type": "keyword",
    "record": "keyword",
    "tokens": "keyword",
    "facets": "keyword",
    "facet_task_id": "keyword",
    "facet_outcome": "keyword",
    "facet_type": "keyword",
    "head": "bool",
    "buried": "bool",
    "passage": "bool",
    "waits": "bool",
    "number": "integer",
    "sweep": "integer",
}
FACET = "facet_"

_SPACE = uuid.UUID("6f1d1f0e-52f4-5b0e-9d0a-6f3c6f1b8a55")
META_ID = str(uuid.uuid5(_SPACE, METADATA))

# How the embedded index finds its candidates; they are weighed again in the same way as there.
_TITLE, _TEXT, _PLACES = 2.0, 1.0, 0.5
_SATURATION, _LENGTH = 1.2, 0.75
_decode_source = msgspec.json.Decoder(Source).decode


class CollectionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the metadata point of a collection tells: what it is, and how far it has come."""

    name: str
    stream: str
    physical: str
    manifest: Manifest
    average: float
    position: str | None = None
    sweep: int = 0
    sweeping: bool = False
    state: str = ""
    indexed: tuple[str, ...] = ()
    type: str = METADATA

    def collection(self, *, live: bool) -> Collection:
        """The collection as everybody else knows it."""
        digest = hashlib.sha256(self.physical.encode()).digest()
        return Collection(
            id=int.from_bytes(digest[:7]),
            name=self.name,
            stream=self.stream,
            live=live,
            manifest=self.manifest,
            position=self.position,
            sweep=self.sweep,
            sweeping=self.sweeping,
            physical=self.physical,
            state=self.state,
        )


def read_metadata(payload: object) -> CollectionMetadata:
    """The metadata of a collection; Corrupt where it is none."""
    try:
        return msgspec.convert(payload, CollectionMetadata)
    except msgspec.ValidationError as error:
        raise Corrupt(f"its metadata cannot be read: {error}") from None


# -- ids


def point_id(record_id: str, digest: str, place: int) -> str:
    """The point of one passage; the same content gets the same point wherever it is written."""
    return str(uuid.uuid5(_SPACE, f"{record_id}\0{digest}\0{place}"))


def stone_id(record_id: str) -> str:
    """The point that remembers a tombstone."""
    return str(uuid.uuid5(_SPACE, f"{STONE}\0{record_id}"))


def row_of(point: object) -> int:
    """A point's id as a row."""
    return uuid.UUID(str(point)).int


def id_of(row: int) -> str:
    """A row as a point's id."""
    return str(uuid.UUID(int=row))


# -- points


class QdrantPoint(msgspec.Struct, frozen=True):
    """A point before it is handed to Qdrant's client."""

    id: str
    payload: dict[str, Any]
    vectors: dict[str, list[list[float]]]
    words: tuple[list[int], list[float]] | None

    @property
    def weight(self) -> int:
        """About how many bytes it takes on the wire."""
        numbers = sum(len(row) for rows in self.vectors.values() for row in rows)
        words = len(self.words[0]) if self.words else 0
        texts = (value for value in self.payload.values() if isinstance(value, str))
        lists = (value for value in self.payload.values() if isinstance(value, list))
        told = sum(map(len, texts)) + sum(len(str(one)) + 3 for some in lists for one in some)
        return 20 * numbers + 30 * words + told + 500


def points_of(row: IndexedRecord, *, sweep: int, dims: int, average: float) -> list[QdrantPoint]:
    """A record as points, the one that holds the record last."""
    record = row.record
    made: list[QdrantPoint] = []
    for place, (passage, passage_hash, blob) in enumerate(
        zip(row.passages, row.hashes, row.vectors, strict=True)
    ):
        payload, words = _passage(passage, average)
        payload |= {"hash": passage_hash.hex(), "place": place, **_record_keys(record)}
        vectors: dict[str, list[list[float]]] = {}
        if blob is not None:
            vectors = named_vectors(blob, dims)
        elif passage.embed:
            payload |= {"waits": True, "waiting": passage.embed}
        made.append(QdrantPoint(point_id(record.id, record.digest, place), payload, vectors, words))
    if not made:
        made.append(
            QdrantPoint(
                point_id(record.id, record.digest, 0),
                {"place": 0, **_record_keys(record)},
                {},
                None,
            )
        )
    head = made.pop(0)
    head.payload.update(_record_payload(record), head=True, sweep=sweep, count=len(row.passages))
    return [*made, head]


def _record_keys(record: Record) -> dict[str, Any]:
    return {"type": record.kind, "record": record.id, "digest": record.digest}


def _record_payload(record: Record) -> dict[str, Any]:
    try:
        body = {"body": record.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(record.body).decode()}
    source = msgspec.json.encode(record.source).decode()
    return {"number": record.number, "at": record.at, "source": source, **body}


def record_of(payload: Mapping[str, Any]) -> Record:
    """The record that a head's payload holds; Corrupt where it is not the one it should be."""
    try:
        held = msgspec.convert(payload, _HeadPayload)
        raw = base64.b64decode(held.body_base64) if held.body is None else held.body.encode()
        source = _decode_source(held.source)
    except (binascii.Error, msgspec.MsgspecError) as error:
        raise Corrupt(f"a point's record cannot be read ({error})") from None
    record = Record(held.record, held.type, held.number, held.at, raw, source)
    if record.digest != held.digest:
        raise Corrupt(f"record {record.id} does not match its digest")
    return record


class _HeadPayload(msgspec.Struct):
    """What of a head's payload is the record's."""

    record: str
    digest: str
    type: str
    number: int
    at: str
    source: str
    body: str | None = None
    body_base64: str = ""


# -- words


def _passage(
    passage: Passage, average: float
) -> tuple[dict[str, Any], tuple[list[int], list[float]] | None]:
    fields = tokens(passage.title), tokens(passage.text), tokens(passage.places)
    facets = facet_tokens(passage.facets)
    title, text, places = (" ".join(field) for field in fields)
    payload: dict[str, Any] = {
        "passage": True,
        "title": title,
        "text": text,
        "places": places,
        "tokens": sorted({token for field in fields for token in field}),
        "facets": facets,
    }
    for name, values in passage.facets.items():
        # What no server takes is replaced: this is for people; questions ask by the tokens.
        payload[FACET + name] = [one.encode(errors="replace").decode() for one in values]
    length = sum(map(len, fields)) + len(facets)
    return payload, _sparse(_weights(fields, length / average))


def passage_length(passage: Passage) -> int:
    """How many tokens a passage has, its facets among them, as BM25 counts."""
    texts = passage.title, passage.text, passage.places
    return sum(len(tokens(text)) for text in texts) + len(facet_tokens(passage.facets))


def _weights(fields: Sequence[Sequence[str]], relative_length: float) -> dict[str, float]:
    """What BM25 gives each token of a passage, before its rarity is known."""
    times: dict[str, float] = {}
    for field, weight in zip(fields, (_TITLE, _TEXT, _PLACES), strict=True):
        for token in field:
            times[token] = times.get(token, 0.0) + weight
    norm = _SATURATION * (1.0 - _LENGTH + _LENGTH * relative_length)
    return {token: f * (_SATURATION + 1.0) / (f + norm) for token, f in times.items()}


def _sparse(weights: Mapping[str, float]) -> tuple[list[int], list[float]] | None:
    held: dict[int, float] = {}
    for token, weight in weights.items():
        place = token_place(token)
        held[place] = held.get(place, 0.0) + weight
    return (list(held), list(held.values())) if held else None


def token_place(token: str) -> int:
    """Where a token stands in a sparse vector; two may share a place, and are told apart later."""
    return int.from_bytes(hashlib.blake2b(token.encode(), digest_size=4).digest())


# -- vectors


def named_vectors(blob: bytes, dims: int) -> dict[str, list[list[float]]]:
    """A passage's vectors by name: Qdrant brings them to length one, so asides stand apart."""
    import numpy as np

    if not dims or not blob or len(blob) % (4 * dims):
        raise Corrupt("a vector of another length than it should have")
    rows = np.frombuffer(blob, dtype=np.float32).reshape(-1, dims)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    aside = (lengths > 0.0) & (lengths < (1.0 + ASIDE_WEIGHT) / 2.0)
    found: dict[str, list[list[float]]] = {}
    if not aside.all():
        found[MEANING] = rows[~aside].tolist()
    if aside.any():
        found[ASIDE_MEANING] = (rows[aside] / lengths[aside, None]).astype(np.float32).tolist()
    return found


def vectors_blob(vectors: object) -> bytes | None:
    """What `named_vectors` made, as it was; None where there is none."""
    import numpy as np

    if not isinstance(vectors, dict):
        return None
    made = b""
    for name, weight in ((MEANING, 1.0), (ASIDE_MEANING, ASIDE_WEIGHT)):
        if rows := vectors.get(name):
            made += (np.array(rows, dtype=np.float32) * np.float32(weight)).tobytes()
    return made or None


# -- batches


def in_batches(
    points: Iterable[QdrantPoint], *, most: int, most_bytes: int
) -> Iterator[list[QdrantPoint]]:
    """As many points at once as a request may hold; at least one."""
    some: list[QdrantPoint] = []
    held = 0
    for point in points:
        weight = point.weight
        if some and (len(some) == most or held + weight > most_bytes):
            yield some
            some, held = [], 0
        some.append(point)
        held += weight
    if some:
        yield some


# -- What a collection is called on a server: its alias, and the collection itself.


PREFIX = "ralph-"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_PHYSICAL = re.compile(r"(.+)-g[0-9a-f]+")


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
        """Under which the collection is found that is to replace the one that answers."""
        return f"{self.alias(name)}-next"

    def new_physical(self, name: str) -> str:
        """A name that no collection has."""
        return f"{self.alias(name)}-g{uuid.uuid4().hex[:8]}"

    def owns(self, physical: str, name: str | None = None) -> bool:
        """Whether this is one of ours; of that name, where one is given."""
        found = _PHYSICAL.fullmatch(physical)
        if found is None:
            return False
        if name is not None:
            return found[1] == self.alias(name)
        return found[1].startswith(self._before + self.scope())

    @property
    def _before(self) -> str:
        place = self.place if isinstance(self.place, str) else self.place()
        return f"{PREFIX}{place}-" if place else PREFIX
