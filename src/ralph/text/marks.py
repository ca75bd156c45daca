"""The fences around text that Ralph puts into prompts and answers.

What Ralph recalls, and what agents may have written, stands between `<ralph-memory>` marks: it is
data, and capture never takes it for news. What the plan asks for stands between `<ralph-plan>`
marks. Nothing inside can close a fence, because everything that reads like one of Ralph's marks is
broken there. A random mark would not do instead: a model is fooled by a mark that is nearly right,
and a text that changes with every call can neither be kept nor recognised later.
"""

from __future__ import annotations

from ralph.text.sanitize import break_marks
from ralph.text.tokens import compiled

OPEN = "<ralph-memory>"
CLOSE = "</ralph-memory>"
_PLAN_OPEN, _PLAN_CLOSE = "<ralph-plan>", "</ralph-plan>"

# What a model or a browser would still read as the marker: other cases, blanks, invisible
# characters, escaped brackets.
_BLANK = "[\\s\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]*+"
_NAME = _BLANK.join("ralph") + _BLANK + "[-_\u2010-\u2015]?" + _BLANK + _BLANK.join("memory")
_BRACKET = r"(?:<|&lt;|&\#0*60;|&\#x0*3c;|\\u003c|\\x3c|[\uff1c\ufe64])"
_MARKER = rf"(?i){_BRACKET}{_BLANK}(?P<slash>(?:\\?/{_BLANK})?){_NAME}(?:[^<>\n]{{0,200}}?>)?"
# The block of cross-project knowledge has its own published delimiters.
_CONTEXT = r"\[(?:(?P<open>ORCHESTRATOR CONTEXT\b[^\]\n]*)|END CONTEXT)\]"
_LINE_START = r"[\s>|*#\d.:\-]*\Z"


def mark(text: str) -> str:
    """Recalled text between marks that nothing inside it can close."""
    return f"{OPEN}\n{break_marks(text).strip(chr(10))}\n{CLOSE}"


def mark_plan(text: str) -> str:
    """The plan's own text between marks that nothing inside it can close."""
    return f"{_PLAN_OPEN}\n{break_marks(text).strip(chr(10))}\n{_PLAN_CLOSE}"


def strip_marked(text: str) -> str:
    """The text without what Ralph injected, also when it was quoted or cut off on either side."""
    if not _may_hold(text):
        return text
    return "".join(text[start:end] for start, end in _outside(text))


def marked(text: str) -> str:
    """Only what Ralph injected, without the markers' surroundings."""
    if not _may_hold(text):
        return ""
    kept, at = list[str](), 0
    for start, end in _outside(text):
        kept.append(text[at:start])
        at = end
    kept.append(text[at:])
    return "\n".join(part for part in kept if part)


def _may_hold(text: str) -> bool:
    """Cheap: nearly every text is none of ours."""
    return "emory" in text or "EMORY" in text or "CONTEXT" in text


def _outside(text: str) -> list[tuple[int, int]]:
    """The stretches that are not memory, in order."""
    cuts = _cuts(text, _MARKER, "slash", closes=True) + _cuts(text, _CONTEXT, "open", closes=False)
    outside, at = list[tuple[int, int]](), 0
    for start, end in sorted(cuts):
        if start > at:
            outside.append((at, start))
        at = max(at, end)
    if at < len(text):
        outside.append((at, len(text)))
    return outside


def _cuts(text: str, pattern: str, group: str, *, closes: bool) -> list[tuple[int, int]]:
    """Where memory stands. A marker without its partner counts only where a line begins: in the
    middle of a sentence somebody merely mentions it."""
    cuts: list[tuple[int, int]] = []
    begun: int | None = None
    begun_on_line = False
    for found in compiled(pattern).finditer(text):
        is_close = bool(found[group]) is closes
        line = text.rfind("\n", 0, found.start()) + 1
        on_line = compiled(_LINE_START).match(text, line, found.start()) is not None
        start = line if on_line else found.start()
        if not is_close:
            if begun is None:
                begun, begun_on_line = start, on_line
            continue
        if begun is not None:
            cuts.append((begun, found.end()))
            begun = None
        elif on_line and not cuts:
            cuts.append((0, found.end()))
    if begun is not None and begun_on_line:
        cuts.append((begun, len(text)))
    return cuts
