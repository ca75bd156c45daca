"""Secrets that a telling name or a command announces: `password = "..."`, `curl -u user:...`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ralph.text.plausible import KEY, PASSWORD, SECRET, TOKEN, filler, plausible
from ralph.text.randomness import random_looking
from ralph.text.secrets import COMMANDS, compiled, lower

Span = tuple[int, int, str]

# How many refused values in one run of characters, and how much of a value, are looked at.
_REFUSALS = 32
_LOOKED_AT = 512

_STRONG_KEY = (
    r"(?:api|access|secret|private|auth|account|encrypt|encryption|signing|master|shared|storage|app"
    r"|subscription|admin|deploy|service|webhook|jwt|application|consumer|client)[_\- ]?key\Z"
)
# Sought in lower-cased text: the name's last word, what closes it, what leads to the value. Every
# word begins with a letter, not with a condition: that makes the search seven times as fast.
_NAME = (
    r"(?P<word>pass(?:word|phrase|wd|code)?|pwd|pw(?<![a-z]pw)|psk|secret|token|credentials?|key"
    r"|auth(?<![a-z]auth)|phpsessid|jsessionid)"
    r"(?:[_-]?(?:prod(?:uction)?|dev|test|staging|live|value|base|confirmation|plain|\d{1,2}))?"
    r"(?P<close>(?:\\{0,3}[\"'`]\]?|\*\*)?)(?P<sep>"
    # =, :, with a type or an owner between, percent-encoded, bold
    r"[ \t]{0,8}(?:[ \t]string|[ \t]for[ \t][^\s:=]{1,40})?(?:=>|:=|={1,3}|!==?|\?=|%3d|%3a(?:%20)?"
    r"|:(?:\*\*)?[ \t]{0,4}(?:(?:str|string|bytes|any|optional\[\w+\]|secretstr|final)"
    r"(?:[ ]?\|[ ]?\w+)?[ \t]{0,4}=)?)[ \t]{0,40}"
    # "name": "...", "value": and its like in YAML and HTML
    r"|,?\s{0,40}\\{0,3}[\"']value\\{0,3}[\"'][ \t]{0,8}:[ \t]{0,8}"
    r"|\s{1,40}value(?::[ \t]|=(?=[\"']))"
    # prose, tables, arguments, tags, flags
    r"|[ \t]{1,4}(?:is|was|to)(?: now| set to| changed to)?[ \t]{0,2}:?[ \t]{1,4}"
    r"|[ \t]{1,40}\|[ \t]{1,40}"
    r"|[ \t]*,[ \t]*(?=\\*[\"'])|\([ \t]*(?=\\*[\"'])|>(?=[^<\s])|[ \t]{1,4}(?=[^\s\-]))"
)
# Tokens and keys that page, count or identify, and open nothing.
_HARMLESS = (
    r"(?i)(?:next|page|paging|continuation|starting|change|update|client|request|idempotency|sync"
    r"|cancel\w*|eos|bos|pad|unk|stop|last|prev\w*|current|public|primary|foreign|partition|sort"
    r"|lock|sequence|pagination|publickey|next\w{0,12})[_-]?(?:token|key)\Z|ask_?pass\Z"
)
_LONG = r"(?=[^\s/]{0,19}\d)[^\s/]{20}"
_AFTER_FLAG = (
    r"(?:[A-Z_]+|option|flag|argument|param\w*|is|was|and|or|to|in|for|from|with|on|if|when|as|by"
    r"|via|the|an?|are|can|will|must|should|instead|value|file|prompt)(?![\w-])"
)


def named(text: str, lowered: str) -> Iterator[Span]:
    """The values of telling names, as far as they are plausible secrets."""
    done = run_end = refused = 0
    for match in compiled(_NAME).finditer(lowered):
        first, at = match.start(), match.end()
        if first < done or at == len(text) or text[at] in "${([<,;)}]":
            continue
        if match["word"] == "pwd" and text[at] in "/~":  # where a shell stands
            continue
        # A bare space leads to a value only after a flag, or when the value is quoted or random.
        if match["sep"].isspace() and text[at] not in "\"'`\\":
            name = lowered[max(0, first - 40) : first]
            if "--" not in name and "env " not in name and not compiled(_LONG).match(text, at):
                continue
        # One run of characters holds few names; one made of names alone must not cost a square.
        if at >= run_end:
            run_end, refused = _run_end(text, at, wide=True, limit=""), 0
        if refused < _REFUSALS and (span := _value(text, match)):
            done = span[1]
            yield span
        else:
            refused += 1


def commands(text: str, lowered: str) -> Iterator[Span]:
    """Passwords given by position, as `curl -u`, `.netrc` and SQL do."""
    flags = " -" in text
    for kind, hint, pattern, tool in COMMANDS:
        if (tool and not flags) or hint not in lowered:
            continue
        for match in compiled(pattern).finditer(text if tool else lowered):
            command = re.split(r"[\n;|&]", lowered[max(0, match.start() - 400) : match.start()])[-1]
            if (not tool or hint in command) and not filler(match["v"]):
                yield *match.span("v"), kind


def member(name: str, value: str) -> str | None:
    """The kind of secret that this value is under this name, if it is one."""
    match = compiled(_NAME).search(lower(name) + "=")
    if match is None or not _own_word(name, match) or compiled(_HARMLESS).match(name):
        return None
    tier, kind = _tier(match["word"], name, name)
    how = "phrase" if match["word"] == "passphrase" else "quoted"
    return kind if plausible(tier, value, how) else None


def _tier(word: str, name: str, before: str) -> tuple[int, str]:
    if word.startswith(("pass", "pw", "psk")):
        return PASSWORD, "password"
    if word == "secret":
        return SECRET, "secret"
    if word not in ("key", "auth"):
        return TOKEN, "token"
    if word == "key" and compiled(_STRONG_KEY).search(before.lower()):
        return SECRET, "aws-secret-key" if "aws" in name.lower() else "api-key"
    return KEY, "high-entropy"


def _own_word(text: str, match: re.Match[str]) -> bool:
    """Whether "pass" is a word of its own and is given a value: not "bypass", not "pass `x`"."""
    if match["word"] != "pass":
        return True
    at = match.start()
    if match.end("word") != match.start("close") or not match["sep"].strip().endswith(("=", ":")):
        return False
    if at == 0 or not text[at - 1].isalpha() or (text[at] == "P" and text[at - 1].islower()):
        return True
    return text[max(0, at - 5) : at].lower().endswith(("db", "user", "root"))


def _value(text: str, match: re.Match[str]) -> Span | None:
    first, sep = match.start(), match["sep"]
    start = first
    while start and first - start < 64 and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    name = text[start : match.end("word")]
    if not _own_word(text, match) or compiled(_HARMLESS).search(name):
        return None
    if text.endswith(":", 0, start) and (sep == ":" or match["close"]):
        return None  # part of a longer name, of a resource or a type
    at, end, how = _written(text, match, start, name)
    value = text[at:end]
    bare = at == match.end()
    if bare and not name.startswith("--"):
        value = value.rstrip(",;" if how == "literal" else ".,;:")
    tier, kind = _tier(match["word"], name, text[max(0, first - 20) : match.end("word")])
    doubtful = how == "loose" and (sep.isspace() or ("|" in sep and tier != PASSWORD))
    if "\n" in value or (doubtful and bare and not random_looking(value, 20)):
        return None
    if name.lower() == "pass" and how != "literal":  # "pass" also counts and names tests
        if bare and how != "line" and sep not in ("=", ":"):
            return None
        how = "loose"
    if match["word"] == "passphrase" and how == "quoted":
        how = "phrase"
    if not plausible(tier, value[:_LOOKED_AT], how):
        return None
    # What was too long to be looked at whole goes whole.
    whole = _run_end(text, at, wide=False, limit="") if len(value) == _LOOKED_AT else at
    return at, max(whole, at + len(value)), kind


def _written(text: str, match: re.Match[str], start: int, name: str) -> tuple[int, int, str]:
    """Where the value begins and ends, and how it is written down (see `plausible`)."""
    sep, at = match["sep"], match.end()
    shown = sep.strip()
    flag = name.startswith("--") or text.endswith(("ENV ", "setenv "), 0, start)
    env = shown == sep == "=" and name.isupper()
    quote = compiled(r"([\w.]{3,40}\()?[rbuRBU]{0,2}(\\{0,3})(\"\"\"|'''|[\"'`])").match(text, at)
    if quote and not (env and quote[3] == "`"):  # which runs a command
        sure = shown.endswith(("=", ":", "=>", ":**")) and not quote[1]
        how = "literal" if flag else "quoted" if sure else "loose"
        return quote.end(), _closing(text, quote), how
    if flag or env or "value" in shown:
        prose = flag and compiled(_AFTER_FLAG).match(text, at)
        wide = flag or not start or text[start - 1] in "\n "
        return at, at if prose else _run_end(text, at, wide=wide), "literal"
    if shown == ">":
        tag = text.endswith(("<", ":", 'name="', 'key="'), 0, start)
        return at, max(at, text.find("<", at, at + 200)) if tag else at, "literal"
    if not shown.endswith(("=", ":", ":**", "%3d", "%3a", "%20")) or shown[0] in "iwt":
        return at, _run_end(text, at, wide=False), "loose"
    end = _run_end(text, at, wide=True)
    begins = text[max(0, start - 40) : start].rpartition("\n")[2].strip(" \t-+>\"'")
    if not begins and compiled(r"[ \t]*(?:#.*)?(?:\r?\n|\\n|\Z)").match(text, end):
        variable = shown == ":" and "_" in name and name.isupper()
        return at, end, "variable" if variable else "line"
    end = _run_end(text, at, wide=False)
    return at, at if text[end : end + 1] in ("(", "[", "{") else end, "bare"


def _closing(text: str, quote: re.Match[str]) -> int:
    """Where a string literal ends; one that is not closed ends with its word."""
    at = quote.end()
    if quote[2] or len(quote[3]) == 3:
        end = text.find(quote[2] + quote[3], at, at + 4096)
    else:
        body = compiled(rf"(?:[^{quote[3]}\\\n]|\\.)*").match(text, at)
        end = body.end() if body and text.startswith(quote[3], body.end()) else -1
    return end if end >= 0 else _run_end(text, at, wide=True)


def _run_end(text: str, at: int, *, wide: bool, limit: str = str(_LOOKED_AT)) -> int:
    stop = r"\s\"'`\\" if wide else r"\s\"'`\\,;&|<>()\[\]{}"
    run = compiled(rf"(?:[^{stop}]|\\(?![nrt\"'u])){{0,{limit}}}").match(text, at)
    return run.end() if run else at
