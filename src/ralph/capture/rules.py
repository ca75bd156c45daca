"""The tables of `rules.txt`: how tools word their errors, what clients say, what words mean."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from ralph.records.iteration import ErrorType

# Where the place or the reason stands when a line itself does not tell it; `errors` reads them.
Look = str


@cache
def _sections() -> dict[str, list[str]]:
    text = Path(__file__).with_name("rules.txt").read_text(encoding="utf-8")
    macros, _, text = text.partition("\n[macros]\n")[2].partition("\n\n")
    for macro in macros.split("\n"):
        name, meaning = macro.split(" ", 1)
        text = text.replace(f"<{name}>", meaning)
    found: dict[str, list[str]] = {}
    for section in f"\n{text}".split("\n[")[1:]:
        name, *lines = section.split("\n")
        found[name.removesuffix("]")] = [line for line in lines if line and line[0] != "#"]
    return found


def rows(section: str) -> list[str]:
    """The lines of a section."""
    return _sections()[section]


def pattern(section: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """A pattern of all that a section lists."""
    return re.compile("|".join(rows(section)), flags)


def words(section: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """The same for whole words."""
    return re.compile(rf"\b(?:{'|'.join(rows(section))})\b", flags)


def names(section: str) -> frozenset[str]:
    """The names that a section lists."""
    return frozenset(" ".join(rows(section)).split())


class Wording(NamedTuple):
    """One way a tool words an error."""

    error_type: ErrorType
    pattern: re.Pattern[str]
    look: Look


def _wordings(section: str) -> tuple[Wording, ...]:
    found: list[Wording] = []
    for row in rows(section):
        kind, look, text = row.split(" ", 2)
        found.append(Wording(msgspec.convert(kind, ErrorType), re.compile(text), look.strip("-")))
    return tuple(found)


# Only believed when the command failed and nothing better was said: the weak ones.
STRONG, WEAK = _wordings("strong"), _wordings("weak")

# What every wording holds one of. Finding these is fast, matching the table is not, so only the
# lines that hold one are matched.
TRIGGERS = (
    *("rror", "ERR", "FATAL", "fatal: ", "FAIL", "Fail", "(fail)", "xception", "Traceback"),
    *("anic", "ault", "denied", "EACCES", "EPERM", "ermitted", "Read-only"),
    *("not found", "undefined ref", "CONFLICT", "curl: (", "rspec ", " MD0", "\u2501\u2501\u2501"),
    *("Aborted", "E   ", ".go:", ".py:", ".rb:", "\u00d7", "✗", "✖", "●", "] \u203a ", "[E]"),
    *("(eval):", "zsh:", "recogni", "CategoryInfo", "\nLine |", "ignored by one", "warning["),
    *("error \u2022", "error -", "rejected]"),
)
# What the weak wordings hold besides; only failed commands are asked for them.
WEAK_TRIGGERS = tuple("make irectory cannot can't nable invalid illegal nrecogni nknown".split())

# Lines that speak of errors to say that there are none.
NOT_AN_ERROR = pattern("not an error")
# Frames that are not the project's own.
FOREIGN = pattern("foreign")
COMPILE_CLASSES = re.compile(r"(?:Syntax|Indentation|Tab)Error|Parse ?Error")
PERMISSION = re.compile(r"PermissionError|permission denied|EACCES|EPERM|not permitted", re.I)
TEST_CLASSES = re.compile(r"Assertion(?:Error|Failed)|^assert |ComparisonFailure|expect\(")
LINT_WORDS = re.compile(r"need to be formatted|not (?:properly )?formatted")
