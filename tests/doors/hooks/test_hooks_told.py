"""What hooks tell of plans, lists, failures and decisions is true and whole."""

from __future__ import annotations

from pathlib import Path

from hooking import Session

PLAN = """Implement the following plan:

# Fix: Line Protocol Parse Errors During Retention

## Context

During retention, concurrent `/api/write` requests fail with truncated line protocol errors.

## Changes

Use another timeout.
"""
CHANGED = "Changed `ReadTimeout` to `ReadHeaderTimeout` in `server.go`. All tests pass."
INTERRUPTED = "[Request interrupted by user]"


def prompted(project: Path, folder: Path, prompt: str) -> str:
    return Session(project, folder).hook("user-prompt-submit", prompt=prompt).context


def test_a_plan_is_told_by_what_was_done(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts(PLAN)
    earlier.says(CHANGED)
    earlier.hook("stop")

    text = prompted(project, tmp_path, "line protocol parse errors during retention are back")

    assert "Fix: Line Protocol Parse Errors During Retention\n" in text
    assert "Result: Changed ReadTimeout to ReadHeaderTimeout in server.go. All tests pass." in text
    assert text.count("Line Protocol Parse Errors") == 1
    assert "decided" not in text
    assert "truncated" not in text


def test_the_sentences_about_the_question_are_told_beside_the_result(
    project: Path, tmp_path: Path
) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Review the page about synchronization")
    earlier.says(
        "I reviewed the page and fixed three typos. All links work now.\n\n"
        "The push of refs is not atomic. The server may apply some refs and reject others.\n\n"
        "The table of contents is up to date."
    )
    earlier.hook("stop")

    text = prompted(project, tmp_path, "is the push of refs atomic?")

    assert "not atomic. The server may apply some refs and reject others." in text


def test_a_plan_that_was_stopped_and_taken_back_is_not_told_as_accepted(
    project: Path, tmp_path: Path
) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts(PLAN)
    earlier.says("Now the timeout of the line protocol parser.")
    earlier.prompts(INTERRUPTED)
    earlier.prompts("I've reverted your changes - only raise the limit of the body size")
    earlier.says("The limit of the body size is 8 MB now.")
    earlier.hook("stop")

    text = prompted(project, tmp_path, "line protocol parse errors during retention are back")

    assert "(ended interrupted)" in text
    assert "accepted" not in text.lower()
    assert "Result: Now the timeout" not in text
    assert (
        "Later in that session: I've reverted your changes - only raise the limit of the body size."
        " The limit of the body size is 8 MB now."
    ) in text


def test_a_failure_is_told_with_what_fixed_it_later(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Run the release pipeline for v2")
    earlier.writes("release.sh")
    earlier.writes("release.yml")
    earlier.says(
        "The pipeline works correctly:\n"
        "- **Build** \u2014 passed\n"
        "- **Sign** \u2014 failed at the certificate\n"
    )
    earlier.prompts("Fix the signature of the release")
    earlier.writes("release.yml")
    earlier.says("The certificate is read from the secret store now, and the release is signed.")
    earlier.hook("stop")

    text = prompted(project, tmp_path, "how did the release pipeline for v2 go?")

    assert "Build \u2014 passed; Sign \u2014 failed at the certificate." in text
    assert "Later in that session: Fix the signature of the release. The certificate is" in text


def test_an_unrelated_error_of_the_same_exchange_is_not_told(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Limit the size of repositories in cloud mode")
    earlier.runs("rtk bun run test", "error: unrecognized subcommand 'bun'", failed=True)
    earlier.runs("bun run test", "ok")
    earlier.says("Repositories above one million lines are refused in cloud mode.")
    earlier.hook("stop")

    cloud = prompted(project, tmp_path, "how large may repositories be in cloud mode?")
    bun = prompted(project, tmp_path, "repositories in cloud mode: unrecognized subcommand 'bun'")

    assert "Repositories above one million lines are refused in cloud mode." in cloud
    assert "bun" not in cloud
    assert "Error: unrecognized subcommand 'bun' Fix:" in bun


def test_a_word_of_many_errors_does_not_bring_an_error_to_a_prompt_on_something_else(
    project: Path, tmp_path: Path
) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Add a retry to the invoice mailer")
    earlier.runs("pytest", "ModuleNotFoundError: No module named 'yaml'", failed=True)
    earlier.runs("pip install pyyaml", "installed")
    earlier.runs("pytest", "12 passed")
    earlier.says("The mailer retries three times with a backoff.")
    earlier.hook("stop")

    invoices = prompted(project, tmp_path, "Add a module for invoices to the mailer")
    yaml = prompted(project, tmp_path, "invoice mailer: No module named 'yaml'")

    assert "The mailer retries three times" in invoices
    assert "yaml" not in invoices
    assert "No module named 'yaml' Fix:" in yaml


def test_a_session_starts_with_the_verdicts_of_the_last_one(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Run the release pipeline for v2")
    earlier.writes("release.sh")
    earlier.says("It works:\n- Build: passed\n- Sign: failed at the certificate\n- Docs: skipped\n")
    earlier.hook("stop")

    text = Session(project, tmp_path).hook("session-start").context

    assert "Build: passed; Sign: failed at the certificate; Docs: skipped." in text


def test_a_long_title_ends_where_a_clause_ends(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts(
        "Adopt the routine that determines the state so that it is set in the order in which the"
        " states appear in the switch statement of the node"
    )
    earlier.writes("node.py")
    earlier.says("The routine checks the states in the order of the switch statement now.")
    earlier.hook("stop")

    text = Session(project, tmp_path).hook("session-start").context

    assert "[truncated]" not in text
    assert "Adopt the routine that determines the state" in text
    assert "appear in the switch statement of the node" not in text


def test_a_proposal_is_told_with_the_turn_that_did_it(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Which installer packages could we drop on Windows?")
    earlier.says("The MSI package and the store package could go. The zip archive stays.")
    earlier.hook("stop")
    earlier.prompts("go ahead")
    earlier.writes("build.ps1")
    earlier.says("Removed the MSI package and the store package from build.ps1.")
    earlier.hook("stop")

    text = prompted(project, tmp_path, "do we still build an MSI installer package on Windows?")

    assert "Later in that session: go ahead. Removed the MSI package" in text


def test_every_chosen_record_is_told_before_one_is_told_at_length(
    project: Path, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        earlier = Session(project, tmp_path)
        earlier.prompts(f"Make the {name} export of invoices faster")
        earlier.says(
            f"The {name} export of invoices streams rows now. {'It reads one page at a time. ' * 9}"
        )
        earlier.hook("stop")

    text = prompted(project, tmp_path, "is the export of invoices slow again?")

    assert "The first export of invoices streams rows now." in text
    assert "The second export of invoices streams rows now." in text
