"""Moving a memory from files to a database and back: everything arrives, or nothing is claimed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from journaling import child, living, note, summary, unnumbered

from ralph.errors import BadInput, JournalError
from ralph.journal import Appended, Batch, Draft, Journals
from ralph.journal.file import JournalFolder, JsonlJournal
from ralph.journal.line import write_record
from ralph.journal.spool import server_journals
from ralph.memory.transfer import MovedMemory, move
from ralph.records import Record, Tombstone


@pytest.fixture
def files(tmp_path: Path) -> JournalFolder:
    """Two journals with everything that a journal can have behind it."""
    folder = JournalFolder(tmp_path / "files")
    auth = folder.journal("auth")
    auth.append([unnumbered(f"r{i}", text=f"text {i}") for i in range(1200)])
    auth.append([note("r0", 1, text="in other words")])  # the same id, other content
    auth.forget([note("r5", 6).id, note("r700", 701).id], reason="a password")
    auth.forget((), stones=[Tombstone("never-seen", "2026-02-07T14:30:00Z", "elsewhere", 9)])
    folder.journal("größe / x").append([note("other", 1)])
    return folder


@pytest.fixture
def server(postgres: str, tmp_path: Path) -> Iterator[Journals]:
    memory = f"feature/{uuid.uuid4()}"
    one = server_journals(postgres, lambda: memory, tmp_path / "spool")
    yield one
    one.close()


def total(moved: MovedMemory, field: str) -> int:
    return sum(getattr(one, field) for one in moved.streams)


def records(journals: Journals) -> dict[str, list[Record]]:
    return {
        name: [one.record for one in journals.journal(name).read().records]
        for name in journals.names()
    }


def stones(journals: Journals) -> dict[str, set[Tombstone]]:
    return {name: set(journals.journal(name).read().tombstones) for name in journals.names()}


def test_there_and_back_is_the_same_record_by_record(
    files: JournalFolder, server: Journals, tmp_path: Path
) -> None:
    told: list[tuple[str, int]] = []
    there = move(files, server, lambda name, count: told.append((name, count)))
    assert {one.name: (one.records, one.tombstones) for one in there.streams} == {
        "auth": (1199, 3),
        "größe / x": (1, 0),
    }
    assert (total(there, "records"), total(there, "fresh")) == (1200, 1200)
    assert told[-2:] == [("auth", 1199), ("größe / x", 1)]
    assert records(server) == records(files)
    assert stones(server) == stones(files)

    back = JournalFolder(tmp_path / "back")
    assert total(move(server, back), "records") == 1200
    assert records(back) == records(files)
    assert stones(back) == stones(files)
    assert back.journal("auth").verify() == files.journal("auth").verify()
    # What comes next is numbered as it would have been.
    assert back.journal("auth").append([unnumbered("next")])[0].record.number == 1201
    assert server.journal("auth").append([unnumbered("next")])[0].record.number == 1201


def test_moving_again_brings_only_what_is_new(files: JournalFolder, server: Journals) -> None:
    move(files, server)
    before = records(server)
    assert total(move(files, server), "fresh") == 0
    assert records(server) == before
    files.journal("auth").append([unnumbered("new")])
    files.journal("auth").forget([note("r9", 10).id])
    files.journal("more").append([note("m")])
    assert total(move(files, server), "fresh") == 2
    assert living(server.journal("auth")) == living(files.journal("auth"))
    assert server.names() == files.names()


KILLED = """
    import os, sys
    from pathlib import Path
    from ralph.journal.spool import server_journals
    from ralph.memory import transfer as moving
    from ralph.journal.file import JournalFolder

    url, files, home, memory, portion = sys.argv[1:6]
    moving._PORTION = int(portion)
    target = server_journals(url, lambda: memory, Path(home) / "spool")
    left = [3]

    def dying(name, count):
        left[0] -= 1
        if not left[0]:
            os._exit(9)

    moving.move(JournalFolder(Path(files)), target, dying)
    os._exit(0)
"""


def test_a_move_that_was_killed_is_repeated_without_harm(
    files: JournalFolder, postgres: str, tmp_path: Path
) -> None:
    memory = f"feature/{uuid.uuid4()}"
    for portion in (100, 300, 350):
        with child(KILLED, postgres, files.path, tmp_path / "home", memory, portion) as process:
            assert process.wait(timeout=60) == 9
    server = server_journals(postgres, lambda: memory, tmp_path / "home" / "spool")
    assert 0 < len(records(server)["auth"]) < 1199
    move(files, server)
    assert records(server) == records(files)
    assert stones(server) == stones(files)
    server.close()


@pytest.mark.parametrize(
    "there",
    [
        note("r3", 4, text="something else"),
        Record(note("r3", 4).id, "iteration", 4, "2026-02-07T14:30:00Z", b"{}"),
    ],
)
def test_other_content_under_the_same_id_is_refused_and_nothing_is_copied(
    files: JournalFolder, server: Journals, there: Record
) -> None:
    server.journal("größe / x").append([there])
    server.journal("auth").append([there])
    with pytest.raises(BadInput, match=f"the first is {there.id}; nothing was copied"):
        move(files, server)
    assert records(server) == {"auth": [there], "größe / x": [there]}


def test_the_same_content_with_another_number_is_refused_too(
    files: JournalFolder, server: Journals
) -> None:
    (first,) = records(files)["größe / x"]
    server.journal("größe / x").append(
        [Record(first.id, first.kind, 77, first.at, first.body, first.source)]
    )
    with pytest.raises(BadInput, match="other content"):
        move(files, server)


def test_what_the_target_has_beside_it_stays(files: JournalFolder, server: Journals) -> None:
    server.journal("auth").append([note("theirs", 5)])
    assert total(move(files, server), "records") == 1200
    assert living(server.journal("auth")) == ["theirs", *living(files.journal("auth"))]


def test_what_was_forgotten_there_stays_forgotten(files: JournalFolder, server: Journals) -> None:
    gone = note("r3", 4, text="text 3")
    server.journal("auth").append([gone])
    server.journal("auth").forget([gone.id])
    moved = {one.name: one for one in move(files, server).streams}["auth"]
    assert (moved.records, moved.forgotten_there) == (1198, 1)
    assert "text 3" not in living(server.journal("auth"))


def test_a_record_that_a_merge_brought_back_does_not_travel(
    files: JournalFolder, server: Journals
) -> None:
    secret = note("r5", 6, text="text 5")
    with files.journal("auth").path.open("ab") as file:
        file.write(write_record(secret))
    move(files, server)
    assert secret not in records(server)["auth"]
    assert server.journal("auth").verify()[0] == 1199


def test_a_line_that_cannot_be_read_stays_where_it_is_and_is_told(
    files: JournalFolder, server: Journals
) -> None:
    with files.journal("auth").path.open("ab") as file:
        file.write(b"<<<<<<< ours\n")
    moved = {one.name: one for one in move(files, server).streams}["auth"]
    assert [complaint.line for complaint in moved.unreadable] == [1203]
    assert moved.records == 1199


class Forgetful(JournalFolder):
    """A place that says it kept records, and did not."""

    def journal(self, name: str) -> JsonlJournal:
        return Dropping(super().journal(name).path)


class Dropping(JsonlJournal):
    def append(self, drafts: Sequence[Record | Draft], *args: Any, **more: Any) -> list[Appended]:
        return super().append(drafts[:-1], **more)


def test_a_copy_that_lacks_a_record_is_not_called_moved(
    files: JournalFolder, tmp_path: Path
) -> None:
    with pytest.raises(JournalError, match="lacks records") as caught:
        move(files, Forgetful(tmp_path / "forgetful"))
    assert "Keep using the old place" in str(caught.value)


def test_what_is_written_while_it_moves_comes_along(files: JournalFolder, server: Journals) -> None:
    late = iter(["one", "two"])

    def writing(name: str, count: int) -> None:
        if name == "auth" and (run := next(late, None)):
            files.journal("auth").append([unnumbered(run)])

    move(files, server, writing)
    assert [summary(one) for one in records(server)["auth"]][-2:] == ["one", "two"]
    assert records(server) == records(files)


class Restless(JsonlJournal):
    """A journal that somebody adds to whenever it was read to its end."""

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        batch = super().read(position, limit=limit)
        if batch.done and limit is not None:
            JsonlJournal(self.path).append([unnumbered(uuid.uuid4().hex)])
        return batch


class RestlessFolder(JournalFolder):
    def journal(self, name: str) -> JsonlJournal:
        return Restless(super().journal(name).path)


def test_a_journal_that_is_written_to_without_end_is_not_called_moved(
    files: JournalFolder, server: Journals
) -> None:
    with pytest.raises(JournalError, match="faster than it can be copied"):
        move(RestlessFolder(files.path), server)
