"""A project on disk: its root, its id, its focus, and what it asks permission for.

The id is in a file of the project, so a clone can claim any id. But private memory is stored under
it, so Ralph's home notes which folders an id belongs to: the first that used it here, every other
with the same git history, and those that a person has trusted. Any other folder that claims the id
gets none of its memory. A folder without its own id gets one made from the first commit of its
repository and its path in there, or else from its path on this machine.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ralph import disk, trust
from ralph.clients import own_command
from ralph.config import PROJECT_FILE, home_folder
from ralph.config import trust_requests as setting_requests
from ralph.errors import BadInput, BadPlan, NotAProject, UnsafeFile
from ralph.journal.file import check_name
from ralph.records import now
from ralph.state_folders import state_folder
from ralph.trust import TrustRequest, trusted_hashes

if TYPE_CHECKING:
    from ralph.plan.model import Discipline

FOLDER = disk.FOLDER
# For conversations that belong to no folder.
GENERAL = "general"
_GIT_SPACE = uuid.UUID("5b2a64d5-6d0c-4c43-9f0e-1f6f2f1b8c57")
_ID_LINE = re.compile(r"^project_id:[ \t]*[\"']?([0-9a-fA-F-]{36})[\"']?[ \t]*(?:#.*)?$", re.M)
_GIT_ATTRIBUTES = """\
# Two branches' journals merge line by line, without a conflict.
*.jsonl merge=union text eol=lf
"""
_PLAN_ATTRIBUTES = """\
# Two branches' plans merge entry by entry. `ralph init` tells git in each clone how.
features.yaml merge=ralph-plan
tasks.yaml merge=ralph-plan
disciplines.yaml merge=ralph-plan
"""
_MERGE_DRIVER = "merge.ralph-plan.driver"
_GIT_IGNORE = """\
# Written by earlier versions; no longer used.
/cache/
*.tmp
"""
# More than any real metadata.yaml has.
_METADATA_BYTES = 64 * 1024
_FORMAT_LINE = re.compile(r"^format:[ \t]*([0-9]{1,9})\b", re.M)


def refuse_newer(text: str, where: Path) -> None:
    """Refuse memory that a newer Ralph has marked; this version writes format 1, without a mark."""
    found = _FORMAT_LINE.search(text)
    if found and int(found[1]) > 1:
        what = f"a newer Ralph wrote this memory (format {found[1]}; this one reads 1)"
        raise BadInput(what, where=str(where), todo="Upgrade Ralph. Nothing was changed.")


class Project:
    """The folder `.ralph` of one project. Opening it changes nothing."""

    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.root = root
        self.home = home_folder() if home is None else home
        self.folder = root / FOLDER
        self.db = self.folder / "db"
        self.journals = self.db / "memory"
        # This machine's own state: index, focus, runs, locks, the plan's write log.
        self.cache = Path(state_folder(root, self.home))
        self.settings_file = self.folder / PROJECT_FILE
        self._metadata = self.db / "metadata.yaml"
        self._id: str | None = None
        self._other_ids: list[str] = []
        # The id as last read, and the state of the file then. Cached, because it is needed often.
        self._read: tuple[disk.FileState, str | None] | None = None

    @property
    def exists(self) -> bool:
        """Whether `init` was run here."""
        return disk.is_folder(self.db)

    @property
    def id(self) -> str:
        """The id that this folder's memory is stored under.

        It is the project's own id, which clones and worktrees share, unless that belongs to another
        folder on this machine. Otherwise it is made from the first commit or the path.
        """
        if self._id is None:
            claimed = self._read_id()
            if claimed is None:
                return self._folder_id()
            self._id = claimed if self._holds(claimed) else self._folder_id()
        return self._id

    @property
    def ids(self) -> list[str]:
        """Every id that conversations of this project may be under; new ones go under the first.

        Before `init`, and in worktrees without `.ralph`, they are stored under the id made from the
        first commit or the path. Ids with the same first commit count, too, if they come from
        another machine or from a worktree of this repository.
        """
        found = [self.id, self.git_id, _path_id(self._path), *self._shared_ids()]
        found += [_path_id(one) for one in self._owner(self.id).get("paths", ())]
        return [*dict.fromkeys(filter(None, [*found, *self._other_ids]))]

    def _shared_ids(self) -> list[str]:
        """Return the ids from `.ralph` folders of this repository, or from another machine."""
        ids = self._owner(self.git_id).get("ids", []) if self.git_id else []
        paths = {one: self._owner(one).get("paths", []) for one in ids}

        def history(path: str) -> str:
            return history_folder(disk.find_repository(path))

        own = history(self._path)
        return [one for one in ids if not paths[one] or own in map(history, paths[one])]

    @functools.cached_property
    def git_id(self) -> str:
        """The id made from the repository's first commit and this folder's path in it, or ""."""
        top = disk.find_repository(self._path)
        commit = first_commit(top, self.home) if top else ""
        within = os.path.relpath(self._path, top).replace(os.sep, "/") if commit else ""
        return str(uuid.uuid5(_GIT_SPACE, f"{commit}/{within}")) if commit else ""

    @property
    def claimed_id(self) -> str:
        """The id in the project's file. Record ids are made from it on every machine."""
        return self._read_id() or self._folder_id()

    @property
    def is_usable(self) -> bool:
        """Whether the folder belongs to the current user, or is trusted."""
        return disk.is_own(self.folder) or self._is_trusted(self.owner_wish())

    @property
    def has_id(self) -> bool:
        """Whether the id is on disk, where clones get it from."""
        return self._read_id() is not None

    @property
    def rivals(self) -> list[str]:
        """The folders that this project's id belongs to, if this one is not among them."""
        claimed = self._read_id()
        if claimed is None or self._holds(claimed):
            return []
        return self._owner(claimed).get("paths", [])

    def wishes(self) -> list[TrustRequest]:
        """Return the requests to use another user's files, or the id of another folder."""
        asked = [] if disk.is_own(self.folder) else [self.owner_wish()]
        claimed = self._read_id()
        if claimed is None:
            return asked
        wish = self.id_wish(claimed)
        return [*asked, wish] if self._is_trusted(wish) or self.rivals else asked

    def owner_wish(self) -> TrustRequest:
        """Return the request to use files that belong to another user of this machine."""
        uid = os.lstat(self.folder).st_uid
        text = f"{FOLDER} here belongs to another user (uid {uid})"
        return TrustRequest("owner", FOLDER, uid, text)

    def id_wish(self, claimed: str) -> TrustRequest:
        """Return the request to share the private memory of the other folders with this id."""
        others = ", ".join(self._owner(claimed).get("paths", []))
        text = f"the conversations and documents of project {claimed}, used in {others}"
        return TrustRequest("id", "project_id", claimed, text)

    def _is_trusted(self, wish: TrustRequest) -> bool:
        return wish.digest in trusted_hashes(self.home, self.root)

    def init(self) -> list[Path]:
        """Create what is missing, change nothing that exists, and return what was created."""
        made = [file for file, text in self._files().items() if disk.create(file, text.encode())]
        if self._read_id() is None:
            self._give_id()
        self.claim()
        if not self.merges_plans():
            driver = f"{own_command(os.environ)} plan merge-driver %O %A %B %P"
            _git(self.root, "config", "--local", _MERGE_DRIVER, driver)
        return made

    def merges_plans(self) -> bool:
        """Return whether git is set up in this clone to merge the plans of two branches."""
        return bool(_git(self.root, "config", "--get", _MERGE_DRIVER))

    def missing(self) -> list[Path]:
        """Return the files that `init` would create."""
        return [file for file in self._files() if not disk.exists(file)]

    def claim(self) -> None:
        """Note that its ids belong to this folder, unless another folder was first."""
        claimed = self._read_id()
        if claimed is not None and not self._owner(claimed):
            owner = {"paths": [self._path], "commits": _commits(self.root)}
            with contextlib.suppress(OSError):  # a read-only home stores nothing
                disk.create(owner_file(self.home, claimed), _encoded(owner))
        if self.git_id:
            own = [self.id] if self.id == claimed else []
            note_owner(self.home, self.git_id, paths=[self._path], ids=own)

    def join(self) -> None:
        """Note that the id belongs to this folder, too."""
        claimed = self._read_id()
        if claimed is None:
            return
        self.claim()
        note_owner(self.home, claimed, paths=[self._path], commits=_commits(self.root))
        self._id = None

    def _holds(self, claimed: str) -> bool:
        """Return whether the claimed id belongs to this folder, as far as this machine knows."""
        # A version 5 id is not from `init`: it is made from a commit or a path anybody may know.
        if claimed[14] == "5":
            return claimed == self.git_id or self._is_trusted(self.id_wish(claimed))
        owner = self._owner(claimed)
        if not owner or self._path in owner["paths"] or self._is_trusted(self.id_wish(claimed)):
            return True
        # The first folder may have been used before its first commit.
        commits = owner["commits"] or [one for path in owner["paths"] for one in _commits(path)]
        known = (_git(self.root, "rev-parse", "-q", "--verify", f"{i}^{{commit}}") for i in commits)
        if not any(known):
            return False
        # A second clone or a worktree. Note it, so that git is asked only once.
        self._id = claimed
        self.join()
        return True

    @property
    def _path(self) -> str:
        return os.path.realpath(self.root)

    def _folder_id(self) -> str:
        return self.git_id or _path_id(self._path)

    def _owner(self, identity: str) -> dict[str, list[str]]:
        return read_owner(owner_file(self.home, identity))

    def _files(self) -> dict[Path, str]:
        metadata = (
            "# Kept with the project: clones and worktrees share this id, and so their memory.\n"
            f"project_id: {self._new_id()}\ncreated: {now()}\n"
        )
        # The id comes last: if there is one, everything else is there, too.
        return {
            self.journals / ".gitattributes": _GIT_ATTRIBUTES,
            self.db / ".gitattributes": _PLAN_ATTRIBUTES,
            self.folder / ".gitignore": _GIT_IGNORE,
            self._metadata: metadata,
        }

    def _new_id(self) -> str:
        """Return the repository's id from a worktree or another machine, else a new one."""
        shared = self._shared_ids()
        return shared[0] if len(shared) == 1 else str(uuid.uuid4())

    def _read_id(self) -> str | None:
        try:
            if self._read is None or not disk.has_state(self._metadata, self._read[0]):
                stat = disk.stat(self._metadata)
                state = stat.st_ino, stat.st_size, stat.st_mtime_ns
                text = self._text()
                refuse_newer(text, self._metadata)
                found = _ID_LINE.search(text)
                self._read = state, found[1].lower() if found else None
        except FileNotFoundError:
            return None
        return self._read[1]

    def _text(self) -> str:
        text = disk.read(self._metadata, largest=_METADATA_BYTES).decode(errors="replace")
        return text.replace("\r\n", "\n")

    def _give_id(self) -> None:
        """Add an id to a metadata file that has none, and keep the rest."""
        with disk.lock(self._metadata, timeout_s=5.0):
            text = self._text()
            if _ID_LINE.search(text) is None:
                if re.search(r"^project_id:", text, re.M):
                    todo = "Restore the line from git, or remove it to get a new id."
                    raise BadInput("project_id is not a UUID", where=str(self._metadata), todo=todo)
                newline = "" if not text or text.endswith("\n") else "\n"
                new = f"{text}{newline}project_id: {self._new_id()}\n"
                disk.replace(self._metadata, new.encode())


class PlainFolder(Project):
    """A folder without `.ralph`: it has conversations, and nothing is created in it.

    `general`: conversations that belong to no folder are found here, too.
    """

    def __init__(self, start: Path, home: Path, *, general: bool = False) -> None:
        super().__init__(Path(disk.find_repository(os.fspath(start)) or start.resolve()), home)
        self._other_ids = [GENERAL] if general else []

    def init(self) -> list[Path]:
        """Refuse: only a person decides that a folder becomes a project."""
        raise _no_project(self.root)


def find_project(start: Path, *, home: Path, anyones: bool = False) -> Project | None:
    """Return the nearest project, in this folder or above.

    A project of another user is refused, as in git, unless it is trusted or `anyones` is set.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        # ~/.ralph is Ralph's home, not a project.
        if (folder / FOLDER / "db").is_dir() and (folder / FOLDER).resolve() != home.resolve():
            project = Project(folder, home)
            if project.exists:  # refuses a link
                if not anyones and not project.is_usable:
                    what = "it belongs to another user of this machine"
                    todo = "If you trust its content, run: ralph trust"
                    raise UnsafeFile(what, where=str(project.folder), todo=todo)
                return project
    return None


def project_or_folder(start: Path, *, home: Path, general: bool = False) -> Project:
    """Return the nearest project, or else the repository or folder without one."""
    return find_project(start, home=home) or PlainFolder(start, home, general=general)


def need_project(start: Path, *, home: Path, anyones: bool = False) -> Project:
    """Return the nearest project, or raise an error that says how to create one."""
    if not start.is_dir():
        raise NotAProject(f"there is no folder {start}")
    if project := find_project(start, home=home, anyones=anyones):
        return project
    raise _no_project(start)


def _no_project(start: Path) -> NotAProject:
    return NotAProject("no .ralph folder here or above", where=str(start), todo="Run: ralph init")


# -- ids and commits


def note_owner(home: Path, identity: str, **more: list[str]) -> None:
    """Add folders, commits, or ids with the same first commit to the notes about an id."""
    file = owner_file(home, identity)
    if all(set(some) <= set(read_owner(file).get(key, ())) for key, some in more.items()):
        return
    with contextlib.suppress(OSError, disk.Busy):  # a read-only home stores nothing
        disk.make_folder(file.parent)
        with disk.lock(file.with_suffix(".lock"), timeout_s=5.0):
            owner = read_owner(file) or {"paths": [], "commits": []}
            for key, some in more.items():
                owner[key] = [*dict.fromkeys([*owner.get(key, ()), *some])]
            disk.replace(file, _encoded(owner))


def portable_ids(home: Path) -> dict[str, list[str]]:
    """Return, for each id used here, the ids that another machine knows the project by.

    An id made from a path becomes the project's own id, with that of its first commit if any.
    """
    found: dict[str, list[str]] = {}
    owners = {file.stem: read_owner(file) for file in (home / "projects").glob("*.json")}
    for git_id, owner in owners.items():
        found |= {one: [one, git_id] for one in owner["ids"]}
    for name, owner in owners.items():
        found |= {_path_id(path): found.get(name, [name]) for path in owner["paths"]}
    return found


def owner_file(home: Path, identity: str) -> Path:
    """Return the file with the notes about an id."""
    return home / "projects" / f"{identity}.json"


def read_owner(file: Path) -> dict[str, list[str]]:
    """Return the notes about an id: its folders, commits and other ids."""
    try:
        owner = {"ids": [], **json.loads(disk.read(file))}
        return {key: [str(one) for one in owner[key]] for key in ("paths", "commits", "ids")}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        todo = "Delete it: the next folder that uses this project's id here gets it."
        raise BadInput(f"it cannot be read ({error})", where=str(file), todo=todo) from None


def _path_id(path: str) -> str:
    try:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, Path(path).as_uri()))
    except UnicodeEncodeError:  # a name in another encoding
        return ""


def _commits(root: str | Path) -> list[str]:
    """Return the commits that tell this history from others: the first ones and the current one."""
    first = _git(root, "rev-list", "--max-parents=0", "HEAD")
    return [*dict.fromkeys([*first.split()[:10], *_git(root, "rev-parse", "HEAD").split()])]


def _git(root: str | Path, *words: str) -> str:
    """Return git's output, or "" without a repository, without git, or if it takes too long."""
    code, text = ask_git(root, *words) if disk.find_repository(os.fspath(root)) else (-1, "")
    return text if code == 0 else ""


def _encoded(owner: dict[str, list[str]]) -> bytes:
    return json.dumps({"version": 1, **owner}, indent=1).encode() + b"\n"


# -- The git repository around a folder, and the first commit of its history.
#
# The repository is found without git, because hooks look for it before every prompt. Git is asked
# for the commit once. The commit gives access to a project's memory, and a `.git` may come with an
# archive. So a `.git` counts only if no link leads out of it, and a worktree's `.git` file only if
# the repository knows that worktree.

_GIT = ".git"
# In a shallow clone the first commit is missing; with the others, the history is elsewhere.
_INCOMPLETE = ("shallow", "commondir", os.path.join("objects", "info", "alternates"))
_LARGEST_BYTES = 4096
# How long git may take to walk a history, and when it is asked again if that was not enough.
_TIMEOUT_S = 1.0
_ASK_AGAIN_S = 86_400.0


def history_folder(top: str) -> str:
    """Return the git folder with the history, shared by all worktrees; "" if it is unreliable."""

    def text(*parts: str) -> str:
        data = disk.read(os.path.join(*parts), largest=_LARGEST_BYTES)
        return data.decode("utf-8", "surrogateescape").strip()

    git = folder = os.path.join(top, _GIT)
    try:
        if os.path.isfile(git):
            own = os.path.join(top, text(git).removeprefix("gitdir:").strip())
            known = os.path.join(own, text(own, "gitdir"))
            if os.path.realpath(known) != os.path.join(os.path.realpath(top), _GIT):
                return ""
            folder = os.path.realpath(os.path.join(own, text(own, "commondir")))
        elsewhere = any(os.path.lexists(os.path.join(folder, one)) for one in _INCOMPLETE)
        if not top or os.path.islink(folder) or elsewhere:
            return ""
        with os.scandir(folder) as files, os.scandir(os.path.join(folder, "objects")) as objects:
            return "" if any(one.is_symlink() for one in (*files, *objects)) else folder
    except OSError:
        return ""


def first_commit(top: str, home: Path) -> str:
    """Return the first commit of the history; "" if it is unknown."""
    folder = history_folder(top)
    if not folder:
        return ""
    file = home / "cache" / "git" / str(uuid.uuid5(uuid.NAMESPACE_URL, folder))
    with contextlib.suppress(OSError):
        commit = disk.read(file).decode("ascii", "replace").strip()
        if commit or time.time() - os.stat(file).st_mtime < _ASK_AGAIN_S:
            return commit
    code, text = ask_git(top, "rev-list", "--first-parent", "--max-parents=0", "HEAD")
    commit = text if code == 0 else ""
    if (commit or code < 0) and os.path.isdir(home):  # not if there is no commit yet
        with contextlib.suppress(OSError):
            disk.make_folder(file.parent)
            disk.replace(file, commit.encode() + b"\n")
    return commit


def ask_git(
    root: str | os.PathLike[str], *words: str, timeout_s: float = _TIMEOUT_S, strip: bool = True
) -> tuple[int, str]:
    """Return git's exit code and output; -1 if it does not answer."""
    from ralph.programs import ask_program, find_program

    program = find_program("git", root=Path(root))
    if program is None:
        return -1, "git is not installed"
    # The repository's configuration must not run or fetch anything, or change its history.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    environ["GIT_NO_REPLACE_OBJECTS"] = "1"
    command = [program, "-C", os.fspath(root), "-c", "core.fsmonitor=false", *words]
    return ask_program(command, timeout_s=timeout_s, strip=strip, env=environ)


# -- Focus: which feature a person's own interactive work belongs to, on this machine.


class Focus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feature, and perhaps one of its tasks."""

    feature: str
    task_id: int | str | None = None


def set_focus(project: Project, focus: Focus) -> None:
    """Set what work outside a loop belongs to from now on."""
    check_name(focus.feature)
    disk.make_folder(project.cache)
    disk.replace(project.cache / "focus.json", msgspec.json.encode(focus) + b"\n")


def read_focus(project: Project) -> Focus | None:
    """Return what work outside a loop belongs to, or None if nobody set it."""
    file = project.cache / "focus.json"
    try:
        focus = msgspec.json.decode(disk.read(file), type=Focus)
        check_name(focus.feature)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, BadInput) as error:
        what = f"the focus cannot be read ({error})"
        todo = "Run: ralph focus --clear"
        raise BadInput(what, where=str(file), todo=todo) from None
    return focus


def clear_focus(project: Project) -> None:
    """Clear the focus: work outside a loop belongs to no feature then."""
    disk.remove(project.cache / "focus.json")


# -- What a project's folder asks for and a person must allow first.


_SHOWN = ("command", "args", "url", "type")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|cred|cookie", re.IGNORECASE)
# Variables with which loaders, shells, interpreters, git and package managers find and run code.
_RUNS = re.compile(
    r"PATH|HOME|IFS|ENV|SHELL|BASH_\w+|LD_\w+|DYLD_\w+|GCONV_PATH|GLIBC_TUNABLES|PYTHON\w*"
    r"|NODE_(?:OPTIONS|PATH|EXTRA_CA_CERTS)|ELECTRON_RUN_AS_NODE|PERL5(?:OPT|LIB|DB)|RUBY(?:OPT|LIB)"
    r"|GEM_\w+|BUNDLE_\w+|LUA_(?:INIT|PATH|CPATH)\w*|PHPRC|PHP_INI_SCAN_DIR|CLASSPATH|JAVA_HOME"
    r"|(?:_JAVA|JAVA_TOOL|JDK_JAVA)_OPTIONS|(?:MAVEN|GRADLE)_OPTS|DOTNET_\w+|CORECLR_\w+|COR_\w+"
    r"|GIT_\w+|SSH_ASKPASS|EDITOR|VISUAL|PAGER|LESSOPEN|BROWSER|PROMPT_COMMAND|XDG_CONFIG_\w+"
    r"|(?:NPM_CONFIG|YARN|PIP|UV|BUN|DENO|CARGO)_\w+|RUSTC\w*|RUSTFLAGS|GOFLAGS"
    r"|OPENSSL_(?:CONF|MODULES|ENGINES)|QT_PLUGIN_PATH|GTK_MODULES",
    re.IGNORECASE,
)


def wishes_of(project: Project, *, home: Path) -> list[TrustRequest]:
    """Return everything that this project asks for, allowed or not."""
    settings = setting_requests(home=home, project_file=project.settings_file)
    return [*project.wishes(), *settings, *_servers(project)]


def untrusted(project: Project, *, home: Path) -> list[TrustRequest]:
    """Return what it asks for and does not get until the person runs `ralph trust`."""
    asked = wishes_of(project, home=home)
    known = trust.trusted_hashes(home, project.root) if asked else frozenset()
    return [one for one in asked if one.digest not in known]


def server_wishes(discipline: Discipline) -> dict[str, TrustRequest]:
    """Return the request for each MCP server of a discipline, by the server's name."""
    servers = discipline.mcp_servers
    return {name: _server(discipline.name, name, one) for name, one in servers.items()}


def trust_servers(project: Project, discipline: Discipline, *, home: Path) -> None:
    """Trust the MCP servers of a discipline: a person set them."""
    if discipline.mcp_servers:
        trust.trust(home, project.root, server_wishes(discipline).values(), more=True)


def _servers(project: Project) -> list[TrustRequest]:
    from ralph.plan.store import Plan  # only here: it loads YAML

    try:
        disciplines = Plan(project.root, state=project.cache).read("disciplines").disciplines
    except BadPlan:
        return []  # `ralph plan check` reports it; none of it is used
    return [wish for one in disciplines for wish in server_wishes(one).values()]


def _given(key: str, values: dict[Any, Any]) -> list[str]:
    """Return what is set, with secrets redacted: what a variable says may start a program."""
    from ralph.text.redact import redact

    sign = "=" if key == "env" else ": "
    shown: list[str] = []
    for name, value in values.items():
        text = redact(f"{name}{sign}{shlex.quote(str(value))}")
        secret = _SECRET_NAME.search(str(name)) and not _runs(str(name))
        shown.append(f"{name}{sign}[redacted]" if secret and "[redacted" not in text else text)
    return shown


def _runs(name: str) -> bool:
    """Whether a program that is given this variable may run code that it names."""
    return _RUNS.fullmatch(name) is not None


def _server(discipline: str, name: str, entry: Any) -> TrustRequest:
    from ralph.text.redact import redact  # hooks load this module, but not that one

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
            does.append(f"{key} {', '.join(_given(key, value))}")
        elif key not in _SHOWN:
            does.append(f"{key} {redact(str(value))}")
    if taken := dict.fromkeys(_VARIABLE.findall(str(entry))):
        does.append(f"takes {', '.join(taken)} from your environment")
    env = found.get("env")
    if risky := [name for name in map(str, env if isinstance(env, dict) else ()) if _runs(name)]:
        does.append(f"WARNING: {', '.join(risky)} can make it run other code")
    text = f"MCP server {name} of {discipline}: {', '.join(does) or 'says nothing'}"
    return TrustRequest("mcp_server", f"{discipline}/{name}", entry, text)
