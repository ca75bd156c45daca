"""Tests on a single value: does it stand for a secret, is it made of words, is it random?"""

from __future__ import annotations

from ralph.text.randomness import decoded, random_looking
from ralph.text.secrets import compiled

# How much a value must look like a secret before it is taken for one: after "password" little,
# after "key" very much.
PASSWORD, SECRET, TOKEN, KEY = range(4)

# What stands where a secret would: references and templates of shells and languages, dots and
# crosses, instructions to the reader, places in a configuration, addresses and paths, dates and
# versions, types and words.
_FILLER = (
    r"(?i)(?:[<\[{(].*[>\]})]\Z|\{\{|\$[{($]|\$[a-z_]+\d{0,2}\Z|\$\d\Z|[%@:*&!][a-z_.]+[%!]?\Z|%\("
    r"|#\{|\\[sdw.]|\.{3}|…|(?:[x*.•?#_\-]|0(?=0))+0?\Z|x{4}[x-]"
    r"|your(?:[-_ ]|\w*(?:key|token|pass|secret|here))"
    r"|(?:replace|change)[-_ ]?(?:me|it|this|with)(?!\d)"
    r"|(?:insert|enter|placeholder|redacted|dummy|example)(?:[-_. ]|\Z)"
    r"|process\.env|import\.meta\.env|os\.(?:environ|getenv)"
    r"|(?:env|secrets|vars?|config|settings|self|this)\.|[au]rn:"
    r"|[a-z][a-z0-9+.-]*://|~?\.{0,2}/(?:[a-z_.]+/)|[a-z]:\\"
    r"|\d{4}-\d\d-\d\d|v?\d+(?:\.\d+)+\w{0,4}\Z"
    r"|(?:none|null|nil|undefined|true|false|yes|no|str|string|bytes|bool|int|any|object|text|hidden"
    r"|password|passwd|passphrase|pass|pwd|token|api[-_]?key|credentials?|empty|required|optional"
    r"|n/a|todo|tbd)\Z)"
)
_TEMPLATE = r"\$\{|\{\{|#\{|\{\w*\}|%\(\w+\)s|<[a-z _-]+>|\\[wWdDsS]"
# Words with a number in them: algorithms, encodings, types.
_KNOWN = (
    r"(?i)(?:(?:sha|md|base|utf|aes|rsa|ed|[hrep]s|oauth|argon|pbkdf|hmac|http|ipv|ec|web|python|py"
    r"|iso|latin|int|str|pkcs|aws)\d{1,5}[a-z]{0,20}|[bhiklpsuvx]\d{1,3})\Z"
)
# Code: an attribute, a call, an item; a variable named like what it holds.
_REFERENCE = r"\*?[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+\Z|[A-Za-z_][\w.]*[\[(]"
_OWN_NAME = (
    r"(?i)[a-z_]*(?:pass|passwd|password|passphrase|pwd|pw|token|secret|key|auth|cred)s?\d?\Z"
)
_PROSE_END = r"(?:ed|ing|ion|nal|ect|able|ible|less|ive|ent|ure|ry|ty|ly|words?|ters?|tials?)\Z"
_PHRASE = r"(?!.*\b(?:the|an?|your|is|must|be|for|to|of|enter)\b)[a-z]+(?: [a-z]+){3,9}\Z"


def filler(value: str) -> bool:
    """Whether a value only stands for a secret: a placeholder, a reference, a template, a path."""
    if not any(map(str.isalnum, value)) or compiled(_FILLER).match(value):
        return True
    if value.lower().endswith(("here", "example")) and wordy(value):
        return True
    if compiled(_TEMPLATE).search(value):
        return True
    # "%s" may stand in a password too; between words it is a template.
    return "%s" in value and wordy(value.replace("%s", " "))


def wordy(value: str) -> bool:
    """Whether a value is made of words, small numbers and names of algorithms."""
    return all(
        (part.isalpha() and camel(part))
        or (part.isdigit() and len(part) <= 4)
        or compiled(_KNOWN).match(part)
        for part in compiled(r"[\s\-_./:,;()\[\]{}|'\"<>\\]+").split(value)
        if part
    )


def camel(part: str) -> bool:
    """Whether letters read as a word or as words run together, not as a random mixture."""
    humps = compiled(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|.").findall(part)
    return len(part) >= 3 * (len(humps) - 1) and max(map(len, humps)) <= 24


def plausible(tier: int, value: str, how: str) -> bool:
    """Whether the value after a telling name is a secret, given how it was written down.

    quoted: a string literal; phrase: so, and the name is "passphrase".
    literal: surely the value itself (environment file, flag, tag).
    line: bare, alone on its line with its name; variable: so, and the name is UPPER_CASE.
    bare: maybe code. loose: a string somewhere near.
    """
    if how == "phrase":
        if compiled(_PHRASE).match(value):
            return True
        how = "quoted"
    if filler(value):
        return False
    if how in ("bare", "line", "variable") and compiled(_REFERENCE).match(value):
        return False
    # A number makes it a variable only where there is code around it: `login(password=pass2)`.
    numbered = how != "bare" and any(map(str.isdigit, value))
    if how in ("bare", "line", "variable") and not numbered and compiled(_OWN_NAME).match(value):
        return False
    one, letters = " " not in value, value.isalpha()
    strong = one and not wordy(value)
    mixed = strong and not letters and any(map(str.isalpha, value))
    if how == "loose" and ("/" in value or not (mixed and any(map(str.isdigit, value)))):
        return False
    if tier == PASSWORD:
        return _plausible_password(value, how, mixed)
    if tier == SECRET:
        if how == "literal":
            return len(value) >= 8 and one
        return len(value) >= 6 and (mixed or (how == "quoted" and len(value) >= 12 and letters))
    if tier == TOKEN:
        least = 8 if how in ("literal", "quoted") else 16
        return len(value) >= least and (mixed or (strong and len(value) >= 24))
    if how == "literal" and compiled(r"[0-9A-Fa-f]{32,}\Z").match(value):
        return True
    return random_looking(value.removeprefix("base64:"), 20) or (
        how == "quoted" and len(value) >= 8 and ":" in (decoded(value) or "")
    )


def _plausible_password(value: str, how: str, mixed: bool) -> bool:
    if " " in value:
        return how != "loose" and any(len(w) >= 6 and not wordy(w) for w in value.split())
    if how == "literal":
        return len(value) >= 3
    if how == "quoted":
        return len(value) >= 4 and not (wordy(value) and "passw" in value.lower())
    if how in ("line", "variable") and value.isalpha():
        return (
            len(value) >= (8 if how == "line" else 4)
            and value.islower()
            and not compiled(_PROSE_END).search(value)
        )
    return (len(value) >= 5 and mixed) or (value.isdigit() and len(value) >= 6)
