"""Why is this line here? From a line to its commit, its session, and what was decided there.

A commit is matched with a session by what its message says, else by content: by the lines that
sessions left in the file. Nothing is said where two sessions fit as well, and a bot's commits lead
to none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import msgspec

from ralph.capture.anchors import line_hash, may_have
from ralph.clients import BY_SOURCE
from ralph.errors import BadInput, NotFound
from ralph.memory.commit_sessions import CommitSource, commit_source, is_bot, is_cloud_id
from ralph.memory.file_work import (
    BrokenHere,
    FileWork,
    StatedDecision,
    broken_in,
    decisions_of,
    refusals_of,
)
from ralph.memory.working_copy import NO_FILE, BlamedLine, Commit, WorkingCopy
from ralph.recall import PERSON, Scope
from ralph.records.conversation import Exchange, conversation_id
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph

FoundBy = Literal["", "trailer", "content"]
# How many lines around a line are looked at.
_AROUND = 30
# From this share of the lines around it on, a session that left the line wrote its part of the
# commit; a line that says little needs more of them.
_LEAST_SHARE = 0.5
_LEAST_SHARE_OF_PLAIN = 0.8
_LEAST_AROUND_PLAIN = 2
_LINE = re.compile(r"(.+):(\d+)")


class BlamedCommit(msgspec.Struct, frozen=True):
    """The commit that a line is from."""

    id: str
    subject: str
    author: str
    at: str
    bot: bool = False


class FileChange(msgspec.Struct, frozen=True):
    """A record that changed the file, and how many of its lines are still there."""

    id: str
    kind: str
    at: str
    title: str
    action: str
    session: str = ""
    lines: int = 0
    surviving: int = 0


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """Why a line, or a whole file, is as it is.

    `found_by` says how the session was matched; `note` what is not known, and why. A session in
    `named` is one that the commit names and memory does not have.
    """

    path: str
    line: int | None = None
    text: str = ""
    commit: BlamedCommit | None = None
    session: str = ""
    record: str = ""
    found_by: FoundBy = ""
    named: tuple[str, ...] = ()
    note: str = ""
    changes: tuple[FileChange, ...] = ()
    decisions: tuple[StatedDecision, ...] = ()
    rejected: tuple[StatedDecision, ...] = ()
    broke: tuple[BrokenHere, ...] = ()


class LineSession(msgspec.Struct, frozen=True):
    """The session and the record that a line is from, and how they were found."""

    session: str = ""
    record: str = ""
    found_by: FoundBy = ""
    named: tuple[str, ...] = ()


def blame(ralph: Ralph, target: str, *, folder: Path | None = None, scope: Scope = PERSON) -> Blame:
    """Return why a line (`FILE:LINE`) or a file is as it is; FILE is relative to `folder`."""
    copy = WorkingCopy(ralph.project.root)
    path, line = _place(copy, target, folder or ralph.project.root)
    is_there = copy.key(path) != NO_FILE
    lines = copy.text(path).splitlines() if is_there else []
    if line is not None and not 1 <= line <= len(lines):
        what = f"{path} has {plural(len(lines), 'line')}, and no line {line}"
        if not is_there:
            is_other = os.path.lexists(copy.root / path)
            why = "is a link or no plain file" if is_other else "is not there any more"
            what = f"{path} {why}, so it has no lines"
        raise BadInput(what)
    now = copy.head_line(lines, path, line) if line is not None else None
    blamed = copy.blame(path, max(1, now - _AROUND), now + _AROUND) if now else []
    paths = {path, *(copy.in_project(one.path) for one in blamed)} - {""}
    work = ralph.work_on(sorted(paths), scope)
    if not is_there and not work:
        what = f"{target} is not a file of this project, and no session worked on it"
        raise BadInput(what, todo="Give a file, or FILE:LINE.")
    if line is None:
        return _of_file(copy, path, work, is_there)
    text = lines[line - 1]
    sessions = SessionFinder(ralph, copy, work, blamed, scope)
    place = next((n for n, one in enumerate(blamed) if one.number == now), None)
    if place is None:
        found = sessions.of_text(text)
        note = "not committed yet" if copy.has_history else "no git history to ask"
        commit = None
    else:
        found = sessions.of_line(place)
        about = blamed[place].commit
        commit = BlamedCommit(about.id, about.subject, about.author, about.at, is_bot(about))
        note = ""
    own = [item for item in work if item.id == found.record]
    writers = {item.session for item in own if item.session} or {found.session} - {""}
    mine = [item for item in work if item in own or item.session in writers]
    return Blame(
        path=path,
        line=line,
        text=text.strip(),
        commit=commit,
        session=found.session,
        record=found.record,
        found_by=found.found_by,
        named=found.named,
        note=note,
        changes=tuple(_change(item, copy, path) for item in own),
        decisions=tuple(decisions_of(own if found.record else mine)),
        rejected=tuple(refusals_of(mine)),
        broke=tuple(broken_in(work, paths)),
    )


def _of_file(copy: WorkingCopy, path: str, work: Sequence[FileWork], is_there: bool) -> Blame:
    note = "" if is_there else "the file is not there any more"
    if not work:
        note = "no session in memory changed it"
    return Blame(
        path=path,
        note=note,
        changes=tuple(_change(item, copy, path) for item in work if _changed_it(item)),
        decisions=tuple(decisions_of(work)),
        rejected=tuple(refusals_of(work)),
        broke=tuple(broken_in(work, {path})),
    )


def _wrote(work: FileWork) -> bool:
    return any(file.action != "read" for file in work.hit.record.files_touched)


def _change(work: FileWork, copy: WorkingCopy, path: str) -> FileChange:
    record = work.hit.record
    left = work.hashes
    here = {line_hash(line) for line in copy.text(path).splitlines()}
    title = record.user if isinstance(record, Exchange) else record.task_title or record.summary
    return FileChange(
        id=work.id,
        kind=work.hit.kind,
        at=work.hit.at,
        title=" ".join(title.split()),
        action=work.action,
        session=work.session,
        lines=len(left),
        surviving=len(left & here),
    )


def unknown_writer(named: Sequence[str]) -> str:
    """Say that a commit names sessions, and why it is not told which of them wrote a line."""
    if len(named) == 1:
        return f"The commit is by session {named[0]}, which isn't in memory."
    return f"The commit is by one of the sessions {', '.join(named)}; memory can't say by which."


# -- What was asked about.


def _place(copy: WorkingCopy, target: str, folder: Path) -> tuple[str, int | None]:
    """Return the path in the project and the line that `FILE:LINE` means."""
    path = _in_project(copy.root, target, folder)
    found = _LINE.fullmatch(target)
    if found is None or copy.key(path) != NO_FILE:
        if (folder / target).is_dir():
            raise BadInput(f"{target} is a folder", todo="Give a file, or FILE:LINE.")
        return path, None
    return _in_project(copy.root, found[1], folder), int(found[2])


def _in_project(root: Path, name: str, folder: Path) -> str:
    if not name.strip() or "\0" in name:
        raise BadInput("there is no file name", todo="Give a file, or FILE:LINE.")
    whole = (folder / name).absolute()
    # The folder may be a link; the file itself is taken as it is named.
    for top, file in (
        (root.absolute(), whole),
        (root.resolve(), whole.parent.resolve() / whole.name),
    ):
        normal = Path(*_without_dots(file.parts))
        if normal.is_relative_to(top):
            return PurePosixPath(normal.relative_to(top)).as_posix()
    raise BadInput(f"{name} is not in the project {root}", todo="Give a file of the project.")


def _without_dots(parts: Sequence[str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if part == ".." and len(found) > 1:
            found.pop()
        elif part != "..":
            found.append(part)
    return found


# -- From a commit to its session.


class SessionFinder:
    """Finds the session of each of some blamed lines of one file."""

    def __init__(
        self,
        ralph: Ralph,
        copy: WorkingCopy,
        work: Sequence[FileWork],
        lines: Sequence[BlamedLine],
        scope: Scope = PERSON,
    ) -> None:
        self._ralph = ralph
        self._copy = copy
        self._scope = scope
        self._work = [item for item in work if item.anchors]
        self._all = work
        self._lefts = {item.id: item.hashes for item in self._work}
        self._lines = lines
        self._hashes = [line_hash(line.text) for line in lines]
        self._sources: dict[str, CommitSource] = {}
        self._in_memory: dict[tuple[tuple[str, ...], str], list[str]] = {}

    def of_text(self, text: str) -> LineSession:
        """Return the newest session that left this line, for one that is in no commit."""
        wanted = line_hash(text)
        for item in self._work:
            if wanted and wanted in self._lefts[item.id]:
                return LineSession(item.session, item.id, "content")
        return LineSession()

    def of_line(self, place: int) -> LineSession:
        """Return the session of a line, by what its commit says, else by its content."""
        commit = self._lines[place].commit
        if is_bot(commit):
            return LineSession()
        source = self._source(commit)
        for iteration in source.iterations:
            if any(item.id == iteration for item in self._all) or self._has(iteration):
                return LineSession("", iteration, "trailer")
        if source.sessions:
            sessions = self._sessions_in_memory(source.sessions, commit.at)
            if sessions:
                return self._of_sessions(place, sessions, source)
            if not all(map(_is_part, source.sessions)):
                return LineSession(named=source.sessions)
        return self.by_content(place)

    def by_content(self, place: int) -> LineSession:
        """Return the session that left the line and most of those around it in its commit."""
        found = self._writer(place, self._work, strict=True)
        return LineSession(found.session, found.id, "content") if found else LineSession()

    def _source(self, commit: Commit) -> CommitSource:
        if commit.id not in self._sources:
            self._sources[commit.id] = commit_source(self._copy, commit)
        return self._sources[commit.id]

    def _has(self, record: str) -> bool:
        try:
            return self._ralph.get(record, scope=self._scope).id == record
        except NotFound:
            return False

    def _sessions_in_memory(self, names: tuple[str, ...], at: str) -> list[str]:
        """Return those of the sessions of a commit made then that memory has, as conversations."""
        if (names, at) not in self._in_memory:
            found = [session for name in names for session in self._known(name, at)]
            self._in_memory[names, at] = found
        return self._in_memory[names, at]

    def _known(self, name: str, at: str) -> list[str]:
        known = {item.session for item in self._all}
        if _is_part(name):
            # The id of a session in the cloud is only in what the session itself wrote. Later ones
            # may have read it in the log.
            writers = [item for item in self._all if item.started <= at and _mentions(item, name)]
            first = min(writers, key=lambda item: item.started, default=None)
            return [first.session] if first else []
        wanted = [conversation_id(source, name) for source in BY_SOURCE]
        found = [talk for talk in wanted if talk in known]
        return found or [talk for talk in wanted if self._has(talk)]

    def _of_sessions(
        self, place: int, sessions: Sequence[str], source: CommitSource
    ) -> LineSession:
        """Return which of the sessions that a commit names a line is from."""
        if len(source.sessions) > 1:
            changed_it = self._that_changed(self._lines[place], sessions, source)
            theirs = self._work_of(changed_it or sessions)
            found = self._only_writer(place, theirs)
            sessions = changed_it
        else:
            found = self._writer(place, self._work_of(sessions), strict=False)
        if found is not None:
            return LineSession(found.session, found.id, "trailer")
        if len(sessions) != 1:
            return LineSession(named=source.sessions)
        # A session also commits what another one wrote.
        if writer := self._writer(place, self._work, strict=True):
            return LineSession(sessions[0], writer.id, "trailer")
        at = self._lines[place].commit.at
        earlier = [item.id for item in self._all if item.session in sessions and item.started <= at]
        return LineSession(sessions[0], earlier[0] if earlier else "", "trailer")

    def _work_of(self, sessions: Sequence[str]) -> list[FileWork]:
        return [item for item in self._work if item.session in sessions]

    def _that_changed(
        self, line: BlamedLine, sessions: Sequence[str], source: CommitSource
    ) -> Sequence[str]:
        """Return those of the sessions of a commit that changed a file in it, if that is known."""
        if len(source.files) == len(source.sessions):
            names = tuple(name for name in source.sessions if line.path in source.files[name])
            found = self._sessions_in_memory(names, line.commit.at)
            return found if len(found) == len(names) else ()
        # Without checkpoints, their work in memory tells, if all of them are there.
        if len(sessions) != len(source.sessions):
            return ()
        writers = {item.session for item in self._all if _changed_it(item)}
        return [session for session in sessions if session in writers]

    def _only_writer(self, place: int, work: Sequence[FileWork]) -> FileWork | None:
        """Return the work that left a line, if only one session did.

        A line that says little is from the session of the lines before and after it.
        """
        if self._hashes[place]:
            return self._only_one_that_left(place, work)
        part = [n for n in self._part_of_commit(place) if self._hashes[n]]
        before = [n for n in part if n < place][-1:]
        after = [n for n in part if n > place][:1]
        writers = [self._only_one_that_left(n, work) for n in (*before, *after)]
        sessions = {writer.session if writer else "" for writer in writers}
        return writers[0] if len(sessions) == 1 else None

    def _only_one_that_left(self, place: int, work: Sequence[FileWork]) -> FileWork | None:
        wanted = self._hashes[place]
        at = self._lines[place].commit.at
        left = [item for item in work if wanted in self._lefts[item.id] and item.started <= at]
        is_one = len({item.session for item in left}) == 1
        return min(left, key=lambda item: item.started) if is_one else None

    def _writer(self, place: int, work: Sequence[FileWork], *, strict: bool) -> FileWork | None:
        """Return the work that left a line in its file before its commit, if one did."""
        line = self._lines[place]
        wanted = self._hashes[place]
        around = [self._hashes[n] for n in self._part_of_commit(place) if self._hashes[n]]
        best: tuple[float, str] = (0.0, "")
        writer = None
        for item in work:
            left = self._lefts[item.id]
            if item.started > line.commit.at or (wanted and not may_have(left, wanted)):
                continue
            judged = [one for one in around if one in left or not may_have(left, one)]
            share = sum(one in left for one in judged) / len(judged) if judged else 0.0
            least = _LEAST_SHARE if wanted in left else _LEAST_SHARE_OF_PLAIN
            is_plain = wanted not in left
            if strict and (share < least or (is_plain and len(judged) < _LEAST_AROUND_PLAIN)):
                continue
            if not share and wanted not in left:
                continue
            rank = (round(share, 1), item.started)
            if rank > best:
                best = rank
                writer = item
        return writer

    def _part_of_commit(self, place: int) -> Iterator[int]:
        """Yield the places around a line that are from the same commit, without a gap."""
        commit = self._lines[place].commit.id
        first = place
        while first > 0 and place - first < _AROUND and self._lines[first - 1].commit.id == commit:
            first -= 1
        last = place
        while (
            last + 1 < len(self._lines)
            and last - place < _AROUND
            and self._lines[last + 1].commit.id == commit
        ):
            last += 1
        yield from range(first, last + 1)


def _changed_it(work: FileWork) -> bool:
    return bool(work.anchors) or _wrote(work)


def _is_part(name: str) -> bool:
    """Whether a name does not tell the id that a client gives its session on this machine."""
    return is_cloud_id(name) or len(name) == 8


def _mentions(work: FileWork, name: str) -> bool:
    record = work.hit.record
    return isinstance(record, Exchange) and any(
        name in message.content for message in record.messages
    )
