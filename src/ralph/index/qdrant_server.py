"""A Qdrant server: asked with a short patience, and left alone for a while when it fails.

Its own client makes the requests, our wire carries them: with one deadline for each, and telling
what is wrong in our words. The key goes to the server and nowhere else.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

from ralph.errors import IndexOff
from ralph.index import Only, wanted_tokens
from ralph.index.port import Corrupt
from ralph.index.qdrant_points import ASIDE_MEANING, MEANING
from ralph.wire import Deadline, Reply, Wire

if TYPE_CHECKING:
    import httpx
    from qdrant_client import QdrantClient, models


_T = TypeVar("_T")

QDRANT_PORT = 6333
# Multivectors and the query interface came with it.
OLDEST = (1, 10)
# A server that failed is not asked again for so long.
REST_S = 30.0
# Of the time a write may take: somebody waits for the answer to a question.
_QUERY_SHARE = 0.4
_START = "Start it, or go back to the embedded index: ralph config qdrant_url --unset"
_SLOW = "Look after the server, or give it more time: ralph config remember_budget_s SECONDS"
_KEY = "Set RALPH_QDRANT_API_KEY to a key that may write."
_LOOK = "Look into the server's log; the journal has everything."


class CollectionGone(Corrupt):
    """A collection or point is not there any more: look again, it was replaced or deleted."""

    replaced = True


class CollectionDamaged(Corrupt):
    """What stands in a collection cannot be read; `name` is the collection's, or its alias."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what)
        self.name = name


class NameTaken(Exception):
    """A collection of this name is there already."""


class ServerStarter(Protocol):
    """Somebody who can start a server on this machine."""

    def start(self) -> bool:
        """Start it and wait until it is ready; False where something listens there. IndexOff."""
        ...


class QdrantConnection:
    """One server by its URL, shared by all indexes of a process.

    `client` stands for a server that needs no wire, as the client's own local mode does.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = 5.0,
        starter: ServerStarter | None = None,
        clock: Callable[[], float] = time.monotonic,
        client: QdrantClient | None = None,
    ) -> None:
        self._url = url
        self._key = key
        self._timeout_s = timeout_s
        self._starter = starter
        self._clock = clock
        self._client = client
        self._local = client is not None
        self._patience = threading.local()
        self._rest: tuple[float, IndexOff] | None = None
        self._version: str | None = None
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        """The server as it may be told: without anything secret."""
        parts = _split(self._url)
        if parts is None:
            return "qdrant_url"
        return _origin(parts) + parts.path.rstrip("/")

    @property
    def version(self) -> str:
        """What the server said it is; asked once."""
        if self._version is None:
            self.ask(lambda client: None)
        return self._version or ""

    @property
    def parallel(self) -> bool:
        """Whether several threads may ask at once."""
        return not self._local

    def check(self) -> None:
        """Try it now, whatever was found before."""
        self._rest = None
        self._version = None
        # Who a server is it tells anybody; this it tells only whoever has its key.
        self.ask(lambda client: client.collection_exists("ralph"))

    def ask(self, work: Callable[[QdrantClient], _T], *, slow: bool = False) -> _T:
        """What the server answers. A failure is told again for a while without asking."""
        if self._rest is not None and self._clock() < self._rest[0]:
            error = self._rest[1]
            raise IndexOff(error.what, where=error.where, todo=error.todo)
        self._patience.seconds = self._timeout_s * (1.0 if slow else _QUERY_SHARE)
        try:
            try:
                answer = self._greeted_and(work)
            except IndexOff:
                if self._starter is None or not self._starter.start():
                    raise
                # Everything we ask can be asked twice: ids come from content.
                answer = self._greeted_and(work)
        except IndexOff as error:
            self._rest = self._clock() + REST_S, error
            raise
        self._rest = None
        return answer

    def off(self, what: str, todo: str = _LOOK) -> IndexOff:
        """An error about this server."""
        return IndexOff(f"Qdrant {what}", where=self.where, todo=todo)

    # -- inside

    def _greeted_and(self, work: Callable[[QdrantClient], _T]) -> _T:
        with self._lock:
            if self._client is None:
                self._client = self._connection()
            client = self._client
        if self._version is None:
            self._version = self._translated(lambda: self._greet(client))
        return self._translated(lambda: work(client))

    def _greet(self, client: QdrantClient) -> str:
        told = client.info()
        version = re.match(r"(\d+)\.(\d+)", str(told.version))
        if "qdrant" not in told.title.lower() or version is None:
            raise self.off("is not what answers there", "Set the URL of a Qdrant server.")
        if (int(version[1]), int(version[2])) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise self.off(f"is too old ({told.version})", f"Update it to {oldest} or newer.")
        return str(told.version)

    def _connection(self) -> QdrantClient:
        parts = _split(self._url)
        if parts is None:
            raise self.off("has no usable URL", "Set one like http://127.0.0.1:6333")
        if parts.username or parts.password:
            raise self.off("has credentials in its URL", "Set RALPH_QDRANT_API_KEY instead.")
        try:
            from qdrant_client import QdrantClient
        except ImportError:
            raise IndexOff(
                "the package qdrant-client is not installed",
                todo="Run: pip install 'ralph-rag[qdrant]'",
            ) from None
        wire = Wire(
            _origin(parts),
            name="Qdrant",
            todo=_START,
            slow=_SLOW,
            error=IndexOff,
            headers={"api-key": self._key} if self._key else {},
        )
        return QdrantClient(
            url=self.where,
            port=parts.port or QDRANT_PORT,
            check_compatibility=False,
            transport=_carried(wire, lambda: Deadline(self._patience.seconds)),
        )

    def _translated(self, work: Callable[[], _T]) -> _T:
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            return work()
        except UnexpectedResponse as error:
            raise self._refusal(error.status_code or 0, error.content) from None
        except ResponseHandlingException as error:
            if isinstance(error.source, IndexOff):
                raise error.source from None
            what = f"gave an answer that cannot be read ({type(error.source).__name__})"
            raise self.off(what) from None
        except QdrantException as error:
            raise self.off(f"is busy ({error})", "Try again later.") from None
        except (json.JSONDecodeError, AssertionError):
            # The client asserts that an answer holds what was asked for.
            raise self.off("gave an answer that cannot be read") from None
        except (ValueError, KeyError) as error:
            if self._local and (found := _of_local_mode(error)) is not None:
                raise found from None
            raise

    def _refusal(self, status: int, content: bytes) -> Exception:
        reply = Reply(status, {}, _plain(content))
        told = reply.describe(self._key) if self._key else reply.describe()
        if status == 404:
            return CollectionGone(f"Qdrant does not have it ({told})")
        if status == 409 or (status == 400 and b"already exists" in content):
            return NameTaken()
        if status in (401, 403):
            what = "refuses the key" if self._key else "asks for a key"
            return self.off(f"{what} ({status})", _KEY)
        return self.off(f"answers with {told}")


def _of_local_mode(error: Exception) -> Exception | None:
    """What the client's local mode means by its own errors."""
    if "already exists" in str(error):
        return NameTaken()
    if "not found" in str(error) or isinstance(error, KeyError):
        return CollectionGone(str(error))
    return None


def _plain(content: bytes) -> bytes:
    """Qdrant's complaint where `Reply` looks for it: it stands in `status.error`."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        return content
    status = told.get("status") if isinstance(told, dict) else None
    return json.dumps(status).encode() if isinstance(status, dict) else content


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if fits else None


def _origin(parts: SplitResult) -> str:
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{parts.port or QDRANT_PORT}"


def _carried(wire: Wire[IndexOff], patience: Callable[[], Deadline]) -> httpx.BaseTransport:
    """The client's requests, carried by our own wire."""
    import httpx

    class Carried(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            reply = wire.call(
                request.method,
                request.url.raw_path.decode("ascii"),
                request.read() or None,
                deadline=patience(),
            )
            return httpx.Response(reply.status, content=reply.body)

    return Carried()


# -- Which points are meant: filters as Qdrant reads them.


def chunks(values: Sequence[str], size: int) -> Iterator[list[str]]:
    """The values, so many at a time."""
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def holding(**wanted: Any) -> models.Filter:
    """What has these values; of a list, one of them."""
    from qdrant_client import models

    return models.Filter(
        must=[
            models.FieldCondition(
                key=key,
                match=models.MatchAny(any=list(value))
                if isinstance(value, list)
                else models.MatchValue(value=value),
            )
            for key, value in wanted.items()
        ]
    )


def fitting(only: Only | None) -> models.Filter | None:
    """What has, of each facet asked for, one of the values or none."""
    from qdrant_client import models

    groups = wanted_tokens(only)
    if not groups:
        return None
    return models.Filter(
        must=[
            models.FieldCondition(key="facets", match=models.MatchAny(any=list(group)))
            for group in groups
        ]
    )


# -- Everything of a collection that fits, page by page.


# How many points are asked for at once, and how many with their vectors.
PAGE = 256
_PAGE_OF_VECTORS = 32


def scrolled(
    server: QdrantConnection,
    name: str,
    having: models.Filter,
    keys: list[str],
    *,
    vectors: bool = False,
    page: int = PAGE,
) -> Iterator[Any]:
    """Every point that fits."""
    after: Any = None

    def scroll(client: QdrantClient) -> tuple[list[models.Record], Any]:
        return client.scroll(
            name,
            scroll_filter=having,
            limit=_PAGE_OF_VECTORS if vectors else page,
            offset=after,
            with_payload=keys,
            with_vectors=[MEANING, ASIDE_MEANING] if vectors else False,
        )

    while True:
        found, after = server.ask(scroll)
        yield from found
        if after is None:
            return
