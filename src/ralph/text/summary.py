"""Summaries made of a text's own sentences: deterministic, without a model, and fast.

A sentence says much when its words are the text's subject, are rare, or are what was asked; when it
stands first; and when it is no greeting, offer or announcement. Code, tables and traces are no
sentences; a list counts as what leads to it and the heads of its items.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ralph.text.tokens import STOP_WORDS, compiled, shorten

# -- Where sentences end, and which parts of a Markdown text are sentences at all.


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
# Traces, logs, prompts, diffs, tags, tables, rules, code.
_NOISE = (
    r"Traceback \(most recent|File \"|at [\w.$<>]+\s?\(|Caused by:|diff --git"
    r"|(?:import|from) [\w.]+(?: import .*)?\Z|[\w.]+(?:Error|Exception): "
    r"|\||[-=_*#~]{3,}\s*\Z|\.\.\. \d+ more|\[?\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d[ .,]|\$ "
    r"|>>> |@@ |\+\+\+ |--- \S|</?[a-zA-Z!][^>]*>\s*\Z|!\[|[{}\[\]();,]+\s*\Z"
)
_ITEM = r"(?:[-*+\u2022]|\(?\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?"
_HEADING = r"#{1,6}\s+(.*?)\s*#*\s*\Z|(?:\*\*|__)([^*_]{1,100}?):?(?:\*\*|__):?\s*\Z"
_EMPHASIS = r"\*\*|__(?=\w)|(?<=\w)__|(?<!\w)\*(?=\w)|(?<=[\w.,!?)])\*(?!\w)|`|\\(?=[_*])"


def pieces(text: str) -> list[Piece]:
    """What a Markdown text says in words: no code, tables, traces or tags."""
    for pattern, new in ((_FENCED, "\n"), (_INJECTED, "\n"), (_LINK, r"\1")):
        text = compiled(pattern).sub(new, text)
    found = list[Piece]()
    kind: Kind = "prose"
    gathered = list[str]()
    for raw in [*text.splitlines(), ""]:
        line = raw.strip().lstrip("> ")
        noise = not line or compiled(_NOISE).match(line) is not None
        heading, item = compiled(_HEADING).match(line), compiled(_ITEM).match(line)
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
    return " ".join(compiled(_EMPHASIS).sub("", words).split())


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, in order and without the space between them."""
    ends = sentence_ends(paragraph)
    cut = (paragraph[a:b].strip() for a, b in zip([0, *ends], [*ends, len(paragraph)], strict=True))
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
    initial = len(word) == 1 and word.isalpha()
    return word in _SHORT or initial or (before.isdigit() and len(before) < 4)


TITLE_CHARS = 60
_ASKED_CHARS = 180
_OUTCOME_CHARS = 260
# An answer is read at its beginning and its end; what lies between seldom is its gist.
_READ_FIRST = 1600
_READ_LAST = 800
_MOST_SENTENCES = 24
_HEADS = 6
# What an answer's best sentence is worth when it is a courtesy.
_COURTESY = -1.0

_WORD = r"[^\W_][\w'./+#-]*[\w+#]|[^\W_]"
# What says nothing: courtesies, offers, announcements.
_EMPTY = (
    r"(?i)\W*(?:(?:sure|certainly|absolutely|of course|great|perfect|excellent|awesome|wonderful"
    r"|thanks|thank you|you're (?:very |most )?welcome|welcome|hello|hi|hey|congrat\w*|yes|no|ok"
    r"|okay|good|nice|fantastic|got it|understood|sounds (?:good|great|like)|no problem"
    r"|my pleasure)\b[^.,;:]{0,40}\W*\Z"
    r"|(?:great|good|excellent|interesting) (?:question|choice|idea|point)"
    r"|(?:i'm|i am|i'd be|i would be|i'll be)(?: very| so| really| more than)? (?:happy|glad|sorry"
    r"|pleased|excited|delighted|thrilled)|sorry\b|i apologi[sz]e|(?:i )?(?:hope|wish)\b"
    r"|let me know|feel free|good luck|enjoy\b|have (?:a|fun)\b|happy \w+ing|please let"
    r"|if you (?:have|need|would|want|do|'d)|don't hesitate|would you like|do you want me|shall i\b"
    r"|want me to|is there anything|what do you think|as an ai\b|i'm just an ai"
    r"|i (?:do not|don't) have (?:personal|access|the ability)|remember,? "
    r"|(?:now,? |first,? |next,? )?(?:let me|let's|i'll|i will|i need to|i'm going to) "
    r"|(?:it|that)(?:'s| is| sounds)(?: \w+)? (?:great|exciting|wonderful|awesome|fantastic"
    r"|amazing|profound|interesting))"
)
_EMPTY_WITHIN = (
    r"happy to help|wish you|I hope|well on your way|I'm sure you|n't hesitate|let me know"
    r"|eel free|ood luck|'d love to|language model"
)
_RESULTS = frozenset(
    "done fixed fix implemented added created removed updated committed merged pass passes passed"
    " passing works work resolved solved complete completed failed fails caused cause because"
    " result found recommend overall summary".split()
)
_REQUEST = (
    r"(?i)\W*(?:and |so |but |also,? |then |please |now )*(?:what|which|who|when|where|why|how|can"
    r"|could|would|will|do|does|did|is|are|should|add|fix|write|make|create|explain|implement|find"
    r"|show|tell|give|help|update|remove|refactor|change|run|check|use|build|generate|summari[sz]e"
    r"|translate|review|list|suggest|recommend|compare|convert|design|plan|test|verify|debug|improve"
    r"|move|rename|install|set|look|let's|i need|i want|i'd like|i would like|i'm (?:looking|trying"
    r"|planning|thinking|having|working|interested)|i am (?:looking|trying|planning))\b"
)
_ASIDE = r"(?i)\W*(?:by the way|btw|speaking of|oh,? and|thanks|thank you|hi|hello|hey)\b"
_POLITE = (
    r"(?i)(?:(?:hi|hello|hey|ok|okay|thanks|thank you|great|please|kindly|so|and|also|then|now|well"
    r"|yes|no|actually|claude|there|all|everyone)\b[,.!:]*\s+)+"
)
_LEAD = (
    r"(?i)(?:(?:can|could|would|will) you (?:please |kindly |also |just |possibly )*"
    r"(?:help me (?:to )?(?:with )?)?|i(?:'d| would) like (?:you |to |for you to )*"
    r"|i (?:want|need) (?:you |to )*|help me (?:to )?(?:with )?|your task is to |please |let's "
    r"|i(?:'m| am) (?:trying|looking|planning|hoping|going|wanting)(?: to| for)? "
    r"|i was wondering (?:if|whether) (?:you (?:can|could) )?)"
)
_PATH = r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[\\/][\w.@+-]+){2,}[\\/]?|\b[\w.@+-]+(?:[\\/][\w.@+-]+){2,}"
_URL = r"\bhttps?://[^\s)>\]]+"
_HEAD_ENDS = r": | [-\u2013\u2014] |\. |; "
_AGREES = r"(?i)(?:yes|sure|certainly|absolutely|of course)[,!]\s+(?=\w)"


def exchange_gist(user: str, assistant: str) -> str:
    """What was asked and what came out, in a sentence each."""
    return " ".join(filter(None, (_asked(user, _ASKED_CHARS), _outcome(user, assistant))))


def conversation_gist(exchanges: Sequence[tuple[str, str]], title: str = "") -> str:
    """What a conversation was about and how it ended, in two or three sentences."""
    asked = [(_asked(user, _ASKED_CHARS), user, answer) for user, answer in exchanges]
    asked = [one for one in asked if one[0]] or asked
    if not asked:
        return title
    first = asked[0][0]
    known = _content(first)
    if title and len(_content(title) - known) * 2 > len(_content(title)):
        first = shorten(f"{title}: {first}", _ASKED_CHARS)
    # Between the beginning and the end, the question that adds most.
    news = [(len(_content(text) - known), -place, text) for place, (text, _, _) in enumerate(asked)]
    added, _, later = max(news)
    # Thanks and goodbyes end a conversation, but tell nothing of how it ended.
    spoken = [x for x in asked if not compiled(_ASIDE).match(x[1]) and len(_content(x[0])) >= 3]
    _, user, answer = (spoken or asked)[-1]
    told = [first]
    if added >= 3 and later != first:
        told.append(f"Then: {later}")
    if end := _outcome(user, answer):
        told.append(f"In the end: {end}" if len(asked) > 1 else end)
    return " ".join(filter(None, told))


def title_of(user: str) -> str:
    """A title from a first prompt: what is wanted, without courtesies, code and folders."""
    title = compiled(_URL).sub("", _asked(user, 4 * TITLE_CHARS))
    title = compiled(_PATH).sub(lambda path: re.split(r"[\\/]", path[0].rstrip("\\/"))[-1], title)
    title = " ".join(title.split())
    closing = " .:;,!-"
    while lead := compiled(_POLITE).match(title) or compiled(_LEAD).match(title):
        title = title[lead.end() :]
        if lead.re.pattern == _LEAD:
            closing = " .:;,!-?"  # "Can you fix it?" asks for a deed
    title = shorten(title.rstrip(closing), TITLE_CHARS)
    return title[:1].upper() + title[1:]


def _content(text: str) -> frozenset[str]:
    return frozenset(compiled(_WORD).findall(text.lower())) - STOP_WORDS


def _sentences_of(read: list[Piece]) -> list[str]:
    """Every sentence of the prose; the items and headings where there is none."""
    prose = [line for piece in read if piece.kind == "prose" for line in sentences(piece.text)]
    return prose or [piece.text for piece in read]


def _weighed(read: list[Piece], about: str) -> list[tuple[float, int, str]]:
    """What each sentence is worth, its place and its text; of items where there is no prose."""
    found = _sentences_of(read)
    if len(found) > _MOST_SENTENCES:
        found = found[: _MOST_SENTENCES - 6] + found[-6:]
    content = [_content(sentence) for sentence in found]
    often = Counter(word for its in content for word in its)
    wanted = _content(about) if about else frozenset[str]()
    weighed = list[tuple[float, int, str]]()
    for place, (sentence, its) in enumerate(zip(found, content, strict=True)):
        # Said again it is the subject; long, or with a digit or a dot in it, it is rare.
        worth = float(sum(min(often[w], 3) + (len(w) > 7 or not w.isalpha()) for w in its))
        worth /= 8 + sentence.count(" ")
        worth += 2.0 * len(its & wanted) / (3 + min(len(wanted), 12))
        worth += 0.5 if place == 0 else 0.2 if place == 1 else 0.0
        if len(its) < 3 or sentence[-1] == "?":
            worth -= 0.8
        elif sentence[-1] == ":":
            worth -= 1.2
        if compiled(_EMPTY).match(sentence):
            worth -= 2.0
        weighed.append((worth, place, sentence))
    return weighed


def _asked(user: str, max_chars: int) -> str:
    """The sentence of a prompt that says what is wanted."""
    found = _sentences_of(pieces(user[:_READ_FIRST]))
    best, most = "", float("-inf")
    for place, sentence in enumerate(found[:12]):
        worth = min(len(_content(sentence)), 8) / 6 - 0.15 * place
        if compiled(_REQUEST).match(sentence):
            worth += 0.8
        elif compiled(_ASIDE).match(sentence):
            worth -= 1.0
        elif sentence.startswith("You are "):
            worth -= 0.7
        worth += 0.5 * (sentence[-1] == "?")
        if worth > most:
            best, most = sentence, worth
    return _stopped(shorten(best[:1].upper() + best[1:], max_chars))


def _outcome(user: str, assistant: str) -> str:
    """The sentence of an answer that says what came out; of a list, what it lists."""
    text = assistant
    if len(text) > _READ_FIRST + _READ_LAST:
        # From the next line on: what stands before it may be half a sentence.
        text = f"{text[:_READ_FIRST]}\n\n{text[-_READ_LAST:].partition(chr(10))[2]}"
    read = pieces(text)
    likely = [
        (worth + 0.4 * _tells_a_result(line) - bool(compiled(_EMPTY_WITHIN).search(line)), line)
        for worth, _, line in sorted(_weighed(read, user[:_READ_LAST]), reverse=True)[:4]
    ]
    most, best = max(likely, key=lambda one: one[0], default=(float("-inf"), ""))
    lead, heads = _listed(read)
    # "Here's why:" leads to a list and says nothing itself; a result is not what is listed.
    prose = any(piece.kind == "prose" for piece in read)
    if len(heads) >= 3 and (most <= 0 or not prose or (most < 1.3 and len(_content(lead)) >= 3)):
        best = f"{lead}: {', '.join(heads)}" if lead else ", ".join(heads)
    elif len(heads) >= 3 and len(best) < _OUTCOME_CHARS - 60 and not _tells_a_result(best):
        listed = shorten(", ".join(heads), _OUTCOME_CHARS - len(best) - 3)
        best = f"{best.rstrip('.:!')} ({listed})."
    elif most < _COURTESY:
        return ""
    if agrees := compiled(_AGREES).match(best):
        best = best[agrees.end()].upper() + best[agrees.end() + 1 :]
    return _stopped(shorten(best, _OUTCOME_CHARS))


def _tells_a_result(sentence: str) -> bool:
    return not _RESULTS.isdisjoint(sentence.lower().replace(".", " ").split())


def _listed(read: list[Piece]) -> tuple[str, list[str]]:
    """What leads to the first list, and what its items are called."""
    lead, heads = "", list[str]()
    for piece in read:
        if piece.kind == "item":
            head = compiled(_HEAD_ENDS).split(piece.text, maxsplit=1)[0].strip(' :."')
            if 2 < len(head) <= 60 and head not in heads:
                heads.append(head)
            if len(heads) == _HEADS:
                break
        elif piece.kind == "prose" and not heads and piece.text.endswith(":"):
            lead = sentences(piece.text)[-1].rstrip(":")
    return lead, heads


def _stopped(sentence: str) -> str:
    """The sentence with a mark at its end."""
    if not sentence or sentence.rstrip("\"')\u201d\u2019")[-1:] in tuple(".!?\u2026\u3002"):
        return sentence
    return f"{sentence.rstrip(':;,')}."
