"""Replace secrets in text with `[redacted:kind]` and leave everything around them unchanged.

Known shapes come first, then values announced by headers, URLs, commands and telling names, then
strings that look random. In a URL only the password goes: scheme, user and host stay readable.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final

from ralph.text import assignments, columns, secrets
from ralph.text.assignments import Span, filler, member, named
from ralph.text.secrets import compiled, key_blocks
from ralph.text.wrapped_tokens import continued

# -- Secrets by position: `curl -u user:...`, `echo ... | docker login`, `.pgpass`, seed phrases.


# These take the password glued to the flag; after a space comes something else, such as a port.
_GLUED: Final = ("mysql", "mariadb", "7z", "rar")
# How far before a flag its tool may be.
_FLAG_REACH: Final = 400
_FLAG: Final = r" -([pPNwaAXcktuU])([ =]?)(['\"]?)"

_PROSE: Final = r"\b(?:the|and|for|with|are|was|from|not|has|its)\b"


def commands(text: str, lowered: str) -> Iterator[Span]:
    """Yield passwords and tokens that are recognized by their position."""
    if " -" in text:
        yield from _flags(text, lowered)
    for kind, hint, pattern in secrets.rows("places"):
        if hint in lowered:
            yield from _found(lowered, compiled(pattern), kind)
    if ":*:" in text or ":543" in text:
        yield from _found(text, secrets.pattern("pgpass"), "password")
    if "phrase" in lowered or "mnemonic" in lowered or "seed w" in lowered:
        for match in secrets.pattern("seed phrase").finditer(lowered):
            if not compiled(_PROSE).search(match["v"]):
                yield *match.span("v"), "seed-phrase"


def _found(text: str, pattern: re.Pattern[str], kind: str) -> Iterator[Span]:
    matches = pattern.finditer(text)
    return ((*match.span("v"), kind) for match in matches if not filler(match["v"]))


def _flags(text: str, lowered: str) -> Iterator[Span]:
    """Yield the values of flags such as `-p` after a tool that takes a password there."""
    separator = compiled(r"(?<!\\)\n|[;|&]")
    start = end = 0
    tools: dict[str, list[tuple[int, bool]]] = {}
    for match in compiled(_FLAG).finditer(text):
        if match.start() >= end:
            start = max(end, match.start() - _FLAG_REACH)
            for found in separator.finditer(lowered, start, match.start()):
                start = found.end()
            following = separator.search(lowered, match.start())
            end = following.start() if following else len(text)
            # Tools are sought once for a command, not once for a flag: a text may be all flags.
            tools = {}
        for letters, before, pattern in secrets.rows("tools"):
            if match[1] not in letters:
                continue
            if pattern not in tools:
                tools[pattern] = list(_tools(lowered[start:end], pattern, start))
            place = bisect_left(tools[pattern], (match.start() - _FLAG_REACH, False))
            position, glued = [*tools[pattern][place : place + 1], (end, False)][0]
            if position >= match.start() or (match[2] and glued):
                continue
            stop = match[3] or r"\s'\"|;&"
            value = compiled(rf"{before}(?P<v>[^{stop}\n]{{3,}})").match(text, match.end())
            if value and not filler(value["v"]) and not compiled(r"\d+:\d+\Z").match(value["v"]):
                yield *value.span("v"), "password"
                break


def _tools(command: str, pattern: str, start: int) -> Iterator[tuple[int, bool]]:
    """Yield where these tools are called, and whether they take a password only glued to `-p`."""
    calls = compiled(rf"(?:^|[\s/\\(\"'`$])(?P<tool>{pattern})(?=\s|\Z)")
    for call in calls.finditer(command):
        yield start + call.start("tool"), call["tool"].startswith(_GLUED)


# Removing a secret gives its neighbors new edges, so the text between secrets is searched again.
# Only text made for the purpose takes more rounds than this.
_ROUNDS = 12


# Short texts without a secret, such as names of tools and files: most come again and again.
_SHORT_CHARS = 200
_MOST_CLEAN = 4096
_clean_texts: dict[str, None] = {}


def redact(text: str) -> str:
    """Replace every secret with `[redacted:kind]`; doing it again changes nothing."""
    if text in _clean_texts:
        return text
    if "[redacted:" not in text:
        clean = _clean(text, _ROUNDS)
        if len(text) <= _SHORT_CHARS and clean == text:
            if len(_clean_texts) >= _MOST_CLEAN:
                _clean_texts.clear()
            _clean_texts[text] = None
        return clean
    # A mark of an earlier pass is a wall: no search goes into it or across it.
    pieces = compiled(r"(\[redacted:[a-z0-9-]{1,32}\])").split(text)
    return "".join(p if i % 2 else _clean(p, _ROUNDS) for i, p in enumerate(pieces))


def redact_tree(value: object) -> object:
    """Redact every string in JSON-like data; a key such as "password" announces its value."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (list, tuple)):
        items = [redact_tree(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if not isinstance(value, dict):
        return value
    return {key: _member(key, item) for key, item in value.items()}


def _member(key: object, item: object) -> object:
    if not (isinstance(key, str) and isinstance(item, str)):
        return redact_tree(item)
    if "[redacted:" not in item and (kind := member(key, item)):
        return f"[redacted:{kind}]"
    # Read as a line of a file: the key says what the value is, such as a header or a digest.
    line = redact(f"{key}: {item}")
    return line[len(key) + 2 :] if line.startswith(f"{key}: ") else redact(item)


def _clean(text: str, rounds: int) -> str:
    if not (spans := _spans(text) if rounds else []):
        return text
    out = ""
    at = 0
    for start, end, kind in spans:
        out += _clean(text[at:start], rounds - 1) + f"[redacted:{kind}]"
        at = end
    return out + _clean(text[at:], rounds - 1)


def _spans(text: str) -> list[Span]:
    """Return the spans of the secrets, in order, without overlaps."""
    if len(text) < 8:
        return []
    lowered = secrets.lower(text)
    found: list[Span] = []
    # Nearly every shape is one long word, and ordinary text has few of those.
    words = [(word.start(), word[0]) for word in re.finditer(r"\S{20,}", text)]
    doubtful = [word for word in words if secrets.is_doubtful(word[1])]
    found += _known(words)
    for row in secrets.rows("middle"):
        if row[1] in text:
            found += _inside(words, partial(_with_middle, row))
    if "\n" in text or "\\n" in text:
        found += continued(text, found)
    found += _inside(doubtful, _encoded)
    encoded = any(hint in word for _, word in doubtful for hint in secrets.word_set("key hints"))
    found += [(*span, "private-key") for span in key_blocks(text, encoded=encoded)]
    if "://" in text and "@" in text:
        found += _urls(text)
    found += _headers(text, lowered)
    found += commands(text, lowered)
    found += named(text, lowered)
    found += columns.cells(text, lowered)
    found += assignments.of_services(text, lowered, doubtful)
    if doubtful and not found:  # random-looking strings wait until the surer ones are gone
        random = _inside(doubtful, secrets.tokens)
        found += [span for span in random if not _is_public(text, *span[:2])]
    return _merged(found)


def _inside(words: list[tuple[int, str]], find: Callable[[str], Iterator[Span]]) -> Iterator[Span]:
    """Yield what `find` finds in each of these words, at its position in the text."""
    for at, word in words:
        yield from ((at + start, at + end, kind) for start, end, kind in find(word))


def _merged(found: list[Span]) -> list[Span]:
    """Join overlapping spans under the kind that was found first, which is the surest."""
    merged: list[tuple[int, int, int]] = []
    for start, end, rank in sorted((s, e, i) for i, (s, e, _) in enumerate(found)):
        if merged and start < merged[-1][1]:
            start, last, best = merged.pop()
            end = max(last, end)
            rank = min(best, rank)
        merged.append((start, end, rank))
    return [(start, end, found[rank][2]) for start, end, rank in merged]


_Beginnings = tuple[re.Pattern[str], dict[str, list[tuple[int, str, str]]]]


@cache
def _tables() -> tuple[_Beginnings, _Beginnings]:
    """Return the beginnings that count anywhere, and those that need a left edge."""
    return _beginnings("shapes"), _beginnings("edged")


def _beginnings(section: str) -> _Beginnings:
    """Return a pattern for all prefixes, and the shapes of each prefix, the longest first."""
    shapes: dict[str, list[tuple[int, str, str]]] = {}
    for kind, literals, tail in secrets.rows(section):
        for literal in literals.split():
            shapes.setdefault(literal, []).append((len(literal), kind, tail))
    # Text that begins with "sk_live_" may also be a shape of "sk_".
    found = {
        literal: [
            shape for end in range(len(literal), 0, -1) for shape in shapes.get(literal[:end], ())
        ]
        for literal in shapes
    }
    edge = secrets.pattern("edge").pattern if section == "edged" else ""
    return compiled(f"{edge}(?P<beginning>{_tree(sorted(found))})"), found


def _tree(literals: list[str]) -> str:
    """Return a pattern for sorted literals sharing their prefixes, ten times as fast as a list."""
    branches = [
        re.escape(letter) + _tree([one[1:] for one in some])
        for letter, some in groupby((one for one in literals if one), key=itemgetter(0))
    ]
    tree = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""
    return f"(?:{tree})?" if branches and "" in literals else tree


def _known(words: list[tuple[int, str]]) -> Iterator[Span]:
    """Yield the shapes that begin with a literal; all words are searched at once, as lines."""
    lines = "\n" + "\n".join(word for _, word in words)
    ends = list(accumulate(len(word) + 1 for _, word in words))
    for beginnings, shapes in _tables():
        at = 0
        while beginning := beginnings.search(lines, at):
            start = beginning.start("beginning")
            at = beginning.start() + 1
            for length, kind, tail in shapes[beginning["beginning"]]:
                if whole := compiled(tail).match(lines, start + length):
                    at = whole.end()
                    if len(set(whole[0])) > 3:  # "xxxx" and "...." are placeholders
                        number = bisect_left(ends, start)
                        shift = words[number][0] + len(words[number][1]) - ends[number]
                        yield start + shift, at + shift, kind
                    break


def _with_middle(row: list[str], word: str) -> Iterator[Span]:
    kind, middle, pattern = row
    if middle in word:
        yield from ((*match.span(), kind) for match in compiled(pattern).finditer(word))


def _urls(text: str) -> Iterator[Span]:
    user = r"://(?P<user>[^\s/?#:@\"'<>`\\]{0,200})"
    host = r"@(?=[\w\[.$-])"
    plain = compiled(user + r"(?::(?!\d{1,5}[/?#,])(?P<pw>[^\s/\"'<>`]{1,200}))?" + host)
    # People put unescaped passwords into database URLs, slashes included.
    raw = compiled(user + r":(?!\d{1,5}[/?#,])(?P<pw>[^\s?\"'<>`]{1,200})" + host)
    dbs = compiled(r"(?i)(?:postgres|mysql|maria|mongo|redis|amqp|sql|click|oracle|ldap)[\w+]*\Z")
    for at in compiled("://").finditer(text):
        store = dbs.search(text[max(0, at.start() - 24) : at.start()])
        match = raw.match(text, at.start()) if store else None
        if not match or "://" in match["pw"]:
            match = plain.match(text, at.start())
        if not match:
            continue
        if match["pw"]:
            if not assignments.filler(match["pw"]) or match["pw"].isalnum():
                yield *match.span("pw"), "connection-string" if store else "url-password"
        elif len(match["user"]) >= 20 and not assignments.wordy(match["user"]):
            sentry = "sentry" in text[match.end() : match.end() + 80]
            yield *match.span("user"), "sentry-dsn" if sentry else "url-token"


def _headers(text: str, lowered: str) -> Iterator[Span]:
    credential = compiled(r"[\w.~+/=:|-]{6,}")
    if "authorization" in lowered:
        for match in secrets.pattern("authorization").finditer(lowered):
            value = credential.match(text, match.end())
            if value and _sent(value[0], _least_sent(value[0], match["scheme"])):
                basic = (match["scheme"] or "").startswith("basic")
                yield *value.span(), "basic-auth" if basic else "bearer-token"
    if "bearer" in lowered or "basic " in lowered:
        scheme = compiled(r"(b(?<![a-z]b)(?:earer|asic)):?[ \t]{1,4}\\{0,3}[\"'`]?")
        for match in scheme.finditer(lowered):
            if value := credential.match(text, match.end()):
                if match[1] == "bearer" and _sent(value[0], 16):
                    yield *value.span(), "bearer-token"
                elif match[1] == "basic" and ":" in (secrets.decoded(value[0]) or ""):
                    yield *value.span(), "basic-auth"
    if "cookie" in lowered:
        line = compiled(r"cookie\\{0,3}[\"']?[ \t]{0,4}[:=,]?[ \t]{1,4}[\"']?([^\n\"'\\]{1,4096})")
        for match in line.finditer(lowered):
            yield from _cookies(text, *match.span(1))


def _least_sent(value: str, scheme: str | None) -> int:
    """Return how long a credential is at least; without a scheme it may be a word."""
    if scheme:
        return 6
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return 8 if mixed else 16


def _sent(value: str, least: int) -> bool:
    if len(value) < least or assignments.filler(value):
        return False
    return not assignments.wordy(value) or (least < 16 <= len(value) and value.isalpha())


def _cookies(text: str, start: int, end: int) -> Iterator[Span]:
    session = r"(?i)sess|sid\Z|token|auth|csrf|xsrf|jwt|login|remember|secret"
    for pair in compiled(r"(?<![\w.-])([\w.-]{1,80})=([^;\s,]{4,})").finditer(text, start, end):
        if pair[1].lower() in ("path", "domain", "expires", "max-age", "samesite", "priority"):
            continue
        telling = compiled(session).search(pair[1]) or len(pair[2]) >= 16
        if telling and not assignments.filler(pair[2]) and not assignments.wordy(pair[2]):
            yield *pair.span(2), "cookie"


def _is_public(text: str, start: int, end: int) -> bool:
    """Whether this span, or the run of characters around it, is data, a digest or an id."""
    before = text[max(0, start - 300) : start]
    head = before.rstrip(secrets.RUN)
    whole = start - len(before) + len(head)
    if secrets.wrapped(text, start, end) or secrets.decoded(text[start:end]):
        return True
    public = secrets.pattern("public")
    published = secrets.pattern("published")
    if public.match(text, start) or public.match(text, whole):
        return True
    return bool(published.search(before) or published.search(head))


def _encoded(word: str) -> Iterator[Span]:
    """Yield the spans of base64 whose text contains a secret."""
    for run in compiled(r"[A-Za-z0-9+]{16}[A-Za-z0-9+/_-]{8,}={0,2}").finditer(word):
        for _, _, kind in _spans(secrets.decoded(run[0]) or ""):
            if kind != "high-entropy":  # base64 within base64 looks like that too
                yield *run.span(), kind
                break
