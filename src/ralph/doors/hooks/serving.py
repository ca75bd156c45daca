"""Whether the journals are on a server, found out without loading anything."""

from __future__ import annotations

import os

from ralph.doors.hooks import own_files

_SETTING = "journal_url"


def on_a_server(home: str) -> bool:
    """Whether an address is set; what it is, whoever opens the journals reads for himself."""
    variable = os.environ.get(f"RALPH_{_SETTING.upper()}")
    if variable is not None:
        return bool(variable)
    try:
        return _SETTING.encode() in own_files.read(os.path.join(home, "config.json"))
    except OSError:
        return False
