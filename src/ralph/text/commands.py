"""Secrets by position: `curl -u user:...`, `echo ... | docker login`, `.pgpass`, seed phrases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ralph.text.named import Span
from ralph.text.plausible import filler
from ralph.text.secrets import compiled

# Tools, their flags that take a password, and what comes before it in the flag's value.
_LOGINS: Final = r"(?:docker|podman|nerdctl|buildah|helm|crane|oras|az)\b.*\blogin"
_TOOLS: Final = (
    (rf"{_LOGINS}|sshpass|mongo\w*|cqlsh|psexec\S*|twine", "p", ""),
    (r"mysql\w*|mariadb\S*|7z\w?|rar", "p", ""),
    (r"sqlcmd|bcp|ipmitool|zip|unzip|mosquitto_\w+|isql|ssh-keygen", "P", ""),
    (r"ssh-keygen", "N", ""),
    (r"ldap\w+|security", "w", ""),
    (r"redis-cli", "a", ""),
    (r"snmp\w+", "AX", ""),
    (r"openssl", "k", ""),
    (r"doctl", "t", ""),
    (r"curl", "uU", r"[^\s:'\"]*:"),
    (r"https?|xhs?", "a", r"[^\s:'\"]*:"),
    (r"smb\w+|winexe|rpcclient", "U", r"[^\s%'\"]+%"),
    (r"lftp", "u", r"[^\s,'\"]+,"),
)
# A number alone after these is a port.
_GLUED: Final = ("mysql", "mariadb", "7z", "rar")
_FLAG: Final = r" -([pPNwaAXktuU])([ =]?)(['\"]?)"

_USER: Final = r"[\w.@\\-]{1,60}"
_VALUE: Final = r"['\"]?(?P<v>[^\s'\"]+)"
_SECOND: Final = r"\([ \t]*['\"][^'\"\n]{1,80}['\"],[ \t]*['\"](?P<v>[^'\"\n]{3,80})['\"]"
_ORACLE: Final = r"(?<=[\s:'\"])[\w$#]{1,30}/(?P<v>[^\s@/'\"]+)@"
_PIPED: Final = (
    r"(?P<v>[^\s'\"|]+)['\"]?[ \t]*\|[ \t]*(?:sudo[ \t]+)?(?:-s[ \t]|chpasswd|kinit|cryptsetup"
    r"|[^\n|]{0,200}?(?:--(?:password-|pass-)?stdin|--with-token))"
)
# A secret by its place among words, sought in lower case: what must be there at all, then for each
# pattern its kind and what must be there too.
_PLACES: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    "pass": (
        ("password", "storepass", rf"-(?:src|dest|)storepass[ =]{_VALUE}"),
        ("password", "keypass", rf"-(?:src|dest|)keypass[ =]{_VALUE}"),
        ("password", " -password", rf" -password[ =](?!-){_VALUE}"),
        ("password", "pass:", r"-pass(?:in|out)?[ =]['\"]?pass:(?P<v>[^\s'\"]+)"),
        ("password", " /pass:", rf" /pass:{_VALUE}"),
        ("password", "htpasswd -", rf"htpasswd -\w*b\w* +(?:[^\s-]\S* +)?{_USER} +{_VALUE}"),
        ("password", "rabbitmqctl", rf"change_password +{_USER} +{_VALUE}"),
        ("password", "ldappasswd", rf"ldappasswd[^\n]{{0,200}}? -s +{_VALUE}"),
        ("password", "requirepass", rf"(?<![\w-])requirepass[ \t]+{_VALUE}[ \t]*(?:\n|\Z)"),
        ("password", "password_maps", rf"static:{_USER}:(?P<v>\S+)"),
        ("password", "-user-pass ", rf"auth-user-pass +{_USER} +{_VALUE}"),
        (
            "password",
            " password '",
            r"(?:role|user|login|with)\b[^\n;]{0,60} password '(?P<v>[^'\n]+)'",
        ),
        ("password", "password('", r"(?<![\w.])password\('(?P<v>[^'\n]+)'\)"),
        ("password", "password_hash(", rf"password_hash\({_VALUE}"),
        ("password", "make_password(", rf"make_password\({_VALUE}"),
    ),
    "login": (
        ("password", "password", r"login\s{1,9}\S{1,99}\s{1,9}password\s{1,9}(?P<v>\S+)"),
        ("password", ".login(", rf"\.login{_SECOND}"),
        ("token", "vault login ", rf"vault login +(?:-\S+ +)*(?:token=)?(?!-){_VALUE}"),
    ),
    "auth": (
        ("password", "masterauth", rf"(?<![\w-])masterauth[ \t]+{_VALUE}[ \t]*(?:\n|\Z)"),
        ("password", "redis-cli", rf"redis-cli[^\n]{{0,80}}? auth +{_VALUE}"),
        ("password", "auth=(", rf"auth={_SECOND}"),
        ("password", "auth = (", rf"auth = {_SECOND}"),
        ("password", "basicauth(", rf"basicauth{_SECOND}"),
        ("token", "auth token ", rf"auth token +(?=\S*\d)(?!-){_VALUE}"),
        ("token", "digest ", r"digest [^\n]{0,300}?\bresponse=\"?(?P<v>[0-9a-z-]{12,})"),
    ),
    "cred": (
        ("password", "-creds", rf"--(?:\w+-)?creds[ =]['\"]?{_USER}:(?P<v>[^\s'\"]+)"),
        ("password", "credential", rf"credentials?{_SECOND}"),
        (
            "password",
            "s",
            rf"cred(?:ential)?s(?: are| is)?[ \t]?:?[ \t]+{_USER} ?[:/] ?(?P<v>(?=\S*\d)\S{{5,}})",
        ),
    ),
    "curl": (
        (
            "cookie",
            "=",
            r"curl[^\n]{0,300}?\s(?:-b|--cookie)[ =]['\"]?[\w.-]+=(?P<v>[^\s;'\"]{6,})",
        ),
    ),
    "user": (
        ("password", "-user", rf"--(?:proxy-)?user[ =]?['\"]?{_USER}:(?P<v>[^\s'\"]+)"),
        ("password", "rabbitmqctl", rf"add_user +{_USER} +{_VALUE}"),
        ("password", "net user ", rf"net user +{_USER} +(?![/*]){_VALUE}"),
        ("password", "net use ", rf"net use +(?:\w: +)?\\\\\S+ +(?![/*]){_VALUE} +/user:"),
    ),
    "echo ": (
        ("password", "|", rf"echo +(?:-\w +)?['\"]?(?:{_USER}:(?=[^\n]*chpasswd))?{_PIPED}"),
    ),
    "printf ": (("password", "|", rf"printf +(?:['\"]?%s(?:\\n)?['\"]? +)?['\"]?{_PIPED}"),),
    "<<<": (("password", "<", rf"(?:stdin|-token|kinit|chpasswd)[^\n<]{{0,80}}<<<[ \t]*{_VALUE}"),),
    "sqlplus": (("password", "/", rf"sqlplus[^\n]{{0,40}}?{_ORACLE}"),),
    "pdp ": (("password", "/", rf"(?:ex|im)pdp [^\n]{{0,40}}?{_ORACLE}"),),
    "bindpw": (("password", " ", rf"(?<![\w-])bindpw[ \t]+{_VALUE}[ \t]*(?:\n|\Z)"),),
    "oracle:": (("password", "/", rf"oracle:(?:thin|oci):{_ORACLE}"),),
    "freerdp": (("password", "/p:", rf" /p:{_VALUE}"),),
    "mc alias set": (("password", " ", rf"mc alias set +\S+ +\S+ +\S+ +{_VALUE}"),),
    "identified": (("password", "by", r"identified (?:with \S{1,40} )?by ['\"](?P<v>[^'\"\n]+)"),),
    "bcrypt": (("password", "hash", rf"bcrypt\.hash\w*\(b?{_VALUE}"),),
    '"kty"': (("private-key", '"d"', r'"d"\s{0,4}:\s{0,4}"(?P<v>[\w-]{40,})"'),),
    "y code": (("token", "recovery", rf"recovery codes?(?: is)?:?[ \t]+(?=\S*\d){_VALUE}"),),
    "p code": (("token", "backup", rf"backup codes?(?: is)?:?[ \t]+(?=\S*\d){_VALUE}"),),
}
# host:port:database:user:password; the output of a compiler or of grep has numbers there.
_PGPASS: Final = (
    r"(?m)^[ \t+>-]*[^:\s/]{1,99}:(?:\*|\d{4,5}):(?!\d+:)[^:\s/]{1,63}:[^:\s/]{1,63}:"
    r"(?P<v>[^:\s]{3,})[ \t]*\r?$"
)
_SEED_WORD: Final = r"(?:\d{1,2}[.):]?[ \t]*)?[a-z]{3,8}"
_SEED: Final = (
    r"(?:mnemonic|(?:seed|recovery|backup|secret)[ _-](?:recovery[ _-])?(?:phrase|words?))"
    r"[^a-z0-9]{0,6}(?:(?:phrase|is|are|was|const|string)[^a-z0-9]{1,8})?[^a-z0-9]{0,24}"
    rf"(?P<v>{_SEED_WORD}(?:(?:[ \t,;\"'|-]{{1,8}}{_SEED_WORD}){{11,23}}"
    rf"|(?:\s*\n\s*{_SEED_WORD}){{11,23}}))(?![a-z])"
)
_PROSE: Final = r"\b(?:the|and|for|with|are|was|from|not|has|its)\b"


def commands(text: str, lowered: str) -> Iterator[Span]:
    """Passwords and tokens given by position."""
    if " -" in text:
        yield from _flags(text, lowered)
    for hint, places in _PLACES.items():
        if hint in lowered:
            for kind, other, pattern in places:
                if other in lowered:
                    yield from _found(lowered, pattern, kind)
    if ":*:" in text or ":543" in text:
        yield from _found(text, _PGPASS, "password")
    if "phrase" in lowered or "mnemonic" in lowered or "seed w" in lowered:
        for match in compiled(_SEED).finditer(lowered):
            if not compiled(_PROSE).search(match["v"]):
                yield *match.span("v"), "seed-phrase"


def _found(text: str, pattern: str, kind: str) -> Iterator[Span]:
    for match in compiled(pattern).finditer(text):
        if not filler(match["v"]):
            yield *match.span("v"), kind


def _flags(text: str, lowered: str) -> Iterator[Span]:
    for match in compiled(_FLAG).finditer(text):
        start = match.start()
        command = compiled(r"(?<!\\)\n|[;|&]").split(lowered[max(0, start - 400) : start])[-1]
        for tools, flags, before in _TOOLS:
            if match[1] not in flags:
                continue
            tool = compiled(rf"(?:^|[\s/\\(\"'`$])(?:{tools})(?=\s)").search(command + " ")
            if not tool or (match[2] and tool[0].strip("/\\(\"'`$ \t\n").startswith(_GLUED)):
                continue
            stop = match[3] or r"\s'\"|;&"
            value = compiled(rf"{before}(?P<v>[^{stop}\n]{{3,}})").match(text, match.end())
            if value and not filler(value["v"]) and not compiled(r"\d+:\d+\Z").match(value["v"]):
                yield *value.span("v"), "password"
                break
