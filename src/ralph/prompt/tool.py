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

_AT_FIELD = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$")
_ARGUMENTS = "\n\nArgs:\n"
_EXAMPLE = "\n\nExample:\n"
_KEEPS = "Omit it to keep the current value; null clears it."


class Tool(msgspec.Struct, frozen=True):
    """One tool. As a decorator, it takes its arguments and texts from a function.

    The function takes a context and the arguments of a call; keyword-only parameters are not for
    the model. The paragraphs of its docstring are the description; `Args:` has a line for each
    argument, `Example:` has the arguments of a call as JSON. `fields` are more arguments with their
    types; the function gets those that a call has. An argument that may be null can be left out.

    `recalls`: it queries memory, so it counts towards the hint to stop asking. `destroys`: it may
    delete something.
    """

    title: str
    name: str = ""
    fields: dict[str, Any] = {}
    reads: bool = False
    recalls: bool = False
    destroys: bool = False
    repeatable: bool = False
    description: str = ""
    example: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    takes: type[msgspec.Struct] = msgspec.Struct
    call: Callable[..., Any] = str

    def __call__(self, function: Callable[..., Any]) -> Tool:
        """Return the tool that calls this function."""
        text, arguments, example = _read_docstring(function)
        hints = get_type_hints(function, include_extras=True)
        takes: list[Any] = []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                default = [] if parameter.default is parameter.empty else [parameter.default]
                takes.append((parameter.name, hints[parameter.name], *default))
        left_out = UNSET if self.destroys else None  # null clears a field only if it may delete
        for field, kind in self.fields.items():
            nullable = type(None) in get_args(kind)
            needed = not nullable and not self.destroys
            takes.append((field, kind) if needed else (field, kind | UnsetType, left_out))
            if self.destroys and nullable:
                arguments[field] += f" {_KEEPS}"
        name = self.name or function.__name__
        return msgspec.structs.replace(
            self,
            name=name,
            reads=self.reads or self.recalls,
            repeatable=self.reads or self.recalls or self.repeatable,
            description=text,
            example=example,
            arguments=arguments,
            takes=msgspec.defstruct(name, takes, kw_only=True, forbid_unknown_fields=True),
            call=function,
        )


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return a docstring's paragraphs, one per line, the text of each argument, and the example."""
    above, _, example = (inspect.getdoc(function) or "").partition(_EXAMPLE)
    text, _, rest = above.partition(_ARGUMENTS)
    arguments = re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", rest, re.MULTILINE)
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    texts = {name: " ".join(about.split()) for name, about in arguments}
    return "\n".join(paragraphs), texts, json.loads(" ".join(example.split()) or "{}")


def read_arguments(tool: Tool, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the tool takes them; an error says what is wrong and shows a call.

    A number written as text counts as a number: models write both.
    """
    try:
        given = msgspec.convert(plain, tool.takes, strict=False)
    except msgspec.ValidationError as error:
        example = f"For example: {tool.name} {json.dumps(tool.example, ensure_ascii=False)}"
        raise BadInput(f"{tool.name}: {_problem(tool, str(error))}", todo=example) from None
    found = msgspec.structs.asdict(given)
    return {name: value for name, value in found.items() if value is not UNSET}


def input_schema(tool: Tool) -> dict[str, Any]:
    """Return the arguments as one flat JSON schema: some clients cannot follow references."""
    _, definitions = msgspec.json.schema_components([tool.takes])
    whole = definitions[tool.takes.__name__]
    properties = {
        name: {"description": tool.arguments[name], **_flat(schema)}
        for name, schema in whole["properties"].items()
    }
    required = {"required": whole["required"]} if whole.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without `anyOf`. For an argument that is null by default, null only means
    left out; without a default, null has its own meaning."""
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
    if found := _AT_FIELD.search(error):
        return f"`{found['path']}`: {error[: found.start()].replace('`', '').lower()}"
    return error.replace("`", "").lower()
