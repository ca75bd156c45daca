"""Writes changed data back into the text it came from and touches nothing else.

Only what differs is replaced, put in or taken out, so people's comments, order, quoting and
blank lines stay byte for byte. The result is read again; if it does not say what it should
(anchors can do that), the whole file is written anew from the data.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from ralph.errors import BadPlan
from ralph.plan.document import Data, Document
from ralph.plan.emit import STEP, after_dash, after_key, emit_document, flow, key_text

_GAP = r"(?:[ \t\r\n]+|\#[^\n]*)*"
_DASH = re.compile(_GAP + "-")
_ALIAS = re.compile(_GAP + r"\*[^\s,\[\]{}]+")
_IDENTITY_KEYS = ("name", "id", "path", "text", "words", "title")


def render(document: Document, data: Data) -> str:
    """The document's text with the data in place of its own, changed as little as possible."""
    return rendered(document, data).text


def rendered(document: Document, data: Data) -> Document:
    """The document that says the data, in the words of the old one as far as they serve."""
    if same(document.data, data):
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
        new = Document(text, name=document.name)
        if new.data == data:
            return new
    except BadPlan:
        pass
    return Document(emit_document(data), name=document.name)


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type; for Python, 1 and true are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
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

    def __init__(self, document: Document) -> None:
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
        if same(old, wanted):
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
        new = [k for k in wanted if k not in named and not (k in old and same(old[k], wanted[k]))]
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
