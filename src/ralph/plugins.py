"""What other installed packages add to Ralph, by the standard entry points of Python packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def installed(group: str) -> Iterator[EntryPoint]:
    """Yield the entry points of a group, such as `ralph.kinds`.

    A package in the current folder is left out: a cloned repository must not run code here.
    """
    # Slow to load, and most processes need none.
    from importlib.metadata import distributions

    here = Path.cwd().resolve()
    names: set[str] = set()
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name in names:
            continue  # as with imports, the first on the path counts
        points = [point for point in distribution.entry_points if point.group == group]
        if points and Path(str(distribution.locate_file(""))).resolve() != here:
            names.add(name)
            yield from points


def loaded(group: str, name: str) -> Any:
    """Return what an entry point names; raise BadInput if no installed package has it."""
    for point in installed(group):
        if point.name == name:
            return point.load()
    todo = "Install the package that has it, or change the setting."
    raise BadInput(f"no installed package adds {name!r} to {group}", todo=todo)
