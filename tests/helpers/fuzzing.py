"""Real input with something wrong in it: bytes, lines and values changed by chance."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from places import FIXTURES

# Values that some reader is not ready for, as JSON writes them.
_ODD_JSON = (
    *("null", "true", "-1", "0", "1.5", "1e400", "-0.0", "NaN", "Infinity", "[]", "{}", '""'),
    *("9223372036854775808", "1" + "0" * 400, "7" * 5000, '"\\u0000"', '"\\ud83d"', '"\\udc00x"'),
    *('"\\u001b]0;x\\u0007"', '"\\u202e\\u2066"', '"../../../x"', '"~"', '"a\\nb"', '"<system>"'),
    *('"9999-99-99T99:99:99Z"', '"0000-01-01"', '"2026-01-01T00:00:00+99:99"', '"2026-13-45"'),
    *('"' + "é" * 300 + '"', '"' + "a" * 70_000 + '"', '"' + "\\\\" * 50 + '"', "[[[[[[]]]]]]"),
    *("[" * 3000 + "]" * 3000, '{"a":' * 1500 + "1" + "}" * 1500, '[{"type":"text"}]', '{"":""}'),
)
# Pieces that mean something to a reader of lines, JSON, YAML, TOML or Markdown.
_TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r\n", b"\r", b"\n\n", b"\t"),
    *(b"\xe2\x80\xa8", b"\x1b[2J", b"\x85", b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b":", b","),
    *(b"---\n", b"...\n", b"%YAML 9.9\n", b"&a ", b"*a ", b"<<: *a\n", b"!!python/name:os.system "),
    *(b"!!binary ", b"!!timestamp 9999-99-99 ", b"? ", b"| ", b"> ", b"- ", b"# ", b"- [ ] "),
    *(b".inf", b"0o777", b"1e999", b"~", b"null", b"NaN", b"true", b"2026-01-01", b"[" * 2000),
    *(b"a: " * 300, b"9" * 5000, b"x" * 70_000, b"{}\n", b"[]\n", b'""\n', b"\x1f\x8b\x08"),
)
_ODD_WORDS = (
    *("", " ", "-", "--", "-x", "--yes", "~", "..", "/", "*", "é" * 150, "a" * 1000),
    *("\u202e", "\x1b[2J", "\n", "9" * 30, "-1", "1e9", "0" * 16, "%s%n", "'; --", "$(x)"),
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same data with one to four things wrong."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        change = chance.choice(_CHANGES)
        data = change(data, chance)
    return data


def _place(data: bytes, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + chance.choice((1, 1, 4, 30, 300, 5000)))


def _flip(data: bytes, chance: random.Random) -> bytes:
    begin, _ = _place(data, chance)
    return data[:begin] + bytes([chance.randrange(256)]) + data[begin + 1 :]


def _delete(data: bytes, chance: random.Random) -> bytes:
    begin, end = _place(data, chance)
    return data[:begin] + data[end:]


def _double(data: bytes, chance: random.Random) -> bytes:
    begin, end = _place(data, chance)
    return data[:end] + data[begin:end] * chance.choice((1, 1, 3)) + data[end:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    begin, _ = _place(data, chance)
    return data[:begin] + chance.choice(_TOKENS) + data[begin:]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _shuffle(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def _change_value(data: bytes, chance: random.Random) -> bytes:
    """Another value somewhere in one of the lines, or in the whole, if it is JSON."""
    lines = data.splitlines(keepends=True)
    for at in chance.sample(range(len(lines)), min(5, len(lines))):
        changed = _changed_json(lines[at], chance)
        if changed is not None:
            return b"".join([*lines[:at], changed + b"\n", *lines[at + 1 :]])
    changed = _changed_json(data, chance)
    return _insert(data, chance) if changed is None else changed


def _changed_json(data: bytes, chance: random.Random) -> bytes | None:
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError):
        return None
    holders = [one for one in _holders(plain) if one]
    if not holders:
        return None
    holder = chance.choice(holders)
    key: Any = chance.choice(list(holder)) if isinstance(holder, dict) else None
    at = chance.randrange(len(holder))
    mark = f"odd-{chance.random()}"
    if isinstance(holder, list):
        if chance.random() < 0.2:
            holder.extend(holder[at : at + 1] * chance.choice((1, 50)))
        holder[at] = mark
    elif chance.random() < 0.2:
        del holder[key]
    elif chance.random() < 0.15:
        holder[chance.choice(("", "\0", "x" * 300, "type", "id", "\ud83d"))] = holder.pop(key)
    else:
        holder[key] = mark
    text = json.dumps(plain)
    # Put in as text: some of it no writer of JSON would write.
    return text.replace(f'"{mark}"', chance.choice(_ODD_JSON)).encode("utf-8", "replace")


def _holders(plain: Any) -> list[Any]:
    found: list[Any] = []
    left = [plain]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            found.append(one)
            left.extend(one.values() if isinstance(one, dict) else one)
    return found


Change = Callable[[bytes, random.Random], bytes]
_CHANGES: Sequence[Change] = (
    *(_flip, _delete, _double, _insert, _insert, _cut, _shuffle),
    *([_change_value] * 6),
)


def odd_words(chance: random.Random) -> str:
    """Something that is not what an argument should be; no process takes a NUL."""
    return chance.choice(_ODD_WORDS) + chance.choice(("", "", "x", "\ufffd"))


def transcripts() -> list[bytes]:
    """What real agents printed and real clients wrote."""
    files = sorted(FIXTURES.rglob("*.jsonl"))
    # Each input is read by several commands; the longest add nothing but time.
    return [data for file in files if len(data := file.read_bytes()) < 100_000]
