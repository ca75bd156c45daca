"""The worker after a session: hooks start it, and nobody waits for it.

Workers usually run in `ralph chat` or `ralph workers run`. Users who only have hooks run neither,
so the end of a session starts one pass of the workers in a separate process, which ends by itself.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph import disk
from ralph.memory.activity import WORKER, activity_everywhere, note_activity
from ralph.programs import start_detached
from ralph.state_folders import hooks_folder

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.doors.hooks.call import HookCall

_LIMIT_S = 120
_DAY_S = 24 * 3600.0
# How long a worker may take after its time is up to finish its current item.
_GRACE_S = 5.0


def start_worker(call: HookCall, settings: Settings) -> bool:
    """Start the process if the settings ask for it; return whether it was started."""
    summarizes = settings.summarizer_conversation_enabled or settings.summarizer_exchange_enabled
    spent_usd = _spent_usd(call.home)
    if spent_usd and spent_usd >= settings.summary_spend_cap_usd:
        return False
    if not (summarizes and settings.hook_capture):
        return False
    # Not in the project's folder, which may be moved in the meantime.
    start_detached(["hook", WORKER, str(_LIMIT_S), call.root], call.home)
    return True


def _spent_usd(home: str) -> float:
    """Return what all workers after sessions have spent in the last 24 hours."""
    return sum(one.spend_usd for one in activity_everywhere(home, within_s=_DAY_S))


def run_worker(argv: list[str]) -> int:
    """Do a project's pending work for a limited time; only one worker at a time on this machine.

    In 24 hours, all of them together spend at most `summary_spend_cap_usd`.
    """
    from ralph.chat.workers import Workers
    from ralph.config import PROJECT_FILE, load
    from ralph.doors.hooks.answers import refresh
    from ralph.doors.hooks.call import HookCall, HookTimer
    from ralph.memory.conversations import prune_if_due
    from ralph.memory.project import project_or_folder
    from ralph.memory.ralph import open_ralph

    limit_s, root, home = float(argv[0]), argv[1], Path(disk.home())
    stop, left = threading.Event(), 1  # until we know better, something is left
    crew: Workers | None = None

    def end(_: float = 0.0) -> None:
        spend_usd = round(crew.spent_usd, 6) if crew else 0.0
        note_activity(hooks_folder(root, home), WORKER, left=left, spend_usd=spend_usd)

    # Ends the process even if it waits for a model: journals are written all or nothing.
    watch = HookTimer(limit_s + _GRACE_S, end)
    call = HookCall(WORKER, {}, root, str(home), watch)
    alarm = threading.Timer(limit_s, stop.set)
    alarm.daemon = True
    alarm.start()
    lock = home / "cache" / "workers" / "after-session.lock"
    disk.make_folder(lock.parent)
    try:
        file = Path(root) / disk.FOLDER / PROJECT_FILE
        cap_usd = load(home=home, project_file=file).settings.summary_spend_cap_usd
        given: dict[str, Any] = {"summary_spend_cap_usd": max(0.0, cap_usd - _spent_usd(str(home)))}
        project = project_or_folder(Path(root), home=home)
        opened = partial(open_ralph, project=project, home=home, **given)
        with disk.lock(lock, timeout_s=0.0):
            with opened() as ralph:
                prune_if_due(ralph.conversations)
            crew = Workers(opened)
            statuses = crew.run_once(stop=stop)
            left = sum(max(0, one.total - one.completed - one.given_up) for one in statuses)
            with opened() as ralph:
                refresh(call, ralph)
            end()
    except disk.Busy:
        pass  # another worker is running; the next session starts one for the rest
    except Exception as error:  # noqa: BLE001 - only the log can report it
        call.fault(error, root)
        end()
    watch.stop()
    return 0
