"""Summaries made of a text's own sentences: deterministic, without a model, and fast."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ralph.text.outcome import READ_FIRST, content_words, outcome_of, stop
from ralph.text.sentences import Piece, cut_at_end, pieces
from ralph.text.tokens import rule

TITLE_CHARS = 120
_ASKED_CHARS = 180
_LEAST_TITLE = 7


def exchange_gist(user: str, assistant: str) -> str:
    """Return what was asked and what the result was."""
    return " ".join(filter(None, (_asked(user, _ASKED_CHARS), outcome_of(user, assistant))))


def conversation_gist(exchanges: Sequence[tuple[str, str]], title: str = "") -> str:
    """Return what a conversation was about and how it ended, in a few sentences."""
    asked = [(_asked(user, _ASKED_CHARS), user, answer) for user, answer in exchanges]
    asked = [one for one in asked if one[0]] or asked
    if not asked:
        return title
    first = asked[0][0]
    known = content_words(first)
    if title and len(content_words(title) - known) * 2 > len(content_words(title)):
        first = cut_at_end(f"{title}: {first}", _ASKED_CHARS)
    # The later question that adds most to the first.
    news = [
        (len(content_words(text) - known), -place, text) for place, (text, _, _) in enumerate(asked)
    ]
    added, _, later = max(news)
    # Thanks and goodbyes end a conversation, but do not say how it ended.
    spoken = [x for x in asked if not rule("aside").match(x[1]) and len(content_words(x[0])) >= 3]
    _, user, answer = (spoken or asked)[-1]
    told = [first]
    if added >= 3 and later != first:
        told.append(f"Then: {later}")
    if end := outcome_of(user, answer):
        told.append(f"In the end: {end}" if len(asked) > 1 else end)
    return " ".join(filter(None, told))


def title_of(user: str) -> str:
    """Return a title for a first prompt: what is wanted, without courtesies, code and folders."""
    user = rule("url").sub(_named_page, rule("not in a title").sub(" ", user[:READ_FIRST]))
    title = _asked(user, 4 * TITLE_CHARS)
    title = rule("folder").sub(lambda path: re.split(r"[\\/]", path[0].rstrip("\\/"))[-1], title)
    title = " ".join(title.split()).lstrip(" -\u2013\u2014:,")
    closing = " .:;,!-"
    while lead := rule("polite").match(title) or rule("asks for a deed").match(title):
        title = title[lead.end() :]
        if lead.re is rule("asks for a deed"):
            closing = " .:;,!-?"  # "Can you fix it?" is a request, not a question
    title = cut_at_end(title.rstrip(closing), TITLE_CHARS)
    return title[:1].upper() + title[1:]


def is_telling(title: str) -> bool:
    """Whether a title says something: "Y", "yes and yes" and "/review" do not."""
    if title.startswith(("/", "!", "<")) or not content_words(title):
        return False
    return (len(title.split()) > 1 and len(title) > _LEAST_TITLE) or not title.isascii()


def _named_page(url: re.Match[str]) -> str:
    """Return a short name for an address: the number of a pull request or issue, else the host."""
    if number := rule("numbered page").search(url[0]):
        return f"{'PR' if 'pull' in number[1] else 'issue'} #{number[2]}"
    return re.split(r"[/?#]", url[0].partition("://")[2])[0]


def _asked(user: str, max_chars: int) -> str:
    """Return the sentence of a prompt that says what is wanted; for a plan, its title."""
    read = pieces(user[:READ_FIRST], typed=True)
    if title := _plan_title(read):
        return stop(cut_at_end(title, max_chars))
    best, most = "", float("-inf")
    for place, sentence in enumerate(_sentences_of(read)[:12]):
        worth = min(len(content_words(sentence)), 8) / 6 - 0.15 * place
        if rule("request").match(sentence):
            worth += 0.8
        elif rule("aside").match(sentence):
            worth -= 1.0
        elif sentence.startswith(("You are a ", "You are an ", "You are the ")):
            worth -= 0.7
        worth += 0.5 * (sentence[-1] == "?")
        if worth > most:
            best, most = sentence, worth
    return stop(cut_at_end(best[:1].upper() + best[1:], max_chars))


def _plan_title(read: Sequence[Piece]) -> str:
    """Return the heading that a prompt begins with, perhaps after "Implement this plan:"."""
    if len(read) > 1 and read[0].kind == "prose" and read[0].text.endswith("plan:"):
        read = read[1:]
    if len(read) > 1 and read[0].kind == "heading":
        return read[0].text.removeprefix("Plan: ")
    return ""


def _sentences_of(read: Sequence[Piece]) -> list[str]:
    """Return every sentence of the prose, or the items and headings if there is no prose."""
    prose = [sentence for piece in read if piece.kind == "prose" for sentence in piece.sentences]
    return prose or [piece.text for piece in read if piece.text]
