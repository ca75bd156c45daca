"""The memories of a project on a server, with the same calls as those of a folder.

What only works in a folder (the index, moving journals) raises an error that says so. With an
`outbox`, records saved while the server is down wait here and are delivered before anything else.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote, unquote, urlencode

import msgspec

from ralph.config import Config, load
from ralph.errors import (
    AccessRefused,
    BadInput,
    JournalDown,
    NotFound,
    RecordForgotten,
    ServerFailed,
)
from ralph.memory import remote_values as values
from ralph.memory.anchors import AnchorStore, SavedAnchor, anchor_json
from ralph.memory.brief import Brief
from ralph.memory.checkpoints import CheckpointResult
from ralph.memory.conversation_search import Related
from ralph.memory.conversation_stream import (
    ConversationState,
    prepared_conversation,
    prepared_exchange,
)
from ralph.memory.conversations import ConversationDetails, SavedExchange
from ralph.memory.feature import FileSeen, SavedIteration, prepared
from ralph.memory.file_work import FileWork
from ralph.memory.invocations import HowTo
from ralph.memory.knowledge import Context, SavedEntry
from ralph.memory.knowledge_state import read_entry
from ralph.memory.lessons import Solved
from ralph.memory.outbox import Outbox, portions
from ralph.memory.project import Focus, Project
from ralph.memory.remote_values import OnServer
from ralph.memory.servers import ADDRESS, find_login
from ralph.memory.standing import CodeStandings, keep_anchors
from ralph.memory.status import Health, RagStatus, off, status_there
from ralph.memory.store import Answer, find_id
from ralph.recall import PERSON, Hit, Scope
from ralph.recall.kinds import KINDS
from ralph.recall.patterns import Pattern, Patterns
from ralph.records import JournalRecord, Record, Source, clean, clean_text, now, utc
from ralph.records import conversation as talk
from ralph.records import iteration as iterations_of
from ralph.records.iteration import KIND as ITERATION
from ralph.records.iteration import RECENT_COUNT, Iteration
from ralph.records.knowledge import Entry, entry_from_plain
from ralph.records.note import Author, Note, make_note
from ralph.text.signature import tells
from ralph.wire import BUSY, Deadline, Reply, Wire, usable_url

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.plan.model import PlanView

_log = logging.getLogger("ralph")
TIMEOUT_S = 35.0
# A person waits for the status, and it should tell of a server that hangs.
_STATUS_TIMEOUT_S = 8.0
# A server that does not even say within this time that it is there is silent. A call may take
# longer: the server may have much to read.
_SILENT_S = 5.0
# With an outbox, a server that did not answer is not tried again for this long.
_LEFT_ALONE_S = 10.0
# The most that a server takes in one call.
_MOST_ITERATIONS = 100
_MOST_EXCHANGES = 500
_MOST_ANCHORS = 500
_TOO_MANY = frozenset({429})
_ASK = (
    "Ask whoever runs the server for a token, and set RALPH_TOKEN. In a folder bound to the server,"
    " add --server URL, or save the token with `ralph hooks install --server URL`."
)
_HOW = (
    "Check that the address looks like https://HOST/projects/NAME and that the server is running."
)


class RemoteRalph(OnServer):
    """The memories of one project on a server. Close it, or use it in a `with` block.

    `project` is the folder of the person's work, with its settings. `captures`: also keep records
    here while the server refuses the token, because a hook cannot capture them again.
    """

    project: Project
    config: Config
    twin = ("ralph.memory.ralph", "Ralph")

    def __init__(
        self,
        address: str,
        token: str,
        *,
        project: Project | None = None,
        captures: bool = False,
        within_s: float | None = None,
    ) -> None:
        parts = usable_url(address.rstrip("/"))
        before, _, name = parts.path.rpartition("/projects/") if parts else ("", "", "")
        odd = "/" in name or before.endswith("/v1") or any(char in address for char in "@?#")
        if parts is None or not name or odd:
            shown = address.rpartition("@")[2]  # without a password
            todo = "It looks like https://HOST/projects/NAME, without a user name or a query."
            raise BadInput(f"{shown!r} does not name a project on a server", todo=todo)
        if not token or not token.isascii() or not token.isprintable():
            todo = "Set RALPH_TOKEN. Whoever runs the server creates one: ralph token create"
            raise BadInput(
                "this is not a token" if token else "the server needs a token",
                where=address.rstrip("/"),
                todo=todo,
            )
        base = parts._replace(path=f"{before}/v1/projects/{quote(unquote(name), safe='')}").geturl()
        self.wire = Wire(base, "The memory server", _HOW, JournalDown, look=_HOW, key=token)
        # Asks whether the server is there, on the connection that the next call uses.
        root = parts._replace(path=before).geturl()
        idle = self.wire.idle
        self._door = Wire(root, "The memory server", _HOW, JournalDown, look=_HOW, idle=idle)
        self._answered = False
        self.conversations = RemoteConversations(self)
        self.knowledge = RemoteKnowledge(self)
        self.where = address.rstrip("/")
        self.captures = captures
        self.outbox: Outbox | None = None
        # One deadline for all calls; without it each call has its own.
        self._deadline = None if within_s is None else Deadline(within_s)
        self._trouble: tuple[JournalDown, float] | None = None
        # The iterations of each feature, as last read.
        self.known: dict[str, tuple[str, list[tuple[JournalRecord, Iteration]]]] = {}
        if project is not None:
            self.project = project
            self.config = load(home=project.home, project_file=project.settings_file)
            self.outbox = Outbox(project.home, self.where, token)

    def __repr__(self) -> str:
        """The server's address."""
        return f"<RemoteRalph {self.where}>"

    # -- what a memory on this machine does in another way

    has_project = True
    # What people said privately, what was used and which words are common is not known here.
    reads_private_notes = False
    silent_ids = frozenset[str]()
    common_words = frozenset[str]()
    is_reached = True
    progress = None
    journal_files = None

    @property
    def place(self) -> str:
        """Where it is, in words for people."""
        return f"server {self.where}"

    @property
    def saves_to(self) -> str:
        """Where a note for everybody is saved, in words for people."""
        waits = self.outbox is not None and self.outbox.holds
        return "on this machine until the server takes it" if waits else "on the server"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which another process finds this memory."""
        return {ADDRESS: self.where}

    @property
    def waiting(self) -> int:
        """How many calls wait on this machine for the server."""
        return 0 if self.outbox is None else len(self.outbox.calls())

    def other_projects(self) -> None:
        """Nothing is known about other projects."""

    # -- asking

    def search(self, query: str, **narrowing: Any) -> Answer:
        """Search everything that the token may see, best first."""
        return self.answer("/search", {"q": query, **values.narrowed(narrowing)})

    def recent(self, count: int = RECENT_COUNT, **narrowing: Any) -> Answer:
        """The latest records, newest first."""
        return self.answer("/recent", {"count": count, **values.narrowed(narrowing)})

    def get(self, record_id: str, *, scope: Scope = PERSON, **_: Any) -> Hit:
        """One record of any kind, by its id or the beginning of it."""
        told = self.call("GET", f"/records/{quote(record_id, safe='')}")
        hit = values.read_hit(told)
        whose = getattr(hit.record, "feature", None)
        if scope.feature is not None and whose not in ("", scope.feature):
            raise NotFound(f"there is no record {record_id!r}")
        return self._with_standing([hit], [told])[0]

    def work_on(self, paths: Collection[str], scope: Scope = PERSON) -> list[FileWork]:
        """The records that worked on a file that has or had these paths."""
        told = self.call("GET", f"/work?{urlencode({'path': list(paths)}, doseq=True)}")["work"]
        return [FileWork(values.read_hit(one), values.read_anchors(one)) for one in told]

    def how_to(self, question: str, scope: Scope = PERSON) -> HowTo:
        """Which commands did in earlier sessions what the question asks for."""
        return msgspec.convert(self.call("GET", f"/how?{urlencode({'q': question})}"), HowTo)

    def brief(
        self, view: PlanView, focus: Focus | None, *, without: frozenset[str] = frozenset()
    ) -> Brief:
        """Return what someone who starts to work here should know, by the server's own plan."""
        query = {} if focus is None else {"feature": focus.feature, "task": focus.task_id}
        told = self.call("GET", f"/brief?{urlencode(values.given_only(query))}")
        return msgspec.convert(told, Brief, strict=False)

    def solved(
        self,
        message: str,
        *,
        feature: str | None = None,
        file: str | None = None,
        budget_s: float | None = None,
    ) -> Solved | None:
        """How this project solved an error before."""
        if not tells(message):
            return None
        told = self.call("POST", "/solved", {"error": clean_text(message), "feature": feature})
        return msgspec.convert(told, Solved | None)

    def status(self) -> RagStatus:
        """Whether memory is available there; a token for one feature gets little."""
        try:
            return status_there(Health(True, "on the server"), self.raw_status())
        except JournalDown as error:
            return status_there(off(error), {})

    def raw_status(self) -> dict[str, Any]:
        """What the server says about itself."""
        found: dict[str, Any] = self.call("GET", "/status", timeout_s=_STATUS_TIMEOUT_S)
        return found

    # -- writing

    def remember(
        self,
        text: str,
        *,
        feature: str = "",
        private: bool = False,
        by: Author = "agent",
        replaces: str = "",
    ) -> tuple[Note, bool]:
        """Save a note of the project or of one feature; returns it and whether it is new."""
        if replaces:
            todo = "Leave out --replaces, or run it where the server runs."
            raise BadInput("a server does not store what a note replaces", todo=todo)
        if private:
            todo = "Leave out --private, or --server."
            raise BadInput("a private note cannot be saved on a server", todo=todo)
        note = make_note(text, feature=feature, by=by)
        saved = self.save("/notes", {"text": note.text, "feature": feature, "by": by})
        if saved is None:
            return note, True
        return msgspec.convert(saved["record"], Note), saved["fresh"]

    def anchor(self, anchors: Sequence[SavedAnchor]) -> None:
        """Save which lines new records left in files, here and for the team."""
        if "project" not in self.__dict__:
            return
        placed = keep_anchors(self.project, anchors)
        if not placed:
            return
        for some in portions([anchor_json(saved) for saved in placed], _MOST_ANCHORS):
            with contextlib.suppress(NotFound):  # an older server keeps none
                self.save("/anchors", some)

    @functools.cached_property
    def standings(self) -> CodeStandings:
        """How the code of records stands in this working copy."""
        return CodeStandings(self.project)

    def remember_all(
        self, iterations: Sequence[Iteration | Mapping[str, Any]], **_: Any
    ) -> list[SavedIteration]:
        """Save many, each under its feature. Each call of up to a hundred saves all or none."""
        ready = [self._prepared(one) for one in iterations]
        saved: list[SavedIteration] = []
        for some in portions(ready, _MOST_ITERATIONS) if ready else ():
            told = self.save("/iterations", msgspec.to_builtins(some))
            if told is None:
                saved += [self._waiting(one) for one in some]
            else:
                saved += [msgspec.convert(one, SavedIteration) for one in told]
        return saved

    def _prepared(self, iteration: Iteration | Mapping[str, Any]) -> Iteration:
        """The iteration, redacted, with a time so that a repeated call saves it once."""
        told = iteration
        if not isinstance(told, Iteration):
            told = iterations_of.read_iteration(told)
        one = iterations_of.check_fields(told)
        at = utc(one.timestamp) if one.timestamp else now()
        root = str(self.project.root) if "project" in self.__dict__ else ""
        return clean(prepared(msgspec.structs.replace(one, timestamp=at), root=root))

    def _waiting(self, iteration: Iteration) -> SavedIteration:
        """An iteration that waits here, with the number it will probably get."""
        for located, one in reversed(self.feature(iteration.feature).iterations()):
            if one.timestamp == iteration.timestamp:
                return SavedIteration(located.record.id, ITERATION, one, True)
        return SavedIteration("", ITERATION, iteration, True)

    def save(self, path: str, body: Any) -> Any:
        """Deliver what waits, then save this. Returns None if it has to wait here, too."""
        if self.outbox is None:
            return self.call("POST", path, body)
        try:
            if self.deliver():
                return self.call("POST", path, body)
        except self.away as error:
            _log.warning("memory: saved on this machine until the server takes it: %s", error)
        self.outbox.keep(path, body)
        return None

    def deliver(self) -> bool:
        """Deliver what waits here. Returns False if another process is doing so."""
        box = self.outbox
        return box is None or not box.holds or box.deliver(self._send)

    def _send(self, path: str, body: Any) -> None:
        try:
            self.call("POST", path, body, waits=False)
        except NotFound as error:
            self.raw_status()  # fails if it is the project that is not found
            raise BadInput(error.what) from None

    @property
    def away(self) -> tuple[type[Exception], ...]:
        """The errors after which records wait here."""
        return (JournalDown, AccessRefused, NotFound) if self.captures else (JournalDown,)

    def forget(self, record_id: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Forget a record and everything derived from it, or list what would go."""
        query = "?dry_run=true" if dry_run else ""
        done: dict[str, Any] = self.call("DELETE", f"/records/{quote(record_id, safe='')}{query}")
        if "project" in self.__dict__ and not dry_run:
            AnchorStore(self.project.home).forget(done["ids"])
        return done

    def feature(self, name: str) -> RemoteFeature:
        """The memory of one feature."""
        return RemoteFeature(self, name)

    def features(self) -> list[RemoteFeature]:
        """Every feature with records, or those that the token may see."""
        counted = self.raw_status().get("features")
        names = [one["feature"] for one in counted or ()]
        names = names if counted is not None else [x["name"] for x in self.call("GET", "/features")]
        return [self.feature(name) for name in names]

    def close(self) -> None:
        """Close connections."""
        for connection in self.wire.idle:
            connection.close()
        self.wire.idle.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- the wire

    def answer(self, path: str, query: Mapping[str, Any]) -> Answer:
        """The server's hits for this query."""
        told = self.call("GET", f"{path}?{urlencode(values.given_only(query), doseq=True)}")
        hits = [values.read_hit(one) for one in told["hits"]]
        return Answer(self._with_standing(hits, told["hits"]), tuple(told["notes"]))

    def _with_standing(self, hits: Sequence[Hit], told: Iterable[Mapping[str, Any]]) -> list[Hit]:
        """Return hits with how their code stands in this machine's working copy."""
        if "project" not in self.__dict__:
            return list(hits)
        shared = {one["id"]: anchors for one in told if (anchors := values.read_anchors(one))}
        return self.standings.added_to(hits, shared)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        waits: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """Make one call. A refusal raises the same error as in a folder.

        `waits`: try again if the server fails; without it, only if it has too many calls.
        """
        if self._trouble is not None and time.monotonic() < self._trouble[1]:
            raise self._trouble[0]
        raw = b"" if body is None else msgspec.json.encode(body)
        deadline = self._deadline or Deadline(timeout_s)
        try:
            if not self._answered and deadline.seconds > _SILENT_S:
                # Any answer will do.
                self._door.call("GET", "/healthz", deadline=Deadline(_SILENT_S), busy=frozenset())
            self._answered = True
            busy = BUSY if waits else _TOO_MANY
            reply = self.wire.call(method, path, raw, deadline=deadline, busy=busy)
            if reply.status >= 400:
                raise self._error(reply)
            try:
                answer = msgspec.json.decode(reply.body)
            except msgspec.DecodeError:
                raise self.wire.off("does not answer as `ralph serve` does") from None
        except JournalDown as error:
            error.where = self.where  # as the person gave it
            if self.outbox is not None and (waits or not isinstance(error, ServerFailed)):
                self._trouble = error, time.monotonic() + _LEFT_ALONE_S
            raise
        self._trouble = None
        return answer

    def _error(self, reply: Reply) -> Exception:
        what = reply.complaint(self.wire.key or "") or f"the server answered {reply.status}"
        kinds: dict[int, type[BadInput]] = {404: NotFound, 410: RecordForgotten}
        if reply.status in (401, 403):
            return AccessRefused(f"the server refused: {what}", where=self.where, todo=_ASK)
        if reply.status < 500 and reply.status not in (408, 429):
            where = self.where
            todo = reply.complaint(keys=("todo",))
            return kinds.get(reply.status, BadInput)(what, where=where, todo=todo)
        down = self.wire.off(f"could not do it ({reply.describe(self.wire.key or '')})")
        # Other calls would take as long to time out, or would be too many, too.
        return down if reply.status in (429, 504) else ServerFailed(down.what, todo=down.todo)


class RemoteFeature(OnServer):
    """The memory of one feature on a server."""

    twin = ("ralph.memory.feature", "FeatureMemory")

    def __init__(self, ralph: RemoteRalph, name: str) -> None:
        self.ralph = ralph
        self.name = name

    def remember(self, iteration: Iteration | Mapping[str, Any], **_: Any) -> SavedIteration:
        """Save one iteration."""
        return self.remember_all([iteration])[0]

    def remember_all(
        self, iterations: Iterable[Iteration | Mapping[str, Any]], **_: Any
    ) -> list[SavedIteration]:
        """Save many iterations."""
        told = [{**msgspec.to_builtins(one), "feature": self.name} for one in iterations]
        return self.ralph.remember_all(told)

    def search(self, query: str, **bounds: Any) -> Answer:
        """The iterations that answer the question, best first."""
        return self.ralph.search(query, kinds=[ITERATION], features=[self.name], **bounds)

    def recent(self, count: int | None = None) -> Answer:
        """The newest iterations, newest first."""
        wanted = RECENT_COUNT if count is None else count
        return self.ralph.recent(wanted, kinds=[ITERATION], features=[self.name])

    def failed_attempts(self, task_id: int | str | None = None) -> Answer:
        """Iterations that failed, newest first."""
        query = {} if task_id is None else {"task": task_id}
        return self.ralph.answer(f"/features/{quote(self.name, safe='')}/failures", query)

    def files(self) -> list[FileSeen]:
        """Every file the iterations touched, the most touched first."""
        told = self.ralph.call("GET", f"/features/{quote(self.name, safe='')}/files")
        return [msgspec.convert(one, FileSeen) for one in told]

    def get(self, record_id: str) -> Hit:
        """One record with all its fields."""
        return self.ralph.get(record_id)

    def iterations(self) -> list[tuple[JournalRecord, Iteration]]:
        """Every iteration in order, as the server has them or as last read, then those waiting."""
        known = self.ralph.known
        mark, found = known.get(self.name, ("", []))
        path = f"/features/{quote(self.name, safe='')}/iterations?{urlencode({'known': mark})}"
        try:
            told = self.ralph.call("GET", path)
            if "iterations" in told:
                found = [self._located(one) for one in told["iterations"]]
                known[self.name] = told["mark"], found
        except self.ralph.away:
            if self.ralph.outbox is None:
                raise
        return [*found, *self._waiting(max((x.record.number for x, _ in found), default=0))]

    def drop_index(self) -> bool:
        """Return False: the server manages its own index."""
        return False

    def of_run(self, run: str) -> list[tuple[JournalRecord, Iteration]]:
        """Return nothing: the server itself knows which runs it has."""
        return []

    def _located(self, plain: Mapping[str, Any]) -> tuple[JournalRecord, Iteration]:
        one = msgspec.convert(plain["record"], Iteration, strict=False)
        number = one.iteration_number or 0
        source = Source(run=one.session_id)
        record = Record(plain["id"], ITERATION, number, one.timestamp or "", b"", source)
        return JournalRecord(record, self.ralph.where, number), one

    def _waiting(self, number: int) -> Iterator[tuple[JournalRecord, Iteration]]:
        waiting = [] if self.ralph.outbox is None else self.ralph.outbox.calls()
        calls = [one.body for one in waiting if one.path == "/iterations"]
        mine = (one for body in calls for one in body if one["feature"] == self.name)
        for count, one in enumerate(mine, number + 1):
            yield self._located({"id": "", "record": {**one, "iteration_number": count}})

    def forget(self, ids: Collection[str], **_: Any) -> list[str]:
        """Forget these records for good."""
        return [one for one in ids if self.ralph.forget(one)["forgotten"]]


class RemoteConversations(OnServer):
    """The conversations of a project on a server."""

    twin = ("ralph.memory.conversations", "Conversations")

    def __init__(self, ralph: RemoteRalph) -> None:
        self.ralph = ralph

    def add(
        self, conversation: talk.Conversation, exchanges: Sequence[talk.Exchange]
    ) -> list[SavedExchange]:
        """Save a conversation and its exchanges; what is known by its id is not saved again."""
        named = clean(prepared_conversation(conversation))
        ready = [clean(prepared_exchange(one, named.id)) for one in exchanges]
        fresh: dict[str, bool] = {}
        for some in portions(ready, _MOST_EXCHANGES):
            body = [{"conversation": named, "exchanges": some}]
            told = self.ralph.save("/sessions", msgspec.to_builtins(body))
            fresh |= {one["id"]: one["fresh"] for one in told or ()}
        return [SavedExchange(one.id, one, fresh.get(one.id, True)) for one in ready]

    def known(self, ids: Collection[str]) -> set[str]:
        """Return nothing: the server itself knows what it has."""
        return set()

    def bury(self, ids: Collection[str], *, reason: str) -> None:
        """Nothing to do: what a pause covers never left this machine."""

    def details(self, conversation: str | None, exchange: str | None) -> ConversationDetails:
        """A conversation with its exchanges, or one of them, with tags and summaries."""
        only = None if exchange is None else self.ralph.get(exchange)
        wanted = conversation if only is None else only.record.conversation
        told = self.ralph.call("GET", f"/conversations/{quote(wanted or '', safe='')}")
        found = msgspec.convert(told["exchanges"], list[talk.Exchange])
        shown = [one for one in found if only is None or one.id == only.id]
        about = msgspec.convert({k: told[k] for k in _CONVERSATION}, talk.Conversation)
        return ConversationDetails(about, shown, tuple(told["tags"]), told["summaries"])

    def summary(self, wanted: str, **_: Any) -> None:
        """None: only the server has the parts of a summary; `details` has its text."""

    def start(self, title: str = "", *, session: str | None = None, source: str = "api") -> str:
        """Start a conversation, or continue a known session, and return its id."""
        body = {"session": session or uuid.uuid4().hex, "title": title, "source": source}
        identity: str = self.ralph.call("POST", "/conversations", {**body, "exchanges": []})["id"]
        return identity

    def exchange(
        self, conversation: str, *, user: str, assistant: str, key: str | None = None
    ) -> SavedExchange:
        """Save one exchange of a conversation; the same key twice saves it once."""
        body = {"user": user, "assistant": assistant, "key": key or uuid.uuid4().hex}
        path = f"/conversations/{quote(conversation, safe='')}/exchanges"
        return msgspec.convert(self.ralph.call("POST", path, body), SavedExchange)

    def tag(self, conversation: str, **tags: Sequence[str]) -> None:
        """Put tags on a conversation (`add`), or remove them (`remove`)."""
        self.ralph.call("PATCH", f"/conversations/{quote(conversation, safe='')}", tags)

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title."""
        body = {"title": clean_text(title)}
        self.ralph.call("PATCH", f"/conversations/{quote(conversation, safe='')}", body)

    def rate(self, exchange: str, value: int) -> None:
        """Rate an exchange as worth finding (1) or not (-1), or take that back (0)."""
        self.ralph.call("PATCH", f"/exchanges/{quote(exchange, safe='')}", {"value": value})

    def search(self, query: str, **narrowing: Any) -> Answer:
        """The exchanges that answer a question."""
        return self.ralph.search(query, kinds=[talk.EXCHANGE], **narrowing)

    def related(self, question: str) -> Related:
        """The past conversations that matter for a question, and their exchanges that do."""
        told = self.ralph.call("GET", f"/related?{urlencode({'q': question})}")
        return msgspec.convert(told, Related)

    def exchanges(self, conversation: str) -> list[talk.Exchange]:
        """The exchanges of a conversation, in their order."""
        return [*self.details(conversation, None).exchanges]

    def list(
        self, limit: int | None = None, *, tags: Collection[str] = (), **_: Any
    ) -> list[ConversationState]:
        """The conversations, those with the newest exchange first."""
        told = self.ralph.call("GET", "/conversations")
        states = [msgspec.convert(one, ConversationState) for one in told]
        wanted = {tag.casefold() for tag in tags}
        return [one for one in states if wanted.issubset(one.tags)][:limit]


_CONVERSATION = talk.Conversation.__struct_fields__


class RemoteKnowledge(OnServer):
    """What all projects of a server learned. Needs the scope `orchestrator`."""

    twin = ("ralph.memory.knowledge", "Knowledge")

    def __init__(self, ralph: RemoteRalph) -> None:
        self.ralph = ralph

    def entry(self, plain: Mapping[str, Any]) -> Entry:
        """An entry from its published form; the server sets its project."""
        return read_entry({**plain, "project": plain.get("project") or "-"})

    def capture_all(self, entries: Sequence[Entry]) -> list[SavedEntry]:
        """Stage these, one after another."""
        return [self.capture({**one.to_json(), "project": ""}) for one in entries]

    def prune_if_due(self) -> None:
        """Nothing to do: the server prunes."""

    def has_staged(self) -> bool:
        """Whether something may wait for a checkpoint; only the server knows."""
        return True

    def capture(self, plain: Mapping[str, Any]) -> SavedEntry:
        """Stage a failure with its verified solution, a rejected or an approved gate."""
        told = self.ralph.call("POST", "/knowledge/entries", dict(plain))
        return SavedEntry(
            told["id"], entry_from_plain(told["record"]), told["fresh"], told["staged"]
        )

    def checkpoint(self, *, kind: str = "manual") -> CheckpointResult:
        """Publish what this project has staged."""
        told = self.ralph.call("POST", "/knowledge/checkpoints", {"kind": kind})
        return msgspec.convert(told, CheckpointResult)

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
        asked = {"task": task_description, **values.facets(of), **values.limits(bounds)}
        return msgspec.convert(self.ralph.call("POST", "/knowledge/context", asked), Context)

    def report_outcome(
        self, pattern: str | Pattern, worked: bool, *, task: str | int | None = None, **more: Any
    ) -> str:
        """Say whether a pattern helped, and get the outcome's id."""
        of = pattern if isinstance(pattern, str) else pattern.id
        body = {"pattern": of, "worked": worked, "task": None if task is None else str(task)}
        identity: str = self.ralph.call("POST", "/knowledge/outcomes", body | more)["id"]
        return identity

    def patterns(self) -> Patterns:
        """Every pattern, the most frequent first."""
        return Patterns(
            map(KINDS["pattern"].from_plain, self.ralph.call("GET", "/knowledge/patterns"))
        )

    def pattern(self, wanted: str) -> Pattern:
        """One pattern by its id or the beginning of it."""
        found = {one.id: one for one in self.patterns()}
        return found[find_id(wanted, found, NotFound(f"there is no pattern {wanted!r}"))]

    def _query(
        self, path: str, asked: Mapping[str, Any], of: Sequence[str | None], bounds: Any
    ) -> Patterns:
        told = self.ralph.call(
            "POST", path, {**asked, **values.facets(of), **values.limits(bounds)}
        )
        found = Patterns(map(KINDS["pattern"].from_plain, told["patterns"]))
        found.notes = tuple(told["notes"])
        return found


def open_server(
    project: Project, *, given: str | None = None, environment: bool = True, **how: Any
) -> Ralph | None:
    """The memory of this folder on a server; None if it is on this machine."""
    login = find_login(project.home, project.root, given=given, environment=environment)
    # It has the same calls as the memory of a folder.
    return None if login is None else cast("Ralph", RemoteRalph(*login, project=project, **how))
