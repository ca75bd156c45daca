"""Times in questions: what is understood, what is deliberately not, and that ranges are sound."""

from __future__ import annotations

import sys
import time
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text.times import LONGEST_QUESTION, TimeRange, event_range, time_range

TODAY = date(2026, 3, 11)  # a Wednesday

# The question, and the first and the last day ("-" is open).
UNDERSTOOD = """
what did we discuss today                | 2026-03-11 2026-03-11
today                                    | 2026-03-11 2026-03-11
earlier today we fixed it                | 2026-03-11 2026-03-11
what did I say this morning?             | 2026-03-11 2026-03-11
What broke last night?                   | 2026-03-10 2026-03-11
what did we decide yesterday about auth? | 2026-03-10 2026-03-10
yesterday's session on caching           | 2026-03-10 2026-03-10
what was said the day before yesterday?  | 2026-03-09 2026-03-09
what happened last week?                 | 2026-03-02 2026-03-08
Last week, what did we try?              | 2026-03-02 2026-03-08
what did I do this week                  | 2026-03-09 2026-03-15
what did we ship last month              | 2026-02-01 2026-02-28
what have we learned this month?         | 2026-03-01 2026-03-31
remember last year's migration?          | 2025-01-01 2025-12-31
what did we write this year              | 2026-01-01 2026-12-31
what failed last quarter                 | 2025-10-01 2025-12-31
what did we try a day ago?               | 2026-03-10 2026-03-10
what did we try two days ago?            | 2026-03-09 2026-03-09
what did we try 3 days ago?              | 2026-03-07 2026-03-09
What appliance did I buy 10 days ago?    | 2026-02-27 2026-03-03
what did we try two weeks ago?           | 2026-02-21 2026-03-01
what did we try about a month ago?       | 2026-01-26 2026-02-27
what did we say twelve months ago        | 2025-02-23 2025-03-27
what did we say a year ago               | 2024-09-09 2025-09-10
what failed in the last 7 days           | 2026-03-04 2026-03-11
what failed in the past two weeks?       | 2026-02-25 2026-03-11
what did I watch in the last 3 months?   | 2025-12-11 2026-03-11
what did we do in the past week?         | 2026-03-04 2026-03-11
what happened the past month?            | 2026-02-11 2026-03-11
notes in March                           | 2026-03-01 2026-03-31
what did we decide in April about X?     | 2025-04-01 2025-04-30
which bug did we fix in march?           | 2026-03-01 2026-03-31
which bug did we fix in May?             | 2025-05-01 2025-05-31
In March 2025, which bug did we fix?     | 2025-03-01 2025-03-31
the June 2024 incident                   | 2024-06-01 2024-06-30
what did we do last December?            | 2025-12-01 2025-12-31
what was said back in Nov. 2025?         | 2025-11-01 2025-11-30
what was logged in 2026-02?              | 2026-02-01 2026-02-28
what did we do in 2025?                  | 2025-01-01 2025-12-31
in 2025 we moved; what changed?          | 2025-01-01 2025-12-31
what happened on March 3?                | 2026-03-03 2026-03-03
March 3                                  | 2026-03-03 2026-03-03
what happened on March 12th?             | 2025-03-12 2025-03-12
what happened on 3 March 2026            | 2026-03-03 2026-03-03
what was said on the 1st of May?         | 2025-05-01 2025-05-01
the meeting on Dec. 24, 2025             | 2025-12-24 2025-12-24
what happened on February 29?            | 2024-02-29 2024-02-29
what happened on 2026-03-05?             | 2026-03-05 2026-03-05
2026/03/05 standup notes                 | 2026-03-05 2026-03-05
what was decided on Monday?              | 2026-03-09 2026-03-09
what was decided on Wednesday?           | 2026-03-04 2026-03-04
what did I earn last Friday?             | 2026-03-06 2026-03-06
what did I earn last Monday?             | 2026-03-02 2026-03-09
what changed since Monday?               | 2026-03-09 -
what changed since March?                | 2026-03-01 -
what changed since 2024?                 | 2024-01-01 -
what changed since last week?            | 2026-03-02 -
what changed since 2 weeks ago?          | 2026-02-21 -
what did we do from 2025 onwards?        | 2025-01-01 -
what did we do from February on?         | 2026-02-01 -
the bug from yesterday                   | 2026-03-10 2026-03-10
what was done after February?            | 2026-03-01 -
what was done after 2026-02-20?          | 2026-02-21 -
what did we know before March 3rd?       | - 2026-03-02
what did we know prior to 2025?          | - 2024-12-31
what was used until 2025-12-31?          | - 2025-12-31
what was used up to last month?          | - 2026-02-28
between March 3 and March 10 what broke? | 2026-03-03 2026-03-10
what was said between November and January? | 2025-11-01 2026-01-31
what was said between March 2025 and May? | 2025-03-01 2025-05-31
what was said between 2024 and 2025?     | 2024-01-01 2025-12-31
which events did I attend from July to October? | 2025-07-01 2025-10-31
after March 3 and before March 10 what broke? | 2026-03-04 2026-03-09
what did we do yesterday and today?      | 2026-03-10 2026-03-11
what did we do last weekend?             | 2026-03-07 2026-03-08
which bike did I fix the past weekend?   | 2026-03-07 2026-03-08
what did we try two weekends ago?        | 2026-02-21 2026-03-01
what was built in the first week of February? | 2026-02-01 2026-02-07
what did we fix in the last week of August | 2025-08-22 2025-08-31
what did we try in the middle of January | 2026-01-10 2026-01-21
what broke in early March?               | 2026-03-01 2026-03-11
what did we do in mid December 2025?     | 2025-12-10 2025-12-21
"""

NOT_UNDERSTOOD = """
what did we decide about auth?
the test may fail
the test may fail in 3 days
test 3 may fail
which in may cases may fail
soldiers march 3 miles in a day
it fails the second time
in time for the release
takes 3 days
within 5 days of the release
why does the token expire after 30 days?
does the retention job keep the last 30 days?
do we keep the last 30 days of logs?
what is the last value
show the last 3 iterations
the last 3 runs failed
the ISO week number of a date
how many days ago did I attend the class?
version 2026.3 is out, what changed?
which port did we use, 2025?
it times out in 2000 ms
between 2019 and 2048 bytes
what did it do after 2020 requests?
upgrade from 2023 to 2024 edition
which model, snapshot 2024-02-01?
was API version 2024-02-01 dropped?
logs/2026-03-05.txt
what is in backup-2026-03-05?
2026-03-05 10:00:01 ERROR boom
2026-03-05T10:00:01Z boom
how do I use git log --since="2 weeks ago"
what does the `last week` filter do?
what does the 'last week' button do?
what did we decide before the release?
what should I do on Monday?
what should I cook today?
how does auth work today?
what is planned this week?
what is due by Friday?
is it ready by March 3?
every March we do the taxes, how?
next March
what happens next week?
I'm flying to Oslo in June, what did you suggest?
What's the best place to visit in April?
By the way, I bought a smoker last week and I am excited to try out different types of wood.
Do you have any tips for the scarf I bought two weeks ago?
how do I parse dates like March 2025?
what happened on the 30th of February?
what did we do half a year ago?
what did we do recently?
what broke a few weeks ago?
what did we do more than two weeks ago?
what broke from March 3 to 10?
what did we do a while ago?
how was the last week of the project?
what will happen in 2099?
the MAY clause, in MAY
"""


def rows(table: str) -> list[tuple[str, ...]]:
    return [tuple(part.strip() for part in line.split("|")) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("question", "days"), rows(UNDERSTOOD))
def test_a_plain_time_is_a_range(question: str, days: str) -> None:
    found = time_range(question, TODAY)

    assert found is not None
    assert " ".join(str(day or "-") for day in found[:2]) == days


@pytest.mark.parametrize("question", NOT_UNDERSTOOD.strip().splitlines())
def test_what_is_not_plainly_a_time_is_no_range(question: str) -> None:
    assert time_range(question, TODAY) is None


@pytest.mark.parametrize(
    ("today", "days"),
    [
        (date(2026, 3, 7), (date(2026, 2, 28), date(2026, 3, 1))),  # a Saturday
        (date(2026, 3, 8), (date(2026, 2, 28), date(2026, 3, 1))),
        (date(2026, 3, 9), (date(2026, 3, 7), date(2026, 3, 8))),
    ],
)
def test_the_last_weekend_is_over(today: date, days: tuple[date, date]) -> None:
    found = time_range("what did we do last weekend?", today)
    assert found is not None
    assert found[:2] == days


RESTS = """
what did we decide yesterday about auth?  | what did we decide about auth?
auth bug last week                        | auth bug
yesterday                                 |
since Monday, what broke in March?        | , what broke ?
what does "last week" mean, said on Monday? | what does "last week" mean, said ?
"""


@pytest.mark.parametrize(("question", "rest"), rows(RESTS))
def test_the_words_for_the_time_are_left_out_of_the_rest(question: str, rest: str) -> None:
    found = time_range(question, TODAY)
    assert found is not None
    assert found.rest == rest


if sys.platform != "win32":

    @pytest.mark.parametrize(
        ("zone", "first", "end"),
        [
            ("UTC", "2026-03-10T00:00:00", "2026-03-11T00:00:00"),
            ("UTC-5", "2026-03-09T19:00:00", "2026-03-10T19:00:00"),  # five hours east
        ],
    )
    def test_a_day_begins_and_ends_at_midnight_where_the_person_is(
        monkeypatch: pytest.MonkeyPatch, zone: str, first: str, end: str
    ) -> None:
        try:
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert TimeRange(date(2026, 3, 10), date(2026, 3, 10)).moments() == (first, end)
        finally:
            monkeypatch.undo()
            time.tzset()


def test_an_open_range_has_no_first_or_last_moment() -> None:
    at = "2026-03-10T00:00:00.123Z"
    for days in (TimeRange(None, TODAY), TimeRange(date(2026, 3, 10), None)):
        first, end = days.moments()
        assert first <= at < end


def test_a_prompt_with_things_pasted_into_it_has_no_range() -> None:
    question = "what did we do last week? "
    assert time_range(question, TODAY) is not None
    assert time_range(question + "x" * LONGEST_QUESTION, TODAY) is None


def test_typographic_marks_and_line_breaks_do_not_matter() -> None:
    found = time_range(
        "what did we see\nin yesterday\u2019s run,  from 2026-03-01 to 2026-03-05?", TODAY
    )
    assert found == (date(2026, 3, 1), date(2026, 3, 10), "what did we see run, ?")


def test_a_date_with_a_time_of_day_will_do_for_today() -> None:
    found = time_range("what did we do yesterday?", datetime(2026, 3, 11, 9, 30))
    assert found == (date(2026, 3, 10), date(2026, 3, 10), "what did we do ?")


EVENTS = """
what did we decide before the release?              | before | the release
what did we decide before the release about auth?   | before | the release
Before the release, what did we decide?             | before | the release
before the release what did we decide?              | before | the release
why did it fail after the upgrade to Python 3.12?   | after  | the upgrade to Python 3.12
what happened since we switched to Postgres?        | since  | we switched to Postgres
what did I learn since I joined the team?           | since  | I joined the team
what was the plan prior to our launch?              | before | our launch
"""


@pytest.mark.parametrize(("question", "relation", "event"), rows(EVENTS))
def test_an_event_is_named_for_the_caller_to_date(question: str, relation: str, event: str) -> None:
    assert event_range(question) == (relation, event)
    assert time_range(question, TODAY) is None


@pytest.mark.parametrize(
    "question",
    [
        "what did we decide?",
        "what happens before the request is sent?",
        "does it retry after the timeout?",
        "should I run the tests before the commit?",
        "since the cache is stale, why did it work?",
        "what did we decide before March?",
        "what did we do the day before yesterday?",
        "Do you have any tips on what I could do before the race I signed up for?",
    ],
)
def test_what_ties_a_question_to_no_event_is_left_alone(question: str) -> None:
    assert event_range(question) is None


days = st.dates(date(2011, 1, 1), date(2040, 12, 31))


@given(day=days, today=days)
def test_a_written_day_comes_back(day: date, today: date) -> None:
    names = [f"{day}", f"{day:%B} {day.day}, {day.year}", f"{day.day} {day:%b} {day.year}"]
    for name in names:
        found = time_range(f"what happened on {name}?", today)
        if day > today:
            assert found is None
        else:
            assert found == (day, day, "what happened ?")


@given(day=days, today=days)
def test_a_day_without_its_year_is_the_latest_that_has_been(day: date, today: date) -> None:
    found = time_range(f"what happened on {day:%B} {day.day}?", today)
    assert found is not None
    first, last, _ = found
    assert first is not None
    assert first == last
    assert (first.month, first.day) == (day.month, day.day)
    years = 8 if (day.month, day.day) == (2, 29) else 1
    assert today - timedelta(days=366 * years) <= first <= today


@given(a=days, b=days)
def test_between_two_days_is_from_the_earlier_to_the_later(a: date, b: date) -> None:
    found = time_range(f"what did we do between {a} and {b}?", max(a, b))
    assert found == (min(a, b), max(a, b), "what did we do ?")


PIECES = st.sampled_from(
    "what did we do in on since before after until from to between and the last this past 3 10 two"
    " a few week weeks month days ago March May may 2025 2026 2026-03-05 Friday today yesterday mid"
    " early ? , 3rd of couple 31 12".split()
)


@given(words=st.lists(PIECES, max_size=14), today=days)
def test_no_mixture_of_words_breaks_it_and_every_range_is_sound(
    words: list[str], today: date
) -> None:
    question = " ".join(words)
    found = time_range(question, today)
    event_range(question)
    if found is not None:
        first, last, _ = found
        assert (first, last) != (None, None)
        assert first is None or first <= today
        assert first is None or last is None or first <= last


@given(st.text(max_size=200))
def test_any_text_is_accepted(text: str) -> None:
    time_range(text, TODAY)
    event_range(text)
