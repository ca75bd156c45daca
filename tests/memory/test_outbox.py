"""What waits for a server goes there in its order and once, and what it refuses is set aside."""

from __future__ import annotations

import logging
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from ralph.errors import (
    AccessRefused,
    BadInput,
    JournalDown,
    NotFound,
    RecordForgotten,
    ServerFailed,
)
from ralph.memory.outbox import _LARGEST_BYTES, Outbox, outbox_files
from ralph.memory.servers import (
    FILE,
    ServerLogin,
    find_login,
    save_login,
    save_run_token,
    server_folders,
    unbind_folder,
)

ADDRESS = "https://ralph.example.com/projects/shop"
OTHER = "https://ralph.example.com/projects/bank"


class Receiver:
    """A server that keeps what it is sent, until it is told to fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fails_at: dict[Any, Exception] = {}

    def __call__(self, path: str, body: Any) -> None:
        for one in body if isinstance(body, list) else [body]:
            if one in self.fails_at:
                raise self.fails_at[one]
        self.calls.append((path, body))

    @property
    def items(self) -> list[Any]:
        return [
            one for _, body in self.calls for one in (body if isinstance(body, list) else [body])
        ]


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path, ADDRESS, "ann")


def test_calls_go_in_their_order_and_those_that_can_go_together_do(outbox: Outbox) -> None:
    for number in range(120):
        outbox.keep("/iterations", [number])
    outbox.keep("/notes", "a note")
    outbox.keep("/iterations", ["last"])
    receiver = Receiver()
    assert outbox.deliver(receiver)
    assert receiver.items == [*range(120), "a note", "last"]
    assert [len(body) for path, body in receiver.calls if path == "/iterations"] == [50, 50, 20, 1]
    assert not outbox.holds
    assert outbox.deliver(receiver)
    assert len(receiver.calls) == 5


def test_no_call_is_larger_than_a_server_takes(outbox: Outbox) -> None:
    for letter in "abc":
        outbox.keep("/iterations", [letter * (_LARGEST_BYTES // 2)])
    receiver = Receiver()
    outbox.deliver(receiver)
    assert len(receiver.calls) == 3


@pytest.mark.parametrize(
    "error", [JournalDown("away"), AccessRefused("revoked"), NotFound("no such project")]
)
def test_what_cannot_go_now_stays_whole(outbox: Outbox, tmp_path: Path, error: Exception) -> None:
    outbox.keep("/iterations", ["one"])
    outbox.keep("/notes", "two")
    receiver = Receiver()
    receiver.fails_at = {"two": error}
    with pytest.raises(type(error)):
        outbox.deliver(receiver)
    # Another process finds both. The server was given the first one twice, and knows it by its id.
    again = Receiver()
    Outbox(tmp_path, ADDRESS, "ann").deliver(again)
    assert (receiver.items, again.items) == (["one"], ["one", "two"])


def test_what_a_server_does_not_take_is_set_aside_and_told(
    outbox: Outbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for one in ("good", "odd", "gone", "fine"):
        outbox.keep("/iterations", [one])
    receiver = Receiver()
    receiver.fails_at = {"odd": BadInput("odd"), "gone": RecordForgotten("gone")}
    with caplog.at_level(logging.WARNING, "ralph"):
        assert outbox.deliver(receiver)
    assert receiver.items == ["good", "fine"]
    assert not outbox.holds
    [line] = caplog.messages
    assert "ralph doctor" in line
    [[call]] = outbox_files(tmp_path).values()
    assert (call.body, call.why) == (["odd"], "odd")


def test_two_servers_have_an_outbox_each(outbox: Outbox, tmp_path: Path) -> None:
    outbox.keep("/notes", "one")
    assert not Outbox(tmp_path, OTHER, "ann").holds


def test_what_one_token_saved_goes_out_under_another_only_if_a_person_says_so(
    outbox: Outbox, tmp_path: Path
) -> None:
    outbox.keep("/notes", "one")
    other, receiver = Outbox(tmp_path, ADDRESS, "ben"), Receiver()
    assert not other.holds
    other.keep("/notes", "two")
    assert other.deliver(receiver)
    assert receiver.items == ["two"]
    assert [one.body for one in outbox.calls()] == ["one"]
    assert "ann" not in "".join(f"{f} {f.read_text()}" for f in tmp_path.rglob("*.jsonl"))
    other.take_over("cid")
    assert not other.holds
    other.take_over("ann")
    assert other.deliver(receiver)
    assert receiver.items == ["two", "one"]
    assert not outbox.holds


def test_a_record_that_fails_while_others_pass_is_set_aside_and_can_be_sent_again(
    outbox: Outbox, tmp_path: Path
) -> None:
    for one in ("bomb", "good", "mine"):
        outbox.keep("/iterations", [one])
    outbox.keep("/notes", "fine")
    receiver = Receiver()
    receiver.fails_at = {"bomb": ServerFailed("500"), "mine": ServerFailed("503")}
    assert outbox.deliver(receiver)
    assert receiver.items == ["good", "fine"]
    [calls] = outbox_files(tmp_path).values()
    assert [(one.body, one.why, one.address) for one in calls] == [
        (["bomb"], "500", ADDRESS),
        (["mine"], "503", ADDRESS),
    ]
    receiver.fails_at = {}
    outbox.take_over()
    assert outbox.deliver(receiver)
    assert receiver.items == ["good", "fine", "bomb", "mine"]
    assert not outbox_files(tmp_path)


def test_a_server_that_fails_at_everything_is_left_alone_and_all_stays(
    outbox: Outbox, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def fail(_: str, body: Any) -> None:
        asked.append(body)
        raise ServerFailed("500")

    for number in range(40):
        outbox.keep("/iterations", [number])
    with pytest.raises(ServerFailed):
        outbox.deliver(fail)
    assert len(asked) == 4
    assert len(outbox.calls()) == 40
    assert list(outbox_files(tmp_path)) == [outbox.file]


def test_a_record_that_recovers_is_not_set_aside(outbox: Outbox, tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.fails_at = {"slow": ServerFailed("503")}

    def send(path: str, body: Any) -> None:
        receiver(path, body)
        receiver.fails_at = {}

    outbox.keep("/notes", "slow")
    outbox.keep("/notes", "good")
    assert outbox.deliver(send)
    assert receiver.items == ["good", "slow"]
    assert not outbox_files(tmp_path)


# -- whose memory is where


def test_a_saved_token_goes_to_its_own_server_and_one_of_the_environment_to_no_saved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    assert find_login(home, root) is None
    save_login(home, ServerLogin(ADDRESS, "saved"), root)
    assert find_login(home, root) == (ADDRESS, "saved")
    assert find_login(home, tmp_path) is None
    assert find_login(home, tmp_path, given=OTHER) == (OTHER, "")
    assert find_login(home, tmp_path, given=f"{ADDRESS}/") == (ADDRESS, "saved")
    monkeypatch.setenv("RALPH_TOKEN", "given")
    assert find_login(home, root) == (ADDRESS, "saved")
    assert find_login(home, root, given=OTHER) == (OTHER, "given")
    # A run's tools get its token; a bound folder keeps its own.
    save_run_token(home, ServerLogin(ADDRESS, "run"), str(root))
    with monkeypatch.context() as tools:
        tools.delenv("RALPH_TOKEN")
        assert find_login(home, root, given=ADDRESS) == (ADDRESS, "saved")
        tools.setenv("RALPH_PROJECT", str(root))
        assert find_login(home, root) == (ADDRESS, "saved")
        tools.setenv("RALPH_SERVER", ADDRESS)
        assert find_login(home, tmp_path) == (ADDRESS, "run")
        tools.setenv("RALPH_PROJECT", str(tmp_path))
        assert find_login(home, root) == (ADDRESS, "saved")
    monkeypatch.setenv("RALPH_SERVER", OTHER)
    assert find_login(home, root) == (OTHER, "given")
    # As a hook of a person's session asks.
    assert find_login(home, root, environment=False) == (ADDRESS, "saved")
    assert find_login(home, tmp_path, environment=False) is None


def test_a_token_goes_with_the_last_folder_that_needs_it(tmp_path: Path) -> None:
    home, login = tmp_path / "home", ServerLogin(ADDRESS, "secret")
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        save_login(home, login, root)
    if sys.platform != "win32":
        assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert "secret" not in repr(login)
    assert unbind_folder(home, roots[0]) == ADDRESS
    assert server_folders(home) == {os.path.realpath(roots[1]): ADDRESS}
    assert b"secret" in (home / FILE).read_bytes()
    assert unbind_folder(home, roots[1]) == ADDRESS
    assert b"secret" not in (home / FILE).read_bytes()
    assert unbind_folder(home, roots[1]) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"folders": 7, "tokens": {}}', '{"folders": {}}'])
def test_a_file_that_cannot_be_read_says_so_and_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="hooks install --server"):
        server_folders(tmp_path)
