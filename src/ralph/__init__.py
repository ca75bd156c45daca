"""Ralph: long-term memory for coding agents.

The journal is the truth, the index is disposable, memory is optional.

    from ralph import open_ralph

    with open_ralph("path/to/project") as memory:
        memory.remember("Sessions expire after 15 minutes.")
        for hit in memory.search("how long do sessions live?"):
            print(hit.kind, hit.score, hit.record)

docs/python.md has more. Importing this package does nothing; names are loaded when they are first
used.
"""

from __future__ import annotations

# As type checkers know it. Loading `typing` takes half as long as starting Python, and every hook
# would do it.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from ralph.errors import RalphError as RalphError
    from ralph.memory.ralph import Ralph as Ralph
    from ralph.memory.ralph import open_ralph as open_ralph
    from ralph.records.iteration import Decision as Decision
    from ralph.records.iteration import ErrorSeen as ErrorSeen
    from ralph.records.iteration import FileTouched as FileTouched
    from ralph.records.iteration import Iteration as Iteration

__version__ = "0.1.0"

_HOMES = {
    "RalphError": "ralph.errors",
    "Decision": "ralph.records.iteration",
    "ErrorSeen": "ralph.records.iteration",
    "FileTouched": "ralph.records.iteration",
    "Iteration": "ralph.records.iteration",
    "Ralph": "ralph.memory.ralph",
    "open_ralph": "ralph.memory.ralph",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ralph' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Name what can be imported, so that `help(ralph)` and editors show it."""
    return [*globals(), *_HOMES]
