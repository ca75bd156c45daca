"""The five places of the page, and the views in each."""

from __future__ import annotations

from typing import NamedTuple


class ViewLink(NamedTuple):
    """A view as the navigation shows it; `key` goes there after `g`."""

    title: str
    path: str
    key: str
    # The beginnings of other paths that belong to the view.
    also: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a path is this view, or belongs to it."""
        if path == self.path or (self.path != "/" and path.startswith(f"{self.path}/")):
            return True
        return path.startswith(self.also) if self.also else False


class PagePlace(NamedTuple):
    """One entry of the main navigation; the first of its views is the place itself."""

    title: str
    views: tuple[ViewLink, ...]

    def has(self, path: str) -> bool:
        """Whether a path is in this place."""
        return any(view.has(path) for view in self.views)


PLACES = (
    PagePlace(
        "Today",
        (
            ViewLink("Overview", "/", "h"),
            ViewLink("Inbox", "/inbox", "i"),
            ViewLink("Notes", "/notes", "n"),
        ),
    ),
    PagePlace(
        "Timeline",
        (
            ViewLink("Days", "/timeline", "t", ("/record/", "/file")),
            ViewLink("Conversations", "/conversations", "c"),
        ),
    ),
    PagePlace(
        "Search",
        (
            ViewLink("Everything", "/search", "s"),
            ViewLink("Documents", "/documents", "d"),
        ),
    ),
    PagePlace(
        "Plan",
        (
            ViewLink("Features", "/plan", "p", ("/features/",)),
            ViewLink("Lessons", "/knowledge", "k"),
        ),
    ),
    PagePlace(
        "Settings",
        (
            ViewLink("Settings", "/settings", "e"),
            ViewLink("Background work", "/workers", "w"),
            ViewLink("Health", "/health", "l"),
        ),
    ),
)
