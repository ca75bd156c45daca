"""The types of the API's queries and bodies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ralph.records.conversation import Conversation, Exchange


class Narrowing(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which records are wanted."""

    kind: list[str] = []
    feature: list[str] = []
    since: str | None = None
    until: str | None = None


class SearchQuery(Narrowing, kw_only=True):
    """A question."""

    q: str
    limit: int | None = None
    min_score: float | None = None
    explain: bool = False
    words_only: bool = False
    exclude: str | None = None


class RecentQuery(Narrowing, kw_only=True):
    """How many of the newest records are wanted."""

    count: int = 10


class WorkQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The paths that a file has or had."""

    path: list[str]


class HowQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done, as in `run the tests`."""

    q: str


class AnchorBody(msgspec.Struct, forbid_unknown_fields=True):
    """The lines that a record left in a file, as hashes in hexadecimal, one after another."""

    record: str
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    lines: Annotated[str, msgspec.Meta(pattern="^(?:[0-9a-f]{8}){1,160}$")]
    at: Annotated[str, msgspec.Meta(max_length=40)] = ""
    scope: Annotated[str, msgspec.Meta(max_length=200)] = ""
    branch: Annotated[str, msgspec.Meta(max_length=200)] = ""
    head: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,64}$")] = ""


class NoteBody(msgspec.Struct, forbid_unknown_fields=True):
    """A note to save. `by` is `human` only with a person's token."""

    text: str
    feature: str = ""
    by: Literal["agent", "human"] = "agent"


class ForgetQuery(msgspec.Struct, forbid_unknown_fields=True):
    """With `dry_run` nothing is forgotten."""

    dry_run: bool = False


class TasksQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks: those of a feature, with a status, or ready to be worked on."""

    feature: str | None = None
    status: str | None = None
    ready: bool = False


class FailuresQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Failed attempts at one task, or at all."""

    task: str | None = None


class BriefQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The feature, and optionally the task, that the session works on."""

    feature: list[str] = []
    task: str | None = None


class SolvedBody(msgspec.Struct, forbid_unknown_fields=True):
    """An error message, in one feature or any."""

    error: str
    feature: str | None = None


class IterationsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The mark of the iterations that the client already has."""

    known: str = ""


class LearningBody(msgspec.Struct, forbid_unknown_fields=True):
    """What later iterations should know. `source` is `human` only with a person's token."""

    text: str
    source: Literal["human", "agent"] = "agent"
    reason: str | None = None


class ReviewBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a review of a learning found: better words, and why."""

    text: str | None = None
    reason: str | None = None


class RemovalQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Why it is removed."""

    reason: str | None = None


class ExchangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A question and its answer. The same `key` twice saves one exchange."""

    user: str
    assistant: str
    key: str


class RelatedQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A question about what was said before."""

    q: str


class ConversationBody(msgspec.Struct, forbid_unknown_fields=True):
    """A conversation. A known session is continued."""

    session: str
    exchanges: list[ExchangeBody]
    title: str = ""
    source: str = "api"


class SessionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A captured session of a client, with the ids that follow from its content."""

    conversation: Conversation
    exchanges: list[Exchange]


class ConversationPatch(msgspec.Struct, forbid_unknown_fields=True):
    """Another title, tags to add and tags to remove."""

    title: str | None = None
    add: list[str] = []
    remove: list[str] = []


class RatingBody(msgspec.Struct, forbid_unknown_fields=True):
    """Worth finding (1) or not (-1); 0 takes that back."""

    value: Literal[-1, 0, 1]


class CheckpointBody(msgspec.Struct, forbid_unknown_fields=True):
    """Publish what is staged."""

    kind: str = "manual"


class KnowledgeFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The filters and limits of a knowledge query."""

    agent_type: str | None = None
    task_type: str | None = None
    technology: str | None = None
    max_results: int | None = None
    min_score: float | None = None


class TaskQuestion(KnowledgeFilter, kw_only=True):
    """A task that an agent is about to start."""

    task: str


class FailureQuestion(KnowledgeFilter, kw_only=True):
    """A failure that someone may have solved before."""

    failure: str
    error: str = ""


class OutcomeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whether a pattern helped."""

    pattern: str
    worked: bool
    task: str | None = None
    run: str | None = None
    note: str = ""
