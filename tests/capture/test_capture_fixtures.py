"""Every recorded run, with what a person found in it by reading it."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

from typing import NamedTuple

import pytest
from places import FIXTURES

from ralph.capture import AgentRun
from ralph.clients import read
from ralph.errors import BadInput
from ralph.records import Complaint

MEMORY_TOOL = "mcp__feature-memory__search_feature_memory"
DENIED = "Bash(python3 -c 'import login; print(login.login(1))')"
LOGIN = (("login.py", "created"), ("README.md", "read"))
DONE = "Done: login implemented."
LIBRARY = "packages/library"
CLI_TESTS = f"{LIBRARY}/tests/cli/commands.test.ts"


class Expected(NamedTuple):
    """What the run came to; errors as (type, how the message begins, file, line)."""

    reason: str
    summary: str = ""
    files: tuple[tuple[str, str], ...] = ()
    errors: tuple[tuple[str, str, str | None, int | None], ...] = ()
    turns: int | None = None
    cost: float | None = None
    tokens: int | None = None
    status: int | None = None
    is_error: bool = False
    denied: tuple[str, ...] = ()
    mcp_failed: tuple[str, ...] = ()


def failed(reason: str, message: str, **more: object) -> Expected:
    """A run that the provider ended: its message is both the error and all there is to sum up."""
    base = Expected(reason, message, errors=(("runtime", message, None, None),), is_error=True)
    return base._replace(**more)  # type: ignore[arg-type]  # the fields are the caller's


ENDED = ("runtime", "Reached maximum", None, None)

# fmt: off
RUNS: dict[str, Expected] = {
    "api400": failed("prompt_too_long", "Prompt is too long", turns=1, cost=0, tokens=0, status=400),
    "api429": failed("rate_limited", "API Error: Request rejected (429)", turns=1, cost=0, tokens=0, status=429),
    "api500": failed("api_error", "API Error: 500 Internal", turns=1, cost=0, tokens=0, status=500),
    "api500_mid": failed("api_error", "API Error: 500 Internal", turns=2, cost=0.012, tokens=5150, status=500),
    "api529": failed("api_error", "API Error: Repeated 529", turns=1, cost=0, tokens=0, status=529),
    "api529_recover": Expected("ok", "recovered", turns=1, cost=0.012, tokens=5150),
    "dead_api": failed("api_error", "API Error: Connection refused", turns=1, cost=0, tokens=0),
    # The tool was rejected by the interrupt, which is not an error of the work.
    "killed_INT": Expected("interrupted", is_error=True, turns=3, cost=0.012, tokens=5150),
    "killed_KILL": Expected("killed", is_error=True),
    "killed_TERM": Expected("killed", is_error=True),
    "max_budget": Expected("max_budget", is_error=True, errors=(ENDED,), turns=5, cost=0.06, tokens=20600),
    "max_turns": Expected("max_turns", is_error=True, errors=(ENDED,), turns=4, cost=0.036, tokens=15450),
    "maxtok": failed("api_error", "API Error: Claude's response exceeded", turns=4, cost=0.048, tokens=20600),
    "mcp_crash": Expected("ok", DONE, LOGIN, (), 7, 0.072, 30900, mcp_failed=("feature-memory",)),
    "mcp_garbage": Expected("ok", DONE, LOGIN, (), 7, 0.072, 30900, mcp_failed=("feature-memory",)),
    # Still pending when the run began: not known to have failed.
    "mcp_hang": Expected("ok", "hello there", turns=1, cost=0.012, tokens=5150),
    "mcp_missing": Expected("ok", "hello there", turns=1, cost=0.012, tokens=5150, mcp_failed=("feature-memory",)),
    "midstream": Expected("ok", "partial words here", turns=1, cost=0.012, tokens=10251),
    # Success by its own word, though nothing was written: three tools were denied.
    "perm_default": Expected("ok", DONE, (("README.md", "read"),), (), 7, 0.072, 30900, denied=(MEMORY_TOOL, "Write", DENIED)),
    "refusal": failed("refused", "API Error: Opus 5.5's safeguards", turns=2, cost=0.024, tokens=10300),
    "rl_rej_oauth": failed("rate_limited", "You've hit your 5-hour limit", turns=1, cost=0, tokens=0, status=429),
    "rl_warn_oauth": Expected("ok", "hello", turns=1, cost=0.006, tokens=5150),
    "success": Expected("ok", DONE, LOGIN, (), 7, 0.072, 30900),
    # Nothing was touched: the file read is not there, the edit did not apply.
    "tool_error": Expected("ok", "Finished with errors.", (), (
        ("unknown", f"{MEMORY_TOOL}: index is locked", None, None),
    ), 7, 0.084, 36050),
    "tool_rpcerror": Expected("ok", DONE, LOGIN, (
        ("unknown", f"{MEMORY_TOOL}: internal: database is locked", None, None),), 7, 0.072, 30900),
    "transcript_success": Expected("ok", DONE, LOGIN, (), 6, 0.072, 30900),
    # Six exchanges, one of them interrupted and one refused by the provider, then a compaction.
    "transcript_session": Expected("ok", "Asked: Make the check of the shop pass. The check passes", (("shop.py", "modified"),), (
        ("test", "AssertionError: total is wrong", "check.py", 2),), 10, 0.0088, 1320),
    # The first command failed, and did not after the Makefile was written.
    "transcript_newest": Expected("ok", "Fixed: there was no rule", (("Makefile", "created"),), (
        ("runtime", "No rule to make target 'export'.  Stop.", None, None),), 4, 0.0032, 480),
    # Ended while the hook's output was all there was.
    "run_mp9r3tbb": Expected("killed", is_error=True),
    "run_mp9r3tc5": Expected("killed", is_error=True),
    "run_mp9ygklz": Expected("killed", is_error=True),
    "run_mp9yi4nb": Expected("ok", "Validation complete. Issue `mp9xev4b6c`", (
        (".agentic/specs/cap-upward-promotion-spec.md", "read"),
        (f"{LIBRARY}/src/core/hierarchy.ts", "read"),
        (f"{LIBRARY}/tests/core/tracker/tracker-hierarchy.test.ts", "read"),
        (f"{LIBRARY}/tests/core/hierarchy.test.ts", "read"),
        (f"{LIBRARY}/src/core/tracker.ts", "read"),
    ), (), 16, 0.264757, 77539),
    "run_mp9ztet0": Expected("ok", "Validation complete. Here's the summary:", (
        (".agentic/specs/next-todo-only-spec.md", "read"),
        (f"{LIBRARY}/src/core/tracker.ts", "read"),
        (CLI_TESTS, "read"),
        (f"{LIBRARY}/tests/core/tracker/tracker-next.test.ts", "read"),
        (f"{LIBRARY}/src/cli/commands/next.ts", "read"),
    ), (
        ("test", "CLI commands > next > returns the best issue for a user: expect(", CLI_TESTS, 900),
        ("test", "CLI commands > next > excludes blocked issues: expect(", CLI_TESTS, 921),
        ("test", "CLI commands > next > resolved blockage treated as unblocked: expect(", CLI_TESTS, 977),
    ), 20, 0.263346, 192594),
    # It worked in a worktree beside its folder, so none of its files are the project's.
    "subagent_lint_fix": Expected("ok", "Done. I have successfully fixed both lint errors", (), (), 21, None, 258663),
    "subagent_qa_integration": Expected("ok", "---\n\n## QA Sprint 10i Result: PASS", (), (), 20, None, 577074),
    "subagent_qa_controls": Expected("ok", "These are just test data containing markdown", (), (
        ("runtime", "grep: repetition-operator operand invalid", None, None),), 35, None, 1573222),
    "subagent_compaction": Expected("ok", "<analysis>\nLet me analyze the conversation", (), (), 1, None, 168817),
}
# How the errors of a run were solved, for all that were.
SOLVED = {
    "transcript_session": {"AssertionError: total is wrong": (
        'Edited shop.py: -`return prices[0]` +`return sum(prices)`; then `python3 check.py` passed. "total() returns only the first price, because it never sums them."'
    )},
    "transcript_newest": {"No rule to make target 'export'.  Stop.": (
        'Edited Makefile; then `make export` passed. "There is no rule, so I write one."'
    )},
    # The failed command had an expression that grep does not take.
    "subagent_qa_controls": {"grep: repetition-operator operand invalid": (
        '`go test ./... -count=1 | grep -E "(FAIL|^ok|^\\?)"` instead of `go test ./... -count=1 | grep -E "(FAIL|ok|?)"` passed.'
    )},
}
# What its commit says.
DECIDED = {"subagent_lint_fix": ("fix(lint): resolve staticcheck and unused function warnings",)}
# fmt: on


def captured(name: str) -> tuple[AgentRun, list[Complaint]]:
    path = next(FIXTURES.glob(f"*/{name}.jsonl"))
    with path.open("rb") as lines:
        return read(lines, file=path.name)


def test_every_recording_has_an_expectation() -> None:
    names = {path.stem for path in FIXTURES.glob("claude_code/*.jsonl")}
    names |= {path.stem for path in FIXTURES.glob("transcripts/*.jsonl")}
    assert names == {*RUNS, "hook_inputs"}


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_is_captured_as_a_person_read_it(name: str) -> None:
    run, complaints = captured(name)
    expected = RUNS[name]
    assert complaints == []
    assert (run.terminal_reason, run.is_error) == (expected.reason, expected.is_error)
    assert run.summary.startswith(expected.summary)
    assert bool(run.summary) == bool(expected.summary)
    assert tuple((file.path, file.action) for file in run.files_touched) == expected.files
    seen = [(e.error_type, e.message, e.file_path, e.line) for e in run.errors]
    assert [(kind, file, line) for kind, _, file, line in seen] == [
        (kind, file, line) for kind, _, file, line in expected.errors
    ]
    for (_, message, _, _), (_, begins, _, _) in zip(seen, expected.errors, strict=True):
        assert message.startswith(begins)
    solved = {error.message: error.resolution for error in run.errors if error.resolution}
    assert solved == SOLVED.get(name, {})
    assert run.num_turns == expected.turns
    assert run.cost_usd == (None if expected.cost is None else pytest.approx(expected.cost))
    assert run.tokens_used == expected.tokens
    assert run.api_status == expected.status
    assert run.permission_denials == expected.denied
    assert run.mcp_failed == expected.mcp_failed
    assert [d.description for d in run.decisions] == list(DECIDED.get(name, ()))
    assert run.session_id


def test_the_time_a_rate_limit_ends_is_kept_only_when_it_ended_the_run() -> None:
    assert captured("rl_rej_oauth")[0].rate_limit_resets_at == "2026-11-16T03:33:20.000Z"
    assert captured("rl_warn_oauth")[0].rate_limit_resets_at is None


def test_the_stream_and_the_transcript_of_one_run_agree() -> None:
    stream, transcript = captured("success")[0], captured("transcript_success")[0]
    assert transcript.dialect == "transcript"
    for field in ("session_id", "model", "summary", "files_touched", "tokens_used", "cost_usd"):
        assert getattr(stream, field) == getattr(transcript, field)
    assert stream.used_tools == transcript.used_tools


def test_a_subagents_transcript_is_named_after_both_session_and_subagent() -> None:
    assert captured("subagent_lint_fix")[0].session_id == (
        "967e501d-aa48-4eab-a21f-b17058bd78f0/aae161c"
    )


def test_inputs_of_hooks_are_refused_with_what_they_are() -> None:
    with pytest.raises(BadInput, match=r"inputs of hooks.*stream-json"):
        captured("hook_inputs")


@pytest.mark.parametrize("coarse", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_recording_cut_at_any_byte_never_raises_and_never_invents(coarse: int) -> None:
    """Every cut of a run tells a part of what the whole tells."""
    for name, step in (("killed_INT", 1), ("perm_default", 7), ("transcript_success", 7)):
        data = next(FIXTURES.glob(f"*/{name}.jsonl")).read_bytes()
        whole, _ = captured(name)
        strength = {"read": 0, "modified": 1, "created": 2, "deleted": 3}
        final = {file.path: strength[file.action] for file in whole.files_touched}
        said = {error.message for error in whole.errors}
        dialect = whole.dialect
        for cut in range(0, len(data), step * coarse):
            run, complaints = read(data[:cut].splitlines(keepends=True), dialect=dialect)
            assert len(complaints) <= 1
            assert {error.message for error in run.errors} <= said
            for file in run.files_touched:
                assert strength[file.action] <= final[file.path]
            assert run.summary in {"", whole.summary}
