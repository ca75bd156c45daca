"""Whether a sentence asks or tells, and whether it is about the past, by cue words."""

from __future__ import annotations

import re

from ralph.text.tokens import compiled

# A fragment ("auth bug last week") asks, though nothing says so.
_FRAGMENT_WORDS = 10

_AUXILIARY = (
    r"\b(?:did|didn't|was|were|wasn't|weren't|had|hadn't|have|haven't|has|hasn't|been|\w+'ve)\b"
)
_PAST_VERB = (
    r"\b(?:said|told|made|wrote|found|went|got|gave|took|saw|came|spoke|chose|broke|ran|built|bought"
    r"|met|kept|left|sent|(?!need\b|feed\b|speed\b|seed\b|indeed\b|proceed\b|exceed\b|embed\b|un)"
    r"[a-z]{2,}ed)\b"
)
_NOT_PAST = (
    r"\b(?:is|are|\w+'s the|can|could|do|does|best|will|won't|going to|gonna|shall|should|plan"
    r"|planning|upcoming|next|tomorrow|schedule|remind|want to|need to|would like|due|deadline|i'm"
    r"|we're|i am|we are|\w+'ll)\b"
)
_HABIT = r"\b(?:every|each|always|usually|annually|yearly)\b"
_WONDERING = r"\b(?:i|we)(?: was| were| am|'m|'re|'ve been)(?: just| also)? (?:wondering|hoping)\b"
_ASKS = (
    r"\W*(?:(?:and|so|but|ok|okay|hey|please|also|then),? )*(?:what|which|who|whom"
    r"|whose|when|where|why|how|did|do|does|was|were|is|are|have|has|had|can|could|would|show|find"
    r"|list|search|tell|give|remind|recall|remember|summari[sz]e|look|get|fetch|open|continue|compare"
    r"|i want to know|i'd like to know|i wonder|i was wondering|i'm wondering|i don't remember"
    r"|i forgot)\b"
)
_TELLS = r"\W*(?:by the way|btw|i|i'm|i've|i'd|i'll|my|we're)\b"
_ADVICE = (
    r"\b(?:do you have|do you think|any (?:good )?(?:tips|suggestions|recommendations|advice|ideas)"
    r"|(?:can|could|would|will) you (?:please )?(?:suggest|recommend|help))\b"
)
_MODAL = r"\b(?:can|could|should|would|will|shall|might)\b"
# Something that we, you or I did, or that happened to us.
_OURS = (
    r"\b(?:(?:did|have|had|were|was)(?:n't)? (?:i|we|you)|(?:i|we|you)(?:'ve| have| had| was| were"
    r"| did| \w+ed)|what(?: has| have| was| were| \w+ed| broke| went))\b"
)
_SAY = "discuss|talk|chat|speak|mention|say|tell|ask|answer|suggest|recommend|explain|decide|agree"
_SAID = (
    "discussed|talked|chatted|spoken?|mentioned|said|told|asked|answered|suggested|recommended"
    "|explained|decided|agreed"
)
_TALK = (
    rf"\bdid(?:n't)? (?:we|you|i) (?:\w+ )?(?:{_SAY})\b"
    rf"|\b(?:we|you|was|were|been)(?:'ve)?(?: \w+)? (?:{_SAID})\b"
    r"|\bi(?:'ve)?(?: \w+)? (?:mentioned|said|(?:told|asked) you)\b"
    r"|\b(?:our|previous|last|earlier|that) (?:conversation|discussion|chat|session)s?\b"
)
SENTENCE = (". ", "? ", "! ")
CLAUSE = (*SENTENCE, ", ", "; ")


def _cue(pattern: str) -> re.Pattern[str]:
    return compiled(pattern, re.I)


def around(text: str, start: int, end: int, marks: tuple[str, ...]) -> str:
    """The sentence or clause of the text that holds a place."""
    begin = max(text.rfind(mark, 0, start) for mark in marks) + 1
    ends = [at for mark in marks if (at := text.find(mark, end)) >= 0]
    return text[begin : min(ends, default=len(text)) + 1]


def asks(sentence: str, text: str) -> bool:
    """Whether a sentence of the text wants to know what was, rather than tell it or get advice."""
    if is_about_talk(sentence):
        return True
    if _cue(_ADVICE).search(sentence):
        return False
    if _cue(_ASKS).match(sentence):
        return True
    if _cue(_TELLS).match(sentence):
        return False
    return sentence.rstrip().endswith("?") or len(text.split()) <= _FRAGMENT_WORDS


def looks_back(*pieces: str) -> bool:
    """Whether the first piece with a cue, of smaller and larger ones, speaks of the past."""
    for words in pieces:
        if has_past(words):
            return True
        if _cue(_NOT_PAST).search(words):
            return False
    return True


def has_past(words: str) -> bool:
    """Whether there is a verb in the past."""
    words = _cue(_WONDERING).sub("", words)
    return bool(_cue(_AUXILIARY).search(words) or _cue(_PAST_VERB).search(words))


def has_modal(words: str) -> bool:
    """Whether it speaks of what could or should be."""
    return _cue(_MODAL).search(words) is not None


def is_ours(words: str) -> bool:
    """Whether it speaks of something that we, you or I did."""
    return _cue(_OURS).search(_cue(_WONDERING).sub("", words)) is not None


def is_habit(words: str) -> bool:
    """Whether it speaks of what happens again and again."""
    return _cue(_HABIT).search(words) is not None


def is_about_talk(words: str) -> bool:
    """Whether it speaks of what was said, rather than of what was done."""
    return _cue(_TALK).search(words) is not None
