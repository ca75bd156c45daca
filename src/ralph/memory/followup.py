"""Whether the model used what it was told: the commands and files of a text, and the next actions.

An action is a shell command or the path of a file that was read or changed. A text that names
neither a command nor a file cannot be followed up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from ralph.capture.shell import ShellCall, shell_call

# How many actions after a text may use it.
NEXT_ACTIONS = 10
_MOST_EACH = 20
_QUOTED = re.compile(r"`([^`\n]{2,300})`")
# A name with an ending, perhaps in folders; not a version or an address.
_PATH = re.compile(r"(?<![\w/:@.-])(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}(?![\w/(])")
_DOTTED_NAME = re.compile(r"[a-z]\.[a-z]\.?|.*\.(?:com|org|net|io|dev)", re.I)


class NamedActions(msgspec.Struct, frozen=True):
    """The commands and files that a text names."""

    commands: tuple[ShellCall, ...] = ()
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commands or self.files)


def named_actions(text: str) -> NamedActions:
    """Return the commands in backticks and the files that a text names."""
    commands: list[ShellCall] = []
    files: list[str] = []
    for quoted in _QUOTED.findall(text):
        if " " in quoted.strip():
            commands += shell_call(quoted).calls
        else:
            files += _PATH.findall(quoted)
    files += _PATH.findall(_QUOTED.sub(" ", text))
    named = [one for one in dict.fromkeys(files) if not _DOTTED_NAME.fullmatch(one)]
    return NamedActions(tuple(dict.fromkeys(commands))[:_MOST_EACH], tuple(named)[:_MOST_EACH])


def was_used(named: NamedActions, actions: Iterable[str]) -> bool:
    """Whether one of the actions runs such a command, or reads or changes such a file."""
    return any(_uses(named, action) for action in actions)


def _uses(named: NamedActions, action: str) -> bool:
    words = action.replace("\\", "/")
    if any(_is_file(name, words) for name in named.files):
        return True
    if not named.commands:
        return False
    calls = shell_call(action).calls
    return any(_is_call(one, calls) for one in named.commands)


def _is_file(name: str, words: str) -> bool:
    """Whether the file's name stands in the action, as a whole name."""
    at = words.find(name)
    while at >= 0:
        before = words[at - 1 : at]
        after = words[at + len(name) : at + len(name) + 1]
        if before in ("", "/", " ", "'", '"', "=") and not (after.isalnum() or after in ("_", "-")):
            return True
        at = words.find(name, at + 1)
    return False


def _is_call(named: ShellCall, calls: Sequence[ShellCall]) -> bool:
    """Whether one of the calls is the named one, perhaps with more options or targets."""
    return any(
        call.program == named.program
        and named.options <= call.options
        and named.targets <= call.targets
        for call in calls
    )
