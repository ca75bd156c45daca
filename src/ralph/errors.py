"""The tree of errors.

RalphError                 everything Ralph raises on purpose
├── BadInput               what the caller gave cannot be used
│   ├── BadRecord          a record with a missing, mistyped or impossible field
│   ├── BadSetting         a setting that does not exist or does not fit
│   ├── NotFound           a record, feature or file that is not there
│   ├── NotAProject        no project here or above
│   ├── RecordForgotten    the record was forgotten on purpose and stays so
│   ├── AccessRefused      a server does not accept the token, or not for this
│   ├── BadPlan            a file of the plan that cannot be read, with its place
│   ├── UnsafeFile         a file in `.ralph` that is a link, no regular file, or too large
│   └── LearningsFull      no learning may be evicted: a person or a review must choose
├── LoopBusy               another run, or the end of its agent, is in the way for too long
├── PlanBusy               another process holds the plan's lock for too long
├── JournalError           the journal could not be read or written; nothing was acknowledged
│   ├── JournalBusy        another process holds the journal's lock for too long
│   └── JournalDown        the journal's server is not reached (a MemoryOff, too)
│       └── ServerFailed   a server is reached and fails at this call
└── MemoryOff              memory cannot serve now; everything else goes on
    ├── IndexOff           the index cannot be opened, read or written
    │   └── IndexBusy      another process holds the index's lock for too long
    ├── EmbedderOff        the embedder is missing, down or not what was chosen
    └── ModelOff           the language model gave no answer, or not a whole one

Every message says what happened, where, and what to do now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal


class RalphError(Exception):
    """Something Ralph refuses or cannot do, told in one line."""

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if not self.todo:
            return text
        return f"{text.rstrip('.')}. {self.todo}"


class BadInput(RalphError):
    """What the caller gave cannot be used."""


class BadRecord(BadInput):
    """A record with a missing, mistyped or impossible field."""


class BadSetting(BadInput):
    """A setting that does not exist or does not fit."""


class NotFound(BadInput):
    """A record, feature or file that is not there."""


class NotAProject(BadInput):
    """No project here or above."""


class RecordForgotten(BadInput):
    """The record was forgotten on purpose and stays so."""


class AccessRefused(BadInput):
    """A server does not accept the token, or not for this."""


class BadPlan(BadInput):
    """A file of the plan that cannot be read, with its place."""


class UnsafeFile(BadInput, OSError):
    """A file in a project's `.ralph` that is a link, no regular file, or too large to be real."""

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what, where=where, todo=todo)
        self.strerror = what  # whoever tells of an OSError says this


class LearningsFull(BadInput):
    """No learning may be evicted: a person or a review must choose."""


class LoopBusy(RalphError):
    """Another run, or the end of its agent, is in the way for too long."""


class PlanBusy(RalphError):
    """Another process holds the plan's lock for too long."""


class JournalError(RalphError):
    """The journal could not be read or written; nothing was acknowledged."""


class JournalBusy(JournalError):
    """Another process holds the journal's lock for too long."""


class MemoryOff(RalphError):
    """Memory cannot serve now; everything else goes on."""


class JournalDown(JournalError, MemoryOff):
    """The journal's server is not reached; what is kept meanwhile waits here for it."""


class ServerFailed(JournalDown):
    """A server is reached and fails at this call; others may pass."""


class IndexOff(MemoryOff):
    """The index cannot be opened, read or written."""


class IndexBusy(IndexOff):
    """Another process holds the index's lock for too long."""


class EmbedderOff(MemoryOff):
    """The embedder is missing, down or not what was chosen."""


class ModelOff(MemoryOff):
    """The language model gave no answer, or not a whole one; `partial` is what had come of it.

    The fault lies with the server (later may help), with a setting (a person must change
    something), or with this prompt alone (others will be answered).
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        todo: str | None = None,
        fault: Literal["server", "setting", "prompt"] = "server",
        partial: str = "",
    ) -> None:
        super().__init__(what, where=where, todo=todo)
        self.fault = fault
        self.partial = partial


def os_error_text(error: OSError) -> str:
    """An error of the system in a line: the file, and what is wrong with it."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def suggestion(word: str, names: Iterable[str], form: str = "{}") -> str:
    """`Did you mean show? `, where a name is near enough to the word; else nothing."""
    from difflib import get_close_matches

    near = get_close_matches(word, [*names], n=1)
    return f"Did you mean {form.format(*near)}? " if near else ""
