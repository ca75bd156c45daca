"""Workers with their failures, settings with their origin, and the checks of `ralph doctor`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from starlette.responses import Response

from ralph.config import USER_FILE, Config, clear, home_folder, load, store
from ralph.doors.web.background import BackgroundTask
from ralph.doors.web.page import PageCall, Site
from ralph.doors.web.setting_groups import grouped_lines, line_of
from ralph.plan.store import Plan
from ralph.programs import python
from ralph.records import clean
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.chat.workers import Workers
    from ralph.memory.ralph import Ralph

_FAILURES = 50
_DOCTOR_S = 120.0


# -- workers


def workers(call: PageCall) -> Response:
    """Show the state, progress and failures of each background worker."""
    crew = _crew(call)
    failed = list(crew.retries.entries().values())
    return call.page(
        "workers.html",
        workers=crew.statuses(),
        failed=failed[:_FAILURES],
        more=max(0, len(failed) - _FAILURES),
    )


def retry(call: PageCall) -> Response:
    """Make the workers retry everything that failed."""
    count = _crew(call).retry()
    return call.done(f"The workers will try {plural(count, 'item')} again.", "/workers")


def _crew(call: PageCall) -> Workers:
    from ralph.chat.workers import Workers

    # Workers close the memory they open. The wrapper keeps the page's own memory open.
    return Workers(lambda: cast("Ralph", contextlib.nullcontext(call.memory)))


# -- settings


def settings(call: PageCall) -> Response:
    """Show every setting in its group: what it does, its value and where the value comes from."""
    text = call.query.get("text", "").casefold()
    loaded = _load(call.site)
    lines = map(line_of, map(clean, loaded.origins))  # an agent's command may contain a key
    found = [
        line
        for line in lines
        if text in f"{line.setting.key} {line.name} {line.rule.what}".casefold()
    ]
    return call.page(
        "settings.html",
        groups=grouped_lines(found),
        ignored=loaded.ignored,
        in_project=call.site.is_project,
    )


def _load(site: Site) -> Config:
    file = site.project.settings_file if site.is_project else None
    return load(home=home_folder(), project_file=file)


def change_setting(call: PageCall) -> Response:
    """Save one setting to the user's file or the project's, or remove it there."""
    key = call.form.get("key", "")
    form = call.form
    home = home_folder()
    project = call.site.project
    own = form.get("where") == "user" or not call.site.is_project
    file = home / USER_FILE if own else project.settings_file
    plan = Plan(project.root, state=project.cache)
    with contextlib.nullcontext() if own else plan.changing_settings():
        if form.get("action") == "unset":
            removed = clear(file, key)
            text = f"{key} is no longer in {file.name}." if removed else "It was not there."
        else:
            store(file, key, form.get("value", ""), home=home)
            text = f"Saved {key} in {file.name}."
    if form.get("action") != "unset":
        stronger = [one for one in _load(call.site).origins if one.key == key]
        if stronger and stronger[0].origin != str(file):
            text += f" {stronger[0].origin} takes precedence."
    call.site.reopen()
    return call.done(text, f"/settings#{key}" if key.isidentifier() else "/settings")


# -- health


class HealthCheck(BackgroundTask):
    """Runs `ralph doctor` in the background, because reading every journal takes long."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.checks: list[dict[str, Any]] = []
        self.at = 0.0
        self._site = site

    def _run(self) -> None:
        words = [*python(), "-m", "ralph", "doctor", "--json"]
        try:
            done = subprocess.run(
                words,
                cwd=self._site.project.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DOCTOR_S,
                check=False,
            )
            self.checks = json.loads(done.stdout)["checks"]
            self.error = ""
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.error = f"`ralph doctor` did not answer ({type(error).__name__})"
        self.at = time.time()


_health: weakref.WeakKeyDictionary[Site, HealthCheck] = weakref.WeakKeyDictionary()


def _health_of(call: PageCall) -> dict[str, Any]:
    check = _health.setdefault(call.site, HealthCheck(call.site))
    if not check.at:
        check.start()
    at = datetime.fromtimestamp(check.at, UTC).isoformat() if check.at else None
    order = ("problem", "warning", "ok")
    checks = sorted(check.checks, key=lambda one: order.index(one["state"]))
    counts = {state: sum(one["state"] == state for one in checks) for state in order}
    return {"check": check, "checks": checks, "counts": counts, "at": at}


def health(call: PageCall) -> Response:
    """Show the last findings of `ralph doctor`; start it the first time."""
    return call.page("health.html", **_health_of(call))


def health_part(call: PageCall) -> Response:
    """Return the findings as HTML, for the script that refreshes them."""
    return call.part("health_part.html", **_health_of(call))


def check_health(call: PageCall) -> Response:
    """Start the checks again."""
    _health.setdefault(call.site, HealthCheck(call.site)).start()
    return call.done("Checking. This takes a few seconds.", "/health")
