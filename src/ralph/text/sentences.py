"""Split a Markdown text into paragraphs, list items and sentences, and cut it where one ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from ralph.text.tokens import STOP_WORDS, compiled, rule, shorten, word_set

# -- The parts of a Markdown text that are words.


Kind = Literal["prose", "item", "heading", "code"]

# Stands for a space inside code until the text is split: code is never split.
_CODE_SPACE = "\ue000"
# Stands for a block of code until the text is split into lines.
_CODE_BLOCK = "\ue001"
_TABLE_RULE = r"\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\Z"
_MOST_CODE_CHARS = 200
_NESTED_INDENT = 2


class Piece(NamedTuple):
    """A paragraph, a list item or a heading: its sentences without marks, each on one line.

    A row of a table is an item. A `nested` item belongs to the item before it. A block of code has
    no sentences.
    """

    kind: Kind
    sentences: tuple[str, ...]
    nested: bool = False

    @property
    def text(self) -> str:
        """The whole text on one line."""
        return " ".join(self.sentences)


def pieces(text: str, *, typed: bool = False) -> list[Piece]:
    """Return the parts of a Markdown text that are words: no code, traces or tags."""
    marks = (("fenced", f"\n{_CODE_BLOCK}\n"), ("injected", "\n"), ("link", r"\1"))
    for section, new in marks:
        text = rule(section).sub(new, text)
    found = list[Piece]()
    kind: Kind = "prose"
    gathered = list[str]()
    nested = False
    columns: list[str] | None = None
    before = ""
    for raw in [*text.splitlines(), ""]:
        line = raw.strip().lstrip("> ")
        row = ""
        if not line.startswith("|"):
            columns = None
        elif _is_table_rule(line):
            columns = _cells(before)
        elif columns is not None:
            row = _row(_cells(line), columns)
        before = line
        code = line == _CODE_BLOCK
        noise = not line or code or rule("noise").match(line) is not None
        heading = rule("heading").match(line)
        item = rule("item").match(line)
        if gathered and (noise or heading or item):
            if words := _plain(" ".join(gathered), typed=typed):
                found.append(Piece(kind, words, nested))
            gathered = []
            kind = "prose"
            nested = False
        if code:
            found.append(Piece("code", ()))
        if row:
            found.append(Piece("item", _plain(row)))
        if noise:
            continue
        if heading:
            found.append(Piece("heading", _plain(heading[1] or heading[2] or "")))
        elif item:
            kind = "item"
            nested = len(raw) - len(raw.lstrip()) >= _NESTED_INDENT
            gathered.append(line[item.end() :])
        elif gathered or not raw.startswith(("    ", "\t")):
            if typed and gathered and kind == "prose" and _begins_anew(line, gathered[-1]):
                found.append(Piece(kind, _plain(" ".join(gathered), typed=typed)))
                gathered = []
            gathered.append(line)
    return found


def _begins_anew(line: str, before: str) -> bool:
    """Return whether a typed line is a request of its own, and not the rest of the one before."""
    if not line[0].isupper() or before[-1] in ",;:-":
        return False
    return before.split()[-1].lower() not in STOP_WORDS and rule("request").match(line) is not None


def _is_table_rule(line: str) -> bool:
    return "|" in line and compiled(_TABLE_RULE).match(line) is not None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _row(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Return a row of a table as an item: the first cell, then what the others say of it.

    In a wide table, the names of the columns say what the cells mean.
    """
    first, *others = cells
    if len(cells) > 2 and len(columns) == len(cells):
        others = [f"{name} {cell}" for name, cell in zip(columns[1:], others, strict=True) if cell]
    return ": ".join(filter(None, (first, ", ".join(filter(None, others)))))


def _plain(words: str, *, typed: bool = False) -> tuple[str, ...]:
    """Return the sentences without emphasis and with single spaces; code is not split."""
    words = " ".join(words.split())
    code = compiled(rf"`[^`]{{1,{_MOST_CODE_CHARS}}}`")
    words = code.sub(lambda span: span[0].replace(" ", _CODE_SPACE), words)
    words = rule("emphasis").sub("", words).strip()
    return tuple(sentence.replace(_CODE_SPACE, " ") for sentence in sentences(words, typed=typed))


# -- Where sentences end.


_LINE_START = r"[ \t>]*(?:[-*+\u2022|#]|\d{1,3}[.)]\s)"


def sentences(paragraph: str, *, typed: bool = False) -> list[str]:
    """Return the sentences of a paragraph, in order, without the space between them."""
    ends = sentence_ends(paragraph, typed=typed)
    cut = (paragraph[a:b].strip() for a, b in pairwise([0, *ends, len(paragraph)]))
    return [sentence for sentence in cut if sentence]


def sentence_ends(paragraph: str, *, typed: bool = False) -> list[int]:
    """Return the positions where one sentence has ended and the next begins.

    Nothing ends inside a word, an address, a file name, a version or code. In a `typed` text, one
    that a person wrote in a hurry, a sentence may begin with a small letter.
    """
    section = "typed sentence end" if typed else "sentence end"
    ends = [
        end
        for end in rule(section).finditer(paragraph)
        if end[0][0] != "." or not _is_short(paragraph[max(0, end.start() - 8) : end.start()])
    ]
    if not ends or "`" not in paragraph:
        return [end.end() for end in ends]
    code = compiled(rf"`[^`\n]{{1,{_MOST_CODE_CHARS}}}`")
    spans = [span.span() for span in code.finditer(paragraph)]
    found = list[int]()
    at = 0
    for end in ends:
        while at < len(spans) and spans[at][1] <= end.start():
            at += 1
        if at == len(spans) or spans[at][0] > end.start():
            found.append(end.end())
    return found


def lines_joined(text: str) -> list[str]:
    """Return the paragraphs and the list items of a text that was broken into lines of a width."""
    found = list[str]()
    is_new = True
    for line in text.splitlines():
        plain = line.strip()
        if plain and (is_new or compiled(_LINE_START).match(line)):
            found.append(plain)
        elif plain:
            found[-1] += f" {plain}"
        is_new = not plain
    return found


def _is_short(before: str) -> bool:
    """Whether the dot after this text belongs to an abbreviation, an initial or a list number."""
    word = before.rpartition(" ")[2].lstrip("(\"'").lower()
    initial = len(word) == 1 and word.isalpha()
    return word in word_set("abbreviations") or initial or (before.isdigit() and len(before) < 4)


# -- Cut a text where a sentence or a clause ends.


# A cut that keeps less than this share of the room says too little.
_LEAST_SHARE = 0.4
_WORD_CHARS = 100


def cut_at_end(text: str, max_chars: int) -> str:
    """Return the text, or its beginning up to the end of a sentence, a clause or a word.

    A cut inside a sentence ends in an ellipsis. It is never made before a word like "but" or
    "except": what follows takes back what was said before it.
    """
    if len(text) <= max_chars:
        return text
    # The rest of a long text does not matter, but the word after the limit does.
    text = text[: max_chars + _WORD_CHARS]
    least = int(max_chars * _LEAST_SHARE)
    ends = [end for end in sentence_ends(text) if least <= len(text[:end].rstrip()) <= max_chars]
    if ends:
        return text[: ends[-1]].rstrip()
    for clause in reversed(list(rule("clause end").finditer(text, least))):
        at = clause.start()
        if at < max_chars and not _is_inside(text, at) and not _takes_back(text[clause.end() :]):
            return f"{text[:at].rstrip()}\u2026"
    words = shorten(text, max_chars).rstrip("\u2026").split(" ")
    while len(words) > 1 and words[-1].lower() in STOP_WORDS and not _takes_back(words[-1]):
        words.pop()
    return " ".join(words).rstrip(" ,;:-(") + "\u2026"


def _takes_back(following: str) -> bool:
    return following.partition(" ")[0].lower() in word_set("takes back")


def _is_inside(text: str, at: int) -> bool:
    """Whether this position is inside code or brackets."""
    before = text[:at]
    return before.count("`") % 2 == 1 or before.count("(") > before.count(")")
