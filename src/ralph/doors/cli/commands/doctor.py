"""`ralph doctor`: check everything memory needs; each check is one function."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import click

from ralph import disk
from ralph.doors.cli.context import start_folder, the_project, warnings_told
from ralph.doors.cli.main import Command, project_given
from ralph.doors.cli.render import Page, Result, first_of
from ralph.errors import BadSetting, EmbedderOff, JournalDown, RalphError
from ralph.programs import find_program
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.index import Embedder
    from ralph.journal.session import DatabaseSession
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph

State = Literal["ok", "warning", "problem"]
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_OLDEST_PYTHON = (3, 11)
_DRAFT = re.compile(r"\..+\.\d+-\d+\.tmp")
_DRAFT_AGE_S = 60.0  # a younger draft may be in use
_GIT_TIMEOUT_S = 10.0
_ANY_JOURNAL = "any.jsonl"
_OLDEST_POSTGRES = 13
_ROUNDS = 5
_ABOUT = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000,
    (SELECT max(number) FROM ralph_migrations), pg_is_in_recovery(),
    current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
    has_table_privilege('ralph_entries', 'SELECT')
        AND has_table_privilege('ralph_entries', 'INSERT')
        AND has_table_privilege('ralph_entries', 'DELETE')
        AND has_table_privilege('ralph_streams', 'SELECT')
        AND has_table_privilege('ralph_streams', 'INSERT')
        AND has_table_privilege('ralph_streams', 'UPDATE')
"""


# As `doors/hooks/sessions.py` writes them.
_OVER, _KEPT = b'{"note":"over"', b'{"note":"kept"'


class Check(NamedTuple):
    """One thing that memory needs: whether it is there, and what to do if not."""

    name: str
    state: State
    detail: str
    todo: str | None = None


@click.command(cls=Command)
def doctor() -> Result:
    """Check everything memory needs and say how to fix it.

    The exit code is 1 if there is a problem; warnings alone are fine.
    """
    with warnings_told():
        checks = _checks()
    problems = [check.name for check in checks if check.state == "problem"]

    def show(page: Page) -> None:
        for check in checks:
            state = (f"{check.state:<8}", _STYLES[check.state])
            page.line(state, f" {check.name:<10} ", check.detail)
            if check.todo and check.state != "ok":
                page.line(check.todo, indent=20)

    return Result(
        {"ok": not problems, "checks": [check._asdict() for check in checks]},
        show,
        code=1 if problems else 0,
        notes=[f"problems found: {', '.join(problems)}"] if problems else [],
    )


def _checks() -> list[Check]:
    from ralph.config import home_folder
    from ralph.memory.project import find_project

    home = home_folder()
    project = the_project() if project_given() else find_project(start_folder(), home=home)
    settings = _settings(home, project)
    looks: dict[str, Callable[[], Check]] = {
        "python": _python,
        "sqlite": _sqlite,
        "home": lambda: _home(home),
        "settings": lambda: _settings_files(home, project),
        "pause": lambda: _pause(home, project),
        "embedder": lambda: _embedder(settings),
        "hooks": lambda: _hooks(project.root if project else None),
        "capture": lambda: _capture(home),
    }
    if settings.journal_url:
        looks["postgres"] = lambda: _postgres(settings, home)
    elif waiting := _waiting(home):
        looks["postgres"] = lambda: waiting
    if settings.qdrant_url:
        looks["qdrant"] = lambda: _qdrant(settings, home)
    if project is None:
        detail = f"no .ralph folder in {start_folder()} or above"
        missing = Check("project", "warning", detail, "Run: ralph init")
        return [*_run_checks(looks), missing]
    looks["project"] = lambda: _project_files(project)
    looks["trust"] = lambda: _trust(home, project)
    if not settings.journal_url:  # else no journal travels with git
        looks["git"] = lambda: _git(project)
    looks["leftovers"] = lambda: _leftovers(project)
    return _run_checks(looks) + _memory_checks(project, home)


def _memory_checks(project: Project, home: Path) -> list[Check]:
    from ralph.memory.ralph import open_ralph

    with contextlib.suppress(BadSetting), open_ralph(project.root, home=home) as ralph:
        looks: dict[str, Callable[[], Check]] = {
            "journal": lambda: _journal(ralph),
            "cache": lambda: Check("cache", "ok", str(ralph.place.index.path.parent)),
            "index": lambda: _index(ralph),
        }
        if ralph.config.settings.qdrant_url:
            looks["parameters"] = lambda: _collections(ralph)
        return _run_checks(looks)
    return []


def _run_checks(looks: dict[str, Callable[[], Check]]) -> list[Check]:
    return [_checked(name, look) for name, look in looks.items()]


def _checked(name: str, look: Callable[[], Check]) -> Check:
    """The result of a check; one that fails itself is a problem, and the others go on."""
    try:
        return look()
    except RalphError as error:
        where = f"{error.where}: " if error.where else ""
        return Check(name, "problem", where + error.what, error.todo)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Check(name, "problem", f"{where}{error.strerror or error}")


def _settings(home: Path, project: Project | None) -> Settings:
    from ralph.config import Settings, load

    try:
        file = project.settings_file if project else None
        return load(home=home, project_file=file).settings
    except BadSetting:
        return Settings()  # the check `settings` reports it


# -- this machine


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _OLDEST_PYTHON:
        return Check("python", "ok", found)
    return Check("python", "problem", found, "Install Python 3.11 or newer.")


def _sqlite() -> Check:
    """SQLite can search by words."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    except sqlite3.OperationalError as error:
        todo = "Install a Python whose SQLite has FTS5."
        return Check("sqlite", "problem", f"{sqlite3.sqlite_version} lacks FTS5 ({error})", todo)
    finally:
        connection.close()
    return Check("sqlite", "ok", f"{sqlite3.sqlite_version} with FTS5")


def _home(folder: Path) -> Check:
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if os.access(nearest, os.W_OK) and nearest.is_dir():
        return Check("home", "ok", str(folder))
    todo = "Make it writable, or set RALPH_HOME to a directory of yours."
    return Check("home", "warning", f"{folder} is not writable", todo)


def _settings_files(folder: Path, project: Project | None) -> Check:
    """The files and the environment have only settings that exist and are valid."""
    from ralph.config import load, unknown_variables

    found = load(home=folder, project_file=project.settings_file if project else None)
    if unknown := unknown_variables():
        todo = "`ralph config` lists all settings."
        return Check("settings", "warning", f"unknown settings: {', '.join(unknown)}", todo)
    changed = sum(each.origin != "default" for each in found.origins)
    return Check("settings", "ok", f"{changed} differ from the defaults" if changed else "defaults")


def _pause(folder: Path, project: Project | None) -> Check:
    from ralph.memory.pausing import in_force

    paused = in_force(folder, project.id if project else "")
    if paused is None:
        return Check("pause", "ok", "none")
    todo = "Run: ralph resume" + ("" if paused.project else " --everywhere")
    return Check("pause", "warning", str(paused), todo)


def _embedder(settings: Settings) -> Check:
    """The embedder works, and its files are what they should be."""
    from ralph.index.sync import choose_embedder

    chosen = choose_embedder(settings, None)  # without stamps: its files are hashed now
    if chosen is None:
        todo = "Run: ralph config embedder static"
        return Check("embedder", "warning", "none: searching by words alone", todo)
    chosen.check()
    return Check("embedder", "ok", f"{chosen.identity}, {chosen.dims} dimensions")


# -- the project


def _project_files(project: Project) -> Check:
    """The files that `init` creates are there, and the id that clones share."""
    missing = [file.relative_to(project.root).as_posix() for file in project.missing()]
    if not project.has_id and not missing:
        missing = ["project_id in metadata.yaml"]
    if missing:
        return Check("project", "problem", f"missing: {', '.join(missing)}", "Run: ralph init")
    if rivals := project.rivals:
        detail = f"{', '.join(rivals)} has the same id; the two memories are kept apart"
        todo = "If it is the same project, moved or copied, run: ralph trust"
        return Check("project", "warning", detail, todo)
    return Check("project", "ok", f"{project.root} ({project.id})")


def _trust(folder: Path, project: Project) -> Check:
    """The project asks for nothing that the person has not seen."""
    from ralph.memory.project import untrusted, wishes_of

    asked = wishes_of(project, home=folder)
    if not asked:
        return Check("trust", "ok", "this project asks for nothing special")
    if waiting := untrusted(project, home=folder):
        detail = f"ignored: {'; '.join(wish.text for wish in waiting)}"
        return Check("trust", "warning", detail, "See it whole and allow it: ralph trust")
    return Check("trust", "ok", f"you allowed what it asks for ({len(asked)})")


def _git(project: Project) -> Check:
    """Git merges journals line by line, and does not ignore them."""
    program = find_program("git", root=project.root)
    if program is None:
        todo = "Install git, if the project is in a git repository."
        return Check("git", "warning", "git is not installed", todo)
    path = project.journals / _ANY_JOURNAL
    code, answer = _ask_git(program, project, "rev-parse", "--is-inside-work-tree")
    if code != 0 and "not a git repository" in answer:
        return Check("git", "ok", "the project is not in a git repository")
    if code != 0:
        return Check("git", "warning", answer.splitlines()[0] if answer else "git does not answer")
    _, merge = _ask_git(program, project, "check-attr", "merge", "--", str(path))
    if not merge.endswith("merge: union"):
        detail = "the journals of two branches would conflict: merge=union is not in effect"
        file = project.journals.relative_to(project.root).as_posix() + "/.gitattributes"
        return Check("git", "problem", detail, f"Add to {file}: *.jsonl merge=union")
    ignored, _ = _ask_git(program, project, "check-ignore", "--quiet", "--", str(path))
    if ignored == 0:
        todo = "Remove .ralph/db from .gitignore."
        return Check("git", "warning", "git ignores the journal, so clones do not get it", todo)
    return Check("git", "ok", "journals merge by union")


def _ask_git(program: str, project: Project, *words: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            # A program that a copied .git/config names is not started.
            [program, "-C", str(project.root), "-c", "core.fsmonitor=false", *words],
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    output = done.stdout if done.returncode == 0 else done.stderr
    return done.returncode, output.decode(errors="replace").strip()


def _leftovers(project: Project) -> Check:
    """No half-written file of a crash and no damaged index is left."""
    newest = time.time() - _DRAFT_AGE_S
    folders = (project.folder, project.db, project.journals)
    drafts = [
        folder / name
        for folder in folders
        for name in disk.names(folder)
        if _DRAFT.fullmatch(name) and disk.stat(folder / name).st_mtime < newest
    ]
    if drafts:
        names = ", ".join(file.relative_to(project.root).as_posix() for file in drafts)
        return Check("leftovers", "warning", f"of a crash: {names}", "You can delete them.")
    damaged = [file.name for file in project.cache.glob("index-v*.damaged-*")]
    if damaged:
        names = ", ".join(sorted(damaged))
        return Check("leftovers", "warning", f"set aside: {names}", "Run: ralph index prune")
    if "cache" in disk.names(project.folder):
        detail = ".ralph/cache, which Ralph no longer uses"
        return Check("leftovers", "warning", detail, "You can delete it.")
    return Check("leftovers", "ok", "none")


# -- the clients


def _hooks(root: Path | None) -> Check:
    """Claude Code and Codex use the memory, or need not."""
    from ralph.clients.setup import look

    found = look(root)
    if found.warnings:
        what, _, todo = found.warnings[0].partition(". ")
        detail = first_of([what, *found.warnings[1:]])
        return Check("hooks", "warning", detail, todo or "See: ralph hooks status")
    clients = [
        f"{place.agent} ({place.where})"
        for place in found.places
        if any(part.calls for part in place.parts)
    ]
    detail = ", ".join(clients) or "not installed; see: ralph hooks --help"
    return Check("hooks", "ok", detail)


def _capture(home: Path) -> Check:
    """Every session that is over was captured."""
    waiting = sum(_is_waiting(note) for note in home.glob("cache/hooks/*/sessions/*.jsonl"))
    if not waiting:
        return Check("capture", "ok", "no session is waiting")
    return Check(
        "capture",
        "warning",
        f"{plural(waiting, 'session')} not captured yet: a hook was killed, or had no time",
        "The next hook in their project does it. Now: ralph conversations import claude-code",
    )


def _is_waiting(note: Path) -> bool:
    """Whether a hook noted that an exchange is over, and none that it was saved."""
    lines = [line for line in note.read_bytes().splitlines() if _OVER in line or _KEPT in line]
    return bool(lines) and _OVER in lines[-1]


# -- journal and index


def _journal(ralph: Ralph) -> Check:
    """Every line of every journal can be read."""
    judged = [memory.verify() for memory in ralph.features()]
    complaints = [complaint for _, some in judged for complaint in some]
    if complaints:
        return Check("journal", "problem", first_of(complaints), "Run: ralph journal verify")
    records = plural(sum(number for number, _ in judged), "record")
    return Check("journal", "ok", f"{records} in {plural(len(judged), 'journal')}")


def _index(ralph: Ralph) -> Check:
    """The index agrees with the journal."""
    from ralph.memory.status import verify_index

    found = verify_index(ralph)
    if found.ok:
        return Check("index", "ok", f"{plural(found.records, 'record')}, current")
    fault = found.faults[0]
    state: State = "warning" if all(fault.mends for fault in found.faults) else "problem"
    where = f"{fault.feature}: " if fault.feature else ""
    detail = where + first_of([each.what for each in found.faults])
    return Check("index", state, detail, fault.todo)


# -- servers


def _postgres(settings: Settings, home: Path) -> Check:
    """The server of the journals is reached and suitable, and nothing waits for it."""
    from ralph.memory.store import CONVERSATIONS, home_journals, on_server
    from ralph.memory.transfer import waiting_records

    waiting = sum(waiting_records(home).values())
    wait = f"; {plural(waiting, 'record')} waiting here for it" if waiting else ""
    journals = on_server(home_journals(CONVERSATIONS, settings, home))
    assert journals is not None
    link = journals.link
    link.retry()  # a person asks: what was found out before does not count
    try:
        about, openly = link.run(_asked)
        took_ms = _median_ms(lambda: link.run(_ping))
        return _judged(about, f"{link.shown}: ", took_ms, wait, openly=openly)
    except JournalDown as error:
        return Check("postgres", "problem", f"{error.where}: {error.what}{wait}", error.todo)
    finally:
        journals.close()


def _asked(talk: DatabaseSession) -> tuple[Sequence[object], bool]:
    """What the server says of itself, and whether the connection to it can be read by others.

    That is judged from this end: a container or a pooler has other addresses of its own.
    """
    connection = talk.connection
    openly = not connection.pgconn.ssl_in_use and not _is_local(connection.info.hostaddr)
    return talk.rows(_ABOUT)[0], openly


def _ping(talk: DatabaseSession) -> None:
    talk.rows("SELECT 1")


def _is_local(host: str) -> bool:
    """Whether an address stays on this machine; "" is a socket in its file system."""
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _judged(
    about: Sequence[object], where: str, took_ms: float, wait: str, *, openly: bool
) -> Check:
    version, major, schema, standby, fsync, pages, permitted = about
    detail = (
        f"{where}PostgreSQL {str(version).partition(' ')[0]}, schema {schema}, "
        f"answers in {took_ms:.1f} ms{wait}"
    )

    def check(state: State, what: str, todo: str | None) -> Check:
        return Check("postgres", state, detail + (f"; {what}" if what else ""), todo)

    if standby:
        return check("problem", "it is a read-only standby", "Set journal_url to the primary.")
    if not permitted:
        todo = "Let the role own the tables, or GRANT it what docs/guide-scale.md lists."
        return check("problem", "the role may not write", todo)
    if isinstance(major, int) and major < _OLDEST_POSTGRES:
        return check("problem", "it is too old", f"Update it to {_OLDEST_POSTGRES} or newer.")
    if not fsync or not pages:
        off = "fsync" if not fsync else "full_page_writes"
        what = f"{off} is off: a power cut loses records"
        return check("warning", what, f"Set {off} = on in postgresql.conf.")
    if openly:
        todo = "Add ?sslmode=require to journal_url (verify-full if there is a certificate)."
        return check("warning", "the connection is not encrypted", todo)
    if wait:
        return check("warning", "", "Run: ralph journal deliver")
    return check("ok", "", None)


def _waiting(home: Path) -> Check | None:
    """Records that wait for a server that is no longer set."""
    from ralph.memory.transfer import waiting_records

    waiting = waiting_records(home)
    if not waiting:
        return None
    records = plural(sum(waiting.values()), "record")
    detail = f"{records} waiting here for a server, but journal_url is not set"
    todo = "Set it, or move them into the files: ralph journal deliver"
    return Check("postgres", "problem", detail, todo)


def _qdrant(settings: Settings, home: Path) -> Check:
    """The server of the indexes is reached, and new enough."""
    from ralph.index.qdrant import QdrantStore
    from ralph.index.sync import open_index

    folders = [home / "cache" / "doctor"]
    store = open_index(settings, folders, home=home, scope=lambda: "doctor").store
    assert isinstance(store, QdrantStore)
    server = store.server
    server.check()
    took_ms = _median_ms(server.check) / 2  # each check asks twice
    detail = f"{server.where}: Qdrant {server.version}, answers in {took_ms:.1f} ms"
    if _exposed(settings, server.where):
        todo = "Put TLS in front of the server, and set qdrant_url to https://"
        return Check("qdrant", "warning", f"{detail}; the key is sent unencrypted", todo)
    return Check("qdrant", "ok", detail)


def _exposed(settings: Settings, where: str) -> bool:
    parts = urlsplit(where)
    local = _is_local(parts.hostname or "")
    return bool(settings.qdrant_api_key) and parts.scheme == "http" and not local


def _collections(ralph: Ralph) -> Check:
    """Every collection of this project has the right parameters and dimensions."""
    faults: list[str] = []
    behind: list[str] = []
    number = 0
    for shelf in (ralph.place, ralph.conversations.shelf, ralph.knowledge.shelf):
        check = functools.partial(shelf.index.store.check, deep=True)
        faults += shelf.index.with_repair(check)
        for each in shelf.index.collections():
            number += 1
            dims = _dims(ralph.place.embedder)
            if each.live and dims is not None and each.manifest.dims != dims:
                what = f"{each.physical or each.name} has {each.manifest.dims} dimensions"
                behind.append(f"{what}, the embedder {dims}")
    if faults:
        return Check("parameters", "problem", first_of(faults), "Run: ralph index rebuild")
    if behind:
        todo = "The next search of it rebuilds it; `ralph index rebuild` does it now."
        return Check("parameters", "warning", first_of(behind), todo)
    return Check("parameters", "ok", f"{plural(number, 'collection')} as expected")


def _dims(embedder: Embedder | None) -> int | None:
    try:
        return 0 if embedder is None else embedder.dims
    except EmbedderOff:
        return None  # the check `embedder` reports it


def _median_ms(ask: Callable[[], None]) -> float:
    took: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        ask()
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1000
