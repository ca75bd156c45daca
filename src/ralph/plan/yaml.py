"""One YAML file of the plan: plain data with its places, and the data written back.

Plain data is dict, list, str, int, float, bool and None (a date stays the text that it is). What
cannot be read that way is one error with file, line and column. Changes go into ruamel's round-trip
nodes, so comments, key order and quotes survive. The layout is ruamel's own.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.anchor import Anchor
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import CommentMark, MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.tokens import CommentToken

from ralph.errors import BadPlan
from ralph.plan.model import Data, DataPath, Problem, Severity, identical, identity

MAX_BYTES = 4 * 1024 * 1024
# More than any plan needs; aliases inside aliases would otherwise grow without end.
_MAX_NODES = 100_000
_MAX_CHARS = 4 * MAX_BYTES
_MAX_DEPTH = 60
_TOO_MUCH = "this nests or repeats too much to be a plan"
# The parser and the emitter trip over some hostile input with errors of other kinds.
_RUAMEL_ERRORS = (YAMLError, RecursionError, ValueError, AttributeError, TypeError, IndexError)
_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?")
# ruamel marks where a folded text breaks; it cannot write a mark that has no word on both sides.
_LOST_FOLD = re.compile(r"(?<!\S)\a|\a(?! \S)")
_START_MARKER = re.compile(r"(?:[ \t]*(?:[#%].*)?\n)*---[ \t]*(?:#.*)?\n")
_UNPRINTABLE = re.compile(
    "[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
# Other programs may read the file as YAML 1.1.
_YAML_1_1_BOOLEANS = frozenset({"yes", "no", "on", "off", "y", "n"})
_LONGEST_FLOW = 80
# Stands for a line break inside of a text while it is written.
_BREAK = "\ue0f1"
_MARGIN = re.compile(r" *(?:- +)*")


class PlanFile:
    """The text of one file and the plain data in it."""

    def __init__(self, text: str, *, name: str) -> None:
        self.name = name
        self.text = text
        self.data: Data = {}
        self._root = self._compose()
        if self._root is not None:
            if not isinstance(self._root, MappingNode):
                raise _bad(
                    name,
                    _position(self._root),
                    "the file is not a mapping",
                    "Start it with `version: 1` and a list under its name, such as `features:`.",
                )
            self.data = _DataReader(name).mapping(self._root, 0)

    @classmethod
    def read(cls, raw: bytes, *, name: str) -> PlanFile:
        """Read the file from its bytes."""
        if len(raw) > MAX_BYTES:
            raise _bad(name, (1, 1), f"the file has {len(raw)} bytes", "Split or shorten it.")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            column = error.start - raw.rfind(b"\n", 0, error.start)
            raise _bad(
                name, (line, column), "this byte is not UTF-8", "Save the file as UTF-8."
            ) from None
        return cls(text.removeprefix("\ufeff"), name=name)

    def position(self, path: DataPath) -> tuple[int, int]:
        """Line and column of the value at the path, or of the nearest thing above it."""
        self._root = node = self._root or self._compose()
        position = _position(node) if node is not None else (1, 1)
        for step in path:
            child = _child(node, step)
            if child is None:
                break
            node, position = child
        return position

    def where(self, path: DataPath) -> str:
        """`file:line:column` of the value at the path."""
        line, column = self.position(path)
        return f"{self.name}:{line}:{column}"

    def problem(
        self, path: DataPath, what: str, todo: str, severity: Severity = "error"
    ) -> Problem:
        """Something that is wrong with the value at the path."""
        return Problem(self.name, *self.position(path), what, todo, severity)

    def with_data(self, data: Data) -> PlanFile:
        """The file with other data. The new text is read again to be sure that it says the same."""
        if identical(self.data, data):
            return self
        line_end = "\r\n" if "\r\n" in self.text else "\n"
        # The best first. The last one loses the comments.
        flat = partial(self._edited, flat=True)
        for write in (self._edited, flat, self._rewritten):
            with contextlib.suppress(BadPlan, *_RUAMEL_ERRORS):
                new = PlanFile(write(data).replace("\n", line_end), name=self.name)
                if new.data == data:
                    return new
        raise _bad(self.name, (1, 1), "this data cannot be written as YAML", "Change less at once.")

    def _edited(self, data: Data, *, flat: bool = False) -> str:
        # The nodes are changed in place: this object composes its own again when it needs them.
        root, self._root = self._root or self._compose(), None
        if root is None:
            return self._rewritten(data)
        text = self._plain_text()
        layout = _layout(root)
        wrapped = _BREAK not in text + json.dumps(data, ensure_ascii=False)
        if wrapped:
            _mark_breaks(root, text)
        root = _edit(root, self.data, data)
        if flat:
            _flatten_comments(root)
        head = _START_MARKER.match(text)
        new = (head[0] if head else "") + _dump(root, *layout)
        return "\n".join(map(_break_line, new.split("\n"))) if wrapped else new

    def _rewritten(self, data: Data) -> str:
        comments = self._plain_text() if self._compose() is None else ""
        gap = "\n" if comments and not comments.endswith("\n") else ""
        return comments + gap + _dump(_new_node(data))

    def _plain_text(self) -> str:
        return self.text.replace("\r\n", "\n")

    def _compose(self) -> Node | None:
        """The nodes of the text; None when there is nothing but comments."""
        yaml = YAML()
        yaml.Composer = _BoundedComposer
        text = self._plain_text()
        try:
            root: Node | None = yaml.compose(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            what = error.problem or error.context or "this cannot be read"
            if what == _TOO_MUCH:
                raise _too_much(self.name, position) from None
            todo = "Indent with spaces, not tabs." if "'\\t'" in what else "Correct this line."
            raise _bad(self.name, position, f"not valid YAML: {what}", todo) from None
        except ReaderError as error:
            at = error.position if isinstance(error.position, int) else 0
            position = (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
            raise _bad(
                self.name, position, "not valid YAML: there is a control character", "Delete it."
            ) from None
        except _RUAMEL_ERRORS as e:
            what = str(e).splitlines()[0] if str(e) else type(e).__name__
            todo = "Rewrite the file, or restore it from git."
            raise _bad(self.name, (1, 1), f"not valid YAML: {what}", todo) from None
        return root


class _BoundedComposer(Composer):
    """Makes nodes until there are more, or deeper ones, than a plan has."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.warn_double_anchors = False  # YAML allows them: the last one counts
        self._left = _MAX_NODES
        self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """One node with everything in it, as the serializer needs it."""
        self._left -= 1
        if self._left < 0 or self._level > _MAX_DEPTH + 1:
            mark = self.parser.peek_event().start_mark
            raise MarkedYAMLError(problem=_TOO_MUCH, problem_mark=mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(node.anchor, str):  # else the serializer invents another name
            anchor = Anchor()
            anchor.value, anchor.always_dump = node.anchor, True  # type: ignore[assignment]
            node.anchor = anchor
        if isinstance(node, ScalarNode):
            if node.style == ">":
                node.value = _LOST_FOLD.sub("", node.value)
        elif isinstance(node, SequenceNode) and any(item.comment for item in node.value):
            node.flow_style = False  # a comment inside of brackets is not written
        return node


class _DataReader:
    """Turns nodes into plain data, once through, within bounds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes_left = _MAX_NODES
        self._chars_left = _MAX_CHARS

    def value(self, node: Node, depth: int) -> Any:
        if isinstance(node, ScalarNode):
            self._count(node, depth, len(node.value))
            return _scalar(node)
        if isinstance(node, SequenceNode):
            self._count(node, depth)
            return [self.value(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def _count(self, node: Node, depth: int, chars: int = 0) -> None:
        """Aliases may repeat or contain themselves: the data has its bounds too."""
        self._nodes_left -= 1
        self._chars_left -= chars
        if min(self._nodes_left, self._chars_left) < 0 or depth > _MAX_DEPTH:
            raise _too_much(self._name, _position(node))

    def mapping(self, node: Node, depth: int) -> Data:
        self._count(node, depth)
        own: Data = {}
        merged: Data = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise _bad(
                    self._name, _position(key), "a key must be a plain word", "Write `word: value`."
                )
            if key.tag == _TAG + "merge":
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(source, MappingNode):
                        merged = self.mapping(source, depth + 1) | merged
            elif key.value in own:
                what = f"the key {key.value!r} is here twice"
                raise _bad(self._name, _position(key), what, "Keep one of the two.")
            else:
                own[key.value] = self.value(value, depth + 1)
        return {**{k: v for k, v in merged.items() if k not in own}, **own} if merged else own


def _scalar(node: ScalarNode) -> str | int | float | bool | None:
    """The value of a scalar by its YAML 1.2 type; what is no plain type stays text."""
    text: str = node.value.replace("\a", "") if node.style == ">" else node.value
    # Half of a pair of surrogates, which an escape can name, is no character.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
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


def _position(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _child(node: Node | None, step: str | int) -> tuple[Node, tuple[int, int]] | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == str(step):
                # A value that is nothing has no place of its own; its key has.
                empty = isinstance(value, ScalarNode) and not value.value
                block = not isinstance(value, ScalarNode) and not value.flow_style
                return value, _position(key if empty or block else value)
    elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], _position(node.value[step])
    return None


def _too_much(name: str, position: tuple[int, int]) -> BadPlan:
    return _bad(name, position, _TOO_MUCH, "Write it out without anchors, and flatter.")


def _bad(name: str, position: tuple[int, int], what: str, todo: str) -> BadPlan:
    return BadPlan(what, where=f"{name}:{position[0]}:{position[1]}", todo=todo)


# -- changing nodes


def _dump(node: Node, indent: int = 2, dash_offset: int = 2) -> str:
    yaml = YAML()
    yaml.width = 2**31  # no line is wrapped
    yaml.indent(mapping=indent, sequence=dash_offset + 2, offset=dash_offset)
    out = io.StringIO()
    yaml.serialize(node, out)
    return out.getvalue()


def _break_line(line: str) -> str:
    margin = _MARGIN.match(line) if _BREAK in line else None
    return line.replace(_BREAK, "\n" + " " * (margin.end() + 2)) if margin else line


def _mark_breaks(node: Node, text: str) -> None:
    """Remember where a plain or quoted text was wrapped: ruamel would join its lines."""
    if isinstance(node, CollectionNode):
        for child in node.value:
            _mark_breaks(child[1] if isinstance(child, tuple) else child, text)
    elif (
        isinstance(node, ScalarNode)
        and node.start_mark.line < node.end_mark.line
        and not _is_block_text(node)
    ):
        source = text[node.start_mark.index : node.end_mark.index]
        lines = [line.strip() for line in (source[1:-1] if node.style else source).split("\n")]
        if " ".join(lines) == node.value:
            node.value = _BREAK.join(lines)


def _layout(root: Node) -> tuple[int, int]:
    """How far the file sets in keys and dashes from the key above them."""
    indent = dash_offset = 2
    for key, value in reversed(root.value):
        below = value.start_mark.line > key.start_mark.line and value.anchor is None
        if below and isinstance(value, CollectionNode) and not value.flow_style:
            column = min(max(value.start_mark.column - root.start_mark.column, 0), 8)
            if isinstance(value, SequenceNode):
                dash_offset = column
            else:
                indent = max(column, 2)
    return indent, dash_offset


def _new_node(value: Any, style: str | None = None) -> Node:
    """A node for plain data; a text of several lines becomes a `|` block."""
    if isinstance(value, dict):
        pairs = [(_new_node(str(key)), _new_node(item)) for key, item in value.items()]
        return MappingNode(_TAG + "map", pairs, flow_style=not value)
    if isinstance(value, list):
        items = [_new_node(item) for item in value]
        return SequenceNode(_TAG + "seq", items, flow_style=not value)
    if isinstance(value, str):
        if "\n" in value or style in ("|", ">"):
            # Spaces around a text, or alone on a line, are lost in a block.
            plain = value.removesuffix("\n")
            safe = plain and plain == plain.strip()
            safe = safe and not any(line.isspace() for line in plain.split("\n"))
            style = "|" if safe else '"'
        if _UNPRINTABLE.search(value) or (not style and value.lower() in _YAML_1_1_BOOLEANS):
            style = '"'
        return ScalarNode(_TAG + "str", value, style=style)
    if value is None:
        return ScalarNode(_TAG + "null", "null")
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    return ScalarNode(_TAG + kind, str(value).lower())


def _edit(node: Node, old: Any, wanted: Any) -> Node:
    """The node with the wanted value in the place of the old one."""
    if identical(old, wanted):
        return node
    # An anchored node stands in other places too, which keep the old value.
    if wanted and type(old) is type(wanted) and node.anchor is None:
        if isinstance(node, MappingNode) and _keeps_flow(node, wanted.values()):
            named = {key.value: (key, value) for key, value in node.value}
            if wanted.keys() >= old.keys() - named.keys():  # else a merge brings what is gone
                return _rebuild(node, _mapping_steps(named, old, wanted))
        if isinstance(node, SequenceNode) and _keeps_flow(node, wanted):
            return _rebuild(node, _sequence_steps(node.value, old, wanted))
    new = _new_node(wanted, getattr(node, "style", None))
    _attach_comment(new, *_cut_comment(node), max(node.start_mark.column - 2, 0))
    return new


def _keeps_flow(node: CollectionNode, wanted: Iterable[Any]) -> bool:
    """Whether the values fit between the brackets; in a block everything does."""
    values = list(wanted)
    short = len(str(values)) <= _LONGEST_FLOW
    return not node.flow_style or (
        short and not any(isinstance(value, dict | list) or "\n" in str(value) for value in values)
    )


# A child before and after: a pair of nodes in a mapping, a node in a sequence. None: not there.
_Steps = list[tuple[Any, Any]]


def _mapping_steps(named: dict[str, tuple[Node, Node]], old: Data, wanted: Data) -> _Steps:
    steps: _Steps = []
    for name, pair in named.items():
        if name in wanted:
            steps.append((pair, (pair[0], _edit(pair[1], old[name], wanted[name]))))
        else:
            steps.append((pair, pair if pair[0].tag == _TAG + "merge" else None))
    # What a merge brings and what is still the same needs no line of its own.
    new = [k for k in wanted if k not in named and not (k in old and identical(old[k], wanted[k]))]
    return [*steps, *((None, (_new_node(name), _new_node(wanted[name]))) for name in new)]


def _sequence_steps(nodes: list[Node], old: list[Any], wanted: list[Any]) -> _Steps:
    steps: _Steps = []
    before, after = _numbered(old), _numbered(wanted)
    for what, i1, i2, j1, j2 in SequenceMatcher(None, before, after, False).get_opcodes():
        if what == "equal" or (what == "replace" and i2 - i1 == j2 - j1):
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                steps.append((nodes[i], _edit(nodes[i], old[i], wanted[j])))
        else:
            steps += [(nodes[i], None) for i in range(i1, i2)]
            steps += [(None, _new_node(item)) for item in wanted[j1:j2]]
    return steps


def _numbered(items: list[Any]) -> list[tuple[str, int]]:
    """The items' identities, each with its count: many equal ones would take the matcher hours."""
    counts: Counter[str] = Counter()
    numbered: list[tuple[str, int]] = []
    for item in map(identity, items):
        counts[item] += 1
        numbered.append((item, counts[item]))
    return numbered


def _rebuild(node: Node, steps: _Steps) -> Node:
    """Give the collection its new children. A comment stays in front of what follows it.

    ruamel keeps the lines behind a value with that value: they would go with it, or a new
    neighbor would come to stand behind them.
    """
    children: list[Any] = []
    comments: list[tuple[CommentToken | None, str]] = []
    head = ""
    for old, new in steps:
        if old is None:
            lines = ""
            if comments:
                end_of_line, lines = comments[-1]
                comments[-1] = (end_of_line, "")
            comments.append((None, lines))
        else:
            end_of_line, lines = _cut_comment(new or old)
            if new is not None:
                comments.append((end_of_line, lines))
            elif comments:
                comments[-1] = (comments[-1][0], comments[-1][1] + lines)
            else:
                head += lines
        if new is not None:
            children.append(new)
    for child, (end_of_line, lines) in zip(children, comments, strict=True):
        _attach_comment(child, end_of_line, lines, node.start_mark.column)
    if head:
        first, before, *more = node.comment or (None, None)
        tokens = [
            CommentToken(line.lstrip() + "\n", CommentMark(len(line) - len(line.lstrip())))
            for line in head.splitlines()
        ]
        node.comment = [first, [*(before or []), *tokens], *more]
    node.value = children
    return node


def _last_leaf(child: Any) -> Node:
    """The node that holds the comment behind a child."""
    node: Node = child[1] if isinstance(child, tuple) else child
    while isinstance(node, CollectionNode) and node.value and not node.flow_style:
        node = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
    return node


def _cut_comment(child: Any) -> tuple[CommentToken | None, str]:
    """Take the comment behind a child: what stands on its line, and the lines below."""
    leaf = _last_leaf(child)
    token = leaf.comment[0] if leaf.comment and leaf.anchor is None else None
    if token is None:
        return None, ""
    leaf.comment = [None, *leaf.comment[1:]]
    if _is_block_text(leaf):
        return None, ("" if token.value[0] == "\n" else " " * token.start_mark.column) + token.value
    first, _, lines = token.value.partition("\n")
    return (CommentToken(first, token.start_mark) if first else None), lines


def _attach_comment(
    child: Any, end_of_line: CommentToken | None, lines: str, most_indent: int
) -> None:
    if end_of_line is None and not lines:
        return
    leaf = _last_leaf(child)
    column = end_of_line.start_mark.column if end_of_line else 0
    if end_of_line or not _is_block_text(leaf):
        lines = f"{end_of_line.value if end_of_line else ''}\n{lines}"
    if _is_block_text(leaf):  # a comment that is set in as far would be a part of the text
        column = 0
        lines = re.sub(rf"(?m)^ {{{most_indent},}}(?=#)", " " * most_indent, lines)
    rest = leaf.comment[1:] if leaf.comment else [None]
    leaf.comment = [CommentToken(lines, CommentMark(column)), *rest]


def _flatten_comments(node: Node) -> None:
    """Set comments behind a block of text at the beginning of the line, where they cannot join it.

    The indentation of a file that mixes several changes, and that of its comments does not.
    """
    if isinstance(node, CollectionNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                _flatten_comments(part)
    elif _is_block_text(node) and node.comment and node.comment[0]:
        lines = re.sub(r"(?m)^ +(?=#)", "", node.comment[0].value)
        node.comment = [CommentToken(lines, CommentMark(0)), *node.comment[1:]]


def _is_block_text(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.style in ("|", ">")
