"""Secrets that a name announces: `password = "..."`, `the password for x is ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ralph.text.secrets import compiled, decoded, likeness, lower, random_looking

# -- Tests on a single value: does it stand for a secret, is it made of words, is it random?


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
_ALIAS = r"(?i)[a-z_]*(?:pass|passwd|password|passphrase|pwd|pw|token|secret|key|auth|cred)s?\d?\Z"
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
    return len(part) >= 3 * (len(compiled(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|.").findall(part)) - 1)


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
    if (code or how == "pair") and not numbered and compiled(_ALIAS).match(value):
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


Span = tuple[int, int, str]

# How many refused values in one run of characters, and how much of a value, are looked at.
_REFUSALS = 32
_LOOKED_AT = 512

_STRONG_KEY = (
    r"(?:api|access|secret|private|auth|account|encrypt|encryption|signing|master|shared|storage|app"
    r"|subscription|admin|deploy|service|webhook|jwt|application|consumer|client|license)"
    r"[_\- ]?key\Z"
)
# All is sought in lower-cased text. A pattern that begins with one of few letters, not with a
# condition, is found seven times as fast; so the words of several languages are sorted by letter.
_WORDS = (
    r"p(?:ass(?:word|phrase|wd|code|wort|ord|e(?![a-z]))?|wd|sk|arola|hpsessid"
    r"|at(?<![a-z]pat)(?![a-z])|w(?:(?<![a-z]pw)|(?<=dbpw)|(?<=userpw)|(?<=rootpw)))"
    r"|s(?:ecret|enha|ifre|andi|alasana|leutel)|token|c(?:redentials?|ontrasena|lave|have|hiave)"
    r"|k(?:ey|ennwort|lucz|odeord)|j(?:sessionid|eton)|a(?:uth(?<![a-z]auth)|dgangskode|nahtar)"
    r"|h[ae]slo|mdp|wachtwoord"
)
# These must not be the end of a longer word.
_SHORT = "clave chave senha sifre sandi parola klucz jeton mdp haslo heslo clé passe".split()
# The same in letters of their own, and what one such letter is.
_SCRIPTS = (
    "[à-ɏа-яёα-ωόא-ת\u0600-\u06ff\u0900-\u097f\u0e00-\u0e7f\u1e00-\u1eff\u3041-\u30ff\u4e00-\u9fff"
    "\uac00-\ud7af]"
)
_FOREIGN_KEY = (
    r"schlüssel|clé(?![a-z])|ключ|密[钥鑰]|秘密?[钥鍵]|キー|키(?![가-힣])"
    r"|chave|chiave|klucz|anahtar|sleutel"
)
_FOREIGN_TOKEN = r"токен[а-я]{0,2}|令牌|トークン|토큰|jeton"
_FOREIGN = (
    r"contraseña|parolă|парол[а-яё]{1,3}|hasło|şifre(?:niz|m|si)?|lösenord|jelszó|κωδικ[όο][ςσ]?"
    r"|סיסמ[האת]|كلمة (?:المرور|السر)|mật khẩu|รหัสผ่าน|पासवर्ड|лозинк[аеу]|密[码碼]|口令"
    rf"|パスワード|暗証番号|비밀번호|암호|패스워드|{_FOREIGN_TOKEN}|{_FOREIGN_KEY}"
)
_OWNER = (
    r"(?:[ \t](?:for|of|on|to|from|in|at|für|von|de|pour|para|per|do|van|от|для)[ \t]"
    r"[^\n:=|]{1,40}?)?"
)
_VERB = (
    r"(?:is|was|to|are|has been (?:re)?set to|has been changed to|equals|ist|lautet|est|es|é|è|e'"
    r"|jest|это|är|er|on)(?: now| still| set to| changed to)?[ \t]{0,2}:?"
)
_TYPE = (
    r"(?:str|string|bytes|any|optional\[\w+\]|secretstr|final|&(?:'static )?str)(?:[ ]?\|[ ]?\w+)?"
)
# How a name leads to its value; the name of the group says which way it was.
_LEADS = (
    # "name": "...", "value": and its like in YAML, HTML, property lists; a variable's default
    r"(?P<value>,?\s{0,40}\\{0,3}[\"']value\\{0,3}[\"'][ \t]{0,8}:[ \t]{0,8}"
    r"|\s{1,40}value(?::[ \t]|=(?=[\"'])))",
    r"(?P<plist></key>\s{0,40}<string>)",
    r"(?P<default>[ \t]{0,8}\{[^{}]{0,400}?\bdefault[ \t]{0,40}=[ \t]{0,8}"
    r"|:[ \t]*\n(?:[ \t]+[a-z]\w{0,30}:[^\n]{0,120}\n){0,6}?[ \t]+default:[ \t]+)",
    r"(?P<block>:[ \t]{0,8}[|>][+-]?[ \t]{0,8}\r?\n[ \t]{1,40})",
    # =, :, with a type or an owner between, percent-encoded, bold
    rf"(?P<assign>[ \t]{{0,40}}(?:[ \t]string)?{_OWNER}(?:=>|:=|={{1,3}}|!==?|\?=|%3d|%3a(?:%20)?"
    rf"|:-|→|->|：|＝|[ \t]—|:(?:\*\*)?[ \t]{{0,4}}(?:{_TYPE}[ \t]{{0,4}}=)?)[ \t]{{0,40}})",
    # code: what is taken when a variable is missing, what is typed into a field
    r"(?P<instead>(?:\)[ \t]{1,8}or|\)?[ \t]{1,8}(?:\|\||\?\?))[ \t]{1,8}(?=[\"'`]))",
    r"(?P<typed>[\"'`\])]{0,4}\)?\.(?:fill|type|send_?keys|set_?value|enter_?text)\([ \t]*"
    r"(?=[\"'`]))",
    # prose, tables, arguments, tags, URLs, flags
    rf"(?P<prose>{_OWNER}[ \t]{{1,4}}{_VERB}[ \t]{{1,4}}|(?:[是为為은는이가]|は)[ \t:：]{{0,3}})",
    r"(?P<cell>[ \t]{1,40}\|[ \t]{1,40})",
    r"(?P<argument>[ \t]*,[ \t]*(?=\\*[\"']))",
    r"(?P<call>\([ \t]*(?=\\*[\"']))",
    r"(?P<tag>>(?=[^<\s]))",
    r"(?P<path>s?/(?=[^\s/]{10}))",
    r"(?P<blank>[ \t]{1,4}(?=[^\s\-]))",
)
_AFTER = (
    r"(?:[ _-](?:de |d'|do )?api(?![a-z]))?(?:[_-]?(?:prod(?:uction)?|dev|test|staging|live|value"
    r"|base|confirmation|plain|data|b64|base64|str|string|text|\d{1,2}))?"
    r"(?P<close>(?:\\{0,3}[\"'`](?:\][\"']?)?|\*\*)?)(?:" + "|".join(_LEADS) + ")"
)
_NAME = rf"(?P<word>{_WORDS}){_AFTER}"
_FOREIGN_NAME = rf"(?P<word>{_FOREIGN}){_AFTER}"
# Tokens and keys that page, count or identify, and open nothing.
_HARMLESS = (
    r"(?i)(?:(?:next|page|paging|pagination|continuation|starting|change|update|request|sync|cache"
    r"|idempotency|cancel\w*|eos|bos|pad|unk|stop|last|prev\w*|current|public|primary|foreign|lock"
    r"|partition|sort|sequence|publickey|next\w{0,12}|lookup|index|row|group|routing|event|field"
    r"|label|translation|state|query|registry|site|publishable|object|map|hash|etag|unique"
    r"|composite)[_-]?(?:token|key)|client[_-]?token|ask_?pass)\Z"
)
# What makes the word after a name its value: a flag, a command that sets variables; or its looks.
_FLAG = (
    r"(?:(?:^|[\s\"'\[(,])-{1,2}|\bENV |\bsetenv |\bsetx |\bconfigure set "
    r"|\bgit config (?:--\w+ )*)[\w.-]*\Z"
)
_LIKELY = r"(?=\S*[A-Za-z])(?=\S*\d)\S{7}"
_AFTER_FLAG = (
    r"(?:[A-Z_]+|option|flag|argument|param\w*|is|was|and|or|to|in|for|from|with|on|if|when|as|by"
    r"|via|the|an?|are|can|will|must|should|instead|value|file|prompt)(?![\w-])"
)
# Calls whose second argument is what the first one names.
_SETTER = (
    r"(?i)(?:define|getenv|env|get|setdefault|fill|type|set\w*|put|append|header)\([ \t]*[\"']"
    r"[^\"'\n]{0,40}(?:=\")?[\w.-]*\Z"
)
_SENTENCE_END = r"[.,;!)]*(?:\s*\Z|\s*\n|\.\s|\\n|です|입니다)"


def named(text: str, lowered: str) -> Iterator[Span]:
    """The values of telling names, as far as they are plausible secrets."""
    yield from _named(text, lowered, _NAME)
    if not text.isascii() and compiled(_SCRIPTS).search(lowered):
        yield from _named(text, lowered, _FOREIGN_NAME)


def _named(text: str, lowered: str, pattern: str) -> Iterator[Span]:
    done = run_end = refused = 0
    for match in compiled(pattern).finditer(lowered):
        first, at = match.start(), match.end()
        if first < done or at == len(text) or text[at] in "${([<,;)}]":
            continue
        if match["word"] == "pwd" and text[at] in "/~":  # where a shell stands
            continue
        if match["word"] in _SHORT and not compiled(r"(?:\A|[\W_]|motde)\Z").search(
            lowered[max(0, first - 5) : first]
        ):
            continue
        # A bare space leads to a value only after a flag, or when the value is quoted or strong.
        bare = match.lastgroup == "blank" and text[at] not in "\"'`\\"
        if bare and not _is_flag(text, first) and not compiled(_LIKELY).match(text, at):
            continue
        # One run of characters holds few names; one made of names alone must not cost a square.
        if at >= run_end:
            run_end, refused = _run_end(text, at, wide=True, limit=""), 0
        if refused < _REFUSALS and (span := _value(text, match)):
            done = span[1]
            yield span
        else:
            refused += 1


def _is_flag(text: str, at: int) -> bool:
    return bool(compiled(_FLAG).search(text[max(0, at - 60) : at]))


def member(name: str, value: str) -> str | None:
    """The kind of secret that this value is under this name, if it is one."""
    for pattern in (_NAME, _FOREIGN_NAME):
        match = compiled(pattern).search(lower(name) + "=")
        if match and _own_word(name, match) and not compiled(_HARMLESS).search(name):
            tier, kind = _tier(match["word"], name, name)
            if plausible(tier, value, "phrase" if match["word"] == "passphrase" else "quoted"):
                return kind
    return None


def _tier(word: str, name: str, before: str) -> tuple[int, str]:
    if word.startswith(("pass", "pw", "psk")):
        return PASSWORD, "password"
    if word == "secret":
        return SECRET, "secret"
    if word in ("key", "auth", "pat"):
        if word == "key" and compiled(_STRONG_KEY).search(before.lower()):
            return SECRET, "aws-secret-key" if "aws" in name.lower() else "api-key"
        return KEY, "high-entropy"
    if word.startswith(("token", "cred", "php", "jsess")) or compiled(_FOREIGN_TOKEN).match(word):
        return TOKEN, "token"
    if compiled(_FOREIGN_KEY).match(word):
        return (SECRET if "api" in before.lower() else TOKEN), "api-key"
    return PASSWORD, "password"


def _own_word(text: str, match: re.Match[str]) -> bool:
    """Whether "pass" is a word of its own and is given a value: not "bypass", not "pass `x`"."""
    if match["word"] != "pass":
        return True
    at = match.start()
    if match.end("word") != match.start("close") or match.lastgroup not in ("assign", "argument"):
        return False
    if at == 0 or not text[at - 1].isalpha() or (text[at] == "P" and text[at - 1].islower()):
        return True
    return text[max(0, at - 5) : at].lower().endswith(("db", "ssh", "user", "root", "store", "key"))


def _value(text: str, match: re.Match[str]) -> Span | None:
    first, sep = match.start(), text[match.end("close") : match.end()]
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
    if name.lower() == "pass" and how != "literal":  # "pass" also counts and names tests
        if bare and how != "line" and sep not in ("=", ":") and (name.isupper() or sep != ": "):
            return None
        how = "loose"
    if match["word"] == "passphrase" and how == "quoted":
        how = "phrase"
    own = match["word"] == "auth" or len(name) > len(match["word"]) + 1
    if tier == KEY and own and how not in ("loose", "bare"):
        how = "named"
    if how == "prose" and not compiled(_SENTENCE_END).match(text, at + len(value)):
        how = "loose"
    if not plausible(tier, value[:_LOOKED_AT], how):
        return None
    # What was too long to be looked at whole goes whole.
    whole = _run_end(text, at, wide=False, limit="") if len(value) == _LOOKED_AT else at
    return at, max(whole, at + len(value)), kind


def _written(text: str, match: re.Match[str], start: int, name: str) -> tuple[int, int, str]:
    """Where the value begins and ends, and how it is written down (see `plausible`)."""
    lead, at = match.lastgroup, match.end()
    sep = text[match.end("close") : at]
    flag = name.startswith("-") or (lead == "blank" and _is_flag(text, match.start()))
    env = sep == "=" and name.isupper()
    quote = compiled(r"([\w.]{3,40}\()?[rbuRBU]{0,2}(\\{0,9})(\"\"\"|'''|[\"'`])").match(text, at)
    if quote and compiled(r"(?i)\w*(?:env|get|read|input|prompt|load)").search(quote[1] or ""):
        return at, at, "loose"  # where it comes from
    if quote and not (env and quote[3] == "`"):  # which runs a command
        sure = lead in ("assign", "value", "default", "instead", "typed", "prose") and not quote[1]
        sure = sure or (lead == "blank" and text.endswith("#define ", 0, start))
        if lead == "call":
            sure = name.lower().startswith(("set", "with", "bearer", "basic", "api"))
        elif lead == "argument":
            sure = bool(compiled(_SETTER).search(text, max(0, start - 60), match.start()))
        how = "literal" if flag or env else "quoted" if sure else "loose"
        return quote.end(), _closing(text, quote), how
    if lead in ("tag", "plist"):
        tag = lead == "plist" or text.endswith(("<", ":", 'name="', 'key="'), 0, start)
        return at, max(at, text.find("<", at, at + 200)) if tag else at, "literal"
    if flag or env or lead == "value":
        prose = flag and compiled(_AFTER_FLAG).match(text, at)
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
    """Where a string literal ends; one that is not closed ends with its word."""
    at = quote.end()
    if quote[2] or len(quote[3]) == 3:
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
