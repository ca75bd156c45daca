"""The benchmarks' command line, called in this process."""

from __future__ import annotations

import pytest
from commanding import Ran

from bench import run


class BenchLine:
    """Says a line to `python -m bench` and gives what came of it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = run(words)
        return Ran(code, *self._capsys.readouterr())

    def well(self, *words: str) -> Ran:
        """The same, which must succeed."""
        ran = self(*words)
        assert ran.code == 0, ran.err
        return ran
