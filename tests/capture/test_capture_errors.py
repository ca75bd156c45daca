"""Which lines are errors, of which type and where; and which lines only speak of errors."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import posixpath

import pytest
from timing import assert_linear

from ralph.capture.errors import errors_in
from ralph.capture.outputs import errors_said


def resolve(path: str) -> str | None:
    """The project is /proj."""
    if path.startswith("/proj/"):
        return path[6:]
    return None if path.startswith("/") else posixpath.normpath(path)


Seen = tuple[str, str, str | None, int | None]

# fmt: off
ERRORS: dict[str, tuple[str, list[Seen]]] = {
    "python: the deepest frame of the project is the place": ('''\
Traceback (most recent call last):
  File "/proj/app/main.py", line 10, in <module>
    run()
  File "/proj/app/db.py", line 33, in run
    conn.execute(q)
  File "/usr/lib/python3.11/sqlite3/x.py", line 3, in execute
sqlite3.OperationalError: no such table: users
''', [("runtime", "sqlite3.OperationalError: no such table: users", "app/db.py", 33)]),
    "dart analyze": ("""\
Analyzing proj...
  error - lib/cart.dart:66:22 - The name 'Failure' is defined twice. - ambiguous_import
  warning - lib/cart.dart:7:8 - Unused import. - unused_import
2 issues found.
""", [("lint", "The name 'Failure' is defined twice.", "lib/cart.dart", 66)]),
    "rich: in a box": ("""\
Usage: shop [OPTIONS]
╭─ Error ───────────────────╮
│ No such option: --tax     │
╰───────────────────────────╯
""", [("runtime", "No such option: --tax", None, None)]),
    "python: of a chain, the last": ('''\
Traceback (most recent call last):
  File "/proj/a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/proj/b.py", line 2, in g
ValueError: bad
''', [("runtime", "ValueError: bad", "b.py", 2)]),
    "python: a syntax error does not compile": ('''\
  File "/proj/x.py", line 3
    def f(
         ^
SyntaxError: '(' was never closed
''', [("compile", "SyntaxError: '(' was never closed", "x.py", 3)]),
    "pytest": ('''\
    def test_login():
>       assert login(None) is True
E       assert False is True

tests/test_login.py:5: AssertionError
=========================== short test summary info ============================
FAILED tests/test_login.py::test_login - assert False is True
ERROR tests/test_x.py - ModuleNotFoundError: No module named 'foo'
========================= 1 failed, 3 passed in 0.12s =========================
''', [("test", "test_login: assert False is True", "tests/test_login.py", 5),
      ("test", "ModuleNotFoundError: No module named 'foo'", "tests/test_x.py", None)]),
    "pytest without its summary": ('''\
E       AssertionError: assert 3 == 4

tests/test_login.py:5: AssertionError
''', [("test", "AssertionError: assert 3 == 4", "tests/test_login.py", 5)]),
    "unittest": ('''\
FAIL: test_a (tests.test_x.T.test_a)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/proj/tests/test_x.py", line 7, in test_a
    self.assertEqual(1, 2)
AssertionError: 1 != 2

FAILED (failures=1)
''', [("test", "AssertionError: 1 != 2", "tests/test_x.py", 7)]),
    "node": ('''\
/proj/src/index.js:3
    throw new TypeError("x");
    ^

TypeError: Cannot read properties of undefined (reading 'user')
    at Object.<anonymous> (/proj/src/index.js:3:11)
    at Module._compile (node:internal/modules/cjs/loader:1105:14)
''', [("runtime", "TypeError: Cannot read properties of undefined (reading 'user')", "src/index.js", 3)]),
    "tsc": ("src/a.ts(3,5): error TS2345: Argument of type 'string'.",
            [("compile", "TS2345: Argument of type 'string'.", "src/a.ts", 3)]),
    "tsc --pretty": ("src/a.ts:3:5 - error TS2304: Cannot find name 'foo'.",
                     [("compile", "TS2304: Cannot find name 'foo'.", "src/a.ts", 3)]),
    "eslint": ('''\
/proj/src/a.js
  3:10  error    'x' is defined but never used  no-unused-vars
  4:1   warning  Unexpected console            no-console

✖ 2 problems (1 error, 1 warning)
''', [("lint", "'x' is defined but never used  no-unused-vars", "src/a.js", 3)]),
    "jest": ('''\
  ● login \u203a rejects bad password

    expect(received).toBe(expected) // Object.is equality

      at Object.<anonymous> (src/a.test.js:12:20)
''', [("test", "login \u203a rejects bad password: expect(received).toBe(expected) // Object.is equality",
       "src/a.test.js", 12)]),
    "vitest": ('''\
 FAIL  src/a.test.ts > login > rejects
AssertionError: expected 200 to be 401 // Object.is equality
''', [("test", "login > rejects: AssertionError: expected 200 to be 401 // Object.is equality",
       "src/a.test.ts", None)]),
    "bun": ('''\
error: expect(received).toBe(expected)

Expected: "High"
Received: undefined

      at <anonymous> (/proj/tests/a.test.ts:900:28)
(fail) next > returns the best [97.41ms]
''', [("test", "next > returns the best: expect(received).toBe(expected)", "tests/a.test.ts", 900)]),
    "rustc": ('''\
error[E0308]: mismatched types
 --> src/main.rs:4:5
error: could not compile `x` (bin "x") due to 1 previous error
''', [("compile", "error[E0308]: mismatched types", "src/main.rs", 4)]),
    "rustc without a code": ('''\
error: expected `;`, found `}`
 --> src/main.rs:4:5
''', [("compile", "expected `;`, found `}`", "src/main.rs", 4)]),
    "cargo test": ('''\
test tests::it_works ... FAILED
test tests::fine ... ok
thread 'tests::it_works' panicked at src/lib.rs:10:9:
assertion `left == right` failed
''', [("test", "tests::it_works: assertion `left == right` failed", "src/lib.rs", 10)]),
    "rustc names what it found": ('''\
error[E0308]: mismatched types
 --> src/main.rs:4:18
  |
4 |     let x: u32 = "a";
  |            ---   ^^^ expected `u32`, found `&str`
''', [("compile", "error[E0308]: mismatched types: expected `u32`, found `&str`", "src/main.rs", 4)]),
    "javac names the symbol": ('''\
src/App.java:3: error: cannot find symbol
    Foo foo;
    ^
  symbol:   class Foo
''', [("compile", "cannot find symbol: class Foo", "src/App.java", 3)]),
    "go test -v says why above the name": ('''\
=== RUN   TestLogin
    login_test.go:12: got 200, want 401
--- FAIL: TestLogin (0.00s)
=== RUN   TestLogout
--- PASS: TestLogout (0.00s)
''', [("test", "TestLogin: got 200, want 401", "login_test.go", 12)]),
    "a log of a test run": ('''\
Error: context deadline exceeded
fatal: Could not read from remote repository.
--- FAIL: TestReset (0.01s)
    reset_test.go:9: wrong message
''', [("test", "TestReset: wrong message", "reset_test.go", 9)]),
    "biome": ('''\
src/a.tsx:12:3 lint/suspicious/noExplicitAny \u2501\u2501\u2501\u2501\u2501

  \u00d7 Unexpected any.
''', [("lint", "lint/suspicious/noExplicitAny: Unexpected any.", "src/a.tsx", 12)]),
    "markdownlint": ("docs/a.md:14 error MD040/fenced-code-language Fenced code blocks",
                     [("lint", "MD040/fenced-code-language Fenced code blocks", "docs/a.md", 14)]),
    "dart": ("lib/a.dart:3:5: Error: Undefined name 'x'.", [("compile", "Undefined name 'x'.", "lib/a.dart", 3)]),
    "flutter analyze": ("  error \u2022 Undefined name 'x' \u2022 lib/a.dart:3:5 \u2022 undefined_identifier",
                        [("lint", "Undefined name 'x'", "lib/a.dart", 3)]),
    "playwright": ('''\
  1) [chromium] \u203a tests/form.spec.ts:3:1 \u203a submits the form \u2500\u2500\u2500

    Error: expect(locator).toBeVisible() failed
''', [("test", "submits the form: Error: expect(locator).toBeVisible() failed", "tests/form.spec.ts", 3)]),
    "zsh for a client": ("(eval):1: command not found: timeout", [("runtime", "command not found: timeout", None, None)]),
    "PowerShell": ('''\
\x1b[31;1mParserError: \x1b[0m
Line |
   3 |  git commit -F - << 'EOF'
     |                  ~
     | Missing file specification after redirection operator.
''', [("runtime", "ParserError: Missing file specification after redirection operator.", None, None)]),
    "PowerShell, no such program": (
        "go: The term 'go' is not recognized as a name of a cmdlet, function or program.",
        [("runtime", "go: The term 'go' is not recognized as a name of a cmdlet, function or program.", None, None)]),
    "a CI job's log": ('''\
test\tRun tests\t2026-07-07T12:55:17.2196814Z --- FAIL: TestLogin (0.00s)
test\tRun tests\t2026-07-07T12:55:17.2196814Z     login_test.go:12: got 200
test\tRun tests\t2026-07-07T12:55:17.2234158Z ##[error]Process completed with exit code 1.
''', [("test", "TestLogin: got 200", "login_test.go", 12)]),
    "a task runner's name before each line": (
        "[lint:go] cmd/a.go:4:2: unused variable x (unused)\n[lint:go] ERROR task failed",
        [("lint", "unused variable x (unused)", "cmd/a.go", 4)]),
    "go build": ("./main.go:7:2: undefined: foo", [("compile", "undefined: foo", "main.go", 7)]),
    "golangci-lint": ("cmd/a_test.go:224:3: QF1003: could use tagged switch (staticcheck)",
                      [("lint", "QF1003: could use tagged switch (staticcheck)", "cmd/a_test.go", 224)]),
    "go test": ('''\
--- FAIL: TestLogin (0.00s)
    login_test.go:12: got 200, want 401
FAIL
''', [("test", "TestLogin: got 200, want 401", "login_test.go", 12)]),
    "go panic": ("panic: runtime error: index out of range [5] with length 3",
                 [("runtime", "runtime error: index out of range [5] with length 3", None, None)]),
    "gcc": ("main.c:3:5: error: 'x' undeclared", [("compile", "'x' undeclared", "main.c", 3)]),
    "ld": ("main.c:(.text+0x5): undefined reference to `foo'",
           [("compile", "undefined reference to `foo'", None, None)]),
    "javac": ("src/Foo.java:3: error: ';' expected", [("compile", "';' expected", "src/Foo.java", 3)]),
    "maven": ("[ERROR] /proj/src/Foo.java:[3,5] cannot find symbol",
              [("compile", "cannot find symbol", "src/Foo.java", 3)]),
    "java": ('''\
Exception in thread "main" java.lang.NullPointerException: Cannot invoke "String.length()"
\tat com.foo.Bar.baz(Bar.java:12)
''', [("runtime", 'java.lang.NullPointerException: Cannot invoke "String.length()"', "Bar.java", 12)]),
    "ruby": ("app/x.rb:3:in `foo': undefined method `bar' for nil (NoMethodError)",
             [("runtime", "undefined method `bar' for nil (NoMethodError)", "app/x.rb", 3)]),
    "rspec": ("rspec ./spec/a_spec.rb:3 # Login rejects", [("test", "Login rejects", "spec/a_spec.rb", 3)]),
    "php": ("PHP Fatal error:  Uncaught TypeError: foo() in /proj/a.php:3",
            [("runtime", "Uncaught TypeError: foo()", "a.php", 3)]),
    "dotnet": ("/proj/Foo.cs(3,5): error CS0103: The name 'x' does not exist [/proj/x.csproj]",
               [("compile", "CS0103: The name 'x' does not exist", "Foo.cs", 3)]),
    "mypy": ("src/x.py:3: error: Incompatible return value type  [return-value]",
             [("lint", "Incompatible return value type  [return-value]", "src/x.py", 3)]),
    "ruff": ("src/x.py:3:1: F401 [*] `os` imported but unused",
             [("lint", "F401 [*] `os` imported but unused", "src/x.py", 3)]),
    "ruff, long form": ("F401 [*] `os` imported but unused\n --> src/x.py:1:8\n",
                        [("lint", "F401 [*] `os` imported but unused", "src/x.py", 1)]),
    "shell": ("bash: line 1: foo: command not found", [("runtime", "foo: command not found", None, None)]),
    "zsh": ("zsh: command not found: foo", [("runtime", "command not found: foo", None, None)]),
    "permission": ("cp: cannot create regular file '/etc/x': Permission denied",
                   [("permission", "cp: cannot create regular file '/etc/x': Permission denied", None, None)]),
    "git": ("fatal: not a git repository: .git", [("runtime", "not a git repository: .git", None, None)]),
    "docker": ("Error response from daemon: pull access denied for foo",
               [("runtime", "Error response from daemon: pull access denied for foo", None, None)]),
    "psql": ("psql: error: connection to server failed",
             [("runtime", "connection to server failed", None, None)]),
    "a message may end in ok": ("Error: the status was not ok", [("runtime", "Error: the status was not ok", None, None)]),
    "colours do not hide it": ("\x1b[31mfatal: bad object\x1b[0m", [("runtime", "bad object", None, None)]),
    "a place outside the project is not kept": ("/usr/include/x.h:3:5: error: bad",
                                                [("compile", "bad", None, None)]),
}
# Believed only of a command that failed.
ONLY_WHEN_FAILED = {
    "npm": ("npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve dependency tree",
            "ERESOLVE unable to resolve dependency tree"),
    "make": ("make: *** [Makefile:3: all] Error 2", "[Makefile:3: all] Error 2"),
    "error:": ("error: script \"quality\" exited with code 1", 'script "quality" exited with code 1'),
    "no file": ("sed: a.go: No such file or directory", "sed: a.go: No such file or directory"),
}
FALSE_ALARMS = [
    "0 errors",
    "no errors found",
    "Found 0 errors.",
    "errors: []",
    '  "errors": [],',
    "error: null",
    "Success: no issues found in 12 source files",
    "tests/test_errors.py::test_error_is_raised PASSED",
    "tests/test_errors.py .....                                       [100%]",
    "ok  	example.com/errors	0.003s",
    "test tests::test_error_handling ... ok",
    "--- PASS: TestError (0.00s)",
    "✓ returns an error when the password is wrong (3 ms)",
    "PASS src/errors.test.ts",
    "Improve error handling in the parser",
    "the error handler is installed",
    "12 passed, 0 failed in 0.10s",
    "Tests: 0 failed, 3 passed",
    "test result: ok. 3 passed; 0 failed; 0 ignored",
    "   Compiling thiserror v1.0.0",
    "added 3 packages, and audited 4 packages; found 0 vulnerabilities",
    "class NotFoundError(Exception):",
    "    raise ValueError('x')",
    "INFO retry after error, code 7",
    "error_count=0",
    "[main 1a2b3c4] Fix TypeError: x in login",
    "src/core/errors.ts               |  100.00 |  100.00 |",
    "-rw-r--r-- 1 dev dev 12 Nov 15 11:18 error.log",
]
# fmt: on


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_found_typed_and_placed(name: str) -> None:
    output, expected = ERRORS[name]
    seen = [
        (e.error_type, e.message, e.file_path, e.line)
        for e in errors_in(output, resolve, failed=True)
    ]
    assert seen == expected
    if not name.startswith("rustc without"):
        assert errors_in(output, resolve, failed=False)


@pytest.mark.parametrize("name", ONLY_WHEN_FAILED)
def test_a_loose_wording_counts_only_when_the_command_failed(name: str) -> None:
    output, message = ONLY_WHEN_FAILED[name]
    assert [e.message for e in errors_in(output, resolve, failed=True)] == [message]
    assert errors_in(output, resolve, failed=False) == []


@pytest.mark.parametrize("line", FALSE_ALARMS)
def test_a_line_that_only_speaks_of_errors_is_none(line: str) -> None:
    assert errors_in(f"\n{line}\n", resolve, failed=False) == []


def test_syntax_errors_of_one_file_are_one() -> None:
    output = (
        "app/a.go:3:1: expected statement, found '<<'\n"
        "app/a.go:5:1: expected statement, found '=='\n"
        "app/a.go:9:6: expected '(', found Total\n"
        "app/b.go:2:1: expected '}', found 'EOF'\n"
        "app/b.go:8:9: undefined: total\n"
    )
    found = errors_in(output, resolve, failed=True)
    assert [(error.message, error.count) for error in found] == [
        ("expected statement, found '<<'", 3),
        ("expected '}', found 'EOF'", 1),
        ("undefined: total", 1),
    ]


def test_many_errors_that_differ_in_a_name_are_one() -> None:
    message = "Property {} has no initializer and is not assigned in the constructor."
    names = ["'tax'", "'price'", "'orderName'", "'total'"]
    lines = [f"app/a.ts(7,1): error TS2564: {message.format(name)}" for name in names]
    others = [f"app/a.ts(9,1): error TS2304: Cannot find name {name}." for name in names]
    for most, expected in ((3, [1, 1, 1]), (4, [4])):
        found = errors_in("\n".join(lines[:most]), resolve, failed=True)
        assert [error.count for error in found] == expected
    assert found[0].message == f"TS2564: {message.format(names[0])}"
    # These name four different things, with too few other words to be one mistake.
    assert len(errors_in("\n".join(others), resolve, failed=True)) == 4


def test_a_long_output_is_read_where_it_begins_and_ends() -> None:
    filler = "nothing to see\n" * 40_000
    output = f"fatal: first\n{filler}fatal: last\n"
    messages = [e.message for e in errors_in(output, resolve, failed=False)]
    assert messages == ["first", "last"]


# What stands before, again and again, and after.
HOSTILE = [
    ("", "a.", ""),
    ("", "A", ""),
    ("FAILED a.py::t", " x", "-"),
    ("", " ", ""),
    ("", "Error", ""),
    ("", "at (", ""),
    ("", "fatal: ", ""),
    ("", "a/", "Error: x"),
]


@pytest.mark.parametrize(
    ("line", "error_type"),
    [
        ("error: failed to push some refs to 'origin'", "runtime"),
        ("error: externally-managed-environment", "runtime"),
        ("error: linking with `cc` failed: exit status: 1", "compile"),
        ("error: cannot find symbol", "compile"),
    ],
)
def test_an_error_without_a_place_is_a_compilers_only_by_its_words(
    line: str, error_type: str
) -> None:
    [error] = errors_in(line, resolve, failed=True)
    assert error.error_type == error_type


@pytest.mark.parametrize("longest", [1_900, 80_000])  # within a line that is read, and beyond it
@pytest.mark.parametrize(("before", "piece", "after"), HOSTILE)
def test_a_hostile_output_takes_no_longer_than_its_length(
    before: str, piece: str, after: str, longest: int
) -> None:
    def text(size: int) -> str:
        return before + piece * (size // len(piece)) + after

    def work(hostile: str) -> None:
        errors_in(f"{hostile}\nfatal: {hostile}", resolve, failed=True)
        errors_said(f"{hostile} failed with ValueError: {hostile}", resolve)

    assert_linear(work, text, longest)


# fmt: off
SAID = {
    "The build fails with `TypeError: Cannot read property 'user' of undefined`.":
        "TypeError: Cannot read property 'user' of undefined",
    "I hit a KeyError: 'name' in the loader.": "KeyError: 'name' in the loader",
    "ModuleNotFoundError: No module named 'foo'": "ModuleNotFoundError: No module named 'foo'",
    "Running it crashed: ValueError: bad input": "ValueError: bad input",
    "It printed:\nError: Cannot find module 'express'": "Error: Cannot find module 'express'",
    "The push was refused:\n\nerror: failed to push some refs\n": "failed to push some refs",
}
NOT_SAID = [
    "This would raise ValueError: bad input when the file is missing.",
    "I added handling for TypeError: x is not a function.",
    "If you see KeyError: 'x', run it again.",
    "The test expects ValueError: bad input.",
    "```\nTypeError: x is not a function\n```",
    "> TypeError: x is not a function",
    "Added error handling for the login form.",
    "I see no errors.",
    "It throws NotFoundError: gone to the caller.",
    "- **Error:** shown in red under the field",
    "Error: handling is better now. I also renamed the form.",
    "> Error: Cannot find module 'express'",
]
# fmt: on


@pytest.mark.parametrize("text", SAID)
def test_an_error_the_agent_reports_in_its_own_words_counts(text: str) -> None:
    assert [e.message for e in errors_said(text, resolve)] == [SAID[text]]


@pytest.mark.parametrize(
    "text",
    [
        "It failed with TypeError: x is not a function at src/a.js:10.",
        "I got ValueError: bad input (src/a.js:10)",
        "Error: Cannot find module 'express' in src/a.js:10:3",
    ],
)
def test_an_error_the_agent_reports_is_placed_where_it_says_so(text: str) -> None:
    [error] = errors_said(text, resolve)
    assert (error.file_path, error.line) == ("src/a.js", 10)


@pytest.mark.parametrize("text", NOT_SAID)
def test_an_error_the_agent_only_supposes_or_quotes_does_not(text: str) -> None:
    assert errors_said(text, resolve) == []
