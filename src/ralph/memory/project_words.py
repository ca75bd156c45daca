"""The words that much of a project's work shares: they say nothing about what a prompt is about.

In a project called git-sync, "sync" and "remote" are in every other exchange. The list is stored
in this machine's state of the project, so that a hook need not read the history. It is made again
after each session, and after something was forgotten.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from ralph import disk
from ralph.memory.project import Project
from ralph.records.conversation import Exchange
from ralph.text.tokens import tokens

_FILE = "common-words.json"
_LARGEST_BYTES = 1_000_000
# A word is common if this share of the exchanges has it, and at least so many: in a young project
# a few exchanges about a subject are worth telling.
_SHARE = 0.1
_LEAST_EXCHANGES = 10
_ASKED_CHARS = 600
_ANSWER_CHARS = 1500


class _WordsFile(msgspec.Struct):
    version: int = 1
    words: list[str] = []


def write_common_words(project: Project, exchanges: Sequence[Exchange]) -> None:
    """Store the common words of these exchanges."""
    counts: Counter[str] = Counter()
    for exchange in exchanges:
        text = f"{exchange.user[:_ASKED_CHARS]} {exchange.assistant[:_ANSWER_CHARS]}"
        counts.update(set(tokens(text)))
    least = max(_LEAST_EXCHANGES, _SHARE * len(exchanges))
    words = sorted(word for word, count in counts.items() if count >= least)
    file = project.cache / _FILE
    with contextlib.suppress(OSError):  # a read-only or full home has only its journals
        if not words:
            disk.remove(file)
            return
        disk.make_folder(file.parent)
        disk.replace(file, msgspec.json.encode(_WordsFile(words=words)) + b"\n", mode=0o600)


def read_common_words(project: Project) -> frozenset[str]:
    """Return the common words of a project; none if they are not known yet."""
    try:
        data = disk.read(project.cache / _FILE, largest=_LARGEST_BYTES)
        return frozenset(msgspec.json.decode(data, type=_WordsFile).words)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):  # it is written again
        return frozenset()
