"""Tool: typed arguments, what is done with them, and what a client is told about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ralph.errors import BadInput

if TYPE_CHECKING:
    from ralph.doors.mcp.context import ServerContext

_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool is called with."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `recalls`: it asks memory, and so counts towards the hint to stop asking."""

    name: str
    title: str
    description: str
    takes: type[Arguments]
    does: Callable[[ServerContext, Any], str]
    example: dict[str, Any]
    reads: bool = False
    recalls: bool = False
    destroys: bool = False
    repeatable: bool = False


_A = TypeVar("_A", bound=Arguments)


def reading(
    takes: type[_A],
    does: Callable[[ServerContext, _A], str],
    *,
    title: str,
    description: str,
    example: dict[str, Any],
    recalls: bool = True,
) -> Tool:
    """A tool that changes nothing. Its name is the function's."""
    return Tool(
        name=does.__name__,
        title=title,
        description=description,
        takes=takes,
        does=does,
        example=example,
        reads=True,
        recalls=recalls,
        repeatable=True,
    )


def writing(
    takes: type[_A],
    does: Callable[[ServerContext, _A], str],
    *,
    title: str,
    description: str,
    example: dict[str, Any],
    destroys: bool = False,
    repeatable: bool = False,
) -> Tool:
    """A tool that changes the plan; `destroys` says that something may be gone afterwards."""
    return Tool(
        name=does.__name__,
        title=title,
        description=description,
        takes=takes,
        does=does,
        example=example,
        destroys=destroys,
        repeatable=repeatable,
    )


def read_arguments(tool: Tool, plain: Mapping[str, Any]) -> Arguments:
    """The arguments as the tool takes them, or an error that says what is wrong and shows a call.

    A number that came as text is a number: models write both.
    """
    try:
        return msgspec.convert(plain, tool.takes, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"{tool.name}: {_said(tool, str(error))}", todo=_example(tool)) from None


def input_schema(takes: type[Arguments]) -> dict[str, Any]:
    """The arguments as one flat JSON schema, without references that some clients cannot follow."""
    _, definitions = msgspec.json.schema_components([takes])
    whole = definitions[takes.__name__]
    properties = {name: _flat(one) for name, one in whole["properties"].items()}
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if whole.get("required"):
        made["required"] = whole["required"]
    return {**made, "additionalProperties": False}


def _flat(one: dict[str, Any]) -> dict[str, Any]:
    """Without `anyOf`. An argument that is null by default is one that may be left out; of one
    that has no default, null says something of its own."""
    flat = dict(one)
    choices = flat.pop("anyOf", [])
    left_out = flat.pop("default", ...) is None
    types = [choice["type"] for choice in choices if not left_out or choice["type"] != "null"]
    for choice in choices:
        flat.update({key: value for key, value in choice.items() if key != "type"})
    if types:
        flat["type"] = types[0] if len(types) == 1 else types
    if isinstance(flat.get("items"), dict):
        flat["items"] = _flat(flat["items"])
    if "default" in one and one["default"] is not None:
        flat["default"] = one["default"]
    return flat


def _said(tool: Tool, error: str) -> str:
    names = tool.takes.__struct_fields__
    if found := _MISSING.match(error):
        return f"`{found['name']}` is missing"
    if found := _UNKNOWN.match(error):
        takes = f"it takes {', '.join(names)}" if names else "it takes no arguments"
        return f"there is no argument `{found['name']}`; {takes}"
    if found := _PLACE.search(error):
        return f"`{found['path']}`: {error[: found.start()].replace('`', '').lower()}"
    return error.replace("`", "").lower()


def _example(tool: Tool) -> str:
    return f"For example: {tool.name} {json.dumps(tool.example, ensure_ascii=False)}"
