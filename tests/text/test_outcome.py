"""The result of an answer: what is told is true, and ends where a sentence ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text.outcome import OUTCOME_CHARS, Item, outcome_of
from ralph.text.sentences import sentences

RELEASE = """As expected {dash} the pipeline structure works correctly:
- **Test & Lint** {dash} passed
- **Build Binaries** {dash} passed (artifact uploaded)
- **Sign & Notarize macOS Binaries** {dash} failed at "Install Apple certificate" because the \
GitHub secrets aren't configured yet
- **Create GitHub Release** {dash} skipped
"""


@pytest.mark.parametrize("dash", ["-", "\u2013", "\u2014"])
def test_a_failed_step_keeps_its_verdict_and_its_reason(dash: str) -> None:
    told = outcome_of("Run the release pipeline", RELEASE.format(dash=dash))

    assert told == (
        f"As expected {dash} the pipeline structure works correctly: Test & Lint {dash} passed;"
        f' Sign & Notarize macOS Binaries {dash} failed at "Install Apple certificate" because the'
        f" GitHub secrets aren't configured yet; Create GitHub Release {dash} skipped; and 1 more."
    )


@pytest.mark.parametrize("max_chars", range(100, 281, 20))
def test_with_less_room_the_verdicts_stay(max_chars: int) -> None:
    told = outcome_of("Run the release pipeline", RELEASE.format(dash="\u2014"), max_chars)

    assert "Sign & Notarize macOS Binaries \u2014 failed" in told
    assert "Create GitHub Release \u2014 skipped" in told
    assert len(told) <= max_chars


@pytest.mark.parametrize(
    "item",
    [
        "Deploy: failed on the second host",
        "**Deploy**: was rejected by the reviewer",
        "Deploy - not configured yet",
        "Deploy \u2192 blocked by the firewall",
        "Deploy \u274c",
        "\u274c Deploy",
        "Deploy (reverted)",
        "Deploy: timed out",
        "Deploy: still failing",
        "[ ] Deploy: pending",
    ],
)
def test_an_item_that_went_badly_is_told_with_its_verdict(item: str) -> None:
    answer = f"Everything works now:\n- Lint: passed\n- Build: passed\n- {item}\n- Docs: passed\n"

    told = outcome_of("Release it", answer)

    words = item.replace("**", "").replace("[ ] ", "")
    assert words in told


def test_the_rows_of_a_table_keep_their_verdicts() -> None:
    answer = (
        "The release is ready:\n\n"
        "| Step | Result |\n| --- | --- |\n| Lint | passed |\n| Sign | failed: no key |\n"
    )
    assert outcome_of("Release it", answer) == (
        "The release is ready: Lint: passed; Sign: failed: no key."
    )


def test_a_list_is_left_out_with_its_lead_in_if_a_failure_does_not_fit() -> None:
    items = "\n".join(f"- Step {n} of the nightly pipeline: failed on host {n}" for n in range(40))

    told = outcome_of("Run it", f"It all works as it should:\n{items}\n", 120)

    assert "works" not in told


def test_a_rule_about_what_is_skipped_is_no_failure() -> None:
    answer = (
        "Both rules are in place and all checks pass.\n\n"
        "- database: skipped when there is no migration\n"
        "- tests: skipped if there are no test files\n"
    )
    assert outcome_of("Add the rules", answer).startswith("Both rules are in place")


@pytest.mark.parametrize(
    "item",
    [
        "tests/test_voice.py \u2014 error match patterns",
        'The server returned 403, not 401. A 401 ("not authenticated") asks for a password',
        "After the loop: return an error that lists all failed clusters",
        "Removed `estimate` \u2014 no longer needed",
    ],
)
def test_an_item_that_only_mentions_errors_did_not_go_badly(item: str) -> None:
    assert not Item(tuple(sentences(item))).went_badly


def test_a_verdict_in_a_heading_is_told_first() -> None:
    answer = "Everything is landed and verified.\n\n## Round 2 verdict: REJECT\n\nThree are left.\n"
    assert outcome_of("Review it", answer) == (
        "Round 2 verdict: REJECT. Everything is landed and verified. Three are left."
    )


def test_a_lead_in_is_told_with_the_sentence_after_it() -> None:
    answer = "The failing test was:\n\n`check_list_files` with a timing assertion.\n"
    assert outcome_of("Why did it fail?", answer) == (
        "The failing test was: check_list_files with a timing assertion."
    )


def test_a_lead_in_to_code_is_not_told_with_the_sentence_after_the_code() -> None:
    answer = (
        "The line uses plain quotes:\n\n```\n. '/home/dev/init'\n```\n\n"
        "The cause was a quote that the shell does not know."
    )
    assert outcome_of("Fix it", answer) == "The cause was a quote that the shell does not know."


def test_a_lead_in_to_code_is_told_alone_if_it_states_a_result() -> None:
    answer = (
        "The view was declared as a tree. I fixed it by marking the view as a webview in"
        " `package.json`:\n\n```json\n{}\n```\n"
    )
    assert outcome_of("Fix the error of the view", answer) == (
        "I fixed it by marking the view as a webview in package.json."
    )


def test_the_names_of_items_are_never_told_alone() -> None:
    answer = (
        "All tests pass. Here's a summary of the changes:\n\n"
        "1. **`config.go`** \u2014 Removed the `MinimumPoints` field\n"
        "2. **`schema.go`** \u2014 Removed `minimum-points` from the schema\n"
    )
    assert outcome_of("Derive the points", answer) == (
        "All tests pass. config.go \u2014 Removed the MinimumPoints field;"
        " schema.go \u2014 Removed minimum-points from the schema."
    )


def test_items_under_the_name_of_a_file_take_its_place() -> None:
    answer = (
        "Here's what changed:\n\n"
        "1. **`wal.go`**:\n"
        "   - flushes once a second\n"
        "   - logs its progress\n"
        "2. **`server.go`**:\n"
        "   - waits for the writers to end\n"
    )
    assert outcome_of("Speed up the shutdown", answer) == (
        "flushes once a second; logs its progress; waits for the writers to end."
    )


def test_a_sentence_that_refers_to_the_one_before_is_told_with_it() -> None:
    answer = (
        "Done. Changed `ReadTimeout` \u2192 `ReadHeaderTimeout` in `server.go`. This prevents body"
        " read deadlines from firing during `/api/write` requests while `Free()` holds the lock."
    )
    assert outcome_of("Fix the parse errors during retention of /api/write", answer) == (
        "Changed ReadTimeout \u2192 ReadHeaderTimeout in server.go. This prevents body read"
        " deadlines from firing during /api/write requests while Free() holds the lock."
    )


def test_how_the_checks_went_is_told_before_the_result() -> None:
    answer = "Build succeeds. The shutdown deadline of the store is 120 seconds now, up from 10."
    assert outcome_of("Why is the startup slow?", answer) == answer


@pytest.mark.parametrize(
    "answer",
    [
        "Now I have a clear understanding of the issue. Let me launch a plan agent.",
        "You're welcome! Let me know if there's anything else.",
        '::git-push{cwd="shop" branch="main"}',
    ],
)
def test_an_answer_without_a_result_has_none(answer: str) -> None:
    assert outcome_of("Fix the archiver", answer) == ""


def test_code_is_not_split_at_its_dots() -> None:
    answer = "The rule matches `a. B? C! D` now, and nothing else was changed. All tests pass."
    assert outcome_of("Fix the rule", answer) == (
        "The rule matches a. B? C! D now, and nothing else was changed. All tests pass."
    )


lines = st.lists(
    st.sampled_from(
        ["All tests pass.", "- a: failed", "- **b** - ok", "Works:", "| a | b |", "| --- | --- |"]
    )
    | st.text(max_size=60),
    max_size=15,
).map("\n".join)


@given(user=lines, answer=lines, max_chars=st.integers(60, OUTCOME_CHARS))
def test_a_result_is_never_too_long(user: str, answer: str, max_chars: int) -> None:
    assert len(outcome_of(user, answer, max_chars)) <= max_chars + 1
