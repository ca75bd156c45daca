"""One YAML file of the plan, read into plain data that still knows its places.

Plain data is dict, list, str, int, float, bool and None: what people write, without YAML's own
types (a date stays the text it was written as). Whatever cannot be read that way is one error
with file, line and column.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ralph.errors import BadPlan

MAX_BYTES = 4 * 1024 * 1024
# More than any plan needs; aliases inside aliases would otherwise grow without end.
_MAX_NODES = 100_000
_MAX_CHARS = 4 * MAX_BYTES
_MAX_DEPTH = 60
_TOO_MUCH = "this nests or repeats too much to be a plan"
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


class _BoundedComposer(Composer):
    """Makes nodes until there are more, or deeper ones, than a plan has."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.warn_double_anchors = False  # YAML allows them: the last one counts
        self._left = _MAX_NODES
        self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """One node with all that is in it."""
        self._left -= 1
        if self._left < 0 or self._level > _MAX_DEPTH + 1:
            mark = self.parser.peek_event().start_mark
            raise MarkedYAMLError(problem=_TOO_MUCH, problem_mark=mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


def _compose(text: str, name: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    try:
        root: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        what = error.problem or error.context or "this cannot be read"
        if what == _TOO_MUCH:
            raise _too_much(name, place) from None
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
        self._nodes_left = _MAX_NODES
        self._chars_left = _MAX_CHARS

    def value(self, node: Node, depth: int) -> Any:
        if isinstance(node, ScalarNode):
            self._count(node, depth, len(node.value))
            return scalar(node)
        if isinstance(node, SequenceNode):
            self._count(node, depth)
            return [self.value(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def _count(self, node: Node, depth: int, chars: int = 0) -> None:
        """Aliases may repeat, and hold themselves: what they come to has its bounds too."""
        self._nodes_left -= 1
        self._chars_left -= chars
        if min(self._nodes_left, self._chars_left) < 0 or depth > _MAX_DEPTH:
            raise _too_much(self._name, _place(node))

    def mapping(self, node: Node, depth: int) -> Data:
        self._count(node, depth)
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
    # Half of a pair of surrogates, which an escape can name, is no character.
    text: str = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
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


def _too_much(name: str, place: Place) -> BadPlan:
    return _bad(name, place, _TOO_MUCH, "Write it out without anchors, and flatter.")


def _bad(name: str, place: Place, what: str, todo: str) -> BadPlan:
    return BadPlan(what, where=f"{name}:{place}", todo=todo)
