"""A project on disk: its root, its id, its focus, and what it asks permission for.

The id stands in a file of the project, so a clone can claim any id. Private memory is kept under
it all the same, so Ralph's home notes which folders an id belongs to: the first that used it here,
every other with the same git history, and those that a person has trusted. Whoever else claims the
id gets one made from its path, and with it a memory of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk, trust
from ralph.config import PROJECT_FILE, home_folder
from ralph.config import trust_requests as setting_requests
from ralph.disk import AnyPath
from ralph.errors import BadInput, BadPlan, NotAProject, UnsafeFile
from ralph.journal.file import check_name
from ralph.programs import find_program
from ralph.records import now
from ralph.trust import TrustRequest, trusted_hashes

if TYPE_CHECKING:
    from ralph.plan.model import Discipline

FOLDER = disk.FOLDER
_ID_LINE = re.compile(r"^project_id:[ \t]*[\"']?([0-9a-fA-F-]{36})[\"']?[ \t]*(?:#.*)?$", re.M)
_GIT_ATTRIBUTES = """\
# Two branches' journals merge line by line, without a conflict.
*.jsonl merge=union text eol=lf
"""
_GIT_IGNORE = """\
# Written by earlier versions; no longer used.
/cache/
*.tmp
"""
# More than any metadata.yaml has.
_METADATA_BYTES = 64 * 1024
# How long git may take to walk a whole history for its first commits.
_GIT_TIMEOUT_S = 1.0


class Project:
    """The folder `.ralph` of one project. Opening it changes nothing."""

    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.root = root
        self.home = home_folder() if home is None else home
        self.folder = root / FOLDER
        self.db = self.folder / "db"
        self.journals = self.db / "memory"
        # This machine's own state: index, focus, runs, locks, the plan's write log.
        self.cache = Path(disk.state_folder(root, self.home))
        self.settings_file = self.folder / PROJECT_FILE
        self._metadata = self.db / "metadata.yaml"
        self._id: str | None = None
        # The id as it was last read, and the state of the file then: it is asked for often.
        self._read: tuple[tuple[int, int, int], str | None] | None = None

    @property
    def exists(self) -> bool:
        """Whether `init` has been here."""
        return disk.is_folder(self.db)

    @property
    def id(self) -> str:
        """The id that this folder's memory is kept under.

        It is the project's own, which travels with clones and worktrees, unless it belongs to
        another folder of this machine. Without one, an id from the path serves.
        """
        if self._id is None:
            claimed = self._read_id()
            if claimed is None:
                return self._path_id()
            self._id = claimed if self._holds(claimed) else self._path_id()
        return self._id

    @property
    def claimed_id(self) -> str:
        """The id that the project's file gives; ids of its records are made from it everywhere."""
        return self._read_id() or self._path_id()

    @property
    def is_usable(self) -> bool:
        """Whether it belongs to who works here, or they trust whose it is."""
        return disk.is_own(self.folder) or self._is_trusted(self.owner_wish())

    @property
    def has_id(self) -> bool:
        """Whether the id is on disk, where clones get it from."""
        return self._read_id() is not None

    @property
    def rivals(self) -> list[str]:
        """The folders that this project's id belongs to, when this one is not among them."""
        claimed = self._read_id()
        if claimed is None or self._holds(claimed):
            return []
        return self._owner(claimed)["paths"]

    def wishes(self) -> list[TrustRequest]:
        """What this folder asks for by what it is: another user's content, another's id."""
        asked = [] if disk.is_own(self.folder) else [self.owner_wish()]
        claimed = self._read_id()
        if claimed is None:
            return asked
        wish = self.id_wish(claimed)
        return [*asked, wish] if self._is_trusted(wish) or self.rivals else asked

    def owner_wish(self) -> TrustRequest:
        """To be used though its files belong to another user of this machine."""
        uid = os.lstat(self.folder).st_uid
        return TrustRequest(
            "owner", FOLDER, uid, f"{FOLDER} here belongs to another user (uid {uid})"
        )

    def id_wish(self, claimed: str) -> TrustRequest:
        """To share the private memory of the other folders that have this id."""
        others = ", ".join(self._owner(claimed).get("paths", []))
        text = f"the conversations and documents of project {claimed}, used in {others}"
        return TrustRequest("id", "project_id", claimed, text)

    def _is_trusted(self, wish: TrustRequest) -> bool:
        return wish.digest in trusted_hashes(self.home, self.root)

    def init(self) -> list[Path]:
        """Make what is missing, change nothing that is there, and say what was made."""
        made = [file for file, text in self._files().items() if disk.create(file, text.encode())]
        if self._read_id() is None:
            self._give_id()
        self.claim()
        return made

    def missing(self) -> list[Path]:
        """The files that `init` would make."""
        return [file for file in self._files() if not disk.exists(file)]

    def claim(self) -> None:
        """Note that the id belongs to this folder, unless another was here first."""
        claimed = self._read_id()
        if claimed is None or self._owner(claimed):
            return
        owner = {"paths": [self._path], "commits": _commits(self.root)}
        with contextlib.suppress(OSError):  # a home that cannot be written to keeps nothing private
            disk.create(self._owner_file(claimed), _encoded(owner))

    def join(self) -> None:
        """Note that the id belongs to this folder too."""
        claimed = self._read_id()
        if claimed is None:
            return
        self.claim()
        file = self._owner_file(claimed)
        with disk.lock(file.with_suffix(".lock"), timeout_s=5.0):
            owner = self._owner(claimed)
            owner["paths"] += [self._path]
            owner["commits"] += _commits(self.root)
            disk.replace(file, _encoded({k: [*dict.fromkeys(v)] for k, v in owner.items()}))
        self._id = None

    def _holds(self, claimed: str) -> bool:
        """Whether the claimed id belongs to this folder, as far as this machine knows."""
        owner = self._owner(claimed)
        if not owner or self._path in owner["paths"] or self._is_trusted(self.id_wish(claimed)):
            return True
        # The first folder may have been used before its first commit.
        commits = owner["commits"] or [one for path in owner["paths"] for one in _commits(path)]
        known = (_git(self.root, "rev-parse", "-q", "--verify", f"{i}^{{commit}}") for i in commits)
        if not any(known):
            return False
        # A second clone or a worktree. Noted, so that git is asked once.
        with contextlib.suppress(OSError, disk.Busy):
            self._id = claimed
            self.join()
        return True

    @property
    def _path(self) -> str:
        return os.path.realpath(self.root)

    def _path_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, Path(self._path).as_uri()))

    def _owner_file(self, claimed: str) -> Path:
        return self.home / "projects" / f"{claimed}.json"

    def _owner(self, claimed: str) -> dict[str, list[str]]:
        try:
            owner = json.loads(disk.read(self._owner_file(claimed)))
            return {key: [str(one) for one in owner[key]] for key in ("paths", "commits")}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"it cannot be read ({error})",
                where=str(self._owner_file(claimed)),
                todo="Delete it: the next folder that uses this project's id here gets it.",
            ) from None

    def _files(self) -> dict[Path, str]:
        metadata = (
            "# Kept with the project: clones and worktrees share this id, and so their memory.\n"
            f"project_id: {uuid.uuid4()}\ncreated: {now()}\n"
        )
        # The id comes last: where there is one, everything else is there too.
        return {
            self.journals / ".gitattributes": _GIT_ATTRIBUTES,
            self.folder / ".gitignore": _GIT_IGNORE,
            self._metadata: metadata,
        }

    def _read_id(self) -> str | None:
        try:
            stat = disk.stat(self._metadata)
            state = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if self._read is None or self._read[0] != state:
                found = _ID_LINE.search(self._text())
                self._read = state, found[1].lower() if found else None
        except FileNotFoundError:
            return None
        return self._read[1]

    def _text(self) -> str:
        text = disk.read(self._metadata, largest=_METADATA_BYTES).decode(errors="replace")
        return text.replace("\r\n", "\n")

    def _give_id(self) -> None:
        """The file is there but its id was lost: add one line, keep the rest."""
        with disk.lock(self._metadata, timeout_s=5.0):
            text = self._text()
            if _ID_LINE.search(text) is None:
                if re.search(r"^project_id:", text, re.M):
                    raise BadInput(
                        "project_id is not a UUID",
                        where=str(self._metadata),
                        todo="Restore the line from git, or remove it to get a new id.",
                    )
                newline = "" if not text or text.endswith("\n") else "\n"
                new = f"{text}{newline}project_id: {uuid.uuid4()}\n"
                disk.replace(self._metadata, new.encode())


def find_project(start: Path, *, home: Path, anyones: bool = False) -> Project | None:
    """The nearest folder upwards that holds a project.

    One that another user has put here or above is refused, as git does, unless it is trusted or
    `anyones` will do.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        # ~/.ralph is a home for what belongs to no project, not a project.
        if (folder / FOLDER / "db").is_dir() and (folder / FOLDER).resolve() != home.resolve():
            project = Project(folder, home)
            if project.exists:  # refuses a link
                if not anyones and not project.is_usable:
                    raise UnsafeFile(
                        "it belongs to another user of this machine",
                        where=str(project.folder),
                        todo="If you trust its content, run: ralph trust",
                    )
                return project
    return None


def need_project(start: Path, *, home: Path, anyones: bool = False) -> Project:
    """The nearest project, or an error that says how to make one."""
    if not start.is_dir():
        raise NotAProject(f"there is no folder {start}")
    project = find_project(start, home=home, anyones=anyones)
    if project is None:
        raise NotAProject(
            "no .ralph folder here or above", where=str(start), todo="Run: ralph init"
        )
    return project


# -- git


def _commits(root: AnyPath) -> list[str]:
    """The commits that tell this history from others: where it begins, and where it is now."""
    first = _git(root, "rev-list", "--max-parents=0", "HEAD")
    return [*dict.fromkeys([*first.split()[:10], *_git(root, "rev-parse", "HEAD").split()])]


def _git(root: AnyPath, *words: str) -> str:
    """What git says, or nothing: no repository, no git, or it takes too long."""
    here = Path(root)
    if not any((folder / ".git").exists() for folder in (here, *here.parents)):
        return ""
    code, text = ask_git(here, *words)
    return text if code == 0 else ""


def ask_git(root: Path, *words: str) -> tuple[int, str]:
    """Git's exit code and what it says; -1 where it does not answer."""
    import subprocess  # most projects are known by their path

    program = find_program("git", root=root)
    if program is None:
        return -1, "git is not installed"
    # Nothing that the repository configures may run or be fetched.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = [program, "-C", str(root), "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return -1, str(error)
    output = done.stdout if done.returncode == 0 else done.stderr
    return done.returncode, output.decode(errors="replace").strip()


def _encoded(owner: dict[str, list[str]]) -> bytes:
    return json.dumps({"version": 1, **owner}, indent=1).encode() + b"\n"


# -- Focus: which feature a person's own interactive work belongs to, on this machine.


class Focus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feature, and perhaps one of its tasks."""

    feature: str
    task_id: int | str | None = None


def set_focus(project: Project, focus: Focus) -> None:
    """From now on, work outside a loop belongs here."""
    check_name(focus.feature)
    disk.make_folder(project.cache)
    disk.replace(project.cache / "focus.json", msgspec.json.encode(focus) + b"\n")


def read_focus(project: Project) -> Focus | None:
    """What the work belongs to, or None when nobody said."""
    file = project.cache / "focus.json"
    try:
        focus = msgspec.json.decode(disk.read(file), type=Focus)
        check_name(focus.feature)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, BadInput) as error:
        raise BadInput(
            f"the focus cannot be read ({error})", where=str(file), todo="Run: ralph focus --clear"
        ) from None
    return focus


def clear_focus(project: Project) -> None:
    """Work outside a loop belongs to no feature."""
    disk.remove(project.cache / "focus.json")


# -- What a project's folder asks for that a person must allow first.
#
# Each source of wishes is one function; `wishes_of` is the list of them.


_SHOWN = ("command", "args", "url", "type")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


def wishes_of(project: Project, *, home: Path) -> list[TrustRequest]:
    """Everything that this project asks for, allowed or not."""
    return [
        *project.wishes(),
        *setting_requests(home=home, project_file=project.settings_file),
        *_servers(project),
    ]


def untrusted(project: Project, *, home: Path) -> list[TrustRequest]:
    """What it asks for and does not get until the person runs `ralph trust`."""
    asked = wishes_of(project, home=home)
    known = trust.trusted_hashes(home, project.root) if asked else frozenset()
    return [one for one in asked if one.digest not in known]


def server_wishes(discipline: Discipline) -> dict[str, TrustRequest]:
    """The wish behind each MCP server of a discipline, by the server's name."""
    return {
        name: _server(discipline.name, name, one) for name, one in discipline.mcp_servers.items()
    }


def trust_servers(project: Project, discipline: Discipline, *, home: Path) -> None:
    """Remember that a person gave a discipline these servers."""
    if discipline.mcp_servers:
        trust.trust(home, project.root, server_wishes(discipline).values(), more=True)


def _servers(project: Project) -> list[TrustRequest]:
    from ralph.plan.store import Plan  # which reads YAML

    try:
        disciplines = Plan(project.root, state=project.cache).read("disciplines").disciplines
    except BadPlan:
        return []  # told by `ralph plan check`; nothing of it is used
    return [wish for one in disciplines for wish in server_wishes(one).values()]


def _server(discipline: str, name: str, entry: Any) -> TrustRequest:
    found = entry if isinstance(entry, dict) else {}
    does: list[str] = []
    if found.get("command"):
        given = found.get("args")
        words = [found["command"], *(given if isinstance(given, list) else [])]
        does.append(f"runs {shlex.join(map(str, words))}")
    if found.get("url"):
        does.append(f"connects to {found['url']}")
    for key, value in found.items():
        if key in ("env", "headers") and isinstance(value, dict):
            does.append(f"{key} {', '.join(map(str, value))}")  # a value may be a key
        elif key not in _SHOWN:
            does.append(f"{key} {value}")
    if taken := dict.fromkeys(_VARIABLE.findall(str(entry))):
        does.append(f"takes {', '.join(taken)} from your environment")
    text = f"MCP server {name} of {discipline}: {', '.join(does) or 'says nothing'}"
    return TrustRequest("mcp_server", f"{discipline}/{name}", entry, text)
