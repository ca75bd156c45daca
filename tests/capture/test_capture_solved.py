"""How an error was solved: what was done between a call that failed and the same going well."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

from typing import Any

import pytest
from capturing import INIT, ROOT, SECRET, bash, came, ended, run, said, used
from hypothesis import given
from hypothesis import strategies as st

from ralph.capture.shell import again, how_it_went, shell_call, short
from ralph.capture.solved import LONGEST

TRACE = (
    'Exit code 1\nTraceback (most recent call last):\n  File "db.py", line 3\nValueError: closed'
)
RED = bash("pytest -q", f"{TRACE}\n1 failed", error=True)
GREEN = bash("pytest -q", "3 passed")


def edit(path: str, old: str = "", new: str = "") -> list[dict[str, Any]]:
    texts = {"old_string": old, "new_string": new}
    call = used("e", "Edit", {"file_path": f"{ROOT}/{path}", **texts})
    return [call, came("e", "updated")]


def fail(command: str, output: str) -> list[dict[str, Any]]:
    return bash(command, f"Exit code 1\n{output}", error=True)


def solved(*events: Any) -> str | None:
    [error] = run(INIT, *events, ended()).errors
    return error.resolution


def test_what_was_edited_and_run_between_and_what_the_agent_said_about_it() -> None:
    assert (
        solved(
            *RED,
            said("The session was closed too early. Let me fix that."),
            *edit("src/db.py"),
            *bash("cat src/db.py", "x"),
            *bash("alembic upgrade head", "done"),
            said("Now the tests again."),
            *GREEN,
        )
        == "Edited src/db.py; ran `alembic upgrade head`; then `pytest -q` passed. "
        '"The session was closed too early."'
    )


def test_what_the_agent_says_right_after_a_failure_explains_it_and_later_words_do_not() -> None:
    comment = said("The first run tripped on a stale cache, so I'm clearing it.")
    plain = "Edited db.py; then `pytest -q` passed."
    why = '"The first run tripped on a stale cache."'
    assert solved(*RED, comment, *edit("db.py"), *GREEN) == f"{plain} {why}"
    assert solved(*RED, *bash("ls", ""), comment, *edit("db.py"), *GREEN) == plain


def test_what_the_agent_says_right_after_it_worked_counts_when_it_explains() -> None:
    because = "It failed because the session was closed before the commit."
    whole = solved(*RED, *edit("db.py"), *GREEN, said(because))
    assert whole == f'Edited db.py; then `pytest -q` passed. "{because}"'
    plain = "Edited db.py; then `pytest -q` passed."
    assert (
        solved(*RED, *edit("db.py"), *GREEN, said("All tests pass now. On to the form.")) == plain
    )
    # Said later, about something else.
    other = [*GREEN, *bash("ls", ""), said(because)]
    assert solved(*RED, *edit("db.py"), *other) == plain


def test_nothing_is_claimed_without_a_success() -> None:
    assert solved(*RED) is None
    assert solved(*RED, *edit("db.py")) is None
    assert solved(*RED, *edit("db.py"), *RED) is None
    assert solved(*RED, *edit("db.py"), *bash("pytest -q tests/other.py", "1 passed")) is None
    assert solved(*RED, *edit("db.py"), *bash("npm test", "3 passed")) is None
    asleep = bash("pytest -q", "Command running in background with ID: b1")
    assert solved(*RED, *edit("db.py"), *asleep) is None


def test_what_passed_without_any_change_is_not_solved() -> None:
    assert solved(*RED, *GREEN) is None
    assert solved(*RED, *bash("git status", "clean"), *bash("cat db.py", "x"), *GREEN) is None


def test_an_edit_is_told_as_what_it_took_out_and_put_in() -> None:
    old = "import os\n\ndef total():\n    return prices[0]\n"
    new = "import os\nimport sys\n\ndef total():\n    return sum(prices)\n"
    told = "Edited a.py: -`return prices[0]` +`return sum(prices)`; then `pytest -q` passed."
    assert solved(*RED, *edit("a.py", old, new), *GREEN) == told
    back = [*edit("a.py", "a", "b"), *edit("a.py", "b", "a")]
    assert solved(*RED, *back, *GREEN) is None


def test_the_edit_that_bears_on_the_error_is_told_first() -> None:
    red = fail("pytest -q", "ValueError: closed session in reader")
    edits = [*edit("a.py", "session = None", "session = reader"), *edit("b.py", "x = 1", "x = 2")]
    told = solved(*red, *edits, *GREEN)
    assert told is not None
    assert told.index("reader") < told.index("x = 2")


def test_a_command_that_was_called_wrongly_is_solved_by_the_one_that_passed() -> None:
    wrong = fail("rtk bun run test", "error: unrecognized subcommand 'bun'")
    told = "`bun run test` instead of `rtk bun run test` passed."
    assert solved(*wrong, *bash("bun run test", "3 pass")) == told
    assert solved(*wrong, *bash("npm publish", "done")) is None
    glob = fail("grep -rn Foo --include=*.go .", "(eval):1: no matches found: --include=*.go")
    quoted = bash("grep -rn Foo --include='*.go' .", "a.go:1: Foo")
    assert "--include='*.go'" in (solved(*glob, *quoted) or "")
    path = fail("cd web && npm test", "(eval):cd:1: no such file or directory: web")
    assert solved(*path, *bash("make lint", "ok")) is None


def test_a_missing_program_is_solved_by_how_it_was_called_then() -> None:
    missing = fail("go build ./web", "/bin/bash: line 1: go: command not found")
    found = bash("/usr/local/go/bin/go build ./web", "")
    told = "`/usr/local/go/bin/go build ./web` instead of `go build ./web` passed."
    assert solved(*missing, *bash("which go", ""), *found) == told
    path = bash('export PATH="$PATH:/usr/local/go/bin" && go build ./web', "")
    told = "`export PATH=$PATH:/usr/local/go/bin && go build ./web` instead of `go build ./web` passed."
    assert solved(*missing, *path) == told
    vercel = fail("vercel alias ls", "zsh:1: command not found: vercel")
    wrapped = bash("npx --yes vercel@latest --version", "54.1")
    told = "`npx --yes vercel@latest` instead of `vercel` passed."
    assert solved(*vercel, *wrapped) == told
    lint = fail("golangci-lint run ./...", "zsh:1: command not found: golangci-lint")
    told = "`mise exec -- golangci-lint run ./...` instead of `golangci-lint run ./...` passed."
    assert solved(*lint, *bash("mise exec -- golangci-lint run ./...", "0 issues.")) == told


def test_a_call_in_the_wrong_folder_is_solved_by_the_right_one() -> None:
    outside = "pattern ./e2e/...: directory prefix e2e does not contain main module"
    wrong = fail("go vet ./e2e/...", outside)
    told = "`cd e2e && go vet ./...` instead of `go vet ./e2e/...` passed."
    assert solved(*wrong, *bash("cd e2e && go vet ./...", "")) == told
    unknown = fail("git add web/a.ts", "fatal: pathspec 'web/a.ts' did not match any files")
    assert (
        solved(*unknown, *bash("cd /home/dev && git add web/a.ts && git commit -m 'Add a'", "ok"))
        == "`git add web/a.ts` in the folder `..` passed."
    )


def test_a_call_that_fails_with_another_error_got_past_the_first_one() -> None:
    wrong = fail(
        "go test ./e2e/...", "pattern ./e2e/...: directory prefix e2e does not contain main module"
    )
    red = fail("cd e2e && go test ./...", "--- FAIL: TestTotal\n    a_test.go:3: got 1")
    first, second = run(INIT, *wrong, *red, ended()).errors
    told = "`cd e2e && go test ./...` instead of `go test ./e2e/...` got past it."
    assert (first.resolution, second.resolution) == (told, None)


def test_a_step_between_solves_most_of_the_call() -> None:
    missing = fail("go build ./a ./b ./c", "a.go:2:2: missing go.sum entry for module x; to add:")
    rest = bash("go build ./a ./b", "")
    told = "Ran `go mod tidy`; then `go build ./a ./b` passed."
    assert solved(*missing, *bash("go mod tidy", ""), *rest) == told
    assert solved(*missing, *rest) is None


def test_an_option_that_was_added_at_once_is_the_solution() -> None:
    taken = fail("go build ./app", 'go: build output "app" already exists and is a directory')
    told = "`go build -o /tmp/app ./app` instead of `go build ./app` passed."
    assert solved(*taken, *bash("go build -o /tmp/app ./app", "")) == told
    # It may have passed by itself.
    flaky = fail("curl -s http://localhost/a", "curl: (7) Connection refused")
    assert solved(*flaky, *bash("curl -s -v http://localhost/a", "ok")) is None
    assert solved(*flaky, *bash("curl -s -i http://localhost/a", "ok")) is None


def test_only_what_runs_tests_proves_a_test() -> None:
    red = fail("go test ./... && go build ./...", "--- FAIL: TestTotal\n    a_test.go:3: got 1")
    fix = edit("a.go", "return 1", "return total")
    assert solved(*red, *fix, *bash("go build ./...", "")) is None
    assert solved(*red, *fix, *bash("git add -A", "")) is None
    assert solved(*red, *fix, *bash("python3 - <<'EOF'\ncheck()\nEOF", "ok")) is None
    green = solved(*red, *fix, *bash("go test ./...", "ok  \tapp"))
    assert green == "Edited a.go: -`return 1` +`return total`; then `go test ./...` passed."


def test_the_command_that_proves_it_is_told_not_the_first_line() -> None:
    red = fail("go test ./app", "--- FAIL: TestTotal\n    a_test.go:3: got 1")
    fix = edit("a.go", "return 1", "return total")
    line = "sed -i s/a/b/ notes.txt\ngo test ./app"
    assert (solved(*red, *fix, *bash(line, "ok  \tapp")) or "").endswith(
        "then `go test ./app` passed."
    )


def test_messages_and_heredocs_are_not_what_changed() -> None:
    ignored = "The following paths are ignored by one of your .gitignore files:\n.work"
    wrong = fail("git add a.py .work/plan.md && git commit -m 'Add one thing'", ignored)
    right = bash("git add a.py && git commit -m 'Add quite another thing'", "[main 1a2b3c4]")
    told = solved(*wrong, *right) or ""
    assert ".work/plan.md" in told
    assert "thing" not in told


def test_what_changed_in_a_long_line_is_never_cut_away() -> None:
    long = (
        "repos/somebody/a-project-with-a-long-name/contents/checkpoints/v1/3c/412f32/1?ref=entire"
    )
    tail = " ".join(f"--header 'X-Number-{n}: {n}'" for n in range(9))
    wrong = fail(f"gh api --paginate {long} {tail}", f"(eval):1: no matches found: {long}")
    told = solved(*wrong, *bash(f"gh api --paginate '{long}' {tail}", "{}"))
    assert told is not None
    assert f"`gh api \u2026 '{long}' \u2026` instead of `gh api \u2026 {long} \u2026`" in told


def test_a_reason_is_about_the_error_or_the_change() -> None:
    wrong = fail("entire status --no-pager", "Error: Invalid usage: unknown flag: --no-pager")
    right = bash("entire status", "clean")
    told = "`entire status` instead of `entire status --no-pager` passed."
    other = said("The brand guidelines are explicit: use neutrals instead of purple.")
    assert solved(*wrong, other, *right) == told
    why = "This version has no `--no-pager` flag, which older ones accepted."
    assert solved(*wrong, said(why), *right) == f'{told} "{why}"'


def test_what_the_person_then_rejects_is_no_solution() -> None:
    red = fail("pytest -q", "AssertionError: assert 10.005 == 10.01")
    fix = edit("total.py", "return price", "return round(price, 2)")

    def resolution(words: str) -> str | None:
        person = {"type": "user", "message": {"content": words}}
        events = [{**event, "sessionId": "s1"} for event in [*red, *fix, *GREEN, person]]
        [error] = run(*events).errors
        return error.resolution

    assert resolution("No, don't round. Use Decimal.") is None
    assert resolution("Great. Now the form.") is not None
    assert resolution("No, the button should be blue.") is not None


def test_of_a_long_line_only_the_command_that_changed_is_told() -> None:
    shown = "sed -n '303,307p' /home/dev/project/pkg/metricstore/walCheckpoint.go"
    wrong = fail(f"{shown} | cat -A", "cat: illegal option -- A")
    told = "`cat -v -e -t` instead of `cat -A` passed."
    assert solved(*wrong, *bash(f"{shown} | cat -v -e -t", "x$")) == told


def test_a_variable_that_was_set_is_told() -> None:
    told = solved(*RED, *bash("DB=/dev/null pytest -q", "3 passed"))
    assert told == "With `DB=/dev/null`; then `DB=/dev/null pytest -q` passed."


def test_a_call_that_fails_over_something_else_has_got_past_the_first_error() -> None:
    got = run(
        INIT,
        *fail("make app", "sh: tauri: command not found"),
        *bash("pnpm install", "done"),
        *fail("make app", "ValueError: closed"),
        *edit("a.py", "x = 1", "x = 2"),
        *bash("make app", "ok"),
        ended(),
    )
    first, second = got.errors
    assert first.resolution == "Ran `pnpm install`; then `make app` passed."
    assert second.resolution == "Edited a.py: -`x = 1` +`x = 2`; then `make app` passed."


def test_a_test_that_was_removed_or_skipped_is_told_as_that_and_not_as_solved() -> None:
    red = fail("pytest -q", "FAILED tests/a.py::test_total - assert 1 == 2")
    body = "def test_total():\n    assert total() == 2\n"
    skipped = f"@pytest.mark.skip\n{body}"
    for old, new in ((body, ""), (body, skipped)):
        got = run(INIT, *red, *edit("tests/a.py", old, new), *GREEN, ended())
        assert got.errors[0].resolution is None
        [decision] = got.decisions
        assert decision.description == "Removed the test test_total instead of fixing it"


def test_what_destroys_or_forces_is_never_told_as_a_cure() -> None:
    for command in ("rm -rf build", "git checkout -- a.py", "git reset --hard", "git stash drop"):
        assert solved(*RED, *bash(command, ""), *GREEN) is None
    hook = fail("git commit -m 'Add the form'", "ValueError: closed")
    forced = bash("git commit --no-verify -m 'Add the form'", "[main 1] Add the form")
    assert solved(*hook, *forced) is None


def test_a_script_on_the_command_line_may_be_what_changed_it() -> None:
    script = "bun -e \"require('fs').writeFileSync('src/a.ts', 'x')\""
    told = solved(*RED, *bash(script, ""), *GREEN)
    assert told is not None
    assert "a script that writes src/a.ts" in told


def test_an_error_that_came_back_is_not_solved_until_it_is_gone_again() -> None:
    first = [*RED, *edit("a.py"), *GREEN]
    assert solved(*first, *RED) is None
    assert solved(*first, *RED, *edit("b.py"), *GREEN) == "Edited b.py; then `pytest -q` passed."


def test_only_what_was_done_after_the_last_failure_counts() -> None:
    both = [*RED, *edit("wrong.py"), *RED, *edit("right.py"), *GREEN]
    assert solved(*both) == "Edited right.py; then `pytest -q` passed."
    # Nothing after it: then it was what had been done before.
    late = [*RED, *edit("right.py"), *RED, *GREEN]
    assert solved(*late) == "Edited right.py; then `pytest -q` passed."


def test_two_errors_that_differ_only_in_how_they_were_solved_are_one() -> None:
    got = run(INIT, *RED, *edit("a.py"), *GREEN, said("I hit ValueError: closed"), ended())
    [error] = got.errors
    assert error.resolution == "Edited a.py; then `pytest -q` passed."


def test_an_error_that_was_only_mentioned_has_no_solution() -> None:
    assert solved(said("The build failed with ValueError: closed"), *edit("a.py"), *GREEN) is None


def test_a_call_begun_before_the_failure_was_known_is_no_second_try() -> None:
    once, twice = used("1", "Bash", {"command": "make"}), used("2", "Bash", {"command": "make"})
    failed, fine = came("1", "Exit code 1\nfatal: bad", error=True), came("2", "ok")
    changed = edit("a.py", "x = 1", "x = 2")
    assert solved(once, twice, failed, *changed, fine) is None
    assert solved(once, failed, *changed, twice, fine) is not None


def test_the_same_command_in_another_folder_is_another_call() -> None:
    red = bash("cd web && npm test", "Exit code 1\nValueError: closed", error=True)
    assert solved(*red, *edit("a.ts"), *bash("cd api && npm test", "3 passed")) is None
    back = bash(f"cd {ROOT}/web && npm test", "3 passed")
    assert solved(*red, *edit("a.ts"), *back) == "Edited a.ts; then `npm test` passed."


def test_files_outside_the_project_are_not_named_but_the_change_is_told() -> None:
    outside = [used("x", "Edit", {"file_path": "/etc/hosts"}), came("x", "ok")]
    told = "Edited a file outside the project; then `pytest -q` passed."
    assert solved(*RED, *outside, *GREEN) == told


def test_a_solution_is_short_redacted_and_no_echo_of_memory() -> None:
    many = [event for n in range(9) for event in edit(f"src/a_rather_long_name_{n}.py")]
    long = solved(*RED, *many, said("It was closed because of " + "x" * 90 + "."), *GREEN)
    assert long is not None
    assert len(long) <= LONGEST
    assert "and 6 more" in long
    secret = solved(*RED, *bash(f"./setup.sh --token {SECRET} now", ""), *GREEN)
    assert secret is not None
    assert SECRET[:12] not in secret
    echo = "The session was closed too early."
    got = run(INIT, *RED, said(echo), *edit("a.py"), *GREEN, ended(), injected=f"- {echo}")
    assert got.errors[0].resolution == "Edited a.py; then `pytest -q` passed."


def test_a_subagents_edits_count_as_done() -> None:
    task = used("task", "Task", {"prompt": "fix"})
    inside = used("1", "Edit", {"file_path": f"{ROOT}/a.py"}, parent_tool_use_id="task")
    done = [came("1", "ok", parent_tool_use_id="task"), came("task", "done")]
    assert solved(*RED, task, inside, *done, *GREEN) == "Edited a.py; then `pytest -q` passed."


def test_beside_another_agents_work_only_an_edit_that_bears_on_the_error_is_told() -> None:
    red = fail("make lint", "src/a.go:4:2: unused variable total (unused)")
    task = [used("task", "Agent", {"prompt": "fix"}), came("task", "done")]
    green = bash("make lint", "0 issues.")
    assert solved(*red, *task, *edit("b.py", "x = 1", "x = 2"), *green) is None
    told = solved(*red, *task, *edit("src/a.go", "total := 1", ""), *green)
    assert told == "Edited src/a.go: -`total := 1`; then `make lint` passed."


def test_codex_tells_it_too() -> None:
    def command(line: str, code: int, output: str) -> dict[str, Any]:
        item = {"type": "command_execution", "command": line, "exit_code": code}
        item |= {"id": f"i{code}{output}", "aggregated_output": output, "status": "completed"}
        return {"type": "item.completed", "item": item}

    change = {"type": "file_change", "id": "c", "changes": [{"path": "a.py", "kind": "update"}]}
    got = run(
        {"type": "thread.started", "thread_id": "t"},
        command("bash -lc 'pytest -q'", 1, "ValueError: closed"),
        {"type": "item.completed", "item": change},
        command("bash -lc 'pytest -q'", 0, "3 passed"),
        {"type": "turn.completed", "usage": {}},
    )
    assert got.errors[0].resolution == "Edited a.py; then `bash -lc 'pytest -q'` passed."


# fmt: off
AGAIN = [
    ("pytest -q tests/a.py", "pytest -q"), ("pytest -q tests/a.py", "pytest   -q tests/a.py"),
    ("cd src && make", "make"), ("pytest tests/a.py::test_x", "pytest tests/a.py"),
    ("python -m pytest tests/a.py -x", "pytest tests/a.py -v"), ("pytest -k slow", "pytest"),
    ("go test ./pkg/a/... -run TestX", "go test ./..."), ("npm test -- a.test.ts", "npm test"),
    ("uv run mypy src/a.py", "timeout 60 uv run mypy src"), ("cargo test", "cargo test | tail -5"),
    ("make all", "PYTHONPATH=src make all"), ("git push origin x", "git push origin x --quiet"),
]
NOT_AGAIN = [
    ("pytest", "pytest tests/a.py"), ("pytest", "pytest -k fast"), ("pytest a.py", "pytest b.py"),
    ("mypy --strict src", "mypy src"), ("pip install a", "pip install b"), ("make test", "make"),
    ("python a.py", "python b.py"), ("npm run build", "npm run lint"), ("npm test", "npm install"),
    ("mkdir a/b", "mkdir -p a/b"), ("python a.py x", "python a.py"), ("cat a", "cat b | sort"),
    ("go test ./a", "go test ./ab"), ("pytest", "ruff check"), ("a && b", "b"),
]
HELPS = [
    "pip install x", "sed -i s/a/b/ f", "ruff check --fix", "docker compose up -d", "npm ci && npm install",
    "alembic upgrade head", "export A=1", "./setup.sh", "gofmt -w a.go", "git pull --rebase",
]
HELPS_NOT = [
    "ls", "cat x", "git status", "git log | head", "pytest -q", "npm test", "go vet ./...", "docker ps",
    "git add a.py", "git commit -m 'Add it'", "rm -rf build", "git checkout -- a.py", "git stash",
]
# fmt: on


@pytest.mark.parametrize(("failed", "call"), AGAIN)
def test_the_same_call_or_more_of_it_is_the_call_again(failed: str, call: str) -> None:
    assert again(shell_call(call), shell_call(failed), None)


@pytest.mark.parametrize(("failed", "call"), NOT_AGAIN)
def test_less_of_it_or_another_call_is_not(failed: str, call: str) -> None:
    assert not again(shell_call(call), shell_call(failed), None)


def test_a_part_of_it_shows_that_the_errors_in_that_part_are_gone() -> None:
    part, whole = shell_call("pytest tests/a.py"), shell_call("pytest")
    assert again(part, whole, "tests/a.py")
    assert not again(part, whole, "tests/b.py")


@pytest.mark.parametrize("command", HELPS)
def test_what_installs_fixes_or_sets_up_is_told(command: str) -> None:
    told = solved(*RED, *bash(command, ""), *GREEN)
    assert told is not None
    assert told.startswith("Ran `")


@pytest.mark.parametrize("command", HELPS_NOT)
def test_looking_checking_saving_and_destroying_is_not(command: str) -> None:
    assert solved(*RED, *bash(command, ""), *GREEN) is None


def test_where_the_exit_code_is_anothers_the_words_must_say_that_it_went_well() -> None:
    piped = shell_call("pytest 2>&1 | tail -5")
    for said_, went in {
        "5 passed in 0.1s": "well",
        "5 passed, 0 failed": "well",
        "1 failed, 5 passed": "unclear",
        "": "unclear",
        "collected 5 items": "unclear",
    }.items():
        assert how_it_went(piped, said_, failed=False) == went
    assert how_it_went(piped, "5 passed", failed=True) == "badly"
    assert how_it_went(shell_call("pytest; echo $?"), "1", failed=False) == "unclear"
    sure = shell_call("set -o pipefail; pytest | tail -5")
    assert how_it_went(sure, "", failed=False) == "well"
    assert how_it_went(shell_call("cd a && make"), "", failed=False) == "well"


@given(st.text(alphabet="pytest rm-qk;&|()<>'\"\\\n $`/=.:", max_size=60))
def test_no_line_raises_and_every_line_is_itself_again(line: str) -> None:
    call = shell_call(line)
    assert again(call, call, None)
    assert call.hint in line
    assert len(short(line)) < 100


def test_on_windows_the_folder_of_a_call_is_told_from_where_it_failed() -> None:
    start = {**INIT, "cwd": "D:\\shop"}
    failed = fail(
        "go build ./...", "pattern ./...: directory prefix . does not contain main module"
    )
    passed = bash("cd /d/shop/src && go build ./...", "")
    [error] = run(start, *failed, *passed, ended()).errors
    assert error.resolution == "`go build ./...` in the folder `src` passed."
