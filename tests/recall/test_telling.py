"""Which hits a model is told unasked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ralph.recall import Hit, Parts
from ralph.recall.telling import chosen_hits, worth_telling
from ralph.records.note import Note


def hit(name: str, score: float, *, answered: float = 0.99, alone: float = 0.0) -> Hit:
    parts = Parts(
        words=1.0,
        matched=("gateway",),
        asked=1,
        coverage=1.0,
        mixed=1.0,
        score=score,
        answered=answered,
        alone=alone,
    )
    return Hit(name, "note", score, None, "", "", Note(id=name, text=name), parts)


def names(hits: list[Hit]) -> list[str]:
    return [one.id for one in hits]


def test_a_hit_far_behind_the_best_is_not_told() -> None:
    hits = [hit("best", 0.95), hit("near", 0.90), hit("far", 0.60)]
    assert names(worth_telling(hits, conversations=3)) == ["best", "near"]


def test_a_hit_that_would_be_told_alone_is_told_however_good_the_best_is() -> None:
    hits = [hit("best", 0.95), hit("answers", 0.60, alone=0.80), hit("not", 0.60, alone=0.79)]
    assert names(worth_telling(hits, conversations=3, bar=0.80)) == ["best", "answers"]


def test_no_more_are_told_than_there_is_room_for() -> None:
    hits = [hit(str(n), 0.95 - n / 100) for n in range(5)]
    assert names(worth_telling(hits, conversations=2)) == ["0", "1"]


def test_nothing_is_told_unless_an_answer_is_likely() -> None:
    assert worth_telling([hit("note", 0.95, answered=0.65)], conversations=3) == []
    assert names(worth_telling([hit("note", 0.95, answered=0.75)], conversations=3)) == ["note"]


def test_a_prompt_needs_a_likelier_answer_than_a_chat_and_gets_the_most_relevant_first() -> None:
    assert chosen_hits([hit("note", 0.95, answered=0.75)], 0.6) == []
    assert names(chosen_hits([hit("second", 0.90), hit("first", 0.95)], 0.6)) == ["first", "second"]
    assert names(chosen_hits([hit("weak", 0.55), hit("first", 0.95)], 0.6)) == ["first"]


@given(
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.99)), min_size=1, max_size=8, unique=True
    ),
    st.sampled_from([0.70, 0.80]),
)
def test_what_would_be_told_alone_is_told_among_others(
    hits: list[tuple[float, float]], bar: float
) -> None:
    """If there is room for all of them."""
    most = max(alone for _, alone in hits)
    among = [
        hit(str(n), score, alone=alone, answered=most) for n, (score, alone) in enumerate(hits)
    ]
    told = names(worth_telling(among, conversations=len(hits), bar=bar))
    for n, (score, alone) in enumerate(hits):
        by_itself = [hit(str(n), score, alone=alone, answered=alone)]
        if worth_telling(by_itself, conversations=1, bar=bar):
            assert str(n) in told
