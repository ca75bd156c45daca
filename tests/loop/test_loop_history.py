"""What the loop knows of earlier iterations."""

from __future__ import annotations

from remembering import made

from ralph.loop.iteration import history
from ralph.memory.ralph import Ralph


def summaries(memory: Ralph, feature: str = "auth") -> list[str]:
    return [one.summary for one in history(memory, feature)]


def test_it_follows_what_is_remembered_and_forgotten_meanwhile(memory: Ralph) -> None:
    auth = memory.feature("auth")
    assert summaries(memory) == []
    first = auth.remember(made("one", session_id="run-1"))
    auth.remember(made("two", session_id="run-2"))
    assert summaries(memory) == ["one", "two"]
    auth.remember(made("three", session_id="run-3"))
    assert summaries(memory) == ["one", "two", "three"]
    auth.forget([first.id])
    assert summaries(memory) == ["two", "three"]
    auth.remember(made("four", session_id="run-4"))
    assert summaries(memory) == ["two", "three", "four"]


def test_it_is_in_the_order_of_the_iterations_and_not_of_the_journal(memory: Ralph) -> None:
    auth = memory.feature("auth")
    auth.remember(made("second", iteration_number=2))
    auth.remember(made("first", iteration_number=1))
    assert summaries(memory) == ["first", "second"]
    auth.remember(
        made("in between", iteration_number=1, session_id="merged", timestamp="2027-01-01")
    )
    assert summaries(memory) == ["first", "in between", "second"]


def test_features_do_not_mix(memory: Ralph) -> None:
    memory.feature("auth").remember(made("signing in"))
    memory.feature("search").remember(made("ranking"))
    assert summaries(memory) == ["signing in"]
    assert summaries(memory, "search") == ["ranking"]
    assert summaries(memory) == ["signing in"]
