"""Errors in a command's output: typed, placed where they say so, one entry for each cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from ralph.capture.wordings import (
    COMPILE_CLASSES,
    FOREIGN,
    NOT_AN_ERROR,
    PERMISSION,
    STRONG,
    TEST_CLASSES,
    WEAK,
    Look,
    Wording,
    any_of,
)
from ralph.records.iteration import ErrorSeen, ErrorType
from ralph.text.signature import signature

# From a path as printed to the path in the project, or None outside it.
Resolve = Callable[[str], str | None]

MOST_PER_OUTPUT = 10
_LONGEST_LINE = 2000
_HEAD, _TAIL = 64_000, 192_000

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))|\^\[\[[0-9;]{0,12}m")
# What every wording in the table holds one of. Finding these is fast, matching the table is not,
# so only the lines that hold one are matched.
_TRIGGERS = (
    *("rror", "ERR", "FATAL", "fatal: ", "FAIL", "Fail", "(fail)", "xception", "Traceback"),
    *("anic", "ault", "denied", "EACCES", "EPERM", "ermitted", "Read-only"),
    *("not found", "undefined ref", "CONFLICT", "curl: (", "rspec ", " MD0", "\u2501\u2501\u2501"),
    *("Aborted", "E   ", ".go:", ".py:", ".rb:", "\u00d7", "✗", "✖", "●", "] \u203a ", "[E]"),
    *("(eval):", "zsh:", "recogni", "CategoryInfo", "\nLine |", "ignored by one", "warning["),
    *("error \u2022", "error -", "rejected]"),
)
# What the weak wordings hold besides; only failed commands are asked for them.
_WEAK_TRIGGERS = (
    *(
        "make",
        "irectory",
        "cannot",
        "can't",
        "nable to",
        "invalid",
        "illegal",
        "nrecogni",
        "nknown",
    ),
)
_ARROWS = ("--> ", "╭─[")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):")
_FRAME = re.compile(r'\s*File "(?P<f>[^"]+)", line (?P<l>\d+)')
_RAISED = re.compile(r"(?P<m>[A-Za-z_][\w.]*(?:: .*)?)$")
_CHAINED = re.compile(r"(?:During handling of the above|The above exception was the direct cause)")
_AT = re.compile(
    r"\s+(?:at|from|\u276f) (?:.*?\()?(?:file://)?(?P<f>[^\s()`'\"]+?\.\w+):(?P<l>\d+)(?::\d+)?\)?"
)
_ARROW = re.compile(r"\s*(?:-->|╭─\[)\s*(?P<f>[^\s:]+):(?P<l>\d+)")
_PYTEST_PLACE = re.compile(r"(?P<f>\S+\.py):(?P<l>\d+): (?:\w|$)")
_GO_PLACE = re.compile(r"\s+(?P<f>\S+_test\.go):(?P<l>\d+): (?P<m>.+)")
_BARE_PATH = re.compile(r"(?P<f>/?[\w.@/+-]+\.\w{1,5})$")
_EXPECTED = re.compile(r"error: (?P<m>.+)")
_CODED = re.compile(r"(?:E\d{4}|[a-z][\w:-]+)\]: ")
_NO_REASON = ("\u25cf", "FAIL", "ERR_", "at ", "Test", "\u2717", "\u2716")
_NAME = re.compile(r"['\"`]([^'\"`]{1,80})['\"`]")
_NAMELESS = re.compile(
    r"(?:TS\d+: )?(?:Cannot find (?:module|package)|Could not resolve|No module named)"
)
_WHEN = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*\s+")
# GitHub's mark of an error; a linter's begins with its place.
_ANNOTATION = re.compile(r"##\[error\](?:([\w./\\-]{1,300}:\d)|)")
_CROSSES = ("\u00d7", "\u2716", "!")
_CAUGHT = re.compile(r"\s*\|[\s^~-]+ (?P<m>[^\s^~-].*)")
_SYMBOL = re.compile(r"\s+symbol: +(?P<m>.+)")
_CONCISE = re.compile(r"\s+\| (?P<m>[^\s~].*)")
# A job's log, a runner of tasks, containers: who speaks stands before each line.
_PREFIX = re.compile(
    r"^(?:[^\t\n]{1,100}\t[^\t\n]{1,100}\t)?\ufeff?\d{4}-\d\d-\d\dT[\d:.]{8,16}Z ?"
    r"|^\[[a-z][\w:./ -]{1,40}\] (?: *\| )?",
    re.M,
)
JUDGED = frozenset({"test", "compile", "lint"})
_RULE = re.compile(r"\([a-z][\w-]+\)$|^(?:[A-Z]{1,4}\d{2,4}|MD\d{3}/\S+|lint/\S+)\b")
# Says only that something differs, not what is wrong.
_GENERIC_REASON = re.compile(r"expect|assert|exit status|not equal|got\b|want\b|failed\b", re.I)
_CLEAR = 4
_MANY_NAMES = 4
_TELLS = re.compile(
    r"(?i:\b(?:errors?|fatal|failed|failure|cannot|can't|couldn't|could not|unable|denied|invalid"
    r"|unknown|unrecogni[sz]ed|missing|refused|rejected|undefined|unexpected|illegal|conflict"
    r"|not found|no such|not exist|already exists|not allowed|not permitted|unsupported|timed out"
    r"|mismatch|abort(?:ed|ing)|too (?:many|large|long)|did not|does ?n[o']t|is not|are not"
    r"|ignored by|must be|no version|exceeded|expired|need to be)\b"
    r"|(?-i:[A-Z]\w+(?:Error|Exception)\b))"
)
_SPEAKER = re.compile(r"[\w./+-]{2,40}(?:\[\d+\])?: \S")
_ASIDE = re.compile(
    r"(?i:^\s*at \S+ \(|exit with code|action failed$|^Error: Job "
    r"|^\W*(?:hint|note|help|usage|info|warn(?:ing)?|debug|trace|see|try|to fix|consider|use)\b"
    r"|^\[[\w: -]+\]$|task failed$|exited with"
    r"|failed with (?:exit )?code|ELIFECYCLE|for more information|--help\b"
    r"|complete log|script failed|\b(?:0|no) (?:errors?|failed)|\bPASS\b|^ok\b|errors were emitted"
    r"|could not compile|aborting due|build failed|process completed)"
)

Place = tuple[str | None, int | None]
_NOWHERE: Place = (None, None)


def errors_in(output: str, resolve: Resolve, *, failed: bool) -> list[ErrorSeen]:
    """The errors a command's output tells of, at most a handful, one entry for each cause.

    A command that went well is only looked at where it began and where it ended.
    """
    head, tail, most = (_HEAD, _TAIL, 400) if failed else (1_000, 6_000, 40)
    if len(output) > head + tail:
        output = output[:head] + "\n" + output[-tail:]
    output = plain_output(output)
    triggers = _TRIGGERS + _WEAK_TRIGGERS if failed else _TRIGGERS
    at = _holding(output, triggers, most)
    if any(arrow in output for arrow in _ARROWS):
        at |= {max(0, number - 1) for number in _holding(output, _ARROWS, most)}
    if not at:
        return []
    if len(at) > most:
        # A log of errors handled: what counts stands at its end.
        at = set(sorted(at)[-most:])
    lines = [line[:_LONGEST_LINE].rstrip() for line in output.split("\n")]
    found = list(_strong(lines, at, resolve))
    if any(error.error_type in JUDGED for error in found):
        # A compiler, linter or test runner gave its verdict: the rest is what it logged.
        found = [error for error in found if error.error_type in JUDGED]
    if not found and failed:
        weak = list(_worded(lines, at, WEAK, resolve))
        found = sorted(weak, key=lambda error: -_telling(error.message))[:1]
    return folded(found)[:MOST_PER_OUTPUT]


def plain_output(output: str) -> str:
    """The output without colors, and without what CI and task runners put before each line."""
    if "\x1b" in output or "^[[" in output:
        output = _ANSI.sub("", output)
    if "\r" in output:
        output = output.replace("\r\n", "\n").replace("\r", "\n")
    if "Z " in output or "\n[" in output or output.startswith("["):
        output = _PREFIX.sub("", output)
    return _ANNOTATION.sub(lambda m: m[1] or "Error: ", output) if "##[" in output else output


def folded(errors: list[ErrorSeen]) -> list[ErrorSeen]:
    """One entry for each cause: a linter's rule, the reason of several tests; each with a count."""
    kept: dict[str, ErrorSeen] = {}
    for error in errors:
        key = _cause(error)
        same = next((k for k in kept if k == key or _says_more(k, key)), None)
        if same is None:
            kept[key] = error
            continue
        before = kept[same]
        if _NAMELESS.match(key) and len(before.message) < 420:
            # Several names are missing for one reason: each is worth finding.
            names = [
                name for name in _NAME.findall(error.message)[:1] if name not in before.message
            ]
            before = msgspec.structs.replace(
                before, message=before.message + "".join(f", '{name}'" for name in names)
            )
        # A test's name alone, and with its reason, is one failure.
        more = 0 if _says_more(same, key) else error.count
        longer = error if len(key) > len(same) and more == 0 else before
        place = longer if longer.file_path else before if before.file_path else error
        kept[same] = msgspec.structs.replace(
            longer,
            count=before.count + more,
            error_type=before.error_type if before.error_type in JUDGED else error.error_type,
            file_path=place.file_path,
            line=place.line,
        )
    return _few_names(list(kept.values()))


def _few_names(errors: list[ErrorSeen]) -> list[ErrorSeen]:
    """Many tests of which only the names are known fail for one reason, more often than not."""
    bare = [one for one in errors if one.error_type == "test" and ": " not in one.message]
    if len(bare) <= _MANY_NAMES:
        return errors
    first = bare[0]
    whole = msgspec.structs.replace(
        first, message=f"{first.message} and {len(bare) - 1} more tests", count=len(bare)
    )
    return [whole if one is first else one for one in errors if one is first or one not in bare]


def _says_more(one: str, other: str) -> bool:
    """Whether one is the other with a reason, or with the name of a part."""
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith((f"{shorter}: ", f"{shorter}/"))


def _cause(error: ErrorSeen) -> str:
    """What makes two errors of one output the same: their rule, or their reason."""
    message = error.message
    if error.error_type == "lint" and (rule := _RULE.search(message)):
        words = message[: rule.start()].split()[:4] if rule.start() else message.split()[1:5]
        return f"{rule[0]} {' '.join(words)}"
    name, _, reason = message.partition(": ")
    if name == "command not found":
        return name  # a text with backticks in it, run by the shell word by word
    if module := _NAMELESS.match(message):
        return module[0]
    if error.error_type == "test" and len(reason) > 25:
        # Wrapped errors name their cause last.
        parts = reason.split(": ")
        if len(parts) > 2 and len(inner := ": ".join(parts[-2:])) > 15:
            return signature(inner)
        if not _GENERIC_REASON.match(reason):
            return signature(reason)
    return message


def says_little(message: str) -> bool:
    """Whether a message only says that something failed, not what."""
    return _ASIDE.search(message) is not None


def best_line(output: str) -> str:
    """The line of a failed command's output that tells the error, by its wording; or nothing."""
    lines = [line.strip()[:_LONGEST_LINE] for line in plain_output(output[-_TAIL:]).split("\n")]
    if len(lines) > 120:
        lines = lines[:40] + lines[-80:]
    scored = [(_telling(line), -at) for at, line in enumerate(lines)]
    score, at = max(scored, default=(0, 0))
    if score < _CLEAR:
        return ""
    line, after = lines[-at], lines[-at + 1 : -at + 3]
    line = _WHEN.sub("", line, count=1)
    if line.endswith(":") and (more := next((one for one in after if one), "")):
        line = f"{line} {more}"
    return line.removeprefix("error: ").removeprefix("ERROR: ")


def _telling(line: str) -> int:
    """How plainly a line tells an error."""
    if not 6 <= len(line) <= 500:
        return 0
    score = 4 if _TELLS.search(line) else 0
    score += 2 if _SPEAKER.match(line) else 0
    score += 1 if "'" in line or '"' in line or "`" in line else 0
    score -= 3 if line[0] in "{[" else 0
    return score - (5 if _ASIDE.search(line) else 0)


def _holding(text: str, parts: tuple[str, ...], most: int) -> set[int]:
    """The numbers of the lines that hold one of the parts."""
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
    # pytest says the same twice; its summary knows the test's name.
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
            if wording.look == "must_arrow" and not _near(_ARROW, lines, number, 3):
                continue
            if wording.look == "powershell" and not "".join(lines[number + 1 :][:1]).startswith(
                "Line |"
            ):
                continue
            if wording.look == "reason":
                reasons.add(_next(lines, number))
            yield _error(match, wording, lines, number, places, resolve)
            break


def _error(
    match: re.Match[str],
    wording: Wording,
    lines: list[str],
    at: int,
    places: list[re.Match[str]],
    resolve: Resolve,
) -> ErrorSeen:
    groups = match.groupdict()
    message = (groups.get("m") or "").strip()
    file, number = groups.get("f"), groups.get("l")
    if test := groups.get("t"):
        message = f"{test}: {message}" if message else test
        if file and not number:
            # The n-th failure in a file has its n-th place above.
            same = next((p for p in places if p["f"] == file), None)
            if same:
                places.remove(same)
                number = same["l"]
    place = placed(file, number, resolve)
    if wording.look != "no":
        more, found = _look(wording.look, lines, at, resolve)
        place = place if place[0] else (found[0], found[1] or place[1])
        joint = " " if message.endswith(":") else ": "
        message = f"{message}{joint}{more}" if more and message else message or more
    if (
        message.endswith(":")
        and wording.look in {"no", "arrow"}
        and (after := _next(lines, at)) < len(lines)
    ):
        message = f"{message} {lines[after].strip()}"
    if _CODED.match(message):
        message = f"error[{message}"
    error_type = typed(wording.error_type, message)
    if wording.look == "panic":
        # A thread is named after its test.
        named = groups.get("t") not in {None, "", "main", "<unnamed>"}
        message = message if named else message.partition(": ")[2] or message
        error_type = "test" if named else error_type
    return ErrorSeen(message, error_type, place[0], place[1])


def typed(error_type: ErrorType, message: str) -> ErrorType:
    if error_type == "runtime":
        if PERMISSION.search(message):
            return "permission"
        if COMPILE_CLASSES.match(message):
            return "compile"
        if TEST_CLASSES.match(message):
            return "test"
    return error_type


def placed(file: str | None, number: str | None, resolve: Resolve) -> Place:
    # Nobody has a file of a hundred million lines.
    line = int(number) if number and len(number) < 9 else None
    if not file or FOREIGN.search(file):
        return None, line if not file else None
    path = resolve(file)
    return path, line if path else None


def _look(look: Look, lines: list[str], at: int, resolve: Resolve) -> tuple[str, Place]:
    """What the lines around say more about an error: a reason, and a place."""
    below = lines[at + 1 : at + 25]
    if look in {"arrow", "must_arrow"}:
        # "mismatched types" fits any program; what was found says which.
        caught = next((m["m"] for line in below[:8] if (m := _CAUGHT.match(line))), "")
        return caught if "`" in caught else "", _first(_ARROW, below[:5], resolve)
    if look == "symbol":
        return next((m["m"] for line in below[:4] if (m := _SYMBOL.match(line))), ""), _NOWHERE
    if look == "biome":
        crossed = (line.strip() for line in below[:6])
        return next((one[1:].strip() for one in crossed if one[:1] in _CROSSES), ""), _NOWHERE
    if look == "powershell":
        row = below[1:9]
        return next((m["m"] for line in row[1:] if (m := _CONCISE.match(line))), ""), _NOWHERE
    if look == "category":
        above = [line.strip() for line in lines[max(0, at - 6) : at]]
        said = [line for line in above if line and line[0] not in "+~" and line[:3] != "At "]
        return (said[-1] if said else ""), _NOWHERE
    if look == "colon":
        return next((line.strip() for line in below[:2] if line.strip()), ""), _NOWHERE
    if look == "frames":
        place = _first(_AT, below, resolve)
        return "", place if place[0] else _first(_FRAME, lines[max(0, at - 4) : at], resolve)
    if look == "reason":
        after = _next(lines, at)
        reason = lines[after].strip() if after < len(lines) else ""
        reason = "" if reason.startswith(_NO_REASON) else reason
        return reason, _first(_AT, below, resolve)
    if look == "back":
        return "", _first(_PYTEST_PLACE, lines[at + 1 : at + 12], resolve)
    if look == "panic":
        return (lines[at + 1].strip() if at + 1 < len(lines) else ""), _NOWHERE
    if look == "heading":
        for line in reversed(lines[max(0, at - 40) : at]):
            if heading := _BARE_PATH.match(line):
                return "", (placed(heading["f"], "1", resolve)[0], None)
    if look == "go":
        return _go_reason(lines, at, resolve)
    if look == "bun":
        window = lines[max(0, at - 15) : at]
        for index in range(len(window) - 1, -1, -1):
            if match := _EXPECTED.match(window[index]):
                return match["m"].strip(), _first(_AT, window[index:], resolve)
    return "", _NOWHERE


def _go_reason(lines: list[str], at: int, resolve: Resolve) -> tuple[str, Place]:
    """Why a Go test failed: below its name, and with -v between its beginning and its name."""
    name = lines[at].split("FAIL: ")[1].split(" ")[0]
    above: list[str] = []
    for line in reversed(lines[max(0, at - 80) : at]):
        if line.startswith(("=== RUN", "--- ")):
            if not line.endswith(f" {name}"):
                above = []
            break
        above.insert(0, line)
    for line in [*lines[at + 1 : at + 8], *above]:
        if line.startswith(("--- ", "=== ")):
            continue
        if match := _GO_PLACE.match(line):
            return match["m"].strip(), placed(match["f"], match["l"], resolve)
    return "", _NOWHERE


def _near(pattern: re.Pattern[str], lines: list[str], at: int, most: int) -> bool:
    return any(pattern.match(line) for line in lines[at + 1 : at + 1 + most])


def _next(lines: list[str], at: int) -> int:
    """The next line that is not blank."""
    after = at + 1
    while after < len(lines) and not lines[after].strip():
        after += 1
    return after


def _first(pattern: re.Pattern[str], lines: list[str], resolve: Resolve) -> Place:
    for line in lines:
        if (found := pattern.match(line)) and (place := placed(found["f"], found["l"], resolve))[0]:
            return place
    return None, None


def _tracebacks(
    lines: list[str], at: set[int], resolve: Resolve
) -> Iterator[tuple[ErrorSeen | None, int, int]]:
    """Python's tracebacks: the last line is the message, the deepest frame of ours the place."""
    for first in sorted(number for number in at if _TRACEBACK.search(lines[number])):
        place: Place = (None, None)
        last = first + 1
        while last < len(lines) and (not lines[last] or lines[last][0] in " \t"):
            if frame := _FRAME.match(lines[last]):
                ours = placed(frame["f"], frame["l"], resolve)
                place = ours if ours[0] else place
            last += 1
        raised = _RAISED.match(lines[last]) if last < len(lines) else None
        if raised is None or any(_CHAINED.match(line) for line in lines[last + 1 : last + 4]):
            yield None, first, last
            continue
        message = raised["m"]
        yield ErrorSeen(message, typed("runtime", message), *place), first, last
