"""What secrets look like: known shapes, random strings, private keys. Also what is public."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from ralph.text.tokens import table

# -- What secrets look like: the shapes of known credentials, and what is random but public.


@cache
def compiled(source: str) -> re.Pattern[str]:
    """Compile a pattern when it is first needed; importing this module compiles nothing."""
    return re.compile(source, re.ASCII)


def lower(text: str) -> str:
    """Return the text in lower case, with every character at its old position."""
    lowered = text.lower()
    # Exactly one letter gets longer in lower case.
    return lowered if len(lowered) == len(text) else text.replace("\u0130", "i").lower()


@cache
def rows(section: str) -> list[list[str]]:
    """Return the rows of a section of `secrets.txt`, each split into three parts."""
    return [row.split(" | ", 2) for row in table(__file__, "secrets.txt")[section]]


@cache
def pattern(section: str) -> re.Pattern[str]:
    """Return one pattern for all rows of a section of `secrets.txt`."""
    return compiled("|".join(table(__file__, "secrets.txt")[section]))


@cache
def word_set(section: str) -> frozenset[str]:
    """Return the words of a section of `secrets.txt`."""
    return frozenset(" ".join(table(__file__, "secrets.txt")[section]).split())


# The characters that ids, digests and tokens are made of.
RUN: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/.~-"


# -- Strings that look random, without a name that announces them: which are tokens, and which are
# only ids or hashes.
#
# Letter pairs tell words from random letters: `th` is common in words, `qx` is not.


# Nothing below this likeness is a word. Of random strings, nine in ten with 8 characters and 98 in
# 100 with 16 are below it.
_RANDOM: Final = -0.5
_LONGEST: Final = 512
_LOOKED_AT: Final = 256
_BASE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def likeness(text: str) -> float:
    """Return how much text resembles words, not random characters, in bits per character."""
    some = text[:_LOOKED_AT]
    return sum(map(_pair, some, some[1:])) / max(len(some), 1)


@cache
def _pair(one: str, two: str) -> int:
    if one.isalpha() and two.isalpha() and one.isascii() and two.isascii():
        if one.islower() and two.isupper():
            return -1
        return (
            int(
                table(__file__, "secrets.txt")["letter pairs"][(ord(one) & 31) - 1][
                    (ord(two) & 31) - 1
                ]
            )
            - 6
        )
    return -2 if one.isalnum() and two.isalnum() and one.isalpha() != two.isalpha() else 0


def random_looking(value: str, least: int) -> bool:
    """Whether a value, without its prefix, has at least this length and can only be random."""
    prefix = compiled(r"(?:[a-z]{2,12}[-_]){0,3}").match(value)
    body = value[prefix.end() if prefix else 0 :].rstrip("=")
    return least <= len(body) <= _LONGEST and not pattern("hex").match(body) and _restless(body)


def is_doubtful(word: str) -> bool:
    """Whether anything in this word could be random at all."""
    return bool(pattern("doubtful").search(word))


def tokens(word: str) -> Iterator[tuple[int, int, str]]:
    """Yield the spans in a word that are too random and too long for an id."""
    plain = pattern("escape").sub(lambda match: " " * len(match[0]), word)
    for part in compiled("[^ ]+").finditer(plain):
        for run in pattern("run").finditer(part[0]) if is_doubtful(part[0]) else ():
            at = part.start() + run.start()
            yield from ((at + a, at + b, "high-entropy") for a, b in _stretches(run[0]))


def _restless(body: str) -> bool:
    """Whether characters follow each other at random; those of an alphabet or a word do not."""
    kinds = {"a" if c.islower() else "A" if c.isupper() else "0" for c in body if c.isalnum()}
    steps = sum(abs(ord(a) - ord(b)) == 1 for a, b in pairwise(body))
    return (
        len(kinds) > 1
        and body.isascii()
        and len(set(body)) >= min(10, len(body) * 2 // 3)
        and steps * 4 < len(body)
        and likeness(body) < _RANDOM
    )


@lru_cache(1024)
def _stretches(run: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of tokens in a run of characters: random parts between its words."""
    parts = list(compiled(r"[A-Za-z0-9]+").finditer(run))
    if all(_is_word(part[0]) for part in parts if len(part[0]) >= 8):
        return ()
    words = [n for n, part in enumerate(parts) if _is_word(part[0])]
    found = []
    for first, last in zip([-1, *words], [*words, len(parts)], strict=True):
        some = parts[first + 1 : last]
        # Paths, hosts and versions have numbers and short words at their ends that are not part of
        # the token.
        while len(some) > 1 and _is_edge(some[0][0], run[some[0].end()], words):
            del some[0]
        while len(some) > 1 and _is_edge(some[-1][0], run[some[-1].start() - 1], words):
            del some[-1]
        if any(len(part[0]) >= 8 for part in some) and (start := _token(run, some)) is not None:
            rest = compiled(r"[A-Za-z0-9_-]{0,256}={0,2}").match(run, some[-1].end())
            found.append((start, rest.end() if rest else some[-1].end()))
    return tuple(found)


def _is_edge(part: str, joint: str, words: list[int]) -> bool:
    return len(part) < 8 and ((joint in "/." and bool(words)) or (joint in "._" and part.isdigit()))


def _is_word(part: str) -> bool:
    if len(part) < 4 or part.isdigit() or (len(part) < 8 and not part.isalpha()):
        return False
    if len(part) >= 16 and pattern("hex").match(part):
        return part.isalpha()
    return likeness(part) > (0 if len(part) < 8 else -0.25 if len(part) < 16 else _RANDOM)


def _token(run: str, parts: list[re.Match[str]]) -> int | None:
    """Return where the token begins; None if these parts are an id, a hash or an address."""
    long = [part for part in parts if len(part[0]) >= 8]
    hashes = all(pattern("hex").match(part[0]) for part in long)
    ends = long if hashes else parts
    start = ends[0].start()
    end = ends[-1].end()
    edge = run.rfind("/", max(0, start - _LOOKED_AT), start) + 1 or max(0, start - _LOOKED_AT)
    if prefix := pattern("prefix").match(run, edge, start if hashes else end):
        start = max(start, prefix.end())
    before = run[edge:start]
    body = run[start:end]
    lettered = any(map(str.isalpha, before))
    words = set(compiled(r"[_.-]").split(before.lower())) if lettered else set[str]()
    opens = words & word_set("opens") or any(
        word.endswith(("key", "token", "secret")) for word in words
    )
    names = words & word_set("names")
    if pattern("uuid").search(run, edge, end):
        return start if opens else None
    if hashes:
        if pattern("mailgun").match(body):
            return start
        short = before.islower() and len(before) <= (12 if before.endswith("_") else 6)
        hidden = len(body) >= 16 if opens else len(body) >= 30 and short and not names
        return start if hidden else None
    least = 14 if opens else 40 if names else 32 if not words else 16 if before[-1] == "_" else 20
    most = _LONGEST if words or body.isalnum() else 128  # longer ones are data
    if not least <= len(body) <= most or pattern("pod").match(body) or not _restless(body):
        return None
    return start


def decoded(value: str) -> str | None:
    """Return the text that a base64 string encodes, or None if it encodes no text."""
    plain = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        a2b_base64(plain[:24]).decode("ascii")  # most encode no text, and this finds out fast
        text = a2b_base64(plain + "=" * (-len(plain) % 4)).decode()
    except ValueError:
        return None
    return text if " ".join(text.split()).isprintable() else None


def wrapped(text: str, start: int, end: int) -> bool:
    """Whether this is one line of longer base64 data, such as a certificate."""
    left = text[max(0, start - 120) : start]
    right = text[end : end + 120]
    start -= len(left) - len(left.rstrip(_BASE64))
    end += len(right) - len(right.lstrip(_BASE64))
    gap = r"={0,2}(?:\\[nr]|[^A-Za-z0-9+/]){1,60}(?:\bb[\"'])?"
    after = end - start >= 60 and compiled(gap + "[A-Za-z0-9+/]{16}").match(text, end)
    before = compiled("[A-Za-z0-9+/]{60}" + gap + r"\Z").search(text[max(0, start - 125) : start])
    return bool(after or before)


# -- Private keys: blocks of lines between frames, whole or cut off, with any prefix on each line.
#
# A log, `grep -n` or a diff puts something before each line; JSON escapes the newlines; some tools
# print a key without its frame, or encode the block once more.


_TYPE: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?: ?-{1,5})?"
_BEGIN: Final = rf"-{{4,5}} ?BEGIN {_TYPE}|Private-Lines: ?\d+"
_END: Final = rf"-{{4,5}} ?END {_TYPE}"
_LONGEST_LINE: Final = 1000
# How many lines in a row may hold no part of the key: header fields at first, then a log's lines.
_FIELDS = 8
_ADDED = 2


def key_blocks(text: str, *, encoded: bool) -> Iterator[tuple[int, int]]:
    """Yield the spans of private keys; with `encoded`, also of keys without a frame."""
    if "PRIVATE KEY" in text or "Private-Lines" in text:
        closed = 0
        for begin in compiled(_BEGIN).finditer(text):
            if begin.start() >= closed and (end := _end(text, begin.end(), _FIELDS)):
                closed = end
                yield begin.start(), end
        closed = 0
        for final in compiled(_END).finditer(text):
            start = _start(text, final.start(), closed)
            closed = final.end()
            if start is not None:
                yield start, closed
    for head in pattern("key heads").finditer(text) if encoded else ():
        frame = decoded(text[head.start() : head.start() + 64]) if head[0][0] == "L" else "PRIVATE"
        if "PRIVATE" in (frame or ""):
            yield head.start(), _end(text, head.start(), 0) or head.end()


def _end(text: str, at: int, most: int) -> int | None:
    """Return where a key that begins here ends: after its last line or its closing frame."""
    runs = pattern("runs").match(text, at)
    end = runs.end() if runs else at
    size = end - at
    others = 0
    for start, stop in _lines_after(text, end):
        if text.find("BEGIN", start, stop) >= 0:
            break
        final = compiled(_END).search(text, start, stop)
        part = _part(text, start, final.start() if final else stop)
        if part:
            size = size + part[1] - part[0]
            end = part[1]
            others = 0
            most = _ADDED
        if final:
            return final.end() if size >= 20 else None
        if not part and compiled(r"[A-Za-z0-9]").search(text, start, stop):
            others += 1
            if others > most:
                break
    return end if size >= 20 else None


def _start(text: str, at: int, closed: int) -> int | None:
    """Return where a key that ends here begins, if its opening frame is missing."""
    start, size, others = at, 0, -1  # the frame's own line may have something before it
    for first, stop in _lines_before(text, at):
        if first < closed or compiled(_BEGIN).search(text, first, stop):
            break
        if part := _part(text, first, stop):
            start = part[0]
            size = size + part[1] - part[0]
            others = 0
        elif compiled(r"[A-Za-z0-9]").search(text, first, stop):
            others += 1
            if others > _ADDED:
                break
    return start if size >= 40 else None


def _part(text: str, start: int, stop: int) -> tuple[int, int] | None:
    """Return the part of a key in a line: one of the usual width, or a shorter one by itself."""
    line = text[start:stop]
    hashes = r"[0-9a-f]+\Z|[A-Z]+\Z"
    full = [one for one in pattern("full").finditer(line) if not compiled(hashes).match(one[0])]
    if full:
        return start + full[0].start(), start + full[-1].end()
    alone = pattern("alone").match(line)
    if alone and (likeness(alone[1]) < -0.25 or alone[1].endswith("=")):
        return start + alone.start(1), start + alone.end(1)
    return None


def _lines_after(text: str, at: int) -> Iterator[tuple[int, int]]:
    while at < len(text):
        line = pattern("break").search(text, at, at + _LONGEST_LINE)
        end = line.start() if line else min(len(text), at + _LONGEST_LINE)
        yield at, end
        at = line.end() if line else end


def _lines_before(text: str, at: int) -> Iterator[tuple[int, int]]:
    while at:
        first = max(0, at - _LONGEST_LINE)
        lines = list(pattern("break").finditer(text, first, at))
        yield lines[-1].end() if lines else first, at
        at = lines[-1].start() if lines else first
