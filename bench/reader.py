"""The other process of the lag bench: told what to look for, it looks until it is there.

Run as `python bench/reader.py PROJECT FEATURE PLAIN`; it ends when its input does.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from ralph.memories import open_ralph

_PATIENCE_S = 30.0


def main(args: Sequence[str]) -> None:
    """Answer `found` for every line that names where to look and what for."""
    project, feature, plain = args
    with open_ralph(project) as ralph, closing(sqlite3.connect(plain)) as connection:
        memory = ralph.feature(feature)
        memory.search("everything loaded before")

        def in_memory(word: str) -> bool:
            return any(word in hit.record.task_title for hit in memory.search(word, min_score=0.0))

        def in_plain(row_id: str) -> bool:
            found = connection.execute("SELECT body FROM plain WHERE id = ?", (row_id,))
            return found.fetchone() is not None

        places: dict[str, Callable[[str], bool]] = {"memory": in_memory, "plain": in_plain}
        _say("ready")
        for line in sys.stdin:
            where, wanted = json.loads(line)
            _say("found" if _look(places[where], wanted) else "never")


def _look(is_there: Callable[[str], bool], wanted: str) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_there(wanted):
        if time.monotonic() > deadline:
            return False
    return True


def _say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
