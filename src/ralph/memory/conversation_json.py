"""Conversations as plain JSON: what `export` writes and `import` reads.

A document is `{"version": 1, "conversations": [...]}`, or JSON Lines with one conversation per
line. Lists of messages, as many tools export them, can be read too:
`{"messages": [{"role", "content"}]}`. Bad input is refused with its place in the file, and then
nothing from the file is saved.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from ralph.capture.lines import items, mapping, moment, text_of, whole
from ralph.clients import BY_SOURCE
from ralph.errors import BadRecord
from ralph.memory.conversation_stream import (
    ConversationContent,
    ConversationImport,
    ConversationStream,
)
from ralph.memory.conversations import held_at, the_only
from ralph.memory.project import GENERAL, note_owner
from ralph.memory.store import Store, is_before, moment_given
from ralph.records import conversation as schema
from ralph.records import utc
from ralph.records.conversation import Conversation, Exchange, Message, Summary
from ralph.records.iteration import CheckRun, Decision, ErrorSeen, FileTouched
from ralph.text.sanitize import strip_marked

VERSION = 1
SOURCE = "import"
EXPECTED = (
    'Give {"version": 1, "conversations": [...]} as `ralph conversations export` writes it, one '
    'conversation a line, or {"messages": [{"role": ..., "content": ...}]}; nothing was kept.'
)
_OUR_ID = re.compile(r"[0-9a-f]{16}")
_AT = re.compile(r" - at `\$(.*)`$")
_BOM = b"\xef\xbb\xbf"
_encode = msgspec.json.Encoder(order="sorted").encode

# -- Lists of messages, cut into exchanges. System messages are left out.

_ROLES = {
    **{"user": "user", "human": "user", "system": "", "developer": ""},
    **{"assistant": "assistant", "model": "assistant", "ai": "assistant"},
    **{"tool": "tool", "function": "tool"},
}
_TIMES = ("created_at", "create_time", "timestamp", "created", "date")
_ATTACHMENTS = {**dict.fromkeys(("image", "image_url", "input_image"), "[image]"), "file": "[file]"}


def _shape(plain: Any) -> Literal["exchanges", "messages", "message", ""]:
    """Return the form of a conversation; `message` for one message of it, "" for neither."""
    keys = plain.keys() if isinstance(plain, dict) else ()
    if "exchanges" in keys or "messages" in keys:
        return "exchanges" if "exchanges" in keys else "messages"
    return "message" if "role" in keys and "content" in keys else ""


def _conversation_of_messages(plain: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the conversation in our own plain form, without turns that have no text."""
    exchanges = map(_exchange_of_messages, _turns(plain["messages"], f"{where}.messages"))
    return {name: text_of(plain.get(name)) or None for name in ("source", "project")} | {
        "id": _first(plain, "id", "conversation_id", "uuid", "session_id"),
        "title": _first(plain, "title", "name", "summary"),
        "created": _when(plain),
        "exchanges": [x for x in exchanges if x["user"] or x["assistant"]],
    }


_Turn = list[tuple[str, str, dict[str, Any]]]


def _turns(listed: Any, where: str) -> Iterator[_Turn]:
    """Yield turns, each from a user's message up to the next one, as (role, text, message)."""
    if not isinstance(listed, list):
        raise _bad("must be a list of messages", where, "Nothing was kept.")
    turn: _Turn = []
    for number, message in enumerate(listed):
        name = mapping(message).get("role")
        if not isinstance(name, str):
            todo = 'Each is {"role": "user" or "assistant", "content": ...}; nothing was kept.'
            raise _bad("a message needs a role", f"{where}[{number}]", todo)
        if (role := _ROLES.get(name.lower())) is None:
            todo = "It is user, assistant, tool or system; nothing was kept."
            raise _bad(f"unknown role {name!r}", f"{where}[{number}].role", todo)
        if role == "user" and any(before != "user" for before, _, _ in turn):
            yield turn
            turn = []
        text = _words(message.get("content") or message.get("text")).strip()
        if role and (text or message.get("tool_calls")):
            turn.append((role, text, message))
    yield turn


def _exchange_of_messages(turn: _Turn) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    unanswered: list[dict[str, Any]] = []
    final: list[str] = []
    for role, text, message in turn:
        calls = [mapping(call.get("function")) for call in items(message.get("tool_calls"))]
        final += [text] if role == "assistant" and text else []
        if calls or role == "tool":  # the text before this was not the final answer
            steps += [{"role": "assistant", "content": text} for text in final]
            final = []
        if role == "tool" and unanswered:
            unanswered.pop(0)["content"] += f"\n{text}"
        elif role == "tool":
            steps.append({"role": role, "content": text, "tool": text_of(message.get("name"))})
        made = [(text_of(call.get("arguments")), text_of(call.get("name"))) for call in calls]
        new = [{"role": "tool", "content": words, "tool": tool} for words, tool in made]
        unanswered += new
        steps += new
    if not final and steps and steps[-1]["role"] == "assistant":
        final = [steps.pop()["content"]]
    times = [at for _, _, message in turn if (at := _when(message))]
    answers = [message for role, _, message in turn if role == "assistant"]
    return {
        "id": next(filter(None, (_first(message, "id", "uuid") for _, _, message in turn)), None),
        "user": "\n\n".join(text for role, text, _ in turn if role == "user"),
        "assistant": "\n\n".join(final),
        "started": times[0] if times else None,
        "completed": times[-1] if times else None,
        "status": "complete" if answers else "interrupted",
        "model": next(filter(None, (text_of(message.get("model")) for message in answers)), None),
        "messages": steps,
    }


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _ATTACHMENTS.get(text_of(content.get("type")), "") or _words(content.get("text"))
    return "\n\n".join(filter(None, map(_words, content))) if isinstance(content, list) else ""


def _when(plain: dict[str, Any]) -> str | None:
    return next((at for key in _TIMES if (at := moment(plain.get(key))) is not None), None)


def _first(plain: dict[str, Any], *keys: str) -> str | None:
    return next((text for key in keys if (text := text_of(plain.get(key)).strip())), None)


# -- Conversations in our own form.

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Money = Annotated[float, msgspec.Meta(ge=0)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
_ProjectId = Annotated[
    str, msgspec.Meta(pattern=rf"^({GENERAL}|[0-9a-f]{{8}}(-[0-9a-f]{{4,12}}){{4}})$")
]


class _PlainExchange(msgspec.Struct, kw_only=True):
    id: _Id | None = None
    user: str | None = None
    assistant: str | None = None
    started: str | None = None
    completed: str | None = None
    status: schema.Status | None = None
    tokens_used: _Count | None = None
    cost_usd: _Money | None = None
    model: str | None = None
    errors: tuple[ErrorSeen, ...] | None = None
    decisions: tuple[Decision, ...] | None = None
    files_touched: tuple[FileTouched, ...] | None = None
    stumbles: dict[str, _Count] | None = None
    checks: tuple[CheckRun, ...] | None = None
    messages: tuple[Message, ...] | None = None


class _PlainConversation(msgspec.Struct, kw_only=True):
    id: _Id | None = None
    title: str | None = None
    source: str | None = None
    project: str | None = None
    created: str | None = None
    project_ids: Annotated[list[_ProjectId], msgspec.Meta(max_length=2)] | None = None
    exchanges: list[_PlainExchange]
    tags: list[str] | None = None
    summaries: list[Summary] | None = None
    ratings: dict[str, Literal[-1, 0, 1]] | None = None


def written(talks: Sequence[ConversationContent], *, lines: bool = False) -> bytes:
    """Return the conversations as one document, or with `lines` as one conversation per line."""
    plain = [_plain(talk) for talk in talks]
    encode = msgspec.json.Encoder().encode
    if lines:
        return b"".join(encode(talk) + b"\n" for talk in plain)
    whole = encode({"version": VERSION, "conversations": plain})
    return msgspec.json.format(whole, indent=1) + b"\n"


def _plain(talk: ConversationContent) -> dict[str, Any]:
    """Return every field under its published name, except numbers: those are the journal's own."""
    fields = ("id", "title", "source", "project", "created")
    hidden = {"number", "conversation"}
    fully = [exchange.to_json().items() for exchange in talk.exchanges]
    exchanges = [{key: value for key, value in one if key not in hidden} for one in fully]
    about = {name: getattr(talk, name) for name in ("tags", "summaries", "ratings")}
    about |= {"project_ids": talk.project_ids} if talk.project_ids else {}
    plain = {name: getattr(talk.conversation, name) for name in fields}
    return plain | {"exchanges": exchanges} | about


def read_conversations(data: bytes, *, name: str, project: str = "") -> list[ConversationContent]:
    """Read the conversations in a file of any supported form; an error says where it is bad.

    `project` is for conversations that do not name one.
    """
    talks: list[ConversationContent] = []
    seen: dict[str, tuple[Exchange, str]] = {}
    for where, plain in _conversations(data.removeprefix(_BOM), name):
        talk = _talk(plain, where, project)
        for number, exchange in enumerate(talk.exchanges):
            place = f"{where}.exchanges[{number}]"
            other, at = seen.setdefault(exchange.id, (exchange, place))
            if other != exchange:
                what = f"has the id of another exchange, {exchange.id}, and other content"
                raise _bad(what, place, f"The other is at {at}; nothing was kept.")
        talks.append(talk)
    if not talks:
        raise _bad("there is no conversation in it", name)
    return talks


def _conversations(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each conversation as it is in the file, with its place."""
    try:
        documents = [(name, _value(data, name))]
    except BadRecord:
        lines = [(n, line) for n, line in enumerate(data.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0][1]):
            raise
        documents = [(f"{name}:{n}", _value(line, name, first_line=n)) for n, line in lines]
        messages = [plain for _, plain in documents if _shape(plain) == "message"]
        documents = [pair for pair in documents if _shape(pair[1]) != "message"]
        documents += [(name, {"messages": messages})] if messages else []
    for where, document in documents:
        yield from _of_document(document, where)


def _of_document(document: Any, where: str) -> Iterator[tuple[str, Any]]:
    listed = document
    if isinstance(document, dict) and "conversations" in document:
        version = document.get("version", VERSION)
        if version != VERSION:
            what = f"is of version {version!r}, and this Ralph reads version {VERSION}"
            raise _bad(what, f"{where}.version", "A newer Ralph may read it; nothing was kept.")
        listed = document["conversations"]
        where = f"{where}.conversations"
        if not isinstance(listed, list):
            raise _bad("must be a list", where)
    elif not isinstance(document, list):
        yield where, document
        return
    elif document and all(_shape(plain) == "message" for plain in document):
        yield where, {"messages": document}
        return
    yield from ((f"{where}[{number}]", plain) for number, plain in enumerate(listed))


def _talk(plain: Any, where: str, project: str) -> ConversationContent:
    shape = _shape(plain)
    if shape == "messages":
        plain = _conversation_of_messages(plain, where)
    elif shape != "exchanges":
        others = list(BY_SOURCE)[1:]
        raise _bad(
            "this is not a conversation",
            where,
            f"{EXPECTED} For a session of Claude Code: ralph conversations import claude-code FILE "
            f"({', '.join(others[:-1])} and {others[-1]} likewise).",
        )
    read = _converted(plain, where)
    source = read.source or SOURCE
    title = read.title or ""
    project = project if read.project is None else read.project
    created = _time(read.created, f"{where}.created")
    name = _conversation_id(read, source)
    talk = Conversation(id=name, title=title, source=source, project=project, created=created)
    times: dict[str, int] = {}
    exchanges = [
        _exchange(exchange, talk, f"{where}.exchanges[{number}]", times)
        for number, exchange in enumerate(read.exchanges)
    ]
    if talk.created is None:  # it began no later than its first exchange
        begun = min((at for x in exchanges if (at := x.started or x.completed)), default=None)
        talk = msgspec.structs.replace(talk, created=begun)
    about = (read.tags or (), read.summaries or (), read.ratings or {}, read.project_ids or ())
    return ConversationContent(talk, exchanges, *about)


def _exchange(
    plain: _PlainExchange, talk: Conversation, where: str, times: dict[str, int]
) -> Exchange:
    user = plain.user or ""
    assistant = plain.assistant or ""
    if not (strip_marked(user).strip() or strip_marked(assistant).strip()):
        what = "there is nothing in this exchange: neither user nor assistant"
        raise _bad(what, where, "Take it out, or give it words; nothing was kept.")
    key = plain.id
    if key is None:
        content = _hash([user, assistant, plain.started, plain.completed])
        times[content] = times.get(content, 0) + 1  # the same text twice is two exchanges
        key = f"{content}#{times[content]}"
    started = _time(plain.started, f"{where}.started")
    given = msgspec.structs.asdict(plain).items()
    fields = {name: value for name, value in given if value is not None}
    fields |= {"user": user, "assistant": assistant, "started": started, "conversation": talk.id}
    fields["completed"] = _time(plain.completed, f"{where}.completed") or started or talk.created
    fields["id"] = key if _OUR_ID.fullmatch(key) else schema.exchange_id(talk.id, key)
    return Exchange(**fields)


def _conversation_id(read: _PlainConversation, source: str) -> str:
    """Return its own id, else one made from what stays the same as the conversation grows."""
    if read.id is not None:
        return read.id if _OUR_ID.fullmatch(read.id) else schema.conversation_id(source, read.id)
    begun: list[Any] = [read.title, read.created, read.project]
    if read.created and read.exchanges:
        begun.append(read.exchanges[0].user)
    else:  # only the text tells two of them apart
        begun += [[x.user, x.assistant, x.started] for x in read.exchanges]
    return schema.conversation_id(source, _hash(begun))


def _converted(plain: Any, where: str) -> _PlainConversation:
    try:
        return msgspec.convert(plain, _PlainConversation)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        what = str(error)[: at.start()] if at else str(error)
        todo = "docs/formats.md says what each field is; nothing was kept."
        raise _bad(what[:1].lower() + what[1:], where + (at[1] if at else ""), todo) from None


def _time(at: str | None, where: str) -> str | None:
    try:
        return utc(at, field=where.rpartition(".")[2]) if at else None
    except BadRecord as error:
        raise BadRecord(error.what, where=where, todo=error.todo) from None


def _hash(parts: Any) -> str:
    return hashlib.sha256(_encode(parts)).hexdigest()[:32]


def _value(data: bytes, name: str, *, first_line: int = 1) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # half an emoji, which `json` accepts, or not JSON, and then `json` says where
    try:
        return whole(json.loads(data))
    except json.JSONDecodeError as error:
        place = f"{name}:{first_line + error.lineno - 1}"
        what = f"is not JSON: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError) as error:
        place = f"{name}:{first_line}"
        what = f"is not JSON: {error}"
    raise _bad(what, place)


def _is_json(line: bytes) -> bool:
    try:
        _value(line, "")
    except BadRecord:
        return False
    return True


def _bad(what: str, where: str, todo: str = EXPECTED) -> BadRecord:
    return BadRecord(what, where=where, todo=todo)


# -- Export from the journal, and import here or elsewhere.


def import_conversations(
    store: Store, own: ConversationStream, data: bytes, *, name: str, project: str = ""
) -> ConversationImport:
    """Import the conversations of a file: all of them, or none if any part is bad.

    Conversations that name their project go there, the others into this stream.
    """
    homes: dict[str, list[ConversationContent]] = {}
    for talk in read_conversations(data, name=name, project=project):
        home, *git_ids = talk.project_ids or [own.name]
        known = any(home == part.name for part in own.parts)
        homes.setdefault(own.name if known else home, []).append(talk)
        for git_id in git_ids:
            note_owner(store.home, git_id, ids=[home])
    found = ConversationImport(files=1, projects=len(homes.keys() - {own.name}))
    for home, talks in homes.items():
        # Skips what another project here already has or has forgotten.
        others = ConversationStream(home, store, also=sorted({*store.names()} - {home}))
        saved = (own if home == own.name else others).save(talks)
        found.conversations += len(saved.conversations)
        found.exchanges += len(saved.exchanges)
        found.known += saved.known
    return found


def export_conversations(
    streams: Sequence[ConversationStream],
    *,
    project_ids: Mapping[str, Sequence[str]] | None = None,
    conversations: Sequence[str] = (),
    since: str | None = None,
) -> list[ConversationContent]:
    """Return the conversations of these streams, oldest first: all, or those with these ids.

    Ids in `conversations` may be shortened to their beginning. `since` leaves out exchanges that
    ended before, and conversations that have none left. `project_ids`, by stream, are added to
    each conversation.
    """
    begun = datetime.fromisoformat(moment_given(since, "since")) if since else None
    wanted = tuple(each.lower() for each in conversations)
    found: dict[str, ConversationContent] = {}
    for stream in streams:
        history = stream.history
        ids = () if project_ids is None else project_ids.get(stream.name, [stream.name])
        for name, state in history.conversations.items():
            if name in found or (wanted and not name.startswith(wanted)):
                continue
            exchanges = history.read_exchanges([name])
            if begun is not None:
                exchanges = [x for x in exchanges if not is_before(x.completed or "", begun)]
            if exchanges or begun is None:
                told = [name, *(one.id for one in exchanges)]
                summaries = [history.summaries[i] for i in told if i in history.summaries]
                ratings = {i: history.ratings[i] for i in told if i in history.ratings}
                exchanges.sort(key=held_at)
                talk = (state.conversation, exchanges, state.tags, summaries, ratings, ids)
                found[name] = ConversationContent(*talk)
    for start in wanted:
        the_only(found, start, schema.CONVERSATION)
    return sorted(found.values(), key=lambda talk: talk.conversation.created or "")
