"""Pauses: while one is active, nothing that is said is saved, and nothing from memory is shown.

Pauses that have ended are kept, too: what was said during one stays out when a transcript is read
again. Hooks check this before every prompt, so only light parts of the standard library are loaded
until there is a pause.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph import disk
from ralph.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from ralph.capture.lines import SessionExchange
    from ralph.memory.conversation_stream import ConversationContent
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph


NAME = "paused.json"
SETTING = "pause_folders"
REASON = "held while memory was paused"
_LOCK_TIMEOUT_S = 5.0


class Pause(NamedTuple):
    """A time in which nothing is saved for a project, a conversation, a folder, or at all.

    `where` is only for people to read. A pause without a start is from the setting `pause_folders`.
    """

    since: str
    until: str = ""
    project: str = ""
    conversation: str = ""
    where: str = ""
    folder: str = ""

    @property
    def scope(self) -> tuple[str, str, str]:
        """What is paused."""
        return self.project, self.conversation, self.folder

    @property
    def holds_now(self) -> bool:
        """Whether it has not ended yet."""
        return not self.until

    def is_for(
        self, projects: Collection[str], conversation: str = "", folders: Sequence[str] = ()
    ) -> bool:
        """Return whether it applies to these project ids, this conversation or these folders."""
        if self.conversation:
            return self.conversation == conversation
        if self.folder:
            return any(self._has(folder) for folder in folders)
        return not self.project or self.project in projects

    def _has(self, folder: str) -> bool:
        """Return whether a folder is this one or below it; the setting's folders are patterns."""
        if self.since:
            return folder == self.folder or folder.startswith(self.folder.rstrip(os.sep) + os.sep)
        from fnmatch import fnmatchcase

        pattern = os.path.expanduser(self.folder).replace("/", os.sep).rstrip(os.sep)
        pattern = pattern if os.sep in pattern else f"*{os.sep}{pattern}"
        return fnmatchcase(folder, pattern) or fnmatchcase(folder, f"{pattern}{os.sep}*")

    def __str__(self) -> str:
        what = f"of conversation {self.conversation[:8]}" if self.conversation else ""
        what = what or (f"in {self.folder}" if self.folder else "")
        what = what or ("in this project" if self.project else "everywhere")
        if not self.since:
            return f"memory is paused {what} by the setting {SETTING}"
        from ralph.text.sanitize import plain_date

        return f"memory is paused {what} since {plain_date(self.since, 16)}"


def paused_folders(home: str | os.PathLike[str]) -> list[str] | None:
    """Return the setting `pause_folders` without loading all settings; None if it is not set."""
    variable = f"RALPH_{SETTING.upper()}"
    file = f"{os.fspath(home)}{os.sep}config.json"
    text = os.environ.get(variable)
    where = variable if text else file
    try:
        found: Any = json.loads(text or "null")
        if text is None:
            plain = disk.read(file)
            found = json.loads(plain).get(SETTING) if SETTING.encode() in plain else None
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError, RecursionError) as error:
        raise _unreadable(error, where) from None
    if found is None:
        return None
    if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        raise _unreadable(TypeError(f"{SETTING} is a list of texts"), where)
    return found


def read_pauses(home: str | os.PathLike[str]) -> list[Pause]:
    """Return every pause there ever was, and those from the settings.

    Raises if they cannot be read: nothing may be saved then.
    """
    return _saved_pauses(home) + [Pause("", folder=one) for one in paused_folders(home) or ()]


def _saved_pauses(home: str | os.PathLike[str]) -> list[Pause]:
    file = f"{os.fspath(home)}{os.sep}{NAME}"
    try:
        return [_pause(one) for one in json.loads(disk.read(file))["pauses"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(error, file) from None


def _unreadable(error: Exception, where: str) -> BadInput:
    what = f"cannot read the list of pauses ({error}), so nothing is saved"
    return BadInput(what, where=where, todo="Fix or delete the file.")


def _pause(plain: Any) -> Pause:
    one = Pause(**plain)
    if not all(isinstance(value, str) for value in one) or not one.since:
        raise ValueError("a pause has texts alone, and a beginning")
    return one


def in_force(
    home: str | os.PathLike[str],
    project: Callable[[], Project] | Project | str = "",
    conversation: Callable[[], str] | str = "",
    folder: str = "",
) -> Pause | None:
    """Return the active pause for these, or None. Callable arguments are only called if needed."""
    held = [one for one in read_pauses(home) if one.holds_now]
    if not held:
        return None
    here = project() if callable(project) else project
    ids, root = ([here], "") if isinstance(here, str) else (here.ids, str(here.root))
    of = conversation if isinstance(conversation, str) else conversation()
    return next((one for one in held if one.is_for(ids, of, folders_of(root, folder))), None)


def folders_of(*folders: str) -> list[str]:
    """Return the absolute paths of these folders, with and without links resolved."""
    some = [os.path.abspath(one) for one in folders if one and "\0" not in one]
    return [*dict.fromkeys([*some, *map(os.path.realpath, some)])]


def pause(
    home: Path, *, project: Project | None = None, conversation: str = "", folder: str = ""
) -> Pause:
    """Pause a conversation, a project, a folder, or everything.

    If it is paused already, that pause continues.
    """
    from ralph.records import now

    own = "" if project is None or conversation else project.id
    where = "" if project is None else str(project.root)
    wanted = Pause(now(), "", own, conversation, where, folder)
    with _editing(home) as pauses:
        for one in pauses:
            if one.holds_now and one.scope == wanted.scope:
                return one
        pauses.append(wanted)
    return wanted


def resume(
    home: Path, *, project: Project | None = None, conversation: str = "", folder: str = ""
) -> Pause | None:
    """End the pause of a conversation, a project, a folder, or everything.

    Returns None if there was none.
    """
    from ralph.records import now

    # A pause from before `init` has the id that the project had then.
    ids = [""] if project is None or conversation else project.ids
    with _editing(home) as pauses:
        scopes = [(one, conversation, folder) for one in ids]
        over = [one for one in pauses if one.holds_now and one.scope in scopes]
        pauses[:] = [one._replace(until=now()) if one in over else one for one in pauses]
    return over[0] if over else None


@contextmanager
def _editing(home: Path) -> Iterator[list[Pause]]:
    """Lock the pauses, yield them to be changed, and save them."""
    disk.make_folder(home)
    file = home / NAME
    what = "another process is changing what is paused"
    busy = BadInput(what, where=str(file), todo="Try again.")
    with disk.lock(file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S, busy=busy):
        known = _saved_pauses(home)
        pauses = list(known)
        yield pauses
        if pauses != known:
            plain = [{k: v for k, v in one._asdict().items() if v} for one in pauses]
            disk.replace(file, json.dumps({"pauses": plain}, indent=2).encode() + b"\n", mode=0o600)


# -- what was said during a pause


def covers(
    pauses: Iterable[Pause], scope: tuple[Any, ...], started: str | None, ended: str | None
) -> bool:
    """Return whether something was said during a pause; without a time, whether one is active.

    `scope` has the arguments of `is_for`.
    """
    about = [one for one in pauses if one.is_for(*scope)]
    if any(not one.since for one in about):
        return True
    first = _moment(started or ended)
    last = _moment(ended or started)
    if first is None or last is None:
        return any(one.holds_now for one in about)
    for one in about:
        since = _moment(one.since)
        until = _moment(one.until)
        if since is not None and last >= since and (until is None or first < until):
            return True
    return False


def unpaused(
    ralph: Ralph, seen: Sequence[SessionExchange], session: str, source: str
) -> list[SessionExchange]:
    """Return the exchanges of a transcript that may be saved; bury the others for good."""
    pauses = read_pauses(ralph.project.home)
    project = ralph.project
    from ralph.records.conversation import conversation_id, exchange_id

    free: list[SessionExchange] = []
    buried: list[str] = []
    for one in seen:
        conversation = conversation_id(source, one.session_id or session)
        scope = project.ids, conversation, folders_of(str(project.root), one.cwd or "")
        if covers(pauses, scope, one.captured.started_at, one.captured.ended_at):
            buried.append(exchange_id(conversation, one.key))
        else:
            free.append(one)
    ralph.conversations.bury(buried, reason=REASON)
    return free


def unpaused_talks(
    home: Path, projects: Collection[str], talks: Sequence[ConversationContent], *, folder: str = ""
) -> list[ConversationContent]:
    """Return the parts of conversations from a client's files that may be saved."""
    pauses = read_pauses(home)
    if not pauses:
        return list(talks)
    import msgspec

    free: list[ConversationContent] = []
    for talk in talks:
        scope = projects, talk.conversation.id, folders_of(folder)
        some = [x for x in talk.exchanges if not covers(pauses, scope, x.started, x.completed)]
        if len(some) == len(talk.exchanges):
            free.append(talk)
        elif some:
            # Its title may come from what was said during the pause.
            first = " ".join((some[0].user or some[0].assistant).split())
            named = msgspec.structs.replace(talk.conversation, title=first[:80])
            free.append(msgspec.structs.replace(talk, conversation=named, exchanges=some))
    return free


def _moment(at: str | None) -> float | None:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(at or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
