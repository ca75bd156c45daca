"""Ralph: long-term memory for coding agents.

The journal is the truth, the index is disposable, memory is optional.
Importing this package does nothing; names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralph.errors import RalphError as RalphError
    from ralph.kinds.iteration import Decision as Decision
    from ralph.kinds.iteration import ErrorSeen as ErrorSeen
    from ralph.kinds.iteration import FileTouched as FileTouched
    from ralph.kinds.iteration import Iteration as Iteration
    from ralph.memories import Ralph as Ralph
    from ralph.memories import open_ralph as open_ralph

__version__ = "0.1.0"

_HOMES = {
    "RalphError": "ralph.errors",
    "Decision": "ralph.kinds.iteration",
    "ErrorSeen": "ralph.kinds.iteration",
    "FileTouched": "ralph.kinds.iteration",
    "Iteration": "ralph.kinds.iteration",
    "Ralph": "ralph.memories",
    "open_ralph": "ralph.memories",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ralph' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
