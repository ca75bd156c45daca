"""Secrets that a name announces: `password = "..."`, `the password for x is ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ralph.text.secrets import compiled, decoded, likeness, lower, random_looking, word_set
from ralph.text.secrets import pattern as shape
from ralph.text.tokens import table


@cache
def rule(section: str) -> re.Pattern[str]:
    """Return one pattern for all rows of a section of `assignments.txt`."""
    return compiled("|".join(table(__file__, "assignments.txt")[section]))


# -- Tests on a single value: is it a placeholder, is it made of words, is it random?


# How much a value must look like a secret to count as one: little after "password", a lot after
# "key".
PASSWORD, SECRET, TOKEN, KEY = range(4)


def filler(value: str) -> bool:
    """Whether a value only stands in for a secret: a placeholder, reference, template or path."""
    if not any(map(str.isalnum, value)) or rule("filler").match(value):
        return True
    if value.lower().endswith(("here", "example")) and wordy(value):
        return True
    if rule("template").search(value):
        return True
    # A password may contain "%s" too; between words it is a template.
    return "%s" in value and wordy(value.replace("%s", " "))


def wordy(value: str) -> bool:
    """Whether a value is made of words, small numbers and names of algorithms."""
    return all(
        (part.isalpha() and camel(part))
        or (part.isdigit() and len(part) <= 4)
        or rule("known").match(part)
        for part in compiled(r"[\s\-_./:,;()\[\]{}|'\"<>\\]+").split(value)
        if part
    )


def camel(part: str) -> bool:
    """Whether letters read as a word, or as several run together, not as a random mix."""
    if len(part) >= 12:
        return likeness(part) > -0.5
    return len(part) >= 3 * (len(compiled(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|.").findall(part)) - 1)


def jumbled(value: str) -> bool:
    """Whether letters change their case too often for a name of several words."""
    pieces = compiled(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+").findall(value)
    if not value.isalpha() or len(value) < 8 or len(pieces) < 3:
        return False
    return len(value) < 3 * (len(pieces) - 1) or likeness(value) < -0.4


def plausible(tier: int, value: str, how: str) -> bool:
    """Whether the value after a telling name is a secret, given `how` it was written.

    quoted: a string literal.
    literal: surely the value itself (environment file, flag, tag).
    line: bare, alone on its line with its name; variable: the same, and the name is UPPER_CASE.
    pair: in a query or a connection string. named: after a key's own name, such as stripe_key.
    prose: the end of a sentence. bare: maybe code. loose: a string somewhere near.
    """
    if filler(value):
        return False
    code = how in ("bare", "line", "variable")
    if code and rule("reference").match(value) and not _random_part(value):
        return False
    # A value with a number is a variable only in the middle of code: `login(password=pass2)`.
    numbered = how != "bare" and any(map(str.isdigit, value))
    if (code or how == "pair") and not numbered and rule("alias").match(value):
        return False
    one = " " not in value
    letters = value.isalpha()
    strong = one and not wordy(value)
    mixed = strong and not letters and any(map(str.isalpha, value))
    if how == "loose" and ("/" in value or not (mixed and any(map(str.isdigit, value)))):
        return tier == PASSWORD and jumbled(value)
    if tier == PASSWORD:
        return _plausible_password(value, how, mixed)
    if tier == SECRET:
        if how == "literal":
            return len(value) >= 6 and one
        weak = how == "quoted" and len(value) >= 8 and one and not rule("own").search(value)
        return len(value) >= 6 and (mixed or weak)
    if tier == TOKEN:
        least = 8 if how in ("literal", "quoted") else 16
        if not one or len(value) < least:
            return random_looking(value, 10)
        return mixed or (strong and (len(value) >= 24 or (len(value) >= 16 and jumbled(value))))
    return _plausible_key(value, how)


def _random_part(value: str) -> bool:
    """Whether a part between dots is no name that code would have."""
    return any(random_looking(part, 6) and not part.isalpha() for part in value.split("."))


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
        if how in ("quoted", "literal") and rule("phrase").match(value):
            return True
        words = value.removesuffix("?").split()  # a form asks "Forgot your password?"
        return how != "loose" and any(len(word) >= 6 and not wordy(word) for word in words)
    if how == "literal":
        return len(value) >= 3
    if how == "quoted":
        return len(value) >= 4 and not (wordy(value) and "passw" in value.lower())
    if (len(value) >= 5 and mixed) or (value.isdigit() and len(value) >= 6):
        return True
    if how == "loose" or how == "bare" or not value.islower():
        return jumbled(value)
    if value.isalpha():
        said = how == "prose" and rule("said").match(value)
        least = 8 if how == "line" else 4
        return len(value) >= least and not said and not rule("prose end").search(value)
    # Words joined by a hyphen, or followed by a number, are not a variable name.
    joined = compiled(r"[a-z]+(?:-[a-z0-9]+)+\Z|[a-z]+[_.][0-9]{2,}\Z").match(value)
    return bool(joined) and not compiled(r"pass|secret|token|key|name|user|ref").search(value)


Span = tuple[int, int, str]

# How many rejected values to try in one run of characters, and how much of a value to check.
_REFUSALS = 32
_LOOKED_AT = 512

# These do not count at the end of a longer word.
_SHORT = "clave chave senha sifre sandi parola klucz jeton mdp haslo heslo clé passe".split()


def named(text: str, lowered: str) -> Iterator[Span]:
    """Yield the values of telling names that are plausible secrets."""
    yield from _named(text, lowered, "name")
    if not text.isascii() and rule("foreign letter").search(lowered):
        yield from _named(text, lowered, "foreign name")


def _named(text: str, lowered: str, section: str) -> Iterator[Span]:
    done = run_end = refused = 0
    for match in rule(section).finditer(lowered):
        first = match.start()
        at = match.end()
        if first < done or at == len(text) or text[at] in "${([<,;)}]":
            continue
        if match["word"] == "pwd" and text[at] in "/~":  # a shell's current folder
            continue
        if match["word"] in _SHORT and not compiled(r"(?:\A|[\W_]|motde)\Z").search(
            lowered[max(0, first - 5) : first]
        ):
            continue
        # A bare space leads to a value only after a flag, or when the value is quoted or strong.
        bare = match.lastgroup == "blank" and text[at] not in "\"'`\\"
        if bare and not _is_flag(text, first) and not rule("likely").match(text, at):
            continue
        # A run of characters holds few names; one made only of names must not take quadratic time.
        if at >= run_end:
            run_end = _run_end(text, at, wide=True, limit="")
            refused = 0
        if refused < _REFUSALS and (span := _value(text, match)):
            done = span[1]
            yield span
        else:
            refused += 1


# How far before a value the name of its service may begin.
_SERVICE_REACH = 60
# After a service's name: what is public.
_PUBLIC_NAME = (
    r"(?:id|sha\d*|hash|digest|commit|version|rev|ref|number|url|host|tag|checksum|user|name|account"
    r"|zone|org|team|project|app|trace|span|event|build|job|channel|guild|message|dsn)s?[^a-z0-9]*\Z"
)


def of_services(text: str, lowered: str, words: list[tuple[int, str]]) -> Iterator[Span]:
    """Yield keys that only the name of a service announces; `words` are those to look at."""
    done = 0
    for at, word in words:
        start = max(done, at - _SERVICE_REACH)
        for match in _service().finditer(lowered, start, at + len(word)):
            first, done = match.span("v")
            value = text[first:done]
            if compiled(_PUBLIC_NAME).search(match["rest"]) or filler(value):
                continue
            if _can_only_be_a_key(value):
                yield first, done, "api-key"


def _can_only_be_a_key(value: str) -> bool:
    if compiled(r"[0-9A-Fa-f]{24,}\Z").match(value) or shape("uuid").match(value):
        return True
    return any(map(str.isdigit, value)) and random_looking(value, 15)


@cache
def _service() -> re.Pattern[str]:
    names = "|".join(sorted(word_set("services")))
    value = r"(?P<v>[\w=-]{15,128})(?![\w=-])"
    return compiled(
        rf"(?<![a-z0-9])(?:{names})(?P<rest>[ \t\w.-]{{0,20}})['\"\\\s]{{0,3}}"
        rf"(?:=>|:{{0,3}}=|[?=]=|\|\||:|>|,)[\s'\"=`]{{0,5}}{value}"
    )


def _is_flag(text: str, at: int) -> bool:
    return bool(rule("flag").search(text[max(0, at - 60) : at]))


def member(name: str, value: str) -> str | None:
    """Return the kind of secret that this value is under this name, or None."""
    for section in ("name", "foreign name"):
        match = rule(section).search(lower(name) + "=")
        if match and _own_word(name, match) and not rule("harmless").search(name):
            tier, kind = _tier(match["word"], name, name)
            if plausible(tier, value, "quoted"):
                return kind
    return None


def _tier(word: str, name: str, before: str) -> tuple[int, str]:
    if word.startswith(("pass", "pw", "psk")):
        return PASSWORD, "password"
    if word == "secret":
        return SECRET, "secret"
    if word in ("key", "auth", "pat"):
        if word == "key" and rule("strong key").search(before.lower()):
            return SECRET, "aws-secret-key" if "aws" in name.lower() else "api-key"
        return KEY, "high-entropy"
    if word.startswith(("token", "cred", "php", "jsess")) or rule("foreign token").match(word):
        return TOKEN, "token"
    if rule("foreign key").match(word):
        return (SECRET if "api" in before.lower() else TOKEN), "api-key"
    return PASSWORD, "password"


# What "pass" is joined to when it means a password.
_BEFORE_PASS = ("db", "ssh", "smb", "ftp", "smtp", "mail", "user", "root", "admin", "store", "key")


def _own_word(text: str, match: re.Match[str]) -> bool:
    """Whether "pass" is a word of its own and is given a value: not "bypass", not "pass `x`"."""
    if match["word"] != "pass":
        return True
    at = match.start()
    if match.end("word") != match.start("close") or match.lastgroup not in ("assign", "argument"):
        return False
    if at == 0 or not text[at - 1].isalpha() or (text[at] == "P" and text[at - 1].islower()):
        return True
    return text[max(0, at - 5) : at].lower().endswith(_BEFORE_PASS)


def _value(text: str, match: re.Match[str]) -> Span | None:
    first = match.start()
    sep = text[match.end("close") : match.end()]
    start = first
    while start and first - start < 64 and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    name = text[start : match.end("word")]
    if not _own_word(text, match) or rule("harmless").search(name):
        return None
    if text.endswith(":", 0, start) and (sep == ":" or match["close"]):
        return None  # part of a longer name, of a resource or a type
    at, end, how = _written(text, match, start, name)
    value = text[at:end]
    bare = at == match.end()
    if bare and not name.startswith("-"):
        value = value.rstrip(",;" if how == "literal" else ".,;:。，；")
    around = text[max(0, first - 20) : match.end("word")]
    if text[match.end("word") : match.start("close")].lower().endswith("api"):
        around = f"api {around}"
    tier, kind = _tier(match["word"], name, around)
    if "\n" in value:
        return None
    vague = match.lastgroup in ("blank", "path") or (match.lastgroup == "cell" and tier != PASSWORD)
    if vague and bare and how == "loose" and tier != PASSWORD:
        hidden = tier != KEY and compiled(r"[0-9a-f]{32,}\Z").match(value)
        if not hidden and not random_looking(value, 12 if tier != KEY else 20):
            return None
    if name.lower() == "pass" and how != "literal":  # test reports say "pass" too
        if (
            bare
            and how != "line"
            and sep not in ("=", " = ", ":")
            and (name.isupper() or sep != ": ")
        ):
            return None
        how = "loose"
    own = match["word"] == "auth" or len(name) > len(match["word"]) + 1
    if tier == KEY and own and how not in ("loose", "bare"):
        how = "named"
    if how == "prose" and not rule("sentence end").match(text, at + len(value)):
        how = "loose"
    if not plausible(tier, value[:_LOOKED_AT], how):
        return None
    # A value that is too long to check as a whole is still removed as a whole.
    whole = _run_end(text, at, wide=False, limit="") if len(value) == _LOOKED_AT else at
    return at, max(whole, at + len(value)), kind


def _written(text: str, match: re.Match[str], start: int, name: str) -> tuple[int, int, str]:
    """Return where the value begins and ends, and how it is written (see `plausible`)."""
    lead = match.lastgroup
    at = match.end()
    sep = text[match.end("close") : at]
    flag = name.startswith("-") or (lead == "blank" and _is_flag(text, match.start()))
    env = sep == "=" and name.isupper()
    quote = compiled(
        r"([\w.:]{3,40}\()?[rbufenRBUFENL@$]{0,2}(\\{0,9})(\"\"\"|'''|[\"'`]|"
        r"(?<=\\)u0022|(?<=\\)x22|%22|&quot;|&#34;|&#x22;)"
    ).match(text, at)
    if quote and compiled(r"(?i)\w*(?:env|get|read|input|prompt|load)").search(quote[1] or ""):
        return at, at, "loose"  # a call that fetches the value
    if quote and not (env and quote[3] == "`"):  # which would run a command
        sure = lead in ("assign", "value", "default", "instead", "typed", "prose")
        sure = sure and not quote[1] and not sep.endswith("[")
        sure = sure or (lead == "blank" and text.endswith("#define ", 0, start))
        if lead == "call":
            sure = name.lower().startswith(("set", "with", "bearer", "basic", "api"))
        elif lead == "argument":
            sure = bool(rule("setter").search(text, max(0, start - 60), match.start()))
        how = "literal" if flag or env else "quoted" if sure else "loose"
        return quote.end(), _closing(text, quote), how
    if sep.endswith("["):  # a long string of Lua
        return at, _run_end(text, at, wide=False), "quoted"
    if lead in ("tag", "plist"):
        tag = lead == "plist" or text.endswith(("<", ":", 'name="', 'key="'), 0, start)
        return at, max(at, text.find("<", at, at + 200)) if tag else at, "literal"
    if flag or env or lead == "value":
        prose = flag and rule("after flag").match(text, at)
        wide = flag or not start or text[start - 1] in "\n "
        return at, at if prose else _run_end(text, at, wide=wide), "literal"
    if lead == "prose":
        told = not sep.strip().startswith("to")
        return at, _run_end(text, at, wide=told), "prose" if told else "loose"
    if lead not in ("assign", "default", "block") or "->" in sep or "→" in sep:
        end = _run_end(text, at, wide=False)
        slash = text.find("/", at, end) if lead == "path" else -1
        return at, slash if slash >= 0 else end, "loose"
    if lead == "assign" and sep == "=" and start and text[start - 1] in "&?; =\"'":
        end = _run_end(text, at, wide=False)
        if text[start - 1] in "&?;" or text[end : end + 1] in ("", " ", "\n", '"', "'"):
            return at, end, "pair"
    end = _run_end(text, at, wide=True)
    begins = text[max(0, start - 40) : start].rpartition("\n")[2].strip(" \t-+>\"'#$*")
    if not begins and compiled(r"[ \t]*(?:#.*)?(?:\r?\n|\\n|\Z)").match(text, end):
        variable = sep.strip() == ":" and "_" in name and name.isupper()
        return at, end, "variable" if variable else "line"
    end = _run_end(text, at, wide=False)
    return at, at if text[end : end + 1] in ("(", "[", "{") else end, "bare"


def _closing(text: str, quote: re.Match[str]) -> int:
    """Return where a string literal ends; an unclosed one ends with its word."""
    at = quote.end()
    if quote[2] or len(quote[3]) >= 3:
        end = text.find(quote[2] + quote[3], at, at + 4096)
    else:
        body = compiled(rf"(?:[^{quote[3]}\\\n]|\\.)*").match(text, at)
        end = body.end() if body and text.startswith(quote[3], body.end()) else -1
    return end if end >= 0 else _run_end(text, at, wide=True)


def _run_end(text: str, at: int, *, wide: bool, limit: str = str(_LOOKED_AT)) -> int:
    stop = r"\s\"'`\\\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7af\uff01-\uff5e"
    stop += "" if wide else r",;&|<>()\[\]{}"
    run = compiled(rf"(?:[^{stop}]|\\(?![nrt\"'u])){{0,{limit}}}").match(text, at)
    return run.end() if run else at
