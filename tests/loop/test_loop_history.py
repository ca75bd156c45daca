"""What the loop knows of earlier iterations, kept up to date by reading only what is new."""

from __future__ import annotations

from remembering import made

from ralph.loop.iteration import IterationHistory
from ralph.memory.ralph import Ralph
from ralph.records.iteration import FileTouched


def summaries(history: IterationHistory, feature: str = "auth") -> list[str]:
    return [one.summary for one in history.of(feature)]


def test_it_follows_what_is_remembered_and_forgotten_meanwhile(memory: Ralph) -> None:
    history = IterationHistory(memory)
    auth = memory.feature("auth")
    assert summaries(history) == []
    first = auth.remember(made("one", session_id="run-1"))
    auth.remember(made("two", session_id="run-2"))
    assert summaries(history) == ["one", "two"]
    auth.remember(made("three", session_id="run-3"))
    assert summaries(history) == ["one", "two", "three"]
    auth.forget([first.id])
    assert summaries(history) == ["two", "three"]
    auth.remember(made("four", session_id="run-4"))
    assert summaries(history) == ["two", "three", "four"]


def test_it_is_in_the_order_of_the_iterations_and_not_of_the_journal(memory: Ralph) -> None:
    auth = memory.feature("auth")
    auth.remember(made("second", iteration_number=2))
    auth.remember(made("first", iteration_number=1))
    history = IterationHistory(memory)
    assert summaries(history) == ["first", "second"]
    auth.remember(
        made("in between", iteration_number=1, session_id="merged", timestamp="2027-01-01")
    )
    assert summaries(history) == ["first", "in between", "second"]


def test_features_do_not_mix(memory: Ralph) -> None:
    history = IterationHistory(memory)
    memory.feature("auth").remember(made("signing in"))
    memory.feature("search").remember(made("ranking"))
    assert summaries(history) == ["signing in"]
    assert summaries(history, "search") == ["ranking"]
    assert summaries(history) == ["signing in"]


def test_those_that_touched_some_files_come_with_these_files_alone(memory: Ralph) -> None:
    auth = memory.feature("auth")
    both = (FileTouched("a.py", "read"), FileTouched("b.py", "modified"))
    auth.remember_all([made("both", files_touched=both), made("b", files_touched=both[1:])])
    history = IterationHistory(memory)
    [one] = history.touching("auth", ["a.py"])
    assert (one.summary, one.files_touched) == ("both", both[:1])
    assert len(history.touching("auth", ["b.py", "c.py"])) == 2
    assert history.touching("auth", []) == []
