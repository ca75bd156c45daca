"""`ralph doctor`: check everything memory needs; each check is one function."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import statistics
import sys
import time
import timeit
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import click

from ralph import disk
from ralph.clients.drift import drift_told
from ralph.clients.setup import SetupPlace, look
from ralph.config import Settings, home_folder, load, unknown_variables
from ralph.doors.cli.context import (
    found_project,
    memory_folder,
    on_server,
    server_address,
    start_folder,
    warnings_noted,
)
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Page, Result, first_of
from ralph.errors import BadInput, BadSetting, EmbedderOff, JournalDown, RalphError, os_error_text
from ralph.index.sqlite import SCHEMA
from ralph.index.sync import choose_embedder, open_index
from ralph.memory import store as stores
from ralph.memory.activity import activity_everywhere
from ralph.memory.outbox import outbox_files
from ralph.memory.pausing import in_force, paused_folders
from ralph.memory.project import Project, ask_git, untrusted, wishes_of
from ralph.memory.ralph import Ralph, open_ralph
from ralph.memory.servers import server_folders
from ralph.memory.status import verify_index
from ralph.memory.transfer import waiting_records
from ralph.programs import find_program
from ralph.text.sanitize import plain_date
from ralph.text.tokens import plural
from ralph.wire import is_loopback

if TYPE_CHECKING:
    from ralph.journal.session import DatabaseSession

State = Literal["ok", "warning", "problem"]
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_VERSION = re.compile(r"[0-9]+")
_DRAFT = re.compile(r"\..+\.\d+-\d+\.tmp")
_OLDEST_POSTGRES = 13
_LATELY_S = 7 * 24 * 3600.0
_SERVER_TIMEOUT_S = 10.0
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
# The start of two kinds of lines, as `doors/hooks/sessions.py` writes them.
_OVER = b'{"note":"over"'
_KEPT = b'{"note":"kept"'


class Finding(NamedTuple):
    """The result of one check, and what to do if it is not ok."""

    state: State
    detail: str
    todo: str | None = None


_ok = functools.partial(Finding, "ok")
_warning = functools.partial(Finding, "warning")
_problem = functools.partial(Finding, "problem")


class DoctorScope(NamedTuple):
    """What to check: Ralph's home, the project around this folder, and its settings."""

    home: Path
    project: Project | None
    settings: Settings
    # Without a project: the folder whose memory is on a server.
    bound: Path | None = None


@click.command(cls=Command)
def doctor() -> Result:
    """Check everything memory needs and say how to fix it.

    The exit code is 1 if there is a problem; warnings alone are fine.
    """
    home = home_folder()
    project = found_project()
    settings = Settings()  # if they cannot be read, the check `settings` reports it
    with contextlib.suppress(BadSetting):
        settings = load(home=home, project_file=project.settings_file if project else None).settings
    with warnings_noted():
        checks = _findings(_CHECKS, DoctorScope(home, project, settings, _bound_folder(home)))
        if project is not None:
            # Problems with the settings or the project are reported above.
            with contextlib.suppress(BadInput), open_ralph(project.root, home=home) as ralph:
                checks |= _findings(_memory_checks(checks), ralph)
    problems = [name for name, check in checks.items() if check.state == "problem"]

    def show(page: Page) -> None:
        for name, check in checks.items():
            page.line((f"{check.state:<8}", _STYLES[check.state]), f" {name:<10} ", check.detail)
            if check.todo and check.state != "ok":
                page.line(check.todo, indent=20)

    plain = [{"name": name, **check._asdict()} for name, check in checks.items()]
    notes = [f"problems found: {', '.join(problems)}"] if problems else []
    return Result({"ok": not problems, "checks": plain}, show, code=1 if notes else 0, notes=notes)


def _findings(checks: Sequence[Callable[[Any], Finding | None]], about: Any) -> dict[str, Finding]:
    """Run the checks that apply; return findings by name. A check that raises is a problem."""
    found: dict[str, Finding] = {}
    for check in checks:
        try:
            finding = check(about)
        except RalphError as error:
            where = f"{error.where}: " if error.where else ""
            finding = _problem(where + error.what, error.todo)
        except OSError as error:
            finding = _problem(os_error_text(error))
        if finding is not None:
            found[check.__name__.lstrip("_")] = finding
    return found


# -- this machine


def _python(_: DoctorScope) -> Finding:
    return _ok(".".join(map(str, sys.version_info[:3])))  # Ralph does not install on older ones


def _sqlite(_: DoctorScope) -> Finding:
    """Check that SQLite can search by words."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        except sqlite3.OperationalError as error:
            detail = f"{sqlite3.sqlite_version} lacks FTS5 ({error})"
            return _problem(detail, "Install a Python whose SQLite has FTS5.")
    return _ok(f"{sqlite3.sqlite_version} with FTS5")


def _home(scope: DoctorScope) -> Finding:
    folder = scope.home
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if os.access(nearest, os.W_OK) and nearest.is_dir():
        return _ok(str(folder))
    todo = "Make it writable, or set RALPH_HOME to a directory of yours."
    return _warning(f"{folder} is not writable", todo)


def _settings(scope: DoctorScope) -> Finding:
    """Check that the settings in files and environment exist and are valid."""
    file = scope.project.settings_file if scope.project else None
    origins = load(home=scope.home, project_file=file).origins
    if unknown := unknown_variables():
        todo = "`ralph config` lists all settings."
        return _warning(f"unknown settings: {', '.join(unknown)}", todo)
    changed = [each.key for each in origins if each.origin != "default"]
    return _ok(f"set by you: {', '.join(changed)}" if changed else "defaults")


def _pause(scope: DoctorScope) -> Finding:
    if (paused := in_force(scope.home, scope.project or "", folder=str(start_folder()))) is None:
        return _ok("none")
    return _warning(str(paused), "Run: ralph resume" + ("" if paused.project else " --everywhere"))


def _embedder(scope: DoctorScope) -> Finding:
    """Check that the embedder works, and that its files are correct."""
    chosen = choose_embedder(scope.settings, None)  # without stamps, so it hashes its files now
    if chosen is None:
        return _warning("none: searching by words alone", "Run: ralph config embedder static")
    chosen.check()
    return _ok(f"{chosen.identity}, {chosen.dims} dimensions")


def _hooks(scope: DoctorScope) -> Finding:
    """Check that Ralph is set up correctly in the clients that use it."""
    found = look(scope.project.root if scope.project else scope.bound)
    if found.warnings:
        what, _, todo = found.warnings[0].partition(". ")
        return _warning(first_of([what, *found.warnings[1:]]), todo or "See: ralph hooks status")
    places = [place for place in found.places if any(part.calls for part in place.parts)]
    if not places and scope.project is None:
        return _warning("not installed: no session is saved", "Run: ralph hooks install --user")
    return _ok(", ".join(map(_place_text, places)) or "not installed; `ralph run` needs none")


def _place_text(place: SetupPlace) -> str:
    """Name a client and where Ralph is set up in it, and say if its MCP server is missing."""
    lacks = place.hooks is not None and place.hooks.calls and not place.mcp.calls
    return f"{place.agent} ({place.where}{', without the MCP server' if lacks else ''})"


def _clients(scope: DoctorScope) -> Finding:
    """Check that this version of Ralph knows what the clients write."""
    told = drift_told(scope.home)
    if told:
        return _warning(first_of(told), "Update Ralph: it may keep less of these sessions.")
    return _ok("nothing unknown in their sessions")


def _capture(scope: DoctorScope) -> Finding:
    """Check that every finished session was captured."""
    waiting = 0
    for file in scope.home.glob("cache/hooks/*/sessions/*.jsonl"):
        with contextlib.suppress(FileNotFoundError):  # a hook may delete it meanwhile
            text = file.read_bytes()
            # A hook noted the end of an exchange, and no hook noted that it was saved.
            waiting += text.rfind(_OVER) > text.rfind(_KEPT)
    if not waiting:
        return _ok("no session is waiting")
    what = f"{plural(waiting, 'session')} not captured yet: a hook was killed, or had no time"
    todo = "The next hook in their project does it. Now: ralph conversations import claude-code"
    return _warning(what, todo)


def _timeouts(scope: DoctorScope) -> Finding:
    """Check that no hook ran out of time."""
    # Ignore hooks that had less time than hooks have now.
    limit_s = scope.settings.hook_timeout_s or 0.0
    lately = activity_everywhere(str(scope.home), within_s=_LATELY_S)
    late = sorted(one for one in lately if one.late_s and one.late_s >= limit_s)
    if not late:
        return _ok("no hook ran out of time in the last 7 days")
    events = ", ".join(f"{n} {event}" for event, n in Counter(one.event for one in late).items())
    last = plain_date(late[-1].at, 16)
    what = f"{plural(len(late), 'hook')} ran out of time in the last 7 days ({events}; last {last})"
    more = "To give hooks more time: ralph config --user hook_timeout_s 10"
    return _warning(what, f"Those sessions got no memory. {more}")


# -- servers


def _postgres(scope: DoctorScope) -> Finding | None:
    """Check that the journals' server is reachable and suitable, and that nothing waits for it."""
    waiting = sum(waiting_records(scope.home).values())
    records = plural(waiting, "record")
    if not scope.settings.journal_url:
        detail = f"{records} waiting here for a server, but journal_url is not set"
        todo = "Set it, or move them into the files: ralph journal deliver"
        return _problem(detail, todo) if waiting else None
    wait = f"; {records} waiting here for it" if waiting else ""
    journals = stores.on_server(
        stores.open_journals(stores.CONVERSATIONS, scope.settings, scope.home)
    )
    assert journals is not None
    link = journals.link
    link.retry()  # ignore earlier failures: the user wants to know how it is now
    with contextlib.closing(journals):
        try:
            about, openly = link.run(_asked)
            took_ms = _median_ms(lambda: link.run(lambda talk: talk.rows("SELECT 1")))
        except JournalDown as error:
            return _problem(f"{error.where}: {error.what}{wait}", error.todo)
    return _judged(about, f"{link.shown}: ", took_ms, wait, openly=openly)


def _asked(talk: DatabaseSession) -> tuple[Sequence[object], bool]:
    """Ask the server about itself; also return whether others could read the connection.

    We judge that from this end, because a container or a pooler has its own addresses.
    """
    connection = talk.connection
    # Without an address, it is a socket in the file system.
    host = connection.info.hostaddr
    openly = not connection.pgconn.ssl_in_use and bool(host) and not is_loopback(host)
    return talk.rows(_ABOUT)[0], openly


def _judged(row: Sequence[object], at: str, took_ms: float, wait: str, *, openly: bool) -> Finding:
    version, major, schema, standby, fsync, pages, permitted = row
    detail = f"{at}PostgreSQL {str(version).partition(' ')[0]}, schema {schema}"
    detail += f", answers in {took_ms:.1f} ms{wait}"
    if standby:
        return _problem(f"{detail}; it is a read-only standby", "Set journal_url to the primary.")
    if not permitted:
        todo = "Let the role own the tables, or GRANT it what docs/guide-scale.md lists."
        return _problem(f"{detail}; the role may not write", todo)
    if isinstance(major, int) and major < _OLDEST_POSTGRES:
        return _problem(f"{detail}; it is too old", f"Update it to {_OLDEST_POSTGRES} or newer.")
    if not (fsync and pages):
        off = "full_page_writes" if fsync else "fsync"
        what = f"{detail}; {off} is off: a power cut loses records"
        return _warning(what, f"Set {off} = on in postgresql.conf.")
    if openly:
        todo = "Add ?sslmode=require to journal_url (verify-full if there is a certificate)."
        return _warning(f"{detail}; the connection is not encrypted", todo)
    return _warning(detail, "Run: ralph journal deliver") if wait else _ok(detail)


def _server(_: DoctorScope) -> Finding | None:
    """Check that this folder's team server accepts its token, and that nothing waits for it."""
    there: Any = on_server(within_s=_SERVER_TIMEOUT_S)
    if there is None:
        return None
    count = there.waiting
    wait = f"; {plural(count, 'record')} waiting here for it" if count else ""
    with there:
        try:
            took_ms = _median_ms(there.raw_status)
        except (JournalDown, BadInput) as error:
            return _problem(f"{there.where}: {error.what}{wait}", error.todo)
    detail = f"{there.where}, answers in {took_ms:.1f} ms{wait}"
    return _warning(detail, "Run: ralph status") if wait else _ok(detail)


def _outbox(scope: DoctorScope) -> Finding | None:
    """Check that no record was refused by a server, or waits for another server or token."""
    there: Any = on_server()
    own = there and there.outbox.file
    found = [(file, calls) for file, calls in outbox_files(scope.home).items() if file != own]
    for file, calls in found:
        count = plural(len(calls), "record")
        one = calls[0]
        here = there is not None and there.where == one.address
        detail = f"{count} for {one.address}, {'saved with another token' if here else 'not sent'}"
        if one.why:
            detail = f"{count} that {one.address} refused ({one.path}: {one.why})"
        more = f" (and {plural(len(found) - 1, 'more file')})" if len(found) > 1 else ""
        todo = f"To send with your token: ralph --server {one.address} journal deliver"
        return _warning(f"{detail}{more}", f"{todo}. To drop: delete {file}")
    return None


def _bound_folder(home: Path) -> Path | None:
    with contextlib.suppress(BadInput):  # the check `server` reports it
        root = memory_folder().root
        if str(root) in server_folders(home):
            return root
    return None


def _qdrant(scope: DoctorScope) -> Finding | None:
    """Check that the index's server is reachable and new enough."""
    from ralph.index.qdrant import QdrantStore

    if not scope.settings.qdrant_url:
        return None
    folders = [scope.home / "cache" / "doctor"]
    store = open_index(scope.settings, folders, home=scope.home, scope=lambda: "doctor").store
    assert isinstance(store, QdrantStore)
    server = store.server
    server.check()
    took_ms = _median_ms(server.check) / 2  # each check asks twice
    detail = f"{server.where}: Qdrant {server.version}, answers in {took_ms:.1f} ms"
    if _exposed(scope.settings, server.where):
        todo = "Put TLS in front of the server, and set qdrant_url to https://"
        return _warning(f"{detail}; the key is sent unencrypted", todo)
    return _ok(detail)


def _exposed(settings: Settings, where: str) -> bool:
    parts = urlsplit(where)
    local = is_loopback(parts.hostname or "")
    return bool(settings.qdrant_api_key) and parts.scheme == "http" and not local


def _median_ms(ask: Callable[[], object]) -> float:
    return statistics.median(timeit.repeat(ask, number=1)) * 1000


# -- the project


def _project(scope: DoctorScope) -> Finding:
    """Check that the files that `init` creates exist, and the id that clones share."""
    if (project := scope.project) is None:
        where = f"no .ralph folder in {start_folder()} or above"
        if server_address() is not None:
            return _ok(f"{where}; its memory is on the server")
        if paused_folders(scope.home) is not None:
            return _ok(f"{where}; hooks save its sessions in {scope.home}")
        return _ok(f"{where}; it needs none, but for a plan: ralph init")
    missing = [file.relative_to(project.root).as_posix() for file in project.missing()]
    if not project.has_id and not missing:
        missing = ["project_id in metadata.yaml"]
    if missing:
        return _problem(f"missing: {', '.join(missing)}", "Run: ralph init")
    if rivals := project.rivals:
        detail = f"{', '.join(rivals)} has the same id; the two memories are kept apart"
        return _warning(detail, "If it is the same project, moved or copied, run: ralph trust")
    return _ok(f"{project.root} ({project.id})")


def _trust(scope: DoctorScope) -> Finding | None:
    """Check that the user has allowed everything the project asks for."""
    if scope.project is None:
        return None
    if not (asked := wishes_of(scope.project, home=scope.home)):
        return _ok("this project asks for nothing special")
    if waiting := untrusted(scope.project, home=scope.home):
        detail = f"ignored: {'; '.join(wish.text for wish in waiting)}"
        return _warning(detail, "See it whole and allow it: ralph trust")
    return _ok(f"you allowed what it asks for ({len(asked)})")


def _git(scope: DoctorScope) -> Finding | None:
    """Check that git merges journals line by line, and does not ignore them."""
    project = scope.project
    if project is None or scope.settings.journal_url:  # on a server, journals are not in git
        return None
    if find_program("git", root=project.root) is None:
        todo = "Install git, if the project is in a git repository."
        return _warning("git is not installed", todo)
    ask = functools.partial(ask_git, project.root)
    path = str(project.journals / "any.jsonl")
    code, answer = ask("rev-parse", "--is-inside-work-tree")
    if code != 0 and "not a git repository" in answer:
        return _ok("the project is not in a git repository")
    if code != 0:
        return _warning(answer.splitlines()[0] if answer else "git does not answer")
    if not ask("check-attr", "merge", "--", path)[1].endswith("merge: union"):
        detail = "the journals of two branches would conflict: merge=union is not in effect"
        file = project.journals.relative_to(project.root).as_posix() + "/.gitattributes"
        return _problem(detail, f"Add to {file}: *.jsonl merge=union")
    if ask("check-ignore", "--quiet", "--", path)[0] == 0:
        detail = "git ignores the journal, so clones do not get it"
        return _warning(detail, "Remove .ralph/db from .gitignore.")
    if not project.merges_plans():
        return _warning("git cannot merge the plan in this clone yet", "Run: ralph init")
    return _ok("journals and plans merge without conflicts")


def _leftovers(scope: DoctorScope) -> Finding | None:
    """Check that no crash has left a half-written file or a damaged index."""
    if (project := scope.project) is None:
        return None
    newest = time.time() - 60.0  # a newer draft may be in use
    drafts = [
        (folder / name).relative_to(project.root).as_posix()
        for folder in (project.folder, project.db, project.journals)
        for name in disk.names(folder)
        if _DRAFT.fullmatch(name) and disk.stat(folder / name).st_mtime < newest
    ]
    if drafts:
        return _warning(f"of a crash: {', '.join(drafts)}", "You can delete them.")
    if damaged := sorted(file.name for file in project.cache.glob("index-v*.damaged-*")):
        return _warning(f"set aside: {', '.join(damaged)}", "Run: ralph index prune")
    if "cache" in disk.names(project.folder):
        return _warning(".ralph/cache, which Ralph no longer uses", "You can delete it.")
    return _ok("none")


# -- journal and index


def _journal(ralph: Ralph) -> Finding:
    """Check that every line of every journal can be read."""
    results = [one.verify() for one in ralph.streams() if one.label != "plan"]
    if complaints := [complaint for _, found in results for complaint in found]:
        return _problem(first_of(complaints), "Run: ralph journal verify")
    records = plural(sum(number for number, _ in results), "record")
    return _ok(f"{records} in {plural(len(results), 'journal')}")


def _cache(ralph: Ralph) -> Finding:
    return _ok(str(ralph.store.index.path.parent))


def _index(ralph: Ralph) -> Finding:
    """Check that the index agrees with the journal."""
    found = verify_index(ralph)
    if found.ok:
        newer = [file.name for file in ralph.store.index.path.parent.glob("index-v*.sqlite3")]
        if newer := [name for name in newer if int(_VERSION.findall(name)[0]) > SCHEMA]:
            detail = f"a newer Ralph works here too ({first_of(newer)}); this one has its own index"
            return _warning(detail, "Upgrade this Ralph.")
        return _ok(f"{plural(found.records, 'record')}, current")
    first = found.faults[0]
    where = f"{first.feature}: " if first.feature else ""
    detail = where + first_of([fault.what for fault in found.faults])
    mends = all(fault.mends for fault in found.faults)
    return Finding("warning" if mends else "problem", detail, first.todo)


def _parameters(ralph: Ralph) -> Finding | None:
    """Check that this project's collections have the right parameters and dimensions."""
    if not ralph.config.settings.qdrant_url:
        return None
    dims = None
    with contextlib.suppress(EmbedderOff):  # the check `embedder` reports it
        dims = ralph.store.embedder.dims if ralph.store.embedder else 0
    faults: list[str] = []
    collections = []
    for store in (ralph.store, ralph.conversations.store, ralph.knowledge.store):
        faults += store.index.with_repair(functools.partial(store.index.store.check, deep=True))
        collections += store.index.collections()
    live = [each for each in collections if each.live and each.manifest.dims != dims]
    behind = [
        f"{each.physical or each.name} has {each.manifest.dims} dimensions, the embedder {dims}"
        for each in (live if dims is not None else ())
    ]
    if faults:
        return _problem(first_of(faults), "Run: ralph index rebuild")
    if behind:
        todo = "The next search of it rebuilds it; `ralph index rebuild` does it now."
        return _warning(first_of(behind), todo)
    return _ok(f"{plural(len(collections), 'collection')} as expected")


_CHECKS: tuple[Callable[[DoctorScope], Finding | None], ...] = (
    *(_python, _sqlite, _home, _settings, _pause, _embedder, _hooks, _clients, _capture, _timeouts),
    *(_server, _outbox, _postgres, _qdrant),
    *(_project, _trust, _git, _leftovers),
)


def _memory_checks(done: Mapping[str, Finding]) -> Sequence[Callable[[Any], Finding | None]]:
    """Return the checks of a project's memory; a server that does not answer is asked once."""
    qdrant = done.get("qdrant")
    is_off = qdrant is not None and qdrant.state == "problem"
    return (_journal, _cache) if is_off else (_journal, _cache, _index, _parameters)
