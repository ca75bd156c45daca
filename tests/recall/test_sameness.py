"""Same, contradicting or different: measured on labelled pairs, and what must never happen."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from examples import some
from hypothesis import example, given
from hypothesis import strategies as st
from places import DATA

from bench import fit_sameness
from ralph.index.embedders.static import StaticEmbedder
from ralph.memory.checkpoints import Grouping
from ralph.recall.sameness import (
    Case,
    Explained,
    Meaning,
    Nearness,
    conflicting,
    joins,
    one_problem,
    same,
)
from ralph.records.knowledge import FailureSolution
from ralph.text.sameness import compare, gist, no_number_agrees, weigh

OWN, BLIND, MORE = fit_sameness.CASE_FILES
EQUAL = Meaning(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
VERY_NEAR = Nearness(EQUAL, EQUAL, EQUAL, Explained(1.0, 1.0, 1.0, 1.0, 0.0, 0.0))
JOB_FAILS = "The nightly job fails: ERR_STALE in step 3"


@functools.cache
def grouping() -> Grouping:
    return Grouping(StaticEmbedder())


@functools.cache
def pairs() -> list[dict[str, Any]]:
    """All pairs of cases, each with its two cases and their nearness."""
    found = fit_sameness.read_pairs(DATA, fit_sameness.CASE_FILES)
    for pair in found:
        two = Case(**pair["one"]), Case(**pair["other"])
        pair["cases"] = (*two, nearness(*two))
    return found


def nearness(one: Case, other: Case) -> Nearness:
    return grouping().nearness(one, other)


def in_conflict(one: Case, other: Case, near: Nearness) -> bool:
    return conflicting(one, other, near.problem.cosine)


def figures(verdicts: list[tuple[bool, bool]]) -> tuple[float, float]:
    """Precision and recall of what was said (second) of what is (first)."""
    right = sum(is_so and said for is_so, said in verdicts)
    return right / sum(said for _, said in verdicts), right / sum(is_so for is_so, _ in verdicts)


def test_every_pair_is_in_the_set_once_and_no_subject_is_in_two_parts() -> None:
    assert sum(pair["same"] for pair in pairs()) >= 600
    assert sum(not pair["same"] for pair in pairs()) >= 900
    both = {frozenset(pair["cases"][:2]) for pair in pairs()}
    assert len(both) == len(pairs()) == len({pair["id"] for pair in pairs()})
    subjects = {(pair["subject"], pair["part"]) for pair in pairs() if MORE in pair["subject"]}
    assert len(subjects) == len({subject for subject, _ in subjects})


def test_merges_of_pairs_that_nothing_was_fitted_on_are_right() -> None:
    """Pairs of the report part; docs/quality.md has the figures."""
    precision, recall = figures(
        [(p["same"], same(*p["cases"])) for p in pairs() if p["part"] == "report"]
    )

    assert precision >= 0.95
    assert recall >= 0.5


def test_merges_of_learnings_that_nothing_was_fitted_on_are_right() -> None:
    reported = [
        p
        for p in fit_sameness.read_pairs(DATA, fit_sameness.LEARNING_FILES)
        if p["part"] == "report"
    ]
    verdicts = [(p["verdict"], compare(p["one"], p["other"])) for p in reported]
    precision, recall = figures([(is_so == "duplicate", v == "duplicate") for is_so, v in verdicts])
    assert precision >= 0.95
    assert recall >= 0.75
    precision, recall = figures([(is_so == "conflict", v == "conflict") for is_so, v in verdicts])
    assert precision >= 0.95
    assert recall >= 0.85


def test_most_groups_of_other_words_that_nothing_was_fitted_on_become_few_patterns() -> None:
    """Groups of the report part; docs/quality.md has the figures."""
    groups = [g for g in fit_sameness.read_groups(DATA) if g["part"] == "report"]
    found = fit_sameness.group_figures(groups)

    assert found.groups == 20
    assert found.patterns <= 2.3
    assert found.one_pattern >= 5
    assert found.wrong <= 3


def test_an_entry_joins_a_pattern_that_it_fits_on_average() -> None:
    assert joins([0.2])
    assert not joins([-0.2])
    assert joins([1.5, -1.0, -1.2])
    assert not joins([0.2, -3.0, -1.0])  # a chain of similar entries could lead anywhere


def test_the_same_error_is_the_same_problem_however_it_is_described() -> None:
    error = "sqlite3.OperationalError: no such table: orders"
    fix = "Run the migrations before the tests"
    one = Case(f"The nightly job breaks\n{error}", fix, error)
    other = Case(f"Nobody new can run pytest here\n{error}", fix, error)
    locked = "sqlite3.OperationalError: database is locked"

    assert same(one, other, nearness(one, other))
    assert not one_problem(one, Case(f"The nightly job breaks in CI\n{locked}", fix, locked))


def test_long_reports_about_different_things_are_not_the_same_by_chance() -> None:
    words = [f"{letter}{other}word" for letter in "abcdefgh" for other in "klmnopqrs"]
    report = " ".join(words)
    one = Case(f"The lexer fails. {report}", f"Fixed the lexer. {report}")
    other = Case(f"The parser fails. {report}", f"Fixed the parser. {report}")

    assert not same(one, other, VERY_NEAR)


def test_another_value_of_a_setting_is_another_solution() -> None:
    one = Case(JOB_FAILS, "Set the session cookie to SameSite=None")
    other = Case(JOB_FAILS, "Set the session cookie to SameSite=Lax")

    assert not same(one, other, VERY_NEAR)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_weights_are_what_the_script_fits() -> None:
    """Machines round differently, so a little more or less is the same weight."""
    fitted = fit_sameness.weights_of(fit_sameness.run(DATA, reach=1))

    assert weigh() == pytest.approx(fitted, abs=0.05)


@pytest.mark.slow
def test_cases_of_different_subjects_are_hardly_ever_merged() -> None:
    strangers = fit_sameness.strangers(pairs(), 5)
    merged = 0
    for pair in strangers:
        one, other = Case(**pair["one"]), Case(**pair["other"])
        merged += same(one, other, nearness(one, other))

    assert len(strangers) > 1000
    assert merged <= 1


def test_most_conflicts_are_seen_and_most_that_are_seen_are_some() -> None:
    precision, recall = figures(
        [(p["conflict"], in_conflict(*p["cases"])) for p in pairs() if "conflict" in p]
    )

    assert precision >= 0.7
    assert recall >= 0.45


def test_the_same_solution_in_other_words_is_hardly_ever_a_conflict() -> None:
    taken = [pair["id"] for pair in pairs() if pair["same"] and in_conflict(*pair["cases"])]

    assert len(taken) <= 0.05 * sum(pair["same"] for pair in pairs())


def test_what_is_the_same_hardly_ever_looks_like_a_conflict_and_never_is_one() -> None:
    taken = [p for p in pairs() if same(*p["cases"]) and in_conflict(*p["cases"])]

    assert len(taken) <= 0.005 * len(pairs())
    for pair in taken:
        one, other = (
            FailureSolution(project="p", failure_description=c.problem, solution_steps=c.solution)
            for c in pair["cases"][:2]
        )
        assert not grouping().conflicting(one, other)


@pytest.mark.slow
def test_the_two_of_a_pair_may_change_places() -> None:
    for pair in pairs():
        one, other, near = pair["cases"]
        assert same(one, other, near) == same(other, one, near), pair["id"]
        assert in_conflict(one, other, near) == in_conflict(other, one, near), pair["id"]


WORDS = st.sampled_from(
    "pin numpy below 2 do not never remove the lock before after write raise timeout to 30 s, 5 min"
    " instead of . Decimal cache_key was had if v1.2 E0502 /srv/app.py:12 NullPointerException"
    " it".split()
)
TEXT = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40)
CASE = st.builds(Case, TEXT, TEXT)
MEANING = st.builds(Meaning, *[st.floats(-1, 1)] * 6)
EXPLAINED = st.builds(Explained, *[st.floats(0, 6)] * 6)
NEAR = st.builds(Nearness, MEANING, MEANING, MEANING, EXPLAINED)


@given(CASE, CASE, NEAR)
def test_sameness_and_conflict_are_symmetric(one: Case, other: Case, near: Nearness) -> None:
    assert same(one, other, near) == same(other, one, near)
    assert in_conflict(one, other, near) == in_conflict(other, one, near)


@example(Case("", "pin after pin"), VERY_NEAR)
@given(CASE, NEAR)
def test_an_entry_is_the_same_as_itself_and_not_in_conflict_with_itself(
    one: Case, near: Nearness
) -> None:
    assert same(one, one, near)
    assert not in_conflict(one, one, near)


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ("Pin numpy below 2.", "Do not pin numpy below 2."),
        ("Pin numpy below 2.", "Never pin numpy below 2."),
        ("Use the index as key.", "Don't use the index as key."),
        ("Use the index as key.", "Use the id as key instead of the index."),
        ("Retry the request three times.", "Avoid retrying the request three times."),
        ("Sort the keys when serialising.", "Stop sorting the keys when serialising."),
        ("Delete the deployment and apply again.", "Do not delete the deployment, apply again."),
        ("Turn the cache off.", "Turn the cache on."),
        ("Enable strict mode.", "Disable strict mode."),
        ("Add the trailing slash.", "Remove the trailing slash."),
        ("Upgrade the driver.", "Downgrade the driver."),
        ("Run the migration before the deployment.", "Run the migration after the deployment."),
        ("Build the image with cache.", "Build the image without cache."),
        ("The lock is needed.", "The lock is not needed."),
        ("Allow credentials in CORS.", "We no longer allow credentials in CORS."),
        ("Replace moment by date-fns.", "Replace date-fns by moment."),
    ],
)
def test_no_pattern_reaches_across_a_negation(yes: str, no: str) -> None:
    one, other = Case(JOB_FAILS, yes), Case(JOB_FAILS, no)

    assert not same(one, other, VERY_NEAR)
    assert not same(other, one, nearness(one, other))
    assert in_conflict(one, other, VERY_NEAR)


@pytest.mark.parametrize(
    "form", some(["Do not {}", "Never {}", "Don't {}", "We no longer {}"], every=4)
)
def test_no_entry_of_the_set_is_the_same_as_its_denial(form: str) -> None:
    entries = {case for pair in pairs() for case in pair["cases"][:2]}
    # "Not only" denies nothing.
    entries = {case for case in entries if not case.solution.lower().startswith("only ")}
    taken = []
    for one in entries:
        denied = form.format(one.solution[0].lower() + one.solution[1:])
        if same(one, Case(one.problem, denied), VERY_NEAR):
            taken.append(denied)

    assert taken == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Fails when the cache is enabled", "Fails when the cache is not enabled"),
        ("users imports auth and makes a cycle", "auth imports users and makes a cycle"),
        ("Unsupported class file version 65 on JDK 21", "Unsupported class file version 61 on 17"),
        ("error[E0502] in the session loop", "error[E0382] in the session loop"),
        ("Django app behind the proxy builds bad links", "Flask app builds bad links, proxied"),
        ("exec format error on arm64", "exec format error on amd64"),
        ("KeyError in the loader", "TypeError in the loader"),
    ],
)
def test_another_problem_is_another_pattern_though_the_fix_is_told_alike(
    one: str, other: str
) -> None:
    fix = "Rewrote the loader so that it waits for the lock."

    assert not same(Case(one, fix), Case(other, fix), VERY_NEAR)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Raise the timeout to 30 seconds.", "Raise the timeout to 300 seconds."),
        ("Raise the timeout to 30 s.", "The timeout is 30 minutes now."),
        ("Upgrade Gradle to 8.5.", "Upgrade Gradle to 7.3."),
        ("Set varchar(191).", "Set varchar(250)."),
        ("Store the sessions in Redis.", "Store the sessions in Memcached."),
        ("Install psycopg2-binary with pip.", "Install psycopg2-binary with conda."),
    ],
)
def test_another_number_or_rival_is_another_solution(one: str, other: str) -> None:

    assert not same(Case(JOB_FAILS, one), Case(JOB_FAILS, other), VERY_NEAR)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Raise the timeout to 2 minutes.", "Raised the timeout to 120 seconds."),
        ("Raise the timeout to 500 ms.", "The timeout is 0.5 s now."),
        ("Chunks of 10,000 rows are written.", "Write the rows in chunks of 10000."),
        ("Pin numpy to 1.26.", "Pinned numpy to 1.26.4."),
        ("Pin Python to 3.0.", "Pinned Python to 3."),
    ],
)
def test_one_amount_may_be_written_in_two_ways(one: str, other: str) -> None:
    assert not no_number_agrees(gist(one).figures, gist(other).figures)


def test_the_same_error_with_the_same_fix_in_other_words_is_one_pattern() -> None:
    error = "sqlite3.OperationalError: no such table: users"
    one = Case(error, "run migrations before pytest")
    other = Case(error, "apply the migrations before the tests")

    assert same(one, other, nearness(one, other))


def test_the_same_error_on_another_day_and_machine_is_the_same() -> None:
    fix = "Keep the transaction short: send the mail after the commit."
    monday = Case(
        "2024-03-01T10:22:41Z process 4312 could not obtain the lock after 1001.2 ms"
        " (/srv/a/jobs/mail.py:88), request 7f3c2a10-9b1e-4c3a-a0ee-2b9f9d1c7e55",
        fix,
    )
    friday = Case(
        "2025-11-12T01:00:09Z process 88 could not obtain the lock after 1004.9 ms"
        " (/builds/x/jobs/mail.py:93), request 0d1f44b2-77aa-4f0c-8a39-bb0e4b7b90ad",
        fix,
    )

    assert same(monday, friday, nearness(monday, friday))


def test_how_it_was_before_is_no_denial_of_what_is_to_be_done() -> None:
    problem = "npm ci says that the lock file is out of sync"
    told = Case(problem, "The lock file had not been committed; committed it with npm install.")
    asked = Case(problem, "Commit the lock file after npm install.")

    assert same(told, asked, nearness(told, asked))


def test_what_must_never_be_done_is_a_denial_though_told_of_the_past() -> None:
    one, other = (
        Case(JOB_FAILS, "Moved the import up."),
        Case(JOB_FAILS, "Never moved the import up."),
    )

    assert not same(one, other, VERY_NEAR)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            'Fixture scope "session" for the database of the tests, with a pool.',
            'The database of the tests has a pool and the fixture scope "function".',
        ),
        (
            "A readinessProbe on the health port of the pod, every ten seconds.",
            "Every ten seconds a startupProbe on the health port of the pod.",
        ),
    ],
)
def test_another_value_in_quotes_or_another_half_of_a_name_is_another_solution(
    one: str, other: str
) -> None:
    here, there = "The suite takes fourteen minutes", "Slow suite, a quarter of an hour"

    assert not same(Case(here, one), Case(there, other), VERY_NEAR)


def test_of_a_long_text_the_end_is_read_too() -> None:
    trace = "Traceback of the loader:\n" + "  called by the frame before it\n" * 200
    one, other = trace + "KeyError: 'port'", trace + "TypeError: 'port'"
    fix = "Rewrote the loader so that it waits for the lock."

    assert not same(Case(one, fix), Case(other, fix), VERY_NEAR)


def test_very_long_texts_and_texts_without_words_are_read() -> None:
    odd = [
        "",
        "...",
        "\n",
        "🙂" * 10,
        "a" * 100_000,
        "not " * 5000,
        "1.2.3.4.5 " * 3000,
        "\x1b[31m",
    ]
    for text in odd:
        assert same(Case(text, text), Case(text, text), VERY_NEAR)
        assert isinstance(same(Case(text, "x"), Case("x", text), VERY_NEAR), bool)


def test_two_long_patches_of_one_project_are_not_one_pattern() -> None:
    shared = " ".join(f"module_{n} column_{n} table_{n}" for n in range(12))
    one = Case("WCS fails for a scalar", shared + " ".join(f" scalar_{n}" for n in range(15)))
    other = Case("Empty arrays are refused", shared + " ".join(f" empty_{n}" for n in range(15)))

    assert not same(one, other, nearness(one, other))
    again = Case(one.problem, one.solution + " again")
    assert same(one, again, nearness(one, again))


def test_one_fix_for_problems_that_have_nothing_in_common_is_two_lessons() -> None:
    one = Case(
        "Docker build on Apple silicon gives an image that dies on the server: exec "
        "/usr/local/bin/node: exec format error",
        "Build for the server's architecture: docker buildx build --platform linux/amd64.",
    )
    told_again = "Passed --platform linux/amd64 to buildx so the image matches the x86 hosts."
    other = Case("Vuex state is lost on reload", told_again)

    assert not same(one, other, nearness(one, other))
