"""Errors in a command's output, and errors and decisions in an agent's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, NamedTuple

from ralph.capture.lines import clip
from ralph.records.iteration import Decision, ErrorSeen, ErrorType

# -- Errors in a command's output and in an agent's words: typed, and with their file and line.


# -- How the tools of the common ecosystems word their errors: one line of the table, one wording.
#
# Groups: `m` message, `f` file, `l` line, `t` name of the test. Every pattern is anchored at the
# start of a line, so that talk about errors is not taken for one.


# Where the place stands when the line itself does not name it.
Look = Literal[
    "no", "arrow", "frames", "back", "go", "bun", "panic", "heading", "must_arrow", "reason"
]


class Wording(NamedTuple):
    """One way a tool words an error."""

    error_type: ErrorType
    pattern: re.Pattern[str]
    look: Look = "no"


def _w(error_type: ErrorType, pattern: str, look: Look = "no") -> Wording:
    return Wording(error_type, re.compile(pattern), look)


_FILE = r"(?P<f>[^\s:()\"'<>|]+\.[A-Za-z]\w{0,5})"
_CLASS = r"(?:[A-Za-z_$][\w$]*(?:\.|::|\\))*(?:[A-Z]\w*)?(?:Error|Exception|Fault|Panic)"

# First match wins, so the exact wordings stand before the general ones.
STRONG: tuple[Wording, ...] = (
    # TypeScript; C# and the rest of .NET
    _w("compile", rf"{_FILE}\((?P<l>\d+),\d+\): error (?P<m>[A-Z]+\d+: .+?)(?: \[[^\]]+\])?$"),
    _w("compile", rf"{_FILE}:(?P<l>\d+):\d+ - error (?P<m>TS\d+: .+)$"),
    # pytest
    _w("test", rf"(?:FAILED|ERROR) {_FILE}(?:::(?P<t>[^ ]+(?: (?!- )[^ ]+)*+))?(?: - (?P<m>.+))?$"),
    _w("test", r"E {3,}(?P<m>(?:[\w.]+(?:Error|Exception|Warning|Exit)\b|assert ).*)$", "back"),
    # ruff, flake8, pylint; mypy and pyright
    _w("lint", rf"{_FILE}:(?P<l>\d+):\d+:? (?P<m>[A-Z]{{1,4}}\d{{2,4}}:? .+)$"),
    _w("lint", r"(?P<f>\S+\.pyi?):(?P<l>\d+)(?::\d+)?(?: -|:) error: (?P<m>.+)$"),
    _w("lint", r"  (?P<f>/\S+\.py):(?P<l>\d+):\d+ - error: (?P<m>.+)$"),
    # golangci-lint; go build and vet
    _w("lint", r"(?P<f>\S+\.go):(?P<l>\d+):\d+: (?P<m>.+ \([a-z]+\))$"),
    _w("compile", r"(?:vet: )?(?P<f>\S+\.go):(?P<l>\d+):\d+: (?P<m>.+)$"),
    # gcc, clang, swift, javac; CMake; linkers; Kotlin; Maven
    _w("compile", rf"{_FILE}:(?P<l>\d+)(?::\d+)?: (?:fatal )?error: (?P<m>.+)$"),
    _w("compile", r"CMake Error at (?P<f>\S+?):(?P<l>\d+)(?P<m> .*)$"),
    _w("compile", r".*?(?P<m>undefined reference to .+)$"),
    _w("compile", r"e: (?:file://)?(?P<f>/\S+\.kts?):(?P<l>\d+):\d+:? (?P<m>.+)$"),
    _w("compile", r"\[ERROR\] (?P<f>/\S+\.\w+):\[(?P<l>\d+),\d+\] (?P<m>.+)$"),
    _w("test", r"\[ERROR\]\s+(?P<t>\w+[\w.$]*\.\w+):(?P<l>\d+) (?P<m>.+)$"),
    # rustc, clippy, ruff's long form; cargo test
    _w("compile", r"error\[(?P<m>E\d{4}\]: .+)$", "arrow"),
    _w("compile", r"error: (?P<m>.+)$", "must_arrow"),
    _w("lint", r"(?P<m>[A-Z]{1,4}\d{2,4} .+)$", "must_arrow"),
    _w("test", r"test (?P<m>\S+) \.\.\. FAILED$"),
    _w(
        "runtime", r"thread '[^']*'(?: \(\d+\))? panicked at (?P<f>\S+?):(?P<l>\d+):\d+:?$", "panic"
    ),
    # go test, bun, jest, vitest, rspec, dotnet test
    _w("test", r"\s*--- FAIL: (?P<m>\S+)", "go"),
    _w("test", r"\(fail\) (?P<m>.+?)(?: \[[\d.]+m?s\])?$", "bun"),
    _w("test", r"\s*● (?P<m>\S.* \u203a .+)$", "reason"),
    _w(
        "test",
        r"\s*(?:FAIL|\u00d7|✗|✖) +(?P<f>\S+\.(?:test|spec)\.\w+) > (?P<m>.+?)(?: \d+ms)?$",
        "reason",
    ),
    _w("test", r"rspec (?P<f>\./\S+):(?P<l>\d+) # (?P<m>.+)$"),
    _w("test", r"\s{0,4}Failed (?P<m>[\w.]+\.\w+(?:\(.*\))?) \[[^\]]+\]$"),
    # eslint (the file stands above), rubocop
    _w("lint", r"\s+(?P<l>\d+):\d+\s+error\s+(?P<m>\S.+)$", "heading"),
    _w("lint", r"(?P<f>\S+\.rb):(?P<l>\d+):\d+: [CWEF]: (?P<m>.+)$"),
    # PHP, Ruby, Elixir
    _w("runtime", r"(?:PHP )?Fatal error: +(?P<m>.+?) in (?P<f>\S+?)(?: on line |:)(?P<l>\d+)"),
    _w("compile", r"(?:PHP )?Parse error: +(?P<m>.+?) in (?P<f>\S+?)(?: on line |:)(?P<l>\d+)"),
    _w("runtime", r"(?P<f>\S+\.rb):(?P<l>\d+):in [`'].+?': (?P<m>.+ \([\w:]+\))$"),
    _w("runtime", r"\*\* (?P<m>\(\w[\w.]*(?:Error|Exit|Exception)\w*\) .+)$"),
    # An exception at the end of a traceback, or in front of its frames
    _w(
        "runtime",
        rf"(?:Uncaught |Unhandled exception\. |Exception in thread \"[^\"]*\" |Caused by: )?"
        rf"(?P<m>{_CLASS}(?: \[[A-Z_]+\])?: \S.*)$",
        "frames",
    ),
    _w("runtime", r"panic: (?P<m>.+)$"),
    _w("runtime", r"(?P<m>(?:Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?)$"),
    # Shell, permissions
    _w(
        "runtime",
        r"(?:/\S*/)?(?:ba|z|da|k)?sh: (?:line )?(?:\d+: )?"
        r"(?P<m>\S[^:]{0,80}: (?:command )?not found)$",
    ),
    _w("runtime", r"zsh: (?P<m>command not found: \S+)$"),
    _w(
        "permission",
        r"(?P<m>[\w./@+-]+(?:\[\d+\])?: .*(?:[Pp]ermission denied|EACCES|EPERM"
        r"|[Oo]peration not permitted|Read-only file system).*)$",
    ),
    # git, docker, curl, databases, terraform
    _w("runtime", r"fatal: (?P<m>.+)$"),
    _w("runtime", r"(?P<m>CONFLICT \([a-z/ ]+\): .+)$"),
    _w("runtime", r"(?P<m>Error response from daemon: .+)$"),
    _w("runtime", r"(?P<m>curl: \(\d+\) .+)$"),
    _w("runtime", r"(?:psql|pg_\w+|createdb)(?::\S+)?: (?:error|FATAL|ERROR): +(?P<m>.+)$"),
    _w("runtime", r"(?P<m>ERROR \d{4} \(\w{5}\)(?: at line \d+)?: .+)$"),
    _w("runtime", r"[│╷ ]*Error: (?P<m>[A-Z].+)$", "frames"),
)

# Only believed when the command failed and nothing better was said.
WEAK: tuple[Wording, ...] = (
    # Without a place it is a compiler's only by its words: git, pip and cargo itself say it too.
    _w(
        "compile",
        r"error: (?P<m>(?:linking with|ld returned|cannot find (?:symbol|module|crate|type)"
        r"|expected |undefined |unknown type|use of undeclared|no member named).*)$",
        "arrow",
    ),
    _w("runtime", r"error: (?P<m>(?!aborting due to|could not compile|test failed).+)$", "arrow"),
    _w("runtime", r"npm (?:ERR!|error) (?P<m>(?!code |errno |syscall |path |A complete log).+)$"),
    _w(
        "runtime",
        r"(?P<m>[\w./+-]+: .*: (?:No such file or directory|Is a directory|Not a directory))$",
    ),
    _w(
        "runtime",
        r"(?P<m>[\w./+-]+: (?:cannot|can't|unable to|invalid|unrecogni[sz]ed|unknown) .+)$",
    ),
    _w("runtime", r"(?:ERROR|FATAL|Error|Fatal|fatal|FAILURE)\b\s*[:\]!-]+\s*(?P<m>.+)$"),
    _w("runtime", r"make(?:\[\d+\])?: \*\*\* (?P<m>.+)$"),
)


@cache
def any_of(wordings: tuple[Wording, ...]) -> re.Pattern[str]:
    """One pattern for all, to tell a line that none of them fits."""
    whole = "|".join(f"(?:{wording.pattern.pattern})" for wording in wordings)
    return re.compile(re.sub(r"\(\?P<\w+>", "(?:", whole))


# Lines that speak of errors to say that there are none.
NOT_AN_ERROR = re.compile(
    r"(?i:\b(?:0|no|zero|without) (?:\w+ ){0,2}(?:errors?|failures?|failed|problems?|issues?)\b"
    r"|\b(?:errors?|failures?|failed)[\"']?\s*[:=]\s*(?:0\b|\[\]|none\b|null\b|false\b|\"\"))"
    r"|(?:\bPASS(?:ED)?|\.\.\. ok|✓|✔)\s*(?:\[.*\]|\(.*\))?$|^\s*(?:✓|✔|ok\b|PASS\b)"
)
# Frames that are not the project's own.
FOREIGN = re.compile(
    r"site-packages|dist-packages|node_modules|node:|<frozen|<string>|<stdin>|[/\\]\.?venv[/\\]"
    r"|[/\\]lib[/\\]python\d|\.cargo[/\\]|[/\\]rustc[/\\]|[/\\]go[/\\]pkg[/\\]mod"
)
COMPILE_CLASSES = re.compile(r"(?:Syntax|Indentation|Tab)Error|Parse ?Error")
PERMISSION = re.compile(r"PermissionError|permission denied|EACCES|EPERM|not permitted", re.I)
TEST_CLASSES = re.compile(r"Assertion(?:Error|Failed)|^assert |ComparisonFailure|expect\(")


# -- Errors in a command's output and in an agent's words: typed, and placed where they say so.


# From a path as printed to the path in the project, or None outside it.
Resolve = Callable[[str], str | None]

MOST_PER_OUTPUT = 10
_LONGEST_LINE = 2000
_HEAD, _TAIL = 64_000, 192_000

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# What every wording in the table holds one of. Finding these is fast, matching the table is not,
# so only the lines that hold one are matched.
_TRIGGERS = (
    *("rror", "ERR", "FATAL", "fatal: ", "FAIL", "Fail", "(fail)", "xception", "Traceback"),
    *("anic", "ault", "denied", "EACCES", "EPERM", "ermitted", "Read-only"),
    *("not found", "undefined ref", "CONFLICT", "curl: (", "rspec "),
    *("Aborted", "E   ", ".go:", ".py:", ".rb:", "\u00d7", "✗", "✖", "●"),
)
# What the weak wordings hold besides; only failed commands are asked for them.
_WEAK_TRIGGERS = tuple("make|irectory|cannot|can't|nable to|invalid|nrecogni|nknown".split("|"))
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

# Where below an error its place stands, and how far.
_BELOW: dict[Look, tuple[re.Pattern[str], int]] = {
    "arrow": (_ARROW, 5),
    "must_arrow": (_ARROW, 5),
    "frames": (_AT, 24),
    "reason": (_AT, 24),
    "back": (_PYTEST_PLACE, 11),
}

Place = tuple[str | None, int | None]


def errors_in(output: str, resolve: Resolve, *, failed: bool) -> list[ErrorSeen]:
    """The errors a command's output tells of, at most a handful.

    A command that went well is only looked at where it began and where it ended.
    """
    head, tail, most = (_HEAD, _TAIL, 400) if failed else (1_000, 6_000, 40)
    if len(output) > head + tail:
        output = output[:head] + "\n" + output[-tail:]
    if "\x1b" in output:
        output = _ANSI.sub("", output)
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
    if not found and failed:
        found = list(_worded(lines, at, WEAK, resolve))[:1]
    return found[:MOST_PER_OUTPUT]


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
            near = lines[number + 1 : number + 4]
            if wording.look == "must_arrow" and not any(map(_ARROW.match, near)):
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
    file, number = groups.get("f"), groups.get("l")
    if test := groups.get("t"):
        message = f"{test}: {message}" if message else test
        # The n-th failure in a file has its n-th place above.
        same = next((p for p in places if p["f"] == file), None) if file and not number else None
        if same:
            places.remove(same)
            number = same["l"]
    place = _placed(file, number, resolve)
    if wording.look != "no":
        more, found = _look(wording.look, lines, at, resolve)
        place = place if place[0] else (found[0], found[1] or place[1])
        message = f"{message}: {more}" if more and message else message or more
    if message.startswith(("E0", "E1")) and "]: " in message:
        message = f"error[{message}"
    return ErrorSeen(message, _typed(wording.error_type, message), place[0], place[1])


def _typed(error_type: ErrorType, message: str) -> ErrorType:
    if error_type != "runtime":
        return error_type
    if PERMISSION.search(message):
        return "permission"
    if COMPILE_CLASSES.match(message):
        return "compile"
    return "test" if TEST_CLASSES.match(message) else "runtime"


def _placed(file: str | None, number: str | None, resolve: Resolve) -> Place:
    # Nobody has a file of a hundred million lines.
    line = int(number) if number and len(number) < 9 else None
    if not file or FOREIGN.search(file):
        return None, line if not file else None
    path = resolve(file)
    return path, line if path else None


def _look(look: Look, lines: list[str], at: int, resolve: Resolve) -> tuple[str, Place]:
    """What the lines around say more about an error: a reason, and a place."""
    if look in _BELOW:
        pattern, most = _BELOW[look]
        place = _first(pattern, lines[at + 1 : at + 1 + most], resolve)
        if look == "frames" and not place[0]:
            place = _first(_FRAME, lines[max(0, at - 4) : at], resolve)
        return ("".join(lines[_next(lines, at) :][:1]).strip() if look == "reason" else ""), place
    if look == "panic":
        return "".join(lines[at + 1 : at + 2]).strip(), (None, None)
    if look == "heading":
        for line in reversed(lines[max(0, at - 40) : at]):
            if heading := _BARE_PATH.match(line):
                return "", (_placed(heading["f"], "1", resolve)[0], None)
    if look == "go":
        for line in lines[at + 1 : at + 8]:
            if match := _GO_PLACE.match(line):
                return match["m"].strip(), _placed(match["f"], match["l"], resolve)
    if look == "bun":
        window = lines[max(0, at - 15) : at]
        for index in range(len(window) - 1, -1, -1):
            if match := _EXPECTED.match(window[index]):
                return match["m"].strip(), _first(_AT, window[index:], resolve)
    return "", (None, None)


def _next(lines: list[str], at: int) -> int:
    """The next line that is not blank."""
    after = at + 1
    while after < len(lines) and not lines[after].strip():
        after += 1
    return after


def _first(pattern: re.Pattern[str], lines: list[str], resolve: Resolve) -> Place:
    for line in lines:
        found = pattern.match(line)
        place = _placed(found["f"], found["l"], resolve) if found else (None, None)
        if place[0]:
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
                ours = _placed(frame["f"], frame["l"], resolve)
                place = ours if ours[0] else place
            last += 1
        raised = _RAISED.match(lines[last]) if last < len(lines) else None
        if raised is None or any(_CHAINED.match(line) for line in lines[last + 1 : last + 4]):
            yield None, first, last
            continue
        message = raised["m"]
        yield ErrorSeen(message, _typed("runtime", message), *place), first, last


FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)
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


def errors_said(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Errors the agent reports in its own words, with class and message; never supposed ones."""
    if not any(part in text for part in ("rror", "ERROR: ", "Exception", "fatal: ", "panic: ")):
        return []
    found: list[ErrorSeen] = []
    plain = FENCED.sub("\n", text[:_HEAD])
    lines = {line.strip() for line in plain.split("\n")}
    for sentence in _SENTENCE.split(plain):
        if len(sentence) > _LONGEST_LINE:
            continue
        alone = _ALONE.fullmatch(sentence.strip())
        if alone and alone["m"] in lines:
            message = alone["m"].removeprefix("error: ").removeprefix("fatal: ")
            found.append(ErrorSeen(message, _typed("runtime", message), *_stated(message, resolve)))
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
        found.append(ErrorSeen(message, _typed(error_type, message), *place))
    return found[:MOST_PER_OUTPUT]


def _stated(sentence: str, resolve: Resolve) -> Place:
    place = _STATED.search(sentence)
    return _placed(place["f"], place["l"], resolve) if place else (None, None)


# -- What the agent says it chose, and why: only plain statements, in its own words.
#
# A question, a possibility, a quotation or a piece of code is not a decision; better to miss one.


LONGEST_SAID = 300

_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.M)
_DECISION_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`\"(-])|\n+|(?<=\w); (?=I )")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")

_PEOPLE = r"(?:I|[Ww]e)(?:'ve| have|'m| am|'re| are)?(?: therefore| then| also| now| ultimately)?"
_VERSUS = r"(?:instead of|rather than|in favou?r of|over)"
_WHY = (
    r"(?:because|since|so that|so|to avoid|to prevent|to keep|in order to|due to|given that"
    r"|as (?:it|this|they|we)|which (?:avoids|keeps|prevents|means))"
)
_DO = (
    r"(?:use|using|go with|going with|keep|keeping|stick with|stay with|switch to|replace|store|put"
    r"|implement|make|move|drop|skip|leave|write|build|model|represent|return|pass|handle|split)"
)

_CHOSE = r"(?:decided|chose|chosen|opted|elected|picked|settled on|went with)"
_WILL = r"(?:'ll| will|'m going to| am going to|'re going to)"
_MAYBE_WE = r"(?:I |We |I've |We've )?"
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\*\*|__)?(?:(?:Design|Key|Technical|Architectur\w+|Implementation) )?[Dd]ecision"
        r"(?: \#?\d+)?(?:\*\*|__)?\s*[:\u2014]\s*(?:\*\*|__)?\s*(?P<d>[^\s*].+)$",
        rf"(?:.*?\b)?(?P<d>{_PEOPLE} {_CHOSE}\b.+)$",
        rf"(?:.*?\b)?(?P<d>(?:I|[Ww]e){_WILL} {_DO}\b.+?\b(?:{_VERSUS}|because|since)\b.+)$",
        rf"(?P<d>(?:I'm |We're |I am )?(?:[Gg]oing|[Ww]ent|[Ss]ticking) with .+? {_VERSUS} .+)$",
        rf"(?P<d>{_MAYBE_WE}(?:[Ss]witched|[Cc]hanged|[Mm]oved|[Mm]igrated) (?:\w+ )?"
        rf"from .+? to .+? {_WHY} .+)$",
        rf"(?P<d>{_MAYBE_WE}(?:[Uu]sed|[Uu]sing|[Cc]hose|[Pp]icked|[Kk]ept) .+? {_VERSUS} .+)$",
    )
)
_UNSURE = re.compile(
    r"\b(?:could|might|may|maybe|perhaps|would|should|whether|if(?![/-])|unless|consider(?:ing)?"
    r"|wonder|not decided|undecided|to be decided|needs? to decide|can decide|let me"
    r"|alternatively|(?:one|another) option|do you|shall)\b|n't decided|\?",
    re.I,
)
_OTHERS = re.compile(
    r"\b(?:says?|said|states?|reads|wrote|documents?|quot\w+|according to|the (?:user|team|author"
    r"|spec|readme|comment|docs?|memory|prompt|(?:previous|earlier) iteration))\b[^.]{0,60}$",
    re.I,
)
# How the agent goes about its work says nothing about the project.
_ABOUT_TOOLS = re.compile(
    r"\b(?:Read|Grep|Glob|Bash|Edit|Write|Task|Search|TodoWrite) tool\b|\b(?:one-liner|heredoc|sed"
    r"|grep|perl|offset and limit|tool call|sub-?agent|a different (?:command|approach))\b",
    re.I,
)
_SPLIT = re.compile(rf",?\s+(?:\u2014 |- )?(?P<why>{_WHY}(?= ).*)$", re.S)
# "decided to keep X because": what was decided, though it looks like a reason.
_CHOSEN = re.compile(rf"\b{_CHOSE}(?: not)?(?: to \w+)?")
_PLAIN_WHY = re.compile(r"^(?:because|since|due to|given that|so that)\s+", re.I)
_CHOICE = re.compile(
    rf"[Dd]ecision|{_CHOSE}|{_WILL} |[Gg]oing with|[Ss]ticking with|[Uu]s(?:ed|ing) |[Kk]ept "
    r"|[Cc]hose|[Pp]icked|ed (?:\w+ )?from "
)
_CUE = re.compile(
    r"decid|decision|chose|opted|elected|picked|settled|with|from|instead|rather|because|since",
    re.I,
)


def decisions_in(text: str) -> list[Decision]:
    """The decisions stated in a text, in order."""
    text = text[:_HEAD]
    if not _CUE.search(text):
        return []
    found: list[Decision] = []
    plain = _QUOTED_LINE.sub("", FENCED.sub("\n", text))
    for raw in _DECISION_SENTENCE.split(plain):
        sentence = _BULLET.sub("", raw).strip()
        if not 15 <= len(sentence) <= 1000 or not _CHOICE.search(sentence):
            continue
        if decision := _decision(sentence):
            found.append(decision)
    return found


def _decision(sentence: str) -> Decision | None:
    if _ABOUT_TOOLS.search(sentence):
        return None
    for pattern in _PATTERNS:
        match = pattern.match(sentence)
        if match is None:
            continue
        before = sentence[: match.start("d")]
        if before.count('"') % 2 or before.count("`") % 2 or _OTHERS.search(before):
            return None
        description, rationale = _apart(match["d"])
        # A doubt in the reason is a reason; a doubt in the choice is no choice.
        if "?" in sentence or _UNSURE.search(before) or _UNSURE.search(description):
            return None
        if len(description) < 12:
            return None
        return Decision(description, rationale or None)
    return None


def _apart(said: str) -> tuple[str, str]:
    said = said.strip().rstrip(".*_ ")
    chosen = _CHOSEN.search(said)
    split = _SPLIT.search(said, max(12, chosen.end() if chosen else 0))
    if split is None:
        return clip(said, LONGEST_SAID), ""
    why = _PLAIN_WHY.sub("", split["why"]).strip()
    return clip(said[: split.start()].rstrip(" ,"), LONGEST_SAID), clip(why, LONGEST_SAID)
