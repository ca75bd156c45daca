"""Anchors: which lines an edit put into a file, as hashes.

Whether the code of a record still stands is checked later by counting how many of these lines the
file still has. White space is folded, so a reformatted line is the same line, and lines that say
little (a bracket, `else:`) are left out, because every file has them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator

import msgspec

from ralph.text.redact import redact
from ralph.text.tokens import shorten

# A file of 10,000 lines has a given hash by chance once in 400,000 times.
HASH_BYTES = 4
# A shorter line, or one without a word, says too little to tell one place from another.
_LEAST_CHARS = 12
_WORD = re.compile(r"\w{4}")
_MOST_LINE_CHARS = 2000
# Of a longer text, the lines with the smallest hashes are kept: a fair sample of all of them.
_MOST_LINES = 160
_MOST_FILES = 40
# How many lines are remembered while a run is read.
_MOST_LINES_READ = 20_000
_SCOPE_CHARS = 100
_SCOPE = re.compile(
    r"^[ \t]*(?:(?:export|default|public|private|protected|internal|static|abstract|final|async"
    r"|pub(?:\([a-z]{1,9}\))?|unsafe|const|override|inline)[ \t]+){0,5}"
    r"(?:def|class|func|function|fn|interface|struct|enum|trait|impl|module|type|record)\b[^\n]*",
    re.M,
)


class Anchor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines that an exchange or an iteration left in one file.

    `lines` are hashes in hexadecimal, one after another; `scope` is the line of the function or
    class around the first edit, if the edit shows it.
    """

    path: str
    lines: str
    scope: str = ""

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of the lines."""
        size = 2 * HASH_BYTES
        return frozenset(self.lines[at : at + size] for at in range(0, len(self.lines), size))


def line_hash(line: str) -> str:
    """Return the hash of a line, or "" if the line says too little."""
    folded = " ".join(line[:_MOST_LINE_CHARS].split())
    if len(folded) < _LEAST_CHARS or _WORD.search(folded) is None:
        return ""
    return f"{zlib.crc32(folded.encode('utf-8', 'surrogatepass')):08x}"


def line_hashes(text: str) -> Iterator[str]:
    """Yield the hash of each line that says something."""
    for line in text.splitlines():
        if found := line_hash(line):
            yield found


def may_have(hashes: Collection[str], wanted: str) -> bool:
    """Whether a text with these hashes may have a line; a sample of it lacks all higher hashes."""
    if wanted in hashes or len(hashes) < _MOST_LINES:
        return wanted in hashes
    return wanted > max(hashes)


class EditedLines:
    """The lines that the edits of a run have left in its files so far."""

    def __init__(self) -> None:
        # Hashes by file, in the order in which they were added.
        self._lines: dict[str, dict[str, None]] = {}
        self._scopes: dict[str, str] = {}
        self._read = 0

    def note(self, path: str, old: str, new: str) -> None:
        """Note an edit that replaced one text by another."""
        before = set(line_hashes(old)) if old else set()
        lines = self._lines.get(path)
        if lines is None:
            if not new or len(self._lines) >= 2 * _MOST_FILES:
                return
            lines = self._lines[path] = {}
        added: list[str] = []
        for found in line_hashes(new):
            if found in before:
                before.discard(found)
            elif self._read < _MOST_LINES_READ:
                added.append(found)
                self._read += 1
        # What an earlier edit of the run added and this one removed was never left in the file.
        for removed in before:
            lines.pop(removed, None)
        lines.update(dict.fromkeys(added))
        if path not in self._scopes and (scope := _SCOPE.search(new or old)):
            self._scopes[path] = redact(shorten(" ".join(scope[0].split()), _SCOPE_CHARS))

    def drop(self, path: str) -> None:
        """Note that a file is gone, or was written anew."""
        self._lines.pop(path, None)
        self._scopes.pop(path, None)

    def anchors(self) -> tuple[Anchor, ...]:
        """Return an anchor for each file that still has lines of these edits."""
        return tuple(self._anchors())

    def _anchors(self) -> Iterable[Anchor]:
        filled = [(path, lines) for path, lines in self._lines.items() if lines]
        for path, lines in filled[:_MOST_FILES]:
            sample = sorted(lines)[:_MOST_LINES]
            yield Anchor(redact(path), "".join(sample), self._scopes.get(path, ""))
