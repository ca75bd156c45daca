"""What a conversation goes through before it is kept: secrets out, our own words out, limits on."""

from __future__ import annotations

import msgspec

from ralph.config import Settings
from ralph.errors import BadRecord
from ralph.kinds.clean import clean_text
from ralph.kinds.conversation import Conversation, Exchange, Message
from ralph.kinds.iteration import FileTouched, cut, strongest
from ralph.record import utc
from ralph.text.marks import strip_marked
from ralph.text.redact import redact

_TITLE_CHARS = 200
_SHORT_FIELD_CHARS = 300


def prepared_conversation(one: Conversation) -> Conversation:
    """The conversation as it may be written."""
    if not one.id:
        raise BadRecord("a conversation needs an id")
    return msgspec.structs.replace(
        one,
        title=_clean(" ".join(one.title.split()), _TITLE_CHARS),
        source=_clean(one.source, _SHORT_FIELD_CHARS),
        project=_clean(one.project, _SHORT_FIELD_CHARS),
        created=utc(one.created, field="created") if one.created else None,
    )


def prepared_exchange(one: Exchange, conversation: str, settings: Settings) -> Exchange:
    """The exchange as it may be written: nothing secret, nothing that was recalled, no excess."""
    if one.conversation not in ("", conversation):
        raise BadRecord(f"exchange {one.id} belongs to conversation {one.conversation}")
    if not one.id:
        raise BadRecord("an exchange needs an id")
    most = settings.exchange_max_chars
    ready = msgspec.structs.replace(
        one,
        conversation=conversation,
        user=_clean(strip_marked(one.user).strip(), most),
        assistant=_clean(strip_marked(one.assistant).strip(), most),
        started=utc(one.started, field="started") if one.started else None,
        completed=utc(one.completed, field="completed") if one.completed else None,
        model=_clean(one.model, _SHORT_FIELD_CHARS) if one.model else None,
        errors=tuple(
            msgspec.structs.replace(
                error,
                message=_clean(error.message, settings.error_max_chars),
                resolution=(
                    _clean(error.resolution, settings.decision_max_chars)
                    if error.resolution
                    else None
                ),
                file_path=redact(error.file_path) if error.file_path else None,
            )
            for error in one.errors[: settings.errors_max]
        ),
        files_touched=tuple(
            FileTouched(redact(file.path), file.action)
            for file in strongest(one.files_touched)[: settings.files_max]
        ),
        messages=_messages(one.messages, most),
    )
    if not (ready.user or ready.assistant):
        raise BadRecord("there is nothing in this exchange to remember")
    return ready


def _messages(messages: tuple[Message, ...], max_chars: int) -> tuple[Message, ...]:
    """The first steps, as many as fit."""
    kept: list[Message] = []
    for message in messages:
        clean = msgspec.structs.replace(
            message,
            content=_clean(message.content, max_chars),
            tool=_clean(message.tool, _SHORT_FIELD_CHARS) if message.tool else "",
        )
        max_chars -= len(clean.content)
        if max_chars < 0:
            break
        kept.append(clean)
    return tuple(kept)


def _clean(text: str, max_chars: int) -> str:
    # Half a surrogate pair cannot be written as UTF-8; it is damage, not content.
    return cut(clean_text(text.encode("utf-8", "replace").decode("utf-8")), max_chars)
