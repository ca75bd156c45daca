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


def test_a_long_sentence_is_cut_where_a_clause_ends() -> None:
    reason = "because the projects page counts distinct users, which forces a scan"
    text = f"The projects page is slow {reason}, {'and so on and on, ' * 20}until it ends."
    found = about("why is the projects page slow?", text, max_chars=120)
    assert reason in found
    assert len(found) <= 120


def test_what_is_told_already_is_not_told_again() -> None:
    first = "The projects page asks for the number of users of each project."
    asked = set(query_tokens("why is the projects page slow?"))
    for told in (first, f"All is well. {first[:40]}\u2026"):
        assert first not in sentences_about(asked, ANSWER, 200, told=told)


def test_a_sentence_that_only_asks_again_is_not_told() -> None:
    text = "Why is the projects page slow? The projects page scans a table for each project."
    found = about("why is the projects page slow?", text)
    assert found == "The projects page scans a table for each project."


def test_an_item_is_told_with_the_words_that_lead_to_its_list() -> None:
    text = (
        "The question is whether you want to:\n- Keep snake_case in JSON\n- Use camelCase in JSON"
    )
    found = about("do we use camelCase or snake_case in JSON?", text)
    assert found.startswith(
        "The question is whether you want to: Keep snake_case in JSON; Use camel"
    )


def test_headings_and_code_are_not_told() -> None:
    text = "## The zebra heading\n\n```\nzebra code\n```\n\nNothing else."
    assert about("where is the zebra?", text) == ""


def test_words_before_a_heading_do_not_lead_to_the_list_under_it() -> None:
    text = "What I found:\n\n## Cache\n\n- Cached the count of users for a minute"
    assert (
        about("how long do we cache the count?", text) == "Cached the count of users for a minute"
    )
