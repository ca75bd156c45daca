"""What is read out of a shell command."""

# ruff: noqa: E501  (a table reads best with one case a line)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.capture.shell import deciding, file_effects, is_masked, origin

# fmt: off
EFFECTS: dict[str, list[tuple[str, str]]] = {
    "rm a.py": [("/p/a.py", "deleted")],
    "rm -rf a.py 'b c.txt' 2>/dev/null": [("/p/a.py", "deleted"), ("/p/b c.txt", "deleted")],
    "cd src && rm a.py; git rm -q b.py": [("/p/src/a.py", "deleted"), ("/p/src/b.py", "deleted")],
    "rm -- -odd": [("/p/-odd", "deleted")],
    "rm a \\\n  b": [("/p/a", "deleted"), ("/p/b", "deleted")],
    "mv a.py b.py": [("/p/a.py", "deleted"), ("/p/b.py", "created")],
    "mv a.py lib/": [("/p/a.py", "deleted"), ("/p/lib/a.py", "created")],
    "mv a.py b.py lib": [("/p/a.py", "deleted"), ("/p/lib/a.py", "created"),
                         ("/p/b.py", "deleted"), ("/p/lib/b.py", "created")],
    "bash -lc 'rm a.py && echo \"done; x\"'": [("/p/a.py", "deleted")],
    "cat > f <<'EOF'\nrm x\nEOF\nrm z": [("/p/f", "created"), ("/p/z", "deleted")],
    "echo x >> notes.md": [("/p/notes.md", "modified")], "make 2>/dev/null > /dev/null": [],
    "sed -i '' s/a/b/ src/a.py": [("/p/src/a.py", "modified")], "cp a.md b.md": [("/p/b.md", "created")],
    "date | tee log.txt": [("/p/log.txt", "created")],
    # Not plain, or not sure to have run.
    "rm *.pyc": [], "rm $FILE": [], "rm $(cat list)": [], "git rm --cached a": [],
    "false || rm a": [], "if true; then rm a; fi": [], "(rm a)": [], "find . | xargs rm": [],
    "echo rm a": [], "# rm a": [], "rm 'unclosed": [], "": [], "mv a": [],
}
ORIGINS = {
    "pytest 2>&1 | tail -20": "own", "npm test": "own", "cd x && make": "own", "rm x": "own",
    "cat x": "file", "cat x | sort": "file", "cd a && head -3 b": "file", "FOO=1 cat x": "file",
    "git -C a log | head": "file", "sed -n 1,3p x": "file", "sed -i s/a/b/ x": "own",
    "cat x && pytest": "mixed", "pytest > log 2>&1; tail log": "own",
    "cat > t.py <<E\nx\nE\npython t.py": "own",
}
# fmt: on


@pytest.mark.parametrize("line", EFFECTS)
def test_only_plain_writes_removals_and_moves_count(line: str) -> None:
    assert file_effects(line, "/p")[0] == EFFECTS[line]


@pytest.mark.parametrize("line", ORIGINS)
def test_the_origin_of_an_output(line: str) -> None:
    assert origin(line) == ORIGINS[line]


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("make", False), ("cd a && make", False), ("make && echo ok", False), ("make | tail", True),
        ("make; echo $?", True), ("make || true", True), ("set -o pipefail; make | tail", False),
        ("ls", True), ("make | head && echo ok", True),
    ],
)  # fmt: skip
def test_an_exit_code_may_be_anothers(line: str, masked: bool) -> None:
    assert is_masked(line) is masked


@given(st.text(alphabet="rm v;&|()<>'\"\\\n $`#-ab/=", max_size=60))
def test_no_line_raises(line: str) -> None:
    file_effects(line, "/p")
    origin(line)
    deciding(line)
    is_masked(line)


def test_git_bash_and_windows_name_the_same_folder() -> None:
    deleted, here = file_effects("cd /d/shop/e2e && rm a.txt", "d:/shop/src")
    assert (deleted, here) == ([("d:/shop/e2e/a.txt", "deleted")], "d:/shop/e2e")
    assert file_effects("cd D:/shop", "d:/shop/src")[1] == "D:/shop"
    assert file_effects("cd /d/shop", "/home/dev")[1] == "/d/shop"


def test_the_branches_of_a_condition_decide_how_it_ends() -> None:
    def last(line: str) -> list[list[str]]:
        return [command.words for command in deciding(line)]

    assert last("if [ -x a ]; then ./a up; else cargo run up; fi") == [
        ["./a", "up"],
        ["cargo", "run", "up"],
    ]
    assert last("for name in a b; do pytest $name; done") == [["pytest", "$name"]]
    assert last("if grep -q a b; then echo yes; exit 1; fi") == [["fi"]]
