"""What is counted, and not kept as an error."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import pytest
from capturing import INIT, ROOT, bash, came, ended, messages, run, said, used
from timing import assert_linear

from ralph.capture.errors import best_line
from ralph.capture.outputs import (
    errors_pasted,
    is_probe,
    is_scratch,
    is_slip,
    read_output,
    stumble,
    stumble_shape,
)
from ralph.capture.shell import instead_of, is_check, shell_call

# fmt: off
STUMBLES = {
    "<tool_use_error>File has not been read yet. Read it first.</tool_use_error>": "edit",
    "<tool_use_error>String to replace not found in file.\nString: x</tool_use_error>": "edit",
    "<tool_use_error>Sibling tool call errored</tool_use_error>": "cancelled",
    "<tool_use_error>Something new that the client says</tool_use_error>": "call",
    "File content (26715 tokens) exceeds maximum allowed tokens (25000).": "read",
    "EISDIR: illegal operation on a directory, read '/p'": "read",
    "Claude requested permissions to write to /p/a, but you haven't granted it yet.": "denied",
    "This Bash command contains multiple operations. The following parts require approval: sed": "denied",
    "Permission for this action was denied by the classifier. Reason: pushing": "denied",
    "sed in '/p/a' was blocked. For security, only the allowed working directories": "blocked",
    "PreToolUse:Edit hook error: [python3 x.py]: You are editing a workflow": "blocked",
    "The user doesn't want to proceed with this tool use. The tool use was rejected": "refused",
    "apply_patch verification failed: Failed to find expected lines in a.py": "edit",
}
FAILURES = ["Exit code 1\nthe request was blocked by the server", "ValueError: x", "", "Exit code 1"]
PROBES = {
    "grep -q x a.py": "", "cd a && rg x": "", "ls missing": "ls: missing: No such file or directory",
    "make 2>&1 | grep error": "", "ssh host 'grep x y'": "", "git show HEAD:gone.md": "fatal: path",
    "gh pr checks 18": "Lint\tfail", "gh pr view --json number": "no pull requests found for branch",
    "git commit -m x": "nothing to commit, working tree clean", "prettier --check .": "a.ts",
    "for d in */; do [ -f $d/x ] && echo $d; done": "a/", "which act": "", "diff a b": "1c1",
    "git rev-parse @{u}": "fatal: no upstream configured for branch 'x'", "test -f x && ls x": "",
    "ls .golang* 2>/dev/null": "(eval):1: no matches found: .golang*", "gofmt -d a.go": "diff a.go",
}
PROBES |= {
    "npx vercel domains --help": "Usage: vercel domains", "systemctl status app": "Active: failed",
    "gh api repos/a/b/commits/c": "gh: Not Found (HTTP 404)", "timeout 5 nc -z host 6379": "",
    'curl -s -o /dev/null -w "%{http_code}" localhost:3000': "000", "gh run watch 7": "X main CI",
    "entire explain 1d0b": 'no checkpoint or commit found matching "1d0b"',
}
WORK = {
    "gh api --method PUT repos/a/b": "gh: Validation Failed (HTTP 422)", "curl localhost:3000": "",
    "timeout 60 pytest": "1 failed",
    "make": "", "pytest -q": "1 failed", "git push": "! [rejected]", "grep x y && make": "",
    "go test ./...": "?  pkg [no test files]", "sed -i s/a/b/ x": "sed: x", "gofmt -w a.go": "",
    "gh pr create": "a pull request already exists", "npm run build | tee log; cat log; make": "",
}
# fmt: on


@pytest.mark.parametrize("output", STUMBLES)
def test_a_call_that_the_client_turned_down_is_a_stumble(output: str) -> None:
    assert stumble(output) == STUMBLES[output]


@pytest.mark.parametrize("output", FAILURES)
def test_a_command_that_ran_and_failed_is_none(output: str) -> None:
    assert stumble(output) is None


@pytest.mark.parametrize("line", PROBES)
def test_a_question_answered_with_no_is_a_probe(line: str) -> None:
    assert is_probe(line, PROBES[line])


@pytest.mark.parametrize("line", WORK)
def test_work_that_failed_is_no_probe(line: str) -> None:
    assert not is_probe(line, WORK[line])


def test_stumbles_and_probes_are_counted_and_not_kept() -> None:
    edit = used("1", "Edit", {"file_path": f"{ROOT}/a.py"})
    unread = came("1", "<tool_use_error>File has not been read yet.</tool_use_error>", error=True)
    looked = bash("ls gone", "Exit code 1\nls: gone: No such file or directory", error=True)
    got = run(INIT, edit, unread, *looked, ended())
    assert got.errors == ()
    assert got.stumbles == {"edit": 1, "probe": 1}


def test_a_stumble_that_one_can_learn_from_is_counted_by_its_shape() -> None:
    skill = "<tool_use_error>Unknown skill: commit</tool_use_error>"
    tried = [used("1", "Skill", {"skill": "commit"}), came("1", skill, error=True)]
    unread = came("2", "<tool_use_error>File has not been read yet.</tool_use_error>", error=True)
    glob = bash("ls *.gif[0]", "Exit code 1\n(eval):1: no matches found: *.gif[0]", error=True)
    edit = used("2", "Edit", {"file_path": f"{ROOT}/a.py"})
    got = run(INIT, *tried, *tried, edit, unread, *glob, ended())
    assert got.errors == ()
    assert got.shapes == {
        "Unknown skill: commit": 2,
        "zsh: no matches found (quote * ? [ ] in arguments)": 1,
    }


def test_a_program_that_was_called_wrongly_is_worth_remembering_though_it_only_asked() -> None:
    wrong = "Exit code 1\ncat: illegal option -- A\nusage: cat [-belnstuv] [file ...]"
    assert messages(run(INIT, *bash("sed -n 1p x | cat -A", wrong, error=True), ended())) == [
        "cat: illegal option -- A"
    ]
    # Also when a pipe hides that it failed.
    hidden = bash("git log | grep -oP x", "grep: invalid option -- P\nusage: grep")
    assert messages(run(INIT, *hidden, ended())) == ["grep: invalid option -- P"]
    assert messages(run(INIT, *bash("cat notes.md", "grep: invalid option -- P"), ended())) == []


def test_a_script_for_the_moment_fails_about_itself() -> None:
    assert is_scratch("python3 -c 'x[1]'", "KeyError: 1")
    assert is_scratch("bun /tmp/fix.js", 'Module not found "/tmp/fix.js"')
    assert not is_scratch("python3 -c 'import app'", "ModuleNotFoundError: No module named 'app'")
    assert not is_scratch("python3 app.py", "KeyError: 1")


@pytest.mark.parametrize(
    "line", ["python3 -c 'import app'", "python3 - <<'EOF'\nimport app\nEOF", "node -e 'run()'"]
)
@pytest.mark.parametrize(
    "message",
    [
        "(eval):1: command not found: python3",
        "UnicodeDecodeError: 'gbk' codec can't decode byte 0x80 in position 3",
        "FileNotFoundError: [Errno 2] No such file or directory: 'docs/manual.pdf'",
    ],
)
def test_a_script_for_the_moment_may_fail_about_the_machine(line: str, message: str) -> None:
    [got] = messages(run(INIT, *bash(line, f"Exit code 1\n{message}", error=True), ended()))
    assert got == message.removeprefix("(eval):1: ")


def test_what_a_script_in_a_pipe_makes_of_an_answer_is_about_the_script() -> None:
    line = "gh api repos/a/b 2>&1 | python3 -c 'import json,sys; json.load(sys.stdin)' | head -30"
    wrong = "json.decoder.JSONDecodeError: Extra data: line 1 column 122 (char 121)"
    output = f'Traceback (most recent call last):\n  File "<string>", line 1\n{wrong}'
    assert messages(run(INIT, *bash(line, output), ended())) == []
    line = "python3 - <<'EOF'\nedit()\nEOF\ngo test ./..."
    failed = "Exit code 1\na.go:3:1: undefined: total\nFAIL"
    assert messages(run(INIT, *bash(line, failed, error=True), ended())) == ["undefined: total"]


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ('psql -c "select * from t"', 'ERROR:  relation "t" does not exist'),
        ("ssh web 'systemctl restart app'", "CPU: 1ms"),
        ("npm run dev", "VITE ready\n^C"),
        ("go test ./...", "no packages to test"),
        ("bash tests/run.sh", "bash: tests/run.sh: No such file or directory"),
    ],
)
def test_a_failure_that_says_nothing_about_the_project_is_not_kept(line: str, output: str) -> None:
    got = run(INIT, *bash(line, f"Exit code 1\n{output}", error=True), ended())
    assert messages(got) == []


def test_a_call_that_was_wrong_is_kept_with_what_helped() -> None:
    wrong = bash(
        "bash run.sh", "Exit code 127\nbash: run.sh: No such file or directory", error=True
    )
    [error] = run(INIT, *wrong, *bash("cd tests && bash run.sh", "ok"), ended()).errors
    assert error.resolution == "`bash run.sh` in the folder `tests` passed."


@pytest.mark.parametrize(
    "words",
    [
        "Now let me run the tests to verify they fail (RED phase).",
        "It should fail, because the function is not written yet.",
    ],
)
def test_a_check_that_is_meant_to_fail_is_no_error(words: str) -> None:
    red = bash("go test ./...", "Exit code 1\na_test.go:3:1: undefined: Total", error=True)
    edit = [used("e", "Write", {"file_path": f"{ROOT}/a_test.go"}), came("e", "File created")]
    assert run(INIT, *edit, said(words), *red, ended()).errors == ()
    after = run(INIT, *edit, *red, said("The test fails as expected. Now the code."), ended())
    assert (after.errors, after.outcome) == ((), "unknown")
    # Without such words it is an error, also when the same check fails again.
    assert len(run(INIT, *edit, *red, ended()).errors) == 1
    assert len(run(INIT, *edit, said(words), *red, said("Done."), *red, ended()).errors) == 1


def test_another_command_that_complains_on_the_line_of_a_check_proves_nothing() -> None:
    edit = [used("e", "Edit", {"file_path": f"{ROOT}/a.go"}), came("e", "updated")]
    green = bash("go test ./...", "ok  \tshop")
    line = "go build -o /tmp/shop ./cmd/... || find . -name main.go"
    denied = bash(line, "bfs: error: ./private: Permission denied.")
    assert run(INIT, *edit, *green, *denied, ended()).outcome == "success"


def test_a_check_that_could_not_start_is_not_the_one_that_was_meant_to_fail() -> None:
    words = said("Let me verify that it fails loudly without the program.")
    wrong = bash(
        "go test ./e2e/...",
        "Exit code 1\npattern ./e2e/...: directory prefix e2e does not contain main module",
        error=True,
    )
    red = bash(
        "go test ./...", "Exit code 1\n--- FAIL: TestLoud\n    a_test.go:3: missing", error=True
    )
    got = messages(run(INIT, words, *wrong, *red, ended()))
    assert got == ["pattern ./e2e/...: directory prefix e2e does not contain main module"]


def test_a_test_that_fails_again_with_a_reason_is_the_same_error() -> None:
    red = bash("go test ./...", "Exit code 1\n--- FAIL: TestTotal (0.01s)\nFAIL", error=True)
    more = "Exit code 1\n--- FAIL: TestTotal (0.02s)\n    a_test.go:3: got 1, want 2\nFAIL"
    [error] = run(INIT, *red, *bash("go test -v ./...", more, error=True), ended()).errors
    assert (error.message, error.count) == ("TestTotal: got 1, want 2", 2)


def test_findings_that_were_there_before_do_not_count() -> None:
    edit = [used("e", "Edit", {"file_path": f"{ROOT}/a.ts"}), came("e", "updated")]
    commit = bash("git commit -m 'Round the total to cents'", "[main 1a2b3c4] Round")
    red = bash(
        "npx tsc", "Exit code 2\nold.ts(3,1): error TS2304: Cannot find name 'g'", error=True
    )
    said_so = said("All TypeScript errors are pre-existing, none is in a file of mine.")
    got = run(INIT, *edit, *commit, *red, said_so, ended())
    assert (got.errors, got.outcome) == ((), "success")
    for words in (
        "Let me check if these errors are pre-existing.",
        "The pre-existing configuration knows no TypeScript, so I change it.",
    ):
        got = run(INIT, *edit, *commit, *red, said(words), ended())
        assert (len(got.errors), got.outcome) == (1, "partial")


def test_the_line_that_tells_the_error_is_the_message_not_the_last_one() -> None:
    output = "Exit code 1\ncould not find 'origin' remote: remote not found\n[rerun: b2]"
    got = run(INIT, *bash("entire search x", output, error=True), ended())
    assert messages(got) == ["could not find 'origin' remote: remote not found"]


def test_an_error_behind_a_pipe_counts_when_the_agent_minds_it() -> None:
    probe = bash("./app --bogus 2>&1 | tail -3", "Error: unknown flag: --bogus\nUsage: app")
    assert messages(run(INIT, *probe, ended())) == []


def test_a_command_that_somebody_stopped_without_a_word_is_no_error() -> None:
    assert messages(run(INIT, *bash("make serve", "Exit code 130", error=True), ended())) == []
    assert len(messages(run(INIT, *bash("make serve", "Exit code 2", error=True), ended()))) == 1


def test_every_missing_module_is_named_in_the_one_entry() -> None:
    output = "".join(
        f"error: Cannot find module '{name}' from 'a.ts'\n" for name in ("./gen/x", "./gen/y")
    )
    [error] = run(INIT, *bash("bun test", f"Exit code 1\n{output}", error=True), ended()).errors
    assert error.message == "Cannot find module './gen/x' from 'a.ts', './gen/y'"
    assert error.count == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve it",
            "ERESOLVE unable to resolve it",
        ),
        ("it says\n\nError: sync: object not found\n\nfix that", "Error: sync: object not found"),
        (
            "/p/ATests.swift:10: error: -[A.B testX] : XCTAssertEqual failed",
            "A.B testX: XCTAssertEqual failed",
        ),
    ],
)
def test_an_error_that_a_person_pasted_counts_once(text: str, message: str) -> None:
    [error] = errors_pasted(text, str)
    assert (error.message, error.count) == (message, 1)


def test_one_cause_is_one_entry_with_a_count() -> None:
    lint = "".join(
        f"a.go:{n}:2: os.Chdir() could be replaced in Test{n} (usetesting)\n" for n in (1, 2, 3)
    )
    [error] = run(INIT, *bash("make lint", f"Exit code 1\n{lint}", error=True), ended()).errors
    assert (error.count, error.line) == (3, 1)
    tests = "".join(
        f"--- FAIL: Test{n}\n    a_test.go:{n}: run: sign: agent refused the key\n" for n in (1, 2)
    )
    [error] = run(INIT, *bash("go test", f"Exit code 1\n{tests}", error=True), ended()).errors
    assert error.count == 2


@pytest.mark.parametrize(
    "piece",
    [
        "requires approval ",
        "nothing to commit ",
        "grep: invalid option\n",
        "/tmp/",
        "sh: : ",
        "A: ",
    ],
)
def test_a_hostile_output_takes_no_longer_than_its_length(piece: str) -> None:
    def read(text: str) -> object:
        seen = stumble(text), stumble_shape(text), is_probe("make", text)
        return seen, is_slip(text), is_scratch("psql -c 'x'", text)

    assert_linear(read, lambda size: piece * (size // len(piece)), 60_000)


@pytest.mark.parametrize(
    "piece", ["echo ", "git checkout ", "| head ", "gh run view ", "A/", "a=", "-e "]
)
def test_a_hostile_command_takes_no_longer_than_its_length(piece: str) -> None:
    def read(line: str) -> object:
        call, other = shell_call(line), shell_call(f"{line} x")
        seen = read_output(line, "error: x", str, failed=False)
        return seen, instead_of(call, other), is_probe(line, ""), is_check(line)

    assert_linear(read, lambda size: piece * (size // len(piece)), 20_000)


@pytest.mark.parametrize(
    "piece", ["\n", "- ERROR x\n", "fail `", "error: ", "[a] ", "##[error]", "a: b: "]
)
def test_hostile_words_and_outputs_take_no_longer_than_their_length(piece: str) -> None:
    def read(text: str) -> object:
        return (
            errors_pasted(text, str),
            best_line(text),
            read_output("make", text, str, failed=True),
        )

    assert_linear(read, lambda size: piece * (size // len(piece)), 60_000)
