"""One YAML file of the plan: read as plain data with positions, and written back.

Plain data is dict, list, str, int, float, bool and None (a date stays text). A file that cannot be
read is one error with file, line and column. A change replaces only the lines whose values change:
every other line, comment and quote stays as it is.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import count, pairwise
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ralph.errors import BadPlan
from ralph.plan.model import Data, DataPath, Problem, Severity, identical, identity

MAX_BYTES = 4 * 1024 * 1024
# More than any plan needs. Without limits, aliases inside aliases could grow without end.
_MAX_NODES = 100_000
_MAX_DEPTH = 60
_TOO_MUCH = "this nests or repeats too much to be a plan"
# For some hostile input, the parser and the emitter raise errors of other kinds.
_RUAMEL_ERRORS = (YAMLError, RecursionError, ValueError, AttributeError, TypeError, IndexError)
_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?")
_UNPRINTABLE = re.compile(
    "[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
# Other programs may read the file as YAML 1.1.
_YAML_1_1_BOOLEANS = frozenset({"yes", "no", "on", "off", "y", "n"})
# A list whose dashes are right below the first letter of its key.
_FLUSH_LIST = re.compile(r"^( *)[^\s#-][^\n]*:\n\1- ", re.M)
_FIRST_LINE = re.compile(r"(?:[ \t]*\n)*( +)\S")
_COMMENT_BEHIND = re.compile(r"[ \t]+(?=#)")
_CONFLICT = re.compile(r"^<{7} ", re.M)
_REFERENCE = re.compile(r"[&*]\S")


class PlanFile:
    """The text of one file and the plain data in it."""

    def __init__(self, text: str, *, name: str) -> None:
        self.name = name
        self.text = text
        self.data: Data = {}
        self._plain = text.replace("\r\n", "\n")
        self._root = self._compose()
        if self._root is not None:
            if not isinstance(self._root, MappingNode):
                todo = "Start it with `version: 1` and a list under its name, such as `features:`."
                raise _bad(name, _position(self._root), "the file is not a mapping", todo)
            self.data = _read_data(name, self._root)

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
            what = "this byte is not UTF-8"
            todo = "Save the file as UTF-8."
            raise _bad(name, (line, column), what, todo) from None
        return cls(text.removeprefix("\ufeff"), name=name)

    def position(self, path: DataPath) -> tuple[int, int]:
        """Return line and column of the value at the path, or of the nearest one above it."""
        node = self._root
        position = _position(node) if node is not None else (1, 1)
        for step in path:
            found: list[tuple[Node, Node]] = []
            if isinstance(node, MappingNode):
                found = [(key, value) for key, value in node.value if key.value == str(step)]
            elif isinstance(node, SequenceNode) and isinstance(step, int):
                found = [(item, item) for item in node.value[step : step + 1]]
            if not found:
                break
            key, node = found[0]
            # The position of an empty value, or of a block below its key, is that of the key.
            own = node.flow_style if isinstance(node, CollectionNode) else node.value
            position = _position(node if own else key)
        return position

    def where(self, path: DataPath) -> str:
        """Return `file:line:column` of the value at the path."""
        line, column = self.position(path)
        return f"{self.name}:{line}:{column}"

    def problem(self, at: DataPath, what: str, todo: str, severity: Severity = "error") -> Problem:
        """Return a problem with the value at the path."""
        return Problem(self.name, *self.position(at), what, todo, severity)

    def with_data(self, data: Data) -> PlanFile:
        """Return the file with other data. The new text is read back to check that it is right."""
        if identical(self.data, data):
            return self
        line_end = "\r\n" if "\r\n" in self.text else "\n"
        for attempt in range(3):
            with contextlib.suppress(BadPlan, *_RUAMEL_ERRORS):
                if self._root is None or attempt == 2:  # the last attempt loses the comments
                    head = self._plain if self._root is None else ""
                    gap = "\n" if head and not head.endswith("\n") else ""
                    text = head + gap + _dump(_new_node(data))
                else:
                    edit = _TextEdit(self._plain, careful=attempt > 0)
                    text = edit.apply(self._root, self.data, data)
                new = PlanFile(text.replace("\n", line_end), name=self.name)
                if new.data == data:
                    return new
        raise _bad(self.name, (1, 1), "this data cannot be written as YAML", "Change less at once.")

    def _compose(self) -> Node | None:
        """Return the root node of the text; None if it has nothing but comments."""
        if conflict := _CONFLICT.search(self._plain):
            position = (self._plain.count("\n", 0, conflict.start()) + 1, 1)
            todo = (
                f"Keep what both sides say. Or: `ralph init`, then `git checkout -m {self.name}`."
            )
            raise _bad(self.name, position, "this is a merge conflict of git", todo)
        yaml = YAML()
        yaml.Composer = _BoundedComposer
        try:
            root: Node | None = yaml.compose(self._plain)
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
            position = (self._plain.count("\n", 0, at) + 1, at - self._plain.rfind("\n", 0, at))
            what = "not valid YAML: there is a control character"
            raise _bad(self.name, position, what, "Delete it.") from None
        except _RUAMEL_ERRORS as e:
            what = str(e).splitlines()[0] if str(e) else type(e).__name__
            todo = "Rewrite the file, or restore it from git."
            raise _bad(self.name, (1, 1), f"not valid YAML: {what}", todo) from None
        return root


class _BoundedComposer(Composer):
    """A composer with limits on the number and the depth of nodes."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.warn_double_anchors = False  # YAML allows them: the last one counts
        self._left = _MAX_NODES
        self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose one node with its content; aliases and missing values get their own positions."""
        event = self.parser.peek_event()
        self._left -= 1
        if self._left < 0 or self._level > _MAX_DEPTH + 1:
            raise MarkedYAMLError(problem=_TOO_MUCH, problem_mark=event.start_mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(event, AliasEvent):
            node = copy.copy(node)
            node.start_mark = event.start_mark
            node.end_mark = event.end_mark
            node.anchor = event.anchor
            if isinstance(node, ScalarNode):
                node.value = node.value.replace("\a", "")
                node.style = None
            else:
                node.flow_style = True
        elif isinstance(index, ScalarNode) and node.start_mark.index == node.end_mark.index:
            node.start_mark = node.end_mark = copy.copy(index.end_mark)
            node.end_mark.index += 1  # after the colon
        return node


def _read_data(name: str, root: Node) -> Data:
    """Return plain data from nodes, within limits: aliases may repeat or contain themselves."""
    nodes_left = _MAX_NODES
    chars_left = 4 * MAX_BYTES

    def read(node: Node, depth: int) -> Any:
        nonlocal nodes_left, chars_left
        nodes_left -= 1
        chars_left -= len(node.value) if isinstance(node, ScalarNode) else 0
        if min(nodes_left, chars_left) < 0 or depth > _MAX_DEPTH:
            raise _too_much(name, _position(node))
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if isinstance(node, SequenceNode):
            return [read(item, depth + 1) for item in node.value]
        own: Data = {}
        merged: Data = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                what = "a key must be a plain word"
                todo = "Write `word: value`."
                raise _bad(name, _position(key), what, todo)
            if key.tag == _TAG + "merge":
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(source, MappingNode):
                        merged = read(source, depth + 1) | merged
            elif key.value in own:
                what = f"the key {key.value!r} is here twice"
                raise _bad(name, _position(key), what, "Keep one of the two.")
            else:
                own[key.value] = read(value, depth + 1)
        return {**{k: v for k, v in merged.items() if k not in own}, **own} if merged else own

    data: Data = read(root, 0)
    return data


def _scalar(node: ScalarNode) -> str | int | float | bool | None:
    """Return the value of a scalar by its YAML 1.2 type; other types stay text."""
    text: str = node.value.replace("\a", "") if node.style == ">" else node.value
    # Half a surrogate pair, which an escape can write, is not a character.
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


def _too_much(name: str, position: tuple[int, int]) -> BadPlan:
    return _bad(name, position, _TOO_MUCH, "Write it out without anchors, and flatter.")


def _bad(name: str, position: tuple[int, int], what: str, todo: str) -> BadPlan:
    return BadPlan(what, where=f"{name}:{position[0]}:{position[1]}", todo=todo)


# -- writing


def _dump(node: Node, dash_offset: int = 2) -> str:
    yaml = YAML()
    yaml.width = 2**31  # no line is wrapped
    yaml.indent(mapping=2, sequence=dash_offset + 2, offset=dash_offset)
    out = io.StringIO()
    yaml.serialize(node, out)
    return out.getvalue()


def _new_node(value: Any, style: str | None = None, *, flow: bool = False) -> Node:
    """Return a node for plain data; a text of several lines becomes a `|` block."""
    if isinstance(value, dict):
        pairs = [(_new_node(str(key)), _new_node(item)) for key, item in value.items()]
        return MappingNode(_TAG + "map", pairs, flow_style=flow or not value)
    if isinstance(value, list):
        items = [_new_node(item) for item in value]
        return SequenceNode(_TAG + "seq", items, flow_style=flow or not value)
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


class _TextEdit:
    """Replaces the parts of a text whose values change.

    A careful edit also writes out anchors and aliases, because a change to one would change the
    other, and quotes texts, because a comment could become part of a block of text.
    """

    def __init__(self, text: str, *, careful: bool) -> None:
        self._text = text if text.endswith("\n") else text + "\n"
        self._careful = careful
        self._dash_offset = 0 if _FLUSH_LIST.search(text) else 2
        self._edits: list[tuple[int, int, str]] = []

    def apply(self, root: Node, old: Data, wanted: Data) -> str:
        """Return the text with the wanted data in place of the old."""
        if not self._is_block(root) or not wanted or not self._edit_mapping(root, old, wanted):
            return _dump(_new_node(wanted))
        out = ""
        at = 0
        for start, end, new in sorted(self._edits, key=lambda edit: edit[0]):
            out += self._text[at:start] + new
            at = max(at, end)
        return out + self._text[at:]

    def _edit_mapping(self, node: Node, old: Data, wanted: Data) -> bool:
        """Edit a block mapping in place; return False if that is not possible."""
        named = {key.value: (key, value) for key, value in node.value}
        gone = [n for n in named if n not in wanted and named[n][0].tag != _TAG + "merge"]
        first = node.value[0][0]
        last = node.value[-1][1]
        if not wanted.keys() >= old.keys() - named.keys():  # a merge key adds what should be gone
            return False
        if first.value in gone and not self._begins_line(first.start_mark.index):
            return False
        for name, (key, value) in named.items():
            if name in gone:
                self._delete(key.start_mark.index, value)
            elif name in wanted:
                self._edit(value, old[name], wanted[name], key)
        # A value that a merge key adds, and that has not changed, needs no line of its own.
        new = {k: v for k, v in wanted.items() if k not in named}
        if new := {k: v for k, v in new.items() if k not in old or not identical(old[k], v)}:
            text = _indented(_dump(_new_node(new), self._dash_offset), first.start_mark.column)
            self._edits.append((at := self._next_line(last), at, text))
        return True

    def _edit_sequence(self, node: Node, old: list[Any], wanted: list[Any]) -> bool:
        """Edit a block sequence in place; return False if that is not possible."""
        items = node.value
        column = node.start_mark.column
        dashes = [node.start_mark.index]
        dash = "\n" + " " * column + "-"
        dashes += [
            self._text.find(dash, self._end(before), item.start_mark.index) + 1
            for before, item in pairwise(items)
        ]
        if not self._begins_line(dashes[0]) or 0 in dashes:
            return False
        steps = SequenceMatcher(None, _numbered(old), _numbered(wanted), False).get_opcodes()
        for what, i1, i2, j1, j2 in steps:
            if what == "equal" or (what == "replace" and i2 - i1 == j2 - j1):
                for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                    self._edit(items[i], old[i], wanted[j], None)
                continue
            for i in range(i1, i2):
                self._delete(dashes[i], items[i])
            if j1 < j2:
                at = self._next_line(items[i2 - 1]) if i2 else self._line_start(dashes[0])
                new = _indented(_dump(_new_node(wanted[j1:j2]), 0), column)
                self._edits.append((at, at, new))
        return True

    def _edit(self, node: Node, old: Any, wanted: Any, key: Node | None) -> None:
        """Replace the value of a key, or the item of a list."""
        span = self._text[node.start_mark.index : node.end_mark.index]
        if identical(old, wanted) and not (self._careful and _REFERENCE.search(span)):
            return
        if self._is_block(node) and wanted and type(old) is type(wanted):
            edit = self._edit_mapping if isinstance(node, MappingNode) else self._edit_sequence
            if edit(node, old, wanted):
                return
        flow = getattr(node, "flow_style", None) and len(str(wanted)) <= 80
        value = _new_node(wanted, getattr(node, "style", None), flow=bool(flow))
        if self._careful and isinstance(value, ScalarNode) and value.style == "|":
            value.style = '"'
        if flow and isinstance(old, list) and isinstance(wanted, list):  # keep their quotes
            same = dict(zip(map(repr, old), node.value, strict=True))
            new_nodes = value.value
            value.value = [same.get(repr(x), y) for x, y in zip(wanted, new_nodes, strict=True)]
        start = (key or node).start_mark.index
        column = (key or node).start_mark.column
        if key is None:
            column -= 2
            new = _dump(SequenceNode(_TAG + "seq", [value]), 0).removeprefix("- ")
            new = f" {new}" if self._text[start - 1] == "-" else new
        else:
            pair = (_new_node(key.value, getattr(key, "style", None)), value)
            new = _dump(MappingNode(_TAG + "map", [pair]), self._dash_offset)
        new = _indented(new.removesuffix("\n"), column).lstrip(" ")
        end = self._end(node)
        comment = _COMMENT_BEHIND.match(self._text, end)
        if comment and "\n" in new:  # it would become part of the text, or get lost
            new = f"{new}\n{' ' * column}"
            end = comment.end()
        self._edits.append((start, end, new))

    @staticmethod
    def _is_block(node: Node) -> bool:
        """Return whether a collection has its own lines, and is neither anchor nor alias."""
        return isinstance(node, CollectionNode) and not node.flow_style and node.anchor is None

    def _delete(self, at: int, node: Node) -> None:
        self._edits.append((self._line_start(at), self._next_line(node), ""))

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _next_line(self, node: Node) -> int:
        return self._text.index("\n", self._end(node)) + 1

    def _begins_line(self, at: int) -> bool:
        return not self._text[self._line_start(at) : at].strip()

    def _end(self, node: Node) -> int:
        """Return where the content of a node ends, without the blanks and comments after it."""
        if isinstance(node, CollectionNode) and node.value and not node.flow_style:
            last = node.value[-1]
            return self._end(last[1] if isinstance(node, MappingNode) else last)
        if not isinstance(node, ScalarNode) or node.style not in ("|", ">"):
            end: int = node.end_mark.index
            return end
        head = self._text.index("\n", node.start_mark.index)
        first = _FIRST_LINE.match(self._text, head + 1)
        if not first or not node.value.strip():
            return head
        lines = re.compile(rf"(?:\n {{{len(first[1])},}}[^\n]*|\n[ \t]*(?=\n))*")
        text = lines.match(self._text, head)
        return head + len(text[0].rstrip()) if text else head


def _indented(text: str, column: int) -> str:
    return re.sub(r"(?m)^(?=.)", " " * column, text)


def _numbered(items: list[Any]) -> list[tuple[str, int]]:
    """Return the items' identities with counts: many equal ones would take the matcher hours."""
    counts = defaultdict[str, Iterator[int]](count)
    return [(key, next(counts[key])) for key in map(identity, items)]
