"""What the tests of the command line share: a line said, and what came of it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ralph.doors.cli.main import run

LOGIN = {
    "task_id": 41,
    "task_title": "Add the login form",
    "outcome": "success",
    "summary": "Built the form with validation of empty passwords.",
    "timestamp": "2026-02-07T14:30:00Z",
    "files_touched": [
        {"path": "src/login.py", "action": "created"},
        {"path": "src/app.py", "action": "modified"},
    ],
}
COOKIE = {
    "task_id": 42,
    "task_title": "Keep people signed in",
    "outcome": "failure",
    "summary": "The browser drops the session cookie.",
    "timestamp": "2026-02-08T09:00:00Z",
    "errors": [
        {
            "message": "AssertionError: Set-Cookie refused",
            "error_type": "test",
            "file_path": "tests/test_session.py",
            "line": 88,
        }
    ],
    "decisions": [{"description": "Use Redis", "rationale": "it is there"}],
    "files_touched": [{"path": "src/app.py", "action": "read"}],
    "session_id": "run-7",
}


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read back."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr; more than one is a failure of its own."""
        [line] = self.err.splitlines()
        assert "Traceback" not in line
        return line


class Line:
    """The command line, called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch

    def __call__(self, *words: str | Path, stdin: str | bytes = b"") -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._capsys.readouterr()
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
            code = run([str(word) for word in words])
        said = self._capsys.readouterr()
        return Ran(code, said.out, said.err)

    def well(self, *words: str | Path, stdin: str | bytes = b"") -> Ran:
        """The same, and it must end with 0."""
        ran = self(*words, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    def record(self, feature: str, *iterations: dict[str, Any]) -> list[str]:
        """Put iterations into memory and give their ids."""
        lines = "\n".join(json.dumps(one) for one in iterations)
        ran = self.well("record", "--feature", feature, "-", "--json", stdin=lines)
        return [one["id"] for one in ran.json]


class Terminal(io.StringIO):
    """A stream that says that a person looks at it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def process(
    words: Sequence[str | Path],
    *,
    cwd: Path,
    stdin: bytes = b"",
    prefix: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """The command line as a process of its own."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "ralph", *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, **(environ or {})},
        timeout=60,
        check=False,
    )
