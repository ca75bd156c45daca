"""One YAML file of the plan, read into plain data that still knows its places.

Plain data is dict, list, str, int, float, bool and None: what people write, without YAML's own
types (a date stays the text it was written as). Whatever cannot be read that way is one error
with file, line and column.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
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


class PlanFile:
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
    def read(cls, raw: bytes, *, name: str) -> PlanFile:
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


# -- Plain data as YAML text, the way a person would write it.
#
# A text is written plain where that is safe, as a `|` block when it has several lines, and
# between double quotes otherwise, with everything unprintable escaped.


STEP = 2
# Letters first, then nothing that YAML could take for something else.
_PLAIN = re.compile(
    r"[^\W\d][\w./()+*=<>@$%^~;'\"&!?\[\]{}|`,-]*(?: [\w./()+*=<>@$%^~;'\"&!?,-]+)*"
)
_WORDS_OF_YAML = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"})
_RELATIVE = re.compile(r"\.?[\w-]+(?:[./][\w-]+)*")
_LITERAL = re.compile(r"[^ \t\r\n][^\r]*[^ \t\r\n]\n?")
_UNPRINTABLE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_MARKS = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def emit_document(data: Data) -> str:
    """A whole file."""
    return "".join(
        key_text(key) + ":" + after_key(value, 0, STEP) + "\n" for key, value in data.items()
    )


def after_key(value: Any, column: int, dash_offset: int, style: str | None = None) -> str:
    """What stands behind `key:` when the key begins at the column."""
    if isinstance(value, dict) and value:
        inner = column + STEP
        return "".join(
            "\n" + " " * inner + key_text(key) + ":" + after_key(item, inner, dash_offset)
            for key, item in value.items()
        )
    if isinstance(value, list) and value:
        inner = column + dash_offset
        return "".join(
            "\n" + " " * inner + "-" + after_dash(item, inner, dash_offset) for item in value
        )
    return " " + scalar_text(value, column, style)


def after_dash(value: Any, column: int, dash_offset: int, style: str | None = None) -> str:
    """What stands behind `-` when the dash is at the column."""
    if isinstance(value, dict) and value:
        inner = column + STEP
        lines = [
            key_text(key) + ":" + after_key(item, inner, dash_offset) for key, item in value.items()
        ]
        return " " + ("\n" + " " * inner).join(lines)
    if isinstance(value, list) and value:
        inner = column + STEP
        return "".join(
            "\n" + " " * inner + "-" + after_dash(item, inner, dash_offset) for item in value
        )
    return " " + scalar_text(value, column, style)


def flow(values: list[Any], *, width: int = 80) -> str | None:
    """`[a, b]` for a short list of short things, else None."""
    if any(isinstance(value, dict | list) for value in values):
        return None
    parts = [
        _quoted(value)
        if isinstance(value, str) and not value.isidentifier()
        else scalar_text(value)
        for value in values
    ]
    text = f"[{', '.join(parts)}]"
    return text if len(text) <= width and "\n" not in text else None


def key_text(key: str) -> str:
    """A key of a mapping."""
    return key if key.isidentifier() and not _taken(key) else _quoted(key)


def scalar_text(value: Any, column: int = 0, style: str | None = None) -> str:
    """One value; a text keeps the quoting style it had where that can hold it."""
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    return _string(value, column, style)


def _string(value: str, column: int, style: str | None) -> str:
    if _UNPRINTABLE.search(value):
        return _quoted(value)
    several = "\n" in value
    if (several or style in ("|", ">")) and _LITERAL.fullmatch(value):
        inner = "\n" + " " * (column + STEP)
        lines = value.removesuffix("\n").split("\n")
        if not any(line and not line.strip() for line in lines):
            body = "".join(inner + line if line else "\n" for line in lines)
            return ("|" if value.endswith("\n") else "|-") + body
    if several or "\t" in value or style == '"':
        return _quoted(value)
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    if (_PLAIN.fullmatch(value) or _RELATIVE.fullmatch(value)) and not _taken(value):
        return value
    return _quoted(value)


def _taken(text: str) -> bool:
    """Whether YAML would read the bare text as something other than this text."""
    lowered = text.lower().lstrip(".")
    return lowered in _WORDS_OF_YAML or not any(c.isalpha() for c in text) or _number_like(text)


def _number_like(text: str) -> bool:
    # Anything that begins like a number or a date is not worth the risk.
    return text[0].isdigit() or (text[0] in ".-+" and len(text) > 1 and text[1].isdigit())


def _quoted(value: str) -> str:
    def escaped(match: re.Match[str]) -> str:
        code = ord(match.group())
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    marked = "".join(_MARKS.get(c, c) for c in value)
    return '"' + _UNPRINTABLE.sub(escaped, marked) + '"'


# -- Writes changed data back into the text it came from and touches nothing else.
#
# Only what differs is replaced, put in or taken out, so people's comments, order, quoting and
# blank lines stay byte for byte. The result is read again; if it does not say what it should
# (anchors can do that), the whole file is written anew from the data.


_GAP = r"(?:[ \t\r\n]+|\#[^\n]*)*"
_DASH = re.compile(_GAP + "-")
_ALIAS = re.compile(_GAP + r"\*[^\s,\[\]{}]+")
_IDENTITY_KEYS = ("name", "id", "path", "text", "words", "title")


def render(document: PlanFile, data: Data) -> str:
    """The document's text with the data in place of its own, changed as little as possible."""
    return with_data(document, data).text


def with_data(document: PlanFile, data: Data) -> PlanFile:
    """The document that says the data, in the words of the old one as far as they serve."""
    if identical(document.data, data):
        return document
    if (
        not isinstance(document.root, MappingNode)
        or not document.root.value
        or document.root.flow_style
    ):
        comments = document.text if document.root is None else ""
        gap = "\n" if comments and not comments.endswith("\n") else ""
        text = comments + gap + emit_document(data)
    else:
        text = _Splicer(document).run(data)
    if "\r\n" in document.text:
        text = re.sub(r"\r?\n", "\r\n", text)
    try:
        new = PlanFile(text, name=document.name)
        if new.data == data:
            return new
    except BadPlan:
        pass
    return PlanFile(emit_document(data), name=document.name)


def identical(one: Any, other: Any) -> bool:
    """Equal in value and in type; for Python, 1 and true are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(identical(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(identical, one, other))
    return bool(one == other)


def identity(item: Any) -> str:
    """What makes a list's item the same one when some of it has changed."""
    if isinstance(item, dict):
        for key in _IDENTITY_KEYS:
            if item.get(key) is not None:
                return str(item[key])
        return repr(item)
    return str(item)


class _Child(NamedTuple):
    """A pair or an item: its key, its value, where the value can begin, and where it ends."""

    key: Node | None
    value: Node
    begin: int
    end: int


class _Splicer:
    """Collects replacements while walking the nodes, what they say, and what they should say."""

    def __init__(self, document: PlanFile) -> None:
        self._document = document
        self._text = document.text
        self._edits: list[tuple[int, int, str]] = []
        self._dash_offset = _dash_offset(document.root)

    def run(self, data: Data) -> str:
        if self._document.root is not None:
            self._mapping(self._document.root, self._document.data, data)
        text = self._text
        for start, end, new in sorted(self._edits, key=lambda e: e[:2], reverse=True):
            text = text[:start] + new + text[end:]
        return text

    # -- where things begin and end

    def _end(self, node: Node, begin: int) -> int:
        """Where the node's own text ends; `begin` is where it can begin at all."""
        start: int = node.start_mark.index
        end: int = node.end_mark.index
        if start < begin:  # an alias: the node stands where its anchor is
            found = _ALIAS.match(self._text, begin)
            return found.end() if found else begin
        if isinstance(node, ScalarNode):
            if not node.value and node.style is None:
                return begin  # nothing stands here
            return start + len(self._text[start:end].rstrip()) if node.style else end
        if not node.value or (isinstance(node, CollectionNode) and node.flow_style):
            return end
        return self._children(node)[-1].end

    def _children(self, node: Node) -> list[_Child]:
        found: list[_Child] = []
        at: int = node.start_mark.index
        for child in node.value:
            key: Node | None = None
            value = child
            if isinstance(node, MappingNode):
                key, value = child
                begin = self._text.find(":", key.end_mark.index) + 1
            else:
                dash = _DASH.match(self._text, at)
                begin = dash.end() if dash else at
            at = self._end(value, begin)
            found.append(_Child(key, value, begin, at))
        return found

    def _line_end(self, at: int) -> int:
        """The end of the line, behind a comment that stands on it, before its line break."""
        end = self._text.find("\n", at)
        if end < 0:
            return len(self._text)
        return end - 1 if end > at and self._text[end - 1] == "\r" else end

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _next_line(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end + 1

    def _put(self, start: int, end: int, new: str) -> None:
        self._edits.append((start, end, new))

    # -- walking

    def _value(self, child: _Child, old: Any, wanted: Any, column: int) -> None:
        """Make a value say what is wanted; `column` is where its parent's entries begin."""
        if identical(old, wanted):
            return
        node = child.value
        alias = node.start_mark.index < child.begin
        open_block = not alias and isinstance(node, CollectionNode) and not node.flow_style
        if open_block and node.value and wanted and type(old) is type(wanted):
            if isinstance(node, MappingNode):
                self._mapping(node, old, wanted)
            else:
                self._sequence(node, old, wanted)
            return
        style = node.style if isinstance(node, ScalarNode) and not alias else None
        new: str | None = None
        if isinstance(node, SequenceNode) and node.flow_style and isinstance(wanted, list):
            short = flow(wanted)
            new = " " + short if short else None
        if new is None:
            after = after_dash if child.key is None else after_key
            new = after(wanted, column, self._dash_offset, style)
        self._put(child.begin, child.end, new)

    def _mapping(self, node: Node, old: Data, wanted: Data) -> None:
        column: int = node.start_mark.column
        children = self._children(node)
        named = {child.key.value: child for child in children if child.key is not None}
        stay = [child for name, child in named.items() if name in wanted or name == "<<"]
        # What a merge brought and what is still the same needs no line of its own.
        new = [
            k for k in wanted if k not in named and not (k in old and identical(old[k], wanted[k]))
        ]
        if not stay:
            first = children[0].key
            start = first.start_mark.index if first is not None else node.start_mark.index
            lines = [
                key_text(k) + ":" + after_key(wanted[k], column, self._dash_offset) for k in new
            ]
            self._put(start, children[-1].end, ("\n" + " " * column).join(lines))
            return
        for name, child in named.items():
            if name in wanted:
                self._value(child, old[name], wanted[name], column)
        self._drop_pairs(children, stay)
        text = "".join(
            "\n"
            + " " * column
            + key_text(k)
            + ":"
            + after_key(wanted[k], column, self._dash_offset)
            for k in new
        )
        if text:
            at = self._line_end(stay[-1].end)
            self._put(at, at, text)

    def _drop_pairs(self, children: list[_Child], stay: list[_Child]) -> None:
        for i, child in enumerate(children):
            if child in stay or child.key is None:
                continue
            start = child.key.start_mark.index
            if not self._text[self._line_start(start) : start].strip():
                self._put(self._line_start(start), self._next_line(child.end), "")
                continue
            # The first key behind a dash: the next one moves up to the dash.
            after = children[i + 1].key if i + 1 < len(children) else None
            if after is not None:
                self._put(start, after.start_mark.index, "")

    def _sequence(self, node: Node, old: list[Any], wanted: list[Any]) -> None:
        column: int = node.start_mark.column
        children = self._children(node)
        before, after = [identity(item) for item in old], [identity(item) for item in wanted]
        for what, i1, i2, j1, j2 in SequenceMatcher(None, before, after, False).get_opcodes():
            if what == "equal" or (what == "replace" and i2 - i1 == j2 - j1):
                for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                    self._value(children[i], old[i], wanted[j], column)
                continue
            for child in children[i1:i2]:
                self._put(self._line_start(child.begin), self._next_line(child.end), "")
            lines = [
                " " * column + "-" + after_dash(item, column, self._dash_offset)
                for item in wanted[j1:j2]
            ]
            if lines and i1 == 0:
                at = self._line_start(node.start_mark.index)
                self._put(at, at, "\n".join(lines) + "\n")
            elif lines:
                at = self._line_end(children[i1 - 1].end)
                self._put(at, at, "\n" + "\n".join(lines))


def _dash_offset(root: Node | None) -> int:
    """How far the document sets its dashes in from the key above them."""
    if isinstance(root, MappingNode):
        for _, value in root.value:
            if isinstance(value, SequenceNode) and not value.flow_style and value.value:
                offset: int = value.start_mark.column - root.start_mark.column
                return min(max(offset, 0), 2 * STEP)
    return STEP
