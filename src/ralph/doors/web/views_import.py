"""Import: the sessions that clients stored on this machine, brought in by one button."""

from __future__ import annotations

import weakref

from starlette.responses import Response

from ralph.doors.web.background import BackgroundTask
from ralph.doors.web.page import PageCall, Site
from ralph.errors import RalphError, os_error_text
from ralph.memory.past_sessions import ClientHistory, PastSessions
from ralph.text.tokens import plural


class SessionImport(BackgroundTask):
    """Imports in the background, because months of sessions take longer than a view may."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.read_bytes = 0
        self.total_bytes = 0
        self.result = ""
        self._site = site

    def _progress(self, done: int) -> None:
        self.read_bytes = done

    def _run(self) -> None:
        self.error = ""
        try:
            # SQLite's connections belong to a thread, so this one opens the memory itself.
            with self._site.open_memory() as ralph:
                sessions = PastSessions(ralph.conversations.store, progress=self._progress)
                for importer in sessions.importers:
                    importer.measure()
                self.total_bytes = sessions.total_bytes
                found = sessions.once()
                sessions.index()
                sessions.write_moments()
                projects = sessions.projects()
            talks = plural(found.conversations, "conversation")
            self.result = f"Imported {talks} of {plural(len(projects), 'project')}."
        except RalphError as error:
            self.error = str(error)
        except OSError as error:
            self.error = os_error_text(error)


_imports: weakref.WeakKeyDictionary[Site, SessionImport] = weakref.WeakKeyDictionary()


def import_of(call: PageCall) -> SessionImport:
    """Return the import of this page."""
    return _imports.setdefault(call.site, SessionImport(call.site))


def new_sessions(call: PageCall) -> list[ClientHistory]:
    """Return how many sessions of each client are not in memory yet."""
    return PastSessions(call.memory.conversations.store).new()


def start_import(call: PageCall) -> Response:
    """Start importing the sessions of all clients on this machine."""
    import_of(call).start()
    call.session.everywhere = True
    return call.redirect("/")


def import_part(call: PageCall) -> Response:
    """Return the state of the import as HTML, for the script that refreshes it."""
    return call.part("import_part.html", sessions=import_of(call))
