"""A damaged, deleted or foreign index file heals by itself, and the answers are the same."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from journaling import child, hear, tell
from remembering import (
    ToyEmbedder,
    index_file,
    index_files,
    made,
    open_toy,
    shown,
    state_of,
    topical,
)

from ralph import disk
from ralph.errors import IndexOff
from ralph.index import Corrupt
from ralph.index import sync as sync_module
from ralph.index.sqlite import SqliteStore
from ralph.memory import store as stores
from ralph.memory.ralph import Ralph

if TYPE_CHECKING:
    from ralph.index import Vectors

QUESTION = "login form validation"


def ask(memory: Ralph, query: str = QUESTION) -> list[tuple[str, float | None, str]]:
    return shown(memory.feature("auth").search(query))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def filled(project: Path) -> list[tuple[str, float | None, str]]:
    """A project with a closed index, and what it answers."""
    with open_toy(project) as memory:
        memory.feature("auth").remember_all(topical(200))
        answer = ask(memory)
    assert len(answer) == 10
    return answer


def _header(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"not what it was ")


def _schema_page(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(100)
        opened.write(b"\xff" * 200)


def _middle(file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(size // 2 // 4096 * 4096)
        opened.write(b"\xa5" * 4096 * 4)


def _all_but_first_page(file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\x5a" * (size - 4096))


def _truncate(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 3)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _text(file: Path) -> None:
    file.write_text("This is a text, and no database.\n" * 300)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "something").write_bytes(b"somebody's")


DAMAGES = [
    _header,
    _schema_page,
    _middle,
    _all_but_first_page,
    _truncate,
    _empty,
    _text,
    _folder,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_with_one_line_and_the_answers_are_the_same(
    filled: list[object],
    project: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = index_file(project)
    damage(file)
    with open_toy(project) as memory:
        answer = memory.feature("auth").search(QUESTION)
        assert shown(answer) == filled
        assert answer.notes == ()
        for n in range(0, 200, 7):  # whatever page it was, asking for everything meets it
            assert memory.feature("auth").search(topical(1, start=n)[0].summary)
        assert ask(memory) == filled
        assert memory.store.index.store.check(deep=True) == []
    aside = [file for file in index_files(project) if ".damaged-" in file.name]
    if damage in (_empty,):  # an empty file is a new database, nothing is wrong with it
        assert aside == []
        assert warnings(caplog) == []
    else:
        assert len(warnings(caplog)) == 1
        assert "set aside" in warnings(caplog)[0]
        assert len([f for f in aside if not f.name.endswith(("-wal", "-shm"))]) == 1


def test_damage_while_the_file_is_open_is_healed_too(
    filled: list[object], project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_toy(project) as memory, open_toy(project) as other:
        assert ask(memory) == filled
        assert ask(other) == filled
        connection = sqlite3.connect(index_file(project))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        _all_but_first_page(index_file(project))
        for n in range(0, 200, 7):
            assert memory.feature("auth").search(topical(1, start=n)[0].summary)
        assert ask(memory) == filled
        assert ask(other) == filled
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE record_{n}",
        "DROP TABLE vector_{n}",
        "DROP TABLE words_{n}",
        "DELETE FROM record_{n}",
        "DELETE FROM words_{n}",
        "UPDATE record_{n} SET body = x'7b7d'",
        "UPDATE record_{n} SET body = x'ff'",
        "UPDATE record_{n} SET source = 'nonsense'",
        "UPDATE vector_{n} SET v = x'00'",
        "UPDATE vector_{n} SET owners = x'00'",
        "UPDATE vector_{n} SET owners = zeroblob(16)",
        "UPDATE collection SET dims = 'many'",
        "DROP TABLE collection",
    ],
)
def test_content_that_does_not_fit_together_is_damage_too(
    filled: list[object], project: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = sqlite3.connect(index_file(project))
    (n,) = connection.execute("SELECT id FROM collection").fetchone()
    connection.execute(statement.format(n=n))
    connection.commit()
    connection.close()
    with open_toy(project) as memory:
        assert ask(memory) == filled
        assert ask(memory) == filled
    if statement != "DROP TABLE collection":  # then there is just nothing indexed
        assert len(warnings(caplog)) == 1


def test_a_position_that_cannot_be_read_means_reading_again(
    filled: list[object], project: Path
) -> None:
    connection = sqlite3.connect(index_file(project))
    connection.execute("UPDATE collection SET position = 'nonsense'")
    connection.commit()
    connection.close()
    again = ToyEmbedder()
    with open_toy(project, again) as memory:
        assert ask(memory) == filled
    assert again.embedded == []


def test_an_index_that_stays_damaged_is_off_and_the_journal_answers(
    filled: list[object], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_toy(project) as memory:
        index = memory.store.index

        def broken(*_: object, **__: object) -> Any:
            raise Corrupt("for ever")

        with pytest.raises(IndexOff, match="damaged again"):
            index.with_repair(broken)
        monkeypatch.setattr(stores, "find", broken)
        answer = memory.feature("auth").search(QUESTION)
        assert len(answer) == 10
        assert "searched the journal by words alone" in answer.notes[0]


def test_a_file_another_process_has_healed_already_is_left_alone(
    filled: list[object], project: Path
) -> None:
    with open_toy(project) as memory:
        assert ask(memory) == filled
        index_file(project).unlink()
        with open_toy(project) as other:
            assert ask(other) == filled
        healed = index_file(project).stat().st_ino
        memory.store.index._repair(Corrupt("seen in the old file"))
        assert index_file(project).stat().st_ino == healed
        assert ask(memory) == filled
    assert not [f for f in index_files(project) if ".damaged-" in f.name]


def test_deleting_the_file_under_an_open_reader_loses_nothing(
    filled: list[object], project: Path
) -> None:
    with open_toy(project) as memory:
        assert ask(memory) == filled
        for file in index_files(project):
            file.unlink()
        assert ask(memory) == filled
        memory.feature("auth").remember(made("login form validation again", session_id="new"))
        assert len(memory.feature("auth").search("login form validation again")) > 0


def test_deleting_the_whole_cache_under_an_open_reader_loses_nothing(
    filled: list[object], project: Path
) -> None:
    with open_toy(project) as memory:
        assert ask(memory) == filled
        shutil.rmtree(state_of(project))
        assert ask(memory) == filled
        shutil.rmtree(state_of(project))
        memory.feature("auth").remember(made("written without a cache", session_id="new"))
        assert len(memory.feature("auth").search("written without a cache")) == 1


def test_vectors_of_a_deleted_file_never_mix_with_those_of_its_successor(
    filled: list[object], project: Path
) -> None:
    with open_toy(project) as memory, open_toy(project) as other:
        assert ask(memory) == filled
        gone = [hit.id for hit in other.feature("auth").search(QUESTION)]
        other.store.index.delete()
        other.feature("auth").forget(gone)
        found = memory.feature("auth").search(QUESTION, limit=20, min_score=0.0)
        assert len(found) == 20
        assert not {hit.id for hit in found} & set(gone)


def test_a_reader_in_another_process_follows_a_deleted_index(
    filled: list[object], project: Path
) -> None:
    script = """
    import sys
    from remembering import open_toy
    with open_toy(sys.argv[1]) as memory:
        for line in sys.stdin:
            answer = memory.feature("auth").search(line.strip())
            print(len(answer), *answer.notes, flush=True)
    """
    with child(script, project) as reader:
        tell(reader, QUESTION)
        assert hear(reader) == "10"
        for file in index_files(project):
            file.unlink()
        tell(reader, QUESTION)
        assert hear(reader) == "10"
        with open_toy(project) as memory:
            memory.feature("auth").remember(made("quite another matter", session_id="new"))
        tell(reader, "quite another matter")
        assert hear(reader) == "1"


def test_a_lock_that_cannot_be_had_is_no_reason_not_to_answer(
    filled: list[object], project: Path
) -> None:
    lock = state_of(project) / "index.lock"
    lock.unlink()
    lock.mkdir()
    with open_toy(project) as memory:
        memory.feature("auth").remember(made("login form validation thrice", session_id="new"))
        answer = memory.feature("auth").search("login form validation thrice")
        assert answer[0].record.summary == "login form validation thrice"
        assert "searched the journal by words alone" in answer.notes[0]
        assert "index.lock" in answer.notes[0] or "cache" in answer.notes[0]


def test_while_another_process_builds_the_index_what_is_there_answers(
    filled: list[object], project: Path
) -> None:
    with open_toy(project, index_lock_timeout_s=0.0) as memory:
        assert ask(memory) == filled
        gone = str(filled[0][0])  # type: ignore[index]
        with disk.lock(state_of(project) / "index.lock", timeout_s=1):
            # The journal forgets at once; an index that is behind must not tell it any more.
            memory.store.journals.journal("auth").forget([gone])
            answer = memory.feature("auth").search(QUESTION)
            assert any("not complete yet" in note for note in answer.notes)
            assert gone not in {hit.id for hit in answer}
            assert len(answer) >= 9
        assert memory.feature("auth").search(QUESTION).notes == ()


@pytest.mark.parametrize("also_side_files", [True, False])
def test_an_index_deleted_while_it_is_built_is_built_again(
    filled: list[object],
    project: Path,
    also_side_files: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deleting(ToyEmbedder):
        def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Vectors:
            if self.batches == 2:
                for file in index_files(project) if also_side_files else [index_file(project)]:
                    file.unlink()
            return super().embed_passages(texts, budget_s=budget_s)

    monkeypatch.setattr(sync_module, "_BATCH", 50)
    with open_toy(project, Deleting()) as memory:
        memory.store.index.delete()
        assert ask(memory) == filled
        assert ask(memory) == filled
        assert memory.store.index.store.check(deep=True) == []


def test_an_index_deleted_again_and_again_is_off_and_the_journal_answers(
    filled: list[object], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_toy(project) as memory:
        sync = memory.store.index.sync

        def sync_in_vain(*args: Any, **how: Any) -> Any:
            synced = sync(*args, **how)
            memory.store.index.delete()
            return synced

        memory.store.index.delete()
        monkeypatch.setattr(memory.store.index, "sync", sync_in_vain)
        answer = memory.feature("auth").search(QUESTION)
        assert len(answer) == len(filled)
        assert "deleted again and again" in answer.notes[0]


@pytest.mark.parametrize("way", ["drop", "repair"])
def test_a_file_that_a_thread_is_opening_is_not_deleted_before_it_is_open(
    filled: list[object], project: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    opening, goes_on, use_wal = threading.Event(), threading.Event(), SqliteStore._use_wal

    def waits(store: SqliteStore, connection: sqlite3.Connection) -> None:
        opening.set()
        goes_on.wait(50)
        use_wal(store, connection)

    with open_toy(project) as memory, ThreadPoolExecutor(2) as pool:
        store = memory.store.index.store
        assert isinstance(store, SqliteStore)
        inode = store._local.inode = store._inode()
        monkeypatch.setattr(SqliteStore, "_use_wal", waits)
        asked = pool.submit(memory.feature("auth").search, QUESTION)
        assert opening.wait(50)

        def remove() -> None:
            store._local.inode = inode
            store.drop() if way == "drop" else store.repair(Corrupt("says the test"))

        monkeypatch.setattr(store, "close", lambda: None)  # it would wait for the connection
        removed = pool.submit(remove)
        with pytest.raises(TimeoutError):
            removed.result(0.2)
        assert store._inode() == inode
        goes_on.set()
        removed.result(50)
        assert len(asked.result(50)) == len(filled)


def test_a_file_that_another_process_replaces_while_it_is_opened_is_opened_again(
    filled: list[object], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    use_wal = SqliteStore._use_wal

    def replaced(store: SqliteStore, connection: sqlite3.Connection) -> None:
        opened.append(store._inode())
        if len(opened) == 1:
            for file in index_files(project):
                file.unlink()
        use_wal(store, connection)

    monkeypatch.setattr(SqliteStore, "_use_wal", replaced)
    with open_toy(project) as memory:
        assert ask(memory) == filled
        store = memory.store.index.store
        assert isinstance(store, SqliteStore)
        assert len(opened) == 2
        assert [one.inode for one in store._opened.values()] == [store._inode()]


def test_threads_go_on_while_one_of_them_sets_the_index_aside(
    filled: list[object], project: Path
) -> None:
    wrong: list[object] = []
    done = threading.Event()
    with open_toy(project) as memory:

        def search() -> None:
            while not done.is_set():
                answer = memory.feature("auth").search(QUESTION)
                if len(answer) != 10:
                    wrong.append(answer)

        threads = [threading.Thread(target=search) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(15):
            if n % 3 == 2:
                memory.store.index.delete()
            else:
                memory.store.index._repair(Corrupt("says the test"))
            assert len(memory.feature("auth").search(QUESTION)) == 10
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert ask(memory) == filled
        assert memory.store.index.store.check(deep=True) == []
