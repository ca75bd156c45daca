"""Read the scripts in which Codex calls its tools: JavaScript, one `exec` call a script.

A script may call several tools, in a row, at the same time, or in a loop over a list. It prints
what it likes of their results. So the calls are read from the script as far as its values are
written out in it, and each result is matched with its call as far as the output allows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ralph.capture.lines import content_text, items, mapping, text_of
from ralph.capture.rules import pattern

_READ = 64_000
_MOST_CALLS = 50
# How many tokens may be looked at in all, so that loops in loops end.
_MOST_STEPS = 100_000
_MOST_DEPTH = 12

# A value that depends on what happened while the script ran.
UNKNOWN = object()

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<string>"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*')
    |(?P<sign>=>|\.\.\.|===?|[^\w\s"'`/])""",
    re.X,
)
# Long ones are cut off, so that no line is searched again and again.
_REGEX = re.compile(r"/(?![*/])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.){0,100}\]){1,300}/\w*")
_BEFORE_REGEX = frozenset("( , = : [ ! & | ? { } ; => return".split())
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\s\S]))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_CONSTANTS = {"true": True, "false": False, "null": None, "undefined": None}
_OPENS = frozenset("([{")
_CLOSES = frozenset(")]}")
_VALUE_ENDS = frozenset({",", ";", *_CLOSES})
_DECLARES = frozenset({"const", "let", "var"})


class ScriptCall(msgspec.Struct, frozen=True):
    """A call of a tool in a script; values that the script works out itself are left out."""

    tool: str
    given: Mapping[str, Any] = {}
    text: str = ""


class ScriptResult(msgspec.Struct, frozen=True):
    """What a command in a script gave; `code` is None where the script did not print it."""

    text: str
    code: int | None = None
    session: str = ""  # the name under which it still runs


class ScriptOutput(msgspec.Struct, frozen=True):
    """What a script printed, part by part; `cell` is the name under which it still runs."""

    texts: tuple[str, ...] = ()
    cell: str = ""
    failed: bool = False

    @property
    def text(self) -> str:
        """Everything that it printed."""
        return "\n".join(self.texts)


# -- The calls in a script.


class _ScriptToken(msgspec.Struct, frozen=True):
    kind: str  # "name", "sign" or "value"
    text: str = ""
    value: Any = None
    # The parts of a template: texts, and the tokens between them.
    parts: tuple[Any, ...] = ()


def calls_in(script: str) -> list[ScriptCall]:
    """Return the calls of tools in a script, in the order in which they stand."""
    tokens = _ScriptTokens(script[:_READ]).all()
    reading = _Script(tokens)
    reading.run(0, len(tokens), {})
    return reading.calls


class _ScriptTokens:
    """Cuts a script into tokens."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0

    def all(self, *, inside: bool = False, depth: int = 0) -> list[_ScriptToken]:
        """Return the tokens up to the end; `inside` a template, up to the brace that ends it."""
        script = self._script
        found: list[_ScriptToken] = []
        braces = 0
        while self._at < len(script):
            here = script[self._at]
            if here == "`":
                found.append(self._template(depth))
                continue
            if here == "/":
                self._slash(found)
                continue
            match = _TOKEN.match(script, self._at)
            if match is None:  # a quote that is never closed
                self._at = len(script)
                continue
            self._at = match.end()
            kind = match.lastgroup
            if kind == "string":
                found.append(_ScriptToken("value", value=_plain(match[0][1:-1])))
            elif kind == "number":
                found.append(_ScriptToken("value", value=_number(match[0])))
            elif kind == "name":
                found.append(_ScriptToken("name", match[0]))
            elif kind == "sign":
                braces += (match[0] == "{") - (match[0] == "}")
                if inside and braces < 0:
                    return found
                found.append(_ScriptToken("sign", match[0]))
        return found

    def _slash(self, found: list[_ScriptToken]) -> None:
        """Pass a comment, a regular expression, or a division."""
        script = self._script
        if script.startswith("//", self._at):
            end = script.find("\n", self._at)
            self._at = len(script) if end < 0 else end
        elif script.startswith("/*", self._at):
            end = script.find("*/", self._at + 2)
            self._at = len(script) if end < 0 else end + 2
        else:
            is_first = not found or found[-1].text in _BEFORE_REGEX
            regex = _REGEX.match(script, self._at) if is_first else None
            self._at = regex.end() if regex else self._at + 1
            found.append(
                _ScriptToken("value", value=UNKNOWN) if regex else _ScriptToken("sign", "/")
            )

    def _template(self, depth: int) -> _ScriptToken:
        script = self._script
        self._at += 1
        parts: list[Any] = []
        begin = self._at
        while self._at < len(script):
            here = script[self._at]
            if here == "\\":
                self._at += 2
            elif here == "`":
                break
            elif script.startswith("${", self._at) and depth < _MOST_DEPTH:
                parts.append(script[begin : self._at])
                self._at += 2
                parts.append(self.all(inside=True, depth=depth + 1))
                begin = self._at
            else:
                self._at += 1
        parts.append(script[begin : self._at])
        self._at += 1
        return _ScriptToken("value", "`", parts=tuple(parts))


class _Script:
    """Follows a script from call to call, as far as its values are written out in it."""

    def __init__(self, tokens: Sequence[_ScriptToken], steps: int = 0) -> None:
        self.calls: list[ScriptCall] = []
        self.steps = steps
        self._tokens = tokens
        self._closing = _closings(tokens)

    def run(self, at: int, end: int, known: dict[str, Any], depth: int = 0) -> None:
        """Follow the tokens from `at` to `end`."""
        while at < end and self.steps < _MOST_STEPS and len(self.calls) < _MOST_CALLS:
            self.steps += 1
            token = self._tokens[at]
            if token.kind == "name" and token.text in _DECLARES:
                at = self._declared(at + 1, end, known)
            elif token.kind == "name" and token.text == "tools":
                at = self._called(at, end, known)
            elif depth < _MOST_DEPTH and (loop := self._loop(at, end, known)):
                for value in loop.values:
                    self.run(loop.begin, loop.end, known | _bound(loop.names, value), depth + 1)
                at = max(loop.end, at + 1)
            else:
                at += 1

    def _texts(self, at: int, most: int, end: int) -> list[str]:
        return [token.text for token in self._tokens[at : min(at + most, end)]]

    def _declared(self, at: int, end: int, known: dict[str, Any]) -> int:
        """Note the value of a new name; return where to read on, for the value may hold calls."""
        if self._texts(at + 1, 1, end) != ["="]:
            return at
        value, _ = self._value(at + 2, end, known)
        if value is not UNKNOWN:
            known[self._tokens[at].text] = value
        return at + 2

    def _called(self, at: int, end: int, known: dict[str, Any]) -> int:
        """Note a call of a tool: `tools.NAME(...)`."""
        match self._texts(at, 4, end):
            case [_, ".", name, "("]:
                value, after = self._value(at + 4, end, known)
                given = value if isinstance(value, dict) else {}
                self.calls.append(ScriptCall(name, given, text_of(value)))
                return max(after, at + 4)
        return at + 1

    def _loop(self, at: int, end: int, known: dict[str, Any]) -> _ScriptLoop | None:
        """Return the loop that begins here, if its list is written out."""
        if self._texts(at, 2, end) == ["for", "("]:
            close = min(self._closing[at + 1], end)
            names, after = self._names(at + 2, close)
            if self._texts(after, 1, close) != ["of"]:
                return None
            values, _ = self._value(after + 1, close, known)
            begin = close + 1
            stop = self._statement_end(begin, end)
        else:
            values, dot = self._list_at(at, end, known)
            match self._texts(dot, 3, end):
                case [".", "map" | "forEach", "("]:
                    close = min(self._closing[dot + 2], end)
                case _:
                    return None
            begin = dot + 3 + (self._texts(dot + 3, 1, close) == ["async"])
            names, begin = self._names(begin, close)
            stop = close
        if not isinstance(values, list) or not values:
            return None
        return _ScriptLoop(names, values[:_MOST_CALLS], begin, stop)

    def _list_at(self, at: int, end: int, known: dict[str, Any]) -> tuple[Any, int]:
        token = self._tokens[at]
        if token.kind == "name" and isinstance(known.get(token.text), list):
            return known[token.text], at + 1
        if token.text == "[" and self._texts(self._closing[at] + 1, 1, end) == ["."]:
            return self._list(at, end, known, 0)
        return UNKNOWN, end

    def _names(self, at: int, end: int) -> tuple[list[str], int]:
        """Return the names of a loop's values: `n`, `[a, b]`, `{a}`, `(n, i)`; and what follows.

        If a value is taken apart, the bracket comes first.
        """
        while self._texts(at, 1, end) and self._tokens[at].text in _DECLARES:
            at += 1
        match self._texts(at, 2, end):
            case ["(", "[" | "{"]:
                names, _ = self._names(at + 1, end)
            case ["(", name]:
                names = [name]
            case [("[" | "{") as bracket, _]:
                inside = self._tokens[at : min(self._closing[at], at + _MOST_CALLS)]
                names = [bracket, *(one.text for one in inside if one.kind == "name")]
            case [name, *_]:
                return [name], at + 1
            case _:
                return [], end
        return names, min(self._closing[at] + 1, end)

    def _statement_end(self, at: int, end: int) -> int:
        if self._texts(at, 1, end) == ["{"]:
            return min(self._closing[at], end)
        return self._skip(at, end, {";"})

    def _skip(self, at: int, end: int, ends: Collection[str] = _VALUE_ENDS) -> int:
        """Return where the next of these signs is, outside of brackets."""
        while at < end and self.steps < _MOST_STEPS:
            self.steps += 1
            text = self._tokens[at].text
            if text in ends:
                return at
            at = self._closing[at] + 1 if text in _OPENS else at + 1
        return end

    # Values

    def _value(self, at: int, end: int, known: dict[str, Any], depth: int = 0) -> tuple[Any, int]:
        """Return the value that begins here, and where it ends."""
        value, at = self._part(at, end, known, depth)
        while self._texts(at, 1, end) == ["+"]:
            more, at = self._part(at + 1, end, known, depth)
            is_text = isinstance(value, str) and isinstance(more, str)
            value = value + more if is_text else UNKNOWN
        if at < end and self._tokens[at].kind == "sign":
            # After an operator, or a call on the value, it is another one.
            value = value if self._tokens[at].text in _VALUE_ENDS else UNKNOWN
            at = self._skip(at, end)
        return value, at

    def _part(self, at: int, end: int, known: dict[str, Any], depth: int) -> tuple[Any, int]:
        self.steps += 1
        if at >= end or depth > _MOST_DEPTH or self.steps > _MOST_STEPS:
            return UNKNOWN, min(at, end)
        token = self._tokens[at]
        if token.text == "{":
            return self._object(at, end, known, depth)
        if token.text == "[":
            return self._list(at, end, known, depth)
        if token.text == "`":
            return self._filled(token, known, depth), at + 1
        if token.kind == "value":
            return token.value, at + 1
        if self._texts(at, 4, end) == ["String", ".", "raw", "`"]:
            parts = self._tokens[at + 3].parts
            return "".join(part for part in parts if isinstance(part, str)), at + 4
        if token.kind == "name":
            return _CONSTANTS.get(token.text, known.get(token.text, UNKNOWN)), at + 1
        return UNKNOWN, at

    def _object(
        self, at: int, end: int, known: dict[str, Any], depth: int
    ) -> tuple[dict[str, Any], int]:
        close = min(self._closing[at], end)
        found: dict[str, Any] = {}
        at += 1
        while at < close and self.steps < _MOST_STEPS:
            token = self._tokens[at]
            key = token.text if token.kind == "name" else text_of(token.value)
            value: Any = UNKNOWN
            after = self._texts(at + 1, 1, close)
            if after == [":"]:
                value, at = self._value(at + 2, close, known, depth + 1)
            elif after in ([], [","]):
                value = known.get(key, UNKNOWN)
            if value is not UNKNOWN:
                found[key] = value
            at = self._skip(at, close) + 1
        return found, min(close + 1, end)

    def _list(self, at: int, end: int, known: dict[str, Any], depth: int) -> tuple[Any, int]:
        close = min(self._closing[at], end)
        found: list[Any] = []
        at += 1
        while at < close and self.steps < _MOST_STEPS:
            value, at = self._value(at, close, known, depth + 1)
            found.append(value)
            at = self._skip(at, close) + 1
        after = min(close + 1, end)
        if self._texts(after, 3, end) == [".", "join", "("] and after + 4 < end:
            texts = [text_of(one) for one in found if one is not UNKNOWN]
            return text_of(self._tokens[after + 3].value).join(texts), after + 5
        return found, after

    def _filled(self, token: _ScriptToken, known: dict[str, Any], depth: int) -> str:
        """Return a template with the values that are known; the others stay as `${...}`."""
        found: list[str] = []
        for part in token.parts:
            if isinstance(part, str):
                found.append(_plain(part))
                continue
            inner = _Script(part, self.steps + len(part))
            value, _ = inner._value(0, len(part), known, depth + 1)
            self.steps = inner.steps
            is_plain = isinstance(value, str | int) and not isinstance(value, bool)
            names = "".join(one.text for one in part)
            found.append(str(value) if is_plain else f"${{{names}}}")
        return "".join(found)


class _ScriptLoop(msgspec.Struct, frozen=True):
    names: list[str]
    values: list[Any]
    begin: int
    end: int


def _closings(tokens: Sequence[_ScriptToken]) -> list[int]:
    """Return for each token where the bracket that it opens is closed, or the end."""
    found = [len(tokens)] * len(tokens)
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in _OPENS:
            opened.append(at)
        elif token.text in _CLOSES and opened:
            found[opened.pop()] = at
    return found


def _bound(names: Sequence[str], value: Any) -> dict[str, Any]:
    """Return the names with their values in one round of a loop."""
    found: dict[str, Any] = {}
    match names, value:
        case ["[", *rest], list():
            found = dict(zip(rest, value, strict=False))
        case ["{", *rest], dict():
            found = {name: value[name] for name in rest if name in value}
        case [name, *_], _ if name not in _OPENS:
            found = {name: value}
    return {name: one for name, one in found.items() if one is not UNKNOWN}


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


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return UNKNOWN


# -- The results in a script's output.


def script_output(output: Any) -> ScriptOutput:
    """Return what a script printed, and whether it still runs."""
    parts = [text_of(part.get("text")) for part in items(output)] or [content_text(output)]
    head = parts[0]
    running = pattern("running script").match(head)
    rest = "" if running else without_head(head)
    # An empty part is the output of a command that printed nothing.
    texts = [without_head(text) for text in ([rest] if rest else []) + parts[1:]]
    return ScriptOutput(
        tuple(texts), running[1] if running else "", head.startswith("Script failed")
    )


def without_head(text: str) -> str:
    """Return an output without what the client writes above it."""
    head = pattern("codex output head").match(text)
    return text[head.end() :] if head else text


def results_in(script: str, printed: Sequence[str], wanted: int) -> list[ScriptResult] | None:
    """Return one result for each of the wanted commands; None if the output leaves that open."""
    plain = [one for text in printed for one in _results(text)]
    if len(plain) == wanted:
        return plain
    if not wanted or not printed:
        return None
    if wanted == 1:
        return [_joined(script, printed)]
    if len(printed) % wanted == 0:
        size = len(printed) // wanted
        groups = [printed[at : at + size] for at in range(0, len(printed), size)]
        return [_joined(script, group) for group in groups]
    return None


def _results(text: str) -> Iterator[ScriptResult]:
    """Yield the results of commands that a script printed as JSON."""
    if text[:1] not in ("{", "["):
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    for one in items(value) or [mapping(value)]:
        if isinstance(one.get("output"), str):
            yield _result(one)


def _result(data: Mapping[str, Any]) -> ScriptResult:
    code = data.get("exit_code")
    is_code = isinstance(code, int) and not isinstance(code, bool)
    session = data.get("session_id")
    return ScriptResult(
        without_head(text_of(data.get("output"))),
        code if is_code else None,
        str(session)[:20] if isinstance(session, int | str) and not is_code else "",
    )


def _joined(script: str, printed: Sequence[str]) -> ScriptResult:
    plain = [one for text in printed for one in _results(text)]
    if len(plain) == 1:
        return plain[0]
    text = "\n".join(printed)
    code = pattern("printed code").search(text) if "exit_code" in script else None
    session = pattern("printed session").search(text) if "session_id" in script else None
    return ScriptResult(
        text,
        int(code[1]) if code else None,
        session[1] if session and code is None else "",
    )
