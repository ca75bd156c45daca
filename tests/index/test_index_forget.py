"""What is forgotten is gone: from the journal, from the index, from their bytes, and for good."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from journaling import child, hear, tell
from remembering import (
    ToyEmbedder,
    files_holding,
    index_file,
    made,
    open_toy,
    shown,
    state_of,
    summaries,
    topical,
)

from ralph import disk
from ralph.errors import NotFound, RecordForgotten
from ralph.index import sync as sync_module
from ralph.memory.feature import SavedIteration
from ralph.memory.keeping import choose, forget
from ralph.memory.ralph import Ralph
from ralph.memory.transfer import export_lines, import_lines
from ralph.records.iteration import Decision, ErrorSeen, FileTouched, Iteration
from ralph.text.tokens import tokens

# Words found nowhere else, with the stems the index keeps of them.
WORDS = ("zyxvoqueing", "plimfoxations", "quuxwarbles", "drobnaketic", "vlimpexting")


def secretive(**more: Any) -> Iteration:
    title, summary, error, decision, path = WORDS
    return made(
        f"the summary tells of {summary}",
        task_title=f"Repair {title}",
        errors=(ErrorSeen(f"TypeError: {error} is not callable", "runtime", f"src/{path}.py", 3),),
        decisions=(Decision(f"use {decision}", "because"),),
        files_touched=(FileTouched(f"src/{path}.py", "modified"),),
        session_id="secretive",
        **more,
    )


def traces(root: Path) -> list[str]:
    """Files of the project that still hold a word of it or the stem of one."""
    stems = [stem for word in WORDS for stem in tokens(word)]
    return [
        file
        for folder in (root / ".ralph", state_of(root))
        for file in files_holding(folder, *WORDS, *stems)
    ]


@pytest.fixture
def written(memory: Ralph) -> SavedIteration:
    """One record to be forgotten among many that stay."""
    auth = memory.feature("auth")
    auth.remember_all(topical(40))
    remembered = auth.remember(secretive())
    auth.remember_all(topical(40, start=40))
    return remembered


def assert_gone(memory: Ralph, gone: SavedIteration) -> None:
    auth = memory.feature("auth")
    for word in WORDS:
        found = auth.search(f"{word} repair", min_score=0.0, limit=20)
        assert gone.id not in {hit.id for hit in found}
    assert gone.id not in {hit.id for hit in auth.recent(1000)}
    with pytest.raises(NotFound):
        auth.get(gone.id)
    assert len(auth.iterations()) == 80


def test_a_record_is_there_with_all_its_words_before_it_is_forgotten(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    assert {"auth.jsonl"} < set(traces(project))
    found = memory.feature("auth").search("plimfoxations")
    assert summaries(found) == ["the summary tells of plimfoxations"]


def test_no_file_holds_a_byte_of_what_was_forgotten(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    memory.feature("auth").search("plimfoxations")
    assert memory.feature("auth").forget([written.id], reason="private") == [written.id]
    assert traces(project) == []
    assert_gone(memory, written)
    memory.close()
    assert traces(project) == []
    assert files_holding(project / ".ralph" / "db", written.id)  # the tombstone
    assert files_holding(project / ".ralph" / "db", "private")


def test_no_file_holds_it_while_another_process_has_the_index_open(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    script = """
    import sys
    from remembering import open_toy
    with open_toy(sys.argv[1]) as memory:
        for line in sys.stdin:
            print(len(memory.feature("auth").search(line.strip())), flush=True)
    """
    with child(script, project) as reader:
        tell(reader, "plimfoxations")
        assert hear(reader) == "1"
        memory.feature("auth").forget([written.id])
        assert traces(project) == []
        tell(reader, "plimfoxations")
        assert hear(reader) == "0"
        assert traces(project) == []


def test_an_index_that_somebody_keeps_reading_is_thrown_away_rather_than_left_unclean(
    memory: Ralph,
    written: SavedIteration,
    project: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ralph.index.sqlite._BUSY_TIMEOUT_S", 0.01)
    memory.store.index.store.close()
    reader = sqlite3.connect(index_file(project), isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM collection").fetchone()
    memory.feature("auth").forget([written.id])
    assert traces(project) == []
    assert any("so it is deleted" in record.message for record in caplog.records)
    reader.close()
    assert_gone(memory, written)


def test_an_index_that_somebody_is_building_is_thrown_away_rather_than_left_unclean(
    written: SavedIteration, project: Path
) -> None:
    with (
        open_toy(project, index_lock_timeout_s=0.0, journal_lock_timeout_s=0.01) as memory,
        disk.lock(state_of(project) / "index.lock", timeout_s=1),
    ):
        memory.feature("auth").forget([written.id])
        assert traces(project) == []


def test_a_tombstone_that_comes_by_git_cleans_the_bytes_too(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    # A colleague forgot it: the journal changes under us, nobody calls forget here.
    memory.store.journals.journal("auth").forget([written.id])
    memory.feature("auth").search("anything at all")
    assert traces(project) == []
    assert_gone(memory, written)


def test_a_forget_that_died_before_the_index_was_clean_is_finished_by_the_next_search(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    memory.close()
    script = """
    import os, signal, sys
    from remembering import open_toy
    from ralph.index.sqlite import SqliteStore
    SqliteStore._vacuum = lambda self, **_: os.kill(os.getpid(), signal.SIGKILL)
    with open_toy(sys.argv[1]) as memory:
        memory.feature("auth").forget([sys.argv[2]])
    """
    with child(script, project, written.id) as process:
        assert process.wait(timeout=60) != 0
    assert traces(project) != []  # it died in time
    with open_toy(project) as again:
        again.feature("auth").search("anything at all")
        assert traces(project) == []
        assert_gone(again, written)


def test_a_rebuild_under_way_does_not_keep_what_is_forgotten_meanwhile(
    memory: Ralph, written: SavedIteration, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_module, "_BATCH", 50)
    new = ToyEmbedder("toy:2")
    new.break_after_batches = 1
    with open_toy(project, new) as changed:
        with pytest.raises(KeyboardInterrupt):
            changed.feature("auth").search("plimfoxations")
        new.break_after_batches = None
        changed.feature("auth").forget([written.id])
        assert traces(project) == []
        assert_gone(changed, written)


def test_a_damaged_index_set_aside_earlier_is_removed_with_it(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    memory.close()
    index = index_file(project)
    older = index.with_name("index-v0.sqlite3")
    aside = index.with_name(f"{index.name}.damaged-20260101T000000")
    shutil.copyfile(index, older)
    shutil.copyfile(index, aside)
    memory.feature("auth").forget([written.id])
    assert traces(project) == []
    assert not aside.exists()
    assert not older.exists()


# -- and it does not come back


def test_it_does_not_come_back_by_a_rebuild(memory: Ralph, written: SavedIteration) -> None:
    auth = memory.feature("auth")
    auth.forget([written.id])
    auth.sync(afresh=True)
    assert_gone(memory, written)
    memory.store.index.delete()
    assert_gone(memory, written)


def test_it_does_not_come_back_by_remembering_it_again(
    memory: Ralph, written: SavedIteration
) -> None:
    auth = memory.feature("auth")
    auth.forget([written.id])
    with pytest.raises(RecordForgotten, match="was forgotten and cannot be added again"):
        auth.remember(secretive())
    assert_gone(memory, written)


def test_it_does_not_come_back_by_an_import(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    exported = list(export_lines(memory))
    assert any(b"plimfoxations" in line for line in exported)
    memory.feature("auth").forget([written.id])
    came = import_lines(memory, exported, name="backup.jsonl")
    assert (came.added, came.known, came.forgotten) == (0, 80, 1)
    assert_gone(memory, written)
    assert traces(project) == []


def test_what_was_forgotten_elsewhere_is_forgotten_here_by_an_import(
    memory: Ralph, written: SavedIteration, project: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(project, clone)
    with open_toy(clone) as there:
        there.feature("auth").forget([written.id])
        exported = list(export_lines(there))
    assert not any(b"plimfoxations" in line for line in exported)
    import_lines(memory, exported, name="there.jsonl")
    assert_gone(memory, written)
    assert traces(project) == []


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=folder, check=True, capture_output=True, text=True, env=os.environ
    )
    return done.stdout


def test_it_does_not_come_back_by_a_merge(
    memory: Ralph, written: SavedIteration, project: Path
) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    git(project, "branch", "other")
    auth = memory.feature("auth")
    auth.forget([written.id])
    git(project, "commit", "-qam", "forgotten here")
    git(project, "checkout", "-q", "other")
    auth.remember(made("the other branch goes on", session_id="other"))
    git(project, "commit", "-qam", "new there")
    git(project, "checkout", "-q", "main")
    git(project, "merge", "-q", "--no-edit", "other")
    assert gone_from(memory, written)
    assert summaries(auth.search("other branch goes on"))[0] == "the other branch goes on"
    memory.store.index.delete()
    assert gone_from(memory, written)


def gone_from(memory: Ralph, gone: SavedIteration) -> bool:
    auth = memory.feature("auth")
    found = auth.search("plimfoxations", min_score=0.0, limit=20)
    return gone.id not in {hit.id for hit in (*found, *auth.recent(1000))}


def test_many_are_forgotten_at_once_and_the_answers_match_a_rebuild(memory: Ralph) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(60))
    chosen = choose(memory, match="login form")
    assert chosen.count == 6
    assert forget(memory, chosen, reason="test").count == 6
    before = [shown(auth.search(q, min_score=0.0, limit=20)) for q in ("login", "invoice totals")]
    memory.store.index.delete()
    after = [shown(auth.search(q, min_score=0.0, limit=20)) for q in ("login", "invoice totals")]
    assert before == after


def test_forgetting_nothing_there_changes_nothing(
    memory: Ralph, written: SavedIteration, caplog: pytest.LogCaptureFixture
) -> None:
    assert memory.feature("auth").forget(["no-such-id"]) == []
    assert memory.feature("nowhere").forget(["no-such-id"]) == []
    assert "nowhere" not in memory.store.journals.names()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
