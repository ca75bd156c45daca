"""A tool is a typed function: its parameters are the arguments, its docstring describes it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from ralph.errors import BadInput

_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$")
_ARGUMENTS = "\n\nArgs:\n"
_KEEPS = "Left out, it stays as it is; null empties it."


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `recalls`: it asks memory, and so counts towards the hint to stop asking.

    `destroys`: something may be gone afterwards. `arguments`: what it takes, and what each means.
    """

    name: str
    title: str
    description: str
    takes: type[msgspec.Struct]
    arguments: dict[str, str]
    call: Callable[..., str]
    example: dict[str, Any]
    reads: bool
    recalls: bool
    destroys: bool
    repeatable: bool


def tool(
    title: str,
    *,
    example: dict[str, Any],
    name: str = "",
    reads: bool = False,
    recalls: bool = False,
    destroys: bool = False,
    repeatable: bool = False,
) -> Callable[[Callable[..., str]], Tool]:
    """Make a tool from a function that takes the server's context and the arguments of a call.

    The paragraphs of its docstring are the description; below `Args:` it has a line for each
    argument. With `**patch: Unpack[SomeTypedDict]` it gets only the fields that a call has.
    """
    left_out = UNSET if destroys else None  # null empties a field only where something can go

    def make(function: Callable[..., str]) -> Tool:
        text, arguments = _described(function)
        fields: list[Any] = []
        hints = get_type_hints(function, include_extras=True)
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            hint = hints[parameter.name]
            if parameter.kind is parameter.VAR_KEYWORD:
                [patch] = get_args(hint)
                arguments = _described(patch)[1] | arguments
                for field, kind in get_type_hints(patch, include_extras=True).items():
                    fields.append((field, kind | UnsetType, left_out))
                    if destroys and type(None) in get_args(kind):
                        arguments[field] += f" {_KEEPS}"
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, hint))
            else:
                fields.append((parameter.name, hint, parameter.default))
        own_name = name or function.__name__
        return Tool(
            name=own_name,
            title=title,
            description=text,
            takes=msgspec.defstruct(own_name, fields, kw_only=True, forbid_unknown_fields=True),
            arguments=arguments,
            call=function,
            example=example,
            reads=reads or recalls,
            recalls=recalls,
            destroys=destroys,
            repeatable=reads or recalls or repeatable,
        )

    return make


def _described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The paragraphs of a docstring, a line each, and the text of each argument."""
    text, _, rest = (inspect.getdoc(function) or "").partition(_ARGUMENTS)
    arguments = re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", rest, re.MULTILINE)
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return "\n".join(paragraphs), {name: " ".join(about.split()) for name, about in arguments}


def read_arguments(tool: Tool, plain: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them, or an error that says what is wrong and shows a call.

    A number that came as text is a number: models write both.
    """
    try:
        given = msgspec.convert(plain, tool.takes, strict=False)
    except msgspec.ValidationError as error:
        example = f"For example: {tool.name} {json.dumps(tool.example, ensure_ascii=False)}"
        raise BadInput(f"{tool.name}: {_problem(tool, str(error))}", todo=example) from None
    found = msgspec.structs.asdict(given)
    return {name: value for name, value in found.items() if value is not UNSET}


def input_schema(tool: Tool) -> dict[str, Any]:
    """The arguments as one flat JSON schema, without references that some clients cannot follow."""
    _, definitions = msgspec.json.schema_components([tool.takes])
    whole = definitions[tool.takes.__name__]
    properties = {
        name: {"description": tool.arguments[name], **_flat(schema)}
        for name, schema in whole["properties"].items()
    }
    required = {"required": whole["required"]} if whole.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """Without `anyOf`. An argument that is null by default is one that may be left out; of one
    that has no default, null says something of its own."""
    flat = dict(schema)
    choices = flat.pop("anyOf", [])
    left_out = flat.pop("default", ...) is None
    types = [choice["type"] for choice in choices if not left_out or choice["type"] != "null"]
    for choice in choices:
        flat.update({key: value for key, value in choice.items() if key != "type"})
    if types:
        flat["type"] = types[0] if len(types) == 1 else types
    if isinstance(flat.get("items"), dict):
        flat["items"] = _flat(flat["items"])
    if schema.get("default") is not None:
        flat["default"] = schema["default"]
    return flat


def _problem(tool: Tool, error: str) -> str:
    names = tool.takes.__struct_fields__
    if found := _MISSING.match(error):
        return f"`{found['name']}` is missing"
    if found := _UNKNOWN.match(error):
        takes = f"it takes {', '.join(names)}" if names else "it takes no arguments"
        return f"there is no argument `{found['name']}`; {takes}"
    if found := _PLACE.search(error):
        return f"`{found['path']}`: {error[: found.start()].replace('`', '').lower()}"
    return error.replace("`", "").lower()
