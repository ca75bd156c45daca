"""Failures that say nothing about the project: a client's own stumbles, and probes.

A stumble is a call that the client itself turned down: not approved, not read yet, cancelled. A
probe is a command that answers a question with its exit code. Both are counted, not kept.
"""

from __future__ import annotations

import posixpath
import re
from typing import Literal

import msgspec

from ralph.capture.rules import names, pattern, rows
from ralph.capture.shell import LOOKERS, READERS, commands, deciding

StumbleKind = Literal[
    "denied", "refused", "cancelled", "blocked", "edit", "read", "call", "sandbox", "probe"
]

# What the clients say instead of running a tool.
_STUMBLES = tuple(
    (msgspec.convert(kind, StumbleKind), re.compile(text, re.M))
    for kind, _, text in (row.partition(" ") for row in rows("stumbles"))
)
_RAN = re.compile(r"\s*(?:Error: )?Exit code:? -?\d")
_READ = 600
# What a client's sandbox keeps from a command, which the same command may do outside of it.
SANDBOX = pattern("sandbox")


def stumble(output: str) -> StumbleKind | None:
    """Why the client itself turned a call down; None when the tool ran and failed."""
    start = output[:_READ]
    if _RAN.match(start):
        return None
    return next((kind for kind, pattern in _STUMBLES if pattern.search(start)), None)


# Ask something; their exit code is the answer.
_ASKING = READERS | LOOKERS | names("asking")
# What they print when the answer is no.
_NO = pattern("no", re.I)
# Says that a program was called wrongly, which is worth knowing.
USAGE = pattern("usage", re.I)
_NEUTRAL = frozenset("cd pushd popd export set source . echo printf mkdir".split())
_LISTING = frozenset("ls cat rm head tail stat find wc file du rg".split())
_NO_MATCH = re.compile(r"no matches found: (\S+)")
_RUNS_ANOTHER = frozenset("sudo env command time timeout xargs wsl".split())
_INLINE = frozenset({"-c", "-e", "--eval", "-"})
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|node|bun|deno|ruby|perl|php|pwsh|powershell")
_SCRATCH = re.compile(r"(?:/private)?/tmp/|/var/folders/|\\Temp\\|/Temp/|/scratchpad/")
_NO_MODULE = re.compile(r"can't open file|[Mm]odule ?[Nn]ot ?[Ff]ound|(?:[Nn]o|find) module")


def is_probe(line: str, output: str) -> bool:
    """Whether a line that failed only asked a question, and was answered with no."""
    if _NO.search(output[-2000:]):
        return True
    if is_unmatched(line, output[-500:]):
        return True
    asking = [command.words for command in deciding(line) if command.words[0] not in _NEUTRAL]
    return bool(asking) and all(_asks(_unset(words)) for words in asking)


def _asks(words: list[str]) -> bool:
    """Whether a simple command asks; what runs over ssh, or behind another program, decides."""
    name = posixpath.basename(words[0]) if words else ""
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if name == "ssh":
        return is_probe(next((word for word in rest if " " in word), ""), "")
    if name in _RUNS_ANOTHER:
        return _asks(rest)
    if name == "sed" and any(word.startswith("-i") for word in words):
        return False
    if name == "gofmt" or any(word.startswith(("--check", "--exit-code")) for word in words):
        return "-w" not in words
    # `gh pr checks`, `git -C a log`: the second word may be the verb.
    verbs = rest[1:] if words[1:2] in (["-C"], ["-R"]) else rest[: 2 if name == "gh" else 1]
    return name in _ASKING or any(f"{name}:{verb}" in _ASKING for verb in verbs[:2])


def _unset(words: list[str]) -> list[str]:
    """The words without the variables that are set for them."""
    return [word for word in words if "=" not in word.split("/")[0]] or words


def is_unmatched(line: str, output: str) -> bool:
    """Whether a pattern of names that matched nothing was only to be listed."""
    globs = _NO_MATCH.findall(output)
    holds = (one for one in commands(line) if any(g in word for word in one.words for g in globs))
    return bool(globs) and any(posixpath.basename(one.words[0]) in _LISTING for one in holds)


def is_scratch(line: str, message: str) -> bool:
    """Whether an error is that of a script written for the moment, about nothing but itself."""
    is_missing = _NO_MODULE.search(message) is not None
    if is_missing and _SCRATCH.search(message):
        return True
    for command in deciding(line):
        words = _unset(command.words)
        inline = any(word in _INLINE for word in words[1:3]) or ("<<" in line and len(words) < 3)
        if inline and _INTERPRETERS.fullmatch(posixpath.basename(words[0])):
            # A module that is missing tells something about the project still.
            return not is_missing and "ImportError" not in message
    return False
