"""An iteration: the same id for ever, nothing lost on the way through a record, limits kept."""

from __future__ import annotations

import string
from datetime import UTC, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ralph.errors import BadRecord
from ralph.journal.line import read_line, write_record
from ralph.records import Record, Source, utc
from ralph.records.iteration import (
    FIELDS,
    TRUNCATED,
    Decision,
    ErrorSeen,
    ErrorType,
    FileAction,
    FileTouched,
    Iteration,
    ModelTier,
    Outcome,
    cut,
    from_record,
    read_iteration,
    relative_path,
    strongest,
    thoughts,
    to_record,
)

EIGHT = {
    "project_id": "9f8a4c1e-0000-4000-8000-000000000001",
    "feature": "authentication",
    "number": 8,
    "task_id": 42,
    "run": "session-1",
}


def id_of(**changed: Any) -> str:
    parts: dict[str, Any] = {**EIGHT, **changed}
    made = Iteration(feature=parts["feature"], task_id=parts["task_id"], session_id=parts["run"])
    return to_record(made, project_id=parts["project_id"], number=parts["number"]).id


# -- ids


def test_the_id_of_an_iteration_is_the_same_for_ever() -> None:
    assert id_of() == "2d23bc3e-25a8-5de2-949a-ba1de6fba237"


def test_each_part_of_an_id_makes_another_one() -> None:
    ids = [
        id_of(),
        id_of(project_id="9f8a4c1e-0000-4000-8000-000000000002"),
        id_of(feature="authorisation"),
        id_of(number=9),
        id_of(task_id=43),
        id_of(task_id=None),
        id_of(run="session-2"),
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"project_id": "a", "feature": "bc"}, {"project_id": "ab", "feature": "c"}),
        ({"feature": "x", "number": 11}, {"feature": "x1", "number": 1}),
        ({"number": 1, "task_id": 12}, {"number": 11, "task_id": 2}),
        ({"task_id": "1", "run": "2x"}, {"task_id": "12", "run": "x"}),
        ({"feature": 'a","b'}, {"feature": "a"}),
        ({"task_id": None}, {"task_id": "None"}),
        ({"task_id": None}, {"task_id": "null"}),
        ({"task_id": None}, {"task_id": ""}),
    ],
)
def test_parts_of_an_id_do_not_run_into_each_other(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert id_of(**one) != id_of(**other)


def test_a_task_id_means_the_same_as_number_and_as_text() -> None:
    assert id_of(task_id=42) == id_of(task_id="42")


def test_two_branches_iteration_8_are_two_and_the_same_one_twice_is_one() -> None:
    def eighth(**fields: Any) -> str:
        return to_record(Iteration(feature="auth", **fields), project_id="p", number=8).id

    assert eighth(session_id="main") != eighth(session_id="branch")
    assert eighth(timestamp="2026-02-07T14:30:00Z") != eighth(timestamp="2026-02-07T14:30:01Z")
    assert eighth(timestamp="2026-02-07T14:30:00Z") == eighth(timestamp="2026-02-07T15:30:00+01:00")
    assert eighth(session_id="main", summary="a") == eighth(session_id="main", summary="b")


def test_the_run_is_the_agents_session_else_the_sources_else_the_time() -> None:
    at = "2026-02-07T14:30:00Z"
    source = Source(run="from-file", file="out.jsonl", line=3)

    def made(iteration: Iteration, source: Source | None) -> Record:
        return to_record(iteration, project_id="p", number=1, source=source)

    named = made(Iteration(timestamp=at, session_id="own"), source)
    found = made(Iteration(timestamp=at), source)
    bare = made(Iteration(timestamp=at), None)
    assert named.source == Source(run="own", file="out.jsonl", line=3)
    assert found.source == source
    assert bare.source == Source()
    expected = [
        id_of(project_id="p", feature="", number=1, task_id=None, run=run)
        for run in ("own", "from-file", at)
    ]
    assert [named.id, found.id, bare.id] == expected


# -- there and back

texts = st.text(max_size=40)
some_text = st.none() | st.text(min_size=1, max_size=40)
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
times = st.datetimes(timezones=zones).map(lambda moment: moment.isoformat())
iterations = st.builds(
    Iteration,
    feature=st.text(min_size=1, max_size=40),
    iteration_number=st.none() | st.integers(0, 2**53 - 1),
    task_id=st.none() | st.integers() | texts,
    task_title=texts,
    discipline=texts,
    timestamp=times,
    outcome=st.sampled_from(get_args(Outcome)),
    summary=st.text(max_size=3000),
    errors=st.lists(
        st.builds(
            ErrorSeen,
            texts,
            st.sampled_from(get_args(ErrorType)),
            some_text,
            st.none() | st.integers(),
        ),
        max_size=3,
    ).map(tuple),
    decisions=st.lists(st.builds(Decision, texts, some_text), max_size=3).map(tuple),
    files_touched=st.lists(
        st.builds(FileTouched, texts, st.sampled_from(get_args(FileAction))), max_size=3
    ).map(tuple),
    tokens_used=st.none() | st.integers(),
    cost_usd=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    duration_ms=st.none() | st.integers(),
    model=some_text,
    model_tier=st.none() | st.sampled_from(get_args(ModelTier)),
    session_id=some_text,
)


@given(iterations, st.integers(0, 2**53 - 1))
def test_any_iteration_comes_back_equal_from_a_line_of_the_journal(
    iteration: Iteration, number: int
) -> None:
    assume(iteration.timestamp and iteration.timestamp[:4] not in {"0001", "9999"})
    assert iteration.timestamp
    record = to_record(iteration, project_id="p", number=number)
    line = write_record(record)
    assert line.count(b"\n") == 1
    back, digest = read_line(line.rstrip(b"\n"))
    assert back == record
    assert digest == record.digest
    assert from_record(back) == replaced(
        iteration, iteration_number=number, timestamp=utc(iteration.timestamp)
    )


@given(iterations)
def test_any_iteration_comes_back_equal_from_its_published_json(iteration: Iteration) -> None:
    plain = iteration.to_json()
    assert tuple(plain) == FIELDS
    assert read_iteration(plain) == iteration


def replaced(iteration: Iteration, **fields: Any) -> Iteration:
    plain = {name: getattr(iteration, name) for name in FIELDS}
    return Iteration(**{**plain, **fields})


def test_the_published_json_names_every_field_the_empty_ones_too() -> None:
    iteration = Iteration(errors=(ErrorSeen("boom"),), decisions=(Decision("use X"),))
    plain = iteration.to_json()
    assert plain["errors"] == [
        {"message": "boom", "error_type": "unknown", "file_path": None, "line": None}
    ]
    assert plain["decisions"] == [{"description": "use X", "rationale": None}]
    assert plain["task_id"] is None
    assert list(plain["files_touched"]) == []


@pytest.mark.parametrize(
    "iteration",
    [
        Iteration(summary="broken \ud83d"),
        Iteration(feature="\udcff"),
        Iteration(session_id="\ud800"),
        Iteration(task_id="\ud800"),
        Iteration(errors=(ErrorSeen("\udfff"),)),
        Iteration(files_touched=(FileTouched("caf\udce9.py", "read"),)),
    ],
)
def test_half_a_character_is_refused_with_a_clear_word(iteration: Iteration) -> None:
    with pytest.raises(BadRecord, match="lone surrogate"):
        to_record(iteration, project_id="p", number=1)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), float("-inf")])
def test_a_cost_that_json_cannot_keep_is_refused(cost: float) -> None:
    with pytest.raises(BadRecord, match="cost_usd"):
        to_record(Iteration(cost_usd=cost), project_id="p", number=1)


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        ({"outcome": "great"}, "outcome"),
        ({"tokens_used": "many"}, "tokens_used"),
        ({"errors": [{"error_type": "test"}]}, "message"),
        ({"files_touched": [{"path": "a.py", "action": "sniffed"}]}, "action"),
        ({"iteration_number": 1.5}, "iteration_number"),
        ({"summary": []}, "summary"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_place(
    plain: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRecord, match=named) as caught:
        read_iteration(plain, where="stdin:3")
    assert str(caught.value).startswith("stdin:3: not an iteration")


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"feature":1}',
        b'{"feature":"auth","outcome":"great"}',
        b'{"feature":"auth"',
        b'{"feature":"\xff"}',
        b'{"feature":"auth","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_record_without_an_iteration_inside_is_refused_with_its_id(body: bytes) -> None:
    record = Record(id="r1", kind="iteration", number=1, at="2026-02-07T14:30:00Z", body=body)
    with pytest.raises(BadRecord, match="record r1 is not a readable iteration"):
        from_record(record)


@pytest.mark.parametrize("at", ["", "not a time", "2026-13-01T00:00:00Z"])
def test_a_record_of_no_time_is_refused_with_its_id(at: str) -> None:
    record = Record(id="r1", kind="iteration", number=1, at=at, body=b'{"feature":"auth"}')
    with pytest.raises(BadRecord, match=f"r1 is not a readable iteration: at {at!r} is not a time"):
        from_record(record)


def test_a_field_that_is_null_is_one_that_was_left_out() -> None:
    plain = {
        "summary": "s",
        "discipline": None,
        "decisions": None,
        "errors": [{"message": "m", "error_type": None, "file_path": None, "line": None}],
    }
    assert read_iteration(plain) == Iteration(summary="s", errors=(ErrorSeen("m"),))


@pytest.mark.parametrize(
    ("plain", "choices"),
    [
        ({"outcome": "done"}, "one of success, failure, partial, timeout, rate_limited, inter"),
        ({"errors": [{"message": "m", "error_type": "odd"}]}, "one of runtime, compile, test"),
        ({"files_touched": [{"path": "a", "action": "seen"}]}, "one of read, modified, created"),
        ({"model_tier": "sonnet"}, "one of haiku, opus"),
    ],
)
def test_a_word_that_does_not_fit_is_told_with_those_that_do(
    plain: dict[str, Any], choices: str
) -> None:
    with pytest.raises(BadRecord, match=choices):
        read_iteration(plain)


def test_a_misspelled_field_is_refused_with_the_right_one() -> None:
    with pytest.raises(BadRecord, match=r"no field 'outcom'.*Did you mean outcome\?"):
        read_iteration({"feature": "auth", "outcom": "success"})


def test_second_names_of_fields_are_accepted() -> None:
    read = read_iteration({"feature": "auth", "iteration": 3, "errors_encountered": ["boom"]})

    assert read.iteration_number == 3
    assert read.errors == (ErrorSeen("boom"),)


@pytest.mark.parametrize("other", [None, "text", [1], 7])
def test_what_is_no_object_is_no_iteration(other: Any) -> None:
    with pytest.raises(BadRecord, match="an iteration must be an object, not a "):
        read_iteration(other)


def test_fields_of_a_later_version_are_no_hindrance() -> None:
    record = Record(
        "r1", "iteration", 1, "2026-02-07T14:30:00Z", b'{"feature":"auth","mood":"calm"}'
    )
    assert from_record(record).feature == "auth"


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_failure_and_timeout_are_the_failed_ones(outcome: Outcome) -> None:
    assert Iteration(outcome=outcome).failed == (outcome in {"failure", "timeout"})


# -- limits


@pytest.mark.parametrize(
    ("text", "max_chars", "kept"),
    [
        ("short", 2000, "short"),
        ("x" * 2000, 2000, "x" * 2000),
        ("x" * 2001, 2000, "x" * 1988 + " [truncated]"),
        ("words and more words", 17, "words [truncated]"),
        ("no room to say so", 5, "no ro"),
        ("anything", 0, ""),
        ("", 0, ""),
    ],
)
def test_a_text_over_its_limit_is_cut_and_says_so(text: str, max_chars: int, kept: str) -> None:
    assert cut(text, max_chars) == kept


@given(st.text(), st.integers(0, 50))
def test_a_cut_text_is_never_over_its_limit_and_an_uncut_one_is_untouched(
    text: str, max_chars: int
) -> None:
    kept = cut(text, max_chars)
    assert len(kept) <= max_chars
    if len(text) <= max_chars:
        assert kept == text
    elif max_chars > len(TRUNCATED):
        assert kept.endswith(TRUNCATED)
        assert text.startswith(kept.removesuffix(TRUNCATED))
    assert cut(kept, max_chars) == kept


def test_f7_short_thoughts_are_one_text_without_what_is_empty() -> None:
    iteration = Iteration(
        task_title="Login form",
        summary="Validated the input.",
        errors=(ErrorSeen("TypeError: x", resolution="guard it"), ErrorSeen("")),
        decisions=(Decision("use zod", "typed"), Decision("no captcha")),
        discipline="backend",
    )
    assert thoughts(iteration) == [
        "Validated the input.\nTypeError: x\nguard it\nuse zod: typed\nno captcha"
    ]
    assert thoughts(Iteration()) == []


def test_f7_long_errors_and_decisions_are_thoughts_of_their_own() -> None:
    long = ErrorSeen("OSError: " + "no space left " * 80)
    decision = Decision("Logs go to another disk. " * 40)
    iteration = Iteration(
        summary="Validated the input.",
        errors=(long, ErrorSeen("TypeError: x"), ErrorSeen("KeyError: y")),
        decisions=(decision,),
    )
    assert thoughts(iteration) == [
        "Validated the input.",
        long.message,
        "TypeError: x\nKeyError: y",
        decision.description,
    ]


@pytest.mark.parametrize(
    ("path", "root", "kept"),
    [
        ("src/a.py", None, "src/a.py"),
        ("./src//a.py", None, "src/a.py"),
        ("src\\win\\a.py", None, "src/win/a.py"),
        ("src/", None, "src"),
        ("a b/ä'\".py", None, "a b/ä'\".py"),
        ("..a/b..", None, "..a/b.."),
        ("/home/ada/project/src/a.py", "/home/ada/project", "src/a.py"),
        ("/home/ada/project/src/a.py", "/home/ada/project/", "src/a.py"),
        ("C:\\Users\\ada\\project\\src\\a.py", "C:\\Users\\ada\\project", "src/a.py"),
        ("C:/Users/ada/project/src/a.py", "C:\\Users\\ada\\project\\", "src/a.py"),
        ("src/a.py", "/home/ada/project", "src/a.py"),
        # outside, or nowhere
        ("/etc/passwd", None, None),
        ("/etc/passwd", "/home/ada/project", None),
        ("/home/ada/project2/a.py", "/home/ada/project", None),
        ("/home/ada/project-old/a.py", "/home/ada/project", None),
        ("/home/ada/project", "/home/ada/project", None),
        ("/home/ada/project/../secret", "/home/ada/project", None),
        ("/home/ada/project//etc/passwd", "/home/ada/project", None),
        ("../secret", None, None),
        ("src/../../secret", None, None),
        ("src\\..\\..\\secret", None, None),
        ("\\\\server\\share\\a.py", None, None),
        ("C:\\Windows\\a.py", None, None),
        ("c:a.py", None, None),
        ("./C:/Windows/a.py", None, None),
        ("src/a\0.py", None, None),
        ("", None, None),
        (".", None, None),
        ("./", None, None),
        ("/", "/", None),
    ],
)
def test_f9_a_path_is_kept_as_seen_from_the_root_or_not_at_all(
    path: str, root: str | None, kept: str | None
) -> None:
    assert relative_path(path, root) == kept


pieces = st.sampled_from(["a", "src", "..", ".", "/", "\\", "C:", "\0", "ä b", "~", ""])
paths = st.lists(pieces, max_size=8).map("".join) | st.text(max_size=20)


@given(paths, st.none() | st.sampled_from(["/home/ada", "C:\\p", "/"]) | paths)
def test_f9_no_path_leads_out_of_the_project(path: str, root: str | None) -> None:
    kept = relative_path(path, root)
    if kept is None:
        return
    pure = PurePosixPath(kept)
    assert not pure.is_absolute()
    assert ".." not in pure.parts
    assert not {"\\", "\0"} & set(kept)
    assert not (kept[1:2] == ":" and kept[0] in string.ascii_letters)
    assert relative_path(kept) == kept


def test_a_file_is_listed_once_with_the_strongest_thing_done_to_it() -> None:
    touched = (
        FileTouched("src/a.py", "read"),
        FileTouched("b.py", "created"),
        FileTouched("src\\a.py", "modified"),
        FileTouched("/home/ada/p/b.py", "read"),
        FileTouched("./src/a.py", "read"),
        FileTouched("../out.py", "deleted"),
        FileTouched("c.py", "deleted"),
        FileTouched("c.py", "created"),
    )
    assert strongest(touched, "/home/ada/p") == (
        FileTouched("src/a.py", "modified"),
        FileTouched("b.py", "created"),
        FileTouched("c.py", "deleted"),
    )


actions = st.sampled_from(get_args(FileAction))


@given(st.lists(st.builds(FileTouched, st.sampled_from("abc"), actions)))
def test_the_strongest_action_does_not_hang_on_the_order(files: list[FileTouched]) -> None:
    strength = {"read": 0, "modified": 1, "created": 2, "deleted": 3}
    expected = {
        path: max((f.action for f in files if f.path == path), key=strength.__getitem__)
        for path in {f.path for f in files}
    }
    kept = strongest(tuple(files))
    assert {f.path: f.action for f in kept} == expected
    assert len(kept) == len(expected)
    assert [f.path for f in kept] == list(dict.fromkeys(f.path for f in files))


def test_errors_and_decisions_may_be_plain_texts_and_the_number_has_a_short_name() -> None:
    entry = {
        "iteration": 7,
        "summary": "Implemented LoginForm.tsx.",
        "errors_encountered": ["TypeError: Cannot read property 'user' of undefined"],
        "decisions": ["Used React Hook Form", {"description": "Added a type guard"}],
    }

    read = read_iteration(entry)

    assert read.iteration_number == 7
    assert [one.message for one in read.errors] == entry["errors_encountered"]
    assert [one.description for one in read.decisions] == [
        "Used React Hook Form",
        "Added a type guard",
    ]
