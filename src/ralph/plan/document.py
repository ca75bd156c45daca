"""One YAML file of the plan, read into plain data that still knows its places.

Plain data is dict, list, str, int, float, bool and None: what people write, without YAML's own
types (a date stays the text it was written as). Whatever cannot be read that way is one error
with file, line and column.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ralph.errors import BadPlan

MAX_BYTES = 8 * 1024 * 1024
# More than any plan needs; aliases inside aliases would otherwise grow without end.
_MAX_NODES = 400_000
_MAX_DEPTH = 60
_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?")

Data = dict[str, Any]
Path = tuple[str | int, ...]


class Place:
    """A line and a column, both counted from one."""

    __slots__ = ("column", "line")

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class Document:
    """The text of one file, its nodes, and the plain data they stand for."""

    def __init__(self, text: str, *, name: str) -> None:
        self.name = name
        self.text = text
        self.root = _compose(text, name)
        self.data: Data = {}
        if self.root is not None:
            if not isinstance(self.root, MappingNode):
                raise _bad(
                    name,
                    _place(self.root),
                    "the file is not a mapping",
                    "Start it with `version: 1` and a list under its name, such as `features:`.",
                )
            self.data = _Reader(name).mapping(self.root, 0)

    @classmethod
    def read(cls, raw: bytes, *, name: str) -> Document:
        """The document in these bytes."""
        if len(raw) > MAX_BYTES:
            raise _bad(name, Place(1, 1), f"the file has {len(raw)} bytes", "Split or shorten it.")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
            raise _bad(
                name, Place(line, column), "this byte is not UTF-8", "Save the file as UTF-8."
            ) from None
        return cls(text.removeprefix("\ufeff"), name=name)

    def place(self, path: Path) -> Place:
        """Where the value at the path stands; the nearest thing above it when it is not there."""
        node: Node | None = self.root
        at = _place(node) if node is not None else Place(1, 1)
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            node, at = found
        return at

    def where(self, path: Path) -> str:
        """`file:line:column` of the value at the path."""
        return f"{self.name}:{self.place(path)}"


def _compose(text: str, name: str) -> Node | None:
    try:
        root: Node | None = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        what = error.problem or error.context or "this cannot be read"
        todo = "Indent with spaces, not tabs." if "'\\t'" in what else "Correct this line."
        raise _bad(name, place, f"not valid YAML: {what}", todo) from None
    except ReaderError as error:
        at = error.position if isinstance(error.position, int) else 0
        place = Place(text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)
        raise _bad(
            name, place, "not valid YAML: a control character stands here", "Delete it."
        ) from None
    except (YAMLError, RecursionError, ValueError, AttributeError, TypeError, IndexError) as error:
        # The parser trips over some hostile input with errors of its own kind.
        raise _bad(
            name,
            Place(1, 1),
            f"not valid YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            "Write the file anew, or take it from git.",
        ) from None
    return root


class _Reader:
    """Turns nodes into plain data, once through, within bounds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = _MAX_NODES

    def value(self, node: Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise _bad(
                self._name,
                _place(node),
                "this nests or repeats too much to be a plan",
                "Write it out without anchors, and flatter.",
            )
        if isinstance(node, ScalarNode):
            return scalar(node)
        if isinstance(node, SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def mapping(self, node: Node, depth: int) -> Data:
        own: Data = {}
        merged: Data = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise _bad(
                    self._name, _place(key), "a key must be a plain word", "Write `word: value`."
                )
            if key.tag == _TAG + "merge":
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(source, MappingNode):
                        merged = self.mapping(source, depth + 1) | merged
            elif key.value in own:
                raise _bad(
                    self._name,
                    _place(key),
                    f"the key {key.value!r} is here twice",
                    "Keep one of the two.",
                )
            else:
                own[key.value] = self.value(value, depth + 1)
        return {**{k: v for k, v in merged.items() if k not in own}, **own} if merged else own


def scalar(node: Node) -> str | int | float | bool | None:
    """The value of a scalar by its YAML 1.2 type; what is no plain type stays text."""
    text: str = node.value
    kind = str(node.tag).removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on", "y")
    if kind == "int" and _INT.fullmatch(text) and len(text) < 400:
        return int(text, 0) if text.lstrip("+-")[:2] in ("0o", "0x") else int(text)
    if kind == "float" and _FLOAT.fullmatch(text) and len(text) < 400:
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text


def _place(node: Node) -> Place:
    mark = node.start_mark
    return Place(mark.line + 1, mark.column + 1)


def _child(node: Node | None, step: str | int) -> tuple[Node, Place] | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == str(step):
                # A value that is nothing has no place of its own; its key has.
                empty = isinstance(value, ScalarNode) and not value.value
                block = not isinstance(value, ScalarNode) and not value.flow_style
                return value, _place(key if empty or block else value)
    elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], _place(node.value[step])
    return None


def _bad(name: str, place: Place, what: str, todo: str) -> BadPlan:
    return BadPlan(what, where=f"{name}:{place}", todo=todo)
