"""The memories of a project on a server, by the same calls as those of a folder.

What only a folder can do (settings, the index, moving journals) says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ralph.errors import BadInput, JournalDown, NotFound, RecordForgotten
from ralph.memory.conversation_search import Related
from ralph.memory.conversations import SavedExchange
from ralph.memory.feature import FileSeen, SavedIteration
from ralph.memory.knowledge import Context, SavedEntry
from ralph.memory.plan_stream import FEATURE, LEARNING, FeatureLearning, FeatureSnapshot
from ralph.memory.store import Answer
from ralph.recall import Hit
from ralph.recall.patterns import Pattern, Patterns
from ralph.records import conversation as talk
from ralph.records.iteration import KIND as ITERATION
from ralph.records.iteration import Iteration
from ralph.records.knowledge import ENTRIES, Entry
from ralph.records.note import NOTE, Note
from ralph.wire import Deadline, Reply, Wire

TIMEOUT_S = 35.0
_RECORDS: dict[str, Any] = {
    ITERATION: Iteration,
    NOTE: Note,
    LEARNING: FeatureLearning,
    FEATURE: FeatureSnapshot,
    talk.EXCHANGE: talk.Exchange,
    talk.CONVERSATION: talk.Conversation,
    talk.DOCUMENT: talk.Document,
}
_HOW = "Check the address, which is like https://HOST/projects/NAME, and that the server runs."


class RemoteRalph:
    """The memories of one project on a server. Close it, or use it in a `with` block."""

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address.rstrip("/"))
        before, _, name = parts.path.rpartition("/projects/")
        if not name or "/" in name:
            raise BadInput(f"{address!r} does not name a project", todo=_HOW)
        if not token:
            todo = "Create one on the server with `ralph token create`, and set RALPH_TOKEN."
            raise BadInput("a server needs a token", todo=todo)
        base = parts._replace(path=f"{before}/v1/projects/{quote(name, safe='')}").geturl()
        self.wire = Wire(base, "The memory server", _HOW, JournalDown, key=token)
        self.conversations = RemoteConversations(self)
        self.knowledge = RemoteKnowledge(self)

    def __repr__(self) -> str:
        """The server that it is on."""
        return f"<RemoteRalph {self.wire.safe_url}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise BadInput(
            f"a memory on a server has no {name!r} here", todo="Do that where the server runs."
        )

    # -- asking

    def search(self, query: str, **narrowing: Any) -> Answer:
        """Search everything that the token may see, best first."""
        return self.answer("/search", {"q": query, **_named(narrowing)})

    def recent(self, count: int = 10, **narrowing: Any) -> Answer:
        """What happened last, newest first."""
        return self.answer("/recent", {"count": count, **_named(narrowing)})

    def get(self, record_id: str, **_: Any) -> Hit:
        """One record of any kind, by its id or the beginning of it."""
        return _hit(self.call("GET", f"/records/{quote(record_id, safe='')}"))

    def status(self) -> dict[str, Any]:
        """Whether memory is available there."""
        found: dict[str, Any] = self.call("GET", "/status")
        return found

    # -- writing

    def remember(self, text: str, *, feature: str = "", **_: Any) -> tuple[Note, bool]:
        """Keep a note of the project, or of one feature; returns it and whether it is new."""
        saved = self.call("POST", "/notes", {"text": text, "feature": feature})
        return msgspec.convert(saved["record"], Note), saved["fresh"]

    def remember_all(
        self, iterations: Sequence[Iteration | Mapping[str, Any]], **_: Any
    ) -> list[SavedIteration]:
        """Keep many, each under the feature it names; all of them, or none."""
        saved = self.call("POST", "/iterations", msgspec.to_builtins(list(iterations)))
        return [msgspec.convert(one, SavedIteration) for one in saved]

    def forget(self, record_id: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Forget a record and everything derived from it, or say what would go."""
        query = "?dry_run=true" if dry_run else ""
        done: dict[str, Any] = self.call("DELETE", f"/records/{quote(record_id, safe='')}{query}")
        return done

    def feature(self, name: str) -> RemoteFeature:
        """The memory of one feature."""
        return RemoteFeature(self, name)

    def features(self) -> list[RemoteFeature]:
        """Every feature of the plan there."""
        return [self.feature(one["name"]) for one in self.call("GET", "/features")]

    def close(self) -> None:
        """Let go of connections."""
        for connection in self.wire.idle:
            connection.close()
        self.wire.idle.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- the wire

    def answer(self, path: str, query: Mapping[str, Any]) -> Answer:
        """Hits that the server gives."""
        told = self.call("GET", f"{path}?{urlencode(_plain(query), doseq=True)}")
        return Answer([_hit(one) for one in told["hits"]], tuple(told["notes"]))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call; what the server refuses is the same error as in a folder."""
        raw = b"" if body is None else msgspec.json.encode(body)
        reply = self.wire.call(method, path, raw, deadline=Deadline(TIMEOUT_S))
        if reply.status >= 400:
            raise self._error(reply)
        return msgspec.json.decode(reply.body)

    def _error(self, reply: Reply) -> Exception:
        what = reply.complaint(self.wire.key or "") or f"it answered {reply.status}"
        kinds: dict[int, type[BadInput]] = {404: NotFound, 410: RecordForgotten}
        if reply.status in (401, 403):
            return BadInput(f"the server refused it: {what}", where=self.wire.safe_url)
        if reply.status < 500 and reply.status != 429:
            return kinds.get(reply.status, BadInput)(what)
        return self.wire.off(f"did not do it ({reply.describe(self.wire.key or '')})")


class RemoteFeature(msgspec.Struct, frozen=True):
    """The memory of one feature on a server."""

    ralph: RemoteRalph
    name: str

    def remember(self, iteration: Iteration | Mapping[str, Any], **_: Any) -> SavedIteration:
        """Keep what an iteration came to."""
        return self.remember_all([iteration])[0]

    def remember_all(
        self, iterations: Iterable[Iteration | Mapping[str, Any]], **_: Any
    ) -> list[SavedIteration]:
        """Keep many, all of them or none."""
        told = [{**msgspec.to_builtins(one), "feature": self.name} for one in iterations]
        return self.ralph.remember_all(told)

    def search(self, query: str, **bounds: Any) -> Answer:
        """The iterations that answer the question, best first."""
        return self.ralph.search(query, kinds=[ITERATION], features=[self.name], **bounds)

    def recent(self, count: int | None = None) -> Answer:
        """The newest iterations, newest first."""
        return self.ralph.recent(count or 10, kinds=[ITERATION], features=[self.name])

    def failed_attempts(self, task_id: int | str | None = None) -> Answer:
        """Iterations that failed, newest first."""
        query = {} if task_id is None else {"task": task_id}
        return self.ralph.answer(f"/features/{quote(self.name, safe='')}/failures", query)

    def files(self) -> list[FileSeen]:
        """Every file the iterations touched, the most touched first."""
        told = self.ralph.call("GET", f"/features/{quote(self.name, safe='')}/files")
        return [msgspec.convert(one, FileSeen) for one in told]

    def get(self, record_id: str) -> Hit:
        """One record whole."""
        return self.ralph.get(record_id)


class RemoteConversations(msgspec.Struct, frozen=True):
    """The conversations of a project on a server."""

    ralph: RemoteRalph

    def start(self, title: str = "", *, session: str | None = None, source: str = "api") -> str:
        """Start a conversation and return its id; a session that is known continues."""
        body = {"session": session or uuid.uuid4().hex, "title": title, "source": source}
        identity: str = self.ralph.call("POST", "/conversations", {**body, "exchanges": []})["id"]
        return identity

    def exchange(
        self, conversation: str, *, user: str, assistant: str, key: str | None = None
    ) -> SavedExchange:
        """Save one exchange of a conversation that was started; the same key twice is one."""
        body = {"user": user, "assistant": assistant, "key": key or uuid.uuid4().hex}
        path = f"/conversations/{quote(conversation, safe='')}/exchanges"
        return msgspec.convert(self.ralph.call("POST", path, body), SavedExchange)

    def search(self, query: str, **narrowing: Any) -> Answer:
        """The exchanges that answer a question."""
        return self.ralph.search(query, kinds=[talk.EXCHANGE], **narrowing)

    def related(self, question: str) -> Related:
        """The past conversations that matter for a question, and their exchanges that do."""
        told = self.ralph.call("GET", f"/related?{urlencode({'q': question})}")
        return msgspec.convert(told, Related)

    def exchanges(self, conversation: str) -> list[talk.Exchange]:
        """The exchanges of a conversation, in their order."""
        told = self.ralph.call("GET", f"/conversations/{quote(conversation, safe='')}")
        return [msgspec.convert(one, talk.Exchange) for one in told["exchanges"]]


class RemoteKnowledge(msgspec.Struct, frozen=True):
    """What all projects of a server learned; for whoever directs agents."""

    ralph: RemoteRalph

    def capture(self, plain: Mapping[str, Any]) -> SavedEntry:
        """Stage a failure with its verified solution, a rejected or an approved gate."""
        told = self.ralph.call("POST", "/knowledge/entries", dict(plain))
        return SavedEntry(told["id"], _entry(told["record"]), told["fresh"], told["staged"])

    def checkpoint(self, *, kind: str = "manual") -> dict[str, Any]:
        """Publish what this project has staged."""
        done: dict[str, Any] = self.ralph.call("POST", "/knowledge/checkpoints", {"kind": kind})
        return done

    def query_for_task(self, task_description: str, *of: str | None, **bounds: Any) -> Patterns:
        """The patterns that may help with a task, best first."""
        return self._query("/knowledge/task", {"task": task_description}, of, bounds)

    def query_for_failure(
        self, failure_description: str, error_message: str = "", *of: str | None, **bounds: Any
    ) -> Patterns:
        """How failures like this one were solved, best first."""
        asked = {"failure": failure_description, "error": error_message}
        return self._query("/knowledge/failure", asked, of, bounds)

    def context_for_task(self, task_description: str, *of: str | None, **bounds: Any) -> Context:
        """The context an agent gets for a task."""
        asked = {"task": task_description, **_facets(of), **bounds}
        return msgspec.convert(self.ralph.call("POST", "/knowledge/context", asked), Context)

    def report_outcome(
        self,
        pattern: str | Pattern,
        worked: bool,
        *,
        task: str | int | None = None,
        run: str | None = None,
        note: str = "",
    ) -> str:
        """Say whether a pattern helped, and get the outcome's id."""
        body = {
            "pattern": pattern if isinstance(pattern, str) else pattern.id,
            "worked": worked,
            "task": None if task is None else str(task),
            "run": run,
            "note": note,
        }
        identity: str = self.ralph.call("POST", "/knowledge/outcomes", body)["id"]
        return identity

    def patterns(self) -> Patterns:
        """Every pattern, those told most often first."""
        return Patterns(map(_pattern, self.ralph.call("GET", "/knowledge/patterns")))

    def _query(
        self, path: str, asked: Mapping[str, Any], of: Sequence[str | None], bounds: Any
    ) -> Patterns:
        told = self.ralph.call("POST", path, {**asked, **_facets(of), **bounds})
        found = Patterns(map(_pattern, told["patterns"]))
        found.notes = tuple(told["notes"])
        return found


# -- as values


def _hit(plain: Mapping[str, Any]) -> Hit:
    kind, record = plain["kind"], plain["record"]
    if kind in _RECORDS:
        record = msgspec.convert(record, _RECORDS[kind], strict=False)
    elif isinstance(record, dict) and "entry_type" in record:
        record = _entry(record)
    fields = {name: plain[name] for name in ("id", "score", "relevance", "when", "why", "at")}
    return Hit(kind=kind, record=record, like=tuple(plain["like"]), **fields)


def _entry(plain: Mapping[str, Any]) -> Entry:
    fields = {name: one for name, one in plain.items() if name != "entry_type"}
    entry: Entry = msgspec.convert(fields, ENTRIES[plain["entry_type"]])
    return entry


def _pattern(plain: Mapping[str, Any]) -> Pattern:
    fields = {name: plain[name] for name in Pattern.__struct_fields__}
    tuples = {name: tuple(fields[name]) for name in ("entries", "conflicts")}
    return Pattern(**{**fields, **tuples, "record": _entry(plain["record"])})


def _facets(of: Sequence[str | None]) -> dict[str, str | None]:
    return dict(zip(("agent_type", "task_type", "technology"), of, strict=False))


_NAMES = {"kinds": "kind", "features": "feature"}


def _named(narrowing: Mapping[str, Any]) -> dict[str, Any]:
    """What a search in a folder takes, by the names that the server knows."""
    known = {"kinds", "features", "since", "until", "limit", "min_score"}
    return {_NAMES.get(name, name): one for name, one in narrowing.items() if name in known}


def _plain(query: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was not given."""
    empty: Collection[Any] = (None, [], ())
    return {
        name: list(one) if isinstance(one, tuple | set | frozenset) else one
        for name, one in query.items()
        if one not in empty
    }
