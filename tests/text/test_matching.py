from __future__ import annotations

from ralph.text.matching import sentences_about
from ralph.text.tokens import query_tokens

ANSWER = """\
Done. The tests pass.

## What I found

The projects page asks for the number of users of each project. `COUNT(DISTINCT user)` forces a scan
of the whole table. The users page never asks for it.

- Cached the count for a minute
- Removed the unused column
"""


def about(question: str, text: str = ANSWER, max_chars: int = 200) -> str:
    return sentences_about(set(query_tokens(question)), text, max_chars)


def test_the_sentence_about_the_question_is_told_with_what_follows() -> None:
    found = about("why is the projects page slow?")
    assert found.startswith("The projects page asks for the number of users of each project.")
    assert "forces a scan of the whole table." in found


def test_nothing_is_told_if_no_sentence_is_about_the_question() -> None:
    assert about("how do we deploy to kubernetes?") == ""
    assert about("run the tests") == ""


def test_items_of_a_list_can_be_what_is_asked_for() -> None:
    assert about("how long do we cache the count?").startswith("Cached the count for a minute")


def test_only_whole_sentences_are_told() -> None:
    found = about("why is the projects page slow?", max_chars=80)
    assert found == "The projects page asks for the number of users of each project."
    assert about("why is the projects page slow?", max_chars=20) == ""


def test_headings_and_code_are_not_told() -> None:
    text = "## The zebra heading\n\n```\nzebra code\n```\n\nNothing else."
    assert about("where is the zebra?", text) == ""
