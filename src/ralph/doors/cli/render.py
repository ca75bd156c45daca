"""Print a command's result: JSON for programs, plain text for pipes, rich text on a terminal.

Everything goes through a `CleanStream`, so that no text from memory can control the terminal.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, cast

from ralph.errors import BadInput
from ralph.text.sanitize import CLOSE, CONTROL, HIDDEN, OPEN, break_channels, sanitize
from ralph.text.tokens import plural, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from ralph.memory.feature import SavedIteration
    from ralph.memory.knowledge import SavedEntry

# A piece of a line: text, or text and its style.
Span = str | tuple[str, str]

# Characters that control a terminal, or make it show something else than the text.
_CONTROLS = re.compile(f"[{CONTROL}{HIDDEN}]")
# In a table that is too wide: the width that a text column needs, and a time.
_TEXT_WIDTH = 12
_TIME_WIDTH = 16
# How a text ends that was cut when it was saved.
_CUT = " [truncated]"
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")


# -- results of commands


class Table(NamedTuple):
    """Rows with their heads; `empty` is the line to print if there are none."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Span]]
    empty: str = ""


class Cards(NamedTuple):
    """A few lines for each item, with a blank line between them."""

    rows: Sequence[Any]
    show: Callable[[Page, Any], None]
    empty: str = ""


# The answer for people: a line, some lines, a table, cards, or a function that writes a page.
TextView = str | list[str] | Table | Cards | Callable[["Page"], None]


class Result(NamedTuple):
    """The answer of a command: a value for programs, a view for people, and an exit code.

    `notes` are lines for stderr in both cases.
    """

    value: Any
    view: TextView
    code: int = 0
    notes: Sequence[str] = ()


def render(result: Any, *, as_json: bool, paged: bool = False) -> Any:
    """Print a command's result and return its exit code; other values are returned unchanged.

    `paged`: on a terminal, show output that is longer than the screen in a pager.
    """
    if not isinstance(result, Result):
        return result
    if as_json:
        sys.stdout.write(to_json(plain(result.value), indent=2) + "\n")
    elif paged and (pager := _pager()):
        _show_paged(result.view, pager)
    else:
        Page().show(result.view)
    for text in result.notes:
        note(text)
    return result.code


def page_text(view: TextView, *, styled: bool = False) -> str:
    """Return the view as text; `styled` adds the styles of a terminal."""
    text = io.StringIO()
    text.isatty = lambda: styled  # type: ignore[method-assign]
    with contextlib.redirect_stdout(cast("TextIO", CleanStream(text))):
        Page().show(view)
    return text.getvalue()


def _pager() -> str:
    """Return the pager command; "" if this is not a terminal or the user wants no pager."""
    seen = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    if not seen or isinstance(sys.stdout, FencedStream) or os.environ.get("TERM") in (None, "dumb"):
        return ""
    import shlex

    from ralph.programs import find_program

    name, *arguments = os.environ.get("PAGER", "less").split() or [""]
    program = find_program(name) if name not in ("", "cat") else None
    return shlex.join([program, *arguments]) if program else ""


def _show_paged(view: TextView, pager: str) -> None:
    """Show the view, in the pager if it is longer than the screen."""
    import shutil

    import click

    text = page_text(view, styled=True)
    if text.count("\n") < shutil.get_terminal_size().lines:
        raw(sys.stdout).write(text)
        return
    sys.stdout.flush()
    os.environ["PAGER"] = pager
    if not os.environ.get("LESS"):
        os.environ["LESS"] = "-FRX"  # like git: keep colors, and leave the text on the screen
    click.echo_via_pager(text.removesuffix("\n"))


def picked(value: Any, *names: str) -> dict[str, Any]:
    """Return these attributes of a value."""
    return {name: getattr(value, name) for name in names}


def plain(value: Any) -> Any:
    """Convert a value to plain JSON types."""
    from ralph.records import plain as plain_value  # not needed for help and errors

    return plain_value(value)


# -- streams


class CleanStream:
    """A stream that removes terminal control characters: the last check of all output.

    Code that moves the cursor or sets colors on purpose writes to `raw`.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write the text with a substitute for each control character."""
        self.raw.write(_CONTROLS.sub(lambda found: _substitute(found[0]), text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class HarmlessStream(CleanStream):
    """A clean stream for a model, with anything that tries to instruct it made harmless."""

    def write(self, text: str) -> int:
        """Write the text with its tags and commands to the model broken."""
        super().write(break_channels(sanitize(text)))
        return len(text)


class FencedStream(HarmlessStream):
    """A harmless stream whose text is all between marks, as data."""

    _is_open = False

    def write(self, text: str) -> int:
        """Write the text, after the first mark."""
        if not self._is_open:
            self._is_open = True
            self.raw.write(f"{OPEN}\n")
        return super().write(text)

    def end(self) -> None:
        """Close the fence, if anything was written."""
        if self._is_open:
            self.raw.write(f"{CLOSE}\n")


@contextlib.contextmanager
def clean_streams(*, fenced: bool = False) -> Iterator[None]:
    """Replace stdout and stderr with clean streams; if `fenced`, with those for a model."""
    before = sys.stdout, sys.stderr
    out = before[0] and (FencedStream if fenced else CleanStream)(raw(before[0]))
    err = before[1] and (HarmlessStream if fenced else CleanStream)(raw(before[1]))
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        if isinstance(out, FencedStream):
            out.end()


def raw(stream: TextIO) -> TextIO:
    """Return the underlying stream, for styles and moving lines; write only clean text to it."""
    return stream.raw if isinstance(stream, CleanStream) else stream


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal."""
    return stream.isatty()


# -- JSON


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that fits stdout's encoding, without raw control characters."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    return escaped(json.dumps(value, indent=indent, ensure_ascii=ascii_only))


def escaped(text: str) -> str:
    """Escape every unprintable character in JSON."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def print_json_line(value: Any) -> None:
    """Print one line of JSON right away, for one event of many."""
    sys.stdout.write(to_json(plain(value)) + "\n")
    sys.stdout.flush()


def write_out(lines: Iterable[bytes]) -> None:
    """Write JSON byte for byte; on a terminal, escape control characters."""
    if is_terminal(sys.stdout):
        sys.stdout.writelines(escaped(line.decode("utf-8", "replace")) for line in lines)
        return
    sys.stdout.flush()
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()


# -- text


def note(text: str) -> None:
    """Print one line on stderr, for information that is not part of the answer."""
    sys.stdout.flush()
    sys.stderr.write(f"ralph: {one_line(text)}\n")


def one_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    return " ".join(one_span(text).split())


def excerpt(text: str, max_chars: int) -> str:
    """Return the start of the text on one line, cut between words."""
    line = one_line(text)
    if line.endswith(_CUT):
        line = f"{line.removesuffix(_CUT)}\u2026"
    return shorten(line, max_chars)


def first_of(items: Sequence[Any]) -> str:
    """Return the first of several problems, and how many more there are."""
    return f"{items[0]}" + (f" and {len(items) - 1} more" if len(items) > 1 else "")


def fresh_and_known(saved: Sequence[SavedIteration | SavedEntry]) -> tuple[int, str]:
    """Return how many records are new, and a text on how many were already known."""
    fresh = sum(each.fresh for each in saved)
    old = len(saved) - fresh
    return fresh, f" ({old} {'was' if old == 1 else 'were'} already known)" if old else ""


def typed_answer(question: str) -> str:
    """Ask on stderr and read a line; return "" at the end of the input."""
    sys.stdout.flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    typed = sys.stdin.readline()
    if not typed.endswith("\n") or not sys.stdin.isatty():  # the terminal shows no line end
        sys.stderr.write("\n")
    return typed


def confirm(action: str, *, problem: str, todo: str, refusal: str) -> None:
    """Ask the user to type yes; raise BadInput if they don't, or if this is not a terminal."""

    if not sys.stdin.isatty():
        raise BadInput(problem, todo=f"{todo} {refusal}")
    if typed_answer(f"Type yes to {action}: ").strip().lower() != "yes":
        raise BadInput("not confirmed", todo=refusal)


class Page:
    """Prints the text form of an answer: lines and tables on stdout."""

    def __init__(self) -> None:
        self._rich = console(sys.stdout) if is_terminal(sys.stdout) else None

    def show(self, view: TextView) -> None:
        """Print lines, a table, cards or a page; an empty text prints nothing."""
        if isinstance(view, Table | Cards) and not view.rows:
            view = view.empty
        if isinstance(view, Table):
            self.table(view.heads, view.rows)
        elif isinstance(view, Cards):
            for place, item in enumerate(view.rows):
                if place:
                    self.line()
                view.show(self, item)
        elif isinstance(view, str | list):
            for line in [view] if isinstance(view, str) and view else view:
                self.line(line.strip(), indent=len(line) - len(line.lstrip()))
        else:
            view(self)

    def more(self, number: int, what: str = "") -> None:
        """Print a dim line that says how many more there are, if any."""
        if number > 0:
            words = plural(number, f"more {what}") if what else f"{number} more"
            self.line((f"and {words}", "dim"), indent=2)

    def line(self, *spans: Span, indent: int = 0) -> None:
        """Print one line of styled pieces; on a terminal, wrap it within its indent."""
        if self._rich is None:
            sys.stdout.write(" " * indent + "".join(map(_plain, spans)).rstrip() + "\n")
            return
        from rich.text import Text

        text = Text.assemble(*map(_styled, spans))
        width = max(self._rich.width - indent, 1)
        for part in text.wrap(self._rich, width, overflow="fold") or [Text()]:
            part.rstrip()
            self._rich.print(Text(" " * indent) + part, soft_wrap=True)

    def text(self, text: str) -> None:
        """Print a text for programs, unchanged."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def lines(self, text: str, *, indent: int = 2) -> None:
        """Print every line of a text, indented."""
        for line in text.splitlines():
            self.line(line, indent=indent if line.strip() else 0)

    def fields(self, fields: Mapping[str, Any]) -> None:
        """Print all fields of an entry; leave out those without a value."""
        for name, value in fields.items():
            if value in (None, "", [], {}):
                continue
            if isinstance(value, list):
                self.line((f"{name}:", "bold"))
                for item in value:
                    self.line(f"- {item}", indent=2)
            elif isinstance(value, dict):
                self.line((f"{name}: ", "bold"), json.dumps(value, ensure_ascii=False))
            elif "\n" in (text := str(value).strip()):
                self.line((f"{name}:", "bold"))
                self.lines(text)
            else:
                self.line((f"{name}: ", "bold"), text)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Span]]) -> None:
        """Print rows in aligned columns, with numbers to the right."""
        columns = [[_plain(cell) for cell in column] for column in zip(heads, *rows, strict=True)]
        numeric = [all(map(str.isdecimal, column[1:])) for column in columns]
        if self._rich is None:
            widths = [max(map(len, column)) for column in columns]
            for line in zip(*columns, strict=True):
                cells = [
                    cell.rjust(width) if right else cell.ljust(width)
                    for cell, width, right in zip(line, widths, numeric, strict=True)
                ]
                sys.stdout.write("  ".join(cells).rstrip() + "\n")
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        whole = _unbroken(columns, self._rich.width)
        for place, (head, right) in enumerate(zip(heads, numeric, strict=True)):
            justify: Literal["left", "right"] = "right" if right else "left"
            table.add_column(head, justify=justify, overflow="fold", no_wrap=place in whole)
        for row in rows:
            table.add_row(*(Text.assemble(_styled(cell)) for cell in row))
        self._rich.print(table)


def _unbroken(columns: Sequence[Sequence[str]], width: int) -> set[int]:
    """Return the columns not to wrap: ids, words and times, shortest first, as long as they fit."""
    left = width - _TEXT_WIDTH
    whole = set()
    widths = [max(map(len, column)) for column in columns]
    for place in sorted(range(len(columns)), key=widths.__getitem__):
        words = widths[place] <= _TIME_WIDTH or not any(" " in cell for cell in columns[place])
        left -= widths[place] + 2 if words else 0
        if words and left >= 0:
            whole.add(place)
    return whole


def console(stream: TextIO) -> Console:
    """Return a console for styled text. Markup is off, because text from memory may contain it."""
    from rich.console import Console

    return Console(file=raw(stream), markup=False, highlight=False, emoji=False)


def _styled(span: Span) -> tuple[str, str]:
    text, style = (span, "") if isinstance(span, str) else span
    return one_span(text), style


def _plain(span: Span) -> str:
    return _styled(span)[0]


def one_span(text: str) -> str:
    """Return a piece without control characters; unlike a line, it keeps its outer blanks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _substitute(c) for c in text)


def _substitute(char: str) -> str:
    """Return a blank for white space, "" for an invisible character, a mark for any other."""
    if char.isspace():
        return " "
    return "" if char in _INVISIBLE else "\ufffd"
