"""Find errors in a command's output: their type, their place if stated, one entry per cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from ralph.capture.rules import pattern, rows
from ralph.records.iteration import ErrorSeen, ErrorType
from ralph.text.signature import signature, tells

# Where to look for the place or the reason if the line itself does not give it.
Look = str
# Turns a printed path into the path in the project, or None outside it.
Resolve = Callable[[str], str | None]
Place = tuple[str | None, int | None]

MOST_PER_OUTPUT = 10
LONGEST_LINE = 2000
_HEAD = 64_000
_TAIL = 192_000

# GitHub's mark of an error; after it, a linter's error begins with its place.
_ANNOTATION = re.compile(r"##\[error\](?:([\w./\\-]{1,300}:\d)|)")
_ARROWS = ("--> ", "╭─[")
_CHAINED = re.compile(r"(?:During handling of the above|The above exception was the direct cause)")
_AT = pattern("at")
_ARROW = re.compile(r"\s*(?:-->|╭─\[)\s*(?P<f>[^\s:]+):(?P<l>\d+)")
_PYTEST_PLACE = re.compile(r"(?P<f>\S+\.py):(?P<l>\d+): (?:\w|$)")
_CODED = re.compile(r"(?:E\d{4}|[a-z][\w:-]+)\]: ")
_WORDS = re.compile(r"\s*(?!\u25cf|FAIL|ERR_|at |Test|\u2717|\u2716)(?P<m>\S.*)")


class Wording(NamedTuple):
    """One way a tool words an error."""

    error_type: ErrorType
    pattern: re.Pattern[str]
    look: Look


def _wordings(section: str) -> tuple[Wording, ...]:
    fields = (row.split(" ", 2) for row in rows(section))
    return tuple(
        Wording(msgspec.convert(kind, ErrorType), re.compile(text), look.strip("-"))
        for kind, look, text in fields
    )


# The weak ones count only if the command failed and no strong one matched.
STRONG = _wordings("strong")
WEAK = _wordings("weak")

# Every wording contains one of these. Finding them is fast, matching the table is not, so only the
# lines that contain one are matched.
TRIGGERS = (
    *("rror", "ERR", "FATAL", "fatal: ", "FAIL", "Fail", "(fail)", "xception", "Traceback"),
    *("anic", "ault", "denied", "EACCES", "EPERM", "ermitted", "Read-only"),
    *("not found", "undefined ref", "CONFLICT", "curl: (", "rspec ", " MD0", "\u2501\u2501\u2501"),
    *("Aborted", "E   ", ".go:", ".py:", ".rb:", "\u00d7", "✗", "✖", "●", "] \u203a ", "[E]"),
    *("(eval):", "zsh:", "recogni", "CategoryInfo", "\nLine |", "ignored by one", "warning["),
    *("error \u2022", "error -", "rejected]"),
)
# More of these for the weak wordings, which are tried only on failed commands.
WEAK_TRIGGERS = tuple("make irectory cannot can't nable invalid illegal nrecogni nknown".split())


@cache
def any_of(wordings: tuple[Wording, ...]) -> re.Pattern[str]:
    """Return one pattern for all wordings, to rule out lines that none of them matches."""
    whole = "|".join(f"(?:{wording.pattern.pattern})" for wording in wordings)
    return re.compile(re.sub(r"\(\?P<\w+>", "(?:", whole))


# Lines that mention errors only to say that there are none.
NOT_AN_ERROR = pattern("not an error")
# Stack frames outside the project.
FOREIGN = pattern("foreign")
COMPILE_CLASSES = re.compile(r"(?:Syntax|Indentation|Tab)Error|Parse ?Error")
PERMISSION = re.compile(r"PermissionError|permission denied|EACCES|EPERM|not permitted", re.I)
TEST_CLASSES = re.compile(r"Assertion(?:Error|Failed)|^assert |ComparisonFailure|expect\(")
LINT_WORDS = re.compile(r"need to be formatted|not (?:properly )?formatted")

# Patterns of an error's place and of its reason, and how many lines below the error to search.
_PLACES: dict[Look, tuple[re.Pattern[str], int]] = {
    "arrow": (_ARROW, 5),
    "must_arrow": (_ARROW, 5),
    "frames": (_AT, 24),
    "reason": (_AT, 24),
    "back": (_PYTEST_PLACE, 11),
}
_REASONS: dict[Look, tuple[re.Pattern[str], int]] = {
    # "mismatched types" fits any program; the types that were found are specific.
    "arrow": (re.compile(r"\s*\|[\s^~-]+ (?P<m>[^\s^~-][^`]*`.*)"), 8),
    "must_arrow": (re.compile(r"\s*\|[\s^~-]+ (?P<m>[^\s^~-][^`]*`.*)"), 8),
    "symbol": (re.compile(r"\s+symbol: +(?P<m>.+)"), 4),
    "biome": (re.compile(r"\s*[\u00d7\u2716!]\s*(?P<m>.+)"), 6),
    "powershell": (re.compile(r"\s+\| (?P<m>[^\s~].*)"), 9),
    "box": (re.compile(r"\s*\u2502(?P<m>[^\u2502]+)"), 2),
    "colon": (_WORDS, 2),
    "panic": (_WORDS, 1),
}
JUDGED = frozenset({"test", "compile", "lint"})
_MANY_NAMES = 4
_MANY_ALIKE = 4
# What a message names. Two are alike if they share this many other words, and differ in few.
_QUOTED_NAME = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_NAME = re.compile(r".*[._(\[].|.*[a-z][A-Z]|.*\d")
_LEAST_PLAIN = 4
_MOST_DIFFERENT = 2
_MOST_COMPARED = 100
_CLEAR = 4
# Lines that say only that something failed, or what to do.
ASIDE = pattern("aside")


# How test runners name a failed test above its reason: unittest, node and others, TAP.
_TEST_NAME = re.compile(
    r"(?:FAIL|ERROR): (\S+) \(|\s*[\u2716\u2717\u00d7\u2715] (.+?)(?: \([\d.]+m?s\))?$"
    r"|\s*not ok \d+ - (.+)$"
)
_TAP_NAME = re.compile(r"name: '\w*Error'")
_ASSERTS = re.compile(r"(?i)assert|expected|!=|==")
# How far above its reason the name of a test is.
_TEST_NAME_ABOVE = 40


def errors_in(output: str, resolve: Resolve, *, failed: bool) -> list[ErrorSeen]:
    """Return the errors in a command's output, at most a handful, one entry per cause.

    For a command that succeeded, only the beginning and the end of the output are read.
    """
    head, tail, most = (_HEAD, _TAIL, 400) if failed else (1_000, 6_000, 40)
    if len(output) > head + tail:
        output = output[:head] + "\n" + output[-tail:]
    output = plain_output(output)
    at = _holding(output, TRIGGERS + WEAK_TRIGGERS if failed else TRIGGERS, most)
    if any(arrow in output for arrow in _ARROWS):
        at |= {max(0, number - 1) for number in _holding(output, _ARROWS, most)}
    if not at:
        return []
    if len(at) > most:
        # A log of errors that were handled: what counts is at its end.
        at = set(sorted(at)[-most:])
    lines = [line[:LONGEST_LINE].rstrip() for line in output.split("\n")]
    found = list(_strong(lines, at, resolve))
    if any(error.error_type in JUDGED for error in found):
        # A compiler, linter or test runner gave its verdict: the rest is its log.
        found = [error for error in found if error.error_type in JUDGED]
    if not found and failed:
        weak = list(_worded(lines, at, WEAK, resolve))
        found = sorted(weak, key=lambda error: -_telling(error.message))[:1]
    return folded(found)[:MOST_PER_OUTPUT]


def with_test_name(error: ErrorSeen, output: str) -> ErrorSeen:
    """Return an assertion that shows only values with its test's name, which tells it apart."""
    message = error.message
    is_name = _TAP_NAME.fullmatch(message) is not None
    if not is_name and (tells(message) or not _ASSERTS.search(message)):
        return error
    lines = output.split("\n")
    at = next((n for n, line in enumerate(lines) if message in line), 0)
    for line in reversed(lines[max(0, at - _TEST_NAME_ABOVE) : at]):
        if found := _TEST_NAME.match(line):
            reason = "AssertionError" if is_name else message
            name = next(filter(None, found.groups()))
            return msgspec.structs.replace(error, message=f"`{name}`: {reason}", error_type="test")
    return error


def plain_output(output: str) -> str:
    """Return the output without colors, and without the line prefixes of CI and task runners."""
    if "\x1b" in output or "^[[" in output:
        output = pattern("ansi").sub("", output)
    if "\r" in output:
        output = output.replace("\r\n", "\n").replace("\r", "\n")
    if "Z " in output or "\n[" in output or output.startswith("["):
        output = pattern("prefix").sub("", output)
    return _ANNOTATION.sub(lambda m: m[1] or "Error: ", output) if "##[" in output else output


def folded(errors: list[ErrorSeen]) -> list[ErrorSeen]:
    """Return one entry per cause (a linter's rule, the reason of several tests), with a count."""
    causes: dict[str, ErrorSeen] = {}
    for error in errors:
        key = _cause(error)
        same = next((k for k in causes if k == key or _says_more(k, key)), key)
        before = causes.setdefault(same, error)
        if before is error:
            continue
        # A test's name alone, and the name with a reason, are one failure.
        longer = error if len(key) > len(same) else before
        place = next((one for one in (longer, before, error) if one.file_path), error)
        causes[same] = msgspec.structs.replace(
            longer,
            count=before.count + (error.count if same == key else 0),
            error_type=before.error_type if before.error_type in JUDGED else error.error_type,
            file_path=place.file_path,
            line=place.line,
        )
    different = _alike_folded(list(causes.values()))
    bare = [e for e in different if e.error_type == "test" and ": " not in e.message]
    if len(bare) <= _MANY_NAMES:
        return different
    # Many tests of which only the names are known usually fail for one reason.
    first = f"{bare[0].message} and {len(bare) - 1} more tests"
    whole = msgspec.structs.replace(bare[0], message=first, count=len(bare))
    return [whole, *(error for error in different if error not in bare)]


def _alike_folded(errors: list[ErrorSeen]) -> list[ErrorSeen]:
    """Return the errors, but of many that differ only in a name the first, with their count.

    A compiler repeats one mistake for every place that it is made at.
    """
    groups: list[tuple[frozenset[str], list[ErrorSeen]]] = []
    for error in errors[:_MOST_COMPARED]:
        words = _plain_words(error.message)
        is_repeated = error.error_type in {"compile", "lint"}
        near = (same for other, same in groups if is_repeated and _are_alike(words, other))
        if same := next(near, None):
            same.append(error)
        else:
            groups.append((words if is_repeated else frozenset(), [error]))
    found: list[ErrorSeen] = []
    for _, same in groups:
        if len(same) < _MANY_ALIKE:
            found += same
        else:
            found.append(msgspec.structs.replace(same[0], count=sum(one.count for one in same)))
    return found


def _plain_words(message: str) -> frozenset[str]:
    """Return the words of a message without what it names."""
    words = _QUOTED_NAME.sub(" ", message[:LONGEST_LINE]).split()
    plain = (word.strip(".,:;()") for word in words if not _NAME.match(word))
    return frozenset(plain) - {""}


def _are_alike(words: frozenset[str], others: frozenset[str]) -> bool:
    return len(words & others) >= _LEAST_PLAIN and len(words ^ others) <= _MOST_DIFFERENT


def _says_more(one: str, other: str) -> bool:
    """Whether one is the other plus a reason, or plus the name of a part."""
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith((f"{shorter}: ", f"{shorter}/"))


def _cause(error: ErrorSeen) -> str:
    """Return what two errors of one output have in common if they are the same: rule or reason."""
    message = error.message
    if error.error_type == "lint" and (rule := pattern("rule").search(message)):
        words = message[: rule.start()].split()[:4] if rule.start() else message.split()[1:5]
        return f"{rule[0]} {' '.join(words)}"
    is_syntax = error.error_type == "compile" and pattern("syntax").match(message)
    if is_syntax and error.file_path:
        return f"syntax of {error.file_path}"
    name, _, reason = message.partition(": ")
    if name == "command not found":
        return name  # a text with backticks, which the shell ran word by word
    if error.error_type == "test" and len(reason) > 25:
        # Wrapped errors name their cause last.
        parts = reason.split(": ")
        if len(parts) > 2 and len(inner := ": ".join(parts[-2:])) > 15:
            return signature(inner)
        if not pattern("generic reason").match(reason):
            return signature(reason)
    return message


def best_line(output: str) -> str:
    """Return the line of a failed command's output whose wording best states the error, or ""."""
    lines = [line.strip()[:LONGEST_LINE] for line in plain_output(output[-_TAIL:]).split("\n")]
    if len(lines) > 120:
        lines = lines[:40] + lines[-80:]
    score, at = max((_telling(line), -at) for at, line in enumerate(lines))
    if score < _CLEAR:
        return ""
    line = pattern("when").sub("", lines[-at], count=1)
    if line.endswith(":"):
        line = f"{line} {next(filter(None, lines[-at + 1 : -at + 3]), '')}".rstrip()
    return line.removeprefix("error: ").removeprefix("ERROR: ")


def _telling(line: str) -> int:
    """Score how clearly a line states an error."""
    if not 6 <= len(line) <= 500:
        return 0
    score = 4 if pattern("tells").search(line) else 0
    score += 2 if pattern("speaker").match(line) else 0
    score += 1 if "'" in line or '"' in line or "`" in line else 0
    score -= 3 if line[0] in "{[" else 0
    return score - (5 if ASIDE.search(line) else 0)


def _holding(text: str, parts: tuple[str, ...], most: int) -> set[int]:
    """Return the numbers of the lines that contain one of the parts."""
    found: set[int] = set()
    for part in parts:
        at = text.find(part)
        number = position = 0
        for _ in range(most):
            if at < 0:
                break
            number += text.count("\n", position, at)
            found.add(number)
            position = at
            end = text.find("\n", at)
            at = text.find(part, end) if end >= 0 else -1
    return found


def _strong(lines: list[str], at: set[int], resolve: Resolve) -> Iterator[ErrorSeen]:
    taken: set[int] = set()
    for error, first, last in _tracebacks(lines, at, resolve):
        taken.update(range(first, last + 1))
        if error:
            yield error
    # pytest reports each failure twice; its summary has the test's name.
    if any(lines[number].startswith(("FAILED ", "ERROR ")) for number in at):
        taken.update(number for number in at if lines[number].startswith("E "))
    yield from _worded(lines, at - taken, STRONG, resolve)


def _worded(
    lines: list[str], at: set[int], wordings: tuple[Wording, ...], resolve: Resolve
) -> Iterator[ErrorSeen]:
    numbers = sorted(number for number in at if any_of(wordings).match(lines[number]))
    places = [m for number in sorted(at) if (m := _PYTEST_PLACE.match(lines[number]))]
    reasons: set[int] = set()
    for number in numbers:
        line = lines[number]
        if number in reasons or not line:
            continue
        for wording in wordings:
            match = wording.pattern.match(line)
            if match is None:
                continue
            if NOT_AN_ERROR.search(line):
                break
            near = lines[number + 1 : number + 4]
            if wording.look == "must_arrow" and not any(map(_ARROW.match, near)):
                continue
            if wording.look == "powershell" and not "".join(near[:1]).startswith("Line |"):
                continue
            if wording.look == "reason":
                reasons.add(_next(lines, number))
            yield _error(match, wording, lines, places, number, resolve)
            break


def _error(
    match: re.Match[str],
    wording: Wording,
    lines: list[str],
    places: list[re.Match[str]],
    at: int,
    resolve: Resolve,
) -> ErrorSeen:
    groups = match.groupdict()
    message = (groups.get("m") or "").strip()
    file = groups.get("f")
    number = groups.get("l")
    test = groups.get("t")
    if test:
        message = f"{test}: {message}" if message else test
        # The n-th failure of a file belongs to the file's n-th place above.
        same = next((p for p in places if p["f"] == file), None) if file and not number else None
        if same:
            places.remove(same)
            number = same["l"]
    place = placed(file, number, resolve)
    more, found = _look(wording.look, lines, at, resolve) if wording.look else ("", (None, None))
    place = place if place[0] else (found[0], found[1] or place[1])
    if not more and message.endswith(":") and wording.look in {"", "arrow"}:
        more = "".join(lines[_next(lines, at) :][:1]).strip()
    joint = " " if message.endswith(":") else ": "
    message = f"{message}{joint}{more}" if more and message else message or more
    if _CODED.match(message):
        message = f"error[{message}"
    error_type = typed(wording.error_type, message)
    if wording.look == "panic":
        # A thread is named after its test.
        named = test not in {None, "", "main", "<unnamed>"}
        message = message if named else message.partition(": ")[2] or message
        error_type = "test" if named else error_type
    return ErrorSeen(message, error_type, place[0], place[1])


def typed(error_type: ErrorType, message: str) -> ErrorType:
    """Return the type of an error, from its message if the tool does not give one."""
    if error_type != "runtime":
        return error_type
    if PERMISSION.search(message):
        return "permission"
    if COMPILE_CLASSES.match(message):
        return "compile"
    if LINT_WORDS.search(message):
        return "lint"
    return "test" if TEST_CLASSES.match(message) else "runtime"


def placed(file: str | None, number: str | None, resolve: Resolve) -> Place:
    """Return the file in the project, and the line."""
    # Nobody has a file of a hundred million lines.
    line = int(number) if number and len(number) < 9 else None
    if not file or FOREIGN.search(file):
        return None, line if not file else None
    path = resolve(file)
    return path, line if path else None


def _look(look: Look, lines: list[str], at: int, resolve: Resolve) -> tuple[str, Place]:
    """Return the reason and the place that the lines around an error give."""
    above = lines[max(0, at - 40) : at][::-1]
    reason = ""
    place: Place = (None, None)
    if look in _REASONS:
        wanted, most = _REASONS[look]
        reason = next((m["m"] for m in map(wanted.match, lines[at + 1 :][:most]) if m), "")
    if look in _PLACES:
        wanted, most = _PLACES[look]
        place = _first(wanted, lines[at + 1 :][:most], resolve)
        if look == "frames" and not place[0]:
            place = _first(pattern("frame"), above[:4], resolve)
    if look == "reason":
        after = _WORDS.match("".join(lines[_next(lines, at) :][:1]))
        reason = after["m"] if after else ""
    elif look == "category":
        said = (line.strip() for line in above[:6])
        reason = next((line for line in said if line and line[0] not in "+~A"), "")
    elif look == "heading":
        place = _first(pattern("bare path"), above, resolve)
    elif look == "go":
        return _go_reason(lines, at, resolve)
    elif look == "bun":
        for index, line in enumerate(above[:15]):
            if match := pattern("expected").match(line):
                return match["m"].strip(), _first(_AT, above[:index][::-1], resolve)
    return reason.strip(), place


def _go_reason(lines: list[str], at: int, resolve: Resolve) -> tuple[str, Place]:
    """Return why a Go test failed: stated below its name, or with -v above it."""
    name = lines[at].split("FAIL: ")[1].split(" ")[0]
    above: list[str] = []
    for line in reversed(lines[max(0, at - 80) : at]):
        if line.startswith(("=== RUN", "--- ")):
            above = above if line.endswith(f" {name}") else []
            break
        above.insert(0, line)
    for line in [*lines[at + 1 : at + 8], *above]:
        if match := pattern("go place").match(line):
            return match["m"].strip(), placed(match["f"], match["l"], resolve)
    return "", (None, None)


def _next(lines: list[str], at: int) -> int:
    """Return the number of the next line that is not blank."""
    after = at + 1
    while after < len(lines) and not lines[after].strip():
        after += 1
    return after


def _first(pattern: re.Pattern[str], lines: list[str], resolve: Resolve) -> Place:
    for found in filter(None, map(pattern.match, lines)):
        place = placed(found["f"], found["l"], resolve)
        if place[0]:
            return place
    return None, None


def _tracebacks(
    lines: list[str], at: set[int], resolve: Resolve
) -> Iterator[tuple[ErrorSeen | None, int, int]]:
    """Yield Python's tracebacks: the message is the last line, the place our deepest frame."""
    for first in sorted(number for number in at if pattern("traceback").search(lines[number])):
        place: Place = (None, None)
        last = first + 1
        while last < len(lines) and (not lines[last] or lines[last][0] in " \t"):
            if frame := pattern("frame").match(lines[last]):
                ours = placed(frame["f"], frame["l"], resolve)
                place = ours if ours[0] else place
            last += 1
        raised = pattern("raised").match(lines[last]) if last < len(lines) else None
        if raised is None or any(_CHAINED.match(line) for line in lines[last + 1 : last + 4]):
            yield None, first, last
            continue
        yield ErrorSeen(raised["m"], typed("runtime", raised["m"]), *place), first, last
