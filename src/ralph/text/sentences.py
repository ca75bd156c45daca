"""Where sentences end, and which parts of a Markdown text are sentences at all."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ralph.text.patterns import compiled

Kind = Literal["prose", "item", "heading"]


class Piece(NamedTuple):
    """A paragraph, a list item or a heading, on one line and without its marks."""

    kind: Kind
    text: str


# An end is a mark, perhaps closed by a quote or a bracket, with a beginning after it.
_END = (
    r"(?<![.!?\u2026])[.!?\u2026]+[\"'\u201d\u2019)\]*_]*\s+"
    r"(?=[\"'\u201c\u2018(\[*_`]*(?:[A-Z0-9]|[^\x00-\x7f]))"
    r"|[\u3002\uff01\uff1f]+"
)
# What a dot follows without ending anything; so do single letters.
_SHORT = frozenset(
    "e.g i.e etc vs cf mr mrs ms dr prof sgt lt col gen capt rev st mt no nr fig vol approx resp"
    " inc ltd z.b d.h bzw ca usw".split()
)
_FENCED = r"(?ms)^[ \t]*(`{3,}+|~{3,}+)[^\n]*+\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)"
_INJECTED = (
    r"(?s)<(system-reminder|command-[a-z]+|local-command-[a-z]+|analysis|ide_[a-z_]+|function_calls)"
    r">.*?(?:</\1>|\Z)"
)
_LINK = r"!?\[([^\[\]\n]*)\]\((?:[^()\s]|\([^()]*\))*\)"
# Traces, logs, prompts, diffs, tags, tables, rules, code: what begins with a letter, and the rest.
_NOISE_LETTERS = (
    r"Traceback \(most recent|File \"|at [\w.$<>]+\s?\(|Caused by:|diff --git"
    r"|(?:import|from) [\w.]+(?: import .*)?\Z|[\w.]+(?:Error|Exception): "
)
_NOISE_SIGNS = (
    r"\||[-=_*#~]{3,}\s*\Z|\.\.\. \d+ more|\[?\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d[ .,]|\$ |>>> "
    r"|@@ |\+\+\+ |--- \S|</?[a-zA-Z!][^>]*>\s*\Z|!\[|[{}\[\]();,]+\s*\Z"
)
_ITEM = r"(?:[-*+\u2022]|\(?\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?"
_HEADING = r"#{1,6}\s+(.*?)\s*#*\s*\Z|(?:\*\*|__)([^*_]{1,100}?):?(?:\*\*|__):?\s*\Z"
_EMPHASIS = r"\*\*|__(?=\w)|(?<=\w)__|(?<!\w)\*(?=\w)|(?<=[\w.,!?)])\*(?!\w)|`|\\(?=[_*])"


def pieces(text: str) -> list[Piece]:
    """What a Markdown text says in words: no code, tables, traces or tags."""
    if "```" in text or "~~~" in text:
        text = compiled(_FENCED).sub("\n", text)
    if "<" in text:
        text = compiled(_INJECTED).sub("\n", text)
    if "](" in text:
        text = compiled(_LINK).sub(r"\1", text)
    found = list[Piece]()
    kind: Kind = "prose"
    gathered = list[str]()
    for raw in [*text.splitlines(), ""]:
        line = raw.strip().lstrip("> ")
        heading = item = None
        noise = not line
        if line and line[0].isalpha():
            noise = compiled(_NOISE_LETTERS).match(line) is not None
        elif line:
            noise = compiled(_NOISE_SIGNS).match(line) is not None
            heading = compiled(_HEADING).match(line)
            item = compiled(_ITEM).match(line)
        if gathered and (noise or heading or item):
            if words := _plain(" ".join(gathered)):
                found.append(Piece(kind, words))
            gathered, kind = [], "prose"
        if noise:
            continue
        if heading:
            found.append(Piece("heading", _plain(heading[1] or heading[2] or "")))
        elif item:
            kind = "item"
            gathered.append(line[item.end() :])
        elif gathered or not raw.startswith(("    ", "\t")):
            gathered.append(line)
    return found


def _plain(words: str) -> str:
    """Without emphasis, and with single spaces."""
    if "*" in words or "_" in words or "`" in words:
        words = compiled(_EMPHASIS).sub("", words)
    return " ".join(words.split())


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, in order and without the space between them."""
    ends = sentence_ends(paragraph)
    starts = [0, *ends]
    cut = (paragraph[a:b].strip() for a, b in zip(starts, [*ends, len(paragraph)], strict=True))
    return [sentence for sentence in cut if sentence]


def sentence_ends(paragraph: str) -> list[int]:
    """Where one sentence has ended and the next begins."""
    return [
        end.end()
        for end in compiled(_END).finditer(paragraph)
        if end[0][0] != "." or not _is_short(paragraph[max(0, end.start() - 8) : end.start()])
    ]


def _is_short(before: str) -> bool:
    """Whether the dot after this belongs to an abbreviation, an initial or a list's number."""
    word = before.rpartition(" ")[2].lstrip("(\"'").lower()
    return (
        word in _SHORT
        or (len(word) == 1 and word.isalpha())
        or (before.isdigit() and len(before) < 4)
    )
