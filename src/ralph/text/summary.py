"""Summaries made of a text's own sentences: deterministic, without a model, and fast."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ralph.text.outcome import READ_FIRST, content_words, outcome_of, stop
from ralph.text.sentences import Piece, cut_at_end, pieces
from ralph.text.tokens import rule, word_set

TITLE_CHARS = 120
_ASKED_CHARS = 180
_LEAST_TITLE = 7
# A long title is cut where a clause ends, if what is left says enough.
_LEAST_CLAUSE_CHARS = 25
_LEAST_CLAUSE_WORDS = 4
_LONGEST_ADDRESS = 48
_LONGEST_PAGE = 40
# A longer number is an id, which nobody knows by heart.
_LONGEST_NUMBER = 6


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
    user = rule("role").sub("", user[:READ_FIRST], count=1)
    user = rule("dots").sub(", ", rule("not in a title").sub(" ", user))
    user = rule("named twice").sub(r"\1", rule("url").sub(_named_page, user))
    title = _asked(user, 4 * TITLE_CHARS, for_title=True)
    title = rule("folder").sub(lambda path: re.split(r"[\\/]", path[0].rstrip("\\/"))[-1], title)
    title = plain_title(title).lstrip(" -\u2013\u2014:,")
    closing = " .:;,!-"
    while lead := rule("polite").match(title) or rule("asks for a deed").match(title):
        title = title[lead.end() :]
        if lead.re is rule("asks for a deed"):
            closing = " .:;,!-?"  # "Can you fix it?" is a request, not a question
    title = short_title(title.rstrip(closing)).rstrip(closing)
    return _capitalized(rule("hanging").sub("", title))


def plain_title(title: str) -> str:
    """Return a title on one line, without colors and without the symbols before it."""
    return rule("ornament").sub("", " ".join(rule("ansi").sub("", title).split()))


def is_telling(title: str) -> bool:
    """Whether a title says something: "Y", "check this", "yes and yes" and "/review" do not."""
    if title.startswith(("/", "!", "<")) or content_words(title) <= word_set("vague"):
        return False
    if rule("names nothing").fullmatch(title):
        return False
    return (len(title.split()) > 1 and len(title) > _LEAST_TITLE) or not title.isascii()


def names_its_subject(title: str) -> bool:
    """Return whether a title says what was worked on: "look at the PR comments" does not."""
    numbered = (word for word in content_words(title) if word.rpartition("/")[2].isdecimal())
    words = content_words(title).difference(numbered)
    return not words <= word_set("vague") | word_set("workflow")


def _capitalized(title: str) -> str:
    """Return a title with a capital, unless it begins with a name like `main.py`."""
    first = title.partition(" ")[0]
    plain = first.replace("'", "").replace("-", "").rstrip(",:").isalpha()
    return title[:1].upper() + title[1:] if plain else title


def short_title(title: str, max_chars: int = TITLE_CHARS) -> str:
    """Return a title, or its first clauses if it is too long, else as many words as fit."""
    if len(title) <= max_chars:
        return title
    if lead := rule("leading clause").match(title):
        title = title[lead.end() :]
        if len(title) <= max_chars:
            return title
    for mark, least in (
        ("title clause end", _LEAST_CLAUSE_CHARS),
        ("title phrase end", max_chars // 2),
    ):
        ends = [end.start() for end in rule(mark).finditer(title, least)]
        for end in reversed(ends):
            if end <= max_chars and _is_whole(title[:end]):
                return title[:end]
    return cut_at_end(title, max_chars)


def _is_whole(clause: str) -> bool:
    """Whether the beginning of a sentence can stand alone."""
    if clause.count("`") % 2 or clause.count('"') % 2 or clause.count("(") > clause.count(")"):
        return False
    return len(content_words(clause)) >= _LEAST_CLAUSE_WORDS


def _named_page(url: re.Match[str]) -> str:
    """Return a short name for an address: a pull request's, an issue's, its last part, its host."""
    if number := rule("numbered page").search(url[0]):
        return f"{'PR' if 'pull' in number[1] else 'issue'} #{number[2]}"
    address = re.split(r"[?#]", url[0].partition("://")[2])[0].rstrip("/.,;:!")
    host, *folders = address.split("/")
    if len(folders) < 2:
        return address if len(address) <= _LONGEST_ADDRESS else host
    if folders[-1].isdigit():
        if len(folders[-1]) <= _LONGEST_NUMBER:
            return f"{folders[-2]}/{folders[-1]}"
        return folders[-2] if url.start() else ""
    page = folders[-1]
    is_name = rule("page name").fullmatch(page) is not None
    return page if is_name and len(page) <= _LONGEST_PAGE else host


def _asked(user: str, max_chars: int, *, for_title: bool = False) -> str:
    """Return the sentence of a prompt that says what is wanted; for a plan, its title.

    A title is rather the first request than a longer one after it.
    """
    read = pieces(user[:READ_FIRST], typed=True)
    if title := _plan_title(read):
        return stop(cut_at_end(title, max_chars))
    best = ""
    most = float("-inf")
    for place, sentence in enumerate(_sentences_of(read)[:12]):
        worth = _worth_asking(sentence) - 0.15 * place
        if for_title:
            worth += _worth_in_title(sentence, place)
        if worth > most:
            best = sentence
            most = worth
    best = best if for_title else best[:1].upper() + best[1:]
    return stop(cut_at_end(best, max_chars))


def _worth_asking(sentence: str) -> float:
    """Return how likely a sentence says what is wanted."""
    worth = min(len(content_words(sentence)), 8) / 6
    if rule("request").match(sentence):
        worth += 0.8
    elif rule("aside").match(sentence):
        worth -= 1.0
    elif sentence.startswith(("You are a ", "You are an ", "You are the ")):
        worth -= 0.7
    return worth + 0.5 * (sentence[-1] == "?")


def _worth_in_title(sentence: str, place: int) -> float:
    """Return what makes a sentence a better title, or a worse one, than it is a request."""
    leads = sentence[-1] == ":" and sentence[-2:] != "?:"
    if leads or rule("sideline").match(sentence):
        return -0.8
    if not content_words(sentence) - word_set("vague"):
        return -0.5
    if rule("leads on").search(sentence):
        return -0.8
    is_request = rule("request").match(sentence) or rule("asks for a deed").match(sentence)
    return max(0.0, 0.6 - 0.2 * place) if is_request or place == 0 else 0.0


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
