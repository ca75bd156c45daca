"""What an iteration teaches: an error overcome, with what overcame it; reasons; else nothing."""

from __future__ import annotations

from ralph.plan.learnings import extract
from ralph.records.iteration import Decision, ErrorSeen, Iteration

ERROR = ErrorSeen(
    "TypeError: Cannot read property 'user' of undefined", "runtime", "src/middleware/auth.ts", 42
)


def failed(number: int, *errors: ErrorSeen, task: int = 1) -> Iteration:
    return Iteration(feature="auth", iteration_number=number, task_id=task, outcome="failure",
                     errors=errors, summary="Could not finish.")  # fmt: skip


def succeeded(number: int, summary: str, task: int = 1, **more: object) -> Iteration:
    return Iteration(feature="auth", iteration_number=number, task_id=task, outcome="success",
                     summary=summary, **more)  # type: ignore[arg-type]  # fmt: skip


def test_f31_an_error_overcome_is_a_learning_with_what_overcame_it_and_why_it_exists() -> None:
    (draft,) = extract(
        succeeded(
            6,
            "Built the login form. Fixed the undefined user by returning { user } from auth.ts."
            " All tests pass.",
        ),
        [failed(3, ERROR), failed(5, ERROR)],
    )
    assert draft.text == (
        "TypeError: Cannot read property 'user' of undefined (src/middleware/auth.ts): "
        "Fixed the undefined user by returning { user } from auth.ts."
    )
    assert draft.reason == "error in iterations 3, 5, overcome in iteration 6 (success)"
    assert draft.iteration == 6


def test_an_error_met_and_overcome_in_one_iteration_is_a_learning() -> None:
    (draft,) = extract(
        succeeded(2, "The cause was a missing await in auth.ts. Done.", errors=(ERROR,))
    )
    assert "The cause was a missing await in auth.ts." in draft.text
    assert draft.reason == "error met and overcome in iteration 2"


def test_the_same_error_with_other_numbers_is_the_same_error() -> None:
    before = ErrorSeen("Timeout after 3041 ms waiting for port 53211", "runtime")
    after = ErrorSeen("Timeout after 2999 ms waiting for port 61002", "runtime")
    partial = Iteration(feature="auth", iteration_number=4, task_id=1, outcome="partial",
                        summary="Fixed the timeout waiting for the port, I think.",
                        errors=(after,))  # fmt: skip
    assert extract(partial, [failed(3, before)]) == []


def test_without_words_that_say_how_there_is_no_learning() -> None:
    assert (
        extract(succeeded(4, "Implemented everything. All tests pass."), [failed(3, ERROR)]) == []
    )


def test_a_sentence_that_says_it_is_still_open_is_no_solution() -> None:
    summary = "The undefined user in auth.ts still needs to be fixed by someone."
    assert extract(succeeded(4, summary), [failed(3, ERROR)]) == []


def test_an_error_of_another_task_is_not_this_ones_to_overcome() -> None:
    summary = "Fixed the undefined user by returning { user } from auth.ts."
    assert extract(succeeded(4, summary), [failed(3, ERROR, task=2)]) == []


def test_an_error_overcome_before_is_not_overcome_again() -> None:
    history = [failed(1, ERROR), succeeded(2, "Fixed the undefined user in auth.ts.")]
    assert extract(succeeded(3, "Fixed the undefined user docs in auth.ts."), history) == []


def test_a_failed_iteration_teaches_nothing() -> None:
    newest = Iteration(
        iteration_number=4, task_id=1, outcome="failure", summary="Fixed the undefined user."
    )
    assert extract(newest, [failed(3, ERROR)]) == []


def test_a_tool_that_was_not_allowed_teaches_nothing() -> None:
    denied = ErrorSeen("Permission to use Bash has been denied", "permission")
    assert extract(succeeded(4, "Resolved the permission to use Bash."), [failed(3, denied)]) == []


def test_a_decision_with_a_reason_is_a_learning_of_its_task() -> None:
    newest = succeeded(
        4,
        "Done.",
        task_title="Build form",
        decisions=(
            Decision("Used React Hook Form for form state", "Better performance with validation"),
            Decision("Renamed a variable"),
            Decision("Kept sessions in Redis", "because the load balancer is not sticky"),
            Decision("Split the module in two", "to keep the tests fast enough"),
        ),
    )
    drafts = extract(newest)
    assert [d.text for d in drafts] == [
        "Used React Hook Form for form state, because Better performance with validation",
        "Kept sessions in Redis, because the load balancer is not sticky",
    ]
    assert {d.task_id for d in drafts} == {1}
    assert drafts[0].reason == "decided in iteration 4, which succeeded (Build form)"


def test_decisions_of_an_iteration_that_did_not_succeed_are_not_learnings() -> None:
    chosen = (Decision("Used React Hook Form", "Better performance"),)
    partial = Iteration(iteration_number=4, task_id=1, outcome="partial", decisions=chosen)
    assert extract(partial) == []


def test_an_iteration_teaches_few_things() -> None:
    errors = tuple(ErrorSeen(f"NameError: name 'thing{c}' is not defined") for c in "abcdef")
    summary = " ".join(f"Fixed the NameError of thing{c} by importing it." for c in "abcdef")
    assert len(extract(succeeded(2, summary, errors=errors))) == 3
