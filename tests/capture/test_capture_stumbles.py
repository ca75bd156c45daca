"""What is counted, and not kept as an error."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import pytest
from capturing import INIT, ROOT, bash, came, ended, messages, run, used
from timing import assert_linear

from ralph.capture.errors import best_line
from ralph.capture.outputs import errors_pasted, is_probe, is_scratch, read_output, stumble
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
WORK = {
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
    "piece", ["requires approval ", "nothing to commit ", "grep: invalid option\n"]
)
def test_a_hostile_output_takes_no_longer_than_its_length(piece: str) -> None:
    assert_linear(lambda text: (stumble(text), is_probe("make", text)),
                  lambda size: piece * (size // len(piece)), 60_000)  # fmt: skip


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
