"""The shape of a command: its program, its subcommand and the words that made it fail.

Wrappers, variables and `cd` are left out. A shape is a set of words behind a program, so the same
call with other options or targets has it too. It keeps how the program is called: by its name or
by a path, because that may be the whole difference between a call that fails and one that passes.
"""

from __future__ import annotations

import re

import msgspec

from ralph.capture.rules import pattern
from ralph.capture.shell import LOOKERS, READERS, ShellCommand, commands
from ralph.capture.solved import WRONG_CALL

# Programs that run the program that follows them and change nothing else about it.
_WRAPPERS = frozenset("time nice nohup exec command env stdbuf".split())
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9]*(?:[:_-][a-z0-9]+)*")
_PLAIN_WORD = re.compile(r"[\w./:@=+,~*-]+")
_INSTEAD = re.compile(r"`([^`]+)` instead of `([^`]+)`")
_TIMEOUTS = frozenset({"timeout", "gtimeout"})
_MOST_WORDS = 8
# Between the program and the words of a shape, as it stands in the table of moments.
_BEHIND = " | "
_SETS_PATH = re.compile(r"(?:^|[\s;&])(?:export +)?PATH=")


class Shape(msgspec.Struct, frozen=True):
    """A program with its subcommand, and words that must be among the rest."""

    program: tuple[str, ...]
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The shape as it stands in the table of moments."""
        program = " ".join(self.program)
        return _BEHIND.join((program, " ".join(self.words))) if self.words else program

    def fits(self, line: str) -> bool:
        """Whether a line runs a command of this shape, and nothing instead of it if it fails."""
        if "||" in line:
            return False
        found = (stripped(one) for one in commands(line) if one.joined != "||")
        return any(self._fits(words, line) for words in found)

    def _fits(self, words: list[str], line: str) -> bool:
        size = len(self.program)
        if tuple(words[:size]) != self.program or not set(self.words) <= set(words[size:]):
            return False
        # With a PATH of its own, the line may find another program of this name.
        return bool(self.words) or _SETS_PATH.search(line) is None


def shape_of(key: str) -> Shape:
    """Return the shape that a key of the table stands for."""
    program, _, words = key.partition(_BEHIND)
    return Shape(tuple(program.split()), tuple(words.split()))


def stripped(command: ShellCommand) -> list[str]:
    """Return the words of a command without variables and wrappers."""
    words = list(command.words)
    while words:
        if pattern("env").match(words[0]) or words[0] in _WRAPPERS:
            del words[0]
        elif words[0] in _TIMEOUTS and len(words) > 2:
            del words[:2]
        else:
            break
    return words


def failed_shape(message: str, resolution: str) -> tuple[Shape, str] | None:
    """Return the shape that an error proves wrong and the command that worked instead.

    None if the solution is not another command, or if nothing but the folder differed.
    """
    found = _INSTEAD.search(resolution)
    if found is None or "\u2026" in found[0] or "[redacted" in found[0]:
        return None
    fix = found[1]
    wrong = found[2]
    lacked = _lacked(message)
    if not lacked and not WRONG_CALL.search(message):
        return None  # the project or its state may have been wrong, not the call
    ours = [stripped(one) for one in commands(fix)]
    theirs = [stripped(one) for one in commands(wrong)]
    if lacked:
        # Nothing that begins with this name works where the program is missing.
        shape = Shape((lacked,)) if [lacked] in [words[:1] for words in theirs] else None
    else:
        differing = [words for words in theirs if words and words not in ours]
        # If more than one command differs, either may be to blame.
        shape = _shape(differing[0], ours, message) if len(differing) == 1 else None
    if shape is None or shape.fits(fix):
        return None
    return shape, fix


def _shape(blamed: list[str], fixes: list[list[str]], message: str) -> Shape | None:
    if not _PLAIN_WORD.fullmatch(blamed[0]):
        return None
    size = 2 if len(blamed) > 1 and _SUBCOMMAND.fullmatch(blamed[1]) else 1
    program = tuple(blamed[:size])
    same = [words for words in fixes if tuple(words[:size]) == program]
    if not same:
        # A bare program says too little: it may fail for many reasons.
        is_blamed = size == 2 and blamed[1] in message and blamed[0] not in READERS | LOOKERS
        return Shape(program) if is_blamed else None
    others = {word for words in same for word in words}
    telling = [word for word in blamed[size:] if word not in others]
    if not telling or len(telling) > _MOST_WORDS or not all(map(_PLAIN_WORD.fullmatch, telling)):
        return None
    if all(word in message for word in telling):
        # The error is about these words, whatever the subcommand.
        program = program[:1]
    return Shape(program, tuple(dict.fromkeys(telling)))


def _lacked(message: str) -> str:
    """Return the program that an error says is missing, or ""."""
    found = pattern("lacked").search(message)
    return next(filter(None, found.groups()), "") if found else ""
