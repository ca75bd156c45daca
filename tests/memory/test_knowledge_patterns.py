"""Asked for a task or a failure, knowledge answers with patterns: filtered, above the floor, those
that held best first, and contradicting ones side by side."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowing import (
    LESSONS,
    ids_indexed,
    journals,
    lesson,
    lines,
    opened,
    problems,
    published_at,
    solved,
)

from ralph.errors import BadInput, NotFound
from ralph.journal import Draft
from ralph.memory.knowledge import Knowledge
from ralph.recall.patterns import Pattern, in_order, success_rate, worth
from ralph.records import Record, utc
from ralph.records.knowledge import (
    Checkpoint,
    Entry,
    FailureSolution,
    PublishedEntry,
    Quality,
    entry_id,
    entry_record,
    pattern_id,
)

CRANE = "The harbour crane stops when the wind sensor is wet"
QUESTION = "the harbour crane stops because the wind sensor is wet"


def publish(knowledge: Knowledge, *plain: dict[str, Any]) -> list[str]:
    ids = [knowledge.capture(one).id for one in plain]
    knowledge.checkpoint()
    return ids


def asked(knowledge: Knowledge, question: str = QUESTION, **more: Any) -> list[str]:
    """The solutions that a task is told, best first, whatever their score."""
    more = {"min_score": 0.0, "max_results": 20, **more}
    return [one.solution for one in knowledge.query_for_task(question, **more)]


# -- filters


WANTED = [
    (None, "abcde"),
    ("", "abcde"),
    ("python", "abe"),
    (" PyThOn ", "abe"),
    ("ruby", "bc"),
    ("postgresql", "be"),
    ("ruby, python", "abce"),
    ("ruby,PYTHON,", "abce"),
    ("go lang", "bd"),
    ("cobol", "b"),
    ("pyth", "b"),
]


@pytest.mark.parametrize("field", ["technology", "agent_type", "task_type"])
def test_a_filter_leaves_out_what_is_of_something_else(knowledge: Knowledge, field: str) -> None:
    of = {"a": "Python", "b": "", "c": "ruby", "d": "Go  Lang", "e": "python, PostgreSQL"}
    told = [solved(f"{CRANE} {name}", f"{name}.", **{field: value}) for name, value in of.items()]
    publish(knowledge, *told)

    for wanted, names in WANTED:
        only: dict[str, Any] = {field: wanted, "min_score": 0.0}
        assert sorted(asked(knowledge, **only)) == [f"{name}." for name in names], wanted
        failures = knowledge.query_for_failure(CRANE, **only, max_results=9)
        assert sorted(one.solution for one in failures) == [f"{name}." for name in names], wanted
        hits = knowledge.search(CRANE, **only)
        assert sorted(hit.record.solution_steps for hit in hits) == [f"{name}." for name in names]


def test_all_filters_hold_at_once(knowledge: Knowledge) -> None:
    publish(
        knowledge,
        solved(CRANE, "a.", technology="python", agent_type="backend"),
        solved(CRANE, "b.", technology="python", agent_type="frontend"),
        solved(CRANE, "c.", technology="ruby", agent_type="backend", task_type="bugfix"),
        solved(CRANE, "d.", technology="python", task_type="docs"),
    )
    assert asked(knowledge, technology="python", agent_type="backend", task_type="bugfix") == ["a."]
    assert sorted(asked(knowledge, technology="python", agent_type="backend")) == ["a.", "d."]


def test_a_failure_is_answered_by_failures_only(knowledge: Knowledge) -> None:
    publish(
        knowledge,
        solved(CRANE, "Dry it."),
        {
            "entry_type": "gate_rejection",
            "gate_type": "design",
            "human_feedback": CRANE,
            "revision_approach": "Cover it.",
        },
        {
            "entry_type": "gate_approval",
            "gate_type": "design",
            "subject": CRANE,
            "approved_approach": "Heat it.",
        },
    )
    assert sorted(asked(knowledge)) == ["Cover it.", "Dry it.", "Heat it."]
    [one] = knowledge.query_for_failure(CRANE, min_score=0.0)
    assert (one.solution, one.entry_type) == ("Dry it.", "failure_solution")


def test_the_error_message_finds_it_as_well_as_the_description(knowledge: Knowledge) -> None:
    publish(knowledge, *(lesson(n) for n in range(len(LESSONS))))
    for problem, error, solution in LESSONS:
        if error:
            [first, *_] = knowledge.query_for_failure("It broke", error, min_score=0.0)
            assert (first.problem, first.solution) == (f"{problem}\n{error}", solution)


def test_an_error_that_names_something_else_is_not_answered(knowledge: Knowledge) -> None:
    publish(knowledge, solved("ModuleNotFoundError: No module named 'yaml'", "Install pyyaml."))
    other = "ModuleNotFoundError: No module named 'numpy'"
    assert not knowledge.query_for_failure(other, min_score=0.0)
    assert knowledge.query_for_failure("No module named 'yaml' again", min_score=0.0)


def test_a_report_is_answered_though_it_names_other_things(knowledge: Knowledge) -> None:
    """Its names need not be what failed: a report of a page names a lot."""
    error = "ModuleNotFoundError: No module named 'yaml'"
    publish(knowledge, solved(error, "Install pyyaml."))
    report = "\n".join(
        [
            "The nightly job stopped when it loaded the settings, since a module was not found.",
            "I ran it as user 'deploy' with the flag '--strict' on the host 'build-7'.",
            "Yesterday the same job with 'make nightly' went through. The 'Makefile' is the same,",
            "but somebody has made the image anew. The parser of the settings seems to be missing.",
        ]
    )
    assert len(report) > 300
    [found] = knowledge.query_for_failure(report, min_score=0.0)
    assert found.solution == "Install pyyaml."


# -- floors, limits, scores


def test_a_task_is_told_up_to_five_and_a_failure_up_to_three(knowledge: Knowledge) -> None:
    publish(knowledge, *(solved(f"{CRANE} at pier {n}", f"Way {n}.") for n in range(9)))
    assert len(knowledge.query_for_task(CRANE, min_score=0.0)) == 5
    assert len(knowledge.query_for_failure(CRANE, min_score=0.0)) == 3
    assert len(knowledge.query_for_task(CRANE, min_score=0.0, max_results=7)) == 7
    assert len(knowledge.query_for_failure(CRANE, min_score=0.0, max_results=1)) == 1


def test_by_default_only_what_is_surely_about_it_is_told(project: Path) -> None:
    with opened(project, embedder="static") as knowledge:
        publish(knowledge, *(lesson(n) for n in range(len(LESSONS))))
        failing = knowledge.query_for_failure(*LESSONS[2][:2])
        assert problems(failing) == [LESSONS[2][0]]
        assert failing[0].score is not None
        assert failing[0].score >= 0.75
        assert (failing[0].relevance, bool(failing[0].why)) == ("relevant", True)
        told = knowledge.query_for_task("Keep login cookies behind the load balancer")
        assert problems(told) == [LESSONS[2][0]]
        assert knowledge.query_for_task("Write a poem about the sea in spring") == []
        lower = knowledge.query_for_task("Write a poem about the sea", min_score=0.0)
        assert all(one.score is not None and one.score < 0.70 for one in lower)


def test_no_answer_is_under_the_floor(knowledge: Knowledge) -> None:
    publish(knowledge, *(lesson(n) for n in range(len(LESSONS))))
    every = knowledge.query_for_task(LESSONS[0][0], min_score=0.0, max_results=20)
    scores = sorted(one.score for one in every if one.score is not None)
    assert len(scores) == len(every)
    floor = scores[len(scores) // 2]
    above = knowledge.query_for_task(LESSONS[0][0], min_score=floor, max_results=20)
    assert sorted(one.score or 0.0 for one in above) == [s for s in scores if s >= floor]


def test_a_question_that_cannot_be_asked_is_refused(knowledge: Knowledge) -> None:
    publish(knowledge, lesson(0))
    with pytest.raises(BadInput, match="too short"):
        knowledge.query_for_task(" a ")
    with pytest.raises(BadInput, match="at least 1, not 0"):
        knowledge.query_for_task(QUESTION, max_results=0)
    with pytest.raises(BadInput, match=r"from 0 to 1, not 1\.5"):
        knowledge.query_for_failure(QUESTION, min_score=1.5)


def test_before_anything_is_published_there_is_no_answer_and_no_index(
    knowledge: Knowledge, home: Path
) -> None:
    assert knowledge.query_for_task(QUESTION, min_score=0.0) == []
    assert knowledge.patterns() == []
    assert not (home / "cache" / "knowledge").exists()


# -- order


def captured(entry: Entry, at: str) -> Draft:
    return lambda number: entry_record(entry, id=entry_id(entry), number=number, at=at)


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_how_old_a_lesson_is_does_not_change_its_place(
    project: Path, home: Path, newest: int
) -> None:
    words = ["stops", "stops in the wind", "is wet"]
    now = datetime.now(UTC)
    with opened(project) as knowledge:
        for n, tail in enumerate(words):
            plain = knowledge.entry(solved(f"The harbour crane {tail}", f"Way {n}."))
            at = (now - timedelta(days=1 if n == newest else 300)).isoformat()
            knowledge.write(plain.project, captured(plain, at))
            published_at(knowledge, at)
        found = knowledge.query_for_task("harbour crane stops in the wind", min_score=0.0)
        assert [one.solution for one in found] == ["Way 1.", "Way 0.", "Way 2."]
        assert len({one.published for one in found}) == 2


def test_of_alternatives_the_one_that_held_most_often_comes_first(knowledge: Knowledge) -> None:
    """Even where the words of another fit the question better."""
    publish(
        knowledge,
        solved(QUESTION, "Dry the sensor with warm air"),
        *(solved(CRANE, "Replace the cable of the brake", subject=f"Pier {n}") for n in range(3)),
    )
    first, second = knowledge.query_for_task(QUESTION, min_score=0.0)
    assert (first.solution, first.success_count) == ("Replace the cable of the brake", 3)
    assert (second.solution, second.success_count) == ("Dry the sensor with warm air", 1)


def test_an_outcome_that_failed_lowers_a_pattern_and_one_that_worked_lifts_it(
    knowledge: Knowledge,
) -> None:
    publish(
        knowledge,
        solved(CRANE, "Dry the sensor with warm air"),
        solved(CRANE, "Replace the cable of the brake"),
    )
    first, second = knowledge.query_for_task(QUESTION, min_score=0.0)
    knowledge.report_outcome(first.id, worked=False)
    assert asked(knowledge) == [second.solution, first.solution]
    knowledge.report_outcome(first.id, worked=True)
    knowledge.report_outcome(first.id, worked=True)
    knowledge.report_outcome(second.id, worked=False)
    again = knowledge.query_for_task(QUESTION, min_score=0.0)
    assert [one.id for one in again] == [first.id, second.id]
    assert [(one.worked, one.failed) for one in again] == [(2, 1), (0, 1)]


def test_what_is_about_something_else_is_not_lifted_over_what_fits(knowledge: Knowledge) -> None:
    publish(
        knowledge,
        solved(CRANE, "Dry the sensor with warm air"),
        *(lesson(6, subject=f"List {n}") for n in range(6)),
    )
    assert asked(knowledge)[0] == "Dry the sensor with warm air"


def test_solutions_that_contradict_each_other_are_told_side_by_side(knowledge: Knowledge) -> None:
    problem = "The image build breaks when urllib3 is resolved"
    publish(
        knowledge,
        solved(problem, "Pin urllib3 in the requirements"),
        solved(problem, "Do not pin urllib3 in the requirements"),
        *(lesson(n) for n in range(3)),
    )
    first, second, *others = knowledge.query_for_task(problem, min_score=0.0)
    assert {first.solution, second.solution} == {
        "Pin urllib3 in the requirements",
        "Do not pin urllib3 in the requirements",
    }
    assert (first.conflicts, second.conflicts) == ((second.id,), (first.id,))
    assert all(one.conflicts == () for one in others)
    # Nobody is named who is not in the answer.
    [alone] = knowledge.query_for_task(problem, min_score=0.0, max_results=1)
    assert alone.conflicts == ()


def pattern(
    name: str, *, successes: int = 1, failures: int = 0, quality: Quality = "high"
) -> Pattern:
    entry = FailureSolution(project="p", failure_description=name, solution_steps="s")
    return Pattern(
        id=name,
        entry_type="failure_solution",
        problem=name,
        solution="s",
        when_to_try="",
        success_count=successes,
        worked=0,
        failed=failures,
        success_rate=success_rate(successes, failures),
        quality=quality,
        projects=1,
        entries=(name,),
        published="2026-11-15T12:00:00Z",
        record=entry,
    )


def test_a_persons_word_counts_a_little_more() -> None:
    machine, person = pattern("a"), pattern("b", quality="highest")
    assert worth(0.5, machine) == 0.5
    assert worth(0.5, person) == pytest.approx(0.525)
    assert worth(0.5, machine) < worth(0.5, person) < worth(0.6, machine)


@pytest.mark.parametrize(
    ("successes", "failures", "rate"),
    [(0, 0, 1 / 2), (1, 0, 2 / 3), (2, 0, 3 / 4), (1, 1, 1 / 2), (5, 0, 6 / 7), (5, 5, 1 / 2)],
)
def test_few_observations_say_little(successes: int, failures: int, rate: float) -> None:
    assert math.isclose(success_rate(successes, failures), rate)


def test_contradicting_patterns_are_at_most_three() -> None:
    found = [(1 - n / 10, pattern("abcdefg"[n])) for n in range(7)]
    against = {frozenset(pair) for pair in ("ac", "ad", "ae", "cd", "cf", "bg")}
    order = in_order(
        found,
        alternative=lambda one, other: False,
        conflicting=lambda one, other: frozenset((one.id, other.id)) in against,
        conflicts_max=3,
        limit=20,
    )
    # e contradicts a, and f contradicts c: both are of the dispute that has its three.
    assert [one.id for one in order] == ["a", "c", "d", "b", "g"]
    assert [one.conflicts for one in order] == [("c", "d"), ("a", "d"), ("a", "c"), ("g",), ("b",)]


@st.composite
def disputes(draw: st.DrawFn) -> tuple[list[tuple[float, Pattern]], set[frozenset[str]]]:
    names = "abcdefghij"[: draw(st.integers(1, 10))]
    found = [
        (
            draw(st.integers(1, 5)) / 5,
            pattern(name, successes=draw(st.integers(1, 6)), failures=draw(st.integers(0, 3))),
        )
        for name in names
    ]
    pairs = [frozenset((a, b)) for a in names for b in names if a < b]
    return found, set(draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else [])


@given(disputes(), st.integers(1, 4), st.integers(1, 10))
def test_whoever_contradicts_whom_disputes_stand_together_and_are_short(
    told: tuple[list[tuple[float, Pattern]], set[frozenset[str]]], most: int, limit: int
) -> None:
    found, against = told

    def order(some: list[tuple[float, Pattern]], limit: int) -> list[Pattern]:
        return in_order(
            some,
            alternative=lambda one, other: False,
            conflicting=lambda one, other: frozenset((one.id, other.id)) in against,
            conflicts_max=most,
            limit=limit,
        )

    whole = order(found, 20)
    dispute = {one.id: one.id for _, one in found}
    for _ in found:  # until nobody joins any more
        for pair in against:
            dispute |= dict.fromkeys(pair, min(dispute[name] for name in pair))
    sides = [dispute[one.id] for one in whole]
    runs = [(name, len(list(some))) for name, some in groupby(sides)]
    assert len({name for name, _ in runs}) == len(runs)
    for name, length in runs:
        assert length == min(most, sum(one == name for one in dispute.values()))
    assert {name for name, _ in runs} == set(dispute.values())
    # The best of a dispute leads it, and the leaders are in order.
    worths = {one.id: worth(fit, one) for fit, one in found}
    leaders = [worths[next(one.id for one in whole if dispute[one.id] == name)] for name, _ in runs]
    assert leaders == sorted(leaders, reverse=True)

    shown = order(found, limit)
    assert order(list(reversed(found)), limit) == shown
    assert len(shown) <= limit
    assert shown[0].id == whole[0].id
    ids = {one.id for one in shown}
    for one in shown:
        assert (
            set(one.conflicts)
            == {other for pair in against if one.id in pair for other in pair - {one.id}} & ids
        )


# -- outcomes


def rates(knowledge: Knowledge) -> tuple[int, int, float]:
    [one] = knowledge.patterns()
    return one.worked, one.failed, one.success_rate


def test_outcomes_move_the_success_rate(knowledge: Knowledge) -> None:
    publish(knowledge, solved(CRANE, "Dry it."))
    [one] = knowledge.patterns()
    assert rates(knowledge) == (0, 0, 0.6667)
    knowledge.report_outcome(one.id, True)
    assert rates(knowledge) == (1, 0, 0.75)
    knowledge.report_outcome(one.id, False, project="billing")
    assert rates(knowledge) == (1, 1, 0.6)
    # An outcome is no success of its own: nobody captured a solution.
    assert knowledge.patterns()[0].success_count == 1


def test_an_outcome_is_reported_of_what_a_query_gave_or_of_its_id(knowledge: Knowledge) -> None:
    publish(knowledge, lesson(0))
    (found,) = knowledge.query_for_task(LESSONS[0][0])
    knowledge.report_outcome(found, worked=True)
    knowledge.report_outcome(found.id, worked=False)
    (found,) = knowledge.query_for_task(LESSONS[0][0])
    assert (found.worked, found.failed) == (1, 1)


def test_of_one_task_only_the_last_word_counts(project: Path) -> None:
    with opened(project) as knowledge:
        publish(knowledge, solved(CRANE, "Dry it."))
        [one] = knowledge.patterns()
        for worked in (False, False, True):
            knowledge.report_outcome(one.id, worked, task=7)
        assert rates(knowledge) == (1, 0, 0.75)
        knowledge.report_outcome(one.id, False, task="7")
        assert rates(knowledge) == (0, 1, 0.5)
        # Another task, and the same task of another project, have words of their own.
        knowledge.report_outcome(one.id, True, task=8)
        knowledge.report_outcome(one.id, True, task=7, project="billing")
        assert rates(knowledge) == (2, 1, 0.6667)
    with opened(project) as knowledge:
        assert rates(knowledge) == (2, 1, 0.6667)


def test_of_one_run_the_first_word_counts(knowledge: Knowledge, home: Path) -> None:
    publish(knowledge, solved(CRANE, "Dry it."))
    [one] = knowledge.patterns()
    first = knowledge.report_outcome(one.id, True, task=7, run="r1")
    written = len(lines(home))
    assert knowledge.report_outcome(one.id, False, task=7, run="r1") == first
    assert len(lines(home)) == written
    assert rates(knowledge) == (1, 0, 0.75)
    assert knowledge.report_outcome(one.id, False, task=7, run="r2") != first
    assert rates(knowledge) == (0, 1, 0.5)


def test_an_outcome_needs_a_pattern_that_is_there(knowledge: Knowledge, home: Path) -> None:
    publish(knowledge, *(lesson(n) for n in range(len(LESSONS))))
    written = len(lines(home))
    for wanted in ("", "zzzz", knowledge.capture(lesson(0)).id):
        with pytest.raises(NotFound, match="there is no pattern") as caught:
            knowledge.report_outcome(wanted, True)
        assert caught.value.todo
    firsts = [one.id[0] for one in knowledge.patterns()]
    twice = next(letter for letter in firsts if firsts.count(letter) > 1)
    with pytest.raises(BadInput, match="is the beginning of"):
        knowledge.report_outcome(twice, True)
    assert len(lines(home)) == written
    one = knowledge.patterns()[0]
    knowledge.report_outcome(one.id[:12].upper(), True)
    assert knowledge.pattern(one.id).worked == 1


@pytest.mark.parametrize("which", [0, 1])
def test_of_patterns_told_as_often_the_one_that_held_is_listed_first(
    knowledge: Knowledge, which: int
) -> None:
    publish(knowledge, lesson(0), lesson(1))
    one = knowledge.patterns()[which].id

    knowledge.report_outcome(one, True)

    assert knowledge.patterns()[0].id == one


def test_a_pattern_is_shown_by_the_beginning_of_its_id(knowledge: Knowledge) -> None:
    publish(knowledge, *(lesson(n) for n in range(len(LESSONS))))
    for one in knowledge.patterns():
        assert knowledge.pattern(one.id[:10]) == one
        plain = one.to_json()
        assert (plain["id"], plain["score"], plain["why"]) == (one.id, None, None)
        assert plain["record"]["entry_type"] == "failure_solution"
    for wanted in ("", "zzzz"):
        with pytest.raises(NotFound, match="no pattern"):
            knowledge.pattern(wanted)


# -- expired


def test_what_has_had_its_time_is_never_told_even_before_it_is_pruned(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = (datetime.now(UTC) - timedelta(days=366)).isoformat()
    lately = (datetime.now(UTC) - timedelta(days=364)).isoformat()
    with opened(project) as knowledge:
        with monkeypatch.context() as patch:
            patch.setattr("ralph.memory.knowledge.now", lambda: utc(long_ago))
            knowledge.capture(solved(f"{CRANE} at the old pier", "Old."))
        [old] = published_at(knowledge, long_ago)
        knowledge.capture(solved(f"{CRANE} at the new pier", "New."))
        [new] = published_at(knowledge, lately)

        assert asked(knowledge) == ["New."]
        assert [one.solution for one in knowledge.query_for_failure(CRANE, min_score=0.0)] == [
            "New."
        ]
        assert [hit.id for hit in knowledge.search(CRANE, min_score=0.0)] == [new]
        assert [one.entries for one in knowledge.patterns()] == [(new,)]
        context = knowledge.context_for_task(QUESTION)
        assert "Old." not in context.text
        assert knowledge.get(old).id == old  # the journal has it until it is pruned
    with opened(project, knowledge_keep_days=367) as knowledge:
        assert sorted(asked(knowledge)) == ["New.", "Old."]


def test_a_date_that_nobody_can_read_does_not_keep_others_alive(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        knowledge.capture(solved(f"{CRANE} at the old pier", "Old."))
        published_at(knowledge, (datetime.now(UTC) - timedelta(days=366)).isoformat())
        knowledge.capture(solved(f"{CRANE} at the odd pier", "Odd."))
        published_at(knowledge, "0026-11-15T12:00:00Z")
        [file] = journals(home)
        file.write_bytes(file.read_bytes().replace(b"0026-11-15T12:00:00Z", b"0000-00-00"))
        assert asked(knowledge) == ["Odd."]


# -- many tellings of one lesson


def as_it_is(record: Record) -> Draft:
    return lambda number: record


def test_a_lesson_is_not_the_less_sure_the_more_often_it_held(project: Path) -> None:
    with opened(project, embedder="static") as knowledge:
        scores: list[float] = []
        for n in range(20):
            knowledge.capture(lesson(0, project=f"project {n}"))
            knowledge.checkpoint(f"project {n}")
            (found,) = knowledge.query_for_failure(*LESSONS[0][:2])
            scores.append(found.score or 0.0)
        assert found.success_count == 20
        assert min(scores) >= 0.75
        assert scores[-1] == scores[1]


def test_many_tellings_do_not_hide_another_answer_to_the_problem(project: Path) -> None:
    problem, error, _ = LESSONS[0]
    with opened(project, embedder="static") as knowledge:
        twins = [lesson(0, subject=f"Task {n}") for n in range(150)]
        long = "Keep the whole schema in a fixture of its own, which every worker loads once, " * 8
        other = solved(problem, long, error_message=error, subject="Task 150")
        knowledge.capture_all([knowledge.entry(one) for one in (*twins, other)])
        knowledge.checkpoint()
        found = knowledge.query_for_failure(problem, error)
        assert [one.success_count for one in found] == [150, 1]


def test_when_a_telling_is_forgotten_another_takes_its_place(project: Path) -> None:
    with opened(project) as knowledge:
        ids = []
        for n in range(4):
            ids.append(knowledge.capture(lesson(0, project=f"project {n}")).id)
            knowledge.checkpoint(f"project {n}")
        assert ids_indexed(knowledge) == sorted(ids[:2])
        knowledge.forget([ids[0]])
        assert ids_indexed(knowledge) == sorted(ids[1:3])
        (found,) = knowledge.query_for_task(LESSONS[0][0])
        assert found.entries == tuple(ids[1:])


def test_a_pattern_whose_first_tellings_expired_is_told_by_a_living_one(project: Path) -> None:
    with opened(project) as knowledge:
        ids = []
        for n, at in enumerate(("2024-01-01", "2024-02-01", "2026-11-01")):
            ids.append(knowledge.capture(lesson(0, project=f"project {n}")).id)
            covers = (PublishedEntry(ids[-1], pattern_id(ids[0])),)
            line = Checkpoint(project=f"project {n}", why="manual", covers=covers)
            record = entry_record(line, id=f"checkpoint-{n}", number=9, at=f"{at}T10:00:00Z")
            knowledge.write(f"project {n}", as_it_is(record))
        (found,) = knowledge.query_for_task(LESSONS[0][0])
        assert found.entries == (ids[2],)
        assert found.record.project == "project 2"
        assert found.success_count == 1


# -- one lesson in other words


MISSING_TABLE = "sqlite3.OperationalError: no such table: users"
IN_OTHER_WORDS = [
    ("Tests fail on a fresh checkout", "Run the migrations before the tests"),
    ("The test database is empty in CI", "Run migrations before running the tests"),
    ("New developers cannot run the suite", "Apply the migrations before pytest"),
    ("User tests fail as there is no schema", "Run the database migrations ahead of the tests"),
    ("pytest breaks after cloning", "Migrate the database first, then run the tests"),
]


def publish_in_other_words(knowledge: Knowledge) -> None:
    """Publish one lesson from five projects, one after another, each in its own words."""
    for number, (description, solution) in enumerate(IN_OTHER_WORDS):
        project = f"project {number}"
        knowledge.capture_failure_solution(
            project=project,
            failure_description=description,
            error_message=MISSING_TABLE,
            solution_steps=solution,
        )
        knowledge.checkpoint(project)


def test_one_lesson_of_five_projects_in_other_words_is_one_pattern(knowledge: Knowledge) -> None:
    publish_in_other_words(knowledge)

    [pattern] = knowledge.patterns()
    assert (pattern.success_count, pattern.projects) == (5, 5)


@pytest.mark.parametrize(
    "task",
    [
        "Make the tests pass on a new checkout: there is no table users",
        "pytest fails on a fresh clone, the database has no users table",
    ],
)
def test_a_task_in_other_words_is_told_the_pattern_once(project: Path, task: str) -> None:
    with opened(project, embedder="static") as knowledge:
        publish_in_other_words(knowledge)

        block = knowledge.context_for_task(task).block
        [found] = knowledge.query_for_failure("The suite does not run", MISSING_TABLE)

    assert "Pattern 1 (Most Common - 5 successes):" in block
    assert "Pattern 2" not in block
    assert found.success_count == 5


def test_another_solution_of_the_same_error_stays_beside_it(knowledge: Knowledge) -> None:
    publish_in_other_words(knowledge)
    knowledge.capture_failure_solution(
        failure_description="Tests fail on a fresh checkout",
        error_message=MISSING_TABLE,
        solution_steps="Point the tests at the database file of the app; they opened another one",
    )
    knowledge.checkpoint()

    assert [one.success_count for one in knowledge.patterns()] == [5, 1]
    block = knowledge.context_for_task("Tests fail: no such table: users").block
    assert "Pattern 2 (Less Common - 1 success):" in block


def test_a_block_shows_the_solution_of_two_patterns_once(knowledge: Knowledge) -> None:
    """Work of another sort is another pattern, though its solution is the same."""
    for agent_type in ("backend", "frontend"):
        knowledge.capture_failure_solution(
            failure_description="Tests fail on a fresh checkout",
            error_message=MISSING_TABLE,
            solution_steps="Run the migrations before the tests",
            agent_type=agent_type,
        )
    knowledge.checkpoint()
    task = "Tests fail on a fresh checkout: no such table: users"

    assert len(knowledge.query_for_task(task)) == 2
    context = knowledge.context_for_task(task)
    assert len(context.patterns) == 1
    assert context.block.count("Run the migrations") == 1
