"""The workers over a journal in PostgreSQL: what another process writes wakes them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from workers_ground import add, opener, status, until

from ralph.chat.workers import Workers

# So long that whatever happens was not brought about by a poll.
NEVER_S = 3600.0


def listening() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "ralph-listening"]


def test_what_another_process_writes_wakes_them_without_a_poll(
    project: Path, database: str
) -> None:
    opened = opener(project, journal_url=database)
    with Workers(opened, poll_s=NEVER_S) as workers:
        until(lambda: all(one.state == "idle" for one in workers.statuses()), "rest")
        with opened() as ralph:
            add(ralph, 1, 2)
        until(lambda: status(workers, "exchange").completed == 2, "the new exchanges")
        until(lambda: status(workers, "embedding").completed == 5, "their embeddings")
    assert listening() == []


@pytest.mark.parametrize("enabled", [True, False])
def test_over_files_nobody_listens(project: Path, enabled: bool) -> None:
    opened = opener(project, embedding_pipeline_enabled=enabled)
    with Workers(opened, poll_s=NEVER_S):
        assert listening() == []
