"""Lists of messages, as many tools export them, cut into exchanges.

Known forms: `{"messages": [{"role", "content"}]}`, ChatGPT's `mapping` of messages and Claude's
`chat_messages`. What has another role than user, assistant or tool is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ralph.capture.lines import mapping, moment, text_of
from ralph.errors import BadRecord

Shape = Literal["exchanges", "messages", "mapping", "chat_messages", "message", ""]
_SHAPES: tuple[Shape, ...] = ("exchanges", "messages", "mapping", "chat_messages")
_SAID: dict[str, str] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
}
_SILENT = frozenset({"system", "developer"})
_TIMES = ("created_at", "create_time", "timestamp", "created", "date")
_TITLES = ("title", "name", "summary")
_IDS = ("id", "conversation_id", "uuid", "session_id")
_SOURCES: dict[Shape, str] = {"mapping": "chatgpt", "chat_messages": "claude"}
_HELD = {"image": "[image]", "image_url": "[image]", "input_image": "[image]", "file": "[file]"}


def shape_of(plain: Any) -> Shape:
    """How a conversation is written, `message` for one message of it, nothing for neither."""
    if not isinstance(plain, dict):
        return ""
    for shape in _SHAPES:
        if shape in plain:
            return shape
    return "message" if "role" in plain and "content" in plain else ""


def said_by_turns(plain: dict[str, Any], where: str) -> dict[str, Any]:
    """The conversation in our own plain form."""
    shape = shape_of(plain)
    said = _tree(plain, where) if shape == "mapping" else _list(plain[shape], f"{where}.{shape}")
    told = {
        "id": _first(plain, _IDS),
        "title": _first(plain, _TITLES),
        "source": text_of(plain.get("source")) or _SOURCES.get(shape),
        "project": text_of(plain.get("project")) or None,
        "created": _when(plain),
    }
    exchanges = list(_exchanges(said))
    return {**told, "exchanges": exchanges}


class _Said:
    """One message in the form that all of them come to."""

    def __init__(self, plain: dict[str, Any], where: str) -> None:
        author = plain.get("author")
        role = plain.get("role") or plain.get("sender") or mapping(author).get("role") or author
        if not isinstance(role, str):
            raise BadRecord(
                "a message needs a role",
                where=where,
                todo='Each is {"role": "user" or "assistant", "content": ...}; nothing was kept.',
            )
        self.role = _SAID.get(role.lower(), "")
        if not self.role and role.lower() not in _SILENT:
            raise BadRecord(
                f"nobody knows the role {role!r}",
                where=f"{where}.role",
                todo="It is user, assistant, tool or system; nothing was kept.",
            )
        self.id = _first(plain, ("id", "uuid"))
        self.at = _when(plain)
        told = plain.get("content")
        self.text = _words(told if told not in (None, "", []) else plain.get("text")).strip()
        self.name = text_of(plain.get("name")) or text_of(mapping(author).get("name"))
        self.model = text_of(plain.get("model")) or None
        self.calls = list(_calls(plain))


def _list(listed: Any, where: str) -> Iterator[_Said]:
    if not isinstance(listed, list):
        raise BadRecord("must be a list of messages", where=where, todo="Nothing was kept.")
    for number, one in enumerate(listed):
        place = f"{where}[{number}]"
        if not isinstance(one, dict):
            raise BadRecord("a message is an object", where=place, todo="Nothing was kept.")
        yield _Said(one, place)


def _tree(plain: dict[str, Any], where: str) -> Iterator[_Said]:
    """ChatGPT keeps every version of an answer; those on the way to the current one were held."""
    nodes = mapping(plain.get("mapping"))
    at = text_of(plain.get("current_node")) or next(reversed(list(nodes)), "")
    way: list[str] = []
    while at in nodes and at not in way:
        way.append(at)
        at = text_of(mapping(nodes[at]).get("parent"))
    for identity in reversed(way):
        message = mapping(nodes[identity]).get("message")
        if isinstance(message, dict) and not _is_hidden(message):
            yield _Said({"id": identity, **message}, f"{where}.mapping[{identity!r}].message")


def _is_hidden(message: dict[str, Any]) -> bool:
    hidden = mapping(message.get("metadata")).get("is_visually_hidden_from_conversation")
    kind = text_of(mapping(message.get("content")).get("content_type"))
    return hidden is True or kind in {"user_editable_context", "model_editable_context"}


def _exchanges(said: Iterator[_Said]) -> Iterator[dict[str, Any]]:
    """A person's words, and everything up to the next ones."""
    turn: list[_Said] = []
    for one in said:
        if one.role == "user" and any(before.role != "user" for before in turn):
            yield from _exchange(turn)
            turn = []
        if one.role and (one.text or one.calls):
            turn.append(one)
    yield from _exchange(turn)


def _exchange(turn: list[_Said]) -> Iterator[dict[str, Any]]:
    asked = [one.text for one in turn if one.role == "user"]
    steps: list[dict[str, Any]] = []
    called: list[dict[str, Any]] = []
    final: list[str] = []
    for one in turn:
        final += [one.text] if one.role == "assistant" and one.text else []
        if one.calls or one.role == "tool":  # what was said before was not the last word
            steps += [{"role": "assistant", "content": text} for text in final]
            final = []
        if one.role == "tool" and called:
            step = called.pop(0)
            step["content"] = f"{step['content']}\n{one.text}"
        elif one.role == "tool":
            steps.append({"role": "tool", "content": one.text, "tool": one.name})
        for name, given in one.calls:
            called.append({"role": "tool", "content": given, "tool": name})
            steps.append(called[-1])
    if not final and steps and steps[-1]["role"] == "assistant":
        final = [steps.pop()["content"]]
    if not (asked or final):
        return
    times = [one.at for one in turn if one.at]
    answered = [one for one in turn if one.role == "assistant"]
    yield {
        "id": next((one.id for one in turn if one.id), None),
        "user": "\n\n".join(asked),
        "assistant": "\n\n".join(final),
        "started": times[0] if times else None,
        "completed": times[-1] if times else None,
        "status": "complete" if answered else "interrupted",
        "model": next((one.model for one in answered if one.model), None),
        "messages": steps,
    }


def _calls(plain: dict[str, Any]) -> Iterator[tuple[str, str]]:
    listed = plain.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        told = mapping(mapping(call).get("function"))
        yield text_of(told.get("name")), text_of(told.get("arguments"))


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        inner = content.get("parts", content.get("text"))
        return _HELD.get(text_of(content.get("type")), "") or _words(inner)
    if isinstance(content, list):
        return "\n\n".join(filter(None, map(_words, content)))
    return ""


def _when(plain: dict[str, Any]) -> str | None:
    return next((at for key in _TIMES if (at := moment(plain.get(key))) is not None), None)


def _first(plain: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((text for key in keys if (text := text_of(plain.get(key)).strip())), None)
