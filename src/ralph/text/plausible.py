"""Tests on a single value: does it stand for a secret, is it made of words, is it random?"""

from __future__ import annotations

from ralph.text.randomness import decoded, likeness, random_looking
from ralph.text.secrets import compiled

# How much a value must look like a secret before it is taken for one: after "password" little,
# after "key" very much.
PASSWORD, SECRET, TOKEN, KEY = range(4)

# What stands where a secret would: references and templates of shells and languages, dots and
# crosses, instructions to the reader, places in a configuration, addresses and paths, dates and
# versions, types and words.
_FILLER = (
    r"(?i)(?:[<\[{(].*[>\]})]\Z|\{\{|\$[{($]|\$[a-z_]+\d{0,2}\Z|\$\d\Z|[%@:*&!][a-z_.]+[%!]?\Z|%\("
    r"|#\{|\\[sdw.]|(?:[a-z]{2,12}[-_]){0,3}(?:\.{3}|…|x{4}|\*{3})|(?:[x*.•?#_\-]|0(?=0))+0?\Z"
    r"|your(?:[-_ ]|\w*(?:key|token|pass|secret|here))"
    r"|(?:replace|change)[-_ ]?(?:me|it|this|with)(?!\d)"
    r"|(?:insert|enter|placeholder|redacted|dummy|example)(?:[-_. ]|\Z)"
    r"|process\.env|import\.meta\.env|os\.(?:environ|getenv)|[\w.@]+[\[(]\Z"
    r"|(?:env|secrets|vars?|config|settings|self|this|local|data|module|random_\w+)\.[a-z_]"
    r"|(?:[au]rn|vault|file|ssm|env|keychain):"
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
    r"|iso|latin|u?int|str|pkcs|aws|field|step|test|version)\d{1,5}[a-z]{0,20}|[bhiklpsuvx]\d{1,3})\Z"
)
# Code: an attribute, a call, an item; a variable named like what it holds.
_REFERENCE = r"\*?[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)+\Z|[A-Za-z_][\w.]*[\[(]"
_OWN_NAME = (
    r"(?i)[a-z_]*(?:pass|passwd|password|passphrase|pwd|pw|token|secret|key|auth|cred)s?\d?\Z"
)
_OWN = r"(?i)pass|secret|token|key|auth|cred|name|value|string|client"
_PROSE_END = r"(?:ed|ing|ion|nal|ect|able|ible|less|ive|ent|ure|ry|ty|ly|words?|ters?|tials?)\Z"
# What people say of a password, besides what it is.
_SAID = (
    r"(?:the|an?|my|your|his|her|its?|our|their|this|that|what|not|no|so|too|very|just|only|also|now|still"
    r"|never|always|here|there|wrong|right|valid|invalid|weak|strong|long|short|safe|ok|okay|fine|good|bad"
    r"|blank|same|known|unknown|hidden|plain|set|sent|kept|shown|null|used|stale|gone|lost|leaked|public"
    r"|private|broken|random|unique|done|read|typed|stored|saved|given|taken|bogus|fake|real|none|nothing"
    r"|something|everything|anything|missing|case|up|down|out|off|on|in|at|by|of|to|for|from|with|as|if|or)\Z"
)
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
    if len(part) >= 12:
        return likeness(part) > -0.5
    humps = compiled(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|.").findall(part)
    return len(part) >= 3 * (len(humps) - 1)


def plausible(tier: int, value: str, how: str) -> bool:
    """Whether the value after a telling name is a secret, given how it was written down.

    quoted: a string literal; phrase: so, and the name is "passphrase".
    literal: surely the value itself (environment file, flag, tag).
    line: bare, alone on its line with its name; variable: so, and the name is UPPER_CASE.
    pair: in a query or a connection string. named: after a key's own name, such as stripe_key.
    prose: the end of a sentence. bare: maybe code. loose: a string somewhere near.
    """
    if how == "phrase":
        if compiled(_PHRASE).match(value):
            return True
        how = "quoted"
    if filler(value):
        return False
    code = how in ("bare", "line", "variable")
    if code and compiled(_REFERENCE).match(value):
        return False
    # A number makes it a variable only where there is code around it: `login(password=pass2)`.
    numbered = how != "bare" and any(map(str.isdigit, value))
    if (code or how == "pair") and not numbered and compiled(_OWN_NAME).match(value):
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
            return len(value) >= 6 and one
        weak = how == "quoted" and len(value) >= 8 and one and not compiled(_OWN).search(value)
        return len(value) >= 6 and (mixed or weak)
    if tier == TOKEN:
        least = 8 if how in ("literal", "quoted") else 16
        if not one or len(value) < least:
            return random_looking(value, 10)
        return mixed or (strong and len(value) >= 24)
    return _plausible_key(value, how)


def _plausible_key(value: str, how: str) -> bool:
    digits = {"named": 16, "literal": 32, "pair": 32}.get(how)
    if digits and compiled(rf"[0-9A-Fa-f]{{{digits},}}\Z").match(value):
        return True
    least = {"named": 12, "pair": 16, "literal": 16}.get(how, 20)
    return random_looking(value.removeprefix("base64:"), least) or (
        how in ("named", "quoted") and len(value) >= 8 and ":" in (decoded(value) or "")
    )


def _plausible_password(value: str, how: str, mixed: bool) -> bool:
    if " " in value:
        return how != "loose" and any(len(w) >= 6 and not wordy(w) for w in value.split())
    if how == "literal":
        return len(value) >= 3
    if how == "quoted":
        return len(value) >= 4 and not (wordy(value) and "passw" in value.lower())
    if (len(value) >= 5 and mixed) or (value.isdigit() and len(value) >= 6):
        return True
    if how == "loose" or how == "bare" or not value.islower():
        return False
    if value.isalpha():
        said = how == "prose" and compiled(_SAID).match(value)
        least = 8 if how == "line" else 4
        return len(value) >= least and not said and not compiled(_PROSE_END).search(value)
    # Words that a hyphen joins are no name of a variable, nor are those with a number.
    joined = compiled(r"[a-z]+(?:-[a-z0-9]+)+\Z|[a-z]+[_.][0-9]{2,}\Z").match(value)
    return bool(joined) and not compiled(r"pass|secret|token|key|name|user|ref").search(value)
