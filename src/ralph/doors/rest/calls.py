"""Every call of the API in one table: its path, the right it needs, its argument and its function.

The routes, the access checks and the OpenAPI document are made from the table. A token for one
feature reaches that feature and the project's notes; everything else looks as if it did not exist.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import asdict

from ralph.capture.anchors import Anchor
from ralph.doors.rest import bodies
from ralph.errors import BadInput, MemoryOff, NotFound
from ralph.memory import keeping
from ralph.memory.anchors import AnchorStore, SavedAnchor, anchor_json, clean_anchors
from ralph.memory.brief import brief
from ralph.memory.conversations import details
from ralph.memory.feature import SavedIteration
from ralph.memory.lessons import solved
from ralph.memory.project import Focus
from ralph.memory.ralph import Ralph
from ralph.memory.status import status
from ralph.memory.store import Answer, short_hash
from ralph.memory.tokens import Right, Token
from ralph.plan import edit, fields, learnings
from ralph.plan.judge import PROSE, loss_of_text
from ralph.plan.model import ContextFile, Feature, Task
from ralph.plan.store import Plan
from ralph.recall import PERSON, SESSION, Hit, Scope, exchange_of_run, run_scope
from ralph.records import plain
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id
from ralph.records.iteration import is_field, relative_path

_MOST_ITERATIONS = 100
_MOST_EXCHANGES = 500
_MOST_ANCHORS = 500
_ID = re.compile("[0-9a-f]{16}")
Json = dict[str, Any]
Anchors = Mapping[str, Sequence[SavedAnchor]]


class ApiCall(msgspec.Struct, eq=False):
    """One call: the project's memory, the token it came with, and the names in its path."""

    ralph: Ralph
    token: Token
    path: Mapping[str, str]

    @property
    def plan(self) -> Plan:
        """The project's plan."""
        return Plan(self.ralph.project.root, state=self.ralph.project.cache)

    @property
    def scope(self) -> Scope:
        """What a search may find."""
        if self.token.feature is not None:
            return run_scope(self.token.feature)
        return PERSON if self.token.allows("orchestrator") else SESSION

    def author(self, claimed: str) -> Literal["agent", "human"]:
        """Who said it. Only a person's token can speak for a person."""
        return "human" if self.token.person and claimed == "human" else "agent"

    def feature(self, name: str | None = None) -> str:
        """The name of the feature, if the token may reach it."""
        name = self.path["feature"] if name is None else name
        if self.token.feature not in (None, name):
            raise NotFound(f"there is no feature {name!r}")
        return name

    def task(self) -> Task:
        """The task in the path, if the token may reach it."""
        task = self.plan.task(self.path["task"])
        if self.token.feature not in (None, task.feature):
            raise NotFound(f"there is no task {self.path['task']!r}")
        return task


class ApiRoute(NamedTuple):
    """One row: `takes` is the type of query or body, `whole` refuses tokens for one feature,
    `person` those that are not a person's."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    right: Right
    perform: Callable[..., Any]
    takes: Any = None
    whole: bool = False
    person: bool = False

    @property
    def name(self) -> str:
        """The name of the call in the OpenAPI document."""
        return self.perform.__name__

    @property
    def has_body(self) -> bool:
        """Whether its argument is in the body."""
        return self.method in ("POST", "PATCH") and self.takes is not None


# -- records of every kind


def project_status(call: ApiCall) -> Any:
    """Whether memory works, and how many records it has."""
    found = plain(status(call.ralph))
    if call.token.feature is not None:
        return {name: found[name] for name in ("available", "line")}
    return found


def search(call: ApiCall, given: bodies.SearchQuery) -> Json:
    """Search everything that the token may see, best first."""
    found = call.ralph.search(
        given.q,
        limit=given.limit,
        min_score=given.min_score,
        meaning=not given.words_only,
        exclude=given.exclude,
        **_narrowed(call, given),
    )
    return answer_json(found, explain=given.explain, anchors=_anchors(call, found))


def recent(call: ApiCall, given: bodies.RecentQuery) -> Json:
    """The latest records, newest first."""
    found = call.ralph.recent(given.count, **_narrowed(call, given))
    return answer_json(found, anchors=_anchors(call, found))


def _anchors(call: ApiCall, hits: Sequence[Hit]) -> Anchors:
    """Return the lines that these records left in files: who asks has the files."""
    return AnchorStore(call.ralph.project.home).of_records([hit.id for hit in hits])


def _narrowed(call: ApiCall, given: bodies.Narrowing) -> Json:
    only = {"kinds": given.kind, "features": given.feature or None, "scope": call.scope}
    return {**only, "since": given.since, "until": given.until}


def get_record(call: ApiCall) -> Json:
    """One record of any kind."""
    hit = call.ralph.get(call.path["id"], scope=call.scope)
    return hit_json(hit, anchors=_anchors(call, [hit]).get(hit.id, ()))


def forget_record(call: ApiCall, given: bodies.ForgetQuery) -> Json:
    """Forget a record and everything derived from it, or list what would go."""
    identity = call.ralph.get(call.path["id"], scope=call.scope).id
    choice = keeping.choose(call.ralph, ids=[identity])
    ids = sorted({one for some in choice.ids.values() for one in some})
    told = {"ids": ids, "learnings": [one.id for one in choice.learnings]}
    if given.dry_run:
        return {"forgotten": 0, **told, "remains": choice.remains}
    gone = keeping.forget(call.ralph, choice)
    return {"forgotten": gone.count, **told, "remains": gone.remains}


def remember_note(call: ApiCall, given: bodies.NoteBody) -> Json:
    """Save a note of the project or of one feature."""
    feature = call.feature(given.feature or call.token.feature or "")
    by = call.author(given.by)
    note, fresh = call.ralph.remember(given.text, feature=feature, by=by)
    return {"id": note.id, "fresh": fresh, "record": plain(note)}


def remember_iterations(call: ApiCall, given: list[Json]) -> list[Json]:
    """Save iterations, each under the feature it names: all of them or none."""
    if not 0 < len(given) <= _MOST_ITERATIONS:
        raise BadInput(f"give 1 to {_MOST_ITERATIONS} iterations, not {len(given)}")
    for one in given:
        call.feature(str(one.get("feature", "")))
        _sign_decisions(call, one)
    # A client of a newer version may send fields that this one does not know.
    given = [{name: value for name, value in one.items() if is_field(name)} for one in given]
    # What a session's exchange did is saved once, even if it is sent again with other words.
    known = {
        run: SavedIteration(located.record.id, located.record.kind, found, fresh=False)
        for name in {str(one.get("feature")) for one in given if exchange_of_run(_run(one))}
        for located, found in call.ralph.feature(name).iterations()
        if exchange_of_run(run := found.session_id)
    }
    saved = iter(call.ralph.remember_all([one for one in given if _run(one) not in known]))
    return [plain(known.get(_run(one)) or next(saved)) for one in given]


def _run(iteration: Json) -> str | None:
    run = iteration.get("session_id")
    return run if isinstance(run, str) else None


def _sign_decisions(call: ApiCall, iteration: Json) -> None:
    """Set who decided what, as far as the token can say so."""
    decisions = iteration.get("decisions")
    for decision in decisions if isinstance(decisions, list) else ():
        if isinstance(decision, dict) and "source" in decision:
            decision["source"] = call.author(decision["source"])


def project_brief(call: ApiCall, given: bodies.BriefQuery) -> Any:
    """What someone who starts to work on the project should know."""
    focus = Focus(given.feature[0], given.task) if given.feature else None
    return plain(brief(call.ralph, call.plan.read("features", "tasks"), focus))


def file_work(call: ApiCall, given: bodies.WorkQuery) -> Json:
    """The records that worked on a file, the newest first, and the lines that they left there."""
    found = call.ralph.work_on(given.path, call.scope)
    return {"work": [hit_json(one.hit, anchors=one.anchors) for one in found]}


def how_to(call: ApiCall, given: bodies.HowQuery) -> Any:
    """Which commands did in earlier sessions what is to be done."""
    return plain(call.ralph.how_to(given.q, call.scope))


def save_anchors(call: ApiCall, given: list[bodies.AnchorBody]) -> Json:
    """Save which lines records left in files; those of unknown records are left out."""
    if len(given) > _MOST_ANCHORS:
        raise BadInput(f"give at most {_MOST_ANCHORS} anchors at once")
    known: dict[str, bool] = {}
    for one in given:
        if one.record not in known:
            known[one.record] = _has_record(call, one.record)
    if given and not any(known.values()):
        raise NotFound(f"there is no record {given[0].record!r}")
    anchors = [
        SavedAnchor(
            one.record, Anchor(one.path, one.lines, one.scope), one.at, one.branch, one.head
        )
        for one in given
        if known[one.record] and relative_path(one.path) == one.path
    ]
    AnchorStore(call.ralph.project.home).save(clean_anchors(anchors))
    return {"saved": len(anchors)}


def _has_record(call: ApiCall, record: str) -> bool:
    try:
        return call.ralph.get(record, scope=call.scope).id == record
    except NotFound:
        return False


def solved_error(call: ApiCall, given: bodies.SolvedBody) -> Any:
    """How an error was solved before, or null."""
    feature = call.token.feature if given.feature is None else call.feature(given.feature)
    return plain(solved(call.ralph, given.error, feature=feature))


# -- the plan


def list_features(call: ApiCall) -> list[Any]:
    """The features of the plan."""
    features = call.plan.read("features").features
    return [plain(one) for one in features if call.token.feature in (None, one.name)]


def get_feature(call: ApiCall) -> Any:
    """One feature."""
    return plain(call.plan.feature(call.feature()))


def create_feature(call: ApiCall, given: Json) -> Any:
    """Add a feature to the plan; `name` is needed."""
    name = _taken(given, "name")
    _sign_files(call, given, ())
    return plain(edit.create_feature(call.plan, name, given))


def update_feature(call: ApiCall, given: Json) -> Any:
    """Change a feature; the plan's rules apply."""
    name = call.feature()
    if not (call.token.person or call.token.allows("admin")):
        _check_prose(call.plan.feature(name), given)
    if "context_files" in given:
        _sign_files(call, given, call.plan.feature(name).context_files)
    return plain(edit.update_feature(call.plan, name, given))


def _check_prose(feature: Feature, given: Json) -> None:
    """Raise if the feature's prose would be emptied, or only a stub of it left (F1)."""
    for field in PROSE:
        before = getattr(feature, field)
        if field in given and before and (why := loss_of_text(given[field], before)):
            raise BadInput(
                f"the {field} of {feature.name!r} cannot be changed like this: {why}",
                todo="A person's token (`ralph token create --person`) can do it.",
            )


def _sign_files(call: ApiCall, given: Json, before: Sequence[ContextFile]) -> None:
    """Set who added each context file: a person's token, or else an agent."""
    files = given.get("context_files")
    if call.token.person or files is None:
        return
    if not isinstance(files, list):
        files = [files]
    by_person = {file.path for file in before if file.source == "human"}
    signed = []
    for file in files:
        entry = dict(file) if isinstance(file, dict) else {"path": file}
        entry["source"] = "human" if str(entry.get("path")) in by_person else "auto"
        signed.append(entry)
    given["context_files"] = signed


def delete_feature(call: ApiCall) -> Json:
    """Delete a feature that has no tasks, with its index; its journal stays."""
    name = call.feature()
    edit.delete(call.plan, "features", name)
    with contextlib.suppress(MemoryOff):  # `ralph index prune` removes it, too
        call.ralph.feature(name).drop_index()
    return {"deleted": name}


def failed_attempts(call: ApiCall, given: bodies.FailuresQuery) -> Json:
    """Iterations of a feature that failed, newest first."""
    return answer_json(call.ralph.feature(call.feature()).failed_attempts(given.task))


def feature_iterations(call: ApiCall, given: bodies.IterationsQuery) -> Json:
    """The iterations of a feature in order, unless the client has them already."""
    found = call.ralph.feature(call.feature()).iterations()
    mark = short_hash(" ".join(located.record.id for located, _ in found))
    if given.known == mark:
        return {"mark": mark}
    told = [{"id": located.record.id, "record": plain(one)} for located, one in found]
    return {"mark": mark, "iterations": told}


def feature_files(call: ApiCall) -> Any:
    """The files that a feature's iterations touched, the most touched first."""
    return plain(call.ralph.feature(call.feature()).files())


def list_tasks(call: ApiCall, given: bodies.TasksQuery) -> list[Any]:
    """The tasks of the plan."""
    tasks = list(call.plan.read("tasks").tasks)
    status = None if given.status is None else fields.clean_status(given.status)
    wanted = call.token.feature or given.feature
    if given.feature is not None:
        call.feature(given.feature)
    tasks = edit.ready(tasks, feature=wanted) if given.ready else tasks
    fit = [one for one in tasks if wanted in (None, one.feature)]
    return [plain(one) for one in fit if status in (None, one.status)]


def get_task(call: ApiCall) -> Any:
    """One task."""
    return plain(call.task())


def create_task(call: ApiCall, given: Json) -> Any:
    """Add a task to the plan; `feature` and `title` are needed."""
    feature = call.feature(_taken(given, "feature"))
    return plain(edit.create_task(call.plan, feature, _taken(given, "title"), given))


def update_task(call: ApiCall, given: Json) -> Any:
    """Change a task; `comment` is appended."""
    task = call.task()
    comment = given.pop("comment", None)
    if comment is not None and not isinstance(comment, str):
        raise BadInput("comment must be a string")
    if "feature" in given:
        call.feature(str(given["feature"]))
    done = edit.update_task(call.plan, task.id, given, comment=comment, author=call.token.name)
    return plain(done)


def delete_task(call: ApiCall) -> Json:
    """Delete a task that blocks no other."""
    task = call.task()
    edit.delete(call.plan, "tasks", task.id)
    return {"deleted": task.id}


def list_learnings(call: ApiCall) -> Any:
    """The learnings of a feature."""
    return [{"id": one.id, **plain(one)} for one in call.plan.feature(call.feature()).learnings]


def add_learning(call: ApiCall, given: bodies.LearningBody) -> Any:
    """Add a learning, unless another one says the same."""
    source = call.author(given.source)
    text = given.text
    reason = given.reason
    return plain(learnings.add(call.plan, call.feature(), text, source=source, reason=reason))


def remove_learning(call: ApiCall, given: bodies.RemovalQuery) -> Any:
    """Remove a learning."""
    ref = call.path["learning"]
    by = call.author("human")
    return plain(learnings.remove(call.plan, call.feature(), ref, by=by, reason=given.reason))


def review_learning(call: ApiCall, given: bodies.ReviewBody) -> Any:
    """Note that a learning was reviewed, perhaps in better words."""
    ref = call.path["learning"]
    return plain(learnings.review(call.plan, call.feature(), ref, **asdict(given)))


# -- conversations


def list_conversations(call: ApiCall) -> Any:
    """The conversations of the project, newest first."""
    return plain(call.ralph.conversations.list())


def get_conversation(call: ApiCall) -> Json:
    """A conversation with its exchanges, tags and summaries."""
    found = details(call.ralph.conversations, conversation=call.path["id"])
    fields = {name: plain(getattr(found, name)) for name in ("exchanges", "tags", "summaries")}
    return {**plain(found.conversation), **fields}


def save_conversation(call: ApiCall, given: bodies.ConversationBody) -> Json:
    """Save exchanges of a conversation: all of them or none."""
    if len(given.exchanges) > _MOST_EXCHANGES:
        raise BadInput(f"give at most {_MOST_EXCHANGES} exchanges at once")
    identity = conversation_id(given.source, given.session)
    told = [
        Exchange(
            id=exchange_id(identity, one.key),
            conversation=identity,
            user=one.user,
            assistant=one.assistant,
        )
        for one in given.exchanges
    ]
    talk = Conversation(id=identity, title=given.title, source=given.source)
    saved = call.ralph.conversations.add(talk, told)
    return {"id": identity, "exchanges": [{"id": one.id, "fresh": one.fresh} for one in saved]}


def update_conversation(call: ApiCall, given: bodies.ConversationPatch) -> Json:
    """Rename a conversation, and add or remove tags."""
    talks = call.ralph.conversations
    identity = call.path["id"]
    if given.title is not None:
        talks.rename(identity, given.title)
    if given.add or given.remove:
        talks.tag(identity, add=given.add, remove=given.remove)
    return get_conversation(call)


def rate_exchange(call: ApiCall, given: bodies.RatingBody) -> Json:
    """Rate an exchange as worth finding or not."""
    call.ralph.conversations.rate(call.path["id"], given.value)
    return {"value": given.value}


def save_sessions(call: ApiCall, given: list[bodies.SessionBody]) -> list[Json]:
    """Save captured sessions; exchanges that are known are not saved again."""
    exchanges = [one for each in given for one in each.exchanges]
    if len(exchanges) > _MOST_EXCHANGES:
        raise BadInput(f"give at most {_MOST_EXCHANGES} exchanges at once")
    ids = [*(each.conversation.id for each in given), *(one.id for one in exchanges)]
    if odd := [one for one in ids if not _ID.fullmatch(one)]:
        raise BadInput(f"{odd[0][:40]!r} is not an id: an id has 16 of the characters 0-9 and a-f")
    add = call.ralph.conversations.add
    saved = [one for each in given for one in add(each.conversation, each.exchanges)]
    return [{"id": one.id, "fresh": one.fresh} for one in saved]


def save_exchange(call: ApiCall, given: bodies.ExchangeBody) -> Any:
    """Save one exchange of a conversation."""
    return plain(call.ralph.conversations.exchange(call.path["id"], **asdict(given)))


def related_conversations(call: ApiCall, given: bodies.RelatedQuery) -> Any:
    """The past conversations that matter for a question, and their exchanges that do."""
    return plain(call.ralph.conversations.related(given.q))


# -- knowledge, for orchestrators


def capture_knowledge(call: ApiCall, given: Json) -> Any:
    """Stage a failure with its verified solution, a rejected or an approved gate."""
    return plain(call.ralph.knowledge.capture(given))


def publish_knowledge(call: ApiCall, given: bodies.CheckpointBody) -> Any:
    """Publish what this project has staged."""
    return plain(call.ralph.knowledge.checkpoint(kind=given.kind))


def list_patterns(call: ApiCall) -> Any:
    """All published patterns, the most frequent first."""
    return plain(list(call.ralph.knowledge.patterns()))


def query_for_task(call: ApiCall, given: bodies.TaskQuestion) -> Json:
    """The patterns that may help with a task."""
    of, bounds = _question(given)
    found = call.ralph.knowledge.query_for_task(given.task, *of.values(), **bounds)
    return {"patterns": plain(list(found)), "notes": list(found.notes)}


def query_for_failure(call: ApiCall, given: bodies.FailureQuestion) -> Json:
    """How failures like this one were solved."""
    of, bounds = _question(given)
    found = call.ralph.knowledge.query_for_failure(
        given.failure, given.error, *of.values(), **bounds
    )
    return {"patterns": plain(list(found)), "notes": list(found.notes)}


def context_for_task(call: ApiCall, given: bodies.TaskQuestion) -> Any:
    """The knowledge for an agent's prompt, as a text."""
    of, bounds = _question(given)
    return plain(call.ralph.knowledge.context_for_task(given.task, *of.values(), **bounds))


def report_outcome(call: ApiCall, given: bodies.OutcomeBody) -> Json:
    """Say whether a pattern helped."""
    return {"id": call.ralph.knowledge.report_outcome(**asdict(given))}


def _question(given: bodies.KnowledgeFilter) -> tuple[Json, Json]:
    of = {name: getattr(given, name) for name in ("agent_type", "task_type", "technology")}
    bounds = {"max_results": given.max_results, "min_score": given.min_score}
    return of, {name: value for name, value in bounds.items() if value is not None}


# -- the table

_KNOWLEDGE: Right = "orchestrator"
_LEARNING = "/features/{feature}/learnings/{learning}"
_whole = partial(ApiRoute, whole=True)
CALLS = (
    ApiRoute("GET", "/status", "read", project_status),
    ApiRoute("GET", "/search", "read", search, bodies.SearchQuery),
    ApiRoute("GET", "/recent", "read", recent, bodies.RecentQuery),
    ApiRoute("GET", "/records/{id}", "read", get_record),
    ApiRoute("GET", "/work", "read", file_work, bodies.WorkQuery),
    ApiRoute("GET", "/how", "read", how_to, bodies.HowQuery),
    ApiRoute("POST", "/anchors", "write", save_anchors, list[bodies.AnchorBody]),
    _whole("DELETE", "/records/{id}", "admin", forget_record, bodies.ForgetQuery),
    ApiRoute("POST", "/notes", "write", remember_note, bodies.NoteBody),
    ApiRoute("POST", "/iterations", "write", remember_iterations, list[dict[str, Any]]),
    _whole("GET", "/brief", "read", project_brief, bodies.BriefQuery),
    ApiRoute("POST", "/solved", "read", solved_error, bodies.SolvedBody),
    ApiRoute("GET", "/features", "read", list_features),
    _whole("POST", "/features", "write", create_feature, dict[str, Any]),
    ApiRoute("GET", "/features/{feature}", "read", get_feature),
    ApiRoute("PATCH", "/features/{feature}", "write", update_feature, dict[str, Any]),
    ApiRoute("DELETE", "/features/{feature}", "admin", delete_feature),
    ApiRoute("GET", "/features/{feature}/failures", "read", failed_attempts, bodies.FailuresQuery),
    ApiRoute("GET", "/features/{feature}/files", "read", feature_files),
    ApiRoute(
        "GET", "/features/{feature}/iterations", "read", feature_iterations, bodies.IterationsQuery
    ),
    ApiRoute("GET", "/features/{feature}/learnings", "read", list_learnings),
    ApiRoute("POST", "/features/{feature}/learnings", "write", add_learning, bodies.LearningBody),
    ApiRoute("PATCH", _LEARNING, "write", review_learning, bodies.ReviewBody, person=True),
    ApiRoute("DELETE", _LEARNING, "admin", remove_learning, bodies.RemovalQuery),
    ApiRoute("GET", "/tasks", "read", list_tasks, bodies.TasksQuery),
    ApiRoute("POST", "/tasks", "write", create_task, dict[str, Any]),
    ApiRoute("GET", "/tasks/{task}", "read", get_task),
    ApiRoute("PATCH", "/tasks/{task}", "write", update_task, dict[str, Any]),
    ApiRoute("DELETE", "/tasks/{task}", "admin", delete_task),
    _whole("GET", "/conversations", "read", list_conversations),
    _whole("POST", "/conversations", "write", save_conversation, bodies.ConversationBody),
    _whole("GET", "/conversations/{id}", "read", get_conversation),
    _whole("PATCH", "/conversations/{id}", "write", update_conversation, bodies.ConversationPatch),
    _whole("PATCH", "/exchanges/{id}", "write", rate_exchange, bodies.RatingBody),
    _whole("POST", "/conversations/{id}/exchanges", "write", save_exchange, bodies.ExchangeBody),
    _whole("POST", "/sessions", "write", save_sessions, list[bodies.SessionBody]),
    _whole("GET", "/related", "read", related_conversations, bodies.RelatedQuery),
    _whole("POST", "/knowledge/entries", _KNOWLEDGE, capture_knowledge, dict[str, Any]),
    _whole("POST", "/knowledge/checkpoints", _KNOWLEDGE, publish_knowledge, bodies.CheckpointBody),
    _whole("GET", "/knowledge/patterns", _KNOWLEDGE, list_patterns),
    _whole("POST", "/knowledge/task", _KNOWLEDGE, query_for_task, bodies.TaskQuestion),
    _whole("POST", "/knowledge/failure", _KNOWLEDGE, query_for_failure, bodies.FailureQuestion),
    _whole("POST", "/knowledge/context", _KNOWLEDGE, context_for_task, bodies.TaskQuestion),
    _whole("POST", "/knowledge/outcomes", _KNOWLEDGE, report_outcome, bodies.OutcomeBody),
)


# -- as JSON


def hit_json(hit: Hit, *, explain: bool = False, anchors: Sequence[SavedAnchor] = ()) -> Json:
    """A hit as every call gives it, with the lines that it left in files."""
    names = ("id", "kind", "score", "relevance", "when", "why", "at", "like", "record")
    fields = {name: plain(getattr(hit, name)) for name in names}
    if anchors:
        fields["anchors"] = [anchor_json(saved) for saved in anchors]
    return fields | {"explain": plain(hit.parts)} if explain else fields


def answer_json(answer: Answer, *, explain: bool = False, anchors: Anchors | None = None) -> Json:
    """An answer with what there is to say about it."""
    of_hits = anchors or {}
    hits = [hit_json(one, explain=explain, anchors=of_hits.get(one.id, ())) for one in answer]
    return {"hits": hits, "notes": [*answer.notes]}


def _taken(given: Json, name: str) -> str:
    value = given.pop(name, None)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} is needed", todo="Send it as a string.")
    return value
