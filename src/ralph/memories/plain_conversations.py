"""Conversations as plain JSON: what `export` writes and `import` reads, and what other tools write.

A document is `{"version": 1, "conversations": [...]}`, or JSON Lines with one conversation a line.
Bad input is refused with its place, and then nothing of the file is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from ralph.capture.lines import whole
from ralph.errors import BadRecord
from ralph.kinds.conversation import (
    Conversation,
    Exchange,
    Message,
    Status,
    conversation_id,
    exchange_id,
)
from ralph.kinds.iteration import ErrorSeen, FileTouched
from ralph.memories.many_conversations import Talk
from ralph.memories.plain_messages import said_by_turns, shape_of
from ralph.record import utc
from ralph.text.marks import strip_marked
from ralph.text.redact import redact

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

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Money = Annotated[float, msgspec.Meta(ge=0)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class _PlainExchange(msgspec.Struct, kw_only=True):
    id: _Id | None = None
    user: str | None = None
    assistant: str | None = None
    started: str | None = None
    completed: str | None = None
    status: Status | None = None
    tokens_used: _Count | None = None
    cost_usd: _Money | None = None
    model: str | None = None
    errors: list[ErrorSeen] | None = None
    files_touched: list[FileTouched] | None = None
    messages: list[Message] | None = None


class _PlainConversation(msgspec.Struct, kw_only=True):
    id: _Id | None = None
    title: str | None = None
    source: str | None = None
    project: str | None = None
    created: str | None = None
    exchanges: list[_PlainExchange]


def written(talks: Sequence[Talk], *, lines: bool = False) -> bytes:
    """The document, or with `lines` one conversation a line."""
    plain = [_plain(one) for one in talks]
    encode = msgspec.json.Encoder().encode
    if lines:
        return b"".join(encode(one) + b"\n" for one in plain)
    whole = encode({"version": VERSION, "conversations": plain})
    return msgspec.json.format(whole, indent=1) + b"\n"


def _plain(talk: Talk) -> dict[str, Any]:
    """Every field under its published name; numbers are the journal's own and stay there."""
    fields = ("id", "title", "source", "project", "created")
    hidden = {"number", "conversation"}
    exchanges = [
        {name: value for name, value in one.to_json().items() if name not in hidden}
        for one in talk.exchanges
    ]
    told = {name: getattr(talk.conversation, name) for name in fields}
    return told | {"exchanges": exchanges}


def read_conversations(data: bytes, *, name: str, project: str = "") -> list[Talk]:
    """The conversations in a file, whichever of the forms it has; an error says where it is bad.

    `project` is where those belong that do not say it.
    """
    talks: list[Talk] = []
    seen: dict[str, tuple[Exchange, str]] = {}
    for where, plain in _conversations(data, name):
        one = _talk(plain, where, project)
        for number, exchange in enumerate(one.exchanges):
            other = seen.setdefault(exchange.id, (exchange, f"{where}.exchanges[{number}]"))
            if other[0] != exchange:
                raise BadRecord(
                    f"has the id of another exchange, {exchange.id}, and other content",
                    where=f"{where}.exchanges[{number}]",
                    todo=f"The other is at {other[1]}; nothing was kept.",
                )
        talks.append(one)
    if not talks:
        raise BadRecord("there is no conversation in it", where=name, todo=EXPECTED)
    return talks


def _conversations(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Each conversation as it stands there, with its place."""
    data = data.removeprefix(_BOM)
    try:
        document = _value(data, name)
    except BadRecord:
        lines = [(n, line) for n, line in enumerate(data.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0][1]):
            raise
        yield from _of_lines(lines, name)
        return
    yield from _of_document(document, name)


def _of_lines(lines: Sequence[tuple[int, bytes]], name: str) -> Iterator[tuple[str, Any]]:
    said: list[Any] = []
    for number, line in lines:
        where = f"{name}:{number}"
        plain = _value(line, name, first_line=number)
        if shape_of(plain) == "message":
            said.append(plain)
        else:
            yield from _of_document(plain, where)
    if said:
        yield name, {"messages": said}


def _of_document(document: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(document, list):
        if document and all(shape_of(one) == "message" for one in document):
            yield where, {"messages": document}
            return
        for number, one in enumerate(document):
            yield f"{where}[{number}]", one
        return
    if not isinstance(document, dict) or "conversations" not in document:
        yield where, document
        return
    version = document.get("version", VERSION)
    if version != VERSION:
        raise BadRecord(
            f"is of version {version!r}, and this Ralph reads version {VERSION}",
            where=f"{where}.version",
            todo="A newer Ralph may read it; nothing was kept.",
        )
    listed = document["conversations"]
    if not isinstance(listed, list):
        raise BadRecord("must be a list", where=f"{where}.conversations", todo=EXPECTED)
    for number, one in enumerate(listed):
        yield f"{where}.conversations[{number}]", one


def _talk(plain: Any, where: str, project: str) -> Talk:
    shape = shape_of(plain)
    if shape in {"messages", "mapping", "chat_messages"}:
        plain = said_by_turns(plain, where)
    elif shape != "exchanges":
        raise BadRecord("this is not a conversation", where=where, todo=EXPECTED)
    told = _fitting(plain, where)
    source = told.source or SOURCE
    identity = _conversation_id(told, source)
    conversation = Conversation(
        id=identity,
        title=told.title or "",
        source=source,
        project=project if told.project is None else told.project,
        created=_time(told.created, f"{where}.created"),
    )
    exchanges: list[Exchange] = []
    times: dict[str, int] = {}
    for number, one in enumerate(told.exchanges):
        place = f"{where}.exchanges[{number}]"
        exchanges.append(_exchange(one, conversation, place, times))
    if conversation.created is None:  # it began no later than what was said in it
        begun = min((at for one in exchanges if (at := one.started or one.completed)), default=None)
        conversation = replace(conversation, created=begun)
    return Talk(conversation, exchanges)


def _exchange(
    one: _PlainExchange, held_in: Conversation, where: str, times: dict[str, int]
) -> Exchange:
    user, assistant = one.user or "", one.assistant or ""
    if not (strip_marked(user).strip() or strip_marked(assistant).strip()):
        raise BadRecord(
            "there is nothing in this exchange: neither user nor assistant",
            where=where,
            todo="Take it out, or give it words; nothing was kept.",
        )
    if one.id is None:
        content = _hash([user, assistant, one.started, one.completed])
        times[content] = times.get(content, 0) + 1  # said twice is two
        identity = exchange_id(held_in.id, f"{content}#{times[content]}")
    elif _OUR_ID.fullmatch(one.id):
        identity = one.id
    else:
        identity = exchange_id(held_in.id, one.id)
    started = _time(one.started, f"{where}.started")
    return Exchange(
        id=identity,
        conversation=held_in.id,
        user=user,
        assistant=assistant,
        status=one.status or "complete",
        started=started,
        completed=_time(one.completed, f"{where}.completed") or started or held_in.created,
        tokens_used=one.tokens_used,
        cost_usd=one.cost_usd,
        model=one.model,
        errors=tuple(
            replace(error, file_path=redact(error.file_path) if error.file_path else None)
            for error in one.errors or ()
        ),
        files_touched=tuple(
            replace(file, path=redact(file.path)) for file in one.files_touched or ()
        ),
        messages=tuple(replace(step, tool=redact(step.tool)) for step in one.messages or ()),
    )


def _conversation_id(told: _PlainConversation, source: str) -> str:
    """Its own id, else one from what does not change when the conversation goes on."""
    if told.id is not None:
        return told.id if _OUR_ID.fullmatch(told.id) else conversation_id(source, told.id)
    begun: list[Any] = [told.title, told.created, told.project]
    if told.created and told.exchanges:
        begun.append(told.exchanges[0].user)
    else:  # nothing tells two of them apart but what was said
        begun += [[one.user, one.assistant, one.started] for one in told.exchanges]
    return conversation_id(source, _hash(begun))


def _fitting(plain: Any, where: str) -> _PlainConversation:
    try:
        return msgspec.convert(plain, _PlainConversation)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        what = str(error)[: at.start()] if at else str(error)
        raise BadRecord(
            what[:1].lower() + what[1:],
            where=where + (at[1] if at else ""),
            todo="docs/formats.md says what each field is; nothing was kept.",
        ) from None


def _time(told: str | None, where: str) -> str | None:
    if not told:
        return None
    try:
        return utc(told, field=where.rpartition(".")[2])
    except BadRecord as error:
        raise BadRecord(error.what, where=where, todo=error.todo) from None


def _hash(parts: Any) -> str:
    return hashlib.sha256(_encode(parts)).hexdigest()[:32]


def _value(data: bytes, name: str, *, first_line: int = 1) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # half of an emoji, or not JSON: the other decoder takes the one and places the other
    try:
        return whole(json.loads(data))
    except json.JSONDecodeError as error:
        place = f"{name}:{first_line + error.lineno - 1}"
        what = f"is not JSON: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError) as error:
        place, what = f"{name}:{first_line}", f"is not JSON: {error}"
    raise BadRecord(what, where=place, todo=EXPECTED)


def _is_json(line: bytes) -> bool:
    try:
        _value(line, "")
    except BadRecord:
        return False
    return True
