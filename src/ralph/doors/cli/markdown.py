"""Prints Markdown on a terminal as it arrives, and never reprints anything.

Words appear as soon as they are complete. Only a mark that may still be closed (`**bold`) holds
back the text after it. Marks without a meaning are printed as they are. The only characters left
out are the marks of styled text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

BOLD = "1"
ITALIC = "3"
DIM = "2"
CODE = "36"
HEADING = "1;36"
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_BLOCK = re.compile(
    r"(?P<indent> {0,12})"
    r"(?:(?P<heading>#{1,6}) +|(?P<bullet>[-*+]) +|(?P<number>\d{1,9}[.)]) +|(?P<quote>>) ?)"
)
# The start of a line that may still become a block, and lines that are printed unchanged.
_UNDECIDED = re.compile(r" {0,12}(?:#{0,6}|[-*+>]|\d{0,9}[.)]?|`{0,3}|~{0,3}) *")
_AS_IT_IS = re.compile(r" *(?:\||([-*_=])\1{2,} *$)")
# Marks in a line. The text between marks is short, so a mark that is never closed costs little.
_LONGEST = 200
_LONGEST_HELD = 600
_INLINE = re.compile(
    rf"(?<!`)(?P<tick>`{{1,3}})(?!`)(?P<code>[^`]{{1,{_LONGEST}}})(?P=tick)(?!`)"
    rf"|\*\*(?P<bold>(?=\S)[^\n]{{1,{_LONGEST}}}?(?<=\S))\*\*"
    rf"|(?<![\w*])\*(?P<italic>(?=[^\s*])[^*]{{1,{_LONGEST}}}(?<=\S))\*(?![\w*])"
)
_MARK = re.compile(r"[*`]")
_STYLES = {"code": CODE, "bold": BOLD, "italic": ITALIC, "heading": HEADING, "quote": DIM}
_MARKS = {"heading": "", "bullet": "\u2022 ", "quote": "\u2502 "}


class MarkdownStream:
    """Prints Markdown as it arrives, wrapped between words; `write` gets styled text."""

    def __init__(self, write: Callable[[str], object], width: Callable[[], int]) -> None:
        self._write = write
        self._width = width
        self._held = ""  # the part of this line that is not printed yet
        self._fence = ""  # the mark that ends the current code block
        self._in_line = False
        self._column = 0
        self._indent = 0
        self._style = ""

    def feed(self, text: str) -> None:
        """Print the part of the text that is complete."""
        self._held += text
        while "\n" in self._held:
            line, _, self._held = self._held.partition("\n")
            self._print(line)
            self._end_line()
        if len(self._held) > _LONGEST_HELD:
            ready = self._held
        elif self._fence or not (self._in_line or _is_decided(self._held)):
            return
        else:
            block = None if self._in_line else _BLOCK.match(self._held)
            start = block.end() if block else 0
            ready = self._held[: start + _safe(self._held[start:])]
        if not (self._in_line or ready.strip()):
            return
        self._print(ready)
        self._held = self._held[len(ready) :]

    def end(self) -> None:
        """Print the rest, and end the line."""
        if self._held:
            self._print(self._held)
            self._held = ""
        if self._in_line:
            self._end_line()
        self._fence = ""

    def _end_line(self) -> None:
        self._write("\n")
        self._in_line = False
        self._column = 0
        self._indent = 0
        self._style = ""

    def _print(self, text: str) -> None:
        """Print a part of a line, or all of it."""
        if not text:
            return
        fence = None if self._in_line else _FENCE.match(text)
        if self._fence or fence:
            self._print_code(text, fence)
        elif not self._in_line and _AS_IT_IS.match(text):
            self._write(text)
        else:
            self._print_words(text if self._in_line else self._begin(text))
        self._in_line = True

    def _print_code(self, text: str, fence: re.Match[str] | None) -> None:
        edge = fence is not None and fence[1].startswith(self._fence)
        if fence is not None and edge:
            self._fence = "" if self._fence else fence[1]
        self._write(_styled(text, DIM if edge else CODE))

    def _begin(self, line: str) -> str:
        """Print the mark of a block, and return the rest of the line."""
        found = _BLOCK.match(line)
        if found is None:
            return line
        indent = found["indent"]
        kind = found.lastgroup or ""
        mark = _MARKS.get(kind, f"{found[kind]} ")
        self._style = _STYLES.get(kind, "")
        self._write(indent + mark)
        self._indent = self._column = len(indent) + len(mark)
        return line[found.end() :]

    def _print_words(self, text: str) -> None:
        from rich.cells import cell_len

        width = max(self._width(), 20)
        for style, piece in _spans(text):
            for word in re.findall(r" +|[^ ]+", piece):
                size = cell_len(word)
                if self._column + size > width and self._column > self._indent:
                    self._write("\n" + " " * self._indent)
                    self._column = self._indent
                    if word.isspace():
                        continue
                self._write(_styled(word, ";".join(filter(None, (self._style, style)))))
                self._column += size


def _is_decided(line: str) -> bool:
    """Whether the kind of line is clear yet."""
    return _UNDECIDED.fullmatch(line) is None and _AS_IT_IS.match(line) is None


def _safe(text: str) -> int:
    """Return up to where the text can be printed now: complete words before an open mark."""
    spans = [found.span() for found in _INLINE.finditer(text)]
    unmarked = _INLINE.sub(lambda found: "x" * len(found[0]), text)
    mark = _MARK.search(unmarked, max(0, len(text) - _LONGEST))
    cut = text.rfind(" ", 0, mark.start() if mark else len(text)) + 1
    return next((start for start, stop in spans if start < cut < stop), cut)


def _spans(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of the text with their styles, without the marks."""
    start = 0
    for found in _INLINE.finditer(text):
        name = found.lastgroup or ""
        yield "", text[start : found.start()]
        yield _STYLES[name], found[name]
        start = found.end()
    yield "", text[start:]


def _styled(text: str, style: str) -> str:
    return f"\033[{style}m{text}\033[0m" if style and text.strip() else text
