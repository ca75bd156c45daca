"""Back up everything a person has, each project separately, and restore it.

A backup is a ZIP file with a member for each journal and each plan file, and a manifest with the
hash of every member. A backup is untrusted input: all of it is checked before anything is
restored.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

import msgspec

from ralph import disk
from ralph.errors import BadInput, NotFound, RalphError
from ralph.journal.file import file_name
from ralph.journal.line import MAX_LINE_BYTES, Unreadable
from ralph.journal.position import scan
from ralph.memory.part import JournalKey
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.store import CONVERSATIONS, FEATURES
from ralph.memory.transfer import (
    adopt,
    journal_keys,
    journal_lines,
    journal_of,
    redacted,
)
from ralph.plan.importing import import_plan
from ralph.plan.model import KINDS, Kind
from ralph.plan.store import Plan
from ralph.records import Record, Tombstone, now
from ralph.state_folders import state_name

VERSION = 1
_MANIFEST = "manifest.json"
_MOST_MEMBERS = 100_000
_LARGEST_JOURNAL_BYTES = 1 << 30
_LARGEST_TOTAL_BYTES = 32 << 30
_PIECE_BYTES = 1 << 20
_PROJECT_KEY = re.compile(r"([\w-]{0,60})-(?:[0-9a-f]{8}|[0-9a-f]{16})")
# Errors for a file that is damaged, not packed as Ralph does it, or not a ZIP file at all.
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, BadInput),
    *(msgspec.DecodeError, Unreadable),
)


class BackupMember(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file in the archive: a journal of a memory, or a file of a plan."""

    memory: Literal["conversations", "knowledge", "features", "plan"]
    name: str
    project: str = ""
    bytes: int
    sha256: str
    records: int = 0

    @property
    def path(self) -> str:
        """Its name in the archive."""
        folder = f"projects/{self.project}/" if self.project else ""
        file = f"{self.name}.yaml" if self.memory == "plan" else file_name(self.name)
        return f"{folder}{self.memory}/{file}"


class BackupProject(msgspec.Struct, frozen=True):
    """A project in the archive: its id, its folder, and every id its conversations are under."""

    id: str
    root: str
    ids: list[str]


class BackupManifest(msgspec.Struct, frozen=True):
    """The exact contents of an archive."""

    version: int
    created: str
    projects: dict[str, BackupProject]
    members: list[BackupMember]


class BackupResult(msgspec.Struct, frozen=True):
    """What is in a backup; `left_out` says what could not be read, and why."""

    file: str
    projects: list[str]
    records: int
    bytes: int
    left_out: list[str]


class RestoreResult(msgspec.Struct, frozen=True):
    """The result of a restore, in records; `left_out` says what was not restored, and why."""

    file: str
    projects: list[str]
    added: int
    known: int
    forgotten: int
    left_out: list[str]


# -- write


def back_up(ralph: Ralph, file: Path) -> BackupResult:
    """Write everything to a file that only its owner can read, and check it.

    An existing file is replaced only when the new one is complete.
    """
    ralph.store.need_journals()  # a backup without the records of a server would look complete
    draft = file.with_name(f"{file.name}.part")
    disk.remove(draft)
    try:
        fd = disk.open_file(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with os.fdopen(fd, "w+b") as out:
            manifest, left_out = _write(ralph, out)
            out.flush()
            disk.flush(fd)
        with _opened(draft) as (_, found):
            if found != manifest:
                raise BadInput("the disk does not give back what was written", where=str(draft))
        draft.replace(file)
    finally:
        disk.remove(draft)
    disk.flush_folder(file.parent)
    projects = [one.root for one in manifest.projects.values()]
    records = sum(one.records for one in manifest.members)
    return BackupResult(str(file), projects, records, file.stat().st_size, left_out)


def _write(ralph: Ralph, out: IO[bytes]) -> tuple[BackupManifest, list[str]]:
    manifest = BackupManifest(VERSION, now(), {}, [])
    left_out: list[str] = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(data: bytes, **named: Any) -> None:
            member = BackupMember(**named, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            archive.writestr(member.path, data)
            manifest.members.append(member)

        def add_journals(opened: Ralph, project: str = "") -> None:
            for key in journal_keys(opened, everywhere=True):
                if (key.memory == FEATURES) == bool(project):
                    batch = journal_of(opened, key).read()
                    lines, records = journal_lines(batch)
                    add(b"".join(lines), **key._asdict(), project=project, records=records)
                    left_out.extend(f"{one.file}:{one.line} {one.what}" for one in batch.complaints)

        add_journals(ralph)
        for project in projects_here(ralph.store.home):
            name = state_name(project.root)
            manifest.projects[name] = BackupProject(project.id, str(project.root), project.ids)
            try:
                with open_ralph(project.root, home=ralph.store.home) as opened:
                    opened.store.need_journals()
                    add_journals(opened, name)
                plan = Plan(project.root, state=project.cache)
                for kind in KINDS:
                    if (raw := plan.raw(kind)) is not None:
                        add(raw, memory="plan", name=kind, project=name)
            except (RalphError, OSError) as error:
                left_out.append(f"{project.root}: {error}")
        archive.writestr(_MANIFEST, msgspec.json.encode(manifest))
    return manifest, left_out


def projects_here(home: Path, saved: Iterable[BackupProject] = ()) -> list[Project]:
    """Return every project that this home knows or a backup names, if it is still in its folder."""
    found: dict[Path, Project] = {}
    places = [(one.id, one.root) for one in saved if Path(one.root).is_absolute()]
    for file in sorted((home / "projects").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # `doctor` reports it
            places += [(file.stem, path) for path in json.loads(disk.read(file))["paths"]]
    for identity, path in places:
        with contextlib.suppress(OSError, ValueError, TypeError):
            project = Project(Path(path), home)
            if project.exists and project.is_usable and project.id == identity:
                found.setdefault(project.root, project)
    return list(found.values())


# -- check


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tuple[zipfile.ZipFile, BackupManifest]]:
    """Open a backup with its manifest; raise if anything in it is not as Ralph writes it."""
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(file))
            manifest = _checked(archive)
        except _UNREADABLE as error:
            why = str(error).removeprefix("File is ")
            what = f"{file} is not a Ralph backup, or it is damaged ({why})"
            raise BadInput(what, todo="Nothing was restored.") from None
        yield archive, manifest


def _checked(archive: zipfile.ZipFile) -> BackupManifest:
    sizes = {one.filename: one.file_size for one in archive.infolist()}
    if not len(sizes) == len(archive.infolist()) <= _MOST_MEMBERS:
        raise ValueError("a member is in it twice, or there are too many")
    if sizes.pop(_MANIFEST, disk.LARGEST_BYTES + 1) > disk.LARGEST_BYTES:
        raise ValueError("it has no manifest")
    manifest = msgspec.json.decode(archive.read(_MANIFEST), type=BackupManifest)
    if manifest.version != VERSION:
        raise ValueError(f"it is of version {manifest.version}, this Ralph reads {VERSION}")
    for key, project in manifest.projects.items():
        if not _PROJECT_KEY.fullmatch(key) or str(uuid.UUID(project.id)) != project.id:
            raise ValueError(f"{key!r} is no project")
    for member in manifest.members:
        in_plan = member.memory == "plan"
        homes = manifest.projects if in_plan or member.memory == FEATURES else ("",)
        if member.project not in homes or (in_plan and member.name not in KINDS):
            raise ValueError(f"{member.path!r} is not a member that Ralph writes")
        largest = disk.LARGEST_BYTES if in_plan else _LARGEST_JOURNAL_BYTES
        if sizes.pop(member.path, -1) != member.bytes or member.bytes > largest:
            raise ValueError(f"{member.path!r} is missing, too large, or of another size")
    if sizes or sum(one.bytes for one in manifest.members) > _LARGEST_TOTAL_BYTES:
        raise ValueError(f"it is too large, or members are not listed: {[*sizes][:3]}")
    for member in manifest.members:
        _check_member(archive, member)
    return manifest


def _check_member(archive: zipfile.ZipFile, member: BackupMember) -> None:
    """Raise if a member is not what Ralph wrote. It is read in pieces: it may be a bomb."""
    sha256 = hashlib.sha256()
    with archive.open(member.path) as file:
        while piece := file.read(_PIECE_BYTES):
            sha256.update(piece)
    if sha256.hexdigest() != member.sha256:
        raise ValueError(f"{member.path!r} is not what was written")
    for _ in _entries(archive, member):
        pass


def _entries(archive: zipfile.ZipFile, member: BackupMember) -> Iterator[Record | Tombstone]:
    """Yield a journal's entries; none for a file of a plan."""
    if member.memory == "plan":
        return
    with archive.open(member.path) as file, io.BufferedReader(cast("Any", file)) as lines:
        for step in scan(cast("BinaryIO", lines), MAX_LINE_BYTES):
            entry = step.entry
            if entry is None or (isinstance(entry, Record) and entry.digest != step.digest):
                raise ValueError(f"line {step.line} of {member.path!r} is damaged")
            yield entry


# -- restore


def restore(ralph: Ralph, file: Path, *, into: Path | None = None) -> RestoreResult:
    """Restore what is missing here: records by their ids, and what the plans lack.

    Existing records stay as they are. Projects that are neither where this home knows them nor
    where they were at the backup are created in folders of `into`, or left out.
    """
    restored = list[str]()
    left_out = list[str]()
    counts: list[tuple[int, int, int]] = [(0, 0, 0)]
    with _opened(file) as (archive, manifest):
        # Conversations from before `init` have an id made from the folder's path. If it is unknown
        # here, they join the other conversations of their project.
        known = {key.name for key in journal_keys(ralph, everywhere=True)}
        projects = manifest.projects.values()
        homes = {other: one.id for one in projects for other in one.ids if other not in known}

        def bring(opened: Ralph, project: str = "") -> None:
            for member in manifest.members:
                if member.project != project:
                    continue
                if member.memory == "plan":
                    _restore_plan(opened.project, member.name, archive.read(member.path))
                    continue
                records: list[Record] = []
                stones: list[Tombstone] = []
                for entry in _entries(archive, member):
                    if isinstance(entry, Tombstone):
                        stones.append(entry)
                    else:
                        records.append(redacted(entry))
                moved = homes if member.memory == CONVERSATIONS else {}
                key = JournalKey(member.memory, moved.get(member.name, member.name))
                counts.append(adopt(opened, key, records, stones, by_id=True))

        bring(ralph)
        here = projects_here(ralph.store.home, projects)
        for key, saved in manifest.projects.items():
            same = [one for one in here if one.id == saved.id]
            same.sort(key=lambda one: str(one.root) != saved.root)
            try:
                project = same[0] if same else _made(ralph.store.home, key, saved, into)
                with open_ralph(project.root, home=ralph.store.home) as opened:
                    bring(opened, key)
                restored.append(str(project.root))
            except (RalphError, OSError, UnicodeDecodeError) as error:
                left_out.append(f"{saved.root}: {error}")
    added, had, forgotten = map(sum, zip(*counts, strict=True))
    return RestoreResult(str(file), restored, added, had, forgotten, left_out)


def _restore_plan(project: Project, name: str, raw: bytes) -> None:
    """Restore a file of the plan; if there is one, add only what it lacks."""
    kind = cast("Kind", name)
    plan = Plan(project.root, state=project.cache)
    if plan.raw(kind) is None:
        with plan.locked():
            plan.put(kind, raw, "restored from a backup")
    elif plan.raw(kind) != raw:
        import_plan(plan, raw.decode(), name=f"{kind}.yaml")


def _made(home: Path, key: str, saved: BackupProject, into: Path | None) -> Project:
    """Create a project that is not on this machine, in a folder with its name."""
    if into is None:
        todo = "Clone it and run restore in it, or make its folder with --into DIR."
        raise NotFound("this project is not on this machine", todo=todo)
    project = Project(into / (key.rpartition("-")[0].strip("-") or "project"), home)
    disk.create(project.db / "metadata.yaml", f"project_id: {saved.id}\n".encode())
    if project.claimed_id != saved.id:
        raise BadInput("another project is in its folder", where=str(project.root))
    project.init()
    project.join()
    return project
