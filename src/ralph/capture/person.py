"""What the person said: refusals with words, answers, corrections. Kept as human decisions."""

from __future__ import annotations

import re
from typing import Any

from ralph.capture.decisions import BOILERPLATE, plan_title, planned
from ralph.capture.lines import clip, mapping, text_of
from ralph.records.iteration import Decision

LONGEST = 480
_MOST_QUEUED = 50
_TAKEN_IN = ("", "absorbed_mid_turn")
_REFUSED = "To tell you how to proceed, the user said:"
_REFUSED_NOTE = re.compile(r"\n+Note: The user's next message may contain.*\Z", re.S)
_CLARIFY = "The user wants to clarify these questions"
_NOTHING = re.compile(r"\(No answer provided\)|you decide|next(?: area)?|skip|no preference", re.I)
_ANSWERED = re.compile(r"\"(?P<q>[^\"]{3,800})\"=\"(?P<a>[^\"]{1,2000})\"")


def refusal(output: str) -> str:
    """The words with which a person turned a call down; or nothing."""
    _, found, words = output.partition(_REFUSED)
    words = _REFUSED_NOTE.sub("", words).strip()
    if not found or words.startswith(_CLARIFY):
        return ""
    return words


def answers(result: Any, output: str) -> list[tuple[str, str]]:
    """The questions that a person was asked, each with its answer."""
    data = mapping(result)
    given = mapping(data.get("answers"))
    found = [(question, text_of(answer)) for question, answer in given.items()]
    if not found:
        found = [(match["q"], match["a"]) for match in _ANSWERED.finditer(output)]
    return [(q, a) for q, a in found if a.strip() and not _NOTHING.fullmatch(a.strip())]


def answered(question: str, answer: str) -> Decision:
    """A question with the person's answer, as a decision."""
    answer = answer.replace(" (Recommended)", "").strip()
    return Decision(clip(f"{_line(question)} -> {_line(answer)}", LONGEST), None, "human")


def refused(words: str, what: str) -> Decision:
    """What the person said when refusing a call or a plan."""
    return Decision(clip(_line(words), LONGEST), f"said when refusing {what}", "human")


# -- Prompts.

# Says nothing by itself.
_PLAIN = re.compile(
    r"\W*(?:(?:ok(?:ay)?|yes|yep|yeah|sure|please|now|then|great|good|nice|perfect|thanks|thank you"
    r"|and|can you|could you|let's|lets|go ahead|continue|proceed|do it|sounds good|looks good|lgtm"
    r"|commit|push|hpush|merge|pr|create|make|open|a|an|it|this|that|the|changes?|all|again|try|run"
    r"|done|ready|next|try agian|comit|up|to|main|for me|hi|hello|hey)\b\W*)+",
    re.I,
)
_CORRECTS = re.compile(
    r"^(?:no\b|nope|wait|actually|instead|rather|hmm|correction|stop\b|don't|do not|really\?|but\b"
    r"|not\b|why (?:would|did|do|are) you|i thought|i'?ve reverted|only\b|ehh)"
    r"|\b(?:instead of|rather than|don't|do not|never|always|must(?:n't)?|should(?:n't)?|only"
    r"|keep(?! \w+ing)"
    r"|leave|let's|lets|switch to|prefer|i want|i'd like|i don't|make sure|ensure|because|wrong"
    r"|incorrect|not needed|unused|already|assuming|made? (?:it|that) up|revert|focus (?:only )?on"
    r"|rename|is right|is ok\b|i agree|not sure|remove the|no need|no point|supposed to"
    r"|use \S+|ignore|without|avoid|need(?:s)? to|has to|have to|fix the|can it be|also)\b"
    r"|^\s*1[.)] .{0,200}\b2[.)] ",
    re.I | re.S,
)
# What a program printed, not what the person says.
_PRINTED = re.compile(
    r"\s*(?:(?:error|warning|fatal|panic)\b.*:|[$>\u276f] |\[[\w:. -]+\] |[A-Z]{3,} \S*/|at \S+ \("
    r"|\S+\.\w{1,5}:\d+)",
    re.I,
)
# One question is a correction only when it objects.
_QUESTION = re.compile(r"[^.!?]{1,400}\?\W*")
_OBJECTS = re.compile(
    r"\b(?:instead of|rather than|why (?:would|did) you|don't|already|assuming|wrong|incorrect"
    r"|unused|ma[dk]e (?:it|that) up|i thought|no need|can't we|couldn't|isn't|wouldn't|didn't"
    r"|not)\b",
    re.I,
)
_RULE = re.compile(
    r"\b(?:never|always|must(?:n't)?|do not|don't|make sure|instead of|rather than|leave|should not"
    r"|shouldn't|no need|prefer)\b",
    re.I,
)
# The same in other languages, as far as a word tells it.
_CORRECTS_ELSEWHERE = re.compile(
    r"ください|べき|ではなく|必要|修正|変更|してほしい|不要|改成|而不是|应该|请"
    r"|\b(?:nicht|statt|bitte|lieber|sondern|kein\w*|sollte?n?|plut[oô]t|au lieu|il faut|ne pas"
    r"|en lugar|en vez|mejor|debe|hay que)\b",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[.!?。])\s*(?=\S)|\n+")


def is_plain(text: str) -> bool:
    """Whether a prompt only tells the agent to go on: "commit and push"."""
    return len(text) < 80 and _PLAIN.fullmatch(text) is not None


def asked(text: str, *, first: bool | None) -> Decision | None:
    """What a prompt decides: an accepted plan, a rule, or a choice or correction later on.

    Where it is not known whether a prompt is the first, a long one is taken for a request.
    """
    if text.startswith(BOILERPLATE) and plan_title(text):
        return planned(text)
    if is_plain(text):
        return None
    is_request = len(text) > LONGEST if first is None else first
    told = _required(text) if is_request else _choices(text)
    return Decision(clip(told, LONGEST), None, "human") if told else None


def _required(text: str) -> str:
    """The sentences of a first prompt that set a rule, beside what it asks for."""
    parts = [one.strip() for one in _SENTENCE.split(text[:4000]) if len(one.strip()) > 10]
    rules = [one for one in parts if _RULE.search(one)] if len(parts) > 1 else []
    return " ".join(_line(one) for one in rules[:4])


def _choices(text: str) -> str:
    """The sentences of a prompt that choose or correct; a short prompt whole."""
    own = "\n".join(line for line in text[:4000].split("\n") if not _PRINTED.match(line)).strip()
    if not _chooses(own) or (_QUESTION.fullmatch(own) and not _OBJECTS.search(own)):
        return ""
    if len(own) <= LONGEST:
        return _line(own)
    parts = [one.strip() for one in _SENTENCE.split(own) if len(one.strip()) > 10]
    return " ".join(_line(one) for one in parts if _chooses(one))


def _chooses(text: str) -> bool:
    return bool(_CORRECTS.search(text) or _CORRECTS_ELSEWHERE.search(text))


def _line(text: str) -> str:
    return " ".join(text.split())


class PromptQueue:
    """What a person typed while the agent was at work, until it is taken in or takes its turn.

    Older clients say only that the first of the queue was removed, which is how it was taken in.
    """

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def take(self, operation: str, reason: str, text: str) -> str:
        """The words that are taken in by this operation, if any."""
        if operation == "enqueue":
            self._waiting = [*self._waiting, text][-_MOST_QUEUED:]
            return ""
        first = self._waiting.pop(0) if self._waiting else ""
        return (text or first) if operation == "remove" and reason in _TAKEN_IN else ""
