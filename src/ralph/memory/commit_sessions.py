"""Which session or iteration made a commit, as its message says.

`ralph run --commit` names the iteration. Clients and their add-ons name a session: by its own id
(`Codex-Thread-ID`), by an address (`Claude-Session`), or by a checkpoint that a branch of the
repository describes (`Entire-Checkpoint`). A squash keeps the lines of several commits, so a
message can name several.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

import msgspec

from ralph.memory.working_copy import Commit, WorkingCopy

# A squash of a long branch names dozens of sessions.
_MOST_NAMES = 100
_MOST_PARTS = 10
_TRAILER = re.compile(r"^[ \t*-]*([A-Za-z][\w-]{2,40}):[ \t]+(\S.{3,300})$", re.M)
_ITERATION = "ralph-iteration"
_CHECKPOINT_NAME = "entire-checkpoint"
_NAMES = (_ITERATION, _CHECKPOINT_NAME)
_NAMES_SESSION = re.compile(r"(?i)(?:.*[-_])?(?:session|thread|conversation)(?:[-_]?id)?")
# A UUID, an id of OpenCode, the id in an address of Claude Code, or the beginning of a UUID.
_SESSION = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\bses_\w{10,40}\b|\bsession_\w{10,40}\b"
    r"|(?<![\w-])[0-9a-f]{8}(?![\w-])"
)
_CHECKPOINT = re.compile(r"[0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26}")
_CHECKPOINT_BRANCHES = ("refs/heads/{}", "refs/remotes/origin/{}")
_CHECKPOINTS = "entire/checkpoints/v1"
_BOT = re.compile(
    r"\[bot\]|^(?:dependabot|renovate|greenkeeper|snyk|github-actions|pre-commit-ci|mergify"
    r"|semantic-release|release-please|web-flow|allcontributors)\b|(?:^|[-_.])bot$",
    re.I,
)


class CommitSource(msgspec.Struct, frozen=True):
    """What a commit's message says about who made it.

    `files` are those that a session changed in it, where a checkpoint says so.
    """

    iterations: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    files: dict[str, frozenset[str]] = {}


class _CheckpointFile(msgspec.Struct, frozen=True):
    session_id: str = ""
    sessions: tuple[msgspec.Raw, ...] = ()
    files_touched: tuple[str, ...] = ()


def is_bot(commit: Commit) -> bool:
    """Whether a program made a commit, such as an update of dependencies."""
    address = commit.mail.partition("@")[0]
    return any(_BOT.search(name) for name in (commit.author, address))


def commit_source(copy: WorkingCopy, commit: Commit) -> CommitSource:
    """Return the iterations and sessions that the message of a commit names."""
    iterations: list[str] = []
    sessions: list[str] = []
    files: dict[str, frozenset[str]] = {}
    for name, value in _named_in(copy.message(commit.id)):
        if name.casefold() == _ITERATION:
            iterations.append(value)
        elif name.casefold() == _CHECKPOINT_NAME:
            for session, paths in _sessions_of_checkpoint(copy, value):
                sessions.append(session)
                files[session] = files.get(session, frozenset()) | paths
        elif _NAMES_SESSION.fullmatch(name):
            sessions += _SESSION.findall(value)
    return CommitSource(_once(iterations), _once(sessions), files)


def _named_in(message: str) -> list[tuple[str, str]]:
    """Return the trailers of a message that name who made it, each once."""
    found = [
        (name, value.strip())
        for name, value in _TRAILER.findall(message)
        if name.casefold() in _NAMES or _NAMES_SESSION.fullmatch(name)
    ]
    return list(dict.fromkeys(found))[:_MOST_NAMES]


def _sessions_of_checkpoint(
    copy: WorkingCopy, checkpoint: str
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the sessions of a checkpoint and the files that each changed, from the branch or the
    reference that describes it."""
    if not _CHECKPOINT.fullmatch(checkpoint):
        return
    for reference, folder in _checkpoint_places(checkpoint):
        about = _read_checkpoint(copy, reference, f"{folder}metadata.json")
        if about is None:
            continue
        if about.session_id:
            yield about.session_id, frozenset(about.files_touched)
        for part in range(min(len(about.sessions), _MOST_PARTS)):
            found = _read_checkpoint(copy, reference, f"{folder}{part}/metadata.json")
            if found is not None and found.session_id:
                yield found.session_id, frozenset(found.files_touched)
        return


def _checkpoint_places(checkpoint: str) -> Iterator[tuple[str, str]]:
    if checkpoint.isupper():
        yield f"refs/entire/checkpoints/{checkpoint[-2:]}/{checkpoint}", ""
    for branch in _CHECKPOINT_BRANCHES:
        yield branch.format(_CHECKPOINTS), f"{checkpoint[:2]}/{checkpoint[2:]}/"


def _read_checkpoint(copy: WorkingCopy, reference: str, path: str) -> _CheckpointFile | None:
    text = copy.json_at(reference, path)
    if not text:
        return None
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(text, type=_CheckpointFile)
    return None


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
