"""Make text that others wrote safe to read: remove hidden characters, break instructions (F20).

`visible` removes what a person cannot see: control characters, ANSI escapes, zero-width, bidi and
tag characters. `sanitize` also breaks text that poses as somebody else (tags, chat templates, role
markers, tool calls, Ralph's own marks), and marks sentences that give orders to a model: their
words stay, joined by underscores, in `[not an instruction: ...]`. Look-alike letters count as the
letters they look like. Honest technical text passes unchanged. Cleaning twice changes nothing
more, so text is cleaned when it is written and again wherever it is shown.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime

from ralph.text.tokens import compiled, rule, table

# -- Letters and signs that look like ASCII, read as the ASCII they look like.
#
# Marks and removed lessons are found however they are spelled: fullwidth, mathematical, circled,
# small capitals, with accents or strokes, or with letters of another alphabet.


# Characters that no Unicode normal form maps to ASCII: Cyrillic, Greek, Armenian, Cherokee, signs.
_ALIKE = str.maketrans(
    "аеорсухіјѕԁһӏԛԝѵкмтпгАВЕКМНОРСТУХІЈЅԌԚԜѴ"
    "αβγεηικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ"
    "ɑɩօսհցոԱՍՏᎪᏴᏟᎠᎬᏀᎻᎫᏦᏞᎷᏢᏒᏚᎢᏙᎳᏃ"
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2018\u2019\u02bc\u201c\u201d"
    "\ua789\u02d0\u02f8\u2236\u205a\u0589\u2044\u2215\u29f8\u2223\u01c0\u2502"
    "\u3010\u3011\u3014\u3015\u27e6\u27e7",
    "aeopcyxijsdhlqwvkmtnrABEKMHOPCTYXIJSGQWV"
    "abyenikvoptuxwABEZHIKMNOPTYXcj"
    "aiouhgnUUSABCDEGHJKLMPRSTVWZ"
    "-------'''\"\"::::::///|||[][][]",
)


def folded(text: str) -> str:
    """Return the text with every character that looks like ASCII replaced by that ASCII."""
    return text if text.isascii() else text.translate(_table(text))


class Shadow:
    """A text and its folded forms: `plain`, and `lower` in lower case. A match in a folded form is
    replaced in the text itself."""

    def __init__(self, text: str) -> None:
        self.text = text
        table = {} if text.isascii() else _table(text)
        self.plain = text.translate(table) if table else text
        self._from: list[int] | None = None
        if any(len(new) != 1 for new in table.values()):
            self._from = [i for i, char in enumerate(text) for _ in table.get(ord(char), char)]
            self._from.append(len(text))
        self.lower = self.plain.lower()  # same length: the one letter that grows is folded

    def piece(self, start: int, end: int) -> str:
        """Return the part of the text at this stretch of its plain form."""
        return self.text[slice(*self._original(start, end))]

    def edited(self, edits: Sequence[tuple[int, int, str]]) -> Shadow:
        """Return the text with these stretches of its plain form (in order) replaced."""
        if not edits:
            return self
        kept = list[str]()
        at = 0
        for start, end, new in edits:
            start, end = self._original(start, end)
            kept += [self.text[at:start], new]
            at = end
        return Shadow("".join([*kept, self.text[at:]]))

    def _original(self, start: int, end: int) -> tuple[int, int]:
        if self._from is None:
            return start, end
        return self._from[start], self._from[end - 1] + 1 if end > start else self._from[start]


def _table(text: str) -> dict[int, str]:
    return {ord(char): _plain(char) for char in set(text) if not char.isascii()}


@functools.cache
def _plain(char: str) -> str:
    """Return the ASCII that a character looks like, "" for a combining accent, else itself."""
    if alike := _ALIKE.get(ord(char)):
        return chr(alike)
    if unicodedata.category(char) in ("Mn", "Me"):
        return ""
    apart = unicodedata.normalize("NFKD", char)
    plain = "".join(c for c in apart if unicodedata.category(c) not in ("Mn", "Me"))
    plain = plain.translate(_ALIKE)
    if plain.isascii():
        return plain
    latin = rule("latin letter").search(unicodedata.name(char, ""))
    if latin is None:
        return char
    return latin[1] if "CAPITAL LETTER" in unicodedata.name(char) else latin[1].lower()


NOT_AN_INSTRUCTION = "[not an instruction: {}]"

# -- hidden characters

# Line breaks and tabs stay. Surrogates cannot be written to any file.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufff9-\ufffb\ufdd0-\ufdef"
HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = f"[{CONTROL}{HIDDEN}]"
_MAY_HIDE = re.compile(f"[{CONTROL}{HIDDEN}\u200c\u200d\ufe00-\ufe0f]")


def visible(text: str) -> str:
    """Return the text without invisible characters and with plain line breaks."""
    if not _MAY_HIDE.search(text):
        return text
    text = compiled("\r\n?|[\u2028\u2029\x85]").sub("\n", text)
    before = None
    while before != text:  # a removal can bring together another hidden sequence
        before = text
        for hidden in (rule("ansi"), compiled(_UNSEEN), rule("joiner"), rule("selectors")):
            text = hidden.sub("", text)
    return text


# -- text that poses as somebody else

_ANGLES = ("<", "&lt", "&amp", "&#", "\\u003c", "\\x3c", "%3c")
_COLONS = ":\uff1a\ufe13\ufe55\ua789\u02d0\u02f8\u2236\u205a\u0589"
_ALWAYS_A_ROLE = ("system", "assistant", "developer", "human")
_SAFE = str.maketrans(
    "<>\uff1c\uff1e\ufe64\ufe65{}[]\uff3b\uff3d\u3010\u3011\u3014\u3015\u27e6\u27e7",
    "\u2039\u203a\u2039\u203a\u2039\u203a()()()()()()",
)

# -- text that gives orders to a model: see orders.txt

# The section for scripts that folding would change.
_OTHER_SCRIPTS = "other scripts"
_Match = re.Match[str]


def sanitize(text: str) -> str:
    """Return the text with every attempt to instruct a model broken, otherwise unchanged."""
    shadow = Shadow(visible(text))
    if _any(_ANGLES, shadow.lower):
        shadow = _replaced(shadow, rule("own mark"), _safe)
        shadow = _replaced(shadow, rule("template"), _safe)
        shadow = _replaced(shadow, rule("tag"), _safe_tag)
    if _any(("[", "<<", "{{"), shadow.lower):
        shadow = _replaced(shadow, rule("block"), _safe)
        shadow = _replaced(shadow, rule("bracketed"), _safe_bracket)
    if _any(("tool", "function", "role", "arguments", "parameters"), shadow.lower):
        shadow = _replaced(shadow, rule("tool json"), _told_json)
    if ":" in shadow.lower or "#" in shadow.lower:
        shadow = _roles(shadow)
    orders = table(__file__, "orders.txt")
    for words, patterns in orders.items():
        if words != _OTHER_SCRIPTS and _any(words.split(), shadow.lower):
            shadow = _replaced(shadow, compiled("|".join(patterns), re.MULTILINE), _marked)
    text = shadow.text
    if text.isascii():
        return text
    other = compiled("|".join(orders[_OTHER_SCRIPTS]), re.IGNORECASE)
    return other.sub(lambda found: _marked(found[0], found), text)


def break_marks(text: str) -> str:
    """Return the text with Ralph's own marks broken: none opens or closes a fence or a block."""
    shadow = Shadow(visible(text))
    if _any(_ANGLES, shadow.lower):
        shadow = _replaced(shadow, rule("own mark"), _safe)
    if "[" in shadow.lower:
        shadow = _replaced(shadow, rule("block"), _safe)
    return shadow.text


def break_channels(text: str) -> str:
    """Return the text with tags broken that clients may use for channels of their own.

    For recalled text on its way to a model. Saved text keeps them: they may be code.
    """
    shadow = Shadow(visible(text))
    if _any(_ANGLES, shadow.lower):
        shadow = _replaced(shadow, rule("channel tag"), _safe)
    return shadow.text


def sanitize_line(text: str) -> str:
    """Return the sanitized text on one line."""
    return " ".join(sanitize(text).split())


def sanitized_error(text: str) -> str:
    """Return a sanitized error on one line, without the escapes of hidden characters in it."""
    hidden = r"\\x(?:[01789][0-9a-f]|ad)|\\u(?:20[0-9a-f]{2}|feff|061c)|\\U000e[0-9a-f]{4}"
    return sanitize_line(compiled(hidden).sub("", text))


def plain_id(id: str, chars: int = 80) -> str:
    """Return the start of an id, id characters only: somebody else's journal may hold anything."""
    return "".join(c for c in id if c.isascii() and (c.isalnum() or c in "-_."))[:chars]


def plain_date(timestamp: str | None, chars: int = 10) -> str:
    """Return a timestamp in local time, by default only its day; "" if it is not a time."""
    try:
        return datetime.fromisoformat(timestamp or "").astimezone().isoformat(" ")[:chars]
    except (ValueError, OverflowError, OSError):  # the latter two: outside the calendar
        return ""


def _any(words: Sequence[str], text: str) -> bool:
    """Whether the text contains any of the words: a cheap test before trying a pattern."""
    return any(map(text.__contains__, words))


def _replaced(
    shadow: Shadow, pattern: re.Pattern[str], new: Callable[[str, _Match], str]
) -> Shadow:
    """Return the text with every match of the pattern in its lower-case form replaced."""
    found = pattern.finditer(shadow.lower)
    return shadow.edited([(*m.span(), new(shadow.piece(*m.span()), m)) for m in found])


def _safe(found: str, _: _Match) -> str:
    """Return the text with its brackets replaced by ones that look alike and mean nothing."""
    found = rule("less").sub("<", found)
    return rule("greater").sub(">", found).translate(_SAFE)


def _safe_tag(found: str, match: _Match) -> str:
    """Return a tag made harmless; `<System .../>` and `List<System>` are code and stay."""
    if compiled(r"<\s*/?\s*[A-Z][a-z]").match(found):
        word = match.string[max(match.start() - 2, 0) : match.start()]
        generic = word[-1:].isalnum() and word[0] != "\\" and "/" not in found
        if generic or found.endswith("/>") or "=" in found:
            return found
    return _safe(found, match)


def _safe_bracket(found: str, match: _Match) -> str:
    """Return a bracket made harmless; lower-case `[system]` is a settings section and stays."""
    return found if found in ("[system]", "[assistant]", "[developer]") else _safe(found, match)


def _told_json(found: str, _: _Match) -> str:
    """Return the JSON changed so that no program takes it for a call or a turn."""
    return compiled(rf"\s*[{_COLONS}]\s*").sub(" is ", found, count=1)


def _marked(found: str, _: _Match) -> str:
    """Return an order with its words kept, but no longer a sentence."""
    words = found.split()
    blanks = found[: len(found) - len(found.lstrip())]
    return blanks + NOT_AN_INSTRUCTION.format("_".join(words if len(words) > 1 else found.strip()))


def _roles(shadow: Shadow) -> Shadow:
    """Change `System: ...` at the start of a line to `(System) ...`."""

    def broken(match: _Match) -> tuple[int, int, str]:
        start, end = match.start("role"), match.end()
        piece = shadow.piece(start, end)
        role = "".join(c for c in piece if c not in _COLONS and c not in "[]()*_").strip()
        bold = "".join(c for c in piece if c in "*_")
        gap = " " if shadow.lower[end : end + 1].strip() and not bold else ""
        return start, end, f"({role}){bold}{gap}"

    headings = rule("role heading").finditer(shadow.lower)
    shadow = shadow.edited([broken(match) for match in headings])
    lines = [
        match
        for match in rule("role line").finditer(shadow.lower)
        # `system:serviceaccount` is a name, `System:Do it` is somebody speaking.
        if not shadow.lower[match.end() : match.end() + 1].isalnum()
        or shadow.plain[match.end()].isupper()
    ]
    speaks = [match for match in lines if match["role"].strip("[]()") in _ALWAYS_A_ROLE]
    # Code and people also write fields as `user: ...`. So unless another role speaks too, only a
    # role that looks like a turn of its own counts.
    heard = lines if speaks else [match for match in lines if _stands_alone(shadow, match)]
    return shadow.edited([broken(match) for match in heard])


def _stands_alone(shadow: Shadow, match: _Match) -> bool:
    """Whether `User:` begins a later line and is not indented, like a new turn of a dialogue."""
    lead = match["lead"]
    capital = shadow.plain[match.start("role")].isupper()
    return capital and match.start() > 0 and "\t" not in lead and len(lead) < 4


# -- The fences around text that Ralph puts into prompts and answers.
#
# Text that Ralph recalls, or that agents may have written, goes between `<ralph-memory>` marks: it
# is data, and capture never takes it for something new. The plan's requests go between
# `<ralph-plan>` marks. Nothing inside can close a fence, because everything that reads like one of
# Ralph's marks is broken there. A random mark would not work: a model is fooled by a mark that is
# nearly right, and a text that changes with every call can neither be reused nor recognized later.


OPEN = "<ralph-memory>"
CLOSE = "</ralph-memory>"

# Forms that a model or a browser would still read as the marker: other cases, blanks, invisible
# characters, escaped brackets.
_BLANK = "[\\s\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]*+"
_MARK_NAME = _BLANK.join("ralph") + _BLANK + "[-_\u2010-\u2015]?" + _BLANK + _BLANK.join("memory")
_BRACKET = r"(?:<|&lt;|&\#0*60;|&\#x0*3c;|\\u003c|\\x3c|[\uff1c\ufe64])"
_MARKER = rf"(?i){_BRACKET}{_BLANK}(?P<slash>(?:\\?/{_BLANK})?){_MARK_NAME}(?:[^<>\n]{{0,200}}?>)?"
# The block of cross-project knowledge has its own published delimiters.
_CONTEXT = r"\[(?:(?P<open>ORCHESTRATOR CONTEXT\b[^\]\n]*)|END CONTEXT)\]"
_LINE_START = r"[\s>|*#\d.:\-]*\Z"


def mark(text: str) -> str:
    """Put recalled text between marks that nothing inside it can close."""
    return _between(OPEN, break_channels(break_marks(text)), CLOSE)


def mark_plan(text: str) -> str:
    """Put the plan's own text between marks that nothing inside it can close."""
    return _between("<ralph-plan>", break_marks(text), "</ralph-plan>")


def _between(begin: str, text: str, end: str) -> str:
    return f"{begin}\n{text.strip(chr(10))}\n{end}"


def strip_marked(text: str) -> str:
    """Return the text without what Ralph injected, even if that was quoted or cut off."""
    out = ""
    at = 0
    for start, end in _marked_spans(text):
        out += text[at:start]
        at = end
    return out + text[at:] if at else text


def marked(text: str) -> str:
    """Return only the parts of the text that Ralph injected."""
    return "\n".join(text[start:end] for start, end in _marked_spans(text))


def _marked_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans that Ralph injected, in order; spans that touch are joined."""
    if not _any(("emory", "EMORY", "CONTEXT"), text):  # nearly every text has no mark of ours
        return []
    cuts = _cuts(text, _MARKER, "slash", closes=True) + _cuts(text, _CONTEXT, "open", closes=False)
    spans: list[tuple[int, int]] = []
    for start, end in sorted(cuts):
        if spans and start <= spans[-1][1]:
            start, last = spans.pop()
            end = max(last, end)
        spans.append((start, end))
    return spans


def _cuts(text: str, pattern: str, group: str, *, closes: bool) -> list[tuple[int, int]]:
    """Return the spans between markers. A marker without its partner counts only at the start of a
    line: in the middle of a sentence somebody merely mentions it."""
    cuts: list[tuple[int, int]] = []
    begun: int | None = None
    begun_on_line = False
    for found in compiled(pattern).finditer(text):
        is_close = bool(found[group]) is closes
        line = text.rfind("\n", 0, found.start()) + 1
        on_line = compiled(_LINE_START).match(text, line, found.start()) is not None
        start = line if on_line else found.start()
        if not is_close and begun is None:
            begun = start
            begun_on_line = on_line
        elif is_close and (begun is not None or (on_line and not cuts)):
            cuts.append((begun or 0, found.end()))
            begun = None
    if begun is not None and begun_on_line:
        cuts.append((begun, len(text)))
    return cuts
