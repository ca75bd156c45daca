"""The result of an exchange in the answer's own sentences: deterministic, fast, without a model.

A sentence scores high if its words are the text's subject, are rare, or are in the question; if it
comes first; and if it is not a greeting, offer or announcement. Code and traces are not sentences.

A list is told item by item, never by the names of its items alone: what is said of them may be that
they failed. An item that did not go well is always told with its list. If it does not fit, neither
the list nor its lead-in is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ralph.text.sentences import Piece, cut_at_end, pieces
from ralph.text.tokens import STOP_WORDS, compiled, rule, shorten, word_set

OUTCOME_CHARS = 280
# Only the beginning and the end of an answer are read; its gist is seldom in between.
READ_FIRST = 1600
READ_LAST = 800
_MOST_SENTENCES = 24
_ITEM_CHARS = 150
# An answer's best sentence with a lower score is a courtesy.
_COURTESY = -1.0
# A sentence with a lower score says less than a list.
_WEAK = 1.3
# A first sentence like "All tests pass." is told before the best one.
_OPENER_CHARS = 70
# Fewer words than this do not say what was done.
_THIN = 4

_BETWEEN_ITEMS = "; "
_NAME_ENDS = r":\s+|\s+(?:[-\u2013\u2014=]+>?|\u2192)\s+|\s+(?=[\u274c\u2717\u2718\u2716])"
_NAME_CHARS = 60
_BEGINNING = r"[\w\"'(\[\u201c\u2018]"
_NUMBER = r"\A\(?\d{1,3}[.)]\s+"


class Item(NamedTuple):
    """An item of a list: its sentences."""

    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole item on one line."""
        return " ".join(self.sentences)

    @property
    def has_bad_verdict(self) -> bool:
        """Whether the item is a name and then says that it failed, was skipped, and so on."""
        first = self.sentences[0] if self.sentences else ""
        if rule("bad mark").match(first) or rule("bad verdict in brackets").search(first):
            return True
        name_end = compiled(_NAME_ENDS).search(first)
        if name_end is None or name_end.start() > _NAME_CHARS:
            return False
        return rule("bad verdict").match(first, name_end.end()) is not None

    @property
    def went_badly(self) -> bool:
        """Whether the item says anywhere that something did not go well."""
        return self.has_bad_verdict or rule("went badly").search(self.text) is not None

    def short(self, max_chars: int) -> str:
        """Return the sentences up to the one that says how it went; "" if too little fits."""
        last = 0
        for place, sentence in enumerate(self.sentences):
            if rule("went badly").search(sentence):
                last = place
        text = " ".join(self.sentences[: last + 1])
        if last and len(text) > max_chars:
            return ""
        cut = cut_at_end(text, max_chars)
        if self.went_badly and not Item((cut,)).went_badly:
            # The verdict was in the part that was cut off.
            cut = shorten(text, max_chars)
            if not Item((cut.rstrip("\u2026"),)).went_badly:
                return ""
        return cut.rstrip(".:;, ") if not cut.endswith("\u2026") else cut


class AnswerList(NamedTuple):
    """A list of an answer: the words before it, without the colon, and its items."""

    lead: str
    items: list[Item]


class ScoredSentence(NamedTuple):
    """A sentence with its score and its position among all sentences."""

    worth: float
    place: int
    text: str


def outcome_of(user: str, assistant: str, max_chars: int = OUTCOME_CHARS) -> str:
    """Return what an answer says about the result, in one to three sentences; "" if nothing."""
    text = assistant
    if len(text) > READ_FIRST + READ_LAST:
        # Start the end part at a new line: before it there may be half a sentence.
        text = f"{text[:READ_FIRST]}\n\n{text[-READ_LAST:].partition(chr(10))[2]}"
    read = pieces(text)
    headings = [piece.text for piece in read if piece.kind == "heading"]
    verdict = next((one for one in headings if Item((one,)).has_bad_verdict), "")
    if not verdict:
        return _result(read, user, max_chars)
    verdict = stop(cut_at_end(verdict, max_chars // 2))
    return f"{verdict} {_result(read, user, max_chars - len(verdict) - 1)}".rstrip()


def _result(read: Sequence[Piece], user: str, max_chars: int) -> str:
    """Return a list that went badly, or else the best sentence and what belongs to it."""
    lists = lists_of(read)
    for answer_list in lists:
        if any(item.has_bad_verdict for item in answer_list.items):
            return list_text(answer_list, max_chars)
    prose = _prose(read)
    best = _best(prose, user)
    main_list = next((one for one in lists if len(one.items) > 1), None)
    if main_list is not None and _says_more(main_list, best):
        opener = _opener(prose)
        if (listed := _with_list(opener, main_list, max_chars)) != opener:
            return listed
    if best is None:
        return _only_item(read, max_chars)
    told = _with_neighbors(prose, best, max_chars)
    if main_list is not None and len(best.text) < max_chars // 2:
        return _with_list(told, main_list, max_chars, least=2)
    return told


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that say something, in lower case."""
    return frozenset(rule("summary word").findall(text.lower())) - STOP_WORDS


def stop(sentence: str) -> str:
    """Return the sentence with a punctuation mark at its end."""
    if not sentence or sentence.rstrip("\"')\u201d\u2019")[-1:] in tuple(".!?\u2026\u3002"):
        return sentence
    return f"{sentence.rstrip(':;,')}."


# -- Sentences.


def _prose(read: Sequence[Piece]) -> list[str]:
    """Return the sentences outside lists.

    A lead-in is told with the sentence that it leads to. Before code, it stands alone if it states
    a result: "I fixed it by quoting the path:".
    """
    found = list[str]()
    lead = ""
    for piece in read:
        if piece.kind == "code" and lead and tells_a_result(lead):
            found.append(f"{lead.rstrip(':')}.")
        if piece.kind != "prose":
            lead = ""
            continue
        for sentence in piece.sentences:
            if sentence.endswith(":"):
                lead = "" if _says_nothing(sentence) else sentence
                continue
            found.append(f"{lead} {sentence}" if lead else sentence)
            lead = ""
    return found


def _best(prose: Sequence[str], user: str) -> ScoredSentence | None:
    """Return the sentence that states the result; None if all of them are courtesies."""
    likely = sorted(_weigh(prose, user[:READ_LAST]), reverse=True)[:4]
    scored = [
        one._replace(
            worth=one.worth
            + 0.4 * tells_a_result(one.text)
            - bool(rule("empty within").search(one.text))
        )
        for one in likely
    ]
    best = max(scored, default=None)
    return best if best is not None and best.worth >= _COURTESY else None


def _weigh(prose: Sequence[str], about: str) -> list[ScoredSentence]:
    """Return each sentence with its score; of a long text, only the first and the last ones."""
    numbered = list(enumerate(prose))
    if len(numbered) > _MOST_SENTENCES:
        numbered = numbered[: _MOST_SENTENCES - 6] + numbered[-6:]
    contents = [content_words(sentence) for _, sentence in numbered]
    often = Counter(word for content in contents for word in content)
    wanted = content_words(about)
    weighed = list[ScoredSentence]()
    for (place, sentence), content in zip(numbered, contents, strict=True):
        # A repeated word is the subject; a long one, or one with a digit or dot, is rare.
        worth = float(sum(min(often[w], 3) + (len(w) > 7 or not w.isalpha()) for w in content))
        worth /= 8 + sentence.count(" ")
        worth += 2.0 * len(content & wanted) / (3 + min(len(wanted), 12))
        if place == 0:
            worth += 0.5
        elif place == 1:
            worth += 0.2
        if len(content) < 3 or sentence[-1] == "?":
            worth -= 0.8
        if _says_nothing(sentence):
            worth -= 2.0
        weighed.append(ScoredSentence(worth, place, sentence))
    return weighed


def tells_a_result(sentence: str) -> bool:
    """Whether a sentence says that something was done, or how it went."""
    words = sentence.lower().replace(".", " ").replace(",", " ").split()
    return not word_set("results").isdisjoint(words)


def _opener(prose: Sequence[str]) -> str:
    """Return a short first sentence that says how it went: "All tests pass."."""
    first = prose[0] if prose else ""
    if len(first) > _OPENER_CHARS or len(content_words(first)) < 2 or _says_nothing(first):
        return ""
    return stop(first) if tells_a_result(first) else ""


def _with_neighbors(prose: Sequence[str], best: ScoredSentence, max_chars: int) -> str:
    """Return the sentence with those around it that fit: what it refers to, and what follows."""
    first = last = best.place
    room = max_chars - len(_without_agreement(best.text))
    # What "this" refers to says more than the end of the sentence.
    while first > 0 and rule("depends").match(prose[first]) and _fits_before(prose, first, room):
        first -= 1
        room -= len(prose[first]) + 1
    opener = _opener(prose) if first > 0 else ""
    if len(opener) < room:
        room -= len(opener) + 1
    else:
        opener = ""
    following = prose[last + 1 : last + 2]
    if following and len(following[0]) < room and _adds(following[0]):
        last += 1
    chosen = [prose[place] for place in range(first, last + 1)]
    text = " ".join(stop(one) for one in chosen if one == best.text or not _says_nothing(one))
    told = stop(cut_at_end(_without_agreement(text), max_chars))
    return f"{opener} {told}" if opener else told


def _fits_before(prose: Sequence[str], place: int, room: int) -> bool:
    before = len(prose[place - 1])
    return before < room or before < len(prose[place]) // 2


def _adds(sentence: str) -> bool:
    """Whether a sentence is whole and says something."""
    if sentence[-1] == "?" or _says_nothing(sentence) or rule("empty within").search(sentence):
        return False
    return compiled(_BEGINNING).match(sentence) is not None


def _says_nothing(sentence: str) -> bool:
    """Whether a sentence is a courtesy, or only announces what comes next."""
    plain = sentence.replace("\u2019", "'")
    return bool(rule("empty").match(plain) or rule("announces").match(plain))


def _without_agreement(sentence: str) -> str:
    agrees = rule("agrees").match(sentence)
    if agrees is None:
        return sentence
    return sentence[agrees.end()].upper() + sentence[agrees.end() + 1 :]


# -- Lists.


def _says_more(answer_list: AnswerList, best: ScoredSentence | None) -> bool:
    """Whether a list says more than the best sentence."""
    if best is None or best.worth <= 0 or len(content_words(best.text)) < _THIN:
        return True
    return best.worth < _WEAK and len(content_words(answer_list.lead)) >= 3


def _with_list(before: str, answer_list: AnswerList, max_chars: int, *, least: int = 1) -> str:
    """Return the text and, if this many of its items fit, the list after it."""
    listed = list_text(answer_list, max_chars - len(before) - 1, least=least)
    return " ".join(filter(None, (before, listed)))


def _only_item(read: Sequence[Piece], max_chars: int) -> str:
    """Return the only item of an answer without a telling sentence, else its first heading."""
    items = [piece.text for piece in read if piece.kind == "item"]
    headings = [piece.text for piece in read if piece.kind == "heading"]
    texts = items if len(items) == 1 else headings
    return stop(cut_at_end(texts[0], max_chars)) if texts else ""


def lists_of(read: Sequence[Piece]) -> list[AnswerList]:
    """Return the lists of an answer, each with the words that lead to it.

    Headings do not end a list, but sentences do. Items under an item that is only a name take its
    place; other nested items are left out unless they went badly.
    """
    found = list[AnswerList]()
    lead = ""
    items: list[Item] | None = None
    parent_is_name = False
    for piece in read:
        if piece.kind == "prose":
            last = piece.sentences[-1]
            lead = compiled(_NUMBER).sub("", last.rstrip(":")) if last.endswith(":") else ""
            items = None
        elif piece.kind == "item":
            if items is None:
                items = []
                found.append(AnswerList(lead, items))
                parent_is_name = True  # a list that begins nested has no parent
            item = Item(piece.sentences)
            if not piece.nested:
                parent_is_name = item.text.endswith(":") and len(content_words(item.text)) < _THIN
                if not parent_is_name:
                    items.append(item)
            elif parent_is_name or item.went_badly:
                items.append(item)
    return [one for one in found if one.items]


def list_text(answer_list: AnswerList, max_chars: int, *, least: int = 1) -> str:
    """Return the lead-in and as many items as fit; "" if an item that went badly does not fit."""
    lead = answer_list.lead
    if _says_nothing(lead) or len(content_words(lead)) < 2:
        lead = ""
    head = f"{_without_agreement(lead)}: " if lead else ""
    if items := items_text(answer_list.items, max_chars - len(head), least=least):
        return stop(f"{head}{items}")
    # Verdicts are worth more than the words before them.
    return stop(items_text(answer_list.items, max_chars, least=least)) if head else ""


def items_text(items: Sequence[Item], max_chars: int, *, least: int = 1) -> str:
    """Return as many items as fit, in order; "" if too few do, or one that went badly does not."""
    room = max_chars - len(f"{_BETWEEN_ITEMS}and {len(items)} more.")
    badly = [place for place, item in enumerate(items) if item.went_badly]
    others = [place for place, item in enumerate(items) if not item.went_badly]
    chosen = dict[int, str]()
    # Items that went badly are told with their reason. Short ones leave room for the others.
    badly.sort(key=lambda place: len(items[place].text))
    for done, place in enumerate(badly):
        share = room // (len(badly) - done) - len(_BETWEEN_ITEMS)
        text = items[place].short(share)
        if not text:
            return ""
        chosen[place] = text
        room -= len(text) + len(_BETWEEN_ITEMS)
    for place in others:
        text = items[place].short(_ITEM_CHARS)
        if len(text) <= room:
            chosen[place] = text
            room -= len(text) + len(_BETWEEN_ITEMS)
        elif chosen:
            break
    if len(chosen) < least:
        return ""
    told = [chosen[place] for place in sorted(chosen)]
    if len(told) < len(items):
        told.append(f"and {len(items) - len(told)} more")
    return _BETWEEN_ITEMS.join(told)
