"""How the tools of the common ecosystems word their errors: one line of the table, one wording.

Groups: `m` message, `f` file, `l` line, `t` name of the test. Every pattern is anchored at the
start of a line, so that talk about errors is not taken for one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ralph.records.iteration import ErrorType

# Where the place or the reason stands when the line itself does not tell it; `errors` reads them.
Look = str


class Wording(NamedTuple):
    """One way a tool words an error."""

    error_type: ErrorType
    pattern: re.Pattern[str]
    look: Look = "no"


def _w(error_type: ErrorType, pattern: str, look: Look = "no", flags: int = 0) -> Wording:
    return Wording(error_type, re.compile(pattern, flags), look)


_FILE = r"(?P<f>[^\s:()\"'<>|]+\.[A-Za-z]\w{0,5})"
_CLASS = r"(?:[A-Za-z_$][\w$]*(?:\.|::|\\))*(?:[A-Z]\w*)?(?:Error|Exception|Fault|Panic)"

# First match wins, so the exact wordings stand before the general ones.
STRONG: tuple[Wording, ...] = (
    # PowerShell: what failed, then "Line |", then why
    _w("runtime", r"(?P<m>[\w.-]{2,60}): *(?:\S.*)?$", "powershell"),
    # TypeScript; C# and the rest of .NET
    _w("compile", rf"{_FILE}\((?P<l>\d+),\d+\): error (?P<m>[A-Z]+\d+: .+?)(?: \[[^\]]+\])?$"),
    _w("compile", rf"{_FILE}:(?P<l>\d+):\d+ - error (?P<m>TS\d+: .+)$"),
    # pytest
    _w("test", rf"(?:FAILED|ERROR) {_FILE}(?:::(?P<t>[^ ]+(?: (?!- )[^ ]+)*+))?(?: - (?P<m>.+))?$"),
    _w("test", r"E {3,}(?P<m>(?:[\w.]+(?:Error|Exception|Warning|Exit)\b|assert ).*)$", "back"),
    # markdownlint; biome, whose reason stands below
    _w("lint", r"(?P<f>\S+\.mdx?):(?P<l>\d+)(?::\d+)?(?: error)? (?P<m>MD\d{3}/\S+ .+)$"),
    _w(
        "lint",
        r"\s*(?:at )?(?P<f>[^\s:]+\.\w+)(?::(?P<l>\d+):\d+)? "
        r"(?P<m>(?:lint/\S+|format|parse|assist\S*))\s+(?:FIXABLE\s+)?\u2501{3,}",
        "biome",
    ),
    # ruff, flake8, pylint; mypy and pyright
    _w("lint", rf"{_FILE}:(?P<l>\d+):\d+:? (?P<m>[A-Z]{{1,4}}\d{{2,4}}:? .+)$"),
    _w("lint", r"(?P<f>\S+\.pyi?):(?P<l>\d+)(?::\d+)?(?: -|:) error: (?P<m>.+)$"),
    _w("lint", r"  (?P<f>/\S+\.py):(?P<l>\d+):\d+ - error: (?P<m>.+)$"),
    # golangci-lint; go build and vet
    _w("lint", r"(?P<f>\S+\.go):(?P<l>\d+):\d+: (?P<m>.+ \([a-z]+\))$"),
    _w("compile", r"(?:vet: )?(?P<f>\S+\.go):(?P<l>\d+):\d+: (?P<m>.+)$"),
    # Go on Windows; dart and flutter
    _w("compile", r"(?P<f>[A-Za-z]:\\\S+\.go):(?P<l>\d+):\d+: (?P<m>.+)$"),
    _w("compile", r"(?P<f>\S+\.dart):(?P<l>\d+):\d+: Error: (?P<m>.+)$"),
    _w(
        "lint",
        r"\s*(?:error|warning|info) [\u2022-] (?P<m>[^\u2022]+?) [\u2022-] (?P<f>\S+\.dart)"
        r":(?P<l>\d+):\d+",
    ),
    _w("test", r"\d\d:\d\d \+\d+(?: ~\d+)? -\d+: (?P<m>.+) \[E\]$", "reason"),
    # gcc, clang, swift, javac; CMake; linkers; Kotlin; Maven
    _w("compile", rf"{_FILE}:(?P<l>\d+)(?::\d+)?: (?:fatal )?error: (?P<m>.+)$", "symbol"),
    _w("compile", r"CMake Error at (?P<f>\S+?):(?P<l>\d+)(?P<m> .*)$"),
    _w("compile", r".*?(?P<m>undefined reference to .+)$"),
    _w("compile", r"e: (?:file://)?(?P<f>/\S+\.kts?):(?P<l>\d+):\d+:? (?P<m>.+)$"),
    _w("compile", r"\[ERROR\] (?P<f>/\S+\.\w+):\[(?P<l>\d+),\d+\] (?P<m>.+)$"),
    _w("test", r"\[ERROR\]\s+(?P<t>\w+[\w.$]*\.\w+):(?P<l>\d+) (?P<m>.+)$"),
    # bun, node, vite: a module that is not there
    _w(
        "compile",
        r"(?:error|Error): (?P<m>(?:Cannot find (?:module|package)|Could not resolve) .+)$",
    ),
    _w("compile", r"error: (?P<m>(?:Expected \S|Unexpected ).+)$", "frames"),
    # rustc, clippy, ruff's long form; cargo test
    _w("compile", r"error\[(?P<m>E\d{4}\]: .+)$", "arrow"),
    _w("lint", r"(?:error|warning)\[(?P<m>[a-z][\w:-]+\]: .+)$", "must_arrow"),
    _w("compile", r"error: (?P<m>.+)$", "must_arrow"),
    _w("lint", r"(?P<m>[A-Z]{1,4}\d{2,4} .+)$", "must_arrow"),
    _w("test", r"test (?P<m>\S+) \.\.\. FAILED$"),
    _w(
        "runtime",
        r"thread '(?P<t>[^']*)'(?: \(\d+\))? panicked at (?P<f>\S+?):(?P<l>\d+):\d+:?$",
        "panic",
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
    # playwright
    _w(
        "test",
        r"\s*\d+\) (?:\[[\w -]+\] \u203a )?(?P<f>\S+\.(?:test|spec)\.\w+):(?P<l>\d+):\d+ \u203a "
        r"(?P<m>[^\u2500]+?)(?: \u2500+)?$",
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
    _w("runtime", r"(?:\(eval\)|-?zsh)(?::[a-z]+)?(?::\d+)?: (?P<m>\S.+)$"),
    # PowerShell and cmd.exe: a program that is not there
    _w("runtime", r"(?P<m>\S+: The term '.+?' is not recogni[sz]ed as .+)$"),
    _w("runtime", r"(?P<m>'.+?' is not recognized as an internal or external command.*)$"),
    _w("runtime", r"\s+\+ CategoryInfo +:(?P<m>)", "category"),
    _w(
        "permission",
        r"(?P<m>[\w./@+-]+(?:\[\d+\])?: .*(?:[Pp]ermission denied|EACCES|EPERM"
        r"|[Oo]peration not permitted|Read-only file system).*)$",
    ),
    # git, docker, curl, databases, terraform
    _w("runtime", r"fatal: (?P<m>.+)$"),
    _w("runtime", r"(?P<m>CONFLICT \([a-z/ ]+\): .+)$"),
    _w(
        "runtime",
        r"(?P<m>The following paths are ignored by one of your \.gitignore files:)$",
        "colon",
    ),
    _w("runtime", r" ! (?P<m>\[(?:remote )?rejected\] .+)$"),
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
        r"(?P<m>[\w./+-]+: (?:cannot|can't|unable to|illegal|invalid|unrecogni[sz]ed|unknown) .+)$",
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
    r"|^Error: Process completed with exit code|^(?:Error: )?exit status \d+$"
    r"|^Error: .{0,120}\b(?:exited with|Final attempt failed|issues found)"
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
