"""What a command writes: JSON for programs, plain text for pipes, rich text on a terminal.

Everything passes a `CleanStream`: nothing that was remembered or given can steer a terminal.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from ralph.text.marks import CLOSE, OPEN
from ralph.text.sanitize import CONTROL, HIDDEN, sanitize

if TYPE_CHECKING:
    from rich.console import Console


# A piece of a line: text, or text and its style.
Span = str | tuple[str, str]

# What a terminal obeys, or what makes it show something else than is there.
_STEERING = re.compile(f"[{CONTROL}{HIDDEN}]")
_GAP = "  "


class CleanStream:
    """A stream that passes on nothing a terminal would obey: the last look at whatever is written.

    What styles and moves on purpose writes to `raw`.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write the text with a stand-in for each character that steers."""
        self.raw.write(_STEERING.sub(lambda found: _stand_in(found[0]), text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write them one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class FencedStream(CleanStream):
    """The same for a model that reads along: everything stands between marks, as data."""

    _is_open = False

    def write(self, text: str) -> int:
        """Write the text with every attempt to instruct broken."""
        if not self._is_open:
            self._is_open = True
            self.raw.write(f"{OPEN}\n")
        super().write(sanitize(text))
        return len(text)

    def end(self) -> None:
        """Close the fence, if anything was written."""
        if self._is_open:
            self.raw.write(f"{CLOSE}\n")


@contextlib.contextmanager
def clean_streams(*, fenced: bool = False) -> Iterator[None]:
    """Let whatever is written meanwhile pass a CleanStream, and stdout a FencedStream if asked."""
    before = sys.stdout, sys.stderr
    out = before[0] and (FencedStream if fenced else CleanStream)(raw(before[0]))
    err = before[1] and CleanStream(raw(before[1]))
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        if isinstance(out, FencedStream):
            out.end()


def raw(stream: TextIO) -> TextIO:
    """The stream itself, for styles and moving lines; what is shown there must be clean."""
    return stream.raw if isinstance(stream, CleanStream) else stream


def to_json(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON, readable in whatever encoding stdout has, and nothing in it steers."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    return escaped(json.dumps(value, indent=indent, ensure_ascii=ascii_only))


def escaped(text: str) -> str:
    """JSON that says the same with everything escaped that cannot be seen."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(to_json(value, indent=2) + "\n")


def write_out(lines: Iterable[bytes]) -> None:
    """JSON for a program, byte for byte; on a terminal with everything escaped that steers."""
    if is_terminal(sys.stdout):
        sys.stdout.writelines(escaped(line.decode("utf-8", "replace")) for line in lines)
        return
    sys.stdout.flush()
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """Something the reader should know that is not the answer: one line on stderr."""
    sys.stdout.flush()
    sys.stderr.write(f"ralph: {one_line(text)}\n")


def one_line(text: str) -> str:
    """The text on one line, without anything that a terminal would obey."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _stand_in(c) for c in text)
    return " ".join(text.split())


def excerpt(text: str, max_chars: int) -> str:
    """The beginning of the text on one line, cut between words."""
    line = one_line(text)
    if len(line) <= max_chars:
        return line
    head = line[: max_chars - 3]
    return (head.rsplit(" ", 1)[0] if " " in head[max_chars // 2 :] else head) + "..."


def is_terminal(stream: TextIO) -> bool:
    """Whether a person sees what is written there."""
    return stream.isatty()


def count(number: int, word: str, words: str | None = None) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {word if number == 1 else words or word + 's'}"


class Page:
    """The human side of an answer: lines and tables on stdout."""

    def __init__(self) -> None:
        self._rich = _console(raw(sys.stdout)) if is_terminal(sys.stdout) else None

    def line(self, *spans: Span, indent: int = 0) -> None:
        """One line of styled pieces; a terminal wraps it within its indent."""
        if self._rich is None:
            sys.stdout.write(" " * indent + "".join(map(_plain, spans)).rstrip() + "\n")
            return
        from rich.text import Text

        text = Text.assemble(*(_styled(span) for span in spans))
        width = max(self._rich.width - indent, 1)
        for part in text.wrap(self._rich, width, overflow="fold") or [Text()]:
            part.rstrip()
            self._rich.print(Text(" " * indent) + part, soft_wrap=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Span]]) -> None:
        """Rows in aligned columns; numbers to the right."""
        if self._rich is None:
            self._plain_table(heads, [[_plain(cell) for cell in row] for row in rows])
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for place, head in enumerate(heads):
            numeric = all(_plain(row[place]).isdecimal() for row in rows)
            table.add_column(head, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text.assemble(_styled(cell)) for cell in row))
        self._rich.print(table)

    def _plain_table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        columns = list(zip(heads, *rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        numeric = [all(map(str.isdecimal, column[1:])) for column in columns]
        for row in (heads, *rows):
            cells = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ]
            sys.stdout.write(_GAP.join(cells).rstrip() + "\n")


def _console(file: TextIO) -> Console:
    from rich.console import Console

    # Marks and highlights would be read out of what was remembered.
    return Console(file=file, markup=False, highlight=False, emoji=False)


def _plain(span: Span) -> str:
    return one_span(span if isinstance(span, str) else span[0])


def _styled(span: Span) -> Span:
    return one_span(span) if isinstance(span, str) else (one_span(span[0]), span[1])


def one_span(text: str) -> str:
    """The piece as it may be shown; unlike a whole line it keeps its outer blanks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _stand_in(c) for c in text)


def _stand_in(char: str) -> str:
    """Blanks for what separates, nothing for what only steers, a mark for what is left."""
    if char.isspace():
        return " "
    return "" if char in _UNSEEN else "\ufffd"


_UNSEEN = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")
