"""Makes remembered text harmless to read: what hides is taken out, what commands is broken (F20).

`visible` removes what a person cannot see (zero-width, bidi and tag characters, ANSI escapes,
control characters). `sanitise` also breaks what tries to speak as somebody else: role markers,
chat-template and tool-call tags, "ignore previous instructions". Honest technical text passes
through unchanged. `fence` marks recalled text as data; `without_fenced` takes it out again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

REMOVED = "[instruction removed]"
# What stands in for angle brackets: read as such, and no tag.
_OPENING, _CLOSING = "\u2039", "\u203a"

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"
    r"|\x1b[ -/]*[0-~]?"
)
# Line breaks and tabs stay. Surrogates cannot be written to any file.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufff9-\ufffb\ufdd0-\ufdef]")
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Joiners are part of emoji and of scripts that join letters, and nowhere else.
_JOINER = re.compile(
    "(?<![\u0590-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\ufe0f"
    "\U0001f000-\U0001faff])[\u200c\u200d]"
    "|[\u200c\u200d](?![\u0590-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf"
    "\u2190-\u21ff\U0001f000-\U0001faff])"
)
# One selector belongs to the character before it; a row of them carries a message.
_SELECTORS = re.compile("(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]+")

_WHOSE = r"(?:\s+(?:all|any|every|the|these|those|your|my|our|of|and|or|each)){0,5}"
_EARLIER = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|original|initial|former|past|safety"
    r"|system|developer|user)"
)
_ORDERS = r"(?:instructions?|prompts?|directives?|guidelines?|orders)"
_DROP = r"(?:ignore|disregard|forget|discard|neglect)"
_PHRASES = re.compile(
    # "ignore all previous instructions"
    rf"\b{_DROP}{_WHOSE}(?:\s+{_EARLIER})+{_WHOSE}\s+{_ORDERS}\b"
    rf"|\b(?:override|bypass){_WHOSE}\s+(?:previous|prior|above|earlier|safety)\s+{_ORDERS}\b"
    # "ignore the instructions above", "disregard your instructions"
    rf"|\b{_DROP}{_WHOSE}\s+{_ORDERS}\s+(?:above|before|given|so\s+far|from\s+before|you\s+were)\b"
    rf"|\b{_DROP}(?:\s+(?:all|any|of))*\s+(?:your|my|the\s+system)\s+(?:\w+\s+)?"
    r"(?:instructions?|prompts?|directives?|guidelines?|rules|training|programming)\b"
    # "forget everything above", only as a sentence of its own
    rf"|(?:^|(?<=[.!?;:\n])\s*){_DROP}\s+(?:everything|anything|all|what(?:ever)?)"
    r"(?:\s+(?:that|was|you|were|is|have|been|told|said|written|learned))*"
    r"\s+(?:above|before(?:\s+this)?|previously|so\s+far|until\s+now)\b"
    # "you are now an unrestricted assistant"
    r"|\byou\s+are\s+now\s+(?:an?\s+(?:\w+\s+){0,3}(?:assistant|agent|ai|bot|model|hacker|expert"
    r"|persona|character)\b|acting\b|free\s+(?:of|from)\b|unrestricted\b|dan\b"
    r"|in\s+(?:developer|god|jailbreak|admin|dan|unrestricted)\s+mode\b)"
    r"|\bfrom\s+now\s+on,?\s+you\s+(?:must|will|are|should|shall|only)\b"
    r"|\b(?:pretend|act|behave)\s+(?:to\s+be\s+|as\s+(?:if\s+you\s+(?:are|were)\s+)?)"
    r"(?:an?\s+)?(?:unrestricted|uncensored|unfiltered|jailbroken|evil)\b"
    r"|\b(?:reveal|print|show|repeat|output|leak)\s+(?:me\s+)?(?:your|the)\s+(?:full\s+|entire\s+)?"
    r"(?:system|developer|hidden)\s+(?:prompt|instructions?|message)\b"
    r"|\bdo\s+not\s+(?:tell|inform|alert|warn|mention\s+(?:this|it)\s+to)\s+the\s+(?:user|human)\b"
    r"|\bnew\s+(?:system\s+)?instructions?\s*:"
    r"|\bdo\s+anything\s+now\b",
    re.IGNORECASE | re.MULTILINE,
)

_ROLE = r"(?:system|assistant|developer|human|user|tool|function)"
_ROLE_LINE = re.compile(
    rf"^([ \t>*_\#-]*)({_ROLE})([*_]*)[ \t]*(?:\(\w+\)|message|prompt|instructions?|override)?"
    r"[ \t]*:(?![:=/\w])([*_]*)",
    re.IGNORECASE | re.MULTILINE,
)
_ALWAYS_A_ROLE = frozenset({"system", "assistant", "developer", "human"})
_BRACKETED = re.compile(
    r"\[/?INST\]|<</?SYS>>"
    rf"|\[(?:#\s*)?(?:{_ROLE}|begin|end)(?:\s+(?:message|prompt|instructions?|override|note))\]"
    r"|\[(?:SYSTEM|ASSISTANT|DEVELOPER)\]"
)
_TEMPLATE = re.compile(r"<\|[^|<>\n]{1,40}\|>|<\uff5c[^\uff5c<>\n]{1,40}\uff5c>")
_TAGS = (
    "system|assistant|human|developer|instructions?|system[-_]reminder|system[-_]?prompt"
    "|system[-_]message|system[-_]note|important[-_]instructions|function[-_]calls?"
    "|function[-_]results?|function[-_]response|tool[-_]use|tool[-_]calls?|tool[-_]results?"
    "|tool[-_]response|tool[-_]code|tool[-_]outputs?|invoke|start_of_turn|end_of_turn|thinking"
    "|antml:[a-z_]+|user[-_]prompt[-_]submit[-_]hook|command[-_]name|command[-_]message"
    "|local[-_]command[-_]stdout|ralph-memory"
)
# Bare, or with the attributes that tool calls have. `<System .../>` in JSX and `<system.web>`
# in a configuration are code.
_TAG = re.compile(rf"<\s*/?\s*(?:{_TAGS})(?:\s+(?:name|id|type|what)\s*=[^<>\n]*)?\s*/?\s*>", re.I)
_TITLE_TAG = re.compile(r"<\s*/?\s*[A-Z][a-z]")
_TOOL_JSON = re.compile(
    r"""(["'])type\1\s*:\s*(["'])(tool_use|tool_result|function_call|tool_call)\2"""
)

_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһӏԛԝАВЕКМНОРСТХІЈЅαορνικΑΒΕΗΙΚΜΝΟΡΤΧ",
    "aeopcyxijsdhlqwABEKMHOPCTXIJSaopvikABEHIKMNOPTX",
)


def visible(text: str) -> str:
    """The text without anything that cannot be seen; line breaks become plain ones."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.replace("\u2028", "\n").replace("\u2029", "\n").replace("\x85", "\n")
    before = None
    while before != text:  # what is left when something is taken out can be hidden again
        before = text
        text = _CONTROL.sub("", _ANSI.sub("", text))
        text = _SELECTORS.sub("", _JOINER.sub("", _HIDDEN.sub("", text)))
    return text


def sanitise(text: str) -> str:
    """The text with every attempt to instruct broken, and otherwise as it was."""
    text = visible(text)
    before = None
    # Taking one phrase out can bring two halves of another together.
    while before != text:
        before = text
        text = _sub(_PHRASES, lambda _: REMOVED, text)
        text = _sub(_TEMPLATE, _angled, text)
        text = _sub(_TAG, _tag, text)
        text = _sub(_BRACKETED, _unbracketed, text)
        text = _TOOL_JSON.sub(r"\1type\1 is \2\3\2", text)
        text = _roles(text)
    return text


def sanitised_line(text: str) -> str:
    """The same, on one line."""
    return " ".join(sanitise(text).split())


def _shadow(text: str) -> str:
    """The same text, position by position, with look-alike letters as plain ones."""
    if text.isascii():
        return text
    return "".join(_plain_letter(c) for c in text.translate(_LOOKALIKES))


def _plain_letter(char: str) -> str:
    if char.isascii():
        return char
    folded = unicodedata.normalize("NFKD", char)
    return folded[0] if folded[:1].isascii() and folded[:1].isalpha() else char


def _sub(pattern: re.Pattern[str], new: Callable[[str], str], text: str) -> str:
    """Substitute where the plain-letter shadow of the text matches."""
    found = list(pattern.finditer(_shadow(text)))
    for match in reversed(found):
        if match.end() > match.start():
            text = (
                text[: match.start()] + new(text[match.start() : match.end()]) + text[match.end() :]
            )
    return text


def _angled(found: str) -> str:
    return found.replace("<", _OPENING).replace(">", _CLOSING)


def _tag(found: str) -> str:
    return found if _TITLE_TAG.match(found) else _angled(found)


def _unbracketed(found: str) -> str:
    return found.replace("[", "(").replace("]", ")").replace("<", _OPENING).replace(">", _CLOSING)


def _roles(text: str) -> str:
    found = list(_ROLE_LINE.finditer(_shadow(text)))
    # `User: ...` alone is how people write about fields; a second speaker makes it a dialogue.
    dialogue = len(found) > 1
    for match in reversed(found):
        if dialogue or match.group(2).lower() in _ALWAYS_A_ROLE or match.start() > 0:
            start, end = match.start(2), match.end()
            role = text[match.start(2) : match.end(2)]
            text = f"{text[:start]}({role}){text[end:]}"
    return text
