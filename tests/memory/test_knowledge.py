"""Knowledge is captured whole, once, without secrets; what does not fit is refused by name."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from journaling import child, hear, tell
from knowing import LESSONS, journals, lesson, lines, opened, solved
from remembering import files_holding

from ralph.errors import BadInput, BadRecord, JournalError, NotFound
from ralph.memory.knowledge import Knowledge
from ralph.records.knowledge import FailureSolution, GateApproval, GateRejection

REJECTION: dict[str, Any] = {
    "entry_type": "gate_rejection",
    "gate_type": "design",
    "human_feedback": "The endpoint leaks the e-mail of other people",
    "revision_approach": "Return only what the asking person may see",
}
APPROVAL: dict[str, Any] = {
    "entry_type": "gate_approval",
    "gate_type": "release",
    "approved_approach": "Roll out to one per cent first, then to all",
}
WHOLE = {
    "project": "billing",
    "agent_type": "backend",
    "task_type": "bugfix",
    "technology": "python",
    "subject": "Repair the migration",
}
TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hJ3kL6"


# -- what an entry must have


@pytest.mark.parametrize("plain", [lesson(0), REJECTION, APPROVAL], ids=lambda p: p["entry_type"])
def test_an_entry_is_staged_with_everything_it_says(
    knowledge: Knowledge, plain: dict[str, Any]
) -> None:
    captured = knowledge.capture({**plain, **WHOLE})

    assert (captured.fresh, captured.staged) == (True, True)
    assert {**plain, **WHOLE}.items() <= captured.record.to_json().items()
    [waiting] = knowledge.staged("billing")
    assert (waiting.id, waiting.record) == (captured.id, captured.record)
    assert knowledge.get(captured.id[:6]).id == captured.id
    assert captured.to_json()["record"]["entry_type"] == plain["entry_type"]


def test_each_type_has_a_call_of_its_own(knowledge: Knowledge) -> None:
    problem, error, _ = LESSONS[0]
    failure = knowledge.capture_failure_solution(
        failure_description=problem, error_message=error, solution_steps=[" One ", "Two"]
    )
    rejection = knowledge.capture_gate_rejection(
        gate_type="design", human_feedback="Too slow", revision_approach="Cache it"
    )
    approval = knowledge.capture_gate_approval(gate_type="design", approved_approach="Cache it")

    assert isinstance(failure.record, FailureSolution)
    assert failure.record.solution_steps == "One\nTwo"
    assert (type(rejection.record), type(approval.record)) == (GateRejection, GateApproval)
    own = knowledge.staged()
    assert [one.id for one in own] == [failure.id, rejection.id, approval.id]
    assert len({one.record.project for one in own}) == 1


@pytest.mark.parametrize(
    ("plain", "field"),
    [
        (lesson(0), "failure_description"),
        (lesson(0), "solution_steps"),
        (REJECTION, "gate_type"),
        (REJECTION, "human_feedback"),
        (REJECTION, "revision_approach"),
        (APPROVAL, "gate_type"),
        (APPROVAL, "approved_approach"),
    ],
)
@pytest.mark.parametrize("empty", [None, "", "  \n", "\u200b\u2060"])
def test_a_field_that_is_needed_is_asked_for(
    knowledge: Knowledge, home: Path, plain: dict[str, Any], field: str, empty: str | None
) -> None:
    with pytest.raises(BadRecord, match=f"a {plain['entry_type']} needs {field}") as caught:
        knowledge.capture({**plain, field: empty})
    assert caught.value.todo
    assert journals(home) == []


def test_a_failure_whose_solution_was_not_seen_to_work_is_refused(
    knowledge: Knowledge, home: Path
) -> None:
    with pytest.raises(BadRecord, match="not verified") as caught:
        knowledge.capture(lesson(0, success_verified=False))
    assert caught.value.todo == "Capture it when the solution was seen to work."
    with pytest.raises(BadRecord, match="not verified"):
        knowledge.capture_failure_solution(
            failure_description="It fails", solution_steps="Pray", success_verified=False
        )
    assert journals(home) == []


@pytest.mark.parametrize(
    ("plain", "what"),
    [
        ({}, "no entry_type"),
        ({"entry_type": "rumour"}, "there is no entry_type 'rumour'"),
        ({"entry_type": ["failure_solution"]}, "there is no entry_type"),
        ({"entry_type": 5}, "there is no entry_type 5"),
        (lesson(0, solution="x"), "a failure_solution has no field 'solution'"),
        ({**APPROVAL, "human_feedback": "x"}, "a gate_approval has no field 'human_feedback'"),
        (lesson(0, technology=["python"]), "Expected `str`, got `array` - at `$.technology`"),
        (lesson(0, agent_type=0), "Expected `str`, got `int` - at `$.agent_type`"),
        (lesson(0, subject=False), "Expected `str`, got `bool` - at `$.subject`"),
        (lesson(0, failure_description={}), "at `$.failure_description`"),
        (lesson(0, success_verified="yes"), "Expected `bool`, got `str`"),
        (lesson(0, solution_steps=["one", 2]), "a text, or a list of texts"),
        (lesson(0, solution_steps=7), "Expected `str`, got `int` - at `$.solution_steps`"),
        (lesson(0, project=7), "at `$.project`"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    knowledge: Knowledge, home: Path, plain: dict[str, Any], what: str
) -> None:
    with pytest.raises(BadRecord) as caught:
        knowledge.capture(plain)
    assert what in str(caught.value)
    assert journals(home) == []


def test_python_cannot_write_what_could_not_be_read_back(knowledge: Knowledge, home: Path) -> None:
    for field, wrong in (
        ("error_message", 7),
        ("failure_description", b"It fails"),
        ("failure_description", None),
        ("solution_steps", ["Mend it", 7]),
        ("solution_steps", None),
    ):
        fields = {"failure_description": "It fails", "solution_steps": "Mend it", field: wrong}
        with pytest.raises(BadRecord, match=field):
            knowledge.capture_failure_solution(**fields)
    with pytest.raises(BadRecord, match="error_message"):
        knowledge.capture_all(
            [msgspec.structs.replace(knowledge.entry(lesson(0)), error_message=7)]
        )
    assert journals(home) == []


def test_nothing_is_written_unless_all_of_them_fit(knowledge: Knowledge, home: Path) -> None:
    good = knowledge.entry(lesson(0))
    bad = knowledge.entry(lesson(1, solution_steps=" "))
    with pytest.raises(BadRecord):
        knowledge.capture_all([good, bad])
    assert journals(home) == []
    assert [one.fresh for one in knowledge.capture_all([good])] == [True]


# -- projects


def test_the_project_is_the_own_one_unless_another_is_named(
    knowledge: Knowledge, home: Path
) -> None:
    own = knowledge.capture(lesson(0)).record.project
    assert knowledge.capture(lesson(1, project="")).record.project == own
    named = knowledge.capture(lesson(0, project="  billing of the shop "))

    assert named.record.project == "billing of the shop"
    assert [file.stem for file in journals(home)] == sorted([own, "billing of the shop"])
    assert [one.id for one in knowledge.of_project(" billing of the shop")] == [named.id]
    assert len(knowledge.staged("*")) == 3


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (" \t ", "needs the project"),
        (TOKEN, "looks like a secret"),
        ("a\u200bb", "contains invisible characters"),
    ],
)
def test_a_project_without_a_decent_name_is_refused(
    knowledge: Knowledge, home: Path, name: str, what: str
) -> None:
    with pytest.raises(BadInput, match=what):
        knowledge.capture_failure_solution(
            failure_description="It fails", solution_steps="Mend it", project=name
        )
    assert journals(home) == []


def test_projects_with_long_names_are_told_apart(knowledge: Knowledge, home: Path) -> None:
    long = "warehouse/" * 30
    first = knowledge.capture(lesson(0, project=long + "one"))
    second = knowledge.capture(lesson(0, project=long + "two"))
    assert first.id != second.id
    assert len(journals(home)) == 2
    assert [one.id for one in knowledge.staged(long + "two")] == [second.id]


# -- what is kept of a text


def test_a_text_that_is_too_long_is_cut_and_says_so(project: Path) -> None:
    with opened(project) as knowledge:
        told = knowledge.capture(
            lesson(0, solution_steps="step " * 1000, technology="x" * 500, subject="word " * 200)
        ).record
    assert isinstance(told, FailureSolution)
    for text, most in ((told.solution_steps, 4000), (told.technology, 100), (told.subject, 300)):
        assert len(text) <= most
        assert text.endswith("[truncated]")


@pytest.mark.parametrize(
    "secret", [TOKEN, f"{TOKEN[:12]}\u200b{TOKEN[12:]}"], ids=["bare", "split"]
)
@pytest.mark.parametrize("plain", [lesson(0), REJECTION, APPROVAL], ids=lambda p: p["entry_type"])
def test_no_field_keeps_a_secret(
    knowledge: Knowledge, home: Path, plain: dict[str, Any], secret: str
) -> None:
    fields = {*plain, *WHOLE} - {"entry_type", "project"}
    kind = plain["entry_type"]
    told = knowledge.capture(
        {"entry_type": kind, **{name: f"the {name} with {secret} in it" for name in fields}}
    ).record
    for name in fields:
        assert f"the {name} with [redacted:" in getattr(told, name)
    knowledge.checkpoint()
    assert files_holding(home, TOKEN[4:], TOKEN[12:]) == []


def test_a_note_to_an_outcome_keeps_no_secret(knowledge: Knowledge, home: Path) -> None:
    knowledge.capture(lesson(0))
    knowledge.checkpoint()
    knowledge.report_outcome(knowledge.patterns()[0].id, True, note=f"with {TOKEN}")
    assert "with [redacted:" in lines(home)[-1]["body"]["note"]
    assert files_holding(home, TOKEN) == []


def test_the_task_of_an_outcome_keeps_no_secret_and_has_its_limit(
    knowledge: Knowledge, home: Path
) -> None:
    knowledge.capture(lesson(0))
    knowledge.checkpoint()
    pattern = knowledge.patterns()[0].id
    knowledge.report_outcome(pattern, True, task=f"deploy with {TOKEN}")
    knowledge.report_outcome(pattern, True, task="t" * 5000)
    assert files_holding(home, TOKEN) == []
    assert [line["body"]["task"][:12] for line in lines(home)[-2:]] == ["deploy with ", "t" * 12]
    assert len(lines(home)[-1]["body"]["task"]) == 100


@pytest.mark.parametrize("worked", ["no", 1, None])
def test_an_outcome_that_is_neither_is_refused_and_not_written(
    knowledge: Knowledge, home: Path, worked: Any
) -> None:
    knowledge.capture(lesson(0))
    knowledge.checkpoint()
    before = lines(home)
    with pytest.raises(BadInput, match="worked is true or false"):
        knowledge.report_outcome(knowledge.patterns()[0].id, worked)
    assert lines(home) == before


def test_what_cannot_be_seen_is_not_kept(knowledge: Knowledge) -> None:
    hidden = "\u200bRun\u202e the\ufeff\x1e migra\u00adtion\x00\ud800 \x1b[31mfirst\x1b[0m"
    told = knowledge.capture(lesson(0, solution_steps=hidden, technology="Py\u200bthon")).record
    assert isinstance(told, FailureSolution)
    assert told.solution_steps == "Run the migration first"
    assert told.technology == "python"


def test_what_an_orchestrator_injected_is_not_learned_again(knowledge: Knowledge) -> None:
    block = "[ORCHESTRATOR CONTEXT: Historical Knowledge]\n\nold wisdom\n\n[END CONTEXT]\n"
    told = knowledge.capture(lesson(0, failure_description=f"{block}It fails")).record
    assert isinstance(told, FailureSolution)
    assert told.failure_description == "It fails"
    with pytest.raises(BadRecord, match="needs solution_steps"):
        knowledge.capture(lesson(0, solution_steps=block))


def test_what_an_entry_is_of_is_written_one_way(knowledge: Knowledge) -> None:
    told = knowledge.capture(
        lesson(0, technology=" Python ,  POSTGRESQL,python,", agent_type="Back  End", task_type=",")
    ).record
    assert (told.technology, told.agent_type, told.task_type) == (
        "python, postgresql",
        "back end",
        "",
    )


# -- once


def test_the_same_thing_twice_is_one_entry(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        first = knowledge.capture(lesson(0, technology="Python"))
        again = knowledge.capture(lesson(0, technology=" python "))
        twice = knowledge.capture_all([knowledge.entry(lesson(1))] * 2)
    assert (again.id, again.fresh, again.staged) == (first.id, False, True)
    assert [one.fresh for one in twice] == [True, False]
    assert [one.staged for one in twice] == [True, True]
    with opened(project) as knowledge:
        knowledge.checkpoint()
        later = knowledge.capture(lesson(0, technology="python"))
        assert (later.id, later.fresh, later.staged) == (first.id, False, False)
        assert knowledge.checkpoint().published == ()
        assert knowledge.verify() == (3, [])
    assert len([line for line in lines(home) if line["kind"] == "failure_solution"]) == 2


def test_another_project_or_another_subject_tells_it_again(knowledge: Knowledge) -> None:
    told = [
        knowledge.capture(lesson(0, **more))
        for more in ({}, {"project": "billing"}, {"subject": "Nightly"}, {"agent_type": "backend"})
    ]
    assert len({one.id for one in told}) == 4
    assert all(one.fresh for one in told)


CAPTURE = """
    import sys
    from knowing import LESSONS, lesson, opened
    from pathlib import Path

    root, writer = Path(sys.argv[1]), sys.argv[2]
    with opened(root) as knowledge:
        knowledge.staged()
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(len(LESSONS)):
            own = knowledge.capture(lesson(n, subject=f"of {writer}"))
            shared = knowledge.capture(lesson(n))
            print(own.id, own.fresh, shared.id, shared.fresh, shared.staged, flush=True)
"""


def test_processes_that_capture_at_once_lose_nothing_and_share_what_is_the_same(
    project: Path, home: Path
) -> None:
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child(CAPTURE, project, n)) for n in range(3)]
        assert [hear(writer) for writer in writers] == ["ready"] * 3
        for writer in writers:
            tell(writer, "go")
        told = [[hear(writer).split() for _ in LESSONS] for writer in writers]
        assert [writer.wait(timeout=60) for writer in writers] == [0] * 3

    own = {line[0] for lines_ in told for line in lines_}
    shared = {line[2] for lines_ in told for line in lines_}
    assert (len(own), len(shared)) == (3 * len(LESSONS), len(LESSONS))
    assert all(line[1] == "True" for lines_ in told for line in lines_)
    # Each of the shared was new to exactly one of them.
    fresh = [line[2] for lines_ in told for line in lines_ if line[3] == "True"]
    assert sorted(fresh) == sorted(shared)
    assert all(line[4] == "True" for lines_ in told for line in lines_)
    assert sorted(line["id"] for line in lines(home)) == sorted(own | shared)
    with opened(project) as knowledge:
        assert knowledge.verify() == (4 * len(LESSONS), [])
        assert set(knowledge.checkpoint().published) == own | shared


# -- where nothing can be written, or nobody wants it


def test_where_nothing_can_be_written_the_error_says_where(project: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "journal").write_bytes(b"a file where a folder should be")
    with opened(project) as knowledge:
        with pytest.raises(JournalError) as caught:
            knowledge.capture(lesson(0))
        assert caught.value.where
        assert "journal" in caught.value.where
        assert caught.value.todo


def test_a_home_that_may_only_be_read_is_a_clear_error(project: Path, home: Path) -> None:
    if sys.platform == "win32" or os.geteuid() == 0:
        pytest.skip("permissions do not bind here")
    folder = home / "journal" / "knowledge"
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    try:
        with opened(project) as knowledge, pytest.raises(JournalError, match="Permission denied"):
            knowledge.capture(lesson(0))
    finally:
        folder.chmod(0o755)


def test_a_project_that_gives_nothing_stages_and_publishes_nothing(
    project: Path, home: Path
) -> None:
    with opened(project) as knowledge:
        knowledge.capture(lesson(0))
    with opened(project, knowledge_give=False) as knowledge:
        with pytest.raises(BadInput, match="does not share knowledge") as caught:
            knowledge.capture(lesson(1))
        assert caught.value.todo == "Run: ralph config knowledge_give true"
        done = knowledge.checkpoint()
        assert (done.published, done.notes) == (
            (),
            ("this project does not share knowledge (knowledge_give is false)",),
        )
        assert knowledge.search("database migration fails", min_score=0.0) == []
        # Others are not its to decide about.
        knowledge.capture(lesson(2, project="billing"))
        assert len(knowledge.checkpoint("billing").published) == 1
    with opened(project) as knowledge:
        assert len(knowledge.checkpoint().published) == 1


def test_a_project_that_receives_nothing_is_told_nothing(project: Path) -> None:
    with opened(project, knowledge_receive=False) as knowledge:
        knowledge.capture(lesson(0))
        knowledge.checkpoint()
        question = "the database migration fails in CI: no such table users"
        for found in (
            knowledge.query_for_task(question, min_score=0.0),
            knowledge.query_for_failure(question, min_score=0.0),
        ):
            assert found == []
            assert found.notes == (
                "this project does not use shared knowledge (knowledge_receive is false)",
            )
        context = knowledge.context_for_task(question, basic="Do it.")
        assert (context.text, context.block, context.patterns) == ("Do it.", "", ())


# -- looking up


def test_an_entry_is_found_by_the_beginning_of_its_id(knowledge: Knowledge) -> None:
    ids = [knowledge.capture(lesson(n)).id for n in range(len(LESSONS))]
    assert knowledge.get(ids[0]).id == knowledge.get(ids[0][:-1].upper()).id == ids[0]
    with pytest.raises(NotFound, match="no entry 'zzzz'"):
        knowledge.get("zzzz")
    shared = next(one[0] for one in ids if [other[0] for other in ids].count(one[0]) > 1)
    with pytest.raises(BadInput, match=r"beginning of \d ids"):
        knowledge.get(shared)


# -- damage


def damage(home: Path, raw: bytes) -> int:
    """Append to the only journal, and give the number of the line."""
    [file] = journals(home)
    with file.open("ab") as journal:
        journal.write(raw)
    return len(file.read_bytes().splitlines())


NEWER = json.dumps(
    {
        "v": 99,
        "kind": "failure_solution",
        "id": "from-the-future",
        "number": 7,
        "at": "2026-11-15T12:00:00Z",
        "body": {"project": "x", "failure_description": "f", "solution_steps": "s"},
    }
).encode()


def other_body(body: dict[str, Any], kind: str = "failure_solution") -> bytes:
    told = {"v": 1, "kind": kind, "id": f"odd-{kind}", "number": 8, "at": "2026-11-15T12:00:00Z"}
    return json.dumps({**told, "body": body}).encode() + b"\n"


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b'{"v":1,"kind":"failure_solution","id":"torn","nu', "Input data was truncated"),
        (b"<<<<<<< HEAD\n", "is not an entry of this journal"),
        (NEWER + b"\n", "was written by a newer Ralph (version 99)"),
        (other_body({"project": "x"}), "is not a readable failure_solution"),
        (other_body({"project": 1, "failure_description": [], "solution_steps": {}}), "readable"),
        (other_body({"covers": "all"}, "checkpoint"), "is not a readable checkpoint"),
        (other_body({"pattern": "p"}, "outcome"), "is not a readable outcome"),
        (other_body({"task": 1}, "gate"), "is not a readable gate"),
    ],
    ids=["torn", "foreign", "newer", "lacks", "types", "checkpoint", "outcome", "gate"],
)
def test_a_line_that_cannot_be_read_is_stepped_over_and_reported(
    project: Path, home: Path, raw: bytes, what: str
) -> None:
    with opened(project) as knowledge:
        before = knowledge.capture(lesson(0))
        line = damage(home, raw)
        after = knowledge.capture(lesson(1))

        assert [one.id for one in knowledge.staged()] == [before.id, after.id]
        count, [complaint] = knowledge.verify()
        assert count == 2
        assert (complaint.line, what in complaint.what) == (line, True), complaint
        assert complaint.file.startswith("journal/knowledge/")

        assert set(knowledge.checkpoint().published) == {before.id, after.id}
        assert len(knowledge.patterns()) == 2
        assert knowledge.query_for_failure(LESSONS[1][0], LESSONS[1][1], min_score=0.0)
    [file] = journals(home)
    assert raw.strip() in file.read_bytes()
    with opened(project) as knowledge:
        assert len(knowledge.patterns()) == 2
        assert knowledge.verify()[0] == 3


def test_a_kind_nobody_knows_yet_is_left_alone(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        kept = knowledge.capture(lesson(0))
        damage(home, other_body({"anything": 1}, "prophecy"))
        assert knowledge.verify() == (2, [])
        assert [one.id for one in knowledge.staged()] == [kept.id]


def test_a_text_with_a_separator_of_our_own_is_published_like_any_other(
    project: Path, home: Path
) -> None:
    """No capture lets it through, but a journal is only text."""
    with opened(project) as knowledge:
        knowledge.capture(solved("It fails with the harbour crane", "Oil the harbour crane"))
        [file] = journals(home)
        raw = file.read_bytes().replace(b"It fails", b"\\u001eIt\\u001e fails")
        file.write_bytes(raw)
        assert len(knowledge.checkpoint().published) == 1
        assert len(knowledge.search("harbour crane fails", min_score=0.0)) == 1
