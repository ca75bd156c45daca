"""Plain data as YAML text, the way a person would write it.

A text is written plain where that is safe, as a `|` block when it has several lines, and
between double quotes otherwise, with everything unprintable escaped.
"""

from __future__ import annotations

import re
from typing import Any

from ralph.plan.document import Data

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
