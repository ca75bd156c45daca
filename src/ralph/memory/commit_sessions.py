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
_MOST_PARTS = 40
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
    # Go writes an empty list as null.
    session_id: str | None = ""
    sessions: tuple[msgspec.Raw, ...] | None = ()
    files_touched: tuple[str, ...] | None = ()


def is_bot(commit: Commit) -> bool:
    """Whether a program made a commit, such as an update of dependencies."""
    address = commit.mail.partition("@")[0]
    return any(_BOT.search(name) for name in (commit.author, address))


def commit_source(copy: WorkingCopy, commit: Commit) -> CommitSource:
    """Return the iterations and sessions that the message of a commit names."""
    iterations: list[str] = []
    sessions: list[str] = []
    files: dict[str, frozenset[str]] = {}
    second_names: set[str] = set()
    checkpoints: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for trailers in _blocks_of_trailers(copy.message(commit.id)):
        has_checkpoint = False
        by_name: list[str] = []
        for name, value in trailers:
            if name.casefold() == _ITERATION:
                iterations.append(value)
            elif name.casefold() == _CHECKPOINT_NAME:
                if value not in checkpoints:
                    checkpoints[value] = list(_sessions_of_checkpoint(copy, value))
                for session, paths in checkpoints[value]:
                    sessions.append(session)
                    files[session] = files.get(session, frozenset()) | paths
                    has_checkpoint = True
            elif _NAMES_SESSION.fullmatch(name):
                by_name += _SESSION.findall(value)
        sessions += by_name
        if has_checkpoint:
            second_names.update(filter(is_cloud_id, by_name))
    return CommitSource(
        _once(iterations),
        _once(session for session in sessions if session not in second_names),
        files,
    )


def is_cloud_id(session: str) -> bool:
    """Whether this is the id that a session has at claude.ai, and not on this machine."""
    return session.startswith("session_")


def _blocks_of_trailers(message: str) -> list[list[tuple[str, str]]]:
    """Return the trailers of a message that name who made it, each once, by paragraph.

    A squash keeps the paragraphs of its commits. If one of them names a checkpoint and a session
    in the cloud, both are names of the same session.
    """
    seen: set[tuple[str, str]] = set()
    blocks: list[list[tuple[str, str]]] = []
    for paragraph in re.split(r"\n[ \t]*\n", message):
        block: list[tuple[str, str]] = []
        for name, value in _TRAILER.findall(paragraph):
            trailer = (name, value.strip())
            is_wanted = name.casefold() in _NAMES or _NAMES_SESSION.fullmatch(name)
            if is_wanted and (trailer in seen or len(seen) < _MOST_NAMES):
                seen.add(trailer)
                block.append(trailer)
        if block:
            blocks.append(block)
    return blocks


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
            yield about.session_id, frozenset(about.files_touched or ())
        for part in range(min(len(about.sessions or ()), _MOST_PARTS)):
            found = _read_checkpoint(copy, reference, f"{folder}{part}/metadata.json")
            if found is not None and found.session_id:
                yield found.session_id, frozenset(found.files_touched or ())
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
