"""What an iteration teaches: an error with its proven solution, a person's words; else nothing."""

from __future__ import annotations

import msgspec
import pytest

from ralph.memory.drafts import drafts_of
from ralph.records.iteration import Decision, ErrorSeen, Iteration

ERROR = ErrorSeen(
    "TypeError: Cannot read property 'user' of undefined",
    "runtime",
    "src/middleware/auth.ts",
    42,
    "returned { user } from auth.ts; then `npm test` passed",
)


def succeeded(number: int, summary: str, **more: object) -> Iteration:
    return Iteration(feature="auth", iteration_number=number, task_id=1, outcome="success",
                     summary=summary, **more)  # type: ignore[arg-type]  # fmt: skip


def test_f31_an_error_with_a_proven_solution_is_a_learning_that_says_why_it_exists() -> None:
    (draft,) = drafts_of(succeeded(6, "Built the login form.", errors=(ERROR,)))

    assert draft.text == (
        "TypeError: Cannot read property 'user' of undefined (src/middleware/auth.ts): "
        "returned { user } from auth.ts; then `npm test` passed"
    )
    assert draft.reason == "error met and solved in iteration 6"
    assert (draft.source, draft.iteration) == ("auto", 6)


def test_an_error_is_never_paired_with_a_sentence_that_stands_near_it() -> None:
    unsolved = msgspec.structs.replace(ERROR, resolution=None)
    summary = "Fixed the undefined user by returning { user } from auth.ts. All tests pass."

    assert drafts_of(succeeded(6, summary, errors=(unsolved,))) == []


def test_an_iteration_that_only_got_somewhere_teaches_what_it_proved() -> None:
    partial = Iteration(iteration_number=4, task_id=1, outcome="partial", errors=(ERROR,))
    assert len(drafts_of(partial)) == 1


def test_a_failed_iteration_teaches_nothing() -> None:
    failed = Iteration(iteration_number=4, task_id=1, outcome="failure", errors=(ERROR,))
    assert drafts_of(failed) == []


def test_a_tool_that_was_not_allowed_teaches_nothing() -> None:
    denied = ErrorSeen("Permission to use Bash has been denied", "permission", resolution="asked")
    assert drafts_of(succeeded(4, "Done.", errors=(denied,))) == []


@pytest.mark.parametrize(("count", "learned"), [(1, 0), (2, 1)])
def test_a_slip_that_was_put_right_at_once_teaches_nothing(count: int, learned: int) -> None:
    slip = ErrorSeen("undefined: total", "compile", "cart.go", 3, "declared it", count)
    assert len(drafts_of(succeeded(4, "Done.", errors=(slip,)))) == learned


def test_what_a_person_said_is_a_learning_and_what_an_agent_decided_is_not() -> None:
    newest = succeeded(
        4,
        "Done.",
        decisions=(
            Decision("Used React Hook Form for form state", "Better performance with validation"),
            Decision("Keep sessions in Redis", "said when refusing an edit", "human"),
        ),
    )
    (draft,) = drafts_of(newest)
    assert draft.text == "Keep sessions in Redis (said when refusing an edit)"
    assert (draft.source, draft.reason) == ("human", "said by the user in iteration 4")


@pytest.mark.parametrize(
    ("said", "learned"),
    [
        ("Never log the token. Look at the cart, too.", ["Never log the token."]),
        ("Which database? -> Postgres", ["Which database? -> Postgres"]),
        ("Should I commit this now? -> yes, go ahead", []),
        ("b -> A table in Redis", []),
        ("The cart should be on the left", []),
        ("Rejected plan: Cache the prices. Good, write a test first.", []),
    ],
)
def test_a_persons_words_are_a_learning_if_they_hold_later(said: str, learned: list[str]) -> None:
    newest = succeeded(4, "Done.", decisions=(Decision(said, None, "human"),))
    assert [draft.text for draft in drafts_of(newest)] == learned


@pytest.mark.parametrize(
    ("error", "learned"),
    [
        (ErrorSeen("KeyError: 'secret'", "runtime", resolution="Edited a.py: -`x` +`y`"), 1),
        (ErrorSeen("undefined: total", "compile", resolution="Edited a.go: -`x` +`y`"), 0),
        (ErrorSeen("test_total failed", "test", resolution='Edited a.py. "It was renamed."'), 0),
        (ErrorSeen("command not found: python", resolution="`python3` instead of `python`"), 1),
        (ErrorSeen("`npm test` failed with exit code 1: x", resolution="`npm ci` passed."), 0),
    ],
)
def test_an_edit_of_code_that_did_not_compile_or_pass_is_no_learning(
    error: ErrorSeen, learned: int
) -> None:
    assert len(drafts_of(succeeded(4, "Done.", errors=(error,)))) == learned


def test_an_accepted_plan_is_no_learning() -> None:
    plan = Decision("Accepted plan: Fix the login form", "The form hangs.", "human")
    assert drafts_of(succeeded(4, "Done.", decisions=(plan,))) == []


def test_an_iteration_teaches_few_things_and_what_came_most_often_first() -> None:
    errors = tuple(
        ErrorSeen(f"NameError: name 'thing{n}' is not defined", resolution="imported it", count=n)
        for n in range(1, 7)
    )
    drafts = drafts_of(succeeded(2, "Done.", errors=errors))
    assert [draft.text.split("'")[1] for draft in drafts] == ["thing6", "thing5", "thing4"]
