"""Replace secrets in text by `[redacted:kind]` and leave everything around them as it was.

Known shapes come first, then what headers, URLs, commands and telling names announce, then strings
that look random. In a URL only the password goes: scheme, user and host stay readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ralph.text import plausible, secrets
from ralph.text.named import Span, commands, member, named
from ralph.text.secrets import compiled

# Taking a secret out gives its neighbours new edges, so what lies between is looked at again. More
# rounds than this only happen to text made for it.
_ROUNDS = 12


def redact(text: str) -> str:
    """Replace every secret by `[redacted:kind]`; doing it again changes nothing."""
    if "[redacted:" not in text:
        return _clean(text, _ROUNDS)
    # What an earlier pass left is a wall: neither looked into nor looked across.
    pieces = compiled(r"(\[redacted:[a-z0-9-]{1,32}\])").split(text)
    return "".join(p if i % 2 else _clean(p, _ROUNDS) for i, p in enumerate(pieces))


def redact_tree(value: object) -> object:
    """Redact every string in JSON-like data; a key such as "password" counts for its value."""
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
    # Read like a line of a file, the key tells what the value is: a header, a digest.
    line = redact(f"{key}: {item}")
    return line[len(key) + 2 :] if line.startswith(f"{key}: ") else redact(item)


def _clean(text: str, rounds: int) -> str:
    spans = _spans(text) if rounds else []
    if not spans:
        return text
    out: list[str] = []
    at = 0
    for start, end, kind in spans:
        out += (_clean(text[at:start], rounds - 1), f"[redacted:{kind}]")
        at = end
    out.append(_clean(text[at:], rounds - 1))
    return "".join(out)


def _spans(text: str) -> list[Span]:
    """Where the secrets are, in order, without overlaps."""
    if len(text) < 8:
        return []
    lowered = secrets.lower(text)
    found: list[Span] = []
    # Nearly every shape is one long word, and ordinary text has few of those.
    words = " ".join([word for word in text.split() if len(word) >= 20])
    if words:
        found += _known(text, words)
    if "PRIVATE KEY" in text or "Private-Lines" in text:
        found += _private_keys(text)
    if "://" in text and "@" in text:
        found += _urls(text)
    found += _headers(text, lowered)
    found += commands(text, lowered)
    found += named(text, lowered)
    if found:  # what only looks random waits for the next round, when the surer ones are gone
        return _merged(found)
    return list(_alone(text)) if compiled(r"[A-Za-z0-9+/_-]{32}").search(words) else found


def _merged(found: list[Span]) -> list[Span]:
    """Join what overlaps, under the name of whoever was surest (came first)."""
    merged: list[tuple[int, int, int]] = []
    for start, end, rank in sorted((s, e, i) for i, (s, e, _) in enumerate(found)):
        if merged and start < merged[-1][1]:
            before = merged.pop()
            merged.append((before[0], max(before[1], end), min(before[2], rank)))
        else:
            merged.append((start, end, rank))
    return [(start, end, found[rank][2]) for start, end, rank in merged]


@cache
def _table() -> tuple[re.Pattern[str], dict[str, tuple[str, str, bool]]]:
    rows = {
        literal: (kind, tail, edged)
        for edged, shapes in ((False, secrets.SHAPES), (True, secrets.EDGED))
        for kind, literals, tail in shapes
        for literal in literals.split()
    }
    # Grouped by first letter the search is four times as fast as over one long list.
    groups: dict[str, list[str]] = {}
    for literal in sorted(rows, key=len, reverse=True):
        groups.setdefault(re.escape(literal[0]), []).append(re.escape(literal[1:]))
    return re.compile("|".join(f"{a}(?:{'|'.join(b)})" for a, b in groups.items())), rows


def _known(text: str, words: str) -> Iterator[Span]:
    hints, rows = _table()
    at = 0 if hints.search(words) else len(text)
    while hint := hints.search(text, at):
        kind, tail, edged = rows[hint[0]]
        at = hint.start() + 1
        if edged and not compiled(secrets.EDGE).match(text, hint.start()):
            continue
        if whole := compiled(tail).match(text, hint.end()):
            at = whole.end()
            yield hint.start(), at, kind
    for kind, middle, pattern in secrets.MIDDLE:
        if middle in words and compiled(pattern).search(words):
            yield from ((*match.span(), kind) for match in compiled(pattern).finditer(text))


def _private_keys(text: str) -> Iterator[Span]:
    """Key blocks: whole, cut off at either end, escaped, quoted, numbered or indented."""
    chunk = compiled(
        rf"{secrets.GAP}{{0,40}}?(?:[A-Za-z0-9+/=]{{16,}}|{secrets.KEY_SHORT}"
        r"|(?:Proc-Type|DEK-Info|Version|Comment|Private-Lines): ?[^\n\\]{0,200})"
    )
    short = rf"{secrets.GAP}{{0,40}}?(?:[A-Za-z0-9+/=]{{1,15}}{secrets.GAP}{{0,40}}?)?"
    end = compiled(rf"{short}{secrets.KEY_ENDS}|{secrets.GAP}{{0,9}}?[A-Za-z0-9+/=]{{1,15}}\Z")
    done = 0
    closed: set[int] = set()
    for begin in compiled(secrets.KEY_BEGINS).finditer(text):
        at = begin.end()
        while at > done and (more := chunk.match(text, at)):
            at = more.end()
        if at - begin.end() >= 20:  # an empty frame, or one around dots and crosses, is no key
            last = end.match(text, at)
            done = last.end() if last else at
            closed.add(done)
            yield begin.start(), done, "private-key"
    for ends in compiled(secrets.KEY_ENDS).finditer(text):
        start, size = (ends.start(), 0) if ends.end() not in closed else (0, 0)
        for line in reversed(re.split(r"\n|\\n", text[max(0, start - 8192) : start])):
            body = line.strip(" \t\r\"',+|>")
            if body and ((size and len(body) < 16) or not compiled(secrets.KEY_LINE).match(body)):
                break
            start, size = text.rfind(body, 0, start) if body else start, size + len(body)
        if size >= 40:
            yield start, ends.end(), "private-key"


def _urls(text: str) -> Iterator[Span]:
    user = r"://(?P<user>[^\s/?#:@\"'<>`\\]{0,200})"
    host = r"@(?=[\w\[.$-])"
    plain = compiled(user + r"(?::(?!\d{1,5}[/?#,])(?P<pw>[^\s/\"'<>`]{1,200}))?" + host)
    # People put raw passwords into these, slashes and all.
    raw = compiled(user + r":(?!\d{1,5}[/?#,])(?P<pw>[^\s?\"'<>`]{1,200})" + host)
    stores = compiled(
        r"(?i)(?:postgres|mysql|maria|mongo|redis|amqp|sql|click|oracle|ldap)[\w+]*\Z"
    )
    for at in compiled("://").finditer(text):
        store = stores.search(text[max(0, at.start() - 24) : at.start()])
        match = raw.match(text, at.start()) if store else None
        if not match or "://" in match["pw"]:
            match = plain.match(text, at.start())
        if not match:
            continue
        if match["pw"]:
            if not plausible.filler(match["pw"]) or match["pw"].isalnum():
                yield *match.span("pw"), "connection-string" if store else "url-password"
        elif len(match["user"]) >= 20 and not plausible.wordy(match["user"]):
            sentry = "sentry" in text[match.end() : match.end() + 80]
            yield *match.span("user"), "sentry-dsn" if sentry else "url-token"


def _headers(text: str, lowered: str) -> Iterator[Span]:
    credential = compiled(r"[\w.~+/=:|-]{6,}")
    if "authorization" in lowered:
        header = (
            r"(?<![a-z])authorization\\{0,3}[\"'`]?[\])]?[ \t]{0,4}(?:=>|[:=,])[ \t]{0,4}"
            r"(?:[fb](?=[\"']))?\\{0,3}[\"'`]?[ \t]{0,4}"
            r"(?P<scheme>(?:bearer|basic|token|api-?key|bot|key)[ \t]{1,4})?"
        )
        for match in compiled(header).finditer(lowered):
            value = credential.match(text, match.end())
            if value and _sent(value[0], 6 if match["scheme"] else 16):
                basic = (match["scheme"] or "").startswith("basic")
                yield *value.span(), "basic-auth" if basic else "bearer-token"
    if "bearer" in lowered or "basic " in lowered:
        scheme = compiled(r"(?<![a-z])(bearer|basic):?[ \t]{1,4}\\{0,3}[\"'`]?")
        for match in scheme.finditer(lowered):
            if value := credential.match(text, match.end()):
                if match[1] == "bearer" and _sent(value[0], 16):
                    yield *value.span(), "bearer-token"
                elif match[1] == "basic" and ":" in (plausible.decoded(value[0]) or ""):
                    yield *value.span(), "basic-auth"
    if "cookie" in lowered:
        line = compiled(r"cookie\\{0,3}[\"']?[ \t]{0,4}[:=,]?[ \t]{1,4}[\"']?([^\n\"'\\]{1,4096})")
        for match in line.finditer(lowered):
            yield from _cookies(text, *match.span(1))


def _sent(value: str, least: int) -> bool:
    if len(value) < least or plausible.filler(value):
        return False
    return not plausible.wordy(value) or (least < 16 <= len(value) and value.isalpha())


def _cookies(text: str, start: int, end: int) -> Iterator[Span]:
    session = r"(?i)sess|sid\Z|token|auth|csrf|xsrf|jwt|login|remember|secret"
    for pair in compiled(r"(?<![\w.-])([\w.-]{1,80})=([^;\s,]{4,})").finditer(text, start, end):
        if pair[1].lower() in ("path", "domain", "expires", "max-age", "samesite", "priority"):
            continue
        telling = compiled(session).search(pair[1]) or len(pair[2]) >= 16
        if telling and not plausible.filler(pair[2]) and not plausible.wordy(pair[2]):
            yield *pair.span(2), "cookie"


def _alone(text: str) -> Iterator[Span]:
    """Strings that nothing announces and that look too random to be anything else."""
    for match in compiled(r"[A-Za-z0-9+/_-]{32,}={0,2}").finditer(text):
        # An escaped newline or a colour runs into the string after it.
        lead = compiled(r"(?<=\\)[nrt]|(?<=\x1b\[)\d+m").match(text, match.start())
        start = lead.end() if lead else match.start()
        value = text[start : match.end()]
        parts = re.split(r"[/_-]", value)
        if any(len(part) > 3 and part.isalpha() and plausible.camel(part) for part in parts):
            value = max(parts, key=len)  # a path or a name, which may still hold a token
            start += text[start : match.end()].index(value)
        if not plausible.random_looking(value, 32) or compiled(secrets.PUBLIC).match(match[0]):
            continue
        before = text[max(0, start - 300) : start]
        link = re.split(r"[\s\"'<>`]", before)[-1]
        if ("://" in link and "?" not in link) or compiled(secrets.PUBLISHED).search(before[-60:]):
            continue
        if not plausible.wrapped(text, *match.span()) and plausible.decoded(value) is None:
            yield start, start + len(value), "high-entropy"
