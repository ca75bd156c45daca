"""Porter's stemmer (1980), so that `failed`, `fails` and `failing` are one word.

Written from the published description: a word is [C](VC)^m[V]; each step takes the longest ending
it knows and replaces it when what stays before it is long enough (its measure m).
"""

from __future__ import annotations

import re

# A word is mapped to c (consonant) and v (vowel) once; y is a vowel after a consonant.
_VOWELS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "vcccvcccvcccccvcccccvcccyc")
_Y_AFTER_CONSONANT = re.compile(r"(?<=c)y")

_STEP_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "abli": "able",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
}
_STEP_3 = {
    "icate": "ic",
    "ative": "",
    "alize": "al",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4 = dict.fromkeys(
    (
        "al",
        "ance",
        "ence",
        "er",
        "ic",
        "able",
        "ible",
        "ant",
        "ement",
        "ment",
        "ent",
        "ion",
        "ou",
        "ism",
        "ate",
        "iti",
        "ous",
        "ive",
        "ize",
    ),
    "",
)


def stem(word: str) -> str:
    """The stem of one lower-case ASCII word; anything else comes back as it is."""
    if len(word) < 3 or not (word.isascii() and word.isalpha() and word.islower()):
        return word
    word = _plurals(word)
    word = _past_and_progressive(word)
    if word[-1] == "y" and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2, 1)
    word = _replaced(word, _STEP_3, 1)
    word = _replaced(word, _STEP_4, 2)
    return _tidied(word)


def _shape(word: str) -> str:
    shape = word.translate(_VOWELS)
    return _Y_AFTER_CONSONANT.sub("v", shape).replace("y", "c") if "y" in shape else shape


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y (as in hop, not in snow)."""
    return word[-1] not in "wxy" and _shape(word)[-3:] == "cvc"


def _plurals(word: str) -> str:
    if word[-1] != "s":
        return word
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word if word.endswith("ss") else word[:-1]


def _past_and_progressive(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    if word.endswith("ed"):
        rest = word[:-2]
    elif word.endswith("ing"):
        rest = word[:-3]
    else:
        return word
    if "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 1 and rest[-1] == rest[-2] and rest[-1] not in "aeioulsz":
        return rest[:-1]
    if _measure(rest) == 1 and _ends_short(rest):
        return rest + "e"
    return rest


def _replaced(word: str, endings: dict[str, str], least: int) -> str:
    for size in range(min(7, len(word) - 1), 1, -1):
        ending = word[-size:]
        if ending in endings:
            rest = word[:-size]
            fits = _measure(rest) >= least and (ending != "ion" or rest[-1] in "st")
            return rest + endings[ending] if fits else word
    return word


def _tidied(word: str) -> str:
    if word[-1] == "e":
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
