"""`ralph record`: every form of input, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN, Line

pytestmark = pytest.mark.usefixtures("words")


def test_what_was_written_is_told_as_json(ralph: Line) -> None:
    ran = ralph.well("record", "--feature", "auth", "-", "--json", stdin=json.dumps(COOKIE))

    [told] = ran.json
    assert told == {
        "id": told["id"],
        "kind": "iteration",
        "feature": "auth",
        "iteration_number": 1,
        "task_id": 42,
        "task_title": "Keep people signed in",
        "discipline": "",
        "timestamp": "2026-02-08T09:00:00Z",
        "outcome": "failure",
        "summary": "The browser drops the session cookie.",
        "errors": [
            {
                "message": "AssertionError: Set-Cookie refused",
                "error_type": "test",
                "file_path": "tests/test_session.py",
                "line": 88,
            }
        ],
        "decisions": [{"description": "Use Redis", "rationale": "it is there"}],
        "files_touched": [{"path": "src/app.py", "action": "read"}],
        "tokens_used": None,
        "cost_usd": None,
        "duration_ms": None,
        "model": None,
        "model_tier": None,
        "session_id": "run-7",
    }
    assert len(told["id"]) == 36
    assert ran.err == ""


A, B = '{"summary": "first"}', '{"summary": "second"}'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (A, [1]),
        (f"{A}\n{B}\n", [1, 2]),
        (f"\n\n{A}\r\n\r\n{B}", [3, 5]),
        (f"[{A}, {B}]", [1, 1]),
        (f"[\n  {A},\n  {B}\n]\n", [2, 3]),
        ('{\n  "summary":\n    "first"\n}\n' + B, [1, 5]),
        (f"[{A}]\n[{B}]", [1, 2]),
        (f"\ufeff{A}", [1]),
    ],
)
def test_records_come_in_any_form_each_with_its_line(
    ralph: Line, text: str, lines: list[int]
) -> None:
    Path("in.json").write_text(text, encoding="utf-8", newline="")
    ran = ralph.well("record", "--feature", "auth", "in.json", "--json")

    assert [one["summary"] for one in ran.json] == ["first", "second"][: len(lines)]
    shown = [ralph.well("show", one["id"], "--json").json for one in ran.json]
    assert [one["source"] for one in shown] == [{"file": "in.json", "line": n} for n in lines]


def test_a_file_in_utf_16_is_read(ralph: Line) -> None:
    ran = ralph.well(
        "record", "--feature", "auth", "-", stdin='{"summary": "größer"}'.encode("utf-16")
    )

    assert ran.out.startswith("Recorded 1 iteration of auth.\n")


def test_stdin_is_the_source_of_what_it_gave(ralph: Line) -> None:
    [record_id] = ralph.record("auth", LOGIN)

    assert ralph.well("show", record_id, "--json").json["source"] == {"file": "<stdin>", "line": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "in.json: there is nothing in it to record"),
        ("  \n \n", "in.json: there is nothing in it to record"),
        ("[]", "in.json: there is nothing in it to record"),
        ("words", "in.json:1: is not JSON: Expecting value (column 1)"),
        (A + "\n{'summary': 1}", "in.json:2: is not JSON: Expecting property name"),
        (A + "\n[" + B, "in.json:2: is not JSON: Expecting ',' delimiter"),
        (f"[{A} {B}]", "in.json:1: is not JSON: Expecting ',' delimiter"),
        (f"[{A},]", "in.json:1: is not JSON"),
        (A + "\n7", "in.json:2: a record is a JSON object, not 7"),
        ('{"summary": NaN}', "in.json:1: is not JSON: NaN is not a JSON value"),
        (
            A + '\n{"summary": 7}',
            "in.json:2: not an iteration: Expected `str`, got `int` - at `$.summary`",
        ),
        ('{"summary": "x", "outcome": "great"}', "in.json:1: not an iteration: Invalid enum value"),
        (
            A + '\n{"summary": "x", "timestamp": "soon"}',
            "in.json:2: timestamp 'soon' is not a time",
        ),
        (A + '\n{"task_id": 4}', "in.json:2: there is nothing in this iteration to remember"),
        (A + '\n{"summary": "x", "iteration_number": 0}', "in.json:2: iteration_number goes"),
        (
            A + '\n{"summary": "x", "feature": "other"}',
            "in.json:2: this record is of feature 'other'",
        ),
        (
            '{"errors": [{"message": 1}]}',
            "in.json:1: not an iteration: Expected `str`, got `int` - at `$.errors[0].message`",
        ),
        ("[" * 100_000, "in.json:1: is not JSON"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place_and_nothing_is_written(
    ralph: Line, project: Path, text: str, told: str
) -> None:
    Path("in.json").write_text(text, encoding="utf-8")

    ran = ralph("record", "--feature", "auth", "in.json")

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {told}")
    assert ran.out == ""
    assert list((project / ".ralph/db/memory").glob("*.jsonl")) == []


def test_bytes_that_are_no_text_are_told_with_their_line(ralph: Line) -> None:
    ran = ralph("record", "--feature", "auth", "-", stdin=A.encode() + b'\n{"summary": "\xff"}')

    assert ran.code == 1
    assert ran.complaint == "ralph: <stdin>:2: is not UTF-8 text"


def test_flags_fill_only_what_a_record_does_not_say(ralph: Line) -> None:
    said = {"summary": "x", "task_id": 7, "task_title": "Own", "outcome": "unknown", "feature": "f"}
    text = "\n".join([json.dumps(said), '{"summary": "y", "task_title": "", "outcome": null}'])
    flags = "--feature f --task 42 --title T --discipline backend --outcome success".split()
    own, filled = ralph.well("record", *flags, "-", "--json", stdin=text).json

    names = ("feature", "task_id", "task_title", "discipline", "outcome")
    assert [own[name] for name in names] == ["f", 7, "Own", "backend", "unknown"]
    assert [filled[name] for name in names] == ["f", 42, "T", "backend", "success"]


@pytest.mark.parametrize(("given", "kept"), [("42", 42), ("T-1", "T-1"), ("²", "²")])
def test_a_task_is_a_number_where_it_looks_like_one(
    ralph: Line, given: str, kept: int | str
) -> None:
    [one] = ralph.well("record", "--feature", "f", "--task", given, "-", "--json", stdin=A).json

    assert one["task_id"] == kept


def test_records_may_name_their_features_themselves(ralph: Line) -> None:
    records = [{"feature": name, "summary": f"{n}"} for n, name in enumerate("bab")]
    ran = ralph.well("record", "-", "--json", stdin=json.dumps(records))

    told = [(one["feature"], one["iteration_number"]) for one in ran.json]
    assert told == [("b", 1), ("a", 1), ("b", 2)]


@pytest.mark.parametrize("bad", ['"timestamp": "never"', '"cost_usd": 1e999', '"tokens_used": -1'])
def test_one_bad_record_keeps_every_feature_unwritten(ralph: Line, project: Path, bad: str) -> None:
    lines = ['{"feature": "a", "summary": "fine"}', f'{{"feature": "b", "summary": "x", {bad}}}']

    ran = ralph("record", "-", stdin="\n".join(lines))

    assert ran.code == 1
    assert ran.complaint.startswith("ralph: <stdin>:2: ")
    assert list((project / ".ralph/db/memory").glob("*.jsonl")) == []


def test_a_record_without_a_feature_is_refused(ralph: Line) -> None:
    ran = ralph("record", "-", stdin=A)

    assert ran.code == 1
    assert ran.complaint.endswith("Add --feature NAME, or write it into the record.")


def test_errors_and_decisions_may_be_texts(ralph: Line) -> None:
    text = json.dumps({"summary": "x", "errors": ["TypeError: a"], "decisions": ["Keep it."]})

    ran = ralph.well("record", "--feature", "f", "-", "--json", stdin=text)

    [record] = json.loads(ran.out)
    assert record["errors"][0]["message"] == "TypeError: a"
    assert record["decisions"][0]["description"] == "Keep it."
    assert ran.err == ""


def test_unknown_fields_are_ignored_with_one_warning(ralph: Line) -> None:
    text = json.dumps([{"summary": "x", "mood": 1, "errors": [{"message": "m", "code": 2}]}] * 2)

    ran = ralph.well("record", "--feature", "f", "-", stdin=text)

    assert ran.complaint == ("ralph: <stdin>: ignored unknown fields: mood, errors.code")


def test_the_same_record_twice_is_one(ralph: Line) -> None:
    ids = ralph.record("auth", LOGIN)

    assert ralph.record("auth", LOGIN) == ids
    ran = ralph.well("record", "--feature", "auth", "-", stdin=json.dumps(LOGIN))
    assert ran.out == f"Recorded 0 iterations of auth (1 was already known).\n  {ids[0][:8]}\n"
    assert len(ralph.well("recent", "--json").json) == 1
