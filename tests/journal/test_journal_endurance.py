"""Eight writers and eight readers at one database, and a restart of the server in their midst.

RALPH_TEST_ENDURANCE_S says for how long; scripts/endure takes a minute.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from journaling import child, forgotten, hear, note, tell
from postgres import ENDURANCE_S, own_server

from ralph.journal import Fold
from ralph.journal.postgres import PostgresJournal
from ralph.journal.session import Link, Patience

pytestmark = pytest.mark.slow

EACH = 8
MACHINES = 2

WRITE = """
    import contextlib, sys, threading
    from pathlib import Path
    from journaling import unnumbered
    from ralph.errors import JournalDown
    from ralph.journal.session import Link, Patience
    from ralph.journal.spool import SpooledJournals

    url, home, writer, out = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    link = Link(url, patience=Patience(retry_after_s=0.2), notes=home / "spool")
    journals = SpooledJournals(link, lambda: "feature/x", home / "spool")
    journal = journals.journal("auth")
    ended = threading.Event()
    print("ready", flush=True)
    sys.stdin.readline()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    i = 0
    with out.open("w") as acknowledged:
        while not ended.is_set():
            runs = [f"{writer}-{i}-{part}" for part in range(1 + i % 3)]
            drafts = [unnumbered(run, text=run + " x" * (i % 300)) for run in runs]
            for one in journal.append(drafts):
                assert one.fresh
                acknowledged.write(one.record.id + "\\n")
            acknowledged.flush()
            i += 1
    while True:
        with contextlib.suppress(JournalDown):
            journals.deliver()
            break
    print("done", flush=True)
"""

READ = """
    import contextlib, json, sys, threading
    from pathlib import Path
    from ralph.errors import JournalDown
    from ralph.journal.session import Link, Patience
    from ralph.journal.postgres import PostgresJournal

    url, limit, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    link = Link(url, patience=Patience(retry_after_s=0.05))
    journal = PostgresJournal(link, lambda: "feature/x", "auth")
    ended = threading.Event()
    print("ready", flush=True)
    sys.stdin.readline()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    position, seen = None, []
    while True:
        last_look = ended.is_set()
        with contextlib.suppress(JournalDown):
            if not journal.unchanged(position):
                batch = journal.read(position, limit=limit)
                assert not batch.restarted
                seen += [(one.line, one.record.id) for one in batch.records]
                position = batch.position
            elif last_look:
                break
            else:
                ended.wait(0.01)
    out.write_text(json.dumps(seen))
    print("done", flush=True)
"""


@pytest.mark.timeout(120 + 5 * ENDURANCE_S)
def test_nothing_is_lost_doubled_or_out_of_order_through_a_restart_of_the_server(
    tmp_path: Path,
) -> None:
    with own_server() as server, contextlib.ExitStack() as stack:
        homes = [tmp_path / f"machine-{i % MACHINES}" for i in range(EACH)]
        writers = [
            stack.enter_context(child(WRITE, server.url, home, f"w{i}", tmp_path / f"w{i}"))
            for i, home in enumerate(homes)
        ]
        readers = [
            stack.enter_context(child(READ, server.url, 1 + 37 * i, tmp_path / f"r{i}"))
            for i in range(EACH)
        ]
        everybody = [*writers, *readers]
        assert [hear(one) for one in everybody] == ["ready"] * 2 * EACH
        for one in everybody:
            tell(one, "go")
        pause = threading.Event()
        pause.wait(ENDURANCE_S / 2)
        server.stop()
        spools = [home / "spool" / "feature" / "x" / "auth.jsonl" for home in homes]
        while not any(file.exists() and file.stat().st_size for file in spools):
            pause.wait(0.01)  # until somebody has missed it
        server.start()
        pause.wait(ENDURANCE_S / 2)
        for group in (writers, readers):
            for one in group:
                tell(one, "end")
            assert [hear(one) for one in group] == ["done"] * EACH
            assert [one.wait(timeout=60) for one in group] == [0] * EACH

        link = Link(server.url, patience=Patience())
        journal = PostgresJournal(link, lambda: "feature/x", "auth")
        table = [(one.line, one.record.id) for one in journal.read().records]
        readable, complaints = journal.verify()
        link.close()

    assert complaints == []
    assert readable == len(table)
    assert [line for line, _ in table] == list(range(1, len(table) + 1))
    acknowledged = [line for i in range(EACH) for line in (tmp_path / f"w{i}").read_text().split()]
    assert Counter(acknowledged) == Counter(record_id for _, record_id in table)
    for i in range(EACH):
        told = json.loads((tmp_path / f"r{i}").read_text())
        assert [tuple(one) for one in told] == table
    waiting = [file for home in homes for file in home.glob("spool/**/*.jsonl")]
    assert waiting
    assert sum(file.stat().st_size for file in waiting) == 0


APPEND = """
    import sys
    from journaling import unnumbered
    from ralph.journal.session import Link, Patience
    from ralph.journal.postgres import PostgresJournal

    link = Link(sys.argv[1], patience=Patience())
    journal = PostgresJournal(link, lambda: "feature/x", "auth")
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(60):
        (appended,) = journal.append([unnumbered(f"{sys.argv[2]}-{i}")])
        print(appended.record.id, flush=True)
"""


def test_forgetting_while_others_append_loses_nothing() -> None:
    with own_server() as server, contextlib.ExitStack() as stack:
        link = Link(server.url, patience=Patience())
        journal = PostgresJournal(link, lambda: "feature/x", "auth")
        doomed = [note(f"doomed-{i}", i + 1, text=f"hunter2-{i}") for i in range(30)]
        journal.append(doomed)
        fold = Fold(journal)
        writers = [stack.enter_context(child(APPEND, server.url, f"w{i}")) for i in range(3)]
        assert [hear(writer) for writer in writers] == ["ready"] * 3
        for writer in writers:
            tell(writer, "go")
        for record in doomed:
            assert journal.forget([record.id]) == [record.id]
            fold.records()
        acknowledged = [hear(writer) for writer in writers for _ in range(60)]
        assert [writer.wait(timeout=60) for writer in writers] == [0] * 3

        records = [located.record for located in fold.records()]
        assert sorted(record.id for record in records) == sorted(acknowledged)
        assert sorted(record.number for record in records) == list(range(31, 31 + 180))
        assert forgotten(journal) == {record.id for record in doomed}
        assert journal.verify() == (180, [])
        assert [one.record for one in journal.read().records] == records
        link.close()
