"""The tree of errors.

RalphError                 everything Ralph raises on purpose
├── BadInput               the caller's input cannot be used
│   ├── BadRecord          a record has a missing, mistyped or impossible field
│   ├── BadSetting         a setting does not exist or its value is not allowed
│   ├── NotFound           a record, feature or file does not exist
│   ├── NotAProject        there is no project here or above
│   ├── RecordForgotten    the record was forgotten on purpose and stays forgotten
│   ├── AccessRefused      a server rejects the token, or this call is not allowed with it
│   ├── BadPlan            a plan file cannot be read; the message says where
│   ├── UnsafeFile         a file in `.ralph` is a link, not a regular file, or too large
│   └── LearningsFull      no learning may be evicted: a person or a review must choose
├── LoopBusy               another run, or its agent shutting down, was in the way for too long
├── PlanBusy               another process held the plan's lock for too long
├── JournalError           the journal could not be read or written; no write was acknowledged
│   ├── JournalBusy        another process held the journal's lock for too long
│   └── JournalDown        the journal's server cannot be reached (also a MemoryOff)
│       └── ServerFailed   a server was reached but failed on this call
└── MemoryOff              memory is not available now; everything else keeps working
    ├── IndexOff           the index cannot be opened, read or written
    │   └── IndexBusy      another process held the index's lock for too long
    ├── EmbedderOff        the embedder is missing, down or not the chosen one
    └── ModelOff           the language model gave no answer, or an incomplete one

Every message says what happened, where, and what to do now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal


class RalphError(Exception):
    """Something Ralph refuses or cannot do; the message is one line."""

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
    """The caller's input cannot be used."""


class BadRecord(BadInput):
    """A record has a missing, mistyped or impossible field."""


class BadSetting(BadInput):
    """A setting does not exist or its value is not allowed."""


class NotFound(BadInput):
    """A record, feature or file does not exist."""


class NotAProject(BadInput):
    """There is no project here or above."""


class RecordForgotten(BadInput):
    """The record was forgotten on purpose and stays forgotten."""


class AccessRefused(BadInput):
    """A server rejects the token, or this call is not allowed with it."""


class BadPlan(BadInput):
    """A plan file cannot be read; the message says where."""


class UnsafeFile(BadInput, OSError):
    """A file in a project's `.ralph` is a link, not a regular file, or too large to be real."""

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what, where=where, todo=todo)
        self.strerror = what  # code that reports an OSError shows this


class LearningsFull(BadInput):
    """No learning may be evicted: a person or a review must choose."""


class LoopBusy(RalphError):
    """Another run, or its agent shutting down, was in the way for too long."""


class PlanBusy(RalphError):
    """Another process held the plan's lock for too long."""


class JournalError(RalphError):
    """The journal could not be read or written; no write was acknowledged."""


class JournalBusy(JournalError):
    """Another process held the journal's lock for too long."""


class MemoryOff(RalphError):
    """Memory is not available now; everything else keeps working."""


class JournalDown(JournalError, MemoryOff):
    """The journal's server cannot be reached; records saved meanwhile wait on this machine."""


class ServerFailed(JournalDown):
    """A server was reached but failed on this call; other calls may succeed."""


class IndexOff(MemoryOff):
    """The index cannot be opened, read or written."""


class IndexBusy(IndexOff):
    """Another process held the index's lock for too long."""


class EmbedderOff(MemoryOff):
    """The embedder is missing, down or not the chosen one."""


class ModelOff(MemoryOff):
    """The language model gave no answer, or an incomplete one; `partial` holds what arrived.

    `fault` is the server (trying later may help), a setting (a person must change something), or
    this prompt alone (other prompts will be answered).
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
    """Return an operating system error as one line: the file and what is wrong with it."""
    if isinstance(error, FileNotFoundError) and not error.filename:
        return "the current folder no longer exists"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def suggestion(word: str, names: Iterable[str], form: str = "{}") -> str:
    """Return `Did you mean show? ` if a name is close enough to the word, else ""."""
    from difflib import get_close_matches

    near = get_close_matches(word, [*names], n=1)
    return f"Did you mean {form.format(*near)}? " if near else ""
