"""The envelope: frozen values, a digest that is promised, times that are all written one way."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ralph.errors import BadRecord
from ralph.records import Complaint, Record, Source, now, utc

RECORD = Record(
    id="r1", kind="iteration", number=7, at="2026-02-07T14:30:00Z", body=b'{"feature":"auth"}'
)


def changed(**fields: object) -> Record:
    plain = {name: getattr(RECORD, name) for name in RECORD.__struct_fields__}
    return Record(**{**plain, **fields})


def test_equal_content_is_an_equal_record() -> None:
    assert changed() == RECORD
    assert hash(changed()) == hash(RECORD)
    assert changed(body=b"{}") != RECORD


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RECORD.number = 8  # type: ignore[misc]


def test_the_digest_of_a_record_is_the_same_for_ever() -> None:
    assert RECORD.digest == "435760f38cd7dd0cd5a7467df80dc7e1"


def test_the_digest_tells_kind_time_and_content_apart() -> None:
    others = [changed(kind="learning"), changed(at="2026-02-07T14:30:01Z"), changed(body=b"{}")]
    assert len({RECORD.digest, *(other.digest for other in others)}) == 4


def test_the_digest_leaves_out_number_source_and_id() -> None:
    elsewhere = changed(id="r2", number=9, source=Source(run="s2", file="out.jsonl", line=3))
    assert elsewhere.digest == RECORD.digest


def test_a_complaint_reads_as_file_line_and_what() -> None:
    assert str(Complaint("auth.jsonl", 12, "is torn")) == "auth.jsonl:12: is torn"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("2026-02-07T14:30:00Z", "2026-02-07T14:30:00Z"),
        ("2026-02-07T14:30:00+00:00", "2026-02-07T14:30:00Z"),
        ("2026-02-07T15:30:00+01:00", "2026-02-07T14:30:00Z"),
        ("2026-02-07T09:00:00.250-05:30", "2026-02-07T14:30:00.250Z"),
        ("2026-02-07T14:30:00.000Z", "2026-02-07T14:30:00Z"),
        ("2026-02-07T14:30:00.000001Z", "2026-02-07T14:30:00.000001Z"),
        ("2026-02-07T14:30:00", "2026-02-07T14:30:00Z"),
        ("2026-02-07 14:30", "2026-02-07T14:30:00Z"),
        ("2026-02-07", "2026-02-07T00:00:00Z"),
    ],
)
def test_every_time_is_written_in_utc_with_a_z(given: str, written: str) -> None:
    assert utc(given) == written
    assert utc(written) == written


@pytest.mark.parametrize(
    "given",
    [
        "yesterday",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+01:00",  # before the first year in UTC
        "9999-12-31T23:00:00-05:00",  # after the last one
        "1770474600",
    ],
)
def test_what_is_no_time_is_refused_with_an_example_of_one(given: str) -> None:
    with pytest.raises(BadRecord, match="is not a time") as caught:
        utc(given, field="created")
    assert f"created {given!r}" in str(caught.value)
    assert "2026-02-07T14:30:00Z" in str(caught.value)


@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime(2026, 2, 7, 14, 30, tzinfo=UTC))
def test_now_is_written_as_it_will_be_read_again(moment: datetime) -> None:
    # An exported record gets the same id when it is imported, on the full second too.
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.combine(moment.date(), moment.time(), tz)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ralph.records.datetime", Clock)
        written = now()
    assert utc(written) == written
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", written)
