"""Errors in words: what the agent says it met, and what a person pasted."""

from __future__ import annotations

import re

from ralph.capture.errors import (
    MOST_PER_OUTPUT,
    Place,
    Resolve,
    best_line,
    errors_in,
    folded,
    placed,
    plain_output,
    typed,
)
from ralph.records.iteration import ErrorSeen, ErrorType

_READ = 64_000
_LONGEST_LINE = 2000

_FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)
_SAID = re.compile(
    r"(?P<m>\b(?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception)(?: \[\w+\])?: [^\n`]{3,300})"
    r"|(?P<r>error\[E\d{4}\]: [^\n`]{3,300})"
)
# A line that is nothing but an error, as a terminal prints it: repeated, not told.
_ALONE = re.compile(r"(?P<m>(?:Error|ERROR|error|fatal|panic): [^\n`*]{8,300})")
_STATED = re.compile(r"(?:\b(?:at|in)|\() ?`?(?P<f>[\w@./-]+\.[a-z]\w{0,4})(?::|, line )(?P<l>\d+)")
_MET = re.compile(
    r"\b(?:fail(?:s|ed|ing|ure)?|got|gets|getting|hit|hitting|saw|see|seeing|encounter(?:ed|ing)?"
    r"|ran into|running into|crash(?:es|ed|ing)?|threw|raised|error (?:is|was|says)|broke|breaks"
    r"|blew up|errored|the error)\b",
    re.I,
)
_SUPPOSED = re.compile(
    r"\b(?:would|could|might|may|should|if|unless|when(?:ever)?|avoids?|prevent\w*|handl\w+"
    r"|catch\w*|instead of|expects?|expected|e\.g\.|for example|such as|like|returns?|raises"
    r"|throws|tests? that"
    r"|no longer|previous(?:ly)?|earlier iterations?|memory|documented|docs?)\b",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`\"(-])|\n+")
_SPOKEN = ("rror", "ERROR: ", "Exception", "fatal: ", "panic: ", "fail")


_FAILING = re.compile(
    r"(?:failing|failed) tests? (?:is|was|are|were)?:? ?`(?P<t>[\w:./ -]{4,120})`"
    r"|(?:the )?tests? `(?P<u>[\w:./ -]{4,120})` (?:fails|failed|is failing)",
    re.I,
)
_LINKED = re.compile(r"\b(?:at|in) \[[^\]]{1,200}\]\((?P<f>[^)\s]{1,300}?):(?P<l>\d{1,7})\)")


def errors_said(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Errors the agent reports in its own words, with class and message; never supposed ones."""
    if not any(part in text for part in _SPOKEN):
        return []
    found: list[ErrorSeen] = []
    plain = _FENCED.sub("\n", text[:_READ])
    lines = {line.strip() for line in plain.split("\n")}
    for sentence in _SENTENCE.split(plain):
        if len(sentence) > _LONGEST_LINE:
            continue
        alone = _ALONE.fullmatch(sentence.strip())
        if alone and alone["m"] in lines:
            message = alone["m"].removeprefix("error: ").removeprefix("fatal: ")
            found.append(ErrorSeen(message, typed("runtime", message), *_stated(message, resolve)))
            continue
        if failing := _FAILING.search(sentence):
            after = plain[plain.find(sentence) :][: len(sentence) + 400]
            linked = _LINKED.search(after)
            place = placed(linked["f"], linked["l"], resolve) if linked else _stated(after, resolve)
            found.append(ErrorSeen(failing["t"] or failing["u"], "test", *place))
            continue
        match = _SAID.search(sentence)
        if not match or sentence.lstrip().startswith(">"):
            continue
        around = sentence[: match.start()] + sentence[match.end() :]
        bare = not around.strip(" `*-\t")
        if (not bare and not _MET.search(around)) or _SUPPOSED.search(around):
            continue
        message = (match["m"] or match["r"]).rstrip(" .*")
        error_type: ErrorType = "compile" if match["r"] else "runtime"
        place = _stated(sentence[match.start() :], resolve)
        found.append(ErrorSeen(message, typed(error_type, message), *place))
    return found[:MOST_PER_OUTPUT]


def _stated(sentence: str, resolve: Resolve) -> Place:
    place = _STATED.search(sentence)
    return placed(place["f"], place["l"], resolve) if place else (None, None)


_LOGGED = re.compile(
    r"\[(?:ERROR|FATAL|CRITICAL|WARN(?:ING)?)\]:?[ \t]+"
    r"(?:(?P<f>[\w./\\-]{1,200}\.\w{1,5}):(?P<l>\d{1,7}): )?(?:\[\w{1,40}\]>? )?"
    r"(?P<m>[^\n]{10,400})"
)
_QUOTED = re.compile(
    r"\b(?:caus|fail|error|crash|throw|report|messag|warn|log|say|see|get)[a-z]{0,6}\W{1,3}"
    r"(?:[a-z]{1,10} ){0,3}`(?P<m>[^`\n]{15,300})`",
    re.I,
)
_TROUBLE = re.compile(
    r"(?i:\b(?:errors?|fail\w*|cannot|can't|could not|unable|denied|invalid|unknown|missing|refused"
    r"|undefined|unexpected|not found|no such|limit|exceeded|timed out|timeout|panic)\b"
    r"|(?-i:Error|Exception))"
)
_CODE = re.compile(r"\w\(|:=|=>|^(?:return|if|func|def|err|const|let|var)\b|\.\w+$|^[\w.-]+$")
_DOUBTFUL = re.compile(r"\b(?:would|could|might|should|if|e\.g\.|for example)\b", re.I)
# A list or a heading is written by hand; a log is not.
_LOG_LINES = re.compile(
    r"^(?![ \t]*(?:[-*+#>|]|\d+[.)])[ \t]).*"
    r"(?:exit(?:ed with)? (?:code|status) [1-9]|\bERROR\b|\bFAIL(?:ED|URE)?\b|Traceback).*$",
    re.M,
)
_BY_HAND = re.compile(r"\s*(?:[-*+#>|]|\d+[.)])\s")
_STYLE = re.compile(r"\b(?:need to be formatted|lint\w*|formatter)\b", re.I)


def errors_pasted(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Errors in a person's words: a pasted output or log line, or one quoted in the text."""
    text = text[:_READ]
    if not _TROUBLE.search(text) and not _LOGGED.search(text):
        return []
    plain = plain_output(text)
    found = [error for error in errors_in(plain, resolve, failed=False) if _is_own(error)]
    for match in _LOGGED.finditer(plain):
        message = match["m"].partition(". ")[0].strip()
        found.append(ErrorSeen(message, "runtime", *placed(match["f"], match["l"], resolve)))
    for sentence in _SENTENCE.split(_FENCED.sub("\n", plain)):
        if len(sentence) > _LONGEST_LINE or _DOUBTFUL.search(sentence):
            continue
        named, quoted = _SAID.search(sentence), _QUOTED.search(sentence)
        if named and _MET.search(sentence):
            message = (named["m"] or named["r"]).rstrip(" .*")
        elif quoted and _is_message(quoted["m"]):
            message = quoted["m"].removeprefix("error: ")
        else:
            continue
        found.append(ErrorSeen(message, typed("runtime", message), *_stated(sentence, resolve)))
    logged = "\n".join(line for line in plain.split("\n") if not _BY_HAND.match(line))
    if not found and len(_LOG_LINES.findall(plain)) > 1 and (message := best_line(logged)):
        error_type: ErrorType = "lint" if _STYLE.search(message) else "runtime"
        path = message.rpartition(" ")[2]
        place = resolve(path) if "." in path and error_type == "lint" else None
        found.append(ErrorSeen(message, error_type, place))
    return folded(found)[:MOST_PER_OUTPUT]


def _is_message(quoted: str) -> bool:
    """Whether what stands in backticks is a message, and not code."""
    return _TROUBLE.search(quoted) is not None and not _CODE.search(quoted)


def _is_own(error: ErrorSeen) -> bool:
    """Whether an error says what went wrong, not only that a job ended."""
    return not error.message.startswith(("Error: Process completed", "Process completed"))
