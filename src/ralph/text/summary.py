"""Summaries made of a text's own sentences: deterministic, without a model, and fast.

A sentence scores high if its words are the text's subject, are rare, or are in the question; if it
comes first; and if it is not a greeting, offer or announcement. Code, tables and traces are not
sentences; a list counts as its lead-in and the heads of its items.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ralph.text.tokens import STOP_WORDS, compiled, rule, shorten, word_set

# -- Where sentences end, and which parts of a Markdown text are sentences at all.


Kind = Literal["prose", "item", "heading"]


class Piece(NamedTuple):
    """A paragraph, a list item or a heading, on one line and without its marks."""

    kind: Kind
    text: str


def pieces(text: str) -> list[Piece]:
    """Return the parts of a Markdown text that are words: no code, tables, traces or tags."""
    for section, new in (("fenced", "\n"), ("injected", "\n"), ("link", r"\1")):
        text = rule(section).sub(new, text)
    found = list[Piece]()
    kind: Kind = "prose"
    gathered = list[str]()
    for raw in [*text.splitlines(), ""]:
        line = raw.strip().lstrip("> ")
        noise = not line or rule("noise").match(line) is not None
        heading, item = rule("heading").match(line), rule("item").match(line)
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
    """Return the words without emphasis and with single spaces."""
    return " ".join(rule("emphasis").sub("", words).split())


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, in order, without the space between them."""
    ends = sentence_ends(paragraph)
    cut = (paragraph[a:b].strip() for a, b in zip([0, *ends], [*ends, len(paragraph)], strict=True))
    return [sentence for sentence in cut if sentence]


def sentence_ends(paragraph: str) -> list[int]:
    """Return the positions where one sentence has ended and the next begins."""
    return [
        end.end()
        for end in rule("sentence end").finditer(paragraph)
        if end[0][0] != "." or not _is_short(paragraph[max(0, end.start() - 8) : end.start()])
    ]


def _is_short(before: str) -> bool:
    """Whether the dot after this text belongs to an abbreviation, an initial or a list number."""
    word = before.rpartition(" ")[2].lstrip("(\"'").lower()
    initial = len(word) == 1 and word.isalpha()
    return word in word_set("abbreviations") or initial or (before.isdigit() and len(before) < 4)


TITLE_CHARS = 60
_ASKED_CHARS = 180
_OUTCOME_CHARS = 260
# Only the beginning and the end of an answer are read; its gist is seldom in between.
_READ_FIRST = 1600
_READ_LAST = 800
_MOST_SENTENCES = 24
_HEADS = 6
# An answer's best sentence with a lower score is a courtesy.
_COURTESY = -1.0

_HEAD_ENDS = r": | [-\u2013\u2014] |\. |; "


def exchange_gist(user: str, assistant: str) -> str:
    """Return what was asked and what the result was, one sentence each."""
    return " ".join(filter(None, (_asked(user, _ASKED_CHARS), outcome_of(user, assistant))))


def conversation_gist(exchanges: Sequence[tuple[str, str]], title: str = "") -> str:
    """Return what a conversation was about and how it ended, in two or three sentences."""
    asked = [(_asked(user, _ASKED_CHARS), user, answer) for user, answer in exchanges]
    asked = [one for one in asked if one[0]] or asked
    if not asked:
        return title
    first = asked[0][0]
    known = _content(first)
    if title and len(_content(title) - known) * 2 > len(_content(title)):
        first = shorten(f"{title}: {first}", _ASKED_CHARS)
    # The later question that adds most to the first.
    news = [(len(_content(text) - known), -place, text) for place, (text, _, _) in enumerate(asked)]
    added, _, later = max(news)
    # Thanks and goodbyes end a conversation, but do not say how it ended.
    spoken = [x for x in asked if not rule("aside").match(x[1]) and len(_content(x[0])) >= 3]
    _, user, answer = (spoken or asked)[-1]
    told = [first]
    if added >= 3 and later != first:
        told.append(f"Then: {later}")
    if end := outcome_of(user, answer):
        told.append(f"In the end: {end}" if len(asked) > 1 else end)
    return " ".join(filter(None, told))


def title_of(user: str) -> str:
    """Return a title for a first prompt: what is wanted, without courtesies, code and folders."""
    title = rule("url").sub("", _asked(user, 4 * TITLE_CHARS))
    title = rule("folder").sub(lambda path: re.split(r"[\\/]", path[0].rstrip("\\/"))[-1], title)
    title = " ".join(title.split())
    closing = " .:;,!-"
    while lead := rule("polite").match(title) or rule("asks for a deed").match(title):
        title = title[lead.end() :]
        if lead.re is rule("asks for a deed"):
            closing = " .:;,!-?"  # "Can you fix it?" is a request, not a question
    title = shorten(title.rstrip(closing), TITLE_CHARS)
    return title[:1].upper() + title[1:]


def _content(text: str) -> frozenset[str]:
    return frozenset(rule("summary word").findall(text.lower())) - STOP_WORDS


def _sentences_of(read: list[Piece]) -> list[str]:
    """Return every sentence of the prose, or the items and headings if there is no prose."""
    prose = [line for piece in read if piece.kind == "prose" for line in sentences(piece.text)]
    return prose or [piece.text for piece in read]


def _weighed(read: list[Piece], about: str) -> list[tuple[float, int, str]]:
    """Return the score, position and text of each sentence, or of each item without prose."""
    found = _sentences_of(read)
    if len(found) > _MOST_SENTENCES:
        found = found[: _MOST_SENTENCES - 6] + found[-6:]
    content = [_content(sentence) for sentence in found]
    often = Counter(word for its in content for word in its)
    wanted = _content(about) if about else frozenset[str]()
    weighed = list[tuple[float, int, str]]()
    for place, (sentence, its) in enumerate(zip(found, content, strict=True)):
        # A repeated word is the subject; a long one, or one with a digit or dot, is rare.
        worth = float(sum(min(often[w], 3) + (len(w) > 7 or not w.isalpha()) for w in its))
        worth /= 8 + sentence.count(" ")
        worth += 2.0 * len(its & wanted) / (3 + min(len(wanted), 12))
        worth += 0.5 if place == 0 else 0.2 if place == 1 else 0.0
        if len(its) < 3 or sentence[-1] == "?":
            worth -= 0.8
        elif sentence[-1] == ":":
            worth -= 1.2
        if rule("empty").match(sentence):
            worth -= 2.0
        weighed.append((worth, place, sentence))
    return weighed


def _asked(user: str, max_chars: int) -> str:
    """Return the sentence of a prompt that says what is wanted."""
    found = _sentences_of(pieces(user[:_READ_FIRST]))
    best, most = "", float("-inf")
    for place, sentence in enumerate(found[:12]):
        worth = min(len(_content(sentence)), 8) / 6 - 0.15 * place
        if rule("request").match(sentence):
            worth += 0.8
        elif rule("aside").match(sentence):
            worth -= 1.0
        elif sentence.startswith("You are "):
            worth -= 0.7
        worth += 0.5 * (sentence[-1] == "?")
        if worth > most:
            best, most = sentence, worth
    return _stopped(shorten(best[:1].upper() + best[1:], max_chars))


def outcome_of(user: str, assistant: str) -> str:
    """Return the sentence of an answer that states the result; for a list, what it lists."""
    text = assistant
    if len(text) > _READ_FIRST + _READ_LAST:
        # Start the end part at a new line: before it there may be half a sentence.
        text = f"{text[:_READ_FIRST]}\n\n{text[-_READ_LAST:].partition(chr(10))[2]}"
    read = pieces(text)
    likely = [
        (worth + 0.4 * _tells_a_result(line) - bool(rule("empty within").search(line)), line)
        for worth, _, line in sorted(_weighed(read, user[:_READ_LAST]), reverse=True)[:4]
    ]
    most, best = max(likely, key=lambda one: one[0], default=(float("-inf"), ""))
    lead, heads = _listed(read)
    # "Here's why:" leads to a list and says nothing itself; a stated result needs no list.
    prose = any(piece.kind == "prose" for piece in read)
    if len(heads) >= 3 and (most <= 0 or not prose or (most < 1.3 and len(_content(lead)) >= 3)):
        best = f"{lead}: {', '.join(heads)}" if lead else ", ".join(heads)
    elif len(heads) >= 3 and len(best) < _OUTCOME_CHARS - 60 and not _tells_a_result(best):
        listed = shorten(", ".join(heads), _OUTCOME_CHARS - len(best) - 3)
        best = f"{best.rstrip('.:!')} ({listed})."
    elif most < _COURTESY:
        return ""
    if agrees := rule("agrees").match(best):
        best = best[agrees.end()].upper() + best[agrees.end() + 1 :]
    return _stopped(shorten(best, _OUTCOME_CHARS))


def _tells_a_result(sentence: str) -> bool:
    return not word_set("results").isdisjoint(sentence.lower().replace(".", " ").split())


def _listed(read: list[Piece]) -> tuple[str, list[str]]:
    """Return the lead-in of the first list, and the heads of its items."""
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
    """Return the sentence with a punctuation mark at its end."""
    if not sentence or sentence.rstrip("\"')\u201d\u2019")[-1:] in tuple(".!?\u2026\u3002"):
        return sentence
    return f"{sentence.rstrip(':;,')}."
