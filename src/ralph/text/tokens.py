"""Words as the index sees them, as models count them, and as people read them."""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from itertools import chain


@functools.cache
def compiled(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: hooks start often and need few of them."""
    return re.compile(pattern, flags)


@functools.cache
def table(module: str, name: str) -> dict[str, list[str]]:
    """Return the rows, by section, of a text file beside the module with this `__file__`.

    A section is `[name]` and one line per row; `[macros]` come first, if rows use any.
    """
    with open(os.path.join(os.path.dirname(module), name), encoding="utf-8") as file:
        text = file.read()
    head, _, rest = text.partition("\n[macros]\n")
    macros, _, text = rest.partition("\n\n") if rest else ("", "", head)
    for macro in macros.splitlines():
        name, meaning = macro.split(" ", 1)
        text = text.replace(f"<{name}>", meaning)
    sections = (section.split("\n") for section in f"\n{text}".split("\n[")[1:])
    return {
        name.removesuffix("]"): [line for line in lines if line and line[0] != "#"]
        for name, *lines in sections
    }


@functools.cache
def rule(section: str) -> re.Pattern[str]:
    """Return one pattern for all rows of a section of `rules.txt`."""
    return re.compile("|".join(table(__file__, "rules.txt")[section]))


@functools.cache
def word_set(section: str) -> frozenset[str]:
    """Return the words of a section of `rules.txt`."""
    return frozenset(" ".join(table(__file__, "rules.txt")[section]).split())


# -- Words as the index sees them: code-aware, accent-blind, stemmed.
#
# An identifier yields itself, joined, and its parts: `getUserById`, `get_user_by_id` and
# `get-user-by-id` all yield `getuserbyid user id`. A dotted name or a path yields itself and its
# segments; the line of `file:line` is a token of its own. Tokens hold letters, digits and `. / + #`
# only, never a space or a quote, so FTS5's `ascii` tokenizer with these `tokenchars` passes them
# through untouched.


# -- Porter's stemmer (1980), so that `failed`, `fails` and `failing` are one word.
#
# Written from the published description: a word is [C](VC)^m[V]; each step takes the longest
# ending it knows and replaces it if the part before it is long enough (its measure m).


# A word is mapped to c (consonant) and v (vowel) once; y is a vowel after a consonant.
_VOWELS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "vcccvcccvcccccvcccccvcccyc")


# Endings of each step: `ative:` is dropped, `icate:ic` becomes `ic`.
_ENDINGS = (
    "ational:ate tional:tion enci:ence anci:ance izer:ize abli:able alli:al entli:ent eli:e"
    " ousli:ous ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous"
    " aliti:al iviti:ive biliti:ble",
    "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:",
    "al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: ion: ou: ism: ate: iti: ous:"
    " ive: ize:",
)
# Each step's endings, and the least measure of the part before an ending.
_STEPS = [
    (dict(row.split(":") for row in endings.split()), least)
    for endings, least in zip(_ENDINGS, (1, 1, 2), strict=True)
]


def stem(word: str) -> str:
    """Return the stem of a lower-case ASCII word; return anything else unchanged."""
    if len(word) < 3 or not (word.isascii() and word.isalpha() and word.islower()):
        return word
    if word[-1] == "s" and not word.endswith("ss"):
        word = word[:-2] if word.endswith(("sses", "ies")) else word[:-1]
    word = _past_and_progressive(word)
    if word[-1] == "y" and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    for endings, least in _STEPS:
        word = _replaced(word, endings, least)
    # `eing` has become a single `e` here.
    if len(word) > 1 and word[-1] == "e" and _measure(word[:-1]) > _ends_short(word[:-1]):
        word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _shape(word: str) -> str:
    shape = word.translate(_VOWELS)
    return compiled(r"(?<=c)y").sub("v", shape).replace("y", "c") if "y" in shape else shape


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Whether a word ends in consonant, vowel, consonant other than w, x, y (hop, not snow)."""
    return word[-1] not in "wxy" and _shape(word)[-3:] == "cvc"


def _past_and_progressive(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = word.removesuffix("ed" if word.endswith("ed") else "ing")
    if rest == word or "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 1 and rest[-1] == rest[-2] and rest[-1] not in "aeioulsz":
        return rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_short(rest) else rest


def _replaced(word: str, endings: dict[str, str], least: int) -> str:
    for size in range(min(7, len(word) - 1), 1, -1):
        ending = word[-size:]
        if ending in endings:
            rest = word[:-size]
            fits = _measure(rest) >= least and (ending != "ion" or rest[-1] in "st")
            return rest + endings[ending] if fits else word
    return word


# Saved in the index's manifest. Change it whenever the tokens change: the index is then rebuilt.
TOKENISER_VERSION = "2"

_LONGEST_TOKEN = 64
_CACHE_LIMIT = 50_000

# Words that say nothing about a passage. Negations are not among them.
_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being below
between both but by can could did do does doing down during each few for from further get gets got
had has have having he her here hers herself him himself his how i if in into is it its itself just
let me more most my myself of off on once only or other our ours ourselves out over own please same
she should so some such than that the their theirs them themselves then there these they this those
through to too under until up us very was we were what when where which while who whom why will with
would you your yours yourself yourselves ll ve re
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_NEGATIONS = frozenset(("cannot", "cant", "dont", "doesnt", "didnt", "isnt", "wont"))
# Words before the n't of a contraction that say nothing themselves.
_AUXILIARIES = STOP_WORDS | {"ai", "ca", "must", "need", "sha", "wo"}

# Possessive throughout, so that a million underscores or a megabyte without a space stays linear.
_ASCII = (
    r"[cC]\+\+|[cCfF]#(?!\w)"
    r"|[A-Za-z0-9_]++(?:(?:[/\\:]{1,3}|[.@#-])[A-Za-z0-9_]++)*+(?:'[A-Za-z]{1,2}(?![A-Za-z]))?+"
)
# Scripts written without spaces: Chinese, Japanese, Korean (whose endings stick to the words),
# Thai, Lao, Burmese, Khmer.
_UNSPACED = (
    r"[\u0e01-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17d3\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    r"\u31f0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# The vowel signs of Indic scripts belong to the word, though \w leaves them out.
_CHUNK = rf"{_ASCII}|{_UNSPACED}++|(?:(?!{_UNSPACED})[\w\u0900-\u0963\u0966-\u0dff])++"

_SEGMENTS = r"[/\\:@#]+"
_HUMP = r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+"
_VERSION = r"[vV]?([0-9]+(?:\.[0-9]+)+)"
# Addresses and hashes mean something only as a whole.
_OPAQUE = r"0[xX][0-9a-fA-F]+|(?=(?:[a-f]*[0-9]){2})(?=[0-9]*[a-f])[0-9a-f]{7,}"

# Accents, and the points of Hebrew and Arabic; then the Latin letters that NFD does not split.
_MARKS = "[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670]+"
_LATIN = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "ẞ": "SS"}
    | {"æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th"}
    | {"\u0131": "i", "\u2019": "'", "\u2010": "-", "\u2011": "-"}
)


def tokens(text: str) -> list[str]:
    """Return the tokens of a passage, in order, without stop words."""
    return list(chain.from_iterable(map(_known, _chunks(text))))


def query_tokens(text: str) -> list[str]:
    """Return the tokens of a question, each once; stop words only if there is nothing else."""
    return list(_query_tokens(text))


@functools.lru_cache(maxsize=8)  # every memory of a search asks for them
def _query_tokens(text: str) -> tuple[str, ...]:
    chunks = _chunks(text)
    found: dict[str, None] = {}
    for chunk in chunks:
        # Pairs match better than single characters, which are only for one-character questions.
        unspaced = not chunk.isascii() and len(chunk) > 1 and compiled(_UNSPACED).match(chunk)
        found |= dict.fromkeys(_pairs(chunk) if unspaced else _known(chunk))
    if not found:
        words = (chunk.partition("'")[0].strip("_").lower() for chunk in chunks)
        found = dict.fromkeys(word for word in words if word)
    return tuple(found)


@functools.lru_cache(maxsize=8)  # called for every hit of the same question
def spellings(text: str) -> Mapping[str, str]:
    """Return how the text spells each of its tokens, to show people: `valid` as `validation`."""
    written: dict[str, str] = {}
    for chunk in _chunks(text):
        known = _known(chunk)
        # A name made of several words has a spelling for each word and for the whole.
        for part in compiled(_HUMP).findall(chunk) if len(known) > 1 else ():
            for token in _known(part)[:1]:
                written.setdefault(token, part.lower())
        whole = chunk.lower()
        for token in known:
            stands = not whole.partition(token)[2][:1].isalpha() and token in whole
            written.setdefault(token, token if stands else whole)
    return written


def names_time(text: str) -> bool:
    """Whether a text may mention a time: a cheap test, since almost no question does."""
    return "20" in text or not word_set("time words").isdisjoint(
        compiled(r"\W+").split(text.lower())
    )


def _chunks(text: str) -> list[str]:
    """Return words, identifiers, paths and runs of unspaced script as written, without accents."""
    if text.isascii():
        return compiled(_ASCII).findall(text)
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    plain = unicodedata.normalize("NFC", compiled(_MARKS).sub("", apart)).translate(_LATIN)
    return compiled(_CHUNK).findall(plain)


def _known(chunk: str) -> tuple[str, ...]:
    """Return the chunk's tokens; those of a short one are cached, since words come again."""
    return _cached(chunk) if len(chunk) <= _LONGEST_TOKEN else tuple(_tokens_of(chunk))


@functools.lru_cache(maxsize=_CACHE_LIMIT)
def _cached(chunk: str) -> tuple[str, ...]:
    return tuple(_tokens_of(chunk))


def _tokens_of(chunk: str) -> list[str]:
    if not chunk.isascii():
        if compiled(_UNSPACED).match(chunk):
            return [*chunk, *_pairs(chunk)]
        return [chunk.casefold()[:_LONGEST_TOKEN]]
    if chunk[-1] in "+#":
        return [chunk.lower()]
    if "'" in chunk:
        return _contraction(chunk)
    if chunk.isalpha() and (chunk.islower() or chunk.istitle()):
        return list(_word(chunk.lower()[:_LONGEST_TOKEN]))
    return _compound(chunk)


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]


@functools.lru_cache(maxsize=_CACHE_LIMIT)
def _word(word: str) -> tuple[str, ...]:
    if word in STOP_WORDS:
        return ()
    return ("not",) if word in _NEGATIONS else (stem(american(word)),)


# British endings and their American spelling. A word that always ends in -ise (`promise`) changes,
# too, but in passages and questions alike.
_BRITISH = (
    (r"^practis(e[ds]?|ing)$", r"practic\1"),
    (r"(?<=..)is(e[drs]?|ers|ing|ations?|ational(?:ly)?|able)$", r"iz\1"),
    (r"(?<=al)ys(e[drs]?|ers|ing)$", r"yz\1"),
    (r"(arm|behavi|col|endeav|fav|flav|harb|hon|hum|lab|neighb|\bod|rig|rum|vap)our", r"\1or"),
    (r"(cal?ib|cent|fib|\blit|lust|theat|met)re(s?)$", r"\1er\2"),
    (r"(cent)r(ed|ing)$", r"\1er\2"),
    (r"^(def|lic|off|pret)enc(e[ds]?|ing)$", r"\1ens\2"),
    (r"^(anal|catal|dial|monol|prol)ogu(?:e(?=s?$)|(?=(?:ed|ing)$))", r"\1og"),
    (r"^(dial|duel|fuel|trial)l(e[dr]|ers|ing)$", r"\1\2"),
    (r"^(bias|focus)s(e[ds]|ing)$", r"\1\2"),
    (r"^(acknowled|jud)gement", r"\1gment"),
    (r"^programmes?$", "program"),
    (r"^discs?$", "disk"),
)
# Words by how they begin.
_BRITISH_WORDS = {
    "aluminium": "aluminum",
    "artefact": "artifact",
    "burnt": "burned",
    "cheque": "check",
    "cypher": "cipher",
    "draught": "draft",
    "grey": "gray",
    "learnt": "learned",
    "mould": "mold",
    "plough": "plow",
    "queueing": "queuing",
    "sceptic": "skeptic",
    "skilful": "skillful",
    "spelt": "spelled",
    "tyre": "tire",
    "whilst": "while",
}

# One pattern for all of them, because nearly every word has none.
_MAYBE_BRITISH = "|".join(
    [*(british for british, _ in _BRITISH), *(f"^{w}" for w in _BRITISH_WORDS)]
)


def american(word: str) -> str:
    """Return a lower-case word in American spelling, so that both spellings find each other."""
    if not compiled(_MAYBE_BRITISH).search(word):
        return word
    for british, replacement in _BRITISH:
        changed = compiled(british).sub(replacement, word)
        if changed != word:
            return changed
    for british, plain in _BRITISH_WORDS.items():
        if word.startswith(british):
            return plain + word[len(british) :]
    return word


def _contraction(chunk: str) -> list[str]:
    """`don't` is `not`, `user's` is `user`."""
    base, _, ending = chunk.rpartition("'")
    if ending not in "tT" or base[-1] not in "nN":
        return _tokens_of(base)
    before = base[:-1]
    return ["not"] if not before or before.lower() in _AUXILIARIES else [*_tokens_of(before), "not"]


def _compound(chunk: str) -> list[str]:
    """Return the tokens of a path, dotted name or identifier: the whole once, then its parts."""
    names, found = _named_parts(map(_dotted, compiled(_SEGMENTS).split(chunk)))
    while names and names[-1].isdigit():  # the line and column of file:line:column
        names.pop()
    if len(names) > 1:
        found.insert(0, "/".join(names)[:_LONGEST_TOKEN])
    return list(dict.fromkeys(found))


def _named_parts(pieces: Iterable[tuple[str, list[str]]]) -> tuple[list[str], list[str]]:
    """Return the names of the pieces that have one, and all tokens of those pieces."""
    named = [(name, parts) for name, parts in pieces if name]
    return [name for name, _ in named], [part for _, parts in named for part in parts]


def _dotted(segment: str) -> tuple[str, list[str]]:
    if version := compiled(_VERSION).fullmatch(segment):
        whole = version[1]
        minor = ".".join(version[1].split(".", 2)[:2])
        return whole, [whole[:_LONGEST_TOKEN], minor[:_LONGEST_TOKEN]]
    names, found = _named_parts(map(_identifier, segment.split(".")))
    whole = ".".join(names)
    if len(names) > 1:
        found.insert(0, whole[:_LONGEST_TOKEN])
    return whole, found


def _identifier(piece: str) -> tuple[str, list[str]]:
    if piece.isdigit() or compiled(_OPAQUE).fullmatch(piece):
        whole = piece.lower()
        return whole, [whole[:_LONGEST_TOKEN]]
    humps = compiled(_HUMP).findall(piece)
    if len(humps) < 2:
        whole = "".join(humps).lower()
        return whole, list(_word(whole[:_LONGEST_TOKEN])) if whole else []
    whole = "".join([american(hump.lower()) for hump in humps])
    found = [stem(whole[:_LONGEST_TOKEN])]
    for hump in humps:
        # One letter or digit among others says nothing by itself (`Linear1D`, `utf8`).
        if len(hump) > 1:
            found += _word(hump.lower()[:_LONGEST_TOKEN])
    return whole, found


# -- Token estimates.


# Long words are several tokens, punctuation and digits often one each, and scripts without
# spaces about one per character. The estimate is within a sixth of public tokenizers.
_PIECES = r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]|\n+"
_LETTERS_A_TOKEN = 6


def _tokens_in(piece: str) -> int:
    return 1 + (len(piece) - 1) // _LETTERS_A_TOKEN if piece[0].isalpha() else 1


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens, a little high rather than low."""
    return sum(map(_tokens_in, compiled(_PIECES).findall(text)))


def first_tokens(text: str, count: int) -> str:
    """Return the beginning of a text, about `count` tokens, ending at a word."""
    total = 0
    for found in compiled(_PIECES).finditer(text):
        total += _tokens_in(found[0])
        if total > count:
            return text[: found.start()].rstrip()
    return text


# -- Words for people.


def plural(number: int, word: str, words: str | None = None) -> str:
    """Return the number and its noun: `1 record`, `2 records`."""
    return f"{number} {word if number == 1 else words or word + 's'}"


def shorten(text: str, max_chars: int) -> str:
    """Return the text, or its beginning up to a word with an ellipsis."""
    if len(text) <= max_chars:
        return text
    head = text[: max(0, max_chars - 1)]
    if not text[len(head)].isspace() and " " in head:
        head = head[: head.rindex(" ")]
    return f"{head.rstrip(' ,;:-(')}\u2026" if max_chars > 0 else ""


# -- The words of a passage.


# How much a word counts in each field.
_IN_TITLE = 2.0
_IN_TEXT = 1.0
_IN_PLACES = 0.5
FIELD_WEIGHTS = (_IN_TITLE, _IN_TEXT, _IN_PLACES, 0.0)  # facets count nothing


# The number of tokens of a passage without its places, and in all. An empty field counts as one.
PassageSize = tuple[int, int]


class PassageWords:
    """The tokens of a passage as one string, each between blanks: the title, from `text_at` on the
    text, from `places_at` on the places."""

    __slots__ = ("_distinct", "padded", "places_at", "size", "text_at")

    def __init__(self, title: str, text: str, places: str) -> None:
        """Take the tokens of each field, separated by blanks."""
        self.padded = f" {title}  {text}  {places} "
        self.text_at = len(title) + 2
        self.places_at = self.text_at + len(text) + 2
        length = title.count(" ") + text.count(" ") + 2
        self.size: PassageSize = length, length + places.count(" ") + 1
        self._distinct = -1

    @property
    def distinct(self) -> int:
        """The number of different tokens."""
        if self._distinct < 0:
            self._distinct = len({*self.padded.split()})
        return self._distinct

    def times(self, words: Iterable[str]) -> list[float]:
        """Return how often each of these words occurs, weighted by field."""
        padded = self.padded
        found = list[float]()
        for word in words:
            many = 0.0
            if (needle := f" {word} ") in padded:
                many = _IN_TEXT * padded.count(needle, self.text_at, self.places_at)
                many += _IN_TITLE * padded.count(needle, 0, self.text_at)
                many += _IN_PLACES * padded.count(needle, self.places_at)
            found.append(many)
        return found
