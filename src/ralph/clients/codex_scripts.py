"""Find the calls of tools in Codex's scripts: JavaScript, one `exec` call a script.

A script may call several tools: in a row, at the same time, or in a loop over a list. Arguments
are read if their values are written out in the script, as literals or as names of literals.
Codex itself reports the files that a script changed and, in newer versions, the commands it ran
(`codex_sessions.py`); the script says the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ralph.capture.lines import text_of

_READ = 64_000
_MOST_CALLS = 50
# How much may be read in all, in values and their characters, so that loops in loops end.
_BUDGET = 1_000_000
_STEP_COSTS = 100
_LONGEST_SEPARATOR = 10
_LONGEST_FILLED = 4000
_MOST_DEPTH = 12

# A value that depends on what happened while the script ran.
UNKNOWN = object()

# Every part that needs an end may also end with the script: nothing is searched twice.
_LITERAL = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z))
    |String\.raw(?P<raw>`(?:[^`\\]|\\[\s\S])*`?)
    |(?P<string>"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?)
    |(?P<template>`(?:[^`\\]|\\[\s\S])*`?)
    |(?<=[(,=:\[!&|?{};>])(?P<regex>/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.){0,100}\]){1,300}/\w*)""",
    re.X,
)
_NEEDLESS = re.compile(r" (?![\w$])|(?<![\w$]) ")
_NAMES = r"\(?(?P<%s>\[[\w$,]+\]|\{[\w$,]+\}|[\w$]+)"
_STEP = re.compile(
    r"\b(?:const|let|var) (?P<declared>[\w$]+)=(?![=>])"
    r"|\btools\.(?P<tool>[\w$]+)\("
    rf"|\bfor\((?:(?:const|let|var) ?)?{_NAMES % 'each'} ?of ?(?P<list>[\w$]+|\[)"
    rf"|(?P<mapped>(?<![\w$])[\w$]{{1,80}}|\])\.(?:map|forEach)\((?:async ?)?{_NAMES % 'item'}"
)
_VALUE = re.compile(r'"(?P<string>\d+)"|`(?P<template>\d+)`|(?P<number>\d+)\b|(?P<name>[\w$]+)')
_JOIN = re.compile(r'\.join\("(\d+)"\)')
_FILLED = re.compile(r"\$\{\s*([\w$]+)\s*\}")
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\s\S]))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_CONSTANTS = {"true": True, "false": False, "null": None, "undefined": None}
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_ENDS = frozenset(",;)]}")


class ScriptCall(msgspec.Struct, frozen=True):
    """A call of a tool in a script; values that the script works out itself are left out."""

    tool: str
    given: Mapping[str, Any] = {}
    text: str = ""


def calls_in(script: str) -> list[ScriptCall]:
    """Return the calls of tools in a script, in the order in which they are made."""
    reader = _ScriptReader(script[:_READ])
    reader.read(0, len(reader.code), {})
    return reader.calls


class _ScriptReader:
    """Follows a script from call to call.

    `code` is the script without comments and needless blanks. Strings are replaced by their number,
    in quotes, so that nothing inside them looks like code.
    """

    def __init__(self, script: str) -> None:
        self.calls: list[ScriptCall] = []
        self._strings: list[str] = []
        self._left = _BUDGET
        self.code = _NEEDLESS.sub("", _LITERAL.sub(self._numbered, script))
        self._pair = _pairs(self.code)

    def _numbered(self, found: re.Match[str]) -> str:
        if found.lastgroup == "space":
            return " "
        if found.lastgroup == "regex":
            return "/"
        quoted = found[found.lastgroup or 0]
        text = quoted[1:].removesuffix(quoted[0])
        self._strings.append(text.replace("\\", "\\\\") if found["raw"] else text)
        quote = "`" if found["template"] else '"'
        return f"{quote}{len(self._strings) - 1}{quote}"

    def read(self, at: int, end: int, names: dict[str, Any], depth: int = 0) -> None:
        """Follow the code from `at` to `end`; `names` are the values that have a name."""
        while step := _STEP.search(self.code, at, end):
            self._left -= _STEP_COSTS
            if self._left < 0 or len(self.calls) >= _MOST_CALLS:
                return
            at = step.end()
            if name := step["declared"]:
                names[name], _ = self._value(at, end, names)
            elif tool := step["tool"]:
                value, _ = self._value(at, end, names)
                given = value if isinstance(value, dict) else {}
                self.calls.append(ScriptCall(tool, given, text_of(value)))
            elif depth < _MOST_DEPTH:
                at = self._loop(step, end, names, depth)

    def _loop(self, step: re.Match[str], end: int, names: dict[str, Any], depth: int) -> int:
        """Follow a loop over a list, once for each value; return where the code goes on."""
        if step["each"]:
            values, _ = self._value(step.start("list"), end, names)
            close = self._pair.get(step.start() + len("for"), end)
            begin = close + 1
            is_block = self.code[begin : begin + 1] == "{"
            stop = self._pair.get(begin, end) if is_block else self.code.find(";", begin, end)
        else:
            last = step.start("mapped")
            values, _ = self._part(self._pair.get(last, last), end, names, 0)
            begin = step.end()
            stop = self._pair.get(self.code.index("(", step.end("mapped")), end)
        if not isinstance(values, list):
            return step.end()
        stop = min(stop, end) if stop >= 0 else end
        for value in values[:_MOST_CALLS]:
            self.read(begin, stop, names | _bound(step["each"] or step["item"], value), depth + 1)
        return max(stop, step.end()) if values else step.end()

    def _value(self, at: int, end: int, names: dict[str, Any], depth: int = 0) -> tuple[Any, int]:
        """Return the value that begins here, and where it ends."""
        value, at = self._part(at, end, names, depth)
        while self.code[at : at + 1] == "+":
            more, at = self._part(at + 1, end, names, depth)
            is_text = isinstance(value, str) and isinstance(more, str)
            value = self._paid(value + more) if is_text else UNKNOWN
        if at < end and self.code[at] not in _ENDS:
            value = UNKNOWN  # an operator, or a call on the value, makes another one of it
        return value, at

    def _next(self, at: int, end: int) -> int:
        """Return where the next item of a list or an object begins."""
        while at < end and self.code[at] != ",":
            at = max(at, self._pair.get(at, at)) + 1
        return at + 1

    def _part(self, at: int, end: int, names: dict[str, Any], depth: int) -> tuple[Any, int]:
        self._left -= 1
        if at >= end or depth > _MOST_DEPTH or self._left < 0:
            return UNKNOWN, end
        close = self._pair.get(at, end)
        if self.code[at] == "[" and close < end:
            return self._list(at, close, end, names, depth)
        if self.code[at] == "{" and close < end:
            return self._object(at, close, names, depth), close + 1
        found = _VALUE.match(self.code, at, end)
        if found is None:
            return UNKNOWN, at
        return self._paid(self._plain_value(found, names)), found.end()

    def _paid(self, value: Any) -> Any:
        """Take a value's length from the budget; return UNKNOWN if there is not enough left."""
        if isinstance(value, str):
            self._left -= len(value)
        return value if self._left >= 0 else UNKNOWN

    def _plain_value(self, found: re.Match[str], names: Mapping[str, Any]) -> Any:
        match found.lastgroup:
            case "string":
                return _plain(self._strings[int(found["string"])])
            case "template":
                return _filled(_plain(self._strings[int(found["template"])]), names)
            case "number":
                return int(found["number"][:20])
        return _CONSTANTS.get(found[0], names.get(found[0], UNKNOWN))

    def _list(
        self, at: int, close: int, end: int, names: dict[str, Any], depth: int
    ) -> tuple[Any, int]:
        values: list[Any] = []
        at += 1
        while at < close:
            value, at = self._value(at, close, names, depth + 1)
            values.append(value)
            at = self._next(at, close)
        join = _JOIN.match(self.code, close + 1, end)
        if join is None:
            return values, close + 1
        texts = [text_of(value) for value in values if value is not UNKNOWN]
        separator = _plain(self._strings[int(join[1])])[:_LONGEST_SEPARATOR]
        return self._paid(separator.join(texts)), join.end()

    def _object(self, at: int, close: int, names: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return the fields of an object whose values are known."""
        fields: dict[str, Any] = {}
        at += 1
        while at < close:
            key = _VALUE.match(self.code, at, close)
            if key is not None:
                name = text_of(self._plain_value(key, {})) if key["string"] else key[0]
                begin = key.end() + 1 if self.code[key.end()] == ":" else at
                value, at = self._value(begin, close, names, depth + 1)
                if value is not UNKNOWN:
                    fields[name] = value
            at = self._next(at, close)
        return fields


def _pairs(code: str) -> dict[int, int]:
    """Return where each bracket's partner is."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for match in re.finditer(r"[()\[\]{}]", code):
        if match[0] in _CLOSED_BY:
            opened.append(match.start())
        elif opened and _CLOSED_BY[code[opened[-1]]] == match[0]:
            begin = opened.pop()
            found[begin], found[match.start()] = match.start(), begin
    return found


def _bound(pattern: str, value: Any) -> dict[str, Any]:
    """Return the names in a loop's head (`n`, `[a,b]`, `{a,b}`) with their values."""
    names = pattern.strip("[]{}").split(",")
    if pattern[0] == "[":
        return dict(zip(names, value if isinstance(value, list) else [], strict=False))
    if pattern[0] == "{":
        fields = value if isinstance(value, dict) else {}
        return {name: fields[name] for name in names if name in fields}
    return {pattern: value}


def _plain(text: str) -> str:
    """Return the text of a string literal."""
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(found: re.Match[str]) -> str:
    number = found[1] or found[2] or found[3]
    if number is None:
        return _ESCAPED.get(found[4], found[4])
    code = int(number, 16)
    # Halves of an emoji cannot be saved alone.
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _filled(text: str, names: Mapping[str, Any]) -> str:
    """Return a template with the values that are known; the others stay as `${...}`."""

    def value_of(found: re.Match[str]) -> str:
        value = names.get(found[1])
        is_plain = isinstance(value, str | int) and not isinstance(value, bool)
        return str(value)[:_LONGEST_FILLED] if is_plain else found[0]

    return _FILLED.sub(value_of, text)
