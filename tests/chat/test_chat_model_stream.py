"""Bytes to events and events to an answer, however they are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ralph.chat.providers import AnswerStream, EventReader

STREAM = (
    b": a comment\n\n"
    b"event: message\r\ndata: one\r\n\r\n"
    b"data:two, \xf0\x9f\xa6\x8a\nid: 7\n\n"
    b"data: three\ndata: and more\n\n"
    b"\n\nretry: 10\n\n"
    b"data: torn"
)
DATA = [b"one", b"two, \xf0\x9f\xa6\x8a", b"three\nand more"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_do_not_depend_on_how_the_bytes_are_cut(cuts: list[int]) -> None:
    events = EventReader()
    at = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(at)]
    assert [data for piece in pieces for data in events.feed(piece)] == DATA
    assert events.seen


def test_what_is_no_event_is_kept_as_it_came() -> None:
    events = EventReader()
    assert [*events.feed(b'{"error":\n'), *events.feed(b' "no"}\n')] == []
    assert not events.seen
    assert events.plain == b'{"error":\n "no"}\n'


def test_pieces_of_calls_come_together_by_place_id_or_order() -> None:
    heard: list[str] = []
    answer = AnswerStream(heard.append)
    answer.add_text("He")
    answer.add_text("")
    answer.add_text("y")
    answer.add_call(0, "a", "first", "{")
    answer.add_call(1, "b", "second", '{"y"')
    answer.add_call(0, "", "", "}")
    answer.add_call(1, "b", "", ": 2}")
    answer.add_call(1, "c", "third", "")
    assert answer.text == "Hey"
    assert heard == ["He", "y"]
    assert [(c.id, c.name, c.arguments) for c in answer.calls] == [
        ("a", "first", {}),
        ("b", "second", {"y": 2}),
        ("c", "third", {}),
    ]
