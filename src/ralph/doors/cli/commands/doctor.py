"""`ralph doctor`: everything memory needs, checked."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.context import as_json, start_folder, the_project, warnings_told
from ralph.doors.cli.render import Page, note, print_json
from ralph.doors.cli.tree import Command, project_given

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.doors.cli.checks import Check
    from ralph.memory.project import Project
    from ralph.memory.ralph import Ralph

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command(cls=Command)
@as_json
def doctor(as_json: bool) -> int:
    """Check everything memory needs, and say what to do.

    It ends with 1 when something is a problem; warnings are only told.
    """
    import msgspec

    with warnings_told():
        checks = _checks()
    problems = [check for check in checks if check.state == "problem"]
    if as_json:
        print_json({"ok": not problems, "checks": [msgspec.to_builtins(one) for one in checks]})
    else:
        page = Page()
        for check in checks:
            page.line(
                (f"{check.state:<8}", _STYLES[check.state]), f" {check.name:<10} ", check.detail
            )
            if check.todo and check.state != "ok":
                page.line(check.todo, indent=20)
    if problems:
        note(f"not in order: {', '.join(check.name for check in problems)}")
    return 1 if problems else 0


def _checks() -> list[Check]:
    from ralph.config import home_folder
    from ralph.doors.cli import checks, checks_clients

    home = home_folder()
    project = _project(home)
    plan: list[tuple[str, Callable[[], Check]]] = [
        ("python", checks.python),
        ("sqlite", checks.sqlite),
        ("home", lambda: checks.home(home)),
        ("settings", lambda: checks.settings(home, project)),
        ("pause", lambda: checks.pause(home, project)),
        ("embedder", lambda: checks.embedder(_settings(home, project))),
        ("hooks", lambda: checks_clients.hooks(project.root if project else None)),
        ("capture", lambda: checks_clients.capture(home)),
    ]
    done = [checks.checked(name, look) for name, look in plan]
    done += _server_checks(_settings(home, project), home)
    if project is None:
        detail = f"no .ralph folder in {start_folder()} or above"
        return [*done, checks.Check("project", "warning", detail, "Run: ralph init")]
    return done + _project_checks(project, home)


def _server_checks(settings: Settings, home: Path) -> list[Check]:
    from ralph.doors.cli import checks, checks_servers

    done: list[Check] = []
    if settings.journal_url:
        look = functools.partial(checks_servers.postgres, settings, home)
        done.append(checks.checked(checks_servers.POSTGRES, look))
    elif (left := checks_servers.spool(home)) is not None:
        done.append(left)
    if settings.qdrant_url:
        look = functools.partial(checks_servers.qdrant, settings, home)
        done.append(checks.checked(checks_servers.QDRANT, look))
    return done


def _project_checks(project: Project, home: Path) -> list[Check]:
    from ralph.doors.cli import checks
    from ralph.doors.cli.checks_git import git
    from ralph.errors import BadSetting
    from ralph.memory.ralph import open_ralph

    done = [
        checks.checked("project", lambda: checks.project_files(project)),
        checks.checked("trust", lambda: checks.trust(home, project)),
    ]
    if not _settings(home, project).journal_url:  # else no journal travels with git
        done.append(checks.checked("git", lambda: git(project)))
    done.append(checks.checked("leftovers", lambda: checks.leftovers(project)))
    with contextlib.suppress(BadSetting), open_ralph(project.root, home=home) as ralph:
        done += _memory_checks(ralph)
    return done


def _memory_checks(ralph: Ralph) -> list[Check]:
    from ralph.doors.cli import checks, checks_servers

    done = [
        checks.checked("journal", lambda: checks.journal(ralph)),
        checks.checked("cache", lambda: checks.cache(ralph)),
        checks.checked("index", lambda: checks.index(ralph)),
    ]
    if ralph.config.settings.qdrant_url:
        done.append(
            checks.checked(checks_servers.PARAMETERS, lambda: checks_servers.collections(ralph))
        )
    return done


def _project(home: Path) -> Project | None:
    from ralph.memory.project import find_project

    return the_project() if project_given() else find_project(start_folder(), home=home)


def _settings(home: Path, project: Project | None) -> Settings:
    from ralph.config import Settings, load
    from ralph.errors import BadSetting

    try:
        file = project.settings_file if project else None
        return load(home=home, project_file=file).settings
    except BadSetting:
        return Settings()  # `settings` tells of it
