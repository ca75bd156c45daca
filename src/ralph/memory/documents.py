"""The user's own documents: cut at headings, stored beside the conversations, found with them.

A section is one record, and its id is made from its text. Adding a file again keeps unchanged
sections, adds new ones and removes those that are gone. A section that a person forgot stays out
until its text changes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from ralph.errors import BadInput, NotFound
from ralph.memory.conversations import Conversations
from ralph.records import Record
from ralph.records.conversation import DOCUMENT, Document, content_of, document_id
from ralph.text.redact import redact
from ralph.text.sections import BETWEEN_HEADINGS, sections

SUFFIXES = (".md", ".markdown", ".txt", ".rst")
MOST_BYTES = 4_000_000
# Reasons for removing a section that may come back: nobody asked to forget it.
REPLACED = "the document changed"
REMOVED = "the document was removed"
# Folders of other people's files.
_NOT_OWN = frozenset({"node_modules", "site-packages", "__pycache__"})
_TITLE_CHARS = 200


class Refused(msgspec.Struct, frozen=True):
    """A file that was not added, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class Added(msgspec.Struct, frozen=True):
    """The result of adding, in sections. `vanished` files no longer exist, but are found until
    they are removed; `forgotten` sections stay out."""

    files: int = 0
    added: int = 0
    unchanged: int = 0
    taken_out: int = 0
    forgotten: int = 0
    vanished: list[str] = []
    refused: list[Refused] = []


class ListedDocument(msgspec.Struct, frozen=True):
    """A document: its title, how many sections it has, and when it was last added."""

    path: str
    title: str
    sections: int
    added: str


def add_documents(memory: Conversations, paths: Sequence[Path], *, root: Path) -> Added:
    """Add files, and every text file in folders, to memory as they are now.

    Without paths, every known document is added again.
    """
    saved = _saved(memory)
    base = root.resolve()  # a file outside it is named by its full path
    files, refused = _files(paths or [base / name for name in saved], base)
    gone = sorted(name for name in saved if name not in files and not (base / name).exists())
    inside = [path.resolve() for path in paths]
    vanished = [one for one in gone if not paths or any(map((base / one).is_relative_to, inside))]
    reasons = memory.stream.reasons()
    fresh: list[tuple[Document, str]] = []
    stale: list[str] = []
    read = unchanged = forgotten = 0
    for name, file in files.items():
        try:
            found = read_document(file, name)
        except BadInput as error:
            refused.append(Refused(name, error.what))
            continue
        read += 1
        living = {record.id for record in saved.get(name, ())}
        used: set[str] = set()
        for section in found:
            identity = _identity(section, used, reasons)
            if identity is None:
                forgotten += 1
                continue
            used.add(identity)
            if identity not in living:
                fresh.append((section, identity))
        unchanged += len(used & living)
        stale += living - used
    # New sections first: if this is killed in between, the next run removes the old ones.
    memory.say_all(fresh)
    taken_out = memory.forget(stale, reason=REPLACED) if stale else []
    refused = [one for one in refused if one.path not in vanished]
    return Added(read, len(fresh), unchanged, len(taken_out), forgotten, vanished, refused)


def remove_documents(memory: Conversations, paths: Sequence[Path], *, root: Path) -> list[str]:
    """Remove documents, or all in a folder, from memory. The files themselves stay."""
    saved = _saved(memory)
    base = root.resolve()
    gone: set[str] = set()
    for path in paths:
        below = [name for name in saved if (base / name).is_relative_to(path.resolve())]
        if not below:
            todo = "`ralph conversations add-document --list` shows them. Nothing was removed."
            raise NotFound(f"no document {path} is kept", todo=todo)
        gone.update(below)
    memory.forget([one.id for name in gone for one in saved[name]], reason=REMOVED)
    return sorted(gone)


def list_documents(memory: Conversations) -> list[ListedDocument]:
    """Return every document in memory, sorted by path."""
    return [
        ListedDocument(name, content_of(some[0]).title, len(some), max(one.at for one in some))
        for name, some in sorted(_saved(memory).items())
    ]


def read_document(file: Path, name: str) -> list[Document]:
    """Return a file's sections without secrets; `name` is the path they are stored under."""
    # Redact before cutting: half a secret is not recognized.
    cut = [one for one in sections(redact(_text(file))) if one.text.strip()]
    title = next((one.heading.split(BETWEEN_HEADINGS)[0] for one in cut if one.heading), "")
    title = (title or file.name)[:_TITLE_CHARS]
    return [Document(path=name, title=title, **one._asdict()) for one in cut]


def line_of(one: Document, root: Path) -> int:
    """Return the line where the section begins now, or if unclear, where it began."""
    try:
        text = _text(root.resolve() / one.path).replace("\r\n", "\n")
    except BadInput:
        return one.line
    at = text.find(one.text)
    # Text that occurs more than once does not say where.
    if at < 0 or text.find(one.text, at + 1) >= 0:
        return one.line
    return text.count("\n", 0, at) + 1


def _identity(one: Document, used: Collection[str], reasons: dict[str, str]) -> str | None:
    """Return the id of a section, the first that is free; None if a person forgot it."""
    place = 0
    while True:
        identity = document_id(one.path, one.heading, one.text, place)
        reason = reasons.get(identity)
        if reason is not None and reason not in (REPLACED, REMOVED):
            return None
        if reason is None and identity not in used:
            return identity
        place += 1  # a twin in the same file, or removed before


def _saved(memory: Conversations) -> dict[str, list[Record]]:
    """Return the sections in memory, by file."""
    saved: dict[str, list[Record]] = {}
    for record in memory.said(DOCUMENT):
        saved.setdefault(content_of(record).path, []).append(record)
    return saved


# -- files


def _files(paths: Sequence[Path], base: Path) -> tuple[dict[str, Path], list[Refused]]:
    """Return all these files and the text files in folders, by name, and those that do not exist.

    A file in the project is named by its path from the root, any other by its full path.
    """
    found: dict[str, Path] = {}
    refused: list[Refused] = []
    for path in paths:
        for file in list(_texts_in(path)) if path.is_dir() else [path]:
            real = file.resolve()
            name = (real.relative_to(base) if real.is_relative_to(base) else real).as_posix()
            if name != (shown := name.encode("utf-8", "replace").decode()):
                refused.append(Refused(shown, "its name is not UTF-8"))
            elif path.exists():
                found.setdefault(name, file)
            else:
                refused.append(Refused(name, "there is no such file"))
    return found, refused


def _texts_in(folder: Path) -> Iterator[Path]:
    """Yield the text files below a folder, in order. Follows no links to folders or out of it."""
    base = folder.resolve()
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one[0] != "." and one not in _NOT_OWN)
        for name in sorted(files):
            file = Path(above, name)
            if name[0] == "." or file.suffix.lower() not in SUFFIXES or not file.is_file():
                continue
            if file.resolve().is_relative_to(base):
                yield file


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"it cannot be read ({error.strerror or error})", where=str(file)) from None
    if len(data) > MOST_BYTES:
        raise BadInput(f"it is longer than {MOST_BYTES:,} bytes", where=str(file))
    if b"\0" in data:
        raise BadInput("it is no text", where=str(file))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not UTF-8 text (byte {error.start})", where=str(file)) from None
